"""Without PyTorch or Dask, their parts of the package have no doctests; their tests say that they are skipped."""

import os
from importlib.util import find_spec

collect_ignore = [f"python/argand/{library}" for library in ("torch", "dask") if find_spec(library) is None]
if find_spec("torch") is None:
    collect_ignore += [f"python/argand/attribution/{name}.py" for name in ("_layers", "_store", "_writer")]

# Some virtual machines list AMX among their instructions and kill programs that use it, as PyTorch does for bfloat16.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")
