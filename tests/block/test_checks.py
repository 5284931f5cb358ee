"""The checker of settings in each cycle: how long it is busy, and when and with what it reports."""

import random
from typing import Any

import pytest

from rkcosim.rtl.layouts import DiagnosticCode
from rkcosim.rtl.npu.checks import Check, Checker
from rkcosim.spec.regs import registers
from tests import seeds
from tests.block.cna_bench import configure
from tests.simulation import simulation

SEED = seeds.seed(__name__)
LATE = Check("CONV_CON2", 1, DiagnosticCode.SIZE_MISMATCH)
CHECKS = [Check("CONV_CON1", 1), Check("DATA_SIZE0", 1, DiagnosticCode.SIZE_MISMATCH), Check("DATA_SIZE1", 1)]


@pytest.mark.parametrize("spacing", [1, 4])
def test_each_cycle(spacing: int) -> None:
    """Checks follow each other at once, or `spacing` cycles after a report; the late one comes last."""
    rng = random.Random(SEED + spacing)
    dut = Checker("CNA", CHECKS, spacing=spacing, late=LATE)
    block = registers()["CNA"]
    values = {
        name: {f: rng.randrange(1 << d.width) for f, d in block[name].fields.items()} for name in _names()
    }

    def report(check: Check) -> tuple[int, int, int]:
        return (
            int(check.code),
            block[check.register].offset,
            block[check.register].encode(**values[check.register]),
        )

    async def bench(ctx: Any) -> None:
        configure(ctx, dut.cfg, values)
        due: list[tuple[int, Check | None]] = []  # cycles of the checks that are left; None: it holds
        late, failed = False, 0
        for cycle in range(900):
            start, tells = rng.random() < (0.06 if cycle < 600 else 0.3), rng.random() < 0.04
            expected = None
            busy = bool(due)
            if busy and due[0][0] == cycle:
                check = due.pop(0)[1]
                expected = check and report(check)
            elif not busy and late:
                expected, late = report(LATE), False
            ctx.set(dut.start, start)
            ctx.set(dut.late, tells)
            ctx.set(dut.failed, failed if busy else 7)
            *_, is_busy, valid, told = await ctx.tick().sample(dut.busy, dut.diag.valid, dut.diag.payload)
            assert is_busy == busy, f"busy {is_busy} in cycle {cycle}"
            found = (told.code, told.register, told.value) if valid else None
            assert found == expected, f"{found} in cycle {cycle}, expected {expected}"
            late = late or tells
            if start:
                failed, at = rng.randrange(8), cycle + 1
                due = []
                for number, check in enumerate(CHECKS):
                    fails = failed >> number & 1
                    due.append((at, check if fails else None))
                    at += spacing if fails else 1

    simulation(dut).run(bench)


def _names() -> list[str]:
    return sorted({check.register for check in (*CHECKS, LATE)})
