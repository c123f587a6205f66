/* Snapshots of runtimes with a blocked loop, and of many calls. */
#include "traces.h"

#include <sched.h>

/* ---- A blocked loop ---- */

typedef struct gate {
  latch entered, open;
  int32_t at;
} gate;

static int32_t hang(probe *self, penstock_hop *hop, int32_t event) {
  gate *gate = self->context;
  (void)hop;
  if (event == gate->at) {
    latch_signal(&gate->entered);
    latch_wait(&gate->open, 1);
  }
  return PENSTOCK_NEXT;
}

static void *run_echo(void *channel) {
  check_echo(channel);
  return NULL;
}

static void hang_in(const char *options, int32_t at, const char *event) {
  penstock_runtime *runtime = new_runtime(options);
  penstock_channel *channel = open_channel_on(runtime);
  gate gate = {.entered = LATCH_INIT, .open = LATCH_INIT, .at = at};
  probe stuck, other;
  probe_init_with(&stuck, "stuck", hang, &gate);
  probe_init(&other, "other");
  probe_add(&other, channel, 1);
  probe_add(&stuck, channel, 0);
  pthread_t thread;
  pthread_create(&thread, NULL, run_echo, channel);
  latch_wait(&gate.entered, 1);
  int64_t began = test_now_ms();
  char *json = NULL, expected[128];
  OK(penstock_runtime_snapshot_json(runtime, 50, &json));
  int64_t took = test_now_ms() - began;
  CHECK(took >= 49 && took < test_patience_ms());
  snprintf(expected, sizeof(expected), "{\"complete\":false,\"running\":{\"interceptor\":\"stuck\",\"event\":\"%s\"",
           event);
  CHECK_HAS(json, expected);
  CHECK_HAS(json, "\"calls\":null,\"channels\":null}");
  penstock_free(json);
  json = NULL;
  CHECK_RESULT(penstock_channel_stats_json(channel, 10, &json), PENSTOCK_E_TIMEOUT);
  CHECK(json == NULL);
  latch_signal(&gate.open);
  pthread_join(thread, NULL);
  OK(penstock_channel_stats_json(channel, 20000, &json));
  CHECK_HAS(json, "\"state\":\"ready\",\"policy\":\"pick_first\"");
  CHECK_HAS(json, "\"started\":1,\"succeeded\":1,\"failed\":0,\"in_flight\":0,\"waiting\":0");
  penstock_free(json);
  OK(penstock_runtime_snapshot_json(runtime, 20000, &json));
  CHECK_HAS(json, "{\"complete\":true,\"running\":null,\"calls\":[],\"channels\":[{\"target\":");
  penstock_free(json);
  penstock_channel_release(channel);
  penstock_runtime_release(runtime);
  probe_wait_finalized(&stuck);
  probe_wait_finalized(&other);
}

TEST(snapshot_names_an_interceptor_that_hangs) {
  hang_in(NULL, PENSTOCK_EVENT_START, "start");
  hang_in("{\"caller_drives\": false}", PENSTOCK_EVENT_RECEIVE, "receive");
  hang_in("{\"mode\": \"host\"}", PENSTOCK_EVENT_STATUS, "status");
  hang_in(NULL, PENSTOCK_EVENT_CREATE, "create");
  hang_in(NULL, PENSTOCK_EVENT_DESTROY, "destroy");
}

/* A host-driven runtime gives a snapshot even if nobody polls. */
TEST(snapshot_of_a_runtime_that_nobody_drives) {
  penstock_runtime *runtime = new_runtime("{\"mode\": \"host\"}");
  penstock_channel *channel = open_channel_on(runtime);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  char *json = NULL;
  OK(penstock_runtime_snapshot_json(runtime, 0, &json));
  CHECK_HAS(json, "{\"complete\":true,\"running\":null,\"calls\":[");
  penstock_free(json);
  OK(penstock_runtime_poll(runtime, 0));
  OK(penstock_runtime_snapshot_json(runtime, 0, &json));
  CHECK_HAS(json, "\"kind\":\"bidi\"");
  penstock_free(json);
  end_call(call);
  OK(penstock_runtime_shutdown(runtime, -1));
  OK(penstock_runtime_snapshot_json(runtime, 0, &json));
  CHECK_JSON(json, "{\"complete\":true,\"running\":null,\"calls\":[],\"channels\":[]}");
  penstock_free(json);
  json = NULL;
  CHECK_RESULT(penstock_channel_stats_json(channel, 0, &json), PENSTOCK_E_CLOSED);
  penstock_channel_release(channel);
  penstock_free(json);
  penstock_runtime_release(runtime);
}

static void slow_reply(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call, (void)reply;
  gate *gate = user_data;
  latch_signal(&gate->entered);
  latch_wait(&gate->open, 1);
}

TEST(snapshot_tells_a_callback_of_the_caller_that_hangs) {
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_channel *channel = open_channel_on(runtime);
  gate gate = {.entered = LATCH_INIT, .open = LATCH_INIT};
  penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
  callbacks.user_data = &gate;
  callbacks.on_reply = slow_reply;
  penstock_call *call = NULL;
  OK(penstock_channel_call(channel, UNARY, PENSTOCK_KIND_UNARY, NULL, &callbacks, &call, NULL));
  OK(penstock_call_try_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  latch_wait(&gate.entered, 1);
  char *json = NULL;
  OK(penstock_runtime_snapshot_json(runtime, 10, &json));
  CHECK_HAS(json, "{\"complete\":false,\"running\":{\"interceptor\":null,\"event\":\"status\"");
  penstock_free(json);
  latch_signal(&gate.open);
  penstock_call_release(call);
  penstock_channel_release(channel);
  OK(penstock_runtime_shutdown(runtime, -1));
  penstock_runtime_release(runtime);
}

/* The callbacks of a call's own user, each of which looks at the snapshot of its runtime. */
typedef struct shown {
  penstock_runtime *runtime;
  atomic_int headers, messages, readable, sent;
  latch reply;
} shown;

static void check_shown(const shown *self, penstock_call *call, const char *event) {
  char *json = NULL, expected[128];
  OK(penstock_runtime_snapshot_json(self->runtime, 0, &json));
  snprintf(expected, sizeof(expected), "\"running\":{\"interceptor\":null,\"event\":\"%s\",\"call\":%llu,", event,
           (unsigned long long)penstock_call_id(call));
  CHECK_HAS(json, expected);
  penstock_free(json);
}
static void shown_headers(penstock_call *call, const penstock_metadata *headers, void *user_data) {
  shown *self = user_data;
  (void)headers;
  check_shown(self, call, "headers");
  atomic_fetch_add(&self->headers, 1);
}
static void shown_message(penstock_call *call, penstock_message *message, void *user_data) {
  shown *self = user_data;
  (void)message;
  check_shown(self, call, "receive");
  atomic_fetch_add(&self->messages, 1);
}
static void shown_readable(penstock_call *call, void *user_data) {
  shown *self = user_data;
  check_shown(self, call, "receive");
  atomic_fetch_add(&self->readable, 1);
}
static void shown_sent(penstock_call *call, uint64_t count, void *user_data) {
  shown *self = user_data;
  (void)count;
  check_shown(self, call, "sent");
  atomic_fetch_add(&self->sent, 1);
}
static void shown_reply(penstock_call *call, penstock_reply *reply, void *user_data) {
  shown *self = user_data;
  CHECK_INT(penstock_reply_code(reply), 0);
  check_shown(self, call, "status");
  latch_signal(&self->reply);
}

TEST(snapshot_names_each_callback_of_the_caller) {
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_channel *channel = open_channel_on(runtime);
  for (int is_queued = 0; is_queued < 2; is_queued++) {
    shown shown = {.runtime = runtime, .reply = LATCH_INIT};
    penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
    callbacks.user_data = &shown;
    callbacks.on_headers = shown_headers;
    callbacks.on_message = is_queued ? NULL : shown_message;
    callbacks.on_readable = is_queued ? shown_readable : NULL;
    callbacks.on_sent = shown_sent;
    callbacks.on_reply = shown_reply;
    penstock_call *call = NULL;
    REQUIRE_OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, &callbacks, &call, NULL));
    OK(penstock_call_demand(call, 1));
    OK(penstock_call_try_send(call, "x", 1));
    OK(penstock_call_half_close(call));
    latch_wait(&shown.reply, 1);
    CHECK_INT(atomic_load(&shown.headers), 1);
    CHECK_INT(atomic_load(&shown.messages), !is_queued);
    CHECK_INT(atomic_load(&shown.readable), is_queued);
    CHECK_INT(atomic_load(&shown.sent), 1);
    penstock_call_release(call);
  }
  penstock_channel_release(channel);
  OK(penstock_runtime_shutdown(runtime, -1));
  penstock_runtime_release(runtime);
}

static bool nothing_runs(const shown *self) {
  char *json = NULL;
  OK(penstock_runtime_snapshot_json(self->runtime, test_patience_ms(), &json));
  bool nothing = strstr(json, "\"running\":null") != NULL;
  penstock_free(json);
  return nothing;
}

/* Each callback alone, so that no other one hides that its end was missed. */
TEST(snapshot_names_no_callback_that_has_returned) {
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_channel *channel = open_channel_on(runtime);
  for (int which = 0; which < 5; which++) {
    shown shown = {.runtime = runtime, .reply = LATCH_INIT};
    atomic_int *counts[] = {&shown.headers, &shown.messages, &shown.readable, &shown.sent, NULL};
    penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
    callbacks.user_data = &shown;
    if (which == 0) callbacks.on_headers = shown_headers;
    if (which == 1) callbacks.on_message = shown_message;
    if (which == 2) callbacks.on_readable = shown_readable;
    if (which == 3) callbacks.on_sent = shown_sent;
    if (which == 4) callbacks.on_reply = shown_reply;
    penstock_call *call = NULL;
    REQUIRE_OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, &callbacks, &call, NULL));
    OK(penstock_call_demand(call, 1));
    OK(penstock_call_try_send(call, "x", 1));
    if (which == 4) {
      OK(penstock_call_half_close(call));
      latch_wait(&shown.reply, 1);
    }
    EVENTUALLY((!counts[which] || atomic_load(counts[which])) && nothing_runs(&shown));
    OK(penstock_call_cancel(call, NULL));
    penstock_call_release(call);
  }
  penstock_channel_release(channel);
  OK(penstock_runtime_shutdown(runtime, -1));
  penstock_runtime_release(runtime);
}

/* Several threads take snapshots while calls run; most useful under ThreadSanitizer. */
typedef struct crowd {
  penstock_runtime *runtime;
  penstock_channel *channel;
  atomic_bool done;
  int rounds;
} crowd;

static void *watch_crowd(void *argument) {
  crowd *crowd = argument;
  while (!atomic_load(&crowd->done)) {
    char *json = NULL;
    if (OK(penstock_runtime_snapshot_json(crowd->runtime, 1000, &json))) CHECK_HAS(json, "{\"complete\":");
    penstock_free(json);
  }
  return NULL;
}
static void *run_crowd(void *argument) {
  crowd *crowd = argument;
  for (int i = 0; i < crowd->rounds; i++) {
    penstock_call *call = start_call(crowd->channel, UNARY, PENSTOCK_KIND_UNARY);
    char *json = NULL;
    penstock_call_send(call, "x", 1);
    if (OK(penstock_call_trace_json(call, &json))) CHECK_HAS(json, "\"events\":[");
    penstock_free(json);
    penstock_reply *reply = NULL;
    if (OK(penstock_call_wait(call, &reply))) {
      CHECK_INT(penstock_reply_code(reply), 0);
      CHECK_HAS(penstock_reply_trace_json(reply), "\"ended\":true");
      penstock_reply_release(reply);
    }
    penstock_call_release(call);
  }
  return NULL;
}

TEST(snapshot_while_calls_run) {
  crowd crowd = {.runtime = new_runtime(NULL), .rounds = test_rounds(60)};
  OK(penstock_channel_new_on(crowd.runtime, peer_address(), "{\"tls\": false, \"trace\": true}", &crowd.channel, NULL));
  probe waits;
  probe_init_with(&waits, "waits", pause_start, NULL);
  probe_add(&waits, crowd.channel, 0);
  pthread_t watcher, threads[4];
  pthread_create(&watcher, NULL, watch_crowd, &crowd);
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, run_crowd, &crowd);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  atomic_store(&crowd.done, true);
  pthread_join(watcher, NULL);
  penstock_channel_release(crowd.channel);
  penstock_runtime_release(crowd.runtime);
  probe_wait_finalized(&waits);
}

/* Another thread reads the trace by a retained hop while a blocking call ends. */
typedef struct onlooker {
  _Atomic(penstock_hop *) hop;
  atomic_bool done;
} onlooker;

static int32_t show_hop(probe *self, penstock_hop *hop, int32_t event) {
  onlooker *onlooker = self->context;
  if (event == PENSTOCK_EVENT_START && !atomic_load(&onlooker->hop)) {
    atomic_store(&onlooker->hop, penstock_hop_retain(hop));
  }
  return PENSTOCK_NEXT;
}
static void *look_at_hops(void *argument) {
  onlooker *onlooker = argument;
  while (!atomic_load(&onlooker->done)) {
    penstock_hop *hop = atomic_load(&onlooker->hop);
    char *json = NULL;
    if (!hop) continue;
    for (int64_t began; began = test_now_ms(), penstock_hop_trace_json(hop, &json) == PENSTOCK_OK;
         penstock_free(json)) {
      /* The trace says where the call is, or that it has ended; it lacks both only if the loop did not answer for 100
       * ms. */
      if (test_now_ms() - began < 100 && !strstr(json, "\"ended\":true")) CHECK_HAS(json, "\"age_ms\":");
    }
    penstock_hop_release(hop);
    atomic_store(&onlooker->hop, NULL);
  }
  return NULL;
}

TEST(snapshot_of_a_hop_while_its_call_ends) {
  onlooker onlooker = {.done = false};
  penstock_channel *channel = open_channel();
  probe shows;
  probe_init_with(&shows, "shows", show_hop, &onlooker);
  probe_add(&shows, channel, 0);
  pthread_t thread;
  pthread_create(&thread, NULL, look_at_hops, &onlooker);
  for (int i = 0; i < test_rounds(2000); i++) check_echo(channel);
  while (atomic_load(&onlooker.hop)) sched_yield();
  atomic_store(&onlooker.done, true);
  pthread_join(thread, NULL);
  penstock_channel_release(channel);
  probe_wait_finalized(&shows);
}

/* A hop whose callback has returned is not the holder of the call, whatever its last event was. */
TEST(snapshot_between_events) {
  penstock_channel *channel = open_channel();
  penstock_runtime *runtime = NULL;
  REQUIRE_OK(penstock_runtime_default(&runtime, NULL));
  probe upper, lower;
  probe_init(&upper, "upper");
  probe_init(&lower, "lower");
  penstock_interceptor tables[] = {probe_table(&upper), probe_table(&lower)};
  for (int i = 0; i < 2; i++) {
    tables[i].on_demand = NULL;
    tables[i].on_sent = NULL;
    penstock_interceptor_id id;
    OK(penstock_channel_add_interceptor(channel, &tables[i], i, &id, NULL));
  }
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  for (int i = 0; i < 3; i++) {
    OK(penstock_call_send(call, "x", 1));
    penstock_message *message = NULL;
    OK(penstock_call_receive(call, &message));
    penstock_message_release(message);
    char *json = NULL;
    OK(penstock_runtime_snapshot_json(runtime, 20000, &json));
    CHECK_HAS(json, "\"holder\":{\"state\":\"demand\",\"hop\":null,");
    penstock_free(json);
  }
  end_call(call);
  penstock_channel_release(channel);
  penstock_runtime_release(runtime);
  probe_wait_finalized(&upper);
  probe_wait_finalized(&lower);
}
