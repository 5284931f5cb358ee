"""Run programs of a suite through the doors of rkcosim, and read their verdicts."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree

from tools.outside.suite import FAIL, LIMIT, PASS, SILENT, SKIP, Checkout, Outcome

ROOT = Path(__file__).resolve().parents[2]
NOTE = 160
"""Characters of a note."""


@dataclass(frozen=True)
class Finished:
    """A program that was run.

    Members
    -------
    code : exit code; None if it was ended after the limit.
    text : what it printed, both streams.
    seconds : how long it ran.
    """

    code: int | None
    text: str
    seconds: float


def under(
    door: str,
    engine: str,
    command: Sequence[str],
    limit: float,
    *,
    options: Sequence[str] = (),
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Finished:
    """Run a program under `rkcosim DOOR`.

    Parameters
    ----------
    door : "device", "rknn", "litert", "ort", "hexagon", "nnapi" or "diopi".
    engine : "golden" or "rtl".
    command : the program and its arguments.
    limit : seconds until it is ended.
    options : options of the door.
    folder : its working folder.
    environment : variables in addition to this process's.
    """
    chosen = ["--engine", "golden"] if engine == "golden" else []
    words = [sys.executable, "-m", "rkcosim", door, *chosen, *options, "--", *command]
    settings = os.environ | {"PYTHONDONTWRITEBYTECODE": "1"} | dict(environment or {})
    path = [str(ROOT), settings.get("PYTHONPATH", "")]
    settings["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    begin = time.monotonic()
    with subprocess.Popen(
        words,
        cwd=folder,
        env=settings,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as child:
        try:
            text = child.communicate(timeout=limit)[0]
            code: int | None = child.returncode
        except subprocess.TimeoutExpired:
            text, code = _ended(child), None
        except BaseException:
            _ended(child)
            raise
    return Finished(code, text.decode(errors="replace"), time.monotonic() - begin)


def _ended(child: subprocess.Popen[bytes]) -> bytes:
    """End a program and everything that it started; return what it had printed."""
    child.terminate()
    with suppress(subprocess.TimeoutExpired):
        child.wait(timeout=5)
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    return child.communicate()[0]


def last_line(text: str) -> str:
    """Return the last line with words, without numbers of processes and paths, as a note."""
    lines = [line for line in text.splitlines() if re.search(r"\w", line)]
    return note(lines[-1]) if lines else ""


def note(text: str) -> str:
    """Return a text as a note: one line, short, without paths of this machine."""
    line = re.sub(r"(?<![\w.])/(?:[\w.+@-]+/)+", "", " ".join(text.split()))
    line = "".join(sign if sign.isprintable() else "?" for sign in line)
    return line if len(line) <= NOTE else f"{line[: NOTE - 3]}..."


@dataclass(frozen=True)
class Program:
    """A program of a suite that says by its exit code whether all is right.

    Members
    -------
    path : its file in the checkout.
    words : its arguments.
    environment : variables that it needs.
    skips : exit codes that say that nothing was tested.
    silent : it judges nothing: exit code 0 is no verdict.
    """

    path: str
    words: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    skips: Sequence[int] = ()
    silent: bool = False

    def outcome(self, finished: Finished) -> Outcome:
        """Return what a run says."""
        if finished.code is None:
            return Outcome(LIMIT, note(f"ended after {finished.seconds:.0f} s"))
        if finished.code in self.skips:
            return Outcome(SKIP, last_line(finished.text))
        if finished.code:
            return Outcome(FAIL, note(f"exit code {finished.code}: {last_line(finished.text)}"))
        return Outcome(SILENT if self.silent else PASS)


def each_program(
    here: Checkout,
    door: str,
    engine: str,
    programs: Mapping[str, Program],
    limit: float,
    options: Sequence[str] = (),
) -> dict[str, Outcome]:
    """Run programs one after the other, in the folder of the checkout.

    Parameters
    ----------
    programs : by the name of the test.
    limit : seconds for each.
    options : options of the door.

    Raises
    ------
    NotHere
        If one is not built.
    """
    here.needs(*dict.fromkeys(program.path for program in programs.values()))
    found = {}
    for name, program in programs.items():
        command = [str((here.folder / program.path).resolve()), *program.words]
        finished = under(
            door,
            engine,
            command,
            limit,
            options=options,
            folder=here.folder,
            environment=program.environment,
        )
        found[name] = program.outcome(finished)
        print(f"  {name}: {found[name].verdict} ({finished.seconds:.1f} s)", flush=True)
    return found


def pytest_under(
    here: Checkout,
    door: str,
    engine: str,
    tests: Sequence[str],
    folder: Path,
    limit: float,
    *,
    options: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> dict[str, Outcome]:
    """Run pytest on files of a checkout; return the outcome of each test.

    Parameters
    ----------
    tests : files, or other words of pytest.
    folder : for pytest's report.
    limit : seconds for all tests. Tests that had not ended then are those that the report lacks.

    Raises
    ------
    OSError
        If pytest writes no report: it did not start, or was ended after the limit.
    """
    report = folder / "report.xml"
    words = [here.python, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *tests]
    finished = under(door, engine, words, limit, options=options, folder=here.folder, environment=environment)
    if not report.is_file():
        ended = "was ended by its limit" if finished.code is None else f"exit code {finished.code}"
        raise OSError(f"pytest wrote no report ({ended}): {last_line(finished.text)}")
    return junit(report)


def driven(
    here: Checkout,
    door: str,
    engine: str,
    driver: str,
    words: Sequence[object],
    folder: Path,
    limit: float,
    *,
    options: Sequence[str] = (),
) -> dict[str, Outcome]:
    """Run a driver of `tools/outside/drivers` on files of a checkout; return the outcome of each test.

    Parameters
    ----------
    driver : its name.
    words : its arguments.
    folder : an empty folder, which is also the driver's working folder.
    limit : seconds for all tests.

    Raises
    ------
    OSError
        If it broke off.
    """
    outcomes = folder / "outcomes.json"
    module = f"tools.outside.drivers.{driver}"
    command = [here.python, "-m", module, str(outcomes.resolve()), *(str(word) for word in words)]
    finished = under(door, engine, command, limit, options=options, folder=folder)
    if not outcomes.is_file():
        ended = "was ended by its limit" if finished.code is None else f"exit code {finished.code}"
        raise OSError(f"the driver broke off ({ended}): {last_line(finished.text)}")
    found = json.loads(outcomes.read_text())
    return {name: Outcome(verdict, note(text)) for name, (verdict, text) in found.items()}


def junit(report: Path) -> dict[str, Outcome]:
    """Return the outcomes of a report in JUnit's XML, named `file::test`.

    Raises
    ------
    ValueError
        If two tests have the same name.
    """
    found: dict[str, Outcome] = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        place = case.get("classname", "").rpartition(".")[2]
        name = f"{place}::{case.get('name', '')}"
        if name in found:
            raise ValueError(f"{report}: two tests have the name {name}")
        found[name] = _of_case(case)
    return found


def _of_case(case: ElementTree.Element) -> Outcome:
    for tag, verdict in (("failure", FAIL), ("error", FAIL), ("skipped", SKIP)):
        child = case.find(tag)
        if child is not None:
            return Outcome(verdict, note(child.get("message", "")))
    return Outcome(PASS)
