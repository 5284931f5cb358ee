"""Maps of ports, and cycles of other lengths: names, parts of signals, constants, and what is refused."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from rkcosim import waves
from rkcosim.spec.config import RK3588
from rkcosim.spec.regs import registers
from rkcosim.waves import WaveError
from rkcosim.waves.backends import Part, Signal, have_pywellen, joined
from rkcosim.waves.clocking import Edges, Regular, parse_time, periods, time_text
from rkcosim.waves.portmap import MOST_BYTES, read_map
from rkcosim.waves.ports import GROUPS, PORTS
from tests.makers.small_wave import write_vcd

NS = Fraction(1, 10**9)
READERS = ["vcdvcd", pytest.param("pywellen", marks=pytest.mark.skipif(not have_pywellen(), reason="none"))]


def test_ports_are_those_of_the_export():
    from rkcosim.export.designs import EXPORTABLE

    assert {port.name: port.width for port in EXPORTABLE["core"].ports(RK3588)} == PORTS
    assert all(port in PORTS for group in GROUPS for port in (*group.needed, *group.more))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10ns", 10 * NS), ("3.75 ns", Fraction(15, 4) * NS), ("2us", 2000 * NS), ("7µs", 7000 * NS), ("1s", 1)],
)
def test_times(text: str, seconds: Fraction):
    assert parse_time(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "ns", "-1ns", "10 mhz", "1e3ns", "10ns5"])
def test_what_is_no_time(text: str):
    with pytest.raises(ValueError, match="a time is a number with a unit"):
        parse_time(text)


def test_cycles_and_times():
    plain = Regular(Fraction(5, 2))
    assert [plain.cycle(t) for t in range(6)] == [0, 0, 0, 1, 1, 2]
    assert [plain.time(c) for c in range(4)] == [0, 3, 5, 8] and plain.last(5) == 1 and plain.last(6) == 2
    edge = Regular(Fraction(10), Fraction(8))
    assert [edge.cycle(t) for t in (0, 7, 8, 17, 18)] == [0, 0, 1, 1, 2]
    assert [edge.time(c) for c in (0, 1, 2)] == [0, 8, 18]
    assert [edge.last(end) for end in (3, 9, 18, 19)] == [0, 0, 0, 1]  # a cycle is whole with its last edge
    clock = Edges([8, 18, 30])
    assert [clock.cycle(t) for t in (0, 7, 8, 17, 29, 30, 99)] == [0, 0, 1, 1, 2, 3, 3]
    assert [clock.time(c) for c in range(5)] == [0, 8, 18, 30, 30]
    assert [clock.last(end) for end in (5, 9, 19, 31, 500)] == [0, 0, 1, 2, 2]
    assert periods([8, 18, 30, 40]) == [(10, 2), (12, 1)]
    assert [time_text(t) for t in (10 * NS, Fraction(15, 4) * NS, NS / 2, NS / 10**7)] == [
        *("10 ns", "3.75 ns", "500 ps", "0.1 fs"),
    ]


def test_a_signal_from_parts():
    a, b = Signal("a", 8, "A"), Signal("b", 1, "B")
    changes = {"A": [(0, 0x5A), (10, None), (20, 0xF0)], "B": [(5, 1), (20, 0)]}
    parts = [Part(b, 0, 1, inverted=True), Part(a, 4, 4), Part(None, 2, 2)]
    # Bit 0 is ~b, bits 4 to 1 are a[7:4], bits 6 and 5 are 0b10.
    assert joined(parts, changes) == [(0, None), (5, 0b1001010), (10, None), (20, 0b1011111)]
    assert joined([Part(None, 6, 3)], {}) == [(0, 6)]


def lite(names: dict[str, str]) -> dict[str, tuple[int, dict]]:
    """One write of PC.OPERATION_ENABLE, on signals with other names."""
    enable = registers()["PC"]["OPERATION_ENABLE"].offset
    values = {
        "awvalid": (1, {3: 1, 5: 0}),
        "awready": (1, {4: 1, 5: 0}),
        "awaddr": (32, {3: 0xFDAB_0000 | enable}),
        "wvalid": (1, {2: 1, 3: 0}),
        "wready": (1, {0: 1}),
        "wdata": (32, {2: 1}),
    }
    return {name: values[pin] for pin, name in names.items()}


def test_parts_constants_and_inversion(tmp_path: Path):
    names = {"awvalid": "t.go", "awready": "t.ok", "awaddr": "t.a", "wvalid": "t.wv", "wdata": "t.w"}
    signals = lite(names)
    # The data are in the upper half of a wider signal, and the strobes are not there.
    signals["t.wide"] = (64, {2: 1 << 32 | 0xDEAD})
    signals["t.n"] = (1, {0: 0, 4: 1, 5: 0})
    signals["t.b0"], signals["t.b1"] = (1, {2: 1}), (1, {})
    file = write_vcd(tmp_path / "w.vcd", signals, 12)
    text = """
        s_axil_awvalid = "go"
        s_axil_awready = "n"
        s_axil_awaddr = "t.a"
        s_axil_wvalid = "wv"
        s_axil_wready = 1
        s_axil_wdata = "wide[63:32]"
        s_axil_wstrb = ["b0", 1, "~b1", 1]
        cycle = "1 ns"
    """
    (tmp_path / "m.toml").write_text(text)
    (access,) = waves.open(file, ports=tmp_path / "m.toml").accesses()
    assert (access.path, access.value, access.strobes) == ("PC.OPERATION_ENABLE", 1, 15)
    assert (access.start, access.accepted, access.end) == (2, 4, None)
    (tmp_path / "m.toml").write_text(text.replace('"~b1"', '"b1"').replace("63:32", "31:0"))
    (access,) = waves.open(file, ports=tmp_path / "m.toml").accesses()
    assert (access.value, access.strobes, access.whole) == (0xDEAD, 0b1011, False)
    assert access.text.endswith("(bytes 1011 only)")
    (tmp_path / "m.toml").write_text(text.replace('["b0", 1, "~b1", 1]', '"b{1..0}"'))
    (access,) = waves.open(file, ports=tmp_path / "m.toml").accesses()
    assert access.strobes == 0b10
    (tmp_path / "m.toml").write_text(text.replace('"n"', '"~n"'))
    (access,) = waves.open(file, ports=tmp_path / "m.toml").accesses()
    assert access.accepted == 3


def test_two_cores(tmp_path: Path):
    pins = list(lite({pin: pin for pin in ("awvalid", "awready", "awaddr", "wvalid", "wready", "wdata")}))
    signals = {}
    for core in (0, 1):
        signals |= lite({pin: f"soc.npu{core}_s_axil_{pin}" for pin in pins})
        signals[f"soc.npu{core}_irq"] = (1, {6 + core: 1})
    file = write_vcd(tmp_path / "w.vcd", signals, 12)
    (tmp_path / "m.toml").write_text(
        '[core0]\nprefix = "soc.npu0_"\n[core1]\nprefix = "soc.npu1_"\ns_axil_wdata = 0\n'
    )
    wave = waves.open(file, ports=tmp_path / "m.toml")
    assert wave.cores == [0, 1]
    assert [(a.core, a.value) for a in wave.accesses()] == [(0, 1), (1, 0)]
    assert [(job.core, job.number) for job in wave.jobs()] == [(0, 0)]
    assert [(i.core, i.start) for i in wave.irqs()] == [(0, 6), (1, 7)]
    assert waves.open(file, prefix="soc.npu1_").accesses()[0].core == 0


@pytest.mark.parametrize(
    ("scopes", "found"),
    [
        (["soc.core_1", "soc.core_0"], {0: "soc.core_0", 1: "soc.core_1"}),
        (["soc.npu[2]", "soc.npu[1]"], {1: "soc.npu[1]", 2: "soc.npu[2]"}),
        (["soc.left", "soc.right"], {0: "soc.left", 1: "soc.right"}),
        (["soc.a.core_1"], {0: "soc.a.core_1"}),
    ],
)
def test_several_instances_of_the_core(tmp_path: Path, scopes: list[str], found: dict[int, str]):
    """Other scopes that have some of the ports, deeper ones among them, are no cores."""
    pins = ("awvalid", "awready", "awaddr", "wvalid", "wready", "wdata")
    signals = {}
    for scope in scopes:
        signals |= lite({pin: f"{scope}.s_axil_{pin}" for pin in pins})
        signals |= lite({pin: f"{scope}.axil.s_axil_{pin}" for pin in pins})
    signals["soc.s_axil_awvalid"] = (1, {})
    wave = waves.open(write_vcd(tmp_path / "w.vcd", signals, 12))
    assert wave.core_scopes == found
    assert sorted({a.core for a in wave.accesses()}) == sorted(found)


@pytest.mark.parametrize("reader", READERS)
def test_signals_that_are_declared_in_ranges(tmp_path: Path, reader: str):
    file = tmp_path / "w.vcd"
    file.write_text(
        "$timescale 1 ns $end\n$scope module t $end\n"
        "$var wire 4 ! a [7:4] $end\n$var wire 4 % a [3:0] $end\n$var wire 1 & b [1] $end\n"
        "$var wire 1 ' b [0] $end\n$var wire 1 ( c[2] $end\n$upscope $end\n$enddefinitions $end\n"
        "#0\nb1010 !\nb0101 %\n1&\n0'\n1(\n#3\nb11 %\n1'\n#5\n"
    )
    wave = waves.open(file, reader=reader)
    assert wave.changes("t.a") == [(0, 0xA5), (3, 0xA3)]
    assert wave.changes("t.b") == [(0, 2), (3, 3)] and wave.find("t.b").width == 2


@pytest.mark.parametrize("reader", READERS)
def test_arrays_of_icarus(tmp_path: Path, reader: str):
    """Its names of words of arrays begin with a backslash."""
    file = tmp_path / "w.vcd"
    file.write_text(
        "$timescale 1 ns $end\n$scope module t $end\n$scope module gen[1] $end\n$var wire 1 # go $end\n"
        "$upscope $end\n$var reg 32 ! \\a[0] [31:0] $end\n$var reg 32 % \\a[1] [31:0] $end\n"
        "$var reg 1 & \\b[0] $end\n$var reg 1 ' \\b[1] $end\n$upscope $end\n$enddefinitions $end\n"
        "#0\nb1000 !\nb101 %\n1&\n0'\n1#\n#3\n0#\n#5\n"
    )
    text = "s_axil_awvalid = 't.gen[1].go'\ns_axil_awready = 'b[0]'\ns_axil_awaddr = 't.a[0]'\n"
    text += "s_axil_wvalid = 'gen[1].go'\ns_axil_wready = '~t.b[1]'\ns_axil_wdata = 'a[1]'\n"
    (tmp_path / "m.toml").write_text(text)
    found = waves.open(file, ports=tmp_path / "m.toml", reader=reader).accesses()
    assert [(a.offset, a.value, a.accepted) for a in found] == [(8, 5, n) for n in range(3)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the map names no port; its keys are port names"),
        ("s_axil_awaddr = ", "not a TOML file"),
        ("s_axil_awadr = 'a'", "the core has no port 's_axil_awadr'; near: s_axil_awaddr"),
        ("irq = true", "irq: a value is a name, a number, or a list of them, not True"),
        ("irq = 2", "irq: 2 is no value of a port of 1 bits"),
        ("s_axil_wstrb = [2]", "s_axil_wstrb: a constant in a list is 0 or 1, not 2"),
        ("s_axil_wstrb = ['a', 'b', 'c', 'd', 'e']", "s_axil_wstrb has 4 bits, and the list has 5 elements"),
        ("s_axil_wstrb = []", "s_axil_wstrb has 4 bits, and the list has 0 elements"),
        ("prefix = 3", "prefix is a text"),
        ("cycle = '10'", "cycle: a time is a number with a unit"),
        ("core1 = 3", r"core1 is a table of ports, as \[core1\]"),
        ("irq = 'a'\n[core0]\nirq = 'b'", "core 0 has ports both in"),
        ("[core7]\nirq = 'b'", "the core has no port 'core7'"),
        ("irq = {a = 1}", "irq: a value is a name"),
    ],
)
def test_wrong_map_files(tmp_path: Path, text: str, said: str):
    file = tmp_path / "m.toml"
    file.write_text(text)
    with pytest.raises(WaveError, match=said):
        read_map(file)


def test_map_files_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(WaveError, match="no such file"):
        read_map(tmp_path / "none.toml")
    (tmp_path / "big.toml").write_bytes(b"#" * (MOST_BYTES + 1))
    with pytest.raises(WaveError, match="at most 1 MiB"):
        read_map(tmp_path / "big.toml")
    (tmp_path / "deep.toml").write_text("irq = " + "[" * 100_000)
    with pytest.raises(WaveError, match="not a TOML file"):
        read_map(tmp_path / "deep.toml")
    (tmp_path / "latin.toml").write_bytes(b"irq = '\xff'")
    with pytest.raises(WaveError, match="not a TOML file"):
        read_map(tmp_path / "latin.toml")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ('"t.w[40:33]"', r"'t\.w\[40:33\]': t\.w has bits 31 to 0"),
        ('"t.x"', "no signal is called 't.x'"),
        ('["t.w", "t.go"]', "'t.w' has 32 bits; in a list each element is one bit"),
        ('"t.w[{0..40}]"', "it has 32 bits, and the map names 41"),
        ('"go{0..3}"', "no signal is called 'go0'"),
    ],
)
def test_values_that_the_waveform_does_not_have(tmp_path: Path, value: str, said: str):
    names = {
        "awvalid": "t.go",
        "wvalid": "t.wv",
        "awready": "t.r",
        "awaddr": "t.a",
        "wready": "t.k",
        "wdata": "t.w",
    }
    file = write_vcd(tmp_path / "w.vcd", lite(names), 12)
    (tmp_path / "m.toml").write_text(
        "".join(f's_axil_{pin} = "{name}"\n' for pin, name in names.items() if pin != "wdata")
        + f"s_axil_wdata = {value}\n"
    )
    with pytest.raises(WaveError, match=said):
        waves.open(file, ports=tmp_path / "m.toml")


def test_a_small_file_cannot_claim_many_transfers(tmp_path: Path):
    """All pins are high for 10^12 cycles; each decoder ends at once."""
    pins = [pin for group in GROUPS for pin in group.needed]
    signals = {f"t.{pin}": (PORTS[pin], {0: 1}) for pin in pins}
    wave = waves.open(write_vcd(tmp_path / "w.vcd", signals, 10**12))
    assert wave.cores == [0] and wave.last == 10**12 - 1
    for decode in (wave.accesses, wave.bursts, wave.register_writes, wave.jobs):
        with pytest.raises(
            WaveError, match=r"transfers without a change of their pins.*\(--clock, --cycle\)"
        ):
            decode()
