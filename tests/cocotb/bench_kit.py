"""Agent, monitors, scoreboard, coverage and random streams on a core; `test_kit.py` runs it."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import cocotb
import numpy as np
import pytest
from cocotb_coverage.coverage import coverage_db

from rkcosim.cocotb import (
    Coverage,
    DiagnosticFound,
    InterruptTimeout,
    Mismatch,
    Monitors,
    NpuAgent,
    Scoreboard,
    random_streams,
    words_stream,
)
from rkcosim.engines.protocol import BusError
from rkcosim.regcmd import op_enable_mask, op_enable_word, words_from_bytes, words_to_bytes
from rkcosim.spec.regs import registers
from rkcosim.verify.crosscheck.kick import run_kick
from tests.makers.small_streams import OTHER, SOURCE, TARGET, stream_of, streams
from tests.makers.small_tasks import add_task, conv_task, pool_task

PC = registers()["PC"]


@cocotb.test()
async def registers_by_name(dut):
    npu = NpuAgent(dut, on_diagnostic="go on")
    await npu.reset()
    version = await npu.read("PC.VERSION")
    assert version == PC["VERSION"].reset and f"{version!r}".startswith("PC.VERSION 0x")
    await npu.write("PC.INTERRUPT_MASK", int_mask=0x300)
    mask = await npu.read("PC.INTERRUPT_MASK")
    assert mask["int_mask"] == mask == 0x300
    assert await npu.read(PC["VERSION"].offset) == version
    for wrong, text in ((("PC.NOPE", 0), "PC has no 'NOPE'"), (("NOPE.VERSION", 0), "no 'NOPE'; it has PC")):
        with pytest.raises(KeyError, match=text):
            await npu.write(*wrong)
    with pytest.raises(ValueError, match="either a value or fields"):
        await npu.write("PC.INTERRUPT_MASK")
    with pytest.raises(ValueError, match="does not fit 32 bits"):
        await npu.write("PC.INTERRUPT_MASK", 1 << 32)
    with pytest.raises(KeyError, match="has no field NOPE"):
        version["NOPE"]
    with pytest.raises(BusError, match=r"offset 0x2000.*SLVERR"):
        await npu.read(0x2000)


@cocotb.test()
async def monitors_see_what_happens(dut):
    npu = NpuAgent(dut)
    seen = Monitors(npu)
    calls = []
    seen.packets.subscribe(calls.append)
    await npu.reset()
    await npu.cycles(300)  # the register files clear themselves
    for monitor in vars(seen).values():
        monitor.clear()
    stream = streams()["conv"]
    result = await npu.run_stream(stream)
    [task] = result.tasks

    fetched = [event for event in seen.commands.events if event.reason == "stream"]
    words = words_from_bytes(stream.regions[0].data.tobytes())
    assert [event.value for event in fetched][:3] == [word >> 16 & 0xFFFFFFFF for word in words][:3]
    [target] = seen.commands.writes("DPU.DST_BASE_ADDR")
    assert target.fields == {"DST_BASE_ADDR": TARGET // 16} and target.block == "DPU"
    assert [event.reason for event in seen.commands.writes("PC.OPERATION_ENABLE")] == ["host", "host"]

    assert [(event.cycle, event.end) for event in seen.tasks.events] == [(task.start, task.end)]
    assert len(seen.stripes) == 2  # 20 pixels
    assert sum(event.bytes for event in seen.packets.events) == 4 * 5 * 32 and calls == seen.packets.events
    written = {}
    for event in seen.packets.events:
        written.update({event.address + n: byte for n, byte in enumerate(event.data)})
    memory = npu.memory.read(TARGET, 4 * 5 * 32)
    assert bytes(written[TARGET + n] for n in range(4 * 5 * 32)) == memory
    read = {}
    for event in seen.reads.events:
        read[event.client] = read.get(event.client, 0) + event.bytes
    assert read == npu.dram.bytes_read and set(read) == {"PC", "FEATURE", "WEIGHT"}
    assert npu.memory.read(seen.reads.events[-1].address, 16) == bytes(seen.reads.events[-1].data[:16])
    busy = {event.block: (event.cycle, event.end) for event in seen.busy.events}
    assert set(busy) == {"CNA", "CORE", "DPU"}
    assert all(task.start <= begin < end <= task.end + 1 for begin, end in busy.values())
    assert (await seen.tasks.next()).cycle == task.start
    await npu.cycles(10)
    assert [event.cycle for event in seen.irq.events] == [result.irq]
    assert not seen.diagnostics.events and seen.events[0].kind == "write"


@cocotb.test()
async def a_hang_says_what_it_waits_for(dut):
    npu = NpuAgent(dut)
    await npu.reset()
    stream = stream_of(add_task(SOURCE, OTHER, TARGET, 3, 4))
    words = words_from_bytes(stream.regions[0].data.tobytes())
    words[-1] = op_enable_word(op_enable_mask(["DPU"]))  # without DPU_RDMA, which has its data
    stream.regions[0].data = np.frombuffer(words_to_bytes(words), np.uint8)
    with pytest.raises(InterruptTimeout) as failed:
        await npu.run_stream(stream, 2000)
    text = str(failed.value)
    assert re.search(r"waited 2000 cycles \(from \d+ to \d+\) for 1 task to end with DPU_0\|DPU_1", text)
    assert "busy_blocks: DPU\n" in text and "DPU.S_STATUS: group 0 OPERATING" in text
    assert "DPU waits for DPU_RDMA" in text and "task 0" in text


@cocotb.test()
async def a_diagnostic_stops_the_wait(dut):
    npu = NpuAgent(dut)
    await npu.reset()
    task = conv_task(SOURCE, OTHER, TARGET, 4, 5)
    task.set("CNA", "CBUF_CON0", DATA_BANK=12, WEIGHT_BANK=1)
    with pytest.raises(DiagnosticFound, match=r"CBUF_CON0.*exceed the number of banks") as found:
        await npu.run_stream(stream_of(task))
    assert found.value.diagnostics[0].code == "BANK_SUM"


@cocotb.test()
async def memory_that_is_not_there(dut):
    npu = NpuAgent(dut, on_diagnostic="go on")
    await npu.reset()
    stream = stream_of(pool_task(0x0080_0000, TARGET, 5, 6))
    stream = replace(stream, kick=replace(stream.kick, interrupt_mask=stream.kick.interrupt_mask | 0x3000))
    await npu.run_stream(stream)
    assert "READ_ERROR" in {found.code for found in npu.log.diagnostics}
    assert npu.dram.faults[0].address == 0x0080_0000 and npu.dram.faults[0].client == "PPU"


@cocotb.test()
async def the_scoreboard_finds_one_byte(dut):
    npu = NpuAgent(dut)
    board = Scoreboard(npu)
    await npu.reset()
    for stream in streams().values():
        checked = await board.run(stream)
        assert checked.bytes >= 0x4000 and len(checked.reports) == 1
    run = npu.run_stream

    async def spoilt(*arguments, **named):
        result = await run(*arguments, **named)
        npu.memory.view(TARGET + 37, 1)[0] ^= 4
        return result

    npu.run_stream = spoilt
    with pytest.raises(
        Mismatch, match=r"0x00203025 \(region 'data' \+ 0x2025\), written by task 0 \(dpu"
    ) as found:
        await board.run(streams()["add"])
    assert "1 of " in str(found.value)


@cocotb.test()
async def random_tasks_with_coverage(dut):
    npu = NpuAgent(dut)
    board, coverage = Scoreboard(npu), Coverage(npu)
    await npu.reset()
    tasks = 0
    for group in ("pool int8", "flying integers", "conv int8", "depthwise int8"):
        for drawn in random_streams(group, 5, 2, max_cycles=2500):
            checked = await board.run(drawn.stream)
            tasks += len(checked.reports)
    assert coverage.tasks == tasks == 8
    assert coverage_db["npu.blocks"].detailed_coverage["PPU+PPU_RDMA"] == 2
    assert (coverage_db["npu.conv.conv_mode"].coverage, coverage_db["npu.conv.conv_mode"].size) == (2, 2)
    assert coverage_db["npu.fields_set"].coverage > 50
    assert "    2 of     2  npu.conv.conv_mode" in coverage.text().splitlines()
    for name in ("coverage.xml", "coverage.yml"):
        path = coverage.save(name)
        assert path.stat().st_size > 1000
    assert ElementTree.parse("coverage.xml").getroot().find("npu") is not None
    with pytest.raises(ValueError, match=r"as \.xml or \.yml"):
        coverage.save("coverage.txt")


@cocotb.test()
async def software_on_the_core(dut):
    npu = NpuAgent(dut)
    await npu.reset()
    stream = streams()["pool"]
    npu.load(stream)
    result = await npu.software(lambda device: run_kick(device, stream.kick))
    assert result.done and result.status & 0xC00 and len(npu.log.tasks) == 1


@cocotb.test()
async def words_alone_and_a_plain_ram(dut):
    npu = NpuAgent(dut, ram=1 << 16)
    await npu.reset()
    source, target, commands = 0x4000, 0x8000, 0x1000
    stream = stream_of(pool_task(source, target, 5, 6))
    npu.memory.write(source, stream.regions[1].data.tobytes())
    words = words_from_bytes(stream.regions[0].data.tobytes())
    await npu.run_stream(words_stream(words, address=commands))
    plain = npu.memory.read(target, 4 * 5 * 16)
    cube = np.frombuffer(stream.regions[1].data[: 5 * 6 * 16].tobytes(), np.int8).reshape(5, 6, 16)
    views = [cube[y : y + 4, x : x + 5] for y in (0, 1) for x in (0, 1)]
    expected = np.max(views, axis=0).tobytes()
    with pytest.raises(ValueError, match="outside"):
        npu.memory.map(1 << 20, 4096)
    assert plain == expected


@cocotb.test()
async def an_agent_wants_a_core(dut):
    class Half:
        _name = "half"
        rst = dut.rst

    with pytest.raises(ValueError, match="whole core; half has no port s_axil_awvalid"):
        NpuAgent(Half())
    with pytest.raises(ValueError, match="host must be"):
        NpuAgent(dut, host="nobody")
    with pytest.raises(ValueError, match="core must be 0, 1 or 2"):
        NpuAgent(dut, core=3)
