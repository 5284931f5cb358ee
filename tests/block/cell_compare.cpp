// Drive the RTL cell and the C++ cell with the same random stimulus and compare their outputs in every
// cycle. Arguments: seed, cycles, accumulations of the wrap test (0: none), codes of the types to draw from.
// Exit code 1 on the first difference, 2 when the stimulus did too little, 3 when the wrap test fails.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "Vcpp.h"
#include "Vrtl.h"
#include "npu_cell_dpi.h"
#include "verilated.h"

namespace {

VerilatedContext context;
Vrtl *rtl;
Vcpp *cpp;
NpuCells cells;
uint64_t cycle;

template <class F> void both(F set) {
    set(rtl);
    set(cpp);
}

void clear() {
    both([](auto *m) {
        m->rst = m->w_valid = m->f_valid = m->f_swap = m->f_first = m->d_valid = 0;
    });
}

void tick() {
    for (int level = 0; level < 2; ++level) {
        both([level](auto *m) {
            m->clk = level;
            m->eval();
        });
    }
    ++cycle;
    if (std::memcmp(&rtl->o_acc, &cpp->o_acc, 48) || std::memcmp(&rtl->o_sum, &cpp->o_sum, 32)) {
        std::printf("cycle %llu: outputs differ\n", static_cast<unsigned long long>(cycle));
        for (int n = 0; n < 12; ++n) std::printf("  acc word %d: rtl %08x cpp %08x\n", n, rtl->o_acc[n], cpp->o_acc[n]);
        for (int n = 0; n < 8; ++n) std::printf("  sum word %d: rtl %08x cpp %08x\n", n, rtl->o_sum[n], cpp->o_sum[n]);
        std::exit(1);
    }
}

enum Precision { kInt8 = 0, kInt16 = 1, kFp16 = 2, kBf16 = 3, kInt4 = 6, kTf32 = 7 };

bool is_float(int precision) { return precision == kFp16 || precision == kBf16 || precision == kTf32; }

// Random operands of one type: of integers often the extremes, of floats now and then a special number and
// exponents that lie close together or far apart, so that sums cancel, overflow, or lose bits.
class Operands {
public:
    explicit Operands(std::mt19937 &rng) : rng_(rng) {}

    void choose(int precision) {
        precision_ = precision;
        extreme_ = rng_() % 2 ? 10 : 90;
        special_ = rng_() % 3 ? 0 : 2;
        zeros_ = rng_() % 3 ? 2 : 60;
        same_ = rng_() % 3 ? 0 : 70;
        const int top = precision == kFp16 ? 31 : 255;
        const int spreads[] = {1, 3, 8, 24, 60, top};
        spread_ = spreads[rng_() % 6];
        if (spread_ > top) spread_ = top;
        // Often near the ends and where products are near the smallest and the largest number.
        const int anywhere = static_cast<int>(rng_() % top);
        const int lows[] = {0, 0, top / 4, top / 2 - spread_ / 2, top * 3 / 4, top - spread_, anywhere};
        low_ = lows[rng_() % 7];
        if (low_ > top - spread_) low_ = top - spread_;
        if (low_ < 0) low_ = 0;
    }

    void fill(uint8_t *bytes, int count) {
        if (!is_float(precision_)) {
            for (int n = 0; n < count; ++n)
                bytes[n] = static_cast<uint8_t>(chance(extreme_) ? (rng_() & 1 ? 0x80 : 0x7F) : rng_());
        } else if (precision_ == kTf32) {
            for (int n = 0; n < count; n += 4) {
                const uint32_t word = number(8, 10) << 13 | (rng_() & 0x1FFF);
                std::memcpy(bytes + n, &word, 4);
            }
        } else {
            for (int n = 0; n < count; n += 2) {
                const uint16_t half = static_cast<uint16_t>(precision_ == kFp16 ? number(5, 10) : number(8, 7));
                std::memcpy(bytes + n, &half, 2);
            }
        }
    }

private:
    bool chance(int percent) { return static_cast<int>(rng_() % 100) < percent; }

    uint32_t number(int exponent_bits, int fraction_bits) {
        const uint32_t top = (1u << exponent_bits) - 1, sign = (rng_() & 1) << (exponent_bits + fraction_bits);
        uint32_t fraction = rng_() & ((1u << fraction_bits) - 1);
        if (chance(zeros_)) return sign;
        if (chance(special_)) return sign | top << fraction_bits | (rng_() % 2 ? 0 : fraction);
        if (chance(same_)) fraction = 0;  // equal magnitudes cancel
        uint32_t exponent = static_cast<uint32_t>(low_) + rng_() % static_cast<uint32_t>(spread_);
        if (exponent >= top && special_ == 0) exponent = top - 1;
        return sign | exponent << fraction_bits | fraction;
    }

    std::mt19937 &rng_;
    int precision_ = 0, extreme_ = 0, special_ = 0, zeros_ = 0, same_ = 0, low_ = 0, spread_ = 1;
};

struct Count {
    uint64_t drained = 0, nonzero = 0;
};

// Phases of one type and mode each, in which all inputs do what the cell allows: a new mode when nothing
// is in progress, then a tile, `f_swap`, and `f_first` for each slot; a slot again after 16 cycles.
void random_run(uint32_t seed, uint64_t cycles, const std::vector<int> &precisions) {
    constexpr int kLatency = 4, kAgain = 16;
    std::mt19937 rng(seed);
    const auto chance = [&rng](int percent) { return static_cast<int>(rng() % 100) < percent; };
    Operands operands(rng);
    Count counts[8][2];
    uint64_t saves = 0, used[32] = {};
    std::vector<char> image;
    uint8_t weights[64], features[128];
    const uint64_t end = cycle + cycles;
    while (cycle < end) {
        const int precision = precisions[rng() % precisions.size()];
        const int depthwise = precision != kInt4 && precision != kTf32 && chance(30);
        const int full = precision == kInt4 ? 0 : precision == kInt8 ? 1 : 2;
        const int busy = rng() % 3 ? 90 : 15, length = 40 + rng() % 400;
        bool fresh[32] = {}, swapped = false;  // slots with contents, a tile taken over
        const auto apply = [&](int w_valid, int w_index, int w_stride, int f_valid, int swap, int first, int row) {
            // A reset during a tile needs the tile again; this program does not repeat tiles.
            const int rst = !w_valid && swapped && chance(1) && chance(50);
            const int d_valid = chance(busy / 2), d_row = chance(30) ? row : static_cast<int>(rng() % 32);
            const int octets = depthwise || precision == kInt4 ? 8 : precision == kInt8 ? 4 : 2;
            const int d_octet = rng() % (chance(90) ? octets : 8);
            both([&](auto *m) {
                m->rst = rst;
                m->precision = precision;
                m->depthwise = depthwise;
                m->w_valid = w_valid;
                m->w_index = w_index;
                m->w_stride = w_stride;
                m->f_valid = f_valid;
                m->f_swap = swap;
                m->f_first = first;
                m->f_bank = row / 16;
                m->f_slot = row % 16;
                m->d_valid = d_valid;
                m->d_bank = d_row / 16;
                m->d_slot = d_row % 16;
                m->d_octet = d_octet;
                std::memcpy(&m->w_data, weights, sizeof weights);
                std::memcpy(&m->f_data, features, sizeof features);
            });
            // Now and then the cell's state goes out and comes back, with rubbish in between.
            if (chance(1)) {
                image.resize(cells.state_bytes());
                cells.save(image.data());
                std::vector<char> rubbish(image.size(), 1);
                cells.restore(rubbish.data());
                cells.restore(image.data());
                ++saves;
            }
            tick();
            if (rst) {  // data in progress are lost
                swapped = false;
                for (bool &f : fresh) f = false;
            }
            Count &count = counts[precision][depthwise];
            count.drained += d_valid;
            count.nonzero += d_valid && (rtl->o_acc[0] != 0 || rtl->o_acc[3] != 0);
        };
        operands.choose(precision);
        for (int n = 0; n < 16; ++n) {
            operands.fill(weights, sizeof weights);
            operands.fill(features, sizeof features);
            apply(1, n, 2, 0, 0, 0, rng() % 32);
        }
        for (int n = 0; n < length; ++n) {
            if (chance(2)) operands.choose(precision);
            operands.fill(weights, sizeof weights);
            operands.fill(features, sizeof features);
            const int w_stride = depthwise ? 2 : static_cast<int>(rng() % (full + 1));
            const int w_index = rng() % (16 >> (depthwise ? 0 : full - w_stride));
            int row = rng() % 32;
            const bool f_valid = chance(busy) && (!used[row] || cycle - used[row] >= kAgain);
            const bool swap = f_valid && (!swapped || chance(10)), first = f_valid && (!fresh[row] || chance(10));
            if (f_valid) {
                used[row] = cycle;
                fresh[row] = swapped = true;
            }
            apply(chance(busy), w_index, w_stride, f_valid, swap, first, row);
        }
        for (int n = 0; n < kLatency; ++n) apply(0, 0, 0, 0, 0, 0, rng() % 32);
        clear();
    }
    std::printf("random: %llu cycles, %llu saves\n", static_cast<unsigned long long>(cycle),
                static_cast<unsigned long long>(saves));
    for (int precision : precisions) {
        for (int wide = 0; wide < 2; ++wide) {
            const Count &count = counts[precision][wide];
            if (wide && (precision == kInt4 || precision == kTf32)) continue;
            std::printf("precision %d, depthwise %d: %llu octets drained, %llu not zero\n", precision, wide,
                        static_cast<unsigned long long>(count.drained),
                        static_cast<unsigned long long>(count.nonzero));
            if (count.nonzero * 3 < count.drained || count.drained < cycles / 1000) std::exit(2);
        }
    }
}

// Largest int16 products until 48 bits wrap.
void wrap_run(uint64_t accumulations) {
    clear();
    both([](auto *m) {
        m->precision = kInt16;
        m->depthwise = 0;
        m->w_stride = 2;
        m->w_valid = 1;
        for (int n = 0; n < 16; ++n) m->w_data[n] = 0x80008000;
        for (int n = 0; n < 32; ++n) m->f_data[n] = 0x80008000;
    });
    for (int n = 0; n < 16; ++n) {
        both([n](auto *m) { m->w_index = n; });
        tick();
    }
    clear();
    for (uint64_t n = 0; n < 16 * accumulations; ++n) {
        both([n](auto *m) {
            m->f_valid = 1;
            m->f_swap = n == 0;
            m->f_first = n < 16;
            m->f_bank = 0;
            m->f_slot = n % 16;
            m->d_valid = n % 64 == 0;
            m->d_bank = m->d_slot = 0;
            m->d_octet = n / 64 % 2;
        });
        tick();
    }
    clear();
    for (int n = 0; n < 4; ++n) tick();
    both([](auto *m) {
        m->d_valid = 1;
        m->d_slot = m->d_octet = 0;
    });
    tick();
    const auto wrapped = [](uint64_t value) { return static_cast<int64_t>(value << 16) >> 16; };
    const int64_t got = wrapped(static_cast<uint64_t>(rtl->o_acc[1]) << 32 | rtl->o_acc[0]);
    const int64_t full = static_cast<int64_t>(accumulations) * (int64_t{32} << 30);
    std::printf("wrap: %lld of %lld\n", static_cast<long long>(got), static_cast<long long>(full));
    if (got != wrapped(static_cast<uint64_t>(full)) || got == full) std::exit(3);
}

}  // namespace

int main(int argc, char **argv) {
    if (argc < 4) {
        std::printf("usage: compare_cells SEED CYCLES ACCUMULATIONS [PRECISION ...]\n");
        return 4;
    }
    const uint32_t seed = std::strtoul(argv[1], nullptr, 0);
    const uint64_t cycles = std::strtoull(argv[2], nullptr, 0);
    const uint64_t accumulations = std::strtoull(argv[3], nullptr, 0);
    std::vector<int> precisions;
    for (int n = 4; n < argc; ++n) precisions.push_back(std::atoi(argv[n]));
    std::printf("seed %u\n", seed);
    npu_cells_use(&cells);
    rtl = new Vrtl(&context, "rtl");
    cpp = new Vcpp(&context, "cpp");
    if (!precisions.empty()) random_run(seed, cycles, precisions);
    if (accumulations) wrap_run(accumulations);
    delete rtl;
    delete cpp;
    return 0;
}
