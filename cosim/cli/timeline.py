"""`rkcosim timeline`: from an event log to a Perfetto trace."""

from __future__ import annotations

from pathlib import Path

from cosim.cli.exits import check_output, reported, write_json


def timeline_command(
    source: Path, output: Path | None, first: int, last: int | None, core: int | None, json: Path | None
) -> None:
    """Read, cut, write, and say what is in it."""
    with reported():
        from waves import events, timeline

        output = output or source.with_suffix(".pftrace")
        check_output(output)
        if last is not None and last < first:
            raise ValueError(f"--to ({last}) is before --from ({first})")
        timeline.check()
        log = events.load(source)
        there = len(log)
        if first or last is not None:
            log = log.between(first, (1 << 62) if last is None else last)
        if core is not None:
            log = log.where(core=core)
        if there and not len(log):
            raise ValueError(f"{source}: none of its {there:,} events is in that window")
        timeline.write_timeline(log, output)
        print(f"{len(log):,} events -> {output} (open it at https://ui.perfetto.dev)")
        if log.dropped:
            print(f"the log lacks events that found no room: {log.dropped}")
        if json:
            data = {"schema_version": 1, "events": log.count(), "dropped": log.dropped, "output": str(output)}
            write_json(json, data)
