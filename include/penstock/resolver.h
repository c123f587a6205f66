/* Resolver: finds the addresses of a channel's target in the program's own way, instead of a look-up of its name: in a
 * file, a registry of services, a control plane. It pushes the addresses whenever they change (docs/channel.md).
 */
#ifndef PENSTOCK_RESOLVER_H
#define PENSTOCK_RESOLVER_H

#include "base.h"
#include "channel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The functions of a resolver. They tell it when addresses are needed. Each may be NULL, and a resolver may push at
 * any time, also in these functions. They run on the thread that drives the runtime, one at a time, and must return
 * soon. */
typedef struct penstock_resolver_functions {
  size_t struct_size;
  void *user_data;              /* transferred, even on error */
  penstock_finalizer finalizer; /* runs once, when the channel has closed or has another resolver, or on error */
  /* Called when addresses are wanted: the channel leaves idle, has lost a connection, or can't connect. It is called
   * again, with back-off, as long as no addresses have been pushed. Two calls may come without a `stop` between
   * them. */
  void (*resolve)(void *user_data);
  /* Called when no addresses are wanted until the next `resolve`: the channel is idle, or closes. */
  void (*stop)(void *user_data);
} penstock_resolver_functions;

#ifdef __cplusplus
static inline penstock_resolver_functions penstock_resolver_functions_init(void) {
  penstock_resolver_functions empty = penstock_resolver_functions();
  empty.struct_size = sizeof(empty);
  return empty;
}
#define PENSTOCK_RESOLVER_FUNCTIONS_INIT penstock_resolver_functions_init()
#else
#define PENSTOCK_RESOLVER_FUNCTIONS_INIT                                                                               \
  { .struct_size = sizeof(penstock_resolver_functions) }
#endif

/* The handle through which a resolver pushes. It does not retain its channel. */
typedef struct penstock_resolver penstock_resolver;

/* Lets `functions` find the addresses of the channel from now on; if it is NULL, the program pushes addresses unasked.
 * The target's name is not looked up any more; it stays the authority, and the name that TLS expects. The connection
 * stays until addresses come. If the channel had a resolver before, that one is closed.
 * result: E_INVALID_ARGUMENT: `channel` or `resolver` is NULL, or struct_size is too small. E_UNSUPPORTED: fields that
 * this version does not know. E_CLOSED, E_FORKED.
 * memory: the table is copied; its user_data is transferred, even on error, except if struct_size is too small.
 * *resolver is owned by the caller; free with penstock_resolver_release. It is set before a function is called.
 * threads: any */
PENSTOCK_API penstock_result penstock_channel_set_resolver(penstock_channel *channel,
                                                           const penstock_resolver_functions *functions,
                                                           penstock_resolver **resolver, penstock_error **error);
/* Pushes a whole snapshot, which replaces the earlier one in one step. `snapshot` is a JSON object (NUL-terminated),
 * either with the addresses or with an error:
 *   "addresses": an array of 1 to 1024 objects
 *     "address": as a target: "ipv4:192.0.2.1:443", "192.0.2.1:443", "[2001:db8::1]:443", "unix:/path", "vsock:2:5000"
 *     "weight" (1; 1 to 65535): its share of the calls in proportion to the other weights, with
 *       static_weighted_round_robin
 *     "attributes": an object of strings, for example {"zone": "a"}
 *   "service_config": as the channel's option, which holds if there is none here
 *   "error": why there are no addresses, a text for the calls that fail. Addresses that are known stay.
 * result: E_INVALID_JSON: `error` names the JSON path, and the earlier snapshot still holds. E_CLOSED: the channel has
 * closed, or has another resolver. E_FORKED, E_INVALID_ARGUMENT: NULL.
 * memory: `snapshot` is copied.
 * threads: any */
PENSTOCK_API penstock_result penstock_resolver_push(penstock_resolver *resolver, const char *snapshot,
                                                    penstock_error **error);
/* Adds a reference to `resolver`.
 * result: `resolver`; NULL for NULL.
 * memory: the reference is given back with penstock_resolver_release.
 * threads: any */
PENSTOCK_API penstock_resolver *penstock_resolver_retain(penstock_resolver *resolver);
/* Gives a reference back. The channel goes on with the last snapshot. NULL does nothing.
 * memory: the reference is the library's again.
 * threads: any */
PENSTOCK_API void penstock_resolver_release(penstock_resolver *resolver);

#ifdef __cplusplus
}
#endif
#endif
