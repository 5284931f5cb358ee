"""Plain identifiers in RTLIL, so that Yosys writes Verilog without escaped names.

Amaranth's names contain dots (`npu_core.cna`, the fields of structs) and dollars, ports of submodules have
only numbers (`port$0$6`), and equal submodules are separate modules. `plain_rtlil` gives every module, port,
wire, memory and instance a name that is a Verilog identifier and not a keyword.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_KEYWORDS = frozenset(
    """
    accept_on alias always always_comb always_ff always_latch and assert assign assume automatic before
    begin bind bins binsof bit break buf bufif0 bufif1 byte case casex casez cell chandle checker class
    clocking cmos config const constraint context continue cover covergroup coverpoint cross deassign
    default defparam design disable dist do edge else end endcase endchecker endclass endclocking
    endconfig endfunction endgenerate endgroup endinterface endmodule endpackage endprimitive endprogram
    endproperty endspecify endsequence endtable endtask enum event eventually expect export extends
    extern final first_match for force foreach forever fork forkjoin function generate genvar global
    highz0 highz1 if iff ifnone ignore_bins illegal_bins implements implies import incdir include
    initial inout input inside instance int integer interconnect interface intersect join join_any
    join_none large let liblist library local localparam logic longint macromodule matches medium
    modport module nand negedge nettype new nexttime nmos nor noshowcancelled not notif0 notif1 null or
    output package packed parameter pmos posedge primitive priority program property protected pull0
    pull1 pulldown pullup pulsestyle_ondetect pulsestyle_onevent pure rand randc randcase randsequence
    rcmos real realtime ref reg reject_on release repeat restrict return rnmos rpmos rtran rtranif0
    rtranif1 s_always s_eventually s_nexttime s_until s_until_with scalared sequence shortint shortreal
    showcancelled signed small soft solve specify specparam static string strong strong0 strong1 struct
    super supply0 supply1 sync_accept_on sync_reject_on table tagged task this throughout time
    timeprecision timeunit tran tranif0 tranif1 tri tri0 tri1 triand trior trireg type typedef union
    unique unique0 unsigned until until_with untyped use uwire var vectored virtual void wait wait_order
    wand weak weak0 weak1 while wildcard wire with within wor xnor xor
    """.split()
)


def identifier(name: str) -> str:
    """Return the Verilog identifier for a name of Amaranth or RTLIL."""
    text = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_") or "n"
    if text[0].isdigit():
        text = f"n{text}"
    return f"{text}_" if text in _KEYWORDS else text


class _Names(dict[str, str]):
    """Maps names of RTLIL to unique identifiers, which are made at the first look-up."""

    def __init__(self) -> None:
        super().__init__()
        self._taken: set[str] = set()

    def give(self, name: str, wanted: str) -> str:
        """Map `name` to `wanted`, with a number appended if that is taken."""
        plain, count = wanted, 1
        while plain in self._taken:
            count += 1
            plain = f"{wanted}_{count}"
        self._taken.add(plain)
        self[name] = plain
        return plain

    def __missing__(self, name: str) -> str:
        return self.give(name, identifier(name[1:]))

    def replace(self, text: str) -> str:
        """Return a text of RTLIL with all public names replaced."""
        return _NAME.sub(lambda found: f"\\{self[found[0]]}", text)


@dataclass(frozen=True)
class _Child:
    """A finished module: its new name (with backslash), and its ports under their old names."""

    name: str
    ports: dict[str, str]


_NAME = re.compile(r"\\\S+")
_SIGNED = re.compile(r"^(  wire width [^\\\n]*) signed ", re.MULTILINE)
"""Matches the sign of wires, which is dropped: the operators of RTLIL state which operands are signed."""

_FIELD = re.compile(r"^(?:  attribute .*\n)*  wire width \d+ \\\S*[.\[]\S*\n", re.MULTILINE)
_FIELD_VALUE = re.compile(r"^connect \\\S*[.\[]\S* .*\n", re.MULTILINE)
_PORT = re.compile(r"^  wire width (\d+) (?:input|output|inout) (\d+) +(\\\S+)$", re.MULTILINE)
_CONNECT = re.compile(r"^connect (\\\S+) (.+)$", re.MULTILINE)
_NUMBERED = re.compile(r"\\port\$\d+\$\d+$")


def plain_rtlil(rtlil: str, top: str, order: Sequence[str] = ()) -> str:
    """Return RTLIL of Amaranth with plain names; of equal modules only one is kept.

    Parameters
    ----------
    rtlil : output of `amaranth.back.rtlil`.
    top : name of the top module, and prefix of all other module names.
    order : the ports of the top module in the wanted order; empty: unchanged.
    """
    parts = rtlil.split("\nend\n")[:-1]
    modules = _Names()
    names = [re.search(r"^module (\\\S+)$", part, re.MULTILINE)[1] for part in parts]  # type: ignore[index]
    for name in names:
        path = [identifier(place).rstrip("_") for place in name.split(".")[1:]]
        modules.give(name, "_".join([top, *path]))
    done: dict[str, _Child] = {}
    kept: dict[str, str] = {}  # text without the name, to the name
    for name, part in zip(reversed(names), reversed(parts), strict=True):  # children follow their parents
        body = _SIGNED.sub(r"\1 ", part.split(f"module {name}\n", 1)[1])
        inside = _ports(body)
        body = _plain_body(_FIELD_VALUE.sub("", _FIELD.sub("", f"{body}\n")), inside, done)
        if name == names[0] and order:
            body = _PORT.sub(lambda port: _renumbered(port, order), body)
        own = kept.setdefault(body, modules[name]) if name != names[0] else modules[name]
        kept[body] = own
        done[name] = _Child(f"\\{own}", dict(inside))
    heads = {modules[name]: part.split("module ", 1)[0] for name, part in zip(names, parts, strict=True)}
    texts = {own: f"{heads[own]}module \\{own}\n{body}end\n" for body, own in kept.items()}
    return "".join(reversed(texts.values()))


def _renumbered(port: re.Match[str], order: Sequence[str]) -> str:
    begin, end = port.start(2) - port.start(), port.end(2) - port.start()
    return f"{port[0][:begin]}{order.index(port[3][1:]) + 1}{port[0][end:]}"


def _ports(body: str) -> _Names:
    """Return the names of a module's ports.

    A port that has only a number is named after the signal it carries.
    """
    names = _Names()
    values = dict(_CONNECT.findall(body))
    carried: dict[str, str] = {}
    for signal, value in values.items():
        if not _NUMBERED.match(signal):
            carried.setdefault(value, signal)
    for width, _, port in _PORT.findall(body):
        whole = f"{port} [{int(width) - 1}:0]" if width != "1" else f"{port} [0]"
        numbered = _NUMBERED.match(port)
        shown = carried.get(values.get(port, whole), r"\port") if numbered else port
        names.give(port, identifier(shown[1:]))
    return names


def _plain_body(body: str, names: _Names, children: dict[str, _Child]) -> str:
    lines = []
    child: _Child | None = None
    for line in body.splitlines():
        word, _, rest = line.lstrip().partition(" ")
        if word == "cell":
            kind, name = rest.split(" ")
            child = children.get(kind)
            line = f"  cell {child.name if child else kind} {names.replace(name)}"
        elif word == "connect" and line[0] == " ":
            port, value = rest.split(" ", 1)
            port = f"\\{child.ports[port]}" if child else port
            line = f"    connect {port} {names.replace(value)}"
        elif word == "parameter" and rest.startswith("\\MEMID "):
            memory = names[rest.split('"')[1][1:]]
            line = f'    parameter \\MEMID "\\\\{memory}"'
        elif word not in ("parameter", "attribute"):
            line = names.replace(line)
        lines.append(f"{line}\n")
    return "".join(lines)
