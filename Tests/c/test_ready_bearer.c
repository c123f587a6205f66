/* ready.h: the bearer token: one request for many calls, and calls that are sent again with the next token. */
#include "bearer.h"

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

/* grpc-swift 1154, connect-swift 360: a refused request is sent again, unchanged, with the next token. */
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
  /* The server refuses the stream before its first message. */
  guard.at_once = true;
  REQUIRE_OK(penstock_channel_call(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM, options, NULL, &call, NULL));
  penstock_call_options_release(options);
  OK(penstock_call_send(call, "twice", 5));
  for (int i = 0; i < 2; i++) {
    if (!OK(penstock_call_receive(call, &message))) break;
    CHECK_INT(message_length(message), 5);
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
  /* The server has refused all calls before there is another token. */
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
  /* The server has refused the second token, too, so the next call asks for a third. */
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
