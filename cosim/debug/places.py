"""The source that the debugger shows: the annotated listing, and the position of each line."""

from __future__ import annotations

from dataclasses import dataclass, field

from rkcosim.debug.opening import Debugged
from rkcosim.regcmd.listing import Piece, blocks_text, program_lines


@dataclass(frozen=True, order=True)
class ListingPlace:
    """A position: the job, the task in it, and the index of the word that is executed next."""

    job: int
    task: int
    word: int

    def __str__(self) -> str:
        job = f"job {self.job}, " if self.job else ""
        return f"{job}task {self.task}, word {self.word}"


@dataclass
class SourceText:
    """The listing of all jobs.

    Members
    -------
    lines : its lines, without line ends.
    places : position of each line, None for the lines before the first task.
    """

    lines: list[str] = field(default_factory=list)
    places: list[ListingPlace | None] = field(default_factory=list)
    _lines_of: dict[ListingPlace, int] = field(default_factory=dict)

    @classmethod
    def of(cls, work: Debugged) -> SourceText:
        """Make the listing: one line a command word, grouped by job, task and node."""
        text = cls()
        for number in range(len(work.jobs)):
            text.add_job(work, number)
        return text

    def add_job(self, work: Debugged, number: int) -> None:
        """Add the lines of a job behind those of the jobs before it."""
        pieces = [Piece(r.name, r.address, bytes(r.data.size)) for r in work.regions.values()]
        pieces = [piece for piece in pieces if len(piece.data)]
        job = work.jobs[number]
        program = job.program
        mask = "" if program.mask is None else f", interrupt mask 0x{program.mask:X}"
        core = 0 if program.core is None else program.core
        self._add(f"# job {number}: core {core}, {len(program.tasks)} tasks{mask}", None)
        task, word, node = -1, 0, ""
        for line in program_lines(program, places=pieces):
            if line.startswith("# task "):
                task, word = task + 1, 0
                if task < len(job.nodes) and job.nodes[task] != node:
                    node = job.nodes[task]
                    self._add(f"# node {node}", ListingPlace(number, task, 0))
                self._add(line, ListingPlace(number, task, 0))
            elif line.startswith(("#", ".")):
                self._add(line, ListingPlace(number, max(task, 0), 0) if task >= 0 else None)
            else:
                place = ListingPlace(number, task, word)
                self._lines_of[place] = len(self.lines) + 1
                self._add(line, place)
                word += 1

    def _add(self, line: str, place: ListingPlace | None) -> None:
        self.lines.append(line)
        self.places.append(place)

    def line_of(self, place: ListingPlace) -> int:
        """Return the number of a position's line, from 1; that of the last word for a position behind it."""
        word = place.word
        while word >= 0:
            line = self._lines_of.get(ListingPlace(place.job, place.task, word))
            if line is not None:
                return line
            word -= 1
        return 1

    def place_of(self, line: int) -> tuple[ListingPlace, int] | None:
        """Return the position of a line, or of the first one after it, and its line; None at the end."""
        for number in range(max(line, 1), len(self.lines) + 1):
            place = self.places[number - 1]
            if place is not None:
                return place, self.line_of(place)
        return None


def task_title(work: Debugged, job: int, task: int) -> str:
    """Return a task for people: its number, its node, and the blocks that it starts."""
    tasks = work.jobs[job].program.tasks
    if task >= len(tasks):
        return f"task {task}"
    listed = tasks[task]
    title = f" ({listed.title})" if listed.title else ""
    return f"task {task}{title}: {blocks_text(listed)}"
