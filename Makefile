# `make help` lists what can be made. Every target sets up what it needs in .venv.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV   ?= .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

.DEFAULT_GOAL := help
.PHONY: help demo anchors mutants test test-slow test-federation soak bench bench-peers bench-growth bench-federation bench-secure docs docs-serve check format clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | awk -F'\t' '{printf "  make %-12s %s\n", $$1, $$2}'

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "fedcm needs Python 3.11 or newer; set PYTHON=/path/to/python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

# without a terminal, --fresh does not ask: it moves the runs of an earlier demo to the archive
demo: $(READY)  ## compare FedCM and its four baselines on real digits: a table, curves and a report
	$(BIN)/fedcm compare experiments/demo.toml --runs-dir runs/demo --fresh </dev/null
	@if [ -d runs/demo/archive ]; then du -sh runs/demo/archive | awk '{print "earlier demos are kept in runs/demo/archive (" $$1 ")"}'; fi

test: $(READY)  ## run the tests on all cores (minutes)
	$(BIN)/python -m pytest -n auto --dist worksteal -m "not slow and not federation"

test-federation: $(READY)  ## run the tests with whole federations of real processes over mutual TLS, with crashes and attacks (an hour)
	$(BIN)/python -m pytest -n 0 -m federation

soak: $(READY)  ## kill processes of a real federation at random for 20 minutes and compare the parameters (MINUTES=2 is shorter, SEED=1 other)
	PYTHONPATH=tests:tests/integration/federation $(BIN)/python tests/soak/run.py --minutes $(or $(MINUTES),20) --seed $(or $(SEED),0)

test-slow: $(READY)  ## run the slow tests: real CIFAR (FEDCM_DATA names a prepared data folder), torch.compile, more failures
	$(BIN)/python -m pytest -n auto --dist worksteal -m slow

anchors: $(READY)  ## record the golden runs again (tests/anchors) and print what changed
	PYTHONPATH=tests:tests/anchors $(BIN)/python tests/anchors/record.py

mutants: $(READY)  ## list one-line changes of the source that no test catches (mutation testing) (an hour or more, resumes; SAMPLE=20 tries 20 per file)
	PYTHONPATH=tests/mutation $(BIN)/python tests/mutation/run.py --record .mutants-killed $(if $(SAMPLE),--sample $(SAMPLE))

bench: $(READY)  ## compare this engine with a bare training loop, and FedCM with FedAvg: benchmarks/RESULTS.md (15 minutes)
	$(BIN)/python benchmarks/bare_loop.py
	$(BIN)/python benchmarks/overhead.py
	$(BIN)/python benchmarks/step_profile.py
	$(BIN)/python benchmarks/direction_sum.py
	$(BIN)/python benchmarks/features.py
	$(BIN)/python benchmarks/precision.py

bench-federation: $(READY)  ## measure the cost of a round over real processes and mutual TLS: benchmarks/FEDERATION.md (10 minutes)
	$(BIN)/python benchmarks/federation_rounds.py

bench-secure: $(READY)  ## measure the cost of secure aggregation: benchmarks/SECURE_AGGREGATION.md (5 minutes)
	$(BIN)/python benchmarks/secure_aggregation.py

bench-growth: $(READY)  ## measure how the cost grows with clients, client states and workers: benchmarks/GROWTH.md (30 minutes, 30 GB of disk)
	$(BIN)/python benchmarks/growth.py

bench-peers: $(READY)  ## compare this engine with pfl, Flower, FedLab and FedJAX: benchmarks/PEERS.md (25 minutes, 5 GB in .peers)
	$(BIN)/python benchmarks/peers/run.py

# without this, the theme prints a notice about its successor in every build
docs: export NO_MKDOCS_2_WARNING = 1
docs: $(READY)  ## build the documentation site in site/; a broken link or reference is an error
	$(BIN)/mkdocs build --strict

docs-serve: export NO_MKDOCS_2_WARNING = 1
docs-serve: $(READY)  ## show the documentation at http://127.0.0.1:8000, and rebuild it when a file changes
	$(BIN)/mkdocs serve

check: $(READY)  ## check lint, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright --pythonpath $(BIN)/python

format: $(READY)  ## fix and format the code with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## remove the virtual environment and caches (runs stay)
	rm -rf $(VENV) site .pytest_cache .ruff_cache .hypothesis .mutants-killed
