"""What `Model.advise` returns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rkcosim.measure.advice.advise import Advice, Tried
from rkcosim.measure.advice.change import SAID
from rkcosim.measure.advice.words import combination, head, lines
from rkcosim.model.reports import Report
from rkcosim.model.tables import Column, Table


class AdviceReport(Report):
    """Changes that make a model faster, each of them made on a copy and timed.

    Members
    -------
    found
        Everything as objects (`rkcosim.measure.advice.advise.Advice`).
    """

    def __init__(self, found: Advice) -> None:
        self.found = found

    @property
    def cycles(self) -> int:
        """Cycles of an inference of the model as it is."""
        return self.found.before.cycles

    @property
    def milliseconds(self) -> float:
        """Time of an inference of the model as it is, with what a driver adds to each submit."""
        return self.found.before.milliseconds

    @property
    def changed(self) -> bytes | None:
        """File of the model with the changes of `take`, otherwise with those of the last combination.

        None if no change saves time.
        """
        chosen = self.found.taken or (self.found.combined[-1] if self.found.combined else None)
        return None if chosen is None else chosen.subject.model

    @property
    def table(self) -> Table[Tried]:
        """The changes that save time, the best first; a row is taken by number or by the change's name."""
        columns: list[Column[Tried]] = [
            Column("change", lambda row: row.name),
            Column("saves cycles", lambda row: row.saved, ","),
            Column("saves ms", lambda row: row.saved_milliseconds, ".4f"),
            Column("cycles", lambda row: row.time.cycles if row.time else None, ","),
            Column("ms", lambda row: row.time.milliseconds if row.time else None, ".4f"),
            Column("results", lambda row: SAID[row.change.meaning]),
            Column("what is done", lambda row: row.change.text),
        ]
        return Table(f"{self.found.model}: advice", self.found.advised, columns, Tried.as_json, numbered=True)

    def lines(self) -> Iterator[str]:
        """Yield the time of the model, the changes in words, and what was made together."""
        yield head(self.found)
        if self.found.taken is not None:
            yield combination(self.found.taken, self.found)
            return
        yield from lines(self.found)

    def as_json(self) -> dict[str, Any]:
        """Return the document of `rkcosim advise --json`."""
        return self.found.as_json()
