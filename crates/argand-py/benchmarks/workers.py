"""GridSearchCV with workers of joblib: how the threads of estimators share the cores.

    python benchmarks/workers.py [--rounds N]

Measures every combination of workers and threads in turn, several times, and prints the shortest time of each beside
the best of all.
"""

import argparse
import time

import argand
import numpy as np
from sklearn.model_selection import GridSearchCV


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(20_000, 32)).astype(np.float32)
    classes = (rows[:, 0] * rows[:, 1] > 0).astype(int)
    grid = {"alpha": [0.1, 1.0], "degree": [2, 3]}
    settings = {
        "one worker, n_jobs=None": (1, None),
        "all workers, n_jobs=None": (-1, None),
        "all workers, n_jobs=1": (-1, 1),
        "all workers, n_jobs=-1": (-1, -1),
    }
    times = {name: [] for name in settings}
    # The first round starts the workers.
    for number in range(arguments.rounds + 1):
        for name, (workers, threads) in settings.items():
            model = argand.RidgeClassifier(n_components=1024, random_state=0, n_jobs=threads)
            begun = time.perf_counter()
            GridSearchCV(model, grid, cv=2, n_jobs=workers).fit(rows, classes)
            if number > 0:
                times[name].append(time.perf_counter() - begun)
    best = min(min(of) for of in times.values())
    for name, of in times.items():
        print(f"{name:<28} {min(of):6.2f} s  {min(of) / best:5.2f} times the best")


if __name__ == "__main__":
    main()
