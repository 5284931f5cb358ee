"""Window bookkeeping of the PPU: which output windows are open at a position along one axis."""

from __future__ import annotations

from amaranth.hdl import Module, Signal, Value


class Axis:
    """Position along one axis of the input and the windows open at it.

    Window o covers `o*stride - pad + [0, kernel)`.  At most one window opens and at most one
    closes at a position, so everything is counted up, never divided.

    Parameters
    ----------
    m, name
        module that holds the registers, prefix of their names.
    kernel_m1, stride_m1, in_m1, out_m1
        register fields, each minus one.
    pad
        padding before the first position.

    Attributes
    ----------
    inside : the position lies in the input.
    opens, closes : a window begins / the lowest open window ends here.
    at : the position, two's complement.
    open_now : windows open here, 0..16.   lowest : number of the lowest of them.
    finishes : nothing is left to do after this position.
    """

    def __init__(
        self,
        m: Module,
        name: str,
        kernel_m1: Value,
        stride_m1: Value,
        pad: Value,
        in_m1: Value,
        out_m1: Value,
    ) -> None:
        self._kernel_m1 = kernel_m1
        self._stride = stride_m1 + 1
        self._pad = pad
        self._in_m1 = in_m1
        self._out_m1 = out_m1
        self.at = Signal(19, name=f"{name}_at", reset_less=True)  # two's complement
        self._next_begin = Signal(18, name=f"{name}_next_begin", reset_less=True)
        self._low_end = Signal(18, name=f"{name}_low_end", reset_less=True)
        self._begun = Signal(14, name=f"{name}_begun", reset_less=True)
        self._open = Signal(5, name=f"{name}_open", reset_less=True)
        self.lowest = Signal(14, name=f"{name}_lowest", reset_less=True)
        self.inside = Signal(name=f"{name}_inside")
        self.opens = Signal(name=f"{name}_opens")
        self.closes = Signal(name=f"{name}_closes")
        self.open_now = Signal(5, name=f"{name}_open_now")
        self.finishes = Signal(name=f"{name}_finishes")
        at = self.at.as_signed()
        m.d.comb += [
            self.inside.eq((at >= 0) & (at <= in_m1)),
            self.opens.eq((at == self._next_begin.as_signed()) & (self._begun <= out_m1)),
            self.open_now.eq(self._open + self.opens),
            self.closes.eq((self.open_now != 0) & (at == self._low_end.as_signed())),
            self.finishes.eq((at >= in_m1) & (self.lowest + self.closes > out_m1)),
        ]

    def begin(self, m: Module) -> None:
        """Go to the first position that any window or the input needs."""
        first = -self._pad
        m.d.sync += [
            self.at.eq(first),
            self._next_begin.eq(first),
            self._low_end.eq(first + self._kernel_m1),
            self._begun.eq(0),
            self._open.eq(0),
            self.lowest.eq(0),
        ]

    def advance(self, m: Module) -> None:
        """Go to the next position."""
        m.d.sync += [
            self.at.eq(self.at + 1),
            self._open.eq(self.open_now - self.closes),
        ]
        with m.If(self.opens):
            m.d.sync += [
                self._begun.eq(self._begun + 1),
                self._next_begin.eq(self._next_begin + self._stride),
            ]
        with m.If(self.closes):
            m.d.sync += [self.lowest.eq(self.lowest + 1), self._low_end.eq(self._low_end + self._stride)]
