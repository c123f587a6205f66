/* Scenarios with calls to the peer through ready-made interceptors. */
#include "failing.h"

#include <stdio.h>
#include <string.h>

static void give_token(penstock_token_request request, const char *refused, void *user_data) {
  (void)refused, (void)user_data;
  if (!WENT(penstock_token_complete(request, "a-token", 60000))) penstock_token_fail(request, 14, "no memory");
}

static void ignore_line(const char *line, size_t length, void *user_data) {
  (void)user_data;
  if (strlen(line) != length || line[0] != '{' || line[length - 1] != '}') wrong("no line: %s", line);
}

static void ready(void) {
  penstock_runtime *runtime = new_runtime();
  penstock_channel *channel = new_channel(runtime, peer, "{\"tls\": false}");
  penstock_error *error = NULL;
  penstock_metrics *metrics = NULL;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_interceptor_id id = 0;
  int32_t priority = 100;
#define ADD(call)                                                                                                      \
  if (channel && TRY(call)) TRY(penstock_channel_add_interceptor(channel, &table, priority--, &id, &error))
  if (channel && TRY(penstock_metrics_new(NULL, &metrics, &error))) ADD(penstock_ready_metrics(metrics, &table));
  penstock_telemetry *telemetry = NULL;
  if (channel && TRY(penstock_telemetry_new("{\"resource\": {\"service.name\": \"tests\"}}", &telemetry, &error)))
    ADD(penstock_ready_telemetry(telemetry, &table, &error));
  ADD(penstock_ready_trace_context(NULL, &table, &error));
  ADD(penstock_ready_response_cache("{\"metadata\": [\"x-one\"]}", &table, &error));
  ADD(penstock_ready_rate_limit("{\"rate\": 1000}", &table, &error));
  ADD(penstock_ready_bearer_token("{\"allow_cleartext\": true}", give_token, NULL, NULL, &table, &error));
  ADD(penstock_ready_token_file(
      "{\"file\": \"/proc/sys/kernel/ostype\", \"header\": \"x-token\", \"allow_cleartext\": true}", &table, &error));
  ADD(penstock_ready_fault_injection("{\"abort\": {\"code\": 5, \"percent\": 0}}", &table, &error));
  ADD(penstock_ready_header_rules(
      "{\"request\": [{\"set\": \"x-headers-one\", \"value\": \"1\"}], \"headers\": [{\"rename\": "
      "\"x-headers-one\", \"to\": \"x-two\"}]}",
      &table, &error));
  ADD(penstock_ready_logging("{\"events\": [\"start\", \"send\", \"headers\", \"receive\", \"status\"]}", ignore_line,
                             NULL, NULL, &table, &error));
  for (int i = 0; channel && i < 2; i++) {
    penstock_call_options *options = new_options("{\"metadata\": {\"x-one\": \"one\", \"x-trailers-a\": \"a\"}}");
    penstock_reply *reply = NULL;
    if (options && TRY(penstock_channel_unary(channel, UNARY, "ping", 4, options, &reply, &error))) {
      const char *cached = penstock_reply_value(reply, "penstock.cache");
      if (!refusing && (i == 1) != (cached != NULL)) wrong("run %d from the cache: %s", i, cached ? cached : "no");
      ended(reply, 0, "ping", 4);
    }
    penstock_call_options_release(options);
  }
  char *text = NULL;
  if (metrics && WENT(penstock_metrics_snapshot_json(metrics, &text)))
    owned_has(text, refusing ? "{" : "\"started\":2");
  if (metrics && WENT(penstock_metrics_prometheus_text(metrics, &text))) owned_has(text, "grpc_client_started_total");
  penstock_metrics_release(metrics);
  if (telemetry && WENT(penstock_telemetry_metrics_json(telemetry, &text))) owned_has(text, "resourceMetrics");
  if (telemetry && WENT(penstock_telemetry_prometheus_text(telemetry, &text)))
    owned_has(text, "grpc_client_attempt_started_total");
  if (telemetry && WENT(penstock_telemetry_spans_json(telemetry, &text)))
    owned_has(text, refusing ? "resourceSpans" : "Attempt.penstock.Echo/Unary");
  if (telemetry && WENT(penstock_telemetry_stats_json(telemetry, &text))) owned_has(text, "\"refused\":");
  penstock_telemetry_release(telemetry);
  close_all(runtime, channel);
}

/* A token that is signed, and one for which a server is asked: the peer, which gives none. */
static void credentials(void) {
  penstock_runtime *runtime = new_runtime();
  penstock_channel *channel = new_channel(runtime, peer, "{\"tls\": false}");
  penstock_channel *server = runtime ? new_channel(runtime, peer, "{\"tls\": false, \"protocol\": \"connect\"}") : NULL;
  penstock_error *error = NULL;
  char json[512];
  snprintf(json, sizeof(json),
           "{\"key_file\": \"%s/client.key\", \"issuer\": \"me\", \"scope\": \"all\", \"allow_cleartext\": true}",
           certificates);
  for (int i = 0; channel && server && i < 2; i++) {
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    penstock_interceptor_id id = 0;
    penstock_reply *reply = NULL;
    if (!(i == 0
              ? TRY(penstock_ready_jwt(json, &table, &error))
              : TRY(penstock_ready_oauth2("{\"grant\": \"client_credentials\", \"token_path\": \"/token\", "
                                          "\"client_id\": \"me\", \"client_secret\": \"s\", \"allow_cleartext\": true}",
                                          server, &table, &error))) ||
        !TRY(penstock_channel_add_interceptor(channel, &table, 0, &id, &error)))
      continue;
    if (TRY(penstock_channel_unary(channel, UNARY, "ping", 4, NULL, &reply, &error)))
      ended(reply, i ? PENSTOCK_STATUS_UNAVAILABLE : 0, i ? NULL : "ping", 4);
    penstock_registration_remove(id, NULL);
  }
  penstock_channel_release(server);
  close_all(runtime, channel);
}

/* Two attempts of each call at once; the second call fails, after both. */
static void hedged(void) {
  penstock_runtime *runtime = new_runtime();
  penstock_channel *channel = new_channel(runtime, peer, "{\"tls\": false}");
  penstock_error *error = NULL;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT, shared = PENSTOCK_INTERCEPTOR_INIT;
  penstock_interceptor_id id = 0;
  bool isAdded = channel && TRY(penstock_ready_hedging("{\"delay_ms\": 0}", NULL, &table, &error)) &&
                 WENT(penstock_ready_share(&table, &shared)) &&
                 TRY(penstock_channel_add_interceptor(channel, &table, 100, &id, &error));
  for (int i = 0; isAdded && i < 2; i++) {
    penstock_call_options *options =
        new_options(i ? "{\"metadata\": {\"x-status\": \"14\"}}"
                      : "{\"metadata\": {\"x-headers-one\": \"one\", \"x-trailers-a\": \"a\"}}");
    penstock_reply *reply = NULL;
    if (options && TRY(penstock_channel_unary(channel, UNARY, "ping", 4, options, &reply, &error)))
      ended(reply, i ? 14 : 0, i ? NULL : "ping", 4);
    penstock_call_options_release(options);
  }
  char *text = NULL;
  if (shared.finalizer) {
    if (WENT(penstock_hedging_stats_json(&shared, &text))) owned_has(text, refusing ? "{" : "\"calls\":2,");
    shared.finalizer(shared.user_data);
  }
  close_all(runtime, channel);
}

static int32_t same(void *user_data, const void *data, size_t length, penstock_compression *message) {
  (void)user_data;
  return penstock_compression_append(message, data, length) != PENSTOCK_OK;
}

/* The server does not know this compression. */
static void compressor(void) {
  penstock_compressor_functions functions = PENSTOCK_COMPRESSOR_FUNCTIONS_INIT;
  functions.name = "x-same";
  functions.compress = functions.decompress = same;
  penstock_runtime *runtime = new_runtime();
  penstock_channel *channel = NULL;
  penstock_compressor *made = NULL;
  penstock_error *error = NULL;
  if (runtime && TRY(penstock_compressor_new(&functions, &made, &error))) {
    channel = new_channel(runtime, peer, "{\"tls\": false, \"compression\": \"x-same\"}");
  }
  penstock_reply *reply = NULL;
  if (channel && WENT(penstock_channel_add_compressor(channel, made)) &&
      TRY(penstock_channel_unary(channel, UNARY, "hello", 5, NULL, &reply, &error))) {
    ended(reply, PENSTOCK_STATUS_UNIMPLEMENTED, NULL, 0);
  }
  penstock_compressor_release(made);
  close_all(runtime, channel);
}

const scenario ready_calls[] = {
    {"ready", ready}, {"credentials", credentials}, {"hedged", hedged}, {"compressor", compressor}, {NULL, NULL},
};
