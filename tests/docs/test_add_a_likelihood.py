"""The page on likelihoods runs as it stands and prints what it quotes."""

import re
from pathlib import Path

import pytest
import torch

import mesu
from mesu.posterior.likelihood import LIKELIHOODS

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "add-a-likelihood.md"


@pytest.fixture
def names(capsys, monkeypatch):
    """What the programs of the page leave behind, and what they print."""
    monkeypatch.setattr(LIKELIHOODS, "_registered", dict(LIKELIHOODS._registered))
    names = {"__name__": "waiting"}
    for program in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(program, names)
    return {**names, "printed": capsys.readouterr().out}


def test_the_page_prints_what_it_quotes(names):
    quoted = re.findall(r"```\n(.*?)```", re.sub(r"```\w+\n.*?```", "", PAGE.read_text(), flags=re.DOTALL), re.DOTALL)
    assert [names["printed"]] == quoted


def test_the_likelihood_of_the_page_is_found_by_its_name(names):
    net = mesu.Bayesian(torch.nn.Linear(1, 1), likelihood="exponential", seed=0)
    assert type(net.likelihood) is names["Exponential"]
    with pytest.raises(ValueError, match="waiting times must be 0 or greater, got -1"):
        net.nll(torch.zeros(1, 1), torch.tensor([[-1.0]]))
