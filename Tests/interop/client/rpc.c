#include "rpc.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- Failures ---- */

atomic_int failures;

void failed(const char *file, int line, const char *format, ...) {
  char text[2048];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  atomic_fetch_add(&failures, 1);
  const char *base = strrchr(file, '/');
  printf("  %s:%d: %s\n", base ? base + 1 : file, line, text);
  fflush(stdout);
}

bool check_int(const char *file, int line, const char *what, int64_t found, int64_t expected) {
  if (found == expected) return true;
  failed(file, line, "%s is %lld, not %lld", what, (long long)found, (long long)expected);
  return false;
}

bool check_result(const char *file, int line, const char *what, penstock_result found, penstock_result expected) {
  if (found == expected) return true;
  failed(file, line, "%s gave %s (%d), not %s", what, penstock_result_name(found), found,
         penstock_result_name(expected));
  return false;
}

bool check_status(const char *file, int line, const penstock_reply *reply, int32_t code, const char *message) {
  if (!reply) {
    failed(file, line, "no reply, where %s was expected", penstock_status_code_name(code));
    return false;
  }
  const char *found = penstock_status_message(penstock_reply_status(reply), NULL);
  if (penstock_reply_code(reply) == code && (!message || strcmp(found, message) == 0)) return true;
  failed(file, line, "status %s \"%s\", not %s \"%s\"", penstock_status_code_name(penstock_reply_code(reply)), found,
         penstock_status_code_name(code), message ? message : "...");
  return false;
}

int64_t now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* ---- Styles ---- */

const char *const style_names[] = {"blocking", "callback", "thread", "host", "host-callback"};

bool style_read(const char *name, style *style) {
  for (int i = 0; i < 5; i++) {
    if (strcmp(name, style_names[i]) == 0) {
      *style = i;
      return true;
    }
  }
  return false;
}

static bool uses_callbacks(const client *self) {
  return self->style == STYLE_CALLBACK || self->style == STYLE_HOST_CALLBACK;
}

/* ---- The probe ---- */

static int32_t probe_create(penstock_hop *hop, void *user_data, void **state) {
  (void)hop;
  atomic_fetch_add(&((client *)user_data)->created, 1);
  *state = user_data;
  return PENSTOCK_NEXT;
}
static void probe_destroy(penstock_hop *hop, void *state) {
  (void)hop;
  atomic_fetch_add(&((client *)state)->destroyed, 1);
}
static int32_t probe_status(penstock_hop *hop, void *state) {
  (void)hop;
  atomic_fetch_add(&((client *)state)->statuses, 1);
  return PENSTOCK_NEXT;
}
static int32_t probe_cancel(penstock_hop *hop, void *state) {
  (void)hop;
  atomic_fetch_add(&((client *)state)->cancels, 1);
  return PENSTOCK_NEXT;
}

/* ---- Clients ---- */

bool client_open(client *self) {
  static const char *const options[] = {NULL, NULL, "{\"caller_drives\": false}", "{\"mode\": \"host\"}",
                                        "{\"mode\": \"host\"}"};
  penstock_error *error = NULL;
  self->runtime = NULL;
  self->channel = NULL;
  penstock_result result = penstock_runtime_new(options[self->style], &self->runtime, &error);
  if (result == PENSTOCK_OK) {
    result = penstock_channel_new_on(self->runtime, self->target, self->options, &self->channel, &error);
  }
  if (result == PENSTOCK_OK && self->probed) {
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    table.name = "probe";
    table.user_data = self;
    table.create = probe_create;
    table.destroy = probe_destroy;
    table.on_status = probe_status;
    table.on_cancel = probe_cancel;
    penstock_interceptor_id id;
    result = penstock_channel_add_interceptor(self->channel, &table, 0, &id, &error);
  }
  if (result != PENSTOCK_OK) {
    FAIL("no channel to %s: %s: %s", self->target, penstock_result_name(result), penstock_error_message(error));
    penstock_error_release(error);
    client_close(self);
  }
  return result == PENSTOCK_OK;
}

void client_close(client *self) {
  penstock_channel_release(self->channel);
  self->channel = NULL;
  if (self->runtime) CHECK_OK(penstock_runtime_shutdown(self->runtime, 10000));
  penstock_runtime_release(self->runtime);
  self->runtime = NULL;
  CHECK_INT(atomic_load(&self->destroyed), atomic_load(&self->created));
  CHECK_INT(atomic_load(&self->statuses) + atomic_load(&self->cancels), atomic_load(&self->created));
  atomic_store(&self->created, 0);
  atomic_store(&self->destroyed, 0);
  atomic_store(&self->statuses, 0);
  atomic_store(&self->cancels, 0);
}

/* ---- Calls ---- */

/* One lock for all calls. It is static, because a finalizer still unlocks it when the thread that it wakes frees the
 * call. */
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

struct rpc {
  client *client;
  penstock_call *call;
  penstock_reply *reply;
  penstock_metadata *headers;
  /* Messages that were received and not taken yet, with room for more. */
  penstock_message **messages;
  size_t count, room;
  uint64_t sent;
  int replies, header_events, late, finalized;
  bool receives_one;
};

static void on_headers(penstock_call *call, const penstock_metadata *headers, void *user_data) {
  (void)call;
  rpc *self = user_data;
  pthread_mutex_lock(&mutex);
  self->header_events++;
  self->late += self->replies > 0 || self->count > 0;
  if (!self->headers) self->headers = penstock_metadata_retain(headers);
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&mutex);
}

static void on_message(penstock_call *call, penstock_message *message, void *user_data) {
  (void)call;
  rpc *self = user_data;
  pthread_mutex_lock(&mutex);
  self->late += self->replies > 0 || self->header_events == 0;
  if (self->count == self->room) {
    self->room = self->room ? 2 * self->room : 8;
    self->messages = realloc(self->messages, self->room * sizeof(*self->messages));
    if (!self->messages) abort();
  }
  self->messages[self->count++] = penstock_message_retain(message);
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&mutex);
}

static void on_sent(penstock_call *call, uint64_t count, void *user_data) {
  (void)call;
  rpc *self = user_data;
  pthread_mutex_lock(&mutex);
  self->late += self->replies > 0;
  self->sent += count;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&mutex);
}

static void on_reply(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  rpc *self = user_data;
  pthread_mutex_lock(&mutex);
  self->late += self->finalized;
  if (self->replies++ == 0) self->reply = penstock_reply_retain(reply);
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&mutex);
}

static void finalize(void *user_data) {
  rpc *self = user_data;
  pthread_mutex_lock(&mutex);
  self->finalized++;
  pthread_cond_broadcast(&changed);
  pthread_mutex_unlock(&mutex);
}

/* Waits once for a change, with the lock held. For a host-driven runtime it runs one turn of the loop instead. */
static void wait_a_turn(rpc *self) {
  if (self->client->style != STYLE_HOST_CALLBACK) {
    pthread_cond_wait(&changed, &mutex);
    return;
  }
  pthread_mutex_unlock(&mutex);
  penstock_result result = penstock_runtime_poll(self->client->runtime, -1);
  if (result != PENSTOCK_OK && result != PENSTOCK_E_INTERRUPTED) {
    FAIL("penstock_runtime_poll gave %s", penstock_result_name(result));
    exit(4);
  }
  pthread_mutex_lock(&mutex);
}

rpc *rpc_start(client *client, const char *method, int32_t kind, const char *options) {
  rpc *self = calloc(1, sizeof(*self));
  if (!self) abort();
  self->client = client;
  self->receives_one = kind == PENSTOCK_KIND_UNARY || kind == PENSTOCK_KIND_CLIENT_STREAM;
  penstock_call_options *parsed = NULL;
  penstock_error *error = NULL;
  penstock_result result = PENSTOCK_OK;
  if (options) result = penstock_call_options_new(options, &parsed, &error);
  if (result == PENSTOCK_OK) {
    penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
    callbacks.user_data = self;
    callbacks.finalizer = finalize;
    callbacks.on_headers = on_headers;
    callbacks.on_message = on_message;
    callbacks.on_sent = on_sent;
    callbacks.on_reply = on_reply;
    result = penstock_channel_call(client->channel, method, kind, parsed, uses_callbacks(client) ? &callbacks : NULL,
                                   &self->call, &error);
  }
  penstock_call_options_release(parsed);
  if (result == PENSTOCK_OK) return self;
  FAIL("%s was not started: %s: %s", method, penstock_result_name(result), penstock_error_message(error));
  penstock_error_release(error);
  free(self);
  return NULL;
}

penstock_result rpc_try_send(rpc *self, const void *data, size_t length) {
  return penstock_call_try_send(self->call, data, length);
}

penstock_result rpc_send(rpc *self, const void *data, size_t length) {
  if (!uses_callbacks(self->client)) return penstock_call_send(self->call, data, length);
  while (true) {
    pthread_mutex_lock(&mutex);
    uint64_t sent = self->sent;
    pthread_mutex_unlock(&mutex);
    penstock_result result = penstock_call_try_send(self->call, data, length);
    if (result != PENSTOCK_E_WOULD_BLOCK) return result;
    pthread_mutex_lock(&mutex);
    while (self->sent == sent && self->replies == 0) wait_a_turn(self);
    pthread_mutex_unlock(&mutex);
  }
}

penstock_result rpc_half_close(rpc *self) { return penstock_call_half_close(self->call); }

penstock_message *rpc_receive(rpc *self) {
  penstock_message *message = NULL;
  if (!uses_callbacks(self->client)) {
    penstock_result result = penstock_call_receive(self->call, &message);
    if (result != PENSTOCK_OK && result != PENSTOCK_E_END) {
      FAIL("penstock_call_receive gave %s", penstock_result_name(result));
    }
    return result == PENSTOCK_OK ? message : NULL;
  }
  pthread_mutex_lock(&mutex);
  if (self->count == 0 && self->replies == 0 && !self->receives_one) {
    pthread_mutex_unlock(&mutex);
    penstock_call_demand(self->call, 1);
    pthread_mutex_lock(&mutex);
  }
  while (self->count == 0 && self->replies == 0) wait_a_turn(self);
  if (self->count > 0) {
    message = self->messages[0];
    self->count--;
    memmove(self->messages, self->messages + 1, self->count * sizeof(*self->messages));
  }
  pthread_mutex_unlock(&mutex);
  return message;
}

const penstock_metadata *rpc_headers(rpc *self) {
  if (!uses_callbacks(self->client)) {
    const penstock_metadata *headers = NULL;
    penstock_result result = penstock_call_wait_headers(self->call, &headers);
    if (result != PENSTOCK_OK && result != PENSTOCK_E_END) {
      FAIL("penstock_call_wait_headers gave %s", penstock_result_name(result));
    }
    return headers;
  }
  pthread_mutex_lock(&mutex);
  while (!self->headers && self->replies == 0) wait_a_turn(self);
  const penstock_metadata *headers = self->headers;
  pthread_mutex_unlock(&mutex);
  return headers;
}

penstock_reply *rpc_finish(rpc *self) {
  if (!uses_callbacks(self->client)) {
    penstock_reply *reply = NULL;
    if (!CHECK_OK(penstock_call_wait(self->call, &reply))) return self->reply;
    if (self->reply) {
      /* penstock_call_wait may be called again, and gives the same result. */
      CHECK_INT(penstock_reply_code(reply), penstock_reply_code(self->reply));
      penstock_reply_release(reply);
    } else {
      self->reply = reply;
    }
    return self->reply;
  }
  penstock_result result = penstock_call_half_close(self->call);
  if (result != PENSTOCK_OK && result != PENSTOCK_E_ALREADY && result != PENSTOCK_E_GONE) {
    FAIL("penstock_call_half_close gave %s", penstock_result_name(result));
  }
  if (!self->receives_one) penstock_call_demand(self->call, 1 << 20);
  pthread_mutex_lock(&mutex);
  while (self->replies == 0) wait_a_turn(self);
  pthread_mutex_unlock(&mutex);
  return self->reply;
}

void rpc_cancel(rpc *self, const char *reason) { CHECK_OK(penstock_call_cancel(self->call, reason)); }

bool rpc_has_ended(rpc *self) {
  penstock_reply *reply = NULL;
  penstock_result result = penstock_call_reply(self->call, &reply);
  penstock_reply_release(reply);
  return result == PENSTOCK_OK;
}

uint64_t rpc_sent(rpc *self) {
  pthread_mutex_lock(&mutex);
  uint64_t sent = self->sent;
  pthread_mutex_unlock(&mutex);
  return sent;
}

void rpc_free(rpc *self) {
  if (!self) return;
  rpc_finish(self);
  penstock_call_release(self->call);
  pthread_mutex_lock(&mutex);
  if (uses_callbacks(self->client)) {
    while (self->finalized == 0) wait_a_turn(self);
    if (self->replies != 1 || self->finalized != 1 || self->late != 0 || self->header_events > 1) {
      FAIL("%d replies, %d finalizer runs, %d headers, %d events out of order", self->replies, self->finalized,
           self->header_events, self->late);
    }
  }
  pthread_mutex_unlock(&mutex);
  for (size_t i = 0; i < self->count; i++) penstock_message_release(self->messages[i]);
  free(self->messages);
  penstock_metadata_release(self->headers);
  penstock_reply_release(self->reply);
  free(self);
}

penstock_reply *rpc_unary(client *client, const char *method, const void *request, size_t length, const char *options) {
  penstock_reply *reply = NULL;
  if (!uses_callbacks(client)) {
    penstock_call_options *parsed = NULL;
    penstock_error *error = NULL;
    penstock_result result = options ? penstock_call_options_new(options, &parsed, &error) : PENSTOCK_OK;
    if (result == PENSTOCK_OK) {
      result = penstock_channel_unary(client->channel, method, request, length, parsed, &reply, &error);
    }
    penstock_call_options_release(parsed);
    if (result != PENSTOCK_OK) {
      FAIL("%s was not started: %s: %s", method, penstock_result_name(result), penstock_error_message(error));
    }
    penstock_error_release(error);
    return reply;
  }
  rpc *call = rpc_start(client, method, PENSTOCK_KIND_UNARY, options);
  if (!call) return NULL;
  penstock_result sent = rpc_send(call, request, length);
  if (sent != PENSTOCK_OK && sent != PENSTOCK_E_GONE) FAIL("send gave %s", penstock_result_name(sent));
  reply = penstock_reply_retain(rpc_finish(call));
  rpc_free(call);
  return reply;
}
