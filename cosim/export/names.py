"""Names that every Verilog tool takes: plain identifiers, no keyword, none twice in a module."""

from __future__ import annotations

import re

from cosim.export.rtlil import Module, Ref

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

_ANONYMOUS_PORT = re.compile(r"\\port\$\d+\$\d+$")


def identifier(name: str) -> str:
    """A plain identifier that looks like a name of RTLIL or of Python."""
    text = re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_") or "n"
    if text[0].isdigit():
        text = f"n{text}"
    return f"{text}_" if text in _KEYWORDS else text


class Names:
    """Names in use in one module."""

    def __init__(self, taken: set[str]) -> None:
        self._taken = set(taken)
        self._counts: dict[str, int] = {}

    def new(self, wanted: str) -> str:
        """`wanted`, or with a number behind it if that is taken."""
        name = wanted
        while name in self._taken:
            count = self._counts[wanted] = self._counts.get(wanted, 1) + 1
            name = f"{wanted}_{count}"
        self._taken.add(name)
        return name

    def numbered(self, prefix: str) -> str:
        """`prefix` with the next number."""
        while True:
            count = self._counts[prefix] = self._counts.get(prefix, 0) + 1
            name = f"{prefix}{count}"
            if name not in self._taken:
                self._taken.add(name)
                return name


def is_field(name: str) -> bool:
    """Whether a wire only shows a field of another one."""
    return "." in name or "[" in name


def is_anonymous(name: str) -> bool:
    """Whether a wire has no name in the source."""
    return name[0] == "$"


def module_names(module: Module, reserved: set[str]) -> tuple[Names, dict[str, str]]:
    """Names of the ports, wires and memories that have one in the source.

    Slices that cross a border as ports of their own, `port$945$0` for Amaranth, get the name of the field
    that they are.
    """
    names = Names(reserved)
    fields: dict[Ref, str] = {}
    values = {name: value for name, value in module.connects}
    for name, value in module.connects:
        if not _ANONYMOUS_PORT.match(name) and not is_anonymous(name) and len(value) == 1:
            if isinstance(value[0], Ref):
                fields.setdefault(value[0], name)
    given: dict[str, str] = {}
    wires = list(module.wires.values())
    for wire in sorted(wires, key=lambda wire: wire.direction is None):
        if is_anonymous(wire.name) or (is_field(wire.name) and wire.direction is None):
            continue
        shown = wire.name
        if _ANONYMOUS_PORT.match(shown):
            value = values.get(shown, (Ref(shown, wire.width - 1, 0),))
            chunk = value[0] if len(value) == 1 else ""
            shown = fields.get(chunk, "") if isinstance(chunk, Ref) else ""
            shown = shown or ("\\taken" if wire.direction == "input" else "\\given")
        given[wire.name] = names.new(identifier(shown[1:]))
    for memory in module.memories:
        given[memory] = names.new(identifier(memory[1:]))
    return names, given
