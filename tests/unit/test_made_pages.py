"""Pages that programs make are those of today's sources and records (tools/pages)."""

from __future__ import annotations

from pathlib import Path

import pytest

from rkcosim.measure.perf.page import PageError
from tools.pages import PAGES, ROOT, Made, main
from tools.pages.figures import FIGURES, RESULTS, Figure


@pytest.mark.parametrize("name", [name for name, made in PAGES.items() if made.kept])
def test_page_is_current(name: str) -> None:
    assert PAGES[name].current(), f"run python -m tools.pages {name}"


def test_pages_are_written_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = {
        "whole": Made("docs/whole.md", lambda: "# Whole\n"),
        "part": Made("docs/part.md", lambda: "| a |\n| - |", "rows"),
    }
    monkeypatch.setattr("tools.pages.PAGES", made)
    part = tmp_path / "docs" / "part.md"
    part.parent.mkdir()
    part.write_text("before\n<!-- rows: begin -->\nold\n<!-- rows: end -->\nafter\n")
    assert main([], check=True, root=tmp_path) == 1
    assert "not current: whole, part" in capsys.readouterr().out
    assert main([], check=False, root=tmp_path) == 0 and main([], check=True, root=tmp_path) == 0
    assert part.read_text() == ("before\n<!-- rows: begin -->\n| a |\n| - |\n<!-- rows: end -->\nafter\n")
    assert (tmp_path / "docs" / "whole.md").read_text() == "# Whole\n"
    part.write_text("nothing\n")
    with pytest.raises(PageError, match="has no section 'rows'"):
        main(["part"], check=True, root=tmp_path)
    with pytest.raises(PageError, match="no page 'other'; there are whole, part"):
        main(["other"], check=True, root=tmp_path)


def test_figures_are_read_from_one_place_each(tmp_path: Path) -> None:
    assert len({figure.question for figure in FIGURES}) == len(FIGURES)
    assert all((RESULTS / figure.page).is_file() for figure in FIGURES)
    page = tmp_path / "a.md"
    figure = Figure("how many?", "{one} of {all}", "a.md", (r"^(?P<one>\d+) of (?P<all>\d+)$",))
    page.write_text("# A\n3 of 4\n")
    assert figure.read(tmp_path) == "3 of 4"
    for text in ("# A\n", "3 of 4\n5 of 6\n"):
        page.write_text(text)
        with pytest.raises(PageError, match="places match"):
            figure.read(tmp_path)


def test_every_made_page_is_in_the_checkout() -> None:
    assert all((ROOT / made.path).is_file() for made in PAGES.values() if made.kept)
