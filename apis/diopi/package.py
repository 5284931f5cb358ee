"""The folder in which Python programs find the package `diopilib`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from rkcosim.apis.diopi.npu import OPTIONS_VARIABLE, RESULTS_VARIABLE
from rkcosim.devices.program import process_variables, put_first

TEXT = '''"""DIOPI's device library: the RK3588 NPU, simulated by rkcosim (rkcosim.apis.diopi)."""

from rkcosim.apis.diopi.library import members as _members

globals().update(_members())
'''


def lay_out(folder: Path) -> None:
    """Write the package `diopilib` into a folder, which is created.

    Raises
    ------
    OSError
        if a file cannot be written.
    """
    package = folder / "diopilib"
    package.mkdir(parents=True, exist_ok=True)
    (package / "__init__.py").write_text(TEXT)


def environment(folder: Path, options: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by which a program finds the package, with options for it.

    Parameters
    ----------
    folder : a folder made by `lay_out`.
    options : names and values of `rkcosim.running.settings`.
    """
    return {
        **os.environ,
        **put_first("PYTHONPATH", folder),
        **process_variables(folder, OPTIONS_VARIABLE, RESULTS_VARIABLE, options),
    }
