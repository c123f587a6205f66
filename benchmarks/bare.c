/* bare: a client with almost no work of its own, which measures the limits of kernel and server.
 *
 *   bare --target HOST:PORT --what WHAT [--calls N] [--in-flight N] [--bytes N] [--threads N] [--tls CA.pem] ...
 *
 * A client without HTTP/2, gRPC or any library but OpenSSL: it writes prepared frames, reads the lengths of incoming
 * frames, respects the windows, and checks each reply byte by byte. It decodes no headers, and keeps no data for a
 * call: no client of the same server can be much faster. A unary call opens its stream when the connection's window has
 * room for its message, as in penstock.
 *
 *   --server own  in place of --target: the client forks a server that is as simple as itself, and also prints `server`,
 *                 the server's CPU seconds. For TLS with --cert and --key.
 *   --what        unary, up, down, duplex, pingpong: as bench_client's
 *   --threads     threads that make unary calls: if no thread reads, the next one that waits reads for all, and wakes
 *                 those whose reply has come
 *   --style       poll: epoll_wait, then read, as a client must that waits for several things; blocking: a read that
 *                 blocks, which saves a system call (for ping-pong, and unary calls one after the other)
 *   --copy 1      copies each message before it is sent
 *   --touch N     writes N bytes of memory when a call starts, and reads them when it ends
 *
 * Prints what bench_client prints.
 */
#include "bare_client.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define LINE  64
/* This many bytes of requests are gathered before they are written: the server then works on them while the client
 * makes more. */
#define BATCH 4096

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void note_latency(client *self, double since) {
  if (self->latencies) self->latencies[self->latency_count++] = (uint32_t)((now() - since) * 1e9);
}

static bool is(const client *self, const char *what) { return strcmp(self->what, what) == 0; }

/* ---- Requests ---- */

static size_t put_field(uint8_t *place, uint8_t first, const char *name, const char *value) {
  size_t at = 0;
  place[at++] = first;
  if (name) {
    place[at++] = (uint8_t)strlen(name);
    at += (size_t)sprintf((char *)place + at, "%s", name);
  }
  place[at++] = (uint8_t)strlen(value);
  return at + (size_t)sprintf((char *)place + at, "%s", value);
}

/* Writes a header block. The first one adds four fields to HPACK's table; all later ones refer to these by index. The
 * field `name` is never put into the table. */
static size_t put_headers(client *self, uint8_t *place, const char *name, const char *value) {
  const char *method = is(self, "unary")  ? "/penstock.Echo/Unary"
                       : is(self, "up")   ? "/penstock.Echo/ClientStream"
                       : is(self, "down") ? "/penstock.Echo/ServerStream"
                                          : "/penstock.Echo/Bidi";
  static const uint8_t known[] = {0xc1, 0xc0, 0xbf, 0xbe};
  size_t at = 0;
  place[at++] = 0x83; /* POST */
  place[at++] = self->is_tls ? 0x87 : 0x86;
  if (self->is_indexed) {
    memcpy(place + at, known, sizeof(known));
    at += sizeof(known);
  } else {
    at += put_field(place + at, 0x44, NULL, method);
    at += put_field(place + at, 0x41, NULL, "localhost");
    at += put_field(place + at, 0x40, "te", "trailers");
    at += put_field(place + at, 0x5f, NULL, "application/grpc");
    self->is_indexed = true;
  }
  return name ? at + put_field(place + at, 0, name, value) : at;
}

/* Opens a stream. If it carries many messages, its window is tracked. */
static uint32_t open_stream(client *self, const char *name, const char *value) {
  uint8_t block[200];
  size_t size = put_headers(self, block, name, value);
  uint32_t stream = self->next_stream;
  self->next_stream += 2;
  append_frame(&self->link, FRAME_HEADERS, END_HEADERS, stream, size);
  append(&self->link, block, size);
  self->link.stream_window = self->link.initial_window;
  self->link.streaming = is(self, "unary") ? 0 : stream;
  return stream;
}

static void append_data(client *self, uint8_t flags, uint32_t stream) {
  append_frame(&self->link, FRAME_DATA, flags, stream, self->message_size);
  append(&self->link, self->message, self->message_size);
  self->link.window -= (int64_t)self->message_size;
}

static uint8_t *place_of(const client *self, uint32_t stream) {
  return self->touched + (stream / 2) % self->places * self->touch;
}

uint32_t start_call(client *self) {
  uint32_t stream = open_stream(self, NULL, NULL);
  append_data(self, END_STREAM, stream);
  if (self->touch) memset(place_of(self, stream), (int)stream, self->touch);
  self->started++;
  return stream;
}

/* ---- Replies ---- */

_Noreturn void wrong(const char *why) {
  fprintf(stderr, "bare: wrong reply: %s\n", why);
  exit(1);
}

static void on_data(connection *link, const uint8_t *bytes, size_t count) {
  client *self = link->owner;
  while (count > 0) {
    size_t rest = self->wanted_size - self->at, part = rest < count ? rest : count;
    if (memcmp(bytes, self->wanted + self->at, part) != 0) wrong("other bytes");
    self->at = part == rest ? 0 : self->at + part;
    self->received += part == rest;
    bytes += part;
    count -= part;
  }
}

static void on_end(connection *link) {
  client *self = link->owner;
  self->ended++;
  if (self->at != 0 || (is(self, "unary") && self->received != self->ended)) wrong("not one message");
  if (self->touch) {
    volatile const uint8_t *place = place_of(self, link->stream);
    for (size_t at = 0; at < self->touch; at += LINE) (void)place[at];
  }
  for (int i = 0; i < self->threads && self->callers; i++)
    if (self->callers[i].stream == link->stream) self->callers[i].ended = true;
}

static void want(client *self, const uint8_t *wanted, size_t size) {
  self->wanted = wanted;
  self->wanted_size = size;
  self->at = 0;
  self->received = self->ended = self->started = 0;
}

void need_open(const client *self) {
  if (self->link.closed) wrong("the connection has ended");
}

static void wait_and_receive(client *self) {
  await(&self->link, true, false);
  receive(&self->link);
  need_open(self);
}

/* ---- Runs ---- */

static void send_all(client *self) {
  while (!flush(&self->link)) await(&self->link, false, true);
}

static void unary_serial(client *self, long calls) {
  for (long i = 0; i < calls; i++) {
    double since = now();
    start_call(self);
    send_all(self);
    while (self->ended == i) wait_and_receive(self);
    note_latency(self, since);
  }
}

static void unary_many(client *self, long calls) {
  while (self->ended < calls) {
    while (self->started < calls && self->started - self->ended < self->in_flight &&
           self->link.window >= (int64_t)self->message_size) {
      start_call(self);
      if (self->link.out_to - self->link.out_from >= BATCH && !flush(&self->link)) break;
    }
    bool takes_more = flush(&self->link);
    await(&self->link, true, !takes_more);
    receive(&self->link);
    need_open(self);
  }
}

static void finish(client *self, uint32_t stream) {
  append_frame(&self->link, FRAME_DATA, END_STREAM, stream, 0);
  while (self->ended == 0) {
    bool takes_more = flush(&self->link);
    await(&self->link, true, !takes_more);
    receive(&self->link);
    need_open(self);
  }
}

static void pingpong(client *self, long calls) {
  uint32_t stream = open_stream(self, NULL, NULL);
  for (long i = 0; i < calls; i++) {
    double since = now();
    append_data(self, 0, stream);
    send_all(self);
    while (self->received == i) wait_and_receive(self);
    note_latency(self, since);
  }
  finish(self, stream);
}

/* Sends the messages of a stream (up, or both ways) as fast as the windows and the socket allow. With `reads` it reads after
 * each write, otherwise only when it has to wait. */
static void send_stream(client *self, uint32_t stream, long calls, bool reads) {
  connection *link = &self->link;
  sender sender;
  sender_start(&sender, link, stream, self->message, self->message_size, calls, self->copies);
  bool half_closed = false;
  while (self->ended == 0) {
    bool takes_more = sender_send(&sender), goes_on = takes_more && sender_goes_on(&sender);
    if (sender_is_done(&sender) && !half_closed) {
      append_frame(link, FRAME_DATA, END_STREAM, stream, 0);
      half_closed = true;
      continue;
    }
    if (goes_on && !reads) continue;
    if (!goes_on) await(link, true, !takes_more);
    receive(link);
    need_open(self);
  }
  sender_end(&sender);
}

static void up(client *self, long calls) {
  uint8_t reply[5 + 32] = {0};
  int digits = snprintf((char *)reply + 5, sizeof(reply) - 5, "%ld", calls);
  reply[4] = (uint8_t)digits;
  want(self, reply, 5 + (size_t)digits);
  send_stream(self, open_stream(self, "x-mode", "count"), calls, false);
  if (self->received != 1) wrong("no count");
}

static void duplex(client *self, long calls) {
  send_stream(self, open_stream(self, NULL, NULL), calls, true);
  if (self->received != calls) wrong("not as many messages");
}

static void down(client *self, long calls) {
  char count[32];
  snprintf(count, sizeof(count), "%ld", calls);
  uint32_t stream = open_stream(self, "x-repeat", count);
  sender sender;
  sender_start(&sender, &self->link, stream, self->message, self->message_size, 1, false);
  send_all(self);
  while (!sender_is_done(&sender)) {
    bool takes_more = sender_send(&sender);
    if (takes_more && (sender_is_done(&sender) || sender_goes_on(&sender))) continue;
    await(&self->link, true, !takes_more);
    receive(&self->link);
    need_open(self);
  }
  sender_end(&sender);
  finish(self, stream);
  if (self->received != calls) wrong("not as many messages");
}

/* ---- The command line ---- */

typedef void run(client *self, long calls);

static run *choose(const client *self) {
  if (is(self, "unary")) return self->threads > 1 ? unary_threads : self->in_flight > 1 ? unary_many : unary_serial;
  if (is(self, "up")) return up;
  if (is(self, "down")) return down;
  if (is(self, "duplex")) return duplex;
  if (is(self, "pingpong")) return pingpong;
  bare_die(self->what);
}

static int by_number(const void *one, const void *other) {
  uint32_t a = *(const uint32_t *)one, b = *(const uint32_t *)other;
  return (a > b) - (a < b);
}

static double percentile(const client *self, double part) {
  if (self->latency_count == 0) return 0;
  return self->latencies[(long)((double)(self->latency_count - 1) * part)] / 1e3;
}

static double seconds(struct timeval time) { return (double)time.tv_sec + (double)time.tv_usec / 1e6; }

/* CPU seconds of a process of one thread. */
static double cpu_of(int process) {
  char path[64];
  unsigned long long nanoseconds = 0;
  snprintf(path, sizeof(path), "/proc/%d/schedstat", process);
  FILE *file = fopen(path, "r");
  if (!file || fscanf(file, "%llu", &nanoseconds) != 1) bare_die(path);
  fclose(file);
  return (double)nanoseconds / 1e9;
}

static void measure(client *self, long calls, int server) {
  run *run = choose(self);
  want(self, self->message, self->message_size);
  run(self, calls / 10 + 1);
  want(self, self->message, self->message_size);
  if (run == unary_serial || run == pingpong) self->latencies = malloc((size_t)calls * sizeof(uint32_t));
  double served = server ? cpu_of(server) : 0;
  struct rusage before, after;
  getrusage(RUSAGE_SELF, &before);
  double started = now();
  run(self, calls);
  double took = now() - started;
  getrusage(RUSAGE_SELF, &after);
  if (self->latencies) qsort(self->latencies, (size_t)self->latency_count, sizeof(uint32_t), by_number);
  printf(
      "{\"calls\": %ld, \"seconds\": %.6f, \"user\": %.6f, \"system\": %.6f, \"switches\": %ld, \"max_rss_kb\": %ld, "
      "\"p50_us\": %.2f, \"p99_us\": %.2f, \"slowest\": %.3f",
      calls, took, seconds(after.ru_utime) - seconds(before.ru_utime),
      seconds(after.ru_stime) - seconds(before.ru_stime), after.ru_nvcsw - before.ru_nvcsw, after.ru_maxrss,
      percentile(self, 0.5), percentile(self, 0.99), self->slowest);
  if (server) printf(", \"server\": %.6f", cpu_of(server) - served);
  printf("}\n");
}

static int connect_to(const char *target) {
  char host[64];
  int port = 0, one = 1, found = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in address = {.sin_family = AF_INET};
  if (sscanf(target, "%63[^:]:%d", host, &port) != 2 || inet_pton(AF_INET, host, &address.sin_addr) != 1)
    bare_die(target);
  address.sin_port = htons((uint16_t)port);
  if (connect(found, (struct sockaddr *)&address, sizeof(address)) != 0) bare_die("connect");
  setsockopt(found, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  return found;
}

static void prepare(client *self, size_t touch) {
  self->message_size = 5 + self->bytes;
  self->message = calloc(1, self->message_size);
  for (int i = 0; i < 4; i++) self->message[1 + i] = (uint8_t)(self->bytes >> (24 - 8 * i));
  for (size_t i = 0; i < self->bytes; i++) self->message[5 + i] = (uint8_t)(i * 131);
  self->touch = touch;
  self->places = (size_t)self->in_flight;
  self->touched = malloc(self->places * touch + 1);
}

int main(int argc, char **argv) {
  client self = {.what = "unary",
                 .bytes = 64,
                 .in_flight = 1,
                 .threads = 1,
                 .next_stream = 1,
                 .slowest = 1,
                 .mutex = PTHREAD_MUTEX_INITIALIZER};
  server_options other = {.what = "unary"};
  const char *target = NULL, *authority = NULL;
  bool own = false, blocks = false;
  long calls = 1000, touch = 0;
  for (int i = 1; i < argc; i += 2) {
    const char *name = argv[i], *value = argv[i + 1];
    if (!value) bare_die(name);
    if (strcmp(name, "--target") == 0)
      target = value;
    else if (strcmp(name, "--server") == 0)
      own = strcmp(value, "own") == 0;
    else if (strcmp(name, "--what") == 0)
      self.what = value;
    else if (strcmp(name, "--style") == 0)
      blocks = strcmp(value, "blocking") == 0;
    else if (strcmp(name, "--tls") == 0)
      authority = value;
    else if (strcmp(name, "--cert") == 0)
      other.certificate = value;
    else if (strcmp(name, "--key") == 0)
      other.key = value;
    else if (strcmp(name, "--calls") == 0)
      calls = atol(value);
    else if (strcmp(name, "--in-flight") == 0)
      self.in_flight = atoi(value);
    else if (strcmp(name, "--threads") == 0)
      self.threads = atoi(value);
    else if (strcmp(name, "--bytes") == 0)
      self.bytes = (size_t)atol(value);
    else if (strcmp(name, "--copy") == 0)
      self.copies = atoi(value) != 0;
    else if (strcmp(name, "--touch") == 0)
      touch = atol(value);
    else
      bare_die(name);
  }
  if ((!target && !own) || self.in_flight < 1 || self.threads > 64) bare_die("--target");
  if (self.threads > 1 && (blocks || authority)) bare_die("--threads");
  prepare(&self, (size_t)touch);
  signal(SIGPIPE, SIG_IGN);

  int server = 0;
  char address[32];
  if (own) {
    uint16_t port = 0;
    other.what = self.what;
    other.bytes = self.bytes;
    other.blocks = blocks;
    if (!authority) other.certificate = NULL;
    server = server_fork(&other, &port);
    snprintf(address, sizeof(address), "127.0.0.1:%d", port);
    target = address;
  }
  SSL_CTX *tls = authority ? tls_client(authority) : NULL;
  self.is_tls = authority != NULL;
  self.link.owner = &self;
  self.link.on_data = on_data;
  self.link.on_end = on_end;
  connection_start(&self.link, connect_to(target), tls, false, blocks);
  send_all(&self);
  while (!self.link.has_settings) wait_and_receive(&self);
  measure(&self, calls, server);
  connection_end(&self.link);
  SSL_CTX_free(tls);
  free(self.message);
  free(self.touched);
  free(self.latencies);
  return 0;
}
