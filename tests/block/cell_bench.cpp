// Cycles a second of the C++ cell by itself: direct tiles back to back, every input of every cycle in use.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "npu_cell.h"

int main(int argc, char **argv) {
    const uint64_t cycles = argc > 1 ? std::strtoull(argv[1], nullptr, 0) : 20'000'000;
    npu::Cell cell;
    alignas(64) uint8_t bytes[64 + 4096];
    for (size_t n = 0; n < sizeof bytes; ++n) bytes[n] = static_cast<uint8_t>(n * 167 + n / 7);
    npu::CellIn in{};
    in.w_valid = in.f_valid = in.w_stride = 1;
    uint64_t check = 0;
    const auto start = std::chrono::steady_clock::now();
    for (uint64_t n = 0; n < cycles; ++n) {
        in.f_slot = n % 16;
        in.w_index = n % 16;
        in.f_swap = n % 16 == 0;
        in.f_first = n / 16 % 8 == 0;
        in.f_bank = n / 128 % 2;
        in.d_valid = n % 2 == 0;
        in.d_bank = !in.f_bank;
        in.d_slot = n / 8 % 16;
        in.d_octet = n / 2 % 4;
        cell.step(in, bytes + (n * 64) % 4096, bytes + (n * 32) % 3968);
        check += static_cast<uint64_t>(cell.acc(n % 8));
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("%.1f M cycles/s (check %016llx)\n", cycles / seconds / 1e6, static_cast<unsigned long long>(check));
    return 0;
}
