/* Shared by the tests of fork.h: checks that run in a child, and calls that go on in the parent. */
#ifndef PENSTOCK_FORKS_H
#define PENSTOCK_FORKS_H

#include "calls.h"

#include <sys/wait.h>
#include <unistd.h>

static int child_failures;
#define CHILD(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      printf("  in the child: %s (line %d)\n", #condition, __LINE__);                                                  \
      child_failures++;                                                                                                \
    }                                                                                                                  \
  } while (0)

static inline void install(void) { pthread_atfork(penstock_fork_prepare, penstock_fork_parent, penstock_fork_child); }
static inline void with_hooks(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, install);
}

/* In the child: runs `body`, and ends the process. In the parent: gives the child's process number. */
static inline pid_t fork_and(void (*body)(void *), void *argument) {
  fflush(stdout);
  pid_t child = fork();
  if (child != 0) return child;
  alarm((unsigned)(test_patience_ms() / 1000));
  child_failures = 0;
  body(argument);
  fflush(stdout);
  _exit(child_failures ? 1 : 0);
}

static inline void reap(pid_t child) {
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  if (WIFSIGNALED(status)) printf("  the child died of signal %d\n", WTERMSIG(status));
}

static inline int32_t count_start(penstock_hop *hop, void *counter) {
  (void)hop;
  atomic_fetch_add((atomic_int *)counter, 1);
  return PENSTOCK_NEXT;
}

static inline void add_counter(penstock_channel *channel, atomic_int *counter) {
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_interceptor_id id = 0;
  table.on_start = count_start;
  table.user_data = counter;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
}

static inline penstock_result unary_result(penstock_channel *channel, int32_t *code) {
  penstock_reply *reply = NULL;
  penstock_result result = penstock_channel_unary(channel, UNARY, "x", 1, NULL, &reply, NULL);
  *code = result == PENSTOCK_OK ? penstock_reply_code(reply) : -1;
  if (*code > 0) printf("  %s\n", penstock_reply_status_json(reply));
  penstock_reply_release(reply);
  return result;
}

/* ---- Under load ---- */

typedef struct load {
  penstock_channel *channels[2];
  atomic_int counter;
  atomic_bool over;
} load;

static inline void *keep_calling(void *pointer) {
  load *load = pointer;
  for (int i = 0; !atomic_load(&load->over); i++) check_echo(load->channels[i % 2]);
  return NULL;
}

static inline void *keep_streaming(void *pointer) {
  load *load = pointer;
  while (!atomic_load(&load->over)) {
    penstock_call *call = start_with(load->channels[0], BIDI, PENSTOCK_KIND_BIDI, NULL);
    OK(penstock_call_send(call, "a", 1));
    CHECK_MESSAGE(call, "a");
    OK(penstock_call_half_close(call));
    CHECK_FINISH(call, 0);
    penstock_call_release(call);
  }
  return NULL;
}

static inline void call_both(void *pointer) {
  load *load = pointer;
  int before = atomic_load(&load->counter);
  int32_t code = -1;
  for (int i = 0; i < 4; i++) {
    CHILD(unary_result(load->channels[i % 2], &code) == PENSTOCK_OK);
    CHILD(code == 0);
  }
  CHILD(atomic_load(&load->counter) >= before + 4);
  for (int i = 0; i < 2; i++) penstock_channel_release(load->channels[i]);
}

#endif
