"""Notebooks: what is stored of them, what counts as a difference, and their pages of the site."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("nbconvert", reason="needs the extra dev")

import nbformat
from nbformat import NotebookNode

from rkcosim.base.extras import EXTRAS
from tools.notebooks import (
    FOLDER,
    VARIES,
    cleaned,
    differences,
    notebooks,
    outputs_of,
    page,
    path_in,
    read,
    text_of,
)
from tools.site import ROOT, notebook, notebook_pages

new = nbformat.v4


def _notebook(*outputs: NotebookNode, source: str = "f()", tags: tuple[str, ...] = ()) -> NotebookNode:
    cell = new.new_code_cell(source, id="a", execution_count=1, outputs=list(outputs))
    cell.metadata = NotebookNode({"tags": list(tags)} if tags else {})
    return new.new_notebook(cells=[new.new_markdown_cell("# Title\n\nSee [x](../models.md).", id="b"), cell])


def _html(text: str, plain: str = "") -> NotebookNode:
    return new.new_output("execute_result", {"text/html": text, "text/plain": plain}, execution_count=1)


def _said(text: str, name: str = "stdout") -> NotebookNode:
    return new.new_output("stream", text=text, name=name)


def test_what_differs_between_two_runs_is_not_stored():
    given = _notebook(
        new.new_output("display_data", {"text/plain": ""}),  # progress that has ended
        _said("a\n"),
        _said("b\n"),
        _said("c\n", "stderr"),
        _html("<b>x</b>", "<Styler at 0x7fe66c14a8d0>"),
        tags=(VARIES,),
    )
    given.metadata = NotebookNode(language_info={"name": "python", "version": "3.11.7"}, widgets={})
    given.cells[1].metadata["execution"] = {"iopub.execute_input": "2026-11-30T21:13:00Z"}
    found = cleaned(given)
    assert found.metadata.language_info == {"name": "python"} and "widgets" not in found.metadata
    assert found.cells[1].metadata == {"tags": [VARIES]}
    kept = [(o.output_type, o.get("name"), o.get("text")) for o in found.cells[1].outputs]
    assert kept == [
        ("stream", "stdout", "a\nb\n"),
        ("stream", "stderr", "c\n"),
        ("execute_result", None, None),
    ]
    assert found.cells[1].outputs[2].data["text/plain"] == "<Styler>"
    assert cleaned(found) == found and "execution" in given.cells[1].metadata  # a copy


@pytest.mark.parametrize(
    ("old", "new_", "tags"),
    [
        (_said("13,624 cycles\n"), _said("13,625 cycles\n"), ()),
        (_html("<td>13,624</td>"), _html("<td>13,625</td>"), ()),
        (_html("<td>a</td>"), _html("<td>b</td>"), (VARIES,)),
        (_said("SQNR 40.1 dB\n"), _said("SQNR 40.1 dB, exact\n"), (VARIES,)),
        (_said("a\n"), new.new_output("display_data", {"image/png": "AAAA"}), ()),
    ],
)
def test_a_stale_output_is_found(old: NotebookNode, new_: NotebookNode, tags: tuple[str, ...]):
    found = differences(_notebook(old, tags=tags), _notebook(new_, tags=tags))
    assert found[0] == "code cell 1:" and len(found) > 3


@pytest.mark.parametrize(
    ("old", "new_", "tags"),
    [
        (_said("onnxruntime 1.32.0: 39.1 dB\n"), _said("onnxruntime 1.27.1: -9 dB\n"), (VARIES,)),
        (_html("<style>a {}</style><td>1</td>"), _html("<td>1</td>"), ()),
        (
            new.new_output("display_data", {"image/png": "AAAA", "text/plain": "<Figure>"}),
            new.new_output("display_data", {"image/png": "BBBB", "text/plain": "<Figure>"}),
            (),
        ),
    ],
)
def test_what_other_packages_decide_is_no_difference(
    old: NotebookNode, new_: NotebookNode, tags: tuple[str, ...]
):
    assert differences(_notebook(old, tags=tags), _notebook(new_, tags=tags)) == []


def test_paths_of_a_machine_are_found():
    for text in ("see /var/x/a.onnx", "'/opt/a/b'", "<pre>file=/srv/me/x</pre>", r"C:\Users\me"):
        assert path_in(_html(text)) and path_in(_said(text)), text
    for text in (
        "</td></tr>",
        "ms/s 1/2/3",
        "https://a.org/b/c",
        '<img src="data:image/png;base64,/ab/cd/e">',
    ):
        assert not path_in(_html(text)), text


def test_a_cell_that_was_changed_and_not_run_is_found():
    changed = _notebook(_said("a\n"))
    changed.cells[1].execution_count = None
    assert "stored as run None, not 1" in differences(changed, _notebook(_said("a\n")))


@pytest.mark.parametrize("name", notebooks())
def test_stored_notebooks(name: str):
    """As `make notebooks` writes them, whole, run from the first cell on, and without paths of a machine."""
    path = notebooks()[name]
    found = read(path)
    nbformat.validate(found)
    assert path.read_text(encoding="utf-8") == text_of(cleaned(found))
    cells = [cell for cell in found.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert found.cells[0].cell_type == "markdown" and found.cells[0].source.startswith("# ")
    outputs = list(outputs_of(found))
    assert len(outputs) > 5
    assert not [output for _, output in outputs if path_in(output) or output.get("name") == "stderr"]


@pytest.mark.parametrize("name", notebooks())
def test_a_notebook_names_the_extras_that_it_needs(name: str):
    found = read(notebooks()[name])
    code = "\n".join(cell.source for cell in found.cells if cell.cell_type == "code")
    imported = set(re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE))
    named = set(re.findall(r"`(\w+)`", found.cells[0].source))
    for extra, what in EXTRAS.items():
        if imported & set(what.packages) and extra != "dev":
            assert extra in named, f"{name}: the first cell does not name the extra {extra}"
    if name in ("first_model", "hanging_stream"):
        assert imported <= {"numpy", "pathlib", "rkcosim"}


def test_every_notebook_is_linked_and_on_the_site():
    index = (FOLDER / "index.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\((\w+)\.ipynb\)", index)) == set(notebooks())
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    assert set(re.findall(r"notebooks/(\w+)\.md", nav)) == {"index", *notebooks()}


def test_the_page_of_a_notebook_has_sources_and_outputs(tmp_path: Path):
    path = tmp_path / "one.ipynb"
    table = '<table border="1" class="dataframe"><style>x{\n\n}</style>\n\n<td>[1, `a`]</td></table>'
    given = _notebook(
        _said("\x1b[31mred\x1b[0m [x]\n"),
        _html(table, "hidden"),
        new.new_output("display_data", {"image/png": "AA\nBB", "text/plain": "<Figure>"}),
        source="print(1)",
    )
    path.write_text(text_of(cleaned(given)), encoding="utf-8")
    text = page(path)
    assert text.startswith('# Title\n\n<a href="one.ipynb" download>')
    assert "```python\nprint(1)\n```" in text and "``` {.text .printed}\nred [x]\n```" in text
    # Brackets and backquotes of HTML would be Markdown; a class keeps the theme's style away.
    assert '<table class="output">' in text and "<td>&#91;1, &#96;a&#96;&#93;</td>" in text
    assert "hidden" not in text and "x{" not in text and "\n\n}" not in text
    assert 'src="data:image/png;base64,AABB"' in text and "Figure" not in text


@pytest.mark.parametrize("name", notebook_pages())
def test_links_of_notebooks_lead_somewhere(name: str):
    for target in re.findall(r"\]\(([^)\s#:]+)\)", re.sub(r"```.*?```", "", notebook(name), flags=re.DOTALL)):
        file = (FOLDER / target).resolve()
        assert file.exists() or f"notebooks/{target}" in notebook_pages(), f"{name}: {target}"
