"""Damaged event logs, waveforms and arrays: each ends as success or in one error of its reader."""

from __future__ import annotations

import base64
import json
import random
import struct
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from rkcosim.compiler.model import TensorInfo
from rkcosim.measure.models.input_files import InputError, load_archive, load_array, load_batch
from tests import seeds
from tests.extent import extent
from tests.unit.test_timeline import example

pytest.importorskip("pyarrow", reason="needs the extra waves")
pytest.importorskip("pywellen", reason="needs the extra waves")
pytest.importorskip("perfetto", reason="needs the extra waves")

import pyarrow as pa
from pyarrow import feather, parquet

from rkcosim.base.files import GivenFileError, read_given
from rkcosim.verify.streams.stream import Stream, StreamError
from rkcosim.waves import backends, events
from rkcosim.waves.decode import open_wave
from rkcosim.waves.events import METADATA_KEY, Event, EventLog, EventsError, load, save
from rkcosim.waves.files import WaveError, inspect
from rkcosim.waves.timeline import write_timeline

ROOT = Path(__file__).resolve().parents[2]

DRAWS = """
import collections, random, resource, sys
from pathlib import Path
from rkcosim.waves.events import EventsError, load

source, seed, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
data, target, ends = source.read_bytes(), source.with_name("changed" + source.suffix), collections.Counter()
for number in range(count):
    rng, changed = random.Random(f"{seed} {number}"), bytearray(data)
    for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(len(changed))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    target.write_bytes(changed)
    print("draw", number, file=sys.stderr, flush=True)
    try:
        log = load(target)
        log.layers()
        ends["read"] += 1
    except EventsError as error:
        assert "\\n" not in str(error)
        ends["refused"] += 1
print(dict(ends))
"""


@pytest.mark.parametrize("suffix", [".arrow", ".parquet"])
def test_changed_bytes_of_event_logs(tmp_path: Path, suffix: str) -> None:
    """In a process of its own: pyarrow ends it with a signal if it trusts what it reads."""
    file = tmp_path / f"log{suffix}"
    save(example(), file)
    count = extent(60, 5000)
    done = subprocess.run(
        [sys.executable, "-c", DRAWS, file, f"{seeds.seed('events')}{suffix}", str(count)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "'refused': " in done.stdout


def table_with(**columns: object) -> pa.Table:
    """Return the table of an example with other columns."""
    table = example().to_arrow()
    for name, values in columns.items():
        table = table.set_column(table.column_names.index(name), name, pa.array(values))  # type: ignore[arg-type]
    return table


SIZE = len(example())


@pytest.mark.parametrize(
    ("column", "values", "said"),
    [
        ("block", [None] * SIZE, f"the column 'block' has {SIZE} rows without a value"),
        ("cycle", [None] * SIZE, "rows without a value"),
        ("kind", ["nonsense"] * SIZE, "no events of the kind 'nonsense'"),
        ("kind", [7] * SIZE, "the column 'kind' has no texts"),
        ("core", [300] * SIZE, "do not fit into"),
        ("core", [3] * SIZE, "event 0 has a core that does not exist"),
        ("cycle", ["a"] * SIZE, "the column 'cycle' has no whole numbers"),
        ("cycle", [1.5] * SIZE, "the column 'cycle' has no whole numbers"),
        ("end", [0] * SIZE, "has no span of cycles"),
        ("bytes", [-1] * SIZE, "a negative amount"),
        ("task", [-2] * SIZE, "no task or job"),
    ],
)
def test_tables_that_are_no_event_logs(tmp_path: Path, column: str, values: list[object], said: str) -> None:
    for file, write in (
        (tmp_path / "x.parquet", parquet.write_table),
        (tmp_path / "x.arrow", feather.write_feather),
    ):
        write(table_with(**{column: values}), str(file))
        with pytest.raises(EventsError, match=f"{file}: not a readable event log: .*{said}"):
            load(file)


@pytest.mark.parametrize("meta", [b"[]", b"{", b"\xff", b"5", b'{"dropped": 1}', b'{"dropped": {"a": "b"}}'])
def test_metadata_that_are_no_event_logs(tmp_path: Path, meta: bytes) -> None:
    table = example().to_arrow().replace_schema_metadata({METADATA_KEY: meta})
    parquet.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(EventsError, match=r"x\.parquet: not a readable event log: "):
        load(tmp_path / "x.parquet")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    save(example(), tmp_path / "x.parquet")
    assert list(load(tmp_path / "x.parquet")) == list(example())
    assert list(EventLog.of([]).checked()) == []
    assert json.loads(example().to_arrow().schema.metadata[METADATA_KEY])["schema_version"]


def test_a_run_of_centuries_is_drawn_in_few_windows(tmp_path: Path) -> None:
    end = [
        2**62 if kind == "task" else value
        for kind, value in zip(example()["kind"], example()["end"], strict=True)
    ]
    parquet.write_table(table_with(end=end), tmp_path / "x.parquet")
    write_timeline(load(tmp_path / "x.parquet"), tmp_path / "x.pftrace")
    assert (tmp_path / "x.pftrace").stat().st_size < 1 << 20


def changed(data: bytes, rng: random.Random) -> bytes:
    """Return bytes with a few changes, or a part of them."""
    made = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        made[rng.randrange(len(made))] = rng.randrange(256)
    return bytes(made[: rng.randrange(len(made))] if rng.random() < 0.2 else made)


def test_headers_of_arrays(tmp_path: Path) -> None:
    file, ends = tmp_path / "x.npy", Counter[str]()
    np.save(file, np.zeros((1, 3, 4, 4), np.float32))
    data, rng = file.read_bytes(), random.Random(seeds.seed("npy"))
    for _ in range(extent(200, 20_000)):
        file.write_bytes(changed(data[:128], rng) + data[128:])
        try:
            load_array(file)
            ends["read"] += 1
        except (InputError, GivenFileError) as error:
            assert str(file) in str(error)
            ends["refused"] += 1
    assert len(ends) == 2


VCD = """$timescale 1ns $end
$scope module top $end
$var wire 1 ! clock $end
$var wire 8 " data [7:0] $end
$var string 1 # text $end
$upscope $end
$enddefinitions $end
#0
0!
b101 "
sidle #
#5
1!
bx1 "
#10
0!
"""


@pytest.mark.parametrize("reader", ["vcdvcd", "pywellen"])
def test_damaged_waveforms(tmp_path: Path, reader: str, capfd: pytest.CaptureFixture[str]) -> None:
    """pywellen's panic is no Exception, and comes with lines on standard error; each file is a process."""
    file, ends = tmp_path / "x.vcd", Counter[str]()
    rng = random.Random(seeds.seed("vcd"))
    for _ in range(extent(300, 5000) if reader == "vcdvcd" else extent(12, 1000)):
        file.write_bytes(changed(VCD.encode(), rng))
        try:
            wave = open_wave(file, reader=reader)
            for name in wave.signals:
                wave.changes(name.name)
            ends["read"] += 1
        except WaveError as error:
            assert str(file) in str(error) or "signal" in str(error), error
            ends["refused"] += 1
    assert len(ends) == 2
    assert "panicked" not in capfd.readouterr().err


def test_a_file_costs_no_more_than_it_has(tmp_path: Path) -> None:
    """A file of a few bytes is read where 4 GiB cannot be had, and one without a size as a whole."""
    file = tmp_path / "small"
    file.write_bytes(b"small")
    text = f"""
import resource
from pathlib import Path
from rkcosim.base.files import read_given
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
assert read_given(Path({str(file)!r})) == b"small"
assert read_given(Path("/proc/self/status")).startswith(b"Name:")
"""
    assert subprocess.run([sys.executable, "-c", text], check=False).returncode == 0
    with pytest.raises(GivenFileError, match="too large: 5 bytes, at most 4 are read"):
        read_given(file, 4)
    assert read_given(file, 5) == b"small"
    with pytest.raises(GivenFileError, match="at most 4 are read"):
        read_given(Path("/proc/self/status"), 4)


def test_rows_of_event_logs_are_bounded_before_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = example().to_arrow().num_rows
    for suffix in (".arrow", ".parquet"):
        file = tmp_path / f"log{suffix}"
        save(example(), file)
        monkeypatch.setattr(events, "MOST_ROWS", rows)
        load(file)
        monkeypatch.setattr(events, "MOST_ROWS", rows - 1)
        with pytest.raises(EventsError, match=f"{file.name}.*at most {rows - 1:,} are read"):
            load(file)


def archive(file: Path, **arrays: np.ndarray) -> None:
    np.savez_compressed(file, **arrays)


def test_an_archive_of_a_wrong_shape_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    """Its data are damaged, which only unpacking would find."""
    info = TensorInfo("x", (1, 3, 8, 8), np.dtype(np.float32), 1.0, 0)
    file = tmp_path / "images.npz"
    archive(file, images=np.random.default_rng(1).normal(size=(2, 5, 64, 64)))
    data = bytearray(file.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 64] = bytes(64)
    file.write_bytes(data)
    with pytest.raises(InputError, match=r"has shape \[2, 5, 64, 64\], the model expects \[1, 3, 8, 8\]"):
        load_batch([file], [info], None)


def test_only_arrays_that_are_used_are_unpacked(tmp_path: Path) -> None:
    info = TensorInfo("x", (1, 3, 2, 2), np.dtype(np.float32), 1.0, 0)
    file = tmp_path / "images.npz"
    archive(file, images=np.ones((2, 3, 2, 2)), more=np.random.default_rng(1).normal(size=4096))
    data = file.read_bytes()
    place = data.index(b"more.npy") + 4000  # inside the second array
    file.write_bytes(data[:place] + bytes(64) + data[place + 64 :])
    assert len(load_batch([file], [info], None).items) == 2
    with pytest.raises(InputError, match="not a readable"), file.open("rb") as opened:
        load_archive(opened, str(file))
    archive(file, other=np.ones(3))
    with pytest.raises(InputError, match=r"has no array for the input 'x' \(it has: other\)"):
        load_batch([file], [info], None)


def stream(**changes: object) -> dict[str, object]:
    """Return a stream of one page, with changes of its members."""
    region = {"name": "list", "address": "0x1000", "bytes": base64.b64encode(bytes(range(16))).decode()}
    kick = {"base": "0x1000", "amount": 1, "tasks": 1, "interrupt_mask": 3}
    return {"schema_version": 1, "core": 0, "kick": kick, "writes": [], "regions": [region], **changes}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"kick": {"dma_base": 1 << 40}}, "kick.dma_base must fit 32 bits, not 0x10000000000"),
        ({"writes": [["0x8", 1 << 33]]}, r"writes\[0\] must fit 32 bits"),
        ({"core": 300}, "core must be 0, 1 or 2, not 300"),
        (
            {"regions": [region | {"name": name} for region, name in (
                ({"address": 0x1000, "bytes": base64.b64encode(bytes(8)).decode()}, "a"),
                ({"address": 0x1004, "bytes": base64.b64encode(b"\x01" * 8).decode()}, "b"),
            )]},
            "regions 'a' and 'b' give address 0x00001004 and those after it different bytes",
        ),
    ],
)  # fmt: skip
def test_numbers_of_streams_that_no_register_holds(
    tmp_path: Path, changes: dict[str, object], said: str
) -> None:
    file = tmp_path / "stream.json"
    file.write_text(json.dumps(stream(**changes)))
    with pytest.raises(StreamError, match=said):
        Stream.load(file)


def test_regions_with_the_same_bytes_may_overlap(tmp_path: Path) -> None:
    part = {"address": 0x1004, "bytes": base64.b64encode(bytes(range(4, 8))).decode()}
    made = stream()
    made["regions"] = [*made["regions"], part]  # type: ignore[misc]
    file = tmp_path / "stream.json"
    file.write_text(json.dumps(made))
    assert len(Stream.load(file).regions) == 2


def test_files_with_holes_are_judged_at_once(tmp_path: Path) -> None:
    """A hole of 2 GiB behind a header, in front of $enddefinitions, and in an FST file."""
    head = "$timescale 1ns $end $var wire 1 ! a $end $enddefinitions $end\n#1\n1!\n"
    fst = struct.pack(">BQ", 0, 329) + bytes(321)
    begin = time.monotonic()
    for name, data, said in (
        ("end.vcd", head.encode(), "no time in its last 256 MiB"),
        ("head.vcd", b"$version x $end\n", "no .enddefinitions in its first 256 MiB"),
        ("hole.fst", fst, "FST file without its end"),
    ):
        file = tmp_path / name
        with file.open("wb") as stream:
            stream.write(data)
            stream.truncate(2 << 30)
        with pytest.raises(WaveError, match=said):
            inspect(file)
    assert time.monotonic() - begin < 20


@pytest.mark.parametrize("count", [1, 20_000, 300_000])
def test_the_last_time_is_found_behind_many_changes(tmp_path: Path, count: int) -> None:
    """Its line crosses the border of two parts that are searched for some numbers of changes."""
    for more in range(0, 40, 3 if count > 20_000 else 1):
        file = tmp_path / "wave.vcd"
        changes = "1!\n" * count + "1" + "#" * more + "\n"
        file.write_text(f"$enddefinitions $end\n#5\n0!\n#12345678\n{changes}")
        facts = inspect(file)
        assert (facts.first, facts.end) == (5, 12345679)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("LEAST_SPACE", 16 << 20, "x.vcd: not a readable VCD file"),
        ("LEAST_SECONDS", 0.01, "it takes more than 0 s"),
    ],
)
def test_limits_of_a_waveforms_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: float, said: str
) -> None:
    file = tmp_path / "x.vcd"
    file.write_text(VCD)
    monkeypatch.setattr(backends, name, value)
    with pytest.raises(WaveError, match=said):
        open_wave(file, reader="pywellen")


def test_a_reader_that_is_killed_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "x.vcd"
    file.write_text(VCD)
    made = backends.open_backend(file, inspect(file), "pywellen")
    process = made._backend._child  # type: ignore[attr-defined]
    process.kill()
    process.wait()
    with pytest.raises(WaveError, match=r"x\.vcd: not a readable VCD file \(its reader ends with -9"):
        made.read(made.signals)


@pytest.mark.parametrize("reader", ["vcdvcd", "pywellen"])
def test_a_time_scale_of_nothing(tmp_path: Path, reader: str) -> None:
    file = tmp_path / "x.vcd"
    file.write_text(VCD.replace("1ns", "0ns"))
    with pytest.raises(WaveError, match=r"x\.vcd: a time scale of 0 s"):
        open_wave(file, reader=reader)


def test_only_as_many_images_as_are_run_become_floats(tmp_path: Path) -> None:
    info = TensorInfo("x", (1, 1, 16, 16), np.dtype(np.float32), 1.0, 0)
    file = tmp_path / "images.npz"
    archive(file, images=np.zeros((50_000, 1, 16, 16), np.uint8), labels=np.zeros(50_000, np.int64))
    tracemalloc.start()
    found = load_batch([file], [info], 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found.items) == 3 and found.labels == [0] * 3
    assert peak < 40e6  # 12.8 MB of bytes are 51.2 MB of floats
    archive(file, images=np.zeros((5, 1, 16, 16), np.uint8), labels=np.zeros(4, np.int64))
    with pytest.raises(InputError, match="4 labels for 5 images"):
        load_batch([file], [info], None)


def test_a_layer_of_more_tasks_than_the_log_has() -> None:
    """Only the tasks of the log get its name, those of later layers the later one's."""
    rows = [Event("task", 100 * n, 100 * n + 50, core, n, 0, "PC") for core in (0, 1) for n in (0, 1, 2, 5)]
    rows += [
        Event("layer", 0, 600, 0, 1, 0, reason="all", value=(1 << 63) - 1),
        Event("layer", 200, 300, 0, 2, 0, reason="one", value=0),
        Event("layer", 0, 600, 7, 0, 0, reason="nowhere", value=3),
    ]
    found = {(span.core, span.task): span.layer for span in EventLog.of(rows).tasks()}
    assert found == {
        **{(0, 0): "", (0, 1): "all", (0, 2): "one", (0, 5): "all"},
        **{(1, n): "" for n in (0, 1, 2, 5)},
    }
