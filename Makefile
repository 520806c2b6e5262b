# Every target stands alone: in a fresh clone it makes .venv with pip and continues.
PYTHON ?= python3
BIN := .venv/bin
JOBS ?= 2

SIZE ?= full

.PHONY: demo house test quick coverage check format lowest docs dist bench soak referee clean
.DELETE_ON_ERROR:

demo: .venv/plots.done  ## a photograph, topics and a tune: demo.png, demo-topics.png, demo-sound.png
	$(BIN)/onmf demo --out demo.png

test: .venv/dev.done  ## all tests
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal

quick: .venv/dev.done  ## one case of every quick test, in about a minute: before each commit
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal --quick

coverage: .venv/dev.done  ## the same with the coverage of src/, 95 % at least; the kernels once more as plain Python, for theirs
	$(BIN)/python -m pytest -q -n $(JOBS) --dist worksteal --cov --cov-report= --cov-fail-under=0
	NUMBA_DISABLE_JIT=1 $(BIN)/python -m pytest -q --cov --cov-append --cov-report=term tests/test_kernels.py tests/test_l1.py

check: .venv/dev.done  ## ruff (lint and format), mypy --strict, import-linter, the prose
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q tests/test_prose.py

format: .venv/dev.done  ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: .venv/dev.done  ## the documentation: site/index.html, to be read without a network
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "Wrote site/index.html."

dist: .venv/dev.done  ## a source distribution and a wheel in dist/, each installed in a fresh environment and tested there
	rm -rf dist build/dist
	$(BIN)/python -m build --outdir dist .
	$(PYTHON) tests/distribution.py dist build/dist

lowest: .venv-lowest/done  ## the lowest versions that pyproject.toml allows: import, fit, command line
	.venv-lowest/bin/python tests/lowest_versions.py

bench: .venv-bench/done  ## benchmarks against other libraries: build/bench, docs/evidence/benchmarks.md (SIZE=small: minutes, no docs)
	.venv-bench/bin/python -m benchmarks.peers.run --size $(SIZE) --out build/bench/$(SIZE)
	.venv-bench/bin/python -m benchmarks.peers.report build/bench/$(SIZE) $(if $(filter full,$(SIZE)),--docs docs)

house: .venv/dev.done  ## lines, files, and how far a sample walks, beside their limits
	$(BIN)/python -m benchmarks.house

MINUTES ?= 5
soak: .venv/dev.done  ## bad luck in minutes: random batches, errors, kills and resumptions, damaged files (MINUTES=60: an hour)
	$(BIN)/python -m benchmarks.soak --minutes $(MINUTES)
	$(BIN)/python -m benchmarks.fuzz_models --files 20000
	$(BIN)/python -m benchmarks.fuzz_readers --files 500

referee: .venv/dev.done  ## nothing learnt differs from the record of db00f0c, and nothing is slower than it beyond noise
	$(BIN)/python -m benchmarks.referee compare
	$(BIN)/python -m benchmarks.referee times

.venv/plots.done: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[plots]'
	touch $@

.venv/dev.done: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	touch $@ .venv/plots.done

.venv-lowest/done: pyproject.toml tests/lowest_versions.py
	$(PYTHON) -m venv .venv-lowest
	$(PYTHON) tests/lowest_versions.py --list > .venv-lowest/requirements.txt
	.venv-lowest/bin/python -m pip install -q --disable-pip-version-check -r .venv-lowest/requirements.txt
	.venv-lowest/bin/python -m pip install -q --disable-pip-version-check --no-deps -e .
	touch $@

.venv-bench/done: pyproject.toml
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install -q --disable-pip-version-check -e '.[bench]'
	touch $@

clean:  ## remove what the other targets made
	rm -rf .venv .venv-lowest .venv-bench build .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .coverage* demo.png demo-topics.png demo-sound.png
