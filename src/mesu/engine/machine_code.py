"""Machine code that is the same in every process: how a loop is compiled, and how it is kept on disk.

A compiled loop calls helpers. The compiler has put them into the loop's own machine code, but lets the linker take any other
helper of that name instead. In the process that compiles there are others: each helper's own code, optimised apart from the
loop, which may round a sum otherwise. A process that loads the loop from disk has none. So the helpers of a loop are made its
own (`OwnHelpers`), and both processes run the same instructions.

A file on disk begins with the digest of the rest. One that is cut short, damaged, or made for another machine counts as absent.
Where no folder can be written to, or the disk is full, the code stays in memory, and the next process compiles it again: no
import and no learning fails.
"""

import hashlib
import pickle
import platform
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
from llvmlite.binding import Linkage
from numba.core import serialize
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompileResult
from numba.misc.appdirs import AppDirs

from mesu import rules
from mesu.disk import replacing

MARK = b"mesu machine code 1\n"  # what a file begins with, before the digest
DIGEST = 32  # bytes of SHA-256


class OwnHelpers(JITCodeLibrary):
    """The machine code of one loop, whose helpers nothing outside of it can replace."""

    def _finalize_final_module(self) -> None:
        # Only now, when all is optimised: earlier, the compiler would optimise otherwise and round otherwise.
        for function in self._final_module.functions:
            if not function.is_declaration and function.linkage == Linkage.linkonce_odr:
                function.linkage = "internal"
        super()._finalize_final_module()


class LoopCompiler(Compiler):
    """numba's compiler, for loops with `OwnHelpers`."""

    def compile_extra(self, func: Any) -> Any:
        """Compile a Python function."""
        self.state.library = OwnHelpers(self.state.targetctx.codegen(), func.__qualname__)
        self.state.library.enable_object_caching()
        return super().compile_extra(func)


def loop(function: Any, source: Callable[[], str], flags: Mapping[str, Any]) -> Any:
    """A function that is compiled for each kind of arguments at its first call, or read from disk.

    Args:
        function: The Python function.
        source: Gives a text that changes with what the function is made of outside of the engine and the rules.
        flags: How numba compiles it.
    """
    dispatcher: Any = numba.njit(pipeline_class=LoopCompiler, **flags)(function)
    dispatcher._cache = OnDisk(f"{function.__module__}.{function.__qualname__}", source)
    return dispatcher


class OnDisk:
    """The compiled forms of one loop, each in a file of its own: what numba asks where a function may be in a cache."""

    def __init__(self, name: str, source: Callable[[], str]) -> None:
        self.name, self.source, self.enabled = name, source, True

    @property
    def cache_path(self) -> str:
        """The folder that is tried first."""
        return str(folders()[0])

    def load_overload(self, sig: Any, target_context: Any) -> CompileResult | None:
        """The compiled form for these types of arguments, if a whole one is on disk."""
        if not self.enabled:
            return None
        target_context.refresh()
        name = self._file(sig, target_context.codegen())
        for folder in folders():
            kept = read(folder / name)
            if kept is not None:
                found = _rebuilt(kept, target_context)
                if found is not None and found.signature.args == tuple(sig):
                    return found
        return None

    def save_overload(self, sig: Any, data: CompileResult) -> None:
        """Keep a compiled form in the first folder that takes it; in none, if none does."""
        if not self.enabled or data.library.has_dynamic_globals:
            return
        try:
            kept = serialize.dumps(data._reduce())
        except Exception:  # types that cannot be pickled, of a rule in a notebook for example: of any kind
            return
        name = self._file(sig, data.library.codegen)
        for folder in folders():
            with suppress(OSError):
                write(folder / name, kept)
                return

    def enable(self) -> None:
        """Use files from now on."""
        self.enabled = True

    def disable(self) -> None:
        """Use no files from now on."""
        self.enabled = False

    def flush(self) -> None:
        """Nothing to do: files are told apart by all that they are made of."""

    def _file(self, sig: Any, codegen: Any) -> str:
        """The name of the file: it changes with the source, the types, the machine, and the versions that compile."""
        machine = (platform.python_implementation(), platform.python_version_tuple()[:2], codegen.magic_tuple())
        made_of = (
            engine_sources(),
            self.source(),
            tuple(map(str, sig)),
            machine,
            numba.__version__,
            llvmlite.__version__,
        )
        return f"{self.name}-{hashlib.sha256(repr(made_of).encode()).hexdigest()[:32]}.machine"


def folders() -> list[Path]:
    """Where machine code may be, in the order in which folders are tried: where the user says, and else in either of two."""
    given = numba.config.CACHE_DIR  # type: ignore[attr-defined]  # $NUMBA_CACHE_DIR
    if given:
        return [Path(given)]
    places = [Path(__file__).parent / "__pycache__"]
    with suppress(Exception):  # a user without a home
        places.append(Path(AppDirs(appname="mesu", appauthor=False).user_cache_dir) / "engine")
    return places


def read(path: Path) -> bytes | None:
    """What `write` has written; None if there is no such file, or not as it was written."""
    try:
        text = path.read_bytes()
    except OSError:
        return None
    kept = text[len(MARK) + DIGEST :]
    whole = text.startswith(MARK) and text[len(MARK) :][:DIGEST] == hashlib.sha256(kept).digest()
    return kept if whole else None


def write(path: Path, kept: bytes) -> None:
    """Write a file with the digest of its content, in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, flush=False) as aside:
        aside.write_bytes(MARK + hashlib.sha256(kept).digest() + kept)


def _rebuilt(kept: bytes, target_context: Any) -> CompileResult | None:
    """The code in a file, ready to run; None if it does not fit, because a module that it names has gone, for example."""
    try:
        return CompileResult._rebuild(target_context, *pickle.loads(kept))
    except Exception:  # unpickling raises errors of any kind
        return None


@cache
def engine_sources() -> str:
    """A digest of the sources of the engine and of the rules."""
    digest = hashlib.sha256()
    for room in (Path(__file__).parent, Path(rules.__file__).parent):
        for path in sorted(room.glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()
