/* A library to be preloaded into a client that makes one call after the other. It measures the times from the write of one
 * request to the write of the next, in the same way for every client. (A client's own clock may leave out a part of a call;
 * h2load's does.) At the end it writes the times to the file that CYCLE_FILE names, as doubles in microseconds. A write with
 * fewer bytes than a request does not count: it is a WINDOW_UPDATE, or the answer to a PING. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { LEAST_BYTES = 40, MOST = 1 << 20 };

static double times[MOST];
static size_t count;

static void note(int file, size_t length) {
  struct timespec time;
  if (file <= STDERR_FILENO || length < LEAST_BYTES || count == MOST) return;
  clock_gettime(CLOCK_MONOTONIC, &time);
  times[count++] = (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static size_t length_of(const struct iovec *parts, size_t number) {
  size_t length = 0;
  for (size_t i = 0; i < number; i++) length += parts[i].iov_len;
  return length;
}

/* Defines `next`: libc's function `name`, which the function here hides. It is looked up once. */
#define NEXT(name)                                                                                                     \
  static __typeof__(&name) next;                                                                                       \
  if (!next) *(void **)&next = dlsym(RTLD_NEXT, #name)

ssize_t write(int file, const void *bytes, size_t length) {
  NEXT(write);
  note(file, length);
  return next(file, bytes, length);
}

ssize_t send(int file, const void *bytes, size_t length, int flags) {
  NEXT(send);
  note(file, length);
  return next(file, bytes, length, flags);
}

ssize_t writev(int file, const struct iovec *parts, int number) {
  NEXT(writev);
  note(file, length_of(parts, (size_t)number));
  return next(file, parts, number);
}

ssize_t sendmsg(int file, const struct msghdr *message, int flags) {
  NEXT(sendmsg);
  note(file, length_of(message->msg_iov, message->msg_iovlen));
  return next(file, message, flags);
}

__attribute__((destructor)) static void tell(void) {
  const char *path = getenv("CYCLE_FILE");
  FILE *file = path && count > 1 ? fopen(path, "wb") : NULL;
  if (!file) return;
  for (size_t i = 1; i < count; i++) {
    double between = times[i] - times[i - 1];
    fwrite(&between, sizeof(between), 1, file);
  }
  fclose(file);
}
