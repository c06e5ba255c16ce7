"""GaussianSketch and NystromSketch beside scikit-learn, in one run. Prints Markdown tables.

``python kernels.py``         times of transform on one thread, of 20,000 rows of 784 columns in float32; a few minutes.
``python kernels.py FOLDER``  errors of the kernel matrix and of ridge classification on the Letter, MNIST and CIFAR-10
                              features in FOLDER; about half an hour.
"""

import gzip
import sys
import time
from pathlib import Path

import numpy as np
from argand import GaussianSketch, NystromSketch
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.metrics.pairwise import euclidean_distances, rbf_kernel
from threadpoolctl import threadpool_limits

SEEDS = 3


def speed():
    """Times of transform, the best of runs that take turns."""
    rng = np.random.default_rng(0)
    X = (rng.gamma(0.3, size=(20_000, 20)) @ rng.gamma(0.3, size=(20, 784))).astype(np.float32)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    gamma = 1 / np.median(euclidean_distances(X[:1000], squared=True))
    print("| D | map | time | beside RBFSampler |")
    print("|---:|---|---:|---:|")
    for D in (2048, 8192):
        shared = {"gamma": gamma, "n_components": D, "random_state": 0}
        maps = {"RBFSampler": RBFSampler(**shared)}
        for method in ("sorf", "maclaurin-ctr-product-srht", "orf"):
            maps[method] = GaussianSketch(**shared, method=method, n_jobs=1)
        best = times(maps, X)
        for name, seconds in best.items():
            print(f"| {D} | {name} | {1000 * seconds:.0f} ms | {best['RBFSampler'] / seconds:.1f}x |", flush=True)
    D = 1024
    shared = {"gamma": gamma, "n_components": D, "random_state": 0}
    maps = {"Nystroem": Nystroem(**shared), "NystromSketch": NystromSketch(**shared, n_jobs=1)}
    best = times(maps, X)
    Z, W = X[:D].copy(), rng.normal(size=(D, D)).astype(np.float32)
    with threadpool_limits(1):
        products = min(timed(lambda: (X @ Z.T) @ W) for _ in range(3))
    for name, seconds in {**best, "its two matrix products in NumPy": products}.items():
        print(f"| {D} | {name} | {1000 * seconds:.0f} ms | {products / seconds:.2f} of the products |")


def timed(work):
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def times(maps, X):
    best = dict.fromkeys(maps, np.inf)
    with threadpool_limits(1):
        fitted = {name: features.fit(X) for name, features in maps.items()}
        for _ in range(3):
            for name, features in fitted.items():
                best[name] = min(best[name], timed(lambda features=features: features.transform(X)))
    return best


def letter(folder):
    lines = [line.split(",") for line in (folder / "letter/letter-recognition.data").read_text().split()]
    y = np.array([ord(line[0]) - 65 for line in lines])
    X = np.array([line[1:] for line in lines], np.float32)
    return X, y, 15_000


def mnist(folder):
    def read(name, offset):
        return np.frombuffer(gzip.decompress((folder / "mnist" / name).read_bytes()), np.uint8, offset=offset)

    images = [read(f"{part}-images-idx3-ubyte.gz", 16).reshape(-1, 784) for part in ("train", "t10k")]
    labels = [read(f"{part}-labels-idx1-ubyte.gz", 8) for part in ("train", "t10k")]
    return np.concatenate(images).astype(np.float32) / 255, np.concatenate(labels), 60_000


def cifar(folder):
    folder = folder / "cifar10-conv"
    parts = [[np.load(path) for path in sorted(folder.glob(f"*{part}*.npy"))] for part in ("train", "test")]
    tables = [next(a for a in part if a.ndim == 2) for part in parts]
    labels = [next(a for a in part if a.ndim == 1) for part in parts]
    return np.concatenate(tables).astype(np.float32), np.concatenate(labels), 50_000


def study(folder):
    """Kernel error on 1,000 test rows, error of ridge on all of them, and seconds for all features and the fit."""
    print("| data | length scale | D | map | kernel error | test error | seconds |")
    print("|---|---|---:|---|---:|---:|---:|")
    rng = np.random.default_rng(1)
    for name, load in (("Letter", letter), ("MNIST", mnist), ("CIFAR-10 conv", cifar)):
        X, y, split = load(folder)
        train = rng.choice(split, 8000, replace=False)
        test = split + rng.choice(len(X) - split, 2500, replace=False)
        median = np.sqrt(np.median(euclidean_distances(X[train[:1000]], squared=True)))
        for width in (1.0, 0.5):
            gamma = 0.5 / (width * median) ** 2
            K = rbf_kernel(X[test[:1000]], gamma=gamma)
            for D in (512, 2048):
                for label, make in makers(gamma, D).items():
                    results = np.array([measure(make(seed), X, y, train, test, K) for seed in range(SEEDS)])
                    error, wrong, seconds = results.mean(axis=0)
                    spread = results[:, 1].std(ddof=1) / SEEDS**0.5
                    row = f"{error:.4f} | {wrong:.3f} ± {spread:.3f} | {seconds:.2f}"
                    print(f"| {name} | {width} median | {D} | {label} | {row} |", flush=True)


def makers(gamma, D):
    ours = {
        method: lambda seed, m=method: GaussianSketch(gamma, n_components=D, method=m, random_state=seed)
        for method in ("rff", "orf", "sorf", "maclaurin-ctr-product-srht", "nystrom")
    }
    ours["RBFSampler"] = lambda seed: RBFSampler(gamma=gamma, n_components=D, random_state=seed)
    if D <= 512:
        ours["Nystroem"] = lambda seed: Nystroem(gamma=gamma, n_components=D, random_state=seed)
    return ours


def measure(features, X, y, train, test, K):
    begun = time.perf_counter()
    Z = features.fit(X[train]).transform(X[train]).astype(np.float32)
    Y = np.where(y[train][:, None] == np.unique(y), 1, -1).astype(np.float32)
    means = Y.mean(axis=0)
    G, B = (Z.T @ Z).astype(np.float64), (Z.T @ (Y - means)).astype(np.float64)
    held = Z_test = features.transform(X[test]).astype(np.float32)
    # The penalty is chosen on a part of the training rows that is left out of the fit.
    part = Z[-1500:]
    inner = G - part.T.astype(np.float64) @ part, B - part.T @ (Y[-1500:] - means)
    truth = np.argmax(Y[-1500:], axis=1)
    scores = {}
    for penalty in (1e-4, 1e-2, 1):
        w = np.linalg.solve(inner[0] + penalty * np.eye(len(G)), inner[1])
        scores[penalty] = np.mean(np.argmax(part @ w + means, axis=1) != truth)
    penalty = min(scores, key=scores.get)
    w = np.linalg.solve(G + penalty * np.eye(len(G)), B)
    wrong = np.mean(np.unique(y)[np.argmax(Z_test @ w + means, axis=1)] != y[test])
    seconds = time.perf_counter() - begun
    few = held[:1000].astype(np.float64)
    return np.linalg.norm(few @ few.T - K) / np.linalg.norm(K), wrong, seconds


if __name__ == "__main__":
    study(Path(sys.argv[1])) if len(sys.argv) > 1 else speed()
