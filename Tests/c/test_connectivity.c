/* channel.h: the states of a channel, and when it connects (docs/channel.md). */
#include "test.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static penstock_channel *open_at(const char *target, const char *options) {
  penstock_channel *channel = NULL;
  OK(penstock_channel_new(target, options, &channel, NULL));
  return channel;
}

/* Waits until the channel's state is not `from`, and returns the new one. */
static int32_t state_after(penstock_channel *channel, int32_t from) {
  int32_t now = -1;
  penstock_result result;
  do {
    result = penstock_channel_wait_connectivity(channel, from, 20000, &now);
  } while (result == PENSTOCK_E_INTERRUPTED);
  OK(result);
  return now;
}

static int32_t code_of(penstock_channel *channel, const char *options) {
  penstock_call_options *parsed = NULL;
  penstock_reply *reply = NULL;
  OK(penstock_call_options_new(options, &parsed, NULL));
  OK(penstock_channel_unary(channel, UNARY, "x", 1, parsed, &reply, NULL));
  int32_t code = reply ? penstock_reply_code(reply) : -1;
  penstock_reply_release(reply);
  penstock_call_options_release(parsed);
  return code;
}

TEST(connectivity_without_a_call) {
  penstock_channel *channel = open_channel();
  CHECK_INT(penstock_channel_connectivity(channel), PENSTOCK_CONNECTIVITY_IDLE);
  int32_t now = -1;
  CHECK_RESULT(penstock_channel_wait_connectivity(channel, PENSTOCK_CONNECTIVITY_IDLE, 20, &now), PENSTOCK_E_TIMEOUT);
  CHECK_INT(now, -1);
  CHECK_RESULT(penstock_channel_wait_connectivity(channel, 5, 0, &now), PENSTOCK_E_INVALID_ARGUMENT);
  OK(penstock_channel_connect(channel));
  int32_t state = state_after(channel, PENSTOCK_CONNECTIVITY_IDLE);
  if (state == PENSTOCK_CONNECTIVITY_CONNECTING) state = state_after(channel, state);
  CHECK_INT(state, PENSTOCK_CONNECTIVITY_READY);
  OK(penstock_channel_connect(channel));
  check_echo(channel);
  OK(penstock_channel_close(channel));
  CHECK_INT(penstock_channel_connectivity(channel), PENSTOCK_CONNECTIVITY_SHUTDOWN);
  OK(penstock_channel_wait_connectivity(channel, PENSTOCK_CONNECTIVITY_READY, 0, NULL));
  CHECK_RESULT(penstock_channel_connect(channel), PENSTOCK_E_CLOSED);
  CHECK_RESULT(penstock_channel_reset_backoff(channel), PENSTOCK_E_CLOSED);
  penstock_channel_release(channel);
}

TEST(connectivity_of_a_dead_address) {
  penstock_channel *channel = open_at(dead_address(), "{\"tls\": false}");
  OK(penstock_channel_connect(channel));
  int32_t state = state_after(channel, PENSTOCK_CONNECTIVITY_IDLE);
  if (state == PENSTOCK_CONNECTIVITY_CONNECTING) state = state_after(channel, state);
  CHECK_INT(state, PENSTOCK_CONNECTIVITY_TRANSIENT_FAILURE);
  CHECK_INT(code_of(channel, "{}"), PENSTOCK_STATUS_UNAVAILABLE);
  CHECK_INT(code_of(channel, "{\"wait_for_ready\": true, \"deadline_ms\": 100}"), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  penstock_channel_release(channel);
  channel = open_at(dead_address(), "{\"tls\": false, \"wait_for_ready\": true}");
  CHECK_INT(code_of(channel, "{\"deadline_ms\": 100}"), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  CHECK_INT(code_of(channel, "{\"wait_for_ready\": false}"), PENSTOCK_STATUS_UNAVAILABLE);
  penstock_channel_release(channel);
}

/* Counts the connections that come, until none has come for `milliseconds`, and closes each connection at once. */
static int accepted(int listener, int milliseconds) {
  int count = 0;
  struct pollfd waiting = {.fd = listener, .events = POLLIN};
  while (poll(&waiting, 1, milliseconds) > 0) {
    close(accept(listener, NULL, NULL));
    count++;
  }
  return count;
}

/* The server hangs up, so the channel waits about a minute before it connects again: no call makes it connect earlier,
 * but penstock_channel_reset_backoff does. */
TEST(connectivity_attempts_are_few) {
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof(address);
  REQUIRE(!bind(listener, (struct sockaddr *)&address, size) && !listen(listener, 16) &&
          !getsockname(listener, (struct sockaddr *)&address, &size));
  char target[64];
  snprintf(target, sizeof(target), "127.0.0.1:%d", ntohs(address.sin_port));
  penstock_channel *channel = open_at(target, "{\"tls\": false, \"initial_backoff_ms\": 60000}");
  OK(penstock_channel_connect(channel));
  CHECK_INT(accepted(listener, 300), 1);
  CHECK_INT(penstock_channel_connectivity(channel), PENSTOCK_CONNECTIVITY_TRANSIENT_FAILURE);
  for (int i = 0; i < 100; i++) CHECK_INT(code_of(channel, "{}"), PENSTOCK_STATUS_UNAVAILABLE);
  CHECK_INT(accepted(listener, 50), 0);
  OK(penstock_channel_reset_backoff(channel));
  CHECK_INT(accepted(listener, 300), 1);
  penstock_channel_release(channel);
  close(listener);
}

typedef struct {
  penstock_channel *channel;
  int32_t seen;
} watcher;

static void *watch(void *argument) {
  watcher *self = argument;
  penstock_result result;
  /* Under valgrind a wait may be interrupted without a signal. */
  do {
    result = penstock_channel_wait_connectivity(self->channel, PENSTOCK_CONNECTIVITY_IDLE, -1, &self->seen);
  } while (result == PENSTOCK_E_INTERRUPTED);
  OK(result);
  return NULL;
}

TEST(connectivity_is_waited_for_by_many) {
  penstock_channel *channel = open_channel();
  watcher all[8];
  pthread_t threads[8];
  for (int i = 0; i < 8; i++) {
    all[i] = (watcher){.channel = channel, .seen = -1};
    pthread_create(&threads[i], NULL, watch, &all[i]);
  }
  OK(penstock_channel_connect(channel));
  for (int i = 0; i < 8; i++) {
    pthread_join(threads[i], NULL);
    CHECK(all[i].seen == PENSTOCK_CONNECTIVITY_CONNECTING || all[i].seen == PENSTOCK_CONNECTIVITY_READY);
  }
  penstock_channel_release(channel);
}

/* The states that a watch has got, in order. */
typedef struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int32_t told[32];
  int count;
  int32_t last; /* the watch ends after this state; -1: never */
  int finalized;
} record;

#define RECORD(LAST)                                                                                                   \
  { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .last = (LAST) }

static int32_t on_state(void *user_data, int32_t state) {
  record *self = user_data;
  pthread_mutex_lock(&self->lock);
  CHECK(!self->finalized && self->count < 32);
  self->told[self->count++ % 32] = state;
  pthread_cond_broadcast(&self->changed);
  pthread_mutex_unlock(&self->lock);
  return state != self->last;
}

static void on_end(void *user_data) {
  record *self = user_data;
  pthread_mutex_lock(&self->lock);
  self->finalized++;
  pthread_cond_broadcast(&self->changed);
  pthread_mutex_unlock(&self->lock);
}

/* Waits until the latest state of the watch is `state` (-1: until the watch is over). */
static void wait_told(record *self, int32_t state) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += 20;
  pthread_mutex_lock(&self->lock);
  int failed = 0;
  while (!failed && (state < 0 ? !self->finalized : !self->count || self->told[self->count - 1] != state)) {
    failed = pthread_cond_timedwait(&self->changed, &self->lock, &until);
  }
  CHECK_INT(failed, 0);
  pthread_mutex_unlock(&self->lock);
}

/* Checks that the watch never got the same state twice in a row. */
static void check_news(const record *self) {
  for (int i = 1; i < self->count; i++) CHECK(self->told[i] != self->told[i - 1]);
}

TEST(connectivity_is_watched) {
  record all = RECORD(-1), until_ready = RECORD(PENSTOCK_CONNECTIVITY_READY);
  penstock_channel *channel = open_channel();
  OK(penstock_channel_watch_connectivity(channel, on_state, &all, on_end));
  OK(penstock_channel_watch_connectivity(channel, on_state, &until_ready, on_end));
  wait_told(&all, PENSTOCK_CONNECTIVITY_IDLE);
  wait_told(&until_ready, PENSTOCK_CONNECTIVITY_IDLE);
  check_echo(channel);
  wait_told(&all, PENSTOCK_CONNECTIVITY_READY);
  wait_told(&until_ready, -1);
  CHECK_INT(until_ready.told[until_ready.count - 1], PENSTOCK_CONNECTIVITY_READY);
  OK(penstock_channel_close(channel));
  wait_told(&all, -1);
  CHECK_INT(all.told[all.count - 1], PENSTOCK_CONNECTIVITY_SHUTDOWN);
  check_news(&all);
  check_news(&until_ready);
  CHECK_INT(all.finalized, 1);
  CHECK_INT(until_ready.finalized, 1);
  CHECK_RESULT(penstock_channel_watch_connectivity(channel, on_state, &until_ready, on_end), PENSTOCK_E_CLOSED);
  CHECK_INT(until_ready.finalized, 2);
  penstock_channel_release(channel);
}

TEST(connectivity_is_watched_through_failures) {
  record all = RECORD(-1);
  penstock_channel *channel = open_at(dead_address(), "{\"tls\": false, \"initial_backoff_ms\": 20}");
  OK(penstock_channel_connect(channel));
  OK(penstock_channel_watch_connectivity(channel, on_state, &all, on_end));
  wait_told(&all, PENSTOCK_CONNECTIVITY_TRANSIENT_FAILURE);
  /* A release without a close closes the channel, too. */
  penstock_channel_release(channel);
  wait_told(&all, -1);
  CHECK_INT(all.told[all.count - 1], PENSTOCK_CONNECTIVITY_SHUTDOWN);
  check_news(&all);
}

typedef struct {
  penstock_channel *channel;
  record record;
} closer;

/* A function that watches may close its channel, and start another watch. */
static int32_t close_when_ready(void *user_data, int32_t state) {
  closer *self = user_data;
  if (state == PENSTOCK_CONNECTIVITY_READY) {
    CHECK_RESULT(penstock_channel_wait_connectivity(self->channel, state, 100, NULL), PENSTOCK_E_WOULD_DEADLOCK);
    OK(penstock_channel_watch_connectivity(self->channel, on_state, &self->record, on_end));
    OK(penstock_channel_close(self->channel));
  }
  return 1;
}

TEST(connectivity_watch_closes_the_channel) {
  closer self = {.record = RECORD(-1)};
  self.channel = open_channel();
  OK(penstock_channel_watch_connectivity(self.channel, close_when_ready, &self, NULL));
  OK(penstock_channel_connect(self.channel));
  wait_told(&self.record, -1);
  penstock_channel_release(self.channel);
}

static double cpu_seconds(void) {
  struct timespec used;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

static void *wait_for_ready(void *channel) {
  CHECK_INT(code_of(channel, "{\"wait_for_ready\": true, \"deadline_ms\": 600}"), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  return NULL;
}

static void *give_up_often(void *channel) {
  for (int i = 0; i < 50; i++) {
    CHECK_INT(code_of(channel, "{\"wait_for_ready\": true, \"deadline_ms\": 2}"), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  }
  return NULL;
}

/* Several threads make calls with short deadlines on a channel that can't connect; one of them drives the runtime. */
TEST(connectivity_calls_that_wait_are_given_up) {
  penstock_channel *channel = open_at(dead_address(), "{\"tls\": false, \"initial_backoff_ms\": 60000}");
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, give_up_often, channel);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  penstock_channel_release(channel);
}

/* While a call waits on a channel with a watch, the loop does not spin. */
TEST(connectivity_watch_of_a_channel_with_a_call_that_waits) {
  record all = RECORD(-1);
  penstock_channel *channel = open_at(dead_address(), "{\"tls\": false, \"initial_backoff_ms\": 60000}");
  OK(penstock_channel_watch_connectivity(channel, on_state, &all, on_end));
  pthread_t thread;
  double before = cpu_seconds();
  pthread_create(&thread, NULL, wait_for_ready, channel);
  pthread_join(thread, NULL);
  CHECK(cpu_seconds() - before < 0.4);
  penstock_channel_release(channel);
  wait_told(&all, -1);
  check_news(&all);
}
