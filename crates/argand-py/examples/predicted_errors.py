"""
Errors known beforehand
=======================

Variances have closed forms, so that the error of a kernel matrix is predicted before anything is
sketched (lines). Sketches that are then drawn keep it (dots, five seeds each).
"""

import matplotlib.pyplot as plt
import numpy as np
from argand import PolynomialSketch, theory
from sklearn.datasets import load_digits
from sklearn.preprocessing import normalize

X = normalize(load_digits().data[:400])
sizes = [64, 128, 256, 512, 1024, 2048]
ax = plt.subplots(figsize=(7, 4), layout="constrained")[1]
for place, method in enumerate(["tensor-sketch", "product-srht", "ctr-product-srht"]):
    predicted, made = [], []
    for size in sizes:
        sketch = PolynomialSketch(3, gamma=0.5, coef0=0.5, n_components=size, method=method)
        predicted.append(sketch.expected_error(X))
        seeds = [sketch.set_params(random_state=seed).fit_transform(X) for seed in range(5)]
        made.append([theory.kernel_error(X, Z, degree=3, gamma=0.5, coef0=0.5) for Z in seeds])
    ax.plot(sizes, predicted, color=f"C{place}", label=method)
    ax.plot(sizes, made, ".", color=f"C{place}")
    print(f"{method:<18} predicted {predicted[-1]:.4f}, made {np.mean(made[-1]):.4f} with {sizes[-1]} features")
    assert np.mean(made[-1]) < 1.2 * predicted[-1]
ax.set(xscale="log", yscale="log", xlabel="features", ylabel="relative error of the kernel matrix")
ax.set_xticks(sizes, sizes)
ax.legend(frameon=False)
