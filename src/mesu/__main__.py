"""`mesu` and `python -m mesu`: the command, or what to install for it."""

import sys

LAB = ("tyro", "rich", "polars", "matplotlib", "PIL", "jinja2", "joblib", "pooch")  # what mesu[lab] brings


def main() -> None:
    """Do what the command line says."""
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
    command()


if __name__ == "__main__":
    main()
