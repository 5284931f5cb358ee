"""Mutation check: small faults put into RTL or golden sources, and how many of them conformance finds.

``python -m cosim.conformance.mutation --rtl 60 --golden 140 --seed 7 --json mutants.json``

A corpus of cases is drawn and what the golden model makes of each is written down; the engine must show
the same.  A golden mutant lives in a copy of the sources and replays the corpus in a process of its own.
RTL mutants are all built into one model of a copy of the RTL, each behind a multiplexer that a register
selects; so one build serves them all, and the model with none selected must show what the original does.
A mutant is *found* at the first case that differs (or raises, or does not end), *void* when it cannot be
imported or does not concern the design at run time, and otherwise it *survives*.  The array cell is
not mutated here: engines replace it by its C++ twin, and a test of its own compares the two.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cosim.conformance.mutate import Mutant, Site, guarded, mutants, sites

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {"rtl": ("rtl/npu", "rtl"), "golden": ("cosim/golden/task",)}
"""Folders of which the modules are mutated."""

LEFT_OUT = {
    "rtl/config.py",  # choices of the geometry
    "rtl/core.py",  # wiring and counters
    "rtl/soc.py",  # not part of an engine
    "rtl/layouts.py",
    "rtl/npu/dma_registers.py",
    "cosim/golden/task/__init__.py",
    "cosim/golden/task/errors.py",
    "cosim/golden/task/npu.py",
}
"""Modules without arithmetic or control of a task."""

VOID, SURVIVED, FOUND = 3, 0, 1
"""Exit codes of a replay."""

REPLAY_SECONDS = 600


@dataclass(frozen=True)
class Entry:
    """A case by its draw, and the digest of what it must show; `cycles` on the engine."""

    group: str
    seed: int
    index: int
    attempt: int
    digest: str
    cycles: int


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: "found", "survived" or "void", and where."""

    side: str
    mutant: str
    result: str
    detail: str
    seconds: float


def make_corpus(seed: int, per_group: int) -> list[Entry]:
    """Draw cases of every group, in turn, and let golden model and engine agree on them.

    Raises
    ------
    RuntimeError
        if they do not; names the case.
    """
    from cosim.conformance.groups import GROUPS, draw_case
    from cosim.conformance.runner import Runner
    from cosim.engines import open_engine

    entries = []
    with open_engine(cores=1, on_diagnostic="go on") as engine:
        runner = Runner(engine)
        for index in range(per_group):
            for group in GROUPS:
                case = draw_case(group, seed, index)
                runner.reset()
                outcome = runner.run(case)
                if not outcome.ok:
                    raise RuntimeError(f"the unchanged sources differ: {outcome.text()}")
                assert outcome.golden is not None and outcome.device is not None
                if outcome.golden.error:
                    continue  # where the model stops, as at an unmapped address, there is nothing to compare
                digest = _digest(outcome.golden, runner.golden, case)
                entries.append(Entry(group, seed, index, case.refused, digest, outcome.device.cycles))
    return entries


def _digest(side: Any, device: Any, case: Any) -> str:
    """Everything a case shows: end, registers, diagnostics and, unless it hangs, all of memory."""
    digest = hashlib.sha256(repr((side.done, side.registers, side.diagnostics)).encode())
    if side.done:
        for address, data in case.regions:
            digest.update(device.memory.view(address, data.size).tobytes())
    return digest.hexdigest()


def replay(side: str, entries: list[Entry], select: int = 0) -> tuple[int, str]:
    """Run a corpus on this process's sources; (exit code, first case that differs).

    `select` is the number of a mutant in an RTL model that has them, 0 for none.
    """
    try:
        from cosim.conformance.groups import draw_case
        from cosim.conformance.runner import HANG_CYCLES, Runner

        if side == "golden":
            from cosim.golden.task import GoldenNpu

            device: Any = GoldenNpu(1, strict=False)
        else:
            from cosim.engines import open_engine

            device = open_engine(cores=1, on_diagnostic="go on", progress=lambda line: None)
        runner = Runner(device)
        if select:
            from rtl.regs import registers

            magic = importlib.import_module("rtl.mutant").MAGIC  # of the copy
            device.write32(0, registers()["PC"]["INTERRUPT_CLEAR"].offset, magic << 16 | select)
    except Exception as error:
        return VOID, f"{type(error).__name__}: {error}"
    for entry in entries:
        case = draw_case(entry.group, entry.seed, entry.index, attempt=entry.attempt)
        runner.reset()
        bound = HANG_CYCLES if case.plan.hang else 2 * entry.cycles + 20_000
        found = runner.observe(device, case, bound)
        if found.error or _digest(found, device, case) != entry.digest:
            return FOUND, f"{entry.group} {entry.seed}/{entry.index} {found.error}".strip()
    return SURVIVED, ""


def modules(side: str) -> Iterator[tuple[str, str]]:
    """(path, source) of the modules of a side."""
    for folder in SOURCES[side]:
        for path in sorted((ROOT / folder).glob("*.py")):
            name = str(path.relative_to(ROOT))
            if name not in LEFT_OUT and not name.startswith("rtl/npu/array"):
                yield name, path.read_text()


def candidates(rng: np.random.Generator) -> Iterator[Mutant]:
    """Golden mutants in random order, files weighted by their number of mutants."""
    found = [mutant for name, source in modules("golden") for mutant in mutants(name, source)]
    for number in rng.permutation(len(found)):
        yield found[number]


def choose_sites(count: int, rng: np.random.Generator) -> list[Site]:
    """Sites of RTL mutants, none inside another."""
    found = [site for name, source in modules("rtl") for site in sites(name, source)]
    chosen: list[Site] = []
    for number in rng.permutation(len(found)):
        site = found[number]
        same = (other for other in chosen if other.path == site.path)
        if all(site.end <= other.start or other.end <= site.start for other in same):
            chosen.append(site)
        if len(chosen) == count:
            break
    return chosen


class Workshop:
    """A copy of the sources in which one mutant at a time is tried.

    Parameters
    ----------
    folder
        of the copy; made here.
    corpus
        file with the entries.
    """

    def __init__(self, folder: Path, corpus: Path) -> None:
        self.folder, self.corpus = folder, corpus
        for name in ("rtl", "sw", "cosim"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))

    def attempt(self, mutant: Mutant) -> Verdict:
        """Try one golden mutant; the copy is whole again afterwards."""
        path = self.folder / mutant.path
        original = path.read_text()
        begin = time.monotonic()
        try:
            path.write_text(mutant.source)
            done = self.run("--replay", "golden", str(self.corpus), seconds=REPLAY_SECONDS)
            result = {VOID: "void", SURVIVED: "survived"}.get(done.returncode, "found")
            lines = (done.stdout + done.stderr).strip().splitlines()
            detail = lines[-1][:200] if lines else ""
        except subprocess.TimeoutExpired:
            result, detail = "found", f"no end within {REPLAY_SECONDS} s"
        finally:
            path.write_text(original)
        return Verdict("golden", str(mutant), result, detail, round(time.monotonic() - begin, 1))

    def run(self, *arguments: str, seconds: float | None = None) -> subprocess.CompletedProcess[str]:
        """Run this module in the copy."""
        environment = os.environ | {"PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "cosim.conformance.mutation", *arguments]
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=seconds
        )


CHOOSER = '''"""Values of the design that a register exchanges: mutants of the RTL in one model."""

import os

from amaranth.hdl import Cat, Const, Mux, Signal, Value

SELECT = Signal(16, name="mutant_select", reset_less=True)
MAGIC = 0xA5C3
"""A host write of this half-word and a number, to any register, selects that mutant."""


def choose(number, original, changed):
    """The original value, or while `number` is selected the changed one in the same shape."""
    value = original()
    if not isinstance(value, Value) or not len(value):
        return value
    try:
        other = Value.cast(changed())
    except Exception:
        return value
    shape, short = value.shape(), len(value) - len(other)
    if short > 0:
        sign = other[-1] if len(other) and other.shape().signed else Const(0, 1)
        other = Cat(other, sign.replicate(short))
    other = other[: len(value)]
    with open(os.environ["RKCOSIM_MUTANTS"], "a") as live:
        live.write(f"{number}\\n")
    return Mux(SELECT == number, other.as_signed() if shape.signed else other, value)
'''

SELECTION = """
        from rtl.mutant import MAGIC, SELECT

        with m.If(self.s_axil_wvalid & (self.s_axil_wdata[16:] == MAGIC)):
            m.d.sync += SELECT.eq(self.s_axil_wdata[:16])
        return m

    def _diagnostics("""
"""What is put into the core's copy, in place of the end of `elaborate`."""


def check_rtl(count: int, seed: int, shop: Workshop) -> list[Verdict]:
    """Build a model with about twice as many mutants, and try `count` of those that are in it.

    Raises
    ------
    RuntimeError
        if the model cannot be built or differs with no mutant selected.
    """
    chosen = choose_sites(2 * count, np.random.default_rng([seed, 3]))
    for path in {site.path for site in chosen}:
        mine = [(number, site) for number, site in enumerate(chosen, 1) if site.path == path]
        (shop.folder / path).write_text(guarded((ROOT / path).read_text(), mine))
    (shop.folder / "rtl/mutant.py").write_text(CHOOSER)
    core = shop.folder / "rtl/core.py"
    text = core.read_text()
    end = "\n        return m\n\n    def _diagnostics("
    if text.count(end) != 1:
        raise RuntimeError("rtl/core.py: the end of elaborate is not where it is expected")
    core.write_text(text.replace(end, SELECTION))
    live = shop.folder / "live.txt"
    os.environ["RKCOSIM_MUTANTS"] = str(live)
    os.environ["RKCOSIM_CACHE"] = str(shop.folder / "cache")
    begin = time.monotonic()
    done = shop.run("--replay", "rtl", str(shop.corpus))
    if done.returncode != SURVIVED:
        raise RuntimeError(f"the model with no mutant selected: {done.stdout[-2000:]}{done.stderr[-4000:]}")
    print(f"RTL model with mutants built and compared in {time.monotonic() - begin:.0f} s", flush=True)
    present = sorted({int(line) for line in live.read_text().split()})[:count]
    verdicts = []
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:

        def one(number: int) -> Verdict:
            begun = time.monotonic()
            result = shop.run("--replay", "rtl", str(shop.corpus), "--select", str(number))
            name = "survived" if result.returncode == SURVIVED else "found"
            lines = (result.stdout + result.stderr).strip().splitlines()
            detail = lines[-1][:200] if lines else ""
            return Verdict("rtl", str(chosen[number - 1]), name, detail, round(time.monotonic() - begun, 1))

        for verdict in pool.map(one, present):
            verdicts.append(verdict)
            _say(verdict)
    return verdicts


def _say(verdict: Verdict) -> None:
    print(f"{verdict.result:9} {verdict.seconds:6.1f} s  {verdict.mutant}  {verdict.detail}", flush=True)


def check_golden(count: int, seed: int, shops: list[Workshop]) -> list[Verdict]:
    """Try golden mutants until `count` of them are not void."""
    source = candidates(np.random.default_rng([seed, 6]))
    verdicts: list[Verdict] = []
    free = list(shops)

    def one(mutant: Mutant) -> Verdict:
        shop = free.pop()
        try:
            return shop.attempt(mutant)
        finally:
            free.append(shop)

    with ThreadPoolExecutor(len(shops)) as pool:
        while (left := count - sum(v.result != "void" for v in verdicts)) > 0:
            batch = [mutant for _, mutant in zip(range(left), source, strict=False)]
            if not batch:
                break
            for verdict in pool.map(one, batch):
                verdicts.append(verdict)
                _say(verdict)
    return verdicts


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; 0 when at least 95 % of the mutants of each side are found."""
    parser = argparse.ArgumentParser(prog="python -m cosim.conformance.mutation", description=__doc__)
    parser.add_argument("--rtl", type=int, default=60, help="mutants of RTL sources (default 60)")
    parser.add_argument("--golden", type=int, default=140, help="mutants of golden sources (default 140)")
    parser.add_argument("--seed", type=int, help="of mutants and cases (default: a fresh one, printed)")
    parser.add_argument("--cases", type=int, default=24, help="cases of each group (default 24)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="mutants tried at a time")
    parser.add_argument("--json", type=Path, help="write every verdict to this file")
    parser.add_argument("--replay", nargs=2, metavar=("SIDE", "CORPUS"), help=argparse.SUPPRESS)
    parser.add_argument("--select", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.replay:
        side, corpus = given.replay
        entries = [Entry(**entry) for entry in json.loads(Path(corpus).read_text())]
        code, detail = replay(side, entries, given.select)
        print(detail)
        return code
    seed = secrets.randbits(32) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="rkcosim-mutants-") as work:
        corpus = Path(work) / "corpus.json"
        entries = make_corpus(seed, given.cases)
        for side in ("golden", "rtl"):
            code, detail = replay(side, entries)
            if code != SURVIVED:
                raise RuntimeError(f"the unchanged sources do not repeat what they showed: {side}: {detail}")
        corpus.write_text(json.dumps([asdict(entry) for entry in entries]))
        print(f"{len(entries)} cases", flush=True)
        shops = [Workshop(Path(work) / f"copy{n}", corpus) for n in range(max(1, given.workers))]
        verdicts = check_golden(given.golden, seed, shops) if given.golden else []
        verdicts += check_rtl(given.rtl, seed, shops[0]) if given.rtl else []
    good = True
    for side in ("golden", "rtl"):
        mine = [v for v in verdicts if v.side == side and v.result != "void"]
        found = sum(v.result == "found" for v in mine)
        void = sum(v.side == side and v.result == "void" for v in verdicts)
        if mine:
            print(f"{side}: {found} of {len(mine)} mutants found ({found / len(mine):.1%}), {void} void")
            good &= found >= 0.95 * len(mine)
    for verdict in verdicts:
        if verdict.result == "survived":
            print(f"survived: {verdict.mutant}")
    if given.json:
        data = {"schema_version": 1, "seed": seed, "cases": len(entries)}
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(data | {"mutants": [asdict(v) for v in verdicts]}, indent=1) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
