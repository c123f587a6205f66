/* fault_client: makes the unary and the bidi call of a fault test, and reports leaks.
 *
 *   fault_client [OPTIONS] --target T...
 *
 *   --channel JSON     options of the channel (by default {"tls": false})
 *   --deadline MS      of each call (by default 5000)
 *   --styles A,B       see interop_client (by default blocking,callback)
 *   --calls A,B        unary, bidi or both (the default)
 *   --repeat N         makes each call N times more, and reports how much the heap grows in the second half of them
 *   --at-once N        makes each call N times more, all at the same time on one channel (in a style with callbacks)
 *
 * Prints a line of JSON for each target, call and style: the code, the message, the number of messages received, the
 * milliseconds, the attempts in the statistics, the hops per attempt that were made and destroyed, the descriptors and
 * threads before and after the call, and the largest number of bytes of memory so far. Each call has its own runtime and
 * channel, which are freed before the numbers after the call are taken.
 */
#include "rpc.h"

#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TARGETS = 64, CROWD = 1000 };

typedef struct outcome {
  int32_t code;
  char *message;
  int messages;
  int64_t elapsed_us;
  /* The attempts in the statistics, and the hops per attempt that were made and destroyed. */
  int attempts, made, gone;
} outcome;

static int32_t made(penstock_hop *hop, void *user_data, void **state) {
  (void)hop;
  *state = user_data;
  ((outcome *)user_data)->made++;
  return PENSTOCK_NEXT;
}

static void gone(penstock_hop *hop, void *state) {
  (void)hop;
  ((outcome *)state)->gone++;
}

static bool count_attempts(client *client, outcome *outcome) {
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.name = "attempts";
  table.per_attempt = 1;
  table.user_data = outcome;
  table.create = made;
  table.destroy = gone;
  penstock_interceptor_id id = 0;
  return penstock_channel_add_interceptor(client->channel, &table, 0, &id, NULL) == PENSTOCK_OK;
}

static int count_entries(const char *path) {
  int count = 0;
  DIR *folder = opendir(path);
  for (struct dirent *entry; folder && (entry = readdir(folder));) {
    count += entry->d_name[0] != '.';
  }
  if (folder) {
    closedir(folder);
  }
  return count;
}

/* Waits up to two seconds for the threads that resolve names: they are detached, have freed everything, and are about
 * to end. */
static int threads_left(int expected) {
  int64_t until = now_us() + 2000000;
  int count = count_entries("/proc/self/task");
  while (count > expected && now_us() < until) {
    sched_yield();
    count = count_entries("/proc/self/task");
  }
  return count;
}

/* The largest number of KiB of memory that the program has had. (That of getrusage counts what was before its exec.) */
static long peak(void) {
  FILE *file = fopen("/proc/self/status", "r");
  char line[128];
  long kilobytes = 0;
  while (file && fgets(line, sizeof(line), file)) {
    if (strncmp(line, "VmHWM:", 6) == 0) {
      kilobytes = atol(line + 6);
    }
  }
  if (file) {
    fclose(file);
  }
  return kilobytes;
}

static void too_late(int number) {
  (void)number;
  static const char text[] = "  took far too long\n";
  ssize_t ignored = write(1, text, sizeof(text) - 1);
  (void)ignored;
  _exit(3);
}

static void one(client *client, bool bidi, const char *options, outcome *outcome) {
  static const char request[] = "ping";
  if (!client_open(client)) {
    return;
  }
  CHECK(count_attempts(client, outcome));
  int64_t started = now_us();
  rpc *call = NULL;
  penstock_reply *reply = NULL;
  if (bidi) {
    call = rpc_start(client, "/penstock.Echo/Bidi", PENSTOCK_KIND_BIDI, options);
    /* The call may end before its message is sent. */
    if (call && rpc_send(call, request, 4) == PENSTOCK_OK) {
      rpc_half_close(call);
    }
    for (penstock_message *message; call && (message = rpc_receive(call));) {
      outcome->messages++;
      penstock_message_release(message);
    }
    reply = call ? penstock_reply_retain(rpc_finish(call)) : NULL;
  } else {
    reply = rpc_unary(client, "/penstock.Echo/Unary", request, 4, options);
    outcome->messages = reply && penstock_reply_bytes(reply, NULL) != NULL;
  }
  outcome->elapsed_us = now_us() - started;
  if (reply) {
    outcome->code = penstock_reply_code(reply);
    outcome->message = strdup(penstock_status_message(penstock_reply_status(reply), NULL));
    CHECK(strstr(penstock_reply_status_json(reply), penstock_status_code_name(outcome->code)) != NULL);
    const char *attempts = strstr(penstock_reply_stats_json(reply), "\"attempts\":");
    if (attempts) {
      outcome->attempts = atoi(attempts + strlen("\"attempts\":"));
    }
  }
  penstock_reply_release(reply);
  rpc_free(call);
  client_close(client);
}

typedef struct again {
  client *client;
  bool bidi;
  const char *options;
  outcome *outcome;
} again;

static void *one_of_thread(void *argument) {
  again *what = argument;
  one(what->client, what->bidi, what->options, what->outcome);
  return NULL;
}

/* The library keeps blocks for a thread's next calls; they are freed when the thread ends. */
static void one_in_a_thread(client *client, bool bidi, const char *options, outcome *outcome) {
  again what = {client, bidi, options, outcome};
  pthread_t thread;
  if (pthread_create(&thread, NULL, one_of_thread, &what) != 0 || pthread_join(thread, NULL) != 0) {
    FAIL("no thread");
  }
}

/* Makes `count` calls at the same time, each of which has to end with the same code. */
static void all_at_once(client *client, bool bidi, const char *options, int count, int32_t code) {
  static rpc *calls[CROWD];
  if (!client_open(client)) {
    return;
  }
  const char *method = bidi ? "/penstock.Echo/Bidi" : "/penstock.Echo/Unary";
  for (int i = 0; i < count; i++) {
    calls[i] = rpc_start(client, method, bidi ? PENSTOCK_KIND_BIDI : PENSTOCK_KIND_UNARY, options);
    if (calls[i] && rpc_send(calls[i], "ping", 4) == PENSTOCK_OK) {
      rpc_half_close(calls[i]);
    }
  }
  for (int i = 0; i < count; i++) {
    penstock_reply *reply = calls[i] ? rpc_finish(calls[i]) : NULL;
    if (reply) {
      CHECK_STATUS(reply, code, NULL);
    }
    rpc_free(calls[i]);
  }
  client_close(client);
}

static void tell(const char *target, bool bidi, style style, const outcome *outcome, const int *before,
                 const int *after, int64_t grown) {
  printf("{\"target\": \"%s\", \"call\": \"%s\", \"style\": \"%s\", \"code\": \"%s\", \"message\": \"", target,
         bidi ? "bidi" : "unary", style_names[style], penstock_status_code_name(outcome->code));
  for (const char *at = outcome->message; at && *at; at++) {
    printf("%02x", (unsigned char)*at);
  }
  printf("\", \"messages\": %d, \"ms\": %.1f, \"attempts\": [%d, %d, %d]", outcome->messages,
         (double)outcome->elapsed_us / 1000, outcome->attempts, outcome->made, outcome->gone);
  printf(", \"descriptors\": [%d, %d], \"threads\": [%d, %d], \"grown\": %lld, \"peak\": %lld}\n", before[0], after[0],
         before[1], after[1], (long long)grown, (long long)peak() * 1024);
  fflush(stdout);
}

int main(int argc, char **argv) {
  const char *targets[TARGETS], *styles = "blocking,callback", *calls = "unary,bidi", *channel = "{\"tls\": false}";
  int target_count = 0, repeat = 0, crowd = 0;
  long deadline = 5000;
  for (int i = 1; i + 1 < argc; i += 2) {
    const char *name = argv[i] + 2, *value = argv[i + 1];
    if (strcmp(name, "target") == 0 && target_count < TARGETS) {
      targets[target_count++] = value;
    } else if (strcmp(name, "channel") == 0) {
      channel = value;
    } else if (strcmp(name, "deadline") == 0) {
      deadline = atol(value);
    } else if (strcmp(name, "styles") == 0) {
      styles = value;
    } else if (strcmp(name, "calls") == 0) {
      calls = value;
    } else if (strcmp(name, "repeat") == 0) {
      repeat = atoi(value);
    } else if (strcmp(name, "at-once") == 0 && atoi(value) <= CROWD) {
      crowd = atoi(value);
    } else {
      fprintf(stderr, "fault_client: %s?\n", argv[i]);
      return 2;
    }
  }
  signal(SIGALRM, too_late);
  char options[64];
  snprintf(options, sizeof(options), "{\"deadline_ms\": %ld}", deadline);
  for (int i = 0; i < target_count; i++) {
    for (int bidi = 0; bidi < 2; bidi++) {
      if (!strstr(calls, bidi ? "bidi" : "unary")) {
        continue;
      }
      char list[128], *rest = list, *word;
      snprintf(list, sizeof(list), "%s", styles);
      while ((word = strtok_r(rest, ",", &rest))) {
        client client = {.target = targets[i], .options = channel, .probed = true};
        if (!style_read(word, &client.style)) {
          return 2;
        }
        outcome found = {.code = -1};
        alarm((unsigned)(deadline / 1000 + 100));
        int before[] = {count_entries("/proc/self/fd"), count_entries("/proc/self/task")};
        one(&client, bidi, options, &found);
        if (crowd) {
          all_at_once(&client, bidi, options, crowd, found.code);
        }
        int after[] = {count_entries("/proc/self/fd"), threads_left(before[1])};
        size_t half = 0;
        for (int k = 0; k < repeat; k++) {
          outcome again = {.code = -1};
          one_in_a_thread(&client, bidi, options, &again);
          if (again.code != found.code) {
            FAIL("%s the next time, not %s", penstock_status_code_name(again.code),
                 penstock_status_code_name(found.code));
          }
          free(again.message);
          if (k == repeat / 2) {
            half = mallinfo2().uordblks;
          }
        }
        int64_t grown = repeat ? (int64_t)mallinfo2().uordblks - (int64_t)half : 0;
        alarm(0);
        tell(targets[i], bidi, client.style, &found, before, after, grown);
        free(found.message);
      }
    }
  }
  return atomic_load(&failures) ? 1 : 0;
}
