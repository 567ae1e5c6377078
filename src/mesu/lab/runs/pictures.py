"""Pictures of a trial on disk: PNG files that the rows of its table refer to."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from PIL import Image

from mesu.disk import replacing
from mesu.lab.runs.checkpoints import remove_leftovers


def write_pictures(folder: Path, pictures: Mapping[str, np.ndarray]) -> None:
    """Write pictures; no folder is made where there are none."""
    if not pictures:
        return
    folder.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder)
    for name, picture in pictures.items():
        with replacing(folder / f"{name}.png") as path:
            Image.fromarray(picture).save(path, format="PNG")


def read_picture(path: Path) -> np.ndarray | None:
    """A picture as bytes [height, width, 3]; None if it is damaged."""
    try:
        with Image.open(path, formats=("PNG",)) as opened:
            return np.asarray(opened.convert("RGB"))
    except Exception:  # Pillow raises many kinds, SyntaxError among them
        return None
