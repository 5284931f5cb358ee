// The C interface that Python calls (cosim/engines/library.py). RKCOSIM_MODEL names the header of the
// adaptor.
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

// Sizes of the shared structs, so that Python detects a library of another version.
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
// Returns the number of diagnostics for which run() has not stopped yet; it will not stop for them any more.
uint64_t rk_take_diagnostics(System* s) {
    uint64_t fresh = s->diagnostics.size() - s->diagnostics_seen;
    s->diagnostics_seen = s->diagnostics.size();
    return fresh;
}
uint64_t rk_cycle(const System* s) { return s->cycle; }
// After RUN_MODEL_ERROR or LITE_MODEL_ERROR: cycle, core, place and assertion that failed; "" if it was
// something else.
const char* rk_failure(const System* s) { return s->failure.c_str(); }
uint32_t rk_irq(const System* s) { return s->irq(); }
void rk_options(System* s, uint32_t mask) { s->set_options(uint8_t(mask)); }
void rk_may_sleep(System* s, int on) { s->may_sleep = on; }
void rk_threads(System* s, uint32_t count, int always) { s->set_threads(count, always); }
void rk_window(System* s, uint32_t most) { s->set_window(most); }
// How long cores wait for those that they work with; for tests.
void rk_patience(System* s, uint32_t join, uint32_t patience) { s->set_patience(join, patience); }
uint32_t rk_lookahead(const System* s) { return s->dram.lookahead; }
void rk_pins(const System* s, int core, CoreIn* in, CoreOut* out) { *in = s->in[core], *out = s->out[core]; }
void rk_counters(const System* s, int core, Counters* to) { *to = s->dram.counters[core]; }
// Open bursts: reads by id, then writes by id.
void rk_open_bursts(const System* s, int core, uint32_t* to) {
    const Port& p = s->dram.port[core];
    for (int i = 0; i < READ_IDS; i++) *to++ = p.reads[i].count;
    for (int i = 0; i < WRITE_IDS; i++) *to++ = p.writes_open_of[i];
}
uint64_t rk_tasks(const System* s, uint64_t first, TaskEvent* to, uint64_t room) {
    return copy(s->tasks, std::max(first, s->tasks_gone) - s->tasks_gone, to, room);
}
// The number of the oldest events that are no longer kept, and of starts among them; how many are kept at
// least (0: all).
uint64_t rk_tasks_gone(const System* s, uint64_t* starts) {
    *starts = s->starts_gone;
    return s->tasks_gone;
}
void rk_keep_tasks(System* s, uint64_t most) { s->tasks_kept = most; }
uint64_t rk_diagnostics(const System* s, uint64_t first, DiagnosticEvent* to, uint64_t room) {
    return copy(s->diagnostics, first, to, room);
}
uint64_t rk_faults(const System* s, uint64_t first, FaultEvent* to, uint64_t room) {
    return copy(s->dram.faults, first, to, room);
}
uint64_t rk_probes(const System* s, uint64_t first, ProbeEvent* to, uint64_t room) {
    return copy(s->probes(), first, to, room);
}
// Whether rk_run also returns (RUN_TASK) after each start and end of a task.
void rk_stop_at_tasks(System* s, int on) { s->set_stop_at_tasks(on); }
// Snapshots (snapshot.h): rk_save returns the size of the state, 0 if this model cannot be saved; rk_saved
// copies it.
uint64_t rk_save(System* s) {
    saved = StateWriter();
    if constexpr (System::savable) s->archive(saved);
    return saved.bytes.size();
}
void rk_saved(uint8_t* to) {
    std::memcpy(to, saved.bytes.data(), saved.bytes.size());
    saved = StateWriter();
}
// Returns 0 on success. After any other value the system must not be used any more.
int rk_restore(System* s, const uint8_t* from, uint64_t size) {
    StateReader reader(from, size);
    if constexpr (System::savable) s->archive(reader);
    return System::savable && reader.good() ? 0 : 1;
}
// Starts or stops recording the pages that the cores write; takes those written since the last call (16384
// words).
void rk_note_pages(System* s, int on) { s->dram.note_pages(on); }
uint64_t rk_take_pages(System* s, uint64_t* to) { return s->dram.take_pages(to); }
// Performance counters (counters.h): rk_count writes the register SWITCH; rk_counts copies the counts in the
// order of their registers, live or (`kept`) as last latched, and returns whether they are enabled.
void rk_count(System* s, int core, int enable, int clear, int latch) { s->count(core, enable, clear, latch); }
int rk_counts(const System* s, int core, int kept, BlockCounts* to) {
    *to = kept ? s->blocks[core].kept() : s->blocks[core].live();
    return s->in[core].counting;
}
// Events; see events.h. A null config ends the recording and discards it.
void rk_record(System* s, const RecordConfig* config) {
    if (config) s->record_events(*config);
    else s->recorder.reset();
}
void rk_kick(System* s, int core) { s->kick(core); }
// Returns the number of records so far; `dropped`: by kind, the number of those that found no room.
uint64_t rk_settle(System* s, uint64_t* dropped) {
    if (!s->recorder) return 0;
    s->recorder->settle(s->cycle);
    std::memcpy(dropped, s->recorder->dropped, sizeof s->recorder->dropped);
    return s->recorder->records.size();
}
uint64_t rk_records(const System* s, uint64_t first, Record* to, uint64_t room) {
    return s->recorder ? copy(s->recorder->records, first, to, room) : 0;
}
// Waveforms (trace.h): the signals that can be traced; rk_trace starts a waveform that ends by itself,
// rk_trace_close ends it earlier.
const char* rk_trace_names(System* s) { return s->trace_names(); }
int rk_trace(System* s, const char* path, const FstFunctions* fst, const char* lines, const TraceOrder* order) {
    return s->tracer.open(path, fst, lines, *order, s->cycle) ? 0 : 1;
}
void rk_trace_close(System* s) { s->tracer.close(); }
void rk_trace_status(const System* s, TraceStatus* to) { *to = s->tracer.status(); }
// Copies the present values of variables, declared as for rk_trace, in whole words; returns the number of
// words, 0 if there are none to copy.
uint64_t rk_values(System* s, const char* lines, uint32_t* to, uint64_t room) {
    std::vector<uint32_t> found;
    return s->tracer.values_of(lines, found) ? copy(found, 0, to, room) : 0;
}
// The layers of a core's next job.
uint32_t rk_layer_number(System* s, const char* name) { return s->progress.intern(name); }
void rk_announce(System* s, int core, const LayerTasks* layers, uint64_t count) {
    s->progress.core[core].announced.assign(layers, layers + count);
}
// Cycles of the writes to the byte at an address, counted from the call of rk_watch_memory.
void rk_watch_memory(System* s, uint64_t address) { s->dram.watched = address, s->dram.watched_writes.clear(); }
uint64_t rk_memory_writes(const System* s, uint64_t first, uint64_t* to, uint64_t room) {
    return copy(s->dram.watched_writes, first, to, room);
}
#ifdef RKCOSIM_COVERAGE
// Adds the coverage counters of all cores to `to`, clears them and returns their number.
uint64_t rk_take_coverage(System* s, uint32_t* to, uint64_t room) { return s->take_coverage(to, room); }
#endif
// Reports an error that the simulation does not detect, such as a wait that timed out.
void rk_error(System* s) { s->tracer.fail_at(s->cycle); }
}
