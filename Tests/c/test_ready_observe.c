/* ready.h: logging and metrics. */
#include "ready.h"

/* ---- Logging ---- */

typedef struct lines {
  pthread_mutex_t mutex;
  int count;
  char text[64][1024];
  atomic_int finalized;
} lines;

static void keep_line(const char *line, size_t length, void *user_data) {
  lines *self = user_data;
  CHECK_INT(strlen(line), length);
  CHECK(strchr(line, '\n') == NULL);
  pthread_mutex_lock(&self->mutex);
  if (self->count < 64) snprintf(self->text[self->count++], sizeof(self->text[0]), "%s", line);
  pthread_mutex_unlock(&self->mutex);
}
static void lines_finalize(void *user_data) { atomic_fetch_add(&((lines *)user_data)->finalized, 1); }

static lines *lines_new(void) {
  lines *self = calloc(1, sizeof(*self));
  pthread_mutex_init(&self->mutex, NULL);
  return self;
}

static void logging_add(penstock_channel *channel, lines *lines, const char *options) {
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_error *error = NULL;
  OK(penstock_ready_logging(options, keep_line, lines, lines_finalize, &table, &error));
  if (error) printf("  %s\n", penstock_error_message(error));
  penstock_error_release(error);
  ready_add(channel, &table, 0);
}

static void logging_end(penstock_channel *channel, lines *lines) {
  penstock_channel_release(channel);
  EVENTUALLY(atomic_load(&lines->finalized) == 1);
  free(lines);
}

TEST(logging_writes_json_lines) {
  penstock_channel *channel = open_channel();
  lines *lines = lines_new();
  logging_add(channel, lines, NULL);
  penstock_reply *reply =
      ready_unary(channel, "ping",
                  "\"x-status\": \"5\", \"x-message\": \"say \\\"no\\\"\", \"x-a\": [\"1\", \"2\"], "
                  "\"x-b-bin\": \"AAH+\", \"authorization\": \"Bearer s3cret\"");
  penstock_reply_release(reply);
  if (CHECK_INT(lines->count, 2)) {
    CHECK_HAS(lines->text[0], "\"event\":\"start\"");
    CHECK_HAS(lines->text[0], "\"method\":\"/penstock.Echo/Unary\"");
    CHECK_HAS(lines->text[0], "\"kind\":\"unary\"");
    CHECK_HAS(lines->text[0], "\"target\":\"127.0.0.1:");
    CHECK_HAS(lines->text[0], "\"x-a\":[\"1\",\"2\"]");
    CHECK_HAS(lines->text[0], "\"x-b-bin\":[\"AAH+\"]");
    CHECK_HAS(lines->text[0], "\"authorization\":[\"redacted\"]");
    CHECK(strstr(lines->text[0], "s3cret") == NULL);
    CHECK_HAS(lines->text[1], "\"event\":\"status\"");
    CHECK_HAS(lines->text[1], "\"code\":5,\"name\":\"NOT_FOUND\",\"message\":\"say \\\"no\\\"\"");
    CHECK_HAS(lines->text[1], "\"elapsed_us\":");
    CHECK_HAS(lines->text[1], "\"attempts\":1,\"waited_us\":{\"name\":");
    char peer[96];
    snprintf(peer, sizeof(peer), "\"peer\":\"%s\"", peer_address());
    CHECK_HAS(lines->text[1], peer);
    /* Checks that the metadata, at the end of each line, can be parsed as JSON. */
    penstock_metadata *metadata = NULL;
    OK(penstock_metadata_new(&metadata));
    for (int i = 0; i < 2; i++) {
      penstock_error *error = NULL;
      char *start = strstr(lines->text[i], "\"metadata\":");
      REQUIRE(start != NULL);
      start += strlen("\"metadata\":");
      start[strlen(start) - 1] = 0;
      if (!OK(penstock_metadata_set_json(metadata, start, &error))) printf("  %s\n", penstock_error_message(error));
      penstock_error_release(error);
    }
    penstock_metadata_release(metadata);
  }
  logging_end(channel, lines);
}

TEST(logging_of_chosen_events) {
  penstock_channel *channel = open_channel();
  lines *lines = lines_new(), *others = lines_new();
  logging_add(channel, lines,
              "{\"events\": [\"send\", \"half_close\", \"headers\", \"receive\"], \"redact\": [\"X-Headers-Secret\"]}");
  logging_add(channel, others, "{\"events\": [\"send\", \"status\"], \"messages\": \"none\", \"metadata\": false}");
  penstock_reply_release(ready_unary(channel, "ping", "\"x-headers-secret\": \"hush\", \"x-headers-open\": \"a b\""));
  if (CHECK_INT(lines->count, 4)) {
    CHECK_HAS(lines->text[0], "\"event\":\"send\"");
    CHECK_HAS(lines->text[0], "\"bytes\":4");
    CHECK_HAS(lines->text[1], "\"event\":\"half_close\"");
    CHECK_HAS(lines->text[2], "\"event\":\"headers\"");
    CHECK_HAS(lines->text[2], "\"x-headers-secret\":[\"redacted\"]");
    CHECK_HAS(lines->text[3], "\"event\":\"receive\"");
    CHECK_HAS(lines->text[3], "\"bytes\":4");
  }
  if (CHECK_INT(others->count, 2)) {
    CHECK(strstr(others->text[0], "bytes") == NULL);
    CHECK(strstr(others->text[1], "metadata") == NULL);
  }
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_call_cancel(call, "enough"));
  CHECK_INT(ready_code(ready_finish(call)), PENSTOCK_STATUS_CANCELLED);
  penstock_channel_release(channel);
  EVENTUALLY(atomic_load(&lines->finalized) && atomic_load(&others->finalized));
  CHECK_HAS(others->text[others->count - 1], "\"name\":\"CANCELLED\",\"message\":\"enough\"");
  free(lines);
  free(others);
}

TEST(logging_options_are_checked) {
  static const struct {
    const char *json, *path;
  } cases[] = {
      {"{\"events\": [\"start\", \"end\"]}", "$.events[1]"},
      {"{\"events\": \"start\"}", "$.events"},
      {"{\"redact\": [\"a b\"]}", "$.redact[0]"},
      {"{\"redact_binary\": \"yes\"}", "$.redact_binary"},
      {"{\"metadata\": 1}", "$.metadata"},
      {"{\"messages\": \"all\"}", "$.messages"},
      {"{\"channel\": \"fatal\"}", "$.channel"},
      {"{\"level\": 1}", "$.level"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    penstock_error *error = NULL;
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    lines *lines = lines_new();
    CHECK_RESULT(penstock_ready_logging(cases[i].json, keep_line, lines, lines_finalize, &table, &error),
                 PENSTOCK_E_INVALID_JSON);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, cases[i].path, cases[i].path);
    CHECK_INT(atomic_load(&lines->finalized), 1);
    free(lines);
  }
}

/* ---- Metrics ---- */

static char *snapshot(penstock_metrics *metrics) {
  char *json = NULL;
  OK(penstock_metrics_snapshot_json(metrics, &json));
  return json;
}
static char *prometheus(penstock_metrics *metrics) {
  char *text = NULL;
  OK(penstock_metrics_prometheus_text(metrics, &text));
  return text;
}

static penstock_metrics *metrics_add(penstock_channel *channel, const char *options) {
  penstock_metrics *metrics = NULL;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_error *error = NULL;
  OK(penstock_metrics_new(options, &metrics, &error));
  if (error) printf("  %s\n", penstock_error_message(error));
  penstock_error_release(error);
  OK(penstock_ready_metrics(metrics, &table));
  ready_add(channel, &table, 0);
  return metrics;
}

TEST(metrics_count_calls_messages_and_codes) {
  penstock_channel *channel = open_channel();
  penstock_metrics *metrics = metrics_add(channel, NULL);
  char *json = snapshot(metrics), *text = NULL;
  CHECK_STR(json, "{\"methods\":[],\"peers\":[]}");
  penstock_free(json);
  for (int i = 0; i < 3; i++) CHECK_INT(unary_code(channel, "ping"), 0);
  CHECK_INT(ready_code(ready_unary(channel, "x", "\"x-status\": \"5\"")), PENSTOCK_STATUS_NOT_FOUND);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  penstock_message *message = NULL;
  OK(penstock_call_send(call, "x", 1));
  if (OK(penstock_call_receive(call, &message))) penstock_message_release(message);
  json = snapshot(metrics);
  char expected[512];
  snprintf(expected, sizeof(expected),
           "\"method\":\"/penstock.Echo/Unary\",\"target\":\"%s\",\"kind\":", peer_address());
  CHECK_HAS(json, expected);
  snprintf(expected, sizeof(expected),
           "\"peers\":[{\"target\":\"%s\",\"peer\":\"%s\",\"codes\":[{\"code\":0,\"name\":\"OK\",\"count\":3},"
           "{\"code\":5,\"name\":\"NOT_FOUND\",\"count\":1}],\"connections\":{\"opened\":1,\"lost\":0,\"failed\":0}}]",
           peer_address(), peer_address());
  CHECK_HAS(json, expected);
  CHECK_HAS(json, "\"kind\":\"unary\",\"started\":4,\"in_flight\":0,\"sent\":"
                  "{\"messages\":4,\"bytes\":13},\"received\":{\"messages\":3,\"bytes\":12},\"codes\":[{\"code\":0,"
                  "\"name\":\"OK\",\"count\":3,\"seconds\":");
  CHECK_HAS(json, "\"code\":5,\"name\":\"NOT_FOUND\",\"count\":1,");
  CHECK_HAS(json, "{\"le_ms\":null,\"count\":3}]}");
  CHECK_HAS(json, "\"kind\":\"bidi\",\"started\":1,\"in_flight\":1,");
  penstock_free(json);
  CHECK_INT(ready_code(ready_finish(call)), 0);
  text = prometheus(metrics);
  CHECK_HAS(text, "# TYPE grpc_client_started_total counter\n");
  CHECK_HAS(text, "# TYPE grpc_client_handling_seconds histogram\n");
  char unary[128], peer[128];
  snprintf(unary, sizeof(unary),
           "{grpc_type=\"unary\",grpc_service=\"penstock.Echo\",grpc_method=\"Unary\",grpc_target=\"%s\"",
           peer_address());
  snprintf(peer, sizeof(peer), "{grpc_target=\"%s\",grpc_peer=\"%s\"", peer_address(), peer_address());
  static const char *const samples[] = {
      "\ngrpc_client_started_total%s} 4\n",
      "\ngrpc_client_handled_total%s,grpc_code=\"OK\"} 3\n",
      "\ngrpc_client_handled_total%s,grpc_code=\"NOT_FOUND\"} 1\n",
      "\ngrpc_client_msg_sent_total%s} 4\n",
      "\ngrpc_client_msg_received_total%s} 3\n",
      "\ngrpc_client_handling_seconds_bucket%s,grpc_code=\"OK\",le=\"0.005\"} ",
      "\ngrpc_client_handling_seconds_bucket%s,grpc_code=\"OK\",le=\"2.5\"} ",
      "\ngrpc_client_handling_seconds_bucket%s,grpc_code=\"OK\",le=\"+Inf\"} 3\n",
      "\ngrpc_client_handling_seconds_sum%s,grpc_code=\"OK\"} 0.",
      "\ngrpc_client_handling_seconds_count%s,grpc_code=\"OK\"} 3\n",
      "\ngrpc_client_in_flight%s} 0\n",
      "\ngrpc_client_peer_handled_total%s,grpc_code=\"NOT_FOUND\"} 1\n",
      "\ngrpc_client_connections_opened_total%s} 1\n",
      "\ngrpc_client_connections_lost_total%s} 0\n",
      "\ngrpc_client_connect_failures_total%s} 0\n",
  };
  for (size_t i = 0; i < sizeof(samples) / sizeof(*samples); i++) {
    char sample[256];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    snprintf(sample, sizeof(sample), samples[i], i > 10 ? peer : unary);
#pragma GCC diagnostic pop
    CHECK_HAS(text, sample);
  }
  CHECK_HAS(text, "{grpc_type=\"bidi_stream\",grpc_service=\"penstock.Echo\",grpc_method=\"Bidi\",grpc_target=\"");
  penstock_free(text);
  penstock_channel_release(channel);
  penstock_metrics_release(metrics);
}

static int32_t deny(penstock_hop *hop, void *state) {
  (void)state;
  OK(penstock_hop_end(hop, PENSTOCK_STATUS_PERMISSION_DENIED, "not for you"));
  return PENSTOCK_NEXT;
}

/* A call that a hop above ends counts, and is logged, with the status that this hop has given. */
TEST(a_hop_above_denies_the_answer) {
  penstock_channel *channel = open_channel();
  penstock_metrics *metrics = metrics_add(channel, NULL);
  lines *lines = lines_new();
  logging_add(channel, lines, NULL);
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.on_headers = deny;
  ready_add(channel, &table, 1);
  CHECK_INT(unary_code(channel, "ping"), PENSTOCK_STATUS_PERMISSION_DENIED);
  char *json = snapshot(metrics), *text = prometheus(metrics);
  CHECK_HAS(json, "\"started\":1,\"in_flight\":0,");
  CHECK_HAS(json, "\"codes\":[{\"code\":7,\"name\":\"PERMISSION_DENIED\",\"count\":1,");
  CHECK_HAS(text, "grpc_code=\"PERMISSION_DENIED\"} 1\n");
  CHECK(strstr(text, "CANCELLED") == NULL);
  penstock_free(json);
  penstock_free(text);
  if (CHECK_INT(lines->count, 3)) {
    CHECK_HAS(lines->text[2], "\"event\":\"cancel\"");
    CHECK_HAS(lines->text[2], "\"name\":\"PERMISSION_DENIED\",\"message\":\"not for you\"");
  }
  penstock_metrics_release(metrics);
  logging_end(channel, lines);
}

static int64_t number_after(const char *text, const char *label) {
  const char *found = strstr(text, label);
  return found ? strtoll(found + strlen(label), NULL, 10) : -1;
}

TEST(metrics_sort_calls_into_buckets) {
  penstock_channel *channel = open_channel();
  penstock_metrics *metrics = metrics_add(channel, "{\"buckets_ms\": [40, 20000, 40000]}");
  CHECK_INT(ready_code(ready_unary(channel, "x", "\"x-delay-ms\": \"60\"")), 0);
  CHECK_INT(ready_code(ready_unary(channel, "x", "\"x-delay-ms\": \"60\"")), 0);
  char *json = snapshot(metrics);
  CHECK_INT(number_after(json, "{\"le_ms\":40,\"count\":"), 0);
  CHECK_INT(number_after(json, "{\"le_ms\":40000,\"count\":"), 2);
  CHECK_INT(number_after(json, "{\"le_ms\":null,\"count\":"), 2);
  CHECK(strtod(strstr(json, "\"seconds\":") + 10, NULL) >= 0.119);
  penstock_free(json);
  char *text = prometheus(metrics);
  CHECK_HAS(text, "le=\"0.04\"} 0\n");
  CHECK_HAS(text, "le=\"40\"} 2\n");
  penstock_free(text);
  penstock_channel_release(channel);
  penstock_metrics_release(metrics);
}

TEST(metrics_of_more_methods_than_there_is_room_for) {
  penstock_channel *channel = open_channel();
  penstock_metrics *metrics = metrics_add(channel, "{\"max_methods\": 2}");
  for (int i = 0; i < 10; i++) {
    char method[64];
    penstock_reply *reply = NULL;
    snprintf(method, sizeof(method), "/none.Such/\"%d\\", i);
    if (OK(penstock_channel_unary(channel, method, "x", 1, NULL, &reply, NULL))) {
      CHECK_INT(ready_code(reply), PENSTOCK_STATUS_UNIMPLEMENTED);
    }
  }
  char *json = snapshot(metrics), *text = prometheus(metrics);
  CHECK_HAS(json, "{\"method\":\"/none.Such/\\\"1\\\\\",\"target\":\"");
  CHECK_HAS(json, "{\"method\":\"other\",\"target\":\"other\",\"kind\":\"unary\",\"started\":8,");
  CHECK_HAS(text, "grpc_service=\"none.Such\",grpc_method=\"\\\"1\\\\\",grpc_target=\"");
  CHECK_HAS(text, "grpc_client_started_total{grpc_type=\"unary\",grpc_service=\"other\",grpc_method=\"other\","
                  "grpc_target=\"other\"} 8\n");
  penstock_free(json);
  penstock_free(text);
  penstock_channel_release(channel);
  penstock_metrics_release(metrics);
}

typedef struct reader {
  penstock_metrics *metrics;
  atomic_bool stop;
  int64_t last;
} reader;
static void *read_on(void *argument) {
  reader *self = argument;
  while (!atomic_load(&self->stop)) {
    char *text = prometheus(self->metrics), *json = snapshot(self->metrics);
    char label[256];
    snprintf(label, sizeof(label),
             "\ngrpc_client_started_total{grpc_type=\"unary\",grpc_service=\"penstock.Echo\",grpc_method=\"Unary\","
             "grpc_target=\"%s\"} ",
             peer_address());
    int64_t seen = number_after(text, label);
    CHECK(seen >= self->last);
    if (seen > self->last) self->last = seen;
    penstock_free(text);
    penstock_free(json);
  }
  return NULL;
}
TEST(metrics_are_read_while_calls_run_on_two_runtimes) {
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_channel *channels[2] = {open_channel(), open_channel_on(runtime)};
  reader reader = {metrics_add(channels[0], NULL), false, -1};
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  OK(penstock_ready_metrics(reader.metrics, &table));
  ready_add(channels[1], &table, 0);
  pthread_t thread;
  pthread_create(&thread, NULL, read_on, &reader);
  for (int round = 0; round < 10; round++) {
    penstock_call *call[40];
    for (int i = 0; i < 40; i++) call[i] = ready_begin(channels[i % 2], "x", NULL);
    for (int i = 0; i < 40; i++) CHECK_INT(ready_code(ready_finish(call[i])), 0);
  }
  atomic_store(&reader.stop, true);
  pthread_join(thread, NULL);
  char *json = snapshot(reader.metrics);
  CHECK_HAS(json, "\"started\":400,\"in_flight\":0,");
  penstock_free(json);
  penstock_channel_release(channels[0]);
  penstock_channel_release(channels[1]);
  penstock_runtime_release(runtime);
  CHECK(penstock_metrics_retain(reader.metrics) == reader.metrics);
  penstock_metrics_release(reader.metrics);
  penstock_metrics_release(reader.metrics);
}

TEST(metrics_options_are_checked) {
  static const struct {
    const char *json, *path;
  } cases[] = {
      {"{\"buckets_ms\": [5, 5]}", "$.buckets_ms[1]"}, {"{\"buckets_ms\": [0]}", "$.buckets_ms[0]"},
      {"{\"buckets_ms\": 5}", "$.buckets_ms"},         {"{\"max_methods\": 0}", "$.max_methods"},
      {"{\"max_peers\": 65537}", "$.max_peers"},       {"{\"buckets\": []}", "$.buckets"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    penstock_error *error = NULL;
    penstock_metrics *metrics = NULL;
    CHECK_RESULT(penstock_metrics_new(cases[i].json, &metrics, &error), PENSTOCK_E_INVALID_JSON);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, cases[i].path, cases[i].path);
    CHECK(metrics == NULL);
  }
}
