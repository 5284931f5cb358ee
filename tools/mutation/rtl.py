"""Mutants of the RTL: all in one model, each behind a multiplexer that a register selects.

One build contains all of them; with none selected the model must give the golden model's results.  Run as
a program (in the copy of the sources that has the mutants) this module is a worker: it opens the model
once and forks for every mutant whose number it reads.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import numpy as np

from rkcosim.driver.device import Device
from tools.mutation.corpus import rounds
from tools.mutation.operators import Site, guarded, sites
from tools.mutation.rules import modules
from tools.mutation.verdict import FOUND, SURVIVED, Answer, Verdict, answer, forked

FOLDERS = ("rtl/npu", "rtl")
REPLAY_SECONDS = 900
"""Time after which a mutant counts as found."""

BASELINE_CASES = 4
"""Cases of each group that the model must pass with no mutant selected."""

CLOSE: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("rtl/npu/ppu", ("pool ", "dpu to ppu")),
    ("rtl/npu/cna_argb", ("argb", "data reuse", "reserved codes")),
    ("rtl/npu/c", ("conv", "depth", "dilation", "large", "weight", "data", "stream", "matrix", "tiles")),
    ("rtl/npu/dpu_lut", ("lut",)),
    ("rtl/npu/dpu_writer_packets", ("packets",)),
    ("rtl/npu/dpu_modes", ("packets", "unpooling", "writer")),
    ("rtl/npu/dpu_rdma", ("ew", "flying", "residual", "padded", "matrix output")),
    ("rtl/npu/dpu_float", ("ew floats", "floats", "conv fp16", "conv bf16")),
    ("rtl/npu/float32", ("ew floats", "floats", "to floats", "conv fp16", "conv bf16", "conv tf32")),
    (
        "rtl/npu/dpu",
        ("ew", "flying", "integers", "floats", "padded", "matrix output", "packets", "unpooling"),
    ),
    ("rtl/npu/d", ("unmapped", "registers", "chains", "reserved codes")),
    ("rtl/", ("registers", "slave", "chains", "malformed", "hangs", "field limits", "unmapped")),
)
"""Prefixes of paths, and parts of the names of related groups: these come first, and after the
first round only they continue, together with those of `ALWAYS`."""

ALWAYS = ("reserved", "waits", "hangs", "chains", "slave", "registers")
"""Parts of the names of groups that continue for every module."""

CHOOSER = '''"""Values of the design that a register exchanges: mutants of the RTL in one model."""

import os

from amaranth.hdl import Cat, Const, Mux, Signal, Value

SELECT = Signal(16, name="mutant_select", reset_less=True)
MAGIC = 0xA5C3
"""A host write of this half-word and a number, to any register, selects that mutant."""


MOST_PARTS = 2000
"""Largest number of parts of an expression that is duplicated; in a loop every round would double it."""


def small(value):
    """Whether an expression has few parts."""
    left, count = [value], 0
    while left and count <= MOST_PARTS:
        part = left.pop()
        count += 1
        left += getattr(part, "operands", None) or getattr(part, "parts", None) or ()
        left += [getattr(part, name) for name in ("value", "offset", "test") if hasattr(part, name)]
        left += [case for _, case in getattr(part, "cases", ())]
        left = [part for part in left if isinstance(part, Value)]
    return count <= MOST_PARTS


def choose(number, original, changed):
    """The original value, or while `number` is selected the changed one in the same shape."""
    value = original()
    if not isinstance(value, Value) or not len(value) or not small(value):
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
        from rkcosim.rtl.mutant import MAGIC, SELECT

        with m.If(self.s_axil_wvalid & (self.s_axil_wdata[16:] == MAGIC)):
            m.d.sync += SELECT.eq(self.s_axil_wdata[:16])
        return m
"""
"""Text that replaces the end of `elaborate` in the copy of the core."""


def choose_sites(root: Path, count: int, rng: np.random.Generator) -> list[Site]:
    """Return sites of RTL mutants in random order, none inside another one."""
    found = [site for name, source in modules(root, FOLDERS) for site in sites(name, source)]
    chosen: list[Site] = []
    for number in rng.permutation(len(found)):
        site = found[number]
        same = (other for other in chosen if other.path == site.path)
        if all(site.end <= other.start or other.end <= site.start for other in same):
            chosen.append(site)
        if len(chosen) == count:
            break
    return chosen


def order(path: str, groups: list[str], first: bool) -> list[str]:
    """Return the groups with those related to a module first; after the first round only related ones."""
    words: tuple[str, ...] = next((words for start, words in CLOSE if path.startswith(start)), ())
    near = [group for group in groups if any(word in group for word in words)]
    others = [group for group in groups if group not in near]
    return near + (others if first else [g for g in others if any(word in g for word in ALWAYS)])


class Shop:
    """A copy of the sources with mutants in it.

    Parameters
    ----------
    root, folder
        Folder of the sources, and folder of the copy.
    chosen
        Sites, numbered from 1.

    A folder that has the same mutants of the same RTL keeps its model.
    """

    def __init__(self, root: Path, folder: Path, chosen: list[Site]) -> None:
        self.folder, self.live = folder, folder / "live.txt"
        mark, ignore = folder / "mutants.json", shutil.ignore_patterns("__pycache__")
        sources = {
            str(path.relative_to(root)): path.read_text()
            for room in ("rtl", "spec")
            for path in sorted((root / room).rglob("*.py"))
        }
        wanted = json.dumps([sources, [str(site) for site in chosen], CHOOSER])
        same = mark.is_file() and mark.read_text() == wanted
        mark.unlink(missing_ok=True)
        links = (path.readlink().parts[1] for path in (root / "rkcosim").iterdir() if path.is_symlink())
        others = sorted({"rkcosim", "tools", *links} - {"rtl", "docs", "examples"})
        for name in others if same else ("rtl", *others):
            shutil.rmtree(folder / name, ignore_errors=True)
            shutil.copytree(root / name, folder / name, symlinks=True, ignore=ignore)
        if not same:
            self._change(root, chosen)
        mark.write_text(wanted)

    def _change(self, root: Path, chosen: list[Site]) -> None:
        folder = self.folder
        for path in {site.path for site in chosen}:
            mine = [(number, site) for number, site in enumerate(chosen, 1) if site.path == path]
            (folder / path).write_text(guarded((root / path).read_text(), mine))
        (folder / "rtl/mutant.py").write_text(CHOOSER)
        core = folder / "rtl/core.py"
        text = core.read_text()
        end = "\n        return m\n"
        if text.count(end) != 1:
            raise RuntimeError("rtl/core.py: the end of elaborate is not where it is expected")
        core.write_text(text.replace(end, SELECTION))
        self.live.write_text("")

    def worker(self, seed: int, most: int) -> subprocess.Popen[str]:
        """Start a worker."""
        changed = {
            "PYTHONPATH": str(self.folder),
            "PYTHONDONTWRITEBYTECODE": "1",
            "RKCOSIM_MUTANTS": str(self.live),
            "RKCOSIM_CACHE": str(self.folder / "cache"),
        }
        return subprocess.Popen(
            [sys.executable, "-m", "tools.mutation.rtl", str(seed), str(most)],
            cwd=self.folder,
            env=os.environ | changed,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def present(self) -> list[int]:
        """Return the numbers of the mutants that concern a value of the design."""
        return sorted({int(line) for line in self.live.read_text().split()})


def ask(worker: subprocess.Popen[str], number: int, path: str) -> Answer:
    """Let a worker try a mutant (0: none); return result and detail.

    Raises
    ------
    RuntimeError
        If the worker has ended.
    """
    assert worker.stdin is not None and worker.stdout is not None
    worker.stdin.write(json.dumps([number, path]) + "\n")
    worker.stdin.flush()
    for line in worker.stdout:
        if line.startswith("["):
            result, detail = json.loads(line)
            return result, detail
    raise RuntimeError("a worker of RTL mutants ended; see its messages above")


def check(
    root: Path,
    folder: Path,
    count: int,
    seed: int,
    most: int,
    workers: int,
    say: Callable[[Verdict], None],
    known: Mapping[str, Verdict] | None = None,
) -> list[Verdict]:
    """Build a model with more mutants than needed, and try `count` of those that are in it.

    `known` has verdicts of an earlier run by mutant, which are reused.

    Raises
    ------
    RuntimeError
        If the model cannot be built or differs with no mutant selected.
    """
    chosen = choose_sites(root, 2 * count, np.random.default_rng([seed, 3]))
    shop = Shop(root, folder, chosen)
    begin = time.monotonic()
    first = shop.worker(seed, most)
    result, detail = ask(first, 0, "")
    if result != SURVIVED:
        raise RuntimeError(f"the model with no mutant selected: {detail}")
    print(f"RTL model with mutants built and compared in {time.monotonic() - begin:.0f} s", flush=True)
    idle: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
    everyone = [first, *(shop.worker(seed, most) for _ in range(workers - 1))]
    for worker in everyone:
        idle.put(worker)

    def one(number: int) -> Verdict:
        site = chosen[number - 1]
        if known and str(site) in known:
            return known[str(site)]
        worker, begun = idle.get(), time.monotonic()
        try:
            result, detail = ask(worker, number, site.path)
        finally:
            idle.put(worker)
        return Verdict("rtl", site.kind, str(site), result, detail, round(time.monotonic() - begun, 1))

    verdicts = []
    try:
        with ThreadPoolExecutor(workers) as pool:
            # The order of the choice is random, and the numbers of the sites follow it.
            for verdict in pool.map(one, shop.present()[:count]):
                verdicts.append(verdict)
                say(verdict)
    finally:
        for worker in everyone:
            worker.kill()
            worker.wait()
    return verdicts


def _replay(number: int, path: str, seed: int, counts: list[int], device: Device) -> Answer:
    """Select a mutant and run conformance on it until a case finds it."""
    import importlib

    from rkcosim.spec.regs import registers
    from rkcosim.verify.conformance.groups import GROUPS, draw_case
    from rkcosim.verify.conformance.runner import Runner

    runner = Runner(device)
    if number:
        magic = importlib.import_module("rkcosim.rtl.mutant").MAGIC
        offset = registers()["PC"]["INTERRUPT_CLEAR"].offset
        device.write32(0, offset, magic << 16 | number)
    done, before = 0, 0
    end = time.monotonic() + REPLAY_SECONDS
    for count in counts:
        for group in order(path, list(GROUPS), before == 0):
            for index in range(before, count):
                done += 1
                try:
                    outcome = runner.run(draw_case(group, seed, index))
                except Exception as error:
                    problem = f"{type(error).__name__}: {error}"
                else:
                    problem = "" if outcome.ok else outcome.problem
                if not problem and time.monotonic() > end:
                    problem = f"no end within {REPLAY_SECONDS} s"
                if problem:
                    text = outcome.detail if not number else ""
                    return FOUND, f"{group} {seed}/{index}, case {done}: {problem} {text}".strip()
        before = count
    return SURVIVED, f"{done} cases"


def main(seed: int, most: int) -> None:
    """Serve as a worker until the input ends."""
    from rkcosim.engines import open_engine

    # Without waveforms, the values of the DPU would be those of its cell in C++, which has no faults.
    with open_engine(cores=1, on_diagnostic="go on", traced=True, progress=lambda line: None) as device:
        for line in sys.stdin:
            number, path = json.loads(line)
            counts = rounds(most) if number else [min(BASELINE_CASES, most)]
            found = answer(*forked(partial(_replay, number, path, seed, counts, device)))
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
