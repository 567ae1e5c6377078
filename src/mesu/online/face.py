"""What the scikit-learn and the River face of an online model share: saving, the memory report, and a snapshot to ask."""

from os import PathLike
from typing import Any

from mesu.online.files import save
from mesu.online.memory_report import MemoryReport, report
from mesu.online.snapshot import Snapshot


class Face:
    """A class that users meet, with an `OnlineModel` beneath."""

    _regression: bool
    _saved_as: str  # what a file calls the class
    _online: Any  # an `OnlineModel`; None, or absent, before the first row

    def memory_report(self) -> MemoryReport:
        """What the model still remembers: `print` it, or draw its `figure()`."""
        return report(self._learned())

    def save(self, path: str | PathLike) -> None:
        """Keep the model in one file, for `mesu.load`."""
        save(self, path)

    def _learned(self) -> Snapshot:
        """The snapshot to read, or an error if nothing has been learned yet."""
        raise NotImplementedError

    def _kept(self) -> tuple[Snapshot, dict[str, Any], list | None]:
        """What a file keeps: the snapshot, the parameters, and the names of the columns if there are any."""
        raise NotImplementedError
