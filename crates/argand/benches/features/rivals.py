"""Times what Argand is compared with, one thread, f32: reads "name rows columns degree features" lines, answers milliseconds.

numpy and numpy-ctr are what anyone would write for dense projections: one matrix product per factor, multiplied in place.
"""

import sys
import time

import numpy as np
from sklearn.kernel_approximation import PolynomialCountSketch


def sklearn(x, degree, features):
    sketch = PolynomialCountSketch(degree=degree, n_components=features, random_state=0).fit(x)
    return lambda: sketch.transform(x)


def numpy(x, degree, features):
    weights = [np.random.default_rng(i).standard_normal((x.shape[1], features), dtype=np.float32) for i in range(degree)]
    weights[0] /= np.float32(features**0.5)
    out, factor = np.empty((2, len(x), features), dtype=np.float32)

    def run():
        np.matmul(x, weights[0], out=out)
        for w in weights[1:]:
            np.matmul(x, w, out=factor)
            np.multiply(out, factor, out=out)

    return run


def numpy_ctr(x, degree, features):
    """Columns [Re W, Im W], so that one real product gives both parts."""
    weights = [np.random.default_rng(i).standard_normal((x.shape[1], features), dtype=np.float32) for i in range(degree)]
    weights[0] /= np.float32(features**0.5)
    out, factor = np.empty((2, len(x), features), dtype=np.float32)
    m = features // 2
    re, im, factor_re, factor_im = out[:, :m], out[:, m:], factor[:, :m], factor[:, m:]
    cross, other = np.empty((2, len(x), m), dtype=np.float32)

    def run():
        np.matmul(x, weights[0], out=out)
        for w in weights[1:]:
            np.matmul(x, w, out=factor)
            np.multiply(re, factor_im, out=cross)
            np.multiply(im, factor_im, out=other)
            np.multiply(re, factor_re, out=re)
            np.subtract(re, other, out=re)
            np.multiply(im, factor_re, out=im)
            np.add(im, cross, out=im)

    return run


def gemm(x, _, features):
    """One matrix product."""
    w = np.random.default_rng(0).random((x.shape[1], features), dtype=np.float32)
    out = np.empty((len(x), features), dtype=np.float32)
    return lambda: np.matmul(x, w, out=out)


rivals = {"sklearn": sklearn, "sklearn-processor": sklearn, "numpy": numpy, "numpy-ctr": numpy_ctr, "gemm": gemm}
for line in sys.stdin:
    name, *sizes = line.split()
    rows, columns, degree, features = map(int, sizes)
    x = np.random.default_rng(0).random((rows, columns), dtype=np.float32) / 8
    run = rivals[name](x, degree, features)
    run()
    clock = time.process_time if name.endswith("processor") else time.perf_counter
    best, begun, runs = float("inf"), time.perf_counter(), 0
    while runs < 3 or time.perf_counter() - begun < 0.4:
        start = clock()
        run()
        best = min(best, clock() - start)
        runs += 1
    print(1e3 * best, flush=True)
