"""Listings in colour, for terminals."""

from __future__ import annotations

import re

_PATTERNS = (
    (r"#.*$", "bright_black"),
    (r"^\.[a-z]+", "magenta"),
    (r"\b(?:RAW|NOP|CONFIG_END|OP_ENABLE)\b", "bold yellow"),
    (r"\b[A-Z_]+(?=\.[A-Z])", "cyan"),
    (r"(?<=\.)[A-Z][A-Z0-9_]+(?= )", "bold cyan"),
    (r"(?<==)[A-Z][A-Z0-9_]*\b", "green"),
    (r"(?<==)-?(?:0x[0-9A-Fa-f]+|[0-9]+)\b", "blue"),
    (r"(?<= )[<>~|](?= )", "bold red"),
    (r"^error:", "bold red"),
    (r"^warning:", "yellow"),
)


def print_coloured(lines: list[str]) -> None:
    """Print lines of a listing with colours, as wide as they are."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    for line in lines:
        text = Text(line)
        for pattern, style in _PATTERNS:
            text.highlight_regex(re.compile(pattern), style)
        console.print(text)
