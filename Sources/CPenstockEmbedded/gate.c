/* The gate in front of every lock of the library. It is shut while the process forks: then no thread holds a lock, so
 * the data that the locks guard is consistent in the child.
 *
 * Each thread counts the locks that it holds, in a record of its own. The thread that shuts the gate waits until all
 * counts are 0; meanwhile a thread that holds no lock waits before it takes one. A thread that holds a lock may take
 * more locks, so that it can finish and release them all. The count is a plain addition, without a barrier: the thread
 * that shuts the gate has the kernel run a barrier on each processor that runs a thread of the process (membarrier).
 *
 * Records are never freed: the record of a thread that has ended is given to a later thread. So a forked child can
 * still reach the records of the threads that only its parent has, and clears them.
 */
#include "cembedded.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HIDDEN __attribute__((visibility("hidden")))

typedef struct record {
  _Alignas(64) cm_holder holder;
  atomic_int is_used;
  struct record *next;
} record;

HIDDEN __thread cm_holder *cm_me CM_AT_HAND;
HIDDEN int32_t cm_gate;

static _Atomic(record *) records;
/* The records of the first threads. Later threads get records from malloc. */
enum { FIRST = 64 };
static record first[FIRST];
static atomic_int taken;
/* A record that threads share if there was no memory for their own. Without `key` all threads share it, because the
 * end of a thread could not give back a record of its own. Once this record is used, the gate can't be shut any more,
 * because nobody knows which of these threads holds a lock. */
static record nobody;
static atomic_int is_broken;
/* A word of the page that fork wipes. It is not 0 while the gate is shut. A forked child finds 0 there: so if the child
 * has not called `cm_open_gate`, it sees that the gate was shut by its parent, and opens it. */
static const volatile uint64_t *mark;
static pthread_key_t key;
static int has_key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void leave(void *pointer) {
  cm_me = NULL;
  if (pointer != &nobody) atomic_store(&((record *)pointer)->is_used, 0);
}

static void begin(void) { has_key = pthread_key_create(&key, leave) == 0; }

HIDDEN cm_holder *cm_meet(void) {
  record *mine = NULL;
  pthread_once(&once, begin);
  for (record *one = has_key ? atomic_load(&records) : NULL; one && !mine; one = one->next) {
    int unused = 0;
    if (atomic_compare_exchange_strong(&one->is_used, &unused, 1)) mine = one;
  }
  if (!mine && has_key) {
    int index = atomic_load(&taken) < FIRST ? atomic_fetch_add(&taken, 1) : FIRST;
    mine = index < FIRST ? &first[index] : aligned_alloc(64, sizeof *mine);
    if (mine) {
      *mine = (record){.is_used = 1, .next = atomic_load(&records)};
      while (!atomic_compare_exchange_weak(&records, &mine->next, mine)) {
      }
    }
  }
  if (!mine) {
    mine = &nobody;
    atomic_store(&is_broken, 1);
  }
  if (has_key) pthread_setspecific(key, mine);
  cm_me = &mine->holder;
  return cm_me;
}

/* Waits while the gate is shut. The thread has counted the lock that it is about to take; if it holds another lock,
 * it does not wait. */
HIDDEN void cm_wait_at_gate(cm_holder *me) {
  if (me->held != 1) return;
  while (__atomic_load_n(&cm_gate, __ATOMIC_SEQ_CST)) {
    if (*mark == 0) {
      __atomic_store_n(&cm_gate, 0, __ATOMIC_SEQ_CST);
      break;
    }
    __atomic_store_n(&me->held, me->held - 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &cm_gate, FUTEX_WAIT_PRIVATE, 1, NULL, NULL, 0);
    __atomic_store_n(&me->held, me->held + 1, __ATOMIC_SEQ_CST);
  }
}

static int everyone_is_out(const cm_holder *me) {
  for (record *one = atomic_load(&records); one; one = one->next) {
    if (&one->holder != me && __atomic_load_n(&one->holder.held, __ATOMIC_ACQUIRE) != 0) return 0;
  }
  return 1;
}

static uint64_t now(void) {
  struct timespec t = {0, 0};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void open_gate(int32_t is_child) {
  cm_holder *me = cm_me ? cm_me : cm_meet();
  me->held--;
  for (record *one = atomic_load(&records); is_child && one; one = one->next) {
    if (&one->holder == me) continue;
    one->holder = (cm_holder){0};
    atomic_store(&one->is_used, 0);
  }
  __atomic_store_n(&cm_gate, 0, __ATOMIC_SEQ_CST);
  int saved = errno;
  syscall(SYS_futex, &cm_gate, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
  errno = saved;
}

HIDDEN int32_t cm_shut_gate(const void *wiped, uint64_t deadline) {
  cm_holder *me = cm_me ? cm_me : cm_meet();
  mark = wiped;
  /* Counts this thread as the holder of a lock, so that it does not wait at the gate itself. */
  me->held++;
  __atomic_store_n(&cm_gate, 1, __ATOMIC_SEQ_CST);
  int saved = errno;
  int is_shut = !atomic_load(&is_broken) && !cm_in_callback() &&
                syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 &&
                syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
  while (is_shut && !everyone_is_out(me)) {
    struct timespec pause = {0, 20000};
    is_shut = now() < deadline;
    nanosleep(&pause, NULL);
  }
  /* The store of blocks has a lock that does not pass the gate, so this thread takes that lock until it opens the
   * gate. */
  while (is_shut && !cm_hold_store()) is_shut = now() < deadline;
  errno = saved;
  if (!is_shut) open_gate(0);
  return is_shut;
}

HIDDEN void cm_open_gate(int32_t is_child) {
  cm_let_store_go();
  open_gate(is_child);
}

HIDDEN void cm_callback(int32_t change) { (cm_me ? cm_me : cm_meet())->callbacks += change; }
HIDDEN int32_t cm_in_callback(void) { return cm_me ? cm_me->callbacks : 0; }
