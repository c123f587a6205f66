/* sync.h: unary calls that the function of a synchronous interceptor sees, changes and answers. */
#include "syncer.h"

/* ---- Unary: the request and the response ---- */

static int32_t change_all(syncer *self, penstock_hop *call) {
  (void)self;
  const void *data = NULL;
  size_t length = 0;
  CHECK(penstock_hop_call_id(call) > 0);
  CHECK_INT(penstock_hop_kind(call), PENSTOCK_KIND_UNARY);
  CHECK_INT(penstock_hop_attempt(call), 1);
  CHECK_STR(penstock_hop_target(call), peer_address());
  CHECK_STR(penstock_request_method(penstock_hop_request(call)), "/nobody.Has/This");
  CHECK_RESULT(penstock_request_set_method(penstock_hop_request(call), "no method"), PENSTOCK_E_INVALID_ARGUMENT);
  OK(penstock_request_set_method(penstock_hop_request(call), UNARY));
  CHECK_STR(penstock_request_method(penstock_hop_request(call)), UNARY);
  CHECK_STR(penstock_request_authority(penstock_hop_request(call)), peer_address());
  CHECK_RESULT(penstock_request_set_authority(penstock_hop_request(call), "a b"), PENSTOCK_E_INVALID_ARGUMENT);
  OK(penstock_request_set_authority(penstock_hop_request(call), "example.com"));
  CHECK_INT(request_deadline_ms(penstock_hop_request(call)), -1);
  OK(penstock_request_set_deadline_ms(penstock_hop_request(call), 60000));
  CHECK(request_deadline_ms(penstock_hop_request(call)) > 50000);
  penstock_metadata *metadata = penstock_request_metadata(penstock_hop_request(call));
  OK(penstock_metadata_set(metadata, "x-headers-a", "1"));
  OK(penstock_metadata_set(metadata, "x-trailers-b", "2"));
  CHECK(request_is(call, "ping"));
  OK(penstock_hop_set_bytes(call, "pong", 4));
  CHECK(request_is(call, "pong"));
  CHECK(penstock_hop_metadata(call) == metadata && !penstock_hop_status(call));
  CHECK_INT(penstock_hop_event(call), PENSTOCK_EVENT_START);
  CHECK_RESULT(penstock_hop_resolve(call, PENSTOCK_NEXT), PENSTOCK_E_STATE);

  OK(penstock_hop_next(call));
  CHECK_INT(penstock_hop_event(call), PENSTOCK_EVENT_HEADERS);
  CHECK(penstock_hop_metadata(call) != metadata && penstock_request_metadata(penstock_hop_request(call)) == metadata);
  CHECK_STR(penstock_request_method(penstock_hop_request(call)), UNARY);
  CHECK_RESULT(answer_hop(call, NULL), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_hop_deliver(call, "x", 1), PENSTOCK_E_STATE);
  OK(penstock_metadata_get(metadata, "x-headers-a", 0, &data, &length));
  CHECK(response_is(call, "pong"));
  OK(penstock_metadata_get(penstock_hop_metadata(call), "x-headers-a", 0, &data, &length));
  penstock_status *status = penstock_hop_status(call);
  CHECK_INT(penstock_status_code(status), 0);
  OK(penstock_metadata_get(penstock_status_trailers(status), "x-trailers-b", 0, &data, &length));
  OK(penstock_hop_set_bytes(call, "changed", 7));
  CHECK(response_is(call, "changed"));
  OK(penstock_metadata_set(penstock_hop_metadata(call), "seen", "yes"));
  OK(penstock_metadata_set(penstock_status_trailers(status), "seen-too", "yes"));
  OK(penstock_status_set_message(status, "and the message", 15));
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
  const char *data = penstock_reply_bytes(reply, &length);
  CHECK_INT(penstock_reply_code(reply), 0);
  CHECK(is(data, length, "changed"));
  OK(penstock_metadata_get(penstock_reply_headers(reply), "seen", 0, &value, NULL));
  OK(penstock_metadata_get(penstock_reply_trailers(reply), "seen-too", 0, &value, NULL));
  CHECK_HAS(penstock_reply_status_json(reply), "and the message");
  penstock_reply_release(reply);
  CHECK_INT(self.runs, 1);
  bench_close(&self, channel);
}

static int32_t repair(syncer *self, penstock_hop *call) {
  OK(penstock_hop_next(call));
  penstock_status *status = penstock_hop_status(call);
  self->code = penstock_status_code(status);
  CHECK(penstock_hop_message(call) == NULL);
  OK(penstock_status_set_code(status, 0));
  OK(penstock_hop_set_bytes(call, "default", 7));
  return PENSTOCK_NEXT;
}

TEST(sync_turns_an_error_into_a_success) {
  syncer self;
  penstock_channel *channel = bench_open(&self, repair);
  check_unary(channel, "{\"metadata\": {\"x-status\": \"5\"}}", 0, "default", NULL);
  CHECK_INT(self.code, PENSTOCK_STATUS_NOT_FOUND);
  bench_close(&self, channel);
}

static int32_t spoil(syncer *self, penstock_hop *call) {
  (void)self;
  OK(penstock_hop_next(call));
  OK(penstock_status_set_code(penstock_hop_status(call), PENSTOCK_STATUS_DATA_LOSS));
  OK(penstock_status_add_detail(penstock_hop_status(call), "type.googleapis.com/a.B", "x", 1));
  return PENSTOCK_NEXT;
}

TEST(sync_turns_a_success_into_an_error) {
  syncer self;
  penstock_channel *channel = bench_open(&self, spoil);
  check_unary(channel, NULL, PENSTOCK_STATUS_DATA_LOSS, NULL, "a.B");
  bench_close(&self, channel);
}

static int32_t large(syncer *self, penstock_hop *call) {
  const void *data = NULL;
  size_t length = 0;
  (void)self;
  OK(hop_bytes(call, &data, &length));
  CHECK_INT(length, 1 << 20);
  OK(penstock_hop_next(call));
  OK(hop_bytes(call, &data, &length));
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
  penstock_reply_bytes(reply, &length);
  CHECK_INT(length, 1 << 20);
  penstock_reply_release(reply);
  free(request);
  bench_close(&self, channel);
}

/* ---- Ending and answering ---- */

static int32_t cancel_before(syncer *self, penstock_hop *call) {
  CHECK_RESULT(penstock_hop_end(call, 17, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  OK(penstock_hop_end(call, PENSTOCK_STATUS_PERMISSION_DENIED, "not you"));
  CHECK_RESULT(penstock_hop_end(call, 1, NULL), PENSTOCK_E_ALREADY);
  CHECK_RESULT(answer_hop(call, NULL), PENSTOCK_E_ALREADY);
  CHECK_RESULT(penstock_hop_next(call), PENSTOCK_E_STATE);
  /* After penstock_hop_end the return value is ignored. */
  (void)self;
  return 77;
}

static int32_t cancel_after(syncer *self, penstock_hop *call) {
  penstock_status *status = NULL;
  OK(penstock_status_new(PENSTOCK_STATUS_ABORTED, "on second thoughts", &status));
  OK(penstock_metadata_set(penstock_status_trailers(status), "why", "because"));
  OK(penstock_hop_next(call));
  OK(penstock_hop_end_with(call, status));
  CHECK_RESULT(penstock_hop_set_bytes(call, "x", 1), PENSTOCK_E_STATE);
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

static int32_t answer(syncer *self, penstock_hop *call) {
  bool one = penstock_hop_kind(call) == PENSTOCK_KIND_UNARY || penstock_hop_kind(call) == PENSTOCK_KIND_CLIENT_STREAM;
  penstock_metadata *headers = NULL;
  OK(penstock_metadata_new(&headers));
  OK(penstock_metadata_set(headers, "from", "stub"));
  OK(penstock_hop_deliver_headers(call, headers));
  CHECK_RESULT(penstock_hop_deliver_headers(call, headers), PENSTOCK_E_ALREADY);
  OK(penstock_hop_deliver(call, "stub", 4));
  CHECK_RESULT(penstock_hop_deliver(call, "more", 4), one ? PENSTOCK_E_STATE : PENSTOCK_OK);
  OK(answer_hop(call, NULL));
  CHECK_RESULT(penstock_hop_deliver(call, "late", 4), PENSTOCK_E_STATE);
  penstock_metadata_release(headers);
  (void)self;
  return PENSTOCK_NEXT;
}

static int32_t refuse(syncer *self, penstock_hop *call) {
  penstock_status *status = NULL;
  OK(penstock_status_new(PENSTOCK_STATUS_UNAVAILABLE, "stubbed", &status));
  OK(answer_hop(call, status));
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

/* No server listens, so the answer comes from the function. */
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
    /* A call that sends several messages may already have its answer, so sending may fail. */
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
