/* Verifier: the program's own check of the certificates of servers, beside those of the option "tls" (docs/tls.md).
 */
#ifndef PENSTOCK_VERIFIER_H
#define PENSTOCK_VERIFIER_H

#include "base.h"
#include "channel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A server whose certificates are checked. The handle is valid until the verifier returns; the functions below are for
 * the thread that runs the verifier. */
typedef struct penstock_verification penstock_verification;

/* Checks the certificates of a server, within each full TLS handshake, when all other checks have passed. It has to call
 * penstock_verification_accept: if it returns without, or has called penstock_verification_refuse, the attempt to connect
 * fails, before the server gets a client certificate or a byte of a call. It is called on the thread that drives the
 * runtime, and must return soon: a function that waits gives PENSTOCK_E_WOULD_DEADLOCK there. */
typedef void (*penstock_verifier)(penstock_verification *server, void *user_data);

/* Lets `verifier` check the servers of the connections that begin from now on; NULL: nobody checks them beside the
 * library. Connections that there are stay; sessions of TLS that they have left are not resumed. Set it before the
 * first call, so that no connection is made without it. With "verify": false the verifier is the only check. In a channel
 * without TLS it is never called.
 * result: E_INVALID_ARGUMENT: the channel is NULL. E_CLOSED, E_FORKED.
 * memory: `user_data` is transferred, even on error: `finalizer` (nullable) gets it when the channel has another
 * verifier or none and no handshake needs it any more, or has closed.
 * threads: any */
PENSTOCK_API penstock_result penstock_channel_set_verifier(penstock_channel *channel, penstock_verifier verifier,
                                                           void *user_data, penstock_finalizer finalizer);
/* Gives the name that is expected first: the target's host, or the first "server_name". It was sent to the server, unless it
 * is an address. The certificate fits it or another of the list, unless "verify" is false or "spiffe_ids" are given.
 * result: NUL-terminated; NULL if there is none, as for a unix socket, and for NULL.
 * memory: borrowed until the verifier returns.
 * threads: the verifier's */
PENSTOCK_API const char *penstock_verification_name(const penstock_verification *server);
/* Tells how many certificates there are: the chain as it was verified, from the server's own to a root that is trusted;
 * with "verify": false, those that the server has sent.
 * result: at least 1; 0 for NULL.
 * memory: none.
 * threads: the verifier's */
PENSTOCK_API size_t penstock_verification_count(const penstock_verification *server);
/* Gives the certificate at `index`, the server's own at 0, in DER form (RFC 5280), as d2i_X509 and others read it.
 * result: the bytes, and their number in `length`; NULL, and 0, if there is none, for lack of memory, and for NULL.
 * memory: borrowed until the verifier returns. `length` may be NULL.
 * threads: the verifier's */
PENSTOCK_API const void *penstock_verification_certificate(penstock_verification *server, size_t index, size_t *length);
/* Accepts the server, unless it is refused.
 * result: E_INVALID_ARGUMENT: NULL.
 * memory: none.
 * threads: the verifier's */
PENSTOCK_API penstock_result penstock_verification_accept(penstock_verification *server);
/* Refuses the server for good. `words` (NUL-terminated, nullable) become a part of the text of the calls that fail; of
 * several the last ones count, and of long ones the first 500 bytes.
 * result: E_INVALID_ARGUMENT: `server` is NULL, or `words` is not UTF-8: the server is refused without words.
 * memory: `words` is copied.
 * threads: the verifier's */
PENSTOCK_API penstock_result penstock_verification_refuse(penstock_verification *server, const char *words);

#ifdef __cplusplus
}
#endif
#endif
