# Every target sets itself up: a missing .venv is made, pinned dependencies are installed once.
PYTHON ?= python3
BIN := .venv/bin
# One torch thread a process: two threads beside another job run several times slower than one.
export OMP_NUM_THREADS ?= 1
# A package whose build needs torch must not pull a second one; old and new pip read different names.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_BUILD_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: demo test test-slow test-hf nightly lint format bench bench-check docs results wheel dist test-wheel clean

demo: .venv/.user
	$(BIN)/plait demo

test: .venv/.dev
	$(BIN)/python -m pytest -q -n 2 --dist loadfile

test-slow: .venv/.dev
	$(BIN)/python -m pytest -q -m slow --timeout 1800

# Bounded caches with the oldest and the newest transformers they work with, each in a folder beside the pinned one.
TRANSFORMERS := 5.17.0 5.23.0
test-hf: .venv/.dev
	for version in $(TRANSFORMERS); do \
	  folder=build/transformers-$$version; \
	  test -e $$folder/.done || { env -u PIP_CONSTRAINT $(BIN)/pip install -q --upgrade --target $$folder \
	    transformers==$$version && touch $$folder/.done; } || exit 1; \
	  PYTHONPATH=$$folder $(BIN)/python -m pytest -q tests/hf || exit 1; \
	done

# What the tests of a change have no time for: two hours on two cores. SEED=N repeats a night, SCALE=0.1 shortens it.
nightly: .venv/.dev
	SEED=$(SEED) SCALE=$(SCALE) $(BIN)/python -m tests.nightly

lint: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

format: .venv/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: .venv/.dev
	$(BIN)/plait bench layers --quick

# Is a layer slower by more than a tenth, in ratio to torch.nn.LSTM, than at BASE? Both are measured here and now.
BASE ?= origin/main
bench-check: .venv/.dev
	rm -rf build/base && mkdir -p build/base
	git archive $(BASE) src | tar -x -C build/base
	PYTHONPATH=build/base/src $(BIN)/python -m plait bench layers --only training --device cpu --threads 1 \
	  --layers relrnn,rellstm,relgru --backends cpu --shapes 120x10,120x100 --commit $(BASE) --out build/base.json
	PYTHONPATH=src $(BIN)/python -m plait bench check build/base.json --tolerance 0.1

# build/site/index.html; a warning is an error.
docs: .venv/.dev
	$(BIN)/python docs/make_site.py

# Tables of the results pages and whole reports, from the archives under results/; a test fails if one differs.
results: .venv/.dev
	$(BIN)/python docs/make_results.py

# dist/: the source distribution and the wheels of the last commit; `make dist` those of its tag, or of TAG=v1.2.3.
wheel: .venv/.dev
	$(BIN)/python release/dist.py --untagged

dist: .venv/.dev
	$(BIN)/python release/dist.py $(if $(TAG),--tag $(TAG))

# What `make wheel` or `make dist` left in dist/, installed in new environments.
test-wheel: .venv/.dev
	PLAIT_DIST=dist $(BIN)/python -m pytest -q -m slow tests/test_packaging.py

clean:
	rm -rf .venv build dist demo .mypy_cache .ruff_cache .pytest_cache

# The pip that came with Python may be years old and take twice as long to find what is pinned; it will do where
# there is no newer one.
.venv/bin/python:
	$(PYTHON) -m venv .venv
	-$(BIN)/pip install -q --upgrade pip

# torch first and alone, so that no looser requirement can choose another build of it.
.venv/.torch: constraints.txt | .venv/bin/python
	$(BIN)/pip install -q torch numpy
	touch $@

.venv/.user: pyproject.toml .venv/.torch
	$(BIN)/pip install -q -e ".[lab]"
	touch $@

.venv/.dev: pyproject.toml .venv/.torch
	$(BIN)/pip install -q -e ".[dev]"
	touch $@ .venv/.user
