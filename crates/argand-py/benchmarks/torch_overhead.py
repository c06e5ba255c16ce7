"""Microseconds that a call of a layer takes beyond its kernel, on the processor and on a GPU if there is one.

On a GPU the time of a kernel is that of queueing it alone, again and again, from Python.
"""

import time

import torch
from argand import _argand
from argand.torch import PolynomialSketch, TensorProductSketch, _kernels


def microseconds(call, device, calls=200, rounds=50):
    """The best of many rounds of calls."""
    best = float("inf")
    for _ in range(rounds):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        best = min(best, (time.perf_counter() - start) / calls)
    return 1e6 * best


def report(name, layer, tensors, device):
    kernel = layer._kernel
    layer(*tensors)
    out = torch.empty(tensors[0].shape[0], kernel.features, device=device)
    if device == "cuda":
        sketch, stream = kernel.on_gpu(out.device), torch.cuda.current_stream().cuda_stream
        places, into = [_kernels._place(tensor) for tensor in tensors], _kernels._place(out)
        alone = microseconds(lambda: sketch.transform(stream, "float32", places, into), device)
    else:
        arrays, into, threads = [tensor.numpy() for tensor in tensors], out.numpy(), torch.get_num_threads()
        alone = microseconds(lambda: _argand.layer(kernel.sketch, arrays, into, 1, threads), device)
    with torch.no_grad():
        without = microseconds(lambda: layer(*tensors), device) - alone
    tracked = [tensor.clone().requires_grad_() for tensor in tensors]
    recorded = microseconds(lambda: layer(*tracked), device) - alone
    linear = torch.nn.Linear(tensors[0].shape[1], kernel.features, device=device)
    weights = microseconds(lambda: linear(tensors[0]), device)
    print(f"| {name} | {device} | {alone:.1f} | {without:.1f} | {recorded:.1f} | {weights:.1f} |")


print("| layer | on | kernel | layer adds, no gradient | layer adds, with gradient | nn.Linear, in all |")
print("|---|---|---:|---:|---:|---:|")
for device in ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]:
    x, y = torch.randn(8, 64, device=device), torch.randn(8, 32, device=device)
    report("PolynomialSketch", PolynomialSketch(64, 128, seed=0), [x], device)
    report("TensorProductSketch", TensorProductSketch([64, 32], 128, seed=0), [x, y], device)
