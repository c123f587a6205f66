/* request.h: penstock_request_message and _set_message read and replace the messages that a RESTART sends again, in each
 * style, in the callback of the status and while the status waits. */
#include "calls.h"
#include "completions.h"
#include "syncer.h"

static const char refused[] = "{\"metadata\": {\"x-status\": \"16\"}}";

static bool recorded_is(penstock_hop *hop, size_t index, const char *text) {
  penstock_message *message = NULL;
  if (!OK(penstock_request_message(penstock_hop_request(hop), index, &message))) return false;
  size_t length = 0;
  const void *data = penstock_message_bytes(message, &length);
  bool found = is(data, length, text);
  penstock_message_release(message);
  return found;
}

static penstock_result record(penstock_hop *hop, size_t index, const char *text) {
  penstock_message *message = NULL;
  OK(penstock_message_new(text, strlen(text), 0, &message));
  penstock_result result = penstock_request_set_message(penstock_hop_request(hop), index, message);
  penstock_message_release(message);
  return result;
}

/* The server accepts the request when it comes again. */
static void accept_next(penstock_hop *hop) {
  OK(penstock_metadata_set(penstock_request_metadata(penstock_hop_request(hop)), "x-status", "0"));
}

/* No message is recorded at `index`. */
static void check_absent(penstock_hop *hop, size_t index) {
  penstock_message *message = NULL;
  CHECK_RESULT(penstock_request_message(penstock_hop_request(hop), index, &message), PENSTOCK_E_NOT_FOUND);
  CHECK(message == NULL);
  CHECK_RESULT(record(hop, index, "x"), PENSTOCK_E_NOT_FOUND);
}

/* The hop can't use the recorded messages, for the reason that `why` says. */
static void check_refused(penstock_hop *hop, const char *why) {
  penstock_message *message = NULL;
  CHECK_RESULT(penstock_request_message(penstock_hop_request(hop), 0, &message), PENSTOCK_E_STATE);
  CHECK_HAS(penstock_hop_why(hop), why);
  CHECK_RESULT(record(hop, 0, "x"), PENSTOCK_E_STATE);
  CHECK_HAS(penstock_hop_why(hop), why);
}

static int32_t replace_once(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_DESTROY) return PENSTOCK_NEXT;
  if (event != PENSTOCK_EVENT_STATUS) {
    check_refused(hop, "in on_status only");
    return PENSTOCK_NEXT;
  }
  if (penstock_status_code(penstock_hop_status(hop)) == PENSTOCK_STATUS_OK) {
    check_refused(hop, "have gone above");
    return PENSTOCK_NEXT;
  }
  if (self->replay_bytes == 0) {
    check_refused(hop, "no replay_bytes");
    return PENSTOCK_NEXT;
  }
  CHECK(recorded_is(hop, 0, "ping"));
  check_absent(hop, 1); /* the half-close */
  check_absent(hop, SIZE_MAX);
  CHECK_RESULT(record(hop, 0, "longer than 10 bytes"), PENSTOCK_E_TOO_LARGE);
  CHECK(recorded_is(hop, 0, "ping"));
  OK(record(hop, 0, "exactly 10"));
  CHECK(recorded_is(hop, 0, "exactly 10"));
  OK(record(hop, 0, ""));
  OK(record(hop, 0, "pong"));
  accept_next(hop);
  return PENSTOCK_RESTART;
}

TEST(restart_message_in_the_callback) {
  for (size_t replay_bytes = 0; replay_bytes <= 10; replay_bytes += 10) {
    penstock_channel *channel = open_channel();
    probe probe;
    probe_init_with(&probe, "auth", replace_once, NULL);
    probe.replay_bytes = replay_bytes;
    probe_add(&probe, channel, 0);
    int32_t code = replay_bytes ? PENSTOCK_STATUS_OK : PENSTOCK_STATUS_UNAUTHENTICATED;
    check_unary(channel, refused, code, replay_bytes ? "pong" : NULL, NULL);
    penstock_channel_release(channel);
    probe_wait_finalized(&probe);
  }
}

typedef struct waiting {
  penstock_ticket ticket;
  latch taken;
} waiting;

static int32_t pause_the_refusal(probe *self, penstock_hop *hop, int32_t event) {
  waiting *waiting = self->context;
  if (event != PENSTOCK_EVENT_STATUS || penstock_status_code(penstock_hop_status(hop)) == 0) return PENSTOCK_NEXT;
  waiting->ticket = penstock_hop_ticket(hop);
  latch_signal(&waiting->taken);
  return PENSTOCK_PAUSE;
}

/* Another thread changes the messages, those too that the caller sends while the status waits. */
TEST(restart_message_while_the_status_waits) {
  penstock_channel *channel = open_channel();
  waiting waiting = {0, LATCH_INIT};
  probe probe;
  probe_init_with(&probe, "auth", pause_the_refusal, &waiting);
  probe.replay_bytes = 100;
  probe_add(&probe, channel, 0);
  penstock_call *call = start_with(channel, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM,
                                   "{\"metadata\": {\"x-status\": \"16\", \"x-after\": \"0\"}}");
  OK(penstock_call_send(call, "a", 1));
  latch_wait(&waiting.taken, 1);
  penstock_hop *hop = NULL;
  REQUIRE_OK(penstock_ticket_hop(waiting.ticket, &hop));
  penstock_request *request = penstock_hop_request(hop);
  penstock_message *message = NULL, *kept = NULL;
  OK(penstock_call_send(call, "b", 1));
  EVENTUALLY(penstock_request_message(request, 1, &message) == PENSTOCK_OK);
  penstock_message_release(message);
  CHECK(recorded_is(hop, 0, "a") && recorded_is(hop, 1, "b"));
  OK(penstock_request_message(request, 1, &kept));
  OK(record(hop, 1, "B"));
  for (int i = 0; i < 20; i++) OK(penstock_call_send(call, "c", 1));
  OK(penstock_call_half_close(call));
  EVENTUALLY(penstock_request_message(request, 21, &message) == PENSTOCK_OK);
  penstock_message_release(message);
  OK(record(hop, 21, "C"));
  OK(penstock_metadata_remove(penstock_request_metadata(request), "x-after"));
  accept_next(hop);
  OK(penstock_hop_resolve(hop, PENSTOCK_RESTART));
  CHECK_RESULT(penstock_request_message(request, 0, &message), PENSTOCK_E_GONE);
  penstock_reply *reply = NULL;
  OK(penstock_call_wait(call, &reply));
  size_t length = 0;
  const char *data = penstock_reply_bytes(reply, &length);
  CHECK(is(data, length, "aBcccccccccccccccccccC"));
  /* A message that was given out stays as it was. */
  data = penstock_message_bytes(kept, &length);
  CHECK(is(data, length, "b"));
  penstock_message_release(kept);
  penstock_reply_release(reply);
  penstock_hop_release(hop);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

typedef struct replacing {
  penstock_hop *hop;
  latch begun;
  atomic_bool is_over;
} replacing;

/* Replaces the first message again and again. */
static void *replace_until_over(void *pointer) {
  replacing *self = pointer;
  OK(record(self->hop, 0, "A"));
  latch_signal(&self->begun);
  while (!atomic_load(&self->is_over)) OK(record(self->hop, 0, "A"));
  return NULL;
}

/* One thread replaces a recorded message while the loop's thread adds messages to the record, which so has to move to a
 * larger piece of memory several times. */
TEST(restart_message_replaced_while_the_record_grows) {
  enum { MORE = 2000 };
  penstock_channel *channel = open_channel();
  waiting waiting = {0, LATCH_INIT};
  probe probe;
  probe_init_with(&probe, "auth", pause_the_refusal, &waiting);
  probe.replay_bytes = 4 * MORE;
  probe_add(&probe, channel, 0);
  penstock_call *call = start_with(channel, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM,
                                   "{\"metadata\": {\"x-status\": \"16\", \"x-after\": \"0\"}}");
  OK(penstock_call_send(call, "a", 1));
  latch_wait(&waiting.taken, 1);
  replacing replacing = {NULL, LATCH_INIT, false};
  REQUIRE_OK(penstock_ticket_hop(waiting.ticket, &replacing.hop));
  pthread_t thread;
  CHECK_INT(pthread_create(&thread, NULL, replace_until_over, &replacing), 0);
  latch_wait(&replacing.begun, 1);
  for (int i = 0; i < MORE; i++) OK(penstock_call_send(call, "c", 1));
  penstock_message *message = NULL;
  EVENTUALLY(penstock_request_message(penstock_hop_request(replacing.hop), MORE, &message) == PENSTOCK_OK);
  penstock_message_release(message);
  atomic_store(&replacing.is_over, true);
  pthread_join(thread, NULL);
  OK(record(replacing.hop, 0, "A"));
  OK(penstock_call_half_close(call));
  OK(penstock_metadata_remove(penstock_request_metadata(penstock_hop_request(replacing.hop)), "x-after"));
  accept_next(replacing.hop);
  OK(penstock_hop_resolve(replacing.hop, PENSTOCK_RESTART));
  penstock_hop_release(replacing.hop);
  penstock_reply *reply = NULL;
  OK(penstock_call_wait(call, &reply));
  char expected[MORE + 2] = "A";
  memset(expected + 1, 'c', MORE);
  size_t length = 0;
  const char *data = penstock_reply_bytes(reply, &length);
  CHECK(is(data, length, expected));
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

static int32_t again_with_another_message(syncer *self, penstock_hop *hop) {
  (void)self;
  check_refused(hop, "start has not left");
  OK(penstock_hop_set_bytes(hop, "first", 5));
  OK(penstock_hop_next(hop));
  CHECK(recorded_is(hop, 0, "first"));
  check_absent(hop, 1);
  OK(record(hop, 0, "second"));
  accept_next(hop);
  OK(penstock_hop_next(hop));
  CHECK(response_is(hop, "second"));
  CHECK(recorded_is(hop, 0, "second"));
  return PENSTOCK_NEXT;
}

TEST(restart_message_in_synchronous_style) {
  syncer self;
  penstock_channel *channel = bench_open(&self, again_with_another_message);
  check_unary(channel, refused, PENSTOCK_STATUS_OK, "second", NULL);
  bench_close(&self, channel);
}

TEST(restart_message_in_asynchronous_style) {
  penstock_channel *channel = open_channel();
  style self;
  style_init(&self);
  self.acts[STATUS] = KEEP;
  penstock_interceptor table = style_table(&self);
  penstock_interceptor_id id = 0;
  table.replay_bytes = 100;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  penstock_call *call = start_with(channel, UNARY, PENSTOCK_KIND_UNARY, refused);
  OK(penstock_call_send(call, "ping", 4));
  OK(penstock_call_half_close(call));
  penstock_hop *hop = take_kept(&self, 1);
  CHECK(recorded_is(hop, 0, "ping"));
  OK(record(hop, 0, "pong"));
  accept_next(hop);
  OK(penstock_hop_resolve(hop, PENSTOCK_RESTART));
  penstock_hop_release(hop);
  hop = take_kept(&self, 2);
  OK(penstock_hop_resolve(hop, PENSTOCK_NEXT));
  penstock_hop_release(hop);
  CHECK_MESSAGE(call, "pong");
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  penstock_call_release(call);
  penstock_channel_release(channel);
  style_end(&self, 1);
}

/* Before a call, options have no messages. */
TEST(restart_message_of_call_options) {
  penstock_call_options *options = options_of(NULL);
  penstock_message *message = NULL;
  penstock_request *request = penstock_call_options_request(options);
  CHECK_RESULT(penstock_request_message(request, 0, &message), PENSTOCK_E_STATE);
  OK(penstock_message_new("x", 1, 0, &message));
  CHECK_RESULT(penstock_request_set_message(request, 0, message), PENSTOCK_E_STATE);
  penstock_message_release(message);
  penstock_call_options_release(options);
}
