/* Shared by the files of bare: one connection, HTTP/2 frames that are made once, and no library but OpenSSL. */
#ifndef BARE_H
#define BARE_H

#include <openssl/ssl.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  FRAME_DATA,
  FRAME_HEADERS,
  FRAME_RST_STREAM = 3,
  FRAME_SETTINGS,
  FRAME_PING = 6,
  FRAME_GOAWAY,
  FRAME_WINDOW_UPDATE
};
enum { END_STREAM = 1, ACK = 1, END_HEADERS = 4, PADDED = 8 };

/* Also the largest payload that is sent: no setting can forbid it. */
#define FRAME_LARGEST 16384
#define FRAME_HEADER  9

typedef struct connection {
  int socket, epoll;
  SSL *tls;     /* NULL: cleartext */
  bool blocks;  /* read and write block, and nothing waits in epoll_wait */
  bool drained; /* the last read has taken all there was */
  bool closed;
  uint32_t watched;
  /* To be written. */
  uint8_t *out;
  size_t out_from, out_to, out_room;
  /* The frame that is being read: the start of its payload is kept, except for DATA. */
  uint8_t header[FRAME_HEADER], kept[256], type, flags;
  size_t header_count, kept_count;
  uint32_t stream, length, left;
  /* The credit for sending, and the bytes received since the last WINDOW_UPDATE to the other side. */
  int64_t window, stream_window, initial_window;
  uint32_t streaming, taken; /* the stream whose window is followed, 0 where streams are short */
  bool has_settings;
  void *owner;
  void (*on_headers)(struct connection *); /* in `kept`; or NULL */
  void (*on_data)(struct connection *, const uint8_t *bytes, size_t count);
  void (*on_end)(struct connection *); /* END_STREAM has come */
} connection;

_Noreturn void bare_die(const char *what);

/* `tls` is the context of a connection over TLS; the handshake is done here. */
void connection_start(connection *self, int socket, SSL_CTX *tls, bool is_server, bool blocks);
void connection_end(connection *self);
SSL_CTX *tls_client(const char *authority);
SSL_CTX *tls_server(const char *certificate, const char *key);

void append(connection *self, const void *bytes, size_t count);
/* A frame's header; its payload has to follow. */
void append_frame(connection *self, uint8_t type, uint8_t flags, uint32_t stream, size_t length);
void put_frame(uint8_t *place, uint8_t type, uint8_t flags, uint32_t stream, size_t length);
/* False: the socket takes no more now. */
bool flush(connection *self);
/* One read into `place`, of `room` bytes; then what was read. */
size_t receive_into(connection *self, uint8_t *place, size_t room);
void take(connection *self, const uint8_t *bytes, size_t count);
/* One read, and what is in it; all there is. */
void receive(connection *self);
void receive_all(connection *self);
/* Sleeps until there is something to read, or, with `for_output`, room to write. */
void await(connection *self, bool for_input, bool for_output);

/* ---- Messages of one stream, one after the other, the same bytes again and again ---- */

typedef struct sender {
  connection *link;
  const uint8_t *message; /* with its prefix */
  size_t size;
  bool copies;   /* each message is copied into its frames, as for a caller who may change it at once */
  uint8_t *wire; /* some messages in their frames */
  size_t wire_size, frames_size;
  long left;
  size_t part;          /* of the message that goes next: what the window has let through */
  size_t from, granted; /* in `wire` */
} sender;

void sender_start(sender *self, connection *link, uint32_t stream, const uint8_t *message, size_t size, long count,
                  bool copies);
/* What waits to be written, then what the windows let through, in one write; false: the socket takes no more now. */
bool sender_send(sender *self);
/* Whether it can send without more credit from the other side. */
bool sender_goes_on(const sender *self);
bool sender_is_done(const sender *self);
void sender_end(sender *self);

/* ---- The server, in a separate process ---- */

typedef struct server_options {
  const char *what, *certificate, *key;
  size_t bytes; /* of a message */
  bool blocks;
} server_options;

/* Its process, and where it listens on 127.0.0.1. */
int server_fork(const server_options *options, uint16_t *port);

#endif
