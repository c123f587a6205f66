/* Scenarios without a call: options, metadata, statuses, errors, registrations, as JSON and back. */
#include "failing.h"

#include <stdio.h>
#include <string.h>

/* ---- Channels and options ---- */

static void channel_options(void) {
  penstock_runtime *runtime = new_runtime();
  penstock_channel *channel = new_channel(
      runtime, "ipv4:127.0.0.1:1,127.0.0.2:2",
      "{\"tls\": false, \"authority\": \"somebody.example\", \"user_agent\": \"a-user-agent/1\", \"default_deadline_ms\": "
      "1000, \"compression\": \"gzip\", \"trace\": {\"events\": 7}, \"tie_order\": \"lifo\", \"max_header_list_bytes\": 2048}");
  close_all(runtime, channel);
}

static void call_options(void) {
  penstock_call_options *options = new_options(
      "{\"deadline_ms\": 1000, \"metadata\": {\"x-one\": [\"1\", \"one\"], \"x-two\": \"2\", \"x-bin\": \"AAEC\"}, "
      "\"credentials\": {\"authorization\": \"Bearer secret\"}, \"authority\": \"somebody.example\", "
      "\"compression\": \"gzip\", \"trace\": {\"events\": 1000}}");
  if (!options) return;
  penstock_metadata *metadata = penstock_request_metadata(penstock_call_options_request(options));
  if (penstock_metadata_count(metadata) != 4) wrong("%zu fields of 4", penstock_metadata_count(metadata));
  char *json = NULL;
  if (WENT(penstock_metadata_json(metadata, &json))) owned_has(json, "\"x-one\":[\"1\",\"one\"],\"x-two\":[\"2\"]");
  penstock_call_options_release(options);
}

/* Wrong options must be refused as wrong, or fail for lack of memory. */
static void refused_options(void) {
  static const char *const texts[] = {"{\"metadata\": {\"x-one\": [\"1\", {\"two\": 3}]}}",
                                      "{\"deadline_ms\": -1}",
                                      "{\"unknown\": {\"x\": [1, 2, 3]}}",
                                      "{\"trace\": {\"events\": 70000}}",
                                      "{\"authority\": \"x\" \"y\"}",
                                      "{\"a\": 1, \"a\": 2}",
                                      "{\"a\": \"\\x\"}",
                                      "{\"metadata\": {\"te\": \"x\"}}",
                                      "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1"};
  for (size_t i = 0; i < COUNT(texts); i++) {
    penstock_call_options *options = NULL;
    penstock_error *error = NULL;
    gave(texts[i], penstock_call_options_new(texts[i], &options, &error), PENSTOCK_E_INVALID_JSON, &error);
    if (options) wrong("options of %s", texts[i]);
  }
  penstock_runtime *runtime = new_runtime();
  static const char *const targets[] = {"", "localhost:99999", "ipv4:1.2.3", "dns:///", "ipv6:[::1", "a b"};
  for (size_t i = 0; runtime && i < COUNT(targets); i++) {
    penstock_channel *channel = NULL;
    penstock_error *error = NULL;
    gave(targets[i], penstock_channel_new_on(runtime, targets[i], "{\"tls\": false}", &channel, &error),
         PENSTOCK_E_INVALID_ARGUMENT, &error);
    if (channel) wrong("a channel to %s", targets[i]);
  }
  close_all(runtime, NULL);
}

static void runtime_options(void) {
  penstock_runtime *runtime = NULL;
  penstock_error *error = NULL;
  gave("penstock_runtime_new", penstock_runtime_new("{\"mode\": \"neither\"}", &runtime, &error),
       PENSTOCK_E_INVALID_JSON, &error);
  runtime = new_runtime();
  char *json = NULL;
  if (runtime && WENT(penstock_runtime_snapshot_json(runtime, 0, &json))) owned_has(json, "\"calls\":[]");
  close_all(runtime, NULL);
}

/* ---- Metadata ---- */

static void metadata(void) {
  penstock_metadata *metadata = NULL;
  if (!WENT(penstock_metadata_new(&metadata))) return;
  size_t count = 0;
  char name[32], value[300];
  memset(value, 'v', sizeof(value));
  value[sizeof(value) - 1] = 0;
  for (int i = 0; i < 40; i++) {
    snprintf(name, sizeof(name), "X-Name-%d", i);
    count += WENT(penstock_metadata_add(metadata, name, value));
    count += WENT(penstock_metadata_add_bytes(metadata, "x-bytes-bin", value, (size_t)i));
  }
  if (WENT(penstock_metadata_set(metadata, "x-name-7", "seven"))) {
    const void *found = NULL;
    penstock_result result = penstock_metadata_get(metadata, "X-NAME-7", 0, &found, NULL);
    if (went("penstock_metadata_get", result, NULL) && strcmp(found, "seven") != 0) wrong("not what was set");
  }
  /* If there was no memory to add x-name-7 above, set has added it: then there is one field more than `count`. */
  if (penstock_metadata_count(metadata) != count && !(refusing && penstock_metadata_count(metadata) == count + 1)) {
    wrong("%zu fields, not %zu", penstock_metadata_count(metadata), count);
  }
  char *json = NULL;
  if (WENT(penstock_metadata_json(metadata, &json))) owned_has(json, refusing ? "{" : "\"x-name-7\":[\"seven\"]");
  penstock_metadata_release(metadata);
}

static void version_json(void) {
  char *json = NULL;
  if (WENT(penstock_version_json(&json))) owned_has(json, "\"zlib\":{\"version\":\"");
}

static void metadata_json(void) {
  penstock_metadata *metadata = NULL;
  penstock_error *error = NULL;
  if (!WENT(penstock_metadata_new(&metadata))) return;
  bool isSet = WENT(penstock_metadata_set(metadata, "x-before", "1"));
  bool isNew = TRY(penstock_metadata_set_json(
      metadata,
      "{\"x-a\": [\"1\", \"two words\"], \"x-b-bin\": [\"AAECAwQFBgcICQ==\", \"\"], \"x-c\": {\"base64\": \"YWI=\"}}",
      &error));
  size_t count = penstock_metadata_count(metadata);
  if (count != (isNew ? 5u : isSet)) wrong("%zu fields", count);
  char *json = NULL;
  if (WENT(penstock_metadata_json(metadata, &json))) {
    owned_has(json, isNew   ? "{\"x-a\":[\"1\",\"two words\"],\"x-b-bin\":[\"AAECAwQFBgcICQ==\",\"\"],\"x-c\":[\"ab\"]}"
                    : isSet ? "{\"x-before\":[\"1\"]}"
                            : "{}");
  }
  gave("a wrong value", penstock_metadata_set_json(metadata, "{\"x-a\": [1]}", &error), PENSTOCK_E_INVALID_JSON,
       &error);
  if (penstock_metadata_count(metadata) != count) wrong("a failure that changes");
  penstock_metadata_release(metadata);
}

/* ---- Statuses ---- */

#define TYPE "type.googleapis.com/google.rpc."
static const char details[] =
    "{\"code\":3,\"name\":\"INVALID_ARGUMENT\",\"message\":\"no \\u00fc\",\"metadata\":{\"x-trailer\":[\"t\"]},\"details\":["
    "{\"@type\":\"" TYPE
    "ErrorInfo\",\"reason\":\"R\",\"domain\":\"d.example\",\"metadata\":{\"k\":\"v\",\"l\":\"w\"}},"
    "{\"@type\":\"" TYPE "RetryInfo\",\"retryDelay\":\"1.500s\"},"
    "{\"@type\":\"" TYPE "DebugInfo\",\"stackEntries\":[\"a\",\"b\"],\"detail\":\"d\"},"
    "{\"@type\":\"" TYPE "QuotaFailure\",\"violations\":[{\"subject\":\"s\",\"description\":\"d\"}]},"
    "{\"@type\":\"" TYPE
    "PreconditionFailure\",\"violations\":[{\"type\":\"t\",\"subject\":\"s\",\"description\":\"d\"}]},"
    "{\"@type\":\"" TYPE "BadRequest\",\"fieldViolations\":[{\"field\":\"f\",\"description\":\"d\"}]},"
    "{\"@type\":\"" TYPE "RequestInfo\",\"requestId\":\"1\",\"servingData\":\"s\"},"
    "{\"@type\":\"" TYPE
    "ResourceInfo\",\"resourceType\":\"t\",\"resourceName\":\"n\",\"owner\":\"o\",\"description\":\"d\"},"
    "{\"@type\":\"" TYPE "Help\",\"links\":[{\"description\":\"d\",\"url\":\"u\"}]},"
    "{\"@type\":\"" TYPE "LocalizedMessage\",\"locale\":\"en\",\"message\":\"m\"},"
    "{\"@type\":\"type.example/acme.Other\",\"base64\":\"AAEC\"}]}";

static void status_json(void) {
  penstock_status *status = NULL;
  penstock_error *error = NULL;
  if (TRY(penstock_status_from_json(details, &status, &error))) {
    if (penstock_status_detail_count(status) != 11) wrong("%zu details of 11", penstock_status_detail_count(status));
    char *json = NULL;
    if (WENT(penstock_status_json(status, &json))) {
      static const char *const parts[] = {"\"message\":\"no ",
                                          "\"x-trailer\":[\"t\"]",
                                          "\"domain\":\"d.example\"",
                                          "\"k\":\"v\"",
                                          "\"l\":\"w\"",
                                          "1.5",
                                          "\"stackEntries\":[\"a\",\"b\"]",
                                          "QuotaFailure\",\"violations\":[{\"subject\":\"s\",\"description\":\"d\"}]",
                                          "\"type\":\"t\"",
                                          "\"field\":\"f\"",
                                          "\"requestId\":\"1\"",
                                          "\"owner\":\"o\"",
                                          "\"url\":\"u\"",
                                          "\"locale\":\"en\"",
                                          "\"base64\":\"AAEC\""};
      for (size_t i = 0; i < COUNT(parts); i++) has(json, parts[i]);
      penstock_free(json);
    }
    penstock_status_release(status);
    status = NULL;
  }
  gave("a detail that is wrong",
       penstock_status_from_json("{\"code\": 3, \"details\": [{\"@type\": \"" TYPE "RetryInfo\", \"retryDelay\": 7}]}",
                                 &status, &error),
       PENSTOCK_E_INVALID_JSON, &error);
  if (status) wrong("a status of what is wrong");
}

static void status_by_hand(void) {
  penstock_status *status = NULL;
  if (!WENT(
          penstock_status_new(5, "a message that is longer than what fits beside it, or so one would think", &status)))
    return;
  size_t count = WENT(penstock_status_add_detail(status, "type.example/acme.One", some_bytes(1000), 1000));
  count += WENT(penstock_status_set_detail(status, "type.example/acme.Two", some_bytes(10), 10));
  count += WENT(penstock_status_set_detail(status, "type.example/acme.Three", "x", 1));
  if (penstock_status_detail_count(status) != count)
    wrong("%zu details, not %zu", penstock_status_detail_count(status), count);
  bool isSaid = WENT(penstock_status_set_message(status, "another", 7));
  has(penstock_status_message(status, NULL), isSaid ? "another" : "a message");
  const void *value = NULL;
  size_t length = 0;
  penstock_result found = penstock_status_detail_find(status, "acme.One", &value, &length);
  if (count == 3 && found == PENSTOCK_OK && (length != 1000 || memcmp(value, some_bytes(1000), 1000) != 0))
    wrong("other bytes");
  penstock_metadata *trailers = penstock_status_trailers(status);
  if (trailers) WENT(penstock_metadata_add(trailers, "x-trailer", "t"));
  void *binary = NULL;
  if (WENT(penstock_status_details_bin(status, &binary, &length))) {
    if (count == 3 && length < 1010) wrong("%zu bytes of details", length);
    penstock_free(binary);
  }
  char *json = NULL;
  if (WENT(penstock_status_json(status, &json))) owned_has(json, "\"name\":\"NOT_FOUND\"");
  penstock_status_release(status);
}

/* ---- Registrations ---- */

static void interceptors(void) {
  penstock_runtime *runtime = new_runtime();
  penstock_channel *channel = new_channel(runtime, "127.0.0.1:1", "{\"tls\": false}");
  penstock_error *error = NULL;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_interceptor_id one = 0, two = 0;
  if (!channel) return close_all(runtime, channel);
  table.name = "the first";
  table.methods = "/a.B/C, /d.E/*,/f.G/H";
  bool isThere = TRY(penstock_channel_add_interceptor(channel, &table, 7, &one, &error));
  table.name = "the second";
  if (TRY(penstock_runtime_add_interceptor(runtime, &table, 8, &two, &error))) {
    TRY(penstock_registration_set_filter(two, "/x.Y/*", 1, &error));
    TRY(penstock_registration_set_priority(two, 9, &error));
  }
  table.methods = "x";
  gave("a wrong pattern", penstock_channel_add_interceptor(channel, &table, 0, &two, &error),
       PENSTOCK_E_INVALID_ARGUMENT, &error);
  table.methods = NULL;
  table.name = "instead";
  bool isOther = isThere && TRY(penstock_registration_replace(one, &table, &two, &error));
  char *json = NULL;
  if (WENT(penstock_channel_interceptors_json(channel, &json))) {
    if (isThere) has(json, isOther ? "\"name\":\"instead\"" : "\"name\":\"the first\"");
    penstock_free(json);
  }
  if (isOther) TRY(penstock_registration_remove(two, &error));
  close_all(runtime, channel);
}

static void ready_options(void) {
  penstock_error *error = NULL;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
#define FILL(call)                                                                                                     \
  if (TRY(call)) table.finalizer(table.user_data)
  FILL(penstock_ready_header_rules(
      "{\"request\": [{\"set\": \"X-A\", \"value\": \"1\"}, {\"rename\": \"x-b\", \"to\": \"x-c\"}], "
      "\"headers\": [{\"add\": \"x-d-bin\", \"value\": \"AAEC\"}], \"trailers\": [{\"remove\": "
      "\"x-e\"}]}",
      &table, &error));
  FILL(penstock_ready_fault_injection(
      "{\"delay\": {\"ms\": 1, \"percent\": 0.5}, \"abort\": {\"code\": 5, \"message\": \"m\"}}", &table, &error));
  FILL(penstock_ready_rate_limit("{\"rate\": 2.5, \"burst\": 7, \"code\": \"UNAVAILABLE\"}", &table, &error));
  FILL(penstock_ready_hedging("{\"non_fatal_codes\": [14, 8], \"throttle\": {\"max_tokens\": 4}}", NULL, &table,
                              &error));
  FILL(penstock_ready_response_cache("{\"ttl_ms\": 5, \"metadata\": [\"x-one\", \"x-two\"]}", &table, &error));
  FILL(penstock_ready_trace_context("{\"sampled\": 12.5, \"parent_id\": \"keep\"}", &table, &error));
  gave("a wrong rule",
       penstock_ready_header_rules("{\"request\": [{\"set\": \"te\", \"value\": \"1\"}]}", &table, &error),
       PENSTOCK_E_INVALID_JSON, &error);
  penstock_metrics *metrics = NULL;
  if (TRY(penstock_metrics_new("{\"buckets_ms\": [1, 2, 30]}", &metrics, &error))) {
    char *text = NULL;
    if (WENT(penstock_metrics_snapshot_json(metrics, &text))) owned_has(text, "\"methods\":[]");
    if (WENT(penstock_metrics_prometheus_text(metrics, &text))) owned_has(text, "# TYPE");
  }
  penstock_metrics_release(metrics);
}

const scenario pieces[] = {
    {"channel-options", channel_options}, {"call-options", call_options},   {"refused-options", refused_options},
    {"runtime-options", runtime_options}, {"metadata", metadata},           {"version-json", version_json},
    {"metadata-json", metadata_json},     {"status-json", status_json},     {"status-by-hand", status_by_hand},
    {"interceptors", interceptors},       {"ready-options", ready_options}, {NULL, NULL},
};
