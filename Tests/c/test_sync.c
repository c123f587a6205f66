/* sync.h: what the function of a synchronous interceptor sees and changes, in each kind of call; laws 2, 4, 6 and 7. */
#include "test.h"

typedef struct syncer {
  int32_t (*hook)(struct syncer *self, penstock_intercepted_call *call);
  const char *text;
  atomic_int runs, finalized, code;
  latch entered, go, done;
} syncer;

static int32_t intercept(penstock_intercepted_call *call, void *user_data) {
  syncer *self = user_data;
  atomic_fetch_add(&self->runs, 1);
  int32_t verdict = self->hook(self, call);
  latch_signal(&self->done);
  return verdict;
}

static void syncer_finalized(void *user_data) { atomic_fetch_add(&((syncer *)user_data)->finalized, 1); }

static void syncer_init(syncer *self, int32_t (*hook)(syncer *, penstock_intercepted_call *)) {
  memset(self, 0, sizeof(*self));
  self->hook = hook;
  self->text = "";
  self->code = -1;
  self->entered = self->go = self->done = (latch)LATCH_INIT;
}

static penstock_interceptor syncer_table(syncer *self, const char *name) {
  penstock_sync_interceptor sync = PENSTOCK_SYNC_INTERCEPTOR_INIT;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  sync.name = name;
  sync.user_data = self;
  sync.finalizer = syncer_finalized;
  sync.intercept = intercept;
  OK(penstock_sync_interceptor_table(&sync, &table, NULL));
  return table;
}

static penstock_interceptor_id syncer_add(syncer *self, penstock_channel *channel, int32_t priority) {
  penstock_interceptor table = syncer_table(self, "sync");
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, &table, priority, &id, NULL));
  return id;
}

/* A channel with one synchronous interceptor; closed by `bench_close`, which checks that it is finalized once. */
static penstock_channel *bench_open(syncer *self, int32_t (*hook)(syncer *, penstock_intercepted_call *)) {
  penstock_channel *channel = open_channel();
  syncer_init(self, hook);
  syncer_add(self, channel, 0);
  return channel;
}

static void bench_close(syncer *self, penstock_channel *channel) {
  penstock_channel_close(channel);
  penstock_channel_release(channel);
  EVENTUALLY(atomic_load(&self->finalized) == 1);
}

static penstock_reply *unary(penstock_channel *channel, const char *request, const char *options) {
  penstock_call_options *parsed = NULL;
  if (options) OK(penstock_call_options_new(options, &parsed, NULL));
  penstock_reply *reply = NULL;
  OK(penstock_channel_unary(channel, UNARY, request, strlen(request), parsed, &reply, NULL));
  penstock_call_options_release(parsed);
  return reply;
}

static void check_unary(penstock_channel *channel, const char *options, int32_t code, const char *message,
                        const char *text) {
  penstock_reply *reply = unary(channel, "ping", options);
  REQUIRE(reply);
  size_t length = 0;
  const char *data = penstock_reply_message(reply, &length);
  if (!CHECK_INT(penstock_reply_code(reply), code)) printf("  %s\n", penstock_reply_status_json(reply));
  if (message) CHECK(data && length == strlen(message) && memcmp(data, message, length) == 0);
  if (text) CHECK_HAS(penstock_reply_status_json(reply), text);
  penstock_reply_release(reply);
}

static bool is(const void *data, size_t length, const char *text) {
  return data && length == strlen(text) && memcmp(data, text, length) == 0;
}

static bool request_is(penstock_intercepted_call *call, const char *text) {
  const void *data = NULL;
  size_t length = 0;
  return penstock_intercepted_request(call, &data, &length) == PENSTOCK_OK && is(data, length, text);
}

static bool response_is(penstock_intercepted_call *call, const char *text) {
  const void *data = NULL;
  size_t length = 0;
  return penstock_intercepted_response(call, &data, &length) == PENSTOCK_OK && is(data, length, text);
}

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
    OK(penstock_call_finish(call, &reply));
    CHECK_INT(penstock_reply_code(reply), 0);
    OK(penstock_metadata_get(penstock_reply_headers(reply), "from", 0, &value, NULL));
    penstock_reply_release(reply);
    penstock_call_release(call);
  }
  bench_close(&self, channel);
}

/* ---- Streams: through the first response ---- */

static int32_t edit_stream(syncer *self, penstock_intercepted_call *call) {
  const void *data = NULL;
  size_t length = 0;
  bool one = penstock_intercepted_kind(call) == PENSTOCK_KIND_SERVER_STREAM;
  penstock_result found = penstock_intercepted_request(call, &data, &length);
  if (one) {
    CHECK(found == PENSTOCK_OK && is(data, length, "q"));
    OK(penstock_intercepted_set_request(call, "r", 1));
  } else {
    CHECK_RESULT(found, PENSTOCK_E_NOT_FOUND);
    CHECK_RESULT(penstock_intercepted_set_request(call, "r", 1), PENSTOCK_E_STATE);
  }
  OK(penstock_metadata_set(penstock_intercepted_metadata(call), "x-headers-a", "1"));
  latch_signal(&self->entered);
  OK(penstock_intercepted_next(call));
  CHECK_RESULT(penstock_intercepted_response(call, &data, &length), PENSTOCK_E_NOT_FOUND);
  CHECK_RESULT(penstock_intercepted_set_response(call, "x", 1), PENSTOCK_E_STATE);
  penstock_metadata *headers = penstock_intercepted_headers(call);
  if (headers) {
    CHECK(penstock_intercepted_status(call) == NULL);
    OK(penstock_metadata_get(headers, "x-headers-a", 0, &data, &length));
    OK(penstock_metadata_set(headers, "seen", "yes"));
  } else {
    self->code = penstock_status_code(penstock_intercepted_status(call));
    OK(penstock_status_set_code(penstock_intercepted_status(call), PENSTOCK_STATUS_ABORTED));
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
  OK(penstock_call_finish(call, &reply));
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

static int32_t edit_client_stream(syncer *self, penstock_intercepted_call *call) {
  const void *data = NULL;
  size_t length = 0;
  CHECK_RESULT(penstock_intercepted_request(call, &data, &length), PENSTOCK_E_NOT_FOUND);
  OK(penstock_intercepted_next(call));
  OK(penstock_intercepted_response(call, &data, &length));
  CHECK_INT(penstock_status_code(penstock_intercepted_status(call)), 0);
  OK(penstock_metadata_set(penstock_intercepted_headers(call), "seen", "yes"));
  (void)self;
  return PENSTOCK_NEXT;
}

TEST(sync_sees_the_whole_response_of_a_client_stream) {
  syncer self;
  penstock_channel *channel = bench_open(&self, edit_client_stream);
  run_stream(channel, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM, NULL, 0);
  bench_close(&self, channel);
}

static int32_t wait_to_go(syncer *self, penstock_intercepted_call *call) {
  OK(penstock_intercepted_next(call));
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
  OK(penstock_call_finish(call, &reply));
  CHECK_INT(penstock_reply_code(reply), 0);
  penstock_reply_release(reply);
  penstock_call_release(call);
  bench_close(&self, channel);
}

/* Half-closed without a message: the function sees that there is none, and may put one in. */
static int32_t fill_in(syncer *self, penstock_intercepted_call *call) {
  const void *data = NULL;
  size_t length = 0;
  CHECK_RESULT(penstock_intercepted_request(call, &data, &length), PENSTOCK_E_NOT_FOUND);
  if (self->text[0]) OK(penstock_intercepted_set_request(call, self->text, strlen(self->text)));
  penstock_intercepted_next(call);
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
    OK(penstock_call_finish(call, &reply));
    size_t length = 0;
    const void *data = penstock_reply_message(reply, &length);
    CHECK_INT(penstock_reply_code(reply), index == 0 ? 0 : PENSTOCK_STATUS_INTERNAL);
    if (index == 0) CHECK(is(data, length, "filled in"));
    penstock_reply_release(reply);
    penstock_call_release(call);
    bench_close(&self, channel);
  }
}

/* ---- Law 7 ---- */

static int32_t return_nonsense(syncer *self, penstock_intercepted_call *call) {
  (void)self, (void)call;
  return PENSTOCK_PAUSE;
}
static int32_t next_and_nonsense(syncer *self, penstock_intercepted_call *call) {
  (void)self;
  OK(penstock_intercepted_next(call));
  return -1;
}
static int32_t forget_next(syncer *self, penstock_intercepted_call *call) {
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
              "interceptor 'sync' returned without next, cancel or answer");
  self.hook = next_and_nonsense;
  run_stream(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, PENSTOCK_STATUS_INTERNAL);
  run_stream(channel, BIDI, PENSTOCK_KIND_BIDI, "{\"metadata\": {\"x-status\": \"5\"}}", PENSTOCK_STATUS_INTERNAL);
  self.hook = forget_next;
  run_stream(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM, NULL, PENSTOCK_STATUS_INTERNAL);
  bench_close(&self, channel);
}

/* ---- The end by another hand ---- */

static int32_t late(syncer *self, penstock_intercepted_call *call) {
  latch_signal(&self->entered);
  latch_wait(&self->go, 1);
  /* The call has ended; what the function has stays its own. */
  CHECK(request_is(call, "ping"));
  OK(penstock_metadata_set(penstock_intercepted_metadata(call), "late", "1"));
  OK(penstock_intercepted_set_request(call, "other", 5));
  CHECK_RESULT(penstock_intercepted_next(call), PENSTOCK_E_GONE);
  CHECK_RESULT(penstock_intercepted_next(call), PENSTOCK_E_ALREADY);
  penstock_status *status = penstock_intercepted_status(call);
  self->code = penstock_status_code(status);
  CHECK_RESULT(penstock_status_set_code(status, 0), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_intercepted_set_value(call, "k", &self->runs, count_up), PENSTOCK_E_GONE);
  CHECK_RESULT(penstock_intercepted_cancel(call, 1, NULL), PENSTOCK_E_GONE);
  return PENSTOCK_NEXT;
}

TEST(sync_deadline_ends_the_call_of_a_function_that_does_not_return) {
  syncer self;
  penstock_channel *channel = bench_open(&self, late);
  check_unary(channel, "{\"deadline_ms\": 100}", PENSTOCK_STATUS_DEADLINE_EXCEEDED, NULL, NULL);
  latch_wait(&self.entered, 1);
  CHECK_INT(latch_count(&self.done), 0);
  latch_signal(&self.go);
  latch_wait(&self.done, 1);
  CHECK_INT(self.code, PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  CHECK_INT(self.runs, 2); /* the run, and the finalizer of the value that was refused */
  bench_close(&self, channel);
}

/* In a client stream: nothing comes before its half-close. */
static int32_t wait_in_next(syncer *self, penstock_intercepted_call *call) {
  latch_signal(&self->entered);
  CHECK_RESULT(penstock_intercepted_next(call), PENSTOCK_E_GONE);
  self->code = penstock_status_code(penstock_intercepted_status(call));
  CHECK_STR(penstock_status_message(penstock_intercepted_status(call)), self->text);
  CHECK(!penstock_intercepted_headers(call));
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
  OK(penstock_call_finish(call, &reply));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_CANCELLED);
  penstock_reply_release(reply);
  penstock_call_release(call);
  bench_close(&self, channel);
}

static int32_t finish_on_send(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_SEND) OK(penstock_hop_finish(hop, PENSTOCK_STATUS_ABORTED, "from above"));
  return PENSTOCK_NEXT;
}

TEST(sync_hop_above_ends_a_function_in_next) {
  syncer self;
  probe above;
  penstock_channel *channel = bench_open(&self, wait_in_next);
  self.text = "from above";
  probe_init(&above, "above");
  above.hook = finish_on_send;
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

static int32_t shorten(syncer *self, penstock_intercepted_call *call) {
  OK(penstock_intercepted_set_deadline_ms(call, self->code < 0 ? 30 : 60000));
  if (self->code < 0) latch_wait(&self->go, 1);
  penstock_intercepted_next(call);
  return PENSTOCK_NEXT;
}

/* It holds at once, not only when the function goes on. */
TEST(sync_moves_the_deadline) {
  syncer self;
  penstock_channel *channel = bench_open(&self, shorten);
  check_unary(channel, NULL, PENSTOCK_STATUS_DEADLINE_EXCEEDED, NULL, NULL);
  latch_signal(&self.go);
  latch_wait(&self.done, 1);
  self.code = 0;
  check_unary(channel, "{\"deadline_ms\": 300, \"metadata\": {\"x-delay-ms\": \"600\"}}", 0, "ping", NULL);
  bench_close(&self, channel);
}

/* ---- Side calls, values, threads, places ---- */

/* A call of the hop's own does not meet the function again. */
static int32_t ask_below(syncer *self, penstock_intercepted_call *call) {
  penstock_hop *hop = penstock_intercepted_hop(call);
  penstock_call *side = NULL;
  penstock_message *token = NULL;
  OK(penstock_hop_call(hop, UNARY, PENSTOCK_KIND_UNARY, 0, NULL, NULL, &side, NULL));
  OK(penstock_call_send(side, "token", 5));
  OK(penstock_call_receive(side, &token));
  CHECK(is(penstock_message_data(token), penstock_message_length(token), "token"));
  penstock_message_release(token);
  penstock_call_release(side);
  CHECK_INT(self->runs, 1);
  OK(penstock_intercepted_next(call));
  return PENSTOCK_NEXT;
}

static int32_t count_and_pass(syncer *self, penstock_intercepted_call *call) {
  (void)self;
  OK(penstock_intercepted_next(call));
  return PENSTOCK_NEXT;
}

TEST(sync_makes_side_calls) {
  syncer self, below;
  penstock_channel *channel = bench_open(&self, ask_below);
  syncer_init(&below, count_and_pass);
  syncer_add(&below, channel, -1);
  check_unary(channel, NULL, 0, "ping", NULL);
  CHECK_INT(self.runs, 1);
  CHECK_INT(below.runs, 2);
  bench_close(&self, channel);
  EVENTUALLY(atomic_load(&below.finalized) == 1);
}

static int32_t share(syncer *self, penstock_intercepted_call *call) {
  CHECK(penstock_intercepted_get_value(call, "k") == NULL);
  OK(penstock_intercepted_set_value(call, "k", self, NULL));
  CHECK(penstock_intercepted_get_value(call, "k") == self);
  OK(penstock_intercepted_next(call));
  OK(penstock_intercepted_set_value(call, "l", &self->code, count_up));
  return PENSTOCK_NEXT;
}

TEST(sync_shares_values_with_the_caller) {
  syncer self;
  penstock_channel *channel = bench_open(&self, share);
  penstock_reply *reply = unary(channel, "x", NULL);
  CHECK(penstock_reply_value(reply, "k") == &self);
  CHECK(penstock_reply_value(reply, "l") == &self.code);
  penstock_reply_release(reply);
  EVENTUALLY(atomic_load(&self.code) == 0);
  bench_close(&self, channel);
}

static void *elsewhere(void *argument) {
  penstock_intercepted_call *call = argument;
  const void *data = NULL;
  size_t length = 0;
  CHECK_RESULT(penstock_intercepted_next(call), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_intercepted_cancel(call, 1, NULL), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_intercepted_answer(call, NULL, NULL), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_intercepted_request(call, &data, &length), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_intercepted_set_request(call, "x", 1), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_intercepted_set_deadline_ms(call, 1), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_intercepted_set_value(call, "k", NULL, NULL), PENSTOCK_E_STATE);
  CHECK(!penstock_intercepted_metadata(call) && !penstock_intercepted_headers(call));
  CHECK(!penstock_intercepted_status(call) && !penstock_intercepted_get_value(call, "k"));
  CHECK(!penstock_intercepted_hop(call));
  return NULL;
}

static int32_t try_elsewhere(syncer *self, penstock_intercepted_call *call) {
  pthread_t thread;
  (void)self;
  pthread_create(&thread, NULL, elsewhere, call);
  pthread_join(thread, NULL);
  OK(penstock_intercepted_next(call));
  return PENSTOCK_NEXT;
}

TEST(sync_on_another_thread_is_a_state_error) {
  syncer self;
  penstock_channel *channel = bench_open(&self, try_elsewhere);
  check_unary(channel, NULL, 0, "ping", NULL);
  bench_close(&self, channel);
}

static int32_t pass(syncer *self, penstock_intercepted_call *call) {
  (void)self;
  OK(penstock_intercepted_next(call));
  return PENSTOCK_NEXT;
}

static int32_t leave_in_call(syncer *self, penstock_intercepted_call *call) {
  latch_signal(&self->entered);
  latch_wait(&self->go, 1);
  return pass(self, call);
}

TEST(sync_stands_where_other_interceptors_stand) {
  penstock_runtime *runtime = new_runtime("{\"max_workers\": 2}");
  penstock_channel *channel = open_channel_on(runtime);
  syncer wide, narrow;
  syncer_init(&wide, pass);
  syncer_init(&narrow, pass);
  penstock_interceptor table = syncer_table(&wide, "wide");
  penstock_interceptor_id id = 0;
  OK(penstock_runtime_add_interceptor(runtime, &table, 5, &id, NULL));
  penstock_sync_interceptor sync = PENSTOCK_SYNC_INTERCEPTOR_INIT;
  sync.name = "narrow";
  sync.methods = "/other.*";
  sync.kinds = 1u << PENSTOCK_KIND_UNARY;
  sync.user_data = &narrow;
  sync.finalizer = syncer_finalized;
  sync.intercept = intercept;
  OK(penstock_sync_interceptor_table(&sync, &table, NULL));
  penstock_interceptor_id narrow_id = 0;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &narrow_id, NULL));
  check_echo(channel);
  CHECK_INT(wide.runs, 1);
  CHECK_INT(narrow.runs, 0);
  char *json = NULL;
  OK(penstock_channel_interceptors_json(channel, &json));
  CHECK_HAS(json, "narrow");
  CHECK_HAS(json, "/other.*");
  penstock_free(json);
  OK(penstock_runtime_set_interceptor_priority(runtime, id, -5, NULL));
  check_echo(channel);
  /* Law 6: removed while its function runs, it is finalized when that has returned and its call has ended. */
  wide.hook = leave_in_call;
  penstock_call *call = start_call(channel, UNARY, PENSTOCK_KIND_UNARY);
  OK(penstock_call_send(call, "x", 1));
  latch_wait(&wide.entered, 1);
  OK(penstock_runtime_remove_interceptor(runtime, id, NULL));
  check_echo(channel);
  CHECK_INT(wide.runs, 3);
  CHECK_INT(wide.finalized, 0);
  latch_signal(&wide.go);
  penstock_reply *reply = NULL;
  OK(penstock_call_finish(call, &reply));
  CHECK_INT(penstock_reply_code(reply), 0);
  penstock_reply_release(reply);
  penstock_call_release(call);
  EVENTUALLY(atomic_load(&wide.finalized) == 1);
  penstock_channel_release(channel);
  OK(penstock_runtime_shutdown(runtime, -1));
  CHECK_INT(narrow.finalized, 1);
  penstock_runtime_release(runtime);
}

TEST(sync_table_is_checked) {
  syncer self;
  syncer_init(&self, pass);
  penstock_error *error = NULL;
  struct {
    penstock_sync_interceptor sync;
    uint64_t tail;
  } longer = {PENSTOCK_SYNC_INTERCEPTOR_INIT, 0};
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_sync_interceptor sync = PENSTOCK_SYNC_INTERCEPTOR_INIT;
  CHECK_RESULT(penstock_sync_interceptor_table(&sync, &table, &error), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_ERROR(error, PENSTOCK_E_INVALID_ARGUMENT, NULL, "intercept must not be NULL");
  sync.intercept = intercept;
  sync.user_data = &self;
  sync.finalizer = syncer_finalized;
  sync.struct_size = 8;
  CHECK_RESULT(penstock_sync_interceptor_table(&sync, &table, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_INT(self.finalized, 0);
  sync.struct_size = sizeof(longer);
  longer.sync = sync;
  longer.tail = 1;
  CHECK_RESULT(penstock_sync_interceptor_table(&longer.sync, &table, NULL), PENSTOCK_E_UNSUPPORTED);
  CHECK_INT(self.finalized, 1);
  longer.tail = 0;
  OK(penstock_sync_interceptor_table(&longer.sync, &table, NULL));
  CHECK_INT(self.finalized, 1);
  /* Not registered after all. */
  table.finalizer(table.user_data);
  CHECK_INT(self.finalized, 2);
}
