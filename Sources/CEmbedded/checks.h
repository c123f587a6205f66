/* Checks of the checked build (scripts/build checked), which the shipped one does without: that nobody writes behind the
 * end of a block or into one that is kept, and that nobody but the driver of a runtime counts references to what is
 * confined to it. Whoever does ends the process with words. */
#ifndef PENSTOCK_CHECKS_H
#define PENSTOCK_CHECKS_H
#include <stddef.h>
#include <stdint.h>

#ifdef PENSTOCK_CHECKED
#define CHECKED 1
/* The size to ask malloc for, so that a red zone fits behind. */
size_t checked_size(size_t size);
/* The block, if there is one, with its red zone, and nothing of what it was before. */
void *checked_made(void *block, size_t size);
/* For how much it was made; `room` where nobody knows. */
size_t checked_asked(void *block, size_t room);
/* Looks at a block that comes back; `said`: what is claimed to have been asked for, at least. */
void checked_gone(void *block, size_t said);
/* Looks at a block that has been kept since. */
void checked_kept(void *block);
/* From this bit on stands whose a confined object is, below the one that says that it is. */
#define CHECKED_OWNER 40
/* What to put there for the runtime that this thread drives; 0 where it drives none: the object is its maker's yet. */
intptr_t checked_owner(void);
/* This thread begins (1) or ends (-1) to drive `runtime`; 0: nobody drives that one any more, if it is not NULL. */
void checked_driven(const void *runtime, int32_t change);
/* A reference to a confined object comes or goes, by plain arithmetic; `is_last`: the only one goes. What stands beside
 * the count then. */
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
