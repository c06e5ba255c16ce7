import os

import numpy as np
import pytest


@pytest.fixture
def X():
    """60 rows of 12 numbers of both signs, with 1 to 4 zeros per row."""
    x = np.random.default_rng(1).standard_normal((60, 12)) / 3
    x[np.arange(60), np.arange(60) % 12] = 0
    return x


@pytest.fixture
def cuda():
    """The device of tests of PyTorch that need a GPU; with ARGAND_NEEDS_GPU=1 there must be one."""
    import torch

    if not torch.cuda.is_available():
        if os.environ.get("ARGAND_NEEDS_GPU") == "1":
            pytest.fail("PyTorch finds no GPU")
        pytest.skip("PyTorch finds no GPU")
    return "cuda"


@pytest.fixture(params=["cpu", "cuda"])
def device(request):
    """Devices of PyTorch, of which a GPU may be absent."""
    return "cpu" if request.param == "cpu" else request.getfixturevalue("cuda")
