// Synchronisation of cores that compute one layer together [HW 1.9]: the counterpart of
// rkcosim.rtl.co_work.StepUnit, which documents what the cores exchange. tests/block/test_co_work.py compares
// both.
#pragma once
#include <algorithm>
#include <cstdint>

#include "pins.h"

class StepUnit {
public:
    // Constants of spec/co_work.py.
    static constexpr uint32_t STEP_BITS = 13, ALONE = (1u << STEP_BITS) - 1, EXCHANGE = 32;
    static constexpr uint32_t JOIN = 1u << 12, PATIENCE = 1u << 26;

    explicit StepUnit(int cores, uint32_t join = JOIN, uint32_t patience = PATIENCE)
        : cores(cores), join(join / EXCHANGE), patience(patience / EXCHANGE) {}

    // Answer to every core before the first exchange: a unit exists, no step of the others is known.
    static constexpr uint32_t FIRST_ANSWER = 1u << (STEP_BITS + 1);

    // Computes the answers that the cores receive after the next clock edge from their reports. To be called in
    // the first cycle of each EXCHANGE cycles, before the clock edge.
    void exchange(const uint32_t* reports, uint32_t* answers) {
        bool stays[MAX_CORES], live[MAX_CORES], formed[MAX_CORES];
        uint32_t mates[MAX_CORES], waits[MAX_CORES], joins[MAX_CORES] = {}, here = 0;
        for (int n = 0; n < cores; n++) {
            live[n] = size(reports[n]) != 0;
            stays[n] = known[n].here && live[n] && known[n].kick == kick(reports[n]);
            here |= uint32_t(stays[n]) << n;
        }
        for (int n = 0; n < cores; n++) {
            formed[n] = known[n].formed && stays[n];
            mates[n] = stays[n] ? known[n].mates & here : 0;
            waits[n] = stays[n] ? known[n].waits : 0;
        }
        for (uint32_t wanted = 2; wanted <= 3; wanted++) {
            uint32_t open = 0, count = 0, chosen = 0;
            bool over = false;
            for (int n = 0; n < cores; n++) {
                if (!live[n] || formed[n] || size(reports[n]) != wanted) continue;
                open |= 1u << n;
                over |= waits[n] >= join;
                if (count < std::min(wanted, uint32_t(cores))) count++, chosen |= 1u << n;
            }
            if (count < std::min(wanted, uint32_t(cores))) chosen = over ? open : 0;
            for (int n = 0; n < cores; n++)
                if (chosen >> n & 1) joins[n] = chosen;
        }
        Known next[MAX_CORES] = {};
        for (int n = 0; n < cores; n++) {
            const bool joined = joins[n] != 0, in_group = formed[n] || joined;
            const uint32_t now = joined ? joins[n] & ~(1u << n) : mates[n], own = step(reports[n]);
            uint32_t behind = 0;
            for (int k = 0; k < cores; k++) behind |= uint32_t((now >> k & 1) && step(reports[k]) < own) << k;
            const bool waiting = in_group ? behind && own > 1 : live[n];
            const bool left_out = waiting && formed[n] && waits[n] >= patience;
            const uint32_t kept = left_out ? now & ~behind : now;
            uint32_t floor = ALONE;
            for (int k = 0; k < cores; k++)
                if (kept >> k & 1) floor = std::min(floor, step(reports[k]));
            const uint32_t missing = (stays[n] ? known[n].missing : 0) | (left_out ? behind : 0);
            next[n] = {live[n], kick(reports[n]), in_group, kept, missing,
                       waiting && !left_out ? (joined ? 0 : waits[n]) + 1 : 0};
            answers[n] = (in_group ? floor : 0) | kick(reports[n]) << STEP_BITS | FIRST_ANSWER |
                         missing << (STEP_BITS + 2);
        }
        for (int n = 0; n < cores; n++) known[n] = next[n];
    }

    // Whether a core waits, so that time alone can change the answers although no report changes.
    bool waits() const {
        for (int n = 0; n < cores; n++)
            if (known[n].waits) return true;
        return false;
    }

    static uint32_t step(uint32_t report) { return report & ALONE; }
    static uint32_t size(uint32_t report) { return report >> STEP_BITS & 3; }
    static uint32_t kick(uint32_t report) { return report >> (STEP_BITS + 2) & 1; }

    // Mask of the cores for which core n currently waits.
    uint32_t waited_for(int n, const uint32_t* reports) const {
        uint32_t behind = 0;
        for (int k = 0; k < cores; k++)
            behind |= uint32_t((known[n].mates >> k & 1) && step(reports[k]) < step(reports[n])) << k;
        return behind;
    }

    template <class Archive>
    void archive(Archive& a) { a(known); }

private:
    struct Known {
        uint32_t here, kick, formed, mates, missing, waits;
    };
    int cores;
    uint32_t join, patience;
    Known known[MAX_CORES] = {};
};
