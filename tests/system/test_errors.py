"""Programs with an error, run through the driver: messages, hangs, and the state afterwards."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import rkcosim
from rkcosim.cli.main import app
from rkcosim.driver import DriverDmaError, DriverError, DriverTimeout, Job, Task
from rkcosim.driver.core_port import CorePort, Kick
from rkcosim.engines import EVENT_NAMES, DiagnosticError, DramConfig, SocEngine
from rkcosim.engines.build import harness_folder
from rkcosim.engines.protocol import JobTimeout
from rkcosim.engines.waits import explain
from rkcosim.golden.task import GoldenNpu
from rkcosim.regcmd import TaskBuilder, pack_word, words_to_bytes
from rkcosim.spec.interrupts import masked
from rkcosim.spec.regs import registers
from rkcosim.spec.regs.events import EVENTS
from rkcosim.verify.streams.stream import Stream
from tests.makers.jobs import first_difference, golden_image, records_of_builders
from tests.makers.small_bench import BOUND, HEIGHT, NOWHERE, WIDTH, Bench, bench

R = registers()
POOL = Path(__file__).resolve().parents[2] / "examples" / "streams" / "pool.json"


def stops(tasks, code: str, register: str, value: int | None = None) -> None:
    """With "stop" the job raises the diagnostic, which names place and value; a reset frees the core."""
    with bench("stop") as b:
        with pytest.raises(DiagnosticError) as caught:
            b.submit(tasks(b))
        first = caught.value.diagnostics[0]
        assert (first.code, first.register) == (code, register), str(first)
        assert first.block == register.split(".")[0]
        if value is not None:
            assert first.value == value
        text = str(caught.value)
        assert register in text and f"{first.value:#x}" in text and "core 0" in text
        b.driver.soft_reset(1)
        b.works()


# 1. Hangs


def early_end(b: Bench) -> Job:
    """Return a list without its op-enable word."""
    words = b.pool().words()
    commands = b.driver.alloc(8 * len(words), "short list")
    commands.write(words_to_bytes([*words[:-1], 0]))
    names = R["PC"]["INTERRUPT_MASK"].fields["int_mask"].enum
    mask = names["PPU_0"] | names["PPU_1"]
    return Job([Task(commands.iova, len(words) - 4, mask, mask, b.pool().mask, name="cut off")])


def test_list_that_ends_early():
    with bench("go on") as b:
        before = b.target.read()
        with pytest.raises(DriverTimeout) as caught:
            b.driver.submit(early_end(b))
        assert b.codes() == ["BAD_COMMAND"] and b.engine.diagnostics()[0].block == "PC"
        text = str(caught.value)
        assert "core 0: task 0 (cut off) did not end" in text
        assert f"within {BOUND} cycles" in text and "op-enable" in text
        assert b.target.read() == before
        b.works()
    with bench("stop") as b:
        with pytest.raises(DiagnosticError, match=r"core 0.*PC\.") as stopped:
            b.driver.submit(early_end(b))
        assert stopped.value.diagnostics[0].code == "BAD_COMMAND"


def with_readers(b: Bench, name: str, of: TaskBuilder) -> TaskBuilder:
    """Return a convolution with the DPU_RDMA of another task."""
    task = b.conv(name).enable("CNA", "CORE", "DPU", "DPU_RDMA")
    for word in of.words()[:-4]:
        if word and word >> 48 | 1 == R["DPU_RDMA"].target:
            task.raw(word)
    return task


def flying_rdma(b: Bench) -> TaskBuilder:
    """Return a convolution with MRDMA on; no block takes its data [HW 8.6]."""
    return with_readers(b, "plain conv", b.add(use_right=False))


def unused_erdma(b: Bench) -> TaskBuilder:
    """Return a convolution with ERDMA on but EW bypassed [HW 8.6]; flying, the data would be dropped."""
    task = with_readers(b, "bypassed", b.add())
    return task.set("DPU_RDMA", "FEATURE_MODE_CFG", BURST_LEN=15, MRDMA_DISABLE=1)


def hang(b: Bench) -> list[TaskBuilder]:
    """Return two tasks; the first never ends."""
    return [unused_erdma(b), b.pool("never")]


def standing_mrdma(b: Bench) -> TaskBuilder:
    """Return the same program without FLYING_MODE: MRDMA runs unless it is disabled."""
    return flying_rdma(b).set("DPU_RDMA", "FEATURE_MODE_CFG", BURST_LEN=15)


READERS = [(flying_rdma, "plain conv"), (standing_mrdma, "plain conv"), (unused_erdma, "bypassed")]


@pytest.mark.parametrize(("make", "name"), READERS)
@pytest.mark.parametrize("core", [0, 2])
def test_reader_that_nobody_needs_hangs(make, name, core):
    with bench("go on", cores=3) as b:
        with pytest.raises(DriverTimeout) as caught:
            b.submit(make(b), b.pool("next"), core=core)
        report = caught.value.cores[0]
        assert (report.core, report.task, report.task_name) == (core, 0, name)
        assert {block for block, state in report.blocks.items() if state != "idle"} == {"DPU", "DPU_RDMA"}
        text = str(caught.value)
        assert f"within {BOUND} cycles" in text and f"core {core}: task 0 ({name}) did not end" in text
        assert "DPU_RDMA waits for the DPU to take its data" in text
        b.works(core)


@pytest.mark.parametrize(("make", "name"), READERS)
def test_reader_that_nobody_needs_hangs_the_last_task_too(make, name):
    with bench("go on") as b, pytest.raises(DriverTimeout, match="DPU_RDMA waits for the DPU"):
        b.submit(make(b))


def test_second_task_of_a_chain_is_named():
    with bench("go on") as b:
        with pytest.raises(DriverTimeout) as caught:
            b.submit(b.add("first"), unused_erdma(b), b.pool("third"))
        assert (caught.value.cores[0].task, caught.value.cores[0].task_name) == (1, "bypassed")
        b.works()


def test_only_the_core_that_hangs_is_named():
    with bench("go on", cores=3) as b:
        good = b.pool("good")
        records = records_of_builders(b.driver, [good]) + records_of_builders(b.driver, hang(b))
        job = Job(records, core_mask=3, ranges={0: (0, 1), 1: (1, 2)})
        with pytest.raises(DriverTimeout) as caught:
            b.driver.submit(job)
        assert [report.core for report in caught.value.cores] == [1]
        assert "core 0:" not in str(caught.value)
        b.works(0)
        b.works(1)


def test_a_long_timeout_costs_nothing():
    with bench("go on", cores=3) as b:
        with pytest.raises(DriverTimeout, match="6000000000 cycles"):
            b.submit(*hang(b), max_cycles=6_000_000_000)
        assert b.engine.cycle > 6_000_000_000
        assert b.engine.counters(0).evaluated < 100_000
        b.works()


def wrong_pointer(b: Bench) -> list[TaskBuilder]:
    """Return a program in which CNA runs and CORE waits for the index of another core."""
    flags = {"POINTER_PP_MODE": 1, "EXECUTER_PP_EN": 1, "POINTER_PP_EN": 1}
    return [b.conv("no core").set("CORE", "S_POINTER", CORE_INDEX=1, **flags)]


def settle(engine: SocEngine) -> None:
    """Keep all cores awake until their registers have their reset values."""
    for core in range(engine.cores):
        for _ in range(100):
            engine.read32(core, R["PC"]["VERSION"].offset)


def test_sleeping_after_a_reset_changes_nothing():
    cycles = []
    for sleep in (True, False):
        with bench("stop") as b:
            b.engine.may_sleep(sleep)
            b.engine.run(1000)
            begin = b.engine.cycle
            b.driver.write(0, "PPU", "DST_SURF_STRIDE", 0x10)
            cycles.append(b.engine.cycle - begin)
    assert cycles[0] == cycles[1]


@pytest.mark.parametrize("make", [wrong_pointer, hang])
def test_the_jump_changes_nothing(make):
    """A hanging core that is not evaluated counts its stalls and continues like one that is evaluated."""

    def story(sleep: bool) -> list:
        with bench("go on", cores=2) as b:
            b.engine.may_sleep(sleep)
            settle(b.engine)
            seen = []
            job = b.job(*make(b), core=0, max_cycles=100_000)
            with pytest.raises(DriverTimeout) as caught:
                b.driver.submit(job)
            seen += [str(caught.value), b.engine.cycle, b.engine.counters(0).events]
            settle(b.engine)
            seen += [b.submit(b.conv(), b.add(), core=core) for core in (1, 0)]
            seen += [b.engine.cycle, b.target.read(), b.engine.task_log(), b.engine.diagnostics()]
            seen += [b.engine.counters(core).bytes_read for core in (0, 1)]
            evaluated.append(b.engine.counters(0).evaluated)
            return seen

    evaluated: list[int] = []
    assert story(True) == story(False)
    assert evaluated[0] + 30_000 < evaluated[1]


def test_a_hanging_core_does_not_stop_another():
    with bench("go on", cores=2) as b:
        with pytest.raises(DriverTimeout):
            b.submit(*hang(b), core=1, max_cycles=100_000)
        kick = b.job(*hang(b), core=1)
        CorePort(b.engine, 1).start(Kick.of(*kick.tasks, 2, kick.task_base_addr, kick.pingpong))
        b.engine.run(200_000)
        before = b.engine.counters(1).evaluated
        b.works(0)
        assert b.engine.counters(1).evaluated == before
        status = R["DPU_RDMA"]["S_STATUS"]
        assert status.decode(b.engine.read32(1, status.offset))["STATUS_0"] != 0  # awake for an access
        assert b.engine.counters(1).evaluated > before


@pytest.mark.parametrize(
    ("busy", "events", "expected"),
    [
        (
            "CNA CORE DPU",
            ["stall_weight"],
            ["CNA waits for weights", "CORE waits for CNA", "DPU waits for results"],
        ),
        ("CNA DPU", [], ["CNA waits for CORE", "DPU waits for DPU_RDMA: for data, but it is not running"]),
        ("CNA DPU", ["stall_acc"], ["CNA waits for CORE, which is not at work", "DPU waits for DPU_RDMA"]),
        ("CNA CORE", ["stall_acc"], ["CNA waits for room", "CORE waits for the DPU, which is not running"]),
        (
            "CNA CORE DPU",
            ["stall_acc", "stall_dpu"],
            [
                "CNA waits for room",
                "CORE has results that the DPU",
                "DPU takes no results of CORE: it waits for",
            ],
        ),
        ("DPU DPU_RDMA", [], ["DPU waits for DPU_RDMA: for operands", "DPU_RDMA waits for the DPU"]),
        ("PPU", [], ["PPU waits for atoms of the DPU (FLYING_MODE 0), which is not running, or of PPU_RDMA"]),
        (
            "PPU PPU_RDMA",
            [],
            ["PPU waits for atoms of PPU_RDMA, or of the DPU (FLYING_MODE 0), which is not"],
        ),
        ("PPU_RDMA", [], ["PPU_RDMA waits for the PPU"]),
        ("", [], ["PC waits for an op-enable word"]),
    ],
)
def test_what_waits_for_what(busy, events, expected):
    lines = explain(busy.split(), events, False, False)
    assert len(lines) == len(expected)
    assert all(line.startswith(start) for line, start in zip(lines, expected, strict=True)), lines
    assert explain(busy.split(), events, True, False) == []


@pytest.mark.parametrize(
    ("busy", "sources", "expected"),
    [
        (
            "CNA DPU DPU_RDMA",
            {"DPU": "CORE"},
            [
                "CNA waits for CORE, which",
                "DPU waits for CORE (FLYING_MODE 0)",
                "DPU_RDMA waits for the DPU to",
            ],
        ),
        ("DPU DPU_RDMA", {"DPU": "DPU_RDMA"}, ["DPU waits for DPU_RDMA: for operands", "DPU_RDMA waits for"]),
        (
            "PPU PPU_RDMA",
            {"PPU": "DPU"},
            [
                "PPU waits for atoms of the DPU (FLYING_MODE 0), which is not",
                "PPU_RDMA waits for the PPU, which",
            ],
        ),
        (
            "PPU",
            {"PPU": "PPU_RDMA"},
            ["PPU waits for atoms of PPU_RDMA (FLYING_MODE 1), which is not running"],
        ),
        ("PPU PPU_RDMA", {"PPU": "PPU_RDMA"}, ["PPU waits for atoms of PPU_RDMA"]),
    ],
)
def test_the_registers_say_from_which_block_data_come(busy, sources, expected):
    """Two hangs: CORE left out of the op-enable word, and FLYING_MODE of the PPU changed."""
    lines = explain(busy.split(), [], False, False, sources)
    assert len(lines) == len(expected)
    assert all(line.startswith(start) for line, start in zip(lines, expected, strict=True)), lines


def test_a_hang_names_the_rule_that_its_task_breaks():
    """FLYING_MODE 0 makes the PPU wait for the DPU, which the task does not start."""
    tasks = rkcosim.TaskList.load(POOL)
    tasks[0]["PPU.OPERATION_MODE_CFG.FLYING_MODE"] = "UPSTREAM"
    with pytest.raises(JobTimeout) as failed:
        tasks.run(max_cycles=20_000)
    lines = str(failed.value).splitlines()
    assert any("PPU waits for atoms" in line and "DPU (FLYING_MODE 0)" in line for line in lines)
    assert any(line.startswith("lint: error: task 0") and "[start.partners]" in line for line in lines), lines


def test_an_event_that_the_mask_keeps_back_is_named():
    names = R["PC"]["INTERRUPT_RAW_STATUS"].fields["int_raw_st"].enum
    (line,) = masked(names["PPU_0"], names["DPU_0"] | names["DPU_1"])
    assert "(DPU_0, DPU_1) masks all" in line and "occurred: PPU_0 (raw" in line
    assert masked(0, 0x300) == [] and masked(names["DPU_0"], names["DPU_0"]) == []
    (line,) = masked(names["PPU_0"] | names["DPU_0"], names["PPU_0"], ended=10, number=10)
    assert line.startswith("all 10 tasks have ended") and "masks all events of the last task" in line
    assert masked(names["PPU_0"] | names["DPU_0"], names["PPU_0"], ended=9, number=10) == []


@pytest.mark.parametrize("engine", ["golden", None])
def test_a_masked_interrupt_is_named_in_the_text_of_the_time_out(engine: str | None, tmp_path: Path):
    stream = Stream.load(POOL)
    kick = replace(stream.kick, interrupt_mask=0x300)
    Stream(kick, stream.regions, stream.core, stream.writes).save(tmp_path / "s.json")
    words = ["regcmd", "run", str(tmp_path / "s.json"), "--max-cycles", "5000"]
    said = CliRunner().invoke(app, [*words, "--engine", engine] if engine else words)
    assert said.exit_code == 3, said.output
    assert "PC.INTERRUPT_MASK 0x300" in said.output and "occurred: " in said.output
    assert "PPU_0" in said.output.partition("occurred: ")[2]
    assert "the only task has ended, but" in said.output


def test_only_stall_events_may_stay_high():
    """The harness interprets these bits as waiting (pins.h)."""
    stalls = [n for n, name in enumerate(EVENTS) if name.startswith("stall")]
    assert stalls == [n for n, name in enumerate(EVENT_NAMES) if name.startswith("stall")]
    said = re.search(r"WAIT_EVENTS = (0x\w+);", (harness_folder() / "pins.h").read_text())
    assert said is not None and int(said[1], 16) == sum(1 << n for n in stalls)


# 2. Diagnostics: stop, or continue as silicon does


def bank_sum(b: Bench) -> TaskBuilder:
    return b.conv().set("CNA", "CBUF_CON0", DATA_BANK=8, WEIGHT_BANK=5)


def unaligned_features(b: Bench) -> TaskBuilder:
    return b.conv().set("CNA", "FEATURE_DATA_ADDR", FEATURE_BASE_ADDR=b.left.iova + 4)


def unaligned_main(b: Bench) -> TaskBuilder:
    return b.add().set("DPU_RDMA", "SRC_BASE_ADDR", SRC_BASE_ADDR=b.left.iova + 8)


def unaligned_element(b: Bench) -> TaskBuilder:
    return b.add().set("DPU_RDMA", "EW_BASE_ADDR", EW_BASE_ADDR=b.right.iova + 1)


def unaligned_pool(b: Bench) -> TaskBuilder:
    return b.pool().set_word("PPU_RDMA", "SRC_BASE_ADDR", b.left.iova + 12)


def unknown_register(b: Bench) -> TaskBuilder:
    return b.pool().raw(pack_word(R["PPU"].target, 0x1234, R["PPU"].base + 0xFF0))


MISTAKES = {
    "bank sum": (bank_sum, "BANK_SUM", "CNA.CBUF_CON0"),
    "features": (unaligned_features, "UNALIGNED_ADDRESS", "CNA.FEATURE_DATA_ADDR"),
    "main": (unaligned_main, "UNALIGNED_ADDRESS", "DPU_RDMA.SRC_BASE_ADDR"),
    "element": (unaligned_element, "UNALIGNED_ADDRESS", "DPU_RDMA.EW_BASE_ADDR"),
    "pool": (unaligned_pool, "UNALIGNED_ADDRESS", "PPU_RDMA.SRC_BASE_ADDR"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_stop_names_block_register_and_value(name):
    stops(*MISTAKES[name])


@pytest.mark.parametrize("name", MISTAKES)
def test_go_on_does_what_the_golden_model_does(name):
    make, code, register = MISTAKES[name]
    with bench("go on") as b:
        job = b.job(make(b))
        golden = GoldenNpu(1, strict=False)
        expected = golden_image(b.engine, job, golden)
        b.driver.submit(job)
        found = b.engine.diagnostics()
        assert (code, register) in {(d.code, d.register) for d in found}
        assert {(d.code, d.block) for d in found} == {(f.code, f.block) for f in golden.devices[0].findings}
        assert first_difference(b.engine, expected) is None
        b.works()


def test_unknown_register_is_ignored():
    with bench("go on") as b:
        job = b.job(unknown_register(b))
        expected = golden_image(b.engine, job, GoldenNpu(1, strict=False))
        b.driver.submit(job)
        assert [(d.code, d.block, d.value) for d in b.engine.diagnostics()] == [
            ("UNKNOWN_WRITE", "PPU", 0x1234)
        ]
        assert b.engine.diagnostics()[0].offset == R["PPU"].base + 0xFF0
        assert first_difference(b.engine, expected) is None


# 3. Addresses outside every buffer


def with_operands(b: Bench, reader: str) -> TaskBuilder:
    """Return a convolution for which BRDMA or NRDMA reads operands that the DPU drops."""
    task = b.conv().enable("CNA", "CORE", "DPU", "DPU_RDMA")
    task.set("DPU_RDMA", "S_POINTER", POINTER_PP_MODE=1, EXECUTER_PP_EN=1, POINTER_PP_EN=1)
    task.set("DPU_RDMA", "DATA_CUBE_WIDTH", WIDTH=WIDTH - 1)
    task.set("DPU_RDMA", "DATA_CUBE_HEIGHT", HEIGHT=HEIGHT - 1)
    task.set("DPU_RDMA", "DATA_CUBE_CHANNEL", CHANNEL=31)
    task.set("DPU_RDMA", "FEATURE_MODE_CFG", BURST_LEN=15, MRDMA_DISABLE=1)
    task.set("DPU_RDMA", "ERDMA_CFG", ERDMA_DISABLE=1)
    if reader == "BRDMA":
        task.set("DPU_RDMA", "BRDMA_CFG", BRDMA_DATA_USE=1)
        return task.set("DPU_RDMA", "BS_BASE_ADDR", BS_BASE_ADDR=NOWHERE)
    task.set("DPU_RDMA", "NRDMA_CFG", NRDMA_DATA_USE=1)
    return task.set("DPU_RDMA", "BN_BASE_ADDR", BN_BASE_ADDR=NOWHERE)


def outside(b: Bench, what: str) -> TaskBuilder:
    return {
        "main": lambda: b.add().set("DPU_RDMA", "SRC_BASE_ADDR", SRC_BASE_ADDR=NOWHERE),
        "bias": lambda: with_operands(b, "BRDMA"),
        "norm": lambda: with_operands(b, "NRDMA"),
        "feature": lambda: b.conv().set("CNA", "FEATURE_DATA_ADDR", FEATURE_BASE_ADDR=NOWHERE),
        "weight": lambda: b.conv().set("CNA", "DCOMP_ADDR0", DECOMPRESS_ADDR0=NOWHERE // 16),
        "element": lambda: b.add().set("DPU_RDMA", "EW_BASE_ADDR", EW_BASE_ADDR=NOWHERE),
        "pool": lambda: b.pool().set_word("PPU_RDMA", "SRC_BASE_ADDR", NOWHERE),
        "result": lambda: b.conv().set("DPU", "DST_BASE_ADDR", DST_BASE_ADDR=NOWHERE // 16),
        "pooled": lambda: b.pool().set("PPU", "DST_BASE_ADDR", DST_BASE_ADDR=NOWHERE // 16),
    }[what]()


@pytest.mark.parametrize(
    ("what", "client", "write"),
    [
        ("feature", "FEATURE", False),
        ("weight", "WEIGHT", False),
        ("main", "MRDMA", False),
        ("bias", "BRDMA", False),
        ("norm", "NRDMA", False),
        ("element", "ERDMA", False),
        ("pool", "PPU", False),
        ("result", "DPU", True),
        ("pooled", "PPU", True),
    ],
)
def test_address_outside_every_buffer(what, client, write):
    event, code = ("DMA_WRITE_ERROR", "WRITE_ERROR") if write else ("DMA_READ_ERROR", "READ_ERROR")
    with bench("go on", cores=2) as b:
        with pytest.raises(DriverDmaError) as caught:
            b.submit(b.pool("good"), outside(b, what), b.pool("after"), core=1)
        text = str(caught.value)
        assert "core 1" in text and event in text and "may be wrong" in text
        ids = R["DDMA"]["CFG_ID_ERROR"].decode(b.driver.read(1, "DDMA", "CFG_ID_ERROR"))
        assert ids["WR_RESP_ID" if write else "RD_RESP_ID"] == number(client, write), (ids, text)
        assert f"{client} at {NOWHERE:#x}: " in text
        faults = b.engine.faults()
        assert {(f.core, f.client, f.address >> 28, f.task) for f in faults} == {
            (1, client, NOWHERE >> 28, 1)
        }
        assert set(b.codes(1)) == {code} and not b.codes(0)
        told = b.engine.diagnostics()
        assert {(d.client, d.task) for d in told} == {(client, 1)}, [str(d) for d in told]
        assert {d.address for d in told} <= {f.address for f in faults}
        assert f"core 1, task 1, cycle {told[0].cycle}" in str(told[0]) and f"{client} at 0xc" in str(told[0])
        assert b.engine.irq == 0 and b.driver.read(1, "PC", "INTERRUPT_RAW_STATUS") == 0  # all cleared
        b.works(1)  # without a reset in between
    with bench("stop") as b:
        with pytest.raises(DiagnosticError, match=f"{client} at {NOWHERE:#x}") as stopped:
            b.submit(outside(b, what))
        assert stopped.value.diagnostics[0].code == code


def number(client: str, write: bool) -> int:
    from rkcosim.rtl.layouts import ReadClient, WriteClient

    return (WriteClient if write else ReadClient)[client].value


@pytest.mark.parametrize("write", [False, True], ids=["read", "write"])
def test_an_error_response_of_mapped_memory(write):
    """After SLVERR the task continues with the data received, and all reports contain the error."""
    event, code = ("DMA_WRITE_ERROR", "WRITE_ERROR") if write else ("DMA_READ_ERROR", "READ_ERROR")
    dram = DramConfig(fault_write=2) if write else DramConfig(fault_read=4)
    with bench("go on", dram=dram) as b:
        with pytest.raises(DriverDmaError, match=event):
            b.submit(b.conv())
        (fault,) = b.engine.faults()
        (told,) = b.engine.diagnostics()
        assert (told.code, told.client, told.address) == (code, fault.client, fault.address)
        b.works()


def test_a_list_that_cannot_be_read_hangs_and_says_so():
    with bench("go on") as b:
        good = b.job(b.pool()).tasks[0]
        lost = Task(NOWHERE, good.regcfg_amount, good.int_mask, good.int_clear, good.enable_mask, name="lost")
        CorePort(b.engine, 0).start(Kick.of(lost, lost, 1, 0, True))
        assert b.engine.run_until_irq(1, 20_000) == 0, "the event is masked"
        raw = b.driver.read(0, "PC", "INTERRUPT_RAW_STATUS")
        assert raw & R["PC"]["INTERRUPT_MASK"].fields["int_mask"].enum["DMA_READ_ERROR"]
        ids = R["DDMA"]["CFG_ID_ERROR"].decode(b.driver.read(0, "DDMA", "CFG_ID_ERROR"))
        assert ids["RD_RESP_ID"] == number("PC", False)
        assert b.codes() == ["READ_ERROR", "BAD_COMMAND"], "no op-enable word was fetched"
        assert b.engine.diagnostics()[0].client == "PC"
        b.driver.soft_reset(1)
        b.works()


# 4. Settings that hang


def pool_of_another_size(b: Bench) -> TaskBuilder:
    return b.pool().set("PPU_RDMA", "CUBE_IN_HEIGHT", CUBE_IN_HEIGHT=HEIGHT)


def gated_array(b: Bench) -> TaskBuilder:
    gate = R["CORE"]["MAC_GATING"].fields["SLCG_OP_EN"].reset & ~(1 << 24)
    return b.conv().set("CORE", "MAC_GATING", SLCG_OP_EN=gate)


def live_converter(b: Bench) -> TaskBuilder:
    return b.conv().set("DPU", "BS_OW_CFG", SIZE_E_0=3, SIZE_E_1=3, SIZE_E_2=3)


def starved_pool(b: Bench) -> TaskBuilder:
    """Return a task in which the PPU waits for a DPU that does not run."""
    return b.pool().set("PPU", "OPERATION_MODE_CFG", POOLING_METHOD=1)


@pytest.mark.parametrize(
    ("make", "code", "register", "block"),
    [
        (pool_of_another_size, "SIZE_MISMATCH", "PPU.DATA_CUBE_IN_WIDTH", "PPU"),
        (gated_array, "RESERVED_MODE", "CORE.MAC_GATING", "CORE"),
        (live_converter, "SIZE_MISMATCH", "DPU.BS_OW_CFG", "DPU"),
        (starved_pool, None, None, "PPU"),
    ],
)
def test_settings_that_hang_say_so_and_a_reset_helps(make, code, register, block):
    with bench("go on") as b:
        with pytest.raises(DriverTimeout) as caught:
            b.submit(b.pool("first"), make(b), b.pool("third"), max_cycles=50_000)
        assert caught.value.cores[0].task == 1 and caught.value.cores[0].blocks[block] != "idle"
        if code is not None:
            assert (code, register, 1) in {(d.code, d.register, d.task) for d in b.engine.diagnostics()}
        b.works()


# 5. Jobs that the driver refuses


def test_commands_outside_every_buffer_are_refused():
    with bench("stop") as b:
        good = b.job(b.pool()).tasks[0]
        bad = Task(NOWHERE, good.regcfg_amount, good.int_mask, good.int_clear, good.enable_mask, name="lost")
        with pytest.raises(DriverError, match=r"task 0 \(lost\).*not inside one buffer"):
            b.driver.submit(Job([bad]))
        b.works()
