"""What the simulators compile: Verilog of the core or of one block, and files beside it."""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import cosim.export
from cosim.engines import build as engine_build
from cosim.engines import verilog
from cosim.export import export_verilog
from cosim.export.designs import EXPORTABLE, GEOMETRIES, Exportable
from rtl.config import NpuConfig

CELL_SUFFIXES = (".sv", ".cpp", ".h")


@dataclass
class Sources:
    """Files of one design.

    Members
    -------
    toplevel : name of the module under test.
    files : Verilog, in the order of compilation.
    ports : names of the module's ports.
    cpp : C++ beside it (the array cell), for Verilator.
    """

    toplevel: str
    files: list[Path]
    ports: list[str]
    cpp: list[Path] = field(default_factory=list)


def geometry(name: str | NpuConfig) -> NpuConfig:
    """A geometry by name, "rk3588" or "small"; others as they are.

    Raises
    ------
    ValueError
        for another name.
    """
    if isinstance(name, NpuConfig):
        return name
    if name not in GEOMETRIES:
        known = " or ".join(map(repr, GEOMETRIES))
        raise ValueError(f"geometry must be {known} or an NpuConfig, not {name!r}")
    return GEOMETRIES[name]


def design(block: str | None) -> Exportable:
    """What is simulated: a block by its name, or the core (None).

    Raises
    ------
    ValueError
        for a block that is not known; names those that are.
    """
    blocks = {key: item for key, item in EXPORTABLE.items() if not item.needs and key != "core"}
    if block is None:
        return EXPORTABLE["core"]
    if block not in blocks:
        raise ValueError(f"block must be one of {', '.join(blocks)}, or None for the core, not {block!r}")
    return blocks[block]


def fingerprint(item: Exportable, config: NpuConfig, cell: str) -> str:
    """A text that is equal for equal Verilog."""
    known = verilog.rtl_hash()
    if known is None:  # files are younger than what is imported: only the Verilog itself can tell
        with tempfile.TemporaryDirectory() as folder:
            path = export_verilog(item.key, Path(folder), config=config, external_cell=cell != "rtl")
            known = hashlib.sha256(path.read_bytes()).hexdigest()
    exporter = hashlib.sha256()
    for source in sorted(Path(str(cosim.export.__file__)).parent.glob("*.py")):
        exporter.update(source.read_bytes())
    return f"{item.key} {config!r} {cell} {known} {exporter.hexdigest()}"


_PORT = re.compile(r"^  (?:input|output) +(?:wire|reg) +(?:\[[^]]+\] )?(\w+)", re.MULTILINE)


def ports(text: str, module: str) -> list[str]:
    """Names of a module's ports, from exported Verilog."""
    begin = text.index(f"module {module} (")
    return _PORT.findall(text[begin : text.index(");", begin)])


def cell_files() -> list[Path]:
    """The array cell in C++ with its Verilog side."""
    folder = engine_build.harness_folder() / "cell"
    found = sorted(path for path in folder.glob("npu_*") if path.suffix in CELL_SUFFIXES)
    return [path for path in found if "cxxrtl" not in path.stem]


def write(item: Exportable, config: NpuConfig, folder: Path, cell: str) -> Sources:
    """Write the Verilog of a design into `folder`.

    Parameters
    ----------
    cell
        the array cell: "rtl", "cpp" (in C++ behind its ports; Verilator only) or "none" (zeros).
    """
    path = export_verilog(item.key, folder, config=config, external_cell=cell != "rtl")
    names = ports(path.read_text(), item.module)
    files, cpp = [path], []
    if cell == "cpp":
        for source in cell_files():
            copy = Path(shutil.copy(source, folder))
            files += [copy] if copy.suffix == ".sv" else []
            cpp += [copy] if copy.suffix == ".cpp" else []
    elif cell == "none":
        box = (engine_build.harness_folder() / "cell" / "npu_array_cell_box.v").read_text()
        empty = re.sub(r"\(\*.*?\*\) ?", "", box)  # what it says to CXXRTL
        files.append(folder / "npu_array_cell_none.v")
        files[-1].write_text(
            empty.replace("endmodule", "    assign o_acc = 0;\n    assign o_sum = 0;\nendmodule")
        )
    return Sources(item.module, files, names, cpp)
