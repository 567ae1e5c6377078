"""Registries of the lab: experiments, streams and data sets by name, those of other packages included.

A name comes from one of three places:

- a decorator: `@experiments.register("my-experiment")` above the class, in a module that has been imported;
- an entry point: a package that declares it in its pyproject.toml, and is imported when the name is asked for;
- the command line: `mesu run --import my_module my-experiment` imports the module first.
"""

from importlib import import_module

from mesu.registry import Registry as Registry


def import_modules(names: tuple[str, ...]) -> None:
    """Import modules that register things.

    Raises:
        ValueError: naming the module that cannot be imported.
    """
    for name in names:
        try:
            import_module(name)
        except ImportError as error:
            raise ValueError(f"the module {name!r} cannot be imported: {error}") from error


# settings of experiments, as `mesu.lab.experiments.trial.Experiment` says
experiments = Registry("experiment", "mesu.experiments")
# classes of streams, or functions that make one
streams = Registry("stream", "mesu.streams")
