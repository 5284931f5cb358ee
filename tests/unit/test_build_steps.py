"""Steps of an engine's build: RTLIL, C++ files that are compiled together, progress."""

from __future__ import annotations

import ctypes
import gc
from pathlib import Path
from typing import Any

import pytest
from amaranth.back import rtlil
from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.hdl._nir import CombinationalCycle

from rkcosim.engines import compilation, verilog
from rkcosim.engines.build import Variant, core_verilog
from rkcosim.engines.compilation import Compilation, Source, together
from rkcosim.engines.quick_rtlil import quickly
from tests.programs import needs_program


class Sums(Elaboratable):
    """Operators of all kinds; with `loop`, a sum that depends on itself through a selection."""

    def __init__(self, loop: bool = False) -> None:
        self.a, self.b, self.out, self.kept = Signal(8), Signal(8), Signal(8), Signal(8)
        self.loop = loop

    def elaborate(self, platform: Any) -> Module:
        m = Module()
        between = Signal(8)
        m.d.comb += between.eq((self.a + self.b) ^ (self.out if self.loop else self.a)[:4])
        with m.Switch(self.b[:2]):
            with m.Case(1):
                m.d.comb += self.out.eq(between * 3)
            with m.Default():
                m.d.comb += self.out.eq(~between.rotate_left(2))
        m.d.sync += self.kept.bit_select(self.a[:3], 2).eq(self.out)
        return m


def text_of(design: Sums) -> str:
    ports = [design.a, design.b, design.out, design.kept]
    return str(rtlil.convert(design, ports=ports, emit_src=False))


def test_quick_rtlil_is_the_same() -> None:
    from amaranth.hdl import _nir

    names = ("check_comb_cycles", "resolve_value")
    before = [vars(_nir.Netlist)[name] for name in names]
    expected = text_of(Sums())
    with quickly():
        assert not gc.isenabled() and vars(_nir.Netlist)["check_comb_cycles"] is not before[0]
        found = text_of(Sums())
    assert found == expected and "$mul" in found and gc.isenabled()
    assert [vars(_nir.Netlist)[name] for name in names] == before


def test_a_combinational_cycle_is_still_explained() -> None:
    with pytest.raises(CombinationalCycle) as expected:
        text_of(Sums(loop=True))
    with quickly(), pytest.raises(CombinationalCycle) as found:
        text_of(Sums(loop=True))
    assert str(found.value) == str(expected.value) and "signal between" in str(found.value)


@needs_program("g++")
def test_small_files_are_compiled_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = []
    for number in range(8):
        path = tmp_path / f"part_{number}.cpp"
        path.write_text(f'extern "C" int part_{number}() {{ return {number}; }}\n' + "// long\n" * 20)
        sources.append(Source(path, [], "-O1" if number < 6 else "-O0"))
    size = sources[0].path.stat().st_size
    monkeypatch.setattr(compilation, "TOGETHER", 2 * size)
    monkeypatch.setattr(compilation, "TOGETHER_UNOPTIMISED", size)
    found = together(sources, tmp_path, 100)
    assert sorted(source.optimise for source in found) == ["-O0", "-O0", "-O1", "-O1", "-O1"]
    assert {source.path for source in found if source.optimise == "-O0"} == {s.path for s in sources[6:]}

    for processors, files in ((1, 2 + 1), (2, 3 + 2), (100, 3 + 2)):  # the fewer, the larger
        (folder := tmp_path / f"{processors}").mkdir()
        assert len(together(sources, folder, processors)) == files

    lines: list[str] = []
    states: list[str] = []
    work = Compilation(tmp_path, lambda optimise, usual: [optimise, "-fPIC"])
    try:
        work.begin(found[:2])
        work.finish(found[2:], tmp_path / "all.so", [], lines.append, states.append)
    finally:
        work.close()
    library = ctypes.CDLL(str(tmp_path / "all.so"))
    assert [getattr(library, f"part_{number}")() for number in range(8)] == list(range(8))
    assert states == [f"compiling {n}/5 files" for n in range(1, 6)]
    assert lines[0].startswith("compiling 5 C++ files") and lines[1:4] == [
        "2/5 files compiled", "3/5 files compiled", "4/5 files compiled"
    ]  # fmt: skip


def test_the_verilog_is_kept_for_other_variants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RKCOSIM_CACHE", str(tmp_path / "cache"))
    made: list[bool] = []

    class Counted(verilog.Design):
        def rtlil(
            self, external_cell: bool, assertions: bool = False, external_dpu_cell: bool = False
        ) -> str:
            made.append(external_cell)
            return text_of(Sums())

    design = Counted(Sums, has_cell=True)
    texts = []
    for number, (variant, origin) in enumerate(
        [
            (Variant("verilator", "cpp"), "one"),
            (Variant("verilator", "cpp", traced=True), "one"),
            (Variant("verilator", "rtl"), "one"),
            (Variant("verilator", "cpp"), "two"),
        ]
    ):
        work = tmp_path / str(number)
        work.mkdir()
        texts.append(core_verilog(design, variant, work, origin, lambda text: None).read_text())
    assert made == [True, False, True], "the second variant takes the first one's"
    assert "module" in texts[0] and texts[0] == texts[1]
