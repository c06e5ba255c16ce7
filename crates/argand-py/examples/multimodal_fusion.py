"""
Three tables, fused
===================

Three kinds of measurements of the same objects: only their products tell the classes apart. The tensor product of
the tables has 50 * 40 * 30 = 60,000 columns; the sketch has 500 and never forms it.
"""

import matplotlib.pyplot as plt
import numpy as np
from argand import TensorProductSketch
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import make_pipeline

rng = np.random.default_rng(0)


def measured(causes, columns):
    """A table that three hidden causes are behind, and some noise."""
    return causes @ rng.standard_normal((3, columns)) / columns**0.5 + 0.01 * rng.standard_normal(
        (len(causes), columns)
    )


causes = rng.standard_normal((3, 6000, 3))
image, text, sound = (measured(cause, columns) for cause, columns in zip(causes, (50, 40, 30)))
y = causes[:, :, 0].prod(axis=0) > 0  # the sign of a product of one cause of each
train, test = slice(0, 5000), slice(5000, 6000)

tables = [image, text, sound]
sketch = TensorProductSketch(n_components=500, random_state=0).fit([table[train] for table in tables])
fused = sketch.transform([table[train] for table in tables])
classifier = RidgeClassifier().fit(fused, y[train])
score = classifier.score(sketch.transform([table[test] for table in tables]), y[test])

side_by_side = np.hstack(tables)
linear = RidgeClassifier().fit(side_by_side[train], y[train]).score(side_by_side[test], y[test])
print(f"side by side: accuracy {linear:.3f}")
print(f"       fused: accuracy {score:.3f}")

# %%
# In a pipeline, one table holds all columns, and dims says whose they are. A hundred features do here, as
# no more than 3 * 3 * 3 products of causes are behind the 60,000.

sizes = [100, 250, 500, 1000]
found = []
for size in sizes:
    pipeline = make_pipeline(TensorProductSketch([50, 40, 30], size, random_state=0), RidgeClassifier())
    found.append(pipeline.fit(side_by_side[train], y[train]).score(side_by_side[test], y[test]))
assert found[sizes.index(500)] == score
assert linear < 0.6 and score > 0.75

ax = plt.subplots(figsize=(6, 3), layout="constrained")[1]
ax.plot(sizes, found, "o-", label="fused")
ax.axhline(linear, color="gray", linestyle=":", label="side by side")
ax.set(xlabel="features of the product", ylabel="accuracy", ylim=(0.45, 1))
ax.legend(frameon=False, loc="lower right")
