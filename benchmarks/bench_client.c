/* bench_client: one measurement through the public header of Penstock, told as one line of JSON.
 *
 *   bench_client --target T --what unary|up|down [--calls N] [--in-flight N] [--bytes N] [--window N] [--style STYLE]
 *
 *   --calls       unary calls, or messages of the stream
 *   --in-flight   unary calls at once: 1 uses penstock_channel_unary, more the callback style
 *   --bytes       of each message
 *   --window      of a stream and of the connection; without, the library's defaults
 *   --style       of the streams: blocking or callback
 *   --interceptors  how many, with on_start and on_status
 *
 * Every reply is checked. A tenth of the calls goes before, unmeasured, so that the connection is there and warm.
 */
#include <penstock/penstock.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static void die(const char *what, penstock_result result) {
  fprintf(stderr, "bench_client: %s: %s\n", what, penstock_result_name(result));
  exit(1);
}
static void need(const char *what, penstock_result result) {
  if (result != PENSTOCK_OK) die(what, result);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static double seconds(struct timeval time) { return (double)time.tv_sec + (double)time.tv_usec / 1e6; }

typedef struct bench {
  penstock_channel *channel;
  const char *target;
  uint8_t *request;
  size_t bytes;
  long calls;
  int in_flight;
  /* The callback style. */
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  long started, ended;
  bool done;
} bench;

static void check_echo(const bench *self, const penstock_reply *reply) {
  size_t length = 0;
  const void *data = penstock_reply_message(reply, &length);
  if (penstock_reply_code(reply) != 0 || length != self->bytes || memcmp(data, self->request, length) != 0) {
    fprintf(stderr, "bench_client: wrong reply: %s\n", penstock_reply_status_json(reply));
    exit(1);
  }
}

/* ---- Unary ---- */

static const char unary_method[] = "/penstock.Echo/Unary";

static void unary_blocking(bench *self, long calls) {
  for (long i = 0; i < calls; i++) {
    penstock_reply *reply = NULL;
    need("unary", penstock_channel_unary(self->channel, unary_method, self->request, self->bytes, NULL, &reply, NULL));
    check_echo(self, reply);
    penstock_reply_release(reply);
  }
}

static void start_one(bench *self);

/* All of this runs on the driving thread, but for the first calls. */
static void unary_reply(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  bench *self = user_data;
  check_echo(self, reply);
  pthread_mutex_lock(&self->mutex);
  bool more = self->started < self->calls;
  self->started += more;
  bool done = ++self->ended == self->calls;
  if (done) {
    self->done = true;
    pthread_cond_signal(&self->changed);
  }
  pthread_mutex_unlock(&self->mutex);
  if (more) start_one(self);
}

static void start_one(bench *self) {
  penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
  callbacks.user_data = self;
  callbacks.on_reply = unary_reply;
  penstock_call *call = NULL;
  need("call", penstock_channel_call(self->channel, unary_method, PENSTOCK_KIND_UNARY, NULL, &callbacks, &call, NULL));
  need("try_send", penstock_call_try_send(call, self->request, self->bytes));
  need("half_close", penstock_call_half_close(call));
  penstock_call_release(call);
}

static void unary_callbacks(bench *self, long calls) {
  pthread_mutex_lock(&self->mutex);
  self->calls = calls;
  self->ended = 0;
  self->done = false;
  self->started = self->in_flight < calls ? self->in_flight : calls;
  long first = self->started;
  pthread_mutex_unlock(&self->mutex);
  for (long i = 0; i < first; i++) start_one(self);
  pthread_mutex_lock(&self->mutex);
  while (!self->done) pthread_cond_wait(&self->changed, &self->mutex);
  pthread_mutex_unlock(&self->mutex);
}

/* ---- Streams: blocking style ---- */

static penstock_call_options *stream_options(const char *name, long value) {
  char json[200];
  penstock_call_options *options = NULL;
  snprintf(json, sizeof(json), "{\"metadata\": {\"%s\": \"%ld\"}, \"max_receive_message_bytes\": 67108864}", name,
           value);
  need("options", penstock_call_options_new(json, &options, NULL));
  return options;
}

/* `calls` messages to the server, which says how many it got. */
static void up(bench *self, long calls) {
  penstock_call_options *options = NULL;
  need("options", penstock_call_options_new("{\"metadata\": {\"x-mode\": \"count\"}}", &options, NULL));
  penstock_call *call = NULL;
  need("call", penstock_channel_call(self->channel, "/penstock.Echo/ClientStream", PENSTOCK_KIND_CLIENT_STREAM, options,
                                     NULL, &call, NULL));
  for (long i = 0; i < calls; i++) need("send", penstock_call_send(call, self->request, self->bytes));
  penstock_reply *reply = NULL;
  need("finish", penstock_call_finish(call, &reply));
  char wanted[32];
  snprintf(wanted, sizeof(wanted), "%ld", calls);
  size_t length = 0;
  const void *data = penstock_reply_message(reply, &length);
  if (penstock_reply_code(reply) != 0 || length != strlen(wanted) || memcmp(data, wanted, length) != 0) {
    fprintf(stderr, "bench_client: wrong reply: %s\n", penstock_reply_status_json(reply));
    exit(1);
  }
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_call_options_release(options);
}

static void check_message(const bench *self, const penstock_message *message) {
  if (penstock_message_length(message) != self->bytes ||
      memcmp(penstock_message_data(message), self->request, self->bytes) != 0) {
    fprintf(stderr, "bench_client: wrong message\n");
    exit(1);
  }
}

static void down_blocking(bench *self, long calls) {
  penstock_call_options *options = stream_options("x-repeat", calls);
  penstock_call *call = NULL;
  need("call", penstock_channel_call(self->channel, "/penstock.Echo/ServerStream", PENSTOCK_KIND_SERVER_STREAM, options,
                                     NULL, &call, NULL));
  need("send", penstock_call_send(call, self->request, self->bytes));
  need("half_close", penstock_call_half_close(call));
  for (long i = 0; i < calls; i++) {
    penstock_message *message = NULL;
    need("receive", penstock_call_receive(call, &message));
    check_message(self, message);
    penstock_message_release(message);
  }
  penstock_reply *reply = NULL;
  need("finish", penstock_call_finish(call, &reply));
  if (penstock_reply_code(reply) != 0) die(penstock_reply_status_json(reply), 0);
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_call_options_release(options);
}

static void down_message(penstock_call *call, penstock_message *message, void *user_data) {
  (void)call;
  bench *self = user_data;
  check_message(self, message);
  self->started++;
}

static void down_reply(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  bench *self = user_data;
  if (penstock_reply_code(reply) != 0 || self->started != self->calls) die(penstock_reply_status_json(reply), 0);
  pthread_mutex_lock(&self->mutex);
  self->done = true;
  pthread_cond_signal(&self->changed);
  pthread_mutex_unlock(&self->mutex);
}

static void down_callbacks(bench *self, long calls) {
  penstock_call_options *options = stream_options("x-repeat", calls);
  penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
  callbacks.user_data = self;
  callbacks.on_message = down_message;
  callbacks.on_reply = down_reply;
  self->started = 0;
  self->calls = calls;
  self->done = false;
  penstock_call *call = NULL;
  need("call", penstock_channel_call(self->channel, "/penstock.Echo/ServerStream", PENSTOCK_KIND_SERVER_STREAM, options,
                                     &callbacks, &call, NULL));
  need("try_send", penstock_call_try_send(call, self->request, self->bytes));
  need("half_close", penstock_call_half_close(call));
  need("demand", penstock_call_demand(call, (uint64_t)calls + 1));
  pthread_mutex_lock(&self->mutex);
  while (!self->done) pthread_cond_wait(&self->changed, &self->mutex);
  pthread_mutex_unlock(&self->mutex);
  penstock_call_release(call);
  penstock_call_options_release(options);
}

static int32_t pass(penstock_hop *hop, void *state) {
  (void)hop, (void)state;
  return PENSTOCK_NEXT;
}

/* ---- The command line ---- */

int main(int argc, char **argv) {
  bench self = {.calls = 1000,
                .in_flight = 1,
                .bytes = 64,
                .mutex = PTHREAD_MUTEX_INITIALIZER,
                .changed = PTHREAD_COND_INITIALIZER};
  const char *what = "unary", *style = "blocking";
  long window = 0, interceptors = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    const char *name = argv[i], *value = argv[i + 1];
    if (strcmp(name, "--target") == 0)
      self.target = value;
    else if (strcmp(name, "--what") == 0)
      what = value;
    else if (strcmp(name, "--style") == 0)
      style = value;
    else if (strcmp(name, "--calls") == 0)
      self.calls = atol(value);
    else if (strcmp(name, "--in-flight") == 0)
      self.in_flight = atoi(value);
    else if (strcmp(name, "--bytes") == 0)
      self.bytes = (size_t)atol(value);
    else if (strcmp(name, "--window") == 0)
      window = atol(value);
    else if (strcmp(name, "--interceptors") == 0)
      interceptors = atol(value);
    else
      die(name, PENSTOCK_E_INVALID_ARGUMENT);
  }
  if (!self.target) die("--target", PENSTOCK_E_INVALID_ARGUMENT);
  self.request = malloc(self.bytes + 1);
  for (size_t i = 0; i < self.bytes; i++) self.request[i] = (uint8_t)(i * 131);
  char options[200] = "{\"tls\": false}";
  if (window) {
    snprintf(options, sizeof(options),
             "{\"tls\": false, \"initial_stream_window_bytes\": %ld, \"initial_connection_window_bytes\": %ld}", window,
             window);
  }
  penstock_runtime *runtime = NULL;
  penstock_error *error = NULL;
  need("runtime", penstock_runtime_new(NULL, &runtime, NULL));
  penstock_result opened = penstock_channel_new_on(runtime, self.target, options, &self.channel, &error);
  if (opened != PENSTOCK_OK) die(penstock_error_message(error), opened);

  for (long i = 0; i < interceptors; i++) {
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    penstock_interceptor_id id;
    table.on_start = table.on_status = pass;
    need("interceptor", penstock_channel_add_interceptor(self.channel, &table, 0, &id, NULL));
  }
  bool callbacks = strcmp(style, "callback") == 0;
  void (*run)(bench *, long) = strcmp(what, "up") == 0     ? up
                               : strcmp(what, "down") == 0 ? (callbacks ? down_callbacks : down_blocking)
                               : self.in_flight > 1        ? unary_callbacks
                                                           : unary_blocking;
  long calls = self.calls;
  run(&self, calls / 10 + 1);
  struct rusage before, after;
  getrusage(RUSAGE_SELF, &before);
  double started = now();
  run(&self, calls);
  double took = now() - started;
  getrusage(RUSAGE_SELF, &after);
  double user = seconds(after.ru_utime) - seconds(before.ru_utime);
  double system = seconds(after.ru_stime) - seconds(before.ru_stime);
  printf("{\"calls\": %ld, \"seconds\": %.6f, \"user\": %.6f, \"system\": %.6f, \"switches\": %ld, "
         "\"max_rss_kb\": %ld}\n",
         calls, took, user, system, after.ru_nvcsw - before.ru_nvcsw, after.ru_maxrss);
  penstock_channel_release(self.channel);
  need("shutdown", penstock_runtime_shutdown(runtime, 5000));
  penstock_runtime_release(runtime);
  free(self.request);
  return 0;
}
