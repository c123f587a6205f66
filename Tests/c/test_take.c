/* interceptor.h: TAKE: a hop that answers instead of the server. */
#include "unary.h"

typedef struct stub {
  penstock_hop *hop;
  latch taken;
  pthread_t thread;
  int messages;
} stub;

static void *answer(void *pointer) {
  stub *stub = pointer;
  latch_wait(&stub->taken, 1);
  penstock_metadata *headers = NULL;
  OK(penstock_metadata_new(&headers));
  OK(penstock_metadata_set(headers, "x-from", "cache"));
  OK(penstock_hop_deliver_headers(stub->hop, headers));
  CHECK(penstock_hop_deliver_headers(stub->hop, headers) != PENSTOCK_OK);
  penstock_metadata_release(headers);
  for (int i = 0; i < stub->messages; i++) {
    penstock_result result;
    int64_t until = test_now_ms() + test_patience_ms();
    while ((result = penstock_hop_deliver(stub->hop, "cached", 6)) == PENSTOCK_E_WOULD_BLOCK && test_now_ms() < until) {
      test_pause();
    }
    OK(result);
  }
  penstock_status *status = NULL;
  OK(penstock_status_new(PENSTOCK_STATUS_OK, NULL, &status));
  OK(penstock_metadata_set(penstock_status_trailers(status), "x-age", "3"));
  OK(penstock_hop_deliver_status(stub->hop, status));
  penstock_result again = penstock_hop_deliver_status(stub->hop, status);
  CHECK(again == PENSTOCK_E_GONE || again == PENSTOCK_E_STATE || again == PENSTOCK_E_ALREADY);
  again = penstock_hop_deliver(stub->hop, "late", 4);
  if (!CHECK(again == PENSTOCK_E_GONE || again == PENSTOCK_E_STATE)) printf("  %s\n", penstock_result_name(again));
  penstock_status_release(status);
  penstock_hop_release(stub->hop);
  return NULL;
}

static int32_t take(probe *self, penstock_hop *hop, int32_t event) {
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  stub *stub = self->context;
  stub->hop = penstock_hop_retain(hop);
  latch_signal(&stub->taken);
  return PENSTOCK_TAKE;
}

static void check_stub(penstock_runtime *runtime, int32_t kind, const char *method, int messages) {
  penstock_channel *channel = open_channel_on(runtime);
  stub stub = {NULL, LATCH_INIT, 0, messages};
  probe above, taker, below;
  probe_init(&above, "above");
  probe_init(&taker, "taker");
  probe_init(&below, "below");
  taker.hook = take;
  taker.context = &stub;
  probe_add(&above, channel, 3);
  probe_add(&taker, channel, 2);
  probe_add(&below, channel, 1);
  pthread_create(&stub.thread, NULL, answer, &stub);
  penstock_call *call = start_call(channel, method, kind);
  /* The call may have its answer and be over before it sends. */
  penstock_result sent = penstock_call_send(call, "q", 1);
  if (sent != PENSTOCK_E_GONE) OK(sent);
  int got = 0;
  if (kind == PENSTOCK_KIND_BIDI) {
    penstock_message *message = NULL;
    while (penstock_call_receive(call, &message) == PENSTOCK_OK) {
      CHECK_INT(message_length(message), 6);
      penstock_message_release(message);
      got++;
    }
    CHECK_INT(got, messages);
  }
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) {
    if (!CHECK_INT(penstock_reply_code(reply), 0)) printf("  %s\n", penstock_reply_status_json(reply));
    if (kind == PENSTOCK_KIND_UNARY) CHECK(message_is(reply, "cached"));
    const void *value = NULL;
    OK(penstock_metadata_get(penstock_reply_headers(reply), "x-from", 0, &value, NULL));
    OK(penstock_metadata_get(penstock_reply_trailers(reply), "x-age", 0, &value, NULL));
    penstock_reply_release(reply);
  }
  pthread_join(stub.thread, NULL);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&above);
  probe_wait_finalized(&taker);
  probe_wait_finalized(&below);
  CHECK_STR(below.log, "");
  CHECK_INT(atomic_load(&above.seen[PENSTOCK_EVENT_STATUS]), 1);
  CHECK_INT(atomic_load(&taker.seen[PENSTOCK_EVENT_STATUS]), 0);
  CHECK_INT(atomic_load(&taker.seen[PENSTOCK_EVENT_CANCEL]), 0);
}

TEST(interceptor_take_unary_from_another_thread) {
  for (int i = 0; i < test_rounds(20); i++) check_stub(NULL, PENSTOCK_KIND_UNARY, UNARY, 1);
}
TEST(interceptor_take_bidi_from_another_thread) {
  for (int i = 0; i < test_rounds(20); i++) check_stub(NULL, PENSTOCK_KIND_BIDI, BIDI, 5);
}
TEST(interceptor_take_on_a_host_runtime) {
  penstock_runtime *runtime = new_runtime("{\"mode\": \"host\"}");
  check_stub(runtime, PENSTOCK_KIND_UNARY, UNARY, 1);
  check_stub(runtime, PENSTOCK_KIND_BIDI, BIDI, 3);
  penstock_runtime_release(runtime);
}

static int32_t take_and_answer(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_START) return PENSTOCK_TAKE;
  if (event == PENSTOCK_EVENT_HALF_CLOSE) {
    OK(penstock_hop_deliver_headers(hop, NULL));
    OK(penstock_hop_deliver(hop, "stub", 4));
    penstock_status *status = NULL;
    OK(penstock_status_new(0, NULL, &status));
    OK(penstock_hop_deliver_status(hop, status));
    penstock_status_release(status);
  }
  return PENSTOCK_NEXT;
}

TEST(interceptor_take_and_answer_in_callbacks) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "stub", take_and_answer, NULL);
  probe_add(&probe, channel, 0);
  penstock_reply *reply = unary(channel, "x");
  CHECK_INT(penstock_reply_code(reply), 0);
  CHECK(message_is(reply, "stub"));
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* A hop that answers with three messages and OK. If a message is refused, the hop delivers OK at once, or, if it
 * `waits`, delivers the message again when there is demand. */
typedef struct server_stub {
  size_t size;
  bool waits;
  int delivered;
} server_stub;
static void answer_as_asked(server_stub *plan, penstock_hop *hop) {
  static const char data[40000];
  while (plan->delivered < 3 && penstock_hop_deliver(hop, data, plan->size) == PENSTOCK_OK) plan->delivered++;
  if (plan->waits && plan->delivered < 3) return;
  penstock_status *status = NULL;
  OK(penstock_status_new(PENSTOCK_STATUS_OK, NULL, &status));
  OK(penstock_hop_deliver_status(hop, status));
  penstock_status_release(status);
}
static int32_t answer_stream(probe *self, penstock_hop *hop, int32_t event) {
  server_stub *plan = self->context;
  if (event == PENSTOCK_EVENT_START) return PENSTOCK_TAKE;
  if (event == PENSTOCK_EVENT_HALF_CLOSE || (event == PENSTOCK_EVENT_DEMAND && plan->waits && plan->delivered < 3)) {
    answer_as_asked(plan, hop);
  }
  return PENSTOCK_NEXT;
}

static void expect_stream_from_stub(size_t size, bool waits, int32_t code) {
  server_stub plan = {size, waits, 0};
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "stub", answer_stream, &plan);
  probe_add(&probe, channel, 0);
  penstock_call *call = start_call(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM);
  REQUIRE(call != NULL);
  OK(penstock_call_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  penstock_message *message = NULL;
  int count = 0;
  while (penstock_call_receive(call, &message) == PENSTOCK_OK) {
    penstock_message_release(message);
    count++;
  }
  CHECK_INT(count, plan.delivered);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_call_wait(call, &reply));
  CHECK_INT(penstock_reply_code(reply), code);
  if (code)
    CHECK_HAS(penstock_status_message(penstock_reply_status(reply), NULL),
              "interceptor 'stub' ended its answer with OK");
  if (!code) CHECK_INT(count, 3);
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}
/* A cache answers with a message over hold_bytes, in on_start or when it has seen the request: one message always has
 * room. */
static int32_t answer_large(probe *self, penstock_hop *hop, int32_t event) {
  static const char large[200000];
  bool at_start = self->context == NULL;
  if (event != (at_start ? PENSTOCK_EVENT_START : PENSTOCK_EVENT_SEND))
    return event == PENSTOCK_EVENT_START
               ? ((*(penstock_ticket *)self->context = penstock_hop_ticket(hop)), PENSTOCK_HOLD)
               : PENSTOCK_NEXT;
  penstock_status *ok = NULL;
  if (!at_start) OK(penstock_ticket_resolve(*(penstock_ticket *)self->context, PENSTOCK_TAKE));
  OK(penstock_hop_deliver(hop, large, sizeof(large)));
  OK(penstock_status_new(PENSTOCK_STATUS_OK, NULL, &ok));
  OK(penstock_hop_deliver_status(hop, ok));
  penstock_status_release(ok);
  return at_start ? PENSTOCK_TAKE : PENSTOCK_NEXT;
}
TEST(interceptor_take_has_room_for_one_large_message) {
  for (int held = 0; held < 2; held++) {
    penstock_channel *channel = open_channel();
    penstock_ticket start = 0;
    probe probe;
    probe_init_with(&probe, "cache", answer_large, held ? &start : NULL);
    probe_add(&probe, channel, 0);
    penstock_reply *reply = NULL;
    REQUIRE_OK(penstock_channel_unary(channel, UNARY, "x", 1, NULL, &reply, NULL));
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
    size_t length = 0;
    penstock_reply_bytes(reply, &length);
    CHECK_INT(length, 200000);
    penstock_reply_release(reply);
    penstock_channel_release(channel);
    probe_wait_finalized(&probe);
  }
}

/* Messages beyond hold_bytes are refused before the caller asks for them. */
TEST(interceptor_take_refused_messages_are_no_ok) { expect_stream_from_stub(40000, false, PENSTOCK_STATUS_INTERNAL); }
TEST(interceptor_take_refused_messages_may_be_delivered_again) {
  expect_stream_from_stub(40000, true, PENSTOCK_STATUS_OK);
}
TEST(interceptor_take_messages_wait_until_they_are_asked_for) {
  expect_stream_from_stub(10000, false, PENSTOCK_STATUS_OK);
  expect_stream_from_stub(0, false, PENSTOCK_STATUS_OK);
}

/* Messages that the caller has read make room for more: in all, the hop delivers far more than hold_bytes. */
static int32_t keep_taken(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_START) *(penstock_hop * _Atomic *)self->context = penstock_hop_retain(hop);
  return event == PENSTOCK_EVENT_START ? PENSTOCK_TAKE : PENSTOCK_NEXT;
}
TEST(interceptor_take_has_room_again_for_what_was_read) {
  static const char data[40000];
  penstock_channel *channel = open_channel();
  penstock_hop *_Atomic hop = NULL;
  probe probe;
  probe_init_with(&probe, "stub", keep_taken, &hop);
  probe_add(&probe, channel, 0);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  EVENTUALLY(hop != NULL);
  for (int i = 0; i < 10; i++) {
    EVENTUALLY(penstock_hop_deliver(hop, data, sizeof(data)) == PENSTOCK_OK);
    CHECK_RESULT(penstock_hop_deliver(hop, data, sizeof(data)), PENSTOCK_E_WOULD_BLOCK);
    penstock_message *message = NULL;
    OK(penstock_call_receive(call, &message));
    penstock_message_release(message);
  }
  OK(penstock_hop_end(hop, PENSTOCK_STATUS_ABORTED, NULL));
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) penstock_reply_release(reply);
  penstock_hop_release(hop);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* A hop has answered on_start with TAKE, so that it answers the call itself. It still hears of a cancel and a deadline. */
static int32_t take_and_wait(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop;
  if (event == PENSTOCK_EVENT_CANCEL) latch_signal(self->context);
  return event == PENSTOCK_EVENT_START ? PENSTOCK_TAKE : PENSTOCK_NEXT;
}
TEST(interceptor_take_is_cancelled) {
  penstock_channel *channel = open_channel();
  probe probe;
  latch cancelled = LATCH_INIT;
  probe_init_with(&probe, "stub", take_and_wait, &cancelled);
  probe_add(&probe, channel, 0);
  penstock_call_options *options = NULL;
  REQUIRE_OK(penstock_call_options_new("{\"deadline_ms\": 30}", &options, NULL));
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  penstock_reply_release(reply);
  latch_wait(&cancelled, 1);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_call_cancel(call, "stop"));
  latch_wait(&cancelled, 2);
  penstock_call_release(call);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}
