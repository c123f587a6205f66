/* channel.h: penstock_channel_close_gracefully. */
#include "test.h"

static void wait_for_shutdown(penstock_channel *channel) {
  for (int32_t state = penstock_channel_connectivity(channel); state != PENSTOCK_CONNECTIVITY_SHUTDOWN;) {
    penstock_result result = penstock_channel_wait_connectivity(channel, state, 20000, &state);
    if (result != PENSTOCK_E_INTERRUPTED && !OK(result)) return;
  }
}

static void check_status(int line, penstock_call *call, int32_t code, const char *message) {
  penstock_reply *reply = NULL;
  if (!check_result(__FILE__, line, "wait", penstock_call_wait(call, &reply), PENSTOCK_OK)) return;
  check_int(__FILE__, line, "code", penstock_reply_code(reply), code);
  if (message)
    check_str(__FILE__, line, "message", penstock_status_message(penstock_reply_status(reply), NULL), message);
  penstock_reply_release(reply);
}

/* Makes a bidi call that has sent a message and got it back. */
static penstock_call *echoing(penstock_channel *channel) {
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  penstock_message *message = NULL;
  OK(penstock_call_send(call, "a", 1));
  OK(penstock_call_receive(call, &message));
  penstock_message_release(message);
  return call;
}

static int32_t statuses;

static int32_t count_status(penstock_hop *hop, void *user_data) {
  (void)hop, (void)user_data;
  __atomic_fetch_add(&statuses, 1, __ATOMIC_RELAXED);
  return PENSTOCK_NEXT;
}

/* A running call goes on, with its interceptors. No new call can be made. When the running call ends, the channel
 * closes. */
TEST(graceful_close_lets_calls_end) {
  penstock_channel *channel = open_channel();
  penstock_interceptor counter = PENSTOCK_INTERCEPTOR_INIT;
  counter.on_status = count_status;
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, &counter, 0, &id, NULL));
  statuses = 0;
  penstock_call *call = echoing(channel);
  OK(penstock_channel_close_gracefully(channel, 60000));
  CHECK_RESULT(penstock_channel_close_gracefully(channel, 60000), PENSTOCK_E_ALREADY);
  CHECK_INT(penstock_channel_connectivity(channel), PENSTOCK_CONNECTIVITY_READY);
  penstock_reply *reply = NULL;
  CHECK_RESULT(penstock_channel_unary(channel, UNARY, "x", 1, NULL, &reply, NULL), PENSTOCK_E_CLOSED);
  CHECK_RESULT(penstock_channel_connect(channel), PENSTOCK_E_CLOSED);
  OK(penstock_call_send(call, "b", 1));
  OK(penstock_call_half_close(call));
  check_status(__LINE__, call, PENSTOCK_STATUS_OK, NULL);
  CHECK_INT(statuses, 1);
  wait_for_shutdown(channel);
  CHECK_RESULT(penstock_channel_close(channel), PENSTOCK_E_ALREADY);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

/* Calls that have not ended in time end with CANCELLED. */
TEST(graceful_close_has_a_limit) {
  penstock_channel *channel = open_channel();
  penstock_call *calls[3];
  for (int i = 0; i < 3; i++) calls[i] = echoing(channel);
  OK(penstock_channel_close_gracefully(channel, 50));
  for (int i = 0; i < 3; i++) {
    penstock_message *message = NULL;
    CHECK_RESULT(penstock_call_receive(calls[i], &message), PENSTOCK_E_END);
    check_status(__LINE__, calls[i], PENSTOCK_STATUS_CANCELLED, "channel closed");
    penstock_call_release(calls[i]);
  }
  wait_for_shutdown(channel);
  penstock_channel_release(channel);
}

/* penstock_channel_close does not wait for the calls that a graceful close waits for. */
TEST(graceful_close_cut_short) {
  penstock_channel *channel = open_channel();
  penstock_call *call = echoing(channel);
  OK(penstock_channel_close_gracefully(channel, -1));
  OK(penstock_channel_close(channel));
  check_status(__LINE__, call, PENSTOCK_STATUS_CANCELLED, "channel closed");
  CHECK_RESULT(penstock_channel_close(channel), PENSTOCK_E_ALREADY);
  CHECK_RESULT(penstock_channel_close_gracefully(channel, 0), PENSTOCK_E_ALREADY);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

TEST(graceful_close_without_calls) {
  penstock_channel *channel = open_channel();
  CHECK_RESULT(penstock_channel_close_gracefully(channel, -2), PENSTOCK_E_INVALID_ARGUMENT);
  check_echo(channel);
  OK(penstock_channel_close_gracefully(channel, -1));
  wait_for_shutdown(channel);
  penstock_channel_release(channel);
}

/* The caller releases its last reference while the graceful close waits for a call. */
TEST(graceful_close_and_release) {
  penstock_channel *channel = open_channel();
  penstock_call *call = echoing(channel);
  OK(penstock_channel_close_gracefully(channel, 60000));
  penstock_channel_release(channel);
  OK(penstock_call_half_close(call));
  check_status(__LINE__, call, PENSTOCK_STATUS_OK, NULL);
  penstock_call_release(call);
}

static penstock_channel *closing;

static int32_t close_at_start(penstock_hop *hop, void *user_data) {
  (void)hop, (void)user_data;
  OK(penstock_channel_close_gracefully(closing, 60000));
  return PENSTOCK_NEXT;
}

/* A callback of a call closes the channel: this call, too, goes on to its end. */
TEST(graceful_close_in_a_callback) {
  penstock_channel *channel = open_channel();
  penstock_interceptor closer = PENSTOCK_INTERCEPTOR_INIT;
  closer.on_start = close_at_start;
  closing = channel;
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, &closer, 0, &id, NULL));
  check_echo(channel);
  wait_for_shutdown(channel);
  penstock_channel_release(channel);
}

/* A runtime ends with a thousand open channels; some have connections, and some wait for their last call. */
TEST(graceful_close_of_a_thousand_channels_with_their_runtime) {
  enum { COUNT = 1000, CALLS = 20 };
  static penstock_channel *channels[COUNT];
  penstock_call *calls[CALLS];
  penstock_runtime *runtime = NULL;
  REQUIRE_OK(penstock_runtime_new(NULL, &runtime, NULL));
  for (int i = 0; i < COUNT; i++) channels[i] = open_channel_on(runtime);
  for (int i = 0; i < CALLS; i++) {
    calls[i] = echoing(channels[i]);
    if (i % 2) OK(penstock_channel_close_gracefully(channels[i], 60000));
  }
  OK(penstock_runtime_shutdown(runtime, -1));
  for (int i = 0; i < CALLS; i++) {
    check_status(__LINE__, calls[i], PENSTOCK_STATUS_CANCELLED, NULL);
    penstock_call_release(calls[i]);
  }
  for (int i = 0; i < COUNT; i++) {
    CHECK_INT(penstock_channel_connectivity(channels[i]), PENSTOCK_CONNECTIVITY_SHUTDOWN);
    penstock_channel_release(channels[i]);
  }
  penstock_runtime_release(runtime);
}
