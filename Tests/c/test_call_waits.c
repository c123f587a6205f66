/* call.h: several threads with one call, and waits with a limit. */
#include "calls.h"

static void *cancel_soon(void *call) {
  penstock_call_cancel(call, NULL);
  return NULL;
}

TEST(call_cancel_from_another_thread) {
  penstock_channel *channel = open_channel();
  for (int i = 0; i < test_rounds(50); i++) {
    penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
    REQUIRE(call != NULL);
    pthread_t thread;
    pthread_create(&thread, NULL, cancel_soon, call);
    penstock_message *message = NULL;
    CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
    CHECK_FINISH(call, PENSTOCK_STATUS_CANCELLED);
    pthread_join(thread, NULL);
    penstock_call_release(call);
  }
  penstock_channel_release(channel);
}

/* Another thread asks for the headers again and again, before and after the end of the call. */
static void *wait_for_headers_often(void *call) {
  const penstock_metadata *first = NULL;
  penstock_reply *reply = NULL;
  OK(penstock_call_wait_headers(call, &first));
  while (penstock_call_reply(call, &reply) != PENSTOCK_OK) {
    const penstock_metadata *headers = NULL;
    OK(penstock_call_wait_headers(call, &headers));
    CHECK(headers == first);
  }
  CHECK(penstock_reply_headers(reply) == first);
  penstock_reply_release(reply);
  return NULL;
}

TEST(call_headers_while_it_ends) {
  penstock_channel *channel = open_channel();
  for (int i = 0; i < test_rounds(100); i++) {
    penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
    pthread_t thread;
    pthread_create(&thread, NULL, wait_for_headers_often, call);
    OK(penstock_call_send(call, "x", 1));
    CHECK_MESSAGE(call, "x");
    CHECK_FINISH(call, 0);
    pthread_join(thread, NULL);
    penstock_call_release(call);
  }
  penstock_channel_release(channel);
}

static void *wait_for_status(void *call) {
  penstock_reply *reply = NULL;
  OK(penstock_call_wait_status(call, &reply));
  return reply;
}

/* Makes a server-stream call, and gives the code with which it ends. One thread waits for the status while this one
 * reads `read` messages and, unless `cancel` is NULL, cancels the call. */
static int32_t status_of_stream(penstock_channel *channel, const char *options, const char *cancel, int read) {
  penstock_call *call = start_with(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM, options);
  OK(penstock_call_send(call, "x", 1));
  pthread_t thread;
  pthread_create(&thread, NULL, wait_for_status, call);
  for (int i = 0; i < read; i++) CHECK_MESSAGE(call, "x");
  if (cancel) OK(penstock_call_cancel(call, cancel));
  void *reply = NULL, *again = NULL;
  pthread_join(thread, &reply);
  OK(penstock_call_wait_status(call, (penstock_reply **)&again));
  CHECK(reply != NULL && again == reply);
  penstock_message *message = NULL;
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
  int32_t code = penstock_reply_code(reply);
  penstock_reply_release(reply);
  penstock_reply_release(again);
  penstock_call_release(call);
  return code;
}

TEST(call_status_waits_for_whoever_reads) {
  penstock_channel *channel = open_channel();
  const char *five = "{\"metadata\": {\"x-count\": \"5\", \"x-status\": \"10\"}}";
  CHECK_INT(status_of_stream(channel, "{\"metadata\": {\"x-count\": \"0\", \"x-status\": \"5\"}}", NULL, 0), 5);
  CHECK_INT(status_of_stream(channel, five, NULL, 5), 10);
  CHECK_INT(status_of_stream(channel, five, "enough", 4), PENSTOCK_STATUS_CANCELLED);
  CHECK_INT(status_of_stream(channel, five, "enough", 0), PENSTOCK_STATUS_CANCELLED);
  const char *timed = "{\"deadline_ms\": 100, \"metadata\": {\"x-count\": \"5\", \"x-status\": \"10\"}}";
  CHECK_INT(status_of_stream(channel, timed, NULL, 0), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  penstock_channel_release(channel);
}

/* Without a limit of the wait the host's loop is driven; with one, too, until the limit. */
static void wait_with_a_limit(penstock_channel *channel) {
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  REQUIRE(call != NULL);
  penstock_reply *reply = NULL;
  CHECK_RESULT(penstock_call_wait_status_for(call, 0, &reply), PENSTOCK_E_TIMEOUT);
  CHECK_RESULT(penstock_call_wait_status_for(call, 10, &reply), PENSTOCK_E_TIMEOUT);
  CHECK(reply == NULL);
  OK(penstock_call_half_close(call));
  OK(penstock_call_wait_status_for(call, 60000, &reply));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
  penstock_reply_release(reply);
  reply = NULL;
  OK(penstock_call_wait_status_for(call, 0, &reply));
  penstock_reply_release(reply);
  penstock_call_release(call);

  pthread_t thread;
  call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  REQUIRE(call != NULL);
  void *ended = NULL;
  pthread_create(&thread, NULL, wait_for_status, call);
  CHECK_RESULT(penstock_call_wait_status_for(call, 10, &reply), PENSTOCK_E_TIMEOUT);
  OK(penstock_call_cancel(call, "enough"));
  OK(penstock_call_wait_status_for(call, -1, &reply));
  pthread_join(thread, &ended);
  CHECK(ended == reply);
  penstock_reply_release(ended);
  penstock_reply_release(reply);
  penstock_call_release(call);
}

static bool received_messages_are(penstock_channel *channel, int count) {
  char *json = NULL, part[40];
  OK(penstock_channel_stats_json(channel, 20000, &json));
  snprintf(part, sizeof(part), "\"received_messages\":%d,", count);
  bool has = json && strstr(json, part);
  penstock_free(json);
  return has;
}

TEST(call_status_waits_up_to_a_limit) {
  static const char *const modes[] = {"{\"mode\": \"host\"}", "{\"mode\": \"thread\"}",
                                      "{\"mode\": \"thread\", \"caller_drives\": false}"};
  for (size_t i = 0; i < sizeof(modes) / sizeof(*modes); i++) {
    penstock_runtime *runtime = new_runtime(modes[i]);
    penstock_channel *channel = open_channel_on(runtime);
    wait_with_a_limit(channel);
    penstock_channel_release(channel);
    penstock_runtime_release(runtime);
  }
}

/* A wait for the status drops the messages that nobody has read. */
TEST(call_status_waits_drop_unread_messages) {
  penstock_channel *channel = open_channel();
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  for (int i = 0; i < 3; i++) OK(penstock_call_send(call, "ping", 4));
  CHECK_MESSAGE(call, "ping");
  EVENTUALLY(received_messages_are(channel, 2));
  CHECK_FINISH(call, 0);
  penstock_message *message = NULL;
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
  penstock_message_release(message);
  penstock_call_release(call);
  penstock_channel_release(channel);
}
