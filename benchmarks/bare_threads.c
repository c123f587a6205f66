/* Several threads use one connection. If no thread reads, the next thread that waits reads for all of them, until its
 * own reply has come. */
#include "bare_client.h"

#include <stdlib.h>

static void wake(client *self, const caller *but, caller **found, int *count) {
  for (int i = 0; i < self->threads; i++) {
    caller *one = &self->callers[i];
    if (!one->ended || one == but) continue;
    one->ended = false;
    one->stream = 0;
    found[(*count)++] = one;
  }
}

/* Reads for all threads until the reply of `own` is there. The caller holds the mutex, before and afterwards. */
static void lead(client *self, caller *own) {
  static uint8_t input[65536];
  while (!own->ended) {
    pthread_mutex_unlock(&self->mutex);
    await(&self->link, true, false);
    size_t count = receive_into(&self->link, input, sizeof(input));
    need_open(self);
    pthread_mutex_lock(&self->mutex);
    take(&self->link, input, count);
    caller *woken[64];
    int ended = 0;
    wake(self, own, woken, &ended);
    if (ended == 0) continue;
    pthread_mutex_unlock(&self->mutex);
    for (int i = 0; i < ended; i++) sem_post(&woken[i]->wake);
    pthread_mutex_lock(&self->mutex);
  }
  own->ended = false;
  own->stream = 0;
  self->is_led = false;
}

static void call_once(client *self, caller *own) {
  pthread_mutex_lock(&self->mutex);
  own->stream = start_call(self);
  if (!flush(&self->link)) wrong("the socket is full");
  while (own->stream != 0) {
    if (!self->is_led) {
      self->is_led = true;
      lead(self, own);
      break;
    }
    pthread_mutex_unlock(&self->mutex);
    sem_wait(&own->wake);
    pthread_mutex_lock(&self->mutex);
  }
  caller *next = NULL;
  for (int i = 0; i < self->threads && !self->is_led && !next; i++)
    if (self->callers[i].stream != 0) next = &self->callers[i];
  pthread_mutex_unlock(&self->mutex);
  if (next) sem_post(&next->wake);
}

static void *work(void *argument) {
  caller *self = argument;
  pthread_barrier_wait(&self->client->start);
  for (; atomic_fetch_sub(&self->client->left, 1) > 0; self->calls++) call_once(self->client, self);
  return NULL;
}

void unary_threads(client *self, long calls) {
  atomic_store(&self->left, calls);
  pthread_barrier_init(&self->start, NULL, (unsigned)self->threads);
  self->callers = calloc((size_t)self->threads, sizeof(caller));
  for (int i = 0; i < self->threads; i++) {
    self->callers[i].client = self;
    sem_init(&self->callers[i].wake, 0, 0);
  }
  for (int i = 0; i < self->threads; i++)
    if (pthread_create(&self->callers[i].thread, NULL, work, &self->callers[i]) != 0) bare_die("pthread_create");
  long slowest = calls;
  for (int i = 0; i < self->threads; i++) {
    pthread_join(self->callers[i].thread, NULL);
    if (self->callers[i].calls < slowest) slowest = self->callers[i].calls;
  }
  self->slowest = (double)slowest * self->threads / (double)calls;
  pthread_barrier_destroy(&self->start);
  free(self->callers);
  self->callers = NULL;
}
