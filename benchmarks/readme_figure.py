"""The figure of README.md: two panels of Permuted MNIST, drawn from the table that is kept beside its page.

python benchmarks/readme_figure.py
"""

from pathlib import Path

from mesu.lab.drawing.panels import overview, save
from mesu.lab.report.figures import panels
from mesu.lab.runs.tables import read_table

DOCS = Path(__file__).parents[1] / "docs"
SHOWN = ("five-along", "newest")  # how much is kept, and how well new tasks are learned


def main() -> None:
    """Draw it."""
    drawn = {panel.name: panel for panel in panels(read_table(DOCS / "results" / "permuted-mnist" / "table.parquet"))}
    base = DOCS / "figures" / "permuted-mnist"
    save(overview(drawn[name] for name in SHOWN), base)
    base.with_suffix(".svg").unlink()
    print(base.with_suffix(".png"))


if __name__ == "__main__":
    main()
