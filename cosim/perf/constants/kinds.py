"""What the registry of timing constants is made of: constants, their sources, their stored effects."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from cosim.engines.library import DramConfig

ROOT = Path(__file__).parents[3]
EFFECTS = Path(__file__).with_name("effects.json")
SCHEMA_VERSION = 1

Kind = Literal["published", "fitted", "assumed", "derived"]


@dataclass(frozen=True)
class Source:
    """Where HARDWARE says so: the section, words of the line, and its mark (HARDWARE 0.1)."""

    section: str
    quote: str
    mark: str


@dataclass(frozen=True)
class Change:
    """Another value to try: words for it, and the memory that has it."""

    words: str
    dram: Callable[[DramConfig], DramConfig]


@dataclass(frozen=True)
class Constant:
    """One constant.

    Members
    -------
    id : stable name.
    place : file and name there; `value` reads it.
    kind : where it comes from (module's text).
    source : of a published one; of a fitted or derived one where the reasoning begins.
    why : what it does, in words.
    changes : of an assumed one that is a parameter: what is tried to find its effect.
    bound : of an assumed one that is built in: what it can change at most, by reasoning.
    """

    id: str
    place: str
    value: Callable[[], Any]
    unit: str
    kind: Kind
    why: str
    source: Source | None = None
    changes: tuple[Change, ...] = ()
    bound: str = ""

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "id": self.id,
            "place": self.place,
            "value": self.value(),
            "unit": self.unit,
            "kind": self.kind,
            "why": self.why,
            "source": self.source.__dict__ if self.source else None,
            "effects": effects().get(self.id, {}),
            "bound": self.bound,
        }


def memory(name: str, unit: str, kind: Kind, why: str, source: Source | None = None, *tried: Any) -> Constant:
    """A field of `DramConfig`, with values to try in its place."""

    def change(value: Any) -> Change:
        return Change(f"{value:g}", lambda dram: replace(dram, **{name: value}))

    def read() -> Any:
        return getattr(DramConfig(), name)

    place = f"cosim/engines/library.py: DramConfig.{name}"
    return Constant(f"dram.{name}", place, read, unit, kind, why, source, tuple(map(change, tried)))


def imported(
    id: str,
    module: str,
    name: str,
    unit: str,
    kind: Kind,
    why: str,
    source: Source | None = None,
    bound: str = "",
) -> Constant:
    """A constant of a module of `rtl`, or an attribute of something in it (`RK3588.stripe_pixels`)."""

    def read() -> Any:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
        return found

    path = module.replace(".", "/") + ".py"
    return Constant(id, f"{path}: {name}", read, unit, kind, why, source, (), bound)


def written(
    id: str,
    file: str,
    pattern: str,
    unit: str,
    kind: Kind,
    why: str,
    source: Source | None = None,
    bound: str = "",
) -> Constant:
    """A number in a source file that no import reaches: the first group of a pattern."""

    def read() -> int:
        found = re.search(pattern, (ROOT / file).read_text())
        if found is None:
            raise ValueError(f"{file}: nothing looks like {pattern}")
        return int(found[1])

    name = pattern.split("=")[0].replace("\\", "").strip()
    return Constant(id, f"{file}: {name}", read, unit, kind, why, source, (), bound)


@cache
def effects() -> dict[str, dict[str, dict[str, float]]]:
    """Stored effects: id -> changed value -> workload -> relative change of its cycles."""
    if not EFFECTS.exists():
        return {}
    data = json.loads(EFFECTS.read_text())
    found: dict[str, dict[str, dict[str, float]]] = data["effects"]
    return found
