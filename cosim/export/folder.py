"""A folder of exported designs with what tools want beside them: waivers, testbenches, FuseSoC files."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from cosim.export.bench import testbench
from cosim.export.designs import CELL, EXPORTABLE, Exportable
from cosim.export.export import export_verilog, exportable, geometry, ports_of, version

WAIVERS = "npu.vlt"
"""Name of the waiver file, the same for all designs."""

LIBRARY = "rkcosim:npu"
"""Vendor and library of the FuseSoC cores."""

_WAIVER_TEXT = """`verilator_config
// SPDX-License-Identifier: Apache-2.0
// A file holds a design with all modules inside it, so most of them are not named as their file.
lint_off -rule DECLFILENAME -file "*npu_*.v"
"""


@dataclass(frozen=True)
class Written:
    """One design that was written.

    Members
    -------
    key, module : its name in commands and in Verilog.
    file, core_file, testbench : names of its files in the folder.
    ports, bytes, seconds : how many ports, size of the Verilog, time that it took.
    """

    key: str
    module: str
    file: str
    core_file: str
    testbench: str
    ports: int
    bytes: int
    seconds: float


def chosen(keys: Iterable[str]) -> list[Exportable]:
    """Designs by their keys with those that they need, in the order of `EXPORTABLE`; none means all.

    Raises
    ------
    ExportError
        for a key that there is not.
    """
    wanted = {key for key in keys} or set(EXPORTABLE)
    for key in list(wanted):
        wanted |= set(exportable(key).needs)
    return [item for key, item in EXPORTABLE.items() if key in wanted]


def core_file(item: Exportable, *, external_cell: bool) -> str:
    """The FuseSoC description (CAPI2) of a design."""
    needs = [EXPORTABLE[key].module for key in item.needs]
    if item.has_cell and external_cell:
        needs.append(CELL)
    depend = [f"    - {LIBRARY}:{name}:{version()}" for name in needs]
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
        "  waivers:",
        f"    files: [{WAIVERS}]",
        "    file_type: vlt",
        "  bench:",
        f"    files: [tb_{item.module}.v]",
        "    file_type: systemVerilogSource",
        "",
        "targets:",
        "  default: &default",
        "    filesets: [rtl]",
        f"    toplevel: {item.module}",
        "  lint:",
        "    <<: *default",
        "    description: Verilator's lint with all warnings",
        "    filesets: [waivers, rtl]",
        "    default_tool: verilator",
        "    tools:",
        "      verilator:",
        "        mode: lint-only",
        "        verilator_options: [-Wall]",
        "  sim:",
        "    description: Out of reset no output is unknown and the registers answer",
        "    filesets: [rtl, bench]",
        f"    toplevel: tb_{item.module}",
        "    default_tool: icarus",
        "    tools:",
        "      icarus:",
        "        iverilog_options: [-g2012]",
        "",
    ]
    return "\n".join(lines)


def export_folder(
    folder: Path,
    keys: Iterable[str] = (),
    *,
    geometry_name: str = "rk3588",
    external_cell: bool = False,
    sources: bool = False,
    report: Callable[[Written], None] | None = None,
) -> list[Written]:
    """Write designs with their testbenches, FuseSoC files and waivers.

    Parameters
    ----------
    folder : made if it is not there; files of the same names are replaced.
    keys : what to write (`EXPORTABLE`), with what it needs; none means everything.
    geometry_name : "rk3588" or "small".
    external_cell : leave the array cell out of core and CORE, as an instance of `npu_array_cell`.
    sources : say in comments where in the source things come from.
    report : called after each design.

    Raises
    ------
    ExportError
        for an unknown key or geometry, or a design that cannot be written.
    """
    config = geometry(geometry_name)
    written = []
    items = chosen(keys)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / WAIVERS).write_text(_WAIVER_TEXT)
    for item in items:
        since = time.monotonic()
        path = export_verilog(
            item.key, folder, config=config, external_cell=external_cell and item.has_cell, sources=sources
        )
        ports = ports_of(item, config)
        bench = folder / f"tb_{item.module}.v"
        bench.write_text(testbench(item.module, ports))
        described = folder / f"{item.module}.core"
        described.write_text(core_file(item, external_cell=external_cell))
        spent = round(time.monotonic() - since, 1)
        size = path.stat().st_size
        one = Written(item.key, item.module, path.name, described.name, bench.name, len(ports), size, spent)
        written.append(one)
        if report is not None:
            report(one)
    return written


def as_json(
    written: list[Written], folder: Path, geometry_name: str, external_cell: bool
) -> dict[str, object]:
    """What was written, for `--json`."""
    return {
        "folder": str(folder),
        "version": version(),
        "geometry": geometry_name,
        "external_cell": external_cell,
        "waivers": WAIVERS,
        "designs": [asdict(one) for one in written],
    }
