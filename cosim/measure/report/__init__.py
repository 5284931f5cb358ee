"""The HTML report of a run of a model or of a stream: one self-contained file.

`render(run, log)` makes the page of a `Run`, which `read` loads from the JSON of a run; `write` writes it
to a file.  The page loads nothing from a network.
"""

from rkcosim.measure.report.data import ReportError, Row, Run, damaged, from_json, read
from rkcosim.measure.report.page import render, write

__all__ = ["ReportError", "Row", "Run", "damaged", "from_json", "read", "render", "write"]
