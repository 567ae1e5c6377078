"""House rules, read off the sources: short functions, no `globals()`, no relative imports, a docstring in every module."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = {
    path.relative_to(ROOT).as_posix(): path
    for folder in ("src", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*.py"))
}
MOST_LINES = 60  # of a function; blank lines and docstrings do not count
# Functions that are longer, each with its reason. An entry that is no longer needed fails the test.
LONGER: dict[tuple[str, str], str] = {}
FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(function: ast.AST, lines: list[str]) -> int:
    """Lines of a function, without blank lines and without its docstring or those of what is defined in it."""
    skipped = set()
    for node in ast.walk(function):
        if isinstance(node, (*FUNCTION, ast.ClassDef)) and ast.get_docstring(node) is not None:
            skipped |= set(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return sum(
        1 for i in range(function.lineno, function.end_lineno + 1) if i not in skipped and lines[i - 1].strip() != ""
    )


def long_functions(name: str, text: str) -> dict[tuple[str, str], int]:
    lines = text.splitlines()
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, FUNCTION)]
    counts = {(name, node.name): code_lines(node, lines) for node in functions}
    return {key: count for key, count in counts.items() if count > MOST_LINES}


def calls_globals(text: str) -> bool:
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    return any(isinstance(call.func, ast.Name) and call.func.id == "globals" for call in calls)


def is_relative(node: ast.AST) -> bool:
    return isinstance(node, ast.ImportFrom) and node.level > 0


def test_the_sources_are_found():
    assert len(FILES) > 100
    assert "src/mesu/posterior/bayesian.py" in FILES


def test_lines_are_counted_as_said():
    text = 'def f():\n    """Two\n\n    lines."""\n\n    x = 1\n\n    def g():\n        "Doc."\n        return x\n'
    (function,) = ast.parse(text).body
    assert code_lines(function, text.splitlines()) == 4
    long = "def f():\n" + "    x = 1\n\n" * MOST_LINES
    assert long_functions("a.py", long) == {("a.py", "f"): MOST_LINES + 1}
    assert long_functions("a.py", long.replace("    x = 1\n", "", 1)) == {}


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
