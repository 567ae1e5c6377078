"""Make all attacks, and print a table of what was tried and what survived. Only temporary folders are written to.

`python -m benchmarks.attacks` takes twenty minutes at most, and `--quick` two. It stops by itself: each attack has a part of
`--minutes`, after which it ends with what it has tried. The exit code is 1 if anything was lost.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import torch
from benchmarks.attacks import files, processes, rows, runs
from benchmarks.attacks.attack import Attack, count

ATTACKS = (
    Attack("runs killed, then resumed", runs.killed, 100, 5, 3),
    Attack("run folders from somebody else", runs.foreign, 200, 20),
    Attack("saves of two processes killed", files.killed_saves, 200, 20, 2),
    Attack("files of models damaged", files.damaged, 10_000, 200, 2),
    Attack("files of models made up, with right digests", files.made_up, 2_000, 100),
    Attack("bad rows", rows.bad_rows, 50_000, 1_000, 4),
    Attack("patterns of outliers", rows.outliers, 140, 10, 2),
    Attack("jumps of the target", rows.jumps, 40, 2, 3),
    Attack("threads that learn and predict at once", processes.threads, 50, 3),
    Attack("forks while threads learn and save", processes.forks, 200, 10, 2),
    Attack("caches of compiled code", processes.caches, 14, 1, 4),
)


def main(arguments: list[str] | None = None) -> int:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attacks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few tries of each")
    parser.add_argument("--minutes", type=float, help="for all attacks together (20, or 2 with --quick)")
    parser.add_argument("--only", default="", help="attacks whose names have this in them")
    choices = parser.parse_args(arguments)
    torch.set_num_threads(1)
    chosen = [attack for attack in ATTACKS if choices.only in attack.name]
    seconds = 60 * (choices.minutes or (2 if choices.quick else 20)) / sum(attack.share for attack in chosen)
    began, lost = time.process_time(), False
    print("| attack | tried | survived | lost |\n|---|---|---|---|")
    for attack in chosen:
        with tempfile.TemporaryDirectory() as folder:
            tries = attack.quick if choices.quick else attack.tries
            found = count(attack, tries, attack.share * seconds, Path(folder))
        lost |= bool(found.lost)
        sentences = "; ".join(f"{often} x {sentence}" for sentence, often in found.lost.items())
        print(f"| {attack.name} | {found.tried:,} | {found.survived:,} | {sentences} |", flush=True)
    print(f"\n{(time.process_time() - began) / 60:.1f} minutes of this process's CPU time", file=sys.stderr)
    return int(lost)


if __name__ == "__main__":
    sys.exit(main())
