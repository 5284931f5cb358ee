// DRAM and interconnect: the AXI4 slave side of up to three cores.
//
// A core's side of its port makes the handshakes, and one controller shares the memory's peak bandwidth
// among all ports and directions: beat by beat in turns.  Reads take their bytes when the controller gives
// the beat, in the cycle in which the bus can take it; writes land when the controller grants the beat,
// which it sees `lookahead` cycles after the core sent it (that is part of the write latency).  So the
// controller can be simulated up to `lookahead` cycles ahead of the cores, and in those cycles no core can
// see what another one does.  Beats of one id stay in order; ids of a core take turns burst by burst, cores
// take turns beat by beat.  Every signal towards a core is a register: it changes at the clock edge only.
#pragma once
#include <algorithm>
#include <cstring>
#include <vector>

#include "port.h"

struct alignas(64) CoreCounters : Counters {};  // no two cores in one cache line

class Dram {
public:
    Dram(const DramConfig& config, uint8_t* memory, int cores)
        : lookahead(lookahead_of(config)), cfg(config), mem(memory), cores(cores) {
        gain = int64_t(cfg.peak_bytes_per_cycle * cfg.efficiency * 65536.0);
        port_gain = int64_t(cfg.port_bytes_per_cycle * 65536.0);
        write_gain = std::min(gain, port_gain);
        budget = gain;
        for (int c = 0; c < MAX_CORES; c++) {
            port[c].random = cfg.seed * 2 + 1 + c * 0x9E3779B97F4A7C16ull;
            port[c].read_budget = port_gain, port[c].write_budget = write_gain;
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

    // Data that the core has sent are written, everything else under way is forgotten.
    void reset(int core, CoreIn& in) {
        Port& p = port[core];
        for (; p.written != p.queued; p.written++) land(p.write_slot(p.written));
        p.clear();
        p.read_budget = port_gain, p.write_budget = write_gain;
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

    // Whether the number of a burst among those of all cores is still asked for.
    bool counting() const { return read_count < cfg.fault_read || write_count < cfg.fault_write; }

    // The controller's part of the clock edge that ends cycle `now`: all that may be seen of the cores was
    // done `lookahead` cycles before.
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
            p.read_budget = refill(p.read_budget, port_gain, passed);
            // What came while ready stood open does not wait for its turn, within an overdraft.
            if (p.written == p.queued || budget <= -OVERDRAFT) continue;
            WriteBeat& b = p.write_slot(p.written);
            if (b.credit && b.at + lookahead == now) write(now, p, b);
        }
        // Cores and directions share the budget in turns; the turn moves past the last one served.
        const int start = turn;
        for (int k = 0; k < 2 * cores; k++) {
            int who = start + k;
            if (who >= 2 * cores) who -= 2 * cores;
            if (!(pending >> (who >> 1) & 1)) continue;
            Port& p = port[who >> 1];
            if (who & 1 ? grant_write(now, p) : give_read(now, p)) turn = who + 1 == 2 * cores ? 0 : who + 1;
        }
    }

    // The core's part of the same edge, in two halves: what the core has done in the cycle, and what it
    // shall see in the next.  Where `lookahead` is 0, the controller's lies between them.
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
        // Whose request comes next is not known before it asks, so while some id is at its limit
        // ready only answers a request that is held.
        bool held = out.m_arvalid && !in.m_arready;
        bool room = held ? p.reads[out.m_arid].count < cfg.client_read_outstanding : !p.read_ids_full;
        in.m_arready = room && p.reads_open < cfg.read_outstanding;
        held = out.m_awvalid && !in.m_awready;
        room = held ? p.writes_open_of[out.m_awid] < cfg.client_write_outstanding : !p.write_ids_full;
        in.m_awready = room && p.writes_open < cfg.write_outstanding;
    }

    // Puts what the ports have noted since the last time into the log: by cycle, then by core.
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

    // Pages that cores write are noted from now on, or no longer.
    void note_pages(bool on) { written.assign(on ? mapped.size() : 0, 0); }

    // Those written since the last time, a bit each as in `mapped`; their number.
    uint64_t take_pages(uint64_t* to) {
        uint64_t count = 0;
        for (size_t n = 0; n < written.size(); n++) {
            count += uint64_t(__builtin_popcountll(written[n]));
            to[n] = written[n], written[n] = 0;
        }
        return count;
    }

    // All that changes as cycles pass, but for the memory itself; see snapshot.h.
    template <class Archive>
    void archive(Archive& a) {
        a(counters, faults, watched, watched_writes, port);
        a(budget, arbitrated, turn, read_count, write_count, mapped);
    }

    const uint32_t lookahead;
    CoreCounters counters[MAX_CORES] = {};
    std::vector<FaultEvent> faults;
    uint64_t watched = ~0ull;  // an address, and the cycles in which a byte was written there
    std::vector<uint64_t> watched_writes;
    Port port[MAX_CORES];

private:
    const DramConfig cfg;
    uint8_t* const mem;
    const int cores;
    int64_t gain, port_gain, write_gain;
    std::vector<uint64_t> mapped;  // a bit for each 4 KiB page, as in an IOMMU
    std::vector<uint64_t> written;  // likewise, while pages are noted
    std::vector<FaultEvent> fresh[MAX_CORES];

    // The controller's state beside what is in the ports.
    int64_t budget;
    uint64_t arbitrated = 0;  // the last cycle in which there was something to do
    int turn = 0;
    uint64_t read_count = 0, write_count = 0;  // bursts, up to the one that is to fail

    static constexpr int64_t BEAT_COST = int64_t(BEAT_BYTES) << 16;
    static constexpr int64_t OVERDRAFT = 8 * BEAT_COST;
    static constexpr size_t MOST = 65536;  // faults in the log

    // Beats that may be under way inside: enough that their way through does not slow them down.
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

    // Is this a burst that the core may send: INCR, full width, inside one 4 KiB page?
    static bool legal(uint64_t address, uint8_t len, uint8_t size, uint8_t burst) {
        return burst == 1 && size == 5 && (address & 0xFFF) / BEAT_BYTES + len < 4096 / BEAT_BYTES;
    }

    // The core's side

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

    // A beat whose address is known goes to the controller.
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

    // Puts the next beat on the bus.
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

    // Ready for a waiting write beat, its bytes reserved at the pace of the port, which is not faster than
    // the memory's peak.  Without one, ready stands open and the beat that takes it is paid afterwards,
    // within an overdraft.
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

    // The controller's side

    bool give_read(uint64_t now, Port& p) {
        if (!p.read_ids) return false;
        while (p.freed != p.taken && p.read_slot(p.freed).taken + lookahead <= now) p.freed++;
        if (p.given - p.freed >= depth()) return false;
        if (p.serving < 0) {
            // first id at or after next_id whose oldest burst is due
            uint64_t order = (uint64_t(p.read_ids) << 32 | p.read_ids) >> p.next_id << p.next_id;
            for (; order; order &= order - 1) {
                int id = __builtin_ctzll(order) & 31;
                if (p.reads[id].at(p.bursts_given[id]).due <= now + 1) {
                    p.serving = id;
                    break;
                }
            }
            if (p.serving < 0) return false;
            p.serving_beat = 0;
        }
        if (budget <= 0 || p.read_budget <= 0) return false;
        budget -= BEAT_COST, p.read_budget -= BEAT_COST;
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
        if (p.written == p.queued) return false;
        WriteBeat& b = p.write_slot(p.written);
        if (b.at + lookahead > now || budget <= 0) return false;
        write(now, p, b);
        return true;
    }

    void write(uint64_t now, Port& p, WriteBeat& b) {
        budget -= BEAT_COST;
        land(b);
        b.granted = now;
        p.written++;
    }

    void land(const WriteBeat& b) {
        if (!b.strb) return;
        if (!written.empty()) written[b.address >> 18] |= uint64_t(1) << (b.address >> 12 & 63);
        uint8_t* to = mem + b.address;
        const uint8_t* from = reinterpret_cast<const uint8_t*>(b.data);
        if (b.strb == 0xFFFFFFFFu) std::memcpy(to, from, BEAT_BYTES);
        else
            for (uint32_t i = 0; i < BEAT_BYTES; i++)
                if (b.strb >> i & 1) to[i] = from[i];
    }
};
