/* executor.h: executors alone, and executors that run an interceptor's callbacks. */
#include "pool.h"

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
  REQUIRE_OK(penstock_executor_new_serial(&executor));
  CHECK(penstock_executor_retain(executor) == executor);
  penstock_executor_release(executor);
  EVENTUALLY(threads_named(thread) == 1);
  penstock_executor_release(executor);
  EVENTUALLY(threads_named(thread) == 0);
}

/* ---- Order ---- */

typedef struct tracked {
  atomic_int *executed; /* the number of callbacks that ran on a thread of a pool */
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
    OK(hop_bytes(hop, &data, &length));
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
  /* destroy may come later than the reply. */
  EVENTUALLY(atomic_load(&tracker.destroyed) == 20 * count);
  /* Each hop has at least 15 callbacks: start, 5 messages each way, half-close, headers, status and destroy; demand
   * and sent come in addition. */
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

/* destroy runs on the inbound executor; if there is only an outbound executor, destroy runs on that one. */
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
  /* Executors can be set in create only. In a job that runs after the hop's end the error is E_GONE. */
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
  probe_init_with(&probe, "chooser", choose, &choice);
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

/* Another thread looks at the hop while `create` chooses executors. */
typedef struct spectator {
  pool *pool;
  atomic_bool looks, stops;
} spectator;
typedef struct watched {
  spectator *spectator;
  penstock_hop *hop;
} watched;
static void *look_on(void *given) {
  watched *watched = given;
  do {
    CHECK_INT(penstock_hop_event(watched->hop), PENSTOCK_EVENT_NONE);
    CHECK(penstock_request_method(penstock_hop_request(watched->hop)) == NULL);
    atomic_store_explicit(&watched->spectator->looks, true, memory_order_relaxed);
  } while (!atomic_load_explicit(&watched->spectator->stops, memory_order_relaxed));
  penstock_hop_release(watched->hop);
  return NULL;
}
static int32_t choose_often(probe *self, penstock_hop *hop, int32_t event) {
  spectator *spectator = self->context;
  if (event != PENSTOCK_EVENT_CREATE) return PENSTOCK_NEXT;
  watched watched = {spectator, penstock_hop_retain(hop)};
  pthread_t thread;
  atomic_store(&spectator->looks, false);
  atomic_store(&spectator->stops, false);
  if (pthread_create(&thread, NULL, look_on, &watched)) abort();
  EVENTUALLY(atomic_load_explicit(&spectator->looks, memory_order_relaxed));
  for (int i = 0; i < 20; i++) {
    OK(penstock_hop_set_executors(hop, NULL, NULL));
    OK(penstock_hop_set_executors(hop, spectator->pool->executor, spectator->pool->executor));
  }
  atomic_store_explicit(&spectator->stops, true, memory_order_relaxed);
  pthread_join(thread, NULL);
  return PENSTOCK_NEXT;
}
TEST(executor_chosen_while_another_thread_looks_at_the_hop) {
  pool pool;
  pool_open(&pool, 1);
  probe probe;
  spectator spectator = {.pool = &pool};
  probe_init_with(&probe, "chooser", choose_often, &spectator);
  penstock_channel *channel = open_channel();
  probe_add(&probe, channel, 0);
  int rounds = test_rounds(20);
  for (int i = 0; i < rounds; i++) exchange(channel, 1);
  latch_wait(&probe.done, rounds);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
  pool_close(&pool);
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
  REQUIRE_OK(penstock_executor_new_serial(&executor));
  probe probe;
  probe_init(&probe, "serial");
  penstock_interceptor table = probe_table(&probe);
  table.outbound_executor = table.inbound_executor = executor;
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_interceptor_id id = 0;
  OK(penstock_runtime_add_interceptor(runtime, &table, 0, &id, NULL));
  penstock_executor_release(executor); /* the registration and the calls have their own references */
  penstock_channel *channel = open_channel_on(runtime);
  for (int i = 0; i < 5; i++) exchange(channel, 10);
  OK(penstock_registration_remove(id, NULL));
  penstock_runtime_release(runtime);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
  CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_DESTROY]), 5);
}
