"""Attacks on what mesu promises: `python -m benchmarks.attacks` makes them, and prints what was tried and what survived."""
