/* Small blocks that are used again: per thread, a stack of blocks for each size, in front of malloc.
 *
 * A call makes and lets go some dozens of small objects, a hundred calls at a time; malloc's own per-thread cache keeps
 * seven of a size, and all others cost 100 to 250 instructions a pair (a quarter of a call, before this). Here a pair
 * costs about 30.
 *
 * Each block is one of malloc's: whoever gets one may free() it, and a block from elsewhere may come in. What a thread
 * keeps is bounded by KEPT bytes, and goes back to malloc when the thread ends. Under Valgrind's memcheck nothing is
 * kept, so that it sees each block come and go.
 */
#include "cembedded.h"

#include <malloc.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define HIDDEN    __attribute__((visibility("hidden")))
/* Blocks of a class have 16 * class + 8 bytes, as glibc cuts them. */
#define CLASSES   80
#define KEPT      ((size_t)512 << 10)

typedef struct block {
  struct block *next;
} block;

typedef struct cache {
  block *first[CLASSES];
  size_t bytes;
} cache;

/* For threads that have ended, and where the cache is turned off: gives nothing, takes nothing. */
static cache closed = {.bytes = KEPT};
static __thread cache *mine __attribute__((tls_model("initial-exec")));
static pthread_key_t key;
static int usable;

static size_t class_of(size_t size) { return size <= 24 ? 1 : (size + 7) >> 4; }
static size_t size_of(size_t class) { return (class << 4) + 8; }

static void give_back(void *pointer) {
  cache *own = pointer;
  mine = &closed;
  for (size_t class = 0; class < CLASSES; class ++) {
    for (block *next, *one = own->first[class]; one; one = next) {
      next = one->next;
      free(one);
    }
  }
  free(own);
}

/* Asks memcheck to forget what it knows of a byte: without it, the answer is 0. The request is Valgrind's, a sequence
 * of rotations that changes nothing. */
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
  return mine;
}

static inline void *take(size_t size) {
  size_t class = class_of(size);
  if (!LIKELY(class < CLASSES)) return malloc(size);
  cache *own = mine;
  if (LIKELY(own != NULL)) {
    block *one = own->first[class];
    if (LIKELY(one != NULL)) {
      own->first[class] = one->next;
      own->bytes -= size_of(class);
      return one;
    }
  }
  return malloc(size_of(class));
}

static inline void put(void *pointer) {
  size_t class = (malloc_usable_size(pointer) - 8) >> 4;
  cache *own = mine;
  if (!LIKELY(own != NULL)) own = new_cache();
  if (!LIKELY(class < CLASSES && own->bytes < KEPT)) return free(pointer);
  block *one = pointer;
  one->next = own->first[class];
  own->first[class] = one;
  own->bytes += size_of(class);
}

HIDDEN void *cm_alloc(size_t size) { return take(size); }

HIDDEN void cm_free(void *pointer) {
  if (pointer) put(pointer);
}

HIDDEN void *cm_realloc(void *pointer, size_t size) {
  if (!pointer) return take(size);
  size_t has = malloc_usable_size(pointer);
  if (size <= has) return pointer;
  /* What is large may be moved by its pages. */
  if (class_of(has) >= CLASSES) return realloc(pointer, size);
  void *fresh = take(size);
  if (fresh) {
    memcpy(fresh, pointer, has < size ? has : size);
    put(pointer);
  }
  return fresh;
}
