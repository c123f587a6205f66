/* Memory for Swift objects when malloc has none left. Swift code can't handle a failed allocation of an object, so without
 * this the process would end. Bytes whose number a peer or a caller chooses are not made here: their allocations may
 * fail, and the call or function then ends with an error (ByteBuffer).
 *
 * If malloc fails, the blocks that blocks.c keeps are given back first. If that is not enough, the object gets a block of
 * the reserve, and memory is *low* until the reserve is whole again: meanwhile the library refuses new calls and
 * messages (cm_is_low), so that the reserve lasts for what runs already. Its size follows that: so many blocks for each
 * call, with which it can end, and some blocks of up to twice the largest array, with which arrays can grow. If there is
 * no memory for so large a reserve, memory is low, too.
 *
 * The blocks come from malloc, so they are freed like any others. They are not one piece that is given back to malloc at
 * need: another thread could take it.
 *
 * Memory that a thread has freed may be out of reach for others: malloc keeps it for this thread's allocations. So each
 * thread fills the reserve when calls end on it, and a thread for which the reserve has no block waits for that, up to a
 * second. Then the program's hook is told, and the process ends. */
#include "cembedded.h"
#include "checks.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* Objects have less than 320 or 1304 bytes; arrays and tables may have more. HEAD: what an array has besides its elements,
 * and a red zone. From LARGE bytes on, an array is looked at. The reserve is at least for LEAST calls, and at most for MOST:
 * with more calls than that, only as many can end at the same time. */
enum { SMALL = 320, MIDDLE = 1304, HEAD = 64, LARGE = 8 << 10, LEAST = 64, MOST = 4096, ARRAYS = 4 };

typedef struct spare {
  struct spare *next;
} spare;

typedef struct shelf {
  size_t size;
  size_t wanted, held;
  spare *spares;
} shelf;

/* The lock of the store (cm_hold_store) guards these. */
enum { SIZES = 6 };
static shelf shelves[SIZES] = {{.size = SMALL},
                               {.size = MIDDLE},
                               {.size = 2 * LARGE + HEAD, .wanted = ARRAYS},
                               {.size = 4 * LARGE + HEAD, .wanted = ARRAYS},
                               {.size = 8 * LARGE + HEAD, .wanted = ARRAYS},
                               {.size = 16 * LARGE + HEAD, .wanted = ARRAYS}};

HIDDEN int64_t cm_calls, cm_calls_reserved;
HIDDEN int32_t cm_low;
static void *hook_data;
static _Atomic(cm_hook) hook;

enum { TRIES = 10100 };

/* Lets other threads go on before the next try. All the waits before TRIES take about a second. */
static void wait_before(int next) {
  if (next < 100) {
    sched_yield();
  } else {
    nanosleep(&(struct timespec){0, 100000}, NULL);
  }
}

/* Waits for the lock, which another thread may have for as long as it takes to fill the reserve. In a child that was
 * forked without cm_shut_gate, that thread may not exist any more, so the wait ends after a second. */
static int enter(void) {
  for (int tries = 0; tries < TRIES; wait_before(++tries)) {
    if (cm_hold_store()) return 1;
  }
  return 0;
}

static void set_low(int32_t low) { __atomic_store_n(&cm_low, low, __ATOMIC_RELAXED); }

/* Fills the shelves with blocks from malloc; memory is low if there was not enough for all. */
static void fill(void) {
  for (shelf *one = shelves; one < shelves + SIZES; one++) {
    for (; one->held < one->wanted; one->held++) {
      spare *block = cm_fresh(one->size);
      if (!block) return set_low(1);
      block->next = one->spares;
      one->spares = block;
    }
  }
  set_low(0);
}

static spare *take_from(shelf *one) {
  spare *taken = one->spares;
  one->spares = taken->next;
  one->held--;
  return taken;
}

static void *take(size_t size) {
  if (!enter()) return NULL;
  void *taken = NULL;
  for (shelf *one = shelves; one < shelves + SIZES && !taken; one++) {
    if (size <= one->size && one->spares) taken = take_from(one);
  }
  set_low(1);
  cm_let_store_go();
  return taken;
}

HIDDEN int32_t cm_still_low(void) {
  if (!cm_hold_store()) return 1;
  fill();
  cm_let_store_go();
  return __atomic_load_n(&cm_low, __ATOMIC_RELAXED);
}

HIDDEN void cm_reserve_for_calls(int64_t count) {
  if (!enter()) return;
  int64_t reserved = LEAST;
  while (reserved < count) reserved *= 2;
  shelves[0].wanted = (size_t)(reserved < MOST ? reserved : MOST) * 3;
  shelves[1].wanted = LEAST;
  while (shelves[0].held > shelves[0].wanted) free(take_from(&shelves[0]));
  __atomic_store_n(&cm_calls_reserved, reserved, __ATOMIC_RELAXED);
  fill();
  cm_let_store_go();
}

/* Reserves what an array of this size needs when it next grows. */
static __attribute__((noinline)) void reserve_growth(size_t size) {
  if (size > SIZE_MAX / 4 || !enter()) return;
  shelf *last = &shelves[SIZES - 1];
  if (2 * size + HEAD > last->size) {
    while (last->spares) free(take_from(last));
    last->size = 2 * size + HEAD;
    fill();
  }
  cm_let_store_go();
}

static __attribute__((noinline)) void *insist(size_t size) {
  for (int tries = 0; tries < TRIES; wait_before(++tries)) {
    cm_give_back_kept();
    void *made = cm_alloc(size);
    if (!made) made = checked_made(take(checked_size(size)), size);
    if (made) return made;
  }
  cm_die(size);
}

HIDDEN void *cm_insist(size_t size) {
  void *made = cm_alloc(size);
  if (__builtin_expect(!made, 0)) made = insist(size);
  if (__builtin_expect(size >= LARGE, 0)) reserve_growth(size);
  return made;
}

HIDDEN void cm_die(size_t size) {
  cm_hook told = atomic_load(&hook);
  if (told) told(size, hook_data);
  __builtin_trap();
}

HIDDEN void cm_set_hook(cm_hook told, void *data) {
  atomic_store(&hook, (cm_hook)NULL);
  hook_data = data;
  atomic_store(&hook, told);
}
