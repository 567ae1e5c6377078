"""MESU compared with the usual alternatives on streams: each row is predicted, then learned.

`python -m benchmarks.streams` from the root of the repository; docs/streams.md has the results.
"""
