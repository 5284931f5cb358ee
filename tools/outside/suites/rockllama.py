"""Whole llama.cpp with the back end ggml-rknpu2, whose products are of fp16, int8 and int4."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.outside.gguf import write_model
from tools.outside.llama import compared, exact_library, generated
from tools.outside.programs import note
from tools.outside.suite import FAIL, PASS, Checkout, Outcome, Suite

PROGRAM = "build/bin/llama-simple"
PROMPT = "Hello,_tiny_world"
COUNT = 16
"""Tokens that a run generates."""

WIDTH, INNER = 256, 512


@dataclass(frozen=True)
class Case:
    """A way in which the back end computes products.

    Members
    -------
    pipelines : names of the back end's (RKNPU_HYBRID): the first layer takes the first one, and so on.
    kinds : the products of the report.
    exact : whether the tokens are compared with those of exact products.
    plain : whether they are compared with those of the processor alone.
    """

    pipelines: str
    kinds: tuple[str, ...]
    exact: bool = True
    plain: bool = True


FP16, INT8, INT4 = "float16 x float16 -> float32", "int8 x int8 -> int32", "int4 x int4 -> int16"
CASES = {
    "fp16": Case("W16A16_STANDARD", (FP16,)),
    "fp16, Hadamard": Case("W16A16_HADAMARD", (FP16,), exact=False),
    "int8": Case("W8A8_STANDARD", (INT8,)),
    "int4": Case("W4A4_STANDARD", (INT4,), plain=False),
    "fp16, int8, int4 in turn": Case(
        "W16A16_STANDARD,W8A8_STANDARD,W4A4_STANDARD", (FP16, INT4, INT8), plain=False
    ),
}
"""The signs of the Hadamard transformation depend on an address, so its tokens of int8 and int4 change."""


def _run(here: Checkout, engine: str, folder: Path) -> Mapping[str, Outcome]:
    here.needs(PROGRAM)
    library = exact_library(folder)
    model = folder / "model.gguf"
    write_model(model, seed=4, width=WIDTH, inner=INNER)
    program = str((here.folder / PROGRAM).resolve())
    command = [program, "-m", str(model), "-n", str(COUNT), "-ngl", "0", PROMPT]

    def tokens(pipelines: str, options: tuple[str, ...] = (), other: Path | None = None) -> bytes | Outcome:
        variables = {"RKNPU_HYBRID": pipelines}
        return generated(
            engine, folder, command, PROMPT, options=options, library=other, environment=variables
        )

    plain = tokens("none")  # no pipeline has this name, so the processor computes everything
    found: dict[str, Outcome] = {}
    for name, case in CASES.items():
        report = folder / "report.json"
        report.unlink(missing_ok=True)
        given = tokens(case.pipelines, ("--json", str(report)))
        if case.exact:
            exact = tokens(case.pipelines, other=library)
            found[f"{name}: tokens of exact products"] = compared(exact, given, COUNT)
        if case.plain:
            found[f"{name}: tokens of the processor"] = compared(plain, given, COUNT)
        rows = json.loads(report.read_text())["products"] if report.is_file() else []
        kinds = tuple(sorted({row["kind"] for row in rows}))
        right = kinds == case.kinds and {row["k"] for row in rows} == {WIDTH, INNER}
        found[f"{name}: report"] = Outcome(PASS if right else FAIL, "" if right else note(f"{kinds}"))
        print(f"  {name}", flush=True)
    return found


SUITE = Suite(
    name="rockllama",
    repository="fukumori/rockllama.cpp",
    tests="whole llama.cpp with the back end ggml-rknpu2 of invisiofficial/rk-llama.cpp: products of fp16, "
    "int8 and int4 on three cores, by slices of N, with weights in the native layout",
    how="The program `llama-simple`, built by CMake from the unchanged sources with LLAMA_RKNPU2, "
    "`librknnrt.so` of `rkcosim rknn --prefix` and its declarations in `ggml/src/ggml-rknpu2/libs` (on "
    "x86-64 with a stand-in for two functions of arm_neon.h), generates 16 tokens under `rkcosim rknn` from "
    "a model of two layers with random weights that the ledger writes. The tokens are those of the same "
    "program with exact products on the processor (`tools/outside/drivers/exact_matmul.c`) and, for fp16 and "
    "int8, those of llama.cpp on the processor; the report has a row for each product. With 4 bits for "
    "weights and activations the back end's own rounding changes the tokens of random weights, with exact "
    "products too.",
    board_source="no log of a board with such models is known; README.md of the back end has perplexities of "
    "large models.",
    run=_run,
)
