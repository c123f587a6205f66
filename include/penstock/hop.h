/* A hop at an event: look at the event and the call, change them, defer, end, answer.
 *
 * A callback's hop is at the event that the callback is about. Unless it says otherwise, a function here is called in a
 * callback of that hop, on that thread; elsewhere it gives PENSTOCK_E_STATE (NULL where it returns a pointer), after the
 * hop's end PENSTOCK_E_GONE.
 *
 * A bound hop is another handle of the hop, at one event that may wait: penstock_ticket_hop makes one, and each callback
 * in asynchronous style gets one. Any thread may use it, one at a time: penstock_hop_event, _metadata, _message,
 * _set_message and _status show and change its event, penstock_hop_resolve and _end end the wait, until the wait is
 * over: then they give PENSTOCK_E_GONE (NONE, NULL). The metadata and the status that it has given live as long as the
 * handle, and are others' to change once the wait is over. In the callback that got it, a bound hop does all that the
 * callback's own hop does; later, what any thread may do.
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

/* ---- The hop and its call: any thread that holds the hop, until the call has ended ---- */

/* Keeps the handle (not the call) past `destroy`. Any thread. */
PENSTOCK_API penstock_hop *penstock_hop_retain(penstock_hop *hop);
PENSTOCK_API void penstock_hop_release(penstock_hop *hop);
/* PENSTOCK_EVENT_...: what the running callback is about, or the bound event that waits; else NONE. */
PENSTOCK_API int32_t penstock_hop_event(const penstock_hop *hop);
/* A number that names the call within the process; 0 for NULL. Any thread. */
PENSTOCK_API uint64_t penstock_hop_call_id(const penstock_hop *hop);
/* PENSTOCK_KIND_...; -1 for NULL. Any thread. */
PENSTOCK_API int32_t penstock_hop_kind(const penstock_hop *hop);
/* In create: runs the callbacks of this call on other executors than the registration's: on_start, on_send,
 * on_half_close and on_sent on `outbound`, the others on `inbound`; NULL is the driving thread. Retained. create runs on
 * the driving thread always. E_STATE elsewhere. */
PENSTOCK_API penstock_result penstock_hop_set_executors(penstock_hop *hop, penstock_executor *outbound,
                                                        penstock_executor *inbound);
/* Which instance this is: 1, and one more with each RESTART by a hop above; 0 for NULL. Any thread. */
PENSTOCK_API uint32_t penstock_hop_attempt(const penstock_hop *hop);
/* PENSTOCK_LEVEL_OBJECT or PENSTOCK_LEVEL_BYTES: where this hop stands; a registration with PENSTOCK_LEVEL_BOTH has one
 * hop at each. -1 for NULL. Any thread. */
PENSTOCK_API int32_t penstock_hop_level(const penstock_hop *hop);
/* 1: what the call sends is not to be read on its way: TLS, or a unix socket; of the channel, or of that to which a hop has
 * sent the call. 0: cleartext, or NULL. Any thread, before there is a connection too. */
PENSTOCK_API int32_t penstock_hop_is_secure(const penstock_hop *hop);
/* The channel's target as it was given, or that of the channel that a hop has sent the call to; lives as long as the
 * hop. NULL for NULL. Any thread. */
PENSTOCK_API const char *penstock_hop_target(const penstock_hop *hop);

/* ---- The event ---- */

/* In create, on_start: the request's metadata. In on_headers: the response's. In on_status and on_cancel: the
 * trailers. Else NULL. Borrowed during the callback. It can be changed in on_start, on_headers and on_status. */
PENSTOCK_API penstock_metadata *penstock_hop_metadata(penstock_hop *hop);
/* Gives the message, in on_send and on_receive: penstock_message_bytes and penstock_message_object look into it. It shows
 * what it has been replaced by, too.
 * result: the message; NULL elsewhere, after the hop's end, in a forked child, and for NULL.
 * memory: borrowed during the callback; from a bound hop, until the wait is over; in the function of a synchronous
 * interceptor, until it is replaced, next is called or the function returns. Bytes and object live until it is replaced.
 * threads: that of the callback; a bound hop's any, one at a time. */
PENSTOCK_API const penstock_message *penstock_hop_message(penstock_hop *hop);
/* Gives the codec of the call to a hop that sees objects: one at the object level of a call that has a codec. It is
 * for penstock_message_new_object.
 * result: the codec; NULL where messages are bytes, and for NULL.
 * memory: borrowed from `hop`, and as long-lived.
 * threads: any that has the hop. */
PENSTOCK_API penstock_codec *penstock_hop_codec(const penstock_hop *hop);
/* Replaces the message by `length` bytes at `data` (NULL only with length 0), in on_send and on_receive.
 * result: E_INVALID_ARGUMENT. E_STATE: elsewhere, and where messages are objects. E_GONE; E_FORKED; E_NO_MEMORY.
 * memory: `data` is copied.
 * threads: that of the callback; a bound hop's any. */
PENSTOCK_API penstock_result penstock_hop_set_bytes(penstock_hop *hop, const void *data, size_t length);
/* Like penstock_hop_set_bytes, with `message`: bytes, or where the hop sees objects an object of the call's codec.
 * result: as penstock_hop_set_bytes; E_STATE too for a message that is not of that kind.
 * memory: nothing is copied; `message` stays the caller's.
 * threads: as with penstock_hop_set_bytes. */
PENSTOCK_API penstock_result penstock_hop_set_message(penstock_hop *hop, penstock_message *message);
/* In on_status (it can be changed, unless it is a local cancel or deadline) and on_cancel: the status; else NULL.
 * Borrowed during the callback. */
PENSTOCK_API penstock_status *penstock_hop_status(penstock_hop *hop);
/* In on_demand and on_sent: n; else 0. */
PENSTOCK_API uint64_t penstock_hop_count(const penstock_hop *hop);
/* In on_demand: passes n instead; what is held back is asked for later with penstock_hop_demand. */
PENSTOCK_API penstock_result penstock_hop_set_count(penstock_hop *hop, uint64_t n);

/* ---- The start ---- */

/* The start of the call as the hop sees it: see request.h for when. NULL for NULL.
 * Memory: borrowed from `hop`, and as long-lived.
 * Threading: any thread. */
PENSTOCK_API penstock_request *penstock_hop_request(penstock_hop *hop);
/* In on_status: may it be answered with RESTART. E_STATE: nothing is recorded, headers or a message have gone above
 * this hop, or the status is a local cancel or deadline. E_TOO_LARGE: the request was over replay_bytes. E_ALREADY:
 * max_restarts is used up. E_UNSUPPORTED: objects that can't be copied. A RESTART all the same passes the status. On an
 * executor it tells how things were when the status came to the hop: what the hop has delivered may have gone above
 * since. */
PENSTOCK_API penstock_result penstock_hop_can_restart(const penstock_hop *hop);

/* ---- Side calls ---- */

#define PENSTOCK_SIDE_CALL_FROM_TOP 1u /* through the whole chain of its method, this hop's interceptor included */
#define PENSTOCK_SIDE_CALL_DETACHED 2u /* has its own deadline alone, and outlives this call */

/* Starts a call for this one, on the channel that this one was made on: to fetch a token, to ask a cache. As
 * penstock_channel_call, but its chain is what a call to `method` has now from below this hop's place on; the hop's own
 * interceptor never is in it. It inherits the deadline, if that is earlier than its own, and ends with CANCELLED when
 * this call ends. From a hop at the bytes level it takes bytes, unless its options have a codec; else the channel's codec
 * is its, too. `flags`: PENSTOCK_SIDE_CALL_... or 0. Any thread that has the hop, until its destroy runs: then
 * E_GONE, as after the call. E_CLOSED: the channel has been closed. In a callback on the driving thread use `callbacks`:
 * waiting there gives E_WOULD_DEADLOCK. They may run after the destroy of this hop.
 * Memory: *call is owned by the caller; free with penstock_call_release. */
PENSTOCK_API penstock_result penstock_hop_start_side_call(penstock_hop *hop, const char *method, int32_t kind,
                                                          uint32_t flags, const penstock_call_options *options,
                                                          const penstock_call_callbacks *callbacks,
                                                          penstock_call **call, penstock_error **error);

/* ---- What is known of the call in numbers: in any callback, and on any thread that has retained the hop ---- */

/* penstock_reply_stats_json as far as the call has come: the rest is null or 0. The connection is known when it has been
 * chosen, so in on_headers at the latest. Memory: owned by the caller; free with penstock_free. */
PENSTOCK_API penstock_result penstock_hop_stats_json(const penstock_hop *hop, char **json);
/* penstock_reply_peer_certificates_pem of the connection that has been chosen. */
PENSTOCK_API penstock_result penstock_hop_peer_certificates_pem(const penstock_hop *hop, char **pem);

/* penstock_call_trace_json of the hop's call. Any thread that has the hop; E_GONE after the call. */
PENSTOCK_API penstock_result penstock_hop_trace_json(penstock_hop *hop, char **json);

/* ---- Ending, injecting, answering ---- */

/* Ends the call here with `code` (0-16) and `message` (copied; NULL is ""): hops above see the status, hops below
 * on_cancel, and the verdict of the running callback is ignored. Any thread that has retained the hop may end the call,
 * too, once start has come to the hop; that happens soon, unless the hop's part is over by then. Messages that the hop has
 * delivered and nobody has asked for go before an OK, and are dropped by any other code,
 * or if it has not taken the call yet.
 * E_STATE: in create, destroy, on_cancel, and an on_status that brings a local cancel or deadline. E_ALREADY: a second
 * time in one callback. E_GONE: the hop's part is over. */
PENSTOCK_API penstock_result penstock_hop_end(penstock_hop *hop, int32_t code, const char *message);
/* As penstock_hop_end, with a built status, copied. */
PENSTOCK_API penstock_result penstock_hop_end_with(penstock_hop *hop, const penstock_status *status);

/* In the function of a synchronous interceptor: lets the call go on, with what has been changed in it, and waits for its
 * response: the whole of it in a call that has one response message; in one that has many its headers, or the status if
 * that comes first (the rest passes when the function has returned). Meanwhile this worker runs the other synchronous
 * interceptors of the call.
 * PENSTOCK_OK. E_ALREADY: a second time. E_STATE: after an end or an answer, or another kind of hop. E_GONE: another hand
 * has ended the call; penstock_hop_status tells how. E_FORKED. E_INVALID_ARGUMENT: NULL.
 * Threading: the function's thread. */
PENSTOCK_API penstock_result penstock_hop_next(penstock_hop *hop);
/* Ends the wait of a bound hop's event with any verdict that its ticket would take: NEXT (it goes on, with what was changed
 * in it), DROP (messages), TAKE (start) or RESTART (status). Also while the callback that got the hop still runs.
 * PENSTOCK_OK. E_INVALID_ARGUMENT: a NULL, or a verdict that this event does not allow (it goes on waiting). E_ALREADY: it
 * has been resolved. E_GONE: the call has ended, or went on without it. E_STATE: a callback's own hop. E_FORKED.
 * Threading: any thread. */
PENSTOCK_API penstock_result penstock_hop_resolve(penstock_hop *hop, int32_t verdict);
/* Puts a message of this hop's own, `length` bytes at `data`, on its way to the server, behind what is parked here and
 * before the event that the running callback is about. Its `sent` stops here.
 * result: E_INVALID_ARGUMENT. E_STATE: before start has left this hop (in on_start too), after half-close has, or where
 * messages are objects. E_GONE: the hop's part is over. E_FORKED; E_NO_MEMORY.
 * memory: `data` is copied.
 * threads: any that has retained the hop; outside of the hop's callbacks the message goes soon, unless the hop has
 * half-closed or its part is over by then. */
PENSTOCK_API penstock_result penstock_hop_send(penstock_hop *hop, const void *data, size_t length);
/* Like penstock_hop_send, with `message`: bytes, or where the hop sees objects an object of the call's codec.
 * result: as penstock_hop_send; E_STATE too for a message that is not of that kind.
 * memory: nothing is copied; `message` stays the caller's.
 * threads: as with penstock_hop_send. */
PENSTOCK_API penstock_result penstock_hop_send_message(penstock_hop *hop, penstock_message *message);
/* Half-closes for the caller: the server sees the end of the requests, behind what stands at this hop. Any thread that
 * has retained the hop; soon, and in a callback behind the event that it is about. What comes from above after that goes no
 * further, and is told as sent. E_STATE: before start has left this hop, or it has taken the call. E_ALREADY: half-close
 * has passed. E_GONE: the hop's part is over. */
PENSTOCK_API penstock_result penstock_hop_half_close(penstock_hop *hop);
/* Puts a message, `length` bytes at `data`, on its way to the caller: an injected one, or the answer of a hop that has
 * taken the call, or may yet (from on_start on). An injected message spends demand from above; an answer that nobody has
 * asked for yet waits, up to hold_bytes in all.
 * result: E_INVALID_ARGUMENT. E_WOULD_BLOCK: nobody has asked for the injected message, and on_demand tells when somebody
 * does; or too much of the answer waits. E_STATE: after the status, before start has come, or where messages are objects.
 * E_GONE: the hop's part is over. E_FORKED; E_NO_MEMORY.
 * memory: `data` is copied.
 * threads: that of a callback of this call, or any that has retained the hop. */
PENSTOCK_API penstock_result penstock_hop_deliver(penstock_hop *hop, const void *data, size_t length);
/* Like penstock_hop_deliver, with `message`: bytes, or where the hop sees objects an object of the call's codec.
 * result: as penstock_hop_deliver; E_STATE too for a message that is not of that kind.
 * memory: nothing is copied; `message` stays the caller's.
 * threads: as with penstock_hop_deliver. */
PENSTOCK_API penstock_result penstock_hop_deliver_message(penstock_hop *hop, penstock_message *message);
/* For a hop whose verdict on start is TAKE, from on_start on; once, before any message; any thread. It goes on its way
 * when the verdict is there. The metadata is copied; NULL is empty. E_STATE: not such a hop, or not before messages.
 * E_ALREADY: a second time. */
PENSTOCK_API penstock_result penstock_hop_deliver_headers(penstock_hop *hop, const penstock_metadata *headers);
/* Delivers the status, a copy of which ends the call, behind the messages that wait. It counts as this hop's finish. OK
 * ends the call with INTERNAL where the last message that the hop wanted to deliver was refused. */
PENSTOCK_API penstock_result penstock_hop_deliver_status(penstock_hop *hop, const penstock_status *status);
/* Asks for n more messages from below; any thread. */
PENSTOCK_API penstock_result penstock_hop_demand(penstock_hop *hop, uint64_t n);

/* ---- Call values: what hops and the caller share on purpose. In any callback; see penstock_call_set_value ---- */

/* Sets `key` (NUL-terminated, copied) to `value`; NULL removes. The finalizer (nullable) runs when it is replaced,
 * removed, or the call is freed. `value` is transferred, even on error. */
PENSTOCK_API penstock_result penstock_hop_set_value(penstock_hop *hop, const char *key, void *value,
                                                    penstock_finalizer finalizer);
/* What `key` holds, or NULL. */
PENSTOCK_API void *penstock_hop_value(const penstock_hop *hop, const char *key);

/* ---- Tickets: a paused or held event, to be resolved from any thread ---- */

typedef uint64_t penstock_ticket;

/* A ticket for the event of the running callback, to be taken before PAUSE or HOLD is returned; 0 if the event can't
 * be paused here (signals, a local status). The same one if asked again. NEXT returned with a live ticket spends it. Of a
 * bound hop: that of its event, on any thread while it waits. */
PENSTOCK_API penstock_ticket penstock_hop_ticket(penstock_hop *hop);

/* Ends the wait with NEXT, DROP (messages), TAKE (start) or RESTART (status). Also before the callback has returned.
 * PENSTOCK_OK. E_INVALID_ARGUMENT: 0, or a verdict that this event does not allow (the ticket stays). E_ALREADY: spent.
 * E_GONE: the call has ended, or went on without it.
 * Threading: any thread. */
PENSTOCK_API penstock_result penstock_ticket_resolve(penstock_ticket ticket, int32_t verdict);
/* As penstock_ticket_resolve after `ms` milliseconds, unless the ticket is spent before.
 * Threading: any thread. */
PENSTOCK_API penstock_result penstock_ticket_resolve_after(penstock_ticket ticket, int32_t verdict, uint64_t ms);
/* Ends the call where the event waits, with `code` (0-16) and `message` (copied; NULL is ""): as penstock_hop_end. Results
 * as penstock_ticket_resolve.
 * Threading: any thread. */
PENSTOCK_API penstock_result penstock_ticket_end(penstock_ticket ticket, int32_t code, const char *message);
/* As penstock_ticket_end, with a built status, copied. */
PENSTOCK_API penstock_result penstock_ticket_end_with(penstock_ticket ticket, const penstock_status *status);
/* As penstock_ticket_end after `ms` milliseconds, unless the ticket is spent before.
 * Threading: any thread. */
PENSTOCK_API penstock_result penstock_ticket_end_after(penstock_ticket ticket, int32_t code, const char *message,
                                                       uint64_t ms);

/* Another handle of the ticket's hop, bound to the ticket's event: see the top of this file. It owes the event nothing:
 * released, it leaves the ticket as it is.
 * PENSTOCK_OK. E_INVALID_ARGUMENT: 0, or `hop` is NULL. E_ALREADY: the ticket is spent. E_GONE: the call has ended, or
 * went on without the event.
 * Memory: *hop is owned by the caller; free with penstock_hop_release. It outlives the call if need be.
 * Threading: any thread. */
PENSTOCK_API penstock_result penstock_ticket_hop(penstock_ticket ticket, penstock_hop **hop);

#ifdef __cplusplus
}
#endif
#endif
