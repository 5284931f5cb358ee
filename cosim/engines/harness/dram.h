// DRAM and interconnect: the AXI4 slave side of up to three cores.
//
// The core's side of a port does the handshakes. One controller divides the memory's peak bandwidth among all
// ports and directions, one beat at a time in round-robin order, and gives no core more than one core can
// move. The controller reads memory when it grants a read beat, which is the cycle in which the bus can take
// it. It writes memory when it grants a write beat; it sees that beat `lookahead` cycles after the core sent
// it (these cycles are part of the write latency). The controller can therefore be simulated up to
// `lookahead` cycles ahead of the cores, and within those cycles no core can see what another one does. Beats
// of one id stay in order. The ids of a core alternate burst by burst, the cores beat by beat. Every signal
// towards a core is a register, so it changes at the clock edge only.
#pragma once
#include <algorithm>
#include <cstring>
#include <vector>

#include "port.h"

struct alignas(64) CoreCounters : Counters {};  // aligned, so that no two cores share a cache line

class Dram {
public:
    Dram(const DramConfig& config, uint8_t* memory, int cores)
        : lookahead(lookahead_of(config)), cfg(config), mem(memory), cores(cores) {
        gain = int64_t(cfg.peak_bytes_per_cycle * cfg.efficiency * 65536.0);
        core_gain = int64_t(cfg.core_bytes_per_cycle * 65536.0);
        port_gain = int64_t(cfg.port_bytes_per_cycle * 65536.0);
        write_gain = std::min({gain, core_gain, port_gain});
        budget = gain;
        for (int c = 0; c < MAX_CORES; c++) {
            port[c].random = cfg.seed * 2 + 1 + c * 0x9E3779B97F4A7C16ull;
            port[c].core_budget = core_gain, port[c].read_budget = port_gain, port[c].write_budget = write_gain;
        }
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

    // Resets a port: write data that the core has sent still reach memory, all other transfers are dropped.
    void reset(int core, CoreIn& in) {
        Port& p = port[core];
        for (; p.written != p.queued; p.written++) land(p.write_slot(p.written));
        p.clear();
        p.core_budget = core_gain, p.read_budget = port_gain, p.write_budget = write_gain;
        release(in);
    }

    // Whether this port needs no work until the core sends a request.
    bool settled(int core, const CoreIn& in) const {
        return !port[core].open() && in.m_arready && in.m_awready && in.m_wready && !in.m_rvalid && !in.m_bvalid;
    }

    // Whether no handshake happens in this cycle and none can happen before the core acts.
    bool stuck(int core, const CoreIn& in, const CoreOut& out) const {
        const Port& p = port[core];
        bool moves = (out.m_arvalid && in.m_arready) || (out.m_awvalid && in.m_awready) ||
                     (out.m_wvalid && in.m_wready) || (in.m_rvalid && out.m_rready) ||
                     (in.m_bvalid && out.m_bready);
        return !moves && (!p.reads_open || in.m_rvalid) && (!p.responses.count || in.m_bvalid);
    }

    // Whether bursts must still be numbered over all cores, because a fault is to be injected at one of them.
    bool counting() const { return read_count < cfg.fault_read || write_count < cfg.fault_write; }

    // The controller's part of the clock edge that ends cycle `now`. It uses only what the cores did at least
    // `lookahead` cycles earlier.
    void arbitrate(uint64_t now) {
        uint32_t pending = 0;
        for (int c = 0; c < cores; c++)
            if (port[c].read_ids || port[c].written != port[c].queued) pending |= 1u << c;
        if (!pending) return;
        const uint64_t passed = now - arbitrated;
        arbitrated = now;
        budget = refill(budget, gain, passed);
        for (int c = 0; c < cores; c++) {
            Port& p = port[c];
            p.core_budget = refill(p.core_budget, core_gain, passed);
            p.read_budget = refill(p.read_budget, port_gain, passed);
            // A beat accepted by an open ready is written without waiting for its turn, within the overdraft.
            if (p.written == p.queued || std::min(budget, p.core_budget) <= -OVERDRAFT) continue;
            WriteBeat& b = p.write_slot(p.written);
            if (b.credit && b.at + lookahead == now) write(now, p, b);
        }
        // Cores and directions share the budget in round-robin order, which continues after the last one
        // served.
        const int start = turn;
        uint32_t blocked = 0;  // turns skipped because their core had used its budget
        for (int k = 0; k < 2 * cores; k++) {
            int who = start + k;
            if (who >= 2 * cores) who -= 2 * cores;
            if (!(pending >> (who >> 1) & 1)) continue;
            Port& p = port[who >> 1];
            if (p.core_budget <= 0) {
                blocked |= 1u << who;
                continue;
            }
            bool served = false;
            // The direction whose turn was skipped is served first; the direction whose turn this was then
            // holds the claim.
            if (p.owed != NOBODY && move(now, p, p.owed)) {
                served = true;
                p.owed = p.owed != (who & 1) ? who & 1 : NOBODY;
            }
            if (!served && !move(now, p, who & 1)) continue;
            turn = who + 1 == 2 * cores ? 0 : who + 1;
            if (blocked) pass_over(now, blocked), blocked = 0;
        }
    }

    // The core's part of the same edge, in two halves: `accept` takes what the core did in this cycle,
    // `answer` sets what the core sees in the next one. If `lookahead` is 0, `arbitrate` must run between
    // them.
    void accept(uint64_t now, int c, CoreIn& in, const CoreOut& out) {
        Port& p = port[c];
        p.write_budget = refill(p.write_budget, write_gain, now - p.seen);
        p.seen = now;
        if (in.m_rvalid && out.m_rready) in.m_rvalid = 0;
        if (in.m_bvalid && out.m_bready) in.m_bvalid = 0;
        if (out.m_arvalid && in.m_arready) accept_read(now, c, out);
        if (out.m_awvalid && in.m_awready) accept_write(now, c, out);
        p.want_write = false;
        if (out.m_wvalid) {
            p.want_write = true;
            if (in.m_wready) {
                const bool credit = !p.prepaid;
                if (credit) p.write_budget -= BEAT_COST;
                p.prepaid = false;
                if (p.writes.count) {
                    send(now, c, out.m_wdata, out.m_wstrb, out.m_wlast, credit);
                } else {
                    p.early = true, p.early_last = out.m_wlast, p.early_strb = out.m_wstrb;
                    p.early_credit = credit;
                    std::memcpy(p.early_data, out.m_wdata, BEAT_BYTES);
                }
                if (out.m_wlast) p.want_write = false;
            }
        }
        if (p.prepaid) p.write_budget += BEAT_COST, p.prepaid = false;
    }

    void answer(uint64_t now, int c, CoreIn& in, const CoreOut& out) {
        Port& p = port[c];
        if (!in.m_rvalid && p.taken != p.given && p.read_slot(p.taken).granted <= now) deliver(now, c, in);
        for (; p.credited != p.written && p.write_slot(p.credited).granted <= now; p.credited++) {
            if (p.responses_known == p.responses.count) continue;
            WriteResponse& b = p.responses.at(p.responses_known);
            if (b.beat != p.credited) continue;
            b.due += p.write_slot(p.credited).granted - lookahead + cfg.write_latency;
            b.due = p.response_last_due = std::max(b.due, p.response_last_due);
            p.responses_known++;
        }
        take_writes(p, in);
        if (!in.m_bvalid && p.responses_known && p.responses.front().due <= now + 1) {
            const WriteResponse& b = p.responses.front();
            in.m_bvalid = 1, in.m_bid = b.id, in.m_bresp = b.resp;
            p.writes_open--;
            p.write_ids_full -= p.writes_open_of[b.id]-- == cfg.client_write_outstanding;
            p.responses.pop();
            p.responses_known--;
        }
        // The id of the next request is unknown until the request is made. While some id is at its limit,
        // ready is therefore given only to a request that is already held valid.
        bool held = out.m_arvalid && !in.m_arready;
        bool room = held ? p.reads[out.m_arid].count < cfg.client_read_outstanding : !p.read_ids_full;
        in.m_arready = room && p.reads_open < cfg.read_outstanding;
        held = out.m_awvalid && !in.m_awready;
        room = held ? p.writes_open_of[out.m_awid] < cfg.client_write_outstanding : !p.write_ids_full;
        in.m_awready = room && p.writes_open < cfg.write_outstanding;
    }

    // Moves the events that the ports recorded since the last call into the log, ordered by cycle, then by
    // core.
    void collect() {
        merge(faults, fresh, cores);
        if (faults.size() > MOST) faults.resize(MOST);
    }
    bool noted(int c) const { return !fresh[c].empty(); }

    template <class Event>
    static void merge(std::vector<Event>& log, std::vector<Event>* fresh, int cores) {
        const size_t before = log.size();
        for (int c = 0; c < cores; c++) {
            log.insert(log.end(), fresh[c].begin(), fresh[c].end());
            fresh[c].clear();
        }
        std::stable_sort(log.begin() + before, log.end(),
                         [](const Event& a, const Event& b) { return a.cycle < b.cycle; });
    }

    // Starts or stops recording which pages the cores write.
    void note_pages(bool on) { written.assign(on ? mapped.size() : 0, 0); }

    // Fills `to` with the pages written since the last call, one bit per page as in `mapped`, and returns
    // their number.
    uint64_t take_pages(uint64_t* to) {
        uint64_t count = 0;
        for (size_t n = 0; n < written.size(); n++) {
            count += uint64_t(__builtin_popcountll(written[n]));
            to[n] = written[n], written[n] = 0;
        }
        return count;
    }

    // All state that changes over time, except the memory's contents; see snapshot.h.
    template <class Archive>
    void archive(Archive& a) {
        a(counters, faults, watched, watched_writes, port);
        const size_t pages = mapped.size();
        a(budget, arbitrated, turn, read_count, write_count, mapped);
        if constexpr (Archive::reads) {
            a.failed |= mapped.size() != pages || turn < 0 || turn >= 2 * cores;
            for (const Port& p : port) a.failed |= !p.sound();
            mapped.resize(pages);
        }
    }

    const uint32_t lookahead;
    CoreCounters counters[MAX_CORES] = {};
    std::vector<FaultEvent> faults;
    uint64_t watched = ~0ull;  // a byte address; `watched_writes` holds the cycles in which it was written
    std::vector<uint64_t> watched_writes;
    Port port[MAX_CORES];

private:
    const DramConfig cfg;
    uint8_t* const mem;
    const int cores;
    int64_t gain, core_gain, port_gain, write_gain;
    std::vector<uint64_t> mapped;  // one bit per 4 KiB page, as in an IOMMU
    std::vector<uint64_t> written;  // the same, for pages written while they are recorded
    std::vector<FaultEvent> fresh[MAX_CORES];

    // The controller's own state; the rest is in the ports.
    int64_t budget;
    uint64_t arbitrated = 0;  // the last cycle in which there was work
    int turn = 0;
    // bursts so far; counted until the one at which the fault is injected
    uint64_t read_count = 0, write_count = 0;

    static constexpr int64_t BEAT_COST = int64_t(BEAT_BYTES) << 16;
    static constexpr int64_t OVERDRAFT = 8 * BEAT_COST;
    static constexpr size_t MOST = 65536;  // entries of the fault log at most

    // Beats that may be in the queues of a port: enough that the lookahead does not reduce the throughput.
    uint32_t depth() const { return lookahead + 2; }

    static int64_t refill(int64_t have, int64_t gain, uint64_t n) {
        if (have >= gain) return gain;
        if (n > 1u << 20) return gain;
        int64_t sum = have + int64_t(n) * gain;
        return sum > gain ? gain : sum;
    }

    uint32_t draw(Port& p) const {  // xorshift64*
        if (!cfg.jitter) return 0;
        p.random ^= p.random >> 12, p.random ^= p.random << 25, p.random ^= p.random >> 27;
        return uint32_t((p.random * 0x2545F4914F6CDD1Dull >> 33) % (cfg.jitter + 1));
    }

    bool present(uint64_t address) const {
        if (address >> 32) return false;
        uint64_t page = address >> 12;
        return mapped[page >> 6] >> (page & 63) & 1;
    }

    void fault(uint64_t now, int core, uint32_t client, uint64_t address, uint32_t kind) {
        if (fresh[core].size() < MOST) fresh[core].push_back({now, address, uint32_t(core), client, kind, 0});
    }

    // Whether the core may send this burst: INCR, full width, within one 4 KiB page.
    static bool legal(uint64_t address, uint8_t len, uint8_t size, uint8_t burst) {
        return burst == 1 && size == 5 && (address & 0xFFF) / BEAT_BYTES + len < 4096 / BEAT_BYTES;
    }

    // The core's side.

    void accept_read(uint64_t now, int c, const CoreOut& out) {
        Port& p = port[c];
        uint8_t resp = RESP_OKAY, id = out.m_arid;
        if (!legal(out.m_araddr, out.m_arlen, out.m_arsize, out.m_arburst)) {
            fault(now, c, id, out.m_araddr, FAULT_PROTOCOL);
            resp = RESP_SLVERR;
        }
        counters[c].read_requests++;
        if (read_count < cfg.fault_read && ++read_count == cfg.fault_read) {
            fault(now, c, id, out.m_araddr, FAULT_READ_INJECTED);
            resp = RESP_SLVERR;
        }
        uint64_t due = now + cfg.read_latency + draw(p);
        if (due < p.read_last_due[id]) due = p.read_last_due[id];
        p.read_last_due[id] = due;
        p.reads[id].push({out.m_araddr & ~uint64_t(31), due, uint16_t(out.m_arlen + 1), resp});
        p.read_ids |= 1u << id;
        p.reads_open++;
        p.read_ids_full += p.reads[id].count == cfg.client_read_outstanding;
    }

    void accept_write(uint64_t now, int c, const CoreOut& out) {
        Port& p = port[c];
        uint8_t resp = RESP_OKAY;
        if (!legal(out.m_awaddr, out.m_awlen, out.m_awsize, out.m_awburst)) {
            fault(now, c, out.m_awid, out.m_awaddr, FAULT_PROTOCOL);
            resp = RESP_SLVERR;
        }
        counters[c].write_requests++;
        if (write_count < cfg.fault_write && ++write_count == cfg.fault_write) {
            fault(now, c, out.m_awid, out.m_awaddr, FAULT_WRITE_INJECTED);
            resp = RESP_SLVERR;
        }
        p.writes.push({out.m_awaddr & ~uint64_t(31), uint16_t(out.m_awlen + 1), out.m_awid, resp});
        p.writes_open++;
        p.write_ids_full += ++p.writes_open_of[out.m_awid] == cfg.client_write_outstanding;
        if (p.early) {
            p.early = false;
            send(now, c, p.early_data, p.early_strb, p.early_last, p.early_credit);
        }
    }

    // Passes a beat whose address is known to the controller.
    void send(uint64_t now, int c, const uint32_t* data, uint32_t strb, bool last, bool credit) {
        Port& p = port[c];
        WriteBurst& w = p.writes.front();
        uint64_t address = w.address + p.write_beat * BEAT_BYTES;
        if (!present(address)) {
            if (!p.write_faulted) fault(now, c, w.id, address, FAULT_WRITE_UNMAPPED);
            p.write_faulted = true;
            w.resp = RESP_DECERR;
        }
        WriteBeat& b = p.write_slot(p.queued);
        b.at = now, b.address = address, b.credit = credit;
        b.strb = w.resp == RESP_OKAY ? strb : 0;
        std::memcpy(b.data, data, BEAT_BYTES);
        if (watched - address < BEAT_BYTES && b.strb >> (watched - address) & 1) watched_writes.push_back(now);
        counters[c].bytes_written[w.id] += uint64_t(__builtin_popcount(strb));
        p.write_beat++;
        if (last != (p.write_beat == w.beats)) fault(now, c, w.id, address, FAULT_PROTOCOL);
        if (p.write_beat == w.beats) {
            p.responses.push({draw(p), p.queued, w.id, w.resp});
            p.writes.pop();
            p.write_beat = 0, p.write_faulted = false;
        }
        p.queued++;
    }

    // Puts the next granted beat on the bus.
    void deliver(uint64_t now, int c, CoreIn& in) {
        Port& p = port[c];
        ReadBeat& b = p.read_slot(p.taken++);
        b.taken = now;
        if (p.current < 0) p.current = b.id, p.beat = 0, p.burst_faulted = false;
        const ReadBurst& r = p.reads[b.id].front();
        if (b.resp == RESP_DECERR) {
            if (!p.burst_faulted) fault(now, c, b.id, r.address + p.beat * BEAT_BYTES, FAULT_READ_UNMAPPED);
            p.burst_faulted = true;
        }
        std::memcpy(in.m_rdata, b.data, BEAT_BYTES);
        counters[c].bytes_read[b.id] += BEAT_BYTES;
        in.m_rvalid = 1, in.m_rid = b.id, in.m_rresp = b.resp;
        p.beat++;
        in.m_rlast = p.beat == r.beats;
        if (in.m_rlast) {
            p.read_ids_full -= p.reads[b.id].count == cfg.client_read_outstanding;
            p.reads[b.id].pop();
            p.bursts_given[b.id]--;
            p.reads_open--;
            p.current = -1;
        }
    }

    // Sets wready. For a waiting write beat, its bytes are first taken from the port's budget, whose rate is
    // at most what one core can move. Without a waiting beat, ready stays open, and the beat that uses it is
    // charged afterwards, within the overdraft.
    void take_writes(Port& p, CoreIn& in) {
        const bool room = (p.writes.count || !p.early) && p.queued - p.credited + p.early < depth();
        if (!p.want_write) {
            in.m_wready = room && p.write_budget > -OVERDRAFT;
            return;
        }
        in.m_wready = 0;
        if (!room || p.write_budget <= 0) return;
        p.write_budget -= BEAT_COST;
        p.prepaid = true;
        in.m_wready = 1;
    }

    // The controller's side.

    bool move(uint64_t now, Port& p, int way) { return way ? grant_write(now, p) : give_read(now, p); }

    // Another direction was served: the directions whose turns were skipped keep a claim on their core's next
    // grant.
    void pass_over(uint64_t now, uint32_t turns) {
        for (; turns; turns &= turns - 1) {
            const int who = __builtin_ctz(turns);
            Port& p = port[who >> 1];
            if (p.owed == NOBODY && (who & 1 ? wants_write(now, p) : wants_read(now, p))) p.owed = who & 1;
        }
    }

    bool wants_write(uint64_t now, Port& p) const {
        return p.written != p.queued && p.write_slot(p.written).at + lookahead <= now;
    }

    bool wants_read(uint64_t now, Port& p) const {
        return may_read(now, p) && (p.serving >= 0 || due_read(now, p) >= 0);
    }

    // Whether read beats are requested and there is room for one on its way to the core.
    bool may_read(uint64_t now, Port& p) const {
        if (!p.read_ids) return false;
        while (p.freed != p.taken && p.read_slot(p.freed).taken + lookahead <= now) p.freed++;
        return p.given - p.freed < depth();
    }

    // Returns the first id at or after next_id whose oldest burst is due, or -1.
    static int due_read(uint64_t now, Port& p) {
        uint64_t order = (uint64_t(p.read_ids) << 32 | p.read_ids) >> p.next_id << p.next_id;
        for (; order; order &= order - 1) {
            const int id = __builtin_ctzll(order) & 31;
            if (p.reads[id].at(p.bursts_given[id]).due <= now + 1) return id;
        }
        return -1;
    }

    bool give_read(uint64_t now, Port& p) {
        if (!may_read(now, p)) return false;
        if (p.serving < 0) {
            p.serving = due_read(now, p);
            if (p.serving < 0) return false;
            p.serving_beat = 0;
        }
        if (budget <= 0 || p.read_budget <= 0) return false;
        budget -= BEAT_COST, p.core_budget -= BEAT_COST, p.read_budget -= BEAT_COST;
        const int id = p.serving;
        const ReadBurst& r = p.reads[id].at(p.bursts_given[id]);
        const uint64_t address = r.address + p.serving_beat * BEAT_BYTES;
        ReadBeat& b = p.read_slot(p.given++);
        b.granted = now, b.id = uint8_t(id), b.resp = present(address) ? r.resp : RESP_DECERR;
        if (b.resp == RESP_OKAY) std::memcpy(b.data, mem + address, BEAT_BYTES);
        else std::memset(b.data, 0, BEAT_BYTES);
        if (++p.serving_beat == r.beats) {
            if (++p.bursts_given[id] == p.reads[id].count) p.read_ids &= ~(1u << id);
            p.serving = -1;
            p.next_id = (id + 1) & 31;
        }
        return true;
    }

    bool grant_write(uint64_t now, Port& p) {
        if (budget <= 0 || !wants_write(now, p)) return false;
        write(now, p, p.write_slot(p.written));
        return true;
    }

    void write(uint64_t now, Port& p, WriteBeat& b) {
        budget -= BEAT_COST, p.core_budget -= BEAT_COST;
        land(b);
        b.granted = now;
        p.written++;
    }

    void land(const WriteBeat& b) {
        if (!b.strb) return;
#ifdef RKCOSIM_TIMING
        return;  // the model has no data
#endif
        if (!written.empty()) written[b.address >> 18] |= uint64_t(1) << (b.address >> 12 & 63);
        uint8_t* to = mem + b.address;
        const uint8_t* from = reinterpret_cast<const uint8_t*>(b.data);
        if (b.strb == 0xFFFFFFFFu) std::memcpy(to, from, BEAT_BYTES);
        else
            for (uint32_t i = 0; i < BEAT_BYTES; i++)
                if (b.strb >> i & 1) to[i] = from[i];
    }
};
