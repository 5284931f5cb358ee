"""What a program did until it ended: for the summary and the JSON document."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rkcosim.frontends.nnapi.device import IDevice, IPreparedModel


class Summary:
    """The models of a program.

    Parameters
    ----------
    device : the device; the summary has the bytes that it moved.
    checked : whether tensors are compared with the golden models.

    Members
    -------
    mismatch : the first difference that was found.
    """

    def __init__(self, device: IDevice, checked: bool) -> None:
        self._device, self._checked = device, checked
        self._models: list[IPreparedModel] = []
        self.mismatch = ""

    def add(self, model: IPreparedModel) -> None:
        """Add a model that the program has compiled."""
        self._models.append(model)

    def finish(self) -> tuple[dict[str, Any], list[str]]:
        """Return members of the JSON document, and lines of the summary."""
        lines = []
        for number, model in enumerate(self._models):
            if model.account.executions:
                first, *rest = model.account.lines()
                lines += [f"model {number + 1}: {first}", *rest]
        traffic = asdict(self._device.traffic)
        if lines:
            lines.append(
                f"memory: {traffic['copied_in']:,} bytes copied in, {traffic['copied_out']:,} out; "
                f"{traffic['kept']:,} kept in the NPU's layout between executions"
            )
        if self._checked and lines:
            equal = "MATCH: every tensor of the NPU, bit for bit"
            lines.append(f"MISMATCH: {self.mismatch}" if self.mismatch else equal)
        match = None if not self._checked else not self.mismatch
        accounts = [model.account.as_json() for model in self._models]
        return {"nnapi": accounts, "traffic": traffic, "match": match}, lines
