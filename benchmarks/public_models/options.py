"""Options of the commands that measure the public models."""

from __future__ import annotations

import argparse
from pathlib import Path


def sweep_parser(program: str, text: str, results: str) -> argparse.ArgumentParser:
    """Return a parser of the options that these commands have in common.

    Parameters
    ----------
    program
        The command.
    text
        What it does.
    results
        The default of `--results`.
    """
    parser = argparse.ArgumentParser(program, description=text)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("folders", nargs="*", type=Path, metavar="DIR", help="folder with the files")
    parser.add_argument("--only", default="", help="files whose path contains this")
    parser.add_argument("--again", action="store_true", help="also measure files with a result")
    parser.add_argument("--rtl", type=int, default=0, help="simulate inferences of up to this many cycles")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random inputs")
    parser.add_argument("--seconds", type=float, default=3600.0, help="limit of each file")
    parser.add_argument(
        "--results",
        type=Path,
        default=Path(results),
        help="results so far; a run continues where an earlier one stopped",
    )
    parser.add_argument("--page", type=Path, help="write the results as a page (Markdown)")
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--part", type=Path, help=argparse.SUPPRESS)
    return parser
