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
/* A thread's counts for the gate: of the locks that it holds, and of the callbacks that it runs without being a driver. */
typedef struct cm_holder {
  int32_t held;
  int32_t callbacks;
} cm_holder;
cm_holder *cm_meet(void);
void cm_wait_at_gate(cm_holder *me);
int32_t cm_shut_gate(const void *mark, uint64_t deadline);
void cm_open_gate(int32_t is_child);
void cm_callback(int32_t change);
int32_t cm_in_callback(void);
/* Keeps other threads from the shared store of blocks until it is let go; 0: another thread uses it now. */
int32_t cm_hold_store(void);
void cm_let_store_go(void);
#endif
