"""Captures of boards: import into a stream, run, and the first difference by name."""

from __future__ import annotations

import ctypes as ct
import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from cosim.cli.main import app
from cosim.cli.regcmd_capture import _Writer
from cosim.differences.streams import tasks_of, writes_of
from cosim.golden.task import GoldenNpu
from cosim.streams.capture import CaptureError, import_capture, load_expected, save
from cosim.streams.stream import Stream
from rtl.regs import registers
from sw.compiler import compile_model
from sw.driver import Driver
from sw.driver.kernel.structs import RknpuTask
from tests.models.rknn_models import Qdq

runner = CliRunner()


def two_layers() -> bytes:
    net = Qdq()
    x = net.conv(net.input("x", (1, 20, 6, 10), zero=-3), 20, 40, scale=4.0)
    net.output(net.conv(x, 40, 24, scale=40.0), "y", (1, 24, 6, 10))
    return net.bytes()


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    """Files as a board's user would have them: the golden device plays the board."""
    model = compile_model(two_layers())
    with model.load(Driver(GoldenNpu(1))) as loaded:
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
    """A manifest with other members beside the first."""
    data = json.loads(path.read_text()) | members
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
    assert invoke("diff", stream, "--engine", "golden")[0] == 0, "a stream file knows what to expect"
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
    words = tasks_of(stream)
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
    memory = [*json.loads(capture.read_text())["memory"], {"address": "0x70000000", "size": 64}]
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


def test_overlap_and_damage(capture: Path, tmp_path: Path) -> None:
    memory = json.loads(capture.read_text())["memory"]
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
    assert Stream.load(tmp_path / "s.json").kick == stream.kick
    code, text = invoke("diff", tmp_path / "s.json", "--engine", "golden")
    assert code == 2 and "'expected' is damaged" in text
    assert invoke("regcmd", "import", bad, "-o", tmp_path / "o.json")[0] == 2
    assert not (tmp_path / "o.json").exists()


def full_disk(self: Path, text: str, *_: Any, **__: Any) -> int:
    """Instead of `Path.write_text`: half of the text, then no space."""
    with self.open("w") as file:
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
