/* credentials.h: tokens that the library signs, or gets from a server of OAuth 2.0. */
#include "bearer.h"
#include "credentials.h"

#include <time.h>

#define CLIENT "\"grant\": \"client_credentials\", \"client_id\": \"me\", \"client_secret\": \"s&cret\""

/* A channel whose calls have the server's tokens. */
static penstock_channel *channel_with(const token_server *server, const char *options) {
  penstock_channel *channel = open_channel(), *tokens = token_server_channel(server);
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_error *error = NULL;
  char json[512];
  snprintf(json, sizeof(json), "{\"token_path\": \"/oauth2/token\", \"allow_cleartext\": true, %s}", options);
  OK(penstock_ready_oauth2(json, tokens, &table, &error));
  if (error) printf("  %s\n", penstock_error_message(error));
  penstock_error_release(error);
  penstock_channel_release(tokens); /* the interceptor has a handle of its own */
  ready_add(channel, &table, 10);
  return channel;
}

static void check_sent(penstock_channel *channel, const char *expected) {
  penstock_reply *reply = ready_unary(channel, "x", "\"x-echo-metadata\": \"1\"");
  CHECK_STR(ready_value(penstock_reply_trailers(reply), "seen-authorization"), expected);
  if (penstock_reply_code(reply)) printf("  %s\n", ready_message(reply));
  CHECK_INT(ready_code(reply), 0);
}

static void check_fails(penstock_channel *channel, int32_t code, const char *words) {
  penstock_reply *reply = ready_unary(channel, "x", NULL);
  CHECK_STR(ready_message(reply), words);
  CHECK(strstr(penstock_reply_status_json(reply), "s&cret") == NULL);
  CHECK_INT(ready_code(reply), code);
}

TEST(oauth_token_is_requested_once) {
  token_server server;
  token_server_start(&server);
  penstock_channel *channel = channel_with(&server, CLIENT ", \"scope\": \"read write\"");
  check_sent(channel, "Bearer token-1");
  check_sent(channel, "Bearer token-1");
  CHECK_INT(token_server_asked(&server), 1);
  CHECK(token_server_saw(&server, "POST /oauth2/token HTTP/1.1\r\n"));
  CHECK(token_server_saw(&server, "\r\ncontent-type: application/x-www-form-urlencoded\r\n"));
  CHECK(token_server_saw(&server, "\r\nauthorization: Basic bWU6cyUyNmNyZXQ=\r\n")); /* me:s%26cret */
  CHECK(token_server_saw(&server, "\r\n\r\ngrant_type=client_credentials&scope=read%20write"));
  penstock_channel_release(channel);
  channel = channel_with(&server, CLIENT ", \"client_authentication\": \"form\"");
  check_sent(channel, "Bearer token-1");
  CHECK(token_server_saw(&server, "\r\n\r\ngrant_type=client_credentials&client_id=me&client_secret=s%26cret"));
  penstock_channel_release(channel);
  token_server_end(&server);
}

TEST(oauth_token_is_replaced_when_it_is_refused) {
  token_server server;
  token_server_start(&server);
  token_server_answers(&server, "200 OK",
                       "{\"access_token\": \"token-1\", \"token_type\": \"bearer\", \"expires_in\": 3600, "
                       "\"refresh_token\": \"second\"}");
  penstock_channel *channel = channel_with(&server, "\"grant\": \"refresh_token\", \"refresh_token\": \"first\"");
  guard guard;
  guard_add(&guard, channel, 0);
  check_sent(channel, "Bearer token-1");
  CHECK(token_server_saw(&server, "\r\n\r\ngrant_type=refresh_token&refresh_token=first"));
  guard.refused_up_to = 1;
  token_server_answers(&server, "200 OK", "{\"access_token\": \"token-2\", \"token_type\": \"bearer\"}");
  check_sent(channel, "Bearer token-2");
  CHECK(token_server_saw(&server, "\r\n\r\ngrant_type=refresh_token&refresh_token=second"));
  CHECK_INT(token_server_asked(&server), 2);
  penstock_channel_release(channel);
  probe_wait_finalized(&guard.probe);
  token_server_end(&server);
}

/* The old token serves while the next one is on its way. */
TEST(oauth_token_is_renewed_before_it_expires) {
  token_server server;
  token_server_start(&server);
  token_server_answers(&server, "200 OK",
                       "{\"access_token\": \"token-1\", \"token_type\": \"Bearer\", \"expires_in\": \"120\"}");
  penstock_channel *channel = channel_with(&server, CLIENT ", \"refresh_early_ms\": 86400000");
  check_sent(channel, "Bearer token-1");
  token_server_answers(&server, "200 OK",
                       "{\"access_token\": \"token-2\", \"token_type\": \"Bearer\", \"expires_in\": 0}");
  check_sent(channel, "Bearer token-1"); /* not before half of its life is over */
  CHECK_INT(token_server_asked(&server), 1);
  penstock_channel_release(channel);
  channel = channel_with(&server, CLIENT);
  check_sent(channel, "Bearer token-2");
  check_sent(channel, "Bearer token-2"); /* it has expired at once, and is requested again */
  CHECK_INT(token_server_asked(&server), 3);
  penstock_channel_release(channel);
  token_server_end(&server);
}

#define NO_TOKEN "no token from the token server: "

TEST(oauth_failures_are_told_without_secrets) {
  token_server server;
  token_server_start(&server);
  static const struct {
    const char *status, *body;
    int32_t code;
    const char *words;
  } cases[] = {
      {"401 Unauthorized", "{\"error\": \"invalid_client\", \"error_description\": \"unknown\\u0007 client\"}",
       PENSTOCK_STATUS_UNAUTHENTICATED, "HTTP status 401: invalid_client: unknown. client"},
      {"400 Bad Request", "{\"error\": \"invalid_grant\", \"error_description\": \"not s&cret\"}",
       PENSTOCK_STATUS_UNAUTHENTICATED, "HTTP status 400: invalid_grant"},
      {"403 Forbidden", "<html>no</html>", PENSTOCK_STATUS_UNAUTHENTICATED, "HTTP status 403"},
      {"302 Found", "", PENSTOCK_STATUS_UNAUTHENTICATED, "HTTP status 302"},
      {"503 Busy", "{\"error\": \"later\"}", PENSTOCK_STATUS_UNAVAILABLE, "HTTP status 503: later"},
      {"429 Slow", "", PENSTOCK_STATUS_UNAVAILABLE, "HTTP status 429"},
      {"200 OK", "<html>welcome</html>", PENSTOCK_STATUS_UNAVAILABLE, "the answer is not a JSON object"},
      {"200 OK", "{\"access_token\": \"a\"", PENSTOCK_STATUS_UNAVAILABLE, "the answer is not a JSON object"},
      {"200 OK", "{\"token_type\": \"Bearer\"}", PENSTOCK_STATUS_UNAVAILABLE, "the answer has no \"access_token\""},
      {"200 OK", "{\"error\": \"bad_code\"}", PENSTOCK_STATUS_UNAUTHENTICATED, "HTTP status 200: bad_code"},
      {"200 OK", "{\"access_token\": \"a\", \"token_type\": \"mac\"}", PENSTOCK_STATUS_UNAUTHENTICATED,
       "\"token_type\" is not \"Bearer\", but \"mac\""},
      {"200 OK", "{\"access_token\": \"a\"}", PENSTOCK_STATUS_UNAUTHENTICATED,
       "\"token_type\" is not \"Bearer\", but \"\""},
      {"200 OK", "{\"access_token\": \"a\\nb\", \"token_type\": \"Bearer\"}", PENSTOCK_STATUS_UNAVAILABLE,
       "\"access_token\" is not visible ASCII"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    char words[256];
    snprintf(words, sizeof(words), NO_TOKEN "%s", cases[i].words);
    token_server_answers(&server, cases[i].status, cases[i].body);
    penstock_channel *channel = channel_with(&server, CLIENT);
    check_fails(channel, cases[i].code, words);
    penstock_channel_release(channel);
  }
  CHECK_INT(token_server_asked(&server), sizeof(cases) / sizeof(*cases));
  token_server_end(&server);
}

/* Calls that come before Retry-After has passed get the failure, and no request is sent. */
static void check_rest(const char *retry_after) {
  char line[100];
  snprintf(line, sizeof(line), "429 Slow\r\nretry-after: %s", retry_after);
  token_server server;
  token_server_start(&server);
  token_server_answers(&server, line, "");
  penstock_channel *channel = channel_with(&server, CLIENT);
  check_fails(channel, PENSTOCK_STATUS_UNAVAILABLE, NO_TOKEN "HTTP status 429");
  int64_t begun = test_now_ms();
  while (test_now_ms() - begun < 1200) /* without Retry-After the rest takes a second */
    check_fails(channel, PENSTOCK_STATUS_UNAVAILABLE, NO_TOKEN "HTTP status 429");
  CHECK_INT(token_server_asked(&server), 1);
  penstock_channel_release(channel);
  channel = channel_with(&server, CLIENT);
  token_server_answers(&server, "500 Broken", "");
  check_fails(channel, PENSTOCK_STATUS_UNAVAILABLE, NO_TOKEN "HTTP status 500");
  token_server_answers(&server, "200 OK", "{\"access_token\": \"token-1\", \"token_type\": \"Bearer\"}");
  EVENTUALLY(unary_code(channel, "x") == 0);
  CHECK_INT(token_server_asked(&server), 3);
  penstock_channel_release(channel);
  token_server_end(&server);
}

TEST(oauth_server_that_wants_a_rest_gets_it) { check_rest("3000"); }

TEST(oauth_server_that_wants_a_rest_until_a_date) {
  time_t then = time(NULL) + 3000;
  struct tm parts;
  char date[40];
  strftime(date, sizeof(date), "%a, %d %b %Y %H:%M:%S GMT", gmtime_r(&then, &parts));
  check_rest(date);
}

TEST(oauth_server_that_is_slow_or_gone_ends_calls) {
  token_server server;
  token_server_start(&server);
  server.is_silent = true;
  penstock_channel *channel = channel_with(&server, CLIENT ", \"refresh_timeout_ms\": 50");
  CHECK_INT(unary_code(channel, "x"), PENSTOCK_STATUS_UNAVAILABLE);
  penstock_channel_release(channel);
  penstock_channel *late = channel_with(&server, CLIENT);
  token_server_end(&server);
  penstock_reply *reply = ready_unary(late, "x", NULL);
  CHECK_HAS(ready_message(reply), NO_TOKEN);
  CHECK_HAS(ready_message(reply), "Connection refused");
  CHECK_INT(ready_code(reply), PENSTOCK_STATUS_UNAVAILABLE);
  penstock_channel_release(late);
}

TEST(oauth_needs_tls) {
  token_server server;
  token_server_start(&server);
  penstock_channel *tokens = token_server_channel(&server);
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_error *error = NULL;
  CHECK_RESULT(penstock_ready_oauth2("{\"token_path\": \"/token\", " CLIENT "}", tokens, &table, &error),
               PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_HAS(penstock_error_message(error), "the channel to the token server has no TLS (see \"allow_cleartext\")");
  penstock_error_release(error);
  CHECK(table.finalizer == NULL);
  penstock_channel_release(tokens);
  token_server_end(&server);
}

TEST(oauth_options_are_checked_without_secrets) {
  static const struct {
    const char *json, *words;
  } cases[] = {
      {"{}", "\"grant\" is missing"},
      {"{\"grant\": \"s&cret\"}", "$.grant"},
      {"{" CLIENT "}", "\"token_path\" is missing"},
      {"{\"token_path\": \"s&cret\", " CLIENT "}", "$.token_path"},
      {"{\"token_path\": \"/t\", \"grant\": \"client_credentials\", \"client_secret\": \"s&cret\"}", "\"client_id\""},
      {"{\"token_path\": \"/t\", \"grant\": \"refresh_token\"}", "\"refresh_token\" is missing"},
      {"{\"token_path\": \"/t\", \"grant\": \"jwt_bearer\"}", "\"jwt\" is missing"},
      {"{\"token_path\": \"/t\", \"grant\": \"jwt_bearer\", \"jwt\": {\"key_file\": \"/s&cret\"}}", "$.jwt"},
      {"{\"token_path\": \"/t\", " CLIENT ", \"jwt\": {\"service_account_file\": \"/s&cret\"}}", "$.jwt"},
  };
  penstock_channel *server = open_tls_channel(false);
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    penstock_error *error = NULL;
    CHECK_RESULT(penstock_ready_oauth2(cases[i].json, server, &table, &error), PENSTOCK_E_INVALID_JSON);
    CHECK_HAS(penstock_error_message(error), cases[i].words);
    CHECK(strstr(penstock_error_message(error), "s&cret") == NULL);
    penstock_error_release(error);
  }
  penstock_channel_release(server);
}

/* The header and the claims of a token are checked with its signature by the tests of Python. */
TEST(signed_token_is_sent) {
  penstock_channel *channel = open_channel();
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  char json[256], first[1024];
  snprintf(json, sizeof(json),
           "{\"key_file\": \"%s\", \"issuer\": \"me\", \"audience\": \"you\", \"allow_cleartext\": true}", key_file());
  OK(penstock_ready_jwt(json, &table, NULL));
  ready_add(channel, &table, 10);
  for (int i = 0; i < 2; i++) {
    penstock_reply *reply = ready_unary(channel, "x", "\"x-echo-metadata\": \"1\"");
    const char *sent = ready_value(penstock_reply_trailers(reply), "seen-authorization");
    CHECK_HAS(sent, "Bearer eyJhbGciOiJFUzI1NiIsInR5cCI6IkpXVCJ9."); /* {"alg":"ES256","typ":"JWT"} */
    if (i == 0) snprintf(first, sizeof(first), "%s", sent);
    CHECK_STR(sent, first);
    CHECK_INT(ready_code(reply), 0);
  }
  penstock_channel_release(channel);
}

TEST(signed_token_that_can_t_be_made_is_explained) {
  static const struct {
    const char *option, *words;
  } cases[] = {
      {"key_file\": \"/no-such", "the key file /no-such can't be read: No such file or directory"},
      {"key_file\": \"/proc/sys/kernel/ostype",
       "the key file /proc/sys/kernel/ostype: no private key in PEM form that could be read without a password"},
      {"service_account_file\": \"/proc/sys/kernel/ostype",
       "the service account's file /proc/sys/kernel/ostype is not the JSON of a service account"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    penstock_channel *channel = open_channel();
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    char json[256];
    snprintf(json, sizeof(json), "{\"%s\", \"issuer\": \"me\", \"scope\": \"all\", \"allow_cleartext\": true}",
             cases[i].option);
    OK(penstock_ready_jwt(json, &table, NULL));
    ready_add(channel, &table, 10);
    penstock_reply *reply = ready_unary(channel, "x", NULL);
    CHECK_HAS(ready_message(reply), cases[i].words);
    CHECK_INT(ready_code(reply), PENSTOCK_STATUS_UNAVAILABLE);
    penstock_channel_release(channel);
  }
  check_refused(penstock_ready_jwt, NULL, "$");
  check_refused(penstock_ready_jwt, "{\"key_file\": \"\"}", "$.key_file");
  check_refused(penstock_ready_jwt, "{\"key_file\": \"/k\", \"service_account_file\": \"/a\"}", "$");
  check_refused(penstock_ready_jwt, "{\"key_file\": \"/k\", \"scope\": \"all\"}", "$");
  check_refused(penstock_ready_jwt, "{\"service_account_file\": \"/a\"}", "$");
}
