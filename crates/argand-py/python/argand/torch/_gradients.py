"""Sketches of the gradients of linear layers, sample by sample."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from .._arguments import integer
from ._layers import TensorProductSketch


class GradientSketch(torch.nn.Module):
    """The sketch of a linear layer's gradient for each sample, which is never formed.

    The gradient of the weights is M = Σ g aᵀ over the tokens of a sample, with the layer's inputs a and the gradients g
    of its outputs: its sketch is the sum of the sketches of the products a ⊗ g. Inner products of sketches approximate
    inner products of gradients without bias.

    Parameters
    ----------
    in_features, out_features : int
        Those of the linear layer.
    features : int
        The size D of the sketch, even for ``ctr-`` methods.
    method, seed
        As in :class:`TensorProductSketch`.

    Shape
    -----
    Activations ``(B, *, in_features)`` and gradients ``(B, *, out_features)`` give ``(B, D)``.

    Examples
    --------
    >>> import torch
    >>> from argand.torch import GradientSketch
    >>> model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 5))
    >>> with GradientSketch.attach(model, 256) as sketches:
    ...     model(torch.randn(8, 20)).logsumexp(-1).sum().backward()
    ...     found = sketches.collect()
    >>> {name: tuple(sketch.shape) for name, sketch in found.items()}
    {'0': (8, 256), '2': (8, 256)}
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        features: int,
        method: str = "ctr-product-srht",
        seed: int | None = None,
    ) -> None:
        super().__init__()
        dims = [integer("in_features", in_features), integer("out_features", out_features)]
        try:
            self.sketch = TensorProductSketch(dims, features, pool=1, method=method, seed=seed)
        except (TypeError, ValueError) as error:
            raise type(error)(str(error).replace("out_features:", "features:")) from None

    def forward(self, activations: Tensor, gradients: Tensor) -> Tensor:
        named = (("activations", activations), ("gradients", gradients))
        for (name, tensor), dim in zip(named, self.sketch.in_features):
            if not isinstance(tensor, Tensor):
                raise TypeError(f"{name}: expected a tensor, got {type(tensor).__name__}")
            if tensor.dim() < 2 or tensor.shape[-1] != dim:
                raise RuntimeError(f"{name}: expected the shape (batch, *, {dim}), got {tuple(tensor.shape)}")
        if activations.shape[:-1] != gradients.shape[:-1]:
            expected, got = tuple(activations.shape[:-1]), tuple(gradients.shape[:-1])
            raise RuntimeError(f"gradients: expected the leading dimensions of activations, {expected}, got {got}")
        tokens = activations.shape[1:-1].numel()
        return self.sketch(*(tensor.reshape(tensor.shape[0], tokens, tensor.shape[-1]) for _, tensor in named))

    @classmethod
    def attach(
        cls,
        module: torch.nn.Module,
        features: int,
        method: str = "ctr-product-srht",
        seed: int = 0,
        *,
        select: Callable[[str, torch.nn.Linear], bool] | None = None,
    ) -> AttachedSketches:
        """Sketch the gradients of the linear layers of a module in every backward pass, until detached.

        Parameters
        ----------
        module : torch.nn.Module
            The first dimension of its tensors counts samples. The loss that is differentiated is a sum over samples:
            with a mean, gradients are those of a sample divided by their number.
        features, method, seed
            Size and method of the sketch of each layer. Layer i has the seed ``seed + i``.
        select : callable, default=None
            Takes the name of a linear layer and the layer, and returns whether it is sketched; by default all are.
            Layers whose weights somebody else uses without calling them, as ``torch.nn.MultiheadAttention`` does,
            never see a gradient.
        """
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"module: expected a torch.nn.Module, got {type(module).__name__}")
        linear = [(name, part) for name, part in module.named_modules() if isinstance(part, torch.nn.Linear)]
        chosen = [(name, part) for name, part in linear if select is None or select(name, part)]
        if not chosen:
            raise ValueError(f"module: expected linear layers to sketch, got {len(chosen)} of {len(linear)}")
        seed = integer("seed", seed)
        layers = {
            name: (part, cls(part.in_features, part.out_features, features, method, seed + number))
            for number, (name, part) in enumerate(chosen)
        }
        return AttachedSketches(layers)


class ForwardHook:
    """Calls a function after the layer it is registered for; in copies and files of the layer, it does nothing.

    There, nobody could remove it.
    """

    def __init__(self, function: Callable[..., None] | None = None) -> None:
        self.function = function

    def __call__(self, *call: Any) -> None:
        if self.function is not None:
            self.function(*call)

    def __reduce__(self) -> tuple[type[ForwardHook], tuple[()]]:
        return ForwardHook, ()


class AttachedSketches:
    """The sketches of the linear layers of a module, as :meth:`GradientSketch.attach` returns them."""

    def __init__(self, layers: dict[str, tuple[torch.nn.Linear, GradientSketch]]) -> None:
        self.sketches = {name: sketch for name, (_, sketch) in layers.items()}
        self._found: dict[str, Tensor] = {}
        self._hooks = [
            layer.register_forward_hook(ForwardHook(partial(self._listen, name)), with_kwargs=True)
            for name, (layer, _) in layers.items()
        ]

    def _listen(
        self, name: str, layer: Any, inputs: tuple[Tensor, ...], named: dict[str, Tensor], output: Tensor
    ) -> None:
        if not output.requires_grad:
            return
        activations = (inputs[0] if inputs else named["input"]).detach()
        # PyTorch does not notice a change if it keeps a copy, of another type or order.
        version = activations._version
        output.register_hook(lambda gradients: self._add(name, activations, version, gradients))

    @torch.no_grad()
    def _add(self, name: str, activations: Tensor, version: int, gradients: Tensor) -> None:
        if version != activations._version:
            raise RuntimeError(
                f"layer {name!r}: its input was changed in place after it was called; use an operation that makes a "
                "new tensor"
            )
        # Under autocast the input may be wider than the output.
        sketch = self.sketches[name](activations.to(gradients.dtype), gradients.detach())
        before = self._found.get(name)
        if before is not None and len(before) != len(sketch):
            raise RuntimeError(
                f"{name}: expected {len(before)} samples, as in the backward passes since the last collect(), "
                f"got {len(sketch)}"
            )
        self._found[name] = sketch if before is None else before + sketch

    def collect(self) -> dict[str, Tensor]:
        """The sketches of all backward passes since the last call, by layer: one row per sample.

        A layer that was called several times has the sum of its sketches, as its gradient is a sum.
        """
        found, self._found = self._found, {}
        return {name: found[name] for name in self.sketches if name in found}

    def detach(self) -> None:
        """Remove the hooks."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def __enter__(self) -> AttachedSketches:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.detach()
