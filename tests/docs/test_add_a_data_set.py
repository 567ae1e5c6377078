"""The page on adding a data set, taken word by word: its programs run, its commands print what it quotes."""

import os
import re
import shlex
import sys
from pathlib import Path

import pytest

from mesu.lab.cli import main as cli
from mesu.lab.data import data_sets

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add-a-data-set.md"
BLOCKS = [
    (language, code)
    for language, code in re.findall(
        r"^```(\w*)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
]
PROGRAMS = [code for language, code in BLOCKS if language == "python"]
QUOTED = [code for language, code in BLOCKS if not language]
MODULES = ("my_flowers", "my_waves")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder to work in; no data set and no module of the page is known before or after."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MESU_DATA", raising=False)
    monkeypatch.setenv("MESU_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(data_sets, "_registered", dict(data_sets._registered))
    yield tmp_path
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.fixture
def prepared(folder):
    """The folder after the first two steps: the file of arrays, and the module beside it."""
    exec(PROGRAMS[0], {})
    (folder / "my_flowers.py").write_text(PROGRAMS[1], encoding="utf-8")
    return folder


def said_by(capsys, program):
    capsys.readouterr()
    exec(program, {})
    return capsys.readouterr().out


def mesu(capsys, *arguments):
    code = 0
    capsys.readouterr()
    try:
        cli.main(list(arguments))
    except SystemExit as stopped:
        code = stopped.code
    said = capsys.readouterr()
    return code, said.out + said.err


def test_every_block_of_the_page_is_known_here():
    assert [language for language, _ in BLOCKS] == ["python", "", "python", "", "", "python", "", "python", "", "toml"]


def test_the_first_program_prints_the_hashes_that_the_module_has(folder, capsys):
    out = said_by(capsys, PROGRAMS[0])
    assert out == QUOTED[0]
    hashes = re.findall(r"^[0-9a-f]{64}$", out, re.MULTILINE)
    assert hashes == re.findall(r'"([0-9a-f]{64})"', PROGRAMS[1])


def test_the_commands_find_the_set_of_a_users_module(prepared, capsys, monkeypatch):
    export, *commands = QUOTED[1].splitlines()
    name, _, value = export.removeprefix("export ").partition("=")
    monkeypatch.setenv(name, value)
    said = [mesu(capsys, *shlex.split(command)[1:]) for command in commands]
    assert [code for code, _ in said] == [0, 0, 0]
    assert "flowers" in said[0][1]
    assert "100 pictures" in said[0][1]
    assert "".join(out for _, out in said[1:]).replace(os.sep, "/") == QUOTED[2]


def test_the_commands_refuse_other_bytes_and_say_what_is_missing(prepared, capsys, monkeypatch):
    code, out = mesu(capsys, "data", "--import", "my_flowers", "get", "flowers")
    assert code == 2
    assert "Flowers was not found" in out
    assert "Put a file flowers.npz with the arrays x_train (uint8, 80 x 8 x 8 x 3), y_train (uint8, 80)" in out
    monkeypatch.setenv("MESU_DATA", "my_data")
    whole = (prepared / "my_data" / "flowers.npz").read_bytes()
    (prepared / "my_data" / "flowers.npz").write_bytes(whole.replace(bytes([0, 7, 14, 21]), bytes([0, 7, 14, 22]), 1))
    code, out = mesu(capsys, "data", "verify", "flowers", "--import=my_flowers")
    assert code == 2
    assert "wrong" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--import", "no_such_module", "list"], "the module 'no_such_module' cannot be imported"),
        (["list", "--import"], "--import needs the name of a module"),
        (["--import", "my_flowers", "get", "trees"], "there is no data set 'trees': choose from digits, mnist"),
        (["get", "flowers"], "there is no data set 'flowers'"),
    ],
)
def test_what_cannot_be_imported_or_found_is_a_sentence(prepared, capsys, arguments, words):
    code, out = mesu(capsys, "data", *arguments)
    assert code == 2
    assert words in " ".join(out.split())
    assert "Traceback" not in out


def test_the_function_of_the_module_gives_a_data_set(prepared, capsys, monkeypatch):
    monkeypatch.setenv("MESU_DATA", "my_data")
    monkeypatch.syspath_prepend(prepared)
    assert said_by(capsys, PROGRAMS[2]) == QUOTED[3]


def test_a_source_of_ones_own_is_asked_once_and_kept(folder, capsys, monkeypatch):
    assert said_by(capsys, PROGRAMS[3]) == QUOTED[4]
    assert (folder / "cache" / "waves.npz").is_file()
    waves = data_sets["waves"]
    monkeypatch.setattr(type(waves.sources[0]), "arrays", lambda self, folder: pytest.fail("asked again"))
    code, out = mesu(capsys, "data", "get", "waves")
    assert (code, out) == (0, f"waves  {folder / 'cache' / 'waves.npz'}\n")


def test_an_entry_point_needs_no_import(prepared, capsys, monkeypatch):
    package = prepared / "flowers_package-1.0.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: flowers-package\nVersion: 1.0\n")
    group, line = re.findall(r'entry-points\."(.*?)"\]\n(.*)\n', BLOCKS[-1][1])[0]
    (package / "entry_points.txt").write_text(f"[{group}]\n{line.replace(chr(34), '')}\n")
    monkeypatch.syspath_prepend(prepared)
    monkeypatch.setenv("MESU_DATA", "my_data")
    code, out = mesu(capsys, "data", "verify", "flowers")
    assert (code, out.replace(os.sep, "/")) == (0, "flowers  my_data/flowers.npz  correct\n")
