"""House rules, read off the sources: short functions, no `globals()`, no relative imports, a docstring in every module."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = {
    path.relative_to(ROOT).as_posix(): path
    for folder in ("src", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*.py"))
}
MOST_LINES = 60  # of a function, from its `def` to its end, docstring and blank lines included
# Functions that are longer, each with its reason. An entry that is no longer needed fails the test.
LONGER = {
    ("src/mesu/engine/local.py", "build"): "holds `learn` and nothing else",
    ("src/mesu/engine/local.py", "learn"): "one compiled loop, and a line for each of its arguments",
}
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def long_functions(name: str, text: str) -> dict[tuple[str, str], int]:
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, FUNCTION)]
    counts = {(name, node.name): node.end_lineno - node.lineno + 1 for node in functions}
    return {key: count for key, count in counts.items() if count > MOST_LINES}


def calls_globals(text: str) -> bool:
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    return any(isinstance(call.func, ast.Name) and call.func.id == "globals" for call in calls)


def is_relative(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and node.level > 0


def test_the_sources_are_found():
    assert len(FILES) > 100
    assert "src/mesu/posterior/bayesian.py" in FILES


def test_all_lines_of_a_function_count():
    long = 'def f():\n    """Two\n\n    lines."""\n' + "\n    x = 1\n" * ((MOST_LINES - 4) // 2)
    assert long_functions("a.py", long) == {}
    assert long_functions("a.py", long + "    y = 1\n") == {("a.py", "f"): MOST_LINES + 1}


def test_no_function_is_longer_than_the_limit_without_a_reason():
    found: dict[tuple[str, str], int] = {}
    for name, path in FILES.items():
        found |= long_functions(name, path.read_text(encoding="utf-8"))
    assert {key: count for key, count in found.items() if key not in LONGER} == {}
    assert {key for key in LONGER if key not in found} == set(), "these are short enough now: remove their entries"


def test_nothing_writes_names_into_a_module():
    assert calls_globals("globals()['a'] = 1")
    found = {name for name, path in FILES.items() if calls_globals(path.read_text(encoding="utf-8"))}
    assert found == set()


@pytest.mark.parametrize("name", [name for name in FILES if name.startswith("src/")])
def test_a_module_has_a_docstring_and_no_relative_import(name):
    tree = ast.parse(FILES[name].read_text(encoding="utf-8"))
    assert not any(map(is_relative, ast.walk(tree)))
    public = not any(part.startswith("_") and part != "__init__.py" for part in Path(name).parts)
    assert ast.get_docstring(tree) or not public


def test_a_relative_import_would_be_seen():
    assert any(map(is_relative, ast.walk(ast.parse("from . import a"))))
    assert not any(map(is_relative, ast.walk(ast.parse("from mesu import a"))))


def test_the_lock_has_a_hash_for_every_package_and_the_versions_of_the_constraints():
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    entries = [entry for entry in re.split(r"(?m)^(?=[a-z0-9])", text) if not entry.startswith("#")]
    locked = {}
    for entry in entries:
        first, *digests = entry.split(" \\\n")
        name, version = first.split("==")
        assert digests, name
        assert all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}\n?", digest) for digest in digests), name
        locked[name] = version
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    pinned = dict(line.split("==") for line in constraints.splitlines() if line and not line.startswith("#"))
    assert {name: version for name, version in pinned.items() if name in locked} == {
        name: locked[name] for name in pinned if name in locked
    }
    assert {"numpy", "numba", "scikit-learn", "safetensors", "pytest", "river"} <= locked.keys()
