"""Hostile programs through the preload library with sanitizers: the server goes on as if nothing were."""

from __future__ import annotations

import os
import random
import subprocess
import time

import pytest

from cosim.devices import SimulatedMachine
from cosim.devices.program import environment, private_server
from cosim.engines import BuildError
from tests.native.build import compiled

CALLS = int(os.environ.get("RKCOSIM_FUZZ", "1500"))
SANITIZERS = (
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
    "-g",
    "-fno-sanitize=alignment",
)


def test_hostile_program_harms_nobody():
    seed = int(os.environ.get("RKCOSIM_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
    print(f"RKCOSIM_SEED={seed}")
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
