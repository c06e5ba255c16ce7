"""The picture in the README: test error over processor time on MNIST, for a linear model and features for it.

    python scripts/front.py FOLDER docs/front.svg        # FOLDER has MNIST's four files; `make data` downloads them

Features of the kernel (½⟨x, y⟩ + ½)³, then scikit-learn's ridge regression on them, the same for all. Seconds are
processor time on one thread: of fitting the features, of computing those of the training rows, and of the regression.
Prints the numbers, too.
"""

import gzip
import sys
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from argand import PolynomialSketch
from sklearn.base import clone
from sklearn.kernel_approximation import Nystroem, PolynomialCountSketch
from sklearn.linear_model import Ridge
from sklearn.preprocessing import normalize
from threadpoolctl import threadpool_limits

ROWS = 20_000
SIZES = [128, 256, 512, 1024, 2048, 4096]
KERNEL = {"degree": 3, "gamma": 0.5, "coef0": 0.5}
MAPS = {
    "scikit-learn's PolynomialCountSketch": (PolynomialCountSketch(**KERNEL, random_state=0), "tab:gray", "s"),
    "scikit-learn's Nystroem": (Nystroem("poly", **KERNEL, random_state=0), "tab:blue", "^"),
    "Argand's PolynomialSketch": (PolynomialSketch(**KERNEL, random_state=0, n_jobs=1), "tab:red", "o"),
}


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


def measured(features, train, test):
    """Processor seconds to learn with these features, and the error on test rows."""
    begun = time.process_time()
    Z = train[0] if features is None else features.fit(train[0]).transform(train[0])
    model = Ridge(alpha=0.03, solver="cholesky").fit(Z, np.eye(10, dtype=np.float32)[train[1]])
    seconds = time.process_time() - begun
    Z = test[0] if features is None else features.transform(test[0])
    return seconds, float(np.mean(model.predict(Z).argmax(axis=1) != test[1]))


def main(folder, picture):
    images, labels = load(folder, "train")
    train, test = (images[:ROWS], labels[:ROWS]), load(folder, "t10k")
    _, ax = plt.subplots(figsize=(9, 3.6), layout="constrained")
    with threadpool_limits(1):
        seconds, error = measured(None, train, test)
        print(f"linear model: {seconds:.2f} s, {error:.4f}")
        ax.axhline(100 * error, color="black", linewidth=1, linestyle=":")
        ax.annotate(
            "a linear model on the pixels", (1, 100 * error), (0, -4), xycoords=("axes fraction", "data"),
            textcoords="offset points", ha="right", va="top",
        )  # fmt: skip
        for name, (features, color, marker) in MAPS.items():
            found = [measured(clone(features).set_params(n_components=size), train, test) for size in SIZES]
            for size, (seconds, error) in zip(SIZES, found):
                print(f"{name}, {size} features: {seconds:.2f} s, {error:.4f}")
            seconds, errors = np.array(found).T
            ax.plot(seconds, 100 * errors, color=color, marker=marker, label=name)
            for place in (0, len(SIZES) - 1):
                ax.annotate(
                    f"{SIZES[place]} features", (seconds[place], 100 * errors[place]), (0, 7),
                    textcoords="offset points", ha="center", fontsize=8, color=color,
                )  # fmt: skip
    ax.set(xscale="log", yscale="log", xlabel="processor seconds for features and fit, one thread")
    ax.set(
        ylabel="test error, %", title=f"Handwritten digits (MNIST, {ROWS:,} rows to learn from): lower left is better"
    )
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_formatter("{x:g}" if axis is ax.yaxis else "")
    ax.legend(frameon=False)
    plt.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
