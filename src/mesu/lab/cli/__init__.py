"""The `mesu` command."""
