/* Calls over each protocol on HTTP/2, and over gRPC for comparison. The results must not depend on the protocol. */
#include "calls.h"

#include <ctype.h>
#include <unistd.h>

static const char *const protocols[] = {"grpc", "grpc-web", "grpc-web-text", "connect"};
enum { PROTOCOLS = 4, CONNECT = 3 };

/* The protocol of the running test. `open_current` makes channels with it. */
static int current;

static penstock_channel *open_current(const char *more) {
  char options[256];
  penstock_channel *channel = NULL;
  penstock_error *error = NULL;
  snprintf(options, sizeof(options), "{\"tls\": false, \"http\": \"2\", \"protocol\": \"%s\"%s}", protocols[current],
           more);
  if (!OK(penstock_channel_new(peer_address(), options, &channel, &error)))
    printf("  %s\n", penstock_error_json(error));
  penstock_error_release(error);
  return channel;
}

/* Defines a test that runs its body once for each protocol. */
#define TEST_EACH(function)                                                                                            \
  static void function##_over_one(void);                                                                               \
  TEST(function) {                                                                                                     \
    for (current = 0; current < PROTOCOLS; current++) {                                                                \
      printf("  %s\n", protocols[current]);                                                                            \
      function##_over_one();                                                                                           \
    }                                                                                                                  \
  }                                                                                                                    \
  static void function##_over_one(void)

static penstock_reply *ask(penstock_channel *channel, const void *data, size_t length, const char *json) {
  penstock_call_options *options = options_of(json);
  penstock_reply *reply = NULL;
  OK(penstock_channel_unary(channel, UNARY, data, length, options, &reply, NULL));
  penstock_call_options_release(options);
  return reply;
}

static bool has_message(penstock_reply *reply, const void *expected, size_t length) {
  size_t count = 0;
  const void *data = penstock_reply_bytes(reply, &count);
  if (!CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK)) printf("  %s\n", penstock_reply_status_json(reply));
  return CHECK_INT(count, length) && (length == 0 || CHECK(memcmp(data, expected, length) == 0));
}

static const char *field(const penstock_metadata *metadata, const char *name) {
  const void *value = NULL;
  return penstock_metadata_get(metadata, name, 0, &value, NULL) == PENSTOCK_OK ? value : "-";
}

/* ---- Unary ---- */

TEST_EACH(protocols_unary) {
  penstock_channel *channel = open_current("");
  penstock_reply *reply = ask(channel, "ping", 4,
                              "{\"metadata\": {\"x-headers-a\": \"1\", \"x-trailers-b\": \"2\","
                              " \"x-trailers-c-bin\": \"AAEC/w==\"}}");
  has_message(reply, "ping", 4);
  CHECK_STR(field(penstock_reply_headers(reply), "x-headers-a"), "1");
  CHECK_STR(field(penstock_reply_trailers(reply), "x-trailers-b"), "2");
  const void *value = NULL;
  size_t length = 0;
  if (OK(penstock_metadata_get(penstock_reply_trailers(reply), "x-trailers-c-bin", 0, &value, &length)))
    CHECK(length == 4 && memcmp(value, "\0\1\2\377", 4) == 0);
  penstock_reply_release(reply);
  /* Many messages of 0 to 19 bytes, so that later calls use the kept header blocks of earlier calls. */
  for (int i = 0; i < 20; i++) {
    char text[20] = "0123456789012345678";
    reply = ask(channel, text, (size_t)i, i % 2 ? "{\"deadline_ms\": 60000}" : "{}");
    has_message(reply, text, (size_t)i);
    penstock_reply_release(reply);
  }
  penstock_channel_release(channel);
}

TEST_EACH(protocols_large_messages) {
  penstock_channel *channel = open_current("");
  size_t size = 3 << 20;
  char *large = malloc(size);
  for (size_t i = 0; i < size; i++) large[i] = (char)(i * 7 + i / 1000);
  penstock_reply *reply = ask(channel, large, size, "{}");
  has_message(reply, large, size);
  penstock_reply_release(reply);
  reply = ask(channel, large, size, "{\"compression\": \"gzip\", \"metadata\": {\"x-compress\": \"gzip\"}}");
  has_message(reply, large, size);
  penstock_reply_release(reply);
  reply = ask(channel, large, size, "{\"max_receive_message_bytes\": 1000}");
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_RESOURCE_EXHAUSTED);
  CHECK_HAS(penstock_reply_status_json(reply), "max_receive_message_bytes");
  penstock_reply_release(reply);
  free(large);
  check_echo(channel);
  penstock_channel_release(channel);
}

TEST_EACH(protocols_compression) {
  penstock_channel *channel = open_current("");
  char text[2000];
  memset(text, 'x', sizeof(text));
  penstock_reply *reply =
      ask(channel, text, sizeof(text),
          "{\"compression\": \"gzip\", \"metadata\": {\"x-compress\": \"gzip\", \"x-echo-metadata\": \"1\"}}");
  has_message(reply, text, sizeof(text));
  const char *name = current == CONNECT ? "seen-content-encoding" : "seen-grpc-encoding";
  CHECK_STR(field(penstock_reply_trailers(reply), name), "gzip");
  const char *stats = penstock_reply_stats_json(reply);
  for (const char *at = stats; (at = strstr(at, "\"compressed_bytes\":")) != NULL;) {
    at += strlen("\"compressed_bytes\":");
    while (isspace((unsigned char)*at)) at++;
    if (!CHECK(atoi(at) > 0 && atoi(at) < 200)) printf("  %s\n", stats);
  }
  penstock_reply_release(reply);
  penstock_channel_release(channel);
}

/* ---- Errors ---- */

TEST_EACH(protocols_errors) {
  penstock_channel *channel = open_current("");
  /* google.rpc.Status {code: 9, message: "no", details: [{type_url: "type.googleapis.com/a.B", value: 01 02}]} */
  penstock_reply *reply =
      ask(channel, "x", 1,
          "{\"metadata\": {\"x-status\": \"9\", \"x-message-bin\": \"bm90IG5vdzogw6k=\", \"x-trailers-t\": \"1\","
          " \"x-details-bin\": \"CAkSAm5vGh0KF3R5cGUuZ29vZ2xlYXBpcy5jb20vYS5CEgIBAg==\"}}");
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_FAILED_PRECONDITION);
  CHECK_HAS(penstock_reply_status_json(reply), "\"message\":\"not now: \xc3\xa9\"");
  CHECK_HAS(penstock_reply_status_json(reply),
            "\"details\":[{\"@type\":\"type.googleapis.com/a.B\",\"base64\":\"AQI=\"}]");
  CHECK_STR(field(penstock_reply_trailers(reply), "x-trailers-t"), "1");
  const void *value = NULL;
  size_t length = 0;
  if (OK(penstock_metadata_get(penstock_reply_trailers(reply), "grpc-status-details-bin", 0, &value, &length)))
    CHECK(length > 30 && ((const char *)value)[0] == 8 && ((const char *)value)[1] == 9);
  penstock_reply_release(reply);
  for (int code = 1; code <= 16; code++) {
    char options[64];
    snprintf(options, sizeof(options), "{\"metadata\": {\"x-status\": \"%d\"}}", code);
    reply = ask(channel, "x", 1, options);
    CHECK_INT(penstock_reply_code(reply), code);
    penstock_reply_release(reply);
  }
  OK(penstock_channel_unary(channel, "/no.Such/Method", "x", 1, NULL, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_UNIMPLEMENTED);
  penstock_reply_release(reply);
  penstock_channel_release(channel);
}

/* ---- Streams ---- */

TEST_EACH(protocols_streams) {
  penstock_channel *channel = open_current("");
  penstock_call *call =
      start_with(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM,
                 "{\"metadata\": {\"x-count\": \"3\", \"x-headers-a\": \"1\", \"x-trailers-b\": \"2\"}}");
  OK(penstock_call_send(call, "abc", 3));
  OK(penstock_call_half_close(call));
  for (int i = 0; i < 3; i++) CHECK_MESSAGE(call, "abc");
  penstock_message *message = NULL;
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
  penstock_reply *reply = NULL;
  OK(penstock_call_wait(call, &reply));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
  CHECK_STR(field(penstock_reply_headers(reply), "x-headers-a"), "1");
  CHECK_STR(field(penstock_reply_trailers(reply), "x-trailers-b"), "2");
  penstock_reply_release(reply);
  penstock_call_release(call);

  call = start_with(channel, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM, "{}");
  for (int i = 0; i < 5; i++) OK(penstock_call_send(call, "ab", 2));
  OK(penstock_call_half_close(call));
  CHECK_MESSAGE(call, "ababababab");
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  penstock_call_release(call);

  call = start_with(channel, BIDI, PENSTOCK_KIND_BIDI,
                    "{\"compression\": \"gzip\", \"metadata\": {\"x-compress\": \"gzip\"}}");
  for (int i = 0; i < 20; i++) {
    char text[600];
    memset(text, 'a' + i, 500);
    sprintf(text + 500, "%d", i);
    OK(penstock_call_send(call, text, strlen(text)));
    CHECK_MESSAGE(call, text);
  }
  OK(penstock_call_half_close(call));
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  penstock_call_release(call);
  exchange(channel, 200);

  call = start_with(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM,
                    "{\"metadata\": {\"x-count\": \"2\", \"x-status\": \"8\", \"x-message\": \"full\"}}");
  OK(penstock_call_send(call, "abc", 3));
  OK(penstock_call_half_close(call));
  for (int i = 0; i < 2; i++) CHECK_MESSAGE(call, "abc");
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
  OK(penstock_call_wait(call, &reply));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_RESOURCE_EXHAUSTED);
  CHECK_HAS(penstock_reply_status_json(reply), "\"message\":\"full\"");
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

/* ---- Deadlines and cancels ---- */

TEST_EACH(protocols_deadline_and_cancel) {
  penstock_channel *channel = open_current("");
  penstock_reply *reply = ask(channel, "x", 1, "{\"deadline_ms\": 50, \"metadata\": {\"x-delay-ms\": \"100000\"}}");
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  penstock_reply_release(reply);
  /* The deadline is sent to the server. */
  reply = ask(channel, "x", 1, "{\"deadline_ms\": 60000, \"metadata\": {\"x-echo-metadata\": \"1\"}}");
  const char *name = current == CONNECT ? "seen-connect-timeout-ms" : "seen-grpc-timeout";
  const char *left = field(penstock_reply_trailers(reply), name);
  CHECK(current == CONNECT ? atoi(left) > 1000 && atoi(left) <= 60000 : isdigit((unsigned char)left[0]) != 0);
  penstock_reply_release(reply);
  penstock_call *call = start_with(channel, BIDI, PENSTOCK_KIND_BIDI, "{}");
  OK(penstock_call_send(call, "abc", 3));
  CHECK_MESSAGE(call, "abc");
  OK(penstock_call_cancel(call, NULL));
  CHECK_FINISH(call, PENSTOCK_STATUS_CANCELLED);
  penstock_call_release(call);
  call = start_with(channel, UNARY, PENSTOCK_KIND_UNARY, "{\"metadata\": {\"x-delay-ms\": \"100000\"}}");
  OK(penstock_call_send(call, "abc", 3));
  OK(penstock_call_half_close(call));
  OK(penstock_call_cancel(call, NULL));
  CHECK_FINISH(call, PENSTOCK_STATUS_CANCELLED);
  penstock_call_release(call);
  check_echo(channel);
  penstock_channel_release(channel);
}

/* ---- Many at once ---- */

TEST_EACH(protocols_many_at_once) {
  penstock_channel *channel = open_current("");
  enum { CALLS = 300 };
  penstock_call *calls[CALLS];
  for (int i = 0; i < CALLS; i++) calls[i] = start_numbered(channel, i);
  for (int i = 0; i < CALLS; i++) {
    char text[16];
    sprintf(text, "%d", i);
    CHECK_MESSAGE(calls[i], text);
    CHECK_FINISH(calls[i], PENSTOCK_STATUS_OK);
    penstock_call_release(calls[i]);
  }
  penstock_channel_release(channel);
}

/* ---- GET ---- */

static void check_get(penstock_channel *channel, const char *message, const char *json, const char *path) {
  penstock_reply *reply = ask(channel, message, strlen(message), json);
  has_message(reply, message, strlen(message));
  CHECK_STR(field(penstock_reply_trailers(reply), "seen-path"), path);
  CHECK_STR(field(penstock_reply_trailers(reply), "seen-content-type"), strchr(path, '?') ? "-" : "application/proto");
  penstock_reply_release(reply);
}

#define SAFE "{\"idempotency\": \"no_side_effects\", \"metadata\": {\"x-echo-metadata\": \"1\"}"

TEST(protocols_get) {
  current = CONNECT;
  penstock_channel *channel = open_current("");
  for (int i = 0; i < 3; i++) {
    check_get(channel, "ping", SAFE "}", UNARY "?connect=v1&base64=1&encoding=proto&message=cGluZw");
    check_get(channel, "", SAFE ", \"deadline_ms\": 60000}", UNARY "?connect=v1&base64=1&encoding=proto&message=");
    check_get(channel, "{\"a\": 1}", SAFE ", \"content_subtype\": \"json\"}",
              UNARY "?connect=v1&encoding=json&message=%7B%22a%22%3A%201%7D");
    check_get(channel, "ping", "{\"idempotency\": \"idempotent\", \"metadata\": {\"x-echo-metadata\": \"1\"}}", UNARY);
  }
  penstock_reply *reply =
      ask(channel, "x", 1, "{\"idempotency\": \"no_side_effects\", \"metadata\": {\"x-status\": \"5\"}}");
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_NOT_FOUND);
  penstock_reply_release(reply);
  char *large = malloc(20000);
  memset(large, 'a', 19999);
  large[19999] = 0;
  check_get(channel, large, SAFE "}", UNARY);
  reply = ask(channel, large, 19999, SAFE ", \"compression\": \"gzip\"}");
  has_message(reply, large, 19999);
  CHECK_HAS(field(penstock_reply_trailers(reply), "seen-path"),
            "?connect=v1&base64=1&compression=gzip&encoding=proto&");
  penstock_reply_release(reply);
  free(large);
  penstock_channel_release(channel);
  channel = open_current(", \"max_get_url_bytes\": 60");
  check_get(channel, "ping", SAFE "}", UNARY);
  penstock_channel_release(channel);
}

/* ---- A target that is a URL ---- */

TEST_EACH(protocols_below_a_prefix) {
  char *const arguments[] = {"--prefix", "/api/v1", NULL};
  char address[64], target[96], options[96];
  int input;
  int output = start_peer(address, sizeof(address), arguments, &input);
  snprintf(target, sizeof(target), "http://%s/api/v1", address);
  snprintf(options, sizeof(options), "{\"http\": \"2\", \"protocol\": \"%s\"}", protocols[current]);
  penstock_channel *channel = NULL;
  REQUIRE_OK(penstock_channel_new(target, options, &channel, NULL));
  for (int i = 0; i < 3; i++) {
    penstock_reply *reply = ask(channel, "ping", 4, SAFE "}");
    has_message(reply, "ping", 4);
    CHECK_STR(field(penstock_reply_trailers(reply), "seen-path"),
              current == CONNECT ? "/api/v1" UNARY "?connect=v1&base64=1&encoding=proto&message=cGluZw"
                                 : "/api/v1" UNARY);
    penstock_reply_release(reply);
    check_echo(channel);
  }
  exchange(channel, 3);
  penstock_channel_release(channel);
  close(input);
  close(output);
}
