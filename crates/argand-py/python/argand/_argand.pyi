"""The compiled part. Not a public interface: the package `argand` checks arguments before they get here."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_Table = Any  # a C-contiguous array of float32 or float64, or (indptr, indices, data, columns) with unsigned indices
_Pairs = NDArray[np.float64]

def spec(
    *,
    dims: list[int],
    distinct: bool,
    degree: int,
    gamma: float,
    coef0: float,
    n_components: int,
    method: str,
    craft_dim: int,
    seed: int,
) -> str: ...

class Sketch:
    def __new__(cls, spec: str) -> Sketch: ...
    def __getnewargs__(self) -> tuple[str]: ...
    @property
    def spec(self) -> str: ...
    def draw(self, single: bool) -> None: ...
    def transform(self, tables: list[_Table], out: NDArray[Any], keep: bool, threads: int | None) -> None: ...

def moments(spec: str, x: list[_Pairs], y: list[_Pairs]) -> list[NDArray[np.float64]] | None: ...
def advantage(spec: str, x: _Pairs, y: _Pairs) -> NDArray[np.float64]: ...
def moment_constant(method: str, t: float) -> float: ...
def guarantee(
    of: str, method: str, degree: int, epsilon: float, delta: float, statistical_dimension: float
) -> tuple[float, float]: ...
def statistical_dimension(kernel: _Pairs, alpha: float) -> float: ...
def spectral_error(kernel: _Pairs, approximation: _Pairs, alpha: float) -> float: ...
def expected_error(
    spec: str, tables: list[_Table], population: int, threads: int | None
) -> tuple[float, float, int | None]: ...
def kernel_error(spec: str, tables: list[_Table], features: NDArray[Any], threads: int | None) -> float: ...
def plan(
    tables: list[_Table],
    *,
    distinct: bool,
    dims: list[int],
    degree: int,
    gamma: float,
    coef0: float,
    target_error: float | None,
    n_components: int | None,
    methods: list[str] | None,
    time_budget: float | None,
    max_components: int,
    population: int,
    seed: int,
    threads: int | None,
) -> str: ...
