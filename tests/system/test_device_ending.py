"""Jobs that fill the logs, and signals that end the commands in any state."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rkcosim.driver.kernel import Kernel
from rkcosim.driver.kernel import structs as s
from rkcosim.engines import BuildError, open_engine, toolchain
from rkcosim.regcmd import TaskBuilder, build_task_list
from tests.makers.kernel_client import Program, records, submit_of, sums
from tests.native.build import compiled
from tools.kernel_fuzz.programs import copy_task

ROOT = Path(__file__).resolve().parents[2]
ERRNO = 110
BOUND = 30
"""Seconds in which a signal must end a command, on a busy machine too; it takes two."""


def far_task(source: int, target: int, size: int) -> TaskBuilder:
    """Return a copy of a cube of `size` x `size` x `size` elements, larger than every buffer."""
    task, last = copy_task(source, target), size - 1
    for block in ("DPU", "DPU_RDMA"):
        task.set(block, "DATA_CUBE_WIDTH", WIDTH=last)
        task.set(block, "DATA_CUBE_HEIGHT", HEIGHT=last)
    task.set("DPU", "DATA_CUBE_CHANNEL", CHANNEL=last, ORIG_CHANNEL=last)
    task.set("DPU_RDMA", "DATA_CUBE_CHANNEL", CHANNEL=last)
    task.set("DPU", "WDMA_SIZE_0", CHANNEL_WDMA=last)
    return task.set("DPU", "WDMA_SIZE_1", HEIGHT_WDMA=last, WIDTH_WDMA=last)


def test_a_job_that_leaves_its_buffers_times_out_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is 1 ms of device time; formerly the explanation of the error took more than ten minutes."""
    try:
        toolchain.compiler()
    except BuildError as error:
        pytest.skip(str(error))
    if toolchain.verilator() is None:
        pytest.skip("no Verilator")
    with open_engine("verilator", on_diagnostic="go on") as engine, Kernel(engine) as kernel:
        spent: dict[str, float] = {}

        def timed(obj: Any, name: str) -> None:
            before: Callable[..., Any] = getattr(obj, name)

            def call(*arguments: Any) -> Any:
                begun = time.thread_time()
                try:
                    return before(*arguments)
                finally:
                    spent[name] = spent.get(name, 0.0) + time.thread_time() - begun

            monkeypatch.setattr(obj, name, call)

        timed(engine, "block_state")
        timed(kernel.scheduler.trouble, "look")
        program = Program(kernel)
        work = sums(program)
        assert work.tasks is not None
        placed = build_task_list([far_task(work.left.iova, work.out.iova, 8192)], work.commands.iova)
        work.commands.bytes[: len(placed.data)] = memoryview(placed.data)
        work.tasks.bytes[:] = memoryview(records(placed.tasks))
        begun, cpu = time.perf_counter(), time.process_time()
        assert program.fails(s.RKNPU_SUBMIT, submit_of(work, timeout=1)) == ERRNO
        wall, cpu = time.perf_counter() - begun, time.process_time() - cpu
        told = f"{wall:.2f} s, {cpu:.2f} s of processor time, of which {spent}"
        print(told)
        assert cpu < 15 and sum(spent.values()) < 0.1 * cpu, told
        kinds = kernel.scheduler.trouble.kinds()
        assert [kind.count > 10_000 for kind in kinds] == [True, True, False], told
        assert "MRDMA" in kinds[0].text and "WRITE_ERROR" in kinds[1].text
        assert "DPU_RDMA: group 0 OPERATING" in kinds[2].text
        assert len(list(kernel.log)) < 60
        good = sums(program)
        assert program.fails(s.RKNPU_SUBMIT, submit_of(good)) == 0 and good.right_result


MAIN = """
import sys
from rkcosim.cli.main import main
sys.argv = ["rkcosim", *sys.argv[1:]]
main()
"""

STUCK = (
    """
import time
from rkcosim.devices import simulated
from tests.makers.kernel_client import SlowNpu

class Stuck(SlowNpu):
    def run_until_irq(self, core_mask, max_cycles):
        if core_mask:
            print("stuck", flush=True)
            time.sleep(1000)
        return super().run_until_irq(core_mask, max_cycles)

simulated.open_engine = lambda *_, **options: Stuck()
"""
    + MAIN
)


def start(*arguments: object, script: str = MAIN) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(process: subprocess.Popen[str], number: int) -> str:
    """Send a signal, wait for the end of the process within the bound, and return its error stream."""
    process.send_signal(number)
    try:
        _, err = process.communicate(timeout=BOUND)
    finally:
        process.kill()
    return str(err)


def wait_for(process: subprocess.Popen[str], text: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if text in line:
            return
    raise AssertionError(f"it ended before {text!r}: {process.stderr and process.stderr.read()}")


def test_sigterm_ends_device_while_the_engine_is_in_a_step(tmp_path: Path) -> None:
    with start("device", "--", compiled("rknpu_program"), "matmul", script=STUCK) as process:
        wait_for(process, "stuck")
        err = ended(process, signal.SIGTERM)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert "in the middle of a step" in err


def test_sigterm_ends_device_although_the_program_ignores_it() -> None:
    program = (
        "import signal, time; signal.signal(15, signal.SIG_IGN); print('stuck', flush=True); time.sleep(99)"
    )
    with start("device", "--engine", "golden", "--", sys.executable, "-c", program) as process:
        wait_for(process, "stuck")
        err = ended(process, signal.SIGTERM)
    assert process.returncode == 128 + signal.SIGKILL, err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_serve_while_the_engine_is_in_a_step(number: int, tmp_path: Path) -> None:
    path = tmp_path / "device"
    with start("serve", "--socket", path, script=STUCK) as process:
        wait_for(process, "run programs with")
        command = [sys.executable, "-m", "rkcosim.cli.main", "device", "--socket", str(path), "--"]
        with subprocess.Popen([*command, str(compiled("rknpu_program")), "matmul"], cwd=ROOT) as client:
            wait_for(process, "stuck")
            err = ended(process, number)
            client.wait(30)
    assert process.returncode == 128 + number, err
    assert not list(tmp_path.iterdir()), "socket or files are left"


def test_sigterm_ends_an_idle_serve_well(tmp_path: Path) -> None:
    with start("serve", "--engine", "golden", "--socket", tmp_path / "device", "--report") as process:
        wait_for(process, "run programs with")
        err = ended(process, signal.SIGTERM)
    assert process.returncode == 0 and "0 jobs" in err, err


UNKNOWN = """
import runpy, struct, sys
from rkcosim.regcmd.word import pack_word, register_word
from rkcosim.spec.regs import registers

made = runpy.run_path("examples/device/program.py")
driver = made["Rknpu"]()
one = made["Convolution"](driver, 1, False, 5)
lists = one.place()
before = struct.pack("<Q", register_word(registers()["DPU"]["OUT_CVT_OFFSET"], 0))
at = one.buffer.map.find(before)
one.buffer.map[at : at + 8] = struct.pack("<Q", pack_word(registers()["DPU"].target, 7, 0x4FF0))
for _ in range(3):
    driver.run(lists, one.buffer)
one.check("with a write to nowhere")
driver.time_out(lists, one.buffer)
"""


def cli(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rkcosim.cli.main", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("engine", ["golden", "verilator"])
def test_what_the_device_finds_is_told_once_with_a_count(engine: str, tmp_path: Path) -> None:
    if engine == "verilator" and toolchain.verilator() is None:
        pytest.skip("no Verilator")
    script = tmp_path / "program.py"
    script.write_text(UNKNOWN)
    done = cli("device", "--engine", engine, "--", "env", f"PYTHONPATH={ROOT}", sys.executable, script)
    assert done.returncode == 0 and "nowhere: right" in done.stdout, done.stdout + done.stderr
    _, *lines = done.stderr[done.stderr.index("rkcosim: the device found:") :].splitlines()
    told = [line for line in lines if "UNKNOWN_WRITE" in line and not line.startswith("    ")]
    assert len(told) == 1 and told[0].endswith("(4 times)"), done.stderr
    assert done.stderr.count("a job was given up after its time-out: ") == 1, done.stderr
    quiet = cli("device", "--engine", engine, "--", compiled("rknpu_program"), "conv")
    assert quiet.returncode == 0 and not quiet.stderr, quiet.stderr


def test_serve_tells_it_at_once_and_the_count_at_the_end(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(UNKNOWN)
    path = tmp_path / "device"
    with start("serve", "--engine", "golden", "--socket", path) as process:
        wait_for(process, "run programs with")
        done = cli("device", "--socket", path, "--", "env", f"PYTHONPATH={ROOT}", sys.executable, script)
        assert done.returncode == 0, done.stdout + done.stderr
        assert process.stderr is not None
        assert "UNKNOWN_WRITE" in process.stderr.readline()
        err = ended(process, signal.SIGTERM)
    assert process.returncode == 0 and "(4 times)" in err, err
