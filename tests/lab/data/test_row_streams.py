"""Streams of rows out of a made-up package: read by name, checked, and nothing of the package run."""

import numpy as np
import pytest
from tests.lab.data.made_up import described, make_zip, sha256

from mesu.lab.data import row_streams
from mesu.lab.data.packages import PipPackage
from mesu.lab.data.published import Published

TABLE = b"a,b,target\n1.5,2,0\n-3,4e2,1\n0.25,0,1\n"
EXPECTED = {"x": np.array([[1.5, 2], [-3, 400], [0.25, 0]]), "y": np.array([0, 1, 1], np.uint8)}


def test_a_table_is_its_columns_and_its_class():
    arrays = row_streams.from_table("table.csv", "float64")({"table.csv": TABLE})
    for name, expected in EXPECTED.items():
        np.testing.assert_array_equal(arrays[name], expected)
        assert arrays[name].dtype == expected.dtype


@pytest.mark.parametrize("table", [b"a,target\n1,word\n", b"a,b,target\n1,2\n1,2,3\n", b"", b"a,target\n"])
def test_what_is_no_table_is_refused_by_name(table):
    with pytest.raises(ValueError, match=r"table\.csv is not a table of numbers"):
        row_streams.from_table("table.csv", "float64")({"table.csv": table})


def test_values_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"table\.csv has values that are not int16"):
        row_streams.from_table("table.csv", "int16")({"table.csv": TABLE})


def test_it_is_read_out_of_a_wheel_for_another_machine(tmp_path, monkeypatch):
    wheel = make_zip(
        tmp_path / "made.whl", [("made/__init__.py", b"raise SystemExit"), (f"{row_streams.FOLDER}/elec.csv", TABLE)]
    )
    fake = tmp_path / "python" / "pip"
    fake.mkdir(parents=True)
    (fake / "__init__.py").write_text("")
    (fake / "__main__.py").write_text(
        "import pathlib, shutil, sys\n"
        f"pathlib.Path({str(tmp_path / 'call.txt')!r}).write_text(' '.join(sys.argv[1:]))\n"
        "(folder,) = [word.removeprefix('--dest=') for word in sys.argv if word.startswith('--dest=')]\n"
        f"shutil.copy({str(wheel)!r}, folder + '/made-0.4.1-cp37-cp37m-manylinux1_x86_64.whl')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "python"))
    (real,) = row_streams.ELEC2.sources
    assert isinstance(real, PipPackage)
    package = PipPackage(
        real.name, real.version, sha256(wheel.read_bytes()), real.files, real.decode, made_for=real.made_for
    )
    monkeypatch.setattr(
        row_streams, "ELEC2", Published("elec2", "Elec2", "three rows", described(EXPECTED), (package,))
    )
    rows = row_streams.elec2.__wrapped__()
    np.testing.assert_array_equal(rows.x, EXPECTED["x"])
    assert rows.y.tolist() == [0, 1, 1]
    assert rows.classes == [0, 1]
    call = (tmp_path / "call.txt").read_text()
    for option in ("scikit-multiflow==0.4.1", "--only-binary=:all:", "--no-deps", "--python-version=37"):
        assert option in call


@pytest.mark.parametrize("published", [row_streams.ELEC2, row_streams.WEATHER, row_streams.COVERTYPE, row_streams.SEA])
def test_every_stream_is_pinned(published):
    assert published.checkable
    (package,) = published.sources
    assert len(bytes.fromhex(package.sha256)) == 32
    assert published.contents["x"].shape[:1] == published.contents["y"].shape


def test_the_real_one_is_the_one_of_the_papers(real):
    arrays = real("elec2")
    assert np.bincount(arrays["y"]).tolist() == [26_075, 19_237]
    assert (arrays["x"].min(), arrays["x"].max()) == (0, 1)
