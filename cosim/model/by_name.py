"""Sequences whose items are also taken by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TypeVar, overload

Item = TypeVar("Item")


class NamedItems(Sequence[Item]):
    """A sequence whose items are taken by number, or by their member `name`."""

    _what: ClassVar[str] = "item"
    """What an item is, in messages."""

    def __init__(self, items: Sequence[Item]) -> None:
        self._items = tuple(items)

    def _names(self) -> Sequence[str]:
        """Return the names of the items, in order; that of an item without one is its number."""
        return [str(getattr(item, "name", number)) for number, item in enumerate(self._items)]

    @overload
    def __getitem__(self, key: int | str) -> Item: ...
    @overload
    def __getitem__(self, key: slice) -> tuple[Item, ...]: ...
    def __getitem__(self, key: int | str | slice) -> Item | tuple[Item, ...]:
        """Return the item of a number or of a name, or the items of a slice.

        Raises
        ------
        KeyError
            for an unknown name; the message has the names.
        IndexError
            for an unknown number.
        """
        if isinstance(key, str):
            for item in self._items:
                if getattr(item, "name", None) == key:
                    return item
            raise KeyError(f"no {self._what} '{key}': the names are {', '.join(self._names())}")
        return self._items[key]

    def __contains__(self, item: Any) -> bool:
        """Return whether an item, or one of this name, is among them."""
        return item in self._names() if isinstance(item, str) else item in self._items

    def __len__(self) -> int:
        """Return their number."""
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        """Yield them in order."""
        return iter(self._items)
