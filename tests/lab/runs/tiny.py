"""A run of seconds, and ways to damage its files: shared by the tests of runs and of the command."""

import json

from mesu.disk import digest_of
from mesu.lab.experiments import PermutedDigits
from mesu.lab.runs.run import Run

LEARNERS = ("mesu", "foo-vb", "ewc-online", "ewc-stream", "si", "sgd")
TINY = PermutedDigits(
    tasks=3, seeds=1, epochs=1, learners=LEARNERS, hidden=8, samples=4, test_samples=2, all_tasks_every=3
)


def again(folder, workers=1):
    return Run.open(folder).execute(workers)


def flip(path, where):
    data = bytearray(path.read_bytes())
    data[where] ^= 1
    path.write_bytes(data)


DAMAGE = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-7]),
    "halved": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "flipped": lambda path: flip(path, path.stat().st_size - 40),
    "empty": lambda path: path.write_bytes(b""),
    "missing": lambda path: path.unlink(),
    "foreign": lambda path: path.write_bytes(b"\x80\x81 something else \xff" * 9),
}


def rewritten(path, change):
    """Tamper with a checkpoint's JSON and make its check right again."""
    description = json.loads(path.read_text())
    del description["check"]
    description = change(description)
    if isinstance(description, dict):
        description["check"] = digest_of(json.dumps(description))
    path.write_text(json.dumps(description))
