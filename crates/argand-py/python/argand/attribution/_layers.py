"""Layers whose gradients are sums of products, and what they say in a backward pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..torch import GradientSketch
from ..torch._gradients import ForwardHook

# One-hot rows of tokens are made for so many numbers at a time.
_ONE_HOT = 1 << 24

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)

_ACCUMULATED = (
    "gradients that are accumulated over several passes cannot be told apart; call record() after every backward pass, "
    "or discard() to forget one"
)
_FROZEN = "its weight needs no gradient; call requires_grad_() on it, or leave the layer out with select"
Select = Callable[[str, nn.Module], bool]


class Layer:
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
        if isinstance(self.weight, nn.parameter.UninitializedParameter):
            raise ValueError(f"layer {self.name!r} is lazy: its weight has no shape yet; run the model once before")
        if not isinstance(self.weight, nn.Parameter):
            raise ValueError(
                f"layer {self.name!r}: its weight is computed from others (weight norm, a parametrization); leave it "
                "out with select"
            )
        if not self.weight.requires_grad:
            raise ValueError(f"layer {self.name!r} is frozen: {_FROZEN}")
        if self.kind == "embedding" and (self.module.scale_grad_by_freq or self.module.max_norm is not None):
            raise ValueError(
                f"layer {self.name!r}: an embedding with scale_grad_by_freq or max_norm has other gradients; leave it "
                "out with select"
            )

    def check_still_trained(self) -> None:
        """Refuse a weight that was frozen since the store was opened."""
        if not self.weight.requires_grad:
            raise RuntimeError(f"layer {self.name!r} was frozen after the store was opened: {_FROZEN}")

    def check_examples(self, given: Tensor) -> None:
        """Refuse an embedding of positions that all examples share: i + c, or i - j + c for pairs of positions."""
        if self.kind != "embedding" or given.dim() not in (1, 2) or given.numel() == 0 or 1 in given.shape:
            return
        places = [torch.arange(size, device=given.device) for size in given.shape]
        steps = [places[0]] if given.dim() == 1 else [places[0][:, None] - places[1], places[1] - places[0][:, None]]
        first = given.flatten()[0]
        if not any(torch.equal(given.long() - first, step) for step in steps):
            return
        # Few ids of examples may be such a sequence by chance, with a probability of about V^(1 - n).
        by_chance = (given.numel() - 1) * math.log(self.inputs) < math.log(1e6)
        if not by_chance or (given.dim() == 1 and first == 0):
            raise RuntimeError(
                "its input counts positions, not examples: all examples share its output, and so its gradient; "
                "leave it out with select, or give it a row of positions for every example"
            )

    def factors(self, given: Tensor, gradients: Tensor) -> tuple[Tensor, Tensor]:
        """Input and gradient of the output as (examples, tokens, numbers); tokens of an embedding as indices."""
        single = {"conv1x1": self.weight.dim() - 1, "embedding": 0, "linear": 1}[self.kind]
        if given.dim() == single:
            raise RuntimeError(f"expected a batch of inputs, got the shape {tuple(given.shape)}")
        if self.kind == "conv1x1":
            given = given[(..., *(slice(None, None, step) for step in self.module.stride))]
            given, gradients = (tensor.flatten(2).transpose(1, 2) for tensor in (given, gradients))
        elif self.kind == "embedding":
            given = given.long()
            if self.module.padding_idx is not None:
                gradients = gradients.masked_fill((given == self.module.padding_idx)[..., None], 0)
            given = given.flatten(1) if given.dim() > 1 else given[:, None]
        else:
            given = _tokens(given)
        return given, _tokens(gradients)

    def sketched(self, given: Tensor, gradients: Tensor) -> Tensor:
        """The sketch of every gradient; half precision is computed in float32, and rounded once on a GPU."""
        given, gradients = self.factors(given, gradients)
        if not gradients.is_cuda:
            # Sketches have the type of their input, and sums may be larger than float16 holds.
            gradients = gradients.to(torch.promote_types(gradients.dtype, torch.float32))
        if self.kind != "embedding":
            return self.sketch(given.to(gradients.dtype), gradients)
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

    def total(self, given: Tensor, gradients: Tensor) -> _Total:
        """The gradient of all examples together."""
        precise, step = gradients.dtype in (torch.float32, torch.float64), torch.finfo(gradients.dtype)
        same = None if precise else self._as_pytorch(given, gradients)
        given, gradients = (tensor.flatten(0, 1) for tensor in self.factors(given, gradients))
        gradients = gradients.to(torch.promote_types(gradients.dtype, torch.float32))
        sizes = gradients.norm(dim=1)
        if self.kind != "embedding":
            given = given.to(gradients.dtype)
            sizes = sizes * given.norm(dim=1)
        if same is not None:
            # Another kernel adds up in another order: errors are as those of independent terms, and steps near 0 of one
            # size. If every call has a copy of the weight in half precision, PyTorch adds these up in single precision.
            size = sizes.norm() + same.to_dense().float().norm() + step.smallest_normal * self.weight.numel() ** 0.5
            return _Total(same, size, 4 * step.eps, 0.0 if self.weight.dtype == same.dtype else step.eps / 4)
        # Tensor cores keep ten bits.
        rounding = max(1024 * step.eps, 4e-3 if gradients.is_cuda else 0.0)
        if self.kind == "embedding":
            total = gradients.new_zeros(self.weight.shape).index_add_(0, given, gradients)
            # PyTorch adds up the gradients of a word one by one.
            added = int(given.bincount().max()) if len(given) else 0
            return _Total(total, sizes.sum(), rounding, step.eps * added)
        return _Total((gradients.T @ given).view(self.weight.shape), sizes.sum(), rounding, step.eps)

    def _as_pytorch(self, given: Tensor, gradients: Tensor) -> Tensor:
        """The same by PyTorch's kernels: sums of half precision that are rounded at every step may be far off."""
        if self.kind == "conv1x1":
            sizes = (self.module.stride, self.module.padding, self.module.dilation)
            weight, given = gradients.new_empty(self.weight.shape), given.to(gradients.dtype)
            none = [0] * len(self.module.stride)
            return torch.ops.aten.convolution_backward(
                gradients, given, weight, None, *sizes, False, none, 1, [False, True, False]
            )[1]
        given, gradients = (tensor.flatten(0, 1) for tensor in self.factors(given, gradients))
        if self.kind == "embedding":
            return torch.ops.aten.embedding_backward(gradients, given, self.inputs, -1, False, self.module.sparse)
        return gradients.T @ given.to(gradients.dtype)

    def gradient(self, given: Tensor, gradients: Tensor) -> Tensor:
        """The gradient of every example itself, as (examples, inputs, outputs)."""
        given, gradients = self.factors(given, gradients)
        if self.kind != "embedding":
            return torch.einsum("bti,bto->bio", given.double(), gradients.double())
        count = len(given)
        rows = given + self.inputs * torch.arange(count, device=given.device)[:, None]
        found = gradients.new_zeros(count * self.inputs, self.outputs, dtype=torch.float64)
        return found.index_add_(0, rows.flatten(), gradients.double().flatten(0, 1)).view(count, self.inputs, -1)


def _tokens(tensor: Tensor) -> Tensor:
    """As (examples, tokens, numbers)."""
    return tensor.flatten(1, -2) if tensor.dim() > 2 else tensor[:, None]


def _is_plain(module: nn.Module) -> bool:
    """Whether it computes what PyTorch's layer of that kind does."""
    return type(module).forward in (nn.Linear.forward, nn.Embedding.forward, *(c.forward for c in _CONVOLUTIONS))


def plain_name(name: str) -> str:
    """The name of a module or weight, the same whether the model is compiled or not."""
    return ".".join(part for part in name.split(".") if part != "_orig_mod")


def layers_of(module: Any, select: Select | None) -> list[Layer]:
    """The layers to record, in the order of the module."""
    if not isinstance(module, nn.Module):
        raise TypeError(f"module: expected a torch.nn.Module, got {type(module).__name__}")
    if select is not None and not callable(select):
        raise TypeError(f"select: expected a function of a name and a layer, got {select!r}")
    known = [Layer(plain_name(name), part) for name, part in module.named_modules() if Layer.is_known(part)]
    chosen = [layer for layer in known if select is None or select(layer.name, layer.module)]
    if not chosen:
        raise ValueError(
            f"module: expected linear layers, embeddings or 1x1 convolutions, got {len(chosen)} of {len(known)}"
        )
    for layer in chosen:
        layer.check()
        for other in known:
            if other is not layer and _is_same(other.weight, layer.weight):
                raise ValueError(
                    f"layers {layer.name!r} and {other.name!r} share one weight, whose gradient is the sum of theirs; "
                    "leave both out with select"
                )
    return chosen


def _is_same(one: Tensor | None, other: Tensor) -> bool:
    """Whether two weights are one, or have the same numbers in memory."""
    return one is other or (one is not None and one.shape == other.shape and 0 != one.data_ptr() == other.data_ptr())


class _Kept(torch.autograd.Function):
    """Keeps a tensor as autograd keeps what it saves: checkpoints drop it, and compute it again when it is needed."""

    @staticmethod
    def forward(ctx: Any, anchor: Tensor, tensor: Tensor) -> Tensor:
        ctx.save_for_backward(tensor)
        return anchor.view_as(anchor)


class Listener:
    """Calls ``take(layer, input, gradient of the output)`` for every call of a layer, in the backward pass."""

    def __init__(self, layers: list[Layer], take: Callable[[Layer, Tensor, Tensor], None]) -> None:
        self.layers, self.take = layers, take
        self.called: set[str] = set()
        self.seen: set[str] = set()
        self.passes: set[int] = set()
        self._hooks: list[Any] = []
        # Makes autograd keep tensors; it is never differentiated.
        self._anchor = torch.zeros(0, requires_grad=True)

    @property
    def attached(self) -> bool:
        return bool(self._hooks)

    def attach(self) -> None:
        if self.attached:
            raise RuntimeError("the store is open already; leave its `with` block first")
        self._hooks = [
            layer.module.register_forward_hook(ForwardHook(partial(self._called, layer)), with_kwargs=True)
            for layer in self.layers
        ]

    def detach(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def _called(
        self, layer: Layer, _module: nn.Module, inputs: tuple[Tensor, ...], named: dict[str, Tensor], output: Tensor
    ) -> None:
        if not output.requires_grad:
            return
        # Checkpoints call layers again inside of the backward pass, whose number this is.
        outer = torch._C._current_graph_task_id()
        if self.seen and outer == -1:
            raise RuntimeError(f"layer {layer.name!r} was called again before record(): {_ACCUMULATED}")
        if layer.module.weight is not layer.weight:
            raise RuntimeError(f"layer {layer.name!r} was called with another weight than when the store was opened")
        layer.check_still_trained()
        self.called.add(layer.name)
        with torch.enable_grad():
            kept = _Kept.apply(self._anchor, (inputs[0] if inputs else named["input"]).detach()).grad_fn
        fired = []

        def backward(gradients: Tensor) -> None:
            if fired:
                raise RuntimeError(
                    f"layer {layer.name!r}: a second backward pass went through the same call before record(); its "
                    "gradients would count twice"
                )
            try:
                (given,) = kept.saved_tensors
            except RuntimeError as problem:
                if "modified by an inplace operation" not in str(problem):
                    raise
                raise RuntimeError(
                    f"layer {layer.name!r}: its input was changed in place after it was called; use an operation that "
                    "makes a new tensor"
                ) from None
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


class _Total(NamedTuple):
    """The gradient of a weight as it is recorded, and how far off PyTorch's may be."""

    gradient: Tensor
    """In the shape of the weight."""
    sizes: Tensor
    """The sum of the norms of what is added up."""
    rounding: float
    """A part of that which rounding may always make."""
    drift: float
    """The part of it that may be lost when sums are rounded at every step."""

    def __add__(self, other: _Total) -> _Total:
        rounding, drift = max(self.rounding, other.rounding), self.drift + other.drift
        return _Total(self.gradient + other.gradient, self.sizes + other.sizes, rounding, drift)


class FirstPass:
    """Compares what weights get with what is recorded of them, in one backward pass.

    They differ if a weight is also used without a call of its layer, or if somebody's hook changes what a layer gives.
    """

    def __init__(self, layers: list[Layer]) -> None:
        # By the number of the pass, too: older checkpoints have passes of their own inside of another one.
        self._totals: dict[tuple[int, str], _Total] = {}
        self._hooks = [layer.weight.register_hook(partial(self._compare, layer)) for layer in layers]

    def add(self, layer: Layer, given: Tensor, gradients: Tensor) -> None:
        """What is recorded of a call of a layer."""
        layer.check_examples(given)
        found, key = layer.total(given, gradients), (torch._C._current_graph_task_id(), layer.name)
        before = self._totals.get(key)
        self._totals[key] = found if before is None else before + found

    @torch.no_grad()
    def _compare(self, layer: Layer, got: Tensor) -> None:
        total = self._totals.pop((torch._C._current_graph_task_id(), layer.name), None)
        tolerance, got = 0.0, got.to_dense().to(torch.promote_types(got.dtype, torch.float32))
        if total is not None:
            got, tolerance = got - total.gradient.to_dense(), max(total.rounding, total.drift) * total.sizes
        # A sum over examples may overflow where none of its terms does.
        if tolerance < float(got.norm()) < float("inf"):
            raise RuntimeError(
                f"layer {layer.name!r}: its weight has another gradient than that of its calls; it is also used "
                "without a call of the layer, in a penalty for example, or a hook changes what the layer gives, or the "
                "model was compiled and called before the store was opened; remove that, or leave the layer out with "
                "select"
            )

    def reset(self) -> None:
        self._totals = {}

    def end(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
