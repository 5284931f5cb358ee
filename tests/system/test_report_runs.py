"""The HTML report of real runs: its numbers add up, and a browser shows it without errors."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rkcosim.measure.perf.attribution import CAUSES
from tests.makers.tflite_networks import mobilenet_uint8
from tests.programs import needs_program, program

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits"
CHROMIUM = program("chromium")
BROWSER = needs_program("chromium")


def rkcosim(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rkcosim.cli.main", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("digits")
    out, page = folder / "run.json", folder / "run.html"
    model, images = DIGITS / "digits_int8.onnx", DIGITS / "held_back.npz"
    done = rkcosim(
        *("run", model, "--input", images, "--limit", 2, "--check", "--json", out, "--html", page),
        *("--events", folder / "run.parquet"),
    )
    assert done.returncode == 0, done.stderr
    return json.loads(out.read_text()), out, page


def add_up(data: dict) -> None:
    """Check that cycle parts, bytes of clients, layers and tasks of a run add up."""
    for row in data["layers"]:
        if row["cycles"] is None:
            assert not row["spent"]
            continue
        assert tuple(row["spent"]) == CAUSES and min(row["spent"].values()) >= 0, row
        assert sum(row["spent"].values()) == row["core_cycles"], row
        assert row["core_cycles"] == len(row["cores"]) * row["cycles"], row
        assert bool(row["spent"]["cores"]) <= (len(row["cores"]) > 1)
        counters = row["counters"]
        slots = sum(n for name, n in counters.items() if name.startswith("cycles_array_"))
        assert row["spent"]["array"] <= slots == counters.get("mac_slots", 0) >= counters.get("mac_pixels", 0)
        for state, counter in (("feature", "stall_feature"), ("weight", "stall_weight")):
            ends = sum(n for name, n in counters.items() if name.startswith(f"cycles_{state}_"))
            assert ends == counters.get(counter, 0), row
        assert sum(n for name, n in row["read_by"].items() if name != "PC") == row["bytes_read"]
        assert sum(row["written_by"].values()) == row["bytes_written"]
    measured = [row for row in data["layers"] if row["cycles"] is not None]
    assert sum(row["tasks"] for row in measured) == len(data["tasks"])
    for number, row in enumerate(data["layers"]):
        mine = [task["cycles"] for task in data["tasks"] if task["layer"] == number]
        assert sum(mine) <= (row["core_cycles"] or 0)
        if len(row["cores"]) == 1:
            assert sum(mine) == row["core_cycles"]
    assert (
        len(data["inference_cycles"]) == data["inferences"]
        and sum(data["inference_cycles"]) == data["cycles"]
    )
    assert sum(row["cycles"] for row in measured) <= data["inference_cycles"][0]


def test_cycles_and_bytes_of_each_layer_add_up(digits):
    data, _, _ = digits
    add_up(data)
    array = {row["name"]: row["spent"]["array"] / row["cycles"] for row in data["layers"] if row["cycles"]}
    assert array["stem"] > 0.8 and array["pool"] == 0


def test_buffers_hold_what_the_layers_use(digits):
    data, _, _ = digits
    buffers = data["buffers"]
    assert {b["kind"] for b in buffers} == {"input", "tensor", "output", "weights", "commands"}
    for a, b in itertools.pairwise(buffers):  # nothing is shared in a run that checks all tensors
        assert a["address"] + a["size"] <= b["address"], (a, b)
    for b in buffers:
        assert b["used"] and b["first"] <= min(b["used"]) and max(b["used"]) <= b["last"]
    weights = [b["size"] for b in buffers if b["kind"] == "weights"]
    assert sum(weights) <= data["memory"]["weights"] < sum(weights) + 64 * len(weights)
    commands = sum(b["size"] for b in buffers if b["kind"] == "commands")
    assert 0 < commands <= data["memory"]["commands"]


def test_cores_that_share_layers_add_up(tmp_path):
    model = tmp_path / "mobilenet.tflite"
    model.write_bytes(mobilenet_uint8())
    out = tmp_path / "run.json"
    done = rkcosim("run", model, "--cores", 3, "--json", out, "--html", tmp_path / "run.html")
    assert done.returncode == 0, done.stderr
    data = json.loads(out.read_text())
    add_up(data)
    assert any(len(row["cores"]) == 3 for row in data["layers"])
    assert "x 3 cores" in (tmp_path / "run.html").read_text()


def test_page_from_the_file_is_that_of_the_run(digits, tmp_path):
    data, out, page = digits
    again = tmp_path / "again.html"
    assert rkcosim("report", out, out.with_suffix(".parquet"), "-o", again).returncode == 0
    assert again.read_text() == page.read_text()
    assert rkcosim("report", out, "-o", again).returncode == 0
    assert "core 0: tasks, active blocks" in page.read_text() and "mean of each task" in again.read_text()
    text = page.read_text()
    for row in data["layers"]:
        assert f'id="row{data["layers"].index(row)}"' in text and f">{row['name']}<" in text
        if row["cycles"]:
            assert f">{row['cycles']:,}<" in text
    assert not re.search(r"(https?:)?//\w+\.\w+", text)


def test_streams_have_pages_too(tmp_path):
    out, page = tmp_path / "run.json", tmp_path / "run.html"
    stream = ROOT / "examples" / "streams" / "pool.json"
    for engine in ("golden", "verilator"):
        done = rkcosim("regcmd", "run", stream, "--engine", engine, "--check", "--json", out, "--html", page)
        assert done.returncode == 0, done.stderr
        data = json.loads(out.read_text())
        assert [row["op"] for row in data["rows"]] == ["pool"] and data["rows"][0]["formula_ddr"] > 0
        assert ("No engine measured this run" in page.read_text()) == (engine == "golden")
    row = data["rows"][0]
    assert sum(row["spent"].values()) == row["cycles"] <= data["cycles"]
    assert row["counters"]["cycles_none_work"] >= row["counters"]["ppu_atoms"] == 192


def test_a_hang_shows_how_far_it_came(tmp_path):
    out, page = tmp_path / "run.json", tmp_path / "run.html"
    stream = ROOT / "examples" / "streams" / "pool.json"
    done = rkcosim("regcmd", "run", stream, "--max-cycles", 500, "--json", out, "--html", page)
    assert done.returncode == 3 and "no interrupt within 500 cycles" in done.stderr
    data = json.loads(out.read_text())
    (row,) = data["rows"]
    assert row["name"] == "task 0, not ended" and 0 < row["cycles"] < data["cycles"] < 600
    assert sum(row["spent"].values()) == row["cycles"] and 0 < row["bytes_written"] < 768
    assert row["bound"] == "not ended"
    text = page.read_text()
    assert "no interrupt" in text and "memory: 1 open writes of PPU" in text
    assert "input cube reads" in text and "output cube writes" in text


def test_two_files_are_compared_and_bad_input_is_one_line(digits, tmp_path):
    _, out, page = digits
    compared = tmp_path / "compared.html"
    assert rkcosim("report", page, out, "-o", compared).returncode == 0, (
        "a page contains the figures of its run"
    )
    assert "Every layer takes the same number of cycles in both." in compared.read_text()
    for arguments in (
        (compared, "-o", tmp_path / "x"),
        (out, out, out, "-o", tmp_path / "x"),
        (tmp_path / "no", "-o", "x"),
    ):
        done = rkcosim("report", *arguments)
        assert done.returncode == 2 and done.stderr.startswith("rkcosim: ") and done.stderr.count("\n") == 1


def chromium(folder: Path, page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    assert CHROMIUM
    return subprocess.run(
        [
            CHROMIUM,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--enable-logging=stderr",
            f"--user-data-dir={folder / 'profile'}",
            *options,
            page.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
    )


PROBE = """<script>
const table = document.getElementById("table"), heads = [...table.tHead.rows[1].cells];
const column = (name) => heads.findIndex((head) => head.textContent.startsWith(name));
const numbers = (at) => [...table.tBodies[0].rows].map((row) => row.cells[at].textContent);
const seen = {};
heads[column("cycles")].click(); seen.down = numbers(column("cycles"));
heads[column("cycles")].click(); seen.up = numbers(column("cycles"));
heads[column("layer")].click(); seen.names = numbers(column("layer"));
const find = document.getElementById("find"); find.value = "dw"; find.dispatchEvent(new Event("input"));
seen.found = [...table.tBodies[0].rows].filter((row) => !row.hidden).length;
const colour = () => getComputedStyle(document.body).backgroundColor;
seen.before = colour(); document.getElementById("theme").click(); seen.after = colour();
document.getElementById("theme").click(); seen.again = colour();
const bar = document.querySelector("#cyclebars .room svg rect");
bar.dispatchEvent(new PointerEvent("pointermove", { bubbles: true, clientX: 5, clientY: 5 }));
seen.tip = document.getElementById("tip").textContent;
seen.wide = document.documentElement.scrollWidth <= innerWidth;
const out = document.createElement("pre"); out.id = "seen"; out.textContent = JSON.stringify(seen);
document.body.append(out);
</script>"""


@BROWSER
def test_a_browser_sorts_finds_explains_and_changes_colours(digits, tmp_path):
    _, _, page = digits
    probed = tmp_path / "probed.html"
    probed.write_text(page.read_text().replace("</body>", f"{PROBE}</body>"))
    for size in ("1280,900", "390,800"):
        done = chromium(tmp_path, probed, f"--window-size={size}", "--dump-dom")
        assert "CONSOLE" not in done.stderr, done.stderr
        seen = json.loads(re.search(r'<pre id="seen">(.*?)</pre>', done.stdout)[1].replace("&gt;", ">"))
        cycles = [int(text.replace(",", "")) for text in seen["down"][:-1]]
        assert cycles == sorted(cycles, reverse=True) and len(cycles) == 10
        assert seen["up"] == [*seen["down"][-2::-1], seen["down"][-1]], "rows without a value stay last"
        assert seen["names"] == sorted(seen["names"]) and seen["found"] == 3
        assert seen["before"] != seen["after"] and seen["again"] == seen["before"]
        assert seen["tip"].startswith("0 stem\narray: 2,304 (")
        assert seen["wide"], "the page is wider than the window"


@BROWSER
def test_both_colour_schemes_are_drawn(digits, tmp_path):
    _, _, page = digits
    pictures = {}
    for name, scheme in (("dark", 0), ("light", 1)):
        picture = tmp_path / f"{name}.png"
        done = chromium(
            tmp_path,
            page,
            f"--blink-settings=preferredColorScheme={scheme}",
            "--window-size=1280,2000",
            f"--screenshot={picture}",
        )
        assert picture.is_file(), done.stderr
        assert "CONSOLE" not in done.stderr, done.stderr
        pictures[name] = picture.read_bytes()
    assert pictures["dark"] != pictures["light"]
    assert min(map(len, pictures.values())) > 20_000, "an empty page"
