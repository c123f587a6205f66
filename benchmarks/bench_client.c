/* bench_client: makes one measurement through the public header of Penstock, and prints it as one line of JSON.
 *
 *   bench_client --target HOST:PORT --what WHAT [--calls N] [--in-flight N] [--bytes N] [--style blocking|callback] ...
 *
 *   --what          unary, up, down, duplex (both ways at once), pingpong (one message, its echo, the next);
 *                   idle: opens streams and leaves them open; idle-channel: leaves channels alone for --seconds
 *   --calls         how many unary calls, messages of the stream, idle streams or idle channels
 *   --in-flight     unary calls at once: 1 uses penstock_channel_unary, more the callback style
 *   --threads       unary: threads that make blocking calls on the one channel
 *   --bytes         of each message
 *   --style         of the streams: blocking (the default) or callback
 *   --copy          of the streams: 1 copies each message (the default); 0 sends the same message again and again, uncopied
 *   --tls           the CA's certificate; without, cleartext
 *   --window        the HTTP/2 window of a stream and of the connection; without, the library's defaults
 *   --max-window    how large the windows may grow, 0: not at all; without, the library's default
 *   --options       more members of the channel's options, such as '"protocol": "connect"'
 *   --spin          the runtime's "spin_us"
 *   --interceptors  how many interceptors, each with on_start and on_status
 *
 * Every reply is checked. Before the measurement a tenth of the calls is made, so that the connection is there and warm.
 * Printed: calls, seconds, user and system (CPU seconds), switches (of the context), max_rss_kb; p50_us and p99_us, the
 * latencies of calls or messages that go one after the other; slowest: the slowest thread's calls divided by the mean;
 * private_kb: the resident memory without pages of files, after the warm-up and at the end.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

void die(const char *what, penstock_result result) {
  fprintf(stderr, "bench_client: %s: %s\n", what, penstock_result_name(result));
  exit(1);
}

void need(const char *what, penstock_result result) {
  if (result != PENSTOCK_OK) die(what, result);
}

double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static double seconds(struct timeval time) { return (double)time.tv_sec + (double)time.tv_usec / 1e6; }

double note_latency(bench *self, double since) {
  if (!self->latencies) return since;
  double at = now();
  self->latencies[self->latency_count++] = (uint32_t)((at - since) * 1e9);
  return at;
}

static int by_number(const void *one, const void *other) {
  uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
  return (a > b) - (a < b);
}

/* The latency below which `part` (0 to 1) of the latencies are, in microseconds. They must be sorted. */
static double percentile(const bench *self, double part) {
  if (self->latency_count == 0) return 0;
  return self->latencies[(long)((double)(self->latency_count - 1) * part)] / 1e3;
}

void check_reply(const penstock_reply *reply, const void *wanted, size_t length) {
  size_t found = 0;
  const void *data = penstock_reply_bytes(reply, &found);
  if (penstock_reply_code(reply) != 0 || found != length || (length > 0 && memcmp(data, wanted, length) != 0)) {
    fprintf(stderr, "bench_client: wrong reply: %s\n", penstock_reply_status_json(reply));
    exit(1);
  }
}

void begin(bench *self, long calls) {
  self->calls = calls;
  self->started = self->sent = self->received = self->ended = 0;
  self->done = false;
}

void done(bench *self) {
  pthread_mutex_lock(&self->mutex);
  self->done = true;
  pthread_cond_signal(&self->changed);
  pthread_mutex_unlock(&self->mutex);
}

void wait_until_done(bench *self) {
  pthread_mutex_lock(&self->mutex);
  while (!self->done) pthread_cond_wait(&self->changed, &self->mutex);
  pthread_mutex_unlock(&self->mutex);
}

static int32_t pass(penstock_hop *hop, void *state) {
  (void)hop, (void)state;
  return PENSTOCK_NEXT;
}

static void add_interceptors(bench *self, long count) {
  for (long i = 0; i < count; i++) {
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    penstock_interceptor_id id;
    table.on_start = table.on_status = pass;
    need("interceptor", penstock_channel_add_interceptor(self->channel, &table, 0, &id, NULL));
  }
}

static const struct {
  const char *what;
  bench_run *blocking, *callbacks;
} runs[] = {{"unary", unary_blocking, unary_callbacks},
            {"up", up_blocking, up_callbacks},
            {"down", down_blocking, down_callbacks},
            {"duplex", duplex_blocking, duplex_callbacks},
            {"pingpong", pingpong_blocking, pingpong_callbacks}};

static void measure(bench *self, bench_run *run, long calls) {
  run(self, calls / 10 + 1);
  uint32_t *latencies = self->in_flight == 1 ? malloc((size_t)calls * sizeof(uint32_t)) : NULL;
  self->latencies = latencies;
  long private = private_kb();
  struct rusage before, after;
  getrusage(RUSAGE_SELF, &before);
  double started = now();
  run(self, calls);
  double took = now() - started;
  getrusage(RUSAGE_SELF, &after);
  if (latencies) qsort(latencies, (size_t)self->latency_count, sizeof(uint32_t), by_number);
  printf(
      "{\"calls\": %ld, \"seconds\": %.6f, \"user\": %.6f, \"system\": %.6f, \"switches\": %ld, \"max_rss_kb\": %ld, "
      "\"p50_us\": %.2f, \"p99_us\": %.2f, \"slowest\": %.3f, \"private_kb\": [%ld, %ld]}\n",
      calls, took, seconds(after.ru_utime) - seconds(before.ru_utime),
      seconds(after.ru_stime) - seconds(before.ru_stime), after.ru_nvcsw - before.ru_nvcsw, peak_kb(),
      percentile(self, 0.5), percentile(self, 0.99), self->slowest, private, private_kb());
  free(latencies);
}

int main(int argc, char **argv) {
  bench self = {.in_flight = 1,
                .bytes = 64,
                .threads = 1,
                .seconds = 10,
                .slowest = 1,
                .mutex = PTHREAD_MUTEX_INITIALIZER,
                .changed = PTHREAD_COND_INITIALIZER};
  const char *what = "unary", *style = "blocking", *tls = NULL, *more = NULL;
  long calls = 1000, window = 0, most = -1, interceptors = 0, spin = -1, copies = 1;
  for (int i = 1; i < argc; i += 2) {
    const char *name = argv[i], *value = argv[i + 1];
    if (!value) die(name, PENSTOCK_E_INVALID_ARGUMENT);
    if (strcmp(name, "--target") == 0)
      self.target = value;
    else if (strcmp(name, "--what") == 0)
      what = value;
    else if (strcmp(name, "--style") == 0)
      style = value;
    else if (strcmp(name, "--tls") == 0)
      tls = value;
    else if (strcmp(name, "--options") == 0)
      more = value;
    else if (strcmp(name, "--calls") == 0)
      calls = atol(value);
    else if (strcmp(name, "--in-flight") == 0)
      self.in_flight = atoi(value);
    else if (strcmp(name, "--threads") == 0)
      self.threads = atoi(value);
    else if (strcmp(name, "--seconds") == 0)
      self.seconds = atoi(value);
    else if (strcmp(name, "--bytes") == 0)
      self.bytes = (size_t)atol(value);
    else if (strcmp(name, "--window") == 0)
      window = atol(value);
    else if (strcmp(name, "--max-window") == 0)
      most = atol(value);
    else if (strcmp(name, "--copy") == 0)
      copies = atol(value);
    else if (strcmp(name, "--spin") == 0)
      spin = atol(value);
    else if (strcmp(name, "--interceptors") == 0)
      interceptors = atol(value);
    else
      die(name, PENSTOCK_E_INVALID_ARGUMENT);
  }
  if (!self.target) die("--target", PENSTOCK_E_INVALID_ARGUMENT);
  self.request = malloc(self.bytes + 1);
  for (size_t i = 0; i < self.bytes; i++) self.request[i] = (uint8_t)(i * 131);
  if (!copies) need("wrap", penstock_message_new_lent(self.request, self.bytes, 0, self.request, free, &self.message));

  char roots[1000] = "false", windows[200] = "", growing[100] = "", channel[1500], runtime[100];
  if (tls) snprintf(roots, sizeof(roots), "{\"roots_file\": \"%s\"}", tls);
  if (most >= 0) snprintf(growing, sizeof(growing), ", \"max_window_bytes\": %ld", most);
  if (window)
    snprintf(windows, sizeof(windows),
             ", \"initial_stream_window_bytes\": %ld, \"initial_connection_window_bytes\": %ld", window, window);
  snprintf(channel, sizeof(channel), "{\"tls\": %s, \"max_receive_message_bytes\": 67108864%s%s%s%s}", roots, growing,
           windows, more ? ", " : "", more ? more : "");
  snprintf(runtime, sizeof(runtime), "{\"spin_us\": %ld}", spin);
  self.channel_options = channel;
  penstock_error *error = NULL;
  penstock_result result = penstock_runtime_new(spin < 0 ? NULL : runtime, &self.runtime, &error);
  if (result == PENSTOCK_OK)
    result = penstock_channel_new_on(self.runtime, self.target, channel, &self.channel, &error);
  if (result != PENSTOCK_OK) die(penstock_error_message(error), result);
  add_interceptors(&self, interceptors);

  if (strcmp(what, "idle") == 0) {
    idle_streams(&self, calls);
  } else if (strcmp(what, "idle-channel") == 0) {
    idle_channels(&self, calls);
  } else {
    bench_run *run = NULL;
    bool callbacks = strcmp(style, "callback") == 0 || self.in_flight > 1;
    for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++)
      if (strcmp(what, runs[i].what) == 0) run = callbacks ? runs[i].callbacks : runs[i].blocking;
    if (!run) die(what, PENSTOCK_E_INVALID_ARGUMENT);
    if (self.threads > 1) run = unary_threads;
    measure(&self, run, calls);
  }
  penstock_channel_release(self.channel);
  need("shutdown", penstock_runtime_shutdown(self.runtime, 5000));
  penstock_runtime_release(self.runtime);
  if (!self.message) free(self.request);
  penstock_message_release(self.message);
  return 0;
}
