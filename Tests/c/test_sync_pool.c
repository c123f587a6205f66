/* sync.h: workers. One worker serves the interceptors of one call and the calls that they wait for. The number of
 * workers is limited, and a shutdown joins them. The calls here are in callback style, or are half-closed before their
 * thread waits; test_sync_caller.c has the calls whose own thread runs the functions. */
#include "test.h"

#include <errno.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORKER "penstock-worker"

typedef struct worker_bench worker_bench;

/* One of several synchronous interceptors. */
typedef struct layer {
  worker_bench *bench;
  int number;
  atomic_int runs, finalized;
  pthread_t thread;
} layer;

struct worker_bench {
  penstock_runtime *runtime;
  penstock_channel *channel;
  int32_t (*hook)(layer *self, penstock_hop *call);
  layer layers[3];
  int count;
  atomic_int inside, most, other_threads, failures;
  latch entered, go, done;
  penstock_call *kept; /* released once the runtime has been shut down */
};

static int32_t intercept(penstock_hop *call, void *user_data) {
  layer *self = user_data;
  atomic_fetch_add(&self->runs, 1);
  return self->bench->hook(self, call);
}

static void layer_finalized(void *user_data) { atomic_fetch_add(&((layer *)user_data)->finalized, 1); }

static void bench_open(worker_bench *bench, const char *options, int count, int32_t (*hook)(layer *, penstock_hop *)) {
  memset(bench, 0, sizeof(*bench));
  bench->entered = bench->go = bench->done = (latch)LATCH_INIT;
  bench->hook = hook;
  bench->count = count;
  bench->runtime = new_runtime(options);
  bench->channel = open_channel_on(bench->runtime);
  for (int index = 0; index < count; index++) {
    layer *layer = &bench->layers[index];
    layer->bench = bench;
    layer->number = index;
    penstock_sync_interceptor sync = PENSTOCK_SYNC_INTERCEPTOR_INIT;
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    penstock_interceptor_id id = 0;
    sync.name = "layer";
    sync.user_data = layer;
    sync.finalizer = layer_finalized;
    sync.intercept = intercept;
    OK(penstock_sync_interceptor_table(&sync, &table, NULL));
    OK(penstock_channel_add_interceptor(bench->channel, &table, -index, &id, NULL));
  }
}

/* Shuts the runtime down, which joins its workers; everything is finalized then. */
static void bench_close(worker_bench *bench) {
  penstock_channel_release(bench->channel);
  OK(penstock_runtime_shutdown(bench->runtime, test_patience_ms()));
  penstock_call_release(bench->kept);
  for (int index = 0; index < bench->count; index++) CHECK_INT(bench->layers[index].finalized, 1);
  CHECK_RESULT(penstock_runtime_shutdown(bench->runtime, -1), PENSTOCK_E_ALREADY);
  penstock_runtime_release(bench->runtime);
}

static int32_t pass(layer *self, penstock_hop *call) {
  (void)self;
  penstock_hop_next(call);
  return PENSTOCK_NEXT;
}

/* ---- One worker for one call ---- */

static int32_t note_thread(layer *self, penstock_hop *call) {
  worker_bench *bench = self->bench;
  self->thread = pthread_self();
  for (int index = 0; index < self->number; index++) {
    if (!pthread_equal(bench->layers[index].thread, self->thread)) atomic_fetch_add(&bench->other_threads, 1);
  }
  OK(penstock_hop_next(call));
  /* The function of the interceptor below has run and returned. */
  if (self->number + 1 < bench->count) CHECK_INT(bench->layers[self->number + 1].runs, self->runs);
  return PENSTOCK_NEXT;
}

/* ---- One worker is enough for any number of calls ---- */

static void count_reply(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  worker_bench *bench = user_data;
  if (penstock_reply_code(reply) != 0) atomic_fetch_add(&bench->failures, 1);
  latch_signal(&bench->done);
}

static void start_many(worker_bench *bench, int count) {
  for (int index = 0; index < count; index++) {
    penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
    callbacks.user_data = bench;
    callbacks.on_reply = count_reply;
    penstock_call *call = NULL;
    REQUIRE_OK(penstock_channel_call(bench->channel, UNARY, PENSTOCK_KIND_UNARY, NULL, &callbacks, &call, NULL));
    OK(penstock_call_try_send(call, "x", 1));
    OK(penstock_call_half_close(call));
    penstock_call_release(call);
  }
}

static int32_t count_inside(layer *self, penstock_hop *call) {
  worker_bench *bench = self->bench;
  if (self->number > 0) return pass(self, call);
  int inside = atomic_fetch_add(&bench->inside, 1) + 1;
  int most = atomic_load(&bench->most);
  while (inside > most && !atomic_compare_exchange_weak(&bench->most, &most, inside)) continue;
  penstock_hop_next(call);
  atomic_fetch_sub(&bench->inside, 1);
  return PENSTOCK_NEXT;
}

TEST(sync_nest_of_three_is_one_worker) {
  worker_bench bench;
  bench_open(&bench, "{\"max_workers\": 8}", 3, note_thread);
  EVENTUALLY(threads_named(WORKER) == 0);
  for (int index = 0; index < 50; index++) {
    start_many(&bench, 1);
    latch_wait(&bench.done, index + 1);
    /* The worker of the call before may not be idle yet when this call needs one. */
    CHECK(threads_named(WORKER) <= 2);
  }
  CHECK_INT(bench.other_threads, 0);
  CHECK_INT(bench.layers[2].runs, 50);
  bench_close(&bench);
}

TEST(sync_one_worker_serves_a_thousand_calls) {
  int count = test_rounds(1000);
  worker_bench bench;
  bench_open(&bench, "{\"max_workers\": 1}", 2, count_inside);
  start_many(&bench, count);
  latch_wait(&bench.done, count);
  CHECK_INT(bench.failures, 0);
  CHECK_INT(bench.most, 1);
  CHECK_INT(bench.layers[1].runs, count);
  bench_close(&bench);
}

TEST(sync_workers_are_bounded) {
  int count = test_rounds(200);
  worker_bench bench;
  bench_open(&bench, "{\"max_workers\": 3}", 1, count_inside);
  start_many(&bench, count);
  latch_wait(&bench.done, count);
  CHECK_INT(bench.failures, 0);
  CHECK(bench.most >= 1 && bench.most <= 3);
  bench_close(&bench);
}

/* A blocking call that is half-closed before its thread waits: workers run the functions. */
static int32_t code_by_workers(penstock_channel *channel, const penstock_call_options *options) {
  penstock_call *call = NULL;
  penstock_reply *reply = NULL;
  if (!OK(penstock_channel_call(channel, UNARY, PENSTOCK_KIND_UNARY, options, NULL, &call, NULL))) return -1;
  OK(penstock_call_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  OK(penstock_call_wait(call, &reply));
  int32_t code = penstock_reply_code(reply);
  penstock_reply_release(reply);
  penstock_call_release(call);
  return code;
}

static void *echo_many(void *user_data) {
  worker_bench *bench = user_data;
  for (int index = 0; index < 10; index++) {
    if (code_by_workers(bench->channel, NULL) != 0) atomic_fetch_add(&bench->failures, 1);
  }
  return NULL;
}

TEST(sync_one_worker_serves_a_hundred_threads) {
  static const char *const options[] = {"{\"max_workers\": 1}", "{\"max_workers\": 1, \"caller_drives\": false}",
                                        "{\"max_workers\": 1, \"mode\": \"host\"}"};
  for (int mode = 0; mode < 3; mode++) {
    worker_bench bench;
    bench_open(&bench, options[mode], 2, count_inside);
    pthread_t threads[100];
    int count = test_rounds(100);
    for (int index = 0; index < count; index++) pthread_create(&threads[index], NULL, echo_many, &bench);
    for (int index = 0; index < count; index++) pthread_join(threads[index], NULL);
    CHECK_INT(bench.failures, 0);
    CHECK_INT(bench.layers[1].runs, count * 10);
    bench_close(&bench);
  }
}

/* Makes a blocking call on the same channel, which passes the same interceptors again. */
static int32_t meet_itself(layer *self, penstock_hop *call) {
  const void *data = NULL;
  size_t length = 0;
  penstock_metadata *metadata = penstock_request_metadata(penstock_hop_request(call));
  bool inner = penstock_metadata_get(metadata, "inner", 0, &data, &length) == PENSTOCK_OK;
  if (!inner && self->number == 0) {
    penstock_call_options *options = NULL;
    penstock_reply *reply = NULL;
    OK(penstock_call_options_new("{\"metadata\": {\"inner\": \"1\"}}", &options, NULL));
    OK(penstock_channel_unary(self->bench->channel, UNARY, "token", 5, options, &reply, NULL));
    CHECK_INT(penstock_reply_code(reply), 0);
    penstock_reply_release(reply);
    /* The inner call is also made as a stream, message by message. */
    penstock_call *stream = NULL;
    penstock_message *message = NULL;
    const penstock_metadata *headers = NULL;
    OK(penstock_channel_call(self->bench->channel, BIDI, PENSTOCK_KIND_BIDI, options, NULL, &stream, NULL));
    OK(penstock_call_send(stream, "a", 1));
    OK(penstock_call_wait_headers(stream, &headers));
    OK(penstock_call_receive(stream, &message));
    OK(penstock_call_wait(stream, &reply));
    CHECK_INT(penstock_reply_code(reply), 0);
    penstock_message_release(message);
    penstock_reply_release(reply);
    penstock_call_release(stream);
    penstock_call_options_release(options);
  }
  penstock_hop_next(call);
  return PENSTOCK_NEXT;
}

TEST(sync_call_of_its_own_meets_itself) {
  static const char *const options[] = {"{\"max_workers\": 1}", "{\"max_workers\": 1, \"caller_drives\": false}",
                                        "{\"max_workers\": 1, \"mode\": \"host\"}", "{\"max_workers\": 3}"};
  for (int mode = 0; mode < 4; mode++) {
    worker_bench bench;
    bench_open(&bench, options[mode], 2, meet_itself);
    for (int index = 0; index < 10; index++) CHECK_INT(code_by_workers(bench.channel, NULL), 0);
    CHECK_INT(bench.layers[0].runs, 30);
    bench_close(&bench);
  }
}

TEST(sync_one_worker_and_a_thousand_calls_that_meet_themselves) {
  int count = test_rounds(1000);
  worker_bench bench;
  bench_open(&bench, "{\"max_workers\": 1}", 2, meet_itself);
  start_many(&bench, count);
  latch_wait(&bench.done, count);
  CHECK_INT(bench.failures, 0);
  CHECK_INT(bench.layers[1].runs, count * 3);
  bench_close(&bench);
}

/* ---- Queued calls ---- */

static int32_t block(layer *self, penstock_hop *call) {
  latch_signal(&self->bench->entered);
  latch_wait(&self->bench->go, 1);
  return pass(self, call);
}

TEST(sync_queued_calls_end_by_deadline_and_cancel) {
  worker_bench bench;
  bench_open(&bench, "{\"max_workers\": 1}", 1, block);
  penstock_call *first = start_call(bench.channel, UNARY, PENSTOCK_KIND_UNARY);
  OK(penstock_call_send(first, "x", 1));
  OK(penstock_call_half_close(first));
  latch_wait(&bench.entered, 1);
  penstock_call_options *options = NULL;
  penstock_reply *reply = NULL;
  OK(penstock_call_options_new("{\"deadline_ms\": 50}", &options, NULL));
  CHECK_INT(code_by_workers(bench.channel, options), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  penstock_call_options_release(options);
  penstock_call *queued = start_call(bench.channel, UNARY, PENSTOCK_KIND_UNARY);
  OK(penstock_call_send(queued, "x", 1));
  /* Half-closed, or else this thread might run the function in its wait, before the loop has seen the cancel. */
  OK(penstock_call_half_close(queued));
  OK(penstock_call_cancel(queued, "no more"));
  OK(penstock_call_wait(queued, &reply));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_CANCELLED);
  penstock_reply_release(reply);
  penstock_call_release(queued);
  /* The function has run for neither of the two calls, and never will. */
  latch_signal(&bench.go);
  OK(penstock_call_wait(first, &reply));
  CHECK_INT(penstock_reply_code(reply), 0);
  penstock_reply_release(reply);
  penstock_call_release(first);
  CHECK_INT(bench.layers[0].runs, 1);
  bench_close(&bench);
}

TEST(sync_storm_of_cancels) {
  worker_bench bench;
  bench_open(&bench, "{\"max_workers\": 2}", 2, pass);
  int count = test_rounds(1000);
  for (int index = 0; index < count; index++) {
    penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
    callbacks.user_data = &bench;
    callbacks.on_reply = count_reply;
    penstock_call *call = NULL;
    OK(penstock_channel_call(bench.channel, UNARY, PENSTOCK_KIND_UNARY, NULL, &callbacks, &call, NULL));
    penstock_call_try_send(call, "x", 1);
    penstock_call_half_close(call);
    if (test_random(3) > 0) {
      for (uint32_t spins = test_random(2000); spins > 0; spins--) atomic_load(&bench.failures);
      penstock_call_cancel(call, "storm");
    }
    penstock_call_release(call);
  }
  latch_wait(&bench.done, count);
  bench_close(&bench);
}

/* ---- The end ---- */

TEST(sync_shutdown_times_out_while_a_function_runs) {
  worker_bench bench;
  bench_open(&bench, NULL, 1, block);
  penstock_call *call = start_call(bench.channel, UNARY, PENSTOCK_KIND_UNARY);
  OK(penstock_call_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  latch_wait(&bench.entered, 1);
  CHECK_RESULT(penstock_runtime_shutdown(bench.runtime, 20), PENSTOCK_E_TIMEOUT);
  /* The caller sees that the call has ended, although the function still runs. */
  penstock_reply *reply = NULL;
  OK(penstock_call_wait(call, &reply));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_CANCELLED);
  CHECK_HAS(penstock_reply_status_json(reply), "runtime shut down");
  penstock_reply_release(reply);
  penstock_call_release(call);
  CHECK_INT(bench.layers[0].finalized, 0);
  CHECK_RESULT(penstock_runtime_shutdown(bench.runtime, 0), PENSTOCK_E_TIMEOUT);
  latch_signal(&bench.go);
  CHECK_INT(threads_named(WORKER), 1);
  bench_close(&bench);
  EVENTUALLY(threads_named(WORKER) == 0);
}

static int32_t shut_down(layer *self, penstock_hop *call) {
  CHECK_RESULT(penstock_runtime_shutdown(self->bench->runtime, -1), PENSTOCK_E_WOULD_DEADLOCK);
  return pass(self, call);
}

TEST(sync_shutdown_within_a_function_would_deadlock) {
  worker_bench bench;
  bench_open(&bench, NULL, 1, shut_down);
  CHECK_INT(code_by_workers(bench.channel, NULL), 0);
  bench_close(&bench);
}

TEST(sync_shutdown_wakes_a_function_in_next) {
  worker_bench bench;
  bench_open(&bench, NULL, 2, pass);
  penstock_call *call = start_call(bench.channel, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM);
  EVENTUALLY(atomic_load(&bench.layers[1].runs) == 1);
  bench.kept = call;
  bench_close(&bench);
}

/* The function releases the last handles of its runtime: the worker that runs the function is not joined, and the
 * function's data is freed after the function has returned. */
static int32_t release_all(layer *self, penstock_hop *call) {
  worker_bench *bench = self->bench;
  latch_signal(&bench->entered);
  latch_wait(&bench->go, 1);
  penstock_channel_release(bench->channel);
  penstock_runtime_release(bench->runtime);
  CHECK_RESULT(penstock_hop_next(call), PENSTOCK_E_GONE);
  CHECK_INT(self->finalized, 0);
  return PENSTOCK_NEXT;
}

TEST(sync_last_handle_released_by_a_worker) {
  static const char *const options[] = {NULL, "{\"mode\": \"host\"}"};
  for (int mode = 0; mode < 2; mode++) {
    int before = running_threads();
    worker_bench bench;
    bench_open(&bench, options[mode], 1, release_all);
    penstock_call *call = start_call(bench.channel, UNARY, PENSTOCK_KIND_UNARY);
    OK(penstock_call_send(call, "x", 1));
    OK(penstock_call_half_close(call));
    if (mode == 1) {
      while (latch_count(&bench.entered) == 0) OK(penstock_runtime_poll(bench.runtime, 20));
    }
    latch_wait(&bench.entered, 1);
    penstock_call_cancel(call, NULL);
    penstock_reply *reply = NULL;
    OK(penstock_call_wait(call, &reply));
    penstock_reply_release(reply);
    penstock_call_release(call);
    latch_signal(&bench.go);
    EVENTUALLY(atomic_load(&bench.layers[0].finalized) == 1);
    EVENTUALLY(running_threads() <= before);
  }
}

TEST(sync_idle_workers_end) {
  worker_bench bench;
  bench_open(&bench, "{\"max_workers\": 4}", 1, block);
  EVENTUALLY(threads_named(WORKER) == 0);
  start_many(&bench, 4);
  latch_wait(&bench.entered, 4);
  CHECK_INT(threads_named(WORKER), 4);
  latch_signal(&bench.go);
  latch_wait(&bench.done, 4);
  EVENTUALLY(threads_named(WORKER) == 0);
  check_echo(bench.channel);
  bench_close(&bench);
}

/* ---- Host mode: the program drives the loop, workers wait ---- */

static bool is_readable(penstock_runtime *runtime, int timeout) {
  struct pollfd entry = {-1, POLLIN, 0};
  OK(penstock_runtime_fd(runtime, &entry.fd));
  return poll(&entry, 1, timeout) == 1;
}

static int32_t note_driver(layer *self, penstock_hop *call) {
  self->thread = pthread_self();
  latch_signal(&self->bench->entered);
  OK(penstock_hop_next(call));
  latch_signal(&self->bench->go);
  return PENSTOCK_NEXT;
}

static int32_t note_event(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop, (void)event;
  if (!pthread_equal(pthread_self(), *(pthread_t *)self->context)) test_failed(__FILE__, __LINE__, "another thread");
  return PENSTOCK_NEXT;
}

TEST(sync_host_mode_makes_the_descriptor_readable) {
  worker_bench bench;
  bench_open(&bench, "{\"mode\": \"host\"}", 2, note_driver);
  pthread_t me = pthread_self();
  probe below;
  probe_init_with(&below, "below", note_event, &me);
  probe_add(&below, bench.channel, -10);
  start_many(&bench, 1);
  int turns = 0;
  while (latch_count(&bench.done) == 0 && turns++ < 1000) {
    /* Each request of the worker makes the descriptor readable. */
    REQUIRE(is_readable(bench.runtime, test_patience_ms()));
    OK(penstock_runtime_poll(bench.runtime, 0));
  }
  CHECK_INT(latch_count(&bench.done), 1);
  CHECK_INT(bench.failures, 0);
  CHECK(!pthread_equal(bench.layers[0].thread, me));
  CHECK(pthread_equal(bench.layers[0].thread, bench.layers[1].thread));
  bench_close(&bench);
  probe_wait_finalized(&below);
}

TEST(sync_max_workers_is_checked) {
  static const char *const wrong[] = {"{\"max_workers\": 0}", "{\"max_workers\": 1025}", "{\"max_workers\": \"4\"}"};
  for (int index = 0; index < 3; index++) {
    penstock_runtime *runtime = NULL;
    penstock_error *error = NULL;
    CHECK_RESULT(penstock_runtime_new(wrong[index], &runtime, &error), PENSTOCK_E_INVALID_JSON);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, "$.max_workers", NULL);
  }
}
