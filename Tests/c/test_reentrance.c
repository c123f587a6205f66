/* hop.h: re-entrance: functions that do not wait may be called from any callback. */
#include "hops.h"

typedef enum action {
  REMOVE_SELF,
  RELEASE_CHANNEL,
  CLOSE_CHANNEL,
  CANCEL,
  ADD,
  SET_PRIORITY,
  LIST,
  START_CALL,
  RELEASE_RUNTIME,
  ACTIONS
} action;
static const char *const action_names[] = {
    "remove self", "release channel", "close channel",  "cancel", "add", "set priority",
    "list",        "start a call",    "release runtime"};

typedef struct reentrance {
  action action;
  int32_t event;
  penstock_runtime *runtime;
  penstock_channel *channel; /* the action's own reference */
  penstock_interceptor_id id;
  penstock_call *call;
  atomic_int done;
  latch ended; /* signalled when the call that START_CALL made has ended */
} reentrance;

static void nothing(void *user_data) { (void)user_data; }

static void act(reentrance *what) {
  penstock_interceptor empty = PENSTOCK_INTERCEPTOR_INIT;
  penstock_interceptor_id id = 0;
  char *json = NULL;
  penstock_call *call = NULL;
  penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
  switch (what->action) {
  case REMOVE_SELF:
    OK(penstock_registration_remove(what->id, NULL));
    break;
  case RELEASE_CHANNEL:
    penstock_channel_release(what->channel);
    what->channel = NULL;
    break;
  case CLOSE_CHANNEL:
    OK(penstock_channel_close(what->channel));
    break;
  case CANCEL:
    OK(penstock_call_cancel(what->call, "from a callback"));
    break;
  case ADD:
    empty.finalizer = nothing;
    OK(penstock_channel_add_interceptor(what->channel, &empty, 0, &id, NULL));
    break;
  case SET_PRIORITY:
    OK(penstock_registration_set_priority(what->id, 100, NULL));
    break;
  case LIST:
    OK(penstock_channel_interceptors_json(what->channel, &json));
    penstock_free(json);
    break;
  case START_CALL:
    table.user_data = &what->ended;
    table.finalizer = signal_latch;
    if (OK(penstock_channel_call(what->channel, UNARY, PENSTOCK_KIND_UNARY, NULL, &table, &call, NULL))) {
      penstock_call_try_send(call, "x", 1);
      penstock_call_half_close(call);
      penstock_call_release(call);
    }
    break;
  case RELEASE_RUNTIME:
    penstock_runtime_release(what->runtime);
    what->runtime = NULL;
    break;
  case ACTIONS:
    break;
  }
}

/* In every callback a function that waits gives E_WOULD_DEADLOCK, or E_STATE if the call is in callback style; a poll
 * gives E_BUSY, or E_STATE if the runtime has its own thread. */
static void waiting_is_refused(reentrance *what) {
  penstock_reply *reply = NULL;
  penstock_message *message = NULL;
  const penstock_metadata *headers = NULL;
  penstock_runtime *runtime = what->runtime;
  if (what->channel && what->action != CLOSE_CHANNEL) {
    CHECK_RESULT(penstock_channel_unary(what->channel, UNARY, "x", 1, NULL, &reply, NULL), PENSTOCK_E_WOULD_DEADLOCK);
  }
  if (what->call && what->action != CANCEL && what->action != CLOSE_CHANNEL) {
    penstock_result result = penstock_call_receive(what->call, &message);
    CHECK(result == PENSTOCK_E_WOULD_DEADLOCK || result == PENSTOCK_E_STATE);
    result = penstock_call_wait_headers(what->call, &headers);
    CHECK(result == PENSTOCK_E_WOULD_DEADLOCK || result == PENSTOCK_E_STATE || result == PENSTOCK_OK);
    result = penstock_call_wait_status(what->call, &reply);
    CHECK(result == PENSTOCK_E_WOULD_DEADLOCK || result == PENSTOCK_E_STATE);
    result = penstock_call_wait_status_for(what->call, 60000, &reply);
    CHECK(result == PENSTOCK_E_WOULD_DEADLOCK || result == PENSTOCK_E_STATE);
    result = penstock_call_wait_status_for(what->call, 0, &reply);
    CHECK(result == PENSTOCK_E_TIMEOUT || result == PENSTOCK_E_STATE);
    result = penstock_call_wait(what->call, &reply);
    CHECK(result == PENSTOCK_E_WOULD_DEADLOCK || result == PENSTOCK_E_STATE);
  }
  if (runtime) {
    CHECK_RESULT(penstock_runtime_shutdown(runtime, 0), PENSTOCK_E_WOULD_DEADLOCK);
    penstock_result result = penstock_runtime_poll(runtime, 0);
    CHECK(result == PENSTOCK_E_BUSY || result == PENSTOCK_E_STATE);
  }
}

static int32_t reenter(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop;
  reentrance *what = self->context;
  if (event == what->event && atomic_exchange(&what->done, 1) == 0) {
    waiting_is_refused(what);
    act(what);
  }
  return PENSTOCK_NEXT;
}

static void call_headers(penstock_call *call, const penstock_metadata *headers, void *user_data) {
  (void)call, (void)headers;
  reentrance *what = user_data;
  if (what->event == 100 && atomic_exchange(&what->done, 1) == 0) waiting_is_refused(what), act(what);
}
static void call_message(penstock_call *call, penstock_message *message, void *user_data) {
  (void)message;
  reentrance *what = user_data;
  if (what->event == 101 && atomic_exchange(&what->done, 1) == 0) waiting_is_refused(what), act(what);
  penstock_call_half_close(call);
}
static void call_sent(penstock_call *call, uint64_t count, void *user_data) {
  (void)call, (void)count;
  reentrance *what = user_data;
  if (what->event == 102 && atomic_exchange(&what->done, 1) == 0) waiting_is_refused(what), act(what);
}
static void call_reply(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call, (void)reply;
  reentrance *what = user_data;
  if (what->event == 103 && atomic_exchange(&what->done, 1) == 0) waiting_is_refused(what), act(what);
}
static latch call_finalized;
static void call_finalizer(void *user_data) {
  reentrance *what = user_data;
  if (what->event == 104 && atomic_exchange(&what->done, 1) == 0) act(what);
  latch_signal(&call_finalized);
}

static const char *place_name(int32_t event) {
  static const char *const names[] = {"call on_headers", "call on_message", "call on_sent", "call on_reply",
                                      "call finalizer"};
  return event >= 100 ? names[event - 100] : event_name(event);
}

static void reenter_from(int32_t event, action action, const char *runtime_options) {
  reentrance what = {.action = action, .event = event};
  latch empty = LATCH_INIT;
  what.ended = call_finalized = empty;
  penstock_runtime *runtime = new_runtime(runtime_options);
  what.runtime = penstock_runtime_retain(runtime);
  penstock_channel *channel = open_channel_on(runtime);
  what.channel = penstock_channel_retain(channel);
  probe above, probe, below;
  probe_init(&above, "above");
  probe_init(&probe, "reenter");
  probe_init(&below, "below");
  probe.hook = reenter;
  probe.context = &what;
  probe_add(&above, channel, 3);
  what.id = probe_add(&probe, channel, 2);
  probe_add(&below, channel, 1);

  penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
  table.user_data = &what;
  table.finalizer = call_finalizer;
  table.on_headers = call_headers;
  table.on_message = call_message;
  table.on_sent = call_sent;
  table.on_reply = call_reply;
  /* Callbacks may run before channel_call has returned, but only after `what.call` has been set. */
  if (!OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, &table, &what.call, NULL))) {
    printf("  %s from %s\n", action_names[action], place_name(event));
  }
  penstock_call *call = what.call;
  penstock_call_try_send(call, "x", 1);
  penstock_call_demand(call, 10);
  bool host = runtime_options != NULL;
  int64_t until = test_now_ms() + test_patience_ms();
  while (host && latch_count(&call_finalized) == 0 && test_now_ms() < until) penstock_runtime_poll(runtime, 100);
  if (!latch_wait(&call_finalized, 1)) printf("  %s from %s\n", action_names[action], place_name(event));
  if (event != PENSTOCK_EVENT_CANCEL && !CHECK_INT(atomic_load(&what.done), 1)) {
    printf("  never came to %s\n", place_name(event));
  }
  if (action == START_CALL && atomic_load(&what.done)) {
    while (host && latch_count(&what.ended) == 0 && test_now_ms() < until) penstock_runtime_poll(runtime, 100);
    latch_wait(&what.ended, 1);
  }
  penstock_call_release(call);
  penstock_channel_release(what.channel);
  penstock_channel_release(channel);
  penstock_runtime_release(what.runtime);
  penstock_result result = penstock_runtime_shutdown(runtime, 10000);
  CHECK(result == PENSTOCK_OK);
  penstock_runtime_release(runtime);
  probe_wait_finalized(&above);
  probe_wait_finalized(&probe);
  probe_wait_finalized(&below);
  /* Law 2: each hop that was created is destroyed once. */
  int created = atomic_load(&probe.seen[PENSTOCK_EVENT_CREATE]);
  CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_DESTROY]), created);
  CHECK_INT(latch_count(&call_finalized), 1);
}

static const int32_t places[] = {PENSTOCK_EVENT_CREATE,
                                 PENSTOCK_EVENT_DESTROY,
                                 PENSTOCK_EVENT_START,
                                 PENSTOCK_EVENT_SEND,
                                 PENSTOCK_EVENT_HALF_CLOSE,
                                 PENSTOCK_EVENT_HEADERS,
                                 PENSTOCK_EVENT_RECEIVE,
                                 PENSTOCK_EVENT_STATUS,
                                 PENSTOCK_EVENT_DEMAND,
                                 PENSTOCK_EVENT_SENT,
                                 100,
                                 101,
                                 102,
                                 103,
                                 104};

static void reenter_everywhere(action action) {
  for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
    reenter_from(places[i], action, NULL);
    reenter_from(places[i], action, "{\"mode\": \"host\"}");
  }
}

TEST(hop_reentrance_remove_self) { reenter_everywhere(REMOVE_SELF); }
TEST(hop_reentrance_release_channel) { reenter_everywhere(RELEASE_CHANNEL); }
TEST(hop_reentrance_close_channel) { reenter_everywhere(CLOSE_CHANNEL); }
TEST(hop_reentrance_cancel) { reenter_everywhere(CANCEL); }
TEST(hop_reentrance_add) { reenter_everywhere(ADD); }
TEST(hop_reentrance_set_priority) { reenter_everywhere(SET_PRIORITY); }
TEST(hop_reentrance_list) { reenter_everywhere(LIST); }
TEST(hop_reentrance_start_call) { reenter_everywhere(START_CALL); }
TEST(hop_reentrance_release_runtime) { reenter_everywhere(RELEASE_RUNTIME); }

/* If on_start closes the channel, the channel is closed before the answer is read, however fast it comes. */
static int32_t close_at_start(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop;
  if (event == PENSTOCK_EVENT_START) OK(penstock_channel_close(self->context));
  return PENSTOCK_NEXT;
}
TEST(hop_closes_the_channel_before_the_answer) {
  for (int round = 0; round < 100; round++) {
    penstock_channel *channel = open_channel();
    penstock_reply *reply = NULL;
    /* Connects the channel, so that the next call does not wait for a connection. */
    check_echo(channel);
    probe probe;
    probe_init_with(&probe, "closes", close_at_start, channel);
    probe_add(&probe, channel, 0);
    REQUIRE_OK(penstock_channel_unary(channel, UNARY, "x", 1, NULL, &reply, NULL));
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_CANCELLED);
    CHECK_STR(penstock_status_message(penstock_reply_status(reply), NULL), "channel closed");
    penstock_reply_release(reply);
    penstock_channel_release(channel);
    probe_wait_finalized(&probe);
  }
}

/* The state of a hop that removes its own interceptor, and releases its channel, in on_cancel. */
typedef struct on_cancel_state {
  penstock_channel *channel;
  penstock_interceptor_id id;
} on_cancel_state;
static int32_t remove_on_cancel(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop;
  on_cancel_state *state = self->context;
  if (event == PENSTOCK_EVENT_CANCEL) {
    OK(penstock_registration_remove(state->id, NULL));
    penstock_channel_release(state->channel);
  }
  return PENSTOCK_NEXT;
}
TEST(hop_reentrance_from_on_cancel) {
  penstock_channel *channel = open_channel();
  probe above, below;
  on_cancel_state state = {penstock_channel_retain(channel), 0};
  probe_init(&above, "above");
  probe_init(&below, "below");
  above.hook = end_on_receive;
  below.hook = remove_on_cancel;
  below.context = &state;
  probe_add(&above, channel, 1);
  state.id = probe_add(&below, channel, 0);
  run_bidi(channel, false);
  penstock_channel_release(channel);
  probe_wait_finalized(&below);
  probe_wait_finalized(&above);
  CHECK_INT(atomic_load(&below.seen[PENSTOCK_EVENT_CANCEL]), 1);
}

/* A finalizer that itself calls functions of the channel whose registration ends. */
static void finalize_by_calling(void *user_data) {
  penstock_channel *channel = user_data;
  char *json = NULL;
  OK(penstock_channel_interceptors_json(channel, &json));
  penstock_free(json);
  penstock_channel_release(channel);
}
TEST(hop_reentrance_from_a_finalizer) {
  penstock_channel *channel = open_channel();
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.user_data = penstock_channel_retain(channel);
  table.finalizer = finalize_by_calling;
  penstock_interceptor_id id;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  check_echo(channel);
  OK(penstock_registration_remove(id, NULL));
  penstock_channel_release(channel);
}
