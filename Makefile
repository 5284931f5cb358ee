# Everything runs in .venv, an environment of this project's own.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed

.PHONY: help demo test test-heavy check bench registers wheel clean
help:
	@echo "make demo        classify held-back digits on the RTL, checked bit for bit"
	@echo "make test        all tests but the long sweeps"
	@echo "make test-heavy  the long sweeps (random tasks, many seeds)"
	@echo "make check       format, lint, types"
	@echo "make bench       array and engine benchmarks"
	@echo "make registers   the page of all registers and fields, build/registers.md"
	@echo "make wheel       build the wheel into dist/"

$(STAMP): pyproject.toml
	@echo "[env] creating $(VENV) and installing (about a minute the first time)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@

demo: $(STAMP)
	@$(BIN)/rkcosim run examples/digits/digits_int8.onnx --input examples/digits/held_back.npz \
		--limit 60 --check --json build/demo.json

test: $(STAMP)
	$(BIN)/python -m pytest -q -m "not heavy" -n 2 --dist loadfile --no-loadscope-reorder

test-heavy: $(STAMP)
	$(BIN)/python -m pytest -q -m heavy

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(STAMP)
	$(BIN)/rkcosim bench --layers --json build/layers.json
	$(BIN)/rkcosim bench --json build/bench.json

registers: $(STAMP)
	@mkdir -p build
	$(BIN)/python -m rtl.regs.docs build/registers.md

wheel: $(STAMP)
	$(BIN)/python -m build --wheel

clean:
	rm -rf build dist *.egg-info
