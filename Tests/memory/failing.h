/* What the scenarios of failing.c share: results, calls and texts that may be as they should, or without memory. */
#ifndef PENSTOCK_FAILING_H
#define PENSTOCK_FAILING_H

#include <penstock/penstock.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COUNT(array) (sizeof(array) / sizeof(*(array)))
#define UNARY        "/penstock.Echo/Unary"
#define BIDI         "/penstock.Echo/Bidi"
#define STREAM       "/penstock.Echo/ServerStream"

typedef struct scenario {
  const char *name;
  void (*run)(void);
} scenario;

/* Ending with {NULL, NULL}. */
extern const scenario pieces[], calls[];

/* An allocation may have been refused: what comes may be less than it should. */
extern bool refusing;

/* Says what is wrong, and with which allocation. */
void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Whether it went well; without memory it may not. The error is looked at, and released. */
bool went(const char *what, penstock_result result, penstock_error **error);
/* The same of what should give `expected`. */
bool gave(const char *what, penstock_result result, penstock_result expected, penstock_error **error);
#define WENT(call) went(#call, (call), NULL)
#define TRY(call)  went(#call, (call), &error)
/* What comes first in a scenario, and then what is tried. */
void all_goes_well(void);
void from_here(void);
/* A text has to have this. */
void has(const char *text, const char *part);
/* The same of one that is the caller's, and is freed. */
void owned_has(char *text, const char *part);

/* host:port of the peer, and of those with TLS and with TLS and client certificates. */
extern const char *peer, *tls_peer, *certificates;

penstock_runtime *new_runtime(void);
/* A channel on a host-driven runtime of its own; NULL without memory. `options`: without the braces. */
penstock_channel *new_channel(penstock_runtime *runtime, const char *target, const char *options);
penstock_call_options *new_options(const char *json);
/* Shuts down, and lets both go; they may be NULL. */
void close_all(penstock_runtime *runtime, penstock_channel *channel);
/* Looks at a call's end, and lets the reply go: whether its code is `expected`. */
bool ended(penstock_reply *reply, int32_t expected, const void *message, size_t length);
/* Bytes that repeat after a while, and are not all the same. */
const void *some_bytes(size_t length);

#endif
