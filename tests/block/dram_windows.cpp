// Random masters on the memory model, cycle by cycle or each alone through windows (tests/block/test_dram_windows.py).
#include <deque>
#include <memory>

#include "dram.h"

namespace {

constexpr uint64_t BASE = 0x100000, REGION = 0x10000, BURST = 512;

struct Random {
    uint64_t state;
    uint32_t next() {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        return uint32_t(state >> 20);
    }
    uint32_t below(uint32_t n) { return next() % n; }
};

struct Sent {
    uint64_t address;
    uint32_t beats, first;
    bool lost;  // goes where nothing is mapped, or may be hit by an injected fault
};

// Reads anywhere, writes only its region; hashes all data received, with the cycle.
struct Master {
    Random random;
    const uint8_t* memory;
    uint64_t region;
    bool faults;
    uint64_t hash = 0xcbf29ce484222325ull, now = 0;
    uint32_t pattern = 1, bursts = 0, beats_left = 0, responses = 0, wrong = 0;
    std::deque<Sent> data{}, addresses{}, unanswered{};
    CoreIn before{};
    uint32_t read_pace = 1, write_pace = 1, until = 0;

    void see(uint64_t value) { hash = (hash ^ value) * 0x100000001b3ull; }

    // The clock edge; `next` are the pins after it.
    void step(const CoreIn& next, CoreOut& o) {
        const CoreIn i = before;
        before = next;
        if (i.m_rvalid && o.m_rready) {
            see(now), see(i.m_rid | i.m_rresp << 8 | i.m_rlast << 16);
            for (uint32_t word : i.m_rdata) see(word);
        }
        if (i.m_bvalid && o.m_bready) answered(i);
        if (o.m_arvalid && i.m_arready) see(now), o.m_arvalid = 0;
        if (o.m_awvalid && i.m_awready) see(now), o.m_awvalid = 0;
        if (o.m_wvalid && i.m_wready) see(now), o.m_wvalid = 0;
        if (now >= until) {  // another mood: from silence to as much as the bus takes
            read_pace = 1u << random.below(7), write_pace = 1u << random.below(7);
            until = uint32_t(now + 1 + random.below(400));
        }
        o.m_rready = random.below(16) != 0, o.m_bready = random.below(4) != 0;
        o.m_arsize = o.m_awsize = 5, o.m_arburst = o.m_awburst = 1;
        if (!o.m_arvalid && !random.below(read_pace)) {
            o.m_arvalid = 1, o.m_arid = uint8_t(random.below(6)), o.m_arlen = uint8_t(random.below(16));
            o.m_araddr = BASE + BURST * random.below(uint32_t(3 * REGION / BURST) + (faults ? 3 : 0));
        }
        if (data.size() < 4 && !random.below(write_pace)) {
            const uint64_t at = region + BURST * (bursts++ % (REGION / BURST));
            const bool lost = faults && !random.below(50);
            const Sent s{lost ? at + (1u << 24) : at, 1 + random.below(16), pattern, lost || faults};
            pattern += s.beats;
            data.push_back(s), addresses.push_back(s), unanswered.push_back(s);
        }
        if (!o.m_awvalid && !addresses.empty() && random.below(3)) {
            const Sent& s = addresses.front();
            o.m_awvalid = 1, o.m_awaddr = s.address, o.m_awid = uint8_t(random.below(3)), o.m_awlen = uint8_t(s.beats - 1);
            addresses.pop_front();
        }
        // At most one beat may come before its address.
        const bool allowed = addresses.size() + o.m_awvalid < data.size() + (beats_left ? 0 : 1);
        if (!o.m_wvalid && !data.empty() && (beats_left || allowed) && random.below(8)) {
            const Sent& s = data.front();
            if (!beats_left) beats_left = s.beats;
            const uint32_t value = s.first + s.beats - beats_left;
            for (uint32_t& word : o.m_wdata) word = value;
            o.m_wvalid = 1, o.m_wstrb = 0xFFFFFFFF, o.m_wlast = --beats_left == 0;
            if (!beats_left) data.pop_front();
        }
        now++;
    }

    // A write that is answered has landed.
    void answered(const CoreIn& i) {
        see(now), see(i.m_bid | i.m_bresp << 8);
        const Sent s = unanswered.front();
        unanswered.pop_front();
        responses++;
        if (s.lost) return;
        for (uint32_t n = 0; n < s.beats; n++) {
            uint32_t value;
            std::memcpy(&value, memory + s.address + BEAT_BYTES * n, 4);
            wrong += value != s.first + n;
        }
    }
};

}  // namespace

struct Result {
    uint64_t cores[MAX_CORES], memory, faults, counters;
    uint32_t lookahead, responses, beats, wrong, fault_count, pad;
};

extern "C" {

// `most` cycles a window; 0: all cores together, one cycle after the other.
void windows_run(const DramConfig* config, int cores, uint64_t seed, uint32_t cycles, uint32_t most, int faults,
                 Result* result) {
    std::vector<uint8_t> memory(BASE + 4 * REGION);
    for (size_t n = 0; n < memory.size(); n++) memory[n] = uint8_t(n * 7 + (n >> 8));
    auto dram = std::make_unique<Dram>(*config, memory.data(), cores);
    dram->map(BASE >> 12, 3 * REGION >> 12, true);
    CoreIn in[MAX_CORES] = {};
    CoreOut out[MAX_CORES] = {};
    std::vector<Master> masters;
    for (int c = 0; c < cores; c++) {
        Dram::release(in[c]);
        masters.push_back({{seed * 64 + c * 8 + 1}, memory.data(), BASE + REGION * c, faults != 0});
    }
    Random random{seed + 77};
    for (uint64_t now = 0; now < cycles;) {
        if (!most) {
            for (int c = 0; c < cores; c++) dram->accept(now, c, in[c], out[c]);
            dram->arbitrate(now);
            for (int c = 0; c < cores; c++) dram->answer(now, c, in[c], out[c]);
            for (int c = 0; c < cores; c++) masters[c].step(in[c], out[c]);
            now++;
        } else {
            const uint64_t end = std::min<uint64_t>(cycles, now + 1 + random.below(most));
            for (uint64_t s = now; s < end; s++) dram->arbitrate(s);
            const int first = int(random.below(uint32_t(cores)));
            for (int k = 0; k < cores; k++) {
                const int c = (first + k) % cores;
                for (uint64_t s = now; s < end; s++) {
                    dram->accept(s, c, in[c], out[c]);
                    dram->answer(s, c, in[c], out[c]);
                    masters[c].step(in[c], out[c]);
                }
            }
            now = end;
        }
        dram->collect();
    }
    *result = {};
    result->lookahead = dram->lookahead;
    const auto fold = [](uint64_t& hash, uint64_t value) { hash = (hash ^ value) * 0x100000001b3ull; };
    for (int c = 0; c < cores; c++) {
        result->cores[c] = masters[c].hash;
        result->responses += masters[c].responses, result->wrong += masters[c].wrong;
        const Counters& k = dram->counters[c];
        for (uint64_t bytes : k.bytes_read) fold(result->counters, bytes), result->beats += uint32_t(bytes / 32);
        for (uint64_t bytes : k.bytes_written) fold(result->counters, bytes);
        fold(result->counters, k.read_requests), fold(result->counters, k.write_requests);
    }
    for (uint8_t byte : memory) fold(result->memory, byte);
    for (const FaultEvent& f : dram->faults)
        fold(result->faults, f.cycle), fold(result->faults, f.core << 16 | f.client << 8 | f.kind), fold(result->faults, f.address);
    result->fault_count = uint32_t(dram->faults.size());
}

}
