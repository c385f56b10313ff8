# `make demo` and `make test` do all the set-up on a fresh machine; nothing else is needed first.
PYTHON ?= python3
BIN := .venv/bin
SOURCES := src tests benchmarks examples experiments

.PHONY: demo serve test test-fast test-avx2 test-arm64 test-engines test-pandas3 check docs mutants fuzz release bench clean

# Train on MovieLens 1M, compare with published results, recommend to a new user.
demo: .venv/.core
	$(BIN)/python examples/demo.py

# The demo's model on a page of its own, at http://127.0.0.1:8000
serve: .venv/.serve demo
	$(BIN)/cfnade serve demo/model

# Kernels are compiled first, once, so that the two workers do not compile them twice. Files are taken
# in their order: by size, those with few but long tests would come last and keep one worker waiting.
# Python keeps what it compiled, too, whatever the environment says: it is read by both workers and by
# all the processes that tests start.
test: export PYTHONDONTWRITEBYTECODE =
test: check
	$(BIN)/cfnade doctor
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder --durations=25 --durations-min=5

# Without tests that start processes, servers or browsers, or read real data.
test-fast: .venv/.dev
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder \
	    -m "not integration and not browser and not realdata"

# The same as on a processor without AVX-512, where sums are taken in another order: all tests, or
# those of TESTS. Kernels are compiled into a cache of their own.
TESTS ?=
test-avx2: export PYTHONDONTWRITEBYTECODE =
test-avx2: .venv/.dev
	$(BIN)/python tests/support/without_avx512.py $(BIN)/cfnade doctor
	$(BIN)/python tests/support/without_avx512.py $(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder $(TESTS)

# Kernels, models, components, inference and training on an emulated ARM processor: hours; the first
# run downloads Debian's Python and wheels for aarch64 into .venv-arm64 (tests/support/on_arm64.py).
ARM64_TESTS ?= tests/kernels tests/models tests/components tests/inference tests/training
test-arm64: .venv/.dev
	$(BIN)/python tests/support/on_arm64.py -m pytest -p no:cacheprovider --timeout=3600 -m "not subprocess" $(ARM64_TESTS)

# Ray and Spark with two workers each; Spark needs Java.
ENGINE_TESTS ?= tests/distributed/test_backends.py tests/distributed/test_build_shards_spark.py \
    tests/distributed/test_batch_engines.py
test-engines: .venv/.dev
	$(BIN)/pytest --external $(ENGINE_TESTS)

# Tests of data frames with pandas 3: Spark and LensKit need pandas 2, which .venv has.
test-pandas3: export PYTHONPATH = .venv/pandas3
test-pandas3: .venv/.pandas3
	$(BIN)/python -c "import pandas; assert pandas.__version__ >= '3', pandas.__version__"
	$(BIN)/pytest tests/data/readers/test_frames.py tests/data/readers/test_tables.py \
	    tests/data/test_interactions.py tests/test_frames.py tests/integrations/test_sklearn.py

# Format, lint, spelling, types: what a change must pass before its tests are worth running.
check: .venv/.dev
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/codespell src docs experiments benchmarks *.md
	$(BIN)/mypy

# The documentation as a site, in site/; nothing is fetched.
docs: .venv/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

# Deliberate faults, each of which the tests must notice; hours on two cores. Those that were noticed
# are not tried again until the fault, its file or its tests change.
mutants: .venv/.dev
	$(BIN)/python tests/mutants/run.py --dead .venv/.dead

# Thousands of broken files instead of the 60 of each format that `make test` tries.
fuzz: .venv/.dev
	CFNADE_FUZZ=5000 $(BIN)/pytest tests/data/readers/test_fuzz.py --timeout=3600

# Build the source archive and the wheel into dist/ and check both: their metadata, the wheel in a fresh
# environment, and the archive, which must build the same wheel.
release: .venv/.dev
	rm -rf dist
	$(BIN)/hatchling build -d dist
	$(BIN)/twine check --strict dist/*
	$(BIN)/pytest --slow tests/project/test_packaging.py

# On a quiet machine: minutes. DATA is a folder with ml-1m.zip (and netflix/ for its figures).
DATA ?= $(CFNADE_DATA)
bench: .venv/.dev
	$(BIN)/python benchmarks/load.py $(DATA)/ml-1m.zip
	$(BIN)/python benchmarks/engine.py epoch --ml-1m $(DATA)/ml-1m.zip
	$(BIN)/python benchmarks/engine.py steps
	$(BIN)/python benchmarks/compilation.py
	$(BIN)/python benchmarks/growth.py
	$(BIN)/python benchmarks/prediction.py ratings
	$(BIN)/python benchmarks/server.py

clean:
	rm -rf .venv .venv-arm64 .mypy_cache .pytest_cache .ruff_cache .hypothesis

.venv/.made:
	$(PYTHON) -m venv .venv
	touch $@

.venv/.core: .venv/.made pyproject.toml constraints.txt
	$(BIN)/pip install --quiet --constraint constraints.txt --editable .
	touch $@

.venv/.serve: .venv/.core
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[serve]'
	touch $@

.venv/.docs: .venv/.core
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

.venv/.dev: .venv/.core
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

.venv/.pandas3: .venv/.dev
	$(BIN)/pip install --quiet --no-deps --target .venv/pandas3 'pandas==3.1.1'
	touch $@
