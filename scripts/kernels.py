"""Compiles the CUDA kernels to PTX with NVRTC, which needs no GPU: `make kernels`.

NVRTC comes from the PyPI package `nvidia-cuda-nvrtc-cu12` of version 12.0, whose PTX every driver since CUDA 12.0 accepts. With --check, compares
the result with the committed files instead of writing them.
"""

import ctypes
import importlib.util
import pathlib
import sys

KERNELS = pathlib.Path(__file__).resolve().parent.parent / "crates/argand-cuda/kernels"

OPTIONS = ["--std=c++17"]

# Products and sums are rounded separately, as on the processor, except in files that need not agree to the last bit.
FUSED_MULTIPLY_ADD = {
    "steps": "false",
    "srht": "false",
    "srht_adjoint": "true",
    "tensor_sketch": "true",
    "algebra": "true",
    "parts": "true",
}

# Every file is compiled once for each of its variants, into a module of its own: a sketch loads only what it needs.
VARIANTS = {
    "steps": {"f32": "REAL=float", "f64": "REAL=double"},
    "srht": {str(log): f"LOG={log}" for log in range(5, 12)},
    "srht_adjoint": {str(log): f"LOG={log}" for log in range(5, 12)},
    "tensor_sketch": {str(log): f"LOG={log}" for log in range(6, 14)},
    "algebra": {"f64": "REAL=double"},
    "parts": {"f32": "REAL=float"},
}

# The oldest GPUs: Turing; Ampere for what converts to bfloat16.
ARCHITECTURES = {
    "steps": "compute_75",
    "srht": "compute_80",
    "srht_adjoint": "compute_80",
    "tensor_sketch": "compute_80",
    "algebra": "compute_75",
    "parts": "compute_75",
}


def nvrtc() -> ctypes.CDLL:
    """Loads NVRTC from its Python package."""
    package = importlib.util.find_spec("nvidia.cuda_nvrtc")
    if package is None:
        sys.exit("kernels: nvidia-cuda-nvrtc-cu12 is not installed; run `make kernels`")
    library = pathlib.Path(next(iter(package.submodule_search_locations))) / "lib"
    ctypes.CDLL(str(next(library.glob("libnvrtc-builtins.so.*"))), mode=ctypes.RTLD_GLOBAL)
    return ctypes.CDLL(str(library / "libnvrtc.so.12"))


def compile_ptx(library: ctypes.CDLL, source: pathlib.Path, definition: str) -> str:
    """Compiles one file; prints the compiler's messages and exits if it fails."""
    headers = sorted(KERNELS.glob("*.cuh"))
    texts = (ctypes.c_char_p * len(headers))(*[header.read_bytes() for header in headers])
    names = (ctypes.c_char_p * len(headers))(*[header.name.encode() for header in headers])
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(
        ctypes.byref(program), source.read_bytes(), source.name.encode(), len(headers), texts, names
    )
    given = [
        *OPTIONS,
        f"--fmad={FUSED_MULTIPLY_ADD[source.stem]}",
        f"--gpu-architecture={ARCHITECTURES[source.stem]}",
        f"--define-macro={definition}",
    ]
    options = (ctypes.c_char_p * len(given))(*[option.encode() for option in given])
    failed = library.nvrtcCompileProgram(program, len(given), options)
    size = ctypes.c_size_t()
    library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    library.nvrtcGetProgramLog(program, log)
    if failed or log.value:
        print(log.value.decode(), file=sys.stderr)
    if failed:
        sys.exit(f"kernels: {source.name} does not compile")
    library.nvrtcGetPTXSize(program, ctypes.byref(size))
    ptx = ctypes.create_string_buffer(size.value)
    library.nvrtcGetPTX(program, ptx)
    return ptx.value.decode()


def main() -> None:
    """Compiles all kernels."""
    check = sys.argv[1:] == ["--check"]
    library = nvrtc()
    stale = []
    for stem, variants in VARIANTS.items():
        for variant, definition in variants.items():
            target = KERNELS / "ptx" / f"{stem}_{variant}.ptx"
            ptx = compile_ptx(library, KERNELS / f"{stem}.cu", definition)
            if check:
                if not target.exists() or target.read_text() != ptx:
                    stale.append(target.name)
            else:
                target.parent.mkdir(exist_ok=True)
                target.write_text(ptx)
                print(f"{target.name}: {len(ptx) // 1024} KiB, {ptx.count('.entry')} kernels")
    if stale:
        sys.exit(f"kernels: {', '.join(stale)} differ from their source; run `make kernels` and commit the result")


if __name__ == "__main__":
    main()
