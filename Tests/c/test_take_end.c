/* interceptor.h: a hop that has taken the call ends it with OK: the messages that it has delivered come first. */
#include "calls.h"
#include "hops.h"
#include "unary.h"

typedef struct ender {
  int32_t delivers_in, ends_in;
  bool has_ended;
} ender;

static int32_t answer_and_end(probe *self, penstock_hop *hop, int32_t event) {
  ender *ender = self->context;
  if (event == ender->delivers_in) OK(penstock_hop_deliver(hop, "cached", 6));
  if (event == ender->ends_in && !ender->has_ended) {
    ender->has_ended = true;
    OK(penstock_hop_end(hop, PENSTOCK_STATUS_OK, NULL));
  }
  return event == PENSTOCK_EVENT_START ? PENSTOCK_TAKE : PENSTOCK_NEXT;
}

static void expect_answer(int32_t delivers_in, int32_t ends_in) {
  ender ender = {delivers_in, ends_in, false};
  penstock_channel *channel = open_channel();
  probe taker;
  probe_init_with(&taker, "taker", answer_and_end, &ender);
  probe_add(&taker, channel, 1);
  penstock_call *call = start_call(channel, UNARY, PENSTOCK_KIND_UNARY);
  penstock_result sent = penstock_call_send(call, "q", 1);
  if (sent != PENSTOCK_E_GONE) OK(sent);
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) {
    if (!CHECK_INT(penstock_reply_code(reply), 0)) printf("  %s\n", penstock_reply_status_json(reply));
    CHECK(message_is(reply, "cached"));
    penstock_reply_release(reply);
  }
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&taker);
}

TEST(take_ends_behind_what_the_same_callback_delivered) {
  expect_answer(PENSTOCK_EVENT_HALF_CLOSE, PENSTOCK_EVENT_HALF_CLOSE);
}
TEST(take_ends_behind_what_was_delivered_before_the_verdict) {
  expect_answer(PENSTOCK_EVENT_START, PENSTOCK_EVENT_DEMAND);
}

/* A hop that delivers an answer and ends the call with OK must have taken the call. Here it has not, so the call ends
 * with INTERNAL. */
TEST(take_is_needed_for_what_was_delivered) {
  ender ender = {PENSTOCK_EVENT_START, PENSTOCK_EVENT_START, false};
  penstock_channel *channel = open_channel();
  probe taker;
  probe_init_with(&taker, "taker", answer_and_end, &ender);
  probe_add(&taker, channel, 1);
  penstock_reply *reply = unary(channel, "q");
  if (CHECK(reply)) {
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_INTERNAL);
    CHECK_HAS(penstock_status_message(penstock_reply_status(reply), NULL), "needs TAKE");
    penstock_reply_release(reply);
  }
  penstock_channel_release(channel);
  probe_wait_finalized(&taker);
}

typedef struct waiter {
  penstock_ticket ticket;
  latch paused;
  atomic_int sends;
} waiter;

static int32_t answer_and_pause(probe *self, penstock_hop *hop, int32_t event) {
  waiter *waiter = self->context;
  if (event == PENSTOCK_EVENT_START) return PENSTOCK_TAKE;
  if (event != PENSTOCK_EVENT_SEND || atomic_fetch_add(&waiter->sends, 1) > 0) return PENSTOCK_NEXT;
  OK(penstock_hop_deliver(hop, "a", 1));
  OK(penstock_hop_deliver(hop, "b", 1));
  waiter->ticket = penstock_hop_ticket(hop);
  latch_signal(&waiter->paused);
  return PENSTOCK_PAUSE;
}

/* The hop ends the call by the ticket of a message. That message then no longer waits at the hop, so the caller's sends
 * go on, although the answer still waits for the caller. */
TEST(take_ends_at_a_ticket_and_holds_up_no_sender) {
  waiter waiter = {0, LATCH_INIT, 0};
  penstock_channel *channel = open_channel();
  probe taker;
  probe_init_with(&taker, "taker", answer_and_pause, &waiter);
  probe_add(&taker, channel, 1);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_call_send(call, "q", 1));
  latch_wait(&waiter.paused, 1);
  OK(penstock_ticket_end(waiter.ticket, PENSTOCK_STATUS_OK, NULL));
  static char big[200000];
  for (int i = 0; i < 5; i++) OK(penstock_call_send(call, big, sizeof big));
  CHECK_MESSAGE(call, "a");
  CHECK_MESSAGE(call, "b");
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&taker);
}
