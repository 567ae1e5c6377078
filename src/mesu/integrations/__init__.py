"""Other people's frameworks, each in a file of its own that imports it."""
