/* hop.h: hops inject messages that lend the program's own bytes, without a copy. */
#include "observed.h"

static const char fixed[64 << 10] = {"fixed"};

static penstock_message *wrap(atomic_int *finalized) {
  penstock_message *message = NULL;
  OK(penstock_message_new_lent(fixed, sizeof(fixed), 0, finalized, count_up, &message));
  return message;
}

static bool is_fixed(penstock_hop *hop) {
  const void *data = NULL;
  size_t found = 0;
  return hop_bytes(hop, &data, &found) == PENSTOCK_OK && data == fixed && found == sizeof(fixed);
}

/* Uses set_message to replace each message by the one in `context`, and send_message to send that message at the
 * half-close. */
static int32_t give_message(probe *self, penstock_hop *hop, int32_t event) {
  penstock_message *message = self->context;
  if (event == PENSTOCK_EVENT_SEND || event == PENSTOCK_EVENT_RECEIVE) {
    const penstock_message *shown = penstock_hop_message(hop);
    OK(penstock_hop_set_message(hop, message));
    CHECK(is_fixed(hop));
    CHECK(penstock_hop_message(hop) == shown);
    CHECK(penstock_hop_codec(hop) == NULL);
  } else {
    CHECK_RESULT(penstock_hop_set_message(hop, message), PENSTOCK_E_STATE);
  }
  if (event == PENSTOCK_EVENT_HALF_CLOSE) OK(penstock_hop_send_message(hop, message));
  if (event == PENSTOCK_EVENT_STATUS) CHECK_RESULT(penstock_hop_send_message(hop, message), PENSTOCK_E_STATE);
  return PENSTOCK_NEXT;
}

static int32_t look_below(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_SEND) CHECK(is_fixed(hop));
  return PENSTOCK_NEXT;
}

TEST(message_that_hops_put_in) {
  penstock_channel *channel = open_channel();
  atomic_int finalized = 0;
  penstock_message *message = wrap(&finalized);
  probe above, below;
  probe_init_with(&above, "gives", give_message, message);
  probe_init_with(&below, "looks", look_below, NULL);
  probe_add(&above, channel, 1);
  probe_add(&below, channel, 0);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_call_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  for (int i = 0; i < 2; i++) {
    penstock_message *received = NULL;
    if (!OK(penstock_call_receive(call, &received))) break;
    CHECK(penstock_message_bytes(received, NULL) == fixed);
    CHECK_INT(message_length(received), sizeof(fixed));
    penstock_message_release(received);
  }
  check_finish(call, PENSTOCK_STATUS_OK);
  CHECK_INT(atomic_load(&below.seen[PENSTOCK_EVENT_SEND]), 2);
  penstock_channel_release(channel);
  probe_wait_finalized(&above);
  probe_wait_finalized(&below);
  penstock_message_release(message);
  EVENTUALLY(atomic_load(&finalized) == 1);
}

static int32_t answer_with_message(probe *self, penstock_hop *hop, int32_t event) {
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  OK(penstock_hop_deliver_message(hop, self->context));
  OK(answer_hop(hop, NULL));
  return PENSTOCK_TAKE;
}

TEST(message_that_a_hop_answers_with) {
  penstock_channel *channel = open_channel();
  atomic_int finalized = 0;
  penstock_message *message = wrap(&finalized);
  probe stub;
  probe_init_with(&stub, "stub", answer_with_message, message);
  probe_add(&stub, channel, 0);
  for (int i = 0; i < 2; i++) {
    penstock_reply *reply = NULL;
    size_t length = 0;
    if (!OK(penstock_channel_unary(channel, UNARY, "x", 1, NULL, &reply, NULL))) break;
    CHECK(penstock_reply_bytes(reply, &length) == fixed && length == sizeof(fixed));
    penstock_reply_release(reply);
  }
  penstock_channel_release(channel);
  probe_wait_finalized(&stub);
  penstock_message_release(message);
  EVENTUALLY(atomic_load(&finalized) == 1);
}
