"""Stores of gradient sketches: folders with a description, ``store.json``, and shards of examples.

A shard is an NPY file of float32 numbers, a row for every example, named by the number of its first one, and a JSON
file with its number of rows and its CRC-32. The JSON file appears last: without it a shard is unfinished and ignored.

Both files are first written under names that readers ignore, ``.argand-shard-….npy`` and ``.argand-shard-….json``; with
the second, the shard counts. Whoever locks the folder next puts it in its place if its process was killed before.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import re
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

try:
    import fcntl
except ImportError:
    # Windows has no locks of folders.
    fcntl = None

FORMAT, VERSION = "argand-gradients", 1
STORE = "store.json"
# Names of shards have twelve digits.
MOST_EXAMPLES = 10**12
_SHARD = re.compile(r"shard-(\d{12})\.json")
_PENDING = ".argand-"


class Shard(NamedTuple):
    """Some neighbouring examples of a store."""

    folder: Path
    first: int
    rows: int
    crc32: str

    @property
    def end(self) -> int:
        return self.first + self.rows

    def path(self, kind: str = "npy") -> Path:
        return shard_path(self.folder, self.first, kind)

    def pending(self, kind: str) -> Path:
        """Its name until it is put in its place."""
        path = self.path(kind)
        return path.with_name(_PENDING + path.name)

    def remove(self) -> None:
        # Without its description it does not count.
        self.path("json").unlink()
        self.path().unlink()

    def read(self, width: int) -> np.ndarray:
        """Its numbers, checked; they stay in the file until they are used."""
        crc32 = 0
        with self.path().open("rb") as file:
            while part := file.read(1 << 24):
                crc32 = zlib.crc32(part, crc32)
        if f"{crc32:08x}" != self.crc32:
            raise ValueError(
                f"{self.path()}: damaged (its checksum is another); delete it and its .json, and record its examples "
                "again"
            )
        array = np.load(self.path(), mmap_mode="r", allow_pickle=False)
        if array.shape != (self.rows, width) or array.dtype != np.dtype("<f4"):
            found = f"{array.dtype} of shape {array.shape}"
            raise ValueError(f"{self.path()}: expected float32 of shape {(self.rows, width)}, got {found}")
        return array


def shard_path(folder: Path, first: int, kind: str) -> Path:
    return folder / f"shard-{first:012}.{kind}"


def read_description(folder: Path) -> dict[str, Any]:
    """What ``store.json`` says, after a look at its format."""
    path = folder / STORE
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise FileNotFoundError(f"{folder}: not a store of gradients: it has no {STORE}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: not JSON: {error}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise ValueError(f"{path}: does not describe a store of gradients")
    if found.get("version") != VERSION:
        raise ValueError(f"{path}: expected version {VERSION}, got {found.get('version')!r}; a newer Argand wrote it")
    rows, layers = found.get("shard_rows"), found.get("layers")
    if type(rows) is not int or rows < 1 or "model" not in found or not isinstance(layers, list) or not layers:
        raise ValueError(f"{path}: expected layers, a model and a positive shard_rows")
    for layer in layers:
        sound = isinstance(layer, dict) and isinstance(layer.get("name"), str) and type(layer.get("features")) is int
        if not sound or layer["features"] < 1:
            raise ValueError(f"{path}: expected layers with a name and a positive number of features")
    return found


def width_of(description: dict[str, Any]) -> int:
    """Numbers of an example."""
    return sum(layer["features"] for layer in description["layers"])


def check_same(expected: dict[str, Any], found: dict[str, Any], where: Path) -> None:
    """Refuse a store of other layers, sketches or weights; the message names the first difference."""
    layers = [{layer["name"]: layer for layer in description["layers"]} for description in (expected, found)]
    for name in layers[0]:
        if name not in layers[1]:
            raise ValueError(f"{where}: has no layer {name!r}: it was recorded with other layers; use another folder")
    for name in layers[1]:
        if name not in layers[0]:
            raise ValueError(f"{where}: has a layer {name!r} that is not recorded now; use another folder")
    for name, layer in layers[0].items():
        for key, value in layer.items():
            other = layers[1][name].get(key)
            if other != value:
                what = "sketch" if key in ("spec", "features") else key
                if isinstance(other, dict) and isinstance(value, dict):
                    # The field that differs, rather than its checksum or all of them.
                    field = next((field for field in value if other.get(field) != value[field]), "checksum")
                    what, other, value = f"{what} ({field})", other.get(field), value.get(field)
                raise ValueError(
                    f"{where}: layer {name!r} was recorded with another {what}, {_short(other)} instead of "
                    f"{_short(value)}; use the same settings, or another folder"
                )
    if list(layers[0]) != list(layers[1]):
        raise ValueError(f"{where}: was recorded with its layers in another order; use another folder")
    if expected["model"] != found["model"]:
        raise ValueError(
            f"{where}: was recorded with other weights of the model, or in another mode (after eval(), buffers count, "
            "too); load those, or use another folder"
        )


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def create(folder: Path, description: dict[str, Any]) -> dict[str, Any]:
    """Describe a new store, or check that an existing one is the same; returns what its file says."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / STORE).exists():
        with alone(folder):
            _describe(folder, description)
    found = read_description(folder)
    check_same(description, found, folder / STORE)
    return found


def _describe(folder: Path, description: dict[str, Any]) -> None:
    text = json.dumps(description, indent=1) + "\n"
    with temporary(folder) as path:
        path.write_bytes(text.encode())
        # Unlike a rename, it leaves a file alone that another process made in the meantime.
        try:
            os.link(path, folder / STORE)
        except FileExistsError:
            pass
        except OSError:
            # There are file systems without links.
            path.replace(folder / STORE)


def shards_of(folder: Path) -> list[Shard]:
    """The finished shards, in the order of their examples."""
    shards = []
    for path in sorted(folder.iterdir()):
        match = _SHARD.fullmatch(path.name)
        if match is None:
            continue
        try:
            data = json.loads(path.read_bytes())
            shard = Shard(folder, data["first"], data["rows"], data["crc32"])
            sound = type(shard.first) is int and type(shard.rows) is int and type(shard.crc32) is str
        except (ValueError, KeyError, TypeError, RecursionError):
            sound = False
        if not sound or shard.first != int(match[1]) or shard.rows < 1:
            raise ValueError(f"{path}: does not describe a shard; delete it and record its examples again")
        if not shard.path().exists():
            # As unfinished as one without its description.
            continue
        if shards and shards[-1].end > shard.first:
            raise ValueError(
                f"{path}: its examples overlap those of {shards[-1].path('json').name}; delete one of them"
            )
        shards.append(shard)
    return shards


def write_shard(folder: Path, first: int, rows: np.ndarray) -> Shard:
    """Write examples, in place of the shard that begins with the same one if there is one.

    Whenever the process is killed, there is the old shard or the new one, at the latest when somebody is :func:`alone`.
    """
    head = io.BytesIO()
    rows = np.ascontiguousarray(rows, "<f4")
    np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": rows.shape})
    shard = Shard(folder, first, len(rows), f"{zlib.crc32(rows, zlib.crc32(head.getvalue())):08x}")
    with temporary(folder) as path:
        with path.open("wb") as file:
            file.write(head.getvalue())
            file.write(rows)
            _sync(file)
        path.replace(shard.pending("npy"))
    _publish(shard)
    return shard


def _publish(shard: Shard) -> None:
    """Describe a shard whose numbers are pending, and put it in its place."""
    with temporary(shard.folder) as path:
        with path.open("w") as file:
            json.dump({"first": shard.first, "rows": shard.rows, "crc32": shard.crc32}, file)
            _sync(file)
        # From here on the new shard counts.
        path.replace(shard.pending("json"))
    _settle(shard.folder)


def _settle(folder: Path) -> None:
    """Put shards in their place that are described, but pending."""
    for entry in folder.glob(f"{_PENDING}shard-*.json"):
        table, final = entry.with_suffix(".npy"), entry.with_name(entry.name.removeprefix(_PENDING))
        if table.exists():
            # Readers ignore numbers without a description, and refuse those with another one.
            final.unlink(missing_ok=True)
            table.replace(final.with_suffix(".npy"))
        entry.replace(final)


def _sync(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Lets one process at a time look at the shards of a folder and write some; a process that is killed lets go."""
    if fcntl is None:
        _settle(folder)
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        # There are file systems without locks.
        locked = False
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
            locked = True
        _settle(folder)
        if locked:
            # Nobody else writes: these are of processes that were killed. A folder to read from may be read-only.
            with contextlib.suppress(OSError):
                for kind in ("*.partial", "shard-*.npy"):
                    for left in folder.glob(_PENDING + kind):
                        left.unlink(missing_ok=True)
        yield
    finally:
        os.close(handle)


class temporary:
    """A name in a folder for a file that will be renamed; deleted if it is not."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __enter__(self) -> Path:
        handle, name = tempfile.mkstemp(".partial", _PENDING, self.folder)
        os.close(handle)
        self.path = Path(name)
        # As other files are, not private as temporary ones.
        mask = os.umask(0)
        os.umask(mask)
        self.path.chmod(0o666 & ~mask)
        return self.path

    def __exit__(self, *_: object) -> None:
        self.path.unlink(missing_ok=True)


def merge(into: str | os.PathLike[str], *stores: str | os.PathLike[str]) -> int:
    """Gather the shards of several stores, as several processes recorded them, in one.

    All must have the same layers, sketches and model, and no example may be in two of them. Shards are checked and
    linked, or copied to another file system; the stores stay as they are, and a merge that was interrupted may be
    repeated. Whatever the order of stores with the same ``shard_rows``, the result is the same. Of a store that is
    being recorded, it takes the shards of the moment; the recording waits when it has some to write.

    Parameters
    ----------
    into : path
        A new folder, or a store that is added to.
    *stores : path
        What is gathered.

    Returns
    -------
    examples : int
        How many examples the merged store has.
    """
    folders = [Path(store) for store in stores]
    if not folders:
        raise ValueError("stores: expected at least one store to merge, got none")
    target = Path(into)
    descriptions = [read_description(folder) for folder in folders]
    made = not target.exists()
    target.mkdir(parents=True, exist_ok=True)
    try:
        places = {(folder.stat().st_dev, folder.stat().st_ino): folder for folder in (target, *folders)}
        with contextlib.ExitStack() as locks:
            # Always in the same order, so that two merges do not wait for each other.
            for place in sorted(places):
                locks.enter_context(alone(places[place]))
            return _gather(target, folders, descriptions)
    except BaseException:
        if made:
            # Unless there is something in it.
            with contextlib.suppress(OSError):
                target.rmdir()
        raise


def _gather(target: Path, folders: list[Path], descriptions: list[dict[str, Any]]) -> int:
    """Check the shards of several stores and link them in one, whose folder is there; all are locked."""
    known = [read_description(target)] if (target / STORE).exists() else []
    for folder, description in zip(folders, descriptions):
        check_same((known or descriptions)[0], description, folder / STORE)
    there = shards_of(target) if known else []
    present = {shard[1:] for shard in there}
    # A merge that was interrupted may be repeated.
    arriving = [shard for folder in folders for shard in shards_of(folder) if shard[1:] not in present]
    shards = sorted([*there, *arriving], key=lambda shard: shard.first)
    for before, after in itertools.pairwise(shards):
        if before.end > after.first:
            raise ValueError(
                f"stores: example {after.first} is in both {before.folder} and {after.folder}; "
                "give each process examples of its own with first="
            )
    width = width_of(descriptions[0])
    for shard in arriving:
        shard.read(width)
    if not known:
        _describe(target, descriptions[0])
    for shard in arriving:
        moved = shard._replace(folder=target)
        try:
            os.link(shard.path().resolve(), moved.pending("npy"))
        except OSError:
            with temporary(target) as path:
                shutil.copyfile(shard.path(), path)
                path.replace(moved.pending("npy"))
        _publish(moved)
    return sum(shard.rows for shard in shards)
