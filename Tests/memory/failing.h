/* Shared by the scenarios of failing.c: checks of results, calls and texts. Each must be right, or must have failed for
 * lack of memory. */
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

/* The scenarios; each list ends with {NULL, NULL}. */
extern const scenario pieces[], calls[], ready_calls[];

/* Whether an allocation may have been refused: then results may be incomplete. */
extern bool refusing;

/* Reports a failure, and the stack of the refused allocation. */
void wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Checks that the function `what` gave OK, or E_NO_MEMORY while `refusing`; checks and releases the error. Returns
 * whether the result was OK. */
bool went(const char *what, penstock_result result, penstock_error **error);
/* Checks that the function `what` gave `expected`, or E_NO_MEMORY while `refusing`; checks and releases the error.
 * Returns whether the result was `expected`. */
bool gave(const char *what, penstock_result result, penstock_result expected, penstock_error **error);
#define WENT(call) went(#call, (call), NULL)
#define TRY(call)  went(#call, (call), &error)
/* Between these two calls, in which a scenario prepares itself, no allocation fails. */
void all_goes_well(void);
void from_here(void);
/* Checks that a text contains this part, or is "{}" while `refusing`. */
void has(const char *text, const char *part);
/* Checks a text as `has` does, and then frees it. */
void owned_has(char *text, const char *part);

/* host:port of a peer without TLS, and of one with TLS that asks for a client certificate; the folder of
 * certificates. */
extern const char *peer, *tls_peer, *certificates;

penstock_runtime *new_runtime(void);
/* Makes a channel on this runtime; NULL: no memory. */
penstock_channel *new_channel(penstock_runtime *runtime, const char *target, const char *options);
penstock_call_options *new_options(const char *json);
/* Shuts the runtime down, and releases the runtime and the channel; each may be NULL. */
void close_all(penstock_runtime *runtime, penstock_channel *channel);
/* Checks the end of a call: its code, which may also be one for lack of memory while `refusing`; with the code
 * `expected` also the response message, unless `message` is NULL. Releases the reply. Returns whether the code is
 * `expected`. */
bool ended(penstock_reply *reply, int32_t expected, const void *message, size_t length);
/* Gives `length` bytes that are not all the same; NULL: the length is too large. */
const void *some_bytes(size_t length);

#endif
