/* Checks of the checked build (scripts/build checked); the shipped library does not have them. They find code that
 * writes behind the end of a block, or into a freed block that the cache keeps. They also find a thread that counts
 * references to an object confined to a runtime that the thread does not drive. A fault ends the process with a
 * message. */
#ifndef PENSTOCK_CHECKS_H
#define PENSTOCK_CHECKS_H
#include <stddef.h>
#include <stdint.h>

#ifdef PENSTOCK_CHECKED
#define CHECKED 1
/* The size to ask malloc for, so that a red zone fits behind `size` bytes. */
size_t checked_size(size_t size);
/* Prepares a new block of `size` bytes from malloc: adds its red zone and overwrites its former content. `block` may be
 * NULL. Returns `block`. */
void *checked_made(void *block, size_t size);
/* The size that `checked_made` got for the block. A build without checks does not know it. */
size_t checked_asked(void *block);
/* Checks a block that is being freed, and marks it as freed. `said` is the size that the caller believes the block to
 * have; it must not be larger than the size that was asked for. 0: the caller does not know the size. */
void checked_gone(void *block, size_t said);
/* Checks that a block was not written to while the cache kept it. */
void checked_kept(void *block);
/* The position of the owner bits in the word of an object's reference count. They are the number of the runtime to
 * which the object is confined; 0: the object has no owner yet. */
#define CHECKED_OWNER 40
/* The owner bits of the runtime that this thread drives: the number by which the checks know that runtime. 0: the
 * thread drives none, so an object that it makes has no owner yet. */
intptr_t checked_owner(void);
/* Notes that this thread begins (`change` 1) or ceases (-1) to drive `runtime`, or that `runtime` has ended (0). NULL
 * is ignored. */
void checked_driven(const void *runtime, int32_t change);
/* Checks that this thread may change the reference count of a confined object by plain arithmetic. `is_last`: the
 * thread drops the last reference. Returns `references` with the object's owner bits. */
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
static inline size_t checked_asked(void *block) {
  (void)block;
  return 0;
}
static inline void checked_gone(void *block, size_t said) { (void)block, (void)said; }
static inline void checked_kept(void *block) { (void)block; }
#endif
#endif
