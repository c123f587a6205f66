/* Unary calls: one after the other, many at once by callbacks, and from several threads. */
#include "bench.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static const char method[] = "/penstock.Echo/Unary";

static penstock_reply *call_once(bench *self, penstock_channel *channel) {
  penstock_reply *reply = NULL;
  need("unary", penstock_channel_unary(channel, method, self->request, self->bytes, NULL, &reply, NULL));
  return reply;
}

static void take(bench *self, penstock_reply *reply) {
  check_reply(reply, self->request, self->bytes);
  penstock_reply_release(reply);
}

void unary_once(bench *self, penstock_channel *channel) { take(self, call_once(self, channel)); }

void unary_blocking(bench *self, long calls) {
  for (long i = 0; i < calls; i++) {
    double since = now();
    penstock_reply *reply = call_once(self, self->channel);
    note_latency(self, since);
    take(self, reply);
  }
}

/* ---- Callbacks ---- */

static void start_one(bench *self);

static void on_reply(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  bench *self = user_data;
  check_reply(reply, self->request, self->bytes);
  pthread_mutex_lock(&self->mutex);
  bool more = self->started < self->calls;
  self->started += more;
  bool last = ++self->ended == self->calls;
  pthread_mutex_unlock(&self->mutex);
  if (more) start_one(self);
  if (last) done(self);
}

static void start_one(bench *self) {
  penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
  callbacks.user_data = self;
  callbacks.on_reply = on_reply;
  penstock_call *call = NULL;
  need("call", penstock_channel_call(self->channel, method, PENSTOCK_KIND_UNARY, NULL, &callbacks, &call, NULL));
  need("try_send", penstock_call_try_send(call, self->request, self->bytes));
  /* A server may answer before the half-close. Then the call has ended, and on_reply has checked the answer. */
  penstock_result closed = penstock_call_half_close(call);
  if (closed != PENSTOCK_E_GONE) need("half_close", closed);
  penstock_call_release(call);
}

void unary_callbacks(bench *self, long calls) {
  begin(self, calls);
  long first = self->in_flight < calls ? self->in_flight : calls;
  pthread_mutex_lock(&self->mutex);
  self->started = first;
  pthread_mutex_unlock(&self->mutex);
  for (long i = 0; i < first; i++) start_one(self);
  wait_until_done(self);
}

/* ---- Threads: each takes the next call as soon as its last has ended ---- */

typedef struct crew {
  bench *bench;
  pthread_barrier_t barrier;
  atomic_long left;
} crew;

typedef struct worker {
  crew *crew;
  pthread_t thread;
  long calls;
} worker;

static void *work(void *argument) {
  worker *self = argument;
  pthread_barrier_wait(&self->crew->barrier);
  while (atomic_fetch_sub(&self->crew->left, 1) > 0) {
    unary_once(self->crew->bench, self->crew->bench->channel);
    self->calls++;
  }
  return NULL;
}

void unary_threads(bench *self, long calls) {
  crew crew = {.bench = self};
  atomic_init(&crew.left, calls);
  pthread_barrier_init(&crew.barrier, NULL, (unsigned)self->threads);
  worker *workers = calloc((size_t)self->threads, sizeof(worker));
  for (int i = 0; i < self->threads; i++) {
    workers[i].crew = &crew;
    if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0) die("thread", PENSTOCK_E_SYSTEM);
  }
  long slowest = calls;
  for (int i = 0; i < self->threads; i++) {
    pthread_join(workers[i].thread, NULL);
    if (workers[i].calls < slowest) slowest = workers[i].calls;
  }
  self->slowest = (double)slowest * self->threads / (double)calls;
  pthread_barrier_destroy(&crew.barrier);
  free(workers);
}
