# `make demo` and `make test` do all the set-up on a fresh machine; nothing else is needed first.
PYTHON ?= python3
BIN := .venv/bin
SOURCES := src tests benchmarks

.PHONY: demo test check fuzz bench clean

demo: .venv/.core
	$(BIN)/cfnade data get ml-1m
	$(BIN)/cfnade data info ml-1m

test: check
	$(BIN)/pytest

# Format, lint, types: what a change must pass before its tests are worth running.
check: .venv/.dev
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy

# Thousands of broken files instead of the 200 of each format that `make test` tries.
fuzz: .venv/.dev
	CFNADE_FUZZ=5000 $(BIN)/pytest tests/data/test_fuzz.py --timeout=3600

bench: .venv/.dev
	$(BIN)/python benchmarks/load.py

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis

.venv/.made:
	$(PYTHON) -m venv .venv
	touch $@

.venv/.core: .venv/.made pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

.venv/.dev: .venv/.core
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@
