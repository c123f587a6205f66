/* sync.h: side calls, values, threads and registrations of a synchronous interceptor. */
#include "syncer.h"

/* A side call of the hop does not run the function again. */
static int32_t ask_below(syncer *self, penstock_hop *call) {
  penstock_hop *hop = call;
  penstock_call *side = NULL;
  penstock_message *token = NULL;
  OK(penstock_hop_start_side_call(hop, UNARY, PENSTOCK_KIND_UNARY, 0, NULL, NULL, &side, NULL));
  OK(penstock_call_send(side, "token", 5));
  OK(penstock_call_receive(side, &token));
  size_t length = 0;
  const void *data = penstock_message_bytes(token, &length);
  CHECK(is(data, length, "token"));
  penstock_message_release(token);
  penstock_call_release(side);
  CHECK_INT(self->runs, 1);
  OK(penstock_hop_next(call));
  return PENSTOCK_NEXT;
}

static int32_t count_and_pass(syncer *self, penstock_hop *call) {
  (void)self;
  OK(penstock_hop_next(call));
  return PENSTOCK_NEXT;
}

TEST(sync_makes_side_calls) {
  syncer self, below;
  penstock_channel *channel = bench_open(&self, ask_below);
  syncer_init(&below, count_and_pass);
  syncer_add(&below, channel, -1);
  check_unary(channel, NULL, 0, "ping", NULL);
  CHECK_INT(self.runs, 1);
  CHECK_INT(below.runs, 2);
  bench_close(&self, channel);
  EVENTUALLY(atomic_load(&below.finalized) == 1);
}

static int32_t share(syncer *self, penstock_hop *call) {
  CHECK(penstock_hop_value(call, "k") == NULL);
  OK(penstock_hop_set_value(call, "k", self, NULL));
  CHECK(penstock_hop_value(call, "k") == self);
  OK(penstock_hop_next(call));
  OK(penstock_hop_set_value(call, "l", &self->code, count_up));
  return PENSTOCK_NEXT;
}

TEST(sync_shares_values_with_the_caller) {
  syncer self;
  penstock_channel *channel = bench_open(&self, share);
  penstock_reply *reply = unary(channel, "x", NULL);
  CHECK(penstock_reply_value(reply, "k") == &self);
  CHECK(penstock_reply_value(reply, "l") == &self.code);
  penstock_reply_release(reply);
  EVENTUALLY(atomic_load(&self.code) == 0);
  bench_close(&self, channel);
}

static void *elsewhere(void *argument) {
  penstock_hop *call = argument;
  CHECK_RESULT(penstock_hop_next(call), PENSTOCK_E_STATE);
  CHECK_HAS(penstock_hop_why(call), "in the function of the synchronous interceptor");
  CHECK_RESULT(penstock_hop_deliver(call, "x", 1), PENSTOCK_E_STATE);
  CHECK_RESULT(answer_hop(call, NULL), PENSTOCK_E_STATE);
  CHECK(penstock_hop_message(call) == NULL);
  CHECK_RESULT(penstock_hop_set_bytes(call, "x", 1), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_request_set_deadline_ms(penstock_hop_request(call), 1), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_hop_set_value(call, "k", NULL, NULL), PENSTOCK_E_STATE);
  CHECK(!penstock_request_metadata(penstock_hop_request(call)) && !penstock_hop_metadata(call));
  CHECK(!penstock_hop_status(call) && !penstock_hop_value(call, "k"));
  return NULL;
}

static int32_t try_elsewhere(syncer *self, penstock_hop *call) {
  pthread_t thread;
  (void)self;
  pthread_create(&thread, NULL, elsewhere, call);
  pthread_join(thread, NULL);
  OK(penstock_hop_next(call));
  return PENSTOCK_NEXT;
}

TEST(sync_on_another_thread_is_a_state_error) {
  syncer self;
  penstock_channel *channel = bench_open(&self, try_elsewhere);
  check_unary(channel, NULL, 0, "ping", NULL);
  bench_close(&self, channel);
}

static int32_t pass(syncer *self, penstock_hop *call) {
  (void)self;
  OK(penstock_hop_next(call));
  return PENSTOCK_NEXT;
}

static int32_t leave_in_call(syncer *self, penstock_hop *call) {
  latch_signal(&self->entered);
  latch_wait(&self->go, 1);
  return pass(self, call);
}

TEST(sync_stands_where_other_interceptors_stand) {
  penstock_runtime *runtime = new_runtime("{\"max_workers\": 2}");
  penstock_channel *channel = open_channel_on(runtime);
  syncer wide, narrow;
  syncer_init(&wide, pass);
  syncer_init(&narrow, pass);
  penstock_interceptor table = syncer_table(&wide, "wide"), empty = PENSTOCK_INTERCEPTOR_INIT;
  penstock_interceptor_id id = 0;
  OK(penstock_runtime_add_interceptor(runtime, &table, 5, &id, NULL));
  table = empty;
  penstock_sync_interceptor sync = PENSTOCK_SYNC_INTERCEPTOR_INIT;
  sync.name = "narrow";
  sync.methods = "/other.*";
  sync.kinds = 1u << PENSTOCK_KIND_UNARY;
  sync.user_data = &narrow;
  sync.finalizer = syncer_finalized;
  sync.intercept = intercept;
  OK(penstock_sync_interceptor_table(&sync, &table, NULL));
  penstock_interceptor_id narrow_id = 0;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &narrow_id, NULL));
  check_echo(channel);
  CHECK_INT(wide.runs, 1);
  CHECK_INT(narrow.runs, 0);
  char *json = NULL;
  OK(penstock_channel_interceptors_json(channel, &json));
  CHECK_HAS(json, "narrow");
  CHECK_HAS(json, "/other.*");
  penstock_free(json);
  OK(penstock_registration_set_priority(id, -5, NULL));
  check_echo(channel);
  /* Law 6: an interceptor that is removed while its function runs is finalized after the function has returned and its
   * call has ended. */
  wide.hook = leave_in_call;
  penstock_call *call = start_call(channel, UNARY, PENSTOCK_KIND_UNARY);
  OK(penstock_call_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  latch_wait(&wide.entered, 1);
  OK(penstock_registration_remove(id, NULL));
  check_echo(channel);
  CHECK_INT(wide.runs, 3);
  CHECK_INT(wide.finalized, 0);
  latch_signal(&wide.go);
  penstock_reply *reply = NULL;
  OK(penstock_call_wait(call, &reply));
  CHECK_INT(penstock_reply_code(reply), 0);
  penstock_reply_release(reply);
  penstock_call_release(call);
  EVENTUALLY(atomic_load(&wide.finalized) == 1);
  penstock_channel_release(channel);
  OK(penstock_runtime_shutdown(runtime, -1));
  CHECK_INT(narrow.finalized, 1);
  penstock_runtime_release(runtime);
}

TEST(sync_table_is_checked) {
  syncer self;
  syncer_init(&self, pass);
  penstock_error *error = NULL;
  struct {
    penstock_sync_interceptor sync;
    uint64_t tail;
  } longer = {PENSTOCK_SYNC_INTERCEPTOR_INIT, 0};
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_sync_interceptor sync = PENSTOCK_SYNC_INTERCEPTOR_INIT;
  CHECK_RESULT(penstock_sync_interceptor_table(&sync, &table, &error), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_ERROR(error, PENSTOCK_E_INVALID_ARGUMENT, NULL, "intercept must not be NULL");
  sync.intercept = intercept;
  sync.user_data = &self;
  sync.finalizer = syncer_finalized;
  sync.struct_size = 8;
  CHECK_RESULT(penstock_sync_interceptor_table(&sync, &table, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_INT(self.finalized, 0);
  sync.struct_size = sizeof(longer);
  longer.sync = sync;
  longer.tail = 1;
  CHECK_RESULT(penstock_sync_interceptor_table(&longer.sync, &table, NULL), PENSTOCK_E_UNSUPPORTED);
  CHECK_INT(self.finalized, 1);
  longer.tail = 0;
  OK(penstock_sync_interceptor_table(&longer.sync, &table, NULL));
  CHECK_INT(self.finalized, 1);
  /* The table was not registered, so the test has to run the finalizer. */
  table.finalizer(table.user_data);
  CHECK_INT(self.finalized, 2);
}
