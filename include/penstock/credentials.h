/* Ready-made interceptors that get their bearer tokens by themselves: they sign them, or ask a server of OAuth 2.0 for
 * them. Everything else is as in penstock_ready_bearer_token, and the rules at the head of ready.h hold here, too.
 * docs/ready.md has an example of each. */
#ifndef PENSTOCK_CREDENTIALS_H
#define PENSTOCK_CREDENTIALS_H

#include "channel.h"
#include "interceptor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fills `table` with the interceptor of penstock_ready_bearer_token, whose tokens are JSON Web Tokens (RFC 7519) that the
 * library signs: by RS256 with a key for RSA of at least 2048 bits, by ES256 with one for the curve P-256. Each token is
 * made when the first call needs it, before the last one expires, and when the server has refused the last one. The file
 * with the key is a regular one of at most 65536 bytes, and is read for each token on the thread that drives the runtime.
 * While there is no token, calls end with UNAVAILABLE, which names the file and the reason. Options:
 *   "key_file": the path of the private key in PEM form, without a password; or
 *   "service_account_file": the path of a service account's JSON, whose "private_key", "private_key_id" and
 *       "client_email" are used. One of the two is required
 *   "key_id": the claim "kid" of the token's header; by default that of the service account, or none
 *   "issuer": the claim "iss"; by default the service account; required with "key_file"
 *   "subject": the claim "sub"; by default the issuer
 *   "audience", "scope": the claims "aud" and "scope"; one of the two is required
 *   "lifetime_ms": 3600000; how long a token is valid (1000 to 86400000): the claim "exp", beside "iat"
 *   "refresh_early_ms": 60000, "header", "scheme", "replay_bytes", "allow_cleartext": as in penstock_ready_bearer_token
 * result: E_INVALID_ARGUMENT: `table` is NULL. E_INVALID_JSON: a wrong option, or one is missing.
 * memory: `options_json` is borrowed during the call. `table` is the caller's until it is registered.
 * threads: any */
PENSTOCK_API penstock_result penstock_ready_jwt(const char *options_json, penstock_interceptor *table,
                                                penstock_error **error);

/* Fills `table` with the interceptor of penstock_ready_bearer_token, whose tokens come from a server of OAuth 2.0 (RFC
 * 6749). Each request is a form that is posted on the channel `server`, with its TLS and proxy, but without
 * interceptors: none of them sees the secrets in it. A channel with "protocol": "connect" works with servers of HTTP/1.1
 * and HTTP/2, one with "grpc" only with those of HTTP/2. Options:
 *   "grant": required: "client_credentials" (RFC 6749 section 4.4), "refresh_token" (6), or "jwt_bearer" (RFC 7523
 *       section 2.1)
 *   "token_path": required: the path of the token server's URL, such as "/oauth2/token"
 *   "client_id", "client_secret": the client's name, which "client_credentials" needs, and its secret
 *   "client_authentication": "basic"; "form": name and secret are sent in the form
 *   "scope", "audience": fields of the form, if they are given
 *   "refresh_token": the first one, which the grant needs. If the server gives another one, that is used next; it is kept in
 *       memory only
 *   "jwt": an object with "key_file" or "service_account_file", "key_id", "issuer", "subject", "audience", "scope" and
 *       "lifetime_ms" (300000), as in penstock_ready_jwt: the signed token that "jwt_bearer" exchanges. With the other
 *       grants the signed token proves who the client is, in place of a secret (RFC 7523 section 2.2). The issuer is by
 *       default the service account or "client_id", the audience the "token_uri" of the service account; it is required with
 *       "key_file"
 *   "lifetime_ms": 3600000; how long a token is used if the answer has no "expires_in"
 *   "refresh_early_ms": 60000, "replay_bytes": as in penstock_ready_bearer_token
 *   "refresh_timeout_ms": 30000; how long a call waits for a token, and a request for its answer; 0: without limit
 *   "allow_cleartext": false; neither calls nor requests for tokens are sent without TLS. A unix socket counts as TLS
 * A call without a token ends with UNAVAILABLE if the token server can't be reached, or answers with HTTP status 408, 429,
 * 5xx, or with something that is no answer of OAuth; with RESOURCE_EXHAUSTED if the answer has more than 65536 bytes, or
 * there is no memory for it; with UNAUTHENTICATED if the server refuses the request. The message has the
 * "error" and the "error_description" of the answer, but no secret. After such an answer no request is sent for a second,
 * or as long as its Retry-After says, at most an hour: calls that need a token end with the same status at once.
 * A token that the service refuses within a second is replaced once, and then not for a second: a service that refuses every
 * token costs the token server no more. With "refresh_token" only one process may use the same token: a forked child needs
 * one of its own.
 * result: E_INVALID_ARGUMENT: `server` or `table` is NULL, or `server` has no TLS. E_INVALID_JSON: a wrong option, or one is
 * missing. E_FORKED: `server` belongs to the parent of this process.
 * memory: `options_json` is borrowed during the call. `server` is shared: the interceptor has a handle of its own until it
 * is freed. `table` is the caller's until it is registered.
 * threads: any */
PENSTOCK_API penstock_result penstock_ready_oauth2(const char *options_json, penstock_channel *server,
                                                   penstock_interceptor *table, penstock_error **error);

#ifdef __cplusplus
}
#endif
#endif
