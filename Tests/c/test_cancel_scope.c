/* cancel.h: a scope cancels its calls from another thread, before they begin, while they run, and while they end. */
#include "calls.h"
#include "unary.h"

#define MANY 4

/* A new scope, which the options get. */
static penstock_cancel_scope *scope_of(penstock_call_options *options) {
  penstock_cancel_scope *scope = NULL;
  OK(penstock_cancel_scope_new(&scope));
  OK(penstock_call_options_set_cancel_scope(options, scope));
  return scope;
}

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
  penstock_cancel_scope *scope = scope_of(options);
  penstock_call_options *others = options_of("{\"metadata\": {\"x-delay-ms\": \"300\"}}");
  caller self = {channel, options, NULL, 1, LATCH_INIT, 0, 0}, other = {channel, others, NULL, 1, LATCH_INIT, 0, 0};
  if (wraps) OK(penstock_message_new_lent("hang", 4, 0, NULL, NULL, &self.message));
  pthread_t threads[MANY], beside;
  for (int i = 0; i < MANY; i++) pthread_create(&threads[i], NULL, run_caller, &self);
  pthread_create(&beside, NULL, run_caller, &other);
  latch_wait(&self.begun, MANY);
  if (sent) latch_wait(sent, MANY + 1);
  OK(penstock_cancel_scope_cancel(scope, "user went away"));
  for (int i = 0; i < MANY; i++) pthread_join(threads[i], NULL);
  pthread_join(beside, NULL);
  CHECK_INT(self.cancelled, MANY);
  CHECK_INT(other.ok, 1);
  penstock_message_release(self.message);
  penstock_cancel_scope_release(scope);
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

/* A call that comes after the cancel ends at once: no hop sees it, and nothing connects. */
TEST(unary_after_the_cancel_does_not_begin) {
  penstock_channel *channel = NULL;
  REQUIRE_OK(penstock_channel_new(dead_address(), "{\"tls\": false}", &channel, NULL));
  probe watching;
  probe_init(&watching, "watching");
  probe_add(&watching, channel, 0);
  penstock_call_options *options = options_of("{\"deadline_ms\": 60000}");
  penstock_cancel_scope *scope = scope_of(options);
  OK(penstock_cancel_scope_cancel(scope, "user went away"));
  CHECK_RESULT(penstock_cancel_scope_cancel(scope, "again"), PENSTOCK_E_ALREADY);
  caller self = {channel, options, NULL, 3, LATCH_INIT, 0, 0};
  run_caller(&self);
  CHECK_INT(self.cancelled, 3);
  CHECK_INT(watching.seen[PENSTOCK_EVENT_CREATE] + watching.seen[PENSTOCK_EVENT_START], 0);
  penstock_channel_release(channel);
  probe_wait_finalized(&watching);

  channel = open_channel();
  probe_init(&watching, "watching");
  probe_add(&watching, channel, 0);
  for (int32_t kind = PENSTOCK_KIND_UNARY; kind <= PENSTOCK_KIND_BIDI; kind++) {
    penstock_call *call = NULL;
    penstock_message *message = NULL;
    OK(penstock_channel_call(channel, BIDI, kind, options, NULL, &call, NULL));
    penstock_call_send(call, "own", 3);
    penstock_result received = penstock_call_receive(call, &message);
    CHECK_RESULT(received, PENSTOCK_E_END);
    CHECK_FINISH(call, PENSTOCK_STATUS_CANCELLED);
    penstock_call_release(call);
  }
  CHECK_INT(watching.seen[PENSTOCK_EVENT_CREATE] + watching.seen[PENSTOCK_EVENT_START], 0);
  penstock_channel_release(channel);
  probe_wait_finalized(&watching);
  penstock_cancel_scope_release(scope);
  penstock_call_options_release(options);
}

TEST(unary_that_has_ended_keeps_its_reply) {
  penstock_channel *channel = open_channel();
  penstock_call_options *options = options_of("{}");
  penstock_cancel_scope *scope = scope_of(options);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "done", 4, options, &reply, NULL));
  OK(penstock_cancel_scope_cancel(scope, NULL));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
  CHECK(message_is(reply, "done"));
  penstock_reply_release(reply);
  OK(penstock_channel_unary(channel, UNARY, "more", 4, options, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_CANCELLED);
  penstock_reply_release(reply);
  penstock_cancel_scope_release(scope);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
}

/* The cancel comes at any moment of short calls: each ends with its own result or with CANCELLED. How long calls take
 * depends on the machine: if all calls of a round end in the same way, the next cancel comes later or earlier. If it can't
 * come earlier, because this thread is not woken in time, there are more calls. */
static void race(penstock_channel *channel, int rounds) {
  enum { SHORTEST = 16, LONGEST = 1 << 26, MOST_CALLS = 1024 };
  int ok = 0, cancelled = 0, calls = 4;
  uint32_t longest = 20000;
  /* Otherwise the calls of many rounds may be cancelled before there is a connection. */
  check_echo(channel);
  rounds = test_rounds(rounds);
  for (int i = 0; i < rounds || ((ok == 0 || cancelled == 0) && i < rounds + 60); i++) {
    penstock_call_options *options = options_of(NULL);
    penstock_cancel_scope *scope = scope_of(options);
    caller self = {channel, options, NULL, calls, LATCH_INIT, 0, 0};
    pthread_t threads[2];
    for (int n = 0; n < 2; n++) pthread_create(&threads[n], NULL, run_caller, &self);
    latch_wait(&self.begun, 1 + (int)test_random(2));
    /* volatile: no compiler leaves the loop out, as gcc does with a loop of fences under ThreadSanitizer. */
    for (volatile uint32_t n = test_random(longest); n > 0; n--) {
    }
    OK(penstock_cancel_scope_cancel(scope, "user went away"));
    for (int n = 0; n < 2; n++) pthread_join(threads[n], NULL);
    penstock_cancel_scope_release(scope);
    penstock_call_options_release(options);
    CHECK_INT(self.ok + self.cancelled, 2 * calls);
    if (self.ok == 0 && longest < LONGEST) longest *= 2;
    if (self.cancelled == 0) {
      if (longest > SHORTEST)
        longest /= 2;
      else if (calls < MOST_CALLS)
        calls *= 2;
    }
    ok += self.ok;
    cancelled += self.cancelled;
  }
  if (!CHECK(ok > 0 && cancelled > 0)) printf("  %d calls have ended by themselves, %d by the cancel\n", ok, cancelled);
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

/* ---- One scope for many calls ---- */

typedef struct ended {
  atomic_int replies, cancelled;
} ended;

static void count_reply(penstock_call *call, penstock_reply *reply, void *user_data) {
  ended *self = user_data;
  (void)call;
  if (penstock_reply_code(reply) == PENSTOCK_STATUS_CANCELLED) self->cancelled++;
  self->replies++;
}

/* Streams on two channels, in both styles and with two options, and unary calls of another thread. A call with other
 * options goes on, and so do calls whose scope is released. */
TEST(scope_cancels_calls_of_every_style) {
  penstock_channel *channels[2] = {open_channel(), open_channel()};
  penstock_call_options *options[2] = {options_of("{}"), options_of("{\"metadata\": {\"x-delay-ms\": \"600000\"}}")};
  penstock_cancel_scope *scope = scope_of(options[0]);
  OK(penstock_call_options_set_cancel_scope(options[1], scope));
  ended told = {0, 0};
  penstock_call *calls[16];
  for (int i = 0; i < 16; i++) {
    penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
    callbacks.user_data = &told;
    callbacks.on_reply = count_reply;
    OK(penstock_channel_call(channels[i % 2], BIDI, PENSTOCK_KIND_BIDI, options[0], i < 8 ? &callbacks : NULL,
                             &calls[i], NULL));
    if (i >= 8) {
      OK(penstock_call_send(calls[i], "x", 1));
      CHECK_MESSAGE(calls[i], "x");
    }
  }
  for (int i = 9; i < 12; i++) CHECK_FINISH(calls[i], PENSTOCK_STATUS_OK);
  penstock_call *other = start_call(channels[0], BIDI, PENSTOCK_KIND_BIDI);
  caller self = {channels[1], options[1], NULL, 1, LATCH_INIT, 0, 0};
  pthread_t thread;
  pthread_create(&thread, NULL, run_caller, &self);
  latch_wait(&self.begun, 1);
  OK(penstock_cancel_scope_cancel(scope, "user went away"));
  CHECK_RESULT(penstock_cancel_scope_cancel(scope, "again"), PENSTOCK_E_ALREADY);
  pthread_join(thread, NULL);
  CHECK_INT(self.cancelled, 1);
  EVENTUALLY(told.replies == 8);
  CHECK_INT(told.cancelled, 8);
  for (int i = 8; i < 16; i++)
    CHECK_FINISH(calls[i], i >= 9 && i < 12 ? PENSTOCK_STATUS_OK : PENSTOCK_STATUS_CANCELLED);
  for (int i = 0; i < 16; i++) penstock_call_release(calls[i]);
  OK(penstock_call_send(other, "y", 1));
  CHECK_MESSAGE(other, "y");
  CHECK_FINISH(other, PENSTOCK_STATUS_OK);
  penstock_call_release(other);
  penstock_cancel_scope_release(scope);
  for (int i = 0; i < 2; i++) penstock_call_options_release(options[i]);
  for (int i = 0; i < 2; i++) penstock_channel_release(channels[i]);
}

/* The call keeps its scope, whatever becomes of the options. NULL takes the scope back for later calls. */
TEST(scope_of_options_that_have_gone) {
  penstock_channel *channel = open_channel();
  penstock_call_options *options = options_of("{}");
  penstock_cancel_scope *scope = scope_of(options);
  penstock_call *with = NULL, *without = NULL;
  OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, options, NULL, &with, NULL));
  OK(penstock_call_options_set_cancel_scope(options, NULL));
  OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, options, NULL, &without, NULL));
  penstock_call_options_release(options);
  CHECK(penstock_cancel_scope_retain(scope) == scope);
  OK(penstock_cancel_scope_cancel(scope, NULL));
  penstock_cancel_scope_release(scope);
  penstock_cancel_scope_release(scope);
  CHECK_FINISH(with, PENSTOCK_STATUS_CANCELLED);
  CHECK_FINISH(without, PENSTOCK_STATUS_OK);
  penstock_call_release(with);
  penstock_call_release(without);
  penstock_channel_release(channel);
}
