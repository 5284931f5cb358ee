"""Exported Verilog as text: ports, names, determinism, the command."""

# No postponed annotations here: Amaranth reads the members of a component from them.
import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from amaranth.hdl import Module, Signal, signed
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.engines.plain_names import identifier
from rkcosim.export import ExportError, export_verilog
from rkcosim.export.designs import EXPORTABLE, GEOMETRIES
from rkcosim.export.export import port_table
from rkcosim.export.folder import chosen, core_file, sources_of
from rkcosim.export.lists import cell_files, lists, visible
from rkcosim.export.ports import Flattened, taken
from rkcosim.spec.config import SMALL, NpuConfig
from rkcosim.spec.regs import registers

QUICK = ("interrupt", "axil_slave", "register_fabric", "core_registers", "cbuf", "soc")
REPOSITORY = Path(__file__).parents[2]
PORTS = Path(__file__).with_name("verilog_ports.txt")


def _summary(config: NpuConfig) -> str:
    """A line for each module: its number of ports, and a hash of their names, directions and widths."""
    lines = []
    for item in EXPORTABLE.values():
        ports = item.ports(config)
        text = "".join(f"{port.name} {port.direction} {port.width} {port.signed}\n" for port in ports)
        lines.append(f"{item.module} {len(ports)} ports {hashlib.sha256(text.encode()).hexdigest()[:16]}\n")
    return "".join(lines)


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_ports_change_on_purpose_only(geometry):
    """After an intended change put the new text into the file; the header of each file lists the ports."""
    assert _summary(GEOMETRIES[geometry]) == PORTS.read_text()


@pytest.mark.parametrize("key", EXPORTABLE)
def test_ports_have_readable_names(key):
    ports = EXPORTABLE[key].ports(SMALL)
    names = [port.name for port in ports]
    assert names[:2] == ["clk", "rst"]
    assert len({name.lower() for name in names}) == len(names)
    for port in ports:
        assert re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", port.name) and "__" not in port.name, port.name
        assert identifier(port.name) == port.name
        assert port.width > 0


GARBAGE = re.compile(r":py:|\b(?:In|Out)\(|^[:,.;]|[:,;(]$| : |`|\n|  ")
"""What only a docstring that was read wrongly leaves in a text."""


@pytest.mark.parametrize("key", EXPORTABLE)
def test_every_port_has_a_text_a_clock_and_an_idle_value(key):
    for port in EXPORTABLE[key].ports(SMALL):
        assert 4 <= len(port.meaning) < 140, port
        assert not GARBAGE.search(port.meaning), port
        assert port.meaning.count("(") == port.meaning.count(")"), port
        assert port.meaning.count("[") == port.meaning.count("]"), port
        assert port.domain == ("-" if port.name == "clk" else "clk")
        assert (port.idle is None) == (port.direction == "output" or port.name == "clk")
        assert port.idle is None or 0 <= port.idle < 1 << port.width


def test_the_texts_come_from_the_docstring_of_the_part_that_has_one():
    core = {port.name: port.meaning for port in EXPORTABLE["core"].ports(SMALL)}
    soc = {port.name: port.meaning for port in EXPORTABLE["soc"].ports(SMALL)}
    slave = {port.name: port.meaning for port in EXPORTABLE["axil_slave"].ports(SMALL)}
    assert core["step_answer"].startswith("progress of the other cores") and "alone" in core["step_answer"]
    assert core["step_report"].startswith("progress, for the other cores")
    assert core["s_axil_wdata"] == soc["core2_s_axil_wdata"] == "AXI4-Lite slave: data of a write"
    assert soc["counters_s_axil_araddr"].startswith("AXI4-Lite slave with the counter windows of all cores: ")
    assert slave["s_axil_wdata"] == "data of a write"
    assert soc["core1_idle"] == core["idle"] and "core1_core_index" not in soc
    pc = {port.name: port.meaning for port in EXPORTABLE["pc"].ports(SMALL)}
    assert pc["diag_payload_value"] == "what was observed, often the value of the register"


def test_a_component_without_a_docstring_has_ports_without_texts():
    ports = {port.name: port.meaning for port in taken(Flattened(_Small())).ports}
    assert ports["total"] == "" and ports["values_valid"] == "a transfer is offered"
    ports = {port.name: port.meaning for port in taken(Flattened(_Described())).ports}
    assert ports == {"one": "the first of two", "other": "all in the next line", "last": "ends a task"}


def test_ports_are_described_by_the_docstring():
    ports = {port.name: port for port in EXPORTABLE["cbuf"].ports(SMALL)}
    meaning = "reads; the data come in the next cycle, entry1 of the weights counts where column is not 0"
    assert ports["reads_feature0_en"].meaning == ports["reads_weights_data"].meaning == meaning
    table = port_table(ports.values())
    assert any(re.fullmatch(rf"reads_weights_data +output +512 +-  {meaning}", line) for line in table)


def test_registers_are_ports_by_field():
    names = {port.name: port for port in EXPORTABLE["dpu"].ports(SMALL)}
    field = registers()["DPU"]["BS_CFG"].fields["BS_ALU_ALGO"]
    port = names["BS_CFG_BS_ALU_ALGO"]
    assert (port.direction, port.width) == ("input", field.width)
    assert port.meaning and field.desc.startswith(port.meaning)
    outputs = {port.name for port in EXPORTABLE["dpu_registers"].ports(SMALL) if port.direction == "output"}
    assert "BS_CFG_BS_ALU_ALGO" in outputs
    assert "PPU_RDMA_CUBE_IN_WIDTH_CUBE_IN_WIDTH" in {p.name for p in EXPORTABLE["ppu"].ports(SMALL)}


def test_buses_have_standard_names():
    core = {port.name for port in EXPORTABLE["core"].ports(SMALL)}
    assert {"s_axil_awaddr", "s_axil_rdata", "m_axi_araddr", "m_axi_wstrb", "irq"} <= core
    soc = {port.name for port in EXPORTABLE["soc"].ports(SMALL)}
    assert {"core0_s_axil_awaddr", "core2_m_axi_araddr", "core1_irq"} <= soc and "core0_core_index" not in soc
    assert "m_axi_awid" in {port.name for port in EXPORTABLE["ddma"].ports(SMALL)}
    assert "s_axil_bresp" in {port.name for port in EXPORTABLE["axil_slave"].ports(SMALL)}


@pytest.mark.parametrize("key", QUICK)
def test_text_is_plain_verilog(key, tmp_path):
    text = export_verilog(key, tmp_path, config=SMALL).read_text()
    code = re.sub(r"//.*", "", text)
    assert "\\" not in code  # no escaped names
    assert set(re.findall(r"\$\w+", code)) <= {"$signed", "$unsigned"}
    assert "always @*" not in code  # which Icarus would not evaluate at the start
    assert "Apache-2.0" in text and "geometry small" in text and "default_nettype wire" in text
    modules = re.findall(r"^module (\w+)", text, re.M)
    assert modules[0] == EXPORTABLE[key].module and len(set(modules)) == len(modules)
    assert all(name.startswith(modules[0]) for name in modules)
    header = code[code.index(f"module {modules[0]}(") : code.index(");")]
    names = [port.name for port in EXPORTABLE[key].ports(SMALL)]
    assert re.split(r"\W+", header.partition("(")[2]) == names
    declared = re.findall(r"^  (input|output) (?:\[(\d+):0\] )?(\w+);", code.split("endmodule")[0], re.M)
    assert sorted((d, int(high or 0) + 1, n) for d, high, n in declared) == sorted(
        (p.direction, p.width, p.name) for p in EXPORTABLE[key].ports(SMALL)
    )


def test_a_part_without_floats_says_so_and_has_the_same_ports(tmp_path):
    part = export_verilog("ppu", tmp_path, config=replace(SMALL, floats=False)).read_text()
    line = next(line for line in part.splitlines() if "geometry" in line)
    assert ", geometry small, without floating-point arithmetic;" in line
    ports = EXPORTABLE["ppu"].ports(SMALL)
    assert EXPORTABLE["ppu"].ports(replace(SMALL, floats=False)) == ports
    assert all(f" {port.name}" in part for port in ports)
    # Eight exact sums of fp16 are what makes a partial result wide: 416 bits and ten more, else 256.
    assert "[425:0]" not in part and "[265:0]" in part


def test_same_sources_give_the_same_bytes(tmp_path):
    script = (
        "import sys; from pathlib import Path; from rkcosim.export import export_verilog\n"
        "for key in ('ddma', 'pc', 'soc', 'ppu_registers'):\n"
        "    export_verilog(key, Path(sys.argv[1]), config='small')"
    )
    for seed in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / seed)], check=True, cwd=REPOSITORY, env=env
        )
    files = sorted(path.name for path in (tmp_path / "1").iterdir())
    assert len(files) == 4
    for name in files:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes(), name


def test_sources_as_attributes_only_when_asked(tmp_path):
    plain = export_verilog("interrupt", tmp_path / "plain", config=SMALL).read_text()
    traced = export_verilog("interrupt", tmp_path / "traced", config=SMALL, sources=True).read_text()
    assert "interrupt.py" not in plain
    assert '(* src = "rtl/interrupt.py:' in traced and str(REPOSITORY) not in traced


class _Small(wiring.Component):
    """A component of a user."""

    values: In(stream.Signature(data.StructLayout({"low": 4, "pair": data.ArrayLayout(signed(3), 2)})))
    total: Out(signed(5))

    def elaborate(self, platform: object) -> Module:
        m = Module()
        release = Signal(3)  # a keyword of Verilog
        pair = self.values.payload.pair
        m.d.comb += [self.values.ready.eq(release == 0), self.total.eq(pair[0] + pair[1])]
        m.d.sync += release.eq(release + self.values.valid)
        return m


class _Described(wiring.Component):
    """A component of a user with texts.

    Members
    -------
    one : Out(1) : the first of two. The second sentence is not shown.
    other : Out(1)
        all in the next line.
    last : ends a task.
    """

    one: Out(1)
    other: Out(1)
    last: In(1)

    def elaborate(self, platform: object) -> Module:
        return Module()


def test_any_component_can_be_exported(tmp_path):
    path = export_verilog(_Small(), tmp_path, name="small_one")
    text = path.read_text()
    assert path.name == "small_one.v"
    for line in (
        r"input \[3:0\] values_payload_low;",
        r"input \[2:0\] values_payload_pair_1;",
        r"output \[4:0\] total;",
        r"reg \[2:0\] release_ = 3'h0;",
    ):
        assert re.search(line, text), line
    with pytest.raises(ExportError, match="needs a name"):
        export_verilog(taken(_Small()), tmp_path)


def test_the_folder_may_be_a_text(tmp_path):
    assert export_verilog("interrupt", str(tmp_path / "made")) == tmp_path / "made" / "npu_interrupt.v"


def test_unknown_names_are_refused(tmp_path):
    with pytest.raises(ExportError, match="'tpu'; there are core, soc, pc"):
        export_verilog("tpu", tmp_path)
    with pytest.raises(ExportError, match="'huge'; there are rk3588, small"):
        export_verilog("pc", tmp_path, config="huge")


def test_the_soc_brings_its_core():
    assert [item.key for item in chosen(["soc"])] == ["core", "soc"]
    assert [item.key for item in chosen([])] == list(EXPORTABLE)
    assert "depend:\n    - rkcosim:npu:npu_core:" in core_file(EXPORTABLE["soc"], external_cell=False)
    apart = core_file(EXPORTABLE["core"], external_cell=True)
    assert "depend: ['rkcosim:npu:npu_array_cell:" in apart and "filesets: [rtl, cell, bench]" in apart
    assert "filesets: [waivers, rtl, cell_cpp, bench]" in apart and "cell/npu_cell_dpi.cpp" in apart
    assert "sim_verilator" not in core_file(EXPORTABLE["soc"], external_cell=True)
    assert "depend" not in core_file(EXPORTABLE["core"], external_cell=False)
    assert [item.key for item in chosen(["soc"], external_cell=True)] == ["core", "soc", "array_cell"]
    assert [item.key for item in chosen(["cbuf"], external_cell=True)] == ["cbuf"]


def test_lists_name_the_files_of_each_tool():
    """With the cell apart, Verilator takes it in C++ and the other tools in Verilog."""
    made = lists(sources_of(EXPORTABLE["soc"], external_cell=True))
    verilator, icarus = made["npu_soc.verilator.f"].splitlines(), made["npu_soc.icarus.f"].splitlines()
    assert icarus[1:] == ["npu_soc.v", "npu_core.v", "npu_array_cell.v"]
    assert {"npu.vlt", "npu_soc.ports.vlt", "npu_soc.v", "npu_core.v", "--no-public-flat-rw"} <= set(
        verilator
    )
    cpp = {line for line in verilator if line.startswith("cell/")}
    assert cpp == {f"cell/{path.name}" for path in cell_files() if path.suffix != ".h"} and len(cpp) == 4
    assert "npu_array_cell.v" not in verilator and "--output-split 20000" in verilator
    told = json.loads(made["npu_soc.cocotb.json"])
    assert told["icarus"]["sources"] == icarus[1:]
    assert set(told["verilator"]["sources"]) | set(told["verilator"]["build_args"]) >= cpp
    assert "read_verilog npu_soc.v npu_core.v npu_array_cell.v" in made["npu_soc.ys"]
    inside = lists(sources_of(EXPORTABLE["core"], external_cell=False))
    assert not any("cell" in text for text in inside.values())


def test_ports_are_public_and_nothing_else():
    ports = EXPORTABLE["interrupt"].ports(SMALL)
    said = re.findall(r'^public_flat_rw -module "(\w+)" -var "(\S+)"$', visible("npu_interrupt", ports), re.M)
    assert said == [("npu_interrupt", port.name) for port in ports]
    more = visible("npu_interrupt", ports, ["inside", "inside.x"]).splitlines()[-2:]
    assert more == [
        'public_flat_rw -module "inside" -var "*"',
        'public_flat_rw -module "inside" -var "x"',
    ]


def test_cell_left_out(tmp_path):
    text = export_verilog("core_block", tmp_path, config=SMALL, external_cell=True).read_text()
    assert re.search(r"^  npu_array_cell \w+ \($", text, re.M)
    assert "module npu_array_cell" not in text and len(text) < 200_000


def _command(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rkcosim.cli.main", "verilog", *words]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


def test_command(tmp_path):
    done = _command("-o", str(tmp_path), "--block", "axil_slave", "--geometry", "small", "--json", "-")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    (design,) = told["designs"]
    assert (told["geometry"], design["module"], design["ports"]) == ("small", "npu_axil_slave", 28)
    for name in (design["file"], design["core_file"], design["testbench"], told["waivers"]):
        assert (tmp_path / name).stat().st_size
    assert str(tmp_path / "npu_axil_slave.v") in done.stderr


def test_command_refuses_what_it_does_not_know(tmp_path):
    done = _command("-o", str(tmp_path / "out"), "--block", "tpu")
    assert done.returncode == 2 and "named 'tpu'" in done.stderr and len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()
