// Tracing of a whole system: which signals are sampled, in which cycles, and the cycles kept from before the
// start.
//
// The value at n ns in a waveform is the value of the pins in cycle n, as counted in the log of tasks. Only
// changes are written, and only cycles with changes.
#pragma once
#include <algorithm>
#include <map>
#include <memory>
#include <sstream>

#include "dram.h"
#include "trace_moments.h"
#include "trace_ring.h"
#include "trace_sampler.h"
#include "trace_sink.h"

struct TraceOrder {
    Moment start, stop;
    uint64_t before, after;      // cycles kept from before the start; cycles after an error
    uint64_t limit, ring_bytes;  // of the file (0: none); of the memory for the cycles before the start
};

enum TraceState : uint32_t { TRACE_OFF = 0, TRACE_WAITS, TRACE_WRITES, TRACE_ENDED, TRACE_FULL, TRACE_FAILED };

struct TraceStatus {
    uint64_t bytes, first, last;
    uint32_t state, shortened;  // shortened: memory did not hold all the cycles before the start
};

template <class Model>
class Tracer : public TraceLog {
public:
    using Models = std::unique_ptr<Model>[MAX_CORES];

    Tracer(int cores, Models& models, const CoreIn* in, const CoreOut* out, Dram& dram, Progress& progress)
        : cores(cores), models(models), in(in), out(out), dram(dram), progress(progress) {}

    bool on() const { return state == TRACE_WAITS || state == TRACE_WRITES; }

    // Starts a waveform. `lines` has one line per variable: its path, then a letter and numbers that give the
    // source of its value:
    //   m CORE SIGNAL BITS         a signal of the model
    //   s CORE SIGNAL SHIFT BITS   some bits of a signal
    //   i|o CORE OFFSET SHIFT BITS pins, in CoreIn or CoreOut
    //   w CORE REGISTER SHIFT BITS the value last written to a register
    //   c VALUE BITS               a constant
    //   n CORE WHICH BITS          a number of the harness (see `number`), with the name as text if WHICH is
    //   L
    bool open(const char* path, const FstFunctions* fst, const char* lines, const TraceOrder& wanted, uint64_t cycle) {
        close();
        file = path, order = wanted;
        if (fst) sink = std::make_unique<FstSink>(*fst, order.limit);
        else sink = std::make_unique<VcdSink>();
        variables.assign(1, {"", 0, false, 0, 0});
        for (auto& some : pins) some.clear();
        first_of.clear(), constants.clear(), slices.clear(), written.clear(), numbers.clear();
        uint32_t words = 0;
        for (int c = 0; c < cores; c++) {
            signals[c].assign(models[c]->trace_signals(), 0);
            old[c].assign(models[c]->trace_words(), 0);
        }
        std::istringstream text(lines);
        for (std::string line; std::getline(text, line);)
            if (!declare(line, words)) return false;
        values.assign(words, 0);
        for (const auto& [variable, value] : constants) std::memcpy(&values[variables[variable].place], &value, 4);
        for (int c = 0; c < cores; c++) {
            samplers[c] = {old[c].data(), signals[c].data(), this};
            models[c]->trace_select(signals[c]);
        }
        ring = order.before ? std::make_unique<TraceRing>(order.before, order.ring_bytes) : nullptr;
        state = TRACE_WAITS, first = last = size = 0, stop_at = ~0ull, short_of = false, whole = true;
        order.start.cycle = std::max(order.start.cycle, cycle);
        return true;
    }

    // Appends the present values of variables, which are declared as for `open`, in whole words. Returns false
    // for a declaration that does not fit, and while a waveform is written.
    bool values_of(const char* lines, std::vector<uint32_t>& to) {
        if (on() || !open("", nullptr, lines, TraceOrder{}, 0)) return false;
        take();
        state = TRACE_OFF;
        sink.reset();
        for (size_t v = 1; v < variables.size(); v++) {
            const uint32_t* const from = &values[variables[v].place];
            to.insert(to.end(), from, from + variables[v].words());
        }
        return true;
    }

    // The next cycle that needs work even if every core sleeps.
    uint64_t next_cycle() const {
        return state == TRACE_WAITS && order.start.kind == AT_CYCLE ? order.start.cycle : ~0ull;
    }

    // Called after a clock edge; the pins are those of `cycle`.
    void sample(uint64_t cycle) {
        now = cycle;
        if (state == TRACE_WAITS && progress.reached(order.start, false, cycle, cores, out)) begin();
        else if (state == TRACE_WAITS && ring) take();
        if (state != TRACE_WRITES) return;
        if (cycle >= stop_at) return close();
        take();
        last = cycle;
        if (order.limit && sink->bytes() + RESERVE > order.limit) return end(TRACE_FULL);
        if (sink->failed()) return end(TRACE_FAILED);
        if (order.stop.kind <= AT_CYCLE || !progress.reached(order.stop, true, cycle, cores, out)) return;
        if (order.stop.kind != AT_ERROR) return close();
        stop_at = std::min(stop_at, cycle + order.after);
    }

    // Skips to `cycle`, the next one to be simulated; nothing changes before it.
    void skip(uint64_t cycle) {
        if (state == TRACE_WAITS && order.start.kind == AT_CYCLE && cycle >= order.start.cycle) {
            now = order.start.cycle;
            begin();
            take();
        }
        if (state != TRACE_WRITES) return;
        last = std::max(last, std::min(cycle, stop_at) - 1);
        if (cycle >= stop_at) close();
    }

    // An error outside the simulation, such as a wait that timed out.
    void fail_at(uint64_t cycle) {
        now = cycle;
        if (state == TRACE_WAITS && order.start.kind == AT_ERROR) begin(), last = cycle;
        if (state == TRACE_WRITES) sink->flush();
    }

    void close() {
        if (on()) end(TRACE_ENDED);
    }
    TraceStatus status() const {
        return {state == TRACE_WRITES ? sink->bytes() : size, first, last, state, uint32_t(short_of)};
    }

    void changed(uint32_t variable, const uint32_t* words) override {
        if (variable == SAMPLED) return;
        const TraceVariable& v = variables[variable];
        uint32_t* const value = &values[v.place];
        if (!quiet && state == TRACE_WRITES) stamp();
        if (!quiet && state == TRACE_WAITS && stamped != now) ring->cycle(stamped = now, values);
        std::memcpy(value, words, v.words() * 4);
        if (quiet) return;
        if (state == TRACE_WRITES) write(variable, value);
        else ring->change(variable, value, v.words());
    }

private:
    static constexpr uint64_t RESERVE = 2048;  // bytes kept free for the end of the file
    static constexpr uint64_t UNITS = 10;      // units of 100 ps per cycle
    static constexpr uint32_t SAMPLED = ~0u;   // marks a signal of which only some bits are wanted

    struct Pin {
        uint32_t variable, place, shift, bytes;
        uint64_t mask;
        const uint8_t* from;
    };
    struct Bits {
        uint32_t variable, core, from, shift;  // from: place of a signal, or offset of a register
    };
    struct Number {
        uint32_t variable;
        int core;
        char which;
    };

    const int cores;
    Models& models;
    const CoreIn* const in;
    const CoreOut* const out;
    Dram& dram;
    Progress& progress;

    TraceState state = TRACE_OFF;
    TraceOrder order{};
    std::string file;
    std::unique_ptr<TraceSink> sink;
    std::unique_ptr<TraceRing> ring;
    std::vector<TraceVariable> variables;
    std::vector<uint32_t> values;
    std::map<std::string, uint32_t> first_of;  // by source of a value: the first variable that has it
    std::vector<std::pair<uint32_t, uint32_t>> constants;
    std::vector<Pin> pins[2 * MAX_CORES];
    std::vector<Bits> slices, written;
    std::vector<Number> numbers;
    std::vector<uint32_t> signals[MAX_CORES], old[MAX_CORES];
    TraceSampler samplers[MAX_CORES];
    CoreIn in_before[MAX_CORES];
    CoreOut out_before[MAX_CORES];
    uint64_t now = 0, stamped = ~0ull, stop_at = ~0ull, first = 0, last = 0, size = 0;
    uint32_t clock = 0;
    bool quiet = false, whole = true, short_of = false, high = false;

    bool declare(const std::string& line, uint32_t& words) {
        std::istringstream text(line);
        TraceVariable v{"", 0, false, words, 0};
        char kind = 0, which = 0;
        int core = 0;
        uint32_t from = 0, shift = 0, value = 0;
        text >> v.path >> kind;
        if (kind != 'c') text >> core;
        if (kind == 'c') text >> value;
        else if (kind == 'n') text >> which;
        else text >> from;
        if (kind == 's' || kind == 'i' || kind == 'o' || kind == 'w') text >> shift;
        text >> v.bits;
        if (!text || v.bits == 0 || core >= cores) return false;
        v.text = which == 'L';
        const uint32_t number = uint32_t(variables.size());
        uint32_t& known = first_of[line.substr(v.path.size())];
        if (known) {
            v.alias = known, v.place = variables[known].place;
            variables.push_back(v);
            return true;
        }
        known = number;
        words += v.words();
        variables.push_back(v);
        if (kind == 'm') {
            if (from >= signals[core].size()) return false;
            signals[core][from] = number;
        } else if (kind == 's') {
            if (from >= signals[core].size()) return false;
            slices.push_back({number, uint32_t(core), models[core]->trace_place(from), shift});
            if (!signals[core][from]) signals[core][from] = SAMPLED;
        } else if (kind == 'i' || kind == 'o') {
            if (from >= (kind == 'i' ? sizeof(CoreIn) : sizeof(CoreOut))) return false;
            const uint8_t* base = kind == 'i' ? (const uint8_t*)&in[core] : (const uint8_t*)&out[core];
            const uint64_t mask = v.bits < 64 ? (1ull << v.bits) - 1 : ~0ull;
            pins[2 * core + (kind == 'o')].push_back(
                {number, v.place, shift, (shift + v.bits + 7) / 8, mask, base + from});
        } else if (kind == 'w') {
            written.push_back({number, uint32_t(core), from, shift});
        } else if (kind == 'c') {
            constants.push_back({number, value});
        } else if (which == 'c') {
            clock = number;
        } else {
            numbers.push_back({number, core, which});
        }
        return true;
    }

    void begin() {
        state = TRACE_WRITES, stamped = ~0ull, first = last = now;
        if (!sink->open(file.c_str(), variables)) return end(TRACE_FAILED);
        stop_at = order.stop.kind == AT_CYCLE ? order.stop.cycle : ~0ull;
        if (order.start.kind == AT_ERROR && order.stop.kind == AT_NEVER) stop_at = now + order.after;
        if (!ring) return;
        const uint64_t here = now;
        ring->replay(
            [&](uint32_t v) { return std::make_pair(variables[v].place, variables[v].words()); },
            [&](uint64_t cycle, const std::vector<uint32_t>& state_then) {
                first = now = cycle;
                dump(state_then);
            },
            [&](uint64_t cycle) {
                now = cycle;
                stamp();
            },
            [&](uint32_t v, const uint32_t* words) { write(v, words); });
        short_of = ring->shortened();
        ring.reset();
        now = here;
        if (stamped == ~0ull && !whole) dump(values);
    }

    // Writes all variables with their values in cycle `now`.
    void dump(const std::vector<uint32_t>& all) {
        stamp();
        for (uint32_t v = 1; v < variables.size(); v++)
            if (!variables[v].alias && v != clock) write(v, &all[variables[v].place]);
    }

    void stamp() {
        if (stamped == now) return;
        fall();
        sink->time(now * UNITS);
        stamped = now;
        const uint32_t one = 1;
        if (clock) sink->value(clock, &one), high = true;
    }
    void fall() {
        const uint32_t zero = 0;
        if (high) sink->time(stamped * UNITS + UNITS / 2), sink->value(clock, &zero);
        high = false;
    }
    void write(uint32_t variable, const uint32_t* words) {
        if (variables[variable].text) sink->text(variable, progress.name(words[0]));
        else sink->value(variable, words);
    }

    void end(TraceState how) {
        if (state == TRACE_WRITES && how != TRACE_FAILED) {
            fall();
            sink->time((last + 1) * UNITS);
        }
        if (state == TRACE_WRITES && !sink->close()) how = TRACE_FAILED;
        size = state == TRACE_WRITES ? sink->bytes() : 0;
        state = how;
        sink.reset(), ring.reset();
    }

    // Samples everything and writes the changes to the file or into the ring.
    void take() {
        const bool all = whole;
        quiet = whole;
        for (int c = 0; c < cores; c++) {
            if (all || std::memcmp(&in_before[c], &in[c], sizeof in[c])) look(pins[2 * c]);
            if (all || std::memcmp(&out_before[c], &out[c], sizeof out[c])) look(pins[2 * c + 1]);
            in_before[c] = in[c], out_before[c] = out[c];
            models[c]->trace_sample(samplers[c], all);
        }
        for (const Bits& s : slices) put(s.variable, old[s.core][s.from] >> s.shift);
        for (const Bits& w : written)
            if (out[w.core].watch_valid && out[w.core].watch_offset == w.from)
                put(w.variable, out[w.core].watch_value >> w.shift);
        for (const Number& n : numbers) put(n.variable, number(n));
        quiet = whole = false;
        if (all && state == TRACE_WRITES) dump(values);
        if (clock && state == TRACE_WRITES) stamp();
    }

    void look(const std::vector<Pin>& some) {
        for (const Pin& p : some) {
            if (p.bytes > 8) {
                if (!std::memcmp(p.from, &values[p.place], p.bytes)) continue;
                uint32_t words[8];
                std::memcpy(words, p.from, p.bytes);
                changed(p.variable, words);
                continue;
            }
            uint64_t value = 0;
            switch (p.bytes) {
                case 1: value = *p.from; break;
                case 2: value = *(const uint16_t*)p.from; break;
                case 4: value = *(const uint32_t*)p.from; break;
                default: std::memcpy(&value, p.from, p.bytes);
            }
            value = value >> p.shift & p.mask;
            if (p.mask >> 32 ? std::memcmp(&value, &values[p.place], 8) != 0 : uint32_t(value) != values[p.place])
                changed(p.variable, (const uint32_t*)&value);
        }
    }

    void put(uint32_t variable, uint32_t value) {
        const TraceVariable& v = variables[variable];
        value &= ~0u >> (32 - std::min(v.bits, 32u));
        if (values[v.place] != value) changed(variable, &value);
    }

    uint32_t number(const Number& n) const {
        if (n.core < 0) {
            uint32_t jobs = 0, lines = 0, layer = 0;
            for (int c = cores - 1; c >= 0; c--) {
                jobs += progress.core[c].kicks, lines |= uint32_t(out[c].irq & 1) << c;
                if (progress.core[c].layer) layer = progress.core[c].layer;
            }
            return n.which == 'j' ? jobs : n.which == 'i' ? lines : layer;
        }
        const Progress::Core& core = progress.core[n.core];
        switch (n.which) {
            case 'j': return core.kicks;
            case 't': return core.task;
            case 's': return core.started;
            case 'd': return core.done;
            case 'r': return dram.port[n.core].reads_open;
            case 'w': return dram.port[n.core].writes_open;
            default: return core.layer;
        }
    }
};
