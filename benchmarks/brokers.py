"""A consumer of Redis Streams that is killed again and again, and whether its model is that of one which nobody disturbed.

    python -m benchmarks.brokers --kills 50

The consumer is the code of docs/guides/brokers.md, as it stands there. The server is Debian's redis-server, on loopback,
without a disk. A kill comes after a random number of commands that the server has served, so it may fall anywhere: in a
prediction, between learning and saving, while the file is written.
"""

import argparse
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

GUIDE = Path(__file__).parents[1] / "docs" / "guides" / "brokers.md"
COLUMNS = 4
PATIENCE = 300  # seconds that a server may take to start


def code() -> dict[str, Any]:
    """The functions of the guide."""
    (listing,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(listing, str(GUIDE), "exec"), names)
    return names


@contextmanager
def server() -> Iterator[int]:
    """A server of one's own; yields its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder]
        command = [shutil.which("redis-server") or "redis-server", *options]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            until = time.monotonic() + PATIENCE
            while not _answers(port):
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError(f"redis-server did not start on port {port}")
                time.sleep(0.05)
            yield port
        finally:
            process.kill()
            process.wait()


def connect(port: int) -> Any:
    """A client."""
    import redis

    return redis.Redis(port=port, decode_responses=True)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def send(broker: Any, rows: int, seed: int = 0) -> str:
    """Rows of two classes, whose labels come 30 rows later; one row in fifty is bad. Returns the id of the last label."""
    draw, waiting, last = np.random.default_rng(seed), [], "0"
    pipe = broker.pipeline()
    for i in range(rows):
        y = int(draw.integers(2))
        x = (draw.normal(size=COLUMNS) + 2 * y).tolist()
        bad = (json.dumps(x[:-1]), "[NaN, 1, 2, 3]", "no JSON")[i % 3]
        pipe.xadd("rows", {"x": bad if i % 50 == 49 else json.dumps(x)}, id=f"{i + 1}-0")
        waiting.append((f"{i + 1}-0", y))
        if len(waiting) > 30 or i == rows - 1:
            for row, label in waiting if i == rows - 1 else [waiting.pop(0)]:
                last = f"{rows + int(row.partition('-')[0])}-0"
                pipe.xadd("labels", {"row": row, "y": f"class {label}"}, id=last)
    pipe.execute()
    return last


def commands(broker: Any) -> int:
    """How many commands the server has served."""
    return broker.info("stats")["total_commands_processed"]


def run(port: int, path: Path, until: str, kills: int, seed: int = 0, save_every: int = 500) -> int:
    """Consume all, in processes that are killed so often. Returns how many were."""
    broker, moments, killed = connect(port), random.Random(seed), 0
    consume = code()["consume"]
    while True:
        child = os.fork()
        if child == 0:
            try:
                consume(connect(port), str(path), COLUMNS, until, save_every=save_every)
                os._exit(0)
            finally:
                os._exit(1)
        # the looking itself is served too: a few commands for each look
        limit = commands(broker) + moments.randrange(20, 700)
        ended = 0
        while not ended and (killed == kills or commands(broker) < limit):
            ended, status = os.waitpid(child, os.WNOHANG)
            time.sleep(0.002)
        if ended:
            if status:
                raise RuntimeError(f"the consumer ended with {status}")
            return killed
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        killed += 1


def main() -> None:
    """Kill, compare, print."""
    import mesu

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--rows", type=int, default=4_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for name, kills in (("undisturbed", 0), ("killed", given.kills)):
            path = Path(folder) / f"{name}.safetensors"
            with server() as port:
                until = send(connect(port), given.rows)
                killed = run(port, path, until, kills)
                counts = {
                    stream: connect(port).xlen(stream)
                    for stream in ("predictions", "dead-rows", "dead-labels", "alarms")
                }
                print(f"{name}: {killed} kills, {counts}", flush=True)
                found[name] = mesu.load(path)
        one, other = (model._online.snapshot for model in found.values())
        same = all(np.array_equal(getattr(one.weights, part), getattr(other.weights, part)) for part in ("mean", "std"))
        print(f"{one.rows} rows learned; the models are {'the same, bit for bit' if same else 'NOT the same'}")
        print(f"carried: {found['killed'].carried}")


if __name__ == "__main__":
    main()
