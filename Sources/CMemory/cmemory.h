/* Memory and nothing else of libc: what the sans-IO modules may use. */
#ifndef PENSTOCK_CMEMORY_H
#define PENSTOCK_CMEMORY_H
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Blocks that are used again (Sources/CEmbedded/blocks.c); each may be given to free() too. In full mode, where the
 * sanitizers run, malloc itself. */
#ifdef PENSTOCK_EMBEDDED
void *cm_alloc(size_t size);
void *cm_realloc(void *block, size_t size);
void cm_free(void *block);
/* From now on only one thread at a time makes and drops references to this Swift object
 * (Sources/CEmbedded/references.c). */
void cm_confine(void *object);
/* Adds a reference to a Swift object that no other thread has yet. */
static inline void cm_retain_new(void *object) { ((intptr_t *)object)[1]++; }
/* Notes that the calling thread begins (1) or ends (-1) to drive `runtime`; 0: no thread drives that runtime any
 * more, if it is not NULL. Returns how many runtimes the calling thread drives now. */
int32_t cm_driven(const void *runtime, int32_t change);
#else
static inline void *cm_alloc(size_t size) { return malloc(size); }
static inline void *cm_realloc(void *block, size_t size) { return realloc(block, size); }
static inline void cm_free(void *block) { free(block); }
static inline void cm_confine(void *object) { (void)object; }
/* Each object file has a count of its own. */
static inline int32_t cm_driven(const void *runtime, int32_t change) {
  (void)runtime;
  static __thread int32_t count;
  return count += change;
}
#endif
#endif
