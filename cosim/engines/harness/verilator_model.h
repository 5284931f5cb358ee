// Adaptor: one core compiled by Verilator (class Vcore).
#pragma once
#include <cstddef>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

#include "Vcore.h"
#if defined(RKCOSIM_TRACE) || defined(RKCOSIM_DIRECT)
#include "Vcore___024root.h"
#endif
#ifdef RKCOSIM_COVERAGE
#include "Vcore___024root.h"
#include "Vcore__Syms.h"
#include "verilated_cov.h"
#endif
#if defined(RKCOSIM_PLAIN) || defined(RKCOSIM_COVERAGE)  // Verilator's default options, or counters
#define RKCOSIM_NOT_SAVABLE
#endif
#include "plain_model.h"
#include "verilated.h"
#ifdef RKCOSIM_NOT_SAVABLE
#include "snapshot.h"
#else
#include "verilator_snapshot.h"
#endif
#ifdef RKCOSIM_CELL
#include "npu_cell_dpi.h"
#include "npu_dpu_cell_dpi.h"
#endif
#ifdef RKCOSIM_PROBES
#include "svdpi.h"
#endif

#ifndef RKCOSIM_NOT_SAVABLE
void vl_fatal(const char* file, int line, const char*, const char* message) { model_fatal(file, line, message); }
#endif

#ifdef RKCOSIM_PROBES
static Probes* rk_probe_sink = nullptr;  // probes of the system whose model is being evaluated

extern "C" void rk_probe(int core, int kind, int place0, int place1, const svBitVecVal* data) {
    ProbeEvent event{0, uint32_t(core), uint32_t(kind), {place0, place1}, {}};
    for (int k = 0; k < 20; k++) event.data[k] = data[k];
    rk_probe_sink->events.push_back(event);
}
#endif

#ifdef RKCOSIM_ASSERTIONS
// An assertion of the RTL does not hold (cosim/engines/verilog.py). `where` is the path of the module with it.
extern "C" void rk_assertion(const char* where, const char* what) {
    throw std::runtime_error(std::string(where) + ": " + what);
}
#endif

#ifdef RKCOSIM_TRACE
// Generated at build time (cosim/engines/traces/table.py).
extern const TraceGroup rk_table_groups[];
extern const uint32_t rk_table_places[];
extern const char rk_table_names[];
extern const TraceSizes rk_table_sizes;
uint64_t rk_table_activity(Vcore__Syms*);
#endif

#ifdef RKCOSIM_DIRECT
void Vcore___024root___eval_triggers_vec__act(Vcore___024root*);
void Vcore___024root___eval_nba(Vcore___024root*);
#endif

class VerilatorModel : public PlainModel {
public:
    struct Shared : Probes {
        explicit Shared(StepFunction) {}
        static constexpr bool failed = false;
#ifdef RKCOSIM_PROBES
        static constexpr bool apart = false;  // all cores append to one list
#else
        static constexpr bool apart = true;
#endif
    };

    VerilatorModel(Shared& shared, int index) : probes(shared), top(&context, ("core" + std::to_string(index)).c_str()) {
        top.clk = 0;
#ifdef RKCOSIM_COVERAGE
        std::fill_n(top.rootp->vlSymsp->__Vcoverage, coverage_size, 0);
#endif
        eval();
        learn();
    }

    // The rising edge; after it the pins are `i` (registers of core_top.sv).
    void edge(const CoreIn& i) {
        fall();
#ifdef RKCOSIM_PLAIN  // the pins are wires into the core, so they change after the edge
        rise(0);
        constexpr uint32_t pins = ~0u;
#else
        const uint32_t pins = moved(i);
#endif
        if (pins & HOST_PINS) {
            top.rst = i.rst, top.counting = i.counting;
            top.core_index = i.core_index, top.options = i.options, top.step_answer = i.step_answer;
            top.s_axil_awvalid = i.s_awvalid, top.s_axil_awaddr = i.s_awaddr;
            top.s_axil_wvalid = i.s_wvalid, top.s_axil_wdata = i.s_wdata, top.s_axil_wstrb = i.s_wstrb;
            top.s_axil_bready = i.s_bready;
            top.s_axil_arvalid = i.s_arvalid, top.s_axil_araddr = i.s_araddr;
            top.s_axil_rready = i.s_rready;
            std::memcpy(&shown, &i, offsetof(CoreIn, m_rdata));
        }
        if (pins & READY_PINS)
            top.m_axi_arready = i.m_arready, top.m_axi_awready = i.m_awready, top.m_axi_wready = i.m_wready;
        top.m_axi_rvalid = i.m_rvalid;
        if (i.m_rvalid) {
            top.m_axi_rid = i.m_rid, top.m_axi_rresp = i.m_rresp, top.m_axi_rlast = i.m_rlast;
            for (int k = 0; k < 8; k++) top.m_axi_rdata[k] = i.m_rdata[k];
        }
        top.m_axi_bvalid = i.m_bvalid, top.m_axi_bid = i.m_bid, top.m_axi_bresp = i.m_bresp;
#ifndef RKCOSIM_PLAIN
        rise(pins);
#endif
    }

    void fall() {
        if (!top.clk) return;
        top.clk = 0;
#ifdef RKCOSIM_GATES
        top.clk_gates = 0;
        top.clk_pins = 0;
#endif
        eval();
    }

#ifdef RKCOSIM_COVERAGE
    // Verilator's counters, one for all instances of a module; the generated sources name them.
    static constexpr uint64_t coverage_size = sizeof(Vcore__Syms::__Vcoverage) / sizeof(uint32_t);
    void take_coverage(uint32_t* to, uint64_t count) {
        uint32_t* const counters = top.rootp->vlSymsp->__Vcoverage;
        for (uint64_t k = 0; k < count; k++) to[k] += counters[k];
        std::fill_n(counters, coverage_size, 0);
    }
#endif

#ifndef RKCOSIM_NOT_SAVABLE
    static constexpr bool savable = true;
    void archive(StateWriter& a) {
        StateWriter own;
        ModelWriter writer(own);
        writer << top;
        writer.flush();
        a(own.bytes);
#ifdef RKCOSIM_CELL
        std::vector<uint8_t> bytes(cell_bytes());
        uint8_t* to = bytes.data();
        for_each_set([&to](auto& set) { set.save(to), to += set.state_bytes(); });
        a(bytes);
#endif
    }
    void archive(StateReader& a) {
        std::vector<uint8_t> bytes;
        a(bytes);
        StateReader own(bytes.data(), bytes.size());
        ModelReader reader(own);
        model_restores = true;
        try {
            reader >> top;
        } catch (const ModelFatal&) {
            a.failed = true;
        }
        model_restores = false;
        unknown = true;
        a.failed |= own.failed;
#ifdef RKCOSIM_CELL
        a(bytes);
        const uint8_t* from = bytes.data();
        if (bytes.size() != cell_bytes()) a.failed = true;
        else for_each_set([&from](auto& set) { set.restore(from), from += set.state_bytes(); });
#endif
    }
#endif

    void pull(CoreOut& o) const {
        o.s_awready = top.s_axil_awready, o.s_wready = top.s_axil_wready;
        o.s_bvalid = top.s_axil_bvalid, o.s_bresp = top.s_axil_bresp;
        o.s_arready = top.s_axil_arready, o.s_rvalid = top.s_axil_rvalid;
        o.s_rdata = top.s_axil_rdata, o.s_rresp = top.s_axil_rresp;
        o.m_arvalid = top.m_axi_arvalid;
        o.m_araddr = top.m_axi_araddr, o.m_arid = top.m_axi_arid, o.m_arlen = top.m_axi_arlen;
        o.m_arsize = top.m_axi_arsize, o.m_arburst = top.m_axi_arburst;
        o.m_rready = top.m_axi_rready;
        o.m_awvalid = top.m_axi_awvalid;
        o.m_awaddr = top.m_axi_awaddr, o.m_awid = top.m_axi_awid, o.m_awlen = top.m_axi_awlen;
        o.m_awsize = top.m_axi_awsize, o.m_awburst = top.m_axi_awburst;
        o.m_wvalid = top.m_axi_wvalid, o.m_wlast = top.m_axi_wlast, o.m_wstrb = top.m_axi_wstrb;
        if (o.m_wvalid)
            for (int k = 0; k < 8; k++) o.m_wdata[k] = top.m_axi_wdata[k];
        o.m_bready = top.m_axi_bready;
        o.irq = top.irq, o.idle = top.idle;
        o.events = top.events, o.task_index = top.task_index, o.step_report = top.step_report;
        o.diag_valid = top.diag_valid, o.diag_code = top.diag_code, o.diag_block = top.diag_block;
        o.diag_register = top.diag_register, o.diag_value = top.diag_value;
        o.busy_blocks = top.busy_blocks, o.watch_valid = top.watch_valid, o.watch_fetched = top.watch_fetched;
        o.watch_offset = top.watch_offset, o.watch_value = top.watch_value;
        if (top.counting) {
            o.activity = top.activity, o.macs = top.macs, o.array_macs = top.array_macs;
            for (int k = 0; k < LEVELS; k++) o.levels[k] = uint16_t(top.levels[k / 2] >> k % 2 * 16);
        }
    }

#ifdef RKCOSIM_TRACE
    const char* trace_names() { return rk_table_names; }
    uint32_t trace_signals() const { return rk_table_sizes.signals; }
    uint32_t trace_words() const { return rk_table_sizes.words; }
    uint32_t trace_place(uint32_t signal) const { return rk_table_places[signal]; }
    // `variable` of a signal is not 0 if the signal is wanted.
    void trace_select(const std::vector<uint32_t>& variable) {
        selected.clear();
        for (uint32_t n = 0; n < rk_table_sizes.groups; n++) {
            const TraceGroup& group = rk_table_groups[n];
            bool wanted = false;
            for (uint32_t i = group.first; i < group.end; i++) wanted |= variable[i] != 0;
            if (wanted) selected.push_back(group);
        }
    }
    // Samples those groups with wanted signals that may have changed, or (`all`) each of them, which changes
    // nothing in the model.
    void trace_sample(TraceSampler& sampler, bool all) {
        if (selected.empty()) return;
        Vcore__Syms* const symbols = top.rootp->vlSymsp;
        const uint64_t flags = all ? 0 : rk_table_activity(symbols);
        for (const TraceGroup& group : selected)
            if (all || group.causes & (flags | ALWAYS)) group.sample(symbols, sampler);
    }
#endif

private:
#ifdef RKCOSIM_TRACE
    static constexpr uint64_t ALWAYS = 1ull << 63;
    std::vector<TraceGroup> selected;
#endif
#ifdef RKCOSIM_DIRECT
    // A rising clock sets a trigger in the model, and nothing else depends on the clocks. The triggers of
    // each clock are therefore determined once and set here, and the code that they start is called directly:
    // `eval` would compute them twice at either edge.
    static constexpr uint32_t PIN_GROUPS = 4;
    uint64_t always, gate[RKCOSIM_GATES], pin[PIN_GROUPS];
    uint64_t gated = 0;  // the triggers of the groups `awoken`
    uint32_t awoken = 0;

    void learn() {
        const auto trigger = [this](auto& clock, uint32_t bits) {
            clock = bits;
            Vcore___024root___eval_triggers_vec__act(top.rootp);
            const uint64_t found = top.rootp->__VactTriggered[0];
            clock = 0;
            Vcore___024root___eval_triggers_vec__act(top.rootp);
            return found;
        };
        always = trigger(top.clk, 1);
        for (uint32_t n = 0; n < RKCOSIM_GATES; n++) gate[n] = trigger(top.clk_gates, 1u << n);
        for (uint32_t n = 0; n < PIN_GROUPS; n++) pin[n] = trigger(top.clk_pins, 1u << n);
    }

    void rise(uint32_t pins) {
        enter();
        if (awoken != top.awake) {
            awoken = top.awake, gated = 0;
            for (uint32_t bits = awoken; bits; bits &= bits - 1) gated |= gate[__builtin_ctz(bits)];
        }
        uint64_t triggers = always | gated;
        for (; pins; pins &= pins - 1) triggers |= pin[__builtin_ctz(pins)];
        top.rootp->__VnbaTriggered[0] = triggers;
        Vcore___024root___eval_nba(top.rootp);
        top.rootp->__VnbaTriggered[0] = 0;
    }
#else
    void learn() {}

    void rise(uint32_t pins) {
        top.clk = 1;
#ifdef RKCOSIM_GATES
        top.clk_gates = top.awake;
        top.clk_pins = pins;
#endif
        eval();
    }
#endif

    // The pin groups (core_top.sv); every pin belongs to one of them.
    static constexpr uint32_t HOST_PINS = 1, READ_PINS = 2, RESPONSE_PINS = 4, READY_PINS = 8;

    CoreIn shown;         // the last pins of the host
    bool unknown = true;  // ... or it is not known whether those of the model are these

    // Bit mask of the pin groups that change with the next edge.
    uint32_t moved(const CoreIn& i) {
        const bool host = unknown || std::memcmp(&i, &shown, offsetof(CoreIn, m_arready)) ||
                          i.counting != shown.counting || i.options != shown.options ||
                          i.step_answer != shown.step_answer;
        unknown = false;
        const bool read = top.m_axi_rvalid || i.m_rvalid;
        const bool response = top.m_axi_bvalid || i.m_bvalid;
        const bool ready = top.m_axi_arready != i.m_arready || top.m_axi_awready != i.m_awready ||
                           top.m_axi_wready != i.m_wready;
        return (host ? HOST_PINS : 0) | (read ? READ_PINS : 0) | (response ? RESPONSE_PINS : 0) |
               (ready ? READY_PINS : 0);
    }

    // Sets up this core's data for the C functions that the model calls.
    void enter() {
#ifdef RKCOSIM_PROBES
        rk_probe_sink = &probes;
#endif
#ifdef RKCOSIM_CELL
        npu_cells_use(&cells);
        npu_dpu_cells_use(&dpu_cells, &dpu_float_cells);
#endif
    }

    void eval() {
        enter();
        top.eval();
    }

    Probes& probes;
#ifdef RKCOSIM_CELL
    NpuCells cells;  // of this core; the model holds only their numbers
    NpuDpuCells dpu_cells;
    NpuDpuFloatCells dpu_float_cells;
    template <class F> void for_each_set(F work) {
        work(cells);
        work(dpu_cells);
        work(dpu_float_cells);
    }
    size_t cell_bytes() {
        size_t bytes = 0;
        for_each_set([&bytes](auto& set) { bytes += set.state_bytes(); });
        return bytes;
    }
#endif
    // A separate context per model, because cores are evaluated in several threads; Verilator itself uses one
    // thread.
    struct Context : VerilatedContext {
        Context() { threads(1); }
    };
    Context context;
    Vcore top;
};
using CoreModel = VerilatorModel;
