# Two commands carry the house: `make run` and `make test`. Both set up what is missing.
# Everything installs into .venv, by uv when it is on the PATH, else by venv and pip, at the versions of
# constraints.txt.

PYTHON ?= python3
BIN := .venv/bin
SOURCES := svc actors protocol tests

.PHONY: run test together test-versions test-clients check bench bench-read bench-disk bench-backup bench-detect soak chaos hostile format clean

run: .venv/.run
	@exec $(BIN)/trace-svc serve

# Two at a time, beside the checks; what is marked `alone` (kills, floods) wants the machine for itself.
test: .venv/.dev
	@$(MAKE) --no-print-directory -j 2 -O check together
	$(BIN)/python -m pytest -m alone tests

together: .venv/.dev
	$(BIN)/python -m pytest -n 2 --dist worksteal -m "not alone" tests

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

bench-backup: .venv/.dev
	$(BIN)/python -m tests.bench.backup

bench-detect: .venv/.dev
	$(BIN)/python -m tests.bench.detect
	$(BIN)/python -m tests.bench.labelled

test-clients: .venv/.dev
	$(BIN)/python -m pytest tests/e2e/clients/real_clients.py

# The tests that need no service, on another Python: make test-versions OTHERS="python3.12 python3.13".
OTHERS ?=
PURE := tests/domain tests/protocol tests/actors tests/config tests/secrets tests/ingest

test-versions:
	@for python in $(OTHERS); do \
	    echo "the tests that need no service, on $$($$python --version):"; \
	    folder=$$(mktemp -d) && $$python -m venv $$folder \
	        && $$folder/bin/pip install --quiet --disable-pip-version-check -c constraints.txt ".[dev]" \
	        && $$folder/bin/python -m pytest -n 2 -p no:cacheprovider $(PURE); \
	    status=$$?; rm -rf $$folder; [ $$status -eq 0 ] || exit $$status; \
	done

soak: .venv/.dev
	$(BIN)/python -m tests.bench.soak

hostile: .venv/.dev
	HOSTILE=full $(BIN)/python -m pytest tests/e2e/test_hostile_bodies.py tests/e2e/test_small_requests.py \
	    tests/e2e/test_large_bodies.py tests/e2e/test_mcp_filters.py tests/e2e/test_query_errors.py
	$(BIN)/python -m tests.bench.hostile

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
