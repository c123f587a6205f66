/* The functions of libc that the sans-IO modules may use: those for memory, and no others. */
#ifndef PENSTOCK_CMEMORY_H
#define PENSTOCK_CMEMORY_H
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Functions like malloc, realloc and free that keep freed blocks to give them out again (Sources/CEmbedded/blocks.c);
 * free() takes their blocks too. In full Swift, where the sanitizers run, they are malloc, realloc and free
 * themselves. */
#ifdef PENSTOCK_EMBEDDED
void *cm_alloc(size_t size);
void *cm_realloc(void *block, size_t size);
void cm_free(void *block);
/* From now on only one thread at a time makes and drops references to this Swift object
 * (Sources/CEmbedded/references.c). */
void cm_confine(void *object);
/* Adds a reference to a Swift object that no other thread has yet. */
static inline void cm_retain_new(void *object) { ((intptr_t *)object)[1]++; }
/* Notes that the calling thread begins (`change` 1) or ceases (-1) to drive `runtime`, or that `runtime` has ended (0);
 * with 0 and NULL nothing is noted. Returns how many runtimes the calling thread drives now. */
int32_t cm_driven(const void *runtime, int32_t change);
#else
static inline void *cm_alloc(size_t size) { return malloc(size); }
static inline void *cm_realloc(void *block, size_t size) { return realloc(block, size); }
static inline void cm_free(void *block) { free(block); }
static inline void cm_confine(void *object) { (void)object; }
/* The function is static, so each object file that calls it has a count of its own. */
static inline int32_t cm_driven(const void *runtime, int32_t change) {
  (void)runtime;
  static __thread int32_t count;
  return count += change;
}
#endif
#endif
