PYTHON ?= python3
BIN := .venv/bin
UV := $(or $(shell command -v uv),$(BIN)/uv)
INSTALL = VIRTUAL_ENV=.venv $(UV) pip install --quiet --require-hashes -r
# Nothing is connected to: Django's settings want to be complete.
DUMMY := DATABASE_URL=postgresql://check@127.0.0.1:1/check REDIS_URL=redis://127.0.0.1:1/0 \
         IGW_SECRET_KEYS=for-checks-only-for-checks-only-for-checks

.PHONY: help run test check bench sim lock browser clean
.DEFAULT_GOAL := help

help: ## print this list
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  make \1\t\2/p' Makefile

run: .venv/.run ## start everything: stores, gateway, Celery worker with beat, demo workers
	@exec $(BIN)/python manage.py up

test: .venv/.dev browser ## run all tests; ARGS="tests/routing -q" chooses
	@$(BIN)/python -m pytest $(or $(ARGS),-n 2 --dist loadfile)

check: .venv/.dev ## lint, format, types, import contracts, migrations
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(DUMMY) $(BIN)/mypy
	@$(BIN)/lint-imports
	@$(DUMMY) $(BIN)/python -W ignore manage.py makemigrations --check --dry-run

bench: .venv/.dev ## run the benchmark; ARGS chooses
	@$(BIN)/python tests/bench/decisions.py
	@$(BIN)/python tests/bench/igw.py $(ARGS)

sim: .venv/.dev ## run the routing simulator and print its tables; ARGS="quick" or names of tables
	@$(BIN)/python -m tests.sim $(ARGS)

lock: $(UV) ## pin the dependencies of pyproject.toml again
	$(UV) pip compile -q --universal --generate-hashes --python-version 3.11 --extra embedded pyproject.toml \
	  -o requirements.lock
	$(UV) pip compile -q --universal --generate-hashes --python-version 3.11 --extra embedded --group dev \
	  -c requirements.lock pyproject.toml -o requirements-dev.lock

clean: ## remove the environment, the caches and the state directory .igw with its data
	rm -rf .venv .igw .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

browser: .venv/.dev
	@sh tools/browser.sh

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.x ...")'
	@$(PYTHON) -m venv .venv || { rm -rf .venv; exit 1; }

$(BIN)/uv: | $(BIN)/python
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv==0.13.9'

.venv/.run: requirements.lock | $(UV) $(BIN)/python
	@$(INSTALL) requirements.lock
	@touch $@

.venv/.dev: requirements-dev.lock | $(UV) $(BIN)/python
	@$(INSTALL) requirements-dev.lock
	@touch $@
