"""How figures look: one colour and one name for each learner, everywhere."""

from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib as mpl

# Okabe and Ito's palette, which colour-blind readers can tell apart; MESU has the strongest colour.
LEARNERS = {
    "mesu": ("MESU", "#D55E00"),
    "foo-vb": ("FOO-VB", "#0072B2"),
    "ewc-online": ("EWC Online", "#009E73"),
    "si": ("SI", "#CC79A7"),
    "ewc-stream": ("EWC Stream", "#E69F00"),
    "sgd": ("SGD", "#7F7F7F"),
}


def label(learner: str) -> str:
    """The name a reader knows."""
    return LEARNERS.get(learner, (learner, ""))[0]


def colour(learner: str) -> str:
    """The learner's colour."""
    return LEARNERS.get(learner, ("", "#000000"))[1]


@contextmanager
def figure_style() -> Iterator[None]:
    """Matplotlib settings for all figures; works without a screen."""
    with mpl.rc_context(
        {
            "font.size": 9,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": 9,
            "axes.titlelocation": "left",
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.color": "#e6e6e6",
            "legend.frameon": False,
            "savefig.dpi": 160,
            "svg.hashsalt": "mesu",  # the same table gives the same file
        }
    ):
        yield
