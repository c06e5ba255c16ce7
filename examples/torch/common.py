"""What the three studies share: their data, clocks, tables and curves."""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import time
from pathlib import Path

import numpy as np
import torch


def arguments(description: str, curves: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--data", type=Path, help="folder of the data sets; by default $ARGAND_DATA/data or data/")
    parser.add_argument("--csv", type=Path, default=Path(curves), help="where to write the curves")
    parser.add_argument("--small", action="store_true", help="a reduced size, for a look on any computer")
    return parser


def data_set(options: argparse.Namespace, name: str) -> Path:
    """The folder of a data set."""
    root = Path(__file__).parents[2]
    places = [root / "data", root.parent / "shared/data"]
    if "ARGAND_DATA" in os.environ:
        places.insert(0, Path(os.environ["ARGAND_DATA"]) / "data")
    if options.data is not None:
        places.insert(0, options.data)
    for place in places:
        if (place / name).is_dir():
            return place / name
    raise SystemExit(f"{name}: not found in {', '.join(map(str, places))}; `make data` downloads it, or pass --data")


def idx(folder: Path, name: str) -> torch.Tensor:
    """The numbers in a file of MNIST's format, in gzip or not."""
    path = folder / name
    raw = path.read_bytes() if path.exists() else gzip.decompress((folder / f"{name}.gz").read_bytes())
    dimensions = raw[3]
    shape = np.frombuffer(raw, ">i4", dimensions, 4)
    return torch.from_numpy(np.frombuffer(raw, np.uint8, offset=4 + 4 * dimensions).reshape(shape).copy())


def images(folder: Path, part: str, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The images of MNIST or Fashion-MNIST, with numbers of mean 0 and variance about 1, and their classes."""
    pixels = idx(folder, f"{part}-images-idx3-ubyte").to(device).float().div(255)
    return (pixels[:, None] - 0.3) / 0.33, idx(folder, f"{part}-labels-idx1-ubyte").to(device).long()


def now(device: str) -> float:
    """The time when all work so far is done."""
    if device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter()


class Memory:
    """The most memory that was used on a GPU, in MB: PyTorch's, and what argand's kernels take beside it."""

    def __init__(self, device: str) -> None:
        self.device = device
        if device != "cpu":
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            self.before, self.others = torch.cuda.memory_allocated(), self._beside()

    def _beside(self) -> int:
        free, total = torch.cuda.mem_get_info()
        return total - free - torch.cuda.memory_reserved()

    def used(self) -> tuple[str, str]:
        if self.device == "cpu":
            return "–", "–"
        torch.cuda.synchronize()
        own, beside = torch.cuda.max_memory_allocated() - self.before, self._beside() - self.others
        return f"{own / 1e6:.0f}", f"{max(0, beside) / 1e6:.0f}"


def print_table(header: list[str], rows: list[list[str]]) -> None:
    """Markdown: words to the left, numbers to the right."""
    print("\n| " + " | ".join(header) + " |")
    print("|" + "|".join(["---"] + ["---:"] * (len(header) - 1)) + "|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def machine(device: str) -> str:
    name = torch.cuda.get_device_name() if device != "cpu" else f"{torch.get_num_threads()} threads of a processor"
    return f"{name}, PyTorch {torch.__version__}"


def save(path: Path, header: list[str], rows: list[list[str]]) -> None:
    """Curves as CSV; `make figures` draws those in docs/."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
    print(f"{path} has the curves.")
