"""Scores of examples by sketches of their gradients. Needs no PyTorch: stores are files."""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import _argand
from .._arguments import integer, number, text, threads_of
from ._files import temporary


@dataclass(frozen=True)
class Ranking:
    """The examples of largest or of smallest score for every query.

    All arrays have a row for each query and a column for each rank, the best first.

    Attributes
    ----------
    examples : ndarray of int64
        The numbers of the examples.
    scores : ndarray of float64
        Their scores.
    standard_errors : ndarray of float64
        The standard errors that are due to the sketch.
    rank_low, rank_high : ndarray of int64
        The first and the last rank, counted from 1, whose score differs by no more than one standard error of the
        difference: the sketch does not tell them apart.
    """

    examples: NDArray[np.int64]
    scores: NDArray[np.float64]
    standard_errors: NDArray[np.float64]
    rank_low: NDArray[np.int64]
    rank_high: NDArray[np.int64]


@dataclass(frozen=True)
class Scores:
    """The result of :func:`attribute`.

    Attributes
    ----------
    queries : ndarray of int64
        The numbers of the queries.
    helpful : Ranking
        Examples of largest score: training on them lowers the loss of the query.
    harmful : Ranking
        Examples of smallest score: training on them raises it.
    score : str
        What a score is.
    """

    queries: NDArray[np.int64]
    helpful: Ranking
    harmful: Ranking
    score: str

    def to_frame(self) -> Any:
        """A pandas data frame with a row for every query, list and rank, like the files of ``argand attribute``."""
        import pandas as pd

        count, top = self.helpful.examples.shape
        parts = []
        for kind, ranking in (("helpful", self.helpful), ("harmful", self.harmful)):
            parts.append(
                pd.DataFrame(
                    {
                        "query": np.repeat(self.queries, top),
                        "rank": np.tile(np.arange(1, top + 1), count),
                        "kind": kind,
                        "example": ranking.examples.ravel(),
                        "score": ranking.scores.ravel(),
                        "standard_error": ranking.standard_errors.ravel(),
                        "rank_low": ranking.rank_low.ravel(),
                        "rank_high": ranking.rank_high.ravel(),
                    }
                )
            )
        frame = pd.concat(parts, ignore_index=True)
        order = np.lexsort((frame.index, np.tile(np.repeat(np.arange(count), top), 2)))
        return frame.iloc[order].reset_index(drop=True)

    def page(
        self,
        path: str | os.PathLike[str],
        *,
        train_examples: Any = None,
        query_examples: Any = None,
        train_labels: Any = None,
        query_labels: Any = None,
    ) -> None:
        """Writes a page that shows the first queries with their most helpful and most harmful examples.

        Parameters
        ----------
        path : path
            Where to write the page, one file that needs nothing else.
        train_examples, query_examples : optional
            What examples look like, by their numbers: a list of texts, an array or tensor of images in uint8 (n x h x w
            or n x h x w x 3), or a file of either, ``.txt`` or ``.jsonl`` with a line for each, or ``.npy``.
        train_labels, query_labels : sequence, optional
            Labels, by the numbers of examples.
        """
        queries, examples = _argand.attribution_page_limits()
        train_labels = None if train_labels is None else _sequence("train_labels", train_labels)
        query_labels = None if query_labels is None else _sequence("query_labels", query_labels)
        look, look_query = _looks("train_examples", train_examples), _looks("query_examples", query_examples)
        count = min(queries, len(self.queries))

        def shown(number: int, looks: Any, labels: Any, name: str) -> tuple[int, str | None, Any]:
            label = None if labels is None else _shown_text(name + "_labels", labels, number)
            return number, label, None if looks is None else looks(number)

        answers = []
        for row, query in enumerate(self.queries[:count].tolist()):
            lists = []
            for ranking in (self.helpful, self.harmful):
                columns = (ranking.scores, ranking.standard_errors, ranking.rank_low, ranking.rank_high)
                numbers = ranking.examples[row, :examples].tolist()
                entries = zip(*(column[row, :examples].tolist() for column in columns), numbers)
                lists.append([(*entry, shown(number, look, train_labels, "train")) for *entry, number in entries])
            answers.append((shown(query, look_query, query_labels, "query"), *lists))
        about = f"{count} of {len(self.queries)} queries"
        text = _argand.attribution_page(about, self.score, answers)
        path = Path(path)
        try:
            with temporary(path.parent) as unfinished:
                unfinished.write_text(text, encoding="utf-8")
                unfinished.replace(path)
        except OSError as error:
            # The name of the unfinished file would tell nobody anything.
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None


def _sequence(name: str, items: Any) -> Any:
    """Tensors and columns of data frames as arrays, which are counted from 0 and print as numbers."""
    items = np.asarray(items) if hasattr(items, "__array__") else items
    single = isinstance(items, str | bytes) or getattr(items, "ndim", 1) == 0
    if single or not (hasattr(items, "__len__") and hasattr(items, "__getitem__")):
        raise TypeError(f"{name}: expected a sequence with an item for each example, got {type(items).__name__}")
    return items


def _shown_text(name: str, items: Any, number: int) -> str:
    return _unicode(f"{name}: example {number}", str(_at(name, items, number)))


def _unicode(place: str, found: str) -> str:
    try:
        found.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{place} is not Unicode text: {error.reason}") from None
    return found


def _at(name: str, items: Any, number: int) -> Any:
    if number >= len(items):
        raise ValueError(f"{name}: has {len(items)} items, and example {number} is not among them")
    return items[number]


def _looks(name: str, source: Any) -> Any:
    """What an example looks like, by its number: a text, or height, width and pixels."""
    if source is None:
        return None
    if isinstance(source, str | os.PathLike):
        ending = os.path.splitext(os.fspath(source))[1].lower()
        if ending == ".npy":
            source = np.load(source, mmap_mode="r", allow_pickle=False)
        elif ending in (".txt", ".jsonl"):
            # As on the command line: what is not UTF-8 is shown as such, and lines of JSON are parsed when needed.
            with open(source, encoding="utf-8", errors="replace", newline="\n") as file:
                lines = [line.rstrip("\r\n") for line in file]
            if ending == ".jsonl":
                return lambda number: _text_of(os.fspath(source), number, _at(name, lines, number))
            source = lines
        else:
            raise ValueError(f"{name}: expected a .txt, .jsonl or .npy file, got {os.fspath(source)}")
    source = _sequence(name, source)
    if isinstance(source, np.ndarray) and source.dtype.kind not in "OUT":
        if source.dtype != np.uint8 or not (source.ndim == 3 or (source.ndim == 4 and source.shape[3] == 3)):
            expected = "images of uint8, n x h x w or n x h x w x 3"
            raise ValueError(f"{name}: expected {expected}, got {source.dtype} of shape {source.shape}")

        def image(number: int) -> tuple[int, int, bytes]:
            pixels = _at(name, source, number)
            return *pixels.shape[:2], pixels.tobytes()

        return image
    return lambda number: _shown_text(name, source, number)


def _text_of(path: str, number: int, line: str) -> str:
    """The text of a line of JSON: a string, or the field "text" of an object."""
    place = f"{path}: line {number + 1}"
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{place}: not JSON: {error}") from None
    value = value.get("text") if isinstance(value, dict) else value
    if not isinstance(value, str):
        raise ValueError(f'{place}: expected a string, or an object with a "text"')
    return _unicode(place, value)


def _choices(score: Any, layers: Any, damping: Any, alpha: Any, joint: Any, device: Any) -> tuple:
    if layers is None:
        layers = []
    elif isinstance(layers, str):
        layers = [layers]
    elif not isinstance(layers, Iterable):
        raise TypeError(f"layers: expected a pattern, a list of them or None, got {layers!r}")
    gpu = None
    if device is not None:
        found = re.fullmatch(r"cpu|cuda(?::([0-9]{1,4}))?", str(device))
        if found is None:
            raise ValueError(f"device: expected 'cpu', 'cuda' or 'cuda:N', got {device!r}")
        gpu = None if str(device) == "cpu" else int(found[1] or 0)
    patterns = [text("layers", name) for name in layers]
    added = None if alpha is None else number("alpha", alpha)
    return text("score", score), patterns, number("damping", damping), added, bool(joint), gpu


def _say(notes: list[str]) -> None:
    for note in notes:
        warnings.warn(note, stacklevel=3)


def _folder(name: str, store: Any) -> str:
    path = getattr(store, "folder", store)
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"{name}: expected the folder of a store, got {store!r}")
    return os.fspath(path)


def attribute(
    train: str | os.PathLike[str],
    queries: str | os.PathLike[str],
    *,
    top: int = 20,
    score: str = "influence",
    layers: str | list[str] | None = None,
    damping: float = 0.1,
    alpha: float | None = None,
    joint: bool = False,
    n_jobs: int | None = None,
    device: Any = None,
) -> Scores:
    """The training examples that helped and harmed every query most, with the error of the sketch.

    With sketches φ of gradients, a score is a sum over layers: ``similarity`` ⟨φ_i, φ_q⟩, ``cosine``, the same divided
    by both norms, or ``influence`` φ_qᵀ(G + λI)⁻¹φ_i with G = Σ φ_i φ_iᵀ over the training set (Grosse et al. 2023;
    Park et al. 2023). Positive scores are helpful: training on the example lowers the loss of the query.

    Stores may be larger than memory. G costs n·D² operations and is kept beside the training store, as
    ``gram-….sums``; examples that are recorded later are added to it. Scores cost n·D multiplications for each query,
    and do not depend on the number of threads.

    Parameters
    ----------
    train, queries : path or GradientStore
        The folders of two stores, recorded with the same model, layers and sketches.
    top : int
        Examples in each list.
    score : {"influence", "similarity", "cosine"}
        What a score is.
    layers : str or list of str, optional
        Patterns of names of layers, with ``*`` for any text and ``?`` for any character. All layers without.
    damping : float
        λ as a multiple of the mean eigenvalue of G.
    alpha : float, optional
        λ itself, in place of a multiple.
    joint : bool
        Whether influence takes all layers together, with one G, rather than one by one.
    n_jobs : int, optional
        The number of threads.
    device : str, optional
        ``"cuda"`` or ``"cuda:N"`` sums up and factors G on a GPU.

    Returns
    -------
    Scores
        Standard errors are those of the jackknife over rows of the projections: right for independent rows, too large
        for ``product-srht``, whose rows repel each other.
    """
    choices, threads = _choices(score, layers, damping, alpha, joint, device), threads_of(n_jobs)
    paths = _folder("train", train), _folder("queries", queries)
    numbers, found, helpful, harmful, notes = _argand.attribute(*paths, integer("top", top), choices, threads)
    _say(notes)

    def ranking(columns: tuple[NDArray[Any], ...]) -> Ranking:
        shaped = (column.reshape(len(numbers), found) for column in columns)
        return Ranking(*(column.astype(np.int64) if column.dtype == np.uint64 else column for column in shaped))

    return Scores(numbers.astype(np.int64), ranking(helpful), ranking(harmful), score)


def score_matrix(
    train: str | os.PathLike[str],
    queries: str | os.PathLike[str],
    *,
    score: str = "influence",
    layers: str | list[str] | None = None,
    damping: float = 0.1,
    alpha: float | None = None,
    joint: bool = False,
    n_jobs: int | None = None,
    device: Any = None,
) -> NDArray[np.float64]:
    """The scores of all examples for all queries, in float64: for small stores.

    Parameters are those of :func:`attribute`.

    Returns
    -------
    ndarray of shape (queries, examples)
        In the order of their numbers. More than 4 GiB are an error.
    """
    choices, threads = _choices(score, layers, damping, alpha, joint, device), threads_of(n_jobs)
    matrix, notes = _argand.score_matrix(_folder("train", train), _folder("queries", queries), choices, threads)
    _say(notes)
    return matrix
