"""Sketches as PyTorch layers: features, every kind of gradient, compilers, files and bad input.

On the processor, and on a GPU where there is one; with ARGAND_NEEDS_GPU=1 there must be one.
"""

import copy
import io
import itertools
import json
import pickle
import sys
import threading
import time

import argand
import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed; make test-torch installs it")

from argand.torch import (  # noqa: E402
    PolynomialSketch,
    TensorProductSketch,
    _derivatives,
    _kernels,
    polynomial_sketch,
    tensor_product_sketch,
)
from torch.autograd import forward_ad, gradcheck, gradgradcheck  # noqa: E402
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap  # noqa: E402
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

# What PyTorch deprecates in itself.
pytestmark = [pytest.mark.filterwarnings(f"ignore::{kind}:torch") for kind in ("FutureWarning", "DeprecationWarning")]

BASES = ["product-srht", "tensor-srht", "tensor-sketch", "rademacher", "gaussian"]
METHODS = [
    f"{shape}{field}{base}" for shape in ("", "hierarchical-", "chain-") for field in ("", "ctr-") for base in BASES
]
METHODS += ["craft-product-srht", "craft-ctr-tensor-sketch", "craft-hierarchical-ctr-gaussian", "srf"]
FEW = ["ctr-product-srht", "tensor-sketch", "hierarchical-ctr-gaussian", "craft-ctr-tensor-sketch", "srf"]
BOUNDS = {torch.float32: 1e-5, torch.float64: 1e-12}


def layer(method="ctr-product-srht", dim=5, features=8, degree=3, **keywords):
    """A layer whose constant is not zero."""
    constants = {"gamma": 0.5, "coef0": 0.5} if method == "srf" else {"gamma": 0.7, "coef0": 0.4}
    keywords = {**constants, "seed": 3, "craft_dim": 2 * features, **keywords}
    return PolynomialSketch(dim, features, degree, method=method, **keywords)


def rows(*shape, device="cpu", dtype=torch.float64, seed=0, requires_grad=True):
    x = torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return x.to(device, dtype).requires_grad_(requires_grad)


def close(got, want, bound=1e-12):
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    assert got.device == want.device
    assert (got - want).abs().max() <= bound * max(1, want.abs().max())


# The same features as in the rest of Argand.


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_features_are_those_of_the_rest_of_argand(device, method, dtype):
    x = rows(37, 5, device=device, dtype=dtype, requires_grad=False)
    sketch = layer(method)
    data = json.loads(sketch.spec)
    if method == "srf":
        estimator = argand.SphericalSketch(3, s=2.0, n_components=8, random_state=3)
    else:
        keywords = {"gamma": data["gamma"], "coef0": data["coef0"], "craft_dim": 16, "random_state": 3}
        estimator = argand.PolynomialSketch(3, n_components=8, method=method, **keywords)
    want = estimator.fit(x.cpu().numpy()).transform(x.cpu().numpy())
    assert json.loads(estimator.spec) == data
    close(sketch(x), torch.from_numpy(want).to(device), BOUNDS[dtype])


@pytest.mark.parametrize("method", [method for method in METHODS if method != "srf"])
def test_products_are_those_of_the_rest_of_argand(device, method):
    tables = [rows(9, dim, device=device, seed=dim, requires_grad=False) for dim in (5, 3, 4)]
    arrays = [table.cpu().numpy() for table in tables]
    estimator = argand.TensorProductSketch(None, 8, method, coef0=0.3, craft_dim=16, random_state=1).fit(arrays)
    sketch = TensorProductSketch([5, 3, 4], 8, method=method, coef0=0.3, seed=1, craft_dim=16)
    assert sketch.spec == estimator.spec
    close(sketch(*tables), torch.from_numpy(estimator.transform(arrays)).to(device))


def test_specs_are_exchanged(device):
    x = rows(4, 5, device=device, requires_grad=False)
    estimator = argand.PolynomialSketch(3, n_components=8, random_state=3).fit(x.cpu().numpy())
    ours = PolynomialSketch.from_spec(estimator.spec)
    assert (ours.in_features, ours.out_features, ours.method) == (5, 8, "ctr-product-srht")
    close(ours(x), torch.from_numpy(estimator.transform(x.cpu().numpy())).to(device))
    product = TensorProductSketch([5, 3], 8, seed=2)
    again = TensorProductSketch.from_spec(product.spec, pool=0)
    assert again.spec == product.spec and again.in_features == [5, 3] and again.pool == 0


def test_functions_under_the_layers(device):
    x, y = rows(4, 5, device=device), rows(4, 3, device=device)
    sketch, product = layer(), TensorProductSketch([5, 3], 8, seed=2)
    assert torch.equal(polynomial_sketch(x, sketch.spec), sketch(x))
    assert torch.equal(tensor_product_sketch([x, y], product.spec), product(x, y))
    close(tensor_product_sketch([x, y], product.spec, pool=0), product(x, y).sum(0))


def test_a_seed_comes_from_the_generator_of_pytorch():
    torch.manual_seed(4)
    first = PolynomialSketch(5, 8)
    torch.manual_seed(4)
    assert PolynomialSketch(5, 8).spec == first.spec
    assert PolynomialSketch(5, 8).spec != first.spec


@pytest.mark.parametrize("shape", [(5,), (1, 5), (7, 5), (2, 3, 5), (2, 1, 3, 4, 5)])
def test_any_leading_dimensions(device, shape):
    x = rows(*shape, device=device)
    found = layer()(x)
    assert found.shape == (*shape[:-1], 8)
    close(found.reshape(-1, 8), layer()(x.reshape(-1, 5)))


@pytest.mark.parametrize("shape", [(0, 5), (3, 0, 5)])
def test_empty_batches(device, shape):
    x = rows(*shape, device=device)
    found = layer()(x)
    assert found.shape == (*shape[:-1], 8)
    found.sum().backward()
    assert x.grad.shape == x.shape
    pooled = layer(pool=0)(x)
    assert pooled.shape == (*shape[1:-1], 8) and (pooled == 0).all()
    pooled.sum().backward()


@pytest.mark.parametrize("method", FEW)
@pytest.mark.parametrize("pool", [0, 1, 2, -2])
def test_pooled_features_are_sums(device, method, pool):
    x = rows(3, 4, 2, 5, device=device)
    pooled, every = layer(method, pool=pool), layer(method)
    close(pooled(x), every(x).sum(pool))
    g = rows(*pooled(x).shape, device=device, seed=1)
    (got,) = torch.autograd.grad(pooled(x), x, g)
    (want,) = torch.autograd.grad(every(x).sum(pool), x, g)
    close(got, want)


def test_pooled_features_of_other_methods(device):
    x = rows(7, 6, 5, device=device)
    close(layer("gaussian", pool=1)(x), layer("gaussian")(x).sum(1))
    (got,) = torch.autograd.grad(layer("gaussian", pool=1)(x).sum(), x)
    (want,) = torch.autograd.grad(layer("gaussian")(x).sum(), x)
    close(got, want)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(device, dtype):
    x = rows(16, 64, device=device, dtype=dtype, requires_grad=False).div(8).requires_grad_()
    sketch = layer(dim=64, features=128)
    wide = x.detach().float().requires_grad_()
    found, want = sketch(x), sketch(wide)
    assert found.dtype == dtype
    bound = 2**-7 if dtype == torch.bfloat16 else 2**-9
    close(found.float(), want, bound)
    found.float().square().sum().backward()
    want.square().sum().backward()
    assert x.grad.dtype == dtype
    assert (x.grad.float() - wide.grad).norm() <= 4 * bound * wide.grad.norm()


def test_tensors_of_the_processor_are_read_in_place(monkeypatch):
    seen = []
    compiled = _kernels._argand.layer

    def spy(sketch, tables, out, group, threads):
        seen.extend(table.ctypes.data for table in tables)
        compiled(sketch, tables, out, group, threads)

    monkeypatch.setattr(_kernels._argand, "layer", spy)
    x = rows(2, 3, 5, requires_grad=False)
    layer()(x)
    assert seen == [x.data_ptr()]


def test_tensors_that_are_flags(device):
    # PyTorch keeps the minus sign of this one, and all zeros of the other, out of memory.
    negative = torch.complex(*(rows(4, 5, device=device, requires_grad=False) for _ in range(2))).conj().imag
    zeros = torch._efficientzerotensor((4, 5), dtype=torch.float64, device=device)
    assert negative.is_neg() and zeros._is_zerotensor()
    for x in (negative, zeros):
        close(layer()(x), layer()(x.resolve_neg() + torch.zeros(4, 5, dtype=torch.float64, device=device)))


def test_other_threads_run_meanwhile():
    sketch, x = PolynomialSketch(512, 4096, degree=4, seed=0), torch.randn(4000, 512)
    sketch(x[:1])
    ticks, stop = [0], threading.Event()

    def tick():
        while not stop.is_set():
            ticks[0] += 1
            time.sleep(1e-4)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        before = ticks[0]
        sketch(x)
        during = ticks[0] - before
    finally:
        stop.set()
        thread.join()
    assert during > 3


@pytest.mark.usefixtures("cuda")
def test_the_current_stream_is_used():
    sketch, x = layer(dim=256, features=512).cuda(), rows(4096, 256, device="cuda", requires_grad=False)
    want = sketch(x + x)
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        y = x
        for _ in range(20):
            y = y + 0
        close(sketch(y + y), want)


# Every gradient.


@pytest.mark.parametrize("method", METHODS)
def test_gradcheck(device, method):
    assert gradcheck(layer(method), rows(3, 5, device=device), check_forward_ad=True, nondet_tol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_gradgradcheck(device, method):
    assert gradgradcheck(layer(method), rows(2, 5, device=device), check_fwd_over_rev=True, nondet_tol=1e-12)


@pytest.mark.parametrize("coef0", [0.0, 0.3])
@pytest.mark.parametrize("pool", [None, 1])
def test_gradcheck_of_products(device, coef0, pool):
    sketch = TensorProductSketch([4, 2, 3], 6, pool=pool, coef0=coef0, seed=0)
    tables = [rows(2, 3, dim, device=device, seed=dim) for dim in (4, 2, 3)]
    assert gradcheck(sketch, tables, check_forward_ad=True, nondet_tol=1e-12)
    assert gradgradcheck(sketch, tables, check_fwd_over_rev=True, nondet_tol=1e-12)


def test_gradcheck_of_degree_one(device):
    x = rows(3, 5, device=device)
    assert gradcheck(layer(degree=1), x, check_forward_ad=True, nondet_tol=1e-12)
    assert gradgradcheck(layer(degree=1), x, check_fwd_over_rev=True, nondet_tol=1e-12)


def test_backward_is_the_adjoint(device):
    x = rows(20, 5, device=device)
    g = rows(20, 8, device=device, seed=1, requires_grad=False)
    (got,) = torch.autograd.grad(layer()(x), x, g)
    close(got, torch.einsum("nd,ndj->nj", g, vmap(jacfwd(layer()))(x.detach())))


def test_backward_of_some_inputs(device):
    sketch = TensorProductSketch([4, 3], 6, seed=0)
    x, y = rows(5, 4, device=device), rows(5, 3, device=device, requires_grad=False)
    sketch(x, y).sum().backward()
    assert x.grad is not None and y.grad is None


def test_double_backward(device):
    x = rows(4, 5, device=device)
    (first,) = torch.autograd.grad(layer()(x).square().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x)
    h = 1e-6

    def of(x):
        x = x.detach().requires_grad_()
        (g,) = torch.autograd.grad(layer()(x).square().sum(), x)
        return g.square().sum()

    for at in [(0, 0), (3, 4)]:
        step = torch.zeros_like(x)
        step[at] = h
        slope = (of(x + step) - of(x - step)) / (2 * h)
        assert abs(slope - second[at]) <= 1e-6 * max(1, abs(slope))


@pytest.mark.parametrize("order", list(itertools.product([jacfwd, jacrev], repeat=3)))
def test_third_derivatives(device, order):
    # Of a cubic form f: the same everywhere, and f‴(t, t, t) = 6 f(t).
    sketch, x = layer(gamma=1.0, coef0=0.0), rows(5, device=device, requires_grad=False)
    form = lambda x: sketch(x).sum()
    third = form
    for once in order:
        third = once(third)
    close(third(x), third(3 * x - 1))
    t = rows(5, device=device, seed=1, requires_grad=False)
    close(torch.einsum("ijk,i,j,k->", third(x), t, t, t), 6 * form(t))


def test_forward_mode(device):
    x, t = rows(4, 5, device=device, requires_grad=False), rows(4, 5, device=device, seed=1, requires_grad=False)
    with forward_ad.dual_level():
        value, tangent = forward_ad.unpack_dual(layer()(forward_ad.make_dual(x, t)))
    h = 1e-6
    close(value, layer()(x))
    close(tangent, (layer()(x + h * t) - layer()(x - h * t)) / (2 * h), 1e-8)


@pytest.mark.parametrize("method", FEW)
def test_func_jvp_and_vjp_agree(device, method):
    x, t = rows(4, 5, device=device, requires_grad=False), rows(4, 5, device=device, seed=1, requires_grad=False)
    g = rows(4, 8, device=device, seed=2, requires_grad=False)
    _, along = jvp(layer(method), (x,), (t,))
    _, pull = vjp(layer(method), x)
    close((g * along).sum(), (pull(g)[0] * t).sum())


@pytest.mark.parametrize("method", FEW)
def test_func_jacfwd_and_jacrev_agree(device, method):
    x = rows(3, 5, device=device, requires_grad=False)
    close(jacfwd(layer(method))(x), jacrev(layer(method))(x))


def test_func_vmap(device):
    x = rows(6, 4, 5, device=device, requires_grad=False)
    close(vmap(layer())(x), layer()(x))
    close(vmap(layer(), in_dims=1, out_dims=1)(x), layer()(x))
    close(vmap(vmap(layer()))(x), layer()(x))
    close(vmap(layer(pool=0))(x), layer(pool=1)(x))
    product, y = TensorProductSketch([5, 3], 8, seed=0), rows(4, 3, device=device, requires_grad=False)
    close(vmap(product, in_dims=(0, None))(x, y), torch.stack([product(part, y) for part in x]))


def test_func_grad(device):
    x = rows(6, 5, device=device)
    loss = lambda x: layer()(x).square().sum()
    close(grad(loss)(x.detach()), torch.autograd.grad(loss(x), x)[0])
    per_sample = vmap(grad(loss))(x.detach())
    close(per_sample, torch.autograd.grad(loss(x), x)[0])


def test_func_hessian(device):
    x = rows(5, device=device)
    loss = lambda x: layer()(x).square().sum()
    close(hessian(loss)(x.detach()), torch.autograd.functional.hessian(loss, x))


def test_func_functional_call_of_a_model(device):
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), layer(), torch.nn.Linear(8, 1)).to(device, torch.float64)
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    x = rows(6, 4, device=device, requires_grad=False)
    per_sample = vmap(grad(lambda w, x: functional_call(model, w, x).sum()), in_dims=(None, 0))(weights, x)
    model(x).sum().backward()
    for name, weight in model.named_parameters():
        close(per_sample[name].sum(0), weight.grad, 1e-10)


# Compilers, precision, copies and files.


@pytest.mark.parametrize("method", FEW)
def test_compile_fullgraph(device, method):
    torch.compiler.reset()
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), layer(method), torch.nn.Linear(8, 1)).to(device, torch.float64)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    for count in (6, 6, 3):
        x = rows(count, 4, device=device)
        close(compiled(x), model(x), 1e-10)
        close(
            torch.autograd.grad(compiled(x).square().sum(), x)[0],
            torch.autograd.grad(model(x).square().sum(), x)[0],
            1e-10,
        )


def test_compile_fullgraph_with_inductor(device):
    torch.compiler.reset()
    sketch = TensorProductSketch([5, 3], 8, pool=1, seed=0)
    model = lambda x, y: torch.nn.functional.normalize(sketch(x.sin(), y)).cos()
    compiled = torch.compile(model, fullgraph=True, dynamic=True)
    for count in (2, 4):
        x, y = rows(count, 3, 5, device=device), rows(count, 3, 3, device=device)
        close(compiled(x, y), model(x, y), 1e-10)
        got = torch.autograd.grad(compiled(x, y).sum(), (x, y))
        for one, other in zip(got, torch.autograd.grad(model(x, y).sum(), (x, y))):
            close(one, other, 1e-10)


def test_compile_of_the_functions(device):
    torch.compiler.reset()
    one, several = layer().spec, TensorProductSketch([5, 8], 6, seed=0).spec
    function = lambda x: tensor_product_sketch([x, polynomial_sketch(x.sin(), one)], several, pool=0)
    x = rows(4, 5, device=device)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    close(compiled(x), function(x))
    close(torch.autograd.grad(compiled(x).sum(), x)[0], torch.autograd.grad(function(x).sum(), x)[0])


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_operators_pass_pytorchs_own_checks(device):
    x, y = rows(4, 5, device=device), rows(4, 3, device=device)
    spec = TensorProductSketch([5, 3], 8, coef0=0.2, seed=0).spec
    checks = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")
    torch.library.opcheck(_derivatives._features_operator, ([x, y], spec, 2), test_utils=checks)
    g = rows(2, 8, device=device)
    torch.library.opcheck(_derivatives._vjp_operator, ([x, y], g, spec, 2), test_utils=checks)


def test_gradients_of_the_operators(device):
    # As a mode sees them, which takes the place of eager mode.
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recorder(TorchDispatchMode):
        seen = ()

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.seen = (*self.seen, str(function))
            return function(*args, **(kwargs or {}))

    def sketch(x):
        return layer()(x)

    x = rows(2, 5, device=device)
    (want,) = torch.autograd.grad(layer()(x).square().sum(), x, create_graph=True)
    (more,) = torch.autograd.grad(want.square().sum(), x)
    with Recorder() as recorder:
        (got,) = torch.autograd.grad(sketch(x).square().sum(), x, create_graph=True)
        (again,) = torch.autograd.grad(got.square().sum(), x)
    assert {"argand.features.default", "argand.vjp.default"} <= set(recorder.seen)
    close(got, want)
    close(again, more)


@pytest.mark.parametrize("method", ["ctr-product-srht", "tensor-sketch", "gaussian"])
@pytest.mark.usefixtures("cuda")
def test_cuda_graphs(method):
    sketch = layer(method, dim=64, features=128, pool=1)
    x = rows(16, 3, 64, device="cuda", dtype=torch.float32)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            x.grad = None
            sketch(x).square().sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    x.grad = None
    with torch.cuda.graph(graph):
        found = sketch(x)
        found.square().sum().backward()
    for seed in (1, 2):
        with torch.no_grad():
            x.copy_(rows(16, 3, 64, seed=seed))
        x.grad.zero_()
        graph.replay()
        y = x.detach().clone().requires_grad_()
        want = sketch(y)
        want.square().sum().backward()
        close(found.detach(), want.detach(), 1e-5)
        close(x.grad, y.grad, 1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast(device, dtype):
    linear, sketch = torch.nn.Linear(4, 5).to(device), layer()
    x = rows(6, 4, device=device, dtype=torch.float32)
    with torch.autocast(device, dtype):
        halves = linear(x)
        found = sketch(halves)
    assert halves.dtype == found.dtype == dtype
    found.float().square().sum().backward()
    assert linear.weight.grad.dtype == torch.float32 and linear.weight.grad.isfinite().all()
    product = TensorProductSketch([5, 5], 8, seed=0)
    wide = rows(6, 5, device=device, dtype=torch.float32)
    with torch.autocast(device, dtype):
        # Types that differ become the wider one.
        mixed = product(halves, wide)
    assert mixed.dtype == torch.float32
    close(mixed, product(halves.float(), wide), 1e-6)


def test_deepcopy(device):
    model = torch.nn.Sequential(layer(), torch.nn.Linear(8, 1)).to(device, torch.float64)
    again, x = copy.deepcopy(model), rows(4, 5, device=device)
    assert torch.equal(again(x), model(x))
    assert again[0].spec == model[0].spec


def test_pickle(device):
    sketch, x = layer(pool=0), rows(4, 5, device=device)
    sketch(x)
    again = pickle.loads(pickle.dumps(sketch))
    assert torch.equal(again(x), sketch(x)) and again.spec == sketch.spec and again.pool == 0


def test_state_dict_holds_the_spec_and_refuses_another():
    model = torch.nn.Sequential(layer(), torch.nn.Linear(8, 1))
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    assert bytes(state["0._extra_state"].tolist()).decode() == model[0].spec
    torch.nn.Sequential(layer(), torch.nn.Linear(8, 1)).load_state_dict(state)
    other = torch.nn.Sequential(PolynomialSketch(5, 8, 3, seed=99), torch.nn.Linear(8, 1))
    with pytest.raises(RuntimeError, match="state_dict: holds another sketch"):
        other.load_state_dict(state)
    del state["0._extra_state"]
    with pytest.raises(RuntimeError, match="_extra_state"):
        model.load_state_dict(state)
    state["0._extra_state"] = "nonsense"
    with pytest.raises(RuntimeError, match="state_dict: expected the spec"):
        model.load_state_dict(state)


def test_meta_device():
    with torch.device("meta"):
        model = torch.nn.Sequential(layer(pool=1), torch.nn.Linear(8, 2))
    x = torch.empty(3, 4, 5, device="meta", requires_grad=True)
    found = model(x)
    assert found.shape == (3, 2) and found.device.type == "meta"
    found.sum().backward()
    assert x.grad.shape == x.shape


@pytest.mark.filterwarnings("ignore:The given buffer is not writable")  # PyTorch 2.11, of what it reads itself.
@pytest.mark.parametrize("method", FEW)
def test_export(device, method):
    model = torch.nn.Sequential(layer(method), torch.nn.Linear(8, 2)).to(device, torch.float64)
    x = rows(4, 5, device=device, requires_grad=False)
    batch = torch.export.Dim("batch", min=1, max=100)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: batch},))
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    again, y = torch.export.load(file).module(), rows(9, 5, device=device, requires_grad=False)
    close(again(y), model(y))


def test_to_other_devices_and_types(device):
    model = torch.nn.Sequential(layer(), torch.nn.Linear(8, 2)).to(device).double()
    assert model(rows(4, 5, device=device)).device.type == device
    assert not list(layer().parameters()) and not list(layer().buffers())


# Bad input.


def test_layers_refuse_other_widths():
    with pytest.raises(RuntimeError, match=r"x: expected 5 columns .*, got the shape \(3, 4\)"):
        layer()(rows(3, 4))
    with pytest.raises(RuntimeError, match=r"x: expected 5 columns .*, got the shape \(\)"):
        layer()(torch.tensor(1.0))
    with pytest.raises(RuntimeError, match=r"tensors\[1\]: expected 3 columns"):
        TensorProductSketch([5, 3], 8)(rows(2, 5), rows(2, 4))
    with pytest.raises(
        RuntimeError, match=r"tensors\[1\]: expected the leading dimensions of tensors\[0\], \(2,\), got \(3,\)"
    ):
        TensorProductSketch([5, 3], 8)(rows(2, 5), rows(3, 3))
    with pytest.raises(ValueError, match="tensors: expected 2 tensors, got 1"):
        TensorProductSketch([5, 3], 8)(rows(2, 5))


def test_layers_refuse_other_types():
    with pytest.raises(TypeError, match="x: expected float16, bfloat16, float32 or float64, got int64"):
        layer()(torch.ones(3, 5, dtype=torch.int64))
    with pytest.raises(TypeError, match=r"x: expected float16.*, got complex64"):
        layer()(torch.ones(3, 5, dtype=torch.complex64))
    with pytest.raises(TypeError, match=r"x: expected float16.*, got float8_e4m3fn"):
        layer()(torch.ones(3, 5).to(torch.float8_e4m3fn))
    with pytest.raises(TypeError, match="x: expected a dense tensor"):
        layer()(torch.eye(5).to_sparse())
    with pytest.raises(TypeError, match="x: expected a tensor, got ndarray"):
        layer()(np.ones((3, 5)))
    with pytest.raises(RuntimeError, match=r"tensors\[1\]: expected the type of tensors\[0\], float64, got float32"):
        TensorProductSketch([5, 3], 8)(rows(2, 5), rows(2, 3, dtype=torch.float32))


def test_layers_refuse_tensors_of_several_devices():
    with pytest.raises(RuntimeError, match=r"tensors\[1\]: expected the device of tensors\[0\], cpu, got meta"):
        TensorProductSketch([5, 3], 8)(rows(2, 5), torch.empty(2, 3, dtype=torch.float64, device="meta"))


def test_layers_refuse_bad_arguments():
    for arguments, match in [
        ({"out_features": 7}, "out_features: expected an even number for ctr-product-srht"),
        ({"out_features": 0}, "out_features: expected 1 to"),
        ({"in_features": 0}, "in_features: expected 1 to"),
        ({"degree": 0}, "degree: expected 1 to"),
        ({"gamma": -1.0}, "gamma: expected a finite number of at least 0"),
        ({"coef0": float("nan")}, "coef0: expected a finite number"),
        ({"method": "nonsense"}, "method: expected"),
        ({"method": "complex-gaussian"}, "method: expected a method with real features, as ctr-gaussian"),
        ({"seed": -1}, "seed: expected 0 to"),
    ]:
        with pytest.raises(ValueError, match=match):
            PolynomialSketch(**{"in_features": 5, "out_features": 8, **arguments})
    for arguments, match in [
        ({"in_features": 5.0}, "in_features: expected an integer"),
        ({"degree": "2"}, "degree: expected an integer"),
        ({"seed": 1.5}, "seed: expected an integer"),
        ({"pool": 1.0}, "pool: expected a dimension or None"),
    ]:
        with pytest.raises(TypeError, match=match):
            PolynomialSketch(**{"in_features": 5, "out_features": 8, **arguments})
    for dims in (5, [], "12"):
        with pytest.raises(TypeError, match="in_features: expected the size of each tensor"):
            TensorProductSketch(dims, 8)
    with pytest.raises(ValueError, match="method: expected a method for products"):
        TensorProductSketch([5, 3], 8, method="srf")


def test_integers_of_numpy_are_integers():
    layer = PolynomialSketch(np.int64(5), np.int32(8), degree=np.uint8(2), seed=np.int64(3), pool=np.int64(1))
    assert layer.spec == PolynomialSketch(5, 8, degree=2, seed=3).spec
    assert layer(rows(2, 4, 5)).shape == (2, 8)
    assert TensorProductSketch(np.array([5, 3]), 8).in_features == [5, 3]


def test_pool_is_a_leading_dimension():
    for pool in (1, -1, 2, -3):
        with pytest.raises(
            IndexError, match=f"pool: expected one of the 1 dimensions before the last of 2, got {pool}"
        ):
            layer(pool=pool)(rows(3, 5))


def test_specs_of_complex_features_are_refused():
    spec = argand.PolynomialSketch(2, n_components=8, method="complex-gaussian").fit(np.ones((1, 5))).spec
    with pytest.raises(
        ValueError, match="spec: expected a method with real features, as ctr-gaussian, got complex-gauss"
    ):
        PolynomialSketch.from_spec(spec)
    with pytest.raises(ValueError, match="spec: expected a method with real features"):
        polynomial_sketch(rows(2, 5), spec)


@pytest.mark.parametrize(
    "sketch",
    [
        argand.GaussianSketch(n_components=8),
        argand.DotProductSketch(n_components=8),
        argand.NystromSketch(n_components=8),
        argand.PolynomialSketch(2, n_components=20, method="maclaurin-ctr-product-srht"),
        argand.PolynomialSketch(2, n_components=15, method="exact"),
    ],
)
def test_maps_without_derivatives_of_every_order_are_refused(sketch):
    spec = sketch.fit(np.random.default_rng(0).normal(size=(30, 5))).spec
    with pytest.raises(ValueError, match="spec: expected a product of projections or srf, got"):
        PolynomialSketch.from_spec(spec)
    with pytest.raises(ValueError, match="spec: expected a product of projections or srf, got"):
        polynomial_sketch(rows(2, 5), spec)
    with pytest.raises(ValueError, match="method: expected a product of projections or srf, got"):
        layer(method=json.loads(spec)["method"])


def test_specs_of_another_kind_are_refused():
    one, several = layer().spec, TensorProductSketch([5, 3], 8).spec
    with pytest.raises(ValueError, match="spec: describes a product of several tables"):
        PolynomialSketch.from_spec(several)
    with pytest.raises(ValueError, match="spec: describes a sketch of one table"):
        TensorProductSketch.from_spec(one)
    with pytest.raises(ValueError, match="spec: describes a product"):
        polynomial_sketch(rows(2, 5), several)
    with pytest.raises(ValueError, match="spec: describes a sketch of one table"):
        tensor_product_sketch([rows(2, 5)], one)
    with pytest.raises(ValueError):
        PolynomialSketch.from_spec("{}")
    with pytest.raises(TypeError, match="spec: expected JSON as a string, got dict"):
        PolynomialSketch.from_spec({})


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(("features", "dtype"), [(8, torch.float64), (64, torch.float32)])
def test_nan_passes_through_and_stays_in_its_row(device, method, value, features, dtype):
    sketch, pooled = layer(method, features=features), layer(method, features=features, pool=1)
    clean = rows(20, 5, device=device, dtype=dtype, requires_grad=False)
    x = clean.clone()
    x[7, 2] = value
    x.requires_grad_()
    found, others = sketch(x), torch.arange(20, device=device) != 7
    assert not found[7].isfinite().all()
    close(found[others], sketch(clean)[others], BOUNDS[dtype])
    found.sum().backward()
    assert x.grad[others].isfinite().all() and not x.grad[7].isfinite().all()
    sums = pooled(x.reshape(5, 4, 5))
    assert not sums[1].isfinite().all() and sums[[0, 2, 3, 4]].isfinite().all()


def test_features_that_are_too_large_become_infinite(device):
    x = rows(20, 5, device=device, dtype=torch.float32, requires_grad=False)
    x[7] *= 1e20
    found = layer()(x)
    assert not found[7].isfinite().all() and found[torch.arange(20) != 7].isfinite().all()
    pooled = layer(pool=1)(x.reshape(5, 4, 5))
    assert not pooled[1].isfinite().all()
    close(pooled[0], layer()(x[:4]).sum(0), 1e-5)


def test_importing_argand_does_not_import_pytorch():
    import subprocess

    subprocess.run([sys.executable, "-c", "import argand, sys; assert 'torch' not in sys.modules"], check=True)


# What PyTorch would answer wrongly without a word.


def test_forward_mode_of_operators_is_refused(device):
    sketch, x = layer(), rows(4, 5, device=device, requires_grad=False)
    want = jvp(sketch, (x,), (x,))[1]

    class Subclass(torch.Tensor):
        pass

    with FlopCounterMode(display=False), pytest.raises(NotImplementedError, match="forward mode"):
        jvp(sketch, (x,), (x,))
    with pytest.raises(NotImplementedError, match="forward mode"):
        jvp(lambda x: sketch(x.as_subclass(Subclass)), (x,), (x,))
    torch.compiler.reset()
    along = lambda x: jvp(sketch, (x,), (x,))[1]
    with pytest.raises(Exception, match="forward mode"):
        torch.compile(along, backend="aot_eager", fullgraph=True)(x)
    close(jvp(sketch, (x,), (x,))[1], want)


@pytest.mark.filterwarnings("ignore")
def test_jit_trace(device):
    sketch, x = layer(), rows(4, 5, device=device, requires_grad=False)
    close(torch.jit.trace(sketch, x)(x + 1), sketch(x + 1))


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_spherical_features_depend_on_directions_alone(device, scale):
    sketch, x = layer("srf"), rows(4, 5, device=device, dtype=torch.float32, requires_grad=False)
    close(sketch(x * scale), sketch(x), 1e-5)


def test_spherical_features_of_zeros_have_no_gradient(device):
    x = torch.zeros(2, 5, dtype=torch.float64, device=device, requires_grad=True)
    (first,) = torch.autograd.grad(layer("srf")(x).sum(), x, create_graph=True)
    assert (first == 0).all() and first.isfinite().all()


def test_spherical_frequencies_outlive_what_asks_first(device):
    x = rows(3, 5, device=device)
    second = hessian(lambda x: layer("srf", seed=50)(x).sin().sum())
    close(second(x.detach()), second(x.detach()))
    with torch.inference_mode():
        layer("srf", seed=51)(x)
    layer("srf", seed=51)(x).sum().backward()


def test_layers_do_not_share_what_can_be_changed():
    one = TensorProductSketch([5, 3], 8, seed=0)
    TensorProductSketch.from_spec(one.spec).in_features.append(1)
    assert one(rows(2, 5), rows(2, 3)).shape == (2, 8)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_transformers_read_tensors_of_the_processor(dtype):
    x = rows(6, 5, dtype=dtype)
    sketch = argand.PolynomialSketch(2, n_components=8, random_state=0).fit(x)
    found = sketch.transform(x)
    assert found.dtype == (np.float64 if dtype == torch.float64 else np.float32)
    wide = x.detach().to(torch.float64 if dtype == torch.float64 else torch.float32).numpy()
    assert (found == sketch.transform(wide)).all()
    with pytest.raises(TypeError, match="Complex data"):
        sketch.transform(x.detach().to(torch.complex128))
