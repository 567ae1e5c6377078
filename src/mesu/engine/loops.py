"""The compiled loops: built for each rule when it is first used, and kept on disk for the next process."""

import hashlib
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from numba.core import event

from mesu.engine import deterministic, joint, linear, local, predict, weight_draws
from mesu.engine.compiled import fingerprint
from mesu.engine.machine_code import engine_sources
from mesu.rules.curvature import gradient_of_sigma, share_of_joint_step
from mesu.rules.parts import rule_of

COMPILING = "MESU_COMPILING"  # environment variable: a file to make instead of printing that something is compiled
BUILDERS: dict[str, Callable[[str], Any]] = {
    "linear": linear.build,
    "joint": joint.build,
    "local": local.build,
    "weights": weight_draws.build,
    "plain": deterministic.build,
}


@cache
def learning_loop(kind: str, constants: type, for_curvature: type | None) -> Any:
    """The loop that learns under the rule of these constants: of a posterior (by its estimator) or of a "plain" network.

    Args:
        kind: A key of `BUILDERS`.
        constants: The type of the rule's constants.
        for_curvature: The type of those of its step for a known curvature, if it has one.
    """
    rule = rule_of(constants)
    parts = (getattr(rule, name, None) for name in ("keeps_positive", "scaled", "State", "for_curvature"))
    compiled = [rule.step, constants, *parts, gradient_of_sigma, share_of_joint_step]
    if for_curvature is not None:
        known = rule_of(for_curvature)
        compiled += [known.step, *(getattr(known, name, None) for name in ("uncut_step", "may_be_cut"))]
    return _announced(BUILDERS[kind](_label(rule.__name__, fingerprint(compiled))))


@cache
def fisher_loop() -> Any:
    """The Fisher pass at the end of a task."""
    return _announced(deterministic.build_fisher(_label("", "")))


@cache
def predicting_loop() -> Any:
    """The loop that draws outputs."""
    return _announced(predict.build(_label("", "")))


def _label(rule: str, source: str) -> str:
    """A name that changes with the engine's sources and with the rule's: a changed rule is compiled again."""
    digest = hashlib.sha256((engine_sources() + source).encode()).hexdigest()
    return f"{rule.replace('.', '_')}_{digest[:20]}"


class _Announcer(event.Listener):
    """Says, once in a process, that a loop is being compiled, which takes a while; a loop found on disk is silent.

    Where the environment variable `MESU_COMPILING` names a file, that file is made instead: a command with several worker
    processes prints the message once, however many of them compile.
    """

    def __init__(self) -> None:
        self.loops: list[Any] = []
        self.said = False

    def on_start(self, event: event.Event) -> None:
        """A compilation begins. numba reports those of other libraries too."""
        what: Any = event.data
        if self.said or not any(what["dispatcher"] is loop for loop in self.loops):
            return
        self.said = True
        if told := os.environ.get(COMPILING):
            with suppress(OSError):  # a worker may outlive the command that waits for the file
                Path(told).touch()
            return
        print(
            "mesu: compiling the engine for this machine, once for each rule (about 15 s) ...",
            file=sys.stderr,
            flush=True,
        )

    def on_end(self, event: event.Event) -> None:
        """A compilation has ended."""


@cache
def _announcer() -> _Announcer:
    listener = _Announcer()
    event.register("numba:compile", listener)
    return listener


def _announced(loop: Any) -> Any:
    _announcer().loops.append(loop)
    return loop
