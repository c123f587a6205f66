/* counted_client: makes a fixed number of calls, in the same way in each run, for tools that count instructions or other
 * things, and do not measure time.
 *
 *   counted_client --target T --what serial|flight|pingpong|up|down [--calls N] [--in-flight N] [--bytes N]
 *                  [--interceptors N] [--filtered N] [--tls CA.pem] [--copy 0|1] [--protocol P]
 *                  [--http V]
 *
 *   serial        one blocking unary call after the other
 *   flight        batches of --in-flight unary calls in callback style: the next batch starts when the last has ended
 *   pingpong      messages on one bidi stream, each sent when the echo of the one before has come
 *   up, down      messages of one stream, blocking
 *   --copy          for `up`: 1 copies each message (the default); 0 sends the same message again and again, uncopied
 *   --interceptors  how many interceptors, each with on_start and on_status
 *   --filtered      how many interceptors whose filters do not match the calls
 *   --protocol      the channel's protocol: grpc (the default), grpc-web, grpc-web-text or connect
 *   --http          the version of HTTP: 2 (the default) or 1.1, which has a connection for each call in flight
 *
 * One thread does everything, so that the order of events is always the same: for `flight` the runtime is in host mode;
 * for blocking calls the caller drives the loop, and the longest linger keeps the runtime's own thread from taking it
 * back. Every reply is checked. The cost of a call is the difference between the counts of two runs, divided by the
 * difference of their --calls.
 */
#include <penstock/penstock.h>

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void need(const char *what, penstock_result result) {
  if (result == PENSTOCK_OK) return;
  fprintf(stderr, "counted_client: %s: %s\n", what, penstock_result_name(result));
  exit(1);
}

static penstock_runtime *runtime;
static penstock_channel *channel;
static uint8_t *request;
/* The request as a message that is sent without a copy; NULL: the request is copied. */
static penstock_message *lent;
static size_t bytes = 64;
static long in_flight = 1;

static void check(const void *data, size_t length, const void *wanted, size_t wanted_length, const char *status) {
  if (length == wanted_length && memcmp(data, wanted, length) == 0) return;
  fprintf(stderr, "counted_client: wrong reply of %zu bytes: %s\n", length, status);
  exit(1);
}

/* Checks that the status is OK and that the message is `wanted`; NULL: that there is no message. */
static void check_reply(const penstock_reply *reply, const void *wanted, size_t length) {
  size_t found = 0;
  const void *data = penstock_reply_bytes(reply, &found);
  if (penstock_reply_code(reply) != PENSTOCK_STATUS_OK) found = SIZE_MAX;
  if (!wanted && found == 0) return;
  if (!wanted) wanted = "", length = 0;
  check(data, found, wanted, length, found == SIZE_MAX ? penstock_reply_status_json(reply) : "OK");
}

static void serial(long calls) {
  for (long i = 0; i < calls; i++) {
    penstock_reply *reply = NULL;
    need("unary", penstock_channel_unary(channel, "/penstock.Echo/Unary", request, bytes, NULL, &reply, NULL));
    check_reply(reply, request, bytes);
    penstock_reply_release(reply);
  }
}

/* ---- Callback style ---- */

static long left, running;
static void start_batch(void);

static void ended(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call, (void)user_data;
  check_reply(reply, request, bytes);
  if (--running == 0 && left > 0) start_batch();
}

static void start_batch(void) {
  running = left < in_flight ? left : in_flight;
  left -= running;
  for (long i = running; i > 0; i--) {
    penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
    callbacks.on_reply = ended;
    penstock_call *call = NULL;
    need("call",
         penstock_channel_call(channel, "/penstock.Echo/Unary", PENSTOCK_KIND_UNARY, NULL, &callbacks, &call, NULL));
    need("try_send", penstock_call_try_send(call, request, bytes));
    need("half_close", penstock_call_half_close(call));
    penstock_call_release(call);
  }
}

static void flight(long calls) {
  left = calls;
  start_batch();
  while (running > 0) need("poll", penstock_runtime_poll(runtime, -1));
}

/* ---- Streams ---- */

static penstock_call *open_stream(const char *method, int32_t kind, const char *name, long value) {
  char json[120] = "{}";
  if (name) snprintf(json, sizeof(json), "{\"metadata\": {\"%s\": \"%ld\"}}", name, value);
  if (name && value < 0) snprintf(json, sizeof(json), "{\"metadata\": {\"%s\": \"count\"}}", name);
  penstock_call_options *options = NULL;
  penstock_call *call = NULL;
  need("options", penstock_call_options_new(json, &options, NULL));
  need("call", penstock_channel_call(channel, method, kind, options, NULL, &call, NULL));
  penstock_call_options_release(options);
  return call;
}

static void receive(penstock_call *call) {
  penstock_message *message = NULL;
  need("receive", penstock_call_receive(call, &message));
  size_t length = 0;
  const void *data = penstock_message_bytes(message, &length);
  check(data, length, request, bytes, "a message");
  penstock_message_release(message);
}

static void finish(penstock_call *call, const char *wanted) {
  penstock_reply *reply = NULL;
  need("finish", penstock_call_wait(call, &reply));
  check_reply(reply, wanted, wanted ? strlen(wanted) : 0);
  penstock_reply_release(reply);
  penstock_call_release(call);
}

static void pingpong(long calls) {
  penstock_call *call = open_stream("/penstock.Echo/Bidi", PENSTOCK_KIND_BIDI, NULL, 0);
  for (long i = 0; i < calls; i++) {
    need("send", penstock_call_send(call, request, bytes));
    receive(call);
  }
  finish(call, NULL);
}

static void up(long calls) {
  penstock_call *call = open_stream("/penstock.Echo/ClientStream", PENSTOCK_KIND_CLIENT_STREAM, "x-mode", -1);
  for (long i = 0; i < calls; i++) {
    need("send", lent ? penstock_call_send_message(call, lent) : penstock_call_send(call, request, bytes));
  }
  char wanted[32];
  snprintf(wanted, sizeof(wanted), "%ld", calls);
  finish(call, wanted);
}

static void down(long calls) {
  penstock_call *call = open_stream("/penstock.Echo/ServerStream", PENSTOCK_KIND_SERVER_STREAM, "x-repeat", calls);
  need("send", penstock_call_send(call, request, bytes));
  need("half_close", penstock_call_half_close(call));
  for (long i = 0; i < calls; i++) receive(call);
  finish(call, NULL);
}

/* Makes this thread the driver of the loop. A caller can take the loop from the runtime's own thread while it waits for an
 * answer, but not while the connection is being made. So the first call only connects, and the second, whose answer the
 * server delays, takes the loop. */
static void take_loop(void) {
  serial(1);
  penstock_call_options *options = NULL;
  penstock_reply *reply = NULL;
  need("options", penstock_call_options_new("{\"metadata\": {\"x-delay-ms\": \"100\"}}", &options, NULL));
  need("unary", penstock_channel_unary(channel, "/penstock.Echo/Unary", request, bytes, options, &reply, NULL));
  check_reply(reply, request, bytes);
  penstock_reply_release(reply);
  penstock_call_options_release(options);
}

/* ---- The command line ---- */

static int32_t pass(penstock_hop *hop, void *state) {
  (void)hop, (void)state;
  return PENSTOCK_NEXT;
}

static void add_interceptors(long count, const char *methods) {
  for (long i = 0; i < count; i++) {
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    penstock_interceptor_id id;
    table.methods = methods;
    table.on_start = table.on_status = pass;
    need("interceptor", penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  }
}

int main(int argc, char **argv) {
  const char *target = NULL, *what = "serial", *roots = NULL, *protocol = "grpc", *http = "2";
  long calls = 100, interceptors = 0, filtered = 0, copies = 1;
  for (int i = 1; i + 1 < argc; i += 2) {
    const char *name = argv[i], *value = argv[i + 1];
    if (strcmp(name, "--target") == 0) target = value;
    if (strcmp(name, "--what") == 0) what = value;
    if (strcmp(name, "--tls") == 0) roots = value;
    if (strcmp(name, "--protocol") == 0) protocol = value;
    if (strcmp(name, "--http") == 0) http = value;
    if (strcmp(name, "--calls") == 0) calls = atol(value);
    if (strcmp(name, "--in-flight") == 0) in_flight = atol(value);
    if (strcmp(name, "--bytes") == 0) bytes = (size_t)atol(value);
    if (strcmp(name, "--interceptors") == 0) interceptors = atol(value);
    if (strcmp(name, "--filtered") == 0) filtered = atol(value);
    if (strcmp(name, "--copy") == 0) copies = atol(value);
  }
  static const struct {
    const char *name;
    void (*run)(long);
  } all[] = {{"serial", serial}, {"flight", flight}, {"pingpong", pingpong}, {"up", up}, {"down", down}};
  void (*run)(long) = NULL;
  for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
    if (strcmp(what, all[i].name) == 0) run = all[i].run;
  }
  if (!target || !run || calls < 1 || in_flight < 1) {
    fprintf(stderr, "counted_client: see the head of counted_client.c\n");
    return 2;
  }
  request = malloc(bytes + 1);
  for (size_t i = 0; i < bytes; i++) request[i] = (uint8_t)(i * 131);
  if (!copies) need("wrap", penstock_message_new_lent(request, bytes, 0, request, free, &lent));

  char options[1000], tls[900] = "false";
  if (roots) snprintf(tls, sizeof(tls), "{\"roots_file\": \"%s\"}", roots);
  snprintf(options, sizeof(options), "{\"tls\": %s, \"http\": \"%s\", \"protocol\": \"%s\"}", tls, http, protocol);
  const bool by_host = run == flight;
  need("runtime", penstock_runtime_new(by_host ? "{\"mode\": \"host\"}" : "{\"linger_us\": 10000000}", &runtime, NULL));
  need("channel", penstock_channel_new_on(runtime, target, options, &channel, NULL));
  add_interceptors(interceptors, NULL);
  add_interceptors(filtered, "/other.Service/*");
  if (!by_host) take_loop();
  run(calls);
  penstock_channel_release(channel);
  need("shutdown", penstock_runtime_shutdown(runtime, 5000));
  penstock_runtime_release(runtime);
  if (!lent) free(request);
  penstock_message_release(lent);
  return 0;
}
