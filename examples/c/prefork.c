/* A server that forks its workers: they share a channel that was made, with its interceptor, before the fork.
 *
 *     prefork [TARGET]
 */
#include <penstock/penstock.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 3 };

static int calls;

static int32_t count(penstock_hop *hop, void *user_data) {
  (void)hop, (void)user_data;
  calls++;
  return PENSTOCK_NEXT;
}

static int echo(penstock_channel *channel, const char *text) {
  penstock_reply *reply = NULL;
  penstock_error *error = NULL;
  if (penstock_channel_unary(channel, "/penstock.Echo/Unary", text, strlen(text), NULL, &reply, &error)) {
    fprintf(stderr, "%s\n", penstock_error_message(error));
    penstock_error_release(error);
    return 1;
  }
  size_t length = 0;
  const char *answer = penstock_reply_bytes(reply, &length);
  int32_t code = penstock_reply_code(reply);
  printf("%.*s: call %d of this process\n", (int)length, answer ? answer : "", calls);
  fflush(stdout);
  penstock_reply_release(reply);
  return code != PENSTOCK_STATUS_OK;
}

int main(int argc, char **argv) {
  pthread_atfork(penstock_fork_prepare, penstock_fork_parent, penstock_fork_child);

  penstock_channel *channel = NULL;
  penstock_error *error = NULL;
  penstock_interceptor counting = PENSTOCK_INTERCEPTOR_INIT;
  penstock_interceptor_id id;
  counting.on_start = count;
  if (penstock_channel_new(argc > 1 ? argv[1] : "localhost:50051", "{\"tls\": false}", &channel, &error) ||
      penstock_channel_add_interceptor(channel, &counting, 0, &id, &error)) {
    fprintf(stderr, "%s\n", penstock_error_message(error));
    return 1;
  }
  int failed = echo(channel, "before"); /* now the parent has a connection and a driving thread */
  for (int number = 0; number < WORKERS; number++) {
    /* The worker makes a connection of its own with its first call. */
    if (fork() == 0) _exit(echo(channel, "hi from a worker"));
  }
  for (int number = 0; number < WORKERS; number++) {
    int status = 0;
    wait(&status);
    failed |= status;
  }
  failed |= echo(channel, "after");
  penstock_channel_release(channel);
  return failed != 0;
}
