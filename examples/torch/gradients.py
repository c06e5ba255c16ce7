"""Sketches of per-sample gradients, beside the two-sided projection that attribution packages use.

A small vision transformer is trained on MNIST; then the gradients M = Σ g aᵀ of all its linear layers are sketched for
some test images. The two-sided projection keeps (P₂g) ⊗ (P₁a), k x k numbers, with independent Gaussian P₁ and P₂.
Errors are relative to the matrix of true inner products, ‖ẐẐᵀ − GGᵀ‖ / ‖GGᵀ‖, the mean over seeds. In theory, with
r = ‖M‖⁴/‖MMᵀ‖² and k² numbers, the relative variance of ‖M‖² is 4/(kr) + (2 + 2/r)/k² for the two-sided projection and
(2 + 6/r)/k² for the Gaussian product sketch.

    python examples/torch/gradients.py            # on a GPU: everything, some two minutes
    python examples/torch/gradients.py --small    # a look on any computer
"""

from __future__ import annotations

import torch
from argand.torch import GradientSketch
from common import Memory, arguments, data_set, images, machine, now, print_table, save
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

METHODS = ["two-sided", "gaussian", "ctr-gaussian", "product-srht", "ctr-product-srht", "tensor-sketch"]


class Block(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool = False) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.proj(scaled_dot_product_attention(*parts, is_causal=self.causal).transpose(1, 2).flatten(2))
        return x + self.fc2(nn.functional.gelu(self.fc1(self.norm2(x))))


class VisionTransformer(nn.Module):
    """Patches of 4 x 4 pixels, 49 tokens."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.embed = nn.Linear(16, width)
        self.position = nn.Parameter(torch.randn(49, width) / 10)
        self.blocks = nn.Sequential(*(Block(width, 4) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        patches = x.unfold(2, 4, 4).unfold(3, 4, 4).flatten(4).flatten(1, 3)
        return self.head(self.norm(self.blocks(self.embed(patches) + self.position)).mean(1))


class TwoSided(nn.Module):
    """Σ (P₂g) ⊗ (P₁a) over tokens, with k x k numbers."""

    def __init__(self, inputs: int, outputs: int, numbers: int, device: str, seed: int) -> None:
        super().__init__()
        k = round(numbers**0.5)
        generator = torch.Generator(device).manual_seed(seed)
        sizes = [(k, inputs), (k, outputs)]
        self.p1, self.p2 = (torch.randn(s, generator=generator, device=device) / k**0.5 for s in sizes)

    def forward(self, a: Tensor, g: Tensor) -> Tensor:
        p1, p2 = self.p1.to(g.dtype), self.p2.to(g.dtype)
        return torch.einsum("btk,btl->bkl", a.to(g.dtype) @ p1.T, g @ p2.T).flatten(1)


def two_sided_hooks(layers: list[tuple[str, nn.Linear]], numbers: int, device: str) -> list:
    """Compute two-sided projections of all gradients in every backward pass, until the hooks are removed."""
    kept = {}

    def listen(name: str, sketch: TwoSided):
        def forward(_layer, inputs, output):
            a = inputs[0].detach()
            shape = (len(a), -1)

            def backward(g: Tensor) -> None:
                kept[name] = sketch(a.reshape(*shape, a.shape[-1]), g.reshape(*shape, g.shape[-1]))

            output.register_hook(backward)

        return forward

    sketches = [TwoSided(p.in_features, p.out_features, numbers, device, i) for i, (_, p) in enumerate(layers)]
    return [p.register_forward_hook(listen(n, s)) for (n, p), s in zip(layers, sketches)]


def recorded(model: nn.Module, x: Tensor, y: Tensor) -> dict[str, tuple[Tensor, Tensor]]:
    """Activations and gradients of every linear layer, with a dimension for tokens."""
    found = {}

    def listen(name):
        def forward(_layer, inputs, output):
            output.register_hook(lambda g: found.update({name: (inputs[0].detach(), g)}))

        return forward

    layers = [(name, part) for name, part in model.named_modules() if isinstance(part, nn.Linear)]
    hooks = [part.register_forward_hook(listen(name)) for name, part in layers]
    cross_entropy(model(x), y, reduction="sum").backward()
    for hook in hooks:
        hook.remove()
    return {n: tuple(t if t.dim() == 3 else t[:, None] for t in found[n]) for n, _ in layers}


def sketch_of(method: str, layer: tuple[Tensor, Tensor], numbers: int, seed: int) -> nn.Module:
    a, g = layer
    if method == "two-sided":
        return TwoSided(a.shape[-1], g.shape[-1], numbers, a.device.type, seed)
    return GradientSketch(a.shape[-1], g.shape[-1], numbers, method, seed)


def costs(model: nn.Module, x: Tensor, y: Tensor, numbers: int, device: str) -> list[list[str]]:
    """Time and memory of forward and backward passes, alone and with the sketches of all linear layers."""
    layers = [(name, part) for name, part in model.named_modules() if isinstance(part, nn.Linear)]

    def run() -> None:
        model.zero_grad()
        cross_entropy(model(x), y, reduction="sum").backward()

    rows = []
    for name in ["forward and backward", *METHODS]:
        attached, hooks = None, []
        if name == "two-sided":
            hooks = two_sided_hooks(layers, numbers, device)
        elif name in METHODS:
            attached = GradientSketch.attach(model, numbers, name)
        memory = Memory(device)
        for _ in range(3):
            run()
            if attached is not None:
                attached.collect()
        used, times = memory.used(), []
        for _ in range(10):
            start = now(device)
            run()
            if attached is not None:
                attached.collect()
            times.append(now(device) - start)
        if attached is not None:
            attached.detach()
        for hook in hooks:
            hook.remove()
        rows.append([name, f"{1e3 * sorted(times)[0]:.2f}", *used])
    return rows


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], "gradients.csv")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--samples", type=int, default=150)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=1500, help="of training, with batches of 256")
    parser.add_argument("--sizes", type=int, nargs="+", default=[256, 1024, 4096])
    parser.add_argument("--batch", type=int, default=256, help="images whose passes are timed")
    options = parser.parse_args()
    device = options.device
    if options.small:
        options.width, options.depth, options.samples, options.seeds, options.steps = 32, 2, 40, 3, 60
        options.batch = 32
    folder = data_set(options, "mnist")
    (x, y), (test_x, test_y) = images(folder, "train", device), images(folder, "t10k", device)
    torch.manual_seed(0)
    model = VisionTransformer(options.width, options.depth).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(options.steps):
        chosen = torch.randint(len(x), (256,), device=device)
        loss = cross_entropy(model(x[chosen]), y[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        accuracy = 100 * float((model(test_x[:2000]).argmax(1) == test_y[:2000]).float().mean())

    layers = recorded(model, test_x[: options.samples], test_y[: options.samples])
    errors: dict[tuple[str, str, int], float] = {}
    ranks = {}
    for name, (a, g) in layers.items():
        gradients = torch.einsum("bti,btj->bij", g.double(), a.double())
        norms = gradients.square().sum((1, 2))
        squares = (gradients @ gradients.transpose(1, 2)).square().sum((1, 2))
        ranks[name] = float((norms.square() / squares)[norms > 0].median())
        gram = gradients.flatten(1) @ gradients.flatten(1).T
        for numbers in options.sizes:
            for method in METHODS:
                total = 0.0
                for seed in range(options.seeds):
                    z = sketch_of(method, (a, g), numbers, seed)(a, g).double()
                    total += float((z @ z.T - gram).norm() / gram.norm())
                errors[name, method, numbers] = total / options.seeds

    print(f"Width {options.width}, {options.depth} blocks, {accuracy:.1f} % of test images right; ", end="")
    print(f"{options.samples} samples, ", end="")
    print(f"{options.seeds} seeds, on {machine(device)}.")
    for numbers in options.sizes:
        print(f"\nRelative error of inner products with {numbers} numbers a layer:")
        rows = [
            [name, f"{ranks[name]:.1f}", *(f"{errors[name, method, numbers]:.3f}" for method in METHODS)]
            for name in layers
        ]
        means = [sum(errors[name, method, numbers] for name in layers) / len(layers) for method in METHODS]
        print_table(["layer", "r", *METHODS], [*rows, ["mean", "", *(f"{mean:.3f}" for mean in means)]])
    size = options.sizes[-1]
    print(f"Passes over {options.batch} images, with {size} numbers for each of {len(layers)} layers:")
    rows = costs(model, test_x[: options.batch], test_y[: options.batch], size, device)
    print_table(["", "ms", "MB, PyTorch", "MB, Argand beside"], rows)

    means = {
        (method, n): sum(errors[name, method, n] for name in layers) / len(layers)
        for method in METHODS
        for n in options.sizes
    }
    rows = [[str(n), *(f"{means[method, n]:.5f}" for method in METHODS)] for n in options.sizes]
    save(options.csv, ["numbers a layer", *METHODS], rows)


if __name__ == "__main__":
    main()
