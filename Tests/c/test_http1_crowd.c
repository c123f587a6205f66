/* Many calls at once over few or many connections of HTTP/1.1: each ends, whatever becomes of its neighbours. */
#include "calls.h"

#include <pthread.h>
#include <unistd.h>

static const char *const protocols[] = {"grpc-web", "grpc-web-text", "connect"};
static const int limits[] = {1, 2, 100};

static penstock_channel *open_over(const char *protocol, int connections) {
  char options[256];
  penstock_channel *channel = NULL;
  snprintf(options, sizeof(options),
           "{\"tls\": false, \"http\": \"1.1\", \"protocol\": \"%s\", \"http1_max_connections\": %d}", protocol,
           connections);
  OK(penstock_channel_new(peer_address(), options, &channel, NULL));
  return channel;
}

/* Begins a thousand calls at once, and cancels some: those in the queue, and those with a connection. */
static void crowd(penstock_channel *channel) {
  enum { CALLS = 1000 };
  static penstock_call *calls[CALLS];
  for (int i = 0; i < CALLS; i++) {
    calls[i] = start_numbered(channel, i);
    if (i % 7 == 0) OK(penstock_call_cancel(calls[i / 2], NULL));
  }
  for (int i = 0; i < CALLS; i++) {
    penstock_reply *reply = NULL;
    OK(penstock_call_wait(calls[i], &reply));
    int32_t code = penstock_reply_code(reply);
    CHECK(code == PENSTOCK_STATUS_OK || (code == PENSTOCK_STATUS_CANCELLED && i < CALLS / 2));
    penstock_reply_release(reply);
    penstock_call_release(calls[i]);
  }
}

TEST(http1_a_thousand_calls_at_once) {
  for (size_t p = 0; p < sizeof(protocols) / sizeof(protocols[0]); p++) {
    for (size_t l = 0; l < sizeof(limits) / sizeof(limits[0]); l++) {
      penstock_channel *channel = open_over(protocols[p], limits[l]);
      for (int round = 0; round < 3; round++) crowd(channel);
      check_echo(channel);
      penstock_channel_release(channel);
    }
  }
}

/* ---- Threads ---- */

/* A caller with calls of each kind, which end in each way. */
static void *run_calls(void *context) {
  penstock_channel *channel = context;
  static char large[300000];
  for (int i = 0; i < 60; i++) {
    size_t length = i % 4 == 0 ? sizeof(large) : (size_t)i;
    penstock_call *call = start_with(channel, i % 2 ? UNARY : BIDI, i % 2 ? PENSTOCK_KIND_UNARY : PENSTOCK_KIND_BIDI,
                                     i % 5 == 0 ? "{\"deadline_ms\": 2}" : "{}");
    penstock_call_send(call, large, length);
    penstock_call_half_close(call);
    if (i % 3 == 0) penstock_call_cancel(call, NULL);
    penstock_message *message = NULL;
    while (penstock_call_receive(call, &message) == PENSTOCK_OK) penstock_message_release(message);
    penstock_reply *reply = NULL;
    OK(penstock_call_wait(call, &reply));
    int32_t code = penstock_reply_code(reply);
    CHECK(code == PENSTOCK_STATUS_OK || (code == PENSTOCK_STATUS_CANCELLED && i % 3 == 0) ||
          (code == PENSTOCK_STATUS_DEADLINE_EXCEEDED && i % 5 == 0));
    penstock_reply_release(reply);
    penstock_call_release(call);
  }
  return NULL;
}

TEST(http1_calls_that_end_in_each_way) {
  for (size_t p = 0; p < sizeof(protocols) / sizeof(protocols[0]); p++) {
    for (size_t l = 0; l < sizeof(limits) / sizeof(limits[0]); l++) {
      penstock_channel *channel = open_over(protocols[p], limits[l]);
      pthread_t threads[6];
      for (int i = 0; i < 6; i++) CHECK_INT(pthread_create(&threads[i], NULL, run_calls, channel), 0);
      for (int i = 0; i < 6; i++) pthread_join(threads[i], NULL);
      check_echo(channel);
      penstock_channel_release(channel);
    }
  }
}
