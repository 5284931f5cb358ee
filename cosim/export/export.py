"""Write designs as Verilog files."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from amaranth.lib import wiring

from cosim.export.design import module_text, rtlil_of
from cosim.export.designs import EXPORTABLE, GEOMETRIES, Exportable
from cosim.export.names import identifier
from cosim.export.ports import CLOCK, RESET, Flattened, Port, taken
from cosim.export.rtlil import ExportError
from rtl.config import RK3588, NpuConfig


def version() -> str:
    """Version of this package."""
    try:
        return importlib.metadata.version("rkcosim")
    except importlib.metadata.PackageNotFoundError:
        return "0.1.0"


def exportable(key: str) -> Exportable:
    """What a key stands for.

    Raises
    ------
    ExportError
        if there is none; the text has all keys.
    """
    if key not in EXPORTABLE:
        raise ExportError(f"nothing to export is named {key!r}; there are {', '.join(EXPORTABLE)}")
    return EXPORTABLE[key]


def geometry(name: str) -> NpuConfig:
    """A geometry by its name.

    Raises
    ------
    ExportError
        if there is none.
    """
    if name not in GEOMETRIES:
        raise ExportError(f"no geometry is named {name!r}; there are {', '.join(GEOMETRIES)}")
    return GEOMETRIES[name]


def port_table(ports: Iterable[Port]) -> list[str]:
    """Ports as a table: name, direction, width, meaning."""
    ports = list(ports)
    wide = max(len(port.name) for port in ports)
    lines = [f"{'port':{wide}}  direction  width  meaning"]
    for port in ports:
        meaning = port.meaning + (" (signed)" if port.signed else "")
        lines.append(f"{port.name:{wide}}  {port.direction:9}  {port.width:5}  {meaning}".rstrip())
    return lines


def ports_of(item: Exportable, config: NpuConfig) -> list[Port]:
    """All ports of a design, clock and reset first."""
    return [CLOCK, RESET, *taken(Flattened(item.make(config, True), item.indices, item.block)).ports]


def _header(name: str, summary: str, config: NpuConfig | None, ports: Iterable[Port]) -> Iterator[str]:
    yield "// SPDX-License-Identifier: Apache-2.0"
    yield "//"
    yield f"// {name}: {summary}" if summary else f"// {name}"
    place = f", geometry {config.name}" if config is not None else ""
    yield f"// rkcosim {version()}{place}; generated from Amaranth, do not edit."
    yield "//"
    yield from (f"// {line}" for line in port_table(ports))


def verilog_text(
    component: wiring.Component,
    name: str,
    *,
    summary: str = "",
    config: NpuConfig | None = None,
    indices: Mapping[str, type[Enum]] | None = None,
    block: str = "",
    sources: bool = False,
) -> str:
    """A component as the text of a Verilog file.

    Raises
    ------
    ExportError
        if a port or a construct cannot be written.
    """
    flat = Flattened(component, indices, block)
    signals: dict[str, Any] = {}
    from amaranth.hdl._ir import PortDirection

    for port in flat.ports:
        way = PortDirection.Input if port.direction == "input" else PortDirection.Output
        signals[port.name] = (flat.signals[port.name], way)
    ports = [CLOCK, RESET, *flat.ports]
    text = rtlil_of(flat, name, signals, sources=sources)
    modules = module_text(text, name, [port.name for port in ports], sources=sources)
    return "\n".join(
        [
            *_header(name, summary, config, ports),
            "`default_nettype none",
            "",
            modules,
            "`default_nettype wire",
            "",
        ]
    )


def export_verilog(
    component: str | wiring.Component,
    folder: Path,
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
    folder : made if it is not there.
    name : name of the top module; default: that of the key (`npu_core`, `npu_cna`, ...).
    config : geometry or its name; only for keys.
    external_cell : leave the array cell out, as an instance of `npu_array_cell`; only for keys.
    sources : say in comments where in the source things come from.

    Raises
    ------
    ExportError
        for an unknown key or geometry, or a design that cannot be written.
    """
    if isinstance(component, str):
        item = exportable(component)
        chosen = geometry(config) if isinstance(config, str) else config
        made = item.make(chosen, external_cell)
        name = name or item.module
        text = verilog_text(
            made,
            name,
            summary=item.summary,
            config=chosen,
            indices=item.indices,
            block=item.block,
            sources=sources,
        )
    else:
        if name is None:
            raise ExportError("a component needs a name for its module")
        text = verilog_text(component, identifier(name), sources=sources)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.v"
    path.write_text(text)
    return path
