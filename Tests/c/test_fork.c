/* Fork without hooks: in a child, functions on the parent's handles give E_FORKED, and the child can make handles of
 * its own. */
#include "ready.h"

#include <sys/wait.h>
#include <unistd.h>

static int child_failures;
#define CHILD(condition)                                                                                               \
  do {                                                                                                                 \
    if (!(condition)) {                                                                                                \
      printf("  in the child: %s (line %d)\n", #condition, __LINE__);                                                  \
      child_failures++;                                                                                                \
    }                                                                                                                  \
  } while (0)

typedef struct parent {
  penstock_runtime *runtime;
  penstock_channel *channel;
  penstock_call_options *options;
  penstock_call *call;
  penstock_hop *hop;
  penstock_ticket ticket;
  penstock_interceptor_id id;
  atomic_bool is_kept;
} parent;

static int32_t take_ticket(penstock_hop *hop, void *state) {
  penstock_ticket *ticket = state;
  *ticket = penstock_hop_ticket(hop);
  return PENSTOCK_NEXT;
}

static int32_t refuse_message(void *user_data, const void *data, size_t length, penstock_compression *message) {
  (void)user_data, (void)data, (void)length, (void)message;
  return 1;
}

static void compress_in_child(penstock_channel *channel) {
  penstock_compressor_functions functions = PENSTOCK_COMPRESSOR_FUNCTIONS_INIT;
  functions.name = "x-child";
  functions.compress = functions.decompress = refuse_message;
  penstock_compressor *compressor = NULL;
  CHILD(penstock_compressor_new(&functions, &compressor, NULL) == PENSTOCK_OK);
  CHILD(penstock_channel_add_compressor(channel, compressor) == PENSTOCK_E_FORKED);
  penstock_compressor_release(compressor);
}

static void use_in_child(parent *p) {
  alarm((unsigned)(test_patience_ms() / 1000));
  penstock_reply *reply = NULL;
  penstock_call *call = NULL;
  penstock_message *message = NULL;
  penstock_channel *another = NULL;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_interceptor_id id = 0;
  char *json = NULL;
  CHILD(penstock_channel_unary(p->channel, UNARY, "x", 1, NULL, &reply, NULL) == PENSTOCK_E_FORKED);
  CHILD(penstock_channel_call(p->channel, UNARY, 0, NULL, NULL, &call, NULL) == PENSTOCK_E_FORKED);
  CHILD(penstock_channel_close(p->channel) == PENSTOCK_E_FORKED);
  CHILD(penstock_channel_add_interceptor(p->channel, &table, 0, &id, NULL) == PENSTOCK_E_FORKED);
  compress_in_child(p->channel);
  CHILD(penstock_registration_remove(p->id, NULL) == PENSTOCK_E_FORKED);
  CHILD(penstock_registration_set_priority(p->id, 1, NULL) == PENSTOCK_E_FORKED);
  CHILD(penstock_registration_set_filter(p->id, NULL, 0, NULL) == PENSTOCK_E_FORKED);
  CHILD(penstock_registration_replace(p->id, &table, &id, NULL) == PENSTOCK_E_FORKED);
  CHILD(penstock_call_options_add_interceptor(p->options, &table, 0, &id, NULL) == PENSTOCK_E_FORKED);
  CHILD(penstock_registration_wait_removed(p->id, -1) == PENSTOCK_E_FORKED);
  CHILD(penstock_channel_interceptors_json(p->channel, &json) == PENSTOCK_E_FORKED);
  CHILD(penstock_channel_stats_json(p->channel, 0, &json) == PENSTOCK_E_FORKED);
  CHILD(penstock_call_send(p->call, "x", 1) == PENSTOCK_E_FORKED);
  CHILD(penstock_call_try_send(p->call, "x", 1) == PENSTOCK_E_FORKED);
  CHILD(penstock_call_receive(p->call, &message) == PENSTOCK_E_FORKED);
  CHILD(penstock_call_wait(p->call, &reply) == PENSTOCK_E_FORKED);
  CHILD(penstock_call_half_close(p->call) == PENSTOCK_E_FORKED);
  CHILD(penstock_call_cancel(p->call, NULL) == PENSTOCK_E_FORKED);
  CHILD(penstock_runtime_shutdown(p->runtime, 0) == PENSTOCK_E_FORKED);
  CHILD(penstock_channel_new_on(p->runtime, "a:1", "{\"tls\": false}", &another, NULL) == PENSTOCK_E_FORKED);
  CHILD(penstock_runtime_add_interceptor(p->runtime, &table, 0, &id, NULL) == PENSTOCK_E_FORKED);
  penstock_result result = penstock_ticket_resolve(p->ticket, PENSTOCK_NEXT);
  CHILD(result == PENSTOCK_E_FORKED || result == PENSTOCK_E_GONE);
  CHILD(penstock_hop_demand(p->hop, 1) == PENSTOCK_E_FORKED);
  /* In a child a release only forgets the handle. */
  penstock_call_options_release(p->options);
  penstock_hop_release(p->hop);
  penstock_call_release(p->call);
  penstock_channel_release(p->channel);
  penstock_runtime_release(p->runtime);
  /* New handles work on the default runtime, on a runtime with a thread, and on a runtime that this test drives. */
  static const char *const modes[] = {NULL, "{}", "{\"mode\": \"host\"}"};
  for (int i = 0; i < 3; i++) {
    penstock_runtime *runtime = NULL;
    if (i > 0) CHILD(penstock_runtime_new(modes[i], &runtime, NULL) == PENSTOCK_OK);
    penstock_channel *channel = open_channel_on(runtime);
    CHILD(channel != NULL);
    /* The child's ids continue those of the parent. */
    CHILD(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL) == PENSTOCK_OK && id > p->id);
    CHILD(penstock_registration_remove(id, NULL) == PENSTOCK_OK);
    CHILD(penstock_registration_wait_removed(id, 0) == PENSTOCK_OK);
    penstock_ticket ticket = 0;
    table.user_data = &ticket;
    table.on_start = take_ticket;
    CHILD(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL) == PENSTOCK_OK);
    reply = NULL;
    CHILD(penstock_channel_unary(channel, UNARY, "child", 5, NULL, &reply, NULL) == PENSTOCK_OK);
    CHILD(ticket > p->ticket);
    CHILD(penstock_registration_remove(id, NULL) == PENSTOCK_OK);
    table.on_start = NULL;
    CHILD(penstock_reply_code(reply) == 0);
    penstock_reply_release(reply);
    penstock_channel_release(channel);
    if (runtime) CHILD(penstock_runtime_shutdown(runtime, 10000) == PENSTOCK_OK);
    penstock_runtime_release(runtime);
  }
  fflush(stdout);
  _exit(child_failures ? 1 : 0);
}

static int32_t keep_and_pause(probe *self, penstock_hop *hop, int32_t event) {
  parent *p = self->context;
  if (event != PENSTOCK_EVENT_HALF_CLOSE) return PENSTOCK_NEXT;
  p->hop = penstock_hop_retain(hop);
  p->ticket = penstock_hop_ticket(hop);
  atomic_store(&p->is_kept, true);
  return PENSTOCK_PAUSE;
}

static void fork_with(const char *options) {
  fflush(stdout);
  parent p = {0};
  if (options) {
    p.runtime = new_runtime(options);
  } else {
    OK(penstock_runtime_default(&p.runtime, NULL));
  }
  p.channel = open_channel_on(p.runtime);
  probe probe;
  probe_init_with(&probe, "probe", keep_and_pause, &p);
  p.id = probe_add(&probe, p.channel, 0);
  OK(penstock_call_options_new(NULL, &p.options, NULL));
  p.call = start_call(p.channel, BIDI, PENSTOCK_KIND_BIDI);
  REQUIRE(p.call != NULL);
  OK(penstock_call_send(p.call, "before", 6));
  penstock_message *message = NULL;
  if (OK(penstock_call_receive(p.call, &message))) penstock_message_release(message);
  OK(penstock_call_half_close(p.call));
  /* The callbacks of a host-driven runtime run when it is polled. */
  int64_t until = test_now_ms() + test_patience_ms();
  while (!atomic_load(&p.is_kept) && options && strstr(options, "host") && test_now_ms() < until) {
    penstock_runtime_poll(p.runtime, 10);
  }
  EVENTUALLY(atomic_load(&p.is_kept));
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) use_in_child(&p);
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  if (WIFSIGNALED(status)) printf("  the child died of signal %d\n", WTERMSIG(status));
  /* The parent's objects still work. */
  OK(penstock_ticket_resolve(p.ticket, PENSTOCK_NEXT));
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(p.call, &reply))) {
    CHECK_INT(penstock_reply_code(reply), 0);
    penstock_reply_release(reply);
  }
  penstock_hop_release(p.hop);
  penstock_call_release(p.call);
  penstock_call_options_release(p.options);
  OK(penstock_registration_remove(p.id, NULL));
  check_echo(p.channel);
  penstock_channel_release(p.channel);
  penstock_runtime_release(p.runtime);
  probe_wait_finalized(&probe);
}

TEST(fork_with_the_default_runtime) { fork_with(NULL); }
TEST(fork_with_a_thread) { fork_with("{\"mode\": \"thread\"}"); }
TEST(fork_with_a_host_runtime) { fork_with("{\"mode\": \"host\"}"); }

static void *keep_calling(void *pointer) {
  penstock_channel *channel = pointer;
  for (int i = 0; i < test_rounds(50); i++) check_echo(channel);
  return NULL;
}

/* A fork while other threads are in the middle of calls: the child does not wait for a lock that they hold. */
TEST(fork_while_calls_run) {
  penstock_channel *channel = open_channel();
  check_echo(channel);
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, keep_calling, channel);
  for (int i = 0; i < test_rounds(10); i++) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
      alarm((unsigned)(test_patience_ms() / 1000));
      penstock_reply *reply = NULL;
      penstock_result result = penstock_channel_unary(channel, UNARY, "x", 1, NULL, &reply, NULL);
      penstock_channel_release(channel);
      _exit(result == PENSTOCK_E_FORKED ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  penstock_channel_release(channel);
}

/* ---- Synchronous interceptors ---- */

typedef struct forking {
  latch entered, go;
  bool forks;
} forking;

static void wait_for_child(pid_t child) {
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  if (WIFSIGNALED(status)) printf("  the child died of signal %d\n", WTERMSIG(status));
}

static int32_t fork_in_function(penstock_hop *call, void *user_data) {
  forking *plan = user_data;
  if (plan->forks) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
      alarm((unsigned)(test_patience_ms() / 1000));
      CHILD(penstock_hop_next(call) == PENSTOCK_E_FORKED);
      CHILD(penstock_hop_end(call, 1, NULL) == PENSTOCK_E_FORKED);
      CHILD(answer_hop(call, NULL) == PENSTOCK_E_FORKED);
      CHILD(penstock_hop_message(call) == NULL);
      CHILD(penstock_hop_set_value(call, "k", NULL, NULL) == PENSTOCK_E_FORKED);
      CHILD(penstock_hop_value(call, "k") == NULL && penstock_request_metadata(penstock_hop_request(call)) == NULL);
      _exit(child_failures ? 1 : 0);
    }
    wait_for_child(child);
  }
  latch_signal(&plan->entered);
  latch_wait(&plan->go, 1);
  OK(penstock_hop_next(call));
  return PENSTOCK_NEXT;
}

static void add_function(penstock_channel *channel, forking *plan) {
  penstock_sync_interceptor sync = PENSTOCK_SYNC_INTERCEPTOR_INIT;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_interceptor_id id = 0;
  sync.user_data = plan;
  sync.intercept = fork_in_function;
  OK(penstock_sync_interceptor_table(&sync, &table, NULL));
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
}

/* The function of a synchronous interceptor forks, and then another thread forks while the function runs. The second
 * child starts workers of its own. */
TEST(fork_while_a_function_runs) {
  forking plan = {LATCH_INIT, LATCH_INIT, true};
  penstock_runtime *runtime = new_runtime("{\"max_workers\": 1}");
  penstock_channel *channel = open_channel_on(runtime);
  add_function(channel, &plan);
  penstock_call *call = start_call(channel, UNARY, PENSTOCK_KIND_UNARY);
  OK(penstock_call_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  latch_wait(&plan.entered, 1);
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    alarm((unsigned)(test_patience_ms() / 1000));
    CHILD(penstock_runtime_shutdown(runtime, -1) == PENSTOCK_E_FORKED);
    penstock_call_release(call);
    penstock_channel_release(channel);
    penstock_runtime_release(runtime);
    forking own = {LATCH_INIT, LATCH_INIT, false};
    latch_signal(&own.go);
    penstock_runtime *mine = new_runtime("{\"max_workers\": 1}");
    penstock_channel *other = open_channel_on(mine);
    add_function(other, &own);
    CHILD(unary_code(other, "child") == 0);
    penstock_channel_release(other);
    CHILD(penstock_runtime_shutdown(mine, 10000) == PENSTOCK_OK);
    penstock_runtime_release(mine);
    fflush(stdout);
    _exit(child_failures ? 1 : 0);
  }
  wait_for_child(child);
  latch_signal(&plan.go);
  penstock_reply *reply = NULL;
  OK(penstock_call_wait(call, &reply));
  CHECK_INT(penstock_reply_code(reply), 0);
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_channel_release(channel);
  OK(penstock_runtime_shutdown(runtime, -1));
  penstock_runtime_release(runtime);
}

static void keep_request(penstock_token_request request, const char *refused, void *user_data) {
  (void)refused;
  atomic_store((_Atomic penstock_token_request *)user_data, request);
}
TEST(fork_ready_state_of_the_parent_is_refused) {
  penstock_channel *channel = open_channel();
  penstock_metrics *metrics = NULL;
  penstock_interceptor tables[] = {PENSTOCK_INTERCEPTOR_INIT, PENSTOCK_INTERCEPTOR_INIT};
  penstock_interceptor other = PENSTOCK_INTERCEPTOR_INIT;
  _Atomic penstock_token_request request = 0;
  OK(penstock_metrics_new(NULL, &metrics, NULL));
  OK(penstock_ready_metrics(metrics, &tables[0]));
  penstock_telemetry *telemetry = NULL;
  OK(penstock_telemetry_new(NULL, &telemetry, NULL));
  OK(penstock_ready_bearer_token("{\"allow_cleartext\": true}", keep_request, &request, NULL, &tables[1], NULL));
  OK(penstock_ready_share(&tables[1], &other));
  ready_add(channel, &tables[1], 0);
  penstock_call *call = ready_begin(channel, "x", NULL);
  char *text = NULL;
  do OK(penstock_metrics_snapshot_json(metrics, &text));
  while (penstock_free(text), text = NULL, request == 0);
  pid_t child = fork();
  if (child == 0) {
    alarm((unsigned)(test_patience_ms() / 1000));
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    int wrong = 0;
    wrong += penstock_metrics_snapshot_json(metrics, &text) != PENSTOCK_E_FORKED;
    wrong += penstock_metrics_prometheus_text(metrics, &text) != PENSTOCK_E_FORKED;
    wrong += penstock_ready_metrics(metrics, &table) != PENSTOCK_E_FORKED;
    wrong += penstock_ready_share(&tables[0], &table) != PENSTOCK_E_FORKED;
    wrong += penstock_ready_telemetry(telemetry, &table, NULL) != PENSTOCK_E_FORKED;
    wrong += penstock_telemetry_prometheus_text(telemetry, &text) != PENSTOCK_E_FORKED;
    wrong += penstock_telemetry_metrics_json(telemetry, &text) != PENSTOCK_E_FORKED;
    wrong += penstock_telemetry_spans_json(telemetry, &text) != PENSTOCK_E_FORKED;
    wrong += penstock_telemetry_stats_json(telemetry, &text) != PENSTOCK_E_FORKED;
    wrong += penstock_telemetry_flush(telemetry, channel, 1000, NULL, NULL) != PENSTOCK_E_FORKED;
    penstock_telemetry_release(telemetry);
    wrong += penstock_token_complete(request, "token", -1) != PENSTOCK_E_GONE;
    wrong += penstock_token_fail(request, PENSTOCK_STATUS_ABORTED, NULL) != PENSTOCK_E_GONE;
    penstock_metrics_release(metrics);
    wrong += penstock_ready_oauth2(NULL, channel, &table, NULL) != PENSTOCK_E_FORKED;
    wrong += penstock_ready_trace_context(NULL, &table, NULL) != PENSTOCK_OK;
    _exit(wrong);
  }
  int status = -1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
  OK(penstock_token_complete(request, "token", -1));
  CHECK_INT(ready_code(ready_finish(call)), 0);
  ready_drop(&tables[0]);
  ready_drop(&other);
  penstock_metrics_release(metrics);
  penstock_telemetry_release(telemetry);
  penstock_channel_release(channel);
}
