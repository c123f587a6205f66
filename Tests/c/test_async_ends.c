/* async.h: events that end the call, that are never resolved, and that several threads resolve at once. */
#include "completions.h"

/* ---- Ending ---- */

static void expect_end(act act, int32_t event, int32_t code, const char *message) {
  style style;
  style_init(&style);
  style.acts[event] = act;
  penstock_channel *channel = open_channel();
  style_add(&style, channel, 0);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "ping", 4, NULL, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), code);
  CHECK_STR(penstock_status_message(penstock_reply_status(reply), NULL), message);
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  style_end(&style, 1);
}

TEST(async_cancel_at_every_event) {
  for (int event = START; event <= STATUS; event++) {
    expect_end(CANCEL, event, PENSTOCK_STATUS_DATA_LOSS, "not today");
    expect_end(CANCEL_LATER, event, PENSTOCK_STATUS_DATA_LOSS, "not today");
  }
}

TEST(law_7_async_event_released_at_every_event) {
  const char *words = "interceptor 'promise' released an event that it had not resolved";
  for (int event = START; event <= STATUS; event++) {
    expect_end(DROP, event, PENSTOCK_STATUS_INTERNAL, words);
    expect_end(DROP_LATER, event, PENSTOCK_STATUS_INTERNAL, words);
  }
}

static void cancel_with(style *self, int32_t event, penstock_hop *hop) {
  (void)self;
  if (event != START) return;
  penstock_status *status = NULL;
  OK(penstock_status_new(PENSTOCK_STATUS_OUT_OF_RANGE, "far", &status));
  OK(penstock_status_add_detail(status, "type.googleapis.com/a.B", "xy", 2));
  OK(penstock_metadata_set(penstock_status_trailers(status), "x-t", "1"));
  OK(penstock_hop_end_with(hop, status));
  penstock_status_release(status);
}
TEST(async_cancel_with_a_built_status) {
  style style;
  style_init(&style);
  style.look = cancel_with;
  style.acts[START] = DROP;
  penstock_channel *channel = open_channel();
  style_add(&style, channel, 0);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "ping", 4, NULL, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OUT_OF_RANGE);
  CHECK_INT(penstock_status_detail_count(penstock_reply_status(reply)), 1);
  const void *value = NULL;
  OK(penstock_metadata_get(penstock_reply_trailers(reply), "x-t", 0, &value, NULL));
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  style_end(&style, 1);
}

/* A deadline ends a call although an event is never resolved. */
TEST(law_4_async_deadline_while_an_event_is_open) {
  for (int event = START; event <= STATUS; event++) {
    style style;
    style_init(&style);
    style.acts[event] = KEEP;
    penstock_channel *channel = open_channel();
    style_add(&style, channel, 0);
    penstock_call_options *options = NULL;
    penstock_reply *reply = NULL;
    /* The server's status has to come before the deadline if it is the open event. */
    OK(penstock_call_options_new(event == STATUS ? "{\"deadline_ms\": 1000}" : "{\"deadline_ms\": 40}", &options,
                                 NULL));
    REQUIRE_OK(penstock_channel_unary(channel, UNARY, "ping", 4, options, &reply, NULL));
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
    penstock_reply_release(reply);
    penstock_call_options_release(options);
    latch_wait(&style.kept_latch, 1);
    /* on_status has run once: with the deadline, or, if the status was the open event, with the server's status. Then
     * on_cancel has followed with the deadline. */
    CHECK_INT(atomic_load(&style.seen[STATUS]), 1);
    CHECK_INT(atomic_load(&style.cancelled), event == STATUS ? 1 : 0);
    if (event == STATUS) CHECK_INT(style.cancel_code, PENSTOCK_STATUS_DEADLINE_EXCEEDED);
    CHECK_INT(atomic_load(&style.destroyed), 1);
    penstock_hop *kept = style.kept;
    CHECK_RESULT(penstock_hop_resolve(kept, PENSTOCK_NEXT), PENSTOCK_E_GONE);
    CHECK_RESULT(penstock_hop_demand(kept, 1), PENSTOCK_E_GONE);
    penstock_hop_release(kept);
    penstock_channel_release(channel);
    style_end(&style, 1);
  }
}

static void refuse_to_change(style *self, int32_t event, penstock_hop *hop) {
  if (event != STATUS) return;
  CHECK_INT(penstock_status_code(self->status), PENSTOCK_STATUS_CANCELLED);
  CHECK_RESULT(penstock_status_set_code(self->status, 0), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_hop_end(hop, 1, NULL), PENSTOCK_E_GONE);
  CHECK_RESULT(penstock_hop_resolve(hop, PENSTOCK_RESTART), PENSTOCK_E_GONE);
}
/* The caller cancels while on_start's event is open: on_status gets CANCELLED and can change nothing. It may resolve
 * the status with NEXT, or release the hop: in both cases the status goes on. */
TEST(async_cancel_by_the_caller) {
  for (int drops = 0; drops < 2; drops++) {
    style style;
    style_init(&style);
    style.look = refuse_to_change;
    style.acts[START] = KEEP;
    style.acts[STATUS] = drops ? DROP : PASS;
    penstock_channel *channel = open_channel();
    style_add(&style, channel, 0);
    penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
    penstock_hop *kept = take_kept(&style, 1);
    OK(penstock_call_cancel(call, "enough"));
    penstock_reply *reply = NULL;
    REQUIRE_OK(penstock_call_wait(call, &reply));
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_CANCELLED);
    penstock_reply_release(reply);
    penstock_call_release(call);
    CHECK_INT(atomic_load(&style.seen[STATUS]), 1);
    penstock_hop_release(kept); /* its event is unresolved, but the call has ended */
    penstock_channel_release(channel);
    style_end(&style, 1);
  }
}

static int32_t finish_on_receive(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_RECEIVE) OK(penstock_hop_end(hop, PENSTOCK_STATUS_ABORTED, "stop"));
  return PENSTOCK_NEXT;
}
TEST(async_ended_by_a_hop_above) {
  style style;
  probe above;
  style_init(&style);
  style.acts[HEADERS] = PASS_LATER;
  probe_init_with(&above, "above", finish_on_receive, NULL);
  penstock_channel *channel = open_channel();
  style_add(&style, channel, 0);
  probe_add(&above, channel, 1);
  CHECK_INT(unary_code(channel, "ping"), PENSTOCK_STATUS_ABORTED);
  CHECK_INT(atomic_load(&style.cancelled), 1);
  CHECK_INT(style.cancel_code, PENSTOCK_STATUS_ABORTED);
  CHECK_INT(atomic_load(&style.seen[STATUS]), 0);
  penstock_channel_release(channel);
  probe_wait_finalized(&above);
  style_end(&style, 1);
}

/* ---- Other verdicts ---- */

static void refresh(style *self, int32_t event, penstock_hop *hop) {
  if (event != STATUS || penstock_status_code(self->status) != PENSTOCK_STATUS_UNAUTHENTICATED) return;
  OK(penstock_hop_can_restart(hop));
  OK(penstock_metadata_remove(penstock_request_metadata(penstock_hop_request(hop)), "x-status"));
}
/* The test keeps the first status, and resolves it later with RESTART. */
TEST(async_restarts) {
  style style;
  style_init(&style);
  style.look = refresh;
  style.acts[STATUS] = KEEP;
  unary_run run = {open_channel(), NULL};
  penstock_interceptor table = style_table(&style);
  table.replay_bytes = 100;
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(run.channel, &table, 0, &id, NULL));
  penstock_call_options *options = NULL;
  OK(penstock_call_options_new("{\"metadata\": {\"x-status\": \"16\"}}", &options, NULL));
  penstock_call *call = NULL;
  REQUIRE_OK(penstock_channel_call(run.channel, UNARY, PENSTOCK_KIND_UNARY, options, NULL, &call, NULL));
  OK(penstock_call_send(call, "ping", 4));
  OK(penstock_call_half_close(call));
  penstock_hop *kept = take_kept(&style, 1);
  OK(penstock_hop_resolve(kept, PENSTOCK_RESTART));
  penstock_hop_release(kept);
  kept = take_kept(&style, 2);
  OK(penstock_hop_resolve(kept, PENSTOCK_NEXT));
  penstock_hop_release(kept);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_call_wait(call, &reply));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
  size_t length = 0;
  penstock_reply_bytes(reply, &length);
  CHECK_INT(length, 4);
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_call_options_release(options);
  CHECK_INT(atomic_load(&style.seen[START]), 1);
  CHECK_INT(atomic_load(&style.seen[STATUS]), 2);
  penstock_channel_release(run.channel);
  style_end(&style, 1);
}

/* Another thread resolves on_start with TAKE, and answers the call through the hop. */
TEST(async_takes) {
  style style;
  style_init(&style);
  style.acts[START] = KEEP;
  unary_run run = {open_channel(), NULL};
  style_add(&style, run.channel, 0);
  style.look = NULL;
  pthread_t caller;
  REQUIRE(pthread_create(&caller, NULL, run_unary, &run) == 0);
  penstock_hop *kept = take_kept(&style, 1);
  penstock_status *status = NULL;
  OK(penstock_status_new(PENSTOCK_STATUS_ALREADY_EXISTS, "mine", &status));
  OK(penstock_hop_deliver_status(kept, status));
  OK(penstock_hop_resolve(kept, PENSTOCK_TAKE));
  pthread_join(caller, NULL);
  CHECK_RESULT(penstock_hop_deliver_status(kept, status), PENSTOCK_E_GONE);
  penstock_hop_release(kept);
  penstock_status_release(status);
  REQUIRE(run.reply != NULL);
  CHECK_INT(penstock_reply_code(run.reply), PENSTOCK_STATUS_ALREADY_EXISTS);
  penstock_reply_release(run.reply);
  penstock_channel_release(run.channel);
  style_end(&style, 1);
}

/* ---- Races ---- */

typedef struct racer {
  penstock_hop *hop;
  pthread_barrier_t *barrier;
  int kind;
  penstock_result result;
} racer;
static void *race(void *argument) {
  racer *self = argument;
  pthread_barrier_wait(self->barrier);
  if (self->kind == 0) self->result = penstock_hop_resolve(self->hop, PENSTOCK_NEXT);
  if (self->kind == 1) {
    penstock_hop_set_bytes(self->hop, "raced", 5);
    self->result = penstock_hop_resolve(self->hop, PENSTOCK_NEXT);
  }
  if (self->kind == 2) self->result = penstock_hop_end(self->hop, PENSTOCK_STATUS_ABORTED, "raced");
  penstock_hop_release(self->hop);
  return NULL;
}
/* Three threads race to decide about one event: two resolve it with NEXT, and one ends the call. One thread succeeds,
 * and the others get an error; only ending the call may also succeed after a NEXT. */
static void race_all(style *self, int32_t event, penstock_hop *hop) {
  if (event != SEND) return;
  racer *racers = self->context;
  pthread_t threads[3];
  pthread_barrier_t barrier;
  pthread_barrier_init(&barrier, NULL, 3);
  for (int i = 0; i < 3; i++) {
    racers[i] = (racer){penstock_hop_retain(hop), &barrier, i, -1};
    if (pthread_create(&threads[i], NULL, race, &racers[i])) abort();
  }
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  pthread_barrier_destroy(&barrier);
}
static void check_race(racer *racers) {
  int won = 0;
  for (int i = 0; i < 3; i++) {
    won += racers[i].result == PENSTOCK_OK;
    if (i == 1) CHECK(won <= 1);
    CHECK(racers[i].result == PENSTOCK_OK || racers[i].result == PENSTOCK_E_ALREADY ||
          racers[i].result == PENSTOCK_E_GONE);
  }
  CHECK(won == 1 || (won == 2 && racers[2].result == PENSTOCK_OK));
}
TEST(async_one_of_many_calls_wins) {
  penstock_channel *channel = open_channel();
  style style;
  racer racers[3];
  style_init(&style);
  style.look = race_all;
  style.context = racers;
  style.acts[SEND] = DROP;
  style_add(&style, channel, 0);
  int rounds = test_rounds(100);
  for (int i = 0; i < rounds; i++) {
    unary_code(channel, "ping");
    check_race(racers);
  }
  penstock_channel_release(channel);
  style_end(&style, rounds);

  unary_run run = {open_channel(), NULL};
  style_init(&style);
  style.context = racers;
  style.acts[SEND] = KEEP;
  style_add(&style, run.channel, 0);
  for (int i = 0; i < rounds; i++) {
    pthread_t caller;
    REQUIRE(pthread_create(&caller, NULL, run_unary, &run) == 0);
    penstock_hop *kept = take_kept(&style, i + 1);
    race_all(&style, SEND, kept);
    check_race(racers);
    penstock_hop_release(kept);
    pthread_join(caller, NULL);
    penstock_reply_release(run.reply);
  }
  penstock_channel_release(run.channel);
  style_end(&style, rounds);
}

/* ---- The status of a cancel ---- */

typedef struct looker {
  penstock_hop *hop;
  penstock_status *status;
  atomic_bool begun;
  pthread_t thread;
} looker;

static void *look_at_status(void *context) {
  looker *looker = context;
  for (int i = 0; i < 200; i++) {
    CHECK_RESULT(penstock_status_set_code(looker->status, PENSTOCK_STATUS_ABORTED), PENSTOCK_E_STATE);
    CHECK_RESULT(penstock_metadata_set(penstock_status_trailers(looker->status), "x-a", "1"), PENSTOCK_E_STATE);
    CHECK_INT(penstock_status_code(looker->status), PENSTOCK_STATUS_CANCELLED);
    /* A stronger order would hide a race from ThreadSanitizer. */
    atomic_store_explicit(&looker->begun, true, memory_order_relaxed);
  }
  return NULL;
}
static void give_status(penstock_hop *hop, void *state) {
  looker *looker = state;
  looker->hop = hop;
  looker->status = penstock_hop_status(hop);
  pthread_create(&looker->thread, NULL, look_at_status, looker);
  while (!atomic_load_explicit(&looker->begun, memory_order_relaxed)) continue;
}
/* The status of a cancel waits nowhere. A thread that has it may go on reading it while the cancel ends the call. */
TEST(async_status_of_a_cancel_is_read_while_the_call_ends) {
  for (int i = 0; i < test_rounds(20); i++) {
    looker looker = {NULL, NULL, false, 0};
    penstock_async_interceptor table = PENSTOCK_ASYNC_INTERCEPTOR_INIT;
    table.user_data = &looker;
    table.on_status = give_status;
    penstock_interceptor made = PENSTOCK_INTERCEPTOR_INIT;
    OK(penstock_async_interceptor_table(&table, &made, NULL));
    penstock_channel *channel = open_channel();
    penstock_interceptor_id id = 0;
    OK(penstock_channel_add_interceptor(channel, &made, 0, &id, NULL));
    penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
    OK(penstock_call_cancel(call, "enough"));
    penstock_reply *reply = NULL;
    if (OK(penstock_call_wait(call, &reply))) {
      CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_CANCELLED);
      penstock_reply_release(reply);
    }
    pthread_join(looker.thread, NULL);
    penstock_hop_release(looker.hop);
    penstock_call_release(call);
    penstock_channel_release(channel);
  }
}
