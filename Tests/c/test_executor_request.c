/* request.h: the request that a callback on an executor, and a thread with a bound hop, sees while the driving thread
 * changes the call's request. */
#include "calls.h"
#include "pool.h"
#include "syncer.h"

/* ---- A callback on an executor, while start goes on below ---- */

/* The hops from the top: the reader, whose on_send runs on an executor; a hop that keeps start back until that callback
 * runs; the hop that changes the request in one of these ways; and a last hop, which start reaches after the change. */
typedef enum way { INLINE, EXECUTOR, SYNCHRONOUS, RESTARTED } way;

typedef struct bench {
  way way;
  char target[64];
  penstock_channel *other; /* a channel to the same server by another target */
  _Atomic penstock_ticket start;
  atomic_int attempts, reads;
  atomic_bool is_changed;
} bench;

static void change(penstock_request *request) {
  OK(penstock_request_set_method(request, BIDI));
  OK(penstock_request_set_authority(request, "other.test"));
  OK(penstock_request_set_content_subtype(request, "proto"));
  OK(penstock_request_set_user_agent(request, "other"));
  OK(penstock_request_set_deadline_ms(request, 60000));
  OK(penstock_request_set_max_send_message_bytes(request, 1000));
  OK(penstock_request_set_credentials(request, NULL));
}

static void check_unchanged(penstock_hop *hop) {
  penstock_request *request = penstock_hop_request(hop);
  CHECK_STR(penstock_hop_target(hop), peer_address());
  CHECK_STR(penstock_request_method(request), "/first.Service/Method");
  CHECK_STR(penstock_request_authority(request), peer_address());
  CHECK_STR(penstock_request_content_subtype(request), "");
  CHECK_STR(penstock_request_user_agent(request), "");
  CHECK_INT(request_deadline_ms(request), -1);
  CHECK_INT(request_max_send_message_bytes(request), INT32_MAX);
}

static int32_t read_request(probe *self, penstock_hop *hop, int32_t event) {
  bench *bench = self->context;
  if (event != PENSTOCK_EVENT_SEND) return PENSTOCK_NEXT;
  EVENTUALLY(atomic_load(&bench->start) != 0);
  check_unchanged(hop);
  OK(penstock_ticket_resolve(atomic_load(&bench->start), PENSTOCK_NEXT));
  /* For ThreadSanitizer a relaxed read orders nothing, so it reports a race unless the library orders reads and
   * changes. */
  EVENTUALLY((check_unchanged(hop), atomic_load_explicit(&bench->is_changed, memory_order_relaxed)));
  check_unchanged(hop);
  atomic_fetch_add(&bench->reads, 1);
  return PENSTOCK_NEXT;
}

static int32_t keep_back(probe *self, penstock_hop *hop, int32_t event) {
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  atomic_store(&((bench *)self->context)->start, penstock_hop_ticket(hop));
  return PENSTOCK_PAUSE;
}

static int32_t change_in_callback(probe *self, penstock_hop *hop, int32_t event) {
  bench *bench = self->context;
  bool restarts = bench->way == RESTARTED;
  if (event != (restarts ? PENSTOCK_EVENT_STATUS : PENSTOCK_EVENT_START)) return PENSTOCK_NEXT;
  if (restarts && penstock_status_code(penstock_hop_status(hop)) == PENSTOCK_STATUS_OK) return PENSTOCK_NEXT;
  change(penstock_hop_request(hop));
  OK(penstock_request_set_channel(penstock_hop_request(hop), bench->other));
  return restarts ? PENSTOCK_RESTART : PENSTOCK_NEXT;
}

static int32_t change_in_function(syncer *self, penstock_hop *hop) {
  (void)self;
  change(penstock_hop_request(hop));
  OK(penstock_hop_next(hop));
  return PENSTOCK_NEXT;
}

static int32_t be_last(probe *self, penstock_hop *hop, int32_t event) {
  bench *bench = self->context;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  if (bench->way == RESTARTED && atomic_fetch_add(&bench->attempts, 1) == 0) {
    OK(penstock_hop_end(hop, PENSTOCK_STATUS_ABORTED, "once more"));
    return PENSTOCK_NEXT;
  }
  CHECK_STR(penstock_request_authority(penstock_hop_request(hop)), "other.test");
  CHECK_STR(penstock_hop_target(hop), bench->way == SYNCHRONOUS ? peer_address() : bench->target);
  atomic_store_explicit(&bench->is_changed, true, memory_order_relaxed);
  return PENSTOCK_NEXT;
}

static void run_reader(way way) {
  bench bench = {.way = way};
  pool above, below;
  snprintf(bench.target, sizeof(bench.target), "dns:///%s", peer_address());
  REQUIRE_OK(penstock_channel_new(bench.target, "{\"tls\": false}", &bench.other, NULL));
  pool_open(&above, 1);
  pool_open(&below, 1);
  probe reader, keeper, changer, last;
  probe_init_with(&reader, "reader", read_request, &bench);
  probe_init_with(&keeper, "keeper", keep_back, &bench);
  probe_init_with(&changer, "changer", change_in_callback, &bench);
  probe_init_with(&last, "last", be_last, &bench);
  syncer function;
  syncer_init(&function, change_in_function);
  if (way == RESTARTED) changer.replay_bytes = 1000;
  penstock_channel *channel = open_channel();
  add_on(channel, &reader, 3, above.executor, NULL);
  add_on(channel, &keeper, 2, NULL, NULL);
  if (way == SYNCHRONOUS) {
    syncer_add(&function, channel, 1);
  } else {
    add_on(channel, &changer, 1, way == EXECUTOR ? below.executor : NULL, NULL);
  }
  add_on(channel, &last, 0, NULL, NULL);
  penstock_call *call = start_call(channel, "/first.Service/Method", PENSTOCK_KIND_BIDI);
  OK(penstock_call_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  CHECK_MESSAGE(call, "x");
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  penstock_call_release(call);
  CHECK_INT(atomic_load(&bench.reads), 1);
  penstock_channel_release(channel);
  penstock_channel_release(bench.other);
  probe_wait_finalized(&reader);
  probe_wait_finalized(&keeper);
  if (way != SYNCHRONOUS) {
    probe_wait_finalized(&changer);
  } else {
    EVENTUALLY(atomic_load(&function.finalized) == 1);
  }
  probe_wait_finalized(&last);
  pool_close(&above);
  pool_close(&below);
}

TEST(executor_request_stays_while_a_callback_below_changes_it) { run_reader(INLINE); }
TEST(executor_request_stays_while_an_executor_below_changes_it) { run_reader(EXECUTOR); }
TEST(executor_request_stays_while_a_function_below_changes_it) { run_reader(SYNCHRONOUS); }
TEST(executor_request_stays_while_the_call_begins_again) { run_reader(RESTARTED); }

/* ---- Reading what was set ---- */

/* In on_start the callback reads back the values that it has set. In on_status it reads the request that a RESTART
 * would send, which does not have the changes of the hop below. */
static int32_t read_back(probe *self, penstock_hop *hop, int32_t event) {
  penstock_request *request = penstock_hop_request(hop);
  (void)self;
  if (event == PENSTOCK_EVENT_START) {
    CHECK(request_deadline_ms(request) > 0);
    OK(penstock_request_set_deadline_ms(request, -1));
    CHECK_INT(request_deadline_ms(request), -1);
  }
  if (event == PENSTOCK_EVENT_STATUS) {
    CHECK_STR(penstock_request_authority(request), peer_address());
    CHECK_STR(penstock_request_content_subtype(request), "");
    CHECK_INT(request_deadline_ms(request), -1);
    OK(penstock_request_set_deadline_ms(request, 60000));
    CHECK(request_deadline_ms(request) > 0);
    OK(penstock_request_set_authority(request, "mine.test"));
    CHECK_STR(penstock_request_authority(request), "mine.test");
  }
  return PENSTOCK_NEXT;
}
static int32_t change_at_start(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_START) change(penstock_hop_request(hop));
  return PENSTOCK_NEXT;
}
static int32_t change_and_end(probe *self, penstock_hop *hop, int32_t event) {
  change_at_start(self, hop, event);
  if (event == PENSTOCK_EVENT_START) OK(penstock_hop_end(hop, PENSTOCK_STATUS_ABORTED, "here"));
  return PENSTOCK_NEXT;
}
static void run_read_back(bool on_executor) {
  pool pool;
  pool_open(&pool, 1);
  probe above, below;
  probe_init_with(&above, "above", read_back, NULL);
  probe_init_with(&below, "below", change_and_end, NULL);
  above.replay_bytes = 1000;
  penstock_channel *channel = open_channel();
  add_on(channel, &above, 1, on_executor ? pool.executor : NULL, on_executor ? pool.executor : NULL);
  add_on(channel, &below, 0, NULL, NULL);
  penstock_call *call = start_with(channel, BIDI, PENSTOCK_KIND_BIDI, "{\"deadline_ms\": 60000}");
  CHECK_FINISH(call, PENSTOCK_STATUS_ABORTED);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&above);
  CHECK_INT(atomic_load(&above.seen[PENSTOCK_EVENT_STATUS]), 1);
  probe_wait_finalized(&below);
  pool_close(&pool);
}
TEST(request_of_a_callback_shows_what_was_set) { run_read_back(false); }
TEST(executor_request_of_a_callback_shows_what_was_set) { run_read_back(true); }

/* ---- A bound hop, while another thread ends the wait ---- */

static int32_t keep_limit(probe *self, penstock_hop *hop, int32_t event) {
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  OK(penstock_request_set_max_send_message_bytes(penstock_hop_request(hop), 500));
  return keep_back(self, hop, event);
}
static void check_read(penstock_result result) {
  CHECK(result == PENSTOCK_OK || result == PENSTOCK_E_STATE || result == PENSTOCK_E_GONE);
}
static void *read_bound(void *given) {
  penstock_hop *hop = given;
  penstock_request *request = penstock_hop_request(hop);
  do {
    /* After the wait the request is not readable. The waiting start and the call may be over between two calls. */
    size_t limit = 500;
    int64_t left = -1;
    int32_t has = 0;
    check_read(penstock_request_max_send_message_bytes(request, &limit));
    check_read(penstock_request_deadline_ms(request, &left));
    check_read(penstock_request_has_credentials(request, &has));
    CHECK(limit == 500 && left == -1 && has == 0);
  } while (penstock_hop_event(hop) != PENSTOCK_EVENT_NONE);
  return NULL;
}
TEST(request_of_a_bound_hop_until_another_thread_ends_the_wait) {
  bench bench = {.way = INLINE};
  probe keeper, changer;
  probe_init_with(&keeper, "keeper", keep_limit, &bench);
  probe_init_with(&changer, "changer", change_at_start, NULL);
  penstock_channel *channel = open_channel();
  probe_add(&keeper, channel, 1);
  probe_add(&changer, channel, 0);
  for (int i = test_rounds(200); i > 0; i--) {
    atomic_store(&bench.start, 0);
    penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
    EVENTUALLY(atomic_load(&bench.start) != 0);
    penstock_hop *hop = NULL;
    pthread_t reader;
    REQUIRE_OK(penstock_ticket_hop(atomic_load(&bench.start), &hop));
    if (pthread_create(&reader, NULL, read_bound, hop)) abort();
    OK(penstock_ticket_resolve_after(atomic_load(&bench.start), PENSTOCK_NEXT, test_random(3)));
    OK(penstock_call_half_close(call));
    CHECK_FINISH(call, PENSTOCK_STATUS_OK);
    pthread_join(reader, NULL);
    penstock_hop_release(hop);
    penstock_call_release(call);
  }
  penstock_channel_release(channel);
  probe_wait_finalized(&keeper);
  probe_wait_finalized(&changer);
}
