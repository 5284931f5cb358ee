"""Common parts of the CNA load tests: a memory at a read port, a CBUF image, and configuration words."""

from __future__ import annotations

import random
from collections import deque
from fractions import Fraction

import numpy as np

from rkcosim.spec.config import ENTRY_BYTES, SMALL, NpuConfig

_TABLE = np.random.default_rng(11).integers(0, 256, 1 << 16, dtype=np.uint8)


def memory_bytes(addr: np.ndarray | int, count: int | None = None) -> np.ndarray:
    """Return bytes of an imaginary 4 GiB memory: at each given address, or `count` bytes from one address."""
    where = np.asarray(addr, dtype=np.uint64)
    if count is not None:
        where = where + np.arange(count, dtype=np.uint64)
    where = where % np.uint64(1 << 32)
    return _TABLE[((where ^ (where >> np.uint64(16)) * np.uint64(40503)) & np.uint64(0xFFFF)).astype(int)]


def configure(ctx, cfg, values: dict[str, dict[str, int]]) -> None:
    """Set the whole configuration port; registers and fields that are not given are 0."""
    for name in cfg.signature.members:
        ctx.set(getattr(cfg, name), values.get(name, {}))


class Memory:
    """The memory of a `ReadPort`, called once per cycle, with random waits and protocol checks.

    `read(address, count)` gives the bytes, those of `memory_bytes` by default.
    """

    def __init__(
        self, rng: random.Random, latency: tuple[int, int] = (3, 3), stall: float = 0.0, read=memory_bytes
    ) -> None:
        self.rng = rng
        self.read = read
        self.latency = latency
        self.stall = stall
        self.cycle = 0
        self.waiting: deque[tuple[int, int, bool]] = deque()  # not before, address, last
        self.requests: list[tuple[int, int]] = []
        self.held = None

    def drive(self, ctx, port, level=None, most: int = SMALL.read_fifo_beats) -> None:
        """Set the inputs of the port for this cycle.

        `level` is the loader's number of beats that it has reserved room for: at least those that it requests
        and that are under way, and at most `most`.
        """
        if level is not None:
            asks = ctx.get(port.req.payload).beats_m1 + 1 if ctx.get(port.req.valid) else 0
            assert len(self.waiting) + asks <= ctx.get(level) <= most
        ctx.set(port.req.ready, self.rng.random() >= self.stall)
        send = bool(self.waiting) and self.waiting[0][0] <= self.cycle and self.rng.random() >= self.stall
        ctx.set(port.rsp.valid, send)
        if send:
            _, addr, last = self.waiting.popleft()
            data = int.from_bytes(self.read(addr, 32).tobytes(), "little")
            ctx.set(port.rsp.payload, {"data": data, "last": last})

    def see(self, valid: int, ready: int, payload) -> None:
        """Sample the request stream at the end of the cycle."""
        asked = (payload.addr, payload.beats_m1) if valid else None
        if self.held is not None:
            assert asked == self.held, f"request {self.held} changed to {asked} before it was taken"
        self.held = asked if valid and not ready else None
        if valid and ready:
            addr, beats = payload.addr, payload.beats_m1 + 1
            assert addr % 32 == 0, f"request at {addr:#x} is not aligned"
            self.requests.append((addr, beats))
            at = self.cycle + self.rng.randint(*self.latency)
            self.waiting.extend((at, addr + 32 * n, n == beats - 1) for n in range(beats))
        self.cycle += 1


class Image:
    """The bytes of CBUF after a loader's fills."""

    def __init__(self, cfg: NpuConfig) -> None:
        self.entries = cfg.cbuf_entries
        self.bytes = np.zeros(cfg.cbuf_entries * ENTRY_BYTES, dtype=np.uint8)
        self.written = np.zeros(cfg.cbuf_entries * 4, dtype=int)
        self.held = None
        self.atoms = 0

    def see(self, valid: int, ready: int, payload) -> None:
        """Sample the fill stream at the end of the cycle."""
        fill = None
        if valid:
            fill = (
                payload.data,
                payload.entry,
                payload.column,
                payload.two,
                payload.entry2 if payload.two else None,
                payload.column2 if payload.two else None,
            )
        if self.held is not None:
            assert fill == self.held, "a fill changed before it was taken"
        self.held = fill if valid and not ready else None
        if not (valid and ready):
            return
        data = np.frombuffer(payload.data.to_bytes(32, "little"), dtype=np.uint8)
        places = [(payload.entry, payload.column)]
        if payload.two:
            places.append((payload.entry2, payload.column2))
            assert payload.entry2 in (payload.entry, (payload.entry + 1) % self.entries)
            assert places[0] != places[1]
        for n, (entry, column) in enumerate(places):
            assert entry < self.entries, f"entry {entry} is outside CBUF"
            atom = entry * 4 + column
            self.bytes[16 * atom : 16 * atom + 16] = data[16 * n : 16 * n + 16]
            self.written[atom] += 1
            self.atoms += 1


def converted(raw: int, channel: int, cvt: dict, bits: int) -> int:
    """Return the bits in CBUF for an input element of a channel, or element of an atom [HW 4.3]."""
    con0 = cvt["CVT_CON0"]
    if con0.get("CVT_BYPASS") or not cvt.get("CVT_CON5", {}).get("PER_CHANNEL_CVT_EN", 0) >> channel & 1:
        return raw
    half, channel = 1 << (bits - 1), channel % 4
    x = raw - 2 * half if con0.get("DATA_SIGN") and raw >= half else raw
    factors = cvt[f"CVT_CON{channel + 1}"]
    scale, offset = factors[f"CVT_SCALE{channel}"], factors[f"CVT_OFFSET{channel}"]
    t = (x + offset) * scale if con0.get("CVT_TYPE") else x * scale
    exact = Fraction(t, 1 << con0.get(f"CVT_TRUNCATE_{channel}", 0))
    rounded = (exact + Fraction(1, 2)).__floor__() if con0.get("ROUND_TYPE") else round(exact)
    behind = 0 if con0.get("CVT_TYPE") else offset
    return max(-half, min(half - 1, rounded + behind)) % (2 * half)


def random_cvt(rng: random.Random) -> dict:
    """Draw the registers of the input converter."""
    kind = rng.choice(["bypass", "mesa", "random", "random", "mask"])
    con0 = {"DATA_SIGN": rng.randint(0, 1), "ROUND_TYPE": rng.randint(0, 1), "CVT_TYPE": rng.randint(0, 1)}
    cvt = {"CVT_CON0": con0, "CVT_CON5": {"PER_CHANNEL_CVT_EN": 0xFFFF}}
    con0["CVT_BYPASS"] = int(kind == "bypass")
    if kind == "mask":
        cvt["CVT_CON5"]["PER_CHANNEL_CVT_EN"] = rng.randrange(1 << 16)
    for c in range(4):
        scale, offset, shift = 16384, -128, 14
        if kind == "mesa":
            con0 |= {"DATA_SIGN": 0, "CVT_TYPE": 1}
        else:
            scale = rng.choice([rng.randint(-32768, 32767), rng.randint(-5, 5), 1])
            offset = rng.choice([rng.randint(-32768, 32767), rng.randint(-128, 128)])
            shift = rng.choice([rng.randrange(64), rng.randrange(20), rng.randrange(4)])
        con0[f"CVT_TRUNCATE_{c}"] = shift
        cvt[f"CVT_CON{c + 1}"] = {f"CVT_SCALE{c}": scale, f"CVT_OFFSET{c}": offset}
    return cvt
