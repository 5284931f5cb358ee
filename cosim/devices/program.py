"""Run a native program with the preload library, on a server of its own or on one that runs already."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from cosim.devices.preload import preload_library, sanitizer_runtime
from cosim.devices.simulated import SimulatedMachine
from cosim.engines.cache import Progress, say
from sw.driver.server import Server

SOCKET_VARIABLE = "RKCOSIM_SOCKET"

NOT_FOUND, NOT_RUNNABLE = 127, 126
"""Exit codes of a program that cannot be started, as shells have them."""


def environment(path: Path, *, sanitize: bool = False, progress: Progress = say) -> dict[str, str]:
    """Variables with which a program finds the device of the server that listens at `path`.

    Raises
    ------
    BuildError
        if the preload library cannot be compiled.
    """
    library = preload_library(sanitize=sanitize, progress=progress)
    before = [sanitizer_runtime()] if sanitize else []
    loaded = [*before, str(library), os.environ.get("LD_PRELOAD", "")]
    return {
        **os.environ,
        SOCKET_VARIABLE: str(path.absolute()),
        "LD_PRELOAD": ":".join(name for name in loaded if name),
    }


def default_socket() -> Path:
    """Where a server listens if nobody says otherwise: in the user's runtime folder, else in /tmp."""
    folder = os.environ.get("XDG_RUNTIME_DIR")
    return Path(folder) / "rkcosim.sock" if folder else Path(f"/tmp/rkcosim-{os.getuid()}.sock")


def check_server(path: Path) -> None:
    """See that a server listens at `path`.

    Raises
    ------
    ValueError
        if not; the text says why.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        try:
            probe.connect(str(path))
        except OSError as error:
            reason = error.strerror or str(error)
            raise ValueError(f"no server at {path}: {reason} (start one: rkcosim serve)") from error


_limits = resource.getrlimit(resource.RLIMIT_NOFILE)


def many_descriptors() -> None:
    """Let this process have as many descriptors as it may: each buffer of a program takes one."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (_limits[1], _limits[1]))


@contextmanager
def private_server(machine: SimulatedMachine) -> Iterator[Server]:
    """A server in a folder that only this user can look into."""
    with tempfile.TemporaryDirectory(prefix="rkcosim-") as folder:
        with Server(machine.kernel, Path(folder) / "device") as server:
            yield server


_MACHINES = {"x86_64": 62, "aarch64": 183}
_NAMES = {62: "x86-64", 183: "64-bit ARM", 40: "32-bit ARM", 3: "32-bit x86"}
_ELF_64, _PT_INTERP = 2, 3


def why_not(program: str) -> str | None:
    """Why the preload library cannot reach a program, or None if nothing is known against it."""
    found = shutil.which(program)
    if found is None:
        return None
    try:
        with open(found, "rb") as file:
            head = file.read(4096)
    except OSError:
        return None
    if head[:4] != b"\x7fELF" or len(head) < 64:
        return None
    (machine,) = struct.unpack_from("<H", head, 18)
    here = _MACHINES.get(os.uname().machine)
    if here is not None and machine != here:
        name = _NAMES.get(machine, f"machine type {machine}")
        return f"it is built for {name}, this machine is {os.uname().machine}: build it for this one"
    if head[4] != _ELF_64:
        return "it is a 32-bit program"
    (start,), (size, count) = struct.unpack_from("<Q", head, 32), struct.unpack_from("<HH", head, 54)
    kinds = [
        struct.unpack_from("<I", head, start + n * size)[0]
        for n in range(count)
        if start + n * size + 4 <= len(head)
    ]
    if len(kinds) == count and _PT_INTERP not in kinds:
        return "it is linked statically, so no library can be preloaded: link it with the shared C library"
    return None


def run_program(arguments: Sequence[str], env: dict[str, str]) -> int:
    """Start a program, wait for it, and give its exit code (128 + n if signal n ended it).

    Signals that a terminal sends to both reach the program only; SIGTERM and SIGHUP are passed on.
    """
    reason = why_not(arguments[0])
    if reason is not None:
        print(f"rkcosim: {arguments[0]}: {reason}", file=sys.stderr)
        return NOT_RUNNABLE
    try:
        program = subprocess.Popen(list(arguments), env=env)
    except FileNotFoundError:
        print(f"rkcosim: {arguments[0]}: no such program", file=sys.stderr)
        return NOT_FOUND
    except OSError as error:
        print(f"rkcosim: {arguments[0]}: {error.strerror or error}", file=sys.stderr)
        return NOT_RUNNABLE
    with contextlib.suppress(OSError):  # it may have ended already
        resource.prlimit(program.pid, resource.RLIMIT_NOFILE, _limits)
    kept = {}
    for number in (signal.SIGINT, signal.SIGQUIT):
        kept[number] = signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        kept[number] = signal.signal(number, lambda got, _: program.send_signal(got))
    try:
        code = program.wait()
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code
