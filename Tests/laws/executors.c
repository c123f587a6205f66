/* The executors of random interceptors, which exist as long as the program runs. While a thread runs a job, it keeps
 * the place of the job's executor (see `place` in laws.h) in `works_for`.
 */
#include "laws.h"

#include <stdlib.h>

enum { pool_threads = 3 };

typedef struct job {
  penstock_job run;
  void *argument;
  place place;
  struct job *next;
} job;

static _Thread_local place works_for;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static job *newest;
static bool stopping;
static pthread_t threads[pool_threads];
static penstock_executor *executors[place_refusing + 1];
static atomic_uint_least64_t refusal_random;

static void run_at(place place, penstock_job run, void *argument) {
  enum place before = works_for;
  works_for = place;
  run(argument);
  works_for = before;
}

static void *work(void *unused) {
  (void)unused;
  pthread_mutex_lock(&mutex);
  for (;;) {
    while (!newest && !stopping) pthread_cond_wait(&changed, &mutex);
    if (!newest) break;
    job *mine = newest;
    newest = mine->next;
    pthread_mutex_unlock(&mutex);
    run_at(mine->place, mine->run, mine->argument);
    free(mine);
    pthread_mutex_lock(&mutex);
  }
  pthread_mutex_unlock(&mutex);
  return NULL;
}

static int32_t submit(penstock_job run, void *argument, void *user_data) {
  place place = (enum place)(uintptr_t)user_data;
  if (place == place_inline) {
    run_at(place, run, argument);
    return 0;
  }
  if (place == place_refusing) {
    uint64_t random = atomic_fetch_add(&refusal_random, 0x9E3779B97F4A7C15u);
    if (below(&random, 400) == 0) return 1;
  }
  job *fresh = malloc(sizeof(*fresh));
  if (!fresh) return 1;
  fresh->run = run;
  fresh->argument = argument;
  fresh->place = place;
  pthread_mutex_lock(&mutex);
  fresh->next = newest;
  newest = fresh;
  pthread_cond_signal(&changed);
  pthread_mutex_unlock(&mutex);
  return 0;
}

void executors_start(void) {
  atomic_store(&refusal_random, seed);
  penstock_result result = penstock_executor_new_serial(&executors[place_serial]);
  for (int place = place_pool; place <= place_refusing && result == PENSTOCK_OK; place++)
    result = penstock_executor_new(submit, (void *)(uintptr_t)place, NULL, &executors[place]);
  if (result != PENSTOCK_OK) broken(NULL, "executors", "no executor: %s", penstock_result_name(result));
  for (int i = 0; i < pool_threads; i++) pthread_create(&threads[i], NULL, work, NULL);
}

void executors_stop(void) {
  pthread_mutex_lock(&mutex);
  stopping = true;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&mutex);
  for (int i = 0; i < pool_threads; i++) pthread_join(threads[i], NULL);
  for (int place = place_serial; place <= place_refusing; place++) penstock_executor_release(executors[place]);
}

penstock_executor *executor_of(place place) { return executors[place]; }

/* Set on the thread of the library's serial executor by its first callback that is not the end of a call. */
static _Thread_local bool is_serial_thread;
void note_place(place place) { is_serial_thread |= place == place_serial; }

bool is_job_of(place place) {
  if (place == place_driving) return false;
  return place == place_serial ? is_serial_thread : works_for == place;
}

bool is_at(place place) {
  /* The serial executor's thread is the library's, so it works for no executor of this file. A callback that a refusing
   * executor has refused may run on the thread of the last job. */
  if (place == place_refusing) return true;
  return works_for == (place == place_serial ? place_driving : place);
}
