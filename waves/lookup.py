"""Finding signals by the end of their name or by a pattern."""

from __future__ import annotations

import difflib
import fnmatch
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cached_property

from waves.backends import Signal
from waves.errors import WaveError

_SHOWN = 4  # names in an error


class Names:
    """The signals of one file by name."""

    def __init__(self, file: str, signals: Sequence[Signal]) -> None:
        self._file = file
        self.signals = list(signals)

    @cached_property
    def _by_leaf(self) -> dict[str, list[Signal]]:
        found: dict[str, list[Signal]] = defaultdict(list)
        for signal in self.signals:
            found[signal.leaf].append(signal)
        return dict(found)

    @cached_property
    def _by_name(self) -> dict[str, Signal]:
        return {signal.name: signal for signal in self.signals}

    @cached_property
    def _by_scope(self) -> dict[str, list[Signal]]:
        found: dict[str, list[Signal]] = defaultdict(list)
        for signal in self.signals:
            found[signal.scope].append(signal)
        return dict(found)

    @cached_property
    def _children(self) -> dict[str, list[str]]:
        found: dict[str, dict[str, None]] = defaultdict(dict)
        for scope in self._by_scope:
            while scope:
                parent = scope.rpartition(".")[0]
                found[parent][scope] = None
                scope = parent
        return {parent: list(scopes) for parent, scopes in found.items()}

    def has(self, name: str) -> bool:
        """Whether a signal has exactly this name."""
        return name in self._by_name

    def fitting(self, name: str) -> list[Signal]:
        """Signals that a name may mean: the one that has exactly it, or all that end in it."""
        if name in self._by_name:
            return [self._by_name[name]]
        leaf = name.rpartition(".")[2]
        return [signal for signal in self._by_leaf.get(leaf, []) if signal.name.endswith("." + name)]

    def find(self, name: str) -> Signal:
        """The one signal that a name means; several names of one signal count once."""
        found = self.fitting(name)
        if len({signal.reference for signal in found}) == 1:
            return found[0]
        if found:
            shown = ", ".join(signal.name for signal in found[:_SHOWN])
            more = ", ..." if len(found) > _SHOWN else ""
            raise WaveError(
                f"{self._file}: {len(found)} signals are called '{name}', say more of the name: {shown}{more}"
            )
        near = self.near(name)
        hint = f"; near: {', '.join(near)}" if near else ""
        raise WaveError(f"{self._file}: no signal is called '{name}'{hint}")

    def near(self, name: str) -> list[str]:
        """Names that look like one that is not there."""
        parts = name.count(".") + 1
        ends: dict[str, str] = {}
        for signal in self.signals:
            ends.setdefault(".".join(signal.name.split(".")[-parts:]).lower(), signal.name)
        found = difflib.get_close_matches(name.lower(), ends, n=_SHOWN)
        leaves = {leaf.lower(): signals[0].name for leaf, signals in self._by_leaf.items()}
        found_leaves = difflib.get_close_matches(name.rpartition(".")[2].lower(), leaves, n=_SHOWN)
        return list(dict.fromkeys([ends[f] for f in found] + [leaves[f] for f in found_leaves]))[:_SHOWN]

    def glob(self, patterns: Iterable[str]) -> list[Signal]:
        """Signals that fit any of some patterns, as a whole or from some scope on."""
        chosen: dict[str, None] = {}
        for pattern in patterns:
            whole = fnmatch.filter(self._by_name, pattern)
            chosen |= dict.fromkeys(whole or fnmatch.filter(self._by_name, "*." + pattern))
        return [signal for signal in self.signals if signal.name in chosen]

    def scopes(self, parent: str) -> list[str]:
        """Scopes right inside one."""
        return self._children.get(parent, [])

    def within(self, scope: str) -> list[Signal]:
        """Signals right inside a scope."""
        return self._by_scope.get(scope, [])
