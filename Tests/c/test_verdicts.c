/* interceptor.h: verdicts, injection and demand. */
#include "unary.h"

/* ---- Verdicts ---- */

static int32_t drop_b(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_SEND && event != PENSTOCK_EVENT_RECEIVE) return PENSTOCK_NEXT;
  const void *data = NULL;
  size_t length = 0;
  OK(hop_bytes(hop, &data, &length));
  const char *wanted = event == PENSTOCK_EVENT_SEND ? "b" : "d";
  return length == 1 && memcmp(data, wanted, 1) == 0 ? PENSTOCK_DROP : PENSTOCK_NEXT;
}

TEST(interceptor_drop) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "drop", drop_b, NULL);
  probe_add(&probe, channel, 0);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  for (const char *c = "abcde"; *c; c++) OK(penstock_call_send(call, c, 1));
  OK(penstock_call_half_close(call));
  char got[8] = "";
  penstock_message *message = NULL;
  while (penstock_call_receive(call, &message) == PENSTOCK_OK) {
    strncat(got, penstock_message_bytes(message, NULL), 1);
    penstock_message_release(message);
  }
  CHECK_STR(got, "ace");
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) CHECK_INT(penstock_reply_code(reply), 0);
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

static int32_t change_everything(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_SEND) OK(penstock_hop_set_bytes(hop, "changed", 7));
  if (event == PENSTOCK_EVENT_RECEIVE) {
    const void *data = NULL;
    size_t length = 0;
    OK(hop_bytes(hop, &data, &length));
    CHECK(length == 7 && memcmp(data, "changed", 7) == 0);
    OK(penstock_hop_set_bytes(hop, NULL, 0));
    OK(penstock_hop_set_bytes(hop, "again", 5));
  }
  if (event == PENSTOCK_EVENT_HEADERS) OK(penstock_metadata_set(penstock_hop_metadata(hop), "x-seen", "yes"));
  if (event == PENSTOCK_EVENT_STATUS) {
    OK(penstock_status_set_code(penstock_hop_status(hop), PENSTOCK_STATUS_OK));
    OK(penstock_metadata_set(penstock_hop_metadata(hop), "x-trailer", "yes"));
  }
  return PENSTOCK_NEXT;
}

TEST(interceptor_changes_everything) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "change", change_everything, NULL);
  probe_add(&probe, channel, 0);
  penstock_reply *reply = unary(channel, "x");
  CHECK_INT(penstock_reply_code(reply), 0);
  CHECK(message_is(reply, "again"));
  const void *value = NULL;
  OK(penstock_metadata_get(penstock_reply_headers(reply), "x-seen", 0, &value, NULL));
  OK(penstock_metadata_get(penstock_reply_trailers(reply), "x-trailer", 0, &value, NULL));
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

static int32_t hold_headers(probe *self, penstock_hop *hop, int32_t event) {
  (void)self, (void)hop;
  return event == PENSTOCK_EVENT_HEADERS ? PENSTOCK_HOLD : PENSTOCK_NEXT;
}

/* A HOLD without a ticket is released by the next NEXT in its lane. */
TEST(interceptor_hold_without_a_ticket) {
  penstock_channel *channel = open_channel();
  probe above, holder;
  probe_trace trace = {PTHREAD_MUTEX_INITIALIZER, ""};
  probe_init(&above, "above");
  probe_init(&holder, "holder");
  above.trace = holder.trace = &trace;
  holder.hook = hold_headers;
  probe_add(&above, channel, 2);
  probe_add(&holder, channel, 1);
  check_echo(channel);
  penstock_channel_release(channel);
  probe_wait_finalized(&above);
  probe_wait_finalized(&holder);
  CHECK_HAS(trace.text, "holder:headers holder:receive above:headers above:receive");
}

static int32_t hold_everything(probe *self, penstock_hop *hop, int32_t event) {
  (void)self, (void)hop;
  return event == PENSTOCK_EVENT_SEND ? PENSTOCK_HOLD : PENSTOCK_NEXT;
}

TEST(interceptor_hold_is_bounded) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "holder", hold_everything, NULL);
  penstock_interceptor table = probe_table(&probe);
  table.hold_bytes = 100;
  penstock_interceptor_id id;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  char data[60] = "";
  penstock_result result = PENSTOCK_OK;
  for (int i = 0; i < 50 && result == PENSTOCK_OK; i++) result = penstock_call_try_send(call, data, sizeof(data));
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) {
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_RESOURCE_EXHAUSTED);
    penstock_reply_release(reply);
  }
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* One message always has room: a unary call's is held however large it is. */
TEST(interceptor_hold_has_room_for_one_message) {
  static const char large[200000];
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "holder", hold_everything, NULL);
  probe_add(&probe, channel, 0);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, large, sizeof(large), NULL, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* SIZE_MAX means no limit, and must not be read as a negative number. */
TEST(interceptor_hold_without_a_limit) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "holder", hold_everything, NULL);
  penstock_interceptor table = probe_table(&probe);
  table.hold_bytes = SIZE_MAX;
  table.replay_bytes = SIZE_MAX;
  penstock_interceptor_id id;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_call_send(call, "abc", 3));
  OK(penstock_call_half_close(call));
  penstock_message *message = NULL;
  if (OK(penstock_call_receive(call, &message))) {
    CHECK(message_length(message) == 3);
    penstock_message_release(message);
  }
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) {
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
    penstock_reply_release(reply);
  }
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* Law 3: the test checks which hops see it when a hop ends the call. */
static int32_t finish_at(probe *self, penstock_hop *hop, int32_t event) {
  if (event == *(int32_t *)self->context) {
    OK(penstock_hop_end(hop, PENSTOCK_STATUS_PERMISSION_DENIED, "not you"));
  }
  return PENSTOCK_NEXT;
}

static int32_t finish_twice(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_SEND) {
    OK(penstock_hop_end(hop, PENSTOCK_STATUS_PERMISSION_DENIED, "first"));
    penstock_result again = penstock_hop_end(hop, PENSTOCK_STATUS_ABORTED, "second");
    CHECK(again == PENSTOCK_E_ALREADY || again == PENSTOCK_E_GONE || again == PENSTOCK_E_STATE);
  }
  return PENSTOCK_NEXT;
}
TEST(interceptor_second_finish_is_refused) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "twice", finish_twice, NULL);
  probe_add(&probe, channel, 0);
  penstock_reply *reply = unary(channel, "x");
  CHECK_STR(penstock_status_message(penstock_reply_status(reply), NULL), "first");
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

TEST(interceptor_finish_from_every_callback) {
  static const int32_t events[] = {PENSTOCK_EVENT_START,   PENSTOCK_EVENT_SEND,    PENSTOCK_EVENT_HALF_CLOSE,
                                   PENSTOCK_EVENT_HEADERS, PENSTOCK_EVENT_RECEIVE, PENSTOCK_EVENT_STATUS,
                                   PENSTOCK_EVENT_DEMAND,  PENSTOCK_EVENT_SENT};
  penstock_channel *channel = open_channel();
  for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++) {
    probe above, finisher, below;
    int32_t event = events[i];
    probe_init(&above, "above");
    probe_init(&finisher, "finisher");
    probe_init(&below, "below");
    finisher.hook = finish_at;
    finisher.context = &event;
    penstock_interceptor_id ids[3] = {probe_add(&above, channel, 3), probe_add(&finisher, channel, 2),
                                      probe_add(&below, channel, 1)};
    penstock_reply *reply = unary(channel, "x");
    if (!CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_PERMISSION_DENIED))
      printf("  in %s\n", event_name(event));
    CHECK_STR(penstock_status_message(penstock_reply_status(reply), NULL), "not you");
    penstock_reply_release(reply);
    for (int k = 0; k < 3; k++) OK(penstock_registration_remove(ids[k], NULL));
    probe_wait_finalized(&above);
    probe_wait_finalized(&finisher);
    probe_wait_finalized(&below);
    CHECK_INT(atomic_load(&above.seen[PENSTOCK_EVENT_STATUS]), 1);
    CHECK_INT(atomic_load(&above.seen[PENSTOCK_EVENT_CANCEL]), 0);
    CHECK_INT(atomic_load(&finisher.seen[PENSTOCK_EVENT_CANCEL]), 0);
    if (event == PENSTOCK_EVENT_START) {
      CHECK_STR(below.log, "");
    } else if (event != PENSTOCK_EVENT_STATUS && atomic_load(&below.seen[PENSTOCK_EVENT_CREATE]) &&
               !atomic_load(&below.seen[PENSTOCK_EVENT_STATUS])) {
      CHECK_INT(atomic_load(&below.seen[PENSTOCK_EVENT_CANCEL]), 1);
      CHECK_HAS(below.log, "Xd");
    }
    CHECK_INT(atomic_load(&below.seen[PENSTOCK_EVENT_DESTROY]), atomic_load(&below.seen[PENSTOCK_EVENT_CREATE]));
  }
  penstock_channel_release(channel);
}

/* ---- Injection and demand ---- */

static int32_t inject(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_SEND || event == PENSTOCK_EVENT_HALF_CLOSE) {
    OK(penstock_hop_send(hop, "+", 1));
  }
  return PENSTOCK_NEXT;
}
TEST(interceptor_injects_messages) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "inject", inject, NULL);
  probe_add(&probe, channel, 0);
  penstock_call *call = start_call(channel, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM);
  OK(penstock_call_send(call, "a", 1));
  OK(penstock_call_send(call, "b", 1));
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) {
    CHECK(message_is(reply, "+a+b+"));
    penstock_reply_release(reply);
  }
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* A hop sends a second message in a direction that carries one: the call ends with INTERNAL, before anything is
 * sent. */
TEST(interceptor_injected_messages_count) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "inject", inject, NULL);
  probe_add(&probe, channel, 0);
  penstock_reply *reply = unary(channel, "x");
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_INTERNAL);
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

static int32_t hold_demand(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_DEMAND) {
    CHECK(penstock_hop_count(hop) > 0);
    penstock_hop **kept = self->context;
    if (!*kept) {
      *kept = penstock_hop_retain(hop);
      OK(penstock_hop_set_count(hop, 0));
    }
  }
  return PENSTOCK_NEXT;
}

static void *ask_later(void *pointer) {
  penstock_hop *hop = pointer;
  OK(penstock_hop_demand(hop, 2));
  penstock_hop_release(hop);
  return NULL;
}

TEST(interceptor_lowers_demand) {
  penstock_channel *channel = open_channel();
  probe probe;
  penstock_hop *kept = NULL;
  probe_init_with(&probe, "demand", hold_demand, &kept);
  probe_add(&probe, channel, 0);
  latch finalized = LATCH_INIT;
  penstock_call *call = start_callback_call(channel, UNARY, PENSTOCK_KIND_UNARY, &finalized);
  REQUIRE(call);
  OK(penstock_call_try_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  EVENTUALLY(atomic_load(&probe.seen[PENSTOCK_EVENT_HEADERS]) == 1);
  CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_RECEIVE]), 0);
  REQUIRE(kept != NULL);
  pthread_t thread;
  pthread_create(&thread, NULL, ask_later, kept);
  latch_wait(&finalized, 1);
  pthread_join(thread, NULL);
  CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_RECEIVE]), 1);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}
