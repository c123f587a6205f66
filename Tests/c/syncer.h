/* Shared by the tests of sync.h: a synchronous interceptor with a hook, and unary calls through it. */
#ifndef PENSTOCK_SYNCER_H
#define PENSTOCK_SYNCER_H

#include "test.h"

typedef struct syncer {
  int32_t (*hook)(struct syncer *self, penstock_hop *call);
  const char *text;
  atomic_int runs, finalized, code;
  latch entered, go, done;
} syncer;

static inline int32_t intercept(penstock_hop *call, void *user_data) {
  syncer *self = user_data;
  atomic_fetch_add(&self->runs, 1);
  int32_t verdict = self->hook(self, call);
  latch_signal(&self->done);
  return verdict;
}

static inline void syncer_finalized(void *user_data) { atomic_fetch_add(&((syncer *)user_data)->finalized, 1); }

static inline void syncer_init(syncer *self, int32_t (*hook)(syncer *, penstock_hop *)) {
  memset(self, 0, sizeof(*self));
  self->hook = hook;
  self->text = "";
  self->code = -1;
  self->entered = self->go = self->done = (latch)LATCH_INIT;
}

static inline penstock_interceptor syncer_table(syncer *self, const char *name) {
  penstock_sync_interceptor sync = PENSTOCK_SYNC_INTERCEPTOR_INIT;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  sync.name = name;
  sync.user_data = self;
  sync.finalizer = syncer_finalized;
  sync.intercept = intercept;
  OK(penstock_sync_interceptor_table(&sync, &table, NULL));
  return table;
}

static inline penstock_interceptor_id syncer_add(syncer *self, penstock_channel *channel, int32_t priority) {
  penstock_interceptor table = syncer_table(self, "sync");
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, &table, priority, &id, NULL));
  return id;
}

/* Opens a channel with one synchronous interceptor. `bench_close` closes the channel, and checks that the interceptor
 * is finalized once. */
static inline penstock_channel *bench_open(syncer *self, int32_t (*hook)(syncer *, penstock_hop *)) {
  penstock_channel *channel = open_channel();
  syncer_init(self, hook);
  syncer_add(self, channel, 0);
  return channel;
}

static inline void bench_close(syncer *self, penstock_channel *channel) {
  penstock_channel_close(channel);
  penstock_channel_release(channel);
  EVENTUALLY(atomic_load(&self->finalized) == 1);
}

static inline penstock_reply *unary(penstock_channel *channel, const char *request, const char *options) {
  penstock_call_options *parsed = NULL;
  if (options) OK(penstock_call_options_new(options, &parsed, NULL));
  penstock_reply *reply = NULL;
  OK(penstock_channel_unary(channel, UNARY, request, strlen(request), parsed, &reply, NULL));
  penstock_call_options_release(parsed);
  return reply;
}

static inline void check_unary(penstock_channel *channel, const char *options, int32_t code, const char *message,
                               const char *text) {
  penstock_reply *reply = unary(channel, "ping", options);
  REQUIRE(reply);
  size_t length = 0;
  const char *data = penstock_reply_bytes(reply, &length);
  if (!CHECK_INT(penstock_reply_code(reply), code)) printf("  %s\n", penstock_reply_status_json(reply));
  if (message) CHECK(data && length == strlen(message) && memcmp(data, message, length) == 0);
  if (text) CHECK_HAS(penstock_reply_status_json(reply), text);
  penstock_reply_release(reply);
}

static inline bool is(const void *data, size_t length, const char *text) {
  return data && length == strlen(text) && memcmp(data, text, length) == 0;
}

static inline bool request_is(penstock_hop *call, const char *text) {
  const void *data = NULL;
  size_t length = 0;
  return hop_bytes(call, &data, &length) == PENSTOCK_OK && is(data, length, text);
}

static inline bool response_is(penstock_hop *call, const char *text) {
  const void *data = NULL;
  size_t length = 0;
  return hop_bytes(call, &data, &length) == PENSTOCK_OK && is(data, length, text);
}

#endif
