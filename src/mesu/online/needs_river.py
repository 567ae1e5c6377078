"""What mesu takes from River. An error here says how to get it."""

try:
    from river import base, compose, drift, proba
    from river.utils.dataframe import into_frame, into_series, to_native_frame, to_native_series
except ImportError as error:
    if (error.name or "").partition(".")[0] != "river":
        raise
    raise ImportError("mesu.river needs River 0.26 or newer: pip install 'mesu[river]'", name="river") from error

__all__ = [
    "base",
    "compose",
    "drift",
    "into_frame",
    "into_series",
    "proba",
    "to_native_frame",
    "to_native_series",
]
