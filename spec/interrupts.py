"""Interrupt events by name, and why a core whose tasks have ended raises no interrupt."""

from __future__ import annotations

from rkcosim.spec.regs import registers


def interrupt_names(mask: int) -> list[str]:
    """Return the names of the interrupt events in a mask or status, from bit 0 up."""
    events = registers()["PC"]["INTERRUPT_MASK"].fields["int_mask"].enum or {}
    return [name for name, bit in events.items() if mask & bit]


def masked(raw: int, mask: int, ended: int = 0, number: int = 0) -> list[str]:
    """Return a line if no block is running and the mask is the reason why there is no interrupt.

    The line rises only for an event of the last task; events of earlier tasks stay in the raw status without
    raising it [HW 10.2].

    Parameters
    ----------
    raw, mask
        PC.INTERRUPT_RAW_STATUS and PC.INTERRUPT_MASK of a core in which no block is running.
    ended
        Number of tasks that have ended (PC.TASK_STATUS).
    number
        Number of tasks of the kick (PC.TASK_CON.TASK_NUMBER); 0 in slave mode.
    """
    complete = 0 < number <= ended
    if not raw or (raw & mask and not complete):
        return []
    tasks = "the only task has" if number == 1 else f"all {number} tasks have"
    before = f"{tasks} ended, but " if complete else ""
    text = f"{before}PC.INTERRUPT_MASK {mask:#x} ({_text(mask)}) masks all events "
    if raw & mask:
        return [f"{text}of the last task; events of all tasks: {_text(raw)} (raw status {raw:#x})"]
    return [f"{text}that occurred: {_text(raw)} (raw status {raw:#x})"]


def _text(bits: int) -> str:
    return ", ".join(interrupt_names(bits)) or "no event"
