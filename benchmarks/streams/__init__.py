"""MESU beside what one would pick instead, on streams: test on each row, then train on it.

`python -m benchmarks.streams` from the root of the repository; docs/streams.md has the results.
"""
