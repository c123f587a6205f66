/* penstock_call_options_cancel: it cancels unary calls from another thread, before they begin, while they run, and
 * while they end. */
#include "calls.h"
#include "unary.h"

#define MANY 4

typedef struct caller {
  penstock_channel *channel;
  const penstock_call_options *options;
  penstock_message *message; /* NULL: the calls are made with penstock_channel_unary */
  int rounds;
  latch begun;
  atomic_int ok, cancelled;
} caller;

static void run_unary(caller *self) {
  penstock_reply *reply = NULL;
  penstock_result result =
      self->message ? penstock_channel_unary_message(self->channel, UNARY, self->message, self->options, &reply, NULL)
                    : penstock_channel_unary(self->channel, UNARY, "hang", 4, self->options, &reply, NULL);
  if (!OK(result)) return;
  if (penstock_reply_code(reply) == PENSTOCK_STATUS_OK) {
    CHECK(message_is(reply, "hang"));
    self->ok++;
  } else if (CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_CANCELLED)) {
    CHECK_HAS(penstock_reply_status_json(reply), "\"user went away\"");
    self->cancelled++;
  }
  penstock_reply_release(reply);
}

static void *run_caller(void *context) {
  caller *self = context;
  latch_signal(&self->begun);
  for (int i = 0; i < self->rounds; i++) run_unary(self);
  return NULL;
}

static int32_t signal_start(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop;
  if (event == PENSTOCK_EVENT_HALF_CLOSE) latch_signal(self->context);
  return PENSTOCK_NEXT;
}

/* All calls with these options are cancelled, and a call with other options is not. */
static void cancel_hanging(penstock_channel *channel, latch *sent, bool wraps) {
  penstock_call_options *options = options_of("{\"metadata\": {\"x-delay-ms\": \"600000\"}}");
  penstock_call_options *others = options_of("{\"metadata\": {\"x-delay-ms\": \"300\"}}");
  caller self = {channel, options, NULL, 1, LATCH_INIT, 0, 0}, other = {channel, others, NULL, 1, LATCH_INIT, 0, 0};
  if (wraps) OK(penstock_message_wrap("hang", 4, NULL, NULL, &self.message));
  pthread_t threads[MANY], beside;
  for (int i = 0; i < MANY; i++) pthread_create(&threads[i], NULL, run_caller, &self);
  pthread_create(&beside, NULL, run_caller, &other);
  latch_wait(&self.begun, MANY);
  if (sent) latch_wait(sent, MANY + 1);
  OK(penstock_call_options_cancel(options, "user went away"));
  for (int i = 0; i < MANY; i++) pthread_join(threads[i], NULL);
  pthread_join(beside, NULL);
  CHECK_INT(self.cancelled, MANY);
  CHECK_INT(other.ok, 1);
  penstock_message_release(self.message);
  penstock_call_options_release(options);
  penstock_call_options_release(others);
}

TEST(hanging_unary_is_cancelled) {
  penstock_channel *channel = open_channel();
  cancel_hanging(channel, NULL, false);
  cancel_hanging(channel, NULL, true);
  penstock_channel_release(channel);
}

TEST(hanging_unary_with_a_hop_is_cancelled) {
  penstock_channel *channel = open_channel();
  latch sent = LATCH_INIT;
  probe watching;
  probe_init_with(&watching, "watching", signal_start, &sent);
  probe_add(&watching, channel, 0);
  cancel_hanging(channel, &sent, false);
  CHECK_INT(watching.seen[PENSTOCK_EVENT_STATUS], MANY + 1);
  penstock_channel_release(channel);
  probe_wait_finalized(&watching);
}

/* A call that comes after the cancel ends at once: no hop sees it, and nothing connects. A call with a handle is not
 * affected. */
TEST(unary_after_the_cancel_does_not_begin) {
  penstock_channel *channel = NULL;
  REQUIRE_OK(penstock_channel_new(dead_address(), "{\"tls\": false}", &channel, NULL));
  probe watching;
  probe_init(&watching, "watching");
  probe_add(&watching, channel, 0);
  penstock_call_options *options = options_of("{\"deadline_ms\": 60000}");
  OK(penstock_call_options_cancel(options, "user went away"));
  CHECK_RESULT(penstock_call_options_cancel(options, "again"), PENSTOCK_E_ALREADY);
  caller self = {channel, options, NULL, 3, LATCH_INIT, 0, 0};
  run_caller(&self);
  CHECK_INT(self.cancelled, 3);
  CHECK_INT(watching.seen[PENSTOCK_EVENT_CREATE] + watching.seen[PENSTOCK_EVENT_START], 0);
  penstock_channel_release(channel);
  probe_wait_finalized(&watching);

  channel = open_channel();
  penstock_call *call = NULL;
  OK(penstock_channel_call(channel, UNARY, PENSTOCK_KIND_UNARY, options, NULL, &call, NULL));
  OK(penstock_call_send(call, "own", 3));
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  penstock_call_release(call);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
}

TEST(unary_that_has_ended_keeps_its_reply) {
  penstock_channel *channel = open_channel();
  penstock_call_options *options = options_of("{}");
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "done", 4, options, &reply, NULL));
  OK(penstock_call_options_cancel(options, NULL));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
  CHECK(message_is(reply, "done"));
  penstock_reply_release(reply);
  OK(penstock_channel_unary(channel, UNARY, "more", 4, options, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_CANCELLED);
  penstock_reply_release(reply);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
}

/* The cancel comes at any moment of short calls: each ends with its own result or with CANCELLED. How long calls take
 * depends on the machine: if all calls of a round end in the same way, the next cancel comes later or earlier. */
static void race(penstock_channel *channel, int rounds) {
  enum { SHORTEST = 16, LONGEST = 1 << 26 };
  int ok = 0, cancelled = 0;
  uint32_t longest = 20000;
  rounds = test_rounds(rounds);
  for (int i = 0; i < rounds || ((ok == 0 || cancelled == 0) && i < rounds + 60); i++) {
    penstock_call_options *options = options_of(NULL);
    caller self = {channel, options, NULL, 4, LATCH_INIT, 0, 0};
    pthread_t threads[2];
    for (int n = 0; n < 2; n++) pthread_create(&threads[n], NULL, run_caller, &self);
    latch_wait(&self.begun, 1 + (int)test_random(2));
    for (uint32_t n = test_random(longest); n > 0; n--) atomic_thread_fence(memory_order_seq_cst);
    OK(penstock_call_options_cancel(options, "user went away"));
    for (int n = 0; n < 2; n++) pthread_join(threads[n], NULL);
    penstock_call_options_release(options);
    CHECK_INT(self.ok + self.cancelled, 8);
    if (self.ok == 0 && longest < LONGEST) longest *= 2;
    if (self.cancelled == 0 && longest > SHORTEST) longest /= 2;
    ok += self.ok;
    cancelled += self.cancelled;
  }
  CHECK(ok > 0 && cancelled > 0);
}

TEST(cancel_races_with_the_end_of_a_unary) {
  penstock_channel *channel = open_channel();
  race(channel, 400);
  penstock_channel_release(channel);
}

TEST(cancel_races_with_the_end_of_a_unary_with_a_hop) {
  penstock_channel *channel = open_channel();
  probe watching;
  probe_init(&watching, "watching");
  probe_add(&watching, channel, 0);
  race(channel, 200);
  penstock_channel_release(channel);
  probe_wait_finalized(&watching);
}
