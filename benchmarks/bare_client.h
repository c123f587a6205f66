/* Declarations for the source files of the bare client: a client of prepared HTTP/2 frames, with which the library is
 * compared. */
#ifndef BARE_CLIENT_H
#define BARE_CLIENT_H

#include "bare.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

typedef struct caller {
  uint32_t stream;
  bool ended;
  sem_t wake; /* wakes the caller when its reply is there, or when it has to read for all callers */
  pthread_t thread;
  struct client *client;
  long calls;
} caller;

typedef struct client {
  connection link;
  const char *what;
  size_t bytes;
  int in_flight, threads;
  bool copies, is_tls;
  uint8_t *message, *request; /* with its prefix; HEADERS and DATA of a unary call */
  size_t message_size, request_size;
  /* The expected bytes, and how many of them have come. */
  const uint8_t *wanted;
  size_t wanted_size, at;
  long received, ended, started;
  uint32_t next_stream;
  bool is_indexed; /* whether the server's HPACK table has our headers */
  uint8_t *touched;
  size_t touch, places;
  uint32_t *latencies;
  long latency_count;
  double slowest;
  /* The following fields are for unary calls from several threads. */
  pthread_mutex_t mutex;
  pthread_barrier_t start;
  atomic_long left;
  bool is_led;
  caller *callers;
} client;

/* Appends the frames of a unary call to the bytes to be written; returns its stream. */
uint32_t start_call(client *self);
_Noreturn void wrong(const char *why);
/* Ends the program with an error if the server has ended the connection. */
void need_open(const client *self);
void unary_threads(client *self, long calls);

#endif
