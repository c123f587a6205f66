/* Channel: a target, its credentials and options, its connections, and its interceptors. */
#ifndef PENSTOCK_CHANNEL_H
#define PENSTOCK_CHANNEL_H

#include "call.h"
#include "interceptor.h"
#include "runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct penstock_channel penstock_channel;

/* Makes a channel on the default runtime. It connects at the first call, or by penstock_channel_connect.
 * `target`: "host:port", "dns:///host:port", "ipv4:1.2.3.4:5,...", "ipv6:[::1]:5,...", "unix:/path",
 * "unix-abstract:name", "vsock:cid:port", "passthrough:///host:port" (as "dns:"); port 443 where none is given. Or a
 * URL, "https://host:port/prefix" with TLS or "http://host:port/prefix" in cleartext: port 443 or 80 where none is
 * given, and the path of each request begins with the prefix.
 * `options` is a JSON object (NUL-terminated) or NULL; numbers in parentheses are defaults:
 *   "tls": true (with the system's roots: the default, except for unix sockets and http://), false (cleartext), or an
 *     object with the fields below. It must not contradict a URL:
 *     "roots_pem", "roots_file", "certificate_chain_pem", "certificate_chain_file", "private_key_pem",
 *     "private_key_file", "verify": true,
 *     "crls_pem", "crls_file" (lists of revoked certificates; the server's authority needs one),
 *     "spki_pins" (SHA-256 hashes of public keys in base64: the server's chain has to have one of these keys),
 *     "spiffe_ids" (the server's certificate has to have one of these, instead of the host's name),
 *     "session_resumption": false, "min_version": "1.2" (or "1.3"), "ciphers" (OpenSSL's names of cipher suites),
 *     "key_log_file" (to which the keys of connections are appended, for Wireshark),
 *     "server_name" (a host's name or an IP address, to verify and for SNI, instead of the target's host: one of the
 *     certificate's subject alternative names has to fit it; or an array of 1 to 16 of these: the first is sent, and the
 *     certificate has to fit one).
 *     A file that has changed is read again before the next connection begins; if it can't be used, what was read
 *     before stays (PENSTOCK_CONNECTION_TLS_KEPT)
 *   "protocol": "grpc" (default), "grpc-web", "grpc-web-text" or "connect"; see docs/protocols.md
 *   "http": "auto" (default: the server chooses the version of HTTP in TLS; in cleartext gRPC uses HTTP/2, and the
 *     other protocols HTTP/1.1), "2" or "1.1" (not with gRPC)
 *   "max_get_url_bytes" (8192; 0 to 1048576): the longest path, with its query, of an HTTP GET, by which Connect calls
 *     methods without side effects; a call with a longer one is a POST. 0: each call is a POST
 *   "http1_max_connections" (100; 1 to 65536): the most connections of HTTP/1.1 to one address; each carries one call
 *     at a time, and more calls wait
 *   "http1_idle_timeout_ms" (90000; 0 to 86400000): how long a connection of HTTP/1.1 is kept without a call; 0: it is
 *     closed after its call
 *   "authority": replaces the target's authority
 *   "proxy": the proxy that connects to the server: "http://user:password@host:port", "socks5://..." or "socks5h://...",
 *     or "environment", which is the one that the environment variables name; see docs/channel.md
 *   "no_proxy" ([]): the hosts that are reached without the proxy: names, domains, addresses, ranges such as
 *     "10.0.0.0/8", or "*"
 *   "local_address": the address of this machine from which connections are made: an IP address, or one of each family as
 *     {"ipv4": "192.0.2.1", "ipv6": "2001:db8::1"}; a connection to an address of another family fails
 *   "bind_interface": the network interface through which connections are made, such as "eth0"; before Linux 5.7 this
 *     needs CAP_NET_RAW
 *   "socket_options" ({}): options of the sockets, an object: "tcp_nodelay" (true), "send_buffer_bytes",
 *     "receive_buffer_bytes", "tcp_user_timeout_ms", "tcp_keepalive_ms" (the time of silence before the kernel probes),
 *     "traffic_class" (a DSCP times 4), and "others", an array of arrays of level, option and value as setsockopt takes
 *     them. A socket that the program's connector gives (connector.h) has none of these three
 *   "content_subtype": the name of the messages' encoding in the content-type, such as "json" for
 *     "application/grpc+json", or with Connect for "application/json"; for calls whose options and codec name none
 *   "user_agent": put before "penstock/VERSION"
 *   "default_deadline_ms" (none): the deadline of calls that have none of their own
 *   "max_receive_message_bytes" (4194304), "max_send_message_bytes" (2147483647): limits of one message
 *   "max_header_list_bytes" (16384; 1024 to 1048576): limit of one header list, counted as HTTP/2 does (RFC 9113
 *     section 6.5.2); a call that gets more ends with RESOURCE_EXHAUSTED, see docs/errors.md
 *   "connect_timeout_ms" (20000): limit of one attempt to connect, and of one look-up of the name
 *   "wait_for_ready" (false): whether calls wait for a connection where the channel can't connect
 *   "service_config" ({}): gRPC's service config, an object: settings of methods, and how calls are spread over
 *     addresses; see docs/channel.md. Fields that are not known are ignored.
 *   "retries" (true): whether the retry policies of the service config apply. Requests that a server has certainly not
 *     processed are sent again in any case
 *   "replay_bytes" (1048576): how many bytes of messages a call keeps in case its request has to be sent again; one with
 *     more is sent once
 *   "channel_replay_bytes" (67108864): how many bytes of messages all calls of the channel keep for that; a request that
 *     finds no room is sent once
 *   "max_connections_per_subchannel" (10; 1 to 1024): the most connections of HTTP/2 to one address that the service
 *     config's connectionScaling can demand
 *   "max_connections" (0; to 65536): the most connections of the channel to all addresses together, of HTTP/2 and
 *     HTTP/1.1, those that drain included; 0: without limit. An address that needs one more connection waits until
 *     another one ends; one that has none counts as failed after connect_timeout_ms
 *   "max_pending_calls" (0): the most calls that wait for a connection or for a free stream; a further one ends with
 *     RESOURCE_EXHAUSTED; 0: without limit
 *   "max_buffered_bytes" (0): how many bytes of messages all client streams and bidi calls of the channel together may
 *     have given to the library that are not sent yet; beyond it each of them has room for one message only; 0: without
 *     limit
 *   "health_checks" (true): whether servers are asked for their health, where the service config has a
 *     healthCheckConfig
 *   "idle_timeout_ms" (1800000): how long the channel keeps its connections without a call; 0: without limit
 *   "max_connection_age_ms" (0): how old a connection becomes, a tenth more or less, before new calls go to another one
 *     and the name is looked up again; 0: without limit
 *   "initial_backoff_ms" (1000), "max_backoff_ms" (120000), "backoff_multiplier" (1.6), "backoff_jitter" (0.2): the
 *     waits between attempts to connect that fail
 *   "dns_srv": finds the servers, their ports, priorities and weights by SRV records of DNS. The records' name is this
 *     value, such as "_grpc._tcp", then a dot and the target's host; with "" it is the host alone. Without this option
 *     the servers are at the host's addresses and the target's port. See docs/channel.md
 *   "min_resolve_interval_ms" (30000): the least time between two look-ups of the name
 *   "resolve_interval_ms" (0): the time after which the name is looked up again; 0: only when a connection is lost or
 *     fails
 *   "keepalive_time_ms" (no pings; 1000 to 86400000): how long a connection with calls may be silent before it is
 *     pinged
 *   "keepalive_timeout_ms" (20000): how long a connection may stay silent after such a ping before its calls end with
 *     UNAVAILABLE
 *   "keepalive_without_calls" (false): true pings connections without calls, too; see docs/channel.md
 *   "silence_event_ms" (30000; 0: never): how long a connection with calls is silent before interceptors with
 *     on_connection are told so, in a channel without keepalive
 *   "slow_callback_ms" (100; 0: never): how long a callback of a call may keep its thread before interceptors with
 *     on_connection are told so, by PENSTOCK_CONNECTION_SLOW_CALLBACK
 *   "compression": "identity" (default), "gzip", "deflate" or "zstd", for sent messages. "zstd" needs the system's
 *     libzstd.so.1, which is loaded then (PENSTOCK_E_UNSUPPORTED: it is not there); only with it does the channel accept
 *     answers in zstd. Or the name of a compressor of the program, which the channel gets before its calls: compressor.h
 *   "compression_min_bytes": the size from which messages are compressed: smaller messages go as they are, and those of
 *     this size or more compressed, even where that makes them longer; 0: every message is compressed. Without this
 *     option a message is sent compressed where that makes it smaller
 *   "initial_stream_window_bytes" (1048576; 65535 to 2147483647): how many bytes of one stream may wait unread, until
 *     the windows grow
 *   "initial_connection_window_bytes" (4194304): how many bytes of all streams together may be on their way; the window
 *     is 65535 while only bidi streams of small messages are open and the round trip is short
 *   "max_window_bytes" (33554432; up to 2147483647): how large the windows of streams may grow on a long path, where
 *     bandwidth times delay needs it; that of the connection becomes twice as large; 0: they keep their sizes
 *   "trace" (false): true or {"events": n} keeps a trace of each call, see penstock_call_trace_json
 *   "tie_order": "fifo" (default) or "lifo": the order of interceptors with equal priority
 * result: E_INVALID_ARGUMENT: the target, or a "tls" that contradicts it. E_INVALID_JSON: `error` names the JSON path;
 * also for a certificate that does not parse. E_SYSTEM: no descriptor is left to read a file with.
 * memory: *channel is owned by the caller; free with penstock_channel_release.
 * threads: any */
PENSTOCK_API penstock_result penstock_channel_new(const char *target, const char *options, penstock_channel **channel,
                                                  penstock_error **error);
/* Makes a channel on `runtime`; `target` and `options` as for penstock_channel_new.
 * result: as penstock_channel_new. E_CLOSED: the runtime has been shut down.
 * memory: `runtime` is retained. *channel is owned by the caller; free with penstock_channel_release.
 * threads: any */
PENSTOCK_API penstock_result penstock_channel_new_on(penstock_runtime *runtime, const char *target, const char *options,
                                                     penstock_channel **channel, penstock_error **error);
/* Adds a reference to `channel`.
 * result: `channel`; NULL for NULL.
 * memory: the reference is given back with penstock_channel_release.
 * threads: any */
PENSTOCK_API penstock_channel *penstock_channel_retain(penstock_channel *channel);
/* Gives a reference back. After the last release running calls go on, and the connections close when the last of them
 * has ended. NULL does nothing.
 * memory: the reference is the library's again.
 * threads: any */
PENSTOCK_API void penstock_channel_release(penstock_channel *channel);
/* Ends every call of the channel with CANCELLED ("channel closed") and closes the connections. Does not wait. Functions
 * that make a call on the channel give E_CLOSED afterwards.
 * result: E_ALREADY: done before.
 * memory: none.
 * threads: any */
PENSTOCK_API penstock_result penstock_channel_close(penstock_channel *channel);
/* Closes the channel, as penstock_channel_close does, when its last call has ended, at the latest after `timeout_ms`
 * milliseconds (-1: without limit). Until then running calls go on with their interceptors, and functions that make a
 * call on the channel give E_CLOSED. Does not wait: penstock_channel_connectivity says SHUTDOWN when the channel has
 * closed, and penstock_channel_wait_connectivity waits for it. If penstock_channel_close is called meanwhile, the
 * channel closes at once.
 * result: E_ALREADY: this function or penstock_channel_close was called before. E_INVALID_ARGUMENT: NULL, or less than
 * -1. E_FORKED.
 * memory: the channel stays until it has closed, also without a reference of the caller's.
 * threads: any */
PENSTOCK_API penstock_result penstock_channel_close_gracefully(penstock_channel *channel, int64_t timeout_ms);

/* Writes as JSON the channel's state and figures: {"target", "state", "policy", "name", "attempts", "throttle",
 * "endpoints": [{"address", ..., "connections": [...]}, ...]}. docs/operating.md describes each member. The loop of the
 * channel is asked for them, for up to `timeout_ms` milliseconds; below 0 counts as 0.
 * result: E_TIMEOUT: the loop has not answered, because a callback does not return: penstock_runtime_snapshot_json names
 * it. E_CLOSED: the runtime has ended. E_INVALID_ARGUMENT: NULL. E_NO_MEMORY, E_FORKED.
 * memory: *json is owned by the caller; free with penstock_free.
 * threads: any; on the driving thread it returns at once. */
PENSTOCK_API penstock_result penstock_channel_stats_json(penstock_channel *channel, int64_t timeout_ms, char **json);

/* The states of a channel ("gRPC Connectivity Semantics and API"; docs/channel.md). */
#define PENSTOCK_CONNECTIVITY_IDLE              0 /* no connection; the next call begins one */
#define PENSTOCK_CONNECTIVITY_CONNECTING        1 /* a connection is being made; calls wait */
#define PENSTOCK_CONNECTIVITY_READY             2
#define PENSTOCK_CONNECTIVITY_TRANSIENT_FAILURE 3 /* no address could be reached; calls without wait_for_ready fail */
#define PENSTOCK_CONNECTIVITY_SHUTDOWN          4 /* closed for good */

/* Gives the state of the channel. It may have changed by the time the function returns.
 * result: PENSTOCK_CONNECTIVITY_...; SHUTDOWN for NULL and in a forked child.
 * memory: none.
 * threads: any */
PENSTOCK_API int32_t penstock_channel_connectivity(const penstock_channel *channel);
/* Waits until the channel's state differs from `from` (PENSTOCK_CONNECTIVITY_...), for up to `timeout_ms` milliseconds
 * (-1: without limit), and stores the new state in *now (nullable). It does not make the channel connect.
 * result: E_TIMEOUT: the state is still `from`. E_INVALID_ARGUMENT: NULL, or a number that is not a state.
 * E_CLOSED: `from` is SHUTDOWN, and so is the state, for good.
 * E_INTERRUPTED: a signal handler ran, or may have run: also without a signal, a few times a second. E_WOULD_DEADLOCK,
 * E_FORKED.
 * memory: none.
 * threads: any that may wait: not a callback on the thread that drives the runtime. */
PENSTOCK_API penstock_result penstock_channel_wait_connectivity(penstock_channel *channel, int32_t from,
                                                                int64_t timeout_ms, int32_t *now);
/* Receives a channel's state (PENSTOCK_CONNECTIVITY_...). It must not wait, because the thread that drives the runtime
 * calls it. It returns 0 to end the watch, and any other value to go on. */
typedef int32_t (*penstock_connectivity_function)(void *user_data, int32_t state);
/* Watches the channel's state: calls `changed` soon with the current state, and afterwards with each new state, never
 * twice in a row with the same one. If several states follow each other within one turn of the loop, `changed` gets
 * only the last of them. The watch is over when `changed` returns 0 or has got SHUTDOWN. A watch does not make the
 * channel connect.
 * result: E_INVALID_ARGUMENT: NULL. E_CLOSED, E_FORKED.
 * memory: `user_data` is transferred, even on error: `finalizer` (nullable) gets it when the watch is over or its
 * runtime has ended.
 * threads: any */
PENSTOCK_API penstock_result penstock_channel_watch_connectivity(penstock_channel *channel,
                                                                 penstock_connectivity_function changed,
                                                                 void *user_data, penstock_finalizer finalizer);
/* Makes an idle channel connect, without a call. Does not wait; in any other state it does nothing.
 * result: E_INVALID_ARGUMENT: NULL. E_CLOSED, E_FORKED.
 * memory: none.
 * threads: any */
PENSTOCK_API penstock_result penstock_channel_connect(penstock_channel *channel);
/* Lets the next attempts to connect, and the next look-up of the name, begin at once instead of after their back-off:
 * for example when the network has come back. Does not wait.
 * result: E_INVALID_ARGUMENT: NULL. E_CLOSED, E_FORKED.
 * memory: none.
 * threads: any */
PENSTOCK_API penstock_result penstock_channel_reset_backoff(penstock_channel *channel);

/* Sets certificates of the channel's TLS without JSON, each as bytes in PEM form, with their number: `roots` to trust
 * (`roots_length`), `chain` with the client's own certificate first (`chain_length`), and its private `key`
 * (`key_length`). A part that is NULL, with length 0, is taken from the channel's options again; if the options name a
 * file, it is read again. Connections that begin later use the new certificates; an
 * existing connection stays as it is.
 * result: E_STATE: the channel has no TLS. E_INVALID_ARGUMENT: a part does not parse, or chain and key do not belong
 * together; `error` names it. E_SYSTEM: a file could not be read. E_CLOSED.
 * memory: all three are copied.
 * threads: any */
PENSTOCK_API penstock_result penstock_channel_set_tls_pem(penstock_channel *channel, const void *roots,
                                                          size_t roots_length, const void *chain, size_t chain_length,
                                                          const void *key, size_t key_length, penstock_error **error);

/* Makes a whole unary call: sends `length` bytes at `request` (NULL only with length 0) to `method`
 * ("/package.Service/Method", NUL-terminated) and waits for the end of the call. `options` may be NULL.
 * result: E_INVALID_ARGUMENT, E_TOO_LARGE, E_STATE (the call has a codec), E_CLOSED, E_WOULD_DEADLOCK, E_NO_MEMORY,
 * E_FORKED: nothing was sent. E_INTERRUPTED: the call was interrupted and cancelled; see "interruptible" and
 * penstock_call_options_set_on_interrupted. PENSTOCK_OK means that the call ran, whatever its status.
 * memory: *reply is owned by the caller; free with penstock_reply_release.
 * threads: any that may wait: not a callback on the thread that drives the runtime. */
PENSTOCK_API penstock_result penstock_channel_unary(penstock_channel *channel, const char *method, const void *request,
                                                    size_t length, const penstock_call_options *options,
                                                    penstock_reply **reply, penstock_error **error);
/* Makes a whole unary call with a message as `request`; `method` and `options` are those of penstock_channel_unary.
 * penstock_reply_response_message gives the response as a message.
 * result: as penstock_channel_unary. E_STATE: the call has a codec and `request` is no object of this codec, or the
 * call has no codec and `request` is an object (see codec.h).
 * memory: `request` stays the caller's. *reply is owned by the caller; free with penstock_reply_release.
 * threads: any that may wait: not a callback on the thread that drives the runtime. */
PENSTOCK_API penstock_result penstock_channel_unary_message(penstock_channel *channel, const char *method,
                                                            penstock_message *request,
                                                            const penstock_call_options *options,
                                                            penstock_reply **reply, penstock_error **error);
/* Starts a call of `kind` (PENSTOCK_KIND_...) to `method` ("/package.Service/Method", NUL-terminated): in callback
 * style with `callbacks`, in blocking style if `callbacks` is NULL. `options` may be NULL. Callbacks may run on another
 * thread before this function has returned: there, use the handle that they get as an argument.
 * result: E_INVALID_ARGUMENT. E_UNSUPPORTED: `callbacks` has fields that this version does not know. E_CLOSED,
 * E_NO_MEMORY, E_FORKED.
 * memory: the table is copied; its user_data is transferred, even on error. *call is owned by the caller; free with
 * penstock_call_release.
 * threads: any */
PENSTOCK_API penstock_result penstock_channel_call(penstock_channel *channel, const char *method, int32_t kind,
                                                   const penstock_call_options *options,
                                                   const penstock_call_callbacks *callbacks, penstock_call **call,
                                                   penstock_error **error);

/* Registers `interceptor` with `priority` for calls on this channel that are created from now on. *id names the
 * registration, as with penstock_runtime_add_interceptor.
 * result: as penstock_runtime_add_interceptor.
 * memory: the table is borrowed during the call; its user_data is transferred, even on error.
 * threads: any */
PENSTOCK_API penstock_result penstock_channel_add_interceptor(penstock_channel *channel,
                                                              const penstock_interceptor *interceptor, int32_t priority,
                                                              penstock_interceptor_id *id, penstock_error **error);
/* Lists as JSON the interceptors of the channel and of its runtime, in the order that calls meet them; see
 * penstock_runtime_interceptors_json.
 * result: E_NO_MEMORY, E_FORKED.
 * memory: *json is owned by the caller; free with penstock_free.
 * threads: any */
PENSTOCK_API penstock_result penstock_channel_interceptors_json(penstock_channel *channel, char **json);

#ifdef __cplusplus
}
#endif
#endif
