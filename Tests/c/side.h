/* Shared by the tests of side calls: a side call in callback style, and a record of its callbacks. */
#ifndef PENSTOCK_SIDE_H
#define PENSTOCK_SIDE_H

#include "test.h"

/* The record of one side call's callbacks. */
typedef struct told {
  latch replied;
  latch headers;
  atomic_int code;
  char message[128];
  char body[64];
  penstock_ticket ticket; /* a ticket that is resumed when the reply comes; 0: none */
  atomic_int finalized;
} told;

static inline void told_init(told *self) {
  memset(self, 0, sizeof(*self));
  latch empty = LATCH_INIT;
  self->replied = self->headers = empty;
  atomic_store(&self->code, -1);
}

static inline void on_headers(penstock_call *call, const penstock_metadata *headers, void *user_data) {
  (void)call, (void)headers;
  latch_signal(&((told *)user_data)->headers);
}
static inline void on_reply(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  told *self = user_data;
  size_t length = 0;
  const char *body = penstock_reply_bytes(reply, &length);
  snprintf(self->body, sizeof(self->body), "%.*s", (int)length, body ? body : "");
  snprintf(self->message, sizeof(self->message), "%s", penstock_status_message(penstock_reply_status(reply), NULL));
  atomic_store(&self->code, penstock_reply_code(reply));
  if (self->ticket) penstock_ticket_resolve(self->ticket, PENSTOCK_NEXT);
}
static inline void told_finalizer(void *user_data) {
  told *self = user_data;
  atomic_fetch_add(&self->finalized, 1);
  latch_signal(&self->replied);
}

static inline penstock_call_callbacks told_table(told *self) {
  penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
  table.user_data = self;
  table.finalizer = told_finalizer;
  table.on_headers = on_headers;
  table.on_reply = on_reply;
  return table;
}

/* Begins a side call in callback style. A unary side call also sends its request message, "token". */
static inline penstock_result begin(penstock_hop *hop, const char *method, int32_t kind, uint32_t flags, told *self) {
  penstock_call_callbacks table = told_table(self);
  penstock_call *call = NULL;
  penstock_result result = penstock_hop_start_side_call(hop, method, kind, flags, NULL, &table, &call, NULL);
  if (result != PENSTOCK_OK) return result;
  if (kind == PENSTOCK_KIND_UNARY) {
    OK(penstock_call_try_send(call, "token", 5));
    OK(penstock_call_half_close(call));
  }
  penstock_call_release(call);
  return PENSTOCK_OK;
}

#define STARTS(probe) atomic_load(&(probe).seen[PENSTOCK_EVENT_START])

#endif
