/* runtime.h, "loops": the channels of a runtime are spread over several loops. */
#include "loops.h"
#include "syncer.h"

TEST(loops_option) {
  static const char *const right[] = {"{\"loops\": 1}", "{\"loops\": 64}", "{\"loops\": 1, \"mode\": \"host\"}",
                                      "{\"loops\": 2, \"mode\": \"thread\", \"caller_drives\": false}"};
  for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++) penstock_runtime_release(new_runtime(right[i]));
  static const struct {
    const char *json, *part;
  } wrong[] = {{"{\"loops\": 0}", "expected an integer from 1 to 64, got 0"},
               {"{\"loops\": 65}", "expected an integer from 1 to 64, got 65"},
               {"{\"loops\": \"2\"}", "expected an integer from 1 to 64, got a string"},
               {"{\"loops\": 2, \"mode\": \"host\"}", "a host polls one loop only"},
               {"{\"mode\": \"host\", \"loops\": 64}", "a host polls one loop only"}};
  for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
    penstock_runtime *runtime = NULL;
    penstock_error *error = NULL;
    CHECK_RESULT(penstock_runtime_new(wrong[i].json, &runtime, &error), PENSTOCK_E_INVALID_JSON);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, "$.loops", wrong[i].part);
    CHECK(runtime == NULL);
  }
}

/* ---- The loop on which a channel is put ---- */

typedef struct way {
  penstock_channel *to;
  penstock_result result;
  char why[128];
} way;

static int32_t send_there(probe *self, penstock_hop *hop, int32_t event) {
  way *way = self->context;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  way->result = penstock_request_set_channel(penstock_hop_request(hop), way->to);
  snprintf(way->why, sizeof(way->why), "%s", penstock_hop_why(hop));
  return PENSTOCK_NEXT;
}

/* A call can be redirected to a channel of its own loop, and to no other. */
static bool on_one_loop(penstock_channel *one, penstock_channel *other) {
  way way = {.to = other};
  probe sender;
  probe_init_with(&sender, "sender", send_there, &way);
  penstock_interceptor_id id = probe_add(&sender, one, 0);
  check_echo(one);
  OK(penstock_registration_remove(id, NULL));
  probe_wait_finalized(&sender);
  if (way.result == PENSTOCK_OK) return true;
  CHECK_RESULT(way.result, PENSTOCK_E_STATE);
  CHECK_HAS(way.why, "another loop of the runtime");
  return false;
}

/* Makes a channel, and keeps it if it is neither on the loop of the first channel nor on that of the third. */
static bool next_is_apart(penstock_runtime *runtime, penstock_channel *const *channels, penstock_channel **next) {
  *next = open_channel_on(runtime);
  if (!on_one_loop(*next, channels[0]) && !on_one_loop(*next, channels[2])) return true;
  penstock_channel_close(*next);
  penstock_channel_release(*next);
  return false;
}

TEST(loops_have_channels_in_equal_numbers) {
  penstock_runtime *runtime = three_loops();
  penstock_channel *channels[CHANNELS];
  for (int i = 0; i < CHANNELS; i++) channels[i] = open_channel_on(runtime);
  for (int i = 0; i < CHANNELS; i++) {
    for (int j = 0; j < CHANNELS; j++) CHECK_INT(on_one_loop(channels[i], channels[j]), i % LOOPS == j % LOOPS);
  }
  /* The next channels are put on the loop that has lost two channels: one was closed, and one only released. A released
   * channel ends when its last call is freed. */
  penstock_channel_close(channels[1]);
  penstock_channel_close(channels[1]);
  penstock_channel_release(channels[4]);
  penstock_channel *next[2] = {NULL, NULL};
  for (int i = 0; i < 2; i++) EVENTUALLY(next_is_apart(runtime, channels, &next[i]));
  CHECK(on_one_loop(next[0], next[1]));
  channels[4] = next[0];
  /* A channel that could not be made does not count for any loop. */
  penstock_channel *none = NULL;
  CHECK_RESULT(penstock_channel_new_on(runtime, "x", "{\"tls\": {\"roots_pem\": \"x\"}}", &none, NULL),
               PENSTOCK_E_INVALID_JSON);
  for (int i = 0; i < 2; i++) {
    penstock_channel *last = open_channel_on(runtime);
    CHECK_INT(on_one_loop(last, channels[0]), i == 0);
    penstock_channel_close(next[1]);
    penstock_channel_release(next[1]);
    next[1] = last;
  }
  penstock_channel_release(next[1]);
  for (int i = 0; i < CHANNELS; i++) penstock_channel_release(channels[i]);
  penstock_runtime_release(runtime);
}

/* ---- Calls from many threads ---- */

static void many_threads(const char *options) {
  crowd crowd;
  crowd_open(&crowd, options);
  probe all;
  probe_init(&all, "all");
  penstock_interceptor_id id = probe_add_to_runtime(&all, crowd.runtime, 0);
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, keep_calling, &crowd);
  EVENTUALLY(atomic_load(&crowd.calls) >= test_rounds(2000));
  atomic_store(&crowd.over, true);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  /* The interceptor of the runtime has seen each call, whatever its loop. */
  int count = atomic_load(&crowd.calls) + atomic_load(&crowd.others);
  CHECK_INT(atomic_load(&all.seen[PENSTOCK_EVENT_START]), count);
  CHECK_INT(atomic_load(&all.seen[PENSTOCK_EVENT_STATUS]), count);
  char *json = NULL;
  OK(penstock_registration_remove(id, NULL));
  OK(penstock_registration_wait_removed(id, 20000));
  CHECK_INT(atomic_load(&all.finalized), 1);
  OK(penstock_runtime_snapshot_json(crowd.runtime, 20000, &json));
  CHECK_HAS(json, "{\"complete\":true,\"running\":null,\"calls\":[],\"channels\":[{\"target\":");
  penstock_free(json);
  crowd_close(&crowd);
}
TEST(loops_serve_many_threads) { many_threads("{\"loops\": 3}"); }
TEST(loops_serve_many_threads_that_do_not_drive) { many_threads("{\"loops\": 3, \"caller_drives\": false}"); }
TEST(loops_serve_many_threads_that_spin) { many_threads("{\"loops\": 2, \"spin_us\": 20, \"linger_us\": 0}"); }
TEST(loops_one_each) { many_threads("{\"loops\": 64}"); }

/* An interceptor comes and goes while calls run on all loops: each time it is finalized once, after its last
 * callback. */
TEST(loops_let_go_of_removed_interceptors) {
  crowd crowd;
  crowd_open(&crowd, "{\"loops\": 3}");
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, keep_calling, &crowd);
  for (int i = 0; i < test_rounds(100); i++) {
    probe passing;
    probe_init(&passing, "passing");
    penstock_interceptor_id id = probe_add_to_runtime(&passing, crowd.runtime, 0);
    int wanted = 1 + (int)test_random(20);
    EVENTUALLY(atomic_load(&passing.seen[PENSTOCK_EVENT_START]) >= wanted);
    OK(penstock_registration_remove(id, NULL));
    OK(penstock_registration_wait_removed(id, 20000));
    CHECK_INT(atomic_load(&passing.finalized), 1);
    CHECK_INT(atomic_load(&passing.seen[PENSTOCK_EVENT_START]), atomic_load(&passing.seen[PENSTOCK_EVENT_DESTROY]));
  }
  atomic_store(&crowd.over, true);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  crowd_close(&crowd);
}

/* ---- In callbacks ---- */

typedef struct meeting {
  penstock_runtime *runtime;
  penstock_channel *other;
  penstock_call *waiting;
  latch here;
  atomic_int tried;
} meeting;

/* Returns when a callback of each loop has come here. */
static int32_t meet(probe *self, penstock_hop *hop, int32_t event) {
  meeting *meeting = self->context;
  (void)hop;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  latch_signal(&meeting->here);
  latch_wait(&meeting->here, LOOPS);
  return PENSTOCK_NEXT;
}

TEST(loops_run_callbacks_at_the_same_time) {
  crowd crowd;
  crowd_open(&crowd, "{\"loops\": 3}");
  meeting meeting = {.here = LATCH_INIT};
  probe all;
  probe_init_with(&all, "all", meet, &meeting);
  probe_add_to_runtime(&all, crowd.runtime, 0);
  latch ended = LATCH_INIT;
  penstock_call *calls[LOOPS];
  for (int i = 0; i < LOOPS; i++) {
    calls[i] = start_callback_call(crowd.channels[i], BIDI, PENSTOCK_KIND_BIDI, &ended);
    OK(penstock_call_half_close(calls[i]));
  }
  latch_wait(&meeting.here, LOOPS);
  latch_wait(&ended, LOOPS);
  for (int i = 0; i < LOOPS; i++) penstock_call_release(calls[i]);
  crowd_close(&crowd);
  probe_wait_finalized(&all);
}

/* A thread that drives one loop must not wait for another loop. */
static int32_t try_to_wait(probe *self, penstock_hop *hop, int32_t event) {
  meeting *meeting = self->context;
  (void)hop;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  penstock_reply *reply = NULL;
  penstock_message *message = NULL;
  penstock_error *error = NULL;
  int32_t state = -1;
  CHECK_RESULT(penstock_channel_unary(meeting->other, UNARY, "x", 1, NULL, &reply, &error), PENSTOCK_E_WOULD_DEADLOCK);
  CHECK_ERROR(error, PENSTOCK_E_WOULD_DEADLOCK, NULL, "a blocking call in a callback");
  CHECK_RESULT(penstock_call_receive(meeting->waiting, &message), PENSTOCK_E_WOULD_DEADLOCK);
  CHECK_RESULT(penstock_call_wait_status(meeting->waiting, &reply), PENSTOCK_E_WOULD_DEADLOCK);
  CHECK_RESULT(penstock_call_wait(meeting->waiting, &reply), PENSTOCK_E_WOULD_DEADLOCK);
  CHECK_RESULT(
      penstock_channel_wait_connectivity(meeting->other, penstock_channel_connectivity(meeting->other), 20000, &state),
      PENSTOCK_E_WOULD_DEADLOCK);
  CHECK_RESULT(penstock_runtime_shutdown(meeting->runtime, 20000), PENSTOCK_E_WOULD_DEADLOCK);
  CHECK_RESULT(penstock_runtime_poll(meeting->runtime, 0), PENSTOCK_E_STATE);
  atomic_fetch_add(&meeting->tried, 1);
  return PENSTOCK_NEXT;
}

static void wait_in_callback(const char *options) {
  crowd crowd;
  crowd_open(&crowd, options);
  meeting meeting = {.runtime = crowd.runtime, .other = crowd.channels[1], .here = LATCH_INIT};
  check_echo(meeting.other);
  meeting.waiting = start_call(meeting.other, BIDI, PENSTOCK_KIND_BIDI);
  probe eager;
  probe_init_with(&eager, "eager", try_to_wait, &meeting);
  probe_add(&eager, crowd.channels[0], 0);
  check_echo(crowd.channels[0]);
  CHECK_INT(atomic_load(&meeting.tried), 1);
  /* Waiting is refused on the loop's own thread, too. */
  latch ended = LATCH_INIT;
  penstock_call *call = start_callback_call(crowd.channels[0], BIDI, PENSTOCK_KIND_BIDI, &ended);
  OK(penstock_call_half_close(call));
  latch_wait(&ended, 1);
  CHECK_INT(atomic_load(&meeting.tried), 2);
  penstock_call_release(call);
  /* The refused waits have not half-closed the call, so it can still send. */
  OK(penstock_call_send(meeting.waiting, "x", 1));
  CHECK_MESSAGE(meeting.waiting, "x");
  CHECK_FINISH(meeting.waiting, 0);
  penstock_call_release(meeting.waiting);
  crowd_close(&crowd);
  probe_wait_finalized(&eager);
}
TEST(loops_refuse_to_wait_in_a_callback) { wait_in_callback("{\"loops\": 3}"); }
TEST(loops_refuse_to_wait_in_a_callback_of_their_threads) {
  wait_in_callback("{\"loops\": 3, \"caller_drives\": false}");
}

/* Callbacks of each loop begin calls on the channels of all loops, resolve their tickets and make side calls. */
typedef struct web {
  crowd crowd;
  atomic_int next, failed;
  latch ended;
} web;

static void count_reply(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  web *web = user_data;
  if (penstock_reply_code(reply) != 0) atomic_fetch_add(&web->failed, 1);
}
static void one_ended(void *user_data) { latch_signal(&((web *)user_data)->ended); }

static void *resume(void *pointer) {
  penstock_ticket ticket = *(penstock_ticket *)pointer;
  free(pointer);
  OK(penstock_ticket_resolve(ticket, PENSTOCK_NEXT));
  return NULL;
}

static int32_t spin_web(probe *self, penstock_hop *hop, int32_t event) {
  web *web = self->context;
  if (event == PENSTOCK_EVENT_STATUS) {
    int at = atomic_fetch_add(&web->next, 1);
    if (at < 200) {
      penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
      penstock_call *call = NULL;
      callbacks.user_data = web;
      callbacks.on_reply = count_reply;
      callbacks.finalizer = one_ended;
      OK(penstock_channel_call(web->crowd.channels[at % CHANNELS], UNARY, PENSTOCK_KIND_UNARY, NULL, &callbacks, &call,
                               NULL));
      OK(penstock_call_try_send(call, "ping", 4));
      OK(penstock_call_half_close(call));
      penstock_call_release(call);
    }
    return PENSTOCK_NEXT;
  }
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  penstock_ticket *ticket = malloc(sizeof(*ticket));
  *ticket = penstock_hop_ticket(hop);
  if (test_random(2)) {
    OK(penstock_ticket_resolve_after(*ticket, PENSTOCK_NEXT, test_random(2)));
    free(ticket);
  } else {
    pthread_t thread;
    pthread_create(&thread, NULL, resume, ticket);
    pthread_detach(thread);
  }
  return PENSTOCK_PAUSE;
}

TEST(loops_begin_calls_of_each_other) {
  web web = {.ended = LATCH_INIT};
  crowd_open(&web.crowd, "{\"loops\": 3}");
  probe all;
  probe_init_with(&all, "all", spin_web, &web);
  probe_add_to_runtime(&all, web.crowd.runtime, 0);
  check_echo(web.crowd.channels[0]);
  latch_wait(&web.ended, 200);
  CHECK_INT(atomic_load(&web.failed), 0);
  crowd_close(&web.crowd);
  probe_wait_finalized(&all);
  CHECK_INT(atomic_load(&all.seen[PENSTOCK_EVENT_START]), 201);
}

/* ---- Workers ---- */

static crowd *syncs;

/* Waits for a call on another loop, and for a second one on its own. */
static int32_t call_others(syncer *self, penstock_hop *call) {
  (void)self;
  OK(penstock_hop_next(call));
  check_echo(syncs->channels[1]);
  check_echo(syncs->channels[3]);
  return PENSTOCK_NEXT;
}

/* "max_workers" is for the runtime, and not for each loop. */
TEST(loops_share_workers) {
  crowd crowd;
  crowd_open(&crowd, "{\"loops\": 3, \"max_workers\": 2}");
  syncs = &crowd;
  syncer syncers[2];
  static const int places[2] = {0, 2};
  for (int i = 0; i < 2; i++) {
    syncer_init(&syncers[i], call_others);
    syncer_add(&syncers[i], crowd.channels[places[i]], 0);
  }
  latch ended = LATCH_INIT;
  penstock_call *calls[20];
  for (int i = 0; i < 20; i++) {
    calls[i] = start_callback_call(crowd.channels[places[i % 2]], UNARY, PENSTOCK_KIND_UNARY, &ended);
    OK(penstock_call_try_send(calls[i], "ping", 4));
    OK(penstock_call_half_close(calls[i]));
    CHECK(threads_named("penstock-worker") <= 2);
  }
  latch_wait(&ended, 20);
  CHECK(threads_named("penstock-worker") <= 2);
  for (int i = 0; i < 20; i++) penstock_call_release(calls[i]);
  OK(penstock_runtime_shutdown(crowd.runtime, 20000));
  crowd_close(&crowd);
  for (int i = 0; i < 2; i++) {
    CHECK_INT(atomic_load(&syncers[i].runs), 10);
    CHECK_INT(atomic_load(&syncers[i].finalized), 1);
  }
}
