"""PC: fetches task lists, decodes register words, and runs the task chain ([HW 1], [HW 2.1], [HW 10.3]).

Semantics: [HW 1].
"""

from amaranth import Module, Mux, Signal, Value
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl.bus import DiagnosticMerge, RegisterBus
from rkcosim.rtl.co_work import MODE_BITS, CoreSteps, StepAnswer, StepReport
from rkcosim.rtl.counters import activity_layout, drive_activity
from rkcosim.rtl.layouts import DiagnosticCode, DiagnosticPort, ReadPort, RegisterPort
from rkcosim.rtl.list_fetch import ListFetcher
from rkcosim.rtl.regbus import OP_ENABLE_BITS, op_enable_fields
from rkcosim.rtl.regfile import pack_fields, register_layout, unpack_fields
from rkcosim.spec.regs import Register, registers

SETTLE_CYCLES = 4
"""Cycles after an op-enable until `busy` and the register pointers are evaluated again."""

_R = registers()
_PC = _R["PC"]
_TARGETS = _R.word.fields["TARGET"].enum
_PRESENT = 0x0001
"""Bit of the target code that is set in every valid word and ignored by the decoder [HW 1.4]."""


def _code(target: str) -> int:
    return _TARGETS[target] & ~_PRESENT


class PcRegisters(wiring.Component):
    """Registers of the PC window except INTERRUPT_*, which are passed on.

    Members
    -------
    port : In(RegisterPort())
    interrupts : Out(RegisterPort())  : accesses of INTERRUPT_*, for `InterruptUnit`.
    link_base, link_amount : In(1)    : write BASE_ADDRESS / REGISTER_AMOUNTS from `link_value`.
    link_value : In(32)
    status : In(layout)               : fields of TASK_STATUS.
    kick : Out(1)                     : pulse, OP_EN was written with 1.
    clear_count : Out(1)              : pulse, TASK_COUNT_CLEAR was written with 1.
    slave_mode : Out(1)               : BASE_ADDRESS.PC_SEL.
    base : Out(28), amount : Out(16), tasks : Out(12), prefetch : Out(1), dma_base : Out(32)
    diag : Out(DiagnosticPort())      : UNKNOWN_WRITE, UNALIGNED_ADDRESS.
    """

    port: In(RegisterPort())
    interrupts: Out(RegisterPort())
    link_base: In(1)
    link_amount: In(1)
    link_value: In(32)
    status: In(register_layout(_PC["TASK_STATUS"]))
    kick: Out(1)
    clear_count: Out(1)
    slave_mode: Out(1)
    base: Out(28)
    amount: Out(16)
    tasks: Out(12)
    prefetch: Out(1)
    dma_base: Out(32)
    diag: Out(DiagnosticPort())

    def elaborate(self, platform: object) -> Module:
        m = Module()
        port, inner = self.port, self.interrupts
        stored: dict[str, data.View] = {}
        # Plain storage; registers that start, clear or report something are handled separately.
        for name in ("BASE_ADDRESS", "REGISTER_AMOUNTS", "TASK_CON", "TASK_DMA_BASE_ADDR"):
            resets = {field.name: field.reset for field in _PC[name].fields.values()}
            stored[name] = Signal(register_layout(_PC[name]), name=name, init=resets)

        def write(register: Register, value: Value) -> list:
            return [Value.cast(stored[register.name]).eq(pack_fields(register, value))]

        m.d.comb += [
            port.ready.eq(1),
            inner.offset.eq(port.offset),
            inner.wdata.eq(port.wdata),
            self.diag.payload.code.eq(DiagnosticCode.UNKNOWN_WRITE),
            self.diag.payload.register.eq(_PC.base + port.offset),
            self.diag.payload.value.eq(port.wdata),
        ]
        op_en = _PC["OPERATION_ENABLE"].fields["OP_EN"]
        clear = _PC["TASK_CON"].fields["TASK_COUNT_CLEAR"]
        with m.Switch(port.offset):
            for register in _PC:
                with m.Case(register.local):
                    if register.name in stored:
                        m.d.comb += port.rdata.eq(unpack_fields(register, stored[register.name]))
                        with m.If(port.write):
                            m.d.sync += write(register, port.wdata)
                    if register.name == "OPERATION_ENABLE":
                        m.d.comb += self.kick.eq(port.write & port.wdata[op_en.lsb])  # reads 0
                    elif register.name == "TASK_CON":
                        m.d.comb += self.clear_count.eq(port.write & port.wdata[clear.lsb])
                    elif register.name == "TASK_STATUS":
                        m.d.comb += port.rdata.eq(unpack_fields(register, self.status))
                    elif register.name.startswith("VERSION"):
                        m.d.comb += port.rdata.eq(register.reset)
                    elif register.name.startswith("INTERRUPT_"):
                        m.d.comb += [
                            inner.write.eq(port.write),
                            inner.read.eq(port.read),
                            port.ready.eq(inner.ready),
                            port.rdata.eq(inner.rdata),
                        ]
            with m.Default():
                m.d.comb += self.diag.valid.eq(port.write)

        with m.If(self.link_base):
            m.d.sync += write(_PC["BASE_ADDRESS"], self.link_value)
        with m.If(self.link_amount):
            m.d.sync += write(_PC["REGISTER_AMOUNTS"], self.link_value)

        # A base that is no multiple of a beat would shift the halves of every client's beats.
        dma_base = _PC["TASK_DMA_BASE_ADDR"]
        with m.If(
            port.write & (port.offset == dma_base.local) & port.wdata[dma_base.fields["DMA_BASE_ADDR"].lsb]
        ):
            m.d.comb += [
                self.diag.valid.eq(1),
                self.diag.payload.code.eq(DiagnosticCode.UNALIGNED_ADDRESS),
            ]
        m.d.comb += [
            self.slave_mode.eq(stored["BASE_ADDRESS"].PC_SEL),
            self.base.eq(stored["BASE_ADDRESS"].PC_SOURCE_ADDR),
            self.amount.eq(stored["REGISTER_AMOUNTS"].PC_DATA_AMOUNT),
            self.tasks.eq(stored["TASK_CON"].TASK_NUMBER),
            self.prefetch.eq(stored["TASK_CON"].TASK_PP_EN),
            self.dma_base.eq(unpack_fields(dma_base, stored["TASK_DMA_BASE_ADDR"])),
        ]
        return m


class PcDma(wiring.Component):
    """Run a kick: fetch its task lists, write their words to registers, start the blocks, follow the links.

    An op-enable word is held until every block of the previous mask is idle and no write response is
    outstanding. With TASK_PP_EN, the next list is read and written in the meantime. A write that its block
    delays waits at the fabric without blocking the host, and nothing that a block needs in order to finish
    passes through the fabric.

    Invalid words are dropped with a BAD_COMMAND diagnostic that carries the offset and value of the word:
    more than one target bit, an unknown target bit, an offset outside the target's window, an op-enable
    word with another offset or an empty mask (this one is still executed). The same diagnostic reports an
    OP_EN that cannot start a kick, a link in slave mode, a missing link (value: index of the task; the kick
    ends after it) and a list without an op-enable word (the kick never ends).

    Parameters
    ----------
    relax_serialisation : bool
        Hold an op-enable word only for the blocks that it starts, and not for write responses.  A task
        then counts as done when the next one starts, and both pulses coincide.

    Members
    -------
    port : In(RegisterPort())            : PC window.
    interrupts : Out(RegisterPort())     : its INTERRUPT_* part, for `InterruptUnit`.
    bus : Out(RegisterBus())             : register writes, for the fabric.
    read : Out(ReadPort())
    busy : In(7)                         : blocks that are enabled or active; bits as the op-enable mask.
    writes_pending : In(1)               : a write response is outstanding.
    op_enable : Out(7)                   : pulses, from registers.
    dma_base : Out(32)                   : TASK_DMA_BASE_ADDR.
    last_task : Out(1)                   : no kick is running, or its last task is active.
    running : Out(1)                     : a kick is running.
    task_start, task_done : Out(1)       : pulses.
    task : Out(12)                       : index in the kick of the task started last.
    activity : Out(layout)               : state of the PC (spec/regs/counters.rdl).
    next_mode : In(4)                    : NN_MODE of the convolution that the next op-enable word may start.
    report : Out(StepReport)             : progress of the kick, for co-working cores (rtl/co_work.py).
    answer : In(StepAnswer)              : progress of the other cores of the group.
    diag : Out(DiagnosticPort())
    """

    port: In(RegisterPort())
    interrupts: Out(RegisterPort())
    bus: Out(RegisterBus())
    read: Out(ReadPort())
    busy: In(OP_ENABLE_BITS)
    writes_pending: In(1)
    op_enable: Out(OP_ENABLE_BITS)
    dma_base: Out(32)
    last_task: Out(1)
    running: Out(1)
    task_start: Out(1)
    task_done: Out(1)
    task: Out(12)
    activity: Out(activity_layout("PC"))
    next_mode: In(MODE_BITS)
    report: Out(StepReport)
    answer: In(StepAnswer)
    diag: Out(DiagnosticPort())

    def __init__(self, relax_serialisation: bool = False) -> None:
        super().__init__()
        self._relax = relax_serialisation

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.registers = regs = PcRegisters()
        m.submodules.fetcher = fetcher = ListFetcher()
        m.submodules.diagnostics = diagnostics = DiagnosticMerge(4)
        m.submodules.steps = steps = CoreSteps()
        wiring.connect(m, wiring.flipped(self.port), regs.port)
        wiring.connect(m, wiring.flipped(self.interrupts), regs.interrupts)
        wiring.connect(m, wiring.flipped(self.read), fetcher.read)
        wiring.connect(m, wiring.flipped(self.diag), diagnostics.o)
        wiring.connect(m, regs.diag, diagnostics.i[0])
        wiring.connect(m, steps.diag, diagnostics.i[3])
        kick_diag, word_diag = diagnostics.i[1], diagnostics.i[2]

        # --- The kick.
        final = Signal(12)  # index of the last task
        prefetch = Signal()
        list_index = Signal(12)  # list that is being decoded
        fetch_index = Signal(12)  # list that was fetched last
        started = Signal()  # the op-enable word of the list has been executed
        base_seen, amount_seen = Signal(), Signal()
        ahead = Signal()  # the fetch of the next list has been started
        ended = Signal(12)  # TASK_STATUS.TASK_COUNTER

        # --- The active task.
        task_active = Signal()
        mask = Signal(OP_ENABLE_BITS)
        settle = Signal(range(SETTLE_CYCLES + 1), init=0)
        settled = Signal()
        task_ends = Signal()
        m.d.comb += [
            settled.eq(settle == 0),
            task_ends.eq(task_active & settled & ~(self.busy & mask).any() & ~self.writes_pending),
        ]
        m.d.sync += [self.task_start.eq(0), self.task_done.eq(task_ends), self.op_enable.eq(0)]
        with m.If(~settled):
            m.d.sync += settle.eq(settle - 1)
        with m.If(task_ends):
            m.d.sync += [task_active.eq(0), ended.eq(ended + 1)]

        # --- The current word.
        layout = register_layout(_R.word)
        word = Signal(layout, reset_less=True)
        word_last = Signal(reset_less=True)
        word_valid = Signal()
        go = Signal()
        accept = Signal()
        is_enable = Signal()
        is_write = Signal()
        is_base, is_amount = Signal(), Signal()
        malformed = Signal()
        self._decode(m, word, is_enable, is_write, is_base, is_amount, malformed)

        new_mask = word.VALUE[:OP_ENABLE_BITS]
        may_enable = Signal()
        if self._relax:
            m.d.comb += may_enable.eq(~(self.busy & new_mask).any())
        else:
            m.d.comb += may_enable.eq(~task_active)
        with m.If(is_enable & new_mask[op_enable_fields()["CNA"]]):
            m.d.comb += steps.mode.eq(self.next_mode)
        m.d.comb += [
            steps.ready.eq(word_valid & settled & is_enable & ~task_active),
            steps.starts.eq(accept & is_enable),
            steps.finishes.eq(task_ends),
            steps.answer.eq(self.answer),
            self.report.eq(steps.report),
        ]

        # LUT_ACCESS has no register groups: such a write waits until the DPU is idle.
        is_lut = Signal()
        luts = [r.offset for r in _R["DPU"] if r.name.startswith("LUT_ACCESS")]
        with m.Switch(word.OFFSET):
            with m.Case(*luts):
                m.d.comb += is_lut.eq(1)
        dpu_idle = ~self.busy[op_enable_fields()["DPU"]]
        m.d.comb += [
            go.eq(word_valid & settled),
            self.bus.write.eq(go & is_write & (~is_lut | dpu_idle)),
            self.bus.offset.eq(word.OFFSET),
            self.bus.wdata.eq(word.VALUE),
            accept.eq(
                go
                & Mux(
                    is_write,
                    self.bus.write & self.bus.ready,
                    ~is_enable | (may_enable & steps.may_go),
                )
            ),
            regs.link_value.eq(word.VALUE),
            regs.link_base.eq(accept & is_base),
            regs.link_amount.eq(accept & is_amount),
            word_diag.valid.eq(accept & malformed),
            word_diag.payload.code.eq(DiagnosticCode.BAD_COMMAND),
            word_diag.payload.register.eq(word.OFFSET),
            word_diag.payload.value.eq(word.VALUE),
        ]
        with m.If(accept):
            m.d.sync += word_valid.eq(0)
            with m.If(is_base):
                m.d.sync += base_seen.eq(1)
            with m.If(is_amount):
                m.d.sync += amount_seen.eq(1)
            with m.If(is_enable):
                m.d.comb += word_diag.valid.eq(~new_mask.any())
                m.d.sync += [
                    self.op_enable.eq(new_mask),
                    self.task.eq(list_index),
                    self.task_start.eq(1),
                    settle.eq(SETTLE_CYCLES),
                    started.eq(1),
                    task_active.eq(1),
                    mask.eq(new_mask | Mux(task_active & ~task_ends, mask, 0)),
                ]
                if self._relax:
                    with m.If(task_active):
                        m.d.sync += [self.task_done.eq(1), ended.eq(ended + 1)]

        # --- Lists.
        more = Signal()
        m.d.comb += [
            more.eq(list_index != final),
            fetcher.base.eq(regs.base),
            fetcher.amount.eq(regs.amount),
            kick_diag.payload.code.eq(DiagnosticCode.BAD_COMMAND),
            kick_diag.payload.register.eq(_PC["OPERATION_ENABLE"].offset),
        ]
        with m.FSM() as fsm:
            with m.State("IDLE"):
                with m.If(regs.kick):
                    with m.If(regs.slave_mode | (regs.tasks == 0)):
                        m.d.comb += kick_diag.valid.eq(1)
                    with m.Else():
                        m.d.comb += [fetcher.start.eq(1), steps.begins.eq(1)]
                        m.d.sync += [
                            final.eq(regs.tasks - 1),
                            prefetch.eq(regs.prefetch),
                            list_index.eq(0),
                            fetch_index.eq(0),
                            self.task.eq(0),
                        ]
                        m.next = "LIST"
            with m.State("LIST"):
                m.d.comb += fetcher.words.ready.eq(~word_valid | (accept & ~word_last))
                with m.If(fetcher.words.valid & fetcher.words.ready):
                    m.d.sync += [
                        word_valid.eq(1),
                        Value.cast(word).eq(pack_fields(_R.word, fetcher.words.payload.word)),
                        word_last.eq(fetcher.words.payload.last),
                    ]
                # Read ahead as soon as the link is known, while the op-enable word is held.
                early = go & is_enable & base_seen & amount_seen & prefetch & more
                with m.If(early & ~ahead & fetcher.ready):
                    m.d.comb += fetcher.start.eq(1)
                    m.d.sync += [ahead.eq(1), fetch_index.eq(fetch_index + 1)]
                with m.If(accept & word_last):
                    m.next = "LIST-END"
            with m.State("LIST-END"):
                m.d.sync += [started.eq(0), base_seen.eq(0), amount_seen.eq(0), ahead.eq(0)]
                with m.If(~started):
                    m.d.comb += [kick_diag.valid.eq(1), kick_diag.payload.value.eq(list_index)]
                    m.next = "NEVER-ENDS"
                with m.Elif(~more):
                    m.next = "DRAIN"
                with m.Elif(ahead):
                    m.d.sync += list_index.eq(list_index + 1)
                    m.next = "LIST"
                with m.Elif(base_seen):
                    m.next = "NEXT"
                with m.Else():
                    m.d.comb += [
                        kick_diag.valid.eq(1),
                        kick_diag.payload.register.eq(_PC["BASE_ADDRESS"].offset),
                        kick_diag.payload.value.eq(list_index),
                    ]
                    m.next = "DRAIN"
            with m.State("NEXT"):
                with m.If((prefetch | (settled & ~task_active)) & fetcher.ready):
                    m.d.comb += fetcher.start.eq(1)
                    m.d.sync += [list_index.eq(list_index + 1), fetch_index.eq(fetch_index + 1)]
                    m.next = "LIST"
            with m.State("DRAIN"):
                with m.If(~task_active):
                    m.d.comb += steps.ends.eq(1)
                    m.next = "IDLE"
            with m.State("NEVER-ENDS"):
                pass
        with m.If(regs.kick & ~fsm.ongoing("IDLE")):
            m.d.comb += kick_diag.valid.eq(1)
        with m.If(regs.clear_count):
            m.d.sync += ended.eq(0)
        in_list, drain = fsm.ongoing("LIST"), fsm.ongoing("DRAIN")
        next_list = Signal()
        m.d.comb += next_list.eq(fsm.ongoing("NEXT"))
        drive_activity(
            m,
            self.activity,
            fsm.ongoing("IDLE"),
            BUSY=(in_list & (accept | (~word_valid & fetcher.words.valid)))
            | fsm.ongoing("LIST-END")
            | (next_list & fetcher.start)
            | (drain & ~task_active),
            HELD=in_list & word_valid & (is_write | ~settled),
            TASK=(in_list & word_valid & is_enable) | next_list | drain | fsm.ongoing("NEVER-ENDS"),
            FETCH=in_list & ~word_valid,
        )

        # --- Diagnostics.
        running = Signal()
        m.d.comb += [
            running.eq(~fsm.ongoing("IDLE")),
            self.running.eq(running),
            self.last_task.eq(~running | (self.task == final)),
            self.dma_base.eq(regs.dma_base),
            regs.status.TASK_COUNTER.eq(ended),
            regs.status.FIRST_OPERATING.eq(task_active & (self.task == 0)),
            regs.status.LAST_OPERATING.eq(task_active & (self.task == final)),
            regs.status.FIRST_FETCHING.eq(fetcher.fetching & (fetch_index == 0)),
            regs.status.LAST_FETCHING.eq(fetcher.fetching & (fetch_index == final)),
        ]
        return m

    def _decode(
        self,
        m: Module,
        word: data.View,
        is_enable: Signal,
        is_write: Signal,
        is_base: Signal,
        is_amount: Signal,
        malformed: Signal,
    ) -> None:
        """Decode the current word; a word of none of these kinds is a no-op [HW 1.4]."""
        target = Signal(16)
        window = word.OFFSET[12:]
        m.d.comb += [target.eq(word.TARGET & ~_PRESENT), malformed.eq(0)]
        with m.Switch(target):
            with m.Case(0, _code("CONFIG_END")):
                pass
            with m.Case(_code("OP_ENABLE")):
                right = word.OFFSET == _PC["OPERATION_ENABLE"].offset
                m.d.comb += [is_enable.eq(right), malformed.eq(~right)]
            with m.Case(_code("PC")):
                here = window == _PC.base >> 12
                with m.If(word.OFFSET == _PC["BASE_ADDRESS"].offset):
                    slave = word.VALUE[_PC["BASE_ADDRESS"].fields["PC_SEL"].lsb]
                    m.d.comb += [is_base.eq(~slave), malformed.eq(slave)]
                with m.Elif(word.OFFSET == _PC["REGISTER_AMOUNTS"].offset):
                    m.d.comb += is_amount.eq(1)
                with m.Else():
                    m.d.comb += [is_write.eq(here), malformed.eq(~here)]
            for name in _TARGETS:
                if name in ("NOP", "CONFIG_END", "OP_ENABLE", "PC"):
                    continue
                windows = [b.base >> 12 for b in _R if b.target == _TARGETS[name]]
                with m.Case(_code(name)):
                    here = Signal(name=f"in_{name.lower()}")
                    with m.Switch(window):
                        with m.Case(*windows):
                            m.d.comb += here.eq(1)
                    m.d.comb += [is_write.eq(here), malformed.eq(~here)]
            with m.Default():
                m.d.comb += malformed.eq(1)
