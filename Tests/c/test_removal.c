/* interceptor.h: removal, and waiting for it. */
#include "test.h"

TEST(removal_wait_knows_every_number) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init(&probe, "probe");
  penstock_interceptor_id id = probe_add(&probe, channel, 0);
  CHECK_RESULT(penstock_registration_wait_removed(id, -1), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_registration_wait_removed(0, -1), PENSTOCK_E_NOT_FOUND);
  CHECK_RESULT(penstock_registration_wait_removed(id + 1000000, -1), PENSTOCK_E_NOT_FOUND);
  CHECK_RESULT(penstock_registration_wait_removed(UINT64_MAX, -1), PENSTOCK_E_NOT_FOUND);
  OK(penstock_registration_remove(id, NULL));
  OK(penstock_registration_wait_removed(id, -1));
  CHECK_INT(atomic_load(&probe.finalized), 1);
  OK(penstock_registration_wait_removed(id, 0));
  penstock_channel_release(channel);
  OK(penstock_registration_wait_removed(id, 0));
}

typedef struct waiter {
  penstock_interceptor_id id;
  atomic_int *finalized;
  latch about;
} waiter;

static void *wait_for_removal(void *pointer) {
  waiter *waiter = pointer;
  latch_signal(&waiter->about);
  OK(penstock_registration_wait_removed(waiter->id, -1));
  CHECK_INT(atomic_load(waiter->finalized), 1);
  return NULL;
}

/* Several threads wait at once; the channel's release counts as removal, though a call goes on. */
TEST(removal_wait_after_the_channel_was_released) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init(&probe, "probe");
  penstock_interceptor_id id = probe_add(&probe, channel, 0);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_call_send(call, "x", 1));
  penstock_channel_retain(channel);
  penstock_channel_release(channel);
  CHECK_RESULT(penstock_registration_wait_removed(id, 0), PENSTOCK_E_STATE);
  penstock_channel_release(channel);
  CHECK_RESULT(penstock_registration_wait_removed(id, 10), PENSTOCK_E_TIMEOUT);
  /* A call still has the interceptor, so its registration can still be changed and removed. */
  OK(penstock_registration_set_priority(id, 1, NULL));
  OK(penstock_registration_remove(id, NULL));
  CHECK_RESULT(penstock_registration_remove(id, NULL), PENSTOCK_E_NOT_FOUND);
  CHECK_RESULT(penstock_registration_wait_removed(id, 10), PENSTOCK_E_TIMEOUT);
  waiter waiter = {id, &probe.finalized, LATCH_INIT};
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, wait_for_removal, &waiter);
  latch_wait(&waiter.about, 3);
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) penstock_reply_release(reply);
  penstock_call_release(call);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
}

TEST(removal_wait_after_the_runtime_s_end) {
  for (int closes = 0; closes < 3; closes++) {
    penstock_runtime *runtime = new_runtime(NULL);
    penstock_channel *channel = open_channel_on(runtime);
    probe on_runtime, on_channel, late;
    probe_init(&on_runtime, "runtime");
    probe_init(&on_channel, "channel");
    probe_init(&late, "late");
    penstock_interceptor_id runtime_id = probe_add_to_runtime(&on_runtime, runtime, 0);
    penstock_interceptor_id channel_id = probe_add(&on_channel, channel, 0);
    check_echo(channel);
    if (closes == 1) OK(penstock_channel_close(channel));
    if (closes == 2) OK(penstock_runtime_shutdown(runtime, 20000));
    if (closes > 0) {
      penstock_interceptor table = probe_table(&late);
      penstock_interceptor_id id = 0;
      CHECK_RESULT(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL), PENSTOCK_E_CLOSED);
      CHECK_INT(atomic_load(&late.finalized), 1);
      OK(penstock_registration_wait_removed(channel_id, 20000));
      CHECK_INT(atomic_load(&on_channel.finalized), 1);
    }
    penstock_runtime_release(runtime);
    if (closes < 2) CHECK_RESULT(penstock_registration_wait_removed(runtime_id, 0), PENSTOCK_E_STATE);
    penstock_channel_release(channel);
    OK(penstock_registration_wait_removed(runtime_id, 20000));
    OK(penstock_registration_wait_removed(channel_id, 20000));
    CHECK_INT(atomic_load(&on_runtime.finalized), 1);
    CHECK_INT(atomic_load(&on_channel.finalized), 1);
  }
}

typedef struct own_wait {
  penstock_channel *channel;
  penstock_interceptor_id id;
  atomic_int in_callback, in_finalizer;
} own_wait;

static int32_t wait_in_callback(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop;
  own_wait *own = self->context;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  OK(penstock_registration_remove(own->id, NULL));
  atomic_store(&own->in_callback, penstock_registration_wait_removed(own->id, -1));
  return PENSTOCK_NEXT;
}
static void wait_in_finalizer(void *user_data) {
  own_wait *own = user_data;
  atomic_store(&own->in_finalizer, penstock_registration_wait_removed(own->id, -1));
}

/* Removing an interceptor waits for its hops. If that wait could never end, the removal returns an error at once. */
TEST(removal_wait_would_deadlock) {
  own_wait own = {open_channel(), 0, -1, -1};
  probe probe;
  probe_init_with(&probe, "probe", wait_in_callback, &own);
  own.id = probe_add(&probe, own.channel, 0);
  check_echo(own.channel);
  probe_wait_finalized(&probe);
  CHECK_RESULT(atomic_load(&own.in_callback), PENSTOCK_E_WOULD_DEADLOCK);
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.user_data = &own;
  table.finalizer = wait_in_finalizer;
  OK(penstock_channel_add_interceptor(own.channel, &table, 0, &own.id, NULL));
  OK(penstock_registration_remove(own.id, NULL));
  CHECK_RESULT(atomic_load(&own.in_finalizer), PENSTOCK_E_WOULD_DEADLOCK);
  OK(penstock_registration_wait_removed(own.id, 0));
  penstock_channel_release(own.channel);
}
