// C functions around cosim/engines/harness/counters.h, for tests/block/test_counters.py.
#include "counters.h"

extern "C" {
BlockCounters* counters_new() { return new BlockCounters; }
void counters_delete(BlockCounters* c) { delete c; }
void counters_observe(BlockCounters* c, const CoreIn* in, const CoreOut* out) { c->observe(*in, *out); }
void counters_stand(BlockCounters* c, const CoreIn* in, const CoreOut* out, uint64_t n) { c->stand(*in, *out, n); }
void counters_clear(BlockCounters* c) { c->clear(); }
void counters_latch(BlockCounters* c) { c->latch(); }
void counters_read(const BlockCounters* c, int kept, BlockCounts* to) { *to = kept ? c->kept() : c->live(); }
uint64_t counters_size() { return sizeof(BlockCounts); }
}
