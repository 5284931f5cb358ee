"""The register writes that start a kick, in the order of the vendor driver (H 1.9)."""

from __future__ import annotations

from collections.abc import Callable

from rtl.regs import registers

WriteRegister = Callable[[str, str, int], None]
"""Writes a value to a register, by block and register name."""


def arm_kick(
    write: WriteRegister,
    core: int,
    *,
    base: int,
    amount: int,
    tasks: int,
    mask: int,
    clear: int,
    dma_base: int,
    pp_en: int,
) -> None:
    """Write everything but OPERATION_ENABLE.

    Parameters
    ----------
    write
        access to the core's registers.
    core
        its number, for the routing bits of CNA and CORE.
    base, amount
        address of the first task's words and its amount code.
    tasks
        number of tasks.
    mask, clear
        interrupt events that end the kick, and those cleared before it.
    dma_base
        TASK_DMA_BASE in bytes.
    pp_en
        fetch the next task's registers while one runs.

    Raises
    ------
    ValueError
        for a number that its field cannot hold.
    """
    pc = registers()["PC"]
    write("PC", "BASE_ADDRESS", pc["BASE_ADDRESS"].encode(PC_SEL="SLAVE_MODE"))
    for block in ("CNA", "CORE"):
        pointer = registers()[block]["S_POINTER"]
        toggles = {"POINTER_PP_MODE": 1, "EXECUTER_PP_EN": 1, "POINTER_PP_EN": 1}
        write(block, "S_POINTER", pointer.encode(CORE_INDEX=core, **toggles))
    write("PC", "BASE_ADDRESS", base)
    write("PC", "REGISTER_AMOUNTS", pc["REGISTER_AMOUNTS"].encode(PC_DATA_AMOUNT=amount))
    write("PC", "INTERRUPT_MASK", pc["INTERRUPT_MASK"].encode(int_mask=mask))
    write("PC", "INTERRUPT_CLEAR", pc["INTERRUPT_CLEAR"].encode(int_clr=clear))
    control = {"RESERVED_14": 1, "TASK_COUNT_CLEAR": 1, "TASK_PP_EN": pp_en, "TASK_NUMBER": tasks}
    write("PC", "TASK_CON", pc["TASK_CON"].encode(**control))
    write("PC", "TASK_DMA_BASE_ADDR", dma_base)


def start_kick(write: WriteRegister) -> None:
    """Let the PC begin: OP_EN 1, then 0, which does not stop it."""
    write("PC", "OPERATION_ENABLE", registers()["PC"]["OPERATION_ENABLE"].encode(OP_EN=1))
    write("PC", "OPERATION_ENABLE", 0)
