"""What the stages of the DPU's pipe share: payloads, and helpers that build registers between two stages."""

from contextlib import AbstractContextManager
from typing import Any

from amaranth.hdl import Cat, Module, Shape, Signal, Value, ValueLike, signed, unsigned
from amaranth.lib import data, enum

from rtl.layouts import ACC_BITS, LANES, Clip
from rtl.npu.dpu_math import Shift, extend, rectifier_limits, round_shift, shift_of
from rtl.npu.dpu_types import is_float

STAGES = 10

IDLE = 1
"""What wires of a stage without an octet show.  Not 0: Verilator turns `valid ? x : 0` into a mask, which
always evaluates `x`."""


class AluAlgo(enum.IntEnum):
    """BS_ALU_ALGO, BN_ALU_ALGO and EW_ALU_ALGO (H 5.3, 5.6); DIV, FLOOR and CEIL only of floats."""

    MAX = 0
    MIN = 1
    ADD = 2
    DIV = 3
    MINUS = 4
    ABS = 5
    NEG = 6
    FLOOR = 7
    CEIL = 8


FLOAT_ONLY = (AluAlgo.DIV, AluAlgo.FLOOR, AluAlgo.CEIL)


class OctetTag(data.Struct):
    """Where an octet belongs: its place in group and stripe, and what ends with it.

    `octet` in the channel group, `slot` the pixel in the stripe, `live` the lanes (0..8) that are
    real channels.
    """

    octet: 3
    slot: 4
    live: 4
    stripe_last: 1
    group_last: 1
    task_last: 1


class PipeIn(data.Struct):
    """Main data of eight channels of a pixel with their window sums, and how CPEND cuts them.

    `main` are the low 32 bits, all there is of elements from memory and of floats; `high` those above them of
    CORE's sums.
    """

    main: data.ArrayLayout(32, LANES)
    high: data.ArrayLayout(ACC_BITS - 32, LANES)
    sum: data.ArrayLayout(32, LANES)
    clip: Clip
    tag: OctetTag


class PipeOut(data.Struct):
    """Eight converted elements, each in the low bits of its 32."""

    data: data.ArrayLayout(32, LANES)
    tag: OctetTag


class Frame:
    """Stages that advance together, seen by the code that fills them.

    `valid[k]` and `tag[k]` belong to the octet in stage k; stage 0 is the input.  What lies between two
    stages hangs on the valid bit of the first, so that a simulator skips it.  A register's value is
    32 bits: a signed integer, or binary32 bits in the float domain (docs 0.4), whose values pass: all they
    need has been done ahead of stage 1 (`rtl.npu.dpu_float`).

    Members
    -------
    float_domain, lut_live : Value
        from the configuration, for the start of a task: PROC_PRECISION is a float, the LUT is in use.
    floats, late_floats : Value
        held: values are floats before the LUT's place, and after it.
    """

    def __init__(self, m: Module, cfg: Any, start: Signal) -> None:
        self.m, self.cfg, self.start = m, cfg, start
        self.valid = [Signal(name=f"valid{k}") for k in range(STAGES + 1)]
        self.tag = [Signal(OctetTag, name=f"tag{k}", reset_less=True) for k in range(STAGES + 1)]
        self.advance = Signal()
        self._flags = Signal(64, name="flags", reset_less=True)
        self._flag_values: list[Value] = []
        self.float_domain = is_float(cfg.DATA_FORMAT.PROC_PRECISION)
        self.lut_live = ~cfg.EW_CFG.EW_BYPASS & ~cfg.EW_CFG.EW_LUT_BYPASS
        self.floats = self.flag(self.float_domain)
        self.late_floats = self.flag(self.float_domain & ~self.lut_live)

    def finish(self) -> None:
        """Connect what has been gathered; call it last."""
        m = self.m
        if len(self._flag_values) > len(self._flags):
            raise ValueError(f"{len(self._flag_values)} flags, room for {len(self._flags)}")
        with m.If(self.start):
            m.d.sync += [self._flags[k].eq(value) for k, value in enumerate(self._flag_values)]

    def into(self, stage: int) -> AbstractContextManager[None]:
        """Condition under which the registers of `stage` load."""
        return self.m.If(self.advance & self.valid[stage - 1])

    def lanes(self, name: str, shape: Shape) -> list[Signal]:
        """A register for each lane."""
        return [Signal(shape, name=f"{name}_{lane}", reset_less=True) for lane in range(LANES)]

    def flag(self, value: Value) -> Value:
        """One bit that holds `value` from the start of the task on; all share a register."""
        self._flag_values.append(value)
        return self._flags[len(self._flag_values) - 1]

    def setting(self, name: str, value: ValueLike, shape: Shape) -> Signal:
        """A register that holds `value` from the start of the task on."""
        held = Signal(shape, name=f"set_{name}", reset_less=True)
        with self.m.If(self.start):
            self.m.d.sync += held.eq(value)
        return held

    def shift(self, name: str, count: Value) -> Shift:
        """A `Shift` held from the start of the task on."""
        shift = shift_of(count)
        return Shift(
            self.setting(f"{name}_count", shift.count, unsigned(6)),
            self.setting(f"{name}_below", shift.below, unsigned(62)),
            self.setting(f"{name}_unit", shift.unit, unsigned(63)),
        )

    def wire(self, value: Value) -> Signal:
        """`value` as a signal that is driven under the conditions around this call."""
        wire = Signal(value.shape(), init=IDLE)
        self.m.d.comb += wire.eq(value)
        return wire

    def gate(self, *conditions: Value) -> Signal:
        """One bit for all lanes that says whether a float conversion is to be evaluated (see float32)."""
        gate = Signal(name="gate")
        self.m.d.comb += gate.eq(Cat(conditions).all())
        return gate

    def scaled(self, product: Signal, plain: Value, positive: Shift, negative: Shift) -> Signal:
        """The product shifted by its sign's count, unshifted where `plain`."""
        m = self.m
        result = Signal(signed(64), init=IDLE)
        with m.If(plain):
            m.d.comb += result.eq(extend(product, 64))
        with m.Elif(product[-1]):
            m.d.comb += result.eq(round_shift(product, negative))
        with m.Else():
            m.d.comb += result.eq(round_shift(product, positive))
        return result


class Rectifier:
    """Saturation, ReLU and ReLUX of a stage of integers, as held from the start of the task on (docs 4.4)."""

    def __init__(self, frame: Frame, name: str, on: Value) -> None:
        stage = getattr(frame.cfg, f"{name}_CFG")
        limit = getattr(frame.cfg, f"{name}_RELUX_CMP_VALUE")[f"{name}_RELUX_CMP_DAT"]
        relu, relux = on & ~stage[f"{name}_RELU_BYPASS"], on & stage[f"{name}_RELUX_EN"]
        low, high = rectifier_limits(relu, relux, limit)
        self.low = frame.setting(f"{name}_low", low, signed(32))
        self.high = frame.setting(f"{name}_high", high, signed(32))
