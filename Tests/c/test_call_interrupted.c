/* call.h: waits that a signal ends, and waits that no signal ends. */
#include "calls.h"

#include <errno.h>
#include <signal.h>

/* ---- Interruptible waits ---- */

static latch interrupted_latch = LATCH_INIT;
static int32_t when_interrupted(void *user_data) {
  latch_signal(&interrupted_latch);
  return *(int32_t *)user_data;
}
static void on_signal(int number) { (void)number; }

typedef struct poke {
  pthread_t target;
  atomic_int stop;
} poke;
static void *poke_until_stopped(void *pointer) {
  poke *poke = pointer;
  while (!atomic_load(&poke->stop)) {
    pthread_kill(poke->target, SIGUSR1);
    test_pause();
  }
  return NULL;
}

static void with_signals(void (*body)(void)) {
  struct sigaction action = {.sa_handler = on_signal}, before;
  sigaction(SIGUSR1, &action, &before);
  poke poke = {pthread_self(), 0};
  pthread_t thread;
  pthread_create(&thread, NULL, poke_until_stopped, &poke);
  body();
  atomic_store(&poke.stop, 1);
  pthread_join(thread, NULL);
  sigaction(SIGUSR1, &before, NULL);
}

static void interrupted_receive(void) {
  penstock_channel *channel = open_channel();
  penstock_call_options *options = options_of("{\"interruptible\": true}");
  penstock_call *call = NULL;
  REQUIRE_OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, options, NULL, &call, NULL));
  penstock_message *message = NULL;
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_INTERRUPTED);
  const penstock_metadata *headers = NULL;
  penstock_result result = penstock_call_wait_headers(call, &headers);
  CHECK(result == PENSTOCK_E_INTERRUPTED || result == PENSTOCK_OK);
  /* The interrupted call was not cancelled: it can still be used. */
  while ((result = penstock_call_send(call, "x", 1)) == PENSTOCK_E_INTERRUPTED) continue;
  OK(result);
  while ((result = penstock_call_receive(call, &message)) == PENSTOCK_E_INTERRUPTED) continue;
  if (OK(result)) penstock_message_release(message);
  penstock_reply *reply = NULL;
  while ((result = penstock_call_wait(call, &reply)) == PENSTOCK_E_INTERRUPTED) continue;
  if (OK(result)) CHECK_INT(penstock_reply_code(reply), 0);
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
}
TEST(call_interrupted_receive) { with_signals(interrupted_receive); }

static bool has_reply(penstock_call *call) {
  penstock_reply *reply = NULL;
  bool ended = penstock_call_reply(call, &reply) == PENSTOCK_OK;
  penstock_reply_release(reply);
  return ended;
}

/* The interrupted receive has asked for a message. That message comes, and the status behind it, while no thread waits.
 * A cancel then discards the message, and the call's status stays OK. */
static void interrupted_then_cancelled(void) {
  penstock_channel *channel = open_channel();
  penstock_call_options *options = options_of("{\"interruptible\": true}");
  penstock_call *call = NULL;
  REQUIRE_OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, options, NULL, &call, NULL));
  penstock_call_options_release(options);
  penstock_message *message = NULL;
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_INTERRUPTED);
  OK(penstock_call_try_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  EVENTUALLY(has_reply(call));
  OK(penstock_call_cancel(call, "late"));
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
  CHECK(message == NULL);
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_channel_release(channel);
}
TEST(call_cancel_after_the_end_discards_the_unread_message) { with_signals(interrupted_then_cancelled); }

static int32_t pause_start(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  CHECK(penstock_hop_ticket(hop) != 0);
  return PENSTOCK_PAUSE;
}

static void interrupted_unary(void) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "pause", pause_start, NULL);
  probe_add(&probe, channel, 0);
  /* Without a function that penstock_call_options_set_on_interrupted has set, a signal cancels the call. */
  penstock_call_options *options = options_of("{\"interruptible\": true}");
  penstock_reply *reply = NULL;
  CHECK_RESULT(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL), PENSTOCK_E_INTERRUPTED);
  penstock_call_options_release(options);
  /* With a function that returns 1, a signal cancels the call, too. */
  int32_t answer = 1;
  latch finalized = LATCH_INIT;
  options = options_of("{\"interruptible\": true}");
  int before = latch_count(&interrupted_latch);
  OK(penstock_call_options_set_on_interrupted(options, when_interrupted, &answer, NULL));
  CHECK_RESULT(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL), PENSTOCK_E_INTERRUPTED);
  CHECK(latch_count(&interrupted_latch) > before);
  penstock_call_options_release(options);
  /* With a function that returns 0, the wait lasts until the deadline. */
  answer = 0;
  options = options_of("{\"interruptible\": true, \"deadline_ms\": 100}");
  OK(penstock_call_options_set_on_interrupted(options, when_interrupted, &answer, NULL));
  if (OK(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL))) {
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
    penstock_reply_release(reply);
  }
  penstock_call_options_release(options);
  /* The function's user_data is finalized with the options, or when the function is replaced. */
  options = options_of(NULL);
  OK(penstock_call_options_set_on_interrupted(options, when_interrupted, &finalized, signal_latch));
  OK(penstock_call_options_set_on_interrupted(options, when_interrupted, &finalized, signal_latch));
  CHECK_INT(latch_count(&finalized), 1);
  CHECK(penstock_call_options_retain(options) == options);
  penstock_call_options_release(options);
  CHECK_INT(latch_count(&finalized), 1);
  penstock_call_options_release(options);
  CHECK_INT(latch_count(&finalized), 2);
  CHECK_RESULT(penstock_call_options_set_on_interrupted(NULL, when_interrupted, &finalized, signal_latch),
               PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_INT(latch_count(&finalized), 3);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}
TEST(call_interrupted_unary) { with_signals(interrupted_unary); }

typedef struct stuck {
  latch inside, leave, finalized;
} stuck;
static void stay(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call, (void)reply;
  stuck *self = user_data;
  latch_signal(&self->inside);
  latch_wait(&self->leave, 1);
}
static void stuck_finalizer(void *user_data) { latch_signal(&((stuck *)user_data)->finalized); }

/* The thread of the loop is stuck in a callback of another call. An interrupted call without hops does not wait until
 * that callback returns. */
TEST(call_interrupted_unary_while_the_loop_is_stuck) {
  penstock_channel *channel = open_channel();
  stuck self = {LATCH_INIT, LATCH_INIT, LATCH_INIT};
  penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
  table.user_data = &self;
  table.finalizer = stuck_finalizer;
  table.on_reply = stay;
  penstock_call *call = NULL;
  REQUIRE_OK(penstock_channel_call(channel, UNARY, PENSTOCK_KIND_UNARY, NULL, &table, &call, NULL));
  OK(penstock_call_try_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  penstock_call_release(call);
  latch_wait(&self.inside, 1);
  penstock_call_options *options = options_of("{\"interruptible\": true}");
  penstock_reply *reply = NULL;
  int64_t before = test_now_ms();
  CHECK_RESULT(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL), PENSTOCK_E_INTERRUPTED);
  CHECK(test_now_ms() < before + test_patience_ms());
  CHECK_INT(latch_count(&self.finalized), 0);
  penstock_call_options_release(options);
  latch_signal(&self.leave);
  latch_wait(&self.finalized, 1);
  check_echo(channel);
  penstock_channel_release(channel);
}

static void not_interruptible(void) {
  penstock_channel *channel = open_channel();
  for (int i = 0; i < 20; i++) check_echo(channel);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_call_send(call, "x", 1));
  CHECK_MESSAGE(call, "x");
  CHECK_FINISH(call, 0);
  penstock_call_release(call);
  penstock_channel_release(channel);
}
TEST(call_signals_do_not_disturb) { with_signals(not_interruptible); }
