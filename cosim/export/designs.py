"""What can be exported: the core, its blocks, and the cores side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from amaranth.hdl import ClockSignal, Instance, ResetSignal
from amaranth.lib import wiring

from cosim.export.ports import taken
from rtl.bus import AxiLiteSlave
from rtl.config import RK3588, SMALL, NpuConfig
from rtl.core import GROUPED_BLOCKS, NpuCore
from rtl.interrupt import InterruptUnit
from rtl.layouts import ReadClient, WriteClient
from rtl.npu.array import ArrayCellPorts
from rtl.npu.cbuf import Cbuf
from rtl.npu.cna import Cna
from rtl.npu.core_block import CoreBlock
from rtl.npu.csc import SequenceController
from rtl.npu.ddma import Ddma
from rtl.npu.dpu import Dpu
from rtl.npu.dpu_rdma import DpuRdma
from rtl.npu.ppu import Ppu
from rtl.npu.ppu_rdma import PpuRdma
from rtl.pc_dma import PcDma
from rtl.regbus import RegisterFabric
from rtl.regfile import RegisterFile
from rtl.soc import NpuSoc

GEOMETRIES: dict[str, NpuConfig] = {config.name: config for config in (RK3588, SMALL)}
"""Geometries by name."""

CELL = "npu_array_cell"
"""Module of the array cell where it is left out."""


@dataclass(frozen=True)
class Exportable:
    """Something that can be exported.

    Members
    -------
    key : its name in commands.
    module : name of its top module, and of its file.
    summary : one line.
    make : component of a geometry, given whether the array cell is left out.
    needs : keys of others whose modules it instantiates.
    indices : for members that are arrays, the enum whose names stand for the numbers.
    block : name of the block whose registers it has as ports, for their meanings.
    has_cell : it contains the array cell.
    """

    key: str
    module: str
    summary: str
    make: Callable[[NpuConfig, bool], wiring.Component]
    needs: tuple[str, ...] = ()
    indices: Mapping[str, type[Enum]] = field(default_factory=dict)
    block: str = ""
    has_cell: bool = False


class _OutsideCore(wiring.Component):
    """A core as an instance of the module that is exported by itself."""

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


def _all() -> list[Exportable]:
    found = [
        Exportable(
            "core",
            "npu_core",
            "One core of the NPU: all blocks, AXI4-Lite slave, AXI4 master, interrupt",
            lambda config, outside: NpuCore(config, external_cell=outside),
            has_cell=True,
        ),
        Exportable(
            "soc",
            "npu_soc",
            "The cores of the NPU side by side, each with its own buses and interrupt",
            lambda config, outside: _SharedSoc(config),
            needs=("core",),
        ),
        Exportable(
            "pc",
            "npu_pc",
            "PC: task lists, command streams, op-enable",
            lambda config, outside: PcDma(),
            block="PC",
        ),
        Exportable(
            "cna",
            "npu_cna",
            "CNA: both loaders, CBUF and the sequence controller",
            lambda config, outside: Cna(config),
            block="CNA",
        ),
        Exportable("cbuf", "npu_cbuf", "CBUF: the convolution buffer", lambda config, outside: Cbuf(config)),
        Exportable(
            "csc",
            "npu_csc",
            "CSC: the convolution sequence controller",
            lambda config, outside: SequenceController(config),
            block="CNA",
        ),
        Exportable(
            "array_cell",
            CELL,
            "The array cell: the MACs with their accumulators",
            lambda config, outside: ArrayCellPorts(),
        ),
        Exportable(
            "core_block",
            "npu_core_block",
            "CORE: the array cell and the drain of its accumulators",
            lambda config, outside: CoreBlock(external_cell=outside),
            block="CORE",
            has_cell=True,
        ),
        Exportable(
            "dpu", "npu_dpu", "DPU: the data processor", lambda config, outside: Dpu(config), block="DPU"
        ),
        Exportable(
            "dpu_rdma",
            "npu_dpu_rdma",
            "DPU_RDMA: readers of the DPU's operands",
            lambda config, outside: DpuRdma(config),
            block="DPU_RDMA",
        ),
        Exportable("ppu", "npu_ppu", "PPU: pooling", lambda config, outside: Ppu(config), block="PPU"),
        Exportable(
            "ppu_rdma",
            "npu_ppu_rdma",
            "PPU_RDMA: reader of the PPU's input",
            lambda config, outside: PpuRdma(config),
            block="PPU_RDMA",
        ),
        Exportable(
            "ddma",
            "npu_ddma",
            "DDMA: readers and writers on one AXI4 master",
            lambda config, outside: Ddma(config),
            block="DDMA",
            indices={"reads": ReadClient, "writes": WriteClient},
        ),
        Exportable(
            "interrupt",
            "npu_interrupt",
            "Interrupt unit: status, mask, clear and the line",
            lambda config, outside: InterruptUnit(),
        ),
        Exportable(
            "axil_slave",
            "npu_axil_slave",
            "AXI4-Lite slave in front of the registers",
            lambda config, outside: AxiLiteSlave(),
        ),
        Exportable(
            "register_fabric",
            "npu_register_fabric",
            "Register fabric: host and command stream to the blocks",
            lambda config, outside: RegisterFabric(),
        ),
    ]
    for block in GROUPED_BLOCKS:
        key = f"{block.lower()}_registers"
        found.append(
            Exportable(
                key,
                f"npu_{key}",
                f"Register file of {block}: both groups, pointers, start and end",
                lambda config, outside, block=block: RegisterFile(block),  # type: ignore[misc]  # block's default
                block=block,
            )
        )
    return found


EXPORTABLE: dict[str, Exportable] = {item.key: item for item in _all()}
"""Everything that can be exported, by key."""
