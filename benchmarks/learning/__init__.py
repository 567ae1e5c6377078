"""Whether the default learns as well as Adam, on networks of every usual kind; docs/learning.md has the results.

`python -m benchmarks.learning` from the root of the repository.
"""
