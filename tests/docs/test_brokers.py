"""The guide on brokers, with a real server: a consumer that is killed ends with the model of one that was not."""

import os
import shutil
from importlib.util import find_spec

import numpy as np
import pytest

import mesu
from benchmarks import brokers

NEEDED = shutil.which("redis-server") and find_spec("redis") and hasattr(os, "fork")
pytestmark = pytest.mark.skipif(
    not NEEDED, reason="needs redis-server (Debian's package of that name), pip install 'mesu[redis]', and fork"
)
ROWS = 600


def consumed(tmp_path, name, kills):
    with brokers.server() as port:
        client = brokers.connect(port)
        until = brokers.send(client, ROWS)
        path = tmp_path / name
        killed = brokers.run(port, path, until, kills, save_every=100)
        predictions = client.xrange("predictions")
        return (
            mesu.load(path),
            killed,
            [number for number, _ in predictions],
            client.xlen("dead-rows") + client.xlen("dead-labels"),
        )


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # a fork beside threads of torch
def test_a_consumer_that_is_killed_ends_with_the_same_model(tmp_path):
    whole, _, rows, dead = consumed(tmp_path, "whole", 0)
    other, killed, again, dead_again = consumed(tmp_path, "killed", 4)
    assert killed >= 2
    assert whole.carried == other.carried == {"rows": f"{ROWS}-0", "labels": f"{2 * ROWS}-0"}
    one, two = whole._online.snapshot, other._online.snapshot
    assert one.rows == two.rows == ROWS - ROWS // 50
    np.testing.assert_array_equal(one.weights.mean, two.weights.mean)
    np.testing.assert_array_equal(one.weights.std, two.weights.std)
    np.testing.assert_array_equal(one.inputs, two.inputs)
    assert len(set(again)) == len(again)  # no prediction is written twice
    assert len(rows) <= ROWS - ROWS // 50
    assert dead_again == dead == 2 * (ROWS // 50)
