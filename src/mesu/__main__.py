"""The command line: `mesu`, or `python -m mesu`."""

import sys

LAB = (
    "tyro",
    "rich",
    "polars",
    "matplotlib",
    "PIL",
    "jinja2",
    "joblib",
    "pooch",
)  # the packages that mesu[lab] installs


def main() -> None:
    """Run the command, or say which package it lacks."""
    try:
        from mesu.lab.cli.main import main as command
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in LAB:
            raise
        print(
            f"error: the mesu command needs {missing}, which is not installed: pip install 'mesu[lab]'", file=sys.stderr
        )
        sys.exit(2)
    except KeyboardInterrupt:  # importing takes seconds, in which a user may change their mind
        sys.exit(130)
    command()


if __name__ == "__main__":
    main()
