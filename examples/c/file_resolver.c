/* A resolver of the program's own, which watches a file. The channel connects to the servers that the file names, and
 * follows its changes. The file contains the JSON that penstock_resolver_push takes.
 *
 *     file_resolver [TARGET]
 */
#include <penstock/penstock.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The state that the resolver and its thread share. */
typedef struct {
  char path[64];
  penstock_resolver *resolver;
  atomic_int wanted; /* 0: no addresses are wanted now, 1: addresses are wanted, 2: the channel has closed */
  pthread_t thread;
} watcher;

/* These functions run on the thread that drives the runtime, so they only set a flag. */
static void resolve(void *user_data) { atomic_store(&((watcher *)user_data)->wanted, 1); }
static void stop(void *user_data) { atomic_store(&((watcher *)user_data)->wanted, 0); }
static void closed(void *user_data) { atomic_store(&((watcher *)user_data)->wanted, 2); }

static void push_file(watcher *self) {
  char snapshot[4096];
  FILE *file = fopen(self->path, "r");
  size_t length = file ? fread(snapshot, 1, sizeof(snapshot) - 1, file) : 0;
  if (file) fclose(file);
  snapshot[length] = 0;
  penstock_error *error = NULL;
  /* With an error the channel keeps the addresses that it knows. */
  const char *pushed = file ? snapshot : "{\"error\": \"the file can't be read\"}";
  if (penstock_resolver_push(self->resolver, pushed, &error) == PENSTOCK_E_INVALID_JSON)
    fprintf(stderr, "%s is not taken: %s\n", self->path, penstock_error_message(error));
  penstock_error_release(error);
}

static void *watch(void *argument) {
  watcher *self = argument;
  struct timespec seen = {0, 0};
  for (int wanted; (wanted = atomic_load(&self->wanted)) != 2; usleep(20000)) {
    struct stat now;
    if (wanted == 0) {
      seen.tv_nsec = -1; /* the channel is idle: the file is read again when addresses are wanted */
    } else if (stat(self->path, &now) != 0) {
      push_file(self);
    } else if (now.st_mtim.tv_sec != seen.tv_sec || now.st_mtim.tv_nsec != seen.tv_nsec) {
      seen = now.st_mtim;
      push_file(self);
    }
  }
  return NULL;
}

/* Replaces the file by a new one in one step, so that nobody reads half of it. */
static void write_file(const watcher *self, const char *address) {
  char fresh[80];
  snprintf(fresh, sizeof(fresh), "%s.new", self->path);
  FILE *file = fopen(fresh, "w");
  if (!file) exit(1);
  fprintf(file, "{\"addresses\": [{\"address\": \"%s\"}]}", address);
  fclose(file);
  if (rename(fresh, self->path) != 0) exit(1);
}

/* Makes a call, and prints how it ended. */
static int32_t echo(penstock_channel *channel) {
  penstock_call_options *options;
  penstock_reply *reply;
  if (penstock_call_options_new("{\"wait_for_ready\": true, \"deadline_ms\": 300}", &options, NULL) != PENSTOCK_OK ||
      penstock_channel_unary(channel, "/penstock.Echo/Unary", "hi", 2, options, &reply, NULL) != PENSTOCK_OK)
    exit(1);
  int32_t code = penstock_reply_code(reply);
  printf("%s\n", penstock_reply_status_json(reply));
  penstock_reply_release(reply);
  penstock_call_options_release(options);
  return code;
}

int main(int argc, char **argv) {
  const char *target = argc > 1 ? argv[1] : "127.0.0.1:50051";
  watcher self = {.path = "/tmp/penstock-servers-XXXXXX"};
  int file = mkstemp(self.path);
  if (file < 0) return 1;
  close(file);
  write_file(&self, "unix:/nowhere");

  penstock_channel *channel;
  if (penstock_channel_new("echo", "{\"tls\": false}", &channel, NULL) != PENSTOCK_OK) return 1;
  penstock_resolver_functions functions = PENSTOCK_RESOLVER_FUNCTIONS_INIT;
  functions.user_data = &self;
  functions.resolve = resolve;
  functions.stop = stop;
  functions.finalizer = closed;
  if (penstock_channel_set_resolver(channel, &functions, &self.resolver, NULL) != PENSTOCK_OK) return 1;
  if (pthread_create(&self.thread, NULL, watch, &self) != 0) return 1;

  int32_t before = echo(channel);
  write_file(&self, target);
  int32_t after = before;
  for (int i = 0; i < 10 && after != PENSTOCK_STATUS_OK; i++) after = echo(channel);

  penstock_channel_close(channel);
  penstock_channel_release(channel);
  pthread_join(self.thread, NULL);
  penstock_resolver_release(self.resolver);
  unlink(self.path);
  return before == PENSTOCK_STATUS_DEADLINE_EXCEEDED && after == PENSTOCK_STATUS_OK ? 0 : 1;
}
