"""Ten plain lines of PyTorch beside Argand on a GPU, and the tables of docs/gpu.md: `make bench-gpu`.

`--json FILE` measures with PyTorch, eager and compiled, and writes one line of JSON for each measurement. `--render`
makes tables of docs/gpu/argand.jsonl and docs/gpu/torch.jsonl, which `make figures` draws; it needs no GPU.
"""

from __future__ import annotations

import argparse
import datetime
import json
import math
import os
import pathlib
import subprocess
import sys
import time

try:
    import torch
except ImportError:
    torch = None

DOCS = pathlib.Path(__file__).resolve().parent.parent / "docs"

BASE = {"rows": 65536, "d": 1024, "p": 3, "D": 8192}
EAGER = {
    "rows": [1024, 4096, 16384, 65536, 262144],
    "d": [64, 256, 512, 1024, 2048],
    "p": [1, 2, 3, 5, 7, 10],
    "D": [512, 2048, 8192, 16384, 32768],
}
# Every size is compiled anew, which takes seconds; many factors take longest and come last.
COMPILED = {"rows": [1024, 65536, 262144], "D": [512, 8192, 32768], "d": [64, 1024, 2048], "p": [1, 3, 7, 10]}
METHODS = ["ctr-product-srht", "tensor-sketch"]


# The sketches. A transform multiplies the last dimension by a Hadamard matrix.


def ctr_product_srht(x, signs, sampled, transform):
    """Signs are p pairs of real and imaginary parts; sampled are p lists of rows of the transform."""
    x = torch.nn.functional.pad(x, (0, signs.shape[-1] - x.shape[1])) if signs.shape[-1] > x.shape[1] else x
    product = None
    for sign, rows in zip(signs, sampled):
        a, b = transform(x[:, None] * sign)[..., rows].unbind(1)
        product = (a, b) if product is None else (product[0] * a - product[1] * b, product[0] * b + product[1] * a)
    return torch.cat(product, 1) * sampled.shape[1] ** -0.5


def tensor_sketch(x, signs, buckets, features):
    """Signs and buckets are p lists, with one entry for each column."""
    product = None
    for sign, bucket in zip(signs, buckets):
        counts = x.new_zeros(len(x), features).index_add_(1, bucket, x * sign)
        product = torch.fft.rfft(counts) if product is None else product * torch.fft.rfft(counts)
    return torch.fft.irfft(product, features)


def butterflies(x):
    """Sums and differences, log2(d) times."""
    shape, half = x.shape, 1
    while half < shape[-1]:
        a, b = x.view(*shape[:-1], -1, 2, half).unbind(-2)
        x = torch.stack([a + b, a - b], -2).view(shape)
        half *= 2
    return x


def one_product(d, device):
    """A product with the Hadamard matrix."""
    matrix = butterflies(torch.eye(d, device=device))
    return lambda x: x @ matrix


def two_products(d, device):
    """Products with two small Hadamard matrices, whose Kronecker product is the large one."""
    half = 1 << (d.bit_length() - 1) // 2
    left, right = (butterflies(torch.eye(size, device=device)) for size in (half, d // half))
    return lambda x: (left @ x.view(*x.shape[:-1], half, -1) @ right).view(x.shape)


TRANSFORMS = {"butterflies": lambda d, device: butterflies, "one product": one_product, "two products": two_products}


def draw(method, case, device, transform="two products"):
    """A sketch of these sizes: a function of rows."""
    d, p, features = case["d"], case["p"], case["D"]
    if method == "tensor-sketch":
        signs = torch.randint(0, 2, (p, d), device=device) * 2.0 - 1.0
        buckets = torch.randint(0, features, (p, d), device=device)
        return lambda x: tensor_sketch(x, signs, buckets, features)
    padded, outputs = 1 << (d - 1).bit_length(), features // 2
    turns = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]], device=device)
    signs = turns[torch.randint(0, 4, (p, padded), device=device)].transpose(1, 2).contiguous()
    # Rows of stacked Hadamard matrices, without replacement.
    stacked = -(-outputs // padded) * padded
    sampled = torch.stack([torch.randperm(stacked, device=device)[:outputs] % padded for _ in range(p)])
    hadamard = TRANSFORMS[transform](padded, device)
    return lambda x: ctr_product_srht(x, signs, sampled, hadamard)


def check(device):
    """The mean of estimates over draws is the kernel (x.y)^p, up to five standard errors."""
    x = torch.nn.functional.normalize(torch.rand(4, 50, device=device, dtype=torch.float32), dim=1)
    for method in METHODS:
        for transform in TRANSFORMS if method == "ctr-product-srht" else ["none"]:
            case = {"d": 50, "p": 3, "D": 256}
            features = [draw(method, case, device, transform)(x).double() for _ in range(200)]
            estimates = torch.stack([z @ z.T for z in features])
            error = (estimates.mean(0) - (x @ x.T).double() ** 3).abs() / (estimates.std(0) / 200**0.5 + 1e-6)
            if not error.max() < 5:
                sys.exit(f"bench_gpu: {method} ({transform}) is {error.max():.1f} standard errors from the kernel")
    print("the mean of estimates is the kernel, up to five standard errors")


# Measuring.


class Bench:
    """A device, the lines measured so far, and the time that is left."""

    def __init__(self, device, path, rows, seconds):
        self.device, self.file, self.scale = device, path.open("w"), BASE["rows"] // rows
        self.end = time.monotonic() + seconds

    def write(self, **fields):
        for name, value in fields.items():
            fields[name] = round(value, 5) if isinstance(value, float) else value
        print(json.dumps(fields), file=self.file, flush=True)
        print(", ".join(f"{name} {value}" for name, value in fields.items()))

    def wait(self):
        if self.device == "cuda":
            torch.cuda.synchronize()

    def time(self, call, limit=2.0):
        """Best and median milliseconds, of 15 rounds of 5 ms or as many as fit into 0.3 s but at least 5."""

        def round_of(calls):
            begun = time.perf_counter()
            for _ in range(calls):
                call()
            self.wait()
            return (time.perf_counter() - begun) * 1e3 / calls

        round_of(1)
        once = round_of(1)
        if once > limit * 1e3:
            raise TimeoutError(f"one call takes {once / 1e3:.1f} s")
        calls = next((calls for calls in (1, 2, 5, 10, 20, 50, 100, 200) if calls * once >= 5), 500)
        begun, times = time.perf_counter(), []
        while len(times) < 5 or (len(times) < 15 and time.perf_counter() - begun < 0.3):
            times.append(round_of(calls))
        return {"best_ms": min(times), "median_ms": sorted(times)[len(times) // 2]}

    def copy(self, numbers):
        """Milliseconds of a copy that reads and writes this many float32 numbers together."""
        source = torch.ones(numbers // 2, device=self.device)
        target = torch.empty_like(source)
        return self.time(lambda: target.copy_(source))["best_ms"]

    def sketch(self, code, method, case, transform=None):
        """Measures one sketch, eager or compiled; a reason instead of times where that is not possible."""
        fields = {"kind": "growth", "code": code, "method": method, **case, "element": "float32"}
        if transform is not None:
            fields["transform"] = transform
        if time.monotonic() > self.end:
            self.write(**fields, skipped="no time left")
            return None
        try:
            features = draw(method, case, self.device, transform)
            x = (torch.rand(case["rows"], case["d"], device=self.device) * 2 - 1) / case["d"] ** 0.5
            if code == "compiled":
                eager, features = features, torch.compile(features, dynamic=False)
                torch._dynamo.reset()
                begun = time.perf_counter()
                found, right = features(x)[:64], eager(x[:64])
                fields["compile_s"] = time.perf_counter() - begun
                error = ((found - right).abs().amax(1) / right.abs().amax(1)).max().item()
                if not error < 1e-4:
                    raise RuntimeError(f"differs from eager by {error:.1e}")
                del found, right
            times = self.time(lambda: features(x))
            floor = self.copy(case["rows"] * (case["d"] + case["D"]))
        except (RuntimeError, TimeoutError) as error:
            self.write(**fields, skipped=str(error).split("\n")[0].split(". ")[0])
            return None
        self.write(**fields, **times, floor_ms=floor)
        return times["best_ms"]

    def cases(self, sizes):
        """The base, then each size with the others fixed."""
        base = {**BASE, "rows": BASE["rows"] // self.scale}
        yield base
        for name, values in sizes.items():
            for value in values:
                value = max(value // self.scale, 1) if name == "rows" else value
                if value != base[name]:
                    yield {**base, name: value}

    def machine(self):
        name, driver = "the processor", ""
        if self.device == "cuda":
            name = torch.cuda.get_device_name()
            query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
            found = subprocess.run(query, capture_output=True, text=True, check=False)
            driver = found.stdout.split("\n")[0].strip()
        versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "driver": driver}
        self.write(kind="machine", name=name, **versions, unix_time=int(time.time()))

    def product(self):
        """A product as a dense sketch needs for each factor."""
        rows, d, features = BASE["rows"] // self.scale, BASE["d"], BASE["D"]
        x, w = torch.rand(rows, d, device=self.device), torch.rand(d, features, device=self.device)
        out = torch.empty(rows, features, device=self.device)
        self.write(kind="product", rows=rows, d=d, D=features, **self.time(lambda: torch.mm(x, w, out=out)))

    def sum(self):
        """The sum of features that were written row by row."""
        images, positions, features = max(256 // self.scale, 1), 784, BASE["D"]
        z = torch.rand(images, positions, features, device=self.device)
        self.write(kind="sum", rows=images * positions, D=features, groups=images, **self.time(lambda: z.sum(1)))


def measure(path, device, rows, seconds):
    """Measures everything with PyTorch."""
    torch.manual_seed(0)
    torch.set_grad_enabled(False)
    torch.set_float32_matmul_precision("highest")
    check(device)
    bench = Bench(device, path, rows, seconds)
    bench.machine()
    bench.product()
    bench.sum()
    for code, sizes in (("eager", EAGER), ("compiled", COMPILED)):
        base, *cases = bench.cases(sizes)
        found = {name: bench.sketch(code, METHODS[0], base, name) for name in TRANSFORMS}
        fastest = min(found, key=lambda name: found[name] or math.inf)
        bench.sketch(code, METHODS[1], base)
        for case in cases:
            bench.sketch(code, METHODS[0], case, fastest)
            bench.sketch(code, METHODS[1], case)


# Tables and pictures.


def lines(path):
    """The lines of a JSON file; none if there is no such file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def three_digits(value):
    return f"{value:#.3g}" if value < 99.95 else f"{value:.0f}"


def table(head, rows):
    """A Markdown table without columns that are empty everywhere; numbers are aligned to the right."""
    columns = [column for column in zip(head, *rows) if any(cell != "" for cell in column[1:])]
    numbers = [all(str(cell).replace(".", "").isdigit() or cell == "" for cell in column[1:]) for column in columns]
    lines = list(zip(*columns))
    lines.insert(1, ["---:" if number else "---" for number in numbers])
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


class Results:
    """What was measured: by Argand, by PyTorch, and of the code of the paper's authors."""

    def __init__(self, folder):
        self.argand, self.torch = lines(folder / "argand.jsonl"), lines(folder / "torch.jsonl")
        self.authors = lines(folder / "authors.jsonl")

    def one(self, source, **wanted):
        """The fastest measurement with these fields, or nothing."""
        matching = [line for line in source if wanted.items() <= line.items() and "best_ms" in line]
        return min(matching, key=lambda line: line["best_ms"], default=None)

    def authors_ms(self, method, case):
        if case.get("element", "float32") != "float32":
            return None
        wanted = {"what": method.replace("-", "_"), "n": case["rows"], **{name: case[name] for name in ("d", "p", "D")}}
        return next((line["ms"] for line in self.authors if wanted.items() <= line.items()), None)

    def methods(self):
        rows = []
        for line in self.argand:
            if line["kind"] != "methods":
                continue
            best, floor, authors = line["best_ms"], line["floor_ms"], self.authors_ms(line["method"], line)
            sizes = [line["method"], f"{line['rows']} x {line['d']}", line["p"], line["D"], line["element"]]
            times = [three_digits(best), three_digits(floor), f"{best / floor:.2f}"]
            rows.append([*sizes, *times, three_digits(authors) if authors else "", "yes" if line["fused"] else "no"])
        head = ["method", "rows x d", "p", "D", "type", "best", "floor", "times the floor", "authors", "one pass"]
        return table(head, rows)

    def goals(self):
        """Rows of goal, value and whether it is met, for what was measured."""
        rows = []

        def goal(work, text, value, met, shown=three_digits):
            rows.append([work, text, shown(value), "✓" if met(value) else "✗"])

        def at_most(work, unit, limit, value):
            goal(work, f"at most {limit}{unit}", value, lambda value: value <= limit, lambda v: three_digits(v) + unit)

        def at_least(work, unit, limit, value):
            goal(work, f"at least {limit}{unit}", value, lambda value: value >= limit, lambda v: three_digits(v) + unit)

        size = f"{BASE['rows']:,} x {BASE['d']}, D = {BASE['D']}"
        for p, floors in ((3, 1.25), (7, 2.5)):
            if line := self.one(self.argand, kind="methods", method=METHODS[0], element="float32", **{**BASE, "p": p}):
                work = f"{METHODS[0]} {size}, p = {p}"
                at_most(work, " x copy", floors, line["best_ms"] / line["floor_ms"])
                if authors := self.authors_ms(METHODS[0], line):
                    at_least(f"{work}, faster than the authors' code", " x", 20, authors / line["best_ms"])
        work = f"{METHODS[0]} {size}, p = 3"
        if line := self.one(self.argand, kind="methods", method=METHODS[0], element="bfloat16", **BASE):
            at_most(f"{work}, bfloat16 in and out", " x copy", 1.4, line["best_ms"] / line["floor_ms"])
        if line := self.one(self.argand, kind="backward"):
            at_most(f"{work}, forward and backward", " x forward", 3.5, line["best_ms"] / line["forward_ms"])
        if line := self.one(self.argand, kind="one-call"):
            work = f"{line['rows']} x {line['d']}, D = {line['D']}, p = {line['p']}, one call"
            at_most(f"{work}: GPU", " µs", 30, line["best_ms"] * 1e3)
            at_most(f"{work}: host", " µs", 15, line["host_ms"] * 1e3)
        line = self.one(self.argand, kind="methods", method=METHODS[1], **BASE)
        if line and (authors := self.authors_ms(METHODS[1], line)):
            work = f"{METHODS[1]} {size}, p = 3, faster than the authors' code"
            at_least(work, " x", 5, authors / line["best_ms"])
        product = self.one(self.torch, kind="product")
        for method in ("gaussian", "ctr-gaussian"):
            line = self.one(self.argand, kind="methods", method=method, **BASE)
            if line and product:
                share = line["p"] * product["best_ms"] / line["best_ms"]
                at_least(f"{method} {size}, p = 3", " of cuBLAS", 0.8, share)
        line, total = self.one(self.argand, kind="pooled"), self.one(self.torch, kind="sum")
        if line and total:
            positions = line["rows"] // line["groups"]
            work = f"pooled, {line['groups']} x {positions} x {line['d']}, D = {line['D']}, p = {line['p']}"
            apart = line["features_ms"] + total["best_ms"]
            at_least(f"{work}, faster than features, then PyTorch's sum", " x", 5, apart / line["best_ms"])
        if line := self.one(self.argand, kind="gram"):
            work = f"Gram of {line['rows']:,} x {line['D']} in float64"
            at_least(work, " TFlop/s", 40, line["rows"] * line["D"] ** 2 / line["best_ms"] / 1e9)
        for cached, words in ((False, "kernels to be compiled"), (True, "kernels in the driver's cache")):
            if line := self.one(self.argand, kind="first-call", cached=cached):
                at_most(f"first call of a process, {words}", " s", 1, line["best_ms"] / 1e3)
        return table(["work", "goal", "measured", "met"], rows)

    def growth(self, method):
        """Milliseconds for each series, size and value."""
        found = {}
        series = {
            "Argand": [line for line in self.argand if line["kind"] == "growth"],
            "PyTorch": [line for line in self.torch if line.get("code") == "eager"],
            "torch.compile": [line for line in self.torch if line.get("code") == "compiled"],
        }
        for size in BASE:
            values = sorted({line[size] for line in series["Argand"]} | {BASE[size]})
            for value in values:
                case = {**BASE, size: value}
                for name, source in series.items():
                    if line := self.one(source, method=method, **case):
                        found.setdefault(name, {}).setdefault(size, {})[value] = line["best_ms"]
                        if name == "Argand":
                            found.setdefault("copy", {}).setdefault(size, {})[value] = line["floor_ms"]
                if authors := self.authors_ms(method, case):
                    found.setdefault("authors", {}).setdefault(size, {})[value] = authors
        return found

    def growth_table(self, method):
        growth, series = self.growth(method), ["copy", "Argand", "PyTorch", "torch.compile", "authors"]
        rows = []
        for size in BASE:
            for value in growth.get("Argand", {}).get(size, {}):
                cells = [growth.get(name, {}).get(size, {}).get(value) for name in series]
                label = f"{size} = {value:,}" if size != "rows" else f"{value:,} rows"
                rows.append([label, *(three_digits(cell) if cell else "" for cell in cells)])
        return table([method, *series], rows)

    def skipped(self):
        """What PyTorch could not do, and why."""
        reasons = {}
        for line in self.torch:
            if "skipped" in line:
                sizes = ", ".join(f"{name} = {line[name]:,}" for name in BASE if line[name] != BASE[name]) or "the base"
                code = "PyTorch" if line["code"] == "eager" else "torch.compile"
                reasons.setdefault(line["skipped"], []).append(f"{code} {line['method']} at {sizes}")
        return "".join(f"\nNot measured ({reason}): {'; '.join(cases)}.\n" for reason, cases in reasons.items())

    def machine(self):
        """The machine in words, as both programs saw it."""
        told = []
        for program, source in (("Argand", self.argand), ("PyTorch", self.torch)):
            line = next((line for line in source if line["kind"] == "machine"), None)
            if line is None:
                continue
            date = datetime.datetime.fromtimestamp(line["unix_time"], datetime.timezone.utc).date()
            driver = f"driver {line['driver']}, " if line["driver"] else ""
            version = f" {line['torch']}" if "torch" in line else ""
            told.append(f"{program}{version}: {line['name']}, {driver}CUDA {line['cuda']}, {date}")
        return "; ".join(told)


def replace(text, name, new):
    """Replaces what lies between two markers."""
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
    if begin not in text or end not in text:
        sys.exit(f"bench_gpu: docs/gpu.md has no markers for {name}")
    return text[: text.index(begin)] + begin + new.strip() + "\n" + text[text.index(end) :]


def render(docs):
    """Tables into docs/gpu.md; `make figures` draws them."""
    folder = docs / "gpu"
    data = os.environ.get("ARGAND_DATA")
    if data and (authors := pathlib.Path(data) / "reference/gpu-authors.jsonl").exists():
        (folder / "authors.jsonl").write_text(authors.read_text())
    results = Results(folder)
    if not results.argand:
        sys.exit(f"bench_gpu: {folder / 'argand.jsonl'} is missing or empty; `make bench-gpu` writes it, with a GPU")
    copy = results.one(results.argand, kind="copy")
    rate = f" A copy moved {copy['bytes'] / copy['best_ms'] / 1e9:.2f} TB/s." if copy else ""
    measured = f"{results.machine()}.{rate}"
    authors = " *authors* is the code of the paper's authors on PyTorch on an H200." if results.authors else ""
    methods = (
        f"{measured}\n"
        "Milliseconds, best of up to 15 rounds. The floor is a copy, in the same run, that moves as many bytes as\n"
        f"the input and the features have together.{authors}\n\n{results.methods()}"
    )
    base = f"{BASE['rows']:,} x {BASE['d']}, p = {BASE['p']}, D = {BASE['D']}"
    growth = (
        f"Milliseconds in float32; one size grows, the others are those of {base}. *PyTorch* is ten plain lines\n"
        "(`scripts/bench_gpu.py`), *torch.compile* the same lines compiled, *copy* moves the same bytes.\n"
    )
    if seconds := [line["compile_s"] for line in results.torch if "compile_s" in line]:
        growth += f"Compiling took {min(seconds):.0f} to {max(seconds):.0f} s for each size, which is not counted.\n"
    for method in METHODS:
        if (folder / f"{method}.svg").exists():
            growth += f"\n![Time of {method} over rows, d, p and D](gpu/{method}.svg)\n"
        growth += f"\n{results.growth_table(method)}\n"
    growth += results.skipped()
    page = docs / "gpu.md"
    text = replace(page.read_text(), "goals", results.goals())
    page.write_text(replace(replace(text, "methods", methods), "growth", growth))
    print(f"wrote {page}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=pathlib.Path, metavar="FILE", help="measure, and write the times to this file")
    parser.add_argument(
        "--device", default="cuda", choices=["cuda", "cpu"], help="cpu: to try the code, with few --rows"
    )
    parser.add_argument("--rows", type=int, default=BASE["rows"], help="rows where they do not grow")
    parser.add_argument("--seconds", type=float, default=80.0, help="begin no new measurement after this time")
    parser.add_argument("--render", action="store_true", help="write the tables of docs/gpu.md from the files in docs/gpu")
    parser.add_argument("--docs", type=pathlib.Path, default=DOCS, help="the folder with gpu.md and gpu/")
    given = parser.parse_args()
    if not given.json and not given.render:
        parser.error("nothing to do: give --json FILE, --render or both")
    if given.json:
        if torch is None:
            print("this Python has no PyTorch: its columns are left out; PYTHON names another")
            given.json.unlink(missing_ok=True)
        else:
            measure(given.json, given.device, given.rows, given.seconds)
    if given.render:
        render(given.docs)


if __name__ == "__main__":
    main()
