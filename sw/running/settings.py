"""Options of a plug-in: names and values that a script gives as text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from rkcosim.engines.protocol import CHANGES, ENGINES, FAST, GOLDEN

SWITCH = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
"""Values of options that are on or off."""


@dataclass(frozen=True)
class Settings:
    """Options of a plug-in.

    Members
    -------
    engine : engine that simulates; None: the fastest that is available.
    exact : simulate the array cell as RTL.
    cores : number of cores that share large layers, 1 to 3.
    check : compare every tensor of every inference with both golden models.
    float : operators on float32: in fp16 on the NPU ("fp16"), or in float32 by the runtime ("host").
    summary : print the summary of `rkcosim run` on standard error at the end.
    json, report : files for the JSON document and the HTML page.
    trace, events, timeline : files for the waveform, the event log and the timeline.
    parts : folder for the parts as model files, with the inputs and outputs of their first inference.
    dynamic : accept graphs of LiteRT in which sizes depend on data; all sizes are those of the model's file.
    timeout : longest time of a call in seconds.
    """

    engine: str | None = None
    exact: bool = False
    cores: int = 1
    check: bool = False
    float: str = "fp16"
    summary: bool = False
    json: Path | None = None
    report: Path | None = None
    trace: Path | None = None
    events: Path | None = None
    timeline: Path | None = None
    parts: Path | None = None
    dynamic: bool = False
    timeout: int = 3600


NAMES = tuple(item.name for item in fields(Settings))


def read_settings(given: Mapping[str, str]) -> Settings:
    """Return the options that a script gave.

    Raises
    ------
    ValueError
        for an unknown name or value; the message names both.
    """
    values: dict[str, Any] = {}
    for name, text in given.items():
        if name not in NAMES:
            near = get_close_matches(name, NAMES, n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            raise ValueError(f"there is no option '{name}'{hint}; the options are {', '.join(NAMES)}")
        values[name] = _value(name, text)
    return Settings(**values)


def _value(name: str, text: str) -> Any:
    if name in ("exact", "check", "summary", "dynamic"):
        if text.lower() not in SWITCH:
            raise ValueError(f"the option {name} is 1 or 0, not '{text}'")
        return SWITCH[text.lower()]
    if name in ("cores", "timeout"):
        low, high = (1, 3) if name == "cores" else (1, 10**7)
        if not (text.isdecimal() and text.isascii() and len(text) < 9 and low <= int(text) <= high):
            raise ValueError(f"the option {name} is a number from {low} to {high}, not '{text}'")
        return int(text)
    if name == "float":
        if text not in ("fp16", "host"):
            raise ValueError(f"the option float is fp16 or host, not '{text}'")
        return text
    if name == "engine":
        if text not in (known := (*ENGINES, CHANGES, FAST, GOLDEN)):
            raise ValueError(f"the option engine is one of {', '.join(known)}, not '{text}'")
        return text
    if not text:
        raise ValueError(f"the option {name} is a path")
    return Path(text)
