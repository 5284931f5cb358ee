"""Groups that CORE gives behind those of the sequence controller (docs/hardware.md 3.8)."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rtl.layouts import StripeDone, TaskSize

STRIPE = 16
"""Pixels of a whole stripe."""


class MissingGroups(wiring.Component):
    """Count the stripes of the groups that DATAOUT_CHANNEL asks for and that have no kernels.

    Members
    -------
    wanted : In(13)     : groups of DATAOUT_CHANNEL.
    size : In(TaskSize) : what the sequence controller gives; stands still while stripes are offered.
    stripe : In(StripeDone), taken, first : In(1) : a stripe is taken, which is the task's first one.
    last, ends : In(1)  : the current stripe was the sequence controller's last one, or comes behind it;
        its last octet is being read.
    more : Out(1)       : groups are missing, while the first stripe is taken.
    repeats : Out(1)    : another stripe of zeros follows the current one.
    missing : Out(1)    : the current stripe is one of zeros.
    pixels_m1 : Out(4)  : pixels of the following one minus one.
    """

    wanted: In(13)
    size: In(TaskSize)
    stripe: In(StripeDone)
    taken: In(1)
    first: In(1)
    last: In(1)
    ends: In(1)
    more: Out(1)
    repeats: Out(1)
    missing: Out(1)
    pixels_m1: Out(4)

    def elaborate(self, platform: object) -> Module:
        m = Module()
        groups_left = Signal(13, reset_less=True)  # to come behind the current one
        stripes_left = Signal(18, reset_less=True)  # of the current group behind the current stripe
        stripes_m1 = Signal(18, reset_less=True)  # of every group minus one
        tail = Signal(4, reset_less=True)  # pixels of a group's last stripe minus one
        following = Signal(18)
        group_end = stripes_left == 0
        m.d.comb += [
            self.more.eq(self.wanted > self.size.groups),
            self.repeats.eq(self.last & ((groups_left != 0) | ~group_end)),
            following.eq(Mux(group_end, stripes_m1, stripes_left - 1)),
            self.pixels_m1.eq(Mux(following == 0, tail, STRIPE - 1)),
        ]
        with m.If(self.taken):
            m.d.sync += [self.missing.eq(0), tail.eq(self.stripe.pixels_m1), stripes_left.eq(0)]
            with m.If(self.first):
                m.d.sync += [
                    groups_left.eq(Mux(self.more, self.wanted - self.size.groups, 0)),
                    stripes_m1.eq(self.size.stripes - 1),
                ]
        with m.Elif(self.ends & self.repeats):
            m.d.sync += [self.missing.eq(1), stripes_left.eq(following)]
            with m.If(group_end):
                m.d.sync += groups_left.eq(groups_left - 1)
        return m
