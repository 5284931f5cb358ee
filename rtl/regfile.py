"""Register files of the blocks: two groups of registers, pointers, start and end of a task [HW 1.7].

Semantics: [HW 1]. Both groups of a block are kept in one memory with one read port
per register. A compiled model then stores one word for a register write and does nothing else, whereas
a flip-flop for each field would cost time in every cycle.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from amaranth import Array, Cat, Const, Module, Mux, ResetSignal, Signal, Value
from amaranth.hdl import ValueLike, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.memory import Memory, WritePort
from amaranth.lib.wiring import In, Out

from rkcosim.rtl import assertions
from rkcosim.rtl.layouts import ControlPort, DiagnosticCode, DiagnosticPort, RegisterPort
from rkcosim.spec.regs import Block, Field, Register, registers
from rkcosim.spec.regs.groups import field_arrays, fields_of, register_arrays, stage

GROUPS = 2
"""Number of register groups of a block [HW 1.7]."""

ROW_BITS = 7
ROWS = 1 << ROW_BITS
"""Words of a block's window that can hold registers with groups (offsets below 0x200)."""

LUT_ENTRIES = 513
"""Entries of each of the two tables of the DPU [HW 7.9]."""


class LutPort(wiring.Signature):
    """Access to the tables of the DPU through LUT_ACCESS, seen from its register file.

    `write` and `read` are pulses for entry `entry` (0..512) of table `table` (0 LE, 1 LO); `answer` is the
    value read, in the cycle after `read`. Writes occur only while the DPU is idle.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "write": Out(1),
                "read": Out(1),
                "table": Out(1),
                "entry": Out(10),
                "data": Out(16),
                "answer": In(16),
            }
        )


def register_layout(register: Register) -> data.StructLayout:
    """Layout of the fields of a register from the lowest bit up, without the gaps between them.

    Fields that are signed in the register description have a signed shape.
    """
    return data.StructLayout(
        {
            field.name: signed(field.width) if field.signed else unsigned(field.width)
            for field in _ascending(register)
        }
    )


def pack_fields(register: Register, word: Value) -> Value:
    """Return the bits of `register_layout(register)` from a 32-bit register word."""
    return Cat(*(word[field.lsb : field.msb + 1] for field in _ascending(register)))


def unpack_fields(register: Register, packed: ValueLike) -> Value:
    """Return the 32-bit register word of a `register_layout(register)` value; gaps read 0."""
    packed = Value.cast(packed)
    parts: list[Value] = []
    at = position = 0
    for field in _ascending(register):
        parts.append(Const(0, field.lsb - position))
        parts.append(packed[at : at + field.width])
        at += field.width
        position = field.msb + 1
    return Cat(*parts)


class FieldGroup:
    """Fields of a register under other names, as attributes: values, no copies."""

    def __init__(self, of: str, fields: Mapping[str, Value]) -> None:
        self._of, self._fields = of, fields

    def __getattr__(self, name: str) -> Value:
        if name not in self._fields:
            raise AttributeError(f"{self._of} has no {name!r}; it has {', '.join(self._fields)}")
        return self._fields[name]


class ConfigPort(wiring.PureInterface):
    """Interface of `ConfigSignature`.

    Beside its members, each array of registers or fields (`rkcosim.spec.regs.groups`) is an attribute that is
    indexed with an int or a Value: `cfg.EW_OP_VALUE[lane].EW_OPERAND`, `cfg.CVT_SCALE[channel]`.
    """

    def __getattr__(self, name: str) -> Array:
        block = self.signature.block
        if name in (arrays := register_arrays(block)):
            return Array(
                FieldGroup(name, {short: self._field(register, field) for short, field in fields.items()})
                for register, fields in ((r, fields_of(r, n)) for n, r in enumerate(arrays[name]))
            )
        if name in (fields := field_arrays(block)):
            return Array(self._field(register, field) for register, field in fields[name])
        raise AttributeError(f"{block.name} has no register or array {name!r}")

    def stage(self, prefix: str) -> SimpleNamespace:
        """Return the registers of a stage without the prefix: `cfg.stage("BS").MUL_CFG.MUL_SRC`.

        Raises
        ------
        KeyError
            If no register of the block begins with the prefix.
        """
        return SimpleNamespace(
            **{
                short: FieldGroup(
                    f"{prefix}: {register.name}",
                    {name: self._field(register, field) for name, field in fields.items()},
                )
                for short, (register, fields) in stage(self.signature.block, prefix).items()
                if register.name in self.signature.members
            }
        )

    def _field(self, register: Register, field: Field) -> Value:
        return getattr(self, register.name)[field.name]


class ConfigSignature(wiring.Signature):
    """Signature of `config_signature`; `block` is the described block."""

    def __init__(self, block: Block) -> None:
        self.block = block
        super().__init__({r.name: Out(register_layout(r)) for r in shadowed_registers(block)})

    def create(self, *, path: Any = None, src_loc_at: int = 0) -> ConfigPort:
        return ConfigPort(self, path=path, src_loc_at=1 + src_loc_at)

    def __eq__(self, other: object) -> bool:
        other = other.flip() if isinstance(other, wiring.FlippedSignature) else other
        return isinstance(other, ConfigSignature) and self.block.name == other.block.name


def config_signature(block: str) -> ConfigSignature:
    """Configuration port of a block, seen from its register file.

    It has one member for each writable register with two groups, named as the register: a struct of its
    fields. A block with `cfg: In(config_signature("DPU"))` reads `self.cfg.BS_CFG.BS_BYPASS`; registers that
    belong together are also found as arrays and stages (`ConfigPort`).

    Raises
    ------
    KeyError
        If there is no such block.
    ValueError
        If the block has no register groups.
    """
    described = registers()[block]
    if not described.has_groups:
        raise ValueError(f"{block} has no register groups")
    return ConfigSignature(described)


def shadowed_registers(block: Block) -> list[Register]:
    """Registers of a block that exist once in each group."""
    return [r for r in block if r.shadowed and r.writable]


def _ascending(register: Register) -> list[Field]:
    return sorted(register.fields.values(), key=lambda field: field.lsb)


class RegisterFile(wiring.Component):
    """Both register groups of one block, its pointers, and the start and end of its tasks.

    Members
    -------
    port : In(RegisterPort())
        Register accesses.  The following writes wait (`ready` low): a write to a group that is still enabled
        waits for the end of its task; a write that clears a pointer or turns ping-pong on or off, and a write
        of LUT_ACCESS, wait until the block is idle; any write to a group waits during the `2 * ROWS` cycles
        after a reset in which the registers are set to their reset values.
    control : Out(ControlPort())
        Start, group and done of the block.  `start` comes two cycles after an op-enable at the earliest.
    op_enable : In(1)
        Pulse: enables the group under the pointer (op-enable word, GLOBAL register).
    busy : Out(1)
        A group is enabled or active: high from the cycle after an op-enable until the block is done. It is
        high, too, while the registers are set to their reset values.
    cfg : Out(config_signature(block))
        Registers of the active group, stable from start until the next start. While the block is idle, they
        change to the group that is next to run with each `show`.
    starting : Out(1)
        The block starts in the next cycle.
    show : In(1)
        A block that may read the settings of this block starts in the next cycle. (In slave mode the two may
        be started one after the other.)
    core : In(2)
        Index of this core, compared with CORE_INDEX. CNA and CORE start only if S_POINTER.CORE_INDEX equals
        it or selects all cores.
    lut : Out(LutPort())
        Accesses to the tables; only in a block with LUT_ACCESS registers [HW 7.9].
    running : Out(1)
        The block is active.
    hold : In(1)
        The block must not start while this is high.
    next_mode : Out(4)
        NN_MODE of the register group that the pointer selects; CNA only.
    diag : Out(DiagnosticPort())
        UNKNOWN_WRITE, WRONG_CORE, and RESERVED_MODE for table writes that are dropped.
    """

    def __init__(self, block: str) -> None:
        self.block = registers()[block]
        self._has_lut = any(register.name == "LUT_ACCESS_CFG" for register in self.block)
        members = {
            "port": In(RegisterPort()),
            "control": Out(ControlPort()),
            "op_enable": In(1),
            "busy": Out(1),
            "cfg": Out(config_signature(block)),
            "core": In(2),
            "starting": Out(1),
            "show": In(1),
            "running": Out(1),
            "hold": In(1),
            "diag": Out(DiagnosticPort()),
        }
        if self._has_lut:
            members["lut"] = Out(LutPort())
        self._co_works = block == "CNA"
        if self._co_works:
            members["next_mode"] = Out(4)
        super().__init__(members)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        state = Signal(register_layout(self.block["S_POINTER"]), name="S_POINTER")
        enable = Signal(GROUPS)
        running = self.running
        m.d.sync += self.diag.valid.eq(0)

        init = [row.reset if row is not None else 0 for row in self._rows()] * GROUPS
        m.submodules.groups = groups = Memory(shape=32, depth=GROUPS * ROWS, init=init)
        write_port = groups.write_port()
        sweeping = self._sweep(m, write_port)
        m.d.comb += self.busy.eq(running | enable.any() | sweeping)
        accept = self._accept(m, state, enable, sweeping)
        enable_here = Signal()
        m.d.comb += enable_here.eq(self.op_enable)
        self._write(m, write_port, accept, state, enable_here)
        begin, fetched, answered = self._read(m, groups, state, enable, running)
        m.d.comb += self.port.ready.eq(accept | answered)
        if self._has_lut:
            self._lut(m, accept, begin, fetched)
        # Group of the task that started last: a block may still read its settings after done.
        shown = Signal()
        for register in shadowed_registers(self.block):
            port = groups.read_port(domain="comb")
            m.d.comb += [
                port.addr.eq(Cat(Const(register.local // 4, ROW_BITS), shown)),
                Value.cast(getattr(self.cfg, register.name)).eq(pack_fields(register, port.data)),
            ]

        if self._co_works:
            register, port = self.block["CONV_CON2"], groups.read_port(domain="comb")
            word = data.View(register_layout(register), pack_fields(register, port.data))
            m.d.comb += [
                port.addr.eq(Cat(Const(register.local // 4, ROW_BITS), state.POINTER)),
                self.next_mode.eq(word.NN_MODE),
            ]

        with m.If(enable_here):
            m.d.sync += enable.bit_select(state.POINTER, 1).eq(1)
            with m.If(state.POINTER_PP_EN):
                m.d.sync += state.POINTER.eq(Mux(state.POINTER_PP_MODE, ~state.POINTER, ~state.EXECUTER))

        has_core = "CORE_INDEX" in self.block["S_POINTER"].fields
        core_fits = self._core_fits(state) if has_core else Const(1)
        pending = Signal()
        load = Signal()
        m.d.comb += [
            pending.eq(~running & ~sweeping & enable.bit_select(state.EXECUTER, 1)),
            load.eq(pending & core_fits & ~self.hold),
            self.control.group.eq(state.EXECUTER),
            self.starting.eq(load),
        ]
        m.d.sync += self.control.start.eq(load)
        with m.If(load | (self.show & ~running)):
            m.d.sync += shown.eq(state.EXECUTER)
        with m.If(load):
            m.d.sync += running.eq(1)
        with m.If(running & self.control.done):
            m.d.sync += [running.eq(0), enable.bit_select(state.EXECUTER, 1).eq(0)]
            with m.If(state.EXECUTER_PP_EN):
                m.d.sync += state.EXECUTER.eq(~state.EXECUTER)
        if has_core:
            self._report_wrong_core(m, pending & ~core_fits, accept, state)
        assertions.ports(m, platform, self)
        return m

    def _core_fits(self, state: data.View) -> Value:
        every = self.block["S_POINTER"].fields["CORE_INDEX"].enum["EVERY"]
        return (state.CORE_INDEX == self.core) | (state.CORE_INDEX == every)

    def _rows(self) -> list[Register | None]:
        """Registers with storage by word of the block's window, up to `ROWS`; None where there is none."""
        rows: list[Register | None] = [None] * ROWS
        for register in self.block:
            fixed = register.name in ("S_STATUS", "S_POINTER", "OPERATION_ENABLE")
            if not fixed and register.writable and register.readable:
                rows[register.local // 4] = register
        return rows

    def _sweep(self, m: Module, port: WritePort) -> Signal:
        """After a reset, write the reset values, because a memory has no reset; high during these writes."""
        was_reset = Signal(reset_less=True)
        sweeping = Signal(reset_less=True)
        row = Signal(ROW_BITS + 1, reset_less=True)
        m.d.sync += was_reset.eq(ResetSignal())
        with m.If(was_reset):
            m.d.sync += [sweeping.eq(1), row.eq(0)]
        with m.Elif(sweeping):
            m.d.comb += [port.addr.eq(row), port.en.eq(1)]
            for register in self._rows():
                if register is not None and register.reset:
                    with m.If(row[:ROW_BITS] == register.local // 4):
                        m.d.comb += port.data.eq(register.reset)
            m.d.sync += [row.eq(row + 1), sweeping.eq(~row.all())]
        return sweeping

    def _lut_access(self) -> Value:
        """Whether the current access of the port is to a LUT_ACCESS register."""
        names = [register for register in self.block if register.name.startswith("LUT_ACCESS")]
        return Cat(*(self.port.offset == register.local for register in names)).any() if names else Const(0)

    def _lut(self, m: Module, accept: Signal, begin: Signal, fetched: Signal) -> None:
        """The LUT_ACCESS registers: a single copy, an address that increments, and the tables behind them."""
        port, lut, config = self.port, self.lut, self.block["LUT_ACCESS_CFG"]
        access = self.block["LUT_ACCESS_DATA"]
        layout = register_layout(config)
        state = Signal(layout, name="LUT_ACCESS_CFG")
        writing = state.LUT_ACCESS_TYPE
        here, inside, count = Signal(), Signal(), Signal()
        written = data.View(register_layout(access), pack_fields(access, port.wdata))
        m.d.comb += [
            here.eq(port.offset == access.local),
            inside.eq(state.LUT_ADDR < LUT_ENTRIES),
            lut.table.eq(state.LUT_TABLE_ID),
            lut.entry.eq(state.LUT_ADDR),
            lut.data.eq(written.LUT_ACCESS_DATA),
            lut.write.eq(accept & here & writing & inside),
            lut.read.eq(begin & here),
        ]
        with m.If(accept & here):
            m.d.comb += count.eq(writing)
            # Lists that clear all registers write 0 to both registers; this is no access to a table.
            clearing = ~writing & (written.LUT_ACCESS_DATA == 0)
            with m.If(~(writing & inside) & ~clearing):
                m.d.sync += self._diagnose(DiagnosticCode.RESERVED_MODE, access.local, port.wdata)
        with m.If(accept & (port.offset == config.local)):
            m.d.sync += state.eq(pack_fields(config, port.wdata))
        with m.If(fetched):
            with m.If(here):
                m.d.comb += count.eq(~writing)
                entry = data.View(register_layout(access), Mux(inside & ~writing, lut.answer, 0))
                m.d.sync += port.rdata.eq(unpack_fields(access, entry))
            with m.If(port.offset == config.local):
                m.d.sync += port.rdata.eq(unpack_fields(config, state))
        with m.If(count):
            m.d.sync += state.LUT_ADDR.eq(state.LUT_ADDR + 1)

    def _accept(self, m: Module, state: data.View, enable: Signal, sweeping: Signal) -> Signal:
        """Strobe of a write that is accepted in this cycle."""
        port, pointer = self.port, self.block["S_POINTER"]
        written = data.View(register_layout(pointer), pack_fields(pointer, port.wdata))
        held = Signal()
        with m.If(port.offset == pointer.local):
            # Otherwise the active group would change while the block uses it, and executer and pointer would
            # diverge at the end of a task that another task's list follows [HW 1.7].
            clears = written.EXECUTER_PP_CLEAR | written.POINTER_PP_CLEAR
            toggles = ("EXECUTER_PP_EN", "POINTER_PP_EN")
            changes = Cat(written[name] != state[name] for name in toggles).any()
            m.d.comb += held.eq((self.busy & clears) | (self.busy & ~sweeping & changes))
        with m.Elif(self._lut_access()):
            m.d.comb += held.eq(self.busy)
        with m.Elif(port.offset >= self.block["OPERATION_ENABLE"].local):
            m.d.comb += held.eq(enable.bit_select(state.POINTER, 1) | sweeping)
        accept = Signal()
        m.d.comb += accept.eq(port.write & ~held)
        return accept

    def _address(self, state: data.View) -> Value:
        """Row of the groups' memory that the port addresses."""
        return Cat(self.port.offset[2 : 2 + ROW_BITS], state.POINTER)

    def _write(
        self,
        m: Module,
        memory: WritePort,
        accept: Signal,
        state: data.View,
        enable_here: Signal,
    ) -> None:
        port = self.port
        first = self.block["OPERATION_ENABLE"].local
        with m.If(accept):
            with m.If((port.offset > first) & (port.offset < 4 * ROWS)):
                m.d.comb += [
                    memory.addr.eq(self._address(state)),
                    memory.data.eq(port.wdata),
                    memory.en.eq(1),
                ]
            with m.Switch(port.offset):
                with m.Case(self.block["S_POINTER"].local):
                    register = self.block["S_POINTER"]
                    word = pack_fields(register, port.wdata)
                    self._write_pointer(m, state, data.View(register_layout(register), word))
                with m.Case(first):
                    register = self.block["OPERATION_ENABLE"]
                    word = pack_fields(register, port.wdata)
                    with m.If(data.View(register_layout(register), word).OP_EN):
                        m.d.comb += enable_here.eq(1)
                with m.Case(
                    *(r.local for r in self.block if r.name not in ("S_POINTER", "OPERATION_ENABLE"))
                ):
                    pass
                with m.Default():
                    m.d.sync += self._diagnose(DiagnosticCode.UNKNOWN_WRITE, port.offset, port.wdata)

    def _write_pointer(self, m: Module, state: data.View, written: data.View) -> None:
        kept = ("EXECUTER", "EXECUTER_PP_CLEAR", "POINTER_PP_CLEAR", "POINTER")
        for name in self.block["S_POINTER"].fields:
            if name not in kept:
                m.d.sync += state[name].eq(written[name])
        with m.If(written.POINTER_PP_CLEAR):
            m.d.sync += state.POINTER.eq(0)
        with m.Elif(~written.POINTER_PP_EN):
            m.d.sync += state.POINTER.eq(written.POINTER)
        with m.If(written.EXECUTER_PP_CLEAR):
            m.d.sync += state.EXECUTER.eq(0)

    def _read(
        self, m: Module, groups: Memory, state: data.View, enable: Signal, running: Signal
    ) -> tuple[Signal, Signal, Signal]:
        """Answer reads two cycles later, so that nothing is evaluated while no read is pending.

        Returns three strobes: a read begins, its word has been fetched, `rdata` is valid.
        """
        port = self.port
        init = [register.mask if register is not None else 0 for register in self._rows()]
        m.submodules.masks = masks = Memory(shape=32, depth=ROWS, init=init)
        stored, mask = groups.read_port(), masks.read_port()
        fetched = Signal()
        answered = Signal()
        begin = Signal()
        m.d.comb += [
            begin.eq(port.read & ~fetched & ~answered),
            stored.addr.eq(self._address(state)),
            stored.en.eq(begin),
            mask.addr.eq(port.offset[2 : 2 + ROW_BITS]),
            mask.en.eq(begin),
        ]
        m.d.sync += [fetched.eq(begin), answered.eq(fetched)]

        status = Signal(register_layout(self.block["S_STATUS"]), name="S_STATUS")
        for group in range(GROUPS):
            here = running & (state.EXECUTER == group)
            m.d.comb += status[f"STATUS_{group}"].eq(Mux(here, Mux(enable[1 - group], 2, 1), 0))
        with m.If(fetched):
            m.d.sync += port.rdata.eq(Mux(port.offset < 4 * ROWS, stored.data & mask.data, 0))
            with m.Switch(port.offset):
                for name, source in (("S_STATUS", status), ("S_POINTER", state)):
                    with m.Case(self.block[name].local):
                        m.d.sync += port.rdata.eq(unpack_fields(self.block[name], source))
        return begin, fetched, answered

    def _diagnose(self, code: int, local: ValueLike, value: ValueLike) -> list:
        offset = Value.cast(local) + self.block.base
        payload = self.diag.payload
        return [
            self.diag.valid.eq(1),
            payload.code.eq(code),
            payload.register.eq(offset),
            payload.value.eq(value),
        ]

    def _report_wrong_core(self, m: Module, stuck: Value, accept: Signal, state: data.View) -> None:
        """Report a diagnostic once for each task that is stuck because of its core index."""
        reported = Signal()
        with m.If(~stuck):
            m.d.sync += reported.eq(0)
        with m.Elif(~reported & ~accept):
            m.d.sync += reported.eq(1)
            m.d.sync += self._diagnose(
                DiagnosticCode.WRONG_CORE, self.block["S_POINTER"].local, state.CORE_INDEX
            )
