"""The one source of random numbers of the tests: the same in each run, until somebody asks for others.

`RKCOSIM_SEED` decides: nothing, as in `make test`, is the same number in every run; a number repeats a run;
`fresh`, as in `make test-all`, draws a new one. A test that fails prints the command that repeats it.
"""

from __future__ import annotations

import hashlib
import os
import secrets

VARIABLE = "RKCOSIM_SEED"
HASHES = "PYTHONHASHSEED"
FRESH = "fresh"
FIXED = 35880
"""The number of a run that asks for none."""


def number() -> int:
    """Return the number from which this run draws all seeds.

    Raises
    ------
    ValueError
        If the variable is neither a number nor empty.
    """
    text = os.environ.get(VARIABLE, "")
    if not text:
        return FIXED
    if not text.isdecimal():
        raise ValueError(f"{VARIABLE}: {text!r} is neither a decimal number nor {FRESH!r}")
    return int(text)


def settle() -> None:
    """Put the number of this run into the environment, before any test is imported or process started.

    The order of sets of strings follows from it too, in processes that are started later.
    """
    if os.environ.get(VARIABLE) == FRESH:
        os.environ[VARIABLE] = str(secrets.randbelow(10**9))
    os.environ.setdefault(HASHES, str(number() % 2**32))


def seed(name: str, bits: int = 32) -> int:
    """Return the seed of a test or a file of tests, from 1 to 2^bits - 1.

    Parameters
    ----------
    name
        Tells seeds of one run apart: `__name__`, and more if a file needs several.
    bits
        Size of the seed.
    """
    digest = hashlib.sha256(f"{number()} {name}".encode()).digest()
    return int.from_bytes(digest[:16], "little") % ((1 << bits) - 1) + 1


def repeat(test: str) -> str:
    """Return the command that repeats a test with the seeds of this run."""
    variables = f"{HASHES}={os.environ.get(HASHES, 'random')} {VARIABLE}={number()}"
    return f"{variables} .venv/bin/python -m pytest '{test}'"
