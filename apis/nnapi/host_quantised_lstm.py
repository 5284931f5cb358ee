"""QUANTIZED_LSTM and QUANTIZED_16BIT_LSTM on the host, in the integers of their definitions.

Gates have 3 bits before the point and 12 after it, results of sigmoid and tanh have 15 after it, cell states
have the scale of their operand.
"""

from __future__ import annotations

import numpy as np

from rkcosim.apis.nnapi import fixed_point as fp
from rkcosim.apis.nnapi.fixed_point import Raw
from rkcosim.apis.nnapi.values import Array, OperationCall, Reals, host
from rkcosim.hostops.quantise import multiplied

GATE = 12
"""Fraction bits of a gate."""


def coded(values: Array, factor: float) -> Raw:
    """Return integers times a number, which is that of a float32, saturated to 16 bits."""
    return fp.saturated(multiplied(values, float(np.float32(factor))))


def _log2(call: OperationCall, scale: float) -> int:
    power = round(float(np.log2(scale)))
    if abs(scale - 2.0**power) > 1e-6 * scale:
        raise call.wrong(f"the scale {scale} of the cell state is no power of two")
    return power


@host("QUANTIZED_16BIT_LSTM")
def _lstm16(call: OperationCall) -> list[Array]:
    """Compute a step on bytes, with gates and cell state of 16 bits (4 bits before the point).

    In AOSP's implementation and its examples, the vector (input, previous output) is multiplied with the
    matrix (recurrent weights, input weights); that is what is computed here.
    """
    both = np.concatenate([call.value(0).offsets, call.value(14).offsets], axis=1)
    if _log2(call, call.value(13).operand.scale) != -11:
        raise call.wrong("the scale of the cell state is not 2**-11")
    unit = call.value(0).operand.scale * call.value(1).operand.scale
    gates = []
    for number in range(4):
        weights = np.concatenate([call.value(5 + number).offsets, call.value(1 + number).offsets], axis=1)
        gates.append(coded(both @ weights.T + call.array(9 + number), unit * 2.0**GATE))
    enter, forget, new, out = gates
    added = fp.times(fp.sigmoid(enter), fp.tanh(new))
    kept = fp.times(fp.sigmoid(forget), call.array(13).astype(np.int64))
    cell = fp.saturated(fp.rounded_shift(added, 4) + kept)
    state = fp.times(fp.sigmoid(out), fp.tanh(fp.saturated(cell << 1)))
    made = 128 + np.clip(fp.rounded_shift(state, 8), -128, 127)
    return [cell.astype(np.int16), made.astype(np.uint8)]


def _normalised(codes: Raw, norm: Array, bias: Array, scale: float) -> Raw:
    """Return a gate after its layer normalisation.

    The normalised numbers have 10 fraction bits; their product with the weights is rounded to its scale.
    """
    mean = np.trunc(codes.sum(axis=-1, keepdims=True) * 1024 / codes.shape[-1])
    squares = (codes * codes).sum(axis=-1, keepdims=True)
    variance = np.floor((np.floor(squares * 2.0**20 / codes.shape[-1]) - mean * mean) / 2.0**20)
    shifted = fp.over_root(codes * 1024 - mean, variance.astype(np.int64))
    weighed = fp.rounded_shift(shifted * norm + bias, 10)
    return coded(weighed, scale * 2.0**GATE)


class _Step:
    """One step of QUANTIZED_LSTM; gates are numbered input, forget, cell, output."""

    def __init__(self, call: OperationCall) -> None:
        self.call = call
        self.x, self.state = call.value(0), call.value(18)

    def _product(self, place: int, values: Reals, scale: float, unit: float) -> Raw:
        weights = self.call.value(place)
        return coded(values @ weights.offsets.T, weights.operand.scale * scale / unit)

    def gate(self, number: int, peephole: int | None, memory: Raw) -> Raw:
        """Return the sums of a gate, or what its normalisation makes of them."""
        call, unit = self.call, self.call.number(26 + number)
        sums = self._product(1 + number, self.x.offsets, self.x.operand.scale, unit)
        more = self._product(5 + number, self.state.offsets, self.state.operand.scale, unit)
        sums = fp.saturated(sums + more)
        if peephole is not None and call.has(9 + peephole) and call.array(9 + peephole).size:
            hole = call.value(9 + peephole)
            scale = hole.operand.scale * call.value(19).operand.scale / unit
            sums = fp.saturated(sums + coded(hole.array.astype(np.int64) * memory, scale))
        if not call.has(20 + number) or not call.array(20 + number).size:
            return sums  # the definition takes the sums as gates
        norm = call.value(20 + number)
        return _normalised(sums, norm.array.astype(np.int64), call.array(12 + number), norm.operand.scale)

    def hidden(self, out: Raw, cell: Raw, power: int) -> Raw:
        """Return the codes of the hidden state."""
        products = fp.sigmoid(out) * fp.tanh(cell, power + 15)
        codes = coded(products, 2.0**-30 / self.call.number(31)) + self.call.integer(30)
        return np.clip(codes, -128, 127)


@host("QUANTIZED_LSTM")
def _lstm8(call: OperationCall) -> list[Array]:
    """Compute a step on signed bytes, with gates and cell state of 16 bits."""
    step, cell = _Step(call), call.array(19).astype(np.int64)
    unit = call.value(19).operand.scale
    power = _log2(call, unit)
    forget = fp.sigmoid(step.gate(1, 1, cell))
    new = fp.tanh(step.gate(2, None, cell))
    coupled = not call.has(1) or not call.array(1).size
    enter = fp.ONE - forget if coupled else fp.sigmoid(step.gate(0, 0, cell))
    kept = fp.rounded_shift(forget * cell, 15)
    cell = fp.saturated(kept + fp.rounded_shift(enter * new, 30 + power))
    if (clip := call.number(24)) > 0:
        limit = min(int(clip / unit), fp.HIGH)
        cell = np.clip(cell, -limit, limit)
    codes = step.hidden(step.gate(3, 2, cell), cell, power)
    if call.has(16) and call.array(16).size:
        codes = _projected(call, codes)
    made = codes.astype(np.int8)
    return [made, cell.astype(np.int16), made]


def _projected(call: OperationCall, hidden: Raw) -> Raw:
    """Return the codes of the output: the projection of the hidden state."""
    weights, made = call.value(16), call.value(18).operand
    sums = (hidden - call.integer(30)) @ weights.offsets.T
    if call.has(17) and call.array(17).size:
        sums = sums + call.array(17)
    codes = coded(sums, weights.operand.scale * call.number(31) / made.scale) + made.zero_point
    codes = np.clip(codes, -128, 127)
    if (clip := call.number(25)) > 0:
        limit = min(int(clip / weights.operand.scale), 127)
        codes = np.clip(codes, -limit, limit)
    return np.asarray(codes)
