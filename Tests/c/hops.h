/* Shared by the tests of hop.h: sets of events, and a call that has all events. */
#ifndef PENSTOCK_HOPS_H
#define PENSTOCK_HOPS_H

#include "test.h"

#define IN(event)       (1u << PENSTOCK_EVENT_##event)
#define HAS(set, event) (((set) >> (event)) & 1u)
enum {
  EVERY = IN(START) | IN(SEND) | IN(HALF_CLOSE) | IN(HEADERS) | IN(RECEIVE) | IN(STATUS) | IN(CANCEL) | IN(DEMAND) |
          IN(SENT) | IN(CREATE) | IN(DESTROY),
  CALLBACKS = EVERY & ~(IN(CREATE) | IN(DESTROY)),
  PAUSABLE = IN(START) | IN(SEND) | IN(HALF_CLOSE) | IN(HEADERS) | IN(RECEIVE) | IN(STATUS),
};

/* Makes a bidi call with one message each way. If `cancel` is set, the caller cancels the call at the end. */
static inline void run_bidi(penstock_channel *channel, bool cancel) {
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  if (!call) return;
  penstock_call_send(call, "x", 1);
  penstock_message *message = NULL;
  if (penstock_call_receive(call, &message) == PENSTOCK_OK) penstock_message_release(message);
  if (cancel) penstock_call_cancel(call, "enough");
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) penstock_reply_release(reply);
  penstock_call_release(call);
}

/* The hook of a hop above the one under test: it ends the call at its first response message. */
static inline int32_t end_on_receive(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_RECEIVE) OK(penstock_hop_end(hop, PENSTOCK_STATUS_ABORTED, "stop"));
  return PENSTOCK_NEXT;
}

#endif
