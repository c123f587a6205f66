/* penstock_call_cancel: nothing is delivered after it has returned, and a status that has already come stays. */
#include "calls.h"

static penstock_call *stream_of(penstock_channel *channel, const char *json, const penstock_call_callbacks *table) {
  penstock_call_options *options = options_of(json);
  penstock_call *call = NULL;
  OK(penstock_channel_call(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM, options, table, &call, NULL));
  penstock_call_options_release(options);
  if (call) OK(table ? penstock_call_try_send(call, "again", 5) : penstock_call_send(call, "again", 5));
  if (call) OK(penstock_call_half_close(call));
  return call;
}

static void check_end(penstock_call *call) {
  penstock_message *message = NULL;
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
  CHECK(message == NULL);
  penstock_message_release(message);
}

static bool has_reply(penstock_call *call) {
  penstock_reply *reply = NULL;
  bool ended = penstock_call_reply(call, &reply) == PENSTOCK_OK;
  penstock_reply_release(reply);
  return ended;
}

/* The library reads up to 64 messages ahead of a thread that receives one after the other; a cancel discards them. */
TEST(cancel_discards_what_is_unread) {
  penstock_channel *channel = open_channel();
  for (int i = 0; i < test_rounds(300); i++) {
    penstock_call *call = stream_of(channel, "{\"metadata\": {\"x-count\": \"1000\"}}", NULL);
    REQUIRE(call != NULL);
    for (uint32_t n = 1 + test_random(3); n > 0; n--) CHECK_MESSAGE(call, "again");
    OK(penstock_call_cancel(call, "enough"));
    check_end(call);
    CHECK_FINISH(call, PENSTOCK_STATUS_CANCELLED);
    check_end(call);
    penstock_call_release(call);
  }
  penstock_channel_release(channel);
}

TEST(cancel_after_the_end_leaves_the_reply_whole) {
  penstock_channel *channel = open_channel();
  penstock_call *call = start_call(channel, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM);
  REQUIRE(call != NULL);
  OK(penstock_call_send(call, "all", 3));
  OK(penstock_call_half_close(call));
  EVENTUALLY(has_reply(call));
  OK(penstock_call_cancel(call, "late"));
  check_end(call);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_call_wait(call, &reply));
  size_t length = 0;
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
  const void *data = penstock_reply_bytes(reply, &length);
  CHECK(length == 3 && memcmp(data, "all", 3) == 0);
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

/* ---- Callback style ---- */

typedef struct listener {
  latch messages, proceed, finalized;
  bool cancels;
  atomic_int code;
} listener;

static void listener_message(penstock_call *call, penstock_message *message, void *user_data) {
  listener *self = user_data;
  (void)message;
  if (self->cancels) OK(penstock_call_cancel(call, "enough"));
  latch_signal(&self->messages);
  if (!self->cancels) latch_wait(&self->proceed, 1);
}

static void listener_reply(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  ((listener *)user_data)->code = penstock_reply_code(reply);
}

static void listener_finalized(void *user_data) { latch_signal(&((listener *)user_data)->finalized); }

/* Makes a call that asks for ten messages. While the first one is delivered, on_message or this thread cancels the
 * call; no other message may be delivered. */
static void listen_until(listener *self) {
  penstock_channel *channel = open_channel();
  penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
  table.user_data = self;
  table.on_message = listener_message;
  table.on_reply = listener_reply;
  table.finalizer = listener_finalized;
  penstock_call *call = stream_of(channel, "{\"metadata\": {\"x-count\": \"1000\"}}", &table);
  REQUIRE(call != NULL);
  OK(penstock_call_demand(call, 10));
  latch_wait(&self->messages, 1);
  if (!self->cancels) {
    OK(penstock_call_cancel(call, "enough"));
    latch_signal(&self->proceed);
  }
  latch_wait(&self->finalized, 1);
  CHECK_INT(latch_count(&self->messages), 1);
  CHECK_INT(self->code, PENSTOCK_STATUS_CANCELLED);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

TEST(cancel_in_on_message_is_followed_by_no_message) {
  for (int i = 0; i < test_rounds(50); i++) {
    listener self = {LATCH_INIT, LATCH_INIT, LATCH_INIT, true, -1};
    listen_until(&self);
  }
}

TEST(cancel_from_another_thread_lets_one_message_end) {
  for (int i = 0; i < test_rounds(50); i++) {
    listener self = {LATCH_INIT, LATCH_INIT, LATCH_INIT, false, -1};
    listen_until(&self);
  }
}
