# Two commands do everything on a machine with Python 3.11+ and make: `make demo` and `make test`.
PYTHON ?= python3
PIP_ARGS ?=
BIN := .venv/bin

.PHONY: demo test lint types unit format clean

demo: .venv/lab
	$(BIN)/mesu run permuted-digits

test: lint types unit

lint: .venv/dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/dev
	$(BIN)/pyright

unit: .venv/dev
	$(BIN)/pytest -n 2

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mesu needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv

# The stamp files say what is installed; a changed pyproject or constraints file installs again.
.venv/lab: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/pip install $(PIP_ARGS) -q -c constraints.txt -e '.[lab]'
	touch $@

.venv/dev: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/pip install $(PIP_ARGS) -q -c constraints.txt -e '.[dev]'
	touch $@ .venv/lab
