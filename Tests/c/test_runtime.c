/* runtime.h: modes, the driver role, shutdown. */
#include "pool.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/resource.h>

TEST(runtime_options) {
  static const char *const right[] = {"{}", "{\"mode\": \"thread\"}", "{\"mode\": \"host\"}",
                                      "{\"caller_drives\": false, \"linger_us\": 0}", "{\"spin_us\": 50}"};
  for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++) penstock_runtime_release(new_runtime(right[i]));
  penstock_runtime_release(new_runtime(NULL));
  static const struct {
    const char *json, *part;
  } wrong[] = {{"", NULL},
               {"[]", NULL},
               {"{\"mode\": \"x\"}", "mode"},
               {"{\"mode\": 1}", "mode"},
               {"{\"caller_drives\": 1}", "caller_drives"},
               {"{\"linger_us\": -1}", "linger_us"},
               {"{\"linger_us\": \"1\"}", "linger_us"},
               {"{\"spin_us\": -1}", "spin_us"},
               {"{\"spin_us\": 1000001}", "spin_us"},
               {"{\"more\": 1}", "more"}};
  for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
    penstock_runtime *runtime = NULL;
    penstock_error *error = NULL;
    if (!CHECK_RESULT(penstock_runtime_new(wrong[i].json, &runtime, &error), PENSTOCK_E_INVALID_JSON)) {
      printf("  %s\n", wrong[i].json);
    }
    if (error && wrong[i].part) CHECK_HAS(penstock_error_json(error), wrong[i].part);
    CHECK(error != NULL && runtime == NULL);
    penstock_error_release(error);
    penstock_runtime_release(runtime);
  }
}

TEST(runtime_default_is_shared_and_ends) {
  penstock_runtime *one = NULL, *two = NULL;
  REQUIRE_OK(penstock_runtime_default(&one, NULL));
  REQUIRE_OK(penstock_runtime_default(&two, NULL));
  CHECK(one == two);
  probe probe;
  probe_init(&probe, "of the default runtime");
  penstock_interceptor table = probe_table(&probe);
  penstock_interceptor_id id = 0;
  OK(penstock_runtime_add_interceptor(one, &table, 0, &id, NULL));
  penstock_channel *channel = open_channel();
  check_echo(channel);
  CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_START]), 1);
  penstock_channel_release(channel);
  penstock_runtime_release(one);
  penstock_runtime_release(two);
  /* An interceptor of the default runtime lives as long as that runtime. The next channel gets a new default
   * runtime. */
  probe_wait_finalized(&probe);
  channel = open_channel();
  check_echo(channel);
  CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_START]), 1);
  penstock_channel_release(channel);
}

TEST(runtime_of_a_thread_has_no_fd) {
  penstock_runtime *runtime = new_runtime(NULL);
  int fd = -5;
  CHECK_RESULT(penstock_runtime_fd(runtime, &fd), PENSTOCK_E_STATE);
  CHECK_INT(fd, -5);
  CHECK_RESULT(penstock_runtime_poll(runtime, 0), PENSTOCK_E_STATE);
  penstock_runtime_release(runtime);
}

TEST(runtime_interceptors) {
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_channel *channel = open_channel_on(runtime);
  probe everywhere, here;
  probe_trace trace = {PTHREAD_MUTEX_INITIALIZER, ""};
  probe_init(&everywhere, "everywhere");
  probe_init(&here, "here");
  everywhere.trace = here.trace = &trace;
  penstock_interceptor table = probe_table(&everywhere);
  penstock_interceptor_id id = 0;
  REQUIRE_OK(penstock_runtime_add_interceptor(runtime, &table, 5, &id, NULL));
  probe_add(&here, channel, 6);
  check_echo(channel);
  CHECK(strstr(trace.text, "here:start") < strstr(trace.text, "everywhere:start"));
  char *json = NULL;
  OK(penstock_runtime_interceptors_json(runtime, &json));
  CHECK_HAS(json, "everywhere");
  CHECK(strstr(json, "\"here\"") == NULL);
  penstock_free(json);
  OK(penstock_channel_interceptors_json(channel, &json));
  CHECK_HAS(json, "everywhere");
  CHECK_HAS(json, "\"here\"");
  penstock_free(json);
  trace.text[0] = 0;
  OK(penstock_registration_set_priority(id, 7, NULL));
  check_echo(channel);
  CHECK(strstr(trace.text, "here:start") > strstr(trace.text, "everywhere:start"));
  OK(penstock_registration_remove(id, NULL));
  CHECK_RESULT(penstock_registration_remove(id, NULL), PENSTOCK_E_NOT_FOUND);
  CHECK_RESULT(penstock_registration_set_priority(id, 1, NULL), PENSTOCK_E_NOT_FOUND);
  probe_wait_finalized(&everywhere);
  check_echo(channel);
  CHECK_INT(atomic_load(&everywhere.seen[PENSTOCK_EVENT_START]), 2);
  penstock_channel_release(channel);
  penstock_runtime_release(runtime);
  probe_wait_finalized(&here);
}

TEST(runtime_release_finalizes) {
  penstock_runtime *runtime = new_runtime(NULL);
  probe probe;
  probe_init(&probe, "probe");
  penstock_interceptor table = probe_table(&probe);
  penstock_interceptor_id id;
  OK(penstock_runtime_add_interceptor(runtime, &table, 0, &id, NULL));
  CHECK(penstock_runtime_retain(runtime) == runtime);
  penstock_runtime_release(runtime);
  CHECK_INT(atomic_load(&probe.finalized), 0);
  penstock_runtime_release(runtime);
  probe_wait_finalized(&probe);
}

/* ---- The driver role ---- */

typedef struct worker {
  penstock_channel *channel;
  int calls;
  atomic_int *done;
} worker;
static void *call_often(void *pointer) {
  worker *worker = pointer;
  for (int i = 0; i < worker->calls; i++) {
    char text[32];
    snprintf(text, sizeof(text), "%d of %d", i, worker->calls);
    penstock_reply *reply = NULL;
    if (!OK(penstock_channel_unary(worker->channel, UNARY, text, strlen(text), NULL, &reply, NULL))) break;
    size_t length = 0;
    const char *data = penstock_reply_bytes(reply, &length);
    bool right = penstock_reply_code(reply) == 0 && data && length == strlen(text) && memcmp(data, text, length) == 0;
    penstock_reply_release(reply);
    if (!CHECK_INT(right, 1)) break;
    atomic_fetch_add(worker->done, 1);
  }
  return NULL;
}

static void sixteen_threads(const char *options) {
  penstock_runtime *runtime = new_runtime(options);
  penstock_channel *channel = open_channel_on(runtime);
  atomic_int done = 0;
  worker worker = {channel, test_rounds(200), &done};
  pthread_t threads[16];
  for (int i = 0; i < 16; i++) pthread_create(&threads[i], NULL, call_often, &worker);
  for (int i = 0; i < 16; i++) pthread_join(threads[i], NULL);
  CHECK_INT(atomic_load(&done), 16 * worker.calls);
  penstock_channel_release(channel);
  OK(penstock_runtime_shutdown(runtime, 10000));
  penstock_runtime_release(runtime);
}

TEST(runtime_sixteen_threads_drive) { sixteen_threads(NULL); }
TEST(runtime_sixteen_threads_drive_with_no_linger) { sixteen_threads("{\"linger_us\": 0}"); }
TEST(runtime_sixteen_threads_are_served) { sixteen_threads("{\"caller_drives\": false}"); }
TEST(runtime_sixteen_threads_drive_a_host_runtime) { sixteen_threads("{\"mode\": \"host\"}"); }

TEST(runtime_sixteen_threads_spin) { sixteen_threads("{\"spin_us\": 100}"); }

/* Gives the time that a call on `channel` takes whose deadline of 300 ms ends it. */
static int64_t until_deadline(penstock_channel *channel) {
  int64_t begun = test_now_ms();
  penstock_call_options *options = NULL;
  OK(penstock_call_options_new("{\"deadline_ms\": 300}", &options, NULL));
  penstock_call *call = NULL;
  OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, options, NULL, &call, NULL));
  penstock_message *message = NULL;
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
  penstock_reply *reply = NULL;
  if (OK(penstock_call_reply(call, &reply))) {
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
    penstock_reply_release(reply);
  }
  int64_t took = test_now_ms() - begun;
  penstock_call_release(call);
  penstock_call_options_release(options);
  return took;
}

/* If the spin is longer than the wait for each answer, the thread does not sleep. */
TEST(runtime_spins_before_it_sleeps) {
  penstock_runtime *runtime = new_runtime("{\"spin_us\": 1000000}");
  penstock_channel *channel = open_channel_on(runtime);
  check_echo(channel);
  struct rusage before, after;
  getrusage(RUSAGE_THREAD, &before);
  for (int i = 0; i < 200; i++) check_echo(channel);
  getrusage(RUSAGE_THREAD, &after);
  /* Under valgrind and the sanitizers threads wait for each other, which adds context switches. */
  if (test_slow() == 1) CHECK(after.ru_nvcsw - before.ru_nvcsw < 100);
  /* A deadline ends a spin, and no sleep of the same length follows. On a busy machine one try may take longer. */
  int64_t took = until_deadline(channel);
  for (int tries = 0; took >= 550 && tries < 10; tries++) took = until_deadline(channel);
  CHECK(took < 550 * test_slow());
  penstock_channel_release(channel);
  OK(penstock_runtime_shutdown(runtime, 10000));
  penstock_runtime_release(runtime);
}

/* Calls in callback style go on while callers take the driver's role and leave it. */
TEST(runtime_background_calls_survive_a_driver) {
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_channel *channel = open_channel_on(runtime);
  for (int i = 0; i < test_rounds(50); i++) {
    latch finalized = LATCH_INIT;
    penstock_call *handle = start_callback_call(channel, UNARY, PENSTOCK_KIND_UNARY, &finalized);
    REQUIRE(handle);
    check_echo(channel);
    OK(penstock_call_try_send(handle, "x", 1));
    OK(penstock_call_half_close(handle));
    penstock_call_release(handle);
    latch_wait(&finalized, 1);
  }
  penstock_channel_release(channel);
  penstock_runtime_release(runtime);
}

/* ---- Shutdown ---- */

static void *blocked_receive(void *pointer) {
  penstock_call *call = pointer;
  penstock_message *message = NULL;
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) {
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_CANCELLED);
    CHECK_STR(penstock_status_message(penstock_reply_status(reply), NULL), "runtime shut down");
    penstock_reply_release(reply);
  }
  return NULL;
}

static void shutdown_with_calls(const char *options) {
  penstock_runtime *runtime = new_runtime(options);
  penstock_channel *channel = open_channel_on(runtime);
  check_echo(channel);
  probe probe;
  probe_init(&probe, "probe");
  probe_add(&probe, channel, 0);
  enum { count = 8 };
  penstock_call *calls[count];
  pthread_t threads[count];
  for (int i = 0; i < count; i++) {
    calls[i] = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
    pthread_create(&threads[i], NULL, blocked_receive, calls[i]);
  }
  OK(penstock_runtime_shutdown(runtime, 10000));
  for (int i = 0; i < count; i++) {
    pthread_join(threads[i], NULL);
    penstock_call_release(calls[i]);
  }
  CHECK_RESULT(penstock_runtime_shutdown(runtime, 0), PENSTOCK_E_ALREADY);
  penstock_reply *reply = NULL;
  CHECK_RESULT(penstock_channel_unary(channel, UNARY, "x", 1, NULL, &reply, NULL), PENSTOCK_E_CLOSED);
  penstock_channel *another = NULL;
  penstock_error *error = NULL;
  CHECK_RESULT(penstock_channel_new_on(runtime, peer_address(), NULL, &another, &error), PENSTOCK_E_CLOSED);
  CHECK_ERROR(error, PENSTOCK_E_CLOSED, NULL, NULL);
  atomic_int finalized = 0;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.user_data = &finalized;
  table.finalizer = count_up;
  penstock_interceptor_id id;
  CHECK_RESULT(penstock_runtime_add_interceptor(runtime, &table, 0, &id, NULL), PENSTOCK_E_CLOSED);
  CHECK_INT(atomic_load(&finalized), 1);
  CHECK_INT(latch_count(&probe.done), atomic_load(&probe.seen[PENSTOCK_EVENT_CREATE]));
  penstock_channel_release(channel);
  penstock_runtime_release(runtime);
  probe_wait_finalized(&probe);
}

TEST(runtime_shutdown_ends_calls) { shutdown_with_calls(NULL); }
TEST(runtime_shutdown_ends_calls_of_a_host_runtime) { shutdown_with_calls("{\"mode\": \"host\"}"); }

TEST(runtime_says_what_the_system_refuses) {
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  struct rlimit none = {3, limit.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  penstock_runtime *runtime = NULL;
  penstock_error *error = NULL;
  penstock_result result = penstock_runtime_new(NULL, &runtime, &error);
  setrlimit(RLIMIT_NOFILE, &limit);
  if (result == PENSTOCK_OK) {
    /* valgrind sets its own limit, so the runtime can be made. */
    penstock_runtime_release(runtime);
    return;
  }
  CHECK_RESULT(result, PENSTOCK_E_SYSTEM);
  CHECK_HAS(penstock_error_message(error), strerror(EMFILE));
  CHECK_HAS(penstock_error_message(error), " (errno 24)");
  penstock_error_release(error);
}

TEST(runtime_shutdown_without_anything) {
  penstock_runtime *runtime = new_runtime(NULL);
  OK(penstock_runtime_shutdown(runtime, -1));
  CHECK_RESULT(penstock_runtime_shutdown(runtime, -1), PENSTOCK_E_ALREADY);
  penstock_runtime_release(runtime);
  runtime = new_runtime("{\"mode\": \"host\"}");
  OK(penstock_runtime_shutdown(runtime, 5000));
  penstock_runtime_release(runtime);
}

/* A host-driven runtime without work shuts down at once. */
TEST(runtime_shutdown_without_a_timeout) {
  for (int used = 0; used < 2; used++) {
    penstock_runtime *runtime = new_runtime("{\"mode\": \"host\"}");
    penstock_channel *channel = open_channel_on(runtime);
    if (used) check_echo(channel);
    OK(penstock_runtime_shutdown(runtime, 0));
    CHECK_RESULT(penstock_runtime_shutdown(runtime, 0), PENSTOCK_E_ALREADY);
    penstock_channel_release(channel);
    penstock_runtime_release(runtime);
  }
}

typedef struct stuck {
  latch inside, go_on;
} stuck;
static int32_t wait_inside(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop;
  if (event == PENSTOCK_EVENT_START) {
    stuck *stuck = self->context;
    latch_signal(&stuck->inside);
    latch_wait(&stuck->go_on, 1);
  }
  return PENSTOCK_NEXT;
}

/* While a user's function does not return, shutdown gives E_TIMEOUT, and can be tried again later. */
TEST(runtime_shutdown_times_out_and_can_be_tried_again) {
  penstock_runtime *runtime = new_runtime("{\"caller_drives\": false}");
  penstock_channel *channel = open_channel_on(runtime);
  stuck stuck = {LATCH_INIT, LATCH_INIT};
  probe probe;
  probe_init_with(&probe, "stuck", wait_inside, &stuck);
  probe_add(&probe, channel, 0);
  latch finalized = LATCH_INIT;
  penstock_call *call = start_callback_call(channel, UNARY, PENSTOCK_KIND_UNARY, &finalized);
  REQUIRE(call);
  latch_wait(&stuck.inside, 1);
  CHECK_RESULT(penstock_runtime_shutdown(runtime, 30), PENSTOCK_E_TIMEOUT);
  CHECK_RESULT(penstock_runtime_shutdown(runtime, 0), PENSTOCK_E_TIMEOUT);
  latch_signal(&stuck.go_on);
  penstock_result result = penstock_runtime_shutdown(runtime, 10000);
  CHECK(result == PENSTOCK_OK || result == PENSTOCK_E_ALREADY);
  latch_wait(&finalized, 1);
  penstock_call_release(call);
  penstock_channel_release(channel);
  penstock_runtime_release(runtime);
  probe_wait_finalized(&probe);
}

static void *poll_until_closed(void *runtime) {
  int64_t until = test_now_ms() + test_patience_ms();
  while (penstock_runtime_poll(runtime, 5) != PENSTOCK_E_CLOSED && CHECK(test_now_ms() < until)) {
  }
  return NULL;
}

/* A shutdown goes on after E_TIMEOUT, here while another thread polls. The next call of shutdown, which finds all done,
 * lets the interceptors go: one may hold what keeps the runtime. */
TEST(runtime_shutdown_lets_interceptors_go_when_it_is_tried_again) {
  penstock_runtime *runtime = new_runtime("{\"mode\": \"host\"}");
  penstock_channel *channel = open_channel_on(runtime);
  stuck stuck = {LATCH_INIT, LATCH_INIT};
  probe probe;
  probe_init_with(&probe, "stuck", wait_inside, &stuck);
  probe_add(&probe, channel, 0);
  latch let_go = LATCH_INIT, finalized = LATCH_INIT;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.user_data = &let_go;
  table.finalizer = signal_latch;
  uint64_t id;
  REQUIRE_OK(penstock_runtime_add_interceptor(runtime, &table, 0, &id, NULL));
  penstock_call *call = start_callback_call(channel, UNARY, PENSTOCK_KIND_UNARY, &finalized);
  REQUIRE(call);
  pthread_t poller;
  pthread_create(&poller, NULL, poll_until_closed, runtime);
  latch_wait(&stuck.inside, 1);
  CHECK_RESULT(penstock_runtime_shutdown(runtime, 0), PENSTOCK_E_TIMEOUT);
  latch_signal(&stuck.go_on);
  pthread_join(poller, NULL);
  CHECK_RESULT(penstock_runtime_shutdown(runtime, 0), PENSTOCK_E_ALREADY);
  latch_wait(&let_go, 1);
  latch_wait(&finalized, 1);
  penstock_call_release(call);
  penstock_channel_release(channel);
  penstock_runtime_release(runtime);
  probe_wait_finalized(&probe);
}

/* After the last release the runtime ends by itself, and no thread is left. */
TEST(runtime_release_ends_its_thread) {
  int threads = running_threads();
  for (int i = 0; i < test_rounds(20); i++) {
    penstock_runtime *runtime = new_runtime(NULL);
    penstock_channel *channel = open_channel_on(runtime);
    penstock_runtime_release(runtime);
    check_echo(channel);
    penstock_channel_release(channel);
  }
  EVENTUALLY(running_threads() <= threads);
}

/* ---- Signals ---- */

/* Counts the threads that have the library's thread names; `masks` gets the signals that they block. */
static int masks_of_threads(uint64_t *masks, int most) {
  int count = 0;
  DIR *folder = opendir("/proc/self/task");
  for (struct dirent *entry; folder && (entry = readdir(folder));) {
    char path[300], line[100];
    bool ours = false;
    snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file)) {
      if (strncmp(line, "Name:", 5) == 0) ours = strstr(line, "\tpenstock") != NULL;
      if (ours && count < most && sscanf(line, "SigBlk: %" SCNx64, &masks[count]) == 1) count++;
    }
    if (file) fclose(file);
  }
  if (folder) closedir(folder);
  return count;
}

TEST(threads_block_every_signal_but_faults) {
  static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
  penstock_runtime *runtime = new_runtime("{\"mode\": \"thread\"}");
  penstock_executor *executor = NULL;
  REQUIRE_OK(penstock_executor_new_serial(&executor));
  EVENTUALLY(threads_named("penstock") >= 1 && threads_named("penstock-exec") == 1);
  uint64_t masks[64];
  int count = masks_of_threads(masks, 64);
  CHECK(count >= 2);
  for (int i = 0; i < count; i++) {
    uint64_t expected = 0x7fffffff & ~(UINT64_C(1) << (SIGKILL - 1)) & ~(UINT64_C(1) << (SIGSTOP - 1));
    for (size_t k = 0; k < sizeof(faults) / sizeof(*faults); k++) expected &= ~(UINT64_C(1) << (faults[k] - 1));
    CHECK_INT(masks[i] & 0x7fffffff, expected);
  }
  penstock_executor_release(executor);
  penstock_runtime_release(runtime);
}

/* Looks at the stack of the thread of each callback that runs on one of the library's. */
static int32_t check_stack(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop;
  pthread_attr_t attributes;
  size_t bytes = 0;
  if (event != PENSTOCK_EVENT_SEND && event != PENSTOCK_EVENT_RECEIVE) return PENSTOCK_NEXT;
  CHECK_INT(pthread_getattr_np(pthread_self(), &attributes), 0);
  CHECK_INT(pthread_attr_getstacksize(&attributes, &bytes), 0);
  pthread_attr_destroy(&attributes);
  CHECK(bytes >= 1 << 20);
  atomic_fetch_add((atomic_int *)self->context, 1);
  return PENSTOCK_NEXT;
}

/* Python, for one, needs more than a C library may give a thread. */
TEST(threads_have_a_mebibyte_of_stack) {
  pthread_attr_t before, small;
  pthread_getattr_default_np(&before);
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, 128 << 10);
  pthread_setattr_default_np(&small);
  penstock_runtime *runtime = new_runtime("{\"mode\": \"thread\", \"caller_drives\": false}");
  penstock_channel *channel = open_channel_on(runtime);
  penstock_executor *executor = NULL;
  REQUIRE_OK(penstock_executor_new_serial(&executor));
  probe probe;
  atomic_int looked = 0;
  probe_init(&probe, "probe");
  probe.hook = check_stack;
  probe.context = &looked;
  add_on(channel, &probe, 0, executor, NULL);
  check_echo(channel);
  CHECK_INT(atomic_load(&looked), 2);
  penstock_channel_release(channel);
  penstock_executor_release(executor);
  penstock_runtime_release(runtime);
  probe_wait_finalized(&probe);
  pthread_setattr_default_np(&before);
}
