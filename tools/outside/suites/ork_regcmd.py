"""The regression suite of oRKLLM/oRKLLM's own command lists, from which oRKLLM/ork-driver grew."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tools.outside.programs import Program, each_program
from tools.outside.suite import Checkout, Outcome, Suite, all_pass, on_engine

FOLDER = "experimental/ggml-rknpu"

SHAPES: Mapping[str, tuple[str, ...]] = {
    "synth": ("4 32 16", "64 512 16", "128 512 128", "256 1024 64", "512 2048 16"),
    "synth_i8": ("4 32 32", "64 512 32", "128 1024 64", "256 2048 128"),
    "resident": ("256", "512"),
    "sched": ("1 2048 16", "1 4096 128", "1 8192 512", "4 4096 32", "64 512 16", "256 512 128"),
    "sched_i8": ("1 2048 32", "1 4096 128", "1 8192 512", "8 2048 64", "64 512 64"),
    "hybrid": ("128 512 16", "512 4096 512", "512 8192 128", "384 11008 64", "256 5120 256", "128 1536 64"),
    "hybrid_i8": ("512 8192 128", "256 11008 32", "256 14336 32", "512 4096 512", "128 1280 64"),
    "pcchain": (
        *("128 4096 16", "512 4096 128", "256 8192 16", "512 2048 128", "64 1024 64", "512 512 64"),
        "256 8192 512",
    ),
    "layer": ("",),
    "decode": ("",),
    "model": ("1", "12"),
}
"""M K N (of `resident` the number of weights, of `model` that of layers) in test/regression.mjs."""


def _programs() -> dict[str, Program]:
    found: dict[str, Program] = {}
    for kernel, shapes in SHAPES.items():
        for shape in shapes:
            words = shape.split()
            found[" ".join([kernel, *words])] = Program(f"{FOLDER}/rknpu_{kernel}", words)
    return dict(sorted(found.items()))


PROGRAMS = _programs()

RTL_TOO = (
    *("synth 4 32 16", "synth 64 512 16", "synth_i8 4 32 32", "synth_i8 64 512 32", "sched 1 2048 16"),
    *("sched 4 4096 32", "sched 64 512 16", "sched_i8 1 2048 32", "sched_i8 64 512 64", "hybrid 128 512 16"),
    *("pcchain 64 1024 64", "hybrid_i8 128 1280 64"),
)
"""Cases that are small enough for the RTL."""


def _run(here: Checkout, engine: str, folder: Path) -> Mapping[str, Outcome]:
    return each_program(here, "device", engine, on_engine(engine, PROGRAMS, RTL_TOO), 600)


SUITE = Suite(
    name="ork-regcmd",
    repository="oRKLLM/oRKLLM",
    tests="products of fp16 and int8 with command lists that are made for each shape: tiles of M in "
    "software and by the hardware's schedule, resident weights, slices of K, chains of tasks; a decoder "
    "layer, token by token, stacks of layers",
    how=f"The programs of `{FOLDER}` (removed from the repository later), built as test/regression.mjs "
    "does, run under `rkcosim device` with its shapes and compare with the processor. `rknpu_llama2` needs a "
    "trained model, and `test_mm` (32,000 columns) more than ten minutes. Small cases run on the RTL, too.",
    board_source="oRKLLM/oRKLLM, test/regression.mjs @d6135bc, which runs these cases on an RK3588: all 33 "
    "of the first ones pass there (message of 0803cde), and those that were added later (messages of 4733bef "
    "to fb5b654).",
    board=all_pass,
    run=_run,
)
