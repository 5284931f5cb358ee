// Drive the DPU's pipe with the stages in RTL and with the C++ cell with the same random stimulus, and compare
// all outputs in every cycle. Arguments: seed, cycles. Exit code 1 on the first difference, 2 when the stimulus
// did too little.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "Vcpp.h"
#include "Vrtl.h"
#include "verilated.h"

namespace {

// PORTS: X(port, bits) for the registers; FIELDS: X(port, name, lowest bit, bits) for their fields.
#include "dpu_pipe_ports.h"

struct Field {
    int port, low, width;
};

enum Port {
#define X(port, bits) k_##port,
    PORTS
#undef X
        kPorts
};

const std::map<std::string, Field> kFields = {
#define X(port, name, low, width) {#name, {k_##port, low, width}},
    FIELDS
#undef X
};

Vrtl *rtl;
Vcpp *cpp;
uint64_t cycle;

template <class F> void both(F set) {
    set(rtl);
    set(cpp);
}

template <class Wide> bool differ(const Wide &a, const Wide &b) { return std::memcmp(&a, &b, sizeof a) != 0; }

void compare() {
    const char *wrong = nullptr;
#define SAME(port) \
    if (differ(rtl->port, cpp->port)) wrong = #port;
    SAME(source_ready) SAME(bs_ready) SAME(bn_ready) SAME(ew_ready) SAME(lut_answer)
    SAME(result_valid) SAME(result_payload) SAME(stall)
#undef SAME
    if (!wrong) return;
    std::printf("cycle %llu: %s differs\n", static_cast<unsigned long long>(cycle), wrong);
    for (int n = 0; n < 9; ++n)
        std::printf("  result word %d: rtl %08x cpp %08x\n", n, rtl->result_payload[n], cpp->result_payload[n]);
    std::exit(1);
}

class Stimulus {
public:
    explicit Stimulus(uint32_t seed) : rng_(seed) {}

    void run(uint64_t cycles) {
        fill_tables();
        while (cycle < cycles) task();
    }

    // How often octets with each setting have been delivered.
    std::map<std::string, uint64_t> seen;

private:
    bool chance(int percent) { return static_cast<int>(rng_() % 100) < percent; }

    // A number of random magnitude, or an extreme one.
    uint32_t integer(int bits = 32) {
        const int size = 1 + static_cast<int>(rng_() % static_cast<unsigned>(bits));
        uint32_t value = rng_() & (size == 32 ? ~0u : (1u << size) - 1);
        if (chance(8)) value = 1u << (size - 1);
        if (chance(4)) value = (1u << (size - 1)) - 1;
        return chance(50) ? value : 0u - value;
    }

    uint32_t real() {
        if (chance(special_ ? 60 : 6)) {
            const uint32_t special[] = {0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 1, 0x80000001,
                                        0x4F000000, 0xCF000000, 0x477FF000, 0x33800000, 0x387FE000, 0x3F800000};
            return special[rng_() % (chance(60) ? 4 : sizeof special / sizeof *special)];
        }
        uint32_t value = rng_();
        if (chance(80)) value = (value & 0x807FFFFF) | (100 + rng_() % 60) << 23;
        if (chance(30)) value &= 0xFFFF0000;
        if (chance(8)) {  // just above the middle between two of the smallest numbers of fp16
            const uint32_t above = rng_() % 3;
            value = (value & 0x80000000) | (102 + above) << 23 | (1u << 23 >> above & 0x7FFFFF) | 1u << rng_() % 3;
        }
        if (chance(15)) value = (value & 0xFFFFE000) | 0x1000;  // a tie of fp16
        return value;
    }

    // A binary32, or the bits of an fp16, which the division takes.
    uint32_t element() { return special_ && chance(40) ? half() : real(); }

    uint32_t half() {
        const uint32_t special[] = {0, 0x8000, 0x7C00, 0xFC00, 0x7E00, 1, 0x3C00, 0x7BFF};
        return chance(special_ ? 70 : 10) ? special[rng_() % (chance(60) ? 4 : 8)] : rng_() & 0xFFFF;
    }

    uint32_t get(const char *name) const {
        const Field &f = kFields.at(name);
        return static_cast<uint32_t>(registers_[f.port] >> f.low & ((uint64_t{1} << f.width) - 1));
    }

    void put(const char *name, uint32_t value) {
        const Field &f = kFields.at(name);
        const uint64_t mask = ((uint64_t{1} << f.width) - 1) << f.low;
        registers_[f.port] = (registers_[f.port] & ~mask) | (static_cast<uint64_t>(value) << f.low & mask);
    }

    void show_registers() {
        both([this](auto *m) {
#define X(port, bits) m->port = registers_[k_##port];
            PORTS
#undef X
        });
    }

    // Registers at random, then those that would hide everything else in ranges in which values differ.
    void draw_registers() {
        static const int widths[] = {
#define X(port, bits) bits,
            PORTS
#undef X
        };
        for (int port = 0; port < kPorts; ++port)
            registers_[port] = (uint64_t{rng_()} << 32 | rng_()) & ((uint64_t{1} << (widths[port] - 1) << 1) - 1);
        const uint32_t kinds[] = {0, 1, 4, 6}, float_kinds[] = {2, 3, 5};
        if (chance(90))
            put("DATA_FORMAT_PROC_PRECISION", number_ % 2 ? kinds[rng_() % 4] : float_kinds[rng_() % 3]);
        for (const char *name : {"BS_MUL_CFG_BS_MUL_SHIFT_VALUE", "DATA_FORMAT_BS_MUL_SHIFT_VALUE_NEG",
                                 "BN_MUL_CFG_BN_MUL_SHIFT_VALUE", "DATA_FORMAT_BN_MUL_SHIFT_VALUE_NEG",
                                 "EW_CVT_SCALE_VALUE_EW_TRUNCATE", "DATA_FORMAT_EW_TRUNCATE_NEG",
                                 "EW_CVT_SCALE_VALUE_EW_OP_CVT_SHIFT", "OUT_CVT_SHIFT_OUT_CVT_SHIFT"})
            if (chance(80)) put(name, rng_() % 18);
        for (const char *name : {"BS_MUL_CFG_BS_MUL_OPERAND", "BN_MUL_CFG_BN_MUL_OPERAND", "BS_OW_OP_OW_OP",
                                 "OUT_CVT_SCALE_OUT_CVT_SCALE", "OFFSET_PEND_OFFSET_PEND"})
            put(name, integer(16));
        for (const char *name : {"BS_ALU_CFG_BS_ALU_OPERAND", "BN_ALU_CFG_BN_ALU_OPERAND",
                                 "BS_RELUX_CMP_VALUE_BS_RELUX_CMP_DAT", "BN_RELUX_CMP_VALUE_BN_RELUX_CMP_DAT",
                                 "EW_RELUX_CMP_VALUE_EW_RELUX_CMP_DAT", "OUT_CVT_OFFSET_OUT_CVT_OFFSET"})
            put(name, chance(20) ? real() : integer());
        for (const char *name : {"BS_CFG_BS_ALU_ALGO", "BN_CFG_BN_ALU_ALGO"})
            if (chance(70)) put(name, chance(50) ? 2 : 4);
        if (chance(95)) put("EW_CFG_EW_ALU_ALGO", number_ / 2 % 10);  // all of them in turn
        put("DATA_FORMAT_OUT_PRECISION", number_ / 4 % 8);
        put("EW_CFG_EW_OP_TYPE", number_ / 3 % 4 == 0);
        put("EW_CFG_EW_OP_BYPASS", chance(25));
        ++number_;
        for (const char *name : {"BS_CFG_BS_RELUX_EN", "BN_CFG_BN_RELUX_EN", "EW_CFG_EW_RELUX_EN"})
            if (chance(60)) put(name, 0);
        if (chance(60)) put("OUT_CVT_SHIFT_MINUS_EXP", 0);
        for (const char *table : {"LE", "LO"}) {
            const std::string prefix = std::string("LUT_") + table;
            const auto name = [&](const char *rest) { return prefix + rest; };
            const uint32_t select = rng_() % 26, start = integer(28);
            if (chance(80)) put(("LUT_INFO_" + name("_INDEX_SELECT")).c_str(), select);
            put((name("_START_") + name("_START")).c_str(), start);
            const uint32_t size = chance(70) && select < 22 ? 512u << select : integer();
            put((name("_END_") + name("_END")).c_str(), start + size);
        }
        if (chance(70)) put("EW_CFG_EW_LUT_BYPASS", chance(50));
        if (chance(80)) put("EW_CFG_EW_BYPASS", 0);
        special_ = chance(30);
        plain_ = chance(special_ ? 80 : 30);  // elements reach EW, the tables and the converter as they are
        if (plain_) {
            put("BS_CFG_BS_BYPASS", 1);
            put("BN_CFG_BN_BYPASS", 1);
            put("FEATURE_MODE_CFG_FLYING_MODE", 1);
            put("EW_CFG_EW_OP_CVT_BYPASS", 1);
        }
    }

    void fill_tables() {
        rest();
        for (int entry = 0; entry < 2048; ++entry) write_entry(entry);
        rest();
    }

    void write_entry(int entry) {
        const uint32_t data = integer(16);
        both([&](auto *m) {
            m->lut_write = 1;
            m->lut_table = static_cast<uint8_t>(entry >> 10);
            m->lut_entry = static_cast<uint16_t>(entry & 1023);
            m->lut_data = static_cast<uint16_t>(data);
        });
        tick();
    }

    void rest() {
        both([](auto *m) {
            m->rst = m->start = m->active = 0;
            m->lut_write = m->lut_read = 0;
            m->source_valid = m->bs_valid = m->bn_valid = m->ew_valid = 0;
        });
    }

    void tick() {
        for (int level = 0; level < 2; ++level) {
            both([level](auto *m) {
                m->clk = static_cast<uint8_t>(level);
                m->eval();
            });
        }
        ++cycle;
        compare();
    }

    // An element at, or next to, the end of a table's range or of a step in it.
    uint32_t border() {
        const std::string prefix = chance(50) ? "LUT_LE" : "LUT_LO";
        const auto name = [&](const char *rest) { return prefix + rest; };
        const uint32_t select = std::min(get(("LUT_INFO_" + name("_INDEX_SELECT")).c_str()), 22u);
        uint32_t at = get((name("_START_") + name("_START")).c_str());
        if (chance(30)) at = get((name("_END_") + name("_END")).c_str());
        else if (chance(70)) at += (chance(50) ? 512 : rng_() % 513) << select;
        return at + rng_() % 3 - 1;
    }

    uint32_t pair() { return floats_ ? half() | half() << 16 : (integer(16) & 0xFFFF) | integer(16) << 16; }

    void draw_octet(int octets) {
        auto &a = rtl->source_payload;
        auto &b = cpp->source_payload;
        for (int lane = 0; lane < 8; ++lane) a[lane] = floats_ ? element() : plain_ && chance(30) ? border() : integer(size_);
        for (int n = 8; n < 12; ++n) {  // above 32 bits: usually the sign
            uint32_t low = a[2 * (n - 8)] >> 31 ? 0xFFFF : 0, high = a[2 * (n - 8) + 1] >> 31 ? 0xFFFF : 0;
            if (chance(20)) low = integer(16) & 0xFFFF, high = integer(16) & 0xFFFF;
            a[n] = low | high << 16;
        }
        for (int n = 12; n < 20; ++n) a[n] = integer(size_);
        const bool last = chance(octet_ == octets - 1 ? 15 : 3);
        const uint32_t clip = chance(40) ? 0 : rng_() & 63;
        const uint32_t live = chance(70) ? 8 : rng_() % 9;
        const uint32_t tag = static_cast<uint32_t>(octet_) | (rng_() & 15) << 3 | live << 7 |
                             static_cast<uint32_t>(chance(20)) << 11 | static_cast<uint32_t>(last) << 12 |
                             static_cast<uint32_t>(chance(5)) << 13;
        a[20] = clip | tag << 6;
        for (int n = 0; n < 21; ++n) b[n] = a[n];
        octet_ = last || octet_ == octets - 1 ? 0 : octet_ + 1;
    }

    // A task: settings, then octets with waits at all ends; sometimes the next one begins before it has ended.
    void task() {
        rest();
        draw_registers();
        show_registers();
        const int octets = 1 << rng_() % 4, options = static_cast<int>(rng_() & 0xFF);
        floats_ = is_float(get("DATA_FORMAT_PROC_PRECISION"));
        size_ = chance(50) ? 32 : 2 + static_cast<int>(rng_() % 31);
        octet_ = 0;
        for (int n = static_cast<int>(rng_() % 3); n > 0; --n) write_entry(static_cast<int>(rng_() % 2048));
        rest();
        both([&](auto *m) {
            m->octets = static_cast<uint8_t>(octets);
            m->options = options;
            m->start = 1;
            m->active = static_cast<uint8_t>(octets & 1);
        });
        tick();
        both([](auto *m) { m->start = 0, m->active = 1; });
        const int given = chance(40) ? 100 : 60, taken = chance(40) ? 100 : 50, operands = chance(50) ? 100 : 50;
        const bool restless = chance(15);  // registers change during the task
        const bool divides = floats_ && get("EW_CFG_EW_ALU_ALGO") == 3;  // takes 28 cycles
        const int length = (20 + static_cast<int>(rng_() % 100)) * (divides ? 4 : 1);
        const uint64_t before = delivered_;
        both([](auto *m) { m->source_valid = m->bs_valid = m->bn_valid = m->ew_valid = 0; });
        bool source = false, bs = false, bn = false, ew = false;
        for (int n = 0; n < length + 60; ++n) {
            const bool feeding = n < length;
            if (!source && feeding && chance(given)) draw_octet(octets), source = true;
            if (!bs && chance(operands)) draw_operands(rtl->bs_payload, cpp->bs_payload), bs = true;
            if (!bn && chance(operands)) draw_operands(rtl->bn_payload, cpp->bn_payload), bn = true;
            if (!ew && chance(operands)) {
                for (int k = 0; k < 8; ++k)
                    rtl->ew_payload[k] = cpp->ew_payload[k] = floats_ ? (chance(50) ? half() : element()) : integer(size_);
                ew = true;
            }
            if (restless && chance(5)) draw_registers(), show_registers();
            const bool ready = chance(taken), read = chance(3), reset = rng_() % 3000 == 0;
            const int entry = static_cast<int>(rng_() % 2048);
            both([&](auto *m) {
                m->source_valid = source, m->bs_valid = bs, m->bn_valid = bn, m->ew_valid = ew;
                m->result_ready = ready;
                m->lut_read = read;
                m->lut_table = static_cast<uint8_t>(entry >> 10);
                m->lut_entry = static_cast<uint16_t>(entry & 1023);
                m->rst = reset;
                m->clk = 0;
                m->eval();
            });
            compare();
            // What is taken at the edge.
            if (source && rtl->source_ready) source = false;
            if (bs && rtl->bs_ready) bs = false;
            if (bn && rtl->bn_ready) bn = false;
            if (ew && rtl->ew_ready) ew = false;
            if (rtl->result_valid && ready) ++delivered_;
            tick();
            if (!feeding && !source && chance(8)) break;
        }
        note(delivered_ - before, restless);
    }

    template <class Wide> void draw_operands(Wide &a, Wide &b) {
        for (int n = 0; n < 8; ++n) a[n] = floats_ ? real() : integer(size_);
        for (int n = 8; n < 16; ++n) a[n] = pair();
        for (int n = 0; n < 16; ++n) b[n] = a[n];
    }

    static bool is_float(uint32_t kind) { return kind == 2 || kind == 3 || kind == 5; }

    void note(uint64_t octets, bool restless) {
        if (restless) return;
        const bool lut = !get("EW_CFG_EW_BYPASS") && !get("EW_CFG_EW_LUT_BYPASS");
        const bool op = !get("EW_CFG_EW_BYPASS") && !get("EW_CFG_EW_OP_BYPASS");
        const std::string domain = floats_ ? "floats" : "integers";
        seen[domain + (lut ? " with tables" : " without tables")] += octets;
        seen[domain + " to type " + std::to_string(get("DATA_FORMAT_OUT_PRECISION"))] += octets;
        if (op) {
            const bool mul = get("EW_CFG_EW_OP_TYPE");
            const uint32_t algo = std::min(get("EW_CFG_EW_ALU_ALGO"), 9u);
            seen[domain + (mul ? " multiplied" : " combined by function " + std::to_string(algo))] += octets;
        }
        if (!floats_ && !get("FEATURE_MODE_CFG_FLYING_MODE"))
            seen[get("BS_OW_CFG_OD_BYPASS")  ? "sums"
                 : get("BS_OW_CFG_OW_SRC") ? "sums with window sums times operands"
                                           : "sums with window sums times a register"] += octets;
    }

    std::mt19937 rng_;
    uint64_t registers_[kPorts] = {};
    bool floats_ = false;
    bool plain_ = false, special_ = false;
    int size_ = 32, octet_ = 0;
    uint32_t number_ = 0;
    uint64_t delivered_ = 0;
};

}  // namespace

int main(int argc, char **argv) {
    if (argc != 3) return 3;
    VerilatedContext context;
    rtl = new Vrtl(&context, "rtl");
    cpp = new Vcpp(&context, "cpp");
    Stimulus stimulus(static_cast<uint32_t>(std::strtoul(argv[1], nullptr, 0)));
    both([](auto *m) { m->eval(); });
    const uint64_t cycles = std::strtoull(argv[2], nullptr, 0);
    stimulus.run(cycles);
    int status = 0;
    // 2 domains with 2 uses of the tables, 8 types of results and 11 operations; 3 ways of sums.
    if (stimulus.seen.size() < 2 * (2 + 8 + 11) + 3) status = 2;
    for (const auto &[what, octets] : stimulus.seen) {
        std::printf("%8llu octets: %s\n", static_cast<unsigned long long>(octets), what.c_str());
        if (!octets) status = 2;
    }
    std::printf("%llu cycles\n", static_cast<unsigned long long>(cycle));
    return status;
}
