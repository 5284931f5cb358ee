"""Do a block's own tests find every wrong handshake and count? Plants faults at the ports of components.

    python -m tools.mutation.handshakes --page docs/results/handshakes.md

Each port of one bit, and each count, that a component of the RTL drives gets each kind of fault in turn
(`tools/mutation/faulty_ports.py`). The files of `tests/block` that use the component run until a test fails,
those with the fewest other components first, and behind the first file the bounded checks of the component's
proofs, for at most 30 seconds of processor time: a block's own tests have to find a fault quickly. Tests that
have found most of the component's other faults run ahead of all files, which saves time. The record
(build/handshakes.jsonl) keeps each verdict as long as the source of the component and the files of tests stay
as they are, so that a run that was stopped goes on where it was. Faults that are known to be harmless are
listed with the reason in `tools/mutation/harmless.toml`. The exit code is 1 if another fault survives.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import os
import re
import resource
import signal
import sys
import time
import tomllib
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from amaranth.lib import wiring

from rkcosim.waves.whole_file import whole_file
from tools.mutation.faulty_ports import PortFault, components, faults_of, plant, watch
from tools.mutation.verdict import CONTEXT
from tools.proofs.catalog import PROOFS
from tools.proofs.solve import ProofError, find_failure

ROOT = Path(__file__).resolve().parents[2]
RECORD = Path("build/handshakes.jsonl")
HARMLESS = Path(__file__).with_name("harmless.toml")

SECONDS = 30
"""Processor time within which the tests of a block have to find a fault."""

WALL_SECONDS = 600
"""Time after which the tests of a fault are stopped, which counts as a find: they do not end."""

FOUND, SURVIVED = "found", "survived"


@dataclass(frozen=True)
class Finding:
    """The verdict on one fault, the test that failed, the seconds it took, and a digest of the sources.

    `first` is the verdict of the first try, before benches were mended.
    """

    fault: str
    result: str
    test: str
    seconds: float
    sources: str
    first: str = ""


@dataclass(frozen=True)
class Use:
    """What a file of tests elaborates: names of components, and the faults of their ports."""

    path: str
    faults: Mapping[str, tuple[PortFault, ...]]


def _tests() -> list[Path]:
    return sorted(path for path in (ROOT / "tests/block").glob("test_*.py") if path.stem != "test_proofs")


def _child(work: Callable[[Connection], None], seconds: float) -> tuple[object, bool]:
    """Run work in a copy of this process; return what it sent (None if it died), and whether it ended.

    Raises
    ------
    RuntimeError
        if the work raises an exception.
    """
    mine, theirs = CONTEXT.Pipe(duplex=False)

    def run() -> None:
        os.setpgid(0, 0)
        theirs_out = io.StringIO()
        with contextlib.redirect_stdout(theirs_out), contextlib.redirect_stderr(theirs_out):
            try:
                work(theirs)
            except Exception:
                theirs.send(traceback.format_exc())

    process = CONTEXT.Process(target=run)
    process.start()
    theirs.close()
    ended = mine.poll(seconds)
    try:
        sent = mine.recv() if ended else None
    except EOFError:
        sent = None
    assert process.pid is not None
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
    if isinstance(sent, str):
        raise RuntimeError(f"the tests cannot be run:\n{sent}")
    return sent, ended


class _Failures:
    """A plugin of pytest that keeps the first test that fails."""

    def __init__(self) -> None:
        self.first = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self.first:
            self.first = report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed and not self.first:
            self.first = report.nodeid


def _run(paths: Sequence[str]) -> str:
    """Run files of tests until one fails; return its name, or ""."""
    failures = _Failures()
    options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--tb=no"]
    try:
        code = pytest.main([*options, "-m", "not heavy and not shared", *paths], plugins=[failures])
    except Exception:  # at the end, for coroutines of a bench that failed
        if not failures.first:
            raise
        return failures.first
    if code == pytest.ExitCode.USAGE_ERROR:
        raise RuntimeError(f"{', '.join(paths)}: pytest finds no such tests")
    if code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
        return failures.first or f"pytest ends with {code}"
    return failures.first


def use_of(path: Path) -> Use:
    """Run a file of tests without a fault and return what it elaborates.

    Raises
    ------
    RuntimeError
        if a test fails.
    """

    def work(pipe: Connection) -> None:
        seen: dict[str, tuple[PortFault, ...]] = {}

        def note(name: str, component: wiring.Component) -> None:
            found = tuple(faults_of(name, component))
            seen[name] = tuple(dict.fromkeys((*seen.get(name, ()), *found)))

        watch(note)
        failed = _run([str(path)])
        pipe.send((seen, failed))

    sent, _ = _child(work, WALL_SECONDS)
    seen, failed = sent if isinstance(sent, tuple) else ({}, "the tests do not end")
    if failed:
        raise RuntimeError(f"{path.relative_to(ROOT)}: {failed} fails without a fault")
    return Use(path.relative_to(ROOT).as_posix(), seen)


def _disproved(fault: PortFault) -> str:
    """Return the first proof of the component that fails within its depth, or ""."""
    module, _, name = fault.component.rpartition(".")
    block = f"rtl/{module.replace('.', '/')}.py: {name}"
    for proof in PROOFS:
        with contextlib.suppress(ProofError):  # no verdict
            if proof.block == block and find_failure(proof).holds is False:
                return f"proof {proof.name}"
    return ""


def attempt(fault: PortFault, paths: Sequence[str], ahead: Sequence[str] = ()) -> Finding:
    """Plant a fault and run files of tests, in the order of the paths, and single tests `ahead` of them."""

    def work(pipe: Connection) -> None:
        used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
        hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (int(used) + SECONDS + 1, hard))

        def over(number: int, frame: object) -> None:
            pipe.send((SURVIVED, f"no test failed in {SECONDS} s"))
            os._exit(0)

        signal.signal(signal.SIGXCPU, over)
        plant(fault)
        first, *others = [str(ROOT / path) for path in paths]
        failed = _run([str(ROOT / test) for test in ahead]) if ahead else ""
        failed = failed or _run([first]) or _disproved(fault) or (_run(others) if others else "")
        pipe.send((FOUND, failed) if failed else (SURVIVED, "all tests pass"))

    begin = time.monotonic()
    sent, ended = _child(work, WALL_SECONDS)
    if isinstance(sent, tuple):
        result, test = sent
    else:
        result, test = FOUND, "the process died" if ended else "the tests do not end"
    return Finding(str(fault), result, test, round(time.monotonic() - begin, 1), digest_of(fault, paths))


def digest_of(fault: PortFault, paths: Sequence[str]) -> str:
    """Return a digest of what the verdict on a fault depends on: its component and the files of tests."""
    digest = hashlib.sha256(Path(__file__).with_name("faulty_ports.py").read_bytes())
    module = "rtl/" + fault.component.rpartition(".")[0].replace(".", "/") + ".py"
    for path in (module, *paths):
        digest.update((ROOT / path).read_bytes())
    return digest.hexdigest()[:16]


def reasons() -> dict[str, str]:
    """Return the reasons of harmless faults by the patterns of their names."""
    return dict(tomllib.loads(HARMLESS.read_text())["harmless"])


def reason_of(fault: str, known: Mapping[str, str]) -> str | None:
    """Return why a fault is harmless, or None."""
    return next((reason for pattern, reason in known.items() if fnmatchcase(fault, pattern)), None)


def _sources() -> str:
    digest = hashlib.sha256()
    for folder in ("spec", "rtl", "tests/block", "tests/makers", "tools/mutation"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            digest.update(path.relative_to(ROOT).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _uses(folder: Path, sources: str) -> list[Use]:
    """Return what each file of tests elaborates; a copy of the answer is kept for these sources."""
    kept = folder / "handshakes_uses.json"
    if kept.is_file():
        document = json.loads(kept.read_text())
        if document["sources"] == sources:
            return [
                Use(path, {name: tuple(PortFault(*row) for row in rows) for name, rows in use.items()})
                for path, use in document["uses"].items()
            ]
    uses = []
    for path in _tests():
        begin = time.monotonic()
        uses.append(use_of(path))
        count = len(uses[-1].faults)
        print(f"{path.stem}: {count} components, {time.monotonic() - begin:.0f} s", flush=True)
    rows = {
        use.path: {
            name: [[one.component, one.port, one.kind] for one in faults]
            for name, faults in use.faults.items()
        }
        for use in uses
    }
    with whole_file(kept) as part:
        part.write_text(json.dumps({"sources": sources, "uses": rows}))
    return uses


def planned(uses: Sequence[Use]) -> dict[PortFault, tuple[str, ...]]:
    """Return for each fault the files of tests that use its component, its own ones first."""
    found: dict[PortFault, list[Use]] = {}
    for use in uses:
        for faults in use.faults.values():
            for fault in faults:
                found.setdefault(fault, []).append(use)
    return {
        fault: tuple(use.path for use in sorted(found[fault], key=lambda use: (len(use.faults), use.path)))
        for fault in sorted(found, key=str)
    }


def finders(component: str, findings: Iterable[Finding], paths: Sequence[str]) -> list[str]:
    """Return the tests of some files that have found most of a component's faults, at most two."""
    tests = Counter(
        one.test
        for one in findings
        if one.fault.partition(":")[0] == component and one.test.partition("::")[0] in paths
    )
    return [test for test, _ in tests.most_common(2)]


def counted(findings: Sequence[Finding], known: Mapping[str, str]) -> list[tuple[str, int, int, int, int]]:
    """Return for each component, and for all: name, numbers of faults.

    The numbers are those of faults found, of harmless ones, of others that survive, and of those that are not
    harmless and survived the first try.
    """
    rows = []
    names = sorted({one.fault.partition(":")[0] for one in findings})
    for name in (*names, "all"):
        own = [one for one in findings if name in (one.fault.partition(":")[0], "all")]
        left = [one for one in own if one.result != FOUND]
        harmless = sum(reason_of(one.fault, known) is not None for one in left)
        before = sum(
            (one.first or one.result) == SURVIVED and reason_of(one.fault, known) is None for one in own
        )
        rows.append((name, len(own) - len(left), harmless, len(left) - harmless, before))
    return rows


def page(findings: Sequence[Finding], known: Mapping[str, str], of: int) -> str:
    """Return the page: counts by component, faults that survive, and the reasons of harmless ones."""
    *rows, (_, found, harmless, left, before) = counted(findings, known)
    tried = f"All {of:,}" if len(findings) == of else f"{len(findings):,} of {of:,}"
    slow = sorted(one.seconds for one in findings if one.result == FOUND)
    median = slow[len(slow) // 2] if slow else 0.0
    lines = [
        "# Faults of handshakes",
        "",
        "Written by `python -m tools.mutation.handshakes`. Every port of one bit and every count that a",
        "component of the RTL drives is made wrong in turn: one cycle late, held for one cycle longer,",
        "raised in cycles in which it is low, dropped, one more or one less. The component keeps its own",
        "value, so that both sides of the port disagree. A fault is found if a test of `tests/block` that",
        "uses the component, or one of its proofs, fails within",
        f"{SECONDS} seconds of processor time.",
        "",
        f"{tried} faults have been tried: {found} are found (median {median:.1f} s), {harmless} are harmless",
        f"for a reason that is given below, and {left} survive. At the first try, before benches were mended",
        f"and the RTL had assertions, {before} survived.",
        "",
        "| component | found | harmless | survived at first | survive |",
        "| --- | ---: | ---: | ---: | ---: |",
        *(f"| `{name}` | {a} | {b} | {d} | {c} |" for name, a, b, c, d in rows),
        "",
        "## Faults that survive",
        "",
    ]
    survivors = [one for one in findings if one.result != FOUND]
    rows_left = [f"- `{one.fault}` ({one.test})" for one in survivors if reason_of(one.fault, known) is None]
    lines += [*(rows_left or ["None."]), "", "## Harmless faults", ""]
    groups: dict[str, list[str]] = {}
    for one in survivors:
        if (reason := reason_of(one.fault, known)) is not None:
            groups.setdefault(reason, []).append(one.fault)
    lines += [
        f"- {reason} {', '.join(f'`{fault}`' for fault in names)}." for reason, names in groups.items()
    ] or ["None."]
    return "\n".join(lines) + "\n"


def _read(path: Path) -> dict[str, Finding]:
    if not path.is_file():
        return {}
    return {
        row["fault"]: Finding(**row) for row in map(json.loads, path.read_text(encoding="utf-8").splitlines())
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutation.handshakes", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--record", type=Path, default=RECORD, help=f"verdicts so far (default: {RECORD})")
    parser.add_argument("--only", default="", help="try faults with this in their names now")
    parser.add_argument("--most", type=int, help="try at most this many faults now")
    parser.add_argument("--page", type=Path, help="write counts and survivors to this page")
    given = parser.parse_args(arguments)
    os.chdir(ROOT)
    sources = _sources()
    given.record.parent.mkdir(parents=True, exist_ok=True)
    components()  # imported once, before the process is copied
    plans, known = planned(_uses(given.record.parent, sources)), _read(given.record)
    first = {fault: one.first or one.result for fault, one in known.items()}
    for fault, paths in plans.items():
        if str(fault) in known and known[str(fault)].sources != digest_of(fault, paths):
            del known[str(fault)]
    missing = [fault for fault in plans if str(fault) not in known and re.search(given.only, str(fault))]
    for fault in missing[: given.most]:
        ahead = finders(fault.component, known.values(), plans[fault])
        one = attempt(fault, plans[fault], ahead)
        one = known[str(fault)] = replace(one, first=first.get(str(fault), one.result))
        print(f"{one.result:9} {one.seconds:6.1f} s  {one.fault}  {one.test}", flush=True)
        with whole_file(given.record) as part:
            part.write_text("".join(json.dumps(asdict(one)) + "\n" for one in known.values()))
    findings, why = [known[str(fault)] for fault in plans if str(fault) in known], reasons()
    for name, found, harmless, left, _ in counted(findings, why):
        print(f"{name}: {found} found, {harmless} harmless, {left} survive")
    if given.page:
        given.page.write_text(page(findings, why, len(plans)))
    return 1 if counted(findings, why)[-1][3] else 0


if __name__ == "__main__":
    sys.exit(main())
