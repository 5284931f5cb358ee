"""The function that opens every engine: names, what each engine refuses, representation, public names."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import rkcosim
from rkcosim.cli import options as cli_options
from rkcosim.engines import ALL_ENGINES, ENGINES, DramConfig, EngineError, GoldenEngine, open_engine
from rkcosim.golden.task import GoldenNpu


def test_command_line_and_python_have_the_same_engines():
    assert set(cli_options.ENGINES) == set(ALL_ENGINES)


def test_an_unknown_name_lists_every_engine():
    with pytest.raises(ValueError, match="not 'icarus'") as caught:
        open_engine("icarus")
    for name in ("verilator", "cxxrtl", "amaranth", "changes", "fast", "golden"):
        assert name in str(caught.value)


def test_the_golden_model_is_an_engine_like_the_others():
    with open_engine("golden", cores=2) as engine:
        assert isinstance(engine, GoldenEngine)
        assert isinstance(engine, GoldenNpu)
        assert engine.cores == 2
        assert repr(engine) == "<engine golden, 2 cores, counts no cycles>"
    assert repr(engine) == "<engine golden, 2 cores, closed>"


def test_on_diagnostic_reaches_the_golden_model():
    assert open_engine("golden").devices[0].strict
    assert not open_engine("golden", on_diagnostic="go on").devices[0].strict
    with pytest.raises(ValueError, match="must be 'stop' or 'go on', not 'continue'"):
        open_engine("golden", on_diagnostic="continue")


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        (
            "golden",
            {"dram": DramConfig()},
            "golden counts no cycles; a memory timing needs one of: veri",
        ),
        ("golden", {"trace": "w.vcd"}, "golden writes no waveforms"),
        ("fast", {"trace": "w.vcd"}, "fast writes no waveforms"),
        ("changes", {"traced": True}, "changes writes no waveforms"),
        ("fast", {"exact": True}, "fast has no array cell"),
        ("cxxrtl", {"probed": True}, "cxxrtl cannot be probed; a lockstep run needs one of: verilator"),
        ("golden", {"snapshot": "x.snap"}, "golden cannot be saved"),
        (
            "fast",
            {"watched": True},
            "fast does not build the RTL; watched needs one of: verilator, cxxrtl",
        ),
        ("golden", {"config": object()}, "golden does not build the RTL; config needs"),
        ("changes", {"design": object()}, "changes does not build the RTL; design needs"),
        ("verilator", {"dram": {"latency": 3}}, r"dram must be a rkcosim.engines.DramConfig, not \{'lat"),
        ("golden", {"cores": 4}, "cores must be 1..3, not 4"),
    ],
)
def test_what_an_engine_does_not_have_is_refused_before_anything_is_built(name, settings, message):
    with pytest.raises(ValueError, match=message):
        open_engine(name, **settings)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda engine: engine.trace("w.vcd"), "writes no waveforms"),
        (lambda engine: engine.record(), "records no events"),
        (lambda engine: engine.events(), "records no events"),
        (lambda engine: engine.counters(0), "has no performance counters"),
        (lambda engine: engine.block_counters(0), "has no performance counters"),
        (lambda engine: engine.save("x.snap"), "cannot be saved"),
    ],
)
def test_members_that_the_golden_model_lacks_name_the_engines_that_have_them(call, message):
    with pytest.raises(ValueError, match=f"{message}; .* needs one of: verilator"):
        call(open_engine("golden"))


def test_a_waveform_is_refused_as_by_other_engines():
    with pytest.raises(EngineError, match="writes no waveforms"):
        open_engine("golden").trace("w.vcd")


def test_engines_of_the_rtl_are_a_part_of_all_engines():
    assert ALL_ENGINES[: len(ENGINES)] == ENGINES


@pytest.mark.parametrize(
    "package",
    [
        *("rkcosim", "rkcosim.engines", "rkcosim.regcmd", "rkcosim.waves", "rkcosim.compiler"),
        *("rkcosim.devices", "rkcosim.rknn_api", "rkcosim.rknn_file", "rkcosim.measure.report"),
    ],
)
def test_dir_lists_the_public_names_and_each_exists(package):
    module = importlib.import_module(package)
    assert set(module.__all__) <= set(dir(module))
    assert not {"lazy", "TYPE_CHECKING", "annotations"} & set(dir(module))
    for name in dir(module):
        assert hasattr(module, name), name


def printed(script: str) -> list[str]:
    """Words that a new Python process prints."""
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    ).stdout.split()


def test_importing_the_package_imports_nothing_heavy():
    found = printed(
        "import sys, rkcosim; dir(rkcosim)\n"
        "print(*sorted(m for m in sys.modules if m.partition('.')[0] in ('rkcosim', 'numpy', 'amaranth')))"
    )
    assert found == ["rkcosim", "rkcosim.base", "rkcosim.base.homes"]


def test_every_public_name_can_be_imported_with_a_star():
    found = printed("from rkcosim import *; print(open_engine.__module__, Stream.__module__)")
    assert found == ["rkcosim.engines.engine", "rkcosim.verify.streams.stream"]


def test_the_package_says_where_its_names_are():
    for name in rkcosim.__all__:
        assert getattr(rkcosim, name).__module__.startswith("rkcosim.")
