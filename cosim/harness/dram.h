// DRAM and interconnect: the AXI4 slave side of up to three cores.
//
// Reads take their data in the cycle the beat is put on the bus, writes land in the cycle the beat
// is accepted.  Beats of one id stay in order; ids of a core take turns burst by burst, cores take
// turns beat by beat.  Every signal towards a core is a register: it changes at the clock edge only.
#pragma once
#include <cstring>
#include <vector>

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

template <class T, uint32_t N>  // N a power of two
struct Ring {
    T item[N];
    uint32_t head = 0, count = 0;
    T& front() { return item[head & (N - 1)]; }
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
    uint64_t due;
    uint8_t id, resp;
};

struct Port {
    Ring<ReadBurst, 256> reads[READ_IDS];
    uint64_t read_last_due[READ_IDS] = {};
    uint32_t read_ids = 0;  // bit i: reads[i] is not empty
    uint32_t reads_open = 0;
    uint32_t read_ids_full = 0;  // ids at their own limit
    int current = -1;  // id whose burst is on the bus
    uint32_t next_id = 0;
    uint16_t beat = 0;
    bool burst_faulted = false;

    Ring<WriteBurst, 256> writes;
    Ring<WriteResponse, 256> responses;
    uint64_t response_last_due = 0;
    uint32_t writes_open = 0;
    uint32_t write_ids_full = 0;
    uint16_t writes_open_of[WRITE_IDS] = {};
    uint16_t write_beat = 0;
    bool write_faulted = false;
    bool early = false;  // a beat that came before its address
    bool early_last = false;
    uint32_t early_data[8], early_strb = 0;
    bool prepaid = false;  // wready of this cycle has its bytes reserved

    int64_t read_budget = 0, write_budget = 0;
    bool want_write = false;

    void clear() { *this = Port(); }
    bool open() const { return reads_open || writes_open || early; }
};

class Dram {
public:
    Dram(const DramConfig& config, uint8_t* memory, int cores) : cfg(config), mem(memory), cores(cores) {
        gain = int64_t(cfg.peak_bytes_per_cycle * cfg.efficiency * 65536.0);
        port_gain = int64_t(cfg.port_bytes_per_cycle * 65536.0);
        random = cfg.seed * 2 + 1;
        budget = gain;
        for (auto& p : port) p.read_budget = p.write_budget = port_gain;
        mapped.assign(1u << 14, 0);
    }

    void map(uint64_t first_page, uint64_t pages, bool on) {
        for (uint64_t i = first_page; i < first_page + pages; i++) {
            uint64_t bit = uint64_t(1) << (i & 63);
            if (on) mapped[i >> 6] |= bit;
            else mapped[i >> 6] &= ~bit;
        }
    }

    static void release(CoreIn& in) {
        in.m_arready = in.m_awready = in.m_wready = 1;
        in.m_rvalid = in.m_bvalid = 0;
    }

    void reset(int core, CoreIn& in) {
        port[core].clear();
        port[core].read_budget = port[core].write_budget = port_gain;
        release(in);
    }

    // Nothing to do for this core now or later unless the core asks.
    bool settled(int core, const CoreIn& in) const {
        return !port[core].open() && in.m_arready && in.m_awready && in.m_wready && !in.m_rvalid && !in.m_bvalid;
    }

    // No handshake in this cycle, and none to come before the core moves.
    bool stuck(int core, const CoreIn& in, const CoreOut& out) const {
        const Port& p = port[core];
        bool moves = (out.m_arvalid && in.m_arready) || (out.m_awvalid && in.m_awready) ||
                     (out.m_wvalid && in.m_wready) || (in.m_rvalid && out.m_rready) ||
                     (in.m_bvalid && out.m_bready);
        return !moves && (!p.reads_open || in.m_rvalid) && (!p.responses.count || in.m_bvalid);
    }

    // `n` cycles in which no core needed anything.
    void idle(uint64_t n) {
        budget = refill(budget, gain, n);
        for (int c = 0; c < cores; c++) {
            port[c].read_budget = refill(port[c].read_budget, port_gain, n);
            port[c].write_budget = refill(port[c].write_budget, port_gain, n);
        }
    }

    // One clock edge.  `active` has a bit for each core whose port can have something to do.
    void step(uint64_t now, uint32_t active, CoreIn* in, const CoreOut* out) {
        idle(1);
        for (int c = 0; c < cores; c++)
            if (active >> c & 1) accept(now, c, in[c], out[c]);
        // Cores and directions share the budget in turns; the turn moves past the last one served.
        int start = turn;
        for (int k = 0; k < 2 * cores; k++) {
            int who = start + k;
            if (who >= 2 * cores) who -= 2 * cores;
            int c = who >> 1;
            if (!(active >> c & 1)) continue;
            bool served = who & 1 ? grant_write(port[c], in[c]) : serve_read(now, c, in[c]);
            if (served) turn = who + 1 == 2 * cores ? 0 : who + 1;
        }
        for (int c = 0; c < cores; c++)
            if (active >> c & 1) answer(now, c, in[c], out[c]);
    }

    Counters counters[MAX_CORES] = {};
    std::vector<FaultEvent> faults;
    uint64_t watched = ~0ull;  // an address, and the cycles in which a byte was written there
    std::vector<uint64_t> watched_writes;
    Port port[MAX_CORES];

private:
    const DramConfig cfg;
    uint8_t* const mem;
    const int cores;
    int64_t gain, port_gain, budget;
    int turn = 0;
    uint64_t random, read_count = 0, write_count = 0;
    std::vector<uint64_t> mapped;  // a bit for each 4 KiB page, as in an IOMMU

    static constexpr int64_t BEAT_COST = int64_t(BEAT_BYTES) << 16;
    static constexpr int64_t OVERDRAFT = 8 * BEAT_COST;

    static int64_t refill(int64_t have, int64_t gain, uint64_t n) {
        if (have >= gain) return gain;
        if (n > 1u << 20) return gain;
        int64_t sum = have + int64_t(n) * gain;
        return sum > gain ? gain : sum;
    }

    uint32_t draw() {  // xorshift64*
        if (!cfg.jitter) return 0;
        random ^= random >> 12, random ^= random << 25, random ^= random >> 27;
        return uint32_t((random * 0x2545F4914F6CDD1Dull >> 33) % (cfg.jitter + 1));
    }

    bool present(uint64_t address) const {
        if (address >> 32) return false;
        uint64_t page = address >> 12;
        return mapped[page >> 6] >> (page & 63) & 1;
    }

    void fault(uint64_t now, int core, uint32_t client, uint64_t address, uint32_t kind) {
        if (faults.size() < 65536) faults.push_back({now, address, uint32_t(core), client, kind, 0});
    }

    // Is this a burst that the core may send: INCR, full width, inside one 4 KiB page?
    static bool legal(uint64_t address, uint8_t len, uint8_t size, uint8_t burst) {
        return burst == 1 && size == 5 && (address & 0xFFF) / BEAT_BYTES + len < 4096 / BEAT_BYTES;
    }

    // Handshakes of the cycle that ends at this edge.
    void accept(uint64_t now, int c, CoreIn& in, const CoreOut& out) {
        Port& p = port[c];
        if (in.m_rvalid && out.m_rready) in.m_rvalid = 0;
        if (in.m_bvalid && out.m_bready) in.m_bvalid = 0;
        if (out.m_arvalid && in.m_arready) {
            uint8_t resp = RESP_OKAY, id = out.m_arid;
            if (!legal(out.m_araddr, out.m_arlen, out.m_arsize, out.m_arburst)) {
                fault(now, c, id, out.m_araddr, FAULT_PROTOCOL);
                resp = RESP_SLVERR;
            }
            counters[c].read_requests++;
            if (++read_count == cfg.fault_read) {
                fault(now, c, id, out.m_araddr, FAULT_READ_INJECTED);
                resp = RESP_SLVERR;
            }
            uint64_t due = now + cfg.read_latency + draw();
            if (due < p.read_last_due[id]) due = p.read_last_due[id];
            p.read_last_due[id] = due;
            p.reads[id].push({out.m_araddr & ~uint64_t(31), due, uint16_t(out.m_arlen + 1), resp});
            p.read_ids |= 1u << id;
            p.reads_open++;
            p.read_ids_full += p.reads[id].count == cfg.client_read_outstanding;
        }
        if (out.m_awvalid && in.m_awready) {
            uint8_t resp = RESP_OKAY;
            if (!legal(out.m_awaddr, out.m_awlen, out.m_awsize, out.m_awburst)) {
                fault(now, c, out.m_awid, out.m_awaddr, FAULT_PROTOCOL);
                resp = RESP_SLVERR;
            }
            counters[c].write_requests++;
            if (++write_count == cfg.fault_write) {
                fault(now, c, out.m_awid, out.m_awaddr, FAULT_WRITE_INJECTED);
                resp = RESP_SLVERR;
            }
            p.writes.push({out.m_awaddr & ~uint64_t(31), uint16_t(out.m_awlen + 1), out.m_awid, resp});
            p.writes_open++;
            p.write_ids_full += ++p.writes_open_of[out.m_awid] == cfg.client_write_outstanding;
            if (p.early) {
                p.early = false;
                land(now, c, p.early_data, p.early_strb, p.early_last);
            }
        }
        p.want_write = false;
        if (out.m_wvalid) {
            p.want_write = true;
            if (in.m_wready) {
                if (!p.prepaid) budget -= BEAT_COST, p.write_budget -= BEAT_COST;
                p.prepaid = false;
                if (p.writes.count) {
                    land(now, c, out.m_wdata, out.m_wstrb, out.m_wlast);
                } else {
                    p.early = true, p.early_last = out.m_wlast, p.early_strb = out.m_wstrb;
                    std::memcpy(p.early_data, out.m_wdata, BEAT_BYTES);
                }
                if (out.m_wlast) p.want_write = false;
            }
        }
        if (p.prepaid) budget += BEAT_COST, p.write_budget += BEAT_COST, p.prepaid = false;
    }

    void land(uint64_t now, int c, const uint32_t* data, uint32_t strb, bool last) {
        Port& p = port[c];
        WriteBurst& w = p.writes.front();
        uint64_t address = w.address + p.write_beat * BEAT_BYTES;
        if (!present(address)) {
            if (!p.write_faulted) fault(now, c, w.id, address, FAULT_WRITE_UNMAPPED);
            p.write_faulted = true;
            w.resp = RESP_DECERR;
        } else if (w.resp == RESP_OKAY) {
            uint8_t* to = mem + address;
            if (watched - address < BEAT_BYTES && strb >> (watched - address) & 1) watched_writes.push_back(now);
            const uint8_t* from = reinterpret_cast<const uint8_t*>(data);
            if (strb == 0xFFFFFFFFu) std::memcpy(to, from, BEAT_BYTES);
            else
                for (uint32_t i = 0; i < BEAT_BYTES; i++)
                    if (strb >> i & 1) to[i] = from[i];
        }
        counters[c].bytes_written[w.id] += uint64_t(__builtin_popcount(strb));
        p.write_beat++;
        if (last != (p.write_beat == w.beats)) fault(now, c, w.id, address, FAULT_PROTOCOL);
        if (p.write_beat == w.beats) {
            uint64_t due = now + cfg.write_latency + draw();
            if (due < p.response_last_due) due = p.response_last_due;
            p.response_last_due = due;
            p.responses.push({due, w.id, w.resp});
            p.writes.pop();
            p.write_beat = 0, p.write_faulted = false;
        }
    }

    bool serve_read(uint64_t now, int c, CoreIn& in) {
        Port& p = port[c];
        if (!p.read_ids || in.m_rvalid) return false;
        if (p.current < 0) {
            // first id at or after next_id whose oldest burst is due
            uint64_t order = (uint64_t(p.read_ids) << 32 | p.read_ids) >> p.next_id << p.next_id;
            for (; order; order &= order - 1) {
                int id = __builtin_ctzll(order) & 31;
                if (p.reads[id].front().due <= now + 1) {
                    p.current = id;
                    break;
                }
            }
            if (p.current < 0) return false;
            p.beat = 0, p.burst_faulted = false;
        }
        if (budget <= 0 || p.read_budget <= 0) return false;
        budget -= BEAT_COST, p.read_budget -= BEAT_COST;
        int id = p.current;
        ReadBurst& r = p.reads[id].front();
        uint64_t address = r.address + p.beat * BEAT_BYTES;
        uint8_t resp = r.resp;
        if (!present(address)) {
            if (!p.burst_faulted) fault(now, c, id, address, FAULT_READ_UNMAPPED);
            p.burst_faulted = true;
            resp = RESP_DECERR;
        }
        if (resp == RESP_OKAY) std::memcpy(in.m_rdata, mem + address, BEAT_BYTES);
        else std::memset(in.m_rdata, 0, BEAT_BYTES);
        counters[c].bytes_read[id] += BEAT_BYTES;
        in.m_rvalid = 1, in.m_rid = uint8_t(id), in.m_rresp = resp;
        p.beat++;
        in.m_rlast = p.beat == r.beats;
        if (in.m_rlast) {
            p.read_ids_full -= p.reads[id].count == cfg.client_read_outstanding;
            p.reads[id].pop();
            p.reads_open--;
            if (!p.reads[id].count) p.read_ids &= ~(1u << id);
            p.current = -1;
            p.next_id = (id + 1) & 31;
        }
        return true;
    }

    // Ready for a waiting write beat, its bytes reserved.  Without one, ready stands open and the
    // beat that takes it is paid afterwards, within an overdraft.
    bool grant_write(Port& p, CoreIn& in) {
        if (!p.want_write) {
            in.m_wready = (p.writes.count || !p.early) && budget > -OVERDRAFT && p.write_budget > -OVERDRAFT;
            return false;
        }
        in.m_wready = 0;
        if (!(p.writes.count || !p.early) || budget <= 0 || p.write_budget <= 0) return false;
        budget -= BEAT_COST, p.write_budget -= BEAT_COST;
        p.prepaid = true;
        in.m_wready = 1;
        return true;
    }

    void answer(uint64_t now, int c, CoreIn& in, const CoreOut& out) {
        Port& p = port[c];
        if (!in.m_bvalid && p.responses.count && p.responses.front().due <= now + 1) {
            const WriteResponse& b = p.responses.front();
            in.m_bvalid = 1, in.m_bid = b.id, in.m_bresp = b.resp;
            p.writes_open--;
            p.write_ids_full -= p.writes_open_of[b.id]-- == cfg.client_write_outstanding;
            p.responses.pop();
        }
        // Whose request comes next is not known before it asks, so while some id is at its limit
        // ready only answers a request that is held.
        bool held = out.m_arvalid && !in.m_arready;
        bool room = held ? p.reads[out.m_arid].count < cfg.client_read_outstanding : !p.read_ids_full;
        in.m_arready = room && p.reads_open < cfg.read_outstanding;
        held = out.m_awvalid && !in.m_awready;
        room = held ? p.writes_open_of[out.m_awid] < cfg.client_write_outstanding : !p.write_ids_full;
        in.m_awready = room && p.writes_open < cfg.write_outstanding;
    }
};
