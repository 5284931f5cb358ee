"""Figures that are checked in as JSON with a version: one way to read them, one to write them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from waves.whole_file import whole_file


def read_stored(path: Path, version: int, anew: str = "make it anew") -> dict[str, Any]:
    """Members of a file.

    Parameters
    ----------
    version : the `schema_version` that it must have.
    anew : what to do about another one.

    Raises
    ------
    ValueError
        for a file that is damaged or of another version.
    """
    try:
        data = json.loads(path.read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}: no JSON: {error}") from error
    if not isinstance(data, dict) or data.get("schema_version") != version:
        raise ValueError(f"{path}: schema_version must be {version}; {anew}")
    return data


def write_stored(path: Path, version: int, members: Mapping[str, Any]) -> None:
    """Write members with their version in front, so that a reader never sees half of the file."""
    with whole_file(path) as part:
        part.write_text(json.dumps({"schema_version": version, **members}, indent=1) + "\n")
