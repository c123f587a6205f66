/* executor.h: executors that refuse jobs, executors that are busy, and waits on an executor's thread; laws 4 and 7. */
#include "calls.h"
#include "pool.h"

/* ---- Law 7: the executor does not take a job ---- */

TEST(law_7_executor_that_refuses_a_job) {
  bool passed = false;
  for (int accepts = 0; !passed && accepts < 100; accepts++) {
    pool pool;
    pool_open(&pool, 1);
    pool.accepts = accepts;
    probe above, here, below;
    probe_init(&above, "above");
    probe_init(&here, "busy");
    probe_init(&below, "below");
    penstock_channel *channel = open_channel();
    probe_add(&above, channel, 3);
    add_on(channel, &here, 2, pool.executor, pool.executor);
    probe_add(&below, channel, 1);
    penstock_reply *reply = NULL;
    if (!OK(penstock_channel_unary(channel, UNARY, "ping", 4, NULL, &reply, NULL))) return;
    bool is_lost = penstock_reply_code(reply) != PENSTOCK_STATUS_OK;
    if (is_lost) {
      CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_INTERNAL);
      CHECK_STR(penstock_status_message(penstock_reply_status(reply), NULL), "interceptor 'busy' lost its executor");
      /* Whether on_status ran depends on which job was refused; it never runs twice. */
      CHECK(atomic_load(&here.seen[PENSTOCK_EVENT_STATUS]) <= 1);
    } else {
      /* The call has succeeded, so at most the job of destroy was refused. */
      CHECK_INT(atomic_load(&here.seen[PENSTOCK_EVENT_STATUS]), 1);
      pthread_mutex_lock(&pool.mutex);
      passed = pool.accepts > 0;
      pthread_mutex_unlock(&pool.mutex);
    }
    penstock_reply_release(reply);
    penstock_channel_release(channel);
    probe_wait_finalized(&above);
    probe_wait_finalized(&here);
    probe_wait_finalized(&below);
    CHECK_INT(latch_count(&here.done), 1);
    /* Law 2: the hop has not ended the call itself, so it learns of the end. */
    CHECK_INT(atomic_load(&here.seen[PENSTOCK_EVENT_CANCEL]), is_lost);
    const char *end = here.log + strlen(here.log) - 2;
    CHECK_STR(end, is_lost ? "Xd" : "Td");
    CHECK_INT(latch_count(&above.done), 1);
    CHECK_INT(atomic_load(&above.seen[PENSTOCK_EVENT_STATUS]), 1);
    CHECK_INT(latch_count(&below.done), atomic_load(&below.seen[PENSTOCK_EVENT_CREATE]));
    pool_close(&pool);
  }
  CHECK(passed);
}

/* ---- Law 4: a busy executor does not delay the end of a call ---- */

/* The executor of a hop is blocked. The call ends by a deadline or a cancel, and the hop's callbacks run when the
 * executor is free. */
static void expect_no_delay(bool cancels, bool before_start) {
  pool pool;
  pool_open(&pool, 1);
  probe above, here;
  probe_init(&above, "above");
  probe_init(&here, "here");
  penstock_channel *channel = open_channel();
  probe_add(&above, channel, 1);
  add_on(channel, &here, 0, pool.executor, pool.executor);
  if (before_start) pool_block(&pool, true);
  penstock_call_options *options = NULL;
  penstock_call *call = NULL;
  OK(penstock_call_options_new(cancels ? NULL : "{\"deadline_ms\": 50}", &options, NULL));
  REQUIRE_OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, options, NULL, &call, NULL));
  if (!before_start) {
    const penstock_metadata *headers = NULL;
    if (penstock_call_wait_headers(call, &headers) == PENSTOCK_OK) pool_block(&pool, true);
    OK(penstock_call_send(call, "x", 1));
  }
  if (cancels) OK(penstock_call_cancel(call, "enough"));
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_call_wait(call, &reply));
  CHECK_INT(penstock_reply_code(reply), cancels ? PENSTOCK_STATUS_CANCELLED : PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  penstock_reply_release(reply);
  CHECK_INT(atomic_load(&above.seen[PENSTOCK_EVENT_STATUS]), 1);
  CHECK_INT(latch_count(&above.done), 1);
  penstock_call_release(call);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  probe_wait_finalized(&above);
  pthread_mutex_lock(&pool.mutex);
  bool blocked = pool.blocked;
  pthread_mutex_unlock(&pool.mutex);
  if (blocked) {
    CHECK_INT(latch_count(&here.done), 0);
    CHECK_INT(latch_count(&here.finalized_latch), 0);
  }
  pool_block(&pool, false);
  probe_wait_finalized(&here);
  CHECK_INT(latch_count(&here.done), 1);
  /* The server's own DEADLINE_EXCEEDED may already wait at the hop: then the local one replaces it, and on_cancel
   * follows. */
  CHECK(atomic_load(&here.seen[PENSTOCK_EVENT_STATUS]) <= 1 && atomic_load(&here.seen[PENSTOCK_EVENT_CANCEL]) <= 1);
  size_t length = strlen(here.log);
  CHECK(length >= 2 && here.log[length - 1] == 'd' && (here.log[length - 2] == 'T' || here.log[length - 2] == 'X'));
  pool_close(&pool);
}

TEST(law_4_executor_blocked_at_start_and_a_deadline) { expect_no_delay(false, true); }
TEST(law_4_executor_blocked_at_start_and_a_cancel) { expect_no_delay(true, true); }
TEST(law_4_executor_blocked_later_and_a_deadline) { expect_no_delay(false, false); }
TEST(law_4_executor_blocked_later_and_a_cancel) { expect_no_delay(true, false); }

/* ---- Law 2: the callbacks of the end come after all jobs on both executors ---- */

static int32_t note_thread(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop;
  if (event == PENSTOCK_EVENT_STATUS || event == PENSTOCK_EVENT_DESTROY) CHECK(own_pool == self->context);
  return PENSTOCK_NEXT;
}

/* The outbound executor is blocked and has on_start, or on_send, in its queue when the call is cancelled. */
static void expect_end_behind(bool has_inbound, bool before_start) {
  pool outbound, inbound;
  pool_open(&outbound, 1);
  pool_open(&inbound, 1);
  probe here;
  probe_init_with(&here, "here", note_thread, has_inbound ? &inbound : &outbound);
  penstock_channel *channel = open_channel();
  add_on(channel, &here, 0, outbound.executor, has_inbound ? inbound.executor : NULL);
  if (before_start) pool_block(&outbound, true);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  REQUIRE(call != NULL);
  if (before_start) {
    EVENTUALLY(atomic_load(&outbound.taken) == 1);
  } else {
    const penstock_metadata *headers = NULL;
    OK(penstock_call_wait_headers(call, &headers));
    pool_block(&outbound, true);
    int before = atomic_load(&outbound.taken);
    OK(penstock_call_send(call, "x", 1));
    EVENTUALLY(atomic_load(&outbound.taken) == before + 1);
  }
  OK(penstock_call_cancel(call, "enough"));
  CHECK_FINISH(call, PENSTOCK_STATUS_CANCELLED);
  CHECK_INT(atomic_load(&here.seen[PENSTOCK_EVENT_STATUS]), 0);
  if (before_start) CHECK_INT(atomic_load(&inbound.taken), 0);
  pool_block(&outbound, false);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&here);
  CHECK_INT(atomic_load(&here.seen[PENSTOCK_EVENT_SEND]), !before_start);
  size_t length = strlen(here.log);
  CHECK(length >= 3 && strcmp(here.log + length - 3, before_start ? "STd" : "sTd") == 0);
  pool_close(&outbound);
  pool_close(&inbound);
}

TEST(law_2_executors_of_two_lanes_start_before_the_end) { expect_end_behind(true, true); }
TEST(law_2_executors_of_two_lanes_send_before_the_end) { expect_end_behind(true, false); }
TEST(law_2_executor_of_the_outbound_lane_start_before_the_end) { expect_end_behind(false, true); }
TEST(law_2_executor_of_the_outbound_lane_send_before_the_end) { expect_end_behind(false, false); }

/* A callback that does not return until the call has ended. */
typedef struct stuck {
  latch inside, go;
  penstock_result after[3];
} stuck;
static int32_t get_stuck(probe *self, penstock_hop *hop, int32_t event) {
  stuck *plan = self->context;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  latch_signal(&plan->inside);
  latch_wait(&plan->go, 1);
  plan->after[0] = penstock_hop_end(hop, PENSTOCK_STATUS_ABORTED, "late");
  plan->after[1] = penstock_metadata_set(penstock_hop_metadata(hop), "x-late", "1");
  penstock_ticket ticket = penstock_hop_ticket(hop);
  plan->after[2] = ticket ? penstock_ticket_resolve(ticket, PENSTOCK_NEXT) : PENSTOCK_E_GONE;
  return PENSTOCK_PAUSE;
}
TEST(law_4_executor_callback_that_outlives_its_call) {
  probe probe;
  stuck plan = {.inside = LATCH_INIT, .go = LATCH_INIT};
  probe_init_with(&probe, "stuck", get_stuck, &plan);
  penstock_executor *executor = NULL;
  REQUIRE_OK(penstock_executor_new_serial(&executor));
  penstock_channel *channel = open_channel();
  add_on(channel, &probe, 0, executor, executor);
  penstock_executor_release(executor);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  latch_wait(&plan.inside, 1);
  OK(penstock_call_cancel(call, NULL));
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_call_wait(call, &reply));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_CANCELLED);
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_channel_release(channel);
  CHECK_INT(atomic_load(&probe.finalized), 0);
  latch_signal(&plan.go);
  probe_wait_finalized(&probe);
  CHECK_RESULT(plan.after[2], PENSTOCK_E_GONE);
  CHECK_STR(probe.log, "CSTd");
}

/* ---- Waiting on an executor's thread ---- */

typedef struct waiting {
  penstock_channel *own, *other;
  penstock_result streamed, unary, elsewhere;
  int32_t event;
} waiting;
static int32_t wait_there(probe *self, penstock_hop *hop, int32_t event) {
  waiting *plan = self->context;
  penstock_reply *reply = NULL;
  (void)hop;
  if (event != plan->event || plan->unary != -1) return PENSTOCK_NEXT;
  plan->unary = penstock_channel_unary(plan->own, UNARY, "x", 1, NULL, &reply, NULL);
  if (plan->unary == PENSTOCK_OK) penstock_reply_release(reply);
  penstock_call *call = start_call(plan->own, BIDI, PENSTOCK_KIND_BIDI);
  penstock_message *message = NULL;
  plan->streamed = penstock_call_receive(call, &message);
  if (plan->streamed == PENSTOCK_OK) penstock_message_release(message);
  penstock_call_release(call);
  plan->elsewhere = penstock_channel_unary(plan->other, UNARY, "x", 1, NULL, &reply, NULL);
  if (plan->elsewhere == PENSTOCK_OK) penstock_reply_release(reply);
  return PENSTOCK_NEXT;
}
static int32_t wait_for_one(probe *self, penstock_hop *hop, int32_t event) {
  waiting *plan = self->context;
  penstock_reply *reply = NULL;
  (void)hop;
  if (event != plan->event || plan->unary != -1) return PENSTOCK_NEXT;
  plan->unary = -2; /* so that this hop, in the call that is made here, does not make another */
  plan->unary = penstock_channel_unary(plan->own, UNARY, "x", 1, NULL, &reply, NULL);
  if (plan->unary == PENSTOCK_OK) penstock_reply_release(reply);
  return PENSTOCK_NEXT;
}
static penstock_executor *chosen_executor;
static int32_t choose_and_wait(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_CREATE) OK(penstock_hop_set_executors(hop, chosen_executor, NULL));
  return wait_there(self, hop, event);
}
static void expect_deadlock(int32_t event, bool chosen) {
  probe probe;
  waiting plan = {open_channel(), open_channel(), -1, -1, -1, event};
  probe_init(&probe, "waits");
  probe.hook = chosen ? choose_and_wait : wait_there;
  probe.context = &plan;
  REQUIRE_OK(penstock_executor_new_serial(&chosen_executor));
  add_on(plan.own, &probe, 0, chosen ? NULL : chosen_executor, chosen ? NULL : chosen_executor);
  check_echo(plan.own);
  CHECK_RESULT(plan.unary, PENSTOCK_E_WOULD_DEADLOCK);
  CHECK_RESULT(plan.streamed, PENSTOCK_E_WOULD_DEADLOCK);
  CHECK_RESULT(plan.elsewhere, PENSTOCK_OK);
  penstock_channel_release(plan.own);
  penstock_channel_release(plan.other);
  probe_wait_finalized(&probe);
  CHECK_INT(latch_count(&probe.done), atomic_load(&probe.seen[PENSTOCK_EVENT_CREATE]));
  penstock_executor_release(chosen_executor);
}
TEST(executor_wait_on_the_serial_thread_would_deadlock) {
  expect_deadlock(PENSTOCK_EVENT_START, false);
  expect_deadlock(PENSTOCK_EVENT_STATUS, false);
  expect_deadlock(PENSTOCK_EVENT_START, true);
}

/* If the pool has a free thread, a callback may wait for another call on the channel of its own call: both calls
 * end. */
TEST(executor_wait_on_a_pool_is_allowed) {
  pool pool;
  pool_open(&pool, 4);
  probe probe;
  waiting plan = {open_channel(), open_channel(), -1, -1, -1, PENSTOCK_EVENT_STATUS};
  probe_init_with(&probe, "waits", wait_for_one, &plan);
  add_on(plan.own, &probe, 0, pool.executor, pool.executor);
  check_echo(plan.own);
  CHECK_RESULT(plan.unary, PENSTOCK_OK);
  penstock_channel_release(plan.own);
  penstock_channel_release(plan.other);
  probe_wait_finalized(&probe);
  CHECK_INT(latch_count(&probe.done), 2);
  pool_close(&pool);
}

/* The last reference to a serial executor is released on its own thread. */
static int32_t let_go(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop;
  if (event == PENSTOCK_EVENT_DESTROY) penstock_executor_release(self->context);
  return PENSTOCK_NEXT;
}
TEST(executor_serial_released_on_its_own_thread) {
  probe probe;
  penstock_executor *executor = NULL;
  REQUIRE_OK(penstock_executor_new_serial(&executor));
  probe_init_with(&probe, "last", let_go, executor);
  penstock_channel *channel = open_channel();
  penstock_interceptor_id id = add_on(channel, &probe, 0, executor, executor);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_registration_remove(id, NULL));
  OK(penstock_call_cancel(call, NULL));
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}
