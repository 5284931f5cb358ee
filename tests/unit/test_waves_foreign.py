"""Waveforms that no engine wrote: what is decoded is what the bench says that it did.

The bench (tests/verilog/foreign_bench.v) has waits, back-to-back accesses, partial strobes, outstanding
requests, mixed read data of several ids and responses out of order, and logs every access itself.
"""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from rkcosim import waves
from rkcosim.cli.main import app
from rkcosim.regcmd import TaskBuilder, build_task_list
from rkcosim.spec.port_codes import client_name
from rkcosim.spec.regs import registers
from rkcosim.waves import Wave, WaveError
from rkcosim.waves.backends import have_pywellen
from tests import seeds
from tests.makers.foreign_bench import (
    MEMORY,
    NAMES,
    Item,
    Recorded,
    map_text,
    record,
    sampled,
)
from tests.programs import needs_program

pytestmark = needs_program("iverilog", "vvp")
PC = registers()["PC"]
READERS = ["vcdvcd", pytest.param("pywellen", marks=pytest.mark.skipif(not have_pywellen(), reason="none"))]
LITE_WIDTHS = {"awaddr": 16, "wdata": 32, "wstrb": 4, "bresp": 2, "araddr": 16, "rdata": 32, "rresp": 2}


def command(*words: str | Path) -> tuple[int, str]:
    """Return the exit code and the output of a command."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    return done.exit_code, done.output


def pc_write(name: str, **fields: int) -> Item:
    return Item("write", PC[name].offset, PC[name].encode(**fields))


def words() -> bytes:
    """Two linked lists of commands."""
    tasks = []
    for number in range(2):
        task = TaskBuilder(f"task {number}").enable("PPU", "PPU_RDMA")
        for register in ("DATA_CUBE_IN_WIDTH", "DATA_CUBE_IN_HEIGHT"):
            task.set("PPU", register, **{register: 3 + number})
        task.set("PPU_RDMA", "SRC_LINE_STRIDE", SRC_LINE_STRIDE=77)
        tasks.append(task)
    return build_task_list(tasks, MEMORY).data


def script(rng: random.Random) -> list[Item]:
    """Random accesses, then a job of one list, which the bench's traffic generator fetches whole."""
    found = [
        pc_write("INTERRUPT_MASK", int_mask=0x300),
        pc_write("BASE_ADDRESS", PC_SOURCE_ADDR=MEMORY // 16),
        pc_write("REGISTER_AMOUNTS", PC_DATA_AMOUNT=len(words()) // 16 - 1),
        pc_write("TASK_CON", TASK_NUMBER=1, TASK_PP_EN=1),
    ]
    offsets = [registers()["CNA"]["CONV_CON1"].offset, PC["INTERRUPT_STATUS"].offset, 0x3010, 0xFFFC]
    found += [
        Item(
            rng.choice(["read", "write"]),
            rng.choice(offsets),
            rng.getrandbits(32),
            rng.choice([15, 15, 15, rng.randrange(15)]),
        )
        for _ in range(60)
    ]
    found = [replace(item, strobes=15) if item.kind == "read" else item for item in found]
    found += [
        Item("responses"),
        pc_write("OPERATION_ENABLE", OP_EN=1),
        pc_write("OPERATION_ENABLE"),
        Item("irq"),
    ]
    found += [Item("read", PC["INTERRUPT_STATUS"].offset), Item("responses")]
    return [*found, pc_write("INTERRUPT_CLEAR", int_clr=0x1FFFF)]


@pytest.fixture(scope="module")
def even(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    seed = seeds.seed(f"{__name__} even", 4)
    return record(tmp_path_factory.mktemp("even"), script(random.Random(seed)), {MEMORY: words()}, seed=seed)


@pytest.fixture
def names(tmp_path: Path) -> Path:
    path = tmp_path / "ports.toml"
    path.write_text(map_text(NAMES, "board.u1."))
    return path


def check_accesses(wave: Wave, run: Recorded, directions: Sequence[str] = ("read", "write")) -> None:
    found = [
        (a.direction, a.offset, a.value, a.strobes, a.start, a.accepted, a.end, a.error)
        for a in wave.accesses()
    ]
    done = [
        (a.direction, a.address, a.value, a.strobes, a.start, a.accepted, a.end, a.response == 2)
        for a in run.accesses
        if a.direction in directions
    ]
    assert len(done) > 20 and any(strobes != 15 and error for *_, strobes, _, _, _, error in done) == (
        "write" in directions
    )
    assert sorted(found) == sorted(done)


def check_bursts(wave: Wave, run: Recorded) -> None:
    found = [
        (b.direction, b.client, b.address, b.beats, b.bytes, b.start, b.accepted, b.first_data, b.end)
        for b in wave.bursts()
    ]
    done = [
        (
            *(b.direction, client_name(b.ident, write=b.direction == "write"), b.address, b.beats, b.bytes),
            *(b.start, b.accepted, b.first_data, b.end),
        )
        for b in run.bursts
    ]
    assert len(done) == 48
    assert sorted(found) == sorted(done)


def test_the_bench_does_what_is_hard_to_decode(even: Recorded):
    """Without these cases, the tests below would show less than they say."""
    reads = [b for b in even.bursts if b.direction == "read"]
    by_request, by_end = (sorted(reads, key=lambda b, at=at: getattr(b, at)) for at in ("accepted", "end"))
    assert [b.accepted for b in by_end] != [b.accepted for b in by_request], "no response is out of order"
    assert any(
        a.first_data < b.first_data < a.end < b.end for a in reads for b in reads if a.ident != b.ident
    ), "no data are mixed"
    asked = [a for a in even.accesses if a.direction == "read"]
    assert any(a.accepted < b.accepted < a.end for a in asked for b in asked), "no reads are outstanding"
    written = sorted((a for a in even.accesses if a.direction == "write"), key=lambda a: a.accepted)
    assert any(b.accepted < a.end for a, b in pairwise(written))
    assert any(a.accepted > a.start + 2 for a in written), "no write waits"


@pytest.mark.parametrize("reader", READERS)
def test_accesses_bursts_words_and_jobs(even: Recorded, names: Path, reader: str):
    wave = waves.open(even.wave, ports=names, reader=reader)
    check_accesses(wave, even)
    check_bursts(wave, even)
    assert wave.cycles.text.startswith("clock board.u1.ref_clk, period 10 ns")
    enable = next(a for a in even.accesses if a.address == PC["OPERATION_ENABLE"].offset and a.value)
    status = next(
        a for a in even.accesses if a.start > enable.end and a.address == PC["INTERRUPT_STATUS"].offset
    )
    (clear,) = [
        a for a in even.accesses if a.address == PC["INTERRUPT_CLEAR"].offset and a.direction == "write"
    ]
    (job,) = wave.jobs()
    (task,) = job.tasks
    assert (job.start, job.status, job.cleared) == (enable.accepted, status.value, clear.accepted)
    assert job.ended_by == "irq" and max(b.end for b in even.bursts) <= job.end <= status.start
    assert b"".join(word.to_bytes(8, "little") for word in task.words) == words()
    assert task.blocks[:2] == ("PPU", "PPU_RDMA") and task.address == MEMORY
    (fetch,) = [b for b in even.bursts if b.ident == 7]
    assert (task.cycles[0], task.cycles[-1]) == (fetch.first_data, fetch.end)
    # Register writes: of the host, those with all bytes; of the list, all of its registers.
    host = [w for w in wave.register_writes() if not w.fetched]
    assert [(w.offset, w.value) for w in host] == [
        (a.address, a.value)
        for a in sorted(even.accesses, key=lambda a: a.accepted)
        if a.direction == "write" and a.strobes == 15
    ]
    stride = [w for w in wave.register_writes() if w.register == "SRC_LINE_STRIDE"]
    assert [w.fields for w in stride] == [{"SRC_LINE_STRIDE": 77}] * 2 and all(w.fetched for w in stride)
    moved = {(r.direction, r.client): 0 for r in wave.regions()}
    for region in wave.regions():
        moved[region.direction, region.client] += region.bytes
    for (direction, client), count in moved.items():
        assert count == sum(
            b.bytes
            for b in even.bursts
            if b.direction == direction and client_name(b.ident, write=direction == "write") == client
        )


def test_a_clock_that_stops_and_changes_its_period(tmp_path: Path, names: Path):
    seed = seeds.seed(f"{__name__} uneven", 9)
    run = record(tmp_path, script(random.Random(seed)), {MEMORY: words()}, seed=seed, uneven=True)
    wave = waves.open(run.wave, ports=names)
    check_accesses(wave, run)
    check_bursts(wave, run)
    assert "period 6 ns to 1" in wave.cycles.text
    # The same clock by its name, and the ports by a prefix.
    wave = waves.open(run.wave, clock="ref_clk", prefix="board.u1.accelerator")
    check_accesses(wave, run)
    # No length of a cycle fits such a clock.
    wrong = waves.open(run.wave, cycle="10ns", first_edge="8ns", prefix="board.u1.accelerator.")
    assert len(wrong.accesses()) != len(run.accesses)


def test_cycles_of_one_length(even: Recorded):
    """The reset of the bench moves the clock by 1 ns before the first access."""
    wave = waves.open(even.wave, cycle="10ns", first_edge="9 ns")
    assert wave.core_scopes == {0: "board.u1.accelerator"} and "cycles of 10 ns" in wave.cycles.text
    check_accesses(wave, even)
    check_bursts(wave, even)
    assert [w.accepted + 1 for w in wave.accesses()][:5] == [
        a.accepted for a in waves.open(even.wave, cycle=1e-8, first_edge=Fraction(-1, 10**9)).accesses()
    ][:5]


def test_names_of_the_export_need_no_option(even: Recorded):
    wave = waves.open(even.wave)
    assert wave.core_scopes == {0: "board.u1.accelerator"}
    assert wave.cycles.text.startswith("clock board.u1.accelerator.clk")
    check_accesses(wave, even)
    check_bursts(wave, even)


@needs_program("vcd2fst")
def test_fst(even: Recorded, names: Path, tmp_path: Path):
    if not have_pywellen():
        pytest.skip("needs pywellen")
    path = tmp_path / "board.fst"
    subprocess.run(["vcd2fst", "-v", str(even.wave), "-f", str(path)], check=True, capture_output=True)
    wave = waves.open(path, ports=names)
    check_accesses(wave, even)
    check_bursts(wave, even)


def channels() -> tuple[dict[str, tuple[str, str]], list[str]]:
    """Channels of an analyser on the AXI-Lite port, and the lines of the map."""
    found = {"SCK": ("board.u1.ref_clk", "0"), "INT": ("board.u1.int_n", "0")}
    lines = ['clk = "SCK"', 'irq = "~INT"']
    for port, name in NAMES.items():
        if port.startswith("s_axil_"):
            width = LITE_WIDTHS.get(port.removeprefix("s_axil_"), 1)
            found |= {f"{name}_{bit}": (f"board.u1.{name}", str(bit)) for bit in range(width)}
            lines.append(f'{port} = "{name}_{{0..{width - 1}}}"')
    return found, lines


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("times", [2.2, 2.7, 5.03])
def test_a_logic_analyser_on_the_host_bus(even: Recorded, tmp_path: Path, times: float, reader: str):
    """Samples that have nothing to do with the bus clock; each bit is a channel."""
    bits, lines = channels()
    path = sampled(even.wave, tmp_path / "la.vcd", bits, 10 / times)
    (tmp_path / "la.toml").write_text("\n".join(lines))
    wave = waves.open(path, ports=tmp_path / "la.toml", reader=reader)
    check_accesses(wave, even)
    (job,) = wave.jobs()
    assert job.ended_by == "irq" and job.registers["BASE_ADDRESS"] == MEMORY
    assert [t.address for t in job.tasks] == [MEMORY] and not job.tasks[0].words
    with pytest.raises(WaveError, match="the AXI read channels and the AXI write channels of core 0 are not"):
        wave.bursts()


@pytest.mark.parametrize("reader", READERS)
def test_a_bus_that_is_written_bit_by_bit(even: Recorded, tmp_path: Path, reader: str):
    """As `$var wire 1 ! wa [3] $end`: both readers make one signal of it."""
    bits, _ = channels()
    path = sampled(even.wave, tmp_path / "la.vcd", bits, 10 / 2.7, style="bits")
    names = {port: name for port, name in NAMES.items() if port.startswith("s_axil_")}
    lines = [map_text(names, "analyser."), 'clk = "SCK"\n']
    (tmp_path / "la.toml").write_text("".join(lines))
    wave = waves.open(path, ports=tmp_path / "la.toml", reader=reader)
    assert wave.find("analyser.wa").width == 16
    check_accesses(wave, even)


def test_a_part_of_the_bus(even: Recorded, tmp_path: Path):
    """Write channels only, without responses; the end of the job is the clearing of its interrupt."""
    needed = "awvalid awready awaddr wvalid wready wdata".split()
    names = {f"s_axil_{pin}": NAMES[f"s_axil_{pin}"] for pin in needed}
    (tmp_path / "w.toml").write_text(map_text({"clk": "ref_clk"} | names, "board.u1."))
    wave = waves.open(even.wave, ports=tmp_path / "w.toml")
    done = sorted((a for a in even.accesses if a.direction == "write"), key=lambda a: a.accepted)
    found = [(a.offset, a.value, a.start, a.accepted, a.strobes, a.end, a.error) for a in wave.accesses()]
    assert sorted(found, key=lambda a: a[3]) == [
        (a.address, a.value, a.start, a.accepted, 15, None, False) for a in done
    ]


def test_without_the_interrupt_line(tmp_path: Path):
    """The end is the first status with an event that the host has enabled."""
    raw = PC["INTERRUPT_RAW_STATUS"].offset
    steps = [
        pc_write("INTERRUPT_MASK", int_mask=0x300),
        Item("responses"),
        pc_write("OPERATION_ENABLE", OP_EN=1),
    ]
    steps += [Item("write", raw, 0x400), Item("responses"), Item("read", raw), Item("irq"), Item("responses")]
    run = record(tmp_path, [*steps, Item("read", PC["INTERRUPT_STATUS"].offset)], {})
    names = {port: name for port, name in NAMES.items() if port == "clk" or port.startswith("s_axil_")}
    (tmp_path / "w.toml").write_text(map_text(names, "board.u1."))
    wave = waves.open(run.wave, ports=tmp_path / "w.toml")
    (job,) = wave.jobs()
    other, read = (a for a in run.accesses if a.direction == "read")
    assert (other.value, read.value) == (0x400, 0x300)
    assert (job.ended_by, job.end, job.status) == ("status", read.end, 0x300)
    with pytest.raises(WaveError, match="the pin irq of core 0 is not in the waveform; trace them, or name"):
        wave.irqs()


@pytest.mark.parametrize("kind", ["accesses", "bursts"])
def test_a_waveform_that_begins_in_the_middle(even: Recorded, names: Path, tmp_path: Path, kind: str):
    """What was under way is left out, and what begins later is right, although nothing has drained."""
    whole = waves.open(even.wave, ports=names).cycles
    items = sorted((even.accesses if kind == "accesses" else even.bursts), key=lambda item: item.start)
    for place in range(5, 30, 3):
        late = items[place].start
        under_way = [item for item in items if item.start < late <= item.end]
        assert place < 10 or under_way
        wave = waves.open(from_time(even.wave, tmp_path / "late.vcd", whole.time(late) + 2000), ports=names)
        if kind == "accesses":
            done = {
                (a.direction, a.address, a.value, a.strobes, a.start - late, a.end - late)
                for a in even.accesses
                if a.start > late
            }
            found = {(a.direction, a.offset, a.value, a.strobes, a.start, a.end) for a in wave.accesses()}
        else:
            done = {
                (b.direction, b.address, b.bytes, b.start - late, b.first_data - late, b.end - late)
                for b in even.bursts
                if b.start > late
            }
            found = {(b.direction, b.address, b.bytes, b.start, b.first_data, b.end) for b in wave.bursts()}
        assert done and done <= found


def from_time(wave: Path, out: Path, time: int) -> Path:
    """Write a VCD file without what is before a time."""
    head, _, body = wave.read_text(encoding="utf-8").partition("$enddefinitions $end\n")
    values: dict[str, str] = {}
    kept: list[str] = []
    now = 0
    for line in body.splitlines():
        if line.startswith("#"):
            now = int(line[1:])
        if now >= time:
            kept.append(line)
        elif line[:1] in "01xz":
            values[line[1:]] = line
        elif line[:1] == "b":
            values[line.split()[1]] = line
    out.write_text(
        "\n".join([f"{head}$enddefinitions $end", f"#{time}", *values.values(), *kept]) + "\n",
        encoding="utf-8",
    )
    return out


def test_a_start_without_command_lists(tmp_path: Path, names: Path):
    """The host writes the registers of a block and starts it, twice."""
    ppu, rdma = registers()["PPU"], registers()["PPU_RDMA"]
    start = [Item("write", block["OPERATION_ENABLE"].offset, 1) for block in (rdma, ppu)]
    steps = [Item("write", ppu["DATA_CUBE_IN_WIDTH"].offset, 7), *start, Item("responses")]
    steps += [pc_write("INTERRUPT_CLEAR", int_clr=0xC00), Item("responses"), *start, Item("responses")]
    run = record(tmp_path, steps, {})
    found = waves.open(run.wave, ports=names).jobs()
    assert [(job.direct, job.tasks[0].blocks, job.ended_by) for job in found] == [
        (True, ("PPU_RDMA", "PPU"), "clear"),
        (True, ("PPU_RDMA", "PPU"), ""),
    ]
    kicks = [a.accepted for a in run.accesses if a.address == rdma["OPERATION_ENABLE"].offset]
    assert [job.start for job in found] == kicks


def test_the_command(even: Recorded, tmp_path: Path):
    names = tmp_path / "ports.toml"
    names.write_text(map_text({port: name for port, name in NAMES.items() if port != "clk"}, "board.u1."))
    out = tmp_path / "found.json"
    given = [even.wave, "--map", names, "--clock", "board.osc"]
    code, text = command("waves", *given, "--list", "--json", out)
    assert code == 0
    said = f"1 core, 1 job, {len(even.accesses)} host accesses, 48 bursts, 1 interrupt"
    assert "clock board.osc, period 10 ns to 11 ns, on average 10.0" in text and said in text
    assert "writes PC.OPERATION_ENABLE OP_EN=1" in text
    assert "PPU_RDMA.SRC_LINE_STRIDE SRC_LINE_STRIDE=0x4D" in text
    found = json.loads(out.read_text())
    assert [len(found[kind]) for kind in ("jobs", "accesses", "bursts")] == [1, len(even.accesses), 48]
    starts = sorted(access["start"] for access in found["accesses"])
    assert starts == sorted(a.start for a in even.accesses)

    picture = tmp_path / "bus.svg"
    assert command("waves", *given, "--svg", picture, "--to", "60")[0] == 0
    drawn = picture.read_text()
    assert "host bus" in drawn and "awaddr" in drawn and "PC.BASE_ADDRESS" in drawn
    assert command("waves", *given, "--svg", picture, "--from", "write:PC.OPERATION_ENABLE.OP_EN=1")[0] == 0
    assert "AXI read" in picture.read_text() and ">job 0<" in picture.read_text()

    assert command("waves", *given, "--no-open")[0] == 0
    save = even.wave.with_suffix(".gtkw").read_text()
    assert "{awaddr} board.u1.wa[15:0]" in save and "core0" not in save
    state = even.wave.with_suffix(".surf.ron").read_text()
    assert 'name: "wa"' in state and '"core0"' not in state


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--clock", "board.u1.ref_clk", "--cycle", "10ns"], "leave out --cycle and --first-edge"),
        (["--cycle", "10"], "a time is a number with a unit (s, ms, us, ns, ps, fs), as 10ns; not '10'"),
        (["--cycle", "0.1ps"], "shorter than the file's unit of time"),
        (["--clock", "board.u1.refclk"], "no signal is called 'board.u1.refclk'; near: board.u1.ref_clk"),
        (["--clock", "board.u1.wa"], "the clock board.u1.wa has 16 bits"),
        (["--clock", "board.u1.rr"], "the clock board.u1.rr has 2 bits"),
        (["--prefix", "board.u2."], "with the prefix 'board.u2.' there should be"),
        (["--prefix", "board.u1.accelerator.s_"], "no group of ports is complete"),
    ],
)
def test_wrong_options(even: Recorded, words: list[str], said: str):
    code, text = command("waves", even.wave, "--list", *words)
    assert code == 2 and said in text, text


def test_a_clock_without_edges(even: Recorded, names: Path):
    names.write_text(
        names.read_text(encoding="utf-8").replace("board.u1.ref_clk", "board.uneven"), encoding="utf-8"
    )
    with pytest.raises(WaveError, match=r"the clock board\.uneven has no rising edge"):
        waves.open(even.wave, ports=names)


def test_wrong_maps(even: Recorded, names: Path):
    """One error lists everything that is missing, with similar names."""
    text = (
        names.read_text(encoding="utf-8")
        .replace("board.u1.wa_v", "board.u1.wavalid")
        .replace("u1.rd_l", "u1.rd_last")
    )
    names.write_text(
        "".join(line for line in text.splitlines(True) if "s_axil_wready" not in line), encoding="utf-8"
    )
    with pytest.raises(WaveError) as caught:
        waves.open(even.wave, ports=names)
    said = str(caught.value)
    assert said.startswith(f"{names}: {even.wave} does not have what the map of ports needs:\n")
    assert "s_axil_awvalid: no signal is called 'board.u1.wavalid'; near: " in said
    assert "m_axi_rlast: no signal is called 'board.u1.rd_last'; near: board.u1.rd_" in said
    assert "core 0: register writes of the host need the ports s_axil_wready too" in said


def test_a_listing_with_the_cycles_of_a_waveform_of_the_bus(even: Recorded, tmp_path: Path, names: Path):
    """`regcmd dump --events`: words in the cycles in which they arrive, and the job between them."""
    stream = tmp_path / "words.bin"
    stream.write_bytes(words())
    code, text = command("regcmd", "dump", stream, "--events", even.wave, "--map", names)
    assert code == 0, text
    fetch = next(b for b in even.bursts if b.ident == 7)
    kick = next(a for a in even.accesses if a.address == PC["OPERATION_ENABLE"].offset and a.value)
    timed = [line for line in text.splitlines() if "SRC_LINE_STRIDE=0x4D" in line or "=77" in line]
    assert timed and all(fetch.first_data <= int(line.split()[0]) <= fetch.end for line in timed)
    assert kick.accepted < fetch.first_data
    assert "job 0 ends (irq)" in text and "interrupt line rises" in text
    code, text = command("regcmd", "dump", stream, "--events", even.wave, "--clock", "board.u1.nothing")
    assert code == 2 and "no signal is called 'board.u1.nothing'" in text


def test_two_waveforms_are_compared_by_cycles(even: Recorded, tmp_path: Path):
    """A clock of twice the length gives the same cycles."""
    slow = tmp_path / "slow.vcd"
    lines = [
        f"#{2 * int(line[1:])}" if line[:1] == "#" and line[1:].isdigit() else line
        for line in even.wave.read_text().splitlines()
    ]
    slow.write_text("\n".join(lines) + "\n")
    code, text = command("diff", even.wave, slow, "--clock", "board.u1.ref_clk")
    assert code == 0, text
    code, text = command("diff", even.wave, slow, "--cycle", "10ns")
    assert code == 1, text
