/* A malloc to be preloaded. Its blocks are exactly as large as requested, and malloc_usable_size says so. A write
 * before or behind a block, or into a freed block, ends the process with a message: the check runs when the block is
 * freed or grows, when it leaves the list of recently freed blocks, and at exit for the blocks that are still there.
 * With CANARY_CLAIMS malloc_usable_size says more than that, as that of a hardened malloc may: it rounds up to a multiple
 * of CLAIM, and says CLAIM bytes more for every eighth block from malloc. A write into these bytes ends the process, too.
 * refusal.c decides which allocations fail.
 *
 * In front of a block is its `head`, which ends with GUARD bytes; behind the block are GUARD bytes more.
 */
#define _GNU_SOURCE 1
#include "refusal.h"

#include <errno.h>
#include <execinfo.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void *__libc_memalign(size_t alignment, size_t size);
void __libc_free(void *block);

enum { GUARD = 16, CLAIM = 64, BEFORE = 0xca, BEHIND = 0xfe, NEW = 0xa5, GONE = 0xdd };
/* Recently freed blocks are kept for a check: fewer than KEPT of them, and at most KEPT_BYTES bytes in all. */
enum { KEPT = 512, KEPT_BYTES = 1 << 20 };
#define LIVE  0x6c697665u
#define FREED 0x66726565u

typedef struct head {
  struct head *next, *last;
  void *start;
  size_t size;
  uint32_t state;
  /* The number of bytes behind the block that malloc_usable_size claims besides. */
  uint32_t claimed;
  /* The caller that requested the block. */
  void *caller;
  unsigned char guard[GUARD];
} head;

_Static_assert(sizeof(head) == 64, "what follows a head is aligned as it is");

static head all = {&all, &all, NULL, 0, 0, 0, NULL, {0}};
static head *kept[KEPT];
static int claims;
static atomic_uint made;
static size_t kept_bytes, newest, oldest;
static atomic_flag busy = ATOMIC_FLAG_INIT;
static const char *volatile wrong;

static void enter(void) {
  while (atomic_flag_test_and_set_explicit(&busy, memory_order_acquire)) sched_yield();
}

static void leave(void) { atomic_flag_clear_explicit(&busy, memory_order_release); }

static _Noreturn void die(const char *what, const void *block, size_t size) {
  char text[160];
  int length = snprintf(text, sizeof(text), "canary: %s: block %p of %zu bytes\n", what, block, size);
  if (write(STDERR_FILENO, text, (size_t)length) < 0) wrong = what;
  abort();
}

static unsigned char *bytes_of(head *one) { return (unsigned char *)(one + 1); }

static int is_all(const unsigned char *from, size_t count, unsigned char wanted) {
  while (count && *from == wanted) from++, count--;
  return count == 0;
}

static void look(head *one) {
  if (one->state != LIVE)
    die(one->state == FREED ? "freed twice" : "no block, or written before it", one + 1, one->size);
  if (!is_all(one->guard, GUARD, BEFORE)) die("written before its start", one + 1, one->size);
  if (!is_all(bytes_of(one) + one->size, one->claimed + GUARD, BEHIND))
    die("written behind its end", one + 1, one->size);
}

/* The number of bytes to claim beyond `size`. */
static uint32_t claim(size_t size, int may_be_odd) {
  if (!claims) return 0;
  uint32_t number = atomic_fetch_add_explicit(&made, 1, memory_order_relaxed);
  return (uint32_t)(-size % CLAIM) + (may_be_odd && number % 8 == 0 ? CLAIM : 0);
}

static void *make_with(size_t alignment, size_t size, uint32_t claimed, int filler, void *caller) {
  if (refuses(caller, size)) return NULL;
  if (alignment < 16) alignment = 16;
  size_t front = sizeof(head) > alignment ? sizeof(head) : alignment;
  size_t behind = claimed + GUARD;
  char *start = size > PTRDIFF_MAX - front - behind ? NULL : __libc_memalign(alignment, front + size + behind);
  if (!start) {
    errno = ENOMEM;
    return NULL;
  }
  head *one = (head *)(start + front) - 1;
  one->start = start;
  one->size = size;
  one->state = LIVE;
  one->claimed = claimed;
  one->caller = caller;
  memset(one->guard, BEFORE, GUARD);
  memset(bytes_of(one), filler, size);
  memset(bytes_of(one) + size, BEHIND, behind);
  enter();
  one->next = all.next;
  one->last = &all;
  all.next->last = one;
  all.next = one;
  leave();
  return one + 1;
}

static void *make(size_t alignment, size_t size, int filler, void *caller) {
  return make_with(alignment, size, claim(size, 1), filler, caller);
}

/* Gives a freed block back to glibc, after a check that no code has written into it. The lock is held. */
static void let_go(head *one) {
  if (one->state != FREED || !is_all(bytes_of(one), one->size, GONE))
    die("written after it was freed", one + 1, one->size);
  kept_bytes -= one->size;
  __libc_free(one->start);
}

void free(void *block) {
  if (!block) return;
  int number = errno;
  head *one = (head *)block - 1;
  enter();
  look(one);
  one->next->last = one->last;
  one->last->next = one->next;
  one->state = FREED;
  memset(block, GONE, one->size);
  kept_bytes += one->size;
  kept[newest++ % KEPT] = one;
  while (newest - oldest == KEPT || kept_bytes > KEPT_BYTES) let_go(kept[oldest++ % KEPT]);
  leave();
  errno = number;
}

#define CALLER __builtin_return_address(0)

void *malloc(size_t size) { return make(16, size, NEW, CALLER); }

void *calloc(size_t count, size_t each) {
  size_t size;
  return make(16, __builtin_mul_overflow(count, each, &size) ? SIZE_MAX : size, 0, CALLER);
}

void *realloc(void *block, size_t size) {
  if (!block) return make_with(16, size, claim(size, 0), NEW, CALLER);
  head *one = (head *)block - 1;
  look(one);
  void *fresh = make_with(16, size, claim(size, 0), NEW, CALLER);
  if (!fresh) return NULL;
  memcpy(fresh, block, one->size < size ? one->size : size);
  free(block);
  return fresh;
}

void *memalign(size_t alignment, size_t size) { return make(alignment, size, NEW, CALLER); }
void *aligned_alloc(size_t alignment, size_t size) { return make(alignment, size, NEW, CALLER); }

int posix_memalign(void **block, size_t alignment, size_t size) {
  *block = make(alignment, size, NEW, CALLER);
  return *block ? 0 : ENOMEM;
}

size_t malloc_usable_size(void *block) {
  if (!block) return 0;
  head *one = (head *)block - 1;
  look(one);
  return one->size + one->claimed;
}

long canary_blocks(void) {
  long count = 0;
  enter();
  for (head *one = all.next; one != &all; one = one->next) count += is_library(one->caller);
  leave();
  return count;
}

void canary_younger(long count, int descriptor) {
  void *callers[32];
  int found = 0;
  enter();
  for (head *one = all.next; one != &all && found < 32 && found < count; one = one->next) {
    if (is_library(one->caller)) callers[found++] = one->caller;
  }
  leave();
  backtrace_symbols_fd(callers, found, descriptor);
}

/* Checks the blocks that are still there, and those that were freed last. */
__attribute__((destructor)) static void end(void) {
  enter();
  for (head *one = all.next; one != &all; one = one->next) look(one);
  while (oldest != newest) let_go(kept[oldest++ % KEPT]);
  leave();
}

__attribute__((constructor)) static void begin(void) {
  claims = getenv("CANARY_CLAIMS") != NULL;
  pthread_atfork(enter, leave, leave);
}
