/* Shared by the tests that mix synchronous interceptors with others: a synchronous interceptor with a hook. */
#ifndef PENSTOCK_PLAYERS_H
#define PENSTOCK_PLAYERS_H

#include "test.h"

typedef struct player player;
struct player {
  int32_t (*hook)(player *self, penstock_hop *call);
  void *context;
  penstock_channel *other;
  atomic_int runs, inside;
  pthread_t threads[4];
  latch finalized;
};

static inline int32_t intercept(penstock_hop *call, void *user_data) {
  player *self = user_data;
  atomic_fetch_add(&self->inside, 1);
  int run = atomic_fetch_add(&self->runs, 1);
  if (run < 4) self->threads[run] = pthread_self();
  int32_t verdict = self->hook(self, call);
  atomic_fetch_sub(&self->inside, 1);
  return verdict;
}

static inline void player_finalized(void *user_data) {
  player *self = user_data;
  CHECK_INT(self->inside, 0);
  latch_signal(&self->finalized);
}

static inline penstock_interceptor player_table(player *self, int32_t (*hook)(player *, penstock_hop *),
                                                uint32_t level) {
  memset(self, 0, sizeof(*self));
  self->finalized = (latch)LATCH_INIT;
  self->hook = hook;
  penstock_sync_interceptor sync = PENSTOCK_SYNC_INTERCEPTOR_INIT;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  sync.name = "player";
  sync.user_data = self;
  sync.finalizer = player_finalized;
  sync.level = level;
  sync.intercept = intercept;
  OK(penstock_sync_interceptor_table(&sync, &table, NULL));
  return table;
}

static inline void player_add_at(player *self, penstock_channel *channel, int32_t priority,
                                 int32_t (*hook)(player *, penstock_hop *), uint32_t level) {
  penstock_interceptor table = player_table(self, hook, level);
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, &table, priority, &id, NULL));
}

static inline void player_add(player *self, penstock_channel *channel, int32_t priority,
                              int32_t (*hook)(player *, penstock_hop *)) {
  player_add_at(self, channel, priority, hook, PENSTOCK_LEVEL_BYTES);
}

static inline int32_t pass(player *self, penstock_hop *call) {
  (void)self;
  penstock_hop_next(call);
  return PENSTOCK_NEXT;
}

#endif
