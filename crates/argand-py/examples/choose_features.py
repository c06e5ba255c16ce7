"""
How many features?
==================

Predict the error of every method on your rows before anything is sketched.
"""

import argand
import numpy as np
from sklearn.datasets import load_digits
from sklearn.preprocessing import normalize

X = normalize(load_digits().data)
plan = argand.plan(X, degree=3, gamma=0.5, coef0=0.5, target_error=0.05, random_state=0)
print(plan)
plan.plot()

# %%
# The recommended sketch keeps what was predicted.

sketch = plan.best.fit(X)
Z = sketch.transform(X)
error = argand.theory.kernel_error(X, Z, degree=3, gamma=0.5, coef0=0.5)
print(f"{plan.recommended.method} with {Z.shape[1]} features: predicted {plan.recommended.error:.4f}, made {error:.4f}")
assert error < 0.05

# %%
# Twice the error of a sketch takes about a quarter of the features.
many, few = (argand.PolynomialSketch(3, gamma=0.5, coef0=0.5, n_components=features) for features in (2048, 512))
assert np.isclose(few.expected_error(X), 2 * many.expected_error(X), rtol=0.2)
print(f"predicted for 512 features: {few.expected_error(X):.4f}, for 2048: {many.expected_error(X):.4f}")
