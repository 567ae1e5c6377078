"""Reports: figures and tables drawn from a run's table alone."""

from mesu.report.permuted import permuted_figure
from mesu.report.text import summary_table

__all__ = ["permuted_figure", "summary_table"]
