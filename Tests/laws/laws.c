/* The laws of the chain through the C ABI, with real threads: random chains of recording interceptors on one channel,
 * random verdicts, tickets resolved and calls cancelled by other threads, interceptors added and removed meanwhile.
 * Every hop writes down what it sees; after each call its trace is checked law by law.
 *
 *   laws HOST:PORT     a penstock-peer
 *   LAWS_SEED, LAWS_CALLS (1500)
 *
 * Ends with `N passed, N failed`; N counts calls. */
#define _GNU_SOURCE 1
#include <penstock/penstock.h>

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { max_hops = 64, max_trace = 512, max_tickets = 256, call_threads = 4, helper_threads = 3 };

/* ---- Random, failures ---- */

static uint64_t seed;

static uint64_t mix(uint64_t *state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

static uint32_t below(uint64_t *state, uint32_t n) { return (uint32_t)((mix(state) >> 33) % n); }
static bool chance(uint64_t *state, uint32_t percent) { return below(state, 100) < percent; }

static pthread_mutex_t print_mutex = PTHREAD_MUTEX_INITIALIZER;
static atomic_int failures;
static atomic_int strays;

/* ---- What a call's hops see ---- */

typedef struct hop_record {
  struct trial *trial;
  penstock_hop *handle;
  uint64_t random;
  int number; /* the registration */
  int level;  /* how many hops of the call were entered before it */
  bool takes;
  atomic_bool destroyed;
  atomic_int running;
  int count;
  uint8_t seen[max_trace]; /* PENSTOCK_EVENT_... */
  uint64_t order[max_trace];
  int32_t verdicts[max_trace];
  int32_t code;    /* of the status or cancel that it saw */
  bool finished;   /* it ended the call itself, or was made to */
  bool may_finish; /* a ticket was resolved with a finish */
} hop_record;

typedef struct trial {
  pthread_mutex_t mutex;
  uint64_t call_id;
  int hop_count;
  hop_record hops[max_hops];
  atomic_uint_least64_t clock;
  penstock_ticket tickets[max_tickets];
  int ticket_count;
  bool ended;        /* the caller has the reply */
  atomic_int inside; /* helpers that use the trial */
} trial;

/* Calls find their trial by the metadata that they carry. */
enum { slot_count = 64 };
static struct {
  pthread_mutex_t mutex;
  trial *trial;
} slots[slot_count];

static void broken(trial *trial, const char *law, const char *format, ...) {
  pthread_mutex_lock(&print_mutex);
  atomic_fetch_add(&failures, 1);
  printf("call %llu breaks %s: ", (unsigned long long)(trial ? trial->call_id : 0), law);
  va_list arguments;
  va_start(arguments, format);
  vprintf(format, arguments);
  va_end(arguments);
  printf("\n");
  if (trial) {
    static const char *const names[] = {"none",   "start",  "send",   "half_close", "headers", "receive",
                                        "status", "cancel", "demand", "sent",       "create",  "destroy"};
    for (int i = 0; i < trial->hop_count; i++) {
      hop_record *hop = &trial->hops[i];
      printf("  hop %d (registration %d):", i, hop->number);
      for (int k = 0; k < hop->count && k < max_trace; k++) {
        printf(" %s", names[hop->seen[k] < 12 ? hop->seen[k] : 0]);
        if (hop->verdicts[k]) printf("(%d)", (int)hop->verdicts[k]);
      }
      printf("\n");
    }
  }
  fflush(stdout);
  pthread_mutex_unlock(&print_mutex);
}

/* ---- The registrations ---- */

typedef struct registration {
  int number;
  atomic_int finalized;
  atomic_int live; /* hops between create and destroy */
  bool sees_sends, sees_receives;
  int32_t priority;
} registration;

static void finalize(void *user_data) {
  registration *self = user_data;
  if (atomic_fetch_add(&self->finalized, 1) != 0)
    broken(NULL, "law 6", "registration %d: a second finalizer", self->number);
  if (atomic_load(&self->live) != 0) broken(NULL, "law 6", "registration %d: finalizer while hops live", self->number);
}

static void record(hop_record *hop, int32_t event) {
  if (atomic_load(&hop->destroyed)) broken(hop->trial, "law 2", "event %d after destroy", (int)event);
  if (hop->count >= max_trace) return;
  hop->seen[hop->count] = (uint8_t)event;
  hop->order[hop->count] = atomic_fetch_add(&hop->trial->clock, 1);
  hop->verdicts[hop->count] = 0;
  hop->count++;
}

static void enter(hop_record *hop) {
  if (atomic_exchange(&hop->running, 1)) broken(hop->trial, "law 1", "two callbacks of a hop at a time");
}

static void leave(hop_record *hop) { atomic_store(&hop->running, 0); }

static int32_t on_create(penstock_hop *hop, void *user_data, void **state) {
  registration *self = user_data;
  if (atomic_load(&self->finalized)) broken(NULL, "law 6", "registration %d: create after the finalizer", self->number);
  const void *value = NULL;
  size_t length = 0;
  if (penstock_metadata_get(penstock_hop_metadata(hop), "slot", 0, &value, &length) != PENSTOCK_OK) {
    atomic_fetch_add(&strays, 1);
    return PENSTOCK_SKIP;
  }
  int index = atoi(value);
  pthread_mutex_lock(&slots[index].mutex);
  trial *trial = slots[index].trial;
  pthread_mutex_unlock(&slots[index].mutex);
  if (!trial) {
    broken(NULL, "law 2", "create after the end of its call");
    return PENSTOCK_SKIP;
  }
  trial->call_id = penstock_hop_call_id(hop);
  uint64_t random = seed ^ ((uint64_t)self->number << 32) ^ penstock_hop_call_id(hop) * 977;
  if (chance(&random, 10)) return PENSTOCK_SKIP;
  if (trial->hop_count >= max_hops) return PENSTOCK_SKIP;
  hop_record *record_of = &trial->hops[trial->hop_count];
  memset(record_of, 0, sizeof(*record_of));
  record_of->trial = trial;
  record_of->random = random;
  record_of->number = self->number;
  record_of->level = trial->hop_count;
  record_of->handle = penstock_hop_retain(hop);
  record_of->code = -1;
  trial->hop_count++;
  atomic_fetch_add(&self->live, 1);
  record(record_of, PENSTOCK_EVENT_CREATE);
  *state = record_of;
  return PENSTOCK_NEXT;
}

/* Several registrations share the callbacks; this one finds its own by number. */
static registration registrations[4096];

static void on_destroy(penstock_hop *hop, void *state) {
  hop_record *self = state;
  (void)hop;
  enter(self);
  record(self, PENSTOCK_EVENT_DESTROY);
  if (atomic_exchange(&self->destroyed, true)) broken(self->trial, "law 2", "destroy twice");
  atomic_fetch_sub(&registrations[self->number].live, 1);
  leave(self);
}

/* A ticket, for this thread or another one to use. */
static penstock_ticket take_ticket(penstock_hop *hop, hop_record *self) {
  penstock_ticket ticket = penstock_hop_ticket(hop);
  if (!ticket) return 0;
  trial *trial = self->trial;
  pthread_mutex_lock(&trial->mutex);
  bool room = trial->ticket_count < max_tickets;
  if (room) trial->tickets[trial->ticket_count++] = ticket;
  pthread_mutex_unlock(&trial->mutex);
  /* What no helper knows is resumed by time. */
  if (!room || chance(&self->random, 20)) penstock_ticket_resume_after(ticket, below(&self->random, 4));
  return ticket;
}

static int32_t on_event(penstock_hop *hop, void *state) {
  hop_record *self = state;
  enter(self);
  int32_t event = penstock_hop_event(hop);
  record(self, event);
  int index = self->count - 1;
  int32_t verdict = PENSTOCK_NEXT;
  uint64_t *random = &self->random;
  bool is_lane = event >= PENSTOCK_EVENT_START && event <= PENSTOCK_EVENT_STATUS;
  if (event == PENSTOCK_EVENT_STATUS || event == PENSTOCK_EVENT_CANCEL) {
    penstock_status *status = penstock_hop_status(hop);
    self->code = status ? penstock_status_code(status) : -1;
    if (!status) broken(self->trial, "law 2", "no status in event %d", (int)event);
  }
  if (event == PENSTOCK_EVENT_CANCEL && penstock_hop_finish(hop, 0, NULL) != PENSTOCK_E_STATE)
    broken(self->trial, "law 2", "finish from on_cancel");
  if (self->finished && event != PENSTOCK_EVENT_DESTROY)
    broken(self->trial, "law 3", "event %d after its own finish", (int)event);
  if (is_lane) {
    if (event == PENSTOCK_EVENT_START && chance(random, 30))
      penstock_metadata_add(penstock_hop_metadata(hop), "via", "hop");
    uint32_t dice = below(random, 1000);
    if (dice < 60) {
      if (take_ticket(hop, self)) verdict = PENSTOCK_PAUSE;
    } else if (dice < 110) {
      if (take_ticket(hop, self)) verdict = PENSTOCK_HOLD;
    } else if (dice < 130 && event != PENSTOCK_EVENT_HALF_CLOSE && event != PENSTOCK_EVENT_STATUS) {
      verdict = PENSTOCK_HOLD;
    } else if (dice < 145 && (event == PENSTOCK_EVENT_SEND || event == PENSTOCK_EVENT_RECEIVE)) {
      verdict = PENSTOCK_DROP;
    } else if (dice < 155 && event == PENSTOCK_EVENT_START) {
      verdict = PENSTOCK_TAKE;
      self->takes = true;
    } else if (dice < 165) {
      /* Spent before the callback returns. */
      penstock_ticket ticket = penstock_hop_ticket(hop);
      if (ticket) {
        if (penstock_ticket_resume(ticket) != PENSTOCK_OK) broken(self->trial, "tickets", "early use");
        if (penstock_ticket_resume(ticket) != PENSTOCK_E_ALREADY) broken(self->trial, "tickets", "double use");
        verdict = PENSTOCK_PAUSE;
      }
    } else if (dice < 173) {
      penstock_result result = penstock_hop_finish(hop, 10, "finished");
      /* A local end can't be finished. */
      if (result == PENSTOCK_OK) self->finished = true;
    } else if (dice < 178) {
      verdict = 77; /* law 7 */
      /* Of a local end every verdict is NEXT. */
      if (event != PENSTOCK_EVENT_STATUS || penstock_hop_ticket(hop)) self->finished = true;
    } else if (dice < 200 && event == PENSTOCK_EVENT_RECEIVE) {
      penstock_hop_deliver_message(hop, "injected", 8);
    } else if (dice < 220 && event == PENSTOCK_EVENT_SEND) {
      penstock_hop_send_message(hop, "injected", 8);
    } else if (dice < 225) {
      penstock_hop_demand(hop, 1);
    }
  }
  /* The answer of a hop that has taken the call. */
  if (self->takes && event == PENSTOCK_EVENT_HALF_CLOSE) {
    penstock_hop_deliver_headers(hop, NULL);
    penstock_hop_deliver_message(hop, "taken", 5);
    penstock_status *status = NULL;
    penstock_status_new(0, NULL, &status);
    if (penstock_hop_deliver_status(hop, status) == PENSTOCK_OK) self->may_finish = true;
    if (penstock_hop_deliver_status(hop, status) == PENSTOCK_OK) broken(self->trial, "law 2", "two statuses delivered");
    penstock_status_release(status);
  }
  self->verdicts[index] = verdict;
  leave(self);
  return verdict;
}

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

static void check_trace(trial *trial, int32_t code) {
  for (int i = 0; i < trial->hop_count; i++) {
    hop_record *hop = &trial->hops[i];
    if (hop->count >= max_trace) continue;
    int last = hop->count - 1;
    /* Law 2. */
    if (count_of(hop, PENSTOCK_EVENT_DESTROY) != 1 || hop->seen[last] != PENSTOCK_EVENT_DESTROY)
      broken(trial, "law 2", "hop %d: destroy is not there once, last", i);
    int statuses = count_of(hop, PENSTOCK_EVENT_STATUS), cancels = count_of(hop, PENSTOCK_EVENT_CANCEL);
    if (statuses > 1 || cancels > 1) broken(trial, "law 2", "hop %d: on_status or on_cancel twice", i);
    /* A status that passed, or on_cancel; both only if the status was parked when a hand above ended the call. */
    int status = find(hop, PENSTOCK_EVENT_STATUS);
    if (statuses && cancels && hop->verdicts[status] != PENSTOCK_PAUSE && hop->verdicts[status] != PENSTOCK_HOLD) {
      /* Behind a message, perhaps, that it does not see. */
      bool is_behind = !registrations[hop->number].sees_receives;
      for (int k = 0; k < status; k++)
        is_behind |= hop->verdicts[k] == PENSTOCK_HOLD || hop->seen[k] == PENSTOCK_EVENT_RECEIVE;
      if (!is_behind) broken(trial, "law 2", "hop %d: on_cancel after the status has passed", i);
    }
    if (!statuses && !cancels && !hop->finished && !hop->may_finish)
      broken(trial, "law 2", "hop %d: neither on_status nor on_cancel, and it did not end the call", i);
    if (hop->finished && cancels) broken(trial, "law 2", "hop %d: on_cancel, though it ended the call", i);
    /* Law 1, by what must be before what. */
    if (hop->seen[0] != PENSTOCK_EVENT_CREATE || count_of(hop, PENSTOCK_EVENT_CREATE) != 1)
      broken(trial, "law 1", "hop %d: create is not there once, first", i);
    if (hop->count > 1 && hop->seen[1] != PENSTOCK_EVENT_START) broken(trial, "law 1", "hop %d: start is not next", i);
    if (count_of(hop, PENSTOCK_EVENT_START) != 1) broken(trial, "law 1", "hop %d: not one start", i);
    if (count_of(hop, PENSTOCK_EVENT_HALF_CLOSE) > 1 || count_of(hop, PENSTOCK_EVENT_HEADERS) > 1)
      broken(trial, "law 1", "hop %d: half-close or headers twice", i);
    int half_close = find(hop, PENSTOCK_EVENT_HALF_CLOSE);
    for (int k = half_close + 1; half_close >= 0 && k < hop->count; k++)
      if (hop->seen[k] == PENSTOCK_EVENT_SEND) broken(trial, "law 1", "hop %d: a message after half-close", i);
    for (int k = status + 1; status >= 0 && k < hop->count; k++)
      if (hop->seen[k] == PENSTOCK_EVENT_RECEIVE || hop->seen[k] == PENSTOCK_EVENT_HEADERS)
        broken(trial, "law 1", "hop %d: an inbound event after the status", i);
    if (registrations[hop->number].sees_sends && !only_after(hop, PENSTOCK_EVENT_SENT, PENSTOCK_EVENT_SEND))
      broken(trial, "law 1", "hop %d: sent before a message", i);
    /* An open pause stops the lane: nothing to see in it until the ticket is used; that is the model's to check. */
    /* Law 3: where the hop above sees this hop's own finish. */
    if (hop->finished && i > 0 && trial->hops[i - 1].level == i - 1) {
      hop_record *above = &trial->hops[i - 1];
      if (find(above, PENSTOCK_EVENT_STATUS) < 0 && find(above, PENSTOCK_EVENT_CANCEL) < 0 && !above->finished &&
          !above->may_finish)
        broken(trial, "law 3", "hop %d does not see the status of hop %d", i - 1, i);
    }
    /* Priority: higher ones are entered earlier. Changes while the call was created are either order. */
    penstock_hop_release(hop->handle);
  }
  (void)code;
}

static void check_late(trial *trial) {
  for (int i = 0; i < trial->hop_count; i++) {
    penstock_hop *hop = trial->hops[i].handle;
    if (penstock_hop_demand(hop, 1) != PENSTOCK_E_GONE) broken(trial, "law 2", "hop %d: demand after the end", i);
    if (penstock_hop_deliver_message(hop, "late", 4) != PENSTOCK_E_GONE)
      broken(trial, "law 2", "hop %d: a message after the end", i);
    if (penstock_hop_event(hop) != PENSTOCK_EVENT_NONE) broken(trial, "law 2", "hop %d: an event after the end", i);
  }
  for (int i = 0; i < trial->ticket_count; i++) {
    penstock_result result = penstock_ticket_resume(trial->tickets[i]);
    if (result != PENSTOCK_E_GONE) broken(trial, "tickets", "a late ticket gives %s", penstock_result_name(result));
  }
}

/* ---- Threads ---- */

static penstock_channel *channel;
static atomic_int calls_left;
static atomic_int calls_done;
static atomic_int codes[17];
static atomic_bool stopping;
static atomic_uint_least64_t used[4]; /* tickets: OK, ALREADY, GONE, other */

/* Uses any ticket of any call: live, spent or late. */
static void *help(void *argument) {
  uint64_t random = seed * 31 + (uintptr_t)argument;
  while (!atomic_load(&stopping)) {
    uint32_t index = below(&random, slot_count);
    pthread_mutex_lock(&slots[index].mutex);
    trial *trial = slots[index].trial;
    if (trial) atomic_fetch_add(&trial->inside, 1);
    pthread_mutex_unlock(&slots[index].mutex);
    if (!trial) {
      sched_yield();
      continue;
    }
    pthread_mutex_lock(&trial->mutex);
    penstock_ticket ticket = trial->ticket_count ? trial->tickets[below(&random, (uint32_t)trial->ticket_count)] : 0;
    pthread_mutex_unlock(&trial->mutex);
    if (ticket) {
      for (uint32_t spin = below(&random, 4); spin > 0; spin--) sched_yield();
      uint32_t dice = below(&random, 100);
      penstock_result result;
      if (dice < 85) {
        result = penstock_ticket_resume(ticket);
      } else if (dice < 92) {
        result = penstock_ticket_drop(ticket);
        if (result == PENSTOCK_E_INVALID_ARGUMENT) result = penstock_ticket_resume(ticket);
      } else if (dice < 94) {
        result = penstock_ticket_resolve(ticket, PENSTOCK_PAUSE);
        if (result == PENSTOCK_OK) broken(trial, "tickets", "resolved with PAUSE");
      } else if (dice < 98) {
        penstock_event *event = NULL;
        result = penstock_ticket_event(ticket, &event);
        if (result == PENSTOCK_OK) {
          penstock_event_kind(event);
          penstock_event_release(event);
          result = penstock_ticket_resume(ticket);
        }
      } else {
        result = penstock_ticket_resume_after(ticket, below(&random, 3));
      }
      atomic_fetch_add(&used[result == PENSTOCK_OK          ? 0
                             : result == PENSTOCK_E_ALREADY ? 1
                             : result == PENSTOCK_E_GONE    ? 2
                                                            : 3],
                       1);
    }
    atomic_fetch_sub(&trial->inside, 1);
    sched_yield();
  }
  return NULL;
}

static atomic_int next_registration;

static bool add_one(uint64_t *random, penstock_interceptor_id *id) {
  int mine = atomic_fetch_add(&next_registration, 1);
  if (mine >= (int)(sizeof(registrations) / sizeof(registrations[0]))) return false;
  registration *self = &registrations[mine];
  self->number = mine;
  self->priority = (int32_t)below(random, 5);
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  char name[32];
  snprintf(name, sizeof(name), "registration-%d", mine);
  table.name = name;
  table.user_data = self;
  table.finalizer = finalize;
  table.create = on_create;
  table.destroy = on_destroy;
  table.on_start = on_event;
  table.on_status = on_event;
  table.on_cancel = on_event;
  self->sees_sends = chance(random, 85);
  table.on_send = self->sees_sends ? on_event : NULL;
  table.on_half_close = chance(random, 85) ? on_event : NULL;
  table.on_headers = chance(random, 85) ? on_event : NULL;
  self->sees_receives = chance(random, 85);
  table.on_receive = self->sees_receives ? on_event : NULL;
  table.on_demand = chance(random, 50) ? on_event : NULL;
  table.on_sent = chance(random, 50) ? on_event : NULL;
  if (chance(random, 20)) table.methods = "/penstock.Echo/Bidi,/penstock.Echo/Un*";
  penstock_error *error = NULL;
  if (penstock_channel_add_interceptor(channel, &table, self->priority, id, &error) != PENSTOCK_OK) {
    broken(NULL, "law 6", "add: %s", penstock_error_message(error));
    penstock_error_release(error);
    return false;
  }
  return true;
}

/* Adds, removes and moves interceptors while calls run. */
static void *change(void *argument) {
  uint64_t random = seed * 17 + (uintptr_t)argument;
  penstock_interceptor_id ids[8];
  int live = 0;
  while (!atomic_load(&stopping)) {
    uint32_t dice = below(&random, 10);
    if (live < 4 || (live < 8 && dice < 4)) {
      if (!add_one(&random, &ids[live])) {
        if (live == 0) break;
        struct timespec nap = {0, 1000000};
        nanosleep(&nap, NULL);
        continue;
      }
      live++;
    } else if (dice < 7) {
      uint32_t pick = below(&random, (uint32_t)live);
      if (penstock_channel_remove_interceptor(channel, ids[pick], NULL) != PENSTOCK_OK) broken(NULL, "law 6", "remove");
      if (penstock_channel_remove_interceptor(channel, ids[pick], NULL) != PENSTOCK_E_NOT_FOUND)
        broken(NULL, "law 6", "a second remove");
      live--;
      ids[pick] = ids[live];
    } else {
      uint32_t pick = below(&random, (uint32_t)live);
      penstock_channel_set_interceptor_priority(channel, ids[pick], (int32_t)below(&random, 5), NULL);
    }
    /* Some calls see each chain. */
    struct timespec nap = {0, 700000};
    nanosleep(&nap, NULL);
  }
  for (int i = 0; i < live; i++) penstock_channel_remove_interceptor(channel, ids[i], NULL);
  return NULL;
}

typedef struct canceller {
  penstock_call *call;
  uint32_t yields;
} canceller;

static void *cancel_soon(void *argument) {
  canceller *self = argument;
  for (uint32_t i = 0; i < self->yields; i++) sched_yield();
  penstock_call_cancel(self->call, "by another thread");
  return NULL;
}

static void run_call(trial *trial, int slot, uint64_t *random) {
  static const char *const methods[] = {"/penstock.Echo/Unary", "/penstock.Echo/ClientStream",
                                        "/penstock.Echo/ServerStream", "/penstock.Echo/Bidi"};
  int32_t kind = (int32_t)below(random, 4);
  char json[128];
  /* A deadline ends what is paused for ever, and what waits for a held start. */
  snprintf(json, sizeof(json), "{\"deadline_ms\": %u, \"metadata\": {\"slot\": \"%d\"}}",
           chance(random, 25) ? 1 + below(random, 20) : 300 + below(random, 300), slot);
  penstock_call_options *options = NULL;
  penstock_error *error = NULL;
  if (penstock_call_options_new(json, &options, &error) != PENSTOCK_OK) {
    broken(trial, "options", "%s", penstock_error_message(error));
    penstock_error_release(error);
    return;
  }
  penstock_reply *reply = NULL;
  if (kind == PENSTOCK_KIND_UNARY && chance(random, 60)) {
    if (penstock_channel_unary(channel, methods[kind], "hello", 5, options, &reply, &error) != PENSTOCK_OK) {
      broken(trial, "unary", "%s", penstock_error_message(error));
      penstock_error_release(error);
    }
  } else {
    penstock_call *call = NULL;
    if (penstock_channel_call(channel, methods[kind], kind, options, NULL, &call, &error) != PENSTOCK_OK) {
      broken(trial, "call", "%s", penstock_error_message(error));
      penstock_error_release(error);
      penstock_call_options_release(options);
      return;
    }
    bool cancels = chance(random, 15);
    canceller canceller = {call, below(random, 200)};
    pthread_t thread;
    if (cancels && pthread_create(&thread, NULL, cancel_soon, &canceller) != 0) cancels = false;
    bool sends_one = kind == PENSTOCK_KIND_UNARY || kind == PENSTOCK_KIND_SERVER_STREAM;
    uint32_t messages = sends_one ? 1 : below(random, 5);
    char content[64];
    for (uint32_t i = 0; i < messages; i++) {
      int length = snprintf(content, sizeof(content), "message %u", i);
      if (penstock_call_send(call, content, (size_t)length) != PENSTOCK_OK) break;
      if (kind == PENSTOCK_KIND_BIDI && chance(random, 50)) {
        penstock_message *message = NULL;
        if (penstock_call_receive(call, &message) != PENSTOCK_OK) break;
        penstock_message_release(message);
      }
    }
    penstock_call_half_close(call);
    if (chance(random, 50)) {
      penstock_message *message = NULL;
      while (penstock_call_receive(call, &message) == PENSTOCK_OK) penstock_message_release(message);
    }
    if (penstock_call_finish(call, &reply) != PENSTOCK_OK) broken(trial, "law 2", "finish gives no reply");
    penstock_reply *again = NULL;
    if (penstock_call_reply(call, &again) != PENSTOCK_OK || penstock_reply_code(again) != penstock_reply_code(reply))
      broken(trial, "law 2", "another reply the second time");
    penstock_reply_release(again);
    if (cancels) pthread_join(thread, NULL);
    penstock_call_release(call);
  }
  penstock_call_options_release(options);
  if (!reply) return;
  int32_t code = penstock_reply_code(reply);
  if (code >= 0 && code <= 16) atomic_fetch_add(&codes[code], 1);
  check_late(trial);
  check_trace(trial, code);
  penstock_reply_release(reply);
}

static void *call_many(void *argument) {
  uintptr_t number = (uintptr_t)argument;
  uint64_t random = seed * 101 + number;
  int turn = 0;
  while (atomic_fetch_sub(&calls_left, 1) > 0) {
    /* Slots are used in turn, so that what comes late to an old call does not find the next one. */
    int slot = (int)number * (slot_count / call_threads) + turn++ % (slot_count / call_threads);
    trial *fresh = calloc(1, sizeof(*fresh));
    pthread_mutex_init(&fresh->mutex, NULL);
    pthread_mutex_lock(&slots[slot].mutex);
    slots[slot].trial = fresh;
    pthread_mutex_unlock(&slots[slot].mutex);
    int before = atomic_load(&failures);
    run_call(fresh, slot, &random);
    if (atomic_load(&failures) == before) atomic_fetch_add(&calls_done, 1);
    pthread_mutex_lock(&slots[slot].mutex);
    slots[slot].trial = NULL;
    pthread_mutex_unlock(&slots[slot].mutex);
    while (atomic_load(&fresh->inside)) sched_yield();
    pthread_mutex_destroy(&fresh->mutex);
    free(fresh);
    if (atomic_load(&failures) >= 5) break;
  }
  return NULL;
}

int main(int argc, char **argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: laws HOST:PORT\n");
    return 2;
  }
  const char *text = getenv("LAWS_SEED");
  seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);
  text = getenv("LAWS_CALLS");
  int calls = text ? atoi(text) : 1500;
  atomic_store(&calls_left, calls);
  printf("LAWS_SEED=%llu\n", (unsigned long long)seed);
  fflush(stdout);
  for (int i = 0; i < slot_count; i++) pthread_mutex_init(&slots[i].mutex, NULL);
  penstock_error *error = NULL;
  if (penstock_channel_new(argv[1], "{\"tls\": false}", &channel, &error) != PENSTOCK_OK) {
    printf("%s\n0 passed, 1 failed\n", penstock_error_message(error));
    return 1;
  }
  pthread_t callers[call_threads], helpers[helper_threads], changer;
  pthread_create(&changer, NULL, change, (void *)1);
  for (uintptr_t i = 0; i < helper_threads; i++) pthread_create(&helpers[i], NULL, help, (void *)i);
  for (uintptr_t i = 0; i < call_threads; i++) pthread_create(&callers[i], NULL, call_many, (void *)i);
  for (int i = 0; i < call_threads; i++) pthread_join(callers[i], NULL);
  atomic_store(&stopping, true);
  for (int i = 0; i < helper_threads; i++) pthread_join(helpers[i], NULL);
  pthread_join(changer, NULL);

  /* Law 6: every one was removed, and every call has ended. The reply comes after destroy; a finalizer may follow. */
  int total = atomic_load(&next_registration);
  int limit = (int)(sizeof(registrations) / sizeof(registrations[0]));
  if (total > limit) total = limit;
  penstock_channel_release(channel);
  for (int tries = 0; tries < 2000; tries++) {
    int open = 0;
    for (int i = 0; i < total; i++) open += atomic_load(&registrations[i].finalized) == 0;
    if (!open) break;
    struct timespec nap = {0, 1000000};
    nanosleep(&nap, NULL);
  }
  for (int i = 0; i < total; i++) {
    if (atomic_load(&registrations[i].finalized) != 1)
      broken(NULL, "law 6", "registration %d: %d finalizers", i, atomic_load(&registrations[i].finalized));
    if (atomic_load(&registrations[i].live) != 0) broken(NULL, "law 2", "registration %d: hops without destroy", i);
  }
  printf("%d registrations; tickets: %llu ok, %llu already, %llu gone, %llu other; codes:", total,
         (unsigned long long)used[0], (unsigned long long)used[1], (unsigned long long)used[2],
         (unsigned long long)used[3]);
  for (int i = 0; i < 17; i++)
    if (atomic_load(&codes[i])) printf(" %s %d", penstock_status_code_name(i), atomic_load(&codes[i]));
  printf("\n");
  int failed = atomic_load(&failures);
  printf("%d passed, %d failed\n", atomic_load(&calls_done), failed);
  return failed ? 1 : 0;
}
