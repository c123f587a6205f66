/* Ordinary and extreme arguments for random calls of the API, and checks of the results. */
#ifndef PENSTOCK_API_PICKS_H
#define PENSTOCK_API_PICKS_H

#include "api.h"

/* ---- Bytes and texts ---- */

enum { LONG = 65536 };
static char long_text[LONG + 1], nested_text[4096];

/* Makes the texts that other functions pick. Must be called once, before the first thread starts. */
static inline void make_texts(void) {
  memset(long_text, 'a', LONG);
  memset(nested_text, '[', sizeof(nested_text) - 1);
}

typedef struct bytes {
  const void *data;
  size_t length;
} bytes;

static inline bytes pick_bytes(void) {
  /* Lengths beyond all memory: the library must refuse them without reading the data. */
  static const size_t huge[] = {SIZE_MAX,         (size_t)INT64_MAX + 1, INT64_MAX,
                                INT64_MAX - 4096, (size_t)1 << 60,       (size_t)1 << 47};
  static const size_t lengths[] = {0, 1, 2, 5, 100, 255, 1000, 4096, 16384, LONG};
  switch (below(16)) {
  case 0:
    return (bytes){"x", ONE_OF(huge)};
  case 1:
    return (bytes){NULL, 0};
  case 2:
    return (bytes){NULL, ONE_OF(lengths) + 1};
  case 3:
    return (bytes){"\x08\x05\x12\x01x\x1a\x05\x0a\x01t\x12\x00", below(13)};
  default:
    return (bytes){long_text, ONE_OF(lengths)};
  }
}

/* Messages whose bytes stand one after another. */
typedef struct batch {
  const void *data;
  size_t lengths[8], count;
} batch;

static inline batch pick_batch(void) {
  batch made = {once_in(16) ? NULL : long_text, {0}, below(9)};
  for (size_t i = 0; i < made.count; i++) made.lengths[i] = once_in(64) ? SIZE_MAX >> below(16) : below(LONG / 8);
  return made;
}

static const char *const odd_texts[] = {NULL,
                                        "",
                                        " ",
                                        "\xff\xfe",
                                        "\xc3\xa4",
                                        "\x01",
                                        "\n",
                                        "a\tb",
                                        "%",
                                        "-bin",
                                        "-1",
                                        "99999999999999999999",
                                        long_text,
                                        nested_text,
                                        "{",
                                        "[]",
                                        "null",
                                        "{\"a\": {\"a\": ",
                                        "{\"unknown\": 1}",
                                        "\"",
                                        "{\"a\": \"\\ud800\"}",
                                        "{\"a\": 1e999}",
                                        "/",
                                        "//",
                                        "*"};

static const char *const methods[] = {UNARY,         SERVER_STREAM, CLIENT_STREAM, BIDI,   UNARY,
                                      SERVER_STREAM, CLIENT_STREAM, BIDI,          "/a/B", "/no.Service/Method"};
static const char *const patterns[] = {NULL, UNARY, "/penstock.Echo/*", "*", "/a/B,/c/D", "/*,", "a,,b"};
static const char *const names[] = {"a",     "x-bin",          "x-trailers-a", "grpc-status", "Authorization",
                                    ":path", "x-headers-b-bin"};
static const char *const values[] = {"v", "a value", "YQ", "1", "", " x"};
static const char *const keys[] = {"k", "key", "penstock.cache", "penstock.traceparent"};
static const char *const types[] = {"type.googleapis.com/google.rpc.ErrorInfo", "google.rpc.RetryInfo", "a/b", "/",
                                    "x"};
static const char *const words[] = {"identity",  "gzip",           "x-api",   "Bearer token",
                                    "localhost", "example.test:1", "a reason"};
static const char *const runtime_options[] = {NULL,
                                              "{}",
                                              "{\"mode\": \"thread\", \"max_workers\": 1}",
                                              "{\"mode\": \"host\"}",
                                              "{\"mode\": \"thread\", \"caller_drives\": false}",
                                              "{\"mode\": \"thread\", \"linger_us\": 0, \"max_workers\": 2}",
                                              "{\"mode\": \"host\", \"spin_us\": 50}",
                                              "{\"loops\": 3}",
                                              "{\"loops\": 2, \"caller_drives\": false, \"max_workers\": 2}",
                                              "{\"mode\": \"host\", \"loops\": 2}",
                                              "{\"mode\": \"thread\", \"max_workers\": 0}"};
#define TLS_OPTIONS "{\"tls\": {\"verify\": false}, \"default_deadline_ms\": 40}"
static const char *const channel_options[] = {
    "{\"tls\": false, \"default_deadline_ms\": 10}",
    "{\"tls\": false, \"default_deadline_ms\": 20, \"trace\": true}",
    "{\"tls\": false, \"default_deadline_ms\": 30, \"compression\": \"gzip\", \"tie_order\": \"lifo\"}",
    "{\"tls\": false, \"default_deadline_ms\": 50, \"max_receive_message_bytes\": 100, \"trace\": {\"events\": 1}}",
    "{\"tls\": false, \"initial_stream_window_bytes\": 65535, \"max_send_message_bytes\": 5000}",
    "{\"tls\": {\"verify\": false}, \"default_deadline_ms\": 50, \"connect_timeout_ms\": 1}",
    "{\"tls\": {\"roots_pem\": \"x\"}}",
    "{\"tls\": false, \"default_deadline_ms\": 50, \"service_config\": {\"loadBalancingConfig\": [{\"round_robin\": {}}], "
    "\"healthCheckConfig\": {\"serviceName\": \"\"}, "
    "\"connectionScaling\": {\"maxConnectionsPerSubchannel\": 3}}}",
    "{\"tls\": false, \"default_deadline_ms\": 50, \"keepalive_time_ms\": 1000, \"keepalive_timeout_ms\": 1, "
    "\"keepalive_without_calls\": true}",
    "{\"tls\": false, \"default_deadline_ms\": 30, \"protocol\": \"connect\", \"content_subtype\": \"json\"}",
    "{\"tls\": false, \"default_deadline_ms\": 30, \"protocol\": \"connect\", \"http\": \"2\", \"max_get_url_bytes\": 50}",
    "{\"tls\": false, \"default_deadline_ms\": 30, \"protocol\": \"grpc-web\", \"http1_max_connections\": 2}",
    "{\"tls\": false, \"default_deadline_ms\": 30, \"protocol\": \"grpc-web-text\", \"http\": \"1.1\", "
    "\"http1_idle_timeout_ms\": 1}",
    NULL};
static const char *const call_options[] = {
    NULL,
    "{}",
    "{\"deadline_ms\": 5}",
    "{\"deadline_ms\": 0}",
    "{\"deadline_ms\": 15, \"idempotency\": \"no_side_effects\", \"content_subtype\": \"json\"}",
    "{\"deadline_ms\": 15, \"trace\": {\"events\": 2}, \"compression\": \"gzip\"}",
    "{\"deadline_ms\": 15, \"metadata\": {\"x-count\": \"5\", \"a-bin\": \"AAE\"}}",
    "{\"metadata\": {\"x-status\": \"5\", \"x-details-bin\": \"CAU\"}}",
    "{\"deadline_ms\": 15, \"send_buffer_bytes\": 1, \"interruptible\": true}",
    "{\"deadline_ms\": 15, \"max_receive_message_bytes\": 0}",
    "{\"deadline_ms\": 15, \"credentials\": {\"authorization\": \"Bearer x\"}}"};
/* Pairs of a word and an options text: the text is for functions that have the word in their names. */
static const char *const ready_options[][2] = {
    {"", NULL},
    {"", "{}"},
    {"bearer", "{\"allow_cleartext\": true, \"refresh_timeout_ms\": 20}"},
    {"bearer", "{\"allow_cleartext\": true, \"header\": \"x-token\", \"scheme\": \"\", \"refresh_early_ms\": 0}"},
    {"jwt", "{\"key_file\": \"/no-key\", \"issuer\": \"me\", \"scope\": \"all\", \"allow_cleartext\": true}"},
    {"oauth2", "{\"grant\": \"refresh_token\", \"refresh_token\": \"a\", \"token_path\": \"/token\", "
               "\"refresh_timeout_ms\": 20, \"allow_cleartext\": true}"},
    {"logging", "{\"events\": [\"send\", \"receive\", \"status\", \"start\"], \"redact_binary\": true}"},
    {"metrics", "{\"buckets_ms\": [1, 2], \"max_methods\": 1}"},
    {"telemetry", "{\"max_spans\": 5, \"max_methods\": 1, \"resource\": {\"a\": \"b\"}}"},
    {"trace", "{\"sampled\": 50, \"parent_id\": \"keep\"}"},
    {"cache", "{\"ttl_ms\": 3, \"max_entries\": 1}"},
    {"rate", "{\"rate\": 1000, \"max_wait_ms\": 5}"},
    {"rate", "{\"rate\": 0.001, \"burst\": 1, \"max_waiting\": 2}"},
    {"fault", "{\"delay\": {\"ms\": 3, \"percent\": 50}}"},
    {"fault", "{\"abort\": {\"code\": 5, \"percent\": 30}, \"seed\": 1}"},
    {"rules", "{\"request\": [{\"set\": \"a\", \"value\": \"b\"}, {\"rename\": \"a\", \"to\": \"c\"}]}"},
    {"rules", "{\"trailers\": [{\"remove\": \"x-trailers-a\"}, {\"add\": \"x-bin\", \"value\": \"AA\"}]}"}};
static const char *const jsons[] = {
    "{}",
    "{\"code\": 5, \"message\": \"m\", \"details\": [{\"@type\": \"a/b\", \"base64\": \"AA\"}]}",
    "{\"name\": \"ABORTED\", \"metadata\": {\"a\": [\"b\", \"c\"]}}",
    "{\"code\": 17}",
    "{\"a\": [\"b\", {\"base64\": \"/w\"}], \"b-bin\": \"AAE=\"}",
    "{\"a\": \"\\u0000\"}"};

static inline const char *pick_snapshot(void) {
  static _Thread_local char text[128];
  if (once_in(4)) return ONE_OF(jsons);
  if (once_in(3)) return "{\"error\": \"none\"}";
  snprintf(text, sizeof(text), "{\"addresses\": [{\"address\": \"%s\", \"weight\": 2}]}",
           once_in(4) ? dead_address() : peer_address());
  return text;
}

static inline const char *pick_target(void) {
  switch (below(10)) {
  case 0:
    return dead_address();
  case 1:
    return tls_address(false);
  case 2:
    return once_in(2) ? "unix-abstract:penstock-nobody" : "ipv4:127.0.0.1:1,127.0.0.1:2";
  default:
    return peer_address();
  }
}

static inline const char *pick_ready_options(const char *function) {
  for (int i = 0; i < 20; i++) {
    const char *const *pair = ONE_OF(ready_options);
    if (strstr(function, pair[0])) return pair[1];
  }
  return NULL;
}

/* Picks a text for `parameter` of `function`. */
static inline const char *pick_text(const char *function, const char *parameter) {
  if (once_in(8)) return ONE_OF(odd_texts);
  if (strcmp(parameter, "target") == 0) return pick_target();
  if (strcmp(parameter, "method") == 0) return ONE_OF(methods);
  if (strcmp(parameter, "methods") == 0) return ONE_OF(patterns);
  if (strcmp(parameter, "name") == 0) return strstr(function, "compression") ? ONE_OF(words) : ONE_OF(names);
  if (strcmp(parameter, "value") == 0) return ONE_OF(values);
  if (strcmp(parameter, "key") == 0) return ONE_OF(keys);
  if (strcmp(parameter, "type_url") == 0) return ONE_OF(types);
  if (strcmp(parameter, "options_json") == 0) return pick_ready_options(function);
  if (strstr(function, "runtime_new")) return ONE_OF(runtime_options);
  if (strstr(function, "channel_new")) return ONE_OF(channel_options);
  if (strstr(function, "call_options")) return ONE_OF(call_options);
  if (strcmp(parameter, "json") == 0) return ONE_OF(jsons);
  if (strcmp(parameter, "snapshot") == 0) return pick_snapshot();
  return ONE_OF(words);
}

/* ---- Numbers ---- */

static inline int64_t pick_timeout(void) { return (int64_t)below(once_in(8) ? 21 : 2); }

static inline int64_t pick_wide(void) {
  static const int64_t extremes[] = {INT64_MIN, -2, -1, 0, 1, 20, 1000, INT32_MAX, INT64_MAX / 1000000 + 1, INT64_MAX};
  return once_in(2) ? (int64_t)below(4) : ONE_OF(extremes);
}

static inline int32_t pick_code(void) {
  static const int32_t extremes[] = {INT32_MIN, -1, 17, 99, INT32_MAX};
  return once_in(8) ? ONE_OF(extremes) : (int32_t)below(17);
}

static inline int32_t pick_priority(void) {
  static const int32_t extremes[] = {INT32_MIN, -1, 0, 1, INT32_MAX};
  return ONE_OF(extremes);
}

static inline int32_t pick_small(void) { return once_in(12) ? pick_priority() : (int32_t)below(4); }

static inline uint32_t pick_mask(void) { return once_in(12) ? UINT32_MAX - below(16) : below(8); }

static inline size_t pick_size(void) {
  static const size_t sizes[] = {0, 1, 2, 3, 100, 65536, INT32_MAX, (size_t)INT32_MAX + 1, INT64_MAX, SIZE_MAX};
  return ONE_OF(sizes);
}

/* ---- Results of functions ---- */

static inline void look_at_bytes(const void *data, size_t length) {
  if (length == 0 || !data) return;
  volatile char both = (char)(*(const char *)data ^ ((const char *)data)[length - 1]);
  (void)both;
}

static inline void look_at_text(const char *text) {
  if (text) look_at_bytes(text, strlen(text) + 1);
}

static inline void look_at_message(const penstock_message *message) {
  size_t length = 0;
  const void *data = penstock_message_bytes(message, &length);
  look_at_bytes(data, length);
  (void)penstock_message_object(message);
}

static inline void look_at_metadata(const penstock_metadata *metadata) {
  const char *name = NULL;
  const void *value = NULL;
  size_t length = 0;
  for (size_t i = 0; i < penstock_metadata_count(metadata); i++) {
    OK(penstock_metadata_at(metadata, i, &name, &value, &length));
    look_at_text(name);
    look_at_bytes(value, length + 1);
  }
}

static inline void change_metadata(penstock_metadata *metadata) {
  if (!metadata) return;
  if (once_in(3)) penstock_metadata_add(metadata, pick_text("", "name"), pick_text("", "value"));
  if (once_in(6)) penstock_metadata_remove(metadata, pick_text("", "name"));
  if (once_in(9)) penstock_metadata_set_json(metadata, pick_text("", "json"), NULL);
  look_at_metadata(metadata);
}

static inline void change_status(penstock_status *status) {
  if (!status) return;
  if (once_in(3)) penstock_status_set_code(status, pick_code());
  bytes message = pick_bytes();
  if (once_in(3)) penstock_status_set_message(status, message.data, message.length);
  if (once_in(4)) penstock_status_add_detail(status, pick_text("", "type_url"), "\x0a\x01z", 3);
  if (once_in(8)) penstock_status_clear_details(status);
  change_metadata(penstock_status_trailers(status));
  look_at_text(penstock_status_message(status, NULL));
}

/* If the caller has passed `error`, checks that a failure has set an error object with its code, and that a success has
 * set none. */
static inline void check_outcome(const char *function, penstock_result result, penstock_error **error) {
  if (result < PENSTOCK_OK || result > PENSTOCK_E_END) test_failed(__FILE__, __LINE__, "%s gave %d", function, result);
  if (!error) return;
  if (result == PENSTOCK_OK ? *error != NULL : !strstr(penstock_error_json(*error), penstock_result_name(result))) {
    test_failed(__FILE__, __LINE__, "%s gave %d, and its error is %s", function, result, penstock_error_json(*error));
  }
  look_at_text(penstock_error_message(*error));
  look_at_text(penstock_error_json(*error));
  if (once_in(4)) {
    keep(KIND_error, *error);
  } else {
    penstock_error_release(*error);
  }
}

/* A use of some hop by one function. A hop's reason is that of its latest function on any thread, so only a use that no
 * other one overlaps can be checked. */
typedef struct hop_use {
  uint64_t number;
  bool is_alone; /* every earlier use has ended */
} hop_use;

static atomic_ullong hop_uses_begun, hop_uses_ended;

static inline hop_use hop_use_begins(void) {
  uint64_t number = atomic_fetch_add(&hop_uses_begun, 1) + 1;
  return (hop_use){number, atomic_load(&hop_uses_ended) + 1 == number};
}

static inline void hop_use_ends(void) { atomic_fetch_add(&hop_uses_ended, 1); }

/* Checks that `hop` says why a function has given E_STATE. Functions of a hop say it, and those of its request. */
static inline void check_why(const char *function, penstock_result result, penstock_hop *hop, hop_use use) {
  if (result != PENSTOCK_E_STATE || *penstock_hop_why(hop)) return;
  if (!use.is_alone || atomic_load(&hop_uses_begun) != use.number) return;
  test_failed(__FILE__, __LINE__, "%s gave PENSTOCK_E_STATE, and no reason", function);
}

/* Checks that a function that failed has not changed its output; `touched` says whether it has. */
static inline void check_untouched(const char *function, bool touched) {
  if (touched) test_failed(__FILE__, __LINE__, "%s failed, and has touched an output", function);
}

#endif
