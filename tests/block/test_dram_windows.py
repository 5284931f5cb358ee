"""Ports and memory controller: however far ahead each is simulated, everything happens in the same cycles."""

from __future__ import annotations

import ctypes as ct
import subprocess
from pathlib import Path

import pytest

from rkcosim.engines.build import harness_folder
from rkcosim.engines.library import DramConfig, DramConfigC
from tests import seeds
from tests.programs import require_program

SEED = seeds.seed(__name__, 16)

CONFIGS = {
    "default": DramConfig(),
    "jitter": DramConfig(jitter=90, seed=SEED),
    "narrow": DramConfig(peak_bytes_per_cycle=7.5, port_bytes_per_cycle=5, jitter=20),
    "few bursts": DramConfig(
        read_outstanding=3, client_read_outstanding=1, write_outstanding=2, client_write_outstanding=1
    ),
    "short latencies": DramConfig(read_latency=9, write_latency=5, peak_bytes_per_cycle=40),
    "long latencies": DramConfig(read_latency=700, write_latency=300),
    "no limit": DramConfig(peak_bytes_per_cycle=1024, port_bytes_per_cycle=1024).unshared,
    "whole": DramConfig().unshared,
    "one core": DramConfig(core_bytes_per_cycle=9.3, jitter=20, seed=SEED),
}


class Result(ct.Structure):
    """The result, as in dram_windows.cpp."""

    _fields_ = [
        ("cores", ct.c_uint64 * 3),
        *((name, ct.c_uint64) for name in ("memory", "faults", "counters")),
        *((name, ct.c_uint32) for name in "lookahead responses beats wrong fault_count pad".split()),
    ]

    def seen(self) -> tuple[object, ...]:
        """Return everything that is compared."""
        return tuple(self.cores), self.memory, self.faults, self.counters, self.fault_count, self.wrong


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> ct.CDLL:
    require_program("g++")
    target = tmp_path_factory.mktemp("windows") / "windows.so"
    source = Path(__file__).with_name("dram_windows.cpp")
    options = ["-std=c++17", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["g++", *options, f"-I{harness_folder()}", str(source), "-o", str(target)], check=True)
    return ct.CDLL(str(target))


def run(
    library: ct.CDLL, config: DramConfig, cores: int, most: int, *, cycles: int = 20_000, faults: bool = False
) -> Result:
    result = Result()
    raw = DramConfigC.of(config)
    library.windows_run(ct.byref(raw), cores, ct.c_uint64(SEED), cycles, most, int(faults), ct.byref(result))
    return result


@pytest.mark.parametrize("cores", [1, 2, 3])
@pytest.mark.parametrize("name", CONFIGS)
def test_windows_change_nothing(library, name, cores):
    print(f"seed {SEED}")
    config = CONFIGS[name]
    expected = run(library, config, cores, 0)
    assert expected.responses > 10 and expected.beats > 300
    assert expected.wrong == 0, "a write was answered before it landed"
    assert expected.lookahead == config.lookahead > 1
    for most in sorted({1, 2, config.lookahead // 2, config.lookahead}):
        assert run(library, config, cores, most).seen() == expected.seen(), f"windows up to {most}"


def test_refused_accesses_are_logged_in_one_order(library):
    print(f"seed {SEED}")
    cycles = 80_000  # 20,000 have fewer than 20 faults with one seed in five
    expected = run(library, CONFIGS["jitter"], 3, 0, cycles=cycles, faults=True)
    assert expected.fault_count > 20
    for most in (1, 32):
        assert run(library, CONFIGS["jitter"], 3, most, cycles=cycles, faults=True).seen() == expected.seen()


def test_windows_longer_than_the_lookahead_would_be_noticed(library):
    config = CONFIGS["short latencies"]
    assert run(library, config, 3, 64).seen() != run(library, config, 3, 0).seen()


@pytest.mark.parametrize(
    ("read", "write", "expected"),
    [(120, 60, 32), (33, 32, 16), (33, 33, 32), (33, 9, 8), (3, 100, 2), (2, 2, 1), (1, 60, 0), (60, 1, 0)],
)
def test_lookahead_is_below_both_latencies(library, read, write, expected):
    config = DramConfig(read_latency=read, write_latency=write)
    assert config.lookahead == expected
    result = run(library, config, 2, 0)
    assert result.lookahead == expected and result.responses > 10 and result.wrong == 0
