"""Sections of pages (cosim/measure/perf/page.py)."""

from __future__ import annotations

from pathlib import Path

import pytest

from rkcosim.measure.perf.page import (
    PAGE,
    SECTIONS,
    PageError,
    check_section,
    markers,
    read_section,
    write_section,
)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    parts = [f"## {name} head\n\n{markers(name)[0]}\n{markers(name)[1]}\n" for name in SECTIONS]
    path.write_text("# Title\n\n" + "\nby hand\n\n".join(parts) + "\nend of page\n")
    return path


@pytest.mark.parametrize("name", SECTIONS)
def test_only_the_named_section_changes(page: Path, name: str):
    before = page.read_text(encoding="utf-8")
    write_section(name, "\n| a |\n| - |\n| 1 |\n\n", page)
    assert read_section(name, page) == "| a |\n| - |\n| 1 |"
    assert all(read_section(other, page) == "" for other in SECTIONS if other != name)
    write_section(name, "", page)
    write_section(name, "again", page)
    text = page.read_text(encoding="utf-8")
    begin, end = markers(name)
    assert text.replace(f"{begin}\nagain\n{end}", f"{begin}\n{end}") == before


def test_the_rest_is_kept_to_the_last_byte(page: Path):
    page.write_text(
        page.read_text(encoding="utf-8").rstrip("\n") + "\nlast line without an end", encoding="utf-8"
    )
    write_section("bench", "x", page)
    assert page.read_text(encoding="utf-8").endswith("end of page\nlast line without an end")
    assert [p.name for p in page.parent.iterdir()] == ["page.md"]


def test_new_page(tmp_path: Path):
    page = tmp_path / "deeper" / "new.md"
    write_section("layers", "rows", page)
    assert read_section("layers", page) == "rows"
    check_section("layers", page)
    check_section("bench", tmp_path / "not there")
    for function in (lambda: write_section("bench", "rows", page), lambda: check_section("bench", page)):
        with pytest.raises(PageError, match=r"has no section 'bench'.*<!-- bench: begin -->"):
            function()


def test_unknown_section(page: Path):
    before = page.read_text(encoding="utf-8")
    with pytest.raises(PageError, match="has no section 'speed'"):
        write_section("speed", "x", page)
    with pytest.raises(PageError, match="'a: begin -->' is no name of a section"):
        write_section("a: begin -->", "x", page)
    assert page.read_text(encoding="utf-8") == before


BENCH, LAYERS = markers("bench"), markers("layers")


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([BENCH[0]], "line 1: section 'bench' has no end"),
        ([BENCH[1]], "line 1: <!-- bench: end --> has no begin"),
        ([*BENCH, *BENCH], "line 3: <!-- bench: begin --> appears a second time"),
        ([BENCH[0], LAYERS[0], LAYERS[1], BENCH[1]], "line 2: .*is inside the section 'bench'"),
        ([BENCH[0], LAYERS[1], BENCH[1]], "line 2: <!-- layers: end --> has no begin"),
    ],
)
def test_broken_markers(tmp_path: Path, lines: list[str], said: str):
    page = tmp_path / "page.md"
    page.write_text("\n".join(lines) + "\n")
    with pytest.raises(PageError, match=said):
        write_section("bench", "x", page)
    assert page.read_text() == "\n".join(lines) + "\n"


def test_no_marker_inside_a_section(page: Path):
    with pytest.raises(PageError, match="contains a marker"):
        write_section("bench", f"text\n{markers('counters')[1]}\n", page)


def test_the_page_has_every_section():
    if not PAGE.exists():
        pytest.skip("installed without the documents")
    for name in SECTIONS:
        read_section(name, PAGE)
