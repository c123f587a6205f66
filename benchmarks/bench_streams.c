/* Streams: up, down, both ways at once, and ping-pong, in blocking and in callback style. */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static penstock_call *open_call(bench *self, const char *method, int32_t kind, const char *name, const char *value,
                                const penstock_call_callbacks *callbacks) {
  penstock_call_options *options = NULL;
  penstock_call *call = NULL;
  char json[100];
  if (name) {
    snprintf(json, sizeof(json), "{\"metadata\": {\"%s\": \"%s\"}}", name, value);
    need("options", penstock_call_options_new(json, &options, NULL));
  }
  need("call", penstock_channel_call(self->channel, method, kind, options, callbacks, &call, NULL));
  penstock_call_options_release(options);
  return call;
}

/* Sends a copy of the request, or, with --copy 0, always the same message. */
static penstock_result send_one(const bench *self, penstock_call *call) {
  return self->message ? penstock_call_send_message(call, self->message)
                       : penstock_call_send(call, self->request, self->bytes);
}

static penstock_result try_send_one(const bench *self, penstock_call *call) {
  return self->message ? penstock_call_try_send_message(call, self->message)
                       : penstock_call_try_send(call, self->request, self->bytes);
}

static void check_message(const bench *self, const penstock_message *message) {
  size_t length = 0;
  const void *data = penstock_message_bytes(message, &length);
  if (length != self->bytes || memcmp(data, self->request, length) != 0) {
    fprintf(stderr, "bench_client: wrong message\n");
    exit(1);
  }
}

static void check_status(const penstock_reply *reply) {
  size_t length = 0;
  const void *none = penstock_reply_bytes(reply, &length);
  check_reply(reply, none, length);
}

/* Checks the reply of a client stream: the server counts the messages that it has received. */
static void check_count(const penstock_reply *reply, long calls) {
  char wanted[32];
  snprintf(wanted, sizeof(wanted), "%ld", calls);
  check_reply(reply, wanted, strlen(wanted));
}

/* ---- Blocking style ---- */

static void receive_one(const bench *self, penstock_call *call) {
  penstock_message *message = NULL;
  need("receive", penstock_call_receive(call, &message));
  check_message(self, message);
  penstock_message_release(message);
}

static penstock_reply *finish(penstock_call *call) {
  penstock_reply *reply = NULL;
  need("finish", penstock_call_wait(call, &reply));
  penstock_call_release(call);
  return reply;
}

static void finish_ok(penstock_call *call) {
  penstock_reply *reply = finish(call);
  check_status(reply);
  penstock_reply_release(reply);
}

void up_blocking(bench *self, long calls) {
  penstock_call *call =
      open_call(self, "/penstock.Echo/ClientStream", PENSTOCK_KIND_CLIENT_STREAM, "x-mode", "count", NULL);
  for (long i = 0; i < calls; i++) need("send", send_one(self, call));
  penstock_reply *reply = finish(call);
  check_count(reply, calls);
  penstock_reply_release(reply);
}

void down_blocking(bench *self, long calls) {
  char count[32];
  snprintf(count, sizeof(count), "%ld", calls);
  penstock_call *call =
      open_call(self, "/penstock.Echo/ServerStream", PENSTOCK_KIND_SERVER_STREAM, "x-repeat", count, NULL);
  need("send", send_one(self, call));
  need("half_close", penstock_call_half_close(call));
  for (long i = 0; i < calls; i++) receive_one(self, call);
  finish_ok(call);
}

static penstock_call *open_bidi(bench *self, const penstock_call_callbacks *callbacks) {
  return open_call(self, "/penstock.Echo/Bidi", PENSTOCK_KIND_BIDI, NULL, NULL, callbacks);
}

void pingpong_blocking(bench *self, long calls) {
  penstock_call *call = open_bidi(self, NULL);
  double since = now();
  for (long i = 0; i < calls; i++) {
    need("send", send_one(self, call));
    receive_one(self, call);
    since = note_latency(self, since);
  }
  finish_ok(call);
}

typedef struct sender {
  bench *bench;
  penstock_call *call;
  long calls;
} sender;

static void *send_all(void *argument) {
  sender *self = argument;
  for (long i = 0; i < self->calls; i++) need("send", send_one(self->bench, self->call));
  need("half_close", penstock_call_half_close(self->call));
  return NULL;
}

void duplex_blocking(bench *self, long calls) {
  penstock_call *call = open_bidi(self, NULL);
  sender sender = {self, call, calls};
  pthread_t thread;
  if (pthread_create(&thread, NULL, send_all, &sender) != 0) die("thread", PENSTOCK_E_SYSTEM);
  for (long i = 0; i < calls; i++) receive_one(self, call);
  pthread_join(thread, NULL);
  finish_ok(call);
}

/* ---- Callback style ---- */

/* Sends messages until there is no room. When there is room again, on_sent calls this function again. */
static void send_more(bench *self, penstock_call *call) {
  while (self->sent < self->calls) {
    penstock_result result = try_send_one(self, call);
    if (result == PENSTOCK_E_WOULD_BLOCK) return;
    need("try_send", result);
    if (++self->sent == self->calls) need("half_close", penstock_call_half_close(call));
  }
}

static void on_sent(penstock_call *call, uint64_t count, void *user_data) {
  (void)count;
  send_more(user_data, call);
}

static void on_message(penstock_call *call, penstock_message *message, void *user_data) {
  (void)call;
  bench *self = user_data;
  check_message(self, message);
  self->received++;
}

/* Ping-pong: called when the echo of a message has come, to send the next message. */
static void on_echo(penstock_call *call, penstock_message *message, void *user_data) {
  bench *self = user_data;
  on_message(call, message, self);
  self->since = note_latency(self, self->since);
  if (self->received == self->calls)
    need("half_close", penstock_call_half_close(call));
  else
    need("try_send", try_send_one(self, call));
}

static void on_all(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  bench *self = user_data;
  check_status(reply);
  if (self->received != self->calls) {
    fprintf(stderr, "bench_client: wrong count: %ld messages of %ld\n", self->received, self->calls);
    exit(1);
  }
  done(self);
}

static void on_count(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  bench *self = user_data;
  check_count(reply, self->calls);
  done(self);
}

/* Sends the first message, on this thread. The callbacks send all others, on the driving thread. */
static void send_first(bench *self, penstock_call *call, bool last) {
  self->sent = 1;
  need("try_send", try_send_one(self, call));
  if (last) need("half_close", penstock_call_half_close(call));
}

static void run_callbacks(bench *self, penstock_call *call, bool demands, bool last) {
  if (demands) need("demand", penstock_call_demand(call, (uint64_t)self->calls + 1));
  send_first(self, call, last);
  wait_until_done(self);
  penstock_call_release(call);
}

static penstock_call_callbacks table(bench *self, long calls) {
  begin(self, calls);
  penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
  callbacks.user_data = self;
  callbacks.on_message = on_message;
  callbacks.on_reply = on_all;
  return callbacks;
}

void up_callbacks(bench *self, long calls) {
  penstock_call_callbacks callbacks = table(self, calls);
  callbacks.on_message = NULL;
  callbacks.on_sent = on_sent;
  callbacks.on_reply = on_count;
  penstock_call *call =
      open_call(self, "/penstock.Echo/ClientStream", PENSTOCK_KIND_CLIENT_STREAM, "x-mode", "count", &callbacks);
  run_callbacks(self, call, false, calls == 1);
}

void down_callbacks(bench *self, long calls) {
  penstock_call_callbacks callbacks = table(self, calls);
  char count[32];
  snprintf(count, sizeof(count), "%ld", calls);
  run_callbacks(
      self, open_call(self, "/penstock.Echo/ServerStream", PENSTOCK_KIND_SERVER_STREAM, "x-repeat", count, &callbacks),
      true, true);
}

void duplex_callbacks(bench *self, long calls) {
  penstock_call_callbacks callbacks = table(self, calls);
  callbacks.on_sent = on_sent;
  run_callbacks(self, open_bidi(self, &callbacks), true, calls == 1);
}

void pingpong_callbacks(bench *self, long calls) {
  penstock_call_callbacks callbacks = table(self, calls);
  callbacks.on_message = on_echo;
  self->since = now();
  run_callbacks(self, open_bidi(self, &callbacks), true, false);
}
