"""A reader of RON (Rusty Object Notation), limited to what Surfer's state files use."""

from __future__ import annotations

import re
from typing import Any

_TOKEN = re.compile(
    r'(?:\s|//[^\n]*\n)*(?:(?P<text>"(?:[^"\\]|\\.)*")|(?P<number>-?\d+(?:\.\d+)?)|(?P<name>\w+)|(?P<mark>[()\[\]{}:,]))'
)


class Named(dict[str, Any]):
    """A struct: fields by name."""


class Tuple(list[Any]):
    """A tuple, or the contents of a variant; `name` is the name of the variant, "" for a tuple."""

    def __init__(self, name: str, items: list[Any]) -> None:
        super().__init__(items)
        self.name = name


def loads(text: str) -> Any:
    """Read one value.

    Raises
    ------
    ValueError
        If the text is not RON; the message has the position.
    """
    reader = _Reader(text)
    value = reader.value()
    reader.done()
    return value


class _Reader:
    def __init__(self, text: str) -> None:
        self._text, self._place = text, 0

    def value(self) -> Any:
        kind, token = self._take()
        if kind == "text":
            return re.sub(r"\\(.)", r"\1", token[1:-1])
        if kind == "number":
            return float(token) if "." in token else int(token)
        if token == "[":
            return self._items("]")
        if token == "{":
            return self._map()
        if token == "(":
            return self._body("")
        if kind == "name":
            if token in ("true", "false"):
                return token == "true"
            if self._peek() == "(":
                self._take()
                inner = self._body(token)
                return inner[0] if token == "Some" else inner
            return None if token == "None" else token
        raise self._wrong(token)

    def done(self) -> None:
        if self._text[self._place :].strip():
            raise self._wrong(self._text[self._place :].strip()[:20])

    def _body(self, name: str) -> Any:
        """Read the text after "(": fields by name, or items."""
        here = self._place
        kind, _ = self._take()
        if kind == "name" and self._peek() == ":":
            self._place = here
            return self._fields()
        self._place = here
        return Tuple(name, self._items(")"))

    def _fields(self) -> Named:
        found = Named()
        while self._peek() != ")":
            kind, name = self._take()
            if kind != "name" or name in found:
                raise self._wrong(name)
            self._expect(":")
            found[name] = self.value()
            if self._peek() != ")":
                self._expect(",")
        self._take()
        return found

    def _items(self, end: str) -> list[Any]:
        found = []
        while self._peek() != end:
            found.append(self.value())
            if self._peek() != end:
                self._expect(",")
        self._take()
        return found

    def _map(self) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        while self._peek() != "}":
            key = self.value()
            key = key[0] if isinstance(key, Tuple) else key
            self._expect(":")
            if key in found:
                raise self._wrong(str(key))
            found[key] = self.value()
            if self._peek() != "}":
                self._expect(",")
        self._take()
        return found

    def _peek(self) -> str:
        match = _TOKEN.match(self._text, self._place)
        return match[match.lastgroup] if match and match.lastgroup else ""

    def _take(self) -> tuple[str, str]:
        match = _TOKEN.match(self._text, self._place)
        if match is None or match.lastgroup is None:
            raise self._wrong(self._text[self._place : self._place + 20])
        self._place = match.end()
        return match.lastgroup, match[match.lastgroup]

    def _expect(self, token: str) -> None:
        taken = self._take()[1]
        if taken != token:
            raise self._wrong(taken)

    def _wrong(self, token: str) -> ValueError:
        line = self._text.count("\n", 0, self._place) + 1
        return ValueError(f"not RON at line {line}: {token!r}")
