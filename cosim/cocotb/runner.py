"""Runs a cocotb test module on the core or on one block, from pytest or another program.

    from rkcosim.cocotb.runner import simulate

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

import rkcosim.export
from rkcosim.base.extras import install
from rkcosim.engines import cache, toolchain, verilog
from rkcosim.engines.build import harness_folder
from rkcosim.engines.cache import Progress
from rkcosim.engines.protocol import BuildError
from rkcosim.export import designs, export_verilog
from rkcosim.export.designs import Exportable
from rkcosim.export.lists import VERILATOR_FLAGS, cell_files, visible
from rkcosim.spec.config import NpuConfig

COCOTB_FIX = install("cocotb")
ICARUS_FIX = (
    "install Icarus Verilog (Debian, Ubuntu: apt install iverilog; macOS: brew install icarus-verilog)"
)
MAKE_FIX = "Verilator's builds need it (apt install make)"
CELLS = {"verilator": ("cpp", "rtl", "none"), "icarus": ("rtl", "none")}
"""Forms of the array cell by simulator, the default one first."""

BUILD_VERSION = 2
"""Part of every key; to be incremented when this file builds something else."""


class SimulationError(AssertionError):
    """A test failed, or the simulator ended without a result; the message has the first reasons."""


@dataclass(frozen=True)
class TestResult:
    """One cocotb test: its outcome "passed", "failed" or "skipped", and the reason."""

    __test__ = False  # not a pytest test

    name: str
    outcome: str
    message: str = ""
    sim_time_ns: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class Results:
    """Results of a simulation: by test, the waveform if there is one, the log."""

    tests: dict[str, TestResult] = field(default_factory=dict)
    waves: Path | None = None
    log: Path | None = None
    folder: Path | None = None

    @property
    def passed(self) -> bool:
        """Whether there were tests and none failed."""
        return bool(self.tests) and all(t.outcome != "failed" for t in self.tests.values())


def missing(simulator: str) -> str | None:
    """Return what is missing for a simulator, as a text that says what to install; None if nothing is.

    For a skip: ``pytest.mark.skipif(missing("icarus") is not None, reason=missing("icarus") or "")``.
    """
    if simulator not in CELLS:
        raise ValueError(f"simulator must be {' or '.join(CELLS)}, not {simulator!r}")
    for package, name in (("cocotb_tools", "cocotb"), ("cocotbext", "cocotbext-axi")):
        if importlib.util.find_spec(package) is None:
            return f"{name} is not installed: {COCOTB_FIX}"
    if importlib.util.find_spec("cocotb_tools.runner") is None:
        return f"cocotb is older than 2.0: {COCOTB_FIX}"
    try:
        toolchain.yosys()
        toolchain.compiler()  # for the memory model, with Verilator also for the core
    except BuildError as error:
        return str(error)
    if simulator == "verilator" and toolchain.verilator() is None:
        return toolchain.no_verilator()
    wanted = {"verilator": {"make": MAKE_FIX}, "icarus": {"iverilog": ICARUS_FIX, "vvp": ICARUS_FIX}}
    absent = (f"no {tool} found: {fix}" for tool, fix in wanted[simulator].items() if not shutil.which(tool))
    return next(absent, None)


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
    test : path of a Python file with `@cocotb.test` functions (``__file__`` in that file), or the name of one
        or several modules.
    simulator : "verilator", or "icarus" (slow with the array cell: use `geometry` "small").
    geometry : "rk3588", "small" or an `rkcosim.spec.config.NpuConfig`.
    block : a single block ("cbuf", "dpu", ...; see `rkcosim verilog`) instead of the core.
    cell : the array cell: "cpp" (C++ with the same cycles, Verilator's default), "rtl" (Icarus's default) or
        "none": left out, for tasks without convolution, quick to compile and to load.
    waves : write a waveform: True for `waves.vcd` (Verilator) or `waves.fst` (Icarus) in `folder`, or its
        path.
    public : what Verilator shows besides the ports of the toplevel: "module" for all signals of a module,
        "module.signal" for one; `*` and `?` match any text. Icarus shows everything.
    testcase : run only these tests of the module.
    seed : seed of cocotb's random numbers.
    env : variables for the testbench.
    folder : folder for logs and waveforms; None: a new temporary folder.
    check : raise if a test fails.
    progress : called with one line for each step that takes long.

    Raises
    ------
    SimulationError
        if a test fails (with `check`) or nothing ran.
    BuildError
        if a tool is missing or fails; the message says what to install.
    ValueError
        for an argument other than those above.
    """
    __tracebackhide__ = True  # in pytest's report: the failure is in the simulation
    absent = missing(simulator)
    if absent is not None:
        raise BuildError(absent)
    config = geometry if isinstance(geometry, NpuConfig) else designs.geometry(geometry)
    item = design(block)
    kind, (modules, paths) = _cell(cell, simulator, item), _modules(test)
    place = Path(folder) if folder is not None else Path(tempfile.mkdtemp(prefix="rkcosim-cocotb-"))
    place = place.resolve()
    place.mkdir(parents=True, exist_ok=True)
    wave = _wave_file(simulator, waves, place)
    program = _program(
        simulator, item, config, kind, sorted(public), progress
    )  # takes long: after all checks
    arguments: dict[str, Any] = {}
    if wave is not None and simulator == "verilator":
        arguments["test_args"] = ["--trace-file", str(wave)]
    elif wave is not None:
        arguments["plusargs"] = [f"+dumpfile_path={wave}"]
    settings = {
        "PYTHONWARNINGS": "ignore::DeprecationWarning",  # warnings of cocotbext-axi, which a user cannot fix
        "RKCOSIM_GEOMETRY": config.name,
        **(env or {}),
    }
    from cocotb_tools.runner import get_runner

    results, log = place / "results.xml", place / "simulation.log"
    with _environment(settings, paths), contextlib.suppress(SystemExit, RuntimeError):
        get_runner(simulator).test(
            hdl_toplevel=item.module,
            hdl_toplevel_lang="verilog",
            test_module=modules,
            test_dir=place,
            build_dir=program.parent,
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


def design(block: str | None) -> Exportable:
    """Return what is simulated: a block by its name, or the core (None).

    Raises
    ------
    ValueError
        for an unknown block; names the known ones.
    """
    if block is None:
        return designs.exportable("core")
    blocks = {key: item for key, item in designs.EXPORTABLE.items() if not item.needs and key != "core"}
    if block not in blocks:
        raise ValueError(f"block must be one of {', '.join(blocks)}, or None for the core, not {block!r}")
    return blocks[block]


def _cell(cell: str | None, simulator: str, item: Exportable) -> str:
    """Return the form of the array cell; "rtl" for a design without one."""
    if cell not in (None, *CELLS["verilator"]):
        raise ValueError(f"cell must be 'cpp', 'rtl' or 'none', not {cell!r}")
    if cell == "cpp" and simulator == "icarus":
        raise ValueError("Icarus cannot simulate the array cell in C++: cell must be 'rtl' or 'none'")
    return (cell or CELLS[simulator][0]) if item.has_cell else "rtl"


def _program(
    simulator: str, item: Exportable, config: NpuConfig, cell: str, public: Sequence[str], progress: Progress
) -> Path:
    """Return what a simulator runs for a design, from the cache or compiled now."""
    key = _key(simulator, item, config, cell, public)
    name = "sim.vvp" if simulator == "icarus" else item.module
    path = cache.find(key, name, progress)
    if path is not None:
        return path
    folder = cache.cache_folder()
    with cache.locked(folder, key, progress), cache.working(folder) as work:
        path = cache.fetch(folder, key, name, progress)
        if path is None:
            begin, what = time.monotonic(), f"{item.module} ({config.name}) for {simulator}"
            progress(f"building {what} (once; kept in {folder})")
            _compile(simulator, item, config, cell, public, work, progress)
            seconds = round(time.monotonic() - begin, 1)
            facts: dict[str, object] = {"variant": what, "seconds": seconds}
            path = cache.store(folder, key, [work / "build" / name], facts) / name
            progress(f"{what} ready after {seconds:.1f} s")
    return path


def _key(simulator: str, item: Exportable, config: NpuConfig, cell: str, public: Sequence[str]) -> str:
    """Return the name in the cache, equal for equal results."""
    import cocotb
    import cocotb_tools.config

    known = verilog.rtl_hash()
    if known is None:  # files are newer than the imported code: only the Verilog itself can tell
        with tempfile.TemporaryDirectory() as folder:
            path = export_verilog(item.key, Path(folder), config=config, external_cell=cell != "rtl")
            known = hashlib.sha256(path.read_bytes()).hexdigest()
    tools = [cocotb.__version__, str(cocotb_tools.config.libs_dir), str(shutil.which("iverilog"))]
    tool = toolchain.verilator()
    if simulator == "verilator" and tool is not None:
        tools[2:] = [tool.version, toolchain.compiler().version]
    digest = hashlib.sha256(f"{BUILD_VERSION} {public} {item.key} {config!r} {cell} {known} {tools}".encode())
    digest.update(verilog.text_fingerprint())
    files = sorted(Path(str(rkcosim.export.__file__)).parent.glob("*.py"))
    for file in [*files, *(cell_files() if cell == "cpp" else ())]:
        digest.update(file.read_bytes())
    return f"cocotb-{simulator}-{item.key}-{digest.hexdigest()[:24]}"


def _compile(
    simulator: str,
    item: Exportable,
    config: NpuConfig,
    cell: str,
    public: Sequence[str],
    work: Path,
    progress: Progress,
) -> None:
    """Write the Verilog of a design into the folder `work` and compile it in `work/build`."""
    from cocotb_tools.runner import get_runner

    begin, log = time.monotonic(), work / "build.log"
    files = [export_verilog(item.key, work, config=config, external_cell=cell != "rtl")]
    cpp = []
    if cell == "cpp":
        copies = [Path(shutil.copy(source, work)) for source in cell_files()]
        files += [copy for copy in copies if copy.suffix == ".sv"]
        cpp = [copy for copy in copies if copy.suffix == ".cpp"]
    elif cell == "none":  # the empty cell for CXXRTL, without its attributes, with its outputs set to 0
        box = re.sub(r"\(\*.*?\*\) ?", "", (harness_folder() / "cell" / "npu_array_cell_box.v").read_text())
        files.append(work / "npu_array_cell_none.v")
        files[-1].write_text(box.replace("endmodule", "assign o_acc = 0; assign o_sum = 0;\nendmodule"))
    progress(f"Verilog written after {time.monotonic() - begin:.1f} s")
    flags: list[str] = []
    if simulator == "verilator":
        # Making every signal public would prevent Verilator's optimisations.
        files.insert(0, work / "ports.vlt")
        files[0].write_text(visible(item.module, item.ports(config), public))
        flags = ["--no-timing", *VERILATOR_FLAGS, *map(str, cpp)]
    (work / "bin").mkdir()
    variables = toolchain.verilator_variables(work / "bin") if simulator == "verilator" else {}
    with _environment(variables, ()):
        try:
            get_runner(simulator).build(
                sources=files,
                hdl_toplevel=item.module,
                build_dir=work / "build",
                build_args=flags,
                timescale=("1ns", "1ps"),
                waves=True,  # written only if a run requests it
                always=True,
                log_file=log,
            )
        except (RuntimeError, SystemExit) as error:
            tail = log.read_text().splitlines()[-15:] if log.exists() else []
            text = f"{simulator} cannot compile the design: {error}"
            raise BuildError("\n".join([text, *tail])) from error


@contextlib.contextmanager
def _environment(variables: dict[str, str], paths: Sequence[str]) -> Iterator[None]:
    """Set variables and module paths for a run: cocotb's runner passes on this process's environment."""
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
    """Return module names and the folders in which they are found."""
    if isinstance(test, str) and not test.endswith(".py"):
        return [name.strip() for name in test.split(",")], []
    if not isinstance(test, (str, Path)):
        return list(test), []
    path = Path(test).resolve()
    if not path.is_file():
        raise ValueError(f"no test module {path}")
    parts, folder = [path.stem], path.parent
    while (folder / "__init__.py").exists():  # a module of a package is known by its full name
        parts.insert(0, folder.name)
        folder = folder.parent
    return [".".join(parts)], [str(folder)]


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
    tests = {}
    for case in ElementTree.parse(path).getroot().iter("testcase") if path.exists() else ():
        outcome, message, name = "passed", "", case.get("name") or ""
        for kind, word in (("skipped", "skipped"), ("error", "failed"), ("failure", "failed")):
            found = case.find(kind)
            if found is not None:
                # Without pytest's explanation of the failed expression, if the test has given a text.
                outcome, message = word, (found.get("message") or found.text or "").split("\nassert ")[0]
                places = re.findall(r'File "(.+)", line (\d+)', found.text or "")
                message += f" ({places[-1][0]}:{places[-1][1]})" if places else ""
        facts = {item.get("name"): item.get("value") for item in case.iter("property")}
        length = float(facts.get("sim_time_duration") or 0)
        tests[name] = TestResult(name, outcome, message, length, float(case.get("time") or 0))
    return tests


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
