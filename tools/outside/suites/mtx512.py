"""The tests of mtx512/rk3588-npu, a library of products of matrices over the vendor's driver."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tools.outside.programs import Program, each_program
from tools.outside.suite import Checkout, Outcome, Suite, all_pass, on_engine

SHAPES: Mapping[str, tuple[str, ...]] = {
    "fp16": ("1 32 16", "1 64 64", "1 1024 1024", "1 4096 4096", "4 32 16", "384 384 4096"),
    "int8": ("1 32 32", "1 64 64", "1 1024 1024", "1 4096 4096", "544 544 4096"),
    "fp16_fp16": ("1 32 16", "1 768 768", "1 768 2048", "1 8192 8192"),
}
"""M K N of the tests that its meson.build names."""

RTL_TOO = (
    "4 36 16",
    "fp16 1 32 16",
    "fp16 1 64 64",
    "fp16 4 32 16",
    "int8 1 32 32",
    "int8 1 64 64",
    "fp16_fp16 1 32 16",
)
"""Cases that are small enough for the RTL."""

PROGRAMS = {"4 36 16": Program("build/matmul_4_36_16")} | {
    f"{kind} {shape}": Program(f"build/matmul_{kind}", shape.split())
    for kind, shapes in SHAPES.items()
    for shape in shapes
}


def _run(here: Checkout, engine: str, folder: Path) -> Mapping[str, Outcome]:
    return each_program(here, "device", engine, on_engine(engine, PROGRAMS, RTL_TOO), 600)


SUITE = Suite(
    name="mtx512",
    repository="mtx512/rk3588-npu",
    tests="products of matrices of fp16 to fp32 and to fp16, and of int8 to int32, in one task each",
    how="The tests that its meson.build names, built into the folder `build` (`-D__fp16=_Float16` on "
    "x86-64), run under `rkcosim device` and compare with the processor. Small cases run on the RTL, too.",
    board_source="mtx512/rk3588-npu @4723947, README.md: the tests are tested against the kernel 5.10 of "
    "an RK3588.",
    board=all_pass,
    run=_run,
)
