/* Memory without a cache of blocks (blocks.c), for a build with PENSTOCK_BLOCK_CACHE=0: malloc sees each allocation and
 * each free. */
#ifdef PENSTOCK_NO_BLOCK_CACHE
#include "cembedded.h"

#include <stdatomic.h>
#include <stdlib.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* There is no store, but the reserve has its lock. */
static atomic_flag busy = ATOMIC_FLAG_INIT;

HIDDEN int32_t cm_hold_store(void) { return !atomic_flag_test_and_set_explicit(&busy, memory_order_acquire); }
HIDDEN void cm_let_store_go(void) { atomic_flag_clear_explicit(&busy, memory_order_release); }
HIDDEN void cm_give_back_kept(void) {}

HIDDEN void *cm_alloc(size_t size) { return malloc(size > 0 ? size : 1); }
HIDDEN void *cm_fresh(size_t size) { return cm_alloc(size); }
HIDDEN void *cm_realloc(void *pointer, size_t size) { return realloc(pointer, size > 0 ? size : 1); }
HIDDEN void cm_free(void *pointer) { free(pointer); }
HIDDEN void cm_free_object(void *object, size_t size) {
  (void)size;
  free(object);
}
#endif
