"""Waveforms of a testbench that is not this project's, with its own log of what it did."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rkcosim.engines import toolchain

VERILOG = Path(__file__).parents[1] / "verilog" / "foreign_bench.v"
MEMORY, MEMORY_BYTES = 0x10_0000, 4096 * 32
BEAT = 32

CORE_PORTS = ", .core_index(2'd0), .options(8'd0), .counting(1'b0), .step_answer(18'd0)"
"""Inputs of npu_core that the bench does not drive otherwise."""

KINDS = {"write": 1, "read": 2, "responses": 3, "irq": 4}

NAMES = {
    **{"clk": "ref_clk", "irq": "~int_n", "rst": "~resetn"},
    **{"s_axil_awaddr": "wa", "s_axil_awvalid": "wa_v", "s_axil_awready": "wa_r"},
    **{"s_axil_wdata": "wv", "s_axil_wstrb": "wb", "s_axil_wvalid": "wv_v", "s_axil_wready": "wv_r"},
    **{"s_axil_bresp": "br", "s_axil_bvalid": "b_v", "s_axil_bready": "b_r"},
    **{"s_axil_araddr": "ra", "s_axil_arvalid": "ra_v", "s_axil_arready": "ra_r"},
    **{"s_axil_rdata": "rv", "s_axil_rresp": "rr", "s_axil_rvalid": "rv_v", "s_axil_rready": "rv_r"},
    **{"m_axi_arid": "rq_id", "m_axi_araddr": "rq_a", "m_axi_arlen": "rq_n"},
    **{"m_axi_arvalid": "rq_v", "m_axi_arready": "rq_r"},
    **{"m_axi_rid": "rd_id", "m_axi_rdata": "rd", "m_axi_rresp": "rd_s", "m_axi_rlast": "rd_l"},
    **{"m_axi_rvalid": "rd_v", "m_axi_rready": "rd_r"},
    **{"m_axi_awid": "wq_id", "m_axi_awaddr": "wq_a", "m_axi_awlen": "wq_n"},
    **{"m_axi_awvalid": "wq_v", "m_axi_awready": "wq_r"},
    **{"m_axi_wdata": "wd", "m_axi_wstrb": "wd_b", "m_axi_wlast": "wd_l"},
    **{"m_axi_wvalid": "wd_v", "m_axi_wready": "wd_r"},
    **{"m_axi_bid": "ans_id", "m_axi_bresp": "ans_s", "m_axi_bvalid": "ans_v", "m_axi_bready": "ans_r"},
}
"""Names of the core's ports in the module `chip` of the bench."""


@dataclass(frozen=True)
class Item:
    """One step of the host: a "write" or "read", or "responses" or "irq" to wait for."""

    kind: str
    address: int = 0
    value: int = 0
    strobes: int = 0xF


@dataclass(frozen=True)
class LoggedAccess:
    """One access as the host logged it; cycles as in `rkcosim.waves.Access`."""

    direction: str
    address: int
    value: int
    strobes: int
    start: int
    accepted: int
    end: int
    response: int


@dataclass(frozen=True)
class LoggedBurst:
    """One burst as the memory logged it; cycles as in `rkcosim.waves.Burst`."""

    direction: str
    ident: int
    address: int
    beats: int
    bytes: int
    start: int
    accepted: int
    first_data: int
    end: int


@dataclass(frozen=True)
class Recorded:
    """A run: its waveform, and the logs in the order of the responses."""

    wave: Path
    accesses: list[LoggedAccess]
    bursts: list[LoggedBurst]


def record(
    folder: Path,
    script: Sequence[Item],
    memory: Mapping[int, bytes],
    *,
    npu: str = "traffic",
    files: Sequence[Path] = (),
    seed: int = 1,
    uneven: bool = False,
    levels: int = 0,
    verilator: toolchain.Tool | None = None,
) -> Recorded:
    """Run the bench.

    Parameters
    ----------
    script : steps of the host.
    memory : contents by address, in the `MEMORY_BYTES` from `MEMORY` on; zeros elsewhere.
    npu, files : module that is tested, and its Verilog if it is not in the bench.
    uneven : whether the clock stops and changes its period; otherwise it has 10 ns.
    levels : depth of the hierarchy in the waveform below `board`; 0: all.
    verilator : if given, the simulator; otherwise it is Icarus Verilog.
    """
    lines = [
        f"{KINDS[item.kind] << 60 | item.strobes << 48 | item.address << 32 | item.value:016x}"
        for item in script
    ]
    (folder / "script.hex").write_text("\n".join(lines) + "\n")
    image = bytearray(MEMORY_BYTES)
    for address, data in memory.items():
        assert MEMORY <= address and address + len(data) <= MEMORY + MEMORY_BYTES
        image[address - MEMORY : address - MEMORY + len(data)] = data
    beats = (image[n : n + BEAT] for n in range(0, MEMORY_BYTES, BEAT))
    (folder / "memory.hex").write_text("\n".join(bytes(reversed(beat)).hex() for beat in beats) + "\n")
    more = CORE_PORTS if npu == "npu_core" else ""
    sources = [str(VERILOG), *map(str, files)]
    macros = [f"-DNPU={npu}", f"-DMORE_PORTS={more}", f"-DLEVELS={levels}"]
    if verilator is None:
        words = ["iverilog", "-g2012", *macros, "-s", "board", "-o", "board.vvp", *sources]
        subprocess.run(words, cwd=folder, check=True)
        program = ["vvp", "-n", "board.vvp"]
    else:
        words = [
            *verilator.command,
            "--binary",
            "--timing",
            "--trace-vcd",
            "-Wno-fatal",
            "-Wno-lint",
            *macros,
        ]
        words += ["--top-module", "board", "-CFLAGS", "-O0 -fcoroutines -std=c++20", *sources]
        environment = {**os.environ, **verilator.env}
        subprocess.run(words, cwd=folder, check=True, env=environment, capture_output=True)
        program = ["obj_dir/Vboard"]
    done = subprocess.run(
        [*program, f"+seed={seed}", *(["+uneven"] if uneven else [])],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "done after" in done.stdout and "wrong" not in done.stdout, done.stdout
    return Recorded(folder / "board.vcd", _accesses(folder / "host.log"), _bursts(folder / "memory.log"))


def _accesses(log: Path) -> list[LoggedAccess]:
    found = []
    for line in log.read_text(encoding="utf-8").splitlines():
        direction, address, value, strobes, *cycles, response = line.split()
        numbers = int(address, 16), int(value, 16), int(strobes, 2), *map(int, cycles), int(response, 2)
        found.append(LoggedAccess(direction, *numbers))
    return found


def _bursts(log: Path) -> list[LoggedBurst]:
    found = []
    for line in log.read_text(encoding="utf-8").splitlines():
        direction, ident, address, *rest = line.split()
        found.append(LoggedBurst(direction, int(ident), int(address, 16), *map(int, rest)))
    return found


def map_text(names: Mapping[str, str], prefix: str = "") -> str:
    """Return a map of ports as TOML."""
    values = {
        port: f"~{prefix}{name[1:]}" if name[0] == "~" else prefix + name for port, name in names.items()
    }
    return "".join(f'{port} = "{name}"\n' for port, name in values.items())


def sampled(
    wave: Path, out: Path, channels: Mapping[str, Sequence[str]], period: float, *, style: str = "sigrok"
) -> Path:
    """Write what a logic analyser would: one channel for each bit, sampled regardless of any clock.

    The waveform is read here with a few lines, not with the project's readers.

    Parameters
    ----------
    channels : name of the channel -> signal (full name) and bit, as ("board.u1.wa", "3").
    period : time between two samples in ns.
    style : "sigrok": one timescale of 1 ns, all channels in one scope; "bits": bits of one vector,
        `awaddr [3]`, as some tools export buses.
    """
    scopes: list[str] = []
    codes: dict[str, str] = {}
    text = wave.read_text(encoding="utf-8").splitlines()
    body = next(n for n, line in enumerate(text) if line.startswith("$enddefinitions"))
    for line in text[:body]:
        match line.split():
            case ["$scope", _, name, "$end"]:
                scopes.append(name)
            case ["$upscope", "$end"]:
                scopes.pop()
            case ["$var", _, _, code, name, *_]:
                codes[".".join([*scopes, name])] = code
    wanted = {codes[signal] for signal, _ in channels.values()}
    values = dict.fromkeys(wanted, "x")
    marks = {name: chr(33 + n) if n < 90 else f"~{chr(33 + n - 90)}" for n, name in enumerate(channels)}
    lines = ["$timescale 10 ps $end", "$scope module libsigrok $end"]
    for name, mark in marks.items():
        lines.append(f"$var wire 1 {mark} {name} $end")
    lines += ["$upscope $end", "$enddefinitions $end"]
    now: dict[str, str] = {}

    def take(number: int) -> None:
        changed = []
        for name, (signal, bit) in channels.items():
            text_value = values[codes[signal]].rjust(int(bit) + 1, "0")
            digit = text_value[-1 - int(bit)]
            digit = digit if digit in "01" else "0"  # an analyser sees a level
            if now.get(name) != digit:
                now[name] = digit
                changed.append(digit + marks[name])
        if changed:
            lines.append(f"#{round(number * period * 100)}")
            lines.extend(changed)

    number = 0
    for line in text[body + 1 :]:
        if line.startswith("#"):
            time = int(line[1:]) / 1000  # the bench counts in ps
            while number * period < time:  # samples before this change
                take(number)
                number += 1
        elif line[:1] in "01xz" and line[1:] in wanted:
            values[line[1:]] = line[0]
        elif line[:1] == "b":
            digits, code = line[1:].split()
            if code in wanted:
                values[code] = digits
    take(number)
    lines.append(f"#{round((number + 1) * period * 100)}")
    if style == "bits":
        lines = [
            line.replace("libsigrok", "analyser") if "$scope" in line else _as_bit(line) for line in lines
        ]
    out.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return out


def _as_bit(line: str) -> str:
    """Return the declaration of `wa_3` as bit 3 of `wa`."""
    words = line.split()
    if words[:1] != ["$var"] or not words[4].rpartition("_")[2].isdigit():
        return line
    name, _, bit = words[4].rpartition("_")
    return " ".join([*words[:4], name, f"[{bit}]", "$end"])
