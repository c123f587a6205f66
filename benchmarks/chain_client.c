/* chain_client: measures the cost of interceptors without a network: a stub at the bottom of the chain answers every
 * call.
 *
 *   chain_client --what WHAT --hops N --calls N
 *
 *   none          the stub alone, whatever --hops says
 *   null          hops without a callback
 *   start         on_start
 *   start_status  on_start and on_status
 *   all           every callback, create and destroy included
 *   pause_same    on_start pauses, and resolves its ticket before it returns
 *   pause_other   on_start pauses, and another thread resolves the ticket
 *   below         start_status, with one pause_same hop above them, so that the library can't handle the hops as one run
 *   filtered      interceptors whose filters do not match the calls
 *   register      makes no calls: registers and removes an interceptor --calls times, among N others
 *
 * Prints one line of JSON: wall and CPU nanoseconds and allocations of one call (of one registration and removal).
 */
#include <penstock/penstock.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* ---- Counting allocations ---- */

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
static atomic_long allocations;

void *malloc(size_t size) {
  atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
  return __libc_malloc(size);
}
void *calloc(size_t count, size_t size) {
  atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
  return __libc_calloc(count, size);
}
void *realloc(void *memory, size_t size) {
  if (!memory) atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
  return __libc_realloc(memory, size);
}
int posix_memalign(void **memory, size_t alignment, size_t size) {
  atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
  *memory = __libc_memalign(alignment, size);
  return *memory ? 0 : ENOMEM;
}
void *aligned_alloc(size_t alignment, size_t size) {
  atomic_fetch_add_explicit(&allocations, 1, memory_order_relaxed);
  return __libc_memalign(alignment, size);
}

static void need(const char *what, penstock_result result) {
  if (result == PENSTOCK_OK) return;
  fprintf(stderr, "chain_client: %s: %s\n", what, penstock_result_name(result));
  exit(1);
}

/* ---- Interceptors ---- */

static int32_t next(penstock_hop *hop, void *state) {
  (void)hop, (void)state;
  return PENSTOCK_NEXT;
}
static int32_t create(penstock_hop *hop, void *user_data, void **state) {
  (void)hop, (void)user_data;
  *state = NULL;
  return PENSTOCK_NEXT;
}
static void destroy(penstock_hop *hop, void *state) { (void)hop, (void)state; }

static int32_t pause_here(penstock_hop *hop, void *state) {
  (void)state;
  need("resume", penstock_ticket_resolve(penstock_hop_ticket(hop), PENSTOCK_NEXT));
  return PENSTOCK_PAUSE;
}

/* The ticket that the other thread has to resolve; 0: none. */
static _Atomic(uint64_t) handed;
static atomic_bool is_over;

static int32_t hand_over(penstock_hop *hop, void *state) {
  (void)state;
  atomic_store(&handed, penstock_hop_ticket(hop));
  return PENSTOCK_PAUSE;
}
static void *resume_all(void *unused) {
  while (!atomic_load(&is_over)) {
    uint64_t ticket = atomic_exchange(&handed, 0);
    if (ticket) need("resume", penstock_ticket_resolve(ticket, PENSTOCK_NEXT));
  }
  return unused;
}

static int32_t stub_start(penstock_hop *hop, void *state) {
  (void)hop, (void)state;
  return PENSTOCK_TAKE;
}
static int32_t stub_answer(penstock_hop *hop, void *state) {
  need("headers", penstock_hop_deliver_headers(hop, NULL));
  need("message", penstock_hop_deliver(hop, "ok", 2));
  need("status", penstock_hop_deliver_status(hop, state));
  return PENSTOCK_NEXT;
}

static double seconds_of(clockid_t clock) {
  struct timespec time;
  clock_gettime(clock, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static penstock_interceptor table_for(const char *what) {
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.name = what;
  if (strcmp(what, "start") == 0 || strcmp(what, "start_status") == 0) table.on_start = next;
  if (strcmp(what, "start_status") == 0) table.on_status = next;
  if (strcmp(what, "pause_same") == 0) table.on_start = pause_here;
  if (strcmp(what, "pause_other") == 0) table.on_start = hand_over;
  if (strcmp(what, "filtered") == 0 || strcmp(what, "register") == 0) table.methods = "/other.Service/*,/third/Method";
  if (strcmp(what, "all") == 0) {
    table.create = create;
    table.destroy = destroy;
    table.on_start = table.on_send = table.on_half_close = table.on_headers = table.on_receive = table.on_status = next;
    table.on_cancel = table.on_demand = table.on_sent = next;
  }
  return table;
}

static penstock_channel *channel;

static void add(const char *what, int32_t priority, penstock_interceptor_id *id) {
  penstock_interceptor table = table_for(what);
  need("interceptor", penstock_channel_add_interceptor(channel, &table, priority, id, NULL));
}

static void make_calls(long calls) {
  for (long i = 0; i < calls; i++) {
    penstock_reply *reply = NULL;
    need("unary", penstock_channel_unary(channel, "/a.Service/Method", "hello", 5, NULL, &reply, NULL));
    size_t length = 0;
    const void *data = penstock_reply_bytes(reply, &length);
    if (penstock_reply_code(reply) != 0 || length != 2 || memcmp(data, "ok", 2) != 0) {
      fprintf(stderr, "chain_client: %s\n", penstock_reply_status_json(reply));
      exit(1);
    }
    penstock_reply_release(reply);
  }
}

static void register_often(long times) {
  for (long i = 0; i < times; i++) {
    penstock_interceptor_id id;
    add("register", (int32_t)(i * 7919 % 1000), &id);
    need("remove", penstock_registration_remove(id, NULL));
  }
}

int main(int argc, char **argv) {
  const char *what = "none";
  long hops = 0, calls = 10000;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--what") == 0) what = argv[i + 1];
    if (strcmp(argv[i], "--hops") == 0) hops = atol(argv[i + 1]);
    if (strcmp(argv[i], "--calls") == 0) calls = atol(argv[i + 1]);
  }
  penstock_runtime *runtime = NULL;
  need("runtime", penstock_runtime_new("{\"mode\": \"host\"}", &runtime, NULL));
  need("channel", penstock_channel_new_on(runtime, "127.0.0.1:1", "{\"tls\": false}", &channel, NULL));
  penstock_status *ok = NULL;
  need("status", penstock_status_new(0, NULL, &ok));
  penstock_interceptor stub = PENSTOCK_INTERCEPTOR_INIT;
  penstock_interceptor_id id;
  stub.name = "stub";
  stub.user_data = ok;
  stub.on_start = stub_start;
  stub.on_half_close = stub_answer;
  need("stub", penstock_channel_add_interceptor(channel, &stub, INT32_MIN, &id, NULL));
  if (strcmp(what, "none") != 0) {
    bool is_below = strcmp(what, "below") == 0;
    if (is_below) add("pause_same", INT32_MAX, &id);
    for (long i = 0; i < hops; i++) add(is_below ? "start_status" : what, (int32_t)(i % 1000), &id);
  }
  pthread_t thread;
  bool has_thread = strcmp(what, "pause_other") == 0;
  if (has_thread && pthread_create(&thread, NULL, resume_all, NULL) != 0) return 1;
  void (*run)(long) = strcmp(what, "register") == 0 ? register_often : make_calls;
  run(calls / 10 + 1);
  long before = atomic_load(&allocations);
  double started = seconds_of(CLOCK_MONOTONIC), busy = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
  run(calls);
  double took = seconds_of(CLOCK_MONOTONIC) - started, used = seconds_of(CLOCK_PROCESS_CPUTIME_ID) - busy;
  printf("{\"ns\": %.1f, \"cpu_ns\": %.1f, \"allocations\": %.3f}\n", took * 1e9 / (double)calls,
         used * 1e9 / (double)calls, (double)(atomic_load(&allocations) - before) / (double)calls);
  atomic_store(&is_over, true);
  if (has_thread) pthread_join(thread, NULL);
  penstock_channel_release(channel);
  penstock_runtime_release(runtime);
  penstock_status_release(ok);
  return 0;
}
