// Moments of a run at which a waveform may begin or end: jobs, tasks, layers, register writes, errors.
#pragma once
#include <string>
#include <vector>

#include "pins.h"

// The kinds of waves/spec.py; mirrored in cosim/engines/traces/writing.py.
enum MomentKind : uint32_t { AT_NEVER = 0, AT_CYCLE, AT_TASK, AT_LAYER, AT_WRITE, AT_ERROR };

struct Moment {
    uint32_t kind, task;
    int64_t job;  // number of a kick, counted from 0 over all cores; -1: any
    uint64_t cycle;
    uint32_t offset, mask, value, layer;
};

// The tasks of a job that belong to a layer; `name` is the number of its name.
struct LayerTasks {
    uint32_t first, count, name;
};

// The state of the cores, as far as moments and counters need it.
class Progress {
public:
    struct Core {
        std::vector<LayerTasks> announced, layers;
        int64_t job = -1;
        uint32_t kicks = 0, task = 0, layer = 0, started = 0, done = 0;
        uint32_t began = 0, ended = 0;  // name of the layer that did so in this cycle, or 0
    };
    Core core[MAX_CORES];

    // A core is kicked; its layers are those announced since its last kick.
    void kick(int c) {
        core[c].job = kicks++;
        core[c].kicks++;
        core[c].layers.swap(core[c].announced);
        core[c].announced.clear();
    }
    uint32_t intern(const std::string& text) {
        for (uint32_t n = 0; n < names.size(); n++)
            if (names[n] == text) return n;
        names.push_back(text);
        return uint32_t(names.size() - 1);
    }
    const std::string& name(uint32_t number) const { return names[number]; }
    void error() { failing = true; }

    // Must be called in each cycle before `reached`.
    void cycle(int cores, const CoreOut* out, uint64_t faults) {
        if (faults != seen) failing = true;
        seen = faults;
        for (int c = 0; c < cores; c++) {
            Core& k = core[c];
            k.began = k.ended = 0;
            if (out[c].diag_valid) failing = true;
            if (!(out[c].events & 3)) continue;
            const uint32_t task = out[c].task_index;
            if (out[c].events & 2) {
                k.done++;
                for (const LayerTasks& l : k.layers)
                    if (task == l.first + l.count - 1 && k.layer == l.name) k.ended = l.name, k.layer = 0;
            }
            if (out[c].events & 1) {
                k.started++, k.task = task;
                for (const LayerTasks& l : k.layers)
                    if (task >= l.first && task < l.first + l.count && k.layer != l.name)
                        k.layer = k.began = l.name;
            }
        }
    }

    // Whether this cycle is the moment; for a task or a layer, its start or (`end`) its end.
    bool reached(const Moment& m, bool end, uint64_t cycle, int cores, const CoreOut* out) const {
        if (m.kind == AT_CYCLE) return cycle >= m.cycle;
        if (m.kind == AT_ERROR) return failing;
        bool found = false, elsewhere = false;
        for (int c = 0; c < cores; c++) {
            const CoreOut& o = out[c];
            if (m.kind == AT_TASK)
                found |= (o.events & (end ? 2 : 1)) && o.task_index == m.task &&
                         (m.job < 0 || m.job == core[c].job);
            if (m.kind == AT_WRITE)
                found |= o.watch_valid && o.watch_offset == m.offset && (o.watch_value & m.mask) == m.value;
            if (m.kind == AT_LAYER) {
                found |= (end ? core[c].ended : core[c].began) == m.layer;
                elsewhere |= end && core[c].layer == m.layer;
            }
        }
        return found && !elsewhere;
    }
    void cycle_over() { failing = false; }

    template <class Archive>
    void archive(Archive& a) {
        for (Core& c : core) {
            a(c.announced, c.layers, c.job, c.kicks, c.task, c.layer, c.started, c.done, c.began, c.ended);
        }
        uint64_t count = names.size();
        a(seen, kicks, failing, count);
        if (Archive::reads) names.assign(count < MOST_NAMES ? count : 0, "");
        for (std::string& name : names) a(name);
        if constexpr (Archive::reads) {
            a.failed |= names.empty();
            for (const Core& c : core) {
                a.failed |= c.layer >= names.size() || c.began >= names.size() || c.ended >= names.size();
                for (const auto* list : {&c.announced, &c.layers})
                    for (const LayerTasks& layer : *list) a.failed |= layer.name >= names.size();
            }
        }
    }

private:
    static constexpr uint64_t MOST_NAMES = 1u << 24;
    std::vector<std::string> names{"-"};  // 0: no layer
    uint64_t seen = 0;
    int64_t kicks = 0;
    bool failing = false;
};
