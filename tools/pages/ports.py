"""The table of a core's ports on docs/ports.md."""

from __future__ import annotations

from rkcosim.export.designs import exportable
from rkcosim.measure.perf.page import table
from rkcosim.spec.config import RK3588


def markdown() -> str:
    """Return the ports of a core with clock, width, idle value and meaning."""
    rows = []
    for port in exportable("core").ports(RK3588):
        idle = "-" if port.idle is None else str(port.idle)
        rows.append((f"`{port.name}`", port.direction, str(port.width), port.domain, idle, port.meaning))
    return "\n".join(table(("Port", "Direction", "Width", "Clock", "Idle", "Meaning"), rows)) + "\n"
