"""Programs in C on `librknnrt.so`, compiled here, on the golden device; one through the command line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import rkcosim.rknn_api as rk
from rkcosim.compiler import compile_model
from rkcosim.devices.native_library import SANITIZERS, c_compiler, sanitizer_runtime
from rkcosim.devices.preload import audit_library
from rkcosim.devices.rknn_library import environment, lay_out, rknn_library
from rkcosim.driver import Driver
from rkcosim.engines import BuildError
from rkcosim.golden.task import GoldenNpu
from rkcosim.measure.perf import layer_models
from rkcosim.rknn_api.server import RknnServer
from rkcosim.rknn_api.server import calls as server_calls
from rkcosim.rknn_api.session import Model
from rkcosim.rknn_api.signatures import SIGNATURES
from rkcosim.rknn_api.state import runtime
from rkcosim.rknn_file import read_rknn
from rkcosim.rknn_file.writer import write_rknn
from tests.makers.archives import arrays_of
from tests.makers.rknn_containers import as_version_6
from tests.makers.rknn_models import CUSTOM_DOMAIN, Qdq, image_model

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).with_name("programs")
DIGITS = ROOT / "examples" / "digits" / "digits_int8.onnx"


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the library, its header and the rknnlite module."""
    folder = tmp_path_factory.mktemp("prefix")
    try:
        lay_out(folder, rknn_library(), copy=True)
    except BuildError as error:
        pytest.skip(str(error))
    return folder


@pytest.fixture(autouse=True)
def device() -> Iterator[Driver]:
    driver = Driver(GoldenNpu(3), shared=True)
    rk.use_device(driver)
    yield driver
    rk.use_device(None)  # raises where a context is left
    assert not driver.buffers


def built(prefix: Path, folder: Path, name: str, *flags: str) -> Path:
    program = folder / name
    command = [*c_compiler(), "-O1", "-g", "-Wall", "-Wextra", "-Werror", f"-I{prefix / 'include'}"]
    source = PROGRAMS / f"{name}.c"
    if not source.exists():
        source = ROOT / "benchmarks" / f"{name}.c"
    linked = [] if name == "loads" else [f"-L{prefix / 'lib'}", "-lrknnrt"]
    done = subprocess.run(
        [*command, *flags, "-o", program, source, *linked, "-lpthread", "-lm", "-ldl"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[:3000]
    return program


def run(
    prefix: Path, program: Path, *arguments: object, cwd: Path | None = None, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run a program on a private server."""
    with RknnServer(program.parent / f"{program.name}.socket") as server:
        return subprocess.run(
            [program, *map(str, arguments)],
            env=environment(prefix, server.path) | more,
            capture_output=True,
            text=True,
            timeout=120,
            cwd=cwd,
            check=False,
        )


def numbers(line: str) -> np.ndarray:
    return np.array([float(word) for word in line.split()], np.float32)


def expected(seed: int, shape: tuple[int, ...]) -> np.ndarray:
    """What `fill` of check.h gives, in the model's order of a picture of one channel."""
    values = []
    for _ in range(int(np.prod(shape))):
        seed = (seed * 1103515245 + 12345) & 0xFFFFFFFF
        values.append((seed >> 16 & 255) / 255)
    return np.array(values, np.float32).reshape(shape)


@pytest.mark.parametrize("name", ["misuse", "memory", "threads", "processes", "loads", "products", "signals"])
def test_program(name: str, prefix: Path, tmp_path: Path):
    done = run(prefix, built(prefix, tmp_path, name), DIGITS)
    assert done.returncode == 0, done.stderr
    assert not runtime.contexts and not runtime.memories
    if (
        name == "memory"
    ):  # memory without a free descriptor; the text is that of airockchip/rknn-llm, issue 26
        line = r"E RKNN: \[[0-9:.]{12}\] failed to convert handle\(\d+\) to fd, ret: -1, errno: 24, "
        assert len(re.findall(rf"^{line}errstr: Too many open files$", done.stderr, re.MULTILINE)) == 3


@pytest.fixture
def board_models(tmp_path: Path) -> list[Path]:
    """Models with packed pixels, with 20 and 3 channels as cubes, of codes without sign, and from a file."""
    made = {
        "pixels.onnx": image_model(3),
        "unsigned.onnx": image_model(3, dtype=np.uint8),
        "deep.onnx": image_model(20),
        "file.rknn": write_rknn(compile_model(image_model(20))),
    }
    for name, data in made.items():
        (tmp_path / name).write_bytes(data)
    return [tmp_path / name for name in made]


def test_conversions_in_the_program_are_those_of_the_server(
    board_models: list[Path], prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    calls: Counter[str] = Counter()
    for name in ("rknn_inputs_set", "rknn_outputs_get"):
        real = server_calls._SPECIAL[name]

        def counted(own: Any, packet: Any, values: Any, real: Any = real, name: str = name) -> Any:
            calls[name] += 1
            return real(own, packet, values)

        monkeypatch.setitem(server_calls._SPECIAL, name, counted)
    done = run(prefix, built(prefix, tmp_path, "boards"), *board_models)
    assert done.returncode == 0, done.stderr
    # The program sets 216 inputs and gets 184 outputs; the server converts the first ones of each context,
    # those after errors, and those while a frame runs in the background.
    assert calls["rknn_inputs_set"] <= 110 and calls["rknn_outputs_get"] <= 78, calls


def test_names_with_a_path_are_redirected(prefix: Path, tmp_path: Path):
    program = built(prefix, tmp_path, "loads")
    assert run(prefix, program, DIGITS, "/usr/lib/no such folder/").returncode == 1
    more = {
        name: value
        for name, value in environment(prefix, tmp_path, audit_library()).items()
        if name in ("LD_AUDIT", "RKCOSIM_RKNN_LIBRARY")
    }
    for folder in ("/usr/lib/no such folder/", "./", "../lib64/"):
        done = run(prefix, program, DIGITS, folder, **more)
        assert done.returncode == 0, done.stderr
    assert run(prefix, program, DIGITS, **more).returncode == 0
    script = (
        "import ctypes, numpy; print(ctypes.CDLL('/usr/lib/librknnrt.so').rknn_destroy(ctypes.c_uint64(5)))"
    )
    with RknnServer(tmp_path / "python.socket") as server:
        text = subprocess.run(
            [sys.executable, "-c", script],
            env=environment(prefix, server.path) | more,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    assert int(text) == rk.RKNN_ERR_CTX_INVALID


def test_frames_are_those_of_the_same_calls_in_python(prefix: Path, tmp_path: Path):
    done = run(prefix, built(prefix, tmp_path, "frames"), DIGITS, 1, 2, 3)
    assert done.returncode == 0, done.stderr
    with Model(DIGITS) as model:
        for seed, line in enumerate(done.stdout.splitlines(), 1):
            (wanted,) = model.run(expected(seed, model.inputs[0].shape))
            np.testing.assert_array_equal(numbers(line), wanted.reshape(-1))


def test_containers_of_all_kinds_give_the_same_frames(prefix: Path, tmp_path: Path):
    """The ONNX model, a compiled one and a .rknn file, all under a name that says nothing."""
    compiled = compile_model(DIGITS.read_bytes())
    program = built(prefix, tmp_path, "frames")
    texts = []
    for data in (DIGITS.read_bytes(), compiled.save(), write_rknn(compiled)):
        (tmp_path / "model.bin").write_bytes(data)
        done = run(prefix, program, "model.bin", 1, 2, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        texts.append(done.stdout)
    assert len(set(texts)) == 1 and texts[0].count("\n") == 2


def scaled_model() -> bytes:
    net = Qdq()
    x = net.input("x", (1, 1, 6, 5))
    z = net.node("Scaled", net.conv(x, 1, 4), domain=CUSTOM_DOMAIN, factor=2.5)
    net.output(z, "z", (1, 4, 6, 5))
    model = onnx.load_model_from_string(net.bytes())
    model.graph.value_info.append(helper.make_tensor_value_info(z, TensorProto.FLOAT, (1, 4, 6, 5)))
    return model.SerializeToString()


def test_custom_operators_run_in_the_program(prefix: Path, tmp_path: Path):
    data = scaled_model()
    (tmp_path / "scaled.onnx").write_bytes(data)
    done = run(prefix, built(prefix, tmp_path, "custom"), tmp_path / "scaled.onnx")
    assert done.returncode == 0, done.stderr
    calls = 0

    def scaled(x: np.ndarray, factor: float) -> np.ndarray:
        return np.float32(factor) * x + np.float32(calls)

    with Model(data) as model:
        model.register("Scaled", scaled)
        for line in done.stdout.splitlines():
            calls += 1
            (wanted,) = model.run(expected(1, (1, 1, 6, 5)))
            np.testing.assert_array_equal(numbers(line), wanted.reshape(-1))
    assert calls == 2


@pytest.mark.parametrize("name", ["misuse", "memory", "processes", "custom", "boards"])
def test_sanitizers_find_nothing(name: str, prefix: Path, tmp_path: Path):
    if not sanitizer_runtime():
        pytest.skip("the compiler brings no sanitizers")
    lay_out(tmp_path / "prefix", rknn_library(sanitize=True))
    given = {"custom": scaled_model(), "boards": image_model(20)}.get(name, DIGITS.read_bytes())
    model = tmp_path / "model.onnx"
    model.write_bytes(given)
    program = built(prefix, tmp_path, name, *SANITIZERS)
    # What a program does not give back stays in its lists when it ends, as misuse shows.
    done = run(tmp_path / "prefix", program, model, ASAN_OPTIONS="detect_leaks=0")
    assert done.returncode == 0, done.stderr[:3000]


def test_a_crash_leaves_nothing(prefix: Path, tmp_path: Path, device: Driver):
    program = built(prefix, tmp_path, "frames")
    with RknnServer(tmp_path / "socket") as server:
        env = environment(prefix, server.path)
        held = subprocess.Popen(
            ["sh", "-c", f"exec {program} {DIGITS} $(seq 1000)"], env=env, stdout=subprocess.DEVNULL
        )
        _wait(lambda: bool(runtime.contexts))
        held.kill()
        held.wait()
        _wait(lambda: not runtime.contexts and not device.buffers)
        done = subprocess.run([program, DIGITS, "1"], env=env, capture_output=True, check=False)
        assert done.returncode == 0


def _wait(done: object) -> None:
    until = time.monotonic() + 30
    while not done():  # type: ignore[operator]
        assert time.monotonic() < until
        time.sleep(0.01)


def test_programs_do_not_reach_what_others_hold(prefix: Path, tmp_path: Path):
    """Handles of this process are those of nobody else."""
    with Model(DIGITS) as model:
        program = tmp_path / "reach.py"
        program.write_text(
            "import ctypes as ct, sys\n"
            "library = ct.CDLL('librknnrt.so')\n"
            "library.rknn_run.argtypes = [ct.c_uint64, ct.c_void_p]\n"
            f"sys.exit(-library.rknn_run({model.context.value}, None))\n"
        )
        program.chmod(0o755)
        with RknnServer(tmp_path / "socket") as server:
            env = environment(prefix, server.path)
            done = subprocess.run([sys.executable, program], env=env, check=False)
        assert done.returncode == -rk.RKNN_ERR_CTX_INVALID


def test_without_a_server_and_without_a_file(prefix: Path, tmp_path: Path):
    program = built(prefix, tmp_path, "frames")
    path = {"LD_LIBRARY_PATH": str(prefix / "lib")}
    done = subprocess.run([program, DIGITS], env=path, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "rkcosim rknn -- PROGRAM" in done.stderr
    gone = path | {"RKCOSIM_RKNN_SOCKET": str(tmp_path / "none")}
    done = subprocess.run([program, DIGITS], env=gone, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "does not answer" in done.stderr and "gave -3" in done.stderr


SCRIPT = """
import sys
import numpy as np
from rknnlite.api import RKNNLite

lite = RKNNLite()
assert lite.init_runtime() == -1 and lite.inference(inputs=[]) is None and lite.get_sdk_version() is None
assert lite.load_rknn("there/is/no.rknn") == -1
assert lite.load_rknn(sys.argv[1]) == 0
assert lite.init_runtime(core_mask=6) == -1
assert lite.init_runtime(core_mask=RKNNLite.NPU_CORE_0_1_2) == 0
assert "API: 2.3" in lite.get_sdk_version()
found = lite.list_support_target_platform(rknn_model=sys.argv[1])
assert found["support_target_platform"] == ["RK3588"] and lite.list_support_target_platform("no") is None
image = np.load(sys.argv[2])
(plain,) = lite.inference(inputs=[image.reshape(1, 16, 16, 1)])
(turned,) = lite.inference(inputs=[image.reshape(1, 1, 16, 16)], data_format=["nchw"])
(wide,) = lite.inference(inputs=[image.reshape(1, 16, 16, 1).astype(np.float64)], data_format="nhwc")
assert plain.dtype == np.float32 and (plain == turned).all() and (plain == wide).all()
assert lite.inference(inputs=[image[:, :, :4]]) is None
assert lite.inference(inputs=[image], data_format=["x"]) is None
lite.release()
lite.release()
np.save(sys.argv[3], plain)
"""


def test_rknnlite_scripts(prefix: Path, tmp_path: Path):
    (tmp_path / "script.py").write_text(SCRIPT)
    image = expected(4, (1, 1, 16, 16))
    np.save(tmp_path / "image.npy", image)
    with RknnServer(tmp_path / "socket") as server:
        done = subprocess.run(
            [sys.executable, "script.py", DIGITS, "image.npy", "result.npy"],
            cwd=tmp_path,
            env=environment(prefix, server.path),
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    with Model(DIGITS) as model:
        np.testing.assert_array_equal(np.load(tmp_path / "result.npy"), model.run(image)[0])


PIXELS = """
import sys
import numpy as np
from rknnlite.api import RKNNLite

lite = RKNNLite()
assert lite.load_rknn(sys.argv[1]) == 0 and lite.init_runtime() == 0
picture = np.load("pixels.npy")
codes = np.load("codes.npy")
found = []
for given in (picture, codes, picture.astype(np.float32), picture):
    found += lite.inference(inputs=[given])
np.save("found.npy", np.stack(found))
"""


def test_mean_and_std_of_a_file(prefix: Path, tmp_path: Path):
    """Repeated calls would use the board, which must leave an input with mean and std to the server."""
    layer = layer_models.conv(3, 16, (8, 16), int8=True, kernel=3, pad=1)
    given = read_rknn(write_rknn(compile_model(layer, reuse=True)))
    tensors = list(given.tensors)
    index = given.inputs[0]
    tensors[index] = replace(tensors[index], name="x", scale=0.0186584, zero_point=-14)
    said = "{'attrs': {'x': {'mean': [123.675, 116.28, 103.53], 'std': [58.395, 57.12, 57.375]}}}"
    path = tmp_path / "x.rknn"
    path.write_bytes(as_version_6(replace(given, tensors=tensors), attributes=said))
    picture = np.random.default_rng(3).integers(0, 256, (1, 8, 16, 3), np.uint8)
    real = (picture - np.array([123.675, 116.28, 103.53])) / np.array([58.395, 57.12, 57.375])
    codes = np.clip(np.rint(real / 0.0186584) - 14, -128, 127).astype(np.int8)
    np.save(tmp_path / "pixels.npy", picture)
    np.save(tmp_path / "codes.npy", codes)
    (tmp_path / "script.py").write_text(PIXELS)
    with RknnServer(tmp_path / "socket") as server:
        done = subprocess.run(
            [sys.executable, "script.py", path],
            cwd=tmp_path,
            env=environment(prefix, server.path),
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    found = np.load(tmp_path / "found.npy")
    assert len(np.unique(found)) > 50 and all(np.array_equal(one, found[1]) for one in found)


def test_command_runs_the_example_and_gives_an_account(prefix: Path, tmp_path: Path):
    held = arrays_of(DIGITS.with_name("held_back.npz"))
    for number in range(3):
        pixels = np.rint(held["images"][number] * held["scale"] * 255).astype(np.uint8)
        (tmp_path / f"{number}.raw").write_bytes(pixels.tobytes())
    source = ROOT / "examples" / "rknn" / "classify.c"
    program = tmp_path / "classify"
    command = [*c_compiler(), "-Wall", "-Werror", f"-I{prefix / 'include'}", "-o", program, source]
    subprocess.run([*command, f"-L{prefix / 'lib'}", "-lrknnrt"], check=True)
    pictures = [tmp_path / f"{number}.raw" for number in range(3)]
    options = ["--engine", "golden", "--report", "--json", "-", "--html", tmp_path / "run.html"]
    done = subprocess.run(
        [sys.executable, "-m", "rkcosim", "rknn", *options, "--", program, DIGITS, *pictures],
        cwd=ROOT,
        env=os.environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    import json

    account = json.loads(done.stdout)
    assert account["exit_code"] == 0 and account["models"][0]["frames"] == 3
    assert account["models"][0]["model"] == DIGITS.name and account["models"][0]["layers"]
    guesses = [int(line.split()[-1]) for line in done.stderr.splitlines() if line.startswith(str(tmp_path))]
    assert guesses == [int(label) for label in held["labels"][:3]]
    assert f"{DIGITS.name}: 3 frames" in done.stderr and (tmp_path / "run.html").stat().st_size > 10_000


def test_command_tells_of_models_that_are_not_there(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "rkcosim", "rknn", "--engine", "golden", "--", "false", "net.rknn"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1 and "there is no file net.rknn; if the program was to read it" in done.stderr


def test_query_is_fast(prefix: Path, tmp_path: Path):
    """A bound far above the figures of `python -m benchmarks.librknnrt`, because tests share the machine."""
    done = run(prefix, built(prefix, tmp_path, "librknnrt"), DIGITS)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[0]) < 1000


def test_library_exports_all_functions(prefix: Path):
    import ctypes as ct

    library = ct.CDLL(str(prefix / "lib" / "librknnrt.so"))
    assert len(SIGNATURES) == 35
    assert all(hasattr(library, name) for name in SIGNATURES)
