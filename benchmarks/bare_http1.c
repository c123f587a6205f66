/* bare_http1: makes Connect's unary calls over HTTP/1.1, without a library. It does the least work that a client has to
 * do.
 *
 *   bare_http1 --target 127.0.0.1:PORT [--calls N] [--in-flight N] [--bytes N]
 *
 * The client keeps one connection for each call in flight. It writes a prepared request, and reads the answer up to the
 * end that its Content-Length gives. It does not support other forms of answers. The body is compared byte by byte. One
 * thread waits in epoll_wait for all connections.
 *
 * The output has the form of bench_client's.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { HEAD = 4096, EVENTS = 256 };

typedef struct channel {
  int socket;
  size_t sent; /* of the request */
  size_t got;  /* bytes of the answer */
  size_t size; /* of the whole answer; 0: its head has not ended */
  double since;
  char *answer;
} channel;

typedef struct client {
  int epoll, count;
  channel *links;
  char *request;
  uint8_t *body;
  size_t request_size, bytes;
  long calls, started, ended;
  uint32_t *latencies; /* nanoseconds; NULL: not measured */
  long latency_count;
} client;

static _Noreturn void die(const char *what) {
  fprintf(stderr, "bare_http1: %s: %s\n", what, errno ? strerror(errno) : "");
  exit(1);
}

static _Noreturn void wrong(const char *why) {
  fprintf(stderr, "bare_http1: wrong reply: %s\n", why);
  exit(1);
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void watch(const client *self, channel *on, uint32_t events, int how) {
  struct epoll_event event = {.events = events, .data.ptr = on};
  if (epoll_ctl(self->epoll, how, on->socket, &event) != 0) die("epoll_ctl");
}

/* Writes the rest of the request. If the socket accepts no more bytes, the loop continues when it does. */
static void send_rest(client *self, channel *on) {
  ssize_t count = send(on->socket, self->request + on->sent, self->request_size - on->sent, MSG_NOSIGNAL);
  if (count < 0 && errno != EAGAIN) die("send");
  size_t before = on->sent;
  on->sent += count > 0 ? (size_t)count : 0;
  if (on->sent < self->request_size)
    watch(self, on, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
  else if (before > 0)
    watch(self, on, EPOLLIN, EPOLL_CTL_MOD);
}

static void start_call(client *self, channel *on) {
  self->started++;
  on->sent = on->got = on->size = 0;
  if (self->latencies) on->since = now();
  send_rest(self, on);
}

/* Returns the length of the whole answer, from its head; 0: the head is not complete. */
static size_t size_of(channel *on) {
  on->answer[on->got] = 0;
  const char *end = strstr(on->answer, "\r\n\r\n");
  if (!end) return 0;
  if (strncmp(on->answer, "HTTP/1.1 200", 12) != 0) wrong(on->answer);
  for (const char *line = strstr(on->answer, "\r\n"); line && line < end; line = strstr(line + 2, "\r\n")) {
    if (strncasecmp(line + 2, "content-length:", 15) == 0)
      return (size_t)(end + 4 - on->answer) + (size_t)strtoul(line + 17, NULL, 10);
  }
  wrong("no length");
}

static void read_answer(client *self, channel *on) {
  ssize_t count = recv(on->socket, on->answer + on->got, HEAD + self->bytes - on->got, 0);
  if (count == 0) wrong("the connection has ended");
  if (count < 0) {
    if (errno == EAGAIN) return;
    die("recv");
  }
  on->got += (size_t)count;
  if (on->size == 0) on->size = size_of(on);
  if (on->size == 0 || on->got < on->size) {
    if (on->got >= HEAD + self->bytes) wrong("too long");
    return;
  }
  if (on->got > on->size || on->size < self->bytes ||
      memcmp(on->answer + on->size - self->bytes, self->body, self->bytes) != 0)
    wrong("other bytes");
  if (self->latencies) self->latencies[self->latency_count++] = (uint32_t)((now() - on->since) * 1e9);
  self->ended++;
  if (self->started < self->calls) start_call(self, on);
}

static void run(client *self, long calls) {
  self->calls = calls;
  self->started = self->ended = 0;
  for (int i = 0; i < self->count && self->started < calls; i++) start_call(self, &self->links[i]);
  while (self->ended < calls) {
    struct epoll_event events[EVENTS];
    int count = epoll_wait(self->epoll, events, EVENTS, 30000);
    if (count <= 0) die("epoll_wait");
    for (int i = 0; i < count; i++) {
      channel *on = events[i].data.ptr;
      if (events[i].events & EPOLLOUT) send_rest(self, on);
      if (events[i].events & (EPOLLIN | EPOLLERR | EPOLLHUP)) read_answer(self, on);
    }
  }
}

static void open_links(client *self, const char *target) {
  const char *colon = strrchr(target, ':');
  if (!colon) die(target);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(colon + 1))};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  self->epoll = epoll_create1(EPOLL_CLOEXEC);
  self->links = calloc((size_t)self->count, sizeof(channel));
  if (self->epoll < 0 || !self->links) die("epoll");
  for (int i = 0; i < self->count; i++) {
    channel *on = &self->links[i];
    int one = 1;
    on->socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (on->socket < 0 || connect(on->socket, (struct sockaddr *)&address, sizeof(address)) != 0) die("connect");
    setsockopt(on->socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    on->answer = malloc(HEAD + self->bytes + 1);
    if (!on->answer) die("malloc");
    fcntl(on->socket, F_SETFL, O_NONBLOCK);
    watch(self, on, EPOLLIN, EPOLL_CTL_ADD);
  }
}

static void make_request(client *self, const char *target) {
  self->body = malloc(self->bytes + 1);
  self->request = malloc(HEAD + self->bytes);
  if (!self->body || !self->request) die("malloc");
  for (size_t i = 0; i < self->bytes; i++) self->body[i] = (uint8_t)(i * 131);
  int head = snprintf(self->request, HEAD,
                      "POST /penstock.Echo/Unary HTTP/1.1\r\nHost: %s\r\nContent-Type: application/proto\r\n"
                      "Connect-Protocol-Version: 1\r\nContent-Length: %zu\r\n\r\n",
                      target, self->bytes);
  memcpy(self->request + head, self->body, self->bytes);
  self->request_size = (size_t)head + self->bytes;
}

static double seconds(struct timeval time) { return (double)time.tv_sec + (double)time.tv_usec / 1e6; }

static int by_number(const void *one, const void *other) {
  uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
  return (a > b) - (a < b);
}

static double percentile(const client *self, double part) {
  if (self->latency_count == 0) return 0;
  return self->latencies[(long)((double)(self->latency_count - 1) * part)] / 1e3;
}

int main(int argc, char **argv) {
  client self = {.count = 1, .bytes = 64};
  const char *target = NULL;
  long calls = 1000;
  for (int i = 1; i + 1 < argc; i += 2) {
    const char *name = argv[i], *value = argv[i + 1];
    if (strcmp(name, "--target") == 0)
      target = value;
    else if (strcmp(name, "--calls") == 0)
      calls = atol(value);
    else if (strcmp(name, "--in-flight") == 0)
      self.count = atoi(value);
    else if (strcmp(name, "--bytes") == 0)
      self.bytes = (size_t)atol(value);
    else if (strcmp(name, "--what") != 0 || strcmp(value, "unary") != 0)
      die(name);
  }
  if (!target || calls < 1 || self.count < 1) die("--target, --calls, --in-flight");
  make_request(&self, target);
  open_links(&self, target);
  run(&self, calls / 10 + 1);
  uint32_t *latencies = self.count == 1 ? malloc((size_t)calls * sizeof(uint32_t)) : NULL;
  self.latencies = latencies;
  struct rusage before, after;
  getrusage(RUSAGE_SELF, &before);
  double started = now();
  run(&self, calls);
  double took = now() - started;
  getrusage(RUSAGE_SELF, &after);
  if (latencies) qsort(latencies, (size_t)self.latency_count, sizeof(uint32_t), by_number);
  printf(
      "{\"calls\": %ld, \"seconds\": %.6f, \"user\": %.6f, \"system\": %.6f, \"switches\": %ld, \"max_rss_kb\": %ld, "
      "\"p50_us\": %.2f, \"p99_us\": %.2f}\n",
      calls, took, seconds(after.ru_utime) - seconds(before.ru_utime),
      seconds(after.ru_stime) - seconds(before.ru_stime), after.ru_nvcsw - before.ru_nvcsw, after.ru_maxrss,
      percentile(&self, 0.5), percentile(&self, 0.99));
  for (int i = 0; i < self.count; i++) {
    close(self.links[i].socket);
    free(self.links[i].answer);
  }
  close(self.epoll);
  free(self.links);
  free(latencies);
  free(self.request);
  free(self.body);
  return 0;
}
