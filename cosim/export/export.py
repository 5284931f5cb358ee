"""Writes one design as a Verilog file."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Iterator
from pathlib import Path

from amaranth.lib import wiring

from rkcosim.engines.plain_names import identifier
from rkcosim.engines.verilog import rtlil_of, verilog_text
from rkcosim.export.designs import exportable, geometry
from rkcosim.export.ports import CLOCK, RESET, ExportError, Flattened, Port
from rkcosim.spec.config import RK3588, NpuConfig
from rkcosim.waves.whole_file import make_folder, named


def version() -> str:
    """Return the version of this package."""
    try:
        return importlib.metadata.version("rkcosim")
    except importlib.metadata.PackageNotFoundError:
        return "0.1.0"


def port_table(ports: Iterable[Port]) -> list[str]:
    """Return the ports as a table: name, direction, width, value to tie an input to, meaning."""
    ports = list(ports)
    wide = max(len(port.name) for port in ports)
    lines = [f"{'port':{wide}}  direction  width  idle  meaning"]
    for port in ports:
        meaning = port.meaning + (" (signed)" if port.signed else "")
        idle = "-" if port.idle is None else str(port.idle)
        lines.append(f"{port.name:{wide}}  {port.direction:9}  {port.width:5}  {idle:>4}  {meaning}".rstrip())
    return lines


def _header(name: str, summary: str, config: NpuConfig | None, ports: Iterable[Port]) -> Iterator[str]:
    yield "// SPDX-License-Identifier: Apache-2.0"
    yield "//"
    yield f"// {name}: {summary}" if summary else f"// {name}"
    place = f", geometry {config.name}" if config is not None else ""
    if config is not None and not config.floats:
        place += ", without floating-point arithmetic"
    yield f"// rkcosim {version()}{place}; generated from Amaranth by Yosys, do not edit."
    yield "//"
    yield from (f"// {line}" for line in port_table(ports))


def export_verilog(
    component: str | wiring.Component,
    folder: str | Path,
    *,
    name: str | None = None,
    config: NpuConfig | str = RK3588,
    external_cell: bool = False,
    sources: bool = False,
) -> Path:
    """Write one design as `folder/MODULE.v` and return that path.

    Parameters
    ----------
    component : a key of `EXPORTABLE` ("core", "soc", "cna", ...) or a component, which then needs `name`.
    folder : made if it does not exist.
    name : name of the top module; default: that of the key (`npu_core`, `npu_cna`, ...).
    config : geometry or its name; only for keys. `dataclasses.replace(RK3588, floats=False)` leaves out
        floating-point arithmetic.
    external_cell : leave out the array cell, which becomes an instance of `npu_array_cell`; only for keys.
    sources : write source positions as attributes `src`.

    Raises
    ------
    ExportError
        for an unknown key or geometry, or a design that cannot be written.
    BuildError
        without Yosys.
    """
    summary, chosen = "", None
    if isinstance(component, str):
        item = exportable(component)
        chosen = geometry(config) if isinstance(config, str) else config
        flat = item.flattened(chosen, external_cell)
        name, summary = name or item.module, item.summary
    elif name is None:
        raise ExportError("a component needs a name for its module")
    else:
        flat = Flattened(component)
    module = identifier(name)
    ports = [CLOCK, RESET, *flat.ports]
    rtlil = rtlil_of(flat, module, ports=flat.directed(), sources=sources)
    text = verilog_text(rtlil, module, [port.name for port in ports], sources=sources)
    header = "\n".join(_header(module, summary, chosen, ports))
    path = Path(folder) / f"{name}.v"
    make_folder(path)
    with named(path):
        path.write_text(f"{header}\n`default_nettype none\n\n{text}\n`default_nettype wire\n")
    return path
