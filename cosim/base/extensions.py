"""What packages add to this one by entry points: commands, interpreters, custom operators, references.

A group is a name of `pyproject.toml` below `[project.entry-points]`.  The interfaces in `rkcosim.apis` are
added in this way, as are those of any other installed distribution; no other module imports them.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

COMMANDS = "rkcosim.commands"
"""Commands of `rkcosim`: a `click.Command` by the command's name."""

INTERPRETERS = "rkcosim.interpreters"
"""Modules that register an interpreter when they are imported, by the kind of model file."""

CUSTOM_OPERATORS = "rkcosim.custom_operators"
"""Functions of custom operators of TFLite files (`rkcosim.compiler.custom_operators`) by their names."""

REFERENCES = "rkcosim.references"
"""Runtimes that results are compared with (`rkcosim.measure.models.references`), by name."""


@cache
def extensions(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, this package's own before those of others.

    Parameters
    ----------
    group
        One of the groups above.
    """
    from importlib.metadata import entry_points  # slow to import, and most commands need none

    found: dict[str, EntryPoint] = {}
    for one in sorted(entry_points(group=group), key=lambda one: not one.value.startswith("rkcosim.")):
        found.setdefault(one.name, one)
    return found
