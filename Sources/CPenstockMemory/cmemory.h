/* The functions of libc that the modules without I/O may use: only those for memory. */
#ifndef PENSTOCK_CMEMORY_H
#define PENSTOCK_CMEMORY_H
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* For thread-local variables that are read often: each thread has them at a place that the loader fixes. glibc keeps some
 * room for a library that a running program loads, as Python does; musl has none, and refuses to load it. */
#ifdef __GLIBC__
#define CM_AT_HAND __attribute__((tls_model("initial-exec")))
#else
#define CM_AT_HAND
#endif

/* cm_alloc, cm_realloc and cm_free are used like malloc, realloc and free. They keep freed blocks, to give them out
 * again (Sources/CPenstockEmbedded/blocks.c); free() takes their blocks too. In full Swift, where the sanitizers run, they
 * are malloc, realloc and free themselves. */
#ifdef PENSTOCK_EMBEDDED
void *cm_alloc(size_t size);
void *cm_realloc(void *block, size_t size);
void cm_free(void *block);
/* Like cm_alloc, for memory that Swift code needs for a small object of its own: never gives NULL. Where there is no
 * memory it takes a block of the reserve (Sources/CPenstockEmbedded/reserve.c); without one the process ends. */
void *cm_insist(size_t size);
/* Whether memory is so low that objects come from the reserve. Then nothing new is begun: a function that would make a
 * call, a channel or a message gives "no memory" instead. */
extern int32_t cm_low __attribute__((visibility("hidden")));
int32_t cm_still_low(void);
static inline int32_t cm_is_low(void) {
  return __builtin_expect(__atomic_load_n(&cm_low, __ATOMIC_RELAXED) != 0, 0) && cm_still_low();
}
/* Counts the calls that exist: the reserve has room for the end of each, and is filled again as calls end. One for more
 * than CM_FEW_CALLS shrinks when fewer than a quarter are left; a smaller one stays, so that calls in batches do not make
 * it anew each time. */
#define CM_FEW_CALLS 256
extern int64_t cm_calls __attribute__((visibility("hidden")));
extern int64_t cm_calls_reserved __attribute__((visibility("hidden")));
void cm_reserve_for_calls(int64_t count);
static inline void cm_call_begins(void) {
  int64_t count = __atomic_add_fetch(&cm_calls, 1, __ATOMIC_RELAXED);
  if (__builtin_expect(count > __atomic_load_n(&cm_calls_reserved, __ATOMIC_RELAXED), 0)) cm_reserve_for_calls(count);
}
static inline void cm_call_ends(void) {
  int64_t count = __atomic_sub_fetch(&cm_calls, 1, __ATOMIC_RELAXED);
  int64_t reserved = __atomic_load_n(&cm_calls_reserved, __ATOMIC_RELAXED);
  if (__builtin_expect(reserved > CM_FEW_CALLS && count < reserved / 4, 0)) cm_reserve_for_calls(count);
  cm_is_low();
}
/* Sets the function that is told before the process ends for lack of memory; NULL: none. */
typedef void (*cm_hook)(size_t size, void *user_data);
void cm_set_hook(cm_hook hook, void *user_data);
/* Confines a Swift object: from now on only one thread at a time makes and drops references to it, so they are counted
 * without atomic operations (Sources/CPenstockEmbedded/references.c). */
void cm_confine(void *object);
/* Adds a reference to a Swift object to which no other thread has a reference yet. */
static inline void cm_retain_new(void *object) { ((intptr_t *)object)[1]++; }
/* Notes that the calling thread begins (`change` 1) or ceases (-1) to drive `runtime`, or that `runtime` has ended
 * (0). With 0 and NULL nothing is noted. Returns how many runtimes the calling thread drives now. */
int32_t cm_driven(const void *runtime, int32_t change);
/* cm_drives returns how many runtimes the calling thread drives now. */
extern __thread int32_t cm_driven_now __attribute__((visibility("hidden"))) CM_AT_HAND;
static inline int32_t cm_drives(void) { return cm_driven_now; }
/* A thread calls cm_enter before it takes a lock, and cm_exit when it has released the lock. While the process forks,
 * cm_enter waits until the fork is over (Sources/CPenstockEmbedded/gate.c). */
typedef struct cm_holder {
  int32_t held;
  int32_t callbacks;
} cm_holder;
extern __thread cm_holder *cm_me __attribute__((visibility("hidden"))) CM_AT_HAND;
extern int32_t cm_gate __attribute__((visibility("hidden")));
cm_holder *cm_meet(void);
void cm_wait_at_gate(cm_holder *me);
/* The three parts of cm_enter. cm_count counts the lock, and returns 0 if this thread has no record yet. cm_is_open
 * returns whether the gate is open. cm_pass waits in front of a shut gate. The accesses are plain, one instruction
 * each: the fence keeps their order for the compiler, and the barrier of the thread that shuts the gate keeps it for
 * the processor. */
static inline int32_t cm_count(void) {
  cm_holder *me = cm_me;
  if (__builtin_expect(!me, 0)) return 0;
  me->held++;
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  return 1;
}
static inline int32_t cm_is_open(void) { return __builtin_expect(cm_gate == 0, 1); }
static inline void cm_pass(void) {
  if (__builtin_expect(cm_gate != 0, 0)) cm_wait_at_gate(cm_me);
}
static inline void cm_enter(void) {
  if (!cm_count()) {
    (void)cm_meet();
    (void)cm_count();
  }
  cm_pass();
}
static inline void cm_exit(void) {
  cm_holder *me = cm_me;
  __atomic_thread_fence(__ATOMIC_RELEASE);
  me->held--;
}
/* Shuts the gate, so that no thread takes a lock, and waits for the threads that hold one, at most until `deadline`
 * (CLOCK_MONOTONIC in ns). Returns 1 if the gate is shut. Returns 0 if it could not be shut, or not in time; the gate
 * is open then. `mark` is a word that fork wipes; it is not 0 until the gate is opened. */
int32_t cm_shut_gate(const void *mark, uint64_t deadline);
/* Opens the gate, so that threads take locks again. `is_child`: the caller is in the forked child, which has no other
 * thread. */
void cm_open_gate(int32_t is_child);
/* cm_callback notes that a callback begins (1) or ends (-1) on the calling thread, which drives no runtime.
 * cm_in_callback returns how many such callbacks run on the calling thread, one within the other. */
void cm_callback(int32_t change);
int32_t cm_in_callback(void);
#else
static inline void *cm_alloc(size_t size) { return malloc(size); }
static inline void *cm_realloc(void *block, size_t size) { return realloc(block, size); }
static inline void cm_free(void *block) { free(block); }
/* In full Swift the runtime of Swift allocates objects, without a reserve. */
static inline void *cm_insist(size_t size) {
  void *made = malloc(size);
  if (!made) abort();
  return made;
}
static inline int32_t cm_is_low(void) { return 0; }
static inline void cm_call_begins(void) {}
static inline void cm_call_ends(void) {}
typedef void (*cm_hook)(size_t size, void *user_data);
static inline void cm_set_hook(cm_hook hook, void *user_data) { (void)hook, (void)user_data; }
static inline void cm_confine(void *object) { (void)object; }
/* The function is static, so each object file that calls it has its own `count`. */
static inline int32_t cm_driven(const void *runtime, int32_t change) {
  (void)runtime;
  static __thread int32_t count;
  return count += change;
}
static inline int32_t cm_drives(void) { return cm_driven(NULL, 0); }
/* In full Swift nothing keeps threads out of the allocator while the process forks: another thread may then hold a lock
 * of the Swift runtime, which this library can't guard. */
static inline int32_t cm_count(void) { return 1; }
static inline int32_t cm_is_open(void) { return 1; }
static inline void cm_pass(void) {}
static inline void cm_enter(void) {}
static inline void cm_exit(void) {}
static inline int32_t cm_shut_gate(const void *mark, uint64_t deadline) {
  (void)mark, (void)deadline;
  return 0;
}
static inline void cm_open_gate(int32_t is_child) { (void)is_child; }
/* As with cm_driven, each object file that calls it has its own `count`. */
static inline int32_t cm_callbacks(int32_t change) {
  static __thread int32_t count;
  return count += change;
}
static inline void cm_callback(int32_t change) { (void)cm_callbacks(change); }
static inline int32_t cm_in_callback(void) { return cm_callbacks(0); }
#endif
#endif
