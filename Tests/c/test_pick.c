/* on_pick of a hop, which sees the picked address (docs/hops.md). */
#include "watchers.h"

TEST(pick_is_per_attempt) {
  penstock_channel *channel = open_channel();
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_interceptor_id id = 0;
  penstock_error *error = NULL;
  table.on_pick = on_pick;
  CHECK_RESULT(penstock_channel_add_interceptor(channel, &table, 0, &id, &error), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_ERROR(error, PENSTOCK_E_INVALID_ARGUMENT, NULL, "interceptor.on_pick: expected per_attempt to be 1");
  /* An older program's table ends before on_pick. */
  table.struct_size = offsetof(penstock_interceptor, on_pick);
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  check_echo(channel);
  penstock_channel_release(channel);
}

TEST(pick_sees_each_address) {
  for (int i = 0; i < POLICIES; i++) {
    servers all;
    start_servers(&all, NULL);
    open_servers(&all, policies[i], NULL);
    watcher first = {.name = "first"}, second = {.name = "second", .above = &first};
    watch(&all, &first, 1);
    watch(&all, &second, 0);
    for (int call = 0; call < 12; call++) {
      int before = i ? 0 : atomic_load(&first.picks[0]);
      outcome found = ask(&all, NULL, call % 2 ? "{\"trace\": true}" : NULL);
      CHECK_INT(found.code, 0);
      if (!i) CHECK_INT(atomic_load(&first.picks[0]), before + 1);
    }
    exchange(all.channel, 5);
    CHECK_INT(atomic_load(&first.all_picks), 13);
    CHECK_INT(atomic_load(&second.all_picks), 13);
    end_servers(&all);
  }
}

/* A server that is refused gets no call, and the others share its calls. */
TEST(pick_refuses_a_server) {
  for (int i = 1; i < POLICIES; i++) {
    servers all;
    start_servers(&all, NULL);
    open_servers(&all, policies[i], NULL);
    connect_all(&all);
    int refused = 1, calls[SERVERS] = {0};
    watcher first = {.name = "first"}, second = {.decide = refuse_one, .context = &refused, .above = &first};
    watch(&all, &first, 1);
    watch(&all, &second, 0);
    for (int call = 0; call < 30; call++) {
      outcome found = ask(&all, NULL, NULL);
      if (CHECK_INT(found.code, 0)) calls[found.server]++;
    }
    CHECK_INT(calls[1], 0);
    CHECK(calls[0] > 0 && calls[2] > 0);
    CHECK(atomic_load(&second.picks[1]) > 0);
    CHECK_INT(atomic_load(&first.all_picks), 30 + atomic_load(&second.picks[1]));
    end_servers(&all);
  }
}

static int32_t refuse_all(watcher *self, penstock_hop *hop, int server) {
  (void)self, (void)hop, (void)server;
  return PENSTOCK_DROP;
}

TEST(pick_refuses_every_server) {
  for (int i = 0; i < POLICIES; i++) {
    servers all;
    start_servers(&all, NULL);
    open_servers(&all, policies[i], NULL);
    if (i) connect_all(&all);
    watcher self = {.decide = refuse_all};
    watch(&all, &self, 0);
    outcome found = ask(&all, NULL, "{\"wait_for_ready\": true}");
    CHECK_INT(found.code, PENSTOCK_STATUS_UNAVAILABLE);
    CHECK_HAS(found.words, i ? "interceptors have refused every endpoint that is ready: 3"
                             : "interceptors have refused every endpoint that is ready: 1");
    CHECK_INT(atomic_load(&self.all_picks), i ? SERVERS : 1);
    CHECK_INT(atomic_load(&self.ends), 1);
    end_servers(&all);
  }
}

/* A call whose only ready server is refused waits for another one. */
TEST(pick_refuses_until_another_is_connected) {
  for (int i = 0; i < 5; i++) {
    servers all;
    start_servers(&all, NULL);
    open_servers(&all, ROUND_ROBIN, NULL);
    int refused = i % SERVERS;
    watcher self = {.decide = refuse_one, .context = &refused};
    watch(&all, &self, 0);
    outcome found = ask(&all, NULL, NULL);
    CHECK_INT(found.code, 0);
    CHECK(found.server != refused);
    end_servers(&all);
  }
}

static int32_t finish(watcher *self, penstock_hop *hop, int server) {
  (void)self, (void)server;
  OK(penstock_hop_end(hop, PENSTOCK_STATUS_DATA_LOSS, "ended in on_pick"));
  return PENSTOCK_DROP;
}

/* Another thread may drive the loop, and run this callback before the call's handle is known. */
static _Atomic(penstock_call *) cancelled;

static int32_t cancel(watcher *self, penstock_hop *hop, int server) {
  (void)self, (void)hop, (void)server;
  while (!atomic_load(&cancelled)) test_pause();
  OK(penstock_call_cancel(atomic_load(&cancelled), "cancelled in on_pick"));
  return PENSTOCK_NEXT;
}

static int32_t wrong(watcher *self, penstock_hop *hop, int server) {
  (void)hop, (void)server;
  return *(int32_t *)self->context;
}

TEST(pick_ends_the_call) {
  servers all;
  start_servers(&all, NULL);
  open_servers(&all, ROUND_ROBIN, NULL);
  watcher above = {.name = "above"}, self = {.decide = finish, .above = &above}, below = {.name = "below"};
  watch(&all, &above, 1);
  watch(&all, &self, 0);
  watch(&all, &below, -1);
  outcome found = ask(&all, NULL, NULL);
  CHECK_INT(found.code, PENSTOCK_STATUS_DATA_LOSS);
  CHECK_HAS(found.words, "ended in on_pick");
  CHECK_INT(atomic_load(&above.ends), 1);
  CHECK_INT(atomic_load(&below.ends), 1);
  CHECK_INT(atomic_load(&below.all_picks), 0);

  static const int32_t answers[] = {
      PENSTOCK_PAUSE, PENSTOCK_HOLD, PENSTOCK_TAKE, PENSTOCK_RESTART, PENSTOCK_SKIP, 7, -1, INT32_MAX};
  self.decide = wrong;
  for (size_t i = 0; i < sizeof(answers) / sizeof(*answers); i++) {
    int32_t answer = answers[i];
    self.context = &answer;
    found = ask(&all, NULL, NULL);
    CHECK_INT(found.code, PENSTOCK_STATUS_INTERNAL);
    CHECK_HAS(found.words, "interceptor 'watcher' returned a value from on_pick that is neither NEXT nor DROP");
  }
  self.decide = cancel;
  for (int i = 0; i < 20; i++) {
    penstock_call *call = NULL;
    penstock_reply *reply = NULL;
    atomic_store(&cancelled, NULL);
    OK(penstock_channel_call(all.channel, BIDI, PENSTOCK_KIND_BIDI, NULL, NULL, &call, NULL));
    atomic_store(&cancelled, call);
    if (OK(penstock_call_wait(call, &reply))) CHECK_INT(outcome_of(&all, reply).code, PENSTOCK_STATUS_CANCELLED);
    penstock_call_release(call);
  }
  end_servers(&all);
}

/* The picker and the hop send messages of the call, before the loop has handled the posted items. */
typedef struct {
  servers *all;
  _Atomic(penstock_call *) call;
  atomic_int set, finalized;
} talker;

static void say_one(talker *self) {
  penstock_call *call;
  while ((call = atomic_load(&self->call)) == NULL) test_pause();
  OK(penstock_call_send(call, "y", 1));
}

static void end_talk(void *user_data) { atomic_fetch_add(&((talker *)user_data)->finalized, 1); }

static int32_t say_in_picker(penstock_pick *pick, void *context) {
  talker *self = context;
  (void)pick;
  OK(penstock_channel_set_picker(self->all->channel, say_in_picker, self, end_talk));
  atomic_fetch_add(&self->set, 1);
  say_one(self);
  return 0;
}

static int32_t say_in_hop(watcher *self, penstock_hop *hop, int server) {
  (void)hop, (void)server;
  say_one(self->context);
  return PENSTOCK_NEXT;
}

TEST(pick_sends) {
  servers all;
  start_servers(&all, NULL);
  open_servers(&all, ROUND_ROBIN, NULL);
  connect_all(&all);
  talker talk = {&all, NULL, 1, 0};
  OK(penstock_channel_set_picker(all.channel, say_in_picker, &talk, end_talk));
  watcher self = {.decide = say_in_hop, .context = &talk};
  watch(&all, &self, 0);
  for (int i = 0; i < 10; i++) {
    penstock_call *call = NULL;
    atomic_store(&talk.call, NULL);
    OK(penstock_channel_call(all.channel, BIDI, PENSTOCK_KIND_BIDI, NULL, NULL, &call, NULL));
    atomic_store(&talk.call, call);
    for (int k = 0; k < 2; k++) CHECK_MESSAGE(call, "y");
    OK(penstock_call_half_close(call));
    CHECK_FINISH(call, 0);
    penstock_call_release(call);
  }
  end_servers(&all);
  EVENTUALLY(atomic_load(&talk.finalized) == atomic_load(&talk.set));
  CHECK_INT(atomic_load(&talk.set), 11);
}

/* ---- Executors, traces, attempts made anew ---- */

static int32_t note_thread(watcher *self, penstock_hop *hop) {
  (void)hop;
  atomic_store(&self->thread, pthread_self());
  return PENSTOCK_NEXT;
}

static int32_t on_another_thread(watcher *self, penstock_hop *hop, int server) {
  (void)hop;
  CHECK(!pthread_equal(pthread_self(), atomic_load(&self->thread)));
  return server == 1 ? PENSTOCK_DROP : PENSTOCK_NEXT;
}

/* The callback runs on the driving thread, although the callbacks of events run on an executor. */
TEST(pick_with_executors) {
  servers all;
  start_servers(&all, NULL);
  open_servers(&all, ROUND_ROBIN, NULL);
  connect_all(&all);
  watcher self = {.start = note_thread, .decide = on_another_thread};
  OK(penstock_executor_new_serial(&self.executor));
  watch(&all, &self, 0);
  for (int i = 0; i < 12; i++) {
    outcome found = ask(&all, NULL, NULL);
    CHECK_INT(found.code, 0);
    CHECK(found.server != 1);
  }
  CHECK(atomic_load(&self.picks[1]) > 0);
  exchange(all.channel, 20);
  end_servers(&all);
  penstock_executor_release(self.executor);
}

TEST(pick_is_in_the_trace) {
  servers all;
  start_servers(&all, NULL);
  open_servers(&all, ROUND_ROBIN, NULL);
  connect_all(&all);
  watcher self = {.decide = refuse_all};
  watch(&all, &self, 0);
  penstock_call_options *options = options_of("{\"trace\": true}");
  penstock_reply *reply = NULL;
  if (OK(penstock_channel_unary(all.channel, UNARY, "x", 1, options, &reply, NULL))) {
    const char *trace = penstock_reply_trace_json(reply), *next = trace;
    int picks = 0;
    while ((next = strstr(next, "\"event\":\"pick\"")) != NULL) picks++, next++;
    CHECK_INT(picks, SERVERS);
    CHECK_HAS(trace, "\"verdict\":\"DROP\"");
    penstock_reply_release(reply);
  }
  penstock_call_options_release(options);
  end_servers(&all);
}

/* The server refuses the stream of each first attempt. The call makes another attempt, whose hop sees the address of
 * that attempt. */
TEST(pick_comes_with_each_attempt) {
  char script[512];
  snprintf(script, sizeof(script), "%s", __FILE__);
  char *folder = strstr(script, "/c/test_pick.c");
  REQUIRE(folder != NULL);
  strcpy(folder, "/faults/rst-refused-once.script");
  char *const arguments[] = {"--script", script, NULL};
  servers all;
  start_servers(&all, arguments);
  open_servers(&all, PICK_FIRST, NULL);
  watcher self = {0};
  watch(&all, &self, 0);
  outcome found = ask(&all, NULL, NULL);
  CHECK_INT(found.code, 0);
  CHECK_INT(atomic_load(&self.starts), 2);
  CHECK_INT(atomic_load(&self.all_picks), 2);
  end_servers(&all);
}

/* Each connection takes one call at a time. For the waiting calls on_pick comes again when there is room. */
TEST(pick_waits_for_a_slot) {
  servers all;
  char *const one[] = {"--max-concurrent-streams", "1", NULL};
  start_servers(&all, one);
  open_servers(&all, ROUND_ROBIN, NULL);
  connect_all(&all);
  int refused = 0;
  watcher self = {.decide = refuse_one, .context = &refused};
  watch(&all, &self, 0);
  enum { CALLS = 30 };
  penstock_call *calls[CALLS];
  for (int i = 0; i < CALLS; i++) {
    calls[i] = start_call(all.channel, UNARY, PENSTOCK_KIND_UNARY);
    OK(penstock_call_send(calls[i], "x", 1));
    OK(penstock_call_half_close(calls[i]));
  }
  for (int i = 0; i < CALLS; i++) {
    penstock_reply *reply = NULL;
    if (OK(penstock_call_wait(calls[i], &reply))) {
      outcome found = outcome_of(&all, reply);
      CHECK_INT(found.code, 0);
      CHECK(found.server > 0);
    }
    penstock_call_release(calls[i]);
  }
  end_servers(&all);
}

static int32_t at_random(watcher *self, penstock_hop *hop, int server) {
  (void)self, (void)hop, (void)server;
  return test_random(3) ? PENSTOCK_NEXT : PENSTOCK_DROP;
}

static void *call_often(void *argument) {
  servers *all = argument;
  for (int i = 0; i < test_rounds(200); i++) {
    outcome found = ask(all, NULL, i % 3 ? NULL : "{\"deadline_ms\": 5}");
    CHECK(found.code == 0 || found.code == PENSTOCK_STATUS_UNAVAILABLE ||
          found.code == PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  }
  return NULL;
}

/* Threads call while servers are refused at random, and addresses come and go. */
TEST(pick_storm) {
  servers all;
  char *const few[] = {"--max-concurrent-streams", "2", NULL};
  start_servers(&all, few);
  open_servers(&all, ROUND_ROBIN, NULL);
  watcher self = {.decide = at_random};
  watch(&all, &self, 0);
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) REQUIRE(pthread_create(&threads[i], NULL, call_often, &all) == 0);
  for (int i = 0; i < test_rounds(50); i++) {
    push_servers(&all, policies[test_random(POLICIES)]);
    test_pause();
  }
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  end_servers(&all);
}
