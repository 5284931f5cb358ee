"""The core as a library that counts branches and toggles, and what its counters are about."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rkcosim.engines import build, toolchain, verilog
from rkcosim.engines.compilation import Compilation, Source
from rkcosim.engines.protocol import BuildError
from tools.coverage.annotate import Annotated, Signal, annotate
from tools.coverage.constants import constant_bits
from tools.coverage.statements import marked_statements

HERE = Path(__file__).parent
TOP = verilog.TOP
VERILATOR = (
    *("--cc", "--top-module", f"{TOP}_top", "--prefix", "Vcore", "-O3", "--no-timing", "--no-assert"),
    *("--x-assign", "fast", "--x-initial", "fast", "-Wno-fatal", "-Wno-lint", "-Wno-style"),
    *("--output-split", "20000", "--coverage-line", "--coverage-toggle", "--coverage-max-width", "100000"),
)
SETTINGS = f'{build.APART}coverage_off -file "*_top.sv"\n'
COMPILER = ("-std=c++17", "-fPIC", "-pthread", "-w", "-fno-gnu-unique")
OPTIMISE, ONCE = "-O1", "-O0"
"""Optimisation of what runs in every cycle, and of what runs once."""

VERSION = 3
"""Part of the key of a library; to be incremented when this room makes other counters of the same sources."""


@dataclass(frozen=True)
class Counters:
    """What each counter of a library is about.

    Members
    -------
    statements : a counter, the name of a branch and the positions ("file:line" each) of its statements.
    signals : pairs of the counter for bit 0 of a signal becoming 0 and the signal. Bit k has the counters 2k
        (to 0) and 2k + 1 (to 1) from there.
    size : number of counters.
    """

    statements: list[tuple[int, str, tuple[str, ...]]]
    signals: list[tuple[int, Signal]]
    size: int

    def without(self, constant: Mapping[tuple[str, str], set[int]]) -> Counters:
        """Return the same without the bits that are `constant`, by module and signal."""
        kept = []
        for counter, signal in self.signals:
            never = constant.get((signal.module, signal.name), set())
            if bits := tuple(bit for bit in signal.bits if bit not in never):
                kept.append((counter, replace(signal, bits=bits)))
        return Counters(self.statements, kept, self.size)

    def save(self, path: Path) -> None:
        """Write a file for `load`."""
        signals = [(counter, asdict(signal)) for counter, signal in self.signals]
        path.write_text(
            json.dumps({"statements": self.statements, "signals": signals, "size": self.size}),
            encoding="utf-8",
        )

    @classmethod
    def load(cls, path: Path) -> Counters:
        """Read a file of `save`."""
        kept = json.loads(path.read_text(encoding="utf-8"))
        return cls(
            [(counter, branch, tuple(places)) for counter, branch, places in kept["statements"]],
            [(counter, Signal(**{**s, "bits": tuple(s["bits"])})) for counter, s in kept["signals"]],
            kept["size"],
        )


def annotated(component: Any, top: str = TOP) -> Annotated:
    """Return the Verilog of a component with what is counted in it."""
    with marked_statements() as marks:
        rtlil = verilog.rtlil_of(component, top, sources=True)
    text = verilog.verilog_text(marks.declared(rtlil), top, sources=True, branches=True)
    return annotate(text, marks.places())


_LINE = re.compile(
    r'__vlCoverInsert\(&\(vlSymsp->__Vcoverage\[(\d+)\]\), \w+, "([^"]*)", \d+, \d+, "[^"]*", "v_\w+/\w+", '
    r'"[^"]*", "([^"]*)"'
)
_TOGGLE = re.compile(
    r'__vlCoverToggleInsert\((\d+), (\d+), \w+, &\(vlSymsp->__Vcoverage\[(\d+)\]\), \w+, "([^"]*)", \d+, '
    r'\d+, "[^"]*", "v_toggle/(\w+)", "(\w+)"'
)
_INSERT = re.compile(r"^ *vlSelf->__vlCover(?:Toggle)?Insert\(.*;\n", re.MULTILINE)


def counters_of(generated: Sequence[str], found: Annotated, file: str) -> Counters:
    """Find the counters in sources that Verilator has generated.

    Parameters
    ----------
    generated : the sources.
    found : the Verilog.
    file : its name.

    Raises
    ------
    BuildError
        if a branch with statements or a signal has no counter.
    """
    branch: dict[int, int] = {}  # line of the Verilog to counter
    toggles: dict[tuple[str, str], int] = {}
    size = 0
    for text in generated:
        for counter, name, lines in _LINE.findall(text):
            size = max(size, int(counter) + 1)
            if name == file:
                branch.update({line: int(counter) for line in _numbers(lines)})
        for low, high, counter, name, module, signal in _TOGGLE.findall(text):
            size = max(size, int(counter) + 2 * (int(high) - int(low) + 1))
            if name == file:
                toggles[_decoded(module), _decoded(signal)] = int(counter)
    statements = [(branch.get(line, -1), *marked) for line, marked in found.statements.items()]
    signals = [(toggles.get((signal.module, signal.name), -1), signal) for signal in found.signals]
    lost = [name for counter, name, _ in statements if counter < 0]
    silent = [f"{signal.module}.{signal.name}" for counter, signal in signals if counter < 0]
    if lost or silent:
        raise BuildError(
            f"{len(lost)} branches and {len(silent)} signals have no counter, such as {(lost + silent)[:5]}"
        )
    return Counters(statements, signals, size)


def prepared(generated: Path, found: Annotated, file: str) -> Counters:
    """Find the counters in Verilator's sources, and change these so that they count fast and correctly.

    Parameters
    ----------
    generated : folder of the sources.
    found, file : as for `counters_of`.
    """
    paths = sorted(generated.glob("*.cpp"))
    counters = counters_of([path.read_text() for path in paths], found, file)
    for path in paths:
        # The names of the counters are known; inserting them would take seconds at every start.
        text = _INSERT.sub("", path.read_text())
        path.write_text(text.replace("VL_COV_TOGGLE_CHG_ST_", "rk_toggled_"))
    return counters


def flags(generated: Path, include: Path) -> list[str]:
    """Return the options of the compiler for Verilator's sources in a folder."""
    found = [*COMPILER, f"-I{generated}", f"-I{include}", f"-I{include / 'vltstd'}"]
    return [
        *found,
        "-include",
        str(HERE / "toggles.h"),
        "-DVL_TIME_CONTEXT",
        "-DVM_TRACE=0",
        "-DVM_COVERAGE=1",
    ]


def _decoded(name: str) -> str:
    """Return a name of the Verilog as it was: Verilator writes a second underscore as its code."""
    return re.sub("__0([0-9A-F]{2})", lambda found: chr(int(found[1], 16)), name)


def _numbers(lines: str) -> list[int]:
    found: list[int] = []
    for part in filter(None, lines.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def key() -> str:
    """Return a hash of what the library and its counters depend on.

    Raises
    ------
    BuildError
        if the sources of the RTL changed while this process ran.
    """
    sources = verilog.rtl_hash()
    if sources is None:
        raise BuildError("a source of the RTL is newer than this process: start it again")
    words = [*VERILATOR, SETTINGS, *COMPILER, OPTIMISE, ONCE]
    digest = hashlib.sha256(f"{VERSION} {sources} {words}".encode())
    digest.update((HERE / "toggles.h").read_bytes() + verilog.text_fingerprint())
    for path in build.harness_files():
        digest.update(path.read_bytes())
    return digest.hexdigest()[:24]


def library(folder: Path, external_cell: bool, say: Callable[[str], None] = print) -> Path:
    """Return the library with counters, built now if it is not there; a build that was stopped goes on.

    Parameters
    ----------
    folder : folder of the library, `model.so`, and of its counters, `counters.json`.
    external_cell : the array cell is the one in C++, which has no counters; the rest of the core then takes a
        fraction of the time.
    say : called with one line per step.
    """
    folder = folder.resolve()
    done = folder / "model.so"
    if done.is_file() and (folder / "counters.json").is_file():
        return done
    tool = toolchain.verilator()
    if tool is None or tool.include is None:
        raise BuildError(toolchain.no_verilator())
    work = folder / "work"
    if not (folder / "counters.json").is_file():
        from rkcosim.rtl.core import NpuCore
        from rkcosim.spec.config import RK3588

        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        say("writing the Verilog")
        found = annotated(NpuCore(RK3588, external_cell=external_cell))
        (work / f"{TOP}.v").write_text(found.text)
        (work / "coverage.vlt").write_text(SETTINGS)
        files = [build.harness_folder() / f"{TOP}_top.sv"]
        files += sorted((build.harness_folder() / "cell").glob("npu_*.sv")) if external_cell else []
        for path in files:
            shutil.copy(path, work)
        say("Verilator")
        names = [*(path.name for path in files), f"{TOP}.v", "coverage.vlt"]
        tool.run([*VERILATOR, "--Mdir", "obj", *names], work)
        counters = prepared(work / "obj", found, f"{TOP}.v")
        say("bits that are constant")
        counters.without(constant_bits(found.text)).save(folder / "counters.json")
    _compile(work, tool.include, done, external_cell, say)
    shutil.rmtree(work)
    return done


def _compile(
    work: Path, include: Path, target: Path, external_cell: bool, say: Callable[[str], None]
) -> None:
    harness = build.harness_folder()
    options = [*flags(work / "obj", include), f"-I{harness}"]
    options += ["-DRKCOSIM_COVERAGE", '-DRKCOSIM_MODEL="verilator_model.h"']
    paths = sorted((work / "obj").glob("*.cpp"))
    names = ("verilated", "verilated_threads", "verilated_cov", "verilated_dpi")
    paths += [include / f"{name}.cpp" for name in names]
    if external_cell:
        options += ["-DRKCOSIM_CELL", f"-I{harness / 'cell'}"]
        boxes = sorted((harness / "cell").glob("npu_*.cpp"))
        paths += [path for path in boxes if "cxxrtl" not in path.stem]
    paths.append(harness / "api.cpp")
    objects = work / "kept"  # what was compiled before the build was stopped
    sources = [
        Source(path, options, ONCE if path.stem.endswith("__Slow") else OPTIMISE, objects / f"{path.stem}.o")
        for path in paths
    ]
    compilation = Compilation(work, lambda optimise, usual: [optimise])
    try:
        compilation.finish(sources, target, [], say, lambda text: None)
    finally:
        compilation.close()
