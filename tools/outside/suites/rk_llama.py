"""The hardware test of unimatrix099/rk-llama.cpp: int4 products with A and C in both layouts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from tools.outside.programs import last_line, note, under
from tools.outside.suite import FAIL, LIMIT, PASS, Checkout, Outcome, Suite, all_pass

PROGRAM = "docs/backend/test-rknpu2-native-equivalence"
SHAPES = ("1 x 256 x 256", "5 x 320 x 256", "32 x 2048 x 2048", "128 x 1024 x 512")

COUNTS = re.compile(r"vs CPU ref \(wrap16\): NORM (\d+)/(\d+) ok, NATIVE (\d+)/(\d+) ok")
VERDICT = re.compile(r"^(PASS|FAIL)  M=(\d+) *K=(\d+) *N=(\d+)", re.MULTILINE)


def _run(here: Checkout, engine: str, folder: Path) -> Mapping[str, Outcome]:
    here.needs(PROGRAM)
    done = under("rknn", engine, [str((here.folder / PROGRAM).resolve())], 1800, folder=folder)
    if done.code is None:
        missing = Outcome(LIMIT, note(f"ended after {done.seconds:.0f} s"))
    else:
        missing = Outcome(FAIL, note(f"exit code {done.code}: {last_line(done.text)}"))
    found = dict.fromkeys((f"{shape}: {what}" for shape in SHAPES for what in ("layouts", "sums")), missing)
    for counts, verdict in zip(COUNTS.finditer(done.text), VERDICT.finditer(done.text), strict=False):
        shape = " x ".join(verdict.group(2, 3, 4))
        found[f"{shape}: layouts"] = Outcome(PASS if verdict[1] == "PASS" else FAIL)
        right = counts[1] == counts[2] and counts[3] == counts[4]
        found[f"{shape}: sums"] = Outcome(PASS if right else FAIL, "" if right else note(counts[0]))
    return found


SUITE = Suite(
    name="rk-llama",
    repository="unimatrix099/rk-llama.cpp",
    tests="int4 products of `rknn_matmul_api.h` with weights from "
    "`rknn_B_normal_layout_to_native_layout`: the results with A and C in the native layout are those in "
    "rows, and the processor's",
    how="`docs/backend/test-rknpu2-native-equivalence`, built as Makefile.rknpu2-tools beside it says "
    "against `rkcosim rknn --prefix`, runs under `rkcosim rknn`. Whole llama.cpp with this back end is "
    "[rockllama](#rockllama).",
    board_source="unimatrix099/rk-llama.cpp @0292a4e, docs/backend/RKNPU2-native-layout-plan.md, phase 1: "
    "bit-identical results and full agreement with the processor for the four shapes, on an RK3588 with "
    "librknnrt 2.3.2.",
    board=all_pass,
    run=_run,
)
