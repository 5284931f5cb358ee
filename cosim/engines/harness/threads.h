// A small pool of threads that work on a batch of jobs together and then wait for the next batch.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

inline void spin_a_moment() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

// The caller is one of the workers: `helpers` threads and the caller share the jobs.
class Workers {
public:
    static constexpr uint32_t MOST_JOBS = 16;

    explicit Workers(uint32_t helpers) {
        if (helpers < std::thread::hardware_concurrency()) patience = PATIENCE;
        for (uint32_t n = 0; n < helpers; n++) threads.emplace_back([this] { help(); });
    }

    ~Workers() {
        {
            std::lock_guard<std::mutex> held(lock);
            ending = true;
        }
        wake.notify_all();
        for (auto& thread : threads) thread.join();
    }

    Workers(const Workers&) = delete;

    uint32_t helpers() const { return uint32_t(threads.size()); }

    // Calls work(context, n) for each n below `jobs` and returns when all calls have ended.
    void run(uint32_t jobs, void (*work)(void*, uint32_t), void* context) {
        job = work, argument = context;
        left.store(jobs, std::memory_order_relaxed);
        tickets.store(uint64_t(jobs) << 32);
        if (sleeping.load()) {
            std::lock_guard<std::mutex> held(lock);
            wake.notify_all();
        }
        take();
        for (uint32_t n = 0; left.load(std::memory_order_acquire); n++)
            if (n < 4096) spin_a_moment();
            else std::this_thread::yield();  // a helper may be waiting for this processor
    }

private:
    // How long to poll for work before sleeping: longer than the usual time between two batches.
    static constexpr std::chrono::microseconds PATIENCE{50};

    std::vector<std::thread> threads;
    std::chrono::microseconds patience{0};
    void (*job)(void*, uint32_t) = nullptr;
    void* argument = nullptr;
    // Upper half: number of jobs; lower half: jobs taken. One word, so that a late thread never mixes two
    // batches.
    alignas(64) std::atomic<uint64_t> tickets{0};
    alignas(64) std::atomic<uint32_t> left{0};
    std::atomic<uint32_t> sleeping{0};
    std::mutex lock;
    std::condition_variable wake;
    bool ending = false;

    static bool open(uint64_t t) { return uint32_t(t) < uint32_t(t >> 32); }

    void take() {
        while (open(tickets.load(std::memory_order_relaxed))) {
            const uint64_t mine = tickets.fetch_add(1, std::memory_order_acq_rel);
            if (!open(mine)) return;
            job(argument, uint32_t(mine));
            left.fetch_sub(1, std::memory_order_acq_rel);
        }
    }

    void help() {
        for (;;) {
            take();
            const auto until = std::chrono::steady_clock::now() + patience;
            bool found = false;
            while (!found && std::chrono::steady_clock::now() < until)
                for (int n = 0; n < 32 && !found; n++) {
                    spin_a_moment();
                    found = open(tickets.load(std::memory_order_relaxed));
                }
            if (found) continue;
            std::unique_lock<std::mutex> held(lock);
            sleeping++;
            wake.wait(held, [this] { return ending || open(tickets.load()); });
            sleeping--;
            if (ending) return;
        }
    }
};

// Decides which of two ways to do the same work is faster at present, since other programs may compete for
// the processors. Both are tried in turn, then the faster one is used for a longer time.
class Contest {
public:
    using Time = std::chrono::nanoseconds;

    bool second() const { return left ? choice : tried == 1; }
    bool trying() const { return !left; }

    // Reports one piece of work done in the way that `second` returned; `time` is used only during a trial.
    void done(Time time) {
        if (left) {
            if (--left == 0) tried = 0, pieces = 0;
            return;
        }
        if (!pieces) spent[tried] = Time(0);
        spent[tried] += time;
        if (++pieces < TRIED) return;
        pieces = 0;
        if (++tried == 2) choice = spent[1] < spent[0], left = KEPT;
    }

private:
    static constexpr uint32_t TRIED = 128, KEPT = 4096;

    uint32_t left = 0, tried = 0, pieces = 0;
    bool choice = false;
    Time spent[2] = {};
};
