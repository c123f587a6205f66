/* fork.h: with the hooks the parent's channels, with their interceptors, work in a child. */
#include "forks.h"

TEST(fork_hooks_children_of_a_busy_parent_call_at_once) {
  with_hooks();
  load load = {.channels = {open_channel(), open_tls_channel(false)}};
  pthread_t threads[4];
  for (int i = 0; i < 2; i++) add_counter(load.channels[i], &load.counter);
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, i < 3 ? keep_calling : keep_streaming, &load);
  for (int i = 0; i < test_rounds(120); i++) reap(fork_and(call_both, &load));
  atomic_store(&load.over, true);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < 2; i++) penstock_channel_release(load.channels[i]);
}

/* ---- Calls under way ---- */

typedef struct under_way {
  penstock_runtime *runtime;
  penstock_channel *channel;
  penstock_call *call;
  atomic_int replies;
  latch replied;
  int fd;
} under_way;

static void end_in_child(void *pointer) {
  under_way *way = pointer;
  penstock_message *message = NULL;
  penstock_reply *reply = NULL;
  CHILD(penstock_call_receive(way->call, &message) == PENSTOCK_E_END);
  CHILD(penstock_call_wait(way->call, &reply) == PENSTOCK_OK);
  CHILD(penstock_reply_code(reply) == 1);
  CHILD(strstr(penstock_reply_status_json(reply), "forked") != NULL);
  penstock_reply_release(reply);
  penstock_call_release(way->call);
  int32_t code = -1;
  CHILD(unary_result(way->channel, &code) == PENSTOCK_OK);
  CHILD(code == 0);
  if (way->fd >= 0) {
    int fd = -1;
    CHILD(penstock_runtime_fd(way->runtime, &fd) == PENSTOCK_OK && fd == way->fd);
    CHILD(penstock_runtime_poll(way->runtime, 0) == PENSTOCK_OK);
  }
  penstock_channel_release(way->channel);
  CHILD(penstock_runtime_shutdown(way->runtime, 10000) == PENSTOCK_OK);
  penstock_runtime_release(way->runtime);
}

static void fork_under_way(const char *options) {
  with_hooks();
  under_way way = {.fd = -1};
  way.runtime = new_runtime(options);
  way.channel = open_channel_on(way.runtime);
  way.call = start_with(way.channel, BIDI, PENSTOCK_KIND_BIDI, NULL);
  if (strstr(options, "host")) OK(penstock_runtime_fd(way.runtime, &way.fd));
  OK(penstock_call_send(way.call, "one", 3));
  CHECK_MESSAGE(way.call, "one");
  for (int i = 0; i < 3; i++) reap(fork_and(end_in_child, &way));
  /* The fork has not affected the parent's call. */
  OK(penstock_call_send(way.call, "two", 3));
  CHECK_MESSAGE(way.call, "two");
  OK(penstock_call_half_close(way.call));
  CHECK_FINISH(way.call, 0);
  penstock_call_release(way.call);
  check_echo(way.channel);
  penstock_channel_release(way.channel);
  OK(penstock_runtime_shutdown(way.runtime, 10000));
  penstock_runtime_release(way.runtime);
}
TEST(fork_hooks_end_a_call_with_a_thread) { fork_under_way("{}"); }
TEST(fork_hooks_end_a_call_where_callers_do_not_drive) { fork_under_way("{\"caller_drives\": false}"); }
TEST(fork_hooks_end_a_call_of_a_host_runtime) { fork_under_way("{\"mode\": \"host\"}"); }

static void note_reply(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  under_way *way = user_data;
  atomic_store(&way->replies, 100 + penstock_reply_code(reply));
  latch_signal(&way->replied);
}

static void wait_for_callback(void *pointer) {
  under_way *way = pointer;
  /* No thread had used the latch before the fork, so the callback can signal it in the child. This function polls the
   * counter, and so does not need the latch. */
  for (int i = 0; i < 500 && atomic_load(&way->replies) == 0; i++) test_pause();
  CHILD(atomic_load(&way->replies) == 101);
}

TEST(fork_hooks_tell_the_callbacks_of_a_call) {
  with_hooks();
  under_way way = {.replied = LATCH_INIT};
  penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
  callbacks.user_data = &way;
  callbacks.on_reply = note_reply;
  way.channel = open_channel();
  REQUIRE_OK(penstock_channel_call(way.channel, BIDI, PENSTOCK_KIND_BIDI, NULL, &callbacks, &way.call, NULL));
  OK(penstock_call_try_send(way.call, "x", 1));
  OK(penstock_call_demand(way.call, 2));
  check_echo(way.channel);
  reap(fork_and(wait_for_callback, &way));
  CHECK_INT(atomic_load(&way.replies), 0);
  OK(penstock_call_half_close(way.call));
  latch_wait(&way.replied, 1);
  CHECK_INT(atomic_load(&way.replies), 100);
  penstock_call_release(way.call);
  penstock_channel_release(way.channel);
}

/* ---- Forks after which the child can't use the handles ---- */

static void is_refused(void *pointer) {
  int32_t code = -1;
  CHILD(unary_result(pointer, &code) == PENSTOCK_E_FORKED);
  penstock_channel_release(pointer);
  /* In the child, objects work that the child itself has made. */
  penstock_channel *other = open_channel();
  CHILD(unary_result(other, &code) == PENSTOCK_OK && code == 0);
  penstock_channel_release(other);
}

typedef struct forker {
  penstock_channel *channel;
  bool forks;
  latch entered, go;
  pid_t child;
} forker;

static int32_t fork_or_wait(penstock_hop *hop, void *user_data) {
  (void)hop;
  forker *forker = user_data;
  if (forker->forks) {
    forker->child = fork_and(is_refused, forker->channel);
  } else {
    latch_signal(&forker->entered);
    latch_wait(&forker->go, 1);
  }
  return PENSTOCK_NEXT;
}

static void add_forker(forker *forker, bool is_sync) {
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_sync_interceptor sync = PENSTOCK_SYNC_INTERCEPTOR_INIT;
  penstock_interceptor_id id = 0;
  sync.intercept = fork_or_wait;
  sync.user_data = forker;
  if (is_sync) {
    OK(penstock_sync_interceptor_table(&sync, &table, NULL));
  } else {
    table.on_start = fork_or_wait;
    table.user_data = forker;
  }
  OK(penstock_channel_add_interceptor(forker->channel, &table, 0, &id, NULL));
}

static void fork_in_callback(bool is_sync) {
  with_hooks();
  forker forker = {.channel = open_channel(), .forks = true};
  add_forker(&forker, is_sync);
  int32_t code = -1;
  CHECK_INT(unary_result(forker.channel, &code), PENSTOCK_OK);
  reap(forker.child);
  penstock_channel_release(forker.channel);
}
TEST(fork_hooks_do_nothing_in_a_callback) { fork_in_callback(false); }
TEST(fork_hooks_do_nothing_in_the_function_of_a_synchronous_interceptor) { fork_in_callback(true); }

static void *call_once(void *channel) {
  check_echo(channel);
  return NULL;
}

TEST(fork_hooks_wait_no_longer_than_a_second) {
  with_hooks();
  forker forker = {.channel = open_channel(), .entered = LATCH_INIT, .go = LATCH_INIT};
  add_forker(&forker, false);
  pthread_t thread;
  pthread_create(&thread, NULL, call_once, forker.channel);
  latch_wait(&forker.entered, 1);
  int64_t before = test_now_ms();
  reap(fork_and(is_refused, forker.channel));
  int64_t took = test_now_ms() - before;
  CHECK(took >= 990 && took < 1000 + 4000 * test_slow());
  latch_signal(&forker.go);
  pthread_join(thread, NULL);
  penstock_channel_release(forker.channel);
}

/* ---- Objects with threads of their own ---- */

static int32_t pass(penstock_hop *hop, void *user_data) {
  atomic_fetch_add((atomic_int *)user_data, 1);
  return penstock_hop_next(hop) == PENSTOCK_OK ? PENSTOCK_NEXT : PENSTOCK_NEXT;
}

typedef struct threaded {
  penstock_channel *channel;
  atomic_int counter;
  bool works;
} threaded;

static void use_threads(void *pointer) {
  threaded *threaded = pointer;
  int32_t code = -1;
  int before = atomic_load(&threaded->counter);
  CHILD(unary_result(threaded->channel, &code) == PENSTOCK_OK);
  CHILD(code == (threaded->works ? 0 : 13));
  CHILD(atomic_load(&threaded->counter) == before + threaded->works);
  penstock_channel_release(threaded->channel);
}

typedef struct waiting {
  penstock_channel *channel;
  pthread_t caller;
  atomic_bool waits, runs_elsewhere;
  latch entered, go;
} waiting;

static int32_t wait_in_function(penstock_hop *hop, void *user_data) {
  waiting *waiting = user_data;
  atomic_store(&waiting->runs_elsewhere, !pthread_equal(pthread_self(), waiting->caller));
  latch_signal(&waiting->entered);
  if (atomic_load(&waiting->waits)) latch_wait(&waiting->go, 1);
  return penstock_hop_next(hop) == PENSTOCK_OK ? PENSTOCK_NEXT : -1;
}

static void *call_as_caller(void *pointer) {
  waiting *waiting = pointer;
  waiting->caller = pthread_self();
  return call_once(waiting->channel);
}

static void call_without_wait(void *pointer) {
  waiting *waiting = pointer;
  atomic_store(&waiting->waits, false);
  CHILD(unary_code(waiting->channel, "child") == 0);
  penstock_channel_release(waiting->channel);
}

/* A function waits on the thread that makes its call: a fork goes through meanwhile, and only the parent goes on with it. */
TEST(fork_hooks_while_a_function_runs_on_its_callers_thread) {
  with_hooks();
  waiting waiting = {.channel = open_channel(), .waits = true, .entered = LATCH_INIT, .go = LATCH_INIT};
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_sync_interceptor sync = PENSTOCK_SYNC_INTERCEPTOR_INIT;
  penstock_interceptor_id id = 0;
  sync.intercept = wait_in_function;
  sync.user_data = &waiting;
  OK(penstock_sync_interceptor_table(&sync, &table, NULL));
  OK(penstock_channel_add_interceptor(waiting.channel, &table, 0, &id, NULL));
  pthread_t thread;
  pthread_create(&thread, NULL, call_as_caller, &waiting);
  latch_wait(&waiting.entered, 1);
  CHECK(!atomic_load(&waiting.runs_elsewhere));
  reap(fork_and(call_without_wait, &waiting));
  latch_signal(&waiting.go);
  pthread_join(thread, NULL);
  penstock_channel_release(waiting.channel);
}

TEST(fork_hooks_start_workers_anew) {
  with_hooks();
  threaded threaded = {.channel = open_channel(), .works = true};
  penstock_sync_interceptor sync = PENSTOCK_SYNC_INTERCEPTOR_INIT;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_interceptor_id id = 0;
  sync.intercept = pass;
  sync.user_data = &threaded.counter;
  OK(penstock_sync_interceptor_table(&sync, &table, NULL));
  OK(penstock_channel_add_interceptor(threaded.channel, &table, 0, &id, NULL));
  check_echo(threaded.channel);
  for (int i = 0; i < 3; i++) reap(fork_and(use_threads, &threaded));
  check_echo(threaded.channel);
  penstock_channel_release(threaded.channel);
}

static int32_t run_at_once(penstock_job job, void *argument, void *user_data) {
  (void)user_data;
  job(argument);
  return 0;
}

static void fork_with_executor(penstock_executor *executor, bool works) {
  with_hooks();
  threaded threaded = {.channel = open_channel(), .works = works};
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_interceptor_id id = 0;
  table.on_start = count_start;
  table.user_data = &threaded.counter;
  table.outbound_executor = executor;
  OK(penstock_channel_add_interceptor(threaded.channel, &table, 0, &id, NULL));
  check_echo(threaded.channel);
  for (int i = 0; i < 3; i++) reap(fork_and(use_threads, &threaded));
  check_echo(threaded.channel);
  penstock_channel_release(threaded.channel);
  penstock_executor_release(executor);
}

TEST(fork_hooks_start_a_serial_executor_anew) {
  penstock_executor *executor = NULL;
  REQUIRE_OK(penstock_executor_new_serial(&executor));
  CHECK_RESULT(penstock_executor_survives_fork(executor), PENSTOCK_E_STATE);
  fork_with_executor(executor, true);
}
TEST(fork_hooks_keep_an_executor_that_survives) {
  penstock_executor *executor = NULL;
  REQUIRE_OK(penstock_executor_new(run_at_once, NULL, NULL, &executor));
  OK(penstock_executor_survives_fork(executor));
  fork_with_executor(executor, true);
}
TEST(fork_hooks_fail_the_calls_of_an_executor_that_does_not_survive) {
  penstock_executor *executor = NULL;
  REQUIRE_OK(penstock_executor_new(run_at_once, NULL, NULL, &executor));
  fork_with_executor(executor, false);
}

/* ---- Several forks ---- */

static void fork_again(void *pointer) {
  load *load = pointer;
  int32_t code = -1;
  CHILD(unary_result(load->channels[0], &code) == PENSTOCK_OK && code == 0);
  pid_t child = fork_and(call_both, load);
  int status = -1;
  CHILD(waitpid(child, &status, 0) == child && status == 0);
  call_both(load);
}

TEST(fork_hooks_work_for_several_runtimes_and_for_grandchildren) {
  with_hooks();
  penstock_runtime *runtime = new_runtime("{}"), *host = new_runtime("{\"mode\": \"host\"}");
  load load = {.channels = {open_channel_on(runtime), open_channel_on(host)}};
  for (int i = 0; i < 2; i++) add_counter(load.channels[i], &load.counter);
  reap(fork_and(fork_again, &load));
  for (int i = 0; i < 2; i++) check_echo(load.channels[i]);
  reap(fork_and(fork_again, &load));
  for (int i = 0; i < 2; i++) penstock_channel_release(load.channels[i]);
  penstock_runtime_release(runtime);
  penstock_runtime_release(host);
}

/* ---- Runtimes that begin and end while another thread forks ---- */

static void *make_runtimes(void *pointer) {
  load *load = pointer;
  for (int i = 0; !atomic_load(&load->over); i++) {
    penstock_runtime *runtime = new_runtime(i % 2 ? "{\"caller_drives\": false}" : "{\"loops\": 2}");
    penstock_channel *channel = open_channel_on(runtime);
    check_echo(channel);
    penstock_channel_release(channel);
    OK(penstock_runtime_shutdown(runtime, 20000));
    penstock_runtime_release(runtime);
    atomic_fetch_add(&load->counter, 1);
  }
  return NULL;
}

static void make_one_in_child(void *pointer) {
  load *load = pointer;
  int32_t code = -1;
  CHILD(unary_result(load->channels[0], &code) == PENSTOCK_OK && code == 0);
  penstock_runtime *runtime = NULL;
  penstock_channel *channel = NULL;
  CHILD(penstock_runtime_new("{\"loops\": 2}", &runtime, NULL) == PENSTOCK_OK);
  CHILD(penstock_channel_new_on(runtime, peer_address(), "{\"tls\": false}", &channel, NULL) == PENSTOCK_OK);
  code = -1;
  CHILD(unary_result(channel, &code) == PENSTOCK_OK && code == 0);
  penstock_channel_release(channel);
  CHILD(penstock_runtime_shutdown(runtime, 20000) == PENSTOCK_OK);
  penstock_runtime_release(runtime);
}

/* Channels and runtimes of a child work whatever other threads of the parent were making when it forked, and the
 * parent's go on. */
TEST(fork_hooks_while_runtimes_begin_and_end) {
  with_hooks();
  load load = {.channels = {open_channel(), NULL}};
  check_echo(load.channels[0]);
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, make_runtimes, &load);
  for (int i = 0; i < test_rounds(60); i++) reap(fork_and(make_one_in_child, &load));
  EVENTUALLY(atomic_load(&load.counter) >= 2);
  atomic_store(&load.over, true);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  check_echo(load.channels[0]);
  penstock_channel_release(load.channels[0]);
}

/* Each hook runs twice around one fork, as if both a program and a binding had installed them: once by pthread_atfork,
 * and once because the test calls it. */
TEST(fork_hooks_may_be_installed_twice) {
  with_hooks();
  penstock_channel *channel = open_channel();
  load load = {.channels = {channel, penstock_channel_retain(channel)}};
  add_counter(channel, &load.counter);
  check_echo(channel);
  penstock_fork_prepare();
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    alarm((unsigned)(test_patience_ms() / 1000));
    penstock_fork_child();
    call_both(&load);
    fflush(stdout);
    _exit(child_failures ? 1 : 0);
  }
  penstock_fork_parent();
  reap(child);
  /* The hooks change nothing when there is no fork. */
  penstock_fork_prepare();
  penstock_fork_parent();
  penstock_fork_parent();
  penstock_fork_child();
  check_echo(channel);
  penstock_channel_release(channel);
  penstock_channel_release(channel);
}
