"""The runs and windows of the timing diagrams."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rkcosim import waves
from rkcosim.base import PACKAGE
from rkcosim.driver import Driver
from rkcosim.engines import open_engine
from rkcosim.waves.decode import Wave
from rkcosim.waves.wavedrom import timing_diagram
from rkcosim.waves.whole_file import whole_file

ROOT = Path(PACKAGE)
PICTURES = ROOT / "docs" / "pictures"

Window = tuple[int, int]


@dataclass(frozen=True)
class Diagram:
    """A timing diagram.

    Members
    -------
    record : makes a waveform in a folder.
    window : first and last cycle of a waveform.
    signals : patterns of the signals, in their order.
    """

    record: Callable[[Path], Path]
    window: Callable[[Wave], Window]
    signals: tuple[str, ...]


def _accesses(folder: Path) -> Path:
    from rkcosim.cocotb import simulate

    bench = Path(__file__).with_name("bench_accesses.py")
    found = simulate(
        bench, simulator="icarus", geometry="small", cell="none", folder=folder, waves=folder / "waves.fst"
    )
    assert found.waves is not None
    return found.waves


def _stream(name: str) -> Callable[[Path], Path]:
    def record(folder: Path) -> Path:
        path = folder / "waves.vcd"
        words = ["regcmd", "run", str(ROOT / "examples" / "streams" / name), "--trace", str(path)]
        subprocess.run([sys.executable, "-m", "rkcosim", *words, "-q"], cwd=folder, check=True, timeout=900)
        return path

    return record


def _co_working(folder: Path) -> Path:
    from tests.makers.co_working import MODES, Network

    path, cuts = folder / "waves.vcd", (2, 9)
    with open_engine(cores=2) as engine:
        engine.trace(path)
        net = Network(Driver(engine), cuts, 2)
        chains = [[net.part(n, core, MODES[2]) for n in range(2)] for core in range(2)]
        net.driver.submit(net.job(chains, max_cycles=200_000))
        assert net.wrong() == []
    return path


def _around(signal: str, before: int, after: int) -> Callable[[Wave], Window]:
    """Return the window around the first time that a signal becomes high."""
    return lambda wave: (wave.rises(signal)[0] - before, wave.rises(signal)[0] + after)


def _kick(wave: Wave) -> Window:
    return wave.rises("core0.PC.kick")[0] - 4, wave.rises("core0.axi.rvalid")[0] + 8


def _tasks(wave: Wave) -> Window:
    """From the start of the first task to the end of the third."""
    running = "core0.CNA.registers.running"
    return wave.rises(running)[0] - 3, wave.falls(running)[2] + 3


def _steps(wave: Wave) -> Window:
    """From the end of the first core's first task to the start of the second task on both."""
    ended = [wave.falls(f"core{core}.CORE.registers.running")[0] for core in range(2)]
    begun = [wave.rises(f"core{core}.CORE.registers.running")[1] for core in range(2)]
    return min(ended) - 3, max(begun) + 4


AXIL = "core0.AXIL.axil."
DIAGRAMS = {
    "axi-lite": Diagram(
        _accesses,
        _around("s_axil_awvalid", 2, 20),
        (
            *("s_axil_aw*[ydr]", "s_axil_w*[adby]", "s_axil_b*"),
            *("s_axil_ar*[ydr]", "s_axil_r*"),
        ),
    ),
    "kick": Diagram(
        _stream("pool.json"),
        _kick,
        (
            *(f"{AXIL}{pin}" for pin in ("awvalid", "awready", "awaddr", "wdata", "bvalid")),
            "core0.PC.kick",
            *(f"core0.axi.{pin}" for pin in ("arvalid", "arready", "arid", "araddr", "arlen")),
            *("core0.axi.rvalid", "core0.axi.rready", "core0.axi.rlast"),
        ),
    ),
    "groups": Diagram(
        _stream("digits.json"),
        _tasks,
        (
            "core0.op_enable",
            *(f"core0.CNA.registers.{name}" for name in ("enable", "running")),
            *(f"core0.CNA.registers.S_POINTER.{name}" for name in ("POINTER", "EXECUTER")),
        ),
    ),
    "interrupt": Diagram(
        _stream("pool.json"),
        lambda wave: (wave.rises("core0.irq")[0] - 4, wave.last),
        (
            "core0.PPU.registers.running",
            "core0.PC.registers.INTERRUPT_RAW_STATUS.int_raw_st",
            "core0.PC.registers.INTERRUPT_STATUS.int_st",
            "core0.irq",
            *(f"{AXIL}{pin}" for pin in ("arvalid", "araddr", "rvalid", "rdata")),
            *(f"{AXIL}{pin}" for pin in ("awvalid", "awaddr", "wdata", "bvalid")),
        ),
    ),
    "co-work": Diagram(
        _co_working,
        _steps,
        tuple(
            f"core{core}.{name}"
            for core in range(2)
            for name in ("CORE.registers.running", "step_report", "step_answer", "op_enable")
        ),
    ),
}


def recorded(name: str) -> str:
    """Record a diagram; return its document for WaveDrom."""
    diagram = DIAGRAMS[name]
    with tempfile.TemporaryDirectory(prefix="rkcosim-timing-") as folder:
        wave = waves.open(diagram.record(Path(folder)))
        first, last = diagram.window(wave)
        document = timing_diagram(wave, first=first, last=last, signals=diagram.signals)
    return json.dumps(document, indent=1) + "\n"


def picture(document: str) -> str:
    """Return a document for WaveDrom as SVG."""
    import wavedrom

    text = str(wavedrom.render(document).tostring())
    # The ink of the other pictures; the brick of a low level is called "000", which is no colour.
    text = re.sub(r'(?<!href=")#000(?:000)?\b', "#1f2328", text)
    # A background, because the lines are dark on pages of every colour.
    return re.sub(r"(<svg[^>]*>)", r'\1<rect width="100%" height="100%" fill="#ffffff"/>', text, count=1)


def write(name: str) -> None:
    """Record a diagram and write its document and its picture."""
    text = recorded(name)
    for suffix, content in (("json", text), ("svg", picture(text))):
        with whole_file(PICTURES / f"timing-{name}.{suffix}") as part:
            part.write_text(content, "utf-8")


def current(name: str) -> bool:
    """Whether the document in the documentation is that of this RTL."""
    path = PICTURES / f"timing-{name}.json"
    return path.exists() and path.read_text("utf-8") == recorded(name)
