"""Times scikit-learn's PolynomialCountSketch: reads "rows columns degree features" lines, answers milliseconds."""

import sys
import time

import numpy as np
from sklearn.kernel_approximation import PolynomialCountSketch

for line in sys.stdin:
    rows, columns, degree, features = map(int, line.split())
    x = np.random.default_rng(0).random((rows, columns), dtype=np.float32) / 8
    sketch = PolynomialCountSketch(degree=degree, n_components=features, random_state=0).fit(x)
    best, begun, runs = float("inf"), time.perf_counter(), 0
    while runs < 3 or time.perf_counter() - begun < 0.4:
        start = time.perf_counter()
        sketch.transform(x)
        best = min(best, time.perf_counter() - start)
        runs += 1
    print(1e3 * best, flush=True)
