"""`python -m tools.timing`: record the timing diagrams of the documentation, or check them."""

from __future__ import annotations

import argparse
import sys

import tools.timing
from tools.timing.record import DIAGRAMS, current, write

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m tools.timing",
        description=tools.timing.__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("name", nargs="*", help=f"{', '.join(DIAGRAMS)}; default: all")
    parser.add_argument("--check", action="store_true", help="write nothing; name what is not current")
    given = parser.parse_args()
    unknown = [name for name in given.name if name not in DIAGRAMS]
    if unknown:
        sys.exit(f"no diagram is named {unknown[0]!r}; there are {', '.join(DIAGRAMS)}")
    old = []
    for name in given.name or DIAGRAMS:
        if given.check:
            old += [] if current(name) else [name]
        else:
            write(name)
    if old:
        sys.exit(f"not current: {', '.join(old)}; write with python -m tools.timing")
