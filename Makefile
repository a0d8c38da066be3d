# `make help` lists what can be made. Every target sets up what it needs in .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo anchors mutants test test-slow test-federation bench bench-peers bench-growth bench-federation check format clean

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-12s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedcm needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

# --fresh asks on a terminal; here it just moves the runs of the demo before to the archive
demo: $(READY)  ## FedCM and its four baselines on real digits: a table and a picture of the curves
	$(BIN)/fedcm compare experiments/demo.toml --runs-dir runs/demo --fresh </dev/null
	@if [ -d runs/demo/archive ]; then du -sh runs/demo/archive | awk '{print "earlier demos are kept in runs/demo/archive (" $$1 ")"}'; fi

test: $(READY)  ## the tests, on every core (minutes)
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow and not federation"

test-federation: $(READY)  ## whole federations of real processes over mutual TLS: killed, misled, broken into (minutes)
	$(BIN)/python -m pytest -n 0 -m federation

test-slow: $(READY)  ## the slow tests: real CIFAR (FEDCM_DATA names a prepared data folder), torch.compile, more failures
	$(BIN)/python -m pytest -n auto --dist worksteal -m slow

anchors: $(READY)  ## record the golden runs anew (tests/anchors), and say what changed
	PYTHONPATH=tests:tests/anchors $(BIN)/python tests/anchors/record.py

mutants: $(READY)  ## change one line of the source at a time and see which changes no test notices (an hour or more, resumes; SAMPLE=20 for some)
	PYTHONPATH=tests/mutation $(BIN)/python tests/mutation/run.py --record .mutants-killed $(if $(SAMPLE),--sample $(SAMPLE))

bench: $(READY)  ## this engine against the bare loop, and FedCM's overhead: benchmarks/RESULTS.md (15 minutes)
	$(BIN)/python benchmarks/bare_loop.py
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/step_profile.py
	$(BIN)/python benchmarks/direction_sum.py

bench-federation: $(READY)  ## what a round over real processes and mutual TLS costs: benchmarks/FEDERATION.md (ten minutes)
	$(BIN)/python benchmarks/federation_rounds.py

bench-growth: $(READY)  ## how cost grows with clients, states and workers: benchmarks/GROWTH.md (half an hour, 30 GB of disk)
	$(BIN)/python benchmarks/growth.py

bench-peers: $(READY)  ## this engine against pfl, Flower, FedLab and FedJAX: benchmarks/PEERS.md (25 minutes, 5 GB in .peers)
	$(BIN)/python benchmarks/peers/run.py

check: $(READY)  ## ruff, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright --pythonpath $(BIN)/python

format: $(READY)  ## let ruff mend and format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the virtual environment and caches (runs stay)
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis .mutants-killed
