/* Makes one mistake with a block: the preloaded malloc, or the checked blocks that this program is built with, must
 * detect it. If the first argument names no mistake, none is made. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef PENSTOCK_CHECKED
#include "cembedded.h"

#include <pthread.h>
#define ALLOCATE cm_alloc
#define GROW     cm_realloc
#define FREE     cm_free
#else
#define ALLOCATE malloc
#define GROW     realloc
#define FREE     free
#endif

static unsigned char *volatile block;

static int is(const char *word, const char *mistake) { return strcmp(word, mistake) == 0; }

/* The bytes of a block to which nothing was written, or which was freed: so a program that reads them shows. */
enum { NEW = 0xa5, GONE = 0xdd };
static void holds(const unsigned char *bytes, size_t from, size_t size, unsigned char byte) {
  const volatile unsigned char *all = bytes;
  for (size_t i = from; i < size; i++) {
    if (all[i] == byte) continue;
    printf("byte %zu of %zu is %02x instead of %02x\n", i, size, all[i], byte);
    exit(1);
  }
}

#ifdef PENSTOCK_CHECKED
/* The functions that the compiler calls; Sources/CPenstockEmbedded/references.c. */
void *swift_allocObject(const void *metadata, size_t size, size_t align_mask);
void *swift_retain(void *object);
void swift_release(void *object);
void swift_deallocClassInstance(void *object, size_t size, size_t align_mask);
static void destroy(void *object);
static const struct {
  const void *super;
  void (*destroy)(void *object);
} metadata = {NULL, destroy};

static size_t object_size;
/* The addresses of these two variables stand for two runtimes. */
static char one, other_one;
static void destroy(void *object) { swift_deallocClassInstance(object, object_size, 7); }

static void *count(void *object) {
  swift_release(swift_retain(object));
  return NULL;
}

static void *count_as_other(void *object) {
  cm_driven(&other_one, 1);
  count(object);
  cm_driven(&other_one, -1);
  return NULL;
}

static void *count_as_one(void *object) {
  cm_driven(&one, 1);
  count(object);
  cm_driven(&one, -1);
  return NULL;
}

static void *drop(void *object) {
  swift_release(object);
  return NULL;
}

static void on_a_thread(void *(*body)(void *), void *object) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, body, object) == 0) pthread_join(thread, NULL);
}

/* Confines objects to a runtime that this thread drives, and counts references to them. Counting is allowed on the
 * driver of that runtime, on any thread before the runtime is driven and after its end, and for the last reference.
 * `what` adds a mistake: the thread that counts drives no runtime, or another runtime; or a thread stops driving that
 * does not drive. */
static void confine(const char *what, size_t size) {
  object_size = size < 40 ? 40 : size;
  void *unshared = swift_allocObject(&metadata, object_size, 7);
  cm_confine(unshared);
  count(unshared);
  cm_driven(&one, 1);
  void *object = swift_allocObject(&metadata, object_size, 7);
  cm_confine(object);
  swift_retain(object);
  count(unshared);
  if (is(what, "elsewhere")) on_a_thread(count, object);
  if (is(what, "adopted")) on_a_thread(count, unshared);
  cm_driven(&one, -1);
  if (is(what, "no driver")) count(object);
  if (is(what, "other driver")) on_a_thread(count_as_other, object);
  if (is(what, "leaves off")) cm_driven(&one, -1);
  on_a_thread(count_as_one, object);
  cm_driven(&one, 1);
  swift_release(object);
  cm_driven(&one, -1);
  on_a_thread(drop, object);
  cm_driven(&one, 0);
  on_a_thread(count, unshared);
  swift_release(unshared);
}
#endif

int main(int argc, char **argv) {
  const char *what = argc > 1 ? argv[1] : "";
  size_t size = argc > 2 ? strtoul(argv[2], NULL, 10) : 40;
  unsigned char *other = ALLOCATE(size);
  block = ALLOCATE(size);
  holds(block, 0, size, NEW);
  memset(block, 1, size);
  if (is(what, "behind")) block[size] = 1;
  if (is(what, "far behind")) memset(block + size, 1, 16);
  if (is(what, "grown")) {
    block[size] = 1;
    block = GROW(block, size * 4);
  }
#ifndef PENSTOCK_CHECKED
  if (is(what, "before")) block[-1] = 1;
  if (is(what, "left")) {
    block[size] = 1;
    return 0;
  }
#else
  confine(what, size);
  if (is(what, "larger")) {
    cm_free_object(block, size + 1);
    return 0;
  }
#endif
  FREE(block);
  /* The first bytes of a kept block are its links; those of another one are malloc's. */
  holds(block, 32, size, GONE);
  if (is(what, "freed")) block[size - 1] = 1;
  if (is(what, "twice")) FREE(block);
  FREE(ALLOCATE(size));
  FREE(other);
  FREE(GROW(NULL, size));
  other = ALLOCATE(size);
  holds(other, 0, size, NEW);
  memset(other, 1, size);
  other = GROW(other, size * 3);
  holds(other, 0, size, 1);
  holds(other, size, size * 3, NEW);
  FREE(other);
  printf("no mistake\n");
  return 0;
}
