/* Times and deadlines with slow callbacks and many threads: each time is counted from the moment at which it was asked
 * for, however late the loop is. */
#include "calls.h"
#include "unary.h"

#include <unistd.h>

/* Keeps this thread busy for `ms` milliseconds, as a slow callback does. */
static void work_for(int64_t ms) {
  int64_t until = test_now_ms() + ms;
  while (test_now_ms() < until) continue;
}

/* Gives the grpc-timeout that the server has seen, in nanoseconds; -1: none. */
static int64_t timeout_seen(const penstock_reply *reply) {
  const void *value = NULL;
  if (penstock_metadata_get(penstock_reply_trailers(reply), "seen-grpc-timeout", 0, &value, NULL)) return -1;
  char *unit = NULL;
  int64_t number = strtoll(value, &unit, 10);
  static const char units[] = "numSMH";
  static const int64_t sizes[] = {1, 1000, 1000000, 1000000000, 60000000000, 3600000000000};
  const char *at = strchr(units, *unit);
  return at && *unit ? number * sizes[at - units] : -1;
}

static const char echoed[] = "{\"deadline_ms\": 60000, \"metadata\": {\"x-echo-metadata\": \"1\"}}";

static int32_t slow_start(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop;
  if (event == PENSTOCK_EVENT_START) work_for(*(int64_t *)self->context);
  return PENSTOCK_NEXT;
}

TEST(clock_timeout_is_what_a_slow_callback_leaves) {
  int64_t takes = 400;
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "slow", slow_start, &takes);
  probe_add(&probe, channel, 0);
  penstock_call_options *options = options_of(echoed);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL));
  /* Allows a millisecond for the resolution of the test's clock. */
  int64_t seen = timeout_seen(reply);
  if (!CHECK(seen > 0 && seen <= (60000 - takes + 1) * 1000000)) printf("  %lld ns\n", (long long)seen);
  penstock_reply_release(reply);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* The callback of another call blocks the loop while the calls under test are made and wait. */
typedef struct slow_reply {
  latch inside, go, finalized;
} slow_reply;
static void hold_the_loop(penstock_call *call, penstock_reply *reply, void *user_data) {
  slow_reply *self = user_data;
  (void)call, (void)reply;
  latch_signal(&self->inside);
  latch_wait(&self->go, 1);
}
static void slow_finalized(void *user_data) { latch_signal(&((slow_reply *)user_data)->finalized); }

typedef struct asker {
  penstock_channel *channel;
  latch made;
  int64_t made_at, seen, first_byte;
} asker;

static int64_t number_in(const char *json, const char *key) {
  const char *at = strstr(json, key);
  return at && strncmp(at + strlen(key), "\":null", 6) != 0 ? strtoll(at + strlen(key) + 2, NULL, 10) : -1;
}

static void *ask(void *pointer) {
  asker *self = pointer;
  penstock_call_options *options = options_of(echoed);
  penstock_call *call = NULL;
  OK(penstock_channel_call(self->channel, UNARY, PENSTOCK_KIND_UNARY, options, NULL, &call, NULL));
  penstock_call_options_release(options);
  self->made_at = test_now_ms();
  latch_signal(&self->made);
  OK(penstock_call_send(call, "x", 1));
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) {
    self->seen = timeout_seen(reply);
    self->first_byte = number_in(penstock_reply_stats_json(reply), "first_byte_sent_us");
  }
  penstock_reply_release(reply);
  penstock_call_release(call);
  return NULL;
}

TEST(clock_many_threads_beside_a_slow_callback) {
  enum { threads = 8 };
  slow_reply slow = {LATCH_INIT, LATCH_INIT, LATCH_INIT};
  penstock_channel *channel = open_channel();
  penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
  table.user_data = &slow;
  table.on_reply = hold_the_loop;
  table.finalizer = slow_finalized;
  penstock_call *call = NULL;
  REQUIRE_OK(penstock_channel_call(channel, UNARY, PENSTOCK_KIND_UNARY, NULL, &table, &call, NULL));
  OK(penstock_call_try_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  penstock_call_release(call);
  latch_wait(&slow.inside, 1);
  asker askers[threads];
  pthread_t ids[threads];
  for (int i = 0; i < threads; i++) {
    askers[i] = (asker){channel, LATCH_INIT, 0, -1, -1};
    pthread_create(&ids[i], NULL, ask, &askers[i]);
  }
  for (int i = 0; i < threads; i++) latch_wait(&askers[i].made, 1);
  work_for(300);
  int64_t freed_at = test_now_ms();
  latch_signal(&slow.go);
  for (int i = 0; i < threads; i++) {
    pthread_join(ids[i], NULL);
    /* The calls could not leave before the loop was freed. Allows a millisecond for the resolution of the test's
     * clock. */
    int64_t most = (60000 - (freed_at - askers[i].made_at) + 1) * 1000000;
    if (!CHECK(askers[i].seen > 0 && askers[i].seen <= most)) {
      printf("  %lld ns of %lld\n", (long long)askers[i].seen, (long long)most);
    }
    CHECK(askers[i].first_byte >= 299000);
  }
  latch_wait(&slow.finalized, 1);
  penstock_channel_release(channel);
}

static void *call_often(void *pointer) {
  for (int i = 0; i < test_rounds(300); i++) {
    penstock_reply *reply = unary(pointer, "x");
    const char *stats = penstock_reply_stats_json(reply);
    int64_t sent = number_in(stats, "first_byte_sent_us"), headers = number_in(stats, "headers_us");
    int64_t message = number_in(stats, "first_message_us"), end = number_in(stats, "duration_us");
    if (!CHECK(0 <= sent && sent <= headers && headers <= message && message <= end)) printf("  %s\n", stats);
    penstock_reply_release(reply);
  }
  return NULL;
}

TEST(clock_times_are_there_and_in_order_for_every_call) {
  penstock_channel *channel = open_channel();
  pthread_t ids[8];
  for (int i = 0; i < 8; i++) pthread_create(&ids[i], NULL, call_often, channel);
  for (int i = 0; i < 8; i++) pthread_join(ids[i], NULL);
  penstock_channel_release(channel);
}

static int32_t watch_the_deadline(probe *self, penstock_hop *hop, int32_t event) {
  int64_t *left = self->context;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  left[0] = request_deadline_ms(penstock_hop_request(hop));
  work_for(100);
  left[1] = request_deadline_ms(penstock_hop_request(hop));
  return PENSTOCK_NEXT;
}

TEST(clock_deadline_counts_down_within_a_callback) {
  int64_t left[2] = {0};
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "watch", watch_the_deadline, left);
  probe_add(&probe, channel, 0);
  penstock_call_options *options = options_of(echoed);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL));
  CHECK(left[0] <= 60000 && left[0] > 0);
  CHECK(left[0] - left[1] >= 99);
  penstock_reply_release(reply);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* If a slow callback sets a delay or a deadline just before it returns, the time counts from that moment, in its full
 * length. */
typedef struct late {
  bool sets_deadline;
  int64_t asked_at, came_at;
} late;
static int32_t ask_late(probe *self, penstock_hop *hop, int32_t event) {
  late *plan = self->context;
  if (event == PENSTOCK_EVENT_STATUS) plan->came_at = test_now_ms();
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  penstock_ticket ticket = penstock_hop_ticket(hop);
  work_for(300);
  plan->asked_at = test_now_ms();
  if (plan->sets_deadline) {
    OK(penstock_request_set_deadline_ms(penstock_hop_request(hop), 200));
  } else {
    OK(penstock_ticket_resolve_after(ticket, PENSTOCK_NEXT, 200));
  }
  return PENSTOCK_PAUSE;
}

static void expect_whole_time(bool sets_deadline) {
  late plan = {sets_deadline, 0, 0};
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "late", ask_late, &plan);
  probe_add(&probe, channel, 0);
  penstock_reply *reply = unary(channel, "x");
  CHECK_INT(penstock_reply_code(reply), sets_deadline ? PENSTOCK_STATUS_DEADLINE_EXCEEDED : PENSTOCK_STATUS_OK);
  if (!CHECK(plan.came_at - plan.asked_at >= 199)) printf("  %lld ms\n", (long long)(plan.came_at - plan.asked_at));
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}
TEST(clock_resume_after_at_the_end_of_a_slow_callback) { expect_whole_time(false); }
TEST(clock_deadline_set_at_the_end_of_a_slow_callback) { expect_whole_time(true); }

/* The server sends headers and RST_STREAM together. The deadline passes while on_headers runs, before the client looks
 * at the RST_STREAM. */
static int32_t slow_headers(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_HEADERS) work_for(request_deadline_ms(penstock_hop_request(hop)) + 5);
  return PENSTOCK_NEXT;
}

TEST(clock_reset_after_the_deadline_is_deadline_exceeded) {
  char path[] = "/tmp/penstock-clock-XXXXXX", address[64];
  int script = mkstemp(path), input;
  REQUIRE(script >= 0);
  static const char steps[] = "handshake\nexpect headers\nanswer\nrst CANCEL\n";
  CHECK(write(script, steps, sizeof(steps) - 1) == (ssize_t)sizeof(steps) - 1);
  close(script);
  char *const more[] = {"--script", path, NULL};
  int lines = start_peer(address, sizeof(address), more, &input);
  penstock_channel *channel = NULL;
  REQUIRE_OK(penstock_channel_new(address, "{\"tls\": false}", &channel, NULL));
  probe probe;
  probe_init_with(&probe, "slow", slow_headers, NULL);
  probe_add(&probe, channel, 0);
  penstock_call_options *options = options_of("{\"deadline_ms\": 1000}");
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  penstock_reply_release(reply);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
  close(input);
  close(lines);
  unlink(path);
}
