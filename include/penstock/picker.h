/* Picker: chooses the endpoint of each attempt in the program's own way, from the call and from the properties of the
 * endpoints (docs/channel.md).
 */
#ifndef PENSTOCK_PICKER_H
#define PENSTOCK_PICKER_H

#include "base.h"
#include "channel.h"
#include "request.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A call that needs an endpoint, and the endpoints that are ready, as a picker sees them. The handle is valid until the
 * picker returns; the functions below are for the thread that runs the picker. */
typedef struct penstock_pick penstock_pick;

#define PENSTOCK_PICK_WAIT (-1) /* the call waits; the picker is asked again when the endpoints have changed */
#define PENSTOCK_PICK_FAIL (-2) /* the call ends, with the status of penstock_pick_fail */

/* Chooses the endpoint of one attempt. Returns the index of that endpoint, from 0 to penstock_pick_count - 1, or
 * PENSTOCK_PICK_...; any other number ends the call with INTERNAL. It is called on the thread that drives the runtime,
 * for each attempt, and must return soon: a function that waits gives PENSTOCK_E_WOULD_DEADLOCK there. */
typedef int32_t (*penstock_picker)(penstock_pick *pick, void *user_data);

/* Lets `picker` choose the endpoint of each attempt from now on, instead of the policy of the service config; NULL: the
 * policy chooses again. A channel with a picker connects to every address, as with round_robin. The new picker
 * is also asked about calls that wait already.
 * result: E_INVALID_ARGUMENT: the channel is NULL. E_CLOSED, E_FORKED.
 * memory: `user_data` is transferred, even on error: `finalizer` (nullable) gets it when the channel has another picker
 * or none, or has closed.
 * threads: any */
PENSTOCK_API penstock_result penstock_channel_set_picker(penstock_channel *channel, penstock_picker picker,
                                                         void *user_data, penstock_finalizer finalizer);
/* Gives the request of the call, for reading: its method, metadata, deadline and settings, as the hops have left them.
 * A setter gives E_STATE.
 * result: the request; NULL for NULL.
 * memory: borrowed until the picker returns.
 * threads: the picker's */
PENSTOCK_API penstock_request *penstock_pick_request(penstock_pick *pick);
/* Gives the call's context (penstock_call_options_set_context).
 * result: the context; NULL if there is none, outside of the picker, and for NULL.
 * memory: lives until the picker returns.
 * threads: the picker's */
PENSTOCK_API void *penstock_pick_context(const penstock_pick *pick);
/* Tells how many endpoints there are to choose from. Ready endpoints do not count if hops have refused
 * them for this attempt (on_pick), if the request rules them out (penstock_request_prefer), or if outlier detection has
 * taken them out.
 * result: at least 1; 0 outside of the picker, and for NULL.
 * memory: none.
 * threads: the picker's */
PENSTOCK_API size_t penstock_pick_count(const penstock_pick *pick);
/* Gives the address of the endpoint at `index`, such as "192.0.2.1:443", "[::1]:443" or "unix:/path".
 * result: NUL-terminated; NULL if there is none, and for NULL.
 * memory: borrowed until the picker returns.
 * threads: the picker's */
PENSTOCK_API const char *penstock_pick_address(const penstock_pick *pick, size_t index);
/* Gives the weight that the resolver has given the endpoint at `index`.
 * result: 1 if it has given none; 0 if there is no such endpoint, and for NULL.
 * memory: none.
 * threads: the picker's */
PENSTOCK_API uint32_t penstock_pick_weight(const penstock_pick *pick, size_t index);
/* Gives the value of the attribute `name` that the resolver has given the endpoint at `index`.
 * result: NUL-terminated; NULL if there is no such attribute or endpoint, and for NULL.
 * memory: borrowed until the picker returns.
 * threads: the picker's */
PENSTOCK_API const char *penstock_pick_attribute(const penstock_pick *pick, size_t index, const char *name);
/* Sets the status for PENSTOCK_PICK_FAIL: `code` is any PENSTOCK_STATUS_... but OK, `message` a text (nullable).
 * Without this function the status is UNAVAILABLE.
 * result: E_INVALID_ARGUMENT: NULL, or another code. E_STATE: no picker runs.
 * memory: `message` is copied.
 * threads: the picker's */
PENSTOCK_API penstock_result penstock_pick_fail(penstock_pick *pick, int32_t code, const char *message);

#ifdef __cplusplus
}
#endif
#endif
