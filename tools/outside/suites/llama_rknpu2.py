"""llama.cpp of marty1885, whose back end RKNPU2 computes products of matrices with `rknn_matmul_api.h`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.outside.gguf import write_model
from tools.outside.programs import last_line, note, under
from tools.outside.suite import FAIL, LIMIT, PASS, Checkout, Outcome, Suite

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
    "int8 256 x 256, model 1": Case(1, "Hello,_tiny_world"),
    "int8 256 x 256, model 4": Case(4, "Hello,_tiny_world"),
    "int8 256 x 512": Case(1, "Hello,_tiny_world", 512),
}


def _tokens(
    here: Checkout, engine: str, folder: Path, case: Case, layers: int, options: Sequence[str] = ()
) -> bytes | Outcome:
    """Return what a run with some layers on the NPU writes behind the prompt, or how it failed."""
    out = folder / "text"
    out.unlink(missing_ok=True)
    words = [
        "-m",
        str(folder / "model.gguf"),
        "-p",
        case.prompt,
        "-n",
        str(COUNT),
        "--temp",
        "0",
        "-c",
        "128",
    ]
    words += ["-t", "1", "--seed", "1", "--ignore-eos", "--log-disable", "-ngl", str(layers)]
    program = str((here.folder / PROGRAM).resolve())
    command = ["sh", "-c", f'exec "$@" > "{out}"', "sh", program, *words]
    done = under("rknn", engine, command, 1200, options=options, folder=folder)
    if done.code is None:
        return Outcome(LIMIT, note(f"ended after {done.seconds:.0f} s"))
    if done.code:
        return Outcome(FAIL, note(f"exit code {done.code}: {last_line(done.text)}"))
    text = re.sub(LINES, b"", out.read_bytes())
    return text.partition(case.prompt.encode())[2]


def _run(here: Checkout, engine: str, folder: Path) -> Mapping[str, Outcome]:
    here.needs(PROGRAM)
    found: dict[str, Outcome] = {}
    for name, case in CASES.items():
        write_model(folder / "model.gguf", seed=case.seed, inner=case.inner)
        report = folder / "report.json"
        wanted = _tokens(here, engine, folder, case, 0)
        given = _tokens(here, engine, folder, case, 2, ["--json", str(report)])
        for result in (wanted, given):
            if isinstance(result, Outcome):
                found[f"{name}: tokens"] = result
        if isinstance(wanted, bytes) and isinstance(given, bytes):
            same = wanted == given and len(wanted) >= COUNT
            told = "" if same else f"CPU {wanted.hex()}, NPU {given.hex()}"
            found[f"{name}: tokens"] = Outcome(PASS if same else FAIL, note(told))
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
    "`rkcosim rknn` from models of random weights that the ledger writes, with two layers on the NPU and "
    "with none (`-ngl`): the tokens are the same, and the report has a row for each product.",
    board_source="no log of a board with such models is known.",
    why={
        "int8 256 x 512: tokens": "the back end orders a matrix of N x K as if it were K x N "
        "(ggml-rknpu2.c @cc8cb95c: ggml_rknpu2_transform_tensor passes ne1 and ne0 for k and n), which no "
        "device can mend: only square matrices come out right.",
    },
    run=_run,
)
