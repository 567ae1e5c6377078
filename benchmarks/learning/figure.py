"""docs/figures/learning.png: the default beside Adam, network by network."""

from pathlib import Path
from typing import Any

from benchmarks.learning.learners import SETTINGS
from benchmarks.learning.table import means
from benchmarks.learning.work import WORK

COLOURS = {"adam": "#666666", "mesu": "#0072B2", "ivon": "#CC79A7", "dropout": "#E69F00"}
PANELS = (("accuracy", "accuracy, %", 100), ("log_loss", "log loss", 1), ("auroc", "AUROC, total uncertainty", 1))


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Write the figure: a row for each network, a dot for each learner at its default."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    found = means(rows)
    works = [w for w in WORK if any(name == w.name for name, *_ in found)]
    figure, panels = plt.subplots(1, len(PANELS), figsize=(11, 0.45 * len(works) + 1.2), sharey=True)
    for axes, (field, title, factor) in zip(panels, PANELS, strict=True):
        for learner, settings in SETTINGS.items():
            points = [
                (factor * one[field], place)
                for place, work in enumerate(works)
                if (one := found.get((work.name, learner, float(settings[0])))) and one[field] == one[field]
            ]
            if points:
                axes.scatter(*zip(*points, strict=True), label=learner, color=COLOURS[learner], s=36, alpha=0.85)
        axes.set_title(title, fontsize=10)
        axes.grid(axis="y", alpha=0.3)
    panels[0].set_yticks(range(len(works)), [w.name for w in works], fontsize=8)
    panels[0].invert_yaxis()
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, fontsize=8, loc="lower center", ncols=len(labels), frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)
