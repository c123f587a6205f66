/* growth_client: makes unary calls with the quantities that the options below set, and prints one line of JSON.
 * growth.py runs it with growing values of one option.
 *
 *   growth_client --target T [--calls N] [--in-flight N] [--bytes N] [--metadata N] [--interceptors N] [--channels N]
 *                 [--threads N]
 *
 *   --in-flight     calls at once, in callback style: when one ends, the next starts
 *   --threads       threads that make blocking calls, in place of callback style
 *   --bytes         the size of each message, in both directions
 *   --metadata      metadata entries of each request
 *   --interceptors  interceptors, each with on_start and on_status
 *   --channels      channels of one runtime, each with a connection of its own; the calls use them by turns
 *
 * Every reply is checked byte by byte. Before the measurement some calls are made, so that all connections are there and
 * warm.
 */
#include <penstock/penstock.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static const char method[] = "/penstock.Echo/Unary";

static struct {
  const char *target;
  long calls, in_flight, bytes, metadata, interceptors, channels, threads;
} asked = {.calls = 1000, .in_flight = 100, .bytes = 64, .channels = 1};

static penstock_channel **channels;
static penstock_call_options *options;
static uint8_t *request;

static void need(const char *what, penstock_result result) {
  if (result == PENSTOCK_OK) return;
  fprintf(stderr, "growth_client: %s: %s\n", what, penstock_result_name(result));
  exit(1);
}

static void check(const penstock_reply *reply) {
  size_t length = 0;
  const void *data = penstock_reply_bytes(reply, &length);
  if (penstock_reply_code(reply) == PENSTOCK_STATUS_OK && length == (size_t)asked.bytes &&
      memcmp(data, request, length) == 0)
    return;
  fprintf(stderr, "growth_client: wrong reply of %zu bytes: %s\n", length, penstock_reply_status_json(reply));
  exit(1);
}

/* ---- Callback style: the main thread starts the first calls; then callbacks count calls that end, and start others ---- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all_ended = PTHREAD_COND_INITIALIZER;
static long wanted, ended;
static bool done;
static atomic_long started;

static void start(long number);

static void on_reply(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call, (void)user_data;
  check(reply);
  long number = atomic_fetch_add(&started, 1);
  if (number < wanted) start(number);
  if (++ended < wanted) return;
  pthread_mutex_lock(&mutex);
  done = true;
  pthread_cond_signal(&all_ended);
  pthread_mutex_unlock(&mutex);
}

static void start(long number) {
  penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
  callbacks.on_reply = on_reply;
  penstock_call *call = NULL;
  need("call", penstock_channel_call(channels[number % asked.channels], method, PENSTOCK_KIND_UNARY, options,
                                     &callbacks, &call, NULL));
  need("try_send", penstock_call_try_send(call, request, (size_t)asked.bytes));
  need("half_close", penstock_call_half_close(call));
  penstock_call_release(call);
}

static void make_flight(long calls) {
  long first = asked.in_flight < calls ? asked.in_flight : calls;
  wanted = calls;
  ended = 0;
  done = false;
  atomic_store(&started, first);
  for (long i = 0; i < first; i++) start(i);
  pthread_mutex_lock(&mutex);
  while (!done) pthread_cond_wait(&all_ended, &mutex);
  pthread_mutex_unlock(&mutex);
}

/* ---- Blocking style ---- */

static void *make_blocking(void *unused) {
  long number;
  while ((number = atomic_fetch_add(&started, 1)) < wanted) {
    penstock_reply *reply = NULL;
    need("unary", penstock_channel_unary(channels[number % asked.channels], method, request, (size_t)asked.bytes,
                                         options, &reply, NULL));
    check(reply);
    penstock_reply_release(reply);
  }
  return unused;
}

static void make_threads(long calls) {
  pthread_t *threads = calloc((size_t)asked.threads, sizeof(*threads));
  wanted = calls;
  atomic_store(&started, 0);
  for (long i = 0; i < asked.threads; i++) {
    if (pthread_create(&threads[i], NULL, make_blocking, NULL) != 0) need("thread", PENSTOCK_E_SYSTEM);
  }
  for (long i = 0; i < asked.threads; i++) pthread_join(threads[i], NULL);
  free(threads);
}

/* ---- The command line ---- */

static int32_t pass(penstock_hop *hop, void *state) {
  (void)hop, (void)state;
  return PENSTOCK_NEXT;
}

static void open_channel(penstock_runtime *runtime, long i) {
  need("channel",
       penstock_channel_new_on(runtime, asked.target, "{\"tls\": false, \"max_receive_message_bytes\": 67108864}",
                               &channels[i], NULL));
  for (long k = 0; k < asked.interceptors; k++) {
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    penstock_interceptor_id id;
    table.on_start = table.on_status = pass;
    need("interceptor", penstock_channel_add_interceptor(channels[i], &table, 0, &id, NULL));
  }
}

static void make_options(void) {
  need("options", penstock_call_options_new(NULL, &options, NULL));
  for (long i = 0; i < asked.metadata; i++) {
    char name[40], value[40];
    snprintf(name, sizeof(name), "x-growth-%03ld", i);
    snprintf(value, sizeof(value), "value-%010ld", i * 7919);
    need("metadata",
         penstock_metadata_add(penstock_request_metadata(penstock_call_options_request(options)), name, value));
  }
}

static double seconds(struct timeval time) { return (double)time.tv_sec + (double)time.tv_usec / 1e6; }

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* The peak of the resident memory. The value of getrusage would include the memory that the process had before exec. */
static long peak_kb(void) {
  char line[200];
  long found = 0;
  FILE *file = fopen("/proc/self/status", "r");
  while (file && fgets(line, sizeof(line), file)) {
    if (strncmp(line, "VmHWM:", 6) == 0) found = atol(line + 6);
  }
  if (file) fclose(file);
  return found;
}

int main(int argc, char **argv) {
  const struct {
    const char *name;
    long *value;
  } numbers[] = {
      {"--calls", &asked.calls},       {"--in-flight", &asked.in_flight},       {"--bytes", &asked.bytes},
      {"--metadata", &asked.metadata}, {"--interceptors", &asked.interceptors}, {"--channels", &asked.channels},
      {"--threads", &asked.threads}};
  for (int i = 1; i + 1 < argc; i += 2) {
    bool known = strcmp(argv[i], "--target") == 0;
    if (known) asked.target = argv[i + 1];
    for (size_t k = 0; k < sizeof(numbers) / sizeof(numbers[0]); k++) {
      if (strcmp(argv[i], numbers[k].name) != 0) continue;
      *numbers[k].value = atol(argv[i + 1]);
      known = true;
    }
    if (!known) need(argv[i], PENSTOCK_E_INVALID_ARGUMENT);
  }
  if (!asked.target || asked.calls < 1 || asked.in_flight < 1 || asked.channels < 1)
    need("arguments", PENSTOCK_E_INVALID_ARGUMENT);

  request = malloc((size_t)asked.bytes + 1);
  channels = calloc((size_t)asked.channels, sizeof(*channels));
  for (long i = 0; i < asked.bytes; i++) request[i] = (uint8_t)(i * 131);
  penstock_runtime *runtime = NULL;
  need("runtime", penstock_runtime_new(NULL, &runtime, NULL));
  for (long i = 0; i < asked.channels; i++) open_channel(runtime, i);
  make_options();

  void (*make)(long) = asked.threads > 0 ? make_threads : make_flight;
  long before = asked.calls / 10 + 1;
  if (before < asked.channels) before = asked.channels;
  if (before < asked.in_flight) before = asked.in_flight;
  make(before);
  struct rusage from, to;
  getrusage(RUSAGE_SELF, &from);
  double began = now();
  make(asked.calls);
  double took = now() - began;
  getrusage(RUSAGE_SELF, &to);
  printf("{\"calls\": %ld, \"seconds\": %.6f, \"user\": %.6f, \"system\": %.6f, \"max_rss_kb\": %ld}\n", asked.calls,
         took, seconds(to.ru_utime) - seconds(from.ru_utime), seconds(to.ru_stime) - seconds(from.ru_stime), peak_kb());

  penstock_call_options_release(options);
  for (long i = 0; i < asked.channels; i++) penstock_channel_release(channels[i]);
  need("shutdown", penstock_runtime_shutdown(runtime, 5000));
  penstock_runtime_release(runtime);
  free(channels);
  free(request);
  return 0;
}
