/* Functions that make a call in the style that the client was asked for, so that a test case is written once for all
 * styles.
 *
 * Every call is watched: exactly one reply, nothing after it, the finalizer once; and the probe, an interceptor on the
 * channel, counts that each hop ends once (laws 1 and 2).
 */
#ifndef INTEROP_RPC_H
#define INTEROP_RPC_H

#include "wire.h"

#include <penstock/penstock.h>

#include <stdatomic.h>
#include <stdbool.h>

/* Which thread drives the loop, and how calls report events. */
typedef enum style {
  STYLE_BLOCKING,      /* blocking calls that drive the loop of the runtime */
  STYLE_CALLBACK,      /* callbacks on the runtime's own thread */
  STYLE_THREAD,        /* blocking calls that wait for the runtime's own thread */
  STYLE_HOST,          /* blocking calls that drive a host-driven runtime */
  STYLE_HOST_CALLBACK, /* callbacks out of penstock_runtime_poll */
} style;

/* Finds the style (the way in which a call is made and waited for) that has this name. False: there is none. */
bool style_read(const char *name, style *style);
extern const char *const style_names[];

typedef struct client {
  style style;
  const char *target;
  const char *options; /* of the channel */
  penstock_runtime *runtime;
  penstock_channel *channel;
  bool probed; /* whether the channel has the probe */
  /* How often each of the probe's callbacks ran: create, destroy, on_status and on_cancel. */
  atomic_int created, destroyed, statuses, cancels;
} client;

/* Makes the runtime and the channel. If that fails, notes a failure and returns false. */
bool client_open(client *self);
/* Releases the channel, shuts the runtime down, and checks the counts of the probe. */
void client_close(client *self);

/* ---- Failures ---- */

extern atomic_int failures;
__attribute__((format(printf, 3, 4))) void failed(const char *file, int line, const char *format, ...);
#define FAIL(...)        failed(__FILE__, __LINE__, __VA_ARGS__)
#define CHECK(condition) ((condition) ? true : (FAIL("%s", #condition), false))
#define REQUIRE(condition)                                                                                             \
  do {                                                                                                                 \
    if (!CHECK(condition)) goto end;                                                                                   \
  } while (0)
#define CHECK_INT(found, expected) check_int(__FILE__, __LINE__, #found, (int64_t)(found), (int64_t)(expected))
bool check_int(const char *file, int line, const char *what, int64_t found, int64_t expected);
#define CHECK_OK(result)               check_result(__FILE__, __LINE__, #result, (result), PENSTOCK_OK)
#define CHECK_RESULT(result, expected) check_result(__FILE__, __LINE__, #result, (result), (expected))
bool check_result(const char *file, int line, const char *what, penstock_result found, penstock_result expected);
#define CHECK_STATUS(reply, code, message) check_status(__FILE__, __LINE__, (reply), (code), (message))
/* Checks the status of a reply. `message`: the whole text that it must have; NULL: any text will do. */
bool check_status(const char *file, int line, const penstock_reply *reply, int32_t code, const char *message);

int64_t now_us(void);

/* ---- Calls ---- */

typedef struct rpc rpc;

/* Starts a call. `options` is JSON or NULL. Returns NULL if the call could not be started; a failure is noted then. */
rpc *rpc_start(client *client, const char *method, int32_t kind, const char *options);
/* Sends a message; waits until there is room for it. */
penstock_result rpc_send(rpc *self, const void *data, size_t length);
penstock_result rpc_try_send(rpc *self, const void *data, size_t length);
penstock_result rpc_half_close(rpc *self);
/* The next message, to be released; NULL at the end. */
penstock_message *rpc_receive(rpc *self);
/* The response headers, which live as long as the call; NULL if the answer has none. */
const penstock_metadata *rpc_headers(rpc *self);
/* Half-closes, and waits for the end of the call; messages that still come are discarded. The reply lives as long as
 * the call. */
penstock_reply *rpc_finish(rpc *self);
void rpc_cancel(rpc *self, const char *reason);
bool rpc_has_ended(rpc *self);
/* How many messages the transport has taken, in callback style. */
uint64_t rpc_sent(rpc *self);
/* Frees the call. Waits for its end first, if it has not ended, and checks that it ended once. */
void rpc_free(rpc *self);

/* Makes a whole unary call, in the shortest way that the style has. NULL: the call could not be started; a failure is
 * noted then. */
penstock_reply *rpc_unary(client *client, const char *method, const void *request, size_t length, const char *options);

#endif
