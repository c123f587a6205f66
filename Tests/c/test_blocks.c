/* What a thread keeps of memory that calls have used: bounded, and nothing when it has ended. */
#include "test.h"

#include <malloc.h>
#include <pthread.h>

static void *call_and_end(void *channel) {
  for (int i = 0; i < 20; i++) check_echo(channel);
  return NULL;
}

static void run_threads(penstock_channel *channel, int count) {
  for (int i = 0; i < count; i++) {
    pthread_t thread;
    CHECK_INT(pthread_create(&thread, NULL, call_and_end, channel), 0);
    pthread_join(thread, NULL);
  }
}

TEST(blocks_go_back_when_their_thread_ends) {
  penstock_channel *channel = open_channel();
  run_threads(channel, 10);
  size_t before = mallinfo2().uordblks;
  run_threads(channel, 200);
  size_t after = mallinfo2().uordblks;
  /* A call's blocks are 4 KiB at the least; if each thread left those, it would be 800. */
  if (!CHECK(after < before + (64 << 10))) printf("  %zu, then %zu bytes\n", before, after);
  penstock_channel_release(channel);
}

/* Large messages and many at once must not stay in a thread for good. */
TEST(blocks_that_a_thread_keeps_are_bounded) {
  penstock_channel *channel = open_channel();
  check_echo(channel);
  size_t before = mallinfo2().uordblks;
  enum { MANY = 5000 };
  static penstock_call *calls[MANY];
  for (int i = 0; i < MANY; i++) {
    REQUIRE_OK(penstock_channel_call(channel, "/penstock.Echo/Bidi", PENSTOCK_KIND_BIDI, NULL, NULL, &calls[i], NULL));
  }
  size_t during = mallinfo2().uordblks;
  for (int i = 0; i < MANY; i++) {
    OK(penstock_call_cancel(calls[i], "done"));
    penstock_reply *reply = NULL;
    OK(penstock_call_finish(calls[i], &reply));
    penstock_reply_release(reply);
    penstock_call_release(calls[i]);
  }
  size_t after = mallinfo2().uordblks;
  CHECK(during > before + (4 << 20));
  /* A MiB of each of the two threads that drive, and the lists that have grown. */
  if (!CHECK(after < before + (3 << 20))) printf("  %zu, then %zu, then %zu bytes\n", before, during, after);
  penstock_channel_release(channel);
}
