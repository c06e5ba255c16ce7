"""The picture in the README: test error over processor time on MNIST, for a linear model and features for it.

    python scripts/front.py docs/front.csv docs/front.svg FOLDER   # with the files of MNIST that `make data` downloads
    python scripts/front.py docs/front.csv docs/front.svg          # draws again what was measured

Features of the kernel (½⟨x, y⟩ + ½)³, then scikit-learn's ridge regression on them, the same for all. Seconds are
processor time on one thread: of fitting the features, of computing those of the training rows, and of the regression.
"""

import gzip
import sys
import time
from pathlib import Path

import matplotlib.pyplot as plt
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
# Where the first and the last point of each has its label, in points from it.
LABELS = dict(zip(MAPS, [[(6, 5), (-6, -12)], [(-6, -12), (4, 8)], [(6, 5), (6, -12)]]))
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


def draw(table, picture):
    ax = plt.subplots(figsize=(7.5, 3.6), layout="constrained")[1]
    for name, color, marker in zip(MAPS, ("tab:red", "tab:blue", "tab:gray"), "o^s"):
        found = table[table["features"] == name]
        ax.plot(found["seconds"], 100 * found["error"], color=color, marker=marker, label=name)
        for (_, row), (right, up) in zip(found.iloc[[0, -1]].iterrows(), LABELS[name]):
            ax.annotate(
                f"D = {row['D']}",
                (row["seconds"], 100 * row["error"]),
                (right, up),
                textcoords="offset points",
                ha="left" if right > 0 else "right",
                color=color,
            )
    error = 100 * table.loc[table["features"] == LINEAR, "error"].item()
    ax.axhline(error, color="black", linewidth=1, linestyle=":", label=LINEAR)
    ax.set(
        xscale="log", yscale="log", xlabel="processor seconds for features and fit, one thread", ylabel="test error, %"
    )
    ax.set_title(f"Handwritten digits, {ROWS:,} to learn from: lower left is better", loc="left")
    ax.set_yticks([2, 3, 5, 10, 15], [2, 3, 5, 10, 15])
    ax.set_xticks([0.1, 1, 10], ["0.1", "1", "10"])
    ax.minorticks_off()
    ax.margins(0.12, 0.12)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(frameon=False, loc="lower left")
    plt.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    numbers, picture, *folder = map(Path, sys.argv[1:])
    if folder:
        found = pd.DataFrame(measure(folder[0]), columns=["features", "D", "seconds", "error"])
        found.round({"seconds": 4, "error": 4}).to_csv(numbers, index=False)
    draw(pd.read_csv(numbers), picture)
