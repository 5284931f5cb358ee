"""The notebooks of docs/notebooks: run, stored with their outputs, and as pages of the site.

    python -m tools.notebooks              # run all and store their outputs: `make notebooks`
    python -m tools.notebooks first_model  # run some
    python -m tools.notebooks --check      # store nothing; exit code 1 if an output is not the stored one

A notebook is run from its first to its last cell in an empty folder.  What is stored has no times, no paths
and no version of Python.  Outputs of a cell with the tag `varies` depend on other packages or the processor,
so that `--check` compares them without their numbers; of pictures it compares the presence.
"""

from __future__ import annotations

import argparse
import copy
import difflib
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbconvert import MarkdownExporter
from nbformat import NotebookNode
from traitlets.config import Config

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs" / "notebooks"
SECONDS = 300
"""Bound on the time of one cell."""

VARIES = "varies"
"""Tag of cells whose outputs have numbers that are not the same everywhere."""

PATH = re.compile(r"(?<![\w.<:/&;-])(?:/[\w.+-]+){2,}|\b[A-Z]:\\[\w.]+")
"""An absolute path."""

EMBEDDED = re.compile(r"data:[\w/+-]+;base64,[\w+/=]+")
"""A picture within HTML."""

NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)*(?:e-?\d+)?")

TEMPLATE = """\
{%- extends 'markdown/index.md.j2' -%}
{%- block stream -%}{{ output.text | as_text }}{%- endblock stream -%}
{%- block data_text scoped -%}{{ output.data['text/plain'] | as_text }}{%- endblock data_text -%}
{%- block data_html scoped -%}{{ output.data['text/html'] | as_html }}{%- endblock data_html -%}
{%- block data_png scoped -%}{{ output.data['image/png'] | as_picture }}{%- endblock data_png -%}
"""


class NotebookError(Exception):
    """A notebook cannot be run, or an output cannot be stored; the message names notebook and cell."""


def notebooks() -> dict[str, Path]:
    """Return the notebooks by name, in the order of their names."""
    return {path.stem: path for path in sorted(FOLDER.glob("*.ipynb"))}


def read(path: Path) -> NotebookNode:
    """Return a notebook of the format's version 4."""
    return nbformat.read(path, as_version=4)


def cleaned(notebook: NotebookNode) -> NotebookNode:
    """Return a notebook without what differs between two runs: times, versions, and vanished progress."""
    found = copy.deepcopy(notebook)
    found.metadata = NotebookNode(
        kernelspec={"display_name": "Python 3", "language": "python", "name": "python3"},
        language_info={"name": "python"},
    )
    for cell in found.cells:
        tags = cell.metadata.get("tags")
        cell.metadata = NotebookNode({"tags": tags} if tags else {})
        if cell.cell_type != "code":
            continue
        kept: list[Any] = []
        for output in cell.outputs:
            if output.output_type == "display_data" and output.data == {"text/plain": ""}:
                continue  # a line of progress that has ended
            if "metadata" in output:
                output.metadata = NotebookNode()
            output.pop("transient", None)
            if "text/plain" in output.get("data", {}):
                output.data["text/plain"] = re.sub(r" at 0x[0-9a-f]+", "", output.data["text/plain"])
            last = kept[-1] if kept else None
            if last is not None and output.get("name", "") == last.get("name"):  # two parts of a stream
                last.text += output.text
                continue
            kept.append(output)
        cell.outputs = kept
    return found


def run(path: Path) -> NotebookNode:
    """Run a notebook in an empty folder; return it with its outputs, cleaned.

    Raises
    ------
    NotebookError
        If a cell ends in an error, takes too long, or prints to standard error or a path of this machine.
    """
    from nbclient.exceptions import CellExecutionError, CellTimeoutError
    from nbconvert.preprocessors import ExecutePreprocessor

    notebook = read(path)
    with tempfile.TemporaryDirectory(prefix="rkcosim-notebook-") as folder:
        # Sockets of files, not ports of the network that other users of the machine could reach.
        private = Config({"KernelManager": {"transport": "ipc", "ip": str(Path(folder, "kernel"))}})
        work = Path(folder, "work")
        work.mkdir()
        runner = ExecutePreprocessor(timeout=SECONDS, kernel_name="python3", config=private)
        try:
            done, _ = runner.preprocess(notebook, {"metadata": {"path": str(work)}})
        except (CellExecutionError, CellTimeoutError) as error:
            raise NotebookError(f"{path.name}: {error}") from error
    made = cleaned(done)
    for number, output in outputs_of(made):
        if output.get("name") == "stderr":
            raise NotebookError(
                f"{path.name}, cell {number}: prints to standard error: {output.text.strip()}"
            )
        if found := path_in(output):
            raise NotebookError(f"{path.name}, cell {number}: the output has a path: {found}")
    return made


TEXTS = ("text/plain", "text/html")
"""Kinds of output that are compared."""


def path_in(output: NotebookNode) -> str:
    """Return an absolute path in the texts of an output, which is one of this machine, or ""."""
    data = output.get("data", {})
    for text in (output.get("text", ""), *(data.get(kind, "") for kind in TEXTS)):
        if found := PATH.search(EMBEDDED.sub("", text)):
            return found[0]
    return ""


def outputs_of(notebook: NotebookNode) -> Iterator[tuple[int, NotebookNode]]:
    """Yield the outputs with the number of their code cell, from 1."""
    for number, cell in enumerate((c for c in notebook.cells if c.cell_type == "code"), 1):
        for output in cell.outputs:
            yield number, output


def said(cell: NotebookNode) -> list[str]:
    """Return what the outputs of a cell say, line by line, as far as it is the same everywhere."""
    lines: list[str] = []
    for output in cell.outputs:
        if output.output_type == "stream":
            text = output.text
        elif output.output_type == "error":
            text = f"{output.ename}: {output.evalue}"
        elif "text/html" in output.data:
            text = re.sub(r"<style.*?</style>", "", output.data["text/html"], flags=re.DOTALL)
        else:
            text = output.data.get("text/plain", "")
        pictures = [kind for kind in output.get("data", {}) if kind.startswith("image/")]
        lines += [line.strip() for line in text.splitlines() if line.strip()] + pictures
    if VARIES in cell.metadata.get("tags", ()):
        lines = [re.sub(r"[ -]+", " ", NUMBER.sub("#", line)) for line in lines]
    return lines


def differences(stored: NotebookNode, fresh: NotebookNode) -> list[str]:
    """Return how the outputs of a fresh run differ from the stored ones, by the number of a code cell."""
    found = []
    pairs = zip(stored.cells, fresh.cells, strict=True)
    for number, (old, new) in enumerate((pair for pair in pairs if pair[0].cell_type == "code"), 1):
        changed = difflib.unified_diff(said(old), said(new), "stored", "fresh", lineterm="", n=0)
        lines = [line[:200] for line in changed if not line.startswith("@@")]
        if old.execution_count != new.execution_count:
            lines.append(f"stored as run {old.execution_count}, not {new.execution_count}")
        if lines:
            found += [f"code cell {number}:", *lines]
    return found


def text_of(notebook: NotebookNode) -> str:
    """Return a notebook as the text of a file."""
    return str(nbformat.writes(notebook)) + "\n"


def page(path: Path) -> str:
    """Return a notebook with its stored outputs as a Markdown page of the site."""
    exporter = MarkdownExporter(raw_template=TEMPLATE)
    for name, change in {"as_text": _as_text, "as_html": _as_html, "as_picture": _as_picture}.items():
        exporter.register_filter(name, change)
    text, _ = exporter.from_notebook_node(read(path))
    text = re.sub(r"\n{3,}", "\n\n", text).strip()
    heading, _, rest = text.partition("\n")
    return f'{heading}\n\n<a href="{path.name}" download>Download this notebook</a>\n{rest}\n'


def _as_text(text: str) -> str:
    plain = re.sub(r"\x1b\[[\d;]*m", "", text).rstrip()
    return f"\n``` {{.text .printed}}\n{plain}\n```\n\n" if plain else ""


def _as_html(text: str) -> str:
    """Return HTML that stays as it is in a Markdown page, with the look of docs/stylesheets/notebooks.css."""
    text = re.sub(r"<style.*?</style>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<table[^>]*>", '<table class="output">', text)  # a class, or the theme's style is used
    text = text.replace("[", "&#91;").replace("]", "&#93;").replace("`", "&#96;")
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return '\n<div class="output">\n' + "\n".join(lines) + "\n</div>\n\n"


def _as_picture(data: str) -> str:
    place = f"data:image/png;base64,{''.join(data.split())}"
    return f'\n<div class="output"><img alt="plot" src="{place}"></div>\n\n'


def main(arguments: Sequence[str]) -> int:
    """Run notebooks and store or compare their outputs; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.notebooks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    known = notebooks()
    parser.add_argument("name", nargs="*", help=f"notebooks to run: {', '.join(known)}; default: all")
    parser.add_argument("--check", action="store_true", help="store nothing; say what is not current")
    asked = parser.parse_args(arguments)
    if unknown := [name for name in asked.name if name not in known]:
        parser.error(f"no notebook {unknown[0]!r}; there are {', '.join(known)}")
    stale = False
    for name in asked.name or known:
        path = known[name]
        stored = read(path)
        try:
            fresh = run(path)
        except NotebookError as error:
            print(error)
            return 1
        changed = differences(stored, fresh)
        if asked.check:
            stale |= bool(changed)
            print(f"{path.name}: {'NOT current' if changed else 'current'}")
            print("\n".join(changed), end="\n" if changed else "")
            continue
        if changed or cleaned(stored) != stored:
            path.write_text(text_of(fresh), encoding="utf-8")
        print(f"{path.name}: {'stored' if changed else 'current'}")
    if stale:
        print("run make notebooks, and look at what has changed")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
