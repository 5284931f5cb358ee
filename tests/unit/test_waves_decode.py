"""Decoding of a waveform's pins: tasks, register writes, bursts, MAC activity, stalls, interrupts."""

from __future__ import annotations

from pathlib import Path

import pytest

from rkcosim import waves
from rkcosim.spec import port_codes
from rkcosim.spec.regs import registers
from rkcosim.waves import WaveError
from rkcosim.waves.decode import cycle_of
from rkcosim.waves.spec import When
from tests.makers.small_wave import core_signals, pulses, write_vcd


def test_tables_are_those_of_the_hardware():
    from rkcosim.rtl.layouts import DiagnosticCode, ReadClient, WriteClient

    assert [client.name for client in ReadClient] == list(port_codes.READ_CLIENTS)
    assert [client.name for client in WriteClient] == list(port_codes.WRITE_CLIENTS)
    assert [code.name for code in DiagnosticCode] == list(port_codes.DIAGNOSTICS)


def test_tasks_of_two_jobs_and_of_one_that_does_not_end(tmp_path: Path):
    events = {"task_start": [3, 10, 20, 30], "task_done": [9, 15, 25]}
    signals = core_signals(0, {"task_index": {3: 0, 10: 1, 20: 0, 30: 1}}, events)
    wave = waves.open(write_vcd(tmp_path / "w.vcd", signals, 40))
    assert [(t.job, t.index, t.start, t.end, t.cycles) for t in wave.tasks()] == [
        *((0, 0, 3, 9, 6), (0, 1, 10, 15, 5)),
        *((1, 0, 20, 25, 5), (1, 1, 30, None, None)),
    ]
    assert cycle_of(wave, When.parse("task:1")) == 10
    assert cycle_of(wave, When.parse("task:1@1"), end=True) == 39
    with pytest.raises(WaveError, match=r"'task:2': no such task \(there are: 0@0, 1@0, 0@1, 1@1\)"):
        cycle_of(wave, When.parse("task:2"))


def test_tasks_from_counters_where_the_pins_were_not_traced(tmp_path: Path):
    signals = {
        "npu.jobs": (32, {0: 5}),
        "npu.irq": (3, {9: 2, 12: 0}),
        "npu.core1.job": (32, {0: 2}),
        "npu.core1.task": (12, {0: 6, 5: 7}),
        "npu.core1.tasks_started": (32, {0: 8, 5: 9}),
        "npu.core1.tasks_done": (32, {0: 7, 4: 8, 9: 9}),
        "core1.CNA.registers.CONV_CON1.CONV_MODE": (4, {}),
    }
    wave = waves.open(write_vcd(tmp_path / "w.vcd", signals, 12))
    assert wave.cores == [1]
    assert [(t.core, t.job, t.index, t.start, t.end) for t in wave.tasks()] == [(1, 4, 7, 5, 9)]
    assert [(i.core, i.start, i.end) for i in wave.irqs()] == [(1, 9, None)]
    for ask in (wave.register_writes, wave.bursts, wave.diagnostics):
        with pytest.raises(WaveError, match="of core 1 are not in the waveform; trace without --scope"):
            ask()
    with pytest.raises(WaveError, match="event mac_slot of core 1 is not in the waveform"):
        wave.mac_activity()


def test_register_writes_of_host_and_stream(tmp_path: Path):
    register = registers()["CNA"]["CONV_CON1"]
    value = register.encode(CONV_MODE=1)
    signals = core_signals(
        0,
        {
            "watch.valid": {3: 1, 4: 0, 8: 1, 11: 0},
            "watch.fetched": {8: 1},
            "watch.offset": {3: register.offset, 10: 0xFFFC},
            "watch.value": {3: value},
        },
    )
    wave = waves.open(write_vcd(tmp_path / "w.vcd", signals, 20))
    writes = wave.register_writes()
    # The same word in cycles 8 and 9 is two writes.
    assert [(w.cycle, w.fetched, w.path, w.value) for w in writes] == [
        (3, False, "CNA.CONV_CON1", value),
        (8, True, "CNA.CONV_CON1", value),
        (9, True, "CNA.CONV_CON1", value),
        (10, True, "offset 0xfffc", value),
    ]
    assert writes[0].fields == register.decode(value) and writes[3].fields == {}
    label = register.fields["CONV_MODE"].label(1)
    assert f"CONV_MODE={label if label is not None else 1}" in writes[0].text
    assert writes[3].text == f"offset 0xfffc = {value:#x}"
    assert cycle_of(wave, When.parse("write:CNA.CONV_CON1.CONV_MODE=1")) == 3
    with pytest.raises(WaveError, match="does not happen in this waveform"):
        cycle_of(wave, When.parse("write:CNA.CONV_CON2"))
    with pytest.raises(WaveError, match="a waveform does not show this moment"):
        cycle_of(wave, When.parse("mismatch"))


def test_layers(tmp_path: Path):
    events = {"task_start": [3, 10, 20], "task_done": [9, 15]}
    signals = core_signals(0, {"task_index": {10: 1, 20: 2}}, events)
    signals["npu.core0.layer_name"] = (0, {3: "stem", 16: "-", 20: "dw1"})
    wave = waves.open(write_vcd(tmp_path / "w.vcd", signals, 40))
    assert [t.layer for t in wave.tasks()] == ["stem", "stem", "dw1"]
    assert cycle_of(wave, When.parse("layer:stem")) == 3
    assert cycle_of(wave, When.parse("layer:stem"), end=True) == 15
    assert cycle_of(wave, When.parse("layer:dw1"), end=True) == 39
    with pytest.raises(WaveError, match=r"no such layer \(there are: stem, dw1\)"):
        cycle_of(wave, When.parse("layer:dw2"))


def test_jobs_are_numbered_over_all_cores(tmp_path: Path):
    enable = registers()["PC"]["OPERATION_ENABLE"]
    values = {"watch.offset": {0: enable.offset}, "watch.value": {0: enable.encode(OP_EN=1)}}
    signals = {}
    for core, kicks in ((0, [2, 20]), (1, [10])):
        events = {"task_start": [kick + 3 for kick in kicks], "task_done": [kick + 6 for kick in kicks]}
        signals |= core_signals(core, values | {"watch.valid": pulses(kicks)}, events)
    wave = waves.open(write_vcd(tmp_path / "writes.vcd", signals, 40))
    assert [(t.core, t.job, t.start) for t in wave.tasks()] == [(0, 0, 5), (1, 1, 13), (0, 2, 23)]
    # The harness began to count before the waveform.
    signals |= {
        "npu.jobs": (32, {0: 7, 2: 8, 10: 9, 20: 10}),
        "npu.core0.job": (32, {0: 4, 2: 5, 20: 6}),
        "npu.core1.job": (32, {0: 3, 10: 4}),
    }
    wave = waves.open(write_vcd(tmp_path / "counters.vcd", signals, 40))
    assert [(t.core, t.job) for t in wave.tasks()] == [(0, 7), (1, 8), (0, 9)]


def test_bursts_of_several_clients(tmp_path: Path):
    signals = core_signals(
        0,
        {
            # FEATURE requests in cycle 2 and is accepted in 4; WEIGHT follows in the next cycle.
            "axi.arvalid": {2: 1, 6: 0},
            "axi.arready": {4: 1},
            "axi.arid": {2: 0, 5: 1},
            "axi.araddr": {2: 0x1000, 5: 0x2000},
            "axi.arlen": {2: 1, 5: 0},
            # Data of an earlier burst, then WEIGHT's only beat, then FEATURE's two with a pause.
            "axi.rready": {0: 1},
            "axi.rvalid": {3: 1, 4: 0, 10: 1, 12: 0, 14: 1, 15: 0},
            "axi.rid": {3: 0, 10: 1, 11: 0},
            "axi.rlast": {3: 1, 4: 0, 10: 1, 11: 0, 14: 1},
            "axi.rresp": {14: 2, 15: 0},
            # Two bursts of the DPU, one beat each, back to back.
            "axi.awvalid": {2: 1, 4: 0},
            "axi.awready": {0: 1},
            "axi.awaddr": {2: 0x3000, 3: 0x3020},
            "axi.wvalid": {6: 1, 8: 0},
            "axi.wready": {0: 1},
            "axi.wlast": {6: 1},
            "axi.wstrb": {6: 0xFFFF_FFFF, 7: 0xFF},
            "axi.bready": {0: 1},
            "axi.bvalid": {12: 1, 13: 0},
        },
    )
    wave = waves.open(write_vcd(tmp_path / "w.vcd", signals, 20))
    found = {(b.direction, b.address): b for b in wave.bursts()}
    assert len(found) == 4
    feature, weight = found["read", 0x1000], found["read", 0x2000]
    assert (feature.client, feature.beats, feature.start, feature.accepted) == ("FEATURE", 2, 2, 4)
    assert (feature.first_data, feature.end, feature.bytes, feature.error) == (11, 14, 64, True)
    assert (weight.client, weight.beats, weight.start, weight.accepted) == ("WEIGHT", 1, 5, 5)
    assert (weight.first_data, weight.end, weight.bytes, weight.error) == (10, 10, 32, False)
    first, second = found["write", 0x3000], found["write", 0x3020]
    assert (first.client, first.start, first.first_data, first.bytes, first.end) == ("DPU", 2, 6, 32, 12)
    assert (second.start, second.first_data, second.bytes, second.end) == (3, 7, 8, None)


def test_mac_activity_stalls_and_interrupts(tmp_path: Path):
    events = {
        "mac_slots": [*range(5, 15), 17, 18],
        "mac_pixels": [*range(6, 15), 17],
        "stall_weight": [3, 4],
        "stall_write": [3, 19],
    }
    signals = core_signals(0, {"irq": pulses([18, 19])}, events)
    signals |= core_signals(1, {"irq": pulses([7])})
    wave = waves.open(write_vcd(tmp_path / "w.vcd", signals, 20))
    activity = wave.mac_activity(0, window=8)[0]
    assert activity.intervals == [(5, 15), (17, 19)]
    assert (activity.slots, activity.real) == (12, 10)
    assert activity.windows == [(0, 3 / 8), (8, 7 / 8), (16, 2 / 4)]
    assert [(s.start, s.end, s.reason) for s in wave.stalls(0)] == [
        *((3, 5, "stall_weight"), (3, 4, "stall_write"), (19, 20, "stall_write")),
    ]
    assert wave.stalls(0)[0].text == "CNA waits for weights"
    assert [(i.core, i.start, i.end) for i in wave.irqs()] == [(1, 7, 8), (0, 18, None)]
    with pytest.raises(ValueError, match="a window of 0 cycles"):
        wave.mac_activity(window=0)


def test_a_last_time_that_is_far_away_takes_no_memory(tmp_path: Path):
    path = write_vcd(tmp_path / "w.vcd", core_signals(0, {}, {"mac_slots": [5]}), 20)
    path.write_text(path.read_text().rstrip() + "\n#4000000000000\n")
    wave = waves.open(path)
    with pytest.raises(ValueError, match="windows of 1000 cycles; there may be 1,048,576"):
        wave.mac_activity()
    assert wave.mac_activity(window=wave.last)[0].slots == 1


def test_diagnostics(tmp_path: Path):
    register = registers()["CNA"]["CBUF_CON0"]
    values = {
        "diag.valid": pulses([4]),
        "diag.code": {4: port_codes.DIAGNOSTICS.index("BANK_SUM")},
        "diag.register": {4: register.offset},
        "diag.value": {4: 0x1B},
    }
    wave = waves.open(write_vcd(tmp_path / "w.vcd", core_signals(0, values), 9))
    (seen,) = wave.diagnostics()
    assert (seen.cycle, seen.code, seen.register, seen.value) == (4, "BANK_SUM", "CNA.CBUF_CON0", 0x1B)
    assert cycle_of(wave, When.parse("error")) == 4


def test_ports_of_the_verilog_core(tmp_path: Path):
    """A testbench's waveform: the core is somewhere below the top and has the port names of the Verilog."""
    signals = {
        "bench.dut.watch_valid": (1, pulses([2])),
        "bench.dut.watch_fetched": (1, {}),
        "bench.dut.watch_offset": (16, {2: registers()["PC"]["OPERATION_ENABLE"].offset}),
        "bench.dut.watch_value": (32, {2: 1}),
        "bench.dut.events": (16, {3: 1, 4: 0, 8: 2, 9: 0}),
        "bench.dut.task_index": (12, {}),
        "bench.dut.inner.watch_valid": (1, {}),
    }
    wave = waves.open(write_vcd(tmp_path / "w.vcd", signals, 12))
    assert wave.core_scopes == {0: "bench.dut"}
    assert [w.path for w in wave.register_writes()] == ["PC.OPERATION_ENABLE"]
    assert [(t.start, t.end) for t in wave.tasks()] == [(3, 8)]
    assert wave.mac_activity()[0].slots == 0
