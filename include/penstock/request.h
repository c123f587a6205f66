/* The request: the start of a call (metadata, method, deadline, settings), as a hop sees it or as call options contain
 * it.
 *
 * penstock_hop_request gives the request of a hop. Any callback of the hop may read it. It may be changed in on_start,
 * before anything is sent. In on_status of a hop with replay_bytes it is the request that a RESTART sends, and may be
 * changed too. If that status waits, any thread may change the request with a bound hop until the wait is over. The
 * function of a synchronous interceptor may change it before penstock_hop_next, and again when next has given a status.
 * penstock_call_options_request gives the request of call options, which is read and changed before the options are
 * shared; its method and channel can't be set. Elsewhere a setter gives PENSTOCK_E_STATE, after the call
 * PENSTOCK_E_GONE, in a forked child PENSTOCK_E_FORKED, and for a NULL PENSTOCK_E_INVALID_ARGUMENT. The request of a
 * hop is readable in the callbacks of the hop, in the function of a synchronous interceptor, and with a bound hop while
 * a start waits, or a status that may be answered with RESTART. Elsewhere it is "not readable": a getter that returns a
 * pointer gives NULL, and the others PENSTOCK_E_STATE, or PENSTOCK_E_GONE after the hop's end, and leave their output as
 * it was. A callback on an executor sees the request as it was when its event came, although other hops may change it meanwhile.
 */
#ifndef PENSTOCK_REQUEST_H
#define PENSTOCK_REQUEST_H

#include "base.h"
#include "channel.h"
#include "message.h"
#include "metadata.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Gives the request's metadata: in create (read-only), in the callbacks that may change the request, and with a bound
 * hop while a start waits.
 * result: the metadata; NULL elsewhere.
 * memory: borrowed; lives as long as the hop's callback, its bound handle or its function.
 * threads: as the head of this file says */
PENSTOCK_API penstock_metadata *penstock_request_metadata(penstock_request *request);
/* Gives the method, "/package.Service/Method", NUL-terminated.
 * result: NULL if the request is not readable, or is that of call options.
 * memory: borrowed; lives until it is set again or the call ends.
 * threads: as the head of this file says */
PENSTOCK_API const char *penstock_request_method(const penstock_request *request);
/* Sets the method to `method`, NUL-terminated. Method filters are not applied again.
 * result: E_INVALID_ARGUMENT: a NULL, or not "/service/method", in visible ASCII without "?" and "#". E_STATE, E_GONE,
 * E_FORKED: as the head of this file says.
 * memory: `method` is copied.
 * threads: as the head of this file says */
PENSTOCK_API penstock_result penstock_request_set_method(penstock_request *request, const char *method);
/* Gives the authority that is sent, NUL-terminated.
 * result: NULL if the request is not readable, and for call options that set none.
 * memory: borrowed; lives until it is set again or the call ends; from call options, until it is set or read again.
 * threads: as the head of this file says */
PENSTOCK_API const char *penstock_request_authority(const penstock_request *request);
/* Sets the authority to `authority`, visible ASCII, NUL-terminated.
 * result: E_INVALID_ARGUMENT: a NULL, or not a valid authority. E_STATE, E_GONE, E_FORKED: as the head of this file
 * says.
 * memory: `authority` is copied.
 * threads: as the head of this file says */
PENSTOCK_API penstock_result penstock_request_set_authority(penstock_request *request, const char *authority);
/* Stores in *ms the milliseconds that are left until the deadline: 0 if it has passed, -1 if there is none. For call
 * options they are those from a call's creation to its deadline.
 * result: E_INVALID_ARGUMENT: a NULL. E_STATE, E_GONE, E_FORKED: not readable.
 * memory: none.
 * threads: as the head of this file says */
PENSTOCK_API penstock_result penstock_request_deadline_ms(const penstock_request *request, int64_t *ms);
/* Moves the deadline to `ms` milliseconds from now, earlier or later; -1 is none. For call options `ms` counts from the
 * creation of a call, and -1 stands for the channel's default.
 * result: E_INVALID_ARGUMENT: NULL, or less than -1. E_STATE, E_GONE, E_FORKED: as the head of this file says.
 * memory: none.
 * threads: as the head of this file says */
PENSTOCK_API penstock_result penstock_request_set_deadline_ms(penstock_request *request, int64_t ms);

/* Gives the compression of messages on their way to the server.
 * result: "identity", "gzip", "deflate", "zstd" or the name of a compressor; NULL if the request is not readable.
 * memory: static.
 * threads: as the head of this file says */
PENSTOCK_API const char *penstock_request_compression(const penstock_request *request);
/* Sets the compression of messages on their way to the server to `name`, "identity", "gzip", "deflate", "zstd", which
 * loads the system's libzstd.so.1, or the name of a compressor (compressor.h).
 * result: E_INVALID_ARGUMENT: a NULL, or none of them. E_UNSUPPORTED: "zstd", and the system has no such library.
 * E_STATE, E_GONE, E_FORKED: as the head of this file says.
 * memory: none.
 * threads: as the head of this file says */
PENSTOCK_API penstock_result penstock_request_set_compression(penstock_request *request, const char *name);
/* Stores in *bytes the limit on one received message, in bytes, decompressed.
 * result: E_INVALID_ARGUMENT: a NULL. E_STATE, E_GONE, E_FORKED: not readable.
 * memory: none.
 * threads: as the head of this file says */
PENSTOCK_API penstock_result penstock_request_max_receive_message_bytes(const penstock_request *request, size_t *bytes);
/* Sets the limit on one received message to `bytes`.
 * result: E_INVALID_ARGUMENT: NULL, or over 2147483647. E_STATE, E_GONE, E_FORKED: as the head of this file says.
 * memory: none.
 * threads: as the head of this file says */
PENSTOCK_API penstock_result penstock_request_set_max_receive_message_bytes(penstock_request *request, size_t bytes);
/* Stores in *bytes the limit on one message as it leaves the last hop, in bytes, uncompressed: a larger message ends the
 * call with RESOURCE_EXHAUSTED. A message of the caller is also checked against the limit of the call's options.
 * result: E_INVALID_ARGUMENT: a NULL. E_STATE, E_GONE, E_FORKED: not readable.
 * memory: none.
 * threads: as the head of this file says */
PENSTOCK_API penstock_result penstock_request_max_send_message_bytes(const penstock_request *request, size_t *bytes);
/* Sets the limit on one sent message to `bytes`.
 * result: E_INVALID_ARGUMENT: NULL, or over 2147483647. E_STATE, E_GONE, E_FORKED: as the head of this file says.
 * memory: none.
 * threads: as the head of this file says */
PENSTOCK_API penstock_result penstock_request_set_max_send_message_bytes(penstock_request *request, size_t bytes);

/* The idempotency: how safe it is to call the method twice. Connect calls a unary method without side effects by an
 * HTTP GET, unless that is forbidden (penstock_request_set_allows_get). Over HTTP/1.1 a request with either of the last
 * two is sent again if its connection ends without a byte of an answer. */
#define PENSTOCK_IDEMPOTENCY_UNKNOWN         0
#define PENSTOCK_IDEMPOTENCY_IDEMPOTENT      1
#define PENSTOCK_IDEMPOTENCY_NO_SIDE_EFFECTS 2

/* Stores in *idempotency how safe it is to call the method twice: PENSTOCK_IDEMPOTENCY_....
 * result: E_INVALID_ARGUMENT: a NULL. E_STATE, E_GONE, E_FORKED: not readable.
 * memory: none.
 * threads: as the head of this file says */
PENSTOCK_API penstock_result penstock_request_idempotency(const penstock_request *request, int32_t *idempotency);
/* Sets the idempotency to `idempotency`, PENSTOCK_IDEMPOTENCY_....
 * result: E_INVALID_ARGUMENT: NULL, or none of them. E_STATE, E_GONE, E_FORKED: as the head of this file says.
 * memory: none.
 * threads: as the head of this file says */
PENSTOCK_API penstock_result penstock_request_set_idempotency(penstock_request *request, int32_t idempotency);
/* Stores in *count how many attempts by a retry or hedging policy came before this one, as the server is told in
 * "grpc-previous-rpc-attempts" (gRFC A6). Transparent retries do not count.
 * result: E_INVALID_ARGUMENT: a NULL. E_STATE, E_GONE, E_FORKED: not readable.
 * memory: none.
 * threads: as the head of this file says */
PENSTOCK_API penstock_result penstock_request_previous_attempts(const penstock_request *request, uint32_t *count);
/* Stores in *is whether this attempt is a transparent retry (1 or 0): by the library's own decision it repeats one that the
 * server has certainly not processed (gRFC A6).
 * result: E_INVALID_ARGUMENT: a NULL. E_STATE, E_GONE, E_FORKED: not readable.
 * memory: none.
 * threads: as the head of this file says */
PENSTOCK_API penstock_result penstock_request_is_transparent_retry(const penstock_request *request, int32_t *is);
/* Gives the HTTP method of the request: "GET" for a unary call over Connect whose idempotency is NO_SIDE_EFFECTS,
 * unless GET is forbidden; else "POST". A message that makes the URL longer than the channel's "max_get_url_bytes"
 * turns a GET into a POST: in on_send at the bytes level this is known, unless compression may shorten the message; in
 * earlier callbacks it is not. From on_headers on, and in on_status of a hop without replay_bytes, the result is the
 * method with which the request was sent.
 * result: NUL-terminated; NULL if the request is not readable, or is that of call options.
 * memory: static.
 * threads: as the head of this file says */
PENSTOCK_API const char *penstock_request_http_method(const penstock_request *request);
/* Stores in *allows whether the request may be an HTTP GET, 1 or 0; see penstock_request_http_method.
 * result: E_INVALID_ARGUMENT: a NULL. E_STATE, E_GONE, E_FORKED: not readable.
 * memory: none.
 * threads: as the head of this file says */
PENSTOCK_API penstock_result penstock_request_allows_get(const penstock_request *request, int32_t *allows);
/* Sets whether the request may be an HTTP GET: `allows` is 0 for no, anything else for yes. A GET has the message in
 * its URL, which servers and proxies may log and cache.
 * result: E_INVALID_ARGUMENT: NULL. E_STATE, E_GONE, E_FORKED: as the head of this file says.
 * memory: none.
 * threads: as the head of this file says */
PENSTOCK_API penstock_result penstock_request_set_allows_get(penstock_request *request, int32_t allows);
/* Gives the name of the messages' encoding in the request's content-type, NUL-terminated: "json" for
 * "application/grpc+json", or with Connect for "application/json". It is the name of the call's codec, if neither a hop
 * nor an option has set another. The content-type of the response is among its headers as "content-type", unless it is
 * "application/grpc".
 * result: "" for the usual encoding, "proto"; NULL if the request is not readable.
 * memory: borrowed; lives until it is set again or the call ends.
 * threads: as the head of this file says */
PENSTOCK_API const char *penstock_request_content_subtype(const penstock_request *request);
/* Sets the name of the messages' encoding in the content-type to `subtype`, NUL-terminated; "" is the usual one. The
 * messages themselves stay as they are.
 * result: E_INVALID_ARGUMENT: a NULL, or characters other than lower-case letters, digits, "-", "_" and ".". E_STATE,
 * E_GONE, E_FORKED: as the head of this file says.
 * memory: `subtype` is copied.
 * threads: as the head of this file says */
PENSTOCK_API penstock_result penstock_request_set_content_subtype(penstock_request *request, const char *subtype);
/* Gives the user agent that this call sends instead of its channel's, NUL-terminated.
 * result: "" for the channel's; NULL if the request is not readable.
 * memory: borrowed; lives until it is set again or the call ends.
 * threads: as the head of this file says */
PENSTOCK_API const char *penstock_request_user_agent(const penstock_request *request);
/* Puts `application` (visible ASCII and spaces, NUL-terminated) before the library's own name in the user agent of this
 * call; "" restores the channel's user agent.
 * result: E_INVALID_ARGUMENT: a NULL, or a character that is not allowed. E_STATE, E_GONE, E_FORKED: as the head of
 * this file says.
 * memory: `application` is copied.
 * threads: as the head of this file says */
PENSTOCK_API penstock_result penstock_request_set_user_agent(penstock_request *request, const char *application);
/* Stores in *wait whether the call waits for a connection, however long it takes, 1 or 0. A call that does not wait
 * fails with UNAVAILABLE where the channel can't connect (docs/channel.md).
 * result: E_INVALID_ARGUMENT: a NULL. E_STATE, E_GONE, E_FORKED: not readable.
 * memory: none.
 * threads: as the head of this file says */
PENSTOCK_API penstock_result penstock_request_wait_for_ready(const penstock_request *request, int32_t *wait);
/* Sets whether the call waits for a connection: `wait` is 0 for no, anything else for yes. The change holds from the
 * next attempt on.
 * result: E_INVALID_ARGUMENT: NULL. E_STATE, E_GONE, E_FORKED: as the head of this file says.
 * memory: none.
 * threads: as the head of this file says */
PENSTOCK_API penstock_result penstock_request_set_wait_for_ready(penstock_request *request, int32_t wait);
/* Stores in *has whether the call has credentials, 1 or 0; their value is not shown.
 * result: E_INVALID_ARGUMENT: a NULL. E_STATE, E_GONE, E_FORKED: not readable.
 * memory: none.
 * threads: as the head of this file says */
PENSTOCK_API penstock_result penstock_request_has_credentials(const penstock_request *request, int32_t *has);
/* Replaces the credentials of the call by one field, "authorization": `authorization` is visible ASCII and spaces, NUL-
 * terminated; NULL removes them. They are sent with the request's headers, instead of metadata of the same name, over
 * TLS only: on a channel without TLS the call ends with UNAUTHENTICATED before anything is sent. No JSON and no trace
 * shows them. A redirected call keeps them.
 * result: E_INVALID_ARGUMENT: the request is NULL, or a character is not allowed. E_STATE, E_GONE, E_FORKED: as the
 * head of this file says.
 * memory: `authorization` is copied.
 * threads: as the head of this file says */
PENSTOCK_API penstock_result penstock_request_set_credentials(penstock_request *request, const char *authorization);

/* Asks for an endpoint whose attribute `name`, which the resolver gives, has this `value`. If such endpoints are ready,
 * one of them is picked. If no such endpoint is ready: with `required` 0 any other endpoint is picked; with another
 * number the call waits as long as such an endpoint is connecting, and otherwise ends with UNAVAILABLE. If this
 * function is called again, the last call counts; NULL as `name` takes the preference back.
 * result: E_INVALID_ARGUMENT: the request is NULL, or `value` is NULL and `name` is not. E_STATE, E_GONE, E_FORKED: as
 * the head of this file says; E_STATE also for call options.
 * memory: both texts are copied.
 * threads: as the head of this file says */
PENSTOCK_API penstock_result penstock_request_prefer(penstock_request *request, const char *name, const char *value,
                                                     int32_t required);

/* Gives the message at `index`, from 0, of those that a RESTART sends again: in on_status of a hop with replay_bytes,
 * and while that status waits; in the function of a synchronous interceptor, when next has given a status.
 * result: E_INVALID_ARGUMENT: a NULL. E_NOT_FOUND: there is no such message. E_STATE: elsewhere, and where the call
 * can't begin again. E_GONE, E_FORKED: as the head of this file says.
 * memory: *message is owned by the caller; free with penstock_message_release.
 * threads: as the head of this file says */
PENSTOCK_API penstock_result penstock_request_message(penstock_request *request, size_t index,
                                                      penstock_message **message);
/* Replaces the message at `index` by `message` in what a RESTART sends again, where penstock_request_message gives it.
 * result: as penstock_request_message. E_TOO_LARGE: the request would be over replay_bytes. E_UNSUPPORTED: an object
 * that can't be copied. E_STATE: also for an object where messages are bytes, and the other way round.
 * memory: nothing is copied; `message` stays the caller's.
 * threads: as the head of this file says */
PENSTOCK_API penstock_result penstock_request_set_message(penstock_request *request, size_t index,
                                                          penstock_message *message);

/* Redirect: sends the rest of the call to `channel`, another channel of the same runtime. The interceptors, options and
 * deadline of the call stay. The call uses the other channel's connection, TLS and target, and also its authority,
 * unless one was set for the call. Closing either channel ends the call. If several channels are set, the last one
 * counts.
 * result: E_INVALID_ARGUMENT: a NULL, or a channel of another runtime. E_CLOSED: that channel has been closed. E_STATE:
 * the channel is on another loop of the runtime ("loops" in runtime.h), or as the head of this file says. E_GONE,
 * E_FORKED: as it says.
 * memory: `channel` is retained until the call ends.
 * threads: in a callback of the hop, on its thread */
PENSTOCK_API penstock_result penstock_request_set_channel(penstock_request *request, penstock_channel *channel);

#ifdef __cplusplus
}
#endif
#endif
