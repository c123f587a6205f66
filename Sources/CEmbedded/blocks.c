/* A cache of small blocks in front of malloc: each thread keeps two batches of blocks of each size, and all threads
 * share a store of further batches.
 *
 * A call allocates and frees some dozens of small objects, and a hundred calls may be under way. malloc's own
 * per-thread cache keeps seven blocks of a size; beyond them an allocation with its free costs 100 to 250
 * instructions (a quarter of a call, without this cache). Here such a pair costs about 30. Blocks that one thread
 * takes and another frees, as when a program's thread starts calls that the runtime's thread ends, come back
 * through the store, a batch at a time.
 *
 * Each block comes from malloc: any code that gets one may give it to free(), and cm_free also takes blocks that came
 * from malloc directly. A thread keeps no more than its batches, and the store no more than STORED bytes; a thread that
 * ends gives its own batches and the whole store back to malloc.
 *
 * The class of a block follows from the size that malloc reports for it, rounded down, and not from the size that its
 * user gives: the implementations of malloc differ in how much more than the request they give. The one exception is a
 * Swift object, whose size the compiler gives: it is the same constant where the object is made and where it is freed.
 *
 * Under Valgrind's memcheck no block is kept, so that memcheck sees each allocation and each free. The checked
 * build (checks.h) puts red zones behind the blocks and looks for writes into blocks that are kept.
 */
#include "cembedded.h"
#include "checks.h"

#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define HIDDEN    __attribute__((visibility("hidden")))
/* The number of size classes. A block of class c has 16 * c + 24 bytes: glibc cuts its memory into these sizes. */
#define CLASSES   79
/* The largest number of bytes that the store keeps. With thousands of calls in flight, one turn of the loop frees
 * about this much before it allocates as much again. */
#define STORED    ((size_t)2 << 20)
#define BATCH     4096

typedef struct block {
  struct block *next;
  /* In the first block of a batch: the next batch in the list of batches. */
  struct block *behind;
} block;

typedef struct rack {
  block *blocks;
  /* A second batch, which is complete; NULL: there is none. */
  block *spare;
  /* How many more blocks `blocks` can take until it is a complete batch. */
  size_t room;
} rack;

typedef struct cache {
  rack racks[CLASSES];
} cache;

/* Stands in for the cache of a thread that has ended, and for each thread's cache if caching is turned off. It never
 * has a block, and never takes one. */
static cache closed;
static __thread cache *mine __attribute__((tls_model("initial-exec")));
static pthread_key_t key;
static int usable;

static struct {
  /* Set while a thread uses the store. A thread that finds it set does not wait: it uses malloc and free instead of a
   * batch. */
  atomic_flag busy;
  size_t bytes;
  _Atomic(block *) batches[CLASSES];
} store = {.busy = ATOMIC_FLAG_INIT};

/* The smallest class whose blocks have at least this size. */
static size_t class_of(size_t size) { return size <= 24 ? 0 : (size - 9) >> 4; }
static size_t size_of(size_t class) { return (class << 4) + 24; }
/* The largest class whose blocks are not larger than the given block; a number above CLASSES if the block has less
 * than 24 bytes. */
static size_t class_of_block(void *pointer) { return (malloc_usable_size(pointer) - 24) >> 4; }

/* The number of blocks in a batch. */
static size_t batch_of(size_t class) {
  size_t count = BATCH / size_of(class);
  return count < 2 ? 2 : count > 64 ? 64 : count;
}

static int enter(void) { return !atomic_flag_test_and_set_explicit(&store.busy, memory_order_acquire); }
static void leave(void) { atomic_flag_clear_explicit(&store.busy, memory_order_release); }

static void free_all(block *one) {
  while (one) {
    block *next = one->next;
    checked_kept(one);
    free(one);
    one = next;
  }
}

static void free_store(void) {
  /* In a child that was forked without cm_shut_gate, the thread that had entered the store may not exist any more, so
   * that it never leaves the store. Therefore the number of tries is limited. */
  for (int tries = 0; !enter(); tries++) {
    if (tries == 1000) return;
    sched_yield();
  }
  for (size_t class = 0; class < CLASSES; class ++) {
    for (block *behind, *batch = store.batches[class]; batch; batch = behind) {
      behind = batch->behind;
      free_all(batch);
    }
    store.batches[class] = NULL;
  }
  store.bytes = 0;
  leave();
}

static void empty(cache *own) {
  for (size_t class = 0; class < CLASSES; class ++) {
    free_all(own->racks[class].blocks);
    free_all(own->racks[class].spare);
    own->racks[class] = (rack){.room = batch_of(class)};
  }
}

static void give_back(void *pointer) {
  mine = &closed;
  empty(pointer);
  free(pointer);
  free_store();
}

/* Whether Valgrind's memcheck runs the process. A program makes a request to Valgrind by a sequence of rotations that
 * changes nothing on a real processor. This request asks memcheck to treat a byte as undefined; without memcheck the
 * answer stays 0. */
static int is_watched(void) {
  unsigned long long answer = 0;
#if defined(__x86_64__)
  char byte;
  volatile unsigned long long request[6] = {0x4d430001, (uintptr_t)&byte, 1, 0, 0, 0};
  __asm__ volatile("rolq $3, %%rdi; rolq $13, %%rdi; rolq $61, %%rdi; rolq $51, %%rdi; xchgq %%rbx, %%rbx"
                   : "+d"(answer)
                   : "a"(request)
                   : "cc", "memory");
#endif
  return answer != 0;
}

__attribute__((constructor)) static void begin(void) {
  usable = !is_watched() && pthread_key_create(&key, give_back) == 0;
}

static cache *new_cache(void) {
  cache *fresh = usable ? calloc(1, sizeof *fresh) : NULL;
  if (fresh && pthread_setspecific(key, fresh) != 0) {
    free(fresh);
    fresh = NULL;
  }
  mine = fresh ? fresh : &closed;
  if (fresh) empty(fresh);
  return mine;
}

/* Takes a batch from the store; NULL: the store has none of this class, or another thread uses the store. */
static block *fetch(size_t class) {
  if (!atomic_load_explicit(&store.batches[class], memory_order_relaxed) || !enter()) return NULL;
  block *batch = atomic_load_explicit(&store.batches[class], memory_order_relaxed);
  if (batch) {
    atomic_store_explicit(&store.batches[class], batch->behind, memory_order_relaxed);
    store.bytes -= batch_of(class) * size_of(class);
  }
  leave();
  return batch;
}

static void put_away(block *batch, size_t class) {
  if (enter()) {
    size_t bytes = batch_of(class) * size_of(class);
    int fits = store.bytes + bytes <= STORED;
    if (fits) {
      batch->behind = atomic_load_explicit(&store.batches[class], memory_order_relaxed);
      atomic_store_explicit(&store.batches[class], batch, memory_order_relaxed);
      store.bytes += bytes;
    }
    leave();
    if (fits) return;
  }
  free_all(batch);
}

static __attribute__((noinline)) void *take_more(size_t class) {
  cache *own = mine ? mine : new_cache();
  if (own != &closed) {
    rack *rack = &own->racks[class];
    block *one = rack->spare ? rack->spare : fetch(class);
    if (one) {
      rack->spare = NULL;
      rack->blocks = one->next;
      rack->room = 1;
      checked_kept(one);
      return one;
    }
  }
  return malloc(size_of(class));
}

static inline void *take(size_t size) {
  size_t class = class_of(size);
  if (!LIKELY(class < CLASSES)) return malloc(size);
  cache *own = mine;
  if (LIKELY(own != NULL)) {
    rack *rack = &own->racks[class];
    block *one = rack->blocks;
    if (LIKELY(one != NULL)) {
      rack->blocks = one->next;
      rack->room++;
      checked_kept(one);
      return one;
    }
  }
  return take_more(class);
}

static __attribute__((noinline)) void put_more(block *one, size_t class) {
  cache *own = mine ? mine : new_cache();
  if (own == &closed) return free(one);
  rack *rack = &own->racks[class];
  if (rack->room == 0) {
    if (rack->spare) put_away(rack->spare, class);
    rack->spare = rack->blocks;
    rack->blocks = NULL;
    rack->room = batch_of(class);
  }
  one->next = rack->blocks;
  rack->blocks = one;
  rack->room--;
}

static inline void put(void *pointer, size_t class) {
  if (!LIKELY(class < CLASSES)) return free(pointer);
  block *one = pointer;
  cache *own = mine;
  if (LIKELY(own != NULL)) {
    rack *rack = &own->racks[class];
    if (LIKELY(rack->room > 0)) {
      one->next = rack->blocks;
      rack->blocks = one;
      rack->room--;
      return;
    }
  }
  put_more(one, class);
}

HIDDEN void cm_give_back_kept(void) {
  if (mine && mine != &closed) empty(mine);
  free_store();
}

HIDDEN int32_t cm_hold_store(void) { return enter(); }
HIDDEN void cm_let_store_go(void) { leave(); }

HIDDEN void *cm_alloc(size_t size) { return checked_made(take(checked_size(size)), size); }

HIDDEN void cm_free(void *pointer) {
  if (!pointer) return;
  checked_gone(pointer, 0);
  put(pointer, class_of_block(pointer));
}

HIDDEN void cm_free_object(void *object, size_t size) {
  checked_gone(object, size);
  put(object, class_of(checked_size(size)));
}

HIDDEN void *cm_realloc(void *pointer, size_t size) {
  if (!pointer) return cm_alloc(size);
  size_t class = class_of_block(pointer);
  /* realloc may move a large block by its pages, without a copy. */
  if (class >= CLASSES && !CHECKED) return realloc(pointer, size);
  size_t has = checked_asked(pointer, size_of(class));
  if (size <= has) return pointer;
  void *fresh = cm_alloc(size);
  if (fresh) {
    memcpy(fresh, pointer, has);
    cm_free(pointer);
  }
  return fresh;
}
