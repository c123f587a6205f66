/* Functions of a hop outside its callbacks, on another thread: end the call, half-close, send. Also answers that are
 * delivered before there is demand. docs/hops.md, "From any thread". */
#include "calls.h"
#include "hops.h"
#include "unary.h"

typedef struct keeper {
  penstock_hop *hop;
  latch kept;
  bool pauses;
} keeper;

static int32_t keep(probe *self, penstock_hop *hop, int32_t event) {
  keeper *keeper = self->context;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  keeper->hop = penstock_hop_retain(hop);
  if (keeper->pauses) CHECK(penstock_hop_ticket(hop) != 0);
  latch_signal(&keeper->kept);
  return keeper->pauses ? PENSTOCK_PAUSE : PENSTOCK_NEXT;
}

typedef struct bench {
  penstock_channel *channel;
  probe above, keeping, below;
  keeper keeper;
  penstock_call *call;
} bench;

static void bench_open(bench *bench, bool pauses) {
  bench->channel = open_channel();
  bench->keeper = (keeper){NULL, LATCH_INIT, pauses};
  probe_init(&bench->above, "above");
  probe_init_with(&bench->keeping, "keep", keep, &bench->keeper);
  probe_init(&bench->below, "below");
  probe_add(&bench->above, bench->channel, 3);
  probe_add(&bench->keeping, bench->channel, 2);
  probe_add(&bench->below, bench->channel, 1);
  bench->call = start_call(bench->channel, BIDI, PENSTOCK_KIND_BIDI);
  latch_wait(&bench->keeper.kept, 1);
}

/* Waits for an echo; start has left the hop by then. */
static void bench_begin(bench *bench) {
  OK(penstock_call_send(bench->call, "a", 1));
  CHECK_MESSAGE(bench->call, "a");
}

static void bench_close(bench *bench) {
  penstock_call_release(bench->call);
  penstock_channel_release(bench->channel);
  probe_wait_finalized(&bench->above);
  probe_wait_finalized(&bench->keeping);
  probe_wait_finalized(&bench->below);
  /* The hop's part in the call is over. */
  CHECK_RESULT(penstock_hop_end(bench->keeper.hop, 1, NULL), PENSTOCK_E_GONE);
  CHECK_RESULT(penstock_hop_half_close(bench->keeper.hop), PENSTOCK_E_GONE);
  CHECK_RESULT(penstock_hop_send(bench->keeper.hop, "x", 1), PENSTOCK_E_GONE);
  penstock_hop_release(bench->keeper.hop);
}

TEST(reach_ends_its_call) {
  bench bench;
  bench_open(&bench, false);
  bench_begin(&bench);
  OK(penstock_hop_end(bench.keeper.hop, PENSTOCK_STATUS_UNAUTHENTICATED, "revoked"));
  CHECK_FINISH(bench.call, PENSTOCK_STATUS_UNAUTHENTICATED);
  CHECK_INT(atomic_load(&bench.above.seen[PENSTOCK_EVENT_STATUS]), 1);
  CHECK_INT(atomic_load(&bench.keeping.seen[PENSTOCK_EVENT_STATUS]), 0);
  CHECK_INT(atomic_load(&bench.below.seen[PENSTOCK_EVENT_CANCEL]), 1);
  bench_close(&bench);
}

/* The hop ends the call while its start waits: nothing reaches the server. */
TEST(reach_ends_its_call_while_start_waits) {
  bench bench;
  bench_open(&bench, true);
  CHECK_RESULT(penstock_hop_half_close(bench.keeper.hop), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_hop_send(bench.keeper.hop, "x", 1), PENSTOCK_E_STATE);
  OK(penstock_hop_end(bench.keeper.hop, PENSTOCK_STATUS_ABORTED, "idle"));
  CHECK_FINISH(bench.call, PENSTOCK_STATUS_ABORTED);
  CHECK_INT(atomic_load(&bench.below.seen[PENSTOCK_EVENT_START]), 0);
  bench_close(&bench);
}

TEST(reach_sends) {
  bench bench;
  bench_open(&bench, false);
  bench_begin(&bench);
  for (int i = 0; i < 3; i++) {
    OK(penstock_hop_send(bench.keeper.hop, "beat", 4));
    CHECK_MESSAGE(bench.call, "beat");
  }
  CHECK_INT(atomic_load(&bench.keeping.seen[PENSTOCK_EVENT_SEND]), 1);
  CHECK_INT(atomic_load(&bench.below.seen[PENSTOCK_EVENT_SEND]), 4);
  OK(penstock_call_half_close(bench.call));
  CHECK_FINISH(bench.call, PENSTOCK_STATUS_OK);
  bench_close(&bench);
}

TEST(reach_half_closes) {
  bench bench;
  bench_open(&bench, false);
  bench_begin(&bench);
  OK(penstock_hop_half_close(bench.keeper.hop));
  penstock_message *message = NULL;
  CHECK_RESULT(penstock_call_receive(bench.call, &message), PENSTOCK_E_END);
  CHECK_FINISH(bench.call, PENSTOCK_STATUS_OK);
  CHECK_INT(atomic_load(&bench.below.seen[PENSTOCK_EVENT_HALF_CLOSE]), 1);
  CHECK_INT(atomic_load(&bench.above.seen[PENSTOCK_EVENT_HALF_CLOSE]), 0);
  bench_close(&bench);
}

/* The half-close takes effect after the event of the running callback; later events from above go no further, and
 * nobody waits for them. */
static int32_t close_after_two(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_SEND && atomic_load(&self->seen[PENSTOCK_EVENT_SEND]) == 2)
    OK(penstock_hop_half_close(hop));
  return PENSTOCK_NEXT;
}

TEST(reach_half_closes_in_a_callback) {
  penstock_channel *channel = open_channel();
  probe closing, below;
  probe_init_with(&closing, "two", close_after_two, NULL);
  probe_init(&below, "below");
  probe_add(&closing, channel, 2);
  probe_add(&below, channel, 1);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  for (const char *c = "abcdef"; *c; c++) {
    penstock_result result = penstock_call_send(call, c, 1);
    /* By now the call may have ended: then the result is E_GONE. */
    CHECK(result == PENSTOCK_OK || result == PENSTOCK_E_GONE);
  }
  CHECK_MESSAGE(call, "a");
  CHECK_MESSAGE(call, "b");
  penstock_message *message = NULL;
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&closing);
  probe_wait_finalized(&below);
  CHECK_INT(atomic_load(&closing.seen[PENSTOCK_EVENT_SEND]), 2);
  CHECK_INT(atomic_load(&below.seen[PENSTOCK_EVENT_SEND]), 2);
}

/* A cache with the request as its key: start is held until the message is there; then the hop answers, or start goes
 * on. */
typedef struct cache {
  penstock_ticket start;
  int hits;
} cache;

static int32_t look_up(probe *self, penstock_hop *hop, int32_t event) {
  cache *cache = self->context;
  if (event == PENSTOCK_EVENT_START) {
    cache->start = penstock_hop_ticket(hop);
    return PENSTOCK_HOLD;
  }
  if (event != PENSTOCK_EVENT_SEND) return PENSTOCK_NEXT;
  const void *data = NULL;
  size_t length = 0;
  OK(hop_bytes(hop, &data, &length));
  bool is_hit = length == 5 && memcmp(data, "known", 5) == 0;
  OK(penstock_ticket_resolve(cache->start, is_hit ? PENSTOCK_TAKE : PENSTOCK_NEXT));
  if (!is_hit) return PENSTOCK_NEXT;
  penstock_status *ok = NULL;
  OK(penstock_status_new(PENSTOCK_STATUS_OK, NULL, &ok));
  OK(penstock_hop_deliver(hop, "from the cache", 14));
  OK(penstock_hop_deliver_status(hop, ok));
  penstock_status_release(ok);
  cache->hits++;
  return PENSTOCK_NEXT;
}

TEST(reach_answers_by_the_request) {
  penstock_channel *channel = open_channel();
  cache cache = {0, 0};
  probe caching, below;
  probe_init_with(&caching, "cache", look_up, &cache);
  probe_init(&below, "below");
  probe_add(&caching, channel, 2);
  probe_add(&below, channel, 1);
  for (int i = 0; i < 3; i++) {
    penstock_reply *reply = unary(channel, i == 1 ? "new" : "known");
    CHECK(message_is(reply, i == 1 ? "new" : "from the cache"));
    penstock_reply_release(reply);
  }
  CHECK_INT(cache.hits, 2);
  CHECK_INT(atomic_load(&below.seen[PENSTOCK_EVENT_START]), 1);
  penstock_channel_release(channel);
  probe_wait_finalized(&caching);
  probe_wait_finalized(&below);
}

/* Hops also see a call whose deadline has passed before it begins. They can read its elapsed time, and that its
 * connection is not secure. */
static int32_t note_elapsed(probe *self, penstock_hop *hop, int32_t event) {
  CHECK_INT(penstock_hop_is_secure(hop), 0);
  if (event != PENSTOCK_EVENT_STATUS) return PENSTOCK_NEXT;
  char *json = NULL;
  OK(penstock_hop_stats_json(hop, &json));
  CHECK_HAS(json, "\"duration_us\":null");
  CHECK_HAS(json, "\"attempts\":0");
  const char *elapsed = strstr(json, "\"elapsed_us\":");
  CHECK(elapsed && elapsed[strlen("\"elapsed_us\":")] >= '0' && elapsed[strlen("\"elapsed_us\":")] <= '9');
  penstock_free(json);
  latch_signal(self->context);
  return PENSTOCK_NEXT;
}

TEST(reach_sees_a_call_whose_time_is_over) {
  penstock_channel *channel = open_channel();
  latch told = LATCH_INIT;
  probe counting;
  probe_init_with(&counting, "count", note_elapsed, &told);
  probe_add(&counting, channel, 1);
  penstock_call_options *options = options_of("{\"deadline_ms\": 0}");
  penstock_reply *reply = NULL;
  OK(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  penstock_reply_release(reply);
  latch_wait(&told, 1);
  CHECK_INT(atomic_load(&counting.seen[PENSTOCK_EVENT_START]), 1);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  probe_wait_finalized(&counting);
}

/* Sets the content subtype and the user agent of the call, which the server must get. */
static int32_t label(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  penstock_request *request = penstock_hop_request(hop);
  CHECK_STR(penstock_request_content_subtype(request), "");
  CHECK_STR(penstock_request_user_agent(request), "");
  CHECK_RESULT(penstock_request_set_content_subtype(request, "a;b"), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_request_set_user_agent(request, "a\nb"), PENSTOCK_E_INVALID_ARGUMENT);
  OK(penstock_request_set_content_subtype(request, "json"));
  OK(penstock_request_set_user_agent(request, "robot/7"));
  CHECK_STR(penstock_request_content_subtype(request), "json");
  CHECK_HAS(penstock_request_user_agent(request), "robot/7 penstock/");
  OK(penstock_metadata_set(penstock_hop_metadata(hop), "x-echo-metadata", "1"));
  return PENSTOCK_NEXT;
}

TEST(reach_says_of_what_kind_messages_are) {
  penstock_channel *channel = open_channel();
  probe labelling;
  probe_init_with(&labelling, "label", label, NULL);
  probe_add(&labelling, channel, 1);
  for (int i = 0; i < 2; i++) {
    penstock_reply *reply = unary(channel, "x");
    CHECK(message_is(reply, "x"));
    const penstock_metadata *trailers = penstock_reply_trailers(reply);
    const void *value = NULL;
    size_t length = 0;
    OK(penstock_metadata_get(trailers, "seen-content-type", 0, &value, &length));
    CHECK(length == 21 && memcmp(value, "application/grpc+json", 21) == 0);
    OK(penstock_metadata_get(trailers, "seen-user-agent", 0, &value, &length));
    CHECK(length > 17 && memcmp(value, "robot/7 penstock/", 17) == 0);
    penstock_reply_release(reply);
  }
  penstock_channel_release(channel);
  probe_wait_finalized(&labelling);
}
