/* Large messages in frames of every kind: a server in this test cuts several streams into frames of any length, puts
 * other frames between them, pads some, and may end in the middle. Every byte that the client gets has to be right. */
#include "calls.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STREAMS = 4, MESSAGES = 4, LIMIT = 4 << 20 };
enum { DATA = 0, HEADERS = 1, PRIORITY = 2, RST_STREAM = 3, SETTINGS = 4, PING = 6, WINDOW_UPDATE = 8, UNKNOWN = 0xFA };
enum { END_STREAM = 1, ACK = 1, END_HEADERS = 4, PADDED = 8 };

/* The fault by which the first stream, or the connection, ends early. */
typedef enum fault { NONE, RESET, END, TRAILERS, TOO_LARGE, BAD_FLAG, CANCEL, CUT, TOO_LONG, FAULTS } fault;

typedef struct stream {
  int number;
  size_t sizes[MESSAGES];
  int messages;
  /* The messages of the stream with their prefixes, before they are cut into frames; `sent` of these `size` bytes are in
   * frames so far. */
  uint8_t *body;
  size_t size, sent;
  bool has_begun, has_ended;
  uint32_t id;
  /* The messages that the client has got. */
  int received;
  int32_t code;
  bool cancels;
  latch done;
} stream;

typedef struct story {
  stream streams[STREAMS];
  int count;
  fault fault;
  /* The position in the body of the first stream at which a frame with the fault comes; beyond the body: none comes. */
  size_t fault_at;
  uint8_t *wire;
  size_t size, room;
  int listener;
  uint16_t port;
} story;

static uint8_t byte_of(int stream, int message, size_t at) {
  return (uint8_t)(at * 131 + (at >> 8) * 7 + (size_t)stream * 29 + (size_t)message * 57);
}

/* ---- The server ---- */

static void put(story *self, const void *bytes, size_t count) {
  if (self->size + count > self->room) {
    self->room = (self->size + count) * 2;
    self->wire = realloc(self->wire, self->room);
    if (!self->wire) abort();
  }
  if (count > 0) memcpy(self->wire + self->size, bytes, count);
  self->size += count;
}

static void put_header(story *self, size_t length, int type, int flags, uint32_t id) {
  uint8_t header[9] = {(uint8_t)(length >> 16), (uint8_t)(length >> 8), (uint8_t)length,
                       (uint8_t)type,           (uint8_t)flags,         (uint8_t)(id >> 24),
                       (uint8_t)(id >> 16),     (uint8_t)(id >> 8),     (uint8_t)id};
  put(self, header, sizeof(header));
}

static void put_frame(story *self, int type, int flags, uint32_t id, const void *payload, size_t length) {
  put_header(self, length, type, flags, id);
  put(self, payload, length);
}

static void put_head(story *self, stream *one) {
  /* ":status: 200" as an index of HPACK's static table, and "content-type: application/grpc" with a name of that
   * table. */
  put_frame(self, HEADERS, END_HEADERS, one->id,
            "\x88\x0f\x10\x10"
            "application/grpc",
            20);
  one->has_begun = true;
}

static void put_trailers(story *self, stream *one) {
  put_frame(self, HEADERS, END_HEADERS | END_STREAM, one->id,
            "\0\x0bgrpc-status\x01"
            "0",
            15);
  one->has_ended = true;
}

static void put_data(story *self, stream *one, size_t count, int flags) {
  if (test_random(12) == 0) {
    uint8_t length = (uint8_t)test_random(256), padding[255] = {0};
    put_header(self, count + 1 + length, DATA, flags | PADDED, one->id);
    put(self, &length, 1);
    put(self, one->body + one->sent, count);
    put(self, padding, length);
  } else {
    put_frame(self, DATA, flags, one->id, one->body + one->sent, count);
  }
  one->sent += count;
}

/* Puts a frame that carries no part of a message: PING, SETTINGS, WINDOW_UPDATE, PRIORITY, or a frame of an unknown
 * type. */
static void put_other(story *self, const stream *one) {
  static const uint8_t bytes[100] = {0, 0, 0, 1};
  switch (test_random(6)) {
  case 0:
    put_frame(self, PING, 0, 0, bytes, 8);
    break;
  case 1:
    put_frame(self, SETTINGS, 0, 0, NULL, 0);
    break;
  case 2:
    put_frame(self, WINDOW_UPDATE, 0, 0, bytes, 4);
    break;
  case 3:
    put_frame(self, WINDOW_UPDATE, 0, one->id, bytes, 4);
    break;
  case 4:
    put_frame(self, PRIORITY, 0, one->id, bytes + 4, 5);
    break;
  default:
    put_frame(self, UNKNOWN, (int)test_random(256), one->id, bytes, test_random(sizeof(bytes)));
  }
}

static void put_fault(story *self, stream *one) {
  static const uint8_t cancel[4] = {0, 0, 0, 8};
  switch (self->fault) {
  case RESET:
    put_frame(self, RST_STREAM, 0, one->id, cancel, 4);
    break;
  case END:
    put_data(self, one, 0, END_STREAM);
    break;
  case TRAILERS:
    put_trailers(self, one);
    break;
  case TOO_LONG:
    put_header(self, (64 << 10) + 1, DATA, 0, one->id);
    break;
  default:
    return;
  }
  one->has_ended = true;
}

/* Gives the length of the next DATA frame: `usual`, as most servers send frames of one length, or in `odd` of 100 cases
 * another length. */
static size_t next_length(size_t usual, uint32_t odd) {
  static const size_t some[] = {0, 1, 9, 4095, 4096, 4097, 16384, 65280};
  if (test_random(100) >= odd) return usual;
  return test_random(2) ? some[test_random(8)] : test_random(65281);
}

static void compose(story *self) {
  static const size_t lengths[] = {4096, 5000, 16384, 16384, 32768, 65000, 65280};
  size_t usual = lengths[test_random(7)];
  uint32_t odd = test_random(2) ? test_random(60) : 0, noise = test_random(2) ? test_random(30) : 0;
  uint32_t turns = self->count > 1 ? test_random(60) : 0;
  bool ends_with_message = test_random(2);
  stream *one = &self->streams[0];
  for (int left = self->count; left > 0;) {
    if (one->has_ended || test_random(100) < turns) {
      do one = &self->streams[test_random((uint32_t)self->count)];
      while (one->has_ended);
    }
    if (!one->has_begun) put_head(self, one);
    if (test_random(100) < noise) put_other(self, one);
    size_t length = next_length(usual, odd), end = one->size;
    if (ends_with_message) {
      end = 0;
      for (int i = 0; end <= one->sent && i < one->messages; i++) end += 5 + one->sizes[i];
    }
    if (one == self->streams && one->sent < self->fault_at && end > self->fault_at) end = self->fault_at;
    if (length > end - one->sent) length = end - one->sent;
    put_data(self, one, length, 0);
    if (one == self->streams && one->sent == self->fault_at) put_fault(self, one);
    if (!one->has_ended && one->sent == one->size) put_trailers(self, one);
    if (one->has_ended) left--;
    if (self->fault == TOO_LONG && one->has_ended && one == self->streams) return;
  }
}

static bool read_all(int fd, uint8_t *bytes, size_t count) {
  for (size_t have = 0; have < count;) {
    ssize_t n = recv(fd, bytes + have, count - have, 0);
    if (n <= 0) return false;
    have += (size_t)n;
  }
  return true;
}

/* Answers the client's SETTINGS with SETTINGS and an ACK, and reads until the client has ended its side of each
 * stream. */
static bool greet(story *self, int fd) {
  uint8_t bytes[70000];
  if (!read_all(fd, bytes, 24)) return false;
  for (int opened = 0, ended = 0; ended < self->count;) {
    if (!read_all(fd, bytes, 9)) return false;
    size_t length = (size_t)bytes[0] << 16 | (size_t)bytes[1] << 8 | bytes[2];
    uint32_t id = (uint32_t)bytes[5] << 24 | (uint32_t)bytes[6] << 16 | (uint32_t)bytes[7] << 8 | bytes[8];
    int type = bytes[3], flags = bytes[4];
    if (length > sizeof(bytes) || !read_all(fd, bytes, length)) return false;
    if (type == HEADERS) self->streams[opened++].id = id;
    if ((type == HEADERS || type == DATA) && (flags & END_STREAM)) ended++;
    if (type == SETTINGS && !(flags & ACK)) {
      static const uint8_t hello[18] = {0, 0, 0, SETTINGS, 0, 0, 0, 0, 0, 0, 0, 0, SETTINGS, ACK};
      if (send(fd, hello, sizeof(hello), MSG_NOSIGNAL) != sizeof(hello)) return false;
    }
  }
  return true;
}

static void *serve(void *argument) {
  story *self = argument;
  int fd = accept(self->listener, NULL, NULL);
  if (fd < 0 || !greet(self, fd)) abort();
  compose(self);
  size_t size = self->size;
  if (self->fault == CUT) size = test_random((uint32_t)size);
  size_t most = test_random(3) ? size + 1 : 1 + test_random(100000);
  for (size_t sent = 0; sent < size;) {
    size_t part = size - sent < most ? size - sent : most;
    ssize_t n = send(fd, self->wire + sent, part, MSG_NOSIGNAL);
    if (n <= 0) break;
    sent += (size_t)n;
  }
  /* If the server closed with unread input, the connection would be reset, and bytes on their way would be lost. */
  if (self->fault == CUT) shutdown(fd, SHUT_WR);
  uint8_t bytes[4096];
  while (recv(fd, bytes, sizeof(bytes), 0) > 0) continue;
  close(fd);
  return NULL;
}

static void listen_for(story *self) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof(address);
  self->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (self->listener < 0 || bind(self->listener, (struct sockaddr *)&address, size) || listen(self->listener, 1) ||
      getsockname(self->listener, (struct sockaddr *)&address, &size)) {
    abort();
  }
  self->port = ntohs(address.sin_port);
}

/* ---- The client ---- */

static void take(penstock_call *call, penstock_message *message, void *user_data) {
  stream *self = user_data;
  size_t size = 0;
  const uint8_t *bytes = penstock_message_bytes(message, &size);
  if (self->received < self->messages && CHECK_INT(size, self->sizes[self->received])) {
    size_t at = 0;
    while (at < size && bytes[at] == byte_of(self->number, self->received, at)) at++;
    CHECK_INT(at, size);
  }
  self->received++;
  if (self->cancels && self->received == 1) OK(penstock_call_cancel(call, "enough"));
}

static void finish(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  stream *self = user_data;
  self->code = penstock_reply_code(reply);
  latch_signal(&self->done);
}

static penstock_call *open_stream(penstock_channel *channel, stream *self) {
  penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
  callbacks.user_data = self;
  callbacks.on_message = take;
  callbacks.on_reply = finish;
  penstock_call *call = NULL;
  OK(penstock_channel_call(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM, NULL, &callbacks, &call, NULL));
  OK(penstock_call_demand(call, MESSAGES + 1));
  OK(penstock_call_try_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  return call;
}

static size_t random_size(void) {
  static const size_t some[] = {0, 1, 4090, 4096, 16379, 65275, 65280, 1 << 20};
  if (test_random(4) == 0) return some[test_random(8)];
  return test_random(8) ? test_random(300000) : test_random(3 << 20);
}

static void fill(stream *self) {
  self->messages = 1 + (int)test_random(MESSAGES);
  for (int i = 0; i < self->messages; i++) {
    self->sizes[i] = random_size();
    self->size += 5 + self->sizes[i];
  }
  uint8_t *at = self->body = malloc(self->size);
  if (!at) abort();
  for (int i = 0; i < self->messages; i++) {
    size_t size = self->sizes[i];
    const uint8_t prefix[5] = {0, (uint8_t)(size >> 24), (uint8_t)(size >> 16), (uint8_t)(size >> 8), (uint8_t)size};
    memcpy(at, prefix, sizeof(prefix));
    at += sizeof(prefix);
    for (size_t k = 0; k < size; k++) *at++ = byte_of(self->number, i, k);
  }
  pthread_mutex_init(&self->done.mutex, NULL);
  pthread_cond_init(&self->done.changed, NULL);
}

/* Puts a fault into the first stream; gives the number of its messages that still arrive. */
static int spoil(story *self) {
  stream *first = &self->streams[0];
  int last = first->messages - 1;
  size_t start = first->size - first->sizes[last] - 5;
  self->fault_at = first->size + 1;
  switch (self->fault) {
  case RESET:
  case END:
  case TRAILERS:
  case TOO_LONG:
    /* The fault comes within the last message or its prefix. */
    self->fault_at = start + 1 + test_random((uint32_t)(first->sizes[last] + 4));
    return last;
  case TOO_LARGE:
    memcpy(first->body + start + 1, "\x40\0\0\x01", 4);
    return last;
  case BAD_FLAG:
    first->body[start] = 2;
    return last;
  case CANCEL:
    first->cancels = true;
    return 1;
  default:
    return first->messages;
  }
}

static void check_ends(const story *self, int expected) {
  static const int32_t codes[FAULTS] = {[NONE] = PENSTOCK_STATUS_OK,
                                        [RESET] = PENSTOCK_STATUS_CANCELLED,
                                        [END] = PENSTOCK_STATUS_INTERNAL,
                                        [TRAILERS] = PENSTOCK_STATUS_INTERNAL,
                                        [TOO_LARGE] = PENSTOCK_STATUS_RESOURCE_EXHAUSTED,
                                        [BAD_FLAG] = PENSTOCK_STATUS_INTERNAL,
                                        [TOO_LONG] = PENSTOCK_STATUS_INTERNAL};
  for (int i = 0; i < self->count; i++) {
    const stream *one = &self->streams[i];
    bool is_lost = self->fault == CUT || (self->fault == TOO_LONG && i > 0), cancels = one->cancels;
    /* The call that cancels in its first on_message gets no further message. */
    if (cancels) CHECK_INT(one->received, 1);
    if ((is_lost || cancels) && one->code == PENSTOCK_STATUS_OK) {
      /* The call had ended before the fault or the cancel. */
      if (!cancels) CHECK_INT(one->received, one->messages);
    } else if (is_lost) {
      CHECK_INT(one->code, PENSTOCK_STATUS_UNAVAILABLE);
    } else if (cancels) {
      CHECK_INT(one->code, PENSTOCK_STATUS_CANCELLED);
    } else {
      CHECK_INT(one->code, i == 0 ? codes[self->fault] : PENSTOCK_STATUS_OK);
      CHECK_INT(one->received, i == 0 ? expected : one->messages);
    }
  }
}

static void play(fault fault) {
  story self = {.fault = fault, .count = 1 + (int)test_random(STREAMS)};
  for (int i = 0; i < self.count; i++) {
    self.streams[i].number = i;
    fill(&self.streams[i]);
  }
  int expected = spoil(&self);
  listen_for(&self);
  char target[64], options[160];
  snprintf(target, sizeof(target), "127.0.0.1:%d", self.port);
  snprintf(options, sizeof(options),
           "{\"tls\": false, \"initial_stream_window_bytes\": %d, \"initial_connection_window_bytes\": %d}", 64 << 20,
           256 << 20);
  pthread_t server;
  if (pthread_create(&server, NULL, serve, &self) != 0) abort();
  penstock_channel *channel = NULL;
  OK(penstock_channel_new(target, options, &channel, NULL));
  penstock_call *calls[STREAMS];
  for (int i = 0; i < self.count; i++) calls[i] = open_stream(channel, &self.streams[i]);
  for (int i = 0; i < self.count; i++) {
    latch_wait(&self.streams[i].done, 1);
    penstock_call_release(calls[i]);
  }
  check_ends(&self, expected);
  penstock_channel_close(channel);
  penstock_channel_release(channel);
  pthread_join(server, NULL);
  close(self.listener);
  for (int i = 0; i < self.count; i++) free(self.streams[i].body);
  free(self.wire);
}

TEST(frames_of_every_kind) {
  for (int i = test_rounds(60); i > 0; i--) play(NONE);
}

TEST(frames_end_in_the_middle) {
  for (int i = test_rounds(10); i > 0; i--) {
    for (fault fault = RESET; fault < FAULTS; fault++) play(fault);
  }
}
