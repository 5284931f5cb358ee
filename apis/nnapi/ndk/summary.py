"""What a program did until it ended: for the summary and the JSON document."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rkcosim.apis.nnapi.account import Account
from rkcosim.apis.nnapi.device import IDevice, IPreparedModel
from rkcosim.running.machine import MOST_MODELS


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
        self._accounts: list[Account] = []
        self._more = 0
        self.mismatch = ""

    def add(self, model: IPreparedModel) -> None:
        """Add a model that the program has compiled; after `MOST_MODELS` they are only counted."""
        if len(self._accounts) < MOST_MODELS:
            self._accounts.append(model.account)
        else:
            self._more += 1

    def finish(self) -> tuple[dict[str, Any], list[str]]:
        """Return members of the JSON document, and lines of the summary."""
        lines = []
        for number, account in enumerate(self._accounts):
            if account.executions:
                first, *rest = account.lines()
                lines += [f"model {number + 1}: {first}", *rest]
        if self._more:
            lines.append(f"{self._more} more models")
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
        accounts = [account.as_json() for account in self._accounts]
        return {"nnapi": accounts, "traffic": traffic, "match": match}, lines
