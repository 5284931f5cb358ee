"""Documents name files that exist and link pages that exist, and the site has every command."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tools import overview
from tools.pictures import HANG, PICTURES, commands_of
from tools.site import (
    DOCS,
    ROOT,
    ROOT_PAGES,
    SHIM,
    cited,
    commands,
    notebook_pages,
    reference,
    relinked,
    sections,
    with_own_worker,
)

FOLDERS = ("apis", "benchmarks", "cosim", "docs", "examples", "rtl", "spec", "sw", "tests", "tools", "waves")
WRITTEN = [*ROOT.glob("*.md"), *DOCS.rglob("*.md")]


def named(text: str) -> set[str]:
    """Paths in code of a text, such as `rtl/npu/ppu.py` or `spec/regs/`, without patterns."""
    found = set()
    for code in re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        for word in code.split():
            if re.fullmatch(rf"(?:{'|'.join(FOLDERS)})/[\w./-]*|\.ci/run|\.github/[\w./-]+", word):
                found.add(word)
    return found


@pytest.mark.parametrize(
    "name",
    ["CONTRIBUTING.md", "README.md", "docs/architecture.md", "docs/board.md", "docs/results/synthesis.md"],
)
def test_paths_that_a_page_names_exist(name: str):
    paths = named((ROOT / name).read_text())
    assert paths or name == "README.md"
    assert not {path for path in paths if not (ROOT / path).exists()}


def test_names_of_files_are_found_in_text():
    text = "`rtl/npu/ppu.py` and `python -m x docs/lint.md`, not `NAME.py`, `rtl/npu/*.py` or `sw/NAME`\n"
    assert named(text + "```\ncosim/none.py\n```\n") == {"rtl/npu/ppu.py", "docs/lint.md", "sw/NAME"}


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_to_files_lead_somewhere(page: Path):
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    made = {*ROOT_PAGES, "commands.md", "registers.md"}
    for target in re.findall(r"\]\(([^)\s#]+)", text):
        if "://" not in target:
            file = Path(os.path.normpath(page.parent / target))
            assert file.exists() or file.relative_to(DOCS).as_posix() in made, f"{page.name}: {target}"


def test_every_page_is_in_the_navigation():
    text = (ROOT / "mkdocs.yml").read_text()
    listed = set(re.findall(r"[\w/.-]+\.md", text.partition("\nnav:")[2]))
    there = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")}
    assert {page for page in there if not page.startswith("reference/")} <= listed
    assert listed <= there | {*ROOT_PAGES, *notebook_pages(), "commands.md", "registers.md"}


def test_every_picture_is_drawn_by_a_command():
    there = {path.relative_to(DOCS).as_posix() for end in ("svg", "png") for path in DOCS.rglob(f"*.{end}")}
    assert there - set(PICTURES) == {"pictures/cocotb-pool.svg", "pictures/structure_before.svg"}
    assert set(PICTURES) <= there
    assert (DOCS / "overview.svg").read_text() == overview.picture(), "run make pictures"
    assert len(commands_of("viewers.md", r"--svg build/window\.svg")) == 1
    assert [code for _, code in HANG] == [3, 0]


def test_the_page_of_commands_has_every_command():
    from rkcosim.base import extensions
    from rkcosim.cli.main import COMMANDS, REGCMD, RKNN

    heads = set(re.findall(r"^## rkcosim ?(.*)$", commands(), re.MULTILINE))
    groups = {f"regcmd {name}" for name in REGCMD} | {f"rknn {name}" for name in RKNN}
    assert heads == {"", *COMMANDS, *extensions.extensions(extensions.COMMANDS), *groups}


def test_pages_load_no_script_from_the_network():
    """Search works without a server and without the network (the theme loads a script of unpkg.com)."""
    html = f'<head><script src="{SHIM}"></script></head>'
    page = with_own_worker(html, "howto/time.html")
    assert page == '<head><script src="../javascripts/file_worker.js"></script></head>'
    assert (DOCS / "javascripts" / "file_worker.js").exists()
    for wrong in ("<head></head>", html + html):
        with pytest.raises(ValueError, match="exactly once"):
            with_own_worker(wrong, "index.html")


def test_links_of_pages_for_the_site(tmp_path: Path):
    source, page = ROOT / "CONTRIBUTING.md", DOCS / "contributing.md"
    text = "[a](docs/models.md#x) [b](LICENSE) [c](https://x.org/y.md) [d](README.md) [e](none.md)"
    assert relinked(text, source, page) == (
        "[a](models.md#x) `LICENSE` [c](https://x.org/y.md) [d](index.md) [e](none.md)"
    )
    folder = tmp_path / "reference"
    folder.mkdir()
    (folder / "index.md").write_text("# Reference\n[second](b.md) [first](a.md)\n")
    (folder / "a.md").write_text("# A\n## 3 Layouts\n### 3.6 Weights (int8)\n## Q2: entries\n")
    (folder / "b.md").write_text("# B\n")
    (folder / "c.md").write_text("# C\n")
    assert reference(folder) == [f"reference/{name}.md" for name in ("index", "b", "a", "c")]
    assert reference(tmp_path) == []
    places = sections(folder)
    assert set(places) == {"3", "3.6", "Q2"}
    pytest.importorskip("markdown", reason="needs the extra docs")
    assert cited("x [HW 3.6.2, Q2, 9.9] [board: key] ![p](q)", folder / "b.md", places) == (
        r"x \[HW [3.6.2](a.md#36-weights-int8), [Q2](a.md#q2-entries), 9.9\] \[board: key\] ![p](q)"
    )
