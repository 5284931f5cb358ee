// Connects the save and restore functions of a Verilated model (--savable) with a snapshot.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "snapshot.h"
#include "verilated.h"
#include "verilated_save.h"

// Thrown by `model_fatal` while a state is restored: the state belongs to another model.
struct ModelFatal {};
inline thread_local bool model_restores = false;

// Replaces Verilator's vl_fatal (VL_USER_FATAL), which ends the process: exit code 70 is an internal error, 1
// would be a mismatch.
[[noreturn]] inline void model_fatal(const char* file, int line, const char* message) {
    if (model_restores) throw ModelFatal();
    std::fprintf(stderr, "rkcosim: internal error of the compiled model: %s:%d: %s\n", file, line, message);
    std::fflush(nullptr);
    std::_Exit(70);
}

class ModelWriter final : public VerilatedSerialize {
public:
    explicit ModelWriter(StateWriter& to) : to(to) {}
    void flush() override {
        to.raw(m_bufp, size_t(m_cp - m_bufp));
        m_cp = m_bufp;
    }

private:
    StateWriter& to;
};

class ModelReader final : public VerilatedDeserialize {
public:
    ModelReader(StateReader& from) : from(from) { m_endp = m_cp; }
    void fill() override {
        const size_t left = size_t(m_endp - m_cp);
        std::memmove(m_bufp, m_cp, left);
        m_cp = m_bufp, m_endp = m_bufp + left;
        const size_t got = from.some(m_endp, bufferSize() - left);
        std::memset(m_endp + got, 0, bufferSize() - left - got);
        m_endp = m_bufp + bufferSize();
    }

private:
    StateReader& from;
};
