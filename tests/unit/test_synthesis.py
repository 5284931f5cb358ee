"""The synthesis of tools/synthesis: hierarchy, netlists, reports, bounds, a block through the programs."""

import json
import re
from pathlib import Path

import pytest
from amaranth.hdl import Module
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out

from rkcosim.engines.plain_names import plain_rtlil
from rkcosim.engines.verilog import drop_zero_memories, rtlil_of
from tests.programs import needs_program
from tools.synthesis import flows, fpga, timing, work
from tools.synthesis.blocks import Need, blocks, need
from tools.synthesis.findings import PATHS
from tools.synthesis.flows import LIBERTY, Bounds, messages, statistics
from tools.synthesis.modules import Hierarchy, Unit, divided
from tools.synthesis.netlist import FAN_OUT, verilog
from tools.synthesis.page import Facts, page, reason

ROOT = Path(__file__).resolve().parents[2]

needs_cells = needs_program(str(LIBERTY))
needs_sta = needs_program("sta")


class _Leaf(wiring.Component):
    a: In(8)
    b: In(8)
    o: Out(16)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.d.sync += self.o.eq(self.a * self.b)
        return m


class _Tree(wiring.Component):
    """Two equal multipliers, a memory with synchronous reads and one without."""

    a: In(8)
    b: In(8)
    o: Out(16)
    row: Out(32)
    now: Out(8)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        m.submodules.left = left = _Leaf()
        m.submodules.right = right = _Leaf()
        m.submodules.rows = rows = Memory(shape=32, depth=256, init=[])
        m.submodules.words = words = Memory(shape=8, depth=4, init=[])
        read, write = rows.read_port(), rows.write_port()
        fetched, put = words.read_port(domain="comb"), words.write_port()
        m.d.comb += [
            left.a.eq(self.a),
            left.b.eq(self.b),
            right.a.eq(self.a),
            right.b.eq(self.b),
            read.addr.eq(self.a),
            read.en.eq(1),
            write.addr.eq(self.b),
            write.data.eq(left.o),
            write.en.eq(self.a[0]),
            fetched.addr.eq(self.a),
            put.addr.eq(self.b),
            put.data.eq(self.a),
            put.en.eq(1),
            self.row.eq(read.data),
            self.now.eq(fetched.data),
        ]
        m.d.sync += self.o.eq(left.o + right.o)
        return m


@pytest.fixture(scope="module")
def tree() -> Hierarchy:
    return Hierarchy(plain_rtlil(drop_zero_memories(rtlil_of(_Tree(), "tree", sources=True)), "tree"), "tree")


def test_equal_modules_exist_once_and_are_counted(tree: Hierarchy):
    assert set(tree.units) == {"tree", "tree_right"}
    assert tree.instances() == {"tree": 1, "tree_right": 2}
    assert tree.below("tree") == ["tree", "tree_right"]
    assert tree.instances("tree_right") == {"tree_right": 1}
    assert tree.units["tree_right"].cells["$mul"] == 1
    ports = {name: (way, width) for name, way, width in tree.units["tree_right"].ports}
    assert ports["a"] == ("input", 8) and ports["o"] == ("output", 16) and ports["clk"] == ("input", 1)


def test_memories_are_listed_with_their_ports(tree: Hierarchy):
    rows, words = sorted(tree.units["tree"].memories, key=lambda memory: -memory.bits)
    assert (rows.name, rows.width, rows.depth, rows.reads, rows.writes) == ("rows", 32, 256, 1, 1)
    assert (rows.asynchronous, words.asynchronous, words.bits) == (0, 1, 32)


def test_a_module_is_read_with_black_boxes(tree: Hierarchy):
    assert tree.source("tree").count("attribute \\blackbox 1\n") == 1
    assert "blackbox" not in tree.source("tree", "tree_right")
    assert tree.source("tree_right") == tree.units["tree_right"].text


def test_text_without_modules_is_refused():
    with pytest.raises(ValueError, match="no module top"):
        Hierarchy("module \\other\nend\n", "top")


ADDITIONS = """module \\m
  wire width 4 input 0 \\a
  wire width 4 input 1 \\b
  wire width 5 output 2 \\y
  wire width 5 output 3 \\z
  cell $add $one
    parameter \\A_SIGNED 0
    parameter \\A_WIDTH 4
    parameter \\B_SIGNED 0
    parameter \\B_WIDTH 4
    parameter \\Y_WIDTH 5
    connect \\A \\a
    connect \\B \\b
    connect \\Y \\y
  end
  cell $add $two
    parameter \\A_SIGNED 0
    parameter \\A_WIDTH 4
    parameter \\B_SIGNED 0
    parameter \\B_WIDTH 4
    parameter \\Y_WIDTH 5
    connect \\A \\b
    connect \\B 4'0001
    connect \\Y \\z
  end
end
"""


def test_operators_of_variables_become_modules():
    text, made = divided(ADDITIONS, "op")
    assert list(made) == ["op_add_u4_4_5"]
    assert Unit("m", text).children == {"op_add_u4_4_5": 1}
    assert Unit("m", text).cells == {"$add": 1}  # the addition of a constant
    assert Unit("op", made["op_add_u4_4_5"]).ports == [
        ("A", "input", 4),
        ("B", "input", 4),
        ("Y", "output", 5),
    ]


def _netlist(pins: int) -> dict:
    """A flip-flop that drives inverters, and an input that is an output as well."""
    cells = {f"c{n}": {"type": "INVX1", "connections": {"A": [5], "Y": [10 + n]}} for n in range(pins)}
    cells["r"] = {"type": "DFFPOSX1", "connections": {"CLK": [2], "D": [3], "Q": [5]}}
    module = {
        "ports": {
            "clk": {"direction": "input", "bits": [2]},
            "d": {"direction": "input", "bits": [3, 4]},
            "q": {"direction": "output", "bits": [4, "1"]},
        },
        "cells": cells,
        "netnames": {"count": {"hide_name": 0, "bits": [7, 5]}, "$1": {"hide_name": 1, "bits": [5]}},
    }
    return {"modules": {"top": module}}


def test_flip_flops_have_the_name_of_their_signal():
    text = verilog(_netlist(1), "top", "other")
    assert text.startswith("module other (clk, d, q);\n")
    assert "DFFPOSX1 R_count_1 (.CLK(clk), .D(d[0]), .Q(n5));" in text
    assert "BUFX2 out_1_ (.A(d[1]), .Y(q[0]));" in text and "(.A(1'b1), .Y(q[1]));" in text


@pytest.mark.parametrize("pins", [1, FAN_OUT, FAN_OUT + 1, 300])
def test_no_net_drives_more_pins_than_allowed(pins: int):
    text = verilog(_netlist(pins), "top")
    driven: dict[str, int] = {}
    for net in re.findall(r"\.A\((n5|b\d+)\)", text):
        driven[net] = driven.get(net, 0) + 1
    assert max(driven.values()) <= FAN_OUT
    assert len(re.findall("INVX1", text)) == pins
    buffers = len(re.findall("BUFX4", text))
    assert buffers == {1: 0, FAN_OUT: 0, FAN_OUT + 1: 2, 300: 19 + 2}[pins]


REPORT = """Startpoint: cna/R_x_3 (rising edge-triggered flip-flop clocked by clk)
Endpoint: R_raw_0 (rising edge-triggered flip-flop clocked by clk)
   0.000    0.000 ^ cna/R_x_3/CLK (DFFPOSX1)
   0.200    0.200 ^ cna/R_x_3/Q (DFFPOSX1)
   0.076    0.276 v c_1_/Y (NOR2X1)
   0.083    0.359 ^ c_113_/Y (NAND2X1)
   0.000    0.359 ^ R_raw_0/D (DFFPOSX1)
            0.359   data arrival time
  -0.180  999.820   library setup time
          999.461   slack (MET)
"""


def test_a_path_is_read_from_a_report():
    found = timing.path(REPORT)
    assert found == {"start": "cna/R_x_3", "end": "R_raw_0", "nanoseconds": 0.54, "cells": 2, "loops": 0}
    assert timing.path(REPORT + "Warning: There is 1 combinational loop in the design.\n")["loops"] == 1
    with pytest.raises(timing.TimingError, match="no path: Error: x"):
        timing.path("No paths found.\nError: x\n")


def test_messages_of_yosys_are_those_of_the_module():
    text = (
        "mapping memory top.rows via $__XILINX_BLOCKRAM_TDP_\nmapping memory other.rows via $__X\n"
        "using FF mapping for memory top.words\n"
        "Warning: Latch inferred for signal `\\top.\\x' from process `\\top.$1': $auto$1\n"
        "Warning: found logic loop in module top:\n    cell $and\n"
        "Warning: found logic loop in module other:\n    cell $and\n"
        "Warning: multiple conflicting drivers for top.\\y:\n    port Y[0]\n"
    )
    found = messages(text, "top")
    assert found["memories"] == {"rows": "$__XILINX_BLOCKRAM_TDP_", "words": "flip-flops"}
    assert [line.splitlines()[0][:16] for line in found["warnings"]] == [
        "Warning: Latch i",
        "Warning: found l",
        "Warning: multipl",
    ]


def test_statistics_are_those_of_the_module():
    text = json.dumps({"modules": {"\\top": {"num_cells_by_type": {"LUT2": 3}, "area": 4}, "\\x": {}}})
    assert statistics(text, "top") == {"cells": {"LUT2": 3}, "area": 4.0}


def test_latches_loops_and_drivers_are_found(tmp_path: Path):
    """The messages are those of the installed Yosys."""
    bad = """module \\bad
  wire input 0 \\a
  wire output 1 \\y
  wire output 2 \\q
  wire output 3 \\two
  wire \\n
  wire $next
  cell $and $1
    parameter \\A_SIGNED 0
    parameter \\B_SIGNED 0
    parameter \\A_WIDTH 1
    parameter \\B_WIDTH 1
    parameter \\Y_WIDTH 1
    connect \\A \\a
    connect \\B \\n
    connect \\Y \\n
  end
  connect \\y \\n
  process $2
    assign $next \\q
    switch \\a
      case 1'1
        assign $next \\n
      case
    end
    sync always
      update \\q $next
  end
end
"""
    found = flows.run("fpga", ["bad"], bad, tmp_path, Bounds(300, 8))["bad"]
    kinds = " ".join(line.split(" for ")[0] for line in found["warnings"])
    assert "Latch inferred" in kinds and "logic loop" in kinds, found


def test_a_run_beyond_its_bounds_is_named(tree: Hierarchy, tmp_path: Path):
    made = flows.run("fpga", ["tree_right"], tree.source("tree_right"), tmp_path, Bounds(0, 8))
    assert list(made) == ["tree_right"] and made["tree_right"]["error"] == "more than 0 s"
    found = flows.script(["read_rtlil none.il"], tmp_path, Bounds(60, 8))
    assert isinstance(found, str) and "none.il" in found


def test_the_fpga_flow_maps_multiplier_and_memories(tree: Hierarchy, tmp_path: Path):
    found = work.measure(tree, "fpga", tree.units, tmp_path, jobs=1, bounds=Bounds(300, 8))
    assert found["tree_right"]["cells"]["DSP48E2"] == 1
    assert found["tree"]["cells"]["RAMB18E2"] == 1
    assert found["tree"]["memories"]["rows"].startswith("$__XILINX_BLOCKRAM")
    total = need(tree, {"fpga": found, "cells": {}}, "tree")
    assert total.dsps == 2 and total.block_rams == (0, 1) and total.missing["cells"] == ["tree", "tree_right"]


@pytest.mark.parametrize(("number", "memories"), [pytest.param(0, 0.5, marks=pytest.mark.heavy), (1, 1)])
def test_the_families_of_the_page_of_fpgas(tree: Hierarchy, tmp_path: Path, number: int, memories: float):
    """Two multipliers of 8 x 8 bits, 16 flip-flops in each and in the sum, 256 x 32 and 4 x 8 bits."""
    family = fpga.FAMILIES[number]
    found = work.measure(tree, family.flow, tree.units, tmp_path, jobs=1, bounds=Bounds(300, 8))
    parts, missing = fpga.Design(tree, {family.flow: found}).needs(family, "tree")
    assert not missing and parts.multipliers == 2 and parts.memories == memories
    assert parts.registers >= 16 and parts.luts >= 16 + 8, parts


def test_the_page_of_fpgas_compares_two_designs_and_all_devices(tree: Hierarchy):
    def design(luts: int, error: bool = False) -> fpga.Design:
        leaf = {"error": "too long"} if error else {"cells": {"LUT4": luts, "DSP48E1": 40, "MULT18X18D": 40}}
        top = {"cells": {"RAMB18E1": 3, "DP16KD": 2, "CCU2C": 5, "FDRE": 7}}
        return fpga.Design(tree, {key: {"tree": top, "tree_right": leaf} for key in ("xc7", "ecp5")})

    text = fpga.page(design(40_000), design(1000), "Yosys 0")
    assert "| XC7A35T | 20,800 | 41,600 | 90 | 50 | no: LUTs 385 % | by numbers: multipliers 89 % |" in text
    assert "| LFE5U-25F | 24,288 | 24,288 | 28 | 56 | no: LUTs 329 %, multipliers 286 % |" in text
    assert "| `core` | 80,000 | 7 | 80 | 1.5 | 2,000 | 7 | 80 | 1.5 |" in text
    assert "| `left` (2) | 40,000 | 0 | 40 | 0 | 1,000 | 0 | 40 | 0 |" in text
    assert "| `core` | 80,010 | 0 | 80 | 2 | 2,010 | 0 | 80 | 2 |" in text
    assert all(f"| {device} |" in text for family in fpga.FAMILIES for device in family.devices)
    assert "Parts of the core without floats that do not fit on one XC7A100T alone: none." in text
    large = fpga.page(design(1), design(100_000), "Yosys 0")
    assert "that do not fit on one LFE5U-85F alone: `left`." in large
    partial = fpga.page(design(40_000), design(0, error=True), "Yosys 0")
    assert "Not in the sums, because they have no result: `tree_right` (Xilinx 7 series" in partial


def test_the_page_of_fpgas_has_the_present_text():
    text = (ROOT / "docs/results/fpga.md").read_text()
    assert (ROOT / "tools/synthesis/fpga.md").read_text().rstrip() in text


@needs_cells
@needs_sta
def test_a_small_design_through_cells_and_paths(
    tree: Hierarchy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    bounds = Bounds(300, 8)
    found = work.measure(tree, "cells", tree.units, tmp_path, jobs=1, bounds=bounds)
    # 16 bits of `o` and 32 of `words`; `rows` is a macro, of which 16 bits are used.
    assert found["tree"]["cells"]["DFFPOSX1"] == 48
    assert found["tree"]["cells"]["MEM_OUT"] == 16
    assert found["tree_right"]["cells"]["DFFPOSX1"] == 16
    total = need(tree, {"fpga": {}, "cells": found}, "tree")
    assert total.flip_flops == 48 + 2 * 16 and total.macro_bits == 8192
    assert total.area == found["tree"]["area"] + 2 * found["tree_right"]["area"]

    longest = timing.longest(tree, "tree", tmp_path / "netlists", bounds)
    inside = timing.longest(tree, "tree_right", tmp_path / "netlists", bounds)
    assert longest["end"].startswith(("left/R_o_", "right/R_o_")) and longest["loops"] == 0
    assert longest["nanoseconds"] >= inside["nanoseconds"] > 1
    with pytest.raises(timing.TimingError, match="no netlist of tree"):
        timing.longest(tree, "tree", tmp_path / "none", bounds)

    def refuse(*given: object) -> None:
        raise AssertionError("a known result is made again")

    monkeypatch.setattr(flows, "run", refuse)
    assert work.measure(tree, "cells", tree.units, tmp_path, jobs=1, bounds=bounds) == found


def test_a_failed_run_is_repeated_with_larger_bounds_only(tmp_path: Path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"key": "k", "bounds": [100, 4], "error": "more than 100 s"}))
    assert work.known(path, "k", Bounds(100, 4)) is not None
    assert work.known(path, "k", Bounds(50, 4)) is not None
    assert work.known(path, "k", Bounds(200, 4)) is None
    assert work.known(path, "other", Bounds(100, 4)) is None
    assert work.known(tmp_path / "none.json", "k", Bounds()) is None


def test_small_modules_share_a_process(tree: Hierarchy):
    assert work.batches(tree, ["tree", "tree_right"]) == [["tree_right", "tree"]]
    long = Unit("long", f"module \\long\n{' ' * work.BATCH_BYTES}end\n")
    tree.units["long"] = long
    assert work.batches(tree, ["long", "tree_right"]) == [["tree_right"], ["long"]]
    del tree.units["long"]


def test_needs_count_primitives():
    own = Need()
    own.fpga.update({"LUT6": 3, "INV": 1, "RAM32M16": 2, "FDRE": 5, "FDSE": 1, "RAMB36E2": 4, "CARRY4": 7})
    own.cells.update({"NAND2X1": 2, "DFFPOSX1": 3, "MEM_IN": 9})
    assert (own.luts, own.lut_memories, own.registers, own.block_rams) == (4, 16, 6, (4, 0))
    assert (own.gates, own.flip_flops) == (5, 3)


def test_the_page_has_blocks_paths_memories_and_failures(tree: Hierarchy):
    shown = blocks(tree)
    assert [(block.name, block.alike) for block in shown] == [("core", 1), ("left", 2)]
    results = {
        "fpga": {
            "tree": {"cells": {"LUT2": 1}, "memories": {"rows": "$__XILINX_BLOCKRAM_SDP_"}, "seconds": 2}
        },
        "cells": {
            "tree": {"cells": {"INVX1": 1}, "area": 16.0, "seconds": 1},
            "tree_right": {"error": "more than 5 s", "seconds": 5},
        },
    }
    results["fpga"]["tree_right"] = {"cells": {"LUT2": 10, "DSP48E2": 1}, "memories": {}, "seconds": 2}
    paths = {
        "tree": {"error": "no netlist of tree_right"},
        "tree_right": {"start": "a[1]", "end": "R_o_3", "nanoseconds": 9.0, "cells": 20, "loops": 0},
    }
    text = page(Facts(tree, shown, results, paths, ["Yosys 0"]))
    assert "21 LUTs for logic" in text and "2 DSP slices" in text
    assert "`right` (more than 5 s; 2 instances)" in text
    assert "| `left` (2) | 10 | 0 | 0 | 1 | 0 + 0 | not known |" in text
    assert "| `left` | 9.00 | 20 | `a[1]` | `R_o_3` |" in text
    assert "| `core` |  |  | no netlist of tree_right |  |" in text
    assert "| `tree.rows` | 1 | 256 x 32 | 8.0 | 1 | 1 | block RAM | macro |" in text


def test_a_long_path_has_the_reason_of_the_nearest_block(monkeypatch: pytest.MonkeyPatch):
    from tools.synthesis.blocks import Block

    monkeypatch.setitem(PATHS, "some.part", "It is so.")
    assert reason(Block("some.part_3.thing_12", "m")) == "It is so."
    assert reason(Block("some", "m")) == reason(Block("", "m")) == PATHS["core"]


def test_the_page_has_the_present_texts():
    """The parts that are not measured are those of the sources; the others need `make synthesis`."""
    text = (ROOT / "docs/results/synthesis.md").read_text()
    for name in ("introduction.md", "published.md"):
        assert (ROOT / "tools/synthesis" / name).read_text().rstrip() in text
