/* Uses the cache of blocks at random, from two threads that free each other's blocks, and writes each block as far as it
 * was asked for. The malloc below tells whether anything is written beyond the bytes that it was asked for. The argument
 * is the seed. */
#include "cembedded.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *swift_slowAlloc(size_t size, size_t align_mask);
void swift_slowDealloc(void *memory, size_t size, size_t align_mask);

enum { SLOTS = 400, STEPS = 40000, LARGEST = 3000 };

typedef struct slot {
  pthread_mutex_t lock;
  unsigned char *block;
  size_t size;
  unsigned char filler;
  enum { EMPTY, BYTES, OBJECT, ALIGNED } kind;
} slot;

static slot slots[SLOTS];

static _Noreturn void fail(const char *what, size_t size) {
  printf("%s: %zu bytes\n", what, size);
  exit(1);
}

static void fill(slot *one, unsigned char *block, size_t size, uint32_t random) {
  one->block = block;
  one->size = size;
  one->filler = (unsigned char)(random >> 24);
  memset(block, one->filler, size);
}

static void check(const slot *one, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (one->block[i] != one->filler) fail("a block has lost its content", one->size);
  }
}

static void make(slot *one, size_t size, uint32_t random) {
  unsigned char *block;
  switch (random >> 16 & 3) {
  case 0:
    one->kind = OBJECT, block = cm_insist(size);
    break;
  case 1:
    one->kind = ALIGNED, block = swift_slowAlloc(size, 63);
    break;
  default:
    one->kind = BYTES, block = cm_alloc(size);
    break;
  }
  if (!block || (uintptr_t)block % (one->kind == ALIGNED ? 64 : 16)) fail("no block, or at a wrong address", size);
  fill(one, block, size, random);
}

static void step(slot *one, size_t size, uint32_t random) {
  if (one->kind == EMPTY) return make(one, size, random);
  check(one, one->size);
  if (one->kind == BYTES && random & 1 << 20) {
    size_t both = size < one->size ? size : one->size;
    unsigned char *block = cm_realloc(one->block, size);
    if (!block) fail("a block could not be resized", size);
    one->block = block;
    check(one, both);
    return fill(one, block, size, random);
  }
  if (one->kind == OBJECT) {
    cm_free_object(one->block, one->size);
  } else if (one->kind == ALIGNED) {
    swift_slowDealloc(one->block, one->size, 63);
  } else {
    cm_free(one->block);
  }
  one->kind = EMPTY;
}

static void *use(void *seed) {
  uint64_t state = (uintptr_t)seed;
  for (int i = 0; i < STEPS; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    uint32_t random = (uint32_t)(state >> 32);
    slot *one = &slots[random % SLOTS];
    pthread_mutex_lock(&one->lock);
    step(one, 1 + (random >> 4) % (random & 8 ? 200 : LARGEST), random * 2654435761u);
    pthread_mutex_unlock(&one->lock);
  }
  return NULL;
}

/* Most blocks come back for the next request of their size: without this the program would show nothing. */
static void check_that_blocks_are_kept(void) {
  size_t kept = 0;
  for (size_t size = 1; size <= CM_LARGEST_KEPT; size++) {
    void *first = cm_alloc(size);
    cm_free(first);
    void *second = cm_alloc(size);
    kept += first == second;
    cm_free(second);
  }
  if (kept < CM_LARGEST_KEPT / 4 * 3) fail("few blocks are kept", kept);
}

int main(int argc, char **argv) {
  uintptr_t seed = argc > 1 ? strtoul(argv[1], NULL, 10) : 1;
  for (int i = 0; i < SLOTS; i++) pthread_mutex_init(&slots[i].lock, NULL);
  check_that_blocks_are_kept();
  pthread_t other;
  if (pthread_create(&other, NULL, use, (void *)(seed * 2)) != 0) fail("no thread", 0);
  use((void *)(seed * 2 + 1));
  pthread_join(other, NULL);
  for (int i = 0; i < SLOTS; i++) {
    if (slots[i].kind != EMPTY) step(&slots[i], 1, 0);
  }
  return 0;
}
