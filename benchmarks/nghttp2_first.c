/* nghttp2_first: makes a first gRPC call with as little work as possible: a socket, nghttp2, one unary call, whose reply it
 * checks.
 *
 *   nghttp2_first --target HOST:PORT
 *
 * It is linked with the libraries that libpenstock needs (nghttp2, ssl, crypto, jansson, z), so that loading them costs
 * both programs the same.
 * Prints {"connect_and_call_us": X, "total_us": Y}: from main to the reply, and from the start of the process.
 */
#include "first_call.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <nghttp2/nghttp2.h>
#include <stdbool.h>
#include <sys/socket.h>

typedef struct first {
  int socket;
  uint8_t message[5 + FIRST_CALL_BYTES], reply[5 + FIRST_CALL_BYTES + 1];
  size_t sent, received;
  bool has_status, has_grpc_status, closed;
} first;

static void die(const char *why) {
  fprintf(stderr, "nghttp2_first: %s\n", why);
  exit(1);
}

static ssize_t on_send(nghttp2_session *session, const uint8_t *data, size_t length, int flags, void *user_data) {
  (void)session, (void)flags;
  ssize_t sent = send(((first *)user_data)->socket, data, length, MSG_NOSIGNAL);
  return sent < 0 ? NGHTTP2_ERR_CALLBACK_FAILURE : sent;
}

static ssize_t on_read(nghttp2_session *session, int32_t stream, uint8_t *buffer, size_t length, uint32_t *flags,
                       nghttp2_data_source *source, void *user_data) {
  (void)session, (void)stream, (void)source;
  first *self = user_data;
  size_t left = sizeof(self->message) - self->sent, part = left < length ? left : length;
  memcpy(buffer, self->message + self->sent, part);
  self->sent += part;
  if (self->sent == sizeof(self->message)) *flags |= NGHTTP2_DATA_FLAG_EOF;
  return (ssize_t)part;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name, size_t name_length,
                     const uint8_t *value, size_t value_length, uint8_t flags, void *user_data) {
  (void)session, (void)frame, (void)flags;
  first *self = user_data;
  if (name_length == 7 && memcmp(name, ":status", 7) == 0) {
    self->has_status = value_length == 3 && memcmp(value, "200", 3) == 0;
  } else if (name_length == 11 && memcmp(name, "grpc-status", 11) == 0) {
    self->has_grpc_status = value_length == 1 && value[0] == '0';
  }
  return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t stream, const uint8_t *data, size_t length,
                   void *user_data) {
  (void)session, (void)flags, (void)stream;
  first *self = user_data;
  size_t room = sizeof(self->reply) - self->received, part = length < room ? length : room;
  memcpy(self->reply + self->received, data, part);
  self->received += part;
  return 0;
}

static int on_close(nghttp2_session *session, int32_t stream, uint32_t error, void *user_data) {
  (void)session, (void)stream;
  if (error) die(nghttp2_http2_strerror(error));
  ((first *)user_data)->closed = true;
  return 0;
}

static void connect_to(first *self, const char *target) {
  char host[64];
  const char *colon = strrchr(target, ':');
  if (!colon || (size_t)(colon - target) >= sizeof(host)) die("--target: not HOST:PORT");
  memcpy(host, target, (size_t)(colon - target));
  host[colon - target] = 0;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(colon + 1))};
  if (inet_pton(AF_INET, host, &address.sin_addr) != 1) die("--target: not an IPv4 address");
  self->socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  int one = 1;
  if (self->socket < 0 || connect(self->socket, (struct sockaddr *)&address, sizeof(address)) != 0 ||
      setsockopt(self->socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) != 0) {
    die(strerror(errno));
  }
}

#define FIELD(name, value)                                                                                             \
  { (uint8_t *)(name), (uint8_t *)(value), strlen(name), strlen(value), NGHTTP2_NV_FLAG_NONE }

static void call(first *self, const char *target) {
  nghttp2_session_callbacks *callbacks;
  nghttp2_session *session;
  if (nghttp2_session_callbacks_new(&callbacks) != 0) die("no memory");
  nghttp2_session_callbacks_set_send_callback(callbacks, on_send);
  nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_close);
  if (nghttp2_session_client_new(&session, callbacks, self) != 0) die("no memory");
  nghttp2_session_callbacks_del(callbacks);
  const nghttp2_nv fields[] = {
      FIELD(":method", "POST"),
      FIELD(":scheme", "http"),
      FIELD(":path", "/penstock.Echo/Unary"),
      FIELD(":authority", target),
      FIELD("te", "trailers"),
      FIELD("content-type", "application/grpc"),
      FIELD("user-agent", "nghttp2_first"),
  };
  const nghttp2_data_provider body = {.read_callback = on_read};
  nghttp2_submit_settings(session, NGHTTP2_FLAG_NONE, NULL, 0);
  if (nghttp2_submit_request(session, NULL, fields, sizeof(fields) / sizeof(*fields), &body, NULL) < 0) die("request");
  if (nghttp2_session_send(session) != 0) die("send");
  while (!self->closed) {
    uint8_t buffer[16384];
    ssize_t got = recv(self->socket, buffer, sizeof(buffer), 0);
    if (got <= 0) die("the connection has ended");
    if (nghttp2_session_mem_recv(session, buffer, (size_t)got) != got) die("not HTTP/2");
    if (nghttp2_session_send(session) != 0) die("send");
  }
  nghttp2_session_del(session);
}

int main(int argc, char **argv) {
  double executed = first_call_started_us(argv), started = first_call_now_us();
  if (argc != 3 || strcmp(argv[1], "--target") != 0) die("usage: nghttp2_first --target HOST:PORT");
  first self = {.message = {0, 0, 0, 0, FIRST_CALL_BYTES}};
  first_call_pattern(self.message + 5);
  connect_to(&self, argv[2]);
  call(&self, argv[2]);
  double ended = first_call_now_us();
  if (!self.has_status || !self.has_grpc_status || self.received != sizeof(self.message) ||
      memcmp(self.reply, self.message, sizeof(self.message)) != 0) {
    die("wrong reply");
  }
  printf("{\"connect_and_call_us\": %.1f, \"total_us\": %.1f}\n", ended - started, ended - executed);
  close(self.socket);
  return 0;
}
