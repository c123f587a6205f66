/* Runs a scenario again and again: in each run one more allocation of the C side succeeds before one is refused
 * (refusal.c), until none is refused. After each such run the scenario runs once more without refusals. Each run has
 * its own thread, so the memory that OpenSSL keeps for a thread is freed with it.
 *
 *   failing PEER TLS_PEER CERTIFICATES SCENARIO FROM EACH STEP ROW
 *
 * From the FROM-th allocation on it refuses each of the first EACH, then one in STEP, and each time the next ROW - 1
 * allocations too: the library asks again for less memory when a buffer can't grow. It looks for leaked blocks, calls
 * that do not end, wrong messages, and results other than the expected ones or, in a run with a refusal, those for lack
 * of memory.
 */
#include "failing.h"

#include "refusal.h"

#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT_SECONDS = 20 };

bool refusing;
const char *peer, *tls_peer, *certificates;

static const scenario *playing;
static long number, how_many;
static int failures;

static void tell(const char *text) {
  if (write(STDOUT_FILENO, text, strlen(text)) < 0) _exit(3);
}

static void where(void) {
  tell("  refused in\n");
  canary_where(STDOUT_FILENO);
}

void wrong(const char *format, ...) {
  /* Stops the refusals: further failures would only follow from this one. */
  canary_asked();
  char text[1024];
  int length =
      snprintf(text, sizeof(text), "FAILED: %s, %s %ld: ", playing->name, refusing ? "refused" : "after", number);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text + length, sizeof(text) - (size_t)length - 1, format, arguments);
  va_end(arguments);
  tell(text);
  tell("\n");
  where();
  failures++;
}

static void died(int signal) {
  char text[160];
  snprintf(text, sizeof(text), "FAILED: %s, %s %ld: %s\n", playing->name, refusing ? "refused" : "after", number,
           signal == SIGALRM ? "no end" : strsignal(signal));
  tell(text);
  where();
  _exit(3);
}

/* ---- Results ---- */

bool gave(const char *what, penstock_result result, penstock_result expected, penstock_error **error) {
  bool isWithout = result == PENSTOCK_E_NO_MEMORY && refusing;
  if (result != expected && !isWithout) {
    wrong("%s gave %s%s%s", what, penstock_result_name(result), error && *error ? ": " : "",
          error && *error ? penstock_error_message(*error) : "");
  }
  if (error && result != PENSTOCK_OK) {
    if (!*error) {
      wrong("%s gave no error", what);
    } else {
      if (!refusing && !strstr(penstock_error_json(*error), penstock_result_name(result)))
        wrong("%s gave an error of another code", what);
      if (!penstock_error_message(*error) || !penstock_error_json(*error))
        wrong("%s gave an error without texts", what);
      if (!refusing && !*penstock_error_message(*error)) wrong("%s gave an error without words", what);
      penstock_error_release(*error);
      *error = NULL;
    }
  }
  return result == expected;
}

bool went(const char *what, penstock_result result, penstock_error **error) {
  return gave(what, result, PENSTOCK_OK, error);
}

void has(const char *text, const char *part) {
  if (refusing && text && strcmp(text, "{}") == 0) return;
  if (!text || !strstr(text, part)) wrong("\"%.300s\" has no \"%s\"", text ? text : "NULL", part);
}

void owned_has(char *text, const char *part) {
  has(text, part);
  penstock_free(text);
}

/* ---- Runtimes, channels, calls ---- */

penstock_runtime *new_runtime(void) {
  penstock_runtime *runtime = NULL;
  penstock_error *error = NULL;
  return TRY(penstock_runtime_new("{\"mode\": \"host\", \"max_workers\": 1}", &runtime, &error)) ? runtime : NULL;
}

penstock_channel *new_channel(penstock_runtime *runtime, const char *target, const char *options) {
  if (!runtime) return NULL;
  penstock_channel *channel = NULL;
  penstock_error *error = NULL;
  return TRY(penstock_channel_new_on(runtime, target, options, &channel, &error)) ? channel : NULL;
}

penstock_call_options *new_options(const char *json) {
  penstock_call_options *options = NULL;
  penstock_error *error = NULL;
  return TRY(penstock_call_options_new(json, &options, &error)) ? options : NULL;
}

void close_all(penstock_runtime *runtime, penstock_channel *channel) {
  if (runtime) WENT(penstock_runtime_shutdown(runtime, 10000));
  penstock_channel_release(channel);
  penstock_runtime_release(runtime);
}

bool ended(penstock_reply *reply, int32_t expected, const void *message, size_t length) {
  int32_t code = penstock_reply_code(reply);
  const char *words = penstock_status_message(penstock_reply_status(reply), NULL);
  bool isWithout = refusing && (code == PENSTOCK_STATUS_RESOURCE_EXHAUSTED || code == PENSTOCK_STATUS_INTERNAL ||
                                code == PENSTOCK_STATUS_UNAVAILABLE);
  if (code != expected && !isWithout) wrong("a call ended with %d: %s", code, words);
  if (code != expected && !*words) wrong("a call ended with %d and without words", code);
  if (code == expected && message) {
    size_t got = 0;
    const void *data = penstock_reply_bytes(reply, &got);
    if (!data || got != length || memcmp(data, message, length) != 0) wrong("%zu bytes came, not %zu", got, length);
  }
  has(penstock_reply_status_json(reply), "\"code\":");
  has(penstock_reply_stats_json(reply), "\"attempts\":");
  if (!penstock_reply_trace_json(reply)) wrong("no text for the trace");
  penstock_reply_release(reply);
  return code == expected;
}

const void *some_bytes(size_t length) {
  static unsigned char bytes[4 << 20];
  for (size_t i = 0; i < sizeof(bytes) && !bytes[0]; i++) bytes[sizeof(bytes) - 1 - i] = (unsigned char)(i % 251 + 1);
  return length <= sizeof(bytes) ? bytes : NULL;
}

/* ---- Runs ---- */

static void *run(void *nothing) {
  playing->run();
  return nothing;
}

void all_goes_well(void) {
  refusing = false;
  canary_refuse(1, 0);
}

void from_here(void) {
  refusing = how_many > 0;
  canary_refuse(number, how_many);
}

/* Runs the scenario once, and refuses `count` allocations from the `number`-th on; gives the number of allocations that
 * the C side has asked for. */
static long play(long count) {
  pthread_t thread;
  how_many = count;
  from_here();
  if (pthread_create(&thread, NULL, run, NULL) != 0 || pthread_join(thread, NULL) != 0) wrong("no thread");
  long asked = canary_asked();
  refusing = false;
  return asked;
}

/* Gives the number of blocks that are there in excess of `before`. Waits for a while if there are any, because a thread
 * that has resolved a name may free its last block after the call. */
static long blocks_left(long before) {
  struct timespec moment = {0, 1000000};
  long left = canary_blocks() - before;
  for (int i = 0; left > 0 && i < 2000; i++, left = canary_blocks() - before) nanosleep(&moment, NULL);
  return left;
}

static const scenario *find(const char *name, const scenario *list) {
  while (list->name && strcmp(list->name, name) != 0) list++;
  return list->name ? list : NULL;
}

int main(int argc, char **argv) {
  if (argc != 9) return 2;
  peer = argv[1], tls_peer = argv[2], certificates = argv[3];
  playing = find(argv[4], pieces);
  if (!playing) playing = find(argv[4], calls);
  if (!playing) playing = find(argv[4], ready_calls);
  long each = strtol(argv[6], NULL, 10), step = strtol(argv[7], NULL, 10), row = strtol(argv[8], NULL, 10);
  long runs = 0, asked = 0;
  if (!playing || step < 1 || row < 1) return 2;
  for (size_t i = 0, signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGABRT, SIGFPE, SIGALRM}; i < 7; i++) {
    signal((int)signals[i], died);
  }
  some_bytes(0);
  alarm(LIMIT_SECONDS);
  for (int i = 0; i < 3; i++) play(0);
  long blocks = canary_blocks();
  for (number = strtol(argv[5], NULL, 10);; number += number < each ? 1 : step) {
    alarm(LIMIT_SECONDS);
    int before = failures;
    asked = play(row);
    if (asked < number) break;
    play(0);
    runs++;
    long left = blocks_left(blocks);
    blocks += left;
    if (left > 0 && failures == before) {
      wrong("%ld blocks are left, made by", left);
      canary_younger(left, STDOUT_FILENO);
    }
    if (failures - before > 4 || failures > 20) break;
  }
  printf("%s: %ld allocations, %ld refused, %d wrong\n", playing->name, asked, runs, failures);
  return failures ? 1 : 0;
}
