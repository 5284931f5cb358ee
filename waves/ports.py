"""Ports of the core's Verilog: their widths, and those that a decoder needs together.

The component itself (`rkcosim.rtl.core.NpuCore`) needs Amaranth, which reading a waveform must not;
tests/unit/test_waves_ports.py compares the widths.
"""

from __future__ import annotations

from dataclasses import dataclass

_LITE = {"awaddr": 16, "awprot": 3, "wdata": 32, "wstrb": 4, "araddr": 16, "arprot": 3, "rdata": 32}
_ADDRESS = {"addr": 40, "len": 8, "size": 3, "burst": 2, "lock": 1, "cache": 4, "prot": 3, "qos": 4}
_HANDSHAKES = [f"{channel}{pin}" for channel in ("aw", "w", "b", "ar", "r") for pin in ("valid", "ready")]
_RESPONSES = {"bresp": 2, "rresp": 2}

PORTS = {
    **dict.fromkeys(["clk", "rst", "irq", "idle", "counting"], 1),
    **{f"s_axil_{pin}": 1 for pin in _HANDSHAKES},
    **{f"s_axil_{pin}": width for pin, width in (_LITE | _RESPONSES).items()},
    **{f"m_axi_{pin}": 1 for pin in (*_HANDSHAKES, "wlast", "rlast")},
    **{f"m_axi_{channel}{pin}": width for channel in ("aw", "ar") for pin, width in _ADDRESS.items()},
    **{f"m_axi_{pin}": width for pin, width in {"awid": 4, "bid": 4, "arid": 5, "rid": 5}.items()},
    **{f"m_axi_{pin}": width for pin, width in {"wdata": 256, "wstrb": 32, "rdata": 256}.items()},
    **{f"m_axi_{pin}": width for pin, width in _RESPONSES.items()},
    **{"diag_valid": 1, "diag_code": 8, "diag_block": 4, "diag_register": 16, "diag_value": 32},
    **{"watch_valid": 1, "watch_fetched": 1, "watch_offset": 16, "watch_value": 32},
    **{"core_index": 2, "options": 8, "events": 16, "task_index": 12, "busy_blocks": 7},
    **{"step_report": 16, "step_answer": 18},
    **{"activity": 48, "levels": 192, "macs": 12, "array_macs": 12},
}
"""Width of each port of the module `npu_core`, by name."""


@dataclass(frozen=True)
class PortGroup:
    """Ports of which a decoder needs `needed`; it also uses `more` if they are there.

    Members
    -------
    name : the group in words.
    shows : what can be decoded from it.
    """

    name: str
    shows: str
    needed: tuple[str, ...]
    more: tuple[str, ...] = ()


def _named(bus: str, *pins: str) -> tuple[str, ...]:
    return tuple(f"{bus}_{pin}" for pin in pins)


LITE_WRITE = PortGroup(
    "AXI-Lite write channels",
    "register writes of the host",
    _named("s_axil", "awvalid", "awready", "awaddr", "wvalid", "wready", "wdata"),
    _named("s_axil", "wstrb", "bvalid", "bready", "bresp"),
)
LITE_READ = PortGroup(
    "AXI-Lite read channels",
    "register reads of the host",
    _named("s_axil", "arvalid", "arready", "araddr", "rvalid", "rready", "rdata"),
    _named("s_axil", "rresp"),
)
AXI_READ = PortGroup(
    "AXI read channels",
    "read bursts",
    _named("m_axi", "arvalid", "arready", "arid", "araddr", "arlen", "rvalid", "rready", "rid", "rlast"),
    _named("m_axi", "rresp", "rdata"),
)
AXI_WRITE = PortGroup(
    "AXI write channels",
    "write bursts",
    _named("m_axi", "awvalid", "awready", "awid", "awaddr", "awlen", "wvalid", "wready", "wlast", "wstrb")
    + _named("m_axi", "bvalid", "bready", "bid"),
    _named("m_axi", "bresp"),
)
WATCH = PortGroup(
    "watch port",
    "register writes of the host and of command lists",
    ("watch_valid", "watch_fetched", "watch_offset", "watch_value"),
)
INTERRUPT = PortGroup("interrupt line", "interrupts", ("irq",))

GROUPS = (LITE_WRITE, LITE_READ, AXI_READ, AXI_WRITE, WATCH, INTERRUPT)
"""Groups of which a waveform must contain at least one."""

TELLING_PINS = (("watch_valid",), *(group.needed for group in GROUPS[:4]))
"""Pins by which the scope of a core is recognised, the best first."""

CLOCK, RESET = "clk", "rst"
