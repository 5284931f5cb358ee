# Everything runs in .venv, an environment of this project's own.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
DOCS   := $(VENV)/.installed-docs

.PHONY: help demo test proofs coverage synthesis test-heavy test-shared test-rknn test-aarch64 check bench docs pictures registers wheel wheel-prebuilt clean
help:
	@echo "make demo        classify held-back digits on the RTL, checked bit for bit"
	@echo "make test        all tests but the long sweeps"
	@echo "make proofs      prove blocks of the RTL formally and write docs/proofs.md"
	@echo "make coverage    measure which lines and bits of the RTL run, write docs/rtl_coverage.md (hours, resumes)"
	@echo "make synthesis   synthesise the RTL and write docs/synthesis.md (hours, resumes; opensta, qflow-tech-osu018)"
	@echo "make test-heavy  the long sweeps (random tasks, many seeds)"
	@echo "make test-shared RKCOSIM_SHARED=DIR  tests on original models and plans, which are not part of this"
	@echo "make test-rknn   run all .rknn files of a folder (DIR=...) and check every node"
	@echo "make test-aarch64  librknnrt.so for 64-bit ARM, with a cross compiler"
	@echo "make check       format, lint, types"
	@echo "make bench       array and engine benchmarks"
	@echo "make docs        the documentation site, build/site/index.html"
	@echo "make pictures    draw the pictures of the documentation again"
	@echo "make registers   the page of all registers and fields, build/registers.md"
	@echo "make wheel       build the wheel into dist/"
	@echo "make wheel-prebuilt  build the optional wheel with prebuilt engines into dist/"

$(STAMP): pyproject.toml
	@echo "[env] creating $(VENV) and installing (about a minute the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

$(DOCS): $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@

demo: $(STAMP)
	@$(BIN)/rkcosim run examples/digits/digits_int8.onnx --input examples/digits/held_back.npz \
		--limit 60 --check --json build/demo.json

test: $(STAMP)
	$(BIN)/python -m pytest -q -m "not heavy and not shared" -n 2 --max-worker-restart=0 --dist loadfile --no-loadscope-reorder

proofs: $(STAMP)
	$(BIN)/python -m tools.proofs --page docs/proofs.md

coverage: $(STAMP)
	$(BIN)/python -m tools.coverage --page docs/rtl_coverage.md

synthesis: $(STAMP)
	$(BIN)/python -m tools.synthesis --page docs/synthesis.md

test-heavy: $(STAMP)
	$(BIN)/python -m pytest -q -m heavy

test-rknn: $(STAMP)
	$(BIN)/rkcosim rknn test $(DIR) --csv build/rknn.csv

test-shared: $(STAMP)
	@test -n "$(RKCOSIM_SHARED)" || { echo "set RKCOSIM_SHARED to the folder with models/ and vendor_plans/"; exit 2; }
	RKCOSIM_SHARED="$(RKCOSIM_SHARED)" $(BIN)/python -m pytest -q -m shared

test-aarch64: $(STAMP)
	$(BIN)/python -m tools.aarch64

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/rkcosim bench --layers --json build/layers.json
	$(BIN)/rkcosim bench --json build/bench.json

# The variable hides a notice about MkDocs 2, which the bound in pyproject.toml excludes.
docs: $(DOCS)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "build/site/index.html"

pictures: $(STAMP)
	$(BIN)/python -m tools.pictures

registers: $(STAMP)
	@mkdir -p build
	$(BIN)/python -m rkcosim.spec.regs.docs build/registers.md

wheel: $(STAMP)
	$(BIN)/python -m build --wheel

wheel-prebuilt: $(STAMP)
	$(BIN)/python -m tools.engine_wheel dist

clean:
	rm -rf build dist *.egg-info
