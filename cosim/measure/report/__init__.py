"""The HTML report of a run of a model or of a stream: one self-contained file.

`render(run, log)` makes the page of a `ReportedRun`, which `read` loads from the JSON of a run; `write`
writes it to a file.  The page loads nothing from a network.
"""

from typing import TYPE_CHECKING

from rkcosim.base.homes import lazy

if TYPE_CHECKING:
    from rkcosim.measure.report.data import ReportedRun, ReportError, ReportRow, damaged, from_json, read
    from rkcosim.measure.report.page import render, write

__all__ = ["ReportError", "ReportRow", "ReportedRun", "damaged", "from_json", "read", "render", "write"]

_DATA, _PAGE = "rkcosim.measure.report.data", "rkcosim.measure.report.page"

__getattr__ = lazy(
    __name__,
    {
        "ReportError": _DATA,
        "ReportRow": _DATA,
        "ReportedRun": _DATA,
        "damaged": _DATA,
        "from_json": _DATA,
        "read": _DATA,
        "render": _PAGE,
        "write": _PAGE,
    },
)
