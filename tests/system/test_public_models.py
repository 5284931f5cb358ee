"""`benchmarks.public_models` on small files: records, resuming, refusals and the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("tflite", reason="needs the extra tflite")
pytest.importorskip("ai_edge_litert", reason="needs the extra litert")

from benchmarks.public_models import __main__ as command
from benchmarks.public_models.files import FILES, Public, found_in
from benchmarks.public_models.measure import measure
from benchmarks.public_models.page import loaded, matching, page, summary
from benchmarks.public_models.whole import places
from benchmarks.public_models.whole_page import AWAY, NEITHER, RIGHT, class_of
from tests.makers.tflite_models import Tf


def test_files_are_found_by_their_path(tmp_path: Path) -> None:
    """The end of the path decides, the shortest path counts, and every listed file is listed once."""
    item = Public("f", "s", "models/a.tflite")
    for name in ("b/repo/models/a.tflite", "repo/models/a.tflite", "other/a.tflite", "models/a.tflite.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    missing = Public("f", "s", "models/b.tflite")
    assert found_in([tmp_path], [item, missing]) == {item: tmp_path / "repo/models/a.tflite"}
    assert len({file.path for file in FILES}) == len(FILES) == 77
    assert sum(file.invalid for file in FILES) == 1


def test_a_folder_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """One file matches, one is refused; a second run measures nothing again."""
    t = Tf(seed=4)
    (tmp_path / "dense.tflite").write_bytes(t.bytes(t.dense(t.input((1, 16)), 5)))
    (tmp_path / "broken.tflite").write_bytes((tmp_path / "dense.tflite").read_bytes()[:200])
    files = [
        Public("Layers", "here", "dense.tflite"),
        Public("Broken", "here", "broken.tflite", invalid=True),
    ]
    absent = Public("Layers", "here", "absent.tflite")
    monkeypatch.setattr(command, "FILES", [*files, absent])
    results, text = tmp_path / "results.json", tmp_path / "page.md"
    words = [str(tmp_path), "--results", str(results), "--page", str(text)]
    assert command.main(words) == 0
    known = json.loads(results.read_text())
    good, bad = (known[item.path] for item in files)
    assert loaded(good) and matching(good) and good["compare"]["match"] and "error" not in good
    assert good["compare"]["layers"] == {"step": 1, "fp16": 0} and good["macs"] >= 80
    assert good["peak_bytes"]["compile"] > 1 << 20 and good["seconds"]["compile"] > 0
    assert not loaded(bad) and bad["expected"] and "damaged TFLite model" in bad["error"]
    written = text.read_text()
    assert (
        "Of 1 valid files, 1 load as shipped and 1 of these match bit for bit, 0 of them on the RTL."
        in written
    )
    assert "1 of 1 deliberately invalid files is refused" in written and "1 files of the list" in written
    assert "| dense.tflite | " in written and "1 int8, at most " in written
    assert len(capsys.readouterr().out.splitlines()) == 3
    monkeypatch.setattr(command, "measured_apart", lambda *_: pytest.fail("measured again"))
    assert command.main(words) == 0 and text.read_text() == written


def test_a_mismatch_is_reported(tmp_path: Path) -> None:
    """A record that does not match, and a layer beyond its bound, are counted and shown."""
    t = Tf(seed=4)
    path, part = tmp_path / "dense.tflite", tmp_path / "part"
    path.write_bytes(t.bytes(t.dense(t.input((1, 16)), 5)))
    measure(path, part, 0, 0)
    record, item = json.loads(part.read_text()), Public("Layers", "here", "dense.tflite")
    row = {"name": "dense|x", "op": "FullyConnected", "unit": "step", "worst": 3, "bound": 1}
    record["compare"]["above_one"] = record["compare"]["beyond"] = [row | {"elements": 5, "differing": 2}]
    record["golden"]["match"] = False
    assert not command._good(item, record) and not matching(record)
    text = page({item: record}, [], 0)
    assert "0 of these match bit for bit" in text and "**no**" in text and "(1 beyond the bound)" in text
    assert "| dense.tflite | dense\\|x | FullyConnected | 3 steps | 1 | 2 of 5 |" in text
    assert "0 of 1 int8 layers are within one step" in summary({item: record}, [])


def test_outputs_before_a_custom_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is refused as shipped is measured up to its custom operator, and both are shown."""
    t = Tf(seed=4)
    inner = t.dense(t.input((1, 16)), 5)
    data = t.bytes(t.add("CUSTOM no-such-operator", [inner], (1, 5), custom=b"\1"))
    (tmp_path / "cut.tflite").write_bytes(data)
    item = Public("Layers", "here", "cut.tflite", outputs=(t.items[inner].name,))
    monkeypatch.setattr(command, "FILES", [item])
    text = tmp_path / "page.md"
    words = [str(tmp_path), "--results", str(tmp_path / "results.json"), "--page", str(text)]
    assert command.main(words) == 0
    written = text.read_text()
    assert "0 load as shipped" in written and "1 files have custom operators" in written
    assert "cut.tflite (with `--outputs`)" in written and "1 load and 1 match" in written


def test_a_time_limit(tmp_path: Path) -> None:
    """A file that takes too long is recorded with the limit."""
    t = Tf(seed=4)
    path = tmp_path / "dense.tflite"
    path.write_bytes(t.bytes(t.dense(t.input((1, 16)), 5)))
    record = command.measured_apart(path, tmp_path / "part", 0, 0, 0.05)
    assert record["error"] == "stopped after 0 s" and record["expected"] is False
    assert not (tmp_path / "part").exists()


def test_whole_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """Right, further away, and refused by both; names of sources decide about equal paths."""
    t = Tf(seed=4)
    data = t.bytes(t.dense(t.input((1, 16)), 5))
    for folder, content in (("me+nets", data), ("pack_age-1.0", data[:200]), ("other", b"")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "model.tflite").write_bytes(content)
    good = Public("Layers", "me/nets, commit 0123456", "model.tflite")
    bad = Public("Layers", "pack-age 1.0", "model.tflite")
    assert places([tmp_path], [good, bad]) == {
        good: tmp_path / "me+nets/model.tflite",
        bad: tmp_path / "pack_age-1.0/model.tflite",
    }
    monkeypatch.setattr(command, "UNSEEN", [good, bad])
    results, text = tmp_path / "results.json", tmp_path / "page.md"
    assert command.main([str(tmp_path), "--whole", "--results", str(results), "--page", str(text)]) == 0
    known = json.loads(results.read_text())
    record = known[f"{good.source}/model.tflite"]
    assert class_of(record) == RIGHT and record["outputs"][0]["worst"] == 0
    record["outputs"][0]["worst"] = 0.02
    assert class_of(record) == AWAY
    assert class_of(known[f"{bad.source}/model.tflite"]) == NEITHER
    assert "Of 2 files, 1 are right, 0 are further away, 0 are refused" in text.read_text()
