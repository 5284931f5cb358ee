"""The estimate of a model's file as a document: the time of each layer, of a board, and of variants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rkcosim.base import progress
from rkcosim.engines.library import DramConfig
from rkcosim.measure.perf.boards.expected import Plan, board_json
from rkcosim.measure.perf.estimator.coefficients import stored_fit, warning
from rkcosim.measure.perf.estimator.document import as_json
from rkcosim.measure.perf.estimator.plans import PLANS, Planned, estimate_plan, said
from rkcosim.measure.perf.estimator.whatif import CLOCK_MHZ, at_clock, variants


@dataclass(frozen=True)
class FileEstimate:
    """The estimate of a model's file.

    Members
    -------
    document
        Everything, as `rkcosim estimate --json` writes it.
    plans
        The estimate with each plan.
    """

    document: dict[str, Any]
    plans: Mapping[Plan, Planned]


def estimate_file(
    name: str,
    data: bytes,
    *,
    clock: float = CLOCK_MHZ,
    memory: DramConfig | None = None,
    cores: int = 1,
    plan: Plan = "ours",
    plans: Sequence[Plan] = PLANS,
    what_if: bool = False,
) -> FileEstimate:
    """Estimate a model.

    Parameters
    ----------
    name, data
        Name and bytes of its file.
    clock
        Clock of the NPU in MHz.
    memory
        Timing of the memory in cycles of 1 GHz; None: the RK3588's.
    cores
        Cores among which large layers are divided.
    plan
        The plan whose layers the document has; one of `plans`.
    plans
        Plans with which the model is estimated.
    what_if
        Whether other bandwidths, clocks, cores, divisions of CBUF and larger NPUs are estimated as well.

    Raises
    ------
    ModelError
        If the compiler refuses the model.
    ValueError
        If the clock is out of range, the model has a task that cannot be estimated, or `what_if` is asked for
        with the plan "rknn".
    """
    dram = at_clock(memory, clock)
    found = {one: estimate_plan(data, one, dram=dram, cores=cores) for one in plans}
    chosen = found[plan].estimate
    others = []
    if what_if:
        if plan != "ours":
            raise ValueError("what-if varies the plan of this compiler, not 'rknn'")
        with progress.step("what if: other memory, clocks, cores, splits and larger NPUs"):
            others = list(variants(data, clock, memory, cores, chosen))
    document = as_json(name, chosen, clock, others)
    document["plan"] = plan
    document["plans"] = {
        one: {"said": said(one, data)} | board_json(planned.estimate.cycles, planned.submits, clock, one)
        for one, planned in found.items()
    }
    document["board"] = document["plans"][plan]
    document["error"] = stored_fit().errors["held out"]
    document["warning"] = warning()
    return FileEstimate(document, found)
