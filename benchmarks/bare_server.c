/* The server for bare: it answers incoming frames one by one, in a separate process. */
#include "bare.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

/* The server stops reading while more than this waits to be sent. */
#define AHEAD (1 << 20)

typedef struct server {
  connection link;
  server_options options;
  uint32_t answered; /* the last stream whose answer has begun */
  size_t received;   /* bytes of a stream whose messages are counted */
  uint8_t *message;
  size_t message_size;
  long repeat;
  sender sender;
  bool sends;
} server;

/* The headers (:status 200, content-type) and the trailers (grpc-status 0), as indexes into HPACK's tables. */
static const uint8_t headers[] = {0x88, 0xbe}, trailers[] = {0xbf};
static const char request_preface[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

static void begin_answer(server *self, uint32_t stream) {
  if (self->answered == stream) return;
  self->answered = stream;
  append_frame(&self->link, FRAME_HEADERS, END_HEADERS, stream, sizeof(headers));
  append(&self->link, headers, sizeof(headers));
}

static void end_answer(server *self) {
  append_frame(&self->link, FRAME_HEADERS, END_HEADERS | END_STREAM, self->answered, sizeof(trailers));
  append(&self->link, trailers, sizeof(trailers));
}

static bool is(const server *self, const char *what) { return strcmp(self->options.what, what) == 0; }

/* The last field of a request for a stream down is x-repeat, in plain digits. */
static void on_headers(connection *link) {
  server *self = link->owner;
  size_t from = link->kept_count;
  while (from > 0 && link->kept[from - 1] >= '0' && link->kept[from - 1] <= '9') from--;
  self->repeat = 0;
  for (size_t at = from; at < link->kept_count; at++) self->repeat = self->repeat * 10 + (link->kept[at] - '0');
  link->stream_window = link->initial_window;
  link->streaming = is(self, "unary") ? 0 : link->stream;
}

/* Echoes the bytes of a message as they come. If the messages of a stream are only counted, their contents are not
 * checked; penstock-peer does not check them either. */
static void echo(connection *link, const uint8_t *bytes, size_t count) {
  server *self = link->owner;
  begin_answer(self, link->stream);
  if (link->left == link->length) append_frame(link, FRAME_DATA, 0, link->stream, link->length);
  append(link, bytes, count);
}

static void count_bytes(connection *link, const uint8_t *bytes, size_t count) {
  (void)bytes;
  ((server *)link->owner)->received += count;
}

static void on_end(connection *link) {
  server *self = link->owner;
  begin_answer(self, link->stream);
  if (is(self, "down")) {
    sender_start(&self->sender, link, link->stream, self->message, self->message_size, self->repeat, false);
    self->sends = true;
    return;
  }
  if (is(self, "up")) {
    char text[5 + 32] = {0};
    int digits = snprintf(text + 5, sizeof(text) - 5, "%zu", self->received / self->message_size);
    text[4] = (char)digits;
    append_frame(link, FRAME_DATA, 0, link->stream, 5 + (size_t)digits);
    append(link, text, 5 + (size_t)digits);
    self->received = 0;
  }
  end_answer(self);
}

static void read_preface(connection *link) {
  uint8_t found[sizeof(request_preface) - 1];
  for (size_t have = 0; have < sizeof(found) && !link->closed;) {
    await(link, true, false);
    have += receive_into(link, found + have, sizeof(found) - have);
  }
  if (memcmp(found, request_preface, sizeof(found)) != 0) bare_die("no preface");
}

static void serve(server *self) {
  connection *link = &self->link;
  flush(link);
  read_preface(link);
  link->drained = false;
  while (!link->closed) {
    bool takes_more = self->sends ? sender_send(&self->sender) : flush(link);
    if (self->sends && sender_is_done(&self->sender)) {
      end_answer(self);
      sender_end(&self->sender);
      self->sends = false;
      continue;
    }
    if (self->sends && takes_more && sender_goes_on(&self->sender)) continue;
    bool reads = link->out_to - link->out_from < AHEAD;
    await(link, reads, !takes_more);
    if (reads) receive(link);
  }
}

static void run(int listener, const server_options *options) {
  int socket = accept(listener, NULL, NULL), one = 1;
  if (socket < 0) bare_die("accept");
  close(listener);
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  server self = {.options = *options, .message_size = 5 + options->bytes};
  self.message = calloc(1, self.message_size);
  for (int i = 0; i < 4; i++) self.message[1 + i] = (uint8_t)(options->bytes >> (24 - 8 * i));
  for (size_t i = 0; i < options->bytes; i++) self.message[5 + i] = (uint8_t)(i * 131);
  self.link.owner = &self;
  self.link.on_headers = on_headers;
  self.link.on_data = is(&self, "up") || is(&self, "down") ? count_bytes : echo;
  self.link.on_end = on_end;
  SSL_CTX *tls = options->certificate ? tls_server(options->certificate, options->key) : NULL;
  connection_start(&self.link, socket, tls, true, options->blocks);
  serve(&self);
  connection_end(&self.link);
  SSL_CTX_free(tls);
  free(self.message);
}

int server_fork(const server_options *options, uint16_t *port) {
  int listener = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof(address);
  if (bind(listener, (struct sockaddr *)&address, length) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, (struct sockaddr *)&address, &length) != 0)
    bare_die("listen");
  *port = ntohs(address.sin_port);
  int process = fork();
  if (process < 0) bare_die("fork");
  if (process > 0) {
    close(listener);
    return process;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  run(listener, options);
  exit(0);
}
