/* Functions that the runtime of Embedded Swift needs: functions of libc that older glibc versions lack, and functions
 * for memory. Swift does not import this header; cmemory.h declares the functions that Swift code calls. */
#ifndef PENSTOCK_CEMBEDDED_H
#define PENSTOCK_CEMBEDDED_H
#include <stddef.h>
#include <stdint.h>
void *cm_alloc(size_t size);
void *cm_realloc(void *block, size_t size);
void cm_free(void *block);
/* Frees memory that cm_alloc has given for `size` or more: that of a Swift object, whose size the compiler knows. */
void cm_free_object(void *object, size_t size);
void cm_confine(void *object);
int32_t cm_driven(const void *runtime, int32_t change);
#endif
