// Adaptor: one core compiled by CXXRTL (struct cxxrtl_design::p_core in core.h).
#pragma once
#include <fstream>
#include <memory>
#include <string>

#include "core.h"
#include "pins.h"
#ifdef RKCOSIM_TRACE
#include <cxxrtl/cxxrtl_vcd.h>
#endif

class CxxrtlModel {
public:
    struct Shared : Probes {
        explicit Shared(StepFunction) {}
#ifdef RKCOSIM_TRACE
        bool open_trace(const char* path, std::unique_ptr<CxxrtlModel>* models, int cores) {
            file.open(path, std::ios::binary);
            if (!file) return false;
            writer = std::make_unique<cxxrtl::vcd_writer>();
            writer->timescale(100, "ps");  // a cycle is 1 ns in a trace: 1 GHz
            for (int c = 0; c < cores; c++) {
                cxxrtl::debug_items items;
                models[c]->top.debug_info(&items, nullptr, "core" + std::to_string(c) + " ");
                writer->add_without_memories(items);
            }
            return true;
        }
        void dump(uint64_t time) {
            writer->sample(time);
            file << writer->buffer;
            writer->buffer.clear();
        }
        void close_trace() {
            file.close();
            writer.reset();
        }
        std::ofstream file;
        std::unique_ptr<cxxrtl::vcd_writer> writer;
#else
        bool open_trace(const char*, std::unique_ptr<CxxrtlModel>*, int) { return false; }
        void dump(uint64_t) {}
        void close_trace() {}
#endif
        static constexpr bool failed = false;
    };

    CxxrtlModel(Shared&, int) { top.step(); }

    // The rising edge; after it the pins are `i`.
    void edge(const CoreIn& i) {
        fall();
        top.p_clk.set(true);
        top.step();
        high = true;
        put(top.p_rst, i.rst);
        put(top.p_core__index, i.core_index);
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
        o.diag_valid = u8(top.p_diag__valid), o.diag_code = u8(top.p_diag__code);
        o.diag_block = u8(top.p_diag__block), o.diag_register = uint16_t(get(top.p_diag__register));
        o.diag_value = uint32_t(get(top.p_diag__value));
        o.busy_blocks = u8(top.p_busy__blocks), o.watch_valid = u8(top.p_watch__valid);
        o.watch_fetched = u8(top.p_watch__fetched), o.watch_offset = uint16_t(get(top.p_watch__offset));
        o.watch_value = uint32_t(get(top.p_watch__value));
    }

private:
    cxxrtl_design::p_core top;
    bool high = false;

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
