"""Estimates of a model with both plans: this compiler's as the RTL runs it, and RKNN's as boards run it."""

from __future__ import annotations

from dataclasses import dataclass

from rkcosim.base.files import is_container
from rkcosim.compiler.batch import batch_size
from rkcosim.compiler.rknn_tiling import rknn_plans
from rkcosim.engines.library import DramConfig
from rkcosim.measure.perf.boards.expected import Plan
from rkcosim.measure.perf.estimator.estimate import Estimate, estimate_model
from rkcosim.rknn_file.opening import open_model

PLANS: tuple[Plan, ...] = ("ours", "rknn")


def said(plan: Plan, data: bytes) -> str:
    """Return in words which plan of a model file a time is for, and how its tasks run."""
    if plan == "ours":
        whose = "the file's" if is_container(data) else "this compiler's"
        return f"{whose} plan, as the RTL runs it"
    return "RKNN's plan, as boards run it"


@dataclass(frozen=True)
class Planned:
    """An estimate, and the submits of one inference."""

    estimate: Estimate
    submits: int


def estimate_plan(data: bytes, plan: Plan, *, dram: DramConfig | None = None, cores: int = 1) -> Planned:
    """Estimate a model file with a plan; a `.rknn` file keeps its own, which is RKNN's.

    Parameters
    ----------
    data
        Bytes of a file that `rkcosim.rknn_file.opening.open_model` reads.
    plan
        "rknn": convolutions are divided as RKNN divides them, load their rows and weights first, and
        cores work in lock step, in one submit.
    dram, cores
        As for `estimate_model`.

    Raises
    ------
    ModelError
        If the compiler refuses the model.
    ValueError
        If it has a task of a kind that cannot be estimated.
    """
    if plan == "ours":
        found = estimate_model(data, dram=dram, cores=cores)
        return Planned(found, len(found.jobs))
    with rknn_plans():
        model = open_model(data, cores=cores)
        if is_container(data):
            model = model.replanned(cores)
    return Planned(estimate_model(model, dram=dram, as_boards=True), model.plan.chains * batch_size(model))
