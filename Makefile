# Two commands carry the house: `make run` and `make test`. Both set up what is missing.
# Everything installs into .venv, by uv when it is on the PATH, else by venv and pip, at the versions of
# constraints.txt.

PYTHON ?= python3
# Kept whatever the machine says: without what Python compiled before, a service takes a third more to start.
export PYTHONDONTWRITEBYTECODE :=
BIN := .venv/bin
SOURCES := svc actors protocol tests deploy setup.py

.PHONY: run compiled test test-all together alone release-laws modules test-versions test-clients test-imports check bench bench-read bench-pages bench-disk bench-sizes bench-start bench-doors bench-upkeep bench-backup bench-detect bench-judge bench-agents soak chaos hostile image release docs pictures format clean

# Serves at once. Where a C compiler is at hand, modules of the hot path are compiled beside it, which the running
# service takes up.
run: .venv/.run
	@echo "3/3 starting the service"
	@deploy/compile.sh $(PYTHON) >.venv/compile.log 2>&1 </dev/null & exec $(BIN)/trace-svc serve

# Beside the checks. A file stays in one process, whose service it shares; four of them, since much of it waits: with
# three a third of two cores was idle (November 2026). What is marked `alone` (kills, floods) comes after all others,
# three at a time: that too waits most of its time.
TEST := $(BIN)/python -m pytest --dist loadfile --no-loadscope-reorder

test: .venv/.dev
	@$(MAKE) --no-print-directory -j 2 -O check together
	@$(MAKE) --no-print-directory alone

together: .venv/.dev
	$(TEST) -n 4 $(PROFILE) -m "not alone and not release" tests

alone: .venv/.dev
	$(TEST) -n 3 $(PROFILE) -m "alone and not release" tests

# All of it, and what proves slow truths: each law with all its examples, releases before this one, the image, a fresh
# clone, kills at length, other Pythons (OTHERS names them), other people's SDKs and servers. More than an hour.
test-all: .venv/.dev
	@$(MAKE) --no-print-directory test PROFILE=--hypothesis-profile=at-length
	@CHAOS_ROUNDS=20 $(MAKE) --no-print-directory -k release-laws chaos test-versions test-clients test-imports

release-laws: .venv/.dev
	$(TEST) -n 3 -m release tests

modules:
	tests/web/modules/check.sh

check: .venv/.dev modules
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy

# Compiles the modules of the hot path anew, from their present sources. Whatever has changed since runs as it is.
compiled: .venv/.dev
	@deploy/install.sh $(PYTHON) ".[dev]"
	@$(BIN)/trace-svc --version

bench: compiled
	$(BIN)/python -m tests.bench

bench-read: .venv/.dev
	$(BIN)/python -m tests.bench.read

bench-pages: .venv/.dev
	$(BIN)/python -m tests.bench.pages

bench-disk: .venv/.dev
	$(BIN)/python -m tests.bench.disk

bench-sizes: .venv/.dev
	$(BIN)/python -m tests.bench.sizes

bench-start: .venv/.dev
	$(BIN)/python -m tests.bench.start

bench-upkeep: .venv/.dev
	$(BIN)/python -m tests.bench.upkeep

bench-doors: .venv/.dev
	$(BIN)/python -m tests.bench.doors

bench-backup: .venv/.dev
	$(BIN)/python -m tests.bench.backup

bench-detect: compiled
	$(BIN)/python -m tests.bench.detect
	$(BIN)/python -m tests.bench.labelled
	$(BIN)/python -m tests.bench.tallying

bench-judge: .venv/.dev
	$(BIN)/python -m tests.bench.judge $(FOLDER)

bench-agents: .venv/.dev
	$(BIN)/python -m tests.bench.agents $(ARGUMENTS)

test-clients: .venv/.dev
	$(BIN)/python -m pytest tests/e2e/clients/real_clients.py tests/e2e/clients/connect_programs.py

test-imports: .venv/.dev
	$(BIN)/python -m pytest tests/e2e/imports/real_servers.py

# The tests that need no service, on another Python: make test-versions OTHERS="python3.12 python3.13". What was
# compiled for it is put beside the sources meanwhile; its names say for which Python it is. Another Python has
# another grammar and library, not other values: where a law draws a hundred, twenty are enough there.
OTHERS ?=
PURE := tests/domain tests/protocol tests/actors tests/config tests/secrets tests/ingest

test-versions:
	@for python in $(OTHERS); do \
	    echo "the tests that need no service, on $$($$python --version):"; \
	    folder=$$(mktemp -d) && $$python -m venv $$folder \
	        && CFLAGS=-O0 $$folder/bin/pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt ".[dev]" \
	        && twins=$$(ls $$folder/lib/python*/site-packages/protocol/compiled | grep '\.so$$' || true) \
	        && for twin in $$twins; do cp $$folder/lib/python*/site-packages/protocol/compiled/$$twin protocol/compiled/; done \
	        && $$folder/bin/python -m pytest -n 2 -p no:cacheprovider --hypothesis-profile=another-python $(PURE); \
	    status=$$?; rm -rf $$folder; for twin in $$twins; do rm -f protocol/compiled/$$twin; done; \
	    [ $$status -eq 0 ] || exit $$status; \
	done

# BASE names another base than Debian's own.
BASE ?= debian:trixie-slim
VERSION = $(shell $(PYTHON) -c 'from protocol.release import release; print(release())')

image:
	docker build -f deploy/Dockerfile --build-arg BASE=$(BASE) --build-arg VERSION=$(VERSION) \
	    --build-arg REVISION=$$(git rev-parse HEAD) -t trace-svc -t trace-svc:$(subst +,-,$(VERSION)) .

# What a release consists of, from the present commit, which has a tag, in dist/. ANY_COMMIT=yes builds any commit, KEY
# signs the checksums (a key of SSH).
release: .venv/.release
	$(BIN)/python deploy/release.py $(if $(ANY_COMMIT),--any-commit) $(if $(KEY),--key $(KEY)) dist

# The documentation as a site, for any web server: build/docs.
docs: .venv/.dev
	$(BIN)/python deploy/site/build.py build/docs

# Renews the pictures of the documentation from the demo; needs chromium.
pictures: .venv/.dev
	$(BIN)/python -m tests.pictures

soak: .venv/.dev
	$(BIN)/python -m tests.bench.soak

hostile: .venv/.dev
	HOSTILE=full $(BIN)/python -m pytest tests/e2e/test_hostile_bodies.py tests/e2e/test_small_requests.py \
	    tests/e2e/test_large_bodies.py tests/e2e/test_mcp_filters.py tests/e2e/test_query_errors.py
	$(BIN)/python -m tests.bench.hostile

# Kills and failing networks at length, with a table of what was lost: make chaos ROUNDS=100.
ROUNDS ?= 20

chaos: .venv/.dev
	CHAOS_ROUNDS=$(ROUNDS) $(BIN)/python -m pytest -p tests.chaos.attacks -o faulthandler_timeout=0 \
	    tests/chaos tests/e2e/test_broker_mode.py

format: .venv/.dev
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)
	$(BIN)/python -m tests.web.layout svc/web/*/*.html
	tests/web/modules/check.sh --write

clean:
	rm -rf .venv *.egg-info build dist protocol/compiled/*.so .mypy_cache .pytest_cache .ruff_cache .hypothesis

.venv/.run: pyproject.toml constraints.txt setup.py
	@SVC_COMPILED_MODULES=false deploy/install.sh $(PYTHON) .
	@touch $@

.venv/.dev: pyproject.toml constraints.txt setup.py
	@deploy/install.sh $(PYTHON) ".[dev]"
	@touch $@ .venv/.run

.venv/.release: .venv/.dev
	@SVC_COMPILED_MODULES=false deploy/install.sh $(PYTHON) ".[dev,release]"
	@touch $@
