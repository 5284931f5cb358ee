"""`rkcosim verilog`: write designs as Verilog files."""

from __future__ import annotations

from pathlib import Path

from cosim.cli.exits import write_json


def verilog_command(
    folder: Path, keys: list[str], geometry: str, external_cell: bool, sources: bool, json: Path | None
) -> None:
    """Write the designs asked for and say what was written.

    Raises
    ------
    ExportError
        for an unknown design or geometry.
    """
    from cosim import progress
    from cosim.export.folder import Written, as_json, chosen, export_folder

    items = chosen(keys)
    with progress.step("writing Verilog", total=len(items)) as step:
        step.detail = items[0].module

        def told(one: Written) -> None:
            print(f"{folder / one.file}: {one.ports} ports, {one.bytes / 1e6:.2f} MB, {one.seconds} s")
            step.advance()
            if step.done < len(items):
                step.detail = items[int(step.done)].module

        written = export_folder(
            folder,
            keys,
            geometry_name=geometry,
            external_cell=external_cell,
            sources=sources,
            report=told,
        )
    if external_cell:
        print("npu_core and npu_core_block expect a module npu_array_cell (docs/verilog.md)")
    if json is not None:
        write_json(json, as_json(written, folder, geometry, external_cell))
