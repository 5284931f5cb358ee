"""How a network is run: cores, inferences at the same time; and what-if rows of other memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from rkcosim.engines.library import DramConfig
from rkcosim.measure.advice.change import Change, NotApplicable, Subject, replace, setting

CORES = 3
"""Cores of the RK3588's NPU."""


def candidates(subject: Subject, total: float, batch: int) -> Iterator[Change]:
    """Yield numbers of cores and of inferences at the same time; `total` cycles and the batch of the file."""
    if subject.cores == 1 and subject.together == 1:
        for cores in range(2, CORES + 1):
            text = f"large layers divided among {cores} cores"
            yield Change(
                "cores", f"cores-{cores}", text, "same", _cores(cores), total / 2 + cores, "cores", False
            )
        if batch == 1:
            text = f"{CORES} inferences at the same time, each on a core of its own; time divided by {CORES}"
            yield Change(
                "cores", "together", text, "program", _together, total * 0.6, "cores", False, "together"
            )


def what_if(subject: Subject, total: float) -> Iterator[Change]:
    """Yield rows for a faster memory, which say what no change of memory accesses can exceed."""
    for name, text, change in (
        ("memory-2x", "memory with twice the bandwidth", lambda dram: dram.faster(2.0)),
        ("latency-half", "memory with half the latency", _sooner),
        ("memory-8x", "memory with eight times the bandwidth, as good as SRAM for everything", _sram),
    ):
        yield Change("what-if", name, text, "what-if", _dram(change), total / 10, "memory", False, "board")


def _sooner(dram: DramConfig) -> DramConfig:
    return replace(dram, read_latency=dram.read_latency // 2, write_latency=dram.write_latency // 2)


def _sram(dram: DramConfig) -> DramConfig:
    return dram.faster(8.0)


def _cores(count: int) -> Callable[[Subject], Subject]:
    def apply(subject: Subject) -> Subject:
        if subject.together > 1:
            raise NotApplicable("each core runs an inference of its own already")
        return setting(subject, cores=count)

    return apply


def _together(subject: Subject) -> Subject:
    if subject.cores > 1:
        raise NotApplicable("the cores share the layers of one inference already")
    return setting(subject, together=CORES)


def _dram(change: Callable[[DramConfig], DramConfig]) -> Callable[[Subject], Subject]:
    return lambda subject: setting(subject, dram=change(subject.dram or DramConfig()))
