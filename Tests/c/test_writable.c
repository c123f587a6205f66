/* on_sent as the signal to go on sending: a stream that is sent from callbacks alone, with penstock_call_try_send. */
#include "calls.h"

#define MESSAGES 10000
#define BATCH    500

typedef struct sender {
  size_t size;
  int sent, tried, refused, told;
  uint64_t counted;
  atomic_int received;
  latch batches, ended;
  atomic_int code;
} sender;

/* Sends on the driving thread as many messages as there is room for. */
static void pump(penstock_call *call, sender *self) {
  static const char data[1024];
  while (self->sent < MESSAGES) {
    self->tried++;
    penstock_result result = penstock_call_try_send(call, data, self->size);
    if (result == PENSTOCK_E_WOULD_BLOCK) {
      self->refused++;
      return;
    }
    if (!OK(result)) return;
    if (++self->sent == MESSAGES) OK(penstock_call_half_close(call));
  }
}

static void sender_headers(penstock_call *call, const penstock_metadata *headers, void *user_data) {
  (void)headers;
  pump(call, user_data);
}

static void sender_sent(penstock_call *call, uint64_t count, void *user_data) {
  sender *self = user_data;
  self->told++;
  self->counted += count;
  CHECK(self->counted <= (uint64_t)self->sent);
  CHECK_INT(self->code, -1);
  pump(call, self);
}

static void sender_message(penstock_call *call, penstock_message *message, void *user_data) {
  sender *self = user_data;
  (void)call;
  CHECK_INT(message_length(message), self->size);
  if (++self->received % BATCH == 0) latch_signal(&self->batches);
}

static void sender_reply(penstock_call *call, penstock_reply *reply, void *user_data) {
  sender *self = user_data;
  self->code = penstock_reply_code(reply);
  CHECK_RESULT(penstock_call_try_send(call, "x", 1), PENSTOCK_E_GONE);
}

static void sender_finalized(void *user_data) { latch_signal(&((sender *)user_data)->ended); }

/* The test reads messages in batches, with a pause before each batch: in the pause first the server's output and then
 * its input stops. */
static void stream(penstock_channel *channel, size_t size, const char *json, int arriving) {
  sender self = {.size = size, .batches = LATCH_INIT, .ended = LATCH_INIT, .code = -1};
  penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
  table.user_data = &self;
  table.on_headers = sender_headers;
  table.on_sent = sender_sent;
  table.on_message = sender_message;
  table.on_reply = sender_reply;
  table.finalizer = sender_finalized;
  penstock_call_options *options = options_of(json);
  penstock_call *call = NULL;
  REQUIRE_OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, options, &table, &call, NULL));
  penstock_call_options_release(options);
  for (int read = 0; read < arriving; read += BATCH) {
    for (int n = 0; n < 5; n++) test_pause();
    OK(penstock_call_demand(call, BATCH));
    if (read + BATCH <= arriving) REQUIRE(latch_wait(&self.batches, read / BATCH + 1));
  }
  latch_wait(&self.ended, 1);
  CHECK_INT(self.code, PENSTOCK_STATUS_OK);
  CHECK_INT(self.sent, MESSAGES);
  CHECK_INT(self.received, arriving);
  /* The sender has to wait, and tries once for each on_sent. */
  CHECK(self.refused > 10);
  CHECK_INT(self.tried, MESSAGES + self.refused);
  CHECK(self.refused <= self.told + 1);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

TEST(writable_is_told_by_on_sent) { stream(open_channel(), 1000, NULL, MESSAGES); }

/* One message at a time is always accepted, however little room there is. */
TEST(writable_one_message_at_a_time) { stream(open_channel(), 100, "{\"send_buffer_bytes\": 1}", MESSAGES); }

/* Drops every third message. on_sent reports the dropped messages, too. */
static int32_t drop_third(probe *self, penstock_hop *hop, int32_t event) {
  int *count = self->context;
  (void)hop;
  return event == PENSTOCK_EVENT_SEND && ++*count % 3 == 0 ? PENSTOCK_DROP : PENSTOCK_NEXT;
}

TEST(writable_is_told_of_messages_that_a_hop_drops) {
  penstock_channel *channel = open_channel();
  int count = 0;
  probe dropping;
  probe_init_with(&dropping, "dropping", drop_third, &count);
  probe_add(&dropping, channel, 0);
  stream(channel, 1000, NULL, MESSAGES - MESSAGES / 3);
  probe_wait_finalized(&dropping);
}
