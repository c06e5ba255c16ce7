"""
One import replaced
===================

A classifier of handwritten digits, once with scikit-learn's ``PolynomialCountSketch`` and once
with ``PolynomialSketch``.
"""

import time

import matplotlib.pyplot as plt
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
    errors[sketch.__name__] = kernel_errors
    accuracy, error, milliseconds = np.mean(scores), np.mean(kernel_errors), 1e3 * np.median(times)
    print(f"{sketch.__name__:<22} {accuracy:>8.3f} {error:>13.3f} {milliseconds:>6.1f} ms")
    assert np.mean(scores) > 0.95

assert np.mean(errors["PolynomialSketch"]) < np.mean(errors["PolynomialCountSketch"])

# %%
# The error of the kernel matrix, one dot for each seed.

ax = plt.subplots(figsize=(6, 2.5), layout="constrained")[1]
for place, found in enumerate(errors.values()):
    ax.plot(found, np.full(10, place), "o", alpha=0.6)
ax.set(yticks=[0, 1], yticklabels=list(errors), ylim=(-0.5, 1.5), xlabel="relative error of the kernel matrix")
ax.set_xlim(left=0)
