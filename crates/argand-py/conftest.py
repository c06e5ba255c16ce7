"""Without PyTorch or Dask, their parts of the package have no doctests; their tests say that they are skipped."""

from importlib.util import find_spec

collect_ignore = [f"python/argand/{library}" for library in ("torch", "dask") if find_spec(library) is None]
if find_spec("torch") is None:
    collect_ignore.append("python/argand/attribution/_store.py")
