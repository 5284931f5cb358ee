"""`rkcosim diff` and `rkcosim regcmd import`: captures of boards, and the first difference of two runs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cosim.cli.exits import DEVICE_ERROR, MISMATCH, OK, fail, reported, write_json
from cosim.cli.progress import kick


def import_command(manifest: Path, output: Path, json: Path | None) -> None:
    """Turn a capture into a stream file."""
    with reported():
        from cosim.differences.streams import tasks_of
        from cosim.streams.capture import import_capture, save

        stream, expected = import_capture(manifest)
        words = tasks_of(stream)
        save(stream, expected, output)
        total = sum(region.data.size for region in stream.regions)
        print(
            f"{len(words)} tasks, {len(stream.regions)} regions with {total} bytes, "
            f"{len(expected.outputs)} outputs to compare -> {output}"
        )
        if json:
            figures = {"tasks": len(words), "regions": len(stream.regions), "bytes": total}
            figures["outputs"] = len(expected.outputs)
            write_json(json, {"schema_version": 1, "output": str(output), **figures})


if TYPE_CHECKING:
    from cosim.differences.streams import Finding

WAVES = (".vcd", ".fst")
LOGS = (".parquet", ".arrow", ".feather")


def kind_of(path: Path) -> str:
    """What a file is: "waveform", "event log", "report", "stream" or "capture".

    Raises
    ------
    ValueError
        if it is none of them.
    FileNotFoundError
    """
    import json as jsonlib

    if not path.is_file():
        raise FileNotFoundError(2, "No such file or directory", str(path))
    if path.suffix in WAVES:
        return "waveform"
    if path.suffix in LOGS:
        return "event log"
    try:
        data = jsonlib.loads(path.read_text())
    except (UnicodeDecodeError, jsonlib.JSONDecodeError) as error:
        raise ValueError(
            f"{path}: neither a stream, a manifest, a report, a log nor a waveform: {error}"
        ) from error
    members = set(data) if isinstance(data, dict) else set()
    for name, needed in (("report", "verdict"), ("stream", "regions"), ("capture", "memory")):
        if needed in members:
            return name
    return _nothing(path)


def _nothing(path: Path) -> str:
    raise ValueError(f"{path}: neither a stream file, a capture's manifest nor a report (--json of a run)")


def diff_command(
    file: Path,
    other: Path | None,
    against: Path | None,
    engine: str | None,
    exact: bool,
    max_cycles: int,
    json: Path | None,
) -> None:
    """Name the first difference of two runs, by what the files are."""
    if other is not None and against is not None:
        raise ValueError("give the second file once: as OTHER or with --against")
    second = other or against
    kinds = [kind_of(path) for path in (file, second) if path is not None]
    simple = ["stream" if kind == "capture" else kind for kind in kinds]
    if len(set(simple)) > 1:
        raise ValueError(
            f"{file} is a {kinds[0]}, {second} a {kinds[1]}: only two of a kind can be compared "
            "(a stream may stand beside a capture)"
        )
    if simple[0] == "stream":
        return _diff_streams(file, second, engine, exact, max_cycles, json)
    if second is None:
        raise ValueError(f"{file} is a {kinds[0]}: name a second one to compare with")
    finding, notes = _first(simple[0], file, second)
    data: dict[str, Any] = {"schema_version": 1, "kind": simple[0], "ours": file.name, "theirs": second.name}
    data |= {"notes": notes, "verdict": {"match": finding is None}}
    if finding is not None:
        data["verdict"] |= {"first_difference": finding.text, **finding.data}
    if json:
        write_json(json, data)
    print(f"MISMATCH: {finding.text}" if finding is not None else f"match: {file.name} and {second.name}")
    for note in notes:
        print(f"  {note}")
    raise SystemExit(OK if finding is None else MISMATCH)


def _first(kind: str, ours: Path, theirs: Path) -> tuple[Finding | None, list[str]]:
    if kind == "waveform":
        from cosim.differences.waves import first_signal

        return first_signal(ours, theirs)
    from cosim.differences.logs import first_event, first_layer

    return first_event(ours, theirs) if kind == "event log" else first_layer(ours, theirs)


def _diff_streams(
    file: Path, against: Path | None, engine: str | None, exact: bool, max_cycles: int, json: Path | None
) -> None:
    """Run a stream and name the first difference from a capture, another stream or its own expectation."""
    from cosim.cli.regcmd import _device
    from cosim.crosscheck.kick import run_kick
    from cosim.differences.streams import first_byte, first_command, first_register
    from cosim.streams.capture import Expected

    stream = _stream(file)
    other, expected = _other(file, against)
    name = against.name if against else "expected"
    finding = first_command(stream, other) if other is not None else None
    checked = ["commands"] if other is not None else []
    if finding is None:
        with closing(_device(engine, exact, "go on", stream.core + 1, False)) as device:
            stream.load_into(device.memory)
            with kick(file.name, stream.kick.tasks, device, max_cycles):
                result = run_kick(device, stream.kick, stream.core, max_cycles, stream.writes)
            if expected is None and other is not None:
                expected = _run_other(other, engine, exact, max_cycles)
            expected = expected or Expected()
            if not result.done:
                fail(f"no interrupt within {max_cycles} cycles:\n{result.state}", DEVICE_ERROR)
            finding = first_byte(stream, device.memory, expected, device.name, name)
            finding = finding or first_register(device, stream.core, expected, device.name, name)
            finding = finding and _with_cycle(finding, device, stream.core)
            checked += [region.name for region in expected.outputs]
            checked += list(expected.registers)
    data: dict[str, Any] = {"schema_version": 1, "stream": file.name, "against": name, "checked": checked}
    data["verdict"] = {"match": finding is None}
    if finding is not None:
        data["verdict"] |= {"first_difference": finding.text, **finding.data}
    if json:
        write_json(json, data)
    if finding is not None:
        print(f"MISMATCH: {finding.text}")
        raise SystemExit(MISMATCH)
    print(f"match: {', '.join(checked) or 'nothing to compare'}")
    raise SystemExit(OK)


def _with_cycle(finding: Finding, device: Any, core: int) -> Finding:
    """Say when the task ran that wrote a wrong byte, on engines that count cycles."""
    from cosim.differences.streams import Finding

    number = finding.data.get("task")
    records: list[Any] = [] if device.name == "golden" else device.task_log()
    for record in records:
        if number is not None and (record.core, record.task) == (core, number):
            data = {"start_cycle": record.start, "end_cycle": record.end}
            text = f"{finding.text}; the task ran from cycle {record.start} to {record.end}"
            return Finding(text, finding.data | data)
    return finding


def _stream(path: Path) -> Any:
    """A stream file, or the stream of a capture."""
    from cosim.streams.capture import import_capture
    from cosim.streams.stream import Stream

    return import_capture(path)[0] if kind_of(path) == "capture" else Stream.load(path)


def _other(file: Path, against: Path | None) -> tuple[Any, Any]:
    """(stream whose commands are compared or None, what the run is expected to give or None)."""
    from cosim.streams.capture import import_capture, load_expected
    from cosim.streams.stream import Stream

    if against is None:
        if kind_of(file) == "capture":
            return None, import_capture(file)[1]
        expected = load_expected(file)
        if expected is None:
            raise ValueError(f"{file} expects nothing: give --against a capture's manifest or a stream")
        return None, expected
    if kind_of(against) == "stream":
        return Stream.load(against), load_expected(against)
    return import_capture(against)


def _run_other(other: Any, engine: str | None, exact: bool, max_cycles: int) -> Any:
    """Memory of the other stream after its own run."""
    from cosim.cli.regcmd import _device
    from cosim.crosscheck.kick import run_kick
    from cosim.streams.capture import Expected
    from cosim.streams.stream import Region

    with closing(_device(engine, exact, "go on", other.core + 1, False)) as device:
        other.load_into(device.memory)
        with kick("the stream to compare with", other.kick.tasks, device, max_cycles):
            result = run_kick(device, other.kick, other.core, max_cycles, other.writes)
        if not result.done:
            fail(f"the stream to compare with: no interrupt within {max_cycles} cycles", DEVICE_ERROR)
        regions = [
            Region(r.name, r.address, device.memory.view(r.address, r.data.size).copy())
            for r in other.regions
        ]
        return Expected(regions)
