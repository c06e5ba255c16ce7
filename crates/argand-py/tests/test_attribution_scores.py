"""Scores of stores beside plain NumPy."""

import json
import zlib

import numpy as np
import pytest
from argand.attribution import attribute, score_matrix

LAYERS = {"a.fc1": slice(0, 6), "a.fc2": slice(6, 10), "b": slice(10, 13)}


def write(path, rows, first=0, columns=LAYERS, model="00ff"):
    """A store of one shard, or one more shard."""
    path.mkdir(exist_ok=True)
    layers = []
    for name, place in columns.items():
        size = place.stop - place.start
        layers.append(dict(name=name, kind="linear", inputs=3, outputs=4, features=size, spec=None))
    about = dict(format="argand-gradients", version=1, shard_rows=4096, model=model, layers=layers)
    (path / "store.json").write_text(json.dumps(about))
    table = path / f"shard-{first:012}.npy"
    np.save(table, np.ascontiguousarray(rows, dtype="<f4"))
    entry = dict(first=first, rows=len(rows), crc32=f"{zlib.crc32(table.read_bytes()):08x}")
    table.with_suffix(".json").write_text(json.dumps(entry))
    return path


@pytest.fixture
def stores(tmp_path):
    random = np.random.default_rng(7)
    rows, queries = (random.standard_normal((count, 13)).astype(np.float32) for count in (50, 4))
    write(tmp_path / "train", rows[:30])
    write(tmp_path / "train", rows[30:], first=40)
    return tmp_path / "train", write(tmp_path / "queries", queries, first=3), rows.astype(float), queries.astype(float)


def expected(rows, queries, score, places, damping=0.1, alpha=None):
    if score == "influence":
        total = 0
        for place in places:
            phi = rows[:, place]
            gram = phi.T @ phi
            added = damping * np.trace(gram) / len(gram) if alpha is None else alpha
            damped = gram + added * np.eye(len(gram))
            total = total + queries[:, place] @ np.linalg.solve(damped, phi.T)
        return total
    columns = np.r_[tuple(places)]
    scores = queries[:, columns] @ rows[:, columns].T
    if score == "cosine":
        norms = [np.linalg.norm(table[:, columns], axis=1) for table in (queries, rows)]
        scores = scores / np.outer(*norms)
    return scores


@pytest.mark.parametrize(
    ("score", "keywords", "places"),
    [
        ("influence", {}, list(LAYERS.values())),
        ("influence", {"joint": True, "damping": 0.5}, [slice(0, 13)]),
        ("influence", {"layers": ["a.fc1", "b"], "alpha": 2.5}, [LAYERS["a.fc1"], LAYERS["b"]]),
        ("similarity", {"layers": "a.*"}, [slice(0, 10)]),
        ("cosine", {"n_jobs": 1}, [slice(0, 13)]),
    ],
)
def test_scores_are_the_defined_ones(stores, score, keywords, places):
    train, queries, rows, right = stores
    added = {name: value for name, value in keywords.items() if name in ("damping", "alpha")}
    want = expected(rows, right, score, places, **added)
    got = score_matrix(train, queries, score=score, **keywords)
    np.testing.assert_allclose(got, want, atol=1e-12)
    found = attribute(train, queries, top=5, score=score, **keywords)
    assert found.queries.tolist() == [3, 4, 5, 6]
    numbers = np.r_[0:30, 40:60]
    for ranking, sign in ((found.helpful, -1), (found.harmful, 1)):
        order = np.argsort(sign * want, axis=1)[:, :5]
        np.testing.assert_array_equal(ranking.examples, numbers[order])
        np.testing.assert_allclose(ranking.scores, np.take_along_axis(want, order, axis=1), atol=1e-12)
        assert (ranking.standard_errors > 0).all()
        ranks = np.arange(1, 6)
        assert (ranking.rank_low <= ranks).all() and (ranking.rank_high >= ranks).all()


def test_frames_have_the_columns_of_the_command_line(stores):
    pytest.importorskip("pandas")
    frame = attribute(*stores[:2], top=2).to_frame()
    names = ["query", "rank", "kind", "example", "score", "standard_error", "rank_low", "rank_high"]
    assert list(frame.columns) == names
    assert frame["query"].tolist() == [3] * 4 + [4] * 4 + [5] * 4 + [6] * 4
    assert frame["kind"].tolist() == ["helpful"] * 2 + ["harmful"] * 2 + (["helpful"] * 2 + ["harmful"] * 2) * 3
    assert frame["rank"].tolist() == [1, 2] * 8


def test_what_does_not_fit_is_refused(stores, tmp_path):
    train, queries, *_ = stores
    with pytest.raises(ValueError, match="score: expected influence"):
        attribute(train, queries, score="loss")
    with pytest.raises(ValueError, match="layers: expected patterns of"):
        attribute(train, queries, layers="c*")
    with pytest.raises(ValueError, match="damping: expected a number of at least 0"):
        attribute(train, queries, damping=-1.0)
    with pytest.raises(ValueError, match="alpha: expected a number of at least 0"):
        attribute(train, queries, alpha=-1.0)
    with pytest.raises(ValueError, match="device: expected"):
        attribute(train, queries, device="tpu")
    with pytest.raises(TypeError, match="train: expected the folder"):
        attribute(3, queries)
    with pytest.raises(ValueError, match="is not a store"):
        attribute(tmp_path, queries)
    other = write(tmp_path / "other", np.ones((2, 13)), model="ab")
    with pytest.raises(ValueError, match="another model"):
        score_matrix(train, other)
    with pytest.warns(UserWarning, match="has 50 examples, fewer than the 99"):
        assert attribute(train, queries, top=99).helpful.examples.shape == (4, 50)
    write(train, np.full((1, 13), np.nan), first=99)
    with pytest.raises(ValueError, match=r'shard-000000000099\.npy: example 99, layer "a\.fc1": the gradient is NaN'):
        score_matrix(train, queries)


def test_pages_show_texts_and_images(stores, tmp_path):
    train, queries, *_ = stores
    found = attribute(train, queries, top=3)
    texts = [f"<b>text {number}</b>" for number in range(60)]
    path = tmp_path / "page.html"
    found.page(path, train_examples=texts, query_labels=list("abcdefg"))
    page = path.read_text(encoding="utf-8")
    assert page.count("<li>") == 4 * 2 * 3 and "<b>text" not in page and "&lt;b&gt;text" in page
    images = np.arange(60 * 4 * 5 * 3, dtype=np.int64).astype(np.uint8).reshape(60, 4, 5, 3)
    np.save(tmp_path / "images.npy", images)
    found.page(path, train_examples=tmp_path / "images.npy", query_examples=images[..., 0])
    assert path.read_text(encoding="utf-8").count("data:image/png") == 4 * 7
    lines = tmp_path / "lines.jsonl"
    lines.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    found.page(path, train_examples=lines)
    assert "&lt;b&gt;text" in path.read_text(encoding="utf-8")
    # Columns of data frames go by place, not by index.
    pd = pytest.importorskip("pandas")
    labels = pd.Series([f"label {number}" for number in range(60)], index=np.arange(60)[::-1])
    found.page(path, train_examples=pd.Series(texts, index=labels.index), train_labels=labels)
    page = path.read_text(encoding="utf-8")
    for number in found.helpful.examples.ravel():
        assert f"text {number}&lt;/b&gt;" in page and f"example {number}, <bdi>label {number}</bdi>" in page
    for wrong, message in (
        (texts[:2], "train_examples: has 2 items"),
        (images.astype(float), "expected images of uint8"),
        (tmp_path / "x.bin", "expected a .txt"),
    ):
        with pytest.raises(ValueError, match=message):
            found.page(tmp_path / "other.html", train_examples=wrong)
    assert sorted(file.name for file in tmp_path.glob("*.html*")) == ["page.html"]


def test_files_of_texts_are_read_as_on_the_command_line(stores, tmp_path):
    found, page = attribute(*stores[:2], top=3), tmp_path / "page.html"
    shown = sorted({*found.helpful.examples.ravel().tolist(), *found.harmful.examples.ravel().tolist()})
    path = tmp_path / "texts.txt"
    path.write_bytes(b"caf\xe9\n" * 60)
    found.page(page, train_examples=path)
    assert "caf\ufffd" in page.read_text(encoding="utf-8")
    path = tmp_path / "texts.jsonl"
    for wrong, message in (
        ("{", "not JSON"),
        ('{"label": 3}', 'expected a string, or an object with a "text"'),
        ("[" * 99999, "not JSON"),
        ('"\\ud800"', "is not Unicode text"),
    ):
        lines = ['{"text": "some"}'] * 60
        lines[shown[0]] = wrong
        path.write_text("\n".join(lines))
        with pytest.raises(ValueError, match=f"texts.jsonl: line {shown[0] + 1}:? {message}"):
            found.page(page, train_examples=path)
    # A line that is not shown is not looked at.
    unseen = next(number for number in range(60) if number not in shown)
    path.write_text("\n".join(['"some"'] * unseen + ["{"] + ['"some"'] * 59))
    found.page(page, train_examples=path)


def test_pages_name_what_they_cannot_show(stores, tmp_path):
    found = attribute(*stores[:2], top=3)
    path = tmp_path / "page.html"
    for keywords, message in (
        ({"train_examples": (str(number) for number in range(60))}, "train_examples: expected a sequence .* generator"),
        ({"query_labels": 5}, "query_labels: expected a sequence with an item for each example, got int"),
        ({"train_labels": "labels.txt"}, "train_labels: expected a sequence with an item for each example, got str"),
        ({"train_labels": np.array(5)}, "train_labels: expected a sequence"),
    ):
        with pytest.raises(TypeError, match=message):
            found.page(path, **keywords)
    for keywords in ({"train_examples": ["\ud800"] * 60}, {"train_labels": ["\ud800"] * 60}):
        with pytest.raises(
            ValueError, match=rf"{next(iter(keywords))}: example [0-9]+ is not Unicode text: surrogates"
        ):
            found.page(path, **keywords)
    for place, kind in ((tmp_path, IsADirectoryError), (tmp_path / "nowhere/page.html", FileNotFoundError)):
        with pytest.raises(kind) as error:
            found.page(place)
        assert error.value.filename == str(place) and "partial" not in str(error.value)
    assert not list(tmp_path.glob("*.html")) and not list(tmp_path.glob(".argand*"))
