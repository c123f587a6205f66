/* sync.h: what a function's hop does while the function waits in next, with more messages than the call's kind has or in
 * another order, and with an executor's job that the function runs. */
#include "pool.h"
#include "syncer.h"

/* Another interceptor of the same kind, below the first. */
typedef struct pair {
  syncer above, below;
  penstock_channel *channel;
} pair;

static void pair_open(pair *both, penstock_runtime *runtime, int32_t (*above)(syncer *, penstock_hop *),
                      int32_t (*below)(syncer *, penstock_hop *)) {
  both->channel = open_channel_on(runtime);
  syncer_init(&both->above, above);
  syncer_init(&both->below, below);
  syncer_add(&both->above, both->channel, 2);
  syncer_add(&both->below, both->channel, 1);
}

static void pair_close(pair *both, penstock_runtime *runtime) {
  penstock_channel_release(both->channel);
  OK(penstock_runtime_shutdown(runtime, test_patience_ms()));
  CHECK_INT(both->above.finalized, 1);
  CHECK_INT(both->below.finalized, 1);
  penstock_runtime_release(runtime);
}

/* ---- A hop whose function waits in next ---- */

/* The hop of the function that waits. */
static penstock_hop *waiting;

static int32_t wait_and_see(syncer *self, penstock_hop *call) {
  waiting = call;
  penstock_result result = penstock_hop_next(call);
  self->code = result == PENSTOCK_E_GONE ? penstock_status_code(penstock_hop_status(call)) : (int)result;
  return PENSTOCK_NEXT;
}

static int32_t end_above(syncer *self, penstock_hop *call) {
  CHECK_RESULT(penstock_hop_next(waiting), PENSTOCK_E_GONE);
  CHECK_RESULT(penstock_hop_set_bytes(waiting, "x", 1), PENSTOCK_E_STATE);
  CHECK_RESULT(answer_hop(waiting, NULL), PENSTOCK_E_STATE);
  OK(penstock_hop_end(waiting, PENSTOCK_STATUS_ABORTED, "from within"));
  penstock_result again = penstock_hop_end(waiting, PENSTOCK_STATUS_ABORTED, "twice");
  CHECK(again == PENSTOCK_E_ALREADY || again == PENSTOCK_E_GONE); /* GONE: the end was carried out already */
  return wait_and_see(self, call);
}

/* The function below runs on the thread of the one above, which is in next: it ends the call at the hop above, as any
 * thread may. */
TEST(sync_function_ends_the_call_at_a_hop_whose_function_waits) {
  static const char *const modes[] = {"{}", "{\"mode\": \"host\"}"};
  for (size_t mode = 0; mode < sizeof(modes) / sizeof(*modes); mode++) {
    penstock_runtime *runtime = new_runtime(modes[mode]);
    pair both;
    pair_open(&both, runtime, wait_and_see, end_above);
    check_unary(both.channel, "{\"deadline_ms\": 5000}", PENSTOCK_STATUS_ABORTED, NULL, "from within");
    CHECK_INT(both.above.code, PENSTOCK_STATUS_UNKNOWN); /* of NULL: the hop itself has ended the call */
    CHECK_INT(both.below.code, PENSTOCK_STATUS_ABORTED);
    pair_close(&both, runtime);
  }
}

/* ---- More messages than the kind of call has ---- */

static int32_t send_two_more(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_SEND) return PENSTOCK_NEXT;
  OK(penstock_hop_send(hop, "one", 3));
  OK(penstock_hop_send(hop, "two", 3));
  return PENSTOCK_NEXT;
}

static int32_t sees_the_first(syncer *self, penstock_hop *call) {
  (void)self;
  CHECK(request_is(call, "one"));
  penstock_hop_next(call);
  return PENSTOCK_NEXT;
}

/* The function sees the first request message, and the call ends with INTERNAL below; in blocking style the messages come
 * before the half-close that the function waits for. */
TEST(sync_hop_lets_further_request_messages_pass) {
  penstock_runtime *runtime = new_runtime("{}");
  penstock_channel *channel = open_channel_on(runtime);
  probe top;
  syncer sync;
  probe_init_with(&top, "top", send_two_more, NULL);
  probe_add(&top, channel, 10);
  syncer_init(&sync, sees_the_first);
  syncer_add(&sync, channel, 0);
  check_unary(channel, "{\"deadline_ms\": 5000}", PENSTOCK_STATUS_INTERNAL, NULL, NULL);
  penstock_call_options *options = NULL;
  OK(penstock_call_options_new("{\"deadline_ms\": 5000}", &options, NULL));
  penstock_call *call = NULL;
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_call(channel, UNARY, PENSTOCK_KIND_UNARY, options, NULL, &call, NULL));
  OK(penstock_call_send(call, "three", 5));
  EVENTUALLY(atomic_load(&top.seen[PENSTOCK_EVENT_SEND]) == 2);
  OK(penstock_call_wait(call, &reply));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_INTERNAL);
  CHECK_INT(sync.runs, 2);
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  OK(penstock_runtime_shutdown(runtime, test_patience_ms()));
  penstock_runtime_release(runtime);
  CHECK_INT(sync.finalized, 1);
  probe_wait_finalized(&top);
}

/* ---- A message in front of the headers ---- */

static int32_t deliver_early(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_START) OK(penstock_hop_deliver(hop, "early", 5));
  return event == PENSTOCK_EVENT_RECEIVE ? PENSTOCK_DROP : PENSTOCK_NEXT;
}

static int32_t sees_message_and_headers(syncer *self, penstock_hop *call) {
  (void)self;
  OK(penstock_hop_next(call));
  CHECK(response_is(call, "early"));
  CHECK(penstock_hop_metadata(call) != NULL);
  CHECK_INT(penstock_status_code(penstock_hop_status(call)), PENSTOCK_STATUS_OK);
  OK(penstock_hop_set_bytes(call, "changed", 7));
  return PENSTOCK_NEXT;
}

/* A hop below delivers a message before the server's headers come; they wait at the hop behind it. */
TEST(sync_hop_takes_headers_behind_a_message) {
  syncer sync;
  probe bottom;
  penstock_channel *channel = bench_open(&sync, sees_message_and_headers);
  probe_init_with(&bottom, "bottom", deliver_early, NULL);
  probe_add(&bottom, channel, -1);
  check_unary(channel, "{\"deadline_ms\": 5000}", PENSTOCK_STATUS_OK, "changed", NULL);
  CHECK_INT(sync.runs, 1);
  bench_close(&sync, channel);
  probe_wait_finalized(&bottom);
}

/* ---- Callbacks in a function ---- */

static __thread bool is_in_callback;
static atomic_int strangers;

static int32_t echo_in_callback(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop;
  if (event == PENSTOCK_EVENT_START) {
    is_in_callback = true;
    check_echo(((pair *)self->context)->channel);
    is_in_callback = false;
  }
  return PENSTOCK_NEXT;
}

static int32_t count_strangers(syncer *self, penstock_hop *call) {
  (void)self;
  if (!is_in_callback) atomic_fetch_add(&strangers, 1);
  CHECK_RESULT(penstock_hop_next(call), PENSTOCK_OK);
  return PENSTOCK_NEXT;
}

static void *echo(void *channel) {
  check_echo(channel);
  return NULL;
}

static int32_t pass(syncer *self, penstock_hop *call) {
  (void)self;
  OK(penstock_hop_next(call));
  return PENSTOCK_NEXT;
}

/* The thread whose function waits in next drives the loop, and so runs a callback, which calls another runtime. */
TEST(sync_functions_do_not_run_on_a_thread_in_a_callback_within_a_function) {
  penstock_runtime *runtime = new_runtime("{\"max_workers\": 1}");
  penstock_runtime *host = new_runtime("{\"mode\": \"host\"}");
  pair both, driven;
  probe bottom;
  pair_open(&both, runtime, count_strangers, count_strangers);
  pair_open(&driven, host, pass, pass);
  probe_init_with(&bottom, "bottom", echo_in_callback, &both);
  probe_add(&bottom, driven.channel, -1);
  atomic_store(&strangers, 0);
  check_echo(driven.channel);
  CHECK_INT(driven.below.runs, 1);
  CHECK_INT(both.below.runs, 1);
  CHECK_INT(strangers, 2);
  pair_close(&driven, host);
  probe_wait_finalized(&bottom);
  pair_close(&both, runtime);
}

/* The executor of a program that runs its jobs where it likes. */
static pool jobs;
static penstock_channel *with_jobs;

static int32_t run_a_job(syncer *self, penstock_hop *call) {
  pthread_t other;
  (void)self;
  pthread_create(&other, NULL, echo, with_jobs);
  EVENTUALLY(atomic_load(&jobs.taken) == 1);
  pthread_mutex_lock(&jobs.mutex);
  jobs.first = 1;
  jobs.count = 0;
  pthread_mutex_unlock(&jobs.mutex);
  jobs.queue[0].job(jobs.queue[0].argument);
  /* A thread of the pool runs the other jobs of the call. */
  jobs.thread_count = 1;
  if (pthread_create(&jobs.threads[0], NULL, pool_work, &jobs)) abort();
  pthread_join(other, NULL);
  return penstock_hop_next(call) == PENSTOCK_OK ? PENSTOCK_NEXT : 77;
}

/* The job runs on a thread that may run functions, within one of them. But it is a callback of an executor, whose calls
 * have their functions run by workers. */
TEST(sync_functions_do_not_run_on_a_thread_in_a_job_within_a_function) {
  penstock_runtime *runtime = new_runtime("{\"max_workers\": 1}");
  pair both;
  probe outer;
  syncer runner;
  pair_open(&both, runtime, count_strangers, count_strangers);
  pool_open(&jobs, 0);
  with_jobs = open_channel();
  probe_init_with(&outer, "outer", echo_in_callback, &both);
  add_on(with_jobs, &outer, 0, jobs.executor, NULL);
  penstock_channel *channel = bench_open(&runner, run_a_job);
  atomic_store(&strangers, 0);
  check_echo(channel);
  CHECK_INT(both.below.runs, 1);
  CHECK_INT(strangers, 2);
  bench_close(&runner, channel);
  penstock_channel_release(with_jobs);
  probe_wait_finalized(&outer);
  pool_close(&jobs);
  pair_close(&both, runtime);
}
