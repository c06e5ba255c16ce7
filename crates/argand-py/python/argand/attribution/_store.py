"""Record sketches of every example's gradient while backward passes go by."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._arguments import comes_in_pairs, integer, number
from ..torch import GradientSketch
from . import _files
from ._layers import FirstPass, Layer, Listener, Select, layers_of, plain_name
from ._theory import features_for_error
from ._writer import Writer

# Sketches stay on a GPU until there are so many bytes of them.
_ON_DEVICE = 1 << 25
# Gradients of a sample, of which the variance of inner products is computed.
_SAMPLE_BYTES = 4 << 30

# Numbers of a model are summed up so many at a time, as integers of their size, and the sums with powers of a number.
_AT_ONCE = 1 << 20
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32}
_ODD = 0x1E3779B97F4A7C15

_ONE_MODEL = "record with one set of weights, and use another folder for another one"


class GradientStore:
    """Sketches of the gradient of every example, recorded in the backward pass and kept in a folder.

    The gradient of a linear layer for one example is Σ g aᵀ over its tokens, with the layer's inputs a and the
    gradients g of its outputs: its sketch is a sum of sketches of tensor products, and no gradient is ever formed.
    Inner products of sketches approximate those of gradients without bias. Linear layers, embeddings and 1x1
    convolutions are recorded; biases, norms and larger convolutions are not.

    Parameters
    ----------
    module : torch.nn.Module
        The model. The first dimension of its tensors counts examples. Put it into evaluation mode: with dropout,
        gradients are random.
    folder : path
        A new folder, or a store of the same model and settings, which is continued.
    features : int or mapping of str to int, default=None
        Numbers kept for each layer, or for each one by its name. 256 if nothing else is said.
    bytes_per_example : int, default=None
        Instead: the size of an example, shared equally by the layers (4 bytes a number).
    error, sample : float and callable, default=None
        Instead: the relative error that inner products may have, for which :func:`features_for_error` chooses the
        numbers of each layer. ``sample`` runs the forward and the backward pass of a few examples, say 16. A store that
        is continued keeps its numbers: another sample would give others.
    method : str, default="ctr-product-srht"
        The sketch, as in :class:`argand.torch.GradientSketch`.
    seed : int, default=0
        Layer i has the seed ``seed + i``. Stores that are compared need the same.
    select : callable, default=None
        Takes the name of a layer and the layer, and returns whether it is recorded; by default all are.
    first : int, default=0
        The number of the first example of this process. Multiples of ``shard_rows`` give the same files as one process.
    shard_rows : int, default=4096
        Examples in a file.

    Attributes
    ----------
    recorded : int
        The number of the next example: where to go on after an interruption.
    layers : dict of str to int
        The recorded layers and their features.

    Examples
    --------
    >>> import tempfile, torch
    >>> from argand.attribution import GradientStore
    >>> model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 5)).eval()
    >>> x, y = torch.randn(100, 20), torch.randint(5, (100,))
    >>> with GradientStore(model, tempfile.mkdtemp(), features=64) as store:
    ...     for first in range(store.recorded, 100, 25):
    ...         rows = slice(first, first + 25)
    ...         torch.nn.functional.cross_entropy(model(x[rows]), y[rows], reduction="sum").backward()
    ...         store.record()
    25
    50
    75
    100
    """

    def __init__(
        self,
        module: nn.Module,
        folder: str | os.PathLike[str],
        *,
        features: int | Mapping[str, int] | None = None,
        bytes_per_example: int | None = None,
        error: float | None = None,
        sample: Callable[[], Any] | None = None,
        method: str = "ctr-product-srht",
        seed: int = 0,
        select: Select | None = None,
        first: int = 0,
        shard_rows: int = 4096,
    ) -> None:
        layers = layers_of(module, select)
        if not isinstance(folder, str | os.PathLike):
            raise TypeError(f"folder: expected a path, got {folder!r}")
        if os.fspath(folder) == "":
            raise ValueError("folder: expected a path, got ''; '.' is the current folder")
        if sum(given is not None for given in (features, bytes_per_example, error)) > 1:
            raise ValueError("features, bytes_per_example and error: expected one of them")
        if (error is None) != (sample is None):
            raise ValueError("error and sample: expected both, or neither")
        if sample is not None and not callable(sample):
            raise TypeError(f"sample: expected a function that runs a few examples, got {sample!r}")
        if error is not None:
            known = _known_sizes(layers, Path(folder))
            sizes = _sizes_for_error(layers, sample, error, method) if known is None else known
        elif bytes_per_example is not None:
            sizes = _sizes_for_bytes(layers, integer("bytes_per_example", bytes_per_example), method)
        else:
            sizes = _sizes(layers, 256 if features is None else features)
        seed, first = integer("seed", seed), integer("first", first)
        shard_rows = integer("shard_rows", shard_rows)
        if first >= _files.MOST_EXAMPLES:
            raise ValueError(f"first: expected less than {_files.MOST_EXAMPLES}, got {first}")
        if shard_rows < 1:
            raise ValueError(f"shard_rows: expected at least 1, got {shard_rows}")
        for place, layer in enumerate(layers):
            try:
                layer.sketch = GradientSketch(layer.inputs, layer.outputs, sizes[layer.name], method, seed + place)
            except (TypeError, ValueError) as problem:
                raise type(problem)(f"layer {layer.name!r}: {problem}") from None
        _warn_of_randomness(module)
        self._module, self._layers = module, layers
        # Modes may change while the store is open, and with them which buffers would count.
        self._buffers = _counted_buffers(module)
        self.layers = {layer.name: sizes[layer.name] for layer in layers}
        self.folder = Path(folder)
        description = {
            "format": _files.FORMAT,
            "version": _files.VERSION,
            "shard_rows": shard_rows,
            "model": _digest(module, self._buffers),
            "layers": [
                {
                    "name": layer.name,
                    "kind": layer.kind,
                    "inputs": layer.inputs,
                    "outputs": layer.outputs,
                    "features": sizes[layer.name],
                    "spec": json.loads(layer.sketch.sketch.spec),
                }
                for layer in layers
            ],
        }
        shard_rows = _files.create(self.folder, description)["shard_rows"]
        self._writer = Writer(self.folder, self.layers, shard_rows, first)
        self.recorded = self._writer.end
        self._weights = _marks(module)
        self._digest, self._quick_digest = description["model"], _quick_digest(module, self._buffers)
        self._listener = Listener(layers, self._take)
        self._first_pass: FirstPass | None = None
        self._found: dict[str, Tensor] = {}
        self._waiting: list[Tensor] = []

    def _take(self, layer: Layer, given: Tensor, gradients: Tensor) -> None:
        try:
            if self._first_pass is not None:
                self._first_pass.add(layer, given, gradients)
            sketch = layer.sketched(given, gradients)
            sketch = sketch.to(torch.promote_types(sketch.dtype, torch.float32))
        except RuntimeError as problem:
            raise RuntimeError(f"layer {layer.name!r}: {problem}") from None
        before = self._found.get(layer.name)
        if before is not None and len(before) != len(sketch):
            raise RuntimeError(
                f"layer {layer.name!r} was called with {len(before)} and with {len(sketch)} examples in one pass; the "
                "first dimension has to count examples"
            )
        # A layer that is called several times has a sum of gradients.
        self._found[layer.name] = sketch if before is None else before + sketch

    @torch.no_grad()
    def record(self, scale: float = 1.0) -> int:
        """Take the sketches of the backward pass since the last call.

        Sketches of a GPU are looked at and written while the next passes run: what is wrong with them, NaN for
        example, is an error of a later call, which says where the store goes on.

        Parameters
        ----------
        scale : float, default=1
            What gradients are multiplied by. The loss is taken for a sum over examples; for a mean over a batch, pass
            the number of its examples.

        Returns
        -------
        recorded : int
            How many examples there are, that is the number of the next one.
        """
        if not self._listener.attached:
            raise RuntimeError("record() works inside of `with store:`, where backward passes are listened to")
        scale = number("scale", scale)
        if not np.isfinite(scale):
            raise ValueError(f"scale: expected a finite number, got {scale}")
        found, called = self._found, self._listener.called
        self.discard()
        for layer in self._layers:
            if layer.name not in found:
                layer.check_still_trained()
                reason = (
                    "saw no gradient: its output does not reach the loss, or backward() was not called"
                    if layer.name in called
                    else "never ran, or ran without gradients; its weight may be used without a call of the layer, or "
                    "the model was compiled before the store was opened"
                )
                raise RuntimeError(f"layer {layer.name!r} {reason}; leave it out with select if that is intended")
        counts = {name: len(sketch) for name, sketch in found.items()}
        expected = counts[self._layers[0].name]
        for name, count in counts.items():
            if count != expected:
                raise RuntimeError(
                    f"layer {name!r} saw {count} examples, and layer {self._layers[0].name!r} {expected}; the first "
                    "dimension of every tensor has to count examples"
                )
        if _marks(self._module) != self._weights:
            raise RuntimeError(f"the weights of the model changed since the store was opened; {_ONE_MODEL}")
        if self.recorded + expected > _files.MOST_EXAMPLES:
            raise ValueError(
                f"examples {self.recorded} to {self.recorded + expected - 1}: expected numbers below "
                f"{_files.MOST_EXAMPLES}; begin with a smaller first="
            )
        if expected:
            self._end_first_pass()
        device = next(iter(found.values())).device
        rows = torch.cat([found[layer.name].to(device).float() for layer in self._layers], 1)
        self._waiting.append(rows if scale == 1.0 else rows * scale)
        self.recorded += expected
        size, begin = sum(4 * rows.numel() for rows in self._waiting), self.recorded - sum(map(len, self._waiting))
        fills = self._writer.fills_a_shard(begin, self.recorded)
        if fills:
            self._look()
        if device.type == "cpu" or size >= _ON_DEVICE or fills:
            self._hand_over()
        return self.recorded

    def discard(self) -> None:
        """Forget the passes since the last call of :meth:`record`, after an error for example."""
        self._found = {}
        self._listener.reset()
        if self._first_pass is not None:
            self._first_pass.reset()

    def _end_first_pass(self) -> None:
        if self._first_pass is not None:
            self._first_pass.end()
            self._first_pass = None

    def _look(self) -> None:
        """Before what was recorded is written: look whether the weights are those of the beginning."""
        if _quick_digest(self._module, self._buffers) == self._quick_digest:
            self._seen = self.recorded
        else:
            self._were_others = True

    def _lose(self) -> None:
        """After a failure to write, nothing behind it is kept."""
        self.recorded = self._writer.end
        self._seen = min(self._seen, self.recorded)

    def _hand_over(self) -> None:
        """Give what was recorded to the writer."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        try:
            self._writer.add(torch.cat(waiting))
        except BaseException:
            self._lose()
            raise

    def flush(self) -> None:
        """Write what was recorded so far, in a shard that may be short; it is filled when more is recorded."""
        if self._listener.attached:
            self._look()
        self._hand_over()
        try:
            self._writer.flush()
        except BaseException:
            self._lose()
            raise

    def __enter__(self) -> GradientStore:
        for layer in self._layers:
            layer.check_still_trained()
        self._listener.attach()
        self._first_pass = FirstPass(self._layers)
        self.discard()
        # Where the session began, and how far it came when the weights were last seen to be the same.
        self._begin = self._seen = self.recorded
        self._were_others = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.detach()
        self._end_first_pass()
        if kind is None:
            changed, _ = self._changed()
            if changed is not None:
                raise RuntimeError(f"{changed}; {_ONE_MODEL}")
            self.flush()
            return
        # Whole shards of what was recorded are written; the first error is the one that counts.
        with contextlib.suppress(Exception):
            self._writer.wait()
        with contextlib.suppress(Exception):
            changed, removed = self._changed()
            if removed:
                warnings.warn(f"{changed}; {_ONE_MODEL}", stacklevel=2)

    def _changed(self) -> tuple[str | None, bool]:
        """What changed while the store was open, and whether something was removed from the folder for that.

        What may have been recorded of other weights is taken back.
        """
        if not self._were_others and _digest(self._module, self._buffers) == self._digest:
            return None, False
        # Every call of record() looked at the changes that PyTorch counts, but others may have come before these.
        counted = not self._were_others and _marks(self._module) != self._weights
        end, self._waiting = self.recorded, []
        removed = self._writer.take_back(self._seen if counted else self._begin)
        self.recorded = self._writer.end
        changed = "the weights of the model changed, or its buffers, while the store was open"
        if self.recorded < end:
            changed += f"; examples {self.recorded} to {end - 1}, recorded meanwhile, were removed"
        return changed, removed

    def __repr__(self) -> str:
        size = 4 * sum(self.layers.values())
        layers = f"{len(self.layers)} layers, {size} bytes an example"
        return f"GradientStore({str(self.folder)!r}, {layers}, {self.recorded} recorded)"


def _sizes(layers: list[Layer], features: int | Mapping[str, int]) -> dict[str, int]:
    names = [layer.name for layer in layers]
    if not isinstance(features, Mapping):
        return dict.fromkeys(names, integer("features", features))
    for name in features:
        if name not in names:
            raise ValueError(f"features: there is no recorded layer {name!r}; the layers are {', '.join(names)}")
    for name in names:
        if name not in features:
            raise ValueError(f"features: layer {name!r} is missing; name it, or leave it out with select")
    return {name: integer("features", features[name]) for name in names}


def _sizes_for_bytes(layers: list[Layer], size: int, method: str) -> dict[str, int]:
    unit = 2 if comes_in_pairs(method) else 1
    numbers = size // (4 * len(layers)) // unit * unit
    if numbers < 1:
        raise ValueError(
            f"bytes_per_example: expected at least {4 * unit * len(layers)} for {len(layers)} layers, got {size}"
        )
    return dict.fromkeys([layer.name for layer in layers], numbers)


def _known_sizes(layers: list[Layer], folder: Path) -> dict[str, int] | None:
    """The features of a store that is there already, if it has these layers."""
    if not (folder / _files.STORE).exists():
        return None
    sizes = {layer["name"]: layer["features"] for layer in _files.read_description(folder)["layers"]}
    return sizes if sizes.keys() == {layer.name for layer in layers} else None


def _sizes_for_error(layers: list[Layer], sample: Callable[[], Any], error: float, method: str) -> dict[str, int]:
    """The features of each layer for a relative error of inner products, from the gradients of a sample."""
    found: dict[str, Tensor] = {}

    def take(layer: Layer, given: Tensor, gradients: Tensor) -> None:
        size = 8 * len(given) * layer.inputs * layer.outputs
        if size > _SAMPLE_BYTES:
            raise ValueError(
                f"sample: the gradients of {len(given)} examples of layer {layer.name!r} take {size >> 20} MB; take "
                "fewer examples"
            )
        matrix = layer.gradient(given, gradients).cpu()
        before = found.get(layer.name)
        found[layer.name] = matrix if before is None else before + matrix

    listener = Listener(layers, take)
    listener.attach()
    try:
        sample()
    finally:
        listener.detach()
    sizes = {}
    for layer in layers:
        if layer.name not in found:
            raise ValueError(f"sample: layer {layer.name!r} saw no gradient; leave it out with select")
        try:
            sizes[layer.name] = features_for_error(found[layer.name].numpy(), error, method)
        except ValueError as problem:
            raise ValueError(f"layer {layer.name!r}: {problem}") from None
    return sizes


def _marks(module: nn.Module) -> list[tuple[int, int, torch.dtype, int]]:
    """What tells at little cost that weights are still the same."""
    return [(id(weight), weight.data_ptr(), weight.dtype, weight._version) for weight in module.parameters()]


def _counted_buffers(module: nn.Module) -> list[tuple[str, nn.Module, str]]:
    """The buffers of parts in evaluation mode, running means of batch norm, say; in training mode they may change."""
    return [
        (plain_name(f"{prefix}.{name}"), part, name)
        for prefix, part in module.named_modules()
        if not part.training
        for name, buffer in part._buffers.items()
        if buffer is not None and name not in part._non_persistent_buffers_set
    ]


def _numbers(module: nn.Module, counted: list[tuple[str, nn.Module, str]]) -> list[tuple[str, Tensor]]:
    """The weights of a model by their names, and these buffers."""
    buffers = ((full, part._buffers.get(name)) for full, part, name in counted)
    weights = ((plain_name(name), weight) for name, weight in module.named_parameters())
    found = [*sorted(weights), *sorted(buffers)]
    return [(name, tensor.detach()) for name, tensor in found if tensor is not None]


def _digest(module: nn.Module, counted: list[tuple[str, nn.Module, str]]) -> str:
    """Its numbers in 64 characters."""
    found = hashlib.sha256()
    for name, tensor in _numbers(module, counted):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        found.update(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return found.hexdigest()


def _quick_digest(module: nn.Module, counted: list[tuple[str, nn.Module, str]]) -> Any:
    """A digest to compare with others of this process; on a GPU, which would be slow to copy from, a sum."""
    tensors = [tensor for _, tensor in _numbers(module, counted)]
    return _digest(module, counted) if all(tensor.device.type == "cpu" for tensor in tensors) else _sum(tensors)


def _sum(tensors: list[Tensor]) -> list[int]:
    """The sum of the bits of numbers with random factors, for each device."""
    drawn = torch.randint(-(2**63), 2**63 - 1, (_AT_ONCE,), generator=torch.Generator().manual_seed(0)) | 1
    devices = {tensor.device for tensor in tensors}
    totals = {device: torch.zeros((), dtype=torch.int64, device=device) for device in devices}
    factors = {device: drawn.to(device) for device in devices}
    for tensor in tensors:
        device, bits = tensor.device, _BITS.get(tensor.itemsize, torch.int64)
        for part in tensor.contiguous().reshape(-1).view(bits).split(_AT_ONCE):
            totals[device] = totals[device] * _ODD + (part * factors[device][: len(part)]).sum()
    return sorted(int(total) for total in totals.values())


def _warn_of_randomness(module: nn.Module) -> None:
    for name, part in module.named_modules():
        if part.training and _is_random(part):
            warnings.warn(
                f"layer {name!r} is in training mode: gradients depend on its random numbers or on the other examples "
                "of a batch; call eval() on the model first",
                stacklevel=3,
            )
            return


def _is_random(part: nn.Module) -> bool:
    """Whether it is another function for every batch in training mode."""
    if isinstance(part, nn.modules.dropout._DropoutNd):
        return part.p > 0
    if isinstance(part, nn.RNNBase):
        # Between layers.
        return part.dropout > 0 and part.num_layers > 1
    if isinstance(part, nn.MultiheadAttention):
        return part.dropout > 0
    return isinstance(part, nn.modules.batchnorm._BatchNorm)
