# Two commands do everything on a machine with Python 3.11+ and make: `make demo` and `make test`. `make docs` builds the site.
PYTHON ?= python3
PIP_ARGS ?=
BIN := .venv/bin

.PHONY: demo test lint types unit docs format lock clean

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

docs: .venv/docs  # not --quiet: it would hide warnings from the strict mode
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "open build/site/index.html"

format: .venv/dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: .venv/dev  # after a change of constraints.txt
	$(BIN)/python .ci/lock.py

clean:
	rm -rf .venv build

.venv/bin/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mesu needs Python 3.11 or newer: make PYTHON=python3.11")'
	$(PYTHON) -m venv .venv

# The stamp files say what is installed; a changed pyproject or constraints file installs again.
.venv/lab: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/pip install $(PIP_ARGS) -q -c constraints.txt -e '.[lab]'
	touch $@

.venv/dev: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/pip install $(PIP_ARGS) -q -c constraints.txt -e '.[dev]'
	touch $@ .venv/lab .venv/docs

.venv/docs: pyproject.toml constraints.txt | .venv/bin/python
	$(BIN)/pip install $(PIP_ARGS) -q -c constraints.txt -e '.[docs]'
	touch $@
