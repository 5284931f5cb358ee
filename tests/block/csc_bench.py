"""Partners of a SequenceController: CBUF with its loaders, and a cell with its drain."""

from __future__ import annotations

import random

import numpy as np

from rkcosim.spec.config import SMALL, NpuConfig
from rkcosim.spec.regs.options import options_mask
from tests.block.cna_bench import configure
from tests.block.conv_bench import KINDS, Conv, unpack

IDLE = {"f_valid": 0, "w_valid": 0, "precision": 0}
"""A cycle without work for the cell."""

LIMIT = 30000
"""Cycles after which a task counts as hung."""

LOADED_FIRST = "i5_rows_and_weights_first"
"""The option with which a convolution starts when its rows and weights are in CBUF."""


class FakeCbuf:
    """CBUF that is filled at random while the controller reads; entries not filled yet hold other bytes.

    Parameters
    ----------
    slow : float
        Probability that a loader pauses: before a row, and before 16 bytes of weights.
    row_wait : pair of int
        Cycles between two rows, drawn from the range. The default, (0, 0), leaves the rows to `slow`: then
        several may come in one cycle.
    """

    def __init__(
        self,
        conv: Conv,
        rng: random.Random,
        config: NpuConfig,
        *,
        slow: float = 0.0,
        row_wait: tuple[int, int] = (0, 0),
    ) -> None:
        self.conv, self.rng, self.slow, self.row_wait = conv, rng, slow, row_wait
        self.next_row = rng.randint(*row_wait)  # cycles until the next row comes
        self.entries = np.full((config.cbuf_entries, 64), 0x55, np.int8)
        self.weights = np.frombuffer(conv.weight_stream(), np.int8)
        self.ring_first = (12 - conv.weight_banks) * config.bank_entries
        self.ring_bytes = conv.weight_banks * config.bank_entries * 64
        self.rows = 0
        self.loaded = 0
        self.shown = [bytes(64), bytes(64)]  # contents of the two feature ports
        self._weights = None

    def fill(self, released: int) -> None:
        """Do the loaders' work of one cycle, never exceeding `released` by more than the ring."""
        while self.rows < self.conv.height and self._row_comes():
            self.conv.store_row(self.entries, self.rows)
            self.rows += 1
        room = min(released + self.ring_bytes, len(self.weights)) - self.loaded
        ring = self.entries[self.ring_first :].reshape(-1)
        for _ in range(0, room if not self.slow else min(room, 32), 16):
            if self.rng.random() >= self.slow:
                at = self.loaded % self.ring_bytes
                ring[at : at + 16] = self.weights[self.loaded : self.loaded + 16]
                self.loaded += 16

    def _row_comes(self) -> bool:
        if self.row_wait == (0, 0):
            return self.rng.random() >= self.slow
        if self.next_row:
            self.next_row -= 1
            return False
        self.next_row = self.rng.randint(*self.row_wait)
        return True

    def read(self, ctx, dut) -> None:
        """Sample the read ports in this cycle."""
        self._weights = None
        features, weights = (dut.reads.feature0, dut.reads.feature1), dut.reads.weights
        for n, port in enumerate(features):
            if ctx.get(port.en):
                self.shown[n] = self.entries[ctx.get(port.entry)].tobytes()
        if ctx.get(weights.en):
            first, second, column = (ctx.get(v) for v in (weights.entry0, weights.entry1, weights.column))
            assert first % 2 != second % 2
            both = self.entries[first].tobytes() + self.entries[second].tobytes()
            self._weights = both[16 * column : 16 * column + 64]

    def answer(self, ctx, dut) -> None:
        """Drive the data that were read in the previous cycle."""
        for shown, port in zip(self.shown, (dut.reads.feature0, dut.reads.feature1), strict=True):
            ctx.set(port.data, int.from_bytes(shown, "little"))
        if self._weights is not None:
            ctx.set(dut.reads.weights.data, int.from_bytes(self._weights, "little"))


class BitCell:
    """An array cell that treats elements of every type as signed integers of their width.

    Attributes
    ----------
    acc, sum : int64 arrays (2 banks, 16 slots, 64 lanes), wrapping at 64 bits.
    """

    def __init__(self) -> None:
        self.acc = np.zeros((2, 16, 64), np.int64)
        self.sum = np.zeros((2, 16, 64), np.int64)
        self._shadow = bytearray(1024)
        self._active = bytes(1024)

    def step(self, i) -> None:
        """One clock edge with the `CellIn` of this cycle."""
        kind = KINDS[i["precision"]]
        row = 16 * kind.tile
        if i["f_valid"]:
            if i["f_swap"]:
                self._active = bytes(self._shadow)
            self._accumulate(i, kind, row)
        if i["w_valid"]:
            chunk = i["w_data"].to_bytes(64, "little")
            if i["depthwise"]:
                assert i["w_index"] < (2 if kind.wide else 1)
                self._shadow[64 * i["w_index"] : 64 * i["w_index"] + 64] = chunk
                return
            given = 16 << i["w_stride"]
            assert given <= row
            for n in range(64 // given):
                at = row * (i["w_index"] * 64 // given + n)
                self._shadow[at : at + row] = chunk[given * n : given * n + given].ljust(row, b"\0")

    def _accumulate(self, i, kind, row: int) -> None:
        data = i["f_data"].to_bytes(128, "little")
        where = i["f_bank"], i["f_slot"]
        if i["depthwise"]:
            features = unpack(data[: 64 * kind.bits // 8], kind.bits)
            acc = features * unpack(self._active[: 64 * kind.bits // 8], kind.bits)
            total = features
        else:
            features = unpack(data[:row], kind.bits)
            weights = unpack(self._active, kind.bits).reshape(kind.kernels, -1)
            acc, total = (weights * features).sum(axis=1), np.full(kind.kernels, features.sum())
        lanes = slice(0, len(acc))
        if i["f_first"]:
            self.acc[where][lanes] = 0
            self.sum[where][lanes] = 0
        self.acc[where][lanes] += acc
        self.sum[where][lanes] += total


class FakeCore:
    """CORE and cell: accepts stripes with random delay, compares them, and frees their banks later."""

    def __init__(self, conv: Conv, rng: random.Random, *, drain: tuple[int, int] = (1, 1)) -> None:
        self.rng, self.drain = rng, drain
        self.cell = BitCell()
        self.conv = conv
        self.acc, self.sum, self.real = conv.expected()
        self.order = [(g, s) for g in range(conv.groups) for s in range(conv.stripes)]
        self.pixels = conv.pixels
        self.taken = 0
        self.busy: list[int] = [0, 0]
        self.queue: list[int] = []  # banks that wait for their turn to drain
        self.last_use: dict[tuple[int, int], int] = {}
        self.now = 0

    def accept(self) -> bool:
        return not self.queue or self.rng.random() < 0.5

    def bank_free(self) -> int:
        return sum((not self.busy[b]) << b for b in range(2))

    def step(self, i) -> None:
        """Do a clock edge with this `CellIn`, after `take`."""
        self.now += 1
        if i["f_valid"] or i["w_valid"]:
            assert (i["precision"], i["depthwise"]) == (self.conv.precision, self.conv.depthwise)
        if i["f_valid"]:
            assert not self.busy[i["f_bank"]], "written while it is drained"
            key = (i["f_bank"], i["f_slot"])
            assert self.now - self.last_use.get(key, -99) >= 16
            self.last_use[key] = self.now
        self.cell.step(i)
        if self.queue:
            bank = self.queue[0]
            self.busy[bank] -= 1
            if not self.busy[bank]:
                self.queue.pop(0)

    def take(self, stripe) -> None:
        group, index = self.order[self.taken]
        first = 16 * index
        count = min(16, self.pixels - first)
        assert stripe["pixels_m1"] == count - 1
        assert stripe["kernels"] == self.real[group]
        assert stripe["last"] == (self.taken == len(self.order) - 1)
        lanes, bank = self.real[group], stripe["bank"]
        assert bank == self.taken % 2
        got = self.cell.acc[bank, :count, :lanes]
        np.testing.assert_array_equal(got, self.acc[group, first : first + count, :lanes])
        np.testing.assert_array_equal(
            self.cell.sum[bank, :count, :lanes], self.sum[group, first : first + count, :lanes]
        )
        self.taken += 1
        self.busy[bank] = self.rng.randint(*self.drain)
        self.queue.append(bank)


class RowOrder:
    """What the slots of a task may read, checked in every cycle against the rows that have arrived.

    Parameters
    ----------
    conv : Conv
    ring_bytes : int or None
        Size of the weight ring if the first slot waits for all rows and all weights that fit the ring.

    Members
    -------
    at_edge : number of slots that were issued in the first cycle in which their row was in CBUF.
    waited : number of cycles in which a slot waited for its row.
    """

    def __init__(self, conv: Conv, ring_bytes: int | None = None) -> None:
        self.rows = conv.rows_in_order()
        self.first = max(1, min(conv.grains, conv.height))
        self.first_weights = 0
        if ring_bytes is not None:
            self.first, self.first_weights = conv.height, min(len(conv.weight_stream()), ring_bytes)
        self.issued = self.at_edge = self.waited = 0
        self._before = 0  # rows in CBUF one cycle ago
        self._began = False  # the walk has seen what must arrive before its first slot

    def check(self, now: dict[str, int], rows: int, loaded: int) -> None:
        """Compare the status of this cycle; `rows` and `loaded` are the values of these inputs."""
        row = self.rows[self.issued] if self.issued < len(self.rows) else None
        missing = row is not None and row >= rows
        if now["slot_valid"]:
            text = f"slot {self.issued} with {rows} of the first {self.first} rows in CBUF"
            assert self._began, f"{text} and {loaded} of the first {self.first_weights} bytes of weights"
            assert not missing, f"slot {self.issued} reads row {row} with {rows} rows in CBUF"
            assert now["slot_real"] or row is None, f"slot {self.issued} is empty, but reads row {row}"
            self.at_edge += row is not None and row >= self._before
            self.issued += 1
        if now["stall_feature"]:
            assert missing or not self._began, f"slot {self.issued} waits for row {row} of {rows} in CBUF"
            self.waited += missing
        weights_missing = loaded < self.first_weights
        if not self._began and rows >= self.first and weights_missing:
            assert not now["stall_feature"], "the first slot waits only for weights"
        self._before = rows
        self._began |= now["stall_feature"] and rows >= self.first and not weights_missing


async def run_task(
    ctx,
    dut,
    conv: Conv,
    rng: random.Random,
    *,
    slow=0.0,
    row_wait=(0, 0),
    drain=(1, 1),
    config=SMALL,
    options=(),
) -> dict:
    """Run one task on a SequenceController and compare every stripe; returns counts of its cycles."""
    cbuf, core = FakeCbuf(conv, rng, config, slow=slow, row_wait=row_wait), FakeCore(conv, rng, drain=drain)
    order = RowOrder(conv, cbuf.ring_bytes if LOADED_FIRST in options else None)
    levels = ("slot_valid", "slot_real", "stall_feature", "stall_weight", "stall_acc")
    seen = dict.fromkeys(levels, 0) | {"first": 0, "last": 0, "diagnostics": []}
    slots = 16 * conv.tiles * conv.stripes * conv.groups
    configure(ctx, dut.cfg, conv.registers())
    ctx.set(dut.options, options_mask(options))
    ctx.set(dut.start, 1)
    done = began = False
    for cycle in range(LIMIT):
        ctx.set(dut.core.bank_free, core.bank_free())
        ctx.set(dut.core.stripe.ready, core.accept())
        if cycle:
            assert ctx.get(dut.released) <= cbuf.loaded
            cbuf.fill(ctx.get(dut.released))
            ctx.set(dut.rows_ready, cbuf.rows)
            ctx.set(dut.loaded, cbuf.loaded)
        now = {name: ctx.get(getattr(dut.status, name)) for name in levels}
        if cycle:
            order.check(now, cbuf.rows, cbuf.loaded)
        walking = sum(now[name] for name in ("stall_feature", "stall_weight", "stall_acc", "slot_valid"))
        began |= walking > 0
        whole = seen["slot_valid"] == slots
        assert walking == (1 if began and not whole else 0), "what a cycle is spent on"
        assert not (walking and ctx.get(dut.activity.CORE)), "waits for CORE while slots are issued"
        for name in levels:
            seen[name] += now[name]
        if now["slot_valid"]:
            seen["first"] = seen["first"] or cycle
            seen["last"] = cycle
        if ctx.get(dut.diag.valid):
            payload = ctx.get(dut.diag.payload)
            seen["diagnostics"].append((payload["code"], payload["register"], payload["value"]))
        if ctx.get(dut.core.stripe.valid) and ctx.get(dut.core.stripe.ready):
            core.take(ctx.get(dut.core.stripe.payload))
        cell = ctx.get(dut.core.cell)
        if cell["f_valid"] or cell["w_valid"]:
            core.step(cell)
        else:
            core.step(IDLE)
        cbuf.read(ctx, dut)
        done = ctx.get(dut.done)
        assert not (done and ctx.get(dut.activity.IDLE)), "it ends in the last cycle in which it is at work"
        await ctx.tick()
        cbuf.answer(ctx, dut)
        ctx.set(dut.start, 0)
        if done:
            break
    seen["done"], seen["at_edge"], seen["row_waits"] = bool(done), order.at_edge, order.waited
    if done:
        assert not ctx.get(dut.done), "the end is a pulse"
        assert core.taken == len(core.order), f"done after {core.taken} of {len(core.order)} stripes"
        assert ctx.get(dut.released) == len(cbuf.weights)
    return seen
