"""Simulation of cores that share one DRAM: their reads, work and writes, stripe by stripe.

Between two events (a stripe's input has arrived, the array or the DPU has finished one, a write is done) all
rates are constant.  The pending reads and the pending writes of each core get equal shares of DRAM's
beats; the read clients of a core are served round-robin, burst by burst (cosim/engines/harness/dram.h).
If one core is alone, what repeats is not simulated again (`periods`).
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

from rkcosim.measure.perf.estimator.accesses import (
    FEATURES,
    LISTS,
    NONE,
    WEIGHTS,
    Coefficients,
    Flow,
    Memory,
    Step,
    Wishes,
)
from rkcosim.measure.perf.estimator.features import CONV, POOL
from rkcosim.measure.perf.estimator.periods import PLACES, Periods, Skip, State

STILL = 1000
"""Livelock guard: an error after this many events at one cycle."""

REGISTER_CYCLES = 130
"""Cycles in which the registers of a task are written, one per cycle, before the next list is requested."""

STATES = {FEATURES: "feature", WEIGHTS: "weight"}
"""State of the array (`rkcosim.spec.regs.events.ARRAY_STATES`) that waits for a client."""


@dataclass(frozen=True)
class Span:
    """Cycles of a task, and the number of them in each pair of states of the array and of the output.

    The states are those of `rkcosim.spec.regs.events`.
    """

    cycles: float
    ends: dict[tuple[str, str], float]


class _Core:
    """State of a core.  Times of the DPU count from the cycle in which a stripe leaves its pipeline."""

    def __init__(self, flows: Sequence[Flow], bus: Memory, c: Coefficients) -> None:
        self.flows, self.bus = flows, bus
        self.ask, self.turn = c["write_ask"], c["write_turn"]
        self.spans: list[Span] = []
        self.under_way: deque[list[float]] = deque()  # unwritten beats of a stripe, beats per burst
        self.done = False
        self._next(0.0)

    def _next(self, now: float) -> None:
        if len(self.spans) == len(self.flows):
            self.done = True
            return
        flow = self.flow = self.flows[len(self.spans)]
        self.begin = now + flow.gap
        self.working, self.at = True, self.begin  # whether the array works, and until when
        self.step = -1  # index of the array's step; -1 before the first one
        self.ending = self.waited = False
        self.read = [0.0] * len(flow.reads)
        self.allowed = [0.0] * len(flow.reads)
        # Requested but not arriving yet: (first cycle, client, up to which beat).
        self.grants = [(self.begin + reads.at, who, reads.allow) for who, reads in enumerate(flow.reads)]
        if flow.lists:
            early = flow.reads[LISTS].allow
            later = self.begin + REGISTER_CYCLES + self.bus.read * (1 + bool(early))
            self.grants.append((later, LISTS, early + flow.lists))
        heapq.heapify(self.grants)
        self.gives_way = flow.weights > 0
        self.serving, self.burst_left = LISTS, 0.0
        self.stripe = -1
        self.drained: list[float] = []
        self.sent: list[float] = []  # earliest cycles at which the bus has accepted each stripe
        self.room = float(self.bus.queue)
        self.waiting: deque[tuple[float, int]] = deque()  # first cycle and index of the DPU's steps
        self.draining: int | None = None
        self.drain_at = 0.0
        self.ends: dict[tuple[str, str], float] = {}
        self.lands, self.lacks = self.begin, "none"  # until when a step's input lands; what it lacked
        self.periods, self.looked = Periods(flow), -1  # and the last step at which a period was looked for

    def _ask(self, now: float, wishes: Wishes) -> None:
        for who, beats in wishes:
            if beats > self.allowed[who] + NONE:
                heapq.heappush(self.grants, (now + self.bus.read, who, beats))

    def _missing(self, needs: Wishes) -> int | None:
        """Return the first client that has not read enough, or None."""
        return next((who for who, beats in needs if self.read[who] + NONE < beats), None)

    def _array_needs(self) -> Wishes:
        """Return the beats that the array waits for, if it is idle."""
        idle = not self.working and 0 <= self.step < len(self.flow.steps)
        return self.flow.steps[self.step].needs if idle else ()

    def _dpu_needs(self) -> Wishes:
        """Return the beats that the DPU waits for, if it is idle."""
        idle = self.waiting and self.draining is None
        return self.flow.steps[self.waiting[0][1]].drain_needs if idle else ()

    def move(self, now: float) -> bool:
        """Do everything that is possible at this cycle; return whether there was anything."""
        if self.done:
            return False
        moved = False
        while self.grants and self.grants[0][0] <= now + NONE:
            _, who, beats = heapq.heappop(self.grants)
            self.allowed[who] = max(self.allowed[who], beats)
            moved = True
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
            if self.step < 0:
                self.step = 0
            elif self.ending:
                self.spans.append(Span(now - self.begin, self.ends))
                self._next(now)
            else:
                if flow.steps[self.step].last:
                    self.waiting.append((now + flow.drain + flow.pipe, self.step))
                self.step += 1
            return True
        if self.step == len(flow.steps):
            if self.waiting or self.draining is not None or self.under_way:
                return False
            # The way to DRAM is part of a write's latency, even if the write had to wait there.
            written = max(self.sent[-1], now - self.bus.way) if self.sent else now
            self.working, self.ending, self.at = True, True, written + flow.behind
            return True
        step = flow.steps[self.step]
        if self._missing(step.needs) is not None:
            self.waited, self.lacks = True, self._lacking(step.needs)
            return False
        begin = max(now + step.land * self.waited, self.begin + step.placed)
        self.lacks = self.lacks if self.waited else STATES[FEATURES]
        if step.first:
            stripe = self.stripe + 1
            if stripe > 1:
                if len(self.drained) < stripe - 1:
                    return False
                if self.drained[stripe - 2] > begin:
                    begin, self.lacks = self.drained[stripe - 2], "none"
            self.stripe = stripe
        self._ask(now, step.allows)
        self.working, self.at, self.waited, self.lands = True, begin + step.work, False, begin
        return True

    def _dpu(self, now: float) -> bool:
        if self.draining is not None:
            if self.drain_at > now + NONE:
                return False
            step = self.flow.steps[self.draining]
            if step.writes:
                self._write(now, step)
            self.draining = None
            return True
        if not self.waiting or self._held() > 1 or (len(self.sent) > 1 and self.sent[-2] > now + NONE):
            return False
        ready, index = self.waiting[0]
        step = self.flow.steps[index]
        if ready > now + NONE or self._missing(step.drain_needs) is not None:
            return False
        self.waiting.popleft()
        self.draining, self.drain_at = index, now + step.drain
        self.drained.append(self.drain_at - self.flow.pipe)
        self._ask(now + step.drain, step.drain_allows)
        return True

    def _write(self, now: float, step: Step) -> None:
        """Pass a stripe to the bus, which accepts it at the full rate of DRAM."""
        burst = step.writes / step.bursts
        before = self.sent[-1] if self.sent else 0.0
        self.sent.append(max(now, before) + step.bursts * self._burst_cycles(burst))
        self.under_way.append([step.writes, burst])

    def _burst_cycles(self, burst: float) -> float:
        """Cycles of a burst on the bus: a request follows the last beat of the burst before it."""
        return max(burst * self.bus.port + self.ask, burst * self.bus.alone)

    def _held(self) -> int:
        """Stripes that occupy a buffer of the writer because the bus has no room for them."""
        return sum(total > self.room + NONE for total in self._to_write())

    def _to_write(self) -> Iterator[float]:
        """Unwritten beats up to the end of each stripe that is being written."""
        return accumulate(left for left, _ in self.under_way)

    # Pace.

    def wishes(self) -> tuple[list[int], float, float]:
        """Return the clients that read, and the largest numbers of beats read and written per cycle."""
        if self.done:
            return [], 0.0, 0.0
        who = [n for n, most in enumerate(self.allowed) if most - self.read[n] > NONE]
        most = 1 / self.bus.port
        reads = min(most, sum(self._pace(n) for n in who))
        return who, reads, self.write_pace(most) if self.under_way else 0.0

    def paces(self, who: Sequence[int], rate: float) -> list[tuple[int, float]]:
        """Return the beats per cycle of each client that reads, in proportion to its burst length."""
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
        return self.flow.reads[who].pace_at(self.read[who], self.bus.read)

    def _turn(self, who: Sequence[int], lengths: dict[int, float]) -> int:
        """Return the client whose burst is read now."""
        if self.burst_left <= NONE or self.serving not in who:
            self.serving = min(who, key=lambda n: (n <= self.serving, n))
            self.burst_left = lengths[self.serving]
        return self.serving

    def write_pace(self, rate: float) -> float:
        """Return the beats per cycle of the writer, whose bursts in flight are limited."""
        bus, burst = self.bus, self.under_way[0][1]
        answered = (bus.write + self.turn + burst * bus.port) / bus.outstanding
        return min(rate, burst / max(self._burst_cycles(burst), answered))

    def until(self, now: float, paces: Wishes, write: float) -> float:
        """Return the cycles until the next event."""
        soon = []
        if self.working:
            soon.append(self.at - now)
        if self.grants:
            soon.append(self.grants[0][0] - now)
        if self.draining is not None:
            soon.append(self.drain_at - now)
        elif self.waiting:
            if self.waiting[0][0] > now + NONE:
                soon.append(self.waiting[0][0] - now)
            if len(self.sent) > 1 and self.sent[-2] > now + NONE:
                soon.append(self.sent[-2] - now)
        if self.under_way:
            self.room = max(self.bus.queue - self.bus.way * write, 0.0)
            full = self.room + NONE
            soon += [(total - self.room) / write for total in self._to_write() if total > full]
            soon.append(self.under_way[0][0] / write)
        if paces:
            needs = [*self._array_needs(), *self._dpu_needs()]
            for who, pace in paces:
                read, reads = self.read[who], self.flow.reads[who]
                left = [self.allowed[who] - read]
                left += [beats - read for reader, beats in needs if reader == who and beats > read + NONE]
                if reads.tail:
                    left.append(reads.allow - read - reads.tail)
                if reads.window > read + NONE:
                    left.append(reads.window - read)
                if self.flow.little:
                    left.append(self.burst_left)
                if who == FEATURES and self.gives_way:
                    left.append(self.allowed[who] - read - self.flow.give_way)
                # A used-up limit does not count; the first entry is the number of beats that are requested.
                soon.append(min([left[0], *(beats for beats in left if beats > NONE)]) / pace)
        return min(soon) if soon else -1.0

    def go(self, now: float, cycles: float, paces: Wishes, write: float) -> None:
        """Advance the time from `now` by `cycles`."""
        if self.step >= 0 and not self.ending:
            output = self._output(now)
            landing = min(max(self.lands - now, 0.0), cycles) if self.working else 0.0
            for array, part in ((self.lacks, landing), (self._array_state(), cycles - landing)):
                if part:
                    pair = (array if self.flow.kind == CONV else "none", output)
                    self.ends[pair] = self.ends.get(pair, 0.0) + part
        for who, pace in paces:
            self.read[who] = min(self.read[who] + cycles * pace, self.allowed[who])
            self.burst_left -= cycles * pace
        if self.under_way:
            self.under_way[0][0] -= cycles * write
            if self.under_way[0][0] <= NONE:
                self.under_way.popleft()

    def _array_state(self) -> str:
        """Return the array's state (`rkcosim.spec.regs.events.ARRAY_STATES`)."""
        if self.working:
            return "array"
        return self._lacking(self._array_needs())

    def _lacking(self, needs: Wishes) -> str:
        """Return the state of an array that needs these beats; features come before weights (rtl/npu/csc)."""
        missing = {who for who, beats in needs if self.read[who] + NONE < beats}
        return next((STATES[who] for who in STATES if who in missing), "none")

    def _output(self, now: float) -> str:
        """Return the output's state (`rkcosim.spec.regs.events.OUTPUT_STATES`)."""
        if self.draining is not None or (self.flow.kind == POOL and self.working):
            return "work"
        if self._missing(self._dpu_needs()) is not None:
            return "operand"
        if self.waiting and self.waiting[0][0] <= now + NONE:
            return "write"  # it takes no stripe because its buffers are full
        if self.flow.kind != CONV and self._missing(self._array_needs()) is not None:
            return "operand"
        return "write" if self.under_way and self.step == len(self.flow.steps) else "none"

    # Periods.

    def skip(self, now: float) -> float:
        """Skip the periods that follow if the array has come to another stripe; return their cycles."""
        if not self.periods or not self.looked < self.step < len(self.flow.steps):
            return 0.0
        self.looked = self.step
        if not self.flow.steps[self.step].first:
            return 0.0
        whole = zip(self.read, self.allowed, self.periods.totals, strict=True)
        free = any(read < allowed >= total for read, allowed, total in whole)
        state = State(self.step, now, tuple(self.read), free, dict(self.ends), self._form(now))
        found = self.periods.find(state)
        if found is None:
            return 0.0
        self._advance(found)
        return found.cycles

    def _form(self, now: float) -> Hashable:
        """Return the state relative to this step and to this cycle."""

        def later(cycle: float) -> float:
            return round(max(cycle - now, -self.bus.way), PLACES)

        periods = self.periods
        of, base = periods.forms, periods.bases[self.step]
        limited = [allowed < total for allowed, total in zip(self.allowed, periods.totals, strict=True)]

        def ahead(who: int, beats: float) -> float:
            return round(beats - base[who] * limited[who], PLACES)

        return (
            (of[self.step], self.working, self.waited, self.lacks, self.gives_way),
            (later(self.at), later(self.lands)) if self.working else None,
            (self.stripe - len(self.drained), *map(later, self.drained[-2:])),
            tuple(map(later, self.sent[-2:])),
            tuple((later(ready), of[index]) for ready, index in self.waiting),
            (of[self.draining], later(self.drain_at)) if self.draining is not None else None,
            tuple((round(left, PLACES), burst) for left, burst in self.under_way),
            round(self.room, PLACES),
            tuple((later(at), who, ahead(who, beats)) for at, who, beats in sorted(self.grants)),
            tuple(
                (ahead(who, read), ahead(who, most)) if limited[who] else read < most
                for who, (read, most) in enumerate(zip(self.read, self.allowed, strict=True))
            ),
        )

    def _advance(self, by: Skip) -> None:
        """Move everything to what comes behind some steps."""
        totals, bases = self.periods.totals, self.periods.bases
        need = [b - a for a, b in zip(bases[self.step], bases[self.step + by.steps], strict=True)]
        more = [beats * (most < total) for beats, most, total in zip(need, self.allowed, totals, strict=True)]
        stripes = sum(step.first for step in self.flow.steps[self.step + 1 : self.step + by.steps + 1])
        self.step += by.steps
        self.looked = self.step
        self.stripe += stripes
        self.at, self.lands = self.at + by.cycles, self.lands + by.cycles
        self.drain_at += by.cycles
        self.read = [read + beats for read, beats in zip(self.read, by.read, strict=True)]
        self.allowed = [most + beats for most, beats in zip(self.allowed, more, strict=True)]
        self.grants = [(at + by.cycles, who, beats + more[who]) for at, who, beats in self.grants]
        self.drained = [at + by.cycles for at in [0.0] * stripes + self.drained]
        self.sent = [at + by.cycles for at in self.sent[-2:]]
        self.waiting = deque((ready + by.cycles, index + by.steps) for ready, index in self.waiting)
        if self.draining is not None:
            self.draining += by.steps
        for pair, cycles in by.ends.items():
            self.ends[pair] = self.ends.get(pair, 0.0) + cycles


def _shares(wishes: Sequence[Sequence[float]], bus: Memory) -> dict[tuple[int, int], float]:
    """Return the beats per cycle of each (core, direction) with pending accesses.

    All share DRAM's beats equally, and both directions of a core share the core's rate; a share that one
    cannot use is given to the others.
    """
    left, of_core = 1 / bus.beat, [1 / bus.core] * len(wishes)
    ways = [sum(1 for most in both if most) for both in wishes]
    wanted = sorted(
        (min(most, 1 / bus.core / ways[number]), most, number, way)
        for number, both in enumerate(wishes)
        for way, most in enumerate(both)
        if most
    )
    rates: dict[tuple[int, int], float] = {}
    for place, (_, most, number, way) in enumerate(wanted):
        rate = min(most, left / (len(wanted) - place), of_core[number] / ways[number])
        rates[number, way] = rate
        left -= rate
        of_core[number] -= rate
        ways[number] -= 1
    return rates


def spans(parts: Sequence[Sequence[Flow]], bus: Memory, c: Coefficients) -> list[list[Span]]:
    """Simulate all cores; return each task of each core.

    Raises
    ------
    RuntimeError
        If a flow waits for beats that it never requests, or the time does not advance.
    """
    cores = [_Core(flows, bus, c) for flows in parts]
    now = 0.0
    still = 0
    while True:
        for core in cores:
            while core.move(now):
                pass
        if len(cores) == 1:
            now += cores[0].skip(now)
        wishes = [core.wishes() for core in cores]
        rates = _shares([both for _, *both in wishes], bus)
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
            raise RuntimeError("a core waits for beats that no client requests")
        still = 0 if by > NONE else still + 1
        if still > STILL:
            raise RuntimeError(f"{still} events at cycle {now:g}: the time does not advance")
        now += by
        for core, paces, write in moves:
            core.go(now - by, by, paces, write)
