"""Online learning on sketched convolutional features: Section 5.4 of the paper, on CIFAR-10.

A degree-2 sketch, the signed square root, unit norm, and a softmax layer trained by Adam on mini-batches in random
order. Every method is also written in plain PyTorch, with random signs and samples of its own: a matrix product with
the Hadamard matrix for SRHTs, and PyTorch's Fourier transforms for TensorSketch.

    python examples/torch/online.py             # on a GPU: everything, some two minutes
    python examples/torch/online.py --small     # a look on any computer
"""

from __future__ import annotations

import math

import numpy as np
import torch
from argand.torch import PolynomialSketch, signed_sqrt
from common import arguments, data_set, machine, now, print_table, save
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize

METHODS = ["ctr-product-srht", "product-srht", "tensor-sketch"]


class EagerSrht(nn.Module):
    """(Complex-to-Real) ProductSRHT of degree 2 in plain PyTorch."""

    def __init__(self, columns: int, features: int, complex_inside: bool) -> None:
        super().__init__()
        size = 1 << (columns - 1).bit_length()
        hadamard = torch.ones(1, 1)
        while hadamard.shape[0] < size:
            hadamard = torch.cat([torch.cat([hadamard, hadamard], 1), torch.cat([hadamard, -hadamard], 1)])
        self.register_buffer("hadamard", hadamard[:, :columns].contiguous())
        outputs = features // 2 if complex_inside else features
        turns = torch.randint(4 if complex_inside else 2, (2, columns)) * (1 if complex_inside else 2)
        self.register_buffer("signs", torch.exp(0.5j * math.pi * turns) if complex_inside else 1.0 - turns)
        repeats = -(-outputs // size)
        samples = [torch.cat([torch.randperm(size) for _ in range(repeats)])[:outputs] for _ in range(2)]
        self.register_buffer("samples", torch.stack(samples))
        self.scale = outputs**-0.5

    def forward(self, x: Tensor) -> Tensor:
        factors = []
        for signs, samples in zip(self.signs, self.samples):
            parts = torch.view_as_real(signs).unbind(-1) if signs.is_complex() else [signs]
            projected = [(x * part) @ self.hadamard.T for part in parts]
            factors.append([part[:, samples] for part in projected])
        (first, second) = factors
        if len(first) == 1:
            return first[0] * second[0] * self.scale
        (a, b), (c, d) = first, second
        return torch.cat([a * c - b * d, a * d + b * c], 1) * self.scale


class EagerTensorSketch(nn.Module):
    """TensorSketch of degree 2 in plain PyTorch."""

    def __init__(self, columns: int, features: int) -> None:
        super().__init__()
        self.features = features
        self.register_buffer("signs", 1.0 - 2.0 * torch.randint(2, (2, columns)))
        self.register_buffer("buckets", torch.randint(features, (2, columns)))

    def forward(self, x: Tensor) -> Tensor:
        product = 1
        for signs, buckets in zip(self.signs, self.buckets):
            counts = x.new_zeros(x.shape[0], self.features).index_add(1, buckets, x * signs)
            product = product * torch.fft.rfft(counts)
        return torch.fft.irfft(product, n=self.features)


def sketch(name: str, columns: int, features: int, eager: bool) -> nn.Module:
    if not eager:
        return PolynomialSketch(columns, features, degree=2, method=name, seed=0)
    if name == "tensor-sketch":
        return EagerTensorSketch(columns, features)
    return EagerSrht(columns, features, name.startswith("ctr-"))


class Model(nn.Module):
    def __init__(self, features: nn.Module, width: int) -> None:
        super().__init__()
        self.features, self.softmax = features, nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.softmax(normalize(signed_sqrt(self.features(x))))


def train(model: nn.Module, data: list[Tensor], options, device: str) -> list[tuple[int, float, float]]:
    """Rows seen, seconds of training and accuracy on the test rows, again and again."""
    x, y, test_x, test_y = data
    optimizer = torch.optim.Adam(model.parameters(), lr=options.rate, fused=True)
    shuffle = torch.Generator().manual_seed(0)
    order = torch.cat([torch.randperm(len(x), generator=shuffle) for _ in range(options.epochs)]).to(device)
    batches = order[: len(order) // options.batch * options.batch].view(-1, options.batch)
    every = max(1, len(batches) // options.checks)
    for step in range(3):  # Kernels are loaded outside the clock; the weights stay.
        cross_entropy(model(x[batches[step]]), y[batches[step]]).backward()
    optimizer.zero_grad()
    seconds, history = 0.0, []
    start = now(device)
    for step, chosen in enumerate(batches, 1):
        loss = cross_entropy(model(x[chosen]), y[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % every == 0 or step == len(batches):
            seconds += now(device) - start
            with torch.no_grad():
                hits = sum((model(a).argmax(1) == b).sum() for a, b in zip(test_x.split(2000), test_y.split(2000)))
            history.append((step * options.batch, seconds, 100 * float(hits) / len(test_x)))
            start = now(device)
    return history


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], "online.csv")
    parser.add_argument("--features", type=int, default=4096)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--checks", type=int, default=30, help="how often the accuracy is measured")
    options = parser.parse_args()
    rows, device = None, options.device
    if options.small:
        rows, options.features, options.epochs, options.checks = 4000, 1024, 2, 6
    folder = data_set(options, "cifar10-conv")
    files = ["train-features", "train-labels", "test-features", "test-labels"]
    data = [torch.from_numpy(np.load(folder / f"{file}.npy")[:rows]).to(device) for file in files]
    data = [part.float() if part.is_floating_point() else part.long() for part in data]
    columns = data[0].shape[1]

    found = {}
    for name in METHODS:
        for eager in (False, True):
            torch.manual_seed(0)
            model = Model(sketch(name, columns, options.features, eager), options.features).to(device)
            found[name, eager] = train(model, data, options, device)
    print(
        f"{len(data[0])} rows of {columns} numbers, D = {options.features}, {options.epochs} epochs, batches of ",
        end="",
    )
    print(f"{options.batch}, on {machine(device)}.")
    steps = len(data[0]) * options.epochs // options.batch
    table = []
    for (name, eager), history in found.items():
        early = next((h for h in history if h[0] >= len(data[0]) // 2), history[-1])
        label = f"{name}, {'plain PyTorch' if eager else 'Argand'}"
        _, seconds, accuracy = history[-1]
        table.append([label, f"{early[2]:.2f}", f"{accuracy:.2f}", f"{seconds:.2f}", f"{1e6 * seconds / steps:.0f}"])
    print_table(["", "accuracy after half an epoch, %", "at the end, %", "seconds", "µs per step"], table)

    rows = [
        [name, "plain PyTorch" if eager else "Argand", str(seen), f"{seconds:.3f}", f"{accuracy:.2f}"]
        for (name, eager), history in found.items()
        for seen, seconds, accuracy in history
    ]
    save(options.csv, ["method", "code", "rows", "seconds", "accuracy"], rows)


if __name__ == "__main__":
    main()
