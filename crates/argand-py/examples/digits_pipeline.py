"""A classifier of handwritten digits: replace PolynomialCountSketch by PolynomialSketch in a pipeline."""

import time

import numpy as np
from argand import PolynomialSketch, theory
from sklearn.datasets import load_digits
from sklearn.kernel_approximation import PolynomialCountSketch
from sklearn.linear_model import RidgeClassifier
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import normalize

X, y = load_digits(return_X_y=True)
X = normalize(X)
train_X, test_X, train_y, test_y = train_test_split(X, y, random_state=0)

errors = {}
print("average of 10 seeds    accuracy  kernel error  features")
for sketch in (PolynomialCountSketch, PolynomialSketch):
    scores, kernel_errors, times = [], [], []
    for seed in range(10):
        pipeline = make_pipeline(sketch(degree=3, n_components=256, random_state=seed), RidgeClassifier(alpha=1e-3))
        scores.append(pipeline.fit(train_X, train_y).score(test_X, test_y))
        begun = time.perf_counter()
        Z = pipeline[0].transform(X)
        times.append(time.perf_counter() - begun)
        kernel_errors.append(theory.kernel_error(X, Z, degree=3))
    errors[sketch] = np.mean(kernel_errors)
    print(f"{sketch.__name__:<22} {np.mean(scores):>8.3f} {errors[sketch]:>13.3f} {1e3 * np.median(times):>6.1f} ms")
    assert np.mean(scores) > 0.95

assert errors[PolynomialSketch] < errors[PolynomialCountSketch]
