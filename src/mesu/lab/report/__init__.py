"""Reports of a run: figures, tables and an HTML page, made only from the run's table and the pictures it saved."""

from mesu.lab.report.markdown import write_markdown
from mesu.lab.report.page import paper_note, write, write_joined
from mesu.lab.report.text import WIDTH, summary_table

__all__ = ["WIDTH", "paper_note", "summary_table", "write", "write_joined", "write_markdown"]
