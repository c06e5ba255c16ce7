"""Without PyTorch, its part of the package is not looked at for doctests; its tests say that they are skipped."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["python/argand/torch"]
