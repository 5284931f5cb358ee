"""Memory timing settings of commands: accepted values, refused values, messages."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from rkcosim.engines.library import DramConfig
from rkcosim.engines.settings import axes, changed, dram_of, dram_settings, timing_line, words


def test_one_value_of_each():
    assert dram_of(None) is None and dram_of([]) is None and dram_of([], "golden") is None
    memory = dram_of(["peak_bytes_per_cycle=11.75", "read_latency=200"])
    assert memory == DramConfig(peak_bytes_per_cycle=11.75, read_latency=200)
    assert dram_of(["efficiency=1"]) == DramConfig(), "a setting equal to the default is accepted"


@pytest.mark.parametrize(
    ("texts", "engine", "said"),
    [
        (["speed=3"], None, "--dram: no setting 'speed', there are peak_bytes_per_cycle, "),
        (["peak=3"], None, "no setting 'peak'"),
        ([""], None, "no setting ''"),
        (["read_latency"], None, "--dram: 'read_latency' gives read_latency no values"),
        (["read_latency="], None, "gives read_latency no values"),
        (["read_latency=1.5"], None, "--dram: read_latency: '1.5' is not a whole number"),
        (["efficiency=fast"], None, "--dram: efficiency: 'fast' is not a number"),
        (["efficiency=nan"], None, "--dram: efficiency must be above 0"),
        (["peak_bytes_per_cycle=0"], None, "--dram: peak_bytes_per_cycle must be above 0 .* not 0.0"),
        (["read_latency=0"], None, "--dram: read_latency must be 1.."),
        (["read_outstanding=256"], "cxxrtl", "--dram: read_outstanding must be 1..255, not 256"),
        (["jitter=1", "jitter=2"], None, "--dram: a setting is given twice"),
        (["read_latency=60,120"], None, "--dram: 2 values of read_latency; rkcosim sweep runs"),
        (
            ["read_latency=60"],
            "golden",
            "golden counts no cycles; --dram needs one of: verilator, cxxrtl, amaranth, changes, fast",
        ),
    ],
)
def test_refused(texts: list[str], engine: str | None, said: str):
    with pytest.raises(ValueError, match=said):
        dram_of(texts, engine)


def test_lists_for_a_sweep():
    found = axes(["read_latency=60,120", "efficiency=0.5"], dram_settings(), "--dram")
    assert found == {"read_latency": [60, 120], "efficiency": [0.5]}
    with pytest.raises(ValueError, match="--geometry: a setting is given twice"):
        axes(["a=1", "a=2"], {"a": int}, "--geometry")


def test_what_is_said_of_it():
    memory = DramConfig(peak_bytes_per_cycle=11.75, read_latency=200)
    assert changed(memory) == changed(asdict(memory)) == {"peak_bytes_per_cycle": 11.75, "read_latency": 200}
    assert timing_line(memory) == (
        "memory timing: peak_bytes_per_cycle=11.75 (default 23.65), read_latency=200 (default 120)"
    )
    assert words(changed(memory)) == "peak_bytes_per_cycle=11.75, read_latency=200"
    for default in (None, {}, DramConfig(), asdict(DramConfig())):
        assert changed(default) == {} and timing_line(default) == "" and words(changed(default)) == "default"
    # Reports of other versions may lack settings, or have settings that no longer exist.
    assert changed({"read_latency": 60, "gone": 1}) == {"read_latency": 60}
