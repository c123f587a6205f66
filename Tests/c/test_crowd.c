/* Sixteen threads make many blocking calls on one channel, each thread a different number, so the threads end one after
 * the other. Every wait must end, whichever thread drives. */
#include "calls.h"

#define THREADS 16

typedef struct crowd {
  penstock_channel *channel;
  penstock_call_options *short_lived;
  pthread_mutex_t mutex;
  penstock_call *current[THREADS]; /* the running calls, which other threads may cancel; guarded by the mutex */
  atomic_int stop, echoes, ended;
} crowd;

typedef struct member {
  crowd *crowd;
  int place;
} member;

static void publish(member *self, penstock_call *call) {
  pthread_mutex_lock(&self->crowd->mutex);
  penstock_call *old = self->crowd->current[self->place];
  self->crowd->current[self->place] = call ? penstock_call_retain(call) : NULL;
  pthread_mutex_unlock(&self->crowd->mutex);
  penstock_call_release(old);
}

static void echo(crowd *crowd) {
  penstock_reply *reply = NULL;
  if (!OK(penstock_channel_unary(crowd->channel, UNARY, "x", 1, NULL, &reply, NULL))) return;
  if (CHECK_INT(penstock_reply_code(reply), 0)) atomic_fetch_add(&crowd->echoes, 1);
  penstock_reply_release(reply);
}

/* Makes a call whose server echoes and waits for more: only its deadline, or a cancel by another thread, ends the
 * call. */
static void wait_for_more(member *self, bool has_deadline) {
  crowd *crowd = self->crowd;
  penstock_call_options *options = has_deadline ? crowd->short_lived : NULL;
  penstock_call *call = NULL;
  if (!OK(penstock_channel_call(crowd->channel, BIDI, PENSTOCK_KIND_BIDI, options, NULL, &call, NULL))) return;
  if (!has_deadline) publish(self, call);
  penstock_call_send(call, "x", 1);
  penstock_message *message = NULL;
  while (penstock_call_receive(call, &message) == PENSTOCK_OK) penstock_message_release(message);
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) {
    CHECK_INT(penstock_reply_code(reply), has_deadline ? PENSTOCK_STATUS_DEADLINE_EXCEEDED : PENSTOCK_STATUS_CANCELLED);
    atomic_fetch_add(&crowd->ended, 1);
    penstock_reply_release(reply);
  }
  publish(self, NULL);
  penstock_call_release(call);
}

static void *work(void *pointer) {
  member *self = pointer;
  int rounds = test_rounds(40 * (self->place + 1));
  for (int i = 0; i < rounds; i++) {
    uint32_t kind = test_random(32);
    if (kind < 2) {
      wait_for_more(self, kind == 0);
    } else {
      echo(self->crowd);
    }
  }
  return NULL;
}

static void *cancel_often(void *pointer) {
  crowd *crowd = pointer;
  while (!atomic_load(&crowd->stop)) {
    pthread_mutex_lock(&crowd->mutex);
    penstock_call *call = crowd->current[test_random(THREADS)];
    if (call) penstock_call_retain(call);
    pthread_mutex_unlock(&crowd->mutex);
    if (call) penstock_call_cancel(call, "enough");
    penstock_call_release(call);
    test_pause();
  }
  return NULL;
}

static void run_crowd(const char *options) {
  crowd crowd = {.mutex = PTHREAD_MUTEX_INITIALIZER};
  penstock_runtime *runtime = new_runtime(options);
  crowd.channel = open_channel_on(runtime);
  crowd.short_lived = options_of("{\"deadline_ms\": 3}");
  pthread_t canceller, threads[THREADS];
  member members[THREADS];
  pthread_create(&canceller, NULL, cancel_often, &crowd);
  int rounds = 0;
  for (int i = 0; i < THREADS; i++) {
    members[i] = (member){&crowd, i};
    rounds += test_rounds(40 * (i + 1));
    pthread_create(&threads[i], NULL, work, &members[i]);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  atomic_store(&crowd.stop, 1);
  pthread_join(canceller, NULL);
  penstock_call_options_release(crowd.short_lived);
  penstock_channel_release(crowd.channel);
  OK(penstock_runtime_shutdown(runtime, 10000));
  penstock_runtime_release(runtime);
  CHECK_INT(atomic_load(&crowd.echoes) + atomic_load(&crowd.ended), rounds);
}

TEST(crowd_on_a_thread) { run_crowd(NULL); }
TEST(crowd_without_linger) { run_crowd("{\"linger_us\": 0}"); }
TEST(crowd_that_spins) { run_crowd("{\"spin_us\": 20}"); }
TEST(crowd_without_drivers) { run_crowd("{\"caller_drives\": false}"); }
TEST(crowd_on_a_host_runtime) { run_crowd("{\"mode\": \"host\"}"); }
