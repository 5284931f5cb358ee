// The state of a system as bytes. Every part has one function, `archive`, which passes its members in a fixed
// order to a writer or a reader. The layout is known only to the same build, so Python
// (cosim/engines/snapshots/state.py) compares a hash of the build before it lets the bytes be read.
#pragma once
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

class StateWriter {
public:
    static constexpr bool reads = false;
    std::vector<uint8_t> bytes;

    template <class... T>
    void operator()(const T&... values) { (one(values), ...); }

    void raw(const void* from, size_t size) {
        const uint8_t* first = static_cast<const uint8_t*>(from);
        bytes.insert(bytes.end(), first, first + size);
    }

private:
    template <class T>
    void one(const T& value) {
        static_assert(std::is_trivially_copyable<T>::value && !std::is_pointer<T>::value, "give it an archive()");
        raw(&value, sizeof value);
    }
    template <class T>
    void one(const std::vector<T>& values) {
        static_assert(std::is_trivially_copyable<T>::value, "write its items one by one");
        one(uint64_t(values.size()));
        raw(values.data(), values.size() * sizeof(T));
    }
    void one(const std::string& text) { one(uint64_t(text.size())), raw(text.data(), text.size()); }
};

// Reads what a StateWriter wrote; past the end it returns zeros and sets `failed`.
class StateReader {
public:
    static constexpr bool reads = true;

    StateReader(const uint8_t* bytes, size_t size) : at(bytes), left(size) {}

    template <class... T>
    void operator()(T&... values) { (one(values), ...); }

    void raw(void* to, size_t size) {
        const size_t given = size < left ? size : left;
        failed |= given < size;
        if (given) std::memcpy(to, at, given);
        if (given < size) std::memset(static_cast<uint8_t*>(to) + given, 0, size - given);
        at += given, left -= given;
    }

    // Copies as many bytes as there are, up to `room`, and returns their number.
    size_t some(void* to, size_t room) {
        const size_t given = room < left ? room : left;
        if (given) std::memcpy(to, at, given);
        at += given, left -= given;
        return given;
    }

    void skip(size_t size) {
        failed |= size > left;
        const size_t given = size < left ? size : left;
        at += given, left -= given;
    }
    const uint8_t* here() const { return at; }
    size_t rest() const { return left; }
    bool good() const { return !failed && !left; }
    bool failed = false;

private:
    const uint8_t* at;
    size_t left;

    template <class T>
    void one(T& value) {
        static_assert(std::is_trivially_copyable<T>::value && !std::is_pointer<T>::value, "give it an archive()");
        raw(&value, sizeof value);
    }
    template <class T>
    void one(std::vector<T>& values) {
        values.resize(size_of(sizeof(T)));
        raw(values.data(), values.size() * sizeof(T));
    }
    void one(std::string& text) {
        text.resize(size_of(1));
        raw(&text[0], text.size());
    }
    size_t size_of(size_t item) {
        uint64_t count = 0;
        one(count);
        if (count <= left / item) return size_t(count);
        failed = true;
        return 0;
    }
};
