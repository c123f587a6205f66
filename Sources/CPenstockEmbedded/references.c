/* Swift objects: how they are made, counted and freed. The Embedded Swift runtime has weak functions with these names,
 * which the functions here replace. They differ from the weak functions in three points, which together took 40 % off
 * the time of a unary call:
 *
 * - Memory comes from blocks.c, or, where there is none left, from reserve.c.
 * - The thread that releases the only reference needs no atomic operation: no other thread has a reference to copy.
 * - An object may be *confined* (cm_confine): only one thread at a time makes and drops its references, so plain
 * arithmetic is enough. The initialiser of an object that only the driving thread touches confines the object. The role
 * of the driver passes from one thread to another under a lock, so each driver sees the counts that the previous driver
 * has left.
 *
 * Besides, a static object is initialised once, and not each time that it is used.
 */
#include "cembedded.h"
#include "checks.h"

#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define HIDDEN    __attribute__((visibility("hidden")))

/* The parts of `references`: the count, and two flags in the highest bits. The compiler sets ON_STACK, cm_confine sets
 * CONFINED. The checked build keeps the object's owner between the count and the flags. */
#define ON_STACK INTPTR_MIN
#define CONFINED ((intptr_t)1 << 62)
#define COUNT    (CHECKED ? ((intptr_t)1 << CHECKED_OWNER) - 1 : CONFINED - 1)
/* An immortal object (a static one, or one whose deinit runs) has all bits set, except perhaps the highest one. So the
 * bit CONFINED is set in it too, and only objects with that bit need this check. */
static inline int is_immortal(intptr_t references) { return (references | ON_STACK) == -1; }

typedef __attribute__((swiftcall)) void (*destroyer)(__attribute__((swift_context)) void *object);

typedef struct metadata {
  const struct metadata *super;
  destroyer destroy;
} metadata;

typedef struct object {
  const metadata *metadata;
  intptr_t references;
} object;

HIDDEN void *swift_slowAlloc(size_t size, size_t align_mask) {
  if (align_mask == (size_t)-1 || align_mask < 16) return cm_insist(size);
  void *memory = NULL;
  size_t asked = size < CM_LARGEST_KEPT ? CM_LARGEST_KEPT : size;
  if (posix_memalign(&memory, align_mask + 1, asked) != 0) cm_die(size);
  return memory;
}

HIDDEN void swift_slowDealloc(void *memory, size_t size, size_t align_mask) {
  (void)size, (void)align_mask;
  cm_free(memory);
}

HIDDEN object *swift_allocObject(const metadata *metadata, size_t size, size_t align_mask) {
  object *made = LIKELY(align_mask < 16) ? cm_insist(size) : swift_slowAlloc(size, align_mask);
  made->metadata = metadata;
  made->references = 1;
  return made;
}

/* The symbol by which code that is optimised for size calls swift_allocObject. */
HIDDEN object *swift_allocObject_internal(const metadata *metadata, size_t size, size_t align_mask) __asm__(
    "$es17swift_allocObject8metadata12requiredSize0E13AlignmentMaskSpys04HeapC0VGSpys13ClassMetadataVG_S2itF");
object *swift_allocObject_internal(const metadata *metadata, size_t size, size_t align_mask) {
  return swift_allocObject(metadata, size, align_mask);
}

HIDDEN object *swift_initStaticObject(const metadata *metadata, object *one) {
  if (__atomic_load_n(&one->metadata, __ATOMIC_ACQUIRE) != metadata) {
    __atomic_store_n(&one->references, (intptr_t)-1, __ATOMIC_RELAXED);
    __atomic_store_n(&one->metadata, metadata, __ATOMIC_RELEASE);
  }
  return one;
}

HIDDEN void swift_deallocClassInstance(object *gone, size_t size, size_t align_mask) {
  if (gone->references < 0) return;
  /* A size of up to 32 bytes may be wrong: for the storage of an array the compiler passes only the size of its
   * header. */
  if (LIKELY(size > 32 && align_mask < 16)) {
    cm_free_object(gone, size);
  } else {
    cm_free(gone);
  }
}

HIDDEN void cm_confine(void *pointer) { ((object *)pointer)->references |= CONFINED | checked_owner(); }

/* Counts how many runtimes the calling thread drives, and tells the checks of confined objects about it. */
HIDDEN __thread int32_t cm_driven_now CM_AT_HAND;
HIDDEN int32_t cm_driven(const void *runtime, int32_t change) {
  checked_driven(runtime, change);
  return cm_driven_now += change;
}

static __attribute__((noinline)) void destroy(object *one, intptr_t references) {
  /* The flag ON_STACK stays as it is, because swift_deallocClassInstance reads it. All other bits are set: the object
   * is immortal while its deinit runs. */
  one->references = references | ~ON_STACK;
  one->metadata->destroy(one);
}

static inline void add(object *one, intptr_t count) {
  /* A value of 0 or less is no object: the compiler packs other data into such a reference. */
  if ((intptr_t)one <= 0) return;
  intptr_t references = __atomic_load_n(&one->references, __ATOMIC_RELAXED);
  if (!(references & CONFINED)) {
    __atomic_fetch_add(&one->references, count, __ATOMIC_RELAXED);
  } else if (!is_immortal(references)) {
    one->references = checked_counted(one, references, 0) + count;
  }
}

static inline void drop(object *one, intptr_t count) {
  if ((intptr_t)one <= 0) return;
  intptr_t references = __atomic_load_n(&one->references, __ATOMIC_ACQUIRE);
  if (!(references & CONFINED)) {
    if ((references & COUNT) == count || (__atomic_sub_fetch(&one->references, count, __ATOMIC_ACQ_REL) & COUNT) == 0) {
      destroy(one, references);
    }
  } else if (!is_immortal(references)) {
    references = checked_counted(one, references, (references & COUNT) == count);
    one->references = references - count;
    if ((one->references & COUNT) == 0) destroy(one, references);
  }
}

HIDDEN object *swift_retain(object *one) {
  add(one, 1);
  return one;
}

HIDDEN object *swift_retain_n(object *one, uint32_t count) {
  add(one, count);
  return one;
}

HIDDEN void swift_release(object *one) { drop(one, 1); }

HIDDEN void swift_release_n(object *one, uint32_t count) { drop(one, count); }

HIDDEN int swift_isUniquelyReferenced_nonNull_native(const object *one) {
  return (__atomic_load_n(&one->references, __ATOMIC_ACQUIRE) & (ON_STACK | COUNT)) == 1;
}
