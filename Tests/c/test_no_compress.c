/* The messages of a call that are compressed. PENSTOCK_MESSAGE_NO_COMPRESS: one message stays uncompressed among others.
 * "compression_min_bytes": messages of a size and above are compressed, even where that makes them longer. The server of
 * gRPC's interop tests checks the flag of each message, and refuses one that differs from its "expect_compressed". */
#include "calls.h"
#include "test.h"

#define UNARY_CALL      "/grpc.testing.TestService/UnaryCall"
#define STREAMING_INPUT "/grpc.testing.TestService/StreamingInputCall"
#define GZIP            "{\"compression\": \"gzip\", \"deadline_ms\": 60000}"

/* An encoded StreamingInputCallRequest or SimpleRequest. It has a body of up to 2 KiB, which gzip makes smaller, and
 * the field expect_compressed, whose number (`field`) is 2 or 8. */
typedef struct bytes {
  uint8_t at[2200];
  size_t length;
} bytes;

static bytes expecting(int field, bool compressed, size_t body) {
  bytes made = {.length = 0};
  size_t inner = body + 3;
  uint8_t head[] = {field == 2 ? 0x0a : 0x1a, (uint8_t)(inner | 0x80), (uint8_t)(inner >> 7), 0x12,
                    (uint8_t)(body | 0x80),   (uint8_t)(body >> 7)};
  memcpy(made.at, head, sizeof head);
  memset(made.at + sizeof head, 'a', body);
  uint8_t flag[] = {(uint8_t)(field << 3 | 2), (uint8_t)(compressed ? 2 : 0), 8, 1};
  memcpy(made.at + sizeof head + body, flag, compressed ? 4 : 2);
  made.length = sizeof head + body + (compressed ? 4 : 2);
  return made;
}

static penstock_message *plain_message(const bytes *given) {
  penstock_message *message = NULL;
  OK(penstock_message_new(given->at, given->length, PENSTOCK_MESSAGE_NO_COMPRESS, &message));
  return message;
}

TEST(no_compress_in_a_unary_call) {
  penstock_channel *channel = open_channel();
  penstock_call_options *options = options_of(GZIP);
  for (int plain = 0; plain < 2; plain++) {
    for (int expected = 0; expected < 2; expected++) {
      bytes given = expecting(8, expected == 1, 1000);
      penstock_message *message = NULL;
      OK(penstock_message_new(given.at, given.length, plain ? PENSTOCK_MESSAGE_NO_COMPRESS : 0, &message));
      penstock_reply *reply = NULL;
      OK(penstock_channel_unary_message(channel, UNARY_CALL, message, options, &reply, NULL));
      CHECK_INT(penstock_reply_code(reply), plain != expected ? PENSTOCK_STATUS_OK : PENSTOCK_STATUS_INVALID_ARGUMENT);
      penstock_reply_release(reply);
      penstock_message_release(message);
    }
  }
  penstock_call_options_release(options);
  penstock_channel_release(channel);
}

/* The call ends with OK if each message had the expected flag. Messages are sent faster than they are compressed, and
 * the messages behind one that is being compressed keep their order. The server adds up the lengths of the bodies. */
static void send_mixed(penstock_channel *channel) {
  penstock_call *call = start_with(channel, STREAMING_INPUT, PENSTOCK_KIND_CLIENT_STREAM, GZIP);
  for (int i = 0; i < 60; i++) {
    bool plain = test_random(2) == 0;
    bytes given = expecting(2, !plain, 1000 + test_random(1000));
    if (plain) {
      penstock_message *message = plain_message(&given);
      OK(penstock_call_send_message(call, message));
      penstock_message_release(message);
    } else {
      OK(penstock_call_send(call, given.at, given.length));
    }
  }
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  penstock_call_release(call);
}

TEST(no_compress_among_compressed_messages) {
  penstock_channel *channel = open_channel();
  for (int i = 0; i < test_rounds(20); i++) send_mixed(channel);
  penstock_channel_release(channel);
}

/* Replaces each message by another with the same expectation and another body; a paused message goes on by its ticket.
 */
static int32_t replace(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_SEND) return PENSTOCK_NEXT;
  const void *data = NULL;
  size_t length = 0;
  OK(hop_bytes(hop, &data, &length));
  const uint8_t *last = data;
  bool compressed = last[length - 1] == 1;
  bytes given = expecting(2, compressed, 1000 + test_random(1000));
  OK(penstock_hop_set_bytes(hop, given.at, given.length));
  if (test_random(2)) return PENSTOCK_NEXT;
  penstock_ticket ticket = penstock_hop_ticket(hop);
  OK(penstock_ticket_resolve(ticket, PENSTOCK_NEXT));
  return PENSTOCK_PAUSE;
}

TEST(no_compress_through_hops_that_replace) {
  penstock_channel *channel = open_channel();
  probe above, below;
  probe_init_with(&above, "above", replace, NULL);
  probe_init_with(&below, "below", replace, NULL);
  probe_add(&above, channel, 1);
  probe_add(&below, channel, 0);
  for (int i = 0; i < test_rounds(20); i++) send_mixed(channel);
  penstock_channel_release(channel);
  probe_wait_finalized(&above);
  probe_wait_finalized(&below);
}

/* Before each message of the caller, sends an uncompressed and a compressed one of the hop's own; replaces every second
 * message by one that stays uncompressed. */
static int32_t send_own(probe *self, penstock_hop *hop, int32_t event) {
  if (event != PENSTOCK_EVENT_SEND) return PENSTOCK_NEXT;
  int *count = self->context;
  bytes plain = expecting(2, false, 1000 + test_random(1000)), packed = expecting(2, true, 1000);
  penstock_message *message = plain_message(&plain);
  OK(penstock_hop_send_message(hop, message));
  OK(penstock_hop_send(hop, packed.at, packed.length));
  if (++*count % 2 == 0) OK(penstock_hop_set_message(hop, message));
  penstock_message_release(message);
  return PENSTOCK_NEXT;
}

TEST(no_compress_of_messages_that_a_hop_makes) {
  penstock_channel *channel = open_channel();
  int count = 0;
  probe making;
  probe_init_with(&making, "making", send_own, &count);
  probe_add(&making, channel, 0);
  for (int i = 0; i < test_rounds(20); i++) send_mixed(channel);
  CHECK(count >= 60);
  penstock_channel_release(channel);
  probe_wait_finalized(&making);
}

/* The first attempt fails after everything was sent, and the recording is sent again. */
static int32_t again(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_START) {
    OK(penstock_metadata_set(penstock_request_metadata(penstock_hop_request(hop)), "x-status", "14"));
  }
  if (event != PENSTOCK_EVENT_STATUS || penstock_status_code(penstock_hop_status(hop)) != PENSTOCK_STATUS_UNAVAILABLE) {
    return PENSTOCK_NEXT;
  }
  OK(penstock_metadata_remove(penstock_request_metadata(penstock_hop_request(hop)), "x-status"));
  return PENSTOCK_RESTART;
}

TEST(no_compress_in_a_replay) {
  penstock_channel *channel = open_channel();
  probe restarting;
  probe_init_with(&restarting, "restarting", again, NULL);
  restarting.replay_bytes = 1 << 20;
  probe_add(&restarting, channel, 0);
  for (int i = 0; i < test_rounds(20); i++) send_mixed(channel);
  CHECK_INT(restarting.seen[PENSTOCK_EVENT_STATUS], 2 * restarting.seen[PENSTOCK_EVENT_START]);
  penstock_channel_release(channel);
  probe_wait_finalized(&restarting);
}

/* ---- Objects ---- */

static int32_t encode(void *user_data, const char *method, void *object, penstock_buffer *out) {
  const bytes *given = object;
  (void)user_data;
  (void)method;
  return penstock_buffer_append(out, given->at, given->length);
}

static int32_t decode(void *user_data, const char *method, const void *data, size_t length, void **object) {
  (void)user_data;
  (void)method;
  (void)data;
  (void)length;
  *object = calloc(1, sizeof(bytes));
  return 0;
}

static void free_bytes(void *user_data, void *object) {
  (void)user_data;
  free(object);
}

TEST(no_compress_of_objects) {
  penstock_channel *channel = open_channel();
  penstock_codec_functions functions = PENSTOCK_CODEC_FUNCTIONS_INIT;
  functions.encode = encode;
  functions.decode = decode;
  functions.free = free_bytes;
  penstock_codec *codec = NULL;
  REQUIRE_OK(penstock_codec_new(&functions, &codec, NULL));
  OK(penstock_channel_set_codec(channel, codec));
  penstock_call *call = start_with(channel, STREAMING_INPUT, PENSTOCK_KIND_CLIENT_STREAM, GZIP);
  for (int i = 0; i < 20; i++) {
    bytes *object = malloc(sizeof(bytes));
    *object = expecting(2, i % 2 == 0, 1500);
    penstock_message *message = NULL;
    OK(penstock_message_new_object(codec, object, i % 2 == 1 ? PENSTOCK_MESSAGE_NO_COMPRESS : 0, &message));
    OK(penstock_call_send_message(call, message));
    penstock_message_release(message);
  }
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  penstock_call_release(call);
  penstock_codec_release(codec);
  penstock_channel_release(channel);
}

/* ---- A minimum size ---- */

/* Whether the server finds a unary message with a body of `body` bytes compressed as `expected`. */
static void check_compressed(penstock_channel *channel, const char *json, size_t body, bool expected) {
  penstock_call_options *options = options_of(json);
  bytes given = expecting(8, expected, body);
  penstock_reply *reply = NULL;
  if (OK(penstock_channel_unary(channel, UNARY_CALL, given.at, given.length, options, &reply, NULL)) &&
      !CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK)) {
    printf("  %zu bytes with %s\n", given.length, json);
  }
  penstock_reply_release(reply);
  penstock_call_options_release(options);
}

TEST(compression_from_a_minimum_size) {
  penstock_channel *channel = open_channel();
  check_compressed(channel, GZIP, 1, false);
  check_compressed(channel, GZIP, 1000, true);
  check_compressed(channel, "{\"compression\": \"gzip\", \"compression_min_bytes\": 0}", 1, true);
  check_compressed(channel, "{\"compression\": \"gzip\", \"compression_min_bytes\": 900}", 1, false);
  check_compressed(channel, "{\"compression\": \"gzip\", \"compression_min_bytes\": 900}", 1000, true);
  check_compressed(channel, "{\"compression\": \"gzip\", \"compression_min_bytes\": 2000}", 1000, false);
  check_compressed(channel, "{\"compression_min_bytes\": 0}", 1000, false);
  penstock_channel_release(channel);
}

TEST(compression_minimum_of_a_channel_and_of_its_calls) {
  penstock_channel *channel = NULL;
  const char *json = "{\"tls\": false, \"compression\": \"gzip\", \"compression_min_bytes\": 0}";
  REQUIRE_OK(penstock_channel_new(peer_address(), json, &channel, NULL));
  check_compressed(channel, "{}", 1, true);
  check_compressed(channel, "{\"compression_min_bytes\": 900}", 1, false);
  check_compressed(channel, "{\"compression\": \"identity\"}", 1, false);
  penstock_channel_release(channel);
}

/* Many messages that do not shrink, among messages that stay plain: all have the right flag, and keep their order. */
TEST(compression_from_zero_in_a_stream) {
  penstock_channel *channel = open_channel();
  penstock_call *call = start_with(channel, STREAMING_INPUT, PENSTOCK_KIND_CLIENT_STREAM,
                                   "{\"compression\": \"gzip\", \"compression_min_bytes\": 0}");
  for (int i = 0; i < 50; i++) {
    bytes given = expecting(2, i % 3 != 0, i % 2 == 0 ? 1 : 1500);
    if (i % 3 != 0) {
      OK(penstock_call_send(call, given.at, given.length));
    } else {
      penstock_message *message = plain_message(&given);
      OK(penstock_call_send_message(call, message));
      penstock_message_release(message);
    }
  }
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  penstock_call_release(call);
  penstock_channel_release(channel);
}
