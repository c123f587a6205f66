/* interceptor.h: places, levels, filters and the registry, as calls meet them. */
#include "test.h"

/* Adds a probe with `flags` to `channel`. */
static penstock_interceptor_id add_at(probe *probe, penstock_channel *channel, int32_t priority, uint32_t flags) {
  penstock_interceptor table = probe_table(probe);
  table.flags = flags;
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, &table, priority, &id, NULL));
  return id;
}

static int32_t note_level(probe *self, penstock_hop *hop, int32_t event) {
  (void)event;
  atomic_fetch_or((atomic_int *)self->context, 1 << penstock_hop_level(hop));
  return PENSTOCK_NEXT;
}

/* Object level, codec, bytes per call, bytes per attempt; within each by priority, then by registration. */
TEST(levels_stand_in_their_order) {
  penstock_channel *channel = open_channel();
  probe_trace trace = {PTHREAD_MUTEX_INITIALIZER, ""};
  static const struct {
    const char *name;
    int32_t priority;
    uint32_t flags;
    int levels;
  } places[] = {
      {"attempt", INT32_MAX, PENSTOCK_PER_ATTEMPT, 1 << 0},
      {"bytes", 0, PENSTOCK_LEVEL_BYTES, 1 << 0},
      {"both", 7, PENSTOCK_LEVEL_BOTH, 1 << 0 | 1 << 1},
      {"object", INT32_MIN, PENSTOCK_LEVEL_OBJECT, 1 << 1},
      {"split", 5, PENSTOCK_LEVEL_BOTH | PENSTOCK_PER_ATTEMPT, 1 << 0 | 1 << 1},
  };
  enum { COUNT = sizeof(places) / sizeof(*places) };
  probe probes[COUNT];
  atomic_int levels[COUNT];
  for (int i = 0; i < COUNT; i++) {
    probe_init(&probes[i], places[i].name);
    probes[i].trace = &trace;
    probes[i].hook = note_level;
    atomic_init(&levels[i], 0);
    probes[i].context = &levels[i];
    add_at(&probes[i], channel, places[i].priority, places[i].flags);
  }
  check_echo(channel);
  penstock_channel_release(channel);
  for (int i = 0; i < COUNT; i++) probe_wait_finalized(&probes[i]);
  CHECK_HAS(trace.text, "both:send split:send object:send both:send bytes:send attempt:send split:send ");
  CHECK_HAS(trace.text,
            "split:receive attempt:receive bytes:receive both:receive object:receive split:receive both:receive ");
  for (int i = 0; i < COUNT; i++) {
    int hops = places[i].levels == 3 ? 2 : 1;
    CHECK_INT(atomic_load(&levels[i]), places[i].levels);
    CHECK_INT(atomic_load(&probes[i].seen[PENSTOCK_EVENT_CREATE]), hops);
    CHECK_INT(atomic_load(&probes[i].seen[PENSTOCK_EVENT_DESTROY]), hops);
  }
}
