/* ready.h: hedging. When the attempts of a call are sent, and which of them decides it. */
#include "hedged.h"

#include <unistd.h>

TEST(hedging_sends_one_attempt_if_the_answer_comes_in_time) {
  hedged all;
  hedge(&all, peer_address(), HURRY "}", NULL, NULL);
  penstock_reply *reply = ready_unary(all.channel, "once", "\"x-echo-metadata\": \"1\", \"x-headers-a\": \"b\"");
  CHECK_INT(penstock_reply_code(reply), 0);
  CHECK(ready_message_is(reply, "once"));
  CHECK_STR(ready_value(penstock_reply_headers(reply), "x-headers-a"), "b");
  CHECK_STR(ready_value(penstock_reply_trailers(reply), "seen-grpc-previous-rpc-attempts"), "");
  check_value(reply, "{\"sent\":1,\"won\":1,\"cancelled\":0}");
  penstock_reply_release(reply);
  check_figures(&all, "{\"calls\":1,\"sent\":1,\"open\":0,\"won\":1,\"failed\":0,\"cancelled\":0,\"hedges\":0,"
                      "\"hedges_won\":0,\"throttled\":0,\"refused\":0,\"throttle\":null}");
  end_hedge(&all);
}

TEST(hedging_goes_past_a_slow_server) {
  static const char *const plan[][2] = {{SLOW}, {"", ""}, {NULL, NULL}};
  hedged all;
  hedge(&all, peer_address(), "{\"delay_ms\": 1}", NULL, plan);
  penstock_reply *reply = ready_unary(all.channel, "fast", "\"x-echo-metadata\": \"1\"");
  CHECK_INT(penstock_reply_code(reply), 0);
  CHECK(ready_message_is(reply, "fast"));
  CHECK_STR(ready_value(penstock_reply_trailers(reply), "seen-grpc-previous-rpc-attempts"), "1");
  check_value(reply, "{\"sent\":2,\"won\":2,\"cancelled\":1}");
  penstock_reply_release(reply);
  check_figures(&all, "\"sent\":2,\"open\":0,\"won\":1,\"failed\":0,\"cancelled\":1,\"hedges\":1,\"hedges_won\":1,");
  /* The loser has gone from the channel, too. */
  check_channel(all.channel, "\"started\":2,\"succeeded\":1,\"failed\":0,\"in_flight\":0,");
  /* The hop below has seen a whole call for each attempt: law 2. */
  EVENTUALLY(atomic_load(&all.below.seen[PENSTOCK_EVENT_DESTROY]) == 2);
  CHECK_INT(atomic_load(&all.below.seen[PENSTOCK_EVENT_CREATE]), 2);
  end_hedge(&all);
}

TEST(hedging_without_a_delay_sends_all_at_once) {
  static const char *const plan[][2] = {{SLOW}, {SLOW}, {"", ""}, {NULL, NULL}};
  hedged all;
  hedge(&all, peer_address(), "{\"delay_ms\": 0, \"max_attempts\": 3}", NULL, plan);
  penstock_reply *reply = ready_unary(all.channel, "x", NULL);
  CHECK_INT(penstock_reply_code(reply), 0);
  check_value(reply, "{\"sent\":3,\"won\":3,\"cancelled\":2}");
  penstock_reply_release(reply);
  end_hedge(&all);
}

TEST(hedging_goes_on_at_once_after_a_failure) {
  static const char *const plan[][2] = {{FAILS}, {FAILS}, {"", ""}, {NULL, NULL}};
  hedged all;
  hedge(&all, peer_address(), HURRY ", \"max_attempts\": 5}", NULL, plan);
  penstock_reply *reply = ready_unary(all.channel, "x", "\"x-echo-metadata\": \"1\"");
  CHECK_INT(penstock_reply_code(reply), 0);
  CHECK_STR(ready_value(penstock_reply_trailers(reply), "seen-grpc-previous-rpc-attempts"), "2");
  check_value(reply, "{\"sent\":3,\"won\":3,\"cancelled\":0}");
  penstock_reply_release(reply);
  check_figures(&all, "\"sent\":3,\"open\":0,\"won\":1,\"failed\":2,");
  end_hedge(&all);
}

TEST(hedging_gives_the_last_status_if_all_fail) {
  static const char *const plan[][2] = {{FAILS}, {NULL, NULL}};
  hedged all;
  hedge(&all, peer_address(), HURRY ", \"max_attempts\": 3}", NULL, plan);
  penstock_reply *reply = ready_unary(all.channel, "x", "\"x-message\": \"all down\"");
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_UNAVAILABLE);
  CHECK_STR(ready_message(reply), "all down");
  check_value(reply, "{\"sent\":3,\"won\":0,\"cancelled\":0}");
  penstock_reply_release(reply);
  check_figures(&all, "\"sent\":3,\"open\":0,\"won\":0,\"failed\":3,");
  end_hedge(&all);
}

TEST(hedging_ends_with_a_fatal_code) {
  static const char *const plan[][2] = {{"x-status", "5"}, {NULL, NULL}};
  hedged all;
  hedge(&all, peer_address(), HURRY ", \"non_fatal_codes\": [\"UNAVAILABLE\", 8]}", NULL, plan);
  penstock_reply *reply = ready_unary(all.channel, "x", NULL);
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_NOT_FOUND);
  check_value(reply, "{\"sent\":1,\"won\":1,\"cancelled\":0}");
  penstock_reply_release(reply);
  end_hedge(&all);
}

/* A hop below that makes an error of the server fatal, and one that makes it harmless: its word counts. */
static int32_t change_code(probe *self, penstock_hop *hop, int32_t event) {
  const int32_t *codes = self->context;
  penstock_status *status = event == PENSTOCK_EVENT_STATUS ? penstock_hop_status(hop) : NULL;
  if (status && penstock_status_code(status) == codes[0]) OK(penstock_status_set_code(status, codes[1]));
  return PENSTOCK_NEXT;
}

TEST(hedging_goes_by_the_code_that_the_hops_below_have_made) {
  static int32_t codes[2][2] = {{5, 14}, {14, 5}};
  static const char *const plans[2][3][2] = {{{"x-status", "5"}, {"", ""}, {NULL, NULL}},
                                             {{FAILS}, {"", ""}, {NULL, NULL}}};
  for (int i = 0; i < 2; i++) {
    hedged all;
    probe changer;
    hedge(&all, peer_address(), HURRY "}", NULL, plans[i]);
    probe_init_with(&changer, "changer", change_code, codes[i]);
    probe_add(&changer, all.channel, 50);
    penstock_reply *reply = ready_unary(all.channel, "x", NULL);
    CHECK_INT(penstock_reply_code(reply), i ? PENSTOCK_STATUS_NOT_FOUND : 0);
    check_value(reply, i ? "{\"sent\":1,\"won\":1,\"cancelled\":0}" : "{\"sent\":2,\"won\":2,\"cancelled\":0}");
    penstock_reply_release(reply);
    end_hedge(&all);
    probe_wait_finalized(&changer);
  }
}

TEST(hedging_attempts_end_with_a_cancelled_call) {
  static const char *const plan[][2] = {{SLOW}, {NULL, NULL}};
  hedged all;
  hedge(&all, peer_address(), "{\"delay_ms\": 0, \"max_attempts\": 4}", NULL, plan);
  penstock_call *call = ready_begin(all.channel, "x", NULL);
  check_figures(&all, "\"sent\":4,\"open\":4,");
  OK(penstock_call_cancel(call, "enough"));
  penstock_reply *reply = ready_finish(call);
  CHECK_STR(ready_message(reply), "enough");
  CHECK_INT(ready_code(reply), PENSTOCK_STATUS_CANCELLED);
  check_figures(&all, "\"sent\":4,\"open\":0,\"won\":0,\"failed\":0,\"cancelled\":4,");
  EVENTUALLY(atomic_load(&all.below.seen[PENSTOCK_EVENT_DESTROY]) == 4);
  end_hedge(&all);
}

TEST(hedging_stays_within_the_deadline) {
  static const char *const plan[][2] = {{SLOW}, {NULL, NULL}};
  hedged all;
  penstock_call_options *options = NULL;
  penstock_reply *reply = NULL;
  hedge(&all, peer_address(), "{\"delay_ms\": 1, \"max_attempts\": 3, \"non_fatal_codes\": [4]}", NULL, plan);
  OK(penstock_call_options_new("{\"deadline_ms\": 100}", &options, NULL));
  if (OK(penstock_channel_unary(all.channel, UNARY, "x", 1, options, &reply, NULL)))
    CHECK_INT(ready_code(reply), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  penstock_call_options_release(options);
  check_figures(&all, "\"open\":0,\"won\":0,");
  end_hedge(&all);
}

/* A hop below that sends an attempt again: the server is told of the attempts before, and not of the repetition. */
static int32_t send_again(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_STATUS) return PENSTOCK_NEXT;
  return penstock_status_code(penstock_hop_status(hop)) == PENSTOCK_STATUS_UNAVAILABLE ? PENSTOCK_RESTART
                                                                                       : PENSTOCK_NEXT;
}

TEST(hedging_attempts_may_be_sent_again_by_hops_below) {
  static const char *const plan[][2] = {{SLOW}, {FAILS}, {"", ""}, {NULL, NULL}};
  hedged all;
  probe again;
  hedge(&all, peer_address(), "{\"delay_ms\": 1}", NULL, plan);
  probe_init_with(&again, "again", send_again, NULL);
  again.replay_bytes = 1000;
  again.max_restarts = 1;
  probe_add(&again, all.channel, 50);
  penstock_reply *reply = ready_unary(all.channel, "x", "\"x-echo-metadata\": \"1\"");
  CHECK_INT(penstock_reply_code(reply), 0);
  CHECK_STR(ready_value(penstock_reply_trailers(reply), "seen-grpc-previous-rpc-attempts"), "1");
  check_value(reply, "{\"sent\":2,\"won\":2,\"cancelled\":1}");
  penstock_reply_release(reply);
  end_hedge(&all);
  probe_wait_finalized(&again);
}

/* A hop above that changes the number of request messages: none, or two. */
static int32_t change_number(probe *self, penstock_hop *hop, int32_t event) {
  if (event != PENSTOCK_EVENT_SEND) return PENSTOCK_NEXT;
  if (!self->context) return PENSTOCK_DROP;
  OK(penstock_hop_send(hop, "one more", 8));
  return PENSTOCK_NEXT;
}

TEST(hedging_needs_one_request_message) {
  static char two;
  for (int i = 0; i < 2; i++) {
    hedged all;
    probe changer;
    hedge(&all, peer_address(), "{\"delay_ms\": 0}", NULL, NULL);
    probe_init_with(&changer, "changer", change_number, i ? &two : NULL);
    probe_add(&changer, all.channel, 200);
    penstock_reply *reply = ready_unary(all.channel, "x", NULL);
    CHECK_HAS(ready_message(reply), i ? "more than one request message" : "message");
    CHECK_INT(ready_code(reply), PENSTOCK_STATUS_INTERNAL);
    check_figures(&all, i ? "\"sent\":0," : "\"open\":0,");
    end_hedge(&all);
    probe_wait_finalized(&changer);
  }
}

#define FAILURE "expect headers\ntrailers\n  :status: 200\n  content-type: application/grpc\n  grpc-status: 14\n"
#define ANSWER  "expect headers\nanswer\ndata message=\"late\"\ntrailers\n  grpc-status: 0\n"

/* Starts a peer that plays `steps`, for a channel with hedging. */
static void hedge_script(hedged *all, const char *steps, const char *options, int *input, int *output) {
  char path[] = "/tmp/penstock-hedging-XXXXXX", address[64];
  int script = mkstemp(path);
  REQUIRE(script >= 0);
  CHECK(write(script, steps, strlen(steps)) == (ssize_t)strlen(steps));
  close(script);
  char *const more[] = {"--script", path, NULL};
  *output = start_peer(address, sizeof(address), more, input);
  unlink(path);
  hedge(all, address, options, NULL, NULL);
}

TEST(hedging_waits_as_the_server_says) {
  hedged all;
  int input, output;
  hedge_script(&all, "handshake\n" FAILURE "  grpc-retry-pushback-ms: 20\n" ANSWER, HURRY "}", &input, &output);
  int64_t began = test_now_ms();
  penstock_reply *reply = ready_unary(all.channel, "x", NULL);
  CHECK_INT(penstock_reply_code(reply), 0);
  CHECK(ready_message_is(reply, "late"));
  CHECK(test_now_ms() - began >= 19);
  penstock_reply_release(reply);
  check_figures(&all, "\"sent\":2,\"open\":0,\"won\":1,\"failed\":1,");
  end_hedge(&all);
  close(input);
  close(output);
}

TEST(hedging_ends_where_the_server_wants_no_more) {
  hedged all;
  int input, output;
  hedge_script(&all, "handshake\n" FAILURE "  grpc-retry-pushback-ms: -1\n" ANSWER,
               "{\"delay_ms\": 86400000, \"max_attempts\": 5}", &input, &output);
  CHECK_INT(unary_code(all.channel, "x"), PENSTOCK_STATUS_UNAVAILABLE);
  check_figures(&all, "\"sent\":1,\"open\":0,\"won\":0,\"failed\":1,");
  check_figures(&all, "\"refused\":1,");
  end_hedge(&all);
  close(input);
  close(output);
}

/* The second attempt is one that the server has certainly not processed, so that it is sent again, on a new connection. */
TEST(hedging_attempts_that_were_not_processed_keep_their_number) {
  hedged all;
  int input, output;
  hedge_script(&all,
               "connection 1\nhandshake\nexpect headers 2\ngoaway NO_ERROR last=1\nsilence\n"
               "connection others\nserve\n",
               "{\"delay_ms\": 0}", &input, &output);
  penstock_reply *reply = ready_unary(all.channel, "x", "\"x-echo-metadata\": \"1\"");
  CHECK_INT(penstock_reply_code(reply), 0);
  CHECK_STR(ready_value(penstock_reply_trailers(reply), "seen-grpc-previous-rpc-attempts"), "1");
  check_value(reply, "{\"sent\":2,\"won\":2,\"cancelled\":1}");
  penstock_reply_release(reply);
  end_hedge(&all);
  close(input);
  close(output);
}
