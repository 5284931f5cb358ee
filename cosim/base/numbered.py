"""Items that are numbered from 0, of which only the latest are kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Generic, SupportsIndex, TypeVar, overload

T = TypeVar("T")


class Numbered(Sequence[T], Generic[T]):
    """A sequence whose oldest items may be gone.

    Numbers and the length count all items.  Iteration and slices leave out those that are gone, and a single
    one of them raises IndexError.

    Parameters
    ----------
    items : the items that are kept.
    gone : number of earlier ones.
    """

    def __init__(self, items: Iterable[T] = (), gone: int = 0) -> None:
        self._items = list(items)
        self.gone = gone

    def __len__(self) -> int:
        return self.gone + len(self._items)

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    @overload
    def __getitem__(self, index: SupportsIndex) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> T | list[T]:
        if isinstance(index, slice):
            numbers = range(len(self))[index]
            return [self._items[n - self.gone] for n in numbers if n >= self.gone]
        number = index.__index__()
        number += len(self) if number < 0 else 0
        if not self.gone <= number < len(self):
            kept = f"{self.gone} to {len(self) - 1} are kept" if self._items else "none is kept"
            raise IndexError(f"item {index.__index__()} of {len(self)}; {kept}")
        return self._items[number - self.gone]

    def __setitem__(self, number: int, item: T) -> None:
        if number >= self.gone:
            self._items[number - self.gone] = item

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Numbered):
            return self.gone == other.gone and self._items == other._items
        return not self.gone and self._items == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Numbered({self._items!r}, {self.gone})"

    def append(self, item: T) -> None:
        """Add an item."""
        self._items.append(item)

    def trim(self, kept: int) -> None:
        """Remove the oldest items until `kept` are left, once there are twice as many."""
        if len(self._items) > 2 * kept:
            surplus = len(self._items) - kept
            del self._items[:surplus]
            self.gone += surplus

    def copy(self) -> Numbered[T]:
        """Return a sequence that later changes do not reach."""
        return Numbered(self._items, self.gone)
