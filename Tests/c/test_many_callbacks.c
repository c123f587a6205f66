/* on_readable: the messages of a call in callback style wait in the call until penstock_call_receive_many takes them. */
#include "many.h"

typedef struct reader {
  int readable, next;
  bool takes; /* in the callback itself */
  size_t most;
  latch told, ended;
} reader;

/* Takes what has come, until nothing is left. */
static penstock_result take_all(penstock_call *call, reader *self) {
  batch taken;
  penstock_result result;
  while ((result = take(call, &taken, self->most, SIZE)) == PENSTOCK_OK)
    self->next = check_numbered(&taken, self->next);
  return result;
}

static void reader_readable(penstock_call *call, void *user_data) {
  reader *self = user_data;
  self->readable++;
  if (self->takes) {
    CHECK_RESULT(take_all(call, self), PENSTOCK_E_WOULD_BLOCK);
    OK(penstock_call_demand(call, 1));
  }
  latch_signal(&self->told);
}

static void reader_reply(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  (void)reply;
  latch_signal(&((reader *)user_data)->ended);
}

static penstock_call *start_reader(penstock_channel *channel, const char *method, int32_t kind, reader *self) {
  penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
  table.user_data = self;
  table.on_readable = reader_readable;
  table.on_reply = reader_reply;
  penstock_call *call = NULL;
  OK(penstock_channel_call(channel, method, kind, NULL, &table, &call, NULL));
  return call;
}

TEST(many_in_the_callback) {
  enum { COUNT = 200 };
  penstock_channel *channel = open_channel();
  reader self = {.takes = true, .most = MOST, .told = LATCH_INIT, .ended = LATCH_INIT};
  penstock_call *call = start_reader(channel, BIDI, PENSTOCK_KIND_BIDI, &self);
  size_t sent = 0;
  OK(penstock_call_demand(call, 1));
  OK(send_numbered(call, 0, COUNT, &sent, true));
  OK(penstock_call_half_close(call));
  latch_wait(&self.ended, 1);
  CHECK_INT(self.next, COUNT);
  CHECK_INT(self.readable, COUNT);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

/* The messages that were asked for wait in the call: no more come, and they can be taken after its end. */
TEST(many_that_wait_in_the_call) {
  penstock_channel *channel = open_channel();
  reader self = {.most = 3, .told = LATCH_INIT, .ended = LATCH_INIT};
  penstock_call *call = start_reader(channel, BIDI, PENSTOCK_KIND_BIDI, &self);
  size_t sent = 0;
  batch taken;
  CHECK_RESULT(take(call, &taken, 1, SIZE), PENSTOCK_E_WOULD_BLOCK);
  penstock_message *message = NULL;
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_WOULD_BLOCK);
  OK(send_numbered(call, 0, 12, &sent, true));
  OK(penstock_call_half_close(call));
  OK(penstock_call_demand(call, 4));
  latch_wait(&self.told, 1);
  CHECK_MESSAGE(call, "0");
  self.next = 1;
  EVENTUALLY(take_all(call, &self) == PENSTOCK_E_WOULD_BLOCK && self.next == 4);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

TEST(many_after_the_end) {
  penstock_channel *channel = open_channel();
  reader self = {.most = 3, .told = LATCH_INIT, .ended = LATCH_INIT};
  penstock_call *call = start_reader(channel, BIDI, PENSTOCK_KIND_BIDI, &self);
  size_t sent = 0;
  OK(send_numbered(call, 0, 12, &sent, true));
  OK(penstock_call_half_close(call));
  OK(penstock_call_demand(call, 20));
  latch_wait(&self.ended, 1);
  /* All have come while none was taken, so there was one callback. */
  CHECK_INT(self.readable, 1);
  CHECK_RESULT(take_all(call, &self), PENSTOCK_E_END);
  CHECK_INT(self.next, 12);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

TEST(many_discarded_by_a_cancel) {
  penstock_channel *channel = open_channel();
  reader self = {.most = 3, .told = LATCH_INIT, .ended = LATCH_INIT};
  penstock_call *call = start_reader(channel, BIDI, PENSTOCK_KIND_BIDI, &self);
  size_t sent = 0;
  OK(send_numbered(call, 0, 12, &sent, true));
  OK(penstock_call_demand(call, 20));
  latch_wait(&self.told, 1);
  cancel(call);
  CHECK_RESULT(take_all(call, &self), PENSTOCK_E_END);
  latch_wait(&self.ended, 1);
  CHECK_INT(self.next, 0);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

TEST(many_one_response_is_readable) {
  penstock_channel *channel = open_channel();
  reader self = {.most = 3, .told = LATCH_INIT, .ended = LATCH_INIT};
  penstock_call *call = start_reader(channel, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM, &self);
  size_t sent = 0;
  OK(penstock_call_send_many(call, "abc", (size_t[]){1, 2}, 2, &sent));
  OK(penstock_call_half_close(call));
  latch_wait(&self.told, 1);
  CHECK_MESSAGE(call, "abc");
  latch_wait(&self.ended, 1);
  penstock_message *message = NULL;
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
  CHECK_INT(self.readable, 1);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

static void told_message(penstock_call *call, penstock_message *message, void *user_data) {
  (void)call;
  (void)message;
  (void)user_data;
}

TEST(many_or_each_message) {
  penstock_channel *channel = open_channel();
  latch freed = LATCH_INIT;
  penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
  table.user_data = &freed;
  table.finalizer = signal_latch;
  table.on_message = told_message;
  table.on_readable = reader_readable;
  penstock_call *call = NULL;
  penstock_error *error = NULL;
  CHECK_RESULT(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, &table, &call, &error),
               PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_ERROR(error, PENSTOCK_E_INVALID_ARGUMENT, NULL, "on_readable");
  CHECK_INT(latch_count(&freed), 1);
  /* Without on_readable nothing waits in a call in callback style. */
  table.on_readable = NULL;
  OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, &table, &call, NULL));
  batch taken;
  CHECK_RESULT(take(call, &taken, 1, SIZE), PENSTOCK_E_STATE);
  cancel(call);
  penstock_call_release(call);
  latch_wait(&freed, 2);
  penstock_channel_release(channel);
}
