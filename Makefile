# Everything here needs only Python 3.11 or newer, pip and make; `.ci/run` runs `test-all` and `checks`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
TARGET ?= model
PROFILE ?= ci
JOBS ?= 2
# Tests at once: many of them wait for a process.
TESTERS ?= 3
# Some images set it. Every process that a test starts would then compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: install gate test test-all test-nightly lint selfcheck checks check-faults check-release docs tool dist lock clean

gate: $(VENV)/installed
	$(BIN)/schedproof gate "$(TARGET)" --profile $(PROFILE) --jobs $(JOBS) \
		$(if $(RULES),--rule $(RULES)) $(if $(REVISION),--revision $(REVISION)) \
		$(if $(DEVIATIONS),--deviations $(DEVIATIONS))

# What the tests need, and nothing is run.
install: $(VENV)/installed-test

# The fast tier; test-all runs the slow tests as well, test-nightly those that a shorter test stands for.
test: lint
	$(BIN)/pytest -n $(TESTERS) --dist worksteal -m "not slow and not nightly"
test-all: lint
	$(BIN)/pytest -n $(TESTERS) --dist worksteal -m "not nightly"
test-nightly: lint
	$(BIN)/pytest -n $(TESTERS) --dist worksteal -m nightly
	$(BIN)/python -m schedproof.tools.journey docs/tutorials/plugin.md

# mypy finds the package by its name, whatever the folder of the checkout is called.
lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	mkdir -p $(VENV)/types && ln -sfn "$(CURDIR)" $(VENV)/types/schedproof
	cd $(VENV)/types && ../bin/mypy --config-file schedproof/pyproject.toml -p schedproof

# Do the rules find the faults that are planted into the models?
selfcheck: $(VENV)/installed-test
	$(BIN)/python -m schedproof.tests.mutants.runner --jobs $(JOBS) $(OPTIONS)
# What no test does: every planted fault, and a real release.
checks: check-faults check-release
check-faults: $(VENV)/installed-test
	$(MAKE) selfcheck OPTIONS="--quick --only witnesses --only mutants"
check-release: $(VENV)/installed-test
	$(BIN)/python -m schedproof.tools.journey docs/tutorials/plugin.md against-base
	$(MAKE) gate PROFILE=quick JOBS=1 TARGET=sendnn-inference==2.1.2 RULES=SPY-R07,SPY-R09,SPY-R14,SPY-R30,ALL-R01
	$(MAKE) gate PROFILE=quick JOBS=1 RULES=SPY-R07,SPY-R47,ALL-R05,ALL-R06,ALL-R01 \
		DEVIATIONS=tests/corpus/known-exact-admission.toml \
		TARGET=sendnn-inference==2.1.2:examples/exact_admission.py:ExactAdmission

# A site; site/index.html opens without a server.
docs: $(VENV)/installed-test
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# What only this repository runs: make tool NAME=house OPTIONS="..."; without a name, the list of tools.
tool: $(VENV)/installed-tools
	PYTHONHASHSEED=0 $(BIN)/python -m schedproof.tools$(if $(NAME),.$(NAME)) $(OPTIONS)

# What an upload to an index needs, tried in a fresh environment.
dist: $(VENV)/installed-tools
	rm -rf dist build
	$(BIN)/python -m build --outdir dist .
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python -m schedproof.tools.wheel dist

# The versions that the container is built with, and the releases that can be judged, with their hashes.
lock: $(VENV)/installed-tools
	$(BIN)/pip-compile --quiet --generate-hashes --strip-extras --no-emit-index-url --no-emit-find-links \
		--no-header -o requirements.lock pyproject.toml
	$(BIN)/python -m schedproof.tools.release_hashes

$(VENV)/installed: pyproject.toml
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	touch $@
$(VENV)/installed-%: $(VENV)/installed
	$(PIP) --editable '.[$*]'
	touch $@

clean:
	rm -rf $(VENV) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
