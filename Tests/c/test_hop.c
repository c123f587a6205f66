/* hop.h: what each function gives in each callback, on other threads and after the end; re-entrance; tickets. */
#include "test.h"

#define IN(event)       (1u << PENSTOCK_EVENT_##event)
#define HAS(set, event) (((set) >> (event)) & 1u)
enum {
  EVERY = IN(START) | IN(SEND) | IN(HALF_CLOSE) | IN(HEADERS) | IN(RECEIVE) | IN(STATUS) | IN(CANCEL) | IN(DEMAND) |
          IN(SENT) | IN(CREATE) | IN(DESTROY),
  CALLBACKS = EVERY & ~(IN(CREATE) | IN(DESTROY)),
  PAUSABLE = IN(START) | IN(SEND) | IN(HALF_CLOSE) | IN(HEADERS) | IN(RECEIVE) | IN(STATUS),
};

/* A bidi call with one message each way; the caller cancels it in the end if `cancel`. */
static void run_bidi(penstock_channel *channel, bool cancel) {
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  if (!call) return;
  penstock_call_send(call, "x", 1);
  penstock_message *message = NULL;
  if (penstock_call_receive(call, &message) == PENSTOCK_OK) penstock_message_release(message);
  if (cancel) penstock_call_cancel(call, "enough");
  penstock_reply *reply = NULL;
  if (OK(penstock_call_finish(call, &reply))) penstock_reply_release(reply);
  penstock_call_release(call);
}

/* ---- What is allowed where ---- */

static penstock_result expect(int32_t event, uint32_t allowed) {
  return HAS(allowed, event) ? PENSTOCK_OK : PENSTOCK_E_STATE;
}

#define CHECK_IN(event, call, allowed)                                                                                 \
  do {                                                                                                                 \
    penstock_result result_ = (call);                                                                                  \
    /* In destroy the hop has ended for everything but its own handle. */                                              \
    if ((event) == PENSTOCK_EVENT_DESTROY && result_ == PENSTOCK_E_GONE) result_ = PENSTOCK_E_STATE;                   \
    if (!check_result(__FILE__, __LINE__, #call, result_, expect((event), (allowed)))) {                               \
      printf("  in %s\n", event_name(event));                                                                          \
    }                                                                                                                  \
  } while (0)
#define CHECK_EVENT(condition, event)                                                                                  \
  do {                                                                                                                 \
    if (!CHECK(condition)) printf("  in %s\n", event_name(event));                                                     \
  } while (0)

static int32_t look(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  const void *data = NULL;
  size_t length = 0;
  CHECK_EVENT((penstock_hop_metadata(hop) != NULL) ==
                  HAS(IN(CREATE) | IN(START) | IN(HEADERS) | IN(STATUS) | IN(CANCEL), event),
              event);
  CHECK_EVENT((penstock_hop_status(hop) != NULL) == HAS(IN(STATUS) | IN(CANCEL), event), event);
  CHECK_IN(event, penstock_hop_message(hop, &data, &length), IN(SEND) | IN(RECEIVE));
  CHECK_IN(event, penstock_hop_set_message(hop, "x", 1), IN(SEND) | IN(RECEIVE));
  CHECK_EVENT((penstock_hop_count(hop) > 0) == HAS(IN(DEMAND) | IN(SENT), event), event);
  CHECK_IN(event, penstock_hop_set_count(hop, penstock_hop_count(hop)), IN(DEMAND));
  CHECK_EVENT(penstock_hop_method(hop) != NULL, event);
  if (event != PENSTOCK_EVENT_DESTROY) CHECK_STR(penstock_hop_method(hop), BIDI);
  CHECK_IN(event, penstock_hop_set_method(hop, BIDI), IN(START));
  CHECK_IN(event, penstock_hop_set_authority(hop, "example.com"), IN(START));
  CHECK_EVENT(penstock_hop_deadline_ms(hop) >= -1, event);
  CHECK_IN(event, penstock_hop_set_deadline_ms(hop, 60000), IN(START));
  CHECK_EVENT((penstock_hop_ticket(hop) != 0) == HAS(PAUSABLE, event) ||
                  (event == PENSTOCK_EVENT_STATUS && penstock_hop_ticket(hop) == 0),
              event);
  if (HAS(PAUSABLE, event)) CHECK_EVENT(penstock_hop_ticket(hop) == penstock_hop_ticket(hop), event);
  /* In on_start it is open yet whether the verdict is TAKE. */
  CHECK_IN(event, penstock_hop_deliver_headers(hop, NULL), IN(START));
  penstock_status *status = NULL;
  OK(penstock_status_new(0, NULL, &status));
  CHECK_IN(event, penstock_hop_deliver_status(hop, status), IN(START));
  penstock_status_release(status);
  if (!HAS(CALLBACKS & ~IN(CANCEL), event)) CHECK_IN(event, penstock_hop_finish(hop, 0, NULL), 0);
  if (event == PENSTOCK_EVENT_CREATE || event == PENSTOCK_EVENT_DESTROY) {
    CHECK_IN(event, penstock_hop_send_message(hop, "x", 1), 0);
  }
  if (event != PENSTOCK_EVENT_DESTROY) {
    CHECK_IN(event, penstock_hop_set_value(hop, "k", (void *)1, NULL), EVERY);
    CHECK_EVENT(penstock_hop_get_value(hop, "k") == (void *)1, event);
  }
  penstock_metadata *metadata = penstock_hop_metadata(hop);
  if (metadata) {
    bool local = event == PENSTOCK_EVENT_STATUS && penstock_metadata_set(metadata, "x-a", "1") == PENSTOCK_E_STATE;
    if (!local) CHECK_IN(event, penstock_metadata_set(metadata, "x-a", "1"), IN(START) | IN(HEADERS) | IN(STATUS));
  }
  CHECK_EVENT(penstock_hop_call_id(hop) != 0, event);
  CHECK_INT(penstock_hop_kind(hop), PENSTOCK_KIND_BIDI);
  CHECK_STR(penstock_hop_target(hop), peer_address());
  return PENSTOCK_NEXT;
}

TEST(hop_functions_in_every_callback) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init(&probe, "look");
  probe.hook = look;
  probe_add(&probe, channel, 0);
  run_bidi(channel, false);
  run_bidi(channel, true);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
  for (int32_t event = 1; event < 12; event++) {
    if (event != PENSTOCK_EVENT_CANCEL) CHECK_EVENT(atomic_load(&probe.seen[event]) > 0, event);
  }
}

/* on_cancel: a hop above has ended the call. */
static int32_t finish_on_headers(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_RECEIVE) OK(penstock_hop_finish(hop, PENSTOCK_STATUS_ABORTED, "stop"));
  return PENSTOCK_NEXT;
}
static int32_t look_at_cancel(probe *self, penstock_hop *hop, int32_t event) {
  if (event != PENSTOCK_EVENT_CANCEL) return PENSTOCK_NEXT;
  look(self, hop, event);
  CHECK_INT(penstock_status_code(penstock_hop_status(hop)), PENSTOCK_STATUS_ABORTED);
  CHECK_RESULT(penstock_status_set_code(penstock_hop_status(hop), 0), PENSTOCK_E_STATE);
  return PENSTOCK_NEXT;
}
TEST(hop_functions_in_on_cancel) {
  penstock_channel *channel = open_channel();
  probe above, below;
  probe_init(&above, "above");
  probe_init(&below, "below");
  above.hook = finish_on_headers;
  below.hook = look_at_cancel;
  probe_add(&above, channel, 1);
  probe_add(&below, channel, 0);
  run_bidi(channel, false);
  penstock_channel_release(channel);
  probe_wait_finalized(&above);
  probe_wait_finalized(&below);
  CHECK_INT(atomic_load(&below.seen[PENSTOCK_EVENT_CANCEL]), 1);
}

/* ---- Another thread, and after the end ---- */

static void everything_gives(penstock_hop *hop, penstock_result expected) {
  const void *data = NULL;
  size_t length = 0;
  penstock_status *status = NULL;
  OK(penstock_status_new(0, NULL, &status));
  CHECK(penstock_hop_metadata(hop) == NULL);
  CHECK(penstock_hop_status(hop) == NULL);
  CHECK_INT(penstock_hop_count(hop), 0);
  CHECK_INT(penstock_hop_event(hop), PENSTOCK_EVENT_NONE);
  CHECK_INT(penstock_hop_ticket(hop), 0);
  CHECK_RESULT(penstock_hop_message(hop, &data, &length), expected);
  CHECK_RESULT(penstock_hop_set_message(hop, "x", 1), expected);
  CHECK_RESULT(penstock_hop_set_count(hop, 1), expected);
  CHECK_RESULT(penstock_hop_set_method(hop, "/a/b"), expected);
  CHECK_RESULT(penstock_hop_set_authority(hop, "x"), expected);
  CHECK_RESULT(penstock_hop_set_deadline_ms(hop, 1), expected);
  CHECK_RESULT(penstock_hop_finish(hop, 0, NULL), expected);
  CHECK_RESULT(penstock_hop_finish_with(hop, status), expected);
  CHECK_RESULT(penstock_hop_send_message(hop, "x", 1), expected);
  /* Whoever has retained the hop may inject, if there is demand. */
  if (expected != PENSTOCK_E_STATE) CHECK_RESULT(penstock_hop_deliver_message(hop, "x", 1), expected);
  CHECK_RESULT(penstock_hop_deliver_headers(hop, NULL), expected);
  CHECK_RESULT(penstock_hop_deliver_status(hop, status), expected);
  atomic_int finalized = 0;
  CHECK_RESULT(penstock_hop_set_value(hop, "k", &finalized, count_up), expected);
  CHECK_INT(atomic_load(&finalized), 1);
  CHECK(penstock_hop_get_value(hop, "k") == NULL);
  /* Any thread. */
  CHECK(penstock_hop_call_id(hop) != 0);
  CHECK_INT(penstock_hop_kind(hop), PENSTOCK_KIND_BIDI);
  CHECK_STR(penstock_hop_target(hop), peer_address());
  penstock_status_release(status);
}

static void *use_elsewhere(void *hop) {
  everything_gives(hop, PENSTOCK_E_STATE);
  return NULL;
}

typedef struct keeper {
  penstock_hop *hop;
  int used;
} keeper;

static int32_t keep_and_use_elsewhere(probe *self, penstock_hop *hop, int32_t event) {
  keeper *keeper = self->context;
  if (event == PENSTOCK_EVENT_START) keeper->hop = penstock_hop_retain(hop);
  if (HAS(PAUSABLE & ~IN(START), event)) {
    pthread_t thread;
    pthread_create(&thread, NULL, use_elsewhere, hop);
    pthread_join(thread, NULL);
    keeper->used++;
  }
  return PENSTOCK_NEXT;
}

TEST(hop_on_other_threads_and_after_the_end) {
  penstock_channel *channel = open_channel();
  probe probe;
  keeper keeper = {NULL, 0};
  probe_init(&probe, "keep");
  probe.hook = keep_and_use_elsewhere;
  probe.context = &keeper;
  probe_add(&probe, channel, 0);
  run_bidi(channel, false);
  CHECK_INT(keeper.used, 5);
  latch_wait(&probe.done, 1);
  everything_gives(keeper.hop, PENSTOCK_E_GONE);
  CHECK_RESULT(penstock_hop_demand(keeper.hop, 1), PENSTOCK_E_GONE);
  penstock_channel_release(channel);
  everything_gives(keeper.hop, PENSTOCK_E_GONE);
  /* A hop that is kept does not keep the interceptor. */
  probe_wait_finalized(&probe);
  everything_gives(keeper.hop, PENSTOCK_E_GONE);
  penstock_hop_release(keeper.hop);
}

/* ---- The start ---- */

static int32_t rewrite_start(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  static const char *const wrong[] = {"", "/", "a", "/a", "/a/", "//b", "/a b/c"};
  for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
    if (!CHECK_RESULT(penstock_hop_set_method(hop, wrong[i]), PENSTOCK_E_INVALID_ARGUMENT))
      printf("  \"%s\"\n", wrong[i]);
  }
  CHECK_STR(penstock_hop_method(hop), "/no.Such/Thing");
  OK(penstock_hop_set_method(hop, UNARY));
  CHECK_STR(penstock_hop_method(hop), UNARY);
  OK(penstock_hop_set_authority(hop, "other.example:99"));
  CHECK_STR(penstock_hop_authority(hop), "other.example:99");
  CHECK_RESULT(penstock_hop_set_authority(hop, "a\nb"), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_INT(penstock_hop_deadline_ms(hop), -1);
  OK(penstock_hop_set_deadline_ms(hop, 50000));
  int64_t left = penstock_hop_deadline_ms(hop);
  CHECK(left > 20000 && left <= 50000);
  CHECK_RESULT(penstock_hop_set_deadline_ms(hop, -2), PENSTOCK_E_INVALID_ARGUMENT);
  /* Law 5. */
  CHECK_RESULT(penstock_metadata_set(penstock_hop_metadata(hop), "grpc-timeout", "1S"), PENSTOCK_E_INVALID_ARGUMENT);
  OK(penstock_metadata_set_json(penstock_hop_metadata(hop), "{\"x-b-bin\": \"AAE\"}", NULL));
  return PENSTOCK_NEXT;
}
TEST(hop_rewrites_the_start) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init(&probe, "rewrite");
  probe.hook = rewrite_start;
  probe_add(&probe, channel, 0);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, "/no.Such/Thing", "x", 1, NULL, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), 0);
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

static int32_t shorten_deadline(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_START) OK(penstock_hop_set_deadline_ms(hop, 30));
  return PENSTOCK_NEXT;
}
TEST(hop_shortens_the_deadline) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init(&probe, "deadline");
  probe.hook = shorten_deadline;
  probe_add(&probe, channel, 0);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  penstock_message *message = NULL;
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_call_finish(call, &reply));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* ---- Re-entrance: anything that does not wait, from any callback ---- */

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
  penstock_call *_Atomic call;
  atomic_int done;
  latch ended; /* the call that START_CALL made */
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
    OK(penstock_channel_remove_interceptor(what->channel, what->id, NULL));
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
    OK(penstock_channel_set_interceptor_priority(what->channel, what->id, 100, NULL));
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

/* What waits gives E_WOULD_DEADLOCK, a poll E_BUSY, in every callback. */
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
    result = penstock_call_finish(what->call, &reply);
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
  penstock_call *call = NULL;
  /* These may come before channel_call has returned: there is no handle to cancel yet. */
  if (event == PENSTOCK_EVENT_CREATE || event == PENSTOCK_EVENT_START || event == PENSTOCK_EVENT_DEMAND) {
    if (action == CANCEL) what.action = LIST;
  }
  if (!OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, &table, &call, NULL))) {
    printf("  %s from %s\n", action_names[action], place_name(event));
  }
  what.call = call;
  penstock_call_try_send(call, "x", 1);
  penstock_call_demand(call, 10);
  bool host = runtime_options != NULL;
  int64_t until = test_now_ms() + 20000 * test_slow();
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
  /* Law 2. */
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

/* From on_cancel. */
typedef struct on_cancel_state {
  penstock_channel *channel;
  penstock_interceptor_id id;
} on_cancel_state;
static int32_t remove_on_cancel(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop;
  on_cancel_state *state = self->context;
  if (event == PENSTOCK_EVENT_CANCEL) {
    OK(penstock_channel_remove_interceptor(state->channel, state->id, NULL));
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
  above.hook = finish_on_headers;
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

/* From a finalizer: the registration that ends is its own. */
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
  OK(penstock_channel_remove_interceptor(channel, id, NULL));
  penstock_channel_release(channel);
}

/* ---- Tickets ---- */

typedef struct pause_at {
  int32_t event;
  int32_t verdict; /* PAUSE or HOLD */
  penstock_ticket ticket;
  latch paused;
  int early; /* resolve it in the callback */
} pause_at;

static int32_t pause_here(probe *self, penstock_hop *hop, int32_t event) {
  pause_at *state = self->context;
  if (event != state->event || state->ticket) return PENSTOCK_NEXT;
  state->ticket = penstock_hop_ticket(hop);
  CHECK(state->ticket != 0);
  CHECK(penstock_hop_ticket(hop) == state->ticket);
  if (state->early) {
    OK(penstock_ticket_resume(state->ticket));
    CHECK_RESULT(penstock_ticket_resume(state->ticket), PENSTOCK_E_ALREADY);
  }
  latch_signal(&state->paused);
  return state->verdict;
}

static void *resume_elsewhere(void *pointer) {
  pause_at *state = pointer;
  latch_wait(&state->paused, 1);
  if (!state->early) OK(penstock_ticket_resolve(state->ticket, PENSTOCK_NEXT));
  penstock_result again = penstock_ticket_resume(state->ticket);
  CHECK(again == PENSTOCK_E_ALREADY || again == PENSTOCK_E_GONE);
  return NULL;
}

static const int32_t pausable[] = {PENSTOCK_EVENT_START,   PENSTOCK_EVENT_SEND,    PENSTOCK_EVENT_HALF_CLOSE,
                                   PENSTOCK_EVENT_HEADERS, PENSTOCK_EVENT_RECEIVE, PENSTOCK_EVENT_STATUS};

static void resume_everywhere(int early) {
  for (size_t i = 0; i < 6; i++) {
    for (int32_t verdict = PENSTOCK_PAUSE; verdict <= PENSTOCK_HOLD; verdict++) {
      penstock_channel *channel = open_channel();
      pause_at state = {pausable[i], verdict, 0, LATCH_INIT, early};
      probe probe;
      probe_init(&probe, "pause");
      probe.hook = pause_here;
      probe.context = &state;
      probe_add(&probe, channel, 0);
      pthread_t thread;
      pthread_create(&thread, NULL, resume_elsewhere, &state);
      check_echo(channel);
      pthread_join(thread, NULL);
      penstock_channel_release(channel);
      probe_wait_finalized(&probe);
      /* Late: the call has ended. */
      penstock_result result = penstock_ticket_resume(state.ticket);
      if (!CHECK(result == PENSTOCK_E_ALREADY || result == PENSTOCK_E_GONE))
        printf("  in %s\n", event_name(pausable[i]));
    }
  }
}

TEST(ticket_resumed_from_another_thread) { resume_everywhere(0); }
TEST(ticket_resolved_before_the_callback_returns) { resume_everywhere(1); }

static int32_t next_with_ticket(probe *self, penstock_hop *hop, int32_t event) {
  pause_at *state = self->context;
  if (event == state->event) state->ticket = penstock_hop_ticket(hop);
  return PENSTOCK_NEXT;
}
TEST(ticket_is_spent_by_next) {
  penstock_channel *channel = open_channel();
  pause_at state = {PENSTOCK_EVENT_START, 0, 0, LATCH_INIT, 0};
  probe probe;
  probe_init(&probe, "next");
  probe.hook = next_with_ticket;
  probe.context = &state;
  probe_add(&probe, channel, 0);
  check_echo(channel);
  CHECK(state.ticket != 0);
  penstock_result result = penstock_ticket_resume(state.ticket);
  CHECK(result == PENSTOCK_E_ALREADY || result == PENSTOCK_E_GONE);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

TEST(ticket_of_a_cancelled_call_is_gone) {
  for (size_t i = 0; i < 6; i++) {
    penstock_channel *channel = open_channel();
    pause_at state = {pausable[i], PENSTOCK_PAUSE, 0, LATCH_INIT, 0};
    probe probe;
    probe_init(&probe, "pause");
    probe.hook = pause_here;
    probe.context = &state;
    probe_add(&probe, channel, 0);
    latch finalized = LATCH_INIT;
    penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
    table.user_data = &finalized;
    table.finalizer = signal_latch;
    penstock_call *call = NULL;
    REQUIRE_OK(penstock_channel_call(channel, UNARY, PENSTOCK_KIND_UNARY, NULL, &table, &call, NULL));
    penstock_call_try_send(call, "x", 1);
    penstock_call_half_close(call);
    latch_wait(&state.paused, 1);
    penstock_event *event = NULL;
    OK(penstock_ticket_event(state.ticket, &event));
    CHECK_INT(penstock_event_kind(event), pausable[i]);
    OK(penstock_call_cancel(call, "no more"));
    latch_wait(&finalized, 1);
    CHECK_RESULT(penstock_ticket_resume(state.ticket), PENSTOCK_E_GONE);
    CHECK_RESULT(penstock_ticket_finish(state.ticket, 0, NULL), PENSTOCK_E_GONE);
    CHECK_RESULT(penstock_ticket_resume_after(state.ticket, 0), PENSTOCK_E_GONE);
    penstock_event *late = NULL;
    CHECK_RESULT(penstock_ticket_event(state.ticket, &late), PENSTOCK_E_GONE);
    /* The event outlives the call under its holder. */
    CHECK(penstock_event_retain(event) == event);
    penstock_event_release(event);
    CHECK_INT(penstock_event_kind(event), pausable[i]);
    if (pausable[i] == PENSTOCK_EVENT_SEND) {
      const void *data = NULL;
      size_t length = 0;
      OK(penstock_event_message(event, &data, &length));
      CHECK(length == 1 && memcmp(data, "x", 1) == 0);
      CHECK_RESULT(penstock_event_set_message(event, "y", 1), PENSTOCK_E_GONE);
    }
    penstock_event_release(event);
    penstock_call_release(call);
    penstock_channel_release(channel);
    probe_wait_finalized(&probe);
    CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_STATUS]) + atomic_load(&probe.seen[PENSTOCK_EVENT_CANCEL]) >= 1,
              1);
    CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_DESTROY]), 1);
  }
}

TEST(ticket_wrong_verdicts_leave_it) {
  static const struct {
    int32_t event, wrong[6];
  } cases[] = {
      {PENSTOCK_EVENT_START, {PENSTOCK_PAUSE, PENSTOCK_HOLD, PENSTOCK_DROP, PENSTOCK_SKIP, PENSTOCK_RESTART, 77}},
      {PENSTOCK_EVENT_SEND, {PENSTOCK_PAUSE, PENSTOCK_HOLD, PENSTOCK_TAKE, PENSTOCK_SKIP, PENSTOCK_RESTART, -1}},
      {PENSTOCK_EVENT_HEADERS,
       {PENSTOCK_PAUSE, PENSTOCK_HOLD, PENSTOCK_DROP, PENSTOCK_TAKE, PENSTOCK_RESTART, INT32_MAX}},
      {PENSTOCK_EVENT_STATUS, {PENSTOCK_PAUSE, PENSTOCK_HOLD, PENSTOCK_DROP, PENSTOCK_TAKE, PENSTOCK_SKIP, INT32_MIN}},
  };
  for (size_t i = 0; i < 4; i++) {
    penstock_channel *channel = open_channel();
    pause_at state = {cases[i].event, PENSTOCK_PAUSE, 0, LATCH_INIT, 0};
    probe probe;
    probe_init(&probe, "pause");
    probe.hook = pause_here;
    probe.context = &state;
    probe_add(&probe, channel, 0);
    latch finalized = LATCH_INIT;
    penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
    table.user_data = &finalized;
    table.finalizer = signal_latch;
    penstock_call *call = NULL;
    REQUIRE_OK(penstock_channel_call(channel, UNARY, PENSTOCK_KIND_UNARY, NULL, &table, &call, NULL));
    penstock_call_try_send(call, "x", 1);
    penstock_call_half_close(call);
    latch_wait(&state.paused, 1);
    for (size_t k = 0; k < 6; k++) {
      CHECK_RESULT(penstock_ticket_resolve(state.ticket, cases[i].wrong[k]), PENSTOCK_E_INVALID_ARGUMENT);
    }
    CHECK_INT(latch_count(&finalized), 0);
    OK(penstock_ticket_resolve(state.ticket, PENSTOCK_NEXT));
    latch_wait(&finalized, 1);
    penstock_reply *reply = NULL;
    if (OK(penstock_call_reply(call, &reply))) CHECK_INT(penstock_reply_code(reply), 0);
    penstock_reply_release(reply);
    penstock_call_release(call);
    penstock_channel_release(channel);
    probe_wait_finalized(&probe);
  }
}

TEST(ticket_numbers_that_never_were) {
  static const penstock_ticket wrong[] = {0, 1, 12345, UINT64_MAX, UINT64_MAX / 2};
  for (size_t i = 0; i < 5; i++) {
    penstock_event *event = NULL;
    penstock_status *status = NULL;
    OK(penstock_status_new(0, NULL, &status));
    CHECK(penstock_ticket_resume(wrong[i]) != PENSTOCK_OK);
    CHECK(penstock_ticket_drop(wrong[i]) != PENSTOCK_OK);
    CHECK(penstock_ticket_resolve(wrong[i], PENSTOCK_NEXT) != PENSTOCK_OK);
    CHECK(penstock_ticket_finish(wrong[i], 0, NULL) != PENSTOCK_OK);
    CHECK(penstock_ticket_finish_with(wrong[i], status) != PENSTOCK_OK);
    CHECK(penstock_ticket_resume_after(wrong[i], 1) != PENSTOCK_OK);
    CHECK(penstock_ticket_event(wrong[i], &event) != PENSTOCK_OK);
    CHECK(event == NULL);
    penstock_status_release(status);
  }
}

static int32_t pause_for_a_moment(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (!HAS(PAUSABLE, event)) return PENSTOCK_NEXT;
  penstock_ticket ticket = penstock_hop_ticket(hop);
  if (ticket == 0) return PENSTOCK_NEXT;
  OK(penstock_ticket_resume_after(ticket, 5));
  return PENSTOCK_PAUSE;
}
TEST(ticket_resume_after) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init(&probe, "moment");
  probe.hook = pause_for_a_moment;
  probe_add(&probe, channel, 0);
  int64_t started = test_now_ms();
  check_echo(channel);
  CHECK(test_now_ms() - started >= 25);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

TEST(ticket_finish_and_deadline_while_paused) {
  penstock_channel *channel = open_channel();
  pause_at state = {PENSTOCK_EVENT_START, PENSTOCK_PAUSE, 0, LATCH_INIT, 0};
  probe above, probe;
  probe_init(&above, "above");
  probe_init(&probe, "pause");
  probe.hook = pause_here;
  probe.context = &state;
  probe_add(&above, channel, 1);
  probe_add(&probe, channel, 0);
  penstock_call_options *options = NULL;
  REQUIRE_OK(penstock_call_options_new("{\"deadline_ms\": 40}", &options, NULL));
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  penstock_reply_release(reply);
  CHECK_RESULT(penstock_ticket_resume(state.ticket), PENSTOCK_E_GONE);

  latch empty = LATCH_INIT;
  state.paused = empty;
  state.ticket = 0;
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  latch_wait(&state.paused, 1);
  penstock_status *status = NULL;
  OK(penstock_status_new(PENSTOCK_STATUS_ALREADY_EXISTS, "once", &status));
  OK(penstock_status_add_detail(status, "t/acme.X", "abc", 3));
  OK(penstock_metadata_set(penstock_status_trailers(status), "x-t", "1"));
  OK(penstock_ticket_finish_with(state.ticket, status));
  penstock_result again = penstock_ticket_finish_with(state.ticket, status);
  CHECK(again == PENSTOCK_E_ALREADY || again == PENSTOCK_E_GONE);
  penstock_status_release(status);
  REQUIRE_OK(penstock_call_finish(call, &reply));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_ALREADY_EXISTS);
  const void *value = NULL;
  size_t length = 0;
  OK(penstock_status_detail_find(penstock_reply_status(reply), "acme.X", &value, &length));
  CHECK_INT(length, 3);
  OK(penstock_metadata_get(penstock_reply_trailers(reply), "x-t", 0, &value, NULL));
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
  probe_wait_finalized(&above);
  CHECK_INT(atomic_load(&above.seen[PENSTOCK_EVENT_STATUS]), 2);
}

/* Several held at once, resolved in any order: they leave in order. */
typedef struct held {
  penstock_ticket tickets[4];
  atomic_int count;
} held;
static int32_t hold_each_send(probe *self, penstock_hop *hop, int32_t event) {
  if (event != PENSTOCK_EVENT_SEND) return PENSTOCK_NEXT;
  held *held = self->context;
  held->tickets[atomic_load(&held->count)] = penstock_hop_ticket(hop);
  atomic_fetch_add(&held->count, 1);
  return PENSTOCK_HOLD;
}
TEST(ticket_several_at_once) {
  penstock_channel *channel = open_channel();
  held held = {{0}, 0};
  probe probe;
  probe_init(&probe, "hold");
  probe.hook = hold_each_send;
  probe.context = &held;
  probe_add(&probe, channel, 0);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  for (const char *c = "abcd"; *c; c++) OK(penstock_call_send(call, c, 1));
  EVENTUALLY(atomic_load(&held.count) == 4);
  penstock_event *event = NULL;
  OK(penstock_ticket_event(held.tickets[2], &event));
  OK(penstock_event_set_message(event, "C", 1));
  penstock_event_release(event);
  OK(penstock_ticket_resume(held.tickets[3]));
  OK(penstock_ticket_drop(held.tickets[1]));
  OK(penstock_ticket_resume(held.tickets[2]));
  CHECK_RESULT(penstock_ticket_resume(held.tickets[2]), PENSTOCK_E_ALREADY);
  OK(penstock_ticket_resume(held.tickets[0]));
  OK(penstock_call_half_close(call));
  char got[8] = "";
  penstock_message *message = NULL;
  while (penstock_call_receive(call, &message) == PENSTOCK_OK) {
    strncat(got, penstock_message_data(message), 1);
    penstock_message_release(message);
  }
  CHECK_STR(got, "aCd");
  penstock_reply *reply = NULL;
  if (OK(penstock_call_finish(call, &reply))) penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* The event of a paused start: metadata can be edited elsewhere until the ticket is spent. */
TEST(ticket_event_is_edited_elsewhere) {
  penstock_channel *channel = open_channel();
  pause_at state = {PENSTOCK_EVENT_STATUS, PENSTOCK_PAUSE, 0, LATCH_INIT, 0};
  probe probe;
  probe_init(&probe, "pause");
  probe.hook = pause_here;
  probe.context = &state;
  probe_add(&probe, channel, 0);
  latch finalized = LATCH_INIT;
  penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
  table.user_data = &finalized;
  table.finalizer = signal_latch;
  penstock_call *call = NULL;
  REQUIRE_OK(penstock_channel_call(channel, UNARY, PENSTOCK_KIND_UNARY, NULL, &table, &call, NULL));
  penstock_call_try_send(call, "x", 1);
  penstock_call_half_close(call);
  latch_wait(&state.paused, 1);
  penstock_event *event = NULL;
  REQUIRE_OK(penstock_ticket_event(state.ticket, &event));
  penstock_status *status = penstock_event_status(event);
  REQUIRE(status != NULL);
  OK(penstock_status_set_code(status, PENSTOCK_STATUS_DATA_LOSS));
  OK(penstock_metadata_set(penstock_event_metadata(event), "x-edited", "1"));
  const void *data = NULL;
  size_t length = 0;
  CHECK_RESULT(penstock_event_message(event, &data, &length), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_event_set_message(event, "x", 1), PENSTOCK_E_STATE);
  OK(penstock_ticket_resume(state.ticket));
  latch_wait(&finalized, 1);
  penstock_event_release(event);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_call_reply(call, &reply));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_DATA_LOSS);
  OK(penstock_metadata_get(penstock_reply_trailers(reply), "x-edited", 0, &data, NULL));
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}
