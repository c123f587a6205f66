/* telemetry.h: metrics and spans of OpenTelemetry, their texts and their bounds. test_telemetry_export.c exports them. */
#include "recorded.h"

#include "calls.h"
#include "pool.h"

TEST(telemetry_counts_calls_and_attempts) {
  penstock_channel *channel = open_channel();
  penstock_telemetry *telemetry = telemetry_new("{\"resource\": {\"service.name\": \"shop\", \"a\": \"\\u00e9\"}}");
  telemetry_add(telemetry, channel);
  for (int i = 0; i < 3; i++) CHECK_INT(unary_code(channel, "ping"), 0);
  CHECK_INT(ready_code(ready_unary(channel, "ping", "\"x-status\": \"5\"")), PENSTOCK_STATUS_NOT_FOUND);
  char labels[160], started[200], sent[300];
  snprintf(labels, sizeof(labels), "grpc_method=\"penstock.Echo/Unary\",grpc_target=\"dns:///%s\"", peer_address());
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
  CHECK_INT(occurrences(text, "\"status\":{\"message\":\"ABORTED: no\",\"code\":2}"), 4);
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

/* A hop below that of the call sends it elsewhere. */
static int32_t send_elsewhere(penstock_hop *hop, void *state) {
  (void)state;
  penstock_request *request = penstock_hop_request(hop);
  OK(penstock_request_set_method(request, "/penstock.Echo/Nothing"));
  OK(penstock_request_set_authority(request, "other.example:77"));
  return PENSTOCK_NEXT;
}

TEST(telemetry_spans_have_what_their_hop_was_asked_for) {
  penstock_channel *channel = open_channel();
  penstock_telemetry *telemetry = telemetry_new(NULL);
  telemetry_add(telemetry, channel);
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.on_start = send_elsewhere;
  ready_add(channel, &table, 0);
  CHECK_INT(unary_code(channel, "ping"), PENSTOCK_STATUS_UNIMPLEMENTED);
  char *text = text_of(telemetry, penstock_telemetry_spans_json);
  char *sent = strstr(text, "\"name\":\"Sent.penstock.Echo/Unary\"");
  REQUIRE(sent != NULL);
  CHECK_HAS(text, "\"name\":\"Attempt.penstock.Echo/Nothing\"");
  CHECK_HAS(text, "{\"key\":\"server.address\",\"value\":{\"stringValue\":\"other.example\"}}");
  CHECK_HAS(sent, "{\"key\":\"rpc.method\",\"value\":{\"stringValue\":\"Unary\"}}");
  CHECK_HAS(sent, "{\"key\":\"server.address\",\"value\":{\"stringValue\":\"127.0.0.1\"}}");
  penstock_free(text);
  penstock_channel_release(channel);
  penstock_telemetry_release(telemetry);
}

static int32_t end_call(penstock_hop *hop, void *state) {
  (void)state;
  OK(penstock_hop_end(hop, PENSTOCK_STATUS_PERMISSION_DENIED, "not that"));
  return PENSTOCK_NEXT;
}

/* gRFC A66 has such an attempt end with CANCELLED. */
TEST(telemetry_of_an_attempt_that_a_hop_above_ends) {
  penstock_channel *channel = open_channel();
  penstock_telemetry *telemetry = telemetry_new(NULL);
  telemetry_add(telemetry, channel);
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.on_receive = end_call;
  ready_add(channel, &table, 0);
  CHECK_INT(unary_code(channel, "ping"), PENSTOCK_STATUS_PERMISSION_DENIED);
  char *text = text_of(telemetry, penstock_telemetry_spans_json);
  const char *cancelled = strstr(text, "\"status\":{\"message\":\"CANCELLED\",\"code\":2}"),
             *sent = strstr(text, "\"name\":\"Sent."),
             *denied = strstr(text, "\"status\":{\"message\":\"PERMISSION_DENIED: not that\",\"code\":2}");
  CHECK(cancelled && sent && denied && cancelled < sent && sent < denied);
  penstock_free(text);
  CHECK_TEXT(telemetry, penstock_telemetry_prometheus_text, "attempt_duration_seconds_count{", "=\"CANCELLED\"} 1\n",
             "=\"PERMISSION_DENIED\"} 1\n");
  penstock_channel_release(channel);
  penstock_telemetry_release(telemetry);
}

static int32_t restart(penstock_hop *hop, void *state) {
  (void)state;
  return penstock_hop_can_restart(hop) == PENSTOCK_OK ? PENSTOCK_RESTART : PENSTOCK_NEXT;
}

/* Such a call comes to the hop twice: with a span each time. */
TEST(telemetry_of_a_call_that_a_hop_above_restarts) {
  penstock_channel *channel = open_channel();
  penstock_telemetry *telemetry = telemetry_new(NULL);
  telemetry_add(telemetry, channel);
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.on_status = restart;
  table.max_restarts = 1;
  table.replay_bytes = 1000;
  table.level = PENSTOCK_LEVEL_OBJECT;
  ready_add(channel, &table, 1);
  penstock_reply *reply = ready_unary(channel, "ping", "\"x-status\": \"10\"");
  CHECK_INT(ready_code(reply), PENSTOCK_STATUS_ABORTED);
  char *text = text_of(telemetry, penstock_telemetry_spans_json);
  CHECK_INT(occurrences(text, "\"name\":\"Sent."), 2);
  CHECK_INT(occurrences(text, "\"name\":\"Attempt."), 2);
  CHECK_INT(occurrences(text, "\"status\":{\"message\":\"ABORTED\",\"code\":2}"), 4);
  CHECK_INT(occurrences(text, "\"name\":\"Outbound message\""), 2);
  penstock_free(text);
  CHECK_TEXT(telemetry, penstock_telemetry_prometheus_text, "=\"ABORTED\"} 2\n",
             "grpc_client_call_duration_seconds_count{");
  penstock_channel_release(channel);
  penstock_telemetry_release(telemetry);
}

TEST(telemetry_counts_compressed_bytes) {
  penstock_channel *channel = NULL;
  OK(penstock_channel_new(peer_address(), "{\"tls\": false, \"compression\": \"gzip\"}", &channel, NULL));
  penstock_telemetry *telemetry = telemetry_new(NULL);
  telemetry_add(telemetry, channel);
  char request[8001];
  memset(request, 'a', 8000);
  request[8000] = 0;
  CHECK_INT(unary_code(channel, request), 0);
  CHECK_TEXT(telemetry, penstock_telemetry_spans_json, "{\"key\":\"message-size\",\"value\":{\"intValue\":\"8000\"}}");
  char *text = text_of(telemetry, penstock_telemetry_prometheus_text);
  const char *sum = strstr(text, "\ngrpc_client_attempt_sent_total_compressed_message_size_bytes_sum{");
  const char *value = sum ? strstr(sum, "} ") : NULL;
  REQUIRE(value != NULL);
  long sent = strtol(value + 2, NULL, 10);
  CHECK(sent > 0 && sent < 1000);
  penstock_free(text);
  penstock_channel_release(channel);
  penstock_telemetry_release(telemetry);
}

/* The status comes on one lane while messages are sent on the other. */
TEST(telemetry_on_executors) {
  enum { CALLS = 40 };
  pool out, in;
  pool_open(&out, 2);
  pool_open(&in, 2);
  penstock_channel *channel = open_channel();
  penstock_telemetry *telemetry = telemetry_new(NULL);
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  OK(penstock_ready_telemetry(telemetry, &table, NULL));
  table.outbound_executor = out.executor;
  table.inbound_executor = in.executor;
  ready_add(channel, &table, 0);
  for (int i = 0; i < CALLS; i++) {
    if (i % 2) {
      exchange(channel, 20);
      continue;
    }
    penstock_call *call = start_with(channel, BIDI, PENSTOCK_KIND_BIDI, NULL);
    for (int n = 0; n < 20; n++) OK(penstock_call_send(call, "x", 1));
    CHECK_MESSAGE(call, "x");
    OK(penstock_call_cancel(call, NULL));
    CHECK_FINISH(call, PENSTOCK_STATUS_CANCELLED);
    penstock_call_release(call);
  }
  /* destroy may come later than the reply. */
  EVENTUALLY(telemetry_has(telemetry, penstock_telemetry_stats_json, "\"kept\":80,"));
  char *text = text_of(telemetry, penstock_telemetry_spans_json);
  CHECK_INT(occurrences(text, "\"status\":{\"code\":1},"), CALLS);
  CHECK_INT(occurrences(text, "\"name\":\"Attempt."), CALLS);
  CHECK(occurrences(text, "\"name\":\"Inbound message\"") >= 21 * CALLS / 2);
  penstock_free(text);
  CHECK_TEXT(telemetry, penstock_telemetry_prometheus_text, "grpc_status=\"CANCELLED\"} 20\n",
             "grpc_status=\"OK\"} 20\n");
  penstock_channel_release(channel);
  penstock_telemetry_release(telemetry);
  pool_close(&out);
  pool_close(&in);
}

TEST(telemetry_escapes_labels) {
  penstock_channel *channel = NULL;
  OK(penstock_channel_new("unix:/nowhere/a\n\"b\xff", "{\"tls\": false}", &channel, NULL));
  penstock_telemetry *telemetry = telemetry_new(NULL);
  telemetry_add(telemetry, channel);
  CHECK_INT(unary_code(channel, "ping"), PENSTOCK_STATUS_UNAVAILABLE);
  CHECK_TEXT(telemetry, penstock_telemetry_prometheus_text, "grpc_target=\"unix:/nowhere/a\\n\\\"b\xef\xbf\xbd\"} 1\n");
  CHECK_TEXT(telemetry, penstock_telemetry_metrics_json, "\"unix:/nowhere/a\\u000a\\\"b\xef\xbf\xbd\"");
  penstock_channel_release(channel);
  penstock_telemetry_release(telemetry);
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
