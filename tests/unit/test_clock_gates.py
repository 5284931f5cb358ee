"""Clocks of their own for groups of blocks, in the text of the Verilog."""

from pathlib import Path

import pytest

from cosim.engines.clock_gates import gate_clocks, sets_triggers, watch_clocks
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


GENERATED = """    VlUnpacked<QData/*63:0*/, 1> __VactTriggered;
    VlUnpacked<QData/*63:0*/, 1> __VnbaTriggered;
void Vcore___024root___eval_triggers_vec__act(Vcore___024root* vlSelf) {
void Vcore___024root___eval_nba(Vcore___024root* vlSelf) {
"""


@pytest.mark.parametrize(
    ("text", "known"),
    [
        (GENERATED, True),
        (GENERATED.replace("QData/*63:0*/, 1> __Vnba", "QData/*63:0*/, 2> __Vnba"), False),
        (GENERATED.replace("_vec__act(", "__act("), False),
        (GENERATED + "bool Vcore___024root___eval_phase__ico(Vcore___024root* vlSelf) {\n", False),
    ],
)
def test_triggers_are_set_only_in_a_model_of_the_known_form(text: str, known: bool, tmp_path: Path) -> None:
    (tmp_path / "Vcore___024root__0.cpp").write_text(text)
    assert sets_triggers(tmp_path) is known
