/* What stands under Embedded Swift: what its runtime takes from libc and older glibc versions lack, and its memory.
 * Swift does not import it; what Swift sees of it is in cmemory.h. */
#ifndef PENSTOCK_CEMBEDDED_H
#define PENSTOCK_CEMBEDDED_H
#include <stddef.h>
#include <stdint.h>
void *cm_alloc(size_t size);
void *cm_realloc(void *block, size_t size);
void cm_free(void *block);
/* What cm_alloc has given for `size` or more: of a Swift object, whose size is the compiler's. */
void cm_free_object(void *object, size_t size);
void cm_confine(void *object);
int32_t cm_driven(const void *runtime, int32_t change);
#endif
