"""`rkcosim regcmd run`: a stream on RTL or the golden model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosim import progress
from cosim.cli.exits import DEVICE_ERROR, MISMATCH, OK, fail, reported, write_json
from cosim.cli.progress import kick

if TYPE_CHECKING:
    from cosim.cli.snapshots import SnapshotOptions
    from cosim.engines.library import DramConfig
    from waves.spec import TraceSpec


DEFAULTS = {"engine": None, "exact": False, "check": False, "on_diagnostic": "stop", "dram": None}
"""Options that decide what a run does, as they are where nothing is given."""


def run_command(
    file: Path,
    engine: str | None,
    exact: bool,
    check: bool,
    on_diagnostic: str,
    max_cycles: int,
    json: Path | None,
    trace: TraceSpec | None,
    html: Path | None = None,
    snapshot: SnapshotOptions | None = None,
    dram: DramConfig | None = None,
) -> None:
    """Run a stream file and say what came of it."""
    with reported():
        from cosim.cli.report import keeping, write_page
        from cosim.cli.snapshots import Run, SnapshotOptions
        from cosim.crosscheck.kick import run_kick
        from cosim.crosscheck.mismatch import wants_mismatch
        from cosim.engines.settings import changed, timing_line
        from cosim.streams.stream import Stream

        stream = Stream.load(file)
        options: dict[str, Any] = {"engine": engine, "exact": exact, "check": check}
        options |= {"on_diagnostic": on_diagnostic, "dram": dram}
        run = Run(snapshot or SnapshotOptions(), "regcmd run", file, options, DEFAULTS, trace)
        engine, exact, check, on_diagnostic, dram = (run.values[name] for name in options)
        later = wants_mismatch(trace, check)
        open_device = partial(_device, engine, exact, on_diagnostic, stream.core + 1, dram=dram)
        traced = trace is not None and not later
        with keeping(html), run.running(json), closing(open_device(traced)) as device:
            if trace and not later:
                device.trace(trace)
            stream.load_into(device.memory)
            with kick("stream", stream.kick.tasks, device, max_cycles):
                result = run_kick(device, stream.kick, stream.core, max_cycles, stream.writes)
            said = [] if engine == "golden" else [str(item) for item in device.diagnostics()]
            for line in said:
                print(f"diagnostic: {line}")
            data: dict[str, Any] = {
                "schema_version": 1,
                "stream": file.name,
                "engine": device.name,
                "tasks": stream.kick.tasks,
                "cycles": result.cycles,
                "dram_changed": changed(dram),
                "status": f"0x{result.status:05X}",
                "done": result.done,
                "state": result.state,
                "diagnostics": said,
                "verdict": {"match": None},
            }
            if result.done:
                print(f"{stream.kick.tasks} tasks, {result.cycles} cycles, status 0x{result.status:05X}")
                if timing := timing_line(dram):
                    print(timing)
                if check:
                    data["verdict"] = _check(stream, device)
                    if trace and later:
                        data["verdict"] |= _trace_mismatch(
                            stream, trace, data["verdict"], open_device, max_cycles
                        )
            if json or html:
                from cosim.streams.rows import stream_rows

                data |= stream_rows(device, stream)
            if json:
                write_json(json, data)
            if html:
                write_page(html, data, None if engine == "golden" else device.events())
            if not result.done:
                fail(f"no interrupt within {max_cycles} cycles:\n{result.state}", DEVICE_ERROR)
            run.finish()
            raise SystemExit(MISMATCH if data["verdict"]["match"] is False else OK)


def _check(stream: Any, device: Any) -> dict[str, Any]:
    """Run the stream on the golden model too and compare all its memory."""
    from cosim.crosscheck.compare import compare_images
    from cosim.crosscheck.kick import run_kick
    from cosim.golden.task import GoldenNpu

    golden = GoldenNpu(stream.core + 1)
    stream.load_into(golden.memory)
    if not run_kick(golden, stream.kick, stream.core, writes=stream.writes).done:
        print("MISMATCH: the golden model hangs where the engine does not")
        return {"match": False, "first_difference": "the golden model hangs"}
    total = 0
    for region in stream.regions:
        total += region.data.size
        first = compare_images(device.memory, golden.memory, [(region.address, region.data.size)])
        if first is not None:
            where = (
                f"region '{region.name}': {first.count} bytes differ, first at "
                f"0x{first.address:08X}: {device.name} {first.rtl}, golden {first.golden}"
            )
            print(f"MISMATCH: {where}")
            return {"match": False, "first_difference": where, "address": first.address}
    print(f"match: {device.name} = task golden in all {total} bytes of {len(stream.regions)} regions")
    return {"match": True}


def _trace_mismatch(
    stream: Any,
    trace: TraceSpec,
    verdict: dict[str, Any],
    open_device: Callable[[bool], Any],
    max_cycles: int,
) -> dict[str, Any]:
    """Run the stream again for a waveform around the write of the first wrong byte."""
    from cosim.crosscheck.kick import run_kick
    from cosim.crosscheck.mismatch import run_watched, trace_mismatch

    if "address" not in verdict:
        progress.say("no waveform: there is no wrong byte")
        return {}

    def rerun(spec: TraceSpec | None, address: int | None) -> list[int]:
        with closing(open_device(spec is not None)) as device:

            def run() -> None:
                stream.load_into(device.memory)
                run_kick(device, stream.kick, stream.core, max_cycles, stream.writes)

            return run_watched(device, spec, address, run)

    cycle, said = trace_mismatch(trace, verdict["address"], rerun)
    progress.say(said)
    return {"cycle": cycle}


def _device(
    engine: str | None,
    exact: bool,
    on_diagnostic: str,
    cores: int,
    traced: bool,
    dram: DramConfig | None = None,
) -> Any:
    if engine == "golden":
        from cosim.golden.task import GoldenNpu

        if traced:
            raise ValueError("the engine golden has no cycles, so it writes no waveform")
        return GoldenNpu(cores, strict=on_diagnostic == "stop")
    from cosim.engines.engine import open_engine

    return open_engine(
        engine,
        exact=exact,
        cores=cores,
        dram=dram,
        on_diagnostic=on_diagnostic,
        traced=traced and engine != "amaranth",
    )
