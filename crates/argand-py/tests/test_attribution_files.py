"""Files of stores: what a process leaves that is killed, and who waits for whom. Needs no PyTorch."""

import subprocess
import sys
import threading

import numpy as np
import pytest
from argand.attribution import _files, merge

DESCRIPTION = {
    "format": _files.FORMAT,
    "version": _files.VERSION,
    "shard_rows": 16,
    "model": "00ff",
    "layers": [{"name": "a", "kind": "linear", "inputs": 1, "outputs": 3, "features": 3, "spec": None}],
}

KILLED = """
import os, sys
from pathlib import Path
import numpy as np
from argand.attribution import _files

folder, rows, step = Path(sys.argv[1]), np.arange(48.0).reshape(16, 3), 0
while True:
    place = folder / str(step)
    place.mkdir(parents=True)
    _files.write_shard(place, 32, rows[:8])
    child = os.fork()
    if not child:
        # Ends without a word before one of the changes of the folder.
        left = iter(range(step, -1, -1))
        def dying(change):
            def changed(*arguments, **keywords):
                if next(left) == 0:
                    os._exit(9)
                return change(*arguments, **keywords)
            return changed
        for name in ("unlink", "replace", "open", "chmod"):
            setattr(Path, name, dying(getattr(Path, name)))
        _files.write_shard(place, 32, rows)
        os._exit(0)
    if os.waitpid(child, 0)[1] == 0:
        break
    step += 1
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
def test_flushed_examples_survive_a_death_at_any_moment(tmp_path):
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=True)
    rows = np.arange(48, dtype=np.float32).reshape(16, 3)
    counts = []
    for step in range(len(list(tmp_path.iterdir()))):
        folder = tmp_path / str(step)
        with _files.alone(folder):
            (shard,) = _files.shards_of(folder)
            np.testing.assert_array_equal(shard.read(3), rows[: shard.rows])
        counts.append(shard.rows)
        left = sorted(path.name for path in folder.iterdir())
        assert left == ["shard-000000000032.json", "shard-000000000032.npy"]
    # At first the old ones, and from some moment on the new ones.
    assert counts == sorted(counts) and set(counts) == {8, 16}
    assert counts.count(16) > 2


def store(folder, first=0):
    _files.create(folder, DESCRIPTION)
    with _files.alone(folder):
        _files.write_shard(folder, first, np.full((4, 3), float(first)))
    return folder


@pytest.mark.skipif(_files.fcntl is None, reason="there are no locks of folders")
@pytest.mark.parametrize("locked", ["one", "all"])
def test_merges_wait_for_those_who_write(tmp_path, locked):
    for name, first in (("one", 0), ("two", 4), ("all", 8)):
        store(tmp_path / name, first)
    counts = []
    thread = threading.Thread(
        target=lambda: counts.append(merge(tmp_path / "all", tmp_path / "one", tmp_path / "two")), daemon=True
    )
    with _files.alone(tmp_path / locked):
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
    thread.join(60)
    assert counts == [12]
    # Once more, among themselves: a folder is locked once.
    assert merge(tmp_path / "all", tmp_path / "all", tmp_path / "all/../one") == 12
    assert merge(tmp_path / "new", tmp_path / "all") == 12
    with _files.alone(store(tmp_path / "again")):
        _files.write_shard(tmp_path / "again", 0, np.ones((3, 3)))
    with pytest.raises(ValueError, match="example 0 is in both"):
        merge(tmp_path / "none", tmp_path / "one", tmp_path / "again")
    assert not (tmp_path / "none").exists()
