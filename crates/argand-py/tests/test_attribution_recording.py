"""Recording where PyTorch has its own mind: sessions that fail, checkpoints, half precision, positions and modes."""

import contextlib
import copy
import json
import threading
import warnings
import weakref
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; make test-torch installs it")

from argand.attribution import GradientStore, _files, _store  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

pytestmark = [pytest.mark.filterwarnings(f"ignore::{kind}:torch") for kind in ("FutureWarning", "DeprecationWarning")]


@pytest.fixture
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).eval()


def record(store, net, x, batch=4):
    for part in x.split(batch):
        net(part).square().sum().backward()
        store.record()


def numbers(folder):
    return np.concatenate([np.load(path) for path in sorted(Path(folder).glob("shard-*.npy"))])


def files(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


@pytest.mark.parametrize("fails", [False, True])
def test_what_was_recorded_of_changing_weights_is_removed(net, tmp_path, fails):
    x, good = torch.randn(40, 4), {name: value.clone() for name, value in net.state_dict().items()}
    settings = {"features": 8, "shard_rows": 16}
    with GradientStore(net, tmp_path, **settings) as store:
        record(store, net, x[:20])
    with GradientStore(net, tmp_path, first=100, **settings) as store:
        record(store, net, x[:4])
    before = files(tmp_path)
    store = GradientStore(net, tmp_path, **settings)

    def changing():
        with store:
            record(store, net, x[:20])
            net[0].weight.data.add_(1)
            record(store, net, x[:8])
            if fails:
                raise KeyError("something else")

    # Shard 16 was filled, and shard 32 written or begun. Of an earlier session, and of others, everything stays.
    message = "weights of the model changed.*examples 20 to 47, recorded meanwhile, were removed"
    if fails:
        with pytest.warns(UserWarning, match=message), pytest.raises(KeyError, match="something else"):
            changing()
    else:
        with pytest.raises(RuntimeError, match=message):
            changing()
    assert store.recorded == 20
    assert files(tmp_path) == before
    net.load_state_dict(good)
    with GradientStore(net, tmp_path / "whole", **settings) as whole:
        record(whole, net, x)
    store = GradientStore(net, tmp_path, **settings)
    assert store.recorded == 20
    with store:
        record(store, net, x[20:])
    assert np.array_equal(numbers(tmp_path)[:40], numbers(tmp_path / "whole"))


def test_what_was_recorded_before_a_change_that_pytorch_counts_stays(net, tmp_path):
    x = torch.randn(20, 4)
    store = GradientStore(net, tmp_path, features=8, shard_rows=16)

    def changing():
        with store:
            record(store, net, x)
            with torch.no_grad():
                net[0].weight += 1
            record(store, net, x)

    with warnings.catch_warnings(record=True) as told, pytest.raises(RuntimeError, match="the model changed since"):
        changing()
    assert not told
    assert len(numbers(tmp_path)) == 16


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(("rows", "kept"), [(8, 0), (40, 20)])
def test_a_change_that_pytorch_counts_does_not_hide_another(net, tmp_path, rows, kept, fails):
    x, good = torch.randn(40, 4), {name: value.clone() for name, value in net.state_dict().items()}
    store = GradientStore(net, tmp_path, features=8, shard_rows=rows)

    def changing():
        with store:
            record(store, net, x[:20])
            if kept:
                store.flush()
            net[0].weight.data.mul_(3)
            record(store, net, x[20:36])
            with torch.no_grad():
                net[0].weight += 1
            if fails:
                raise KeyError("something else")

    # Whole shards were written of other weights; a short one was written before, and nothing after it.
    message = f"weights of the model changed.*examples {kept} to 35, recorded meanwhile, were removed"
    told = pytest.warns(UserWarning, match=message) if fails and not kept else contextlib.nullcontext()
    error, match = (KeyError, "something else") if fails else (RuntimeError, message)
    with told, pytest.raises(error, match=match):
        changing()
    assert store.recorded == kept
    assert len([*tmp_path.glob("shard-*.npy")]) == (kept > 0)
    net.load_state_dict(good)
    assert GradientStore(net, tmp_path, features=8, shard_rows=rows).recorded == kept


@pytest.mark.parametrize("summed", [False, True])
def test_weights_that_are_put_back_are_noticed_when_a_shard_is_full(net, tmp_path, monkeypatch, summed):
    if summed:
        # As on a GPU.
        tensors = [weight.detach() for weight in net.parameters()]
        monkeypatch.setattr(_store, "_quick_digest", lambda *_: _store._sum(tensors))
    x = torch.randn(40, 4)
    store = GradientStore(net, tmp_path, features=8, shard_rows=16)

    def changing():
        with store:
            for part in x.split(4):
                net[0].weight.data.neg_()
                record(store, net, part)
                net[0].weight.data.neg_()

    with pytest.raises(RuntimeError, match=r"weights of the model changed.*examples 0 to 39, recorded meanwhile"):
        changing()
    assert store.recorded == 0
    assert not [*tmp_path.glob("shard-*")]


@pytest.mark.parametrize("dtype", [torch.bool, torch.bfloat16, torch.float32, torch.float64])
def test_sums_of_weights_tell_what_changed(device, dtype):
    torch.manual_seed(0)
    long = torch.randn((1 << 20) + 5, device=device)
    tensors = [(long if size is None else long[:size]).clone().gt(0).to(dtype) for size in (6, None, 0)]
    want = _store._sum(tensors)
    assert _store._sum([tensor.clone() for tensor in tensors]) == want
    others = [[tensors[1], tensors[0], tensors[2]]]
    for place, change in ((0, torch.logical_not), (1, lambda part: part.flip(0)), (1, lambda part: part.roll(1 << 20))):
        others.append([change(part).to(dtype) if at == place else part for at, part in enumerate(tensors)])
    for at in (0, -1):
        changed = [tensor.clone() for tensor in tensors]
        changed[1][at] = 1 - changed[1][at].double()
        others.append(changed)
    found = [_store._sum(other) for other in others]
    assert want not in found
    assert len({tuple(sums) for sums in found}) == len(others)


@pytest.mark.skipif(_files.fcntl is None, reason="there are no locks of folders")
def test_opening_a_store_waits_for_those_who_write(net, tmp_path):
    GradientStore(net, tmp_path, features=8)
    with _files.alone(tmp_path):
        thread = threading.Thread(target=GradientStore, args=(net, tmp_path), kwargs={"features": 8}, daemon=True)
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
    thread.join(60)
    assert not thread.is_alive()


def test_a_batch_of_none_does_not_end_the_look_at_the_first_pass(tmp_path):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix = nn.Linear(4, 4)

        def forward(self, x):
            return self.mix(x) @ self.mix.weight

    net, x = Twice(), torch.randn(6, 4)
    with GradientStore(net, tmp_path, features=8) as store:
        record(store, net, x[:0], batch=1)
        with pytest.raises(RuntimeError, match="layer 'mix': its weight has another gradient"):
            record(store, net, x)


def test_ids_of_32_bits_are_ids(tmp_path):
    net, tokens = nn.Embedding(9, 4), torch.randint(9, (6, 3))

    def sample():
        net(tokens.int()).square().sum().backward()

    for name, ids in (("long", tokens), ("int", tokens.int())):
        with GradientStore(net, tmp_path / name, features=8) as store:
            record(store, net, ids)
    assert files(tmp_path / "int") == files(tmp_path / "long")
    assert GradientStore(net, tmp_path / "error", error=0.3, sample=sample).layers


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sketches_of_half_precision_are_not_rounded(tmp_path, dtype):
    net, x = nn.Linear(512, 512).to(dtype), torch.ones(1, 512, dtype=dtype)
    with GradientStore(net, tmp_path / "half", features=16) as store:
        (net(x) * 600).float().sum().backward()
        assert net.weight.grad.isfinite().all()
        store.record()
    wide = nn.Linear(512, 512)
    with GradientStore(wide, tmp_path / "wide", features=16) as store:
        (wide(x.float()) * 600).sum().backward()
        store.record()
    np.testing.assert_allclose(numbers(tmp_path / "half"), numbers(tmp_path / "wide"), rtol=1e-5)


def test_a_layer_that_was_frozen_meanwhile_is_named(net, tmp_path):
    store = GradientStore(net, tmp_path, features=8)
    net[2].weight.requires_grad_(False)
    with pytest.raises(RuntimeError, match="layer '2' was frozen after the store was opened"):
        store.__enter__()
    net[2].weight.requires_grad_()
    with store:
        record(store, net, torch.randn(4, 4))
    assert store.recorded == 4


def test_a_layer_that_is_frozen_between_two_records_is_named(net, tmp_path):
    x = torch.randn(4, 4)
    with GradientStore(net, tmp_path, features=8) as store:
        record(store, net, x)
        net[0].weight.requires_grad_(False)
        net[0].bias.requires_grad_(False)
        with pytest.raises(RuntimeError, match="layer '0' was frozen after the store was opened"):
            record(store, net, x)


@pytest.mark.filterwarnings("ignore")
def test_models_that_were_compiled_before_are_told_so(net, tmp_path):
    x, compiled = torch.randn(4, 4), torch.compile(net, backend="aot_eager")
    compiled(x)
    with GradientStore(net, tmp_path, features=8):
        loss = compiled(x).sum()
        with pytest.raises(RuntimeError, match="or the model was compiled and called before the store was opened"):
            loss.backward()
    torch._dynamo.reset()


def test_numbers_of_examples_have_twelve_digits(net, tmp_path):
    x, first = torch.randn(8, 4), 10**12 - 4
    with GradientStore(net, tmp_path, features=8, first=first, shard_rows=2) as store:
        with pytest.raises(ValueError, match=f"examples {first} to {first + 7}: expected numbers below {10**12}"):
            record(store, net, x, batch=8)
        record(store, net, x[:4])
    assert len(numbers(tmp_path)) == 4
    assert GradientStore(net, tmp_path, features=8, first=first, shard_rows=2).recorded == 10**12


@pytest.mark.filterwarnings("error")
def test_nobody_listens_to_copies_and_files_of_a_model(net, tmp_path):
    x = torch.randn(8, 4)
    with GradientStore(net, tmp_path / "store", features=8) as store:
        record(store, net, x[:4])
        torch.save(net, tmp_path / "net.pt")
        copies = [copy.deepcopy(net), torch.load(tmp_path / "net.pt", weights_only=False)]
        for again in copies:
            again(x).sum().backward()
        record(store, net, x[4:])
        assert store.recorded == 8
    for place, again in enumerate(copies):
        for _ in range(2):
            again(x).sum().backward()
        with GradientStore(again, tmp_path / str(place), features=8) as store:
            record(store, again, x)
        assert files(tmp_path / str(place)) == files(tmp_path / "store")


class Checkpointed(nn.Module):
    """A layer that is called three times, once in a checkpoint, whose intermediate results somebody watches."""

    def __init__(self, reentrant):
        super().__init__()
        torch.manual_seed(0)
        self.reentrant, self.watched = reentrant, []
        self.first, self.shared, self.last = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 2)

    def step(self, x):
        x = self.shared(x.sin())
        x = x.cos()
        self.watched.append(weakref.ref(x))
        return self.shared(x)

    def forward(self, x):
        x = self.shared(self.first(x))
        x = self.step(x) if self.reentrant is None else checkpoint(self.step, x, use_reentrant=self.reentrant)
        return self.last(self.shared(x))


def test_checkpoints_of_shared_layers_are_recorded_and_save_memory(tmp_path):
    x = torch.randn(6, 4)
    for reentrant in (None, False, True):
        net = Checkpointed(reentrant)
        with GradientStore(net, tmp_path / str(reentrant), features=8) as store:
            for _ in range(2):
                loss = net(x).square().sum()
                assert (net.watched[-1]() is None) == (reentrant is not None)
                loss.backward()
                store.record()
    np.testing.assert_allclose(numbers(tmp_path / "False"), numbers(tmp_path / "None"), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(numbers(tmp_path / "True"), numbers(tmp_path / "None"), rtol=1e-5, atol=1e-5)


def test_inputs_that_change_are_refused_with_the_layer(net, tmp_path):
    given = torch.randn(6, 4)
    with GradientStore(net, tmp_path, features=8):
        loss = net(given).sum()
        given += 1
        with pytest.raises(RuntimeError, match="layer '0': its input was changed in place after it was called"):
            loss.backward()


class Positions(nn.Module):
    def __init__(self, indices):
        super().__init__()
        self.indices, self.table, self.mix = indices, nn.Embedding(40, 4), nn.Linear(4, 4)

    def forward(self, x):
        table = self.table(self.indices(x.shape[1]))
        return self.mix(x) * (table if table.dim() == 2 else table.sum(1))


@pytest.mark.parametrize(
    "indices",
    [
        lambda count: torch.arange(count) + 2,
        lambda count: torch.arange(count)[:, None] - torch.arange(count) + 15,
        lambda count: torch.arange(count) - torch.arange(count)[:, None] + 15,
    ],
)
def test_tables_of_positions_are_refused(tmp_path, indices):
    net = Positions(indices)
    with GradientStore(net, tmp_path, features=8):
        loss = net(torch.randn(8, 8, 4)).sum()
        with pytest.raises(RuntimeError, match="layer 'table': its input counts positions"):
            loss.backward()


def test_ids_of_examples_may_follow_each_other(tmp_path):
    net = nn.Embedding(9, 4)
    with GradientStore(net, tmp_path, features=8) as store:
        for ids in ([3, 4], [5, 6, 7], [[2, 1], [3, 2]], [[0], [1], [2], [3], [4], [5], [6], [7], [8]]):
            net(torch.tensor(ids)).square().sum().backward()
            store.record()
    assert store.recorded == 16


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_that_pytorch_rounds_are_no_reason(tmp_path, dtype):
    net = nn.Embedding(3, 8).to(dtype)
    with GradientStore(net, tmp_path, features=8) as store:
        net(torch.zeros(16, 256, dtype=torch.long)).sum().backward()
        assert store.record() == 16


class Mixed(nn.Module):
    """Every kind of layer, with long sums, in half precision by autocast or by itself."""

    def __init__(self, kind, sparse=False):
        super().__init__()
        torch.manual_seed(0)
        self.kind = kind
        self.embed = nn.Embedding(50, 16, padding_idx=0, sparse=sparse)
        self.conv, self.plane = nn.Conv1d(16, 16, 1, stride=2), nn.Conv2d(16, 8, 1)
        self.mix, self.head = nn.Linear(16, 16), nn.Linear(8, 4)
        if kind in HALF:
            self.to(HALF[kind])

    def forward(self, tokens):
        kind = self.kind.removesuffix(" autocast")
        with torch.autocast("cpu", HALF[kind], enabled=kind != self.kind):
            x = self.mix(self.embed(tokens)).tanh().transpose(1, 2)
            # Layers see transposed tokens, too, and are called again.
            x = self.mix(self.conv(x).transpose(1, 2)).transpose(1, 2)
            x = self.plane(x.unflatten(2, (4, -1))).flatten(2).tanh().mean(2)
            return self.head(x)


HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}
KINDS = [*HALF, *(f"{kind} autocast" for kind in HALF)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sparse", [False, True])
def test_honest_models_of_half_precision_are_recorded(tmp_path, kind, sparse):
    net, tokens = Mixed(kind, sparse), torch.randint(50, (64, 64))
    for scale in (1.0, 1e-5, 300.0):
        net.zero_grad()
        with GradientStore(net, tmp_path / str(scale), features=8) as store:
            (net(tokens).float().logsumexp(1).sum() * scale).backward()
            assert store.record() == 64


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["embed", "conv", "plane", "mix", "head"])
@pytest.mark.parametrize("wrong", ["hook", "penalty"])
def test_first_passes_of_half_precision_are_looked_at(tmp_path, kind, name, wrong):
    net, tokens = Mixed(kind), torch.randint(1, 50, (64, 64))
    layer = net.get_submodule(name)
    if wrong == "hook":
        layer.register_forward_hook(lambda layer, given, output: 2 * output)
    with GradientStore(net, tmp_path, features=8):
        # Gradients of examples cancel each other.
        loss = (torch.randn(64, 1) * net(tokens).float()).sum()
        if wrong == "penalty":
            loss = loss + 30 * layer.weight.float().square().sum()
        with pytest.raises(RuntimeError, match=f"layer '{name}': its weight has another gradient"):
            loss.backward()


@pytest.mark.parametrize("kind", KINDS)
def test_ties_by_hand_are_noticed_in_half_precision(tmp_path, kind):
    dtype = HALF[kind.removesuffix(" autocast")]
    embed, tokens = nn.Embedding(9, 4), torch.randint(9, (6, 500))
    if kind in HALF:
        embed.to(dtype)
    with GradientStore(embed, tmp_path, features=8):
        with torch.autocast("cpu", dtype, enabled=kind not in HALF):
            loss = (torch.randn(6, 500, 9) * nn.functional.linear(embed(tokens), embed.weight).float()).sum()
        with pytest.raises(RuntimeError, match="its weight has another gradient"):
            loss.backward()


def test_modes_may_change_while_a_store_is_open(tmp_path):
    class Masked(nn.Module):
        def __init__(self):
            super().__init__()
            self.mix = nn.Linear(4, 4)
            self.register_buffer("mask", torch.ones(4, 4).tril())

        def forward(self, x):
            return self.mix(x) @ self.mask

    net, x = Masked(), torch.randn(6, 4)
    for start, end in ((True, False), (False, True)):
        net.train(start)
        with GradientStore(net, tmp_path / str(start), features=8) as store:
            record(store, net, x)
            net.train(end)
        assert len(numbers(tmp_path / str(start))) == 6
    net.eval()
    with pytest.raises(ValueError, match=r"or in another mode \(after eval\(\), buffers count, too\)"):
        GradientStore(net, tmp_path / "True", features=8)


@pytest.mark.parametrize(
    ("part", "random"),
    [
        (nn.LSTM(4, 4, 2, dropout=0.5), True),
        (nn.GRU(4, 4, 2), False),
        (nn.MultiheadAttention(4, 2, dropout=0.5), True),
        (nn.MultiheadAttention(4, 2), False),
        (nn.FeatureAlphaDropout(), True),
        (nn.Dropout(0.0), False),
    ],
)
def test_randomness_of_training_is_noticed(tmp_path, part, random):
    net = nn.ModuleDict({"part": part, "head": nn.Linear(4, 2)})
    expected = (
        pytest.warns(UserWarning, match="layer 'part' is in training mode") if random else contextlib.nullcontext()
    )
    with expected, warnings.catch_warnings():
        if not random:
            warnings.simplefilter("error")
        GradientStore(net, tmp_path, features=8, select=lambda name, _: name == "head")


def test_a_store_that_goes_on_keeps_its_sizes(net, tmp_path):
    def sample():
        net(torch.randn(16, 4)).square().sum().backward()

    store = GradientStore(net, tmp_path, error=0.2, sample=sample)
    for seed in range(3):
        torch.manual_seed(seed)
        assert GradientStore(net, tmp_path, error=0.2, sample=sample).layers == store.layers
    with pytest.raises(ValueError, match=r"another sketch \(seed\)"):
        GradientStore(net, tmp_path, error=0.2, sample=sample, seed=3)
    with pytest.raises(ValueError, match="has a layer '2' that is not recorded now"):
        GradientStore(net, tmp_path, error=0.2, sample=sample, select=lambda name, _: name == "0")
    assert [layer["features"] for layer in json.loads((tmp_path / "store.json").read_text())["layers"]] == [
        *store.layers.values()
    ]
    with pytest.raises(ValueError, match="folder: expected a path, got ''"):
        GradientStore(net, "")
