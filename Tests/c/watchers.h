/* Shared by the tests of on_pick: an interceptor that counts the addresses that it sees, and decides about them. */
#ifndef PENSTOCK_WATCHERS_H
#define PENSTOCK_WATCHERS_H

#include "servers.h"

typedef struct watcher {
  servers *all;
  const char *name;
  /* Gives the verdict of each on_pick; NULL: always NEXT. */
  int32_t (*decide)(struct watcher *self, penstock_hop *hop, int server);
  int32_t (*start)(struct watcher *self, penstock_hop *hop);
  void *context;
  atomic_int picks[SERVERS], all_picks, starts, ends;
  struct watcher *above;
  penstock_executor *executor;
  _Atomic(pthread_t) thread; /* the thread on which on_start ran */
} watcher;

static inline int server_of(servers *all, const char *address) {
  for (int i = 0; i < SERVERS; i++)
    if (address && strcmp(all->address[i], address) == 0) return i;
  return -1;
}

static inline int32_t on_pick(penstock_hop *hop, void *state) {
  watcher *self = state;
  int server = server_of(self->all, penstock_hop_address(hop));
  CHECK(server >= 0);
  CHECK_INT(penstock_hop_event(hop), PENSTOCK_EVENT_PICK);
  CHECK(penstock_hop_address_attribute(hop, "zone") != NULL);
  CHECK(penstock_hop_address_attribute(hop, "rack") == NULL);
  /* In on_pick the metadata can be read but not changed, because it is about to be sent; and the event can't wait. */
  CHECK_RESULT(penstock_metadata_set(penstock_hop_metadata(hop), "a", "b"), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_request_set_method(penstock_hop_request(hop), "/a/b"), PENSTOCK_E_STATE);
  CHECK_STR(penstock_hop_why(hop),
            "the start can be changed in on_start, and in the on_status of an interceptor with replay_bytes");
  CHECK_INT(penstock_hop_ticket(hop), 0);
  atomic_fetch_add(&self->all_picks, 1);
  if (server >= 0) atomic_fetch_add(&self->picks[server], 1);
  /* on_pick runs from the top hop down, so the hop above has seen this endpoint already. */
  if (self->above) CHECK(atomic_load(&self->above->all_picks) >= atomic_load(&self->all_picks));
  return self->decide ? self->decide(self, hop, server) : PENSTOCK_NEXT;
}

static inline int32_t on_start(penstock_hop *hop, void *state) {
  watcher *self = state;
  CHECK(penstock_hop_address(hop) == NULL && penstock_hop_address_attribute(hop, "zone") == NULL);
  atomic_fetch_add(&self->starts, 1);
  return self->start ? self->start(self, hop) : PENSTOCK_NEXT;
}

static inline int32_t on_end(penstock_hop *hop, void *state) {
  (void)hop;
  atomic_fetch_add(&((watcher *)state)->ends, 1);
  return PENSTOCK_NEXT;
}

static inline void watch(servers *all, watcher *self, int32_t priority) {
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_interceptor_id id = 0;
  self->all = all;
  table.name = self->name ? self->name : "watcher";
  table.per_attempt = 1;
  table.user_data = self;
  table.on_start = on_start;
  table.on_status = table.on_cancel = on_end;
  table.on_pick = on_pick;
  table.outbound_executor = table.inbound_executor = self->executor;
  OK(penstock_channel_add_interceptor(all->channel, &table, priority, &id, NULL));
}

static const char *const policies[] = {PICK_FIRST, ROUND_ROBIN, WEIGHTED,
                                       "{\"outlier_detection_experimental\": {\"childPolicy\": [" ROUND_ROBIN "]}}"};
enum { POLICIES = sizeof(policies) / sizeof(*policies) };

static inline int32_t refuse_one(watcher *self, penstock_hop *hop, int server) {
  (void)hop;
  return server == *(int *)self->context ? PENSTOCK_DROP : PENSTOCK_NEXT;
}

#endif
