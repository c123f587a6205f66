/* Shared by the C tests: a test macro, checks, latches, a server, and an interceptor that records every event. */
#ifndef PENSTOCK_TEST_H
#define PENSTOCK_TEST_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <penstock/penstock.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Tests ---- */

typedef struct test {
  const char *name;
  void (*run)(void);
  struct test *next;
} test;

void test_register(test *entry);
void test_failed(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* How many checks of the running test have failed. */
int test_failures(void);
/* The factor for time limits: 1, or more under valgrind and sanitizers. */
int test_slow(void);
/* How long a test waits for an event that has to come: long, so that a slow and busy machine fails no test. */
int test_patience_ms(void);
/* How often a random or racing test runs: `times`, or fewer under valgrind and sanitizers. */
int test_rounds(int times);
/* A pseudo-random number less than `below`; the seed is printed at the start and read from PENSTOCK_TEST_SEED. */
uint32_t test_random(uint32_t below);

#define TEST(function)                                                                                                 \
  static void function(void);                                                                                          \
  __attribute__((constructor)) static void register_##function(void) {                                                 \
    static test entry = {#function, function, NULL};                                                                   \
    test_register(&entry);                                                                                             \
  }                                                                                                                    \
  static void function(void)

/* CHECK goes on after a failure; REQUIRE returns from the calling function, which must be void. */
#define CHECK(condition) check_true(__FILE__, __LINE__, #condition, (condition))
#define REQUIRE(condition)                                                                                             \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      test_failed(__FILE__, __LINE__, "%s", #condition);                                                               \
      return;                                                                                                          \
    }                                                                                                                  \
  } while (0)
#define CHECK_INT(found, expected)    check_int(__FILE__, __LINE__, #found, (int64_t)(found), (int64_t)(expected))
#define CHECK_STR(found, expected)    check_str(__FILE__, __LINE__, #found, (found), (expected))
/* Compares JSON texts without the spaces between their parts. */
#define CHECK_JSON(found, expected)   check_json(__FILE__, __LINE__, #found, (found), (expected))
#define CHECK_HAS(found, part)        check_has(__FILE__, __LINE__, #found, (found), (part))
#define CHECK_RESULT(found, expected) check_result(__FILE__, __LINE__, #found, (found), (expected))
#define OK(call)                      check_result(__FILE__, __LINE__, #call, (call), PENSTOCK_OK)
#define REQUIRE_OK(call)                                                                                               \
  do {                                                                                                                 \
    if (!OK(call)) return;                                                                                             \
  } while (0)

bool check_true(const char *file, int line, const char *what, bool holds);
bool check_int(const char *file, int line, const char *what, int64_t found, int64_t expected);
bool check_str(const char *file, int line, const char *what, const char *found, const char *expected);
bool check_json(const char *file, int line, const char *what, const char *found, const char *expected);
bool check_has(const char *file, int line, const char *what, const char *found, const char *part);
bool check_result(const char *file, int line, const char *what, penstock_result found, penstock_result expected);

/* Checks that `error` has `code`, the path `path` (unless NULL), and a message that contains `part` (unless NULL). Then
 * releases the error. */
#define CHECK_ERROR(error, code, path, part) check_error(__FILE__, __LINE__, &(error), (code), (path), (part))
void check_error(const char *file, int line, penstock_error **error, penstock_result code, const char *path,
                 const char *part);

/* ---- Waiting for conditions, with a time limit, and never for a fixed time ---- */

typedef struct latch {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  int count;
} latch;

#define LATCH_INIT                                                                                                     \
  { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0 }
void latch_signal(latch *latch);
int latch_count(latch *latch);
/* Waits until the latch was signalled `count` times in all; fails after the patience. */
#define latch_wait(latch, count) latch_wait_at(__FILE__, __LINE__, (latch), (count))
bool latch_wait_at(const char *file, int line, latch *latch, int count);
/* Waits until `condition` has been true once: for conditions that have no latch. */
#define EVENTUALLY(condition)                                                                                          \
  do {                                                                                                                 \
    bool held_;                                                                                                        \
    int64_t until_ = test_now_ms() + test_patience_ms();                                                               \
    while (!(held_ = (condition)) && test_now_ms() < until_) test_pause();                                             \
    check_true(__FILE__, __LINE__, #condition, held_);                                                                 \
  } while (0)
int64_t test_now_ms(void);
void test_pause(void);

/* A finalizer whose user_data is an `atomic_int *`, which it increments. */
void count_up(void *counter);
/* A finalizer whose user_data is a `latch *`, which it signals. */
void signal_latch(void *latch);

/* ---- The server ---- */

#define UNARY         "/penstock.Echo/Unary"
#define SERVER_STREAM "/penstock.Echo/ServerStream"
#define CLIENT_STREAM "/penstock.Echo/ClientStream"
#define BIDI          "/penstock.Echo/Bidi"

/* "127.0.0.1:port" of a penstock-peer that this process has started, once. */
const char *peer_address(void);
/* The path of a file in the folder that the runner has made: ca.pem, and server, cn, client and self with .pem and
 * .key. */
const char *certificate(const char *name);
/* "127.0.0.1:port" of a peer with TLS and the certificate server.pem; with `mutual` it asks for a client certificate
 * that the CA has signed. */
const char *tls_address(bool mutual);
/* Opens a channel to the peer of `tls_address`. The channel trusts the CA, and with `mutual` it has client.pem. */
penstock_channel *open_tls_channel(bool mutual);
/* Starts another peer, with `more` arguments (ending with NULL), and waits for its address; gives the descriptor of its
 * standard output. The peer ends when `*input` is closed, or with this process. */
int start_peer(char *text, size_t text_size, char *const *more, int *input);
/* "127.0.0.1:port" of a port where no process listens. */
const char *dead_address(void);
/* A cleartext channel to the peer, on the default runtime. */
penstock_channel *open_channel(void);
penstock_channel *open_channel_on(penstock_runtime *runtime);
penstock_runtime *new_runtime(const char *options);
/* Makes a unary call to the echo method with "ping", and checks that "ping" comes back. */
void check_echo(penstock_channel *channel);
/* `unary_object` makes a unary call with an object of `codec`, which the library owns from then on; `reply_object`
 * gives the object of a reply. */
penstock_result unary_object(penstock_channel *channel, penstock_codec *codec, void *object, penstock_reply **reply);
void *reply_object(const penstock_reply *reply);
/* How many bytes a message has. */
size_t message_length(const penstock_message *message);
/* Runs a unary call and gives its status code; -1 if it did not run. */
int32_t unary_code(penstock_channel *channel, const char *request);
/* Starts a call in blocking style; NULL after a failed check. */
penstock_call *start_call(penstock_channel *channel, const char *method, int32_t kind);
/* Starts a call in callback style without callbacks; the finalizer of its user_data signals `ended`. */
penstock_call *start_callback_call(penstock_channel *channel, const char *method, int32_t kind, latch *ended);
/* Makes a bidi call that sends `count` numbered messages, and reads them all back. */
void exchange(penstock_channel *channel, int count);
/* How many descriptors and threads this process has. */
int open_descriptors(void);
int running_threads(void);
/* The number of threads to which the library has given this name. */
int threads_named(const char *name);

/* ---- The probe: an interceptor with every callback ---- */

typedef struct probe probe;
struct probe {
  const char *name;
  /* Gives the verdict of each callback; NULL means always NEXT. */
  int32_t (*hook)(probe *self, penstock_hop *hop, int32_t event);
  void *context;
  /* These values go into the table that is registered. */
  size_t replay_bytes, max_restarts;
  /* How often each PENSTOCK_EVENT_... came, with or without a hook. */
  atomic_int seen[13];
  atomic_int finalized;
  /* One letter for each callback, in their order: for example "CSs" for create, on_start and on_send (`letters` in
   * probe.c); NUL-terminated. */
  char log[512];
  pthread_mutex_t mutex;
  /* If not NULL, a trace to which each event except demand and sent is appended, as "name:event ". */
  struct probe_trace *trace;
  latch done; /* signalled by destroy */
  latch finalized_latch;
};

typedef struct probe_trace {
  pthread_mutex_t mutex;
  char text[4096];
} probe_trace;

void probe_init(probe *probe, const char *name);
void probe_init_with(probe *probe, const char *name, int32_t (*hook)(struct probe *, penstock_hop *, int32_t),
                     void *context);
/* A table with every callback of `probe`, and a finalizer. */
penstock_interceptor probe_table(probe *probe);
penstock_interceptor_id probe_add(probe *probe, penstock_channel *channel, int32_t priority);
penstock_interceptor_id probe_add_to_runtime(probe *probe, penstock_runtime *runtime, int32_t priority);
void probe_wait_finalized(probe *probe);
const char *event_name(int32_t event);

/* The getters of a request that give a number, for a request that has to be readable: a test fails if it is not. */
#define REQUEST_NUMBER(name, type)                                                                                     \
  static inline int64_t request_##name(const penstock_request *request) {                                              \
    type found = 0;                                                                                                    \
    OK(penstock_request_##name(request, &found));                                                                      \
    return (int64_t)found;                                                                                             \
  }
REQUEST_NUMBER(deadline_ms, int64_t)
REQUEST_NUMBER(max_receive_message_bytes, size_t)
REQUEST_NUMBER(max_send_message_bytes, size_t)
REQUEST_NUMBER(idempotency, int32_t)
REQUEST_NUMBER(allows_get, int32_t)
REQUEST_NUMBER(wait_for_ready, int32_t)
REQUEST_NUMBER(has_credentials, int32_t)
#undef REQUEST_NUMBER

/* The bytes of the message of the hop's event. E_STATE: the event has no message, or the message is an object. */
static inline penstock_result hop_bytes(penstock_hop *hop, const void **data, size_t *length) {
  const void *bytes = penstock_message_bytes(penstock_hop_message(hop), length);
  if (bytes) *data = bytes;
  return bytes ? PENSTOCK_OK : PENSTOCK_E_STATE;
}
static inline void *hop_object(penstock_hop *hop) { return penstock_message_object(penstock_hop_message(hop)); }

/* Calls `put` with a message made of `object`; if `put` refuses the message, the codec frees the object. */
static inline penstock_result put_object(penstock_hop *hop, penstock_codec *codec, void *object,
                                         penstock_result (*put)(penstock_hop *, penstock_message *)) {
  penstock_message *message = NULL;
  if (!OK(penstock_message_new_object(codec, object, 0, &message))) return PENSTOCK_E_INVALID_ARGUMENT;
  penstock_result result = put(hop, message);
  penstock_message_release(message);
  return result;
}

/* Ends a synchronous interceptor's answer with this status; NULL: with OK. */
static inline penstock_result answer_hop(penstock_hop *hop, const penstock_status *status) {
  penstock_status *made = NULL;
  penstock_result result = status ? PENSTOCK_OK : penstock_status_new(PENSTOCK_STATUS_OK, NULL, &made);
  if (result == PENSTOCK_OK) result = penstock_hop_deliver_status(hop, status ? status : made);
  penstock_status_release(made);
  return result;
}

#endif
