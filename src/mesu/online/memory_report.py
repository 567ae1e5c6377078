"""What an online model still remembers. `mesu.memory` defines the terms."""

from itertools import pairwise

import numpy as np

from mesu.engine.predict import layer_edges
from mesu.memory import MemoryReport, effective_window, layer_of
from mesu.online.network import first_std
from mesu.online.snapshot import Snapshot


def report(snapshot: Snapshot) -> MemoryReport:
    """What an online model remembers."""
    settings, (_, std, sizes) = snapshot.settings, snapshot.weights
    edges = layer_edges(sizes)
    start = np.concatenate(
        [np.full(b - a, first_std(settings, inputs)) for inputs, (a, b) in zip(sizes, pairwise(edges), strict=False)]
    ).astype(std.dtype)
    prior = start if settings.prior_std == "start" else np.full(std.shape, settings.prior_std)
    layers = [
        layer_of(f"{inputs} -> {outputs}", std[at:end], start[at:end], prior[at:end])
        for (inputs, outputs), (at, end) in zip(pairwise(sizes), pairwise(edges), strict=True)
    ]
    return MemoryReport(
        rows=snapshot.rows,
        memory=settings.memory,
        window=effective_window(snapshot.rows, settings.memory),
        prior_std=settings.prior_std,
        layers=tuple(layers),
        all=layer_of("all", std, start, prior),
    )
