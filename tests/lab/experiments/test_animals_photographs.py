"""The photographs that a run of animals keeps, and how its report shows them."""

import re
from base64 import b64decode
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
from tests.lab.data import places
from tests.lab.features import made_up
from tests.lab.features.made_up import COLOURS, shade, species_folder

from mesu.lab.data import npz
from mesu.lab.data.animals import SPECIES
from mesu.lab.drawing.panels import overview, picture
from mesu.lab.experiments.animals.experiment import AnimalFamilies
from mesu.lab.features.photographs import (
    NETWORKS,
    make_features,
)
from mesu.lab.report import page as page_module
from mesu.lab.report import write, write_joined
from mesu.lab.report.figures import panels
from mesu.lab.runs.run import Run

WHALES = 3

folders, images = places.folders, made_up.images  # fixtures


def small_run(parent, features, **changes):
    """A run of a minute's worth of features in seconds."""
    little = {"photographs": 4, "epochs": 1, "hidden": 4, "samples": 2, "test_samples": 5, "seeds": 2}
    who = {"learners": ("mesu", "mesu-paper", "sgd"), "sgd_lr": (0.01,)}
    settings = AnimalFamilies(features=str(features), **{**little, **who, **changes})
    settings.check()
    run = Run.create(settings, parent)
    run.execute(workers=1)
    return run


@pytest.fixture
def shown(images, tmp_path, monkeypatch):
    """A run whose photographs are of one colour each, which says their species; the features are gone afterwards."""
    monkeypatch.setitem(NETWORKS, "effnetlite0", replace(COLOURS, std=(100, 100, 100)))
    species_folder(images / "Whale", 20, range(WHALES))
    made = make_features(images).path
    run = small_run(tmp_path / "runs", made)
    made.rename(tmp_path / "gone.npz")
    return run


def examples_of(table, learner):
    """Species or whale of each example, by its row in the data: there is one photograph to test of each species."""
    rows = table.filter(learner=learner, seed=0)
    return {
        name: rows.filter(measure=f"example_{name}").select("index", "value").rows() for name in ("animal", "whale")
    }


def test_a_run_keeps_the_photographs_of_its_examples(shown):
    table = shown.table()
    assert table.filter(seed=1, measure="example_animal").is_empty()
    assert sorted(shown.pictures()) == ["mesu-0", "mesu-paper-0", "sgd-0.01-0"]
    for learner in ("mesu", "mesu-paper", "sgd-0.01"):
        chosen = examples_of(table, learner)
        assert {name: len(each) for name, each in chosen.items()} == {"animal": 8, "whale": WHALES}
        pictures = shown.pictures()[f"{learner}-0"]
        assert set(pictures) == {f"{name}-{place}" for name, each in chosen.items() for place, _ in each}
        for name, picture_ in pictures.items():
            kind, _, place = name.partition("-")
            colour = shade(int(place), 4) if kind == "animal" else shade(20, int(place))
            assert picture_.shape == (64, 64, 3)
            assert (picture_ == colour).all(), name
        for each in chosen.values():
            assert [value for _, value in each] == sorted(value for _, value in each)


def drawn_pictures(panel):
    """Each picture's colour and the lines of text below it, row by row."""
    (axes,) = picture(panel).axes
    below = {}
    for text in axes.texts:
        x, y = text.get_position()
        below.setdefault((round(x, 6), int(y * 1000)), text.get_text())
    found = []
    for image in axes.images:
        left, _, bottom, _ = image.get_extent()
        lines = [word for (x, y), word in sorted(below.items()) if x == round(left, 6) and 0 < y / 1000 - bottom < 0.5]
        (colour,) = np.unique(np.asarray(image.get_array()).reshape(-1, 3), axis=0).tolist()
        found.append((tuple(colour), lines))
    return found


def test_the_panel_shows_each_photograph_above_its_own_name_answer_and_doubt(shown):
    table = shown.table()
    panel = next(each for each in panels(table, shown.pictures()) if each.name == "examples-sgd-0.01")
    chosen, found = examples_of(table, "sgd-0.01"), drawn_pictures(panel)
    answers = table.filter(learner="sgd-0.01", measure="example_animal_answer")
    families = ["bears", "cats", "poultry", "wild birds", "cattle"]
    answer_of = {place: families[int(value)] for place, value in answers.select("index", "value").iter_rows()}
    animals, whales = found[:8], found[8:]
    by_doubt = [place for place, _ in chosen["animal"]]
    assert [colour[0] // 10 for colour, _ in animals] == by_doubt[:4] + by_doubt[:3:-1]
    doubt_of = dict(chosen["animal"])
    for colour, (species, answer, doubt) in animals:
        place = colour[0] // 10
        assert colour == shade(place, 4)
        assert species == SPECIES[place]
        mark = "\N{CHECK MARK}" if answer_of[place] == families[place % 5] else "\N{BALLOT X}"
        assert answer == f"{answer_of[place]} {mark}"
        assert float(doubt) == pytest.approx(doubt_of[place], rel=0.05)
        assert f"{species} ({'rightly ' if mark == chr(10003) else ''}taken for {answer_of[place]}, " in panel.numbers
    least, middle, most = (place for place, _ in chosen["whale"])
    assert [colour for colour, _ in whales] == [shade(20, i) for i in (most, middle, least)]
    assert all(answer in families for _, (answer, _) in whales)


def test_the_page_carries_the_photographs_and_says_in_words_what_they_show(shown):
    text = write(shown).read_text(encoding="utf-8")
    figures = re.findall(r'<img src="data:image/svg\+xml;base64,([^"]+)"[^>]* alt="([^"]+)"', text)
    assert len(figures) == text.count("<img")
    with_photographs = {}
    for source, alt in figures:
        svg = b64decode(source).decode()
        if "<image" in svg:
            with_photographs[unescape(alt)] = svg
    assert [
        alt.partition(": sure, and in doubt: animals that it is most sure of: ")[0] for alt in with_photographs
    ] == [*("MESU", "MESU, paper's rule", "SGD, rate 0.01")]
    for alt, svg in with_photographs.items():
        assert "; whales that it doubts least: taken for " in alt
        assert set(re.findall(r'href="(?!#)([^,"]+)', svg)) == {"data:image/png;base64"}
    assert "all but the photographs in one picture" in text
    assert len(overview(panels(shown.table(), shown.pictures())).axes) == len(figures) - 3


def test_photographs_that_are_lost_leave_a_gap_and_without_any_there_is_no_panel(shown):
    def names():
        return [panel.name for panel in panels(shown.table(), shown.pictures()) if panel.alone]

    folder = shown.picture_folder("mesu", 0)
    first, second, *_ = sorted(folder.iterdir())
    first.unlink()
    second.write_bytes(second.read_bytes()[:90])
    assert len(shown.pictures()["mesu-0"]) == 8 + WHALES - 2
    assert names() == ["examples-mesu", "examples-mesu-paper", "examples-sgd-0.01"]
    panel = next(panel for panel in panels(shown.table(), shown.pictures()) if panel.name == "examples-mesu")
    assert len(drawn_pictures(panel)) == 8 + WHALES - 2
    for path in folder.iterdir():
        path.write_bytes(b"")
    assert names() == ["examples-mesu-paper", "examples-sgd-0.01"]


def test_a_part_done_again_keeps_the_same_photographs(shown, tmp_path):
    table, pictures = shown.table(), shown.pictures()
    (tmp_path / "gone.npz").rename(shown.settings.features)
    folder = shown.picture_folder("mesu", 0)
    for path in folder.iterdir():
        path.unlink()
    (folder / ".animal-3.png.12345").write_bytes(b"half a pict")  # killed there, after the last checkpoint
    shown.part("mesu", 0).unlink()
    assert shown.execute(workers=1).equals(table)
    assert not list(folder.glob(".*"))
    again = shown.pictures()
    assert {job: sorted(each) for job, each in again.items()} == {job: sorted(each) for job, each in pictures.items()}
    for name, each in pictures["mesu-0"].items():
        assert np.array_equal(again["mesu-0"][name], each)


def test_joined_runs_show_the_photographs_of_each(shown, tmp_path, monkeypatch):
    given = {}
    monkeypatch.setattr(page_module, "panels", lambda table, pictures, summary: given.update(pictures) or [])
    (tmp_path / "gone.npz").rename(shown.settings.features)
    other = small_run(tmp_path / "others", shown.settings.features, learners=("sgd",), sgd_lr=(0.02,))
    write_joined([shown, other], tmp_path / "both")
    assert sorted(given) == ["mesu-0", "mesu-paper-0", "sgd-0.01-0", "sgd-0.02-0"]


def test_without_pictures_there_is_no_panel_and_nothing_else_changes(shown, tmp_path):
    with np.load(tmp_path / "gone.npz") as file:
        npz.write(tmp_path / "bare.npz", {name: file[name] for name in file.files if "pictures" not in name})
    bare = small_run(tmp_path / "runs", tmp_path / "bare.npz")
    assert bare.pictures() == {}
    assert not (bare.folder / "pictures").exists()
    with_them = shown.table()
    assert bare.table().equals(with_them.filter(~with_them["measure"].str.starts_with("example_")))
    drawn = [panel.name for panel in panels(bare.table(), bare.pictures())]
    assert drawn == [panel.name for panel in panels(with_them, shown.pictures()) if not panel.alone]
    assert drawn == [panel.name for panel in panels(with_them)]
    assert not any(name.startswith("examples") for name in drawn)
