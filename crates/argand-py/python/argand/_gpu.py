"""Tables of PyTorch and CuPy on a GPU. Neither library is imported: whoever has such a table has imported it."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager
from typing import Any

from . import _argand

_REAL = ("float16", "bfloat16", "float32", "float64")


class _Table:
    array: Any

    @property
    def shape(self) -> tuple[int, int]:
        return tuple(self.array.shape)


class TorchTable(_Table):
    """A CUDA tensor with two dimensions."""

    def __init__(self, array: Any) -> None:
        array = array.detach()
        adjacent = array.shape[1] <= 1 or array.stride(1) == 1
        self.array = array if adjacent and array.stride(0) >= array.shape[1] else array.contiguous()
        self.device: int = array.device.index
        self.dtype = str(array.dtype).removeprefix("torch.")

    def place(self) -> tuple[int, int, int, int]:
        """Address, rows, columns and the numbers from one row to the next."""
        return (self.array.data_ptr(), *self.shape, self.array.stride(0))

    def stream(self) -> int:
        return sys.modules["torch"].cuda.current_stream(self.device).cuda_stream

    def on_device(self) -> AbstractContextManager[Any]:
        return sys.modules["torch"].cuda.device(self.device)

    def empty(self, columns: int) -> TorchTable:
        return TorchTable(self.array.new_empty((self.shape[0], columns)))

    def first_not_finite(self) -> int | None:
        bad = ~self.array.isfinite().flatten()
        return int(bad.to(sys.modules["torch"].uint8).argmax()) if bad.any() else None

    def as_complex(self) -> Any:
        return sys.modules["torch"].view_as_complex(self.array.unflatten(1, (-1, 2)))


class CupyTable(_Table):
    """A CuPy array with two dimensions."""

    def __init__(self, array: Any) -> None:
        size, (rows, columns) = array.itemsize, array.strides
        adjacent = array.shape[1] <= 1 or columns == size
        whole = adjacent and rows >= array.shape[1] * size and rows % size == 0
        self.array = array if whole else sys.modules["cupy"].ascontiguousarray(array)
        self.device: int = array.device.id
        self.dtype = array.dtype.name

    def place(self) -> tuple[int, int, int, int]:
        """Address, rows, columns and the numbers from one row to the next."""
        return (self.array.data.ptr, *self.shape, self.array.strides[0] // self.array.itemsize)

    def stream(self) -> int:
        return sys.modules["cupy"].cuda.get_current_stream().ptr

    def on_device(self) -> AbstractContextManager[Any]:
        return sys.modules["cupy"].cuda.Device(self.device)

    def empty(self, columns: int) -> CupyTable:
        return CupyTable(sys.modules["cupy"].empty((self.shape[0], columns), self.array.dtype))

    def first_not_finite(self) -> int | None:
        bad = ~sys.modules["cupy"].isfinite(self.array).ravel()
        return int(bad.argmax()) if bad.any() else None

    def as_complex(self) -> Any:
        return self.array.view("complex64" if self.dtype == "float32" else "complex128")


def is_on_gpu(X: Any) -> bool:
    """Whether X is a CUDA tensor or a CuPy array, or a list that has one."""
    if isinstance(X, (list, tuple)):
        return any(is_on_gpu(table) for table in X if not isinstance(table, (list, tuple)))
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    is_tensor = torch is not None and isinstance(X, torch.Tensor) and X.is_cuda
    return is_tensor or (cupy is not None and isinstance(X, cupy.ndarray))


def gpu_tables(X: Any) -> list[TorchTable | CupyTable]:
    """One table, or those of a list: of one library, type and device, with equally many rows."""
    named = [(f"X[{i}]", table) for i, table in enumerate(X)] if isinstance(X, (list, tuple)) else [("X", X)]
    tables: list[Any] = []
    for name, array in named:
        if not is_on_gpu(array):
            raise TypeError(f"{name}: expected an array on the GPU of the other tables, got {type(array).__name__}")
        if len(array.shape) != 2:
            raise ValueError(f"{name}: expected 2 dimensions, got {len(array.shape)}")
        if str(array.dtype).removeprefix("torch.") not in _REAL:
            raise TypeError(f"{name}: expected {', '.join(_REAL[:-1])} or {_REAL[-1]} on a GPU, got {array.dtype}")
        table = TorchTable(array) if hasattr(array, "data_ptr") else CupyTable(array)
        first = tables[0] if tables else table
        for what, own, other in [
            ("library", type(table).__name__, type(first).__name__),
            ("type", table.dtype, first.dtype),
            ("device", table.device, first.device),
            ("rows", table.shape[0], first.shape[0]),
        ]:
            if own != other:
                raise ValueError(f"{name}: expected the {what} of the first table, {other}, got {own}")
        tables.append(table)
    return tables


def gpu_features(sketch: _argand.CudaSketch, tables: list[Any], columns: int) -> TorchTable | CupyTable:
    """All drawn columns of the features. Waits for them, since only their computation shows whether they fit."""
    first = tables[0]
    with first.on_device():
        features, stream = first.empty(columns), first.stream()
        sketch.transform(stream, first.dtype, [table.place() for table in tables], features.place())
        try:
            sketch.finish(stream, first.dtype)
        except ValueError:
            for number, table in enumerate(tables):
                at = table.first_not_finite()
                if at is not None:
                    row, column = divmod(at, table.shape[1])
                    name, value = f"X[{number}]" if len(tables) > 1 else "X", float(table.array[row, column])
                    message = f"{name}: row {row}, column {column} is {value}; only finite numbers can be sketched"
                    raise ValueError(message) from None
            raise
    return features
