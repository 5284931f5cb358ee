"""The DPU's cell: the pipe has the same outputs in every cycle with stages as RTL and in C++."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from amaranth.hdl import Value
from amaranth.hdl._ir import PortDirection
from amaranth.lib import wiring

from rkcosim.engines.verilog import rtlil_of, write_verilog
from rkcosim.rtl.npu.dpu_cell import SETTINGS, settings_of
from rkcosim.rtl.npu.dpu_pipe import DpuPipe
from rkcosim.rtl.regfile import config_signature, register_layout
from tests import seeds
from tests.block.cell_program import CELL, ROOT, cell_program

SEED = seeds.seed(__name__)
TOP = "dpu_pipe"


def ports(pipe: DpuPipe) -> dict:
    """Ports of a pipe by plain names: `cfg_BS_CFG`, `source_payload`."""
    ways = {wiring.In: PortDirection.Input, wiring.Out: PortDirection.Output}
    return {
        "_".join(map(str, path)): (Value.cast(value), ways[member.flow])
        for path, member, value in pipe.signature.flatten(pipe)
        if len(Value.cast(value))
    }


def registers_header() -> str:
    """The registers of the DPU and their fields, as macros for the bench."""
    signature = config_signature("DPU")
    registers = {register.name: register_layout(register) for register in signature.block}
    lines, fields = [], []
    for name in signature.members:
        lines.append(f"X(cfg_{name}, {registers[name].size})")
        fields += [
            f"X(cfg_{name}, {name}_{key}, {field.offset}, {field.width})" for key, field in registers[name]
        ]
    return "\n".join(f"#define {n} \\\n" + " \\\n".join(m) for n, m in (("PORTS", lines), ("FIELDS", fields)))


@pytest.fixture(scope="module")
def program(tmp_path_factory) -> Path:
    """The program of dpu_cell_compare.cpp, which contains both pipes."""
    work = tmp_path_factory.mktemp("dpu_cells")
    (work / "dpu_pipe_ports.h").write_text(registers_header() + "\n")
    models = {}
    for prefix, external in (("Vrtl", False), ("Vcpp", True)):
        (work / f"{prefix}_text").mkdir()
        pipe = DpuPipe(external=external)
        text = rtlil_of(pipe, TOP, ports=ports(pipe))
        models[prefix] = [write_verilog(text, work / f"{prefix}_text")]
    models["Vcpp"] += sorted(CELL.glob("npu_dpu_*.sv"))
    bench = ROOT / "tests" / "block" / "dpu_cell_compare.cpp"
    return cell_program(work, TOP, models, CELL.glob("npu_dpu_*.cpp"), bench)


def compared(program: Path, seed: int, cycles: int) -> None:
    run = subprocess.run([program, str(seed), str(cycles)], capture_output=True, text=True)
    print(run.stdout)
    assert run.returncode == 0, run.stdout


@pytest.mark.heavy  # the compiler takes half a minute
def test_random(program):
    """Registers, operands, types, tables and waits at both ends are random."""
    compared(program, SEED, 1_000_000)


def test_width_of_settings():
    """The port has as many bits in Verilog and in C++ as the fields have."""
    bits = len(settings_of(config_signature("DPU").create()))
    assert len(set(SETTINGS)) == len(SETTINGS)
    widths = re.findall(r"bit \[(\d+):0\] +settings", (CELL / "npu_dpu_cell_cpp.sv").read_text())
    assert {int(width) + 1 for width in widths} == {bits}
    assert f"kDpuSettingBits = {bits};" in (CELL / "npu_dpu_cell.h").read_text()
