"""Stream helpers for Amaranth test benches: put and get with random stalls."""

from __future__ import annotations

import random


async def put(ctx, stream, payload, rng: random.Random | None = None, stall: float = 0.0) -> None:
    """Offer `payload` on `stream` until it is accepted, after a random wait."""
    while rng is not None and rng.random() < stall:
        await ctx.tick()
    ctx.set(stream.payload, payload)
    ctx.set(stream.valid, 1)
    await ctx.tick().until(stream.ready)
    ctx.set(stream.valid, 0)


async def get(ctx, stream, rng: random.Random | None = None, stall: float = 0.0):
    """Take one payload from `stream`, after a random wait."""
    while rng is not None and rng.random() < stall:
        await ctx.tick()
    ctx.set(stream.ready, 1)
    (value,) = await ctx.tick().sample(stream.payload).until(stream.valid)
    ctx.set(stream.ready, 0)
    return value
