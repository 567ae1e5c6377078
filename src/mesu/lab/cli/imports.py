"""`--import MODULE`: modules of a user's own that register something, imported before the command looks for names."""

import sys
from pathlib import Path

from mesu.lab.registry import import_modules

OPTION = "--import"


def import_named(given: list[str]) -> list[str]:
    """Import every module that `--import` names, wherever it stands, and return the other arguments.

    Modules are looked for in the current folder too, after all other places.

    Raises:
        ValueError: if a module cannot be imported, or the option has no value.
    """
    modules, others = [], []
    words = iter(given)
    for word in words:
        option, _, value = word.partition("=")
        if option != OPTION:
            others.append(word)
            continue
        module = value or next(words, "")
        if not module or module.startswith("-"):
            raise ValueError(f"{OPTION} needs the name of a module: {OPTION} my_module")
        modules.append(module)
    here = str(Path.cwd())
    if modules and here not in sys.path:
        sys.path.append(here)  # a console script does not look there by itself
    import_modules(tuple(modules))
    return others
