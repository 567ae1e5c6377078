"""A run folder from somebody else, and one that was changed: nothing outside is touched, nothing is mixed."""

import json
import os
import re
import shutil

import pytest
from tests.lab.runs.tiny import TINY, again

from mesu.lab.cli.data import print_error
from mesu.lab.report.markdown import write_markdown
from mesu.lab.runs import settings
from mesu.lab.runs.run import Run
from mesu.lab.runs.tables import hash_file, write_table
from mesu.lab.table import Row, as_table

pytestmark = pytest.mark.usefixtures("quick")
posix = pytest.mark.skipif(os.name != "posix", reason="POSIX only")
RAW = "<script>alert(1)</script>|`x`[link](javascript:1)"
ESCAPE = "\x1b]0;owned\x07\x1b[31m"


@pytest.fixture
def copy(finished, tmp_path):
    """A finished run to change."""
    folder = tmp_path / "runs" / "copy"
    shutil.copytree(finished[0], folder)
    return folder


def edited(folder, change, honest=True):
    """Change settings.json; an `honest` change brings its digest along, as somebody else's file would have."""
    path = folder / "settings.json"
    saved = json.loads(path.read_text())
    change(saved)
    if honest:
        saved["sha256"] = settings.digest_of_settings(saved)
    path.write_text(json.dumps(saved))


def tree(folder):
    """Every file below a folder, with its bytes."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# -- from somebody else ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["../../../../victim/precious", "/victim/precious", "..\\victim", ESCAPE, "a\0b", "a\nb"]
)
def test_a_learner_whose_name_leads_elsewhere_is_refused_before_any_file_is_touched(copy, tmp_path, name):
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "precious-0.parquet").write_bytes(b"precious")
    edited(copy, lambda saved: saved["settings"].update(learners=[name]))
    before = tree(tmp_path)
    with pytest.raises(ValueError, match=r"learners|labels|null byte"):
        again(copy)
    assert tree(tmp_path) == before


@posix
@pytest.mark.parametrize(
    "inside", ["parts", "checkpoints", "checkpoints/mesu-0", "report.html", "table.parquet", "figures"]
)
def test_links_that_lead_out_are_refused(copy, tmp_path, inside):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("precious")
    path = copy / inside
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    path.symlink_to(outside if "." not in inside else outside / "precious")
    before = tree(outside)
    for use in (again, lambda folder: write_markdown(Run.open(folder), tmp_path / "page")):
        with pytest.raises(ValueError, match="is a link that leads out of the run"):
            use(copy)
    assert tree(outside) == before


@posix
def test_pipes_are_refused(copy):
    os.mkfifo(copy / "parts" / "pipe")
    with pytest.raises(ValueError, match="a device, a pipe"):
        again(copy)


@posix
def test_a_link_within_the_run_is_none_that_leads_out(copy, finished):
    (copy / "parts").rename(copy / "parts-elsewhere")
    (copy / "parts").symlink_to("parts-elsewhere")
    assert again(copy).equals(finished[1])


def test_a_billion_seeds_are_refused(copy):
    edited(copy, lambda saved: saved["settings"].update(seeds=10**9))
    with pytest.raises(ValueError, match="seeds must be at most 10,000, got 1,000,000,000"):
        again(copy)


def test_a_page_of_somebody_elses_run_has_no_html_of_theirs(tmp_path):
    run = Run.create(TINY, tmp_path / "runs")
    where = ("permuted-digits", RAW, 0, 1, 0)
    rows = [Row(*where, 0, "accuracy", 0.5), Row(*where, None, RAW, 0.5)]
    write_table(run.folder / "table.parquet", as_table(rows))
    edited(run.folder, lambda saved: saved["versions"].update({RAW: RAW}))
    page = write_markdown(Run.open(run.folder), tmp_path / "page").read_text()
    assert "alert(1)" in page
    assert "<script" not in page
    table = [line for line in page.splitlines() if line.startswith("|")]
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in table}) == 1  # no row has more cells than the others
    assert not re.search(r"(?<!\\)\[link", page)


def test_names_that_a_terminal_would_obey_are_refused(copy, tmp_path, capsys):
    for column in ("learner", "measure", "experiment"):
        row = Row("permuted-digits", "sgd", 0, 1, 0, 0, "accuracy", 0.5)._replace(**{column: ESCAPE})
        write_table(copy / "table.parquet", as_table([row]))
        with pytest.raises(ValueError, match="is not the name of") as refused:
            Run.open(copy).table()
        assert "\x1b" not in str(refused.value)


def test_an_error_is_printed_without_control_characters(capsys):
    from rich.console import Console

    print_error(Console(), ValueError(f"a file called {ESCAPE}"))
    said = capsys.readouterr().out
    assert "\\x1b" in said
    assert "\x1b" not in said
    assert "\x07" not in said


# -- changed, or made elsewhere ----------------------------------------------------------------------------------------


def begun(folder):
    """A run of which one part is to be made again."""
    for name in ("table.parquet", "table.parquet.sha256", "parts/sgd-0.parquet"):
        (folder / name).unlink()
    return folder


def test_edited_settings_are_not_mixed(copy):
    edited(begun(copy), lambda saved: saved["settings"].update(hidden=9), honest=False)
    with pytest.raises(
        ValueError, match=r"not those that the run began with: `mesu run permuted-digits --settings-file .*`"
    ):
        again(copy)


@pytest.mark.parametrize("name", settings.DECISIVE)
def test_another_version_is_named_and_not_mixed(copy, finished, name):
    edited(copy, lambda saved: saved["versions"].update({name: "another"}))
    assert again(copy).equals(finished[1])  # nothing is left to do
    begun(copy)
    with pytest.raises(ValueError, match=f"began with {name} 'another', and this is {name} .*begins a new run"):
        again(copy)
    assert not (copy / "parts" / "sgd-0.parquet").exists()


def test_a_run_of_an_earlier_version_that_says_less_is_finished(copy, finished):
    def before(saved):
        del saved["sha256"]
        del saved["versions"]["processor"]

    edited(begun(copy), before, honest=False)
    assert again(copy).equals(finished[1])


def test_a_part_of_another_learner_is_made_again(copy, finished, capfd):
    begun(copy)
    for end in (".parquet", ".seconds"):
        shutil.copyfile(copy / "parts" / f"si-0{end}", copy / "parts" / f"sgd-0{end}")
    part = copy / "parts" / "sgd-0.parquet"
    hash_file(part).write_text(hash_file(copy / "parts" / "si-0.parquet").read_text())
    assert again(copy).equals(finished[1])
    assert f"{part} is of another learner or seed: it is made again" in capfd.readouterr().err


def test_checkpoints_of_another_learner_are_passed_over(copy, finished, capfd):
    begun(copy)
    shutil.rmtree(copy / "checkpoints" / "sgd-0")
    shutil.copytree(copy / "checkpoints" / "si-0", copy / "checkpoints" / "sgd-0")
    assert again(copy).equals(finished[1])
    assert "is of another learner or seed" in capfd.readouterr().err


def test_a_part_without_its_digest_is_made_again(copy, finished, capfd):
    part = copy / "parts" / "sgd-0.parquet"
    hash_file(part).unlink()
    assert again(copy).equals(finished[1])
    assert f"{part} has lost its SHA-256: it is made again" in capfd.readouterr().err
    assert hash_file(part).is_file()
