/* ready.h: hedging. Throttles, the other channel, limits, the end of channels, executors, and wrong options. */
#include "calls.h"
#include "hedged.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

TEST(hedging_is_throttled_while_most_attempts_fail) {
  static const char *const plan[][2] = {{FAILS}, {NULL, NULL}};
  hedged all;
  hedge(&all, peer_address(), HURRY ", \"throttle\": {\"max_tokens\": 4, \"token_ratio\": 1}}", NULL, plan);
  /* Two failures leave two tokens of four: from then on only first attempts are sent. */
  CHECK_INT(unary_code(all.channel, "x"), PENSTOCK_STATUS_UNAVAILABLE);
  check_figures(&all, "\"sent\":2,");
  CHECK_INT(unary_code(all.channel, "x"), PENSTOCK_STATUS_UNAVAILABLE);
  check_figures(&all, "\"throttled\":1,\"refused\":0,\"throttle\":{\"tokens\":1,\"max_tokens\":4,"
                      "\"retries_allowed\":false}");
  check_figures(&all, "\"sent\":3,");
  static const char *const well[][2] = {{"", ""}, {NULL, NULL}};
  all.plan = well;
  for (int i = 0; i < 2; i++) CHECK_INT(unary_code(all.channel, "x"), 0);
  check_figures(&all, "\"retries_allowed\":true");
  end_hedge(&all);
}

/* The throttle of the channel's service config holds hedging back, too, also where no method has a retry policy. */
TEST(hedging_is_throttled_by_the_service_config) {
  static const char *const fails[][2] = {{FAILS}, {NULL, NULL}}, *const well[][2] = {{"", ""}, {NULL, NULL}};
  static const char channel[] = "{\"tls\": false, \"service_config\": {\"retryThrottling\": {\"maxTokens\": 4, "
                                "\"tokenRatio\": 1}}}";
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  hedged all;
  hedge_with(&all, peer_address(), channel, HURRY "}", NULL, fails, table);
  for (int i = 0; i < 2; i++) CHECK_INT(unary_code(all.channel, "x"), PENSTOCK_STATUS_UNAVAILABLE);
  check_figures(&all, "\"sent\":3,\"open\":0,\"won\":0,\"failed\":3,");
  check_figures(&all, "\"throttled\":1,\"refused\":0,\"throttle\":null}");
  check_channel(all.channel, "\"throttled\":1");
  check_channel(all.channel, "\"throttle\":{\"tokens\":1,\"max_tokens\":4,\"retries_allowed\":false}");
  all.plan = well;
  for (int i = 0; i < 2; i++) CHECK_INT(unary_code(all.channel, "x"), 0);
  check_channel(all.channel, "\"throttle\":{\"tokens\":3,\"max_tokens\":4,\"retries_allowed\":true}");
  all.plan = fails;
  CHECK_INT(unary_code(all.channel, "x"), PENSTOCK_STATUS_UNAVAILABLE);
  /* The first failure has left two tokens of four. */
  check_figures(&all, "\"sent\":6,");
  check_figures(&all, "\"throttled\":2,");
  end_hedge(&all);
}

/* Codes that end a call take no token. */
TEST(hedging_takes_no_token_for_a_fatal_code) {
  static const char *const plan[][2] = {{"x-status", "5"}, {NULL, NULL}};
  static const char channel[] = "{\"tls\": false, \"service_config\": {\"retryThrottling\": {\"maxTokens\": 4, "
                                "\"tokenRatio\": 1}}}";
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  hedged all;
  hedge_with(&all, peer_address(), channel, HURRY ", \"throttle\": {\"max_tokens\": 7}}", NULL, plan, table);
  CHECK_INT(unary_code(all.channel, "x"), PENSTOCK_STATUS_NOT_FOUND);
  check_channel(all.channel, "\"throttle\":{\"tokens\":4,");
  check_figures(&all, "\"throttle\":{\"tokens\":7,");
  end_hedge(&all);
}

TEST(hedging_goes_to_another_channel) {
  char address[64];
  int input;
  char *const none[] = {NULL};
  int output = start_peer(address, sizeof(address), none, &input);
  penstock_channel *other = NULL;
  OK(penstock_channel_new(peer_address(), "{\"tls\": false}", &other, NULL));
  static const char *const plan[][2] = {{SLOW}, {"", ""}, {NULL, NULL}};
  hedged all;
  hedge(&all, address, "{\"delay_ms\": 1}", other, plan);
  penstock_reply *reply = ready_unary(all.channel, "x", "\"x-echo-metadata\": \"1\"");
  CHECK_INT(penstock_reply_code(reply), 0);
  CHECK_STR(ready_value(penstock_reply_trailers(reply), "seen-authority"), peer_address());
  penstock_reply_release(reply);
  /* A channel that has been closed gets no attempt: the first one decides. */
  OK(penstock_channel_close(other));
  static const char *const fails[][2] = {{FAILS}, {NULL, NULL}};
  all.plan = fails;
  CHECK_INT(unary_code(all.channel, "x"), PENSTOCK_STATUS_UNAVAILABLE);
  check_figures(&all, "\"sent\":3,\"open\":0,\"won\":1,\"failed\":1,");
  penstock_channel_release(other);
  end_hedge(&all);
  close(input);
  close(output);
}

static void *hedge_many(void *channel) {
  for (int i = 0; i < 100; i++) CHECK_INT(unary_code(channel, "x"), 0);
  return NULL;
}

/* Cancels each call at another moment of its attempts. */
static void *cancel_many(void *channel) {
  for (int i = 0; i < 100; i++) {
    penstock_call *call = ready_begin(channel, "x", NULL);
    for (int turn = 0; turn < i; turn++) sched_yield();
    penstock_result cancelled = penstock_call_cancel(call, "enough");
    CHECK(cancelled == PENSTOCK_OK || cancelled == PENSTOCK_E_GONE);
    int32_t code = ready_code(ready_finish(call));
    CHECK(code == PENSTOCK_STATUS_OK || code == PENSTOCK_STATUS_CANCELLED);
  }
  return NULL;
}

/* Makes 400 calls with five attempts each, on four threads. The callbacks run on two threads beside the one on which the
 * attempts are sent and end. */
static void hedge_on_executors(hedged *all, void *(*body)(void *)) {
  penstock_executor *executors[2];
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  for (int i = 0; i < 2; i++) OK(penstock_executor_new_serial(&executors[i]));
  table.outbound_executor = executors[0];
  table.inbound_executor = executors[1];
  hedge_with(all, peer_address(), "{\"tls\": false}", "{\"delay_ms\": 0, \"max_attempts\": 5}", NULL, NULL, table);
  for (int i = 0; i < 2; i++) penstock_executor_release(executors[i]);
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) CHECK_INT(pthread_create(&threads[i], NULL, body, all->channel), 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

TEST(hedging_on_executors) {
  hedged all;
  hedge_on_executors(&all, hedge_many);
  check_figures(&all, "{\"calls\":400,");
  check_figures(&all, "\"open\":0,\"won\":400,\"failed\":0,");
  end_hedge(&all);
}

TEST(hedging_on_executors_ends_at_any_moment) {
  hedged all;
  hedge_on_executors(&all, cancel_many);
  check_figures(&all, "\"open\":0,");
  check_figures(&all, "\"failed\":0,");
  check_channel(all.channel, "\"in_flight\":0,");
  end_hedge(&all);
}

/* The limits are those of the call, not those that side calls have by the channel. */
TEST(hedging_keeps_to_the_limits_of_the_call) {
  penstock_channel *strict = NULL;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  OK(penstock_channel_new(peer_address(), "{\"tls\": false, \"max_send_message_bytes\": 1000}", &strict, NULL));
  OK(penstock_ready_hedging("{\"delay_ms\": 0}", NULL, &table, NULL));
  ready_add(strict, &table, 100);
  static char large[200000]; /* more than hold_bytes */
  memset(large, 'x', sizeof(large) - 1);
  penstock_call_options *options = options_of("{\"max_send_message_bytes\": 1000000}");
  penstock_reply *reply = NULL;
  if (OK(penstock_channel_unary(strict, UNARY, large, sizeof(large) - 1, options, &reply, NULL))) {
    CHECK_INT(penstock_reply_code(reply), 0);
    CHECK(ready_message_is(reply, large));
    penstock_reply_release(reply);
  }
  penstock_call_options_release(options);
  penstock_channel_release(strict);
}

/* A channel that is closed when its calls have ended lets them go on, also if their attempts begin only then. */
TEST(hedging_goes_on_while_the_channel_waits_for_its_calls) {
  static const char *const plan[][2] = {{SLOW}, {"", ""}, {NULL, NULL}};
  hedged all;
  hedge(&all, peer_address(), "{\"delay_ms\": 1}", NULL, plan);
  penstock_call *call = start_call(all.channel, UNARY, PENSTOCK_KIND_UNARY);
  OK(penstock_call_send(call, "x", 1));
  OK(penstock_channel_close_gracefully(all.channel, 60000));
  OK(penstock_call_half_close(call));
  penstock_reply *reply = ready_finish(call);
  CHECK_INT(ready_code(reply), 0);
  check_figures(&all, "\"sent\":2,\"open\":0,\"won\":1,\"failed\":0,\"cancelled\":1,");
  end_hedge(&all);
}

/* Keeps the first status that comes to it until the test lets it go. */
static int32_t keep_first_status(probe *self, penstock_hop *hop, int32_t event) {
  _Atomic penstock_ticket *kept = self->context;
  if (event != PENSTOCK_EVENT_STATUS || atomic_load(kept)) return PENSTOCK_NEXT;
  atomic_store(kept, penstock_hop_ticket(hop));
  return PENSTOCK_PAUSE;
}

/* The end of the other channel says nothing about the attempt on this one. */
TEST(hedging_outlives_the_other_channel) {
  penstock_channel *other = open_channel();
  static const char *const plan[][2] = {{"", ""}, {SLOW}, {NULL, NULL}};
  static _Atomic penstock_ticket kept;
  hedged all;
  probe keeper;
  hedge(&all, peer_address(), "{\"delay_ms\": 1}", other, plan);
  probe_init_with(&keeper, "keeper", keep_first_status, &kept);
  probe_add(&keeper, all.channel, 50);
  penstock_call *call = ready_begin(all.channel, "x", NULL);
  check_figures(&all, "\"sent\":2,\"open\":2,");
  EVENTUALLY(atomic_load(&kept));
  OK(penstock_channel_close(other));
  check_figures(&all, "\"sent\":2,\"open\":1,\"won\":0,\"failed\":1,\"cancelled\":0,");
  OK(penstock_ticket_resolve(atomic_load(&kept), PENSTOCK_NEXT));
  CHECK_INT(ready_code(ready_finish(call)), 0);
  check_figures(&all, "\"sent\":2,\"open\":0,\"won\":1,\"failed\":1,\"cancelled\":0,");
  penstock_channel_release(other);
  end_hedge(&all);
  probe_wait_finalized(&keeper);
}

TEST(hedging_refuses_what_it_can_not_do_in_words) {
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_channel *other = open_channel_on(runtime);
  hedged all;
  hedge(&all, peer_address(), NULL, other, NULL);
  penstock_reply *reply = ready_unary(all.channel, "x", NULL);
  CHECK_HAS(ready_message(reply), "it belongs to another runtime");
  CHECK_INT(ready_code(reply), PENSTOCK_STATUS_FAILED_PRECONDITION);
  end_hedge(&all);
  penstock_channel_release(other);
  penstock_runtime_release(runtime);

  for (int i = 0; i < 2; i++) {
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    penstock_channel *channel = open_channel();
    OK(penstock_ready_hedging(NULL, NULL, &table, NULL));
    table.kinds = 0;
    if (i) table.level = PENSTOCK_LEVEL_OBJECT;
    ready_add(channel, &table, 0);
    penstock_call *call =
        start_call(channel, i ? UNARY : SERVER_STREAM, i ? PENSTOCK_KIND_UNARY : PENSTOCK_KIND_SERVER_STREAM);
    reply = ready_finish(call);
    CHECK_HAS(ready_message(reply), i ? "level of bytes" : "for unary calls");
    CHECK_INT(ready_code(reply), i ? PENSTOCK_STATUS_INTERNAL : PENSTOCK_STATUS_UNIMPLEMENTED);
    penstock_channel_release(channel);
  }
}

static const struct {
  const char *json, *path;
} wrong[] = {
    {"{\"max_attempts\": 1}", "$.max_attempts"},
    {"{\"max_attempts\": 6}", "$.max_attempts"},
    {"{\"delay_ms\": -1}", "$.delay_ms"},
    {"{\"non_fatal_codes\": \"UNAVAILABLE\"}", "$.non_fatal_codes"},
    {"{\"non_fatal_codes\": [\"OK\"]}", "$.non_fatal_codes[0]"},
    {"{\"throttle\": {\"max_tokens\": 0}}", "$.throttle.max_tokens"},
    {"{\"throttle\": {\"token_ratio\": 0}}", "$.throttle.token_ratio"},
    {"{\"more\": 1}", "$.more"},
};

TEST(hedging_options_are_checked) {
  for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    penstock_error *error = NULL;
    CHECK_RESULT(penstock_ready_hedging(wrong[i].json, NULL, &table, &error), PENSTOCK_E_INVALID_JSON);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, wrong[i].path, wrong[i].path);
    CHECK(table.finalizer == NULL);
  }
}
