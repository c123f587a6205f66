/* ready.h: the bearer token: tokens that expire or never come, and all ways in which a call can end. */
#include "bearer.h"

TEST(bearer_fails_with_what_the_source_says) {
  penstock_channel *channel = open_channel();
  source source;
  source_init(&source, true);
  source.fails = PENSTOCK_STATUS_PERMISSION_DENIED;
  bearer_add(channel, &source, NULL);
  penstock_reply *reply = ready_unary(channel, "x", NULL);
  CHECK_STR(ready_message(reply), "no luck");
  CHECK_INT(ready_code(reply), PENSTOCK_STATUS_PERMISSION_DENIED);
  source.fails = 0;
  CHECK_INT(unary_code(channel, "x"), 0);
  CHECK_INT(atomic_load(&source.asked), 2);
  end(channel, &source);
}

/* A request that nobody answers ends when the calls' waiting time is over. The next request ends in the same way. */
TEST(bearer_takes_a_forgotten_request_for_a_failure) {
  penstock_channel *channel = open_channel();
  source source;
  source_init(&source, false);
  bearer_add(channel, &source, "{\"refresh_timeout_ms\": 30}");
  for (int i = 1; i <= 2; i++) {
    CHECK_INT(unary_code(channel, "x"), PENSTOCK_STATUS_UNAVAILABLE);
    CHECK_INT(atomic_load(&source.asked), i);
  }
  CHECK(source.requests[0] != 0 && source.requests[1] != 0 && source.requests[0] != source.requests[1]);
  end(channel, &source);
}

TEST(bearer_asks_again_when_a_token_has_expired) {
  penstock_channel *channel = open_channel();
  source source;
  source_init(&source, true);
  source.expires_in_ms = 0;
  bearer_add(channel, &source, NULL);
  CHECK_INT(unary_code(channel, "x"), 0);
  CHECK_INT(unary_code(channel, "x"), 0);
  CHECK_INT(atomic_load(&source.asked), 2);
  end(channel, &source);
}

TEST(bearer_asks_early_and_uses_the_old_token_meanwhile) {
  penstock_channel *channel = open_channel();
  source source;
  source_init(&source, false);
  source.expires_in_ms = 3600000;
  bearer_add(channel, &source, "{\"refresh_early_ms\": 86400000}");
  penstock_call *call = ready_begin(channel, "x", NULL);
  latch_wait(&source.was_asked, 1);
  source.expires_in_ms = 2000;
  source_answer(&source, 1);
  CHECK_INT(ready_code(ready_finish(call)), 0);
  /* After half of the token's lifetime a call causes a request for the next token, but goes on at once with the old
   * one. */
  int64_t until = test_now_ms() + 1900;
  penstock_reply *reply = NULL;
  while (atomic_load(&source.asked) < 2) {
    penstock_reply_release(reply);
    reply = ready_unary(channel, "x", "\"x-echo-metadata\": \"1\"");
  }
  if (test_now_ms() < until) {
    CHECK_STR(ready_value(penstock_reply_trailers(reply), "seen-authorization"), "Bearer token-1");
  }
  penstock_reply_release(reply);
  source.expires_in_ms = -1;
  source_answer(&source, 2);
  reply = ready_unary(channel, "x", "\"x-echo-metadata\": \"1\"");
  CHECK_STR(ready_value(penstock_reply_trailers(reply), "seen-authorization"), "Bearer token-2");
  penstock_reply_release(reply);
  CHECK_INT(atomic_load(&source.asked), 2);
  end(channel, &source);
}

TEST(bearer_does_not_wait_for_ever) {
  penstock_channel *channel = open_channel();
  source source;
  source_init(&source, false);
  bearer_add(channel, &source, "{\"refresh_timeout_ms\": 30}");
  penstock_reply *reply = ready_unary(channel, "x", NULL);
  CHECK_HAS(ready_message(reply), "no token came in time");
  CHECK_INT(ready_code(reply), PENSTOCK_STATUS_UNAVAILABLE);
  /* The next call requests a token again, and the source answers at once. The answer to the first request comes too
   * late. */
  source.late = source.requests[0];
  source.answers = true;
  reply = ready_unary(channel, "x", "\"x-echo-metadata\": \"1\"");
  CHECK_STR(ready_value(penstock_reply_trailers(reply), "seen-authorization"), "Bearer token-2");
  penstock_reply_release(reply);
  CHECK_INT(atomic_load(&source.asked), 2);
  CHECK_INT(unary_code(channel, "x"), 0);
  end(channel, &source);
}

TEST(bearer_refuses_what_is_no_token) {
  penstock_channel *channel = open_channel();
  source source;
  source_init(&source, false);
  bearer_add(channel, &source, NULL);
  penstock_call *call = ready_begin(channel, "x", NULL);
  latch_wait(&source.was_asked, 1);
  penstock_token_request request = source.requests[0];
  CHECK_RESULT(penstock_token_complete(request, "", -1), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_token_complete(request, "two\nlines", -1), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_token_complete(request, "good", -2), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_token_fail(request, 0, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_token_fail(request, 17, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  source_answer(&source, 1);
  CHECK_INT(ready_code(ready_finish(call)), 0);
  end(channel, &source);
}

TEST(bearer_lets_go_of_calls_that_end_while_they_wait) {
  penstock_channel *channel = open_channel();
  source source;
  guard guard;
  source_init(&source, false);
  bearer_add(channel, &source, NULL);
  guard_add(&guard, channel, 1);
  /* While three calls wait to start, one is cancelled and one passes its deadline; the third goes on. */
  penstock_call_options *options = NULL;
  OK(penstock_call_options_new("{\"deadline_ms\": 30}", &options, NULL));
  penstock_call *cancelled = ready_begin(channel, "x", NULL), *late = NULL;
  OK(penstock_channel_call(channel, UNARY, PENSTOCK_KIND_UNARY, options, NULL, &late, NULL));
  penstock_call_options_release(options);
  OK(penstock_call_send(late, "x", 1));
  penstock_call *third = ready_begin(channel, "x", NULL);
  latch_wait(&source.was_asked, 1);
  OK(penstock_call_cancel(cancelled, "changed my mind"));
  CHECK_INT(ready_code(ready_finish(cancelled)), PENSTOCK_STATUS_CANCELLED);
  CHECK_INT(ready_code(ready_finish(late)), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  source_answer(&source, 1);
  /* The third call is refused, and cancelled while it waits for the next token. */
  latch_wait(&source.was_asked, 2);
  OK(penstock_call_cancel(third, "me too"));
  CHECK_INT(ready_code(ready_finish(third)), PENSTOCK_STATUS_CANCELLED);
  source_answer(&source, 2);
  CHECK_INT(unary_code(channel, "x"), 0);
  CHECK_INT(atomic_load(&source.asked), 2);
  end(channel, &source);
  probe_wait_finalized(&guard.probe);
}

TEST(bearer_removed_and_its_channel_closed_while_a_token_is_asked_for) {
  penstock_channel *channel = open_channel();
  source source;
  source_init(&source, false);
  penstock_interceptor_id id = bearer_add(channel, &source, NULL);
  penstock_call *call = ready_begin(channel, "x", NULL);
  latch_wait(&source.was_asked, 1);
  OK(penstock_registration_remove(id, NULL));
  CHECK_INT(unary_code(channel, "x"), 0);
  CHECK_INT(atomic_load(&source.asked), 1);
  OK(penstock_channel_close(channel));
  CHECK_INT(ready_code(ready_finish(call)), PENSTOCK_STATUS_CANCELLED);
  penstock_channel_release(channel);
  /* An open request does not keep the source alive. */
  EVENTUALLY(atomic_load(&source.finalized) == 1);
  CHECK_RESULT(penstock_token_complete(source.requests[0], "token-1", -1), PENSTOCK_E_GONE);
  CHECK_RESULT(penstock_token_fail(source.requests[0], PENSTOCK_STATUS_ABORTED, NULL), PENSTOCK_E_GONE);
}

TEST(bearer_request_is_answered_once) {
  penstock_channel *channel = open_channel();
  source source;
  source_init(&source, false);
  bearer_add(channel, &source, NULL);
  penstock_call *call = ready_begin(channel, "x", NULL);
  latch_wait(&source.was_asked, 1);
  OK(penstock_token_complete(source.requests[0], "token-1", -1));
  CHECK_INT(ready_code(ready_finish(call)), 0);
  CHECK_RESULT(penstock_token_complete(source.requests[0], "token-2", -1), PENSTOCK_E_ALREADY);
  CHECK_RESULT(penstock_token_fail(source.requests[0], PENSTOCK_STATUS_ABORTED, NULL), PENSTOCK_E_ALREADY);
  CHECK_RESULT(penstock_token_complete(source.requests[0] + 1, "token-2", -1), PENSTOCK_E_GONE);
  end(channel, &source);
  CHECK_RESULT(penstock_token_complete(source.requests[0], "token-2", -1), PENSTOCK_E_GONE);
}

TEST(bearer_token_shared_by_two_runtimes) {
  enum { calls = 20 };
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_channel *channels[2] = {open_channel(), open_channel_on(runtime)};
  source source;
  guard guards[2];
  source_init(&source, false);
  penstock_interceptor table = bearer(&source, NULL), other = PENSTOCK_INTERCEPTOR_INIT;
  OK(penstock_ready_share(&table, &other));
  ready_add(channels[0], &table, 10);
  ready_add(channels[1], &other, 10);
  for (int i = 0; i < 2; i++) guard_add(&guards[i], channels[i], 1);
  penstock_call *call[2 * calls];
  for (int i = 0; i < 2 * calls; i++) call[i] = ready_begin(channels[i % 2], "x", NULL);
  latch_wait(&source.was_asked, 1);
  source_answer(&source, 1);
  latch_wait(&source.was_asked, 2);
  source_answer(&source, 2);
  for (int i = 0; i < 2 * calls; i++) CHECK_INT(ready_code(ready_finish(call[i])), 0);
  CHECK_INT(atomic_load(&source.asked), 2);
  penstock_channel_release(channels[0]);
  CHECK_INT(unary_code(channels[1], "x"), 0);
  CHECK_INT(atomic_load(&source.finalized), 0);
  end(channels[1], &source);
  for (int i = 0; i < 2; i++) probe_wait_finalized(&guards[i].probe);
  penstock_runtime_release(runtime);
}

TEST(bearer_passes_a_refusal_of_a_stream_that_has_begun) {
  penstock_channel *channel = open_channel();
  source source;
  source_init(&source, true);
  bearer_add(channel, &source, NULL);
  penstock_call_options *options = ready_options("\"x-status\": \"16\", \"x-after\": \"1\"");
  penstock_call *call = NULL;
  REQUIRE_OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, options, NULL, &call, NULL));
  penstock_call_options_release(options);
  const penstock_metadata *headers = NULL;
  OK(penstock_call_send(call, "x", 1));
  OK(penstock_call_wait_headers(call, &headers));
  CHECK_INT(ready_code(ready_finish(call)), PENSTOCK_STATUS_UNAUTHENTICATED);
  CHECK_INT(atomic_load(&source.asked), 1);
  end(channel, &source);
}

TEST(bearer_options_are_checked) {
  static const struct {
    const char *json, *path;
  } cases[] = {
      {"{\"header\": \"\"}", "$.header"},
      {"{\"header\": \"grpc-x\"}", "$.header"},
      {"{\"header\": \"x-bin\"}", "$.header"},
      {"{\"header\": 1}", "$.header"},
      {"{\"scheme\": \"a\\nb\"}", "$.scheme"},
      {"{\"refresh_early_ms\": -1}", "$.refresh_early_ms"},
      {"{\"refresh_timeout_ms\": 1.5}", "$.refresh_timeout_ms"},
      {"{\"replay_bytes\": \"1\"}", "$.replay_bytes"},
      {"{\"allow_cleartext\": 1}", "$.allow_cleartext"},
      {"{\"retries\": 1}", "$.retries"},
      {"[]", "$"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    source source;
    source_init(&source, true);
    penstock_error *error = NULL;
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    CHECK_RESULT(penstock_ready_bearer_token(cases[i].json, ask, &source, source_finalize, &table, &error),
                 PENSTOCK_E_INVALID_JSON);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, cases[i].path, cases[i].path);
    CHECK(table.on_start == NULL);
    CHECK_INT(atomic_load(&source.finalized), 1);
  }
}
