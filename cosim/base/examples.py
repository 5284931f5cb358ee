"""The examples that the package brings: models, command streams and programs."""

from __future__ import annotations

from pathlib import Path

from rkcosim.base import PACKAGE

EXAMPLES = PACKAGE / "examples"


def example(name: str) -> Path:
    """Return the path of a file or folder of the examples, which a wheel contains as well.

    Parameters
    ----------
    name
        Its path in the folder of the examples, as "digits/digits_int8.onnx" or "streams".

    Raises
    ------
    FileNotFoundError
        If there is none; the message names those of the same folder.
    """
    root = EXAMPLES.resolve()
    path = (root / name).resolve()
    if path.exists() and path.is_relative_to(root):
        return EXAMPLES / name
    folder = path.parent if path.parent.is_dir() and path.is_relative_to(root) else root
    there = sorted(one.relative_to(root).as_posix() for one in folder.iterdir() if one.name[0] not in "._")
    raise FileNotFoundError(f"no example {name!r}; there are {', '.join(there)}")
