"""Register files of the blocks: two groups of registers, pointers, start and end (H 1.7).

Only registers that are shadowed and writable have storage, one signal for each register and group,
as wide as its fields.  Semantics: docs/hardware.md, section 7.
"""

from __future__ import annotations

from amaranth import Cat, Const, Module, Mux, Signal, Value
from amaranth.hdl import ValueLike, signed, unsigned
from amaranth.lib import data, wiring
from amaranth.lib.wiring import In, Out

from rtl.layouts import ControlPort, DiagnosticCode, DiagnosticPort, RegisterPort
from rtl.regs import Block, Field, Register, registers

GROUPS = 2
"""Register groups of a block (H 1.7)."""


def register_layout(register: Register) -> data.StructLayout:
    """Fields of a register from the lowest bit up, without the gaps between them.

    Fields that the description calls signed have a signed shape.
    """
    return data.StructLayout(
        {
            field.name: signed(field.width) if field.signed else unsigned(field.width)
            for field in _ascending(register)
        }
    )


def pack_fields(register: Register, word: Value) -> Value:
    """The bits of `register_layout(register)` out of a 32-bit register word."""
    return Cat(*(word[field.lsb : field.msb + 1] for field in _ascending(register)))


def unpack_fields(register: Register, packed: ValueLike) -> Value:
    """The 32-bit register word out of a `register_layout(register)`; gaps read 0."""
    packed = Value.cast(packed)
    parts: list[Value] = []
    at = position = 0
    for field in _ascending(register):
        parts.append(Const(0, field.lsb - position))
        parts.append(packed[at : at + field.width])
        at += field.width
        position = field.msb + 1
    return Cat(*parts)


def config_signature(block: str) -> wiring.Signature:
    """Configuration of a block, seen from its register file.

    One member per register that has two groups and can be written, named as the register, a struct
    of its fields: a block with `cfg: In(config_signature("DPU"))` reads `self.cfg.BS_CFG.BS_BYPASS`.

    Raises
    ------
    KeyError
        if there is no such block.
    ValueError
        if the block has no register groups.
    """
    described = registers()[block]
    if not described.has_groups:
        raise ValueError(f"{block} has no register groups")
    return wiring.Signature({r.name: Out(register_layout(r)) for r in shadowed_registers(described)})


def shadowed_registers(block: Block) -> list[Register]:
    """Registers of a block that have a copy in each group."""
    return [r for r in block if r.shadowed and r.writable]


def _ascending(register: Register) -> list[Field]:
    return sorted(register.fields.values(), key=lambda field: field.lsb)


class RegisterFile(wiring.Component):
    """Both register groups of one block, its pointers, and the start and end of its tasks.

    Members
    -------
    port
        register accesses.  A write to a group that is still enabled waits (`ready` low), as does a
        write that clears a pointer, or one of LUT_ACCESS, until the block is idle.
    control
        start, group and done of the block.  `start` comes two cycles after an op-enable at the earliest.
    op_enable
        pulse: enables the group under the pointer (op-enable word, GLOBAL register).
    busy
        high from the cycle after an op-enable until the block is done and nothing more is enabled.
    cfg
        copy of the running group, taken at start and stable until done.
    core
        index of this core; CNA and CORE only run when S_POINTER.CORE_INDEX equals it.
    diag
        UNKNOWN_WRITE and WRONG_CORE.
    """

    def __init__(self, block: str) -> None:
        self.block = registers()[block]
        super().__init__(
            {
                "port": In(RegisterPort()),
                "control": Out(ControlPort()),
                "op_enable": In(1),
                "busy": Out(1),
                "cfg": Out(config_signature(block)),
                "core": In(2),
                "diag": Out(DiagnosticPort()),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        state = Signal(register_layout(self.block["S_POINTER"]), name="S_POINTER")
        enable = Signal(GROUPS)
        running = Signal()
        m.d.comb += self.busy.eq(running | enable.any())
        storage = self._storage()
        m.d.sync += self.diag.valid.eq(0)

        accept = self._accept(m, state, enable)
        enable_here = Signal()
        m.d.comb += enable_here.eq(self.op_enable)
        self._write(m, storage, accept, state, enable_here)
        self._read(m, storage, accept, state, enable, running)

        with m.If(enable_here):
            m.d.sync += enable.bit_select(state.POINTER, 1).eq(1)
            with m.If(state.POINTER_PP_EN):
                m.d.sync += state.POINTER.eq(Mux(state.POINTER_PP_MODE, ~state.POINTER, ~state.EXECUTER))

        has_core = "CORE_INDEX" in self.block["S_POINTER"].fields
        core_fits = (state.CORE_INDEX == self.core) if has_core else Const(1)
        pending = Signal()
        load = Signal()
        m.d.comb += [
            pending.eq(~running & enable.bit_select(state.EXECUTER, 1)),
            load.eq(pending & core_fits),
            self.control.group.eq(state.EXECUTER),
        ]
        m.d.sync += self.control.start.eq(load)
        with m.If(load):
            m.d.sync += running.eq(1)
            for register in shadowed_registers(self.block):
                zero, one = storage[register.name]
                cfg = getattr(self.cfg, register.name)
                m.d.sync += Value.cast(cfg).eq(Mux(state.EXECUTER, Value.cast(one), Value.cast(zero)))
        with m.If(running & self.control.done):
            m.d.sync += [running.eq(0), enable.bit_select(state.EXECUTER, 1).eq(0)]
            with m.If(state.EXECUTER_PP_EN):
                m.d.sync += state.EXECUTER.eq(~state.EXECUTER)
        if has_core:
            self._report_wrong_core(m, pending & ~core_fits, accept, state)
        return m

    def _storage(self) -> dict[str, list[Signal]]:
        """Signals of every register that has storage: one per group, or one if it is not shadowed."""
        storage = {}
        for register in self.block:
            fixed = register.name in ("S_STATUS", "S_POINTER", "OPERATION_ENABLE")
            if fixed or not (register.writable and register.readable):
                continue
            init = {field.name: field.reset for field in register.fields.values()}
            storage[register.name] = [
                Signal(register_layout(register), init=init, name=f"{register.name}_{group}")
                for group in range(GROUPS if register.shadowed else 1)
            ]
        return storage

    def _accept(self, m: Module, state: data.View, enable: Signal) -> Signal:
        """The strobe of a write that is taken in this cycle."""
        port, block = self.port, self.block
        pointer = block["S_POINTER"]
        written = data.View(register_layout(pointer), pack_fields(pointer, port.wdata))
        held = Signal()
        with m.If(port.offset == pointer.local):
            # Otherwise the group that runs would change under the block, and a task list that clears
            # the pointers in every task would enable a group that is not the executer.
            m.d.comb += held.eq(self.busy & (written.EXECUTER_PP_CLEAR | written.POINTER_PP_CLEAR))
        for register in block:
            if register.name.startswith("LUT_ACCESS"):
                with m.Elif(port.offset == register.local):
                    m.d.comb += held.eq(self.busy)
        with m.Elif(port.offset >= block["OPERATION_ENABLE"].local):
            m.d.comb += held.eq(enable.bit_select(state.POINTER, 1))
        accept = Signal()
        m.d.comb += accept.eq(port.write & ~held)
        return accept

    def _write(
        self,
        m: Module,
        storage: dict[str, list[Signal]],
        accept: Signal,
        state: data.View,
        enable_here: Signal,
    ) -> None:
        port = self.port
        with m.If(accept):
            with m.Switch(port.offset):
                for register in self.block:
                    with m.Case(register.local):
                        packed = pack_fields(register, port.wdata)
                        if register.name == "OPERATION_ENABLE":
                            with m.If(data.View(register_layout(register), packed).OP_EN):
                                m.d.comb += enable_here.eq(1)
                        elif register.name == "S_POINTER":
                            self._write_pointer(m, state, data.View(register_layout(register), packed))
                        elif register.name in storage:
                            copies = storage[register.name]
                            for group, copy in enumerate(copies):
                                with m.If((state.POINTER == group) if register.shadowed else Const(1)):
                                    m.d.sync += Value.cast(copy).eq(packed)
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
        self,
        m: Module,
        storage: dict[str, list[Signal]],
        accept: Signal,
        state: data.View,
        enable: Signal,
        running: Signal,
    ) -> None:
        """Answers reads one cycle later, so that nothing is evaluated while there is none."""
        port = self.port
        status = Signal(register_layout(self.block["S_STATUS"]), name="S_STATUS")
        for group in range(GROUPS):
            here = running & (state.EXECUTER == group)
            waiting = enable[1 - group]
            m.d.comb += status[f"STATUS_{group}"].eq(Mux(here, Mux(waiting, 2, 1), 0))
        answered = Signal()
        m.d.comb += port.ready.eq(accept | answered)
        m.d.sync += answered.eq(0)
        with m.If(port.read & ~answered):
            m.d.sync += [answered.eq(1), port.rdata.eq(0)]
            with m.Switch(port.offset):
                for register in self.block:
                    if register.name in ("S_STATUS", "S_POINTER"):
                        source: Value = Value.cast(status if register.name == "S_STATUS" else state)
                    elif register.name in storage:
                        copies = [Value.cast(copy) for copy in storage[register.name]]
                        source = Mux(state.POINTER, copies[-1], copies[0])
                    else:
                        continue
                    with m.Case(register.local):
                        m.d.sync += port.rdata.eq(unpack_fields(register, source))

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
        """One diagnostic for each task that waits for a core index it does not get."""
        reported = Signal()
        with m.If(~stuck):
            m.d.sync += reported.eq(0)
        with m.Elif(~reported & ~accept):
            m.d.sync += reported.eq(1)
            m.d.sync += self._diagnose(
                DiagnosticCode.WRONG_CORE, self.block["S_POINTER"].local, state.CORE_INDEX
            )
