/* ready.h: rate limit and fault injection. */
#include "ready.h"

static penstock_interceptor_id rate_add(penstock_channel *channel, const char *options) {
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_error *error = NULL;
  OK(penstock_ready_rate_limit(options, &table, &error));
  if (error) printf("  %s\n", penstock_error_message(error));
  penstock_error_release(error);
  return ready_add(channel, &table, 0);
}

TEST(rate_limit_lets_calls_wait_their_turn) {
  penstock_channel *channel = open_channel();
  rate_add(channel, "{\"rate\": 50, \"burst\": 2, \"max_wait_ms\": 60000}");
  penstock_call *call[7];
  int64_t began = test_now_ms();
  for (int i = 0; i < 7; i++) call[i] = ready_begin(channel, "x", NULL);
  for (int i = 0; i < 7; i++) {
    CHECK_INT(ready_code(ready_finish(call[i])), 0);
    /* Two calls start at once, then one every 20 ms. */
    if (i >= 2) CHECK(test_now_ms() - began >= 20 * (i - 1) - 1);
  }
  penstock_channel_release(channel);
}

TEST(rate_limit_bounds_those_who_wait_and_how_long) {
  penstock_channel *channel = open_channel();
  penstock_interceptor_id id = rate_add(channel, "{\"rate\": 0.001, \"burst\": 1, \"max_wait_ms\": 86400000, "
                                                 "\"max_waiting\": 2}");
  CHECK_INT(unary_code(channel, "x"), 0);
  penstock_call *waiting[2] = {ready_begin(channel, "x", NULL), ready_begin(channel, "x", NULL)};
  penstock_reply *reply = ready_unary(channel, "x", NULL);
  CHECK_HAS(ready_message(reply), "too many calls wait");
  CHECK_INT(ready_code(reply), PENSTOCK_STATUS_RESOURCE_EXHAUSTED);
  /* If a call is cancelled while it waits, another call gets its place. */
  OK(penstock_call_cancel(waiting[0], NULL));
  CHECK_INT(ready_code(ready_finish(waiting[0])), PENSTOCK_STATUS_CANCELLED);
  waiting[0] = ready_begin(channel, "x", NULL);
  CHECK_INT(unary_code(channel, "x"), PENSTOCK_STATUS_RESOURCE_EXHAUSTED);
  OK(penstock_registration_remove(id, NULL));
  CHECK_INT(unary_code(channel, "x"), 0);
  OK(penstock_channel_close(channel));
  for (int i = 0; i < 2; i++) CHECK_INT(ready_code(ready_finish(waiting[i])), PENSTOCK_STATUS_CANCELLED);
  penstock_channel_release(channel);

  channel = open_channel();
  rate_add(channel, "{\"rate\": 0.001, \"burst\": 1, \"max_wait_ms\": 10, \"code\": \"UNAVAILABLE\"}");
  CHECK_INT(unary_code(channel, "x"), 0);
  reply = ready_unary(channel, "x", NULL);
  CHECK_HAS(ready_message(reply), "max_wait_ms");
  CHECK_INT(ready_code(reply), PENSTOCK_STATUS_UNAVAILABLE);
  penstock_channel_release(channel);

  channel = open_channel();
  rate_add(channel, "{\"rate\": 1, \"max_waiting\": 0, \"code\": 10}");
  CHECK_INT(unary_code(channel, "x"), 0);
  CHECK_INT(unary_code(channel, "x"), PENSTOCK_STATUS_ABORTED);
  penstock_channel_release(channel);
}

TEST(rate_limit_waits_no_longer_than_the_deadline) {
  penstock_channel *channel = open_channel();
  rate_add(channel, "{\"rate\": 0.01, \"burst\": 1, \"max_wait_ms\": 86400000}");
  CHECK_INT(unary_code(channel, "x"), 0);
  penstock_call_options *options = NULL;
  penstock_reply *reply = NULL;
  OK(penstock_call_options_new("{\"deadline_ms\": 30}", &options, NULL));
  if (OK(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL))) {
    CHECK_INT(ready_code(reply), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  }
  penstock_call_options_release(options);
  penstock_channel_release(channel);
}

TEST(rate_limit_shared_by_two_runtimes) {
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_channel *channels[2] = {open_channel(), open_channel_on(runtime)};
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT, other = PENSTOCK_INTERCEPTOR_INIT;
  OK(penstock_ready_rate_limit("{\"rate\": 0.001, \"burst\": 10, \"max_waiting\": 0}", &table, NULL));
  OK(penstock_ready_share(&table, &other));
  ready_add(channels[0], &table, 0);
  ready_add(channels[1], &other, 0);
  penstock_call *call[40];
  int passed = 0;
  for (int i = 0; i < 40; i++) call[i] = ready_begin(channels[i % 2], "x", NULL);
  for (int i = 0; i < 40; i++) passed += ready_code(ready_finish(call[i])) == 0;
  CHECK_INT(passed, 10);
  penstock_channel_release(channels[0]);
  penstock_channel_release(channels[1]);
  penstock_runtime_release(runtime);
}

TEST(rate_limit_options_are_checked) {
  check_refused(penstock_ready_rate_limit, "{}", "$");
  check_refused(penstock_ready_rate_limit, NULL, "$");
  check_refused(penstock_ready_rate_limit, "{\"rate\": 0}", "$.rate");
  check_refused(penstock_ready_rate_limit, "{\"rate\": \"1\"}", "$.rate");
  check_refused(penstock_ready_rate_limit, "{\"rate\": 1000001}", "$.rate");
  check_refused(penstock_ready_rate_limit, "{\"rate\": 1, \"burst\": 0}", "$.burst");
  check_refused(penstock_ready_rate_limit, "{\"rate\": 1, \"max_wait_ms\": -1}", "$.max_wait_ms");
  check_refused(penstock_ready_rate_limit, "{\"rate\": 1, \"max_waiting\": 1.5}", "$.max_waiting");
  check_refused(penstock_ready_rate_limit, "{\"rate\": 1, \"code\": \"OK\"}", "$.code");
  check_refused(penstock_ready_rate_limit, "{\"rate\": 1, \"code\": 17}", "$.code");
  check_refused(penstock_ready_rate_limit, "{\"rate\": 1, \"speed\": 1}", "$.speed");
}

/* ---- Fault injection ---- */

static void fault_add(penstock_channel *channel, const char *options) {
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_error *error = NULL;
  OK(penstock_ready_fault_injection(options, &table, &error));
  if (error) printf("  %s\n", penstock_error_message(error));
  penstock_error_release(error);
  ready_add(channel, &table, 0);
}

TEST(fault_injection_aborts) {
  penstock_channel *channel = open_channel();
  fault_add(channel, "{\"abort\": {\"code\": \"DATA_LOSS\", \"message\": \"oh no\"}}");
  penstock_reply *reply = ready_unary(channel, "x", NULL);
  CHECK_STR(ready_message(reply), "oh no");
  CHECK_INT(ready_code(reply), PENSTOCK_STATUS_DATA_LOSS);
  penstock_channel_release(channel);
  channel = open_channel();
  fault_add(channel, "{\"abort\": {}}");
  reply = ready_unary(channel, "x", NULL);
  CHECK_STR(ready_message(reply), "injected fault");
  CHECK_INT(ready_code(reply), PENSTOCK_STATUS_UNAVAILABLE);
  penstock_channel_release(channel);
  channel = open_channel();
  fault_add(channel, NULL);
  fault_add(channel, "{\"abort\": {\"percent\": 0}, \"delay\": {\"ms\": 80000000, \"percent\": 0}}");
  CHECK_INT(unary_code(channel, "x"), 0);
  penstock_channel_release(channel);
}

TEST(fault_injection_delays_and_then_aborts) {
  penstock_channel *channel = open_channel();
  fault_add(channel, "{\"delay\": {\"ms\": 30}}");
  int64_t began = test_now_ms();
  CHECK_INT(unary_code(channel, "x"), 0);
  CHECK(test_now_ms() - began >= 29);
  fault_add(channel, "{\"delay\": {\"ms\": 40}, \"abort\": {\"code\": 13}}");
  began = test_now_ms();
  CHECK_INT(unary_code(channel, "x"), PENSTOCK_STATUS_INTERNAL);
  CHECK(test_now_ms() - began >= 69);
  penstock_channel_release(channel);
  /* A call that waits can be cancelled. */
  channel = open_channel();
  fault_add(channel, "{\"delay\": {\"ms\": 80000000}, \"abort\": {}}");
  penstock_call *call = ready_begin(channel, "x", NULL), *other = ready_begin(channel, "x", NULL);
  OK(penstock_call_cancel(call, NULL));
  CHECK_INT(ready_code(ready_finish(call)), PENSTOCK_STATUS_CANCELLED);
  OK(penstock_channel_close(channel));
  CHECK_INT(ready_code(ready_finish(other)), PENSTOCK_STATUS_CANCELLED);
  penstock_channel_release(channel);
}

/* Makes `count` calls, and writes '.' for each that succeeds and 'x' for each that fails. */
static void faults(const char *options, char *text, int count) {
  penstock_channel *channel = open_channel();
  fault_add(channel, options);
  for (int i = 0; i < count; i++) text[i] = unary_code(channel, "x") == 0 ? '.' : 'x';
  text[count] = 0;
  penstock_channel_release(channel);
}

TEST(fault_injection_is_the_same_for_the_same_seed) {
  enum { count = 200 };
  char first[count + 1], second[count + 1], other[count + 1];
  faults("{\"abort\": {\"percent\": 30}, \"seed\": 7}", first, count);
  faults("{\"abort\": {\"percent\": 30}, \"seed\": 7}", second, count);
  faults("{\"abort\": {\"percent\": 30}, \"seed\": 8}", other, count);
  CHECK_STR(first, second);
  CHECK(strcmp(first, other) != 0);
  int aborted = 0;
  for (int i = 0; i < count; i++) aborted += first[i] == 'x';
  CHECK(aborted > 30 && aborted < 90);
  /* Without a seed the faults differ: two hundred random results are not the same twice. */
  faults("{\"abort\": {\"percent\": 50}}", first, count);
  faults("{\"abort\": {\"percent\": 50}}", second, count);
  CHECK(strcmp(first, second) != 0);
}

TEST(fault_injection_options_are_checked) {
  check_refused(penstock_ready_fault_injection, "{\"abort\": 1}", "$.abort");
  check_refused(penstock_ready_fault_injection, "{\"abort\": {\"code\": \"NOPE\"}}", "$.abort.code");
  check_refused(penstock_ready_fault_injection, "{\"abort\": {\"code\": 0}}", "$.abort.code");
  check_refused(penstock_ready_fault_injection, "{\"abort\": {\"percent\": 101}}", "$.abort.percent");
  check_refused(penstock_ready_fault_injection, "{\"abort\": {\"percent\": -0.5}}", "$.abort.percent");
  check_refused(penstock_ready_fault_injection, "{\"abort\": {\"message\": 5}}", "$.abort.message");
  check_refused(penstock_ready_fault_injection, "{\"abort\": {\"when\": 5}}", "$.abort.when");
  check_refused(penstock_ready_fault_injection, "{\"delay\": {\"ms\": -1}}", "$.delay.ms");
  check_refused(penstock_ready_fault_injection, "{\"delay\": {\"percent\": \"all\"}}", "$.delay.percent");
  check_refused(penstock_ready_fault_injection, "{\"delay\": {\"s\": 1}}", "$.delay.s");
  check_refused(penstock_ready_fault_injection, "{\"seed\": -1}", "$.seed");
  check_refused(penstock_ready_fault_injection, "{\"seed\": 1, \"seed\": 2}", NULL);
}

/* A delay of 0 does not pause a call. */
TEST(fault_injection_without_a_delay_does_not_pause) {
  penstock_channel *channel = NULL;
  OK(penstock_channel_new(peer_address(), "{\"tls\": false, \"trace\": true}", &channel, NULL));
  fault_add(channel, "{\"delay\": {\"ms\": 0, \"percent\": 100}}");
  penstock_reply *reply = ready_unary(channel, "x", NULL);
  CHECK_HAS(penstock_reply_trace_json(reply), "\"event\":\"start\",\"lane\":\"outbound\",\"verdict\":\"NEXT\"");
  CHECK(strstr(penstock_reply_trace_json(reply), "PAUSE") == NULL);
  CHECK_INT(ready_code(reply), 0);
  penstock_channel_release(channel);
}
