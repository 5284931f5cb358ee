"""Errors of the task-level golden model: a wrong program, or one that would never end."""

from __future__ import annotations

from rkcosim.base import DEVICE_ERROR, Error


class GoldenError(Error):
    """A task does something that the hardware reports as a diagnostic or an error.

    Parameters
    ----------
    message
        What is wrong, in words.
    task
        Number of the task in its kick, from 0; None outside of a task.
    block, register
        Names in the register description; empty if no single register is the cause.  The member `register` is
        the whole name, as "DPU.DATA_CUBE_WIDTH", or None; `name` is the register's alone.
    value
        The wrong value.
    code
        Name of the diagnostic code that the RTL reports for it.
    """

    exit_code = DEVICE_ERROR

    def __init__(
        self,
        message: str,
        *,
        task: int | None = None,
        block: str = "",
        register: str = "",
        value: int | None = None,
        code: str = "",
    ) -> None:
        self.message, self.code = message, code
        self.block, self.name, self.value = block, register, value
        place = "" if task is None else f"task {task}: "
        name = ".".join(part for part in (block, register) if part)
        if name:
            place += f"{name}" + ("" if value is None else f" = {value:#x}") + ": "
        whole = name if register else None
        super().__init__(place + message + (f" [{code}]" if code else ""), task=task, register=whole)


class GoldenHang(GoldenError):
    """A task that the hardware would never finish."""


class MemoryFault(Exception):
    """An access outside every mapped range.

    Parameters
    ----------
    address, size
        First byte and number of bytes of the access.
    """

    def __init__(self, address: int, size: int, what: str) -> None:
        self.address, self.size = address, size
        super().__init__(f"{what} of {size} bytes at {address:#010x} is outside every mapped range")
