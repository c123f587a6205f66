/* Calls: options, the call itself in blocking or callback style, and the reply.
 *
 * Functions that wait (send, send_many, receive, receive_many, wait, wait_headers, wait_status, and the unary of
 * channel.h) return at the latest when the call ends: by its status, its deadline or a cancel. In a callback on the
 * thread that drives the runtime they give PENSTOCK_E_WOULD_DEADLOCK. With the "interruptible" option they give
 * PENSTOCK_E_INTERRUPTED after a signal handler has run, and perhaps also without a signal, up to a few times a second;
 * the call lives on, and the program may call the function again.
 */
#ifndef PENSTOCK_CALL_H
#define PENSTOCK_CALL_H

#include "base.h"
#include "interceptor.h"
#include "message.h"
#include "metadata.h"
#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Options: parsed once, used for any number of calls ---- */

typedef struct penstock_call_options penstock_call_options;
/* The start of a call: metadata, method, deadline and settings. See request.h. */
typedef struct penstock_request penstock_request;

/* Makes options of `json`, an object (NUL-terminated) or NULL. If an option is absent and no default is named here, the
 * corresponding option of the channel holds, if there is one (docs/channel.md says how the channel's "service_config"
 * changes these options):
 *   "deadline_ms": milliseconds from the call's creation; null counts as absent
 *   "metadata": {"name": "value" or ["v1", "v2"]}; see metadata.h
 *   "credentials": {"authorization": "Bearer ..."}: header fields as in "metadata", which are sent over TLS only; on a
 *     channel without TLS the call ends with UNAUTHENTICATED before anything is sent. Hops see whether there are
 *     credentials, but not their values
 *   "idempotency": "unknown" (the default), "idempotent" or "no_side_effects": how safe it is to make the call twice.
 *     The last one lets Connect call a unary method by HTTP GET, see request.h
 *   "wait_for_ready": whether the call waits for a connection, however long that takes; otherwise the call fails with
 *     UNAVAILABLE where the channel can't connect (docs/channel.md)
 *   "authority": replaces the channel's authority
 *   "content_subtype": the name of the messages' encoding in the content-type, such as "json"; without this option it
 *     is the name of the codec
 *   "compression": "identity", "gzip", "deflate", "zstd" or the name of a compressor, for sent messages
 *   "compression_min_bytes": the size from which messages are compressed, see channel.h
 *   "max_receive_message_bytes", "max_send_message_bytes": limits of one message
 *   "send_buffer_bytes": the size of the send buffer, in which sent messages wait until the transport takes them. A
 *     message takes 256 bytes more than its size; one message always has room. Default: 262144, but in a client stream
 *     655360 as long as fewer than 16 messages wait
 *   "interruptible": whether a signal ends a wait, as the head of this file says. Default: false
 *   "trace": false: no trace; {"events": n}: a trace of the latest n events (1 to 65536); true: of the latest 256. See
 *     penstock_call_trace_json
 * result: E_INVALID_JSON: `error` names the JSON path.
 * memory: *options is owned by the caller; free with penstock_call_options_release.
 * threads: any */
PENSTOCK_API penstock_result penstock_call_options_new(const char *json, penstock_call_options **options,
                                                       penstock_error **error);
/* Adds a reference to `options`.
 * result: `options`; NULL for NULL.
 * memory: the reference is given back with penstock_call_options_release.
 * threads: any */
PENSTOCK_API penstock_call_options *penstock_call_options_retain(penstock_call_options *options);
/* Gives a reference back. Calls that were made with the options go on. NULL does nothing.
 * memory: the reference is the library's again.
 * threads: any */
PENSTOCK_API void penstock_call_options_release(penstock_call_options *options);
/* Gives the request with which calls with these options begin. Use it to set values that change from call to call,
 * without JSON: metadata, deadline (counted from the creation of a call), compression, limits and everything else in
 * request.h except method and channel. The getters give the values of the options; for a value that the options do not
 * set, they give the value of a channel without options.
 * result: the request; NULL for NULL.
 * memory: borrowed from the options; lives as long as the options.
 * threads: one thread, before the options are shared. */
PENSTOCK_API penstock_request *penstock_call_options_request(penstock_call_options *options);
/* For penstock_channel_unary with "interruptible", and for functions of synchronous interceptors that wait in
 * penstock_hop_next on the thread that waits for an interruptible call (sync.h): sets the function that the waiting
 * thread calls after a signal handler has run, and also without a signal, up to a few times a second. `interrupted`
 * gets `user_data` and returns 0 to go on waiting; any other value cancels the call. The hops of a call of
 * penstock_channel_unary learn of this end before that function returns, unless `interrupted`, which is called again
 * meanwhile, once more gives another value than 0. Without this function the first
 * interruption cancels a call of penstock_channel_unary, even if no signal has come; in another call
 * penstock_hop_next is not interrupted.
 * `finalizer` (nullable) gets `user_data` once the options have been freed or have another function, and each
 * interruptible call that was made with it has ended.
 * result: E_INVALID_ARGUMENT.
 * memory: `user_data` is transferred, even on error.
 * threads: one thread, before the options are shared. */
PENSTOCK_API penstock_result penstock_call_options_set_on_interrupted(penstock_call_options *options,
                                                                      int32_t (*interrupted)(void *user_data),
                                                                      void *user_data, penstock_finalizer finalizer);

/* Gives a context to each call that is made with these options from now on: a pointer of the program, which the
 * callbacks of the call's hops (penstock_hop_context) and the picker (penstock_pick_context) can ask for, from the first
 * to the last. Unlike a value (penstock_call_set_value) it is there before the first hop sees the call, stays the same,
 * and ends with the call. NULL: no context. A side call has the context of its own options only. `finalizer` (nullable)
 * gets `context` once the options have been freed or have another context, each call that has it has ended, and the
 * last callback of their hops has returned.
 * result: E_INVALID_ARGUMENT: `options` is NULL.
 * memory: `context` is transferred, even on error.
 * threads: one thread, before the options are shared. */
PENSTOCK_API penstock_result penstock_call_options_set_context(penstock_call_options *options, void *context,
                                                               penstock_finalizer finalizer);
/* Registers `interceptor` with `priority` for every call that is made with these options from now on, on any thread.
 * The interceptors of the options, the channel and the runtime are sorted together by priority. *id names the
 * registration. The interceptor's finalizer runs once the options have been freed, or the interceptor has been removed,
 * and the last call that has it has ended.
 * result: as penstock_runtime_add_interceptor.
 * memory: the table is borrowed during the call; its user_data is transferred, even on error.
 * threads: any, also while calls are made with the options. */
PENSTOCK_API penstock_result penstock_call_options_add_interceptor(penstock_call_options *options,
                                                                   const penstock_interceptor *interceptor,
                                                                   int32_t priority, penstock_interceptor_id *id,
                                                                   penstock_error **error);

/* ---- The reply: how a call ended; immutable ---- */

typedef struct penstock_reply penstock_reply;

/* Adds a reference to `reply`.
 * result: `reply`; NULL for NULL.
 * memory: the reference is given back with penstock_reply_release.
 * threads: any */
PENSTOCK_API penstock_reply *penstock_reply_retain(penstock_reply *reply);
/* Gives a reference back. NULL does nothing.
 * memory: the reference is the library's again.
 * threads: any */
PENSTOCK_API void penstock_reply_release(penstock_reply *reply);
/* Gives the status code.
 * result: PENSTOCK_STATUS_...; PENSTOCK_STATUS_UNKNOWN for NULL.
 * memory: none.
 * threads: any */
PENSTOCK_API int32_t penstock_reply_code(const penstock_reply *reply);
/* Gives the status, read-only.
 * result: the status; NULL for NULL.
 * memory: borrowed from the reply; lives as long as the reply.
 * threads: any */
PENSTOCK_API const penstock_status *penstock_reply_status(const penstock_reply *reply);
/* Gives the status as JSON, as penstock_status_json does.
 * result: NUL-terminated; "{}" for NULL or without memory.
 * memory: borrowed from the reply; lives as long as the reply.
 * threads: any */
PENSTOCK_API const char *penstock_reply_status_json(const penstock_reply *reply);
/* Gives the bytes of the response message of a unary or client-streaming call, and in *length (nullable) their number.
 * result: NULL and 0 if there is none, or if it is an object; an empty message gives a pointer that is not NULL.
 * memory: the bytes live as long as the reply.
 * threads: any */
PENSTOCK_API const void *penstock_reply_bytes(const penstock_reply *reply, size_t *length);
/* Gives the response message of a unary or client-streaming call as a message: bytes or an object.
 * result: the message; NULL: there is none.
 * memory: borrowed from the reply; lives as long as the reply; penstock_message_retain keeps it longer.
 * threads: any */
PENSTOCK_API penstock_message *penstock_reply_response_message(const penstock_reply *reply);
/* Gives the response headers, read-only.
 * result: the headers; NULL if there were none (a trailers-only answer).
 * memory: borrowed from the reply; lives as long as the reply.
 * threads: any */
PENSTOCK_API const penstock_metadata *penstock_reply_headers(const penstock_reply *reply);
/* Gives the trailers of the reply's status, read-only.
 * result: the trailers; NULL for NULL.
 * memory: borrowed from the reply; lives as long as the reply.
 * threads: any */
PENSTOCK_API const penstock_metadata *penstock_reply_trailers(const penstock_reply *reply);
/* Gives the statistics of the call as JSON. Times are microseconds since the call's creation, or null for something
 * that did not happen:
 *   "created_unix_ms", "first_byte_sent_us", "headers_us", "first_message_us", "duration_us" (to the end of the call),
 *     "elapsed_us" (to the end of the call, or until now); "created_unix_ms" is milliseconds since 1970
 *   "attempts": how many times the request was given to the transport, including RESTART and transparent retries
 *   "sent", "received": {"messages", "bytes" (of the messages without compression), "compressed_bytes" (of the messages
 *     with compression), "wire_bytes" (of the bodies: "compressed_bytes" and five more for each message)}; "messages"
 *     and "bytes" of "sent" count the messages that have left the last hop, even if they were never written to a
 *     connection
 *   "peer", "local": "127.0.0.1:50051", "unix:/path"; null without a connection
 *   "protocol": "grpc", "grpc-web", "grpc-web-text" or "connect", and "http": "2" or "1.1"; null without a connection
 *   "connection_silent_ms": how long the server has sent nothing on the connection, for this call or any other: until
 *     now, or until the end of a call that has ended. null without a connection, and if the server has sent something
 *     after that end
 *   "tls": {"version": "TLSv1.3", "cipher", "alpn", "certificates": the number of the server's certificates}; null in
 *     cleartext, and without a connection
 * "headers_us", "first_message_us" and the facts about the connection are those of the last attempt; "sent" and
 * "received" are sums over all attempts.
 * result: NUL-terminated; "{}" for NULL or without memory.
 * memory: borrowed from the reply; lives as long as the reply.
 * threads: any */
PENSTOCK_API const char *penstock_reply_stats_json(const penstock_reply *reply);
/* Writes the certificates that the server of the last attempt has sent, its own certificate first, in PEM form,
 * NUL-terminated. They are given even if they were not verified ("verify": false).
 * result: E_NOT_FOUND: no connection, or no TLS. E_NO_MEMORY.
 * memory: *pem is owned by the caller; free with penstock_free.
 * threads: any */
PENSTOCK_API penstock_result penstock_reply_peer_certificates_pem(const penstock_reply *reply, char **pem);
/* Gives the trace of the call as JSON, as penstock_call_trace_json does once the call has ended.
 * result: NUL-terminated; "{}" where no trace was kept, and for NULL.
 * memory: borrowed from the reply; lives as long as the reply.
 * threads: any */
PENSTOCK_API const char *penstock_reply_trace_json(const penstock_reply *reply);
/* Gives the value that a hop or the caller has set under `key` (NUL-terminated).
 * result: the value; NULL: there is none.
 * memory: lives as long as the reply.
 * threads: any */
PENSTOCK_API void *penstock_reply_value(const penstock_reply *reply, const char *key);

/* ---- The call ---- */

typedef struct penstock_call penstock_call;

/* Callback style: the callbacks of a call. All run on the thread that drives the runtime, one at a time, in order:
 * on_headers (unless the response is trailers-only), on_message for each message that was asked for, and last on_reply,
 * exactly once. Their arguments are borrowed during the callback; retain them to keep them. The handle `call` is valid
 * in every callback, even if it has been released. Any function that does not wait may be called in them.
 *
 * on_sent says that the transport has taken `count` messages, or that hops have dropped them, since the last on_sent.
 * So the send buffer has more room: after PENSTOCK_E_WOULD_BLOCK, try again in the next on_sent, which comes unless the
 * call ends before. The second try may give PENSTOCK_E_WOULD_BLOCK too, if the message still needs more room than there
 * is.
 *
 * With on_readable the messages that were asked for wait in the call, until penstock_call_receive_many or
 * penstock_call_receive takes them, on any thread, also after on_reply. It is called when a message comes while none
 * waits: once for all that come before the program has taken the last. */
typedef struct penstock_call_callbacks {
  size_t struct_size;
  void *user_data;              /* transferred, even on error */
  penstock_finalizer finalizer; /* runs once, after on_reply, or if the call could not be made */
  void (*on_headers)(penstock_call *call, const penstock_metadata *headers, void *user_data);
  void (*on_message)(penstock_call *call, penstock_message *message, void *user_data);
  void (*on_sent)(penstock_call *call, uint64_t count, void *user_data);
  void (*on_reply)(penstock_call *call, penstock_reply *reply, void *user_data);
  void (*on_readable)(penstock_call *call, void *user_data); /* in place of on_message, which must be NULL then */
} penstock_call_callbacks;

#ifdef __cplusplus
static inline penstock_call_callbacks penstock_call_callbacks_init(void) {
  penstock_call_callbacks empty = penstock_call_callbacks();
  empty.struct_size = sizeof(empty);
  return empty;
}
#define PENSTOCK_CALL_CALLBACKS_INIT penstock_call_callbacks_init()
#else
#define PENSTOCK_CALL_CALLBACKS_INIT                                                                                   \
  { .struct_size = sizeof(penstock_call_callbacks) }
#endif

/* Adds a reference to `call`.
 * result: `call`; NULL for NULL.
 * memory: the reference is given back with penstock_call_release.
 * threads: any */
PENSTOCK_API penstock_call *penstock_call_retain(penstock_call *call);
/* Gives a reference back. The last release of a call in blocking style that has not ended cancels the call; a call in
 * callback style goes on. NULL does nothing.
 * memory: the reference is the library's again.
 * threads: any */
PENSTOCK_API void penstock_call_release(penstock_call *call);

/* Gives a number that names the call within the process.
 * result: the number; 0 for NULL.
 * memory: none.
 * threads: any */
PENSTOCK_API uint64_t penstock_call_id(const penstock_call *call);

/* Sends a message of `length` bytes at `data` (NULL only with length 0), once there is room for it; returns when it is
 * queued.
 * result: E_STATE: after half-close, a second message where the kind of call has only one, or the call has a codec.
 * E_TOO_LARGE: over max_send_message_bytes. E_GONE: the call has ended (penstock_call_wait tells how).
 * E_WOULD_DEADLOCK, E_INTERRUPTED: see the head of this file. After any error the message is not queued.
 * memory: `data` is copied.
 * threads: any that may wait: not a callback on the thread that drives the runtime. */
PENSTOCK_API penstock_result penstock_call_send(penstock_call *call, const void *data, size_t length);
/* Sends a message of `length` bytes at `data` (NULL only with length 0) if there is room for it, and never waits.
 * result: as penstock_call_send. E_WOULD_BLOCK: there is no room; try again in the next on_sent.
 * memory: `data` is copied.
 * threads: any */
PENSTOCK_API penstock_result penstock_call_try_send(penstock_call *call, const void *data, size_t length);
/* Sends `message`, made or received anywhere, without a copy; waits for room as penstock_call_send does.
 * result: as penstock_call_send. E_STATE: also where the call has a codec and the message is no object of this codec,
 * or where the call has no codec and the message is an object (see codec.h).
 * memory: `message` stays the caller's; with OK the call retains it for as long as it needs it.
 * threads: any that may wait: not a callback on the thread that drives the runtime. */
PENSTOCK_API penstock_result penstock_call_send_message(penstock_call *call, penstock_message *message);
/* Sends `message`, made or received anywhere, without a copy, if there is room for it, and never waits.
 * result: as penstock_call_send_message. E_WOULD_BLOCK: there is no room; try again in the next on_sent.
 * memory: `message` stays the caller's; with OK the call retains it for as long as it needs it.
 * threads: any */
PENSTOCK_API penstock_result penstock_call_try_send_message(penstock_call *call, penstock_message *message);
/* Sends `count` messages in one call, in their order: their bytes stand one after another at `data` (NULL only if all
 * are empty), and `lengths` has the number of bytes of each. Each is a message of its own: it takes its place in the
 * send buffer, passes each hop and is compressed by itself, and messages of other threads may come between two of them.
 * Waits for room as penstock_call_send does, for one after the other; returns when the last is queued.
 * *sent is set to the number of messages that are queued: to `count` with OK; after an error these are on their way,
 * and the next one is the one that failed.
 * result: as penstock_call_send. E_INVALID_ARGUMENT: also a sum of the lengths beyond any memory.
 * memory: `data` is copied.
 * threads: any that may wait: not a callback on the thread that drives the runtime. */
PENSTOCK_API penstock_result penstock_call_send_many(penstock_call *call, const void *data, const size_t *lengths,
                                                     size_t count, size_t *sent);
/* Sends as many of `count` messages at `data`, with these `lengths`, as there is room for, and never waits. The
 * arguments are those of penstock_call_send_many, and *sent is set in the same way.
 * result: as penstock_call_send_many. E_WOULD_BLOCK: there is no room for the message after the first *sent; try again
 * with that one in the next on_sent.
 * memory: `data` is copied.
 * threads: any */
PENSTOCK_API penstock_result penstock_call_try_send_many(penstock_call *call, const void *data, const size_t *lengths,
                                                         size_t count, size_t *sent);
/* Half-closes the call: says that no more messages will be sent. A call with one request message needs a half-close,
 * too, after that message; but the blocking functions that wait for the response half-close such a call by themselves.
 * result: E_ALREADY: a second time. E_GONE: the call has ended.
 * memory: none.
 * threads: any */
PENSTOCK_API penstock_result penstock_call_half_close(penstock_call *call);

/* Says that another thread sends the messages of a bidi call and half-closes it, without waiting for a message of the
 * response before that. Over HTTP/1.1 a bidi call is half-duplex: without this promise it ends with UNIMPLEMENTED if a
 * thread waits in penstock_call_receive or penstock_call_wait_headers before the half-close, or if a message comes
 * before it. With the promise these functions wait, and messages that come early are delivered; the call ends so only
 * if the thread waits while nothing has been sent for 5 seconds. Over HTTP/2, and for other kinds of calls, the promise
 * has no effect. See docs/protocols.md.
 * result: E_GONE: the call has ended. E_INVALID_ARGUMENT, E_FORKED.
 * memory: none.
 * threads: any */
PENSTOCK_API penstock_result penstock_call_promise_half_close(penstock_call *call);

/* Waits for the next message. If the kind of call has one request message and that message has been
 * sent, this function also half-closes the call.
 * In callback style with on_readable it takes a message that has come, and never waits.
 * result: E_END: there are no more messages, the status has come: call penstock_call_wait. E_STATE: a call in callback
 * style without on_readable. E_WOULD_BLOCK: callback style, no message waits. E_WOULD_DEADLOCK, E_INTERRUPTED.
 * memory: *message is owned by the caller; free with penstock_message_release.
 * threads: any that may wait: not a callback on the thread that drives the runtime. */
PENSTOCK_API penstock_result penstock_call_receive(penstock_call *call, penstock_message **message);
/* Waits for the next message as penstock_call_receive does, and takes with it, without a further wait, the messages
 * behind it that have come: at most `most` (not 0), and at most `size` bytes together. Their bytes are written one
 * after another to `data` (NULL only with size 0), the length of each to `lengths`, which has room for `most`, and
 * their number, at least 1, to *count. In callback style with on_readable it takes what has come, and never waits.
 * result: as penstock_call_receive. E_TOO_LARGE: the next message has more than `size` bytes; penstock_call_receive
 * takes it. E_STATE: also where the next message is an object (codec.h), and in callback style without on_readable.
 * E_WOULD_BLOCK: callback style, no message waits; on_readable tells when. E_END comes only after the last message.
 * After any error no message is taken, and what `data` and `lengths` point to is unchanged.
 * memory: the bytes are copied to `data`, which stays the caller's.
 * threads: any that may wait; in callback style any. */
PENSTOCK_API penstock_result penstock_call_receive_many(penstock_call *call, size_t most, void *data, size_t size,
                                                        size_t *lengths, size_t *count);
/* Blocking style: waits for the response headers; half-closes as penstock_call_receive does. If an interceptor may send
 * the call again, its headers come only with the first message or the end (headers_wait in interceptor.h).
 * result: E_END: the call ended without headers. E_STATE: callback style. E_WOULD_DEADLOCK, E_INTERRUPTED.
 * memory: *headers is borrowed from the call, read-only; lives as long as the call.
 * threads: any that may wait: not a callback on the thread that drives the runtime. */
PENSTOCK_API penstock_result penstock_call_wait_headers(penstock_call *call, const penstock_metadata **headers);
/* Blocking style: waits for the status and reads no messages. The status comes after the unread messages, which stay
 * under flow control: so another thread has to read them, or this wait lasts until the call's deadline or a cancel. May
 * be called again. Half-closes as penstock_call_receive does.
 * result: E_STATE: callback style. E_WOULD_DEADLOCK, E_INTERRUPTED.
 * memory: *reply is owned by the caller; free with penstock_reply_release.
 * threads: any that may wait: not a callback on the thread that drives the runtime. */
PENSTOCK_API penstock_result penstock_call_wait_status(penstock_call *call, penstock_reply **reply);
/* Like penstock_call_wait_status, but waits for up to `timeout_ms` milliseconds (-1: without limit); 0 does not wait, and
 * so is allowed on any thread. The call goes on after a time-out.
 * result: E_TIMEOUT: the call has not ended. E_STATE: callback style. E_INVALID_ARGUMENT: NULL, or less than -1.
 * E_WOULD_DEADLOCK, E_INTERRUPTED.
 * memory: *reply is owned by the caller; free with penstock_reply_release.
 * threads: any that may wait: not a callback on the thread that drives the runtime. */
PENSTOCK_API penstock_result penstock_call_wait_status_for(penstock_call *call, int64_t timeout_ms,
                                                           penstock_reply **reply);
/* Blocking style: half-closes if necessary, discards unread messages, and waits for the status. May be called again.
 * result: E_STATE: callback style. E_WOULD_DEADLOCK, E_INTERRUPTED.
 * memory: *reply is owned by the caller; free with penstock_reply_release.
 * threads: any that may wait: not a callback on the thread that drives the runtime. */
PENSTOCK_API penstock_result penstock_call_wait(penstock_call *call, penstock_reply **reply);
/* Callback style: asks for `count` more messages. In a call with one response message the library itself asks for it,
 * and this function has no effect.
 * result: E_STATE: blocking style. E_GONE: the call has ended.
 * memory: none.
 * threads: any */
PENSTOCK_API penstock_result penstock_call_demand(penstock_call *call, uint64_t count);

/* Ends the call with CANCELLED and `reason` (NUL-terminated UTF-8; NULL is ""). Messages that have not been delivered
 * are discarded: once this function has returned, penstock_call_receive gives E_END, and no on_message begins, except
 * one that another thread is about to run. A call that has ended keeps its status and its reply.
 * result: E_FORKED.
 * memory: `reason` is copied.
 * threads: any */
PENSTOCK_API penstock_result penstock_call_cancel(penstock_call *call, const char *reason);
/* Gives the reply if the call has ended, without waiting.
 * result: E_WOULD_BLOCK: it has not ended.
 * memory: *reply is owned by the caller; free with penstock_reply_release.
 * threads: any */
PENSTOCK_API penstock_result penstock_call_reply(penstock_call *call, penstock_reply **reply);
/* Sets `key` (NUL-terminated) to `value` for the hops of the call, as penstock_hop_set_value does; NULL removes the
 * value. `finalizer` (nullable) gets the value when it is replaced or removed, or when both call and reply have been
 * freed.
 * result: E_NO_MEMORY, E_FORKED.
 * memory: `key` is copied; `value` is transferred, even on error. The library does not lock the value: if one thread
 * may replace it while others use it, the program has to.
 * threads: any */
PENSTOCK_API penstock_result penstock_call_set_value(penstock_call *call, const char *key, void *value,
                                                     penstock_finalizer finalizer);
/* Gives the value that a hop or the caller has set under `key` (NUL-terminated).
 * result: the value; NULL: there is none.
 * memory: lives until it is replaced or removed, or both call and reply have been freed.
 * threads: any */
PENSTOCK_API void *penstock_call_value(const penstock_call *call, const char *key);

/* ---- The trace ---- */

/* Writes the trace of the call as one JSON object:
 * {"id", "method", "kind", "target", "ended",
 *  "holder": says what the call waits for now: {"state", "hop" (a name or null), "text", such as "paused in `auth` for
 *    3,204 ms", with the last failure of connecting or of the look-up, and in the states "paused", "held" and "executor"
 *    "for_ms"}; null once the call has ended, and if the loop does not answer within 100 ms. "state" is one of "paused",
 *    "held", "executor" (which has not run the callback yet), "running" (the callback in which this function is called),
 *    "taken" (a hop has taken the call and has not answered), "retry" (until a retry policy sends the request again),
 *    "name" (its addresses), "connection", "slot" (the server, or over HTTP/1.1 the channel, allows no more calls at
 *    once), "endpoint" (the picker, a hop or the request takes none of those that are ready), "demand" (a message has
 *    not been asked for), "server", "loop" (the call's loop is about to go on)
 *  "age_ms", "deadline_ms" (left; null: no deadline), "attempts", "protocol", "http", "connection_silent_ms", "peer"
 *    and "local" (what the connection of the last attempt speaks, how long nothing has come on it, and its addresses,
 *    as in penstock_reply_stats_json; null without one), and "outbound", "inbound": the events that wait at hops,
 *    each {"hop", "index" in the chain, "level", "attempt", "state" (as in "holder"; "queued": behind another event;
 *    "kept": headers that wait for the hop's verdict on the event behind them), "event", "for_ms", "waiting": how many
 *    more events wait unseen in front of the hop}. These members are absent once the call has ended, and if the loop
 *    does not answer
 *  "events": null without the option "trace", else the latest events, each with "us" since the call's creation, "what",
 *    "hop" (null: the caller or the transport) with "index", "level" and "attempt", "lane", "event", "thread"
 *    ("driving" or "other"), "thread_id"; for "what":
 *    "callback": a callback has returned, with "verdict" and "took_us"
 *    "executor": an executor has been given a callback to run
 *    "resolved": a ticket has been resolved, with "verdict" or "code"
 *    "ended_by_hop": the hop has ended the call with "code"
 *    "restarted": the call begins again, for the "restarts"-th time: "hop" has returned RESTART, or, if "hop" is null,
 *      the library itself sends the request again, which the server has not processed, or as the retry policy wants
 *    "retries": the retry policy sends the request again "after_us"
 *    "not_restarted": a RESTART was not possible; "why" is a result such as "PENSTOCK_E_TOO_LARGE"
 *    "redirected": the hop has sent the call to another channel
 *    "side_call": the hop has started a side call; "call" is its id
 *    "caller", "transport": the event has come from there, or has arrived there; a status of the transport has "code",
 *      an event "demand" or "sent" has "count"
 *    "waiting": an attempt begins to wait, "for" one of the states "name", "connection", "slot" and "endpoint"; null:
 *      the wait is over
 *    "ended_locally": a cancel or the deadline has ended the call with "code"
 *    "ended": the caller has got the status with "code"
 *  "dropped": how many older events are no longer kept}
 * The trace contains no messages and no values of metadata.
 * result: E_NO_MEMORY, E_FORKED.
 * memory: *json is owned by the caller; free with penstock_free.
 * threads: any; on the driving thread it returns at once. */
PENSTOCK_API penstock_result penstock_call_trace_json(penstock_call *call, char **json);

#ifdef __cplusplus
}
#endif
#endif
