/* penstock_ticket_hop: another thread delivers messages through the hop that it gets from a ticket; no callback has
 * retained that hop. */
#include "calls.h"
#include "unary.h"

typedef struct pauser {
  int32_t event;
  latch paused;
  penstock_ticket ticket;
} pauser;

static int32_t pause_once(probe *self, penstock_hop *hop, int32_t event) {
  pauser *pauser = self->context;
  if (event != pauser->event) return PENSTOCK_NEXT;
  pauser->ticket = penstock_hop_ticket(hop);
  latch_signal(&pauser->paused);
  return PENSTOCK_PAUSE;
}

/* Waits until the hop pauses, and gets the hop by its ticket. */
static penstock_hop *hop_of(pauser *pauser) {
  penstock_hop *hop = NULL;
  latch_wait(&pauser->paused, 1);
  OK(penstock_ticket_hop(pauser->ticket, &hop));
  return hop;
}

/* Messages may be delivered before they are asked for, before and after TAKE, up to hold_bytes. */
TEST(ticket_hop_answers_before_it_is_asked) {
  enum { size = 64, fit = 65536 / size };
  static const char data[size];
  penstock_channel *channel = open_channel();
  pauser pauser = {PENSTOCK_EVENT_START, LATCH_INIT, 0};
  probe probe;
  probe_init_with(&probe, "stub", pause_once, &pauser);
  probe_add(&probe, channel, 0);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  penstock_hop *hop = hop_of(&pauser);
  for (int i = 0; i < fit / 2; i++) OK(penstock_hop_deliver(hop, data, size));
  OK(penstock_ticket_resolve(pauser.ticket, PENSTOCK_TAKE));
  for (int i = fit / 2; i < fit; i++) OK(penstock_hop_deliver(hop, data, size));
  CHECK_RESULT(penstock_hop_deliver(hop, data, size), PENSTOCK_E_WOULD_BLOCK);
  penstock_message *message = NULL;
  for (int i = 0; i <= fit; i++) {
    if (i == 1) EVENTUALLY(penstock_hop_deliver(hop, data, size) == PENSTOCK_OK);
    if (!OK(penstock_call_receive(call, &message))) break;
    CHECK_INT(message_length(message), size);
    penstock_message_release(message);
  }
  penstock_status *status = NULL;
  OK(penstock_status_new(PENSTOCK_STATUS_OK, NULL, &status));
  OK(penstock_hop_deliver_status(hop, status));
  penstock_status_release(status);
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  CHECK_RESULT(penstock_hop_deliver(hop, data, size), PENSTOCK_E_GONE);
  penstock_hop_release(hop);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* The hop injects the message that the caller has asked for, before any message of the server. */
static void *receive_two(void *call) {
  CHECK_MESSAGE(call, "put in");
  CHECK_MESSAGE(call, "a");
  return NULL;
}
TEST(ticket_hop_puts_in_a_message_that_is_asked_for) {
  penstock_channel *channel = open_channel();
  pauser pauser = {PENSTOCK_EVENT_HEADERS, LATCH_INIT, 0};
  probe probe;
  probe_init_with(&probe, "injector", pause_once, &pauser);
  probe_add(&probe, channel, 0);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  penstock_hop *hop = hop_of(&pauser);
  CHECK_RESULT(penstock_hop_deliver(hop, "early", 5), PENSTOCK_E_WOULD_BLOCK);
  pthread_t reader;
  pthread_create(&reader, NULL, receive_two, call);
  EVENTUALLY(penstock_hop_deliver(hop, "put in", 6) == PENSTOCK_OK);
  CHECK_RESULT(penstock_hop_deliver(hop, "more", 4), PENSTOCK_E_WOULD_BLOCK);
  OK(penstock_ticket_resolve(pauser.ticket, PENSTOCK_NEXT));
  OK(penstock_call_send(call, "a", 1));
  pthread_join(reader, NULL);
  OK(penstock_call_half_close(call));
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  penstock_hop_release(hop);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}
