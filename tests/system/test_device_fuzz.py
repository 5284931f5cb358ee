"""The server survives hostile programs through the preload library (with sanitizers) and hostile packets."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from rkcosim.devices import SimulatedMachine
from rkcosim.devices.program import environment, private_server
from rkcosim.driver.server import Server
from rkcosim.driver.server.calls import Machine
from rkcosim.engines import BuildError
from tests import seeds
from tests.extent import extent
from tests.native.build import compiled
from tools.kernel_fuzz import packets
from tools.kernel_fuzz.packets import fuzz_protocol

CALLS = int(os.environ.get("RKCOSIM_FUZZ", extent("500", "1500")))
SANITIZERS = (
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
    "-g",
    "-fno-sanitize=alignment",
)


def test_hostile_program_harms_nobody():
    seed = seeds.seed(__name__, 31)
    print(f"seed {seed}")
    with SimulatedMachine("golden") as machine, private_server(machine) as server:
        try:
            env = environment(server.path, sanitize=True)
            hostile = compiled("fuzz", *SANITIZERS)
        except (BuildError, AssertionError) as error:
            if "sanitize" not in str(error) and "asan" not in str(error):
                raise
            pytest.skip(f"no sanitizers here: {error}")
        env["ASAN_OPTIONS"] = "detect_leaks=0"
        done = subprocess.run(
            [hostile, str(seed), str(CALLS)],
            env=env,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        print(done.stdout)
        assert done.returncode == 0, f"seed {seed}: {done.stdout}\n{done.stderr}"
        assert "ERROR" not in done.stderr and "runtime error" not in done.stderr, done.stderr
        text = machine.kernel.log.text()
        assert "server: " not in text and "internal error" not in text, f"seed {seed}: {text}"
        good = subprocess.run(
            [compiled("rknpu_program"), "matmul"],
            env=environment(server.path),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert good.returncode == 0, f"seed {seed}: {good.stdout}{good.stderr}"
        end = time.monotonic() + 20
        while len(server.machine.descriptors) and time.monotonic() < end:
            time.sleep(0.01)
        assert not len(server.machine.descriptors), f"seed {seed}: descriptors are left behind"


def test_hostile_packets_harm_nobody():
    seed = seeds.seed(__name__, 31)
    print(f"seed {seed}")
    with SimulatedMachine("golden") as machine, private_server(machine) as server:
        report = fuzz_protocol(server, seed, CALLS)
        print(report)
        assert report.good, f"{report}\n{machine.kernel.log.text()[-2000:]}"
        assert report.errors["ok"] > CALLS // 20 and report.errors["broken off"], report
        assert len(report.errors) > 5 and report.runs == CALLS // 50
        good = subprocess.run(
            [compiled("rknpu_program"), "matmul"], env=environment(server.path), timeout=60, check=False
        )
        assert good.returncode == 0, "the server can still be used"


def test_a_server_that_does_not_answer_is_noticed(monkeypatch: pytest.MonkeyPatch):
    """A check of the fuzzer."""
    monkeypatch.setattr(packets, "BOUND", 0.1)
    monkeypatch.setattr(Machine, "open", lambda *_: time.sleep(0.5))
    with SimulatedMachine("golden") as machine, private_server(machine) as server:
        report = fuzz_protocol(server, 1, 12)
    assert report.late and not report.good


def test_errors_of_the_server_are_noticed(monkeypatch: pytest.MonkeyPatch):
    """A check of the fuzzer, with an exception that no call should raise."""

    def fail(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(Machine, "open", fail)
    with SimulatedMachine("golden") as machine, private_server(machine) as server:
        assert isinstance(server, Server)
        report = fuzz_protocol(server, 1, 40)
    assert report.internal and not report.good
