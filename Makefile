# SPDX-FileCopyrightText: 2026 The airflow-resumable authors
# SPDX-License-Identifier: Apache-2.0
#
# Every target does its own set-up: a virtual environment, made from the lock file of one Airflow version.
# AIRFLOW=3.3, the default, lives in .venv; `make test AIRFLOW=3.4` in .venv-3.4, and so with the other targets.

SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

AIRFLOW ?= 3.3
VENV ?= $(if $(filter 3.3,$(AIRFLOW)),.venv,.venv-$(AIRFLOW))
LOCK ?= requirements/airflow-$(AIRFLOW).txt
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

# The first that starts and is new enough. A name on PATH proves nothing: a version manager's shim may be
# there for a Python that isn't. The base executable, because PATH may lead into the very .venv to be replaced.
PYTHON ?= $(shell for python in python3.12 python3.11 python3.13 python3; do "$$python" -c \
	'import sys; print(sys._base_executable) if sys.version_info >= (3, 11) else sys.exit(1)' 2>/dev/null && break; done)

# Those that are made here, one for each lock file: only these are replaced or removed.
VENVS := .venv $(patsubst requirements/airflow-%.in,.venv-%,$(wildcard requirements/airflow-*.in))

# Tests of one file stay together: they share what the file starts.
JOBS ?= 1
SPREAD := $(if $(filter-out 1,$(JOBS)),--numprocesses $(JOBS) --dist loadfile)

# What mypy and ruff look at; of the last three, those that are there.
SOURCES := plugin operators tests scripts $(wildcard example_dags benchmarks)

.PHONY: help demo test check check-lint check-types check-docs check-generated bench proof soak docs generate \
	format lock install clean

help: ## Show this help (AIRFLOW=3.4 chooses the Airflow for any of these)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(STAMP) ## Kill real workers and count the jobs (DEMO="--system spark" for a Spark cluster)
	@$(BIN)/airflow-resumable demo --record docs/_generated/demo.json $(DEMO)

test: $(STAMP) ## Run the tests (PYTEST="-k name" to choose, JOBS=2 for two processes)
	@$(BIN)/python -m pytest -m "not slow" $(SPREAD) $(PYTEST)

proof: $(STAMP) ## Run every test, the slow ones too, with many more generated examples
	@HYPOTHESIS_PROFILE=proof AIRFLOW_RESUMABLE_RECORD=1 $(BIN)/python -m pytest $(SPREAD) $(PYTEST)

check: check-lint check-types check-docs check-generated ## Lint, types, documentation, generated files

check-lint: $(STAMP)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

check-types: $(STAMP)
	$(BIN)/mypy $(SOURCES)

check-docs: $(STAMP)
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html

check-generated: $(STAMP)
	$(BIN)/python -m scripts.generate --check

bench: $(STAMP) ## Run the benchmarks, benchmarks/bench_*.py
	@test -n "$(wildcard benchmarks/bench_*.py)" || { echo "make bench: there is no benchmarks/bench_*.py"; exit 2; }
	@set -e; for script in $(sort $(wildcard benchmarks/bench_*.py)); do echo "== $$script"; PYTHONPATH=. $(BIN)/python "$$script"; done

soak: $(STAMP) ## Kill at random for a long time, benchmarks/soak.py (SOAK="--minutes 60")
	@test -f benchmarks/soak.py || { echo "make soak: there is no benchmarks/soak.py"; exit 2; }
	@$(BIN)/python benchmarks/soak.py $(SOAK)

docs: check-docs ## Build the documentation
	@echo "docs/_build/html/index.html"

generate: $(STAMP) ## Write the generated files anew
	@$(BIN)/python -m scripts.generate

format: $(STAMP) ## Format the code
	@$(BIN)/ruff check --fix $(SOURCES)
	@$(BIN)/ruff format $(SOURCES)

lock: ## Resolve the lock file anew (needs uv)
	@uv --version >/dev/null 2>&1 || { echo "make lock: uv doesn't run here; see https://docs.astral.sh/uv/"; exit 2; }
	@test -e $(LOCK:.txt=.in) || { echo "make lock: there is no $(LOCK:.txt=.in)"; exit 2; }
	uv pip compile pyproject.toml $(LOCK:.txt=.in) --extra spark --extra kubernetes --extra amazon --extra google --group dev --universal --python-version 3.11 \
		--fork-strategy fewest --generate-hashes --no-emit-index-url --no-emit-find-links \
		--custom-compile-command "make lock" --quiet --upgrade --output-file $(LOCK)

install: $(STAMP) ## Make the virtual environment, if it isn't up to date

$(LOCK):
	@echo "There is no $(LOCK). AIRFLOW is one of: $(patsubst requirements/airflow-%.txt,%,$(wildcard requirements/airflow-*.txt))"; exit 2

$(STAMP): $(LOCK) pyproject.toml
	@test -n "$(PYTHON)" || { echo "airflow-resumable needs Python 3.11 or newer: none of python3.12, python3.11," \
		"python3.13, python3 is. Install one, or name it: make PYTHON=/path/to/python3.12 ..."; exit 2; }
	@echo "Installing into $(VENV) from $(LOCK); the first time takes a few minutes."
	@test ! -e $(VENV) -o -e $(VENV)/pyvenv.cfg || { echo "$(VENV) is there and is no virtual environment: not touched"; exit 2; }
	@test ! -e $(VENV) -o -e $(STAMP) -o -n "$(filter $(VENV),$(VENVS))" || { echo "$(VENV) was not made here: not touched"; exit 2; }
	@rm -rf $(VENV)
	@# Compiled once here: each Airflow process would otherwise compile for seconds where writing is switched off.
	@set -e; unset PYTHONDONTWRITEBYTECODE; if uv --version >/dev/null 2>&1; then \
		uv venv --quiet --python "$(PYTHON)" $(VENV); \
		uv pip install --quiet --compile-bytecode --python $(BIN)/python --require-hashes -r $(LOCK); \
		uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .; \
	else \
		"$(PYTHON)" -m venv $(VENV) || { echo "On Debian and Ubuntu: apt-get install python3-venv"; exit 2; }; \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r $(LOCK); \
		$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .; \
	fi
	@touch $@

clean: ## Remove everything that was made here
	rm -rf $(sort $(VENV) $(VENVS)) build dist docs/_build .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
