"""Programs with the interface of Hexagon NN: nnlib's test program, and tutorials of the SDK."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tools.outside.programs import Program, each_program, note, under
from tools.outside.suite import FAIL, PASS, SILENT, Checkout, Outcome, Suite

GRAPHS = {"graphinit_small": (16, 3072), "graphinit_med": (11, 3200)}
"""Graphs of nnlib's test program: rows and columns of the picture, and bytes of the output."""
SECONDS = 600.0


def shown_values(text: str) -> np.ndarray:
    """Return the numbers that the program prints with --pprint_floats, empty if it prints none."""
    line = re.search(r"^output values:\n(.*)$", text, re.MULTILINE)
    return np.array([float(word) for word in line[1].split(",") if word] if line else [], np.float64)


def _graph_app(here: Checkout, engine: str, folder: Path) -> Mapping[str, Outcome]:
    here.needs(*(f"build/graph_app_{name.partition('_')[2]}" for name in GRAPHS))
    found = {}
    for name, (side, size) in GRAPHS.items():
        picture = folder / f"{name}_{side}x{side}x3.dat"
        values = np.random.default_rng(side).uniform(-1, 1, (side, side, 3)).astype("<f4")
        values.tofile(picture)
        program = Program(
            f"build/graph_app_{name.partition('_')[2]}",
            ["--elementsize", "4", "--pprint_labels", "0", "--pprint_floats", "1", str(picture.resolve())],
        )
        shown = folder / f"{name}.txt"  # apart from what the command prints at the end
        command = ["sh", "-c", 'exec "$0" "$@" >"$SHOWN"', str((here.folder / program.path).resolve())]
        where = {"SHOWN": str(shown.resolve())}
        command += program.words
        done = under("hexagon", engine, command, SECONDS, folder=folder, environment=where)
        found[name] = program.outcome(done)
        if found[name].verdict != PASS:
            continue
        said = shown_values(shown.read_text(encoding="utf-8"))
        if said.size * 4 != size:
            found[name] = Outcome(FAIL, note(f"{said.size} numbers are shown; {size // 4} are expected"))
        elif name == "graphinit_small":
            apart = float(np.abs(said - values.reshape(-1)).max())
            found[name] = Outcome(PASS) if apart <= 5.1e-7 else Outcome(FAIL, f"up to {apart:.3g} away")
        else:
            found[name] = Outcome(SILENT)
        print(f"  {name}: {found[name].verdict} ({done.seconds:.1f} s)", flush=True)
    return found


TUTORIALS = {
    name: Program(f"build/{name}") for name in ("001-nop", "002-add", "003-quantized-add", "004-xor-graph")
}


def _tutorials(here: Checkout, engine: str, folder: Path) -> Mapping[str, Outcome]:
    return each_program(here, "hexagon", engine, TUTORIALS, SECONDS)


SUITES = (
    Suite(
        name="nnlib",
        repository="XiaoMi/nnlib",
        tests="nnlib's test program `graph_app`, through the interface of Hexagon NN: a graph that copies "
        "its input, and one with a quantised convolution, requantisation, bias and ReLU",
        how="`build/graph_app_small` and `build/graph_app_med`, compiled from the folder `test` with "
        "`graphinit_small.c` and `graphinit_med.c` "
        "([command](../hexagon.md#programs-that-were-tried)), run under `rkcosim hexagon` with pictures of "
        "random floats. The copy is compared with the picture; of the other graph the program shows numbers "
        "and judges nothing, so that it has no verdict if it shows all of them.",
        cannot="The whole network of `graphinit_med.c` with its pictures of 299x299: the program has memory "
        "for 1024 numbers.",
        board_source="none: they test an interface.",
        run=_graph_app,
    ),
    Suite(
        name="Hexagon tutorials",
        repository="peyer/qcom_hexagon_sdk",
        tests="the tutorials of the SDK for Hexagon NN: an empty graph, a sum of floats, a sum of codes, and "
        "a network of two layers that computes exclusive or",
        how="The first four of `examples/hexagon_nn/tutorials`, compiled into the folder `build` with the "
        "header of `rkcosim hexagon --prefix`, `libs/common/rpcmem/inc` and `incs/stddef`, and linked with "
        "`libhexagon_nn.so` and `libcdsprpc.so`, run under `rkcosim hexagon`; each compares its result and "
        "says it by its exit code.",
        cannot="Tutorials 005 to 008: they add operations to the library on the DSP, or need TensorFlow or "
        "Caffe and models.",
        board_source="none: they test an interface.",
        run=_tutorials,
    ),
)
