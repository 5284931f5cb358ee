"""Explanations of what the blocks of a hanging core wait for, from its visible state."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence

from rkcosim.spec.co_work import answer_fields, report_fields
from rkcosim.spec.regs import registers

_STALLS = {
    "stall_feature": "CNA waits for input rows: they have not been fetched or do not fit the feature banks",
    "stall_weight": "CNA waits for weights: they have not been fetched or do not fit the weight banks",
    "stall_acc": "CNA waits for room in the accumulators: CORE or the DPU takes nothing from them",
}
"""Explanation by name of the event that is high (`EVENT_NAMES`)."""


SOURCES = {
    "DPU": ("FEATURE_MODE_CFG", "FLYING_MODE", ("CORE", "DPU_RDMA")),
    "PPU": ("OPERATION_MODE_CFG", "FLYING_MODE", ("DPU", "PPU_RDMA")),
}
"""Register and field that choose where a block's data come from, and the blocks of the values 0 and 1."""


def executing(block: str, pointer: int) -> bool:
    """Return whether S_POINTER makes accesses reach the group of registers that the data path uses.

    To reach it otherwise S_POINTER has to be written, and a write ends only when the PC's own have ended,
    which those of a hanging core do not.
    """
    fields = registers()[block]["S_POINTER"].decode(pointer)
    return fields["POINTER"] == fields["EXECUTER"]


def co_workers(core: int, reports: Sequence[int], answer: int) -> list[str]:
    """Return a line about the cores for which a core waits because they compute one layer together.

    Parameters
    ----------
    core : number of the core.
    reports : step_report of every core.
    answer : step_answer of this core.

    Returns
    -------
    One line, or none if the core does not wait for others.
    """
    step, size, kick = report_fields(reports[core])
    floor, heard, present, _ = answer_fields(answer)
    if step < 2 or not present or (heard == kick and floor >= step):
        return []
    task = (step + 1) // 2
    found = [report_fields(report) for report in reports]
    behind = [n for n, one in enumerate(found) if n != core and one[1] == size and one[0] < step]
    names = " and ".join(f"core {n} (task {found[n][0] // 2})" for n in behind)
    names = names or f"the others of a group of {size}, which have not started"
    return [f"PC waits at co-working task {task} for {names}: NN_MODE synchronises the cores"]


def explain(
    busy: Container[str],
    events: Iterable[str],
    memory: bool,
    idle: bool,
    sources: Mapping[str, str] | None = None,
) -> list[str]:
    """Explain which block waits for what.

    Parameters
    ----------
    busy : names of the running blocks.
    events : names of the events that are high.
    memory : True if memory reads are open (a write may hang half done because its data are missing).
    idle : True if the core reports that nothing is left to do.
    sources : for DPU and PPU, the block from which their registers make them take data (`SOURCES`).

    Returns
    -------
    list of str
        a line for each waiting block; empty if nothing can be concluded.
    """
    if memory or idle:
        return []
    events, sources = list(events), sources or {}
    cna, core, dpu, rdma = (name in busy for name in ("CNA", "CORE", "DPU", "DPU_RDMA"))
    ppu, ppu_rdma = "PPU" in busy, "PPU_RDMA" in busy
    if cna and not core:
        lines = [f"CNA waits for CORE{_ABSENT}"]
    else:
        lines = [_STALLS[name] for name in events if name in _STALLS]
    if core and not dpu:
        lines.append(
            "CORE waits for the DPU, which is not running (check S_POINTER: is its group enabled, "
            "and is it that group's turn?)"
        )
    elif core and "stall_dpu" in events:
        lines.append("CORE has results that the DPU does not take")
    elif core:
        lines.append(f"CORE waits for CNA{'' if cna else ', which has not started or has ended'}")
    if dpu and core and "stall_dpu" in events and not ppu:
        operands = "of DPU_RDMA" if rdma else "of DPU_RDMA, which is not running"
        lines.append(f"DPU takes no results of CORE: it waits for operands {operands}")
    elif dpu and core:
        lines.append("DPU waits for results of CORE")
    elif dpu and sources.get("DPU") == "CORE":
        lines.append(f"DPU waits for CORE (FLYING_MODE 0){_ABSENT}")
    elif dpu:
        source = "for operands or the end" if rdma else "for data, but it is not running, nor is CORE"
        lines.append(f"DPU waits for DPU_RDMA: {source}")
    if rdma and not core:
        hint = " (is MRDMA or ERDMA on without being needed?)" if sources.get("DPU") != "CORE" else ""
        lines.append(f"DPU_RDMA waits for the DPU to take its data{hint}")
    if not (cna or core or dpu or rdma or ppu or ppu_rdma):
        lines.append("PC waits for an op-enable word that can start a block")
    return lines + _pooling(dpu, ppu, ppu_rdma, sources.get("PPU", ""))


_ABSENT = ", which is not at work (is it in the task's op-enable word?)"


def _pooling(dpu: bool, ppu: bool, ppu_rdma: bool, source: str) -> list[str]:
    """Explain what PPU and PPU_RDMA wait for."""
    feeder = "which feeds it none" if dpu else "which is not running"
    if ppu and source == "DPU":
        lines = [f"PPU waits for atoms of the DPU (FLYING_MODE 0), {feeder}"]
        if ppu_rdma:
            lines.append("PPU_RDMA waits for the PPU, which takes the atoms of the DPU (FLYING_MODE 0)")
        return lines
    if ppu and ppu_rdma:
        if source == "PPU_RDMA" or dpu:
            return ["PPU waits for atoms of PPU_RDMA" + ("" if source else f" or the DPU, {feeder}")]
        return ["PPU waits for atoms of PPU_RDMA, or of the DPU (FLYING_MODE 0), which is not running"]
    if ppu and source == "PPU_RDMA":
        return ["PPU waits for atoms of PPU_RDMA (FLYING_MODE 1), which is not running"]
    if ppu:
        return [f"PPU waits for atoms of the DPU (FLYING_MODE 0), {feeder}, or of PPU_RDMA (1), not running"]
    return ["PPU_RDMA waits for the PPU, which is not running"] if ppu_rdma else []
