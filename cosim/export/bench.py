"""Testbenches in plain Verilog for the exported designs: a design leaves reset and responds."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rkcosim.export.ports import Port
from rkcosim.spec.regs import registers

RESET_CYCLES = 8
SETTLE_CYCLES = 600
"""Number of cycles of the reset, in which register files take their reset values, and a few more."""


TIME_OUT = 20_000
"""Nanoseconds, two per cycle, after which a testbench gives up."""


def testbench(module: str, ports: Sequence[Port]) -> str:
    """Return a testbench `tb_MODULE` that drives all inputs to 0, resets, and checks every output.

    No output may be unknown then. For whole cores, it also reads VERSION and writes and reads INTERRUPT_MASK
    of each core. It ends with a line `PASS` or with `$fatal`.
    """
    inputs = [port for port in ports if port.direction == "input" and port.name not in ("clk", "rst")]
    outputs = [port for port in ports if port.direction == "output"]
    names = {port.name for port in ports}
    cores = [name.removesuffix("s_axil_awvalid") for name in names if name.endswith("s_axil_awvalid")]
    slaves = [f"{core}s_axil_" for core in sorted(cores) if f"{core}irq" in names]
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        f"// {module} out of reset: no output is unknown" + ("; its registers answer." if slaves else "."),
        "`timescale 1ns/1ps",
        "`default_nettype none",
        "",
        f"module tb_{module};",
        "  reg clk = 1'b0;",
        "  reg rst = 1'b1;",
        "  integer errors = 0;",
        *(f"  reg  {_range(port)}{port.name} = 0;" for port in inputs),
        *(f"  wire {_range(port)}{port.name};" for port in outputs),
        "",
        f"  {module} dut (",
        *_listed([f"    .{port.name}({port.name})" for port in ports]),
        "  );",
        "",
        "  always #1 clk = ~clk;",
        "",
        *(line for slave in slaves for line in _accesses(slave)),
        f"  initial #{TIME_OUT} begin",
        f'    $display("FAIL {module}: no answer");',
        "    $fatal;",
        "  end",
        "",
        "  initial begin",
        f"    repeat ({RESET_CYCLES}) @(posedge clk);",
        "    #0.5 rst = 1'b0;",
        f"    repeat ({SETTLE_CYCLES}) @(posedge clk);",
        "    #0.5;",
        *(f'    if (^{port.name} === 1\'bx) unknown("{port.name}");' for port in outputs),
        *(line for slave in slaves for line in _checks(slave)),
        "    if (errors != 0) begin",
        f'      $display("FAIL {module}: %0d errors", errors);',
        "      $fatal;",
        "    end",
        f'    $display("PASS {module}");',
        "    $finish;",
        "  end",
        "",
        "  task unknown(input [8*64-1:0] name);",
        "    begin",
        '      $display("%0s is unknown", name);',
        "      errors = errors + 1;",
        "    end",
        "  endtask",
        "endmodule",
        "",
        "`default_nettype wire",
        "",
    ]
    return "\n".join(lines)


def _range(port: Port) -> str:
    return f"[{port.width - 1}:0] " if port.width > 1 else ""


def _listed(items: list[str]) -> list[str]:
    return [f"{item}," for item in items[:-1]] + items[-1:]


def _checks(slave: str) -> list[str]:
    described = registers()["PC"]
    version, mask = described["VERSION"], described["INTERRUPT_MASK"]
    field = next(iter(mask.fields.values()))
    value = field.mask & 0x5A5A5A5A
    return [
        f"    {slave}read(16'h{version.offset:04x}, 32'h{version.reset:08x});  // VERSION",
        f"    {slave}write(16'h{mask.offset:04x}, 32'h{value:08x});  // INTERRUPT_MASK",
        f"    {slave}read(16'h{mask.offset:04x}, 32'h{value:08x});",
    ]


def _accesses(slave: str) -> list[str]:
    text = """
  task @write(input [15:0] address, input [31:0] value);
    begin
      @awaddr = address; @awvalid = 1'b1;
      @wdata = value; @wstrb = 4'hf; @wvalid = 1'b1; @bready = 1'b1;
      while (@awvalid | @wvalid) begin
        @(posedge clk);
        begin : accepted
          reg aw, w;
          aw = @awready; w = @wready;
          #0.5;
          if (aw) @awvalid = 1'b0;
          if (w) @wvalid = 1'b0;
        end
      end
      while (@bvalid !== 1'b1) begin @(posedge clk); #0.5; end
      if (@bresp !== 2'b00) begin
        $display("@ write of %h: response %b", address, @bresp);
        errors = errors + 1;
      end
      @(posedge clk); #0.5;
      @bready = 1'b0;
    end
  endtask

  task @read(input [15:0] address, input [31:0] expected);
    reg ready;
    begin
      @araddr = address; @arvalid = 1'b1; @rready = 1'b1;
      while (@arvalid) begin
        @(posedge clk);
        ready = @arready;
        #0.5;
        if (ready) @arvalid = 1'b0;
      end
      while (@rvalid !== 1'b1) begin @(posedge clk); #0.5; end
      if (@rdata !== expected || @rresp !== 2'b00) begin
        $display("@ read of %h: %h, not %h; response %b", address, @rdata, expected, @rresp);
        errors = errors + 1;
      end
      @(posedge clk); #0.5;
      @rready = 1'b0;
    end
  endtask
"""
    return [*re.sub(r"@(?!\()", slave, text).strip("\n").split("\n"), ""]
