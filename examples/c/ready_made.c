/* The ready-made interceptors except the bearer token: header rules, trace context, logging, metrics, response cache,
 * rate limit, fault injection.
 *
 *     ready_made [TARGET]
 */
#include <penstock/penstock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void need(penstock_result result, penstock_error *error) {
  if (result == PENSTOCK_OK) return;
  fprintf(stderr, "%s\n", error ? penstock_error_message(error) : penstock_result_name(result));
  exit(1);
}

static void print_line(const char *line, size_t length, void *user_data) {
  (void)user_data;
  printf("  %.*s\n", (int)length, line);
}

static penstock_channel *channel;

/* Registers the interceptor that `table` describes. The channel then owns the table's user data. */
static penstock_interceptor_id add(penstock_interceptor *table, int32_t priority) {
  penstock_error *error = NULL;
  penstock_interceptor_id id = 0;
  need(penstock_channel_add_interceptor(channel, table, priority, &id, &error), error);
  return id;
}

static penstock_reply *call(const char *request) {
  penstock_error *error = NULL;
  penstock_call_options *options;
  penstock_reply *reply = NULL;
  need(penstock_call_options_new("{\"metadata\": {\"x-echo-metadata\": \"1\"}}", &options, &error), error);
  need(penstock_channel_unary(channel, "/penstock.Echo/Unary", request, strlen(request), options, &reply, &error),
       error);
  penstock_call_options_release(options);
  return reply;
}

static int32_t code_of(penstock_reply *reply) {
  int32_t code = penstock_reply_code(reply);
  penstock_reply_release(reply);
  return code;
}

int main(int argc, char **argv) {
  penstock_error *error = NULL;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  const void *seen = "";
  int ok = 1;
  need(penstock_channel_new(argc > 1 ? argv[1] : "localhost:50051", "{\"tls\": false}", &channel, &error), error);

  /* The metrics are above all other interceptors, so that they count calls as their callers see them. */
  penstock_metrics *metrics;
  need(penstock_metrics_new("{\"buckets_ms\": [10, 100, 1000]}", &metrics, &error), error);
  need(penstock_ready_metrics(metrics, &table), NULL);
  add(&table, 1000);

  puts("Header rules and a trace; the log is below them, and sees the result:");
  need(penstock_ready_header_rules("{\"request\": [{\"set\": \"x-team\", \"value\": \"blue\"}]}", &table, &error),
       error);
  add(&table, 90);
  need(penstock_ready_trace_context("{\"sampled\": 50}", &table, &error), error);
  add(&table, 80);
  need(penstock_ready_logging("{\"events\": [\"start\", \"status\"]}", print_line, NULL, NULL, &table, &error), error);
  penstock_interceptor_id log = add(&table, -100);
  penstock_reply *reply = call("hello");
  penstock_metadata_get(penstock_reply_trailers(reply), "seen-x-team", 0, &seen, NULL);
  printf("  traceparent: %s\n", (const char *)penstock_reply_value(reply, "penstock.traceparent"));
  ok = ok && strcmp(seen, "blue") == 0;
  penstock_reply_release(reply);
  penstock_registration_remove(log, NULL);

  puts("A cache, for one method:");
  need(penstock_ready_response_cache("{\"ttl_ms\": 60000}", &table, &error), error);
  table.methods = "/penstock.Echo/Unary";
  penstock_interceptor_id cache = add(&table, 10);
  for (int i = 0; i < 2; i++) {
    reply = call("the same");
    const char *hit = penstock_reply_value(reply, "penstock.cache");
    printf("  %s\n", hit ? hit : "miss");
    ok = ok && (hit != NULL) == (i == 1);
    penstock_reply_release(reply);
  }
  penstock_registration_remove(cache, NULL);

  puts("A rate limit without a queue:");
  need(penstock_ready_rate_limit("{\"rate\": 1, \"burst\": 2, \"max_waiting\": 0}", &table, &error), error);
  penstock_interceptor_id limit = add(&table, 0);
  for (int i = 0; i < 3; i++) {
    int32_t code = code_of(call("x"));
    printf("  %s\n", penstock_status_code_name(code));
    ok = ok && code == (i < 2 ? PENSTOCK_STATUS_OK : PENSTOCK_STATUS_RESOURCE_EXHAUSTED);
  }
  penstock_registration_remove(limit, NULL);

  puts("Faults:");
  need(
      penstock_ready_fault_injection("{\"delay\": {\"ms\": 10}, \"abort\": {\"code\": \"DATA_LOSS\"}}", &table, &error),
      error);
  add(&table, 0);
  int32_t code = code_of(call("x"));
  printf("  %s\n", penstock_status_code_name(code));
  ok = ok && code == PENSTOCK_STATUS_DATA_LOSS;

  puts("What was counted:");
  char *text;
  need(penstock_metrics_prometheus_text(metrics, &text), NULL);
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
    if (strncmp(line, "grpc_client_handled_total", 25) == 0) printf("  %s\n", line);
  }
  penstock_free(text);
  penstock_metrics_release(metrics);
  penstock_channel_release(channel);
  return ok ? 0 : 1;
}
