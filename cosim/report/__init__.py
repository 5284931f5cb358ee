"""The HTML report: one file with everything in it, of a run of a model or of a stream.

`render(run, log)` makes the page of a `Run`, which `read` takes from the JSON of a run; `write` puts it
into a file.  Nothing in it comes from a network.
"""

from cosim.report.data import ReportError, Row, Run, from_json, read
from cosim.report.page import render, write

__all__ = ["ReportError", "Row", "Run", "from_json", "read", "render", "write"]
