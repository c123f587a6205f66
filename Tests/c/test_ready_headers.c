/* ready.h: header rules; and tests for all ready-made interceptors. */
#include "ready.h"

static void rules_add(penstock_channel *channel, const char *options) {
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_error *error = NULL;
  OK(penstock_ready_header_rules(options, &table, &error));
  if (error) printf("  %s\n", penstock_error_message(error));
  penstock_error_release(error);
  ready_add(channel, &table, 0);
}

TEST(header_rules_change_the_request) {
  penstock_channel *channel = open_channel();
  rules_add(channel, "{\"request\": ["
                     "{\"set\": \"X-Set\", \"value\": \"new\"},"
                     "{\"add\": \"x-add\", \"value\": \"two\"},"
                     "{\"remove\": \"x-remove\"},"
                     "{\"rename\": \"x-old\", \"to\": \"x-new\"},"
                     "{\"rename\": \"x-absent\", \"to\": \"x-none\"},"
                     "{\"set\": \"x-raw-bin\", \"value\": \"AAH+\"}]}");
  penstock_reply *reply =
      ready_unary(channel, "x",
                  "\"x-echo-metadata\": \"1\", \"x-set\": [\"1\", \"2\"], \"x-add\": \"one\", \"x-remove\": \"gone\", "
                  "\"x-old\": [\"a\", \"b\"], \"x-new\": \"before\"");
  char *json = NULL;
  OK(penstock_metadata_json(penstock_reply_trailers(reply), &json));
  CHECK_HAS(json, "\"seen-x-set\":[\"new\"]");
  CHECK_HAS(json, "\"seen-x-add\":[\"one\",\"two\"]");
  CHECK_HAS(json, "\"seen-x-new\":[\"before\",\"a\",\"b\"]");
  CHECK_HAS(json, "\"seen-x-raw-bin\":[\"AAH+\"]");
  CHECK(strstr(json, "x-remove") == NULL);
  CHECK(strstr(json, "x-old") == NULL);
  CHECK(strstr(json, "x-none") == NULL);
  penstock_free(json);
  penstock_reply_release(reply);
  penstock_channel_release(channel);
}

TEST(header_rules_change_the_response) {
  penstock_channel *channel = open_channel();
  rules_add(channel, "{\"headers\": [{\"rename\": \"x-headers-a\", \"to\": \"a\"}, {\"add\": \"b\", \"value\": \"\"}],"
                     " \"trailers\": [{\"remove\": \"x-trailers-c\"}, {\"set\": \"d\", \"value\": \"4\"}]}");
  penstock_reply *reply = ready_unary(channel, "x", "\"x-headers-a\": \"1\", \"x-trailers-c\": \"3\"");
  CHECK_STR(ready_value(penstock_reply_headers(reply), "a"), "1");
  CHECK_STR(ready_value(penstock_reply_headers(reply), "x-headers-a"), "");
  const void *empty = NULL;
  OK(penstock_metadata_get(penstock_reply_headers(reply), "b", 0, &empty, NULL));
  CHECK_STR(ready_value(penstock_reply_trailers(reply), "d"), "4");
  CHECK_STR(ready_value(penstock_reply_trailers(reply), "x-trailers-c"), "");
  CHECK_INT(ready_code(reply), 0);
  /* The rules for trailers do not apply to the status of a cancel, which no hop may change. */
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_call_cancel(call, NULL));
  reply = ready_finish(call);
  CHECK_STR(ready_value(penstock_reply_trailers(reply), "d"), "");
  CHECK_INT(ready_code(reply), PENSTOCK_STATUS_CANCELLED);
  penstock_channel_release(channel);
}

TEST(header_rules_are_checked) {
  static const struct {
    const char *json, *path;
  } cases[] = {
      {"{\"request\": {}}", "$.request"},
      {"{\"request\": [{}]}", "$.request[0]"},
      {"{\"request\": [{\"set\": \"a\"}]}", "$.request[0]"},
      {"{\"request\": [{\"remove\": \"a\", \"value\": \"1\"}]}", "$.request[0]"},
      {"{\"request\": [{\"rename\": \"a\"}]}", "$.request[0]"},
      {"{\"request\": [{\"rename\": \"a\", \"to\": \"a\"}]}", "$.request[0]"},
      {"{\"request\": [{\"rename\": \"a\", \"to\": \"a-bin\"}]}", "$.request[0]"},
      {"{\"request\": [{\"remove\": \"a\", \"to\": \"b\"}]}", "$.request[0]"},
      {"{\"request\": [{\"set\": \"a b\", \"value\": \"\"}]}", "$.request[0].set"},
      {"{\"request\": [{\"set\": \"grpc-timeout\", \"value\": \"1S\"}]}", "$.request[0].set"},
      {"{\"request\": [{\"set\": \"user-agent\", \"value\": \"me\"}]}", "$.request[0].set"},
      {"{\"request\": [{\"rename\": \"a\", \"to\": \":path\"}]}", "$.request[0].to"},
      {"{\"request\": [{\"set\": \"a\", \"value\": \"b\\n\"}]}", "$.request[0].value"},
      {"{\"request\": [{\"set\": \"a\", \"value\": 1}]}", "$.request[0].value"},
      {"{\"request\": [{\"set\": \"a-bin\", \"value\": \"?\"}]}", "$.request[0].value"},
      {"{\"trailers\": [{\"remove\": \"a\"}, {\"delete\": \"a\"}]}", "$.trailers[1].delete"},
      {"{\"response\": []}", "$.response"},
      {"", "$"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    penstock_error *error = NULL;
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    if (!CHECK_RESULT(penstock_ready_header_rules(cases[i].json, &table, &error), PENSTOCK_E_INVALID_JSON)) {
      printf("  %s\n", cases[i].json);
    }
    CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, cases[i].path, cases[i].path);
  }
  penstock_error *error = NULL;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  CHECK_RESULT(
      penstock_ready_header_rules("{\"request\": [{\"set\": \"a\", \"add\": \"b\", \"value\": \"\"}]}", &table, &error),
      PENSTOCK_E_INVALID_JSON);
  CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, NULL, "a rule does one thing only");
}

/* ---- All of them ---- */

TEST(ready_tables_are_freed_without_being_registered) {
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT, other = PENSTOCK_INTERCEPTOR_INIT;
  OK(penstock_ready_header_rules(NULL, &table, NULL));
  CHECK_STR(table.name, "header_rules");
  CHECK(table.on_start == NULL && table.on_headers == NULL && table.on_status == NULL);
  CHECK_INT(table.struct_size, sizeof(table));
  OK(penstock_ready_share(&table, &other));
  CHECK(other.user_data == table.user_data);
  ready_drop(&table);
  ready_drop(&other);
}

static int32_t just_next(penstock_hop *call, void *user_data) {
  (void)user_data;
  return penstock_hop_next(call) == PENSTOCK_OK ? PENSTOCK_NEXT : -1;
}

/* Other tables that the library fills have similar finalizers, but are not ready-made interceptors. */
TEST(ready_share_refuses_other_tables) {
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT, other = PENSTOCK_INTERCEPTOR_INIT;
  penstock_sync_interceptor synchronous = PENSTOCK_SYNC_INTERCEPTOR_INIT;
  synchronous.intercept = just_next;
  OK(penstock_sync_interceptor_table(&synchronous, &table, NULL));
  CHECK_RESULT(penstock_ready_share(&table, &other), PENSTOCK_E_INVALID_ARGUMENT);
  ready_drop(&table);
  penstock_interceptor empty = PENSTOCK_INTERCEPTOR_INIT;
  penstock_async_interceptor asynchronous = PENSTOCK_ASYNC_INTERCEPTOR_INIT;
  table = empty;
  OK(penstock_async_interceptor_table(&asynchronous, &table, NULL));
  CHECK_RESULT(penstock_ready_share(&table, &other), PENSTOCK_E_INVALID_ARGUMENT);
  ready_drop(&table);
  CHECK(other.user_data == NULL);
}

TEST(ready_tables_take_a_name_a_filter_and_any_place) {
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_channel *channel = open_channel_on(runtime);
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_interceptor_id id = 0;
  char *json = NULL;
  OK(penstock_ready_header_rules("{\"headers\": [{\"set\": \"seen\", \"value\": \"1\"}]}", &table, NULL));
  table.name = "mine";
  table.methods = UNARY;
  OK(penstock_runtime_add_interceptor(runtime, &table, 5, &id, NULL));
  OK(penstock_channel_interceptors_json(channel, &json));
  CHECK_HAS(json, "\"name\":\"mine\"");
  penstock_free(json);
  penstock_reply *reply = ready_unary(channel, "x", NULL);
  CHECK_STR(ready_value(penstock_reply_headers(reply), "seen"), "1");
  penstock_reply_release(reply);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  reply = ready_finish(call);
  CHECK_STR(ready_value(penstock_reply_headers(reply), "seen"), "");
  penstock_reply_release(reply);
  OK(penstock_registration_remove(id, NULL));
  penstock_channel_release(channel);
  penstock_runtime_release(runtime);
}

/* Functions of the host program for a test that runs the callbacks of all ready-made interceptors on an executor. */
static void give_token(penstock_token_request request, const char *refused, void *user_data) {
  (void)refused, (void)user_data;
  OK(penstock_token_complete(request, "token", -1));
}
static void count_line(const char *line, size_t length, void *user_data) {
  (void)line, (void)length;
  atomic_fetch_add((atomic_int *)user_data, 1);
}
TEST(ready_tables_run_on_executors) {
  enum { calls = 30 };
  penstock_channel *channel = open_channel();
  penstock_executor *executor = NULL;
  penstock_metrics *metrics = NULL;
  penstock_interceptor tables[7];
  for (int i = 0; i < 7; i++) tables[i] = (penstock_interceptor)PENSTOCK_INTERCEPTOR_INIT;
  atomic_int lines = 0;
  REQUIRE_OK(penstock_executor_new_serial(&executor));
  OK(penstock_metrics_new(NULL, &metrics, NULL));
  OK(penstock_ready_metrics(metrics, &tables[0]));
  OK(penstock_ready_trace_context(NULL, &tables[1], NULL));
  OK(penstock_ready_response_cache("{\"max_entries\": 4}", &tables[2], NULL));
  OK(penstock_ready_rate_limit("{\"rate\": 1000, \"burst\": 5, \"max_wait_ms\": 60000}", &tables[3], NULL));
  OK(penstock_ready_bearer_token("{\"allow_cleartext\": true}", give_token, NULL, NULL, &tables[4], NULL));
  OK(penstock_ready_fault_injection("{\"delay\": {\"ms\": 1, \"percent\": 20}}", &tables[5], NULL));
  OK(penstock_ready_logging("{\"events\": [\"start\", \"receive\", \"status\"]}", count_line, &lines, NULL, &tables[6],
                            NULL));
  for (int i = 0; i < 7; i++) {
    tables[i].outbound_executor = executor;
    tables[i].inbound_executor = i % 2 ? executor : NULL;
    ready_add(channel, &tables[i], -i);
  }
  penstock_executor_release(executor);
  int hits = 0;
  for (int round = 0; round < 3; round++) {
    penstock_call *call[calls];
    for (int i = 0; i < calls; i++) {
      char request[16];
      snprintf(request, sizeof(request), "%d", i % 6);
      call[i] = ready_begin(channel, request, "\"x-echo-metadata\": \"1\"");
    }
    for (int i = 0; i < calls; i++) {
      char request[16];
      snprintf(request, sizeof(request), "%d", i % 6);
      penstock_reply *reply = ready_finish(call[i]);
      CHECK(ready_message_is(reply, request));
      CHECK_STR(ready_value(penstock_reply_trailers(reply), "seen-authorization"), "Bearer token");
      hits += penstock_reply_value(reply, "penstock.cache") != NULL;
      CHECK_INT(ready_code(reply), 0);
    }
  }
  CHECK(hits > 0);
  char *json = NULL;
  OK(penstock_metrics_snapshot_json(metrics, &json));
  CHECK_HAS(json, "\"started\":90,\"in_flight\":0,");
  penstock_free(json);
  CHECK_INT(atomic_load(&lines), 3 * (90 - hits));
  penstock_metrics_release(metrics);
  penstock_channel_release(channel);
}
