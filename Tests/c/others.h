/* Shared by the tests of docs/others.md: short functions for calls, a hop that pauses once, a caller that collects
 * messages. */
#ifndef PENSTOCK_OTHERS_H
#define PENSTOCK_OTHERS_H

#include "test.h"

static inline penstock_call_options *new_options(const char *json) {
  penstock_call_options *options = NULL;
  OK(penstock_call_options_new(json, &options, NULL));
  return options;
}

/* Starts a call in blocking style; `json` are its call options. */
static inline penstock_call *start_with(penstock_channel *channel, const char *method, int32_t kind, const char *json) {
  penstock_call_options *options = new_options(json);
  penstock_call *call = NULL;
  OK(penstock_channel_call(channel, method, kind, options, NULL, &call, NULL));
  penstock_call_options_release(options);
  return call;
}

/* Makes a unary call; checks that it ends with `code`, and that `part` is in the status message. */
static inline void check_unary(penstock_channel *channel, const char *json, int32_t code, const char *part) {
  penstock_call_options *options = new_options(json);
  penstock_reply *reply = NULL;
  if (OK(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL))) {
    CHECK_INT(penstock_reply_code(reply), code);
    CHECK_HAS(penstock_status_message(penstock_reply_status(reply), NULL), part);
    penstock_reply_release(reply);
  }
  penstock_call_options_release(options);
}

static inline bool is_text(const void *data, size_t length, const char *text) {
  return data && length == strlen(text) && memcmp(data, text, length) == 0;
}

/* Checks that the next message is `text`. */
static inline void check_receive(penstock_call *call, const char *text) {
  penstock_message *message = NULL;
  if (!OK(penstock_call_receive(call, &message))) return;
  size_t length = 0;
  const void *data = penstock_message_bytes(message, &length);
  CHECK(is_text(data, length, text));
  penstock_message_release(message);
}

/* Checks that the call ends with `code`; releases it. */
static inline void check_finish(penstock_call *call, int32_t code) {
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) {
    if (!CHECK_INT(penstock_reply_code(reply), code)) printf("  %s\n", penstock_reply_status_json(reply));
    penstock_reply_release(reply);
  }
  penstock_call_release(call);
}

/* Checks that every hop has ended once, and that the registration was finalized. */
static inline void check_ended(probe *probe) {
  probe_wait_finalized(probe);
  CHECK_INT(latch_count(&probe->done), atomic_load(&probe->seen[PENSTOCK_EVENT_CREATE]));
  /* A hop that held a status gets on_cancel after it; a hop that restarts sees a status for each attempt. */
  if (probe->replay_bytes == 0) CHECK(atomic_load(&probe->seen[PENSTOCK_EVENT_STATUS]) <= latch_count(&probe->done));
  CHECK(atomic_load(&probe->seen[PENSTOCK_EVENT_CANCEL]) <= latch_count(&probe->done));
}

static inline int seen(probe *probe, int32_t event) { return atomic_load(&probe->seen[event]); }

/* ---- A hop that pauses at one event, once ---- */

typedef struct pauser {
  int32_t event;
  const char *message; /* pauses only at this message in on_send and on_receive; NULL: at any */
  penstock_ticket ticket;
  latch paused;
} pauser;

static inline int32_t pause_once(probe *self, penstock_hop *hop, int32_t event) {
  pauser *pauser = self->context;
  if (event != pauser->event || pauser->ticket) return PENSTOCK_NEXT;
  if (pauser->message) {
    const void *data = NULL;
    size_t length = 0;
    OK(hop_bytes(hop, &data, &length));
    if (!is_text(data, length, pauser->message)) return PENSTOCK_NEXT;
  }
  pauser->ticket = penstock_hop_ticket(hop);
  if (!pauser->ticket) return PENSTOCK_NEXT;
  latch_signal(&pauser->paused);
  return PENSTOCK_PAUSE;
}

static inline void pauser_init(probe *probe, pauser *pauser, const char *name) {
  probe_init(probe, name);
  probe->hook = pause_once;
  probe->context = pauser;
}

/* ---- A caller in callback style ---- */

typedef struct collector {
  char text[256]; /* the first character of each message */
  int32_t code;
  atomic_int messages, sent;
  latch headers, replies, finalized;
} collector;

#define COLLECTOR_INIT                                                                                                 \
  { "", -1, 0, 0, LATCH_INIT, LATCH_INIT, LATCH_INIT }

static inline void collect_headers(penstock_call *call, const penstock_metadata *headers, void *user_data) {
  (void)call, (void)headers;
  latch_signal(&((collector *)user_data)->headers);
}
static inline void collect_message(penstock_call *call, penstock_message *message, void *user_data) {
  (void)call;
  collector *collector = user_data;
  size_t length = 0;
  const void *data = penstock_message_bytes(message, &length);
  if (atomic_load(&collector->messages) < 255 && length > 0) strncat(collector->text, data, 1);
  atomic_fetch_add(&collector->messages, 1);
}
static inline void collect_sent(penstock_call *call, uint64_t count, void *user_data) {
  (void)call;
  atomic_fetch_add(&((collector *)user_data)->sent, (int)count);
}
static inline void collect_reply(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  ((collector *)user_data)->code = penstock_reply_code(reply);
  latch_signal(&((collector *)user_data)->replies);
}
static inline void collector_finalizer(void *user_data) { latch_signal(&((collector *)user_data)->finalized); }

static inline penstock_call *start_collecting(penstock_channel *channel, const char *method, int32_t kind,
                                              const char *json, collector *collector) {
  penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
  table.user_data = collector;
  table.finalizer = collector_finalizer;
  table.on_headers = collect_headers;
  table.on_message = collect_message;
  table.on_sent = collect_sent;
  table.on_reply = collect_reply;
  penstock_call_options *options = new_options(json);
  penstock_call *call = NULL;
  OK(penstock_channel_call(channel, method, kind, options, &table, &call, NULL));
  penstock_call_options_release(options);
  return call;
}

#endif
