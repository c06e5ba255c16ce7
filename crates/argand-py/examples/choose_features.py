"""How many features? Predict the error of every method on your rows before anything is sketched."""

import argand
import numpy as np
from sklearn.datasets import load_digits
from sklearn.preprocessing import normalize

X = normalize(load_digits().data)
plan = argand.plan(X, degree=3, gamma=0.5, coef0=0.5, target_error=0.05, random_state=0)
print(plan)

sketch = plan.best.fit(X)
Z = sketch.transform(X)
error = argand.theory.kernel_error(X, Z, degree=3, gamma=0.5, coef0=0.5)
print(
    f"\n{plan.recommended.method} with {Z.shape[1]} features: predicted {plan.recommended.error:.4f}, made {error:.4f}"
)
assert error < 0.05

# Twice the error of a sketch takes about a quarter of the features.
many, few = (argand.PolynomialSketch(3, gamma=0.5, coef0=0.5, n_components=features) for features in (2048, 512))
assert np.isclose(few.expected_error(X), 2 * many.expected_error(X), rtol=0.2)

try:
    plan.plot().figure.savefig("plan.svg")
    print("plan.svg has the picture")
except ModuleNotFoundError:
    print("With matplotlib, plan.plot() draws the candidates")
