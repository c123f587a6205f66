/* penstock_request_prefer: calls that ask for an endpoint (docs/hops.md). */
#include "watchers.h"

typedef struct {
  const char *zone;
  int32_t required;
} wish;

static int32_t prefer(watcher *self, penstock_hop *hop) {
  wish *wanted = self->context;
  OK(penstock_request_prefer(penstock_hop_request(hop), "zone", wanted->zone, wanted->required));
  return PENSTOCK_NEXT;
}

static int32_t prefer_once_per_call(penstock_hop *hop, void *state) { return prefer(state, hop); }

/* Pushes a snapshot of one address: that of a server, in zone a. */
static void push_zone_a(servers *all, int server) {
  char text[256];
  snprintf(text, sizeof(text),
           "{\"addresses\": [{\"address\": \"%s\", \"attributes\": {\"zone\": \"a\"}}], "
           "\"service_config\": {\"loadBalancingConfig\": [%s]}}",
           all->address[server], ROUND_ROBIN);
  OK(penstock_resolver_push(all->resolver, text, NULL));
}

/* The hop that asks for a zone is made once per call, or per attempt; the call is unary or a stream. */
TEST(pick_prefers_a_zone) {
  for (int i = 1; i < POLICIES * 2; i++) {
    servers all;
    start_servers(&all, NULL);
    open_servers(&all, policies[i / 2], NULL);
    if (i / 2) connect_all(&all);
    wish wanted = {"b", 0};
    watcher self = {.context = &wanted, .start = prefer};
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    penstock_interceptor_id id = 0;
    table.user_data = &self;
    table.on_start = prefer_once_per_call;
    if (i % 2)
      watch(&all, &self, 0);
    else
      OK(penstock_channel_add_interceptor(all.channel, &table, 0, &id, NULL));
    int calls[SERVERS] = {0};
    for (int call = 0; call < 24; call++) {
      outcome found = ask(&all, NULL, NULL);
      if (CHECK_INT(found.code, 0)) calls[found.server]++;
    }
    exchange(all.channel, 3);
    /* With pick_first there is one connection, which is to zone a. */
    if (i / 2)
      CHECK(calls[0] == 0 && calls[1] > 0 && calls[2] > 0);
    else
      CHECK_INT(calls[0], 24);
    wanted = (wish){"c", 0};
    CHECK_INT(ask(&all, NULL, NULL).code, 0);
    wanted = (wish){"c", 1};
    outcome found = ask(&all, NULL, "{\"wait_for_ready\": true}");
    CHECK_INT(found.code, PENSTOCK_STATUS_UNAVAILABLE);
    CHECK_HAS(found.words, "no ready endpoint has zone=c");
    wanted = (wish){"b", 1};
    found = ask(&all, NULL, NULL);
    CHECK_INT(found.code, i / 2 ? 0 : PENSTOCK_STATUS_UNAVAILABLE);
    end_servers(&all);
  }
}

/* The servers of the zone have so small weights that their turns hardly come. Still, each of them gets calls. */
TEST(pick_prefers_light_servers) {
  servers all;
  start_servers(&all, NULL);
  open_servers(&all, WEIGHTED, NULL);
  connect_all(&all);
  char text[512];
  snprintf(text, sizeof(text),
           "{\"addresses\": [{\"address\": \"%s\", \"weight\": 60000}, "
           "{\"address\": \"%s\", \"attributes\": {\"zone\": \"b\"}}, "
           "{\"address\": \"%s\", \"attributes\": {\"zone\": \"b\"}}], "
           "\"service_config\": {\"loadBalancingConfig\": [%s]}}",
           all.address[0], all.address[1], all.address[2], WEIGHTED);
  OK(penstock_resolver_push(all.resolver, text, NULL));
  wish wanted = {"b", 1};
  watcher self = {.context = &wanted, .start = prefer};
  watch(&all, &self, 0);
  int calls[SERVERS] = {0};
  for (int call = 0; call < 60; call++) {
    outcome found = ask(&all, NULL, NULL);
    if (CHECK_INT(found.code, 0)) calls[found.server]++;
  }
  CHECK(calls[0] == 0 && calls[1] > 5 && calls[2] > 5);
  end_servers(&all);
}

/* If the server of a required zone is gone, a call fails at once. With wait_for_ready it waits for the zone. */
TEST(pick_requires_a_zone) {
  servers all;
  start_servers(&all, NULL);
  open_servers(&all, ROUND_ROBIN, "{\"tls\": false, \"initial_backoff_ms\": 20, \"max_backoff_ms\": 20}");
  wish wanted = {"a", 1};
  watcher self = {.context = &wanted, .start = prefer};
  watch(&all, &self, 0);
  CHECK_INT(ask(&all, NULL, NULL).server, 0);
  stop_server(&all, 0);
  EVENTUALLY(ask(&all, NULL, NULL).code == PENSTOCK_STATUS_UNAVAILABLE);
  outcome found = ask(&all, NULL, "{\"wait_for_ready\": true, \"deadline_ms\": 60}");
  CHECK_INT(found.code, PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  wanted.zone = "b";
  CHECK(ask(&all, NULL, NULL).server > 0);
  /* A later snapshot gives the zone to another server. */
  wanted.zone = "a";
  penstock_call *call = start_with(all.channel, UNARY, PENSTOCK_KIND_UNARY, "{\"wait_for_ready\": true}");
  OK(penstock_call_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  push_zone_a(&all, 2);
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) CHECK_INT(outcome_of(&all, reply).server, 2);
  penstock_call_release(call);
  end_servers(&all);
}

/* The attempts of a hedged call ask for what the call asks for, also if no hop is below. */
TEST(pick_prefers_a_zone_for_hedged_calls) {
  servers all;
  start_servers(&all, NULL);
  open_servers(&all, ROUND_ROBIN, NULL);
  connect_all(&all);
  wish wanted = {"b", 1};
  watcher self = {.context = &wanted, .start = prefer};
  watch(&all, &self, 0);
  penstock_interceptor hedging = PENSTOCK_INTERCEPTOR_INIT;
  penstock_interceptor_id id = 0;
  OK(penstock_ready_hedging("{}", NULL, &hedging, NULL));
  OK(penstock_channel_add_interceptor(all.channel, &hedging, -100, &id, NULL));
  CHECK_INT(ask(&all, NULL, NULL).code, 0);
  wanted = (wish){"c", 1};
  outcome found = ask(&all, NULL, NULL);
  CHECK_INT(found.code, PENSTOCK_STATUS_UNAVAILABLE);
  CHECK_HAS(found.words, "no ready endpoint has zone=c");
  end_servers(&all);
}

/* A picker chooses among the endpoints that the request asks for, without those that a hop has refused. */
static int32_t last_of(penstock_pick *pick, void *context) {
  atomic_int *most = context;
  int count = (int)penstock_pick_count(pick);
  if (count > atomic_load(most)) atomic_store(most, count);
  for (int i = 0; i < count; i++) CHECK_STR(penstock_pick_attribute(pick, (size_t)i, "zone"), "b");
  return count - 1;
}

TEST(pick_and_a_picker) {
  servers all;
  start_servers(&all, NULL);
  open_servers(&all, ROUND_ROBIN, NULL);
  connect_all(&all);
  atomic_int most = 0;
  OK(penstock_channel_set_picker(all.channel, last_of, &most, NULL));
  wish wanted = {"b", 1};
  watcher above = {.context = &wanted, .start = prefer};
  int refused = 2;
  watcher below = {.decide = refuse_one, .context = &refused};
  watch(&all, &above, 1);
  watch(&all, &below, 0);
  for (int i = 0; i < 10; i++) CHECK_INT(ask(&all, NULL, NULL).server, 1);
  CHECK_INT(atomic_load(&most), 2);
  CHECK_INT(atomic_load(&below.picks[2]), 10);
  OK(penstock_channel_set_picker(all.channel, NULL, NULL, NULL));
  CHECK_INT(ask(&all, NULL, NULL).server, 1);
  end_servers(&all);
}

/* `ended` counts the unary calls that have ended. `wishing` is this count at the end of the first call that prefers a
 * zone, and `other` at the end of the first call that prefers none. */
typedef struct {
  atomic_int ended, wishing, other;
} race;

static bool has_wish(const penstock_metadata *metadata) {
  const void *value = NULL;
  size_t length = 0;
  return penstock_metadata_get(metadata, "x-user", 0, &value, &length) == PENSTOCK_OK;
}

static int32_t race_create(penstock_hop *hop, void *user_data, void **state) {
  (void)user_data;
  *state = has_wish(penstock_hop_metadata(hop)) ? hop : NULL;
  return PENSTOCK_NEXT;
}

static race run;

static int32_t race_start(penstock_hop *hop, void *state) {
  if (state) OK(penstock_request_prefer(penstock_hop_request(hop), "zone", "a", 1));
  return PENSTOCK_NEXT;
}

static int32_t race_status(penstock_hop *hop, void *state) {
  (void)hop;
  int ended = atomic_fetch_add(&run.ended, 1) + 1, none = 0;
  atomic_compare_exchange_strong(state ? &run.wishing : &run.other, &none, ended);
  return PENSTOCK_NEXT;
}

/* Calls that prefer a zone and calls that prefer none wait for one slot: neither kind has to wait for all calls of the
 * other kind. */
TEST(pick_takes_turns_with_other_calls) {
  for (int first = 0; first < 2; first++) {
    servers all;
    char *const one[] = {"--max-concurrent-streams", "1", NULL};
    start_servers(&all, one);
    open_servers(&all, ROUND_ROBIN, NULL);
    push_zone_a(&all, 0);
    CHECK_INT(ask(&all, NULL, "{\"wait_for_ready\": true}").code, 0);
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    penstock_interceptor_id id = 0;
    table.methods = UNARY;
    table.create = race_create;
    table.on_start = race_start;
    table.on_status = race_status;
    OK(penstock_channel_add_interceptor(all.channel, &table, 0, &id, NULL));
    penstock_call *holder = start_call(all.channel, BIDI, PENSTOCK_KIND_BIDI);
    OK(penstock_call_send(holder, "x", 1));
    CHECK_MESSAGE(holder, "x");
    enum { CALLS = 12 };
    penstock_call *calls[CALLS];
    for (int i = 0; i < CALLS; i++) {
      bool wishes = (i == 0) == (first == 0);
      calls[i] =
          start_with(all.channel, UNARY, PENSTOCK_KIND_UNARY, wishes ? "{\"metadata\": {\"x-user\": \"wish\"}}" : NULL);
      OK(penstock_call_send(calls[i], "x", 1));
      OK(penstock_call_half_close(calls[i]));
      EVENTUALLY(trace_has(calls[i], "\"waiting for "));
    }
    run = (race){0, 0, 0};
    OK(penstock_call_half_close(holder));
    CHECK_FINISH(holder, 0);
    penstock_call_release(holder);
    for (int i = 0; i < CALLS; i++) {
      CHECK_FINISH(calls[i], 0);
      penstock_call_release(calls[i]);
    }
    CHECK(atomic_load(&run.wishing) <= 3 && atomic_load(&run.other) <= 3);
    end_servers(&all);
  }
}
