/* A cache of small blocks in front of malloc: each thread keeps two batches of blocks of each size, and all threads
 * share a store of further batches.
 *
 * A call allocates and frees some dozens of small objects, and a hundred calls may be under way. malloc's own
 * per-thread cache keeps seven blocks of a size; beyond them an allocation with its free costs 100 to 250
 * instructions (a quarter of a call, without this cache). Here such a pair costs about 30. Blocks that one thread
 * takes and another frees, as when a program's thread starts calls that the runtime's thread ends, come back
 * through the store, a batch at a time.
 *
 * Each block comes from malloc: any code that gets one may give it to free(). A thread keeps no more than its batches,
 * and the store no more than STORED bytes; a thread that ends gives its own batches and the whole store back to malloc.
 *
 * A kept block never serves more bytes than malloc was asked for when the block was made, because malloc_usable_size
 * promises nothing about the bytes beyond these. malloc is only asked for the sizes of the classes, or for more than the
 * largest of them. At the first use learn() notes the size that malloc reports for each class; a block belongs to the
 * class for which malloc has reported that size, and to none if there is no such class. settled() makes this true of each
 * new block. A Swift object needs no such look: the compiler gives the same size where it is made and where it is freed.
 *
 * Under Valgrind's memcheck no block is kept, so that memcheck sees each allocation and each free. The checked
 * build (checks.h) puts red zones behind the blocks and looks for writes into blocks that are kept. A build with
 * PENSTOCK_BLOCK_CACHE=0 has unkept.c instead of this file.
 */
#ifndef PENSTOCK_NO_BLOCK_CACHE
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
#define CLASSES   ((CM_LARGEST_KEPT - 24) / 16 + 1)
/* Blocks for which malloc reports this size or more are not kept. */
#define REPORTED  2048
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
/* Stands in for the cache of a thread that has not used one yet, in the same way. */
static cache unset;
static __thread cache *mine CM_AT_HAND = &unset;
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int usable;

static struct {
  /* Set while a thread uses the store. A thread that finds it set does not wait: it uses malloc and free instead of a
   * batch. */
  atomic_flag busy;
  size_t bytes;
  _Atomic(block *) batches[CLASSES];
} store = {.busy = ATOMIC_FLAG_INIT};

/* Written once, by learn(), possibly while other threads look: then a block that they free belongs to no class yet. */
static struct {
  /* By class: the size that malloc reports for a block of the class. The last stands for no class, and stays 0. */
  _Atomic size_t reported[CLASSES + 1];
  /* By class: the number of classes above it for which malloc reports the same size. The highest of them serves all. */
  _Atomic uint8_t above[CLASSES];
  /* By reported size, in units of eight bytes: the class, if `reported` agrees. */
  _Atomic uint8_t class[REPORTED / 8];
} sizes;

#define GET(place)        atomic_load_explicit(&(place), memory_order_relaxed)
#define SET(place, value) atomic_store_explicit(&(place), (value), memory_order_relaxed)

/* The class that serves requests of this size, which is not above CM_LARGEST_KEPT. */
static inline size_t class_of(size_t size) {
  size_t class = size <= 24 ? 0 : (size - 9) >> 4;
  return class + GET(sizes.above[class]);
}
static size_t size_of(size_t class) { return (class << 4) + 24; }
/* The class that the block belongs to; CLASSES: none. */
static inline size_t class_of_block(void *pointer) {
  size_t size = malloc_usable_size(pointer);
  if (size >= REPORTED) return CLASSES;
  size_t class = GET(sizes.class[size / 8]);
  return GET(sizes.reported[class]) == size ? class : CLASSES;
}

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

/* Fills `sizes`; returns whether malloc reports sizes with which blocks can be kept. One block grows through all classes,
 * so that little memory is touched. */
static int learn(void) {
  void *block = NULL;
  size_t found[CLASSES], count = 0;
  for (size_t last = 0; count < CLASSES; last = found[count++]) {
    void *grown = realloc(block, size_of(count));
    if (!grown) break;
    block = grown;
    found[count] = malloc_usable_size(block);
    if (found[count] < size_of(count) || found[count] < last) break;
  }
  free(block);
  if (count < CLASSES) return 0;
  uint8_t above = 0;
  for (size_t class = CLASSES; class -- > 0;) {
    int is_last = class + 1 == CLASSES || found[class + 1] != found[class];
    above = is_last ? 0 : (uint8_t)(above + 1);
    SET(sizes.above[class], above);
    SET(sizes.reported[class], found[class]);
    if (is_last && found[class] < REPORTED) SET(sizes.class[found[class] / 8], (uint8_t) class);
  }
  return 1;
}

/* Blocks that are freed from now on are not kept. */
static void forget(void) {
  for (size_t i = 0; i < REPORTED / 8; i++) SET(sizes.class[i], CLASSES);
}

/* `block` is new, and malloc was asked for the size of `class`. If malloc reports the size of a higher class (glibc does,
 * where the rest of a block would be too small), malloc is asked for that size. */
static void *settled(void *block, size_t class) {
  for (size_t found; block && (found = class_of_block(block)) < CLASSES && found > class; class = found) {
    void *larger = realloc(block, size_of(found));
    if (!larger) {
      forget();
      return block;
    }
    block = larger;
  }
  return block;
}

static void begin(void) { usable = !is_watched() && pthread_key_create(&key, give_back) == 0 && learn(); }

static __attribute__((noinline)) cache *new_cache(void) {
  pthread_once(&once, begin);
  cache *fresh = usable ? calloc(1, sizeof *fresh) : NULL;
  if (fresh && pthread_setspecific(key, fresh) != 0) {
    free(fresh);
    fresh = NULL;
  }
  mine = fresh ? fresh : &closed;
  if (fresh) empty(fresh);
  return mine;
}

/* The calling thread's cache. After this `sizes` is complete. */
static inline cache *own_cache(void) {
  cache *own = mine;
  return LIKELY(own != &unset) ? own : new_cache();
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

static __attribute__((noinline)) void *take_more(size_t size) {
  cache *own = own_cache();
  size_t class = class_of(size);
  if (!usable) return malloc(size_of(class));
  rack *rack = &own->racks[class];
  block *one = rack->spare || own == &closed ? rack->spare : fetch(class);
  if (!one) return settled(malloc(size_of(class)), class);
  rack->spare = NULL;
  rack->blocks = one->next;
  rack->room = 1;
  checked_kept(one);
  return one;
}

static inline void *take(size_t size) {
  if (!LIKELY(size <= CM_LARGEST_KEPT)) return malloc(size);
  rack *rack = &mine->racks[class_of(size)];
  block *one = rack->blocks;
  if (!LIKELY(one != NULL)) return take_more(size);
  rack->blocks = one->next;
  rack->room++;
  checked_kept(one);
  return one;
}

static __attribute__((noinline)) void put_more(block *one, size_t class) {
  cache *own = own_cache();
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

static inline void put(block *one, size_t class) {
  rack *rack = &mine->racks[class];
  if (!LIKELY(rack->room > 0)) return put_more(one, class);
  one->next = rack->blocks;
  rack->blocks = one;
  rack->room--;
}

HIDDEN void cm_give_back_kept(void) {
  if (mine != &unset && mine != &closed) empty(mine);
  free_store();
}

HIDDEN int32_t cm_hold_store(void) { return enter(); }
HIDDEN void cm_let_store_go(void) { leave(); }

HIDDEN void *cm_alloc(size_t size) { return checked_made(take(checked_size(size)), size); }

HIDDEN void *cm_fresh(size_t size) {
  (void)own_cache();
  if (size > CM_LARGEST_KEPT) return malloc(size);
  size_t class = class_of(size);
  return settled(malloc(size_of(class)), class);
}

HIDDEN void cm_free(void *pointer) {
  if (!pointer) return;
  checked_gone(pointer, 0);
  size_t class = class_of_block(pointer);
  if (!LIKELY(class < CLASSES)) return free(pointer);
  put(pointer, class);
}

HIDDEN void cm_free_object(void *object, size_t size) {
  checked_gone(object, size);
  size = checked_size(size);
  if (!LIKELY(size <= CM_LARGEST_KEPT)) return free(object);
  put(object, class_of(size));
}

HIDDEN void *cm_realloc(void *pointer, size_t size) {
  if (!pointer) return cm_alloc(size);
  (void)own_cache();
  if (CHECKED) {
    size_t has = checked_asked(pointer);
    void *fresh = size <= has ? pointer : cm_alloc(size);
    if (fresh && fresh != pointer) {
      memcpy(fresh, pointer, has);
      cm_free(pointer);
    }
    return fresh;
  }
  size_t class = class_of_block(pointer);
  if (class < CLASSES && size <= size_of(class)) return pointer;
  if (size > CM_LARGEST_KEPT) return realloc(pointer, size);
  class = class_of(size);
  return settled(realloc(pointer, size_of(class)), class);
}
#endif
