"""Random features for polynomial kernels and tensor products, as scikit-learn estimators.

>>> import argand, numpy as np
>>> X = np.random.default_rng(0).random((100, 20))
>>> sketch = argand.PolynomialSketch(degree=3, n_components=1024, random_state=0).fit(X)
>>> Z = sketch.transform(X)  # Z @ Z.T approximates sketch.kernel(X)
>>> Z.shape
(100, 1024)

The sketches are those of Wacker, Ohana and Filippone, "Complex-to-Real Sketches for Tensor Products with Applications
to the Polynomial Kernel" (AISTATS 2023), called *the paper* throughout.
"""

from importlib.metadata import version

from . import theory
from ._kernel_sketches import DotProductSketch, GaussianSketch, NystromSketch
from ._models import GPClassifier, GPRegressor, Ridge, RidgeClassifier
from ._plan import Candidate, Plan, plan
from ._sketches import PolynomialSketch, SphericalSketch, TensorProductSketch
from .theory import variance

__version__ = version("argand")
__all__ = [
    "Candidate",
    "DotProductSketch",
    "GPClassifier",
    "GPRegressor",
    "GaussianSketch",
    "NystromSketch",
    "Plan",
    "PolynomialSketch",
    "Ridge",
    "RidgeClassifier",
    "SphericalSketch",
    "TensorProductSketch",
    "plan",
    "theory",
    "variance",
]
