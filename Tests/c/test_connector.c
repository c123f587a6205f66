/* connector.h: a connector of the program (docs/channel.md). */
#include "dialer.h"

/* Checks that a call ends with UNAVAILABLE and these words. */
static void check_unavailable(penstock_channel *channel, const char *words) {
  penstock_reply *reply = NULL;
  OK(penstock_channel_unary(channel, UNARY, "x", 1, NULL, &reply, NULL));
  CHECK_INT(reply ? penstock_reply_code(reply) : -1, PENSTOCK_STATUS_UNAVAILABLE);
  CHECK_HAS(reply ? penstock_reply_status_json(reply) : "", words);
  penstock_reply_release(reply);
}

TEST(connector_gives_a_connected_socket) {
  dialer self = DIALER(give);
  penstock_channel *channel = open_with(&self, peer_address(), "{\"tls\": false}");
  check_echo(channel);
  check_echo(channel);
  CHECK_INT(latch_count(&self.asked), 1);
  CHECK_STR(self.address, peer_address());
  CHECK_STR(self.target, peer_address());
  char place[64];
  snprintf(place, sizeof(place), "127.0.0.1:%d", ntohs(self.place.sin_port));
  CHECK_STR(place, peer_address());
  close_with(&self, channel);
  CHECK_INT(latch_count(&self.cancelled), 0);
}

TEST(connector_under_tls) {
  dialer self = DIALER(give);
  penstock_channel *channel = open_tls_channel(true);
  set_connector(channel, &self);
  check_echo(channel);
  CHECK_INT(latch_count(&self.asked), 1);
  close_with(&self, channel);
}

static void *answer_later(void *argument) {
  dialer *self = argument;
  latch_wait(&self->asked, 1);
  test_pause();
  OK(penstock_connecting_socket(self->kept, connected(self), NULL));
  penstock_connecting_release(self->kept);
  return NULL;
}

TEST(connector_answers_from_a_thread) {
  dialer self = DIALER(keep);
  penstock_channel *channel = open_with(&self, peer_address(), "{\"tls\": false}");
  pthread_t thread;
  REQUIRE(pthread_create(&thread, NULL, answer_later, &self) == 0);
  check_echo(channel);
  pthread_join(thread, NULL);
  close_with(&self, channel);
}

TEST(connector_lets_the_library_connect) {
  dialer self = DIALER(decline), other = DIALER(give);
  penstock_channel *channel = open_with(&self, peer_address(), "{\"tls\": false}");
  check_echo(channel);
  CHECK_INT(latch_count(&self.asked), 1);
  /* Another connector, and none: the connection stays. */
  set_connector(channel, &other);
  latch_wait(&self.finalized, 1);
  check_echo(channel);
  OK(penstock_channel_set_connector(channel, NULL, NULL));
  latch_wait(&other.finalized, 1);
  check_echo(channel);
  CHECK_INT(latch_count(&self.asked), 1);
  CHECK_INT(latch_count(&other.asked), 0);
  penstock_channel_release(channel);
}

static void fail_then_give(dialer *self, penstock_connecting *connecting) {
  if (latch_count(&self->asked) < 2) {
    OK(penstock_connecting_fail(connecting, "no road today"));
  } else {
    give(self, connecting);
  }
}

#define SOON "{\"tls\": false, \"max_connections\": 1, \"initial_backoff_ms\": 10, \"max_backoff_ms\": 10}"

TEST(connector_fails_and_is_asked_again) {
  dialer self = DIALER(fail_then_give);
  penstock_channel *channel = open_with(&self, peer_address(), SOON);
  check_unavailable(channel, "the connector has failed: no road today");
  EVENTUALLY(unary_code(channel, "x") == PENSTOCK_STATUS_OK);
  CHECK_INT(latch_count(&self.asked), 3);
  close_with(&self, channel);
}

TEST(connector_that_forgets_to_answer) {
  dialer self = DIALER(forget);
  penstock_channel *channel = open_with(&self, peer_address(), SOON);
  check_unavailable(channel, "the connector has given no socket");
  close_with(&self, channel);
  CHECK_INT(latch_count(&self.cancelled), 0);
}

static void refuse_one(penstock_connecting *connecting, int descriptor, const char *words) {
  penstock_error *error = NULL;
  CHECK_RESULT(penstock_connecting_socket(connecting, descriptor, &error), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_ERROR(error, PENSTOCK_E_INVALID_ARGUMENT, NULL, words);
  /* It is still the caller's. */
  if (descriptor >= 0) CHECK(close(descriptor) == 0);
}

static void give_wrong_ones(dialer *self, penstock_connecting *connecting) {
  (void)self;
  int pipes[2];
  CHECK(pipe(pipes) == 0);
  refuse_one(connecting, -1, "descriptor -1 is not open");
  refuse_one(connecting, pipes[0], "is not a socket");
  refuse_one(connecting, pipes[1], "is not a socket");
  refuse_one(connecting, socket(AF_INET, SOCK_DGRAM, 0), "is not a stream socket");
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(listen(listener, 1) == 0);
  refuse_one(connecting, listener, "is a socket that is not connected");
  refuse_one(connecting, socket(AF_INET, SOCK_STREAM, 0), "is a socket that is not connected");
}

static void give_after_wrong_ones(dialer *self, penstock_connecting *connecting) {
  give_wrong_ones(self, connecting);
  give(self, connecting);
  penstock_error *error = NULL;
  int again = connected(self);
  CHECK_RESULT(penstock_connecting_socket(connecting, again, &error), PENSTOCK_E_ALREADY);
  CHECK_ERROR(error, PENSTOCK_E_ALREADY, NULL, "has answered before");
  CHECK(close(again) == 0);
  CHECK_RESULT(penstock_connecting_decline(connecting), PENSTOCK_E_ALREADY);
  CHECK_RESULT(penstock_connecting_fail(connecting, NULL), PENSTOCK_E_ALREADY);
}

TEST(connector_that_gives_no_sockets) {
  dialer self = DIALER(give_wrong_ones), other = DIALER(give_after_wrong_ones);
  penstock_channel *channel = open_with(&self, peer_address(), SOON);
  check_unavailable(channel, "the connector has given no socket: descriptor ");
  check_unavailable(channel, "is a socket that is not connected");
  set_connector(channel, &other);
  latch_wait(&self.finalized, 1);
  EVENTUALLY(unary_code(channel, "x") == PENSTOCK_STATUS_OK);
  close_with(&other, channel);
}

/* A socket whose other end is closed: the connection fails, and the next one is asked for. */
static void give_closed(dialer *self, penstock_connecting *connecting) {
  int ends[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  close(ends[1]);
  OK(penstock_connecting_socket(connecting, ends[0], NULL));
  self->answer = give;
}

TEST(connector_is_asked_after_a_loss) {
  dialer self = DIALER(give_closed);
  penstock_channel *channel = open_with(&self, peer_address(), SOON);
  EVENTUALLY(unary_code(channel, "x") == PENSTOCK_STATUS_OK);
  CHECK_INT(latch_count(&self.asked), 2);
  close_with(&self, channel);
}

static void check_too_late(dialer *self) {
  int late = connected(self);
  penstock_error *error = NULL;
  CHECK_RESULT(penstock_connecting_socket(self->kept, late, &error), PENSTOCK_E_GONE);
  CHECK_ERROR(error, PENSTOCK_E_GONE, NULL, "nobody waits");
  CHECK(close(late) == 0);
  CHECK_RESULT(penstock_connecting_decline(self->kept), PENSTOCK_E_GONE);
  CHECK_RESULT(penstock_connecting_fail(self->kept, "late"), PENSTOCK_E_GONE);
  CHECK_STR(penstock_connecting_address(self->kept), self->address);
  penstock_connecting_release(self->kept);
}

TEST(connector_that_never_answers) {
  dialer self = DIALER(keep);
  penstock_channel *channel = open_with(&self, peer_address(),
                                        "{\"tls\": false, \"initial_backoff_ms\": 600000, \"max_backoff_ms\": 600000, "
                                        "\"connect_timeout_ms\": 30}");
  check_unavailable(channel, "connect timeout: the connector has not answered");
  latch_wait(&self.cancelled, 1);
  check_too_late(&self);
  close_with(&self, channel);
  CHECK_INT(latch_count(&self.cancelled), 1);
}

TEST(connector_asked_when_the_channel_closes) {
  dialer self = DIALER(keep);
  penstock_channel *channel = open_with(&self, peer_address(), "{\"tls\": false}");
  OK(penstock_channel_connect(channel));
  latch_wait(&self.asked, 1);
  OK(penstock_channel_close(channel));
  latch_wait(&self.cancelled, 1);
  latch_wait(&self.finalized, 1);
  check_too_late(&self);
  penstock_connector_functions functions = PENSTOCK_CONNECTOR_FUNCTIONS_INIT;
  functions.user_data = &self;
  functions.finalizer = on_end;
  functions.connect = on_connect;
  penstock_error *error = NULL;
  CHECK_RESULT(penstock_channel_set_connector(channel, &functions, &error), PENSTOCK_E_CLOSED);
  CHECK_ERROR(error, PENSTOCK_E_CLOSED, NULL, "has been closed");
  latch_wait(&self.finalized, 2);
  penstock_channel_release(channel);
}

/* Threads answer while channels close: each descriptor is closed once, by the library or by its owner. */
static void *answer_at_the_end(void *argument) {
  dialer *self = argument;
  latch_wait(&self->asked, 1);
  int descriptor = connected(self);
  if (penstock_connecting_socket(self->kept, descriptor, NULL) != PENSTOCK_OK) CHECK(close(descriptor) == 0);
  penstock_connecting_release(self->kept);
  return NULL;
}

TEST(connector_answers_while_channels_close) {
  penstock_channel *first = open_channel();
  check_echo(first);
  int before = open_descriptors();
  for (int i = 0; i < 50; i++) {
    dialer self = DIALER(keep);
    penstock_channel *channel = open_with(&self, peer_address(), "{\"tls\": false}");
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, answer_at_the_end, &self) == 0);
    OK(penstock_channel_connect(channel));
    latch_wait(&self.asked, 1);
    close_with(&self, channel);
    pthread_join(thread, NULL);
  }
  EVENTUALLY(open_descriptors() <= before);
  penstock_channel_release(first);
}

TEST(connector_of_http1) {
  dialer self = DIALER(give);
  penstock_channel *channel =
      open_with(&self, peer_address(), "{\"tls\": false, \"protocol\": \"connect\", \"http\": \"1.1\"}");
  check_echo(channel);
  CHECK_INT(latch_count(&self.asked), 1);
  close_with(&self, channel);
}
