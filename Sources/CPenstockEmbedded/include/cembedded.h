/* Functions that the runtime of Embedded Swift needs: functions of libc that older glibc versions lack, and functions
 * for memory. Swift does not import this header; cmemory.h declares the functions that Swift code calls. */
#ifndef PENSTOCK_CEMBEDDED_H
#define PENSTOCK_CEMBEDDED_H
#include <features.h>
#include <stddef.h>
#include <stdint.h>
/* For thread-local variables, as in cmemory.h. */
#ifdef __GLIBC__
#define CM_AT_HAND __attribute__((tls_model("initial-exec")))
#else
#define CM_AT_HAND
#endif
void *cm_alloc(size_t size);
void *cm_realloc(void *block, size_t size);
/* Takes blocks of the functions here, and others of which malloc was asked for at least CM_LARGEST_KEPT bytes. */
void cm_free(void *block);
/* No block that is kept for later serves more bytes than this. */
#define CM_LARGEST_KEPT 1272
/* Like cm_alloc, but the block comes from malloc even if some are kept. */
void *cm_fresh(size_t size);
/* Like cm_alloc, but never gives NULL: takes a block of the reserve (reserve.c), or ends the process. */
void *cm_insist(size_t size);
/* Ends the process, because there is no memory for `size` bytes; tells the program's hook first. */
_Noreturn void cm_die(size_t size);
typedef void (*cm_hook)(size_t size, void *user_data);
void cm_set_hook(cm_hook hook, void *user_data);
extern int32_t cm_low;
extern int64_t cm_calls, cm_calls_reserved;
void cm_reserve_for_calls(int64_t count);
int32_t cm_still_low(void);
/* Gives the blocks that the calling thread and the store keep back to malloc (blocks.c). */
void cm_give_back_kept(void);
/* Frees a Swift object. The compiler knows its `size`; cm_alloc has given at least that many bytes for it. */
void cm_free_object(void *object, size_t size);
void cm_confine(void *object);
int32_t cm_driven(const void *runtime, int32_t change);
/* The counts that each thread keeps for the gate (gate.c): how many locks it holds, and how many callbacks it runs
 * without driving a runtime. */
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
/* Takes the lock of the shared store of blocks (blocks.c), until cm_let_store_go releases it. Returns 0 if another
 * thread has the lock. */
int32_t cm_hold_store(void);
void cm_let_store_go(void);
#endif
