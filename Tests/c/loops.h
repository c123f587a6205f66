/* Shared by the tests of runtimes with several loops: channels on all of them, and threads that call. */
#ifndef PENSTOCK_LOOPS_H
#define PENSTOCK_LOOPS_H

#include "calls.h"

enum { LOOPS = 3, CHANNELS = 6, THREADS = 8 };

static inline penstock_runtime *three_loops(void) { return new_runtime("{\"loops\": 3}"); }

typedef struct crowd {
  penstock_runtime *runtime;
  penstock_channel *channels[CHANNELS];
  atomic_int turn, calls, others;
  atomic_bool over;
  /* Whether calls may fail, because the runtime is shut down meanwhile. */
  bool ends;
} crowd;

static inline void crowd_open(crowd *self, const char *options) {
  memset(self, 0, sizeof(*self));
  self->runtime = new_runtime(options);
  for (int i = 0; i < CHANNELS; i++) self->channels[i] = open_channel_on(self->runtime);
}

static inline void crowd_close(crowd *self) {
  for (int i = 0; i < CHANNELS; i++) penstock_channel_release(self->channels[i]);
  penstock_runtime_release(self->runtime);
}

static inline void *keep_calling(void *pointer) {
  crowd *self = pointer;
  int at = atomic_fetch_add(&self->turn, 1);
  for (int i = at; !atomic_load(&self->over); i++) {
    penstock_channel *channel = self->channels[i % CHANNELS];
    if (i % 7 == 0 && !self->ends) {
      exchange(channel, 3);
      atomic_fetch_add(&self->others, 1);
      continue;
    }
    penstock_reply *reply = NULL;
    penstock_result result = penstock_channel_unary(channel, UNARY, "ping", 4, NULL, &reply, NULL);
    int32_t code = result == PENSTOCK_OK ? penstock_reply_code(reply) : -1;
    penstock_reply_release(reply);
    if (self->ends && (result == PENSTOCK_E_CLOSED || code == 1)) return NULL;
    CHECK_RESULT(result, PENSTOCK_OK);
    CHECK_INT(code, 0);
    atomic_fetch_add(&self->calls, 1);
  }
  return NULL;
}

#endif
