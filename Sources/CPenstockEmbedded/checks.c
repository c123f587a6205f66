/* A confined object (references.c) has a count that changes by plain arithmetic. These threads may change it: the
 * thread that drives the object's runtime; the thread that holds the only reference; the thread that made the object,
 * before a driver has seen it; and any thread once the runtime has ended. A hash of a runtime's address identifies
 * the runtime. Nothing is checked in a forked child, which has one thread and drives none of its parent's runtimes.
 *
 * Red zones: a block ends with at least eight bytes of ZONE and a word that has the requested size, mixed with the
 * block's address. A freed block that the cache keeps is filled with GONE, except for the two pointers at its start. */
#ifdef PENSTOCK_CHECKED
#include "checks.h"

#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HIDDEN __attribute__((visibility("hidden")))
#define KEY    0x5eed0ff1ce5afe11u
#define LINKS  16
enum { ZONE = 0xfd, NEW = 0xa5, GONE = 0xdd, WORD = sizeof(uint64_t) };

static _Noreturn void die(const char *what, void *block, size_t size) {
  fprintf(stderr, "libpenstock (checked): %s: block %p of %zu bytes\n", what, block, size);
  abort();
}

/* The index of the first byte that is not `wanted`, beginning at `from`; `size` if there is none. */
static size_t differs(const unsigned char *block, size_t from, size_t size, unsigned char wanted) {
  while (from < size && block[from] == wanted) from++;
  return from;
}

HIDDEN size_t checked_size(size_t size) { return size > SIZE_MAX - 2 * WORD ? SIZE_MAX : size + 2 * WORD; }

HIDDEN void *checked_made(void *block, size_t size) {
  if (!block) return NULL;
  size_t end = malloc_usable_size(block) - WORD;
  uint64_t word = size ^ (uintptr_t)block ^ KEY;
  memset(block, NEW, size);
  memset((char *)block + size, ZONE, end - size);
  memcpy((char *)block + end, &word, WORD);
  return block;
}

HIDDEN size_t checked_asked(void *block) {
  size_t has = malloc_usable_size(block);
  if (has < 2 * WORD) die("a freed block was not allocated here", block, has);
  uint64_t word;
  memcpy(&word, (char *)block + has - WORD, WORD);
  size_t size = word ^ (uintptr_t)block ^ KEY;
  if (size > has - 2 * WORD) die("written far behind its end, freed twice, or not allocated here", block, has);
  return size;
}

HIDDEN void checked_gone(void *block, size_t said) {
  size_t size = checked_asked(block), has = malloc_usable_size(block);
  if (said > size) die("freed as larger than it was allocated", block, size);
  if (differs(block, size, has - WORD, ZONE) < has - WORD) die("written behind its end", block, size);
  memset(block, GONE, has);
}

HIDDEN void checked_kept(void *block) {
  size_t has = malloc_usable_size(block);
  if (differs(block, LINKS, has, GONE) < has) die("written after it was freed", block, has);
}

/* ---- Confined objects ---- */

enum { OWNERS = (1 << 21) - 1, MOST = 512 };

/* The numbers of the runtimes that this thread drives now, as in the owner bits of objects. There are several if a
 * callback of one runtime drives another. A thread that forks drives every loop of the process. */
static __thread intptr_t driven[MOST];
static __thread int drives;

/* One bit for each number of a runtime, set once the runtime with that number has ended. */
static _Atomic uint8_t over[(OWNERS + 1) / 8];
static volatile int is_child;

static void note_child(void) { is_child = 1; }
__attribute__((constructor)) static void begin(void) { pthread_atfork(NULL, NULL, note_child); }

static intptr_t owner_of(const void *runtime) {
  intptr_t owner = (intptr_t)((uintptr_t)runtime * 0x9e3779b97f4a7c15u >> 43);
  return (owner ? owner : 1) << CHECKED_OWNER;
}

HIDDEN void checked_driven(const void *runtime, int32_t change) {
  if (!runtime) return;
  intptr_t owner = owner_of(runtime), number = owner >> CHECKED_OWNER;
  if (change == 0) {
    over[number / 8] |= (uint8_t)(1 << number % 8);
  } else if (change > 0) {
    over[number / 8] &= (uint8_t) ~(1 << number % 8);
    if (drives == MOST) die("too many runtimes are driven by one thread", NULL, 0);
    driven[drives++] = owner;
  } else {
    int at = drives;
    while (at > 0 && driven[at - 1] != owner) at--;
    if (at == 0) die("a thread stops driving a runtime that it does not drive", NULL, 0);
    memmove(driven + at - 1, driven + at, (size_t)(drives-- - at) * sizeof(*driven));
  }
}

HIDDEN intptr_t checked_owner(void) { return drives ? driven[drives - 1] : 0; }

HIDDEN intptr_t checked_counted(void *object, intptr_t references, int is_last) {
  intptr_t owner = references & (intptr_t)OWNERS << CHECKED_OWNER;
  intptr_t number = owner >> CHECKED_OWNER;
  if (is_last || is_child || over[number / 8] >> number % 8 & 1) return references;
  if (owner == 0) return references | checked_owner();
  for (int i = 0; i < drives; i++) {
    if (driven[i] == owner) return references;
  }
  die("counted by a thread that does not drive its runtime", object, malloc_usable_size(object));
}
#endif
