"""Signatures of commands that decorators give more options: what typer reads of a wrapper."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_type_hints

BY_NAME = inspect.Parameter.KEYWORD_ONLY
"""How typer calls a command, so that the order of parameters is that of the help alone."""


def with_options(
    wrapper: Callable[..., None],
    command: Callable[..., None],
    options: Mapping[str, Any],
    *,
    without: str | None = None,
    in_place: bool = False,
) -> Callable[..., None]:
    """Let a wrapper show its command's parameters and more options; the wrapper is returned.

    Parameters
    ----------
    wrapper : what is called with all of them, by name.
    command : what it calls.
    options : annotation of each option by its name; a switch is off by default, any other is None.
    without : a parameter that the wrapper gives the command and does not show.
    in_place : whether the options stand where that one was rather than at the end.
    """
    added = [
        inspect.Parameter(
            name, BY_NAME, default=False if get_args(kind)[0] is bool else None, annotation=kind
        )
        for name, kind in options.items()
    ]
    shown: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name != without:
            shown.append(parameter.replace(kind=BY_NAME))
        elif in_place:
            shown += added
    if not in_place:
        shown += added
    _show(wrapper, shown, {**command.__annotations__, **options})
    return wrapper


def resolved(wrapper: Callable[..., None]) -> Callable[..., None]:
    """Turn those annotations of a wrapper that are text into types, as typer wants them; it is returned."""
    hints = get_type_hints(wrapper, include_extras=True)
    shown = inspect.signature(wrapper).parameters.values()
    _show(wrapper, [parameter.replace(annotation=hints[parameter.name]) for parameter in shown], hints)
    return wrapper


def _show(wrapper: Callable[..., None], shown: list[inspect.Parameter], hints: Mapping[str, Any]) -> None:
    names = {parameter.name for parameter in shown}
    wrapper.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]  # read by typer
    wrapper.__annotations__ = {name: kind for name, kind in hints.items() if name in names}
