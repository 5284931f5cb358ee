// The memory without a core (dram.h), for cores that are simulated elsewhere (cosim/engines/dram.py).
#include "../dram.h"

extern "C" {

// Sizes of the shared structs, so that Python detects a library of another version.
uint64_t dram_abi() {
    return sizeof(CoreIn) | sizeof(CoreOut) << 8 | sizeof(Counters) << 16 | uint64_t(sizeof(DramConfig)) << 32;
}

Dram* dram_create(const DramConfig* config, uint8_t* memory, int cores) {
    if (cores < 1 || cores > MAX_CORES) return nullptr;
    return new Dram(*config, memory, cores);
}
void dram_destroy(Dram* d) { delete d; }
void dram_map(Dram* d, uint64_t first_page, uint64_t pages, int on) { d->map(first_page, pages, on); }

// The clock edge that ends cycle `now`, for all cores: sets `in` to what the cores see in the next cycle.
void dram_edge(Dram* d, uint64_t now, int cores, CoreIn* in, const CoreOut* out) {
    for (int c = 0; c < cores; c++) d->accept(now, c, in[c], out[c]);
    d->arbitrate(now);
    for (int c = 0; c < cores; c++) d->answer(now, c, in[c], out[c]);
}
void dram_reset(Dram* d, int core, CoreIn* in) { d->reset(core, *in); }

// First cycle whose end changes something at a port, if the core does not act before: 0 for at once, all ones
// for never.
uint64_t dram_wakes(const Dram* d, int core, const CoreIn* in) {
    const Port& p = d->port[core];
    if (in->m_rvalid || in->m_bvalid || !in->m_arready || !in->m_awready || !in->m_wready) return 0;
    if (p.want_write || p.prepaid || p.serving >= 0 || p.given != p.taken || p.queued != p.credited) return 0;
    uint64_t due = ~uint64_t(0);
    for (int id = 0; id < READ_IDS; id++)
        if (p.reads[id].count > p.bursts_given[id]) due = std::min(due, p.reads[id].at(p.bursts_given[id]).due);
    if (p.responses.count) due = std::min(due, p.responses.at(0).due);
    return due == ~uint64_t(0) || !due ? due : due - 1;
}

uint64_t dram_faults(Dram* d, uint64_t first, FaultEvent* to, uint64_t room) {
    d->collect();
    const uint64_t size = d->faults.size();
    const uint64_t n = first < size ? std::min(size - first, room) : 0;
    if (n) std::memcpy(to, d->faults.data() + first, n * sizeof(FaultEvent));
    return n;
}
void dram_counters(const Dram* d, int core, Counters* to) { *to = d->counters[core]; }

// Open bursts: reads by id, then writes by id.
void dram_open_bursts(const Dram* d, int core, uint32_t* to) {
    const Port& p = d->port[core];
    for (int i = 0; i < READ_IDS; i++) *to++ = p.reads[i].count;
    for (int i = 0; i < WRITE_IDS; i++) *to++ = p.writes_open_of[i];
}
}
