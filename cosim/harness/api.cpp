// The C interface that Python calls (cosim/engines/library.py).  RKCOSIM_MODEL names the adaptor.
#include RKCOSIM_MODEL
#include "soc.h"

using System = Soc<CoreModel>;

namespace {
template <class T>
uint64_t copy(const std::vector<T>& from, uint64_t first, T* to, uint64_t room) {
    uint64_t n = first < from.size() ? from.size() - first : 0;
    if (n > room) n = room;
    if (n) std::memcpy(to, from.data() + first, n * sizeof(T));
    return n;
}

thread_local StateWriter saved;  // between rk_save and rk_saved
}  // namespace

extern "C" {

// Sizes of the shared structs, so that Python notices a library of another version.
uint64_t rk_abi() {
    return sizeof(CoreIn) | sizeof(CoreOut) << 8 | sizeof(Counters) << 16 | sizeof(TaskEvent) << 32 |
           sizeof(DramConfig) << 48;
}

// `external` steps a core that is not part of this library (external_model.h only).
System* rk_create(int cores, const DramConfig* config, uint8_t* memory, StepFunction external) {
    if (cores < 1 || cores > MAX_CORES) return nullptr;
    return new System(cores, *config, memory, external);
}
void rk_destroy(System* s) {
    s->tracer.close();
    delete s;
}
void rk_map(System* s, uint64_t first_page, uint64_t pages, int on) { s->dram.map(first_page, pages, on); }
void rk_reset(System* s, uint32_t mask, uint32_t cycles) { s->reset(mask, cycles); }
int rk_write(System* s, int core, uint32_t address, uint32_t data, uint32_t bound) {
    return s->lite_write(core, address, data, bound);
}
int rk_read(System* s, int core, uint32_t address, uint32_t* data, uint32_t bound) {
    return s->lite_read(core, address, data, bound);
}
int rk_run(System* s, uint64_t end, uint32_t irq_mask, int stop_on_diagnostic) {
    return s->run(end, irq_mask, stop_on_diagnostic);
}
// Diagnostics that run() has not stopped for yet; it will not stop for them any more.
uint64_t rk_take_diagnostics(System* s) {
    uint64_t fresh = s->diagnostics.size() - s->diagnostics_seen;
    s->diagnostics_seen = s->diagnostics.size();
    return fresh;
}
uint64_t rk_cycle(const System* s) { return s->cycle; }
uint32_t rk_irq(const System* s) { return s->irq(); }
void rk_options(System* s, uint32_t mask) { s->set_options(uint8_t(mask)); }
void rk_may_sleep(System* s, int on) { s->may_sleep = on; }
void rk_threads(System* s, uint32_t count, int always) { s->set_threads(count, always); }
void rk_window(System* s, uint32_t most) { s->set_window(most); }
uint32_t rk_lookahead(const System* s) { return s->dram.lookahead; }
void rk_pins(const System* s, int core, CoreIn* in, CoreOut* out) { *in = s->in[core], *out = s->out[core]; }
void rk_counters(const System* s, int core, Counters* to) { *to = s->dram.counters[core]; }
// Bursts under way: reads by id, then writes by id.
void rk_open_bursts(const System* s, int core, uint32_t* to) {
    const Port& p = s->dram.port[core];
    for (int i = 0; i < READ_IDS; i++) *to++ = p.reads[i].count;
    for (int i = 0; i < WRITE_IDS; i++) *to++ = p.writes_open_of[i];
}
uint64_t rk_tasks(const System* s, uint64_t first, TaskEvent* to, uint64_t room) {
    return copy(s->tasks, first, to, room);
}
uint64_t rk_diagnostics(const System* s, uint64_t first, DiagnosticEvent* to, uint64_t room) {
    return copy(s->diagnostics, first, to, room);
}
uint64_t rk_faults(const System* s, uint64_t first, FaultEvent* to, uint64_t room) {
    return copy(s->dram.faults, first, to, room);
}
uint64_t rk_probes(const System* s, uint64_t first, ProbeEvent* to, uint64_t room) {
    return copy(s->probes(), first, to, room);
}
// Whether rk_run also returns (RUN_TASK) after each begin and end of a task.
void rk_stop_at_tasks(System* s, int on) { s->set_stop_at_tasks(on); }
// Snapshots (snapshot.h): the size of the state, 0 if this model cannot be saved; then its bytes.
uint64_t rk_save(System* s) {
    saved = StateWriter();
    if constexpr (System::savable) s->archive(saved);
    return saved.bytes.size();
}
void rk_saved(uint8_t* to) {
    std::memcpy(to, saved.bytes.data(), saved.bytes.size());
    saved = StateWriter();
}
// 0 if the system now is as it was; else it is of no use any more.
int rk_restore(System* s, const uint8_t* from, uint64_t size) {
    StateReader reader(from, size);
    if constexpr (System::savable) s->archive(reader);
    return System::savable && reader.good() ? 0 : 1;
}
// Pages that the cores write, noted from now on or no longer; those since the last time (16384 words).
void rk_note_pages(System* s, int on) { s->dram.note_pages(on); }
uint64_t rk_take_pages(System* s, uint64_t* to) { return s->dram.take_pages(to); }
// Performance counters (counters.h): what the register SWITCH says; the counts by the order of their
// registers, as they are or (`kept`) as they were latched.  The latter returns whether they count.
void rk_count(System* s, int core, int enable, int clear, int latch) { s->count(core, enable, clear, latch); }
int rk_counts(const System* s, int core, int kept, BlockCounts* to) {
    *to = kept ? s->blocks[core].kept() : s->blocks[core].live();
    return s->in[core].counting;
}
// Events; see events.h.  A null config ends the recording and forgets it.
void rk_record(System* s, const RecordConfig* config) {
    if (config) s->record_events(*config);
    else s->recorder.reset();
}
void rk_kick(System* s, int core) { s->kick(core); }
// Number of records up to now; `dropped`: those that found no room, by kind.
uint64_t rk_settle(System* s, uint64_t* dropped) {
    if (!s->recorder) return 0;
    s->recorder->settle(s->cycle);
    std::memcpy(dropped, s->recorder->dropped, sizeof s->recorder->dropped);
    return s->recorder->records.size();
}
uint64_t rk_records(const System* s, uint64_t first, Record* to, uint64_t room) {
    return s->recorder ? copy(s->recorder->records, first, to, room) : 0;
}
// Waveforms (trace.h): what there is to trace, one that begins and ends by itself, and its end before that.
const char* rk_trace_names(System* s) { return s->trace_names(); }
int rk_trace(System* s, const char* path, const FstFunctions* fst, const char* lines, const TraceOrder* order) {
    return s->tracer.open(path, fst, lines, *order, s->cycle) ? 0 : 1;
}
void rk_trace_close(System* s) { s->tracer.close(); }
void rk_trace_status(const System* s, TraceStatus* to) { *to = s->tracer.status(); }
// The layers of a core's next job.
uint32_t rk_layer_number(System* s, const char* name) { return s->progress.intern(name); }
void rk_announce(System* s, int core, const LayerTasks* layers, uint64_t count) {
    s->progress.core[core].announced.assign(layers, layers + count);
}
// Cycles of the writes to the byte at an address, from when it is named on.
void rk_watch_memory(System* s, uint64_t address) { s->dram.watched = address, s->dram.watched_writes.clear(); }
uint64_t rk_memory_writes(const System* s, uint64_t first, uint64_t* to, uint64_t room) {
    return copy(s->dram.watched_writes, first, to, room);
}
// Something went wrong that the simulation does not see, as a wait without an end.
void rk_error(System* s) { s->tracer.fail_at(s->cycle); }
}
