"""rknn_api: frames in the background, fences, timeouts, copies of contexts, cores, performance texts."""

from __future__ import annotations

import ctypes as ct
import os
import select
import threading
from collections.abc import Iterator

import numpy as np
import pytest

import rkcosim.rknn_api as rk
from rkcosim.compiler.runtime import TaskMeasure
from rkcosim.driver import DriverTimeout
from rkcosim.golden.task import GoldenNpu
from tests.makers.rknn_models import get_float, image_model, open_model, query_attr, run_float, set_float

RNG = np.random.default_rng(8)


class Gate:
    """A golden device whose kicks wait until the test releases them."""

    def __init__(self) -> None:
        self.npu = GoldenNpu(3)
        self.open = threading.Event()
        self.open.set()

    def __getattr__(self, name: str):
        return getattr(self.npu, name)

    def run_until_irq(self, core_mask: int, max_cycles: int) -> int:
        assert self.open.wait(20)
        return self.npu.run_until_irq(core_mask, max_cycles)


@pytest.fixture(autouse=True)
def device() -> Iterator[Gate]:
    gate = Gate()
    rk.use_device(gate)
    yield gate
    gate.open.set()
    from rkcosim.rknn_api.state import runtime

    for handle in list(runtime.contexts):
        rk.rknn_destroy(handle)
    rk.use_device(None)


def image() -> np.ndarray:
    return (RNG.integers(-100, 100, (1, 3, 6, 10)) / 2).astype(np.float32)


def expected(x: np.ndarray) -> np.ndarray:
    return run_float(open_model(image_model()), x)


def test_a_run_that_does_not_block(device: Gate) -> None:
    x = image()
    want = expected(x)
    context = open_model(image_model())
    set_float(context, x)
    device.open.clear()
    extend = rk.rknn_run_extend(non_block=1)
    assert rk.rknn_run(context, ct.byref(extend)) == rk.RKNN_SUCC
    assert extend.frame_id == 1
    threading.Timer(0.1, device.open.set).start()
    waited = rk.rknn_run_extend()
    assert rk.rknn_wait(context, ct.byref(waited)) == rk.RKNN_SUCC and waited.frame_id == 1
    more = rk.rknn_output_extend()
    assert np.array_equal(get_float(context, extend=ct.byref(more)), want) and more.frame_id == 1
    assert rk.rknn_run(context, ct.byref(extend)) == rk.RKNN_SUCC and extend.frame_id == 2
    assert np.array_equal(get_float(context), want), "outputs_get waits for the frame"
    assert rk.rknn_wait(context, rk.rknn_run_extend(frame_id=1)) == rk.RKNN_SUCC
    assert rk.rknn_wait(context, rk.rknn_run_extend(frame_id=3)) == rk.RKNN_ERR_PARAM_INVALID
    assert rk.rknn_wait(open_model(image_model()), None) == rk.RKNN_ERR_FAIL


def test_inputs_set_once_serve_many_runs() -> None:
    context, x = open_model(image_model()), image()
    want = run_float(context, x)
    loaded = rk.loaded_model(context)
    for _ in range(2):
        loaded.memory(loaded.model.graph.inputs[0].tensor)[:] = 0x55  # like buffers that are used again
        assert rk.rknn_run(context, None) == rk.RKNN_SUCC
        assert np.array_equal(get_float(context), want)


def test_asynchronous_contexts_give_the_frame_before() -> None:
    context = open_model(image_model(), rk.RKNN_FLAG_ASYNC_MASK)
    pictures = [image() for _ in range(3)]
    results = [expected(x) for x in pictures]
    frames = []
    for x in pictures:
        set_float(context, x)
        assert rk.rknn_run(context, None) == rk.RKNN_SUCC
        more = rk.rknn_output_extend()
        frames.append((get_float(context, extend=ct.byref(more)), more.frame_id))
    assert [number for _, number in frames] == [1, 1, 2]
    for (got, _), want in zip(frames, (results[0], results[0], results[1]), strict=True):
        assert np.array_equal(got, want)


def test_fences(device: Gate, caplog) -> None:
    flags = rk.RKNN_FLAG_FENCE_IN_OUTSIDE | rk.RKNN_FLAG_FENCE_OUT_OUTSIDE
    context = open_model(image_model(), flags)
    x = image()
    want = expected(x)
    set_float(context, x)
    assert rk.rknn_run(context, None) == rk.RKNN_ERR_PARAM_INVALID
    assert "fence fd = -1 is invalid" in caplog.text
    start = os.eventfd(0)
    extend = rk.rknn_run_extend(fence_fd=start)
    assert rk.rknn_run(context, ct.byref(extend)) == rk.RKNN_SUCC
    fence = extend.fence_fd
    assert fence not in (-1, start)
    poll = select.poll()
    poll.register(fence, select.POLLIN)
    assert poll.poll(50) == [], "the frame waits for the fence it was given"
    os.eventfd_write(start, 1)
    assert poll.poll(20_000)
    assert np.array_equal(get_float(context), want)
    os.close(fence)
    os.close(start)


def test_timeouts_count_the_devices_time() -> None:
    context = open_model(image_model())
    set_float(context, image())
    rk.loaded_model(context).driver.device.npu.cycle += 5
    slow = rk.loaded_model(context)
    real = slow.driver.device.npu.run_until_irq

    def late(mask: int, most: int) -> int:
        slow.driver.device.npu.cycle += 1_500_000
        return real(mask, most)

    slow.driver.device.npu.run_until_irq = late
    assert rk.rknn_run(context, rk.rknn_run_extend(timeout_ms=10)) == rk.RKNN_SUCC
    background = rk.rknn_run_extend(non_block=1)
    assert rk.rknn_run(context, background) == rk.RKNN_SUCC
    assert rk.rknn_wait(context, rk.rknn_run_extend(timeout_ms=1)) == rk.RKNN_ERR_TIMEOUT
    assert rk.rknn_wait(context, rk.rknn_run_extend(timeout_ms=1)) == rk.RKNN_SUCC
    slow.driver.device.npu.run_until_irq = lambda mask, most: 0  # never ends
    assert rk.rknn_run(context, rk.rknn_run_extend(timeout_ms=1)) == rk.RKNN_ERR_TIMEOUT
    assert isinstance(rk.last_error(context), DriverTimeout)
    assert rk.rknn_run(context, background) == rk.RKNN_SUCC
    assert rk.rknn_wait(context, None) == rk.RKNN_ERR_FAIL  # the driver's own bound
    item = rk.rknn_output(want_float=1)
    assert rk.rknn_outputs_get(context, 1, [item]) == rk.RKNN_ERR_FAIL
    assert isinstance(rk.last_error(context), DriverTimeout)
    slow.driver.device.npu.run_until_irq = real
    assert rk.rknn_run(context) == rk.RKNN_SUCC


def test_copies_of_a_context_share_weights_and_nothing_else() -> None:
    context, copy = open_model(image_model()), rk.rknn_context()
    assert rk.rknn_dup_context(ct.byref(context), ct.byref(copy)) == rk.RKNN_SUCC
    assert copy.value not in (0, context.value)
    ours, theirs = rk.loaded_model(context), rk.loaded_model(copy)
    assert ours.bases["weights"] == theirs.bases["weights"]
    assert ours.bases["activations"] != theirs.bases["activations"]
    x, y = image(), image()
    set_float(context, x)
    set_float(copy, y)
    assert rk.rknn_run(copy) == rk.rknn_run(context) == rk.RKNN_SUCC
    assert np.array_equal(get_float(context), expected(x)) and np.array_equal(get_float(copy), expected(y))
    assert rk.rknn_destroy(context) == rk.RKNN_SUCC
    assert np.array_equal(run_float(copy, x), expected(x)), "the weights are still valid"
    assert rk.rknn_destroy(copy) == rk.RKNN_SUCC
    assert rk.rknn_dup_context(ct.byref(context), ct.byref(copy)) == rk.RKNN_ERR_CTX_INVALID
    assert rk.rknn_dup_context(ct.byref(open_model(image_model())), None) == rk.RKNN_ERR_PARAM_INVALID


def test_shared_weights_by_flag() -> None:
    full = open_model(image_model())
    extend = rk.rknn_init_extend(ctx=full.value)
    second = open_model(image_model(), rk.RKNN_FLAG_SHARE_WEIGHT_MEM, ct.byref(extend))
    assert rk.loaded_model(full).bases["weights"] == rk.loaded_model(second).bases["weights"]
    x = image()
    assert np.array_equal(run_float(second, x), expected(x))
    model, handle = image_model(4), rk.rknn_context()
    flag = rk.RKNN_FLAG_SHARE_WEIGHT_MEM
    assert rk.rknn_init(handle, model, len(model), flag, ct.byref(extend)) == rk.RKNN_ERR_MODEL_INVALID
    assert rk.rknn_init(handle, model, len(model), flag, None) == rk.RKNN_ERR_PARAM_INVALID
    assert rk.rknn_init(handle, model, len(model), 0x20000, None) == rk.RKNN_ERR_PARAM_INVALID


def test_contexts_of_several_threads() -> None:
    model = image_model()
    contexts = [open_model(model) for _ in range(3)]
    pictures = [image() for _ in contexts]
    results: dict[int, np.ndarray] = {}

    def work(number: int) -> None:
        for _ in range(3):
            results[number] = run_float(contexts[number], pictures[number])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, x in enumerate(pictures):
        assert np.array_equal(results[number], expected(x))


def test_core_masks(device: Gate, caplog) -> None:
    context = open_model(image_model())
    set_float(context, image())
    for mask, core in ((0, 0), (1, 0), (2, 1), (4, 2)):
        assert rk.rknn_set_core_mask(context, mask) == rk.RKNN_SUCC
        before = [reports.total for reports in device.npu.reports]
        assert rk.rknn_run(context) == rk.RKNN_SUCC
        ran = [reports.total > n for reports, n in zip(device.npu.reports, before, strict=True)]
        assert ran == [n == core for n in range(3)], mask
    for mask in (5, 6, 8, -1, 0x10000):
        assert rk.rknn_set_core_mask(context, mask) == rk.RKNN_ERR_PARAM_INVALID
    assert "the core mode 6 is not supported currently" in caplog.text
    device.npu.cores = 1
    assert rk.rknn_set_core_mask(context, 4) == rk.RKNN_ERR_TARGET_PLATFORM_UNMATCH
    assert rk.rknn_set_batch_core_num(context, 1) == rk.RKNN_SUCC
    assert rk.rknn_set_batch_core_num(context, 0) == rk.RKNN_ERR_PARAM_INVALID
    assert rk.rknn_set_batch_core_num(context, 4) == rk.RKNN_ERR_PARAM_INVALID


@pytest.mark.parametrize(("mask", "cores"), [(3, 2), (7, 3), (0xFFFF, 3)])
def test_several_cores_share_large_layers(device: Gate, mask: int, cores: int) -> None:
    model = image_model(64, 256, (48, 48))
    x = (RNG.integers(-100, 100, (1, 64, 48, 48)) / 2).astype(np.float32)
    want = run_float(open_model(model), x)
    context = open_model(model, rk.RKNN_FLAG_COLLECT_PERF_MASK)
    set_float(context, x)
    assert rk.rknn_set_core_mask(context, mask) == rk.RKNN_SUCC
    before = [reports.total for reports in device.npu.reports]
    assert rk.rknn_run(context) == rk.RKNN_SUCC, rk.last_error(context)
    assert np.array_equal(get_float(context), want)
    ran = [reports.total > n for reports, n in zip(device.npu.reports, before, strict=True)]
    assert ran == [n < cores for n in range(3)]
    row = detail(context).splitlines()[6]
    shares = [float(part.rstrip("%")) for part in row[163:184].split()[0].split("/")]
    assert sum(part > 20 for part in shares) == cores and abs(sum(shares) - 100) < 0.5
    copy = rk.rknn_context()
    assert rk.rknn_dup_context(ct.byref(context), ct.byref(copy)) == rk.RKNN_SUCC
    assert np.array_equal(run_float(copy, x), want)
    assert rk.rknn_set_core_mask(context, 1) == rk.RKNN_SUCC
    assert rk.rknn_run(context) == rk.RKNN_SUCC and np.array_equal(get_float(context), want)


def test_shapes_are_those_of_the_model() -> None:
    context = open_model(image_model())
    attr = query_attr(context, rk.RKNN_QUERY_INPUT_ATTR)
    assert rk.rknn_set_input_shapes(context, 1, ct.byref(attr)) == rk.RKNN_SUCC
    attr.dims[1] = 12
    assert rk.rknn_set_input_shapes(context, 1, ct.byref(attr)) == rk.RKNN_ERR_FAIL
    assert "shape = [1,6,10,3], layout = NHWC" in str(rk.last_error(context))
    assert rk.rknn_set_input_shapes(context, 2, ct.byref(attr)) == rk.RKNN_ERR_PARAM_INVALID
    assert rk.rknn_set_input_shape(context, attr) == rk.RKNN_ERR_FAIL


def detail(context: rk.rknn_context) -> str:
    info = rk.rknn_perf_detail()
    assert rk.rknn_query(context, rk.RKNN_QUERY_PERF_DETAIL, ct.byref(info), ct.sizeof(info)) == rk.RKNN_SUCC
    text = ct.string_at(info.perf_data, info.data_len) if info.perf_data else b""
    return text.decode()


def test_performance_table_of_a_device_that_measures_nothing() -> None:
    context = open_model(image_model(), rk.RKNN_FLAG_COLLECT_PERF_MASK)
    run_float(context, image())
    lines = detail(context).splitlines()
    (conv,) = [line for line in lines if line[5:9] == "Conv" and line[24:28] == "INT8"]
    npu = sum(task.formula_npu for task in rk.compiled_model(context).plan.tasks)
    assert conv[104:129].split()[0].endswith(f"/{npu}/-") and conv[129:163].split() == ["-", "\\"]
    assert "Total Operator Elapsed Per Frame Time(us): -" in lines
    assert [line.split() for line in lines if line.startswith("Conv ")] == [["Conv", "1", *"-----"]]
    assert lines[-2].split() == ["Total", "-", "-", "-", "-"]


def test_performance_table_has_the_vendors_form() -> None:
    context = open_model(image_model(), rk.RKNN_FLAG_COLLECT_PERF_MASK)
    assert detail(context) == ""
    measured: list[TaskMeasure] = []
    rk.loaded_model(context).meter = lambda: measured
    set_float(context, image())
    run = rk.loaded_model(context).driver.submit

    def submit(job):
        measured.extend(TaskMeasure(4321, 2000, 1840) for _ in job.tasks)
        return run(job)

    rk.loaded_model(context).driver.submit = submit
    assert rk.rknn_run(context) == rk.RKNN_SUCC
    lines = detail(context).splitlines()
    assert lines[1].strip() == "Network Layer Information Table" and set(lines[0]) == {"-"} == set(lines[4])
    header = lines[3]
    places = [header.index(name) for name in ("ID", "OpType", "DataType", "Target", "InputShape")]
    assert places == [0, 5, 24, 33, 40]
    assert [header.index(n) for n in ("OutputShape", "Cycles(DDR/NPU/Total)", "Time(us)")] == [81, 104, 129]
    assert [header.index(n) for n in ("MacUsage(%)", "WorkLoad(0/1/2)", "RW(KB)", "FullName")] == [
        142,
        163,
        184,
        197,
    ]
    rows = lines[5 : lines.index(lines[0], 5)]
    assert rows[0][5:18] == "InputOperator" and rows[0][40] == "\\" and rows[-1][5:19] == "OutputOperator"
    conv = rows[1]
    assert conv[5:9] == "Conv" and conv[24:28] == "INT8" and conv[33:36] == "NPU"
    assert conv[40:80].split()[0] == "(1,3,6,10),(20,3,1,1),(20)" and conv[81:103].split()[0] == "(1,20,6,10)"
    npu = sum(task.formula_npu for task in rk.compiled_model(context).plan.tasks)
    assert conv[104:129].split()[0] == f"162/{npu}/4321" and conv[129:142].split()[0] == "5"
    assert conv[142:163].split()[0] == f"{100 * 3 * 20 * 60 / (4321 * 1024):.2f}/0.00/0.00"
    assert conv[163:184].split()[0] == "100.0%/0.0%/0.0%" and conv[184:197].split()[0] == "3.75"
    assert conv[197:].startswith("Conv:")
    assert "Total Operator Elapsed Per Frame Time(us): 5" in lines
    assert "Total Memory Read/Write Per Frame Size(KB): 3.75" in lines
    ranking = lines[lines.index("Total Memory Read/Write Per Frame Size(KB): 3.75") :]
    assert ranking[3].strip() == "Operator Time Consuming Ranking Table" and ranking[5].startswith("OpType")
    assert ranking[7].split() == ["Conv", "1", "0", "0", "5", "5", "100.00%"]
    assert ranking[-2].split() == ["Total", "0", "0", "5", "5"]
    plain = open_model(image_model())
    run_float(plain, image())
    assert detail(plain) == "", "without RKNN_FLAG_COLLECT_PERF_MASK there is no text"
