"""`--import MODULE`: modules of a user's own that register something, imported before the command looks for names.

The environment variable MESU_IMPORT names modules too. Several are separated by commas.
"""

import os
import sys
from pathlib import Path

from mesu.lab.registry import import_modules

OPTION, VARIABLE = "--import", "MESU_IMPORT"


def import_named(given: list[str]) -> list[str]:
    """Import every module that `--import` or MESU_IMPORT names, and return the other arguments.

    Modules are looked for in the current folder too, after all other places.

    Raises:
        ValueError: if a module cannot be imported, or the option has no value.
    """
    named, others = [os.environ.get(VARIABLE, "")], []
    words = iter(given)
    for word in words:
        option, _, value = word.partition("=")
        if option != OPTION:
            others.append(word)
            continue
        module = value or next(words, "")
        if not module or module.startswith("-"):
            raise ValueError(f"{OPTION} needs the name of a module: {OPTION} my_module")
        named.append(module)
    modules = [name.strip() for name in ",".join(named).split(",") if name.strip()]
    here = str(Path.cwd())
    if modules and here not in sys.path:
        sys.path.append(here)  # a console script does not look there by itself
    import_modules(tuple(modules))
    return others
