// The event log of a run: records of what the pins of the cores show.
//
// It is called once per cycle after all pins of that cycle are known (Soc::step), only while recording, and
// drives no signal. cosim/engines/events.py reads the records, docs/events.md explains them.
#pragma once
#include <algorithm>
#include <cstring>
#include <deque>
#include <vector>

#include "dram.h"

// Bits of CoreOut::events, followed by the stall reasons (spec/regs/events.py).
enum EventBit : uint32_t {
    EV_TASK_START,
    EV_TASK_DONE,
    EV_MAC_SLOTS,
    EV_MAC_PIXELS,
    EV_STALL_FEATURE,
    EV_STALL_WEIGHT,
    EV_STALL_ACC,
    EV_DPU_OCTETS,
    EV_PPU_ATOMS,
    EV_STRIPES,
    EV_STALL_DPU,
    EV_STALL_WRITE,
    EV_STALL_OPERAND,
    EV_ONLY_WRITE,  // this bit and the following ones: see with_reason in pins.h
    EV_ONLY_OPERAND,
    EV_ONLY_DPU,
    EV_ONLY_ACC,
    EV_ONLY_OUTPUT,
};

// Kinds of record made here; tasks, diagnostics and faults have separate logs (pins.h).
enum RecordKind : uint8_t { REC_WRITE, REC_BURST, REC_STRIPE, REC_MAC, REC_PACKET, REC_IRQ, REC_STALL, REC_BUSY };
constexpr uint32_t RECORD_KINDS = 8;

constexpr uint8_t REC_FETCHED = 1;  // of a write: made by the command stream
constexpr uint8_t REC_IS_WRITE = 2; // of a burst
constexpr uint8_t REC_OPEN = 4;     // still open when the log was taken or when its window closed
constexpr uint8_t REC_RESET = 8;    // cut short by a reset
constexpr uint16_t NO_TASK = 0xFFFF;
constexpr uint32_t NO_JOB = 0xFFFFFFFF;

struct Record {
    uint64_t cycle, end;   // first cycle, and the cycle after the last one
    uint64_t address;      // of a burst; or the offset of a register
    uint32_t value;        // written value; beats; or cycles in which a merged level was high
    uint32_t bytes;        // of a burst
    uint32_t latency;      // of a burst: cycles from the request to the first beat of data
    uint32_t job;          // number of the kick
    uint16_t task;         // index within its job
    uint8_t kind, core;
    uint8_t detail;        // AXI id of a burst; bit number in `events` or in `busy_blocks`
    uint8_t flags;         // REC_*
    uint8_t response;      // of a burst: the worst response
    uint8_t pad;
};

struct RecordConfig {
    uint32_t kinds;  // one bit for each RecordKind
    uint32_t gap;    // a level that returns within this many cycles continues the same record
    uint64_t first, last;
    uint64_t limit;  // maximum number of records
};

class Recorder {
public:
    Recorder(const RecordConfig& config, uint64_t now) : cfg(config) {
        records.reserve(std::min<uint64_t>(cfg.limit, 4096));
        if (cfg.first < now) cfg.first = now;
    }

    uint64_t first() const { return cfg.first; }

    // Takes the pins of cycle `now`. `job` and `task` are those running on this core; `fetching` is the task
    // whose commands are being fetched. `port` has done its part for the next cycle, but has not seen the
    // handshakes of this one.
    void observe(uint64_t now, int c, const CoreIn& in, const CoreOut& out, const Port& port, uint32_t job,
                 uint16_t task, uint16_t fetching) {
        if (now < cfg.first || now > cfg.last) return;
        State& s = state[c];
        if (!s.entered) enter(s, in, port);
        s.job = job, s.task = task;
        const uint64_t seen = (uint64_t(with_reason(out.events)) & LEVELS) | uint64_t(out.irq & 1) << IRQ_BIT |
                              uint64_t(out.busy_blocks) << BUSY_BIT;
        for (uint64_t bits = (seen ^ s.high) & wanted(); bits; bits &= bits - 1) {
            const int bit = __builtin_ctzll(bits);
            if (seen >> bit & 1) rise(now, c, bit, out);
            else fall(now, s, bit);
        }
        s.high = seen;
        if (out.watch_valid && wants(REC_WRITE)) {
            const uint8_t flags = out.watch_fetched ? REC_FETCHED : 0;
            Record* r = add(now, c, REC_WRITE, out.watch_fetched ? fetching : NO_TASK);
            if (r) r->address = out.watch_offset, r->value = out.watch_value, r->flags = flags;
        }
        if (out.events >> EV_STRIPES & 1 && wants(REC_STRIPE)) add(now, c, REC_STRIPE, task);
        if (wants(REC_BURST)) bursts(now, c, in, out);
    }

    // A reset drops the open requests of the core.
    void reset(uint64_t now, int c) {
        State& s = state[c];
        for (auto& queue : s.reads) drop(now, queue);
        for (auto& queue : s.answers) drop(now, queue);
        drop(now, s.writes);
        s.early_beats = s.early_bytes = 0;
    }

    // Extends all open records up to cycle `now`. It may be called repeatedly; recording continues
    // afterwards.
    void settle(uint64_t now) {
        if (now > cfg.last) now = cfg.last;
        if (now < cfg.first) return;
        for (auto& s : state) {
            for (uint64_t bits = s.high & wanted(); bits; bits &= bits - 1) {
                Level& level = s.levels[__builtin_ctzll(bits)];
                extend(level, now + 1);
                level.since = now + 1;
            }
            for (auto& queue : s.reads) touch(now, queue);
            for (auto& queue : s.answers) touch(now, queue);
            touch(now, s.writes);
        }
    }

    std::vector<Record> records;
    uint64_t dropped[RECORD_KINDS] = {};

private:
    RecordConfig cfg;

    static constexpr uint32_t IRQ_BIT = 24, BUSY_BIT = 32, BUSY_BITS = 8;
    static constexpr uint64_t STALLS = 1u << EV_STALL_FEATURE | 1u << EV_STALL_WEIGHT | 1u << EV_STALL_ACC |
                                       1u << EV_STALL_DPU | 1u << EV_STALL_WRITE | 1u << EV_STALL_OPERAND |
                                       1u << EV_ONLY_WRITE | 1u << EV_ONLY_OPERAND | 1u << EV_ONLY_DPU |
                                       1u << EV_ONLY_ACC | 1u << EV_ONLY_OUTPUT;
    static constexpr uint64_t PACKETS = 1u << EV_DPU_OCTETS | 1u << EV_PPU_ATOMS;
    static constexpr uint64_t LEVELS = STALLS | PACKETS | 1u << EV_MAC_SLOTS;
    static constexpr uint64_t NOWHERE = ~uint64_t(0);

    struct Level {
        uint64_t record = NOWHERE;
        uint64_t since = 0;  // cycles from here on are not counted yet
        uint64_t lost = 0;   // end of the last level that found no room in the log
    };
    struct Open {
        uint64_t record, from;
        uint32_t beats, seen;
        uint8_t id;
    };
    using Queue = std::deque<Open>;
    struct State {
        bool entered = false;
        uint64_t high = 0;
        uint32_t job = NO_JOB;
        uint16_t task = NO_TASK;
        Level levels[BUSY_BIT + BUSY_BITS];
        Queue reads[READ_IDS], writes, answers[WRITE_IDS];  // answers: all data sent, response missing
        uint32_t early_beats = 0, early_bytes = 0;          // data that came before their address
    };
    State state[MAX_CORES];

    bool wants(uint32_t kind) const { return cfg.kinds >> kind & 1; }

    uint64_t wanted() const {
        return (wants(REC_MAC) ? 1u << EV_MAC_SLOTS : 0) | (wants(REC_STALL) ? STALLS : 0) |
               (wants(REC_PACKET) ? PACKETS : 0) | (wants(REC_IRQ) ? 1u << IRQ_BIT : 0) |
               (wants(REC_BUSY) ? uint64_t(0xFF) << BUSY_BIT : 0);
    }

    // Bursts that are open when the window begins are not recorded, but they are followed, so that their
    // beats are not attributed to later bursts.
    static void enter(State& s, const CoreIn& in, const Port& port) {
        s.entered = true;
        auto unknown = [](Queue& queue, uint32_t beats, int id) {
            if (beats) queue.push_back({NOWHERE, 0, beats, 0, uint8_t(id)});
        };
        for (int id = 0; id < READ_IDS; id++) {
            const auto& ring = port.reads[id];
            if (in.m_rvalid && in.m_rid == id) unknown(s.reads[id], 1, id);
            for (uint32_t n = 0; n < ring.count; n++)
                unknown(s.reads[id], ring.at(n).beats - (n == 0 && port.current == id ? port.beat : 0), id);
        }
        if (in.m_bvalid) unknown(s.answers[in.m_bid], 1, in.m_bid);
        for (uint32_t n = 0; n < port.responses.count; n++)
            unknown(s.answers[port.responses.at(n).id], 1, port.responses.at(n).id);
        for (uint32_t n = 0; n < port.writes.count; n++)
            unknown(s.writes, port.writes.at(n).beats - (n ? 0 : port.write_beat), port.writes.at(n).id);
        if (port.early) s.early_beats = 1, s.early_bytes = uint32_t(__builtin_popcount(port.early_strb));
    }

    Record* add(uint64_t now, int c, RecordKind kind, uint16_t task) {
        if (records.size() >= cfg.limit) {
            dropped[kind]++;
            return nullptr;
        }
        records.push_back(Record{});
        Record& r = records.back();
        r.cycle = now, r.end = now + 1, r.job = state[c].job, r.task = task;
        r.kind = kind, r.core = uint8_t(c);
        return &r;
    }

    void rise(uint64_t now, int c, int bit, const CoreOut& out) {
        Level& level = state[c].levels[bit];
        const RecordKind kind = bit >= int(BUSY_BIT)        ? REC_BUSY
                                : bit == int(IRQ_BIT)       ? REC_IRQ
                                : bit == int(EV_MAC_SLOTS)  ? REC_MAC
                                : PACKETS >> bit & 1        ? REC_PACKET
                                                            : REC_STALL;
        const bool merges = kind == REC_MAC || kind == REC_PACKET || kind == REC_STALL;
        level.since = now;
        if (merges && level.lost && now - level.lost <= cfg.gap) return;
        if (merges && level.record != NOWHERE) {
            const Record& before = records[level.record];
            if (now - before.end <= cfg.gap && before.task == state[c].task && before.job == state[c].job) return;
        }
        Record* r = add(now, c, kind, state[c].task);
        level.record = r ? records.size() - 1 : NOWHERE;
        if (!r) return;
        r->detail = uint8_t(bit >= int(BUSY_BIT) ? bit - BUSY_BIT : bit);
        r->address = out.busy_blocks;
        r->flags = REC_OPEN;
    }

    void extend(Level& level, uint64_t end) {
        level.lost = level.record == NOWHERE ? end : 0;
        if (level.record == NOWHERE) return;
        Record& r = records[level.record];
        r.value += uint32_t(end - level.since);
        r.end = end, r.flags |= REC_OPEN;
    }

    void fall(uint64_t now, State& s, int bit) {
        Level& level = s.levels[bit];
        extend(level, now);
        if (level.record != NOWHERE) records[level.record].flags &= uint8_t(~REC_OPEN);
    }

    Open open(uint64_t now, int c, uint8_t id, uint64_t address, uint32_t beats, uint8_t flags) {
        Record* r = add(now, c, REC_BURST, state[c].task);
        if (r) r->address = address, r->value = beats, r->detail = id, r->flags = uint8_t(flags | REC_OPEN);
        return {r ? records.size() - 1 : NOWHERE, now, beats, 0, id};
    }

    // Counts one beat; returns true for the burst's last one.
    bool beat(uint64_t now, Open& burst, uint32_t bytes, uint32_t beats, uint8_t response) {
        if (burst.record != NOWHERE) {
            Record& r = records[burst.record];
            if (!burst.seen) r.latency = uint32_t(now - r.cycle);
            r.bytes += bytes;
            if (response > r.response) r.response = response;
        }
        burst.seen += beats;
        return burst.seen >= burst.beats;
    }

    void end(uint64_t now, const Open& burst, uint8_t response) {
        if (burst.record == NOWHERE) return;
        Record& r = records[burst.record];
        r.end = now + 1, r.flags &= uint8_t(~REC_OPEN);
        if (response > r.response) r.response = response;
    }

    void bursts(uint64_t now, int c, const CoreIn& in, const CoreOut& out) {
        State& s = state[c];
        if (out.m_arvalid && in.m_arready)
            s.reads[out.m_arid].push_back(open(now, c, out.m_arid, out.m_araddr, out.m_arlen + 1u, 0));
        if (in.m_rvalid && out.m_rready) {
            Queue& queue = s.reads[in.m_rid];  // empty: the burst is older than the window
            if (!queue.empty() && beat(now, queue.front(), BEAT_BYTES, 1, in.m_rresp)) {
                end(now, queue.front(), in.m_rresp);
                queue.pop_front();
            }
        }
        if (out.m_awvalid && in.m_awready) {
            s.writes.push_back(open(now, c, out.m_awid, out.m_awaddr, out.m_awlen + 1u, REC_IS_WRITE));
            if (s.early_beats) written(now, s, s.early_bytes, s.early_beats);
            s.early_beats = s.early_bytes = 0;
        }
        if (out.m_wvalid && in.m_wready) {
            const uint32_t bytes = uint32_t(__builtin_popcount(out.m_wstrb));
            if (s.writes.empty()) s.early_beats++, s.early_bytes += bytes;
            else written(now, s, bytes, 1);
        }
        if (in.m_bvalid && out.m_bready) {
            Queue& queue = s.answers[in.m_bid];
            if (!queue.empty()) {
                end(now, queue.front(), in.m_bresp);
                queue.pop_front();
            }
        }
    }

    void written(uint64_t now, State& s, uint32_t bytes, uint32_t beats) {
        Open& burst = s.writes.front();
        if (!beat(now, burst, bytes, beats, 0)) return;
        s.answers[burst.id].push_back(burst);
        s.writes.pop_front();
    }

    void touch(uint64_t now, const Queue& queue) {
        for (const Open& burst : queue)
            if (burst.record != NOWHERE) records[burst.record].end = now + 1;
    }

    void drop(uint64_t now, Queue& queue) {
        for (const Open& burst : queue)
            if (burst.record != NOWHERE) {
                Record& r = records[burst.record];
                r.end = now + 1;
                r.flags = uint8_t((r.flags & ~REC_OPEN) | REC_RESET);
            }
        queue.clear();
    }
};
