"""The variance of sketched inner products of gradients: beside the paper's for rank one, and beside simulation."""

import tracemalloc

import argand
import numpy as np
import pytest
from argand import _argand
from argand.attribution import features_for_error, gradient_variance

METHODS = [
    f"{field}{base}" for base in ("gaussian", "rademacher", "tensor-srht", "product-srht") for field in ("", "ctr-")
]


@pytest.fixture
def factors():
    """Four examples of three tokens each."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((4, 3, 5)), rng.standard_normal((4, 3, 7))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("features", [2, 6, 32, 100])
def test_gradients_of_rank_one_have_the_variance_of_products(factors, method, features):
    a, g = (np.ascontiguousarray(factor[:, 0]) for factor in factors)
    found = gradient_variance(a[:, :, None] * g[:, None, :], features, method)
    kernel = {"gamma": 1.0, "coef0": 0.0, "degree": 2, "craft_dim": 32768, "seed": 0}
    spec = _argand.spec(dims=[5, 7], distinct=True, n_components=features, method=method, **kernel)
    for i in range(4):
        pair = [[np.tile(factor[i], (4, 1)) for factor in (a, g)], [a, g]]
        np.testing.assert_allclose(found[i], _argand.moments(spec, *pair)[1], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("features", [6, 32])
def test_sums_of_products_have_the_variance_of_simulation(factors, method, features):
    a, g = (factor[:2] for factor in factors)
    matrices = np.einsum("nti,nto->nio", a, g)
    want = gradient_variance(matrices, features, method)
    exact = np.einsum("nio,mio->nm", matrices, matrices)
    tables = [a.reshape(-1, 5), g.reshape(-1, 7)]
    squares = []
    for seed in range(1500):
        sketch = argand.TensorProductSketch(n_components=features, method=method, random_state=seed).fit(tables)
        z = sketch.transform(tables).reshape(2, 3, features).sum(1)
        squares.append((z @ z.T - exact) ** 2)
    standard_error = np.std(squares, axis=0) / len(squares) ** 0.5
    # Three pairs and sixteen settings: 4 standard errors, and heavy tails.
    assert (np.abs(np.mean(squares, axis=0) - want) < 4.5 * standard_error).all()


def test_features_for_an_error_are_the_fewest(factors):
    matrices = np.einsum("nti,nto->nio", *factors)
    exact = np.einsum("nio,mio->nm", matrices, matrices)
    for method in METHODS:
        found = features_for_error(matrices, 0.05, method)
        errors = [
            (gradient_variance(matrices, features, method).sum() / (exact**2).sum()) ** 0.5
            for features in (found, found - 2)
        ]
        assert errors[0] <= 0.05
        assert errors[1] > 0.049
    assert features_for_error(matrices, 0.025, "gaussian") > 3.9 * features_for_error(matrices, 0.05, "gaussian")


def test_features_for_an_error_do_not_depend_on_scale(factors):
    matrices = np.einsum("nti,nto->nio", *factors)
    want = features_for_error(matrices, 0.2)
    for scale in (1e-300, 1e-81, 1e79, 1e300):
        assert features_for_error(matrices * scale, 0.2) == want


def test_gradients_may_be_tensors(factors):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed; make test-torch installs it")
    tensor = torch.tensor(np.einsum("nti,nto->nio", *factors))
    for given in (tensor.requires_grad_(), tensor.bfloat16()):
        same = given.detach().double().numpy()
        assert features_for_error(given, 0.2) == features_for_error(same, 0.2)
        assert np.array_equal(gradient_variance(given, 8), gradient_variance(same, 8))


def test_bad_input_is_named():
    matrices = np.ones((2, 3, 4))
    for call, message in [
        (lambda: gradient_variance(np.ones((3, 4)), 8), r"gradients: expected the shape \(examples, inputs, outputs\)"),
        (lambda: gradient_variance(matrices * np.nan, 8), "gradients: expected finite numbers"),
        (lambda: gradient_variance(matrices, 7), "features: expected a positive number, even for ctr-"),
        (lambda: gradient_variance(matrices, 8, "tensor-sketch"), "method: a closed form for gradients is known for"),
        (lambda: features_for_error(matrices, 0.0), "error: expected a positive number"),
        (lambda: features_for_error(matrices, 1e-9), "error: 1e-09 would take more than"),
        (lambda: features_for_error(matrices * 0, 0.1), "gradients: expected some that are not zero"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


def test_a_long_side_costs_no_square_of_it(factors):
    matrices = np.einsum("nti,nto->nio", *factors)
    for method in METHODS:
        turned = gradient_variance(matrices.transpose(0, 2, 1), 8, method)
        np.testing.assert_allclose(turned, gradient_variance(matrices, 8, method), rtol=1e-9)
    words = np.random.default_rng(0).standard_normal((4, 3000, 5))
    tracemalloc.start()
    gradient_variance(words, 8)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 * words.nbytes
