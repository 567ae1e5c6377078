"""Tables on disk: a damaged one is named and made again."""

import hashlib
import shutil

import numpy as np
import pytest
from tests.lab.runs.tiny import DAMAGE, LEARNERS, again, flip

from mesu.lab.runs.run import Run

pytestmark = pytest.mark.usefixtures("quick")


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("hashed", [True, False])
def test_a_damaged_part_is_made_again(stopped, damage, hashed, capfd):
    folder, table = stopped
    part = folder / "parts" / "foo-vb-0.parquet"
    if not hashed:
        if damage == "flipped":
            pytest.skip("without its hash, a number that changed cannot be told")
        part.with_name("foo-vb-0.parquet.sha256").unlink()
    DAMAGE[damage](part)
    assert again(folder).equals(table)
    err = capfd.readouterr().err
    if damage != "missing":
        assert f"{part} {'is damaged' if hashed else 'has lost its SHA-256'}" in err
        assert "it is made again" in err


def test_a_bit_flipped_anywhere_in_a_part_does_not_reach_the_table(stopped, capfd):
    folder, table = stopped
    part = folder / "parts" / "si-0.parquet"
    size = part.stat().st_size
    for where in np.random.default_rng(0).choice(size, 10, replace=False):
        flip(part, where)
        assert again(folder).equals(table)
        assert f"{part} is damaged" in capfd.readouterr().err


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_table_is_said_and_made_again(finished, damage, tmp_path):
    folder, table = finished
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    path = copy / "table.parquet"
    DAMAGE[damage](path)
    with pytest.raises(ValueError, match=f"mesu resume {copy}"):
        Run.open(copy).table()
    assert again(copy).equals(table)
    assert Run.open(copy).table().equals(table)
    assert path.read_bytes() == (folder / "table.parquet").read_bytes()


def test_hashes_are_what_sha256sum_reads(finished):
    folder, _ = finished
    for path in folder.rglob("*.sha256"):
        digest, name = path.read_text().split()
        assert hashlib.sha256((path.parent / name).read_bytes()).hexdigest() == digest
    assert len(list(folder.rglob("*.sha256"))) == len(LEARNERS) + 1
