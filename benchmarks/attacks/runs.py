"""Runs of experiments that are killed at any moment, and run folders from somebody else."""

import json
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from benchmarks.attacks.attack import Tries

from mesu.lab.experiments import PermutedDigits
from mesu.lab.report.markdown import write_markdown
from mesu.lab.runs import settings as saved_settings
from mesu.lab.runs.locks import end_with
from mesu.lab.runs.run import Run

SHORT = PermutedDigits(
    tasks=12,
    seeds=1,
    epochs=1,
    learners=("mesu", "ewc-online", "si"),
    hidden=8,
    samples=4,
    test_samples=2,
    all_tasks_every=1_000_000,
)
LONGEST = 0.1  # seconds until the next kill, after as many stages as chance says
NAMES = ("../../../../victim/precious", "/victim/precious", "..\\victim", "\x1b]0;owned\x07", "a\0b", "a\nb", "..", "")
PLACES = ("parts", "checkpoints", "checkpoints/mesu-0", "report.html", "table.parquet", "figures", "times.json")


def killed(random: np.random.Generator, folder: Path) -> Tries:
    """Runs killed at random moments and resumed until they end: the table is that of a run which was left alone."""
    whole = Run.create(SHORT, folder / "whole").execute(workers=1)
    while True:
        run, kills = Run.create(SHORT, folder / "killed"), 0
        while True:
            child = os.fork()
            if child == 0:
                _execute(run.folder)
            goal = run.stages_done() + int(random.integers(0, 8))
            ended = _ended(child, run, goal, float(random.uniform(0, LONGEST)))
            if ended is not None:
                break
            kills += 1
        same = ended == 0 and run.table().equals(whole) and not list(run.folder.rglob(".*.aside"))
        for _ in range(kills):
            yield None if same else "a run ended otherwise"


def _execute(folder: Path) -> None:
    os.setsid()
    end_with(os.getppid())
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    code = 1
    try:
        Run.open(folder).execute(workers=1)
        code = 0
    finally:
        os._exit(code)


def _ended(child: int, run: Run, goal: int, seconds: float) -> int | None:
    """Kill a run a little after so many stages; its exit code, if it ended before."""
    while run.stages_done() < goal:
        number, status = os.waitpid(child, os.WNOHANG)
        if number:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    time.sleep(seconds)
    number, status = os.waitpid(child, os.WNOHANG)
    if number:
        return os.waitstatus_to_exitcode(status)
    own = os.getpgid(child) == child  # not yet, if it has just begun
    (os.killpg if own else os.kill)(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def foreign(random: np.random.Generator, folder: Path) -> Tries:
    """Somebody else's runs: learners with names that lead elsewhere, links that lead out, settings that were edited."""
    given = Run.create(replace(SHORT, tasks=2), folder / "given")
    given.execute(workers=1)
    outside = folder / "victim"
    outside.mkdir()
    (outside / "precious").write_text("precious")
    (outside / "precious-0.parquet").write_text("precious")
    number = 0
    while True:
        number += 1
        copy = folder / "runs" / str(number)
        shutil.copytree(given.folder, copy)
        _edit(copy, outside, random)
        taken = _taken(copy, folder / "page")
        touched = [path.read_text() for path in outside.iterdir()] != ["precious"] * 2
        yield "files outside were changed" if touched else "it was taken" if taken else None
        shutil.rmtree(copy)


def _edit(copy: Path, outside: Path, random: np.random.Generator) -> None:
    """Make a run folder harmful in one way; each must be refused."""
    kind, path = int(random.integers(4)), copy / "settings.json"
    saved = json.loads(path.read_text())
    if kind == 0:
        saved["settings"]["learners"] = [NAMES[int(random.integers(len(NAMES)))]]
    elif kind == 1:
        place = copy / PLACES[int(random.integers(len(PLACES)))]
        if place.is_dir():
            shutil.rmtree(place)
        place.unlink(missing_ok=True)
        place.parent.mkdir(exist_ok=True)
        place.symlink_to(outside if "." not in place.name else outside / "precious")
        return
    elif kind == 2:
        saved["settings"]["seeds"] = int(10 ** random.uniform(4.1, 18))
    else:
        saved["settings"]["hidden"] = 9  # which the parts were not made with
    if kind != 3:
        saved["sha256"] = saved_settings.digest_of_settings(saved)
    path.write_text(json.dumps(saved))


def _taken(copy: Path, page: Path) -> bool:
    """Whether a run is resumed, or a page is made of it."""
    for use in (lambda: Run.open(copy).execute(1), lambda: write_markdown(Run.open(copy), page)):
        try:
            use()
        except (ValueError, OSError):
            continue
        return True
    return False
