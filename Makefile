# Every target does its own set-up in .venv; nothing but Python >= 3.11, pip and make is needed.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2

.DEFAULT_GOAL := help
.PHONY: help run test test-all test-gpu lint format bench comparison clean

help:            ## show this list
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

run: .venv/ready ## the main job: train the embedded default scenario
	$(BIN)/joulemesh run

lint: .venv/ready ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint       ## lint, doctests and the default tests
	$(BIN)/pytest -n $(WORKERS) -m 'not slow and not gpu'

test-all: lint   ## everything that needs no accelerator, slow tests too
	$(BIN)/pytest -n $(WORKERS) -m 'not gpu'

test-gpu: .venv/ready ## what needs an accelerator
	$(BIN)/pytest -m gpu

format: .venv/ready ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/ready ## benchmarks; tables in docs/benchmarks
	$(BIN)/python -m benchmarks

comparison: .venv/ready ## the comparison in docs/comparison (wants an accelerator)
	$(BIN)/python -m benchmarks.comparison

clean:           ## remove what the other targets made
	rm -rf .venv .bench build dist site .pytest_cache .mypy_cache .ruff_cache
