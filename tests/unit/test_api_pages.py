"""Pages of docs/api describe every public name, from the sources alone (tools/pages/api)."""

from __future__ import annotations

import re
import sys
import tomllib
import types
from fractions import Fraction
from importlib import import_module
from pathlib import Path

import pytest

from rkcosim.base.homes import lazy
from rkcosim.measure.perf.page import PageError
from tools.pages import ROOT
from tools.pages.api import API
from tools.pages.api.docstrings import Described, DocstringError, parse

pytest.importorskip("griffe", reason="needs the extra dev")

from tools.pages.api.names import text as names_text
from tools.pages.api.sources import ROOT as CHECKOUT
from tools.pages.api.sources import NameProblem, Sources
from tools.pages.api.writer import Index, index, levels, page, paragraphs

MODULES = (
    *("rkcosim", "rkcosim.model", "rkcosim.engines", "rkcosim.driver", "rkcosim.compiler", "rkcosim.regcmd"),
    *("rkcosim.regcmd.lint", "rkcosim.waves", "rkcosim.waves.events", "rkcosim.cocotb", "rkcosim.apis.tnn"),
    "rkcosim.rknn_api.session",
)
"""Modules of which every public name has a description; of rknn_api it is the functions."""


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_has_a_description(module: str):
    found = index()
    names = import_module(module).__all__
    paths = {name: found.sources.get(f"{module}.{name}").path for name in names}
    assert names and {name for name, path in paths.items() if path not in found.places} == set()


def test_every_function_of_rknn_api_has_a_description():
    from rkcosim import rknn_api

    text = (ROOT / "docs" / "api" / "rknn_api.md").read_text(encoding="utf-8")
    calls = {name for name in rknn_api.__all__ if name.islower() and not name.startswith("get_")}
    calls = {name for name in calls if type(getattr(rknn_api, name)).__name__ == "function"}
    assert len(calls) > 30
    assert {name for name in calls if f"# `{name}`\n" not in text and f"`{name}`" not in text} == set()


@pytest.mark.parametrize("name", API)
def test_links_of_a_page_lead_to_headings(name: str):
    folder = ROOT / "docs" / "api"
    text = (folder / f"{name}.md").read_text(encoding="utf-8")
    for file, anchor in re.findall(r"\]\(([\w.]*)#([^)]+)\)", text):
        there = (folder / (file or f"{name}.md")).read_text(encoding="utf-8")
        heads = re.findall(
            r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", there, flags=re.MULTILINE | re.DOTALL), re.MULTILINE
        )
        anchors = {re.sub(r"[^\w\- ]", "", head).strip().lower().replace(" ", "-") for head in heads}
        assert anchor in anchors, f"{name}: {file}#{anchor}"
        assert len(anchors) == len(heads), f"two headings of {file or name} have one anchor"


def test_docstrings_are_divided():
    text = (
        "Do\nit.\n\nMore.\n\nMembers\n-------\na, b : what they are,\n    in whole.\nn : int\n    A number.\n"
    )
    text += "c\n    Text: more.\n\nReturns\n-------\nThe sum.\n"
    text += "\nRaises\n------\nModelError, OSError\n    If so.\n"
    said = parse(text)
    assert (said.summary, said.lines) == ("Do it.", ["More."])
    assert said.named["Members"] == [
        Described(("a", "b"), "", ["what they are,", "in whole."]),
        Described(("n",), "int", ["A number."]),
        Described(("c",), "", ["Text: more."]),
    ]
    assert said.prose == {"Returns": ("", ["The sum."])}
    assert said.named["Raises"] == [Described(("ModelError", "OSError"), "", ["If so."])]
    assert parse("Do.\n\nReturns\n-------\nint\n    A number.").prose == {"Returns": ("int", ["A number."])}
    for wrong in ("Do.\n\nNotes\n-----\nx", "Do.\n\nParameters\n----------\nno name here\n"):
        with pytest.raises(DocstringError):
            parse(wrong)


def test_paragraphs_lists_and_programs():
    lines = ["a", "b", "", "- one", "  more", "- two", "", "    x = 1", "    y = 2", "end"]
    assert paragraphs(lines) == ["a b", "- one more", "- two", "    x = 1\n    y = 2", "end"]


SOURCE = '''"""A module."""

from rkcosim.other import Base, helper as public

__all__ = ["Base", "Thing", "public"]


class _Hidden:
    def shared(self) -> int:
        """Return what all have."""


class Thing(_Hidden, Base):
    """A thing; see `Base.run`.

    Parameters
    ----------
    size
        Its size, as `x * y`.

    Members
    -------
    size
        Its size.
    ready
        Whether it is ready.
    """

    def __init__(self, size: int, name: str = 'a') -> None:
        self.size: int = size

    @property
    def ready(self) -> bool: ...

    def __len__(self) -> int:
        """Return how many < 3."""

    def _private(self) -> None: ...
'''

OTHER = '''"""Another module."""


class Base:
    """A base."""

    def run(self, *, cycles: int | None = None) -> str:
        """Run.

        Parameters
        ----------
        cycles
            How many.

        Raises
        ------
        Thing
            Never.
        """


def helper(a, /, *b: int, **c: str) -> None:
    """Help."""
'''

PAGE = """# Page

## Part

<!-- rkcosim.sample: begin -->
<!-- rkcosim.sample: end -->
"""


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in {"__init__": "", "sample": SOURCE, "other": OTHER}.items():
        (tmp_path / "rkcosim").mkdir(exist_ok=True)
        (tmp_path / "rkcosim" / f"{name}.py").write_text(text)
    (tmp_path / "docs" / "api").mkdir(parents=True)
    (tmp_path / "docs" / "api" / "sample.md").write_text(PAGE)
    monkeypatch.setattr("tools.pages.api.writer.API", ("sample",))
    return tmp_path


def test_a_page_is_made_from_the_sources(sample: Path):
    text = page("sample", sample)
    assert text.startswith("# Page\n\n## Part\n\n<!-- rkcosim.sample: begin -->\n\nA module.\n")
    assert "| [`Thing`](#thing) | A thing; see [`Base.run`](#baserun). |" in text
    assert 'class Thing(Base):\n    def __init__(self, size: int, name: str = "a") -> None: ...\n' in text
    assert "- `size`: Its size, as `x * y`.\n" in text and "- `size` (`int`): Its size.\n" in text
    assert "- `ready` (`bool`): Whether it is ready.\n" in text and "Thing.ready" not in text
    assert "#### `Thing.shared`" in text and "_private" not in text and "`Thing.__init__`" not in text
    assert "**From [`Base`](#base)**: [`run`](#baserun)\n" in text
    assert "Return how many \\< 3." in text
    assert "- [`Thing`](#thing): Never.\n" in text
    assert "### `public`\n" in text and "def public(a, /, *b: int, **c: str) -> None: ...\n" in text
    (sample / "docs" / "api" / "sample.md").write_text(text)
    index.cache_clear()
    assert page("sample", sample) == text


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"""Help."""', "pass", "rkcosim.other.helper has no docstring"),
        ("    cycles\n", "    cycle\n", "Base.run: the docstring has a parameter 'cycle'"),
        ("        Raises\n        ------\n", "        Raise\n        -----\n", "a section is called 'Raise'"),
        ("        cycles\n            How", "        the cycles\n            How", "in place of a name"),
    ],
)
def test_what_is_wrong_in_the_sources_is_named(sample: Path, old: str, new: str, said: str):
    file = sample / "rkcosim" / "other.py"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    with pytest.raises(PageError, match=re.escape(said)):
        page("sample", sample)


def test_names_are_found_where_they_are_defined(sample: Path):
    sources = Sources(sample)
    assert sources.get("rkcosim.sample.public").path == "rkcosim.other.helper"
    assert sources.get("rkcosim.sample.Thing.run").path == "rkcosim.other.Base.run"
    assert sources.find("rkcosim.sample.nothing") is None and sources.find("numpy.array") is None
    with pytest.raises(NameProblem, match=r"nothing in the sources is called rkcosim\.sample\.nothing"):
        sources.get("rkcosim.sample.nothing")
    with pytest.raises(NameProblem, match="is no module"):
        sources.public("rkcosim.sample.Thing")


def test_a_decorator_gives_its_result():
    text = (ROOT / "docs" / "api" / "tnn.md").read_text("utf-8")
    assert "def Init(self, config: ModelConfig) -> Status: ..." in text and "@returns_status" not in text


def test_no_page_has_directives():
    for file in (ROOT / "docs" / "api").glob("*.md"):
        assert "\n:::" not in file.read_text("utf-8"), f"{file.name}: a section is <!-- NAME: begin/end -->"


def test_links_of_plain_words_stay_on_their_page():
    found: Index = index()
    assert found.link("save", "engines") == "`save`" and found.link("save", "waves") == "[`save`](#save)"
    assert found.link("Profile", "engines") == "[`Profile`](model.md#profile)"
    assert found.link("Model", "rknn_api") == "[`Model`](#model)"
    assert found.link("nothing", "model") == "`nothing`"


def test_levels_follow_the_heading_before_a_section():
    text = "# A\n```text\n### no\n```\n<!-- rkcosim.a: begin -->\n# x\n<!-- rkcosim.a: end -->\n## B\n"
    text += "<!-- rkcosim.b: begin -->\n<!-- rkcosim.b: end -->\n"
    assert levels(text) == {"rkcosim.a": 2, "rkcosim.b": 3}


def test_the_file_of_names_has_what_changes_for_programs(sample: Path):
    text = names_text(sample)
    lines = text.splitlines()[1:]
    assert 'rkcosim.sample.Thing: class of Base (self, size: int, name: str = "a") -> None' in lines
    assert "rkcosim.sample.Thing.shared: function (self) -> int" in lines
    assert "rkcosim.sample.Thing.ready: property bool" in lines
    assert "rkcosim.sample.Thing.size: member int" in lines
    assert "rkcosim.sample.public: function (a, /, *b: int, **c: str) -> None" in lines
    names = [line.partition(": ")[0] for line in lines]
    assert names == sorted(names) and not any("_private" in line for line in lines)
    for old, new in (("*b: int", "*b: str"), ("class Base", "class Other"), ("-> str", "-> int")):
        file = sample / "rkcosim" / "other.py"
        before = file.read_text()
        file.write_text(before.replace(old, new))
        index.cache_clear()
        if old.startswith("class"):
            with pytest.raises(NameProblem):
                names_text(sample)
        else:
            assert names_text(sample) != text
        file.write_text(before)


def test_every_name_of_the_file_exists():
    """The file is made without imports; the objects themselves have the same names."""
    modules: dict[str, object] = {}
    checked = 0
    for line in (ROOT / "docs" / "api" / "names.txt").read_text("utf-8").splitlines()[1:]:
        path, _, said = line.partition(": ")
        if said.startswith(("member", "property")):
            continue
        home, _, rest = path.rpartition(".")
        thing = modules.get(home)
        if thing is None:
            try:
                thing = import_module(home)
            except ModuleNotFoundError:  # a class, whose methods these are
                above, _, name = home.rpartition(".")
                thing = getattr(modules.setdefault(above, import_module(above)), name)
            modules[home] = thing
        assert hasattr(thing, rest), path
        assert said.startswith("the same") or said.startswith("constant") or callable(getattr(thing, rest)), (
            path
        )
        checked += 1
    assert checked > 500


def test_the_page_of_stability_names_the_version_and_every_module():
    text = (ROOT / "docs" / "api" / "stability.md").read_text("utf-8")
    version = tomllib.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    assert f"version in development is {version}." in text
    modules = {one for one in MODULES if one != "rkcosim"} | {"rkcosim.rknn_api"}
    assert {one for one in modules if f"`{one}`" not in text} == set()


def test_a_name_that_will_go_away_warns(monkeypatch: pytest.MonkeyPatch):
    module = types.ModuleType("leaving")
    monkeypatch.setitem(sys.modules, "leaving", module)
    homes = {"Old": "fractions:Fraction", "New": "fractions:Fraction"}
    module.__getattr__ = lazy("leaving", homes, {"Old": "leaving.New"})  # type: ignore[method-assign]
    with pytest.warns(DeprecationWarning, match=r"leaving\.Old will go away: use leaving\.New") as seen:
        assert module.Old is Fraction
    assert seen[0].filename == __file__
    assert module.New is Fraction and dir(module) == [n for n in dir(module) if n != "Old"]
