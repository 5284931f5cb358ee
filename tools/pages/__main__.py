"""`python -m tools.pages`: write the pages that are made from the sources, or check them."""

from __future__ import annotations

import argparse
import sys

import tools.pages as pages

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m tools.pages", description=pages.__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("name", nargs="*", help=f"what to write: {', '.join(pages.PAGES)}; default: all")
    parser.add_argument("--check", action="store_true", help="write nothing; name what is not current")
    given = parser.parse_args()
    try:
        sys.exit(pages.main(given.name, given.check))
    except pages.PageError as error:
        sys.exit(str(error))
