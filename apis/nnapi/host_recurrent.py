"""Recurrent networks on the host: RNN, LSTM and SVDF with their forms for sequences and both directions."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rkcosim.apis.nnapi.host_elements import sigmoid
from rkcosim.apis.nnapi.host_products import product
from rkcosim.apis.nnapi.values import Array, OperationCall, Reals, host

EPSILON = 1e-8
"""Added to the variance in the layer normalisation of an LSTM."""


def activated(call: OperationCall, values: Reals, act: int) -> Reals:
    """Return the numbers after an activation: a fused one, tanh (4) or the logistic function (6)."""
    if act == 4:
        return np.tanh(values)
    if act == 6:
        return sigmoid(values)
    return call.clamped(values, act)


@host("SVDF")
def _svdf(call: OperationCall) -> list[Array]:
    """Move the memory of each filter by one, then weigh it over time and add `rank` filters for each unit."""
    x, feature, time, state = (call.real(index) for index in (0, 1, 2, 4))
    rank, filters, size = call.integer(5), *time.shape
    if rank < 1 or filters % rank or state.shape[1] != filters * size or feature.shape[0] != filters:
        raise call.wrong(f"rank {rank}, {filters} filters, state {state.shape}")
    memory = state.reshape(-1, filters, size).copy()
    memory[:, :, -1] = product(x, feature)
    units = (memory * time).sum(axis=2).reshape(len(x), filters // rank, rank).sum(axis=2)
    bias = call.maybe(3)
    units = units + bias if bias is not None else units
    moved = np.concatenate([memory[:, :, 1:], np.zeros((len(x), filters, 1))], axis=2)
    return [call.put(moved.reshape(state.shape)), call.put(activated(call, units, call.integer(6)), 1)]


@dataclass(frozen=True)
class Simple:
    """Weights of a fully connected recurrent cell; `aux` is multiplied with a second input."""

    weights: Reals
    recurrent: Reals
    bias: Reals
    act: int
    aux: Reals | None = None

    def step(self, call: OperationCall, x: Reals, state: Reals, more: Reals | None) -> Reals:
        """Return the next state."""
        sums = product(x, self.weights) + product(state, self.recurrent) + self.bias
        if more is not None:
            sums = sums + product(more, self.aux)
        return activated(call, sums, self.act)

    def run(self, call: OperationCall, xs: Reals, state: Reals, more: Reals | None) -> tuple[Reals, Reals]:
        """Return the states of all steps (time, batch, units), and the last one."""
        states = []
        for at in range(len(xs)):
            state = self.step(call, xs[at], state, more[at] if more is not None else None)
            states.append(state)
        return np.stack(states), state


@host("RNN")
def _rnn(call: OperationCall) -> list[Array]:
    cell = Simple(call.real(1), call.real(2), call.real(3), call.integer(5))
    state = cell.step(call, call.real(0), call.real(4), None)
    return [call.put(state), call.put(state, 1)]


@host("UNIDIRECTIONAL_SEQUENCE_RNN")
def _sequence_rnn(call: OperationCall) -> list[Array]:
    first = call.integer(6) == 1
    cell = Simple(call.real(1), call.real(2), call.real(3), call.integer(5))
    made, state = cell.run(call, _time_first(call.real(0), first), call.real(4), None)
    return [
        call.put(v, n)
        for n, v in zip(range(len(call.outputs)), (_time_first(made, first), state), strict=False)
    ]


def _time_first(values: Reals, first: bool) -> Reals:
    return values if first else values.swapaxes(0, 1)


def _both(call: OperationCall, forward: Reals, backward: Reals, merged: bool, first: bool) -> list[Array]:
    """Return the results of both directions in the given layout, as one tensor or as two."""
    sides = [_time_first(forward, first), _time_first(backward[::-1], first)]
    if merged:
        return [call.put(np.concatenate(sides, axis=-1))]
    return [call.put(values, index) for index, values in enumerate(sides)]


def _linked(x: Reals, aux: Reals | None, weighted: bool) -> tuple[Reals, Reals | None]:
    """Return the input of the backward network and the second input of both.

    Without weights for it, the auxiliary input replaces the input of the backward network.
    """
    if aux is None:
        return x, None
    return (x, aux) if weighted else (aux, None)


@host("BIDIRECTIONAL_SEQUENCE_RNN")
def _both_rnn(call: OperationCall) -> list[Array]:
    first, merged, act = call.flag(13), call.flag(14), call.integer(12)
    x, aux = _time_first(call.real(0), first), call.maybe(9)
    aux = _time_first(aux, first) if aux is not None else None
    weighted = call.maybe(10) is not None
    back, more = _linked(x, aux, weighted)
    sides = []
    for at, values, extra in ((1, x, 10), (5, back, 11)):
        weights, recurrent, bias = (call.real(at + n) for n in range(3))
        cell = Simple(weights, recurrent, bias, act, call.maybe(extra))
        backward = at == 5
        given = values[::-1] if backward else values
        linked = more[::-1] if more is not None and backward else more
        sides.append(cell.run(call, given, call.real(at + 3), linked))
    made = _both(call, sides[0][0], sides[1][0], merged, first)
    rest = range(len(made), len(call.outputs))
    return made + [call.put(side[1], index) for index, side in zip(rest, sides, strict=False)]


@dataclass(frozen=True)
class Cell:
    """An LSTM cell; lists have input, forget, cell and output gate, None where a gate has no such weights.

    Members
    -------
    weights, recurrent, aux : (cells, depth) each.
    peephole : (cells,) each.
    bias, norm : (cells,) each.
    projection, projection_bias : (units, cells) and (units,).
    act : code of the activation of the cell.
    clip, projection_clip : limits of the cell's state and of the projection; 0 for none.
    """

    weights: list[Reals | None]
    recurrent: list[Reals | None]
    peephole: list[Reals | None]
    bias: list[Reals | None]
    projection: Reals | None
    projection_bias: Reals | None
    act: int
    clip: float
    projection_clip: float
    norm: list[Reals | None]
    aux: list[Reals | None]

    def gate(self, number: int, x: Reals, state: Reals, cell: Reals, more: Reals | None) -> Reals:
        """Return the sums of a gate before its activation."""
        sums = product(x, self.weights[number]) + product(state, self.recurrent[number])
        if more is not None and self.aux[number] is not None:
            sums = sums + product(more, self.aux[number])
        hole, norm, bias = self.peephole[number], self.norm[number], self.bias[number]
        if hole is not None:
            sums = sums + hole * cell
        if norm is not None:
            mean = sums.mean(axis=-1, keepdims=True)
            spread = np.sqrt(((sums - mean) ** 2).mean(axis=-1, keepdims=True) + EPSILON)
            sums = (sums - mean) / spread * norm
        return sums + bias if bias is not None else sums

    def step(
        self, call: OperationCall, x: Reals, state: Reals, cell: Reals, more: Reals | None = None
    ) -> tuple[Reals, Reals, list[Reals]]:
        """Return the next output state and cell state, and the sums of the gates."""
        forget = sigmoid(self.gate(1, x, state, cell, more))
        coupled = self.weights[0] is None
        enter = 1.0 - forget if coupled else sigmoid(self.gate(0, x, state, cell, more))
        new = activated(call, self.gate(2, x, state, cell, more), self.act)
        cell = forget * cell + enter * new
        if self.clip > 0:
            cell = np.clip(cell, -self.clip, self.clip)
        out = sigmoid(self.gate(3, x, state, cell, more))
        gates = [*([] if coupled else [enter]), new, forget, out]
        state = out * activated(call, cell, self.act)
        if self.projection is not None:
            state = product(state, self.projection)
            state = state + self.projection_bias if self.projection_bias is not None else state
            if self.projection_clip > 0:
                state = np.clip(state, -self.projection_clip, self.projection_clip)
        return state, cell, gates

    def run(
        self, call: OperationCall, xs: Reals, state: Reals, cell: Reals, more: Reals | None
    ) -> tuple[Reals, Reals, Reals]:
        """Return the outputs of all steps (time, batch, units), the last output state and cell state."""
        made = []
        for at in range(len(xs)):
            state, cell, _ = self.step(call, xs[at], state, cell, more[at] if more is not None else None)
            made.append(state)
        return np.stack(made), state, cell


def _cell(call: OperationCall, first: int, act: int, norm: int, aux: int = 0) -> Cell:
    """Return the cell whose weights begin at input `first`, activation at `act`, norms at `norm`."""

    def four(at: int) -> list[Reals | None]:
        return [call.maybe(at + n) for n in range(4)]

    holes = [call.maybe(first + 8), call.maybe(first + 9), None, call.maybe(first + 10)]
    return Cell(
        four(first),
        four(first + 4),
        holes,
        four(first + 11),
        call.maybe(first + 15),
        call.maybe(first + 16),
        call.integer(act),
        call.number(act + 1),
        call.number(act + 2),
        four(norm),
        four(aux) if aux else [None] * 4,
    )


@host("LSTM")
def _lstm(call: OperationCall) -> list[Array]:
    cell = _cell(call, 1, 20, 23)
    state, memory, gates = cell.step(call, call.real(0), call.real(18), call.real(19))
    scratch = np.concatenate(gates, axis=-1)
    return [call.put(values, index) for index, values in enumerate((scratch, state, memory, state))]


@host("UNIDIRECTIONAL_SEQUENCE_LSTM")
def _sequence_lstm(call: OperationCall) -> list[Array]:
    first, cell = call.flag(23), _cell(call, 1, 20, 24)
    xs = _time_first(call.real(0), first)
    made, state, memory = cell.run(call, xs, call.real(18), call.real(19), None)
    results = (_time_first(made, first), state, memory)
    return [call.put(values, index) for index, values in zip(range(len(call.outputs)), results, strict=False)]


@host("BIDIRECTIONAL_SEQUENCE_LSTM")
def _both_lstm(call: OperationCall) -> list[Array]:
    merged, first = call.flag(51), call.flag(52)
    x, aux = _time_first(call.real(0), first), call.maybe(39)
    aux = _time_first(aux, first) if aux is not None else None
    forward, backward = _cell(call, 1, 48, 53, 40), _cell(call, 18, 48, 57, 44)
    back, more = _linked(x, aux, call.maybe(41) is not None)
    if more is None:
        forward, backward = (replace(cell, aux=[None] * 4) for cell in (forward, backward))
    ahead = forward.run(call, x, call.real(35), call.real(36), more)
    turned = more[::-1] if more is not None else None
    behind = backward.run(call, back[::-1], call.real(37), call.real(38), turned)
    made = _both(call, ahead[0], behind[0], merged, first)
    rest = range(len(made), len(call.outputs))
    states = (ahead[1], ahead[2], behind[1], behind[2])
    return made + [call.put(values, index) for index, values in zip(rest, states, strict=False)]
