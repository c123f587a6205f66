/* Idle streams and channels: their memory, and how often an idle channel wakes up. */
#include "bench.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void statm(long *resident, long *of_files) {
  long size = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%ld %ld %ld", &size, resident, of_files) != 3) die("statm", PENSTOCK_E_SYSTEM);
  fclose(file);
  *resident *= sysconf(_SC_PAGESIZE) / 1024;
  *of_files *= sysconf(_SC_PAGESIZE) / 1024;
}

long resident_kb(void) {
  long resident = 0, of_files = 0;
  statm(&resident, &of_files);
  return resident;
}

long private_kb(void) {
  long resident = 0, of_files = 0;
  statm(&resident, &of_files);
  return resident - of_files;
}

/* The number in the line `name` of a /proc/.../status file. */
static long status_value(const char *path, const char *name) {
  char line[200];
  long value = -1;
  FILE *file = fopen(path, "r");
  if (!file) return value;
  while (fgets(line, sizeof(line), file))
    if (strncmp(line, name, strlen(name)) == 0) value = atol(line + strlen(name) + 1);
  fclose(file);
  return value;
}

/* VmHWM, because ru_maxrss includes the memory that the process had before exec, which is its parent's. */
long peak_kb(void) { return status_value("/proc/self/status", "VmHWM"); }

/* How often the other threads of this process have gone to sleep. */
static long sleeps(void) {
  long sum = 0;
  char path[300];
  DIR *tasks = opendir("/proc/self/task");
  if (!tasks) die("/proc/self/task", PENSTOCK_E_SYSTEM);
  for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
    if (entry->d_name[0] == '.' || atol(entry->d_name) == getpid()) continue;
    snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
    sum += status_value(path, "voluntary_ctxt_switches");
  }
  closedir(tasks);
  return sum;
}

/* Opens a stream, and waits for the server's first answer, so that the stream exists on both sides. */
static penstock_call *open_stream(bench *self) {
  penstock_call *call = NULL;
  penstock_message *message = NULL;
  need("call",
       penstock_channel_call(self->channel, "/penstock.Echo/Bidi", PENSTOCK_KIND_BIDI, NULL, NULL, &call, NULL));
  need("send", penstock_call_send(call, self->request, self->bytes));
  need("receive", penstock_call_receive(call, &message));
  size_t length = 0;
  const void *data = penstock_message_bytes(message, &length);
  if (length != self->bytes || memcmp(data, self->request, length) != 0) {
    fprintf(stderr, "bench_client: wrong message\n");
    exit(1);
  }
  penstock_message_release(message);
  return call;
}

void idle_streams(bench *self, long streams) {
  penstock_call **calls = calloc((size_t)streams, sizeof(*calls));
  memset(calls, 1, (size_t)streams * sizeof(*calls)); /* makes the array resident before memory is measured */
  penstock_call *first = open_stream(self);
  long before = resident_kb();
  double started = now();
  for (long i = 0; i < streams; i++) calls[i] = open_stream(self);
  double took = now() - started;
  long after = resident_kb();
  for (long i = 0; i < streams; i++) penstock_call_release(calls[i]);
  penstock_call_release(first);
  free(calls);
  printf("{\"calls\": %ld, \"seconds\": %.6f, \"bytes_per_stream\": %.0f, \"max_rss_kb\": %ld}\n", streams, took,
         (double)(after - before) * 1024 / (double)streams, peak_kb());
}

void idle_channels(bench *self, long channels) {
  penstock_channel **opened = calloc((size_t)channels, sizeof(*opened));
  unary_once(self, self->channel);
  long before = resident_kb();
  for (long i = 0; i < channels; i++) {
    need("channel", penstock_channel_new_on(self->runtime, self->target, self->channel_options, &opened[i], NULL));
    unary_once(self, opened[i]);
  }
  long after = resident_kb();
  /* Waits until activity that follows a call, such as the loop's linger, has ended. */
  sleep(1);
  long slept = sleeps();
  sleep((unsigned)self->seconds);
  slept = sleeps() - slept;
  for (long i = 0; i < channels; i++) penstock_channel_release(opened[i]);
  free(opened);
  printf("{\"calls\": %ld, \"seconds\": %d, \"bytes_per_channel\": %.0f, \"wakeups\": %ld, \"max_rss_kb\": %ld}\n",
         channels, self->seconds, (double)(after - before) * 1024 / (double)channels, slept, peak_kb());
}
