"""What became of the mutants, and the page about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

FOUND, SURVIVED, VOID = "found", "survived", "void"

WANTED = 0.95
"""Share of the mutants of a side that must be found."""

_FAR = "the address of an element past 4 GiB: needs memory at the very end of the address space"
_ZERO = "0 is the same with either shift and with none"
_WIDE_SUM = "a sum of operands beyond 32 bits takes more of them than a drawn window has"
_BORDER = "only a size right at the border of a diagnostic shows it, which these cases did not draw"

LOOKED_AT: tuple[tuple[str, str, str], ...] = (
    ("cosim/golden/task/context.py", "addresses = addresses.ravel() % (1 << 32)", _FAR),
    ("cosim/golden/task/context.py", "addresses.ravel()", _FAR),
    ("cosim/golden/task/arith.py", "0 -> 1 in return np.where(value >= 0", _ZERO),
    ("cosim/golden/task/arith.py", "value >= 0 -> value > 0", _ZERO),
    ("cosim/golden/task/dpu_stages.py", "0 -> 1 in return np.where(value >= 0", _ZERO),
    ("cosim/golden/task/dpu_stages.py", "value >= 0 -> value > 0", _ZERO),
    ("cosim/golden/task/core.py", "def signed_words", _WIDE_SUM),
    ("cosim/golden/task/core.py", "(1 << bits)", _WIDE_SUM),
    ("cosim/golden/task/core.py", "1 << bits", _WIDE_SUM),
    (
        "cosim/golden/task/core_float.py",
        "in value = np.where(finite, bits, 0)",
        "sums with an infinity or a NaN in them are put in afterwards, whatever stood for it",
    ),
    (
        "cosim/golden/task/core_float.py",
        "bits >> 31 == 1 -> ",
        "the signs of both operands turn round, so that of their product does not",
    ),
    (
        "cosim/golden/task/cna_argb.py",
        "in return 4 * shape.type.bits // 8",
        "where pixels lie in CBUF shows only when they just fit their banks",
    ),
    ("cosim/golden/task/core.py", "in half = 1 <<", _WIDE_SUM),
    ("cosim/golden/task/cna_banks.py", "in STRIPE = 16", _BORDER),
    ("cosim/golden/task/dpu.py", "in return PpuFeed(", _BORDER),
    ("cosim/golden/task/ppu.py", "ATOM // width", _BORDER),
    (
        "cosim/golden/task/dpu_check.py",
        "'OUT_CVT_SHIFT') % 64",
        "the diagnostic named the register for MINUS_EXP as well; the draw has been changed since",
    ),
    (
        "cosim/golden/task/core_float.py",
        "1 -> 2 in near =",
        "the bit that the mask gains is the last one that is kept anyway",
    ),
    (
        "cosim/golden/task/cna_argb.py",
        "in ATOM = 16",
        "zeros in CBUF behind the last pixel, which no pixel reads",
    ),
    (
        "cosim/golden/task/dpu.py",
        "32 -> 33 in group = 32",
        "33 channels have as many whole atoms as 32",
    ),
    (
        "cosim/golden/task/cna.py",
        '(con3, "CONV_Y_STRIDE") or 1',
        "a stride of 0, drawn in few cases of one group",
    ),
    (
        "cosim/golden/task/cna_banks.py",
        "-shape.height -> shape.height",
        "maps in ARGB that do not fit their banks; drawn since",
    ),
    ("cosim/golden/task/cna_banks.py", "in STRIPE = 16", _BORDER),
    (
        "cosim/golden/task/core_float.py",
        "in top = np.where(used, q, -(1 << 20))",
        "an exponent below all others: any is as good",
    ),
    (
        "cosim/golden/task/dpu_float.py",
        "half >> 15 << 31 -> half >> 15 >> 31",
        "only a negative NaN among the operands shows it",
    ),
    (
        "rtl/npu/core_block.py",
        "advance | ~loaded -> advance & ~loaded",
        "an octet is read a cycle later: only how soon",
    ),
    (
        "rtl/npu/float32.py",
        "is_zero(a) | (b[:31] == INFINITY)",
        "a large number over infinity is not drawn; a small one comes to zero in the general way too",
    ),
    (
        "rtl/npu/cna_settings.py",
        "single_row",
        "the order in which surfaces of one column are fetched; the data are the same",
    ),
    (
        "rtl/npu/dpu_rdma_operands.py",
        "~full & (left == 0)",
        "the reader's end shows only when the next task begins while it still unpacks",
    ),
)
"""(path, part of the text) of survivors that were looked at, and why nothing shows them."""


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant ("found", "survived" or "void"), and where."""

    side: str
    kind: str
    mutant: str
    result: str
    detail: str
    seconds: float

    @property
    def reason(self) -> str:
        """Why nothing shows a survivor, if that is known."""
        for path, part, reason in LOOKED_AT:
            if self.mutant.startswith(path) and part in self.mutant:
                return reason
        return "not looked at yet"


def counted(verdicts: Sequence[Verdict], side: str) -> tuple[int, int, int]:
    """Mutants found, mutants that count, void ones of a side."""
    mine = [v for v in verdicts if v.side == side]
    void = sum(v.result == VOID for v in mine)
    return sum(v.result == FOUND for v in mine), len(mine) - void, void


def good(verdicts: Sequence[Verdict]) -> bool:
    """Whether enough mutants of each side are found."""
    return all(
        found >= WANTED * count for found, count, _ in (counted(verdicts, s) for s in ("golden", "rtl"))
    )


def markdown(verdicts: Sequence[Verdict], commands: Sequence[str]) -> str:
    """The page: figures, survivors and what is known about them."""
    lines = [
        "# Mutation check",
        "",
        f"Written by {' and '.join(f'`{command}`' for command in commands)}.",
        "Small faults are put into the sources of the RTL and of the golden model, one at a time; a fault is",
        "found when a conformance case then shows a difference. `cosim/conformance/mutation_rules.py` names",
        "the places that are left alone, with the reasons.",
        "",
        "| Side | Mutants | Found | Share |",
        "| --- | --- | --- | --- |",
    ]
    for side, name in (("rtl", "RTL"), ("golden", "golden model")):
        found, count, _ = counted(verdicts, side)
        if count:
            lines.append(f"| {name} | {count} | {found} | {found / count:.1%} |")
    lines += ["", "| Change | Mutants | Found |", "| --- | --- | --- |"]
    real = [v for v in verdicts if v.result != VOID]
    totals, hits = Counter(v.kind for v in real), Counter(v.kind for v in real if v.result == FOUND)
    lines += [f"| {kind} | {totals[kind]} | {hits[kind]} |" for kind in sorted(totals)]
    lines += ["", "## Survivors", ""]
    left = [v for v in real if v.result == SURVIVED]
    lines += [
        f"- `{v.mutant}` ({v.detail}): {v.reason}" for v in sorted(left, key=lambda v: (v.side, v.mutant))
    ] or ["None."]
    return "\n".join(lines) + "\n"
