"""Shared parts of the stages of the DPU's pipe: payloads, control signals, and helpers between stages."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

from amaranth.hdl import Module, Signal, Value, signed
from amaranth.lib import data, enum, wiring
from amaranth.lib.wiring import Out

from rkcosim.rtl.layouts import ACC_BITS, IDLE, LANES, Clip
from rkcosim.rtl.npu.arith import Shift, extend, held, rectifier_limits, round_shift
from rkcosim.rtl.npu.dpu_types import is_float

STAGES = 10


class AluAlgo(enum.IntEnum):
    """BS_ALU_ALGO, BN_ALU_ALGO and EW_ALU_ALGO ([HW 7.5], [HW 7.8]); DIV, FLOOR and CEIL only for floats."""

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

HALVES, WORDS = 2, 3
"""Codes of EDATA_SIZE for 16 and 32 bits."""


class OctetTag(data.Struct):
    """Place of an octet in its group and stripe, and whether it is the last one in them.

    Members
    -------
    octet : number of the octet in the channel group.
    slot : number of the pixel in the stripe.
    live : number of lanes that are real channels, 0..8.
    stripe_last, group_last, task_last : the last octet of the stripe; of the last stripe of its group; of the
        task.
    """

    octet: 3
    slot: 4
    live: 4
    stripe_last: 1
    group_last: 1
    task_last: 1


class PipeIn(data.Struct):
    """Main data of eight channels of a pixel with their window sums, and how CPEND reduces them.

    Members
    -------
    main : the low 32 bits, which are all bits of elements from memory and of floats.
    high : the higher bits of CORE's sums.
    sum : window sums.
    clip : shift and rounding.
    tag : place of the octet.
    """

    main: data.ArrayLayout(32, LANES)
    high: data.ArrayLayout(ACC_BITS - 32, LANES)
    sum: data.ArrayLayout(32, LANES)
    clip: Clip
    tag: OctetTag


class PipeOut(data.Struct):
    """Eight converted elements, each in the low bits of 32."""

    data: data.ArrayLayout(32, LANES)
    tag: OctetTag


class PipeFlow(wiring.Signature):
    """Control signals of all stages of the pipe, seen from the pipe.

    All stages advance together. `valid[k]` belongs to the octet in stage k; stage 0 is the input. The logic
    between two stages is gated by the valid bit of the first one, so that a simulator skips it. A register's
    value is 32 bits: a signed integer, or binary32 bits in the float domain [HW 7.3]. Values of the float
    domain pass these stages unchanged: `rkcosim.rtl.npu.dpu_float` has processed them ahead of stage 1.

    Members
    -------
    start : pulse, a task starts: the settings are stored.
    advance : every octet moves to the next stage.
    valid : one bit for each stage: it holds an octet.
    floats, late_floats : values are floats before the LUT, and after it; constant during a task.
    """

    def __init__(self) -> None:
        super().__init__(
            {
                "start": Out(1),
                "advance": Out(1),
                "valid": Out(1).array(STAGES + 1),
                "floats": Out(1),
                "late_floats": Out(1),
            }
        )


def float_domain(cfg: Any) -> Value:
    """Whether PROC_PRECISION is a float."""
    return is_float(cfg.DATA_FORMAT.PROC_PRECISION)


def lut_live(cfg: Any) -> Value:
    """Whether the look-up table is in use."""
    return ~cfg.EW_CFG.EW_BYPASS & ~cfg.EW_CFG.EW_LUT_BYPASS


def divides_floats(cfg: Any) -> Value:
    """Whether the EW operation is a division, which works on fp16 bits [HW 7.8.10]."""
    ew = cfg.EW_CFG
    alu = ~ew.EW_BYPASS & ew.EW_LUT_BYPASS & ~ew.EW_OP_BYPASS & ~ew.EW_OP_TYPE
    return float_domain(cfg) & alu & (ew.EW_ALU_ALGO == AluAlgo.DIV)


def into(m: Module, flow: Any, stage: int) -> AbstractContextManager[None]:
    """Condition under which the registers of `stage` load; `flow` is a `PipeFlow`."""
    return m.If(flow.advance & flow.valid[stage - 1])


def lanes(name: str, shape: Any) -> list[Signal]:
    """One register for each lane."""
    return [Signal(shape, name=f"{name}_{lane}", reset_less=True) for lane in range(LANES)]


def copied(targets: Sequence[Value], sources: Sequence[Value]) -> list[Any]:
    """Assignments of `sources` to `targets`, lane by lane."""
    return [target.eq(source) for target, source in zip(targets, sources, strict=True)]


def scaled(m: Module, product: Value, plain: Value, positive: Shift, negative: Shift) -> Signal:
    """The product, shifted by the count for its sign or unshifted where `plain`; gated as `arith.wire`."""
    result = Signal(signed(64), init=IDLE)
    with m.If(plain):
        m.d.comb += result.eq(extend(product, 64))
    with m.Elif(product[-1]):
        m.d.comb += result.eq(round_shift(product, negative))
    with m.Else():
        m.d.comb += result.eq(round_shift(product, positive))
    return result


def rectifier(m: Module, cfg: Any, start: Value, name: str, on: Value) -> tuple[Signal, Signal]:
    """Limits for saturation, ReLU and ReLUX of an integer stage [HW 7.5], held from the start on."""
    stage = cfg.stage(name)
    relu, relux = on & ~stage.CFG.RELU_BYPASS, on & stage.CFG.RELUX_EN
    low, high = rectifier_limits(relu, relux, stage.RELUX_CMP_VALUE.RELUX_CMP_DAT)
    return held(m, start, low, signed(32), f"{name}_low"), held(m, start, high, signed(32), f"{name}_high")
