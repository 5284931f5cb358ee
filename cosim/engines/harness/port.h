// The open transfers between one core and the memory: plain data without pointers.
//
// Two parties work on a port: the core's side, which does the handshakes, and the memory controller, which
// the cores share (dram.h). Each party stamps what it does with the cycle from which the other may see it.
// Either party may therefore have been simulated some cycles further than the other.
#pragma once
#include <cstdint>

#include "pins.h"

// Timing parameters.  One cycle is one NPU clock (1 GHz, [HW 12.1]), so bytes a cycle = GB/s.
struct DramConfig {
    double peak_bytes_per_cycle;  // all cores, both directions; 23.65: 70 % of LPDDR4X-4224 ([HW 11], [HW 12.6])
    double efficiency;            // factor on the peak; 1.0, as 23.65 already is the vendor's efficiency
    double core_bytes_per_cycle;  // of one core, both directions; 11.75: fitted to boards (cosim/measure/perf/boards)
    double port_bytes_per_cycle;  // per core and direction; 32: width of the data bus ([HW 11], inferred)
    uint32_t read_latency;        // cycles from request to first beat; 120 (assumed)
    uint32_t write_latency;       // cycles from last beat to response; 60 (assumed)
    uint32_t jitter;              // extra latency, 0..jitter cycles, drawn per request; 0
    uint32_t read_outstanding;    // bursts of one core; 255 ([HW 11], CFG_OUTSTANDING)
    uint32_t write_outstanding;   // 15 (same)
    uint32_t client_read_outstanding;   // bursts of one AXI id; 255: no separate limit (assumed)
    uint32_t client_write_outstanding;  // 15 (assumed)
    uint32_t pad;
    uint64_t seed;         // seed of the jitter
    uint64_t fault_read;   // the n-th read burst (from 1, over all cores) ends in SLVERR; 0: none
    uint64_t fault_write;  // the same for the n-th write burst
};

constexpr int NOBODY = -1;
constexpr uint8_t RESP_OKAY = 0, RESP_SLVERR = 2, RESP_DECERR = 3;

constexpr uint32_t MAX_LOOKAHEAD = 32;

// Cycles for which the controller need not know what a core does, and a core need not know what another core
// does: the largest power of two below both latencies, at most MAX_LOOKAHEAD, for which the queues of a port
// are sized.
inline uint32_t lookahead_of(const DramConfig& config) {
    const uint32_t least = config.read_latency < config.write_latency ? config.read_latency : config.write_latency;
    uint32_t cycles = MAX_LOOKAHEAD;
    while (cycles >= least) cycles /= 2;
    return cycles;
}

template <class T, uint32_t N>  // N is a power of two
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
    uint64_t due;   // valid once the last beat is written; until then the random extra latency
    uint32_t beat;  // sequence number of the burst's last beat
    uint8_t id, resp;
};

// A beat on its way from the memory to the core.
struct ReadBeat {
    uint64_t granted, taken;  // cycles that end with the controller's grant and with its transfer to the bus
    uint32_t data[8];
    uint8_t id, resp;
};

// A beat on its way from the core to the memory.
struct WriteBeat {
    // cycles that end with its arrival (data and address known) and with its write to memory
    uint64_t at, granted;
    uint64_t address;
    uint32_t data[8], strb;  // no strobes: nothing is written
    bool credit;             // accepted by an open ready, so it may use the overdraft
};

struct alignas(64) Port {
    static constexpr uint32_t SLOTS = 2 * MAX_LOOKAHEAD;

    // The core's side.
    Ring<ReadBurst, 256> reads[READ_IDS];
    uint64_t read_last_due[READ_IDS] = {};
    uint32_t reads_open = 0;
    uint32_t read_ids_full = 0;  // number of ids at their own limit
    int current = -1;            // id of the burst on the bus
    uint16_t beat = 0;           // beats of that burst already transferred
    bool burst_faulted = false;
    uint32_t taken = 0;  // beats taken out of `read_beats`

    Ring<WriteBurst, 256> writes;  // bursts whose data are incomplete
    Ring<WriteResponse, 256> responses;
    uint32_t responses_known = 0;  // responses at the front whose `due` is known
    uint64_t response_last_due = 0;
    uint32_t writes_open = 0;
    uint32_t write_ids_full = 0;
    uint16_t writes_open_of[WRITE_IDS] = {};
    uint16_t write_beat = 0;
    bool write_faulted = false;
    bool early = false;  // a data beat arrived before its address
    bool early_last = false, early_credit = false;
    uint32_t early_data[8], early_strb = 0;
    bool prepaid = false;  // the bytes of this cycle's wready are already charged
    bool want_write = false;
    uint32_t queued = 0, credited = 0;  // beats put into `write_beats`, and beats known to be written

    int64_t write_budget = 0;
    uint64_t seen = 0;  // the last cycle in which the core's side ran
    uint64_t random = 1;

    // The controller's side.
    uint32_t read_ids = 0;              // bit i: reads[i] has bursts with beats that are not granted yet
    uint16_t bursts_given[READ_IDS] = {};  // completely granted bursts at the front of reads[i]
    int serving = -1;                   // id of the burst that is being granted
    uint16_t serving_beat = 0;
    uint32_t next_id = 0;
    uint32_t given = 0, freed = 0;  // beats put into `read_beats`, and beats known to be taken
    uint32_t written = 0;           // beats taken out of `write_beats`
    int64_t core_budget = 0, read_budget = 0;
    // direction (0 reads, 1 writes) whose turn was skipped because the core had used its budget
    int owed = NOBODY;

    ReadBeat read_beats[SLOTS];
    WriteBeat write_beats[SLOTS];
    ReadBeat& read_slot(uint32_t n) { return read_beats[n & (SLOTS - 1)]; }
    WriteBeat& write_slot(uint32_t n) { return write_beats[n & (SLOTS - 1)]; }

    // Restores the state after a reset, except the random generator of the jitter.
    void clear() {
        const uint64_t goes_on = random;
        *this = Port();
        random = goes_on;
    }
    bool open() const { return reads_open || writes_open || early; }

    // Whether every index is in range; a state read from a file may hold any value.
    bool sound() const {
        bool good = current >= -1 && current < int(READ_IDS) && serving >= -1 && serving < int(READ_IDS) &&
                    next_id < uint32_t(READ_IDS) && owed >= NOBODY && owed <= 1;
        good &= writes.count <= 256 && responses.count <= 256 && given - taken <= SLOTS;
        if (!good) return false;
        for (uint32_t n = 0; n < writes.count; n++) good &= writes.at(n).id < WRITE_IDS;
        for (uint32_t n = 0; n < responses.count; n++) good &= responses.at(n).id < WRITE_IDS;
        for (uint32_t n = taken; n != given; n++) good &= read_beats[n & (SLOTS - 1)].id < READ_IDS;
        return good;
    }
};
