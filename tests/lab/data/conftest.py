"""Every test of data sets starts with an empty cache and without MESU_DATA."""

from tests.lab.data.places import cache, data_folder, folders, real

__all__ = ["cache", "data_folder", "folders", "real"]
