"""Runs sketches on tensors: on the compiled kernels of the processor, or of the GPU that the tensors are on.

Here tensors are tables with two dimensions, of one type and device, and have no derivatives.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property, lru_cache
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from .. import _argand
from .._arguments import is_complex, multiplies_projections

# Kernels in use, by their specs on one line.
_IN_USE: WeakValueDictionary[str, Kernel] = WeakValueDictionary()


class Kernel:
    """A spec, and the sketches made from it. Copies and pickles are the same spec."""

    def __init__(self, spec: str) -> None:
        self.sketch = _argand.Sketch(spec)
        self.spec: str = self.sketch.spec
        data = json.loads(self.spec)
        # Specs that are derived from it have others.
        data.pop("checksum", None)
        # On one line: compilers write it into their programs.
        self.line = json.dumps(data)
        self.method: str = data["method"]
        check_method(self.method, "spec")
        self.features: int = data["features"]
        self.degree: int = data["degree"]
        self.is_product = isinstance(data["input_dim"], list)
        self.dims: list[int] = data["input_dim"] if self.is_product else [data["input_dim"]]
        self.roots: tuple[float, float] = (data["gamma"] ** 0.5, data["coef0"] ** 0.5)
        self._data = data
        self._on_gpus: dict[int, _argand.CudaSketch] = {}
        self._frequencies: dict[tuple[torch.device, torch.dtype], Tensor] = {}
        _IN_USE[self.line] = self

    def __reduce__(self) -> Any:
        return kernel, (self.spec,)

    def __deepcopy__(self, _memo: Any) -> Kernel:
        return self

    @cached_property
    def multilinear(self) -> Kernel:
        """The same projections of one table per factor, with √γ and √ν inside the tables: linear in each of them.

        A factor's projection depends on its number and its columns alone, so the drawn numbers are the same.
        """
        dims = self.dims if self.is_product else self.dims * self.degree
        constant = int(self._data["coef0"] > 0)
        data = {**self._data, "input_dim": [dim + constant for dim in dims], "gamma": 1.0, "coef0": 0.0}
        return kernel(json.dumps(data))

    def on_gpu(self, device: torch.device) -> _argand.CudaSketch:
        """The sketch on this GPU."""
        sketch = self._on_gpus.get(device.index)
        if sketch is None:
            sketch = self._on_gpus[device.index] = _argand.CudaSketch(self.spec, device.index)
        return sketch

    def frequencies(self, like: Tensor) -> Tensor:
        """The frequencies of spherical random features, one per row."""
        key = (like.device, like.dtype)
        if key not in self._frequencies:
            drawn = _argand.frequencies(self.spec)
            # They outlive the transform of torch.func or the inference mode that asks for them first.
            with torch.inference_mode(False), torch._C._DisableFuncTorch():
                self._frequencies[key] = torch.from_numpy(drawn).to(like.device, like.dtype)
        return self._frequencies[key]


def check_method(method: str, name: str) -> None:
    """Refuse methods that cannot be layers: features must be real, and have derivatives of every order."""
    if is_complex(method):
        real = method.replace("complex-", "ctr-")
        raise ValueError(f"{name}: expected a method with real features, as {real}, got {method}")
    if not multiplies_projections(method) and method != "srf":
        raise ValueError(
            f"{name}: expected a product of projections or srf, got {method}; argand's transformers take it"
        )


@lru_cache(maxsize=128)
def kernel(spec: str) -> Kernel:
    """The kernel of a spec. Layers keep theirs; this finds it for an operator that has the text alone."""
    return _IN_USE.get(spec) or Kernel(spec)


def compute(kernel: Kernel, tables: Sequence[Tensor], group: int) -> Tensor:
    """The features of all rows, added up over each ``group`` rows."""
    x = tables[0]
    if x.is_cpu:
        return _compute_cpu(kernel, tables, group)
    out = x.new_empty((x.shape[0] // group, kernel.features))
    if x.is_cuda:
        with _on_device(x):
            _compute_cuda(kernel, [_adjacent(table) for table in tables], group, out)
    elif not x.is_meta:
        raise NotImplementedError(f"expected tensors on cpu or cuda, got {x.device}")
    return out


def compute_vjp(kernel: Kernel, tables: Sequence[Tensor], cotangent: Tensor, group: int) -> list[Tensor]:
    """The gradient with respect to each table, from that with respect to what :func:`compute` returns."""
    x = tables[0]
    if x.is_cpu:
        return _vjp_cpu(kernel, tables, cotangent, group)
    gradients = [torch.empty_like(table, memory_format=torch.contiguous_format) for table in tables]
    if x.is_cuda:
        with _on_device(x):
            _vjp_cuda(kernel, [_adjacent(table) for table in tables], _adjacent(cotangent), group, gradients)
    elif not x.is_meta:
        raise NotImplementedError(f"expected tensors on cpu or cuda, got {x.device}")
    return gradients


def _written(x: Tensor) -> Tensor:
    """The tensor with its numbers in memory: PyTorch may keep a minus sign, or zeros, as a flag."""
    if x.is_neg():
        return x.resolve_neg()
    return torch.zeros(x.shape, dtype=x.dtype, device=x.device) if x._is_zerotensor() else x


def _native(x: Tensor) -> Tensor:
    """As the processor computes with it: without gaps, and half precision as float32."""
    x = _written(x)
    return (x.float() if x.itemsize == 2 else x).contiguous()


def _compute_cpu(kernel: Kernel, tables: Sequence[Tensor], group: int) -> Tensor:
    native = [_native(table) for table in tables]
    x = native[0]
    out = x.new_empty((len(x) // group, kernel.features))
    _argand.layer(kernel.sketch, [table.numpy() for table in native], out.numpy(), group, torch.get_num_threads())
    return out if tables[0].itemsize > 2 else out.to(tables[0].dtype)


def _vjp_cpu(kernel: Kernel, tables: Sequence[Tensor], cotangent: Tensor, group: int) -> list[Tensor]:
    native = [_native(table) for table in tables]
    gradients = [torch.empty_like(table) for table in native]
    arrays, out = [table.numpy() for table in native], [gradient.numpy() for gradient in gradients]
    _argand.layer_vjp(kernel.sketch, arrays, _native(cotangent).numpy(), out, group, torch.get_num_threads())
    dtype = tables[0].dtype
    return gradients if native[0].dtype == dtype else [gradient.to(dtype) for gradient in gradients]


def _on_device(x: Tensor) -> AbstractContextManager[Any]:
    """Makes the tensor's device the current one, and what was current before afterwards."""
    return nullcontext() if x.device.index == torch.cuda.current_device() else torch.cuda.device(x.device)


def _adjacent(table: Tensor) -> Tensor:
    """The table if the numbers of its rows lie side by side and rows do not overlap; otherwise a copy."""
    table = _written(table)
    rows, columns = table.shape
    fits = (columns <= 1 or table.stride(1) == 1) and (rows <= 1 or table.stride(0) >= columns)
    return table if fits else table.contiguous()


def _place(table: Tensor) -> tuple[int, int, int, int]:
    rows, columns = table.shape
    return (table.data_ptr(), rows, columns, max(table.stride(0), columns))


_ELEMENTS = {
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float64: "float64",
}


def _compute_cuda(kernel: Kernel, tables: Sequence[Tensor], group: int, out: Tensor) -> None:
    x = tables[0]
    if x.shape[0] == 0:
        return
    sketch, element, starts = kernel.on_gpu(x.device), _ELEMENTS[x.dtype], _starts(x, group)
    stream = _stream(x.device.index)
    places = [_place(table) for table in tables]
    sketch.transform(stream, element, places, _place(out), starts if starts is None else starts.data_ptr())


def _vjp_cuda(
    kernel: Kernel, tables: Sequence[Tensor], cotangent: Tensor, group: int, gradients: Sequence[Tensor]
) -> None:
    x = tables[0]
    if x.shape[0] == 0:
        return
    sketch, element, starts = kernel.on_gpu(x.device), _ELEMENTS[x.dtype], _starts(x, group)
    stream = _stream(x.device.index)
    places, targets = [_place(table) for table in tables], [_place(gradient) for gradient in gradients]
    sketch.vjp(stream, element, places, _place(cotangent), targets, starts if starts is None else starts.data_ptr())


def _public_stream(index: int) -> int:
    return torch.cuda.current_stream(index).cuda_stream


# The handle of the current stream, as programs compiled by PyTorch ask for it: in a fraction of the time.
_stream = getattr(torch._C, "_cuda_getCurrentRawStream", _public_stream)


def _starts(x: Tensor, group: int) -> Tensor | None:
    """The first row of each group and the number of rows, unless every row is on its own.

    Made on the device, so that a CUDA graph can record it.
    """
    return torch.arange(0, x.shape[0] + 1, group, device=x.device) if group > 1 else None
