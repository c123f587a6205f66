/* A hop at an event: look at the event and the call, change them, defer, end, answer.
 *
 * A callback's hop is at the event that the callback is about. Unless it says otherwise, a function here is called in a
 * callback of that hop, on that thread; elsewhere it gives PENSTOCK_E_STATE (NULL where it returns a pointer), after the
 * hop's end PENSTOCK_E_GONE.
 *
 * A bound hop is another handle of the hop, at one event that may wait: penstock_ticket_hop makes one, and each callback
 * in asynchronous style gets one. Any thread may use it, one at a time: penstock_hop_event, _metadata, _message,
 * _set_message and _status show and change its event, penstock_hop_resolve and _finish end the wait, until the wait is
 * over: then they give PENSTOCK_E_GONE (NONE, NULL). The metadata and the status that it has given live as long as the
 * handle, and are others' to change once the wait is over. In the callback that got it, a bound hop does all that the
 * callback's own hop does; later, what any thread may do.
 */
#ifndef PENSTOCK_HOP_H
#define PENSTOCK_HOP_H

#include "channel.h"
#include "interceptor.h"

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
/* In on_send and on_receive: the message, borrowed until it is replaced or the callback returns. */
PENSTOCK_API penstock_result penstock_hop_message(penstock_hop *hop, const void **data, size_t *length);
/* In on_send and on_receive: replaces the message by a copy of `data` (NULL only with length 0). */
PENSTOCK_API penstock_result penstock_hop_set_message(penstock_hop *hop, const void *data, size_t length);
/* In on_status (it can be changed, unless it is a local cancel or deadline) and on_cancel: the status; else NULL.
 * Borrowed during the callback. */
PENSTOCK_API penstock_status *penstock_hop_status(penstock_hop *hop);
/* In on_demand and on_sent: n; else 0. */
PENSTOCK_API uint64_t penstock_hop_count(const penstock_hop *hop);
/* In on_demand: passes n instead; what is held back is asked for later with penstock_hop_demand. */
PENSTOCK_API penstock_result penstock_hop_set_count(penstock_hop *hop, uint64_t n);

/* ---- The start: in create and on_start; the setters in on_start, and in on_status of a hop that records, where they
 * change what a RESTART sends ---- */

/* The request's metadata in create and on_start; in on_status of a hop that records (replay_bytes), what a RESTART
 * sends, which can be changed. Else NULL. Borrowed during the callback. */
PENSTOCK_API penstock_metadata *penstock_hop_request_metadata(penstock_hop *hop);
/* In on_status: may it be answered with RESTART. E_STATE: nothing is recorded, headers or a message have gone above
 * this hop, or the status is a local cancel or deadline. E_TOO_LARGE: the request was over replay_bytes. E_ALREADY:
 * max_restarts is used up. E_UNSUPPORTED: objects that can't be copied. A RESTART all the same passes the status. On an
 * executor it tells how things were when the status came to the hop: what the hop has delivered may have gone above
 * since. */
PENSTOCK_API penstock_result penstock_hop_can_restart(const penstock_hop *hop);

/* "/package.Service/Method"; lives until it is set again or the call ends. In any callback. */
PENSTOCK_API const char *penstock_hop_method(const penstock_hop *hop);
/* E_INVALID_ARGUMENT: not "/service/method". Method filters are not applied again. */
PENSTOCK_API penstock_result penstock_hop_set_method(penstock_hop *hop, const char *method);
/* The authority that is sent; lives as penstock_hop_method. */
PENSTOCK_API const char *penstock_hop_authority(const penstock_hop *hop);
PENSTOCK_API penstock_result penstock_hop_set_authority(penstock_hop *hop, const char *authority);
/* Milliseconds left until the deadline, 0 if it has passed, -1 for none. In any callback. */
PENSTOCK_API int64_t penstock_hop_deadline_ms(const penstock_hop *hop);
/* Moves the deadline to `ms` from now, earlier or later; -1 is none. */
PENSTOCK_API penstock_result penstock_hop_set_deadline_ms(penstock_hop *hop, int64_t ms);

/* "identity" or "gzip": how messages are compressed on their way to the server. Static. In any callback. */
PENSTOCK_API const char *penstock_hop_compression(const penstock_hop *hop);
/* E_INVALID_ARGUMENT: neither "identity" nor "gzip". */
PENSTOCK_API penstock_result penstock_hop_set_compression(penstock_hop *hop, const char *name);
/* The limit on one received message, decompressed. In any callback; 0 for NULL. */
PENSTOCK_API size_t penstock_hop_max_receive_message_bytes(const penstock_hop *hop);
/* E_INVALID_ARGUMENT: over 2147483647. */
PENSTOCK_API penstock_result penstock_hop_set_max_receive_message_bytes(penstock_hop *hop, size_t bytes);
/* The limit on one message as it leaves the last hop, uncompressed: over it the call ends with RESOURCE_EXHAUSTED. What
 * the caller passes to a send is also held against the limit of its options. In any callback; 0 for NULL. */
PENSTOCK_API size_t penstock_hop_max_send_message_bytes(const penstock_hop *hop);
/* E_INVALID_ARGUMENT: over 2147483647. */
PENSTOCK_API penstock_result penstock_hop_set_max_send_message_bytes(penstock_hop *hop, size_t bytes);

/* What may be assumed of the method if it is called twice. It is carried for hops (and for framings that make use of it):
 * the library itself does not decide by it. */
#define PENSTOCK_IDEMPOTENCY_UNKNOWN         0
#define PENSTOCK_IDEMPOTENCY_IDEMPOTENT      1
#define PENSTOCK_IDEMPOTENCY_NO_SIDE_EFFECTS 2

/* PENSTOCK_IDEMPOTENCY_...; UNKNOWN for NULL. In any callback. */
PENSTOCK_API int32_t penstock_hop_idempotency(const penstock_hop *hop);
/* E_INVALID_ARGUMENT: not one of them. */
PENSTOCK_API penstock_result penstock_hop_set_idempotency(penstock_hop *hop, int32_t idempotency);
/* 1 if the call is to wait for a connection instead of failing, else 0. It is carried, and has no effect in this version:
 * channels do not wait yet. In any callback. */
PENSTOCK_API int32_t penstock_hop_wait_for_ready(const penstock_hop *hop);
PENSTOCK_API penstock_result penstock_hop_set_wait_for_ready(penstock_hop *hop, int32_t wait);
/* 1 if the call has credentials, else 0; what they are is not told. In any callback. */
PENSTOCK_API int32_t penstock_hop_has_credentials(const penstock_hop *hop);
/* Replaces the credentials of the call by one field, "authorization" (visible ASCII and spaces, copied); NULL removes
 * them. They are sent with the request's headers, instead of metadata of the same name, over TLS only: on a channel
 * without it the call ends with UNAUTHENTICATED before anything is sent. No JSON and no trace shows them. They go along
 * with a redirect.
 * E_INVALID_ARGUMENT: not such a text. */
PENSTOCK_API penstock_result penstock_hop_set_credentials(penstock_hop *hop, const char *authorization);

/* Redirect: sends the rest of the call to another channel of the same runtime. In on_start; and in on_status of a hop
 * that records, for a RESTART. The interceptors, options and deadline of the call stay. The connection and its
 * credentials are the other channel's, and so are the target and the authority, unless one was set. The other channel
 * is kept until the call ends; closing either channel ends it. The last one set counts.
 * E_INVALID_ARGUMENT: a channel of another runtime. E_CLOSED: it has been closed. */
PENSTOCK_API penstock_result penstock_hop_set_channel(penstock_hop *hop, penstock_channel *channel);

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
PENSTOCK_API penstock_result penstock_hop_call(penstock_hop *hop, const char *method, int32_t kind, uint32_t flags,
                                               const penstock_call_options *options,
                                               const penstock_call_callbacks *callbacks, penstock_call **call,
                                               penstock_error **error);

/* ---- What is known of the call in numbers: in any callback, and on any thread that has retained the hop ---- */

/* penstock_reply_stats_json as far as the call has come: the rest is null or 0. The connection is known when it has been
 * chosen, so in on_headers at the latest. Memory: owned by the caller; free with penstock_free. */
PENSTOCK_API penstock_result penstock_hop_stats_json(const penstock_hop *hop, char **json);
/* penstock_reply_peer_certificates_pem of the connection that has been chosen. */
PENSTOCK_API penstock_result penstock_hop_peer_certificates(const penstock_hop *hop, char **pem);

/* penstock_call_trace_json of the hop's call. Any thread that has the hop; E_GONE after the call. */
PENSTOCK_API penstock_result penstock_hop_trace_json(penstock_hop *hop, char **json);

/* ---- Ending, injecting, answering ---- */

/* Ends the call here with `code` (0-16) and `message` (copied; NULL is ""): hops above see the status, hops below
 * on_cancel, and the verdict of the running callback is ignored. Any thread that has retained the hop may end the call,
 * too, once start has come to the hop; that happens soon, unless the hop's part is over by then. Messages that the hop has
 * delivered and nobody has asked for go before an OK, and are dropped by any other code.
 * E_STATE: in create, destroy, on_cancel, and an on_status that brings a local cancel or deadline. E_ALREADY: a second
 * time in one callback. E_GONE: the hop's part is over. */
PENSTOCK_API penstock_result penstock_hop_finish(penstock_hop *hop, int32_t code, const char *message);
/* As penstock_hop_finish, with a built status, copied. */
PENSTOCK_API penstock_result penstock_hop_finish_with(penstock_hop *hop, const penstock_status *status);

/* Ends the wait of a bound hop's event with any verdict that its ticket would take: NEXT (it goes on, with what was changed
 * in it), DROP (messages), TAKE (start) or RESTART (status). Also while the callback that got the hop still runs.
 * PENSTOCK_OK. E_INVALID_ARGUMENT: a NULL, or a verdict that this event does not allow (it goes on waiting). E_ALREADY: it
 * has been resolved. E_GONE: the call has ended, or went on without it. E_STATE: a callback's own hop. E_FORKED.
 * Threading: any thread. */
PENSTOCK_API penstock_result penstock_hop_resolve(penstock_hop *hop, int32_t verdict);
/* Puts a message of this hop's own, copied, on its way to the server, behind what is parked here and before the event
 * that the running callback is about. Its `sent` stops here. Any thread that has retained the hop; outside of the hop's
 * callbacks the message goes soon, unless the hop has half-closed or its part is over by then. E_STATE: before start has
 * left this hop (in on_start too), or after half-close has. */
PENSTOCK_API penstock_result penstock_hop_send_message(penstock_hop *hop, const void *data, size_t length);
/* Half-closes for the caller: the server sees the end of the requests, behind what stands at this hop. Any thread that
 * has retained the hop; soon, and in a callback behind the event that it is about. What comes from above after that goes no
 * further, and is told as sent. E_STATE: before start has left this hop, or it has taken the call. E_ALREADY: half-close
 * has passed. E_GONE: the hop's part is over. */
PENSTOCK_API penstock_result penstock_hop_half_close(penstock_hop *hop);
/* Puts a message, copied, on its way to the caller: an injected one, or the answer of a hop that has taken the call, or
 * may yet (from on_start on). In a callback of this call, or on any thread that has retained the hop. An injected message
 * spends demand from above: E_WOULD_BLOCK if there is none, and on_demand tells when there is. An answer that nobody has
 * asked for yet waits, up to hold_bytes in all: E_WOULD_BLOCK beyond. E_STATE: after the status, or before start has come. */
PENSTOCK_API penstock_result penstock_hop_deliver_message(penstock_hop *hop, const void *data, size_t length);
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
PENSTOCK_API void *penstock_hop_get_value(const penstock_hop *hop, const char *key);

/* ---- Tickets: a paused or held event, to be resolved from any thread ---- */

typedef uint64_t penstock_ticket;

/* A ticket for the event of the running callback, to be taken before PAUSE or HOLD is returned; 0 if the event can't
 * be paused here (signals, a local status). The same one if asked again. NEXT returned with a live ticket spends it. Of a
 * bound hop: that of its event, on any thread while it waits. */
PENSTOCK_API penstock_ticket penstock_hop_ticket(penstock_hop *hop);

/* Ends the pause with NEXT, DROP (messages), TAKE (start) or RESTART (status). Any thread; also before the callback has returned.
 * E_INVALID_ARGUMENT: a verdict that this event does not allow (the ticket stays). E_ALREADY: spent. E_GONE: the
 * call has ended, or went on without it. */
PENSTOCK_API penstock_result penstock_ticket_resolve(penstock_ticket ticket, int32_t verdict);
PENSTOCK_API penstock_result penstock_ticket_resume(penstock_ticket ticket);
PENSTOCK_API penstock_result penstock_ticket_drop(penstock_ticket ticket);
/* Ends the call there, as penstock_hop_finish_with. */
PENSTOCK_API penstock_result penstock_ticket_finish(penstock_ticket ticket, int32_t code, const char *message);
PENSTOCK_API penstock_result penstock_ticket_finish_with(penstock_ticket ticket, const penstock_status *status);
/* Resumes after `ms` milliseconds, unless the ticket is resolved before. */
PENSTOCK_API penstock_result penstock_ticket_resume_after(penstock_ticket ticket, uint64_t ms);

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
