"""Messages in the form of the vendor's library, filtered by RKNN_LOG_LEVEL.

They go to the logger `rkcosim.rknn_api`; its own handler prints `E RKNN: [12:34:56.789] text` on
stderr, as the environment variable allows: 0 errors, 1 also warnings, 2 also information, 3 and more
also debug lines.  Unset means errors only.
"""

from __future__ import annotations

import logging
import os
import sys
import time

log = logging.getLogger("rkcosim.rknn_api")

LETTERS = {logging.ERROR: "E", logging.WARNING: "W", logging.INFO: "I", logging.DEBUG: "D"}
quiet = False
"""Whether nothing is printed unless RKNN_LOG_LEVEL is set: for callers that report errors themselves."""

LEVELS = (logging.ERROR, logging.WARNING, logging.INFO, logging.DEBUG)


def threshold() -> int:
    """The level of `logging` from which on lines are printed."""
    if quiet and "RKNN_LOG_LEVEL" not in os.environ:
        return logging.CRITICAL
    return LEVELS[min(max(detail(), 0), len(LEVELS) - 1)]


def detail() -> int:
    """RKNN_LOG_LEVEL (0 when unset or no number): from 4 on a table of layers is printed after each run."""
    try:
        return int(os.environ.get("RKNN_LOG_LEVEL", "0"))
    except ValueError:
        return 0


class _Vendor(logging.Handler):
    """Prints the vendor's form on whatever stderr is now."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno < threshold():
            return
        now = time.strftime("%H:%M:%S", time.localtime(record.created))
        letter = LETTERS.get(record.levelno, "E")
        for line in record.getMessage().splitlines():
            print(f"{letter} RKNN: [{now}.{int(record.msecs):03}] {line}", file=sys.stderr)


log.addHandler(_Vendor())
log.setLevel(logging.DEBUG)
