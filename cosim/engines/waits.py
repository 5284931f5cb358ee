"""What the blocks of a core that does not go on wait for, in words, from what can be seen of them."""

from __future__ import annotations

from collections.abc import Container, Iterable

_STALLS = {
    "stall_feature": "CNA waits for input rows: they have not been fetched or do not fit the feature banks",
    "stall_weight": "CNA waits for weights: they have not been fetched or do not fit the weight banks",
    "stall_acc": "CNA waits for room in the accumulators: CORE or the DPU takes nothing from them",
}
"""By name of the event that is high (`EVENT_NAMES`)."""


def explain(busy: Container[str], events: Iterable[str], memory: bool, idle: bool) -> list[str]:
    """Say which block waits for what.

    Parameters
    ----------
    busy : names of the blocks at work.
    events : names of the events that are high.
    memory : whether reads of memory are under way (a write may hang half done for want of data).
    idle : whether the core says that nothing is left to do.

    Returns
    -------
    list of str
        a line for each block that waits; empty where nothing can be told.
    """
    if memory or idle:
        return []
    events = list(events)
    lines = [_STALLS[name] for name in events if name in _STALLS]
    cna, core, dpu, rdma = (name in busy for name in ("CNA", "CORE", "DPU", "DPU_RDMA"))
    ppu, ppu_rdma = "PPU" in busy, "PPU_RDMA" in busy
    if cna and not core and not lines:
        lines.append("CNA waits for CORE, which has not started")
    if core and not dpu:
        lines.append(
            "CORE waits for the DPU, which is not at work (S_POINTER: its group enabled and in turn?)"
        )
    elif core and "stall_dpu" in events:
        lines.append("CORE has results that the DPU does not take")
    elif core:
        lines.append(f"CORE waits for CNA{'' if cna else ', which has not started or has ended'}")
    if dpu and core and "stall_dpu" in events and not ppu:
        operands = "of DPU_RDMA" if rdma else "that DPU_RDMA, not at work, does not bring"
        lines.append(f"DPU takes no results of CORE: it waits for operands {operands}")
    elif dpu and core:
        lines.append("DPU waits for results of CORE")
    elif dpu:
        source = "for operands or the end" if rdma else "for data, but it is not at work, nor is CORE"
        lines.append(f"DPU waits for DPU_RDMA: {source}")
    if rdma and not core:
        lines.append(
            "DPU_RDMA waits for the DPU to take its data (is MRDMA or ERDMA on without being needed?)"
        )
    if ppu and ppu_rdma:
        lines.append("PPU waits for atoms of PPU_RDMA")
    elif ppu:
        feeder = "which feeds it none" if dpu else "which is not at work"
        lines.append(
            f"PPU waits for atoms of the DPU (FLYING_MODE 0), {feeder}, or of PPU_RDMA (1), not at work"
        )
    elif ppu_rdma:
        lines.append("PPU_RDMA waits for the PPU, which is not at work")
    if not (cna or core or dpu or rdma or ppu or ppu_rdma):
        lines.append("PC waits for an op-enable word that can start a block")
    return lines
