"""`mesu data`: what the commands print, and with which exit code."""

import json
from dataclasses import replace

import numpy as np
import pytest
from tests.lab.data import places
from tests.lab.data.made_up import ARRAYS, Made, described, mnist_module, some_arrays, tiny

from mesu.lab import data
from mesu.lab.cli import main as cli
from mesu.lab.data.catalogue import data_sets, register
from mesu.lab.data.finding import load, verify
from mesu.lab.data.published import Published, Unavailable

folders, cache, data_folder = places.folders, places.cache, places.data_folder  # fixtures


@pytest.fixture
def shelf(monkeypatch):
    """A catalogue of made-up sets: one to be had, one that nobody has, one that comes with a package."""

    def fill(*sets):
        monkeypatch.setattr(data_sets, "_registered", {})
        for known in sets:
            register(known)

    fill(
        tiny(Made(ARRAYS)),
        replace(tiny(Made(Unavailable("no [lab] here"), "by post")), name="lost", title="Lost"),
        replace(tiny(), name="private", title="Private"),
        replace(tiny(Made(ARRAYS, here=True)), name="shipped", ships_with="a library"),
    )
    return fill


def command(capsys, *arguments):
    code = 0
    try:
        cli.main(["data", *arguments])
    except SystemExit as stopped:
        code = stopped.code
    said = capsys.readouterr()
    return code, said.out, said.err


def test_get_list_and_verify_say_what_there_is(shelf, capsys, cache, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    path = str(cache / "tiny_set.npz")
    code, out, _ = command(capsys, "list")
    assert code == 0
    rows = {line.split()[1]: line for line in out.splitlines() if line.startswith("│")}
    assert "not here: mesu data get tiny-set" in rows["tiny-set"]
    assert "not here: put private.npz into MESU_DATA" in rows["private"]
    assert "a library" in rows["shipped"]
    assert "twenty things" in rows["shipped"]

    code, out, err = command(capsys, "get", "tiny-set", "shipped")
    assert code == 0
    assert out.splitlines() == [f"tiny-set  {path}", "shipped  a library"]
    assert "Tiny is not on this machine yet: fetching it, once" in err
    assert f"kept as {path}" in err
    code, out, err = command(capsys, "get", "tiny-set")
    assert (code, out, err) == (0, f"tiny-set  {path}\n", "")
    assert path in command(capsys, "list")[1]

    code, out, _ = command(capsys, "verify")
    assert (code, out.splitlines()) == (0, [f"tiny-set  {path}  correct", "shipped  a library  correct"])


def test_commands_print_one_json_object(shelf, capsys, cache, data_folder):
    path = str(cache / "tiny_set.npz")
    code, out, _ = command(capsys, "get", "tiny-set", "lost", "--json")
    assert code == 2
    first, second = json.loads(out)["sets"]
    assert (first["name"], first["where"], first["error"]) == ("tiny-set", path, None)
    assert second["error"].startswith("Lost was not found")
    listed = json.loads(command(capsys, "list", "--json")[1])
    assert (listed["mesu_data"], listed["cache"]) == (str(data_folder), str(cache))
    assert {entry["name"]: entry["where"] for entry in listed["sets"]} == {
        "tiny-set": path,
        "lost": None,
        "private": None,
        "shipped": "a library",
    }
    assert listed["sets"][0]["bytes"] == 30 * 785
    code, out, _ = command(capsys, "verify", "tiny-set", "--json")
    assert (code, json.loads(out)) == (0, {"sets": [{"name": "tiny-set", "where": path, "wrong": []}]})


def test_verify_names_the_wrong_array_in_every_place(shelf, capsys, cache, data_folder):
    known = data_sets["tiny-set"]
    load(known)
    np.savez(data_folder / "tiny_set.npz", **(ARRAYS | {"y_test": ARRAYS["y_test"] + 1}))
    code, out, _ = command(capsys, "verify", "tiny-set")
    assert code == 2
    assert out.splitlines() == [
        f"tiny-set  {data_folder / 'tiny_set.npz'}  wrong: array y_test has other bytes than it should (by SHA-256)",
        f"tiny-set  {cache / 'tiny_set.npz'}  correct",
    ]
    code, out, _ = command(capsys, "verify", "--json")
    assert code == 2
    assert [len(entry["wrong"]) for entry in json.loads(out)["sets"]] == [1, 0, 0]
    (data_folder / "tiny_set.npz").write_bytes(b"PK")
    code, out, _ = command(capsys, "verify")
    assert code == 2
    assert "wrong: it is damaged or not a file of arrays" in out
    assert set(verify(known)) == {str(data_folder / "tiny_set.npz"), str(cache / "tiny_set.npz")}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["get", "tiny"], "error: there is no data set 'tiny': choose from tiny-set, lost, private, shipped"),
        (["get", "tiny-set", "oops"], "error: there is no data set 'oops'"),
        (["get"], "error: say which data set to get: tiny-set, lost"),
        (["get", "lost"], "by post: no [lab] here"),
        (["get", "private"], "error: Private was not found"),
        (["verify", "oops"], "error: there is no data set 'oops'"),
        (["verify", "private"], "private  wrong: not here: put private.npz into MESU_DATA"),
    ],
)
def test_wrong_requests_are_a_sentence_and_exit_code_2(shelf, capsys, cache, arguments, words):
    code, out, err = command(capsys, *arguments)
    assert code == 2
    assert words in out + err
    assert "Traceback" not in out + err
    assert not cache.exists() or list(cache.iterdir()) == []


def test_get_goes_on_after_a_set_that_cannot_be_had(shelf, capsys, cache):
    code, out, err = command(capsys, "get", "lost", "tiny-set")
    assert code == 2
    assert out == f"tiny-set  {cache / 'tiny_set.npz'}\n"
    assert "error: Lost was not found" in err


def test_verify_does_not_claim_what_cannot_be_known(shelf, capsys):
    known = replace(tiny(Made(ARRAYS)), contents=described(ARRAYS, hashed=False))
    shelf(known)
    load(known)
    code, out, _ = command(capsys, "verify")
    assert code == 0
    assert out.endswith("undamaged (nobody has published hashes of its arrays)\n")


def test_list_says_when_a_copy_only_has_to_be_read(shelf, capsys):
    shelf(tiny(Made(ARRAYS, "/a/copy.tar.gz", here=True)))
    entry = " ".join(word for word in command(capsys, "list")[1].split() if word != "│")
    assert "mesu data get" in entry
    assert "reads" in entry


def test_data_command_explains_itself(capsys):
    for arguments in (["--help"], ["get", "--help"], ["list", "--help"], ["verify", "--help"]):
        code, out, _ = command(capsys, *arguments)
        assert code == 0
        assert "mesu data" in out
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    assert "data" in capsys.readouterr().out


def test_experiment_fetches_its_data_and_says_so(tmp_path, monkeypatch, capsys):
    rng = np.random.default_rng(0)

    def known(name):
        arrays = some_arrays(seed=int(rng.integers(100)))
        arrays["y_train"][:10] = arrays["y_test"][:] = np.arange(10)
        return Published(name, name.title(), "", described(arrays), (Made(arrays),))

    for name, function in (("MNIST", data.mnist), ("FASHION_MNIST", data.fashion_mnist)):
        monkeypatch.setattr(mnist_module, name, known(name.lower()))
        function.cache_clear()
    started = []
    monkeypatch.setattr(cli, "execute", lambda run, workers, as_json, log: started.append(run))
    try:
        cli.main(["run", "permuted-mnist", "--learners", "sgd", "--out", str(tmp_path / "runs"), "--json"])
        assert data.mnist().x_train.shape == (20, 784)
    finally:
        data.mnist.cache_clear()
        data.fashion_mnist.cache_clear()
    assert len(started) == 1
    said = capsys.readouterr()
    assert said.out == ""
    for title in ("Mnist", "Fashion_Mnist"):
        assert f"{title} is not on this machine yet: fetching it, once" in said.err
