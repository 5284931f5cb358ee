"""One line for each port: from the register description, the bus standards and the components' docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence

from rtl.layouts import ReadClient, WriteClient
from rtl.regs import counter_registers, registers

_CHANNELS = {
    "aw": "write address",
    "w": "write data",
    "b": "write response",
    "ar": "read address",
    "r": "read data",
}
_AXI = {
    "id": "id",
    "addr": "byte address",
    "len": "beats of the burst minus one",
    "size": "bytes of a beat, as a power of two",
    "burst": "burst type, 1 is INCR",
    "lock": "exclusive access, always 0",
    "cache": "memory type",
    "prot": "protection",
    "qos": "quality of service, always 0",
    "valid": "valid",
    "ready": "ready",
    "data": "data",
    "strb": "strobes, one a byte",
    "last": "last beat of the burst",
    "resp": "response, bit 1 set in errors",
}
_READ_IDS = ", ".join(f"{client.value} {client.name}" for client in ReadClient.__members__.values())
_WRITE_IDS = ", ".join(f"{client.value} {client.name}" for client in WriteClient.__members__.values())

_PARTS: dict[tuple[str, ...], str] = {
    ("write",): "write",
    ("read",): "read",
    ("offset",): "byte offset",
    ("wdata",): "data to write",
    ("rdata",): "data read, with ready",
    ("error",): "the access fails, with ready",
    ("start",): "pulse, begin",
    ("group",): "register group that runs",
    ("done",): "pulse, done",
    ("valid",): "valid",
    ("ready",): "ready",
    ("fetched",): "from the command stream, not the host",
    ("value",): "value",
    ("table",): "table, 0 LE, 1 LO",
    ("entry",): "entry of the table",
    ("data",): "data",
    ("answer",): "entry read, a cycle later",
    ("req", "valid"): "request: valid",
    ("req", "ready"): "request: ready",
    ("req", "payload", "addr"): "request: byte address, a multiple of 32",
    ("req", "payload", "beats_m1"): "request: beats of 32 bytes minus one",
    ("rsp", "valid"): "answer: valid; is always taken",
    ("rsp", "payload", "data"): "answer: 32 bytes",
    ("rsp", "payload", "last"): "answer: last beat of the request",
    ("data", "valid"): "data: valid",
    ("data", "ready"): "data: ready",
    ("data", "payload", "data"): "data: 32 bytes",
    ("data", "payload", "strb"): "data: strobes, one a byte",
    ("data", "payload", "last"): "data: last beat of the request",
    ("payload", "code"): "DiagnosticCode (rtl/layouts.py)",
    ("payload", "register"): "offset of the register in the core",
    ("payload", "value"): "value that is complained about",
    ("payload", "bank"): "accumulator bank",
    ("payload", "pixels_m1"): "pixels minus one",
    ("payload", "kernels"): "kernels or depthwise channels, 1..64",
    ("payload", "last"): "last of the task",
    ("payload", "data"): "bytes, the first one lowest",
    ("payload", "entry"): "64-byte entry of the first atom",
    ("payload", "column"): "its 16-byte place in the entry",
    ("payload", "two"): "a second atom goes to entry2, column2",
    ("payload", "entry2"): "64-byte entry of the second atom",
    ("payload", "column2"): "its 16-byte place in the entry",
    ("payload", "acc"): "accumulator, or binary32",
    ("payload", "sum"): "window sum of the inputs",
    ("payload", "alu"): "operand of the ALU",
    ("payload", "cpend"): "pad value",
    ("payload", "mul"): "operand of the multiplier",
    ("precision",): "type, code of the CNA",
    ("depthwise",): "depthwise",
    ("w_valid",): "weights: write a chunk into the shadow tile",
    ("w_index",): "weights: number of the chunk",
    ("w_stride",): "weights: a kernel has 16 << w_stride bytes",
    ("w_data",): "weights: 64 bytes",
    ("f_valid",): "features: a pixel's operands",
    ("f_swap",): "features: the shadow tile becomes active",
    ("f_first",): "features: the accumulators begin anew",
    ("f_bank",): "features: accumulator bank",
    ("f_slot",): "features: place in the stripe",
    ("f_data",): "features: operands",
    ("groups",): "kernel groups of the task, or depthwise groups of channels",
    ("stripes",): "stripes of a group",
}

_OTHER = {
    "diag_valid": "a diagnostic event (DiagnosticCode, rtl/layouts.py)",
    "diag_code": "diagnostic: code",
    "diag_block": "diagnostic: register window, bits 15:12 of the offset",
    "diag_register": "diagnostic: offset of the register in the core",
    "diag_value": "diagnostic: value that is complained about",
    "watch_valid": "a register was written in the cycle before",
    "watch_fetched": "register write: by the command stream, not the host",
    "watch_offset": "register write: offset in the core",
    "watch_value": "register write: value",
    "events": "pulses and levels, bits as in rtl/regs/events.py",
    "starting": "the block's start is in the next cycle",
    "show": "some block's start is in the next cycle",
    "running": "the block is at work",
    "hold": "the block may not start",
    "moves": "a register in here may change (rtl/clock_groups.py)",
    "writer_moves": "a register of the writer may change (rtl/clock_groups.py)",
    "float_task": "a register of the float unit may change (rtl/clock_groups.py)",
    "stall_feature": "no slot in this cycle, for want of input rows",
    "stall_weight": "no slot in this cycle, for want of a weight tile",
    "stall_acc": "no slot in this cycle, for want of an accumulator bank",
    "task_start": "pulse, a task begins",
    "task_done": "pulse, a task is done",
    "done_feature": "pulse, all features are loaded",
    "done_weight": "pulse, all weights are loaded",
    "done_csc": "pulse, the sequence controller is done",
    "d_valid": "read accumulators",
    "d_bank": "accumulator bank to read",
    "d_slot": "place in the stripe to read",
    "d_octet": "channels to read, by eight",
    "o_acc": "eight accumulators of 48 bits, lane 0 lowest",
    "o_sum": "eight window sums of 32 bits, lane 0 lowest",
}

_ENTRY = re.compile(r"^(\S[^:]*?)\s*(?::\s*(.*))?$")
_TYPE = re.compile(
    r"^(?:In\b|Out\b|stream|\d|[A-Z]\w*Port\b|configuration|WritePort|ReadPort|Out,|level$|pulse$)"
)


def described_members(kind: type) -> dict[str, str]:
    """What a class's docstring says of its members, by name, in one line each."""
    lines = inspect.cleandoc(kind.__doc__ or "").split("\n")
    start = next((n for n, line in enumerate(lines) if line.startswith("Members")), None)
    found: dict[str, str] = {}
    if start is None:
        return found
    names: list[str] = []
    for line in lines[start + 1 :]:
        if line.startswith("---") or not line.strip():
            if not line.strip() and names:
                break
            continue
        if line[0] == " ":
            for name in names:
                found[name] = f"{found[name]} {line.strip()}".strip()
            continue
        match = _ENTRY.match(line)
        if match is None or not re.match(r"^[a-z_0-9*, ]+$", match[1]):
            names = []
            continue
        names = [name.strip() for name in match[1].split(",")]
        text = match[2] or ""
        head, _, tail = text.partition(" : ")
        if _TYPE.match(head) or _TYPE.match(head.strip("`")):
            text = tail
        for name in names:
            found[name] = text.strip()
    return {name: _first(text) for name, text in found.items()}


_LONG = 90


def _first(text: str) -> str:
    """Its first sentence or part, short enough for a table."""
    while len(text) > _LONG and "," in text:
        text = text.rsplit(",", 1)[0]
    text = re.split(r"(?<=[a-z0-9`)])[.;](?:\s|$)", text, maxsplit=1)[0]
    return text.strip().rstrip(".;:").replace("`", "")


def axi_meaning(name: str, lite: bool) -> str:
    """What a signal of AXI4 or AXI4-Lite carries, by its name in the standard."""
    for channel in ("aw", "ar", "w", "b", "r"):
        rest = name.removeprefix(channel)
        if rest != name and rest in _AXI:
            meaning = f"{_CHANNELS[channel]}: {_AXI[rest]}"
            if rest == "id":
                meaning += f" ({_WRITE_IDS if channel in 'awb' else _READ_IDS})"
            if lite and rest == "addr":
                meaning = f"{_CHANNELS[channel]}: offset of the register"
            return meaning
    return ""


def other_block(member: str) -> str:
    """Block whose registers a member like `dpu_cfg` has."""
    name = member.removesuffix("_cfg").upper()
    return "PPU_RDMA" if name == "RDMA" else name


def register_meaning(block: str, path: Sequence[str | int]) -> str:
    """What a register field is, from the register description; `path` is (register, field)."""
    register = registers()[block][str(path[0])]
    text = register.fields[str(path[1])].desc if len(path) > 1 else register.desc
    text = re.sub(r"\s*\[[A-Z]\]", "", text).strip().rstrip(".")
    return text.split("\n")[0]


_ACTIVITY = {"feature_activity": "CNA_FEATURE", "weight_activity": "CNA_WEIGHT", "csc_activity": "CSC"}


def _counted_meaning(member: str, name: str, block: str) -> str:
    """What a block tells the performance counters, from the description of their registers."""
    known = counter_registers()
    if member == "levels":
        return known["LEVELS"][name].desc
    named = _ACTIVITY.get(member, "CSC" if block == "CNA" else block)
    described = known[named]
    return f"{name.lower()}: {described[name].desc}"


def meaning(path: Sequence[str | int], members: dict[str, str], block: str) -> str:
    """One line on the port at a place of a component's signature.

    Parameters
    ----------
    path : as `Port.path`.
    members : what the docstring says of members.
    block : whose registers `cfg` has; others are named by their member.
    """
    first = str(path[0])
    plain = first.split("s_axil_")[-1] if "s_axil_" in first else first.split("m_axi_")[-1]
    if plain != first:
        return axi_meaning(plain, "s_axil_" in first)
    if first in ("axi", "axil"):
        return axi_meaning(str(path[1]), first == "axil")
    if first == "cfg":
        return register_meaning(block, path[1:])
    if first.endswith("_cfg"):
        return register_meaning(other_block(first), path[1:])
    if first.endswith(("activity", "levels")) and len(path) > 1:
        return _counted_meaning(first, str(path[1]), block)
    short = re.sub(r"^core\d_", "", first)
    rest = [part for part in path[1:] if not isinstance(part, int)]
    element = f" {path[-1]}" if len(path) > 1 and isinstance(path[-1], int) and rest else ""
    own = members.get(short, "")
    if not rest:
        if short == "events" and "core_index" not in members:
            return own
        return _OTHER.get(short) or own or _PARTS.get((short,), "")
    part = _PARTS.get(tuple(rest), " ".join(rest)) + element
    if not own or rest[-1] not in _LEADERS:
        return part
    return f"{part}; {own[0].lower()}{own[1:]}" if own[1:2].islower() else f"{part}; {own}"


_LEADERS = ("valid", "write", "start")
"""Members of a group of ports with which the group is explained."""
