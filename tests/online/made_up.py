"""Made-up streams, and models that have learned some of them, for the tests of this folder."""

import json
import struct
from dataclasses import fields, replace
from itertools import pairwise

import numpy as np
from safetensors.numpy import load as tensors_of
from safetensors.numpy import save as as_bytes

import mesu
from mesu.disk import digest_of
from mesu.engine.predict import layer_edges
from mesu.online.settings import NARROWING, WIDE, Settings

NUMBERS = Settings((12,), 1000, 1.0, 10, 64, standardise=True, regression=True, seed=3)
LINEAR = {"prior_std": "start", "init_scale": WIDE, "estimator": "linear", "narrowing": NARROWING}
CLASSES = replace(NUMBERS, regression=False, **LINEAR)
JOINT = replace(NUMBERS, **LINEAR)


def clusters(rows, classes=4, width=5, seed=0):
    """Rows around one centre for each class."""
    draw = np.random.default_rng(seed)
    y = draw.integers(0, classes, rows)
    return 3 * np.random.default_rng(9).normal(size=(classes, width))[y] + draw.normal(size=(rows, width)) + 10, y


def line(rows, noise=0.5, seed=0):
    """Targets that are linear in the row, and noise."""
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(rows, 3)) * [1, 10, 0.1] + [0, 100, 5]
    return X, 7 + X @ [2.0, -0.3, 4.0] + noise * draw.normal(size=rows)


def same(one, other):
    """Whether two snapshots are equal in every bit."""
    return all(equal(getattr(one, f.name), getattr(other, f.name)) for f in fields(one))


def equal(a, b):
    """Whether two parts of snapshots are equal in every bit."""
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    return all(map(equal, a, b)) and len(a) == len(b) if isinstance(a, tuple) else a == b


def layers(weights):
    """Means and sigmas of each layer's weights and biases, in double precision."""
    for (n, k), (at, end) in zip(pairwise(weights.sizes), pairwise(layer_edges(weights.sizes)), strict=True):
        mean, std = (a[at:end].astype(float) for a in (weights.mean, weights.std))
        yield mean[: n * k].reshape(k, n), mean[n * k :], std[: n * k].reshape(k, n), std[n * k :]


def at_mean(weights, z):
    """Outputs of the network whose weights are the means, in double precision."""
    h = z.astype(float)
    for number, (mu, bias, _, _) in enumerate(layers(weights)):
        h = (np.maximum(h, 0) if number else h) @ mu.T + bias
    return h


def classifier(rows=300, **parameters):
    X, y = clusters(rows)
    names = np.array(["cat", "dog", "ant", "bee"])[y]
    return mesu.MESUClassifier(**{"hidden": (12,), "memory": 500, "random_state": 3, **parameters}).partial_fit(
        X, names
    )


def regressor(rows=300, **parameters):
    return mesu.MESURegressor(**{"hidden": (12, 6), "random_state": 3, **parameters}).partial_fit(*line(rows))


def forge(path, change):
    """Rewrite a file after `change(header, description, tensors)`, with the checksum that goes with it."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header, tensors = json.loads(data[8 : 8 + length])["__metadata__"], tensors_of(data)
    description = json.loads(header["description"])
    change(header, description, tensors)
    header["description"] = json.dumps(description)
    header["sha256"] = digest_of(header["description"], tensors)
    header["sha256 with mesu"] = digest_of(header["sha256"], header["mesu"])
    path.write_bytes(as_bytes(tensors, metadata=header))


SMALL_RIVER = {"hidden": (6,), "memory": 500, "samples": 3, "predict_samples": 16, "seed": 3}


def stream(rows=60, seed=0):
    """Rows of four features, of which each but the first is missing now and then, and one comes late."""
    draw = np.random.default_rng(seed)
    for i in range(rows):
        y = int(draw.integers(3))
        values = dict(zip("dacb", (draw.normal(size=4) + y).tolist(), strict=True))
        yield {k: v for k, v in values.items() if k == "d" or (draw.random() < 0.8 and (k != "a" or i >= 20))}, y


def learned(model, rows):
    for x, y in rows:
        model.learn_one(x, y)
    return model
