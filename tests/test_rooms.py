"""Arrows point one way: which module may import which, read off the sources, imports inside functions included."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
ROOMS = ("rules", "posterior", "optim", "engine", "learners", "online")  # each may import those before it
FACADES = {"mesu", "mesu.data", "mesu.streams", "mesu.__main__"}  # documented import paths, which lead into other rooms


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


MODULES = {module_of(path): path for path in sorted((SOURCE / "mesu").rglob("*.py"))}


def imports(name: str, path: Path) -> set[str]:
    """The modules of mesu that a file imports, at its top or anywhere inside."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in MODULES}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} has a relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found |= {inner} if inner in MODULES else {node.module} & MODULES.keys()
    return found - {name}


GRAPH = {name: imports(name, path) for name, path in MODULES.items()}


def room(name: str) -> str:
    return name.split(".")[1] if name.count(".") else ""


def test_the_graph_is_read():
    assert len(GRAPH) > 80
    assert "mesu.rules" in GRAPH["mesu.optim.weights"]
    assert "mesu.online.sklearn" in GRAPH["mesu"]  # an import inside a function


def test_the_library_never_imports_the_lab():
    for name, others in GRAPH.items():
        if room(name) != "lab" and name not in FACADES:
            assert not {other for other in others if room(other) == "lab"}, name


def test_nothing_imports_a_facade():
    for name, others in GRAPH.items():
        assert not others & (FACADES - {"mesu"}), name


@pytest.mark.parametrize("name", [name for name in GRAPH if room(name) in ROOMS])
def test_a_room_knows_only_the_rooms_before_it(name):
    later = ROOMS[ROOMS.index(room(name)) + 1 :]
    assert not {other for other in GRAPH[name] if room(other) in later}


def test_there_is_no_cycle():
    """Facades and packages only pass names on; a module that imports a package is taken to import what that imports."""
    done: set[str] = set()

    def visit(name: str, way: tuple[str, ...]) -> None:
        assert name not in way, " -> ".join((*way[way.index(name) :], name))
        if name not in done:
            for other in sorted(GRAPH[name]):
                visit(other, (*way, name))
            done.add(name)

    for name in GRAPH:
        visit(name, ())
