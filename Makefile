# Every target sets up what it needs: Python 3.11, make and a package registry are enough.

PYTHON ?= python3
UPGRADE ?=

# One more than there are cores: many tests wait for a server, for Spark or for the disk.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 1)')

VENV := .venv
VENV_WHEEL := .venv-wheel
VENV_THIN := .venv-thin
VENV_OLDEST := .venv-oldest
BIN := $(VENV)/bin
SOURCES := src tests docs_site.py $(wildcard benchmarks) $(wildcard examples)

# Wheels only: building a dependency from source would run code that no lock vouches for.
INSTALL := install --quiet --disable-pip-version-check --require-hashes --only-binary :all:

# PySpark comes as source alone. It is built with what is locked and installed before it.
INSTALL_SPARK := $(INSTALL) --no-binary pyspark --no-build-isolation -r requirements/spark.txt

# So does its thin client, which is installed beside neither.
INSTALL_THIN := $(INSTALL) --no-binary pyspark-client --no-build-isolation -r requirements/thin.txt

# As old as pyproject.toml admits, in an environment that has the newest already.
INSTALL_OLDEST := $(INSTALL) --no-binary pyspark --no-build-isolation -r requirements/oldest.txt

# Each set is locked within the versions of the sets below it, so that they install over one another.
LOCK = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --no-annotate --no-emit-index-url --custom-compile-command "make lock" $(UPGRADE)

# Tests start hundreds of processes, each of which would compile the package again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: $(VENV)/.spark ## Run the main job end to end on a temporary folder, and write a report of it
	$(BIN)/tidemill demo

# Tests and benchmarks start real servers and shells, and kill processes at a given system call. What
# is missing is installed with the system's package manager; nothing is left running.
PROGRAMS := mariadbd redis-server etcd fish zsh openssl $(if $(filter Linux,$(shell uname -s)),strace)

.PHONY: services
services: ## Install the servers and shells that tests and benchmarks start, if they are missing
	@sh tests/services/install.sh $(PROGRAMS)

.PHONY: test
test: ## Run every test against the built wheel (the gate of each change)
	$(MAKE) --jobs=2 classes static docs thin services
	TIDEMILL_WHEEL=1 TIDEMILL_SERVICES=1 $(VENV_WHEEL)/bin/pytest -n $(WORKERS) --dist worksteal

.PHONY: check
check: static docs services ## Run the static checks and the quick tests against the source, in under 3 minutes
	TIDEMILL_SERVICES=1 $(BIN)/pytest -n $(WORKERS) --dist worksteal -m "not slow and not soak"

.PHONY: static
static: $(VENV)/.docs
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy $(SOURCES)
	$(BIN)/lint-imports

.PHONY: docs
docs: $(VENV)/.docs ## Build the site of the documentation; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "The site is in build/site/index.html; with a search: $(BIN)/mkdocs serve"

.PHONY: oldest
oldest: wheel services $(VENV_OLDEST)/.oldest ## Run the quick tests with the oldest dependencies that are admitted
	$(VENV_OLDEST)/bin/pip install --quiet --no-deps --no-index --force-reinstall dist/*.whl
	TIDEMILL_WHEEL=1 TIDEMILL_SERVICES=1 $(VENV_OLDEST)/bin/pytest -n $(WORKERS) --dist worksteal \
	  -m "not slow and not soak"

.PHONY: bench
bench: $(VENV)/.bench services ## Measure against the raw disk and against peers; writes benchmarks/results/
	$(BIN)/python -m benchmarks

.PHONY: soak
soak: $(VENV)/.dev thin services ## Run the long fault programme, for hours
	TIDEMILL_SOAK=1 TIDEMILL_SERVICES=1 $(BIN)/pytest -n $(WORKERS) --dist worksteal -m "slow or soak" \
	  -o faulthandler_timeout=0

.PHONY: lock
lock: $(VENV)/.dev ## Lock the requirements again; UPGRADE=--upgrade takes the newest versions
	$(LOCK) pyproject.toml requirements/core.in -o requirements/core.txt
	$(LOCK) requirements/spark.in -c requirements/core.txt -o requirements/spark.txt
	$(LOCK) pyproject.toml requirements/test.in -c requirements/core.txt \
	  -c requirements/spark.txt -o requirements/test.txt
	$(LOCK) requirements/thin.in -c requirements/core.txt -c requirements/spark.txt \
	  -c requirements/test.txt -o requirements/thin.txt
	$(LOCK) requirements/dev.in requirements/test.in -c requirements/core.txt \
	  -c requirements/spark.txt -c requirements/test.txt -o requirements/dev.txt
	$(LOCK) requirements/bench.in -c requirements/dev.txt -o requirements/bench.txt
	$(LOCK) requirements/oldest.in requirements/test.in -o requirements/oldest.txt
	$(LOCK) requirements/docs.in -c requirements/dev.txt -c requirements/bench.txt \
	  -o requirements/docs.txt

.PHONY: clean
clean: ## Remove everything that make made
	rm -rf $(VENV) $(VENV_WHEEL) $(VENV_THIN) $(VENV_OLDEST) dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis
	rm -rf .import_linter_cache benchmarks/results tidemill-demo.svg tidemill-report.html
	find src tests -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/bin/python $(VENV_WHEEL)/bin/python $(VENV_THIN)/bin/python $(VENV_OLDEST)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Tidemill needs Python 3.11 or newer, and $(PYTHON) is not."; \
	  echo "Name one that is: make PYTHON=python3.11 ..."; exit 1; }
	$(PYTHON) -m venv $(@D)/..

$(VENV)/.core: requirements/core.txt pyproject.toml | $(VENV)/bin/python
	$(BIN)/pip $(INSTALL) -r requirements/core.txt
	$(BIN)/pip install --quiet --no-build-isolation --no-deps --no-index --editable .
	@touch $@

$(VENV)/.spark: requirements/spark.txt $(VENV)/.core
	$(BIN)/pip $(INSTALL_SPARK)
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.spark
	$(BIN)/pip $(INSTALL) -r requirements/dev.txt
	@touch $@

$(VENV)/.docs: requirements/docs.txt $(VENV)/.dev
	$(BIN)/pip $(INSTALL) -r requirements/docs.txt
	@touch $@

$(VENV)/.bench: requirements/bench.txt $(VENV)/.dev
	$(BIN)/pip $(INSTALL) -r requirements/bench.txt
	@touch $@

# After the first, so that PySpark is built once; pip remembers what it built.
$(VENV_WHEEL)/.test: requirements/test.txt requirements/spark.txt | $(VENV)/.spark $(VENV_WHEEL)/bin/python
	$(VENV_WHEEL)/bin/pip $(INSTALL) -r requirements/test.txt
	$(VENV_WHEEL)/bin/pip $(INSTALL_SPARK)
	@touch $@

.PHONY: wheel
wheel: $(VENV)/.dev $(VENV_WHEEL)/.test ## Build the wheel in dist/, and install it where the tests run
	rm -rf dist
	$(BIN)/python -m build --wheel --no-isolation --outdir dist
	$(VENV_WHEEL)/bin/pip install --quiet --no-deps --no-index --force-reinstall dist/*.whl

# Tests start some hundred JVMs; with an archive of Spark's classes each takes a third less.
.PHONY: classes
classes: wheel
	$(VENV_WHEEL)/bin/python -m tidemill.spark.archiving

# Tests of Spark Connect run a client there, and tests of a cluster an executor. It gets what the
# package depends on, and not the package: tests bring the one that they are about.
.PHONY: thin
thin: $(VENV_THIN)/.thin ## Install a thin client for Spark Connect, where tests of it run

$(VENV_THIN)/.thin: requirements/core.txt requirements/thin.txt | $(VENV_THIN)/bin/python
	$(VENV_THIN)/bin/pip $(INSTALL) -r requirements/core.txt
	$(VENV_THIN)/bin/pip $(INSTALL_THIN)
	@touch $@

# The first installs what builds PySpark.
$(VENV_OLDEST)/.oldest: requirements/core.txt requirements/oldest.txt | $(VENV_OLDEST)/bin/python
	$(VENV_OLDEST)/bin/pip $(INSTALL) -r requirements/core.txt
	$(VENV_OLDEST)/bin/pip $(INSTALL_OLDEST)
	@touch $@
