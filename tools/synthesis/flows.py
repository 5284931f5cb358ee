"""What Yosys does with one module: for an FPGA, and for the cells of a Liberty file."""

from __future__ import annotations

import json
import re
import resource
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rkcosim.engines.toolchain import yosys
from rkcosim.waves.whole_file import whole_file

FAMILY = "xcu"
"""Family of `synth_xilinx`: Virtex UltraScale, as the VU440 of NVDLA's published figure."""

MACRO_BITS = 4096
"""Memories of fewer bits, and those with asynchronous reads, become flip-flops in the flow of cells."""

LIBERTY = Path("/usr/share/qflow/tech/osu018/osu018_stdcells.lib")
"""The Liberty file of the distribution package qflow-tech-osu018: 180 nm, 1.8 V, 25 degrees, typical."""

PREPARE = ("proc", "opt", "wreduce", "opt_clean")
"""Passes before the operators of a module become modules."""

_XILINX = f"synth_xilinx -family {FAMILY} -noiopad -noclkbuf -run"


def _xilinx(run: str) -> tuple[str, ...]:
    return (
        "read_verilog -lib -specify +/xilinx/cells_sim.v",
        "read_verilog -lib +/xilinx/cells_xtra.v",
        "read_rtlil {source}",
        "hierarchy -check",
        f"{run} prepare:coarse",
        "techmap -map +/cmp2lut.v -map +/cmp2lcu.v -D LUT_WIDTH=6",
        "alumacc",
        "opt",
        "memory -nomap",
        "opt_clean",
        f"{run} map_memory:check",
        "check -noinit",
        "tee -q -o {folder}/stat.json stat -json -tech xilinx",
    )


FPGA = _xilinx(_XILINX)
"""`synth_xilinx` for several modules, without its pass `share`, which finds operators never used together."""

SERIES7 = _xilinx("synth_xilinx -family xc7 -noiopad -noclkbuf -run")
"""The same for Xilinx 7 series."""

ECP5 = (
    "read_verilog -lib -specify +/lattice/cells_sim_ecp5.v +/lattice/cells_bb_ecp5.v",
    "read_rtlil {source}",
    "hierarchy -check",
    "proc",
    "check",
    "tribuf -logic",
    "deminout",
    "opt_expr",
    "opt_clean",
    "opt -nodffe -nosdff",
    "fsm",
    "opt",
    "wreduce",
    "peepopt",
    "opt_clean",
    "techmap -map +/cmp2lut.v -D LUT_WIDTH=4",
    "opt_expr",
    "opt_clean",
    "techmap -map +/mul2dsp.v -map +/lattice/dsp_map_18x18.v -D DSP_A_MAXWIDTH=18 -D DSP_B_MAXWIDTH=18"
    " -D DSP_A_MINWIDTH=2 -D DSP_B_MINWIDTH=2 -D DSP_NAME=$__MUL18X18",
    "chtype -set $mul t:$__soft_mul",
    "alumacc",
    "opt",
    "memory -nomap",
    "opt_clean",
    "synth_ecp5 -run map_ram:check",
    "check -noinit",
    "tee -q -o {folder}/stat.json stat -json",
)
"""`synth_ecp5` for several modules, without `share` and without flattening."""

CONFLICTS = 100
"""Bound of one question to ABC's SAT solver. With 1,000, ABC's own, it has no end for a kernel of floats."""

_ABC = (
    f"+strash;&get,-n;&fraig,-x,-C,{CONFLICTS};&put;scorr;dc2;dretime;strash;"
    f"&get,-n;&dch,-f,-C,{CONFLICTS};&nf;&put;buffer;upsize;dnsize;stime,-p"
)
"""What Yosys 0.70 has ABC do for a Liberty file with constraints, with that bound."""

CELLS = (
    "read_liberty -lib {liberty}",
    "read_verilog -lib {pins}",
    "read_rtlil {source}",
    "hierarchy -check",
    "proc",
    "opt",
    "wreduce",
    "peepopt",
    "opt_clean",
    "alumacc",
    "opt",
    "memory -nomap",
    "techmap -map {macros}",
    "opt_clean",
    "memory_map",
    "opt -fast",
    "techmap",
    "opt -fast",
    "setattr -unset init",
    "dfflibmap -liberty {liberty}",
    "setundef -zero",
    "opt -fast",
    f"abc -liberty {{liberty}} -constr {{constraints}} -script {_ABC}",
    "opt_clean -purge",
    "check -noinit",
    "tee -q -o {folder}/stat.json stat -json -liberty {liberty}",
    "write_json {folder}/netlist.json",
)
"""Cells of the Liberty file; memories are cut off behind flip-flops at their pins."""

CONSTRAINTS = "set_driving_cell BUFX2\nset_load 0.02 [all_outputs]\n"
"""What ABC assumes around a module: inputs from a buffer, 0.02 pF at outputs."""

PINS = """
module MEM_IN (input C, input D); endmodule
module MEM_OUT (input C, output Q); endmodule
"""
"""Cells for the pins of a memory, which are flip-flops for the paths and have no area."""

MACROS = r"""
(* techmap_celltype = "$mem_v2" *)
module memory_pins (RD_CLK, RD_EN, RD_ARST, RD_SRST, RD_ADDR, RD_DATA, WR_CLK, WR_EN, WR_ADDR, WR_DATA);
    parameter MEMID = "";
    parameter signed SIZE = 4;
    parameter signed OFFSET = 0;
    parameter signed ABITS = 2;
    parameter signed WIDTH = 8;
    parameter INIT = 1'bx;
    parameter signed RD_PORTS = 1;
    parameter RD_CLK_ENABLE = 1'b1;
    parameter RD_CLK_POLARITY = 1'b1;
    parameter RD_TRANSPARENCY_MASK = 1'b0;
    parameter RD_COLLISION_X_MASK = 1'b0;
    parameter RD_WIDE_CONTINUATION = 1'b0;
    parameter RD_CE_OVER_SRST = 1'b0;
    parameter RD_ARST_VALUE = 1'b0;
    parameter RD_SRST_VALUE = 1'b0;
    parameter RD_INIT_VALUE = 1'b0;
    parameter signed WR_PORTS = 1;
    parameter WR_CLK_ENABLE = 1'b1;
    parameter WR_CLK_POLARITY = 1'b1;
    parameter WR_PRIORITY_MASK = 1'b0;
    parameter WR_WIDE_CONTINUATION = 1'b0;

    input [RD_PORTS-1:0] RD_CLK;
    input [RD_PORTS-1:0] RD_EN;
    input [RD_PORTS-1:0] RD_ARST;
    input [RD_PORTS-1:0] RD_SRST;
    input [RD_PORTS*ABITS-1:0] RD_ADDR;
    output [RD_PORTS*WIDTH-1:0] RD_DATA;
    input [WR_PORTS-1:0] WR_CLK;
    input [WR_PORTS*WIDTH-1:0] WR_EN;
    input [WR_PORTS*ABITS-1:0] WR_ADDR;
    input [WR_PORTS*WIDTH-1:0] WR_DATA;

    wire _TECHMAP_FAIL_ = SIZE * WIDTH < MACRO_BITS || WR_PORTS < 1
        || RD_CLK_ENABLE[RD_PORTS-1:0] != {RD_PORTS{1'b1}};

    localparam INPUTS = RD_PORTS * (ABITS + 1) + WR_PORTS * (ABITS + WIDTH) + WR_PORTS * WIDTH;
    wire [INPUTS-1:0] pins = {RD_EN, RD_ADDR, WR_EN, WR_ADDR, WR_DATA};
    genvar n;
    generate
        for (n = 0; n < INPUTS; n = n + 1) begin : ins
            (* keep *) MEM_IN pin (.C(RD_CLK[0]), .D(pins[n]));
        end
        for (n = 0; n < RD_PORTS * WIDTH; n = n + 1) begin : outs
            (* keep *) MEM_OUT pin (.C(RD_CLK[0]), .Q(RD_DATA[n]));
        end
    endgenerate
endmodule
""".replace("MACRO_BITS", str(MACRO_BITS))
"""Replaces a large memory by `MEM_IN` and `MEM_OUT` at its pins."""

FAST_BYTES = 200_000
"""Modules with longer texts get faster scripts."""


def _fast_xilinx(steps: Sequence[str]) -> Sequence[str]:
    last = next(step for step in steps if step.endswith(" map_memory:check"))
    run = last.removesuffix(" map_memory:check")
    instead = (
        f"{run} map_memory:fine",
        "xilinx_srl -variable -minlen 3",
        "techmap -map +/techmap.v -D LUT_SIZE=6 -map +/xilinx/arith_map.v",
        "opt_expr",
        "opt_clean",
        f"{run} map_cells:map_luts",
        "opt_expr -mux_undef -noclkinv",
        "abc -luts 2:2,3,6:5,10,20 -script +strash;dc2;if",
        "clean",
        "xilinx_srl -fixed -minlen 3",
        "techmap -map +/xilinx/lut_map.v -map +/xilinx/cells_map.v -D LUT_WIDTH=6",
        "xilinx_dffopt",
        "opt_lut_ins -tech xilinx",
        "clean",
    )
    return [line for step in steps for line in (instead if step == last else (step,))]


_FAST_ECP5 = (
    "synth_ecp5 -run map_ram:map_luts",
    "abc -lut 4 -script +strash;dc2;if",
    "clean",
    "synth_ecp5 -run map_cells:check",
)

FLOWS: Mapping[str, Sequence[str]] = {
    "fpga": FPGA,
    "cells": CELLS,
    "xc7": SERIES7,
    "ecp5": ECP5,
    "fpga fast": _fast_xilinx(FPGA),
    "cells fast": [line for line in CELLS if line != "opt -fast"],
    "xc7 fast": _fast_xilinx(SERIES7),
    "ecp5 fast": [
        line for step in ECP5 for line in (_FAST_ECP5 if step == "synth_ecp5 -run map_ram:check" else (step,))
    ],
}


@dataclass(frozen=True)
class Bounds:
    """Bounds of one run: seconds of the clock, and GiB of memory."""

    seconds: int = 900
    memory: int = 8


def run(
    flow: str, tops: Sequence[str], source: str, folder: Path, bounds: Bounds
) -> dict[str, dict[str, Any]]:
    """Synthesise modules in a process of its own.

    Parameters
    ----------
    flow : key of `FLOWS`.
    tops : names of the modules.
    source : RTLIL of the modules and their black boxes.
    folder : where the netlist of cells is written, as `MODULE.json`.
    bounds : the run ends when it needs more.

    Returns
    -------
    dict
        For each module its share of the `seconds`, and either `error`, or `cells` (number by type), `area`,
        `memories` (how they were mapped) and `warnings`.
    """
    with tempfile.TemporaryDirectory(prefix="synthesis-") as name:
        place = Path(name)
        files = {
            "source": ("top.il", source),
            "constraints": ("constraints", CONSTRAINTS),
            "pins": ("pins.v", PINS),
            "macros": ("macros.v", MACROS),
        }
        for file, text in files.values():
            (place / file).write_text(text)
        words = {key: place / file for key, (file, _) in files.items()} | {"folder": place}
        lines = [line.format(liberty=LIBERTY, **words) for line in FLOWS[flow]]
        start = time.monotonic()
        done = script(lines, place, bounds)
        seconds = round((time.monotonic() - start) / len(tops), 1)
        if isinstance(done, str):
            return {top: {"seconds": seconds, "error": done} for top in tops}
        report = (place / "stat.json").read_text()
        found = {
            top: {"seconds": seconds} | statistics(report, top) | messages(done.stdout, top) for top in tops
        }
        if flow.startswith("cells"):
            folder.mkdir(parents=True, exist_ok=True)
            whole = json.loads((place / "netlist.json").read_text())
            for top in tops:
                kept = {key: whole["modules"][key] for key in needed(whole, top)}
                with whole_file(folder / f"{top}.json") as part:
                    part.write_text(json.dumps({"modules": kept}))
        return found


def needed(netlist: Mapping[str, Any], top: str) -> set[str]:
    """Names of a module and of those that it instantiates."""
    kinds = {cell["type"] for cell in netlist["modules"][top]["cells"].values()}
    return {top} | {kind for kind in kinds if kind in netlist["modules"]}


def script(lines: Sequence[str], folder: Path, bounds: Bounds) -> subprocess.CompletedProcess[str] | str:
    """Run Yosys; return what it printed, or why it gave no result, as a sentence."""
    (folder / "run.ys").write_text("\n".join(lines) + "\n")
    size = bounds.memory << 30

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (size, size))

    command = [*yosys().command, "run.ys"]
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=bounds.seconds,
            check=False,
            preexec_fn=limit,
        )
    except subprocess.TimeoutExpired:
        return f"more than {bounds.seconds} s"
    if done.returncode:
        printed = (done.stderr + done.stdout).splitlines()
        if any("bad_alloc" in line or "Cannot allocate" in line for line in printed):
            return f"more than {bounds.memory} GiB"
        errors = [line.strip() for line in printed if "ERROR" in line]
        return errors[0] if errors else f"Yosys ended with code {done.returncode}"
    return done


def statistics(text: str, top: str) -> dict[str, Any]:
    """Number of cells of each type and their area, from the JSON of `stat`; submodules are left out."""
    module = json.loads(text)["modules"][f"\\{top}"]
    return {"cells": module["num_cells_by_type"], "area": float(module.get("area", 0))}


_MAPPED = re.compile(r"^mapping memory (\S+)\.(\S+) via (\S+)$", re.MULTILINE)
_FLIP_FLOPS = re.compile(r"^using FF mapping for memory (\S+)\.(\S+)$", re.MULTILINE)
_LATCH = re.compile(r"^Warning: Latch inferred for signal `\\(\S+)\..*$", re.MULTILINE)
_FOUND = re.compile(
    r"^Warning: (?:found logic loop|multiple conflicting drivers for|Driver-driver conflict in) .*"
    r"(?:\n    .*)*",
    re.MULTILINE,
)


def messages(text: str, top: str) -> dict[str, Any]:
    """What Yosys said about memories, latches, loops and drivers of a module."""
    memories = {name: kind for module, name, kind in _MAPPED.findall(text) if module == top}
    memories |= {name: "flip-flops" for module, name in _FLIP_FLOPS.findall(text) if module == top}
    latches = [found[0] for found in _LATCH.finditer(text) if found[1] == top]
    others = [found[0] for found in _FOUND.finditer(text) if f"{top}." in found[0] or f"{top}:" in found[0]]
    return {"memories": memories, "warnings": sorted({*latches, *others})}
