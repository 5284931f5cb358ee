"""Markdown of the names on a page of docs/api."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import griffe

from rkcosim.measure.perf.page import PageError, table
from tools.pages.api import API
from tools.pages.api.docstrings import Described, Docstring, DocstringError, parse
from tools.pages.api.sources import ROOT, Found, Sources

FOLDER = "docs/api"

SECTION = re.compile(r"^<!-- (rkcosim[\w.]*): begin -->\n(.*?)^<!-- \1: end -->$", re.MULTILINE | re.DOTALL)
HEADING = re.compile(r"^(#+) ", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"(`[^`\n]+`)")

WIDTH = 88
"""Longest line of a signature."""

LONGEST = 72
"""Longest value that is shown."""

QUIET = frozenset(
    f"__{name}__" for name in ("init", "repr", "str", "eq", "hash", "post_init", "del", "exit", "format")
)
"""Special methods that need no description."""

INNER = frozenset({"rkcosim.engines.system.System", "rkcosim.golden.task.npu.GoldenNpu"})
"""Bases whose public members are those of a protocol that a page describes; the other ones are internal."""

DECORATORS = ("property", "staticmethod", "classmethod", "contextmanager", "abstractmethod", "overload")
"""Decorators that a signature shows."""

RESULTS = {"returns_status": "Status"}
"""Decorators that give a function another result, with its type."""


@dataclass(frozen=True)
class Place:
    """Where a name is described.

    Members
    -------
    page
        Name of the page.
    level
        Level of its heading.
    title
        Text of its heading, as `Model.run`.
    """

    page: str
    level: int
    title: str

    @property
    def anchor(self) -> str:
        """Anchor of the heading, the same on code hosts and on the site."""
        return anchor(self.title)


def anchor(title: str) -> str:
    """Return the anchor that code hosts and the site give to a heading."""
    return re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-")


@dataclass
class Index:
    """All names that the pages describe.

    Members
    -------
    sources
        The sources.
    places
        Where the object of each path in the sources is described.
    sections
        Paths of the sections of each page, with the level of their headings.
    names
        Paths of the objects that a code span such as `Model.run` may mean.
    written
        Anchors of the headings of each page that are written by hand.
    described
        Paths of everything that has a description of its own.
    """

    sources: Sources
    places: dict[str, Place] = field(default_factory=dict)
    sections: dict[str, dict[str, int]] = field(default_factory=dict)
    names: dict[str, list[str]] = field(default_factory=dict)
    written: dict[str, set[str]] = field(default_factory=dict)
    described: set[str] = field(default_factory=set)

    def add(self, found: Found, place: Place, *names: str) -> None:
        """Note where an object is described; the first place counts.

        Raises
        ------
        PageError
            If the page already has a heading of the same text.
        """
        self.put(found, found.path, place, *names)

    def put(self, found: Found, path: str, place: Place, *names: str) -> None:
        """Note where an object is described; `path` is that of its class and its name."""
        if path in self.places:
            self.call(path, *names)
            return
        if place.anchor in self.taken(place.page):
            raise PageError(f"{FOLDER}/{place.page}.md: two headings are called {place.title}")
        self.places[path] = place
        self.call(path, *names, place.title, path)
        if isinstance(found, griffe.Class):
            for member in methods(self, found):
                below = Place(place.page, place.level + 1, f"{place.title}.{member.name}")
                more = (f"{name}.{member.name}" for name in names)
                self.put(member, f"{path}.{member.name}", below, *more)

    def taken(self, page: str) -> set[str]:
        """Return the anchors of a page so far."""
        return self.written.get(page, set()) | {p.anchor for p in self.places.values() if p.page == page}

    def call(self, path: str, *names: str) -> None:
        """Note names that mean an object."""
        for name in names:
            if path not in self.names.setdefault(name, []):
                self.names[name].append(path)

    def link(self, name: str, page: str) -> str:
        """Return a name as code, as a link if it is described.

        A word of small letters, such as `save`, may be anything; it is a link only within its page.
        """
        places = [self.places[path] for path in self.names.get(name.removesuffix("()"), ())]
        here = [place for place in places if place.page == page]
        plain = name == name.lower() and "." not in name
        if not here and (plain or len(places) != 1):
            return f"`{name}`"
        place = (here or places)[0]
        file = "" if place.page == page else f"{place.page}.md"
        return f"[`{name}`]({file}#{place.anchor})"


def methods(index: Index, cls: griffe.Class) -> list[griffe.Function | griffe.Attribute]:
    """Return the methods and properties of a class that have a heading of their own.

    Those of a base class that no page describes count as the class's own.
    """
    found: dict[str, griffe.Function | griffe.Attribute] = {}
    listed = members_of(cls)
    for one in reversed(own_line(index, cls)):
        for name, member in one.members.items():
            special = name.startswith("__") and name.endswith("__")
            if name in QUIET or name in listed or (name.startswith("_") and not special) or member.is_alias:
                continue
            function = isinstance(member, griffe.Function)
            if (function or "property" in member.labels) and (not special or member.docstring is not None):
                found[name] = member  # type: ignore[assignment]
    return sorted(found.values(), key=lambda one: (one.name.startswith("__"),))


def own_line(index: Index, cls: griffe.Class) -> list[griffe.Class]:
    """Return a class and its bases up to the ones that a page describes or that are `INNER`."""
    found = [cls]
    for base in index.sources.bases(cls):
        if base.path not in index.described | INNER:
            found += [one for one in own_line(index, base) if one not in found]
    return found


def is_record(cls: griffe.Class) -> bool:
    """Whether the annotated members of a class are the parameters of its constructor."""
    decorated = any(str(one.value).startswith("dataclass") for one in cls.decorators)
    return decorated or any(str(base) in ("NamedTuple", "TypedDict") for base in cls.bases)


def fields_of(cls: griffe.Class) -> list[griffe.Attribute]:
    """Return the members that the body of a class has: fields of a data class, members of an enum."""
    return [
        member
        for name, member in cls.members.items()
        if isinstance(member, griffe.Attribute)
        and not name.startswith("_")
        and "property" not in member.labels
        and (is_record(cls) or "class-attribute" in member.labels)
    ]


def members_of(cls: griffe.Class) -> set[str]:
    """Return the names that the docstring of a class describes as members."""
    if cls.docstring is None:
        return set()
    try:
        items = parse(cls.docstring.value).named.get("Members", [])
    except DocstringError as error:
        raise PageError(f"{cls.path}: {error}") from None
    return {name for item in items for name in item.names}


@cache
def index(root: Path = ROOT) -> Index:
    """Return where everything is described."""
    found = Index(Sources(root))
    single: list[tuple[str, Place]] = []
    several: list[tuple[str, Place]] = []
    for name in API:
        text = (root / FOLDER / f"{name}.md").read_text(encoding="utf-8")
        found.sections[name] = levels(text)
        plain = FENCED.sub("", SECTION.sub("", text))
        found.written[name] = {
            anchor(line.lstrip("#")) for line in re.findall(r"^#+ .*$", plain, re.MULTILINE)
        }
        for path, level in found.sections[name].items():
            if found.sources.module(path) is None:
                single.append((path, Place(name, level, path.rpartition(".")[2])))
            else:
                names = found.sources.public(path)
                several += [(f"{path}.{one}", Place(name, level, one)) for one in names]
    found.described = {found.sources.get(path).path for path, _ in (*single, *several)}
    for path, place in (*single, *several):
        add_name(found, path, place)
    return found


def add_name(found: Index, path: str, place: Place) -> None:
    """Note a public name, by its path there and in the sources; a heading that is taken gets the module."""
    if place.anchor in found.taken(place.page):
        place = replace(place, title=".".join(path.split(".")[-2:]))
    found.add(found.sources.get(path), place, path)


def levels(text: str) -> dict[str, int]:
    """Return the level of the headings of each section of a page."""
    plain = FENCED.sub(lambda block: re.sub(r"[^\n]", "x", block[0]), text)
    found = {}
    for section in SECTION.finditer(plain):
        before = SECTION.sub("", plain[: section.start()])
        headings = HEADING.findall(before)
        found[section[1]] = len(headings[-1]) + 1 if headings else 2
    return found


def page(name: str, root: Path = ROOT) -> str:
    """Return the text of a page, whose sections have the text of the sources of now.

    Raises
    ------
    PageError
        If a name is not found or its docstring does not have the form; the message names it.
    """
    found = index(root)
    text = (root / FOLDER / f"{name}.md").read_text(encoding="utf-8")
    level = found.sections[name]

    def section(match: re.Match[str]) -> str:
        path = match[1]
        writer = Writer(found, name, level[path])
        lines = "\n".join(writer.of(path)).strip()
        return f"<!-- {path}: begin -->\n\n{lines}\n\n<!-- {path}: end -->"

    return SECTION.sub(section, text)


@dataclass
class Writer:
    """Makes the Markdown of one section.

    Members
    -------
    index
        Where everything is described.
    page
        Name of the page.
    level
        Level of the headings.
    """

    index: Index
    page: str
    level: int

    def of(self, path: str) -> Iterator[str]:
        """Yield the lines of a name."""
        found = self.index.sources.get(path)
        if isinstance(found, griffe.Module):
            yield from self.module(found, path)
        else:
            yield from self.name(found, found.path)

    def module(self, module: griffe.Module, path: str) -> Iterator[str]:
        """Yield the text of a module, the list of its names, and their descriptions."""
        said = self.docstring(module)
        yield from self.text([said.summary])
        yield from self.text(said.lines)
        names = self.index.sources.public(path)
        rows = []
        for name in names:
            summary = self.docstring(self.index.sources.get(f"{path}.{name}")).summary
            rows.append(
                (self.index.link(f"{path}.{name}", self.page).replace(f"`{path}.", "`"), self.prose(summary))
            )
        yield from table(("name", "what it is"), [(a, b.replace("|", "\\|")) for a, b in rows])
        yield ""
        for name in names:
            found = self.index.sources.get(f"{path}.{name}")
            place = self.index.places[found.path]
            if place.page == self.page and place.level == self.level:
                yield from self.name(found, found.path)

    def name(self, found: Found, path: str) -> Iterator[str]:
        """Yield the description of a class, function or constant; `path` is its key in `places`."""
        place = self.index.places[path]
        yield f"{'#' * place.level} `{place.title}`"
        yield ""
        said = self.docstring(found)
        yield from fenced(self.signature(found, said, place.title.rpartition(".")[2]))
        yield from self.text([said.summary])
        yield from self.text(said.lines)
        if isinstance(found, griffe.Class):
            yield from self.parameters(found.members.get("__init__"), said)
            yield from self.members(found, said)
            yield from self.inherited(found)
            for member in methods(self.index, found):
                yield from self.name(member, f"{path}.{member.name}")
            return
        if isinstance(found, griffe.Function):
            yield from self.parameters(found, said)
        for title in ("Returns", "Yields"):
            if title in said.prose:
                kind, lines = said.prose[title]
                yield f"**{title}**" + (f" `{kind}`" if kind else "")
                yield ""
                yield from self.text(lines)
        yield from self.described(said.named.get("Raises", ()), "Raises")
        yield from self.described(said.named.get("Warns", ()), "Warns")

    def docstring(self, found: Found) -> Docstring:
        """Return the docstring of an object; that of a method may be its base's.

        Raises
        ------
        PageError
            If there is none, or it does not have the form.
        """
        value = found.docstring
        if value is None and isinstance(found.parent, griffe.Class):
            for base in self.index.sources.line(found.parent)[1:]:
                if found.name in base.members and (value := base.members[found.name].docstring) is not None:
                    break
        if value is None:
            raise PageError(f"{found.path} has no docstring")
        try:
            return parse(value.value)
        except DocstringError as error:
            raise PageError(f"{found.path}: {error}") from None

    def signature(self, found: Found, said: Docstring, name: str) -> list[str]:
        """Return the statement of an object as in a stub file; a function has its public name."""
        if isinstance(found, griffe.Class):
            return self.statement(found, said)
        if isinstance(found, griffe.Function):
            return [line for one in found.overloads or [found] for line in definition(one, name)]
        if not isinstance(found, griffe.Attribute):
            raise PageError(f"{found.path} is neither a class nor a function nor a constant")
        if "property" in found.labels:
            kind = f" -> {quoted(found.annotation)}" if found.annotation is not None else ""
            return ["@property", f"def {found.name}(self){kind}: ..."]
        return [assigned(found)]

    def statement(self, cls: griffe.Class, said: Docstring) -> list[str]:
        """Return a class with its bases, the fields of a data class or an enum, and its constructor."""
        decorators = [f"@{one.value}" for one in cls.decorators if str(one.value).startswith("dataclass")]
        bases = [quoted(base) for base in cls.bases if not str(base).startswith("_")]
        fields = fields_of(cls)
        body = [assigned(one) for one in fields]
        made = cls.members.get("__init__")
        if isinstance(made, griffe.Function) and said.named.get("Parameters"):
            body += definition(made, made.name)
        listed = f"({', '.join(bases)})" if bases else ""
        head = f"class {cls.name}{listed}:"
        return [*decorators, *([head, *(f"    {line}" for line in body)] if body else [f"{head} ..."])]

    def parameters(self, function: object, said: Docstring) -> Iterator[str]:
        """Yield the parameters.

        Raises
        ------
        PageError
            If the docstring has a parameter that the function does not have.
        """
        items = said.named.get("Parameters", [])
        if isinstance(function, griffe.Function):
            known = {one.name for one in function.parameters}
            for item in items:
                for name in item.names:
                    if name.lstrip("*") not in known:
                        raise PageError(f"{function.path}: the docstring has a parameter {name!r}")
        yield from self.described(items, "Parameters")

    def members(self, cls: griffe.Class, said: Docstring) -> Iterator[str]:
        """Yield members that are no methods, with their types."""
        items = list(said.named.get("Members", []))
        named = {name for item in items for name in item.names}
        for name, member in cls.members.items():
            if name in named or name.startswith("_") or member.is_alias:
                continue
            if isinstance(member, griffe.Attribute) and "property" not in member.labels and member.docstring:
                items.append(Described((name,), "", parse_lines(member.docstring.value)))
        shown: list[Described] = []
        for item in items:
            kinds = {self.kind(cls, name) for name in item.names}
            kind = item.type or (kinds.pop() if len(kinds) == 1 else "")
            shown.append(Described(item.names, kind, item.lines))
        yield from self.described(shown, "Members")

    def kind(self, cls: griffe.Class, name: str) -> str:
        """Return the type of a member as text, "" if it is not written down."""
        for one in self.index.sources.line(cls):
            member = one.members.get(name)
            if isinstance(member, griffe.Attribute) and member.annotation is not None:
                return quoted(member.annotation)
        return ""

    def inherited(self, cls: griffe.Class) -> Iterator[str]:
        """Yield what a class has from public base classes."""
        own = {one.name for one in methods(self.index, cls)}
        for base in self.index.sources.line(cls)[1:]:
            place = self.index.places.get(base.path)
            names = [one.name for one in methods(self.index, base) if one.name not in own]
            own |= {*names}
            if names and place is not None:
                links = [
                    self.index.link(f"{place.title}.{name}", self.page).replace(f"`{place.title}.", "`")
                    for name in names
                ]
                yield f"**From {self.index.link(place.title, self.page)}**: {', '.join(links)}"
                yield ""

    def described(self, items: Iterable[Described], title: str) -> Iterator[str]:
        """Yield a list of names with descriptions."""
        lines = []
        for item in items:
            if title in ("Raises", "Warns"):
                names = ", ".join(self.index.link(name, self.page) for name in item.names)
            else:
                names = ", ".join(f"`{name}`" for name in item.names)
            kind = f" (`{item.type}`)" if item.type else ""
            first, *rest = paragraphs(item.lines) or [""]
            lines.append(f"- {names}{kind}" + (f": {self.prose(first)}" if first else ""))
            for one in rest:
                listed = one.startswith("- ")
                lines += [f"    {self.prose(one)}"] if listed else ["", f"    {self.prose(one)}"]
        if lines:
            yield from (f"**{title}**", "", *lines, "")

    def text(self, lines: list[str]) -> Iterator[str]:
        """Yield paragraphs, lists and indented programs of a docstring."""
        listed = False
        for one in paragraphs(lines):
            if listed and not one.startswith("- "):
                yield ""
            listed = one.startswith("- ")
            if one.startswith("    "):
                yield from fenced([line.removeprefix("    ") for line in one.splitlines()], "a program")
            else:
                yield self.prose(one)
                if not listed:
                    yield ""
        if listed:
            yield ""

    def prose(self, text: str) -> str:
        """Return a paragraph in which only code has special characters, and known names are links."""
        parts = CODE.split(re.sub("::$", ":", text.replace("``", "`")))
        return "".join(
            self.index.link(part[1:-1], self.page) if number % 2 else escaped(part)
            for number, part in enumerate(parts)
        )


def escaped(text: str) -> str:
    """Return text without characters that Markdown takes for its own."""
    start = re.match(r"- ", text)
    head, rest = (text[:2], text[2:]) if start else ("", text)
    return head + re.sub(r"([*<])|(?<!\w)_|_(?!\w)", lambda found: f"\\{found[0]}", rest)


def parse_lines(text: str) -> list[str]:
    """Return the lines of the docstring of a member."""
    said = parse(text)
    return [said.summary, *(["", *said.lines] if said.lines else [])]


def paragraphs(lines: list[str]) -> list[str]:
    """Join the lines of each paragraph and of each item of a list; an indented program keeps its lines."""
    found: list[str] = []
    fresh = True
    for line in lines:
        if not line.strip():
            fresh = True
        elif line.startswith("    ") and (fresh or found[-1].startswith("    ")):
            continued = found and found[-1].startswith("    ")
            found[-1:] = [f"{found[-1]}\n{line}"] if continued else [*found[-1:], line]
            fresh = False
        elif line.startswith("- ") or fresh or found[-1].startswith("    "):
            found.append(line)
            fresh = False
        else:
            found[-1] += f" {line.strip()}"
    return found


def fenced(lines: list[str], remark: str = "signature") -> Iterator[str]:
    """Yield a block of Python, or of text if it is none."""
    text = "\n".join(lines)
    try:
        ast.parse(text)
    except SyntaxError:
        yield from ("```text", text, "```", "")
        return
    yield from (f"<!-- fragment: {remark} -->", "```python", text, "```", "")


def quoted(value: object) -> str:
    """Return an expression of the sources with its strings in double quotes."""
    return re.sub(r"'([^'\"\\]*)'", r'"\1"', str(value))


def assigned(attribute: griffe.Attribute) -> str:
    """Return the statement of a member or a constant; a long value is left out."""
    kind = f": {quoted(attribute.annotation)}" if attribute.annotation is not None else ""
    value = "" if attribute.value is None else quoted(attribute.value)
    if value and (len(value) > LONGEST or "\n" in value or value.startswith("field(")):
        value = "..."
    if not kind and not value:
        value = "..."
    return f"{attribute.name}{kind}{f' = {value}' if value else ''}"


def definition(function: griffe.Function, name: str) -> list[str]:
    """Return the lines of a function of that name, with its decorators."""
    names = [str(one.value).rpartition(".")[2] for one in function.decorators]
    lines = [f"@{one}" for one in names if one in DECORATORS]
    parts: list[str] = []
    kinds = griffe.ParameterKind
    parameters = [one for one in function.parameters if not one.name.startswith("_")]
    positional = [n for n, one in enumerate(parameters) if one.kind is kinds.positional_only]
    starred = False
    for number, one in enumerate(parameters):
        if one.kind is kinds.keyword_only and not starred:
            parts.append("*")
            starred = True
        prefix = {kinds.var_positional: "*", kinds.var_keyword: "**"}.get(
            one.kind or kinds.positional_only, ""
        )
        starred = starred or prefix == "*"
        kind = f": {quoted(one.annotation)}" if one.annotation is not None else ""
        value = ""
        if one.default is not None and not prefix:
            value = f" = {quoted(one.default)}" if kind else f"={quoted(one.default)}"
        parts.append(f"{prefix}{one.name}{kind}{value}")
        if positional and number == positional[-1]:
            parts.append("/")
    result = next((RESULTS[one] for one in names if one in RESULTS), function.returns)
    end = f" -> {quoted(result)}: ..." if result is not None else ": ..."
    start = "async def" if "async" in function.labels else "def"
    short = f"{start} {name}({', '.join(parts)}){end}"
    if len(short) <= WIDTH:
        return [*lines, short]
    return [*lines, f"{start} {name}(", *(f"    {part}," for part in parts), f"){end}"]
