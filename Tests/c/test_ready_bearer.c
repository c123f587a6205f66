/* ready.h: the bearer token. One request for many calls, tokens that expire or are refused, every way to end. */
#include "ready.h"

#define SOURCE_LIMIT 64

/* A source of "token-1", "token-2", ... */
typedef struct source {
  bool answers; /* in the callback; else the requests are kept */
  int64_t expires_in_ms;
  int32_t fails; /* with this code */
  bool drops;
  atomic_int asked;
  latch was_asked;
  penstock_token_request *requests[SOURCE_LIMIT];
  char refused[SOURCE_LIMIT][32];
  atomic_int finalized;
} source;

static void source_init(source *source, bool answers) {
  memset(source, 0, sizeof(*source));
  source->answers = answers;
  source->expires_in_ms = -1;
  source->was_asked = (latch)LATCH_INIT;
}

static void source_finalize(void *user_data) { atomic_fetch_add(&((source *)user_data)->finalized, 1); }

static void source_answer(source *source, int number) {
  char token[32];
  snprintf(token, sizeof(token), "token-%d", number);
  OK(penstock_token_request_complete(source->requests[number - 1], token, source->expires_in_ms));
  penstock_token_request_release(source->requests[number - 1]);
}

static void ask(penstock_token_request *request, void *user_data) {
  source *self = user_data;
  int number = atomic_fetch_add(&self->asked, 1) + 1;
  if (number > SOURCE_LIMIT) abort();
  const char *refused = penstock_token_request_refused(request);
  snprintf(self->refused[number - 1], sizeof(self->refused[0]), "%s", refused ? refused : "");
  if (self->drops) {
  } else if (self->fails) {
    OK(penstock_token_request_fail(request, self->fails, "no luck"));
  } else {
    self->requests[number - 1] = penstock_token_request_retain(request);
    if (self->answers) source_answer(self, number);
  }
  latch_signal(&self->was_asked);
}

/* Stands below, and has the server refuse the tokens it is told of, by number. */
typedef struct guard {
  probe probe;
  int refused_up_to;
  bool at_once; /* before the first message of a stream */
} guard;

static int32_t refuse(probe *self, penstock_hop *hop, int32_t event) {
  const guard *guard = self->context;
  const void *value = NULL;
  int number = 0;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  penstock_metadata *metadata = penstock_hop_metadata(hop);
  if (penstock_metadata_get(metadata, "authorization", 0, &value, NULL) != PENSTOCK_OK ||
      sscanf(value, "Bearer token-%d", &number) != 1 || number <= guard->refused_up_to) {
    OK(penstock_metadata_set(metadata, "x-status", "16"));
    OK(penstock_metadata_set(metadata, "x-message", "who are you"));
    if (guard->at_once) OK(penstock_metadata_set(metadata, "x-after", "0"));
  }
  return PENSTOCK_NEXT;
}

static void guard_add(guard *guard, penstock_channel *channel, int refused_up_to) {
  probe_init(&guard->probe, "guard");
  guard->probe.hook = refuse;
  guard->probe.context = guard;
  guard->refused_up_to = refused_up_to;
  guard->at_once = false;
  probe_add(&guard->probe, channel, -10);
}

static penstock_interceptor bearer(source *source, const char *options) {
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_error *error = NULL;
  OK(penstock_ready_bearer_token(options, ask, source, source_finalize, &table, &error));
  if (error) printf("  %s\n", penstock_error_message(error));
  penstock_error_release(error);
  return table;
}

static penstock_interceptor_id bearer_add(penstock_channel *channel, source *source, const char *options) {
  penstock_interceptor table = bearer(source, options);
  return ready_add(channel, &table, 10);
}

static void end(penstock_channel *channel, source *source) {
  penstock_channel_release(channel);
  EVENTUALLY(atomic_load(&source->finalized) == 1);
}

TEST(bearer_sends_a_token_and_keeps_it) {
  penstock_channel *channel = open_channel();
  source source;
  source_init(&source, true);
  bearer_add(channel, &source, NULL);
  for (int i = 0; i < 3; i++) {
    penstock_reply *reply = ready_unary(channel, "x", "\"x-echo-metadata\": \"1\"");
    CHECK_STR(ready_value(penstock_reply_trailers(reply), "seen-authorization"), "Bearer token-1");
    CHECK_INT(ready_code(reply), 0);
  }
  CHECK_INT(atomic_load(&source.asked), 1);
  CHECK_STR(source.refused[0], "");
  end(channel, &source);
}

TEST(bearer_has_a_header_and_a_scheme_of_choice) {
  penstock_channel *channel = open_channel();
  source source, bare;
  source_init(&source, true);
  source_init(&bare, true);
  bearer_add(channel, &source, "{\"header\": \"X-Auth\", \"scheme\": \"Token\"}");
  bearer_add(channel, &bare, "{\"header\": \"x-key\", \"scheme\": \"\"}");
  penstock_reply *reply = ready_unary(channel, "x", "\"x-echo-metadata\": \"1\"");
  CHECK_STR(ready_value(penstock_reply_trailers(reply), "seen-x-auth"), "Token token-1");
  CHECK_STR(ready_value(penstock_reply_trailers(reply), "seen-x-key"), "token-1");
  CHECK_STR(ready_value(penstock_reply_trailers(reply), "seen-authorization"), "");
  penstock_reply_release(reply);
  end(channel, &source);
  EVENTUALLY(atomic_load(&bare.finalized) == 1);
}

TEST(bearer_leaves_a_call_with_its_own_header_alone) {
  penstock_channel *channel = open_channel();
  source source;
  guard guard;
  source_init(&source, true);
  bearer_add(channel, &source, NULL);
  guard_add(&guard, channel, 0);
  CHECK_INT(ready_code(ready_unary(channel, "x", "\"authorization\": \"Basic me\"")), PENSTOCK_STATUS_UNAUTHENTICATED);
  CHECK_INT(atomic_load(&source.asked), 0);
  end(channel, &source);
  probe_wait_finalized(&guard.probe);
}

TEST(bearer_asks_once_for_many_calls_that_wait) {
  enum { calls = 50 };
  penstock_channel *channel = open_channel();
  source source;
  guard guard;
  source_init(&source, false);
  bearer_add(channel, &source, NULL);
  guard_add(&guard, channel, 0);
  penstock_call *call[calls];
  for (int i = 0; i < calls; i++) call[i] = ready_begin(channel, "x", NULL);
  latch_wait(&source.was_asked, 1);
  CHECK_INT(atomic_load(&guard.probe.seen[PENSTOCK_EVENT_START]), 0);
  source_answer(&source, 1);
  for (int i = 0; i < calls; i++) CHECK_INT(ready_code(ready_finish(call[i])), 0);
  CHECK_INT(atomic_load(&source.asked), 1);
  CHECK_INT(atomic_load(&guard.probe.seen[PENSTOCK_EVENT_START]), calls);
  end(channel, &source);
  probe_wait_finalized(&guard.probe);
}

/* grpc-swift 1154, connect-swift 360: refresh a token, and send the same request again. */
TEST(bearer_starts_a_refused_call_anew_with_the_next_token) {
  penstock_channel *channel = open_channel();
  source source;
  guard guard;
  source_init(&source, true);
  bearer_add(channel, &source, NULL);
  guard_add(&guard, channel, 1);
  penstock_reply *reply = ready_unary(channel, "same request", "\"x-echo-metadata\": \"1\"");
  CHECK_INT(penstock_reply_code(reply), 0);
  CHECK(ready_message_is(reply, "same request"));
  CHECK_STR(ready_value(penstock_reply_trailers(reply), "seen-authorization"), "Bearer token-2");
  penstock_reply_release(reply);
  CHECK_INT(atomic_load(&source.asked), 2);
  CHECK_STR(source.refused[1], "token-1");
  CHECK_INT(atomic_load(&guard.probe.seen[PENSTOCK_EVENT_START]), 2);
  CHECK_INT(unary_code(channel, "another"), 0);
  CHECK_INT(atomic_load(&source.asked), 2);
  end(channel, &source);
  probe_wait_finalized(&guard.probe);
}

TEST(bearer_starts_a_refused_stream_anew) {
  penstock_channel *channel = open_channel();
  source source;
  guard guard;
  source_init(&source, true);
  bearer_add(channel, &source, NULL);
  guard_add(&guard, channel, 1);
  penstock_call_options *options = ready_options("\"x-repeat\": \"2\", \"x-after\": \"2\"");
  penstock_call *call = NULL;
  penstock_message *message = NULL;
  /* The server refuses it in place of its messages. */
  guard.at_once = true;
  REQUIRE_OK(penstock_channel_call(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM, options, NULL, &call, NULL));
  penstock_call_options_release(options);
  OK(penstock_call_send(call, "twice", 5));
  for (int i = 0; i < 2; i++) {
    if (!OK(penstock_call_receive(call, &message))) break;
    CHECK_INT(penstock_message_length(message), 5);
    penstock_message_release(message);
  }
  CHECK_INT(ready_code(ready_finish(call)), 0);
  CHECK_INT(atomic_load(&source.asked), 2);
  CHECK_INT(atomic_load(&guard.probe.seen[PENSTOCK_EVENT_START]), 2);
  end(channel, &source);
  probe_wait_finalized(&guard.probe);
}

TEST(bearer_100_calls_failing_at_once_cause_one_refresh) {
  enum { calls = 100 };
  penstock_channel *channel = open_channel();
  source source;
  guard guard;
  source_init(&source, false);
  bearer_add(channel, &source, NULL);
  guard_add(&guard, channel, 1);
  penstock_call *call[calls];
  for (int i = 0; i < calls; i++) call[i] = ready_begin(channel, "x", NULL);
  latch_wait(&source.was_asked, 1);
  source_answer(&source, 1);
  /* The server has refused them all before there is another token. */
  EVENTUALLY(atomic_load(&guard.probe.seen[PENSTOCK_EVENT_STATUS]) == calls);
  latch_wait(&source.was_asked, 2);
  source_answer(&source, 2);
  for (int i = 0; i < calls; i++) CHECK_INT(ready_code(ready_finish(call[i])), 0);
  CHECK_INT(atomic_load(&source.asked), 2);
  CHECK_STR(source.refused[1], "token-1");
  CHECK_INT(atomic_load(&guard.probe.seen[PENSTOCK_EVENT_START]), 2 * calls);
  end(channel, &source);
  probe_wait_finalized(&guard.probe);
}

TEST(bearer_starts_anew_only_once) {
  penstock_channel *channel = open_channel();
  source source;
  guard guard;
  source_init(&source, true);
  bearer_add(channel, &source, NULL);
  guard_add(&guard, channel, 1000);
  penstock_reply *reply = ready_unary(channel, "x", NULL);
  CHECK_STR(ready_message(reply), "who are you");
  CHECK_INT(ready_code(reply), PENSTOCK_STATUS_UNAUTHENTICATED);
  CHECK_INT(atomic_load(&source.asked), 2);
  CHECK_INT(atomic_load(&guard.probe.seen[PENSTOCK_EVENT_START]), 2);
  /* The second token was thrown away too. */
  CHECK_INT(unary_code(channel, "x"), PENSTOCK_STATUS_UNAUTHENTICATED);
  CHECK_INT(atomic_load(&source.asked), 4);
  CHECK_STR(source.refused[2], "token-2");
  end(channel, &source);
  probe_wait_finalized(&guard.probe);
}

TEST(bearer_does_not_start_anew_what_was_too_large_to_keep) {
  penstock_channel *channel = open_channel();
  source source;
  guard guard;
  source_init(&source, true);
  bearer_add(channel, &source, "{\"replay_bytes\": 3}");
  guard_add(&guard, channel, 1);
  CHECK_INT(unary_code(channel, "four"), PENSTOCK_STATUS_UNAUTHENTICATED);
  CHECK_INT(atomic_load(&source.asked), 1);
  CHECK_INT(unary_code(channel, "four"), 0);
  CHECK_INT(atomic_load(&source.asked), 2);
  CHECK_STR(source.refused[1], "token-1");
  end(channel, &source);
  probe_wait_finalized(&guard.probe);
}

TEST(bearer_keeps_the_refusal_when_there_is_no_other_token) {
  penstock_channel *channel = open_channel();
  source source;
  guard guard;
  source_init(&source, true);
  bearer_add(channel, &source, NULL);
  guard_add(&guard, channel, 0);
  CHECK_INT(unary_code(channel, "x"), 0);
  source.fails = PENSTOCK_STATUS_UNAVAILABLE;
  guard.refused_up_to = 1;
  penstock_reply *reply = ready_unary(channel, "x", NULL);
  CHECK_STR(ready_message(reply), "who are you");
  CHECK_INT(ready_code(reply), PENSTOCK_STATUS_UNAUTHENTICATED);
  CHECK_INT(atomic_load(&source.asked), 2);
  end(channel, &source);
  probe_wait_finalized(&guard.probe);
}

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

TEST(bearer_takes_a_dropped_request_for_a_failure) {
  penstock_channel *channel = open_channel();
  source source;
  source_init(&source, false);
  source.drops = true;
  bearer_add(channel, &source, NULL);
  penstock_reply *reply = ready_unary(channel, "x", NULL);
  CHECK_HAS(ready_message(reply), "no answer");
  CHECK_INT(ready_code(reply), PENSTOCK_STATUS_UNAVAILABLE);
  /* Later, on another thread, too. */
  source.drops = false;
  penstock_call *call = ready_begin(channel, "x", NULL);
  latch_wait(&source.was_asked, 2);
  penstock_token_request_release(source.requests[1]);
  CHECK_INT(ready_code(ready_finish(call)), PENSTOCK_STATUS_UNAVAILABLE);
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
  /* Half of its time later somebody asks, and goes on at once. */
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
  /* The next one asks again; the first request's answer comes too late. */
  penstock_call *call = ready_begin(channel, "x", NULL);
  latch_wait(&source.was_asked, 2);
  CHECK_RESULT(penstock_token_request_complete(source.requests[0], "late", -1), PENSTOCK_E_GONE);
  penstock_token_request_release(source.requests[0]);
  OK(penstock_token_request_complete(source.requests[1], "token-2", -1));
  CHECK_RESULT(penstock_token_request_complete(source.requests[1], "again", -1), PENSTOCK_E_ALREADY);
  CHECK_RESULT(penstock_token_request_fail(source.requests[1], PENSTOCK_STATUS_ABORTED, NULL), PENSTOCK_E_ALREADY);
  penstock_token_request_release(source.requests[1]);
  int32_t code = ready_code(ready_finish(call));
  CHECK(code == 0 || code == PENSTOCK_STATUS_UNAVAILABLE); /* a slow machine may be too late again */
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
  penstock_token_request *request = source.requests[0];
  CHECK_RESULT(penstock_token_request_complete(request, "", -1), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_token_request_complete(request, "two\nlines", -1), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_token_request_complete(request, "good", -2), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_token_request_fail(request, 0, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_token_request_fail(request, 17, NULL), PENSTOCK_E_INVALID_ARGUMENT);
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
  /* One is cancelled and one is late while they wait to start; the third goes on. */
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
  /* It is refused, and cancelled while it waits to start anew. */
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
  OK(penstock_channel_remove_interceptor(channel, id, NULL));
  CHECK_INT(unary_code(channel, "x"), 0);
  CHECK_INT(atomic_load(&source.asked), 1);
  OK(penstock_channel_close(channel));
  CHECK_INT(ready_code(ready_finish(call)), PENSTOCK_STATUS_CANCELLED);
  penstock_channel_release(channel);
  /* Who has the request has the source: its data is not finalized before. */
  CHECK_INT(atomic_load(&source.finalized), 0);
  source_answer(&source, 1);
  EVENTUALLY(atomic_load(&source.finalized) == 1);
}

TEST(bearer_request_that_was_answered_does_not_keep_the_source) {
  penstock_channel *channel = open_channel();
  source source;
  source_init(&source, false);
  bearer_add(channel, &source, NULL);
  penstock_call *call = ready_begin(channel, "x", NULL);
  latch_wait(&source.was_asked, 1);
  OK(penstock_token_request_complete(source.requests[0], "token-1", -1));
  CHECK_INT(ready_code(ready_finish(call)), 0);
  end(channel, &source);
  CHECK_RESULT(penstock_token_request_complete(source.requests[0], "token-2", -1), PENSTOCK_E_ALREADY);
  penstock_token_request_release(source.requests[0]);
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
