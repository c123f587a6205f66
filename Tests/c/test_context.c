/* The context of calls: penstock_call_options_set_context, penstock_hop_context, penstock_pick_context. */
#include "pool.h"
#include "servers.h"
#include "side.h"
#include "syncer.h"

/* A context: the number of the call that has it, and how often it was seen and finalized. */
typedef struct {
  int number;
  atomic_int seen, finalized;
} context;

static void context_finalizer(void *data) { atomic_fetch_add(&((context *)data)->finalized, 1); }

static penstock_call_options *options_with(context *self) {
  penstock_call_options *options = NULL;
  OK(penstock_call_options_new("{}", &options, NULL));
  OK(penstock_call_options_set_context(options, self, context_finalizer));
  return options;
}

static int32_t unary_with(penstock_channel *channel, context *self, const char *text) {
  penstock_call_options *options = options_with(self);
  penstock_reply *reply = NULL;
  OK(penstock_channel_unary(channel, UNARY, text, strlen(text), options, &reply, NULL));
  int32_t code = penstock_reply_code(reply);
  penstock_call_options_release(options);
  /* The reply does not keep the context. */
  CHECK_INT(atomic_load(&self->finalized), 1);
  penstock_reply_release(reply);
  return code;
}

/* The hook of a probe: each callback of the call, from the first to the last, has the context. */
static int32_t note_context(probe *self, penstock_hop *hop, int32_t event) {
  (void)self, (void)event;
  context *found = penstock_hop_context(hop);
  if (CHECK(found != NULL)) {
    CHECK_INT(atomic_load(&found->finalized), 0);
    atomic_fetch_add(&found->seen, 1);
  }
  return PENSTOCK_NEXT;
}

static int callbacks_of(probe *self) {
  int count = 0;
  for (size_t i = 0; i < sizeof(self->seen) / sizeof(*self->seen); i++) count += atomic_load(&self->seen[i]);
  return count;
}

TEST(context_in_every_callback) {
  probe inner, outer;
  penstock_channel *channel = open_channel();
  probe_init_with(&outer, "outer", note_context, NULL);
  probe_init_with(&inner, "inner", note_context, NULL);
  probe_add(&outer, channel, 10);
  probe_add(&inner, channel, 0);
  context one = {.number = 1}, two = {.number = 2};
  CHECK_INT(unary_with(channel, &one, "ping"), 0);
  CHECK_INT(atomic_load(&one.seen), callbacks_of(&outer) + callbacks_of(&inner));
  CHECK(atomic_load(&one.seen) >= 12);

  /* A call may outlive its options, and a call handle that is kept does not keep the context. */
  penstock_call_options *options = options_with(&two);
  penstock_call *call = NULL;
  OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, options, NULL, &call, NULL));
  penstock_call_options_release(options);
  OK(penstock_call_send(call, "x", 1));
  penstock_message *message = NULL;
  OK(penstock_call_receive(call, &message));
  penstock_message_release(message);
  CHECK_INT(atomic_load(&two.finalized), 0);
  penstock_call_cancel(call, "enough");
  penstock_reply *reply = NULL;
  OK(penstock_call_wait(call, &reply));
  CHECK_INT(atomic_load(&two.finalized), 1);
  CHECK_INT(atomic_load(&two.seen) + atomic_load(&one.seen), callbacks_of(&outer) + callbacks_of(&inner));
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_channel_close(channel);
  penstock_channel_release(channel);
  probe_wait_finalized(&outer);
  probe_wait_finalized(&inner);
}

static int32_t note_absence(probe *self, penstock_hop *hop, int32_t event) {
  (void)self, (void)event;
  CHECK(penstock_hop_context(hop) == NULL);
  return PENSTOCK_NEXT;
}

TEST(context_of_options) {
  probe seen;
  penstock_channel *channel = open_channel();
  probe_init_with(&seen, "seen", note_absence, NULL);
  probe_add(&seen, channel, 0);
  context one = {.number = 1}, two = {.number = 2};
  penstock_call_options *options = options_with(&one);
  OK(penstock_call_options_set_context(options, &two, context_finalizer));
  CHECK_INT(atomic_load(&one.finalized), 1);
  OK(penstock_call_options_set_context(options, NULL, context_finalizer));
  CHECK_INT(atomic_load(&two.finalized), 1);
  penstock_reply *reply = NULL;
  OK(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL));
  penstock_reply_release(reply);
  penstock_call_options_release(options);
  CHECK_RESULT(penstock_call_options_set_context(NULL, &one, context_finalizer), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_INT(atomic_load(&one.finalized), 2);

  /* No call was made with it: the options alone have it. */
  context unused = {0};
  penstock_call_options_release(options_with(&unused));
  CHECK_INT(atomic_load(&unused.finalized), 1);
  penstock_channel_close(channel);
  penstock_channel_release(channel);
  probe_wait_finalized(&seen);
}

/* Restarts the call once; the fresh hops below have the same context. */
static int32_t restart_once(probe *self, penstock_hop *hop, int32_t event) {
  note_context(self, hop, event);
  bool restarts = event == PENSTOCK_EVENT_STATUS && penstock_hop_can_restart(hop) == PENSTOCK_OK;
  return restarts ? PENSTOCK_RESTART : PENSTOCK_NEXT;
}

static int32_t fail_once(probe *self, penstock_hop *hop, int32_t event) {
  note_context(self, hop, event);
  if (event == PENSTOCK_EVENT_START && penstock_hop_attempt(hop) == 1)
    OK(penstock_hop_end(hop, PENSTOCK_STATUS_UNAVAILABLE, "once"));
  return PENSTOCK_NEXT;
}

TEST(context_after_a_restart) {
  probe outer, inner;
  penstock_channel *channel = open_channel();
  probe_init_with(&outer, "outer", restart_once, NULL);
  probe_init_with(&inner, "inner", fail_once, NULL);
  outer.replay_bytes = 1024;
  outer.max_restarts = 1;
  probe_add(&outer, channel, 10);
  probe_add(&inner, channel, 0);
  context one = {.number = 1};
  CHECK_INT(unary_with(channel, &one, "ping"), 0);
  CHECK_INT(atomic_load(&inner.seen[PENSTOCK_EVENT_CREATE]), 2);
  CHECK_INT(atomic_load(&one.seen), callbacks_of(&outer) + callbacks_of(&inner));
  penstock_channel_close(channel);
  penstock_channel_release(channel);
  probe_wait_finalized(&outer);
  probe_wait_finalized(&inner);
}

/* On an executor the last callbacks run when the call has ended already, and still have the context. */
TEST(context_on_executors) {
  for (int lanes = 1; lanes <= 2; lanes++) {
    probe seen;
    pool outbound, inbound;
    pool_open(&outbound, 1);
    pool_open(&inbound, 1);
    penstock_channel *channel = open_channel();
    probe_init_with(&seen, "seen", note_context, NULL);
    penstock_interceptor table = probe_table(&seen);
    table.inbound_executor = inbound.executor;
    if (lanes == 2) table.outbound_executor = outbound.executor;
    penstock_interceptor_id id = 0;
    OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
    context one = {.number = 1};
    penstock_call_options *options = options_with(&one);
    penstock_call *call = NULL;
    OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, options, NULL, &call, NULL));
    penstock_call_options_release(options);
    OK(penstock_call_send(call, "x", 1));
    penstock_message *message = NULL;
    OK(penstock_call_receive(call, &message));
    penstock_message_release(message);
    pool_block(&inbound, true);
    penstock_call_cancel(call, "enough");
    penstock_reply *reply = NULL;
    OK(penstock_call_wait(call, &reply));
    penstock_reply_release(reply);
    penstock_call_release(call);
    CHECK_INT(atomic_load(&one.finalized), 0);
    pool_block(&inbound, false);
    latch_wait(&seen.done, 1);
    EVENTUALLY(atomic_load(&one.finalized) == 1);
    CHECK_INT(atomic_load(&one.seen), callbacks_of(&seen));
    penstock_channel_close(channel);
    penstock_channel_release(channel);
    probe_wait_finalized(&seen);
    pool_close(&outbound);
    pool_close(&inbound);
  }
}

static latch go = LATCH_INIT;

/* The function runs on after its call was cancelled, and still has the context. */
static int32_t synchronous(syncer *self, penstock_hop *call) {
  context *found = penstock_hop_context(call);
  if (!CHECK(found != NULL)) return PENSTOCK_NEXT;
  penstock_hop *kept = penstock_hop_retain(call);
  penstock_result result = penstock_hop_next(call);
  CHECK(result == PENSTOCK_OK || result == PENSTOCK_E_GONE);
  latch_signal(&self->entered);
  if (result == PENSTOCK_E_GONE) latch_wait(&go, 1);
  CHECK(penstock_hop_context(call) == found);
  CHECK_INT(atomic_load(&found->finalized), 0);
  atomic_fetch_add(&found->seen, 1);
  penstock_hop_release(kept);
  return PENSTOCK_NEXT;
}

TEST(context_in_a_synchronous_interceptor) {
  syncer self;
  penstock_channel *channel = bench_open(&self, synchronous);
  context one = {.number = 1}, two = {.number = 2};
  penstock_call_options *options = options_with(&one);
  penstock_reply *reply = NULL;
  OK(penstock_channel_unary(channel, UNARY, "ping", 4, options, &reply, NULL));
  penstock_reply_release(reply);
  penstock_call_options_release(options);
  EVENTUALLY(atomic_load(&one.finalized) == 1);
  CHECK_INT(atomic_load(&one.seen), 1);

  options = options_with(&two);
  penstock_call *call = NULL;
  OK(penstock_channel_call(channel, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM, options, NULL, &call, NULL));
  penstock_call_options_release(options);
  EVENTUALLY(atomic_load(&self.runs) == 2);
  penstock_call_cancel(call, "enough");
  OK(penstock_call_wait(call, &reply));
  penstock_reply_release(reply);
  penstock_call_release(call);
  latch_wait(&self.entered, 2);
  CHECK_INT(atomic_load(&two.finalized), 0);
  latch_signal(&go);
  EVENTUALLY(atomic_load(&two.finalized) == 1);
  CHECK_INT(atomic_load(&two.seen), 1);
  bench_close(&self, channel);
}

/* A side call has the context of its own options only. */
static int32_t begin_sides(probe *self, penstock_hop *hop, int32_t event) {
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  void **given = self->context;
  penstock_call_options *options = options_with(given[1]);
  for (int i = 0; i < 2; i++) {
    penstock_call_callbacks table = told_table((told *)given[0] + i);
    penstock_call *call = NULL;
    OK(penstock_hop_start_side_call(hop, UNARY, PENSTOCK_KIND_UNARY, 0, i ? options : NULL, &table, &call, NULL));
    OK(penstock_call_try_send(call, "token", 5));
    OK(penstock_call_half_close(call));
    penstock_call_release(call);
  }
  penstock_call_options_release(options);
  return PENSTOCK_NEXT;
}

static int32_t note_any(probe *self, penstock_hop *hop, int32_t event) {
  atomic_int *starts = self->context;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  context *found = penstock_hop_context(hop);
  atomic_fetch_add(&starts[found ? found->number : 0], 1);
  return PENSTOCK_NEXT;
}

TEST(context_of_side_calls) {
  probe outer, inner;
  told sides[2];
  told_init(&sides[0]);
  told_init(&sides[1]);
  context one = {.number = 1}, two = {.number = 2};
  void *given[] = {sides, &two};
  atomic_int starts[3] = {0};
  penstock_channel *channel = open_channel();
  probe_init_with(&outer, "outer", begin_sides, given);
  probe_init_with(&inner, "inner", note_any, starts);
  probe_add(&outer, channel, 10);
  probe_add(&inner, channel, 0);
  unary_with(channel, &one, "ping");
  latch_wait(&sides[0].replied, 1);
  latch_wait(&sides[1].replied, 1);
  for (int i = 0; i < 3; i++) CHECK_INT(atomic_load(&starts[i]), 1);
  EVENTUALLY(atomic_load(&two.finalized) == 1);
  penstock_channel_close(channel);
  penstock_channel_release(channel);
  probe_wait_finalized(&outer);
  probe_wait_finalized(&inner);
}

static void *keep_outside(void *hop) {
  CHECK(penstock_hop_context(hop) == NULL);
  penstock_hop_release(hop);
  return NULL;
}

static int32_t keep_hop(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  pthread_t thread;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  CHECK(penstock_hop_context(hop) != NULL);
  if (CHECK(pthread_create(&thread, NULL, keep_outside, penstock_hop_retain(hop)) == 0)) pthread_join(thread, NULL);
  return PENSTOCK_NEXT;
}

TEST(context_outside_callbacks) {
  probe seen;
  penstock_channel *channel = open_channel();
  probe_init_with(&seen, "seen", keep_hop, NULL);
  probe_add(&seen, channel, 0);
  context one = {.number = 1};
  CHECK_INT(unary_with(channel, &one, "ping"), 0);
  penstock_channel_close(channel);
  penstock_channel_release(channel);
  probe_wait_finalized(&seen);
}

static penstock_pick *last_pick;

static int32_t pick_with(penstock_pick *pick, void *user_data) {
  (void)user_data;
  last_pick = pick;
  context *found = penstock_pick_context(pick);
  if (found) atomic_fetch_add(&found->seen, 1);
  return 0;
}

TEST(context_in_a_picker) {
  penstock_channel *channel = open_channel();
  OK(penstock_channel_set_picker(channel, pick_with, NULL, NULL));
  context one = {.number = 1};
  CHECK_INT(unary_with(channel, &one, "ping"), 0);
  CHECK_INT(atomic_load(&one.seen), 1);
  CHECK_INT(unary_code(channel, "ping"), 0);
  CHECK(penstock_pick_context(last_pick) == NULL);
  penstock_channel_release(channel);
}

typedef struct {
  penstock_channel *channel;
  atomic_int wrong;
} crowd;

static int32_t match_context(probe *self, penstock_hop *hop, int32_t event) {
  crowd *all = self->context;
  context *found = penstock_hop_context(hop);
  if (event != PENSTOCK_EVENT_SEND) return PENSTOCK_NEXT;
  const void *data = NULL;
  size_t length = 0;
  char text[16] = "";
  if (hop_bytes(hop, &data, &length) == PENSTOCK_OK)
    snprintf(text, sizeof(text), "%.*s", (int)length, (const char *)data);
  if (!found || found->number != atoi(text)) atomic_fetch_add(&all->wrong, 1);
  return PENSTOCK_NEXT;
}

static void *make_calls(void *argument) {
  crowd *all = argument;
  for (int i = 0; i < 200; i++) {
    context mine = {.number = (int)test_random(1 << 30)};
    char text[16];
    snprintf(text, sizeof(text), "%d", mine.number);
    CHECK_INT(unary_with(all->channel, &mine, text), 0);
  }
  return NULL;
}

TEST(context_of_each_of_many_threads) {
  probe seen;
  crowd all = {.channel = open_channel()};
  pthread_t threads[8];
  probe_init_with(&seen, "seen", match_context, &all);
  probe_add(&seen, all.channel, 0);
  for (int i = 0; i < 8; i++) CHECK(pthread_create(&threads[i], NULL, make_calls, &all) == 0);
  for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
  CHECK_INT(atomic_load(&all.wrong), 0);
  CHECK_INT(atomic_load(&seen.seen[PENSTOCK_EVENT_SEND]), 1600);
  penstock_channel_close(all.channel);
  penstock_channel_release(all.channel);
  probe_wait_finalized(&seen);
}
