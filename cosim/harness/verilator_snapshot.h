// A Verilated model's own save and restore (--savable), into and out of a snapshot.
#pragma once
#include <cstring>

#include "snapshot.h"
#include "verilated.h"
#include "verilated_save.h"

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
