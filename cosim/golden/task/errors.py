"""What the task-level golden model says when a program is wrong or would never end."""

from __future__ import annotations


class GoldenError(Exception):
    """A task does something that the hardware reports as a diagnostic or an error.

    Parameters
    ----------
    message
        what is wrong, in words.
    task
        number of the task in its kick, from 0; None outside a task.
    block, register
        names in the register description; empty when no single register is to blame.
    value
        the value that is wrong.
    code
        name of the diagnostic code the RTL raises for it.
    """

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
        self.message, self.task, self.code = message, task, code
        self.block, self.register, self.value = block, register, value
        place = "" if task is None else f"task {task}: "
        name = ".".join(part for part in (block, register) if part)
        if name:
            place += f"{name}" + ("" if value is None else f" = {value:#x}") + ": "
        super().__init__(place + message + (f" [{code}]" if code else ""))


class GoldenHang(GoldenError):
    """A task that the hardware would never finish."""


class MemoryFault(Exception):
    """An access outside every mapped range.

    Parameters
    ----------
    address, size
        first byte and number of bytes of the access.
    """

    def __init__(self, address: int, size: int, what: str) -> None:
        self.address, self.size = address, size
        super().__init__(f"{what} of {size} bytes at {address:#010x} is outside every mapped range")
