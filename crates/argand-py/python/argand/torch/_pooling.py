"""Compact bilinear pooling of feature maps."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ._layers import PolynomialSketch, TensorProductSketch


def signed_sqrt(x: Tensor) -> Tensor:
    """sign(x) √|x|, with the gradient 0 at 0."""
    if not x.is_floating_point():
        raise TypeError(f"x: expected a floating-point tensor, got {x.dtype}")
    wide = _wide(x)
    return (wide.sign() * (wide.abs() + torch.finfo(wide.dtype).tiny).sqrt()).to(x.dtype)


def _wide(x: Tensor) -> Tensor:
    """Half precision as float32: its smallest numbers are too large to be added to nothing."""
    return x.float() if x.itemsize == 2 else x


def _unit(x: Tensor) -> Tensor:
    """x/|x|, and zero for zero, with derivatives of every order there."""
    return x * (x.square().sum(-1, keepdim=True) + 1e-24).rsqrt()


class CompactBilinearPooling(torch.nn.Module):
    """Compact bilinear pooling: the sum over all positions of the products of channels, sketched.

    One feature map is multiplied with itself; several are multiplied with each other, position by position. Neither the
    products, of C1 * C2 * ... numbers, nor the features of single positions are stored.

    Parameters
    ----------
    in_channels : int or sequence of int
        The channels of the feature map, or of each of several.
    out_features : int
        The number of features, even for ``ctr-`` methods.
    signed_sqrt, l2 : bool, default=True
        Whether to take the signed square root of the sums, and to scale them to unit norm afterwards.
    method, seed
        As in :class:`PolynomialSketch`.

    Shape
    -----
    ``(*, C1, H, W), (*, C2, H, W), ...`` give ``(*, out_features)``. Maps in PyTorch's ``channels_last`` format are
    read in place; others are copied once.

    References
    ----------
    Gao, Beijbom, Zhang, Darrell: Compact Bilinear Pooling. CVPR 2016.

    Examples
    --------
    >>> import torch
    >>> from argand.torch import CompactBilinearPooling
    >>> pooling = CompactBilinearPooling(64, 1024, seed=0)
    >>> pooling(torch.randn(2, 64, 7, 7)).shape
    torch.Size([2, 1024])
    >>> fusion = CompactBilinearPooling([64, 32, 16], 1024, seed=0)
    >>> fusion(torch.randn(2, 64, 7, 7), torch.randn(2, 32, 7, 7), torch.randn(2, 16, 7, 7)).shape
    torch.Size([2, 1024])
    """

    sketch: PolynomialSketch | TensorProductSketch

    def __init__(
        self,
        in_channels: int | Sequence[int],
        out_features: int,
        method: str = "ctr-product-srht",
        seed: int | None = None,
        *,
        signed_sqrt: bool = True,
        l2: bool = True,
    ) -> None:
        super().__init__()
        several = isinstance(in_channels, Sequence) and not isinstance(in_channels, str)
        if several and len(in_channels) < 2:
            raise ValueError(f"in_channels: expected one number, or those of two or more maps, got {in_channels}")
        kind = TensorProductSketch if several else PolynomialSketch
        try:
            self.sketch = kind(in_channels, out_features, method=method, seed=seed, pool=-2)
        except (TypeError, ValueError) as error:
            raise type(error)(str(error).replace("in_features", "in_channels")) from None
        self.in_channels = in_channels
        self.out_features = self.sketch.out_features
        self.signed_sqrt = signed_sqrt
        self.l2 = l2

    def forward(self, *maps: Tensor) -> Tensor:
        expected = len(self.sketch._kernel.dims)
        if len(maps) != expected:
            raise ValueError(f"maps: expected {expected} feature maps, got {len(maps)}")
        for number, (tensor, channels) in enumerate(zip(maps, self.sketch._kernel.dims)):
            if not isinstance(tensor, Tensor):
                raise TypeError(f"maps[{number}]: expected a tensor, got {type(tensor).__name__}")
            shape = tuple(tensor.shape)
            if len(shape) < 3 or shape[-3] != channels:
                message = f"maps[{number}]: expected the shape (*, {channels}, height, width), got {shape}"
                raise RuntimeError(message)
            if shape[-2:] != maps[0].shape[-2:] or shape[:-3] != maps[0].shape[:-3]:
                raise RuntimeError(
                    f"maps[{number}]: expected the batch and positions of maps[0], {tuple(maps[0].shape)}, got {shape}"
                )
        pooled = self.sketch(*(tensor.flatten(-2).transpose(-1, -2) for tensor in maps))
        found = _wide(pooled)
        if self.signed_sqrt:
            found = signed_sqrt(found)
        return (_unit(found) if self.l2 else found).to(pooled.dtype)

    def extra_repr(self) -> str:
        return f"signed_sqrt={self.signed_sqrt}, l2={self.l2}"
