"""Every test of features starts with an empty cache and without MESU_DATA."""

from tests.lab.data.places import cache, folders
from tests.lab.features.made_up import images

__all__ = ["cache", "folders", "images"]
