# Bare `make` lists the targets. Everything is installed into .venv by what is in this repository.
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
# One worker more than cores: some tests wait for servers.
PYTEST := $(BIN)/python -m pytest -n $(shell expr $$(nproc) + 1) --dist loadscope --no-loadscope-reorder
QUICK := tests/config tests/rows tests/counts tests/privacy tests/storage/contracts \
	tests/cli/test_cli.py tests/test_data_path.py \
	$(patsubst %, tests/storage/test_%.py, catalogue records segments) \
	$(patsubst %, tests/store/test_%.py, bins contributions groups hot_window observe people_told retention snapshots \
		spending training_set weights windows withdraw)
export PYTHONDONTWRITEBYTECODE := # empty: bytecode is kept, also where the environment says otherwise
KERNELS := $(wildcard src/pyramidion/*/*kernels.py lab/*kernels.py)

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

.PHONY: run
run: $(VENV)/warm ## set up and serve a year of flights that flows while one looks; Ctrl-C ends it
	@$(BIN)/pyramidion live

.PHONY: demo
demo: $(VENV)/warm ## replay a year of flights through a store; plots go to build/demo
	$(BIN)/pyramidion demo --output build/demo

.PHONY: test
test: $(VENV)/warm ## set up and run all tests that protect a release
	$(PYTEST) -m "not campaign" --durations=20

.PHONY: quick
quick: $(VENV)/warm ## the tests of a minute, for the inner loop
	$(PYTEST) -p no:schemathesis -q -m "not (campaign or slow or servers or java or browser or statistical)" $(QUICK)

MINUTES ?= 60
.PHONY: campaign
campaign: $(VENV)/warm ## long runs of chance: kills, statistics, fuzzing, for MINUTES=60
	$(BIN)/python -m tests.campaign --minutes $(MINUTES)

.PHONY: check
check: $(VENV)/installed ## style, types and import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

.PHONY: bench
bench: $(VENV)/warm ## speed and size beside scikit-learn, polars and OpenDP, in one run
	$(BIN)/python -m benchmarks

.PHONY: mutants
mutants: $(VENV)/warm ## break the rules of privacy one by one, and see a named test go red for each
	$(BIN)/python -m tests.store.audit.mutants

.PHONY: report
report: $(VENV)/warm ## all figures on the data beside this repository, into docs/report, in an hour; again: what is left
	$(BIN)/python -m lab all --data ../shared/data --output docs/report
	@find docs/report -name report.html -size +4882k -delete # 5 MB: more is not kept

.PHONY: screenshots
screenshots: $(VENV)/warm ## take the pictures of the dashboard that the documents show
	PYRAMIDION_SCREENSHOTS=docs/images/dashboard $(BIN)/python -m pytest tests/web/dashboard/test_browser.py -k walked

.PHONY: docs
docs: $(VENV)/warm ## check that what the documents say is so
	$(BIN)/python -m pytest tests/test_docs.py

.PHONY: warm
warm: $(VENV)/warm ## compile the kernels once, into numba's cache

.PHONY: system
system: ## Debian packages that some parts need (as root; otherwise nothing)
	@for tool in curl chromium redis-server redis-cli java mvn; do \
		command -v $$tool > /dev/null || missing=1; done; \
	test -z "$$missing" || test "$$(id -u)" != 0 || \
		{ apt-get update -qq && apt-get install -qq -y \
			curl chromium redis-server openjdk-17-jre-headless maven; }

.PHONY: cassandra
cassandra: build/cassandra/fetched ## the jars of Cassandra for the tests, by Maven

build/cassandra/fetched: tests/cassandra_nodes/pom.xml
	@rm -rf build/cassandra
	@mvn --batch-mode --quiet -f $< dependency:copy-dependencies -Djars=$(CURDIR)/build/cassandra
	@touch $@

.PHONY: clean
clean: ## remove the environment and all caches
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "Python 3.11 or newer is needed; set PYTHON=")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV) ..."
	$(PIP) install -c constraints.txt -e '.[dev]'
	@touch $@

$(VENV)/warm: $(VENV)/installed $(KERNELS)
	@echo "compiling the kernels, once ..."
	@find src lab -name '*.nb[ic]' -delete # numba's cache does not see a change in a kernel that another one inlines
	$(BIN)/python -m pyramidion.cli.warm
	$(BIN)/python -m lab.warm
	@touch $@
