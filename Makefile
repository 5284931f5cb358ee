# Everything runs in .venv, an environment of this project's own.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# What is installed: CORE runs models, DEV adds tests and checks, DOCS the documentation site.
CORE   := $(VENV)/.installed
DEV    := $(VENV)/.installed-dev
DOCS   := $(VENV)/.installed-docs
# uv installs in a fraction of pip's time; it is used if it is on the path (`make UV= ...` prevents it).
UV     ?= $(shell command -v uv 2>/dev/null)
# Python keeps what it has compiled, also where the environment forbids it: tests start hundreds of processes.
export PYTHONDONTWRITEBYTECODE =

.PHONY: help demo test proofs coverage synthesis test-all test-lowest lock licences soak test-shared test-rknn test-aarch64 outside check bench docs notebooks pictures pages registers wheel wheel-prebuilt clean
help:
	@echo "make demo        classify held-back digits on the RTL, checked bit for bit"
	@echo "make test        the tests of ten minutes, with the same seeds in each run"
	@echo "make proofs      prove blocks of the RTL formally and write docs/results/proofs.md"
	@echo "make coverage    measure which lines and bits of the RTL run, write docs/results/rtl_coverage.md (hours, resumes)"
	@echo "make synthesis   synthesise the RTL and write docs/results/synthesis.md (hours, resumes; opensta, qflow-tech-osu018)"
	@echo "make test-all    everything: also long sweeps, all kinds of engines, proofs, new seeds (hours, resumes)"
	@echo "make test-lowest  make test with the lowest versions of all packages that pyproject.toml allows"
	@echo "make lock        write the versions that are installed here into .ci/constraints.txt, for .ci/run"
	@echo "make licences    name, version and licence of each installed package"
	@echo "make soak        10,000 jobs on each server and long-lived object; fails if something grows (half an hour)"
	@echo "make test-shared RKCOSIM_SHARED=DIR  tests on original models and plans, which are not part of this"
	@echo "make test-rknn   run all .rknn files of a folder (DIR=...) and check every node"
	@echo "make test-aarch64  librknnrt.so for 64-bit ARM, with a cross compiler"
	@echo "make outside DIR=FOLDER  suites of others, run from a folder of their repositories; docs/results/outside.md"
	@echo "make check       format, lint, types"
	@echo "make bench       array and engine benchmarks"
	@echo "make docs        the documentation site, build/site/index.html"
	@echo "make pictures    draw the pictures of the documentation again"
	@echo "make notebooks   run the notebooks of docs/notebooks and store their outputs"
	@echo "make pages       write the pages and tables that are made from the sources and from kept records"
	@echo "make registers   the page of all registers and fields, build/registers.md"
	@echo "make wheel       build the wheel into dist/"
	@echo "make wheel-prebuilt  build the optional wheel with prebuilt engines into dist/"

# Two installations into one environment must not run at the same time.
.NOTPARALLEL:

$(BIN)/python:
	@echo "[env] creating $(VENV)"
	@{ test -n "$(UV)" && "$(UV)" venv --quiet --seed --python "$(PYTHON)" $(VENV); } || $(PYTHON) -m venv $(VENV)

# $(call install,[EXTRA],WHAT). pip compiles each installed module to bytecode, which takes half of its time;
# without that, Python does it for those that are imported.
define install
	@echo "[env] installing $(2)"
	@{ test -n "$(UV)" && "$(UV)" pip install --quiet --python $(BIN)/python -e '.$(1)'; } \
		|| PIP_NO_COMPILE=1 $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.$(1)'
endef

$(CORE): pyproject.toml | $(BIN)/python
	$(call install,,what running a model needs)
	@touch $@

$(DEV): pyproject.toml | $(BIN)/python
	$(call install,[dev],what tests and checks need)
	@touch $(CORE) $@

$(DOCS): pyproject.toml | $(BIN)/python
	$(call install,[docs],what the documentation site needs)
	@touch $(CORE) $@

demo: $(CORE)
	@$(BIN)/rkcosim run examples/digits/digits_int8.onnx --input examples/digits/held_back.npz \
		--limit 60 --check --json build/demo.json

# Each process takes half of the tests, in order, and helps the other one at the end.
SPREAD := -n 2 --max-worker-restart=0 --dist worksteal

test: $(DEV)
	$(BIN)/python -m pytest -q -m "not heavy and not shared" $(SPREAD)

proofs: $(DEV)
	$(BIN)/python -m tools.proofs --page docs/results/proofs.md

coverage: $(DEV)
	$(BIN)/python -m tools.coverage --page docs/results/rtl_coverage.md

synthesis: $(DEV)
	$(BIN)/python -m tools.synthesis --page docs/results/synthesis.md

test-all: $(DEV)
	RKCOSIM_TESTS=all RKCOSIM_SEED=$${RKCOSIM_SEED:-fresh} \
		nice $(BIN)/python -m pytest -q -m "not shared" $(SPREAD) --resume

# Nothing but Python reads pyproject.toml here: the packages are installed afterwards.
test-lowest:
	rm -rf build/lowest
	$(PYTHON) -m venv build/lowest
	$(PYTHON) -m tools.dependencies lowest build/lowest/constraints.txt
	build/lowest/bin/python -m pip install --quiet --disable-pip-version-check \
		-c build/lowest/constraints.txt -e '.[dev]'
	nice build/lowest/bin/python -m pytest -q -m "not heavy and not shared" $(SPREAD)

lock: $(DEV) $(DOCS)
	$(BIN)/python -m tools.dependencies lock .ci/constraints.txt

licences: $(DEV)
	@$(BIN)/python -m tools.dependencies licences

soak: $(DEV)
	nice $(BIN)/python -m tests.soak

test-rknn: $(CORE)
	$(BIN)/rkcosim rknn test $(DIR) --csv build/rknn.csv

test-shared: $(DEV)
	@test -n "$(RKCOSIM_SHARED)" || { echo "set RKCOSIM_SHARED to the folder with models/ and vendor_plans/"; exit 2; }
	RKCOSIM_SHARED="$(RKCOSIM_SHARED)" $(BIN)/python -m pytest -q -m shared

test-aarch64: $(DEV)
	$(BIN)/python -m tools.aarch64

outside: $(DEV)
	@test -n "$(DIR)" || { echo "set DIR to the folder with the repositories (docs/results/outside.md)"; exit 2; }
	nice $(BIN)/python -m tools.outside "$(DIR)" $(OPTIONS)

check: $(DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/ruff check --preview --select PLW1514 .
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/typing/mypy.ini tests/typing/strict_program.py

bench: $(CORE)
	$(BIN)/rkcosim bench --layers --json build/layers.json
	$(BIN)/rkcosim bench --json build/bench.json

# The variable hides a notice about MkDocs 2, which the bound in pyproject.toml excludes.
docs: $(DOCS)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "build/site/index.html"

pictures: $(DEV)
	$(BIN)/python -m tools.pictures

notebooks: $(DEV)
	$(BIN)/python -m tools.notebooks

registers: $(CORE)
	@mkdir -p build
	$(BIN)/python -m tools.pages registers

pages: $(DEV)
	$(BIN)/python -m tools.pages

wheel: $(DEV)
	$(BIN)/python -m build --wheel

wheel-prebuilt: $(DEV)
	$(BIN)/python -m tools.engine_wheel dist

clean:
	rm -rf build dist *.egg-info
