// Up to three cores, DRAM and a register bus driver per core, advanced one clock edge at a time.
#pragma once
#include <memory>
#include <string>

#include "events.h"
#include "trace.h"

enum RunResult { RUN_BOUND = 0, RUN_IRQ = 1, RUN_DIAGNOSTIC = 2, RUN_MODEL_ERROR = 3 };
enum LiteResult { LITE_OK = 0, LITE_TIMEOUT = 100, LITE_MODEL_ERROR = 101 };  // else the AXI response

// Model: one compiled core.  edge() is the rising clock edge and takes the pins of the cycle after it,
// pull() reads the core's own pins after it, trace_*() sample what is inside.  See verilator_model.h.
template <class Model>
class Soc {
public:
    Soc(int cores, const DramConfig& config, uint8_t* memory, StepFunction external)
        : cores(cores), dram(config, memory, cores), shared(external) {
        for (int c = 0; c < cores; c++) {
            model[c] = std::make_unique<Model>(shared, c);
            std::memset(&in[c], 0, sizeof in[c]);
            std::memset(&out[c], 0, sizeof out[c]);
            in[c].core_index = uint8_t(c);
            Dram::release(in[c]);
        }
        tasks.reserve(4096);
        diagnostics.reserve(1024);
    }

    void reset(uint32_t mask, uint32_t cycles) {
        for (int c = 0; c < cores; c++)
            if (mask >> c & 1) {
                uint8_t index = in[c].core_index;
                std::memset(&in[c], 0, sizeof in[c]);
                in[c].core_index = index;
                in[c].rst = 1;
                dram.reset(c, in[c]);
                quiet[c] = 0;
                at_work[c] = NO_TASK;
                if (recorder) recorder->reset(cycle, c);
            }
        for (uint32_t i = 0; i < cycles; i++) step();
        for (int c = 0; c < cores; c++)
            if (mask >> c & 1) {
                in[c].rst = 0;
                dram.reset(c, in[c]);  // whatever the core asked for while it was being reset
                if (recorder) recorder->reset(cycle, c);
            }
    }

    // Register accesses: what is set here in `in` is on the pins from the next edge on.
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

    int run(uint64_t end, uint32_t irq_mask, bool stop_on_diagnostic) {
        for (;;) {
            if (failed()) return RUN_MODEL_ERROR;
            if (stop_on_diagnostic && diagnostics_seen < diagnostics.size()) {
                diagnostics_seen = diagnostics.size();
                return RUN_DIAGNOSTIC;
            }
            if (irq() & irq_mask) return RUN_IRQ;
            if (cycle >= end) return RUN_BOUND;
            uint64_t target = end;
            if (tracer.next_cycle() > cycle && tracer.next_cycle() < target) target = tracer.next_cycle();
            if (recorder && recorder->first() > cycle && recorder->first() < target) target = recorder->first();
            if (everything_sleeps()) {
                for (int c = 0; c < cores; c++) count_waits(c, target - cycle);
                dram.idle(target - cycle);
                cycle = target;
                if (recorder) observe((1u << cores) - 1);
                if (tracer.on()) tracer.skip(cycle);
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

    // What the model can trace: lines of path, number, bits.
    const char* trace_names() { return model[0]->trace_names(); }

    // The host is about to start a job on this core.
    void kick(int core) {
        job[core] = kicks++;
        started[core] = 0;
        progress.kick(core);
    }

    // Record events from the window's first cycle on; what was recorded before is forgotten.
    void record_events(const RecordConfig& config) {
        recorder = std::make_unique<Recorder>(config, cycle);
        observe((1u << cores) - 1);
    }

    const std::vector<ProbeEvent>& probes() const { return shared.events; }

    const int cores;
    Dram dram;
    uint64_t cycle = 0;
    bool may_sleep = true;
    std::vector<TaskEvent> tasks;
    std::vector<DiagnosticEvent> diagnostics;
    size_t diagnostics_seen = 0;
    CoreIn in[MAX_CORES];
    CoreOut out[MAX_CORES];
    std::unique_ptr<Recorder> recorder;  // while events are recorded
    Progress progress;
    Tracer<Model> tracer{cores, model, in, out, dram, progress};

private:
    typename Model::Shared shared;  // what the cores of one system have in common; outlives them
    std::unique_ptr<Model> model[MAX_CORES];
    uint32_t quiet[MAX_CORES] = {};
    uint32_t still_for[MAX_CORES] = {};
    uint32_t kicks = 0;
    uint32_t job[MAX_CORES] = {NO_JOB, NO_JOB, NO_JOB};
    uint16_t at_work[MAX_CORES] = {NO_TASK, NO_TASK, NO_TASK};
    uint16_t started[MAX_CORES] = {};  // tasks of the job

    // A core sleeps (is not evaluated) once it has said `idle` for this many cycles without a pin
    // stirring: longer than any pulse may linger between two of its registers.
    static constexpr uint32_t SLEEP_AFTER = 8;

    // So does a core that is at work but has shown no sign of life for this many cycles.  Whatever a
    // core does inside for longer (convolving, above all) pulses one of its events, so nothing but an
    // access from outside can change it any more: it hangs.
    static constexpr uint32_t HANGS_AFTER = 1u << 16;

    bool failed() const { return shared.failed; }

    bool stirs(int c) const {
        const CoreIn& i = in[c];
        const CoreOut& o = out[c];
        return !o.idle || i.rst || i.s_awvalid || i.s_wvalid || i.s_arvalid || i.s_bready || i.s_rready ||
               o.s_bvalid || o.s_rvalid || o.m_arvalid || o.m_awvalid || o.m_wvalid || o.events || o.diag_valid ||
               !dram.settled(c, i);
    }

    // No access, no handshake, no response on its way, no event but of waiting.
    bool still(int c) const {
        const CoreIn& i = in[c];
        const CoreOut& o = out[c];
        return !(i.rst || i.s_awvalid || i.s_wvalid || i.s_arvalid || i.s_bready || i.s_rready || o.s_bvalid ||
                 o.s_rvalid || (o.events & ~WAIT_EVENTS) || o.diag_valid) &&
               dram.stuck(c, i, o);
    }

    bool hangs(int c) const { return may_sleep && still_for[c] >= HANGS_AFTER && still(c); }

    bool sleeps(int c) const { return (may_sleep && quiet[c] >= SLEEP_AFTER && !stirs(c)) || hangs(c); }

    bool everything_sleeps() const {
        for (int c = 0; c < cores; c++)
            if (!sleeps(c)) return false;
        return true;
    }

    void step() {
        uint32_t active = 0;
        for (int c = 0; c < cores; c++) {
            const bool stir = stirs(c);
            quiet[c] = stir ? 0 : quiet[c] + (quiet[c] < SLEEP_AFTER);
            still_for[c] = still(c) ? still_for[c] + (still_for[c] < HANGS_AFTER) : 0;
            if ((stir || !may_sleep || quiet[c] < SLEEP_AFTER) && !hangs(c)) active |= 1u << c;
        }
        dram.step(cycle, active, in, out);
        for (int c = 0; c < cores; c++)
            if (active >> c & 1) model[c]->edge(in[c]);
        for (int c = 0; c < cores; c++)
            if (active >> c & 1) {
                model[c]->pull(out[c]);
                dram.counters[c].cycles_evaluated++;
                if (out[c].events | out[c].diag_valid) record(c);
            } else {
                count_waits(c, 1);
            }
        cycle++;
        if (recorder) observe(cycle == recorder->first() ? (1u << cores) - 1 : active);
        shared.stamp(cycle);
        if (tracer.on()) trace();
    }

    void trace() {
        progress.cycle(cores, out, dram.faults.size());
        tracer.sample(cycle);
        progress.cycle_over();
    }

    void observe(uint32_t mask) {
        for (int c = 0; c < cores; c++)
            if (mask >> c & 1)
                recorder->observe(cycle, c, in[c], out[c], dram.port[c], job[c], at_work[c], started[c]);
    }

    // Cycles in which a core that is not evaluated kept its pins: those of a hanging one say what it
    // waits for, those of an idle one are low.
    void count_waits(int c, uint64_t cycles) {
        for (uint32_t bits = with_reason(out[c].events); bits; bits &= bits - 1)
            dram.counters[c].events[__builtin_ctz(bits)] += cycles;
    }

    // `cycle` is still the cycle that ended at this edge: the pulse is seen in the next one.
    void record(int c) {
        Counters& k = dram.counters[c];
        const CoreOut& o = out[c];
        for (uint32_t bits = with_reason(o.events); bits; bits &= bits - 1) k.events[__builtin_ctz(bits)]++;
        for (uint32_t kind = 0; kind < 2; kind++)
            if (o.events >> kind & 1) {
                at_work[c] = kind ? NO_TASK : o.task_index;
                started[c] += !kind;
                TaskEvent e{cycle + 1, uint32_t(c), o.task_index, kind, job[c], {}, {}, {}};
                std::memcpy(e.events, k.events, sizeof e.events);
                std::memcpy(e.bytes_read, k.bytes_read, sizeof e.bytes_read);
                std::memcpy(e.bytes_written, k.bytes_written, sizeof e.bytes_written);
                tasks.push_back(e);
            }
        if (o.diag_valid && diagnostics.size() < 65536)
            diagnostics.push_back(
                {cycle + 1, uint32_t(c), o.diag_code, o.diag_block, o.diag_register, o.diag_value, 0});
    }
};
