/* executor.h: executors by themselves, and as where an interceptor's callbacks run. */
#include "test.h"

#include <unistd.h>

/* ---- A pool of threads: an executor of the test's own ---- */

typedef struct pool {
  penstock_executor *executor;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  struct {
    penstock_job job;
    void *argument;
  } queue[256];
  size_t first, count;
  int thread_count;
  pthread_t threads[4];
  bool blocked, stopped;
  atomic_int taken, finalized;
  /* So many more are taken; negative: all. */
  int accepts;
} pool;

/* Which pool's thread this is. */
static __thread pool *own_pool;

static void *pool_work(void *argument) {
  pool *self = argument;
  own_pool = self;
  pthread_mutex_lock(&self->mutex);
  while (!self->stopped || self->count > 0) {
    if (self->count == 0 || self->blocked) {
      pthread_cond_wait(&self->changed, &self->mutex);
      continue;
    }
    size_t at = self->first;
    self->first = (at + 1) % 256;
    self->count--;
    penstock_job job = self->queue[at].job;
    void *given = self->queue[at].argument;
    pthread_mutex_unlock(&self->mutex);
    job(given);
    pthread_mutex_lock(&self->mutex);
  }
  pthread_mutex_unlock(&self->mutex);
  return NULL;
}

static int32_t pool_submit(penstock_job job, void *argument, void *user_data) {
  pool *self = user_data;
  pthread_mutex_lock(&self->mutex);
  if (self->accepts == 0) {
    pthread_mutex_unlock(&self->mutex);
    return -1;
  }
  if (self->accepts > 0) self->accepts--;
  if (self->count == 256) abort();
  size_t at = (self->first + self->count++) % 256;
  self->queue[at].job = job;
  self->queue[at].argument = argument;
  atomic_fetch_add(&self->taken, 1);
  pthread_cond_signal(&self->changed);
  pthread_mutex_unlock(&self->mutex);
  return 0;
}

static void pool_finalize(void *user_data) { atomic_fetch_add(&((pool *)user_data)->finalized, 1); }

static void pool_open(pool *self, int threads) {
  memset(self, 0, sizeof(*self));
  pthread_mutex_init(&self->mutex, NULL);
  pthread_cond_init(&self->changed, NULL);
  self->accepts = -1;
  self->thread_count = threads;
  for (int i = 0; i < threads; i++) {
    if (pthread_create(&self->threads[i], NULL, pool_work, self)) abort();
  }
  OK(penstock_executor_new(pool_submit, self, pool_finalize, &self->executor));
}

static void pool_block(pool *self, bool blocked) {
  pthread_mutex_lock(&self->mutex);
  self->blocked = blocked;
  pthread_cond_broadcast(&self->changed);
  pthread_mutex_unlock(&self->mutex);
}

/* Once nothing else has the executor. */
static void pool_close(pool *self) {
  penstock_executor_release(self->executor);
  EVENTUALLY(atomic_load(&self->finalized) == 1);
  pthread_mutex_lock(&self->mutex);
  self->stopped = true;
  pthread_cond_broadcast(&self->changed);
  pthread_mutex_unlock(&self->mutex);
  for (int i = 0; i < self->thread_count; i++) pthread_join(self->threads[i], NULL);
  CHECK_INT(self->count, 0);
}

static penstock_interceptor_id add_on(penstock_channel *channel, probe *probe, int32_t priority,
                                      penstock_executor *outbound, penstock_executor *inbound) {
  penstock_interceptor table = probe_table(probe);
  table.outbound_executor = outbound;
  table.inbound_executor = inbound;
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, &table, priority, &id, NULL));
  return id;
}

static bool is_outbound(int32_t event) {
  return event == PENSTOCK_EVENT_START || event == PENSTOCK_EVENT_SEND || event == PENSTOCK_EVENT_HALF_CLOSE ||
         event == PENSTOCK_EVENT_SENT;
}

/* A bidi echo of `count` numbered messages. */
static void exchange(penstock_channel *channel, int count) {
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  if (!call) return;
  for (int i = 0; i < count; i++) OK(penstock_call_send(call, &i, sizeof(i)));
  OK(penstock_call_half_close(call));
  for (int i = 0; i < count; i++) {
    penstock_message *message = NULL;
    if (!OK(penstock_call_receive(call, &message))) break;
    int got = -1;
    if (CHECK_INT(penstock_message_length(message), sizeof(got))) memcpy(&got, penstock_message_data(message), 4);
    CHECK_INT(got, i);
    penstock_message_release(message);
  }
  penstock_reply *reply = NULL;
  if (OK(penstock_call_finish(call, &reply))) {
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
    penstock_reply_release(reply);
  }
  penstock_call_release(call);
}

/* ---- Executors by themselves ---- */

TEST(executor_user_data_is_finalized_with_the_last_reference) {
  atomic_int finalized = 0;
  penstock_executor *executor = NULL;
  REQUIRE_OK(penstock_executor_new(pool_submit, &finalized, count_up, &executor));
  CHECK(penstock_executor_retain(executor) == executor);
  penstock_executor_release(executor);
  CHECK_INT(atomic_load(&finalized), 0);
  penstock_executor_release(executor);
  CHECK_INT(atomic_load(&finalized), 1);
}

TEST(executor_serial_thread_ends_with_the_last_reference) {
  static const char thread[] = "penstock-exec";
  EVENTUALLY(threads_named(thread) == 0);
  penstock_executor *executor = NULL;
  REQUIRE_OK(penstock_executor_serial_new(&executor));
  CHECK(penstock_executor_retain(executor) == executor);
  penstock_executor_release(executor);
  EVENTUALLY(threads_named(thread) == 1);
  penstock_executor_release(executor);
  EVENTUALLY(threads_named(thread) == 0);
}

/* ---- Order ---- */

typedef struct tracked {
  atomic_int *executed; /* how many callbacks ran on a pool's thread */
  bool shares;          /* one executor for both lanes */
  atomic_int inside[2], together;
  int next_sent, next_received;
} tracked;

typedef struct tracker {
  bool shares;
  atomic_int executed, destroyed;
} tracker;

static int32_t track_create(penstock_hop *hop, void *user_data, void **state) {
  (void)hop;
  CHECK(own_pool == NULL);
  tracked *mine = calloc(1, sizeof(*mine));
  mine->executed = &((tracker *)user_data)->executed;
  mine->shares = ((tracker *)user_data)->shares;
  *state = mine;
  return PENSTOCK_NEXT;
}
static int32_t track(penstock_hop *hop, void *state) {
  tracked *mine = state;
  int32_t event = penstock_hop_event(hop);
  atomic_int *inside = &mine->inside[is_outbound(event)];
  CHECK_INT(atomic_fetch_add(inside, 1), 0);
  int together = atomic_fetch_add(&mine->together, 1);
  if (mine->shares) CHECK_INT(together, 0);
  CHECK(own_pool != NULL);
  atomic_fetch_add(mine->executed, 1);
  if (event == PENSTOCK_EVENT_SEND || event == PENSTOCK_EVENT_RECEIVE) {
    const void *data = NULL;
    size_t length = 0;
    int number = -1;
    OK(penstock_hop_message(hop, &data, &length));
    if (CHECK_INT(length, sizeof(number))) memcpy(&number, data, sizeof(number));
    CHECK_INT(number, event == PENSTOCK_EVENT_SEND ? mine->next_sent++ : mine->next_received++);
  }
  atomic_fetch_sub(&mine->together, 1);
  atomic_fetch_sub(inside, 1);
  return PENSTOCK_NEXT;
}
static tracker *current_tracker;
static void track_destroy(penstock_hop *hop, void *state) {
  track(hop, state);
  tracked *mine = state;
  CHECK_INT(mine->next_sent, 5);
  CHECK_INT(mine->next_received, 5);
  atomic_fetch_add(&current_tracker->destroyed, 1);
  free(mine);
}

static void *exchange_some(void *argument) {
  for (int i = 0; i < 10; i++) exchange(argument, 5);
  return NULL;
}

static void run_many(bool shares) {
  tracker tracker = {.shares = shares};
  current_tracker = &tracker;
  pool out, in;
  pool_open(&out, 4);
  pool_open(&in, 4);
  penstock_channel *channel = open_channel();
  for (int i = 0; i < 2; i++) {
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    table.user_data = &tracker;
    table.create = track_create;
    table.destroy = track_destroy;
    table.on_start = table.on_send = table.on_half_close = table.on_headers = track;
    table.on_receive = table.on_status = table.on_demand = table.on_sent = track;
    table.outbound_executor = out.executor;
    table.inbound_executor = shares ? out.executor : in.executor;
    penstock_interceptor_id id = 0;
    OK(penstock_channel_add_interceptor(channel, &table, i, &id, NULL));
  }
  pthread_t callers[20];
  int count = test_rounds(20);
  for (int i = 0; i < count; i++) {
    if (pthread_create(&callers[i], NULL, exchange_some, channel)) abort();
  }
  for (int i = 0; i < count; i++) pthread_join(callers[i], NULL);
  /* destroy comes when it comes. */
  EVENTUALLY(atomic_load(&tracker.destroyed) == 20 * count);
  /* start, 5 messages each way, half-close, headers, status, destroy, and a few demands and sents. */
  CHECK(atomic_load(&tracker.executed) >= 20 * count * 15);
  penstock_channel_release(channel);
  pool_close(&out);
  pool_close(&in);
}

TEST(law_1_executor_keeps_the_order_of_200_calls) { run_many(false); }
TEST(law_1_executor_for_both_lanes_runs_one_callback_at_a_time) { run_many(true); }

/* ---- Where callbacks run ---- */

typedef struct two_pools {
  pool *outbound, *inbound;
} two_pools;

/* destroy runs where the inbound lane does, or on the outbound executor if that is the only one. */
static int32_t check_pool(probe *self, penstock_hop *hop, int32_t event) {
  two_pools *expected = self->context;
  (void)hop;
  if (event == PENSTOCK_EVENT_CREATE) {
    CHECK(own_pool == NULL);
  } else if (event == PENSTOCK_EVENT_DESTROY && !expected->inbound) {
    CHECK(own_pool == expected->outbound);
  } else {
    CHECK(own_pool == (is_outbound(event) ? expected->outbound : expected->inbound));
  }
  return PENSTOCK_NEXT;
}

TEST(executor_of_each_lane) {
  pool out, in;
  pool_open(&out, 2);
  pool_open(&in, 2);
  probe both, outbound, inbound;
  two_pools expected_both = {&out, &in}, expected_outbound = {&out, NULL}, expected_inbound = {NULL, &in};
  probe_init(&both, "both");
  probe_init(&outbound, "outbound");
  probe_init(&inbound, "inbound");
  both.hook = outbound.hook = inbound.hook = check_pool;
  both.context = &expected_both;
  outbound.context = &expected_outbound;
  inbound.context = &expected_inbound;
  penstock_channel *channel = open_channel();
  add_on(channel, &both, 3, out.executor, in.executor);
  add_on(channel, &outbound, 2, out.executor, NULL);
  add_on(channel, &inbound, 1, NULL, in.executor);
  exchange(channel, 5);
  check_echo(channel);
  penstock_channel_release(channel);
  probe_wait_finalized(&both);
  probe_wait_finalized(&outbound);
  probe_wait_finalized(&inbound);
  CHECK_INT(atomic_load(&both.seen[PENSTOCK_EVENT_DESTROY]), 2);
  pool_close(&out);
  pool_close(&in);
}

typedef struct chosen {
  pool *outbound, *inbound;
  bool clears;
} chosen;
static int32_t choose(probe *self, penstock_hop *hop, int32_t event) {
  chosen *choice = self->context;
  if (event == PENSTOCK_EVENT_CREATE) {
    OK(penstock_hop_set_executors(hop, choice->clears ? NULL : choice->outbound->executor,
                                  choice->clears ? NULL : choice->inbound->executor));
    return PENSTOCK_NEXT;
  }
  /* A job that comes after the hop's end is late for everything. */
  penstock_result result = penstock_hop_set_executors(hop, NULL, NULL);
  CHECK(result == PENSTOCK_E_STATE || result == PENSTOCK_E_GONE);
  if (choice->clears) {
    CHECK(own_pool == NULL);
  } else {
    CHECK(own_pool == (is_outbound(event) ? choice->outbound : choice->inbound));
  }
  return PENSTOCK_NEXT;
}
TEST(executor_chosen_in_create) {
  pool first, second;
  pool_open(&first, 1);
  pool_open(&second, 1);
  probe probe;
  chosen choice = {&second, &first, false};
  probe_init(&probe, "chooser");
  probe.hook = choose;
  probe.context = &choice;
  penstock_channel *channel = open_channel();
  add_on(channel, &probe, 0, first.executor, NULL);
  exchange(channel, 3);
  latch_wait(&probe.done, 1);
  choice.clears = true;
  exchange(channel, 3);
  latch_wait(&probe.done, 2);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
  pool_close(&first);
  pool_close(&second);
}

static int32_t run_at_once(penstock_job job, void *argument, void *user_data) {
  atomic_fetch_add((atomic_int *)user_data, 1);
  job(argument);
  return 0;
}
TEST(executor_that_runs_jobs_within_submit) {
  atomic_int jobs = 0;
  penstock_executor *executor = NULL;
  REQUIRE_OK(penstock_executor_new(run_at_once, &jobs, NULL, &executor));
  probe above, below;
  probe_init(&above, "above");
  probe_init(&below, "below");
  penstock_channel *channel = open_channel();
  add_on(channel, &above, 1, executor, executor);
  add_on(channel, &below, 0, executor, executor);
  penstock_executor_release(executor);
  exchange(channel, 20);
  check_echo(channel);
  CHECK(atomic_load(&jobs) > 2 * 2 * 20);
  penstock_channel_release(channel);
  probe_wait_finalized(&above);
  probe_wait_finalized(&below);
  CHECK_INT(atomic_load(&above.seen[PENSTOCK_EVENT_RECEIVE]), 21);
  CHECK_INT(atomic_load(&below.seen[PENSTOCK_EVENT_DESTROY]), 2);
}

TEST(executor_serial_on_a_runtime) {
  penstock_executor *executor = NULL;
  REQUIRE_OK(penstock_executor_serial_new(&executor));
  probe probe;
  probe_init(&probe, "serial");
  penstock_interceptor table = probe_table(&probe);
  table.outbound_executor = table.inbound_executor = executor;
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_interceptor_id id = 0;
  OK(penstock_runtime_add_interceptor(runtime, &table, 0, &id, NULL));
  penstock_executor_release(executor); /* the registration and the calls have it */
  penstock_channel *channel = open_channel_on(runtime);
  for (int i = 0; i < 5; i++) exchange(channel, 10);
  OK(penstock_runtime_remove_interceptor(runtime, id, NULL));
  penstock_runtime_release(runtime);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
  CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_DESTROY]), 5);
}

/* ---- What callbacks may do there ---- */

static int32_t use_everything(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  const void *data = NULL;
  size_t length = 0;
  if (event == PENSTOCK_EVENT_START) {
    CHECK_STR(penstock_hop_method(hop), "/other.Service/Method");
    OK(penstock_hop_set_method(hop, UNARY));
    CHECK_STR(penstock_hop_method(hop), UNARY);
    OK(penstock_metadata_set(penstock_hop_metadata(hop), "x-trailers-mine", "1"));
    OK(penstock_hop_set_deadline_ms(hop, 60000));
    CHECK(penstock_hop_deadline_ms(hop) > 50000);
    OK(penstock_hop_set_value(hop, "k", (void *)7, NULL));
  }
  if (event == PENSTOCK_EVENT_SEND) {
    OK(penstock_hop_message(hop, &data, &length));
    CHECK_INT(length, 4);
    OK(penstock_hop_set_message(hop, "request", 7));
    CHECK(penstock_hop_get_value(hop, "k") == (void *)7);
  }
  if (event == PENSTOCK_EVENT_HEADERS) OK(penstock_metadata_set(penstock_hop_metadata(hop), "x-mine", "2"));
  if (event == PENSTOCK_EVENT_RECEIVE) {
    OK(penstock_hop_message(hop, &data, &length));
    CHECK(length == 7 && memcmp(data, "request", 7) == 0);
    OK(penstock_hop_set_message(hop, "response", 8));
  }
  if (event == PENSTOCK_EVENT_STATUS) {
    OK(penstock_status_set_message(penstock_hop_status(hop), "mine"));
    OK(penstock_metadata_get(penstock_hop_metadata(hop), "x-trailers-mine", 0, &data, &length));
  }
  if (event == PENSTOCK_EVENT_DEMAND) OK(penstock_hop_set_count(hop, penstock_hop_count(hop)));
  return PENSTOCK_NEXT;
}
TEST(executor_callbacks_may_change_everything) {
  pool pool;
  pool_open(&pool, 4);
  probe probe;
  probe_init(&probe, "editor");
  probe.hook = use_everything;
  penstock_channel *channel = open_channel();
  add_on(channel, &probe, 0, pool.executor, pool.executor);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, "/other.Service/Method", "ping", 4, NULL, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
  CHECK_STR(penstock_status_message(penstock_reply_status(reply)), "mine");
  size_t length = 0;
  const char *message = penstock_reply_message(reply, &length);
  CHECK(length == 8 && memcmp(message, "response", 8) == 0);
  const void *value = NULL;
  OK(penstock_metadata_get(penstock_reply_headers(reply), "x-mine", 0, &value, &length));
  CHECK(penstock_reply_value(reply, "k") == (void *)7);
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
  pool_close(&pool);
}

typedef struct resolver {
  pthread_mutex_t mutex;
  penstock_ticket open[3];
  int count;
} resolver;

/* PAUSE at some events, its ticket resolved by a later job or by the test; HOLD of the first messages; an injection. */
static int32_t defer(probe *self, penstock_hop *hop, int32_t event) {
  resolver *plan = self->context;
  if (event == PENSTOCK_EVENT_START || event == PENSTOCK_EVENT_STATUS) {
    penstock_ticket ticket = penstock_hop_ticket(hop);
    CHECK(ticket != 0);
    if (event == PENSTOCK_EVENT_START) {
      OK(penstock_ticket_resume(ticket)); /* before the callback has returned */
    } else {
      OK(penstock_ticket_resume_after(ticket, 1));
    }
    return PENSTOCK_PAUSE;
  }
  if (event == PENSTOCK_EVENT_SEND && plan->count < 3) {
    pthread_mutex_lock(&plan->mutex);
    plan->open[plan->count++] = penstock_hop_ticket(hop);
    bool full = plan->count == 3;
    pthread_mutex_unlock(&plan->mutex);
    if (full) {
      /* In any order; they leave in theirs. */
      OK(penstock_ticket_resume(plan->open[1]));
      OK(penstock_ticket_resume(plan->open[0]));
      OK(penstock_ticket_resume(plan->open[2]));
    }
    return PENSTOCK_HOLD;
  }
  if (event == PENSTOCK_EVENT_HEADERS) return PENSTOCK_HOLD; /* until the first message */
  if (event == PENSTOCK_EVENT_HALF_CLOSE) {
    int last = 4;
    OK(penstock_hop_send_message(hop, &last, sizeof(last)));
  }
  return PENSTOCK_NEXT;
}
TEST(executor_callbacks_may_defer_and_inject) {
  pool pool;
  pool_open(&pool, 4);
  for (int shared = 0; shared < 2; shared++) {
    probe probe;
    resolver plan = {.mutex = PTHREAD_MUTEX_INITIALIZER};
    probe_init(&probe, "defers");
    probe.hook = defer;
    probe.context = &plan;
    penstock_channel *channel = open_channel();
    add_on(channel, &probe, 0, pool.executor, shared ? pool.executor : NULL);
    penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
    for (int i = 0; i < 4; i++) OK(penstock_call_send(call, &i, sizeof(i)));
    OK(penstock_call_half_close(call));
    for (int i = 0; i < 5; i++) {
      penstock_message *message = NULL;
      int got = -1;
      if (!OK(penstock_call_receive(call, &message))) break;
      memcpy(&got, penstock_message_data(message), sizeof(got));
      CHECK_INT(got, i);
      penstock_message_release(message);
    }
    penstock_reply *reply = NULL;
    if (OK(penstock_call_finish(call, &reply))) {
      CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
      CHECK(penstock_reply_headers(reply) != NULL);
      penstock_reply_release(reply);
    }
    penstock_call_release(call);
    penstock_channel_release(channel);
    latch_wait(&probe.done, 1);
    probe_wait_finalized(&probe);
  }
  pool_close(&pool);
}

typedef struct finishing {
  int32_t event;
} finishing;
static int32_t finish_there(probe *self, penstock_hop *hop, int32_t event) {
  if (event != ((finishing *)self->context)->event) return PENSTOCK_NEXT;
  OK(penstock_hop_finish(hop, PENSTOCK_STATUS_DATA_LOSS, "here"));
  CHECK_RESULT(penstock_hop_finish(hop, PENSTOCK_STATUS_ABORTED, "again"), PENSTOCK_E_ALREADY);
  return PENSTOCK_NEXT;
}
TEST(law_2_executor_callbacks_may_finish) {
  static const int32_t events[] = {PENSTOCK_EVENT_START,   PENSTOCK_EVENT_SEND,    PENSTOCK_EVENT_HALF_CLOSE,
                                   PENSTOCK_EVENT_HEADERS, PENSTOCK_EVENT_RECEIVE, PENSTOCK_EVENT_STATUS,
                                   PENSTOCK_EVENT_DEMAND,  PENSTOCK_EVENT_SENT};
  pool pool;
  pool_open(&pool, 4);
  for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
    probe above, here, below;
    finishing plan = {events[i]};
    probe_init(&above, "above");
    probe_init(&here, "here");
    probe_init(&below, "below");
    here.hook = finish_there;
    here.context = &plan;
    penstock_channel *channel = open_channel();
    add_on(channel, &above, 3, pool.executor, pool.executor);
    add_on(channel, &here, 2, pool.executor, pool.executor);
    add_on(channel, &below, 1, pool.executor, pool.executor);
    penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
    penstock_call_send(call, "x", 1);
    penstock_call_half_close(call);
    penstock_message *message = NULL;
    if (penstock_call_receive(call, &message) == PENSTOCK_OK) penstock_message_release(message);
    penstock_reply *reply = NULL;
    if (OK(penstock_call_finish(call, &reply))) {
      CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_DATA_LOSS);
      penstock_reply_release(reply);
    }
    penstock_call_release(call);
    penstock_channel_release(channel);
    probe *all[] = {&above, &here, &below};
    for (int k = 0; k < 3; k++) {
      probe_wait_finalized(all[k]);
      CHECK_INT(latch_count(&all[k]->done), atomic_load(&all[k]->seen[PENSTOCK_EVENT_CREATE]));
    }
    CHECK_INT(atomic_load(&above.seen[PENSTOCK_EVENT_STATUS]), 1);
    CHECK_INT(atomic_load(&above.seen[PENSTOCK_EVENT_CANCEL]), 0);
    CHECK_INT(atomic_load(&here.seen[PENSTOCK_EVENT_CANCEL]), 0);
  }
  pool_close(&pool);
}

/* TAKE, answered from other jobs. */
static int32_t answer(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_START) {
    OK(penstock_hop_deliver_headers(hop, NULL));
    return PENSTOCK_TAKE;
  }
  if (event == PENSTOCK_EVENT_SEND) {
    const void *data = NULL;
    size_t length = 0;
    OK(penstock_hop_message(hop, &data, &length));
    OK(penstock_hop_deliver_message(hop, data, length));
  }
  if (event == PENSTOCK_EVENT_HALF_CLOSE) {
    penstock_status *status = NULL;
    OK(penstock_status_new(PENSTOCK_STATUS_OK, "taken", &status));
    OK(penstock_hop_deliver_status(hop, status));
    penstock_status_release(status);
  }
  return PENSTOCK_NEXT;
}
TEST(executor_callbacks_may_take) {
  pool pool;
  pool_open(&pool, 4);
  probe probe;
  probe_init(&probe, "stub");
  probe.hook = answer;
  penstock_channel *channel = open_channel();
  add_on(channel, &probe, 0, pool.executor, pool.executor);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, "/no.Such/Method", "ping", 4, NULL, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
  CHECK_STR(penstock_status_message(penstock_reply_status(reply)), "taken");
  size_t length = 0;
  penstock_reply_message(reply, &length);
  CHECK_INT(length, 4);
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
  pool_close(&pool);
}

/* RESTART from a job, while the caller sends. */
static int32_t restart_there(probe *self, penstock_hop *hop, int32_t event) {
  atomic_int *restarts = self->context;
  if (event != PENSTOCK_EVENT_STATUS) return PENSTOCK_NEXT;
  if (penstock_status_code(penstock_hop_status(hop)) != PENSTOCK_STATUS_UNAUTHENTICATED) return PENSTOCK_NEXT;
  OK(penstock_hop_can_restart(hop));
  OK(penstock_metadata_set(penstock_hop_request_metadata(hop), "x-new", "1"));
  atomic_fetch_add(restarts, 1);
  return PENSTOCK_RESTART;
}
static int32_t refuse_old(probe *self, penstock_hop *hop, int32_t event) {
  const void *value = NULL;
  (void)self;
  if (event == PENSTOCK_EVENT_START) {
    bool is_new = penstock_metadata_get(penstock_hop_metadata(hop), "x-new", 0, &value, NULL) == PENSTOCK_OK;
    if (!is_new) OK(penstock_hop_finish(hop, PENSTOCK_STATUS_UNAUTHENTICATED, "who"));
  }
  return PENSTOCK_NEXT;
}
TEST(executor_callbacks_may_restart) {
  pool pool;
  pool_open(&pool, 4);
  probe here, below;
  atomic_int restarts = 0;
  probe_init(&here, "here");
  probe_init(&below, "below");
  here.hook = restart_there;
  here.context = &restarts;
  here.replay_bytes = 100000;
  below.hook = refuse_old;
  penstock_channel *channel = open_channel();
  add_on(channel, &here, 2, pool.executor, pool.executor);
  add_on(channel, &below, 1, pool.executor, NULL);
  int rounds = test_rounds(50);
  for (int i = 0; i < rounds; i++) exchange(channel, 20);
  CHECK_INT(atomic_load(&restarts), rounds);
  penstock_channel_release(channel);
  probe_wait_finalized(&here);
  probe_wait_finalized(&below);
  CHECK_INT(latch_count(&here.done), rounds);
  CHECK_INT(latch_count(&below.done), 2 * rounds);
  pool_close(&pool);
}

/* ---- Law 7: the executor does not take a job ---- */

TEST(law_7_executor_that_refuses_a_job) {
  bool passed = false;
  for (int accepts = 0; !passed && accepts < 100; accepts++) {
    pool pool;
    pool_open(&pool, 1);
    pool.accepts = accepts;
    probe above, here, below;
    probe_init(&above, "above");
    probe_init(&here, "busy");
    probe_init(&below, "below");
    penstock_channel *channel = open_channel();
    probe_add(&above, channel, 3);
    add_on(channel, &here, 2, pool.executor, pool.executor);
    probe_add(&below, channel, 1);
    penstock_reply *reply = NULL;
    if (!OK(penstock_channel_unary(channel, UNARY, "ping", 4, NULL, &reply, NULL))) return;
    if (penstock_reply_code(reply) != PENSTOCK_STATUS_OK) {
      CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_INTERNAL);
      CHECK_STR(penstock_status_message(penstock_reply_status(reply)), "interceptor 'busy' lost its executor");
      CHECK_INT(atomic_load(&here.seen[PENSTOCK_EVENT_STATUS]), 0);
    } else {
      /* From here on it is destroy alone that is refused. */
      CHECK_INT(atomic_load(&here.seen[PENSTOCK_EVENT_STATUS]), 1);
      pthread_mutex_lock(&pool.mutex);
      passed = pool.accepts > 0;
      pthread_mutex_unlock(&pool.mutex);
    }
    penstock_reply_release(reply);
    penstock_channel_release(channel);
    probe_wait_finalized(&above);
    probe_wait_finalized(&here);
    probe_wait_finalized(&below);
    CHECK_INT(latch_count(&here.done), 1);
    CHECK_INT(latch_count(&above.done), 1);
    CHECK_INT(atomic_load(&above.seen[PENSTOCK_EVENT_STATUS]), 1);
    CHECK_INT(latch_count(&below.done), atomic_load(&below.seen[PENSTOCK_EVENT_CREATE]));
    pool_close(&pool);
  }
  CHECK(passed);
}

/* ---- Law 4: a busy executor holds nobody up ---- */

/* A hop on a blocked executor; the call ends by a deadline or a cancel, and its callbacks come when they can. */
static void expect_no_delay(bool cancels, bool before_start) {
  pool pool;
  pool_open(&pool, 1);
  probe above, here;
  probe_init(&above, "above");
  probe_init(&here, "here");
  penstock_channel *channel = open_channel();
  probe_add(&above, channel, 1);
  add_on(channel, &here, 0, pool.executor, pool.executor);
  if (before_start) pool_block(&pool, true);
  penstock_call_options *options = NULL;
  penstock_call *call = NULL;
  OK(penstock_call_options_new(cancels ? NULL : "{\"deadline_ms\": 50}", &options, NULL));
  REQUIRE_OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, options, NULL, &call, NULL));
  if (!before_start) {
    const penstock_metadata *headers = NULL;
    if (penstock_call_wait_headers(call, &headers) == PENSTOCK_OK) pool_block(&pool, true);
    OK(penstock_call_send(call, "x", 1));
  }
  if (cancels) OK(penstock_call_cancel(call, "enough"));
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_call_finish(call, &reply));
  CHECK_INT(penstock_reply_code(reply), cancels ? PENSTOCK_STATUS_CANCELLED : PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  penstock_reply_release(reply);
  CHECK_INT(atomic_load(&above.seen[PENSTOCK_EVENT_STATUS]), 1);
  CHECK_INT(latch_count(&above.done), 1);
  penstock_call_release(call);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  probe_wait_finalized(&above);
  pthread_mutex_lock(&pool.mutex);
  bool blocked = pool.blocked;
  pthread_mutex_unlock(&pool.mutex);
  if (blocked) {
    CHECK_INT(latch_count(&here.done), 0);
    CHECK_INT(latch_count(&here.finalized_latch), 0);
  }
  pool_block(&pool, false);
  probe_wait_finalized(&here);
  CHECK_INT(latch_count(&here.done), 1);
  /* The server's own DEADLINE_EXCEEDED may stand there already: then it is overtaken, and on_cancel comes behind it. */
  CHECK(atomic_load(&here.seen[PENSTOCK_EVENT_STATUS]) <= 1 && atomic_load(&here.seen[PENSTOCK_EVENT_CANCEL]) <= 1);
  size_t length = strlen(here.log);
  CHECK(length >= 2 && here.log[length - 1] == 'd' && (here.log[length - 2] == 'T' || here.log[length - 2] == 'X'));
  pool_close(&pool);
}

TEST(law_4_executor_blocked_at_start_and_a_deadline) { expect_no_delay(false, true); }
TEST(law_4_executor_blocked_at_start_and_a_cancel) { expect_no_delay(true, true); }
TEST(law_4_executor_blocked_later_and_a_deadline) { expect_no_delay(false, false); }
TEST(law_4_executor_blocked_later_and_a_cancel) { expect_no_delay(true, false); }

/* The callback itself does not return until the call has ended. */
typedef struct stuck {
  latch inside, go;
  penstock_result after[3];
} stuck;
static int32_t get_stuck(probe *self, penstock_hop *hop, int32_t event) {
  stuck *plan = self->context;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  latch_signal(&plan->inside);
  latch_wait(&plan->go, 1);
  plan->after[0] = penstock_hop_finish(hop, PENSTOCK_STATUS_ABORTED, "late");
  plan->after[1] = penstock_metadata_set(penstock_hop_metadata(hop), "x-late", "1");
  penstock_ticket ticket = penstock_hop_ticket(hop);
  plan->after[2] = ticket ? penstock_ticket_resume(ticket) : PENSTOCK_E_GONE;
  return PENSTOCK_PAUSE;
}
TEST(law_4_executor_callback_that_outlives_its_call) {
  probe probe;
  stuck plan = {.inside = LATCH_INIT, .go = LATCH_INIT};
  probe_init(&probe, "stuck");
  probe.hook = get_stuck;
  probe.context = &plan;
  penstock_executor *executor = NULL;
  REQUIRE_OK(penstock_executor_serial_new(&executor));
  penstock_channel *channel = open_channel();
  add_on(channel, &probe, 0, executor, executor);
  penstock_executor_release(executor);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  latch_wait(&plan.inside, 1);
  OK(penstock_call_cancel(call, NULL));
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_call_finish(call, &reply));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_CANCELLED);
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_channel_release(channel);
  CHECK_INT(atomic_load(&probe.finalized), 0);
  latch_signal(&plan.go);
  probe_wait_finalized(&probe);
  CHECK_RESULT(plan.after[2], PENSTOCK_E_GONE);
  CHECK_STR(probe.log, "CSTd");
}

/* ---- Waiting on an executor's thread ---- */

typedef struct waiting {
  penstock_channel *own, *other;
  penstock_result streamed, unary, elsewhere;
  int32_t event;
} waiting;
static int32_t wait_there(probe *self, penstock_hop *hop, int32_t event) {
  waiting *plan = self->context;
  penstock_reply *reply = NULL;
  (void)hop;
  if (event != plan->event || plan->unary != -1) return PENSTOCK_NEXT;
  plan->unary = penstock_channel_unary(plan->own, UNARY, "x", 1, NULL, &reply, NULL);
  if (plan->unary == PENSTOCK_OK) penstock_reply_release(reply);
  penstock_call *call = start_call(plan->own, BIDI, PENSTOCK_KIND_BIDI);
  penstock_message *message = NULL;
  plan->streamed = penstock_call_receive(call, &message);
  if (plan->streamed == PENSTOCK_OK) penstock_message_release(message);
  penstock_call_release(call);
  plan->elsewhere = penstock_channel_unary(plan->other, UNARY, "x", 1, NULL, &reply, NULL);
  if (plan->elsewhere == PENSTOCK_OK) penstock_reply_release(reply);
  return PENSTOCK_NEXT;
}
static int32_t wait_for_one(probe *self, penstock_hop *hop, int32_t event) {
  waiting *plan = self->context;
  penstock_reply *reply = NULL;
  (void)hop;
  if (event != plan->event || plan->unary != -1) return PENSTOCK_NEXT;
  plan->unary = -2; /* the call that this makes does not wait for another */
  plan->unary = penstock_channel_unary(plan->own, UNARY, "x", 1, NULL, &reply, NULL);
  if (plan->unary == PENSTOCK_OK) penstock_reply_release(reply);
  return PENSTOCK_NEXT;
}
static penstock_executor *chosen_executor;
static int32_t choose_and_wait(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_CREATE) OK(penstock_hop_set_executors(hop, chosen_executor, NULL));
  return wait_there(self, hop, event);
}
static void expect_deadlock(int32_t event, bool chosen) {
  probe probe;
  waiting plan = {open_channel(), open_channel(), -1, -1, -1, event};
  probe_init(&probe, "waits");
  probe.hook = chosen ? choose_and_wait : wait_there;
  probe.context = &plan;
  REQUIRE_OK(penstock_executor_serial_new(&chosen_executor));
  add_on(plan.own, &probe, 0, chosen ? NULL : chosen_executor, chosen ? NULL : chosen_executor);
  check_echo(plan.own);
  CHECK_RESULT(plan.unary, PENSTOCK_E_WOULD_DEADLOCK);
  CHECK_RESULT(plan.streamed, PENSTOCK_E_WOULD_DEADLOCK);
  CHECK_RESULT(plan.elsewhere, PENSTOCK_OK);
  penstock_channel_release(plan.own);
  penstock_channel_release(plan.other);
  probe_wait_finalized(&probe);
  CHECK_INT(latch_count(&probe.done), atomic_load(&probe.seen[PENSTOCK_EVENT_CREATE]));
  penstock_executor_release(chosen_executor);
}
TEST(executor_wait_on_the_serial_thread_would_deadlock) {
  expect_deadlock(PENSTOCK_EVENT_START, false);
  expect_deadlock(PENSTOCK_EVENT_STATUS, false);
  expect_deadlock(PENSTOCK_EVENT_START, true);
}

/* A pool with a thread to spare may wait for the very same: the calls end. */
TEST(executor_wait_on_a_pool_is_allowed) {
  pool pool;
  pool_open(&pool, 4);
  probe probe;
  waiting plan = {open_channel(), open_channel(), -1, -1, -1, PENSTOCK_EVENT_STATUS};
  probe_init(&probe, "waits");
  probe.hook = wait_for_one;
  probe.context = &plan;
  add_on(plan.own, &probe, 0, pool.executor, pool.executor);
  check_echo(plan.own);
  CHECK_RESULT(plan.unary, PENSTOCK_OK);
  penstock_channel_release(plan.own);
  penstock_channel_release(plan.other);
  probe_wait_finalized(&probe);
  CHECK_INT(latch_count(&probe.done), 2);
  pool_close(&pool);
}

/* The last reference to a serial executor goes on its own thread. */
static int32_t let_go(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop;
  if (event == PENSTOCK_EVENT_DESTROY) penstock_executor_release(self->context);
  return PENSTOCK_NEXT;
}
TEST(executor_serial_released_on_its_own_thread) {
  probe probe;
  penstock_executor *executor = NULL;
  REQUIRE_OK(penstock_executor_serial_new(&executor));
  probe_init(&probe, "last");
  probe.hook = let_go;
  probe.context = executor;
  penstock_channel *channel = open_channel();
  penstock_interceptor_id id = add_on(channel, &probe, 0, executor, executor);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_channel_remove_interceptor(channel, id, NULL));
  OK(penstock_call_cancel(call, NULL));
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}
