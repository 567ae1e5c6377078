"""Finished runs that the tests of the report share."""

import pytest
from tests.lab.report.fabricated import ODD, SMALL, STUDY, edit_settings, fabricated_rows, finished

from mesu.lab.report import write


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    run = finished(tmp_path_factory.mktemp("small"), SMALL)
    return run, write(run)


@pytest.fixture(scope="session")
def study(tmp_path_factory):
    """As long as the paper's, with a study of N: the biggest page there is."""
    run = finished(tmp_path_factory.mktemp("study"), STUDY)
    return run, write(run)


@pytest.fixture(scope="session")
def odd(tmp_path_factory):
    rows = [row._replace(learner=ODD) if row.learner == "sgd" else row for row in fabricated_rows(SMALL)]
    run = finished(tmp_path_factory.mktemp("odd"), SMALL, rows, {f"{ODD}-0": 3.0})
    edit_settings(run, settings={"update": ODD, "tasks": 6, "empty": None, ODD: True}, versions={ODD: ODD})
    return run, write(run)
