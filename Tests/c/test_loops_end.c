/* runtime.h, "loops": loops that hang, that can't be made, that lose their descriptors, and that end. */
#include "loops.h"

#include <errno.h>
#include <sys/resource.h>
#include <unistd.h>

/* ---- The end ---- */

static void cancelled(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  CHECK_INT(penstock_reply_code(reply), 1);
  CHECK_HAS(penstock_reply_status_json(reply), "runtime shut down");
  latch_signal(user_data);
}

TEST(loops_shut_down_with_calls_on_all) {
  for (int round = 0; round < test_rounds(20); round++) {
    int before = threads_named("penstock");
    crowd crowd;
    crowd_open(&crowd, round % 2 ? "{\"loops\": 3}" : "{\"loops\": 3, \"caller_drives\": false}");
    crowd.ends = true;
    probe all;
    probe_init(&all, "all");
    probe_add_to_runtime(&all, crowd.runtime, 0);
    latch ended = LATCH_INIT;
    penstock_call *calls[CHANNELS];
    for (int i = 0; i < CHANNELS; i++) {
      penstock_call_callbacks callbacks = PENSTOCK_CALL_CALLBACKS_INIT;
      callbacks.user_data = &ended;
      callbacks.on_reply = cancelled;
      OK(penstock_channel_call(crowd.channels[i], BIDI, PENSTOCK_KIND_BIDI, NULL, &callbacks, &calls[i], NULL));
    }
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, keep_calling, &crowd);
    EVENTUALLY(atomic_load(&crowd.calls) >= 30);
    OK(penstock_runtime_shutdown(crowd.runtime, -1));
    /* Everything has ended: calls, callbacks, interceptors, threads. */
    CHECK_INT(latch_count(&ended), CHANNELS);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    probe_wait_finalized(&all);
    EVENTUALLY(threads_named("penstock") <= before);
    CHECK_RESULT(penstock_runtime_shutdown(crowd.runtime, -1), PENSTOCK_E_ALREADY);
    penstock_channel *none = NULL;
    penstock_reply *reply = NULL;
    for (int i = 0; i < CHANNELS; i++) {
      CHECK_RESULT(penstock_channel_unary(crowd.channels[i], UNARY, "x", 1, NULL, &reply, NULL), PENSTOCK_E_CLOSED);
      penstock_call_release(calls[i]);
    }
    CHECK_RESULT(penstock_channel_new_on(crowd.runtime, peer_address(), "{\"tls\": false}", &none, NULL),
                 PENSTOCK_E_CLOSED);
    crowd_close(&crowd);
  }
}

typedef struct gate {
  latch entered, open;
} gate;

static int32_t hang(probe *self, penstock_hop *hop, int32_t event) {
  gate *gate = self->context;
  (void)hop;
  if (event == PENSTOCK_EVENT_START) {
    latch_signal(&gate->entered);
    latch_wait(&gate->open, 1);
  }
  return PENSTOCK_NEXT;
}

/* One loop hangs in a callback: the others go on, a snapshot names the callback, and a shutdown waits for it. */
static void hang_on(int at) {
  crowd crowd;
  crowd_open(&crowd, "{\"loops\": 3, \"caller_drives\": false}");
  gate gate = {.entered = LATCH_INIT, .open = LATCH_INIT};
  probe stuck;
  probe_init_with(&stuck, "stuck", hang, &gate);
  probe_add(&stuck, crowd.channels[at], 0);
  latch ended = LATCH_INIT;
  penstock_call *call = start_callback_call(crowd.channels[at], BIDI, PENSTOCK_KIND_BIDI, &ended);
  latch_wait(&gate.entered, 1);
  penstock_call *other = start_call(crowd.channels[(at + 1) % LOOPS], BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_call_send(other, "x", 1));
  CHECK_MESSAGE(other, "x");
  check_echo(crowd.channels[(at + 2) % LOOPS]);
  char *json = NULL, expected[64];
  OK(penstock_runtime_snapshot_json(crowd.runtime, 150, &json));
  CHECK_HAS(json, "{\"complete\":false,\"running\":{\"interceptor\":\"stuck\",\"event\":\"start\"");
  snprintf(expected, sizeof(expected), "\"id\":%llu", (unsigned long long)penstock_call_id(other));
  CHECK_HAS(json, expected);
  penstock_free(json);
  CHECK_RESULT(penstock_runtime_shutdown(crowd.runtime, 50), PENSTOCK_E_TIMEOUT);
  CHECK_FINISH(other, 1);
  latch_signal(&gate.open);
  /* The first shutdown has timed out, but goes on: so it may be complete before the second one. */
  penstock_result result = penstock_runtime_shutdown(crowd.runtime, -1);
  CHECK(result == PENSTOCK_OK || result == PENSTOCK_E_ALREADY);
  latch_wait(&ended, 1);
  CHECK_RESULT(penstock_runtime_shutdown(crowd.runtime, 0), PENSTOCK_E_ALREADY);
  penstock_call_release(call);
  penstock_call_release(other);
  crowd_close(&crowd);
  probe_wait_finalized(&stuck);
}
TEST(loops_go_on_while_one_hangs) {
  for (int i = 0; i < LOOPS; i++) hang_on(i);
}

TEST(loops_list_their_calls) {
  crowd crowd;
  crowd_open(&crowd, "{\"loops\": 3}");
  penstock_call *calls[CHANNELS];
  for (int i = 0; i < CHANNELS; i++) {
    calls[i] = start_call(crowd.channels[i], BIDI, PENSTOCK_KIND_BIDI);
    OK(penstock_call_send(calls[i], "x", 1));
    CHECK_MESSAGE(calls[i], "x");
  }
  char *json = NULL, expected[64];
  OK(penstock_runtime_snapshot_json(crowd.runtime, 20000, &json));
  CHECK_HAS(json, "{\"complete\":true,\"running\":null,\"calls\":[{");
  for (int i = 0; i < CHANNELS; i++) {
    snprintf(expected, sizeof(expected), "\"id\":%llu,", (unsigned long long)penstock_call_id(calls[i]));
    CHECK_HAS(json, expected);
    penstock_call_release(calls[i]);
  }
  penstock_free(json);
  crowd_close(&crowd);
}

/* Without a shutdown the runtime ends when its channels and calls are gone. */
TEST(loops_end_by_themselves) {
  int threads = threads_named("penstock"), before = open_descriptors();
  for (int i = 0; i < test_rounds(20); i++) {
    crowd crowd;
    crowd_open(&crowd, "{\"loops\": 3}");
    probe all;
    probe_init(&all, "all");
    probe_add_to_runtime(&all, crowd.runtime, 0);
    latch ended = LATCH_INIT;
    penstock_call *calls[CHANNELS];
    for (int j = 0; j < CHANNELS; j++) {
      calls[j] = start_callback_call(crowd.channels[j], BIDI, PENSTOCK_KIND_BIDI, &ended);
    }
    crowd_close(&crowd);
    for (int j = 0; j < CHANNELS; j++) {
      OK(penstock_call_half_close(calls[j]));
      penstock_call_release(calls[j]);
    }
    latch_wait(&ended, CHANNELS);
    probe_wait_finalized(&all);
  }
  EVENTUALLY(threads_named("penstock") <= threads);
  EVENTUALLY(open_descriptors() <= before);
}

/* ---- Descriptors ---- */

/* A runtime of which only some loops can be made is not made, and leaves nothing behind. */
TEST(loops_are_made_all_or_none) {
  (void)peer_address();
  int threads = threads_named("penstock"), before = open_descriptors();
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  bool is_made = false;
  for (rlim_t more = 0; more < 40 && !is_made; more++) {
    struct rlimit few = {(rlim_t)before + more, limit.rlim_max};
    setrlimit(RLIMIT_NOFILE, &few);
    penstock_runtime *runtime = NULL;
    penstock_error *error = NULL;
    penstock_result result = penstock_runtime_new("{\"loops\": 3}", &runtime, &error);
    setrlimit(RLIMIT_NOFILE, &limit);
    is_made = result == PENSTOCK_OK;
    if (!is_made) {
      CHECK_HAS(penstock_error_message(error), strerror(EMFILE));
      CHECK_ERROR(error, PENSTOCK_E_SYSTEM, NULL, " (errno 24)");
      CHECK(runtime == NULL);
    }
    penstock_runtime_release(runtime);
    EVENTUALLY(threads_named("penstock") <= threads);
    EVENTUALLY(open_descriptors() <= before);
  }
  CHECK(is_made);
}

/* The newest epoll instance of this process. */
static int newest_epoll(void) {
  int found = -1;
  for (int fd = 0; fd < 1024; fd++) {
    char path[32], name[48] = "";
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    if (readlink(path, name, sizeof(name) - 1) > 0 && strstr(name, "eventpoll")) found = fd;
  }
  return found;
}

/* Makes a call; `code` is its status code, -1 if the channel is closed. */
static bool ends_with(penstock_channel *channel, int32_t *code) {
  penstock_reply *reply = NULL;
  penstock_result result = penstock_channel_unary(channel, UNARY, "ping", 4, NULL, &reply, NULL);
  CHECK(result == PENSTOCK_OK || result == PENSTOCK_E_CLOSED);
  *code = result == PENSTOCK_OK ? penstock_reply_code(reply) : -1;
  penstock_reply_release(reply);
  return *code <= 0;
}

/* The test closes the descriptors of one loop: the channels of that loop fail, and the next channels are put on the
 * other loops. */
TEST(loops_that_are_left_go_on) {
  (void)peer_address();
  crowd crowd;
  memset(&crowd, 0, sizeof(crowd));
  crowd.runtime = new_runtime("{\"loops\": 3, \"caller_drives\": false}");
  int lost = newest_epoll(), ends[2];
  /* The channels are made first, so that each loop has some. A loop that has noticed the loss of its descriptor gets no
   * further channel. */
  for (int i = 0; i < CHANNELS; i++) crowd.channels[i] = open_channel_on(crowd.runtime);
  CHECK(pipe(ends) == 0 && dup2(ends[0], lost) == lost);
  int failed = 0;
  for (int i = 0; i < CHANNELS; i++) {
    int32_t code = 0;
    if (ends_with(crowd.channels[i], &code) && code == 0) continue;
    failed++;
    CHECK(code == 14 || code == -1);
    EVENTUALLY(ends_with(crowd.channels[i], &code));
    CHECK_INT(code, -1);
  }
  CHECK_INT(failed, CHANNELS / LOOPS);
  for (int i = 0; i < 20; i++) {
    penstock_channel *next = open_channel_on(crowd.runtime);
    check_echo(next);
    penstock_channel_release(next);
  }
  OK(penstock_runtime_shutdown(crowd.runtime, 20000));
  crowd_close(&crowd);
  /* The descriptor number belonged to the loop, and belongs to the pipe now: the library has not closed it. */
  CHECK(close(lost) == 0);
  close(ends[0]);
  close(ends[1]);
}
