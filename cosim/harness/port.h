// What is under way between one core and the memory: plain data, without pointers.
//
// Two parties work on a port: the core's side, which makes the handshakes, and the memory controller,
// which the cores share (dram.h).  Whatever one of them does is stamped with the cycle in which the other
// may see it, so that either may have been simulated some cycles further than the other.
#pragma once
#include <cstdint>

#include "pins.h"

// Timing parameters.  One cycle is one NPU clock (1 GHz, HARDWARE 9.1), so bytes a cycle = GB/s.
struct DramConfig {
    double peak_bytes_per_cycle;  // all cores, both directions; 23.65: 70 % of LPDDR4X-4224 (HARDWARE 8, 9.6)
    double efficiency;            // factor on the peak; 1.0, as 23.65 already is the vendor's efficiency
    double port_bytes_per_cycle;  // per core and direction; 32: width of the data bus (HARDWARE 8, inferred)
    uint32_t read_latency;        // cycles from request to first beat; 120 (assumed)
    uint32_t write_latency;       // cycles from last beat to response; 60 (assumed)
    uint32_t jitter;              // extra latency, 0..jitter cycles, drawn per request; 0
    uint32_t read_outstanding;    // bursts of one core; 255 (HARDWARE 8, CFG_OUTSTANDING)
    uint32_t write_outstanding;   // 15 (same)
    uint32_t client_read_outstanding;   // bursts of one AXI id; 255: no limit of its own (assumed)
    uint32_t client_write_outstanding;  // 15 (assumed)
    uint32_t pad;
    uint64_t seed;         // of the jitter
    uint64_t fault_read;   // the n-th read burst (from 1, all cores) ends in SLVERR; 0: none
    uint64_t fault_write;  // the n-th write burst likewise
};

constexpr uint8_t RESP_OKAY = 0, RESP_SLVERR = 2, RESP_DECERR = 3;

constexpr uint32_t MAX_LOOKAHEAD = 32;

// Cycles for which the controller need not know what a core does, nor a core what another one does: the
// largest power of two below both latencies, and what the queues of a port are made for at most.
inline uint32_t lookahead_of(const DramConfig& config) {
    const uint32_t least = config.read_latency < config.write_latency ? config.read_latency : config.write_latency;
    uint32_t cycles = MAX_LOOKAHEAD;
    while (cycles >= least) cycles /= 2;
    return cycles;
}

template <class T, uint32_t N>  // N a power of two
struct Ring {
    T item[N];
    uint32_t head = 0, count = 0;
    T& front() { return item[head & (N - 1)]; }
    T& at(uint32_t n) { return item[(head + n) & (N - 1)]; }
    const T& at(uint32_t n) const { return item[(head + n) & (N - 1)]; }
    void push(const T& value) { item[(head + count++) & (N - 1)] = value; }
    void pop() { head++, count--; }
};

struct ReadBurst {
    uint64_t address, due;
    uint16_t beats;
    uint8_t resp;
};

struct WriteBurst {
    uint64_t address;
    uint16_t beats;
    uint8_t id, resp;
};

struct WriteResponse {
    uint64_t due;   // known once the last beat is written; before that the drawn extra latency
    uint32_t beat;  // number of that beat
    uint8_t id, resp;
};

// A beat on its way to the core.
struct ReadBeat {
    uint64_t granted, taken;  // cycles at whose end the controller gave it and the bus took it
    uint32_t data[8];
    uint8_t id, resp;
};

// A beat on its way to the memory.
struct WriteBeat {
    uint64_t at, granted;  // cycles at whose end it came (from the bus, after its address) and was written
    uint64_t address;
    uint32_t data[8], strb;  // no strobes: it came to nothing
    bool credit;             // it came while ready stood open, so it may go into the overdraft
};

struct alignas(64) Port {
    static constexpr uint32_t SLOTS = 2 * MAX_LOOKAHEAD;

    // The core's side.
    Ring<ReadBurst, 256> reads[READ_IDS];
    uint64_t read_last_due[READ_IDS] = {};
    uint32_t reads_open = 0;
    uint32_t read_ids_full = 0;  // ids at their own limit
    int current = -1;            // id whose burst is on the bus
    uint16_t beat = 0;           // beats of it that have been there
    bool burst_faulted = false;
    uint32_t taken = 0;  // beats that came out of `read_beats`

    Ring<WriteBurst, 256> writes;  // whose data are not all there
    Ring<WriteResponse, 256> responses;
    uint32_t responses_known = 0;  // those at the front that know when they are due
    uint64_t response_last_due = 0;
    uint32_t writes_open = 0;
    uint32_t write_ids_full = 0;
    uint16_t writes_open_of[WRITE_IDS] = {};
    uint16_t write_beat = 0;
    bool write_faulted = false;
    bool early = false;  // a beat that came before its address
    bool early_last = false, early_credit = false;
    uint32_t early_data[8], early_strb = 0;
    bool prepaid = false;  // wready of this cycle has its bytes reserved
    bool want_write = false;
    uint32_t queued = 0, credited = 0;  // beats that went into `write_beats`, and those known to be written

    int64_t write_budget = 0;
    uint64_t seen = 0;  // the last cycle in which the core's side did its part
    uint64_t random = 1;

    // The controller's.
    uint32_t read_ids = 0;              // bit i: reads[i] has bursts whose beats are not all given
    uint16_t bursts_given[READ_IDS] = {};  // those at the front of reads[i] whose are
    int serving = -1;                   // id of the burst that is being given
    uint16_t serving_beat = 0;
    uint32_t next_id = 0;
    uint32_t given = 0, freed = 0;  // beats that went into `read_beats`, and those known to be taken
    uint32_t written = 0;           // beats that came out of `write_beats`
    int64_t read_budget = 0;

    ReadBeat read_beats[SLOTS];
    WriteBeat write_beats[SLOTS];
    ReadBeat& read_slot(uint32_t n) { return read_beats[n & (SLOTS - 1)]; }
    WriteBeat& write_slot(uint32_t n) { return write_beats[n & (SLOTS - 1)]; }

    // As after a reset; whatever the jitter draws goes on.
    void clear() {
        const uint64_t goes_on = random;
        *this = Port();
        random = goes_on;
    }
    bool open() const { return reads_open || writes_open || early; }
};
