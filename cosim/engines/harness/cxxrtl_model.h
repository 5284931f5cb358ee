// Adaptor: one core compiled by CXXRTL (struct cxxrtl_design::p_core in core.h).
#pragma once
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core.h"
#include "plain_model.h"

// Its state cannot be saved: CXXRTL cannot read or write the whole state of a design.
class CxxrtlModel : public PlainModel {
public:
    CxxrtlModel(Shared&, int) { top.step(); }

    // The rising edge; after it the pins are `i`.
    void edge(const CoreIn& i) {
        fall();
        top.p_clk.set(true);
        top.step();
        high = true;
        put(top.p_rst, i.rst), put(top.p_counting, i.counting);
        put(top.p_core__index, i.core_index), put(top.p_options, i.options);
        put(top.p_step__answer, i.step_answer);
        put(top.p_s__axil__awvalid, i.s_awvalid), put(top.p_s__axil__awaddr, i.s_awaddr);
        put(top.p_s__axil__wvalid, i.s_wvalid), put(top.p_s__axil__wdata, i.s_wdata);
        put(top.p_s__axil__wstrb, i.s_wstrb), put(top.p_s__axil__bready, i.s_bready);
        put(top.p_s__axil__arvalid, i.s_arvalid), put(top.p_s__axil__araddr, i.s_araddr);
        put(top.p_s__axil__rready, i.s_rready);
        put(top.p_m__axi__arready, i.m_arready), put(top.p_m__axi__awready, i.m_awready);
        put(top.p_m__axi__wready, i.m_wready), put(top.p_m__axi__rvalid, i.m_rvalid);
        if (i.m_rvalid) {
            put(top.p_m__axi__rid, i.m_rid), put(top.p_m__axi__rresp, i.m_rresp);
            put(top.p_m__axi__rlast, i.m_rlast);
            for (int k = 0; k < 8; k++) top.p_m__axi__rdata.data[k] = i.m_rdata[k];
        }
        put(top.p_m__axi__bvalid, i.m_bvalid), put(top.p_m__axi__bid, i.m_bid);
        put(top.p_m__axi__bresp, i.m_bresp);
    }

    void fall() {
        if (!high) return;
        top.p_clk.set(false);
        top.step();
        high = false;
    }

#ifdef RKCOSIM_TRACE
    // Lines of path (modules before slashes), number and bits; aliases of one value have the same number.
    const char* trace_names() {
        find_signals();
        return names.c_str();
    }
    uint32_t trace_signals() {
        find_signals();
        return uint32_t(signals.size());
    }
    uint32_t trace_words() const { return words; }
    uint32_t trace_place(uint32_t signal) const { return signals[signal].place; }
    void trace_select(const std::vector<uint32_t>& variable) {
        selected.clear(), outlines.clear();
        for (uint32_t n = 0; n < signals.size(); n++) {
            if (!variable[n]) continue;
            selected.push_back(n);
            if (signals[n].item.outline) outlines.insert(signals[n].item.outline);
        }
    }
    void trace_sample(TraceSampler& sampler, bool) {
        for (cxxrtl::debug_outline* outline : outlines) outline->eval();
        for (uint32_t n : selected) {
            const TracedItem& s = signals[n];
            sampler.wide(n, s.place, uint32_t(s.item.width + 31) / 32, s.item.curr);
        }
    }
#endif

    void pull(CoreOut& o) const {
        o.s_awready = u8(top.p_s__axil__awready), o.s_wready = u8(top.p_s__axil__wready);
        o.s_bvalid = u8(top.p_s__axil__bvalid), o.s_bresp = u8(top.p_s__axil__bresp);
        o.s_arready = u8(top.p_s__axil__arready), o.s_rvalid = u8(top.p_s__axil__rvalid);
        o.s_rdata = uint32_t(get(top.p_s__axil__rdata)), o.s_rresp = u8(top.p_s__axil__rresp);
        o.m_arvalid = u8(top.p_m__axi__arvalid);
        o.m_araddr = get(top.p_m__axi__araddr), o.m_arid = u8(top.p_m__axi__arid);
        o.m_arlen = u8(top.p_m__axi__arlen), o.m_arsize = u8(top.p_m__axi__arsize);
        o.m_arburst = u8(top.p_m__axi__arburst), o.m_rready = u8(top.p_m__axi__rready);
        o.m_awvalid = u8(top.p_m__axi__awvalid);
        o.m_awaddr = get(top.p_m__axi__awaddr), o.m_awid = u8(top.p_m__axi__awid);
        o.m_awlen = u8(top.p_m__axi__awlen), o.m_awsize = u8(top.p_m__axi__awsize);
        o.m_awburst = u8(top.p_m__axi__awburst);
        o.m_wvalid = u8(top.p_m__axi__wvalid), o.m_wlast = u8(top.p_m__axi__wlast);
        o.m_wstrb = uint32_t(get(top.p_m__axi__wstrb));
        if (o.m_wvalid)
            for (int k = 0; k < 8; k++) o.m_wdata[k] = current(top.p_m__axi__wdata).data[k];
        o.m_bready = u8(top.p_m__axi__bready);
        o.irq = u8(top.p_irq), o.idle = u8(top.p_idle);
        o.events = uint16_t(get(top.p_events)), o.task_index = uint16_t(get(top.p_task__index));
        o.step_report = uint16_t(get(top.p_step__report));
        o.diag_valid = u8(top.p_diag__valid), o.diag_code = u8(top.p_diag__code);
        o.diag_block = u8(top.p_diag__block), o.diag_register = uint16_t(get(top.p_diag__register));
        o.diag_value = uint32_t(get(top.p_diag__value));
        o.busy_blocks = u8(top.p_busy__blocks), o.watch_valid = u8(top.p_watch__valid);
        o.watch_fetched = u8(top.p_watch__fetched), o.watch_offset = uint16_t(get(top.p_watch__offset));
        o.watch_value = uint32_t(get(top.p_watch__value));
        if (current(top.p_counting).data[0]) {
            o.activity = get(top.p_activity);
            o.macs = uint16_t(get(top.p_macs)), o.array_macs = uint16_t(get(top.p_array__macs));
            for (int k = 0; k < LEVELS; k++)
                o.levels[k] = uint16_t(current(top.p_levels).data[k / 2] >> k % 2 * 16);
        }
    }

private:
    cxxrtl_design::p_core top;
    bool high = false;

#ifdef RKCOSIM_TRACE
    struct TracedItem {
        cxxrtl::debug_item item;
        uint32_t place;
    };
    std::vector<TracedItem> signals;
    std::vector<uint32_t> selected;
    std::set<cxxrtl::debug_outline*> outlines;
    std::string names;
    uint32_t words = 0;

    // Finds the values that CXXRTL keeps in one piece; values in several pieces, and memories, are not
    // traced.
    void find_signals() {
        if (!signals.empty()) return;
        cxxrtl::debug_items items;
        top.debug_info(&items, nullptr, "");
        std::map<const void*, uint32_t> known;
        for (const auto& [path, parts] : items.table) {
            const cxxrtl::debug_item& item = parts[0];
            if (parts.size() != 1 || item.type == cxxrtl::debug_item::MEMORY || !item.width) continue;
            const auto [at, fresh] = known.insert({item.curr, uint32_t(signals.size())});
            if (fresh) {
                signals.push_back({item, words});
                words += uint32_t(item.width + 31) / 32;
            }
            std::string name = path;
            for (char& c : name)
                if (c == ' ') c = '/';
            names += name + " " + std::to_string(at->second) + " " + std::to_string(item.width) + "\n";
        }
    }
#endif

    template <size_t N>
    static const cxxrtl::value<N>& current(const cxxrtl::value<N>& v) { return v; }
    template <size_t N>
    static const cxxrtl::value<N>& current(const cxxrtl::wire<N>& v) { return v.curr; }
    template <class T>
    static uint64_t get(const T& pin) {
        const auto& v = current(pin);
        uint64_t low = v.data[0];
        if constexpr (sizeof v.data / sizeof v.data[0] > 1) low |= uint64_t(v.data[1]) << 32;
        return low;
    }
    template <class T>
    static uint8_t u8(const T& pin) { return uint8_t(current(pin).data[0]); }
    template <size_t N>
    static void put(cxxrtl::value<N>& pin, uint32_t value) {
        pin.data[0] = N < 32 ? value & ((uint64_t(1) << N) - 1) : value;
    }
};
using CoreModel = CxxrtlModel;
