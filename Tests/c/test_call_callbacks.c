/* call.h: calls in callback style. */
#include "calls.h"

typedef struct flow {
  latch headers, messages, sent, reply, finalized;
  int32_t code;
  size_t bytes;
  char reason[128];
  penstock_call *call;
} flow;

static void flow_headers(penstock_call *call, const penstock_metadata *headers, void *user_data) {
  flow *flow = user_data;
  CHECK(call != NULL && headers != NULL);
  CHECK_INT(latch_count(&flow->messages), 0);
  CHECK_INT(latch_count(&flow->reply), 0);
  latch_signal(&flow->headers);
}
static void flow_message(penstock_call *call, penstock_message *message, void *user_data) {
  flow *flow = user_data;
  flow->bytes += message_length(message);
  CHECK_INT(latch_count(&flow->reply), 0);
  CHECK(penstock_call_id(call) != 0);
  latch_signal(&flow->messages);
}
static void flow_sent(penstock_call *call, uint64_t count, void *user_data) {
  (void)call;
  flow *flow = user_data;
  for (uint64_t i = 0; i < count; i++) latch_signal(&flow->sent);
}
static void flow_reply(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  flow *flow = user_data;
  flow->code = penstock_reply_code(reply);
  snprintf(flow->reason, sizeof(flow->reason), "%s", penstock_status_message(penstock_reply_status(reply), NULL));
  latch_signal(&flow->reply);
}
static void flow_finalized(void *user_data) { latch_signal(&((flow *)user_data)->finalized); }

static penstock_call_callbacks flow_table(flow *flow) {
  memset(flow, 0, sizeof(*flow));
  latch empty = LATCH_INIT;
  flow->headers = flow->messages = flow->sent = flow->reply = flow->finalized = empty;
  penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
  table.user_data = flow;
  table.finalizer = flow_finalized;
  table.on_headers = flow_headers;
  table.on_message = flow_message;
  table.on_sent = flow_sent;
  table.on_reply = flow_reply;
  return table;
}

TEST(call_callback_style) {
  penstock_channel *channel = open_channel();
  flow flow;
  penstock_call_callbacks table = flow_table(&flow);
  penstock_call *call = NULL;
  REQUIRE_OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, &table, &call, NULL));
  memset(&table, 0x55, sizeof(table));
  OK(penstock_call_try_send(call, "one", 3));
  OK(penstock_call_try_send(call, "three", 5));
  latch_wait(&flow.sent, 2);
  OK(penstock_call_demand(call, 1));
  latch_wait(&flow.messages, 1);
  latch_wait(&flow.headers, 1);
  CHECK_INT(flow.bytes, 3);
  penstock_message *message = NULL;
  const penstock_metadata *headers = NULL;
  penstock_reply *reply = NULL;
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_call_wait_headers(call, &headers), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_call_wait_status(call, &reply), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_call_wait(call, &reply), PENSTOCK_E_STATE);
  OK(penstock_call_demand(call, 5));
  latch_wait(&flow.messages, 2);
  OK(penstock_call_half_close(call));
  latch_wait(&flow.reply, 1);
  latch_wait(&flow.finalized, 1);
  CHECK_INT(flow.code, 0);
  CHECK_INT(flow.bytes, 8);
  OK(penstock_call_reply(call, &reply));
  penstock_reply_release(reply);
  CHECK_RESULT(penstock_call_try_send(call, "x", 1), PENSTOCK_E_GONE);
  penstock_call_demand(call, 1);
  OK(penstock_call_cancel(call, "late"));
  penstock_call_release(call);
  penstock_channel_release(channel);
  CHECK_INT(latch_count(&flow.reply), 1);
  CHECK_INT(latch_count(&flow.finalized), 1);
  CHECK_INT(latch_count(&flow.headers), 1);
}

TEST(call_callback_style_goes_on_when_released) {
  penstock_channel *channel = open_channel();
  flow flow;
  penstock_call_callbacks table = flow_table(&flow);
  penstock_call *call = NULL;
  REQUIRE_OK(penstock_channel_call(channel, UNARY, PENSTOCK_KIND_UNARY, NULL, &table, &call, NULL));
  OK(penstock_call_try_send(call, "ping", 4));
  OK(penstock_call_half_close(call));
  penstock_call_release(call);
  penstock_channel_release(channel);
  latch_wait(&flow.reply, 1);
  latch_wait(&flow.finalized, 1);
  CHECK_INT(flow.code, 0);
}

TEST(call_callback_style_cancel) {
  penstock_channel *channel = open_channel();
  flow flow;
  penstock_call_callbacks table = flow_table(&flow);
  penstock_call *call = NULL;
  REQUIRE_OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, &table, &call, NULL));
  OK(penstock_call_cancel(call, "enough"));
  latch_wait(&flow.finalized, 1);
  CHECK_INT(flow.code, PENSTOCK_STATUS_CANCELLED);
  CHECK_STR(flow.reason, "enough");
  CHECK_INT(latch_count(&flow.reply), 1);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

TEST(call_callbacks_may_all_be_null) {
  penstock_channel *channel = open_channel();
  latch finalized = LATCH_INIT;
  penstock_call *call = start_callback_call(channel, UNARY, PENSTOCK_KIND_UNARY, &finalized);
  REQUIRE(call);
  OK(penstock_call_try_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  latch_wait(&finalized, 1);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

TEST(call_finalizer_runs_once_on_error) {
  penstock_channel *channel = open_channel();
  latch finalized = LATCH_INIT;
  penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
  table.user_data = &finalized;
  table.finalizer = signal_latch;
  penstock_call *call = NULL;
  CHECK_RESULT(penstock_channel_call(channel, "nonsense", 0, NULL, &table, &call, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_INT(latch_count(&finalized), 1);
  CHECK_RESULT(penstock_channel_call(channel, UNARY, 9, NULL, &table, &call, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_INT(latch_count(&finalized), 2);
  CHECK_RESULT(penstock_channel_call(channel, UNARY, 0, NULL, &table, NULL, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_INT(latch_count(&finalized), 3);
  CHECK_RESULT(penstock_channel_call(NULL, UNARY, 0, NULL, &table, &call, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_INT(latch_count(&finalized), 4);
  OK(penstock_channel_close(channel));
  CHECK_RESULT(penstock_channel_call(channel, UNARY, 0, NULL, &table, &call, NULL), PENSTOCK_E_CLOSED);
  CHECK_INT(latch_count(&finalized), 5);
  penstock_channel_release(channel);
}

TEST(call_many_at_once) {
  penstock_channel *channel = open_channel();
  enum { count = 200 };
  static flow flows[count];
  for (int i = 0; i < count; i++) {
    penstock_call_callbacks table = flow_table(&flows[i]);
    penstock_call *call = NULL;
    REQUIRE_OK(penstock_channel_call(channel, UNARY, PENSTOCK_KIND_UNARY, NULL, &table, &call, NULL));
    OK(penstock_call_try_send(call, "ping", 4));
    OK(penstock_call_half_close(call));
    penstock_call_release(call);
  }
  for (int i = 0; i < count; i++) {
    latch_wait(&flows[i].finalized, 1);
    CHECK_INT(flows[i].code, 0);
  }
  penstock_channel_release(channel);
}
