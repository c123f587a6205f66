/* A hundred threads add, remove and replace interceptors of a channel and its runtime, and change their priorities and
 * filters, while ten thousand calls run. Each call checks the chain that it got: complete, in order, and without
 * interceptors that were removed before. */
#include "test.h"

enum {
  PASSERS = 30,  /* threads that add an interceptor and remove it */
  SLOTS = 20,    /* threads that replace an interceptor, again and again */
  MOVERS = 20,   /* threads that change the priority of an interceptor within a range */
  WANTED = 10,   /* threads that change the filter of an interceptor; every filter matches */
  UNWANTED = 10, /* threads that change the filter of an interceptor; no filter matches */
  MIXERS = 10,   /* threads that add, replace and remove an interceptor, and wait for its end */
  THREADS = PASSERS + SLOTS + MOVERS + WANTED + UNWANTED + MIXERS,
  CALLERS = 8,
  RECORDED = SLOTS + MOVERS + WANTED,
};

typedef struct storm {
  penstock_runtime *runtime;
  penstock_channel *channel;
  atomic_int stop, ready;
  atomic_int calls_left;
  /* Grows by one with each removal. Each call keeps the value at its creation (`born`). */
  atomic_ullong epoch;
  atomic_int registered, finalized, changes, torn;
} storm;

/* One registration. */
typedef struct entry {
  storm *storm;
  /* The registration's index in a call's record; -1: it is not recorded. */
  int number;
  bool is_unwanted;
  /* The bounds of the registration's priority. They are equal, unless a thread moves the registration between
   * priorities. */
  int32_t lowest, highest;
  /* The epoch when the removal of the registration had returned; 0: it has not been removed. */
  atomic_ullong removed;
  atomic_int *told;
  atomic_int references;
} entry;

/* The interceptors that a call has passed so far. */
typedef struct record {
  unsigned long long born;
  int32_t last;
  int met[RECORDED];
  entry *passers[PASSERS + MIXERS + 1];
  int passer_count;
} record;

static void torn(storm *storm, const char *what, int number) {
  if (atomic_fetch_add(&storm->torn, 1) < 10) printf("  torn: %s %d\n", what, number);
}

static void entry_release(entry *entry) {
  if (atomic_fetch_sub(&entry->references, 1) == 1) free(entry);
}

static void entry_finalizer(void *user_data) {
  entry *entry = user_data;
  atomic_fetch_add(&entry->storm->finalized, 1);
  if (entry->told) atomic_fetch_add(entry->told, 1);
  entry_release(entry);
}

static int32_t entry_start(penstock_hop *hop, void *state) {
  entry *entry = state;
  storm *storm = entry->storm;
  record *record = penstock_hop_value(hop, "record");
  if (!record) {
    torn(storm, "met above the top", entry->number);
    return PENSTOCK_NEXT;
  }
  if (entry->is_unwanted) torn(storm, "met, though no call is wanted", entry->number);
  unsigned long long removed = atomic_load(&entry->removed);
  if (removed && record->born >= removed) torn(storm, "met after its removal", entry->number);
  if (entry->lowest > record->last) torn(storm, "met below a lower one", entry->number);
  if (entry->highest < record->last) record->last = entry->highest;
  if (entry->number >= 0) {
    record->met[entry->number]++;
    return PENSTOCK_NEXT;
  }
  for (int i = 0; i < record->passer_count; i++) {
    if (record->passers[i] == entry) torn(storm, "met twice", -1);
  }
  if (record->passer_count < PASSERS + MIXERS + 1) record->passers[record->passer_count++] = entry;
  return PENSTOCK_NEXT;
}

/* The top interceptor gives each call its record, and the bottom one checks it. */
static int32_t top_start(penstock_hop *hop, void *state) {
  record *fresh = calloc(1, sizeof(*fresh));
  if (!fresh) abort();
  const void *born = NULL;
  if (OK(penstock_metadata_get(penstock_hop_metadata(hop), "born", 0, &born, NULL))) {
    fresh->born = strtoull(born, NULL, 10);
  } else {
    torn(state, "no birth", 0);
  }
  fresh->last = INT32_MAX;
  OK(penstock_hop_set_value(hop, "record", fresh, free));
  return PENSTOCK_NEXT;
}
static int32_t bottom_start(penstock_hop *hop, void *state) {
  record *record = penstock_hop_value(hop, "record");
  for (int i = 0; record && i < RECORDED; i++) {
    if (record->met[i] != 1) torn(state, record->met[i] ? "met more than once" : "missed", i);
  }
  if (!record) torn(state, "the top was missed", 0);
  return PENSTOCK_NEXT;
}

/* ---- Registering ---- */

static entry *entry_new(storm *storm, int number, int32_t lowest, int32_t highest) {
  entry *fresh = calloc(1, sizeof(*fresh));
  if (!fresh) abort();
  fresh->storm = storm;
  fresh->number = number;
  fresh->lowest = lowest;
  fresh->highest = highest;
  /* One reference is the registration's, and one the maker's. */
  atomic_init(&fresh->references, 2);
  atomic_fetch_add(&storm->registered, 1);
  return fresh;
}

static penstock_interceptor entry_table(entry *entry) {
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.name = "storm";
  table.user_data = entry;
  table.finalizer = entry_finalizer;
  table.on_start = entry_start;
  return table;
}

static penstock_interceptor_id entry_add(storm *storm, bool on_runtime, entry *entry, int32_t priority,
                                         const char *methods) {
  penstock_interceptor table = entry_table(entry);
  table.methods = methods;
  penstock_interceptor_id id = 0;
  OK(on_runtime ? penstock_runtime_add_interceptor(storm->runtime, &table, priority, &id, NULL)
                : penstock_channel_add_interceptor(storm->channel, &table, priority, &id, NULL));
  return id;
}

/* Law 6: a call that is made after the removal does not have the interceptor. */
static void entry_removed(entry *entry) {
  atomic_store(&entry->removed, atomic_fetch_add(&entry->storm->epoch, 1) + 1);
  entry_release(entry);
}

static void entry_remove(penstock_interceptor_id id, entry *entry) {
  OK(penstock_registration_remove(id, NULL));
  entry_removed(entry);
}

/* ---- The threads; permanent registrations are made before the first call ---- */

typedef struct actor {
  storm *storm;
  int number;
  bool on_runtime;
} actor;

static bool goes_on(storm *storm) {
  atomic_fetch_add(&storm->changes, 1);
  test_pause();
  return !atomic_load(&storm->stop);
}

static void *come_and_go(void *pointer) {
  actor *self = pointer;
  atomic_fetch_add(&self->storm->ready, 1);
  do {
    int32_t priority = (int32_t)test_random(4000) - 2000;
    entry *entry = entry_new(self->storm, -1, priority, priority);
    penstock_interceptor_id id = entry_add(self->storm, self->on_runtime, entry, priority, NULL);
    if (!id) break;
    if (test_random(2)) test_pause();
    entry_remove(id, entry);
  } while (goes_on(self->storm));
  return NULL;
}

static void *replace_often(void *pointer) {
  actor *self = pointer;
  storm *storm = self->storm;
  int32_t priority = (int32_t)test_random(4000) - 2000;
  entry *held = entry_new(storm, self->number, priority, priority);
  penstock_interceptor_id id = entry_add(storm, self->on_runtime, held, priority, NULL);
  atomic_fetch_add(&storm->ready, 1);
  while (goes_on(storm)) {
    entry *next = entry_new(storm, self->number, priority, priority);
    penstock_interceptor table = entry_table(next);
    penstock_interceptor_id next_id = 0;
    if (!OK(penstock_registration_replace(id, &table, &next_id, NULL))) {
      break;
    }
    entry_removed(held);
    held = next;
    id = next_id;
  }
  entry_release(held);
  return NULL;
}

static void *move_often(void *pointer) {
  actor *self = pointer;
  storm *storm = self->storm;
  int32_t lowest = 10000 * (self->number % 2 ? 1 : -1), highest = lowest + 1000;
  entry *held = entry_new(storm, self->number, lowest, highest);
  penstock_interceptor_id id = entry_add(storm, self->on_runtime, held, lowest, NULL);
  atomic_fetch_add(&storm->ready, 1);
  while (goes_on(storm)) {
    int32_t priority = lowest + (int32_t)test_random(1001);
    OK(penstock_registration_set_priority(id, priority, NULL));
  }
  entry_release(held);
  return NULL;
}

static void filter_often(actor *self, entry *held, const char *const *methods, uint32_t kinds) {
  storm *storm = self->storm;
  penstock_interceptor_id id = entry_add(storm, self->on_runtime, held, held->lowest, methods[0]);
  atomic_fetch_add(&storm->ready, 1);
  while (goes_on(storm)) {
    const char *next = methods[test_random(3)];
    uint32_t mask = test_random(2) ? kinds : 0;
    OK(penstock_registration_set_filter(id, next, mask, NULL));
  }
  entry_release(held);
}
static void *want_often(void *pointer) {
  static const char *const methods[] = {"*", "/penstock.Echo/*", "/a/b, /penstock.Echo/Unary"};
  actor *self = pointer;
  int32_t priority = (int32_t)test_random(4000) - 2000;
  filter_often(self, entry_new(self->storm, self->number, priority, priority), methods, 1u << PENSTOCK_KIND_UNARY);
  return NULL;
}
static void *refuse_often(void *pointer) {
  static const char *const methods[] = {"/other.Echo/*", "/penstock.Echo/Bidi", "/a/b"};
  actor *self = pointer;
  entry *held = entry_new(self->storm, -1, 0, 0);
  held->is_unwanted = true;
  filter_often(self, held, methods, 1u << PENSTOCK_KIND_BIDI);
  return NULL;
}

static void *mix_often(void *pointer) {
  actor *self = pointer;
  storm *storm = self->storm;
  atomic_fetch_add(&storm->ready, 1);
  do {
    atomic_int told;
    atomic_init(&told, 0);
    int32_t priority = (int32_t)test_random(4000) - 2000;
    entry *first = entry_new(storm, -1, priority, priority), *second = entry_new(storm, -1, priority, priority);
    first->told = second->told = &told;
    penstock_interceptor_id id = entry_add(storm, self->on_runtime, first, priority, NULL), next = 0;
    CHECK_RESULT(penstock_registration_wait_removed(id, -1), PENSTOCK_E_STATE);
    penstock_interceptor table = entry_table(second);
    if (!OK(penstock_registration_replace(id, &table, &next, NULL))) {
      break;
    }
    entry_removed(first);
    OK(penstock_registration_wait_removed(id, 60000 * test_slow()));
    CHECK_INT(atomic_load(&told), 1);
    char *json = NULL;
    if (OK(penstock_channel_interceptors_json(storm->channel, &json))) CHECK_HAS(json, "\"calls_seen\"");
    penstock_free(json);
    entry_remove(next, second);
    OK(penstock_registration_wait_removed(next, 60000 * test_slow()));
    CHECK_INT(atomic_load(&told), 2);
  } while (goes_on(storm));
  return NULL;
}

/* Makes calls, each with its own options. About every third call also has an interceptor in its options. */
static void *call_often(void *pointer) {
  storm *storm = pointer;
  while (atomic_fetch_sub(&storm->calls_left, 1) > 0) {
    char json[64];
    snprintf(json, sizeof(json), "{\"metadata\": {\"born\": \"%llu\"}}", atomic_load(&storm->epoch));
    penstock_call_options *options = NULL;
    if (!OK(penstock_call_options_new(json, &options, NULL))) break;
    if (test_random(3) == 0) {
      int32_t priority = (int32_t)test_random(4000) - 2000;
      entry *own = entry_new(storm, -1, priority, priority);
      penstock_interceptor table = entry_table(own);
      penstock_interceptor_id id = 0;
      OK(penstock_call_options_add_interceptor(options, &table, priority, &id, NULL));
      entry_release(own);
    }
    penstock_reply *reply = NULL;
    if (OK(penstock_channel_unary(storm->channel, UNARY, "x", 1, options, &reply, NULL))) {
      CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
      penstock_reply_release(reply);
    }
    penstock_call_options_release(options);
  }
  return NULL;
}

static void run_storm(const char *runtime_options, int calls) {
  storm storm = {0};
  atomic_store(&storm.epoch, 1);
  atomic_store(&storm.calls_left, calls);
  storm.runtime = new_runtime(runtime_options);
  storm.channel = open_channel_on(storm.runtime);
  penstock_interceptor ends = PENSTOCK_INTERCEPTOR_INIT;
  penstock_interceptor_id id = 0;
  ends.user_data = &storm;
  ends.on_start = top_start;
  OK(penstock_runtime_add_interceptor(storm.runtime, &ends, INT32_MAX, &id, NULL));
  ends.on_start = bottom_start;
  OK(penstock_channel_add_interceptor(storm.channel, &ends, INT32_MIN, &id, NULL));

  static const struct {
    int count;
    void *(*run)(void *);
    bool is_recorded;
  } roles[] = {{PASSERS, come_and_go, false}, {SLOTS, replace_often, true},    {MOVERS, move_often, true},
               {WANTED, want_often, true},    {UNWANTED, refuse_often, false}, {MIXERS, mix_often, false}};
  pthread_t threads[THREADS], callers[CALLERS];
  actor actors[THREADS];
  int started = 0, recorded = 0;
  for (size_t role = 0; role < sizeof(roles) / sizeof(*roles); role++) {
    for (int i = 0; i < roles[role].count; i++, started++) {
      actors[started] = (actor){&storm, roles[role].is_recorded ? recorded++ : -1, i % 2 == 1};
      pthread_create(&threads[started], NULL, roles[role].run, &actors[started]);
    }
  }
  EVENTUALLY(atomic_load(&storm.ready) == THREADS);
  for (int i = 0; i < CALLERS; i++) pthread_create(&callers[i], NULL, call_often, &storm);
  for (int i = 0; i < CALLERS; i++) pthread_join(callers[i], NULL);
  atomic_store(&storm.stop, 1);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  CHECK_INT(atomic_load(&storm.torn), 0);
  penstock_channel_release(storm.channel);
  OK(penstock_runtime_shutdown(storm.runtime, test_patience_ms()));
  penstock_runtime_release(storm.runtime);
  EVENTUALLY(atomic_load(&storm.finalized) == atomic_load(&storm.registered));
  printf("  %d calls, %d threads, %d registrations, %d rounds of changes\n", calls, THREADS,
         atomic_load(&storm.registered), atomic_load(&storm.changes));
}

/* Under Valgrind there are fewer calls, because it runs only one of the hundred threads at a time. */
static int storm_calls(int calls) { return test_rounds(calls) / (test_slow() > 6 ? 3 : 1); }

TEST(registry_storm) { run_storm(NULL, storm_calls(10000)); }
TEST(registry_storm_without_drivers) { run_storm("{\"caller_drives\": false}", storm_calls(1000)); }

/* ---- The last call of a chain gives its hops back while another thread releases the chain ---- */

typedef struct leaving {
  atomic_bool replied, freed;
  atomic_int finalized;
} leaving;

static void leaving_reply(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
  atomic_store(&((leaving *)user_data)->replied, true);
}
static void leaving_call_freed(void *user_data) { atomic_store(&((leaving *)user_data)->freed, true); }
static void leaving_finalizer(void *user_data) { atomic_fetch_add(&((leaving *)user_data)->finalized, 1); }
static int32_t leaving_start(penstock_hop *hop, void *state) {
  (void)hop, (void)state;
  return PENSTOCK_NEXT;
}

TEST(registry_removes_while_the_last_call_ends) {
  enum { HOPS = 20 };
  penstock_channel *channel = open_channel();
  for (int round = 0; round < test_rounds(300); round++) {
    leaving state = {0};
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    table.name = "leaving";
    table.user_data = &state;
    table.finalizer = leaving_finalizer;
    table.on_start = leaving_start;
    penstock_interceptor_id ids[HOPS];
    for (int i = 0; i < HOPS; i++) OK(penstock_channel_add_interceptor(channel, &table, 0, &ids[i], NULL));
    penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
    callbacks.user_data = &state;
    callbacks.finalizer = leaving_call_freed;
    callbacks.on_reply = leaving_reply;
    penstock_call *call = NULL;
    REQUIRE_OK(
        penstock_channel_call(channel, "/penstock.Echo/Unary", PENSTOCK_KIND_UNARY, NULL, &callbacks, &call, NULL));
    OK(penstock_call_try_send(call, "ping", 4));
    OK(penstock_call_half_close(call));
    penstock_call_release(call);
    /* When the reply has come, the call has released its chain, and the channel has the last reference to it. */
    while (!atomic_load(&state.replied)) sched_yield();
    for (int i = 0; i < HOPS; i++) OK(penstock_registration_remove(ids[i], NULL));
    EVENTUALLY(atomic_load(&state.finalized) == HOPS && atomic_load(&state.freed));
  }
  penstock_channel_release(channel);
}
