/* A peer that reports the messages of its calls, and a measure of the memory in use. */
#ifndef PENSTOCK_OBSERVED_H
#define PENSTOCK_OBSERVED_H

#include "others.h"

#include <malloc.h>
#include <unistd.h>

/* Default values of options, and a limit of the peer. */
enum {
  WINDOW = 1 << 20,        /* the window of a stream, on both sides */
  HELD = 65536,            /* the default of hold_bytes */
  SEND_BUFFER = 256 << 10, /* the default of send_buffer_bytes */
  PEER_KEEPS = 65536,      /* how much output of a stream waits in the peer for the client's window (docs/peer.md) */
};

#ifdef __GLIBC__
/* The number of bytes that all threads have allocated; meaningless under valgrind and sanitizers. */
static inline long bytes_in_use(void) {
  char *text = NULL;
  size_t size = 0;
  FILE *stream = open_memstream(&text, &size);
  malloc_info(0, stream);
  fclose(stream);
  /* In the XML of malloc_info the sums over all arenas come after the last arena. */
  const char *all = text, *next;
  while ((next = strstr(all, "</heap>"))) all = next + 7;
  long numbers[4];
  static const char *const names[] = {"<total type=\"fast\"", "<total type=\"rest\"", "<total type=\"mmap\"",
                                      "<system type=\"current\""};
  for (int i = 0; i < 4; i++) {
    const char *found = strstr(all, names[i]), *number = found ? strstr(found, "size=\"") : NULL;
    numbers[i] = number ? strtol(number + 6, NULL, 10) : 0;
  }
  free(text);
  return numbers[3] - numbers[0] - numbers[1] + numbers[2];
}
#endif

/* ---- A separate peer that reports the messages of its calls ---- */

typedef struct observed {
  penstock_channel *channel;
  FILE *lines;
  int input; /* the peer's standard input; the peer ends when it is closed */
  pthread_t reader;
  long in, out; /* messages that the peer has read and written in the first call that is not a unary echo */
  latch ended;
} observed;

static inline void *read_lines(void *pointer) {
  observed *observed = pointer;
  char line[4096];
  while (fgets(line, sizeof(line), observed->lines)) {
    const char *in = strstr(line, "\"messages_in\":"), *out = strstr(line, "\"messages_out\":");
    if (strstr(line, UNARY) || !in || !out) continue;
    observed->in = strtol(in + 14, NULL, 10);
    observed->out = strtol(out + 15, NULL, 10);
    latch_signal(&observed->ended);
    break;
  }
  while (fgets(line, sizeof(line), observed->lines)) continue;
  return NULL;
}

static inline bool observe(observed *observed, const char *options) {
  char address[64];
  *observed = (struct observed){.ended = LATCH_INIT};
  char *const more[] = {"--print-requests", NULL};
  int lines = start_peer(address, sizeof(address), more, &observed->input);
  observed->lines = fdopen(lines, "r");
  pthread_create(&observed->reader, NULL, read_lines, observed);
  return OK(penstock_channel_new(address, options, &observed->channel, NULL));
}

static inline void close_observed(observed *observed) {
  penstock_channel_release(observed->channel);
  close(observed->input);
  pthread_join(observed->reader, NULL);
  fclose(observed->lines);
}

/* Makes calls on the same connection, so that the peer gets many turns in which it could send. */
static inline void echo_times(penstock_channel *channel, int times) {
  for (int i = 0; i < times; i++) check_echo(channel);
}

#endif
