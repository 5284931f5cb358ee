"""Runs a native program with the preload library, on a private server or on a running one."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import resource
import shutil
import signal
import socket
import string
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rkcosim.base import trust
from rkcosim.devices.ending import Ending
from rkcosim.devices.native_library import sanitizer_runtime
from rkcosim.devices.preload import audit_library, preload_library
from rkcosim.devices.simulated import SimulatedMachine
from rkcosim.driver.server import Server
from rkcosim.engines.cache import Progress, cache_folder, say
from rkcosim.engines.protocol import BuildError
from rkcosim.engines.toolchain import no_programs

SOCKET_VARIABLE = "RKCOSIM_SOCKET"

MACHINE_VARIABLE = "RKCOSIM_MACHINE"
"""Environment variable with the machine that uname tells programs; the preload library reads it."""

NOT_FOUND, NOT_RUNNABLE = 127, 126
"""Exit codes of a program that cannot be started, as in shells."""


def place_library(folder: Path, name: str, library: Path, others: Sequence[str] = (), *, copy: bool) -> None:
    """Put a library into the subfolder `lib` of a folder, also under other names.

    The folder and its subfolders `lib` and `include` are created if they do not exist.

    Parameters
    ----------
    folder : the folder in which programs find libraries.
    name, others : the names of the library; the others are links to the first.
    library : the compiled library.
    copy : copy it instead of linking to it.

    Raises
    ------
    OSError
        if a file cannot be written.
    """
    for subfolder in ("lib", "include"):
        (folder / subfolder).mkdir(parents=True, exist_ok=True)
    target = folder / "lib" / name
    target.unlink(missing_ok=True)
    if copy:
        shutil.copyfile(library, target)
        target.chmod(0o755)
    else:
        target.symlink_to(library)
    for other in others:
        (folder / "lib" / other).unlink(missing_ok=True)
        (folder / "lib" / other).symlink_to(name)


def place_headers(folder: Path, source: Path, names: Sequence[str], made: Mapping[str, str]) -> None:
    """Put headers into the subfolder `include` of a folder, which exists.

    Parameters
    ----------
    folder : the folder in which programs find a library.
    source, names : a folder, and the names of the headers that are copied from it.
    made : texts of headers that are generated, by their names.

    Raises
    ------
    OSError
        if a file cannot be written.
    """
    for name in names:
        shutil.copyfile(source / name, folder / "include" / name)
    for name, text in made.items():
        (folder / "include" / name).write_text(text)


def put_first(variable: str, path: Path) -> dict[str, str]:
    """Return an environment variable with a list of paths, with `path` in front of those that it has.

    Raises
    ------
    BuildError
        if the path has a character that separates paths there, so that it would be ignored.
    """
    if found := {":", ";"} & set(str(path)):
        raise BuildError(
            f"{path}: {variable} cannot have a path with {' or '.join(sorted(found))!r}; choose another "
            "folder (TMPDIR, RKCOSIM_CACHE or --prefix)"
        )
    return {variable: os.pathsep.join(filter(None, (str(path), os.environ.get(variable, ""))))}


def process_variables(
    folder: Path, options_variable: str, results_variable: str, options: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables with the options and with the subfolder `results` of a folder, which is made."""
    (folder / "results").mkdir(exist_ok=True)
    return {
        options_variable: "".join(f"{name}={value}\n" for name, value in options.items()),
        results_variable: str(folder / "results"),
    }


def library_environment(
    folder: Path, options_variable: str, results_variable: str, options: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables by which a program finds a library that starts a process, with options for that.

    Parameters
    ----------
    folder : a folder with the library in `lib`; results are written to its subfolder `results`.
    options_variable, results_variable : the library's variables, for the options and for the results.
    options : names and values of `rkcosim.running.settings`.
    """
    return {
        **os.environ,
        **put_first("LD_LIBRARY_PATH", folder / "lib"),
        **process_variables(folder, options_variable, results_variable, options),
    }


_SEPARATING = frozenset(":$" + string.whitespace)
"""Characters that end a path in LD_PRELOAD, or begin a token in it."""


@functools.cache
def for_linker(library: Path) -> Path:
    """Return a path by which LD_PRELOAD and LD_AUDIT can name a library: its own, or that of a link to it.

    The link is in a new folder of this user, which is removed when this process ends.

    Raises
    ------
    BuildError
        if there is no folder for a link.
    """
    if not _SEPARATING & set(str(library)):
        return library
    named = (tempfile.gettempdir(), os.environ.get("XDG_RUNTIME_DIR"), "/tmp", "/var/tmp", "/dev/shm")
    for place in dict.fromkeys(filter(None, named)):
        if not _SEPARATING & set(place):
            with contextlib.suppress(OSError):
                folder = Path(tempfile.mkdtemp(prefix="rkcosim-", dir=place))
                atexit.register(shutil.rmtree, folder, ignore_errors=True)
                (folder / library.name).symlink_to(library)
                return folder / library.name
    raise BuildError(
        f"{library}: LD_PRELOAD cannot have a path with a blank, a colon or a dollar sign, and no folder for "
        f"a link can be written ({', '.join(dict.fromkeys(filter(None, named)))}): set the variable "
        "RKCOSIM_CACHE to another folder"
    )


_MAPPED = "import sys; sys.stdout.write('yes' if sys.argv[1] in open('/proc/self/maps').read() else 'no')"


@functools.cache
def check_preload(value: str, library: Path) -> None:
    """Check with a small program that the dynamic linker takes a library from LD_PRELOAD.

    If it does not, it says so on standard error and starts programs without the library, and they would run
    without the NPU.

    Parameters
    ----------
    value : the value of LD_PRELOAD.
    library : the library in it.

    Raises
    ------
    BuildError
        if the linker refuses it.
    """
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _MAPPED, library.name],
        env={**os.environ, "LD_PRELOAD": value},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    said = [line for line in done.stderr.splitlines() if library.name in line]
    if done.stdout != "yes" and said:  # without a word, this interpreter may have no dynamic linker
        reason = no_programs(library.resolve()) or said[0]
        raise BuildError(
            f"programs would run without the NPU, because {library} cannot be preloaded: {reason}"
        )


def environment(
    path: Path, *, sanitize: bool = False, machine: str | None = None, progress: Progress = say
) -> dict[str, str]:
    """Return the variables by which a program finds the device and the files of the server at `path`.

    Parameters
    ----------
    path : path of the server's socket.
    sanitize : use the preload library with sanitizers, for tests.
    machine : what uname tells the program as the machine; None for the real one.
    progress : called with one line for each step that takes long.

    Raises
    ------
    BuildError
        if the libraries cannot be compiled, or programs would run without them.
    """
    library = for_linker(preload_library(sanitize=sanitize, progress=progress).absolute())
    before = [sanitizer_runtime()] if sanitize else []
    loaded = [*before, str(library), os.environ.get("LD_PRELOAD", "")]
    variables = {
        **os.environ,
        SOCKET_VARIABLE: str(path.absolute()),
        **({} if machine is None else {MACHINE_VARIABLE: machine}),
        "LD_PRELOAD": ":".join(name for name in loaded if name),
        **put_first("LD_AUDIT", for_linker(audit_library(progress=progress).absolute())),
        **after_sanitizers(),
    }
    if not sanitize:  # that runtime ends programs without sanitizers that it cannot check
        check_preload(variables["LD_PRELOAD"], library)
    return variables


def after_sanitizers() -> dict[str, str]:
    """Return the variable by which a program with the address sanitizer accepts a preloaded library.

    Options of the user's come later and count.
    """
    given = os.environ.get("ASAN_OPTIONS", "")
    return {"ASAN_OPTIONS": ":".join(filter(None, ("verify_asan_link_order=0", given)))}


def default_socket() -> Path:
    """Return the default socket of a server: in the user's runtime folder, else in the cache folder.

    Raises
    ------
    BuildError
        if neither folder can be used by this user alone.
    """
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}")
    if not folder.is_dir() or trust.why_not(folder) is not None:
        folder = cache_folder(programs=False)
    return folder / "rkcosim.sock"


def check_server(path: Path) -> None:
    """Check that a server listens at `path`.

    Raises
    ------
    ValueError
        if none does, or one of another user; the message gives the reason.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        try:
            probe.connect(str(path))
        except OSError as error:
            reason = error.strerror or str(error)
            raise ValueError(f"no server at {path}: {reason} (start one: rkcosim serve)") from error
        doubt = trust.why_not_server(probe, path)
        if doubt is not None:
            raise ValueError(f"{doubt}: it could read and change the memory of the program")


_limits = resource.getrlimit(resource.RLIMIT_NOFILE)


def many_descriptors() -> None:
    """Raise this process's limit of descriptors to its maximum: each buffer of a program needs one."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (_limits[1], _limits[1]))


@contextmanager
def private_server(machine: SimulatedMachine, ending: Ending | None = None) -> Iterator[Server]:
    """A server in a folder that only this user can access.

    It is also removed if `ending` runs out of time.
    """
    with tempfile.TemporaryDirectory(prefix="rkcosim-") as folder:
        with Server(machine.kernel, Path(folder) / "device") as server:
            if ending is not None:
                ending.at_last(lambda: shutil.rmtree(folder, ignore_errors=True))
            yield server


_MACHINES = {"x86_64": 62, "aarch64": 183}
_NAMES = {62: "x86-64", 183: "64-bit ARM", 40: "32-bit ARM", 3: "32-bit x86"}
_ELF_64, _PT_INTERP = 2, 3


def why_not(program: str) -> str | None:
    """Return why the preload library cannot reach a program, or None if no reason is known."""
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


ENDING = (signal.SIGTERM, signal.SIGHUP)
"""Signals that are passed on to a program and end the command."""


def run_program(arguments: Sequence[str], env: dict[str, str], ending: Ending | None = None) -> int:
    """Start a program, wait for it, and return its exit code (128 + n if signal n ended it).

    Signals that a terminal sends to both processes reach only the program. Those of `ENDING` are passed on,
    and the program is killed if it does not end.

    Parameters
    ----------
    ending : handles the signals if more than the program must end.
    """
    if ending is None:
        with Ending(ENDING, bounded=False) as own:
            return run_program(arguments, env, own)
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
    ending.program(program)
    try:
        code = program.wait()
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code
