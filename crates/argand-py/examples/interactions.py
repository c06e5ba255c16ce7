"""
What a linear model cannot see
==============================

The class of a point depends on the product of its coordinates. A linear model on the coordinates is at a loss; on
features of degree 2 it draws the right border. (Two columns have six monomials: here exact features would do, too.)
"""

import matplotlib.pyplot as plt
import numpy as np
from argand import PolynomialSketch
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import make_pipeline

rng = np.random.default_rng(0)
X = rng.uniform(-1, 1, (1000, 2))
y = X[:, 0] * X[:, 1] + 0.1 * rng.standard_normal(1000) > 0

models = {
    "the coordinates": RidgeClassifier(),
    "100 features of degree 2": make_pipeline(
        PolynomialSketch(degree=2, coef0=1.0, n_components=100, random_state=0), RidgeClassifier(alpha=0.1)
    ),
}
side = np.linspace(-1, 1, 200)
grid = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
_, axes = plt.subplots(1, 2, figsize=(8, 4), layout="constrained", sharey=True)
scores = {}
for ax, (name, model) in zip(axes, models.items()):
    scores[name] = model.fit(X[:500], y[:500]).score(X[500:], y[500:])
    ax.contourf(
        side, side, model.decision_function(grid).reshape(200, 200), levels=[-9, 0, 9], colors=["C1", "C0"], alpha=0.3
    )
    ax.scatter(*X[500:].T, c=np.where(y[500:], "C0", "C1"), s=6)
    ax.set(title=f"{name}: {100 * scores[name]:.0f} % right", aspect="equal", xticks=[-1, 0, 1], yticks=[-1, 0, 1])
print(scores)
assert scores["the coordinates"] < 0.65 and scores["100 features of degree 2"] > 0.85
