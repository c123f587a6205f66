/* fork.h: with the hooks a child keeps the loops of a runtime, the functions of the program that a channel has, and
 * telemetry, which begins anew. */
#include "forks.h"

#include "recorded.h"

/* ---- Several loops ---- */

enum { LOOPS = 3 };

typedef struct loops {
  penstock_runtime *runtime;
  load load;
  penstock_channel *channels[2 * LOOPS];
  penstock_call *calls[LOOPS];
  atomic_int ended, others, others_failed;
  pid_t parent;
} loops;

static void note_other(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  loops *loops = user_data;
  if (penstock_reply_code(reply) != 0) atomic_fetch_add(&loops->others_failed, 1);
  atomic_fetch_add(&loops->others, 1);
}

/* In the child the parent's calls end. Then the callback of each begins a call on the other channels, and no loop
 * mistakes the new call for a call of the parent. */
static void begin_others(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  loops *loops = user_data;
  if (getpid() == loops->parent) return;
  if (penstock_reply_code(reply) == 1) atomic_fetch_add(&loops->ended, 1);
  for (int i = 0; i < 2 * LOOPS; i++) {
    penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
    penstock_call *other = NULL;
    callbacks.user_data = loops;
    callbacks.on_reply = note_other;
    if (penstock_channel_call(loops->channels[i], UNARY, PENSTOCK_KIND_UNARY, NULL, &callbacks, &other, NULL) != 0)
      continue;
    penstock_call_try_send(other, "x", 1);
    penstock_call_half_close(other);
    penstock_call_release(other);
  }
}

static void use_all_loops(void *pointer) {
  loops *loops = pointer;
  int32_t code = -1;
  int before = atomic_load(&loops->load.counter);
  for (int i = 0; i < 2 * LOOPS; i++) {
    CHILD(unary_result(loops->channels[i], &code) == PENSTOCK_OK);
    CHILD(code == 0);
  }
  CHILD(atomic_load(&loops->load.counter) >= before + 2 * LOOPS);
  for (int i = 0; i < 4000 && atomic_load(&loops->others) < 2 * LOOPS * LOOPS; i++) test_pause();
  CHILD(atomic_load(&loops->ended) == LOOPS);
  CHILD(atomic_load(&loops->others) == 2 * LOOPS * LOOPS);
  CHILD(atomic_load(&loops->others_failed) == 0);
  for (int i = 0; i < LOOPS; i++) penstock_call_release(loops->calls[i]);
  for (int i = 0; i < 2 * LOOPS; i++) penstock_channel_release(loops->channels[i]);
  CHILD(penstock_runtime_shutdown(loops->runtime, 10000) == PENSTOCK_OK);
  penstock_runtime_release(loops->runtime);
}

static void fork_with_loops(const char *options) {
  with_hooks();
  loops loops;
  memset(&loops, 0, sizeof(loops));
  loops.parent = getpid();
  loops.runtime = new_runtime(options);
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_interceptor_id id = 0;
  table.on_start = count_start;
  table.user_data = &loops.load.counter;
  OK(penstock_runtime_add_interceptor(loops.runtime, &table, 0, &id, NULL));
  for (int i = 0; i < 2 * LOOPS; i++) loops.channels[i] = open_channel_on(loops.runtime);
  for (int i = 0; i < LOOPS; i++) {
    penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
    callbacks.user_data = &loops;
    callbacks.on_reply = begin_others;
    OK(penstock_channel_call(loops.channels[i], BIDI, PENSTOCK_KIND_BIDI, NULL, &callbacks, &loops.calls[i], NULL));
  }
  pthread_t threads[2][4];
  load loads[2];
  for (int i = 0; i < 2; i++) {
    memset(&loads[i], 0, sizeof(loads[i]));
    for (int j = 0; j < 2; j++) loads[i].channels[j] = loops.channels[2 * i + j];
    for (int j = 0; j < 4; j++) pthread_create(&threads[i][j], NULL, j < 3 ? keep_calling : keep_streaming, &loads[i]);
  }
  for (int i = 0; i < test_rounds(60); i++) reap(fork_and(use_all_loops, &loops));
  for (int i = 0; i < 2; i++) {
    atomic_store(&loads[i].over, true);
    for (int j = 0; j < 4; j++) pthread_join(threads[i][j], NULL);
  }
  for (int i = 0; i < LOOPS; i++) {
    OK(penstock_call_half_close(loops.calls[i]));
    penstock_call_release(loops.calls[i]);
  }
  for (int i = 0; i < 2 * LOOPS; i++) penstock_channel_release(loops.channels[i]);
  OK(penstock_runtime_shutdown(loops.runtime, 10000));
  penstock_runtime_release(loops.runtime);
}
TEST(fork_hooks_children_use_all_loops) { fork_with_loops("{\"loops\": 3}"); }
TEST(fork_hooks_children_use_all_loops_with_threads) { fork_with_loops("{\"loops\": 3, \"caller_drives\": false}"); }
TEST(fork_hooks_hold_many_loops) { fork_with_loops("{\"loops\": 64}"); }

/* ---- A watch of the channel's state ---- */

typedef struct {
  penstock_channel *channel;
  atomic_int ready; /* how often the watch got READY */
  atomic_int others;
} watched;

static int32_t count_states(void *user_data, int32_t state) {
  watched *self = user_data;
  atomic_fetch_add(state == PENSTOCK_CONNECTIVITY_READY ? &self->ready : &self->others, 1);
  return 1;
}

static void call_while_watched(void *pointer) {
  watched *self = pointer;
  int32_t code = -1;
  int others = atomic_load(&self->others);
  CHILD(atomic_load(&self->ready) == 1);
  CHILD(unary_result(self->channel, &code) == PENSTOCK_OK && code == 0);
  for (int i = 0; i < 20000 && atomic_load(&self->ready) < 2; i++) usleep(1000);
  CHILD(atomic_load(&self->ready) == 2);
  CHILD(atomic_load(&self->others) > others);
}

TEST(fork_hooks_keep_watches) {
  with_hooks();
  watched self = {0};
  self.channel = open_channel();
  OK(penstock_channel_watch_connectivity(self.channel, count_states, &self, NULL));
  check_echo(self.channel);
  for (int i = 0; i < 20000 && atomic_load(&self.ready) < 1; i++) usleep(1000);
  reap(fork_and(call_while_watched, &self));
  CHECK_INT(atomic_load(&self.ready), 1);
  OK(penstock_channel_close(self.channel));
  penstock_channel_release(self.channel);
}

/* ---- A picker, and on_pick ---- */

typedef struct {
  penstock_channel *channel;
  atomic_int picked, seen, finalized;
} picked;

static int32_t count_picks(penstock_pick *pick, void *user_data) {
  (void)pick;
  atomic_fetch_add(&((picked *)user_data)->picked, 1);
  return 0;
}

static int32_t count_seen(penstock_hop *hop, void *state) {
  if (penstock_hop_address(hop)) atomic_fetch_add(&((picked *)state)->seen, 1);
  return PENSTOCK_NEXT;
}

static void end_picks(void *user_data) { atomic_fetch_add(&((picked *)user_data)->finalized, 1); }

static void call_with_picker(void *pointer) {
  picked *self = pointer;
  int32_t code = -1;
  for (int i = 2; i < 5; i++) {
    CHILD(unary_result(self->channel, &code) == PENSTOCK_OK && code == 0);
    CHILD(atomic_load(&self->picked) == i && atomic_load(&self->seen) == i);
  }
  CHILD(penstock_channel_set_picker(self->channel, NULL, NULL, NULL) == PENSTOCK_OK);
  for (int i = 0; i < 20000 && atomic_load(&self->finalized) < 1; i++) {
    CHILD(unary_result(self->channel, &code) == PENSTOCK_OK && code == 0);
  }
  CHILD(atomic_load(&self->finalized) == 1 && atomic_load(&self->picked) >= 4);
}

TEST(fork_hooks_keep_pickers) {
  with_hooks();
  picked self = {0};
  self.channel = open_channel();
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_interceptor_id id = 0;
  table.per_attempt = 1;
  table.on_pick = count_seen;
  table.user_data = &self;
  OK(penstock_channel_add_interceptor(self.channel, &table, 0, &id, NULL));
  OK(penstock_channel_set_picker(self.channel, count_picks, &self, end_picks));
  check_echo(self.channel);
  reap(fork_and(call_with_picker, &self));
  CHECK_INT(atomic_load(&self.finalized), 0);
  check_echo(self.channel);
  CHECK_INT(atomic_load(&self.picked), 2);
  CHECK_INT(atomic_load(&self.seen), 2);
  penstock_channel_release(self.channel);
  EVENTUALLY(atomic_load(&self.finalized) == 1);
}

/* ---- Telemetry ---- */

typedef struct recorded {
  penstock_telemetry *telemetry;
  penstock_channel *channel, *collector;
  penstock_call *call;
  latch begun;
} recorded;

static bool recorded_has(recorded *self, reader read, const char *part) {
  char *text = NULL;
  bool found = read(self->telemetry, &text) == PENSTOCK_OK && strstr(text, part);
  if (!found && text) printf("  %s\n", text);
  penstock_free(text);
  return found;
}

/* The parent's spans and counts are the parent's to tell, and no thread of the child exports. */
static void record_in_child(void *pointer) {
  recorded *self = pointer;
  penstock_reply *reply = NULL;
  char *text = NULL;
  /* This call of the parent ends, and is not recorded. */
  CHILD(penstock_call_wait(self->call, &reply) == PENSTOCK_OK && penstock_reply_code(reply) == 1);
  penstock_reply_release(reply);
  penstock_call_release(self->call);
  CHILD(recorded_has(self, penstock_telemetry_stats_json,
                     "{\"kept\":0,\"bytes\":0,\"taken\":0,\"dropped\":0,\"refused\":0}"));
  int32_t code = -1;
  CHILD(unary_result(self->channel, &code) == PENSTOCK_OK && code == 0);
  CHILD(recorded_has(self, penstock_telemetry_stats_json, "{\"kept\":2,"));
  CHILD(penstock_telemetry_spans_json(self->telemetry, &text) == PENSTOCK_OK);
  CHILD(text && occurrences(text, "\"traceId\"") == 2 && !strstr(text, "Bidi"));
  penstock_free(text);
  text = NULL;
  CHILD(penstock_telemetry_prometheus_text(self->telemetry, &text) == PENSTOCK_OK);
  CHILD(text && occurrences(text, "\ngrpc_client_attempt_started_total{") == 1 && strstr(text, "\"} 1\n"));
  penstock_free(text);
  penstock_channel_release(self->channel);
  penstock_channel_release(self->collector);
  penstock_telemetry_release(self->telemetry);
}

static int32_t delay_export(penstock_hop *hop, void *state) {
  OK(penstock_request_set_method(penstock_hop_request(hop), UNARY));
  OK(penstock_metadata_set(penstock_hop_metadata(hop), "x-delay-ms", "3600000"));
  latch_signal(state);
  return PENSTOCK_NEXT;
}

static void *export_recorded(void *pointer) {
  recorded *self = pointer;
  int32_t code = -1;
  /* The metrics' request ends when the channel is closed, before the spans'. */
  CHECK_RESULT(penstock_telemetry_flush(self->telemetry, self->collector, 3600000, &code, NULL), PENSTOCK_E_CLOSED);
  return NULL;
}

TEST(fork_hooks_telemetry_begins_anew) {
  with_hooks();
  recorded self = {telemetry_new(NULL), open_channel(), open_channel(), NULL, LATCH_INIT};
  telemetry_add(self.telemetry, self.channel);
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.on_start = delay_export;
  table.user_data = &self.begun;
  ready_add(self.collector, &table, 0);
  for (int i = 0; i < 3; i++) check_echo(self.channel);
  self.call = start_with(self.channel, BIDI, PENSTOCK_KIND_BIDI, NULL);
  OK(penstock_call_send(self.call, "one", 3));
  CHECK_MESSAGE(self.call, "one");
  pthread_t thread;
  if (pthread_create(&thread, NULL, export_recorded, &self)) abort();
  latch_wait(&self.begun, 1);
  reap(fork_and(record_in_child, &self));
  CHECK(recorded_has(&self, penstock_telemetry_stats_json, "{\"kept\":6,"));
  OK(penstock_channel_close(self.collector));
  pthread_join(thread, NULL);
  OK(penstock_call_half_close(self.call));
  CHECK_FINISH(self.call, 0);
  penstock_call_release(self.call);
  CHECK(recorded_has(&self, penstock_telemetry_stats_json, "{\"kept\":8,"));
  penstock_channel_release(self.channel);
  penstock_channel_release(self.collector);
  penstock_telemetry_release(self.telemetry);
}
