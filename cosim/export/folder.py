"""A folder of exported designs with files for other tools: waivers, benches, file lists, FuseSoC files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rkcosim.export.bench import RESET_CYCLES, SETTLE_CYCLES, testbench
from rkcosim.export.designs import CELL, EXPORTABLE, Exportable, exportable, geometry
from rkcosim.export.export import export_verilog, version
from rkcosim.export.lists import (
    CELL_FOLDER,
    VERILATOR_FLAGS,
    Sources,
    cell_files,
    cocotb_bench,
    lists,
    makefile,
    visible,
)
from rkcosim.waves.whole_file import make_folder, named

WAIVERS = "npu.vlt"
"""Name of the waiver file, the same for all designs."""

LIBRARY = "rkcosim:npu"
"""Vendor and library of the FuseSoC cores."""

_WAIVED = {
    "DECLFILENAME": "A file holds a design with all modules inside it, so most are not named as their file.",
    "UNUSEDSIGNAL": "Signals keep their names where a part of them or all of them is not used.",
    "PROCASSINIT": "Registers have their value after the reset as their initial value, too.",
    "VARHIDDEN": "Signals may have the name of an instance in the module above.",
    "WIDTHEXPAND": "Yosys leaves it to the rules of Verilog to extend operands,",
    "WIDTHTRUNC": "and to reduce a vector to one bit in conditions.",
    "CASEOVERLAP": "Selections between exclusive conditions are written as casez.",
    "UNSIGNED": "The first value of a loop in the source may make a comparison constant.",
    "SYMRSVDWORD": "With --public-flat-rw: signals may have the name of a keyword of C++.",
    "UNOPTFLAT": "With --public-flat-rw: bits of a vector that depend on others of its bits, in one place.",
}
"""Rules of Verilator that the generated text does not follow, with the reasons."""


_ONLY = {"UNOPTFLAT": "*csc.weights.*"}
"""Text in the messages that a rule is waived for, where that is not all of them."""


@dataclass(frozen=True)
class Written:
    """One design that was written.

    Members
    -------
    key, module : its name in commands and in Verilog.
    file, core_file, testbench : names of its files in the folder.
    ports, bytes, seconds : number of ports, size of the Verilog, duration of the export.
    """

    key: str
    module: str
    file: str
    core_file: str
    testbench: str
    ports: int
    bytes: int
    seconds: float


def chosen(keys: Iterable[str], *, external_cell: bool = False) -> list[Exportable]:
    """Return designs by their keys with those that they need, in the order of `EXPORTABLE`; none means all.

    Parameters
    ----------
    external_cell : also return the array cell if it is left out of one of them.

    Raises
    ------
    ExportError
        for an unknown key.
    """
    wanted = {key for key in keys} or set(EXPORTABLE)
    for key in list(wanted):
        wanted |= set(exportable(key).needs)
    if external_cell and any(EXPORTABLE[key].has_cell for key in wanted):
        wanted.add("array_cell")
    return [item for key, item in EXPORTABLE.items() if key in wanted]


def _waivers() -> str:
    lines = ["`verilator_config", "// SPDX-License-Identifier: Apache-2.0"]
    for rule, reason in _WAIVED.items():
        place = f' -match "{_ONLY[rule]}"' if rule in _ONLY else ""
        lines += [f"// {reason}", f'lint_off -rule {rule} -file "*npu_*v"{place}']
    return "\n".join([*lines, ""])


def sources_of(item: Exportable, *, external_cell: bool) -> Sources:
    """Return the files of a design with those that it needs."""
    needed = [EXPORTABLE[key] for key in item.needs]
    apart = external_cell and any(one.has_cell for one in (item, *needed))
    return Sources(
        item.module,
        WAIVERS,
        f"{item.module}.ports.vlt",
        tuple(f"{one.module}.v" for one in (item, *needed)),
        (f"{CELL}.v",) if apart else (),
        tuple(f"{CELL_FOLDER}/{path.name}" for path in cell_files()) if apart else (),
    )


def _kind(name: str) -> str:
    """Return FuseSoC's attributes of a file of the array cell in C++."""
    if name.endswith(".h"):
        return "file_type: cppSource, is_include_file: true"
    return "file_type: cppSource" if name.endswith(".cpp") else "file_type: systemVerilogSource"


def core_file(item: Exportable, *, external_cell: bool) -> str:
    """Return the FuseSoC description (CAPI2) of a design."""
    needs = [EXPORTABLE[key].module for key in item.needs]
    apart = item.has_cell and external_cell
    depend = [f"    - {LIBRARY}:{name}:{version()}" for name in needs]
    cell = sources_of(item, external_cell=external_cell)
    # Verilator takes the cell in C++. A core that is needed here has that of its own target `default`, in
    # Verilog.
    in_cpp = not needs
    simulated = "[waivers, rtl, cell_cpp, bench]" if apart else "[waivers, rtl, bench]"
    rtl = "rtl, cell" if apart else "rtl"
    lines = [
        "CAPI=2:",
        "# SPDX-License-Identifier: Apache-2.0",
        f"name: {LIBRARY}:{item.module}:{version()}",
        f"description: {json.dumps(item.summary)}",
        "",
        "filesets:",
        "  rtl:",
        f"    files: [{item.module}.v]",
        "    file_type: verilogSource-2005",
        *(["    depend:", *depend] if depend else []),
        *(["  cell:", f"    depend: ['{LIBRARY}:{CELL}:{version()}']"] if apart else []),
        *(
            [
                "  cell_cpp:",
                "    files:",
                *(f"      - {name}: {{{_kind(name)}}}" for name in cell.cell_cpp),
            ]
            if apart
            else []
        ),
        "  waivers:",
        f"    files: [{WAIVERS}]",
        "    file_type: vlt",
        "  bench:",
        f"    files: [tb_{item.module}.v]",
        "    file_type: systemVerilogSource",
        "",
        "targets:",
        "  default: &default",
        f"    filesets: [{rtl}]",
        f"    toplevel: {item.module}",
        "  lint:",
        "    <<: *default",
        "    description: Verilator's lint with all warnings",
        f"    filesets: [waivers, {rtl}]",
        "    default_tool: verilator",
        "    tools:",
        "      verilator:",
        "        mode: lint-only",
        "        verilator_options: [-Wall]",
        "  sim:",
        "    description: Out of reset no output is unknown and the registers answer",
        f"    filesets: [{rtl}, bench]",
        f"    toplevel: tb_{item.module}",
        "    default_tool: icarus",
        "    tools:",
        "      icarus:",
        "        iverilog_options: [-g2012]",
        *(
            [
                "  sim_verilator:",
                "    description: The same in Verilator, with the array cell in C++ if it is apart",
                f"    filesets: {simulated}",
                f"    toplevel: tb_{item.module}",
                "    default_tool: verilator",
                "    tools:",
                "      verilator:",
                "        mode: binary",
                f"        verilator_options: {json.dumps(['--timing', *VERILATOR_FLAGS])}",
            ]
            if in_cpp
            else []
        ),
        "",
    ]
    return "\n".join(lines)


def export_folder(
    folder: Path,
    keys: Iterable[str] = (),
    *,
    geometry_name: str = "rk3588",
    external_cell: bool = False,
    floats: bool = True,
    sources: bool = False,
    report: Callable[[Written], None] | None = None,
) -> list[Written]:
    """Write designs with their testbenches, file lists, FuseSoC files, waivers and a Makefile.

    Parameters
    ----------
    folder : made if it does not exist; files of the same names are replaced.
    keys : designs to write (`EXPORTABLE`), with those they need; none means everything.
    geometry_name : "rk3588" or "small".
    external_cell : leave out the array cell of core and CORE, which becomes an instance of `npu_array_cell`;
        that is written in Verilog and, for Verilator, in C++.
    floats : whether the designs have floating-point arithmetic.
    sources : add comments with source positions.
    report : called after each design.

    Raises
    ------
    ExportError
        for an unknown key or geometry, or a design that cannot be written.
    """
    config = replace(geometry(geometry_name), floats=floats)
    written = []
    keys = list(keys)
    items = chosen(keys, external_cell=external_cell)
    asked = [item for item in items if not keys or item.key in keys]
    make_folder(folder / WAIVERS)
    _write(folder / WAIVERS, _waivers())
    _write(folder / "Makefile", makefile(asked[0].module))
    for item in items:
        since = time.monotonic()
        path = export_verilog(
            item.key, folder, config=config, external_cell=external_cell and item.has_cell, sources=sources
        )
        ports = item.ports(config)
        bench = folder / f"tb_{item.module}.v"
        _write(bench, testbench(item.module, ports))
        described = folder / f"{item.module}.core"
        _write(described, core_file(item, external_cell=external_cell))
        listed = sources_of(item, external_cell=external_cell)
        _write(folder / listed.visible, visible(item.module, ports))
        for name, text in lists(listed).items():
            _write(folder / name, text)
        checks = cocotb_bench(item.module, ports, RESET_CYCLES, SETTLE_CYCLES)
        _write(folder / f"cocotb_{item.module}.py", checks)
        if listed.cell_cpp:
            make_folder(folder / listed.cell_cpp[0])
            for part in cell_files():
                _write(folder / CELL_FOLDER / part.name, part.read_text("utf-8"))
        spent = round(time.monotonic() - since, 1)
        size = path.stat().st_size
        one = Written(item.key, item.module, path.name, described.name, bench.name, len(ports), size, spent)
        written.append(one)
        if report is not None:
            report(one)
    return written


def _write(path: Path, text: str) -> None:
    with named(path):
        path.write_text(text, "utf-8")


def as_json(
    written: list[Written], folder: Path, geometry_name: str, external_cell: bool, floats: bool = True
) -> dict[str, object]:
    """Return what was written, for `--json`."""
    return {
        "folder": str(folder),
        "version": version(),
        "geometry": geometry_name,
        "external_cell": external_cell,
        "floats": floats,
        "waivers": WAIVERS,
        "designs": [asdict(one) for one in written],
    }
