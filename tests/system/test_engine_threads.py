"""Several threads on one engine: waiting for jobs, and closing it while one of them simulates."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import rkcosim
from rkcosim.engines import EngineError

POOL = rkcosim.example("streams/pool.json")
BOUND_S = 120.0


FAST = pytest.param("fast", marks=pytest.mark.heavy)
"""The engine of the timing is a further build of the whole core."""


def _layers(count: int) -> onnx.ModelProto:
    """Convolutions of 64 channels on 64 x 64 pixels: seconds of simulation on every engine."""
    weights = np.random.default_rng(0).normal(0, 0.05, (64, 64, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", [f"t{n}", "w"], [f"t{n + 1}"], name=f"conv{n}", pads=[1, 1, 1, 1])
        for n in range(count)
    ]
    graph = helper.make_graph(
        nodes,
        "layers",
        [helper.make_tensor_value_info("t0", TensorProto.FLOAT, [1, 64, 64, 64])],
        [helper.make_tensor_value_info(f"t{count}", TensorProto.FLOAT, [1, 64, 64, 64])],
        [numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


@pytest.mark.parametrize("name", ["golden", FAST])
def test_threads_wait_for_jobs_of_one_engine(name: str):
    def wait(number: int) -> None:
        try:
            found[number] = bool(jobs[number].result(timeout=BOUND_S).compare())
        except Exception as error:
            found[number] = error

    for _ in range(5):
        found: dict[int, Any] = {}
        with rkcosim.open_engine(name, cores=3) as engine:
            jobs = [engine.submit(rkcosim.TaskList.load(POOL), number % 3) for number in range(6)]
            threads = [threading.Thread(target=wait, args=(number,)) for number in range(6)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(BOUND_S)
        assert found == dict.fromkeys(range(6), True)


@pytest.mark.parametrize("name", [FAST, "verilator"])
def test_closing_ends_a_run_of_another_thread(name: str):
    engine = rkcosim.open_engine(name, cores=1)
    model = rkcosim.load(_layers(12), engine=engine)
    raised: list[BaseException] = []

    def run() -> None:
        try:
            model(np.ones((1, 64, 64, 64), np.float32))
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    end = time.monotonic() + BOUND_S
    while engine.cycle < 2000 and time.monotonic() < end:
        time.sleep(0.01)
    assert engine.cycle >= 2000
    engine.close()
    thread.join(BOUND_S)
    assert not thread.is_alive()
    assert len(raised) == 1
    assert isinstance(raised[0], EngineError)
    assert "the engine is closed" in str(raised[0])
    with pytest.raises(rkcosim.Error, match="its engine has been closed"):
        model(np.ones((1, 64, 64, 64), np.float32))
    model.close()


@pytest.mark.parametrize("name", ["golden", FAST])
def test_closing_cancels_jobs_for_which_threads_wait(name: str):
    with rkcosim.open_engine(name, cores=1) as engine:
        jobs = [engine.submit(rkcosim.TaskList.load(POOL), 0) for _ in range(3)]
    for job in jobs:
        assert job.cancelled()
        assert job.cancel()
        with pytest.raises(CancelledError, match="the job of core 0 was cancelled"):
            job.result(timeout=BOUND_S)
