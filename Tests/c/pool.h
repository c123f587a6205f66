/* Shared by the tests of executor.h: a pool of threads as an executor. */
#ifndef PENSTOCK_POOL_H
#define PENSTOCK_POOL_H

#include "test.h"

#include <unistd.h>

/* ---- The pool of threads ---- */

typedef struct pool {
  penstock_executor *executor;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  struct {
    penstock_job job;
    void *argument;
  } queue[256];
  size_t first, count;
  int thread_count;
  pthread_t threads[4];
  bool blocked, stopped;
  atomic_int taken, finalized;
  /* The number of jobs that are still accepted; negative: all. */
  int accepts;
} pool;

/* The pool that this thread belongs to. */
static __thread pool *own_pool;

static inline void *pool_work(void *argument) {
  pool *self = argument;
  own_pool = self;
  pthread_mutex_lock(&self->mutex);
  while (!self->stopped || self->count > 0) {
    if (self->count == 0 || self->blocked) {
      pthread_cond_wait(&self->changed, &self->mutex);
      continue;
    }
    size_t at = self->first;
    self->first = (at + 1) % 256;
    self->count--;
    penstock_job job = self->queue[at].job;
    void *given = self->queue[at].argument;
    pthread_mutex_unlock(&self->mutex);
    job(given);
    pthread_mutex_lock(&self->mutex);
  }
  pthread_mutex_unlock(&self->mutex);
  return NULL;
}

static inline int32_t pool_submit(penstock_job job, void *argument, void *user_data) {
  pool *self = user_data;
  pthread_mutex_lock(&self->mutex);
  if (self->accepts == 0) {
    pthread_mutex_unlock(&self->mutex);
    return -1;
  }
  if (self->accepts > 0) self->accepts--;
  if (self->count == 256) abort();
  size_t at = (self->first + self->count++) % 256;
  self->queue[at].job = job;
  self->queue[at].argument = argument;
  atomic_fetch_add(&self->taken, 1);
  pthread_cond_signal(&self->changed);
  pthread_mutex_unlock(&self->mutex);
  return 0;
}

static inline void pool_finalize(void *user_data) { atomic_fetch_add(&((pool *)user_data)->finalized, 1); }

static inline void pool_open(pool *self, int threads) {
  memset(self, 0, sizeof(*self));
  pthread_mutex_init(&self->mutex, NULL);
  pthread_cond_init(&self->changed, NULL);
  self->accepts = -1;
  self->thread_count = threads;
  for (int i = 0; i < threads; i++) {
    if (pthread_create(&self->threads[i], NULL, pool_work, self)) abort();
  }
  OK(penstock_executor_new(pool_submit, self, pool_finalize, &self->executor));
}

static inline void pool_block(pool *self, bool blocked) {
  pthread_mutex_lock(&self->mutex);
  self->blocked = blocked;
  pthread_cond_broadcast(&self->changed);
  pthread_mutex_unlock(&self->mutex);
}

/* Ends the pool; nothing else may have a reference to the executor. */
static inline void pool_close(pool *self) {
  penstock_executor_release(self->executor);
  EVENTUALLY(atomic_load(&self->finalized) == 1);
  pthread_mutex_lock(&self->mutex);
  self->stopped = true;
  pthread_cond_broadcast(&self->changed);
  pthread_mutex_unlock(&self->mutex);
  for (int i = 0; i < self->thread_count; i++) pthread_join(self->threads[i], NULL);
  CHECK_INT(self->count, 0);
}

static inline penstock_interceptor_id add_on(penstock_channel *channel, probe *probe, int32_t priority,
                                             penstock_executor *outbound, penstock_executor *inbound) {
  penstock_interceptor table = probe_table(probe);
  table.outbound_executor = outbound;
  table.inbound_executor = inbound;
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, &table, priority, &id, NULL));
  return id;
}

static inline bool is_outbound(int32_t event) {
  return event == PENSTOCK_EVENT_START || event == PENSTOCK_EVENT_SEND || event == PENSTOCK_EVENT_HALF_CLOSE ||
         event == PENSTOCK_EVENT_SENT;
}

#endif
