"""One NPU core: all blocks of [HW 1.1] connected, with registered AXI ports and an interrupt line."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.bus import (
    Axi4,
    AxiLite,
    AxiLiteSlave,
    DiagnosticMerge,
    connect_flat,
    flat_members,
)
from rkcosim.rtl.co_work import StepAnswer, StepReport
from rkcosim.rtl.interrupt import EVENT_BITS, Event, InterruptUnit
from rkcosim.rtl.layouts import ReadClient, WriteClient
from rkcosim.rtl.npu.cna import Cna
from rkcosim.rtl.npu.core_block import CoreBlock
from rkcosim.rtl.npu.ddma import Ddma
from rkcosim.rtl.npu.dpu import Dpu
from rkcosim.rtl.npu.dpu_rdma import DpuRdma
from rkcosim.rtl.npu.ppu import Ppu
from rkcosim.rtl.npu.ppu_rdma import PpuRdma
from rkcosim.rtl.npu.write_buffer import WriteBuffer
from rkcosim.rtl.pc_dma import PcDma
from rkcosim.rtl.regbus import OP_ENABLE_BITS, RegisterFabric, op_enable_fields
from rkcosim.rtl.regfile import RegisterFile
from rkcosim.spec.config import RK3588, NpuConfig
from rkcosim.spec.regs.counters import IDLE, LEVEL_BITS, levels, state_blocks, states
from rkcosim.spec.regs.events import EVENTS
from rkcosim.spec.regs.options import OPTION_BITS

GROUPED_BLOCKS = ("CNA", "CORE", "DPU", "DPU_RDMA", "PPU", "PPU_RDMA")
"""Blocks with two register groups, which the op-enable mask starts."""

QUIET_CYCLES = 15
"""Number of cycles without activity after which a core reports that it is idle."""


class NpuCore(wiring.Component):
    """A complete NPU core of the RK3588 (or of a smaller geometry for tests). All outputs are registers.

    Parameters
    ----------
    config
        Geometry of the core.
    relax_serialisation : bool
        Whether chained tasks may overlap. False, as on silicon, by default.
    external_cell : bool
        Whether the array cell is an instance of `npu_array_cell`, which the engine provides.
    external_dpu_cell : bool
        Whether the stages of the DPU's pipe are an instance of `npu_dpu_cell` (`rkcosim.rtl.npu.dpu_cell`);
        only in a geometry with floats.

    Members
    -------
    s_axil_* : AXI4-Lite slave, 32-bit data, 16-bit addresses (offsets of [HW 1.3]).
    m_axi_* : AXI4 master, 256-bit data, 40-bit addresses, read ids 5 bits, write ids 4.
    core_index : In(2)         : number of this core, which is compared with S_POINTER.CORE_INDEX.
    options : In(8)            : non-default interpretations of the hardware, one bit each
        (spec/regs/options.py). It may change only while the core is in reset or idle.
    irq : Out(1)               : interrupt line, level.
    diag_* : Out               : diagnostic events; `diag_block` is the register window, offset[15:12].
    events : Out(16)           : pulses and levels, bits as in spec/regs/events.py.
    task_index : Out(12)       : index in the kick of the task that the events belong to.
    step_report : Out(16)      : progress, for the other cores (`StepReport` in rtl/co_work.py).
    step_answer : In(18)       : progress of the other cores (`StepAnswer`); a core works alone while it is 0.
    watch_* : Out              : register writes, as `rkcosim.rtl.layouts.RegisterWatch`, one cycle later.
    counting : In(1)           : while high, `activity`, `levels`, `macs` and `array_macs` are updated, one
        cycle late; otherwise they are held.
    activity : Out(48)         : state of each block, bits as `rkcosim.spec.regs.counters.states`.
    levels : Out(192)          : fill levels of queues, 16 bits each as `rkcosim.spec.regs.counters.levels`.
    macs, array_macs : Out(12) : multiply-accumulates of a slot: useful ones, and those of the whole array.
    idle : Out(1)              : the core does nothing until the next bus access or memory response.
    busy_blocks : Out(7)       : blocks that are enabled, bits as in the op-enable mask [HW 1.5].
    """

    def __init__(
        self,
        config: NpuConfig = RK3588,
        *,
        relax_serialisation: bool = False,
        external_cell: bool = False,
        external_dpu_cell: bool = False,
    ) -> None:
        self._config = config
        self._external_cell, self._external_dpu_cell = external_cell, external_dpu_cell
        self._relax = relax_serialisation
        buses = flat_members("s_axil_", AxiLite().flip()) | flat_members("m_axi_", Axi4())
        members = {
            "core_index": In(2),
            "options": In(OPTION_BITS),
            "irq": Out(1),
            "diag_valid": Out(1),
            "diag_code": Out(8),
            "diag_block": Out(4),
            "diag_register": Out(16),
            "diag_value": Out(32),
            "events": Out(16),
            "step_report": Out(StepReport.as_shape().size),
            "step_answer": In(StepAnswer.as_shape().size),
            "watch_valid": Out(1),
            "watch_fetched": Out(1),
            "watch_offset": Out(16),
            "watch_value": Out(32),
            "task_index": Out(12),
            "counting": In(1),
            "activity": Out(
                len(states()), init=sum(1 << n for n, s in enumerate(states()) if s.name == IDLE)
            ),
            "levels": Out(LEVEL_BITS * len(levels())),
            "macs": Out(12),
            "array_macs": Out(12),
            "idle": Out(1),
            "busy_blocks": Out(OP_ENABLE_BITS),
        }
        super().__init__(buses | members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        config = self._config

        # 1. Registers: the fabric carries the accesses of the host and of the command stream.
        m.submodules.axil = axil = AxiLiteSlave()
        m.submodules.fabric = fabric = RegisterFabric()
        m.submodules.pc = pc = PcDma(relax_serialisation=self._relax)
        m.submodules.interrupts = interrupts = InterruptUnit()
        wiring.connect(m, axil.bus, fabric.host)
        wiring.connect(m, pc.bus, fabric.fetch)
        connect_flat(m, "s_axil_", self, axil.axil)

        files: dict[str, RegisterFile] = {}
        masks = op_enable_fields()
        op_enable = Signal(OP_ENABLE_BITS)
        m.d.comb += op_enable.eq(pc.op_enable | fabric.op_enable)
        busy = Signal(OP_ENABLE_BITS)
        for block in GROUPED_BLOCKS:
            name = block.lower()
            file = files[block] = RegisterFile(block)
            m.submodules[f"{name}_registers"] = file
            wiring.connect(m, getattr(fabric, name), file.port)
            m.d.comb += [
                file.op_enable.eq(op_enable[masks[block]]),
                busy[masks[block]].eq(file.busy),
                file.core.eq(self.core_index),
            ]

        # 2. The data path.
        m.submodules.cna = cna = Cna(config)
        m.submodules.core_block = core = CoreBlock(external_cell=self._external_cell, floats=config.floats)
        m.submodules.dpu = dpu = Dpu(floats=config.floats, external_cell=self._external_dpu_cell)
        m.submodules.dpu_rdma = dpu_rdma = DpuRdma(floats=config.floats)
        m.submodules.ppu = ppu = Ppu(floats=config.floats)
        m.submodules.ppu_rdma = ppu_rdma = PpuRdma(config)
        blocks = {
            "CNA": cna,
            "CORE": core,
            "DPU": dpu,
            "DPU_RDMA": dpu_rdma,
            "PPU": ppu,
            "PPU_RDMA": ppu_rdma,
        }
        for block, unit in blocks.items():
            wiring.connect(m, files[block].control, unit.control)
            wiring.connect(m, files[block].cfg, unit.cfg)
        m.d.comb += cna.options.eq(self.options)
        wiring.connect(m, cna.core, core.feed)
        wiring.connect(m, core.acc, dpu.acc)
        m.d.comb += [dpu.core_octets.eq(core.octets), dpu.options.eq(self.options)]
        wiring.connect(m, files["DPU"].lut, dpu.lut)
        for source, sink in (
            (dpu_rdma.bs, dpu.bs),
            (dpu_rdma.bn, dpu.bn),
            (dpu_rdma.main, dpu.main),
            (dpu_rdma.ew, dpu.ew),
        ):
            wiring.connect(m, source, sink)
        m.d.comb += dpu.rdma_busy.eq(dpu_rdma.busy)  # The DPU also accepts operands that it does not need.
        comb_use = dpu_rdma.cfg.FEATURE_MODE_CFG.COMB_USE
        m.d.comb += [
            dpu.rdma_comb_use.eq(dpu_rdma.busy & comb_use[0]),
            dpu.rdma_copies.eq(dpu_rdma.copies),
            dpu_rdma.by_surface.eq(dpu.by_surface),
            dpu_rdma.dpu_comb_use.eq(dpu.cfg.FEATURE_MODE_CFG.COMB_USE),
        ]
        wiring.connect(m, ppu_rdma.atoms, ppu.atoms)
        wiring.connect(m, dpu.ppu, ppu.dpu)
        # The block that feeds the PPU provides the type and the size.
        wiring.connect(m, files["PPU_RDMA"].cfg, ppu.rdma_cfg)
        wiring.connect(m, files["DPU"].cfg, ppu.dpu_cfg)
        wiring.connect(m, files["PPU"].cfg, ppu_rdma.ppu_cfg)

        starting = Cat(file.starting for file in files.values()).any()
        m.d.comb += [file.show.eq(starting) for file in files.values()]
        # DPU_RDMA reads once for each task of the DPU. If both groups were enabled in advance (slave mode),
        # it could otherwise start reading for the next task before the DPU has finished this one.
        operands_read = Signal()
        with m.If(~files["DPU"].running):
            m.d.sync += operands_read.eq(0)
        with m.Elif(dpu_rdma.control.done):
            m.d.sync += operands_read.eq(1)
        m.d.comb += files["DPU_RDMA"].hold.eq(operands_read)

        # 3. Memory.
        m.submodules.ddma = ddma = Ddma()
        for client, port in {
            ReadClient.FEATURE: cna.feature_read,
            ReadClient.WEIGHT: cna.weight_read,
            ReadClient.MRDMA: dpu_rdma.mrdma,
            ReadClient.BRDMA: dpu_rdma.brdma,
            ReadClient.NRDMA: dpu_rdma.nrdma,
            ReadClient.ERDMA: dpu_rdma.erdma,
            ReadClient.PPU: ppu_rdma.read,
            ReadClient.PC: pc.read,
        }.items():
            wiring.connect(m, port, ddma.reads[client])
        buffers: dict[str, WriteBuffer] = {}
        outputs = files["DPU"].cfg.FEATURE_MODE_CFG.OUTPUT_MODE
        for client, port in {WriteClient.DPU: dpu.write, WriteClient.PPU: ppu.write}.items():
            buffer = buffers[client.name] = WriteBuffer()
            m.submodules[f"write_buffer_{client.name.lower()}"] = buffer
            m.d.comb += buffer.whole.eq(outputs.all())  # memory and the PPU
            wiring.connect(m, port, buffer.client)
            wiring.connect(m, buffer.port, ddma.writes[client])
        wiring.connect(m, fabric.ddma, ddma.port)
        wiring.connect(m, fabric.sdma, ddma.sdma_port)
        connect_flat(m, "m_axi_", self, ddma.axi)

        # 4. Task control and interrupts.
        wiring.connect(m, fabric.pc, pc.port)
        wiring.connect(m, pc.interrupts, interrupts.port)
        m.d.comb += [
            ddma.dma_base.eq(pc.dma_base),
            pc.busy.eq(busy),
            pc.writes_pending.eq(ddma.writes_pending),
            interrupts.last_task.eq(pc.last_task),
            pc.next_mode.eq(files["CNA"].next_mode),
            pc.answer.eq(self.step_answer),
            self.step_report.eq(pc.report),
        ]
        events = Signal(EVENT_BITS)
        for event, pulse, block in (
            (Event.CNA_FEATURE, cna.done_feature, "CNA"),
            (Event.CNA_WEIGHT, cna.done_weight, "CNA"),
            (Event.CSC, cna.done_csc, "CNA"),
            (Event.CORE, core.control.done, "CORE"),
            (Event.DPU, dpu.control.done, "DPU"),
            (Event.PPU, ppu.control.done, "PPU"),
        ):
            m.d.comb += events.bit_select(event.value + files[block].control.group, 1).eq(pulse)
        m.d.comb += [
            events[Event.DMA_READ_ERROR].eq(ddma.read_error),
            events[Event.DMA_WRITE_ERROR].eq(ddma.write_error),
            interrupts.events.eq(events),
            self.irq.eq(interrupts.irq),
        ]

        # 5. Signals for observers.
        final_diagnostic = self._diagnostics(m, fabric, pc, files, blocks, ddma)
        seen = {
            "task_start": pc.task_start,
            "task_done": pc.task_done,
            "mac_slot": cna.status.slot_valid,
            "mac_real": cna.status.slot_real,
            "stall_feature": cna.status.stall_feature,
            "stall_weight": cna.status.stall_weight,
            "stall_acc": cna.status.stall_acc,
            "dpu_octet": dpu.busy_octet,
            "ppu_atom": ppu.busy_atom,
            "stripe": cna.core.stripe.valid & cna.core.stripe.ready,
            "stall_dpu": core.acc.valid & ~core.acc.ready,
            "stall_write": Cat(p.data.valid & ~p.data.ready for p in ddma.writes).any(),
            "stall_operand": dpu.stall | ppu.stall,
        }
        m.d.sync += self.watch_valid.eq(fabric.watch.valid)
        with m.If(fabric.watch.valid):
            m.d.sync += [
                self.watch_fetched.eq(fabric.watch.fetched),
                self.watch_offset.eq(fabric.watch.offset),
                self.watch_value.eq(fabric.watch.value),
            ]
        m.d.sync += [
            self.events.eq(Cat(seen[name] for name in EVENTS)),
            self.task_index.eq(pc.task),
            self.busy_blocks.eq(busy),
        ]
        self._counted(m, pc, blocks, buffers, ddma)
        # The core reports idle only after some quiet cycles: a value may still be in a register.
        quiet = Signal(range(QUIET_CYCLES + 1), init=QUIET_CYCLES)
        stirs = Signal()
        m.d.comb += stirs.eq(
            busy.any()
            | pc.running
            | ~ddma.idle
            | self.s_axil_awvalid
            | self.s_axil_wvalid
            | self.s_axil_arvalid
            | self.s_axil_bvalid
            | self.s_axil_rvalid
            | final_diagnostic.valid
        )
        with m.If(stirs):
            m.d.sync += [quiet.eq(QUIET_CYCLES), self.idle.eq(0)]
        with m.Elif(quiet != 0):
            m.d.sync += quiet.eq(quiet - 1)
        with m.Else():
            m.d.sync += self.idle.eq(1)
        assertions.ports(m, platform, self)
        return m

    def _counted(
        self, m: Module, pc: Any, blocks: dict[str, Any], buffers: dict[str, WriteBuffer], ddma: Any
    ) -> None:
        """Drive the inputs of the performance counters (rtl/counters.py); they are held unless `counting`."""
        cna, dpu_rdma, ppu_rdma = (blocks[name] for name in ("CNA", "DPU_RDMA", "PPU_RDMA"))
        stated = {name: block.activity for name, block in blocks.items() if name != "CNA"}
        stated |= {"PC": pc.activity, "CSC": cna.csc_activity, "DDMA": ddma.activity}
        stated |= {"CNA_FEATURE": cna.feature_activity, "CNA_WEIGHT": cna.weight_activity}
        fill = {f"{client}_WRITE_BUFFER": buffer.beats for client, buffer in buffers.items()}
        for source in (cna, dpu_rdma, ppu_rdma, ddma):
            fill |= {name: source.levels[name] for name in source.levels.shape().members}
        with m.If(self.counting):
            m.d.sync += [
                self.activity.eq(Cat(stated[block.name] for block in state_blocks())),
                self.levels.eq(Cat(fill[level.name] for level in levels())),
                self.macs.eq(cna.status.macs),
                self.array_macs.eq(cna.status.array_macs),
            ]

    def _diagnostics(
        self, m: Module, fabric: Any, pc: Any, files: dict[str, Any], blocks: dict[str, Any], ddma: Any
    ) -> wiring.PureInterface:
        """Merge the diagnostics of all blocks into one port, one event per cycle."""
        ports = {"FABRIC": [fabric.diag], "PC": [pc.diag]}
        for block in GROUPED_BLOCKS:
            ports[block] = [files[block].diag, blocks[block].diag]
        ports["DDMA"] = [ddma.diag]
        merged = []
        for name, sources in ports.items():
            merge = DiagnosticMerge(len(sources))
            m.submodules[f"diagnostics_{name.lower()}"] = merge
            for n, source in enumerate(sources):
                wiring.connect(m, source, merge.i[n])
            merged.append(merge.o)
        m.submodules.diagnostics = final = DiagnosticMerge(len(merged))
        for n, source in enumerate(merged):
            wiring.connect(m, source, final.i[n])
        m.d.sync += [
            self.diag_valid.eq(final.o.valid),
            self.diag_code.eq(final.o.payload.code),
            self.diag_register.eq(final.o.payload.register),
            self.diag_value.eq(final.o.payload.value),
            self.diag_block.eq(final.o.payload.register[12:16]),
        ]
        return final.o
