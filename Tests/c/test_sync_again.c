/* sync.h: next called again. The call begins again below the hop, as often as the function calls next; if that is not
 * possible, the earlier status is kept, and penstock_hop_why gives the reason. docs/cookbook.md, "Retry with back-off". */
#include "calls.h"
#include "hops.h"
#include "syncer.h"

static bool has(const char *text, const char *part) { return text && strstr(text, part); }

/* The server refuses the call until the function has changed the request. */
static int32_t retry(syncer *self, penstock_hop *hop) {
  penstock_request *request = penstock_hop_request(hop);
  penstock_metadata *metadata = penstock_request_metadata(request);
  OK(penstock_metadata_set(metadata, "x-status", "14"));
  for (int attempt = 1;; attempt++) {
    OK(penstock_hop_next(hop));
    int32_t code = penstock_status_code(penstock_hop_status(hop));
    atomic_store(&self->code, code);
    if (code == 0) return PENSTOCK_NEXT;
    CHECK_INT(code, PENSTOCK_STATUS_UNAVAILABLE);
    /* The request can be read and changed. */
    CHECK_STR(penstock_request_method(request), UNARY);
    CHECK(penstock_request_metadata(request) == metadata);
    if (attempt < 3) continue;
    OK(penstock_metadata_remove(metadata, "x-status"));
    OK(penstock_metadata_set(metadata, "x-headers-attempt", "last"));
    OK(penstock_request_set_deadline_ms(request, 60000));
  }
}

TEST(sync_again_in_a_loop) {
  syncer self;
  penstock_channel *channel = bench_open(&self, retry);
  probe below;
  probe_init(&below, "below");
  probe_add(&below, channel, -1);
  penstock_reply *reply = unary(channel, "ping", NULL);
  REQUIRE(reply);
  size_t length = 0;
  const void *value = NULL;
  const char *data = penstock_reply_bytes(reply, &length);
  CHECK(is(data, length, "ping"));
  OK(penstock_metadata_get(penstock_reply_headers(reply), "x-headers-attempt", 0, &value, NULL));
  penstock_reply_release(reply);
  CHECK_INT(self.runs, 1);
  bench_close(&self, channel);
  probe_wait_finalized(&below);
  /* Each attempt has a new hop below. */
  CHECK_INT(atomic_load(&below.seen[PENSTOCK_EVENT_START]), 4);
  CHECK_INT(atomic_load(&below.seen[PENSTOCK_EVENT_SEND]), 4);
  CHECK_INT(atomic_load(&below.seen[PENSTOCK_EVENT_STATUS]), 4);
}

/* One change of the request, and no other, before the second next: the hop below sees it. */
enum { DEADLINE, METHOD, METADATA, CHANGES };

static int32_t change_one(syncer *self, penstock_hop *hop) {
  penstock_request *request = penstock_hop_request(hop);
  int change = atomic_load(&self->code);
  OK(penstock_hop_next(hop));
  if (change == DEADLINE) OK(penstock_request_set_deadline_ms(request, 60000));
  if (change == METHOD) OK(penstock_request_set_method(request, "/penstock.Echo/Other"));
  if (change == METADATA) OK(penstock_metadata_set(penstock_request_metadata(request), "x-more", "1"));
  OK(penstock_hop_next(hop));
  return PENSTOCK_NEXT;
}

static int32_t see_change(probe *self, penstock_hop *hop, int32_t event) {
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  const penstock_request *request = penstock_hop_request(hop);
  const int *change = self->context;
  bool is_second = atomic_load(&self->seen[event]) == 2;
  const void *value = NULL;
  int64_t left = 0;
  OK(penstock_request_deadline_ms(request, &left));
  CHECK(is_second && *change == DEADLINE ? left > 0 && left <= 60000 : left == -1);
  CHECK_STR(penstock_request_method(request), is_second && *change == METHOD ? "/penstock.Echo/Other" : UNARY);
  CHECK_RESULT(penstock_metadata_get(penstock_request_metadata(penstock_hop_request(hop)), "x-more", 0, &value, NULL),
               is_second && *change == METADATA ? PENSTOCK_OK : PENSTOCK_E_NOT_FOUND);
  return PENSTOCK_NEXT;
}

TEST(sync_again_after_one_change) {
  for (int change = 0; change < CHANGES; change++) {
    syncer self;
    penstock_channel *channel = bench_open(&self, change_one);
    self.code = change;
    probe below;
    probe_init_with(&below, "below", see_change, &change);
    probe_add(&below, channel, -1);
    penstock_reply_release(unary(channel, "ping", NULL));
    CHECK_INT(atomic_load(&below.seen[PENSTOCK_EVENT_START]), 2);
    bench_close(&self, channel);
    probe_wait_finalized(&below);
  }
}

/* next may also be called after a success, because the response has not gone up yet. */
static int32_t twice(syncer *self, penstock_hop *hop) {
  (void)self;
  OK(penstock_hop_set_bytes(hop, "pong", 4));
  OK(penstock_hop_next(hop));
  CHECK(response_is(hop, "pong"));
  OK(penstock_hop_set_bytes(hop, "forgotten", 9));
  OK(penstock_hop_next(hop));
  CHECK(response_is(hop, "pong"));
  return PENSTOCK_NEXT;
}

TEST(sync_again_after_a_success) {
  syncer self;
  penstock_channel *channel = bench_open(&self, twice);
  check_unary(channel, NULL, 0, "pong", NULL);
  bench_close(&self, channel);
}

/* The second next is refused, for the reason that `text` names; the status stays, and is passed on. */
static int32_t try_again(syncer *self, penstock_hop *hop) {
  OK(penstock_hop_next(hop));
  for (int i = 0; i < 2; i++) {
    CHECK_RESULT(penstock_hop_next(hop), PENSTOCK_E_STATE);
    if (!CHECK(has(penstock_hop_why(hop), self->text))) printf("  %s\n", penstock_hop_why(hop));
  }
  CHECK_INT(penstock_status_code(penstock_hop_status(hop)), PENSTOCK_STATUS_NOT_FOUND);
  OK(penstock_status_set_message(penstock_hop_status(hop), "it stays", 8));
  return PENSTOCK_NEXT;
}

static void refused(size_t replay_bytes, size_t max_restarts, bool per_attempt, const char *why) {
  syncer self;
  penstock_channel *channel = open_channel();
  syncer_init(&self, try_again);
  self.text = why;
  penstock_interceptor table;
  if (per_attempt) {
    penstock_sync_interceptor sync = PENSTOCK_SYNC_INTERCEPTOR_INIT;
    penstock_interceptor made = PENSTOCK_INTERCEPTOR_INIT;
    sync.name = "sync";
    sync.user_data = &self;
    sync.finalizer = syncer_finalized;
    sync.intercept = intercept;
    sync.per_attempt = 1;
    OK(penstock_sync_interceptor_table(&sync, &made, NULL));
    table = made;
  } else {
    table = syncer_table(&self, "sync");
    CHECK_INT(table.replay_bytes, 65536);
    table.replay_bytes = replay_bytes;
    table.max_restarts = max_restarts;
  }
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  check_unary(channel, "{\"metadata\": {\"x-status\": \"5\"}}", PENSTOCK_STATUS_NOT_FOUND, NULL, "it stays");
  bench_close(&self, channel);
}

TEST(sync_again_says_why_not) {
  refused(3, 9, false, "over replay_bytes");
  refused(0, 9, false, "no replay_bytes");
  refused(0, 0, true, "no replay_bytes");
}

static int32_t count_down(syncer *self, penstock_hop *hop) {
  OK(penstock_hop_next(hop));
  return try_again(self, hop);
}

TEST(sync_again_up_to_max_restarts) {
  syncer self;
  penstock_channel *channel = open_channel();
  syncer_init(&self, count_down);
  self.text = "max_restarts";
  penstock_interceptor table = syncer_table(&self, "sync");
  table.max_restarts = 1;
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  check_unary(channel, "{\"metadata\": {\"x-status\": \"5\"}}", PENSTOCK_STATUS_NOT_FOUND, NULL, "it stays");
  bench_close(&self, channel);
}

/* The same limits in the synchronous table itself. */
TEST(sync_again_within_the_tables_own_limits) {
  static const struct {
    size_t replay_bytes, max_restarts;
    int32_t (*hook)(syncer *, penstock_hop *);
    const char *why;
  } cases[] = {{3, 0, try_again, "over replay_bytes"}, {100, 1, count_down, "max_restarts"}};
  for (size_t i = 0; i < 2; i++) {
    syncer self;
    penstock_channel *channel = open_channel();
    penstock_sync_interceptor sync = PENSTOCK_SYNC_INTERCEPTOR_INIT;
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    penstock_interceptor_id id = 0;
    syncer_init(&self, cases[i].hook);
    self.text = cases[i].why;
    sync.user_data = &self;
    sync.finalizer = syncer_finalized;
    sync.intercept = intercept;
    sync.replay_bytes = cases[i].replay_bytes;
    sync.max_restarts = cases[i].max_restarts;
    OK(penstock_sync_interceptor_table(&sync, &table, NULL));
    OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
    check_unary(channel, "{\"metadata\": {\"x-status\": \"5\"}}", PENSTOCK_STATUS_NOT_FOUND, NULL, "it stays");
    bench_close(&self, channel);
  }
}

/* A stream that ends before its headers begins again, with all messages that the caller has sent meanwhile. */
static int32_t retry_stream(syncer *self, penstock_hop *hop) {
  penstock_request *request = penstock_hop_request(hop);
  OK(penstock_metadata_set(penstock_request_metadata(request), "x-status", "14"));
  OK(penstock_metadata_set(penstock_request_metadata(request), "x-after", "0"));
  OK(penstock_hop_next(hop));
  for (int i = 0; penstock_hop_status(hop); i++) {
    if (!CHECK(i < 10)) break;
    OK(penstock_metadata_remove(penstock_request_metadata(request), "x-status"));
    OK(penstock_metadata_remove(penstock_request_metadata(request), "x-after"));
    OK(penstock_hop_next(hop));
  }
  atomic_store(&self->code, 0);
  return PENSTOCK_NEXT;
}

TEST(sync_again_of_a_stream) {
  syncer self;
  penstock_channel *channel = bench_open(&self, retry_stream);
  penstock_call *call = start_call(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM);
  OK(penstock_call_send(call, "a", 1));
  OK(penstock_call_half_close(call));
  CHECK_MESSAGE(call, "a");
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  CHECK_INT(self.code, 0);
  penstock_call_release(call);
  bench_close(&self, channel);
}

/* The call ends while the function waits in another next. */
static int32_t again_and_cancelled(syncer *self, penstock_hop *hop) {
  penstock_metadata *metadata = penstock_request_metadata(penstock_hop_request(hop));
  OK(penstock_metadata_set(metadata, "x-status", "14"));
  OK(penstock_hop_next(hop));
  OK(penstock_metadata_set(metadata, "x-delay-ms", "60000"));
  latch_signal(&self->entered);
  CHECK_RESULT(penstock_hop_next(hop), PENSTOCK_E_GONE);
  CHECK_INT(penstock_status_code(penstock_hop_status(hop)), PENSTOCK_STATUS_CANCELLED);
  CHECK_RESULT(penstock_hop_next(hop), PENSTOCK_E_GONE);
  return PENSTOCK_NEXT;
}

TEST(sync_again_ends_with_the_call) {
  syncer self;
  penstock_channel *channel = bench_open(&self, again_and_cancelled);
  penstock_call *call = start_call(channel, UNARY, PENSTOCK_KIND_UNARY);
  OK(penstock_call_send(call, "a", 1));
  OK(penstock_call_half_close(call));
  latch_wait(&self.entered, 1);
  penstock_call_cancel(call, "enough");
  CHECK_FINISH(call, PENSTOCK_STATUS_CANCELLED);
  latch_wait(&self.done, 1);
  penstock_call_release(call);
  bench_close(&self, channel);
}

/* ---- A retained hop of a synchronous interceptor, on any thread ---- */

typedef struct kept {
  penstock_hop *hop;
  latch there;
} kept;
static kept the;

static int32_t keep_hop(syncer *self, penstock_hop *hop) {
  the.hop = penstock_hop_retain(hop);
  OK(penstock_hop_next(hop));
  latch_signal(&self->entered);
  return PENSTOCK_NEXT;
}

static penstock_call *kept_call(syncer *self, penstock_channel *channel) {
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  latch_wait(&self->done, 1);
  OK(penstock_call_send(call, "a", 1));
  CHECK_MESSAGE(call, "a");
  return call;
}

TEST(sync_hop_is_kept_and_sends_delivers_and_half_closes) {
  syncer self;
  penstock_channel *channel = bench_open(&self, keep_hop);
  penstock_call *call = kept_call(&self, channel);
  CHECK_INT(penstock_hop_is_secure(the.hop), 0);
  CHECK_INT(penstock_hop_event(the.hop), PENSTOCK_EVENT_NONE);
  OK(penstock_hop_send(the.hop, "beat", 4));
  CHECK_MESSAGE(call, "beat");
  /* A delivered message needs demand. The caller does not wait for a message here, so the hop's message may be
   * refused. */
  penstock_result result = PENSTOCK_E_WOULD_BLOCK;
  OK(penstock_call_send(call, "b", 1));
  CHECK_MESSAGE(call, "b");
  result = penstock_hop_deliver(the.hop, "injected", 8);
  CHECK(result == PENSTOCK_OK || result == PENSTOCK_E_WOULD_BLOCK);
  if (result == PENSTOCK_OK) CHECK_MESSAGE(call, "injected");
  OK(penstock_hop_half_close(the.hop));
  CHECK_RESULT(penstock_hop_half_close(the.hop), PENSTOCK_E_ALREADY);
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  CHECK_RESULT(penstock_hop_end(the.hop, 1, NULL), PENSTOCK_E_GONE);
  penstock_hop_release(the.hop);
  penstock_call_release(call);
  bench_close(&self, channel);
}

TEST(sync_hop_is_kept_and_ends_the_call) {
  syncer self;
  penstock_channel *channel = bench_open(&self, keep_hop);
  penstock_call *call = kept_call(&self, channel);
  OK(penstock_hop_end(the.hop, PENSTOCK_STATUS_ABORTED, "idle"));
  CHECK_FINISH(call, PENSTOCK_STATUS_ABORTED);
  CHECK_RESULT(penstock_hop_half_close(the.hop), PENSTOCK_E_GONE);
  penstock_hop_release(the.hop);
  penstock_call_release(call);
  bench_close(&self, channel);
}

/* The hop is used while its function waits in next. */
static int32_t wait_in_next(syncer *self, penstock_hop *hop) {
  the.hop = penstock_hop_retain(hop);
  latch_signal(&self->entered);
  CHECK_RESULT(penstock_hop_next(hop), PENSTOCK_E_GONE);
  return PENSTOCK_NEXT;
}

TEST(sync_hop_is_ended_while_its_function_waits) {
  syncer self;
  penstock_channel *channel = bench_open(&self, wait_in_next);
  penstock_call *call = start_with(channel, UNARY, PENSTOCK_KIND_UNARY, "{\"metadata\": {\"x-delay-ms\": \"60000\"}}");
  OK(penstock_call_send(call, "a", 1));
  OK(penstock_call_half_close(call));
  latch_wait(&self.entered, 1);
  OK(penstock_hop_end(the.hop, PENSTOCK_STATUS_ABORTED, "revoked"));
  CHECK_FINISH(call, PENSTOCK_STATUS_ABORTED);
  latch_wait(&self.done, 1);
  penstock_hop_release(the.hop);
  penstock_call_release(call);
  bench_close(&self, channel);
}
