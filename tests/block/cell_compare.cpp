// Drive the RTL cell and the C++ cell with the same random stimulus and compare their outputs in every
// cycle. Arguments: seed, cycles, accumulations of the wrap test. Exit code 1 on the first difference.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

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
    if (std::memcmp(&rtl->o_acc, &cpp->o_acc, 40) || std::memcmp(&rtl->o_sum, &cpp->o_sum, 32)) {
        std::printf("cycle %llu: outputs differ\n", static_cast<unsigned long long>(cycle));
        for (int n = 0; n < 10; ++n) std::printf("  acc word %d: rtl %08x cpp %08x\n", n, rtl->o_acc[n], cpp->o_acc[n]);
        for (int n = 0; n < 8; ++n) std::printf("  sum word %d: rtl %08x cpp %08x\n", n, rtl->o_sum[n], cpp->o_sum[n]);
        std::exit(1);
    }
}

void random_run(uint32_t seed, uint64_t cycles) {
    std::mt19937 rng(seed);
    const auto chance = [&rng](int percent) { return static_cast<int>(rng() % 100) < percent; };
    uint64_t drained = 0, nonzero = 0, saved_at = 0;
    int last_row = -1, busy = 90, extreme = 10;
    std::vector<char> image;
    for (uint64_t n = 0; n < cycles; ++n) {
        if (n % 1000 == 0) {
            busy = rng() % 3 ? 90 : 10;
            extreme = rng() % 2 ? 10 : 90;
        }
        clear();
        const auto byte = [&] { return static_cast<uint8_t>(chance(extreme) ? (rng() & 1 ? 0x80 : 0x7F) : rng()); };
        uint8_t weights[64], features[128];
        for (auto &b : weights) b = byte();
        for (auto &b : features) b = byte();
        const int rst = chance(1) && chance(20), depthwise = chance(30), w_valid = chance(busy);
        const int w_index = rng() % 16, w_stride = rng() % 3;
        int bank = rng() % 2, slot = rng() % 16;
        if (16 * bank + slot == last_row) slot = (slot + 1) % 16;
        const int f_valid = chance(busy), swap = f_valid && chance(10), first = chance(10);
        last_row = f_valid ? 16 * bank + slot : -1;
        const int d_valid = chance(busy / 2), d_bank = rng() % 2, d_slot = rng() % 16, d_octet = rng() % 8;
        both([&](auto *m) {
            m->rst = rst;
            m->depthwise = depthwise;
            m->w_valid = w_valid;
            m->w_index = w_stride == 0 ? w_index % 8 : w_index;
            m->w_stride = w_stride;
            m->f_valid = f_valid;
            m->f_swap = swap;
            m->f_first = first;
            m->f_bank = bank;
            m->f_slot = slot;
            m->d_valid = d_valid;
            m->d_bank = d_bank;
            m->d_slot = d_slot;
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
            ++saved_at;
        }
        tick();
        drained += d_valid;
        nonzero += d_valid && rtl->o_acc[0] != 0;
    }
    std::printf("random: %llu cycles, %llu octets drained, %llu not zero, %llu saves\n",
                static_cast<unsigned long long>(cycles), static_cast<unsigned long long>(drained),
                static_cast<unsigned long long>(nonzero), static_cast<unsigned long long>(saved_at));
    if (nonzero * 2 < drained) std::exit(2);
}

// Largest products until 40 bits wrap.
void wrap_run(uint64_t accumulations) {
    clear();
    both([](auto *m) {
        m->depthwise = 0;
        m->w_stride = 1;
        m->w_valid = 1;
        std::memset(&m->w_data, 0x80, 64);
        std::memset(&m->f_data, 0x80, 128);
    });
    for (int n = 0; n < 16; ++n) {
        both([n](auto *m) { m->w_index = n; });
        tick();
    }
    clear();
    for (uint64_t n = 0; n < 2 * accumulations; ++n) {
        both([n](auto *m) {
            m->f_valid = 1;
            m->f_swap = n == 0;
            m->f_first = n < 2;
            m->f_bank = 0;
            m->f_slot = n % 2;
            m->d_valid = n % 1024 == 0;
            m->d_bank = m->d_slot = 0;
            m->d_octet = n / 1024 % 4;
        });
        tick();
    }
    clear();
    for (int n = 0; n < 4; ++n) tick();
    both([](auto *m) { m->d_valid = 1; });
    tick();
    const int64_t got = static_cast<int64_t>(static_cast<uint64_t>(rtl->o_acc[1]) << 56 |
                                             static_cast<uint64_t>(rtl->o_acc[0]) << 24) >> 24;
    const int64_t full = static_cast<int64_t>(accumulations) * (32 * 128 * 128);
    const int64_t want = static_cast<int64_t>(static_cast<uint64_t>(full) << 24) >> 24;
    std::printf("wrap: %lld of %lld\n", static_cast<long long>(got), static_cast<long long>(full));
    if (got != want || (accumulations >> 20 && got == full)) std::exit(3);
}

}  // namespace

int main(int argc, char **argv) {
    const uint32_t seed = argc > 1 ? std::strtoul(argv[1], nullptr, 0) : 1;
    const uint64_t cycles = argc > 2 ? std::strtoull(argv[2], nullptr, 0) : 20000;
    const uint64_t accumulations = argc > 3 ? std::strtoull(argv[3], nullptr, 0) : 0;
    std::printf("seed %u\n", seed);
    npu_cells_use(&cells);
    rtl = new Vrtl(&context, "rtl");
    cpp = new Vcpp(&context, "cpp");
    random_run(seed, cycles);
    if (accumulations) wrap_run(accumulations);
    delete rtl;
    delete cpp;
    return 0;
}
