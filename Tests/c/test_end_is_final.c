/* hop.h: an end by a hop is final: by a ticket, by a bound or a retained hop, in a callback, whatever verdict follows and
 * whatever passes meanwhile. */
#include "calls.h"
#include "pool.h"

enum way { BY_TICKET, BY_BOUND_HOP, BY_RETAINED_HOP, BY_CALLBACK, WAYS };

typedef struct denial {
  int32_t event, verdict;
  enum way way;
  bool elsewhere; /* another thread ends the call, before the callback returns */
  penstock_ticket ticket;
  penstock_hop *hop;
  atomic_int done;
} denial;

/* A second end: the first may have been carried out by then. */
static void check_again(penstock_result result) {
  if (result != PENSTOCK_E_GONE) CHECK_RESULT(result, PENSTOCK_E_ALREADY);
}

static void *deny(void *pointer) {
  denial *plan = pointer;
  switch (plan->way) {
  case BY_TICKET:
    OK(penstock_ticket_end(plan->ticket, PENSTOCK_STATUS_PERMISSION_DENIED, "no"));
    check_again(penstock_ticket_end(plan->ticket, PENSTOCK_STATUS_ABORTED, "again"));
    break;
  case BY_BOUND_HOP:
  case BY_RETAINED_HOP:
  case BY_CALLBACK:
    OK(penstock_hop_end(plan->hop, PENSTOCK_STATUS_PERMISSION_DENIED, "no"));
    check_again(penstock_hop_end(plan->hop, PENSTOCK_STATUS_ABORTED, "again"));
    break;
  case WAYS:
    break;
  }
  return NULL;
}

static int32_t deny_once(probe *self, penstock_hop *hop, int32_t event) {
  denial *plan = self->context;
  if (event != plan->event || atomic_exchange(&plan->done, 1)) return PENSTOCK_NEXT;
  plan->hop = hop;
  if (plan->way == BY_TICKET || plan->way == BY_BOUND_HOP) CHECK((plan->ticket = penstock_hop_ticket(hop)) != 0);
  if (plan->way == BY_BOUND_HOP) OK(penstock_ticket_hop(plan->ticket, &plan->hop));
  if (plan->way == BY_RETAINED_HOP) penstock_hop_retain(hop);
  if (plan->elsewhere) {
    pthread_t thread;
    pthread_create(&thread, NULL, deny, plan);
    pthread_join(thread, NULL);
  } else {
    deny(plan);
  }
  if (plan->way == BY_BOUND_HOP || plan->way == BY_RETAINED_HOP) penstock_hop_release(plan->hop);
  return plan->verdict;
}

/* A unary call in which `here` ends the call at an event: nothing but this end reaches the caller, and a start or a
 * message at which it comes goes no further. */
static void expect_denied(denial plan, pool *pool) {
  probe here, below;
  probe_init_with(&here, "here", deny_once, &plan);
  here.replay_bytes = 1000;
  probe_init(&below, "below");
  penstock_channel *channel = open_channel();
  if (pool) {
    add_on(channel, &here, 2, pool->executor, pool->executor);
  } else {
    probe_add(&here, channel, 2);
  }
  probe_add(&below, channel, 1);
  bool fits = CHECK_INT(unary_code(channel, "ping"), PENSTOCK_STATUS_PERMISSION_DENIED);
  penstock_channel_release(channel);
  probe_wait_finalized(&here);
  probe_wait_finalized(&below);
  int32_t event = plan.event;
  if (event <= PENSTOCK_EVENT_HALF_CLOSE) fits &= CHECK_INT(atomic_load(&below.seen[event]), 0);
  fits &= CHECK_INT(atomic_load(&here.seen[PENSTOCK_EVENT_CANCEL]), 0);
  if (!fits)
    printf("  at %s, way %d, verdict %d%s%s\n", event_name(event), (int)plan.way, (int)plan.verdict,
           plan.elsewhere ? ", elsewhere" : "", pool ? ", on an executor" : "");
}

static void deny_everywhere(enum way way, bool elsewhere) {
  static const int32_t events[] = {PENSTOCK_EVENT_START,   PENSTOCK_EVENT_SEND,    PENSTOCK_EVENT_HALF_CLOSE,
                                   PENSTOCK_EVENT_HEADERS, PENSTOCK_EVENT_RECEIVE, PENSTOCK_EVENT_STATUS};
  static const int32_t verdicts[] = {PENSTOCK_NEXT, PENSTOCK_PAUSE, PENSTOCK_HOLD, -1};
  pool pool;
  pool_open(&pool, 2);
  for (size_t i = 0; i < 6; i++) {
    for (size_t k = 0; k < 4; k++) {
      int32_t verdict = verdicts[k];
      if (verdict < 0) {
        verdict = events[i] == PENSTOCK_EVENT_START    ? PENSTOCK_TAKE
                  : events[i] == PENSTOCK_EVENT_STATUS ? PENSTOCK_RESTART
                                                       : PENSTOCK_DROP;
        if (events[i] == PENSTOCK_EVENT_HALF_CLOSE || events[i] == PENSTOCK_EVENT_HEADERS) continue;
      }
      /* The loop's timers wait for the driving thread's callback. */
      denial plan = {.event = events[i], .verdict = verdict, .way = way, .elsewhere = elsewhere};
      expect_denied(plan, NULL);
      expect_denied(plan, &pool);
    }
  }
  pool_close(&pool);
}

TEST(end_is_final_by_ticket) { deny_everywhere(BY_TICKET, false); }
TEST(end_is_final_by_ticket_on_another_thread) { deny_everywhere(BY_TICKET, true); }
TEST(end_is_final_by_bound_hop) { deny_everywhere(BY_BOUND_HOP, false); }
TEST(end_is_final_by_bound_hop_on_another_thread) { deny_everywhere(BY_BOUND_HOP, true); }
TEST(end_is_final_by_retained_hop_on_another_thread) { deny_everywhere(BY_RETAINED_HOP, true); }
TEST(end_is_final_by_callback) { deny_everywhere(BY_CALLBACK, false); }

/* ---- What passes meanwhile ---- */

typedef struct passing {
  penstock_hop *hop;      /* `here`, retained */
  penstock_result result; /* what its end gave */
  latch ended, seen, released;
  int32_t event;
} passing;

static void *end_retained(void *pointer) {
  passing *plan = pointer;
  plan->result = penstock_hop_end(plan->hop, PENSTOCK_STATUS_PERMISSION_DENIED, "no");
  return NULL;
}

static int32_t retain_at_start(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_START) ((passing *)self->context)->hop = penstock_hop_retain(hop);
  return PENSTOCK_NEXT;
}

/* Another thread ends the call at `here` while a neighbour sees the status. */
static int32_t end_at_status(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop;
  if (event != PENSTOCK_EVENT_STATUS) return PENSTOCK_NEXT;
  pthread_t thread;
  pthread_create(&thread, NULL, end_retained, self->context);
  pthread_join(thread, NULL);
  return PENSTOCK_NEXT;
}

static void end_beside_the_status(bool is_below, bool sees_status, int32_t expected, penstock_result result) {
  passing plan = {.result = PENSTOCK_OK};
  probe here, other;
  probe_init_with(&here, "here", retain_at_start, &plan);
  probe_init_with(&other, "other", end_at_status, &plan);
  penstock_channel *channel = open_channel();
  penstock_interceptor table = probe_table(&here);
  if (!sees_status) table.on_status = NULL;
  penstock_interceptor_id id;
  OK(penstock_channel_add_interceptor(channel, &table, 2, &id, NULL));
  probe_add(&other, channel, is_below ? 1 : 3);
  CHECK_INT(unary_code(channel, "ping"), expected);
  CHECK_RESULT(plan.result, result);
  penstock_hop_release(plan.hop);
  penstock_channel_release(channel);
  probe_wait_finalized(&here);
  probe_wait_finalized(&other);
}
TEST(end_is_final_before_the_status_comes) {
  end_beside_the_status(true, true, PENSTOCK_STATUS_PERMISSION_DENIED, PENSTOCK_OK);
  end_beside_the_status(true, false, PENSTOCK_STATUS_PERMISSION_DENIED, PENSTOCK_OK);
}
TEST(end_after_the_status_has_passed_is_too_late) {
  end_beside_the_status(false, true, PENSTOCK_STATUS_OK, PENSTOCK_E_GONE);
  end_beside_the_status(false, false, PENSTOCK_STATUS_OK, PENSTOCK_E_GONE);
}

/* A callback on an executor ends the call, and has not returned when a status comes up. */
static int32_t end_and_wait(probe *self, penstock_hop *hop, int32_t event) {
  passing *plan = self->context;
  if (event == PENSTOCK_EVENT_STATUS) latch_signal(&plan->seen);
  if (event != plan->event || latch_count(&plan->ended)) return PENSTOCK_NEXT;
  OK(penstock_hop_end(hop, PENSTOCK_STATUS_PERMISSION_DENIED, "no"));
  latch_signal(&plan->ended);
  latch_wait(&plan->released, 1);
  return PENSTOCK_NEXT;
}
static int32_t take_start(probe *self, penstock_hop *hop, int32_t event) {
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  ((passing *)self->context)->hop = penstock_hop_retain(hop);
  return PENSTOCK_TAKE;
}
static void end_on_executor_while_the_status_passes(int32_t event) {
  pool pool;
  pool_open(&pool, 1);
  latch empty = LATCH_INIT;
  passing plan = {.event = event, .ended = empty, .seen = empty, .released = empty};
  probe here, below;
  probe_init_with(&here, "here", end_and_wait, &plan);
  probe_init_with(&below, "below", take_start, &plan);
  penstock_channel *channel = open_channel(), *other = open_channel();
  add_on(channel, &here, 2, pool.executor, NULL);
  probe_add(&below, channel, 1);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  REQUIRE(call != NULL);
  OK(penstock_call_send(call, "x", 1));
  latch_wait(&plan.ended, 1);
  penstock_status *ok = NULL;
  OK(penstock_status_new(PENSTOCK_STATUS_OK, NULL, &ok));
  OK(penstock_hop_deliver_status(plan.hop, ok));
  penstock_status_release(ok);
  check_echo(other);                     /* the loop has carried out the status before this call ends */
  CHECK_INT(latch_count(&plan.seen), 0); /* a hop that has ended the call is shown no further event */
  latch_signal(&plan.released);
  CHECK_FINISH(call, PENSTOCK_STATUS_PERMISSION_DENIED);
  penstock_call_release(call);
  penstock_hop_release(plan.hop);
  penstock_channel_release(channel);
  penstock_channel_release(other);
  probe_wait_finalized(&here);
  probe_wait_finalized(&below);
  CHECK_INT(atomic_load(&here.seen[PENSTOCK_EVENT_CANCEL]), 0);
  pool_close(&pool);
}
TEST(end_is_final_on_an_executor_in_on_send) { end_on_executor_while_the_status_passes(PENSTOCK_EVENT_SEND); }
TEST(end_is_final_on_an_executor_in_on_sent) { end_on_executor_while_the_status_passes(PENSTOCK_EVENT_SENT); }

/* ---- Events that leave the hop before its end ---- */

static int32_t deliver_and_end(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_STATUS) return PENSTOCK_NEXT;
  OK(penstock_hop_deliver(hop, "second", 6)); /* a second message in a unary call */
  OK(penstock_hop_end(hop, PENSTOCK_STATUS_PERMISSION_DENIED, "no"));
  return PENSTOCK_NEXT;
}
TEST(end_is_final_although_a_message_before_it_is_too_much) {
  probe above, here;
  probe_init(&above, "above");
  probe_init_with(&here, "here", deliver_and_end, NULL);
  penstock_channel *channel = open_channel();
  probe_add(&above, channel, 2);
  probe_add(&here, channel, 1);
  CHECK_INT(unary_code(channel, "ping"), PENSTOCK_STATUS_PERMISSION_DENIED);
  penstock_channel_release(channel);
  probe_wait_finalized(&above);
  probe_wait_finalized(&here);
  CHECK_INT(atomic_load(&above.seen[PENSTOCK_EVENT_CANCEL]), 1);
  CHECK_INT(atomic_load(&here.seen[PENSTOCK_EVENT_CANCEL]), 0);
}

/* The server's message and status wait at the hop. The demand that lets them go also makes the hop end the call. */
static int32_t end_on_demand(probe *self, penstock_hop *hop, int32_t event) {
  passing *plan = self->context;
  if (event == PENSTOCK_EVENT_START) OK(penstock_hop_demand(hop, 2));
  if (event == PENSTOCK_EVENT_STATUS) latch_signal(&plan->seen);
  if (event == PENSTOCK_EVENT_DEMAND) OK(penstock_hop_end(hop, PENSTOCK_STATUS_PERMISSION_DENIED, "no"));
  return PENSTOCK_NEXT;
}
TEST(end_is_final_although_a_status_waits) {
  latch empty = LATCH_INIT;
  passing plan = {.seen = empty};
  probe here;
  probe_init_with(&here, "here", end_on_demand, &plan);
  penstock_channel *channel = open_channel();
  probe_add(&here, channel, 0);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  REQUIRE(call != NULL);
  OK(penstock_call_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  latch_wait(&plan.seen, 1);
  penstock_message *message = NULL;
  OK(penstock_call_receive(call, &message));
  penstock_message_release(message);
  CHECK_FINISH(call, PENSTOCK_STATUS_PERMISSION_DENIED);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&here);
}

/* ---- Asynchronous style: the event is resolved, and then another thread ends the call by the same handle ---- */

typedef struct promise {
  int32_t event;
  bool resolves; /* before the other thread ends the call */
  penstock_hop *hop;
} promise;

static void *end_and_release(void *pointer) {
  promise *plan = pointer;
  OK(penstock_hop_end(plan->hop, PENSTOCK_STATUS_PERMISSION_DENIED, "no"));
  check_again(penstock_hop_end(plan->hop, PENSTOCK_STATUS_ABORTED, "again"));
  CHECK_RESULT(penstock_hop_resolve(plan->hop, PENSTOCK_NEXT), PENSTOCK_E_ALREADY);
  penstock_hop_release(plan->hop);
  return NULL;
}

static void promise_event(penstock_hop *hop, void *state) {
  promise *plan = state;
  if (penstock_hop_event(hop) != plan->event) {
    OK(penstock_hop_resolve(hop, PENSTOCK_NEXT));
    penstock_hop_release(hop);
    return;
  }
  plan->hop = hop;
  if (plan->resolves) OK(penstock_hop_resolve(hop, PENSTOCK_NEXT));
  pthread_t thread;
  pthread_create(&thread, NULL, end_and_release, plan);
  pthread_join(thread, NULL);
}

TEST(end_is_final_in_asynchronous_style) {
  for (int32_t event = PENSTOCK_EVENT_START; event <= PENSTOCK_EVENT_STATUS; event++) {
    for (int resolves = 0; resolves < 2; resolves++) {
      promise plan = {event, resolves, NULL};
      penstock_async_interceptor callbacks = PENSTOCK_ASYNC_INTERCEPTOR_INIT;
      callbacks.name = "promise";
      callbacks.user_data = &plan;
      callbacks.on_start = callbacks.on_send = callbacks.on_half_close = promise_event;
      callbacks.on_headers = callbacks.on_receive = callbacks.on_status = promise_event;
      penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
      REQUIRE_OK(penstock_async_interceptor_table(&callbacks, &table, NULL));
      penstock_channel *channel = open_channel();
      penstock_interceptor_id id;
      OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
      if (!CHECK_INT(unary_code(channel, "ping"), PENSTOCK_STATUS_PERMISSION_DENIED))
        printf("  at %s, %s\n", event_name(event), resolves ? "resolved" : "not resolved");
      penstock_channel_release(channel);
    }
  }
}

/* ---- A retained hop, as the call ends ---- */

typedef struct racing {
  penstock_hop *hop;
  int32_t verdict; /* on start */
  int function;
  atomic_int runs, over;
} racing;

static int32_t keep_at_start(probe *self, penstock_hop *hop, int32_t event) {
  racing *plan = self->context;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  plan->hop = penstock_hop_retain(hop);
  return plan->verdict;
}

/* Calls one function until the hop is gone. Where start has come, E_STATE would speak of a hop
 * that start has not reached. */
static void *act_until_gone(void *pointer) {
  racing *plan = pointer;
  penstock_result result = PENSTOCK_OK;
  while (result != PENSTOCK_E_GONE) {
    result = plan->function == 0   ? penstock_hop_half_close(plan->hop)
             : plan->function == 1 ? penstock_hop_deliver_headers(plan->hop, NULL)
                                   : penstock_hop_deliver(plan->hop, "x", 1);
    atomic_fetch_add(&plan->runs, 1);
    if (result == PENSTOCK_E_STATE) {
      test_failed(__FILE__, __LINE__, "function %d gave E_STATE", plan->function);
      break;
    }
  }
  atomic_store(&plan->over, 1);
  return NULL;
}

TEST(retained_hop_is_gone_when_its_call_ends_meanwhile) {
  penstock_channel *other = open_channel();
  for (int round = 0; round < test_rounds(600) && !test_failures(); round++) {
    racing plan = {.function = round % 3, .verdict = round % 3 ? PENSTOCK_TAKE : PENSTOCK_NEXT};
    probe here;
    probe_init_with(&here, "here", keep_at_start, &plan);
    penstock_channel *channel = open_channel();
    probe_add(&here, channel, 1);
    penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
    check_echo(other); /* the loop has carried out the verdict on start */
    pthread_t thread;
    pthread_create(&thread, NULL, act_until_gone, &plan);
    int least = (int)test_random(50);
    /* A half-close lets the server end the call, perhaps before the cancel. */
    EVENTUALLY(atomic_load(&plan.runs) > least || atomic_load(&plan.over));
    OK(penstock_call_cancel(call, "enough"));
    pthread_join(thread, NULL);
    penstock_reply *reply = NULL;
    OK(penstock_call_wait(call, &reply));
    if (plan.function != 0 || penstock_reply_code(reply) != PENSTOCK_STATUS_OK)
      CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_CANCELLED);
    penstock_reply_release(reply);
    penstock_call_release(call);
    penstock_hop_release(plan.hop);
    penstock_channel_release(channel);
    probe_wait_finalized(&here);
  }
  penstock_channel_release(other);
}
