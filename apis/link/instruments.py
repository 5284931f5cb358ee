"""The device of an interface with what its options ask for: checks, documents, files of the parts.

Each is imported only if an option asks for it.
"""

from __future__ import annotations

import contextlib

from rkcosim.running.machine import Listener, Machine
from rkcosim.running.settings import Settings


def open_machine(settings: Settings) -> Machine:
    """Open the device that the options describe.

    Raises
    ------
    ValueError, EngineError
        For invalid options, and if the engine cannot be opened.
    """
    listeners: list[Listener] = []
    with contextlib.ExitStack() as stack:
        if settings.summary or settings.json is not None or settings.report is not None:
            from rkcosim.measure.models.documents import Documents
            from rkcosim.measure.report.kept import keeping

            listeners.append(Documents(settings, stack.enter_context(keeping(settings.report))))
        if settings.parts is not None:
            from rkcosim.apis.link.part_files import PartFiles

            listeners.append(PartFiles(settings.parts))
        if settings.check:
            from rkcosim.verify.crosscheck.checks import Checks

            listeners.append(Checks())
        return Machine(settings, listeners)
