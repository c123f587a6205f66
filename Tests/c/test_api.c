/* Random calls of every function, with ordinary and extreme arguments: live handles in any state, NULL, lengths beyond
 * all memory, malformed texts. The test keeps the caller's duties of the headers: ownership, and the threads on which
 * an object may be used. It checks that the library never crashes, that every call ends, that every finalizer runs
 * exactly once, and that no memory is leaked.
 *
 * API_ROUNDS is the number of rounds, API_SEED the seed of the first round; each later round has the next number as its
 * seed. */
#include "api_tables.h"

typedef struct function {
  const char *name;
  void (*run)(void);
  int rare; /* one of this many random picks of the function calls it */
  bool waits;
} function;

/* api_calls.py writes this file. */
#include "api_calls.h"

/* ---- Calls ---- */

enum { DEEP = 5, BUDGET = 4000, LIMIT_MS = 60 };

static atomic_int budget;
static atomic_llong calls_made;
static _Thread_local int depth;

/* Two callbacks, each on the driving thread of its runtime, must not wait for calls on each other's runtime: so only
 * one thread at a time waits in callbacks. (A synchronous interceptor does not run on a driving thread.) */
static atomic_flag one_waits = ATOMIC_FLAG_INIT;
static _Thread_local bool waits_in_callback;

static void run_function(const function *one) {
  if (!once_in((uint32_t)one->rare)) return;
  bool limited = one->waits && here && !here->may_wait && !waits_in_callback;
  if (limited && atomic_flag_test_and_set(&one_waits)) return;
  if (limited) waits_in_callback = true;
  atomic_fetch_add(&calls_made, 1);
  one->run();
  if (limited) waits_in_callback = false;
  if (limited) atomic_flag_clear(&one_waits);
}

static void act(void) {
  if (atomic_load(&stopping) || atomic_fetch_sub(&budget, 1) <= 0 || depth >= DEEP) return;
  depth++;
  if (once_in(3)) {
    run_function(&functions[ONE_OF(any_functions)]);
  } else if ((here && here->hop) || once_in(12)) {
    run_function(&functions[ONE_OF(hop_functions)]);
  } else if ((here && here->buffer) || once_in(100)) {
    run_function(&functions[ONE_OF(buffer_functions)]);
  } else if ((here && here->compression) || once_in(100)) {
    run_function(&functions[ONE_OF(compression_functions)]);
  } else if ((here && here->pick) || once_in(100)) {
    run_function(&functions[ONE_OF(picker_functions)]);
  } else if (once_in(3)) {
    run_function(&functions[ONE_OF(call_functions)]);
  } else {
    run_function(&functions[ONE_OF(any_functions)]);
  }
  depth--;
}

static void act_at(place place, uint32_t most) {
  place.outer = here;
  here = &place;
  for (uint32_t i = below(most + 1); i > 0; i--) act();
  here = place.outer;
}

/* ---- Rounds ---- */

static latch threads_done;

static void *act_on(void *nothing) {
  while (!atomic_load(&stopping) && atomic_load(&budget) > 0) act();
  latch_signal(&threads_done);
  return nothing;
}

/* Registers an interceptor on the channel: a synchronous one, an asynchronous one, or a table of the test's own
 * callbacks. */
static void register_at_random(penstock_channel *channel) {
  penstock_interceptor table;
  penstock_sync_interceptor sync;
  penstock_async_interceptor async;
  penstock_interceptor_id id = 0;
  switch (below(4)) {
  case 0:
    table = (penstock_interceptor)PENSTOCK_INTERCEPTOR_INIT;
    if (penstock_sync_interceptor_table(pick_sync("furnish", &sync), &table, NULL) != PENSTOCK_OK) return;
    break;
  case 1:
    table = (penstock_interceptor)PENSTOCK_INTERCEPTOR_INIT;
    if (penstock_async_interceptor_table(pick_async("furnish", &async), &table, NULL) != PENSTOCK_OK) return;
    break;
  default:
    fill_interceptor("furnish", &table);
  }
  penstock_channel_add_interceptor(channel, &table, pick_priority(), &id, NULL);
  keep_number(&ids, id);
}

/* Makes the objects without which no call can be made; all others are made at random. */
static void furnish(void) {
  static const char *const modes[] = {"{\"mode\": \"thread\"}", "{\"mode\": \"host\"}", "{\"loops\": 2}"};
  for (int i = 0; i < 4; i++) {
    penstock_runtime *runtime = new_runtime(modes[i % 3]);
    penstock_channel *channel = NULL;
    bool with_tls = once_in(6);
    OK(penstock_channel_new_on(runtime, with_tls ? tls_address(false) : peer_address(),
                               with_tls ? TLS_OPTIONS : channel_options[below(3)], &channel, NULL));
    for (uint32_t more = below(6); more > 0; more--) register_at_random(channel);
    keep_made(KIND_runtime, runtime);
    keep_made(KIND_channel, channel);
  }
}

/* Ends every call, including calls that are made meanwhile, so that no thread waits for one. The program has to drive
 * host-driven runtimes here, because a worker that waits for a call does not drive them. */
static void close_all(void) {
  penstock_channel *channels[OPEN_LIMIT];
  penstock_runtime *runtimes[OPEN_LIMIT];
  pthread_mutex_lock(&store_mutex);
  int channel_count = open_channel_count, runtime_count = open_runtime_count;
  memcpy(channels, open_channels, sizeof(channels));
  memcpy(runtimes, open_runtimes, sizeof(runtimes));
  pthread_mutex_unlock(&store_mutex);
  for (int i = 0; i < channel_count; i++) penstock_channel_close(channels[i]);
  for (int i = 0; i < runtime_count; i++) penstock_runtime_poll(runtimes[i], 0);
}

/* Shuts down one runtime after the other, repeatedly: a worker of one runtime may wait for a call of another,
 * host-driven runtime, and that call ends only here. */
static void shut_all_down(void) {
  int left;
  do {
    left = 0;
    for (int i = 0; i < open_runtime_count; i++) {
      penstock_result result = penstock_runtime_shutdown(open_runtimes[i], 5);
      CHECK(result == PENSTOCK_OK || result == PENSTOCK_E_ALREADY || result == PENSTOCK_E_TIMEOUT);
      left += result == PENSTOCK_E_TIMEOUT;
    }
  } while (left > 0);
  for (int i = 0; i < open_runtime_count; i++) penstock_runtime_release(open_runtimes[i]);
  for (int i = 0; i < open_channel_count; i++) penstock_channel_release(open_channels[i]);
  open_runtime_count = open_channel_count = 0;
}

static void empty_store(void) {
  for (int kind = 0; kind < KIND_COUNT; kind++) {
    for (int i = 0; i < PLACES; i++) {
      penstock_reply *reply = NULL;
      pthread_mutex_lock(&store_mutex);
      void *handle = store[kind][i];
      store[kind][i] = NULL;
      pthread_mutex_unlock(&store_mutex);
      /* All runtimes have been shut down, except the default one, whose channels are closed: so every call ends
       * soon. */
      if (kind == KIND_call && handle) {
        EVENTUALLY(penstock_call_reply(handle, &reply) == PENSTOCK_OK);
        penstock_reply_release(reply);
      }
      drop((enum kind)kind, handle);
    }
  }
  for (int i = 0; i < TABLES; i++) {
    pthread_mutex_lock(&store_mutex);
    penstock_interceptor table = tables[i];
    memset(&tables[i], 0, sizeof(tables[i]));
    pthread_mutex_unlock(&store_mutex);
    if (table.finalizer) table.finalizer(table.user_data);
  }
}

static void check_cells(void) {
  EVENTUALLY(atomic_load(&cells_ended) >= atomic_load(&cells_made));
  for (int i = 0; i < atomic_load(&cells_made); i++) {
    cell *one = &cells[i];
    int ended = atomic_load(&one->ended), replies = atomic_load(&one->replies), owed = atomic_load(&one->begun);
    if (ended != 1 || replies != owed) {
      test_failed(__FILE__, __LINE__, "what %s had ended %d times, with %d replies of %d", one->what, ended, replies,
                  owed);
    }
    memset(one, 0, sizeof(*one));
  }
  atomic_store(&cells_made, 0);
  atomic_store(&cells_ended, 0);
}

static void play(uint32_t seed) {
  atomic_store(&round_seed, seed);
  atomic_store(&threads_seeded, 0);
  atomic_store(&budget, BUDGET);
  atomic_store(&stopping, false);
  threads_done = (latch)LATCH_INIT;
  pthread_t threads[6];
  int count = 1 + (int)below(6);
  furnish();
  int64_t until = test_now_ms() + LIMIT_MS * test_slow();
  for (int i = 0; i < count; i++) pthread_create(&threads[i], NULL, act_on, NULL);
  while (latch_count(&threads_done) < count) {
    test_pause();
    if (test_now_ms() < until) continue;
    atomic_store(&stopping, true);
    close_all();
  }
  atomic_store(&stopping, true);
  for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
  close_all();
  shut_all_down();
  empty_store();
  check_cells();
}

static uint32_t from_environment(const char *name, uint32_t otherwise) {
  const char *text = getenv(name);
  return text ? (uint32_t)strtoul(text, NULL, 10) : otherwise;
}

TEST(api_random_calls_of_every_function) {
  uint32_t seed = from_environment("API_SEED", (uint32_t)time(NULL) * 2654435761u ^ (uint32_t)getpid());
  uint32_t rounds = from_environment("API_ROUNDS", (uint32_t)test_rounds(40));
  printf("  API_SEED=%u\n", seed);
  make_texts();
  pthread_t worker;
  pthread_create(&worker, NULL, run_jobs, NULL);
  for (uint32_t i = 0; i < rounds; i++) {
    alarm(2u * (unsigned)test_patience_ms() / 1000);
    printf("  ... API_SEED=%u\n", seed + i);
    play(seed + i);
  }
  pthread_mutex_lock(&jobs_mutex);
  jobs_closed = true;
  pthread_cond_signal(&jobs_changed);
  pthread_mutex_unlock(&jobs_mutex);
  pthread_join(worker, NULL);
  printf("  %lld calls in %u rounds\n", (long long)atomic_load(&calls_made), rounds);
}
