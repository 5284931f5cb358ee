"""The designs that can be exported: the core, its blocks, and several cores in one module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from amaranth.hdl import ClockSignal, Instance, ResetSignal
from amaranth.lib import wiring

from rkcosim.export.ports import CLOCK, RESET, ExportError, Flattened, Port, taken
from rkcosim.rtl.bus import AxiLiteSlave
from rkcosim.rtl.core import GROUPED_BLOCKS, NpuCore
from rkcosim.rtl.interrupt import InterruptUnit
from rkcosim.rtl.layouts import ReadClient, WriteClient
from rkcosim.rtl.npu.array import ArrayCellPorts
from rkcosim.rtl.npu.cbuf import Cbuf
from rkcosim.rtl.npu.cna import Cna
from rkcosim.rtl.npu.core_block import CoreBlock
from rkcosim.rtl.npu.csc import SequenceController
from rkcosim.rtl.npu.ddma import Ddma
from rkcosim.rtl.npu.dpu import Dpu
from rkcosim.rtl.npu.dpu_rdma import DpuRdma
from rkcosim.rtl.npu.ppu import Ppu
from rkcosim.rtl.npu.ppu_rdma import PpuRdma
from rkcosim.rtl.pc_dma import PcDma
from rkcosim.rtl.regbus import RegisterFabric
from rkcosim.rtl.regfile import RegisterFile
from rkcosim.rtl.soc import NpuSoc
from rkcosim.spec.config import RK3588, SMALL, NpuConfig

GEOMETRIES: dict[str, NpuConfig] = {config.name: config for config in (RK3588, SMALL)}
"""Geometries by name."""

CELL = "npu_array_cell"
"""Module of the array cell if it is left out."""


@dataclass(frozen=True)
class Exportable:
    """A design that can be exported.

    Members
    -------
    key : its name in commands.
    summary : one line.
    make : returns the component for a geometry; takes whether the array cell is left out.
    needs : keys of other designs whose modules it instantiates.
    indices : for members that are arrays, the enum whose names replace the numbers.
    has_cell : True if it contains the array cell.
    """

    key: str
    summary: str
    make: Callable[[NpuConfig, bool], wiring.Component]
    needs: tuple[str, ...] = ()
    indices: Mapping[str, type[Enum]] = field(default_factory=dict)
    has_cell: bool = False

    @property
    def module(self) -> str:
        """Name of its top module, and of its file."""
        return f"npu_{self.key}"

    @property
    def block(self) -> str:
        """Block whose registers are its ports `cfg`."""
        return {"csc": "CNA", "core_block": "CORE"}.get(self.key, self.key.removesuffix("_registers").upper())

    def flattened(self, config: NpuConfig, external_cell: bool) -> Flattened:
        """Return a new component of a geometry with plain ports."""
        return Flattened(self.make(config, external_cell), self.indices, self.block)

    def ports(self, config: NpuConfig) -> list[Port]:
        """Return all ports, clock and reset first."""
        return [CLOCK, RESET, *taken(self.flattened(config, True)).ports]


class _OutsideCore(wiring.Component):
    """A core as an instance of the separately exported module."""

    def __init__(self, signature: wiring.Signature) -> None:
        super().__init__(signature)

    def elaborate(self, platform: Any) -> Instance:
        ports = {
            f"{'i' if member.flow == wiring.In else 'o'}_{name}": getattr(self, name)
            for name, member in self.signature.members.items()
        }
        return Instance("npu_core", i_clk=ClockSignal(), i_rst=ResetSignal(), **ports)


class _SharedSoc(NpuSoc):
    """`NpuSoc` with its cores as instances of one module."""

    def __init__(self, config: NpuConfig) -> None:
        super().__init__(config)
        self._cores = [taken(_OutsideCore(taken(core).signature)) for core in self._cores]


_DESIGNS = [
    Exportable(
        "core",
        "One core of the NPU: all blocks, AXI4-Lite slave, AXI4 master, interrupt",
        lambda config, outside: NpuCore(config, external_cell=outside),
        has_cell=True,
    ),
    Exportable(
        "soc",
        "The cores of the NPU side by side, each with its own buses and interrupt",
        lambda config, outside: _SharedSoc(config),
        needs=("core",),
    ),
    Exportable("pc", "PC: task lists, command streams, op-enable", lambda config, outside: PcDma()),
    Exportable(
        "cna", "CNA: both loaders, CBUF and the sequence controller", lambda config, outside: Cna(config)
    ),
    Exportable("cbuf", "CBUF: the convolution buffer", lambda config, outside: Cbuf(config)),
    Exportable(
        "csc", "CSC: the convolution sequence controller", lambda config, outside: SequenceController(config)
    ),
    Exportable(
        "array_cell",
        "The array cell: the MACs with their accumulators",
        lambda config, outside: ArrayCellPorts(floats=config.floats),
    ),
    Exportable(
        "core_block",
        "CORE: the array cell and the drain of its accumulators",
        lambda config, outside: CoreBlock(external_cell=outside, floats=config.floats),
        has_cell=True,
    ),
    Exportable("dpu", "DPU: the data processor", lambda config, outside: Dpu(floats=config.floats)),
    Exportable(
        "dpu_rdma",
        "DPU_RDMA: readers of the DPU's operands",
        lambda config, outside: DpuRdma(floats=config.floats),
    ),
    Exportable("ppu", "PPU: pooling", lambda config, outside: Ppu(floats=config.floats)),
    Exportable("ppu_rdma", "PPU_RDMA: reader of the PPU's input", lambda config, outside: PpuRdma(config)),
    Exportable(
        "ddma",
        "DDMA: readers and writers on one AXI4 master",
        lambda config, outside: Ddma(),
        indices={"reads": ReadClient, "writes": WriteClient},
    ),
    Exportable(
        "interrupt",
        "Interrupt unit: status, mask, clear and the line",
        lambda config, outside: InterruptUnit(),
    ),
    Exportable(
        "axil_slave", "AXI4-Lite slave in front of the registers", lambda config, outside: AxiLiteSlave()
    ),
    Exportable(
        "register_fabric",
        "Register fabric: host and command stream to the blocks",
        lambda config, outside: RegisterFabric(),
    ),
    *(
        Exportable(
            f"{block.lower()}_registers",
            f"Register file of {block}: both groups, pointers, start and end",
            lambda config, outside, block=block: RegisterFile(block),  # type: ignore[misc]  # block's default
        )
        for block in GROUPED_BLOCKS
    ),
]

EXPORTABLE: dict[str, Exportable] = {item.key: item for item in _DESIGNS}
"""All designs that can be exported, by key."""


def exportable(key: str) -> Exportable:
    """Return the design of a key.

    Raises
    ------
    ExportError
        if there is none; the message lists all keys.
    """
    if key not in EXPORTABLE:
        raise ExportError(f"nothing to export is named {key!r}; there are {', '.join(EXPORTABLE)}")
    return EXPORTABLE[key]


def geometry(name: str) -> NpuConfig:
    """Return the geometry of a name.

    Raises
    ------
    ExportError
        if there is none; the message lists all names.
    """
    if name not in GEOMETRIES:
        raise ExportError(f"no geometry is named {name!r}; there are {', '.join(GEOMETRIES)}")
    return GEOMETRIES[name]
