/* What stands under Embedded Swift: what its runtime takes from libc and older glibc versions lack, and its memory.
 * Swift does not import it; what Swift sees of it is in cmemory.h. */
#ifndef PENSTOCK_CEMBEDDED_H
#define PENSTOCK_CEMBEDDED_H
#include <stddef.h>
void *cm_alloc(size_t size);
void *cm_realloc(void *block, size_t size);
void cm_free(void *block);
void cm_free_sized(void *block, size_t size);
void cm_confine(void *object);
#endif
