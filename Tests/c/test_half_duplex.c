/* Bidi calls over HTTP/1.1, which is half-duplex. A call ends with UNIMPLEMENTED if a thread receives before the
 * half-close, or, in callback style, if a message arrives before it, unless another thread has promised the half-close. */
#include "calls.h"
#include "syncer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

static penstock_channel *open_http1(const char *address, const char *http) {
  char target[128], options[128];
  penstock_channel *channel = NULL;
  snprintf(target, sizeof(target), "http://%s", address);
  snprintf(options, sizeof(options), "{\"protocol\": \"connect\", \"http\": \"%s\"}", http);
  OK(penstock_channel_new(target, options, &channel, NULL));
  return channel;
}

static void check_refused(int line, penstock_call *call) {
  penstock_reply *reply = NULL;
  OK(penstock_call_wait(call, &reply));
  if (!check_int(__FILE__, line, "code", penstock_reply_code(reply), PENSTOCK_STATUS_UNIMPLEMENTED)) {
    printf("  %s\n", penstock_reply_status_json(reply));
  }
  CHECK_HAS(penstock_reply_status_json(reply), "half-close");
  CHECK_HAS(penstock_reply_status_json(reply), "HTTP/2");
  penstock_reply_release(reply);
  penstock_call_release(call);
}
#define CHECK_REFUSED(call) check_refused(__LINE__, (call))

static void finish_well(penstock_call *call) {
  CHECK_FINISH(call, 0);
  penstock_call_release(call);
}

/* ---- Blocking style ---- */

TEST(half_duplex_receive_before_half_close) {
  penstock_channel *channel = open_http1(peer_address(), "1.1");
  for (int sends = 0; sends < 3; sends++) {
    penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
    for (int i = 0; i < sends; i++) OK(penstock_call_send(call, "x", 1));
    penstock_message *message = NULL;
    CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
    CHECK(message == NULL);
    CHECK_RESULT(penstock_call_send(call, "x", 1), PENSTOCK_E_GONE);
    CHECK_REFUSED(call);
  }
  check_echo(channel);
  penstock_channel_release(channel);
}

TEST(half_duplex_headers_before_half_close) {
  penstock_channel *channel = open_http1(peer_address(), "1.1");
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_call_send(call, "x", 1));
  const penstock_metadata *headers = NULL;
  /* Both results are allowed, because the server may send its headers before the call ends. */
  penstock_result result = penstock_call_wait_headers(call, &headers);
  CHECK(result == PENSTOCK_OK || result == PENSTOCK_E_END);
  penstock_message *message = NULL;
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
  CHECK_REFUSED(call);
  penstock_channel_release(channel);
}

TEST(half_duplex_receive_after_half_close) {
  penstock_channel *channel = open_http1(peer_address(), "1.1");
  for (int round = 0; round < 20; round++) {
    penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
    for (int i = 0; i < round; i++) OK(penstock_call_send(call, "ping", 4));
    OK(penstock_call_half_close(call));
    for (int i = 0; i < round; i++) CHECK_MESSAGE(call, "ping");
    penstock_message *message = NULL;
    CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
    finish_well(call);
  }
  penstock_channel_release(channel);
}

TEST(half_duplex_is_not_so_over_http2_or_in_other_kinds) {
  penstock_channel *channel = open_http1(peer_address(), "2");
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  for (int i = 0; i < 3; i++) {
    OK(penstock_call_send(call, "ping", 4));
    CHECK_MESSAGE(call, "ping");
  }
  OK(penstock_call_promise_half_close(call));
  OK(penstock_call_half_close(call));
  finish_well(call);
  penstock_channel_release(channel);
  channel = open_http1(peer_address(), "1.1");
  call = start_call(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM);
  OK(penstock_call_send(call, "ping", 4));
  CHECK_MESSAGE(call, "ping");
  finish_well(call);
  call = start_call(channel, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM);
  OK(penstock_call_send(call, "ping", 4));
  OK(penstock_call_send(call, "pong", 4));
  finish_well(call);
  penstock_channel_release(channel);
}

/* A thread that receives until the call ends. */
typedef struct receiver {
  penstock_call *call;
  latch begins;
  int messages;
  penstock_result last;
  atomic_bool ended;
} receiver;

static void *receive_all(void *given) {
  receiver *self = given;
  latch_signal(&self->begins);
  penstock_message *message = NULL;
  while ((self->last = penstock_call_receive(self->call, &message)) == PENSTOCK_OK) {
    self->messages++;
    penstock_message_release(message);
    message = NULL;
  }
  atomic_store(&self->ended, true);
  return NULL;
}

static pthread_t begin_to_receive(receiver *self, penstock_call *call) {
  pthread_t thread;
  *self = (receiver){.call = call, .begins = LATCH_INIT};
  if (pthread_create(&thread, NULL, receive_all, self)) abort();
  latch_wait(&self->begins, 1);
  return thread;
}

/* The receive begins before there is a connection. The port is bound, but does not accept connections yet. */
TEST(half_duplex_receive_before_the_connection) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof(address);
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  char name[64];
  REQUIRE(listener >= 0 && bind(listener, (struct sockaddr *)&address, size) == 0);
  REQUIRE(getsockname(listener, (struct sockaddr *)&address, &size) == 0);
  snprintf(name, sizeof(name), "127.0.0.1:%d", ntohs(address.sin_port));
  char target[128];
  penstock_channel *channel = NULL;
  snprintf(target, sizeof(target), "http://%s", name);
  OK(penstock_channel_new(target,
                          "{\"protocol\": \"connect\", \"http\": \"1.1\", \"wait_for_ready\": true, "
                          "\"initial_backoff_ms\": 1, \"max_backoff_ms\": 5}",
                          &channel, NULL));
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_call_send(call, "x", 1));
  receiver receiver;
  pthread_t thread = begin_to_receive(&receiver, call);
  /* The channel has failed to connect at least once. */
  EVENTUALLY(penstock_channel_connectivity(channel) == PENSTOCK_CONNECTIVITY_TRANSIENT_FAILURE);
  REQUIRE(listen(listener, 5) == 0);
  pthread_join(thread, NULL);
  CHECK_RESULT(receiver.last, PENSTOCK_E_END);
  CHECK_INT(receiver.messages, 0);
  CHECK_REFUSED(call);
  penstock_channel_release(channel);
  close(listener);
}

/* A thread waits, and another half-closes, both before there is a connection. The call succeeds. */
TEST(half_duplex_half_close_before_the_connection) {
  penstock_channel *channel = open_http1(peer_address(), "1.1");
  for (int round = 0; round < 20; round++) {
    penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
    OK(penstock_call_promise_half_close(call));
    receiver receiver;
    pthread_t thread = begin_to_receive(&receiver, call);
    for (int i = 0; i < 10; i++) OK(penstock_call_send(call, "ping", 4));
    OK(penstock_call_half_close(call));
    pthread_join(thread, NULL);
    CHECK_RESULT(receiver.last, PENSTOCK_E_END);
    CHECK_INT(receiver.messages, 10);
    finish_well(call);
  }
  penstock_channel_release(channel);
}

/* The promise is broken: the program sends nothing more, and the server does not answer. So the call ends after 5
 * seconds. */
TEST(half_duplex_promise_that_is_not_kept) {
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof(address);
  char name[64];
  REQUIRE(bind(listener, (struct sockaddr *)&address, size) == 0 && listen(listener, 5) == 0);
  REQUIRE(getsockname(listener, (struct sockaddr *)&address, &size) == 0);
  snprintf(name, sizeof(name), "127.0.0.1:%d", ntohs(address.sin_port));
  penstock_channel *channel = open_http1(name, "1.1");
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_call_promise_half_close(call));
  OK(penstock_call_send(call, "x", 1));
  int64_t began = test_now_ms();
  receiver receiver;
  pthread_t thread = begin_to_receive(&receiver, call);
  pthread_join(thread, NULL);
  CHECK_RESULT(receiver.last, PENSTOCK_E_END);
  CHECK(test_now_ms() - began > 4000);
  CHECK_RESULT(penstock_call_promise_half_close(call), PENSTOCK_E_GONE);
  CHECK_REFUSED(call);
  penstock_channel_release(channel);
  close(listener);
}

/* ---- Callback style ---- */

typedef struct told {
  atomic_int messages, code;
  latch done, came;
  char words[512];
} told;

static void told_message(penstock_call *call, penstock_message *message, void *user_data) {
  (void)call, (void)message;
  told *self = user_data;
  atomic_fetch_add(&self->messages, 1);
  latch_signal(&self->came);
}

static void told_reply(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  told *self = user_data;
  atomic_store(&self->code, penstock_reply_code(reply));
  snprintf(self->words, sizeof(self->words), "%s", penstock_reply_status_json(reply));
  latch_signal(&self->done);
}

static penstock_call *start_told(penstock_channel *channel, told *told) {
  penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
  penstock_call *call = NULL;
  memset(told, 0, sizeof(*told));
  told->done = told->came = (latch)LATCH_INIT;
  callbacks.user_data = told;
  callbacks.on_message = told_message;
  callbacks.on_reply = told_reply;
  OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, &callbacks, &call, NULL));
  return call;
}

/* The peer answers each message when it arrives, so before the half-close. The call then ends with UNIMPLEMENTED. */
TEST(half_duplex_message_before_half_close_in_callback_style) {
  penstock_channel *channel = open_http1(peer_address(), "1.1");
  told told;
  penstock_call *call = start_told(channel, &told);
  OK(penstock_call_demand(call, 10));
  OK(penstock_call_try_send(call, "ping", 4));
  latch_wait(&told.done, 1);
  CHECK_INT(atomic_load(&told.code), PENSTOCK_STATUS_UNIMPLEMENTED);
  CHECK_HAS(told.words, "half-close the call first, or use HTTP/2");
  CHECK_INT(atomic_load(&told.messages), 0);
  penstock_call_release(call);
  /* With the promise, the early message is delivered. */
  call = start_told(channel, &told);
  OK(penstock_call_promise_half_close(call));
  OK(penstock_call_demand(call, 10));
  OK(penstock_call_try_send(call, "ping", 4));
  latch_wait(&told.came, 1);
  OK(penstock_call_try_send(call, "ping", 4));
  OK(penstock_call_half_close(call));
  latch_wait(&told.done, 1);
  CHECK_INT(atomic_load(&told.code), 0);
  CHECK_INT(atomic_load(&told.messages), 2);
  penstock_call_release(call);
  /* Messages after the half-close are delivered as usual. */
  call = start_told(channel, &told);
  OK(penstock_call_try_send(call, "ping", 4));
  OK(penstock_call_half_close(call));
  OK(penstock_call_demand(call, 10));
  latch_wait(&told.done, 1);
  CHECK_INT(atomic_load(&told.code), 0);
  CHECK_INT(atomic_load(&told.messages), 1);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

/* ---- Interceptors ---- */

/* A synchronous interceptor that waits in penstock_hop_next does not prevent the half-close. */
static int32_t pass(syncer *self, penstock_hop *hop) {
  (void)self;
  CHECK_RESULT(penstock_hop_next(hop), PENSTOCK_OK);
  return PENSTOCK_NEXT;
}

TEST(half_duplex_below_a_synchronous_interceptor) {
  penstock_channel *channel = open_http1(peer_address(), "1.1");
  syncer one;
  syncer_init(&one, pass);
  syncer_add(&one, channel, 0);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  for (int i = 0; i < 3; i++) OK(penstock_call_send(call, "ping", 4));
  OK(penstock_call_half_close(call));
  for (int i = 0; i < 3; i++) CHECK_MESSAGE(call, "ping");
  finish_well(call);
  call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_call_send(call, "ping", 4));
  penstock_message *message = NULL;
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
  CHECK_REFUSED(call);
  bench_close(&one, channel);
}

/* A hop half-closes the call instead of the caller. So the caller may receive. */
static int32_t close_after_first(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_SEND) OK(penstock_hop_half_close(hop));
  return PENSTOCK_NEXT;
}

TEST(half_duplex_half_close_of_a_hop) {
  penstock_channel *channel = open_http1(peer_address(), "1.1");
  probe probe;
  probe_init_with(&probe, "closes", close_after_first, NULL);
  probe_add(&probe, channel, 0);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_call_send(call, "ping", 4));
  CHECK_MESSAGE(call, "ping");
  finish_well(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

/* A hop half-closes a call whose caller already waits for the response when the loop begins to look at it. */
static void *ask(void *context) {
  receiver *self = context;
  OK(penstock_call_send(self->call, "ping", 4));
  return receive_all(self);
}

TEST(half_duplex_half_close_of_a_hop_while_the_caller_waits) {
  penstock_runtime *runtime = new_runtime("{\"mode\": \"host\"}");
  char target[128];
  penstock_channel *channel = NULL;
  snprintf(target, sizeof(target), "http://%s", peer_address());
  OK(penstock_channel_new_on(runtime, target, "{\"protocol\": \"connect\", \"http\": \"1.1\"}", &channel, NULL));
  probe probe;
  probe_init_with(&probe, "closes", close_after_first, NULL);
  probe_add(&probe, channel, 0);
  for (int round = 0; round < 10; round++) {
    receiver self = {.call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI), .begins = LATCH_INIT};
    pthread_t thread;
    if (pthread_create(&thread, NULL, ask, &self)) abort();
    latch_wait(&self.begins, 1);
    /* Time for the thread to wait: if it does so later, the test passes all the same. */
    for (int i = 0; i < 5; i++) test_pause();
    EVENTUALLY((penstock_runtime_poll(runtime, 10), self.ended));
    pthread_join(thread, NULL);
    CHECK_INT(self.messages, 1);
    finish_well(self.call);
  }
  penstock_channel_release(channel);
  OK(penstock_runtime_shutdown(runtime, 20000));
  penstock_runtime_release(runtime);
  probe_wait_finalized(&probe);
}
