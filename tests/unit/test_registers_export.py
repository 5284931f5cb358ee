"""The registers in the forms of other tools: `rkcosim registers`, and PeakRDL's exporters on spec/regs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from systemrdl import RDLCompiler
from systemrdl.node import FieldNode, RegNode

from rkcosim.base.extras import MissingPackage
from rkcosim.export import ExportError
from rkcosim.export import registers as export
from rkcosim.spec.config import RK3588
from rkcosim.spec.regs import registers, table
from rkcosim.spec.regs.counters import BASE_ADDRESS, WINDOW_BYTES
from rkcosim.spec.regs.table import CORE_ADDRESS, CORE_BYTES, counter_registers

FOLDER = Path(table.__file__).parent


def command(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "rkcosim.cli.main", "registers", *words]
    return subprocess.run(line, cwd=folder, capture_output=True, text=True, check=False)


def fields(node: RegNode) -> dict[str, tuple[int, int, int]]:
    return {f.inst_name: (f.lsb, f.width, int(f.get_property("reset") or 0)) for f in node.fields()}


def test_one_file_is_the_whole_description(tmp_path: Path):
    done = command("--format", "rdl", "-o", "npu.rdl", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "npu.rdl").read_text()
    assert "`include" not in text
    compiler = RDLCompiler()
    compiler.compile_file(str(tmp_path / "npu.rdl"))
    top = compiler.elaborate().top
    assert top.inst_name == "npu_core", "tools take the last address map"
    found = {node.absolute_address: fields(node) for node in top.descendants() if isinstance(node, RegNode)}
    assert found == {
        register.offset: {f.name: (f.lsb, f.width, f.reset) for f in register.fields.values()}
        for block in registers()
        for register in block
    }
    assert compiler.elaborate("npu_counters").top.size > 0 and compiler.elaborate("regcmd_word").top.size == 8


def test_properties_say_what_a_bit_bash_may_do():
    """Software may write what changes by itself or starts something only where the description says so."""
    compiler = RDLCompiler()
    compiler.compile_file(str(FOLDER / table.TOP))
    starts = set()
    for node in compiler.elaborate("npu_core").top.descendants():
        if not isinstance(node, FieldNode):
            continue
        assert node.get_property("hw").name in ("r", "w", "na") or node.get_property("we"), node.get_path()
        if node.get_property("singlepulse"):
            assert not node.is_sw_readable, node.get_path()
            starts.add(node.get_path(array_suffix=""))
    blocks = ("PC", "CNA", "CORE", "DPU", "DPU_RDMA", "PPU", "PPU_RDMA")
    named = {path.split(".")[1] for path in starts if path.endswith("OPERATION_ENABLE.OP_EN")}
    assert named == set(blocks) and sum(".GLOBAL." in path for path in starts) == 6
    assert all(path.rsplit(".", 2)[1] == "OPERATION_ENABLE" for path in starts)


EXPORTERS = {
    "html": ("index.html",),
    "uvm": (),
    "c-header": (),
    "ip-xact": (),
    "python": (),
    "regblock": ("npu_core.sv", "npu_core_pkg.sv"),
    "pyuvm": (),
}
"""PeakRDL's exporters, with files of those that write a folder."""


@pytest.mark.parametrize("exporter", EXPORTERS)
def test_peakrdl_takes_the_file(exporter, tmp_path: Path):
    out = tmp_path / "out"
    line = ["-m", "peakrdl", exporter, str(FOLDER / table.TOP), "-o", str(out)]
    done = subprocess.run([sys.executable, *line], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    for name in EXPORTERS[exporter]:
        assert (out / name).stat().st_size > 1000
    if not EXPORTERS[exporter] and out.is_file():
        assert "CONV_CON1" in out.read_text()
    elif exporter == "python":
        assert any("CONV_CON1" in path.read_text() for path in out.rglob("*.py"))


def test_regblock_of_a_block_is_sound(tmp_path: Path):
    """The properties are those of a register block that works: no field loses its value or its pulse."""
    from tests.verilog_tools import lint

    line = ["-m", "peakrdl", "regblock", str(FOLDER / table.TOP), "--top", "pc_block"]
    line += ["--cpuif", "axi4-lite-flat", "-o", str(tmp_path)]
    done = subprocess.run([sys.executable, *line], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    text = (tmp_path / "pc_block.sv").read_text()
    assert re.search(r"OPERATION_ENABLE\.OP_EN\.next = '0|next_c = '0", text)
    names = ["pc_block_pkg.sv", "pc_block.sv"]
    said = lint(tmp_path, "pc_block", ["-Wno-fatal", *names])
    assert "%Error" not in said, said


def test_uvm_model_has_every_register_and_access(tmp_path: Path):
    export.export_registers("uvm", tmp_path / "npu_registers.sv")
    text = (tmp_path / "npu_registers.sv").read_text()
    assert "package npu_registers;" in text
    configured = re.findall(r'this\.(\w+)\.configure\(this, (\d+), (\d+), "(\w+)", (\d)', text)
    assert ("OP_EN", "1", "0", "WO", "1") in configured
    assert ("CONV_MODE", "4", "0", "RW", "0") in configured
    assert ("int_clr", "17", "0", "W1C", "0") in configured
    assert ("EXECUTER", "1", "16", "RO", "1") in configured
    assert sum(access == "RW" and volatile == "0" for *_, access, volatile in configured) > 300
    export.export_registers("uvm", tmp_path / "counters.sv", window="counters")
    assert "class npu_counters" in (tmp_path / "counters.sv").read_text()


@pytest.mark.parametrize("window", ("core", "counters"))
def test_uvm_model_compiles(window, tmp_path: Path):
    """With declarations as in IEEE 1800.2; Accellera's UVM is not here."""
    from tests.verilog_tools import lint

    package = Path(__file__).parents[1] / "verilog/uvm_pkg.sv"
    (tmp_path / "uvm_macros.svh").touch()
    model = tmp_path / "npu_model.sv"
    export.export_registers("uvm", model, window=window)
    text = model.read_text()
    for changed, good in ((text, True), (text.replace("1, 1, 0);", "1, 1, 0, 1);", 1), False)):
        top = "module top; import npu_model::*; npu_{0} model = new; initial model.build(); endmodule\n"
        model.write_text(changed + top.format(window))
        said = lint(tmp_path, "top", ["-Wno-fatal", "+incdir+.", str(package), model.name])
        assert ("%Error" not in said) is good, said


def test_pyuvm_model_is_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    export.export_registers("pyuvm", tmp_path / "npu_model_of_a_test.py")
    monkeypatch.syspath_prepend(tmp_path)
    import npu_model_of_a_test  # type: ignore[import-not-found]

    model = npu_model_of_a_test.npu_core("npu")
    model.build()
    model.lock_model()
    known = {r.get_address(): r.get_n_bits() for r in model.get_registers()}
    assert known == {r.offset: 32 for block in registers() for r in block}


def test_c_header_is_ours_and_html_a_folder(tmp_path: Path):
    done = command("--format", "c", "-o", "out/npu.h", folder=tmp_path)
    assert done.returncode == 0 and "rk_word(" in (tmp_path / "out" / "npu.h").read_text()
    export.export_registers("html", tmp_path / "pages")
    files = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert Path("pages/index.html") in files
    assert not any(".part" in str(path) for path in files)
    for path in (tmp_path / "pages").rglob("*.js*"):
        assert str(FOLDER) not in path.read_text("utf-8", "replace")
    with pytest.raises(ExportError, match="pages exists"):
        export.export_registers("html", tmp_path / "pages")


def test_json_document(tmp_path: Path):
    done = command("--format", "json", "-o", "npu.json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "npu.json").read_text())
    assert document["schema_version"] == 1 and set(document["windows"]) == {"core", "counters"}
    cna = next(block for block in document["windows"]["core"] if block["name"] == "CNA")
    register = next(one for one in cna["registers"] if one["name"] == "CONV_CON1")
    field = next(one for one in register["fields"] if one["name"] == "CONV_MODE")
    assert register["offset"] == 0x100C and register["groups"] == 2
    assert field["enum"]["DEPTHWISE"] == 3 and field["access"] == "rw" and field["description"]
    assert {one["name"] for one in document["word"]["fields"]} == {"TARGET", "VALUE", "OFFSET"}


def test_svd_has_the_schema_and_other_readers_read_the_same(tmp_path: Path):
    from cmsis_svd.parser import SVDParser
    from peakrdl_svd.importer import SVDImporter

    path = tmp_path / "npu.svd"
    export.export_registers("svd", path)
    valid, said = SVDParser.validate_xml_file(
        str(path), schema_version="1.3.9", schema_version_detection=False
    )
    assert valid, said
    device = SVDParser.for_xml_file(str(path)).get_device()
    found = {
        one.base_address + register.address_offset: (
            register.size,
            register.reset_value,
            {f.name: (f.bit_offset, f.bit_width) for f in register.fields},
        )
        for one in device.get_peripherals()
        for register in one.registers
    }
    wanted = {}
    for core in range(RK3588.cores):
        bases = (
            (registers(), CORE_ADDRESS + core * CORE_BYTES),
            (counter_registers(), BASE_ADDRESS + core * WINDOW_BYTES),
        )
        for window, base in bases:
            for register in (register for block in window for register in block):
                placed = {f.name: (f.lsb, f.width) for f in register.fields.values()}
                wanted[base + register.offset] = (register.width, register.reset, placed)
    assert found == wanted
    compiler = RDLCompiler()
    importer = SVDImporter(compiler)
    importer.import_file(str(path))
    top = compiler.elaborate().top
    read = {node.absolute_address for node in top.descendants() if isinstance(node, RegNode)}
    assert read == set(wanted)


def test_what_does_not_exist_is_named(tmp_path: Path):
    for words, said in (
        (
            ("--format", "svg", "-o", "x"),
            "named 'svg'; there are rdl, uvm, pyuvm, c, html, json, svd",
        ),
        (("--format", "uvm", "--window", "pc", "-o", "x"), "named 'pc'; there are core, counters"),
        (("--format", "c", "--window", "counters", "-o", "x"), "the form c has no choice of a window"),
    ):
        done = command(*words, folder=tmp_path)
        assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ("uvm", "pyuvm", "html"))
def test_a_missing_package_is_named(form, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    module = f"peakrdl_{form}"
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(
        MissingPackage, match=rf"peakrdl-{form}, which is not installed.*rkcosim\[registers\]"
    ):
        export.export_registers(form, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_export_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    from peakrdl_uvm import UVMExporter

    def broken(self: UVMExporter, node: object, path: str) -> None:
        Path(path).write_text("half", encoding="utf-8")
        raise OSError("no space")

    monkeypatch.setattr(UVMExporter, "export", broken)
    (tmp_path / "npu.sv").write_text("old")
    with pytest.raises(OSError, match="no space"):
        export.export_registers("uvm", tmp_path / "npu.sv")
    assert (tmp_path / "npu.sv").read_text() == "old" and len(list(tmp_path.iterdir())) == 1
