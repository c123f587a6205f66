/* Shared by the tests of traces and snapshots. */
#ifndef PENSTOCK_TRACES_H
#define PENSTOCK_TRACES_H

#include "test.h"

static inline int32_t pause_start(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  OK(penstock_ticket_resolve_after(penstock_hop_ticket(hop), PENSTOCK_NEXT, 3));
  return PENSTOCK_PAUSE;
}

static inline void end_call(penstock_call *call) {
  penstock_reply *reply = NULL;
  penstock_call_cancel(call, "enough");
  if (OK(penstock_call_wait(call, &reply))) penstock_reply_release(reply);
  penstock_call_release(call);
}

#endif
