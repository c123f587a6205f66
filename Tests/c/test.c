#include "test.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <sys/socket.h>
#include <netinet/in.h>
#include <arpa/inet.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* ---- Tests ---- */

static test *tests;
static const char *volatile running = "";
static atomic_int failures;
static _Atomic uint32_t random_state;

void test_register(test *entry) {
  test **end = &tests;
  while (*end && strcmp((*end)->name, entry->name) < 0) end = &(*end)->next;
  entry->next = *end;
  *end = entry;
}

void test_failed(const char *file, int line, const char *format, ...) {
  char text[2048];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  atomic_fetch_add(&failures, 1);
  const char *base = strrchr(file, '/');
  printf("  %s:%d: %s\n", base ? base + 1 : file, line, text);
  fflush(stdout);
}

int test_failures(void) { return atomic_load(&failures); }

int test_slow(void) {
  static int factor;
  if (factor == 0) {
    const char *text = getenv("PENSTOCK_TEST_SLOW");
    factor = text && atoi(text) > 0 ? atoi(text) : 1;
  }
  return factor;
}

int test_patience_ms(void) { return 40000 + 20000 * test_slow(); }

int test_rounds(int times) {
  int rounds = times / test_slow();
  return rounds < 2 ? 2 : rounds;
}

uint32_t test_random(uint32_t below) {
  uint32_t state = atomic_load(&random_state), next;
  do {
    next = state * 1664525u + 1013904223u;
  } while (!atomic_compare_exchange_weak(&random_state, &state, next));
  return below == 0 ? 0 : (next >> 8) % below;
}

bool check_true(const char *file, int line, const char *what, bool holds) {
  if (!holds) test_failed(file, line, "%s", what);
  return holds;
}

bool check_int(const char *file, int line, const char *what, int64_t found, int64_t expected) {
  if (found == expected) return true;
  test_failed(file, line, "%s is %lld, not %lld", what, (long long)found, (long long)expected);
  return false;
}

bool check_str(const char *file, int line, const char *what, const char *found, const char *expected) {
  if (found == expected || (found && expected && strcmp(found, expected) == 0)) return true;
  test_failed(file, line, "%s is %s%s%s, not %s", what, found ? "\"" : "", found ? found : "NULL", found ? "\"" : "",
              expected ? expected : "NULL");
  return false;
}

static char *squeeze(const char *json) {
  char *out = malloc(strlen(json) + 1), *end = out;
  bool quoted = false;
  for (const char *at = json; *at; at++) {
    if (!quoted && (*at == ' ' || *at == '\n' || *at == '\t')) continue;
    if (*at == '"') quoted = !quoted;
    *end++ = *at;
    if (quoted && *at == '\\' && at[1]) *end++ = *++at;
  }
  *end = 0;
  return out;
}

bool check_json(const char *file, int line, const char *what, const char *found, const char *expected) {
  if (!found) return check_str(file, line, what, found, expected);
  char *a = squeeze(found), *b = squeeze(expected);
  bool same = check_str(file, line, what, a, b);
  free(a);
  free(b);
  return same;
}

bool check_has(const char *file, int line, const char *what, const char *found, const char *part) {
  if (found && strstr(found, part)) return true;
  test_failed(file, line, "%s is \"%s\" and does not have \"%s\"", what, found ? found : "NULL", part);
  return false;
}

bool check_result(const char *file, int line, const char *what, penstock_result found, penstock_result expected) {
  if (found == expected) return true;
  test_failed(file, line, "%s gave %s (%d), not %s", what, penstock_result_name(found), found,
              penstock_result_name(expected));
  return false;
}

void check_error(const char *file, int line, penstock_error **error, penstock_result code, const char *path,
                 const char *part) {
  if (!*error) {
    test_failed(file, line, "no error object");
    return;
  }
  const char *json = penstock_error_json(*error), *message = penstock_error_message(*error);
  check_has(file, line, "error json", json, penstock_result_name(code));
  if (!message || !*message) test_failed(file, line, "an error without a message");
  if (path) {
    char wanted[256];
    snprintf(wanted, sizeof(wanted), "\"path\":\"%s\"", path);
    char *squeezed = squeeze(json);
    check_has(file, line, "error json", squeezed, wanted);
    free(squeezed);
  }
  if (part) check_has(file, line, "error message", message, part);
  penstock_error_release(*error);
  *error = NULL;
}

/* ---- Waiting ---- */

int64_t test_now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

void test_pause(void) {
  struct timespec moment = {0, 1000000};
  nanosleep(&moment, NULL);
}

void latch_signal(latch *latch) {
  pthread_mutex_lock(&latch->mutex);
  latch->count++;
  pthread_cond_broadcast(&latch->changed);
  pthread_mutex_unlock(&latch->mutex);
}

int latch_count(latch *latch) {
  pthread_mutex_lock(&latch->mutex);
  int count = latch->count;
  pthread_mutex_unlock(&latch->mutex);
  return count;
}

bool latch_wait_at(const char *file, int line, latch *latch, int count) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += test_patience_ms() / 1000;
  pthread_mutex_lock(&latch->mutex);
  int status = 0;
  while (latch->count < count && status == 0) status = pthread_cond_timedwait(&latch->changed, &latch->mutex, &until);
  int found = latch->count;
  pthread_mutex_unlock(&latch->mutex);
  if (found >= count) return true;
  test_failed(file, line, "waited too long: signalled %d times, not %d", found, count);
  return false;
}

void count_up(void *counter) { atomic_fetch_add((atomic_int *)counter, 1); }
void signal_latch(void *latch_pointer) { latch_signal(latch_pointer); }

int open_descriptors(void) {
  int count = 0;
  DIR *folder = opendir("/proc/self/fd");
  while (folder && readdir(folder)) count++;
  if (folder) closedir(folder);
  return count;
}

int running_threads(void) {
  int count = 0;
  DIR *folder = opendir("/proc/self/task");
  for (struct dirent *entry; folder && (entry = readdir(folder));) count += entry->d_name[0] != '.';
  if (folder) closedir(folder);
  return count;
}

int threads_named(const char *name) {
  int count = 0;
  DIR *folder = opendir("/proc/self/task");
  for (struct dirent *entry; folder && (entry = readdir(folder));) {
    char path[300], text[32] = "";
    snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
    FILE *file = fopen(path, "re");
    if (!file) continue;
    if (fgets(text, sizeof(text), file)) text[strcspn(text, "\n")] = 0;
    fclose(file);
    count += strcmp(text, name) == 0;
  }
  if (folder) closedir(folder);
  return count;
}

static int count_threads(void) {
  int count = 0;
  DIR *folder = opendir("/proc/self/task");
  for (struct dirent *entry; folder && (entry = readdir(folder));) count += entry->d_name[0] != '.';
  if (folder) closedir(folder);
  return count;
}

/* ---- The server ---- */

int start_peer(char *text, size_t text_size, char *const *more, int *input) {
  pid_t process;
  const char *program = getenv("PENSTOCK_PEER");
  if (!program) program = "build/bin/penstock-peer";
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC)) abort();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], 0);
  posix_spawn_file_actions_adddup2(&actions, out[1], 1);
  char *arguments[16] = {(char *)program, "--listen", "127.0.0.1:0", "--exit-with-stdin", NULL};
  for (size_t i = 4; *more && i < 15; i++) arguments[i] = *more++;
  int status = posix_spawn(&process, program, &actions, NULL, arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  close(in[0]);
  close(out[1]);
  char line[512] = "";
  size_t length = 0;
  while (status == 0 && length < sizeof(line) - 1 && !memchr(line, '\n', length)) {
    ssize_t got = read(out[0], line + length, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    length += (size_t)got;
    line[length] = 0;
  }
  static const char key[] = "\"address\":\"";
  char *address = strstr(line, key);
  if (address) address += strlen(key);
  size_t size = address ? strcspn(address, "\"") : 0;
  if (size == 0 || size >= text_size) {
    printf("  %s did not start: %s \"%s\"\n", program, strerror(status), line);
    exit(3);
  }
  memcpy(text, address, size);
  text[size] = 0;
  *input = in[1];
  return out[0];
}

const char *peer_address(void) {
  static char text[64];
  static int input; /* never closed: the peer ends with this process */
  char *const nothing[] = {NULL};
  if (!text[0]) start_peer(text, sizeof(text), nothing, &input);
  return text;
}

const char *certificate(const char *name) {
  static char paths[8][512];
  static int next;
  const char *folder = getenv("PENSTOCK_TEST_CERTIFICATES");
  char *path = paths[next++ % 8];
  snprintf(path, sizeof(paths[0]), "%s/%s", folder ? folder : "build/c/certificates", name);
  return path;
}

const char *tls_address(bool mutual) {
  static char texts[2][64];
  if (texts[mutual][0]) return texts[mutual];
  char *const arguments[] = {"--tls",
                             "--cert",
                             (char *)certificate("server.pem"),
                             "--key",
                             (char *)certificate("server.key"),
                             mutual ? "--client-ca" : NULL,
                             (char *)certificate("ca.pem"),
                             NULL};
  static int inputs[2];
  start_peer(texts[mutual], sizeof(texts[0]), arguments, &inputs[mutual]);
  return texts[mutual];
}

penstock_channel *open_tls_channel(bool mutual) {
  char options[4096];
  int n = snprintf(options, sizeof(options), "{\"tls\": {\"roots_file\": \"%s\"", certificate("ca.pem"));
  if (mutual) {
    n += snprintf(options + n, sizeof(options) - (size_t)n,
                  ", \"certificate_chain_file\": \"%s\", \"private_key_file\": \"%s\"", certificate("client.pem"),
                  certificate("client.key"));
  }
  snprintf(options + n, sizeof(options) - (size_t)n, "}}");
  penstock_channel *channel = NULL;
  penstock_error *error = NULL;
  OK(penstock_channel_new(tls_address(mutual), options, &channel, &error));
  if (error) printf("  %s\n", penstock_error_message(error));
  penstock_error_release(error);
  return channel;
}

const char *dead_address(void) {
  static char text[64];
  if (text[0]) return text;
  /* This socket is bound but does not listen: no other process gets the port, and a connect to it is refused. */
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof(address);
  if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) || getsockname(fd, (struct sockaddr *)&address, &size)) {
    abort();
  }
  snprintf(text, sizeof(text), "127.0.0.1:%d", ntohs(address.sin_port));
  return text;
}

penstock_channel *open_channel_on(penstock_runtime *runtime) {
  penstock_channel *channel = NULL;
  penstock_error *error = NULL;
  const char *options = "{\"tls\": false}";
  penstock_result result = runtime ? penstock_channel_new_on(runtime, peer_address(), options, &channel, &error)
                                   : penstock_channel_new(peer_address(), options, &channel, &error);
  OK(result);
  if (error) printf("  %s\n", penstock_error_message(error));
  penstock_error_release(error);
  return channel;
}

penstock_channel *open_channel(void) { return open_channel_on(NULL); }

penstock_runtime *new_runtime(const char *options) {
  penstock_runtime *runtime = NULL;
  OK(penstock_runtime_new(options, &runtime, NULL));
  return runtime;
}

void check_echo(penstock_channel *channel) {
  penstock_reply *reply = NULL;
  penstock_error *error = NULL;
  if (OK(penstock_channel_unary(channel, UNARY, "ping", 4, NULL, &reply, &error))) {
    size_t length = 0;
    const char *data = penstock_reply_bytes(reply, &length);
    if (CHECK_INT(penstock_reply_code(reply), 0)) {
      CHECK(data && length == 4 && memcmp(data, "ping", 4) == 0);
    } else {
      printf("  %s\n", penstock_reply_status_json(reply));
    }
    penstock_reply_release(reply);
  }
  penstock_error_release(error);
}

int32_t unary_code(penstock_channel *channel, const char *request) {
  penstock_reply *reply = NULL;
  if (!OK(penstock_channel_unary(channel, UNARY, request, strlen(request), NULL, &reply, NULL))) return -1;
  int32_t code = penstock_reply_code(reply);
  penstock_reply_release(reply);
  return code;
}

penstock_call *start_call(penstock_channel *channel, const char *method, int32_t kind) {
  penstock_call *call = NULL;
  OK(penstock_channel_call(channel, method, kind, NULL, NULL, &call, NULL));
  return call;
}

penstock_call *start_callback_call(penstock_channel *channel, const char *method, int32_t kind, latch *ended) {
  penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
  table.user_data = ended;
  table.finalizer = signal_latch;
  penstock_call *call = NULL;
  OK(penstock_channel_call(channel, method, kind, NULL, &table, &call, NULL));
  return call;
}

penstock_result unary_object(penstock_channel *channel, penstock_codec *codec, void *object, penstock_reply **reply) {
  penstock_message *request = NULL;
  if (!OK(penstock_message_new_object(codec, object, 0, &request))) return PENSTOCK_E_INVALID_ARGUMENT;
  penstock_result result = penstock_channel_unary_message(channel, UNARY, request, NULL, reply, NULL);
  penstock_message_release(request);
  return result;
}

void *reply_object(const penstock_reply *reply) {
  return penstock_message_object(penstock_reply_response_message(reply));
}

size_t message_length(const penstock_message *message) {
  size_t length = 0;
  penstock_message_bytes(message, &length);
  return length;
}

void exchange(penstock_channel *channel, int count) {
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  if (!call) return;
  for (int i = 0; i < count; i++) OK(penstock_call_send(call, &i, sizeof(i)));
  OK(penstock_call_half_close(call));
  for (int i = 0; i < count; i++) {
    penstock_message *message = NULL;
    if (!OK(penstock_call_receive(call, &message))) break;
    int got = -1;
    size_t length = 0;
    const void *data = penstock_message_bytes(message, &length);
    if (CHECK_INT(length, sizeof(got))) memcpy(&got, data, sizeof(got));
    CHECK_INT(got, i);
    penstock_message_release(message);
  }
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) {
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_OK);
    penstock_reply_release(reply);
  }
  penstock_call_release(call);
}

/* ---- main ---- */

static void too_late(int number) {
  (void)number;
  static const char text[] = "  over its time limit: ";
  ssize_t ignored = write(1, text, sizeof(text) - 1);
  ignored += write(1, running, strlen(running));
  ignored += write(1, "\n", 1);
  (void)ignored;
  signal(SIGABRT, SIG_DFL);
  abort();
}

#if !defined(__has_feature)
#define __has_feature(feature) 0
#endif

static void *end_at_once(void *argument) { return argument; }

/* Starts a thread and waits for its end: with the first thread ThreadSanitizer starts one of its own, which stays. */
static void start_the_thread_of_a_sanitizer(void) {
  pthread_t thread;
  if (__has_feature(thread_sanitizer) && pthread_create(&thread, NULL, end_at_once, NULL) == 0)
    pthread_join(thread, NULL);
}

int main(int count, char **arguments) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  const char *seed = getenv("PENSTOCK_TEST_SEED");
  uint32_t value = seed ? (uint32_t)strtoul(seed, NULL, 10) : (uint32_t)time(NULL) * 2654435761u ^ (uint32_t)getpid();
  atomic_store(&random_state, value);
  printf("seed %u\n", value);
  signal(SIGALRM, too_late);
  start_the_thread_of_a_sanitizer();
  int passed = 0, failed = 0, threads = count_threads();
  for (test *entry = tests; entry; entry = entry->next) {
    bool wanted = count == 1;
    for (int i = 1; i < count; i++) wanted = wanted || strstr(entry->name, arguments[i]);
    if (!wanted) continue;
    running = entry->name;
    atomic_store(&failures, 0);
    printf("  ... %s\n", entry->name);
    int64_t started = test_now_ms();
    alarm(2u * (unsigned)test_patience_ms() / 1000);
    entry->run();
    alarm(0);
    int64_t took = test_now_ms() - started;
    if (atomic_load(&failures)) {
      failed++;
      printf("FAILED: %s\n", entry->name);
    } else {
      passed++;
      printf("ok: %s (%lld ms)\n", entry->name, (long long)took);
    }
  }
  printf("%d passed, %d failed\n", passed, failed);
  fflush(stdout);
  /* A runtime's thread may be about to free objects without other references: LeakSanitizer would report them as leaks,
   * because it does not see references that share a word with a tag, and Valgrind, because it does not look at the stacks
   * and registers of threads that the exit has stopped. So the loop below waits until these threads have ended. It counts
   * threads, because one that has just been started has no name yet. */
  for (int64_t until = test_now_ms() + 10000; count_threads() > threads && test_now_ms() < until;) test_pause();
  /* The functions that run at exit may hang, too, so the alarm is set again. */
  running = "exit";
  alarm(2u * (unsigned)test_patience_ms() / 1000);
  return failed ? 1 : 0;
}
