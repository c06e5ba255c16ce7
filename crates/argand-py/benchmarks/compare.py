"""PolynomialSketch beside scikit-learn's PolynomialCountSketch: times of transform and errors of the kernel matrix.

Prints a Markdown table. Times are the best of several runs that take turns, on one thread and with the result
allocated anew, as PolynomialCountSketch does; errors are averages of five seeds on 1,000 rows. Needs about a minute.
"""

import time

import numpy as np
import scipy.sparse as sp
from argand import PolynomialSketch, theory
from sklearn.kernel_approximation import PolynomialCountSketch
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

rng = np.random.default_rng(0)


def dense(rows, columns):
    """Non-negative rows of unit norm that mix twenty patterns, as images do."""
    return normalize(rng.gamma(0.3, size=(rows, 20)) @ rng.gamma(0.3, size=(20, columns)))


def sparse(rows, columns):
    """Rows of unit norm with up to 100 non-zeros, some columns much more frequent than others, as in texts."""
    indices = np.minimum(50 * rng.pareto(1.0, (rows, 100)), columns - 1).astype(np.int32).ravel()
    table = sp.csr_matrix((rng.random(indices.size), indices, np.arange(0, indices.size + 1, 100)), (rows, columns))
    table.sum_duplicates()
    return normalize(table)


WIDE, NARROW, SPARSE = dense(10_000, 784), dense(10_000, 64), sparse(2000, 10_000)
CASES = [
    ("dense float32", WIDE.astype(np.float32), 3, 4096, ["ctr-product-srht"]),
    ("dense float64", WIDE, 3, 4096, ["ctr-product-srht"]),
    ("dense float64", NARROW, 2, 512, ["ctr-product-srht"]),
    ("CSR float64", SPARSE, 2, 1024, ["tensor-sketch", "ctr-product-srht"]),
]


def seconds(sketch, X):
    begun = time.perf_counter()
    sketch.transform(X)
    return time.perf_counter() - begun


def kernel_error(make, X, degree):
    X = X[:1000]
    return np.mean([theory.kernel_error(X, make(seed).fit(X).transform(X), degree=degree) for seed in range(5)])


def main():
    print("| table | rows x d, p, D | sketch | time | faster | kernel error |")
    print("|---|---|---|---:|---:|---:|")
    for name, X, degree, n_components, methods in CASES:
        shared = {"degree": degree, "n_components": n_components}
        makers = {"PolynomialCountSketch": lambda seed, s=shared: PolynomialCountSketch(**s, random_state=seed)}
        for method in methods:
            makers[method] = lambda seed, s=shared, m=method: PolynomialSketch(
                **s, method=m, random_state=seed, n_jobs=1
            )
        sketches = [make(0).fit(X) for make in makers.values()]
        runs, begun = [], time.perf_counter()
        with threadpool_limits(1):
            while len(runs) < 2 or (time.perf_counter() - begun < 5 and len(runs) < 10):
                runs.append([seconds(sketch, X) for sketch in sketches])
        best = np.min(runs, axis=0)
        for (sketch, make), time_taken in zip(makers.items(), best):
            faster = "" if sketch == "PolynomialCountSketch" else f"{best[0] / time_taken:.0f}x"
            case = (name, f"{X.shape[0]} x {X.shape[1]}, {degree}, {n_components}") if not faster else ("", "")
            error = kernel_error(make, X, degree)
            print(
                f"| {case[0]} | {case[1]} | {sketch} | {1e3 * time_taken:.0f} ms | {faster} | {error:.3f} |", flush=True
            )


if __name__ == "__main__":
    main()
