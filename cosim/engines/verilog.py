"""From Amaranth to RTLIL, Verilog and CXXRTL."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cosim.engines import toolchain
from cosim.engines.clock_gates import Groups, gate_clocks, watch_clocks

TOP = "core"
"""Module name of the compiled core: Verilator's class is `Vcore`, CXXRTL's `p_core`."""

SCRIPT_VERSION = 5  # part of every key: count up when what this file writes changes


class Design:
    """A core to compile or simulate.

    Parameters
    ----------
    make : function of one keyword, `external_cell` (bool), that returns a fresh component with the
        ports of `rtl.core.NpuCore`.  With `external_cell` the array cell is left to the engine.
    fingerprint : function that returns a cheap text, equal for equal designs, or None where only the
        RTLIL itself can tell; None: that is always so.
    has_cell : whether `make` can leave the array cell out.
    clock_groups : groups of blocks with clocks of their own (cosim.engines.clock_gates), or None.
    """

    def __init__(
        self,
        make: Callable[..., Any],
        *,
        fingerprint: Callable[[], str | None] | None = None,
        has_cell: bool,
        clock_groups: Groups | None = None,
    ) -> None:
        self.make = make
        self.clock_groups = clock_groups
        self.has_cell = has_cell
        self._fingerprint = fingerprint
        self._rtlil: dict[bool, str] = {}

    def fingerprint(self, external_cell: bool) -> str | None:
        """A cheap hash that stands for the RTLIL, or None."""
        quick = self._fingerprint() if self._fingerprint is not None else None
        if quick is None:
            return None
        text = f"{SCRIPT_VERSION} {external_cell} {quick}"
        return hashlib.sha256(text.encode()).hexdigest()

    def rtlil(self, external_cell: bool) -> str:
        """The RTLIL text, without initial values of memories that are all zero."""
        if external_cell not in self._rtlil:
            from amaranth.back import rtlil  # slow to import, and not needed when all is cached

            with _quickly(rtlil):
                text = rtlil.convert(self.make(external_cell=external_cell), name=TOP, emit_src=False)
            self._rtlil[external_cell] = drop_zero_memories(text)
        return self._rtlil[external_cell]


def npu_design(config: Any) -> Design:
    """`rtl.core.NpuCore` of a configuration."""

    def make(*, external_cell: bool) -> Any:
        from rtl.core import NpuCore  # the RTL is elaborated only when nothing is cached

        return NpuCore(config, external_cell=external_cell)

    def fingerprint() -> str | None:
        known = rtl_hash()
        return f"{config!r} {known}" if known else None

    from rtl.clock_groups import CLOCK_GROUPS

    return Design(make, fingerprint=fingerprint, has_cell=True, clock_groups=CLOCK_GROUPS)


def as_design(design: Any) -> Design:
    """A `Design` from a `Design`, a component, or a function that makes one.

    A function with a parameter `external_cell` says that its design has an array cell.
    """
    if isinstance(design, Design):
        return design
    if hasattr(design, "elaborate") and not inspect.isclass(design):
        return Design(lambda external_cell: design, has_cell=False)
    if not callable(design):
        raise TypeError(f"design must be a component or a function that makes one, not {design!r}")
    if "external_cell" in inspect.signature(design).parameters:
        return Design(design, has_cell=True)
    return Design(lambda external_cell: design(), has_cell=False)


def rtl_hash() -> str | None:
    """Hash of everything the RTL is made from: `rtl/**` and the version of Amaranth.

    None if a file is younger than this process's import of `rtl`: what is imported may be older.
    """
    import amaranth

    import rtl

    digest = hashlib.sha256(amaranth.__version__.encode())
    root = Path(next(iter(rtl.__path__)))
    for path in sorted(root.rglob("*")):
        if path.suffix in (".py", ".rdl") and path.is_file():
            if path.stat().st_mtime > rtl.IMPORTED_AT:
                return None
            digest.update(str(path.relative_to(root)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


@contextlib.contextmanager
def _quickly(rtlil: Any) -> Iterator[None]:
    """Keep Amaranth from writing out zero memories bit by bit (a third of its time on the core).

    Touches a name that Amaranth does not promise; where it is gone, only speed is lost.
    """
    emitter: Any = getattr(rtlil, "ModuleEmitter", None)
    original: Any = getattr(emitter, "emit_memory", None)

    def emit_memory(self: Any, index: Any, cell: Any) -> None:
        if any(cell.init):
            original(self, index, cell)

    collecting = gc.isenabled()
    gc.disable()  # all of it lives until the end
    if original is not None:
        emitter.emit_memory = emit_memory
    try:
        yield
    finally:
        if original is not None:
            emitter.emit_memory = original
        if collecting:
            gc.enable()


_MEMINIT = re.compile(r"^ *cell \$meminit_v2 .*?^ *end\n", re.MULTILINE | re.DOTALL)
_ZERO_DATA = re.compile(r"connect \\DATA (?:\d+'0+|\{[^}1x]*\})$", re.MULTILINE)


def drop_zero_memories(rtlil: str) -> str:
    """Remove initial values of memories that are zero throughout (every engine starts there anyway).

    Written out they would be one line of Verilog per row.
    """
    return _MEMINIT.sub(lambda cell: "" if _ZERO_DATA.search(cell[0]) else cell[0], rtlil)


def write_verilog(
    rtlil: str, folder: Path, clock_groups: Groups | None = None, *, watched: bool = False
) -> Path:
    """Write `core.v` into `folder` (and the RTLIL and script it came from).

    With `clock_groups` their clocks are gated, or, if `watched`, their registers checked.
    """
    (folder / "core.il").write_text(rtlil)
    script = ["read_rtlil core.il", "proc -nomux -norom", "memory_collect"]
    script += ["write_verilog -noattr core.v"]
    (folder / "verilog.ys").write_text("\n".join(script) + "\n")
    toolchain.yosys().run(["verilog.ys"], folder)
    path = folder / "core.v"
    text = _TRIGGER.sub(r"_trigger_\1 ", constants_at_start(path.read_text()))
    if clock_groups:
        text = (watch_clocks if watched else gate_clocks)(text, TOP, clock_groups)
    path.write_text(text)
    return path


_TRIGGER = re.compile(r"\\\$auto\$verilog_backend\.cc:\d+:dump_module\$(\d+) ")
"""Helper registers of Yosys, under names that waveform viewers cannot read."""

_CONSTANT = re.compile(r"^  always @\*\n(    \S.* = \d+'[bdh][0-9a-fA-FxXzZ]+;)$", re.MULTILINE)


def constants_at_start(text: str) -> str:
    """Repair what Yosys writes for a register of which some bits are constant.

    It gives those bits an `always @*` that nothing can trigger, so they would never be assigned.
    """
    return _CONSTANT.sub(r"  initial\n\1", text)


CXXRTL_OPTIONS = ("-header", "-noflatten")
"""Not flattened: one function for the whole core takes a compiler ten minutes instead of one."""


def write_cxxrtl(rtlil: str, folder: Path, *, traced: bool, black_boxes: list[Path]) -> Path:
    """Write `core.cc` and `core.h` into `folder`; `black_boxes` are Verilog or RTLIL of C++ modules."""
    (folder / "core.il").write_text(rtlil)
    script = []
    for path in black_boxes:
        (folder / path.name).write_text(path.read_text())
        script.append(f"{'read_rtlil' if path.suffix == '.il' else 'read_verilog -sv'} {path.name}")
    # `select` brings back black boxes, without which the box's struct would be missing.
    script += ["read_rtlil core.il", "hierarchy -top core", "select =*"]
    script += [f"write_cxxrtl {' '.join(CXXRTL_OPTIONS)} -g{3 if traced else 0} core.cc"]
    (folder / "cxxrtl.ys").write_text("\n".join(script) + "\n")
    toolchain.yosys().run(["cxxrtl.ys"], folder)
    return folder / "core.cc"
