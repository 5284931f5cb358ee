"""Every source of command lists, times of their lines, and differences of logs, waveforms and reports."""

from __future__ import annotations

import io
import json
from ctypes import sizeof
from pathlib import Path

import numpy as np
import pytest

from rkcosim.cli.diff import kind_of
from rkcosim.driver.kernel.structs import RknpuTask
from rkcosim.regcmd import words_to_bytes
from rkcosim.regcmd.listing import parse_listing, program_lines
from rkcosim.spec.regs import registers
from rkcosim.verify.differences.logs import first_event, first_layer
from rkcosim.verify.differences.waves import first_signal
from rkcosim.verify.streams.sources import SourceError, open_source
from rkcosim.verify.streams.stream import Region, Stream
from rkcosim.verify.streams.timing import TimingError, align, around, interleaved, read_times
from tests.makers.long_stream import long_stream

ROOT = Path(__file__).parents[2]
POOL = ROOT / "examples" / "streams" / "pool.json"


@pytest.fixture(scope="module")
def stream() -> Stream:
    return long_stream(3, 4)


def test_a_stream_and_its_regions_survive_the_file(tmp_path: Path) -> None:
    data = np.arange(1 << 17, dtype=np.uint8) // 200
    big = Stream(Stream.load(POOL).kick, [Region("big", 0x1000, data), Region("small", 0x100000, data[:9])])
    big.save(tmp_path / "s.json")
    again = Stream.load(tmp_path / "s.json")
    assert "zlib" in (tmp_path / "s.json").read_text()
    assert all((a.data == b.data).all() for a, b in zip(big.regions, again.regions, strict=True))
    text = json.loads((tmp_path / "s.json").read_text())
    text["regions"][0]["size"] = "5"
    (tmp_path / "bad.json").write_text(json.dumps(text))
    with pytest.raises(ValueError, match="are not the 5"):
        Stream.load(tmp_path / "bad.json")


def test_words_on_the_command_line_and_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    source = open_source(["0x020100000000100c", "0081000000010008"])
    assert source.words == [0x020100000000100C, 0x0081000000010008]
    monkeypatch.setattr(
        "sys.stdin", io.TextIOWrapper(io.BytesIO(b"0x020100000000100c\n0\n"), encoding="utf-8")
    )
    assert open_source(["-"]).words == [0x020100000000100C, 0]
    with pytest.raises(SourceError, match="'nonsense' is not a 64-bit word"):
        open_source(["0x1", "nonsense"])
    with pytest.raises(FileNotFoundError):
        open_source(["nonsense"])
    with pytest.raises(SourceError, match="give a file"):
        open_source([])


def test_files_of_each_kind(stream: Stream, tmp_path: Path) -> None:
    stream.save(tmp_path / "s.json")
    source = open_source([str(tmp_path / "s.json")])
    assert source.kind == "stream" and len(source.programs[0].tasks) == 4
    text = "".join(line + "\n" for line in program_lines(source.programs[0]))
    (tmp_path / "s.txt").write_text(text)
    assert open_source([str(tmp_path / "s.txt")]).words == source.words
    (tmp_path / "s.bin").write_bytes(words_to_bytes(source.words))
    assert open_source([str(tmp_path / "s.bin")]).words == source.words
    part = open_source([str(tmp_path / "s.bin")], offset=8, count=3)
    assert part.words == source.words[1:4]
    with pytest.raises(SourceError, match="offset 3"):
        open_source([str(tmp_path / "s.bin")], offset=3)
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(SourceError, match="neither a stream file"):
        open_source([str(tmp_path / "other.json")])


def test_words_in_the_log_of_a_kernel_driver(tmp_path: Path) -> None:
    """Patched drivers print each word of a task; the lines between them are counted and not read."""
    log = tmp_path / "dmesg.txt"
    log.write_text(
        "[   12.3] RKNPU: task 0\n"
        "[   12.3] RKNPU: 0x02010000000e1004 ( op: 0201 value: 0000000e offset: 1004 )\n"
        "[   12.3] RKNPU: 0x0081000000010008 ( op: 0081 value: 00000001 offset: 0008 )\n"
    )
    source = open_source([str(log)])
    assert source.kind == "log" and source.words == [0x02010000000E1004, 0x0081000000010008]
    assert source.notes == ["1 lines of the log have no command word"]


def test_a_model_is_listed_by_layer() -> None:
    source = open_source([str(ROOT / "examples" / "digits" / "digits_int8.onnx")])
    titles = [task.title for program in source.programs for task in program.tasks]
    assert source.kind == "model" and len(titles) == 10 and all(titles)


def test_the_drivers_records(stream: Stream, tmp_path: Path) -> None:
    tasks = open_source_of(stream, tmp_path)
    records = b"".join(
        bytes(
            RknpuTask(
                enable_mask=0x1D, int_mask=0x300, regcfg_amount=len(t.words) - 4, regcmd_addr=t.address or 0
            )
        )
        for t in tasks
    )
    (tmp_path / "tasks.bin").write_bytes(records)
    bare = open_source([str(tmp_path / "tasks.bin")], records=True)
    assert len(bare.notes) == len(tasks) + 1 and not bare.programs
    commands = stream.regions[-1]
    memory = [(commands.address, commands.data.tobytes())]
    full = open_source([str(tmp_path / "tasks.bin")], records=True, memory=memory)
    assert [t.words for t in full.programs[0].tasks] == [t.words for t in tasks]
    (tmp_path / "cut.bin").write_bytes(records[: sizeof(RknpuTask) + 1])
    with pytest.raises(SourceError, match="not a whole number of task records"):
        open_source([str(tmp_path / "cut.bin")], records=True)


def open_source_of(stream: Stream, folder: Path):
    stream.save(folder / "of.json")
    return open_source([str(folder / "of.json")]).programs[0].tasks


def test_words_go_back_into_a_stream(stream: Stream, tmp_path: Path) -> None:
    tasks = open_source_of(stream, tmp_path)
    listing = parse_listing(f".task 0x{tasks[1].address:X}\nNOP\nNOP\n")
    changed = Stream.from_listing(listing, "text", stream)
    assert (stream.regions[-1].data != changed.regions[-1].data).any()
    back = Stream.from_listing(
        parse_listing(
            "".join(
                line + "\n" for line in program_lines(open_source([str(tmp_path / "of.json")]).programs[0])
            )
        ),
        "text",
        changed,
    )
    assert (back.regions[-1].data == stream.regions[-1].data).all()
    with pytest.raises(ValueError, match="do not fit the"):
        Stream.from_listing(parse_listing(".task 0xFFFFFFF0\nNOP\nNOP\nNOP"), "text", stream)
    with pytest.raises(ValueError, match=r"have no \.task line"):
        Stream.from_listing(parse_listing("NOP"), "text", stream)


# -- times -------------------------------------------------------------------------------------------


def _log(path: Path, stream: Stream, folder: Path, late: int = 0, value: int | None = None) -> Path:
    """The event log that an engine would write for the first two tasks."""
    pytest.importorskip("pyarrow")
    from rkcosim.waves.events import Event, EventLog, save

    events, cycle = [], 100
    events.append(Event("write", 50, 51, address=registers()["PC"]["TASK_CON"].offset, reason="host"))
    for index, task in enumerate(open_source_of(stream, folder)[:2]):
        for command in task.commands:
            if command.register is not None and command.register.block != "PC":
                number = command.value if value is None or command.name != "DPU.DST_BASE_ADDR" else value
                place = {"address": command.offset, "value": number, "block": command.register.block}
                events.append(Event("write", cycle, cycle + 1, task=index, job=1, reason="fetched", **place))
                cycle += 1
        events.append(Event("task", cycle + late * index, cycle + 50, task=index, job=1))
        cycle += 60
    events.append(Event("irq", cycle, cycle + 1, job=1))
    save(EventLog.of(events), path)
    return path


def test_lines_have_their_cycles_and_cycles_their_lines(stream: Stream, tmp_path: Path) -> None:
    log = _log(tmp_path / "log.parquet", stream, tmp_path)
    times = read_times(log)
    program = open_source([str(tmp_path / "of.json")]).programs[0]
    lines = align(program, times)
    first = [line for line in lines if line.task == 0 and line.cycle is not None]
    assert first[0].cycle == 100 and first[1].cycle == 101
    op = next(line for line in lines if line.command.kind == "op_enable")
    assert op.cycle == times.marks[0].cycle
    assert all(line.cycle is None for line in lines if line.task > 1)
    at, near = around(lines, 103, 2)
    assert near[at].cycle == 103 and len(near) == 5
    assert around(lines, 5, 2)[0] == -1
    both = interleaved(lines, times.marks)
    assert [m.text for m in both if not hasattr(m, "task")][:2] == ["task 0 starts", "task 0 ends"]
    other = open_source([str(POOL)]).programs[0]
    times.writes = [w for w in times.writes if w.value == -1]
    with pytest.raises(TimingError, match="none of the words"):
        align(other, times)
    with pytest.raises(TimingError, match="1 jobs, none of them has the number 3"):
        align(other, times, 3)
    with pytest.raises(TimingError, match="neither an event log nor a waveform"):
        read_times(POOL)


# -- differences -------------------------------------------------------------------------------------


def test_logs(stream: Stream, tmp_path: Path) -> None:
    a = _log(tmp_path / "a.parquet", stream, tmp_path)
    assert first_event(a, a)[0] is None
    late = first_event(a, _log(tmp_path / "late.parquet", stream, tmp_path, late=3))
    assert late[0] is not None and "same events" in late[0].text and late[0].data["task"] == 1
    value = first_event(a, _log(tmp_path / "v.parquet", stream, tmp_path, value=0x1230))[0]
    assert value is not None and value.data["register"] == "DPU.DST_BASE_ADDR"
    assert "DST_BASE_ADDR" in value.text and value.data["cycle"] > 100


def _vcd(path: Path, changes: str, extra: str = "") -> Path:
    head = "$timescale 1ns $end\n$scope module top $end\n$scope module core0 $end\n"
    head += f'$var wire 8 ! data $end\n$var wire 1 " irq $end\n{extra}$upscope $end\n$upscope $end\n'
    path.write_text(head + '$enddefinitions $end\n#0\nb0 !\n0"\n' + changes + "#50\n", encoding="utf-8")
    return path


def test_waveforms(tmp_path: Path) -> None:
    a = _vcd(tmp_path / "a.vcd", '#10\nb101 !\n#20\n1"\n')
    assert first_signal(a, a) == (None, [])
    b = _vcd(tmp_path / "b.vcd", '#10\nb101 !\n#15\nb111 !\n#20\n1"\n', "$var wire 1 # other $end\n")
    finding, notes = first_signal(a, b)
    assert finding is not None and finding.data["cycle"] == 15
    assert finding.data["signals"] == ["top.core0.data"] and "5 / 7" in finding.text
    assert notes == ["1 signals only in b.vcd, as top.core0.other"]
    late = first_signal(a, _vcd(tmp_path / "c.vcd", '#10\nb101 !\n#21\n1"\n'))[0]
    assert late is not None and late.data["cycle"] == 20


def test_reports(tmp_path: Path) -> None:
    layer = {"name": "conv1", "op": "Conv", "target": "NPU", "tasks": 1, "macs": 9, "cycles": 100}
    layer |= {"bytes_read": 1, "bytes_written": 2}
    report = {
        "verdict": {"match": True},
        "cycles": 300,
        "memory": {},
        "layers": [layer, layer | {"name": "conv2"}],
        "model": "m",
    }
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    a.write_text(json.dumps(report))
    assert first_layer(a, a) == (None, []) and kind_of(a) == "report"
    report["layers"][1]["cycles"] = 120
    report["cycles"] = 320
    b.write_text(json.dumps(report))
    finding, notes = first_layer(a, b)
    assert finding is not None and finding.text == "layer 1 (conv2) cycles: 100, against 120"
    assert notes == ["cycles: 1 layers are slower on the right, 0 faster", "cycles in all: 300, against 320"]
    report["verdict"]["match"] = False
    b.write_text(json.dumps(report))
    assert first_layer(a, b)[0].text == "verdict match: True, against False"  # type: ignore[union-attr]


def test_kinds(tmp_path: Path) -> None:
    assert kind_of(POOL) == "stream"
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(ValueError, match="is a JSON file of another kind, not a stream file"):
        kind_of(tmp_path / "x.json")
    (tmp_path / "x.vcd").write_text("")
    assert kind_of(tmp_path / "x.vcd") == "waveform"
