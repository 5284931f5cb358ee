"""Netlists for OpenSTA: Verilog with one line per cell, from the JSON of Yosys.

Yosys buffers nets of many cells inside of a module, but one pin of a module may be connected to many
submodules. Here, every net of more than `FAN_OUT` pins gets a tree of buffers. Flip-flops have the name of
the signal that they hold.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

FAN_OUT = 16
"""Largest number of pins that a net drives; nets of more get buffers."""

BUFFER, FLIP_FLOP = "BUFX4", "DFFPOSX1"

OUTPUTS = frozenset(("Y", "Q", "YC", "YS"))
"""Names of output pins of the Liberty cells."""

Bit = int | str


def verilog(netlist: Mapping[str, Any], top: str, name: str = "") -> str:
    """Return a module as structural Verilog.

    Parameters
    ----------
    netlist : what `write_json` wrote.
    top : its module.
    name : name of the module in the Verilog; empty: the same.
    """
    return _Writer(netlist, top).text(name or top)


class _Writer:
    def __init__(self, netlist: Mapping[str, Any], top: str) -> None:
        self._module = netlist["modules"][top]
        self._others = netlist["modules"]
        self._nets: dict[Bit, str] = {}
        self._lines: list[str] = []
        self._taken: Counter[str] = Counter()
        self._buffers = 0
        self._words = _words(self._module["netnames"])

    def text(self, name: str) -> str:
        ports = self._module["ports"]
        heads = [
            f"{port['direction']} {_range(port['bits'])}{key}" for key, port in ports.items() if port["bits"]
        ]
        for way in ("input", "output"):
            for key, port in ports.items():
                if port["direction"] == way:
                    self._name_port(key, port["bits"], way)
        sinks = self._cells()
        leaves = {bit: self._spread(bit, count) for bit, count in sinks.items()}
        for kind, cell, pins in self._found:
            words = []
            for pin, bits, is_output in pins:
                if is_output:
                    nets = [self._net(bit) for bit in bits]
                else:
                    nets = [next(leaves[bit]) if bit in leaves else self._net(bit) for bit in bits]
                if nets:
                    words.append(
                        f".{pin}({nets[0] if len(nets) == 1 else '{' + ', '.join(nets[::-1]) + '}'})"
                    )
            self._lines.append(f"  {kind} {cell} ({', '.join(words)});")
        listed = ", ".join(key for key, port in ports.items() if port["bits"])
        declared = "".join(f"  {head};\n" for head in heads)
        return f"module {name} ({listed});\n{declared}" + "\n".join(self._lines) + "\nendmodule\n"

    def _cells(self) -> Counter[Bit]:
        """Collect the cells and count the pins that each net drives."""
        clock = set(self._module["ports"].get("clk", {"bits": []})["bits"])
        sinks: Counter[Bit] = Counter()
        self._found: list[tuple[str, str, list[tuple[str, Sequence[Bit], bool]]]] = []
        for key, cell in self._module["cells"].items():
            kind, pins = cell["type"], cell["connections"]
            child = kind in self._others and "area" not in self._others[kind]["attributes"]
            if kind == "MEM_IN":
                kind, pins = FLIP_FLOP, {"CLK": pins["C"], "D": pins["D"]}
                name = self._own("M_" + self._word(pins["D"][0]))
            elif kind == "MEM_OUT":
                kind, pins = FLIP_FLOP, {"CLK": pins["C"], "D": ["0"], "Q": pins["Q"]}
                name = self._own("M_" + self._word(pins["Q"][0]))
            elif kind == FLIP_FLOP:
                name = self._own("R_" + self._word(pins["Q"][0]))
            else:
                name = self._own(_plain(key) if child and not key.startswith("$") else "c")
            ports = self._others[kind]["ports"] if kind in self._others else {}
            found = []
            for pin, bits in pins.items():
                direction = ports[pin]["direction"] if pin in ports else ""
                is_output = direction == "output" if direction else pin in OUTPUTS
                found.append((pin, bits, is_output))
                if not is_output:
                    sinks.update(bit for bit in bits if isinstance(bit, int) and bit not in clock)
            self._found.append((kind, name, found))
        return sinks

    def _name_port(self, key: str, bits: Sequence[Bit], way: str) -> None:
        for place, bit in enumerate(bits):
            name = f"{key}[{place}]" if len(bits) > 1 else key
            if way == "input" or (isinstance(bit, int) and bit not in self._nets):
                self._nets[bit] = name
            else:
                self._lines.append(f"  BUFX2 {self._own('out')} (.A({self._net(bit)}), .Y({name}));")

    def _spread(self, bit: Bit, count: int) -> Any:
        """The nets for the pins of a bit, one after another, behind buffers if there are many."""
        nets = [self._net(bit)]
        levels = [count]
        while levels[-1] > FAN_OUT:
            levels.append(-(-levels[-1] // FAN_OUT))
        for wanted in levels[:0:-1]:
            made = []
            for number in range(wanted):
                self._buffers += 1
                net = f"b{self._buffers}"
                source = nets[number * len(nets) // wanted]
                self._lines.append(f"  {BUFFER} {self._own('fan')} (.A({source}), .Y({net}));")
                made.append(net)
            nets = made
        return (nets[number * len(nets) // count] for number in range(count))

    def _net(self, bit: Bit) -> str:
        if not isinstance(bit, int):
            return "1'b1" if bit == "1" else "1'b0"
        return self._nets.setdefault(bit, f"n{bit}")

    def _word(self, bit: Bit) -> str:
        return self._words.get(bit, f"n{bit}")

    def _own(self, name: str) -> str:
        self._taken[name] += 1
        return (
            name
            if self._taken[name] == 1 and name not in ("c", "fan", "out")
            else f"{name}_{self._taken[name]}_"
        )


def _words(netnames: Mapping[str, Any]) -> dict[Bit, str]:
    """The shortest public name of each bit, as an identifier."""
    found: dict[Bit, list[str]] = defaultdict(list)
    for name, net in netnames.items():
        if not net["hide_name"]:
            for place, bit in enumerate(net["bits"]):
                found[bit].append(f"{_plain(name)}_{place}" if len(net["bits"]) > 1 else _plain(name))
    return {bit: min(names, key=lambda name: (len(name), name)) for bit, names in found.items()}


def _plain(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "_", name).strip("_")


def _range(bits: Sequence[Bit]) -> str:
    return f"[{len(bits) - 1}:0] " if len(bits) > 1 else ""
