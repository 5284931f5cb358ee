"""Messages of the class RKNNLite, whose logger programs reach by `RKNNLite().rknn_log.logger`."""

from __future__ import annotations

import logging
import sys

LETTERS = {logging.ERROR: "E", logging.WARNING: "W", logging.INFO: "I", logging.DEBUG: "D"}


class _Console(logging.Handler):
    """Write `E NAME: text` to the current standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        print(f"{LETTERS.get(record.levelno, 'E')} {record.name}: {record.getMessage()}", file=sys.stderr)


class _File(logging.Handler):
    """Append the text of each message to a file."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def emit(self, record: logging.LogRecord) -> None:
        try:
            with open(self._path, "a", encoding="utf-8") as file:
                print(record.getMessage(), file=file)
        except OSError:
            self.handleError(record)


class RKNNLog:
    """Messages of one object.

    Parameters
    ----------
    name : name in front of each message.
    verbose : whether information and debug messages are written, too; otherwise warnings and errors.
    verbose_file : file that gets all messages as well, if `verbose` is set.

    Members
    -------
    logger : `logging.Logger` of this object alone; it is not registered, so that the settings of the
        program's other loggers have no effect on it and it has none on them.
    """

    def __init__(self, name: str, verbose: bool = False, verbose_file: str | None = None) -> None:
        self.logger = logging.Logger(name, logging.DEBUG if verbose else logging.WARNING)
        self.logger.addHandler(_Console())
        if verbose and verbose_file:
            self.logger.addHandler(_File(verbose_file))

    def d(self, text: str) -> None:
        """Write a debug message."""
        self.logger.debug("%s", text)

    def i(self, text: str) -> None:
        """Write information."""
        self.logger.info("%s", text)

    def w(self, text: str) -> None:
        """Write a warning."""
        self.logger.warning("%s", text)

    def e(self, text: str, is_raise: bool = False) -> None:
        """Write an error; with `is_raise` also raise it as a ValueError."""
        self.logger.error("%s", text)
        if is_raise:
            raise ValueError(text)
