/* Interceptors: they see and can change everything that passes in a call, in both directions.
 *
 * One interceptor is a table of callbacks. It is registered on a runtime (every channel of it), on a channel, or in the
 * options of calls, with a priority, any int32. Of two interceptors at the same level (PENSTOCK_LEVEL_...), the one
 * with the higher priority is called earlier on the way out and later on the way in; interceptors with equal priority
 * keep the order of registration (or its reverse, see the channel's "tie_order"). A call's chain, its interceptors in
 * this order, is fixed when the call is created. Each interceptor in it is a hop. A hop above another is nearer to the
 * caller, a hop below is nearer to the server. A call has two lanes: outbound events go down, inbound events come up.
 * docs/interceptors.md has drawings, docs/laws.md the laws.
 */
#ifndef PENSTOCK_INTERCEPTOR_H
#define PENSTOCK_INTERCEPTOR_H

#include "base.h"
#include "executor.h"
#include "metadata.h"
#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A hop is one interceptor in one call: its callbacks get this handle. It is valid until its `destroy` has returned;
 * most functions of a hop that is retained longer give PENSTOCK_E_GONE after that. See hop.h. */
typedef struct penstock_hop penstock_hop;

/* The verdict that a callback returns: it decides what becomes of the event. If no ticket was taken for a held event,
 * the event is held until the hop returns its next NEXT in the same lane. */
#define PENSTOCK_NEXT    0 /* pass the event on */
#define PENSTOCK_PAUSE   1 /* stop this lane at this hop until a ticket is resolved; later events wait unseen */
#define PENSTOCK_HOLD    2 /* keep this event at this hop until its ticket is resolved; later events are still shown */
#define PENSTOCK_DROP    3 /* discard this message */
#define PENSTOCK_TAKE    4 /* from on_start: this hop answers the call; nothing goes to the hops below or the server */
#define PENSTOCK_RESTART 5 /* from on_status: begin the call again below this hop; possible only with replay_bytes */
#define PENSTOCK_SKIP    6 /* from create: the call has no hop of this interceptor */

/* Call kinds; as a mask, (1u << kind). */
#define PENSTOCK_KIND_UNARY         0
#define PENSTOCK_KIND_CLIENT_STREAM 1
#define PENSTOCK_KIND_SERVER_STREAM 2
#define PENSTOCK_KIND_BIDI          3

/* The level of an interceptor. */
#define PENSTOCK_LEVEL_BYTES  0u /* below the codec: messages are bytes, as they go out and come in */
#define PENSTOCK_LEVEL_OBJECT 1u /* above the codec: messages are the caller's objects; bytes if there is no codec */
#define PENSTOCK_LEVEL_BOTH   2u /* one hop at each level */

/* For `headers_wait`: response headers wait in no kind of call. */
#define PENSTOCK_HEADERS_PASS 16u

typedef int32_t (*penstock_hop_callback)(penstock_hop *hop, void *state);
typedef int32_t (*penstock_hop_create)(penstock_hop *hop, void *user_data, void **state);
typedef void (*penstock_hop_destroy)(penstock_hop *hop, void *state);

/* The events of a channel; docs/channel.md has the order in which they come, docs/operating.md their meaning. */
#define PENSTOCK_CONNECTION_RESOLVING     1  /* the channel asks for the addresses of its name */
#define PENSTOCK_CONNECTION_UNRESOLVED    2  /* the name could not be resolved */
#define PENSTOCK_CONNECTION_CONNECTING    3  /* an attempt to connect to the address begins */
#define PENSTOCK_CONNECTION_SECURED       4  /* TLS is established on the new connection */
#define PENSTOCK_CONNECTION_READY         5  /* the connection takes calls */
#define PENSTOCK_CONNECTION_DRAINING      6  /* the connection takes no new calls; those on it go on */
#define PENSTOCK_CONNECTION_LOST          7  /* a connection that was ready has ended */
#define PENSTOCK_CONNECTION_BACKOFF       8  /* connecting failed, or gave no usable connection; next attempt in `ms` */
#define PENSTOCK_CONNECTION_SILENT        9  /* for `ms` nothing has come on a connection with calls */
#define PENSTOCK_CONNECTION_IGNORED       10 /* a part of the service config is not supported: `message` names it */
#define PENSTOCK_CONNECTION_HEALTHY       11 /* the server's health check says that it serves: it gets calls */
#define PENSTOCK_CONNECTION_UNHEALTHY     12 /* the server's health check does not say that it serves: it gets no calls */
#define PENSTOCK_CONNECTION_RESOLVED      13 /* the addresses of the name are known: `message` has their number */
#define PENSTOCK_CONNECTION_IDLE          14 /* the channel closes its connections, until the next call */
#define PENSTOCK_CONNECTION_UNREACHABLE   15 /* no address can be reached: calls fail, or wait if they may */
#define PENSTOCK_CONNECTION_POLICY        16 /* the load balancing policy changes to the one that `message` names */
#define PENSTOCK_CONNECTION_RETRY         17 /* `call` is sent again by its retry policy, in `ms` */
#define PENSTOCK_CONNECTION_THROTTLED     18 /* `call` is not sent again, because most requests have failed lately */
#define PENSTOCK_CONNECTION_EJECTED       19 /* outlier detection has ejected the server: it gets no calls */
#define PENSTOCK_CONNECTION_RESTORED      20 /* the server that was ejected gets calls again */
#define PENSTOCK_CONNECTION_SLOW_CALLBACK 21 /* a callback has kept its thread for `ms`; see "slow_callback_ms" */
#define PENSTOCK_CONNECTION_TLS_RELOADED  22 /* files of TLS have changed and were read again: `message` names them */
#define PENSTOCK_CONNECTION_TLS_KEPT      23 /* a changed file of TLS can't be used: `message` has the reason */

/* The level of an event: how much an operator has to mind. */
#define PENSTOCK_EVENT_DEBUG   0 /* the normal course of a connection or a call */
#define PENSTOCK_EVENT_INFO    1 /* a change that lasts, such as a new connection */
#define PENSTOCK_EVENT_WARNING 2 /* it may explain calls that fail or are slow */
#define PENSTOCK_EVENT_ERROR   3 /* calls fail, unless they may wait */

/* One event. The library fills it; later versions may add fields at its end, and events. All strings are
 * NUL-terminated, and live as long as the callback runs. */
typedef struct penstock_connection_event {
  size_t struct_size;
  int32_t kind;        /* PENSTOCK_CONNECTION_... */
  const char *target;  /* the channel's target, as the program gave it */
  const char *address; /* the server's address, such as "192.0.2.1:443"; NULL: an event of the name's look-up, or
                              of the channel's service config */
  const char *message; /* the reason, in words, with UNRESOLVED, LOST, BACKOFF, IGNORED, UNHEALTHY and UNREACHABLE, and
                              with DRAINING if the server has given one; with RETRY and THROTTLED the status of the
                              call, and with RESOLVED and POLICY as they say; NULL with other events */
  uint64_t ms;         /* milliseconds, for the events that say so; otherwise 0 */
  const char *tls_version; /* with SECURED, such as "TLSv1.3"; NULL with other events, like the next two */
  const char *tls_cipher;  /* with SECURED, such as "TLS_AES_256_GCM_SHA384" */
  const char *tls_alpn;    /* with SECURED, the negotiated protocol, such as "h2" */
  const char *protocol;    /* with READY, the protocol of the calls, such as "connect"; NULL with other events, like
                              the next one */
  const char *http;        /* with READY, the version of HTTP, "2" or "1.1" */
  int32_t level;           /* PENSTOCK_EVENT_DEBUG to PENSTOCK_EVENT_ERROR; each kind has one */
  const char *name;        /* the kind in words, such as "slow_callback" */
  uint64_t call;           /* with RETRY, THROTTLED and SLOW_CALLBACK, the call's id; 0 with other events */
  const char *method;      /* that call's method; NULL with other events */
  const char *interceptor; /* with SLOW_CALLBACK, the interceptor's name; NULL: a callback of the call itself, or the
                              picker; NULL with other events */
  const char *callback;    /* with SLOW_CALLBACK, the callback, such as "on_headers"; NULL with other events */
  const char *json;        /* the event as a line of JSON, for logs: "time_ms" (since 1970), "level" ("debug", "info",
                              "warning" or "error"), "event" (the name), "target", and the fields of this struct, by
                              their names, that the event has; NULL: no memory */
} penstock_connection_event;

typedef void (*penstock_connection_callback)(void *user_data, const penstock_connection_event *event);

/* Fill with PENSTOCK_INTERCEPTOR_INIT, then set what you need. A callback may be NULL: then its event passes, as with
 * PENSTOCK_NEXT.
 *
 * Threading: callbacks run on the interceptor's executors (executor.h). Without executors they run on whichever thread
 * drives the runtime (its own thread, a thread in a blocking call, or one in penstock_runtime_poll), one at a time per
 * runtime, or per loop where the runtime has several ("loops" in runtime.h). While a thread is in a blocking function,
 * it must not hold a lock that a callback takes. Any function that does not wait may be called in a callback, also the
 * removal of this interceptor and the release of its channel; a function that waits gives PENSTOCK_E_WOULD_DEADLOCK on
 * the driving thread. A return value that its callback does not allow ends the call with INTERNAL and a message that
 * names the interceptor. */
typedef struct penstock_interceptor {
  /* The tables of all three styles (async.h, sync.h) begin with these fields, in this order. */
  size_t struct_size;
  const char *name;             /* the interceptor's name in error messages and lists; NUL-terminated UTF-8, copied;
                                   NULL is "" */
  const char *methods;          /* patterns separated by commas: a whole method ("/pkg.Service/Method"), or a beginning
                                   followed by one star ("/pkg.Service/" and a star); copied; NULL is every method. A
                                   pattern that no method matches is E_INVALID_ARGUMENT */
  uint32_t kinds;               /* mask of call kinds; 0 is all */
  uint32_t level;               /* PENSTOCK_LEVEL_... */
  uint32_t per_attempt;         /* 1: each attempt has a hop of its own at the bytes level, below the hops that are made
                                   once per call; not with LEVEL_OBJECT. 0: one hop per call */
  size_t hold_bytes;            /* how many message bytes HOLD may park per call and lane; 0 is 65536; one
                                   message always has room */
  size_t replay_bytes;          /* how many bytes of request messages are recorded for RESTART (an empty message counts
                                   as one byte); 0: nothing is recorded, and RESTART is not possible. With per_attempt
                                   each attempt has a new hop at the bytes level, which can't restart the call: then
                                   it may be set only with LEVEL_BOTH, for the hop at the object level */
  size_t max_restarts;          /* how often one call may be restarted here; 0 is 1 */
  void *user_data;              /* transferred, even on error */
  penstock_finalizer finalizer; /* runs once, after removal and the end of the last call that has it, or on error */

  penstock_hop_create create;   /* called when start comes to this hop; returns PENSTOCK_NEXT with *state set, or
                                   PENSTOCK_SKIP. Without `create`, `state` is user_data */
  penstock_hop_destroy destroy; /* the last callback, exactly once for each hop that start has come to, unless
                                   create returned PENSTOCK_SKIP */

  /* Outbound, toward the server. Each comment ends with the verdicts that the callback may return. */
  penstock_hop_callback on_start;      /* nothing has been sent yet: metadata, method, authority, deadline and more can
                                          be changed. NEXT, PAUSE, HOLD, TAKE */
  penstock_hop_callback on_send;       /* a message. NEXT, PAUSE, HOLD, DROP */
  penstock_hop_callback on_half_close; /* the caller is done sending. NEXT, PAUSE, HOLD with a ticket */

  /* Inbound, toward the caller. Each comment ends with the verdicts that the callback may return. */
  penstock_hop_callback on_headers; /* response headers; a trailers-only answer has none. NEXT, PAUSE, HOLD */
  penstock_hop_callback on_receive; /* a message. NEXT, PAUSE, HOLD, DROP */
  penstock_hop_callback on_status;  /* the call's status, which can be changed, with its details and trailers. NEXT,
                                       PAUSE, HOLD with a ticket, RESTART */

  /* Signals; their return value is ignored. */
  penstock_hop_callback on_cancel; /* something other than this hop has ended the call: a hop above, or a cancel or
                                      deadline that came after TAKE or while this hop held the status */
  penstock_hop_callback on_demand; /* more messages are asked for: penstock_hop_count tells how many, and
                                      penstock_hop_set_count changes how many are asked for below */
  penstock_hop_callback on_sent;   /* the transport has taken messages, or hops below have dropped them:
                                      penstock_hop_count tells how many since the last on_sent */

  /* The executors that run the callbacks of each lane; NULL: they run on the thread that drives the runtime. The
   * registration retains both. See executor.h. */
  penstock_executor *outbound_executor;
  penstock_executor *inbound_executor;

  /* Called with each event of the connections of the channel, or of all channels of the runtime, always on the thread
   * that drives the runtime: it must not wait. An interceptor that has no other callback has no hops in calls. An
   * interceptor that is registered in call options gets no connection events. */
  penstock_connection_callback on_connection;

  /* Called when an endpoint has been picked for the attempt, before anything is sent to it; penstock_hop_address tells
   * its address. Only with per_attempt. It runs on the thread that drives the runtime, even if the interceptor has
   * executors. NEXT; DROP refuses the endpoint: another one is picked. */
  penstock_hop_callback on_pick;

  /* With replay_bytes: the kinds of calls in which response headers wait at this hop, as a mask, (1u << kind). Once
   * headers have left the hop upward, the call can't be restarted; so they wait, as after HOLD without a ticket, until
   * on_receive or on_status has returned NEXT, and a RESTART discards them. 0: unary and client stream.
   * PENSTOCK_HEADERS_PASS: none. Headers that come before the half-close has left the hop never wait in client and bidi
   * streams, because the caller may wait for them before it sends; and nowhere do they wait when the hop can't restart
   * the call any more. Headers of other calls wait if on_headers returns PENSTOCK_HOLD. */
  uint64_t headers_wait;
} penstock_interceptor;

#ifdef __cplusplus
static inline penstock_interceptor penstock_interceptor_init(void) {
  penstock_interceptor empty = penstock_interceptor();
  empty.struct_size = sizeof(empty);
  return empty;
}
#define PENSTOCK_INTERCEPTOR_INIT penstock_interceptor_init()
#else
#define PENSTOCK_INTERCEPTOR_INIT                                                                                      \
  { .struct_size = sizeof(penstock_interceptor) }
#endif

/* Names a registration; never 0, never used again within the process. */
typedef uint64_t penstock_interceptor_id;

#ifdef __cplusplus
}
#endif
#endif
