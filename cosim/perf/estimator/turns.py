"""Cores that take turns at one DRAM: what they read, work on and write, stripe by stripe.

All that happens between two events (a stripe's input is there, the array or the DPU is through with one, a
write is done) goes at a constant pace.  Each core's reads and each core's writes that wait for DRAM get the
same share of its beats; those who read for a core take turns burst by burst (cosim/harness/dram.h).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from cosim.perf.estimator.memory import Coefficients, Memory

NONE = 1e-9
"""Beats or cycles that are none."""

STILL = 1000
"""Events at one cycle after which something goes round in a circle."""

FEATURES, WEIGHTS, TABLES, OPERANDS, LISTS = range(5)
"""Those who read for a core, in the order in which they take turns."""
WAITS = ("features", "weights", "operands", "operands", "start and end")


@dataclass(frozen=True)
class Reads:
    """What one of them reads for a task.

    Members
    -------
    allow : beats that it asks for at first.
    at : cycles from the task's start until the first of them comes.
    burst : beats of a burst.
    pace : most beats of a cycle.
    head : beats of the first burst, 0 as of others.
    tail, tail_burst : of the last so many beats, the beats of a burst.
    window : beats that may be under way, 0 for no limit: behind the first ones no more come in a latency.
    """

    allow: float = 0.0
    at: float = 0.0
    burst: float = 16.0
    pace: float = 1.0
    head: float = 0.0
    tail: float = 0.0
    tail_burst: float = 16.0
    window: float = 0.0

    def pace_at(self, read: float, latency: float) -> float:
        """Most beats of a cycle from here on."""
        return min(self.pace, self.window / latency) if 0 < self.window <= read + NONE else self.pace

    def burst_at(self, read: float) -> float:
        """Beats of the burst that begins here."""
        if self.head and read < NONE:
            return self.head
        return self.tail_burst if self.allow - read <= self.tail + NONE else self.burst


@dataclass(frozen=True)
class Step:
    """A stripe of a task on the array, or a part of one.

    Members
    -------
    needs : (who, beats) that must have been read before it begins.
    allows : (who, beats) that it may ask for once this has begun.
    work : cycles of the array.
    first, last : whether it begins and ends a stripe.
    land : cycles from the last beat that it waited for to its begin.
    placed : cycles from the task's start until what it needs is in place, if it came at once.
    drain : cycles of the DPU behind the last part.
    drain_needs, drain_allows : the same for the DPU.
    writes, bursts : beats and bursts written after that.
    """

    needs: Sequence[tuple[int, float]]
    work: float
    drain: float
    writes: float
    bursts: float
    allows: Sequence[tuple[int, float]] = ()
    first: bool = True
    last: bool = True
    land: float = 0.0
    placed: float = 0.0
    drain_needs: Sequence[tuple[int, float]] = ()
    drain_allows: Sequence[tuple[int, float]] = ()


@dataclass(frozen=True)
class Flow:
    """A task.

    Members
    -------
    gap : cycles before its start, from the end of the task before it or the job's first cycle.
    reads : by those who read.
    steps : see there.
    drain, pipe : cycles from the array to the DPU and from there to the bus.
    behind : from its last write's response to its end.
    give_way : beats of features left to read when the weights beyond the first group are asked for.
    weights : beats of these that are asked for then.
    little : it reads so little that whose burst is whose matters.
    lists : beats of commands that come so many cycles after the start (`registers`).
    """

    gap: float
    reads: Sequence[Reads]
    steps: Sequence[Step]
    drain: float
    pipe: float
    behind: float
    give_way: float = 0.0
    weights: float = 0.0
    little: bool = False
    lists: float = 0.0
    registers: float = 0.0


@dataclass(frozen=True)
class Span:
    """Cycles of a task, and in how many of them the array worked or waited for what."""

    cycles: float
    waits: dict[str, float]


class _Core:
    """A core at work.  The DPU's cycles count from where a stripe leaves its pipe."""

    def __init__(self, flows: Sequence[Flow], bus: Memory, c: Coefficients) -> None:
        self.flows, self.bus = flows, bus
        self.ask, self.turn = c["write_ask"], c["write_turn"]
        self.spans: list[Span] = []
        self.flow: Flow | None = None
        self.under_way: deque[list[float]] = deque()  # beats left to write of a stripe, beats of a burst
        self.done = False
        self._next(0.0)

    def _next(self, now: float) -> None:
        if len(self.spans) == len(self.flows):
            self.done = True
            return
        self.flow = flow = self.flows[len(self.spans)]
        self.begin = now + flow.gap
        self.working, self.at = True, self.begin  # whether the array works, and until when
        self.step: int | None = None  # of the array
        self.ending = self.waited = False
        self.read = [0.0] * len(flow.reads)
        self.allowed = [0.0] * len(flow.reads)
        # Asked for, but under way.
        self.grants = [(self.begin + reads.at, who, reads.allow) for who, reads in enumerate(flow.reads)]
        if flow.lists:
            early = flow.reads[LISTS].allow
            later = self.begin + flow.registers + self.bus.read * (1 + bool(early))
            self.grants.append((later, LISTS, early + flow.lists))
        heapq.heapify(self.grants)
        self.gives_way = flow.weights > 0
        self.serving, self.burst_left = LISTS, 0.0
        self.stripe = -1
        self.drained: list[float] = []
        self.sent: list[float] = []  # when the bus has taken in a stripe at the earliest
        self.room = float(self.bus.queue)
        self.waiting: deque[tuple[float, Step]] = deque()  # for the DPU, from when on
        self.draining: Step | None = None
        self.drain_at = 0.0
        self.waits: dict[str, float] = {}

    def _ask(self, now: float, wishes: Sequence[tuple[int, float]]) -> None:
        for who, beats in wishes:
            if beats > self.allowed[who] + NONE:
                heapq.heappush(self.grants, (now + self.bus.read, who, beats))

    def _missing(self, needs: Sequence[tuple[int, float]]) -> int | None:
        """Who has not read enough."""
        for who, beats in needs:
            if self.read[who] + NONE < beats:
                return who
        return None

    def move(self, now: float) -> bool:
        """Do what can be done at this cycle; whether there was anything."""
        if self.done:
            return False
        moved = False
        while self.grants and self.grants[0][0] <= now + NONE:
            _, who, beats = heapq.heappop(self.grants)
            self.allowed[who] = max(self.allowed[who], beats)
            moved = True
        assert self.flow is not None
        if self.gives_way and self.allowed[FEATURES] >= self.flow.reads[FEATURES].allow:
            if self.allowed[FEATURES] - self.read[FEATURES] <= self.flow.give_way + NONE:
                self.gives_way = False
                self.allowed[WEIGHTS] = max(self.allowed[WEIGHTS], self.flow.weights)
                moved = True
        return self._dpu(now) | self._array(self.flow, now) | moved

    def _array(self, flow: Flow, now: float) -> bool:
        if self.working:
            if self.at > now + NONE:
                return False
            self.working = False
            if self.step is None:
                self.step = 0
            elif self.ending:
                self.spans.append(Span(now - self.begin, self.waits))
                self._next(now)
            else:
                step = flow.steps[self.step]
                if step.last:
                    self.waiting.append((now + flow.drain + flow.pipe, step))
                self.step += 1
            return True
        assert self.step is not None
        if self.step == len(flow.steps):
            if self.waiting or self.draining or self.under_way:
                return False
            # The way to DRAM is part of a write's latency, also of one that had to wait there.
            written = max(self.sent[-1], now - self.bus.way) if self.sent else now
            self.working, self.ending, self.at = True, True, written + flow.behind
            return True
        step = flow.steps[self.step]
        if self._missing(step.needs) is not None:
            self.waited = True
            return False
        begin = max(now + step.land * self.waited, self.begin + step.placed)
        if step.first:
            stripe = self.stripe + 1
            if stripe > 1:
                if len(self.drained) < stripe - 1:
                    return False
                begin = max(begin, self.drained[stripe - 2])
            self.stripe = stripe
        self._ask(now, step.allows)
        self.working, self.at, self.waited = True, begin + step.work, False
        return True

    def _dpu(self, now: float) -> bool:
        if self.draining:
            if self.drain_at > now + NONE:
                return False
            if self.draining.writes:
                self._write(now, self.draining)
            self.draining = None
            return True
        if not self.waiting or self._held() > 1 or (len(self.sent) > 1 and self.sent[-2] > now + NONE):
            return False
        ready, step = self.waiting[0]
        if ready > now + NONE or self._missing(step.drain_needs) is not None:
            return False
        assert self.flow is not None
        self.waiting.popleft()
        self.draining, self.drain_at = step, now + step.drain
        self.drained.append(self.drain_at - self.flow.pipe)
        self._ask(now + step.drain, step.drain_allows)
        return True

    def _write(self, now: float, step: Step) -> None:
        """A stripe goes to the bus, which takes it in as fast as all of DRAM could."""
        burst = step.writes / step.bursts
        before = self.sent[-1] if self.sent else 0.0
        self.sent.append(max(now, before) + step.bursts * self._burst_cycles(burst))
        self.under_way.append([step.writes, burst])

    def _burst_cycles(self, burst: float) -> float:
        """Cycles of a burst on the bus: a request follows the last beat of the burst before it."""
        return max(burst * self.bus.port + self.ask, burst * self.bus.alone)

    def _held(self) -> int:
        """Stripes that keep a place of the writer's, as the bus has no room for all of them."""
        total, places = 0.0, 0
        for left, _ in self.under_way:
            total += left
            places += total > self.room + NONE
        return places

    # Pace.

    def wishes(self) -> tuple[list[int], float, float]:
        """Those who read, and the most beats that reads and writes move in a cycle."""
        if self.done:
            return [], 0.0, 0.0
        assert self.flow is not None
        who = [n for n, most in enumerate(self.allowed) if most - self.read[n] > NONE]
        most = 1 / self.bus.port
        reads = min(most, sum(self._pace(n) for n in who))
        return who, reads, self.write_pace(most) if self.under_way else 0.0

    def paces(self, who: Sequence[int], rate: float) -> list[tuple[int, float]]:
        """Beats a cycle of those who read, by the lengths of their bursts."""
        assert self.flow is not None
        if len(who) == 1 and not self.flow.little:
            return [(who[0], min(rate, self._pace(who[0])))]
        lengths = {n: self.flow.reads[n].burst_at(self.read[n]) for n in who}
        if self.flow.little:
            turn = self._turn(who, lengths)
            return [(turn, min(rate, self._pace(turn)))]
        found = []
        left, bursts = rate, sum(lengths.values())
        for n in sorted(who, key=self._pace):
            own = min(left * lengths[n] / bursts, self._pace(n))
            left, bursts = left - own, bursts - lengths[n]
            found.append((n, own))
        return found

    def _pace(self, who: int) -> float:
        assert self.flow is not None
        return self.flow.reads[who].pace_at(self.read[who], self.bus.read)

    def _turn(self, who: Sequence[int], lengths: dict[int, float]) -> int:
        """Whose burst is read now."""
        if self.burst_left <= NONE or self.serving not in who:
            self.serving = min(who, key=lambda n: (n <= self.serving, n))
            self.burst_left = lengths[self.serving]
        return self.serving

    def write_pace(self, rate: float) -> float:
        """Beats a cycle of the writer, which has so many bursts under way at most."""
        bus, burst = self.bus, self.under_way[0][1]
        answered = (bus.write + self.turn + burst * bus.port) / bus.outstanding
        return min(rate, burst / max(self._burst_cycles(burst), answered))

    def until(self, now: float, paces: Sequence[tuple[int, float]], write: float) -> float:
        """Cycles until something changes."""
        soon = []
        if self.working:
            soon.append(self.at - now)
        if self.grants:
            soon.append(self.grants[0][0] - now)
        if self.draining:
            soon.append(self.drain_at - now)
        elif self.waiting:
            if self.waiting[0][0] > now + NONE:
                soon.append(self.waiting[0][0] - now)
            if len(self.sent) > 1 and self.sent[-2] > now + NONE:
                soon.append(self.sent[-2] - now)
        if self.under_way:
            self.room = max(self.bus.queue - self.bus.way * write, 0.0)
            total = 0.0
            for left, _ in self.under_way:
                total += left
                if total > self.room + NONE:
                    soon.append((total - self.room) / write)
            soon.append(self.under_way[0][0] / write)
        if paces:
            assert self.flow is not None
            needs: list[tuple[int, float]] = []
            if not self.working and self.step is not None and self.step < len(self.flow.steps):
                needs += self.flow.steps[self.step].needs
            if self.waiting and not self.draining:
                needs += self.waiting[0][1].drain_needs
            for who, pace in paces:
                left = self.allowed[who] - self.read[who]
                for reader, beats in needs:
                    if reader == who and beats > self.read[who] + NONE:
                        left = min(left, beats - self.read[who])
                reads = self.flow.reads[who]
                if reads.tail and (tail := reads.allow - self.read[who] - reads.tail) > NONE:
                    left = min(left, tail)
                if reads.window > self.read[who] + NONE:
                    left = min(left, reads.window - self.read[who])
                if self.flow.little and self.burst_left > NONE:
                    left = min(left, self.burst_left)
                if who == FEATURES and self.gives_way:
                    way = self.allowed[who] - self.read[who] - self.flow.give_way
                    left = min(left, way) if way > NONE else left
                soon.append(left / pace)
        return min(soon) if soon else -1.0

    def go(self, cycles: float, paces: Sequence[tuple[int, float]], write: float) -> None:
        """So many cycles pass."""
        if self.step is not None and not self.ending:
            why = "array" if self.working else self._why()
            self.waits[why] = self.waits.get(why, 0.0) + cycles
        for who, pace in paces:
            self.read[who] = min(self.read[who] + cycles * pace, self.allowed[who])
            self.burst_left -= cycles * pace
        if self.under_way:
            self.under_way[0][0] -= cycles * write
            if self.under_way[0][0] <= NONE:
                self.under_way.popleft()

    def _why(self) -> str:
        """What the array waits for."""
        assert self.flow is not None and self.step is not None
        if self.step < len(self.flow.steps):
            missing = self._missing(self.flow.steps[self.step].needs)
            if missing is not None:
                return WAITS[missing]
        if self.waiting and not self.draining:
            missing = self._missing(self.waiting[0][1].drain_needs)
            if missing is not None:
                return WAITS[missing]
        return "memory" if self.under_way and not self.draining else "output"


def spans(parts: Sequence[Sequence[Flow]], bus: Memory, c: Coefficients) -> list[list[Span]]:
    """Each task of each core; `turn` are the cycles from a write's response to the next request.

    Raises
    ------
    RuntimeError
        for a flow that waits for what it does not ask for, or stays at one cycle.
    """
    cores = [_Core(flows, bus, c) for flows in parts]
    now = 0.0
    still = 0
    while True:
        for core in cores:
            while core.move(now):
                pass
        wishes = [core.wishes() for core in cores]
        left = 1 / bus.beat
        rates: dict[tuple[int, int], float] = {}
        wanted = sorted(
            (most, number, way)
            for number, (_, *both) in enumerate(wishes)
            for way, most in enumerate(both)
            if most
        )
        for place, (most, number, way) in enumerate(wanted):
            rates[number, way] = min(most, left / (len(wanted) - place))
            left -= rates[number, way]
        moves = []
        by = -1.0
        for number, (core, (who, _, _)) in enumerate(zip(cores, wishes, strict=True)):
            if core.done:
                continue
            paces = core.paces(who, rates[number, 0]) if who else []
            write = core.write_pace(rates[number, 1]) if core.under_way else 0.0
            soon = core.until(now, paces, write)
            by = soon if by < 0 else min(by, soon) if soon >= 0 else by
            moves.append((core, paces, write))
        if not moves:
            return [core.spans for core in cores]
        if by < 0:
            raise RuntimeError("a core waits for beats that nobody asks for")
        still = 0 if by > NONE else still + 1
        if still > STILL:
            raise RuntimeError(f"{still} events at cycle {now:g}")
        now += by
        for core, paces, write in moves:
            core.go(by, paces, write)
