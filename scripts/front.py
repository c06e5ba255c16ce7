"""The numbers in the README's picture: test error over processor time on MNIST, for a linear model and features for it.

    python scripts/front.py docs/front.csv FOLDER   # with the files of MNIST that `make data` downloads

`make figures` draws it.

Features of the kernel (½⟨x, y⟩ + ½)³, then scikit-learn's ridge regression on them, the same for all. Seconds are
processor time on one thread: of fitting the features, of computing those of the training rows, and of the regression.
"""

import gzip
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
from argand import PolynomialSketch
from sklearn.kernel_approximation import Nystroem, PolynomialCountSketch
from sklearn.linear_model import Ridge
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

ROWS = 20_000
SIZES = [128, 256, 512, 1024, 2048, 4096, 8192]
KERNEL = {"degree": 3, "gamma": 0.5, "coef0": 0.5}
LINEAR = "a linear model on the pixels"
MAPS = {
    "Argand's PolynomialSketch": lambda size: PolynomialSketch(**KERNEL, n_components=size, random_state=0, n_jobs=1),
    "scikit-learn's Nystroem": lambda size: Nystroem("poly", **KERNEL, n_components=size, random_state=0),
    "scikit-learn's PolynomialCountSketch": lambda size: PolynomialCountSketch(
        **KERNEL, n_components=size, random_state=0
    ),
}
# Nyström's features of 8192 rows would take minutes.
MOST = {"scikit-learn's Nystroem": 4096}


def read(path):
    """The numbers of an IDX file, which may be in gzip."""
    if not path.exists():
        path = path.with_name(path.name + ".gz")
    contents = path.read_bytes()
    contents = gzip.decompress(contents) if path.suffix == ".gz" else contents
    return np.frombuffer(contents, np.uint8, offset=4 + 4 * contents[3])


def load(folder, part):
    images = read(folder / f"{part}-images-idx3-ubyte").reshape(-1, 784).astype(np.float32)
    return normalize(images), read(folder / f"{part}-labels-idx1-ubyte")


def learn(features, train, test):
    """Processor seconds to learn with these features, and the error on test rows."""
    begun = time.process_time()
    Z = train[0] if features is None else features.fit(train[0]).transform(train[0])
    model = Ridge(alpha=0.03, solver="cholesky").fit(Z, np.eye(10, dtype=np.float32)[train[1]])
    seconds = time.process_time() - begun
    Z = test[0] if features is None else features.transform(test[0])
    return seconds, float(np.mean(model.predict(Z).argmax(axis=1) != test[1]))


def measure(folder):
    images, labels = load(folder, "train")
    train, test = (images[:ROWS], labels[:ROWS]), load(folder, "t10k")
    with threadpool_limits(1):
        yield LINEAR, images.shape[1], *learn(None, train, test)
        for name, features in MAPS.items():
            for size in SIZES:
                if size <= MOST.get(name, size):
                    yield name, size, *learn(features(size), train, test)


if __name__ == "__main__":
    numbers, folder = map(Path, sys.argv[1:])
    found = pd.DataFrame(measure(folder), columns=["features", "D", "seconds", "error"])
    found.round({"seconds": 4, "error": 4}).to_csv(numbers, index=False)
