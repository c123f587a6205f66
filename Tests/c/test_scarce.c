/* A process whose address space is nearly used up: calls fail with an error or RESOURCE_EXHAUSTED, the process lives on,
 * and works again when there is memory. Each round is a process of its own, with another amount of memory left. Only a
 * process that uses up the reserve as well ends, after its hook. */
#include "calls.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 20, CALLS = 4000, SENDS = 20000 };

static bool is_expected(penstock_result result) {
  return result == PENSTOCK_OK || result == PENSTOCK_E_NO_MEMORY || result == PENSTOCK_E_SYSTEM ||
         result == PENSTOCK_E_WOULD_BLOCK || result == PENSTOCK_E_GONE || result == PENSTOCK_E_END;
}
#define EXPECTED(call) check_expected(__LINE__, #call, (call))
static penstock_result check_expected(int line, const char *what, penstock_result result) {
  if (!is_expected(result)) test_failed(__FILE__, line, "%s gave %s", what, penstock_result_name(result));
  return result;
}

/* Makes the stack as large as it will be: later it could not grow. */
static void grow_stack(void) {
  volatile char room[512 << 10];
  for (size_t i = 0; i < sizeof(room); i += 4096) room[i] = 1;
}

/* Leaves the process `bytes` more of address space than it has now. */
static void leave_only(size_t bytes) {
  size_t pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%zu", &pages) != 1) abort();
  fclose(file);
  struct rlimit limit;
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = pages * (size_t)sysconf(_SC_PAGESIZE) + bytes;
  if (setrlimit(RLIMIT_AS, &limit) != 0) abort();
}

static void leave_all(void) {
  struct rlimit limit;
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_AS, &limit) != 0) abort();
}

/* The status of a call that lacked memory, or whose connection did. */
static void check_end(penstock_call *call) {
  penstock_reply *reply = NULL;
  if (EXPECTED(penstock_call_wait(call, &reply)) != PENSTOCK_OK) return;
  int32_t code = penstock_reply_code(reply);
  if (code != PENSTOCK_STATUS_OK && code != PENSTOCK_STATUS_RESOURCE_EXHAUSTED && code != PENSTOCK_STATUS_UNAVAILABLE &&
      code != PENSTOCK_STATUS_CANCELLED) {
    test_failed(__FILE__, __LINE__, "status %s", penstock_reply_status_json(reply));
  }
  penstock_reply_release(reply);
}

static penstock_call *calls[CALLS];
static bool waits[CALLS];

/* As many calls at once as there is memory for. */
static void many_calls(penstock_channel *channel, penstock_call_options *options) {
  int count = 0;
  while (count < CALLS && EXPECTED(penstock_channel_call(channel, UNARY, PENSTOCK_KIND_UNARY, options, NULL,
                                                         &calls[count], NULL)) == PENSTOCK_OK) {
    penstock_result sent = EXPECTED(penstock_call_send(calls[count], "ping", 4));
    waits[count] = count % 2 && sent == PENSTOCK_OK;
    if (waits[count]) EXPECTED(penstock_call_half_close(calls[count]));
    count++;
  }
  for (int i = 0; i < count; i++) {
    if (!waits[i]) EXPECTED(penstock_call_cancel(calls[i], "enough"));
    check_end(calls[i]);
    penstock_call_release(calls[i]);
  }
}

/* As many calls at once as there is memory for, whose answers come together, when memory is low. */
static void many_answers(penstock_channel *channel, penstock_call_options *options) {
  int count = 0;
  while (count < CALLS && EXPECTED(penstock_channel_call(channel, UNARY, PENSTOCK_KIND_UNARY, options, NULL,
                                                         &calls[count], NULL)) == PENSTOCK_OK) {
    if (EXPECTED(penstock_call_send(calls[count], "ping", 4)) == PENSTOCK_OK) {
      EXPECTED(penstock_call_half_close(calls[count]));
    } else {
      EXPECTED(penstock_call_cancel(calls[count], "not sent"));
    }
    count++;
  }
  for (int i = 0; i < count; i++) check_end(calls[i]);
  for (int i = 0; i < count; i++) penstock_call_release(calls[i]);
}

/* Small messages, which the caller reads only after it has sent as many as there is memory for. */
static void many_messages(penstock_channel *channel, penstock_call_options *options) {
  penstock_call *call = NULL;
  if (EXPECTED(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, options, NULL, &call, NULL)) != PENSTOCK_OK)
    return;
  for (int i = 0; i < SENDS; i++) {
    if (EXPECTED(penstock_call_try_send(call, "ping", 4)) != PENSTOCK_OK) break;
  }
  EXPECTED(penstock_call_half_close(call));
  penstock_message *message = NULL;
  while (EXPECTED(penstock_call_receive(call, &message)) == PENSTOCK_OK) penstock_message_release(message);
  check_end(call);
  penstock_call_release(call);
}

/* Large messages in both directions. */
static void large_messages(penstock_channel *channel, penstock_call_options *options) {
  static const size_t size = 1 << 20;
  char *text = malloc(size);
  if (!text) return;
  memset(text, 'x', size);
  for (int i = 0; i < 8; i++) {
    calls[i] = NULL;
    if (EXPECTED(penstock_channel_call(channel, UNARY, PENSTOCK_KIND_UNARY, options, NULL, &calls[i], NULL)) ==
        PENSTOCK_OK) {
      if (EXPECTED(penstock_call_try_send(calls[i], text, size)) == PENSTOCK_OK) {
        EXPECTED(penstock_call_half_close(calls[i]));
      } else {
        EXPECTED(penstock_call_cancel(calls[i], "not sent"));
      }
    }
  }
  for (int i = 0; i < 8; i++) {
    if (calls[i]) check_end(calls[i]);
    penstock_call_release(calls[i]);
  }
  free(text);
}

static void say_where(size_t bytes, void *user_data) {
  (void)user_data;
  char text[64];
  int length = snprintf(text, sizeof(text), "  no memory for %zu bytes\n", bytes);
  if (write(STDOUT_FILENO, text, (size_t)length) < 0) abort();
}

/* Waits until a child has ended, and gives its status. */
static int status_of(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

/* Runs `work` in a process that has `bytes` left; returns its exit status or the signal that has ended it. */
static int run_scarce(const char *address, size_t bytes, const char *json,
                      void (*work)(penstock_channel *, penstock_call_options *)) {
  fflush(stdout);
  int before = test_failures();
  pid_t child = fork();
  if (child == 0) {
    penstock_channel *channel = NULL, *later = NULL;
    OK(penstock_channel_new(address, "{\"tls\": false}", &channel, NULL));
    penstock_call_options *options = options_of(json);
    check_echo(channel);
    penstock_set_out_of_memory_hook(say_where, NULL);
    grow_stack();
    leave_only(bytes);
    work(channel, options);
    leave_all();
    OK(penstock_channel_new(address, "{\"tls\": false}", &later, NULL));
    check_echo(later);
    EVENTUALLY(unary_code(channel, "ping") == PENSTOCK_STATUS_OK);
    penstock_channel_release(later);
    penstock_channel_release(channel);
    penstock_call_options_release(options);
    fflush(stdout);
    _exit(test_failures() > before ? 1 : 0);
  }
  int status = status_of(child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

static void run_rounds(const char *json, void (*work)(penstock_channel *, penstock_call_options *)) {
  const char *address = peer_address();
  size_t bytes = 16 << 10;
  for (int i = 0; i < ROUNDS; i++, bytes += bytes * 2 / 5) {
    int status = run_scarce(address, bytes, json, work);
    if (status != 0)
      test_failed(__FILE__, __LINE__, "with %zu KiB left the process ended with %d", bytes >> 10, status);
  }
}

#define LARGE_BUFFER "{\"send_buffer_bytes\": 67108864}"
TEST(scarce_memory_for_many_calls) { run_rounds(LARGE_BUFFER, many_calls); }
TEST(scarce_memory_for_many_answers) { run_rounds("{\"metadata\": {\"x-delay-ms\": \"200\"}}", many_answers); }
TEST(scarce_memory_for_many_small_messages) { run_rounds(LARGE_BUFFER, many_messages); }
TEST(scarce_memory_for_large_messages) { run_rounds(LARGE_BUFFER, large_messages); }

/* ---- No memory at all ---- */

/* The report of a process that had no memory left, written before its end. */
typedef struct last_words {
  int count;
  size_t bytes;
} last_words;

static void write_down(size_t bytes, void *user_data) {
  last_words words = {1, bytes};
  if (write(*(int *)user_data, &words, sizeof(words)) != sizeof(words)) _exit(2);
}

static void write_down_and_exit(size_t bytes, void *user_data) {
  write_down(bytes, user_data);
  _exit(3);
}

static int32_t encode(void *user_data, const char *method, void *object, penstock_buffer *bytes) {
  (void)user_data, (void)method, (void)object, (void)bytes;
  return 1;
}

static int32_t decode(void *user_data, const char *method, const void *data, size_t length, void **object) {
  (void)user_data, (void)method, (void)data, (void)length, (void)object;
  return 1;
}

static void free_none(void *user_data, void *object) { (void)user_data, (void)object; }

/* Makes codecs, also when memory is low, until there is none left, not even in the reserve. */
static void use_up(void) {
  penstock_codec_functions functions = PENSTOCK_CODEC_FUNCTIONS_INIT;
  functions.encode = encode;
  functions.decode = decode;
  functions.free = free_none;
  penstock_codec *codec = NULL;
  while (penstock_codec_new(&functions, &codec, NULL) == PENSTOCK_OK) continue;
}

/* Uses up the memory of a process with this hook, unless it `takes_back` the hook before; returns how the process
 * ended, and gives what the hook wrote. */
static int run_without(penstock_out_of_memory_hook hook, bool takes_back, last_words *words) {
  int ends[2];
  if (pipe(ends) != 0) abort();
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    alarm((unsigned)(test_patience_ms() / 1000));
    check_echo(open_channel());
    penstock_set_out_of_memory_hook(hook, &ends[1]);
    if (takes_back) penstock_set_out_of_memory_hook(NULL, NULL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    grow_stack();
    leave_only(0);
    use_up();
    _exit(1);
  }
  close(ends[1]);
  *words = (last_words){0, 0};
  if (read(ends[0], words, sizeof(*words)) < 0) abort();
  close(ends[0]);
  return status_of(child);
}

static bool was_trap(int status) {
  return WIFSIGNALED(status) && (WTERMSIG(status) == SIGILL || WTERMSIG(status) == SIGTRAP);
}

TEST(hook_is_called_before_the_process_ends) {
  last_words words;
  peer_address();
  CHECK(was_trap(run_without(write_down, false, &words)));
  CHECK_INT(words.count, 1);
  CHECK(words.bytes > 0 && words.bytes < 4096);
}

TEST(hook_may_end_the_process_itself) {
  last_words words;
  peer_address();
  int status = run_without(write_down_and_exit, false, &words);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
  CHECK_INT(words.count, 1);
}

TEST(hook_that_was_taken_back_is_not_called) {
  last_words words;
  peer_address();
  CHECK(was_trap(run_without(write_down, true, &words)));
  CHECK_INT(words.count, 0);
}
