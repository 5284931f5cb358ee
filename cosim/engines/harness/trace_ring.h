// The cycles before a moment: changes kept in memory, in segments, the oldest of which are dropped.
#pragma once
#include <cstdint>
#include <cstring>
#include <deque>
#include <vector>

class TraceRing {
public:
    // `cycles` counts only cycles with changes; `bytes` bounds the memory.
    TraceRing(uint64_t cycles, uint64_t bytes) : wanted(cycles), bytes(bytes), per_segment(cycles / 8 + 1) {}

    // Begins a cycle with changes; `values` are all values before it.
    void cycle(uint64_t cycle, const std::vector<uint32_t>& values) {
        if (segments.empty() || segments.back().cycles >= per_segment || size(segments.back()) > bytes / 8) {
            drop();
            segments.push_back({values, {}, 0});
        }
        segments.back().cycles++, kept++;
        std::vector<uint32_t>& log = segments.back().log;
        log.insert(log.end(), {0, uint32_t(cycle), uint32_t(cycle >> 32)});
    }
    void change(uint32_t variable, const uint32_t* words, uint32_t count) {
        std::vector<uint32_t>& log = segments.back().log;
        log.push_back(variable);
        log.insert(log.end(), words, words + count);
    }

    // Replays the last `wanted` cycles: start(cycle, values) for the first one, with all values in it, then
    // time(cycle) and value(variable, words). place(variable) returns the position and the number of its
    // words.
    template <class Place, class Start, class Time, class Value>
    void replay(Place place, Start start, Time time, Value value) {
        if (segments.empty()) return;
        uint64_t skip = kept > wanted ? kept - wanted : 0, at_cycle = 0;
        std::vector<uint32_t> values = std::move(segments.front().values);
        enum { BEFORE, FIRST, BEHIND } where = BEFORE;
        for (const Segment& s : segments)
            for (size_t at = 0; at < s.log.size();) {
                const uint32_t variable = s.log[at++];
                if (variable == 0) {
                    const uint64_t cycle = s.log[at] | uint64_t(s.log[at + 1]) << 32;
                    at += 2;
                    if (where == FIRST) start(at_cycle, values), where = BEHIND;
                    if (where == BEHIND) time(cycle);
                    if (where == BEFORE && skip-- == 0) where = FIRST, at_cycle = cycle;
                    continue;
                }
                const auto [first, count] = place(variable);
                if (where == BEHIND)
                    value(variable, &s.log[at]);
                else
                    std::memcpy(&values[first], &s.log[at], count * 4);
                at += count;
            }
        if (where == FIRST) start(at_cycle, values);
    }

    bool shortened() const { return cut; }

private:
    struct Segment {
        std::vector<uint32_t> values, log;
        uint64_t cycles;
    };
    uint64_t wanted, bytes, per_segment, kept = 0;
    std::deque<Segment> segments;
    bool cut = false;

    static uint64_t size(const Segment& s) { return (s.values.size() + s.log.size()) * 4; }

    void drop() {
        uint64_t all = 0;
        for (const Segment& s : segments) all += size(s);
        while (segments.size() > 1) {
            const Segment& s = segments.front();
            const bool unneeded = kept - s.cycles >= wanted;
            if (!unneeded && all <= bytes) return;
            cut |= !unneeded;
            all -= size(s), kept -= s.cycles;
            segments.pop_front();
        }
    }
};
