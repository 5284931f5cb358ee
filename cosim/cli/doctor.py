"""`rkcosim doctor`: check this machine; `rkcosim explain`: explain log lines, codes and statuses."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from rkcosim.base import DEVICE_ERROR, extras
from rkcosim.base.folders import NoHomeError
from rkcosim.cli.app import Options, argument, command
from rkcosim.cli.exits import OK

PYTHON_MIN = (3, 11)


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Members
    -------
    name : what was checked.
    ok : True if it is present and works.
    detail : what was found, in one line.
    fix : how to fix it; empty if `ok`.
    required : True if nothing can be simulated without it; otherwise something is slower or missing.
    """

    name: str
    ok: bool
    detail: str
    fix: str = ""
    required: bool = True


@command("rkcosim doctor", "rkcosim doctor --json - --quiet")
def doctor_command(asked: Options) -> None:
    """Say what is missing on this machine and how to get it.

    The exit code is 3 if something is missing without which nothing can be simulated.
    """
    found = checks()
    for check in found:
        word = "ok" if check.ok else "MISSING" if check.required else "without"
        print(f"{word:8}{check.name}: {check.detail}")
        if not check.ok and check.fix:
            print(f"        {check.fix}")
    asked.write({"checks": [check.__dict__ for check in found]})
    raise SystemExit(OK if all(check.ok for check in found if check.required) else DEVICE_ERROR)


def checks() -> list[Check]:
    """Run all checks; never raises, and leaves no files except the cache folder."""
    steps: list[tuple[str, bool, Callable[[], tuple[bool | None, str, str]]]] = [
        ("Python", True, _python),
        ("packages", True, _packages),
        ("C++ compiler", True, _compiler),
        ("Yosys", True, _yosys),
        ("Verilator", False, _verilator),
        ("make", False, _make),
        ("cache folder", True, _cache),
        ("address space", True, _address_space),
        *((f"extra {name}", False, partial(_extra, name)) for name in extras.EXTRAS),
    ]
    found = []
    for name, required, step in steps:
        try:
            ok, detail, fix = step()
        except Exception as error:
            ok, detail, fix = (
                False,
                f"check failed: {str(error).partition(chr(10))[0]}",
                "see the error message",
            )
        needed = required and ok is not None  # None: missing, but not needed
        found.append(Check(name, bool(ok), detail, "" if ok else fix, needed))
    return found


def _python() -> tuple[bool, str, str]:
    detail = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    wanted = ".".join(map(str, PYTHON_MIN))
    return sys.version_info >= PYTHON_MIN, detail, f"install Python {wanted} or newer"


def _packages() -> tuple[bool, str, str]:
    old = extras.too_old()
    names = " ".join(f"'{name}'" for name in old)
    return not old, "; ".join(old.values()) or "as new as needed", f"pip install --upgrade {names}"


def _compiler() -> tuple[bool | None, str, str]:
    from rkcosim.engines import build, cache, prebuilt, toolchain
    from rkcosim.engines.protocol import BuildError

    try:
        tool = toolchain.compiler()
    except BuildError as error:
        package = prebuilt.installed()
        ready = package is not None and not package.refusal
        detail = str(error).partition(":")[0] + (f"; {package} has the default engine" if ready else "")
        return None if ready else False, detail, toolchain.COMPILER_FIX
    try:
        place: Path | None = cache.cache_folder()
    except (BuildError, ValueError):  # said by the check of the cache folder
        place = None
    with tempfile.TemporaryDirectory(prefix=".build-", dir=place) as name:
        try:
            needed = build.linked_with(Path(name))
        except BuildError as error:
            if reason := toolchain.no_programs(Path(name)):
                return False, f"{tool.version}: {name}: {reason.partition(':')[0]}", reason.partition(": ")[2]
            why = str(error).splitlines()[-1]
            return False, f"{tool.version} cannot build an engine: {why}", toolchain.COMPILER_FIX
    return True, f"{tool.version}{''.join(f', with {word}' for word in needed)}", ""


def _yosys() -> tuple[bool, str, str]:
    from rkcosim.engines import toolchain
    from rkcosim.engines.protocol import BuildError

    try:
        return True, toolchain.yosys().version, ""
    except BuildError as error:
        return False, str(error).partition(":")[0], toolchain.YOSYS_FIX


def _verilator() -> tuple[bool, str, str]:
    from rkcosim.engines import toolchain

    tool = toolchain.verilator()
    if tool is None:
        return False, "not found: the slower engine cxxrtl is used instead", toolchain.VERILATOR_FIX
    command, env = [*tool.command, "--version"], {**os.environ, **tool.env}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    said = (done.stderr or done.stdout).strip().partition("\n")[0]
    detail = f"{tool.version} does not start: {said}" if done.returncode else tool.version
    return not done.returncode, detail, toolchain.VERILATOR_FIX


def _make() -> tuple[bool, str, str]:
    path = shutil.which("make")
    fix = "install make (Debian, Ubuntu: apt install make), or call the commands of the Makefile"
    return path is not None, path or "not found", fix


def _cache() -> tuple[bool | None, str, str]:
    from rkcosim.engines import cache
    from rkcosim.engines.protocol import BuildError

    try:
        built = sum(len(list(folder.glob("*/model.so"))) for folder in cache.cache_folders())
        folder = cache.cache_folder()
    except NoHomeError as error:
        return False, str(error), "set RKCOSIM_CACHE to a folder"
    except BuildError as error:
        detail = f"{str(error).partition(':')[0]}; {built} built models can be used"
        return None if built else False, detail, "set RKCOSIM_CACHE to another folder"
    free = shutil.disk_usage(folder).free >> 20
    detail = f"{folder} ({built} built models, {free} MiB free)"
    return free >= 500, detail, "free some space or set RKCOSIM_CACHE to another folder"


def _address_space() -> tuple[bool, str, str]:
    from rkcosim.engines.memory import DeviceMemory
    from rkcosim.engines.protocol import EngineError

    try:
        DeviceMemory(lambda page, pages, mapped: None)
    except EngineError as error:
        fix = "raise the limit (ulimit -v unlimited; sysctl vm.overcommit_memory=0)"
        return False, str(error).partition("(")[0].strip(), fix
    return True, "4 GiB can be reserved for device memory", ""


def _extra(name: str) -> tuple[bool, str, str]:
    extra = extras.EXTRAS[name]
    missing = {package for module, package in extra.packages.items() if not _importable(module)}
    packages = dict.fromkeys(
        package for package in extra.packages.values() if package in missing or not missing
    )
    detail = f"{', '.join(packages)}{' missing' if missing else ''} (for {extra.purpose})"
    return not missing, detail, extras.install(name)


def _importable(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@dataclass(frozen=True, kw_only=True)
class ExplainOptions(Options):
    """Options of `rkcosim explain`."""

    words: tuple[str, ...] = argument(
        "Log line, code, status or register; default: lines of standard input.", default=()
    )


@command(
    'rkcosim explain "failed to submit, int status: 0x100"',
    "rkcosim explain 0x15",
    "dmesg | rkcosim explain",
    context={"ignore_unknown_options": True},
    waits=True,
)
def explain_command(asked: ExplainOptions) -> None:
    """Explain lines of a log, error codes and status values.

    It knows the messages of the kernel drivers, of the runtime, of the vendor's compiler, and of runs of
    this project that hang. It takes registers by name or number, command words, and dumps of both.
    """
    from rkcosim.rknn_api.explain import explain

    text = " ".join(asked.words) if asked.words not in ((), ("-",)) else sys.stdin.read()
    found = explain(text)
    if not found and len(asked.words) > 1:  # several values in one line
        found = [item for word in asked.words for item in explain(word)]
    asked.write({"explanations": [asdict(item) for item in found]})
    if not found:
        raise ValueError(
            "no known message of a driver, runtime, compiler or run, and no code, register or status"
        )
    print("\n".join(map(str, found)))
