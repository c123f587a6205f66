/* The functions that a callback uses on its hop. They read and change the event and the call, let the event wait, and
 * end or answer the call.
 *
 * During a callback, the hop stands at the event for which the callback was called. Unless its comment says otherwise,
 * a function here is called in a callback of its hop, on the callback's thread. Elsewhere the function gives
 * PENSTOCK_E_STATE (NULL if it returns a pointer), and PENSTOCK_E_GONE once the hop's part in the call is over (the
 * hop's end): when the status has passed the hop, when the hop has ended the call itself, or when on_cancel has come.
 *
 * A bound hop is another handle of the hop, at one event that may wait: penstock_ticket_hop makes one, and each
 * callback in asynchronous style gets one. Any thread may use it, one at a time. While the event waits,
 * penstock_hop_event, _metadata, _message, _set_message and _status show and change it, and penstock_hop_resolve and
 * _end end the wait; after the wait these functions give PENSTOCK_E_GONE, PENSTOCK_EVENT_NONE or NULL. The metadata and
 * the status that a bound hop has given live as long as the handle; after the wait other code may change them. In the
 * callback that got it, a bound hop can do everything that the callback's own hop can. Later, for as long as it is
 * kept, it can do what a retained hop can do on any thread: end the call, half-close, send and deliver.
 *
 * Three things end the wait of an event, each on any thread; the first one counts:
 *
 *               | comes from                     | ends the wait with               | the event itself  | used by
 *   ------------+--------------------------------+----------------------------------+-------------------+-------------
 *   a ticket    | penstock_hop_ticket, in a      | penstock_ticket_resolve, _end:   | not shown, except | any number
 *               | callback that returns PAUSE or | a verdict, or the end of the     | by                | of threads:
 *               | HOLD                           | call                             | penstock_ticket_  | it is a
 *               |                                |                                  | hop               | number
 *   a bound hop | penstock_ticket_hop; the       | penstock_hop_resolve, _end: a    | read and changed  | one thread
 *               | argument of each callback in   | verdict, or the end of the call  |                   | at a time
 *               | asynchronous style             |                                  |                   |
 *   a retained  | penstock_hop_retain, in any    | penstock_hop_end: the end of the | not shown         | any number
 *   hop         | callback                       | call, never a verdict            |                   | of threads
 *
 * The library does not wait for a ticket that nobody uses: the call's deadline or a cancel ends the wait. The last
 * release of an unresolved bound hop of the asynchronous style ends the call. A retained hop is released without effect.
 */
#ifndef PENSTOCK_HOP_H
#define PENSTOCK_HOP_H

#include "channel.h"
#include "codec.h"
#include "interceptor.h"
#include "request.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PENSTOCK_EVENT_NONE       0
#define PENSTOCK_EVENT_START      1
#define PENSTOCK_EVENT_SEND       2
#define PENSTOCK_EVENT_HALF_CLOSE 3
#define PENSTOCK_EVENT_HEADERS    4
#define PENSTOCK_EVENT_RECEIVE    5
#define PENSTOCK_EVENT_STATUS     6
#define PENSTOCK_EVENT_CANCEL     7
#define PENSTOCK_EVENT_DEMAND     8
#define PENSTOCK_EVENT_SENT       9
#define PENSTOCK_EVENT_CREATE     10
#define PENSTOCK_EVENT_DESTROY    11
#define PENSTOCK_EVENT_PICK       12

/* ---- The hop and its call ---- */

/* Adds a reference to the handle, which then stays valid after `destroy`. The reference keeps the memory of the call,
 * but does not keep the call from ending.
 * result: `hop`; NULL for NULL.
 * memory: the reference is given back with penstock_hop_release.
 * threads: any */
PENSTOCK_API penstock_hop *penstock_hop_retain(penstock_hop *hop);
/* Gives a reference back. NULL does nothing.
 * memory: the reference is the library's again. The last release of a bound hop of the asynchronous style whose event
 * has not been resolved ends the call with INTERNAL.
 * threads: any */
PENSTOCK_API void penstock_hop_release(penstock_hop *hop);
/* Tells the event of the running callback, or the event of a bound hop as long as it waits.
 * result: PENSTOCK_EVENT_...; PENSTOCK_EVENT_NONE otherwise, and for NULL.
 * memory: none.
 * threads: any */
PENSTOCK_API int32_t penstock_hop_event(const penstock_hop *hop);
/* Gives a number that names the call within the process.
 * result: the number; 0 for NULL.
 * memory: none.
 * threads: any */
PENSTOCK_API uint64_t penstock_hop_call_id(const penstock_hop *hop);
/* Tells the kind of the call.
 * result: PENSTOCK_KIND_...; -1 for NULL.
 * memory: none.
 * threads: any */
PENSTOCK_API int32_t penstock_hop_kind(const penstock_hop *hop);
/* In create: makes the hop's other callbacks in this call run on these executors, instead of those of the registration:
 * on_start, on_send, on_half_close and on_sent on `outbound`, the others on `inbound`; NULL is the driving thread. If
 * only `inbound` is NULL, on_cancel, destroy and the on_status of a local cancel or deadline run on `outbound`, too.
 * result: E_INVALID_ARGUMENT: `hop` is NULL. E_STATE: not in create. E_GONE; E_FORKED.
 * memory: both executors are retained.
 * threads: the thread of create. */
PENSTOCK_API penstock_result penstock_hop_set_executors(penstock_hop *hop, penstock_executor *outbound,
                                                        penstock_executor *inbound);
/* Tells the number of this instance of the hop: 1 for the first, and one more for each new instance. A new instance is
 * made by each RESTART of a hop above, and for a hop per attempt also when the library itself sends the request again.
 * result: the number; 0 for NULL.
 * memory: none.
 * threads: any */
PENSTOCK_API uint32_t penstock_hop_attempt(const penstock_hop *hop);
/* Tells the level of this hop: a registration with PENSTOCK_LEVEL_BOTH has one hop at each level.
 * result: PENSTOCK_LEVEL_OBJECT or PENSTOCK_LEVEL_BYTES; -1 for NULL.
 * memory: none.
 * threads: any */
PENSTOCK_API int32_t penstock_hop_level(const penstock_hop *hop);
/* Tells whether the call is protected on its way, by TLS or a unix socket. The answer is for the call's channel, or for
 * the channel to which a hop has redirected the call.
 * result: 1 if so; 0 in cleartext, and for NULL.
 * memory: none.
 * threads: any, also before there is a connection */
PENSTOCK_API int32_t penstock_hop_is_secure(const penstock_hop *hop);
/* Tells the protocol of the call's channel, or of the channel to which a hop has redirected the call: "grpc",
 * "grpc-web", "grpc-web-text" or "connect".
 * result: NUL-terminated; NULL for NULL.
 * memory: static.
 * threads: any */
PENSTOCK_API const char *penstock_hop_protocol(const penstock_hop *hop);
/* Gives the target, as the program gave it, of the call's channel or of the channel to which a hop has redirected it.
 * result: NUL-terminated; NULL for NULL.
 * memory: borrowed from `hop`; lives as long as `hop`, but after a redirect only until the call ends.
 * threads: any */
PENSTOCK_API const char *penstock_hop_target(const penstock_hop *hop);

/* Gives the address that was picked for the attempt, in on_pick: such as "192.0.2.1:443", "[::1]:443" or "unix:/path".
 * result: NUL-terminated; NULL elsewhere, and for NULL.
 * memory: borrowed during the callback.
 * threads: the callback's thread */
PENSTOCK_API const char *penstock_hop_address(const penstock_hop *hop);
/* Gives the value of the attribute `name` that the resolver has given the picked address, in on_pick.
 * result: NUL-terminated; NULL if there is no such attribute, elsewhere, and for NULL.
 * memory: borrowed during the callback.
 * threads: the callback's thread */
PENSTOCK_API const char *penstock_hop_address_attribute(const penstock_hop *hop, const char *name);

/* Tells in words why the latest function that can give E_STATE gave it for `hop`, on any thread. For a function with a
 * penstock_request, ask the hop that gave the request.
 * result: NUL-terminated; "" if that function gave another result, and for NULL.
 * memory: static; free nothing.
 * threads: any */
PENSTOCK_API const char *penstock_hop_why(const penstock_hop *hop);

/* ---- The event ---- */

/* Gives the metadata of the event: in create and on_start the request's, in on_headers the response's, in on_status and
 * on_cancel the trailers. It can be changed in on_start, on_headers and on_status.
 * result: the metadata; NULL elsewhere, and for NULL.
 * memory: borrowed during the callback. From a bound hop, such as that of penstock_ticket_hop, it lives as long as the
 * handle; once the event goes on from this hop, other hops and the library may change it.
 * threads: the callback's thread; for a bound hop any thread, one at a time. */
PENSTOCK_API penstock_metadata *penstock_hop_metadata(penstock_hop *hop);
/* Gives the message, in on_send and on_receive; if it has been replaced, the new one. Read it with
 * penstock_message_bytes and penstock_message_object.
 * result: the message; NULL elsewhere, after the hop's end, in a forked child, and for NULL.
 * memory: borrowed during the callback; from a bound hop, until the wait is over; in the function of a synchronous
 * interceptor, until it is replaced, next is called or the function returns. Bytes and object live until it is
 * replaced.
 * threads: the callback's thread; for a bound hop any thread, one at a time. */
PENSTOCK_API const penstock_message *penstock_hop_message(penstock_hop *hop);
/* Gives the codec of the call, for penstock_message_new_object, to a hop that sees objects: a hop at the object level
 * of a call that has a codec.
 * result: the codec; NULL where messages are bytes, and for NULL.
 * memory: borrowed from `hop`; lives as long as `hop`.
 * threads: any thread that has the hop. */
PENSTOCK_API penstock_codec *penstock_hop_codec(const penstock_hop *hop);
/* Replaces the message by `length` bytes at `data` (NULL only with length 0), in on_send and on_receive.
 * result: E_INVALID_ARGUMENT. E_STATE: elsewhere, and where messages are objects. E_GONE; E_FORKED; E_NO_MEMORY.
 * memory: `data` is copied.
 * threads: the callback's thread; for a bound hop any thread. */
PENSTOCK_API penstock_result penstock_hop_set_bytes(penstock_hop *hop, const void *data, size_t length);
/* Replaces the message by `message`, in on_send and on_receive. The new message has bytes, or an object of the call's
 * codec if the hop sees objects.
 * result: as penstock_hop_set_bytes; E_STATE too for a message that is not of that kind.
 * memory: nothing is copied; `message` stays the caller's.
 * threads: as with penstock_hop_set_bytes. */
PENSTOCK_API penstock_result penstock_hop_set_message(penstock_hop *hop, penstock_message *message);
/* Gives the status, in on_status and on_cancel. It can be changed in on_status, unless it comes from a local cancel or
 * deadline.
 * result: the status; NULL elsewhere, and for NULL.
 * memory: borrowed during the callback; from a bound hop it lives as long as the handle, but other code may change it
 * once the wait is over.
 * threads: the callback's thread; for a bound hop any thread, one at a time. */
PENSTOCK_API penstock_status *penstock_hop_status(penstock_hop *hop);
/* Gives, in on_demand, how many more messages are asked for; in on_sent, how many messages the transport has taken, or
 * hops below have dropped, since the last on_sent.
 * result: the number; 0 elsewhere, and for NULL.
 * memory: none.
 * threads: the callback's thread. */
PENSTOCK_API uint64_t penstock_hop_count(const penstock_hop *hop);
/* In on_demand: asks below for `n` messages, instead of the number that the layers above have asked for. If `n` is
 * smaller, penstock_hop_demand can ask for the rest later.
 * result: E_INVALID_ARGUMENT: NULL. E_STATE: not in on_demand. E_GONE; E_FORKED.
 * memory: none.
 * threads: the callback's thread. */
PENSTOCK_API penstock_result penstock_hop_set_count(penstock_hop *hop, uint64_t n);

/* ---- The start ---- */

/* Gives the start of the call as the hop sees it: request.h says when it can be read and changed.
 * result: the request; NULL for NULL.
 * memory: borrowed from `hop`; lives as long as `hop`.
 * threads: any */
PENSTOCK_API penstock_request *penstock_hop_request(penstock_hop *hop);
/* Tells, in on_status, whether the verdict may be RESTART; if it may not, a RESTART passes the status on. On an
 * executor the result describes the moment at which the status came to the hop. Since then, messages that the hop has
 * delivered may have gone to the hops above, so that a RESTART is not possible any more.
 * result: PENSTOCK_OK: it may. E_INVALID_ARGUMENT: NULL. E_STATE: not in on_status, the hop records no requests
 * (replay_bytes is 0), headers or a message have gone above this hop, or the status is a local cancel or deadline.
 * E_TOO_LARGE: the request was over replay_bytes. E_ALREADY: max_restarts is used up. E_UNSUPPORTED: objects that can't
 * be copied. E_NO_MEMORY; E_GONE; E_FORKED.
 * memory: none.
 * threads: the callback's thread. */
PENSTOCK_API penstock_result penstock_hop_can_restart(const penstock_hop *hop);

/* ---- Side calls ---- */

/* The flags of a side call. */
#define PENSTOCK_SIDE_CALL_FROM_TOP 1u /* it passes the whole chain of its method, this hop's interceptor included */
#define PENSTOCK_SIDE_CALL_DETACHED 2u /* it has only its own deadline, and goes on after the hop's call has ended */

/* Starts a side call for the hop's call, on the channel of that call: for example to fetch a token, or to ask a cache.
 * It is like penstock_channel_call with `method`, `kind`, `options` and `callbacks`, with these differences. `flags`
 * are PENSTOCK_SIDE_CALL_..., joined by |, or 0. Without FROM_TOP its chain has only the interceptors that a new call
 * to `method` would have below this hop, and so never the hop's own. Without DETACHED it inherits the deadline of the
 * hop's call, if that is earlier than its own, and ends with CANCELLED when that call ends. Without FROM_TOP a side
 * call of a hop at the bytes level takes bytes, unless its options have a codec; every other side call has the codec of
 * its options or of the channel. In a callback on the driving thread use `callbacks`: waiting there gives
 * E_WOULD_DEADLOCK. These callbacks may run after the `destroy` of this hop.
 * result: as penstock_channel_call. E_GONE: the hop's destroy runs, or the call has ended. E_CLOSED: the channel has
 * been closed.
 * memory: *call is owned by the caller; free with penstock_call_release.
 * threads: any thread that has the hop. */
PENSTOCK_API penstock_result penstock_hop_start_side_call(penstock_hop *hop, const char *method, int32_t kind,
                                                          uint32_t flags, const penstock_call_options *options,
                                                          const penstock_call_callbacks *callbacks,
                                                          penstock_call **call, penstock_error **error);

/* ---- Statistics, certificates and the trace ---- */

/* Gives the statistics of the call so far, as penstock_reply_stats_json does; values that are not known yet are null or
 * 0. The connection is known in on_headers at the latest.
 * result: E_INVALID_ARGUMENT: a NULL. E_FORKED; E_NO_MEMORY.
 * memory: *json is owned by the caller; free with penstock_free.
 * threads: the thread of a callback of the hop, and any thread that has retained the hop. */
PENSTOCK_API penstock_result penstock_hop_stats_json(const penstock_hop *hop, char **json);
/* Gives the certificates of the server of the connection that has been chosen, as penstock_reply_peer_certificates_pem
 * does.
 * result: as penstock_reply_peer_certificates_pem.
 * memory: *pem is owned by the caller; free with penstock_free.
 * threads: the thread of a callback of the hop, and any thread that has retained the hop. */
PENSTOCK_API penstock_result penstock_hop_peer_certificates_pem(const penstock_hop *hop, char **pem);

/* Gives the trace of the hop's call, as penstock_call_trace_json does.
 * result: as penstock_call_trace_json. E_GONE: the call has ended.
 * memory: *json is owned by the caller; free with penstock_free.
 * threads: any thread that has the hop. */
PENSTOCK_API penstock_result penstock_hop_trace_json(penstock_hop *hop, char **json);

/* ---- Ending, injecting, answering ---- */

/* Ends the call here with `code` (0-16) and `message` (NULL is ""): hops above see the status, hops below on_cancel,
 * and the verdict of the running callback is ignored. Messages that the hop has delivered and that nobody has asked for
 * yet go to the caller before an OK; any other code drops them. If the hop has delivered messages without taking the
 * call, OK becomes INTERNAL with a message that says so. With a bound hop whose event waits, this function also ends
 * the wait; after the wait it ends the call as with a retained hop. An end is final: after OK no verdict of the hop
 * counts, and no status passes it, until the call has ended.
 * result: E_INVALID_ARGUMENT: `hop` is NULL, or `code` is outside 0-16. E_STATE: in create, destroy, on_cancel, an
 * on_status that brings a local cancel or deadline, and before start has come to the hop. E_ALREADY: the hop has ended
 * the call before, or a second time by one bound hop. E_GONE: the hop's part is over, because a status has left it or
 * the call has ended. E_FORKED; E_NO_MEMORY.
 * memory: `message` is copied.
 * threads: the callback's thread, or any thread that has retained the hop: then the call ends soon, unless a hop above,
 * a cancel or the deadline ends it first. */
PENSTOCK_API penstock_result penstock_hop_end(penstock_hop *hop, int32_t code, const char *message);
/* Ends the call as penstock_hop_end does, but with a whole `status`, its details and trailers included.
 * result: as penstock_hop_end; E_INVALID_ARGUMENT: a NULL.
 * memory: `status` is copied.
 * threads: as with penstock_hop_end. */
PENSTOCK_API penstock_result penstock_hop_end_with(penstock_hop *hop, const penstock_status *status);

/* In the function of a synchronous interceptor: lets the call go on, with the changes that the function has made, and
 * waits for the response. In a call with one response message it waits for the whole response; in a call with many, for
 * the headers, or for the status if that comes first (the rest passes after the function has returned). Meanwhile this
 * thread runs the other synchronous interceptors of the call. After a response with a status, a further
 * penstock_hop_next begins the call again: see penstock_intercept.
 * result: E_INVALID_ARGUMENT: NULL. E_STATE: the function has ended or answered the call, the call can't begin again,
 * or the hop is not that of a synchronous interceptor; penstock_hop_why says which. E_GONE: something else has ended
 * the call; penstock_hop_status tells how. E_FORKED.
 * memory: none.
 * threads: the function's thread. */
PENSTOCK_API penstock_result penstock_hop_next(penstock_hop *hop);
/* Ends the wait of a bound hop's event with `verdict`: NEXT (the event goes on, with its changes), DROP (messages),
 * TAKE (start) or RESTART (status). It may be called while the callback that got the hop still runs. HOLD, only while
 * that callback runs, does not end the wait: when the callback returns, later events of the lane are shown, while this
 * one waits to be resolved by a second call.
 * result: E_INVALID_ARGUMENT: a NULL, or a verdict that this event does not allow (the event goes on waiting).
 * E_ALREADY: the event has been resolved. E_GONE: the call has ended, or went on without the event. E_STATE: a
 * callback's own hop, or HOLD after the callback. E_FORKED.
 * memory: none.
 * threads: any */
PENSTOCK_API penstock_result penstock_hop_resolve(penstock_hop *hop, int32_t verdict);
/* Sends a message of this hop's own, `length` bytes at `data`, toward the server: after the events that wait at this
 * hop, and before the event of the running callback. The on_sent for this message is not passed to the hops above.
 * result: E_INVALID_ARGUMENT. E_STATE: before start has left this hop (in on_start too), after half-close has left it,
 * or where messages are objects. E_GONE: the hop's part is over. E_FORKED; E_NO_MEMORY.
 * memory: `data` is copied.
 * threads: any thread that has retained the hop; outside of the hop's callbacks, and in a callback on an executor, the
 * message goes soon, unless half-close has left the hop or its part is over by then. */
PENSTOCK_API penstock_result penstock_hop_send(penstock_hop *hop, const void *data, size_t length);
/* Sends `message` as a message of this hop's own, at the place that penstock_hop_send describes. The message has bytes,
 * or an object of the call's codec if the hop sees objects.
 * result: as penstock_hop_send; E_STATE too for a message that is not of that kind.
 * memory: nothing is copied; `message` stays the caller's.
 * threads: as with penstock_hop_send. */
PENSTOCK_API penstock_result penstock_hop_send_message(penstock_hop *hop, penstock_message *message);
/* Half-closes in place of the caller: the server sees the end of the requests, after the events that wait at this hop
 * and the event of the running callback. Later messages from above go no further, and count as sent.
 * result: E_INVALID_ARGUMENT: NULL. E_STATE: before start has left this hop, or the hop has taken the call. E_ALREADY:
 * the hop has half-closed, or half-close has passed. E_GONE: the hop's part is over. E_FORKED.
 * memory: none.
 * threads: the callback's thread, or any thread that has retained the hop: then the half-close happens soon. */
PENSTOCK_API penstock_result penstock_hop_half_close(penstock_hop *hop);
/* Delivers a message, `length` bytes at `data`, toward the caller: an injected message, or part of the answer of a hop
 * that has taken the call or still may take it (from on_start on). An injected message uses up demand from above; an
 * answer that nobody has asked for yet waits, up to hold_bytes in all; one message always has room. If the
 * verdict on start is NEXT after all, the messages go to the caller before the server's.
 * result: E_INVALID_ARGUMENT. E_WOULD_BLOCK: nobody has asked for the injected message (on_demand tells when somebody
 * does), or too much of the answer waits. E_STATE: after the status, before start has come, or where messages are
 * objects. E_GONE: the hop's part is over. E_FORKED; E_NO_MEMORY.
 * memory: `data` is copied.
 * threads: the thread of a callback of this call, or any thread that has retained the hop. */
PENSTOCK_API penstock_result penstock_hop_deliver(penstock_hop *hop, const void *data, size_t length);
/* Delivers `message` toward the caller, under the conditions of penstock_hop_deliver. The message has bytes, or an
 * object of the call's codec if the hop sees objects.
 * result: as penstock_hop_deliver; E_STATE too for a message that is not of that kind.
 * memory: nothing is copied; `message` stays the caller's.
 * threads: as with penstock_hop_deliver. */
PENSTOCK_API penstock_result penstock_hop_deliver_message(penstock_hop *hop, penstock_message *message);
/* Delivers the headers of an answer (NULL: no fields), in a hop whose verdict on start is TAKE: once, before any
 * message, from on_start on. The headers leave the hop when the verdict has been given.
 * result: E_INVALID_ARGUMENT: `hop` is NULL. E_STATE: start has not come to the hop or has left it, or the hop has
 * delivered a message or the status. E_ALREADY: a second time. E_GONE; E_FORKED; E_NO_MEMORY.
 * memory: `headers` is copied.
 * threads: the callback's thread, or any thread that has retained the hop. */
PENSTOCK_API penstock_result penstock_hop_deliver_headers(penstock_hop *hop, const penstock_metadata *headers);
/* Ends with `status` the answer of a hop that takes the call, after the messages that wait. The hop's part in the call
 * is then over, as after penstock_hop_end. If the last message that the hop wanted to deliver was refused, the status
 * OK ends the call with INTERNAL.
 * result: E_INVALID_ARGUMENT: a NULL. E_STATE: start has not come to the hop or has left it. E_ALREADY: a second time.
 * E_GONE; E_FORKED.
 * memory: `status` is copied.
 * threads: as with penstock_hop_deliver_headers. */
PENSTOCK_API penstock_result penstock_hop_deliver_status(penstock_hop *hop, const penstock_status *status);
/* Asks the hops below, and through them the server, for `n` messages, in addition to those that were asked for before.
 * result: E_INVALID_ARGUMENT: NULL. E_GONE: the hop's part is over. E_FORKED.
 * memory: none.
 * threads: any */
PENSTOCK_API penstock_result penstock_hop_demand(penstock_hop *hop, uint64_t n);

/* ---- Call values: pointers that hops and the caller share; see penstock_call_set_value ---- */

/* Sets the call's value `key` (NUL-terminated) to `value`; NULL removes it. The `finalizer` (nullable) gets the value
 * when it is replaced or removed, or when both the call and its reply have been freed.
 * result: E_INVALID_ARGUMENT: `hop` or `key` is NULL. E_STATE: outside a callback. E_GONE; E_FORKED; E_NO_MEMORY.
 * memory: `key` is copied; `value` is transferred, even on error.
 * threads: the callback's thread. */
PENSTOCK_API penstock_result penstock_hop_set_value(penstock_hop *hop, const char *key, void *value,
                                                    penstock_finalizer finalizer);
/* Gives the call's value of `key`.
 * result: the value; NULL if there is none, and outside a callback.
 * memory: the value belongs to the code that set it.
 * threads: the callback's thread. */
PENSTOCK_API void *penstock_hop_value(const penstock_hop *hop, const char *key);

/* Gives the call's context (penstock_call_options_set_context).
 * result: the context; NULL if there is none, and outside a callback.
 * memory: lives until the callback returns.
 * threads: the callback's thread. */
PENSTOCK_API void *penstock_hop_context(const penstock_hop *hop);

/* ---- Tickets: a paused or held event, to be resolved from any thread ---- */

typedef uint64_t penstock_ticket;

/* Takes a ticket for the event of the running callback, before the callback returns PAUSE or HOLD; a second call gives
 * the same ticket. A callback that returns NEXT spends its ticket. For a bound hop, the function gives the ticket of
 * the hop's event, as long as the event waits.
 * result: the ticket; 0 for NULL, and for an event that can't wait: a signal, or the status of a local cancel or
 * deadline.
 * memory: a number: there is nothing to release.
 * threads: the callback's thread; for a bound hop any thread. */
PENSTOCK_API penstock_ticket penstock_hop_ticket(penstock_hop *hop);

/* Ends the wait of the event of `ticket` with `verdict`: NEXT, DROP (messages), TAKE (start) or RESTART (status). It
 * may be called before the callback has returned.
 * result: E_INVALID_ARGUMENT: 0, or a verdict that this event does not allow (the ticket stays). E_ALREADY: the ticket
 * is spent. E_GONE: the call has ended, or went on without the event.
 * memory: none.
 * threads: any */
PENSTOCK_API penstock_result penstock_ticket_resolve(penstock_ticket ticket, int32_t verdict);
/* Resolves `ticket` with `verdict` after `ms` milliseconds, unless the ticket is spent before.
 * result: as penstock_ticket_resolve.
 * memory: none.
 * threads: any */
PENSTOCK_API penstock_result penstock_ticket_resolve_after(penstock_ticket ticket, int32_t verdict, uint64_t ms);
/* Ends the call where the event of `ticket` waits, with `code` (0-16) and `message` (NULL is ""), as penstock_hop_end
 * does: also if the callback that has taken the ticket has not returned, whatever verdict it returns then.
 * result: E_INVALID_ARGUMENT: `ticket` is 0, or `code` is outside 0-16 (the ticket stays). E_ALREADY: the ticket is
 * spent, or the hop has ended the call before. E_GONE: the call has ended, or went on without the event. E_NO_MEMORY.
 * memory: `message` is copied.
 * threads: any */
PENSTOCK_API penstock_result penstock_ticket_end(penstock_ticket ticket, int32_t code, const char *message);
/* Ends the call where the event of `ticket` waits, with `status`, as penstock_hop_end_with does.
 * result: as penstock_ticket_end, but E_INVALID_ARGUMENT: `ticket` is 0, or `status` is NULL.
 * memory: `status` is copied.
 * threads: any */
PENSTOCK_API penstock_result penstock_ticket_end_with(penstock_ticket ticket, const penstock_status *status);

/* Gives another handle of the hop of `ticket`, bound to the ticket's event: see the head of this file. The handle need
 * not resolve the event: its release leaves the ticket as it is.
 * result: E_INVALID_ARGUMENT: 0, or `hop` is NULL. E_ALREADY: the ticket is spent. E_GONE: the call has ended, or went
 * on without the event.
 * memory: *hop is owned by the caller; free with penstock_hop_release. It may outlive the call.
 * threads: any */
PENSTOCK_API penstock_result penstock_ticket_hop(penstock_ticket ticket, penstock_hop **hop);

#ifdef __cplusplus
}
#endif
#endif
