/* Shared by the tests of credentials.h: a key in a file, and a token server. */
#ifndef PENSTOCK_TEST_CREDENTIALS_H
#define PENSTOCK_TEST_CREDENTIALS_H

#include "ready.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The path of a file with a key for the curve P-256, which is in memory and has no other name. */
static inline const char *key_file(void) {
  static const char key[] = "-----BEGIN PRIVATE KEY-----\n"
                            "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgb5lw2kqarsfkscFp\n"
                            "or1ImP5vi5DhZm8RUhQmJcuWqfehRANCAARtIyJhWvpzJMYatm6h5Bteu+bUp/SH\n"
                            "nOPWsM2g53dsy9oxy/bZ2UfguNMo3LLJcB0BC6xz5IgD6ZP+zwx1Hb4W\n"
                            "-----END PRIVATE KEY-----\n";
  static char path[48];
  if (path[0]) return path;
  long file = syscall(SYS_memfd_create, "key", 1u /* MFD_CLOEXEC */);
  if (!CHECK(file >= 0)) return "/";
  CHECK_INT(write((int)file, key, sizeof(key) - 1), sizeof(key) - 1);
  snprintf(path, sizeof(path), "/proc/self/fd/%ld", file);
  return path;
}

/* A server of HTTP/1.1 that answers each request on a connection of its own. */
typedef struct token_server {
  int listening;
  uint16_t port;
  pthread_t thread;
  pthread_mutex_t lock;
  char status[128];   /* such as "200 OK", with further header fields behind a line end */
  char body[512];     /* of the answer */
  char request[4096]; /* the last one */
  int asked;
  bool is_silent; /* reads requests, and does not answer */
} token_server;

static inline void token_server_answers(token_server *self, const char *status, const char *body) {
  pthread_mutex_lock(&self->lock);
  snprintf(self->status, sizeof(self->status), "%s", status);
  snprintf(self->body, sizeof(self->body), "%s", body);
  pthread_mutex_unlock(&self->lock);
}

static inline int token_server_asked(token_server *self) {
  pthread_mutex_lock(&self->lock);
  int asked = self->asked;
  pthread_mutex_unlock(&self->lock);
  return asked;
}

static inline bool token_server_saw(token_server *self, const char *text) {
  pthread_mutex_lock(&self->lock);
  bool saw = strstr(self->request, text) != NULL;
  if (!saw) printf("  no %s in %s\n", text, self->request);
  pthread_mutex_unlock(&self->lock);
  return saw;
}

/* Whether a request has been read whole: the form has no line ends. */
static inline bool token_request_is_whole(const char *text) {
  const char *length = strstr(text, "content-length: "), *form = strstr(text, "\r\n\r\n");
  return length && form && strlen(form + 4) >= strtoul(length + 16, NULL, 10);
}

static inline void token_server_serve(token_server *self, int socket) {
  char text[sizeof(self->request)], answer[1024];
  size_t size = 0;
  ssize_t n;
  text[0] = 0;
  while (!token_request_is_whole(text) && size < sizeof(text) - 1 &&
         (n = read(socket, text + size, sizeof(text) - 1 - size)) > 0) {
    size += (size_t)n;
    text[size] = 0;
  }
  pthread_mutex_lock(&self->lock);
  strcpy(self->request, text);
  self->asked++;
  int length = snprintf(answer, sizeof(answer), "HTTP/1.1 %s\r\nconnection: close\r\ncontent-length: %zu\r\n\r\n%s",
                        self->status, strlen(self->body), self->body);
  bool is_silent = self->is_silent;
  pthread_mutex_unlock(&self->lock);
  if (!is_silent) CHECK_INT(send(socket, answer, (size_t)length, MSG_NOSIGNAL), length);
  if (is_silent) CHECK_INT(read(socket, text, sizeof(text)), 0); /* until the client closes the connection */
  close(socket);
}

static inline void *token_server_run(void *argument) {
  token_server *self = argument;
  for (;;) {
    int socket = accept4(self->listening, NULL, NULL, SOCK_CLOEXEC);
    if (socket < 0) return NULL;
    token_server_serve(self, socket);
  }
}

static inline void token_server_start(token_server *self) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof(address);
  memset(self, 0, sizeof(*self));
  pthread_mutex_init(&self->lock, NULL);
  self->listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(bind(self->listening, (struct sockaddr *)&address, size) == 0 && listen(self->listening, 16) == 0);
  REQUIRE(getsockname(self->listening, (struct sockaddr *)&address, &size) == 0);
  self->port = ntohs(address.sin_port);
  token_server_answers(self, "200 OK", "{\"access_token\": \"token-1\", \"token_type\": \"Bearer\"}");
  REQUIRE(pthread_create(&self->thread, NULL, token_server_run, self) == 0);
}

static inline void token_server_end(token_server *self) {
  shutdown(self->listening, SHUT_RDWR);
  pthread_join(self->thread, NULL);
  close(self->listening);
  pthread_mutex_destroy(&self->lock);
}

static inline penstock_channel *token_server_channel(const token_server *self) {
  char target[32];
  penstock_channel *channel = NULL;
  snprintf(target, sizeof(target), "127.0.0.1:%u", self->port);
  OK(penstock_channel_new(target, "{\"tls\": false, \"protocol\": \"connect\"}", &channel, NULL));
  return channel;
}

#endif
