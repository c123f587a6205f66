/* Small messages that wait together leave in one DATA frame, in order, in every style. The test's own server sends
 * nothing until the test tells it to, so that all messages are queued by then. Then it reads the messages, and answers
 * their end with OK. */
#include "calls.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

enum { DATA = 0, HEADERS = 1, SETTINGS = 4, WINDOW_UPDATE = 8 };
enum { END_STREAM = 1, ACK = 1, END_HEADERS = 4 };
enum { COUNT = 200, BYTES = 60000 };

typedef struct server {
  int listener;
  char target[64];
  pthread_t thread;
  /* Signalled when the server may begin. */
  latch go;
  /* The DATA frames that the server has received: their number, the flags of the last one, and their bytes. `credit`
   * counts the WINDOW_UPDATE frames of the connection. */
  int frames, last_flags, credit;
  uint8_t body[BYTES];
  size_t size;
} server;

static void put(int fd, int type, int flags, uint32_t id, const void *payload, size_t length) {
  uint8_t frame[64] = {0, 0, (uint8_t)length, (uint8_t)type, (uint8_t)flags, 0, 0, 0, (uint8_t)id};
  if (length > 0) memcpy(frame + 9, payload, length);
  CHECK_INT(send(fd, frame, 9 + length, MSG_NOSIGNAL), 9 + length);
}

static bool read_all(int fd, void *bytes, size_t count) {
  return count == 0 || recv(fd, bytes, count, MSG_WAITALL) == (ssize_t)count;
}

static void note(server *self, int type, int flags, uint32_t id, const uint8_t *payload, size_t length) {
  if (type == WINDOW_UPDATE && id == 0) self->credit++;
  if (type != DATA || length > BYTES - self->size) return;
  self->frames++;
  self->last_flags = flags;
  memcpy(self->body + self->size, payload, length);
  self->size += length;
}

static void *serve(void *argument) {
  server *self = argument;
  static uint8_t bytes[70000];
  int fd = accept(self->listener, NULL, NULL);
  bool is_open = fd >= 0 && read_all(fd, bytes, 24);
  CHECK(is_open);
  latch_wait(&self->go, 1);
  put(fd, SETTINGS, 0, 0, NULL, 0);
  while (is_open && read_all(fd, bytes, 9)) {
    size_t length = (size_t)bytes[0] << 16 | (size_t)bytes[1] << 8 | bytes[2];
    int type = bytes[3], flags = bytes[4];
    uint32_t id = bytes[8];
    if (!read_all(fd, bytes, length)) break;
    note(self, type, flags, id, bytes, length);
    if (type == SETTINGS && !(flags & ACK)) put(fd, SETTINGS, ACK, 0, NULL, 0);
    if (type > HEADERS || !(flags & END_STREAM)) continue;
    put(fd, HEADERS, END_HEADERS, id,
        "\x88\x0f\x10\x10"
        "application/grpc",
        20);
    put(fd, HEADERS, END_HEADERS | END_STREAM, id,
        "\0\x0bgrpc-status\x01"
        "0",
        15);
  }
  close(fd);
  return NULL;
}

static bool start(server *self, penstock_channel **channel) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof(address);
  memset(self, 0, sizeof(*self));
  pthread_mutex_init(&self->go.mutex, NULL);
  pthread_cond_init(&self->go.changed, NULL);
  self->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (self->listener < 0 || bind(self->listener, (struct sockaddr *)&address, size) || listen(self->listener, 1) ||
      getsockname(self->listener, (struct sockaddr *)&address, &size)) {
    abort();
  }
  snprintf(self->target, sizeof(self->target), "127.0.0.1:%d", ntohs(address.sin_port));
  if (pthread_create(&self->thread, NULL, serve, self) != 0) abort();
  return OK(penstock_channel_new(self->target, "{\"tls\": false}", channel, NULL));
}

static void stop(server *self, penstock_channel *channel) {
  penstock_channel_close(channel);
  penstock_channel_release(channel);
  pthread_join(self->thread, NULL);
  close(self->listener);
}

/* Message `i` has `length_of(i)` bytes, each with the value `i`. */
static size_t length_of(int i) { return (size_t)(i % 3 == 0 ? 16 : i % 40); }

static const uint8_t *bytes_of(int i) {
  static _Thread_local uint8_t bytes[64];
  memset(bytes, i, sizeof(bytes));
  return bytes;
}

/* Checks that COUNT messages have come, in order, in one frame that ends the stream. */
static void check_body(const server *self) {
  CHECK_INT(self->frames, 1);
  CHECK_INT(self->last_flags, END_STREAM);
  size_t at = 0;
  for (int i = 0; i < COUNT; i++) {
    const uint8_t prefix[5] = {0, 0, 0, 0, (uint8_t)length_of(i)};
    REQUIRE(at + 5 + length_of(i) <= self->size);
    CHECK_INT(memcmp(self->body + at, prefix, 5), 0);
    CHECK_INT(memcmp(self->body + at + 5, bytes_of(i), length_of(i)), 0);
    at += 5 + length_of(i);
  }
  CHECK_INT(at, self->size);
}

static void send_all(penstock_call *call, penstock_result (*send)(penstock_call *, const void *, size_t)) {
  for (int i = 0; i < COUNT; i++) OK(send(call, bytes_of(i), length_of(i)));
  OK(penstock_call_half_close(call));
}

TEST(small_messages_leave_together_blocking_or_not) {
  for (int tries = 0; tries < 2; tries++) {
    static server server;
    penstock_channel *channel = NULL;
    if (!start(&server, &channel)) return;
    penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
    send_all(call, tries ? penstock_call_try_send : penstock_call_send);
    latch_signal(&server.go);
    CHECK_FINISH(call, PENSTOCK_STATUS_OK);
    penstock_call_release(call);
    stop(&server, channel);
    check_body(&server);
    /* For a bidi stream the client does not enlarge the connection's window. */
    CHECK_INT(server.credit, 0);
  }
}

typedef struct streamer {
  atomic_int sent;
  bool has_sent;
  latch ended;
} streamer;

/* The first message has gone; the messages that this callback sends leave after it has returned. */
static void send_rest(penstock_call *call, uint64_t count, void *user_data) {
  streamer *self = user_data;
  atomic_fetch_add(&self->sent, (int)count);
  if (self->has_sent) return;
  self->has_sent = true;
  send_all(call, penstock_call_try_send);
}

static void end(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  streamer *self = user_data;
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
  latch_signal(&self->ended);
}

/* Sends all but the first message from within a callback. */
TEST(small_messages_leave_together_from_a_callback) {
  static server server;
  penstock_channel *channel = NULL;
  if (!start(&server, &channel)) return;
  streamer streamer = {.ended = LATCH_INIT};
  penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
  callbacks.user_data = &streamer;
  callbacks.on_sent = send_rest;
  callbacks.on_reply = end;
  penstock_call *call = NULL;
  REQUIRE_OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, &callbacks, &call, NULL));
  OK(penstock_call_try_send(call, "", 0));
  latch_signal(&server.go);
  latch_wait(&streamer.ended, 1);
  penstock_call_release(call);
  stop(&server, channel);
  /* Each message is reported as sent when all of it has gone. */
  CHECK_INT(atomic_load(&streamer.sent), COUNT + 1);
  CHECK_INT(server.frames, 2);
  REQUIRE(server.size > 5);
  memmove(server.body, server.body + 5, server.size -= 5);
  server.frames--;
  check_body(&server);
}

/* A hop drops the caller's message, and sends COUNT messages instead. */
static int32_t inject(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_SEND) return PENSTOCK_NEXT;
  for (int i = 0; i < COUNT; i++) OK(penstock_hop_send(hop, bytes_of(i), length_of(i)));
  return PENSTOCK_DROP;
}

TEST(small_messages_leave_together_when_a_hop_injects_them) {
  static server server;
  penstock_channel *channel = NULL;
  if (!start(&server, &channel)) return;
  probe probe;
  probe_init_with(&probe, "injects", inject, NULL);
  CHECK(probe_add(&probe, channel, 0) != 0);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_call_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  latch_signal(&server.go);
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  penstock_call_release(call);
  stop(&server, channel);
  probe_wait_finalized(&probe);
  check_body(&server);
}

/* Each message is compressed separately and has its own prefix. */
TEST(small_messages_leave_together_compressed) {
  static server server;
  penstock_channel *channel = NULL;
  if (!start(&server, &channel)) return;
  penstock_call_options *options = options_of("{\"compression\": \"gzip\"}");
  penstock_call *call = NULL;
  OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, options, NULL, &call, NULL));
  penstock_call_options_release(options);
  for (int i = 0; i < COUNT; i++) OK(penstock_call_send(call, bytes_of(i), 64));
  OK(penstock_call_half_close(call));
  latch_signal(&server.go);
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  penstock_call_release(call);
  stop(&server, channel);
  CHECK_INT(server.frames, 1);
  CHECK_INT(server.last_flags, END_STREAM);
  size_t at = 0;
  for (int i = 0; i < COUNT; i++) {
    REQUIRE(at + 5 < server.size);
    CHECK_INT(server.body[at], 1);
    at += 5 + server.body[at + 4];
  }
  CHECK_INT(at, server.size);
}

/* A one-way stream gets the whole window at its start, by one WINDOW_UPDATE. */
TEST(small_a_stream_one_way_has_the_whole_window) {
  static server server;
  penstock_channel *channel = NULL;
  if (!start(&server, &channel)) return;
  penstock_call *call = start_call(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM);
  OK(penstock_call_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  latch_signal(&server.go);
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  penstock_call_release(call);
  stop(&server, channel);
  CHECK_INT(server.credit, 1);
  CHECK_INT(server.frames, 1);
}
