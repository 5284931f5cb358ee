"""Clocks of their own for groups of blocks, in the text of the Verilog."""

import pytest

from cosim.engines.clock_gates import gate_clocks, watch_clocks
from cosim.engines.errors import BuildError

VERILOG = """/* top */
module top(clk, rst, y);
  input clk;
  \\top.a  a (
    .clk(clk),
    .y(y)
  );
  \\top.b$7  \\b$7  (
    .x({ y,
      y }),
    .clk(clk)
  );
endmodule
module \\top.a (clk, y);
  input clk;
  \\top.a.c  c (
    .y(y),
    .clk(clk)
  );
endmodule
module \\top.a.c (clk, y);
  input clk;
endmodule
module \\top.b$7 (x, clk);
  input clk;
endmodule
"""


def test_instances_get_the_clock_of_their_group():
    text = gate_clocks(VERILOG, "top", {"first": ("a",), "inner": ("a.c",), "second": ("b",)})
    top, a, c, b = text.split("endmodule\n")[:4]
    assert "module top(clk_gates, clk, rst, y);\n  input [2:0] clk_gates;\n" in top
    assert "a (\n    .clk_gates(clk_gates),\n    .clk(clk_gates[0])," in top
    assert "y }),\n    .clk(clk_gates[2])\n" in top
    assert "module \\top.a (clk_gates, clk, y);\n  input [2:0] clk_gates;\n" in a
    assert ".y(y),\n    .clk(clk_gates[1])\n" in a
    assert c + b == "".join(VERILOG.split("endmodule\n")[2:4])


def test_a_group_without_its_instance_is_an_error():
    with pytest.raises(BuildError, match=r"module top has nothing like .*missing"):
        gate_clocks(VERILOG, "top", {"first": ("missing",)})


def test_a_watched_register_compares_what_it_would_take():
    text = """module top(clk);
endmodule
module \\top.a$3 (clk);
  always @(posedge clk)
    \\q$1  <= _01_;
  always @(posedge clk) begin
    if (en[0])
      rows[at][7:0] <= data[7:0];
  end
endmodule
"""
    watched = watch_clocks(text, "top", {"other": ("b",), "mine": ("a",)})
    compare = 'if (!top_top.top.awake[1] && {} !== ({})) $display("asleep: mine %m {}");'
    assert compare.format("\\q$1 ", "_01_", "q$1") in watched
    assert compare.format("rows[at][7:0]", "data[7:0]", "rows[at][7:0]") in watched
    assert watched.count("always") == 4
    assert watched.count("<=") == 2
