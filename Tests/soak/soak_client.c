/* soak_client: makes calls of all kinds, while interceptors are added and removed. The arguments give the channels,
 * each as a target and its options.
 *
 *   soak_client SECONDS RATE RESETTING TARGET OPTIONS...
 *
 * RATE calls a second are made, or as many as the machine can do. Most should succeed; some ask the server for a
 * status, pass their deadline or are cancelled. RESETTING is the address of a server that resets streams, by
 * resetting.script.
 *
 * Prints lines of JSON: each call that has not ended as it should by itself, with the times when it began and ended
 * (CLOCK_MONOTONIC, in microseconds); each second, what has been done and what the process uses; and {"end": ...}.
 */
#include <penstock/penstock.h>

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS = 64, CHANNELS = 4, MESSAGES = 3, DEADLINE_MS = 10000 };

static penstock_runtime *runtime;
static penstock_channel *channels[CHANNELS], *resetting;
static int channel_count;
static int64_t rate;
static atomic_bool over;
/* Counts of calls: begun; ended; ended with OK; with another status that was asked for; with any other status; with
 * wrong messages. */
static atomic_llong begun, ended, good, planned, failed, wrong;
/* Counts of interceptors: added; finalized. Counts of their hops: made; that got on_status; that got on_cancel;
 * destroyed. */
static atomic_llong added, finalized, made, told, cancelled, gone;

static int64_t now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void sleep_until(int64_t until) {
  for (int64_t left; (left = until - now_us()) > 0 && !atomic_load(&over);) {
    usleep((useconds_t)(left < 50000 ? left : 50000));
  }
}

static void must(penstock_result result, const char *what) {
  if (result == PENSTOCK_OK) return;
  printf("{\"broken\": \"%s: %d\"}\n", what, (int)result);
  fflush(stdout);
  _exit(1);
}

/* ---- Calls ---- */

static const char *const methods[] = {"/penstock.Echo/Unary", "/penstock.Echo/ServerStream",
                                      "/penstock.Echo/ClientStream", "/penstock.Echo/Bidi"};
static const int32_t kinds[] = {PENSTOCK_KIND_UNARY, PENSTOCK_KIND_SERVER_STREAM, PENSTOCK_KIND_CLIENT_STREAM,
                                PENSTOCK_KIND_BIDI};

/* Notes how a call on `channel` has ended that should have ended with `code`. */
static void note(const penstock_channel *channel, int64_t began, int kind, const penstock_reply *reply, int32_t code) {
  int32_t found = penstock_reply_code(reply);
  atomic_fetch_add(&ended, 1);
  if (found == code) {
    atomic_fetch_add(code == PENSTOCK_STATUS_OK ? &good : &planned, 1);
    return;
  }
  atomic_fetch_add(&failed, 1);
  int number = -1;
  for (int i = 0; i < channel_count; i++) {
    if (channels[i] == channel) number = i;
  }
  printf("{\"failed\": %d, \"channel\": %d, \"kind\": %d, \"expected\": %d, \"began\": %lld, \"ended\": %lld,"
         " \"status\": %s}\n",
         (int)found, number, kind, (int)code, (long long)began, (long long)now_us(), penstock_reply_status_json(reply));
  fflush(stdout);
}

static void check_message(const void *data, size_t length, const char *text) {
  if (length != strlen(text) || memcmp(data, text, length) != 0) atomic_fetch_add(&wrong, 1);
}

/* Makes a whole call, which should end with `code`. `cancels`: the caller cancels the call. */
static void call_once(penstock_channel *channel, int kind, const penstock_call_options *options, int32_t code,
                      bool cancels) {
  char text[32], all[4 * sizeof(text)] = "";
  int64_t number = atomic_fetch_add(&begun, 1), began = now_us();
  snprintf(text, sizeof(text), "message %lld", (long long)number);
  penstock_reply *reply = NULL;
  if (kind == 0 && !cancels) {
    must(penstock_channel_unary(channel, methods[0], text, strlen(text), options, &reply, NULL), "unary");
    if (penstock_reply_code(reply) == PENSTOCK_STATUS_OK) {
      size_t length = 0;
      const void *data = penstock_reply_bytes(reply, &length);
      check_message(data, length, text);
    }
    note(channel, began, kind, reply, code);
    penstock_reply_release(reply);
    return;
  }
  penstock_call *call = NULL;
  must(penstock_channel_call(channel, methods[kind], kinds[kind], options, NULL, &call, NULL), "call");
  int count = kind >= 2 ? MESSAGES : 1;
  /* A send fails if the call has ended by then. */
  for (int i = 0; i < count; i++) {
    if (penstock_call_send(call, text, strlen(text)) != PENSTOCK_OK) break;
    strcat(all, text);
  }
  if (cancels) {
    penstock_call_cancel(call, "soak");
  } else {
    penstock_call_half_close(call);
  }
  int came = 0;
  for (penstock_message *message; penstock_call_receive(call, &message) == PENSTOCK_OK; came++) {
    size_t length = 0;
    const void *data = penstock_message_bytes(message, &length);
    check_message(data, length, kind == 2 ? all : text);
    penstock_message_release(message);
  }
  must(penstock_call_wait(call, &reply), "wait");
  if (penstock_reply_code(reply) == PENSTOCK_STATUS_OK && came != (kind == 1 || kind == 3 ? MESSAGES : 1)) {
    atomic_fetch_add(&wrong, 1);
  }
  note(channel, began, kind, reply, code);
  penstock_reply_release(reply);
  penstock_call_release(call);
}

static penstock_call_options *options_of(const char *json) {
  penstock_call_options *options = NULL;
  must(penstock_call_options_new(json, &options, NULL), json);
  return options;
}

static void *call_thread(void *argument) {
  int64_t thread = (intptr_t)argument, interval = THREADS * 1000000 / rate;
  penstock_call_options *plain = options_of("{\"deadline_ms\": 10000, \"metadata\": {\"x-count\": \"3\"}}");
  /* Some calls take longer than others, so that a fault always meets a few. */
  penstock_call_options *long_ones =
      options_of("{\"deadline_ms\": 10000, \"metadata\": {\"x-count\": \"3\", \"x-delay-ms\": \"10\"}}");
  penstock_call_options *sad = options_of("{\"deadline_ms\": 10000, \"metadata\": {\"x-status\": \"9\"}}");
  penstock_call_options *slow = options_of("{\"deadline_ms\": 10000, \"metadata\": {\"x-delay-ms\": \"20000\"}}");
  penstock_call_options *late = options_of("{\"deadline_ms\": 5, \"metadata\": {\"x-delay-ms\": \"20000\"}}");
  penstock_channel *channel = channels[thread % channel_count];
  int64_t due = now_us() + thread * interval / THREADS;
  for (int64_t turn = thread; !atomic_load(&over); turn++) {
    int kind = (int)(turn % 4);
    switch (turn % 101) {
    case 7:
      call_once(channel, kind, sad, PENSTOCK_STATUS_FAILED_PRECONDITION, false);
      break;
    case 42:
      call_once(channel, kind, late, PENSTOCK_STATUS_DEADLINE_EXCEEDED, false);
      break;
    case 77:
      call_once(channel, kind, slow, PENSTOCK_STATUS_CANCELLED, true);
      break;
    default:
      call_once(channel, kind, turn % 5 ? plain : long_ones, PENSTOCK_STATUS_OK, false);
    }
    due += interval;
    /* If calls could not be made in time, they are left out, and not made later. */
    if (due < now_us()) due = now_us();
    sleep_until(due);
  }
  penstock_call_options_release(plain);
  penstock_call_options_release(long_ones);
  penstock_call_options_release(sad);
  penstock_call_options_release(slow);
  penstock_call_options_release(late);
  return NULL;
}

/* Makes one call after the other to the server that resets streams. The expected codes follow from resetting.script. */
static void *reset_thread(void *argument) {
  (void)argument;
  static const int32_t codes[] = {PENSTOCK_STATUS_INTERNAL, PENSTOCK_STATUS_CANCELLED,
                                  PENSTOCK_STATUS_RESOURCE_EXHAUSTED, PENSTOCK_STATUS_PERMISSION_DENIED};
  penstock_call_options *plain = options_of("{\"deadline_ms\": 10000}");
  for (int64_t turn = 0; !atomic_load(&over); turn++) {
    call_once(resetting, 0, plain, codes[turn % 4], false);
    sleep_until(now_us() + 50000);
  }
  penstock_call_options_release(plain);
  return NULL;
}

/* ---- Interceptors ---- */

static int32_t hop_made(penstock_hop *hop, void *user_data, void **state) {
  (void)hop, (void)user_data;
  *state = malloc(16);
  atomic_fetch_add(&made, 1);
  return PENSTOCK_NEXT;
}
static int32_t hop_told(penstock_hop *hop, void *state) {
  (void)hop, (void)state;
  atomic_fetch_add(&told, 1);
  return PENSTOCK_NEXT;
}
static int32_t hop_cancelled(penstock_hop *hop, void *state) {
  (void)hop, (void)state;
  atomic_fetch_add(&cancelled, 1);
  return PENSTOCK_NEXT;
}
static int32_t hop_passes(penstock_hop *hop, void *state) {
  (void)hop, (void)state;
  return PENSTOCK_NEXT;
}
static void hop_gone(penstock_hop *hop, void *state) {
  (void)hop;
  free(state);
  atomic_fetch_add(&gone, 1);
}
static void count_up(void *counter) { atomic_fetch_add((atomic_llong *)counter, 1); }

static penstock_interceptor table(bool per_attempt) {
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.name = "soak";
  table.per_attempt = per_attempt;
  table.user_data = &finalized;
  table.finalizer = count_up;
  table.create = hop_made;
  table.destroy = hop_gone;
  table.on_send = hop_passes;
  table.on_receive = hop_passes;
  table.on_status = hop_told;
  table.on_cancel = hop_cancelled;
  atomic_fetch_add(&added, 1);
  return table;
}

static void *change_thread(void *argument) {
  (void)argument;
  for (int64_t turn = 0; !atomic_load(&over); turn++) {
    penstock_interceptor_id id = 0, second = 0;
    penstock_interceptor one = table(turn % 3 == 0), other = table(turn % 3 == 0);
    int32_t priority = (int32_t)(turn % 7);
    must(turn % 5 ? penstock_channel_add_interceptor(channels[turn % channel_count], &one, priority, &id, NULL)
                  : penstock_runtime_add_interceptor(runtime, &one, priority, &id, NULL),
         "add");
    sleep_until(now_us() + 2000);
    must(penstock_registration_replace(id, &other, &second, NULL), "replace");
    sleep_until(now_us() + 2000);
    must(penstock_registration_remove(second, NULL), "remove");
    must(penstock_registration_wait_removed(id, 2 * DEADLINE_MS), "wait for the removal");
    sleep_until(now_us() + 1000);
  }
  return NULL;
}

/* ---- Figures ---- */

static int entries(const char *path) {
  int count = 0;
  DIR *folder = opendir(path);
  for (struct dirent *entry; folder && (entry = readdir(folder));) count += entry->d_name[0] != '.';
  if (folder) closedir(folder);
  return count;
}

static long resident_kib(void) {
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (file && fscanf(file, "%*s %ld", &pages) != 1) pages = -1;
  if (file) fclose(file);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void say(const char *what, double seconds, int descriptors, int threads) {
  printf(
      "{\"%s\": %.1f, \"begun\": %lld, \"ended\": %lld, \"good\": %lld, \"planned\": %lld, \"failed\": %lld, \"wrong\": %lld,"
      " \"added\": %lld, \"finalized\": %lld, \"made\": %lld, \"told\": %lld, \"cancelled\": %lld, \"gone\": %lld,"
      " \"kib\": %ld, \"descriptors\": %d, \"threads\": %d}\n",
      what, seconds, atomic_load(&begun), atomic_load(&ended), atomic_load(&good), atomic_load(&planned),
      atomic_load(&failed), atomic_load(&wrong), atomic_load(&added), atomic_load(&finalized), atomic_load(&made),
      atomic_load(&told), atomic_load(&cancelled), atomic_load(&gone), resident_kib(), descriptors, threads);
  fflush(stdout);
}

int main(int argc, char **argv) {
  if (argc < 6 || (argc - 4) / 2 > CHANNELS) return 2;
  double length = atof(argv[1]);
  rate = atoll(argv[2]);
  int descriptors = entries("/proc/self/fd"), threads = entries("/proc/self/task");
  must(penstock_runtime_new(NULL, &runtime, NULL), "runtime");
  must(penstock_channel_new_on(runtime, argv[3], "{\"tls\": false}", &resetting, NULL), "channel");
  for (int i = 4; i + 1 < argc; i += 2) {
    must(penstock_channel_new_on(runtime, argv[i], argv[i + 1], &channels[channel_count++], NULL), argv[i + 1]);
  }

  pthread_t all[THREADS + 2];
  for (int i = 0; i < THREADS; i++) pthread_create(&all[i], NULL, call_thread, (void *)(intptr_t)i);
  pthread_create(&all[THREADS], NULL, reset_thread, NULL);
  pthread_create(&all[THREADS + 1], NULL, change_thread, NULL);
  int64_t start = now_us();
  for (int64_t second = 1; (double)(second - 1) < length; second++) {
    sleep_until(start + second * 1000000);
    say("seconds", (double)(now_us() - start) / 1e6, entries("/proc/self/fd"), entries("/proc/self/task"));
  }
  atomic_store(&over, true);
  for (int i = 0; i < THREADS + 2; i++) pthread_join(all[i], NULL);
  double seconds = (double)(now_us() - start) / 1e6;

  for (int i = 0; i < channel_count; i++) penstock_channel_release(channels[i]);
  penstock_channel_release(resetting);
  must(penstock_runtime_shutdown(runtime, -1), "shutdown");
  penstock_runtime_release(runtime);
  /* Descriptors and threads after the end, less those before the beginning. */
  say("end", seconds, entries("/proc/self/fd") - descriptors, entries("/proc/self/task") - threads);
  return 0;
}
