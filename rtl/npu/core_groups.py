"""Groups of zeros that CORE appends to those of the sequence controller [HW 6.3]."""

from amaranth.hdl import Module, Mux, Signal
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

from rkcosim.rtl.layouts import StripeDone, TaskSize
from rkcosim.spec.types import STRIPE


class MissingGroups(wiring.Component):
    """Count the stripes of the groups that DATAOUT_CHANNEL requires but that have no kernels.

    Members
    -------
    wanted : In(13)     : number of groups according to DATAOUT_CHANNEL.
    size : In(TaskSize) : size issued by the sequence controller; constant while stripes are offered.
    stripe : In(StripeDone), taken, first : In(1) : a stripe is accepted; it is the first one of the task.
    last, ends : In(1)  : the current stripe is the last one of the sequence controller or follows it; its
        last octet is being read.
    more : Out(1)       : groups are missing; valid while the first stripe is accepted.
    repeats : Out(1)    : a stripe of zeros follows the current one.
    missing : Out(1)    : the current stripe is one of zeros.
    pixels_m1 : Out(4)  : number of pixels of the following stripe minus one.
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
        groups_left = Signal(13, reset_less=True)  # groups after the current one
        stripes_left = Signal(18, reset_less=True)  # stripes of the current group after the current stripe
        stripes_m1 = Signal(18, reset_less=True)  # stripes of each group minus one
        tail = Signal(4, reset_less=True)  # pixels of the last stripe of a group minus one
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
