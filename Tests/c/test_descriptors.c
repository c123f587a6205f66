/* A program closes descriptors that are not its own: calls end, no loop spins, and the library does not close, write to
 * or poll a number that belongs to another file by then. */
#include "calls.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 1024 };

/* The system's name for each open descriptor; "": closed. */
typedef struct table {
  char names[MOST][48];
} table;

static table descriptors(void) {
  (void)peer_address(); /* makes sure that the pipes to the peer exist */
  table all = {{""}};
  for (int fd = 0; fd < MOST; fd++) {
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    ssize_t length = readlink(path, all.names[fd], sizeof(all.names[fd]) - 1);
    all.names[fd][length < 0 ? 0 : length] = 0;
  }
  return all;
}

/* Closes the descriptors that have come since `before` and whose kind is in `kinds`, and puts ends of pipes in their
 * places. */
static table replace_since(int line, const table *before, const char *kinds) {
  table now = descriptors();
  int count = 0;
  for (int fd = 3; fd < MOST; fd++) {
    if (!now.names[fd][0] || strcmp(now.names[fd], before->names[fd]) == 0) continue;
    char kind[32] = "";
    if (strncmp(now.names[fd], "socket:", 7) == 0)
      strcpy(kind, "socket");
    else
      sscanf(now.names[fd], "anon_inode:[%31[a-z]", kind);
    if (!kind[0] || !strstr(kinds, kind)) continue;
    int ends[2];
    if (pipe(ends) != 0 || dup2(ends[0], fd) != fd) test_failed(__FILE__, line, "no pipe");
    close(ends[0]);
    close(ends[1]);
    count++;
  }
  if (count == 0) test_failed(__FILE__, line, "no descriptor of the kind: %s", kinds);
  return descriptors();
}

/* Checks that each of these descriptor numbers still belongs to its pipe; then closes the pipes. */
static void check_untouched(int line, const table *before, const table *expected) {
  table now = descriptors();
  for (int fd = 3; fd < MOST; fd++) {
    if (strncmp(expected->names[fd], "pipe:", 5) != 0 || strcmp(before->names[fd], expected->names[fd]) == 0) continue;
    if (check_str(__FILE__, line, "the file of another", now.names[fd], expected->names[fd])) close(fd);
  }
}

static int64_t cpu_ms(void) {
  struct timespec used;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return (int64_t)used.tv_sec * 1000 + used.tv_nsec / 1000000;
}

static void check_calm(int line) {
  int64_t used = cpu_ms();
  for (int i = 0; i < 300; i++) test_pause();
  used = cpu_ms() - used;
  if (used > 150 * test_slow()) test_failed(__FILE__, line, "%lld ms of CPU time in 300 ms", (long long)used);
}

static void check_lost(int line, penstock_reply *reply) {
  check_int(__FILE__, line, "status code", penstock_reply_code(reply), 14);
  check_has(__FILE__, line, "status", penstock_reply_status_json(reply),
            "something in the program closed its descriptors");
  penstock_reply_release(reply);
}

/* In a blocking call the thread that waits drives the loop, and notices that the loop's descriptors are gone. */
TEST(descriptors_closed_between_blocking_calls) {
  table before = descriptors();
  penstock_runtime *runtime = new_runtime("{\"linger_us\": 1000000}");
  penstock_channel *channel = open_channel_on(runtime);
  check_echo(channel);
  table with = replace_since(__LINE__, &before, "eventpoll eventfd");
  penstock_reply *reply = NULL;
  if (OK(penstock_channel_unary(channel, UNARY, "x", 1, NULL, &reply, NULL))) check_lost(__LINE__, reply);
  /* The runtime has ended: later functions return an error that says so. */
  penstock_error *error = NULL;
  CHECK_RESULT(penstock_channel_unary(channel, UNARY, "x", 1, NULL, &reply, &error), PENSTOCK_E_CLOSED);
  penstock_error_release(error);
  penstock_channel *other = NULL;
  CHECK_RESULT(penstock_channel_new_on(runtime, peer_address(), NULL, &other, NULL), PENSTOCK_E_CLOSED);
  check_calm(__LINE__);
  penstock_channel_release(channel);
  penstock_runtime_release(runtime);
  check_untouched(__LINE__, &before, &with);
}

/* The default runtime has ended, too: the next channel gets a new one. */
TEST(descriptors_of_the_default_runtime_closed) {
  table before = descriptors();
  penstock_channel *channel = open_channel();
  check_echo(channel);
  table with = replace_since(__LINE__, &before, "eventpoll eventfd socket");
  penstock_reply *reply = NULL;
  /* Either the runtime's own thread or the calling thread may be the first to notice that the descriptors are gone. If it
   * is the calling thread, a new connection may be the first to meet them. */
  if (penstock_channel_unary(channel, UNARY, "x", 1, NULL, &reply, NULL) == PENSTOCK_OK) {
    CHECK_INT(penstock_reply_code(reply), 14);
    penstock_reply_release(reply);
  }
  penstock_channel *second = open_channel();
  check_echo(second);
  penstock_channel_release(channel);
  check_echo(second);
  penstock_channel_release(second);
  check_untouched(__LINE__, &before, &with);
}

typedef struct outcome {
  latch ended, headers;
  int32_t code;
  char text[256];
} outcome;

static void note_headers(penstock_call *call, const penstock_metadata *headers, void *user_data) {
  (void)call, (void)headers;
  latch_signal(&((outcome *)user_data)->headers);
}

static void note_end(penstock_call *call, penstock_reply *reply, void *user_data) {
  (void)call;
  outcome *it = user_data;
  it->code = penstock_reply_code(reply);
  snprintf(it->text, sizeof(it->text), "%s", penstock_reply_status_json(reply));
  latch_signal(&it->ended);
}

static penstock_call *start_noted(penstock_channel *channel, const char *options_json, outcome *it) {
  outcome fresh = {LATCH_INIT, LATCH_INIT, -1, ""};
  *it = fresh;
  penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
  table.user_data = it;
  table.on_headers = note_headers;
  table.on_reply = note_end;
  penstock_call *call = NULL;
  penstock_call_options *options = options_of(options_json);
  OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, options, &table, &call, NULL));
  penstock_call_options_release(options);
  OK(penstock_call_try_send(call, "x", 1));
  return call;
}

static void check_outcome(int line, const outcome *it) {
  check_int(__FILE__, line, "status code", it->code, 14);
  check_has(__FILE__, line, "status", it->text, "something in the program closed its descriptors");
}

/* The runtime's own thread sleeps, and nothing wakes it: it checks its descriptors from time to time. */
TEST(descriptors_closed_while_the_thread_sleeps) {
  static const char *const kinds[] = {"eventpoll eventfd socket", "eventpoll", "eventfd"};
  enum { COUNT = 3 };
  table before[COUNT], with[COUNT];
  outcome outcomes[COUNT];
  penstock_runtime *runtimes[COUNT];
  penstock_channel *channels[COUNT];
  penstock_call *calls[COUNT];
  for (int i = 0; i < COUNT; i++) {
    before[i] = descriptors();
    runtimes[i] = new_runtime(NULL);
    channels[i] = open_channel_on(runtimes[i]);
    calls[i] = start_noted(channels[i], NULL, &outcomes[i]);
    OK(penstock_call_demand(calls[i], 1));
    latch_wait(&outcomes[i].headers, 1);
    with[i] = replace_since(__LINE__, &before[i], kinds[i]);
  }
  for (int i = 0; i < COUNT; i++) {
    latch_wait(&outcomes[i].ended, 1);
    check_outcome(__LINE__, &outcomes[i]);
  }
  check_calm(__LINE__);
  for (int i = 0; i < COUNT; i++) {
    penstock_call_release(calls[i]);
    penstock_channel_release(channels[i]);
    penstock_runtime_release(runtimes[i]);
  }
  for (int i = COUNT - 1; i >= 0; i--) check_untouched(__LINE__, &before[i], &with[i]);
}

/* A call that begins now can't wake the thread of its runtime: it ends when the thread has looked by itself. */
TEST(call_on_a_runtime_whose_wake_descriptor_is_closed) {
  table before = descriptors();
  penstock_runtime *runtime = new_runtime(NULL);
  penstock_channel *channel = open_channel_on(runtime);
  outcome first, second;
  penstock_call *call = start_noted(channel, NULL, &first);
  OK(penstock_call_demand(call, 1));
  latch_wait(&first.headers, 1);
  table with = replace_since(__LINE__, &before, "eventfd");
  penstock_call *late = start_noted(channel, NULL, &second);
  latch_wait(&first.ended, 1);
  check_outcome(__LINE__, &first);
  latch_wait(&second.ended, 1);
  check_outcome(__LINE__, &second);
  penstock_call_release(call);
  penstock_call_release(late);
  penstock_channel_release(channel);
  penstock_runtime_release(runtime);
  check_untouched(__LINE__, &before, &with);
}

/* The host program polls: the result says that the runtime has ended. */
TEST(descriptors_of_a_host_runtime_closed) {
  static const char *const kinds[] = {"eventpoll eventfd timerfd socket", "eventpoll", "eventfd"};
  for (int i = 0; i < 3; i++) {
    table before = descriptors();
    penstock_runtime *runtime = new_runtime("{\"mode\": \"host\"}");
    penstock_channel *channel = open_channel_on(runtime);
    outcome outcome;
    penstock_call *call = start_noted(channel, NULL, &outcome);
    for (int64_t until = test_now_ms() + 20000; !latch_count(&outcome.headers) && test_now_ms() < until;) {
      penstock_runtime_poll(runtime, 100);
    }
    table with = replace_since(__LINE__, &before, kinds[i]);
    OK(penstock_call_try_send(call, "y", 1));
    penstock_result result = PENSTOCK_OK;
    for (int64_t until = test_now_ms() + 20000; result != PENSTOCK_E_CLOSED && test_now_ms() < until;) {
      result = penstock_runtime_poll(runtime, 100);
    }
    CHECK_RESULT(result, PENSTOCK_E_CLOSED);
    latch_wait(&outcome.ended, 1);
    check_outcome(__LINE__, &outcome);
    int fd = -1;
    CHECK_RESULT(penstock_runtime_fd(runtime, &fd), PENSTOCK_E_CLOSED);
    penstock_call_release(call);
    penstock_channel_release(channel);
    penstock_runtime_release(runtime);
    check_untouched(__LINE__, &before, &with);
  }
}

/* Without the timer's descriptor the host program would not know when to poll for a deadline: the runtime ends. */
TEST(timer_of_a_host_runtime_closed) {
  table before = descriptors();
  penstock_runtime *runtime = new_runtime("{\"mode\": \"host\"}");
  penstock_channel *channel = open_channel_on(runtime);
  outcome outcome;
  int fd = -1;
  REQUIRE_OK(penstock_runtime_fd(runtime, &fd));
  table with = replace_since(__LINE__, &before, "timerfd");
  penstock_call *call = start_noted(channel, "{\"deadline_ms\": 60000}", &outcome);
  penstock_result result = PENSTOCK_OK;
  while (result == PENSTOCK_OK) {
    struct pollfd ready = {fd, POLLIN, 0};
    if (!CHECK_INT(poll(&ready, 1, 20000), 1)) break;
    result = penstock_runtime_poll(runtime, 0);
  }
  CHECK_RESULT(result, PENSTOCK_E_CLOSED);
  latch_wait(&outcome.ended, 1);
  check_outcome(__LINE__, &outcome);
  penstock_call_release(call);
  penstock_channel_release(channel);
  penstock_runtime_release(runtime);
  check_untouched(__LINE__, &before, &with);
}
