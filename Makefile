# On a fresh Debian with Python 3.11, gcc and root, these two do everything themselves:
#   make demo      a MariaDB, the server, live changes, and a proof that what was written was delivered
#   make test      every promise once, on real servers; RECORD=1 writes down what it came to
#   make simulate  1,000,000 random schedules of failures of several servers, and as many of merged streams; SEED=7 shows
#                  what happens in one
#   make fuzz      under AddressSanitizer: many destinations that start at once, then 1,000,000 mutated events for the
#                  decoder; INPUTS=, SEED=, BLOCK=
#   make mutants   all one-token changes of the Python that decides what is delivered to whom, and 150 random ones of
#                  the compiled core: do the tests notice? SEED=, LIMIT=; resumable
#   make chaos     random failures of real servers for 3 minutes, or MINUTES=60; SEED=7 repeats a sequence; SERVER=mysql97
#   make compat    stock Canal and Sluice on the same sources, entry by entry; writes docs/compat.md
# And: make lint, docs, soak (what takes hours), test-all (on all servers), bench, bench-all, bench-quick, lock, clean.
# PYTHON names another interpreter; SLUICE_CACHE another place for downloads (~/.cache/sluice).

SHELL := /bin/bash
# Where it is set, each of some hundred processes would compile what it imports.
unexport PYTHONDONTWRITEBYTECODE
PYTHON ?= python3
RUN := .venv/bin/python
# Four on two cores: with three, an eighth of their time is unused.
PYTEST := $(RUN) -m pytest -n 4 --durations=10 $(if $(RECORD),--record)
PACKAGES := protocol login store sql instance server client_sdk
SANITIZED := -fsanitize=address,undefined
SOURCES := setup.py pyproject.toml $(shell find $(PACKAGES) -name '*.pyx' -o -name '*.pxd' -o -name '*.h')

.PHONY: setup build demo test test-all soak simulate chaos fuzz mutants compat lint bench bench-all bench-quick docs lock clean

setup: .venv/.ready

build: build/.ready

# While this compiles, the MariaDB of the demo comes.
demo: .venv/.ready
	@set -e; [ -n "$$SLUICE_MYSQL" ] || tests/servers/server.sh mariadb-trixie fetch >/dev/null & $(MAKE) --no-print-directory build; wait $$!
	@$(RUN) -m scripts.demo

test: build .venv/.spark
	@set -e; for server in mariadb-trixie mysql97 mysql56; do tests/servers/server.sh $$server fetch >/dev/null; done
	$(PYTEST) $(ARGS)

test-all: build .venv/.spark
	TESTS_THOROUGH=1 $(PYTEST) -m "not soak" $(ARGS)

soak: build .venv/.spark
	TESTS_THOROUGH=1 $(RUN) -m pytest -m soak --record $(ARGS)

simulate: build .venv/.dev
	$(RUN) -m tests.simulation $(if $(SEED),--seed $(SEED)) $(ARGS)

fuzz: .venv/.dev
	@CXXFLAGS="$(SANITIZED) -fno-sanitize-recover=all -fno-omit-frame-pointer -g1 -DNDEBUG" LDFLAGS="$(SANITIZED)" \
		$(RUN) setup.py -q build --build-base build/sanitized-objects --build-lib build/sanitized
	@$(RUN) -m tests.racing --sanitized build/sanitized
	@$(RUN) -m tests.fuzzing $(INPUTS) $(if $(SEED),--seed $(SEED)) $(if $(BLOCK),--block $(BLOCK)) --sanitized build/sanitized

mutants: build .venv/.dev
	@$(RUN) -m tests.mutants $(if $(SEED),--seed $(SEED)) $(if $(LIMIT),--limit $(LIMIT)) $(ARGS)

compat: build .venv/.dev
	@$(RUN) -m tests.compat $(ARGS)

chaos: build .venv/.dev
	@set -e; for server in mariadb-trixie mysql97; do tests/servers/server.sh $$server fetch >/dev/null; done
	@$(RUN) -m tests.chaos $(if $(SEED),--seed $(SEED)) $(if $(MINUTES),--minutes $(MINUTES)) \
		$(if $(SERVER),--server $(SERVER)) $(ARGS)

lint: build .venv/.spark
	@PATH="$(CURDIR)/.venv/bin:$$PATH" scripts/lint.sh

bench: build .venv/.spark
	@$(RUN) -m bench $(or $(ARGS),deliver)

# Most measurements, each written when it is there, and the page; ARGS="--minutes 60": as long as that.
bench-all: build .venv/.dev
	@$(RUN) -m bench.everything $(ARGS)
	@$(RUN) -m bench report >/dev/null

# Each measurement on next to nothing, without a judgement: that they all still run.
bench-quick: build .venv/.dev
	@$(RUN) -m pytest -m "not soak" -k "not spark" tests/integration/test_bench.py

docs: build .venv/.dev
	@$(RUN) scripts/generate_configuration.py
	@$(RUN) scripts/generate_conditions.py

lock: .venv/.ready
	@PYTHON=$(RUN) scripts/lock.sh

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find $(PACKAGES) -name '*.so' -delete

.venv/.ready: requirements.lock scripts/setup.sh
	@PYTHON=$(PYTHON) scripts/setup.sh
	@touch $@

.venv/.dev: .venv/.ready requirements-dev.lock
	@PYTHON=$(PYTHON) scripts/setup.sh dev
	@touch $@

.venv/.spark: .venv/.dev requirements-spark.lock
	@PYTHON=$(PYTHON) scripts/setup.sh spark
	@touch $@

build/.ready: .venv/.ready $(SOURCES)
	@echo "set-up: compiling"
	@$(RUN) setup.py -q build_ext --inplace --parallel $(shell nproc)
	@touch $@
