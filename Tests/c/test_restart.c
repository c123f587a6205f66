/* RESTART against a server: recorded requests sent again, by verdict and by ticket; limits; cancel in between. */
#include "test.h"

/* Ends the first `times` attempts at their half-close. */
typedef struct failing {
  uint32_t times;
  atomic_int attempts;
} failing;

static int32_t fail_first(probe *self, penstock_hop *hop, int32_t event) {
  failing *plan = self->context;
  if (event == PENSTOCK_EVENT_START) atomic_fetch_add(&plan->attempts, 1);
  if (event == PENSTOCK_EVENT_HALF_CLOSE && penstock_hop_attempt(hop) <= plan->times) {
    OK(penstock_hop_end(hop, PENSTOCK_STATUS_UNAUTHENTICATED, "who are you"));
  }
  return PENSTOCK_NEXT;
}

typedef struct refreshing {
  penstock_result said; /* the last result of can_restart */
  bool pauses;
  penstock_ticket ticket;
  latch paused;
} refreshing;

static int32_t restart(probe *self, penstock_hop *hop, int32_t event) {
  refreshing *plan = self->context;
  if (event != PENSTOCK_EVENT_STATUS) {
    CHECK_RESULT(penstock_hop_can_restart(hop), event == PENSTOCK_EVENT_DESTROY ? PENSTOCK_E_GONE : PENSTOCK_E_STATE);
    return PENSTOCK_NEXT;
  }
  plan->said = penstock_hop_can_restart(hop);
  if (penstock_status_code(penstock_hop_status(hop)) != PENSTOCK_STATUS_UNAUTHENTICATED) return PENSTOCK_NEXT;
  penstock_metadata *metadata = penstock_request_metadata(penstock_hop_request(hop));
  if (metadata) OK(penstock_metadata_set(metadata, "authorization", "new"));
  if (!plan->pauses || plan->said != PENSTOCK_OK) return PENSTOCK_RESTART;
  plan->ticket = penstock_hop_ticket(hop);
  CHECK(plan->ticket != 0);
  latch_signal(&plan->paused);
  return PENSTOCK_PAUSE;
}

typedef struct restart_bench {
  penstock_channel *channel;
  probe above, auth, below;
  refreshing auth_plan;
  failing below_plan;
} restart_bench;

static void bench_open(restart_bench *bench, uint32_t times, size_t replay_bytes, size_t max_restarts) {
  memset(bench, 0, sizeof(*bench));
  bench->channel = open_channel();
  bench->auth_plan.paused = (latch)LATCH_INIT;
  bench->below_plan.times = times;
  probe_init(&bench->above, "above");
  probe_init(&bench->auth, "auth");
  probe_init(&bench->below, "below");
  bench->auth.hook = restart;
  bench->auth.context = &bench->auth_plan;
  bench->below.hook = fail_first;
  bench->below.context = &bench->below_plan;
  bench->auth.replay_bytes = replay_bytes;
  bench->auth.max_restarts = max_restarts;
  probe_add(&bench->above, bench->channel, 3);
  probe_add(&bench->auth, bench->channel, 2);
  probe_add(&bench->below, bench->channel, 1);
}

static void bench_close(restart_bench *bench, int attempts) {
  penstock_channel_release(bench->channel);
  probe_wait_finalized(&bench->above);
  probe_wait_finalized(&bench->auth);
  probe_wait_finalized(&bench->below);
  CHECK_INT(atomic_load(&bench->below_plan.attempts), attempts);
  CHECK_INT(latch_count(&bench->below.done), attempts);
  CHECK_INT(latch_count(&bench->auth.done), 1);
  CHECK_INT(latch_count(&bench->above.done), 1);
  CHECK_INT(atomic_load(&bench->above.seen[PENSTOCK_EVENT_STATUS]), 1);
}

static void expect_code(restart_bench *bench, size_t length, int32_t code) {
  char request[300];
  memset(request, 'r', sizeof(request));
  penstock_reply *reply = NULL;
  if (!OK(penstock_channel_unary(bench->channel, UNARY, request, length, NULL, &reply, NULL))) return;
  CHECK_INT(penstock_reply_code(reply), code);
  size_t got = 0;
  penstock_reply_bytes(reply, &got);
  if (code == PENSTOCK_STATUS_OK) CHECK_INT(got, length);
  penstock_reply_release(reply);
}

TEST(restart_sends_the_request_again) {
  restart_bench bench;
  bench_open(&bench, 1, 300, 0);
  expect_code(&bench, 300, PENSTOCK_STATUS_OK);
  bench_close(&bench, 2);
}

TEST(restart_stops_at_max_restarts) {
  restart_bench bench;
  bench_open(&bench, 9, 300, 3);
  expect_code(&bench, 300, PENSTOCK_STATUS_UNAUTHENTICATED);
  CHECK_RESULT(bench.auth_plan.said, PENSTOCK_E_ALREADY);
  bench_close(&bench, 4);
}

TEST(restart_needs_a_recording_that_fits) {
  restart_bench bench;
  bench_open(&bench, 1, 299, 1);
  expect_code(&bench, 300, PENSTOCK_STATUS_UNAUTHENTICATED);
  CHECK_RESULT(bench.auth_plan.said, PENSTOCK_E_TOO_LARGE);
  bench_close(&bench, 1);
  bench_open(&bench, 1, 0, 1);
  expect_code(&bench, 0, PENSTOCK_STATUS_UNAUTHENTICATED);
  CHECK_RESULT(bench.auth_plan.said, PENSTOCK_E_STATE);
  bench_close(&bench, 1);
}

TEST(restart_by_ticket_while_the_caller_sends) {
  restart_bench bench;
  bench_open(&bench, 1, 300, 1);
  bench.auth_plan.pauses = true;
  penstock_call *call = start_call(bench.channel, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM);
  OK(penstock_call_send(call, "a", 1));
  OK(penstock_call_send(call, "b", 1));
  OK(penstock_call_half_close(call));
  latch_wait(&bench.auth_plan.paused, 1);
  OK(penstock_ticket_resolve(bench.auth_plan.ticket, PENSTOCK_RESTART));
  /* By now the call may have ended: then the result is E_GONE, not E_ALREADY. */
  penstock_result again = penstock_ticket_resolve(bench.auth_plan.ticket, PENSTOCK_RESTART);
  CHECK(again == PENSTOCK_E_ALREADY || again == PENSTOCK_E_GONE);
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) {
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
    penstock_reply_release(reply);
  }
  penstock_call_release(call);
  bench_close(&bench, 2);
}

TEST(restart_cancelled_while_its_status_is_paused) {
  restart_bench bench;
  bench_open(&bench, 1, 300, 1);
  bench.auth_plan.pauses = true;
  /* For this kind of call the server sends no headers before the half-close. */
  penstock_call *call = start_call(bench.channel, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM);
  OK(penstock_call_half_close(call));
  latch_wait(&bench.auth_plan.paused, 1);
  OK(penstock_call_cancel(call, "enough"));
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) {
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_CANCELLED);
    penstock_reply_release(reply);
  }
  CHECK_RESULT(penstock_ticket_resolve(bench.auth_plan.ticket, PENSTOCK_RESTART), PENSTOCK_E_GONE);
  penstock_call_release(call);
  CHECK_INT(atomic_load(&bench.auth.seen[PENSTOCK_EVENT_CANCEL]), 1);
  bench_close(&bench, 1);
}
