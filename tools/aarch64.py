"""librknnrt.so for the board's processor: `make test-aarch64`, which needs a cross compiler.

The library and the example are compiled for 64-bit ARM; the compiler checks the layout of every struct
(`rkcosim_rknn.h`), `readelf` shows the exported functions, and where qemu-user and a C library for the
processor are there, the example runs in it on the golden engine.

    python -m tools.aarch64

The compiler is that of the variable CC_AARCH64, `aarch64-linux-gnu-gcc`, or zig.  The exit code is 0 when all
that could be checked is right, 1 when something is wrong and 2 without a compiler.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from rkcosim import rknn_api
from rkcosim.base import BAD_INPUT
from rkcosim.devices.native_library import FLAGS
from rkcosim.devices.rknn_library import NAME, environment, lay_out, library
from rkcosim.driver import Driver
from rkcosim.engines.engine import open_engine
from rkcosim.rknn_api.server import RknnServer
from rkcosim.rknn_api.signatures import ALIASES, SIGNATURES

ROOT = Path(__file__).resolve().parents[1]
TARGET = "aarch64-linux-gnu"
DIGITS = ROOT / "examples" / "digits"
SYSROOT = Path("/usr") / TARGET


def compiler() -> list[str] | None:
    """The command of a cross compiler, None if there is none."""
    named = os.environ.get("CC_AARCH64")
    if named:
        return shlex.split(named)
    if shutil.which(f"{TARGET}-gcc"):
        return [f"{TARGET}-gcc"]
    if shutil.which("zig"):
        return ["zig", "cc", "-target", TARGET]
    done = subprocess.run([sys.executable, "-m", "ziglang", "version"], capture_output=True, check=False)
    return [sys.executable, "-m", "ziglang", "cc", "-target", TARGET] if not done.returncode else None


def readelf(*arguments: str | Path) -> str:
    """Output of `readelf` for a file."""
    return subprocess.run(["readelf", "-W", *arguments], check=True, capture_output=True, text=True).stdout


def check_symbols(library: Path) -> str | None:
    """What is wrong with the library's header or its exported functions, None for nothing."""
    if "AArch64" not in readelf("-h", library):
        return "is not built for 64-bit ARM"
    if f"[{NAME}]" not in readelf("-d", library):
        return f"has no SONAME {NAME}"
    rows = [line.split() for line in readelf("--dyn-syms", library).splitlines()]
    exported = {row[7] for row in rows if len(row) == 8 and row[3] == "FUNC" and row[6] != "UND"}
    wanted = {*SIGNATURES, *ALIASES}
    if missing := wanted - exported:
        return f"does not export {', '.join(sorted(missing))}"
    more = {name for name in exported - wanted if not name.startswith("_")}
    return f"exports {', '.join(sorted(more))} as well" if more else None


def run_example(program: Path, folder: Path) -> str | None:
    """What is wrong with the example in qemu-user, None for nothing."""
    held = np.load(DIGITS / "held_back.npz")
    pixels = np.rint(held["images"][0] * held["scale"] * 255).astype(np.uint8)
    (folder / "picture.raw").write_bytes(pixels.tobytes())
    engine = open_engine("golden", cores=1)
    rknn_api.use_device(Driver(engine, shared=True))
    try:
        with RknnServer(folder / "socket") as server:
            command: list[str | Path] = ["qemu-aarch64", "-L", SYSROOT, program, DIGITS / "digits_int8.onnx"]
            done = subprocess.run(
                [*command, folder / "picture.raw"],
                env=environment(folder, server.path),
                capture_output=True,
                text=True,
                check=False,
            )
    finally:
        rknn_api.use_device(None)
        engine.close()
    right = not done.returncode and done.stdout.endswith(f"class {held['labels'][0]}\n")
    return None if right else f"the example printed {done.stdout + done.stderr!r}"


def main() -> int:
    """Compile, check, and run what can be run."""
    command = compiler()
    if command is None:
        print(f"no cross compiler: apt install gcc-{TARGET}, or pip install ziglang", file=sys.stderr)
        return BAD_INPUT
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library().compile(folder, [*command, *FLAGS])
        lay_out(folder, folder / NAME)
        problem = check_symbols(folder / NAME)
        if problem:
            print(f"{NAME} {problem}", file=sys.stderr)
            return 1
        print(f"{NAME}: {len(SIGNATURES)} functions, layouts as on x86-64 ({' '.join(command)})")
        program = folder / "classify"
        source = ROOT / "examples" / "rknn" / "classify.c"
        given = [*command, f"-I{folder / 'include'}", "-o", str(program), str(source)]
        subprocess.run([*given, f"-L{folder / 'lib'}", "-lrknnrt"], check=True)
        if not shutil.which("qemu-aarch64") or not SYSROOT.exists():
            print(f"the example was built and not run: that needs qemu-user and {SYSROOT}")
            return 0
        problem = run_example(program, folder)
        print(problem or "the example runs in qemu-user", file=sys.stderr if problem else sys.stdout)
        return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
