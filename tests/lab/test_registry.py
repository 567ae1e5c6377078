"""Registries: names from decorators and from the entry points of other packages."""

import sys

import pytest

from mesu.lab.registry import Registry, import_modules


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installed package with two entry points: one that loads, and one whose module does not exist."""
    (tmp_path / "somebodys.py").write_text("class Theirs:\n    'Theirs.'\n")
    info = tmp_path / "somebodys-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[mesu.things]\ntheirs = somebodys:Theirs\nbroken = nowhere_to_be:Found\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("somebodys", None)


def test_a_decorator_and_an_entry_point_give_a_name(package):
    things = Registry("thing", "mesu.things")

    @things.register("mine")
    class Mine:
        pass

    assert list(things) == ["mine", "theirs", "broken"]
    assert len(things) == 3
    assert things["mine"] is Mine
    assert "theirs" in things
    assert "somebodys" not in sys.modules  # not imported before it is asked for
    assert things["theirs"].__doc__ == "Theirs."
    assert things.origin("theirs") == "somebodys"
    assert things.get("nobody") is None


def test_what_is_not_there_and_what_cannot_be_loaded_is_said(package):
    things = Registry("thing", "mesu.things")
    with pytest.raises(ValueError, match="there is no thing 'cat': choose from theirs, broken, or import the module"):
        things["cat"]
    with pytest.raises(ValueError, match="the thing 'broken' cannot be loaded from 'nowhere_to_be:Found'"):
        things["broken"]
    with pytest.warns(UserWarning, match="the thing 'broken' cannot be loaded"):
        assert [name for name, _ in things.items()] == ["theirs"]
    with pytest.raises(ValueError, match="the module 'nowhere_to_be' cannot be imported"):
        import_modules(("nowhere_to_be",))


def test_a_name_is_not_given_twice():
    things = Registry("thing", "mesu.things")
    things.register("one")(int)
    things.register("one")(int)  # a module that is imported again
    with pytest.raises(ValueError, match="there is already thing 'one'"):
        things.register("one")(float)
    with pytest.raises(ValueError, match="the name of the thing must be a word, got ''"):
        things.register("")(float)
