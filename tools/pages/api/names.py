"""The file of all public names of docs/api with their signatures, so that changes of them are seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import griffe

from tools.pages.api.docstrings import parse
from tools.pages.api.sources import ROOT, Found
from tools.pages.api.writer import (
    LONGEST,
    Index,
    assigned,
    definition,
    fields_of,
    index,
    is_record,
    members_of,
    methods,
    quoted,
)

HEAD = """# The public names of the Python interface: docs/api/stability.md. Written by python -m tools.pages.
"""


def text(root: Path = ROOT) -> str:
    """Return the file: a line for each name, sorted."""
    found = index(root)
    lines: dict[str, str] = {}
    first: dict[str, str] = {}
    for path in sorted(public(found), key=lambda one: (one.count("."), one)):
        for name, said in described(found, path, first):
            lines.setdefault(name, said)
    return HEAD + "".join(f"{name}: {said}\n" for name, said in sorted(lines.items()))


def public(found: Index) -> Iterator[str]:
    """Yield the paths of all names that have or share a description."""
    for sections in found.sections.values():
        for path in sections:
            if found.sources.module(path) is None:
                yield path
            else:
                yield from (f"{path}.{name}" for name in found.sources.public(path))


def described(found: Index, path: str, first: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield a name and the members of a class with kind and signature; a second name refers to the first."""
    thing = found.sources.get(path)
    if thing.path in first and first[thing.path] != path:
        yield path, f"the same as {first[thing.path]}"
        return
    first[thing.path] = path
    yield path, said_of(thing)
    if isinstance(thing, griffe.Class):
        for member in methods(found, thing):
            yield f"{path}.{member.name}", said_of(member)
        line = found.sources.line(thing)
        for one in line:
            for field in fields_of(one):
                yield f"{path}.{field.name}", said_of(field)
        for name in sorted(name for one in line for name in members_of(one)):
            there = next((one.members[name] for one in line if name in one.members), None)
            yield f"{path}.{name}", said_of(there) if isinstance(there, griffe.Attribute) else "member"


def said_of(thing: Found) -> str:
    """Return kind and signature of an object in one line."""
    if isinstance(thing, griffe.Class):
        bases = ", ".join(quoted(base) for base in thing.bases if not str(base).startswith("_"))
        made = thing.members.get("__init__")
        constructor = ""
        if is_record(thing):
            parts = [assigned(field) for field in fields_of(thing)]
            constructor = f" ({', '.join(parts)})"
        elif isinstance(made, griffe.Function) and thing.docstring is not None:
            if parse(thing.docstring.value).named.get("Parameters"):
                constructor = f" {signature(made)}"
        return f"class{f' of {bases}' if bases else ''}{constructor}"
    if isinstance(thing, griffe.Function):
        return "function " + " or ".join(signature(one) for one in thing.overloads or [thing])
    assert isinstance(thing, griffe.Attribute)
    kind = f" {quoted(thing.annotation)}" if thing.annotation is not None else ""
    if "property" in thing.labels:
        return f"property{kind}"
    if isinstance(thing.parent, griffe.Class):
        shown = "" if is_record(thing.parent) or "class-attribute" not in thing.labels else value_of(thing)
        return f"member{kind}{shown}"
    return f"constant{kind}{value_of(thing)}"


def value_of(thing: griffe.Attribute) -> str:
    """Return a short value with an equals sign."""
    value = "" if thing.value is None else " ".join(quoted(thing.value).split())
    return f" = {value}" if value and len(value) <= LONGEST else ""


def signature(function: griffe.Function) -> str:
    """Return parameters and result of a function in one line."""
    *before, last = [line.strip() for line in definition(function, "")]
    lines = [line for line in (*before, last) if not line.startswith("@")]
    joined = " ".join(lines).removesuffix(": ...")
    start, _, rest = joined.partition("(")
    return f"{'async ' if start.startswith('async') else ''}({rest.strip()}".replace(",)", ")").replace(
        ", )", ")"
    )
