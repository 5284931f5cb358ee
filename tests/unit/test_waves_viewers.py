"""Files for GTKWave and Surfer, read back; pictures of windows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path

import pytest
from click.testing import CliRunner

from rkcosim import waves
from rkcosim.cli.main import app
from rkcosim.regcmd import decode_word, format_command, op_enable_word, register_word
from rkcosim.spec import port_codes
from rkcosim.spec.regs import registers
from rkcosim.waves import Wave, WaveError
from rkcosim.waves.gtkwave import MARKERS, chosen_marks, write_gtkwave
from rkcosim.waves.layout import Mark, chosen, layout, marks, opening
from rkcosim.waves.surfer import write_surfer
from rkcosim.waves.svg import draw, end_of_activity
from rkcosim.waves.translate import register_field
from tests.makers import ron
from tests.makers.small_wave import core_signals, pulses, write_vcd
from tests.programs import needs_program

CONV_MODE = registers()["CNA"]["CONV_CON1"]
WORDS = [register_word(CONV_MODE, CONV_MODE.encode(CONV_MODE=3)), op_enable_word(5)]


@pytest.fixture
def wave(tmp_path: Path) -> Wave:
    """A core with one task, one register write by the stream, an interrupt, and a read of FEATURE."""
    values = {
        "irq": {30: 1},
        "watch.valid": pulses([5]),
        "watch.fetched": {5: 1},
        "watch.offset": {5: CONV_MODE.offset},
        "watch.value": {5: 3},
        "axi.arvalid": pulses([12]),
        "axi.arready": {0: 1},
        "axi.arid": {0: 7, 12: 0},
        "axi.araddr": {12: 0x1234_5678},
    }
    signals = core_signals(
        0, values, {"task_start": [10], "task_done": [28], "mac_slots": list(range(15, 25))}
    )
    signals["npu.core0.layer_name"] = (0, {10: "conv1"})
    signals["core0.CNA.registers.CONV_CON1.CONV_MODE"] = (4, {6: 3})
    signals["core0.CNA.registers.CONV_CON1.IN_PRECISION"] = (3, {})
    signals["core0.CNA.control.start"] = (1, pulses([10]))
    signals["core0.PC.words.payload.word"] = (64, {3: WORDS[0], 9: WORDS[1]})
    signals["core0.PC.words.valid"] = (1, {3: 1})
    return waves.open(write_vcd(tmp_path / "small.vcd", signals, 40))


def test_groups_and_texts(wave: Wave):
    (core,) = layout(wave)
    names = [item.name for item in core.items if hasattr(item, "items")]
    assert names == [
        "register writes",
        "command words",
        "events",
        "CNA",
        "AXI read",
        "AXI write",
        "diagnostics",
    ]
    rows = {row.label: row for row in core.rows()}
    assert rows["layer_name"].text("conv1") == "conv1"
    assert rows["offset"].text(CONV_MODE.offset) == "CNA.CONV_CON1" and rows["offset"].text(0xFFFC) == "fffc"
    assert rows["word"].text(WORDS[0]) == format_command(decode_word(WORDS[0]))
    assert rows["arid"].text(7) == "PC" and rows["arid"].text(31) == "1f" and rows["arid"].text(None) == "x"
    label = CONV_MODE.fields["CONV_MODE"].label(3)
    assert label is not None and rows["CONV_CON1.CONV_MODE"].text(3) == label
    assert [(m.cycle, m.name, m.kind) for m in marks(wave)] == [
        (10, "task 0 conv1", "task"),
        (30, "irq", "irq"),
    ]
    assert [m.name for m in marks(wave, 11, 40)] == ["irq"]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("core0.CNA.registers.CONV_CON1.CONV_MODE", "CNA.CONV_CON1.CONV_MODE"),
        ("dut.cna_registers.cfg__CONV_CON1.CONV_MODE", "CNA.CONV_CON1.CONV_MODE"),
        ("dut.ppu_registers.cfg__RECIP_KERNEL_WIDTH", "PPU.RECIP_KERNEL_WIDTH.RECIP_KERNEL_WIDTH"),
        ("core0.CNA.registers.CONV_CON1", None),  # more than one field
        ("core0.CNA.registers.CONV_CON1.NOTHING", None),
        ("core0.CNA.registers.running", None),
        ("core0.NOTHING.registers.CONV_CON1.CONV_MODE", None),
    ],
)
def test_signals_that_are_fields(name: str, path: str | None):
    found = register_field(name)
    assert (f"{found[0].path}.{found[1].name}" if found else None) == path


def read_save(path: Path) -> tuple[dict[str, list[str]], list[tuple[str, str, str, str]]]:
    """Return the settings of a GTKWave save file, and its traces as (groups, name, alias, filter)."""
    settings: dict[str, list[str]] = {}
    traces, groups = [], []
    flags, chosen = 0, ""
    files: dict[str, str] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            key, _, value = line[1:].partition("] ")
            settings.setdefault(key, []).append(value)
        elif line.startswith("*"):
            settings["zoom"] = line[1:].split()
        elif line.startswith("@"):
            flags = int(line[1:], 16)
        elif line.startswith("^"):
            number, _, name = line[1:].partition(" ")
            chosen = files.setdefault(number, name)
        elif line.startswith("-"):
            if flags & 0x800000:
                groups.append(line[1:])
            else:
                assert flags & 0x1000000 and groups.pop() == line[1:]
        else:
            found = re.fullmatch(r"\+\{(.*)\} (\S+)", line)
            assert found, line
            traces.append(("/".join(groups), found[2], found[1], chosen if flags & 0x2000 else ""))
    assert not groups
    return settings, traces


def test_save_file_and_filters(wave: Wave):
    save, filters = write_gtkwave(wave)
    assert save == wave.file.with_suffix(".gtkw")
    settings, traces = read_save(save)
    assert settings["dumpfile"] == [f'"{wave.file}"'] and settings["savefile"] == [f'"{save}"']
    by_alias = {alias: (groups, name, texts) for groups, name, alias, texts in traces}
    assert by_alias["araddr"] == ("core 0/AXI read", "core0.axi.araddr[39:0]", "")
    assert by_alias["irq"][1] == "core0.irq"
    assert by_alias["CONV_CON1 CONV_MODE"][:2] == (
        "core 0/CNA/CNA registers",
        "core0.CNA.registers.CONV_CON1.CONV_MODE[3:0]",
    )
    # Every trace is in the waveform, with its range.
    known = {s.name + (f"[{s.width - 1}:0]" if s.width > 1 else "") for s in wave.signals}
    assert {name for _, name, _, _ in traces} <= known
    # GTKWave counts in ps here: a cycle is 1000; markers a and b are the task and the interrupt.
    assert settings["zoom"][2:4] == ["10000", "30000"] and set(settings["zoom"][4:]) == {"-1"}
    assert settings["markername"] == ["Atask 0 conv1", "Birq"]
    used = {texts for *_, texts in traces if texts}
    assert used == {str(path) for path in filters} and all(path.is_file() for path in filters)
    clients = dict(
        line.split(" ", 1) for line in Path(by_alias["arid"][2]).read_text(encoding="utf-8").splitlines()
    )
    assert clients == {f"{n:02x}": name for n, name in enumerate(port_codes.READ_CLIENTS)}
    words = dict(
        line.split(" ", 1) for line in Path(by_alias["word"][2]).read_text(encoding="utf-8").splitlines()
    )
    assert words[f"{WORDS[1]:016x}"] == "OP_ENABLE CNA CORE"


@pytest.mark.parametrize(
    ("busy", "cycles", "shown"),
    [
        ([10, 28, 60, 95], 100, (0, 100)),  # no long pause
        ([10, 28, 30, 33], 1000, (0, 54)),  # a hang: the activity before it
        ([10, 28, 30, 33, 990], 1000, (0, 54)),  # the host looks at the core when its time is over
        ([900, 920, 930, 990], 1000, (880, 1000)),  # a long wait before anything begins
        ([], 1000, (0, 1000)),
    ],
)
def test_viewers_open_where_something_happens(
    tmp_path: Path, busy: list[int], cycles: int, shown: tuple[int, int]
):
    signals = core_signals(0, {}, {"mac_slots": busy})
    wave = waves.open(write_vcd(tmp_path / "hang.vcd", signals, cycles))
    last = wave.last
    assert opening(wave, layout(wave)) == (shown[0], min(shown[1], last))
    save, _ = write_gtkwave(wave)
    settings, _ = read_save(save)
    assert settings["timestart"] == [str(1000 * shown[0])]
    span = 5.3 * 2 ** -float(settings["zoom"][0])
    assert span == pytest.approx(1000 * (min(shown[1], last) + 1 - shown[0]), rel=0.01)
    state, _ = write_surfer(wave)
    left, right = (
        float(re.search(rf"curr_{side}: \(([0-9.]+)\)", state.read_text())[1]) for side in ("left", "right")
    )
    if shown == (0, cycles):
        assert (left, right) == (0, 1)
    else:
        assert left == pytest.approx(shown[0] / (last + 1), abs=1e-5)
        assert right == pytest.approx(min(shown[1], last) / (last + 1), abs=1e-5)


def test_more_marks_than_markers():
    found = [Mark(n, f"task {n}", "task") for n in range(40)] + [Mark(100, "irq", "irq")]
    kept = chosen_marks(found)
    assert len(kept) == len(MARKERS) and kept[-1].name == "irq" and kept[0].name == "task 0"


def test_state_and_mappings(wave: Wave):
    state, mappings = write_surfer(wave)
    assert state.name == "small.surf.ron"
    tree = ron.loads(state.read_text())
    shown = tree["waves"]
    assert shown["source"] == ron.Tuple("File", [str(wave.file)]) and shown["format"] == "Vcd"
    items = shown["displayed_items"]
    order = [entry["item_ref"][0] for entry in shown["items_tree"]["items"]]
    assert sorted(order) == sorted(items) == list(range(1, len(items) + 1))
    assert shown["display_item_ref_counter"] == len(items)
    levels = [entry["level"] for entry in shown["items_tree"]["items"]]
    assert levels[0] == 0 and all(after <= before + 1 for before, after in pairwise(levels))
    names = {path.name.removesuffix(".txt") for path in mappings}
    assert all(path.parent == state.parent / ".surfer" / "mappings" for path in mappings)
    known = {signal.name for signal in wave.signals}
    formats = {}
    for item in items.values():
        if item.name == "Variable":
            (body,) = item
            path = ".".join([*body["variable_ref"]["path"]["strs"], body["variable_ref"]["name"]])
            assert path in known
            assert body["format"] in names | {"Hexadecimal", "Unsigned", "Binary", "Bit", "String"}
            formats[body["manual_name"]] = body["format"]
    assert formats["arid"] == "read_client" and formats["word"] == "command_word_0_small"
    assert formats["CONV_CON1.CONV_MODE"] == "CNA.CONV_CON1.CONV_MODE" and formats["layer_name"] == "String"
    # Markers are in the file's units of 100 ps.
    assert shown["markers"] == {0: [1, [100]], 1: [1, [300]]}
    numbers = [body["idx"] for item in items.values() if item.name == "Marker" for body in item]
    assert numbers == [0, 1]
    for path in mappings:
        lines = path.read_text().splitlines()
        assert lines[0] == f"Name = {path.stem if path.suffix == '.txt' else path.name}"
        bits = re.fullmatch(r"Bits = (\d+)", lines[1])
        assert bits
        for line in lines[2:]:
            value = re.fullmatch(r"0x([0-9a-f]+) \S.*", line)
            assert value and int(value[1], 16) < 1 << int(bits[1]) and "#" not in line


def test_ron_reader_knows_what_is_wrong():
    assert ron.loads('(a: Some(1), b: [(2.5), "x\\"y"], c: {(1): None})') == {
        **{"a": 1, "b": [[2.5], 'x"y'], "c": {1: None}},
    }
    for text in ("(a: 1", "(a: 1, a: 2)", "[1 2]", "(1) x"):
        with pytest.raises(ValueError, match="not RON"):
            ron.loads(text)


SVG = "{http://www.w3.org/2000/svg}"


def test_picture(wave: Wave):
    wanted = ["axi.ar*", "CONV_MODE", "layer_name", "core0.irq"]
    text = draw(wave, first=2, last=35, signals=wanted, width=900)
    root = ElementTree.fromstring(text)
    assert root.get("viewBox", "").startswith("0 0 900 ")
    assert root.findtext(f"{SVG}title") == "small.vcd, cycles 2 to 35"
    texts = [element.text for element in root.iter(f"{SVG}text")]
    assert {"core0.axi", "arid", "araddr", "PC", "FEATURE", "12345678"} <= set(texts)
    assert {"layer_name", "conv1", "task 0 conv1", "irq"} <= set(texts)
    label = CONV_MODE.fields["CONV_MODE"].label(3)
    assert label in texts or any(t and t.endswith("…") and label.startswith(t[:-1]) for t in texts if t)
    style = root.findtext(f"{SVG}style") or ""
    assert "prefers-color-scheme: dark" in style and "http" not in style and "@import" not in style
    width = 900
    for box in root.iter(f"{SVG}rect"):
        assert float(box.get("x", 0)) + float(box.get("width", 0)) <= width + 0.2
    # Texts of values fit between their edges.
    for polygon in root.iter(f"{SVG}polygon"):
        xs = [float(point.split(",")[0]) for point in polygon.get("points", "").split()]
        assert 0 <= min(xs) <= max(xs) <= width + 0.2


def test_a_picture_ends_where_a_run_has_stopped(tmp_path: Path):
    """Changes up to cycle 100, then nothing but the host's access at the end of 5000 cycles."""
    changes = {cycle: cycle % 7 for cycle in range(2, 100)} | {4990: 9}
    wave = waves.open(write_vcd(tmp_path / "w.vcd", core_signals(0, {"axi.arid": changes}), 5000))
    assert end_of_activity(wave) == 99 + 20
    assert end_of_activity(wave, 4980) is None
    busy = {cycle: cycle % 7 for cycle in range(2, 5000)}
    wave = waves.open(write_vcd(tmp_path / "b.vcd", core_signals(0, {"axi.arid": busy}), 5000))
    assert end_of_activity(wave) is None


def test_pins_come_before_what_is_inside(tmp_path: Path):
    """Of two names the picture uses the pin; of two signals it uses the one directly below the core."""
    signals = core_signals(0, {"axi.arid": {5: 1}, "watch.offset": {5: CONV_MODE.offset}})
    signals["core0.FABRIC.watch.offset"] = (16, {4: 1})
    aliases = {"core0.DDMA.axi.arid": "core0.axi.arid"}
    wave = waves.open(write_vcd(tmp_path / "w.vcd", signals, 9, aliases))
    groups = chosen(wave, ["axi.arid", "watch.offset", "*.axi.arid"])
    rows = [(group.name, row) for group in groups for row in group.rows()]
    shown = [(name, row.label, row.texts.name if row.texts else "") for name, row in rows]
    assert shown == [("core0.axi", "arid", "read_client"), ("core0.watch", "offset", "register")]
    (group,) = chosen(wave, ["FABRIC.watch.*"])
    assert [row.signal.name for row in group.rows()] == ["core0.FABRIC.watch.offset"]


def test_a_waveform_without_cores(tmp_path: Path):
    signals = {"bench.dut.ready": (1, pulses([3])), "bench.dut.count": (4, {2: 7}), "bench.dut.in.x": (1, {})}
    wave = waves.open(write_vcd(tmp_path / "block.vcd", signals, 9))
    (group,) = layout(wave)
    assert (group.name, [row.label for row in group.rows()]) == ("bench.dut", ["count", "ready"])
    assert wave.tasks() == [] and "ready" in draw(wave)
    assert rkcosim("waves", wave.file, "--no-open")[0] == 0 and read_save(tmp_path / "block.gtkw")[1]


def test_picture_of_many_changes_stays_small(tmp_path: Path):
    values = {"watch.value": {n: n for n in range(20_000)}, "irq": pulses(range(0, 20_000, 2))}
    signals = core_signals(0, values)
    wave = waves.open(write_vcd(tmp_path / "many.vcd", signals, 20_000))
    text = draw(wave, signals=["watch.value", "core0.irq"])
    assert len(text) < 60_000 and 'class="dense write"' in text
    close = draw(wave, first=100, last=120, signals=["watch.value"])
    assert all(f">{n:x}<" in close for n in range(100, 121))


def test_overview_shows_what_changes(wave: Wave):
    texts = [element.text for element in ElementTree.fromstring(draw(wave)).iter(f"{SVG}text")]
    assert {"core 0", "core 0 · events", "mac_slot", "core 0 · AXI read"} <= set(texts)
    assert "stall_feature" not in texts and "CONV_CON1.CONV_MODE" not in texts


def test_pictures_that_cannot_be(wave: Wave):
    with pytest.raises(WaveError, match="no cycles 50 to 39; the waveform has 0 to 39"):
        draw(wave, first=50)
    with pytest.raises(WaveError, match="no signal is called 'nothing'"):
        draw(wave, signals=["nothing"])
    with pytest.raises(WaveError, match="has no room for waves"):
        draw(wave, width=200)


def rkcosim(*arguments: object) -> tuple[int, str]:
    """Return the exit code and the output."""
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_command_writes_files_and_opens_nothing_where_nobody_looks(wave: Wave, tmp_path: Path):
    out = tmp_path / "out.json"
    code, text = rkcosim("waves", wave.file, "--json", out)
    assert code == 0 and "VCD, cycles 0 to 39, 1 core, 1 task, 1 interrupt" in text
    data = json.loads(out.read_text())
    assert data["opened"] is None and data["tasks"] == [
        {"core": 0, "job": 0, "task": 0, "start": 10, "end": 28, "layer": "conv1"},
    ]
    assert all(Path(name).is_file() for name in data["files"])
    assert {Path(name).name for name in data["files"]} >= {"small.gtkw", "small.surf.ron"}


def test_files_of_the_user_stay(wave: Wave, tmp_path: Path):
    mine = {name: tmp_path / name for name in ("small.gtkw", "small.surf.ron")}
    for path in mine.values():
        path.write_text("[*] my own\n")
    save, state = write_gtkwave(wave)[0], write_surfer(wave)[0]
    assert (save.name, state.name) == ("rkcosim.small.gtkw", "rkcosim.small.surf.ron")
    assert all(path.read_text() == "[*] my own\n" for path in mine.values())
    # A file that rkcosim wrote is written again.
    assert write_gtkwave(wave, mine["small.gtkw"])[0] == mine["small.gtkw"]
    assert write_gtkwave(wave)[0] == mine["small.gtkw"] and read_save(mine["small.gtkw"])[1]


@pytest.mark.skipif(os.name != "posix", reason="a shell script as viewer")
@pytest.mark.parametrize("viewer", ["gtkwave", "surfer"])
def test_command_opens_a_viewer(
    wave: Wave, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, viewer: str
):
    from rkcosim.cli.waves import WavesOptions, waves_command

    program, said = tmp_path / "bin" / viewer, tmp_path / "said.txt"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$PWD" "$@" > {said}.part\nmv {said}.part {said}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    waves_command.function(WavesOptions(wave=wave.file, viewer=viewer))
    assert f"opened {viewer}" in capsys.readouterr().out
    for _ in range(100):
        if said.is_file():
            break
        time.sleep(0.1)
    words = said.read_text().split()
    assert words[0] == str(tmp_path)
    files = {"gtkwave": ["small.gtkw"], "surfer": ["small.surf.ron", "small.vcd"]}[viewer]
    assert [str(tmp_path / name) for name in files] == [w for w in words[1:] if not w.startswith("--")]
    with pytest.raises(ValueError, match="is not installed"):
        monkeypatch.setenv("PATH", str(tmp_path))
        waves_command.function(WavesOptions(wave=wave.file, viewer=viewer))


def test_command_draws(wave: Wave, tmp_path: Path):
    picture = tmp_path / "pictures" / "p.svg"
    code, text = rkcosim("waves", wave.file, "--svg", picture, "--from", "task:0", "--to", "task:0")
    assert code == 0, text
    assert ElementTree.parse(picture).getroot().findtext(f"{SVG}title") == "small.vcd, cycles 10 to 28"
    assert not wave.file.with_suffix(".gtkw").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--signals", "irq"], "--signals needs --svg FILE"),
        (["--svg", "p.svg", "--from", "task:7"], "no such task"),
        (["--svg", "p.svg", "--from", "often"], "not a moment of a run"),
    ],
)
def test_command_says_what_is_wrong(wave: Wave, arguments: list[str], says: str):
    code, text = rkcosim("waves", wave.file, *arguments)
    assert code == 2 and says in text and text.count("\n") == 1


def test_command_on_a_cut_file(wave: Wave, tmp_path: Path):
    cut = tmp_path / "cut.vcd"
    cut.write_text(wave.file.read_text()[:-3])
    code, text = rkcosim("waves", cut)
    assert code == 0 and "cut off at cycle" in text
    code, text = rkcosim("waves", tmp_path / "none.vcd")
    assert code == 2 and "no such file" in text


QUESTIONS = """
set out [open {out} w]
foreach letter {{A B}} {{ puts $out "marker $letter [gtkwave::getNamedMarker $letter]" }}
gtkwave::setMarker 12000
for {{set n 0}} {{$n < [gtkwave::getTotalNumTraces]}} {{incr n}} {{
  set value ""
  catch {{ set value [gtkwave::getTraceValueAtMarkerFromIndex $n] }}
  puts $out "[gtkwave::getTraceNameFromIndex $n]=$value"
}}
close $out
exit
"""


@needs_program("gtkwave", "Xvfb")
def test_gtkwave_shows_them(wave: Wave, tmp_path: Path):
    """The real program loads the save file: values are shown as text, groups and markers exist."""
    save, _ = write_gtkwave(wave)
    answers, script = tmp_path / "answers.txt", tmp_path / "ask.tcl"
    script.write_text(QUESTIONS.format(out=answers))
    display = f":{100 + os.getpid() % 800}"
    screen = subprocess.Popen(
        ["Xvfb", display, "-screen", "0", "1200x800x24"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        time.sleep(1)
        environment = os.environ | {"DISPLAY": display, "HOME": str(tmp_path)}
        viewer = subprocess.Popen(
            ["gtkwave", "--nowm", "-O", str(tmp_path / "log.txt"), "-S", str(script), str(save)],
            env=environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            viewer.wait(60)
        finally:
            viewer.kill()
            viewer.wait()
    finally:
        screen.kill()
        screen.wait()
    if not answers.is_file():
        pytest.skip(f"this GTKWave runs no scripts: {(tmp_path / 'log.txt').read_text()[-200:]}")
    lines = answers.read_text().splitlines()
    assert {"marker A 10000", "marker B 30000"} <= set(lines)
    assert {"offset=CNA.CONV_CON1", "arid=FEATURE", "araddr=0012345678"} <= set(lines)
    assert "word=OP_ENABLE CNA CORE" in lines
    label = CONV_MODE.fields["CONV_MODE"].label(3)
    assert f"CONV_CON1 CONV_MODE={label}" in lines and "layer_name=conv1" in lines
