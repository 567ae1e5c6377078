"""A model that lives on a stream: it grows with it, is asked from any thread, and is kept in one file.

`model` learns, `snapshot` is what it knows at one moment, `scaling` standardises rows, `files` saves and loads, `memory_report`
says what is still remembered, `drift` raises the alarm. `sklearn` and `river` are its two faces.
"""
