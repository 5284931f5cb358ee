"""`rkcosim verilog`: write the RTL as Verilog for other tools."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from pathlib import Path

from rkcosim.base import progress
from rkcosim.cli.app import Options, command, option


@dataclass(frozen=True, kw_only=True)
class VerilogOptions(Options):
    """Options of `rkcosim verilog`."""

    output: Path = option(
        "Folder to write to.", "-o", "--output", metavar="DIR", default=MISSING, writes=True, folder=True
    )
    block: tuple[str, ...] = option(
        "What to write: core, soc, or a block as cna, cbuf, dpu_registers; repeatable; default: everything.",
        metavar="NAME",
        words="rkcosim.export.designs:EXPORTABLE",
        default=(),
    )
    geometry: str = option(
        "Geometry of the core: rk3588 or small.",
        metavar="NAME",
        words="rkcosim.export.designs:GEOMETRIES",
        default="rk3588",
    )
    external_cell: bool = option(
        "Leave the array cell to a module npu_array_cell, in Verilog and, for Verilator, in C++.",
        default=False,
    )
    no_floats: bool = option(
        "Leave out floating-point arithmetic; a task with a floating-point type then raises NOT_BUILT.",
        default=False,
    )
    src: bool = option("Add comments with the positions in the Amaranth source.", default=False)


@command(
    "rkcosim verilog -o build/verilog",
    "rkcosim verilog -o build/verilog --block core --external-cell",
    "rkcosim verilog -o build/verilog --block cbuf --block ddma",
    "rkcosim verilog -o build/verilog --block core --no-floats",
)
def verilog_command(asked: VerilogOptions) -> None:
    """Write the RTL as Verilog files.

    Port tables, lint waivers, testbenches, a Makefile and file lists for Icarus, Verilator, cocotb, FuseSoC
    and Yosys are written with them.
    """
    from rkcosim.export.folder import Written, as_json, chosen, export_folder

    items = chosen(list(asked.block), external_cell=asked.external_cell)
    with progress.step("writing Verilog", total=len(items)) as step:
        step.detail = items[0].module

        def told(one: Written) -> None:
            print(f"{asked.output / one.file}: {one.ports} ports, {one.bytes / 1e6:.2f} MB, {one.seconds} s")
            step.advance()
            if step.done < len(items):
                step.detail = items[int(step.done)].module

        written = export_folder(
            asked.output,
            list(asked.block),
            geometry_name=asked.geometry,
            external_cell=asked.external_cell,
            floats=not asked.no_floats,
            sources=asked.src,
            report=told,
        )
    floats = not asked.no_floats
    asked.write(as_json(written, asked.output, asked.geometry, asked.external_cell, floats))
