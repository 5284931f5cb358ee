// Up to three cores, the DRAM, and a register bus driver per core.
//
// All cores advance one clock edge at a time while the host accesses registers, while fewer than two cores
// are awake, and while anything is observed cycle by cycle. Otherwise each core advances alone through a
// window of up to `Dram::lookahead` cycles, with several cores in parallel threads: cores influence each
// other through memory only, and that takes at least as long. Cycles, bytes and logs are the same in both
// modes.
#pragma once
#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <string>

#include "co_work.h"
#include "counters.h"
#include "events.h"
#include "snapshot.h"
#include "threads.h"
#include "trace.h"

enum RunResult { RUN_BOUND = 0, RUN_IRQ = 1, RUN_DIAGNOSTIC = 2, RUN_MODEL_ERROR = 3, RUN_TASK = 4 };
// Other values are the AXI response.
enum LiteResult { LITE_OK = 0, LITE_TIMEOUT = 100, LITE_MODEL_ERROR = 101 };

// Model: one compiled core. edge() is the rising clock edge and takes the pins of the cycle after it, pull()
// reads the core's outputs after it, trace_*() sample its inner signals. See verilator_model.h.
template <class Model>
class Soc {
public:
    std::string failure;  // what failed, once failed() is true; empty if it is not known

    Soc(int cores, const DramConfig& config, uint8_t* memory, StepFunction external)
        : cores(cores), dram(config, memory, cores), shared(external) {
        for (int c = 0; c < cores; c++) {
            model[c] = std::make_unique<Model>(shared, c);
            std::memset(&in[c], 0, sizeof in[c]);
            std::memset(&out[c], 0, sizeof out[c]);
            in[c].core_index = uint8_t(c);
            in[c].step_answer = StepUnit::FIRST_ANSWER;
            Dram::release(in[c]);
        }
        tasks.reserve(4096);
        diagnostics.reserve(1024);
    }

    // Interpretations of the hardware (spec/regs/options.py); to be set before the first reset.
    void set_options(uint8_t mask) {
        for (int c = 0; c < cores; c++) in[c].options = mask;
    }

    void reset(uint32_t mask, uint32_t cycles) {
        for (int c = 0; c < cores; c++)
            if (mask >> c & 1) {
                const uint8_t index = in[c].core_index, counting = in[c].counting, options = in[c].options;
                const uint32_t answer = in[c].step_answer;
                std::memset(&in[c], 0, sizeof in[c]);
                in[c].core_index = index, in[c].counting = counting, in[c].options = options;
                in[c].step_answer = answer;
                blocks[c].forget_writes();
                in[c].rst = 1;
                dram.reset(c, in[c]);
                state[c].quiet = 0;
                state[c].at_work = NO_TASK;
                if (recorder) recorder->reset(cycle, c);
            }
        for (uint32_t i = 0; i < cycles; i++) step();
        for (int c = 0; c < cores; c++)
            if (mask >> c & 1) {
                in[c].rst = 0;
                dram.reset(c, in[c]);  // drops what the core requested during its reset
                if (recorder) recorder->reset(cycle, c);
            }
    }

    // Register accesses: values set here in `in` are on the pins from the next edge on.
    int lite_write(int core, uint32_t address, uint32_t data, uint32_t bound) {
        CoreIn& i = in[core];
        const CoreOut& o = out[core];
        i.s_awvalid = i.s_wvalid = i.s_bready = 1;
        i.s_awaddr = uint16_t(address), i.s_wdata = data, i.s_wstrb = 15;
        int result = LITE_TIMEOUT;
        step();
        for (uint32_t n = 0; n < bound && result == LITE_TIMEOUT; n++) {
            if (o.s_awready) i.s_awvalid = 0;
            if (o.s_wready) i.s_wvalid = 0;
            if (o.s_bvalid) result = o.s_bresp;
            if (o.s_bvalid || n + 1 == bound) i.s_awvalid = i.s_wvalid = i.s_bready = 0;
            step();
        }
        return failed() ? int(LITE_MODEL_ERROR) : result;
    }

    int lite_read(int core, uint32_t address, uint32_t* data, uint32_t bound) {
        CoreIn& i = in[core];
        const CoreOut& o = out[core];
        i.s_arvalid = i.s_rready = 1;
        i.s_araddr = uint16_t(address);
        int result = LITE_TIMEOUT;
        step();
        for (uint32_t n = 0; n < bound && result == LITE_TIMEOUT; n++) {
            if (o.s_arready) i.s_arvalid = 0;
            if (o.s_rvalid) *data = o.s_rdata, result = o.s_rresp;
            if (o.s_rvalid || n + 1 == bound) i.s_arvalid = i.s_rready = 0;
            step();
        }
        return failed() ? int(LITE_MODEL_ERROR) : result;
    }

    // With two or more cores awake, interrupts and diagnostics are reported to the host only at the borders
    // of windows, so that it sees them in the same cycle however the cores are simulated.
    int run(uint64_t end, uint32_t irq_mask, bool stop_on_diagnostic) {
        bool several = false;
        for (bool begin = true;; begin = false) {
            if (failed()) return RUN_MODEL_ERROR;
            const bool at_border = begin || cycle >= end || cycle == border(cycle);
            if (at_border) several = awake() > 1;
            if (at_border || !several) {
                if (stop_on_diagnostic && diagnostics_seen < diagnostics.size()) {
                    diagnostics_seen = diagnostics.size();
                    return RUN_DIAGNOSTIC;
                }
                if (stop_at_tasks && tasks_seen < tasks.size()) {
                    tasks_seen = tasks.size();
                    return RUN_TASK;
                }
                if (irq() & irq_mask) return RUN_IRQ;
            }
            if (cycle >= end) return RUN_BOUND;
            uint64_t target = several ? std::min(end, border(cycle + 1)) : end;
            if (tracer.next_cycle() > cycle && tracer.next_cycle() < target) target = tracer.next_cycle();
            if (recorder && recorder->first() > cycle && recorder->first() < target) target = recorder->first();
            if (everything_sleeps()) {
                if (steps.waits()) {  // a core waits for others, and the unit counts the time
                    exchange();
                    if (!everything_sleeps()) continue;
                    target = std::min(target, (cycle | (StepUnit::EXCHANGE - 1)) + 1);
                }
                for (int c = 0; c < cores; c++) count_waits(c, target - cycle);
                cycle = target;
                if (recorder) observe((1u << cores) - 1);
                if (tracer.on()) tracer.skip(cycle);
            } else if (several && !in_step()) {
                window(std::min(target, cycle + window_cycles));
            } else {
                step();
            }
        }
    }

    uint32_t irq() const {
        uint32_t mask = 0;
        for (int c = 0; c < cores; c++) mask |= uint32_t(out[c].irq & 1) << c;
        return mask;
    }

    // The signals that the model can trace: lines of path, number, bits.
    const char* trace_names() { return model[0]->trace_names(); }

    // The host is about to start a job on this core.
    void kick(int core) {
        state[core].job = kicks++;
        state[core].started = 0;
        progress.kick(core);
        if (tasks_kept && tasks.size() > 2 * tasks_kept) {
            const auto end = tasks.end() - ptrdiff_t(tasks_kept);
            for (auto e = tasks.begin(); e != end; ++e) starts_gone += !e->kind;
            const uint64_t gone = uint64_t(end - tasks.begin());
            tasks.erase(tasks.begin(), end);
            tasks_gone += gone;
            tasks_seen -= std::min<uint64_t>(gone, tasks_seen);
        }
    }

    // Records events from the window's first cycle on; earlier records are discarded.
    void record_events(const RecordConfig& config) {
        recorder = std::make_unique<Recorder>(config, cycle);
        observe((1u << cores) - 1);
    }

    const std::vector<ProbeEvent>& probes() const { return shared.events; }

    // Whether run() returns after each start and end of a task, beginning with the next one.
    void set_stop_at_tasks(bool on) { stop_at_tasks = on, tasks_seen = tasks.size(); }

    // All state between two calls, except the memory's contents, events and waveforms; see snapshot.h.
    template <class Archive>
    void archive(Archive& a) {
        a(cycle, exchanged, in, out, tasks, tasks_gone, starts_gone, diagnostics, diagnostics_seen, state, kicks, blocks, shared.events, shared.stamped);
        dram.archive(a);
        steps.archive(a);
        progress.archive(a);
        for (int c = 0; c < cores; c++) model[c]->archive(a);
        if constexpr (Archive::reads)
            for (int c = 0; c < cores; c++) a.failed |= out[c].m_arid >= READ_IDS || out[c].m_awid >= WRITE_IDS;
        tasks_seen = tasks.size();
    }
    static constexpr bool savable = Model::savable;

#ifdef RKCOSIM_COVERAGE
    // Writes the sum of the coverage counters of all cores, which it clears; returns their number.
    uint64_t take_coverage(uint32_t* to, uint64_t room) {
        const uint64_t count = std::min(room, Model::coverage_size);
        for (int c = 0; c < cores; c++) model[c]->take_coverage(to, count);
        return Model::coverage_size;
    }
#endif

    // set_threads: how many threads may work on a window, including the caller's (`always`: even where one
    // thread is faster). set_window: its cycles at most (for tests; 0: as many as possible, 1: always one).
    void set_threads(uint32_t count, bool always) { threads = count, threads_always = always; }
    void set_window(uint32_t most) {
        window_cycles = most && most < dram.lookahead ? most : std::max(dram.lookahead, 1u);
    }

    void set_patience(uint32_t join, uint32_t patience) { steps = StepUnit(cores, join, patience); }

    // Applies a write to the register SWITCH of a core's counters, from the next cycle on.
    void count(int c, bool enable, bool clear, bool latch) {
        if (latch) blocks[c].latch();
        if (clear) blocks[c].clear();
        if (enable && !blocks[c].wanted(in[c])) {
            state[c].quiet = state[c].still_for = 0;  // the core must drive its counter outputs again
            blocks[c].forget_writes();
            const auto& writes = dram.port[c].writes;
            for (uint32_t n = 0; n < writes.count; n++) blocks[c].under_way(writes.at(n).id);
            blocks[c].observe(in[c], out[c]);  // transfers of the present cycle
        }
        in[c].counting = enable;
    }

    const int cores;
    Dram dram;
    uint64_t cycle = 0;
    bool may_sleep = true;
    std::vector<TaskEvent> tasks;  // the latest; a kick removes the oldest ones of more than twice tasks_kept
    uint64_t tasks_kept = 0;       // 0: all
    uint64_t tasks_gone = 0, starts_gone = 0;
    std::vector<DiagnosticEvent> diagnostics;
    size_t diagnostics_seen = 0;
    CoreIn in[MAX_CORES];
    CoreOut out[MAX_CORES];
    BlockCounters blocks[MAX_CORES];
    std::unique_ptr<Recorder> recorder;  // set while events are recorded
    Progress progress;
    Tracer<Model> tracer{cores, model, in, out, dram, progress};

private:
    // State of a core that is not on its pins.
    struct alignas(64) CoreState {
        uint32_t quiet = 0, still_for = 0;  // cycles
        uint32_t job = NO_JOB;
        uint16_t at_work = NO_TASK;
        uint16_t started = 0;  // tasks started in the job
        uint64_t passed = 0;   // cycle of the last octet or atom of the task, 0 before the first one
        uint64_t counted = 0;  // cycles since then in which one of the core's ends had a state
    };

    typename Model::Shared shared;  // shared by the cores of one system; outlives them
    std::unique_ptr<Model> model[MAX_CORES];
    CoreState state[MAX_CORES];
    uint32_t kicks = 0;
    StepUnit steps{cores};
    uint64_t exchanged = ~0ull;  // cycle of the unit's last exchange
    bool stop_at_tasks = false;
    size_t tasks_seen = 0;
    std::vector<TaskEvent> fresh_tasks[MAX_CORES];  // not yet in the logs
    std::vector<DiagnosticEvent> fresh_diagnostics[MAX_CORES];
    uint32_t threads = 1;
    bool threads_always = true;
    Contest contest;  // between several threads and one
    uint32_t window_cycles = std::max(dram.lookahead, 1u);
    std::unique_ptr<Workers> workers;  // created for the first window that uses several threads
    std::atomic<bool> broken{false};
    std::mutex failing;
    uint64_t failed_in = 0;

    // The present window, for all threads that work on it.
    uint64_t window_end = 0;
    uint32_t window_cores[MAX_CORES];

    // A core sleeps (is not evaluated) once it has reported `idle` for this many cycles without activity on a
    // pin: longer than any pulse can remain between two of its registers.
    static constexpr uint32_t SLEEP_AFTER = 8;

    // A core also sleeps if it is running but has shown no activity for this many cycles. All internal work
    // that takes longer (above all convolutions) pulses one of its events. Such a core hangs: only an access
    // from outside can still change its state.
    static constexpr uint32_t HANGS_AFTER = 1u << 16;

    static constexpr size_t MOST_DIAGNOSTICS = 65536;

    bool failed() const { return shared.failed || broken.load(std::memory_order_relaxed); }

    bool stirs(int c) const { return stirs(c, in[c], out[c]); }
    bool stirs(int c, const CoreIn& i, const CoreOut& o) const {
        return !o.idle || i.rst || i.s_awvalid || i.s_wvalid || i.s_arvalid || i.s_bready || i.s_rready ||
               o.s_bvalid || o.s_rvalid || o.m_arvalid || o.m_awvalid || o.m_wvalid || o.events || o.diag_valid ||
               !dram.settled(c, i);
    }

    // Whether there is no access, no handshake, no pending response, and no event other than stalls.
    bool still(int c, const CoreIn& i, const CoreOut& o) const {
        return !(i.rst || i.s_awvalid || i.s_wvalid || i.s_arvalid || i.s_bready || i.s_rready || o.s_bvalid ||
                 o.s_rvalid || (o.events & ~WAIT_EVENTS) || o.diag_valid) &&
               dram.stuck(c, i, o);
    }

    bool hangs(int c, const CoreIn& i, const CoreOut& o) const {
        return state[c].still_for >= HANGS_AFTER && still(c, i, o);
    }

    // Whether the core could skip evaluation, regardless of `may_sleep`.
    bool rests(int c) const {
        return (state[c].quiet >= SLEEP_AFTER && !stirs(c)) || hangs(c, in[c], out[c]);
    }

    bool everything_sleeps() const {
        for (int c = 0; c < cores; c++)
            if (!may_sleep || !rests(c)) return false;
        return true;
    }

    int awake() const {
        int count = 0;
        for (int c = 0; c < cores; c++) count += !rests(c);
        return count;
    }

    // The first window border at or after this cycle.
    uint64_t border(uint64_t from) const {
        const uint64_t length = std::max(dram.lookahead, 1u);  // a power of two
        return (from + length - 1) & ~(length - 1);
    }

    // Whether the cores must advance together, because they share more than the memory.
    bool in_step() const {
        return !Model::Shared::apart || window_cycles < 2 || tracer.on() || recorder || dram.counting() ||
               dram.watched != ~0ull;
    }

    // Updates the idle counters for the coming cycle; returns false if the core is not evaluated in it.
    bool takes_part(int c, const CoreIn& i, const CoreOut& o) {
        CoreState& s = state[c];
        const bool stir = stirs(c, i, o);
        s.quiet = stir ? 0 : s.quiet + (s.quiet < SLEEP_AFTER);
        s.still_for = still(c, i, o) ? s.still_for + (s.still_for < HANGS_AFTER) : 0;
        return !may_sleep || ((stir || s.quiet < SLEEP_AFTER) && !hangs(c, i, o));
    }

    // Exchanges the steps of co-working cores, at most once per cycle and only at multiples of EXCHANGE.
    void exchange() {
        if (cycle % StepUnit::EXCHANGE || exchanged == cycle) return;
        exchanged = cycle;
        uint32_t reports[MAX_CORES], answers[MAX_CORES];
        for (int c = 0; c < cores; c++) reports[c] = out[c].step_report;
        steps.exchange(reports, answers);
        for (int c = 0; c < cores; c++)
            if (in[c].step_answer != answers[c]) {
                in[c].step_answer = answers[c];
                state[c].quiet = state[c].still_for = 0;
            }
    }

    void step() {
        exchange();
        uint32_t active = 0;
        for (int c = 0; c < cores; c++)
            if (takes_part(c, in[c], out[c])) active |= 1u << c;
        for (int c = 0; c < cores; c++)
            if (active >> c & 1) dram.accept(cycle, c, in[c], out[c]);
        dram.arbitrate(cycle);
        for (int c = 0; c < cores; c++)
            if (active >> c & 1) dram.answer(cycle, c, in[c], out[c]);
        bool noted = false;
        for (int c = 0; c < cores; c++)
            if (active >> c & 1) {
                edge(cycle, c, in[c], out[c]);
                noted |= anything_noted(c);
            } else {
                count_waits(c, 1);
            }
        cycle++;
        if (noted) collect();
        if (recorder) observe(cycle == recorder->first() ? (1u << cores) - 1 : active);
        shared.stamp(cycle);
        if (tracer.on()) trace();
    }

    // Keeps what the first core to fail says; cores in windows do not fail in the order of cycles.
    void fail(uint64_t now, int c, const char* text) {
        const std::lock_guard<std::mutex> lock(failing);
        if (!broken.load(std::memory_order_relaxed) || now < failed_in) {
            failed_in = now;
            failure = *text ? "cycle " + std::to_string(now) + ", core " + std::to_string(c) + ": " + text : "";
        }
        broken = true;
    }

    void edge(uint64_t now, int c, const CoreIn& i, CoreOut& o) {
        try {
            model[c]->edge(i);
        } catch (const std::exception& error) {  // no exception may leave a thread or the library
            fail(now, c, error.what());
        } catch (...) {
            fail(now, c, "");
        }
        model[c]->pull(o);
        dram.counters[c].cycles_evaluated++;
        if (blocks[c].wanted(i)) blocks[c].observe(i, o);
        if (o.events | o.diag_valid) record(now, c, o);
    }

    // Advances all cores to cycle `end`, each of them alone.
    void window(uint64_t end) {
        exchange();
        for (uint64_t now = cycle; now < end; now++) dram.arbitrate(now);
        uint32_t count = 0;
        for (int c = 0; c < cores; c++)
            if (may_sleep && rests(c)) count_waits(c, end - cycle);
            else window_cores[count++] = uint32_t(c);
        window_end = end;
        const uint32_t helpers = count ? std::min(threads, count) - 1 : 0;
        if (!helpers || threads_always) {
            work_on(count, helpers);
        } else if (!contest.trying()) {
            work_on(count, contest.second() ? 0 : helpers);
            contest.done({});
        } else {
            const auto begun = std::chrono::steady_clock::now();
            work_on(count, contest.second() ? 0 : helpers);
            contest.done(std::chrono::steady_clock::now() - begun);
        }
        cycle = end;
        bool noted = false;
        for (int c = 0; c < cores; c++) noted |= anything_noted(c);
        if (noted) collect();
    }

    // Advances the first `count` of `window_cores`, with `helpers` threads besides this one.
    void work_on(uint32_t count, uint32_t helpers) {
        const auto work = [](void* soc, uint32_t n) {
            Soc* const self = static_cast<Soc*>(soc);
            self->advance(int(self->window_cores[n]));
        };
        if (!helpers) {
            for (uint32_t n = 0; n < count; n++) work(this, n);
            return;
        }
        if (!workers || workers->helpers() < helpers) workers = std::make_unique<Workers>(helpers);
        workers->run(count, work, this);
    }

    void advance(int c) {
        CoreIn i = in[c];  // copies in separate cache lines
        CoreOut o = out[c];
        for (uint64_t now = cycle; now < window_end; now++) {
            if (!takes_part(c, i, o)) {
                in[c] = i, out[c] = o;
                count_waits(c, window_end - now);
                return;
            }
            dram.accept(now, c, i, o);
            dram.answer(now, c, i, o);
            edge(now, c, i, o);
        }
        in[c] = i, out[c] = o;
    }

    bool anything_noted(int c) const {
        return dram.noted(c) || !fresh_tasks[c].empty() || !fresh_diagnostics[c].empty();
    }

    // Moves the events that the cores recorded into the logs.
    void collect() {
        dram.collect();
        Dram::merge(tasks, fresh_tasks, cores);
        Dram::merge(diagnostics, fresh_diagnostics, cores);
        if (diagnostics.size() > MOST_DIAGNOSTICS) diagnostics.resize(MOST_DIAGNOSTICS);
    }

    void trace() {
        progress.cycle(cores, out, dram.faults.size());
        tracer.sample(cycle);
        progress.cycle_over();
    }

    void observe(uint32_t mask) {
        for (int c = 0; c < cores; c++)
            if (mask >> c & 1)
                recorder->observe(cycle, c, in[c], out[c], dram.port[c], state[c].job, state[c].at_work,
                                  state[c].started);
    }

    // Accounts for cycles in which a core was not evaluated and kept its pins: those of a hanging core show
    // what it waits for, those of an idle core are low.
    void count_waits(int c, uint64_t cycles) {
        if (blocks[c].wanted(in[c])) blocks[c].stand(in[c], out[c], cycles);
        for (uint32_t bits = with_reason(out[c].events); bits; bits &= bits - 1)
            dram.counters[c].events[__builtin_ctz(bits)] += cycles;
        if (const int both = ends(out[c].events)) {
            dram.counters[c].events[EVENT_BITS + both - 1] += cycles;
            state[c].counted += cycles;
        }
    }

    // Counts what both ends of the core do. Between two octets or atoms of a task, cycles without any event are
    // those in which the output works on the first of them.
    void count_ends(uint64_t now, Counters& k, CoreState& s, uint32_t events) {
        const int both = ends(events);
        if (!both) return;
        k.events[EVENT_BITS + both - 1]++;
        s.counted++;
        if (!(events & PASSES)) return;
        if (s.passed) k.events[EVENT_BITS + OUTPUT_WORKS - 1] += now + 1 - s.passed - s.counted;
        s.passed = now + 1, s.counted = 0;
    }

    // `now` is the cycle that ended at this edge; the pulse is seen in the next one.
    void record(uint64_t now, int c, const CoreOut& o) {
        Counters& k = dram.counters[c];
        CoreState& s = state[c];
        for (uint32_t bits = with_reason(o.events); bits; bits &= bits - 1) k.events[__builtin_ctz(bits)]++;
        count_ends(now, k, s, o.events);
        for (uint32_t kind = 0; kind < 2; kind++)
            if (o.events >> kind & 1) {
                s.at_work = kind ? NO_TASK : o.task_index;
                s.started += !kind;
                s.passed = 0;
                TaskEvent e{now + 1, uint32_t(c), o.task_index, kind, s.job, {}, {}, {}};
                std::memcpy(e.events, k.events, sizeof e.events);
                std::memcpy(e.bytes_read, k.bytes_read, sizeof e.bytes_read);
                std::memcpy(e.bytes_written, k.bytes_written, sizeof e.bytes_written);
                fresh_tasks[c].push_back(e);
            }
        if (o.diag_valid && fresh_diagnostics[c].size() < MOST_DIAGNOSTICS)
            fresh_diagnostics[c].push_back(
                {now + 1, uint32_t(c), o.diag_code, o.diag_block, o.diag_register, o.diag_value, 0});
    }
};
