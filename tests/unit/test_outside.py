"""The ledger of outside suites: comparison with kept verdicts, folders, the page, the kept ledger itself."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tools.outside.__main__ import RECORD, main
from tools.outside.checkouts import installed, locate
from tools.outside.page import anchor, counted
from tools.outside.programs import junit, note
from tools.outside.record import Ran, fallen, read
from tools.outside.suite import Checkout, NotHere, Outcome, Suite, differs
from tools.outside.suites import SUITES

ROOT = Path(__file__).resolve().parents[2]


def toy(outcomes: Mapping[str, str] | Exception) -> Suite:
    """A suite whose board passed `add` and `mul`, failed `div` and did not run the others."""

    def run(here: Checkout, engine: str, folder: Path) -> Mapping[str, Outcome]:
        assert (here.folder / "tests.txt").is_file() and not list(folder.iterdir())
        if isinstance(outcomes, Exception):
            raise outcomes
        return {name: Outcome(verdict, "as said") for name, verdict in outcomes.items()}

    board = {"add": ("pass",), "mul": ("pass", "fail"), "div": ("fail",)}
    return Suite("toy", "someone/toy", "sums", "It runs.", "a log", lambda name: board.get(name, ()), run=run)


def test_verdicts_are_kept_compared_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture):
    (tmp_path / "all/someone+toy").mkdir(parents=True)
    (tmp_path / "all/someone+toy/tests.txt").write_text("")
    (tmp_path / "all/someone+toy/COMMIT").write_text("0123456789\n")
    record, shown = tmp_path / "outside.json", tmp_path / "outside.md"
    words = [
        str(tmp_path / "all"),
        "--record",
        str(record),
        "--page",
        str(shown),
        "--work",
        str(tmp_path / "w"),
    ]
    good = {"add": "pass", "div": "fail", "mul": "fail", "pow": "no verdict"}
    limited = replace(toy(good), cannot="The division by 0, which has no result.")
    assert main([*words, "--engine", "golden"], [limited]) == 0
    assert "## What cannot be run here" in shown.read_text()
    assert "| [toy](#toy) | The division by 0, which has no result. |" in shown.read_text()
    assert main([*words, "--engine", "golden"], [toy(good)]) == 0
    text = shown.read_text()
    assert "What cannot be run here" not in text
    row = "sums | 1 fail, 1 pass, 1 pass or fail, 1 unknown | 1 pass, 1 no verdict, 2 fail | not run | "
    assert row.replace("1 fail, 1 pass,", "1 pass, 1 fail,") in text and "| none |" in text
    assert "commit 0123456" in text and "| pass or fail | fail | - | 1 | mul |" in text
    kept = record.read_text()

    fell = good | {"add": "fail", "div": "pass", "pow": "time limit"}
    assert main([*words, "--engine", "golden"], [toy(fell)]) == 1
    said = capsys.readouterr().err
    for line in ("add: pass, now fail (as said)", "div: fail, now pass", "pow: no verdict, now time limit"):
        assert line in said
    assert record.read_text() == kept
    assert main([*words, "--accept", "toy"], [toy(fell)]) == 0
    assert "**not explained**" in shown.read_text() and "| [3](#toy) |" in shown.read_text()

    assert main(words, [toy(NotHere("the toy has no wheels"))]) == 0
    assert "not run this time" in shown.read_text() and "the toy has no wheels" in shown.read_text()
    assert json.loads(record.read_text())["toy"]["runs"]["rtl"]["tests"]["pass"] == ["div"]
    assert main(words, [replace(toy(good), repository="nobody/toy")]) == 0
    assert "no folder of nobody/toy" in shown.read_text()
    assert main(words, [toy(OSError("the file is torn"))]) == 1
    assert "broke off: the file is torn" in capsys.readouterr().err
    assert main(words, [toy({})]) == 1 and main([str(tmp_path / "none"), *words[1:]], []) == 2


def test_what_falls_back():
    suite = toy({})
    old = Ran("aa", "", {name: Outcome("fail") for name in ("add", "mul", "div", "pow")})
    new = {"add": "time limit", "mul": "pass", "div": "skip", "pow": "pass"}
    ran = Ran("aa", "", {name: Outcome(verdict) for name, verdict in new.items()})
    assert fallen(suite, old, ran) == ["div: fail, now skip (no note)"]
    del ran.tests["pow"]  # type: ignore[attr-defined]
    assert fallen(suite, old, ran)[1] == "pow: fail, now gone"
    assert len(fallen(suite, old, replace(ran, commit="bb"))) == 1
    assert [differs(suite, name, "fail") for name in ("add", "mul", "div", "pow")] == [
        True,
        False,
        False,
        True,
    ]
    with pytest.raises(ValueError, match="'good' is none of: pass"):
        Outcome("good")


def test_repositories_are_found(tmp_path: Path):
    for name in ("a+plain", "b/nested", "c+torn"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "c+torn/COMMIT").write_text("main")
    source = tmp_path / "source"
    subprocess.run(["git", "init", "-q", str(source)], check=True)
    (source / "file").write_text("text")
    (source / "large").write_text("more")
    (source / "link").symlink_to("file")
    (source / "file").chmod(0o755)
    subprocess.run(["git", "-C", str(source), "add", "."], check=True)
    author = ["-c", "user.name=n", "-c", "user.email=e"]
    subprocess.run(["git", "-C", str(source), *author, "commit", "-qm", "m"], check=True)
    subprocess.run(["git", "clone", "-q", "--bare", str(source), str(tmp_path / "d+bare/repo")], check=True)
    large = subprocess.check_output(["git", "-C", str(source), "rev-parse", "HEAD:large"], text=True).strip()
    (
        tmp_path / "d+bare/repo/objects" / large[:2] / large[2:]
    ).unlink()  # as in a snapshot without large files
    work = tmp_path / "work"
    assert locate(tmp_path, "a/plain", work, "p") == Checkout("a/plain", tmp_path / "a+plain", "", "p")
    nested = locate(tmp_path, "b/nested", work, "p")
    assert nested is not None and nested.folder == tmp_path / "b/nested"
    bare, known = (locate(tmp_path, "d/bare", work, "p") for _ in range(2))
    assert bare is not None and bare == known and len(bare.commit) == 40
    assert (bare.folder / "link").read_text() == "text" and (bare.folder / "file").stat().st_mode & 0o100
    assert not (bare.folder / "large").exists()
    assert locate(tmp_path, "e/none", work, "p") is None
    with pytest.raises(ValueError, match="'main' is no commit"):
        locate(tmp_path, "c/torn", work, "p")
    with pytest.raises(NotHere, match="b/nested has no one, two, three and 1 more"):
        nested.needs("one", "two", "three", "four")


def test_reports_of_pytest(tmp_path: Path):
    cases = (
        '<testcase classname="tests.test_a" name="x[1]"/><testcase classname="tests.test_a" name="y">'
        '<skipped message="no /opt/board/file"/></testcase><testcase classname="tests.test_b" name="y">'
        '<failure message="1 != 2\nand more">long</failure></testcase>'
    )
    report = tmp_path / "r.xml"
    report.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    assert junit(report) == {
        "test_a::x[1]": Outcome("pass"),
        "test_a::y": Outcome("skip", "no file"),
        "test_b::y": Outcome("fail", "1 != 2 and more"),
    }
    report.write_text(f"<testsuite>{cases}{cases}</testsuite>")
    with pytest.raises(ValueError, match=r"two tests have the name test_a::x\[1\]"):
        junit(report)
    assert note("a" * 200).endswith("...") and len(note("a" * 200)) == 160


def test_the_kept_ledger():
    """The page belongs to the kept verdicts, and every difference in it has a reason."""
    record = read(RECORD)
    assert set(record) <= {suite.name for suite in SUITES} and len({s.name for s in SUITES}) == len(SUITES)
    for suite in SUITES:
        assert (suite.run is None) == bool(suite.shown)
        place, _, heading = suite.shown.partition("#")
        if place:
            heads = re.findall(r"^#+ (.*)$", (ROOT / "docs" / place).read_text(), re.MULTILINE)
            assert not heading or heading in map(anchor, heads), suite.shown
        for engine, ran in record[suite.name].runs.items() if suite.name in record else ():
            assert engine in suite.engines
            for name, outcome in ran.tests.items():
                if differs(suite, name, outcome.verdict):
                    assert suite.reason(name), f"{suite.name}: {name} differs and nothing says why"


def test_counts_of_other_pages(tmp_path: Path) -> None:
    """They are those of the page, and a page that has them no longer is an error, not an empty cell."""
    suite = Suite(
        "s", "a/b", "t", "h", "b", shown="p.md#x", figures=(r"(\d+) cases, (\d+) right", r"\2 of \1")
    )
    (tmp_path / "p.md").write_text("All 12 cases, 11 right.\n")
    assert counted(suite, tmp_path) == "11 of 12; "
    assert counted(replace(suite, figures=("", "")), tmp_path) == ""
    (tmp_path / "p.md").write_text("11 of 12 are right.\n")
    with pytest.raises(ValueError, match="nothing there fits"):
        counted(suite, tmp_path)


def test_packages_are_suites(tmp_path: Path) -> None:
    """A suite that is a package has its version in the place of a commit; a missing one is not run."""
    here = installed("pytest-dev/pytest", "pytest", sys.executable)
    assert here is not None and here.commit == pytest.__version__ and (here.folder / "pytest").is_dir()
    assert installed("a/b", "no-such-package-here", sys.executable) is None
