"""llama.cpp of marty1885, whose back end RKNPU2 computes products of matrices with `rknn_matmul_api.h`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.outside.gguf import write_model
from tools.outside.llama import compared, exact_library, generated
from tools.outside.programs import note
from tools.outside.suite import FAIL, PASS, Checkout, Outcome, Suite

PROGRAM = "build/bin/main"
COUNT = 16
"""Tokens that a run generates."""

LINES = rb"Created RKNPU2 matmul kernel: [^\n]*\n|RKNPU2 allocated [^\n]*\n"
"""What the back end prints between the tokens."""


@dataclass(frozen=True)
class Case:
    """A model of two layers and a prompt."""

    seed: int
    prompt: str
    inner: int = 256


CASES = {
    "256 x 256, model 4": Case(4, "Hello,_tiny_world"),
    "256 x 256, model 8": Case(8, "Hello,_tiny_world"),
    "256 x 512": Case(1, "Hello,_tiny_world", 512),
}


def _tokens(
    here: Checkout,
    engine: str,
    folder: Path,
    case: Case,
    layers: int,
    *,
    options: Sequence[str] = (),
    library: Path | None = None,
) -> bytes | Outcome:
    """Return what a run with some layers in the back end writes behind the prompt, or how it failed."""
    words = [str((here.folder / PROGRAM).resolve()), "-m", str(folder / "model.gguf"), "-p", case.prompt]
    words += ["-n", str(COUNT), "--temp", "0", "-c", "128", "-t", "1", "--seed", "1"]
    words += ["--ignore-eos", "--log-disable", "-ngl", str(layers)]
    text = generated(engine, folder, words, case.prompt, options=options, library=library)
    return text if isinstance(text, Outcome) else re.sub(LINES, b"", text)


def _run(here: Checkout, engine: str, folder: Path) -> Mapping[str, Outcome]:
    here.needs(PROGRAM)
    library = exact_library(folder)
    found: dict[str, Outcome] = {}
    for name, case in CASES.items():
        write_model(folder / "model.gguf", seed=case.seed, inner=case.inner)
        report = folder / "report.json"
        report.unlink(missing_ok=True)
        given = _tokens(here, engine, folder, case, 2, options=["--json", str(report)])
        exact = _tokens(here, engine, folder, case, 2, library=library)
        found[f"{name}: tokens of exact products"] = compared(exact, given, COUNT)
        plain = _tokens(here, engine, folder, case, 0)
        found[f"{name}: tokens without the back end"] = compared(plain, given, COUNT)
        rows = json.loads(report.read_text())["products"] if report.is_file() else []
        shapes = sorted({(row["k"], row["n"]) for row in rows})
        expected = sorted({(256, 256), (256, case.inner), (case.inner, 256)})
        right = shapes == expected and sum(row["runs"] for row in rows) % (2 * 7) == 0
        found[f"{name}: report"] = Outcome(PASS if right else FAIL, "" if right else note(f"{shapes}"))
    return found


SUITE = Suite(
    name="llama-rknpu2",
    repository="marty1885/llama.cpp",
    tests="the back end RKNPU2 of llama.cpp: int8 products with weights in the native layout, in memory from "
    "/dev/dma_heap (its fp16 products are not compiled, it has none of int4)",
    how="The program `main`, built from the unchanged sources with LLAMA_RKNPU2 against `rkcosim rknn "
    "--prefix` (`-D__fp16=_Float16` and an empty arm_neon.h on x86-64), generates 16 tokens under "
    "`rkcosim rknn` from models of random weights that the ledger writes, with two layers in the back end. "
    "The tokens are those of the same program with exact products on the processor "
    "(`tools/outside/drivers/exact_matmul.c`) and of llama.cpp without the back end (`-ngl 0`), and the "
    "report has a row for each product. The back end rounds activations to steps of 1.7 / 127: of eight "
    "seeds of a model two (4 and 8) have the same 16 tokens without it, and these are taken.",
    board_source="no log of a board with such models is known.",
    why={
        "256 x 512: tokens without the back end": "the back end orders a matrix of N x K as if it were K x N "
        "(ggml-rknpu2.c @cc8cb95c: ggml_rknpu2_transform_tensor passes ne1 and ne0 for k and n), so that "
        "only square matrices are right with any library: exact products give the same tokens as the NPU.",
    },
    run=_run,
)
