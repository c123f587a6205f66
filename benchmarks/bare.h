/* Shared by the files of bare.c's client and server: a connection with prepared HTTP/2 frames, and no library but OpenSSL. */
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

/* The largest payload of a frame that is received, and also of one that is sent: no SETTINGS_MAX_FRAME_SIZE of the
 * other side can be lower. */
#define FRAME_LARGEST 16384
#define FRAME_HEADER  9

typedef struct connection {
  int socket, epoll;
  SSL *tls;     /* NULL: cleartext */
  bool blocks;  /* whether read and write block, and nothing waits in epoll_wait */
  bool drained; /* whether the last read has emptied the socket */
  bool closed;
  uint32_t watched;
  /* The bytes to be written, from out_from to out_to. */
  uint8_t *out;
  size_t out_from, out_to, out_room;
  /* The frame that is being read: the start of its payload is kept, except for DATA. */
  uint8_t header[FRAME_HEADER], kept[256], type, flags;
  size_t header_count, kept_count;
  uint32_t stream, length, left;
  /* The credit for sending, and the bytes received since the last WINDOW_UPDATE to the other side. */
  int64_t window, stream_window, initial_window;
  uint32_t streaming, taken; /* streaming: the stream whose window is tracked; 0: none, because streams are short */
  bool has_settings;
  void *owner;
  void (*on_headers)(struct connection *); /* the header block is in `kept`; may be NULL */
  void (*on_data)(struct connection *, const uint8_t *bytes, size_t count);
  void (*on_end)(struct connection *); /* END_STREAM has come */
} connection;

_Noreturn void bare_die(const char *what);

/* Begins a connection on `socket`. With `tls`, a TLS context, it does the handshake. */
void connection_start(connection *self, int socket, SSL_CTX *tls, bool is_server, bool blocks);
void connection_end(connection *self);
SSL_CTX *tls_client(const char *authority);
SSL_CTX *tls_server(const char *certificate, const char *key);

void append(connection *self, const void *bytes, size_t count);
/* Appends the header of a frame; the caller appends the payload. */
void append_frame(connection *self, uint8_t type, uint8_t flags, uint32_t stream, size_t length);
void put_frame(uint8_t *place, uint8_t type, uint8_t flags, uint32_t stream, size_t length);
/* Writes the appended bytes. False: the socket takes no more now. */
bool flush(connection *self);
/* receive_into reads once into `place`, which has `room` bytes; take handles the bytes that were read. */
size_t receive_into(connection *self, uint8_t *place, size_t room);
void take(connection *self, const uint8_t *bytes, size_t count);
/* receive reads once and handles the bytes; receive_all does so until the socket is empty. */
void receive(connection *self);
void receive_all(connection *self);
/* Sleeps until there is something to read (`for_input`) or room to write (`for_output`). */
void await(connection *self, bool for_input, bool for_output);

/* ---- Sends one message many times on a stream ---- */

typedef struct sender {
  connection *link;
  const uint8_t *message; /* with its prefix */
  size_t size;
  bool copies;   /* whether each message is copied into its frames, as for a caller who may change it at once */
  uint8_t *wire; /* several copies of the message, in frames */
  size_t wire_size, frames_size;
  long left;
  size_t part;          /* how much of the next message the windows have let through */
  size_t from, granted; /* the bytes in `wire` that may be sent: where they begin, and how many */
} sender;

void sender_start(sender *self, connection *link, uint32_t stream, const uint8_t *message, size_t size, long count,
                  bool copies);
/* Writes the granted bytes; if there are none, first the appended bytes, and then as many bytes of messages as the
 * windows let through. False: the socket takes no more now. */
bool sender_send(sender *self);
/* Whether the sender can send more before the other side gives more credit. */
bool sender_goes_on(const sender *self);
bool sender_is_done(const sender *self);
void sender_end(sender *self);

/* ---- The server, in a separate process ---- */

typedef struct server_options {
  const char *what, *certificate, *key;
  size_t bytes; /* of a message */
  bool blocks;
} server_options;

/* Starts the server; returns its process id, and in `port` the port on 127.0.0.1 on which it listens. */
int server_fork(const server_options *options, uint16_t *port);

#endif
