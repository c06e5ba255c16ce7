"""Features with every kind of derivative.

The features of a product sketch are multilinear: with x̃ = (√γ x, √ν) they are M(x̃₁, …, x̃_p), linear in every
argument, and all x̃ᵢ are the same for a polynomial. All derivatives are made from M and its adjoint. For inputs x,
directions t and cotangents g:

- the adjoint, the gradient of ⟨g, f(x)⟩, is a kernel of its own;
- the derivative along t is Σᵢ M(x̃₁, …, t̃ᵢ, …, x̃_p) with t̃ = (√γ t, 0): p calls of M;
- derivatives of the adjoint need the Hessian of ⟨g, f(x)⟩ times t, which is Σᵢ of the adjoints of M at
  (x̃₁, …, t̃ᵢ, …, x̃_p), without those of argument i: p calls of the adjoint.

M is a product sketch itself, so there is no highest order.

In eager mode these are two ``torch.autograd.Function``, the only way to have forward derivatives. For
``torch.compile``, ``torch.export`` and everything else that traces operators, they are two custom operators with the
same formulas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter
from torch.nn.functional import pad

from ._kernels import Kernel, compute, compute_vjp, kernel


def features(kernel: Kernel, tables: Sequence[Tensor], group: int = 1) -> Tensor:
    """The features of all rows of tables with two dimensions, added up over each ``group`` rows."""
    if kernel.method == "srf":
        return _spherical(kernel, tables[0], group)
    if _is_traced(tables):
        return _features_operator(list(tables), kernel.line, group)
    if torch._C._are_functorch_transforms_active():
        return _Features.apply(kernel, group, *tables)
    if _is_constant(tables):
        return compute(kernel, tables, group)
    return _EagerFeatures.apply(kernel, group, *tables)


def vjp(kernel: Kernel, tables: Sequence[Tensor], cotangent: Tensor, group: int) -> Sequence[Tensor]:
    """The gradient of ⟨cotangent, features⟩ with respect to each table."""
    if _is_traced([cotangent, *tables]):
        return _vjp_operator(list(tables), cotangent, kernel.line, group)
    if torch._C._are_functorch_transforms_active():
        return _Vjp.apply(kernel, group, cotangent, *tables)
    if _is_constant([cotangent, *tables]):
        return compute_vjp(kernel, tables, cotangent, group)
    return _EagerVjp.apply(kernel, group, cotangent, *tables)


def _is_traced(tensors: Sequence[Tensor]) -> bool:
    """As :func:`_needs_operator`, for operators without forward derivatives."""
    traced = _needs_operator(tensors)
    if traced and forward_ad._current_level >= 0:
        # PyTorch would take an operator for a constant, and its derivative for zero.
        raise NotImplementedError(
            "forward mode (jvp, jacfwd, dual numbers) of a sketch is not supported inside of torch.compile, torch.jit "
            "and dispatch modes, nor for subclasses of tensors"
        )
    return traced


def _needs_operator(tensors: Sequence[Tensor]) -> bool:
    """Whether somebody has to see an operator: a compiler, a mode or a subclass of tensors."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
        return True
    if torch._C._get_tracing_state() is not None:
        return True
    return any(type(tensor) is not Tensor and type(tensor) is not Parameter for tensor in tensors)


def _is_constant(tensors: Sequence[Tensor]) -> bool:
    """Whether nobody asks for a derivative."""
    if forward_ad._current_level >= 0:
        return False
    return not (torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors))


def _primals(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors without their tangents at this level; those of levels around it stay.

    PyTorch calls ``jvp`` with forward derivatives disabled, which would lose those of the levels around this one. Once
    they are enabled again, the tangents of this level must be gone.
    """
    return [forward_ad.unpack_dual(tensor).primal for tensor in tensors]


def _keep(ctx: Any, kernel: Kernel, group: int, tensors: Sequence[Tensor]) -> None:
    ctx.kernel, ctx.group = kernel, group
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors)
    if forward_ad._current_level >= 0:
        ctx.save_for_forward(*tensors)


class _FeaturesRules:
    """Derivatives of the features."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        kernel, group, *tables = inputs
        _keep(ctx, kernel, group, tables)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor | None) -> Any:
        if cotangent is None:
            return (None, None, *(None for _ in ctx.saved_tensors))
        return (None, None, *vjp(ctx.kernel, ctx.saved_tensors, cotangent, ctx.group))

    @staticmethod
    def jvp(ctx: Any, _kernel: Any, _group: Any, *tangents: Tensor | None) -> Tensor:
        with forward_ad._set_fwd_grad_enabled(True):
            return _along(ctx.kernel, _primals(ctx.saved_tensors), tangents, ctx.group)

    @staticmethod
    def vmap(info: Any, in_dims: Any, kernel: Kernel, group: int, *tables: Tensor) -> tuple[Tensor, int]:
        found = features(kernel, _folded(info.batch_size, in_dims[2:], tables), group)
        return _unfolded(info.batch_size, found), 0


class _VjpRules:
    """Derivatives of the adjoint."""

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        kernel, group, *tensors = inputs
        _keep(ctx, kernel, group, tensors)

    @staticmethod
    def backward(ctx: Any, *directions: Tensor | None) -> Any:
        cotangent, *tables = ctx.saved_tensors
        if all(direction is None for direction in directions):
            return (None, None, None, *(None for _ in tables))
        of_cotangent = _along(ctx.kernel, tables, directions, ctx.group)
        return (None, None, of_cotangent, *_curvature(ctx.kernel, tables, directions, cotangent, ctx.group))

    @staticmethod
    def jvp(
        ctx: Any, _kernel: Any, _group: Any, of_cotangent: Tensor | None, *tangents: Tensor | None
    ) -> tuple[Tensor, ...]:
        with forward_ad._set_fwd_grad_enabled(True):
            cotangent, *tables = _primals(ctx.saved_tensors)
            derivatives = _curvature(ctx.kernel, tables, tangents, cotangent, ctx.group)
            if of_cotangent is not None:
                straight = vjp(ctx.kernel, tables, of_cotangent, ctx.group)
                derivatives = [a + b for a, b in zip(derivatives, straight)]
            return tuple(derivatives)

    @staticmethod
    def vmap(
        info: Any, in_dims: Any, kernel: Kernel, group: int, cotangent: Tensor, *tables: Tensor
    ) -> tuple[Any, Any]:
        cotangent, *tables = _folded(info.batch_size, in_dims[2:], (cotangent, *tables))
        gradients = vjp(kernel, tables, cotangent, group)
        return tuple(_unfolded(info.batch_size, gradient) for gradient in gradients), (0,) * len(gradients)


class _Features(_FeaturesRules, torch.autograd.Function):
    """For transforms of ``torch.func``."""

    @staticmethod
    def forward(kernel: Kernel, group: int, *tables: Tensor) -> Tensor:
        return compute(kernel, tables, group)


class _Vjp(_VjpRules, torch.autograd.Function):
    """For transforms of ``torch.func``."""

    @staticmethod
    def forward(kernel: Kernel, group: int, cotangent: Tensor, *tables: Tensor) -> tuple[Tensor, ...]:
        return tuple(compute_vjp(kernel, tables, cotangent, group))


class _EagerFeatures(_FeaturesRules, torch.autograd.Function):
    """Without a context of its own, which would cost more than all the rest of a call."""

    setup_context = staticmethod(torch.autograd.Function.setup_context)

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        kernel, group, *tables = inputs
        _keep(ctx, kernel, group, tables)
        return compute(kernel, tables, group)


class _EagerVjp(_VjpRules, torch.autograd.Function):
    """As :class:`_EagerFeatures`."""

    setup_context = staticmethod(torch.autograd.Function.setup_context)

    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> tuple[Tensor, ...]:
        kernel, group, *tensors = inputs
        _keep(ctx, kernel, group, tensors)
        cotangent, *tables = tensors
        return tuple(compute_vjp(kernel, tables, cotangent, group))


def _folded(batch: int, in_dims: Sequence[int | None], tensors: Sequence[Tensor]) -> list[Tensor]:
    """Tables with the rows of all elements of a batch."""
    whole = [
        tensor.expand(batch, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        for tensor, dim in zip(tensors, in_dims)
    ]
    return [tensor.reshape(batch * tensor.shape[1], tensor.shape[2]) for tensor in whole]


def _unfolded(batch: int, tensor: Tensor) -> Tensor:
    return tensor.reshape(batch, tensor.shape[0] // batch, tensor.shape[1])


def _factors(kernel: Kernel, tables: Sequence[Tensor | None], constant: float) -> list[Any]:
    """What each factor of the multilinear form reads: (√γ x, constant)."""
    root_gamma, root_coef0 = kernel.roots

    def extended(table: Tensor | None) -> Tensor | None:
        if table is None:
            return None
        table = table if root_gamma == 1 else table * root_gamma
        return pad(table, (0, 1), value=constant) if root_coef0 else table

    factors = [extended(table) for table in tables]
    return factors if kernel.is_product else factors * kernel.degree


def _along(kernel: Kernel, tables: Sequence[Tensor], tangents: Sequence[Tensor | None], group: int) -> Tensor:
    """The derivative of the features along tangents."""
    factors, directions = _factors(kernel, tables, kernel.roots[1]), _factors(kernel, tangents, 0.0)
    terms = [
        features(kernel.multilinear, [*factors[:i], direction, *factors[i + 1 :]], group)
        for i, direction in enumerate(directions)
        if direction is not None
    ]
    if not terms:
        return tables[0].new_zeros((tables[0].shape[0] // group, kernel.features))
    return sum(terms[1:], terms[0])


def _curvature(
    kernel: Kernel, tables: Sequence[Tensor], tangents: Sequence[Tensor | None], cotangent: Tensor, group: int
) -> list[Tensor]:
    """The Hessian of ⟨cotangent, features⟩ times tangents."""
    factors, directions = _factors(kernel, tables, kernel.roots[1]), _factors(kernel, tangents, 0.0)
    sums: list[Any] = [0.0] * len(factors)
    for i, direction in enumerate(directions):
        if direction is None or len(factors) == 1:
            continue
        replaced = [*factors[:i], direction, *factors[i + 1 :]]
        for j, gradient in enumerate(vjp(kernel.multilinear, replaced, cotangent, group)):
            if j != i:
                sums[j] = sums[j] + gradient
    if not kernel.is_product:
        sums = [sum(sums)]
    derivatives = []
    for table, total in zip(tables, sums):
        if isinstance(total, float):
            derivatives.append(torch.zeros_like(table))
        else:
            derivatives.append(total[:, : table.shape[1]] * kernel.roots[0])
    return derivatives


def _spherical(kernel: Kernel, x: Tensor, group: int) -> Tensor:
    """Spherical random features, cosines and sines of ⟨ω, x/|x|⟩, from PyTorch's own operators and their derivatives.

    A row of zeros has the features of the origin, and the gradient zero.
    """
    wide = x.float() if x.itemsize == 2 else x
    frequencies = _frequencies_operator(wide, kernel.line) if _needs_operator([x]) else kernel.frequencies(wide)
    # The largest number of a row, so that squares neither overflow nor vanish.
    largest = wide.detach().abs().amax(-1, keepdim=True)
    nothing = largest == 0
    scaled = wide / largest.masked_fill(nothing, 1)
    norms = (scaled.square().sum(-1, keepdim=True) + nothing).sqrt()
    angles = (scaled / norms).masked_fill(nothing, 0) @ frequencies.T
    found = torch.cat([angles.cos(), angles.sin()], -1) * frequencies.shape[0] ** -0.5
    if group > 1:
        found = found.unflatten(0, (-1, group)).sum(1)
    return found.to(x.dtype)


@torch.library.custom_op("argand::features", mutates_args=())
def _features_operator(tables: list[Tensor], spec: str, group: int) -> Tensor:
    return compute(kernel(spec), tables, group)


@torch.library.custom_op("argand::vjp", mutates_args=())
def _vjp_operator(tables: list[Tensor], cotangent: Tensor, spec: str, group: int) -> list[Tensor]:
    return compute_vjp(kernel(spec), tables, cotangent, group)


@torch.library.custom_op("argand::frequencies", mutates_args=())
def _frequencies_operator(like: Tensor, spec: str) -> Tensor:
    # A compiler may write over what an operator returns.
    return kernel(spec).frequencies(like).clone()


@_features_operator.register_fake
def _(tables: list[Tensor], spec: str, group: int) -> Tensor:
    return tables[0].new_empty((tables[0].shape[0] // group, kernel(spec).features))


@_vjp_operator.register_fake
def _(tables: list[Tensor], cotangent: Tensor, spec: str, group: int) -> list[Tensor]:
    return [table.new_empty(table.shape) for table in tables]


@_frequencies_operator.register_fake
def _(like: Tensor, spec: str) -> Tensor:
    return like.new_empty((kernel(spec).features // 2, like.shape[1]))


def _keep_features(ctx: Any, inputs: Any, output: Any) -> None:
    tables, ctx.spec, ctx.group = inputs
    ctx.save_for_backward(*tables)


def _features_backward(ctx: Any, cotangent: Tensor) -> Any:
    return list(vjp(kernel(ctx.spec), ctx.saved_tensors, cotangent, ctx.group)), None, None


def _keep_vjp(ctx: Any, inputs: Any, output: Any) -> None:
    tables, cotangent, ctx.spec, ctx.group = inputs
    ctx.save_for_backward(cotangent, *tables)


def _vjp_backward(ctx: Any, directions: Sequence[Tensor | None]) -> Any:
    cotangent, *tables = ctx.saved_tensors
    of_cotangent = _along(kernel(ctx.spec), tables, directions, ctx.group)
    of_tables = _curvature(kernel(ctx.spec), tables, directions, cotangent, ctx.group)
    return of_tables, of_cotangent, None, None


def _features_vmap(info: Any, in_dims: Any, tables: list[Tensor], spec: str, group: int) -> tuple[Tensor, int]:
    found = features(kernel(spec), _folded(info.batch_size, in_dims[0], tables), group)
    return _unfolded(info.batch_size, found), 0


def _vjp_vmap(
    info: Any, in_dims: Any, tables: list[Tensor], cotangent: Tensor, spec: str, group: int
) -> tuple[list[Tensor], list[int]]:
    *tables, cotangent = _folded(info.batch_size, [*in_dims[0], in_dims[1]], [*tables, cotangent])
    gradients = vjp(kernel(spec), tables, cotangent, group)
    return [_unfolded(info.batch_size, gradient) for gradient in gradients], [0] * len(gradients)


def _frequencies_vmap(info: Any, in_dims: Any, like: Tensor, spec: str) -> tuple[Tensor, None]:
    # They do not depend on the rows.
    return _frequencies_operator(like.movedim(in_dims[0], 0).flatten(0, 1), spec), None


_features_operator.register_autograd(_features_backward, setup_context=_keep_features)
_features_operator.register_vmap(_features_vmap)
_vjp_operator.register_autograd(_vjp_backward, setup_context=_keep_vjp)
_vjp_operator.register_vmap(_vjp_vmap)
_frequencies_operator.register_autograd(lambda ctx, _cotangent: (None, None))
_frequencies_operator.register_vmap(_frequencies_vmap)
