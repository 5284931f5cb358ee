"""The surroundings of a kick do not change its result: a reset just before it, slow and irregular memory."""

from __future__ import annotations

import pytest

from rkcosim.engines import DramConfig, open_engine
from rkcosim.verify.conformance.groups import GROUPS, draw_case
from rkcosim.verify.conformance.runner import Runner
from tests import seeds

SEED = seeds.seed(__name__, 24)

SLOW = DramConfig(
    jitter=80, seed=SEED & 0xFFFF, peak_bytes_per_cycle=6.0, read_latency=150, read_outstanding=3
)
LONG = {"field limits", "large maps", "streamed weights", "registers"}
"""Groups that take long; `registers` makes the following groups slow, with one read at a time."""


@pytest.mark.parametrize(
    ("dram", "resetting"), [(None, True), (SLOW, False)], ids=["after a reset", "slow memory"]
)
def test_results_stay_the_same(dram: DramConfig | None, resetting: bool) -> None:
    with open_engine(cores=1, on_diagnostic="go on", dram=dram) as device:
        runner = Runner(device)
        runner.reset()
        for group in GROUPS:
            case = draw_case(group, SEED, 0)
            if group in LONG or case.plan.hang or case.plan.fault:
                continue
            if resetting:
                runner.reset()
            outcome = runner.run(case)
            assert outcome.ok, f"seed {SEED}: {outcome.text()}"
