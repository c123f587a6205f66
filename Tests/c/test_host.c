/* runtime.h: host-driven loops. */
#include "test.h"

#include <errno.h>
#include <poll.h>

/* ---- Host mode ---- */

typedef struct host_call {
  latch reply, finalized;
  int32_t code;
  penstock_runtime *runtime;
} host_call;

static void host_reply(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  host_call *host = user_data;
  host->code = penstock_reply_code(reply);
  CHECK_RESULT(penstock_runtime_poll(host->runtime, 0), PENSTOCK_E_BUSY);
  CHECK_RESULT(penstock_runtime_poll(host->runtime, -1), PENSTOCK_E_BUSY);
  CHECK_RESULT(penstock_runtime_poll(host->runtime, 5), PENSTOCK_E_BUSY);
  latch_signal(&host->reply);
}
static void host_finalized(void *user_data) { latch_signal(&((host_call *)user_data)->finalized); }

static void start_host_call(host_call *host, penstock_runtime *runtime, penstock_channel *channel) {
  latch empty = LATCH_INIT;
  host->reply = host->finalized = empty;
  host->runtime = runtime;
  host->code = -1;
  penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
  table.user_data = host;
  table.finalizer = host_finalized;
  table.on_reply = host_reply;
  penstock_call *call = NULL;
  REQUIRE_OK(penstock_channel_call(channel, UNARY, PENSTOCK_KIND_UNARY, NULL, &table, &call, NULL));
  OK(penstock_call_try_send(call, "ping", 4));
  OK(penstock_call_half_close(call));
  penstock_call_release(call);
}

TEST(runtime_host_driven_by_poll) {
  penstock_runtime *runtime = new_runtime("{\"mode\": \"host\"}");
  penstock_channel *channel = open_channel_on(runtime);
  OK(penstock_runtime_poll(runtime, 0));
  host_call calls[3];
  for (int i = 0; i < 3; i++) start_host_call(&calls[i], runtime, channel);
  int64_t until = test_now_ms() + test_patience_ms();
  for (int i = 0; i < 3; i++) {
    while (latch_count(&calls[i].finalized) == 0 && test_now_ms() < until) {
      penstock_result result = penstock_runtime_poll(runtime, 1000);
      if (!CHECK(result == PENSTOCK_OK || result == PENSTOCK_E_TIMEOUT)) break;
    }
    CHECK_INT(calls[i].code, 0);
    CHECK_INT(latch_count(&calls[i].reply), 1);
  }
  penstock_channel_release(channel);
  OK(penstock_runtime_shutdown(runtime, 5000));
  CHECK_RESULT(penstock_runtime_poll(runtime, 0), PENSTOCK_E_CLOSED);
  penstock_runtime_release(runtime);
}

/* If a channel closes before its calls run, the calls end when they begin. By then no thread has a handle of these
 * calls. */
TEST(runtime_host_calls_of_a_channel_that_closes_first) {
  penstock_runtime *runtime = new_runtime("{\"mode\": \"host\"}");
  penstock_channel *channel = open_channel_on(runtime);
  host_call calls[8];
  for (int i = 0; i < 8; i++) start_host_call(&calls[i], runtime, channel);
  OK(penstock_channel_close(channel));
  for (int i = 0; i < 8; i++) {
    while (latch_count(&calls[i].finalized) == 0) {
      if (!OK(penstock_runtime_poll(runtime, 0))) break;
    }
    CHECK_INT(calls[i].code, PENSTOCK_STATUS_CANCELLED);
    CHECK_INT(latch_count(&calls[i].finalized), 1);
  }
  penstock_channel_release(channel);
  OK(penstock_runtime_shutdown(runtime, 0));
  penstock_runtime_release(runtime);
}

/* The test polls only when the descriptor is readable. */
TEST(runtime_host_driven_by_its_fd) {
  penstock_runtime *runtime = new_runtime("{\"mode\": \"host\"}");
  int fd = -1;
  REQUIRE_OK(penstock_runtime_fd(runtime, &fd));
  CHECK(fd >= 0);
  penstock_channel *channel = open_channel_on(runtime);
  for (int i = 0; i < 5; i++) {
    host_call call;
    start_host_call(&call, runtime, channel);
    while (latch_count(&call.finalized) == 0) {
      struct pollfd ready = {fd, POLLIN, 0};
      int count = poll(&ready, 1, test_patience_ms());
      if (!CHECK_INT(count, 1)) break;
      OK(penstock_runtime_poll(runtime, 0));
    }
    CHECK_INT(call.code, 0);
  }
  penstock_channel_release(channel);
  penstock_runtime_release(runtime);
}

/* A deadline makes the descriptor readable. */
TEST(runtime_host_fd_wakes_for_a_deadline) {
  penstock_runtime *runtime = new_runtime("{\"mode\": \"host\"}");
  int fd = -1;
  REQUIRE_OK(penstock_runtime_fd(runtime, &fd));
  penstock_channel *channel = open_channel_on(runtime);
  penstock_call_options *options = NULL;
  REQUIRE_OK(penstock_call_options_new("{\"deadline_ms\": 80}", &options, NULL));
  host_call host = {.runtime = runtime, .code = -1};
  latch empty = LATCH_INIT;
  host.reply = host.finalized = empty;
  penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
  table.user_data = &host;
  table.finalizer = host_finalized;
  table.on_reply = host_reply;
  penstock_call *call = NULL;
  REQUIRE_OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, options, &table, &call, NULL));
  int turns = 0;
  while (latch_count(&host.finalized) == 0 && turns++ < 10000) {
    struct pollfd ready = {fd, POLLIN, 0};
    if (!CHECK_INT(poll(&ready, 1, test_patience_ms()), 1)) break;
    OK(penstock_runtime_poll(runtime, 0));
  }
  CHECK_INT(host.code, PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  /* The descriptor does not cause a busy loop. */
  CHECK(turns < 1000);
  penstock_call_release(call);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  penstock_runtime_release(runtime);
}

TEST(runtime_host_fd_is_quiet_without_work) {
  penstock_runtime *runtime = new_runtime("{\"mode\": \"host\"}");
  int fd = -1;
  REQUIRE_OK(penstock_runtime_fd(runtime, &fd));
  penstock_channel *channel = open_channel_on(runtime);
  check_echo(channel);
  int quiet = 0;
  for (int i = 0; i < 100 && !quiet; i++) {
    OK(penstock_runtime_poll(runtime, 0));
    struct pollfd ready = {fd, POLLIN, 0};
    quiet = poll(&ready, 1, 0) == 0;
  }
  CHECK(quiet);
  penstock_channel_release(channel);
  penstock_runtime_release(runtime);
}

TEST(runtime_host_blocking_calls_drive_it) {
  penstock_runtime *runtime = new_runtime("{\"mode\": \"host\"}");
  penstock_channel *channel = open_channel_on(runtime);
  for (int i = 0; i < 10; i++) check_echo(channel);
  penstock_channel_release(channel);
  penstock_runtime_release(runtime);
}

/* The last release ends the runtime, and nobody polls it any more: an idle connection is freed all the same. */
TEST(runtime_host_released_with_an_idle_connection) {
  static const char *const options[] = {"{\"tls\": false, \"protocol\": \"connect\", \"http\": \"1.1\"}",
                                        "{\"tls\": false, \"protocol\": \"connect\", \"http\": \"2\"}"};
  for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
    penstock_runtime *runtime = new_runtime("{\"mode\": \"host\"}");
    penstock_channel *channel = NULL;
    REQUIRE_OK(penstock_channel_new_on(runtime, peer_address(), options[i], &channel, NULL));
    penstock_reply *reply = NULL;
    if (OK(penstock_channel_unary(channel, UNARY, "ping", 4, NULL, &reply, NULL))) penstock_reply_release(reply);
    penstock_channel_release(channel);
    penstock_runtime_release(runtime);
  }
}

/* A shutdown ends what would need further polls: a call under way, and a channel that closes. */
TEST(runtime_host_shutdown_ends_what_is_left) {
  for (int closes = 0; closes < 2; closes++) {
    penstock_runtime *runtime = new_runtime("{\"mode\": \"host\"}");
    penstock_channel *channel = open_channel_on(runtime);
    check_echo(channel);
    penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
    if (closes) OK(penstock_channel_close(channel));
    penstock_call_release(call);
    penstock_channel_release(channel);
    OK(penstock_runtime_shutdown(runtime, 0));
    penstock_runtime_release(runtime);
  }
}

typedef struct poller {
  penstock_runtime *runtime;
  latch entered, left;
  penstock_result result;
} poller;
static void *poll_forever(void *pointer) {
  poller *poller = pointer;
  latch_signal(&poller->entered);
  poller->result = penstock_runtime_poll(poller->runtime, -1);
  latch_signal(&poller->left);
  return NULL;
}

TEST(runtime_two_polls) {
  penstock_runtime *runtime = new_runtime("{\"mode\": \"host\"}");
  penstock_channel *channel = open_channel_on(runtime);
  for (int i = 0; i < 10; i++) OK(penstock_runtime_poll(runtime, 0));
  poller poller = {runtime, LATCH_INIT, LATCH_INIT, -1};
  pthread_t thread;
  pthread_create(&thread, NULL, poll_forever, &poller);
  latch_wait(&poller.entered, 1);
  EVENTUALLY(penstock_runtime_poll(runtime, 0) == PENSTOCK_E_BUSY);
  CHECK_RESULT(penstock_runtime_poll(runtime, 20), PENSTOCK_E_TIMEOUT);
  CHECK_INT(latch_count(&poller.left), 0);
  /* New work ends the other thread's poll. */
  host_call call;
  start_host_call(&call, runtime, channel);
  latch_wait(&poller.left, 1);
  CHECK_RESULT(poller.result, PENSTOCK_OK);
  pthread_join(thread, NULL);
  while (latch_count(&call.finalized) == 0) {
    if (!OK(penstock_runtime_poll(runtime, 10000))) break;
  }
  penstock_channel_release(channel);
  penstock_runtime_release(runtime);
}

/* A blocking call works whether or not another thread polls. */
TEST(runtime_host_poll_and_blocking_calls) {
  penstock_runtime *runtime = new_runtime("{\"mode\": \"host\"}");
  penstock_channel *channel = open_channel_on(runtime);
  for (int i = 0; i < test_rounds(20); i++) {
    poller poller = {runtime, LATCH_INIT, LATCH_INIT, -1};
    pthread_t thread;
    pthread_create(&thread, NULL, poll_forever, &poller);
    latch_wait(&poller.entered, 1);
    check_echo(channel);
    /* The poll makes one turn of the loop, with work or without. A new call gives it work. */
    host_call call;
    start_host_call(&call, runtime, channel);
    latch_wait(&poller.left, 1);
    pthread_join(thread, NULL);
    while (latch_count(&call.finalized) == 0) {
      if (!OK(penstock_runtime_poll(runtime, 10000))) break;
    }
  }
  penstock_channel_release(channel);
  penstock_runtime_release(runtime);
}
