// Pins of one compiled NpuCore, and the records that are passed to Python (mirrored in library.py).
#pragma once
#include <cstdint>
#include <vector>

constexpr int MAX_CORES = 3;
constexpr int READ_IDS = 32;   // 5-bit read ids
constexpr int WRITE_IDS = 16;  // 4-bit write ids
constexpr int EVENT_BITS = 18;  // 13 event bits of the core's port, then the stall reasons (spec/regs/events.py)
constexpr int EVENTS = EVENT_BITS + 15;  // then the states of both ends of a core (`ends`)
constexpr uint32_t BEAT_BYTES = 32;
constexpr int STATES = 48;     // bits of `activity`; LEVELS: fields of `levels` (spec/regs/counters.rdl)
constexpr int LEVELS = 12;

// Bits of `events` that stay high in a core that hangs: the stalls (spec/regs/events.py).
constexpr uint32_t WAIT_EVENTS = 0x1C70;

// Adds one bit to `events` in a cycle in which no operand slot was issued although features and weights were
// available: 13 a writer waits for the DMA, 14 the DPU or PPU waits for an operand, 15 the DPU accepts no
// results, 16 no accumulator bank is free, 17 an octet or atom of output passes. Together with the slots and
// the stalls for features and weights, no cycle counts twice.
inline uint32_t with_reason(uint32_t events) {
    constexpr uint32_t array = 0x34, output = 0x180;
    constexpr uint32_t wait_write = 0x800, wait_operand = 0x1000, wait_dpu = 0x400, wait_acc = 0x40;
    if (events & array) return events;
    if (events & wait_write) return events | 1u << 13;
    if (events & wait_operand) return events | 1u << 14;
    if (events & wait_dpu) return events | 1u << 15;
    if (events & wait_acc) return events | 1u << 16;
    return events & output ? events | 1u << 17 : events;
}

// What both ends of a core do in a cycle: 4 * the array's state + the output's state (spec/regs/events.py).
// The array: 1 has an operand slot, 2 waits for features, 3 for weights. The output, which is CORE, the DPU and
// the PPU: 1 waits for an operand, 2 for the DMA to accept what it writes, 3 works: an octet or atom passes, or
// CORE has results, or accumulators are full. 0: neither.
inline int ends(uint32_t events) {
    const int array = events & 0x4 ? 1 : events & 0x10 ? 2 : events & 0x20 ? 3 : 0;
    constexpr uint32_t passes = 0x180, operand = 0x1000, write = 0x800, full = 0x440;
    const int output = events & passes ? 3 : events & operand ? 1 : events & write ? 2 : events & full ? 3 : 0;
    return 4 * array + output;
}
constexpr uint32_t PASSES = 0x180;  // bits of `events`: an octet of the DPU, an atom of the PPU
constexpr int OUTPUT_WORKS = 3;

// Inputs of the core: driven by the harness, sampled by the core at the next rising edge.
struct CoreIn {
    uint8_t rst, core_index;
    uint8_t s_awvalid, s_wvalid, s_wstrb, s_bready, s_arvalid, s_rready;
    uint16_t s_awaddr, s_araddr;
    uint32_t s_wdata;
    uint8_t m_arready, m_awready, m_wready;
    uint8_t m_rvalid, m_rid, m_rresp, m_rlast;
    uint8_t m_bvalid, m_bid, m_bresp;
    uint8_t counting;
    uint8_t options;  // spec/regs/options.py
    uint32_t step_answer;  // co_work.h
    uint32_t m_rdata[8];
};

// Outputs of the core (all of them registers), as seen after the last rising edge.
struct CoreOut {
    uint8_t s_awready, s_wready, s_bvalid, s_bresp, s_arready, s_rvalid, s_rresp;
    uint8_t m_arvalid, m_arid, m_arlen, m_arsize, m_arburst, m_rready;
    uint8_t m_awvalid, m_awid, m_awlen, m_awsize, m_awburst;
    uint8_t m_wvalid, m_wlast, m_bready;
    uint8_t irq, idle, diag_valid, diag_code, diag_block;
    uint8_t watch_valid, watch_fetched, busy_blocks, pad[3];
    uint16_t diag_register, events, task_index, watch_offset, step_report, pad3;
    uint32_t s_rdata, diag_value, m_wstrb, watch_value;
    uint64_t m_araddr, m_awaddr;
    uint32_t m_wdata[8];
    // For the performance counters (counters.h); they keep their values while `counting` is low.
    uint64_t activity;
    uint16_t levels[LEVELS], macs, array_macs, pad2[2];
};

// Steps a core that is simulated elsewhere; returns 0, or another value to stop the run.
using StepFunction = int (*)(int core, const CoreIn*, CoreOut*);

// Counters of one core: cycles in which each `events` bit was high, and bytes by AXI id.
struct Counters {
    uint64_t events[EVENTS];
    uint64_t bytes_read[READ_IDS];
    uint64_t bytes_written[WRITE_IDS];
    uint64_t read_requests, write_requests;
    uint64_t cycles_evaluated;  // work of the host, not a property of the hardware
};

// Start (kind 0) or end (kind 1) of a task, with the counters after that cycle. `job` is the number of its
// kick, counted over all cores.
struct TaskEvent {
    uint64_t cycle;
    uint32_t core, task;
    uint32_t kind, job;
    uint64_t events[EVENTS];
    uint64_t bytes_read[8];
    uint64_t bytes_written[4];
};

struct DiagnosticEvent {
    uint64_t cycle;
    uint32_t core, code, block, reg, value, pad;
};

// A value observed inside a core (core_top.sv). `kind` 0 and 1 are atoms written into CBUF for features and
// weights, at `place` 4 * entry + column (-1 for the second: only one atom); 2 is an octet that CORE
// delivered.
struct ProbeEvent {
    uint64_t cycle;
    uint32_t core, kind;
    int32_t place[2];
    uint32_t data[20];
};

// Where a model stores its probe events; the harness adds the cycle.
struct Probes {
    std::vector<ProbeEvent> events;
    size_t stamped = 0;
    void stamp(uint64_t cycle) {
        for (; stamped < events.size(); stamped++) events[stamped].cycle = cycle;
    }
};

enum FaultKind : uint32_t {
    FAULT_READ_UNMAPPED = 0,
    FAULT_WRITE_UNMAPPED = 1,
    FAULT_READ_INJECTED = 2,
    FAULT_WRITE_INJECTED = 3,
    FAULT_PROTOCOL = 4,
};

struct FaultEvent {
    uint64_t cycle, address;
    uint32_t core, client, kind, pad;
};
