"""File lists of an exported design for other tools: sources, C++ cell and flags; and a Makefile for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rkcosim.engines.build import harness_folder
from rkcosim.export.ports import Port

VERILATOR_FLAGS = (
    "--no-public-flat-rw",
    "--no-assert",
    *("--output-split", "20000"),
    "-Wno-fatal",
    "-Wno-lint",
    "-Wno-style",
    *("--x-assign", "fast"),
    *("--x-initial", "fast"),
)
"""Flags of a simulation. cocotb's own `--public-flat-rw` makes every signal public, which takes very long."""

CELL_FOLDER = "cell"
"""Folder with the array cell in C++."""


def cell_files() -> list[Path]:
    """Return the files of the array cell in C++ with its Verilog part."""
    folder = harness_folder() / "cell"
    return [*sorted(folder.glob("npu_cell*")), folder / "npu_array_cell_cpp.sv"]


@dataclass(frozen=True)
class Sources:
    """The files of a design, as paths in its folder.

    Members
    -------
    module : name of its top module.
    waivers, visible : control files of Verilator: waivers, and the ports made public.
    verilog : Verilog of the design without the array cell, if that is left out.
    cell_rtl : Verilog of the array cell that was left out.
    cell_cpp : the same in C++ with its Verilog part, for Verilator.
    """

    module: str
    waivers: str
    visible: str
    verilog: tuple[str, ...]
    cell_rtl: tuple[str, ...] = ()
    cell_cpp: tuple[str, ...] = ()

    @property
    def rtl(self) -> tuple[str, ...]:
        """All Verilog, for tools without C++."""
        return (*self.verilog, *self.cell_rtl)

    @property
    def for_verilator(self) -> tuple[str, ...]:
        """Verilog for Verilator, which takes the array cell in C++."""
        return (*self.verilog, *(name for name in self.cell_cpp if name.endswith(".sv")))

    @property
    def cpp(self) -> tuple[str, ...]:
        """C++ sources; the headers are beside them."""
        return tuple(name for name in self.cell_cpp if name.endswith(".cpp"))


def visible(module: str, ports: Sequence[Port], signals: Sequence[str] = ()) -> str:
    """Return a control file for Verilator that makes the ports of a module, and other signals, public.

    Parameters
    ----------
    module, ports : the top module and its ports.
    signals : further ones: "module" for all signals of a module, "module.signal" for one.
    """
    shown = [(module, port.name) for port in ports]
    for wanted in signals:
        inside, _, signal = wanted.partition(".")
        shown.append((inside, signal or "*"))
    lines = [f'public_flat_rw -module "{inside}" -var "{signal}"' for inside, signal in shown]
    return "\n".join(["`verilator_config", *lines, ""])


def lists(sources: Sources) -> dict[str, str]:
    """Return the lists of a design by file name: for Icarus, Verilator, cocotb's own runner and Yosys."""
    module = sources.module
    about = f"// {module}: sources and flags of a simulation; "
    verilator = [sources.waivers, sources.visible, *sources.for_verilator, *sources.cpp]
    flags = _joined(VERILATOR_FLAGS)
    yosys = [
        f"read_verilog {' '.join(sources.rtl)}",
        f"hierarchy -check -top {module}",
        "proc",
        "check -assert",
    ]
    return {
        f"{module}.icarus.f": "\n".join([f"{about}iverilog -g2012 -f {module}.icarus.f", *sources.rtl, ""]),
        f"{module}.verilator.f": "\n".join(
            [f"{about}verilator -F {module}.verilator.f", *flags, *verilator, ""]
        ),
        f"{module}.cocotb.json": json.dumps(_cocotb(sources), indent=1) + "\n",
        f"{module}.ys": "\n".join([f"# {module} in Yosys: yosys -q {module}.ys", *yosys, ""]),
    }


def _joined(flags: Sequence[str]) -> list[str]:
    """Return flags with their values, one a line."""
    lines: list[str] = []
    for flag in flags:
        if flag.startswith("-"):
            lines.append(flag)
        else:
            lines[-1] += f" {flag}"
    return lines


def _cocotb(sources: Sources) -> dict[str, object]:
    """Return the arguments of `build` of cocotb's runner for each simulator."""
    same = {"hdl_toplevel": sources.module, "timescale": ["1ns", "1ps"], "cwd": "."}
    return {
        "verilator": {
            "sources": [sources.waivers, sources.visible, *sources.for_verilator],
            "build_args": [*VERILATOR_FLAGS, *sources.cpp],
            **same,
        },
        "icarus": {"sources": list(sources.rtl), **same},
    }


def makefile(module: str) -> str:
    """Return a Makefile that builds a design and runs its bench with each tool."""
    return f"""# SPDX-License-Identifier: Apache-2.0
# Builds TOP and runs its bench: make icarus, verilator, cocotb, fusesoc, yosys.
TOP ?= {module}
SIM ?= verilator
TARGET ?= sim
# Runs a program that finds Verilator of the Python package on its path.
WITH ?= rkcosim verilator --exec
.PHONY: icarus verilator cocotb fusesoc yosys
icarus:
\tiverilog -g2012 -s tb_$(TOP) -o $(TOP).vvp -f $(TOP).icarus.f tb_$(TOP).v && vvp -n $(TOP).vvp
verilator:
\t$(WITH) verilator --binary --timing --top-module tb_$(TOP) --Mdir $(TOP)_verilator -o bench \\
\t\t-F $(TOP).verilator.f tb_$(TOP).v
\t$(TOP)_verilator/bench
cocotb:
\t$(WITH) python cocotb_$(TOP).py $(SIM)
fusesoc:
\t$(WITH) fusesoc --cores-root . run --target $(TARGET) rkcosim:npu:$(TOP)
yosys:
\tyosys -q $(TOP).ys
"""


def cocotb_bench(module: str, ports: Sequence[Port], reset_cycles: int, settle_cycles: int) -> str:
    """Return a bench for cocotb's own runner: tied-off inputs, reset, and no unknown output.

    For a core, it also reads a register through cocotbext-axi's master.
    """
    slaves = [p.name.removesuffix("awvalid") for p in ports if p.name.endswith("s_axil_awvalid")]
    if "irq" not in {port.name for port in ports}:
        slaves = []
    tied = {port.name: port.idle for port in ports if port.idle is not None and port.name != "rst"}
    outputs = [port.name for port in ports if port.direction == "output"]
    access = [
        "",
        "",
        "@cocotb.test(timeout_time=1, timeout_unit='ms')",
        "async def a_register_answers(dut):",
        '    """PC.VERSION has its reset value."""',
        "    from cocotbext.axi import AxiLiteBus, AxiLiteMaster",
        "",
        "    await reset(dut)",
        '    master = AxiLiteMaster(AxiLiteBus.from_prefix(dut, "s_axil"), dut.clk, dut.rst)',
        "    answer = await master.read(0x0000, 4)",
        '    assert answer.data == b"ERIF", answer',
    ]
    lines = [
        "# SPDX-License-Identifier: Apache-2.0",
        f'"""{module} on cocotb\'s own runner: python cocotb_{module}.py verilator (or icarus)."""',
        "",
        "import json",
        "import os",
        "import sys",
        "from pathlib import Path",
        "",
        "import cocotb",
        "from cocotb.clock import Clock",
        "from cocotb.triggers import ClockCycles",
        "",
        f"TIED = {json.dumps(tied)}",
        f"OUTPUTS = {json.dumps(outputs)}",
        "",
        "",
        "async def reset(dut):",
        "    for name, value in TIED.items():",
        "        getattr(dut, name).value = value",
        "    cocotb.start_soon(Clock(dut.clk, 2, 'ns').start())",
        "    dut.rst.value = 1",
        f"    await ClockCycles(dut.clk, {reset_cycles})",
        "    dut.rst.value = 0",
        f"    await ClockCycles(dut.clk, {settle_cycles})",
        "",
        "",
        "@cocotb.test(timeout_time=1, timeout_unit='ms')",
        "async def no_output_is_unknown(dut):",
        '    """With all inputs tied off, every output is known after the reset."""',
        "    await reset(dut)",
        "    assert [n for n in OUTPUTS if not getattr(dut, n).value.is_resolvable] == []",
        *(access if slaves == ["s_axil_"] else []),
        "",
        "",
        "def run(simulator):",
        "    from cocotb_tools.check_results import get_results",
        "    from cocotb_tools.runner import get_runner",
        "",
        "    os.chdir(Path(__file__).resolve().parent)",
        f'    listed = json.loads(Path("{module}.cocotb.json").read_text())[simulator]',
        "    runner, build = get_runner(simulator), f\"{listed['hdl_toplevel']}_{simulator}_cocotb\"",
        "    runner.build(build_dir=build, **listed)",
        "    sys.path.insert(0, os.getcwd())",
        "    results = runner.test(",
        f'        hdl_toplevel="{module}", test_module="cocotb_{module}", build_dir=build, test_dir="."',
        "    )",
        "    tests, failed = get_results(results)",
        "    sys.exit(failed > 0 or tests == 0)",
        "",
        "",
        'if __name__ == "__main__":',
        "    run(sys.argv[1])",
        "",
    ]
    return "\n".join(lines)
