"""Style of figures: one colour and one name for each learner, and the colours for light and dark mode."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from math import inf, isfinite, log10
from zlib import crc32

import matplotlib as mpl
from matplotlib.colors import to_hex, to_rgb

from mesu.lab.entry import Entry

# Okabe and Ito's palette, made for colour-blind readers; MESU has the strongest colour
LEARNERS = {
    "mesu": ("MESU", "#D55E00"),
    "mesu-slow": ("MESU, slow means", "#B03A2E"),
    "mesu-weighted": ("MESU, weighted", "#A02070"),
    "mesu-paper": ("MESU, paper's rule", "#F0A070"),
    "mesu-exact": ("MESU, exact", "#8040A8"),
    "foo-vb": ("FOO-VB", "#0072B2"),
    "ewc-online": ("EWC Online", "#009E73"),
    "ewc": ("EWC", "#009E73"),
    "si": ("SI", "#CC79A7"),
    "ewc-stream": ("EWC Stream", "#E69F00"),
    "sgd": ("SGD", "#7F7F7F"),
    "adam": ("Adam", "#56B4E9"),
}
REPLAY = "-replay"  # ends the names of learners with a buffer
OTHERS = ("#56B4E9", "#8B6FB3", "#6B8E23")  # for learners not listed above

# MESU's colour by its memory N, from short to infinite; all have enough contrast on white and on black
MEMORIES = (
    (1e4, "#F2B8A8"),
    (1.8e5, "#E87461"),
    (3e5, "#D55E00"),
    (6e5, "#C0304A"),
    (1.2e6, "#A02070"),
    (2.4e6, "#8040A8"),
    (1e7, "#6F63D2"),
)
ENDLESS = 1e12  # updates: a memory longer than any run counts as infinite

# ranges in the studies of SGD's learning rate and MESU's initial sigma; lower values get a paler colour
RATES, STARTS, PALE = (1e-5, 5e-3), (0.05, 2.0), "#F4D9C6"
Rgb = tuple[float, float, float]

LONGEST = 22  # characters; longer names are shortened in pictures

INK, FAINT, GRID, PAPER = "#1f2328", "#57606a", "#e4e7eb", "#fefefe"
# the same four in dark mode; the SVG files contain the media query that switches them
NIGHT = {INK: "#e6e8eb", FAINT: "#a3abb5", GRID: "#343a42", PAPER: "#16181d"}


def memory(learner: str) -> float | None:
    """N of an entry of a study of N, such as `mesu-300000`; None for all others."""
    window = _setting(learner, "memory")
    return window if window is not None and window > 0 else None


def rate(learner: str) -> float | None:
    """The learning rate of an entry of a study of SGD's, such as `sgd-0.005`; None for all others."""
    return _setting(learner, "sgd_lr")


def start(learner: str) -> float | None:
    """The start of an entry of a study of MESU's, such as `mesu-start-0.2`; None for all others."""
    return _setting(learner, "init_scale")


def _setting(learner: str, name: str) -> float | None:
    entry = Entry.read(learner)
    return entry.value if entry.setting == name else None


def short_number(value: float) -> str:
    """A number as text: 300,000, 10¹⁵, ∞."""
    if not isfinite(value):
        return "∞" if value == inf else str(value)
    if value >= 1e7 and value == 10 ** round(log10(value)):
        return "10" + str(round(log10(value))).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"{value:,.15g}"


def label(learner: str) -> str:
    """The learner's name as readers know it."""
    if (splits := _setting(learner, "splits")) is not None:
        return f"{label(Entry.read(learner).learner)}, {splits:g} split{'s' * (splits != 1)}"
    if (window := memory(learner)) is not None:
        return f"MESU, N = {short_number(window)}"
    if (value := rate(learner)) is not None:
        return f"SGD, rate {short_number(value)}"
    if (value := start(learner)) is not None:
        return f"MESU, start {short_number(value)}"
    if learner.endswith(REPLAY):
        return f"{label(learner.removesuffix(REPLAY))}, replay"
    return LEARNERS.get(learner, (learner, ""))[0]


def short_label(learner: str) -> str:
    """The learner's name, shortened to fit a picture."""
    name = label(learner)
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


def colour(learner: str) -> str:
    """The learner's colour."""
    if _setting(learner, "splits") is not None:
        learner = Entry.read(learner).learner
    if learner.endswith(REPLAY):  # darker than without
        return to_hex(_mixed(to_rgb(colour(learner.removesuffix(REPLAY))), to_rgb("#000000"), 0.35))
    window = memory(learner)
    if window is not None:
        return _memory_colour(window)
    if learner in LEARNERS:
        return LEARNERS[learner][1]
    for family, setting, (low, high) in (("sgd", rate, RATES), ("mesu", start, STARTS)):
        if (value := setting(learner)) is not None:  # smaller values are paler
            share = min(max((log10(value) - log10(low)) / log10(high / low), 0), 1) if value > 0 else 0
            return to_hex(_mixed(to_rgb(PALE), to_rgb(LEARNERS[family][1]), 0.35 + 0.65 * share))
    return OTHERS[crc32(learner.encode()) % len(OTHERS)]


def _memory_colour(window: float) -> str:
    window = min(max(window, MEMORIES[0][0]), MEMORIES[-1][0])
    for (low, first), (high, second) in pairwise(MEMORIES):
        if window <= high:
            share = log10(window / low) / log10(high / low)
            return to_hex(_mixed(to_rgb(first), to_rgb(second), share))
    return MEMORIES[-1][1]


def _mixed(one: Rgb, other: Rgb, share: float) -> Rgb:
    red, green, blue = (a + share * (b - a) for a, b in zip(one, other, strict=True))
    return red, green, blue


def line_style(learner: str) -> dict:
    """How a learner's curve is drawn. An infinite memory is dashed: its curve often covers FOO-VB's."""
    mine = learner.partition("-")[0] == "mesu"
    endless = (memory(learner) or 0) >= ENDLESS
    return {
        "color": colour(learner),
        "linewidth": 1.8 if mine else 1.2,
        "linestyle": (0, (4, 2)) if endless else "-",
        "zorder": 3 if mine else 2,
    }


@contextmanager
def figure_style() -> Iterator[None]:
    """Matplotlib settings for drawing and saving all figures. No display is needed."""
    with mpl.rc_context(
        {
            "font.family": "DejaVu Sans",  # comes with matplotlib
            "font.size": 9,
            "text.color": INK,
            "axes.edgecolor": FAINT,
            "axes.facecolor": PAPER,
            "axes.labelcolor": INK,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.titlesize": 9.5,
            "axes.titlelocation": "left",
            "axes.grid": True,
            "axes.axisbelow": True,
            "figure.facecolor": PAPER,
            "grid.color": GRID,
            "legend.frameon": False,
            "legend.fontsize": 8.5,
            "savefig.dpi": 160,
            "savefig.facecolor": PAPER,
            "svg.fonttype": "path",  # text as paths: looks the same whatever fonts are installed
            "svg.hashsalt": "mesu",  # fixed ids: the same table gives the same file
            "text.parse_math": False,  # a learner's name may contain $
            "xtick.color": FAINT,
            "xtick.labelcolor": INK,
            "ytick.color": FAINT,
            "ytick.labelcolor": INK,
        }
    ):
        yield
