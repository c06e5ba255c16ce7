"""Record sketches of every example's gradient while backward passes go by."""

from __future__ import annotations

import hashlib
import json
import os
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._arguments import comes_in_pairs, integer
from ..torch import GradientSketch
from . import _files
from ._theory import features_for_error

# One-hot rows of tokens are made for so many numbers at a time.
_ONE_HOT = 1 << 24
# Sums over tokens that keep a GPU busy.
_SUMS = 1024
# Sketches stay on a GPU until there are so many bytes of them.
_ON_DEVICE = 1 << 25
# Gradients of a sample, of which the variance of inner products is computed.
_SAMPLE_BYTES = 4 << 30

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)

_ONE_MODEL = "record with one set of weights, and use another folder for another one"
_ACCUMULATED = (
    "gradients that are accumulated over several passes cannot be told apart; call record() after every backward pass, "
    "or discard() to forget one"
)
Select = Callable[[str, nn.Module], bool]


class _Layer:
    """A layer with one weight, whose gradient for an example is Σ a gᵀ over its tokens or positions."""

    def __init__(self, name: str, module: nn.Module) -> None:
        self.name, self.module = name, module
        self.weight = module._parameters.get("weight")
        self.sketch: GradientSketch | None = None
        if isinstance(module, nn.Linear):
            self.kind, self.inputs, self.outputs = "linear", module.in_features, module.out_features
        elif isinstance(module, nn.Embedding):
            self.kind, self.inputs, self.outputs = "embedding", module.num_embeddings, module.embedding_dim
        else:
            self.kind, self.inputs, self.outputs = "conv1x1", module.in_channels, module.out_channels

    @staticmethod
    def is_known(module: nn.Module) -> bool:
        """Whether its gradient is a sum of products; not that of subclasses that compute something else."""
        if isinstance(module, _CONVOLUTIONS):
            one = all(size == 1 for size in module.kernel_size) and module.groups == 1
            return one and not isinstance(module.padding, str) and not any(module.padding) and _is_plain(module)
        return isinstance(module, nn.Linear | nn.Embedding) and _is_plain(module)

    def check(self) -> None:
        """Refuse weights whose gradient is not that sum."""
        if not isinstance(self.weight, nn.Parameter):
            raise ValueError(
                f"layer {self.name!r}: its weight is computed from others (weight norm, a parametrization); leave it "
                "out with select"
            )
        if not self.weight.requires_grad:
            raise ValueError(
                f"layer {self.name!r} is frozen: its weight needs no gradient; call requires_grad_() on it, or leave "
                "the layer out with select"
            )
        if self.kind == "embedding" and (self.module.scale_grad_by_freq or self.module.max_norm is not None):
            raise ValueError(
                f"layer {self.name!r}: an embedding with scale_grad_by_freq or max_norm has other gradients; leave it "
                "out with select"
            )

    def factors(self, given: Tensor, gradients: Tensor) -> tuple[Tensor, Tensor]:
        """Input and gradient of the output as (examples, tokens, numbers); tokens of an embedding as indices."""
        if self.kind == "conv1x1":
            if given.dim() != 2 + len(self.module.kernel_size):
                raise RuntimeError(f"expected a batch of inputs, got the shape {tuple(given.shape)}")
            given = given[(..., *(slice(None, None, step) for step in self.module.stride))]
            given, gradients = (tensor.flatten(2).transpose(1, 2) for tensor in (given, gradients))
        elif self.kind == "embedding":
            if given.dim() == 1 and torch.equal(given, torch.arange(len(given), device=given.device)):
                raise RuntimeError(
                    "its input counts positions, not examples: all examples share its output, and so its gradient; "
                    "leave it out with select, or give it a row of positions for every example"
                )
            if self.module.padding_idx is not None:
                gradients = gradients.masked_fill((given == self.module.padding_idx)[..., None], 0)
            given = given.reshape(len(given), -1)
        else:
            given = given.reshape(len(given), -1, self.inputs)
        return given, gradients.reshape(len(gradients), -1, self.outputs)

    def sketched(self, given: Tensor, gradients: Tensor) -> Tensor:
        """The sketch of every gradient; half precision is computed in float32 and rounded once."""
        given, gradients = self.factors(given, gradients)
        if self.kind != "embedding":
            return self._pooled(given.to(gradients.dtype), gradients)
        examples, tokens = given.shape
        wide = max(1, _ONE_HOT // self.inputs)
        step = max(1, wide // max(1, tokens))
        dtype = torch.promote_types(gradients.dtype, torch.float32)
        found = gradients.new_zeros(examples, self.sketch.sketch.out_features, dtype=dtype)
        for first in range(0, examples, step):
            for token in range(0, tokens, wide):
                part = (slice(first, first + step), slice(token, token + wide))
                one_hot = nn.functional.one_hot(given[part], self.inputs).to(gradients.dtype)
                found[part[0]] += self.sketch(one_hot, gradients[part])
        return found

    def _pooled(self, given: Tensor, gradients: Tensor) -> Tensor:
        """Sums over the tokens of every example. A GPU gives a block to each sum: few long ones are made of several."""
        examples, tokens = given.shape[:2]
        parts = 1
        while given.is_cuda and examples * parts < _SUMS and tokens % (2 * parts) == 0:
            parts *= 2
        if parts == 1:
            return self.sketch(given, gradients)
        split = [tensor.reshape(examples * parts, -1, tensor.shape[-1]) for tensor in (given, gradients)]
        return self.sketch(*split).view(examples, parts, -1).sum(1, dtype=torch.float32)

    def gradient(self, given: Tensor, gradients: Tensor) -> Tensor:
        """The gradient of every example itself, as (examples, inputs, outputs)."""
        given, gradients = self.factors(given, gradients)
        if self.kind == "embedding":
            given = nn.functional.one_hot(given, self.inputs)
        return torch.einsum("bti,bto->bio", given.double(), gradients.double())


def _is_plain(module: nn.Module) -> bool:
    """Whether it computes what PyTorch's layer of that kind does."""
    return type(module).forward in (nn.Linear.forward, nn.Embedding.forward, *(c.forward for c in _CONVOLUTIONS))


def _layers_of(module: Any, select: Select | None) -> list[_Layer]:
    """The layers to record, in the order of the module."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"module: expected a torch.nn.Module, got {type(module).__name__}")
    known = [_Layer(name, part) for name, part in module.named_modules() if _Layer.is_known(part)]
    chosen = [layer for layer in known if select is None or select(layer.name, layer.module)]
    if not chosen:
        raise ValueError(
            f"module: expected linear layers, embeddings or 1x1 convolutions, got {len(chosen)} of {len(known)}"
        )
    for layer in chosen:
        layer.check()
        for other in known:
            if other is not layer and other.weight is layer.weight:
                raise ValueError(
                    f"layers {layer.name!r} and {other.name!r} share one weight, whose gradient is the sum of theirs; "
                    "leave both out with select"
                )
    return chosen


class _Listener:
    """Calls ``take(layer, input, gradient of the output)`` for every call of a layer, in the backward pass."""

    def __init__(self, layers: list[_Layer], take: Callable[[_Layer, Tensor, Tensor], None]) -> None:
        self.layers, self.take = layers, take
        self.called: set[str] = set()
        self.seen: set[str] = set()
        self.passes: set[int] = set()
        self._hooks: list[Any] = []

    @property
    def attached(self) -> bool:
        return bool(self._hooks)

    def attach(self) -> None:
        if self.attached:
            raise RuntimeError("the store is open already; leave its `with` block first")
        self._hooks = [
            layer.module.register_forward_hook(partial(self._called, layer), with_kwargs=True) for layer in self.layers
        ]

    def detach(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _called(
        self, layer: _Layer, _module: nn.Module, inputs: tuple[Tensor, ...], named: dict[str, Tensor], output: Tensor
    ) -> None:
        if not output.requires_grad:
            return
        # Checkpoints call layers again inside of the backward pass, whose number this is.
        outer = torch._C._current_graph_task_id()
        if self.seen and outer == -1:
            raise RuntimeError(f"layer {layer.name!r} was called again before record(): {_ACCUMULATED}")
        if layer.module.weight is not layer.weight:
            raise RuntimeError(f"layer {layer.name!r} was called with another weight than when the store was opened")
        self.called.add(layer.name)
        given = (inputs[0] if inputs else named["input"]).detach()
        version = given._version
        fired = []

        def backward(gradients: Tensor) -> None:
            if fired:
                raise RuntimeError(
                    f"layer {layer.name!r}: a second backward pass went through the same call before record(); its "
                    "gradients would count twice"
                )
            if version != given._version:
                raise RuntimeError(
                    f"layer {layer.name!r}: its input was changed in place after it was called; use an operation that "
                    "makes a new tensor"
                )
            fired.append(True)
            self.passes.add(torch._C._current_graph_task_id() if outer == -1 else outer)
            if len(self.passes) > 1:
                raise RuntimeError(
                    f"layer {layer.name!r}: a second backward pass began before record(): {_ACCUMULATED}"
                )
            self.seen.add(layer.name)
            with torch.no_grad():
                self.take(layer, given, gradients.detach())

        output.register_hook(backward)

    def reset(self) -> None:
        self.called, self.seen, self.passes = set(), set(), set()


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
        numbers of each layer. ``sample`` runs the forward and the backward pass of a few examples, say 16.
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
        layers = _layers_of(module, select)
        if sum(given is not None for given in (features, bytes_per_example, error)) > 1:
            raise ValueError("features, bytes_per_example and error: expected one of them")
        if (error is None) != (sample is None):
            raise ValueError("error and sample: expected both, or neither")
        if error is not None:
            sizes = _sizes_for_error(layers, sample, error, method)
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
        for number, layer in enumerate(layers):
            try:
                layer.sketch = GradientSketch(layer.inputs, layer.outputs, sizes[layer.name], method, seed + number)
            except (TypeError, ValueError) as problem:
                raise type(problem)(f"layer {layer.name!r}: {problem}") from None
        _warn_of_randomness(module)
        self._module, self._layers = module, layers
        self.layers = {layer.name: sizes[layer.name] for layer in layers}
        self.folder = Path(folder)
        description = {
            "format": _files.FORMAT,
            "version": _files.VERSION,
            "shard_rows": shard_rows,
            "model": _digest(module),
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
        self._shard_rows = _files.create(self.folder, description)["shard_rows"]
        self._weights = _marks(module)
        self._digest = description["model"]
        self._listener = _Listener(layers, self._take)
        self._found: dict[str, Tensor] = {}
        self._waiting: list[Tensor] = []
        self._rows: list[np.ndarray] = []
        self._resume(first)

    def _resume(self, first: int) -> None:
        """Go on behind the examples that follow ``first``; a short last shard is filled."""
        self._first, last = first, None
        for shard in _files.shards_of(self.folder):
            if shard.first < first < shard.end:
                raise ValueError(
                    f"first: example {first} is in {shard.path().name}, which begins at {shard.first}; begin there, or "
                    f"behind its end, {shard.end}"
                )
            if shard.first == self._first:
                self._first, last = shard.end, shard
        self._rows, self._written = [], 0
        if last is not None and last.rows < self._shard_rows:
            self._rows, self._written = [last.read(sum(self.layers.values()))], last.rows
            self._first = last.first
        self.recorded = self._first + sum(map(len, self._rows))

    def _take(self, layer: _Layer, given: Tensor, gradients: Tensor) -> None:
        try:
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
        found, called = self._found, self._listener.called
        self.discard()
        for layer in self._layers:
            if layer.name not in found:
                reason = (
                    "saw no gradient: its output does not reach the loss, or backward() was not called"
                    if layer.name in called
                    else "never ran, or ran without gradients; its weight may be used without a call of the layer"
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
        device = next(iter(found.values())).device
        rows = torch.cat([found[layer.name].to(device).float() for layer in self._layers], 1)
        self._waiting.append(rows if scale == 1.0 else rows * scale)
        self.recorded += expected
        waiting = sum(rows.numel() * 4 for rows in self._waiting)
        if device.type == "cpu" or waiting >= _ON_DEVICE or self._ready() >= self._shard_rows:
            self._fetch()
        return self.recorded

    def discard(self) -> None:
        """Forget the passes since the last call of :meth:`record`, after an error for example."""
        self._found = {}
        self._listener.reset()

    def _ready(self) -> int:
        return self.recorded - self._first

    def _fetch(self) -> None:
        """Bring what was recorded to the host, look at it, and write shards that are full."""
        if not self._waiting:
            return
        rows = torch.cat(self._waiting).cpu().numpy()
        self._waiting = []
        start = self.recorded - len(rows)
        if not np.isfinite(rows).all():
            example, column = np.argwhere(~np.isfinite(rows))[0]
            ends = np.cumsum([*self.layers.values()])
            name = [*self.layers][int(np.searchsorted(ends, column, side="right"))]
            # Nothing of these rows is kept.
            self.recorded = start
            raise ValueError(
                f"example {start + example}: the gradient of layer {name!r} is NaN or infinite; look at its loss; the "
                f"store goes on at example {start}"
            )
        self._rows.append(rows)
        while self._ready() >= self._shard_rows:
            everything = np.concatenate(self._rows)
            self._write(everything[: self._shard_rows])
            self._rows = [everything[self._shard_rows :]]

    def _write(self, rows: np.ndarray) -> None:
        for shard in _files.shards_of(self.folder):
            # A short shard of ours is filled; somebody else may have done so in the meantime.
            ours = shard.first == self._first and shard.rows == self._written
            if not ours and shard.first < self._first + len(rows) and self._first < shard.end:
                raise ValueError(
                    f"example {max(shard.first, self._first)} was recorded already, in {shard.path()}; give each "
                    "process examples of its own with first="
                )
        self._first, self._written = _files.write_shard(self.folder, self._first, rows).end, 0

    def flush(self) -> None:
        """Write what was recorded so far, in a shard that may be short; it is filled when more is recorded."""
        self._fetch()
        rows = [rows for rows in self._rows if len(rows)]
        if rows:
            everything = np.concatenate(rows)
            first = self._first
            self._write(everything)
            self._first, self._rows, self._written = first, [everything], len(everything)

    def __enter__(self) -> GradientStore:
        self._listener.attach()
        self.discard()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.detach()
        if kind is None:
            # Changes that PyTorch does not count.
            if _digest(self._module) != self._digest:
                raise RuntimeError(f"the weights of the model changed while the store was open; {_ONE_MODEL}")
            self.flush()

    def __repr__(self) -> str:
        size = 4 * sum(self.layers.values())
        layers = f"{len(self.layers)} layers, {size} bytes an example"
        return f"GradientStore({str(self.folder)!r}, {layers}, {self.recorded} recorded)"


def _sizes(layers: list[_Layer], features: int | Mapping[str, int]) -> dict[str, int]:
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


def _sizes_for_bytes(layers: list[_Layer], size: int, method: str) -> dict[str, int]:
    unit = 2 if comes_in_pairs(method) else 1
    numbers = size // (4 * len(layers)) // unit * unit
    if numbers < 1:
        raise ValueError(
            f"bytes_per_example: expected at least {4 * unit * len(layers)} for {len(layers)} layers, got {size}"
        )
    return dict.fromkeys([layer.name for layer in layers], numbers)


def _sizes_for_error(layers: list[_Layer], sample: Callable[[], Any], error: float, method: str) -> dict[str, int]:
    """The features of each layer for a relative error of inner products, from the gradients of a sample."""
    found: dict[str, Tensor] = {}

    def take(layer: _Layer, given: Tensor, gradients: Tensor) -> None:
        size = 8 * len(given) * layer.inputs * layer.outputs
        if size > _SAMPLE_BYTES:
            raise ValueError(
                f"sample: the gradients of {len(given)} examples of layer {layer.name!r} take {size >> 20} MB; take "
                "fewer examples"
            )
        matrix = layer.gradient(given, gradients).cpu()
        before = found.get(layer.name)
        found[layer.name] = matrix if before is None else before + matrix

    listener = _Listener(layers, take)
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


def _digest(module: nn.Module) -> str:
    """The weights of a model in 64 characters."""
    found = hashlib.sha256()
    for name, tensor in sorted(module.named_parameters()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        found.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return found.hexdigest()


def _warn_of_randomness(module: nn.Module) -> None:
    dropout = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout)
    for name, part in module.named_modules():
        if part.training and (
            (isinstance(part, dropout) and part.p > 0) or isinstance(part, nn.modules.batchnorm._BatchNorm)
        ):
            warnings.warn(
                f"layer {name!r} is in training mode: gradients depend on its random numbers or on the other examples "
                "of a batch; call eval() on the model first",
                stacklevel=3,
            )
            return
