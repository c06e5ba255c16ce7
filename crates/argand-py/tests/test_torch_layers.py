"""Compact bilinear pooling and sketches of gradients: what they compute, and bad input."""

import copy
import pickle

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; make test-torch installs it")

from argand.torch import (  # noqa: E402
    CompactBilinearPooling,
    GradientSketch,
    PolynomialSketch,
    TensorProductSketch,
    signed_sqrt,
)
from torch.autograd import gradcheck, gradgradcheck  # noqa: E402
from torch.func import functional_call, grad, vmap  # noqa: E402

pytestmark = [pytest.mark.filterwarnings(f"ignore::{kind}:torch") for kind in ("FutureWarning", "DeprecationWarning")]


@pytest.fixture(autouse=True)
def same_numbers():
    torch.manual_seed(0)


def maps(device, *channels, shape=(2,), side=(3, 4), dtype=torch.float64):
    return [torch.randn(*shape, c, *side, dtype=dtype, device=device, requires_grad=True) for c in channels]


def plain(sketch, *maps):
    """Features of every position, then their sum."""
    return sketch(*(part.permute(0, 2, 3, 1) for part in maps)).sum((1, 2))


@pytest.mark.parametrize("method", ["ctr-product-srht", "tensor-sketch", "gaussian"])
@pytest.mark.parametrize("channels", [[6], [6, 5], [6, 5, 4]])
def test_pooling_is_the_sum_over_positions(device, method, channels):
    given = maps(device, *channels)
    if len(channels) == 1:
        pooling = CompactBilinearPooling(6, 64, method, 3, signed_sqrt=False, l2=False)
        sketch = PolynomialSketch(6, 64, 2, method=method, seed=3)
    else:
        pooling = CompactBilinearPooling(channels, 64, method, 3, signed_sqrt=False, l2=False)
        sketch = TensorProductSketch(channels, 64, method=method, seed=3)
    torch.testing.assert_close(pooling(*given), plain(sketch, *given), rtol=1e-12, atol=1e-12)
    g = torch.randn(2, 64, dtype=torch.float64, device=device)
    got = torch.autograd.grad(pooling(*given), given, g)
    want = torch.autograd.grad(plain(sketch, *given), given, g)
    torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


def test_pooled_inner_products_are_those_of_bilinear_pooling(device):
    (x,) = maps(device, 6, shape=(8,))
    pooled = CompactBilinearPooling(6, 2**14, seed=0, signed_sqrt=False, l2=False)(x)
    bilinear = torch.einsum("bihw,bjhw->bij", x, x).flatten(1)
    error = (pooled @ pooled.T - bilinear @ bilinear.T).norm() / (bilinear @ bilinear.T).norm()
    assert error < 0.03


def test_pooling_with_signed_square_root_and_unit_norm(device):
    (x,) = maps(device, 6)
    raw = CompactBilinearPooling(6, 64, seed=0, signed_sqrt=False, l2=False)(x)
    both = CompactBilinearPooling(6, 64, seed=0)(x)
    want = torch.nn.functional.normalize(raw.sign() * raw.abs().sqrt(), dim=-1)
    torch.testing.assert_close(both, want)
    assert (both.norm(dim=-1) - 1).abs().max() < 1e-12


def test_pooling_reads_channels_last_in_place(device):
    (x,) = maps(device, 6)
    pooling = CompactBilinearPooling(6, 64, seed=0)
    torch.testing.assert_close(pooling(x.contiguous(memory_format=torch.channels_last)), pooling(x))
    rows = x.detach().contiguous(memory_format=torch.channels_last).flatten(-2).transpose(-1, -2)
    assert rows.is_contiguous()


def test_pooling_of_one_image_without_a_batch(device):
    (x,) = maps(device, 6)
    pooling = CompactBilinearPooling(6, 64, seed=0)
    torch.testing.assert_close(pooling(x[0]), pooling(x)[0])


def test_gradcheck_of_pooling(device):
    given = maps(device, 4, 3, side=(2, 2))
    pooling = CompactBilinearPooling([4, 3], 8, seed=0, signed_sqrt=False)
    assert gradcheck(pooling, given, check_forward_ad=True, nondet_tol=1e-12)
    assert gradgradcheck(pooling, given, check_fwd_over_rev=True, nondet_tol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_signed_square_root_has_a_finite_gradient_at_zero(dtype):
    x = torch.tensor([-4.0, 0.0, 9.0], dtype=dtype, requires_grad=True)
    torch.testing.assert_close(signed_sqrt(x), torch.tensor([-2.0, 0.0, 3.0], dtype=dtype))
    signed_sqrt(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.tensor([0.25, 0.0, 1 / 6], dtype=dtype))


def test_pooling_in_a_compiled_model(device):
    torch.compiler.reset()
    pooling = CompactBilinearPooling(6, 64, seed=0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 6, 3), torch.nn.ReLU(), pooling, torch.nn.Linear(64, 2)).to(device)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 3, 8, 8, device=device)
    torch.testing.assert_close(compiled(x), model(x))


def test_pooling_is_saved_with_its_spec():
    model = CompactBilinearPooling([6, 5], 64, seed=0)
    CompactBilinearPooling([6, 5], 64, seed=0).load_state_dict(model.state_dict())
    with pytest.raises(RuntimeError, match="state_dict: holds another sketch"):
        CompactBilinearPooling([6, 5], 64, seed=1).load_state_dict(model.state_dict())
    again = pickle.loads(pickle.dumps(model))
    assert again.sketch.spec == model.sketch.spec


def test_pooling_refuses_bad_maps():
    pooling = CompactBilinearPooling([6, 5], 64)
    x, y = torch.randn(2, 6, 3, 4), torch.randn(2, 5, 3, 4)
    with pytest.raises(ValueError, match="maps: expected 2 feature maps, got 1"):
        pooling(x)
    with pytest.raises(
        RuntimeError, match=r"maps\[1\]: expected the shape \(\*, 5, height, width\), got \(2, 6, 3, 4\)"
    ):
        pooling(x, x)
    with pytest.raises(RuntimeError, match=r"maps\[1\]: expected the batch and positions of maps\[0\]"):
        pooling(x, y[..., :2])
    with pytest.raises(RuntimeError, match=r"maps\[1\]: expected the batch and positions of maps\[0\]"):
        pooling(x, y[:1])
    with pytest.raises(ValueError, match="in_channels: expected one number, or those of two or more maps"):
        CompactBilinearPooling([6], 64)
    with pytest.raises(ValueError, match="out_features: expected an even number"):
        CompactBilinearPooling(6, 63)


# Sketches of gradients.


class Tokens(torch.nn.Module):
    """Two linear layers on tokens, one of which is called twice."""

    def __init__(self):
        super().__init__()
        self.first, self.shared, self.head = torch.nn.Linear(5, 7), torch.nn.Linear(7, 7), torch.nn.Linear(7, 3)

    def forward(self, x):
        x = self.first(x).tanh()
        x = self.shared(self.shared(x).tanh()).tanh()
        return self.head(x.mean(1))


def per_sample_gradients(model, x, loss):
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    one = lambda weights, x: loss(functional_call(model, weights, (x[None],)))
    return vmap(grad(one), in_dims=(None, 0))(weights, x)


@pytest.mark.parametrize("method", ["ctr-product-srht", "tensor-sketch", "gaussian"])
def test_sketches_of_gradients_are_those_of_the_formed_ones(device, method):
    model = Tokens().to(device, torch.float64)
    x = torch.randn(4, 6, 5, dtype=torch.float64, device=device)
    loss = lambda out: out.square().sum()
    formed = per_sample_gradients(model, x, loss)
    with GradientSketch.attach(model, 16, method, seed=5) as sketches:
        loss(model(x)).backward()
        found = sketches.collect()
    assert list(found) == ["first", "shared", "head"]
    for name, sketch in found.items():
        # M = Σ g aᵀ: the sketch is linear in it, so that of its columns with unit vectors adds up to it.
        gradient = formed[f"{name}.weight"]
        units = torch.eye(gradient.shape[2], dtype=torch.float64, device=device).expand(4, -1, -1)
        want = sketches.sketches[name](units, gradient.transpose(1, 2))
        torch.testing.assert_close(sketch, want, rtol=1e-10, atol=1e-10)


def test_inner_products_of_sketches_are_those_of_gradients(device):
    model = torch.nn.Linear(12, 9, device=device)
    x = torch.randn(10, 7, 12, device=device)
    loss = lambda out: out.logsumexp(-1).sum()
    formed = per_sample_gradients(model, x, loss)["weight"].flatten(1)
    with GradientSketch.attach(model, 2**14) as sketches:
        loss(model(x)).backward()
        (found,) = sketches.collect().values()
    assert (found @ found.T - formed @ formed.T).norm() < 0.03 * (formed @ formed.T).norm()


def test_hooks_leave_the_backward_pass_alone(device):
    model = Tokens().to(device)
    x = torch.randn(4, 6, 5, device=device)
    model(x).sum().backward()
    want = [weight.grad.clone() for weight in model.parameters()]
    model.zero_grad()
    sketches = GradientSketch.attach(model, 16)
    model(x).sum().backward()
    assert all(torch.equal(weight.grad, g) for weight, g in zip(model.parameters(), want))
    assert len(sketches.collect()) == 3 and not sketches.collect()
    sketches.detach()
    model(x).sum().backward()
    assert not sketches.collect()
    with torch.no_grad(), GradientSketch.attach(model, 16) as sketches:
        model(x)
        assert not sketches.collect()


def test_some_layers_can_be_selected(device):
    model = Tokens().to(device)
    with GradientSketch.attach(model, 16, select=lambda name, _: name != "head") as sketches:
        model(torch.randn(4, 6, 5, device=device)).sum().backward()
        assert list(sketches.collect()) == ["first", "shared"]


def test_modules_with_attached_sketches_are_copied_and_pickled():
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    x = torch.randn(3, 4)
    with GradientSketch.attach(model, 16) as sketches:
        for again in [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]:
            # Nobody listens to a copy, whose batches may have any size.
            for rows in (3, 2):
                again(x[:rows]).sum().backward()
            assert sketches.collect() == {}
        model(x).sum().backward()
        assert len(sketches.collect()) == 2


def test_sketches_of_gradients_under_autocast(device):
    model = Tokens().to(device)
    with GradientSketch.attach(model, 16) as sketches, torch.autocast(device, torch.bfloat16):
        model(torch.randn(4, 6, 5, device=device)).float().square().sum().backward()
        found = sketches.collect()
    assert all(sketch.isfinite().all() and sketch.shape == (4, 16) for sketch in found.values())


def test_gradient_sketches_refuse_bad_input():
    sketch = GradientSketch(5, 3, 16)
    a, g = torch.randn(4, 6, 5), torch.randn(4, 6, 3)
    assert sketch(a[:, 0], g[:, 0]).shape == (4, 16)
    with pytest.raises(RuntimeError, match=r"activations: expected the shape \(batch, \*, 5\), got \(4, 6, 3\)"):
        sketch(g, a)
    with pytest.raises(
        RuntimeError, match=r"gradients: expected the leading dimensions of activations, \(4, 6\), got \(4, 5\)"
    ):
        sketch(a, g[:, :5])
    with pytest.raises(TypeError, match="activations: expected a tensor"):
        sketch(None, g)
    with pytest.raises(ValueError, match="features: expected an even number"):
        GradientSketch(5, 3, 15)
    with pytest.raises(TypeError, match=r"module: expected a torch\.nn\.Module"):
        GradientSketch.attach(torch.relu, 16)
    with pytest.raises(ValueError, match="module: expected linear layers to sketch, got 0 of 0"):
        GradientSketch.attach(torch.nn.ReLU(), 16)
    with pytest.raises(ValueError, match="module: expected linear layers to sketch, got 0 of 1"):
        GradientSketch.attach(torch.nn.Linear(5, 3), 16, select=lambda *_: False)


def test_signed_square_roots_in_half_precision(device):
    x = torch.tensor([-1e-6, 0.0, 3e-5, 1e-4], device=device)
    got, want = signed_sqrt(x.half()), x.half().float().sign() * x.half().float().abs().sqrt()
    torch.testing.assert_close(got.float(), want, rtol=1e-3, atol=1e-6)
    with pytest.raises(TypeError, match="x: expected a floating-point tensor"):
        signed_sqrt(torch.arange(3, device=device))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_pooling_of_maps_of_zeros(device, dtype):
    (x,) = maps(device, 8, dtype=dtype)
    x = x.detach().clone()
    x[1] = 0
    x.requires_grad_()
    found = CompactBilinearPooling(8, 16, seed=0)(x)
    assert (found[1] == 0).all()
    (first,) = torch.autograd.grad(found.sum(), x, create_graph=True)
    assert first.isfinite().all() and (first[1] == 0).all()
    if dtype.itemsize > 2:
        (second,) = torch.autograd.grad(first.square().sum(), x)
        assert second.isfinite().all()


def test_bad_maps_are_named(device):
    with pytest.raises(ValueError, match="in_channels"):
        CompactBilinearPooling(0, 16)
    with pytest.raises(TypeError, match=r"maps\[0\]: expected a tensor, got list"):
        CompactBilinearPooling(8, 16)([[1.0]])


def test_attached_batches_have_one_size(device):
    net, x = torch.nn.Linear(6, 4, device=device), torch.randn(4, 6, device=device)
    with GradientSketch.attach(net, 8):
        net(x).sum().backward()
        with pytest.raises(RuntimeError, match="expected 4 samples"):
            net(x[:1]).sum().backward()


def test_attached_layers_called_by_keyword(device):
    net, x = torch.nn.Linear(6, 4, device=device), torch.randn(3, 6, device=device)
    with GradientSketch.attach(net, 8) as sketches:
        net(input=x).sum().backward()
        assert sketches.collect()[""].shape == (3, 8)


@pytest.mark.parametrize("kind", ["frozen", "contiguous", "transposed", "autocast"])
def test_attached_layers_notice_changed_inputs(device, kind):
    net, x = torch.nn.Linear(6, 6, device=device), torch.randn(3, 6, 5, device=device).transpose(1, 2)
    net.weight.requires_grad_(kind != "frozen")
    # PyTorch keeps a copy of transposed tokens, and of those in another type.
    x = x if kind == "transposed" else x.contiguous()
    with GradientSketch.attach(torch.nn.Sequential(net), 8) as sketches:
        with torch.autocast(device, torch.bfloat16, enabled=kind == "autocast"):
            y = net(x)
        x += 1
        with pytest.raises(RuntimeError, match="layer '0': its input was changed in place after it was called"):
            y.sum().backward()
        assert not sketches.collect()
