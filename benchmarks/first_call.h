/* Shared by penstock_first and nghttp2_first: the clock since the start of the process, and the request. */
#ifndef FIRST_CALL_H
#define FIRST_CALL_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FIRST_CALL_BYTES 64

static inline double first_call_now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

/* The time at which this program was executed, in microseconds: so the time includes loading the libraries that it is linked
 * with. The program executes itself once more and passes the time to the second instance. */
static inline double first_call_started_us(char **argv) {
  const char *name = "FIRST_CALL_STARTED_US", *told = getenv(name);
  if (told) return atof(told);
  char now[64];
  snprintf(now, sizeof(now), "%.3f", first_call_now_us());
  setenv(name, now, 1);
  execv("/proc/self/exe", argv);
  perror("execv");
  exit(1);
}

static inline void first_call_pattern(uint8_t *bytes) {
  for (int i = 0; i < FIRST_CALL_BYTES; i++) bytes[i] = (uint8_t)(i * 131);
}

#endif
