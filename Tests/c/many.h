/* Shared by the tests of the functions that take or send many messages. */
#ifndef PENSTOCK_MANY_H
#define PENSTOCK_MANY_H

#include "calls.h"

enum { MOST = 64, SIZE = 4096 };

/* The messages that one call of penstock_call_receive_many has given. */
typedef struct batch {
  char data[SIZE];
  size_t lengths[MOST], count;
} batch;

static inline penstock_result take(penstock_call *call, batch *taken, size_t most, size_t size) {
  taken->count = 77;
  penstock_result result = penstock_call_receive_many(call, most, taken->data, size, taken->lengths, &taken->count);
  if (result == PENSTOCK_OK) {
    CHECK(taken->count >= 1 && taken->count <= most);
  } else {
    CHECK_INT(taken->count, 77);
  }
  return result;
}

/* The numbered messages of a stream: "0", "1", ..., which differ in length. Every seventh is empty. */
static inline size_t numbered(int number, char *text) {
  return number % 7 == 6 ? 0 : (size_t)snprintf(text, 16, "%d", number);
}

/* Checks the messages of a batch, of which the first has this number; returns the number after the last. */
static inline int check_numbered(const batch *taken, int number) {
  size_t at = 0;
  char text[16];
  for (size_t i = 0; i < taken->count; i++, number++) {
    size_t length = numbered(number, text);
    if (CHECK_INT(taken->lengths[i], length)) CHECK(memcmp(taken->data + at, text, length) == 0);
    at += taken->lengths[i];
  }
  return number;
}

/* Sends `count` numbered messages, beginning with the number `from`. */
static inline penstock_result send_numbered(penstock_call *call, int from, int count, size_t *sent, bool waits) {
  char *data = malloc((size_t)count * 16 + 1);
  size_t *lengths = calloc((size_t)count + 1, sizeof(*lengths)), used = 0;
  for (int i = 0; i < count; i++) used += lengths[i] = numbered(from + i, data + used);
  penstock_result result = waits ? penstock_call_send_many(call, data, lengths, (size_t)count, sent)
                                 : penstock_call_try_send_many(call, data, lengths, (size_t)count, sent);
  free(data);
  free(lengths);
  return result;
}

static inline void cancel(penstock_call *call) { OK(penstock_call_cancel(call, "enough")); }

#endif
