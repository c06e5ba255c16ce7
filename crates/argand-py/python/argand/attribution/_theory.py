"""How far sketches of gradients are off: the variance of their inner products, in closed form."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .._arguments import comes_in_pairs, integer, number, text

# Whether entries have modulus one, and whether outputs are drawn without replacement.
_BASES = {
    "gaussian": (False, False),
    "rademacher": (True, False),
    "tensor-srht": (True, False),
    "product-srht": (True, True),
}


class _Sums(NamedTuple):
    """For pairs of matrices G, H of the shape (d1, d2), what their second moments are made of."""

    square: np.ndarray
    """⟨G, H⟩²"""
    norms: np.ndarray
    """‖G‖²‖H‖²"""
    second: np.ndarray
    """‖GHᵀ‖²: the second sides are multiplied"""
    first: np.ndarray
    """‖GᵀH‖²"""
    cross: np.ndarray
    """tr (GᵀH)²"""
    row_norms: np.ndarray
    """Σₐ ‖Gₐ‖²‖Hₐ‖² over rows"""
    row_inner: np.ndarray
    """Σₐ ⟨Gₐ, Hₐ⟩²"""
    column_norms: np.ndarray
    """The same over columns"""
    column_inner: np.ndarray
    entries: np.ndarray
    """Σ G²H²"""


def _sums(gradients: np.ndarray) -> _Sums:
    """For all pairs of the matrices ``gradients[i]``: n x n numbers each."""
    n, d1, d2 = gradients.shape
    flat = gradients.reshape(n, -1)
    squares = gradients**2
    inner = flat @ flat.T
    transposed = gradients.transpose(0, 2, 1)
    # Never a square of the longer side, which may count the words of a language: ‖GHᵀ‖² = ⟨GᵀG, HᵀH⟩.
    tall = d2 <= d1
    outer = (transposed @ gradients if tall else gradients @ transposed).reshape(n, -1)
    cross, direct, row_inner, column_inner = (np.empty((n, n)) for _ in range(4))
    for i in range(n):
        # tr (GᵀH)² = tr (HGᵀ)².
        products = transposed[i] @ gradients if tall else gradients @ transposed[i]
        cross[i] = (products * products.transpose(0, 2, 1)).sum((1, 2))
        direct[i] = (products**2).sum((1, 2))
        entrywise = gradients[i] * gradients
        row_inner[i] = (entrywise.sum(2) ** 2).sum(1)
        column_inner[i] = (entrywise.sum(1) ** 2).sum(1)
    norms = np.diag(inner)
    rows, columns = squares.sum(2), squares.sum(1)
    second, first = (outer @ outer.T, direct) if tall else (direct, outer @ outer.T)
    return _Sums(
        square=inner**2,
        norms=norms[:, None] * norms,
        second=second,
        first=first,
        cross=cross,
        row_norms=rows @ rows.T,
        row_inner=row_inner,
        column_norms=columns @ columns.T,
        column_inner=column_inner,
        entries=squares.reshape(n, -1) @ squares.reshape(n, -1).T,
    )


def _base_of(method: Any) -> tuple[str, bool]:
    name = text("method", method)
    ctr = name.startswith("ctr-")
    base = name.removeprefix("ctr-")
    if base not in _BASES:
        known = ", ".join([*_BASES, *(f"ctr-{base}" for base in _BASES)])
        raise ValueError(f"method: a closed form for gradients is known for {known}, not for {name!r}")
    return base, ctr


def _variance(sums: _Sums, dims: tuple[int, int], features: int, method: str) -> np.ndarray:
    base, ctr = _base_of(method)
    unit, without_replacement = _BASES[base]
    m = features // 2 if ctr else features
    square = sums.square
    rows, columns = (sums.row_norms, sums.row_inner), (sums.column_norms, sums.column_inner)

    def both(plain: float, swapped: float, excess: float, norm: float, inner: float) -> np.ndarray:
        """Four projections of each side, paired as (GG)(HH) ``plain`` times and as (GH)(GH) ``swapped`` times."""
        found = plain * plain * sums.norms + plain * swapped * (sums.second + sums.first)
        # Of pairings (GH)(GH), half go the same way on both sides where there are two.
        found = found + (square if swapped == 1 else 2 * square + 2 * sums.cross)
        for norms, inners in (rows, columns):
            found = found + excess * (norm * norms + inner * inners)
        return found + excess * excess * sums.entries

    # E|uv|² for real weights: three pairings; for complex ones two. Then E(uv̄)², which has no pairing (GG)(HH).
    moments = (
        [both(1, 1, -1.0 if unit else 0.0, 1, 1), both(0, 2, -1.0 if unit else 0.0, 0, 2)]
        if ctr
        else [both(1, 2, -2.0 if unit else 0.0, 1, 2)]
    )
    found = sum((moment - square) / m for moment in moments) / len(moments)
    if without_replacement and m > 1:
        excess = -1.0 if ctr else -2.0
        # One side as in a single output, the other as in two: what is left of each pairing.
        if ctr:
            one_sided = [
                (sums.second + square + excess * sums.row_inner, sums.first + square + excess * sums.column_inner),
                (square + sums.cross + excess * sums.row_inner, square + sums.cross + excess * sums.column_inner),
            ]
        else:
            one_sided = [
                (
                    sums.second + square + sums.cross + excess * sums.row_inner,
                    sums.first + square + sums.cross + excess * sums.column_inner,
                )
            ]
        rest = [-(-m // n) * n - 1 for n in (1 << (dim - 1).bit_length() for dim in dims)]
        for moment, (first, second) in zip(moments, one_sided):
            spread = [first - square, second - square]
            joint = moment - first - second + square
            other = square - spread[0] / rest[0] - spread[1] / rest[1] + joint / (rest[0] * rest[1])
            found = found + (1 - 1 / m) * (other - square) / len(moments)
    return np.maximum(found, 0.0)


def _matrices(gradients: Any) -> np.ndarray:
    if hasattr(gradients, "detach"):
        # A tensor of PyTorch, of any type and device.
        gradients = gradients.detach().cpu().double().numpy()
    gradients = np.asarray(gradients, np.float64)
    if gradients.ndim != 3 or 0 in gradients.shape:
        raise ValueError(f"gradients: expected the shape (examples, inputs, outputs), got {gradients.shape}")
    if not np.isfinite(gradients).all():
        raise ValueError("gradients: expected finite numbers")
    return gradients


def gradient_variance(gradients: Any, features: int, method: str = "ctr-product-srht") -> np.ndarray:
    """The variance of the sketched inner products of gradients, over sketches.

    Parameters
    ----------
    gradients : array-like or tensor of shape (examples, inputs, outputs)
        The gradient Σ a gᵀ of a linear layer for each example.
    features : int
        The size of the sketch.
    method : str, default="ctr-product-srht"
        ``gaussian``, ``rademacher``, ``tensor-srht`` or ``product-srht``, also with ``ctr-``.

    Returns
    -------
    variance : ndarray of shape (examples, examples)
        E(⟨z(G), z(H)⟩ - ⟨G, H⟩)² for every pair. ``docs/math.md``, section 13, derives it; for gradients of rank one it
        is :func:`argand.variance` of the paper.

    Examples
    --------
    >>> import numpy as np
    >>> from argand.attribution import gradient_variance
    >>> gradient_variance(np.ones((1, 1, 1)), 8, "gaussian")  # (3² - 1) / 8
    array([[1.]])
    """
    gradients = _matrices(gradients)
    features = _features(features, method)
    return _variance(_sums(gradients), gradients.shape[1:], features, method)


def _features(features: Any, method: str) -> int:
    features = integer("features", features)
    if features < 1 or (features % 2 and comes_in_pairs(method)):
        raise ValueError(f"features: expected a positive number, even for ctr- methods, got {features}")
    return features


def features_for_error(gradients: Any, error: float, method: str = "ctr-product-srht") -> int:
    """The size of a sketch whose inner products have a given relative error, expected over sketches.

    Parameters
    ----------
    gradients : array-like or tensor of shape (examples, inputs, outputs)
        Gradients of a sample of examples.
    error : float
        The root of Σ variances / Σ ⟨G, H⟩², over all pairs of the sample.
    method : str, default="ctr-product-srht"
        As in :func:`gradient_variance`.
    """
    gradients = _matrices(gradients)
    error = number("error", error)
    if not 0 < error < np.inf:
        raise ValueError(f"error: expected a positive number, got {error}")
    _base_of(method)
    largest = np.abs(gradients).max()
    if largest == 0:
        raise ValueError("gradients: expected some that are not zero")
    # Sums have fourth powers.
    found = _sums(gradients / largest)
    total = found.square.sum()
    sums = _Sums(*(np.array(part.sum()) for part in found))

    def reached(features: int) -> bool:
        return bool(_variance(sums, gradients.shape[1:], features, method) <= error**2 * total)

    high = 2
    while not reached(high):
        if high >= 1 << 40:
            raise ValueError(f"error: {error} would take more than {high} features a layer; ask for a larger one")
        high *= 2
    # The error falls with the features, but for a step where outputs begin to repeat.
    low = high // 2
    while high - low > 2:
        middle = (low + high) // 4 * 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high
