/* The base of the test that calls API functions at random: a random generator, cells that count how often they were
 * freed, and a store of live handles, from which any thread may borrow. */
#ifndef PENSTOCK_API_STORE_H
#define PENSTOCK_API_STORE_H

#include "test.h"

/* ---- Random numbers: each thread has a generator of its own, seeded from the round's seed ---- */

static atomic_uint round_seed, threads_seeded;
static _Thread_local uint32_t chance, chance_round;

static inline uint32_t below(uint32_t limit) {
  uint32_t round = atomic_load(&round_seed);
  if (chance_round != round || chance == 0) {
    chance_round = round;
    chance = (round * 2654435761u ^ (atomic_fetch_add(&threads_seeded, 1) + 1) * 0x9e3779b1u) | 1;
  }
  chance ^= chance << 13;
  chance ^= chance >> 17;
  chance ^= chance << 5;
  return (uint32_t)((uint64_t)chance * limit >> 32);
}

static inline bool once_in(uint32_t times) { return below(times) == 0; }
#define COUNT_OF(list) (sizeof(list) / sizeof(*(list)))
#define ONE_OF(list)   ((list)[below(COUNT_OF(list))])

/* ---- Cells: each stands for a user_data, a value, a state or an object, which has to be freed exactly once. A cell
 * stays until the round is over, so that freeing it twice is detected ---- */

typedef struct cell {
  const char *what;
  atomic_int ended, replies;
  atomic_bool begun; /* a call has begun with this cell, so its reply must come */
} cell;

enum { CELLS = 1 << 17 };
static cell cells[CELLS];
static atomic_int cells_made, cells_ended;

static inline cell *new_cell(const char *what) {
  int at = atomic_fetch_add(&cells_made, 1);
  if (at >= CELLS) abort();
  cells[at].what = what;
  return &cells[at];
}

static inline void end_cell(void *pointer) {
  cell *self = pointer;
  if (atomic_fetch_add(&self->ended, 1) > 0) test_failed(__FILE__, __LINE__, "what %s had ends twice", self->what);
  atomic_fetch_add(&cells_ended, 1);
}

/* Checks that a callback's argument has not been freed yet. Without a finalizer the argument is not a cell. */
static char unowned;
static inline void check_alive(void *pointer) {
  if (pointer == &unowned || pointer == NULL) return;
  cell *self = pointer;
  if (atomic_load(&self->ended)) test_failed(__FILE__, __LINE__, "what %s had is used after its end", self->what);
}

typedef struct owner {
  void *data;
  penstock_finalizer finalizer;
} owner;

static inline owner pick_owner(const char *what) {
  return once_in(16) ? (owner){&unowned, NULL} : (owner){new_cell(what), end_cell};
}

/* ---- Live handles: the kinds up to METRICS are for any thread; an object of the other kinds, such as a bound hop, is
 * for one thread at a time, so it leaves the store while a thread uses it ---- */

#define penstock_bound_release penstock_hop_release

#define SHARED_KINDS(X)                                                                                                \
  X(runtime)                                                                                                           \
  X(channel)                                                                                                           \
  X(call_options)                                                                                                      \
  X(call)                                                                                                              \
  X(message)                                                                                                           \
  X(reply)                                                                                                             \
  X(hop)                                                                                                               \
  X(executor)                                                                                                          \
  X(codec)                                                                                                             \
  X(compressor)                                                                                                        \
  X(resolver)                                                                                                          \
  X(connecting)                                                                                                        \
  X(cancel_scope)                                                                                                      \
  X(metrics)                                                                                                           \
  X(telemetry)
#define OWN_KINDS(X)                                                                                                   \
  X(error)                                                                                                             \
  X(metadata)                                                                                                          \
  X(status)                                                                                                            \
  X(bound)
#define KIND_NAME(name) KIND_##name,
enum kind { SHARED_KINDS(KIND_NAME) SHARED_COUNT, KIND_before = SHARED_COUNT - 1, OWN_KINDS(KIND_NAME) KIND_COUNT };

#define DROP_CASE(name)                                                                                                \
  case KIND_##name:                                                                                                    \
    penstock_##name##_release(handle);                                                                                 \
    break;
static inline void drop(enum kind kind, void *handle) {
  switch (kind) {
    SHARED_KINDS(DROP_CASE)
    OWN_KINDS(DROP_CASE)
  default:
    break;
  }
}

#define RETAIN_CASE(name)                                                                                              \
  case KIND_##name:                                                                                                    \
    return penstock_##name##_retain(handle);
static inline void *retain(enum kind kind, void *handle) {
  switch (kind) {
    SHARED_KINDS(RETAIN_CASE)
  default:
    return handle;
  }
}

enum { PLACES = 12, OPEN_LIMIT = 512 };
/* Set when the round is over: from then on nothing more is put into the store. */
static atomic_bool stopping;
static pthread_mutex_t store_mutex = PTHREAD_MUTEX_INITIALIZER;
static void *store[KIND_COUNT][PLACES];
/* The runtimes and channels that the round has to close at its end: a host-driven runtime that nobody drives would keep
 * its calls for ever. */
static penstock_runtime *open_runtimes[OPEN_LIMIT];
static penstock_channel *open_channels[OPEN_LIMIT];
static int open_runtime_count, open_channel_count;

/* Gives a handle of this kind, which the caller returns with `give_back`; NULL if the store has none. */
static inline void *borrow(enum kind kind) {
  uint32_t at = below(PLACES);
  void *handle = NULL;
  pthread_mutex_lock(&store_mutex);
  for (int i = 0; i < PLACES && !handle; i++) handle = store[kind][(at + (uint32_t)i) % PLACES];
  if (handle && kind < SHARED_COUNT) retain(kind, handle);
  if (kind >= SHARED_COUNT) {
    for (int i = 0; i < PLACES; i++) {
      if (store[kind][i] == handle) store[kind][i] = NULL;
    }
  }
  pthread_mutex_unlock(&store_mutex);
  return handle;
}

/* Takes a handle of this kind, with its reference, out of a random place of the store; NULL if that place is empty. */
static inline void *take(enum kind kind) {
  uint32_t at = below(PLACES);
  pthread_mutex_lock(&store_mutex);
  void *handle = store[kind][at];
  store[kind][at] = NULL;
  pthread_mutex_unlock(&store_mutex);
  return handle;
}

/* Puts a handle, with its reference, into the store. If the store is full, another handle is released to make room.
 * Once the round is over, the handle itself is released. */
static inline void keep(enum kind kind, void *handle) {
  if (!handle) return;
  uint32_t at = below(PLACES);
  void *other = handle;
  pthread_mutex_lock(&store_mutex);
  if (!atomic_load(&stopping)) {
    for (uint32_t i = 0; i < PLACES && store[kind][at]; i++) at = (at + 1) % PLACES;
    other = store[kind][at];
    store[kind][at] = handle;
  }
  pthread_mutex_unlock(&store_mutex);
  drop(kind, other);
}

/* Returns a handle that `borrow` gave. */
static inline void give_back(enum kind kind, void *handle) {
  if (kind < SHARED_COUNT) {
    drop(kind, handle);
  } else {
    keep(kind, handle);
  }
}

/* Puts a handle that a function has made into the store, and notes runtimes and channels for the end of the round. */
static inline void keep_made(enum kind kind, void *handle) {
  if (!handle) return;
  pthread_mutex_lock(&store_mutex);
  if (kind == KIND_runtime && open_runtime_count < OPEN_LIMIT) {
    open_runtimes[open_runtime_count++] = penstock_runtime_retain(handle);
  }
  if (kind == KIND_channel && open_channel_count < OPEN_LIMIT) {
    open_channels[open_channel_count++] = penstock_channel_retain(handle);
  }
  pthread_mutex_unlock(&store_mutex);
  keep(kind, handle);
}

/* ---- Tickets, ids and token requests: numbers that stand for an object ---- */

enum { NUMBERS = 16 };
typedef struct numbers {
  _Atomic uint64_t list[NUMBERS];
} numbers;

static numbers tickets, ids, tokens;

static inline void keep_number(numbers *self, uint64_t number) {
  if (number) atomic_store(&self->list[below(NUMBERS)], number);
}

static inline uint64_t pick_number(numbers *self) {
  static const uint64_t extremes[] = {0, 1, UINT32_MAX, INT64_MAX, UINT64_MAX};
  return once_in(16) ? ONE_OF(extremes) : atomic_load(&self->list[below(NUMBERS)]);
}

/* ---- The place of a running callback: its hop, buffer, message and pick, for the random functions of its thread ---- */

typedef struct place {
  penstock_hop *hop;
  bool may_wait; /* whether the callback is the function of a synchronous interceptor */
  penstock_buffer *buffer;
  penstock_compression *compression;
  penstock_pick *pick;
  struct place *outer;
} place;

static _Thread_local place *here;

/* Calls up to `most` random functions from a callback. */
static void act_at(place place, uint32_t most);

#endif
