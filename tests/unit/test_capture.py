"""Captures from boards: import into a stream, run, and the first difference by name."""

from __future__ import annotations

import base64
import ctypes as ct
import errno
import json
import os
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from rkcosim.cli.main import app
from rkcosim.cli.regcmd_capture import _Writer
from rkcosim.compiler import LoadedModel, compile_model
from rkcosim.driver import Driver
from rkcosim.driver.kernel.structs import RknpuTask
from rkcosim.golden.task import GoldenNpu
from rkcosim.spec.regs import registers
from rkcosim.verify.differences.streams import walked, writes_of
from rkcosim.verify.streams.capture import CaptureError, import_capture, load_expected, save
from rkcosim.verify.streams.stream import Stream, StreamError
from tests.makers.rknn_models import Qdq

runner = CliRunner()


def two_layers() -> bytes:
    net = Qdq()
    x = net.conv(net.input("x", (1, 20, 6, 10), zero=-3), 20, 40, scale=4.0)
    net.output(net.conv(x, 40, 24, scale=40.0), "y", (1, 24, 6, 10))
    return net.bytes()


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """Files like those of a board's user: the golden device replaces the board."""
    model = compile_model(two_layers())
    with LoadedModel(model, Driver(GoldenNpu(1))) as loaded:
        x = np.random.default_rng(1).normal(size=(1, 20, 6, 10)).astype(np.float32) * 20
        loaded.set_input(0, x)
        memory = []
        for name, buffer in loaded.buffers.items():
            (tmp_path / f"{name}.bin").write_bytes(buffer.view().tobytes())
            memory.append({"name": name, "file": f"{name}.bin", "address": hex(buffer.iova)})
        job = loaded.job()
        records = b""
        for task in job.tasks:
            record = RknpuTask(
                enable_mask=task.enable_mask,
                int_mask=task.int_mask,
                regcfg_amount=task.regcfg_amount,
                regcmd_addr=task.regcmd_addr,
            )
            records += bytes(record)
        assert ct.sizeof(RknpuTask) == 40
        (tmp_path / "tasks.bin").write_bytes(records)
        loaded.run()
        outputs = []
        for tensor in ("y", model.plan.steps[0].output.name):
            root = model.graph.root(model.graph.outputs[0].value) if tensor == "y" else tensor
            place = model.plan.place(root)
            (tmp_path / f"{len(outputs)}.out").write_bytes(loaded.memory(root).tobytes())
            address = loaded.bases["activations"] + place.ref.offset
            outputs.append({"name": tensor, "file": f"{len(outputs)}.out", "address": hex(address)})
    manifest = {
        "schema_version": 1,
        "tasks": {"file": "tasks.bin"},
        "memory": memory,
        "outputs": outputs,
        "registers": {"PC.TASK_STATUS": len(job.tasks)},
    }
    path = tmp_path / "capture.json"
    path.write_text(json.dumps(manifest))
    return path


def change(path: Path, **members: Any) -> Path:
    """A manifest with other members in addition to the first."""
    data = json.loads(path.read_text(encoding="utf-8")) | members
    other = path.with_name("changed.json")
    other.write_text(json.dumps(data))
    return other


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def invoke(*args: object) -> tuple[int, str]:
    result = runner.invoke(app, [str(a) for a in args])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


def test_import_run_and_match(capture: Path, tmp_path: Path) -> None:
    stream = tmp_path / "stream.json"
    code, text = invoke("regcmd", "import", capture, "-o", stream)
    assert code == 0 and "2 tasks" in text and "2 outputs" in text
    code, text = invoke("regcmd", "run", stream, "--engine", "golden", "--check")
    assert code == 0 and "2 tasks" in text
    assert invoke("diff", stream, "--engine", "golden")[0] == 0, "a stream file contains the expected result"
    result = tmp_path / "r.json"
    code, text = invoke("diff", stream, "--against", capture, "--engine", "golden", "--json", result)
    assert code == 0 and text.startswith("match: commands, y, ")
    assert json.loads(result.read_text())["verdict"] == {"match": True}


def test_the_first_differing_surface_is_named(capture: Path, tmp_path: Path) -> None:
    stream = tmp_path / "stream.json"
    assert invoke("regcmd", "import", capture, "-o", stream)[0] == 0
    surface, row, column, byte = 1, 2, 7, 5
    flip(tmp_path / "0.out", 16 * (surface * 60 + row * 10 + column) + byte)
    result = tmp_path / "r.json"
    code, text = invoke("diff", stream, "--against", capture, "--engine", "golden", "--json", result)
    assert code == 1
    assert "output 'y': 1 of" in text and "task 1 (DPU), surface 1, row 2, column 7, channel 21 " in text
    verdict = json.loads(result.read_text())["verdict"]
    assert (verdict["match"], verdict["kind"], verdict["channel"]) == (False, "byte", 21)
    flip(tmp_path / "1.out", 16 * 3)  # an earlier task's tensor comes first
    code, text = invoke("diff", stream, "--against", capture, "--engine", "golden")
    assert code == 1 and "task 0 (DPU), surface 0, row 0, column 3, channel 0 " in text


def test_the_first_differing_register_is_named(capture: Path, tmp_path: Path) -> None:
    stream, expected = import_capture(capture)
    ours = tmp_path / "ours.json"
    save(stream, expected, ours)
    words = walked(stream)[0]
    register = registers()["DPU"]["OUT_CVT_SHIFT"]
    position = next(n for n, word in enumerate(words[1]) if word & 0xFFFF == register.offset)
    regcmd = next(region for region in stream.regions if region.name == "regcmd")
    second = words[0]
    del second
    records = RknpuTask.from_buffer_copy((tmp_path / "tasks.bin").read_bytes(), 40)
    at = records.regcmd_addr - regcmd.address + 8 * position + 2
    flip(tmp_path / "regcmd.bin", at)
    code, text = invoke("diff", ours, "--against", capture, "--engine", "golden")
    assert code == 1 and "task 1, DPU.OUT_CVT_SHIFT: 0x" in text and "(OUT_CVT_SHIFT " in text
    flip(tmp_path / "regcmd.bin", at)
    other = change(capture, registers={"PC.TASK_STATUS": 1})
    code, text = invoke("diff", ours, "--against", other, "--engine", "golden")
    assert code == 1 and "PC.TASK_STATUS: golden 0x2, changed.json 0x1 (TASK_COUNTER 2 / 1)" in text


def test_two_streams(capture: Path, tmp_path: Path) -> None:
    stream, expected = import_capture(capture)
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    stream.save(a)  # with what the capture found
    kept = load_expected(a)
    assert kept is not None and kept.registers == expected.registers
    stream.expected = None
    stream.save(a)
    assert load_expected(a) is None
    weights = next(region for region in stream.regions if region.name == "weights")
    weights.data[100:400] ^= 3
    stream.save(b)
    assert invoke("diff", a, "--against", a, "--engine", "golden")[0] == 0
    code, text = invoke("diff", a, "--against", b, "--engine", "golden")
    assert code == 1 and "task 0 (DPU)" in text
    assert invoke("diff", a, "--engine", "golden")[0] == 2
    assert len(list(writes_of(stream))) == 2 and expected.registers == {"PC.TASK_STATUS": 2}


def test_explicit_tasks_and_zero_filled_memory(capture: Path) -> None:
    first = RknpuTask.from_buffer_copy((capture.parent / "tasks.bin").read_bytes(), 0)
    tasks = {
        "address": hex(first.regcmd_addr),
        "amount": first.regcfg_amount,
        "count": 2,
        "interrupt_mask": "0x300",
    }
    memory = [
        *json.loads(capture.read_text(encoding="utf-8"))["memory"],
        {"address": "0x70000000", "size": 64},
    ]
    stream, _ = import_capture(change(capture, tasks=tasks, memory=memory))
    assert stream.kick == import_capture(capture)[0].kick
    assert stream.regions[-1].data.tolist() == [0] * 64


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "version": ({"schema_version": 2}, "schema_version must be 1"),
    "no tasks": ({"tasks": None}, "member 'tasks'"),
    "no file": ({"tasks": {"file": "none.bin"}}, "tasks.file 'none.bin'"),
    "too many tasks": ({"tasks": {"file": "tasks.bin", "count": 3}}, "are not in the file"),
    "address": ({"tasks": {"address": "x", "amount": 4}}, "tasks.address must be a number"),
    "elsewhere": ({"tasks": {"address": 64, "amount": 4}}, "in no memory file"),
    "amount": ({"tasks": {"address": 64, "amount": 1 << 30}}, "tasks.amount"),
    "memory": ({"memory": 5}, "member 'memory' must be a list"),
    "region": ({"memory": [5]}, r"memory\[0\] needs"),
    "wrap": ({"memory": [{"address": "0xFFFFFFF0", "size": 64}]}, "do not fit 32 bits"),
    "huge": ({"memory": [{"address": 0, "size": 1 << 31}]}, "too many"),
    "register": ({"registers": {"CNA.NONE": 1}}, "no such register"),
    "core": ({"core": 3}, "core must be"),
    "text": ({"core": "one"}, "core must be a number"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_manifests(capture: Path, name: str) -> None:
    members, message = BAD[name]
    with pytest.raises(CaptureError, match=message):
        import_capture(change(capture, **members))


def hostile_files(folder: Path) -> dict[str, tuple[str, str]]:
    """Names in a manifest that must not be read, each with its message."""
    outside = folder.parent / f"{folder.name}-outside"
    outside.mkdir()
    (outside / "secret.bin").write_bytes(bytes(64))
    (folder / "link.bin").symlink_to(outside / "secret.bin")
    (folder / "inner").symlink_to(outside)
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "zero").symlink_to("/dev/zero")
    os.mkfifo(folder / "fifo")
    with (folder / "sparse.bin").open("wb") as file:
        file.truncate(1 << 40)
    outer = "lies outside the manifest's folder"
    return {
        "absolute": ("/etc/hostname", outer),
        "absolute inside": (str(folder / "regcmd.bin"), outer),
        "parent": (f"../{outside.name}/secret.bin", outer),
        "parents": ("../" * 30 + "etc/hostname", outer),
        "link": ("link.bin", outer),
        "folder link": ("inner/secret.bin", outer),
        "loop": ("loop", "symbolic links"),
        "device link": ("zero", outer),
        "device": ("/dev/zero", outer),
        "fifo": ("fifo", "is a FIFO, not a regular file"),
        "folder": (".", "is a folder, not a regular file"),
        "sparse": ("sparse.bin", "1,099,511,627,776 bytes are too many"),
        "nul": ("a\0b", "not a file name"),
        "surrogate": ("\ud800", "not a file name"),
        "long": ("x" * 5000, "File name too long"),
    }


@pytest.mark.parametrize("member", ["tasks", "memory", "outputs"])
def test_hostile_file_names(capture: Path, member: str) -> None:
    for name, (file, message) in hostile_files(capture.parent).items():
        if name == "link":
            assert (capture.parent / "link.bin").read_bytes() == bytes(64)
        entry: Any = {"file": file}
        if member != "tasks":
            entry = [{"file": file, "address": "0x70000000"}]
        manifest = change(capture, **{member: entry})
        code, text = invoke("regcmd", "import", manifest, "-o", capture.parent / "out.json")
        assert code == 2 and message in text and f"{member}" in text, (name, text)
        assert not (capture.parent / "out.json").exists()


def test_links_within_the_folder_are_followed(capture: Path) -> None:
    folder = capture.parent
    (folder / "deeper").mkdir()
    (folder / "deeper" / "again.bin").symlink_to(folder / "regcmd.bin")
    memory = json.loads(capture.read_text(encoding="utf-8"))["memory"]
    for item in memory:
        if item["name"] == "regcmd":
            item["file"] = "deeper/../deeper/again.bin"
    assert import_capture(change(capture, memory=memory))[0].kick == import_capture(capture)[0].kick


def test_a_part_of_a_huge_file_is_read_alone(capture: Path) -> None:
    with (capture.parent / "sparse.bin").open("wb") as file:
        file.seek((1 << 32) - 8192)
        file.write(b"abcd")
        file.truncate(1 << 40)
    part = {"file": "sparse.bin", "offset": (1 << 32) - 8192, "size": 8, "address": "0x70000000"}
    memory = json.loads(capture.read_text(encoding="utf-8"))["memory"]
    stream, _ = import_capture(change(capture, memory=[*memory, part]))
    assert stream.regions[-1].data.tobytes() == b"abcd\0\0\0\0"


def test_sizes_are_bounded_together(capture: Path) -> None:
    half = [{"address": n << 29, "size": 1 << 29} for n in range(3)]
    code, text = invoke("regcmd", "import", change(capture, memory=half), "-o", capture.parent / "out.json")
    assert code == 2 and "memory[2]: 536,870,912 bytes are too many" in text
    bomb = {"tasks": {"address": 0, "amount": 4, "count": (1 << 32) - 1}}
    with pytest.raises(CaptureError, match=r"tasks\.count must be 1 to 4095, not 4294967295"):
        import_capture(change(capture, **bomb))


@pytest.mark.parametrize("command", [("regcmd", "import"), ("regcmd", "dump"), ("regcmd", "run"), ("diff",)])
def test_devices_and_fifos_are_not_waited_for(tmp_path: Path, command: tuple[str, ...]) -> None:
    os.mkfifo(tmp_path / "fifo")
    output = ("-o", tmp_path / "out.json") if command[-1] == "import" else ()
    for path, found in (("/dev/zero", "a device"), (tmp_path / "fifo", "a FIFO"), (tmp_path, "a folder")):
        code, text = invoke(*command, path, *output)
        assert code == 2 and f"{path}: is {found}, not a regular file" in text.replace("\n", " ")


def test_hostile_json(capture: Path, tmp_path: Path) -> None:
    deep, long = tmp_path / "deep.json", tmp_path / "long.json"
    deep.write_text("[" * 100_000)
    long.write_text('{"core": ' + "1" * 10_000 + "}")
    with (tmp_path / "large.json").open("wb") as file:
        file.truncate(1 << 40)
    for name, message in (("deep", "too deeply"), ("long", "digits"), ("large", "is too large")):
        for command in (("regcmd", "import"), ("regcmd", "run")):
            output = ("-o", tmp_path / "out.json") if command[-1] == "import" else ()
            code, text = invoke(*command, tmp_path / f"{name}.json", *output)
            assert code == 2 and message in text.replace("\n", " "), text


def test_streams_that_unpack_to_too_much(capture: Path, tmp_path: Path) -> None:
    stream, expected = import_capture(capture)
    save(stream, expected, tmp_path / "s.json")
    data = json.loads((tmp_path / "s.json").read_text())
    packed = base64.b64encode(zlib.compress(bytes(1 << 20))).decode()
    for size, message in ((1 << 31, "bytes; one more has"), (1 << 29, "are not the 536870912")):
        changed = data | {"regions": [{"name": "a", "address": "0", "zlib": packed, "size": str(size)}]}
        (tmp_path / "bomb.json").write_text(json.dumps(changed))
        with pytest.raises(StreamError, match=message):
            Stream.load(tmp_path / "bomb.json")
    changed = data | {"kick": data["kick"] | {"tasks": 1 << 20}}
    (tmp_path / "bomb.json").write_text(json.dumps(changed))
    with pytest.raises(StreamError, match=r"kick\.tasks must be at most 4095"):
        Stream.load(tmp_path / "bomb.json")


def test_overlap_and_damage(capture: Path, tmp_path: Path) -> None:
    memory = json.loads(capture.read_text(encoding="utf-8"))["memory"]
    with pytest.raises(CaptureError, match="overlap"):
        import_capture(change(capture, memory=[*memory, {**memory[0], "name": "again"}]))
    bad = tmp_path / "bad.json"
    bad.write_text("{")
    with pytest.raises(CaptureError, match="not a capture's manifest"):
        import_capture(bad)
    stream, expected = import_capture(capture)
    save(stream, expected, tmp_path / "s.json")
    data = json.loads((tmp_path / "s.json").read_text())
    data["expected"]["outputs"][0]["bytes"] = "***"
    (tmp_path / "s.json").write_text(json.dumps(data))
    with pytest.raises(StreamError, match="member 'expected' is damaged"):
        Stream.load(tmp_path / "s.json")
    code, text = invoke("diff", tmp_path / "s.json", "--engine", "golden")
    assert code == 2 and "'expected' is damaged" in text
    assert invoke("regcmd", "import", bad, "-o", tmp_path / "o.json")[0] == 2
    assert not (tmp_path / "o.json").exists()


def full_disk(self: Path, text: str, *_: Any, **__: Any) -> int:
    """Replacement for `Path.write_text`: writes half of the text, then there is no space left."""
    with self.open("w", encoding="utf-8") as file:
        file.write(text[: len(text) // 2])
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_full_disk_leaves_no_cut_stream(
    capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream, expected = import_capture(capture)
    path = tmp_path / "stream.json"
    save(stream, expected, path)
    before = path.read_bytes()
    monkeypatch.setattr(Path, "write_text", full_disk)
    with pytest.raises(OSError, match="No space left"):
        save(stream, expected, path)
    with pytest.raises(OSError, match="No space left"):
        stream.save(tmp_path / "other.json")
    assert path.read_bytes() == before
    assert sorted(item.name for item in tmp_path.glob("*.json*")) == ["capture.json", "stream.json"]


def test_capture_names_the_job_that_could_not_be_written(tmp_path: Path) -> None:
    class Job:
        job, core, kick = 3, 0, 1

        def save(self, path: Path) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    writer = _Writer(tmp_path / "out.json", None)
    writer(Job())  # type: ignore[arg-type]
    assert writer.jobs == 3 and not writer.files
    assert writer.failures == [f"job 3 could not be written to {tmp_path}/out.json: No space left on device"]
