/* Many messages in one call of the API: penstock_call_receive_many and penstock_call_send_many in blocking style. */
#include "many.h"

/* ---- Each protocol ---- */

typedef struct way {
  const char *protocol, *http, *more;
} way;

static const way ways[] = {
    {"grpc", "2", ""},       {"grpc", "2", ", \"compression\": \"gzip\", \"compression_min_bytes\": 0"},
    {"grpc-web", "2", ""},   {"grpc-web-text", "2", ""},
    {"grpc-web", "1.1", ""}, {"connect", "2", ""},
    {"connect", "1.1", ""},  {"connect", "2", ", \"compression\": \"gzip\", \"compression_min_bytes\": 0"},
};

static penstock_channel *open_way(const way *way) {
  char options[256];
  penstock_channel *channel = NULL;
  printf("  %s, %s%s\n", way->protocol, way->http, way->more);
  snprintf(options, sizeof(options), "{\"tls\": false, \"protocol\": \"%s\", \"http\": \"%s\"%s}", way->protocol,
           way->http, way->more);
  OK(penstock_channel_new(peer_address(), options, &channel, NULL));
  return channel;
}
#define EACH_WAY(way) for (const struct way *way = ways; way < ways + sizeof(ways) / sizeof(*ways); way++)

TEST(many_both_ways) {
  enum { COUNT = 500 };
  EACH_WAY(way) {
    penstock_channel *channel = open_way(way);
    penstock_call *call = start_with(channel, BIDI, PENSTOCK_KIND_BIDI, "{\"metadata\": {\"x-compress\": \"gzip\"}}");
    size_t sent = 7;
    OK(send_numbered(call, 0, COUNT, &sent, true));
    CHECK_INT(sent, COUNT);
    OK(penstock_call_half_close(call));
    int next = 0;
    batch taken;
    penstock_result result;
    while ((result = take(call, &taken, MOST, SIZE)) == PENSTOCK_OK) next = check_numbered(&taken, next);
    CHECK_RESULT(result, PENSTOCK_E_END);
    CHECK_INT(next, COUNT);
    CHECK_FINISH(call, PENSTOCK_STATUS_OK);
    CHECK_RESULT(take(call, &taken, MOST, SIZE), PENSTOCK_E_END);
    CHECK_RESULT(send_numbered(call, 0, 2, &sent, true), PENSTOCK_E_GONE);
    CHECK_INT(sent, 0);
    penstock_call_release(call);
    penstock_channel_release(channel);
  }
}

/* A server stream ends with a status other than OK after 100 messages: all of them come before the end. */
TEST(many_before_the_end) {
  EACH_WAY(way) {
    penstock_channel *channel = open_way(way);
    penstock_call *call =
        start_with(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM,
                   "{\"metadata\": {\"x-count\": \"200\", \"x-after\": \"100\", \"x-status\": \"9\"}}");
    OK(penstock_call_send(call, "abc", 3));
    batch taken;
    size_t came = 0;
    penstock_result result;
    while ((result = take(call, &taken, MOST, SIZE)) == PENSTOCK_OK) {
      for (size_t i = 0; i < taken.count; i++) {
        CHECK_INT(taken.lengths[i], 3);
        CHECK(memcmp(taken.data + 3 * i, "abc", 3) == 0);
      }
      came += taken.count;
    }
    CHECK_RESULT(result, PENSTOCK_E_END);
    CHECK_INT(came, 100);
    CHECK_FINISH(call, PENSTOCK_STATUS_FAILED_PRECONDITION);
    penstock_call_release(call);
    penstock_channel_release(channel);
  }
}

/* ---- Limits ---- */

/* Echoes 8 messages of 10 bytes, and waits until the last has come. */
static penstock_call *with_eight(penstock_channel *channel) {
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  size_t lengths[8] = {10, 10, 10, 10, 10, 10, 10, 10}, sent = 0;
  char data[80];
  for (int i = 0; i < 80; i++) data[i] = (char)('a' + i / 10);
  OK(penstock_call_send_many(call, data, lengths, 8, &sent));
  CHECK_INT(sent, 8);
  return call;
}

static void check_taken(int line, const batch *taken, size_t least, size_t most, char first) {
  if (taken->count < least || taken->count > most)
    test_failed(__FILE__, line, "%zu messages, not %zu to %zu", taken->count, least, most);
  for (size_t i = 0; i < taken->count * 10; i++) CHECK_INT(taken->data[i], first + (int)i / 10);
}

TEST(many_up_to_a_number_and_a_size) {
  penstock_channel *channel = open_channel();
  batch taken;
  for (size_t most = 1; most <= 8; most++) {
    penstock_call *call = with_eight(channel);
    for (size_t came = 0; came < 8; came += taken.count) {
      REQUIRE_OK(take(call, &taken, most, SIZE));
      check_taken(__LINE__, &taken, 1, most, (char)('a' + came));
    }
    penstock_call_release(call);
  }
  for (size_t size = 10; size <= 80; size += 7) {
    penstock_call *call = with_eight(channel);
    for (size_t came = 0; came < 8; came += taken.count) {
      memset(taken.data, '!', SIZE);
      REQUIRE_OK(take(call, &taken, MOST, size));
      check_taken(__LINE__, &taken, 1, size / 10, (char)('a' + came));
      for (size_t i = size; i < SIZE; i++) REQUIRE(taken.data[i] == '!');
    }
    penstock_call_release(call);
  }
  penstock_channel_release(channel);
}

TEST(many_too_large_for_the_room) {
  penstock_channel *channel = open_channel();
  penstock_call *call = with_eight(channel);
  batch taken;
  memset(&taken, '!', sizeof(taken));
  for (size_t size = 0; size < 10; size++) CHECK_RESULT(take(call, &taken, MOST, size), PENSTOCK_E_TOO_LARGE);
  CHECK_RESULT(penstock_call_receive_many(call, 1, NULL, 0, taken.lengths, &taken.count), PENSTOCK_E_TOO_LARGE);
  CHECK(taken.data[0] == '!' && taken.lengths[0] != 10);
  CHECK_MESSAGE(call, "aaaaaaaaaa");
  REQUIRE_OK(take(call, &taken, 1, 10));
  check_taken(__LINE__, &taken, 1, 1, 'b');
  penstock_call_release(call);
  penstock_channel_release(channel);
}

TEST(many_empty_messages) {
  penstock_channel *channel = open_channel();
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  size_t lengths[MOST] = {0}, sent = 9, count = 0, came = 0;
  OK(penstock_call_send_many(call, NULL, lengths, 5, &sent));
  CHECK_INT(sent, 5);
  OK(penstock_call_send_many(call, NULL, NULL, 0, &sent));
  CHECK_INT(sent, 0);
  for (; came < 5; came += count) {
    REQUIRE_OK(penstock_call_receive_many(call, MOST, NULL, 0, lengths, &count));
    for (size_t i = 0; i < count; i++) CHECK_INT(lengths[i], 0);
  }
  CHECK_INT(came, 5);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

TEST(many_arguments) {
  penstock_channel *channel = open_channel();
  penstock_call *call = with_eight(channel);
  batch taken;
  size_t sent = 9, lengths[3] = {1, SIZE_MAX, 1}, large = (size_t)1 << 46;
  size_t halves[4] = {large, large, large, large};
  CHECK_RESULT(take(call, &taken, 0, SIZE), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_call_receive_many(call, SIZE_MAX, taken.data, SIZE, taken.lengths, &taken.count),
               PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(take(call, &taken, 1, SIZE_MAX), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_call_send_many(call, "xyz", lengths, 3, &sent), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_call_try_send_many(call, "xyz", halves, 4, &sent), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_call_try_send_many(call, "xyz", lengths, SIZE_MAX, &sent), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_INT(sent, 9);
  /* Nothing of these was sent or taken. */
  OK(penstock_call_half_close(call));
  size_t came = 0;
  while (take(call, &taken, MOST, SIZE) == PENSTOCK_OK) {
    check_taken(__LINE__, &taken, 1, 8, (char)('a' + came));
    came += taken.count;
  }
  CHECK_INT(came, 8);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

/* ---- Partial results of sending ---- */

TEST(many_without_room) {
  penstock_channel *channel = open_channel();
  /* A message takes 256 bytes of the buffer more than its size. */
  penstock_call *call = start_with(channel, BIDI, PENSTOCK_KIND_BIDI,
                                   "{\"send_buffer_bytes\": 1100, \"metadata\": {\"x-delay-ms\": \"1\"}}");
  enum { COUNT = 300 };
  size_t sent = 0;
  int done = 0, refused = 0, next = 0;
  batch taken;
  while (done < COUNT) {
    penstock_result result = send_numbered(call, done, COUNT - done, &sent, false);
    done += (int)sent;
    if (result == PENSTOCK_OK) {
      CHECK_INT(done, COUNT);
    } else {
      CHECK_RESULT(result, PENSTOCK_E_WOULD_BLOCK);
      CHECK(done < COUNT);
      refused++;
      /* A message that has come back has left the buffer. */
      if (next < done && OK(take(call, &taken, MOST, SIZE))) next = check_numbered(&taken, next);
    }
  }
  CHECK(refused > 0);
  OK(penstock_call_half_close(call));
  while (take(call, &taken, MOST, SIZE) == PENSTOCK_OK) next = check_numbered(&taken, next);
  CHECK_INT(next, COUNT);
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

TEST(many_to_a_call_with_one_request) {
  penstock_channel *channel = open_channel();
  size_t lengths[3] = {3, 3, 3}, sent = 9;
  penstock_call *call = start_call(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM);
  CHECK_RESULT(penstock_call_send_many(call, "onetwothr", lengths, 3, &sent), PENSTOCK_E_STATE);
  CHECK_INT(sent, 1);
  CHECK_RESULT(penstock_call_try_send_many(call, "onetwothr", lengths, 3, &sent), PENSTOCK_E_STATE);
  CHECK_INT(sent, 0);
  CHECK_MESSAGE(call, "one");
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  penstock_call_release(call);
  /* The one response of a unary call is a batch of one, and the reply has it, too. */
  batch taken;
  call = start_call(channel, UNARY, PENSTOCK_KIND_UNARY);
  OK(penstock_call_send_many(call, "four", (size_t[]){4}, 1, &sent));
  CHECK_RESULT(take(call, &taken, MOST, 3), PENSTOCK_E_TOO_LARGE);
  REQUIRE_OK(take(call, &taken, MOST, SIZE));
  CHECK(taken.count == 1 && taken.lengths[0] == 4 && memcmp(taken.data, "four", 4) == 0);
  CHECK_RESULT(take(call, &taken, MOST, SIZE), PENSTOCK_E_END);
  penstock_reply *reply = NULL;
  OK(penstock_call_wait(call, &reply));
  size_t length = 0;
  CHECK(penstock_reply_bytes(reply, &length) != NULL && length == 4);
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

TEST(many_over_the_limit) {
  penstock_channel *channel = open_channel();
  penstock_call *call = start_with(channel, BIDI, PENSTOCK_KIND_BIDI, "{\"max_send_message_bytes\": 4}");
  size_t lengths[4] = {2, 4, 5, 1}, sent = 9;
  CHECK_RESULT(penstock_call_send_many(call, "aabbbbcccccd", lengths, 4, &sent), PENSTOCK_E_TOO_LARGE);
  CHECK_INT(sent, 2);
  CHECK_RESULT(penstock_call_try_send_many(call, "cccccd", lengths + 2, 2, &sent), PENSTOCK_E_TOO_LARGE);
  CHECK_INT(sent, 0);
  OK(penstock_call_try_send_many(call, "d", lengths + 3, 1, &sent));
  OK(penstock_call_half_close(call));
  CHECK_MESSAGE(call, "aa");
  CHECK_MESSAGE(call, "bbbb");
  CHECK_MESSAGE(call, "d");
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

/* ---- A cancel, a deadline and an end in the middle ---- */

typedef struct sender {
  penstock_call *call;
  size_t sent;
  penstock_result result;
} sender;

/* Sends far more than flow control lets through. */
static void *send_endlessly(void *context) {
  enum { COUNT = 10000, LENGTH = 1000 };
  sender *self = context;
  char *data = calloc(COUNT, LENGTH);
  size_t *lengths = calloc(COUNT, sizeof(*lengths));
  for (size_t i = 0; i < COUNT; i++) lengths[i] = LENGTH;
  self->result = penstock_call_send_many(self->call, data, lengths, COUNT, &self->sent);
  CHECK(self->sent < COUNT);
  free(data);
  free(lengths);
  return NULL;
}

/* A server that does not read stops the sender in the middle of its messages; then `json` or `end` ends the call. */
static void stopped(const char *json, void (*end)(penstock_call *), int32_t code) {
  penstock_channel *channel = open_channel();
  penstock_call *call = start_with(channel, BIDI, PENSTOCK_KIND_BIDI, json);
  sender self = {call, 0, PENSTOCK_OK};
  pthread_t thread;
  pthread_create(&thread, NULL, send_endlessly, &self);
  /* The echoes are not read, so the server stops as well. One message has come back: some are sent. */
  batch taken;
  if (OK(take(call, &taken, 1, SIZE))) CHECK_INT(taken.lengths[0], 1000);
  if (end) end(call);
  pthread_join(thread, NULL);
  CHECK_RESULT(self.result, PENSTOCK_E_GONE);
  CHECK(self.sent > 0);
  CHECK_FINISH(call, code);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

TEST(many_cancelled) { stopped("{\"send_buffer_bytes\": 4096}", cancel, PENSTOCK_STATUS_CANCELLED); }

TEST(many_past_the_deadline) {
  char json[100];
  snprintf(json, sizeof(json), "{\"send_buffer_bytes\": 4096, \"deadline_ms\": %d}", 1500 * test_slow());
  stopped(json, NULL, PENSTOCK_STATUS_DEADLINE_EXCEEDED);
}

TEST(many_after_a_cancel) {
  penstock_channel *channel = open_channel();
  penstock_call *call = with_eight(channel);
  batch taken;
  OK(take(call, &taken, 1, SIZE));
  cancel(call);
  CHECK_RESULT(take(call, &taken, MOST, SIZE), PENSTOCK_E_END);
  CHECK_FINISH(call, PENSTOCK_STATUS_CANCELLED);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

TEST(many_until_the_deadline) {
  penstock_channel *channel = open_channel();
  penstock_call *call = start_with(channel, BIDI, PENSTOCK_KIND_BIDI, "{\"deadline_ms\": 1000}");
  size_t sent = 0;
  int next = 0;
  if (send_numbered(call, 0, 3, &sent, true) == PENSTOCK_OK) CHECK_INT(sent, 3);
  batch taken;
  penstock_result result;
  while ((result = take(call, &taken, MOST, SIZE)) == PENSTOCK_OK) next = check_numbered(&taken, next);
  CHECK_RESULT(result, PENSTOCK_E_END);
  CHECK(next <= 3);
  CHECK_FINISH(call, PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

/* ---- Hops ---- */

static int32_t drop_every_fifth(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop;
  if (event != PENSTOCK_EVENT_SEND && event != PENSTOCK_EVENT_RECEIVE) return PENSTOCK_NEXT;
  return atomic_load(&self->seen[event]) % 5 == 0 ? PENSTOCK_DROP : PENSTOCK_NEXT;
}

/* Each message passes each hop by itself, in its order. */
TEST(many_pass_hops_one_by_one) {
  enum { COUNT = 100 };
  penstock_channel *channel = open_channel();
  probe all, drops;
  probe_init(&all, "all");
  probe_init(&drops, "drops");
  drops.hook = drop_every_fifth;
  probe_add(&all, channel, 2);
  probe_add(&drops, channel, 1);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  size_t sent = 0, came = 0;
  OK(send_numbered(call, 0, COUNT, &sent, true));
  OK(penstock_call_half_close(call));
  batch taken;
  while (take(call, &taken, MOST, SIZE) == PENSTOCK_OK) came += taken.count;
  CHECK_INT(came, COUNT * 4 / 5 * 4 / 5);
  CHECK_INT(atomic_load(&all.seen[PENSTOCK_EVENT_SEND]), COUNT);
  CHECK_INT(atomic_load(&drops.seen[PENSTOCK_EVENT_SEND]), COUNT);
  CHECK_INT(atomic_load(&drops.seen[PENSTOCK_EVENT_RECEIVE]), COUNT * 4 / 5);
  CHECK_INT(atomic_load(&all.seen[PENSTOCK_EVENT_RECEIVE]), came);
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&all);
  probe_wait_finalized(&drops);
}
