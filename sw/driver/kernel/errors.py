"""The error that a call into the kernel ends with."""

from __future__ import annotations

import errno as codes
import os


class KernelError(OSError):
    """A call ends with an errno.

    Parameters
    ----------
    errno
        the (positive) number, `errno.EINVAL` and so on.
    why
        the reason in words, for the driver's log; programs see the number only.
    """

    def __init__(self, errno: int, why: str = "") -> None:
        super().__init__(errno, os.strerror(errno))
        self.why = why

    @property
    def code(self) -> int:
        """The errno, never None."""
        return self.errno if self.errno is not None else codes.EIO

    @property
    def name(self) -> str:
        """`EINVAL` and so on."""
        return codes.errorcode.get(self.code, str(self.code))

    def __str__(self) -> str:
        return f"{self.name}: {self.why}" if self.why else self.name
