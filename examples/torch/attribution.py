"""Data attribution from sketches of gradients, at equal bytes an example and layer, beside what other packages keep.

Four questions, each a table and a line of the CSV file for every method and size:

- errors: how far are inner products of gradients off, for a vision transformer and a language model?
- mislabelled: of examples with flipped labels, how many have the largest self-influence (area under the ROC curve)?
- lds: do influence scores predict what happens when the model is trained again on random halves of the data (the linear
  datamodeling score: rank correlation of predicted and real losses, the mean over queries)?
- cost: how much time and memory does recording add to forward and backward passes of a language model?

Methods: the two-sided projection (P2 g) x (P1 a), k x k numbers; a random subset of the gradient's coordinates; full
Gaussian projections of explicitly formed gradients by the packages traker and dattri, where they are installed; and
Argand's sketches. The penalty of influence is 0.1 times the mean eigenvalue of the exact kernel matrix, for all.

    python examples/torch/attribution.py                # on a GPU: everything, some minutes; data: make data
    python examples/torch/attribution.py --small        # a look on any computer
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator

import torch
from argand.attribution import GradientStore
from argand.torch import GradientSketch
from common import Memory, arguments, data_set, images, machine, now, print_table, save
from gradients import Block, TwoSided, VisionTransformer, recorded, two_sided_hooks
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy

OURS = ["ctr-product-srht", "product-srht", "tensor-sketch", "rademacher"]
Factors = tuple[Tensor, Tensor]


class Coordinates(nn.Module):
    """Some coordinates of the gradient Σ a gᵀ, chosen at random."""

    def __init__(self, inputs: int, outputs: int, numbers: int, device: str, seed: int) -> None:
        super().__init__()
        generator = torch.Generator(device).manual_seed(seed)
        numbers = min(numbers, inputs * outputs)
        chosen = torch.randperm(inputs * outputs, generator=generator, device=device)[:numbers]
        self.rows, self.columns, self.scale = chosen // outputs, chosen % outputs, (inputs * outputs / numbers) ** 0.5

    def forward(self, a: Tensor, g: Tensor) -> Tensor:
        return self.scale * torch.einsum("bti,bto->bio", a, g)[:, self.rows, self.columns]


class Package(nn.Module):
    """The projection of explicitly formed gradients by another package."""

    def __init__(self, name: str, inputs: int, outputs: int, numbers: int, device: str, seed: int) -> None:
        super().__init__()
        if name == "traker":
            from trak.projectors import BasicProjector
        else:
            from dattri.func.projection import BasicProjector
        # dattri's are scaled.
        self.scale = numbers**-0.5 if name == "traker" else 1.0
        self.projector = BasicProjector(inputs * outputs, numbers, seed, "normal", torch.device(device), 512)

    def forward(self, a: Tensor, g: Tensor) -> Tensor:
        return self.scale * self.projector.project(torch.einsum("bti,bto->bio", a, g).flatten(1), 0)


def installed(name: str) -> bool:
    try:
        Package(name, 3, 4, 5, "cpu", 0)(torch.ones(1, 1, 3), torch.ones(1, 1, 4))
    except Exception as error:  # whatever another package may raise
        print(f"{name} does not run here: {type(error).__name__}: {error}")
        return False
    return True


def sketch_of(method: str, shape: tuple[int, int], numbers: int, device: str, seed: int) -> nn.Module:
    """A map from the factors of one layer's gradients to numbers an example."""
    if method == "two-sided":
        return TwoSided(*shape, numbers, device, seed)
    if method == "coordinates":
        return Coordinates(*shape, numbers, device, seed)
    if method in ("traker", "dattri"):
        return Package(method, *shape, numbers, device, seed)
    return GradientSketch(*shape, numbers, method, seed)


def in_parts(apply: Callable[[Tensor, Tensor], Tensor], factors: Factors, rows: int = 2000) -> Tensor:
    return torch.cat([apply(a, g) for a, g in zip(factors[0].split(rows), factors[1].split(rows))])


def kernels(layers: dict[str, Factors], method: str, numbers: int, device: str, seed: int) -> Iterator[Tensor]:
    """Inner products of all examples, layer by layer; exact ones without a method."""
    for number, (a, g) in enumerate(layers.values()):
        if method == "exact":
            z = in_parts(lambda a, g: torch.einsum("bti,bto->bio", a, g).flatten(1), (a, g))
        else:
            sketch = sketch_of(method, (a.shape[-1], g.shape[-1]), numbers, device, 1000 * seed + number)
            z = in_parts(sketch, (a, g))
        yield (z @ z.T).double()


def factors_of(model: nn.Module, x: Tensor, y: Tensor, batch: int = 500) -> dict[str, Factors]:
    """Activations and gradients of every linear layer for all examples."""
    parts = [recorded(model, *rows) for rows in zip(x.split(batch), y.split(batch))]
    return {name: tuple(torch.cat([part[name][side] for part in parts]) for side in (0, 1)) for name in parts[0]}


class LanguageModel(nn.Module):
    """The next byte of a text."""

    def __init__(self, width: int, depth: int, context: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, width)
        self.position = nn.Parameter(torch.randn(context, width) / 10)
        self.blocks = nn.Sequential(*(Block(width, max(1, width // 64), causal=True) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.embed(tokens) + self.position))).transpose(1, 2)


def passages(text: Tensor, context: int, count: int) -> tuple[Tensor, Tensor]:
    """Neighbouring parts of a text, and the byte that follows each of their bytes."""
    starts = torch.arange(count, device=text.device)[:, None] * context
    at = starts + torch.arange(context, device=text.device)
    return text[at], text[at + 1]


def train(model: nn.Module, x: Tensor, y: Tensor, steps: int, batch: int, rate: float = 1e-3) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    for _ in range(steps):
        chosen = torch.randint(len(x), (batch,), device=x.device)
        loss = cross_entropy(model(x[chosen]), y[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.zero_grad()


def train_together(make: Callable[[], nn.Module], rows: Tensor, x: Tensor, y: Tensor, steps: int, batch: int):
    """As many models as there are lines of ``rows``, each on its own rows of the data, side by side.

    Returns a function that gives the outputs of all of them for the same inputs.
    """
    device = x.device
    models = [make().to(device) for _ in rows]
    parameters, _ = stack_module_state(models)
    shell = models[0]

    def run(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        # Of the kinds of attention, this one can be computed for all models at once.
        with sdpa_kernel(SDPBackend.MATH):
            return functional_call(shell, parameters, (x,))

    optimizer = torch.optim.AdamW(parameters.values(), lr=1e-3)
    for _ in range(steps):
        chosen = rows.gather(1, torch.randint(rows.shape[1], (len(rows), batch), device=device))
        outputs = vmap(run)(parameters, x[chosen])
        loss = cross_entropy(outputs.flatten(0, 1), y[chosen].flatten(), reduction="sum") / batch
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    fixed = {name: tensor.detach() for name, tensor in parameters.items()}
    return lambda x: vmap(run, (0, None))(fixed, x), [
        {name: tensor[number].clone() for name, tensor in fixed.items()} for number in range(len(rows))
    ]


def factor(kernel: Tensor, penalty: float) -> Tensor:
    """Of K + λI."""
    return torch.linalg.cholesky(kernel + penalty * torch.eye(len(kernel), dtype=kernel.dtype, device=kernel.device))


def influence(kernel: Tensor, examples: int, penalty: float) -> Tensor:
    """φ_qᵀ(Σφφᵀ + λI)⁻¹φ_i for the rows behind ``examples`` and the examples: K_qi (K + λI)⁻¹ is the same."""
    return torch.cholesky_solve(kernel[:examples], factor(kernel[:examples, :examples], penalty)).T


def self_influence(kernel: Tensor, penalty: float) -> Tensor:
    """The same of every example for itself: the diagonal of K (K + λI)⁻¹ = I - λ (K + λI)⁻¹."""
    return 1 - penalty * torch.cholesky_inverse(factor(kernel, penalty)).diagonal()


def ranks(values: Tensor) -> Tensor:
    return values.argsort(-1).argsort(-1).double()


def correlation(a: Tensor, b: Tensor) -> Tensor:
    """Spearman's, along the last dimension."""
    a, b = (r - r.mean(-1, keepdim=True) for r in (ranks(a), ranks(b)))
    return (a * b).sum(-1) / (a.norm(dim=-1) * b.norm(dim=-1))


def area(scores: Tensor, flipped: Tensor) -> float:
    """Under the ROC curve."""
    positive, negative = int(flipped.sum()), int((~flipped).sum())
    return float((ranks(scores)[flipped].sum() - positive * (positive - 1) / 2) / (positive * negative))


class Table:
    """Results of one question, by method and bytes."""

    def __init__(self, question: str, options, methods: list[str]) -> None:
        self.question, self.options, self.methods = question, options, methods
        self.found: dict[tuple[str, int], tuple[float, float]] = {}

    def fill(self, measure: Callable[[str, int, int], float], sizes: list[int] | None = None) -> None:
        """Means and standard errors over seeds; packages only where forming their matrices is no question."""
        for size in sizes or self.options.bytes:
            for method in self.methods:
                if method in ("traker", "dattri") and size > self.options.package_bytes:
                    continue
                values = torch.tensor([measure(method, size // 4, seed) for seed in range(self.options.seeds)])
                spread = float(values.std()) / len(values) ** 0.5 if len(values) > 1 else 0.0
                self.found[method, size] = (float(values.mean()), spread)

    def rows(self) -> list[list[str]]:
        return [
            [self.question, method, str(size), f"{mean:.5g}", f"{error:.2g}"]
            for (method, size), (mean, error) in self.found.items()
        ]

    def show(self, title: str) -> None:
        print(f"\n{title}", flush=True)
        sizes = sorted({size for _, size in self.found})
        lines = [
            [
                method,
                *(
                    "{:.3f} ± {:.3f}".format(*self.found[method, s]) if (method, s) in self.found else "–"
                    for s in sizes
                ),
            ]
            for method in self.methods
        ]
        print_table(["bytes a layer", *(f"{size:,}" for size in sizes)], lines)


def errors(question: str, layers: dict[str, Factors], options, methods: list[str]) -> Table:
    exact = [*kernels(layers, "exact", 0, options.device, 0)]
    table = Table(question, options, methods)

    def measure(method: str, numbers: int, seed: int) -> float:
        found = kernels(layers, method, numbers, options.device, seed)
        return sum(float((k - e).norm() / e.norm()) for k, e in zip(found, exact)) / len(exact)

    table.fill(measure)
    return table


def mislabelled(options, methods: list[str]) -> Table:
    """A tenth of the labels is flipped; mislabelled examples have a large influence on their own loss."""
    device = options.device
    x, y = images(data_set(options, "fashion-mnist"), "train", device)
    x, y = x[: options.examples], y[: options.examples].clone()
    generator = torch.Generator(device).manual_seed(0)
    flipped = torch.rand(len(y), generator=generator, device=device) < 0.1
    y[flipped] = (y[flipped] + torch.randint(1, 10, (int(flipped.sum()),), generator=generator, device=device)) % 10
    torch.manual_seed(0)
    model = VisionTransformer(options.width, options.depth).to(device)
    train(model, x, y, options.steps, 256)
    layers = factors_of(model.eval(), x, y)
    exact = [*kernels(layers, "exact", 0, device, 0)]
    penalties = [0.1 * float(k.diagonal().mean()) for k in exact]
    table = Table("mislabelled", options, methods)

    def measure(method: str, numbers: int, seed: int) -> float:
        found = kernels(layers, method, numbers, device, seed)
        return area(sum(self_influence(k, penalty) for k, penalty in zip(found, penalties)), flipped)

    table.fill(measure)
    best = area(sum(self_influence(k, penalty) for k, penalty in zip(exact, penalties)), flipped)
    table.show(f"Mislabelled examples, area under the curve ({len(x):,} images; {best:.3f} with exact gradients):")
    return table


def datamodels(options, methods: list[str]) -> Table:
    """Models trained on random halves, and influence scores of models trained on everything."""
    device, n = options.device, options.lds_examples
    folder = data_set(options, "fashion-mnist")
    x, y = (tensor[:n] for tensor in images(folder, "train", device))
    queries = [tensor[: options.queries] for tensor in images(folder, "t10k", device)]
    torch.manual_seed(0)

    def make() -> nn.Module:
        return VisionTransformer(options.lds_width, 2)

    generator = torch.Generator(device).manual_seed(1)
    halves = torch.rand(options.retrainings, n, generator=generator, device=device).argsort(1)[:, : n // 2]
    began = now(device)
    runs, _ = train_together(make, halves.repeat(options.trainings, 1), x, y, options.lds_steps, 64)
    with torch.no_grad():
        outputs = runs(queries[0])
        losses = torch.stack([cross_entropy(out, queries[1], reduction="none") for out in outputs])
    # Several trainings of every half, which say how much of the losses the halves explain.
    parts = losses.unflatten(0, (options.trainings, -1))
    middle = options.trainings // 2
    ceiling = float(correlation(parts[:middle].mean(0).T, parts[middle:].mean(0).T).mean())
    real = -parts.mean(0).T
    everything = torch.arange(n, device=device).repeat(options.models, 1)
    _, states = train_together(make, everything, x, y, 2 * options.lds_steps, 64)
    print(
        f"{2 * len(halves)} retrainings took {now(device) - began:.0f} s; two of one half correlate by {ceiling:.3f}."
    )
    chosen = torch.zeros(len(halves), n, dtype=torch.double, device=device).scatter_(1, halves, 1.0)
    all_layers = []
    for state in states:
        model = make().to(device)
        model.load_state_dict(state, strict=False)
        all_layers.append(factors_of(model.eval(), *(torch.cat(pair) for pair in zip((x, y), queries))))
    exact = [[*kernels(layers, "exact", 0, device, 0)] for layers in all_layers]

    def score(found: list[Iterator[Tensor]]) -> float:
        scores = 0
        for kernels_of_model, exact_of_model in zip(found, exact):
            for kernel, own in zip(kernels_of_model, exact_of_model):
                penalty = options.penalty * float(own.diagonal()[:n].mean())
                scores = scores + influence(kernel, n, penalty)[n:]
        return float(correlation(scores @ chosen.T, real).mean())

    table = Table("lds", options, methods)
    table.fill(
        lambda m, k, seed: score([kernels(layers, m, k, device, 10 * seed + i) for i, layers in enumerate(all_layers)])
    )
    best = score(exact)
    table.show(
        f"Linear datamodeling score ({len(halves)} halves of {n:,} images, {len(queries[0])} queries, "
        f"{options.models} models; {best:.3f} with exact gradients):"
    )
    return table


def cost(options, text: Tensor) -> list[list[str]]:
    """Forward and backward passes of a language model: alone, recorded, and with two-sided projections."""
    device, rows = options.device, []
    model = LanguageModel(options.cost_width, options.cost_depth, options.cost_context).to(device).eval()
    x, y = passages(text, options.cost_context, options.cost_batch)
    half = torch.autocast(device, torch.bfloat16, enabled=device != "cpu")

    def passes() -> None:
        with half:
            loss = cross_entropy(model(x).float(), y, reduction="sum")
        model.zero_grad()
        loss.backward()

    def timed(run: Callable[[], None]) -> tuple[float, tuple[str, str]]:
        memory = Memory(device)
        for _ in range(3):
            run()
        used, times = memory.used(), []
        for _ in range(options.rounds):
            start = now(device)
            for _ in range(3):
                run()
            times.append((now(device) - start) / 3)
        return sorted(times)[len(times) // 2], used

    alone, used = timed(passes)
    rows.append(["forward and backward", "–", f"{1e3 * alone:.2f}", "", *used])
    linear = {name: part for name, part in model.named_modules() if isinstance(part, nn.Linear)}
    for numbers in options.cost_numbers:
        for method in ["two-sided", "ctr-product-srht", "product-srht", "tensor-sketch"]:
            if method == "two-sided":
                hooks = two_sided_hooks([*linear.items()], numbers, device)
                time, used = timed(passes)
                for hook in hooks:
                    hook.remove()
            else:
                with tempfile.TemporaryDirectory() as folder:
                    # Shards so small that some are written while times are taken.
                    chosen = {"select": lambda name, _: name in linear, "shard_rows": 8 * options.cost_batch}
                    store = GradientStore(model, folder, features=numbers, method=method, **chosen)
                    with store:

                        def run(store=store) -> None:
                            passes()
                            store.record()

                        time, used = timed(run)
            rows.append([method, f"{4 * numbers:,}", f"{1e3 * time:.2f}", f"{100 * (time / alone - 1):.0f} %", *used])
    return rows


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], "attribution.csv")
    parser.add_argument("--only", nargs="+", default=["errors", "mislabelled", "lds", "cost"])
    parser.add_argument("--bytes", type=int, nargs="+", default=[256, 1024, 2048, 4096, 16384, 65536])
    parser.add_argument("--package-bytes", type=int, default=16384, help="most bytes for traker and dattri")
    parser.add_argument("--seeds", type=int, default=2, help="of sketches")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--steps", type=int, default=600, help="of training, with batches of 256")
    parser.add_argument("--images", type=int, default=20_000, help="that the vision transformer is trained on")
    parser.add_argument("--samples", type=int, default=300, help="examples whose inner products are compared")
    parser.add_argument("--examples", type=int, default=4000, help="images, of which a tenth is mislabelled")
    parser.add_argument("--lds-examples", type=int, default=3000)
    parser.add_argument("--lds-width", type=int, default=64)
    parser.add_argument("--lds-steps", type=int, default=300)
    parser.add_argument("--retrainings", type=int, default=48, help="random halves of the data")
    parser.add_argument("--trainings", type=int, default=2, help="on every half, at least two")
    parser.add_argument("--models", type=int, default=1, help="trained on everything, whose scores are added up")
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--penalty", type=float, default=0.1, help="in mean eigenvalues")
    parser.add_argument("--cost-width", type=int, default=512)
    parser.add_argument("--cost-depth", type=int, default=8)
    parser.add_argument("--cost-context", type=int, default=256)
    parser.add_argument("--cost-batch", type=int, default=128)
    parser.add_argument("--cost-numbers", type=int, nargs="+", default=[256, 1024])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    device = options.device
    if options.small:
        small = {"bytes": [256, 1024], "package_bytes": 256, "seeds": 2, "width": 32, "depth": 1, "steps": 30}
        small |= {
            "samples": 20,
            "examples": 100,
            "lds_examples": 60,
            "lds_width": 16,
            "lds_steps": 10,
            "retrainings": 4,
        }
        small |= {"models": 1, "queries": 10, "cost_width": 64, "cost_depth": 2, "cost_context": 32, "cost_batch": 4}
        small |= {"cost_numbers": [64], "rounds": 3}
        vars(options).update(small)
    methods = ["two-sided", "coordinates", *filter(installed, ["traker", "dattri"]), *OURS]
    print(f"On {machine(device)}.")
    tables: list[Table] = []
    raw = (data_set(options, "moby-dick") / "data.txt").read_bytes()
    text = torch.frombuffer(bytearray(raw), dtype=torch.uint8).to(device).long()
    if "errors" in options.only:
        x, y = (part[: options.images] for part in images(data_set(options, "fashion-mnist"), "train", device))
        torch.manual_seed(0)
        model = VisionTransformer(options.width, options.depth).to(device)
        train(model, x, y, options.steps, 256)
        layers = factors_of(model.eval(), x[-options.samples :], y[-options.samples :])
        tables.append(errors("errors-vision", layers, options, methods))
        tables[-1].show(
            f"Relative error of inner products, vision transformer ({options.samples} images, {len(layers)} layers):"
        )
        torch.manual_seed(0)
        language = LanguageModel(options.width, options.depth, 64).to(device)
        count = (len(text) - 1) // 64
        x, y = passages(text, 64, count)
        train(language, x[: -options.samples], y[: -options.samples], 2 * options.steps, 64)
        layers = factors_of(language.eval(), x[-options.samples :], y[-options.samples :])
        tables.append(errors("errors-language", layers, options, methods))
        tables[-1].show(
            f"Relative error of inner products, language model ({options.samples} passages, {len(layers)} layers):"
        )
    if "mislabelled" in options.only:
        tables.append(mislabelled(options, methods))
    if "lds" in options.only:
        tables.append(datamodels(options, methods))
    if "cost" in options.only:
        rows = cost(options, text)
        size = f"width {options.cost_width}, {options.cost_depth} blocks"
        print(f"\nPasses of a language model ({size}, {options.cost_batch} x {options.cost_context} bytes):")
        print_table(["", "bytes a layer", "ms", "more", "MB, PyTorch", "MB, Argand beside"], rows)
    rows = [row for table in tables for row in table.rows()]
    save(options.csv, ["question", "method", "bytes a layer", "mean", "standard error"], rows)


if __name__ == "__main__":
    main()
