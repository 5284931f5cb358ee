"""`rkcosim diff` and `rkcosim regcmd import`: captures of boards, and the first difference of two runs."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from cosim.cli.exits import DEVICE_ERROR, MISMATCH, OK, fail, reported, write_json
from cosim.cli.progress import kick


def import_command(manifest: Path, output: Path, json: Path | None) -> None:
    """Turn a capture into a stream file."""
    with reported():
        from cosim.capture import import_capture, save
        from cosim.diff import tasks_of

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


def diff_command(
    file: Path, against: Path | None, engine: str | None, exact: bool, max_cycles: int, json: Path | None
) -> None:
    """Run a stream and name the first difference from a capture, another stream or its own expectation."""
    with reported():
        from cosim.capture import Expected
        from cosim.cli.regcmd import _device
        from cosim.crosscheck.kick import run_kick
        from cosim.diff import first_byte, first_command, first_register
        from cosim.stream import Stream

        stream = Stream.load(file)
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


def _other(file: Path, against: Path | None) -> tuple[Any, Any]:
    """(stream whose commands are compared or None, what the run is expected to give or None)."""
    import json

    from cosim.capture import import_capture, load_expected
    from cosim.stream import Stream

    if against is None:
        expected = load_expected(file)
        if expected is None:
            raise ValueError(f"{file} expects nothing: give --against a capture's manifest or a stream")
        return None, expected
    try:
        data = json.loads(against.read_text())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{against}: neither a manifest nor a stream file: {error}") from error
    if isinstance(data, dict) and "regions" in data:
        return Stream.load(against), load_expected(against)
    return import_capture(against)


def _run_other(other: Any, engine: str | None, exact: bool, max_cycles: int) -> Any:
    """Memory of the other stream after its own run."""
    from cosim.capture import Expected
    from cosim.cli.regcmd import _device
    from cosim.crosscheck.kick import run_kick
    from cosim.stream import Region

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
