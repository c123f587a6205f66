/* call.h: messages of the caller's own bytes are sent without a copy: the bytes that arrive, and the time when they are
 * released. */
#include "observed.h"

#include <sys/mman.h>

enum { KIB = 1 << 10, MIB = 1 << 20, LARGEST = 3 * MIB + 7 };

/* Read-only bytes: writing to them crashes. */
static const unsigned char *fixed_bytes(void) {
  static unsigned char *bytes;
  if (bytes) return bytes;
  bytes = mmap(NULL, LARGEST, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (size_t i = 0; i < LARGEST; i++) bytes[i] = (unsigned char)(i * 131 + i / 256);
  mprotect(bytes, LARGEST, PROT_READ);
  return bytes;
}

static penstock_message *wrap(size_t length, atomic_int *finalized) {
  penstock_message *message = NULL;
  OK(penstock_message_new_lent(fixed_bytes(), length, 0, finalized, count_up, &message));
  return message;
}

static void receive_fixed(penstock_call *call, size_t length) {
  penstock_message *message = NULL;
  if (!OK(penstock_call_receive(call, &message))) return;
  CHECK_INT(message_length(message), length);
  CHECK(length == 0 || memcmp(penstock_message_bytes(message, NULL), fixed_bytes(), length) == 0);
  penstock_message_release(message);
}

TEST(message_copies_bytes) {
  char bytes[] = "hello";
  penstock_message *message = NULL;
  size_t length = 0;
  OK(penstock_message_new(bytes, 5, 0, &message));
  bytes[0] = 'j';
  const void *data = penstock_message_bytes(message, &length);
  CHECK(is_text(data, length, "hello"));
  CHECK(penstock_message_object(message) == NULL);
  penstock_channel *channel = open_channel();
  penstock_reply *reply = NULL;
  for (int i = 0; i < 2; i++) {
    REQUIRE_OK(penstock_channel_unary_message(channel, UNARY, message, NULL, &reply, NULL));
    data = penstock_reply_bytes(reply, &length);
    CHECK(is_text(data, length, "hello"));
    CHECK(penstock_message_bytes(penstock_reply_response_message(reply), NULL) == data);
    penstock_reply_release(reply);
  }
  penstock_message_release(message);
  penstock_channel_release(channel);
  OK(penstock_message_new(NULL, 0, 0, &message));
  CHECK(penstock_message_bytes(message, &length) != NULL);
  CHECK_INT(length, 0);
  penstock_message_release(message);
  CHECK_RESULT(penstock_message_new("x", SIZE_MAX, 0, &message), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_message_new("x", 1, 2, &message), PENSTOCK_E_INVALID_ARGUMENT);
}

TEST(message_wraps_bytes) {
  atomic_int finalized = 0;
  penstock_message *message = wrap(5, &finalized);
  CHECK(penstock_message_bytes(message, NULL) == fixed_bytes());
  CHECK_INT(message_length(message), 5);
  CHECK(penstock_message_object(message) == NULL);
  CHECK(penstock_message_retain(message) == message);
  penstock_message_release(message);
  CHECK_INT(atomic_load(&finalized), 0);
  penstock_message_release(message);
  CHECK_INT(atomic_load(&finalized), 1);
  OK(penstock_message_new_lent(NULL, 0, 0, &finalized, count_up, &message));
  CHECK_INT(message_length(message), 0);
  CHECK_INT(atomic_load(&finalized), 1);
  penstock_message_release(message);
  CHECK_INT(atomic_load(&finalized), 2);
  /* The user data is transferred, even on error. */
  message = NULL;
  CHECK_RESULT(penstock_message_new_lent(NULL, 1, 0, &finalized, count_up, &message), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK(message == NULL);
  CHECK_INT(atomic_load(&finalized), 3);
  CHECK_RESULT(penstock_message_new_lent("x", 1, 0, &finalized, count_up, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_INT(atomic_load(&finalized), 4);
  OK(penstock_message_new_lent("static", 6, 0, NULL, NULL, &message));
  CHECK(penstock_message_bytes(message, NULL) != NULL);
  penstock_message_release(message);
}

static void send_sizes(penstock_channel *channel, const char *options) {
  static const size_t sizes[] = {0, 1, 2047, 2048, 64 * KIB, MIB, LARGEST};
  enum { SIZES = sizeof(sizes) / sizeof(*sizes) };
  penstock_call *call = start_with(channel, BIDI, PENSTOCK_KIND_BIDI, options);
  atomic_int finalized[SIZES] = {0};
  for (int i = 0; i < SIZES; i++) {
    penstock_message *message = wrap(sizes[i], &finalized[i]);
    OK(penstock_call_send_message(call, message));
    penstock_message_release(message);
    receive_fixed(call, sizes[i]);
  }
  check_finish(call, PENSTOCK_STATUS_OK);
  for (int i = 0; i < SIZES; i++) EVENTUALLY(atomic_load(&finalized[i]) == 1);
  penstock_channel_release(channel);
  for (int i = 0; i < SIZES; i++) CHECK_INT(atomic_load(&finalized[i]), 1);
}

TEST(message_arrives_in_every_size) { send_sizes(open_channel(), "{}"); }
TEST(message_arrives_over_tls) { send_sizes(open_tls_channel(false), "{}"); }
TEST(message_arrives_compressed) { send_sizes(open_channel(), "{\"compression\": \"gzip\"}"); }

typedef struct sending {
  penstock_channel *channel;
  penstock_message *message;
} sending;

enum { TIMES = 100 };

static void *send_many(void *argument) {
  sending *self = argument;
  penstock_call *call = start_call(self->channel, BIDI, PENSTOCK_KIND_BIDI);
  for (int i = 0; i < TIMES; i++) {
    OK(penstock_call_send_message(call, self->message));
    receive_fixed(call, message_length(self->message));
  }
  check_finish(call, PENSTOCK_STATUS_OK);
  return NULL;
}

TEST(message_is_sent_many_times_at_once) {
  atomic_int finalized = 0;
  sending sending = {open_channel(), wrap(5 * KIB, &finalized)};
  pthread_t thread;
  pthread_create(&thread, NULL, send_many, &sending);
  send_many(&sending);
  pthread_join(thread, NULL);
  CHECK_INT(atomic_load(&finalized), 0);
  penstock_message_release(sending.message);
  EVENTUALLY(atomic_load(&finalized) == 1);
  penstock_channel_release(sending.channel);
}

TEST(message_that_was_received_is_passed_on) {
  penstock_channel *channel = open_channel();
  penstock_call *from = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  penstock_call *to = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  for (size_t length = 0; length <= 2 * MIB; length = length * 16 + 2) {
    penstock_message *message = NULL;
    OK(penstock_call_send(from, fixed_bytes(), length));
    REQUIRE_OK(penstock_call_receive(from, &message));
    OK(penstock_call_send_message(to, message));
    penstock_message_release(message);
    receive_fixed(to, length);
  }
  check_finish(from, PENSTOCK_STATUS_OK);
  check_finish(to, PENSTOCK_STATUS_OK);
  penstock_channel_release(channel);
}

/* A call of a kind with one request message needs no half-close. */
TEST(message_of_a_unary_call) {
  penstock_channel *channel = open_channel();
  atomic_int finalized = 0;
  penstock_message *message = wrap(64 * KIB, &finalized);
  penstock_call *call = start_call(channel, UNARY, PENSTOCK_KIND_UNARY);
  OK(penstock_call_send_message(call, message));
  CHECK_RESULT(penstock_call_send_message(call, message), PENSTOCK_E_STATE);
  receive_fixed(call, 64 * KIB);
  check_finish(call, PENSTOCK_STATUS_OK);
  penstock_message_release(message);
  EVENTUALLY(atomic_load(&finalized) == 1);
  penstock_channel_release(channel);
}

/* A refused message is not kept. */
TEST(message_that_is_refused_is_let_go) {
  penstock_channel *channel = open_channel();
  atomic_int finalized = 0;
  penstock_message *message = wrap(MIB, &finalized);
  penstock_call *call = start_with(channel, BIDI, PENSTOCK_KIND_BIDI, "{\"max_send_message_bytes\": 1048575}");
  CHECK_RESULT(penstock_call_send_message(call, message), PENSTOCK_E_TOO_LARGE);
  CHECK_RESULT(penstock_call_try_send_message(call, message), PENSTOCK_E_TOO_LARGE);
  penstock_call_options *options = NULL;
  OK(penstock_call_options_new("{\"max_send_message_bytes\": 1048575}", &options, NULL));
  penstock_reply *none = NULL;
  CHECK_RESULT(penstock_channel_unary_message(channel, UNARY, message, options, &none, NULL), PENSTOCK_E_TOO_LARGE);
  penstock_call_options_release(options);
  OK(penstock_call_half_close(call));
  /* The server may have answered already. */
  penstock_result result = penstock_call_send_message(call, message);
  CHECK(result == PENSTOCK_E_STATE || result == PENSTOCK_E_GONE);
  penstock_reply *reply = NULL;
  OK(penstock_call_wait(call, &reply));
  penstock_reply_release(reply);
  CHECK_RESULT(penstock_call_send_message(call, message), PENSTOCK_E_GONE);
  CHECK_RESULT(penstock_call_try_send_message(call, message), PENSTOCK_E_GONE);
  penstock_call_release(call);
  penstock_message_release(message);
  CHECK_INT(atomic_load(&finalized), 1);
  penstock_channel_release(channel);
}

/* ---- The end of a call while its messages wait ---- */

/* This number of large messages is more than all windows hold together, on the way to the server and back, while nobody
 * reads the echo. */
enum { WAITING = 8 };

typedef struct waiting {
  penstock_channel *channel;
  penstock_call *call;
  atomic_int finalized;
} waiting;

static bool has_ended(penstock_call *call) {
  penstock_reply *reply = NULL;
  penstock_result result = penstock_call_reply(call, &reply);
  penstock_reply_release(reply);
  return result == PENSTOCK_OK;
}

/* A finalizer may call functions that do not wait, because the library holds no lock. */
static void finalize_waiting(void *user_data) {
  waiting *self = user_data;
  has_ended(self->call);
  penstock_call_try_send(self->call, "late", 4);
  atomic_fetch_add(&self->finalized, 1);
}

static void begin_waiting(waiting *self, penstock_channel *channel, const char *options) {
  penstock_message *message = NULL;
  *self = (waiting){.channel = channel, .call = start_with(channel, BIDI, PENSTOCK_KIND_BIDI, options)};
  OK(penstock_message_new_lent(fixed_bytes(), MIB, 0, self, finalize_waiting, &message));
  for (int i = 0; i < WAITING; i++) OK(penstock_call_try_send_message(self->call, message));
  /* Some messages may have left meanwhile, as many as fit into the windows. */
  penstock_result result = PENSTOCK_OK;
  for (int i = 0; i < 10 * WAITING && result == PENSTOCK_OK; i++) {
    result = penstock_call_try_send_message(self->call, message);
  }
  CHECK_RESULT(result, PENSTOCK_E_WOULD_BLOCK);
  penstock_message_release(message);
  const penstock_metadata *headers = NULL;
  OK(penstock_call_wait_headers(self->call, &headers));
  CHECK_INT(atomic_load(&self->finalized), 0);
}

#define ROOM "\"send_buffer_bytes\": 8390656"

static void end_waiting(waiting *self, int32_t code) {
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(self->call, &reply))) CHECK_INT(penstock_reply_code(reply), code);
  penstock_reply_release(reply);
  EVENTUALLY(atomic_load(&self->finalized) == 1);
  penstock_call_release(self->call);
  penstock_channel_release(self->channel);
}

TEST(message_that_waits_at_a_cancel) {
  waiting waiting;
  begin_waiting(&waiting, open_channel(), "{" ROOM "}");
  OK(penstock_call_cancel(waiting.call, "enough"));
  end_waiting(&waiting, PENSTOCK_STATUS_CANCELLED);
}

TEST(message_that_waits_at_a_cancel_over_tls) {
  waiting waiting;
  begin_waiting(&waiting, open_tls_channel(false), "{" ROOM "}");
  OK(penstock_call_cancel(waiting.call, "enough"));
  end_waiting(&waiting, PENSTOCK_STATUS_CANCELLED);
}

TEST(message_that_waits_at_the_deadline) {
  waiting waiting;
  char options[100];
  snprintf(options, sizeof(options), "{\"deadline_ms\": %d, " ROOM "}", 1000 * test_slow());
  begin_waiting(&waiting, open_channel(), options);
  /* The test does not wait with penstock_call_wait, which would read the echo. */
  EVENTUALLY(has_ended(waiting.call));
  end_waiting(&waiting, PENSTOCK_STATUS_DEADLINE_EXCEEDED);
}

TEST(message_that_waits_as_the_connection_is_lost) {
  char address[64];
  int input = -1;
  char *const more[] = {NULL};
  int output = start_peer(address, sizeof(address), more, &input);
  penstock_channel *channel = NULL;
  REQUIRE_OK(penstock_channel_new(address, "{\"tls\": false}", &channel, NULL));
  waiting waiting;
  begin_waiting(&waiting, channel, "{" ROOM "}");
  close(input);
  end_waiting(&waiting, PENSTOCK_STATUS_UNAVAILABLE);
  close(output);
}

TEST(message_that_waits_as_the_channel_closes) {
  waiting waiting;
  begin_waiting(&waiting, open_channel(), "{" ROOM "}");
  OK(penstock_channel_close(waiting.channel));
  end_waiting(&waiting, PENSTOCK_STATUS_CANCELLED);
}

TEST(message_that_waits_as_the_runtime_shuts_down) {
  waiting waiting;
  penstock_runtime *runtime = new_runtime(NULL);
  begin_waiting(&waiting, open_channel_on(runtime), "{" ROOM "}");
  OK(penstock_runtime_shutdown(runtime, test_patience_ms()));
  end_waiting(&waiting, PENSTOCK_STATUS_CANCELLED);
  penstock_runtime_release(runtime);
}

/* ---- Hops ---- */

static int32_t change(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_SEND) return PENSTOCK_NEXT;
  const void *data = NULL;
  size_t length = 0;
  OK(hop_bytes(hop, &data, &length));
  CHECK(data == fixed_bytes() && length == 64 * KIB);
  OK(penstock_hop_set_bytes(hop, "changed", 7));
  OK(hop_bytes(hop, &data, &length));
  CHECK(is_text(data, length, "changed"));
  return PENSTOCK_NEXT;
}

static int32_t change_later(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_SEND) return PENSTOCK_NEXT;
  penstock_ticket ticket = penstock_hop_ticket(hop);
  penstock_hop *paused = NULL;
  if (!OK(penstock_ticket_hop(ticket, &paused))) return PENSTOCK_NEXT;
  OK(penstock_hop_set_bytes(paused, "changed", 7));
  penstock_hop_release(paused);
  OK(penstock_ticket_resolve_after(ticket, PENSTOCK_NEXT, 0));
  return PENSTOCK_PAUSE;
}

static void send_changed(int32_t (*hook)(probe *, penstock_hop *, int32_t)) {
  penstock_channel *channel = open_channel();
  atomic_int finalized = 0;
  penstock_message *message = wrap(64 * KIB, &finalized);
  probe probe;
  probe_init_with(&probe, "changes", hook, NULL);
  probe_add(&probe, channel, 0);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  for (int i = 0; i < 3; i++) {
    OK(penstock_call_send_message(call, message));
    check_receive(call, "changed");
  }
  CHECK_INT(message_length(message), 64 * KIB);
  CHECK(penstock_message_bytes(message, NULL) == fixed_bytes());
  penstock_message_release(message);
  EVENTUALLY(atomic_load(&finalized) == 1);
  check_finish(call, PENSTOCK_STATUS_OK);
  penstock_channel_release(channel);
  check_ended(&probe);
}

TEST(message_that_a_hop_changes) { send_changed(change); }
TEST(message_that_is_changed_by_ticket) { send_changed(change_later); }

/* Ends the first attempt at its half-close, below the hop that restarts. */
static int32_t fail_once(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_HALF_CLOSE && penstock_hop_attempt(hop) == 1) {
    OK(penstock_hop_end(hop, PENSTOCK_STATUS_UNAVAILABLE, "again"));
  }
  return PENSTOCK_NEXT;
}

static int32_t restart(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_STATUS || penstock_status_code(penstock_hop_status(hop)) == 0) return PENSTOCK_NEXT;
  return PENSTOCK_RESTART;
}

/* A restart sends the message again if it fits replay_bytes. */
static void send_again(size_t replay_bytes, int32_t code) {
  penstock_channel *channel = open_channel();
  atomic_int finalized = 0;
  penstock_message *message = wrap(64 * KIB, &finalized);
  probe above, below;
  probe_init_with(&above, "restarts", restart, NULL);
  probe_init_with(&below, "fails", fail_once, NULL);
  above.replay_bytes = replay_bytes;
  above.max_restarts = 1;
  probe_add(&above, channel, 1);
  probe_add(&below, channel, 0);
  penstock_call *call = start_call(channel, UNARY, PENSTOCK_KIND_UNARY);
  OK(penstock_call_send_message(call, message));
  penstock_message_release(message);
  OK(penstock_call_half_close(call));
  if (code == PENSTOCK_STATUS_OK) receive_fixed(call, 64 * KIB);
  check_finish(call, code);
  EVENTUALLY(atomic_load(&finalized) == 1);
  CHECK_INT(atomic_load(&below.seen[PENSTOCK_EVENT_SEND]), code == PENSTOCK_STATUS_OK ? 2 : 1);
  penstock_channel_release(channel);
  probe_wait_finalized(&above);
  probe_wait_finalized(&below);
}

TEST(message_that_is_sent_again) {
  send_again(64 * KIB, PENSTOCK_STATUS_OK);
  send_again(64 * KIB - 1, PENSTOCK_STATUS_UNAVAILABLE);
}

/* Bytes that are overwritten when they are released. */
typedef struct fragile {
  char bytes[64 * KIB];
  atomic_int finalized;
} fragile;

static void scribble(void *user_data) {
  fragile *self = user_data;
  memset(self->bytes, 'x', sizeof(self->bytes));
  atomic_fetch_add(&self->finalized, 1);
}

/* Changes the message of the first attempt, which must not change the recorded one, and ends that attempt. */
static int32_t change_and_fail_once(probe *self, penstock_hop *hop, int32_t event) {
  fragile *bytes = self->context;
  if (penstock_hop_attempt(hop) == 1 && event == PENSTOCK_EVENT_SEND) OK(penstock_hop_set_bytes(hop, "changed", 7));
  if (event == PENSTOCK_EVENT_HALF_CLOSE) CHECK_INT(atomic_load(&bytes->finalized), 0);
  return fail_once(self, hop, event);
}

TEST(message_that_is_changed_before_it_is_sent_again) {
  penstock_channel *channel = open_channel();
  static fragile bytes;
  memset(bytes.bytes, 'r', sizeof(bytes.bytes));
  penstock_message *message = NULL;
  OK(penstock_message_new_lent(bytes.bytes, sizeof(bytes.bytes), 0, &bytes, scribble, &message));
  probe above, below;
  probe_init_with(&above, "restarts", restart, NULL);
  probe_init_with(&below, "changes", change_and_fail_once, &bytes);
  above.replay_bytes = 64 * KIB;
  above.max_restarts = 1;
  probe_add(&above, channel, 1);
  probe_add(&below, channel, 0);
  penstock_call *call = start_call(channel, UNARY, PENSTOCK_KIND_UNARY);
  OK(penstock_call_send_message(call, message));
  penstock_message_release(message);
  OK(penstock_call_half_close(call));
  penstock_message *answer = NULL;
  if (OK(penstock_call_receive(call, &answer))) {
    const char *data = penstock_message_bytes(answer, NULL);
    CHECK_INT(message_length(answer), sizeof(bytes.bytes));
    CHECK(data && data[0] == 'r' && data[sizeof(bytes.bytes) - 1] == 'r');
    penstock_message_release(answer);
  }
  check_finish(call, PENSTOCK_STATUS_OK);
  EVENTUALLY(atomic_load(&bytes.finalized) == 1);
  penstock_channel_release(channel);
  probe_wait_finalized(&above);
  probe_wait_finalized(&below);
}

static int32_t see_send(penstock_hop *hop, void *state) {
  (void)hop;
  atomic_fetch_add((atomic_int *)state, 1);
  return PENSTOCK_NEXT;
}

/* A hop has seen the message, and no other event comes to a hop before the bytes have to be released. */
TEST(message_that_a_hop_has_seen_is_let_go) {
  penstock_channel *channel = open_channel();
  atomic_int finalized = 0, seen = 0;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.user_data = &seen;
  table.on_send = see_send;
  penstock_interceptor_id id = 0;
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  for (int i = 1; i <= 2; i++) {
    penstock_message *message = wrap(5 * KIB, &finalized);
    OK(penstock_call_send_message(call, message));
    penstock_message_release(message);
    receive_fixed(call, 5 * KIB);
    EVENTUALLY(atomic_load(&finalized) == i);
  }
  CHECK_INT(atomic_load(&seen), 2);
  check_finish(call, PENSTOCK_STATUS_OK);
  penstock_channel_release(channel);
}
