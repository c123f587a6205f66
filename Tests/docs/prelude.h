/* Precedes each C fragment of docs/interceptors.md: defines the names that the fragments use. */
#ifndef PRELUDE_H
#define PRELUDE_H
#include <penstock/penstock.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "timers.h"

/* A fragment shows only the important parts, so some parameters of its callbacks are unused. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

#define UNARY "/penstock.Echo/Unary"

typedef struct cached {
  const void *data;
  size_t length;
} cached;
typedef struct number_of_messages {
  int seen;
} number_of_messages;
typedef struct point {
  double x, y;
} point;
typedef struct waiting_start {
  penstock_ticket ticket;
  penstock_hop *bound;
} waiting_start;

/* Objects that `state` may point to. The marker of a fragment names the one that the fragment uses. */
static cached last = {"you", 3};
static number_of_messages counter;
static char token[] = "Bearer new";
static void *nothing;

static void *answer_on_a_thread(void *ticket) {
  penstock_ticket_resolve((penstock_ticket)(uintptr_t)ticket, PENSTOCK_NEXT);
  return NULL;
}
static void ask_for_a_token(void *state, penstock_ticket ticket) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, answer_on_a_thread, (void *)(uintptr_t)ticket) != 0) abort();
  pthread_detach(thread);
}
/* fetch_token calls `done` with the token on another thread. */
typedef struct token_wanted {
  void (*done)(penstock_hop *waiting, const char *token);
  penstock_hop *waiting;
} token_wanted;
static void *bring_token(void *wanted) {
  ((token_wanted *)wanted)->done(((token_wanted *)wanted)->waiting, token);
  free(wanted);
  return NULL;
}
static void fetch_token(void (*done)(penstock_hop *waiting, const char *token), penstock_hop *waiting) {
  token_wanted *wanted = malloc(sizeof(*wanted));
  pthread_t thread;
  *wanted = (token_wanted){done, waiting};
  if (pthread_create(&thread, NULL, bring_token, wanted) != 0) abort();
  pthread_detach(thread);
}
static const char *token_of(const char *host) { return NULL; }
/* A cache with one answer. */
static cached known = {"you, from the cache", 19}, unknown;
static cached *cache_entry(const void *key, size_t length) {
  return length == 3 && memcmp(key, "you", 3) == 0 ? &known : &unknown;
}
static void cache_fill(cached *entry, const void *data, size_t length) {}
static bool is_enough(penstock_hop *hop, void *state) { return false; }
static void forget(penstock_ticket ticket) {}

#endif
