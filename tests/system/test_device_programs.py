"""Unmodified programs for the board on the simulated device: C and Python, both kernel drivers."""

from __future__ import annotations

import errno
import json
import os
import resource
import runpy
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rkcosim.devices import SimulatedMachine, device
from rkcosim.devices.faults import BURST, EACH, LATE, LOST
from rkcosim.devices.native_library import SANITIZERS, c_compiler
from rkcosim.devices.program import environment, private_server, why_not
from rkcosim.driver.server import Server
from rkcosim.engines import BuildError, toolchain
from tests.extent import extent
from tests.native.build import EXAMPLES, compiled

DRIVERS = ("rknpu", "rocket")
CASES = ("matmul", "conv", "chain", "cores", "timeout")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def machine() -> Iterator[SimulatedMachine]:
    with SimulatedMachine("golden") as machine:
        yield machine


@pytest.fixture(scope="module")
def server(machine: SimulatedMachine) -> Iterator[Server]:
    with private_server(machine) as server:
        yield server


def until(condition: Callable[[], bool], seconds: float = 20) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.005)
    return False


def run(server: Server, *arguments: object) -> str:
    done = subprocess.run(
        [str(part) for part in arguments],
        env={**environment(server.path), "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def cli(*arguments: object, code: int = 0, seconds: float = 240) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rkcosim.cli.main", *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("driver", DRIVERS)
def test_c_program(driver: str, case: str, server: Server):
    out = run(server, compiled(f"{driver}_program"), case)
    assert "right" in out
    assert ("timed out" in out) == (driver == "rknpu" and case == "timeout")


@pytest.mark.parametrize("driver", DRIVERS)
def test_python_program_as_a_native_one(driver: str, server: Server):
    out = run(server, sys.executable, EXAMPLES / "program.py", driver)
    assert out.count("right") == (8 if driver == "rknpu" else 7)


@pytest.mark.parametrize("driver", DRIVERS)
def test_python_program_in_process(driver: str):
    with device(engine="golden") as machine:
        runpy.run_path(str(EXAMPLES / "program.py"))["run"](driver)
        assert machine.report().jobs >= 6
    assert machine.device.seconds > 0


TAKEN = """
import ctypes
import fcntl
import os
import struct
import sys

libc = ctypes.CDLL("libc.so.6", mode=int(sys.argv[1]), use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
CREATE, MAP = 0xC0306442, 0xC0106443
node = libc.open(b"/dev/dri/card1", os.O_RDWR)
assert node >= 0, os.strerror(ctypes.get_errno())
made = ctypes.create_string_buffer(struct.pack("<IIQQQQQ", 0, 2, 1024, 0, 0, 0, 0), 48)
assert libc.ioctl(node, ctypes.c_ulong(CREATE), made) == 0, os.strerror(ctypes.get_errno())
handle = struct.unpack_from("<I", made)[0]
offset = struct.unpack("<IIQ", fcntl.ioctl(node, MAP, struct.pack("<IIQ", handle, 0, 0)))[2]
place = libc.mmap(None, 1024, 3, 1, node, offset)
assert place != ctypes.c_void_p(-1).value, os.strerror(ctypes.get_errno())
ctypes.memset(place, 7, 1024)
print(ctypes.string_at(place, 1024).count(7), os.path.exists("/proc/self/maps"))
"""


@pytest.mark.parametrize("mode", [os.RTLD_NOW, os.RTLD_NOW | os.RTLD_DEEPBIND])
def test_functions_taken_from_the_c_librarys_handle(mode: int, server: Server):
    """tinygrad's FileIOInterface takes mmap and others in this way (allbilly/tinygrad @725b312)."""
    assert run(server, sys.executable, "-c", TAKEN, mode) == "1024 True\n"


NEXT = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>

int opened;

int open(const char *path, int flags, ...)
{
    int (*next)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    opened++;
    return next(path, flags, 0);
}
"""


def test_another_library_that_interposes_keeps_the_next_function(server: Server, tmp_path: Path):
    (tmp_path / "next.c").write_text(NEXT)
    toolchain.run([*c_compiler(), "-shared", "-fPIC", "-o", "next.so", "next.c", "-ldl"], tmp_path, "cc")
    env = environment(server.path)
    env["LD_PRELOAD"] += f":{tmp_path / 'next.so'}"
    script = (
        "import ctypes, os\n"
        "every = ctypes.CDLL(None)\n"
        "assert every.open(b'/proc/self/stat', os.O_RDONLY) >= 0\n"
        "assert every.open(b'/dev/dri/card1', os.O_RDWR) >= 0\n"
        f"print(ctypes.c_int.in_dll(ctypes.CDLL({str(tmp_path / 'next.so')!r}), 'opened').value)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=30, check=True
    )
    assert int(done.stdout) == 1  # the simulated file is opened by the preload library itself


def test_programs_that_share_a_server_get_their_own_results(server: Server, machine: SimulatedMachine):
    jobs = machine.report().jobs
    env = environment(server.path)
    running = [
        subprocess.Popen(
            [compiled(f"{driver}_program"), "loop", "40"], env=env, stdout=subprocess.PIPE, text=True
        )
        for driver in (*DRIVERS, *DRIVERS)
    ]
    for one in running:
        out, _ = one.communicate(timeout=120)
        assert one.returncode == 0 and "40 jobs, no error" in out and "bytes right" in out, out
    assert machine.report().jobs == jobs + 160


def test_killed_program_does_not_harm_the_other(server: Server, machine: SimulatedMachine):
    env = environment(server.path)
    rknpu, scheduler = machine.kernel.rknpu, machine.kernel.scheduler
    assert rknpu is not None
    with subprocess.Popen(
        [compiled("rknpu_program"), "long", "400"], env=env, stdout=subprocess.PIPE, text=True
    ) as killed:
        assert killed.stdout is not None and killed.stdout.readline() == "starting\n"
        assert until(lambda: bool(scheduler.busy)), "its job never ran"
        killed.kill()
    assert killed.returncode == -9 and scheduler.busy, "the job was over before the program was killed"
    for driver in DRIVERS:
        assert run(server, compiled(f"{driver}_program"), "matmul") == "matmul: 2048 bytes right\n"
    assert until(lambda: not rknpu.files and not len(server.machine.descriptors)), (
        "files or descriptors remain"
    )


def test_device_command_gives_the_programs_exit_code_and_a_report(tmp_path: Path):
    log = tmp_path / "log" / "kernel.txt"
    done = cli(
        *("device", "--engine", "golden", "--report", "--log", log, "--json", tmp_path / "it.json", "--"),
        *(compiled("rknpu_program"), "timeout"),
    )
    assert "after the timeout: 2048 bytes right" in done.stdout
    assert "2 jobs, 2 tasks," in done.stderr and "s of them in the simulator" in done.stderr
    account = json.loads((tmp_path / "it.json").read_text())
    assert account["jobs"] == 2 and account["exit_code"] == 0 and account["schema_version"] == 1
    text = log.read_text()
    assert "Initialized rknpu 0.9.8" in text and "failed to wait job, task counter" in text
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    seven = cli("device", "--engine", "golden", "--", "sh", "-c", "sleep 0.2; ulimit -n; exit 7", code=7)
    assert seven.stdout.split() == ["unlimited" if limits[0] < 0 else str(limits[0])]
    cli("device", "--engine", "golden", "--", "sh", "-c", "kill -9 $$", code=137)


@pytest.mark.parametrize("driver", ["rknpu", "rocket"])
@pytest.mark.parametrize("fault", [*EACH, ""])
def test_a_program_recovers_from_faults(driver: str, fault: str):
    """Jobs that fail or give wrong results are right when they run again, with both drivers."""
    asked = ("--fault", fault) if fault else ()
    program = (compiled(f"{driver}_program"), "recover", "4")
    done = cli("device", "--engine", "golden", *asked, "--", *program)
    assert "recover: 4 of 4 jobs right" in done.stdout and "internal error" not in done.stderr
    if not fault or fault == LATE:
        assert "0 runs again" in done.stdout
    elif fault != BURST and (driver, fault) != ("rocket", LOST):  # rocket gives up later, and has the results
        assert "jobs right, 3 runs again" in done.stdout


def test_program_that_cannot_be_reached_is_told_why(tmp_path: Path):
    assert why_not("sh") is None and why_not(str(tmp_path / "nothing")) is None
    foreign = tmp_path / "foreign"
    head = bytearray(Path(sys.executable).resolve().read_bytes()[:4096])
    head[18:20] = (40).to_bytes(2, "little")
    foreign.write_bytes(head)
    foreign.chmod(0o755)
    assert "it is built for 32-bit ARM" in str(why_not(str(foreign)))
    static = compiled("fuzz", "-static")
    assert "linked statically" in str(why_not(str(static)))


def test_device_command_names_what_is_wrong(tmp_path: Path):
    missing = cli("device", "--engine", "golden", "--", tmp_path / "nothing", code=127)
    assert f"{tmp_path}/nothing: no such program" in missing.stderr
    assert "no program given" in cli("device", code=2).stderr
    nobody = cli("device", "--socket", tmp_path / "none", "--", "true", code=2)
    assert f"no server at {tmp_path}/none" in nobody.stderr
    mixed = cli("device", "--socket", tmp_path / "none", "--engine", "golden", "--", "true", code=2)
    assert "--engine is an option of the server" in mixed.stderr
    assert "engine must be one of" in cli("device", "--engine", "none", "--", "true", code=2).stderr


def test_device_command_has_the_drivers_that_are_asked_for(tmp_path: Path):
    def listed(*options: str) -> list[str]:
        what = "ls -d /dev/dri/card* /dev/accel/accel* 2>/dev/null; true"
        return cli("device", "--engine", "golden", *options, "--", "sh", "-c", what).stdout.split()

    card, accel = "/dev/dri/card1", "/dev/accel/accel0"
    assert sorted(listed()) == sorted(listed("--drivers", "both")) == [accel, card]
    assert listed("--drivers", "rknpu") == [card] and listed("--drivers", "rocket") == [accel]
    script = tmp_path / "version.py"
    script.write_text(
        "import fcntl, runpy, sys\n"
        f"made = runpy.run_path({str(EXAMPLES / 'program.py')!r})\n"
        "told = made['Version']()\n"
        "fcntl.ioctl(made['Rocket']().fd, made['VERSION'], told)\n"
        "print(told.major, told.minor)\n"
    )
    for name in extent((None, "1.5"), (None, "1.0", "1.1", "1.3", "1.5")):
        options = [] if name is None else ["--rocket-interface", name]
        program = ["env", f"PYTHONPATH={ROOT}", sys.executable, script]
        done = cli("device", "--engine", "golden", "--drivers", "rocket", *options, "--", *program)
        assert done.stdout.split() == (name or "1.0").split(".")
    for options, text in (
        (["--drivers", "both,rknpu"], "--drivers must be one of rknpu, rocket, both"),
        (["--rocket-interface", "2.0"], "the Rocket interface must be one of"),
        (["--drivers", "rknpu", "--rocket-interface", "1.1"], "which --drivers rknpu excludes"),
        (["--soft-reset", "never"], "a soft reset must be one of clears, keeps, not never"),
        (["--drivers", "rocket", "--soft-reset", "keeps"], "which --drivers rocket excludes"),
        (["--fault", "h3"], "there is no fault 'h3'"),
        (["--socket", str(tmp_path / "none"), "--drivers", "rknpu"], "--drivers is an option of the server"),
    ):
        assert text in cli("device", *options, "--", "true", code=2).stderr


def test_serve_command_serves_several_programs(tmp_path: Path):
    path = tmp_path / "device"
    command = [sys.executable, "-m", "rkcosim.cli.main", "serve", "--engine", "golden", "--report"]
    with subprocess.Popen(
        [*command, "--socket", str(path)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as serving:
        try:
            assert serving.stdout is not None
            assert serving.stdout.readline() == f"serving golden at {path}\n"
            for driver in DRIVERS:
                cli("device", "--socket", path, "--", compiled(f"{driver}_program"), "matmul")
        finally:
            serving.terminate()
        _, err = serving.communicate(timeout=60)
        assert serving.returncode == 0 and "2 jobs, 2 tasks" in err, err
    assert not list(tmp_path.iterdir())


def test_default_engine_and_a_waveform(tmp_path: Path):
    try:
        toolchain.compiler()
        toolchain.yosys()
    except BuildError as error:
        pytest.skip(str(error))
    trace = tmp_path / "wave.vcd"
    arguments = ["device", "--report"]
    if toolchain.verilator() is not None:
        arguments += ["--trace", str(trace)]
    done = cli(*arguments, "--", compiled("rknpu_program"), "conv", seconds=900)
    assert "conv: 1344 bytes right" in done.stdout and "1 jobs, 1 tasks" in done.stderr
    if toolchain.verilator() is not None:
        changes = trace.read_text().partition("$enddefinitions $end")[2]
        assert changes.count("\n#") > 100, "the waveform has no cycles"
    with device() as machine:
        runpy.run_path(str(EXAMPLES / "program.py"))["run"]("rknpu")
        assert machine.report().jobs >= 6
    done = cli("device", "--", compiled("rocket_program"), "all", seconds=900)
    assert done.stdout.count("right") == 8


BOARD = """
import glob
import json
import os
import platform
import subprocess
import sys

with open("/proc/device-tree/compatible") as file:
    text = file.read()
told = {
    "in the text": "rk3588" in text,
    "behind the last comma": text.split(",")[-1].strip("\\0"),
    "machine": platform.machine(),
    "machine of a child": subprocess.check_output(["uname", "-m"], text=True).strip(),
    "model": subprocess.check_output(["cat", "/proc/device-tree/model"], text=True).strip("\\0"),
    "files": sorted(os.path.basename(name) for name in glob.glob("/sys/kernel/debug/rknpu/*")),
    "version": open("/proc/rknpu/version").read(),
    "load": open("/sys/kernel/debug/rknpu/load").read(),
    "frequency": open("/sys/class/devfreq/fdab0000.npu/cur_freq").read(),
    "nodes": os.path.exists("/dev/dri/renderD129"),
}
for frequency in ("1000000000", "300000000"):
    try:
        descriptor = os.open("/sys/kernel/debug/rknpu/freq", os.O_WRONLY)
        told[frequency] = os.write(descriptor, frequency.encode())
    except OSError as error:
        told[frequency] = error.errno
print(json.dumps(told))
"""


@pytest.mark.parametrize(
    ("command", "board", "machine"),
    [
        ("rknn", None, None),
        ("rknn", "khadas,edge2", "aarch64"),
        ("device", "friendlyarm,nanopc-t6", "aarch64"),
        ("device", None, None),
    ],
)
def test_programs_see_the_board(command: str, board: str | None, machine: str | None, tmp_path: Path):
    """What immich-app/immich, blakeblackshear/frigate, ultralytics/ultralytics and monitors read."""
    script = tmp_path / "see.py"
    script.write_text(BOARD)
    words = [*(["--board", board] if board else []), *(["--machine", machine] if machine else [])]
    told = json.loads(cli(command, "--engine", "golden", *words, "--", sys.executable, script).stdout)
    own = machine or os.uname().machine
    assert told == {
        "in the text": True,
        "behind the last comma": "rk3588s" if board == "khadas,edge2" else "rk3588",
        "machine": own,
        "machine of a child": own,
        "model": {None: "Radxa ROCK 5B", "khadas,edge2": "Khadas Edge2"}.get(board, "FriendlyElec NanoPC-T6"),
        "files": ["delayms", "freq", "load", "power", "reset", "version", "volt"],
        "version": "RKNPU driver: v0.9.8\n",
        "load": "NPU load:  Core0:  0%, Core1:  0%, Core2:  0%,\n",
        "frequency": "1000000000\n",
        "nodes": command == "device",
        "1000000000": 10,
        "300000000": 9 if command == "device" else errno.EINVAL,  # librknnrt.so measures time at 1 GHz
    }


def test_a_program_without_a_board_sees_this_machine(tmp_path: Path):
    script = tmp_path / "see.py"
    script.write_text("import os\nprint(os.environ.get('LD_PRELOAD'), os.environ.get('RKCOSIM_SOCKET'))\n")
    done = cli("rknn", "--engine", "golden", "--board", "none", "--", sys.executable, script)
    assert done.stdout == f"{os.environ.get('LD_PRELOAD')} None\n"
    for words, why in (
        (["--board", "none", "--machine", "aarch64"], "--machine needs a board"),
        (["--board", "rpi"], "there is no board 'rpi', only radxa,rock-5b, "),
    ):
        assert why in cli("rknn", "--engine", "golden", *words, "--", "true", code=2).stderr
    assert "no board 'none'" in cli("device", "--board", "none", "--", "true", code=2).stderr


def test_on_chip_memory_is_an_option():
    script = "print(open('/sys/kernel/debug/rknpu/mm').read().splitlines()[-1])"
    words = ["device", "--engine", "golden", "--sram", 956, "--", sys.executable, "-c", script]
    assert cli(*words).stdout == "SRAM total size: 978944, used: 0, free: 978944\n"
    for wrong, why in (
        (["--sram", 957], "957"),
        (["--sram", 8, "--drivers", "rocket"], "--sram needs the driver rknpu"),
        (["--sram", 8, "--socket", "none"], "--sram is an option of the server"),
    ):
        assert why in cli("device", *wrong, "--", "true", code=2).stderr


SANITIZED = """
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    char text[64] = "", *memory = malloc(8);
    FILE *file = fopen("/proc/device-tree/model", "r");
    (void)argv;
    if (!file || !fgets(text, sizeof(text), file))
        return 2;
    puts(text);
    memory[argc > 1 ? 8 : 0] = 1;
    fclose(file);
    free(memory);
    return 0;
}
"""


def test_programs_with_sanitizers_see_the_board(tmp_path: Path):
    """The sanitizer refuses libraries in front of its own unless told not to, and still finds errors."""
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(SANITIZED)
    made = subprocess.run(
        [*c_compiler(), *SANITIZERS, "-o", program, source], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("the compiler has no sanitizers")
    for command in ("rknn", "device"):
        words = [command, "--engine", "golden", "--", program]
        assert cli(*words).stdout == "Radxa ROCK 5B\n"
        assert "heap-buffer-overflow" in cli(*words, "wrong", code=1).stderr
