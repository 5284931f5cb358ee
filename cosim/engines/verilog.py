"""From Amaranth to RTLIL, Verilog and CXXRTL."""

from __future__ import annotations

import hashlib
import inspect
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rkcosim.engines import toolchain
from rkcosim.engines.clock_groups import CLOCK_GROUPS, without
from rkcosim.engines.protocol import BuildError

if TYPE_CHECKING:
    from rkcosim.engines.clock_gates import Groups

TOP = "core"
"""Module name of the compiled core: Verilator's class is `Vcore`, CXXRTL's `p_core`."""

WRITTEN = "core.v"
"""Name of the file of `write_verilog`."""

PLAIN_NAMES = Path(__file__).with_name("plain_names.py")
"""The module that names the signals of `verilog_text`, which is imported when the text is written."""

SCRIPT_VERSION = 10  # part of every key; to be incremented when the output of this file changes


class Design:
    """A core to compile or simulate.

    Parameters
    ----------
    make : function of one keyword, `external_cell` (bool), that returns a new component with the ports of
        `rkcosim.rtl.core.NpuCore`. With `external_cell` the array cell is left to the engine. With
        `has_dpu_cell` it has a second keyword, `external_dpu_cell`, for the stages of the DPU.
    fingerprint : function that quickly computes a text that is equal for equal designs, or None if only the
        RTLIL can tell; None: always so.
    has_cell : True if `make` can leave out the array cell.
    has_dpu_cell : True if `make` can leave out the stages of the DPU.
    clock_groups : groups of blocks with gated clocks (rkcosim.engines.clock_gates), or None.
    config : geometry (`rkcosim.spec.config.NpuConfig`) of the project's core, None for another core.
    """

    def __init__(
        self,
        make: Callable[..., Any],
        *,
        fingerprint: Callable[[], str | None] | None = None,
        has_cell: bool,
        has_dpu_cell: bool = False,
        clock_groups: Groups | None = None,
        config: Any = None,
    ) -> None:
        self.make = make
        self.config = config
        self.clock_groups = clock_groups
        self.has_cell, self.has_dpu_cell = has_cell, has_dpu_cell
        self._fingerprint = fingerprint
        self._rtlil: dict[tuple[bool, bool, bool], str] = {}

    def fingerprint(
        self, external_cell: bool, assertions: bool = False, external_dpu_cell: bool = False
    ) -> str | None:
        """Return a quickly computed hash that represents the RTLIL, or None."""
        quick = self._fingerprint() if self._fingerprint is not None else None
        if quick is None:
            return None
        more = (" assertions" if assertions else "") + (" DPU cell" if external_dpu_cell else "")
        return hashlib.sha256(f"{SCRIPT_VERSION} {external_cell} {quick}{more}".encode()).hexdigest()

    def rtlil(self, external_cell: bool, assertions: bool = False, external_dpu_cell: bool = False) -> str:
        """Return the RTLIL text, without initial values of memories that are all zero.

        With `assertions` it has those of rtl/assertions.py.
        """
        form = external_cell, assertions, external_dpu_cell
        if form not in self._rtlil:
            from rkcosim.rtl.assertions import Assertions

            platform = Assertions() if assertions else None
            keywords = {"external_dpu_cell": True} if external_dpu_cell else {}
            text = rtlil_of(self.make(external_cell=external_cell, **keywords), TOP, platform=platform)
            self._rtlil[form] = drop_zero_memories(text)
        return self._rtlil[form]


def npu_design(config: Any) -> Design:
    """Return the design of `rkcosim.rtl.core.NpuCore` with a configuration."""

    def make(*, external_cell: bool, external_dpu_cell: bool = False) -> Any:
        from rkcosim.rtl.core import NpuCore  # the RTL is elaborated only if nothing is cached

        return NpuCore(config, external_cell=external_cell, external_dpu_cell=external_dpu_cell)

    def fingerprint() -> str | None:
        known = rtl_hash()
        return f"{config!r} {known}" if known else None

    groups = CLOCK_GROUPS if config.floats else without(CLOCK_GROUPS, "dpu.pipe.floats")
    return Design(
        make,
        fingerprint=fingerprint,
        has_cell=True,
        has_dpu_cell=config.floats,
        clock_groups=groups,
        config=config,
    )


def as_design(design: Any) -> Design:
    """Return a `Design` for a `Design`, a component, or a function that makes one.

    A function with a parameter `external_cell` indicates that its design has an array cell.
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
    """Hash everything from which the RTL is made: `rtl/**`, `spec/**` and the version of Amaranth.

    None if a file is newer than this process's import of `spec`, since the imported code may be older.
    """
    from rkcosim import rtl, spec

    digest = hashlib.sha256(metadata.version("amaranth").encode())  # its import is slow
    for room in (rtl, spec):
        root = Path(next(iter(room.__path__)))
        for path in sorted(root.rglob("*")):
            if path.suffix in (".py", ".rdl") and path.is_file():
                if path.stat().st_mtime > spec.IMPORTED_AT:
                    return None
                digest.update(str(path.relative_to(root.parent)).encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()


def rtlil_of(
    elaboratable: Any,
    name: str,
    *,
    ports: Mapping[str, Any] | None = None,
    sources: bool = False,
    platform: object = None,
) -> str:
    """Return the RTLIL of a design.

    Parameters
    ----------
    name : name of the top module.
    ports : signals and directions of its ports by name; None: those of the component's signature.
    sources : keep the source positions as attributes, relative to the folder of the package.
    platform : with which the design is elaborated.
    """
    from amaranth.back import rtlil  # slow to import, and not needed if everything is cached

    from rkcosim.engines import quick_rtlil

    with quick_rtlil.quickly():
        text = rtlil.convert(elaboratable, name=name, platform=platform, ports=ports, emit_src=sources)
    return _SOURCE.sub(_relative, text) if sources else text


_SOURCE = re.compile(r'(?<=attribute \\src ")[^"]*(?=")')


def _relative(places: re.Match[str]) -> str:
    return "|".join(map(relative_place, places[0].split("|")))


def relative_place(place: str) -> str:
    """Return a source position relative to the folder of the package, or without its folder if outside."""
    from rkcosim import rtl

    root = f"{Path(next(iter(rtl.__path__))).parent}/"
    return place.removeprefix(root) if place.startswith(root) else place.rpartition("/")[2]


_MEMINIT = re.compile(r"^ *cell \$meminit_v2 .*?^ *end\n", re.MULTILINE | re.DOTALL)
_ZERO_DATA = re.compile(r"connect \\DATA (?:\d+'0+|\{[^}1x]*\})$", re.MULTILINE)


def drop_zero_memories(rtlil: str) -> str:
    """Remove initial values of memories that are all zero (every engine starts with zeros anyway).

    In the Verilog they would be one line per row.
    """
    return _MEMINIT.sub(lambda cell: "" if _ZERO_DATA.search(cell[0]) else cell[0], rtlil)


def write_verilog(
    rtlil: str, folder: Path, clock_groups: Groups | None = None, *, watched: bool = False
) -> Path:
    """Write `core.v` into `folder` (with the RTLIL and the script used).

    With `clock_groups` the clocks are gated, or, if `watched`, the registers checked.
    """
    path = _yosys_verilog(rtlil, folder, _BRANCHES)
    text = _TRIGGER.sub(r"_trigger_\1 ", constants_at_start(path.read_text()))
    text = told_assertions(replicated(text))
    if clock_groups:
        from rkcosim.engines.clock_gates import add_awake, gate_clocks, watch_clocks

        text = add_awake(text, TOP, clock_groups)
        text = (watch_clocks if watched else gate_clocks)(text, TOP, clock_groups)
    path.write_text(text)
    return path


_ASSERTED = re.compile(
    r'^( *)if \(!(\S+)\)\n *\$write\(("(?:[^"\\]|\\.)*")\);\n *assert \(\2\);$', re.MULTILINE
)
"""An assertion with a message, as Yosys writes it."""

_MODULE = re.compile(r"^module \\?(\S+) *\(.*?^endmodule$", re.MULTILINE | re.DOTALL)


def told_assertions(text: str) -> str:
    """Let each assertion of Yosys's Verilog tell a function of the harness its module and its message.

    The name of a module is the path of its instance; Verilator's `%m` would make it keep a list of scopes.

    Raises
    ------
    BuildError
        if one is left, which would end the process instead.
    """

    def told(module: re.Match[str]) -> str:
        path = re.sub(r"\$\d+", "", module[1]).removeprefix(f"{TOP}.").removesuffix(f".{CHECKS}")
        return _ASSERTED.sub(rf'\1if (!\2) rk_assertion("{path}", \3);', module[0])

    if not re.search(r"^ *assert\b", text, re.MULTILINE):
        return text
    from rkcosim.rtl.assertions import CHECKS  # Amaranth is imported only if there are assertions

    text = _MODULE.sub(told, text)
    if re.search(r"^ *assert\b", text, re.MULTILINE):
        raise BuildError("Yosys writes assertions in an unknown form")
    return f'import "DPI-C" function void rk_assertion(input string where, input string what);\n{text}'


def verilog_text(
    rtlil: str, top: str, ports: Sequence[str] = (), *, sources: bool = False, branches: bool = False
) -> str:
    """Return Verilog-2005 of a design for other tools: plain names, continuous assignments, initial values.

    Combinational logic is not in `always @*` by default, since Icarus with `-g2012` does not evaluate it
    until one of its input signals changes.

    Parameters
    ----------
    rtlil : output of `amaranth.back.rtlil`, with or without initial values of zero-filled memories.
    top : name of the top module, and prefix of the other modules' names.
    ports : the ports of the top module in the wanted order; empty: any order.
    sources : keep the attributes `src`, the source positions.
    branches : write `if` and `case` in `always @*` instead, which Verilator simulates faster.
    """
    from rkcosim.engines.plain_names import plain_rtlil

    with tempfile.TemporaryDirectory(prefix="rkcosim-verilog-") as folder:
        text = _UNKNOWN_START.sub(_as_zero, drop_zero_memories(plain_rtlil(rtlil, top, ports)))
        path = _yosys_verilog(text, Path(folder), _BRANCHES if branches else "proc", attributes=sources)
        text = path.read_text()
    text = constants_at_start(text[text.index("*/") + 2 :].lstrip())  # without Yosys's version
    text = _TRIGGER.sub(r"trigger_\1_ ", text)
    return _MEMORY.sub(_zero_at_start, text)


def text_fingerprint() -> bytes:
    """Hash of what `verilog_text` depends on besides the design and Yosys."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in (Path(__file__), PLAIN_NAMES))).digest()


def _as_zero(found: re.Match[str]) -> str:
    return found[1] + "0" * len(found[2])


_UNKNOWN_START = re.compile(r"^(    parameter \\INIT_VALUE \d+')(x+)$", re.MULTILINE)
"""Initial values of memories' read ports, which are 0 in Amaranth."""

_MEMORY = re.compile(r"^  reg (?:\[\d+:0\] )?(\w+) \[(\d+):0\];\n(?!  initial begin)", re.MULTILINE)


def _zero_at_start(memory: re.Match[str]) -> str:
    name, last = memory.groups()
    loop = f"for (row = 0; row <= {last}; row = row + 1) {name}[row] = 0;"
    return f"{memory[0]}  initial begin : {name}_start\n    integer row;\n    {loop}\n  end\n"


_BRANCHES = "proc -nomux -norom"
"""Pass of Yosys that keeps decisions as `if` and `case`."""


def _yosys_verilog(rtlil: str, folder: Path, process: str, *, attributes: bool = False) -> Path:
    (folder / "core.il").write_text(rtlil)
    script = ["read_rtlil core.il", process, "memory_collect"]
    script += [f"write_verilog {'' if attributes else '-noattr '}{WRITTEN}"]
    (folder / "verilog.ys").write_text("\n".join(script) + "\n")
    toolchain.yosys().run(["verilog.ys"], folder)
    check_whole(folder / WRITTEN)
    return folder / WRITTEN


def check_whole(path: Path) -> None:
    """Check that a Verilog file which a tool wrote is there and has not been cut.

    Yosys ends without an error if the disk is full.

    Raises
    ------
    BuildError
        if it is not whole; the message names it.
    """
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BuildError(f"{path} was not written by Yosys: {error}") from error
    begun, ended = (len(re.findall(rf"^{word}\b", text, re.MULTILINE)) for word in ("module", "endmodule"))
    if not begun or begun != ended or not text.rstrip().endswith("endmodule"):
        raise BuildError(
            f"{path} was cut by Yosys, with {begun} beginnings and {ended} ends of modules: is the disk full?"
        )


_TRIGGER = re.compile(r"\\\$auto\$verilog_backend\.cc:\d+:dump_module\$(\d+) ")
"""Helper registers of Yosys, with names that waveform viewers cannot read."""

_CONSTANT = re.compile(r"^  always @\*\n(    \S.* = \d+'[bdh][0-9a-fA-FxXzZ]+;)$", re.MULTILINE)


def constants_at_start(text: str) -> str:
    """Repair Yosys's output for a register with some constant bits.

    Yosys assigns those bits in an `always @*` that nothing triggers, so they would never be set.
    """
    return _CONSTANT.sub(r"  initial\n\1", text)


_REPEATED = re.compile(r"(?<=\{ |, )((?:\\\S+ |\w+)(?:\[\d+(?::\d+)?\])?)((?:, \1)+)(?=,| \})")


def replicated(text: str) -> str:
    """Write equal neighbours in concatenations of Yosys's Verilog as replications, `{4{a[7]}}`.

    Yosys extends signs bit by bit. Verilator shifts every such bit into its place, but makes one negation of
    a replication.
    """

    def replication(run: re.Match[str]) -> str:
        return f"{{{1 + run[2].count(f', {run[1]}')}{{{run[1]}}}}}"

    return _REPEATED.sub(replication, text)


CXXRTL_OPTIONS = ("-header", "-noflatten")
"""Not flattened: a compiler takes ten minutes instead of one for a single function of the whole core."""


def write_cxxrtl(rtlil: str, folder: Path, *, traced: bool, black_boxes: list[Path]) -> Path:
    """Write `core.cc` and `core.h` into `folder`; `black_boxes` are Verilog or RTLIL of C++ modules."""
    (folder / "core.il").write_text(rtlil)
    script = []
    for path in black_boxes:
        (folder / path.name).write_text(path.read_text())
        script.append(f"{'read_rtlil' if path.suffix == '.il' else 'read_verilog -sv'} {path.name}")
    # `select` includes black boxes, without which the struct of the box would be missing.
    script += ["read_rtlil core.il", "hierarchy -top core", "select =*"]
    script += [f"write_cxxrtl {' '.join(CXXRTL_OPTIONS)} -g{3 if traced else 0} core.cc"]
    (folder / "cxxrtl.ys").write_text("\n".join(script) + "\n")
    toolchain.yosys().run(["cxxrtl.ys"], folder)
    return folder / "core.cc"
