// The performance counters of one core. They hold the same numbers after the same cycles as rtl/counters.py.
//
// They are updated once per cycle after all pins of that cycle are known, only while they are enabled.
// spec/regs/counters.rdl describes what each of them counts. Python names the numbers by their order in that
// file (spec/regs/counters.py), and a test drives this code and the RTL with the same pins.
#pragma once
#include <cstring>

#include "pins.h"

// number of states of each block; state 0 is idle
constexpr int BLOCK_STATES[] = {5, 4, 6, 6, 4, 6, 4, 4, 4, 5};

constexpr int CLIENTS = 10;        // BYTES registers: eight readers by AXI id, then two writers
constexpr int AMOUNTS = CLIENTS + 2 + 4;  // bytes; read and write bursts; useful and busy MACs; slots, pixels
constexpr uint32_t TASK_START = 1, TASK_DONE = 2, SLOT = 4, PIXEL = 8;  // bits of `events`

// Counters in the order of the registers of the window; 48 bits are significant, as in the RTL.
struct BlockCounts {
    uint64_t cycles;
    uint64_t states[STATES];
    uint64_t amounts[AMOUNTS];
    uint64_t marks[LEVELS];
    uint64_t tasks[6];  // started, done, cycles, last start, last end, longest
};

class alignas(64) BlockCounters {
public:
    const BlockCounts& live() const { return now; }
    const BlockCounts& kept() const { return latched; }

    // The actions of SWITCH.CLEAR and SWITCH.LATCH.
    void clear() { now = BlockCounts{}; }
    void latch() { latched = now; }

    // Before counting begins: register the writes whose address has passed but whose beats have not all
    // passed, oldest first.
    void forget_writes() { waiting = 0; }
    void under_way(uint8_t id) { push(id); }

    // Whether `observe` must be called for this cycle.
    bool wanted(const CoreIn& in) const { return counting | in.counting; }

    // Takes the pins of a cycle.
    void observe(const CoreIn& in, const CoreOut& out) {
        const bool data = out.m_wvalid && in.m_wready;
        if (counting) {
            count(in, out);
            // Data belong to the oldest address whose beats are incomplete.
            if (data) now.amounts[8 + (waiting ? ids & 1 : 0)] += uint64_t(__builtin_popcount(out.m_wstrb));
        } else {
            at_work = false;
        }
        counting = in.counting;
        if (data && out.m_wlast && waiting) waiting--, ids >>= 1;
        if (out.m_awvalid && in.m_awready) push(out.m_awid);
    }

    // Accounts for `n` cycles in which the core does nothing: there are no transfers, and its outputs do not
    // change.
    void stand(const CoreIn& in, const CoreOut& out, uint64_t n) {
        if (!n) return;
        const uint64_t counted = uint64_t(counting) + (in.counting ? n - 1 : 0);
        if (counting && counted) {
            now.cycles += counted;
            state(out.activity, counted);
            raise(out);
            if (at_work) now.tasks[2] += counted;
        }
        counting = in.counting;
    }

private:
    BlockCounts now{}, latched{};
    bool counting = false;  // `counting` in the cycle before, to which the core's counter outputs refer
    bool at_work = false;
    uint32_t ids = 0, waiting = 0;  // `waiting` bursts expect data; bit n of `ids` is the writer of the n-th

    void push(uint8_t id) {
        if (waiting < 32) ids = (ids & ~(1u << waiting)) | uint32_t(id & 1) << waiting, waiting++;
    }

    // A block is idle if it says so; of its other states, only the first that holds is counted.
    void state(uint64_t activity, uint64_t cycles) {
        uint64_t* states = now.states;
        for (const int many : BLOCK_STATES) {
            const uint64_t others = activity & ((1u << many) - 1) & ~uint64_t(1);
            if (activity & 1) states[0] += cycles;
            if (others) states[__builtin_ctzll(others)] += cycles;
            activity >>= many, states += many;
        }
    }

    void raise(const CoreOut& out) {
        for (int k = 0; k < LEVELS; k++)
            if (out.levels[k] > now.marks[k]) now.marks[k] = out.levels[k];
    }

    void count(const CoreIn& in, const CoreOut& out) {
        state(out.activity, 1);
        if (in.m_rvalid && out.m_rready) now.amounts[in.m_rid & 7] += BEAT_BYTES;
        now.amounts[CLIENTS] += out.m_arvalid && in.m_arready;
        now.amounts[CLIENTS + 1] += out.m_awvalid && in.m_awready;
        now.amounts[CLIENTS + 2] += out.macs;
        now.amounts[CLIENTS + 3] += out.array_macs;
        now.amounts[CLIENTS + 4] += (out.events & SLOT) != 0;
        now.amounts[CLIENTS + 5] += (out.events & PIXEL) != 0;
        raise(out);
        task(out.events);
        now.cycles++;
    }

    // A task runs from the cycle of its start until the cycle before that of its end.
    void task(uint32_t events) {
        if (events & TASK_DONE) {
            const uint64_t took = now.cycles - now.tasks[3];
            now.tasks[1]++, now.tasks[4] = now.cycles;
            if (at_work && took > now.tasks[5]) now.tasks[5] = took;
            at_work = false;
        }
        if (events & TASK_START) {
            now.tasks[0]++, now.tasks[3] = now.cycles;
            at_work = true;
        }
        if (at_work) now.tasks[2]++;
    }
};
