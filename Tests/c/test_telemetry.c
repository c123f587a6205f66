/* telemetry.h: metrics and spans of OpenTelemetry, their texts, their bounds, and exports to a server that is no collector.
 * Tests/packages/telemetry.py exports to one. */
#include "ready.h"

#include <unistd.h>

static penstock_telemetry *telemetry_new(const char *options) {
  penstock_telemetry *telemetry = NULL;
  penstock_error *error = NULL;
  OK(penstock_telemetry_new(options, &telemetry, &error));
  if (error) printf("  %s\n", penstock_error_message(error));
  penstock_error_release(error);
  return telemetry;
}
static void telemetry_add(penstock_telemetry *telemetry, penstock_channel *channel) {
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  OK(penstock_ready_telemetry(telemetry, &table, NULL));
  ready_add(channel, &table, 0);
}

typedef penstock_result (*reader)(penstock_telemetry *, char **);
static char *text_of(penstock_telemetry *telemetry, reader read) {
  char *text = NULL;
  OK(read(telemetry, &text));
  return text;
}
static void check_text(penstock_telemetry *telemetry, reader read, const char *const *parts, size_t count) {
  char *text = text_of(telemetry, read);
  for (size_t i = 0; i < count; i++) CHECK_HAS(text, parts[i]);
  penstock_free(text);
}
#define CHECK_TEXT(telemetry, read, ...)                                                                               \
  do {                                                                                                                 \
    const char *const parts[] = {__VA_ARGS__};                                                                         \
    check_text(telemetry, read, parts, sizeof(parts) / sizeof(*parts));                                                \
  } while (0)

static int occurrences(const char *text, const char *part) {
  int count = 0;
  for (; (text = strstr(text, part)); text += strlen(part)) count++;
  return count;
}

TEST(telemetry_counts_calls_and_attempts) {
  penstock_channel *channel = open_channel();
  penstock_telemetry *telemetry = telemetry_new("{\"resource\": {\"service.name\": \"shop\", \"a\": \"\\u00e9\"}}");
  telemetry_add(telemetry, channel);
  for (int i = 0; i < 3; i++) CHECK_INT(unary_code(channel, "ping"), 0);
  CHECK_INT(ready_code(ready_unary(channel, "ping", "\"x-status\": \"5\"")), PENSTOCK_STATUS_NOT_FOUND);
  char labels[160], started[200], sent[300];
  snprintf(labels, sizeof(labels), "grpc_method=\"penstock.Echo/Unary\",grpc_target=\"%s\"", peer_address());
  snprintf(started, sizeof(started), "\ngrpc_client_attempt_started_total{%s} 4\n", labels);
  snprintf(sent, sizeof(sent),
           "\ngrpc_client_attempt_sent_total_compressed_message_size_bytes_sum{%s,grpc_status=\"OK\"} 12\n", labels);
  CHECK_TEXT(telemetry, penstock_telemetry_prometheus_text, started, sent,
             "# TYPE grpc_client_attempt_started_total counter\n",
             "# TYPE grpc_client_call_duration_seconds histogram\n", "grpc_status=\"OK\",le=\"0.00001\"} 0\n",
             "grpc_status=\"OK\",le=\"100\"} 3\n", "grpc_status=\"OK\",le=\"+Inf\"} 3\n",
             "grpc_status=\"OK\",le=\"1024\"} 3\n", "grpc_status=\"NOT_FOUND\"} 1\n");
  CHECK_TEXT(telemetry, penstock_telemetry_metrics_json, "{\"resourceMetrics\":[{\"resource\":{\"attributes\":[",
             "{\"key\":\"service.name\",\"value\":{\"stringValue\":\"shop\"}}",
             "\"scope\":{\"name\":\"penstock\",\"version\":\"" PENSTOCK_VERSION "\"}",
             "{\"name\":\"grpc.client.attempt.started\",", "\"unit\":\"{attempt}\",\"sum\":{\"dataPoints\":[",
             "\"asInt\":\"4\",", "\"aggregationTemporality\":2,\"isMonotonic\":true}",
             "{\"name\":\"grpc.client.attempt.duration\",",
             "{\"name\":\"grpc.client.attempt.rcvd_total_compressed_message_size\",",
             "{\"count\":\"3\",\"sum\":12,\"bucketCounts\":[\"0\",\"3\",\"0\"",
             "\"explicitBounds\":[0,1024,2048,4096,16384,65536,262144,1048576,4194304,16777216,67108864,268435456,"
             "1073741824,4294967296]",
             "\"explicitBounds\":[0,0.00001,0.00005,0.0001,0.0003,",
             "{\"key\":\"grpc.status\",\"value\":{\"stringValue\":\"NOT_FOUND\"}}");
  CHECK(penstock_telemetry_retain(telemetry) == telemetry);
  penstock_telemetry_release(telemetry);
  penstock_channel_release(channel);
  penstock_telemetry_release(telemetry);
}

#define TRACE  "0af7651916cd43dd8448eb211c80319c"
#define PARENT "b7ad6b7169203331"

TEST(telemetry_spans_are_children_of_the_traceparent) {
  penstock_channel *channel = open_channel();
  penstock_telemetry *telemetry = telemetry_new(NULL);
  telemetry_add(telemetry, channel);
  penstock_reply *reply = ready_unary(channel, "ping",
                                      "\"x-echo-metadata\": \"1\", \"tracestate\": \"rojo=1\", "
                                      "\"traceparent\": \"00-" TRACE "-" PARENT "-01\"");
  char seen[128];
  snprintf(seen, sizeof(seen), "%s", ready_value(penstock_reply_trailers(reply), "seen-traceparent"));
  CHECK_STR(ready_value(penstock_reply_trailers(reply), "seen-tracestate"), "rojo=1");
  CHECK_INT(ready_code(reply), 0);
  CHECK(strlen(seen) == 55 && memcmp(seen, "00-" TRACE "-", 36) == 0 && memcmp(seen + 36, PARENT, 16) != 0);
  char *text = text_of(telemetry, penstock_telemetry_spans_json);
  CHECK_INT(occurrences(text, "{\"traceId\":\"" TRACE "\","), 2);
  CHECK_INT(occurrences(text, "\"traceState\":\"rojo=1\""), 2);
  /* The attempt ends before the call. The server has got the attempt's id. */
  char *attempt = strstr(text, "\"spanId\":\""), *call = attempt ? strstr(attempt + 1, "\"spanId\":\"") : NULL;
  REQUIRE(call != NULL);
  CHECK(memcmp(attempt + 10, seen + 36, 16) == 0);
  char parent[96];
  snprintf(parent, sizeof(parent), "\"parentSpanId\":\"%.16s\",\"name\":\"Attempt.penstock.Echo/Unary\"", call + 10);
  CHECK_HAS(text, parent);
  CHECK_HAS(text, "\"parentSpanId\":\"" PARENT "\",\"name\":\"Sent.penstock.Echo/Unary\",\"kind\":3,");
  CHECK_HAS(text, "{\"key\":\"rpc.service\",\"value\":{\"stringValue\":\"penstock.Echo\"}},"
                  "{\"key\":\"rpc.method\",\"value\":{\"stringValue\":\"Unary\"}},"
                  "{\"key\":\"server.address\",\"value\":{\"stringValue\":\"127.0.0.1\"}},{\"key\":\"server.port\",");
  CHECK_HAS(text, "{\"key\":\"network.peer.address\",\"value\":{\"stringValue\":\"127.0.0.1\"}}");
  CHECK_HAS(text, "{\"key\":\"previous-rpc-attempts\",\"value\":{\"intValue\":\"0\"}},"
                  "{\"key\":\"transparent-retry\",\"value\":{\"boolValue\":false}}");
  CHECK_HAS(text, "\"name\":\"Outbound message\",\"attributes\":[{\"key\":\"sequence-number\",\"value\":"
                  "{\"intValue\":\"0\"}},{\"key\":\"message-size\",\"value\":{\"intValue\":\"4\"}}]}");
  CHECK_INT(occurrences(text, "\"name\":\"Inbound message\""), 1);
  CHECK_INT(occurrences(text, "\"status\":{\"code\":1},\"flags\":1}"), 2);
  penstock_free(text);
  CHECK_TEXT(telemetry, penstock_telemetry_stats_json,
             "\"spans\":{\"kept\":0,\"bytes\":0,\"taken\":2,\"dropped\":0,\"refused\":0}");
  penstock_channel_release(channel);
  penstock_telemetry_release(telemetry);
}

TEST(telemetry_leaves_traces_that_are_not_sampled) {
  penstock_channel *channel = open_channel();
  penstock_telemetry *telemetry = telemetry_new("{\"sampled\": 0, \"metrics\": false}");
  telemetry_add(telemetry, channel);
  static const char given[] = "00-" TRACE "-" PARENT "-00";
  static const char *const metadata[] = {"\"x-echo-metadata\": \"1\"",
                                         "\"x-echo-metadata\": \"1\", \"traceparent\": \"00-" TRACE "-" PARENT "-00\""};
  for (int i = 0; i < 2; i++) {
    penstock_reply *reply = ready_unary(channel, "ping", metadata[i]);
    const char *seen = ready_value(penstock_reply_trailers(reply), "seen-traceparent");
    if (i == 1) CHECK_STR(seen, given);
    CHECK(strlen(seen) == 55 && strcmp(seen + 53, "00") == 0);
    penstock_reply_release(reply);
  }
  CHECK_TEXT(telemetry, penstock_telemetry_stats_json, "\"kept\":0,\"bytes\":0,\"taken\":0,\"dropped\":0");
  char *text = text_of(telemetry, penstock_telemetry_metrics_json);
  CHECK(strstr(text, "grpc.client") == NULL);
  penstock_free(text);
  penstock_channel_release(channel);
  penstock_telemetry_release(telemetry);
}

#define RETRY                                                                                                          \
  "{\"tls\": false, \"service_config\": {\"methodConfig\": [{\"name\": [{}], \"retryPolicy\": {\"maxAttempts\": 3, "   \
  "\"initialBackoff\": \"0.001s\", \"maxBackoff\": \"0.001s\", \"backoffMultiplier\": 1, "                             \
  "\"retryableStatusCodes\": [\"ABORTED\"]}}]}}"

TEST(telemetry_has_a_span_for_each_attempt) {
  penstock_channel *channel = NULL;
  OK(penstock_channel_new(peer_address(), RETRY, &channel, NULL));
  penstock_telemetry *telemetry = telemetry_new(NULL);
  telemetry_add(telemetry, channel);
  penstock_reply *reply = ready_unary(channel, "ping", "\"x-status\": \"10\", \"x-message\": \"no\"");
  CHECK_INT(ready_code(reply), PENSTOCK_STATUS_ABORTED);
  char *text = text_of(telemetry, penstock_telemetry_spans_json);
  CHECK_INT(occurrences(text, "\"name\":\"Attempt.penstock.Echo/Unary\""), 3);
  CHECK_INT(occurrences(text, "\"name\":\"Sent.penstock.Echo/Unary\""), 1);
  for (int i = 0; i < 3; i++) {
    char attempt[120];
    snprintf(attempt, sizeof(attempt), "\"previous-rpc-attempts\",\"value\":{\"intValue\":\"%d\"}", i);
    CHECK_HAS(text, attempt);
  }
  /* All attempts are children of the call's span, the last in the list. */
  char *call = text;
  for (char *next = text; (next = strstr(next + 1, "\"spanId\":\""));) call = next;
  char parent[64];
  snprintf(parent, sizeof(parent), "\"parentSpanId\":\"%.16s\"", call + 10);
  CHECK_INT(occurrences(text, parent), 3);
  CHECK_INT(occurrences(text, "\"status\":{\"message\":\"no\",\"code\":2}"), 4);
  penstock_free(text);
  CHECK_TEXT(telemetry, penstock_telemetry_metrics_json, "\"asInt\":\"3\",",
             "{\"count\":\"1\",\"sum\":", "{\"count\":\"3\",\"sum\":12,");
  penstock_channel_release(channel);
  penstock_telemetry_release(telemetry);
}

/* A server that refuses the first stream (REFUSED_STREAM), and answers the second. */
TEST(telemetry_knows_transparent_retries) {
  static const char steps[] = "handshake\nexpect headers\nrst REFUSED_STREAM\nexpect headers\nanswer\n"
                              "data message=\"late\"\ntrailers\n  grpc-status: 0\n";
  char path[] = "/tmp/penstock-telemetry-XXXXXX", address[64];
  int script = mkstemp(path), input;
  REQUIRE(script >= 0);
  CHECK(write(script, steps, strlen(steps)) == (ssize_t)strlen(steps));
  close(script);
  char *const more[] = {"--script", path, NULL};
  int output = start_peer(address, sizeof(address), more, &input);
  unlink(path);
  penstock_channel *channel = NULL;
  OK(penstock_channel_new(address, "{\"tls\": false}", &channel, NULL));
  penstock_telemetry *telemetry = telemetry_new(NULL);
  telemetry_add(telemetry, channel);
  CHECK_INT(ready_code(ready_unary(channel, "x", NULL)), 0);
  char *text = text_of(telemetry, penstock_telemetry_spans_json);
  CHECK_INT(occurrences(text, "\"previous-rpc-attempts\",\"value\":{\"intValue\":\"0\"}"), 2);
  const char *first = strstr(text, "\"transparent-retry\",\"value\":{\"boolValue\":false}"),
             *second = strstr(text, "\"transparent-retry\",\"value\":{\"boolValue\":true}");
  CHECK(first && second && first < second);
  penstock_free(text);
  CHECK_TEXT(telemetry, penstock_telemetry_prometheus_text, "grpc_status=\"UNAVAILABLE\",le=\"+Inf\"} 1\n");
  penstock_channel_release(channel);
  penstock_telemetry_release(telemetry);
  close(input);
  close(output);
}

TEST(telemetry_keeps_no_more_than_its_bounds) {
  penstock_channel *channel = open_channel();
  penstock_telemetry *telemetry = telemetry_new("{\"max_spans\": 3, \"max_methods\": 1}"),
                     *small = telemetry_new("{\"max_span_bytes\": 4096}");
  telemetry_add(telemetry, channel);
  telemetry_add(small, channel);
  for (int i = 0; i < 20; i++) CHECK_INT(unary_code(channel, "ping"), 0);
  exchange(channel, 200);
  CHECK_TEXT(telemetry, penstock_telemetry_stats_json, "\"kept\":3,", "\"dropped\":39,");
  CHECK_TEXT(telemetry, penstock_telemetry_prometheus_text, "{grpc_method=\"other\",grpc_target=\"other\"} 1\n");
  char *text = text_of(small, penstock_telemetry_stats_json);
  const char *bytes = strstr(text, "\"bytes\":");
  REQUIRE(bytes != NULL);
  long kept = strtol(bytes + 8, NULL, 10);
  CHECK(kept > 2048 && kept <= 4096);
  penstock_free(text);
  penstock_free(text_of(telemetry, penstock_telemetry_spans_json));
  exchange(channel, 200);
  text = text_of(telemetry, penstock_telemetry_spans_json);
  CHECK_INT(occurrences(text, "bound message\""), 128);
  CHECK_HAS(text, "\"droppedEventsCount\":272,");
  penstock_free(text);
  penstock_channel_release(channel);
  penstock_telemetry_release(telemetry);
  penstock_telemetry_release(small);
}

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

TEST(telemetry_options_are_checked) {
  static const struct {
    const char *json, *path;
  } cases[] = {
      {"{\"resource\": {\"a\": 1}}", "$.resource.a"},
      {"{\"resource\": []}", "$.resource"},
      {"{\"metrics\": 1}", "$.metrics"},
      {"{\"spans\": null}", "$.spans"},
      {"{\"messages\": \"\"}", "$.messages"},
      {"{\"sampled\": 101}", "$.sampled"},
      {"{\"max_methods\": 0}", "$.max_methods"},
      {"{\"max_spans\": 0}", "$.max_spans"},
      {"{\"max_span_bytes\": 4095}", "$.max_span_bytes"},
      {"{\"span\": true}", "$.span"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    penstock_error *error = NULL;
    penstock_telemetry *telemetry = NULL;
    CHECK_RESULT(penstock_telemetry_new(cases[i].json, &telemetry, &error), PENSTOCK_E_INVALID_JSON);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, cases[i].path, cases[i].path);
    CHECK(telemetry == NULL);
  }
}
