"""Sketches as PyTorch layers, with every kind of gradient, on the processor and on NVIDIA GPUs.

>>> import torch
>>> from argand.torch import PolynomialSketch
>>> model = torch.nn.Sequential(PolynomialSketch(784, 4096, degree=2, seed=0), torch.nn.Linear(4096, 10))
>>> model(torch.randn(32, 784)).shape
torch.Size([32, 10])

Importing ``argand`` does not import PyTorch; importing ``argand.torch`` does.
"""

from ._gradients import AttachedSketches, GradientSketch
from ._layers import PolynomialSketch, TensorProductSketch, polynomial_sketch, tensor_product_sketch
from ._pooling import CompactBilinearPooling, signed_sqrt

__all__ = [
    "AttachedSketches",
    "CompactBilinearPooling",
    "GradientSketch",
    "PolynomialSketch",
    "TensorProductSketch",
    "polynomial_sketch",
    "signed_sqrt",
    "tensor_product_sketch",
]
