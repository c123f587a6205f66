/* One connection: the socket, TLS, and HTTP/2 frames. Header blocks are not decoded. */
#include "bare.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <unistd.h>

/* Penstock's windows. With larger ones the other side would buffer more data than its caches hold. */
#define STREAM_WINDOW     (1 << 20)
#define CONNECTION_WINDOW (4 << 20)
#define CREDIT            (STREAM_WINDOW / 2)
#define INPUT             (256 << 10)
#define RECORDS           (128 << 10)

enum { INITIAL_WINDOW_SIZE = 4 }; /* the number of the setting */
static const char preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

void bare_die(const char *what) {
  fprintf(stderr, "bare: %s\n", what);
  exit(1);
}

static void put32(uint8_t *place, uint32_t value) {
  for (int i = 0; i < 4; i++) place[i] = (uint8_t)(value >> (24 - 8 * i));
}

static uint32_t get32(const uint8_t *place) {
  return (uint32_t)place[0] << 24 | (uint32_t)place[1] << 16 | (uint32_t)place[2] << 8 | place[3];
}

/* ---- Output ---- */

void put_frame(uint8_t *place, uint8_t type, uint8_t flags, uint32_t stream, size_t length) {
  put32(place, (uint32_t)length << 8 | type);
  place[4] = flags;
  put32(place + 5, stream);
}

static uint8_t *more(connection *self, size_t count) {
  size_t waiting = self->out_to - self->out_from;
  if (waiting == 0 || (self->out_to + count > self->out_room && self->out_from > waiting)) {
    if (waiting > 0) memcpy(self->out, self->out + self->out_from, waiting);
    self->out_from = 0;
    self->out_to = waiting;
  }
  while (self->out_to + count > self->out_room) {
    self->out_room = self->out_room ? 2 * self->out_room : 4096;
    self->out = realloc(self->out, self->out_room);
  }
  uint8_t *place = self->out + self->out_to;
  self->out_to += count;
  return place;
}

void append(connection *self, const void *bytes, size_t count) { memcpy(more(self, count), bytes, count); }

void append_frame(connection *self, uint8_t type, uint8_t flags, uint32_t stream, size_t length) {
  put_frame(more(self, FRAME_HEADER), type, flags, stream, length);
}

static void append_credit(connection *self, uint32_t stream, uint32_t bytes) {
  append_frame(self, FRAME_WINDOW_UPDATE, 0, stream, 4);
  put32(more(self, 4), bytes);
}

/* The number of bytes that the socket has accepted; 0: it is full. */
static size_t send_parts(connection *self, const struct iovec *parts, int count) {
  if (self->tls) {
    size_t sent = 0;
    for (size_t at = 0; count > 0; parts++, count--, at = 0) {
      while (at < parts->iov_len) {
        int n = SSL_write(self->tls, (const char *)parts->iov_base + at, (int)(parts->iov_len - at));
        if (n <= 0 && SSL_get_error(self->tls, n) != SSL_ERROR_WANT_WRITE) bare_die("SSL_write");
        if (n <= 0) return sent;
        at += (size_t)n;
        sent += (size_t)n;
      }
    }
    return sent;
  }
  ssize_t n = count == 1 ? write(self->socket, parts->iov_base, parts->iov_len) : writev(self->socket, parts, count);
  if (n < 0 && errno != EAGAIN) bare_die(strerror(errno));
  return n < 0 ? 0 : (size_t)n;
}

bool flush(connection *self) {
  while (self->out_from < self->out_to) {
    struct iovec all = {self->out + self->out_from, self->out_to - self->out_from};
    size_t sent = send_parts(self, &all, 1);
    if (sent == 0) return false;
    self->out_from += sent;
  }
  return true;
}

/* ---- Input ---- */

static void apply_settings(connection *self) {
  if (self->flags & ACK) return;
  for (size_t at = 0; at + 6 <= self->kept_count; at += 6) {
    if (self->kept[at] != 0 || self->kept[at + 1] != INITIAL_WINDOW_SIZE) continue;
    int64_t window = get32(self->kept + at + 2);
    self->stream_window += window - self->initial_window;
    self->initial_window = window;
  }
  self->has_settings = true;
  append_frame(self, FRAME_SETTINGS, ACK, 0, 0);
}

static void give_credit(connection *self) {
  self->taken += self->length;
  if (self->taken < CREDIT) return;
  append_credit(self, 0, self->taken);
  if (self->streaming) append_credit(self, self->streaming, self->taken);
  self->taken = 0;
}

static void frame_ends(connection *self) {
  self->header_count = 0;
  switch (self->type) {
  case FRAME_HEADERS:
    if (self->on_headers) self->on_headers(self);
    break;
  case FRAME_DATA:
    give_credit(self);
    break;
  case FRAME_SETTINGS:
    apply_settings(self);
    break;
  case FRAME_PING:
    if (self->flags & ACK) break;
    append_frame(self, FRAME_PING, ACK, 0, 8);
    append(self, self->kept, 8);
    break;
  case FRAME_WINDOW_UPDATE:
    if (self->stream == 0) self->window += get32(self->kept);
    if (self->stream == self->streaming && self->stream != 0) self->stream_window += get32(self->kept);
    break;
  case FRAME_RST_STREAM:
    if (get32(self->kept) != 0) bare_die("wrong reply: the server has reset the stream");
    break; /* NO_ERROR: the server has answered before our END_STREAM had come */
  case FRAME_GOAWAY:
    bare_die("wrong reply: the server closes the connection");
  default:
    break;
  }
  if (self->type <= FRAME_HEADERS && self->flags & END_STREAM) self->on_end(self);
}

static void frame_begins(connection *self) {
  self->length = self->left = get32(self->header) >> 8;
  self->type = self->header[3];
  self->flags = self->header[4];
  self->stream = get32(self->header + 5) & INT32_MAX;
  self->kept_count = 0;
  if (self->type == FRAME_DATA && self->flags & PADDED) bare_die("wrong reply: padded");
}

void take(connection *self, const uint8_t *bytes, size_t count) {
  while (count > 0) {
    if (self->header_count < FRAME_HEADER) {
      size_t lacks = FRAME_HEADER - self->header_count, part = lacks < count ? lacks : count;
      memcpy(self->header + self->header_count, bytes, part);
      self->header_count += part;
      bytes += part;
      count -= part;
      if (self->header_count < FRAME_HEADER) return;
      frame_begins(self);
    }
    size_t part = self->left < count ? self->left : count;
    if (self->type == FRAME_DATA) {
      if (part > 0) self->on_data(self, bytes, part);
    } else {
      size_t room = sizeof(self->kept) - self->kept_count, kept = part < room ? part : room;
      memcpy(self->kept + self->kept_count, bytes, kept);
      self->kept_count += kept;
    }
    bytes += part;
    count -= part;
    self->left -= (uint32_t)part;
    if (self->left == 0) frame_ends(self);
  }
}

size_t receive_into(connection *self, uint8_t *place, size_t room) {
  if (self->tls) {
    int n = SSL_read(self->tls, place, (int)room);
    int error = n > 0 ? SSL_ERROR_NONE : SSL_get_error(self->tls, n);
    if (error != SSL_ERROR_NONE && error != SSL_ERROR_WANT_READ) self->closed = true;
    self->drained = n <= 0 || SSL_has_pending(self->tls) == 0;
    return n > 0 ? (size_t)n : 0;
  }
  ssize_t n = read(self->socket, place, room);
  if (n == 0 || (n < 0 && errno != EAGAIN)) self->closed = true;
  self->drained = n < (ssize_t)room;
  return n > 0 ? (size_t)n : 0;
}

void receive(connection *self) {
  static uint8_t input[INPUT];
  take(self, input, receive_into(self, input, sizeof(input)));
}

void receive_all(connection *self) {
  do receive(self);
  while (!self->drained && !self->closed);
}

void await(connection *self, bool for_input, bool for_output) {
  if (self->blocks || (for_input && !self->drained)) return;
  uint32_t wanted = (for_input ? (uint32_t)EPOLLIN : 0) | (for_output ? (uint32_t)EPOLLOUT : 0);
  struct epoll_event event = {.events = wanted};
  if (wanted != self->watched && epoll_ctl(self->epoll, EPOLL_CTL_MOD, self->socket, &event) != 0)
    bare_die("epoll_ctl");
  self->watched = wanted;
  while (epoll_wait(self->epoll, &event, 1, -1) < 0)
    if (errno != EINTR) bare_die("epoll_wait");
}

/* ---- Start and end ---- */

static const unsigned char alpn[] = {2, 'h', '2'};

static SSL_CTX *tls_context(const SSL_METHOD *method) {
  SSL_CTX *context = SSL_CTX_new(method);
  /* AES-GCM, as the other clients have. One read takes all bytes that have come, and a write that is repeated may come from
   * another address, so no copy is kept for it. */
  if (!SSL_CTX_set_ciphersuites(context, "TLS_AES_256_GCM_SHA384")) bare_die("TLS_AES_256_GCM_SHA384");
  SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION);
  SSL_CTX_set_read_ahead(context, 1);
  SSL_CTX_set_default_read_buffer_len(context, RECORDS);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  return context;
}

SSL_CTX *tls_client(const char *authority) {
  SSL_CTX *context = tls_context(TLS_client_method());
  if (SSL_CTX_load_verify_locations(context, authority, NULL) != 1) bare_die(authority);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
  SSL_CTX_set_alpn_protos(context, alpn, sizeof(alpn));
  return context;
}

static int select_protocol(SSL *tls, const unsigned char **out, unsigned char *count, const unsigned char *in,
                           unsigned in_count, void *argument) {
  (void)tls, (void)in, (void)in_count, (void)argument;
  *out = alpn + 1;
  *count = 2;
  return SSL_TLSEXT_ERR_OK;
}

SSL_CTX *tls_server(const char *certificate, const char *key) {
  SSL_CTX *context = tls_context(TLS_server_method());
  if (SSL_CTX_use_certificate_chain_file(context, certificate) != 1) bare_die(certificate);
  if (SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1) bare_die(key);
  SSL_CTX_set_alpn_select_cb(context, select_protocol, NULL);
  return context;
}

static void start_tls(connection *self, SSL_CTX *context, bool is_server) {
  self->tls = SSL_new(context);
  SSL_set_fd(self->tls, self->socket);
  SSL_set_tlsext_host_name(self->tls, "localhost");
  if ((is_server ? SSL_accept : SSL_connect)(self->tls) != 1) bare_die("the TLS handshake");
}

void connection_start(connection *self, int socket, SSL_CTX *tls, bool is_server, bool blocks) {
  self->socket = socket;
  self->blocks = blocks;
  self->drained = true;
  self->window = self->stream_window = self->initial_window = 65535;
  if (tls) start_tls(self, tls, is_server);
  if (!blocks) {
    fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
    self->epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = self->watched = EPOLLIN};
    if (epoll_ctl(self->epoll, EPOLL_CTL_ADD, socket, &event) != 0) bare_die("epoll_ctl");
  }
  if (!is_server) append(self, preface, sizeof(preface) - 1);
  static const uint8_t settings[] = {0, INITIAL_WINDOW_SIZE, 0, STREAM_WINDOW >> 16, 0, 0};
  append_frame(self, FRAME_SETTINGS, 0, 0, sizeof(settings));
  append(self, settings, sizeof(settings));
  append_credit(self, 0, CONNECTION_WINDOW - 65535);
}

void connection_end(connection *self) {
  SSL_free(self->tls);
  close(self->socket);
  if (!self->blocks) close(self->epoll);
  free(self->out);
}

/* ---- Messages ---- */

#define GRANTED (512 << 10)
#define PARTS   16
#define COPIED  (256 << 10)

static size_t payload(const sender *self) {
  size_t rest = self->size - self->part;
  return rest < FRAME_LARGEST ? rest : FRAME_LARGEST;
}

static void copy_message(const sender *self, uint8_t *place) {
  for (size_t at = 0; at < self->size; at += FRAME_LARGEST, place += FRAME_HEADER + FRAME_LARGEST) {
    size_t rest = self->size - at;
    memcpy(place + FRAME_HEADER, self->message + at, rest < FRAME_LARGEST ? rest : FRAME_LARGEST);
  }
}

void sender_start(sender *self, connection *link, uint32_t stream, const uint8_t *message, size_t size, long count,
                  bool copies) {
  size_t frames = (size + FRAME_LARGEST - 1) / FRAME_LARGEST;
  *self = (sender){.link = link, .message = message, .size = size, .left = count, .copies = copies};
  self->frames_size = size + frames * FRAME_HEADER;
  size_t room = copies ? COPIED : 65536, messages = self->frames_size < room ? room / self->frames_size + 1 : 1;
  self->wire_size = messages * self->frames_size;
  self->wire = malloc(self->wire_size);
  for (size_t at = 0; at < self->wire_size; at += self->frames_size) {
    for (size_t part = 0, place = at; part < size; part += FRAME_LARGEST, place += FRAME_HEADER + FRAME_LARGEST)
      put_frame(self->wire + place, FRAME_DATA, 0, stream, size - part < FRAME_LARGEST ? size - part : FRAME_LARGEST);
    copy_message(self, self->wire + at);
  }
}

/* Grants as many frames as the windows let through, up to GRANTED bytes, and takes their bytes from the windows. */
static void grant(sender *self) {
  connection *link = self->link;
  while (self->left > 0 && self->granted < GRANTED) {
    int64_t length = (int64_t)payload(self);
    if (length > link->window || length > link->stream_window) return;
    if (self->copies && self->part == 0) {
      if (self->granted + self->frames_size > self->wire_size)
        return; /* the bytes at its place in `wire` are not sent yet */
      copy_message(self, self->wire + (self->from + self->granted) % self->wire_size);
    }
    link->window -= length;
    link->stream_window -= length;
    self->granted += FRAME_HEADER + (size_t)length;
    self->part += (size_t)length;
    if (self->part < self->size) continue;
    self->part = 0;
    self->left--;
  }
}

/* Granted bytes are sent before other bytes that wait, which must not come in the middle of a frame. */
bool sender_send(sender *self) {
  if (self->granted == 0) {
    if (!flush(self->link)) return false;
    grant(self);
    if (self->granted == 0) return true;
  }
  struct iovec parts[PARTS];
  int count = 0;
  size_t from = self->from;
  for (size_t rest = self->granted; rest > 0 && count < PARTS; from = 0) {
    size_t length = self->wire_size - from < rest ? self->wire_size - from : rest;
    parts[count++] = (struct iovec){self->wire + from, length};
    rest -= length;
  }
  size_t sent = send_parts(self->link, parts, count);
  self->from = (self->from + sent) % self->wire_size;
  self->granted -= sent;
  return sent > 0;
}

bool sender_goes_on(const sender *self) {
  int64_t length = (int64_t)payload(self);
  return self->granted > 0 || (self->left > 0 && length <= self->link->window && length <= self->link->stream_window);
}

bool sender_is_done(const sender *self) { return self->left == 0 && self->granted == 0; }

void sender_end(sender *self) { free(self->wire); }
