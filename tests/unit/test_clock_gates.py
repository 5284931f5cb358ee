"""One clock per group of blocks, in the text of the Verilog."""

from pathlib import Path

import pytest

from rkcosim.engines.clock_gates import add_awake, gate_clocks, sets_triggers, watch_clocks
from rkcosim.engines.clock_groups import CLOCK_GROUPS, ClockGroup
from rkcosim.engines.protocol import BuildError
from rkcosim.engines.verilog import replicated

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


def groups(**blocks: str) -> dict[str, ClockGroup]:
    return {name: ClockGroup((path,), ("y",)) for name, path in blocks.items()}


def test_instances_get_the_clock_of_their_group():
    text = gate_clocks(VERILOG, "top", groups(first="a", inner="a.c", second="b"))
    top, a, c, b = text.split("endmodule\n")[:4]
    assert "module top(clk_gates, clk, rst, y);\n  input [2:0] clk_gates;\n" in top
    assert "a (\n    .clk_gates(clk_gates),\n    .clk(clk_gates[0])," in top
    assert "y }),\n    .clk(clk_gates[2])\n" in top
    assert "module \\top.a (clk_gates, clk, y);\n  input [2:0] clk_gates;\n" in a
    assert ".y(y),\n    .clk(clk_gates[1])\n" in a
    assert c + b == "".join(VERILOG.split("endmodule\n")[2:4])


def test_a_group_without_its_instance_is_an_error():
    with pytest.raises(BuildError, match=r"module top has no match of .*missing"):
        gate_clocks(VERILOG, "top", groups(first="missing"))


AWAKE = """module top(clk, rst, y);
  input clk;
  wire y;
  \\top.b$7  \\b$7  (
    .clk(clk)
  );
endmodule
module \\top.b$7 (x, clk);
  input clk;
  wire busy;
  reg [3:0] \\x$2 ;
endmodule
"""


def test_awake_is_made_of_signals_found_by_their_paths():
    known = {"control": ClockGroup((), ("y",), linger=63), "b": ClockGroup(("b",), ("(y & ~b.busy)", "b.x"))}
    top = add_awake(AWAKE, "top", known).split("endmodule\n")[0]
    assert "module top(awake, clk, rst, y);\n  output [1:0] awake;\n" in top
    assert "reg [5:0] left_control = 63;\n  wire cause_control = y;\n" in top
    assert "wire cause_b = awake_control | (y & ~\\b$7 .busy) | \\b$7 .\\x$2 ;\n" in top
    assert "wire awake_b = cause_b | (left_b != 0);\n" in top
    assert "assign awake = {awake_b, awake_control};\n" in top


def test_a_cause_without_its_signal_is_an_error():
    known = {"b": ClockGroup((), ("b.gone",))}
    with pytest.raises(BuildError, match=r"module .*b\$7 has 0 signals named gone"):
        add_awake(AWAKE, "top", known)


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
    watched = watch_clocks(text, "top", groups(other="b", mine="a"))
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


def test_a_group_that_does_not_wake_with_control_wakes_for_the_reset():
    alone = {name: group for name, group in CLOCK_GROUPS.items() if not group.with_control}
    assert alone
    assert [name for name, group in alone.items() if "rst" not in group.causes] == []


def test_equal_neighbours_in_concatenations_become_replications():
    assert (
        replicated(r"x = { \a$1 [7], \a$1 [7], \a$1 [7], \a$1 [7:0] };")
        == r"x = { {3{\a$1 [7]}}, \a$1 [7:0] };"
    )
    assert replicated(r"y = { b, \c , \c , 2'h1, 2'h1, b };") == r"y = { b, {2{\c }}, 2'h1, 2'h1, b };"
    untouched = "z = { _1_, _10_, _10_[1], _1_[1:0] };\nf(a, a);\n"
    assert replicated(untouched) == untouched
