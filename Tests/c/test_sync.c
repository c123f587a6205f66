/* sync.h: what the function of a synchronous interceptor sees, changes and answers in unary calls. */
#include "syncer.h"

/* ---- Unary: the request and the response ---- */

static int32_t change_all(syncer *self, penstock_intercepted_call *call) {
  (void)self;
  const void *data = NULL;
  size_t length = 0;
  CHECK(penstock_intercepted_id(call) > 0);
  CHECK_INT(penstock_intercepted_kind(call), PENSTOCK_KIND_UNARY);
  CHECK_INT(penstock_intercepted_attempt(call), 1);
  CHECK_STR(penstock_intercepted_target(call), peer_address());
  CHECK_STR(penstock_intercepted_method(call), "/nobody.Has/This");
  CHECK_RESULT(penstock_intercepted_set_method(call, "no method"), PENSTOCK_E_INVALID_ARGUMENT);
  OK(penstock_intercepted_set_method(call, UNARY));
  CHECK_STR(penstock_intercepted_method(call), UNARY);
  CHECK_STR(penstock_intercepted_authority(call), peer_address());
  CHECK_RESULT(penstock_intercepted_set_authority(call, "a b"), PENSTOCK_E_INVALID_ARGUMENT);
  OK(penstock_intercepted_set_authority(call, "example.com"));
  CHECK_INT(penstock_intercepted_deadline_ms(call), -1);
  OK(penstock_intercepted_set_deadline_ms(call, 60000));
  CHECK(penstock_intercepted_deadline_ms(call) > 50000);
  penstock_metadata *metadata = penstock_intercepted_metadata(call);
  OK(penstock_metadata_set(metadata, "x-headers-a", "1"));
  OK(penstock_metadata_set(metadata, "x-trailers-b", "2"));
  CHECK(request_is(call, "ping"));
  OK(penstock_intercepted_set_request(call, "pong", 4));
  CHECK(request_is(call, "pong"));
  CHECK(!penstock_intercepted_headers(call) && !penstock_intercepted_status(call));
  CHECK_RESULT(penstock_intercepted_response(call, &data, &length), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_intercepted_set_response(call, "x", 1), PENSTOCK_E_STATE);

  OK(penstock_intercepted_next(call));
  CHECK_RESULT(penstock_intercepted_next(call), PENSTOCK_E_ALREADY);
  CHECK_RESULT(penstock_intercepted_request(call, &data, &length), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_intercepted_set_request(call, "x", 1), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_intercepted_set_method(call, UNARY), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_intercepted_set_authority(call, "a"), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_intercepted_set_deadline_ms(call, 1), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_intercepted_answer(call, NULL, NULL), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_intercepted_answer_message(call, "x", 1), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_metadata_set(metadata, "late", "1"), PENSTOCK_E_STATE);
  OK(penstock_metadata_get(metadata, "x-headers-a", 0, &data, &length));
  CHECK(response_is(call, "pong"));
  OK(penstock_metadata_get(penstock_intercepted_headers(call), "x-headers-a", 0, &data, &length));
  penstock_status *status = penstock_intercepted_status(call);
  CHECK_INT(penstock_status_code(status), 0);
  OK(penstock_metadata_get(penstock_status_trailers(status), "x-trailers-b", 0, &data, &length));
  OK(penstock_intercepted_set_response(call, "changed", 7));
  CHECK(response_is(call, "changed"));
  OK(penstock_metadata_set(penstock_intercepted_headers(call), "seen", "yes"));
  OK(penstock_metadata_set(penstock_status_trailers(status), "seen-too", "yes"));
  OK(penstock_status_set_message(status, "and the message"));
  return PENSTOCK_NEXT;
}

TEST(sync_sees_and_changes_all_of_a_unary_call) {
  syncer self;
  penstock_channel *channel = bench_open(&self, change_all);
  penstock_reply *reply = NULL;
  OK(penstock_channel_unary(channel, "/nobody.Has/This", "ping", 4, NULL, &reply, NULL));
  REQUIRE(reply);
  size_t length = 0;
  const void *value = NULL;
  const char *data = penstock_reply_message(reply, &length);
  CHECK_INT(penstock_reply_code(reply), 0);
  CHECK(is(data, length, "changed"));
  OK(penstock_metadata_get(penstock_reply_headers(reply), "seen", 0, &value, NULL));
  OK(penstock_metadata_get(penstock_reply_trailers(reply), "seen-too", 0, &value, NULL));
  CHECK_HAS(penstock_reply_status_json(reply), "and the message");
  penstock_reply_release(reply);
  CHECK_INT(self.runs, 1);
  bench_close(&self, channel);
}

static int32_t repair(syncer *self, penstock_intercepted_call *call) {
  const void *data = NULL;
  size_t length = 0;
  OK(penstock_intercepted_next(call));
  penstock_status *status = penstock_intercepted_status(call);
  self->code = penstock_status_code(status);
  CHECK_RESULT(penstock_intercepted_response(call, &data, &length), PENSTOCK_E_NOT_FOUND);
  OK(penstock_status_set_code(status, 0));
  OK(penstock_intercepted_set_response(call, "default", 7));
  return PENSTOCK_NEXT;
}

TEST(sync_turns_an_error_into_a_success) {
  syncer self;
  penstock_channel *channel = bench_open(&self, repair);
  check_unary(channel, "{\"metadata\": {\"x-status\": \"5\"}}", 0, "default", NULL);
  CHECK_INT(self.code, PENSTOCK_STATUS_NOT_FOUND);
  bench_close(&self, channel);
}

static int32_t spoil(syncer *self, penstock_intercepted_call *call) {
  (void)self;
  OK(penstock_intercepted_next(call));
  OK(penstock_status_set_code(penstock_intercepted_status(call), PENSTOCK_STATUS_DATA_LOSS));
  OK(penstock_status_add_detail(penstock_intercepted_status(call), "type.googleapis.com/a.B", "x", 1));
  return PENSTOCK_NEXT;
}

TEST(sync_turns_a_success_into_an_error) {
  syncer self;
  penstock_channel *channel = bench_open(&self, spoil);
  check_unary(channel, NULL, PENSTOCK_STATUS_DATA_LOSS, NULL, "a.B");
  bench_close(&self, channel);
}

static int32_t large(syncer *self, penstock_intercepted_call *call) {
  const void *data = NULL;
  size_t length = 0;
  (void)self;
  OK(penstock_intercepted_request(call, &data, &length));
  CHECK_INT(length, 1 << 20);
  OK(penstock_intercepted_next(call));
  OK(penstock_intercepted_response(call, &data, &length));
  CHECK_INT(length, 1 << 20);
  return PENSTOCK_NEXT;
}

TEST(sync_sees_large_messages) {
  syncer self;
  penstock_channel *channel = bench_open(&self, large);
  char *request = calloc(1, 1 << 20);
  penstock_reply *reply = NULL;
  size_t length = 0;
  OK(penstock_channel_unary(channel, UNARY, request, 1 << 20, NULL, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), 0);
  penstock_reply_message(reply, &length);
  CHECK_INT(length, 1 << 20);
  penstock_reply_release(reply);
  free(request);
  bench_close(&self, channel);
}

/* ---- Ending and answering ---- */

static int32_t cancel_before(syncer *self, penstock_intercepted_call *call) {
  CHECK_RESULT(penstock_intercepted_cancel(call, 17, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  OK(penstock_intercepted_cancel(call, PENSTOCK_STATUS_PERMISSION_DENIED, "not you"));
  CHECK_RESULT(penstock_intercepted_cancel(call, 1, NULL), PENSTOCK_E_ALREADY);
  CHECK_RESULT(penstock_intercepted_answer(call, NULL, NULL), PENSTOCK_E_ALREADY);
  CHECK_RESULT(penstock_intercepted_next(call), PENSTOCK_E_STATE);
  /* What it returns does not matter any more. */
  (void)self;
  return 77;
}

static int32_t cancel_after(syncer *self, penstock_intercepted_call *call) {
  penstock_status *status = NULL;
  OK(penstock_status_new(PENSTOCK_STATUS_ABORTED, "on second thoughts", &status));
  OK(penstock_metadata_set(penstock_status_trailers(status), "why", "because"));
  OK(penstock_intercepted_next(call));
  OK(penstock_intercepted_cancel_with(call, status));
  CHECK_RESULT(penstock_intercepted_set_response(call, "x", 1), PENSTOCK_E_STATE);
  penstock_status_release(status);
  (void)self;
  return PENSTOCK_NEXT;
}

TEST(sync_ends_a_call) {
  syncer self, below;
  penstock_channel *channel = bench_open(&self, cancel_before);
  syncer_init(&below, repair);
  syncer_add(&below, channel, -1);
  check_unary(channel, NULL, PENSTOCK_STATUS_PERMISSION_DENIED, NULL, "not you");
  CHECK_INT(below.runs, 0);
  self.hook = cancel_after;
  below.hook = cancel_after;
  check_unary(channel, NULL, PENSTOCK_STATUS_ABORTED, NULL, "because");
  CHECK_INT(below.runs, 1);
  bench_close(&self, channel);
  EVENTUALLY(atomic_load(&below.finalized) == 1);
}

static int32_t answer(syncer *self, penstock_intercepted_call *call) {
  bool one = penstock_intercepted_kind(call) == PENSTOCK_KIND_UNARY ||
             penstock_intercepted_kind(call) == PENSTOCK_KIND_CLIENT_STREAM;
  OK(penstock_intercepted_answer_message(call, "stub", 4));
  CHECK_RESULT(penstock_intercepted_answer_message(call, "more", 4), one ? PENSTOCK_E_STATE : PENSTOCK_OK);
  penstock_metadata *headers = NULL;
  OK(penstock_metadata_new(&headers));
  OK(penstock_metadata_set(headers, "from", "stub"));
  OK(penstock_intercepted_answer(call, headers, NULL));
  CHECK_RESULT(penstock_intercepted_answer_message(call, "late", 4), PENSTOCK_E_STATE);
  penstock_metadata_release(headers);
  (void)self;
  return PENSTOCK_NEXT;
}

static int32_t refuse(syncer *self, penstock_intercepted_call *call) {
  penstock_status *status = NULL;
  OK(penstock_status_new(PENSTOCK_STATUS_UNAVAILABLE, "stubbed", &status));
  OK(penstock_intercepted_answer(call, NULL, status));
  penstock_status_release(status);
  (void)self;
  return PENSTOCK_NEXT;
}

TEST(sync_answers_a_unary_call) {
  syncer self;
  penstock_channel *channel = bench_open(&self, answer);
  check_unary(channel, NULL, 0, "stub", NULL);
  self.hook = refuse;
  check_unary(channel, NULL, PENSTOCK_STATUS_UNAVAILABLE, NULL, "stubbed");
  bench_close(&self, channel);
}

/* Nothing is registered where nobody listens: the answer is the function's. */
TEST(sync_answers_every_kind_without_a_server) {
  static const int32_t kinds[] = {PENSTOCK_KIND_UNARY, PENSTOCK_KIND_CLIENT_STREAM, PENSTOCK_KIND_SERVER_STREAM,
                                  PENSTOCK_KIND_BIDI};
  syncer self;
  penstock_channel *channel = NULL;
  REQUIRE_OK(penstock_channel_new(dead_address(), "{\"tls\": false}", &channel, NULL));
  syncer_init(&self, answer);
  syncer_add(&self, channel, 0);
  for (int index = 0; index < 4; index++) {
    penstock_call *call = start_call(channel, "/a.B/C", kinds[index]);
    REQUIRE(call);
    /* A call that sends many may have its answer already. */
    penstock_call_send(call, "q", 1);
    penstock_call_half_close(call);
    penstock_message *message = NULL;
    int messages = 0;
    while (penstock_call_receive(call, &message) == PENSTOCK_OK) {
      messages++;
      penstock_message_release(message);
    }
    CHECK_INT(messages, index < 2 ? 1 : 2);
    penstock_reply *reply = NULL;
    const void *value = NULL;
    OK(penstock_call_wait(call, &reply));
    CHECK_INT(penstock_reply_code(reply), 0);
    OK(penstock_metadata_get(penstock_reply_headers(reply), "from", 0, &value, NULL));
    penstock_reply_release(reply);
    penstock_call_release(call);
  }
  bench_close(&self, channel);
}
