// The performance counters of one core, as rtl/counters.py counts them: the same numbers after the same cycles.
//
// Looked at once a cycle after all pins of that cycle are known, only while they count.  What is counted where
// is described in rtl/regs/counters.rdl; Python names the numbers by their order there (rtl/regs/counters.py),
// and a test drives this and the RTL with the same pins.
#pragma once
#include <cstring>

#include "pins.h"

constexpr int BLOCK_STATES[] = {5, 4, 6, 6, 4, 6, 4, 4, 4, 5};  // of each block, idle first

constexpr int CLIENTS = 10;        // of BYTES: eight readers by AXI id, then two writers
constexpr int AMOUNTS = CLIENTS + 2 + 4;  // bytes; bursts read, written; MACs useful, busy; slots, pixels
constexpr uint32_t TASK_START = 1, TASK_DONE = 2, SLOT = 4, PIXEL = 8;  // bits of `events`

// In the order of the registers of the window; 48 bits count, as in the RTL.
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

    // SWITCH.CLEAR and SWITCH.LATCH.
    void clear() { now = BlockCounts{}; }
    void latch() { latched = now; }

    // Before counting begins: writes whose address has passed but not all of their beats, oldest first.
    void forget_writes() { waiting = 0; }
    void under_way(uint8_t id) { push(id); }

    // Whether the cycle has to be looked at.
    bool wanted(const CoreIn& in) const { return counting | in.counting; }

    // The pins of a cycle.
    void observe(const CoreIn& in, const CoreOut& out) {
        const bool data = out.m_wvalid && in.m_wready;
        if (counting) {
            count(in, out);
            // Data belong to the oldest address that still wants some.
            if (data) now.amounts[8 + (waiting ? ids & 1 : 0)] += uint64_t(__builtin_popcount(out.m_wstrb));
        } else {
            at_work = false;
        }
        counting = in.counting;
        if (data && out.m_wlast && waiting) waiting--, ids >>= 1;
        if (out.m_awvalid && in.m_awready) push(out.m_awid);
    }

    // `n` cycles in which the core stands still: nothing passes, its outputs stay.
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
    bool counting = false;  // `counting` was high in the cycle before: what the core tells is of that cycle
    bool at_work = false;
    uint32_t ids = 0, waiting = 0;  // bit n: the writer of the n-th burst whose beats are to come

    void push(uint8_t id) {
        if (waiting < 32) ids = (ids & ~(1u << waiting)) | uint32_t(id & 1) << waiting, waiting++;
    }

    // Idle as each block says; of its other states the first that holds.
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

    // A task is at work from the cycle of its start up to the one before that of its end.
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
