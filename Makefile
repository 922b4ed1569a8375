# The one door. Needs Python >= 3.11, make and this clone; every target sets itself up in .venv, once.
# `make` alone lists the targets. PYTHON=/path/to/python chooses another interpreter.

SHELL := /bin/sh
BIN := .venv/bin
export PYTHON
# Where it is set, each of hundreds of processes compiles all of our modules anew, and each test process all tests.
unexport PYTHONDONTWRITEBYTECODE
# One test process a core, or three for two cores where tests wait for processes half of their time; those of a file stay together, in order.
# In the order of folders the files that take longest come first, in that of their number of tests they would be left for the end.
PARALLEL := -n auto --dist loadfile
WAITING := -n $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) * 3 / 2 ))) --dist loadfile --no-loadscope-reorder
# Taken as typed: neither make nor the shell reads what is inside the quotes.
export HANDOFF_MAKE_JOB := $(value JOB)
export HANDOFF_MAKE_DOCS := $(value DOCS)

.DEFAULT_GOAL := help
.PHONY: help run test check docs explore test-browser compose-test chaos bench format lock clean distclean

help: ## List these targets
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | while IFS='|' read -r name what; do printf '  make %-14s %s\n' "$$name" "$$what"; done

run: .venv/.ready-to-run ## One job on this machine, end to end: make run JOB="..." DOCS=folder (the example's, where one is left out)
	@exec ./.ci/run-job

test: .venv/.ready-to-develop ## Everything that needs nothing but Python
	$(BIN)/pytest $(WAITING) -m "not browser and not compose and not alone"
	$(BIN)/pytest -n 2 --dist worksteal -m alone

check: .venv/.ready-to-develop ## Style, types, import rules and the fast tests: a minute, or a minute and a half
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q $(WAITING) -m "not slow and not browser and not compose" --hypothesis-profile=quick

docs: .venv/.ready-to-develop ## Build the documentation as a site in build/site; its links are checked
	$(BIN)/python -m docs.generator
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "build/site/index.html"

explore: .venv/.ready-to-develop ## The property tests on cases that nobody has drawn before: make explore SEED=7
	$(BIN)/pytest -q $(PARALLEL) -m hypothesis --hypothesis-profile=explore $(if $(SEED),--hypothesis-seed=$(SEED))

test-browser: .venv/.ready-to-develop ## Flower in a real browser (installs Debian's chromium if there is none)
	./.ci/install-chromium
	$(BIN)/pytest -m browser

compose-test: .venv/.ready-to-develop ## The whole compose file, built, scaled and used (needs Docker)
	$(BIN)/pytest -m compose

chaos: .venv/.ready-to-run ## Kill everything at random, and say what was kept: make chaos KILLS=200 SEED=7
	$(BIN)/handoff chaos $(if $(KILLS),--kills $(KILLS)) $(if $(JOBS),--jobs $(JOBS)) $(if $(SEED),--seed $(SEED))

bench: .venv/.ready-to-measure ## One table: this project, a bare Celery canvas, LangGraph: make bench QUICK=1
	$(BIN)/python -m benchmarks $(if $(QUICK),--quick)

format: .venv/.ready-to-develop ## Let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: .venv/.ready-to-develop ## Pin the newest versions that pyproject.toml allows
	./.ci/lock

clean: ## Remove caches and build results
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache *.egg-info
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean ## ... and .venv
	rm -rf .venv

.venv/.ready-to-run: requirements.txt pyproject.toml .ci/install
	@./.ci/install run
	@touch $@

.venv/.ready-to-develop: .venv/.ready-to-run requirements-otel.txt requirements-dev.txt requirements-docs.txt
	@./.ci/install develop
	@touch $@

.venv/.ready-to-measure: .venv/.ready-to-develop requirements-bench.txt
	@./.ci/install bench
	@touch $@
