"""The record of what was measured, a member for each network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rkcosim.waves.whole_file import whole_file

RECORD = Path(__file__).with_name("record.json")


def read_record(path: Path = RECORD) -> dict[str, dict[str, Any]]:
    """Return the record by the names of the networks; empty if there is none."""
    found: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return found


def write_record(record: dict[str, dict[str, Any]], path: Path = RECORD) -> None:
    """Replace the record atomically; numbers have six significant digits."""
    with whole_file(path) as part:
        part.write_text(json.dumps(_short(record), indent=1) + "\n", encoding="utf-8")


def _short(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _short(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_short(one) for one in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
