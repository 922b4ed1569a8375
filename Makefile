# All development commands. They need Python >= 3.11, make and this clone. Each target sets up .venv once.
# `make` alone lists the targets. PYTHON=/path/to/python chooses another interpreter.

SHELL := /bin/sh
BIN := .venv/bin
export PYTHON
# With this variable, each of hundreds of processes would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE
# PARALLEL starts two test processes for each core, and WAITING three, because many tests wait for processes. With one for each
# core, a third of the processor time of the fast tests stayed unused, and with two a quarter of that of all tests.
# The tests of a file run in order in one process. Files run in the order of folders, so that the longest files come first.
# A test process that crashes ends the run. Its tests would otherwise crash its successors, too.
PARALLEL := -n $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) * 2 ))) --dist loadfile --max-worker-restart 0
WAITING := -n $(shell echo $$(( $$(getconf _NPROCESSORS_ONLN) * 3 ))) --dist loadfile --no-loadscope-reorder --max-worker-restart 0
# The tests marked `alone` state promises in seconds. They also pass with four at once on a busy machine.
# Each test names its group. A process runs one group. With three groups, a quarter of the processor time stayed unused.
ALONE := -n 4 --dist loadgroup --max-worker-restart 0
# The text as the user typed it: neither make nor the shell expands it.
export HANDOFF_MAKE_JOB := $(value JOB)
export HANDOFF_MAKE_DOCS := $(value DOCS)

.DEFAULT_GOAL := help
.PHONY: help run test check docs explore fuzz test-browser compose-test chaos bench sbom format lock clean distclean

help: ## List these targets
	@sed -n 's/^\([a-z-]*\):.*## /\1|/p' Makefile | while IFS='|' read -r name what; do printf '  make %-14s %s\n' "$$name" "$$what"; done

run: .venv/.ready-to-run ## Run one job on this machine: make run JOB="..." DOCS=folder (default: the example)
	@exec ./.ci/run-job

test: .venv/.ready-to-develop ## Run all tests that need only Python
	./.ci/install-bubblewrap
	$(BIN)/pytest $(WAITING) -m "not browser and not compose and not alone"
	$(BIN)/pytest $(ALONE) -m alone

check: .venv/.ready-to-develop ## Check style, types and import rules, and run the fast tests
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/pytest -q $(PARALLEL) -m "not slow and not browser and not compose" --hypothesis-profile=quick

docs: .venv/.ready-to-develop ## Build the documentation as a site in build/site, and check its links
	$(BIN)/python -m docs.generator
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo "build/site/index.html"

explore: .venv/.ready-to-develop ## Run the property tests with new random cases: make explore SEED=7
	$(BIN)/pytest -q $(PARALLEL) -m hypothesis --hypothesis-profile=explore $(if $(SEED),--hypothesis-seed=$(SEED))

fuzz: .venv/.ready-to-fuzz ## Fuzz the parsers with atheris: make fuzz SECONDS=600 TARGETS="yaml schema" (default: 60 s each)
	$(BIN)/python -m tests.fuzz $(TARGETS) $(if $(SECONDS),--seconds $(SECONDS))

test-browser: .venv/.ready-to-develop ## Test Flower and the trace page in Chromium (installs Debian's chromium if it is missing)
	./.ci/install-chromium
	$(BIN)/pytest -m browser

compose-test: .venv/.ready-to-develop ## Build, scale and use the whole compose file (needs Docker)
	$(BIN)/pytest -m compose

chaos: .venv/.ready-to-run ## Kill processes at random and check all promises: make chaos KILLS=200 SEED=7
	$(BIN)/handoff chaos $(if $(KILLS),--kills $(KILLS)) $(if $(JOBS),--jobs $(JOBS)) $(if $(SEED),--seed $(SEED))

bench: .venv/.ready-to-measure ## Compare this project, a bare Celery canvas and LangGraph: make bench QUICK=1
	$(BIN)/python -m benchmarks $(if $(QUICK),--quick)

sbom: .venv/.ready-to-develop ## Write the bills of materials of the image and the wheel (CycloneDX) into build/sbom
	$(BIN)/python -m deploy.sbom build/sbom

format: .venv/.ready-to-develop ## Fix style with ruff
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: .venv/.ready-to-develop ## Pin the newest versions that pyproject.toml allows
	./.ci/lock

clean: ## Remove caches and build results
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache *.egg-info
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

distclean: clean ## Remove .venv, too
	rm -rf .venv

.venv/.ready-to-run: requirements.txt pyproject.toml .ci/install
	@./.ci/install run
	@touch $@

.venv/.ready-to-develop: .venv/.ready-to-run requirements-agent-sdk.txt requirements-otel.txt requirements-dev.txt requirements-docs.txt requirements-helm.txt requirements-axe.txt requirements-injection.txt
	@./.ci/install develop
	@touch $@

.venv/.ready-to-measure: .venv/.ready-to-develop requirements-bench.txt
	@./.ci/install bench
	@touch $@

.venv/.ready-to-fuzz: .venv/.ready-to-develop requirements-fuzz.txt
	@./.ci/install fuzz
	@touch $@
