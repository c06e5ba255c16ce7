"""
Regression that knows its limits
================================

A Gaussian process on a sketch gives a standard deviation with every prediction. Noise and scale are
learnt from the rows.
"""

import matplotlib.pyplot as plt
import numpy as np
from argand import GPRegressor

rng = np.random.default_rng(0)
x = rng.uniform(-1, 0.5, 200)  # nothing is seen on the right
y = np.sin(5 * x) + 0.1 * rng.standard_normal(200)
model = GPRegressor(degree=9, coef0=1.0, n_components=256, random_state=0).fit(x[:, None], y)
print(f"noise: {model.alpha_**0.5:.3f} (0.1 was added)")
assert 0.08 < model.alpha_**0.5 < 0.12

line = np.linspace(-1, 1, 200)
mean, std = model.predict(line[:, None], return_std=True)
ax = plt.subplots(figsize=(7, 3.5), layout="constrained")[1]
ax.plot(x, y, ".", color="gray", label="rows")
ax.plot(line, mean, label="prediction")
ax.fill_between(line, mean - 2 * std, mean + 2 * std, alpha=0.3, label="two standard deviations")
ax.set(ylim=(-3, 3), xlabel="x", ylabel="y")
ax.legend(frameon=False)
