"""What the simulators compile: Verilog of the core or of one block, and files beside it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cosim.engines import build as engine_build
from cosim.engines import verilog
from rtl import config as geometries
from rtl.config import NpuConfig

CORE = "core"
"""Module name of a whole core."""


@dataclass
class Sources:
    """Files of one design.

    Members
    -------
    toplevel : name of the module under test.
    files : Verilog, in the order of compilation.
    cpp : C++ beside it (the array cell), for Verilator.
    ports : names of the module's ports.
    """

    toplevel: str
    files: list[Path]
    cpp: list[Path] = field(default_factory=list)
    ports: list[str] = field(default_factory=list)


def geometry(name: str | NpuConfig) -> NpuConfig:
    """A geometry by name, "rk3588" or "small"; others as they are.

    Raises
    ------
    ValueError
        for another name.
    """
    if isinstance(name, NpuConfig):
        return name
    known = {"rk3588": geometries.RK3588, "small": geometries.SMALL}
    if name not in known:
        raise ValueError(f"geometry must be {' or '.join(map(repr, known))} or an NpuConfig, not {name!r}")
    return known[name]


def _blocks() -> dict[str, Callable[[NpuConfig], Any]]:
    from rtl.interrupt import InterruptUnit
    from rtl.npu.cbuf import Cbuf
    from rtl.npu.cna import Cna
    from rtl.npu.core_block import CoreBlock
    from rtl.npu.ddma import Ddma
    from rtl.npu.dpu import Dpu
    from rtl.npu.dpu_rdma import DpuRdma
    from rtl.npu.ppu import Ppu
    from rtl.npu.ppu_rdma import PpuRdma
    from rtl.pc_dma import PcDma

    return {
        "cbuf": Cbuf,
        "cna": Cna,
        "core_block": lambda config: CoreBlock(),
        "ddma": lambda config: Ddma(),
        "dpu": Dpu,
        "dpu_rdma": DpuRdma,
        "interrupt": lambda config: InterruptUnit(),
        "pc": lambda config: PcDma(),
        "ppu": Ppu,
        "ppu_rdma": PpuRdma,
    }


def design(config: NpuConfig, block: str | None) -> verilog.Design:
    """The design of a block, or of the core (None).

    Raises
    ------
    ValueError
        for a block that is not known; names those that are.
    """
    if block is None:
        return verilog.npu_design(config)
    makers = _blocks()
    if block not in makers:
        raise ValueError(
            f"block must be one of {', '.join(sorted(makers))}, or None for the core, not {block!r}"
        )

    def fingerprint() -> str | None:
        known = verilog.rtl_hash()
        return f"{block} {config!r} {known}" if known else None

    return verilog.Design(
        lambda external_cell: makers[block](config), fingerprint=fingerprint, has_cell=False
    )


def write(made: verilog.Design, block: str | None, folder: Path, *, cpp_cell: bool) -> Sources:
    """Write the Verilog of a design into `folder`.

    Parameters
    ----------
    cpp_cell
        put the array cell in C++ behind its ports (Verilator only; same cycles).

    Raises
    ------
    BuildError
        when Yosys is missing or fails.
    """
    path = verilog.write_verilog(made.rtlil(cpp_cell), folder)
    name = block or CORE
    text = path.read_text()
    if name != verilog.TOP:
        text = re.sub(rf"^module {verilog.TOP}\(", f"module {name}(", text, flags=re.MULTILINE)
        text = text.replace(f"\\{verilog.TOP}.", f"\\{name}.")
        path.unlink()
        path = folder / f"{name}.v"
        path.write_text(text)
    files, cpp = [path], []
    if cpp_cell:
        cell = engine_build.harness_folder() / "cell"
        for source in [*cell.glob("npu_*.sv"), *cell.glob("npu_*.cpp"), *cell.glob("npu_*.h")]:
            if "cxxrtl" not in source.stem:
                copy = Path(shutil.copy(source, folder))
                files += [copy] if source.suffix == ".sv" else []
                cpp += [copy] if source.suffix == ".cpp" else []
    return Sources(name, files, sorted(cpp), module_ports(text, name))


def module_ports(text: str, module: str) -> list[str]:
    """Names of a module's ports, from its header in generated Verilog."""
    header = re.search(rf"^module {re.escape(module)}\((.*?)\);", text, re.MULTILINE | re.DOTALL)
    if header is None:
        raise ValueError(f"the Verilog has no module {module}")
    return [name.strip() for name in header[1].split(",") if name.strip()]
