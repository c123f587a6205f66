/* Records the events of a call's hops. Each event is checked at once: one callback at a time, on the right thread, none
 * after destroy. Once the call has ended, the record is checked against laws 1 to 3. */
#include "laws.h"

#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

atomic_int failures;
static pthread_mutex_t print_mutex = PTHREAD_MUTEX_INITIALIZER;

static void print_hops(trial *trial) {
  static const char *const names[] = {"none",   "start",  "send",   "half_close", "headers", "receive",
                                      "status", "cancel", "demand", "sent",       "create",  "destroy"};
  static const char *const places[] = {"driving", "serial", "pool", "inline", "refusing"};
  for (int i = 0; i < trial->hop_count; i++) {
    hop_record *hop = &trial->hops[i];
    printf("  hop %d (registration %d, %s and %s):", i, hop->number, places[hop->places[outbound]],
           places[hop->places[inbound]]);
    for (int k = 0; k < hop->count && k < max_trace; k++) {
      printf(" %s", names[hop->seen[k] < 12 ? hop->seen[k] : 0]);
      if (hop->verdicts[k]) printf("(%d)", (int)hop->verdicts[k]);
    }
    printf("\n");
  }
}

void broken(trial *trial, const char *law, const char *format, ...) {
  pthread_mutex_lock(&print_mutex);
  atomic_fetch_add(&failures, 1);
  printf("call %llu breaks %s: ", (unsigned long long)(trial ? trial->call_id : 0), law);
  va_list arguments;
  va_start(arguments, format);
  vprintf(format, arguments);
  va_end(arguments);
  printf("\n");
  if (trial) print_hops(trial);
  fflush(stdout);
  pthread_mutex_unlock(&print_mutex);
}

trial *trial_new(void) {
  trial *fresh = calloc(1, sizeof(*fresh));
  if (!fresh) abort();
  pthread_mutex_init(&fresh->mutex, NULL);
  pthread_cond_init(&fresh->changed, NULL);
  return fresh;
}

void trial_free(trial *trial) {
  while (atomic_load(&trial->inside)) sched_yield();
  for (int i = 0; i < trial->hop_count; i++) pthread_mutex_destroy(&trial->hops[i].mutex);
  pthread_cond_destroy(&trial->changed);
  pthread_mutex_destroy(&trial->mutex);
  free(trial);
}

bool runs_elsewhere(const hop_record *hop) {
  return hop->places[outbound] != place_driving || hop->places[inbound] != place_driving;
}

static bool refuses(const hop_record *hop) {
  return hop->places[outbound] == place_refusing || hop->places[inbound] == place_refusing;
}

int lane_of(int32_t event) {
  switch (event) {
  case PENSTOCK_EVENT_START:
  case PENSTOCK_EVENT_SEND:
  case PENSTOCK_EVENT_HALF_CLOSE:
  case PENSTOCK_EVENT_SENT:
    return outbound;
  default:
    return inbound;
  }
}

int record(hop_record *hop, int32_t event) {
  if (atomic_load(&hop->destroyed)) broken(hop->trial, "law 2", "event %d after destroy", (int)event);
  pthread_mutex_lock(&hop->mutex);
  int index = -1;
  if (hop->count < max_trace) {
    index = hop->count;
    hop->seen[index] = (uint8_t)event;
    hop->order[index] = atomic_fetch_add(&hop->trial->clock, 1);
    hop->verdicts[index] = 0;
    hop->count++;
  }
  pthread_mutex_unlock(&hop->mutex);
  return index;
}

void record_verdict(hop_record *hop, int index, int32_t verdict) {
  if (index < 0) return;
  pthread_mutex_lock(&hop->mutex);
  hop->verdicts[index] = verdict;
  pthread_mutex_unlock(&hop->mutex);
}

/* Gives a lane's index in `running`. If both lanes of a hop run on one executor, or on the driving thread, one callback
 * runs at a time, so both have one index. */
static int turn_of(const hop_record *hop, int lane) {
  return hop->places[outbound] == hop->places[inbound] ? outbound : lane;
}

void enter(hop_record *hop, int lane, int32_t event) {
  int turn = turn_of(hop, lane);
  int32_t other = atomic_exchange(&hop->running[turn], event);
  if (other) broken(hop->trial, "law 1", "event %d of a hop while its event %d runs", (int)event, (int)other);
  if (!is_at(hop->places[lane])) broken(hop->trial, "executors", "a callback on another's thread");
}

void leave(hop_record *hop, int lane) { atomic_store(&hop->running[turn_of(hop, lane)], 0); }

/* ---- After the call ---- */

static int find(const hop_record *hop, int32_t event) {
  for (int i = 0; i < hop->count; i++)
    if (hop->seen[i] == event) return i;
  return -1;
}

static int count_of(const hop_record *hop, int32_t event) {
  int n = 0;
  for (int i = 0; i < hop->count; i++) n += hop->seen[i] == event;
  return n;
}

static bool only_after(const hop_record *hop, int32_t event, int32_t first) {
  int start = find(hop, first);
  for (int i = 0; i < hop->count; i++)
    if (hop->seen[i] == event && (start < 0 || i < start)) return false;
  return true;
}

/* The hop above hop i: the one that was entered just before it. NULL: none was, or a synchronous function has called next
 * again between the two, so that the hop above is not known. */
static hop_record *above_of(trial *trial, int i) {
  return i > 0 && trial->hops[i - 1].run == trial->hops[i].run ? &trial->hops[i - 1] : NULL;
}

/* A hop gets both on_status and on_cancel only if the status still waited at it when the call was ended from above. */
static void check_overtaken(trial *trial, int i) {
  hop_record *hop = &trial->hops[i];
  int status = find(hop, PENSTOCK_EVENT_STATUS), cancel = find(hop, PENSTOCK_EVENT_CANCEL);
  if (status < 0 || cancel < 0 || runs_elsewhere(hop)) return;
  if (hop->verdicts[status] != PENSTOCK_PAUSE && hop->verdicts[status] != PENSTOCK_HOLD) {
    /* The status may wait behind a message that the hop does not see. */
    bool is_behind = !registrations[hop->number].sees_receives;
    for (int k = 0; k < status; k++)
      is_behind |= hop->verdicts[k] == PENSTOCK_HOLD || hop->seen[k] == PENSTOCK_EVENT_RECEIVE;
    if (!is_behind) broken(trial, "law 2", "hop %d: on_cancel after the status has passed", i);
  }
  /* If the status had passed, the hop above would have seen it before. */
  hop_record *above = above_of(trial, i);
  int seen = above && !runs_elsewhere(above) ? find(above, PENSTOCK_EVENT_STATUS) : -1;
  if (seen >= 0 && above->order[seen] < hop->order[cancel])
    broken(trial, "law 2", "hop %d: on_cancel after the status has come to hop %d", i, i - 1);
}

static void check_ends(trial *trial, int i) {
  hop_record *hop = &trial->hops[i];
  int last = hop->count - 1;
  bool finished = atomic_load(&hop->finished), may_finish = atomic_load(&hop->may_finish) || refuses(hop);
  if (count_of(hop, PENSTOCK_EVENT_DESTROY) != 1 || hop->seen[last] != PENSTOCK_EVENT_DESTROY)
    broken(trial, "law 2", "hop %d: destroy is not there once, last", i);
  int statuses = count_of(hop, PENSTOCK_EVENT_STATUS), cancels = count_of(hop, PENSTOCK_EVENT_CANCEL);
  if (statuses > 1 || cancels > 1) broken(trial, "law 2", "hop %d: on_status or on_cancel twice", i);
  check_overtaken(trial, i);
  if (!statuses && !cancels && !finished && !may_finish)
    broken(trial, "law 2", "hop %d: neither on_status nor on_cancel, and it did not end the call", i);
  if (finished && cancels) broken(trial, "law 2", "hop %d: on_cancel, though it ended the call", i);
  /* Law 3: the hop above sees the end that this hop has made. */
  hop_record *above = above_of(trial, i);
  if (!finished || !above) return;
  if (find(above, PENSTOCK_EVENT_STATUS) < 0 && find(above, PENSTOCK_EVENT_CANCEL) < 0 &&
      !atomic_load(&above->finished) && !atomic_load(&above->may_finish) && !refuses(above))
    broken(trial, "law 3", "hop %d does not see the status of hop %d", i - 1, i);
}

/* Law 1: checks the required order of events. A cancel does not wait for callbacks on executors. */
static void check_order(trial *trial, int i) {
  hop_record *hop = &trial->hops[i];
  if (hop->seen[0] != PENSTOCK_EVENT_CREATE || count_of(hop, PENSTOCK_EVENT_CREATE) != 1)
    broken(trial, "law 1", "hop %d: create is not there once, first", i);
  if (hop->count > 1 && hop->seen[1] != PENSTOCK_EVENT_START && !runs_elsewhere(hop))
    broken(trial, "law 1", "hop %d: start is not next", i);
  int starts = count_of(hop, PENSTOCK_EVENT_START);
  if (starts > 1 || (starts == 0 && !refuses(hop))) broken(trial, "law 1", "hop %d: not one start", i);
  if (!only_after(hop, PENSTOCK_EVENT_SEND, PENSTOCK_EVENT_START) ||
      !only_after(hop, PENSTOCK_EVENT_HALF_CLOSE, PENSTOCK_EVENT_START) ||
      !only_after(hop, PENSTOCK_EVENT_HEADERS, PENSTOCK_EVENT_START) ||
      !only_after(hop, PENSTOCK_EVENT_RECEIVE, PENSTOCK_EVENT_START))
    broken(trial, "law 1", "hop %d: an event before start", i);
  if (count_of(hop, PENSTOCK_EVENT_HALF_CLOSE) > 1 || count_of(hop, PENSTOCK_EVENT_HEADERS) > 1)
    broken(trial, "law 1", "hop %d: half-close or headers twice", i);
  int half_close = find(hop, PENSTOCK_EVENT_HALF_CLOSE), status = find(hop, PENSTOCK_EVENT_STATUS);
  for (int k = half_close + 1; half_close >= 0 && k < hop->count; k++)
    if (hop->seen[k] == PENSTOCK_EVENT_SEND) broken(trial, "law 1", "hop %d: a message after half-close", i);
  for (int k = status + 1; status >= 0 && k < hop->count; k++)
    if (hop->seen[k] == PENSTOCK_EVENT_RECEIVE || hop->seen[k] == PENSTOCK_EVENT_HEADERS)
      broken(trial, "law 1", "hop %d: an inbound event after the status", i);
  if (registrations[hop->number].sees_sends && !only_after(hop, PENSTOCK_EVENT_SENT, PENSTOCK_EVENT_SEND))
    broken(trial, "law 1", "hop %d: sent before a message", i);
}

static void check_late(trial *trial) {
  for (int i = 0; i < trial->hop_count; i++) {
    penstock_hop *hop = trial->hops[i].handle;
    if (penstock_hop_demand(hop, 1) != PENSTOCK_E_GONE) broken(trial, "law 2", "hop %d: demand after the end", i);
    if (penstock_hop_deliver(hop, "late", 4) != PENSTOCK_E_GONE)
      broken(trial, "law 2", "hop %d: a message after the end", i);
    if (!runs_elsewhere(&trial->hops[i]) && penstock_hop_event(hop) != PENSTOCK_EVENT_NONE)
      broken(trial, "law 2", "hop %d: an event after the end", i);
  }
  pthread_mutex_lock(&trial->mutex);
  for (int i = 0; i < trial->ticket_count; i++) {
    penstock_result result = penstock_ticket_resolve(trial->tickets[i], PENSTOCK_NEXT);
    if (result != PENSTOCK_E_GONE) broken(trial, "tickets", "a late ticket gives %s", penstock_result_name(result));
  }
  pthread_mutex_unlock(&trial->mutex);
}

/* Waits until the hops with executors are destroyed, which may be after the call's end; false, and a failure, if it
 * takes 60 s. */
static bool wait_for_executors(trial *trial) {
  struct timespec limit;
  clock_gettime(CLOCK_REALTIME, &limit);
  limit.tv_sec += 60;
  bool ended = true;
  pthread_mutex_lock(&trial->mutex);
  for (int i = 0; i < trial->hop_count && ended; i++)
    while (ended && runs_elsewhere(&trial->hops[i]) && !atomic_load(&trial->hops[i].destroyed))
      ended = pthread_cond_timedwait(&trial->changed, &trial->mutex, &limit) == 0;
  pthread_mutex_unlock(&trial->mutex);
  if (!ended) broken(trial, "law 2", "destroy has not come within 60 s");
  return ended;
}

void check_trial(trial *trial) {
  check_late(trial);
  if (!wait_for_executors(trial)) return;
  for (int i = 0; i < trial->hop_count; i++) {
    if (trial->hops[i].count < max_trace) {
      check_ends(trial, i);
      check_order(trial, i);
    }
    penstock_hop_release(trial->hops[i].handle);
  }
  check_sides(trial);
}
