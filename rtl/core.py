"""One NPU core: every block of H1.1 joined, with registered AXI ports and an interrupt line."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, ResetSignal, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.bus import Axi4, AxiLite, AxiLiteSlave, DiagnosticMerge
from rtl.clock_groups import CLOCK_GROUPS, awake
from rtl.config import RK3588, NpuConfig
from rtl.interrupt import EVENT_BITS, Event, InterruptUnit
from rtl.layouts import ReadClient, WriteClient
from rtl.npu.cna import Cna
from rtl.npu.core_block import CoreBlock
from rtl.npu.ddma import Ddma
from rtl.npu.dpu import Dpu
from rtl.npu.dpu_rdma import DpuRdma
from rtl.npu.ppu import Ppu
from rtl.npu.ppu_rdma import PpuRdma
from rtl.npu.write_buffer import WriteBuffer
from rtl.pc_dma import PcDma
from rtl.regbus import OP_ENABLE_BITS, RegisterFabric, op_enable_fields
from rtl.regfile import RegisterFile
from rtl.regs.counters import IDLE, LEVEL_BITS, levels, state_blocks, states
from rtl.regs.events import EVENTS
from rtl.regs.options import OPTION_BITS

GROUPED_BLOCKS = ("CNA", "CORE", "DPU", "DPU_RDMA", "PPU", "PPU_RDMA")
"""Blocks with two register groups, started by the op-enable mask."""

QUIET_CYCLES = 15
"""Cycles without a sign of life after which a core reports idle."""


class NpuCore(wiring.Component):
    """A whole NPU core of the RK3588 (or a smaller geometry for tests).

    Members
    -------
    s_axil_* : AXI4-Lite slave, 32-bit data, 16-bit addresses (offsets of H1.3).
    m_axi_* : AXI4 master, 256-bit data, 40-bit addresses, read ids 5 bits, write ids 4.
    core_index : In(2)         : this core's number, compared with S_POINTER.CORE_INDEX.
    options : In(8)            : readings of the hardware that differ from the default, one bit each
        (rtl/regs/options.py); changes only while the core is reset or idle.
    irq : Out(1)               : interrupt line, level.
    diag_* : Out               : diagnostic events; `diag_block` is the register window, offset[15:12].
    events : Out(16)           : pulses and levels, bits as in rtl/regs/events.py.
    task_index : Out(12)       : task of the kick that the events belong to.
    watch_* : Out              : register writes, as `rtl.layouts.RegisterWatch`, a cycle later.
    counting : In(1)           : whether the next four follow what happens, a cycle later; else they stand.
    activity : Out(48)         : what each block does, bits as `rtl.regs.counters.states`.
    levels : Out(192)          : how full queues are, 16 bits each as `rtl.regs.counters.levels`.
    macs, array_macs : Out(12) : multiply-accumulates of a slot, useful ones and those of the whole array.
    idle : Out(1)              : nothing happens here until a bus access or a memory response comes.
    busy_blocks : Out(7)       : enabled blocks, bits as the op-enable mask (H1.5).
    awake : Out                : bit for each of `CLOCK_GROUPS`, low when nothing in it will change at
        the next clock edge.

    All outputs but `awake` come from registers.  Parameters: the geometry; whether chained tasks may overlap
    (`relax_serialisation`, off as in silicon); whether the array cell is left to the engine as an
    instance of `npu_array_cell` (`external_cell`).
    """

    def __init__(
        self, config: NpuConfig = RK3588, *, relax_serialisation: bool = False, external_cell: bool = False
    ) -> None:
        self._config = config
        self._external_cell = external_cell
        self._relax = relax_serialisation
        members: dict[str, wiring.Member] = {}
        for name, member in AxiLite().flip().members.items():
            members[f"s_axil_{name}"] = member
        for name, member in Axi4().members.items():
            members[f"m_axi_{name}"] = member
        members |= {
            "core_index": In(2),
            "options": In(OPTION_BITS),
            "irq": Out(1),
            "diag_valid": Out(1),
            "diag_code": Out(8),
            "diag_block": Out(4),
            "diag_register": Out(16),
            "diag_value": Out(32),
            "events": Out(16),
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
            "awake": Out(len(CLOCK_GROUPS)),
        }
        super().__init__(members)

    def elaborate(self, platform) -> Module:
        m = Module()
        config = self._config

        # 1. Registers: host and command stream meet in the fabric.
        m.submodules.axil = axil = AxiLiteSlave()
        m.submodules.fabric = fabric = RegisterFabric()
        m.submodules.pc = pc = PcDma(relax_serialisation=self._relax)
        m.submodules.interrupts = interrupts = InterruptUnit()
        wiring.connect(m, axil.bus, fabric.host)
        wiring.connect(m, pc.bus, fabric.fetch)
        for name, member in AxiLite().members.items():
            outside, inside = getattr(self, f"s_axil_{name}"), getattr(axil.axil, name)
            m.d.comb += outside.eq(inside) if member.flow == In else inside.eq(outside)

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
        m.submodules.core_block = core = CoreBlock(external_cell=self._external_cell)
        m.submodules.dpu = dpu = Dpu(config)
        m.submodules.dpu_rdma = dpu_rdma = DpuRdma(config)
        m.submodules.ppu = ppu = Ppu(config)
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
        m.d.comb += [
            core.cell.eq(cna.cell),
            core.size.eq(cna.size),
            cna.options.eq(self.options),
            cna.bank_free.eq(core.bank_free),
        ]
        wiring.connect(m, cna.stripe, core.stripe)
        wiring.connect(m, core.acc, dpu.acc)
        m.d.comb += [dpu.core_octets.eq(core.octets), dpu.options.eq(self.options)]
        wiring.connect(m, files["DPU"].lut, dpu.lut)
        for stream in ("bs", "bn", "main", "ew"):
            wiring.connect(m, getattr(dpu_rdma, stream), getattr(dpu, stream))
        m.d.comb += dpu.rdma_busy.eq(dpu_rdma.busy)  # the DPU also takes operands it does not need
        comb_use = dpu_rdma.cfg.FEATURE_MODE_CFG.COMB_USE
        m.d.comb += [
            dpu.rdma_comb_use.eq(dpu_rdma.busy & comb_use[0]),
            dpu.rdma_copies.eq(dpu_rdma.copies),
            dpu_rdma.by_surface.eq(dpu.by_surface),
        ]
        wiring.connect(m, ppu_rdma.atoms, ppu.atoms)
        wiring.connect(m, dpu.ppu, ppu.dpu)
        # What feeds the PPU tells it the type and the size.
        wiring.connect(m, files["PPU_RDMA"].cfg, ppu.rdma_cfg)
        wiring.connect(m, files["DPU"].cfg, ppu.dpu_cfg)
        wiring.connect(m, files["PPU"].cfg, ppu_rdma.ppu_cfg)

        starting = Cat(file.starting for file in files.values()).any()
        m.d.comb += [file.show.eq(starting) for file in files.values()]
        # DPU_RDMA serves a task of the DPU once: with both groups enabled ahead (slave mode) it would
        # begin the next task's data while the DPU still waits for the end of this one's.
        served = Signal()
        with m.If(~files["DPU"].running):
            m.d.sync += served.eq(0)
        with m.Elif(dpu_rdma.control.done):
            m.d.sync += served.eq(1)
        m.d.comb += files["DPU_RDMA"].hold.eq(served)

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
        for name, member in Axi4().members.items():
            outside, inside = getattr(self, f"m_axi_{name}"), getattr(ddma.axi, name)
            m.d.comb += inside.eq(outside) if member.flow == In else outside.eq(inside)

        # 4. Task control and interrupts.
        wiring.connect(m, fabric.pc, pc.port)
        wiring.connect(m, pc.interrupts, interrupts.port)
        m.d.comb += [
            ddma.dma_base.eq(pc.dma_base),
            pc.busy.eq(busy),
            pc.writes_pending.eq(ddma.writes_pending),
            interrupts.last_task.eq(pc.last_task),
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

        # 5. What the outside may watch.
        final_diagnostic = self._diagnostics(m, fabric, pc, files, blocks, ddma)
        seen = {
            "task_start": pc.task_start,
            "task_done": pc.task_done,
            "mac_slot": cna.slot_valid,
            "mac_real": cna.slot_real,
            "stall_feature": cna.stall_feature,
            "stall_weight": cna.stall_weight,
            "stall_acc": cna.stall_acc,
            "dpu_octet": dpu.busy_octet,
            "ppu_atom": ppu.busy_atom,
            "stripe": cna.stripe.valid & cna.stripe.ready,
            "stall_dpu": core.acc.valid & ~core.acc.ready,
            "stall_write": Cat(p.data.valid & ~p.data.ready for p in ddma.writes).any(),
            "stall_operand": dpu.lacks | ppu.lacks,
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
        # Idle means quiet for a while, so that nothing on its way through a register is missed.
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
        self._clock_groups(m, axil, fabric, pc, files, blocks, ddma, final_diagnostic)
        with m.If(stirs):
            m.d.sync += [quiet.eq(QUIET_CYCLES), self.idle.eq(0)]
        with m.Elif(quiet != 0):
            m.d.sync += quiet.eq(quiet - 1)
        with m.Else():
            m.d.sync += self.idle.eq(1)
        return m

    def _counted(self, m: Module, pc, blocks, buffers: dict[str, WriteBuffer], ddma) -> None:
        """What the performance counters look at (rtl/counters.py); costs nothing while they do not."""
        cna, dpu_rdma, ppu_rdma = (blocks[name] for name in ("CNA", "DPU_RDMA", "PPU_RDMA"))
        told = {name: block.activity for name, block in blocks.items() if name != "CNA"}
        told |= {"PC": pc.activity, "CSC": cna.csc_activity, "DDMA": ddma.activity}
        told |= {"CNA_FEATURE": cna.feature_activity, "CNA_WEIGHT": cna.weight_activity}
        fill = {f"{client}_WRITE_BUFFER": buffer.beats for client, buffer in buffers.items()}
        for source in (cna, dpu_rdma, ppu_rdma, ddma):
            fill |= {name: source.levels[name] for name in source.levels.shape().members}
        with m.If(self.counting):
            m.d.sync += [
                self.activity.eq(Cat(told[block.name] for block in state_blocks())),
                self.levels.eq(Cat(fill[level.name] for level in levels())),
                self.macs.eq(cna.macs),
                self.array_macs.eq(cna.array_macs),
            ]

    def _clock_groups(self, m: Module, axil, fabric, pc, files, blocks, ddma, diagnostics) -> None:
        """Tell which groups may change at the next edge (rtl/clock_groups.py)."""
        cna, core, dpu, dpu_rdma = (blocks[name] for name in ("CNA", "CORE", "DPU", "DPU_RDMA"))
        reported = [source.diag.valid for source in (fabric, pc, ddma, *blocks.values(), *files.values())]
        accesses = [axil.bus.write, axil.bus.read, self.s_axil_bvalid, self.s_axil_rvalid]
        accesses += [self.s_axil_awvalid, self.s_axil_wvalid, self.s_axil_arvalid]
        done = [block.control.done for block in blocks.values()]
        done += [cna.done_feature, cna.done_weight, cna.done_csc, ddma.read_error, ddma.write_error]
        causes = Cat(
            ResetSignal(), pc.moves, *(file.moves for file in files.values()), *done, *accesses, *reported
        )
        told = self._merged
        control = awake(m, "control", causes.any() | Cat(*told).any())

        def runs(*names: str) -> Value:
            return Cat(*(files[name].running for name in names)).any()

        writes = Cat(
            *(
                valid
                for port in (dpu.write, blocks["PPU"].write)
                for valid in (port.req.valid, port.data.valid)
            )
        )
        causes = {
            "convolution": runs("CNA", "CORE"),
            "release": cna.releases,
            "drain": core.moves,
            "fills": cna.feature_moves | cna.weight_moves,
            "features": cna.feature_moves,
            "weights": cna.weight_moves,
            "dpu": dpu.moves,
            "floats": dpu.float_task,
            "dpu_writer": dpu.writer_moves,
            "dpu_rdma": dpu_rdma.moves,
            "ppu": runs("PPU", "PPU_RDMA") | dpu.ppu.valid,
            "memory": ~ddma.idle | writes.any(),
        }
        groups = {"control": control} | {name: awake(m, name, control | causes[name]) for name in causes}
        m.d.comb += self.awake.eq(Cat(groups[name] for name in CLOCK_GROUPS))

    def _diagnostics(self, m: Module, fabric, pc, files, blocks, ddma) -> wiring.PureInterface:
        """Merge the blocks' diagnostics into one port, one event a cycle."""
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
        self._merged = [source.valid for source in (*merged, final.o)]
        m.d.sync += [
            self.diag_valid.eq(final.o.valid),
            self.diag_code.eq(final.o.payload.code),
            self.diag_register.eq(final.o.payload.register),
            self.diag_value.eq(final.o.payload.value),
            self.diag_block.eq(final.o.payload.register[12:16]),
        ]
        return final.o
