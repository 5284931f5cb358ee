"""Programs of oRKLLM/ork-driver, a library of products over the vendor's driver without the vendor's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tools.outside.programs import Program, each_program
from tools.outside.suite import Checkout, Outcome, Suite, all_pass

PROGRAMS = {
    "test_matmul": Program("test_matmul"),
    "layer": Program("layer"),
    "decode": Program("decode"),
    "model 1": Program("model", ["1"]),
    "model 12": Program("model", ["12"]),
}


def _run(here: Checkout, engine: str, folder: Path) -> Mapping[str, Outcome]:
    return each_program(here, "device", engine, PROGRAMS, 1800)


SUITE = Suite(
    name="ork-driver",
    repository="oRKLLM/ork-driver",
    tests="fp16 products with command lists of its own: slices of K and N, tiles of M that the hardware "
    "schedules, a decoder layer, token by token, stacks of layers",
    how="The programs that its Makefile builds run under `rkcosim device` and compare with the processor. "
    "They are those of the first commit, whose files can be read one by one.",
    cannot="`llama2` needs a trained model. The later commits (int8, int4, about 60 programs) need "
    "`src/npu.c`, which is too large to be read as a single file (277,348 characters and more).",
    board_source="oRKLLM/ork-driver @0777c7a, README.md: validated on an RK3588 (Radxa ROCK 5B), each "
    "program asserts its result.",
    board=all_pass,
    run=_run,
)
