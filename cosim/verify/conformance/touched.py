"""Rules of the DPU that boards decided, by name, and which tasks of a conformance run touch them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from rkcosim.spec.types import ATOM, BF16, FP16, FP32, INT8, STRIPE
from rkcosim.verify.conformance.dpu import element_bits, in_floats, input_surface, surfaces_made
from rkcosim.verify.crosscheck.program import Task

DIVISION = 3
"""Code of EW_ALU_ALGO."""


@dataclass(frozen=True)
class Rule:
    """A rule: where it is written, what it says in a few words, and whether a task touches it."""

    place: str
    text: str
    touches: Callable[[Task], bool]


def _lut(t: Task) -> bool:
    return not t.get("DPU", "EW_BYPASS") and not t.get("DPU", "EW_LUT_BYPASS")


def _operates(t: Task) -> bool:
    """Whether the EW operation is on."""
    return not t.get("DPU", "EW_BYPASS") and not t.get("DPU", "EW_OP_BYPASS")


def _in_floats(t: Task) -> bool:
    """Whether the EW operation is on and works on floats."""
    return _operates(t) and in_floats(t) and not _lut(t)


def _product(t: Task) -> bool:
    return _in_floats(t) and bool(t.get("DPU", "EW_OP_TYPE"))


def _alu(*algorithms: int) -> Callable[[Task], bool]:
    """Whether the EW operation is one of these, in either domain."""

    def touches(t: Task) -> bool:
        return _operates(t) and not t.get("DPU", "EW_OP_TYPE") and t.get("DPU", "EW_ALU_ALGO") in algorithms

    return touches


def _brain_factor(t: Task) -> bool:
    """Whether BS or BN multiplies floats with PROC_PRECISION 3."""
    stages = (
        not t.get("DPU", f"{stage}_BYPASS") and not t.get("DPU", f"{stage}_MUL_BYPASS")
        for stage in ("BS", "BN")
    )
    return t.get("DPU", "PROC_PRECISION") == BF16.dpu_code and any(stages)


def _half_operand(t: Task) -> bool:
    """Whether an EW operation of floats has an operand of 16 bits from memory."""
    from_memory = _in_floats(t) and bool(t.get("DPU", "EW_OP_SRC"))
    return from_memory and t.get("DPU_RDMA", "ERDMA_DATA_SIZE") == 2


def _registers(t: Task) -> bool:
    """Whether pixels take different EW_OP_VALUEs."""
    pixels = (t.get("DPU", "WIDTH") + 1) * (t.get("DPU", "HEIGHT") + 1)
    values = {t.get("DPU", f"EW_OPERAND_{n}") for n in range(min(8, pixels, STRIPE))}
    return _operates(t) and not t.get("DPU", "EW_OP_SRC") and len(values) > 1


def _wide_product(t: Task) -> bool:
    wide = t.get("DPU", "PROC_PRECISION") == FP32.dpu_code and bool(t.get("DPU", "EW_OP_SRC"))
    return _product(t) and wide and t.get("DPU_RDMA", "ERDMA_DATA_SIZE") == 3


def _shifted_product(t: Task) -> bool:
    return _product(t) and bool((t.get("DPU", "EW_TRUNCATE") | t.get("DPU", "EW_TRUNCATE_NEG")) & 63)


def _live_product(t: Task) -> bool:
    live = bool(t.get("DPU", "EW_OP_SRC")) and not t.get("DPU", "EW_OP_CVT_BYPASS")
    kinds = (FP16.dpu_code, FP32.dpu_code)
    return _product(t) and live and t.get("DPU", "PROC_PRECISION") in kinds


def _limits(t: Task) -> bool:
    """Whether ReLUX limits floats."""
    stages = (not t.get("DPU", f"{s}_BYPASS") and t.get("DPU", f"{s}_RELUX_EN") for s in ("BS", "BN"))
    late = not t.get("DPU", "EW_BYPASS") and not _lut(t) and bool(t.get("DPU", "EW_RELUX_EN"))
    return in_floats(t) and (any(stages) or late)


def _in(domain: bool, *algorithms: int) -> Callable[[Task], bool]:
    """As `_alu`, for floats (True) or integers (False)."""
    operates = _alu(*algorithms)
    return lambda t: operates(t) and _in_floats(t) is domain


def _comparison(t: Task) -> bool:
    return _alu(0, 1)(t) and bool(t.get("DPU", "EW_BINARY_EN"))


def _unwidened(t: Task) -> bool:
    half = t.get("DPU_RDMA", "IN_PRECISION") == FP16.dpu_code and bool(t.get("DPU", "FLYING_MODE"))
    return "DPU_RDMA" in t.blocks and half and not t.get("DPU_RDMA", "MRDMA_FP16TOFP32_EN")


def _flying(t: Task) -> bool:
    return bool(t.get("DPU", "FLYING_MODE"))


def _changed_width(t: Task) -> bool:
    before, after = element_bits(t)
    return _flying(t) and before != after


def _too_many_surfaces(t: Task) -> bool:
    """Whether SIZE_E of a flying task names more surfaces than an input surface makes."""
    return _flying(t) and t.get("DPU", "SIZE_E_1") + 1 > surfaces_made(t)


def _padding_lanes(t: Task) -> bool:
    channels, real = t.get("DPU", "CHANNEL") + 1, t.get("DPU", "ORIG_CHANNEL") + 1
    return _flying(t) and real < channels and bool(real % (8 * ATOM // element_bits(t)[1]))


def _element_surfaces(t: Task) -> bool:
    """Whether ERDMA reads several surfaces whose pitch is not EW_SURF_STRIDE."""
    each = t.get("DPU_RDMA", "ERDMA_DATA_MODE") == 1 and not t.get("DPU_RDMA", "ERDMA_DISABLE")
    rows, width = t.get("DPU_RDMA", "HEIGHT"), t.get("DPU_RDMA", "WIDTH") + 1
    pitch = (
        rows * (width + t.get("DPU_RDMA", "EW_LINE_NOTCH_ADDR")) + width + t.get("DPU_RDMA", "EW_SURF_NOTCH")
    )
    several = t.get("DPU_RDMA", "CHANNEL") >= 8 * ATOM // element_bits(t)[0]
    return "DPU_RDMA" in t.blocks and each and several and pitch != t.get("DPU_RDMA", "EW_SURF_STRIDE")


def _two_readers(t: Task) -> bool:
    return _flying(t) and t.get("DPU_RDMA", "COMB_USE") == 3 and bool(t.get("DPU", "COMB_USE"))


def _partial_factors(t: Task) -> bool:
    """Whether the last block of BRDMA's or NRDMA's factors is used in part and is not the only one."""
    channels, factors = t.get("DPU_RDMA", "CHANNEL") + 1, 4
    alone = any(t.get("DPU_RDMA", f"{reader}_DATA_USE") == factors for reader in ("BRDMA", "NRDMA"))
    return "DPU_RDMA" in t.blocks and _flying(t) and alone and channels > 8 and bool(channels % 8)


def _narrow_bytes(t: Task) -> bool:
    """Whether a flying task narrows to int8 and makes more atoms than CHANNEL_WDMA has."""
    lanes = input_surface(t)
    atoms = -(-(t.get("DPU", "CHANNEL") + 1) // lanes)
    byte = t.get("DPU", "OUT_PRECISION") == INT8.dpu_code
    return _flying(t) and byte and lanes < ATOM and atoms > -(-(t.get("DPU", "CHANNEL_WDMA") + 1) // ATOM)


RULES: dict[str, Rule] = {
    "F2": Rule("8.4.3", "surfaces of ERDMA at a pitch of their own", _element_surfaces),
    "F6": Rule("8.5.4", "two readers of main data, in turn", _two_readers),
    "H5": Rule("8.3.1", "factors of a last block that is used in part", _partial_factors),
    "H10": Rule("7.11.12", "narrowing to int8 that never ends", _narrow_bytes),
    "R1": Rule("7.11.10", "flying tasks whose elements change their width", _changed_width),
    "R1e": Rule("7.11.11", "flying tasks with a SIZE_E that is too large", _too_many_surfaces),
    "R2": Rule("7.11.1", "OFFSET_PEND within an atom of a flying task", _padding_lanes),
    "R3": Rule("7.8.2", "each pixel takes its own EW_OP_VALUE", _registers),
    "R4": Rule("7.8.5", "products of floats are shifted", _shifted_product),
    "R5": Rule("7.5.5", "factors of BS and BN are bf16", _brain_factor),
    "R6": Rule("7.8.2, 7.8.3", "16-bit operands of float operations", _half_operand),
    "R7": Rule("7.8.2", "fp32 products take 16 bits of the operand", _wide_product),
    "T1": Rule("7.8.8", "minimum and maximum compare", _comparison),
    "T2": Rule("7.8.4", "sums of floats: -0 + -0", _in(True, 2)),
    "T3": Rule("7.8.4", "differences of floats: infinities", _in(True, 4)),
    "T4b": Rule("7.8.6", "products of floats with a live converter never end", _live_product),
    "T5, T11": Rule("7.8.10", "division of fp16 bits", _in(True, DIVISION)),
    "T6": Rule("7.8.4", "differences of integers: -2^31", _in(False, 4)),
    "T8": Rule("3.5.1", "maximum and minimum of floats by their bits", _in(True, 0, 1)),
    "T11": Rule("8.2.3", "fp16 main data that are not widened", _unwidened),
    "T21": Rule("3.5.1", "ReLUX of floats by their bits", _limits),
}
"""By the names of the rows in which the boards' results were collected."""


class Touched:
    """Counts, for each rule, the tasks that touched it and matched."""

    def __init__(self) -> None:
        self.tasks: dict[str, int] = dict.fromkeys(RULES, 0)

    def add(self, tasks: Iterable[Task]) -> None:
        """Count the tasks of a case."""
        for task in tasks:
            if "DPU" in task.blocks:
                for name, rule in RULES.items():
                    self.tasks[name] += rule.touches(task)

    def rows(self) -> list[tuple[str, str, str, int]]:
        """Return the rows of a table: name, place in docs/reference, text, tasks."""
        return [(name, rule.place, rule.text, self.tasks[name]) for name, rule in RULES.items()]

    def as_json(self) -> dict[str, Any]:
        """Return plain values for a report."""
        return dict(self.tasks)
