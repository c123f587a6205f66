/* hop.h: tickets that are resolved early, late, on another thread, after a time, twice and never. */
#include "hops.h"

typedef struct pause_at {
  int32_t event;
  int32_t verdict; /* PAUSE or HOLD */
  penstock_ticket ticket;
  latch paused;
  int early; /* 1: the callback itself resolves the ticket */
} pause_at;

static int32_t pause_here(probe *self, penstock_hop *hop, int32_t event) {
  pause_at *state = self->context;
  if (event != state->event || state->ticket) return PENSTOCK_NEXT;
  state->ticket = penstock_hop_ticket(hop);
  CHECK(state->ticket != 0);
  CHECK(penstock_hop_ticket(hop) == state->ticket);
  if (state->early) {
    OK(penstock_ticket_resolve(state->ticket, PENSTOCK_NEXT));
    CHECK_RESULT(penstock_ticket_resolve(state->ticket, PENSTOCK_NEXT), PENSTOCK_E_ALREADY);
  }
  latch_signal(&state->paused);
  return state->verdict;
}

static void *resume_elsewhere(void *pointer) {
  pause_at *state = pointer;
  latch_wait(&state->paused, 1);
  if (!state->early) OK(penstock_ticket_resolve(state->ticket, PENSTOCK_NEXT));
  penstock_result again = penstock_ticket_resolve(state->ticket, PENSTOCK_NEXT);
  CHECK(again == PENSTOCK_E_ALREADY || again == PENSTOCK_E_GONE);
  return NULL;
}

static const int32_t pausable[] = {PENSTOCK_EVENT_START,   PENSTOCK_EVENT_SEND,    PENSTOCK_EVENT_HALF_CLOSE,
                                   PENSTOCK_EVENT_HEADERS, PENSTOCK_EVENT_RECEIVE, PENSTOCK_EVENT_STATUS};

static void resume_everywhere(int early) {
  for (size_t i = 0; i < 6; i++) {
    for (int32_t verdict = PENSTOCK_PAUSE; verdict <= PENSTOCK_HOLD; verdict++) {
      penstock_channel *channel = open_channel();
      pause_at state = {pausable[i], verdict, 0, LATCH_INIT, early};
      probe probe;
      probe_init_with(&probe, "pause", pause_here, &state);
      probe_add(&probe, channel, 0);
      pthread_t thread;
      pthread_create(&thread, NULL, resume_elsewhere, &state);
      check_echo(channel);
      pthread_join(thread, NULL);
      penstock_channel_release(channel);
      probe_wait_finalized(&probe);
      /* The call has ended, so it is too late to resolve the ticket. */
      penstock_result result = penstock_ticket_resolve(state.ticket, PENSTOCK_NEXT);
      if (!CHECK(result == PENSTOCK_E_ALREADY || result == PENSTOCK_E_GONE))
        printf("  in %s\n", event_name(pausable[i]));
    }
  }
}

TEST(ticket_resumed_from_another_thread) { resume_everywhere(0); }
TEST(ticket_resolved_before_the_callback_returns) { resume_everywhere(1); }

static int32_t next_with_ticket(probe *self, penstock_hop *hop, int32_t event) {
  pause_at *state = self->context;
  if (event == state->event) state->ticket = penstock_hop_ticket(hop);
  return PENSTOCK_NEXT;
}
TEST(ticket_is_spent_by_next) {
  penstock_channel *channel = open_channel();
  pause_at state = {PENSTOCK_EVENT_START, 0, 0, LATCH_INIT, 0};
  probe probe;
  probe_init_with(&probe, "next", next_with_ticket, &state);
  probe_add(&probe, channel, 0);
  check_echo(channel);
  CHECK(state.ticket != 0);
  penstock_result result = penstock_ticket_resolve(state.ticket, PENSTOCK_NEXT);
  CHECK(result == PENSTOCK_E_ALREADY || result == PENSTOCK_E_GONE);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

TEST(ticket_of_a_cancelled_call_is_gone) {
  for (size_t i = 0; i < 6; i++) {
    penstock_channel *channel = open_channel();
    pause_at state = {pausable[i], PENSTOCK_PAUSE, 0, LATCH_INIT, 0};
    probe probe;
    probe_init_with(&probe, "pause", pause_here, &state);
    probe_add(&probe, channel, 0);
    latch finalized = LATCH_INIT;
    penstock_call *call = start_callback_call(channel, UNARY, PENSTOCK_KIND_UNARY, &finalized);
    REQUIRE(call);
    penstock_call_try_send(call, "x", 1);
    penstock_call_half_close(call);
    latch_wait(&state.paused, 1);
    penstock_hop *bound = NULL;
    OK(penstock_ticket_hop(state.ticket, &bound));
    CHECK_INT(penstock_hop_event(bound), pausable[i]);
    OK(penstock_call_cancel(call, "no more"));
    latch_wait(&finalized, 1);
    CHECK_RESULT(penstock_ticket_resolve(state.ticket, PENSTOCK_NEXT), PENSTOCK_E_GONE);
    CHECK_RESULT(penstock_ticket_end(state.ticket, 0, NULL), PENSTOCK_E_GONE);
    CHECK_RESULT(penstock_ticket_resolve_after(state.ticket, PENSTOCK_NEXT, 0), PENSTOCK_E_GONE);
    penstock_hop *late = NULL;
    CHECK_RESULT(penstock_ticket_hop(state.ticket, &late), PENSTOCK_E_GONE);
    /* The handle outlives the call, and has no event any more. */
    CHECK(penstock_hop_retain(bound) == bound);
    penstock_hop_release(bound);
    CHECK_INT(penstock_hop_event(bound), PENSTOCK_EVENT_NONE);
    CHECK(penstock_hop_metadata(bound) == NULL && penstock_hop_status(bound) == NULL);
    CHECK_RESULT(penstock_hop_resolve(bound, PENSTOCK_NEXT), PENSTOCK_E_GONE);
    CHECK(penstock_hop_call_id(bound) != 0);
    if (pausable[i] == PENSTOCK_EVENT_SEND) {
      CHECK(penstock_hop_message(bound) == NULL);
      CHECK_RESULT(penstock_hop_set_bytes(bound, "y", 1), PENSTOCK_E_GONE);
    }
    penstock_hop_release(bound);
    penstock_call_release(call);
    penstock_channel_release(channel);
    probe_wait_finalized(&probe);
    CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_STATUS]) + atomic_load(&probe.seen[PENSTOCK_EVENT_CANCEL]) >= 1,
              1);
    CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_DESTROY]), 1);
  }
}

TEST(ticket_wrong_verdicts_leave_it) {
  static const struct {
    int32_t event, wrong[6];
  } cases[] = {
      {PENSTOCK_EVENT_START, {PENSTOCK_PAUSE, PENSTOCK_HOLD, PENSTOCK_DROP, PENSTOCK_SKIP, PENSTOCK_RESTART, 77}},
      {PENSTOCK_EVENT_SEND, {PENSTOCK_PAUSE, PENSTOCK_HOLD, PENSTOCK_TAKE, PENSTOCK_SKIP, PENSTOCK_RESTART, -1}},
      {PENSTOCK_EVENT_HEADERS,
       {PENSTOCK_PAUSE, PENSTOCK_HOLD, PENSTOCK_DROP, PENSTOCK_TAKE, PENSTOCK_RESTART, INT32_MAX}},
      {PENSTOCK_EVENT_STATUS, {PENSTOCK_PAUSE, PENSTOCK_HOLD, PENSTOCK_DROP, PENSTOCK_TAKE, PENSTOCK_SKIP, INT32_MIN}},
  };
  for (size_t i = 0; i < 4; i++) {
    penstock_channel *channel = open_channel();
    pause_at state = {cases[i].event, PENSTOCK_PAUSE, 0, LATCH_INIT, 0};
    probe probe;
    probe_init_with(&probe, "pause", pause_here, &state);
    probe_add(&probe, channel, 0);
    latch finalized = LATCH_INIT;
    penstock_call *call = start_callback_call(channel, UNARY, PENSTOCK_KIND_UNARY, &finalized);
    REQUIRE(call);
    penstock_call_try_send(call, "x", 1);
    penstock_call_half_close(call);
    latch_wait(&state.paused, 1);
    for (size_t k = 0; k < 6; k++) {
      CHECK_RESULT(penstock_ticket_resolve(state.ticket, cases[i].wrong[k]), PENSTOCK_E_INVALID_ARGUMENT);
    }
    CHECK_INT(latch_count(&finalized), 0);
    OK(penstock_ticket_resolve(state.ticket, PENSTOCK_NEXT));
    latch_wait(&finalized, 1);
    penstock_reply *reply = NULL;
    if (OK(penstock_call_reply(call, &reply))) CHECK_INT(penstock_reply_code(reply), 0);
    penstock_reply_release(reply);
    penstock_call_release(call);
    penstock_channel_release(channel);
    probe_wait_finalized(&probe);
  }
}

TEST(ticket_numbers_that_never_were) {
  static const penstock_ticket wrong[] = {0, 1, 12345, UINT64_MAX, UINT64_MAX / 2};
  for (size_t i = 0; i < 5; i++) {
    penstock_hop *bound = NULL;
    penstock_status *status = NULL;
    OK(penstock_status_new(0, NULL, &status));
    CHECK(penstock_ticket_resolve(wrong[i], PENSTOCK_NEXT) != PENSTOCK_OK);
    CHECK(penstock_ticket_resolve(wrong[i], PENSTOCK_DROP) != PENSTOCK_OK);
    CHECK(penstock_ticket_resolve(wrong[i], PENSTOCK_NEXT) != PENSTOCK_OK);
    CHECK(penstock_ticket_end(wrong[i], 0, NULL) != PENSTOCK_OK);
    CHECK(penstock_ticket_end_with(wrong[i], status) != PENSTOCK_OK);
    CHECK(penstock_ticket_resolve_after(wrong[i], PENSTOCK_NEXT, 1) != PENSTOCK_OK);
    CHECK(penstock_ticket_hop(wrong[i], &bound) != PENSTOCK_OK);
    CHECK(bound == NULL);
    penstock_status_release(status);
  }
}

static int32_t pause_for_a_moment(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (!HAS(PAUSABLE, event)) return PENSTOCK_NEXT;
  penstock_ticket ticket = penstock_hop_ticket(hop);
  if (ticket == 0) return PENSTOCK_NEXT;
  OK(penstock_ticket_resolve_after(ticket, PENSTOCK_NEXT, 5));
  return PENSTOCK_PAUSE;
}
TEST(ticket_resume_after) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "moment", pause_for_a_moment, NULL);
  probe_add(&probe, channel, 0);
  int64_t started = test_now_ms();
  check_echo(channel);
  CHECK(test_now_ms() - started >= 25);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* Pauses the status, and restarts the call, once, after a short time. */
static int32_t resolve_in_time(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_STATUS || penstock_hop_can_restart(hop) != PENSTOCK_OK) return PENSTOCK_NEXT;
  penstock_ticket ticket = penstock_hop_ticket(hop);
  CHECK_RESULT(penstock_ticket_resolve_after(ticket, PENSTOCK_DROP, 5), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_ticket_resolve_after(ticket, PENSTOCK_PAUSE, 5), PENSTOCK_E_INVALID_ARGUMENT);
  OK(penstock_ticket_resolve_after(ticket, PENSTOCK_RESTART, 20));
  return PENSTOCK_PAUSE;
}
TEST(ticket_restarts_after) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "in time", resolve_in_time, NULL);
  penstock_interceptor table = probe_table(&probe);
  penstock_interceptor_id id = 0;
  table.replay_bytes = 100;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  int64_t started = test_now_ms();
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, "/penstock.Echo/Nope", "x", 1, NULL, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_UNIMPLEMENTED);
  penstock_reply_release(reply);
  CHECK(test_now_ms() - started >= 15);
  CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_STATUS]), 2);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

TEST(ticket_finish_and_deadline_while_paused) {
  penstock_channel *channel = open_channel();
  pause_at state = {PENSTOCK_EVENT_START, PENSTOCK_PAUSE, 0, LATCH_INIT, 0};
  probe above, probe;
  probe_init(&above, "above");
  probe_init_with(&probe, "pause", pause_here, &state);
  probe_add(&above, channel, 1);
  probe_add(&probe, channel, 0);
  penstock_call_options *options = NULL;
  REQUIRE_OK(penstock_call_options_new("{\"deadline_ms\": 40}", &options, NULL));
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  penstock_reply_release(reply);
  CHECK_RESULT(penstock_ticket_resolve(state.ticket, PENSTOCK_NEXT), PENSTOCK_E_GONE);

  latch empty = LATCH_INIT;
  state.paused = empty;
  state.ticket = 0;
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  latch_wait(&state.paused, 1);
  penstock_status *status = NULL;
  OK(penstock_status_new(PENSTOCK_STATUS_ALREADY_EXISTS, "once", &status));
  OK(penstock_status_add_detail(status, "t/acme.X", "abc", 3));
  OK(penstock_metadata_set(penstock_status_trailers(status), "x-t", "1"));
  OK(penstock_ticket_end_with(state.ticket, status));
  penstock_result again = penstock_ticket_end_with(state.ticket, status);
  CHECK(again == PENSTOCK_E_ALREADY || again == PENSTOCK_E_GONE);
  penstock_status_release(status);
  REQUIRE_OK(penstock_call_wait(call, &reply));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_ALREADY_EXISTS);
  const void *value = NULL;
  size_t length = 0;
  OK(penstock_status_detail_find(penstock_reply_status(reply), "acme.X", &value, &length));
  CHECK_INT(length, 3);
  OK(penstock_metadata_get(penstock_reply_trailers(reply), "x-t", 0, &value, NULL));
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
  probe_wait_finalized(&above);
  CHECK_INT(atomic_load(&above.seen[PENSTOCK_EVENT_STATUS]), 2);
}

/* Several events are held at once and resolved in any order: they leave in order. */
typedef struct held {
  penstock_ticket tickets[4];
  atomic_int count;
} held;
static int32_t hold_each_send(probe *self, penstock_hop *hop, int32_t event) {
  if (event != PENSTOCK_EVENT_SEND) return PENSTOCK_NEXT;
  held *held = self->context;
  held->tickets[atomic_load(&held->count)] = penstock_hop_ticket(hop);
  atomic_fetch_add(&held->count, 1);
  return PENSTOCK_HOLD;
}
TEST(ticket_several_at_once) {
  penstock_channel *channel = open_channel();
  held held = {{0}, 0};
  probe probe;
  probe_init_with(&probe, "hold", hold_each_send, &held);
  probe_add(&probe, channel, 0);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  for (const char *c = "abcd"; *c; c++) OK(penstock_call_send(call, c, 1));
  EVENTUALLY(atomic_load(&held.count) == 4);
  penstock_hop *bound = NULL;
  OK(penstock_ticket_hop(held.tickets[2], &bound));
  OK(penstock_hop_set_bytes(bound, "C", 1));
  const void *held_data = NULL;
  size_t held_length = 0;
  OK(hop_bytes(bound, &held_data, &held_length));
  CHECK(held_length == 1 && memcmp(held_data, "C", 1) == 0);
  penstock_hop_release(bound);
  OK(penstock_ticket_resolve(held.tickets[3], PENSTOCK_NEXT));
  OK(penstock_ticket_resolve(held.tickets[1], PENSTOCK_DROP));
  OK(penstock_ticket_resolve(held.tickets[2], PENSTOCK_NEXT));
  CHECK_RESULT(penstock_ticket_resolve(held.tickets[2], PENSTOCK_NEXT), PENSTOCK_E_ALREADY);
  OK(penstock_ticket_resolve(held.tickets[0], PENSTOCK_NEXT));
  OK(penstock_call_half_close(call));
  char got[8] = "";
  penstock_message *message = NULL;
  while (penstock_call_receive(call, &message) == PENSTOCK_OK) {
    strncat(got, penstock_message_bytes(message, NULL), 1);
    penstock_message_release(message);
  }
  CHECK_STR(got, "aCd");
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* Another thread may edit the metadata of a paused event until the ticket is spent. */
TEST(ticket_event_is_edited_elsewhere) {
  penstock_channel *channel = open_channel();
  pause_at state = {PENSTOCK_EVENT_STATUS, PENSTOCK_PAUSE, 0, LATCH_INIT, 0};
  probe probe;
  probe_init_with(&probe, "pause", pause_here, &state);
  probe_add(&probe, channel, 0);
  latch finalized = LATCH_INIT;
  penstock_call *call = start_callback_call(channel, UNARY, PENSTOCK_KIND_UNARY, &finalized);
  REQUIRE(call);
  penstock_call_try_send(call, "x", 1);
  penstock_call_half_close(call);
  latch_wait(&state.paused, 1);
  penstock_hop *bound = NULL;
  REQUIRE_OK(penstock_ticket_hop(state.ticket, &bound));
  penstock_status *status = penstock_hop_status(bound);
  REQUIRE(status != NULL);
  OK(penstock_status_set_code(status, PENSTOCK_STATUS_DATA_LOSS));
  OK(penstock_metadata_set(penstock_hop_metadata(bound), "x-edited", "1"));
  const void *data = NULL;
  CHECK(penstock_hop_message(bound) == NULL);
  CHECK_RESULT(penstock_hop_set_bytes(bound, "x", 1), PENSTOCK_E_STATE);
  OK(penstock_ticket_resolve(state.ticket, PENSTOCK_NEXT));
  latch_wait(&finalized, 1);
  penstock_hop_release(bound);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_call_reply(call, &reply));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_DATA_LOSS);
  OK(penstock_metadata_get(penstock_reply_trailers(reply), "x-edited", 0, &data, NULL));
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}
