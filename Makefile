# Two commands carry the house: `make run` and `make test`. Both set up what is missing.
# Everything installs into .venv, by uv when it is on the PATH, else by venv and pip, at the versions of
# constraints.txt.

PYTHON ?= python3
BIN := .venv/bin
SOURCES := svc actors protocol tests

.PHONY: run test test-clients check bench bench-read bench-disk bench-detect soak chaos format clean

run: .venv/.run
	@exec $(BIN)/trace-svc serve

# Two at a time, but for those that start the real thing: they want the machine for themselves.
ALONE := tests/e2e tests/chaos

test: check
	$(BIN)/python -m pytest -n 2 tests $(ALONE:%=--ignore=%)
	$(BIN)/python -m pytest $(ALONE)

check: .venv/.dev
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy

bench: .venv/.dev
	$(BIN)/python -m tests.bench

bench-read: .venv/.dev
	$(BIN)/python -m tests.bench.read

bench-disk: .venv/.dev
	$(BIN)/python -m tests.bench.disk

bench-detect: .venv/.dev
	$(BIN)/python -m tests.bench.detect

test-clients: .venv/.dev
	$(BIN)/python -m pytest tests/e2e/clients/real_clients.py

soak: .venv/.dev
	$(BIN)/python -m tests.bench.soak

chaos: .venv/.dev
	CHAOS_ROUNDS=20 $(BIN)/python -m pytest tests/chaos tests/e2e/test_broker_mode.py

format: .venv/.dev
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

clean:
	rm -rf .venv *.egg-info build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis

.venv/.run: pyproject.toml constraints.txt
	@deploy/install.sh $(PYTHON) .
	@touch $@

.venv/.dev: pyproject.toml constraints.txt
	@deploy/install.sh $(PYTHON) ".[dev]"
	@touch $@ .venv/.run
