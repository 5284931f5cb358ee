"""The page of a run: facts, sections and notes about missing figures, put into the template."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from rkcosim.base.extras import needed
from rkcosim.engines.protocol import capabilities
from rkcosim.engines.settings import changed, words
from rkcosim.measure.perf.attribution import CAUSES, Cause
from rkcosim.measure.perf.boards.expected import (
    board_milliseconds,
    published_networks,
    submits_text,
    without_host,
)
from rkcosim.measure.report import bars, energy, eventcharts, memory, overtime, roofline, table
from rkcosim.measure.report.advice import AdviceSection
from rkcosim.measure.report.data import ReportedRun, ReportError, ReportRow, embed
from rkcosim.measure.report.figures import count, percent, short, size
from rkcosim.waves.drawing import clip
from rkcosim.waves.whole_file import whole_file

if TYPE_CHECKING:
    from rkcosim.waves.events import EventLog

NO_CYCLES = (
    "No engine measured this run: the golden model computes results and bytes, but no cycles. "
    "Run it on verilator to fill this section."
)
OLD = "The run's file does not have these figures: make it again with this version of rkcosim."
NO_TASKS = "No task ran."
NO_MACS = "Nothing in this run has MACs, so there is no array roof."


def render(
    run: ReportedRun,
    log: EventLog | None = None,
    clock: float = 1.0,
    advice: AdviceSection | None = None,
) -> str:
    """Return the page as text.

    Parameters
    ----------
    run
        The run.
    log
        Events of the same run, for the charts over time.
    clock
        Clock in GHz, for times.
    advice
        Changes that make the network faster.

    Raises
    ------
    ReportError
        If Jinja2 is missing, or the clock is not positive.
    """
    check_clock(clock)
    return template("page.html.j2").render(
        run=run,
        css=Markup(content("style.css")),
        js=Markup(content("script.js")),
        embedded=Markup(embed(run.raw)),
        tiles=_tiles(run, clock),
        facts=_facts(run, clock),
        verdict=verdict(run),
        advice=advice,
        energy=energy.section(run, clock),
        remarks=_remarks(run),
        state=str(run.raw.get("state") or ""),
        diagnostics=[str(item) for item in run.raw.get("diagnostics") or []],
        missing=(missing := _missing(run)),
        no_roofline=missing if any(row.macs for row in run.rows) or not run.measured else NO_MACS,
        overview=bars.overview(run),
        cycles=bars.cycles_chart(run),
        cycles_legend=bars.cycles_legend(),
        columns=(columns := table.columns(run)),
        groups=table.groups(columns),
        roofline=roofline.chart(run),
        roofline_legend=roofline.roofline_legend(run),
        absent=_absent(run),
        bytes=bars.bytes_chart(run),
        bytes_legend=bars.bytes_legend(run),
        overtime=_over_time(run, log),
        from_events=log is not None,
        dropped=eventcharts.dropped(log) if log is not None else "",
        memory=memory.chart(run),
        regions=eventcharts.regions(run, log) if log is not None else Markup(""),
        memory_legend=memory.memory_legend(run),
        memory_words=_memory_words(run),
        buffers=memory.table(run),
        parts=[(cause, cause.label, cause.meaning) for cause in CAUSES],
        clients=[(name, bars.CLIENTS.get(name, "")) for name in run.clients()],
    )


def write(
    path: Path,
    run: ReportedRun,
    log: EventLog | None = None,
    clock: float = 1.0,
    advice: AdviceSection | None = None,
) -> None:
    """Write the page; parameters and errors are those of `render`."""
    put(path, render(run, log, clock, advice))


def put(path: Path, page: str) -> None:
    """Write a page atomically; bytes of a file's name that are no text become `\\udc..`."""
    with whole_file(path) as part:
        part.write_text(page, encoding="utf-8", errors="backslashreplace")


def check_clock(clock: float) -> None:
    """Raise ReportError if the clock is not positive."""
    if not clock > 0:
        raise ReportError(f"the clock must be above 0 GHz, not {clock}")


def content(name: str) -> str:
    """Return a file of this package as text."""
    return (resources.files("rkcosim.measure.report") / name).read_text(encoding="utf-8")


def template(name: str) -> Any:
    """Return a page's template; raises ReportError if Jinja2 is missing."""
    with needed("jinja2", "the HTML report", ReportError):
        import jinja2
    loader = jinja2.FunctionLoader(content)
    return jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    ).get_template(name)


def _missing(run: ReportedRun) -> str:
    """Return the reason why there are no figures of cycles."""
    if not capabilities(run.engine).has_cycles:
        return NO_CYCLES
    return OLD if run.rows else NO_TASKS


def _tiles(run: ReportedRun, clock: float) -> list[tuple[str, str, str]]:
    """Return (name, value, text below it) of the most important figures."""
    of = "one inference" if run.unit == "layer" else "the stream"
    if run.samples > 1:
        of = f"one sample of {run.samples}"
    found = []
    if run.cycles is not None:
        found.append(("cycles", count(run.cycles), f"of {of}"))
        found.append(("time", duration(run.cycles / clock), f"at {clock:g} GHz"))
    macs = sum(row.macs for row in run.rows)
    if run.cycles and macs:
        worked = sum((row.utilisation or 0) * (row.cycles or 0) * (len(row.cores) or 1) for row in run.rows)
        many = f" of {run.cores} cores" if run.cores > 1 else ""
        found.append(("MAC use", percent(worked / run.cycles / run.cores), f"of the array's peak{many}"))
    busy = sum(row.counters.get("mac_slots", 0) for row in run.rows)
    all_cycles = sum(row.core_cycles or 0 for row in run.rows)
    if all_cycles:
        found.append(("array busy", percent(busy / all_cycles), "of the tasks' cycles"))
    found.append(("MACs", short(macs), "useful ones"))
    moved = sum(row.moved for row in run.rows)
    rate = f"{moved / run.cycles:.1f} of {run.dram_rate:g} B/cycle" if run.cycles else "read and written"
    found.append(("DRAM traffic", size(moved), rate))
    return found


def _facts(run: ReportedRun, clock: float) -> list[tuple[str, str]]:
    raw = run.raw
    found = [
        ("engine", f"{run.engine}, {raw['cell']} cell" if raw.get("cell") else run.engine),
        ("geometry", str(raw.get("geometry", "rk3588"))),
        ("cores", str(run.cores)),
    ]
    if raw.get("inferences"):
        found.append(("inferences", str(raw["inferences"])))
        if run.samples > 1:
            found.append(("samples of an inference", str(run.samples)))
        if run.measured and raw["inferences"] * run.samples > 1:
            found.append(("cycles of all", count(raw.get("cycles"))))
    if run.unit == "task":
        found.append(("tasks", str(len(run.rows))))
    if run.cycles is not None and clock != 1.0:
        found.append(("time at 1 GHz", duration(float(run.cycles))))
    if run.cycles is not None and run.submits:
        milliseconds = board_milliseconds(run.cycles, run.submits, 1000 * clock)
        hosted = len(raw.get("host_operators") or [])
        beside = (
            f"{submits_text(run.submits)}; {without_host(hosted)}" if hosted else submits_text(run.submits)
        )
        found.append(("time with a driver", f"{duration(1e6 * milliseconds)} ({beside})"))
        found.append(("published boards", f"took {published_networks()} than such figures"))
    if raw.get("host_seconds") is not None:
        found.append(("host time", f"{raw['host_seconds']:.1f} s"))
    if raw.get("cycles_per_second") and run.measured:
        found.append(("simulated at", f"{short(raw['cycles_per_second'])} cycles/s"))
    if raw.get("reference_agrees") is not None:
        agreeing = f"{raw['reference']}: {raw['reference_agrees']} of {raw['inferences']}"
        found.append(("same label as", agreeing))
    for output in raw.get("outputs") or []:
        if isinstance(output, dict) and output.get("reference_worst") is not None:
            steps = output.get("reference_unit") == "steps"
            worst = f"{output['reference_worst']:.3g} steps" if steps else f"{output['reference_worst']:.3%}"
            whole = output.get("reference_unit") == "elements"
            said = f"{worst} of the whole numbers" if whole else f"at most {worst}"
            found.append((f"{output.get('name')}: apart from {raw.get('reference')}", said))
    if raw.get("top1") is not None:
        found.append(("top-1", percent(raw["top1"])))
    if run.dram:
        latency = f"{run.dram.get('read_latency')} cycles to the first beat"
        found.append(("memory", f"{run.dram_rate:g} B/cycle, {latency}"))
        if other := changed(run.dram):
            found.append(("not the default memory", words(other)))
    if raw.get("status"):
        found.append(("status", str(raw["status"])))
    return found


TIME_OUT = "TimeOut"
"""`kind` of the error of a run that reached its limit of cycles."""


def verdict(run: ReportedRun) -> tuple[str, str, str]:
    """Return (class, headline, explanation) of the verdict."""
    match = run.verdict.get("match")
    error = run.raw.get("error")
    if isinstance(error, dict) and error.get("kind") != TIME_OUT:
        return "bad", "stopped", f"the run ended with an error: {error.get('text', '?')}"
    if run.raw.get("done") is False:
        return "bad", "no interrupt", "the run ended at its limit of cycles, without its interrupt"
    if match is None:
        return "unknown", "not checked", "run with --check to compare every tensor with both golden models"
    if match:
        levels = run.verdict.get("levels") or [run.engine, "task golden"]
        return "good", "match", f"bit for bit: {' = '.join(map(str, levels))}"
    inference = run.verdict.get("inference")
    where = str(run.verdict.get("first_difference", "?"))
    return "bad", "mismatch", where if inference is None else f"inference {inference}: {where}"


def _remarks(run: ReportedRun) -> list[str]:
    """Return remarkable facts as sentences."""
    rows = [row for row in run.rows if row.cycles]
    if not rows:
        return []
    found = []
    rows.sort(key=lambda row: -(row.cycles or 0))
    total, top = run.in_rows, rows[:3]
    if len(rows) > len(top):
        part = percent(sum(row.cycles or 0 for row in top) / total, 0)
        names = ", ".join(_named(row, 30) for row in top)
        found.append(f"{part} of the cycles are in {len(top)} of {len(rows)} {run.unit}s: {names}.")
    spent = run.spent()
    if sum(spent.values()):
        worst = max((cause for cause in CAUSES if cause is not Cause.ARRAY), key=lambda cause: spent[cause])
        most = max(run.rows, key=lambda row: row.spent.get(worst, 0))
        where = f"; most of it in {_named(most, 30)}" if len(rows) > 1 else ""
        share = spent[worst] / sum(spent.values())
        found.append(
            f"Besides the array, most cycles are due to {worst.label} ({worst.meaning}): {percent(share)} of "
            f"all cycles{where}."
        )
    far = [row for row in rows if row.ratio and row.formula_npu and row.target == "npu"]
    if far:
        worst_row = max(far, key=lambda row: (row.cycles or 0) - row.formula_cycles)
        gap = (worst_row.cycles or 0) - worst_row.formula_cycles
        found.append(
            f"The most cycles above the formula are in {_named(worst_row, 30)}: "
            f"{count(gap)}, ratio {worst_row.ratio:.2f}."
        )
    wide = sum(row.counters.get("mac_slots", 0) for row in run.rows)
    useful = sum(row.macs / row.peak for row in run.rows if row.peak and row.spent)
    if wide and useful and useful < 0.5 * wide:
        found.append(
            f"Busy does not mean useful: {percent(useful / wide)} of the array's capacity in busy cycles are "
            "MACs of the model; the rest are channels, kernels and pixels that the layers do not have."
        )
    if run.cycles and total < run.cycles and run.cores == 1:
        found.append(
            f"{count(run.cycles - total)} cycles ({percent((run.cycles - total) / run.cycles)}) are outside "
            f"of the {run.unit}s: at the host's start and end, and between tasks."
        )
    return found


def _named(row: ReportRow, room: int) -> str:
    return f"{clip(row.short, room)} (#{row.number})"


def _absent(run: ReportedRun) -> str:
    rows = roofline.absent(run)
    if not rows:
        return ""
    names = ", ".join(_named(row, 24) for row in rows[:12])
    return f"Not drawn, because MACs or cycles are missing: {names}{' and more' if len(rows) > 12 else ''}."


def _over_time(run: ReportedRun, log: EventLog | None) -> Markup:
    if log is not None:
        return eventcharts.charts(run, log)
    return overtime.from_tasks(run) if run.measured else Markup("")


def _memory_words(run: ReportedRun) -> str:
    known = run.raw.get("memory") or {}
    if not known or not run.buffers:
        return ""
    most, where = memory.peak_alive(run.buffers)
    text = (
        f"Weights {size(known['weights'])}, commands {size(known['commands'])}, "
        f"activations {size(known['activations'])}. At most {size(most)} of tensors are needed at once, "
        f"in {run.unit} {where}."
    )
    if known.get("activations_shared", 0) < known.get("activations", 0):
        text += (
            f" This run kept every tensor (for the check, or on request); tensors that share memory take "
            f"{size(known['activations_shared'])}."
        )
    return text


def duration(nanoseconds: float) -> str:
    """Return a time with its unit."""
    for unit, factor in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= factor:
            return f"{nanoseconds / factor:.3g} {unit}"
    return f"{nanoseconds:.0f} ns"
