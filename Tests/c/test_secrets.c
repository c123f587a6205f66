/* Values that may be secret never appear in cleartext on the wire, in an error or in a log, unless that is allowed. */
#include "bearer.h"

#include <unistd.h>

/* ---- The bearer token goes over TLS only ---- */

static const char *const refusal =
    "a bearer token is sent over TLS only, and the channel has no TLS (see \"allow_cleartext\")";

static void add_default_bearer(penstock_channel *channel, source *source) {
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  OK(penstock_ready_bearer_token(NULL, ask, source, source_finalize, &table, NULL));
  ready_add(channel, &table, 10);
}

TEST(secrets_bearer_refuses_cleartext) {
  penstock_channel *channel = open_channel();
  source source;
  probe below;
  source_init(&source, true);
  add_default_bearer(channel, &source);
  probe_init(&below, "below");
  probe_add(&below, channel, 0);
  penstock_reply *reply = ready_unary(channel, "x", NULL);
  CHECK_STR(ready_message(reply), refusal);
  CHECK_INT(ready_code(reply), PENSTOCK_STATUS_UNAUTHENTICATED);
  CHECK_INT(atomic_load(&source.asked), 0);
  CHECK_INT(atomic_load(&below.seen[PENSTOCK_EVENT_START]), 0);
  /* If the caller itself has set the header, the call goes on in cleartext, without a token. */
  CHECK_INT(ready_code(ready_unary(channel, "x", "\"authorization\": \"Basic me\"")), 0);
  end(channel, &source);
  probe_wait_finalized(&below);
}

TEST(secrets_bearer_goes_over_tls) {
  penstock_channel *channel = open_tls_channel(false);
  source source;
  source_init(&source, true);
  add_default_bearer(channel, &source);
  penstock_reply *reply = ready_unary(channel, "x", "\"x-echo-metadata\": \"1\"");
  CHECK_STR(ready_value(penstock_reply_trailers(reply), "seen-authorization"), "Bearer token-1");
  CHECK_INT(ready_code(reply), 0);
  end(channel, &source);
}

/* A unix socket has no TLS by default, and counts as secure for a token. */
TEST(secrets_bearer_goes_over_a_unix_socket) {
  char folder[] = "/tmp/penstock-test-XXXXXX", place[64], target[64];
  REQUIRE(mkdtemp(folder) != NULL);
  snprintf(place, sizeof(place), "unix:%s/socket", folder);
  char *const arguments[] = {"--listen", place, NULL};
  int input, output = start_peer(target, sizeof(target), arguments, &input);
  CHECK_STR(target, place);
  static const char *const options[] = {NULL, "{}", "{\"tls\": false}"};
  for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++) {
    penstock_channel *channel = NULL;
    source source;
    REQUIRE_OK(penstock_channel_new(target, options[i], &channel, NULL));
    source_init(&source, true);
    add_default_bearer(channel, &source);
    penstock_reply *reply = ready_unary(channel, "x", "\"x-echo-metadata\": \"1\"");
    CHECK_STR(ready_value(penstock_reply_trailers(reply), "seen-authorization"), "Bearer token-1");
    CHECK_INT(ready_code(reply), 0);
    end(channel, &source);
  }
  /* If the options ask for TLS, the channel uses TLS on a unix socket, too. */
  penstock_channel *channel = NULL;
  REQUIRE_OK(penstock_channel_new(target, "{\"tls\": {\"verify\": false}}", &channel, NULL));
  penstock_reply *reply = ready_unary(channel, "x", NULL);
  CHECK_HAS(ready_message(reply), "does not speak TLS");
  CHECK_INT(ready_code(reply), PENSTOCK_STATUS_UNAVAILABLE);
  penstock_channel_release(channel);
  close(input);
  close(output);
  EVENTUALLY(rmdir(folder) == 0);
}

static int32_t send_elsewhere(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_START) OK(penstock_request_set_channel(penstock_hop_request(hop), self->context));
  return PENSTOCK_NEXT;
}

/* A hop below the bearer token redirects the call to a channel without TLS. */
TEST(secrets_bearer_does_not_follow_into_cleartext) {
  penstock_channel *channel = open_tls_channel(false), *other = open_channel();
  source source;
  probe below;
  source_init(&source, true);
  add_default_bearer(channel, &source);
  probe_init_with(&below, "below", send_elsewhere, other);
  probe_add(&below, channel, 0);
  penstock_reply *reply = ready_unary(channel, "x", "\"x-echo-metadata\": \"1\"");
  CHECK_STR(ready_message(reply), "the call has credentials, and the channel is not secure (no TLS)");
  CHECK_STR(ready_value(penstock_reply_trailers(reply), "seen-authorization"), "");
  CHECK_INT(ready_code(reply), PENSTOCK_STATUS_UNAUTHENTICATED);
  /* No server has refused the token, so it is still valid. */
  CHECK_INT(atomic_load(&source.asked), 1);
  end(channel, &source);
  probe_wait_finalized(&below);
  penstock_channel_release(other);
}

/* A call that is redirected from cleartext to a channel with TLS may have a token. */
TEST(secrets_bearer_below_a_redirect_to_tls) {
  penstock_channel *channel = open_channel(), *other = open_tls_channel(false);
  source source;
  probe above;
  source_init(&source, true);
  add_default_bearer(channel, &source);
  probe_init_with(&above, "above", send_elsewhere, other);
  probe_add(&above, channel, 20);
  CHECK_INT(unary_code(channel, "x"), 0);
  CHECK_INT(atomic_load(&source.asked), 1);
  end(channel, &source);
  probe_wait_finalized(&above);
  penstock_channel_release(other);
}

/* ---- Errors ---- */

static void check_silent(penstock_error **error, const char *path, const char *what) {
  REQUIRE(*error != NULL);
  const char *json = penstock_error_json(*error);
  bool told = strstr(json, "s3cret") || strstr(json, "515151") || strstr(penstock_error_message(*error), "s3cret");
  if (!CHECK(!told)) printf("  %s: %s\n", what, json);
  char expected[96];
  snprintf(expected, sizeof(expected), "\"path\":\"%s\"}", path);
  if (!CHECK_HAS(json, expected)) printf("  %s\n", what);
  penstock_error_release(*error);
  *error = NULL;
}

/* An error contains no value, neither of a text that can't be parsed nor of one whose parsed values are refused. */
TEST(secrets_are_not_told_by_json_errors) {
  static const struct {
    const char *json, *path;
  } parsed[] = {
      {"{\"authorization\": \"s3cret\\q\"}", "$.authorization"},
      {"{\"authorization\": \"s3cret\\u12\"}", "$.authorization"},
      {"{\"authorization\": \"\\us3cret\"}", "$.authorization"},
      {"{\"authorization\": \"s3cret\n\"}", "$.authorization"},
      {"{\"authorization\": \"s3cret\xff\"}", "$.authorization"},
      {"{\"authorization\": \"s3cret", "$.authorization"},
      {"{\"authorization\": s3cret}", "$.authorization"},
      {"{\"authorization\": \"s3cret\" \"s3cret\"}", "$.authorization"},
      {"{\"authorization\": \"s3cret\": 1}", "$.authorization"},
      {"{\"authorization\": \"s3cret\" 1}", "$.authorization"},
      {"{\"authorization\": [\"s3cret\" \"s3cret\"]}", "$.authorization[0]"},
      {"{\"authorization\", \"s3cret\"}", "$"},
      {"{\"authorization\" \"s3cret\"}", "$"},
      {"{\"a\": 1, \"authorization\" \"s3cret\"}", "$"},
      {"{\"a\": 1, \"s3cret\"}", "$"},
      {"{\"a\": 1, s3cret}", "$"},
      {"{\"a\": [1, 2], \"b\": {\"c\": \"s3cret\", \"c\": \"s3cret\"}}", "$.b.c"},
      {"\"s3cret\" \"s3cret\"", "$"},
      {"s3cret", "$"},
  };
  for (size_t i = 0; i < sizeof(parsed) / sizeof(*parsed); i++) {
    penstock_error *error = NULL;
    penstock_metadata *metadata = NULL;
    OK(penstock_metadata_new(&metadata));
    CHECK_RESULT(penstock_metadata_set_json(metadata, parsed[i].json, &error), PENSTOCK_E_INVALID_JSON);
    check_silent(&error, parsed[i].path, parsed[i].json);
    penstock_metadata_release(metadata);
  }
  static const struct {
    const char *json, *path;
  } read[] = {
      {"{\"credentials\": {\"authorization\": 515151}}", "$.credentials.authorization"},
      {"{\"credentials\": {\"authorization\": \" s3cret\"}}", "$.credentials.authorization"},
      {"{\"credentials\": {\"authorization\": [\"s3cret\", 515151]}}", "$.credentials.authorization[1]"},
      {"{\"credentials\": \"s3cret\"}", "$.credentials"},
      {"{\"metadata\": {\"key-bin\": \"s3cret!\"}}", "$.metadata.key-bin"},
      {"{\"metadata\": {\"key\": {\"base64\": \"s3cret!\"}}}", "$.metadata.key"},
      {"{\"idempotency\": \"s3cret\"}", "$.idempotency"},
      {"{\"authority\": \"s3cret \"}", "$.authority"},
  };
  for (size_t i = 0; i < sizeof(read) / sizeof(*read); i++) {
    penstock_error *error = NULL;
    penstock_call_options *options = NULL;
    CHECK_RESULT(penstock_call_options_new(read[i].json, &options, &error), PENSTOCK_E_INVALID_JSON);
    check_silent(&error, read[i].path, read[i].json);
  }
}

TEST(secrets_are_not_told_by_channels) {
  static const struct {
    const char *target, *json, *path;
  } cases[] = {
      {"localhost:1", "{\"tls\": {\"private_key_file\": \"s3cret\", \"certificate_chain_file\": \"%s\"}}",
       "$.tls.private_key_file"},
      {"localhost:1", "{\"tls\": {\"private_key_pem\": \"s3cret\", \"certificate_chain_file\": \"%s\"}}",
       "$.tls.private_key_pem"},
      {"localhost:1", "{\"tls\": {\"private_key_pem\": 515151, \"certificate_chain_file\": \"%s\"}}",
       "$.tls.private_key_pem"},
      {"localhost:1", "{\"tls\": {\"roots_pem\": \"s3cret\", \"certificate_chain_file\": \"%s\"}}", "$.tls.roots_pem"},
      {"localhost:1", "{\"tls\": {\"server_name\": \"s3cret!\", \"roots_file\": \"%s\"}}", "$.tls.server_name"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    char json[600];
    penstock_error *error = NULL;
    penstock_channel *channel = NULL;
    snprintf(json, sizeof(json), cases[i].json, certificate("client.pem"));
    CHECK_RESULT(penstock_channel_new(cases[i].target, json, &channel, &error), PENSTOCK_E_INVALID_JSON);
    check_silent(&error, cases[i].path, cases[i].json);
  }
  static const char *const targets[] = {"me:s3cret@localhost:1", "https://me:s3cret@localhost:1", "dns:///s3cret@a",
                                        "ipv4:me:s3cret@1.2.3.4:5", "me:s3cret@ a"};
  for (size_t i = 0; i < sizeof(targets) / sizeof(*targets); i++) {
    penstock_error *error = NULL;
    penstock_channel *channel = NULL;
    CHECK_RESULT(penstock_channel_new(targets[i], NULL, &channel, &error), PENSTOCK_E_INVALID_ARGUMENT);
    CHECK_HAS(penstock_error_message(error), "the target has an \"@\"");
    CHECK(strstr(penstock_error_message(error), "s3cret") == NULL);
    penstock_error_release(error);
  }
}

/* ---- Logs ---- */

typedef struct lines {
  char start[1024];
} lines;

static void keep_start(const char *line, size_t length, void *user_data) {
  lines *self = user_data;
  (void)length;
  if (strstr(line, "\"event\":\"start\"")) snprintf(self->start, sizeof(self->start), "%s", line);
}

static void check_logged(const char *options, const char *name, const char *value, const char *shown) {
  penstock_channel *channel = open_channel();
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  lines lines = {""};
  char metadata[128], expected[128];
  OK(penstock_ready_logging(options, keep_start, &lines, NULL, &table, NULL));
  ready_add(channel, &table, 0);
  snprintf(metadata, sizeof(metadata), "\"%s\": \"%s\", \"x-open\": \"open\"", name, value);
  snprintf(expected, sizeof(expected), "\"%s\":[\"%s\"]", name, shown);
  CHECK_INT(ready_code(ready_unary(channel, "x", metadata)), 0);
  CHECK_HAS(lines.start, expected);
  CHECK_HAS(lines.start, "\"x-open\":[\"open\"]");
  penstock_channel_release(channel);
}

TEST(secrets_logging_redacts_authorization) { check_logged(NULL, "authorization", "Bearer s3cret", "redacted"); }
TEST(secrets_logging_redacts_proxy_authorization) {
  check_logged(NULL, "proxy-authorization", "Basic s3cret", "redacted");
}
TEST(secrets_logging_redacts_cookie) { check_logged(NULL, "cookie", "s3cret", "redacted"); }
TEST(secrets_logging_redacts_set_cookie) { check_logged(NULL, "set-cookie", "s3cret", "redacted"); }
TEST(secrets_logging_redacts_x_api_key) { check_logged(NULL, "x-api-key", "s3cret", "redacted"); }
TEST(secrets_logging_redacts_binary_by_option) {
  check_logged(NULL, "x-key-bin", "AAH+", "AAH+");
  check_logged("{\"redact_binary\": true}", "x-key-bin", "AAH+", "redacted");
  check_logged("{\"redact_binary\": true}", "authorization", "s3cret", "redacted");
  check_logged("{\"redact_binary\": true, \"redact\": []}", "authorization", "open", "open");
}
