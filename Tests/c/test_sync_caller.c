/* sync.h: the functions of a unary call or a server stream run on the thread that waits for the call, where this thread
 * has the whole request and is in no callback. */
#include "syncer.h"

#include <sched.h>
#include <signal.h>

#define WORKER "penstock-worker"

/* Another interceptor of the same kind, below the first. */
typedef struct pair {
  syncer above, below;
  penstock_channel *channel;
} pair;

static __thread int own_value;
static atomic_int strangers;

/* Counts the runs on threads other than the one that has set `own_value`. */
static int32_t note_thread(syncer *self, penstock_hop *call) {
  (void)self;
  if (own_value != 7) atomic_fetch_add(&strangers, 1);
  CHECK_RESULT(penstock_hop_next(call), PENSTOCK_OK);
  if (own_value != 7) atomic_fetch_add(&strangers, 1);
  return PENSTOCK_NEXT;
}

static void pair_open(pair *both, penstock_runtime *runtime, int32_t (*hook)(syncer *, penstock_hop *)) {
  both->channel = open_channel_on(runtime);
  syncer_init(&both->above, hook);
  syncer_init(&both->below, hook);
  syncer_add(&both->above, both->channel, 2);
  syncer_add(&both->below, both->channel, 1);
  atomic_store(&strangers, 0);
}

static void pair_close(pair *both, penstock_runtime *runtime) {
  penstock_channel_release(both->channel);
  OK(penstock_runtime_shutdown(runtime, test_patience_ms()));
  CHECK_INT(both->above.finalized, 1);
  CHECK_INT(both->below.finalized, 1);
  penstock_runtime_release(runtime);
}

static const char *const modes[] = {"{\"max_workers\": 1}", "{\"max_workers\": 1, \"caller_drives\": false}",
                                    "{\"max_workers\": 1, \"linger_us\": 0}",
                                    "{\"max_workers\": 1, \"mode\": \"host\"}"};

static void read_stream(penstock_channel *channel, bool closes) {
  penstock_call *call = start_call(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM);
  penstock_message *message = NULL;
  penstock_reply *reply = NULL;
  OK(penstock_call_send(call, "ping", 4));
  if (closes) OK(penstock_call_half_close(call));
  while (penstock_call_receive(call, &message) == PENSTOCK_OK) {
    penstock_message_release(message);
    message = NULL;
  }
  OK(penstock_call_wait(call, &reply));
  CHECK_INT(penstock_reply_code(reply), 0);
  penstock_reply_release(reply);
  penstock_call_release(call);
}

TEST(sync_functions_run_on_the_thread_that_waits) {
  own_value = 7;
  for (size_t mode = 0; mode < sizeof(modes) / sizeof(*modes); mode++) {
    penstock_runtime *runtime = new_runtime(modes[mode]);
    pair both;
    pair_open(&both, runtime, note_thread);
    for (int index = 0; index < 20; index++) check_echo(both.channel);
    CHECK_INT(strangers, 0);
    for (int index = 0; index < 20; index++) read_stream(both.channel, false);
    CHECK_INT(strangers, 0);
    CHECK_INT(threads_named(WORKER), 0);
    CHECK_INT(both.below.runs, 40);
    /* Half-closed before the wait: nobody knows then whether this thread will wait. */
    if (mode < 3) {
      read_stream(both.channel, true);
      CHECK_INT(strangers, 4);
      CHECK_INT(threads_named(WORKER), 1);
    }
    pair_close(&both, runtime);
  }
}

/* ---- No limit of workers ---- */

static pthread_barrier_t meeting;

static int32_t meet(syncer *self, penstock_hop *call) {
  (void)self;
  pthread_barrier_wait(&meeting);
  penstock_hop_next(call);
  return PENSTOCK_NEXT;
}

static void *echo_once(void *channel) {
  check_echo(channel);
  return NULL;
}

/* All sixteen functions wait for each other; one worker would never do. */
TEST(sync_functions_of_sixteen_threads_run_at_once) {
  for (size_t mode = 0; mode < sizeof(modes) / sizeof(*modes); mode++) {
    penstock_runtime *runtime = new_runtime(modes[mode]);
    pair both;
    pthread_t threads[16];
    pthread_barrier_init(&meeting, NULL, 16);
    pair_open(&both, runtime, meet);
    for (int index = 0; index < 16; index++) pthread_create(&threads[index], NULL, echo_once, both.channel);
    for (int index = 0; index < 16; index++) pthread_join(threads[index], NULL);
    pthread_barrier_destroy(&meeting);
    CHECK_INT(both.below.runs, 16);
    pair_close(&both, runtime);
  }
}

/* ---- The end of a call during a function ---- */

/* The deadline passes while this thread, which is the only one that waits, runs the function: another thread drives. */
static int32_t outlast_deadline(syncer *self, penstock_hop *call) {
  OK(penstock_request_set_deadline_ms(penstock_hop_request(call), 20));
  EVENTUALLY(penstock_hop_set_value(call, "key", self, NULL) == PENSTOCK_E_GONE);
  CHECK_RESULT(penstock_hop_next(call), PENSTOCK_E_GONE);
  self->code = penstock_status_code(penstock_hop_status(call));
  return PENSTOCK_NEXT;
}

TEST(sync_deadline_passes_while_the_callers_function_runs) {
  for (size_t mode = 0; mode < 3; mode++) {
    penstock_runtime *runtime = new_runtime(modes[mode]);
    pair both;
    pair_open(&both, runtime, outlast_deadline);
    CHECK_INT(unary_code(both.channel, "x"), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
    CHECK_INT(both.above.code, PENSTOCK_STATUS_DEADLINE_EXCEEDED);
    CHECK_INT(latch_count(&both.above.done), 1); /* the call returns after its function */
    CHECK_INT(both.below.runs, 0);
    pair_close(&both, runtime);
  }
}

static int32_t wait_in_next(syncer *self, penstock_hop *call) {
  penstock_result result = penstock_hop_next(call);
  self->code = result == PENSTOCK_E_GONE ? penstock_status_code(penstock_hop_status(call)) : -2;
  return PENSTOCK_NEXT;
}

static void *cancel_when_entered(void *scope) {
  EVENTUALLY(atomic_load(&strangers) > 0);
  OK(penstock_cancel_scope_cancel(scope, "enough"));
  return NULL;
}

static int32_t announce(syncer *self, penstock_hop *call) {
  atomic_fetch_add(&strangers, 1);
  return wait_in_next(self, call);
}

TEST(sync_cancel_frees_the_callers_function_in_next) {
  for (size_t mode = 0; mode < sizeof(modes) / sizeof(*modes); mode++) {
    penstock_runtime *runtime = new_runtime(modes[mode]);
    pair both;
    pair_open(&both, runtime, announce);
    penstock_call_options *options = NULL;
    penstock_cancel_scope *scope = NULL;
    OK(penstock_cancel_scope_new(&scope));
    OK(penstock_call_options_new("{\"metadata\": {\"x-delay-ms\": \"60000\"}}", &options, NULL));
    OK(penstock_call_options_set_cancel_scope(options, scope));
    pthread_t other;
    pthread_create(&other, NULL, cancel_when_entered, scope);
    penstock_reply *reply = NULL;
    OK(penstock_channel_unary(both.channel, UNARY, "x", 1, options, &reply, NULL));
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_CANCELLED);
    pthread_join(other, NULL);
    CHECK_INT(both.above.code, PENSTOCK_STATUS_CANCELLED);
    penstock_reply_release(reply);
    penstock_call_options_release(options);
    penstock_cancel_scope_release(scope);
    pair_close(&both, runtime);
  }
}

static int32_t stop_asking(void *user_data) {
  atomic_int *asked = user_data;
  return atomic_fetch_add(asked, 1) > 0;
}

/* An interruptible call is interrupted in a function's next, too: the same function of the program is asked. */
TEST(sync_interruption_reaches_the_callers_function_in_next) {
  for (size_t mode = 0; mode < sizeof(modes) / sizeof(*modes); mode += 3) {
    penstock_runtime *runtime = new_runtime(modes[mode]);
    pair both;
    atomic_int asked = 0;
    pair_open(&both, runtime, wait_in_next);
    penstock_call_options *options = NULL;
    OK(penstock_call_options_new("{\"interruptible\": true, \"metadata\": {\"x-delay-ms\": \"60000\"}}", &options,
                                 NULL));
    OK(penstock_call_options_set_on_interrupted(options, stop_asking, &asked, NULL));
    penstock_reply *reply = NULL;
    CHECK_RESULT(penstock_channel_unary(both.channel, UNARY, "x", 1, options, &reply, NULL), PENSTOCK_E_INTERRUPTED);
    CHECK_INT(asked, 2);
    CHECK_INT(both.below.code, PENSTOCK_STATUS_CANCELLED);
    CHECK_INT(both.above.code, PENSTOCK_STATUS_CANCELLED);
    penstock_call_options_release(options);
    pair_close(&both, runtime);
  }
}

/* ---- A hop above begins the call again ---- */

static int32_t restart_twice(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop;
  return event == PENSTOCK_EVENT_STATUS && atomic_load(&self->seen[event]) <= 2 ? PENSTOCK_RESTART : PENSTOCK_NEXT;
}

static int32_t fail_twice(syncer *self, penstock_hop *call) {
  CHECK_RESULT(penstock_hop_next(call), PENSTOCK_OK);
  if (self->runs <= 2) OK(penstock_hop_end(call, PENSTOCK_STATUS_UNAVAILABLE, "at first"));
  return PENSTOCK_NEXT;
}

static int32_t fail_at_first(syncer *self, penstock_hop *call) {
  CHECK_INT(own_value, 7);
  return fail_twice(self, call);
}

/* Opens a channel with a synchronous interceptor, and above it a probe that may restart the call. */
static void open_below(probe *top, pair *both, penstock_runtime *runtime, int32_t (*function)(syncer *, penstock_hop *),
                       int32_t (*restart)(probe *, penstock_hop *, int32_t), size_t restarts) {
  pair_open(both, runtime, function);
  probe_init_with(top, "top", restart, NULL);
  top->replay_bytes = 100;
  top->max_restarts = restarts;
  probe_add(top, both->channel, 10);
}

TEST(sync_functions_run_again_on_the_callers_thread) {
  own_value = 7;
  for (size_t mode = 0; mode < sizeof(modes) / sizeof(*modes); mode++) {
    penstock_runtime *runtime = new_runtime(modes[mode]);
    pair both;
    probe top;
    open_below(&top, &both, runtime, fail_at_first, restart_twice, 2);
    CHECK_INT(unary_code(both.channel, "x"), 0);
    CHECK_INT(both.above.runs, 3);
    CHECK_INT(both.below.runs, 3);
    CHECK_INT(threads_named(WORKER), 0);
    pair_close(&both, runtime);
    probe_wait_finalized(&top);
  }
}

static void note_success(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  CHECK_INT(penstock_reply_code(reply), 0);
  latch_signal(user_data);
}

/* No thread waits for the call, which is in callback style: each time workers run its functions. */
TEST(sync_functions_run_again_on_workers) {
  for (size_t mode = 0; mode < 3; mode++) {
    penstock_runtime *runtime = new_runtime(modes[mode]);
    pair both;
    probe top;
    open_below(&top, &both, runtime, fail_twice, restart_twice, 2);
    latch done = LATCH_INIT;
    penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
    table.user_data = &done;
    table.on_reply = note_success;
    penstock_call *call = NULL;
    REQUIRE_OK(penstock_channel_call(both.channel, UNARY, PENSTOCK_KIND_UNARY, NULL, &table, &call, NULL));
    OK(penstock_call_try_send(call, "x", 1));
    OK(penstock_call_half_close(call));
    latch_wait(&done, 1);
    CHECK_INT(both.above.runs, 3);
    CHECK_INT(both.below.runs, 3);
    penstock_call_release(call);
    pair_close(&both, runtime);
    probe_wait_finalized(&top);
  }
}

/* Each thread is among the workers for a while, many times, while others come and go. */
static void *fail_and_echo(void *user_data) {
  own_value = 7;
  for (int index = 0; index < 50; index++) {
    if (unary_code(user_data, "x") != 0) atomic_fetch_add(&strangers, 1);
  }
  return NULL;
}

static int32_t fail_every_second(syncer *self, penstock_hop *call) {
  CHECK_INT(own_value, 7);
  CHECK_RESULT(penstock_hop_next(call), PENSTOCK_OK);
  if (self->runs % 2 == 0 && penstock_hop_attempt(call) < 5) {
    penstock_hop_end(call, PENSTOCK_STATUS_UNAVAILABLE, "again");
  }
  return PENSTOCK_NEXT;
}

static int32_t restart_failures(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  bool failed =
      event == PENSTOCK_EVENT_STATUS && penstock_status_code(penstock_hop_status(hop)) == PENSTOCK_STATUS_UNAVAILABLE;
  return failed ? PENSTOCK_RESTART : PENSTOCK_NEXT;
}

TEST(sync_functions_run_again_on_sixteen_threads) {
  penstock_runtime *runtime = new_runtime(modes[0]);
  pair both;
  probe top;
  open_below(&top, &both, runtime, fail_every_second, restart_failures, 1000);
  pthread_t threads[16];
  for (int index = 0; index < 16; index++) pthread_create(&threads[index], NULL, fail_and_echo, both.channel);
  for (int index = 0; index < 16; index++) pthread_join(threads[index], NULL);
  CHECK_INT(strangers, 0);
  CHECK(both.above.runs > 16 * 50);
  CHECK_INT(threads_named(WORKER), 0);
  pair_close(&both, runtime);
  probe_wait_finalized(&top);
}

/* ---- Waits that are given up ---- */

static int32_t hold_request(probe *self, penstock_hop *hop, int32_t event) {
  if (event != PENSTOCK_EVENT_SEND) return PENSTOCK_NEXT;
  atomic_store((_Atomic penstock_ticket *)self->context, penstock_hop_ticket(hop));
  return PENSTOCK_PAUSE;
}

/* The thread that half-closed the call by waiting waits no longer when the function gets ready: a worker runs it. */
TEST(sync_workers_run_the_functions_of_a_wait_that_was_given_up) {
  penstock_runtime *runtime = new_runtime(modes[0]);
  pair both;
  probe top;
  _Atomic penstock_ticket ticket = 0;
  pair_open(&both, runtime, note_thread);
  probe_init_with(&top, "top", hold_request, (void *)&ticket);
  probe_add(&top, both.channel, 10);
  penstock_call_options *options = NULL;
  OK(penstock_call_options_new("{\"interruptible\": true}", &options, NULL));
  penstock_call *call = NULL;
  REQUIRE_OK(penstock_channel_call(both.channel, UNARY, PENSTOCK_KIND_UNARY, options, NULL, &call, NULL));
  OK(penstock_call_send(call, "x", 1));
  const penstock_metadata *headers = NULL;
  CHECK_RESULT(penstock_call_wait_headers(call, &headers), PENSTOCK_E_INTERRUPTED);
  CHECK_INT(both.above.runs, 0);
  own_value = 7;
  OK(penstock_ticket_resolve(ticket, PENSTOCK_NEXT));
  latch_wait(&both.below.done, 1);
  latch_wait(&both.above.done, 1);
  CHECK_INT(strangers, 4);
  penstock_reply *reply = NULL;
  while (penstock_call_wait(call, &reply) == PENSTOCK_E_INTERRUPTED) continue;
  CHECK_INT(penstock_reply_code(reply), 0);
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_call_options_release(options);
  pair_close(&both, runtime);
  probe_wait_finalized(&top);
}

/* ---- Threads in callbacks run no functions ---- */

static int32_t echo_in_callback(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop;
  if (event == PENSTOCK_EVENT_START) {
    own_value = 7;
    check_echo(((pair *)self->context)->channel);
    own_value = 0;
  }
  return PENSTOCK_NEXT;
}

static int32_t count_strangers(syncer *self, penstock_hop *call) {
  (void)self;
  if (own_value != 7) atomic_fetch_add(&strangers, 1);
  CHECK_RESULT(penstock_hop_next(call), PENSTOCK_OK);
  return PENSTOCK_NEXT;
}

/* The callback runs on the driving thread of its runtime, or on an executor; its call is on another runtime. */
TEST(sync_functions_do_not_run_on_a_thread_in_a_callback) {
  for (int on_executor = 0; on_executor < 2; on_executor++) {
    penstock_runtime *runtime = new_runtime("{\"max_workers\": 1}");
    penstock_executor *executor = NULL;
    pair both;
    probe outer;
    pair_open(&both, runtime, count_strangers);
    penstock_channel *channel = open_channel();
    probe_init_with(&outer, "outer", echo_in_callback, &both);
    penstock_interceptor table = probe_table(&outer);
    penstock_interceptor_id id = 0;
    if (on_executor) {
      OK(penstock_executor_new_serial(&executor));
      table.outbound_executor = executor;
    }
    OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
    check_echo(channel);
    CHECK_INT(both.below.runs, 1);
    CHECK_INT(strangers, 2);
    penstock_channel_release(channel);
    probe_wait_finalized(&outer);
    penstock_executor_release(executor);
    pair_close(&both, runtime);
  }
}

typedef struct joint {
  penstock_channel *channel;
  penstock_call *call;
  _Atomic penstock_ticket ticket;
} joint;

static int32_t wait_in_callback(probe *self, penstock_hop *hop, int32_t event) {
  joint *joint = self->context;
  const penstock_metadata *headers = NULL;
  (void)hop;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  penstock_ticket ticket;
  while ((ticket = atomic_load(&joint->ticket)) == 0) sched_yield();
  OK(penstock_ticket_resolve(ticket, PENSTOCK_NEXT));
  OK(penstock_call_wait_headers(joint->call, &headers));
  return PENSTOCK_NEXT;
}

static void *echo_elsewhere(void *argument) {
  check_echo(((joint *)argument)->channel);
  return NULL;
}

/* Two threads wait when the functions get ready: the one that has made the call, and one in a callback. Whichever looks
 * first, the functions run; if it is the one in the callback, on a worker, which does not exist yet. */
TEST(sync_functions_run_whichever_waiting_thread_looks_first) {
  for (int round = 0; round < 40; round++) {
    penstock_runtime *runtime = new_runtime(modes[1]);
    pair both;
    probe top, outer;
    joint joint = {.channel = open_channel()};
    pair_open(&both, runtime, note_thread);
    probe_init_with(&top, "top", hold_request, (void *)&joint.ticket);
    probe_add(&top, both.channel, 10);
    probe_init_with(&outer, "outer", wait_in_callback, &joint);
    probe_add(&outer, joint.channel, 0);
    REQUIRE_OK(penstock_channel_call(both.channel, UNARY, PENSTOCK_KIND_UNARY, NULL, NULL, &joint.call, NULL));
    OK(penstock_call_send(joint.call, "x", 1));
    pthread_t thread;
    pthread_create(&thread, NULL, echo_elsewhere, &joint);
    penstock_reply *reply = NULL;
    OK(penstock_call_wait(joint.call, &reply));
    CHECK_INT(penstock_reply_code(reply), 0);
    penstock_reply_release(reply);
    pthread_join(thread, NULL);
    penstock_call_release(joint.call);
    penstock_channel_release(joint.channel);
    probe_wait_finalized(&outer);
    pair_close(&both, runtime);
    probe_wait_finalized(&top);
  }
}
