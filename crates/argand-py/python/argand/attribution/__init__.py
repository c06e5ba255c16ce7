"""Data attribution: which training examples made a model do this?

A *store* is a folder with a sketch of every example's gradient. :class:`GradientStore` records one while a PyTorch
model runs backward passes; :func:`attribute` scores the examples of a store for the queries of another, and
:func:`score_matrix` returns all scores. Recording needs PyTorch; scoring does not.
"""

from __future__ import annotations

from typing import Any

from ._files import merge
from ._scores import Ranking, Scores, attribute, score_matrix
from ._theory import features_for_error, gradient_variance

__all__ = [
    "GradientStore",
    "Ranking",
    "Scores",
    "attribute",
    "features_for_error",
    "gradient_variance",
    "merge",
    "score_matrix",
]


def __getattr__(name: str) -> Any:
    # PyTorch is imported when it is needed.
    if name == "GradientStore":
        from ._store import GradientStore

        return GradientStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
