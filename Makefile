# Every target does its own set-up in .venv; nothing but Python >= 3.11, pip and make is needed.
PYTHON ?= python3
BIN := .venv/bin
WORKERS ?= 2
DOCKER ?= docker
EXTRAS ?= jax
PYTHON_VERSION ?= 3.12
FLOWER ?= 'flwr[simulation]>=1.41,<2' jax optax

.DEFAULT_GOAL := help
.PHONY: help run test tests test-all test-gpu test-flower cover mutate lint format bench comparison docs figures axe lock sbom audit dist image clean

help:            ## show this list
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 14

.venv/ready: pyproject.toml constraints.txt locks/base.txt locks/dev.txt locks/build.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed")'
	$(PYTHON) -m venv .venv
	$(BIN)/python tools/install.py dev build
	@touch $@

run: .venv/ready ## the main job: train the embedded default scenario
	$(BIN)/joulemesh run

lint: .venv/ready ## ruff and mypy
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: .venv/ready ## lint, doctests and the default tests
	$(MAKE) -j2 lint tests

tests: .venv/ready
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m 'not slow and not gpu'

test-all: lint   ## everything that needs no accelerator, slow tests too
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m 'not gpu'

test-gpu: .venv/ready ## what needs an accelerator
	$(BIN)/pytest -m gpu

test-flower: .venv/ready ## the exported app in Flower's own simulation, in an environment of its own
	python=$$($(BIN)/python -m benchmarks.environments flower-app $(FLOWER)) && \
		JOULEMESH_FLWR_PYTHON="$$python" $(BIN)/pytest -q tests/study/test_flower.py -k flowers_simulation

axe: .bench/axe/package/axe.min.js ## fetch axe-core, with which tests check that pages are accessible

.bench/axe/package/axe.min.js:
	mkdir -p .bench/axe
	cd .bench/axe && tar -xzf "$$(npm pack --silent axe-core@4.14.0)"

cover: .venv/ready ## the default tests' coverage: 95 % of planning, aggregation and world, 90 % of all
	$(BIN)/pytest -n $(WORKERS) --dist worksteal -m 'not slow and not gpu' --cov=joulemesh --cov-report=
	$(BIN)/coverage report --skip-covered --fail-under=90
	for room in planning aggregation world; do \
		$(BIN)/coverage report --include="*/$$room/*" --fail-under=95 || exit 1; \
	done

mutate: .venv/ready ## mutation testing of a sample of the planner's core; writes docs/mutation.md
	$(BIN)/python tools/mutate.py

format: .venv/ready ## format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/ready ## benchmarks; tables in docs/benchmarks
	$(BIN)/python -m benchmarks

comparison: .venv/ready ## the comparison in docs/comparison (wants an accelerator)
	$(BIN)/python -m benchmarks.comparison
	$(BIN)/python -m benchmarks.plans

.venv/docs .venv/audit: .venv/%: .venv/ready locks/%.txt
	$(BIN)/python tools/install.py $*
	@touch $@

docs: .venv/docs ## the documentation, in site/; warnings are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

figures: .venv/ready ## the pictures in docs/figures
	$(BIN)/python -m tools.figures
	$(BIN)/python -m tools.house

lock: .venv/ready ## locks/ anew, from constraints.txt and the package index
	$(BIN)/python -m tools.lock

sbom: .venv/ready ## dist/sbom.json: what is installed, as CycloneDX
	$(BIN)/python -m tools.sbom --extra jax --extra tools --extra deploy

audit: .venv/audit ## known vulnerabilities of the locked versions
	$(BIN)/python -m tools.audit

image:           ## a container image; EXTRAS=jax,deploy and PYTHON_VERSION=3.12 choose what is in it
	$(DOCKER) build -f Containerfile --build-arg EXTRAS='$(EXTRAS)' --build-arg PYTHON=$(PYTHON_VERSION) -t joulemesh .

dist: .venv/ready ## wheel and sdist, tried in an empty environment of every Python that is found
	sh tools/check_dist.sh

clean:           ## remove what the other targets made
	rm -rf .venv .bench build dist site .pytest_cache .mypy_cache .ruff_cache
