"""Parts of the documentation site that are not pages of docs/: `make docs` (mkdocs.yml names this file).

MkDocs calls the functions `on_...`.  They add the pages that the code or files outside of docs/ give (every
command's help, every register, the notebooks, CONTRIBUTING.md, CHANGELOG.md, THIRD_PARTY.md) and make links
that leave docs/ work on the site.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

ROOT_PAGES = {
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "third_party.md": "THIRD_PARTY.md",
}
"""Pages of the site that are files of the repository's root."""

HARDWARE = "Hardware reference"
"""Navigation entry that gets every page of docs/reference/."""

WIDTH = 82
"""Columns of the help texts."""

SHIM = "https://unpkg.com/iframe-worker/shim"
"""Script of the theme's plug-in `offline`, for a search without a server."""

FENCED = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(^```.*?^```$|`+[^`\n]+`+)", re.MULTILINE | re.DOTALL)
"""Fenced blocks, and with them code within a line, which stay as they are."""

LINK = re.compile(r"(\[[^\]\[]*\])\(([^)\s#]+)(#[^)\s]*)?\)")
"""Text, target and anchor of a link to a file."""

BRACKETS = re.compile(r"(?<![\\!])\[([^\]\[\n]*)\](?!\()")
"""Brackets that are no link, such as `[board: notes-core]` or `[HW 3.6]`."""

HEADING = re.compile(r"^#+ ((?:\d+(?:\.\d+)*|Q\d+)\b.*)$", re.MULTILINE)
"""A heading that begins with the number of its section."""


def outside(code: re.Pattern[str], text: str, change: Callable[[str], str]) -> str:
    """The text with everything changed that is not code (`FENCED` or `CODE`)."""
    return "".join(part if index % 2 else change(part) for index, part in enumerate(code.split(text)))


def sections(folder: Path) -> dict[str, tuple[Path, str]]:
    """Page and heading of every numbered section below a folder, by its number ("3.6", "[HW 13.12]")."""
    found: dict[str, tuple[Path, str]] = {}
    for page in sorted(folder.rglob("*.md")):
        for heading in HEADING.findall(page.read_text()):
            found.setdefault(heading.split()[0].rstrip(".:"), (page, heading))
    return found


def cited(text: str, page: Path, places: dict[str, tuple[Path, str]]) -> str:
    """Escape brackets that are no link; the sections of `[HW 3.6]` become links where they are known.

    Parameters
    ----------
    page : file of the text, below docs/.
    places : what `sections` returns.
    """
    from markdown.extensions.toc import slugify

    def section(match: re.Match[str]) -> str:
        number = match[0]
        while number not in places and "." in number:
            number = number.rpartition(".")[0]  # 4.1.2 is rule 2 of section 4.1
        if number not in places:
            return match[0]
        target, heading = places[number]
        return f"[{match[0]}]({os.path.relpath(target, page.parent)}#{slugify(heading, '-')})"

    def bracket(match: re.Match[str]) -> str:
        inside = match[1]
        if inside.startswith("HW "):
            inside = "HW " + re.sub(r"\b(?:Q\d+|\d+(?:\.\d+)*)\b", section, inside[3:])
        return rf"\[{inside}\]"

    return BRACKETS.sub(bracket, text)


def relinked(text: str, source: Path, page: Path) -> str:
    """Make a text's links to files of the repository links of the site.

    Parameters
    ----------
    text : Markdown.
    source : the file that the text is of; its links are relative to its folder.
    page : where the text stands on the site, as a path below docs/.

    Returns
    -------
    The text; a link to a file that has no page becomes its path as code.
    """
    shown = {ROOT / file: DOCS / name for name, file in ROOT_PAGES.items()} | {
        ROOT / "README.md": DOCS / "index.md"
    }
    shown |= {file: DOCS / name for name, file in notebook_pages().items()}

    def link(match: re.Match[str]) -> str:
        words, target, anchor = match[1], match[2], match[3] or ""
        if "://" in target or target.startswith("mailto:"):
            return match[0]
        file = Path(os.path.normpath(source.parent / target))
        to = shown.get(file, file)
        if DOCS in to.parents:
            return f"{words}({os.path.relpath(to, page.parent)}{anchor})"
        return f"`{os.path.relpath(file, ROOT)}`" if file.exists() else match[0]

    return LINK.sub(link, text)


def commands() -> str:
    """The page of all commands: the help of each, as `--help` prints it."""
    from rkcosim.cli.main import app

    lines = [
        "# Commands",
        "",
        "Every command with its options, as `rkcosim COMMAND --help` prints them. What holds for all of them",
        "(exit codes, JSON, environment variables) is on the page [Command line](commandline.md).",
    ]
    settings: dict[str, Any] = {**app.context_settings, "terminal_width": WIDTH}
    for context in walk(click.Context(app, info_name="rkcosim", **settings)):
        text = context.get_help()
        lines += ["", f"## {context.command_path}", "", "```text", text.rstrip(), "```"]
    return "\n".join(lines) + "\n"


def walk(context: click.Context) -> Iterator[click.Context]:
    """The context of a command and of all those below it."""
    yield context
    if isinstance(context.command, click.Group):
        for name in context.command.list_commands(context):
            below = context.command.get_command(context, name)
            if below is not None and not below.hidden:
                settings = {"terminal_width": WIDTH, **below.context_settings}
                yield from walk(click.Context(below, info_name=name, parent=context, **settings))


def root_page(name: str) -> str:
    """Text of a page of `ROOT_PAGES`."""
    file = ROOT / ROOT_PAGES[name]
    return outside(FENCED, file.read_text(), lambda text: relinked(text, file, DOCS / name))


def notebook_pages() -> dict[str, Path]:
    """Return the notebook of each page of the site that shows one, by the page's path below docs/."""
    return {f"notebooks/{path.stem}.md": path for path in sorted((DOCS / "notebooks").glob("*.ipynb"))}


def notebook(name: str) -> str:
    """Text of a page of `notebook_pages`, with the stored outputs."""
    from tools.notebooks import page

    file = notebook_pages()[name]
    return outside(FENCED, page(file), lambda text: relinked(text, file, DOCS / name))


def registers() -> str:
    """The page of all registers (`make registers`)."""
    from tools.pages.registers import markdown

    return markdown()


def reference(folder: Path) -> list[str]:
    """Pages of docs/reference/ in the order in which its index links them, as paths below docs/."""
    index = folder / "index.md"
    if not index.exists():
        return []
    linked = [match[2] for match in LINK.finditer(index.read_text()) if match[2].endswith(".md")]
    pages = [page.relative_to(folder).as_posix() for page in sorted(folder.rglob("*.md"))]
    order = ["index.md", *(page for page in linked if page in pages), *pages]
    return [f"{folder.name}/{page}" for page in dict.fromkeys(order)]


def on_config(config: Any) -> Any:
    """Add the pages of docs/reference/ to the navigation."""
    for entry in config["nav"]:
        if HARDWARE in entry:
            there = entry[HARDWARE]
            entry[HARDWARE] = reference(DOCS / "reference") + there
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages that are not files of docs/."""
    from mkdocs.structure.files import File

    texts = {name: root_page(name) for name in ROOT_PAGES}
    texts |= {name: notebook(name) for name in notebook_pages()}
    for name, text in {**texts, "commands.md": commands(), "registers.md": registers()}.items():
        files.append(File.generated(config, name, content=text))
    return files


def with_own_worker(html: str, place: str) -> str:
    """Let the search of pages that are opened as files use a script of the site, not one of the network.

    Parameters
    ----------
    html : the page as the theme makes it.
    place : its path below the folder of the site.

    Raises
    ------
    ValueError
        If the theme does not load its script exactly once; then another version of the theme is installed.
    """
    begin, tag, end = html.partition(f'<script src="{SHIM}"></script>')
    if not tag or SHIM in begin + end:
        raise ValueError(f"{place}: the theme does not load {SHIM} exactly once")
    path = os.path.relpath("javascripts/file_worker.js", Path(place).parent)
    return f'{begin}<script src="{path}"></script>{end}'


def on_post_page(output: str, page: Any, config: Any) -> str:
    """Replace the theme's script in a page."""
    return with_own_worker(output, page.file.dest_uri)


def on_post_template(output_content: str, template_name: str, config: Any) -> str:
    """Replace the theme's script in the page of a missing address."""
    if template_name != "404.html":
        return output_content
    return output_content.replace(SHIM, "/javascripts/file_worker.js")


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Make links that leave docs/ work, and citations readable."""
    place = DOCS / page.file.src_uri
    if page.file.src_uri.startswith("results/"):
        page.meta.setdefault("search", {"boost": 0.2})  # pages to read are found before tables
    if page.file.generated_by is None:
        markdown = outside(FENCED, markdown, lambda text: relinked(text, place, place))
    places = sections(DOCS / "reference")
    return outside(CODE, markdown, lambda text: cited(text, place, places))
