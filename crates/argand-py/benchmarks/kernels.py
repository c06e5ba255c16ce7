"""The study in docs/kernels.md: test error over total time, for every map, kernel and set.

    python kernels.py measure [--sets letter,...] [--sizes 2048,...] [--only sorf,...] [--seeds 1,...] [--minutes 30]
                                                                     one line per result in docs/kernels/results.jsonl,
                                                                     or seeds.jsonl if the seed is not 0
    python kernels.py plan [--minutes 30]                            what `argand.plan` recommends, in plans.jsonl
    python kernels.py render                                         tables and the score of `plan`
    python kernels.py speed                                          maps beside scikit-learn's and beside their parts

A result that is in the file is not measured again: stop and go on as you like. `make data` fetches five of the sets;
ARGAND_DATA names a folder whose subfolder data has the sixth, cifar10-conv, and perhaps the others.

Everything runs on one thread and is timed by the processor's clock, so that other work on the machine counts little.
"""

import argparse
import gzip
import json
import math
import os
import time
from functools import lru_cache
from itertools import product
from pathlib import Path

import argand
import numpy as np
import scipy.linalg
from argand import GaussianSketch, NystromSketch, PolynomialSketch, _argand
from sklearn.kernel_approximation import Nystroem, PolynomialCountSketch, RBFSampler
from sklearn.metrics.pairwise import euclidean_distances, polynomial_kernel, rbf_kernel
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = [ROOT / "data", Path(os.environ.get("ARGAND_DATA", ROOT)) / "data"]
RESULTS = ROOT / "docs" / "kernels" / "results.jsonl"

TRAINING, VALIDATION, TEST, KERNEL_ROWS = 8000, 2000, 5000, 1000
# Groups of test rows whose errors are kept, to know how much depends on the rows.
GROUPS = 50
# The rounds of a measurement: a short one has all sets and kernels, but few sizes.
SIZES = [256, 1024, 512, 2048, 4096, 8192]
PENALTIES = [0.001, 0.01, 0.1, 1.0]


def find(name):
    found = [folder / name for folder in FOLDERS if (folder / name).exists()]
    if not found:
        raise SystemExit(f"{name} is missing: run `make data`, or set ARGAND_DATA")
    return found[0]


def idx(name, kind):
    folder = find(name)
    path = next(path for path in folder.iterdir() if path.name.startswith(f"train-{kind}"))
    data = (gzip.open if path.suffix == ".gz" else open)(path, "rb").read()
    rows = int.from_bytes(data[4:8], "big")
    return np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(rows, -1)


def images(name):
    return idx(name, "images").astype(np.float32), idx(name, "labels").ravel().astype(int)


def letter():
    # Other copies of this set have their rows in another order: the split would be another one.
    table = np.loadtxt(find("letter/letter.dat"), str, delimiter=",")
    return table[:, :16].astype(np.float32), np.unique(table[:, 16], return_inverse=True)[1]


def magic():
    table = np.loadtxt(find("magic") / "magic.dat", str, delimiter=",")
    return table[:, :10].astype(np.float32), (table[:, 10] == "g").astype(int)


def diamonds():
    """The logarithm of a diamond's price by its weight, shape and quality, which has ranks."""
    ranks = {
        "cut": ["Fair", "Good", "Very Good", "Premium", "Ideal"],
        "color": list("JIHGFED"),
        "clarity": ["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"],
    }
    lines = (find("diamonds") / "diamonds.csv").read_text().splitlines()
    names = [name.strip('"') for name in lines[0].split(",")]
    table = [[field.strip('"') for field in line.split(",")] for line in lines[1:]]
    columns = {name: [row[at] for row in table] for at, name in enumerate(names)}
    for name, order in ranks.items():
        columns[name] = [order.index(value) for value in columns[name]]
    used = [name for name in names if name not in ("", "price")]
    X = np.array([columns[name] for name in used], np.float32).T
    # Prices grow with the size, and sizes have a few mistakes in them.
    X[:, used.index("carat")] = np.log(X[:, used.index("carat")])
    return np.clip(X, *np.quantile(X, [0.001, 0.999], axis=0)), np.log(np.array(columns["price"], float))


def cifar():
    folder = find("cifar10-conv")
    X, y = (np.load(folder / f"train-{kind}.npy", mmap_mode="r") for kind in ("features", "labels"))
    return X[:20000].astype(np.float32), np.asarray(y[:20000]).astype(int)


SETS = {
    "mnist": lambda: images("mnist"),
    "fashion-mnist": lambda: images("fashion-mnist"),
    "cifar10-conv": cifar,
    "letter": letter,
    "magic": magic,
    "diamonds": diamonds,
}
IMAGES = ("mnist", "fashion-mnist", "cifar10-conv")
SUM, SUM_FOR_LEARNING = "maclaurin-ctr-product-srht", "maclaurin-ctr-product-srht for learning"
CHOSEN = "auto"
KERNELS = ["polynomial 3", "polynomial 7", "gaussian 1", "gaussian 0.5", "gaussian 0.3"]


class Task:
    """One set, split and scaled for one kernel.

    Images have rows of unit norm. The columns of tables are standardised, and for polynomial kernels their rows then
    get unit norm. Gaussian kernels are as wide as the median distance between rows, or a part of it.
    """

    def __init__(self, name, kernel):
        X, y = load(name)
        training, validation, test = np.split(
            np.arange(TRAINING + VALIDATION + TEST), [TRAINING, TRAINING + VALIDATION]
        )
        if name not in IMAGES:
            X = (X - X[training].mean(0)) / X[training].std(0)
        if name in IMAGES or kernel.startswith("polynomial"):
            X = normalize(X)
        X = np.ascontiguousarray(X, np.float32)
        self.name, self.kernel, self.columns = name, kernel, X.shape[1]
        self.X, self.labels = X[: TRAINING + VALIDATION], y[: TRAINING + VALIDATION]
        self.parts = [X[training], X[validation], X[test]]
        self.classes = None if y.dtype.kind == "f" else int(y.max()) + 1
        targets = y[:, None] if self.classes is None else np.where(np.arange(self.classes) == y[:, None], 1.0, -1.0)
        self.targets = [targets[part] for part in (training, validation, test)]
        self.degree = int(kernel.split()[1]) if kernel.startswith("polynomial") else None
        if self.degree is None:
            distances = euclidean_distances(X[:KERNEL_ROWS])
            self.length_scale = float(np.median(distances[distances > 0])) * float(kernel.split()[1])
        some = self.parts[2][:KERNEL_ROWS].astype(np.float64)
        self.exact_kernel = (
            polynomial_kernel(some, None, self.degree, 0.5, 0.5)
            if self.degree
            else rbf_kernel(some, gamma=0.5 / self.length_scale**2)
        )

    @staticmethod
    def methods(kernel):
        """The names of all maps for a kernel."""
        if kernel.startswith("polynomial"):
            return [
                "ctr-product-srht",
                "chain-ctr-product-srht",
                SUM,
                SUM_FOR_LEARNING,
                "nystrom",
                "sklearn PolynomialCountSketch",
                "sklearn Nystroem",
            ]
        return [
            "sorf",
            "orf",
            SUM,
            SUM_FOR_LEARNING,
            CHOSEN,
            "nystrom",
            "sklearn RBFSampler",
            "sklearn Nystroem",
        ]

    def maps(self, features, seed):
        """Every map for this kernel by its name; those whose cost is out of proportion are left out."""
        fixed = {"n_components": features, "random_state": seed}
        if self.degree:
            kernel = {"degree": self.degree, "gamma": 0.5, "coef0": 0.5}
            makers = {
                method: lambda method=method: PolynomialSketch(**kernel, **fixed, method=method, n_jobs=1)
                for method in ("ctr-product-srht", "chain-ctr-product-srht", SUM)
            }
            makers[SUM_FOR_LEARNING] = lambda: PolynomialSketch(**kernel, **fixed, method=SUM, aim="learning", n_jobs=1)
            makers["nystrom"] = lambda: NystromSketch("poly", **kernel, **fixed, n_jobs=1)
            makers["sklearn PolynomialCountSketch"] = lambda: PolynomialCountSketch(**kernel, **fixed)
            makers["sklearn Nystroem"] = lambda: Nystroem(kernel="poly", **kernel, **fixed)
        else:
            width = {"gamma": 0.5 / self.length_scale**2}
            makers = {
                method: lambda method=method: GaussianSketch(**width, **fixed, method=method, n_jobs=1)
                for method in ("sorf", "orf", SUM, "nystrom")
            }
            makers[SUM_FOR_LEARNING] = lambda: GaussianSketch(**width, **fixed, method=SUM, aim="learning", n_jobs=1)
            makers[CHOSEN] = lambda: GaussianSketch(**width, **fixed, method="auto", n_jobs=1)
            makers["sklearn RBFSampler"] = lambda: RBFSampler(**width, **fixed)
            makers["sklearn Nystroem"] = lambda: Nystroem(kernel="rbf", **width, **fixed)
        # The singular values of that many landmarks take minutes.
        if features > 1024:
            del makers["sklearn Nystroem"]
        # Landmarks are rows.
        if features > TRAINING // 2:
            del makers["nystrom"]
        if features > 4096:
            makers.pop("sklearn PolynomialCountSketch", None)
            makers.pop("orf", None)
        return makers

    def exact_features(self):
        """The map of all monomials, if there are no more than 8192."""
        if self.degree is None:
            return None
        sketch = PolynomialSketch(self.degree, gamma=0.5, coef0=0.5, method="exact", n_jobs=1)
        count = np.prod([(self.columns + k) / k for k in range(1, self.degree + 1)])
        return sketch.set_params(n_components=round(count)) if round(count) <= 8192 else None

    def error(self, scores, part):
        """The share of wrong classes, or the root mean squared error in standard deviations of the targets."""
        targets = self.targets[part]
        if self.classes is None:
            return float(np.sqrt(((scores - targets) ** 2).mean() / targets.var()))
        return float((scores.argmax(1) != targets.argmax(1)).mean())

    def errors_of_groups(self, scores):
        """The error of every group of test rows, such that their mean is the error of all.

        For numbers, the root of a mean is linearised: with the mean square q of all groups, sqrt(q) + (q_g - q) /
        (2 sqrt(q)).
        """
        targets = self.targets[2]
        if self.classes is not None:
            return (scores.argmax(1) != targets.argmax(1)).reshape(GROUPS, -1).mean(1)
        squares = (((scores - targets) ** 2).mean(1) / targets.var()).reshape(GROUPS, -1).mean(1)
        root = squares.mean() ** 0.5
        return root + (squares - squares.mean()) / (2 * root)


@lru_cache(maxsize=1)
def load(name):
    """Shuffled rows and labels."""
    X, y = SETS[name]()
    order = np.random.default_rng(1).permutation(len(X))[: TRAINING + VALIDATION + TEST]
    return X[order], y[order]


def ridge(Z, targets, penalties):
    """Weights and intercepts for every penalty, and seconds: those of the sums and of one solution."""
    begun = time.process_time()
    means, offsets = Z.mean(0, dtype=np.float64), targets.mean(0)
    gram = scipy.linalg.blas.ssyrk(1.0, Z.T, lower=1).astype(np.float64)
    gram -= len(Z) * np.outer(means, means)
    moments = Z.T @ (targets - offsets).astype(np.float32)
    models, summed = [], time.process_time() - begun
    for penalty in penalties:
        begun = time.process_time()
        matrix = gram.copy()
        matrix.flat[:: len(matrix) + 1] += penalty
        factor = scipy.linalg.cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
        weights = scipy.linalg.cho_solve(factor, moments.astype(np.float64), check_finite=False)
        models.append((weights.astype(np.float32), offsets - means @ weights))
        seconds = summed + time.process_time() - begun
    return models, seconds


def measure(task, sketch, penalties=PENALTIES):
    """Errors and times of a map on one task; the penalty is the best on the validation rows."""
    begun = time.process_time()
    sketch.fit(task.parts[0])
    Z = np.ascontiguousarray(sketch.transform(task.parts[0]), np.float32)
    feature_seconds = time.process_time() - begun
    models, fit_seconds = ridge(Z, task.targets[0], penalties)
    del Z
    held_out = [np.asarray(sketch.transform(part), np.float32) for part in task.parts[1:]]
    errors = [task.error(held_out[0] @ weights + intercept, 1) for weights, intercept in models]
    best = int(np.argmin(errors))
    weights, intercept = models[best]
    some = held_out[1][:KERNEL_ROWS].astype(np.float64)
    difference = some @ some.T - task.exact_kernel
    scores = held_out[1] @ weights + intercept
    return {
        "features": held_out[1].shape[1],
        "kernel_error": float(np.linalg.norm(difference) / np.linalg.norm(task.exact_kernel)),
        "test_error": task.error(scores, 2),
        "test_errors": task.errors_of_groups(scores).tolist(),
        "validation_error": errors[best],
        "penalty": penalties[best],
        "feature_seconds": feature_seconds,
        "fit_seconds": fit_seconds,
    }


def rounded(value):
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


class Lines:
    """Results in a file, one per line, by what they are results of."""

    def __init__(self, path, keys):
        self.path, self.keys = path, keys
        lines = path.read_text().splitlines() if path.exists() else []
        self.known = {self.key(line): line for line in map(json.loads, lines)}

    def key(self, line):
        return tuple(line[name] for name in self.keys)

    def add(self, line):
        line = {name: rounded(value) for name, value in line.items()}
        self.known[self.key(line)] = line
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(json.dumps(line), flush=True)


def results():
    """Those of the seed 0, which tables and pictures show."""
    return Lines(RESULTS, ["set", "kernel", "method", "asked"])


def results_of_seeds():
    """Those of other seeds, with the errors of groups of test rows. A seed draws maps; the split is the same."""
    return Lines(RESULTS.with_name("seeds.jsonl"), ["set", "kernel", "method", "asked", "seed"])


def penalties_to_try(lines, key):
    """All of them; with more than 4096 features, whose factors take long, the one that was best with half as many."""
    name, kernel, method, size, *seed = key
    half = lines.known.get((name, kernel, method, size // 2, *seed))
    return [half["penalty"]] if size > 4096 and half else PENALTIES


def measure_all(sets, sizes, only, without, seeds, minutes):
    of_seeds, deadline = results_of_seeds(), time.monotonic() + 60 * minutes
    files = {seed: of_seeds if seed else results() for seed in seeds}
    for size, name, kernel in product(sizes, sets, KERNELS):
        task = None
        wanted = ["exact"] if size == min(SIZES) else []
        for method, seed in product([*wanted, *Task.methods(kernel)], seeds):
            if method in without or (only and method not in only) or (method == "exact" and seed):
                continue
            lines = files[seed]
            key = (name, kernel, method, 0 if method == "exact" else size, *([seed] if seed else []))
            if key in lines.known:
                continue
            if time.monotonic() > deadline:
                return
            task = task or Task(name, kernel)
            sketch = task.exact_features() if method == "exact" else task.maps(size, seed).get(method, lambda: None)()
            if sketch is None:
                continue
            result = measure(task, sketch, penalties_to_try(lines, key))
            if seed == 0:
                del result["test_errors"]
            if method == CHOSEN:
                result["chosen"] = json.loads(sketch.spec)["method"]
            lines.add(dict(zip(lines.keys, key)) | result)


# Seconds on one thread for features and fit of TRAINING rows.
BUDGETS = [0.2, 1.0, 0.05]


def plans():
    return Lines(RESULTS.with_name("plans.jsonl"), ["set", "kernel", "budget"])


def own_seconds(task, sketch):
    """Seconds for a map and a model on it by argand's own code: what a plan is about."""
    labels = np.asarray(task.labels[:TRAINING])
    numbers = task.classes is None
    begun = time.process_time()
    sketch.fit(task.parts[0])
    sums = _argand.Gram.empty(sketch.spec, "values" if numbers else "classes", 1 if numbers else task.classes)
    sums.learn(sketch._sketch, task.parts[0], labels[:, None] if numbers else labels.astype(np.uint32), 1, 0)
    sums.ridge(0.01, 1)
    return time.process_time() - begun


def plan_all(sets, minutes):
    """What a plan with labels recommends within every budget, and the test error of that."""
    lines, deadline = plans(), time.monotonic() + 60 * minutes
    for budget in BUDGETS:
        for name in sets:
            for kernel in KERNELS:
                if (name, kernel, budget) in lines.known or time.monotonic() > deadline:
                    continue
                task = Task(name, kernel)
                if task.degree:
                    of = {"degree": task.degree, "gamma": 0.5, "coef0": 0.5}
                else:
                    of = {"kernel": "gaussian", "length_scale": task.length_scale}
                begun = time.process_time()
                plan = argand.plan(
                    task.X, task.labels, **of, time_budget=budget, rows=TRAINING, random_state=0, n_jobs=1
                )
                seconds = time.process_time() - begun
                best = plan.recommended
                if best is None:
                    line = {"method": None, "test_error": None}
                else:
                    result = measure(task, best.sketch().set_params(n_jobs=1))
                    taken = result["feature_seconds"] + result["fit_seconds"]
                    line = {
                        "method": best.method,
                        "features": best.n_components,
                        "validation_error": best.validation.error if best.validation else None,
                        "test_error": result["test_error"],
                        "planned_seconds": best.total_seconds,
                        "seconds": taken,
                        "own_seconds": own_seconds(task, best.sketch().set_params(n_jobs=1)),
                    }
                lines.add({"set": name, "kernel": kernel, "budget": budget, "plan_seconds": seconds} | line)


def seconds_of(works, runs=3):
    """The shortest time of each work on one thread, in runs that take turns."""
    times = []
    for _ in range(runs):
        times.append([])
        for work in works:
            begun = time.process_time()
            work()
            times[-1].append(time.process_time() - begun)
    return np.min(times, axis=0)


def speed():
    """Maps of 20,000 rows of 784 float32 numbers on one thread, beside scikit-learn's and beside their own parts."""
    rng = np.random.default_rng(0)
    X = normalize(rng.gamma(0.3, size=(20_000, 20)) @ rng.gamma(0.3, size=(20, 784))).astype(np.float32)
    scale = 1.0
    print("| D | map | time | RBFSampler's | beside its parts |\n|---:|---|---:|---:|---:|")
    for features in (2048, 8192):
        fixed = {"gamma": 0.5 / scale**2, "n_components": features, "random_state": 0}
        sampler = RBFSampler(**fixed).fit(X)
        sums = GaussianSketch(**fixed, method=SUM, n_jobs=1).fit(X)
        sorf = GaussianSketch(**fixed, method="sorf", n_jobs=1).fit(X)
        out = np.empty((len(X), features), np.float32)
        terms = json.loads(sums.spec)["maclaurin"]["terms"]
        rate = 1 / scale**2
        parts = []
        for term in terms:
            gamma = (rate ** term["degree"] / math.factorial(term["degree"])) ** (1 / term["degree"])
            part = PolynomialSketch(
                term["degree"], gamma=gamma, n_components=term["features"], random_state=0, n_jobs=1
            ).fit(X)
            parts.append((part, np.empty((len(X), term["features"]), np.float32)))

        linear = np.empty_like(X)

        def all_parts(parts=parts, linear=linear):
            # The linear term is the rows themselves.
            np.multiply(X, 0.5, out=linear)
            for part, room in parts:
                part.transform(X, out=room)

        works = [
            lambda s=sampler: s.transform(X),
            lambda s=sums, out=out: s.transform(X, out=out),
            lambda s=sorf, out=out: s.transform(X, out=out),
            all_parts,
        ]
        rbf, sum_time, sorf_time, parts_time = seconds_of(works)
        print(f"| {features} | RBFSampler | {1e3 * rbf:.0f} ms | 1.0x | |")
        ratio = f"{sum_time / parts_time:.2f} times its {len(terms)} terms and its rows"
        print(f"| | {SUM} | {1e3 * sum_time:.0f} ms | {rbf / sum_time:.1f}x | {ratio} |")
        print(f"| | sorf | {1e3 * sorf_time:.0f} ms | {rbf / sorf_time:.1f}x | |", flush=True)
    features = 1024
    nystrom = GaussianSketch(
        0.5 / scale**2, n_components=features, method="nystrom", selection="uniform", random_state=0, n_jobs=1
    ).fit(X)
    landmarks, square = X[:features].T.copy(), rng.random((features, features)).astype(np.float32)
    out, kernels = np.empty((len(X), features), np.float32), np.empty((len(X), features), np.float32)

    def products():
        np.matmul(X, landmarks, out=kernels)
        np.matmul(kernels, square, out=out)

    time_taken, of_products = seconds_of([lambda: nystrom.transform(X, out=out), products], 3)
    share = f"{of_products / time_taken:.2f} times as fast as NumPy's two products"
    print(f"| {features} | nystrom | {1e3 * time_taken:.0f} ms | | {share} |")


def total(line):
    return line["feature_seconds"] + line["fit_seconds"]


def standard_error(line):
    """Of a test error: binomial for classes, and for numbers that of a root mean square of Gaussian errors."""
    error = line["test_error"]
    return error / (2 * TEST) ** 0.5 if line["set"] == "diamonds" else (error * (1 - error) / TEST) ** 0.5


def tables(lines):
    """Kernel error / test error / seconds, for every set and kernel a table of maps by numbers of features."""
    yield "# Every result\n\nKernel error / test error / seconds for features and fit; `kernels.md` says of what.\n"
    for name in SETS:
        for kernel in KERNELS:
            found = [line for line in lines if (line["set"], line["kernel"]) == (name, kernel)]
            if not found:
                continue
            yield f"## {name}, {kernel}\n\n| map | {' | '.join(map(str, sorted(SIZES)))} |\n|---|{'---|' * len(SIZES)}"
            for method in dict.fromkeys(line["method"] for line in found):
                cells = {line["asked"]: line for line in found if line["method"] == method}
                label = f"exact, {cells[0]['features']} features" if method == "exact" else method
                shown = [
                    cells.get(size) if method != "exact" or size != min(SIZES) else cells[0] for size in sorted(SIZES)
                ]
                texts = [
                    f"{cell['kernel_error']:.3g} / {cell['test_error']:.4f} / {total(cell):.2g}" if cell else ""
                    for cell in shown
                ]
                yield f"| {label} | {' | '.join(texts)} |"
            yield ""


def score_of_plans(lines):
    """In which cells the plan's choice is within 10 % of the best test error that was measured within the budget."""
    judged = []
    for plan in plans().known.values():
        cell = [line for line in lines if (line["set"], line["kernel"]) == (plan["set"], plan["kernel"])]
        in_time = [line for line in cell if total(line) <= plan["budget"]]
        if not in_time:
            continue
        best = min(in_time, key=lambda line: line["test_error"])
        error = plan["test_error"]
        judged.append(
            {
                "cell": f"{plan['set']}, {plan['kernel']}, {plan['budget']} s",
                "good": error is not None and error <= 1.1 * best["test_error"],
                "near": error is not None and error <= best["test_error"] + 2**0.5 * standard_error(best),
                "plan": plan,
                "best": best,
            }
        )
    return judged


def beside_fourier(lines, wanted):
    """Pairs of results at equal features: a method, and scikit-learn's random Fourier features."""
    known = {(line["set"], line["kernel"], line["method"], line["asked"]): line for line in lines}
    for (name, kernel, method, size), line in known.items():
        other = known.get((name, kernel, "sklearn RBFSampler", size))
        if method == wanted and other:
            margin = (standard_error(line) ** 2 + standard_error(other) ** 2) ** 0.5
            yield name, kernel, size, line["test_error"], other["test_error"], margin


def mean_and_standard_error(table):
    """Of differences d_sg by seeds s and groups g of test rows, as those of all seeds and rows there are.

    With d_sg = m + a_s + b_g + c_sg, S seeds and G groups, the mean of all has the variance
    var(a)/S + var(b)/G + var(c)/(SG). Mean squares have the expectations E[A] = G var(a) + var(c) between seeds,
    E[B] = S var(b) + var(c) between groups, and E[C] = var(c) of the rest: it is (A + B - C)/(SG), where no variance
    is negative. Both maps see the same rows, so what makes a row hard for both is not in the differences.
    """
    seeds, groups = table.shape
    mean, of_seeds, of_groups = table.mean(), table.mean(1), table.mean(0)
    rest = table - of_seeds[:, None] - of_groups + mean
    rest = (rest**2).sum() / ((seeds - 1) * (groups - 1))
    between = [max(groups * of_seeds.var(ddof=1), rest), max(seeds * of_groups.var(ddof=1), rest)]
    return mean, ((sum(between) - rest) / table.size) ** 0.5


def beside_fourier_over_seeds(wanted):
    """As `beside_fourier`, of the mean over all seeds but 0, by which the choice between maps was set up."""
    known = {}
    for (name, kernel, method, size, _), line in sorted(results_of_seeds().known.items()):
        known.setdefault((name, kernel, method, size), []).append(line["test_errors"])
    for name, kernel, size in product(SETS, KERNELS, sorted(SIZES)):
        ours, theirs = (known.get((name, kernel, method, size)) for method in (wanted, "sklearn RBFSampler"))
        if ours and theirs and len(ours) == len(theirs) > 1:
            ours, theirs = np.array(ours), np.array(theirs)
            _, error = mean_and_standard_error(ours - theirs)
            yield name, kernel, size, ours.mean(), theirs.mean(), error


def render():
    lines = list(results().known.values())
    RESULTS.with_name("tables.md").write_text("\n".join(tables(lines)) + "\n")
    judged = score_of_plans(lines)
    good, near = (sum(cell[key] for cell in judged) for key in ("good", "near"))
    print(
        f"plan: within 10 % of the best in {good} of {len(judged)} cells; within 10 % or one standard error in "
        f"{sum(cell['good'] or cell['near'] for cell in judged)}, near in {near}"
    )
    for cell in judged:
        if not cell["good"]:
            plan, best = cell["plan"], cell["best"]
            print(
                f"  {cell['cell']}: {plan['method']} {plan.get('features')} {plan['test_error']}, best "
                f"{best['method']} {best['features']} {best['test_error']}"
            )
    for what, key in (("the study's fit", "seconds"), ("argand's own fit", "own_seconds")):
        parts = [plan[key] / plan["budget"] for plan in plans().known.values() if key in plan]
        if parts:
            print(
                f"plan, {what}: {sum(part > 1 for part in parts)} of {len(parts)} recommendations took longer than the "
                f"budget, {np.median(parts):.2f} times it in the median and at most {max(parts):.2f} times"
            )
    for method in (SUM_FOR_LEARNING, CHOSEN, "sorf"):
        compare(f"{method}, one seed", list(beside_fourier(lines, method)))
    for method in (CHOSEN, "sorf"):
        compare(f"{method}, means over seeds", list(beside_fourier_over_seeds(method)))


def compare(what, pairs):
    """Prints in how many pairs of results the first one is worse, and which."""
    away = np.array([(error - other) / margin for *_, error, other, margin in pairs])
    print(
        f"{what}: of {len(pairs)} cells at equal features, worse than random Fourier features by more than one "
        f"standard error in {(away > 1).sum()}, by two in {(away > 2).sum()}; better in {(away < -1).sum()} and "
        f"{(away < -2).sum()}; lower in {(away < 0).sum()}"
    )
    for name, kernel, size, error, other, margin in pairs:
        if error > other + margin:
            print(f"  {name}, {kernel}, {size}: {error:.4f} beside {other:.4f}, standard error {margin:.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=["measure", "plan", "render", "speed"])
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)))
    parser.add_argument("--only", default="", help="the methods to measure")
    parser.add_argument("--without", default="", help="the methods to leave out")
    parser.add_argument("--seeds", default="0", help="what to draw maps with")
    parser.add_argument("--minutes", type=float, default=np.inf)
    arguments = parser.parse_args()
    sets = arguments.sets.split(",")
    with threadpool_limits(1):
        match arguments.work:
            case "measure":
                sizes, seeds = ([*map(int, numbers.split(","))] for numbers in (arguments.sizes, arguments.seeds))
                only, without = ([*filter(None, names.split(","))] for names in (arguments.only, arguments.without))
                measure_all(sets, sizes, only, without, seeds, arguments.minutes)
            case "plan":
                plan_all(sets, arguments.minutes)
            case "render":
                render()
            case "speed":
                speed()


if __name__ == "__main__":
    main()
