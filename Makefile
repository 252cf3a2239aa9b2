# Everything here needs only Python 3.11 or newer, pip and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

TARGET ?= model
RULES ?=
REVISION ?=
DEVIATIONS ?=
PROFILE ?= ci
JOBS ?= 2
# Tests at once. Many of them wait for a process: one more than two cores can run.
TESTERS ?= 3
FILES ?=
OPTIONS ?=

.PHONY: gate test test-all house study lint bench selfcheck explore explorers mutation rule-coverage time-to-find hidden-fields formulas proofs documents track-record exact-admission encodings contracts docs \
	seeds campaign-test campaign-hosts campaign-bench campaign-scale ledger-bench clean

gate: $(VENV)/installed
	$(BIN)/schedproof gate "$(TARGET)" --profile $(PROFILE) --jobs $(JOBS) \
		$(if $(RULES),--rule $(RULES)) $(if $(REVISION),--revision $(REVISION)) \
		$(if $(DEVIATIONS),--deviations $(DEVIATIONS))

# Lint, types and the fast tier.
test: $(VENV)/installed-test lint
	$(BIN)/pytest -n $(TESTERS) --dist worksteal -m "not slow"

# Everything.
test-all: $(VENV)/installed-test lint
	$(BIN)/pytest -n $(TESTERS) --dist worksteal

# What the suite says of itself and of a release, in short: the rest of `.ci/run`.
.PHONY: checks check-model check-journeys check-release check-contracts check-selfcheck check-bench
checks: check-selfcheck check-release check-contracts check-bench check-model
check-model: $(VENV)/installed
	$(MAKE) gate PROFILE=quick
check-journeys: $(VENV)/installed-test
	PYTHONPATH=. $(BIN)/python tests/journey.py docs/first-hour/plugin.md
check-release: $(VENV)/installed check-journeys
	$(MAKE) gate TARGET=sendnn-inference==2.1.2 RULES=SPY-R07,SPY-R09,SPY-R14,SPY-R30,ALL-R01 \
		PROFILE=quick JOBS=1 DEVIATIONS=tests/corpus/known-2.1.2.toml
	$(MAKE) gate TARGET=sendnn-inference==2.1.2:examples/exact_admission.py:ExactAdmission \
		RULES=SPY-R07,SPY-R47,ALL-R05,ALL-R06,ALL-R01 \
		PROFILE=quick JOBS=1 DEVIATIONS=tests/corpus/known-2.1.2.toml
check-contracts: $(VENV)/installed-test
	$(MAKE) contracts
check-selfcheck: $(VENV)/installed
	$(MAKE) selfcheck OPTIONS="--quick --only witnesses --only mutants"
check-bench: $(VENV)/installed-test
	$(MAKE) bench OPTIONS=--quick

# Figures of the layout: rooms, circles, imports upward, the longest file.
house: $(VENV)/bin/python
	$(BIN)/python tests/house.py

# mypy finds the package by its name, whatever the checkout's folder is called.
lint: $(VENV)/installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	mkdir -p $(VENV)/types && ln -sfn "$(CURDIR)" $(VENV)/types/schedproof
	cd $(VENV)/types && ../bin/mypy --config-file schedproof/pyproject.toml -p schedproof

# Ten minutes: gates with the same seed by wheel and checkout, processes, hash seeds, and each of PYTHONS.
PYTHONS ?= $(PYTHON)
.PHONY: same-verdict
same-verdict: $(VENV)/installed
	$(BIN)/python tests/bench/same_verdict.py $(PYTHONS)

# The whole table of speed, half an hour of one core. OPTIONS=--quick: a minute.
bench: $(VENV)/installed-test
	$(BIN)/python -m schedproof.benchmarks $(OPTIONS)

# Studies of workloads on the reference models. STUDY=frontier, recompute or "compare WORKLOAD".
STUDY ?= frontier
study: $(VENV)/installed-test
	$(BIN)/python -m schedproof.examples.studies $(STUDY) $(OPTIONS)

# Some minutes of two cores: every witness, mutant and known bug, and whether the engines agree.
# OPTIONS=--quick: one engine that finds it is enough, the seed corpus among them. Four minutes of two slow cores.
selfcheck: $(VENV)/installed
	$(BIN)/python -m schedproof.tests.mutants.runner --jobs $(JOBS) $(OPTIONS)

# Every behaviour of the small scopes of REVISION (default: sound), some minutes of two cores.
explore: $(VENV)/installed
	$(BIN)/schedproof explore --jobs $(JOBS) $(if $(REVISION),--revision $(REVISION)) $(OPTIONS)

# The explorer beside Spin (Debian: spin, gcc), about a quarter of an hour. OPTIONS=--quick: a minute.
explorers: $(VENV)/installed-test
	$(BIN)/python tests/bench/explorers.py $(OPTIONS)

# Nine minutes of two cores. FILES="forward.py tkv.py": the mutants of these files of model only.
mutation: $(VENV)/installed-mutation
	PYTHONHASHSEED=0 $(BIN)/python -m schedproof.tools.mutation.check --jobs $(JOBS) $(FILES)

# Every changed decision of every model, and whether a documented rule finds it. SAMPLE=36: so many of each
# system, some minutes of two cores. SYSTEM=vllm: one system.
SAMPLE ?= 0
SYSTEM ?=
rule-coverage: $(VENV)/installed-mutation
	PYTHONHASHSEED=0 $(BIN)/python -m schedproof.tools.mutation.rule_coverage --jobs $(JOBS) --sample $(SAMPLE) $(SYSTEM)

# How long until a gate finds a changed decision, and plain Hypothesis? SAMPLE=40: so many of each list,
# an hour of one core.
time-to-find: $(VENV)/installed-mutation
	PYTHONHASHSEED=0 $(BIN)/python -m schedproof.tools.mutation.time_to_find --jobs $(JOBS) --sample $(SAMPLE) $(OPTIONS) $(SYSTEM)

# Does a gate accuse correct schedulers that hide fields at random? 2,000 gates, an hour of two cores.
# OPTIONS="--gates 100": some minutes.
hidden-fields: $(VENV)/installed-test
	$(BIN)/python tests/bench/hidden_fields.py --jobs $(JOBS) $(OPTIONS)

# Two minutes of one core: the runs with which a gate begins (gate/corpus/builtin/*/seeds), made anew.
seeds: $(VENV)/installed-test
	$(BIN)/python tests/corpus/seeds.py

# Half a minute: CrossHair on the contracts of the model's arithmetic.
contracts: $(VENV)/installed-test
	$(BIN)/schedproof check contracts

# About five minutes of one core: what each encoding of the volumetric check costs Z3.
encodings: $(VENV)/installed-test
	$(BIN)/python -m schedproof.benchmarks --only encodings $(OPTIONS)

# Three minutes of one core: what each volumetric check costs. OPTIONS="--quick --json FILE".
formulas: $(VENV)/installed
	$(BIN)/python tests/bench/formulas.py $(OPTIONS)

# A minute and a half of one core: what is proven of the volumetric check, into docs/volumetric.md.
proofs: $(VENV)/installed
	$(BIN)/python tests/bench/proofs.py --write

# Eight minutes of two cores: the gates of RELEASES, into docs/documents.md; a checkout is
# `RELEASES="nano-vllm:DIR llmservingsim:DIR"`. VERDICTS=DIR keeps them, beside those of earlier calls.
RELEASES ?= sendnn-inference==2.1.2 sendnn-inference==2.6.3 vllm==0.19.1 vllm==0.28.0 vllm==0.33.0
VERDICTS ?= $(VENV)/verdicts
documents: $(VENV)/installed
	mkdir -p $(VERDICTS)
	for one in $(RELEASES); do $(BIN)/schedproof gate $$one --jobs $(JOBS) --out $(VERDICTS)/runs \
	    --json $(VERDICTS)/$$(basename $$one).json || test $$? -eq 1; done
	$(BIN)/python tests/bench/documents.py $(VERDICTS)

# An hour of two cores, and 5 GB: every release of MATRIX in every configuration, into docs/track-record.md.
# It goes on where it was stopped; `make clean` forgets it.
MATRIX ?= vllm sendnn-inference vllm-spyre
track-record: $(VENV)/installed
	$(BIN)/schedproof matrix $(MATRIX) --jobs $(JOBS) --out $(VENV)/matrix || test $$? -eq 3
	$(BIN)/python tests/bench/track_record.py $(VENV)/matrix

# Ten minutes of one core: how good an admission rule can be, into docs/exact-admission.md.
# OPTIONS="--only hindsight": one table.
exact-admission: $(VENV)/installed
	$(BIN)/python tests/bench/exact_admission.py --write $(OPTIONS)

# The documentation as a site: site/index.html opens without a server.
docs: $(VENV)/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

# Some minutes: campaigns killed at random instants, on processes and on Dask, end up the same.
campaign-test: $(VENV)/installed-test
	$(BIN)/python tests/bench/campaign_kills.py $(OPTIONS)
	$(BIN)/python tests/bench/campaign_kills.py --dask $(OPTIONS)

# A quarter of an hour, as root: a campaign on eight hosts, which are network namespaces of this machine; workers are
# killed and cables pulled. OPTIONS="--hosts 3 --items 40 --every 5": some minutes.
campaign-hosts: $(VENV)/installed-test
	$(BIN)/python tests/bench/hosts.py $(OPTIONS)

# Some minutes of two idle cores: what a second worker gains. OPTIONS="--json FILE".
campaign-bench: $(VENV)/installed-test
	$(BIN)/python tests/bench/campaign.py $(OPTIONS)

# Some minutes: thousands of simulated workers, the real plan and ledger. OPTIONS="--json FILE".
campaign-scale: $(VENV)/installed-test
	$(BIN)/python tests/bench/scale.py --dask $(OPTIONS)

ledger-bench: $(VENV)/installed-test
	$(BIN)/python tests/bench/large_ledger.py $(OPTIONS)

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/installed: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	touch $@

$(VENV)/installed-test: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test]'
	touch $@

$(VENV)/installed-docs: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	touch $@

$(VENV)/installed-mutation: $(VENV)/installed-test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[test,mutation]'
	touch $@

# Two hours of two cores, into docs/reliability.md: spoiled files through every loader and through the
# commands, targets that misbehave, kills, and spoiled requests to the server.
INPUTS ?= 1000000
SEED ?= 0
HOSTILE = cd $(CURDIR) && PYTHONPATH=. $(BIN)/python -m tests.hostile
.PHONY: hostile hostile-inputs hostile-commands hostile-targets hostile-kills hostile-silence hostile-server \
	hostile-surroundings hostile-pages hostile-installs
hostile: hostile-inputs hostile-commands hostile-targets hostile-kills hostile-surroundings \
	hostile-pages hostile-server hostile-silence hostile-installs
hostile-inputs: $(VENV)/installed-test
	$(HOSTILE).inputs --inputs $(INPUTS) --seed $(SEED) --jobs $(JOBS) --write
hostile-commands: $(VENV)/installed-test
	$(HOSTILE).commands --inputs 2000 --seed $(SEED) --jobs $(JOBS) --write
hostile-targets: $(VENV)/installed-test
	$(HOSTILE).targets --runs 450 --seed $(SEED) --jobs $(JOBS) --write
hostile-kills: $(VENV)/installed-test
	$(HOSTILE).kills --kills 600 --seed $(SEED) --jobs $(JOBS) --write
hostile-silence: $(VENV)/installed-test
	$(HOSTILE).silence --write
hostile-surroundings: $(VENV)/installed-test
	$(HOSTILE).surroundings --seed $(SEED) --jobs $(JOBS) --write
hostile-installs: $(VENV)/installed-test
	$(HOSTILE).installs --rounds 300 --seed $(SEED) --jobs $(JOBS) --write
hostile-pages: $(VENV)/installed-test
	$(HOSTILE).pages --seeds 3000 --browser 50 --seed $(SEED) --write
hostile-server: $(VENV)/installed-test
	$(HOSTILE).server --requests 20000 --seed $(SEED) --write

# Two minutes: what an upload to an index needs, and whether it works in a fresh environment.
.PHONY: dist lock
dist: $(VENV)/bin/python
	rm -rf dist build $(VENV)/dist
	$(PYTHON) -m venv $(VENV)/dist
	$(VENV)/dist/bin/python -m pip install --quiet --disable-pip-version-check build twine
	$(VENV)/dist/bin/python -m build --outdir dist .
	$(VENV)/dist/bin/python -m twine check --strict dist/*
	$(PYTHON) tests/bench/wheel.py dist

# A minute: the versions that the container is built with, with their hashes; and those of the releases.
lock: $(VENV)/bin/python
	rm -rf $(VENV)/lock
	$(PYTHON) -m venv $(VENV)/lock
	$(VENV)/lock/bin/python -m pip install --quiet --disable-pip-version-check pip-tools
	cd $(CURDIR) && $(VENV)/lock/bin/pip-compile --quiet --generate-hashes --strip-extras --no-emit-index-url \
		--no-emit-find-links --no-header --output-file requirements.lock pyproject.toml
	cd $(CURDIR) && $(BIN)/python tests/bench/release_hashes.py

clean:
	rm -rf $(VENV) build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
