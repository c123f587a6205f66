/* The start of a call as a hop sees it: metadata, method, deadline and how the call is to be made.
 *
 * A penstock_request is had from penstock_hop_request, and is read in any callback of the hop. It is changed in on_start,
 * before anything is sent; and in on_status of a hop that records (replay_bytes), where it is what a RESTART sends: there
 * also later, on any thread, by a bound hop, for as long as the status waits. The function of a synchronous interceptor
 * changes it until next. Elsewhere a setter gives PENSTOCK_E_STATE, after the call PENSTOCK_E_GONE, in a forked child
 * PENSTOCK_E_FORKED; with a NULL, PENSTOCK_E_INVALID_ARGUMENT. Where nothing is shown, a getter gives what it gives for
 * NULL.
 */
#ifndef PENSTOCK_REQUEST_H
#define PENSTOCK_REQUEST_H

#include "base.h"
#include "channel.h"
#include "metadata.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct penstock_request penstock_request;

/* The request's metadata: in create, in on_start, and where it may be changed; else NULL.
 * Memory: borrowed, as long-lived as the hop's callback, its bound handle, or its function. */
PENSTOCK_API penstock_metadata *penstock_request_metadata(penstock_request *request);
/* "/package.Service/Method"; lives until it is set again or the call ends; NULL for NULL. */
PENSTOCK_API const char *penstock_request_method(const penstock_request *request);
/* E_INVALID_ARGUMENT: not "/service/method". Method filters are not applied again. */
PENSTOCK_API penstock_result penstock_request_set_method(penstock_request *request, const char *method);
/* The authority that is sent; lives as penstock_request_method. */
PENSTOCK_API const char *penstock_request_authority(const penstock_request *request);
PENSTOCK_API penstock_result penstock_request_set_authority(penstock_request *request, const char *authority);
/* Milliseconds left until the deadline, 0 if it has passed, -1 for none, and for NULL. */
PENSTOCK_API int64_t penstock_request_deadline_ms(const penstock_request *request);
/* Moves the deadline to `ms` milliseconds from now, earlier or later; -1 is none. */
PENSTOCK_API penstock_result penstock_request_set_deadline_ms(penstock_request *request, int64_t ms);

/* "identity" or "gzip": how messages are compressed on their way to the server. Static; "identity" for NULL. */
PENSTOCK_API const char *penstock_request_compression(const penstock_request *request);
/* E_INVALID_ARGUMENT: neither "identity" nor "gzip". */
PENSTOCK_API penstock_result penstock_request_set_compression(penstock_request *request, const char *name);
/* The limit on one received message, decompressed. 0 for NULL. */
PENSTOCK_API size_t penstock_request_max_receive_message_bytes(const penstock_request *request);
/* E_INVALID_ARGUMENT: over 2147483647. */
PENSTOCK_API penstock_result penstock_request_set_max_receive_message_bytes(penstock_request *request, size_t bytes);
/* The limit on one message as it leaves the last hop, uncompressed: over it the call ends with RESOURCE_EXHAUSTED. What
 * the caller passes to a send is also held against the limit of its options. 0 for NULL. */
PENSTOCK_API size_t penstock_request_max_send_message_bytes(const penstock_request *request);
/* E_INVALID_ARGUMENT: over 2147483647. */
PENSTOCK_API penstock_result penstock_request_set_max_send_message_bytes(penstock_request *request, size_t bytes);

/* What may be assumed of the method if it is called twice. It is carried for hops (and for framings that make use of it):
 * the library itself does not decide by it. */
#define PENSTOCK_IDEMPOTENCY_UNKNOWN         0
#define PENSTOCK_IDEMPOTENCY_IDEMPOTENT      1
#define PENSTOCK_IDEMPOTENCY_NO_SIDE_EFFECTS 2

/* PENSTOCK_IDEMPOTENCY_...; UNKNOWN for NULL. */
PENSTOCK_API int32_t penstock_request_idempotency(const penstock_request *request);
/* E_INVALID_ARGUMENT: not one of them. */
PENSTOCK_API penstock_result penstock_request_set_idempotency(penstock_request *request, int32_t idempotency);
/* Of what kind the messages are, as the server is told: "json" for "application/grpc+json"; "" for "application/grpc", and
 * for NULL. Lives as penstock_request_method. What the server says of its own stands among the headers of the response
 * as "content-type", where it is other than "application/grpc". */
PENSTOCK_API const char *penstock_request_content_subtype(const penstock_request *request);
/* Copied; "" is none. E_INVALID_ARGUMENT: others than lower-case letters, digits, "-", "_" and ".". */
PENSTOCK_API penstock_result penstock_request_set_content_subtype(penstock_request *request, const char *subtype);
/* The user agent that this call sends instead of its channel's; "" is the channel's, and for NULL. Lives as
 * penstock_request_method. */
PENSTOCK_API const char *penstock_request_user_agent(const penstock_request *request);
/* Puts `application` (visible ASCII and spaces, copied) before the library's own name; "" is the channel's again.
 * E_INVALID_ARGUMENT: not such a text. */
PENSTOCK_API penstock_result penstock_request_set_user_agent(penstock_request *request, const char *application);
/* 1 if the call is to wait for a connection instead of failing, else 0. It is carried, and has no effect in this version:
 * channels do not wait yet. */
PENSTOCK_API int32_t penstock_request_wait_for_ready(const penstock_request *request);
PENSTOCK_API penstock_result penstock_request_set_wait_for_ready(penstock_request *request, int32_t wait);
/* 1 if the call has credentials, else 0; what they are is not told. */
PENSTOCK_API int32_t penstock_request_has_credentials(const penstock_request *request);
/* Replaces the credentials of the call by one field, "authorization" (visible ASCII and spaces, copied); NULL removes
 * them. They are sent with the request's headers, instead of metadata of the same name, over TLS only: on a channel
 * without it the call ends with UNAUTHENTICATED before anything is sent. No JSON and no trace shows them. They go along
 * with a redirect.
 * E_INVALID_ARGUMENT: not such a text. */
PENSTOCK_API penstock_result penstock_request_set_credentials(penstock_request *request, const char *authorization);

/* Redirect: sends the rest of the call to another channel of the same runtime. In a callback only, of the hop's
 * own thread. The interceptors, options and deadline of the call stay. The connection and its
 * credentials are the other channel's, and so are the target and the authority, unless one was set. The other channel
 * is kept until the call ends; closing either channel ends it. The last one set counts.
 * E_INVALID_ARGUMENT: a channel of another runtime. E_CLOSED: it has been closed. */
PENSTOCK_API penstock_result penstock_request_set_channel(penstock_request *request, penstock_channel *channel);

#ifdef __cplusplus
}
#endif
#endif
