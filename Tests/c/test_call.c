/* call.h: options, blocking style, messages, replies. */
#include "calls.h"

#include <unistd.h>

TEST(call_options) {
  static const char *const right[] = {
      "{}",
      "{\"deadline_ms\": 5, \"metadata\": {\"a\": \"b\", \"c\": [\"d\", \"e\"], \"f-bin\": \"AAE\"}}",
      "{\"deadline_ms\": null, \"wait_for_ready\": false, \"authority\": \"x\", \"compression\": \"gzip\"}",
      "{\"max_receive_message_bytes\": 0, \"max_send_message_bytes\": 0, \"send_buffer_bytes\": 1}",
      "{\"interruptible\": true}",
  };
  for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++) penstock_call_options_release(options_of(right[i]));
  penstock_call_options_release(options_of(NULL));
  static const struct {
    const char *json, *part;
  } wrong[] = {
      {"", NULL},
      {"[]", NULL},
      {"{\"deadline\": 5}", "deadline"},
      {"{\"deadline_ms\": -1}", "deadline_ms"},
      {"{\"deadline_ms\": \"5\"}", "deadline_ms"},
      {"{\"deadline_ms\": 1, \"deadline_ms\": 2}", "deadline_ms"},
      {"{\"deadline_ms\": true}", "deadline_ms"},
      {"{\"metadata\": []}", "metadata"},
      {"{\"metadata\": {\"te\": \"x\"}}", "metadata"},
      {"{\"metadata\": {\"a\": 1}}", "metadata"},
      {"{\"metadata\": {\"a\": [\"x\", 1]}}", "metadata"},
      {"{\"metadata\": {\"a-bin\": \"*\"}}", "a-bin"},
      {"{\"compression\": \"br\"}", "compression"},
      {"{\"max_receive_message_bytes\": -1}", "max_receive_message_bytes"},
      {"{\"send_buffer_bytes\": -1}", "send_buffer_bytes"},
      {"{\"interruptible\": 1}", "interruptible"},
      {"{\"authority\": \"a b\"}", "authority"},
      {"{\"wait_for_ready\": 1}", "wait_for_ready"},
      {"{\"idempotency\": \"often\"}", "idempotency"},
      {"{\"credentials\": {}}", "credentials"},
      {"{\"credentials\": \"Bearer x\"}", "credentials"},
      {"{\"credentials\": {\"grpc-x\": \"1\"}}", "grpc-x"},
  };
  for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
    penstock_call_options *options = NULL;
    penstock_error *error = NULL;
    if (!CHECK_RESULT(penstock_call_options_new(wrong[i].json, &options, &error), PENSTOCK_E_INVALID_JSON)) {
      printf("  %s\n", wrong[i].json);
    }
    CHECK(options == NULL && error != NULL);
    if (error && wrong[i].part) CHECK_HAS(penstock_error_json(error), wrong[i].part);
    penstock_error_release(error);
    penstock_call_options_release(options);
  }
}

/* The server allows one call at a time. When that call is cancelled, the next one begins, although the server sends
 * nothing. */
TEST(call_begins_when_a_cancelled_one_makes_room) {
  char address[64];
  int input;
  char *const more[] = {"--max-concurrent-streams", "1", NULL};
  int lines = start_peer(address, sizeof(address), more, &input);
  penstock_channel *channel = NULL;
  REQUIRE_OK(penstock_channel_new(address, "{\"tls\": false}", &channel, NULL));
  penstock_call *first = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_call_send(first, "first", 5));
  CHECK_MESSAGE(first, "first");
  penstock_call_options *options = options_of("{\"deadline_ms\": 20000}");
  penstock_call *second = NULL;
  REQUIRE_OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, options, NULL, &second, NULL));
  penstock_call_options_release(options);
  OK(penstock_call_send(second, "second", 6));
  OK(penstock_call_cancel(first, "enough"));
  CHECK_MESSAGE(second, "second");
  CHECK_FINISH(second, PENSTOCK_STATUS_OK);
  CHECK_FINISH(first, PENSTOCK_STATUS_CANCELLED);
  penstock_call_release(first);
  penstock_call_release(second);
  penstock_channel_release(channel);
  close(input);
  close(lines);
}

TEST(call_bidi_blocking) {
  penstock_channel *channel = open_channel();
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  REQUIRE(call != NULL);
  CHECK(penstock_call_id(call) != 0);
  for (int i = 0; i < 10; i++) {
    char text[16];
    snprintf(text, sizeof(text), "message %d", i);
    OK(penstock_call_send(call, text, strlen(text)));
    CHECK_MESSAGE(call, text);
  }
  const penstock_metadata *headers = NULL;
  OK(penstock_call_wait_headers(call, &headers));
  CHECK(headers != NULL);
  CHECK_RESULT(penstock_metadata_set((penstock_metadata *)headers, "a", "b"), PENSTOCK_E_STATE);
  penstock_reply *reply = NULL;
  CHECK_RESULT(penstock_call_reply(call, &reply), PENSTOCK_E_WOULD_BLOCK);
  OK(penstock_call_send(call, NULL, 0));
  CHECK_MESSAGE(call, "");
  OK(penstock_call_half_close(call));
  penstock_result result = penstock_call_half_close(call);
  CHECK(result == PENSTOCK_E_ALREADY || result == PENSTOCK_E_GONE);
  penstock_message *message = NULL;
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
  CHECK(message == NULL);
  result = penstock_call_send(call, "x", 1);
  CHECK(result == PENSTOCK_E_STATE || result == PENSTOCK_E_GONE);
  CHECK_FINISH(call, 0);
  CHECK_FINISH(call, 0);
  OK(penstock_call_reply(call, &reply));
  CHECK_INT(penstock_reply_code(reply), 0);
  CHECK_RESULT(penstock_call_half_close(call), PENSTOCK_E_GONE);
  CHECK_RESULT(penstock_call_send(call, "x", 1), PENSTOCK_E_GONE);
  OK(penstock_call_cancel(call, "too late"));
  CHECK_INT(penstock_reply_code(reply), 0);
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

TEST(call_server_stream) {
  penstock_channel *channel = open_channel();
  penstock_call_options *options = options_of("{\"metadata\": {\"x-repeat\": \"5\"}}");
  penstock_call *call = NULL;
  REQUIRE_OK(penstock_channel_call(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM, options, NULL, &call, NULL));
  OK(penstock_call_send(call, "again", 5));
  CHECK_RESULT(penstock_call_send(call, "two", 3), PENSTOCK_E_STATE);
  OK(penstock_call_half_close(call));
  for (int i = 0; i < 5; i++) CHECK_MESSAGE(call, "again");
  penstock_message *message = NULL;
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
  CHECK_FINISH(call, 0);
  penstock_call_release(call);
  /* penstock_call_wait discards unread messages. */
  REQUIRE_OK(penstock_channel_call(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM, options, NULL, &call, NULL));
  OK(penstock_call_send(call, "again", 5));
  OK(penstock_call_half_close(call));
  CHECK_MESSAGE(call, "again");
  CHECK_FINISH(call, 0);
  penstock_call_release(call);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
}

TEST(call_client_stream) {
  penstock_channel *channel = open_channel();
  penstock_call *call = start_call(channel, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM);
  REQUIRE(call != NULL);
  OK(penstock_call_send(call, "one,", 4));
  OK(penstock_call_send(call, "two,", 4));
  OK(penstock_call_send(call, "three", 5));
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_call_wait(call, &reply));
  size_t length = 0;
  const char *data = penstock_reply_bytes(reply, &length);
  CHECK(data && length == 13 && memcmp(data, "one,two,three", 13) == 0);
  CHECK(penstock_reply_headers(reply) != NULL);
  CHECK(penstock_reply_trailers(reply) != NULL);
  penstock_call_release(call);
  CHECK(penstock_reply_retain(reply) == reply);
  penstock_reply_release(reply);
  CHECK(memcmp(data, "one,two,three", 13) == 0);
  penstock_reply_release(reply);
  penstock_channel_release(channel);
}

TEST(call_unary_in_blocking_style) {
  penstock_channel *channel = open_channel();
  penstock_call *call = start_call(channel, UNARY, PENSTOCK_KIND_UNARY);
  REQUIRE(call != NULL);
  OK(penstock_call_send(call, "ping", 4));
  CHECK_RESULT(penstock_call_send(call, "ping", 4), PENSTOCK_E_STATE);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_call_wait(call, &reply));
  CHECK_INT(penstock_reply_code(reply), 0);
  size_t length = 0;
  const char *data = penstock_reply_bytes(reply, &length);
  CHECK(data && length == 4 && memcmp(data, "ping", 4) == 0);
  penstock_reply_release(reply);
  penstock_call_release(call);
  /* A unary call without a request message ends with UNIMPLEMENTED or INTERNAL, as the status-code spec says. */
  call = start_call(channel, UNARY, PENSTOCK_KIND_UNARY);
  REQUIRE_OK(penstock_call_wait(call, &reply));
  CHECK(penstock_reply_code(reply) != 0);
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

TEST(call_deadline) {
  penstock_channel *channel = open_channel();
  penstock_call_options *options = options_of("{\"deadline_ms\": 60}");
  penstock_call *call = NULL;
  int64_t started = test_now_ms();
  REQUIRE_OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, options, NULL, &call, NULL));
  penstock_message *message = NULL;
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
  CHECK_FINISH(call, PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  CHECK(test_now_ms() - started >= 55);
  penstock_call_release(call);
  penstock_call_options_release(options);
  options = options_of("{\"deadline_ms\": 0}");
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  penstock_reply_release(reply);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
}

TEST(call_default_deadline_of_the_channel) {
  penstock_channel *channel = NULL;
  REQUIRE_OK(penstock_channel_new(peer_address(), "{\"tls\": false, \"default_deadline_ms\": 50}", &channel, NULL));
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  penstock_message *message = NULL;
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
  CHECK_FINISH(call, PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

TEST(call_cancel) {
  penstock_channel *channel = open_channel();
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  REQUIRE(call != NULL);
  OK(penstock_call_send(call, "x", 1));
  OK(penstock_call_cancel(call, "I changed my mind"));
  OK(penstock_call_cancel(call, "twice"));
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_call_wait(call, &reply));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_CANCELLED);
  CHECK_STR(penstock_status_message(penstock_reply_status(reply), NULL), "I changed my mind");
  CHECK_RESULT(penstock_status_set_code((penstock_status *)penstock_reply_status(reply), 0), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_status_set_message((penstock_status *)penstock_reply_status(reply), "", 0), PENSTOCK_E_STATE);
  CHECK_HAS(penstock_reply_status_json(reply), "CANCELLED");
  penstock_message *message = NULL;
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

TEST(call_released_without_finish_is_cancelled) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init(&probe, "probe");
  probe_add(&probe, channel, 0);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  REQUIRE(call != NULL);
  CHECK(penstock_call_retain(call) == call);
  penstock_call_release(call);
  OK(penstock_call_send(call, "x", 1));
  penstock_call_release(call);
  latch_wait(&probe.done, 1);
  CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_STATUS]), 1);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

TEST(call_back_pressure) {
  penstock_channel *channel = open_channel();
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  REQUIRE(call != NULL);
  /* Nobody reads the echo, so windows and buffers fill up. */
  static char data[32768];
  penstock_result result = PENSTOCK_OK;
  size_t taken = 0;
  int64_t until = test_now_ms() + test_patience_ms();
  while (test_now_ms() < until) {
    result = penstock_call_try_send(call, data, sizeof(data));
    if (result == PENSTOCK_E_WOULD_BLOCK) {
      /* A refusal may only mean that the transport is slow. The buffer is full if it refuses for a while. */
      int again = 0;
      while (again < 100 && (result = penstock_call_try_send(call, data, sizeof(data))) == PENSTOCK_E_WOULD_BLOCK) {
        test_pause();
        again++;
      }
      if (result == PENSTOCK_E_WOULD_BLOCK) break;
    }
    if (!CHECK_RESULT(result, PENSTOCK_OK)) break;
    taken += sizeof(data);
    if (!CHECK_INT(taken < ((size_t)256 << 20), 1)) break;
  }
  CHECK_RESULT(result, PENSTOCK_E_WOULD_BLOCK);
  /* When the test reads all messages, the messages that still wait can leave. */
  OK(penstock_call_half_close(call));
  size_t back = 0;
  penstock_message *message = NULL;
  while ((result = penstock_call_receive(call, &message)) == PENSTOCK_OK) {
    back += message_length(message);
    penstock_message_release(message);
  }
  CHECK_RESULT(result, PENSTOCK_E_END);
  CHECK_INT(back, taken);
  CHECK_FINISH(call, 0);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

typedef struct pump {
  penstock_call *call;
  int messages;
} pump;

static void *send_all(void *pointer) {
  pump *pump = pointer;
  static char data[10000];
  for (int i = 0; i < pump->messages; i++) {
    if (!OK(penstock_call_send(pump->call, data, sizeof(data)))) break;
  }
  OK(penstock_call_half_close(pump->call));
  return NULL;
}

TEST(call_sender_and_receiver_threads) {
  penstock_channel *channel = open_channel();
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  REQUIRE(call != NULL);
  pump pump = {call, test_rounds(500)};
  pthread_t thread;
  pthread_create(&thread, NULL, send_all, &pump);
  int count = 0;
  penstock_message *message = NULL;
  while (penstock_call_receive(call, &message) == PENSTOCK_OK) {
    CHECK_INT(message_length(message), 10000);
    penstock_message_release(message);
    count++;
  }
  pthread_join(thread, NULL);
  CHECK_INT(count, pump.messages);
  CHECK_FINISH(call, 0);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

TEST(call_message_outlives_everything) {
  penstock_channel *channel = open_channel();
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  penstock_message *message = NULL;
  OK(penstock_call_send(call, "keep me", 7));
  REQUIRE_OK(penstock_call_receive(call, &message));
  CHECK_FINISH(call, 0);
  penstock_call_release(call);
  penstock_channel_release(channel);
  CHECK(penstock_message_retain(message) == message);
  penstock_message_release(message);
  CHECK(memcmp(penstock_message_bytes(message, NULL), "keep me", 7) == 0);
  penstock_message_release(message);
}

TEST(call_reply_views) {
  penstock_channel *channel = open_channel();
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "ping", 4, NULL, &reply, NULL));
  const char *json = penstock_reply_status_json(reply);
  CHECK(json == penstock_reply_status_json(reply));
  CHECK_HAS(json, "\"code\"");
  CHECK_HAS(json, "\"OK\"");
  CHECK_HAS(json, "\"metadata\"");
  CHECK_HAS(json, "\"details\"");
  const char *stats = penstock_reply_stats_json(reply);
  static const char *const keys[] = {"duration_us", "first_byte_sent_us", "headers_us", "first_message_us", "sent",
                                     "received",    "messages",           "bytes",      "wire_bytes",       "peer"};
  for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++) CHECK_HAS(stats, keys[i]);
  CHECK_HAS(stats, peer_address());
  CHECK_INT(penstock_status_code(penstock_reply_status(reply)), 0);
  CHECK(penstock_reply_value(reply, "nothing") == NULL);
  penstock_status *status = penstock_status_retain(penstock_reply_status(reply));
  penstock_metadata *trailers = penstock_metadata_retain(penstock_reply_trailers(reply));
  penstock_reply_release(reply);
  CHECK_INT(penstock_status_code(status), 0);
  CHECK(penstock_metadata_count(trailers) < 100);
  penstock_status_release(status);
  penstock_metadata_release(trailers);
  penstock_channel_release(channel);
}

TEST(call_options_are_used_again) {
  penstock_channel *channel = open_channel();
  penstock_call_options *options = options_of("{\"deadline_ms\": 20000, \"metadata\": {\"a\": [\"1\", \"2\"]}}");
  for (int i = 0; i < 20; i++) {
    penstock_reply *reply = NULL;
    REQUIRE_OK(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL));
    CHECK_INT(penstock_reply_code(reply), 0);
    penstock_reply_release(reply);
  }
  penstock_call_options_release(options);
  penstock_channel_release(channel);
}

TEST(call_blocking_use_within_its_threads) {
  penstock_channel *channel = open_channel();
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  CHECK_RESULT(penstock_call_demand(call, 1), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_call_send(call, NULL, 1), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_call_try_send(call, NULL, 1), PENSTOCK_E_INVALID_ARGUMENT);
  OK(penstock_call_try_send(call, "x", 1));
  CHECK_MESSAGE(call, "x");
  CHECK_FINISH(call, 0);
  penstock_call_release(call);
  penstock_channel_release(channel);
}
