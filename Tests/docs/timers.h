/* Stands for the timers of an event loop, which the fragments of docs/interceptors.md use. Each timer has a thread. */
#ifndef TIMERS_H
#define TIMERS_H
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

typedef struct timer {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  pthread_t thread;
  bool is_restarted, is_stopped;
  int ms;
  void (*fire)(void *argument);
  void *argument;
} timer;

static void *timer_run(void *given) {
  timer *self = given;
  pthread_mutex_lock(&self->mutex);
  while (!self->is_stopped) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += self->ms / 1000;
    self->is_restarted = false;
    bool is_due = pthread_cond_timedwait(&self->changed, &self->mutex, &until) != 0;
    if (!is_due || self->is_restarted || self->is_stopped) continue;
    pthread_mutex_unlock(&self->mutex);
    self->fire(self->argument);
    pthread_mutex_lock(&self->mutex);
  }
  pthread_mutex_unlock(&self->mutex);
  return NULL;
}

static inline void sleep_ms(int ms) { poll(NULL, 0, ms); }

/* Calls `fire` every `ms` milliseconds, rounded down to whole seconds. */
static inline timer *timer_every(int ms, void (*fire)(void *argument), void *argument) {
  timer *self = calloc(1, sizeof(*self));
  *self = (timer){PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, false, false, ms, fire, argument};
  if (pthread_create(&self->thread, NULL, timer_run, self) != 0) abort();
  return self;
}

/* Begins the next interval now. */
static inline void timer_restart(timer *self) {
  pthread_mutex_lock(&self->mutex);
  self->is_restarted = true;
  pthread_cond_signal(&self->changed);
  pthread_mutex_unlock(&self->mutex);
}

/* Stops the timer. When this function returns, `fire` no longer runs. */
static inline void timer_stop(timer *self) {
  pthread_mutex_lock(&self->mutex);
  self->is_stopped = true;
  pthread_cond_signal(&self->changed);
  pthread_mutex_unlock(&self->mutex);
  pthread_join(self->thread, NULL);
  free(self);
}

#endif
