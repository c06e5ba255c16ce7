"""Stores of gradient sketches: what is recorded, how it is written, and what is refused."""

import json
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; make test-torch installs it")

from argand.attribution import GradientStore, attribute, features_for_error, merge, score_matrix  # noqa: E402
from argand.attribution._writer import Writer  # noqa: E402
from argand.torch import TensorProductSketch  # noqa: E402
from torch import nn  # noqa: E402
from torch.func import functional_call, grad, vmap  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

pytestmark = [pytest.mark.filterwarnings(f"ignore::{kind}:torch") for kind in ("FutureWarning", "DeprecationWarning")]


class Net(nn.Module):
    """An embedding, a linear layer that is called twice, a 1x1 convolution with a stride, and a head."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 6, padding_idx=0)
        self.mix = nn.Linear(6, 6)
        self.conv = nn.Conv1d(6, 5, 1, stride=2)
        self.head = nn.Linear(5, 3)

    def forward(self, tokens):
        x = self.mix(torch.tanh(self.mix(self.embed(tokens))))
        return self.head(torch.relu(self.conv(x.transpose(1, 2))).mean(2))


@pytest.fixture
def net():
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(1)
    return torch.randint(11, (40, 7), generator=generator), torch.randint(3, (40,), generator=generator)


def record(store, net, data, batch=8, stop=None):
    x, y = data
    with store:
        for first in range(store.recorded, len(x) if stop is None else stop, batch):
            rows = slice(first, min(first + batch, len(x)))
            cross_entropy(net(x[rows]), y[rows], reduction="sum").backward()
            store.record()


def numbers(folder):
    """All rows of a store."""
    return np.concatenate([np.load(path) for path in sorted(Path(folder).glob("shard-*.npy"))])


def files(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def explicit_gradients(net, data):
    """The gradient of every weight for every example, by another way."""
    parameters = {name: value.detach() for name, value in net.named_parameters()}

    def loss(parameters, x, y):
        return cross_entropy(functional_call(net, parameters, (x[None],)), y[None], reduction="sum")

    return vmap(grad(loss), (None, 0, 0))(parameters, *data)


@pytest.mark.parametrize("method", ["ctr-product-srht", "rademacher", "tensor-sketch"])
def test_recorded_sketches_are_those_of_explicit_gradients(device, net, data, tmp_path, method):
    net.to(device).double()
    data = tuple(tensor.to(device) for tensor in data)
    record(GradientStore(net, tmp_path / "store", features=32, method=method, seed=5), net, data)
    found = numbers(tmp_path / "store")
    gradients = explicit_gradients(net, data)
    layers = json.loads((tmp_path / "store/store.json").read_text())["layers"]
    assert [layer["name"] for layer in layers] == ["embed", "mix", "conv", "head"]
    assert [layer["kind"] for layer in layers] == ["embedding", "linear", "conv1x1", "linear"]
    at = 0
    for layer in layers:
        weight = gradients[f"{layer['name']}.weight"].flatten(3).squeeze(3) if layer["kind"] == "conv1x1" else None
        weight = gradients[f"{layer['name']}.weight"] if weight is None else weight
        # Of an embedding, inputs are rows; of others, columns.
        matrix = weight if layer["kind"] == "embedding" else weight.transpose(1, 2)
        sketch = TensorProductSketch.from_spec(json.dumps(layer["spec"]))
        assert sketch.in_features == [layer["inputs"], layer["outputs"]]
        # A matrix is the sum of its rows, each times a unit vector.
        units = torch.eye(layer["inputs"], dtype=matrix.dtype, device=device).expand(len(matrix), -1, -1)
        want = sketch(units, matrix.contiguous()).sum(1).cpu()
        got = torch.from_numpy(found[:, at : at + layer["features"]]).double()
        assert want.abs().max() > 1e-3
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6 * float(want.abs().max()))
        at += layer["features"]
    assert at == found.shape[1]


def test_shards_have_the_agreed_form(net, data, tmp_path):
    record(GradientStore(net, tmp_path, features=8, shard_rows=16), net, data)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == sorted(
        ["store.json"] + [f"shard-{first:012}.{kind}" for first in (0, 16, 32) for kind in ("npy", "json")]
    )
    for first, rows in ((0, 16), (16, 16), (32, 8)):
        found = json.loads((tmp_path / f"shard-{first:012}.json").read_text())
        data_bytes = (tmp_path / f"shard-{first:012}.npy").read_bytes()
        assert found == {"first": first, "rows": rows, "crc32": f"{zlib.crc32(data_bytes):08x}"}
        array = np.load(tmp_path / f"shard-{first:012}.npy")
        assert array.dtype == np.float32
        assert array.shape == (rows, 32)


def test_half_precision_models_give_single_precision_sketches(device, net, data, tmp_path):
    net.to(device)
    data = tuple(tensor.to(device) for tensor in data)
    want = GradientStore(net, tmp_path / "wide", features=64)
    record(want, net, data)
    half = Net().eval()
    half.load_state_dict(net.state_dict())
    half.to(device, torch.bfloat16)
    record(GradientStore(half, tmp_path / "half", features=64), half, data)
    wide, narrow = numbers(tmp_path / "wide"), numbers(tmp_path / "half")
    assert narrow.dtype == np.float32
    assert np.linalg.norm(wide - narrow) < 0.03 * np.linalg.norm(wide)


def test_interrupted_resumed_and_merged_stores_have_the_same_bytes(device, net, data, tmp_path):
    net.to(device)
    data = tuple(tensor.to(device) for tensor in data)
    settings = {"features": 8, "shard_rows": 16}
    record(GradientStore(net, tmp_path / "whole", **settings), net, data)

    # Stopped by an error in the middle of the second shard: what was not full is gone, and recorded again.
    store = GradientStore(net, tmp_path / "resumed", **settings)
    with pytest.raises(ValueError, match="batch_size"):
        record(store, net, (data[0], data[1][:24]))
    store = GradientStore(net, tmp_path / "resumed", **settings)
    assert store.recorded == 16
    record(store, net, data)
    assert files(tmp_path / "resumed") == files(tmp_path / "whole")

    # Stopped in order within a shard: it is filled later.
    record(GradientStore(net, tmp_path / "filled", **settings), net, data, stop=24)
    store = GradientStore(net, tmp_path / "filled", **settings)
    assert store.recorded == 24
    record(store, net, data)
    assert files(tmp_path / "filled") == files(tmp_path / "whole")

    # Two processes, merged in any order; and both into one folder.
    first, second = tmp_path / "first", tmp_path / "second"
    record(GradientStore(net, first, **settings), net, data, stop=16)
    record(GradientStore(net, second, first=16, **settings), net, data)
    assert merge(tmp_path / "merged", second, first) == 40
    assert files(tmp_path / "merged") == files(tmp_path / "whole")
    store = GradientStore(net, first, first=16, **settings)
    record(store, net, data)
    assert files(first) == files(tmp_path / "whole")
    with pytest.raises(ValueError, match="example 16 is in both"):
        merge(tmp_path / "twice", first, second)
    assert not (tmp_path / "twice").exists()


def test_a_killed_process_leaves_whole_shards(net, data, tmp_path):
    """Killed after the rename of the numbers, before the description: the shard does not count."""
    record(GradientStore(net, tmp_path, features=8, shard_rows=16), net, data)
    whole = files(tmp_path)
    (tmp_path / "shard-000000000016.json").unlink()
    store = GradientStore(net, tmp_path, features=8, shard_rows=16)
    assert store.recorded == 16
    record(store, net, data, stop=32)
    assert files(tmp_path) == whole


def test_sizes_by_bytes_and_by_error(net, data, tmp_path):
    store = GradientStore(net, tmp_path / "bytes", bytes_per_example=1000)
    assert store.layers == {"embed": 62, "mix": 62, "conv": 62, "head": 62}
    with pytest.raises(ValueError, match="bytes_per_example: expected at least 32 for 4 layers"):
        GradientStore(net, tmp_path / "none", bytes_per_example=20)

    def sample():
        cross_entropy(net(data[0][:10]), data[1][:10], reduction="sum").backward()

    store = GradientStore(net, tmp_path / "error", error=0.1, sample=sample)
    gradients = explicit_gradients(net, data)["head.weight"][:10].transpose(1, 2).numpy()
    assert store.layers["head"] == features_for_error(gradients, 0.1)
    net.zero_grad()
    record(store, net, data)
    found = numbers(tmp_path / "error")[:10, -store.layers["head"] :]
    exact = gradients.reshape(10, -1)
    error = np.linalg.norm(found @ found.T - exact @ exact.T) / np.linalg.norm(exact @ exact.T)
    assert 0 < error < 0.3
    sizes = {"embed": 8, "mix": 16, "conv": 4, "head": 2}
    assert GradientStore(net, tmp_path / "named", features=sizes).layers == sizes


def test_passes_with_checkpoints_count_once(data, tmp_path):
    torch.manual_seed(0)
    x = torch.randn(6, 4)
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    for name, passes in {
        "plain": net,
        "new": lambda x: checkpoint(net, x, use_reentrant=False),
        "old": lambda x: checkpoint(net, x.requires_grad_(), use_reentrant=True),
    }.items():
        with GradientStore(net, tmp_path / name, features=8) as store:
            passes(x.clone()).square().sum().backward()
            store.record()
    assert files(tmp_path / "plain") == files(tmp_path / "new") == files(tmp_path / "old")


def test_a_mean_is_scaled(net, data, tmp_path):
    record(GradientStore(net, tmp_path / "sum", features=8), net, data, batch=40)
    with GradientStore(net, tmp_path / "mean", features=8) as store:
        cross_entropy(net(data[0]), data[1]).backward()
        store.record(scale=40)
        cross_entropy(net(data[0]), data[1]).backward()
        for scale, kind in (("40", TypeError), (float("nan"), ValueError)):
            with pytest.raises(kind, match="scale: expected a"):
                store.record(scale)
        store.discard()
    np.testing.assert_allclose(numbers(tmp_path / "mean"), numbers(tmp_path / "sum"), rtol=1e-4, atol=1e-6)


def backward(net, data):
    cross_entropy(net(data[0]), data[1], reduction="sum").backward()


def test_what_is_not_recorded_is_named(net, data, tmp_path):
    with pytest.raises(TypeError, match=r"module: expected a torch\.nn\.Module, got int"):
        GradientStore(3, tmp_path / "x")
    with pytest.raises(ValueError, match="expected linear layers, embeddings or 1x1 convolutions, got 0 of 0"):
        GradientStore(nn.ReLU(), tmp_path / "x")
    net.conv.weight.requires_grad_(False)
    with pytest.raises(ValueError, match="layer 'conv' is frozen"):
        GradientStore(net, tmp_path / "x")
    net.conv.weight.requires_grad_()
    tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    with pytest.raises(ValueError, match="layers '0' and '1' share one weight"):
        GradientStore(tied, tmp_path / "x")
    net.embed.scale_grad_by_freq = True
    with pytest.raises(ValueError, match=r"layer 'embed'.*scale_grad_by_freq"):
        GradientStore(net, tmp_path / "x")
    net.embed.scale_grad_by_freq = False
    with pytest.raises(ValueError, match="layer '0' is lazy"):
        GradientStore(nn.Sequential(nn.LazyLinear(3)), tmp_path / "x")
    for name in ("select", "sample"):
        with pytest.raises(TypeError, match=f"{name}: expected a function"):
            GradientStore(net, tmp_path / "x", **{name: 3, "error": 0.1 if name == "sample" else None})
    with pytest.raises(TypeError, match="folder: expected a path, got 3"):
        GradientStore(net, 3)
    for settings, message in {
        '{"features": 7}': "layer 'embed': features: expected an even number",
        '{"features": 8, "bytes_per_example": 100}': "expected one of them",
        '{"error": 0.1}': "error and sample: expected both",
        '{"features": {"embed": 8}}': "features: layer 'mix' is missing",
        '{"features": {"bed": 8}}': "features: there is no recorded layer 'bed'",
        '{"shard_rows": 0}': "shard_rows: expected at least 1",
        '{"first": 1000000000000}': "first: expected less than",
        '{"method": "sketchy"}': "sketchy",
    }.items():
        with pytest.raises(ValueError, match=message):
            GradientStore(net, tmp_path / "x", **json.loads(settings))
    assert not (tmp_path / "x").exists()

    class Unused(Net):
        def forward(self, tokens):
            with torch.no_grad():
                self.mix(self.embed(tokens))
            return self.head(self.conv(self.embed(tokens).transpose(1, 2)).mean(2))

    unused = Unused().eval()
    with GradientStore(unused, tmp_path / "unused", features=8) as store:
        backward(unused, data)
        with pytest.raises(RuntimeError, match="layer 'mix' never ran, or ran without gradients"):
            store.record()
        unused(data[0])
        with pytest.raises(RuntimeError, match="layer 'embed' saw no gradient"):
            store.record()
    with GradientStore(net, tmp_path / "frozen", features=8):
        net.conv.weight.requires_grad_(False)
        with pytest.raises(RuntimeError, match="layer 'conv' was frozen after the store was opened"):
            net(data[0])
    select = GradientStore(unused, tmp_path / "selected", features=8, select=lambda name, _: name != "mix")
    assert "mix" not in select.layers


def test_accumulated_gradients_are_refused(net, data, tmp_path):
    with GradientStore(net, tmp_path, features=8) as store:
        backward(net, data)
        with pytest.raises(RuntimeError, match="layer 'embed' was called again before record"):
            net(data[0])
        assert store.record() == 40
        loss = cross_entropy(net(data[0]), data[1], reduction="sum")
        loss.backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="layer 'head': a second backward pass"):
            loss.backward()
        assert store.record() == 80


def test_passes_that_go_back_one_after_the_other_are_refused(net, data, tmp_path):
    losses = [lambda: cross_entropy(net(data[0]), data[1], reduction="sum") for _ in range(2)]
    with GradientStore(net, tmp_path, features=8) as store:
        first, second = losses[0](), losses[1]()
        first.backward()
        with pytest.raises(RuntimeError, match="layer 'head': a second backward pass began before record"):
            second.backward()
        store.discard()
        # Two calls in one pass are one example each.
        (losses[0]() + losses[1]()).backward()
        assert store.record() == 40
        with pytest.raises(RuntimeError, match="open already"):
            store.__enter__()
    with pytest.raises(RuntimeError, match="works inside of `with store:`"):
        store.record()
    record(GradientStore(net, tmp_path / "once", features=8), net, data, batch=40)
    np.testing.assert_allclose(numbers(tmp_path), 2 * numbers(tmp_path / "once"), rtol=1e-4, atol=1e-6)


def test_many_calls_are_summed_up_in_single_precision(tmp_path):
    torch.manual_seed(0)
    layer, x = nn.Linear(4, 4).to(torch.bfloat16), torch.randn(2, 300, 4).to(torch.bfloat16)
    for name, parts in (("one", 1), ("many", 300)):
        with GradientStore(layer, tmp_path / name, features=16) as store:
            sum(layer(part).sum() for part in x.chunk(parts, 1)).backward()
            store.record()
    one, many = numbers(tmp_path / "one"), numbers(tmp_path / "many")
    assert np.linalg.norm(one - many) < 0.01 * np.linalg.norm(one)


def test_weights_and_layers_of_other_kinds_are_refused(tmp_path):
    for layer in (
        nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)),
        nn.utils.parametrizations.orthogonal(nn.Linear(3, 3)),
    ):
        with pytest.raises(ValueError, match="layer '0': its weight is computed"):
            GradientStore(nn.Sequential(layer), tmp_path / "x")
    tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    with pytest.raises(ValueError, match="share one weight"):
        GradientStore(tied, tmp_path / "x", select=lambda name, _: name == "0")

    class Doubled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    assert GradientStore(nn.Sequential(nn.Linear(3, 3), Doubled(3, 3)), tmp_path / "plain", features=8).layers == {
        "0": 8
    }
    positions = nn.Embedding(5, 4)
    with GradientStore(positions, tmp_path / "positions", features=8):
        loss = (torch.randn(5, 5, 4) * positions(torch.arange(5))).sum()
        with pytest.raises(RuntimeError, match="its input counts positions"):
            loss.backward()
    conv = nn.Conv2d(3, 3, 1)
    with GradientStore(conv, tmp_path / "conv", features=8):
        loss = conv(torch.randn(3, 4, 4)).sum()
        with pytest.raises(RuntimeError, match="expected a batch of inputs"):
            loss.backward()


def test_stores_of_one_folder_do_not_overwrite_each_other(net, data, tmp_path):
    stores = [GradientStore(net, tmp_path, features=8) for _ in range(2)]
    record(stores[0], net, data)
    whole = files(tmp_path)
    with pytest.raises(ValueError, match="example 0 was recorded already"):
        record(stores[1], net, data, stop=8)
    assert files(tmp_path) == whole


def test_merged_short_shards_go_on_behind_the_last(net, data, tmp_path):
    for name, first, stop in (("one", 0, 8), ("two", 8, 16)):
        record(GradientStore(net, tmp_path / name, features=8, first=first), net, data, stop=stop)
    (tmp_path / "links").mkdir()
    for path in (tmp_path / "two").iterdir():
        (tmp_path / "links" / path.name).symlink_to(f"../two/{path.name}")
    assert merge(tmp_path / "all", tmp_path / "one", tmp_path / "links") == 16
    # Again, as after an interruption.
    (tmp_path / "all/shard-000000000008.json").unlink()
    assert merge(tmp_path / "all", tmp_path / "one", tmp_path / "two") == 16
    store = GradientStore(net, tmp_path / "all", features=8)
    assert store.recorded == 16
    record(store, net, data)
    record(GradientStore(net, tmp_path / "whole", features=8), net, data)
    np.testing.assert_array_equal(numbers(tmp_path / "all"), numbers(tmp_path / "whole"))


def test_nan_names_example_and_layer_and_keeps_the_rest(net, data, tmp_path):
    with GradientStore(net, tmp_path, features=8) as store:
        backward(net, data)
        assert store.record() == 40
        weights = torch.ones(40)
        weights[3] = float("nan")
        (weights * cross_entropy(net(data[0]), data[1], reduction="none")).sum().backward()
        with pytest.raises(ValueError, match=r"example 43: the gradient of layer '.*' is NaN"):
            store.record()
        assert store.recorded == 40
        backward(net, data)
        assert store.record() == 80
    found = numbers(tmp_path)
    np.testing.assert_array_equal(found[:40], found[40:])


def test_another_model_or_sketch_is_refused(net, data, tmp_path):
    record(GradientStore(net, tmp_path, features=8), net, data)
    with pytest.raises(ValueError, match="layer 'embed' was recorded with another sketch"):
        GradientStore(net, tmp_path, features=10)
    with pytest.raises(ValueError, match=r"layer 'embed' was recorded with another sketch \(seed\), 0 instead of 1;"):
        GradientStore(net, tmp_path, features=8, seed=1)
    with pytest.raises(ValueError, match="has a layer 'mix' that is not recorded now"):
        GradientStore(net, tmp_path, features=8, select=lambda name, _: name != "mix")
    before = net.head.weight.detach().clone()
    with GradientStore(net, tmp_path, features=8) as store:
        backward(net, data)
        with torch.no_grad():
            net.head.weight += 1
        with pytest.raises(RuntimeError, match="weights of the model changed"):
            store.record()
        net.head.weight.data = before.clone()
    for change in (lambda weight: weight.data.add_(1), lambda weight: setattr(weight, "data", weight.data + 1)):
        store = GradientStore(net, tmp_path, features=8)
        with pytest.raises(RuntimeError, match="weights of the model changed"), store:
            change(net.head.weight)
        net.head.weight.data = before.clone()
    with torch.no_grad():
        net.head.weight += 1
    with pytest.raises(ValueError, match="recorded with other weights"):
        GradientStore(net, tmp_path, features=8)


def test_overlapping_processes_are_refused(net, data, tmp_path):
    record(GradientStore(net, tmp_path, features=8, first=20, shard_rows=16), net, data)
    with pytest.raises(ValueError, match=r"example 30 is in shard-000000000020\.npy, which begins at 20"):
        GradientStore(net, tmp_path, features=8, first=30, shard_rows=16)
    with pytest.raises(ValueError, match="example 20 was recorded already"):
        record(GradientStore(net, tmp_path, features=8, shard_rows=16), net, data)


def test_damage_is_noticed(net, data, tmp_path):
    record(GradientStore(net, tmp_path, features=8), net, data)
    path = tmp_path / "shard-000000000000.npy"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match="damaged"):
        GradientStore(net, tmp_path, features=8)
    with pytest.raises(ValueError, match="damaged"):
        merge(tmp_path / "merged", tmp_path)
    (tmp_path / "shard-000000000000.json").write_text('{"first": 0, "rows": "many"}')
    with pytest.raises(ValueError, match="does not describe a shard"):
        GradientStore(net, tmp_path, features=8)
    (tmp_path / "store.json").write_text("{}")
    with pytest.raises(ValueError, match="does not describe a store"):
        GradientStore(net, tmp_path, features=8)
    with pytest.raises(FileNotFoundError, match="not a store of gradients"):
        merge(tmp_path / "merged", tmp_path / "nothing")


def test_batches_of_none_and_of_one_are_batches(tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 3))
    tokens = torch.tensor([0, 3, 0])
    for name, batches in {"whole": [3], "parts": [0, 1, 0, 2]}.items():
        with GradientStore(net, tmp_path / name, features=8) as store:
            for part in tokens.split(batches):
                net(part).square().sum().backward()
                store.record()
    np.testing.assert_allclose(numbers(tmp_path / "parts"), numbers(tmp_path / "whole"), rtol=1e-5)
    with GradientStore(net, tmp_path / "single", features=8):
        loss = net(torch.tensor(1)).sum()
        with pytest.raises(RuntimeError, match=r"layer '1': expected a batch of inputs, got the shape \(4,\)"):
            loss.backward()


def test_running_means_belong_to_the_model(tmp_path):
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)).eval()
    x = torch.randn(4, 3)
    with GradientStore(net, tmp_path / "store", features=8) as store:
        net(x).sum().backward()
        store.record()
    net[1].running_mean += 1
    with pytest.raises(ValueError, match="recorded with other weights"):
        GradientStore(net, tmp_path / "store", features=8)
    # In training mode they do not count, and change.
    net.train()
    with pytest.warns(UserWarning, match="training mode"):
        store = GradientStore(net, tmp_path / "training", features=8)
    with store:
        net(x).sum().backward()
        assert store.record() == 4


RECORDER = """
import sys, torch
from argand.attribution import GradientStore

torch.manual_seed(0)
net = torch.nn.Linear(64, 64)
x = torch.randn(2048, 64)
try:
    with GradientStore(net, sys.argv[1], features=512, shard_rows=16) as store:
        print("open", flush=True)
        sys.stdin.readline()
        for first in range(store.recorded, len(x), 8):
            net(x[first : first + 8]).square().sum().backward()
            print(store.record(), flush=True)
except ValueError as error:
    sys.exit(str(error))
"""


def test_killed_and_competing_processes_leave_the_same_bytes(tmp_path):
    """Killed wherever they are; then two at the same examples, of which one wins every shard; then one to the end."""

    def start(folder, stdin=subprocess.DEVNULL):
        command = [sys.executable, "-c", RECORDER, str(tmp_path / folder)]
        return subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    for records in (30, 47):
        process = start("killed")
        for _ in range(records):
            assert process.stdout.readline()
        process.kill()
        process.communicate()
    (tmp_path / "killed/.argand-left.partial").write_text("left by a process that was killed")
    both = [start("killed", subprocess.PIPE) for _ in range(2)]
    # Both open the store before either records.
    for process in both:
        assert process.stdout.readline() == b"open\n"
    for process in both:
        process.stdin.write(b"\n")
        process.stdin.flush()
    assert "was recorded already" in "".join(process.communicate()[1].decode() for process in both)
    for folder in ("killed", "whole"):
        assert not start(folder).communicate()[1]
    assert files(tmp_path / "killed") == files(tmp_path / "whole")
    assert len(files(tmp_path / "whole")) == 1 + 2 * 2048 // 16


def test_weights_that_get_more_than_is_recorded_are_refused(tmp_path):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.mix = nn.Embedding(9, 4), nn.Linear(4, 4)

        def forward(self, tokens):
            return nn.functional.linear(self.mix(self.embed(tokens)).mean(1), self.embed.weight)

    tokens = torch.randint(9, (6, 5))
    net = Tied()
    hooked = nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 4))
    hooked[1].register_forward_hook(lambda layer, given, output: 2 * output)
    for dtype in (torch.float32, torch.float64):
        for model, name in ((net.to(dtype), "embed"), (hooked.to(dtype), "1")):
            store = GradientStore(model, tmp_path / f"{name}-{dtype}", features=8)
            with store:
                loss = model(tokens).square().sum()
                with pytest.raises(RuntimeError, match=f"layer '{name}': its weight has another gradient"):
                    loss.backward()
    # The rest of the model can be recorded.
    with GradientStore(net, tmp_path / "rest", features=8, select=lambda name, _: name == "mix") as store:
        net(tokens).square().sum().backward()
        assert store.record() == 6
    with GradientStore(net.mix, tmp_path / "penalty", features=8) as store:
        loss = net.mix(torch.randn(6, 4).double()).square().sum() + net.mix.weight.square().sum()
        with pytest.raises(RuntimeError, match="in a penalty for example"):
            loss.backward()
    # No reason: a sum that overflows half precision, or comes as a sparse tensor.
    half = nn.Linear(1, 1).half()
    for name, layer, given in (
        ("half", half, torch.full((1000, 1), 200.0).half()),
        ("sparse", nn.Embedding(9, 4, sparse=True), tokens),
    ):
        with GradientStore(layer, tmp_path / name, features=8) as store:
            layer(given).sum().backward()
            assert store.record() == len(given)
    assert half.weight.grad.isinf().all()
    views = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    views[1].weight = nn.Parameter(views[0].weight.data)
    with pytest.raises(ValueError, match="layers '0' and '1' share one weight"):
        GradientStore(views, tmp_path / "views")


@pytest.mark.filterwarnings("ignore")
def test_compiled_models_are_the_same_models(tmp_path):
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    x = torch.randn(6, 4)
    for name, model in {"plain": net, "compiled": torch.compile(net, backend="aot_eager")}.items():
        with GradientStore(model, tmp_path / name, features=8) as store:
            model(x).square().sum().backward()
            store.record()
    assert (tmp_path / "plain/store.json").read_bytes() == (tmp_path / "compiled/store.json").read_bytes()
    np.testing.assert_allclose(numbers(tmp_path / "compiled"), numbers(tmp_path / "plain"), rtol=1e-4, atol=1e-6)
    torch._dynamo.reset()


def test_training_mode_is_noticed(tmp_path):
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5))
    with pytest.warns(UserWarning, match="layer '1' is in training mode"):
        GradientStore(net, tmp_path, features=8)


def test_scores_of_a_store_are_those_of_its_numbers(net, data, tmp_path):
    for name, rows in (("train", slice(0, 30)), ("queries", slice(30, 40))):
        part = tuple(tensor[rows] for tensor in data)
        record(GradientStore(net, tmp_path / name, features=8, shard_rows=16), net, part, batch=10)
    train, queries = (numbers(tmp_path / name).astype(float) for name in ("train", "queries"))
    store = GradientStore(net, tmp_path / "train", features=8, shard_rows=16)
    scores = score_matrix(store, tmp_path / "queries", score="similarity")
    np.testing.assert_allclose(scores, queries @ train.T, rtol=1e-9)
    found = attribute(store, tmp_path / "queries", top=3, score="similarity")
    np.testing.assert_array_equal(found.helpful.examples, np.argsort(-scores, axis=1)[:, :3])
    np.testing.assert_array_equal(found.harmful.examples, np.argsort(scores, axis=1)[:, :3])


def test_large_vocabularies_go_in_parts(net, data, tmp_path, monkeypatch):
    record(GradientStore(net, tmp_path / "whole", features=8), net, data)
    monkeypatch.setattr("argand.attribution._layers._ONE_HOT", 25)
    record(GradientStore(net, tmp_path / "parts", features=8), net, data)
    np.testing.assert_allclose(numbers(tmp_path / "parts"), numbers(tmp_path / "whole"), rtol=1e-5, atol=1e-6)


def test_scoring_does_not_import_torch():
    code = "import sys, argand.attribution; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


class Arrival:
    """What a GPU would tell of a copy: here, that somebody lets it arrive."""

    def __init__(self):
        self.happened = threading.Event()

    def synchronize(self):
        assert self.happened.wait(60)


def test_what_arrives_later_is_kept_in_order_up_to_a_failure(tmp_path):
    writer = Writer(tmp_path, {"one": 2, "two": 1}, 4, 0)
    batches = [torch.full((3, 3), float(number)) for number in range(4)]
    batches[2][1, 2] = np.nan
    arrivals = [Arrival() for _ in batches]
    for batch, arrival in zip(batches, arrivals):
        writer._expect(batch, arrival)
    assert writer.end == 0
    for arrival in reversed(arrivals):
        arrival.happened.set()
    # The last batch comes behind one that is refused: its examples would have other numbers.
    with pytest.raises(ValueError, match=r"example 7: the gradient of layer 'two' is NaN .* goes on at example 6"):
        writer.flush()
    assert writer.end == 6
    batches[2][1, 2] = 2.0
    for batch in batches[2:]:
        writer._expect(batch, arrivals[0])
    writer.flush()
    written = np.concatenate([np.load(path) for path in sorted(tmp_path.glob("*.npy"))])
    np.testing.assert_array_equal(written, np.concatenate(batches))
    assert [len(np.load(path)) for path in sorted(tmp_path.glob("*.npy"))] == [4, 4, 4]
