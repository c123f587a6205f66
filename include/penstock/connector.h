/* Connector: opens the sockets of a channel's connections in the program's own way, or gives sockets that are connected
 * already (docs/channel.md). TLS, the dialogue with a proxy and HTTP run on them as on the library's own.
 */
#ifndef PENSTOCK_CONNECTOR_H
#define PENSTOCK_CONNECTOR_H

#include "base.h"
#include "channel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A connection for which the channel wants a socket. The connector answers once, at once or later, on any thread, with
 * one of penstock_connecting_socket, _decline and _fail. When the last reference is given back without an answer, the
 * attempt to connect fails. */
typedef struct penstock_connecting penstock_connecting;

/* The functions of a connector. They run on the thread that drives the runtime, one at a time, and must return soon. */
typedef struct penstock_connector_functions {
  size_t struct_size;
  void *user_data;              /* transferred, even on error */
  penstock_finalizer finalizer; /* runs once, when the channel has closed or has another connector, and waits for no
                                 * answer any more; or on error */
  /* Called whenever the channel wants a connection: at first, for a further one, and after a loss or a failure, with
   * back-off. Several may be wanted at a time. It must not be NULL. `connecting` is borrowed during the call: retain it
   * to answer later. */
  void (*connect)(penstock_connecting *connecting, void *user_data);
  /* Called when nobody waits for the answer any more: the connect timeout has passed, or the channel has closed or needs
   * no connection. It is not called after an answer. May be NULL. `connecting` is borrowed during the call. */
  void (*cancel)(penstock_connecting *connecting, void *user_data);
} penstock_connector_functions;

#ifdef __cplusplus
static inline penstock_connector_functions penstock_connector_functions_init(void) {
  penstock_connector_functions empty = penstock_connector_functions();
  empty.struct_size = sizeof(empty);
  return empty;
}
#define PENSTOCK_CONNECTOR_FUNCTIONS_INIT penstock_connector_functions_init()
#else
#define PENSTOCK_CONNECTOR_FUNCTIONS_INIT                                                                              \
  { .struct_size = sizeof(penstock_connector_functions) }
#endif

/* Lets `functions` open the sockets of the connections that the channel makes from now on; if it is NULL, the library
 * opens them again. Connections that there are stay. Set it before the first call, so that no connection is
 * made without it.
 * result: E_INVALID_ARGUMENT: `channel` is NULL, the table has no `connect`, or struct_size is too small. E_UNSUPPORTED:
 * fields that this version does not know. E_CLOSED, E_FORKED.
 * memory: the table is copied; its user_data is transferred, even on error, except if struct_size is too small.
 * threads: any */
PENSTOCK_API penstock_result penstock_channel_set_connector(penstock_channel *channel,
                                                            const penstock_connector_functions *functions,
                                                            penstock_error **error);
/* Gives the address to connect to, such as "192.0.2.1:443", "[::1]:443" or "unix:/path". In a channel with a proxy it is
 * the proxy's.
 * result: NUL-terminated; NULL for NULL.
 * memory: lives as long as the caller has a reference.
 * threads: any */
PENSTOCK_API const char *penstock_connecting_address(const penstock_connecting *connecting);
/* Gives the same address as a `struct sockaddr *`, and its length in bytes.
 * result: the address; NULL for NULL.
 * memory: lives as long as the caller has a reference. `length` may be NULL.
 * threads: any */
PENSTOCK_API const void *penstock_connecting_sockaddr(const penstock_connecting *connecting, size_t *length);
/* Gives the channel's target, as the program wrote it.
 * result: NUL-terminated; NULL for NULL.
 * memory: lives as long as the caller has a reference.
 * threads: any */
PENSTOCK_API const char *penstock_connecting_target(const penstock_connecting *connecting);
/* Answers with a connected stream socket: of TCP, a unix socket, a socketpair or a vsock. Whether it is blocking does not
 * matter. The address for which it is connected is not compared with the one that was asked for.
 * result: E_INVALID_ARGUMENT: NULL, or the descriptor is not open, not a stream socket, or not connected: the connector
 * can still answer, and if it does not, these words are those of the failure. E_ALREADY: it has been answered.
 * E_GONE: nobody waits for the answer any more. E_FORKED.
 * memory: the descriptor is the library's, which closes it, if the result is PENSTOCK_OK; otherwise the caller's.
 * threads: any */
PENSTOCK_API penstock_result penstock_connecting_socket(penstock_connecting *connecting, int32_t descriptor,
                                                        penstock_error **error);
/* Answers that the library is to open the socket itself, as without a connector.
 * result: E_INVALID_ARGUMENT: NULL. E_ALREADY, E_GONE, E_FORKED: as above.
 * memory: none.
 * threads: any */
PENSTOCK_API penstock_result penstock_connecting_decline(penstock_connecting *connecting);
/* Answers that there is no connection: the attempt to connect fails, and the next one comes after a back-off. `message`
 * (NUL-terminated, nullable) is a part of the text of the calls that fail.
 * result: E_INVALID_ARGUMENT: NULL, or `message` is not UTF-8. E_ALREADY, E_GONE, E_FORKED: as above.
 * memory: `message` is copied.
 * threads: any */
PENSTOCK_API penstock_result penstock_connecting_fail(penstock_connecting *connecting, const char *message);
/* Adds a reference to `connecting`.
 * result: `connecting`; NULL for NULL.
 * memory: the reference is given back with penstock_connecting_release.
 * threads: any */
PENSTOCK_API penstock_connecting *penstock_connecting_retain(penstock_connecting *connecting);
/* Gives a reference back. NULL does nothing.
 * memory: the reference is the library's again.
 * threads: any */
PENSTOCK_API void penstock_connecting_release(penstock_connecting *connecting);

#ifdef __cplusplus
}
#endif
#endif
