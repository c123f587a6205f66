/* Shared by the files of bench_client. */
#ifndef BENCH_H
#define BENCH_H

#include <penstock/penstock.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct bench {
  penstock_runtime *runtime;
  penstock_channel *channel;
  const char *target, *channel_options;
  uint8_t *request;          /* byte i is i * 131 */
  penstock_message *message; /* the request as a message, which streams send; NULL: streams send copies */
  size_t bytes;
  int in_flight, threads, seconds;
  /* The numbers of the present run. */
  long calls;
  uint32_t *latencies; /* nanoseconds of each call made one after the other; NULL during the warm-up */
  long latency_count;
  double slowest; /* the slowest thread's calls / the mean */
  /* Callback style: the driving thread writes these fields; the main thread does so too when it starts the first calls. */
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  long started, sent, received, ended;
  double since;
  bool done;
} bench;

typedef void bench_run(bench *self, long calls);

void die(const char *what, penstock_result result);
void need(const char *what, penstock_result result);
double now(void);
/* Records the time from `since` until now as a latency; returns the present time. */
double note_latency(bench *self, double since);
void check_reply(const penstock_reply *reply, const void *wanted, size_t length);
/* Callback style: `begin` is called before a run, `done` after its last reply; `wait_until_done` waits for that. */
void begin(bench *self, long calls);
void done(bench *self);
void wait_until_done(bench *self);
void unary_once(bench *self, penstock_channel *channel);

bench_run unary_blocking, unary_callbacks, unary_threads;
bench_run up_blocking, up_callbacks, down_blocking, down_callbacks, duplex_blocking, duplex_callbacks;
bench_run pingpong_blocking, pingpong_callbacks;

/* These two functions do not have the type `bench_run`, because each prints a line of JSON of its own. */
void idle_streams(bench *self, long streams);
void idle_channels(bench *self, long channels);
/* In kilobytes: the resident memory now; the same without file pages (code that runs for the first time maps 64 KiB of
 * them at once); and the peak. */
long resident_kb(void);
long private_kb(void);
long peak_kb(void);

#endif
