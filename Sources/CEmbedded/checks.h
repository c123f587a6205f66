/* Checks of the checked build (scripts/build checked), which the shipped library does not have: that no code writes
 * behind the end of a block or into a freed block that the cache keeps, and that only the driver of a runtime counts
 * references to objects that are confined to it. A fault ends the process with a message. */
#ifndef PENSTOCK_CHECKS_H
#define PENSTOCK_CHECKS_H
#include <stddef.h>
#include <stdint.h>

#ifdef PENSTOCK_CHECKED
#define CHECKED 1
/* The size to ask malloc for, so that a red zone fits behind. */
size_t checked_size(size_t size);
/* Prepares the block, if there is one, that malloc has given for `size`: adds its red zone and overwrites its former
 * content. */
void *checked_made(void *block, size_t size);
/* The size for which the block was made; `room` if that is not known. */
size_t checked_asked(void *block, size_t room);
/* Checks a block that is being freed, and marks it as freed; `said`: the size that the caller frees, which must not be
 * more than was asked for; 0: not known. */
void checked_gone(void *block, size_t said);
/* Checks that a block was not written to while the cache kept it. */
void checked_kept(void *block);
/* In the word of an object's reference count: the lowest bit of the number of the runtime that owns the object, if it is
 * confined to one; 0: it has no owner yet. */
#define CHECKED_OWNER 40
/* The owner bits of the runtime that this thread drives. 0: it drives none, so an object that it makes has no owner
 * yet. */
intptr_t checked_owner(void);
/* Notes that this thread begins (`change` 1) or ceases (-1) to drive `runtime`, or that `runtime` has ended (0). NULL
 * is ignored. */
void checked_driven(const void *runtime, int32_t change);
/* Checks that this thread may add or drop a reference to a confined object by plain arithmetic; `is_last`: the thread
 * drops the last reference. Returns `references` with the object's owner bits. */
intptr_t checked_counted(void *object, intptr_t references, int is_last);
#else
#define CHECKED       0
#define CHECKED_OWNER 0
static inline intptr_t checked_owner(void) { return 0; }
static inline void checked_driven(const void *runtime, int32_t change) { (void)runtime, (void)change; }
static inline intptr_t checked_counted(void *object, intptr_t references, int is_last) {
  (void)object, (void)is_last;
  return references;
}
static inline size_t checked_size(size_t size) { return size; }
static inline void *checked_made(void *block, size_t size) {
  (void)size;
  return block;
}
static inline size_t checked_asked(void *block, size_t room) {
  (void)block;
  return room;
}
static inline void checked_gone(void *block, size_t said) { (void)block, (void)said; }
static inline void checked_kept(void *block) { (void)block; }
#endif
#endif
