"""Every fenced block of a page has a kind that a test knows (tests/system/pages.py)."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from importlib.util import find_spec

import click
import pytest

from rkcosim.cli.main import app
from tests.system.pages import ROOT, Block, blocks_of, pages

PAGES = pages()
KINDS = ("console", "python", "sh", "text")
INDENTED = re.compile(r"^    (?:\$ |rkcosim |python |pip |make )", re.MULTILINE)
"""A command in an indented block, which no test would find."""


def problems(block: Block) -> list[str]:
    """What is wrong with a block's language and remark."""
    found = []
    if block.language not in KINDS:
        found.append(f"its language is {block.language!r}, not one of {', '.join(KINDS)}")
    if block.remark.startswith("fragment: ") and block.language != "python":
        found.append("only Python can be a fragment")
    by = re.fullmatch(r"run by (\S+)", block.remark)
    if by and not (ROOT / by[1]).is_file():
        found.append(f"{by[1]} does not exist")
    if block.language == "console" and not re.match(r"\$ ", block.text):
        found.append("it does not begin with '$ '")
    return found


def form(line: str) -> list[str]:
    """Words of the `rkcosim` command in a line of kind `sh`, without the program's name; [] without one."""
    text = re.sub(r"\$\([^)]*\)", "FILE", line)
    for part in text.partition(" # ")[0].split("|"):
        words = shlex.split(part)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words = words[1:]
        if words[:1] == ["rkcosim"]:
            return words[1:]
    return []


def parsed(words: list[str]) -> None:
    """Parse the words of a command.

    Raises
    ------
    click.ClickException
        If the command or an option does not exist, or a value is not accepted.
    """
    command: click.Command = app
    path = ["rkcosim"]
    while isinstance(command, click.Group):
        if path[-1] == "rknn" and words[0].startswith("-"):
            words = ["run", *words]  # `rkcosim rknn -- ./program` is short for it
        below = command.get_command(click.Context(command), words[0]) if words else None
        if below is None:
            raise click.UsageError(f"{' '.join(path)} has no command {words[:1]}")
        command = below
        path.append(words.pop(0))
    with command.make_context(" ".join(path), words):
        pass


def test_every_block_has_a_kind():
    wrong = [
        f"{name}:{block.line}: {what}"
        for name, text in PAGES.items()
        for block in blocks_of(text)
        for what in problems(block)
    ]
    assert not wrong, "\n".join(wrong)
    fences = sum(len(re.findall(r"^ *```", text, re.MULTILINE)) for text in PAGES.values())
    assert fences == 2 * sum(len(blocks_of(text)) for text in PAGES.values()) > 150


@pytest.mark.parametrize("name", PAGES)
def test_no_command_is_in_an_indented_block(name: str):
    text = re.sub(r"^```.*?^```$", "", PAGES[name], flags=re.MULTILINE | re.DOTALL)
    assert not INDENTED.findall(text)


FORMS = [
    pytest.param(line, id=f"{name}:{line[:60]}")
    for name, text in PAGES.items()
    for block in blocks_of(text)
    if block.language == "sh"
    for line in block.text.replace("\\\n", " ").splitlines()
    if form(line)
]


@pytest.mark.parametrize("line", FORMS)
def test_options_of_a_form_exist(line: str):
    parsed(form(line))


def test_wrong_forms_are_found():
    assert form("X=1 rkcosim run a.onnx --json - | jq .verdict  # text") == ["run", "a.onnx", "--json", "-"]
    assert form("python x.py $(rkcosim delegate)") == []
    for line in ("rkcosim rnu a.onnx", "rkcosim run a.onnx --chek", "rkcosim estimate a.onnx --cores 9"):
        with pytest.raises(click.ClickException):
            parsed(form(line))


PYTHON = [
    pytest.param(block, id=f"{name}:{block.line}")
    for name, text in PAGES.items()
    for block in blocks_of(text)
    if block.language == "python"
]


@pytest.mark.parametrize("block", PYTHON)
def test_python_can_be_read_and_its_imports_exist(block: Block):
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Import):
            assert all(find_spec(name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("rkcosim"):
            module = importlib.import_module(node.module)
            for name in node.names:
                assert (
                    name.name == "*" or hasattr(module, name.name) or find_spec(f"{node.module}.{name.name}")
                )


def test_blocks_are_found():
    text = "# A\n\n<!-- fragment: b is given -->\n```python\na = b\n```\n```console\n$ echo one\none\n```\n"
    first, second = blocks_of(text)
    assert first == Block(4, "python", "a = b\n", "fragment: b is given") and not first.is_run
    assert second == Block(7, "console", "$ echo one\none\n") and second.is_run
    assert problems(Block(1, "", "x\n")) and problems(Block(1, "console", "rkcosim run\n"))
    assert problems(Block(1, "sh", "x\n", "fragment: y")) and problems(Block(1, "text", "", "run by none.py"))
    assert INDENTED.search("a\n\n    $ rkcosim run x\n")
