# `make help` lists the targets. PIP_ARGS extends every installation, for instance with
# PIP_ARGS="--index-url https://pypi.example.org/simple".
PYTHON ?= python3
PIP_ARGS ?=
VENV := .venv
BIN := $(VENV)/bin
INSTALL := $(BIN)/python install.py -c constraints.txt $(PIP_ARGS)
FOLDER ?= outputs/default
# Two test processes, one thread each: threads that fight for two cores are slower than one.
WORKERS ?= 2
export TOKENIZERS_PARALLELISM := false

.DEFAULT_GOAL := help
.PHONY: help run test test-all test-slow fuzz check docs bench debug sweep report slurm clean

help:  ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' Makefile | awk -F'|' '{printf "  make %-9s %s\n", $$1, $$2}'

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
	  { $(PYTHON) --version; echo "Python 3.11 to 3.13 is needed; name one, as PYTHON=python3.12"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e .
	@touch $@

$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(BIN)/python
	$(INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/.installed

run: $(VENV)/.installed  ## three methods on real speech with real Whisper: prints the table, writes the HTML report
	$(BIN)/python -m streaming_asr demo

PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

test: $(VENV)/.installed-dev  ## the tests but the slow ones; within 5 minutes on two idle cores
	$(PYTEST) -m "not slow"

test-all: $(VENV)/.installed-dev  ## all: kills, fuzz (500 inputs), trainings, docs, browser, Slurm
	$(PYTEST)

test-slow: $(VENV)/.installed-dev  ## those that `make test` leaves out; stops at the first that fails
	$(PYTEST) -m slow -x

# Another seed draws others; each test prints how many it drew and how they ended.
FUZZ_FACTOR ?= 10
FUZZ_SEED ?= 0
fuzz: $(VENV)/.installed-dev  ## 5,000 damaged inputs: folders, imports, recordings, clients, servers, hubs (FUZZ_SEED=0)
	FUZZ_FACTOR=$(FUZZ_FACTOR) $(PYTEST) tests/fuzz --hypothesis-seed=$(FUZZ_SEED) --hypothesis-show-statistics

check: $(VENV)/.installed-dev  ## linters, formatters (also of JavaScript), import order and type checker; changes nothing
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/oxlint
	$(BIN)/oxfmt --check '**/*.js' '**/*.mjs'
	$(BIN)/lint-imports
	$(BIN)/mypy

docs: $(VENV)/.installed-dev  ## the site, in build/docs; a warning or a broken link is an error
	$(BIN)/python -m sphinx -W -q -b html -c docs . build/docs
	@echo build/docs/index.html

BASELINE ?= .
bench: $(VENV)/.installed  ## CPU time and memory of commands as work grows, next to BASELINE=CHECKOUT
	$(BIN)/python -m experiments.bench --baseline $(BASELINE)

debug: $(VENV)/.installed  ## two utterances, nothing tracked, full errors
	HYDRA_FULL_ERROR=1 $(BIN)/python -m streaming_asr.run model=mini limit=2 tracker=none name=debug

sweep: $(VENV)/.installed  ## chunk sizes by methods on mini; finished cells are skipped
	$(BIN)/python -m streaming_asr.run experiment=mini

slurm: $(VENV)/.installed-dev  ## a sweep on a real Slurm, started here; as root, installs it with apt
	command -v slurmctld slurmd sbatch munged > /dev/null || { apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends slurmctld slurmd slurm-client munge; }
	$(BIN)/python -m experiments.slurm

report: $(VENV)/.installed  ## table and HTML page of FOLDER (outputs/default)
	$(BIN)/python -m streaming_asr report $(FOLDER)

clean:  ## remove the environment and caches; outputs/ stays
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache build dist
