"""Constants of co-working cores: size of groups, reports and answers, intervals [HW 1.9].

Co-working cores compute one layer together. Each core reports the progress of its kick to a unit of the SoC
and receives the progress of the other cores of its group. The unit is `rkcosim.rtl.co_work.StepUnit`, and
cosim/engines/harness/co_work.h in the compiled engines.
"""

from __future__ import annotations

GROUP_SIZES = {1: 2, 2: 3, 4: 2, 5: 3}
"""Number of cores of a group by NN_MODE of CONV_CON2: the cores divide the layer by rows (1 and 2) or by
kernels (4 and 5). With any other code one core works alone."""

STEP_BITS = 13
"""Bits of a step number. A co-working task has two steps: it is reached, and it has ended with all of its
output written."""

ALONE = (1 << STEP_BITS) - 1
"""Smallest step of the others for a core without others in its group: larger than 4095 tasks can reach."""

EXCHANGE_CYCLES = 32
"""Interval in cycles at which the cores exchange their steps; a power of two."""

JOIN_CYCLES = 1 << 12
"""Cycles that a core waits, from its first co-working task on, for the others of its group to start."""

PATIENCE_CYCLES = 1 << 26
"""Cycles that a core waits for the others of its group to reach its own step before it continues without
them."""

SIZE_BITS = 2
REPORT_BITS = STEP_BITS + SIZE_BITS + 1
"""Bits of a core's report: its step, the size of its group (0 if it does not co-work), and a bit that is
inverted with each kick."""

ANSWER_BITS = STEP_BITS + 1 + 1 + 3
"""Bits of an answer to a core: the smallest step of the others, the kick's bit, whether the SoC has a unit,
and the mask of the cores for which the core no longer waits."""


def report_fields(report: int) -> tuple[int, int, int]:
    """Return the step, the size of the group and the kick's bit of a core's report."""
    return report & ALONE, report >> STEP_BITS & 3, report >> (STEP_BITS + SIZE_BITS) & 1


def answer_fields(answer: int) -> tuple[int, int, int, int]:
    """Return smallest step, kick's bit, whether there is a unit, and the missing cores of an answer."""
    rest = answer >> STEP_BITS
    return answer & ALONE, rest & 1, rest >> 1 & 1, rest >> 2 & 7
