// Writers of waveform files: VCD, and FST through functions of a library that Python has found.
#pragma once
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

struct TraceVariable {
    std::string path;  // scopes and name, separated by dots
    uint32_t bits;
    bool text;       // the value is the number of a string
    uint32_t place;  // index of its first word among all values
    uint32_t alias;  // number of an earlier variable with the same value, or 0
    uint32_t words() const { return (bits + 31) / 32; }
};

class TraceSink {
public:
    virtual ~TraceSink() = default;
    // Variables are numbered from 1; those of one scope are adjacent.
    virtual bool open(const char* path, const std::vector<TraceVariable>& variables) = 0;
    virtual void time(uint64_t time) = 0;  // in units of 100 ps
    virtual void value(uint32_t variable, const uint32_t* words) = 0;
    virtual void text(uint32_t variable, const std::string& text) = 0;
    virtual void flush() = 0;
    virtual bool close() = 0;  // false: a write failed
    virtual uint64_t bytes() const = 0;
    virtual bool failed() const = 0;

protected:
    // Calls enter(scope), leave() and one(number, name) in hierarchical order.
    template <class Enter, class Leave, class One>
    static void walk(const std::vector<TraceVariable>& variables, Enter enter, Leave leave, One one) {
        std::vector<std::string> open;
        for (uint32_t n = 1; n < variables.size(); n++) {
            std::vector<std::string> parts;
            const std::string& path = variables[n].path;
            for (size_t from = 0, dot; from <= path.size(); from = dot + 1) {
                dot = path.find('.', from);
                if (dot == std::string::npos) dot = path.size();
                parts.push_back(path.substr(from, dot - from));
            }
            size_t same = 0;
            while (same < open.size() && same + 1 < parts.size() && open[same] == parts[same]) same++;
            for (; open.size() > same; open.pop_back()) leave();
            for (; open.size() + 1 < parts.size(); open.push_back(parts[open.size()])) enter(parts[open.size()]);
            one(n, parts.back());
        }
        for (; !open.empty(); open.pop_back()) leave();
    }
};

// The eight binary digits of each byte.
struct BinaryDigits {
    char of[256][8];
    BinaryDigits() {
        for (int byte = 0; byte < 256; byte++)
            for (int bit = 0; bit < 8; bit++) of[byte][7 - bit] = char('0' + (byte >> bit & 1));
    }
    // Writes whole bytes, the highest first, which may put up to seven more digits before those of `width`.
    // Returns where the digits of `width` bits begin.
    char* write(char* to, const uint32_t* words, uint32_t width) const {
        const uint32_t bytes = (width + 7) / 8;
        for (uint32_t n = 0; n < bytes; n++) {
            const uint32_t byte = bytes - 1 - n;
            std::memcpy(to + 8 * n, of[words[byte >> 2] >> (8 * (byte & 3)) & 255], 8);
        }
        return to + 8 * bytes - width;
    }
};
inline const BinaryDigits binary_digits;

class VcdSink : public TraceSink {
public:
    bool open(const char* path, const std::vector<TraceVariable>& variables) override {
        file = std::fopen(path, "wb");
        if (!file) return false;
        codes.resize(variables.size());
        bits.resize(variables.size());
        put("$version rkcosim $end\n$timescale 100ps $end\n");
        walk(
            variables, [&](const std::string& s) { put("$scope module " + s + " $end\n"); },
            [&] { put("$upscope $end\n"); },
            [&](uint32_t n, const std::string& name) {
                const TraceVariable& v = variables[n];
                codes[n] = code(v.alias ? v.alias : n);
                bits[n] = v.bits;
                std::string range = v.bits > 1 && !v.text ? " [" + std::to_string(v.bits - 1) + ":0]" : "";
                std::string kind = v.text ? "string 1" : "wire " + std::to_string(v.bits);
                put("$var " + kind + " " + codes[n] + " " + name + range + " $end\n");
            });
        put("$enddefinitions $end\n");
        flush();
        return !bad;
    }
    void time(uint64_t time) override { put("#" + std::to_string(time) + "\n"); }
    void value(uint32_t n, const uint32_t* words) override {
        const uint32_t width = bits[n];
        if (room < width + 32) spill();
        char* p = at;
        if (width == 1) {
            *p++ = char('0' + (words[0] & 1));
        } else {
            *p++ = 'b';
            uint32_t top = (width - 1) / 32;
            while (top && !words[top]) top--;
            const uint32_t digits = 32 * top + (words[top] ? 32 - uint32_t(__builtin_clz(words[top])) : 1);
            const char* from = binary_digits.write(p, words, digits);
            std::memmove(p, from, digits);
            p += digits;
            *p++ = ' ';
        }
        std::memcpy(p, codes[n].data(), codes[n].size());
        p += codes[n].size();
        *p++ = '\n';
        room -= size_t(p - at);
        at = p;
    }
    void text(uint32_t n, const std::string& text) override {
        std::string safe;
        for (char c : text) safe += c > ' ' && c < 127 ? c : '_';
        put("s" + safe + " " + codes[n] + "\n");
    }
    void flush() override {
        spill();
        if (file) bad |= std::fflush(file) != 0;
    }
    bool close() override {
        if (!file) return !bad;
        spill();
        bad |= std::fclose(file) != 0;
        file = nullptr;
        return !bad;
    }
    uint64_t bytes() const override { return written + uint64_t(at - buffer.data()); }
    bool failed() const override { return bad; }
    ~VcdSink() override { close(); }

private:
    static constexpr size_t BUFFER = 1 << 20;
    std::FILE* file = nullptr;
    std::vector<char> buffer = std::vector<char>(BUFFER);
    char* at = buffer.data();
    size_t room = BUFFER;
    uint64_t written = 0;
    bool bad = false;
    std::vector<std::string> codes;
    std::vector<uint32_t> bits;

    static std::string code(uint32_t n) {
        std::string text;
        for (; n; n /= 94) text += char('!' + n % 94);
        return text;
    }
    void put(const std::string& text) {
        if (room < text.size()) spill();
        std::memcpy(at, text.data(), text.size());
        at += text.size(), room -= text.size();
    }
    void spill() {
        const size_t n = size_t(at - buffer.data());
        if (n && file) {
            bad |= std::fwrite(buffer.data(), 1, n, file) != n;
            written += n;
        }
        at = buffer.data(), room = BUFFER;
    }
};

// Functions of fstapi, in the order of cosim/engines/traces/writing.py.
struct FstFunctions {
    void* (*create)(const char*, int);
    void (*close)(void*);
    void (*scope)(void*, int, const char*, const char*);
    void (*upscope)(void*);
    uint32_t (*variable)(void*, int, int, uint32_t, const char*, uint32_t);
    void (*time)(void*, uint64_t);
    void (*value)(void*, uint32_t, const void*);
    void (*text)(void*, uint32_t, const void*, uint32_t);
    void (*flush)(void*);
    void (*timescale)(void*, const char*);
    void (*version)(void*, const char*);
    void (*packing)(void*, int);
};

class FstSink : public TraceSink {
public:
    // If there is a limit, the size of the file on disk is checked more often.
    FstSink(const FstFunctions& functions, uint64_t limit)
        : f(functions), flush_every(limit ? std::min(std::max(limit, LEAST), MOST) : MOST) {}
    bool open(const char* path, const std::vector<TraceVariable>& variables) override {
        writer = f.create(path, 1);
        if (!writer) return false;
        name = path;
        f.timescale(writer, "100ps");
        f.version(writer, "rkcosim");
        f.packing(writer, LZ4);
        handles.resize(variables.size());
        bits.resize(variables.size());
        uint32_t widest = 1;
        walk(
            variables, [&](const std::string& s) { f.scope(writer, MODULE, s.c_str(), nullptr); },
            [&] { f.upscope(writer); },
            [&](uint32_t n, const std::string& leaf) {
                const TraceVariable& v = variables[n];
                std::string range = v.bits > 1 && !v.text ? " [" + std::to_string(v.bits - 1) + ":0]" : "";
                handles[n] = f.variable(writer, v.text ? STRING : WIRE, 0, v.text ? 0 : v.bits,
                                        (leaf + range).c_str(), v.alias ? handles[v.alias] : 0);
                bits[n] = v.bits;
                if (v.bits > widest) widest = v.bits;
            });
        digits.resize(widest + 8);
        return true;
    }
    void time(uint64_t time) override {
        if (pending > flush_every) flush();
        f.time(writer, time);
    }
    void value(uint32_t n, const uint32_t* words) override {
        const uint32_t width = bits[n];
        f.value(writer, handles[n], binary_digits.write(digits.data(), words, width));
        pending += 4 + width / 8;
    }
    void text(uint32_t n, const std::string& text) override {
        f.text(writer, handles[n], text.data(), uint32_t(text.size()));
        pending += text.size();
    }
    void flush() override {
        if (writer) f.flush(writer);
        pending = 0;
        measure();
    }
    bool close() override {
        if (writer) f.close(writer);
        writer = nullptr, pending = 0;
        measure();
        return on_disk > 0;
    }
    // The size on disk plus an estimate for the data not yet written.
    uint64_t bytes() const override { return on_disk + pending / COMPRESSED; }
    bool failed() const override { return false; }
    ~FstSink() override { close(); }

private:
    static constexpr int MODULE = 0, WIRE = 16, STRING = 21, LZ4 = 2;
    static constexpr uint64_t LEAST = 1 << 18, MOST = 8 << 20, COMPRESSED = 8;
    FstFunctions f;
    const uint64_t flush_every;
    void* writer = nullptr;
    std::string name;
    std::vector<uint32_t> handles, bits;
    std::vector<char> digits;
    uint64_t pending = 0, on_disk = 0;

    void measure() {
        struct stat status;
        if (stat(name.c_str(), &status) == 0) on_disk = uint64_t(status.st_size);
    }
};
