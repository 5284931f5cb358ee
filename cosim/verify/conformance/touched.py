"""Rules of the DPU that boards decided, by name, and which tasks of a conformance run touch them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from rkcosim.spec.types import BF16, FLOAT_CODES, FP16, FP32, STRIPE
from rkcosim.verify.crosscheck.program import Task

DIVISION = 3
"""Code of EW_ALU_ALGO."""


@dataclass(frozen=True)
class Rule:
    """A rule: where it is written, what it says in a few words, and whether a task touches it."""

    place: str
    text: str
    touches: Callable[[Task], bool]


def _floats(t: Task) -> bool:
    return t.get("DPU", "PROC_PRECISION") in FLOAT_CODES


def _lut(t: Task) -> bool:
    return not t.get("DPU", "EW_BYPASS") and not t.get("DPU", "EW_LUT_BYPASS")


def _operates(t: Task) -> bool:
    """Whether the EW operation is on."""
    return not t.get("DPU", "EW_BYPASS") and not t.get("DPU", "EW_OP_BYPASS")


def _in_floats(t: Task) -> bool:
    """Whether the EW operation is on and works on floats."""
    return _operates(t) and _floats(t) and not _lut(t)


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
    return _floats(t) and (any(stages) or late)


def _in(domain: bool, *algorithms: int) -> Callable[[Task], bool]:
    """As `_alu`, for floats (True) or integers (False)."""
    operates = _alu(*algorithms)
    return lambda t: operates(t) and _in_floats(t) is domain


def _comparison(t: Task) -> bool:
    return _alu(0, 1)(t) and bool(t.get("DPU", "EW_BINARY_EN"))


def _unwidened(t: Task) -> bool:
    half = t.get("DPU_RDMA", "IN_PRECISION") == FP16.dpu_code and bool(t.get("DPU", "FLYING_MODE"))
    return "DPU_RDMA" in t.blocks and half and not t.get("DPU_RDMA", "MRDMA_FP16TOFP32_EN")


RULES: dict[str, Rule] = {
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
