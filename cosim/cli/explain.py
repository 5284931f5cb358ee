"""`rkcosim explain`: log lines, codes and status values in words."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path

from cosim.cli.exits import BAD_INPUT, fail, reported, write_json


def explain_command(words: list[str], json: Path | None) -> None:
    """Explain the words given, or what comes on standard input."""
    with reported():
        from cosim.explain import explain

        text = " ".join(words) if words and words != ["-"] else sys.stdin.read()
        found = explain(text)
        if not found and len(words) > 1:  # several values in one line
            found = [item for word in words for item in explain(word)]
        if json:
            write_json(json, {"schema_version": 1, "explanations": [asdict(item) for item in found]})
        if not found:
            fail("nothing here is a line of the NPU's driver or runtime, a code or a status", BAD_INPUT)
        print("\n".join(map(str, found)))
