/* A process under stress: signals all the time, no free descriptors, SIGPIPE with its default action. */
#include "calls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- Signals ---- */

enum { CALLERS = 4 };

typedef struct storm {
  pthread_t callers[CALLERS];
  atomic_int calling;
  atomic_bool over;
  char tls[600]; /* the options of a channel with TLS */
} storm;

static atomic_int signals;
static void count_signal(int number) {
  (void)number;
  atomic_fetch_add(&signals, 1);
}

/* Interrupts system calls of the callers, and of any thread of the process that takes signals. */
static void *interrupt(void *pointer) {
  storm *self = pointer;
  while (!atomic_load(&self->over)) {
    for (int i = 0; i < CALLERS; i++) pthread_kill(self->callers[i], SIGUSR1);
    kill(getpid(), SIGUSR1);
    usleep((useconds_t)(200 * test_slow()));
  }
  return NULL;
}

static void stream(penstock_channel *channel) {
  penstock_call *call = start_with(channel, BIDI, PENSTOCK_KIND_BIDI, "{}");
  for (int i = 0; i < 3; i++) {
    OK(penstock_call_send(call, "ping", 4));
    check_message(__LINE__, call, "ping");
  }
  OK(penstock_call_half_close(call));
  check_finish(__LINE__, call, PENSTOCK_STATUS_OK);
  penstock_call_release(call);
}

/* Makes calls on new connections again and again: in cleartext, and over TLS. */
static void *call_often(void *pointer) {
  storm *self = pointer;
  for (int i = 0; i < 10; i++) {
    penstock_channel *channel = NULL;
    OK(penstock_channel_new(i % 2 ? tls_address(false) : peer_address(), i % 2 ? self->tls : "{\"tls\": false}",
                            &channel, NULL));
    for (int k = 0; k < 10; k++) check_echo(channel);
    stream(channel);
    penstock_channel_release(channel);
  }
  atomic_fetch_sub(&self->calling, 1);
  return NULL;
}

/* The handler does not restart system calls. All calls succeed nevertheless. */
TEST(hardship_of_signals) {
  (void)peer_address();
  (void)tls_address(false);
  struct sigaction action = {.sa_handler = count_signal}, before;
  sigaction(SIGUSR1, &action, &before);
  storm self = {.calling = CALLERS};
  snprintf(self.tls, sizeof(self.tls), "{\"tls\": {\"roots_file\": \"%s\"}}", certificate("ca.pem"));
  pthread_t interrupter;
  for (int i = 0; i < CALLERS; i++) pthread_create(&self.callers[i], NULL, call_often, &self);
  pthread_create(&interrupter, NULL, interrupt, &self);
  EVENTUALLY(atomic_load(&self.calling) == 0);
  atomic_store(&self.over, true);
  pthread_join(interrupter, NULL);
  for (int i = 0; i < CALLERS; i++) pthread_join(self.callers[i], NULL);
  CHECK(atomic_load(&signals) > 0);
  sigaction(SIGUSR1, &before, NULL);
}

/* ---- Descriptors ---- */

static int32_t code_of(penstock_channel *channel, char *words, size_t size) {
  penstock_reply *reply = NULL;
  OK(penstock_channel_unary(channel, UNARY, "ping", 4, NULL, &reply, NULL));
  int32_t code = penstock_reply_code(reply);
  if (words) snprintf(words, size, "%s", penstock_reply_status_json(reply));
  penstock_reply_release(reply);
  return code;
}

/* Without a free descriptor a new connection fails with an error that says so, calls on the existing connection go on,
 * and no thread spins. The channel works again once there are descriptors. */
TEST(hardship_of_descriptors) {
  const char *address = peer_address();
  char names[2][64];
  snprintf(names[0], sizeof(names[0]), "ipv4:%s", address);
  snprintf(names[1], sizeof(names[1]), "dns:///localhost:%s", strrchr(address, ':') + 1);
  penstock_channel *connected = open_channel(), *others[2] = {NULL, NULL};
  check_echo(connected);
  for (int i = 0; i < 2; i++) OK(penstock_channel_new(names[i], "{\"tls\": false}", &others[i], NULL));
  struct rlimit limit;
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  struct rlimit none = {0, limit.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  bool is_enforced = dup(0) < 0; /* false under valgrind, which sets its own limit */
  int32_t codes[2];
  char words[2][512];
  for (int i = 0; i < 2; i++) codes[i] = code_of(others[i], words[i], sizeof(words[i]));
  int32_t code = code_of(connected, NULL, 0);
  struct timespec used, later;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  usleep(300000);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &later);
  setrlimit(RLIMIT_NOFILE, &limit);
  double busy = (double)(later.tv_sec - used.tv_sec) + (double)(later.tv_nsec - used.tv_nsec) / 1e9;
  CHECK_INT(code, PENSTOCK_STATUS_OK);
  if (is_enforced) {
    CHECK_INT(codes[0], PENSTOCK_STATUS_UNAVAILABLE);
    CHECK_HAS(words[0], strerror(EMFILE));
    CHECK_INT(codes[1], PENSTOCK_STATUS_UNAVAILABLE);
    /* Without descriptors the system's resolver says that the name is not known. */
    CHECK_HAS(words[1], strerror(EMFILE));
    /* A loop that spins would use 0.3 s of CPU time. */
    CHECK(busy < 0.2);
  }
  for (int i = 0; i < 2; i++) {
    OK(penstock_channel_reset_backoff(others[i]));
    EVENTUALLY(code_of(others[i], NULL, 0) == PENSTOCK_STATUS_OK);
    penstock_channel_release(others[i]);
  }
  penstock_channel_release(connected);
}

/* ---- SIGPIPE ---- */

/* Accepts connections, and resets each one as soon as it has received something. */
static void *reset_all(void *pointer) {
  int listener = *(int *)pointer, client;
  while ((client = accept(listener, NULL, NULL)) >= 0) {
    char start[24];
    struct linger hard = {1, 0};
    if (recv(client, start, sizeof(start), 0) < 0) break;
    setsockopt(client, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
    close(client);
  }
  return NULL;
}

/* The peer has closed the connection when the library writes. The process lives on, although SIGPIPE has its default
 * action. */
TEST(hardship_of_sigpipe) {
  sighandler_t before = signal(SIGPIPE, SIG_DFL);
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof(address);
  REQUIRE(!bind(listener, (struct sockaddr *)&address, size) && !listen(listener, 16) &&
          !getsockname(listener, (struct sockaddr *)&address, &size));
  pthread_t resetting;
  pthread_create(&resetting, NULL, reset_all, &listener);
  char target[64], *bytes = calloc(1, 1 << 20);
  snprintf(target, sizeof(target), "127.0.0.1:%d", ntohs(address.sin_port));
  static const char *const all[] = {"{\"tls\": false, \"initial_backoff_ms\": 1, \"max_backoff_ms\": 1}",
                                    "{\"tls\": {\"verify\": false}, \"initial_backoff_ms\": 1, \"max_backoff_ms\": 1}"};
  for (int i = 0; i < 2; i++) {
    penstock_channel *channel = NULL;
    OK(penstock_channel_new(target, all[i], &channel, NULL));
    for (int k = 0; k < 20; k++) {
      penstock_reply *reply = NULL;
      OK(penstock_channel_unary(channel, UNARY, bytes, 1 << 20, NULL, &reply, NULL));
      CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_UNAVAILABLE);
      penstock_reply_release(reply);
    }
    penstock_channel_release(channel);
  }
  shutdown(listener, SHUT_RDWR);
  pthread_join(resetting, NULL);
  close(listener);
  free(bytes);
  signal(SIGPIPE, before);
}
