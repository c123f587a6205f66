/* A unary call, and its answer. */
#ifndef PENSTOCK_UNARY_H
#define PENSTOCK_UNARY_H

#include "test.h"

static inline penstock_reply *unary(penstock_channel *channel, const char *request) {
  penstock_reply *reply = NULL;
  OK(penstock_channel_unary(channel, UNARY, request, strlen(request), NULL, &reply, NULL));
  return reply;
}

static inline bool message_is(const penstock_reply *reply, const char *text) {
  size_t length = 0;
  const void *data = penstock_reply_bytes(reply, &length);
  return data && length == strlen(text) && memcmp(data, text, length) == 0;
}

#endif
