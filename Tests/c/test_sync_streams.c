/* sync.h: streams in the function of a synchronous interceptor, and calls that something else ends; law 7. */
#include "syncer.h"

/* ---- Streams: through the first response ---- */

static int32_t edit_stream(syncer *self, penstock_hop *call) {
  const void *data = NULL;
  size_t length = 0;
  bool one = penstock_hop_kind(call) == PENSTOCK_KIND_SERVER_STREAM;
  penstock_result found = hop_bytes(call, &data, &length);
  if (one) {
    CHECK(found == PENSTOCK_OK && is(data, length, "q"));
    OK(penstock_hop_set_bytes(call, "r", 1));
  } else {
    CHECK_RESULT(found, PENSTOCK_E_STATE);
    CHECK_RESULT(penstock_hop_set_bytes(call, "r", 1), PENSTOCK_E_STATE);
  }
  OK(penstock_metadata_set(penstock_request_metadata(penstock_hop_request(call)), "x-headers-a", "1"));
  latch_signal(&self->entered);
  OK(penstock_hop_next(call));
  CHECK(penstock_hop_message(call) == NULL);
  CHECK_RESULT(penstock_hop_set_bytes(call, "x", 1), PENSTOCK_E_STATE);
  penstock_metadata *headers = penstock_hop_metadata(call);
  if (headers) {
    CHECK(penstock_hop_status(call) == NULL);
    CHECK_RESULT(penstock_hop_next(call), PENSTOCK_E_STATE);
    CHECK_HAS(penstock_hop_why(call), "no status");
    CHECK_RESULT(penstock_request_set_method(penstock_hop_request(call), UNARY), PENSTOCK_E_STATE);
    CHECK_RESULT(penstock_metadata_set(penstock_request_metadata(penstock_hop_request(call)), "late", "1"),
                 PENSTOCK_E_STATE);
    OK(penstock_metadata_get(headers, "x-headers-a", 0, &data, &length));
    OK(penstock_metadata_set(headers, "seen", "yes"));
  } else {
    self->code = penstock_status_code(penstock_hop_status(call));
    OK(penstock_status_set_code(penstock_hop_status(call), PENSTOCK_STATUS_ABORTED));
  }
  return PENSTOCK_NEXT;
}

static void run_stream(penstock_channel *channel, const char *method, int32_t kind, const char *options, int32_t code) {
  penstock_call_options *parsed = NULL;
  penstock_call *call = NULL;
  if (options) OK(penstock_call_options_new(options, &parsed, NULL));
  REQUIRE_OK(penstock_channel_call(channel, method, kind, parsed, NULL, &call, NULL));
  penstock_call_options_release(parsed);
  OK(penstock_call_send(call, "q", 1));
  if (kind == PENSTOCK_KIND_BIDI) OK(penstock_call_send(call, "q2", 2));
  OK(penstock_call_half_close(call));
  penstock_message *message = NULL;
  int messages = 0;
  while (penstock_call_receive(call, &message) == PENSTOCK_OK) {
    messages++;
    penstock_message_release(message);
  }
  penstock_reply *reply = NULL;
  OK(penstock_call_wait(call, &reply));
  CHECK_INT(penstock_reply_code(reply), code);
  if (code == 0) {
    const void *value = NULL;
    CHECK_INT(messages, kind == PENSTOCK_KIND_CLIENT_STREAM ? 1 : 2);
    OK(penstock_metadata_get(penstock_reply_headers(reply), "seen", 0, &value, NULL));
  }
  penstock_reply_release(reply);
  penstock_call_release(call);
}

TEST(sync_streams_through_the_first_response) {
  syncer self;
  penstock_channel *channel = bench_open(&self, edit_stream);
  run_stream(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM, "{\"metadata\": {\"x-count\": \"2\"}}", 0);
  run_stream(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, 0);
  CHECK_INT(self.code, -1);
  run_stream(channel, "/no.Such/Method", PENSTOCK_KIND_BIDI, NULL, PENSTOCK_STATUS_ABORTED);
  CHECK_INT(self.code, PENSTOCK_STATUS_UNIMPLEMENTED);
  CHECK_INT(self.runs, 3);
  bench_close(&self, channel);
}

static int32_t edit_client_stream(syncer *self, penstock_hop *call) {
  const void *data = NULL;
  size_t length = 0;
  CHECK(penstock_hop_message(call) == NULL);
  OK(penstock_hop_next(call));
  OK(hop_bytes(call, &data, &length));
  CHECK_INT(penstock_status_code(penstock_hop_status(call)), 0);
  OK(penstock_metadata_set(penstock_hop_metadata(call), "seen", "yes"));
  (void)self;
  return PENSTOCK_NEXT;
}

TEST(sync_sees_the_whole_response_of_a_client_stream) {
  syncer self;
  penstock_channel *channel = bench_open(&self, edit_client_stream);
  run_stream(channel, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM, NULL, 0);
  bench_close(&self, channel);
}

static int32_t wait_to_go(syncer *self, penstock_hop *call) {
  OK(penstock_hop_next(call));
  latch_signal(&self->entered);
  latch_wait(&self->go, 1);
  return PENSTOCK_NEXT;
}

/* The messages of a stream wait behind the headers, and come when the function has returned. */
TEST(sync_holds_a_stream_until_it_returns) {
  syncer self;
  penstock_channel *channel = bench_open(&self, wait_to_go);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_call_send(call, "x", 1));
  latch_wait(&self.entered, 1);
  penstock_reply *reply = NULL;
  CHECK_RESULT(penstock_call_reply(call, &reply), PENSTOCK_E_WOULD_BLOCK);
  latch_signal(&self.go);
  penstock_message *message = NULL;
  OK(penstock_call_receive(call, &message));
  penstock_message_release(message);
  OK(penstock_call_wait(call, &reply));
  CHECK_INT(penstock_reply_code(reply), 0);
  penstock_reply_release(reply);
  penstock_call_release(call);
  bench_close(&self, channel);
}

/* The caller half-closes without a message: the function sees that there is none, and may inject one. */
static int32_t fill_in(syncer *self, penstock_hop *call) {
  CHECK(penstock_hop_message(call) == NULL);
  if (self->text[0]) OK(penstock_hop_set_bytes(call, self->text, strlen(self->text)));
  penstock_hop_next(call);
  return PENSTOCK_NEXT;
}

TEST(sync_fills_in_a_request_that_was_not_sent) {
  static const char *const texts[] = {"filled in", ""};
  for (int index = 0; index < 2; index++) {
    syncer self;
    penstock_channel *channel = bench_open(&self, fill_in);
    self.text = texts[index];
    penstock_call *call = start_call(channel, UNARY, PENSTOCK_KIND_UNARY);
    OK(penstock_call_half_close(call));
    penstock_reply *reply = NULL;
    OK(penstock_call_wait(call, &reply));
    size_t length = 0;
    const void *data = penstock_reply_bytes(reply, &length);
    CHECK_INT(penstock_reply_code(reply), index == 0 ? 0 : PENSTOCK_STATUS_INTERNAL);
    if (index == 0) CHECK(is(data, length, "filled in"));
    penstock_reply_release(reply);
    penstock_call_release(call);
    bench_close(&self, channel);
  }
}

/* ---- Law 7 ---- */

static int32_t return_nonsense(syncer *self, penstock_hop *call) {
  (void)self, (void)call;
  return PENSTOCK_PAUSE;
}
static int32_t next_and_nonsense(syncer *self, penstock_hop *call) {
  (void)self;
  OK(penstock_hop_next(call));
  return -1;
}
static int32_t forget_next(syncer *self, penstock_hop *call) {
  (void)self, (void)call;
  return PENSTOCK_NEXT;
}

TEST(sync_law_7_names_the_interceptor) {
  syncer self;
  penstock_channel *channel = bench_open(&self, return_nonsense);
  check_unary(channel, NULL, PENSTOCK_STATUS_INTERNAL, NULL,
              "interceptor 'sync' returned a value that its function may not return");
  self.hook = next_and_nonsense;
  check_unary(channel, NULL, PENSTOCK_STATUS_INTERNAL, NULL,
              "interceptor 'sync' returned a value that its function may not return");
  check_unary(channel, "{\"metadata\": {\"x-status\": \"5\"}}", PENSTOCK_STATUS_INTERNAL, NULL, "interceptor 'sync'");
  self.hook = forget_next;
  check_unary(channel, NULL, PENSTOCK_STATUS_INTERNAL, NULL,
              "interceptor 'sync' returned without calling next, ending the call or answering it");
  self.hook = next_and_nonsense;
  run_stream(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, PENSTOCK_STATUS_INTERNAL);
  run_stream(channel, BIDI, PENSTOCK_KIND_BIDI, "{\"metadata\": {\"x-status\": \"5\"}}", PENSTOCK_STATUS_INTERNAL);
  self.hook = forget_next;
  run_stream(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM, NULL, PENSTOCK_STATUS_INTERNAL);
  bench_close(&self, channel);
}

/* ---- Calls that something else ends ---- */

/* A call that is half-closed before its thread waits: a worker runs the function. */
static void check_on_worker(penstock_channel *channel, int32_t code) {
  penstock_call *call = start_call(channel, UNARY, PENSTOCK_KIND_UNARY);
  penstock_reply *reply = NULL;
  OK(penstock_call_send(call, "ping", 4));
  OK(penstock_call_half_close(call));
  OK(penstock_call_wait(call, &reply));
  CHECK_INT(penstock_reply_code(reply), code);
  penstock_reply_release(reply);
  penstock_call_release(call);
}

static int32_t late(syncer *self, penstock_hop *call) {
  /* The deadline is set here, because one that passes before a worker takes the call up would end it without a run. */
  OK(penstock_request_set_deadline_ms(penstock_hop_request(call), 100));
  latch_signal(&self->entered);
  latch_wait(&self->go, 1);
  /* The call has ended; the function's copy of the request stays valid. */
  CHECK(request_is(call, "ping"));
  OK(penstock_metadata_set(penstock_request_metadata(penstock_hop_request(call)), "late", "1"));
  OK(penstock_hop_set_bytes(call, "other", 5));
  CHECK_RESULT(penstock_hop_next(call), PENSTOCK_E_GONE);
  CHECK_RESULT(penstock_hop_next(call), PENSTOCK_E_GONE);
  penstock_status *status = penstock_hop_status(call);
  self->code = penstock_status_code(status);
  CHECK_RESULT(penstock_status_set_code(status, 0), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_hop_set_value(call, "k", &self->runs, count_up), PENSTOCK_E_GONE);
  CHECK_RESULT(penstock_hop_end(call, 1, NULL), PENSTOCK_E_GONE);
  return PENSTOCK_NEXT;
}

TEST(sync_deadline_ends_the_call_of_a_function_that_does_not_return) {
  syncer self;
  penstock_channel *channel = bench_open(&self, late);
  check_on_worker(channel, PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  latch_wait(&self.entered, 1);
  CHECK_INT(latch_count(&self.done), 0);
  latch_signal(&self.go);
  latch_wait(&self.done, 1);
  CHECK_INT(self.code, PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  CHECK_INT(self.runs, 2); /* once for the run, and once for the finalizer of the value that was refused */
  bench_close(&self, channel);
}

/* Waits in next. The call is a client stream, so no response comes before its half-close. */
static int32_t wait_in_next(syncer *self, penstock_hop *call) {
  latch_signal(&self->entered);
  CHECK_RESULT(penstock_hop_next(call), PENSTOCK_E_GONE);
  self->code = penstock_status_code(penstock_hop_status(call));
  CHECK_STR(penstock_status_message(penstock_hop_status(call), NULL), self->text);
  CHECK(!penstock_hop_metadata(call));
  return PENSTOCK_NEXT;
}

TEST(sync_cancel_reaches_a_function_in_next) {
  syncer self;
  penstock_channel *channel = bench_open(&self, wait_in_next);
  self.text = "enough";
  penstock_call *call = start_call(channel, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM);
  latch_wait(&self.entered, 1);
  OK(penstock_call_cancel(call, "enough"));
  latch_wait(&self.done, 1);
  CHECK_INT(self.code, PENSTOCK_STATUS_CANCELLED);
  penstock_reply *reply = NULL;
  OK(penstock_call_wait(call, &reply));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_CANCELLED);
  penstock_reply_release(reply);
  penstock_call_release(call);
  bench_close(&self, channel);
}

static int32_t finish_on_send(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_SEND) OK(penstock_hop_end(hop, PENSTOCK_STATUS_ABORTED, "from above"));
  return PENSTOCK_NEXT;
}

TEST(sync_hop_above_ends_a_function_in_next) {
  syncer self;
  probe above;
  penstock_channel *channel = bench_open(&self, wait_in_next);
  self.text = "from above";
  probe_init_with(&above, "above", finish_on_send, NULL);
  probe_add(&above, channel, 10);
  penstock_call *call = start_call(channel, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM);
  latch_wait(&self.entered, 1);
  OK(penstock_call_send(call, "x", 1));
  latch_wait(&self.done, 1);
  CHECK_INT(self.code, PENSTOCK_STATUS_ABORTED);
  penstock_call_release(call);
  bench_close(&self, channel);
  probe_wait_finalized(&above);
}

static int32_t shorten(syncer *self, penstock_hop *call) {
  OK(penstock_request_set_deadline_ms(penstock_hop_request(call), self->code < 0 ? 30 : 60000));
  if (self->code < 0) latch_wait(&self->go, 1);
  penstock_hop_next(call);
  return PENSTOCK_NEXT;
}

/* A new deadline applies at once, even before the function goes on. */
TEST(sync_moves_the_deadline) {
  syncer self;
  penstock_channel *channel = bench_open(&self, shorten);
  check_on_worker(channel, PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  latch_signal(&self.go);
  latch_wait(&self.done, 1);
  self.code = 0;
  check_unary(channel, "{\"deadline_ms\": 300, \"metadata\": {\"x-delay-ms\": \"600\"}}", 0, "ping", NULL);
  bench_close(&self, channel);
}
