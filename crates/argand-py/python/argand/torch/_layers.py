"""Sketches as layers, and the functions under them."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from .._arguments import comes_in_pairs, integer, number, text
from .._base_sketch import make_spec
from ._derivatives import features
from ._kernels import Kernel, check_method
from ._kernels import kernel as kernel_of

_TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


def polynomial_sketch(x: Tensor, spec: str, pool: int | None = None) -> Tensor:
    """The features of the last dimension of ``x``, by the spec of a sketch of one table.

    :class:`PolynomialSketch` describes arguments and result.
    """
    kernel = real_kernel(spec)
    if kernel.is_product:
        raise ValueError("spec: describes a product of several tables; tensor_product_sketch takes it")
    return sketched(kernel, [x], _dimension(pool), ["x"])


def tensor_product_sketch(tensors: Sequence[Tensor], spec: str, pool: int | None = None) -> Tensor:
    """The features of the product of the last dimensions of several tensors, by the spec of a sketch of several tables.

    :class:`TensorProductSketch` describes arguments and result.
    """
    kernel = real_kernel(spec)
    if not kernel.is_product:
        raise ValueError("spec: describes a sketch of one table; polynomial_sketch takes it")
    return sketched(kernel, list(tensors), _dimension(pool), numbered(tensors))


@torch.compiler.assume_constant_result
def real_kernel(spec: str) -> Kernel:
    """The kernel of a spec with real features."""
    if not isinstance(spec, str):
        raise TypeError(f"spec: expected JSON as a string, got {type(spec).__name__}")
    return kernel_of(spec)


def numbered(tensors: Sequence[Any]) -> list[str]:
    """Names for the tensors of a list."""
    return [f"tensors[{i}]" for i in range(len(tensors))]


def sketched(kernel: Kernel, tensors: Sequence[Tensor], pool: int | None, names: Sequence[str]) -> Tensor:
    """The features of tensors with any leading dimensions, added up over one of them if ``pool`` says so."""
    if len(tensors) != len(kernel.dims):
        raise ValueError(f"tensors: expected {len(kernel.dims)} tensors, got {len(tensors)}")
    tensors = _alike(tensors, kernel.dims, names)
    shape = tensors[0].shape[:-1]
    group = 1
    if pool is not None:
        axis = _axis(pool, len(shape) + 1)
        group = shape[axis]
        tensors = [tensor.movedim(axis, -2) for tensor in tensors]
        shape = tensors[0].shape[:-2]
    elif len(shape) == 1:
        return features(kernel, tensors)
    tables = [tensor.reshape(-1, dim) for tensor, dim in zip(tensors, kernel.dims)]
    if group == 0:
        # The sum of no rows, of which the gradient is empty.
        nothing = sum(table.sum() for table in tables) * 0
        return nothing + tensors[0].new_zeros((*shape, kernel.features))
    return features(kernel, tables, group).reshape((*shape, kernel.features))


def _alike(tensors: Sequence[Tensor], dims: Sequence[int], names: Sequence[str]) -> list[Tensor]:
    """Tensors of one device, type and leading dimensions, and of the expected widths."""
    for tensor, dim, name in zip(tensors, dims, names):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name}: expected a tensor, got {type(tensor).__name__}")
        if tensor.dtype not in _TYPES:
            raise TypeError(f"{name}: expected float16, bfloat16, float32 or float64, got {_dtype(tensor)}")
        if tensor.layout != torch.strided:
            raise TypeError(f"{name}: expected a dense tensor, got the layout {tensor.layout}")
        shape = tensor.shape
        if not shape or shape[-1] != dim:
            raise RuntimeError(f"{name}: expected {dim} columns (the last dimension), got the shape {_shape(tensor)}")
    if len(tensors) == 1:
        return list(tensors)
    first = tensors[0]
    for tensor, name in zip(tensors[1:], names[1:]):
        if tensor.device != first.device:
            raise RuntimeError(f"{name}: expected the device of {names[0]}, {first.device}, got {tensor.device}")
        if tensor.shape[:-1] != first.shape[:-1]:
            message = f"{name}: expected the leading dimensions of {names[0]}, {_shape(first)[:-1]}"
            raise RuntimeError(f"{message}, got {_shape(tensor)[:-1]}")
    if all(tensor.dtype == first.dtype for tensor in tensors):
        return list(tensors)
    if not torch.is_autocast_enabled(first.device.type):
        for tensor, name in zip(tensors, names):
            if tensor.dtype != first.dtype:
                message = f"{name}: expected the type of {names[0]}, {_dtype(first)}, got {_dtype(tensor)}"
                raise RuntimeError(message)
    # As PyTorch's own operators of several inputs do under autocast.
    widest = first.dtype
    for tensor in tensors[1:]:
        widest = torch.promote_types(widest, tensor.dtype)
    return [tensor.to(widest) for tensor in tensors]


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)


def _dimension(pool: Any) -> int | None:
    if pool is not None and (not isinstance(pool, Integral) or isinstance(pool, bool)):
        raise TypeError(f"pool: expected a dimension or None, got {pool!r}")
    return None if pool is None else int(pool)


def _axis(pool: int, dimensions: int) -> int:
    if not -dimensions <= pool < dimensions or pool % dimensions == dimensions - 1:
        raise IndexError(
            f"pool: expected one of the {dimensions - 1} dimensions before the last of {dimensions}, got {pool}"
        )
    return pool % dimensions


class SketchLayer(torch.nn.Module):
    """What all layers share: their spec, which says everything about them, and no parameters."""

    _kernel: Kernel

    def _adopt(self, kernel: Kernel, pool: int | None) -> None:
        self._kernel = kernel
        self.pool = _dimension(pool)
        self.out_features = kernel.features

    @property
    def spec(self) -> str:
        """The sketch as JSON, which the rest of Argand reads too."""
        return self._kernel.spec

    @property
    def method(self) -> str:
        """The name of its method."""
        return self._kernel.method

    def get_extra_state(self) -> Tensor:
        """The spec, for ``state_dict``: its bytes, which every file of tensors can hold."""
        return torch.tensor(list(self.spec.encode()), dtype=torch.uint8, device="cpu")

    def set_extra_state(self, state: Any) -> None:
        """Refuse the spec of another sketch: weights that were trained with its features do not fit these."""
        try:
            other = bytes(state.tolist()).decode()
            specs = [json.loads(spec) for spec in (other, self.spec)]
            # Earlier versions wrote none.
            same = len({json.dumps({**spec, "checksum": None}, sort_keys=True) for spec in specs}) == 1
        except (AttributeError, TypeError, ValueError):
            raise RuntimeError("state_dict: expected the spec of a sketch in the extra state") from None
        if not same:
            raise RuntimeError(
                f"state_dict: holds another sketch, {other}, than this layer's, {self.spec}; make the layer with "
                "from_spec to load it"
            )

    def extra_repr(self) -> str:
        data = json.loads(self.spec)
        inputs = f"in_features={data['input_dim']}, out_features={self.out_features}, degree={data['degree']}"
        kernel = f"gamma={data['gamma']}, coef0={data['coef0']}, method={self.method!r}, seed={data['seed']}"
        return f"{inputs}, {kernel}" + ("" if self.pool is None else f", pool={self.pool}")


def new_kernel(
    dims: list[int],
    distinct: bool,
    out_features: Any,
    degree: int,
    gamma: Any,
    coef0: Any,
    method: Any,
    seed: Any,
    craft_dim: Any,
) -> Kernel:
    """The kernel for the arguments of a layer, checked under their names."""
    parameters = {
        "degree": degree,
        "gamma": number("gamma", gamma),
        "coef0": number("coef0", coef0),
        "method": text("method", method),
        "craft_dim": integer("craft_dim", craft_dim),
    }
    check_method(method, "method")
    out_features = integer("out_features", out_features)
    if out_features % 2 and comes_in_pairs(method):
        raise ValueError(
            f"out_features: expected an even number for {method}, whose features are pairs, got {out_features}"
        )
    if seed is None:
        # As for the initial weights of other layers, torch.manual_seed decides.
        seed = int(torch.randint(2**63 - 1, (), device="cpu"))
    elif isinstance(seed, bool) or not isinstance(seed, Integral):
        raise TypeError(f"seed: expected an integer, got {seed!r}")
    elif not 0 <= seed < 2**64:
        raise ValueError(f"seed: expected 0 to 2**64 - 1, got {seed}")
    try:
        return kernel_of(make_spec(dims, distinct, out_features, int(seed), parameters))
    except ValueError as error:
        message = str(error).replace("n_components:", "out_features:").replace("dims:", "in_features:")
        raise ValueError(message) from None


class PolynomialSketch(SketchLayer):
    """Random features of the polynomial kernel ``(gamma <x, y> + coef0) ** degree``, as a layer.

    Inner products of features approximate the kernel without bias. The layer has no parameters; gradients of every kind
    and order pass through it. The same spec gives the same features in the rest of Argand.

    Parameters
    ----------
    in_features : int
        The size d of the last dimension.
    out_features : int
        The number of features D, even for methods whose features are pairs (``ctr-`` ones and ``srf``).
    degree, gamma, coef0, method, craft_dim
        As in :class:`argand.PolynomialSketch`, but for ``complex-`` methods: features are real.
    seed : int or None, default=None
        The seed of the sketch; None draws one from PyTorch's generator, which ``torch.manual_seed`` sets.
    pool : int or None, default=None
        A dimension, other than the last, over which features are added up. They are not stored one by one.

    Shape
    -----
    ``(*, d)`` gives ``(*, D)``, less the dimension ``pool``. float16 and bfloat16 are computed with in float32; the
    result has the type of the input. NaN and infinity pass through, and features that are too large become infinite.

    Examples
    --------
    >>> import torch
    >>> from argand.torch import PolynomialSketch
    >>> layer = PolynomialSketch(64, 1024, degree=3, coef0=1.0, seed=0)
    >>> layer(torch.randn(8, 5, 64)).shape
    torch.Size([8, 5, 1024])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        degree: int = 2,
        gamma: float = 1.0,
        coef0: float = 0.0,
        method: str = "ctr-product-srht",
        seed: int | None = None,
        *,
        craft_dim: int = 32768,
        pool: int | None = None,
    ) -> None:
        super().__init__()
        dims, degree = [integer("in_features", in_features)], integer("degree", degree)
        self._adopt(new_kernel(dims, False, out_features, degree, gamma, coef0, method, seed, craft_dim), pool)
        self.in_features = dims[0]

    @classmethod
    def from_spec(cls, spec: str, pool: int | None = None) -> PolynomialSketch:
        """The layer of a spec: that of another layer, of :attr:`argand.PolynomialSketch.spec`, or of a file."""
        kernel = real_kernel(spec)
        if kernel.is_product:
            raise ValueError("spec: describes a product of several tables; TensorProductSketch takes it")
        layer = cls.__new__(cls)
        torch.nn.Module.__init__(layer)
        layer._adopt(kernel, pool)
        layer.in_features = kernel.dims[0]
        return layer

    def forward(self, x: Tensor) -> Tensor:
        return sketched(self._kernel, [x], self.pool, ["x"])


class TensorProductSketch(SketchLayer):
    """Random features of the tensor product of the last dimensions of several tensors, as a layer.

    Inner products of features approximate ``(gamma <x1, y1> + coef0) * ... * (gamma <xp, yp> + coef0)`` without bias,
    and the product, of d1 * ... * dp numbers, is never formed.

    Parameters
    ----------
    in_features : sequence of int
        The size of the last dimension of each tensor.
    out_features, pool, method, gamma, coef0, seed, craft_dim
        As in :class:`PolynomialSketch`, except ``srf``.

    Shape
    -----
    ``(*, d1), (*, d2), ...`` give ``(*, D)``, less the dimension ``pool``.

    Examples
    --------
    >>> import torch
    >>> from argand.torch import TensorProductSketch
    >>> fuse = TensorProductSketch([32, 48, 16], 512, pool=1, seed=0)
    >>> image, text, sound = torch.randn(8, 10, 32), torch.randn(8, 10, 48), torch.randn(8, 10, 16)
    >>> fuse(image, text, sound).shape  # summed over the ten positions
    torch.Size([8, 512])
    """

    def __init__(
        self,
        in_features: Sequence[int],
        out_features: int,
        pool: int | None = None,
        method: str = "ctr-product-srht",
        gamma: float = 1.0,
        coef0: float = 0.0,
        seed: int | None = None,
        *,
        craft_dim: int = 32768,
    ) -> None:
        super().__init__()
        if isinstance(in_features, str) or not isinstance(in_features, Collection) or len(in_features) == 0:
            raise TypeError(f"in_features: expected the size of each tensor, got {in_features!r}")
        dims = [integer("in_features", dim) for dim in in_features]
        if method == "srf":
            raise ValueError("method: expected a method for products of tensors, got 'srf'")
        self._adopt(new_kernel(dims, True, out_features, len(dims), gamma, coef0, method, seed, craft_dim), pool)
        self.in_features = dims

    @classmethod
    def from_spec(cls, spec: str, pool: int | None = None) -> TensorProductSketch:
        """The layer of a spec: that of another layer, of :attr:`argand.TensorProductSketch.spec`, or of a file."""
        kernel = real_kernel(spec)
        if not kernel.is_product:
            raise ValueError("spec: describes a sketch of one table; PolynomialSketch takes it")
        layer = cls.__new__(cls)
        torch.nn.Module.__init__(layer)
        layer._adopt(kernel, pool)
        layer.in_features = list(kernel.dims)
        return layer

    def forward(self, *tensors: Tensor) -> Tensor:
        return sketched(self._kernel, tensors, self.pool, numbered(tensors))
