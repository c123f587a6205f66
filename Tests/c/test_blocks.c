/* The memory that the library keeps after calls is limited, for all threads together. For a thread that has ended the
 * library keeps none. */
#include "side.h"

#include <malloc.h>
#include <pthread.h>

static void ended(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  CHECK_INT(penstock_reply_code(reply), 0);
  signal_latch(user_data);
}

/* Waits until the threads of the test before have ended: a thread that ends gives the whole store of kept memory back,
 * also a moment after its runtime's last handle is released, and would change the figures of this test. */
static void wait_alone(void) { EVENTUALLY(running_threads() == 1); }

enum { WAVE = 100 };

/* Makes many calls on this thread; they are open at the same time, and end on the runtime's thread. */
static void wave(penstock_channel *channel, latch *latch) {
  penstock_call *calls[WAVE];
  int before = latch_count(latch);
  for (int i = 0; i < WAVE; i++) {
    penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
    callbacks.user_data = latch;
    callbacks.on_reply = ended;
    REQUIRE_OK(penstock_channel_call(channel, UNARY, PENSTOCK_KIND_UNARY, NULL, &callbacks, &calls[i], NULL));
    OK(penstock_call_send(calls[i], "ping", 4));
  }
  for (int i = 0; i < WAVE; i++) {
    OK(penstock_call_half_close(calls[i]));
    penstock_call_release(calls[i]);
  }
  latch_wait(latch, before + WAVE);
}

/* Makes waves of calls on a new thread, which keeps no memory at first: memory in use must not grow with each wave. */
static void *make_waves(void *channel) {
  latch latch = LATCH_INIT;
  wave(channel, &latch);
  size_t before = mallinfo2().uordblks;
  for (int i = 0; i < 20; i++) wave(channel, &latch);
  size_t after = mallinfo2().uordblks;
  /* The calls of a wave take more than 200 KiB, so this check fails if the memory of one wave stays. */
  if (!CHECK(after < before + (128 << 10))) printf("  %zu, then %zu bytes\n", before, after);
  return NULL;
}

TEST(blocks_that_one_thread_lets_go_serve_another) {
  wait_alone();
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_channel *channel = open_channel_on(runtime);
  pthread_t thread;
  CHECK_INT(pthread_create(&thread, NULL, make_waves, channel), 0);
  pthread_join(thread, NULL);
  penstock_channel_release(channel);
  OK(penstock_runtime_shutdown(runtime, 5000));
  penstock_runtime_release(runtime);
}

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
  wait_alone();
  penstock_channel *channel = open_channel();
  run_threads(channel, 10);
  size_t before = mallinfo2().uordblks;
  run_threads(channel, 200);
  size_t after = mallinfo2().uordblks;
  /* The blocks of a call take at least 4 KiB; if each thread left them behind, the sum would be 800 KiB. */
  if (!CHECK(after < before + (64 << 10))) printf("  %zu, then %zu bytes\n", before, after);
  penstock_channel_release(channel);
}

/* When many calls that were open at once have ended, the library keeps only a bounded part of their memory. */
TEST(blocks_that_a_thread_keeps_are_bounded) {
  wait_alone();
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
    OK(penstock_call_wait(calls[i], &reply));
    penstock_reply_release(reply);
    penstock_call_release(calls[i]);
  }
  size_t after = mallinfo2().uordblks;
  CHECK(during > before + (4 << 20));
  /* The library may keep 2 MiB in the store that threads share, the blocks that two threads keep, and lists that have
   * grown. */
  if (!CHECK(after < before + (4 << 20))) printf("  %zu, then %zu, then %zu bytes\n", before, during, after);
  penstock_channel_release(channel);
}

static int32_t keep_hop(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_START && !*(penstock_hop **)self->context)
    *(penstock_hop **)self->context = penstock_hop_retain(hop);
  return PENSTOCK_NEXT;
}

static void make_side_calls(penstock_hop *hop, int count) {
  for (int i = 0; i < count; i++) {
    told told;
    told_init(&told);
    OK(begin(hop, UNARY, PENSTOCK_KIND_UNARY, 0, &told));
    latch_wait(&told.replied, 1);
  }
}

/* A hop of a long call makes many side calls: the call does not keep the side calls that have ended. */
TEST(blocks_of_side_calls_go_back_before_their_call_ends) {
  wait_alone();
  penstock_channel *channel = open_channel();
  penstock_hop *hop = NULL;
  probe probe;
  probe_init_with(&probe, "probe", keep_hop, &hop);
  probe_add(&probe, channel, 1);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  check_echo(channel);
  make_side_calls(hop, 200);
  size_t before = mallinfo2().uordblks;
  make_side_calls(hop, 2000);
  size_t after = mallinfo2().uordblks;
  /* Each side call takes more than 500 bytes, so this check fails if ended side calls stay. */
  if (!CHECK(after < before + (256 << 10))) printf("  %zu, then %zu bytes\n", before, after);
  OK(penstock_call_cancel(call, NULL));
  penstock_reply *reply = NULL;
  OK(penstock_call_wait(call, &reply));
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_hop_release(hop);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}
