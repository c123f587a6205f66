#include "demo_report.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- Printing ---- */

static int in_color;
static int held, failed;

static const char *color(const char *code) { return in_color ? code : ""; }
#define BOLD    color("\033[1m")
#define DIM     color("\033[2m")
#define RED     color("\033[31m")
#define GREEN   color("\033[32m")
#define CYAN    color("\033[36m")
#define MAGENTA color("\033[35m")
#define PLAIN   color("\033[0m")

void begin(const char *target) {
  in_color = isatty(STDOUT_FILENO);
  printf("%spenstock %s, in C, with %s%s\n", BOLD, penstock_version(), target, PLAIN);
}

void title(const char *text) { printf("\n%s%s%s\n", BOLD, text, PLAIN); }

void remark(const char *text) { printf("    %s%s%s\n", DIM, text, PLAIN); }

void expect(int holds, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  printf("    %s%s%s ", holds ? GREEN : RED, holds ? "ok    " : "FAILED", PLAIN);
  vprintf(format, arguments);
  putchar('\n');
  va_end(arguments);
  if (holds)
    held++;
  else
    failed++;
}

int sum_up(void) {
  printf("\n%s%d expectations held, %d failed%s\n", failed ? RED : GREEN, held, failed, PLAIN);
  return failed ? 1 : 0;
}

/* ---- Traces ---- */

enum { SEEN_LIMIT = 96, LINE = 128 };

typedef struct {
  const char *who;
  int32_t event;
  char what[40];
} sight;

struct trace {
  size_t count;
  sight seen[SEEN_LIMIT];
};

/* Gives the trace of the hop's call, and makes it at the first use. The trace is a value of the call, so the call's
 * hops and its caller share it. */
static trace *trace_of(penstock_hop *hop) {
  trace *found = penstock_hop_value(hop, "demo.trace");
  if (found == NULL) {
    found = calloc(1, sizeof *found);
    if (penstock_hop_set_value(hop, "demo.trace", found, free) != PENSTOCK_OK) return NULL;
  }
  return found;
}

void note(penstock_hop *hop, const char *who) {
  trace *all = trace_of(hop);
  if (all == NULL || all->count == SEEN_LIMIT) return;
  sight *one = &all->seen[all->count++];
  const void *data;
  size_t length;
  one->who = who;
  one->event = penstock_hop_event(hop);
  if (one->event == PENSTOCK_EVENT_START)
    snprintf(one->what, sizeof one->what, "%s", penstock_request_method(penstock_hop_request(hop)));
  else if ((data = penstock_message_bytes(penstock_hop_message(hop), &length)) != NULL)
    snprintf(one->what, sizeof one->what, "\"%.*s\"", (int)length, (const char *)data);
  else if (penstock_hop_status(hop) != NULL)
    snprintf(one->what, sizeof one->what, "%s",
             penstock_status_code_name(penstock_status_code(penstock_hop_status(hop))));
}

const trace *trace_in(const penstock_reply *reply) { return penstock_reply_value(reply, "demo.trace"); }

static int is_outbound(int32_t event) { return event <= PENSTOCK_EVENT_HALF_CLOSE; }

static const char *event_name(int32_t event) {
  static const char *const names[] = {"none", "start", "message", "half-close", "headers", "message", "status"};
  return event <= PENSTOCK_EVENT_STATUS ? names[event] : "signal";
}

/* The number of entries, from `first` on, that record one event on its way through the hops: they have the same kind of
 * event, and no hop occurs twice. */
static size_t passage(const trace *all, size_t first) {
  size_t end = first + 1;
  for (; end < all->count && all->seen[end].event == all->seen[first].event; end++)
    for (size_t i = first; i < end; i++)
      if (strcmp(all->seen[i].who, all->seen[end].who) == 0) return end - first;
  return end - first;
}

static const char *hops(const trace *all, size_t first, size_t count, char line[LINE]) {
  size_t used = 0;
  line[0] = 0;
  for (size_t i = first; i < first + count && used < LINE; i++)
    used += (size_t)snprintf(line + used, LINE - used, "%s%s", i > first ? " > " : "", all->seen[i].who);
  return line;
}

void show(const trace *all) {
  char line[LINE];
  for (size_t i = 0, count; all != NULL && i < all->count; i += count) {
    const sight *first = &all->seen[i];
    count = passage(all, i);
    const sight *last = &all->seen[i + count - 1];
    int out = is_outbound(first->event);
    printf("    %s%s %-11s%s ", out ? CYAN : MAGENTA, out ? "->" : "<-", event_name(first->event), PLAIN);
    printf(first->what[0] ? "%-28s " : "%s", hops(all, i, count, line));
    printf("%s%s", DIM, first->what);
    if (strcmp(first->what, last->what) != 0) printf(" => %s", last->what);
    printf("%s\n", PLAIN);
  }
}

int went(const trace *all, int32_t event, const char *expected) {
  char line[LINE];
  int times = 0;
  for (size_t i = 0, count; all != NULL && i < all->count; i += count) {
    count = passage(all, i);
    if (all->seen[i].event != event) continue;
    if (strcmp(hops(all, i, count, line), expected) != 0) return 0;
    times++;
  }
  return times > 0;
}
