/* telemetry.h: exports to a server that is no collector. Tests/packages/telemetry.py exports to one. */
#include "recorded.h"

TEST(telemetry_exports_that_fail) {
  penstock_channel *channel = open_channel(), *dead = NULL;
  OK(penstock_channel_new(dead_address(), "{\"tls\": false}", &dead, NULL));
  penstock_telemetry *telemetry = telemetry_new(NULL);
  telemetry_add(telemetry, channel);
  CHECK_INT(unary_code(channel, "ping"), 0);
  int32_t code = -1;
  OK(penstock_telemetry_flush(telemetry, dead, 30000, &code, NULL));
  CHECK_INT(code, PENSTOCK_STATUS_UNAVAILABLE);
  CHECK_TEXT(telemetry, penstock_telemetry_stats_json, "\"kept\":2,",
             "\"exports\":{\"sent\":2,\"failed\":2,\"code\":14,");
  OK(penstock_telemetry_flush(telemetry, channel, 0, &code, NULL));
  CHECK_INT(code, PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  /* The peer is no collector: it will never take the spans. Exports are not recorded. */
  OK(penstock_telemetry_flush(telemetry, channel, 30000, &code, NULL));
  CHECK_INT(code, PENSTOCK_STATUS_UNIMPLEMENTED);
  CHECK_TEXT(telemetry, penstock_telemetry_stats_json,
             "\"kept\":0,\"bytes\":0,\"taken\":0,\"dropped\":0,\"refused\":2}", "\"code\":12,");
  char *text = text_of(telemetry, penstock_telemetry_prometheus_text);
  CHECK(strstr(text, "opentelemetry") == NULL);
  penstock_free(text);
  penstock_error *error = NULL;
  CHECK_RESULT(penstock_telemetry_flush(telemetry, channel, -1, &code, &error), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_ERROR(error, PENSTOCK_E_INVALID_ARGUMENT, NULL, "timeout_ms");
  penstock_channel_close(channel);
  CHECK_RESULT(penstock_telemetry_flush(telemetry, channel, 1000, &code, NULL), PENSTOCK_E_CLOSED);
  penstock_channel_release(channel);
  penstock_channel_release(dead);
  penstock_telemetry_release(telemetry);
}

typedef struct flusher {
  penstock_telemetry *telemetry;
  penstock_channel *channel;
  atomic_int result;
} flusher;
static int32_t flush_in_callback(penstock_hop *hop, void *state) {
  (void)hop;
  flusher *self = state;
  atomic_store(&self->result, penstock_telemetry_flush(self->telemetry, self->channel, 1000, NULL, NULL));
  return PENSTOCK_NEXT;
}
TEST(telemetry_flush_in_a_callback) {
  penstock_runtime *runtime = new_runtime(NULL);
  flusher flusher = {telemetry_new(NULL), open_channel_on(runtime), PENSTOCK_OK};
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.on_start = flush_in_callback;
  table.user_data = &flusher;
  ready_add(flusher.channel, &table, 0);
  CHECK_INT(unary_code(flusher.channel, "ping"), 0);
  CHECK_INT(atomic_load(&flusher.result), PENSTOCK_E_WOULD_DEADLOCK);
  penstock_channel_release(flusher.channel);
  penstock_runtime_release(runtime);
  penstock_telemetry_release(flusher.telemetry);
}

/* An interceptor of the channel to the collector, which turns exports into calls that the peer answers as the test
 * wants. */
typedef struct answers {
  int32_t code;
  const char *details, *delay;
  latch begun;
} answers;
static int32_t answer_so(penstock_hop *hop, void *state) {
  answers *self = state;
  char code[16];
  snprintf(code, sizeof(code), "%d", self->code);
  OK(penstock_request_set_method(penstock_hop_request(hop), UNARY));
  OK(penstock_metadata_set(penstock_hop_metadata(hop), "x-status", code));
  if (self->delay) OK(penstock_metadata_set(penstock_hop_metadata(hop), "x-delay-ms", self->delay));
  if (self->details) {
    unsigned char bin[128];
    size_t length = strlen(self->details);
    /* google.rpc.Status: the code, and a google.protobuf.Any with this type and no value. */
    unsigned char head[] = {0x08, (unsigned char)self->code, 0x1a, (unsigned char)(length + 2),
                            0x0a, (unsigned char)length};
    memcpy(bin, head, sizeof(head));
    memcpy(bin + sizeof(head), self->details, length);
    OK(penstock_metadata_set_bytes(penstock_hop_metadata(hop), "x-details-bin", bin, sizeof(head) + length));
  }
  latch_signal(&self->begun);
  return PENSTOCK_NEXT;
}
static penstock_channel *open_collector(answers *answers, const char *options) {
  penstock_channel *channel = NULL;
  OK(penstock_channel_new(peer_address(), options ? options : "{\"tls\": false}", &channel, NULL));
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.on_start = answer_so;
  table.user_data = answers;
  ready_add(channel, &table, 0);
  return channel;
}

/* OpenTelemetry's specification of OTLP has the table of the codes. */
TEST(telemetry_keeps_spans_by_the_code) {
  static const bool may_retry[17] = {
      [PENSTOCK_STATUS_CANCELLED] = true,   [PENSTOCK_STATUS_DEADLINE_EXCEEDED] = true,
      [PENSTOCK_STATUS_ABORTED] = true,     [PENSTOCK_STATUS_OUT_OF_RANGE] = true,
      [PENSTOCK_STATUS_UNAVAILABLE] = true, [PENSTOCK_STATUS_DATA_LOSS] = true,
  };
  answers answers = {.begun = LATCH_INIT};
  penstock_channel *channel = open_channel(), *collector = open_collector(&answers, NULL);
  penstock_telemetry *telemetry = telemetry_new("{\"metrics\": false}");
  telemetry_add(telemetry, channel);
  for (int32_t wanted = 1; wanted <= 18; wanted++) {
    /* The last two are RESOURCE_EXHAUSTED with details. */
    static const char *const details[] = {"type.googleapis.com/google.rpc.RetryInfo",
                                          "type.googleapis.com/google.rpc.ErrorInfo"};
    answers.code = wanted <= 16 ? wanted : PENSTOCK_STATUS_RESOURCE_EXHAUSTED;
    answers.details = wanted <= 16 ? NULL : details[wanted - 17];
    bool is_kept = wanted <= 16 ? may_retry[wanted] : wanted == 17;
    CHECK_INT(unary_code(channel, "ping"), 0);
    int32_t code = -1;
    OK(penstock_telemetry_flush(telemetry, collector, 30000, &code, NULL));
    CHECK_INT(code, answers.code);
    if (!CHECK(telemetry_has(telemetry, penstock_telemetry_stats_json, is_kept ? "\"kept\":2," : "\"kept\":0,")))
      printf("  %d\n", wanted);
    penstock_free(text_of(telemetry, penstock_telemetry_spans_json));
  }
  CHECK_TEXT(telemetry, penstock_telemetry_stats_json, "\"taken\":14,\"dropped\":0,\"refused\":22}");
  penstock_channel_release(collector);
  penstock_channel_release(channel);
  penstock_telemetry_release(telemetry);
}

static int32_t find_no_token(penstock_hop *hop, void *state) {
  (void)state;
  OK(penstock_hop_end(hop, PENSTOCK_STATUS_UNAUTHENTICATED, "no token"));
  return PENSTOCK_NEXT;
}

/* A status that no collector has given refuses nothing. */
TEST(telemetry_keeps_spans_that_were_never_sent) {
  penstock_channel *channel = open_channel(), *collector = open_channel();
  penstock_telemetry *telemetry = telemetry_new(NULL);
  telemetry_add(telemetry, channel);
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.on_start = find_no_token;
  ready_add(collector, &table, 0);
  CHECK_INT(unary_code(channel, "ping"), 0);
  int32_t code = -1;
  OK(penstock_telemetry_flush(telemetry, collector, 30000, &code, NULL));
  CHECK_INT(code, PENSTOCK_STATUS_UNAUTHENTICATED);
  CHECK_TEXT(telemetry, penstock_telemetry_stats_json, "\"kept\":2,", "\"refused\":0}", "\"message\":\"no token\"");
  penstock_channel_release(collector);
  /* The channel's limits are for other calls. The peer then refuses the spans. */
  OK(penstock_channel_new(peer_address(), "{\"tls\": false, \"max_send_message_bytes\": 16}", &collector, NULL));
  OK(penstock_telemetry_flush(telemetry, collector, 30000, &code, NULL));
  CHECK_INT(code, PENSTOCK_STATUS_UNIMPLEMENTED);
  CHECK_TEXT(telemetry, penstock_telemetry_stats_json, "\"kept\":0,", "\"refused\":2}");
  penstock_channel_release(collector);
  penstock_channel_release(channel);
  penstock_telemetry_release(telemetry);
}

typedef struct waiter {
  penstock_telemetry *telemetry;
  penstock_channel *collector;
  int32_t code;
} waiter;
static void *flush_and_wait(void *pointer) {
  waiter *self = pointer;
  OK(penstock_telemetry_flush(self->telemetry, self->collector, 3600000, &self->code, NULL));
  return NULL;
}

TEST(telemetry_is_busy_while_it_exports) {
  answers answers = {.code = PENSTOCK_STATUS_OK, .delay = "3600000", .begun = LATCH_INIT};
  penstock_channel *channel = open_channel(), *collector = open_collector(&answers, NULL);
  waiter waiter = {telemetry_new("{\"metrics\": false}"), collector, -1};
  telemetry_add(waiter.telemetry, channel);
  CHECK_INT(unary_code(channel, "ping"), 0);
  pthread_t thread;
  if (pthread_create(&thread, NULL, flush_and_wait, &waiter)) abort();
  latch_wait(&answers.begun, 1);
  char *text = NULL;
  int32_t code = -1;
  penstock_error *error = NULL;
  CHECK_RESULT(penstock_telemetry_spans_json(waiter.telemetry, &text), PENSTOCK_E_BUSY);
  CHECK_RESULT(penstock_telemetry_flush(waiter.telemetry, channel, 1000, &code, &error), PENSTOCK_E_BUSY);
  CHECK_ERROR(error, PENSTOCK_E_BUSY, NULL, "another thread");
  /* Calls go on recording meanwhile. */
  CHECK_INT(unary_code(channel, "ping"), 0);
  OK(penstock_channel_close(collector));
  pthread_join(thread, NULL);
  CHECK(waiter.code > 0);
  text = text_of(waiter.telemetry, penstock_telemetry_spans_json);
  CHECK_INT(occurrences(text, "\"name\":\"Sent.penstock.Echo/Unary\""), 2);
  penstock_free(text);
  penstock_channel_release(collector);
  penstock_channel_release(channel);
  penstock_telemetry_release(waiter.telemetry);
}

/* While calls record, another thread takes the spans: each of them once. */
typedef struct taker {
  penstock_telemetry *telemetry;
  atomic_bool over;
  int spans;
} taker;
static void *keep_taking(void *pointer) {
  taker *self = pointer;
  for (bool last = false; !last;) {
    last = atomic_load(&self->over);
    char *text = text_of(self->telemetry, penstock_telemetry_spans_json);
    self->spans += occurrences(text, "\"traceId\":");
    penstock_free(text);
  }
  return NULL;
}
TEST(telemetry_spans_are_taken_while_calls_run) {
  penstock_channel *channel = open_channel();
  taker taker = {.telemetry = telemetry_new(NULL)};
  telemetry_add(taker.telemetry, channel);
  pthread_t thread;
  if (pthread_create(&thread, NULL, keep_taking, &taker)) abort();
  for (int i = 0; i < 200; i++) CHECK_INT(unary_code(channel, "ping"), 0);
  atomic_store(&taker.over, true);
  pthread_join(thread, NULL);
  CHECK_INT(taker.spans, 400);
  CHECK_TEXT(taker.telemetry, penstock_telemetry_stats_json,
             "\"kept\":0,\"bytes\":0,\"taken\":400,\"dropped\":0,\"refused\":0}");
  penstock_channel_release(channel);
  penstock_telemetry_release(taker.telemetry);
}

static int32_t count_encode(void *user_data, const char *method, void *object, penstock_buffer *bytes) {
  (void)method, (void)object, (void)bytes;
  count_up(user_data);
  return 1;
}
static int32_t count_decode(void *user_data, const char *method, const void *data, size_t length, void **object) {
  (void)method, (void)data, (void)length, (void)object;
  count_up(user_data);
  return 1;
}
static void free_nothing(void *user_data, void *object) { (void)user_data, (void)object; }
static int32_t note_subtype(penstock_hop *hop, void *state) {
  const char *subtype = penstock_request_content_subtype(penstock_hop_request(hop));
  if (CHECK_STR(subtype, "")) latch_signal(state);
  return PENSTOCK_NEXT;
}

/* The codec and the content subtype of a channel are for the messages of other calls. */
TEST(telemetry_exports_on_a_channel_with_a_codec) {
  atomic_int used = 0;
  latch plain = LATCH_INIT;
  penstock_channel *channel = open_channel(), *collector = NULL;
  OK(penstock_channel_new(peer_address(), "{\"tls\": false, \"content_subtype\": \"json\"}", &collector, NULL));
  penstock_codec_functions functions = PENSTOCK_CODEC_FUNCTIONS_INIT;
  functions.user_data = &used;
  functions.encode = count_encode;
  functions.decode = count_decode;
  functions.free = free_nothing;
  penstock_codec *codec = NULL;
  OK(penstock_codec_new(&functions, &codec, NULL));
  OK(penstock_channel_set_codec(collector, codec));
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.on_start = note_subtype;
  table.user_data = &plain;
  ready_add(collector, &table, 0);
  penstock_telemetry *telemetry = telemetry_new(NULL);
  telemetry_add(telemetry, channel);
  CHECK_INT(unary_code(channel, "ping"), 0);
  int32_t code = -1;
  OK(penstock_telemetry_flush(telemetry, collector, 30000, &code, NULL));
  CHECK_INT(code, PENSTOCK_STATUS_UNIMPLEMENTED);
  CHECK_INT(latch_count(&plain), 2);
  CHECK_INT(atomic_load(&used), 0);
  penstock_channel_release(collector);
  penstock_channel_release(channel);
  penstock_telemetry_release(telemetry);
  penstock_codec_release(codec);
}
