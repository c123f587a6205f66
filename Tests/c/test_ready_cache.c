/* ready.h: the response cache. */
#include "ready.h"

/* A cache, and below it a probe that sees the calls that the cache does not answer. */
typedef struct bench {
  penstock_channel *channel;
  probe below;
} bench;

static void bench_open(bench *bench, const char *options) {
  memset(bench, 0, sizeof(*bench));
  bench->channel = open_channel();
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_error *error = NULL;
  OK(penstock_ready_response_cache(options, &table, &error));
  if (error) printf("  %s\n", penstock_error_message(error));
  penstock_error_release(error);
  CHECK_INT(table.kinds, 1u << PENSTOCK_KIND_UNARY);
  ready_add(bench->channel, &table, 0);
  probe_init(&bench->below, "below");
  probe_add(&bench->below, bench->channel, -1);
}

static void bench_close(bench *bench) {
  penstock_channel_release(bench->channel);
  probe_wait_finalized(&bench->below);
}

static int bench_misses(bench *bench) { return atomic_load(&bench->below.seen[PENSTOCK_EVENT_START]); }

static void check_call(bench *bench, const char *request, const char *metadata, bool hits) {
  int before = bench_misses(bench);
  penstock_reply *reply = ready_unary(bench->channel, request, metadata);
  CHECK_INT(penstock_reply_code(reply), 0);
  CHECK(ready_message_is(reply, request));
  const char *value = penstock_reply_value(reply, "penstock.cache");
  CHECK_STR(value ? value : "", hits ? "hit" : "");
  CHECK_INT(bench_misses(bench) - before, !hits);
  penstock_reply_release(reply);
}

TEST(cache_answers_the_same_call) {
  bench bench;
  bench_open(&bench, NULL);
  check_call(&bench, "one", NULL, false);
  for (int i = 0; i < 3; i++) check_call(&bench, "one", NULL, true);
  check_call(&bench, "two", NULL, false);
  check_call(&bench, "one", NULL, true);
  check_call(&bench, "two", NULL, true);
  check_call(&bench, "", NULL, false);
  check_call(&bench, "", NULL, true);
  bench_close(&bench);
}

TEST(cache_keeps_headers_status_and_trailers) {
  bench bench;
  bench_open(&bench, NULL);
  const char *metadata = "\"x-headers-a\": [\"1\", \"2\"], \"x-trailers-b-bin\": \"AAEC\"";
  penstock_reply *replies[2];
  for (int i = 0; i < 2; i++) replies[i] = ready_unary(bench.channel, "x", metadata);
  CHECK_INT(bench_misses(&bench), 1);
  char *json[2] = {NULL, NULL};
  for (int i = 0; i < 2; i++) {
    OK(penstock_metadata_json(penstock_reply_headers(replies[i]), &json[i]));
    CHECK_HAS(json[i], "x-headers-a");
  }
  CHECK_STR(json[1], json[0]);
  for (int i = 0; i < 2; i++) penstock_free(json[i]);
  CHECK_HAS(penstock_reply_status_json(replies[0]), "x-trailers-b-bin");
  CHECK_STR(penstock_reply_status_json(replies[1]), penstock_reply_status_json(replies[0]));
  for (int i = 0; i < 2; i++) penstock_reply_release(replies[i]);
  bench_close(&bench);
}

TEST(cache_has_chosen_metadata_in_its_key) {
  bench bench;
  bench_open(&bench, NULL);
  check_call(&bench, "x", "\"authorization\": \"me\"", false);
  check_call(&bench, "x", "\"authorization\": \"you\"", false);
  check_call(&bench, "x", NULL, false);
  check_call(&bench, "x", "\"authorization\": \"me\", \"x-other\": \"1\"", true);
  bench_close(&bench);
  bench_open(&bench, "{\"metadata\": [\"X-A\", \"x-b\"]}");
  check_call(&bench, "x", "\"x-a\": \"1\"", false);
  check_call(&bench, "x", "\"x-b\": \"1\"", false);
  check_call(&bench, "x", "\"x-a\": [\"1\", \"1\"]", false);
  check_call(&bench, "x", "\"x-a\": \"1\", \"authorization\": \"you\"", true);
  bench_close(&bench);
}

TEST(cache_keeps_no_failure_and_no_stream) {
  bench bench;
  bench_open(&bench, "{\"metadata\": []}");
  CHECK_INT(ready_code(ready_unary(bench.channel, "x", "\"x-status\": \"5\"")), PENSTOCK_STATUS_NOT_FOUND);
  check_call(&bench, "x", NULL, false);
  /* The cache answers, so the header x-status, which asks for a failure, does not reach the server. */
  CHECK_INT(ready_code(ready_unary(bench.channel, "x", "\"x-status\": \"5\"")), 0);
  for (int i = 0; i < 2; i++) {
    penstock_call *call = start_call(bench.channel, BIDI, PENSTOCK_KIND_BIDI);
    OK(penstock_call_send(call, "x", 1));
    CHECK_INT(ready_code(ready_finish(call)), 0);
  }
  CHECK_INT(bench_misses(&bench), 4);
  bench_close(&bench);
}

/* A hop below turns an answer with a message into a failure. */
static int32_t fail_at_the_end(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_STATUS) OK(penstock_status_set_code(penstock_hop_status(hop), PENSTOCK_STATUS_DATA_LOSS));
  return PENSTOCK_NEXT;
}

TEST(cache_keeps_no_message_with_a_failure) {
  bench bench;
  bench_open(&bench, NULL);
  bench.below.hook = fail_at_the_end;
  for (int i = 1; i <= 2; i++) {
    CHECK_INT(ready_code(ready_unary(bench.channel, "x", NULL)), PENSTOCK_STATUS_DATA_LOSS);
    CHECK_INT(atomic_load(&bench.below.seen[PENSTOCK_EVENT_RECEIVE]), i);
  }
  CHECK_INT(bench_misses(&bench), 2);
  bench.below.hook = NULL;
  check_call(&bench, "x", NULL, false);
  check_call(&bench, "x", NULL, true);
  bench_close(&bench);
}

TEST(cache_forgets_what_is_too_old) {
  bench bench;
  bench_open(&bench, "{\"ttl_ms\": 50}");
  int64_t began = test_now_ms();
  check_call(&bench, "x", NULL, false);
  EVENTUALLY((CHECK_INT(unary_code(bench.channel, "x"), 0), bench_misses(&bench) == 2));
  CHECK(test_now_ms() - began >= 50);
  bench_close(&bench);
}

TEST(cache_keeps_the_most_recently_used) {
  bench bench;
  bench_open(&bench, "{\"max_entries\": 2}");
  check_call(&bench, "one", NULL, false);
  check_call(&bench, "two", NULL, false);
  check_call(&bench, "one", NULL, true);
  check_call(&bench, "three", NULL, false); /* drops "two" */
  check_call(&bench, "one", NULL, true);
  check_call(&bench, "two", NULL, false); /* drops "three" */
  check_call(&bench, "three", NULL, false);
  bench_close(&bench);
}

/* Uses entries in random order, and compares the cache with a list in this test. */
TEST(cache_order_of_use_at_random) {
  bench bench;
  bench_open(&bench, "{\"max_entries\": 4}");
  int used[4], count = 0; /* the keys in the cache, the last used first */
  for (int i = 0; i < test_rounds(300); i++) {
    int key = (int)test_random(7), at = 0;
    while (at < count && used[at] != key) at++;
    bool hits = at < count;
    if (!hits && count < 4) count++;
    if (at == count) at--;
    memmove(used + 1, used, (size_t)at * sizeof(*used));
    used[0] = key;
    char request[] = {(char)('a' + key), 0};
    check_call(&bench, request, NULL, hits);
  }
  bench_close(&bench);
}

TEST(cache_is_bounded_in_bytes) {
  static char large[4001], other[3001];
  bench bench;
  memset(large, 'l', sizeof(large) - 1);
  memset(other, 'o', sizeof(other) - 1);
  bench_open(&bench, "{\"max_bytes\": 10000}");
  check_call(&bench, other, NULL, false);
  check_call(&bench, other, NULL, true);
  check_call(&bench, large, NULL, false); /* this response with its key and the other entry is over the limit */
  check_call(&bench, large, NULL, true);
  check_call(&bench, other, NULL, false);
  bench_close(&bench);
  bench_open(&bench, "{\"max_bytes\": 1000}");
  check_call(&bench, "small", NULL, false);
  check_call(&bench, large, NULL, false);
  check_call(&bench, large, NULL, false);
  check_call(&bench, "small", NULL, true); /* no entry was dropped for the response that has no room */
  bench_close(&bench);
}

/* Hops above see a hit as they see a response, and may change their own copy. */
static int32_t change(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_HEADERS) OK(penstock_metadata_set(penstock_hop_metadata(hop), "x-changed", "1"));
  if (event == PENSTOCK_EVENT_RECEIVE) OK(penstock_hop_set_bytes(hop, "changed", 7));
  if (event == PENSTOCK_EVENT_STATUS) OK(penstock_metadata_set(penstock_hop_metadata(hop), "x-changed", "1"));
  return PENSTOCK_NEXT;
}
TEST(cache_is_not_changed_by_hops_above) {
  bench bench;
  bench_open(&bench, NULL);
  probe above;
  probe_init_with(&above, "above", change, NULL);
  penstock_interceptor_id id = probe_add(&above, bench.channel, 1);
  for (int i = 0; i < 3; i++) {
    penstock_reply *reply = ready_unary(bench.channel, "x", NULL);
    CHECK(ready_message_is(reply, "changed"));
    penstock_reply_release(reply);
  }
  CHECK_INT(bench_misses(&bench), 1);
  CHECK_INT(atomic_load(&above.seen[PENSTOCK_EVENT_HEADERS]), 3);
  OK(penstock_registration_remove(id, NULL));
  check_call(&bench, "x", NULL, true);
  penstock_reply *reply = ready_unary(bench.channel, "x", NULL);
  CHECK_STR(ready_value(penstock_reply_headers(reply), "x-changed"), "");
  CHECK_STR(ready_value(penstock_reply_trailers(reply), "x-changed"), "");
  penstock_reply_release(reply);
  probe_wait_finalized(&above);
  bench_close(&bench);
}

/* Drops the request message, above the cache. So one call ends without a message, and another one by a cancel; a later
 * call is answered, and the cache keeps its answer. */
static int32_t drop_message(probe *self, penstock_hop *hop, int32_t event) {
  (void)self, (void)hop;
  return event == PENSTOCK_EVENT_SEND ? PENSTOCK_DROP : PENSTOCK_NEXT;
}
TEST(cache_lets_go_of_a_call_without_a_message) {
  bench bench;
  bench_open(&bench, NULL);
  probe above;
  probe_init_with(&above, "above", drop_message, NULL);
  penstock_interceptor_id id = probe_add(&above, bench.channel, 1);
  CHECK_INT(unary_code(bench.channel, "x"), PENSTOCK_STATUS_INTERNAL);
  OK(penstock_registration_remove(id, NULL));
  probe_wait_finalized(&above);
  penstock_call *call = start_call(bench.channel, UNARY, PENSTOCK_KIND_UNARY);
  OK(penstock_call_cancel(call, NULL));
  CHECK_INT(ready_code(ready_finish(call)), PENSTOCK_STATUS_CANCELLED);
  call = start_call(bench.channel, UNARY, PENSTOCK_KIND_UNARY);
  OK(penstock_call_send(call, "late", 4));
  CHECK_INT(ready_code(ready_finish(call)), 0);
  check_call(&bench, "late", NULL, true);
  bench_close(&bench);
}

typedef struct hammer {
  penstock_channel *channel;
  int failed;
} hammer;
static void *run_hammer(void *argument) {
  hammer *self = argument;
  for (int i = 0; i < 200; i++) {
    char request[16];
    snprintf(request, sizeof(request), "%d", i % 17);
    penstock_reply *reply = ready_unary(self->channel, request, NULL);
    self->failed += !ready_message_is(reply, request) || penstock_reply_code(reply) != 0;
    penstock_reply_release(reply);
  }
  return NULL;
}
TEST(cache_shared_by_two_runtimes) {
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_channel *channels[2] = {open_channel(), open_channel_on(runtime)};
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT, other = PENSTOCK_INTERCEPTOR_INIT;
  OK(penstock_ready_response_cache("{\"max_entries\": 8, \"ttl_ms\": 5}", &table, NULL));
  OK(penstock_ready_share(&table, &other));
  ready_add(channels[0], &table, 0);
  ready_add(channels[1], &other, 0);
  pthread_t threads[4];
  hammer hammers[4];
  for (int i = 0; i < 4; i++) {
    hammers[i] = (hammer){channels[i % 2], 0};
    pthread_create(&threads[i], NULL, run_hammer, &hammers[i]);
  }
  for (int i = 0; i < 4; i++) {
    pthread_join(threads[i], NULL);
    CHECK_INT(hammers[i].failed, 0);
  }
  penstock_channel_release(channels[0]);
  penstock_channel_release(channels[1]);
  penstock_runtime_release(runtime);
}

TEST(cache_options_are_checked) {
  static const struct {
    const char *json, *path;
  } cases[] = {
      {"{\"ttl_ms\": 0}", "$.ttl_ms"},          {"{\"max_entries\": 0}", "$.max_entries"},
      {"{\"max_bytes\": -1}", "$.max_bytes"},   {"{\"metadata\": \"x\"}", "$.metadata"},
      {"{\"metadata\": [1]}", "$.metadata[0]"}, {"{\"ttl\": 1}", "$.ttl"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    penstock_error *error = NULL;
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    CHECK_RESULT(penstock_ready_response_cache(cases[i].json, &table, &error), PENSTOCK_E_INVALID_JSON);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, cases[i].path, cases[i].path);
  }
}
