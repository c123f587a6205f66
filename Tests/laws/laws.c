/* The laws of the chain through the C ABI, with real threads: random chains of recording interceptors on one channel,
 * random verdicts, callbacks on executors, synchronous functions, redirects, calls made by hops; other threads resolve
 * tickets and cancel calls, unary ones by their options, and add and remove interceptors. Every hop records its events;
 * after each call the trace is checked law by law.
 *
 *   laws HOST:PORT     a penstock-peer
 *   LAWS_SEED, LAWS_CALLS (1500)
 *   LAWS_CHANNEL       the options of the channel; {"tls": false} by default
 *   LAWS_OTHER         the options of the channel to which hops redirect calls; those of the first by default
 *   LAWS_HALF_DUPLEX   if set, no call receives before its half-close
 *
 * Ends with `N passed, N failed`; N counts calls. */
#define _GNU_SOURCE 1
#include "laws.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

uint64_t seed;

uint64_t mix(uint64_t *state) {
  uint64_t z = *state += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

uint32_t below(uint64_t *state, uint32_t n) { return (uint32_t)((mix(state) >> 33) % n); }
bool chance(uint64_t *state, uint32_t percent) { return below(state, 100) < percent; }

penstock_channel *channels[2];
char targets[2][64];
enum { changes_per_call = 3 };
static atomic_int calls_left, calls_begun;
static atomic_int calls_done;
static atomic_int codes[17];
static atomic_int answers; /* answers of the server that callers got */
static atomic_bool stopping;
static bool half_duplex;
static atomic_uint_least64_t used[4]; /* how often the use of a ticket gave OK, ALREADY, GONE, or another result */

/* Gives the trial (this program's record of a call) of some open call, or NULL. The trial exists at least until the
 * helper has left it. */
static trial *any_trial(uint64_t *random) {
  uint32_t count = slot_count + side_slot_count, first = below(random, count);
  for (uint32_t i = 0; i < count; i++) {
    slot *slot = &slots[(first + i) % count];
    pthread_mutex_lock(&slot->mutex);
    trial *trial = slot->trial;
    if (trial) atomic_fetch_add(&trial->inside, 1);
    pthread_mutex_unlock(&slot->mutex);
    if (trial) return trial;
  }
  return NULL;
}

/* The function of a helper thread: uses any ticket of any call, live, spent or late. */
static void *help(void *argument) {
  uint64_t random = seed * 31 + (uintptr_t)argument;
  while (!atomic_load(&stopping)) {
    trial *trial = any_trial(&random);
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
        result = penstock_ticket_resolve(ticket, PENSTOCK_NEXT);
      } else if (dice < 92) {
        result = penstock_ticket_resolve(ticket, PENSTOCK_DROP);
        if (result == PENSTOCK_E_INVALID_ARGUMENT) result = penstock_ticket_resolve(ticket, PENSTOCK_NEXT);
      } else if (dice < 94) {
        result = penstock_ticket_resolve(ticket, PENSTOCK_PAUSE);
        if (result == PENSTOCK_OK) broken(trial, "tickets", "resolved with PAUSE");
      } else if (dice < 98) {
        penstock_hop *bound = NULL;
        result = penstock_ticket_hop(ticket, &bound);
        if (result == PENSTOCK_OK) {
          penstock_hop_event(bound);
          penstock_hop_release(bound);
          result = penstock_ticket_resolve(ticket, PENSTOCK_NEXT);
        }
      } else {
        result = penstock_ticket_resolve_after(ticket, PENSTOCK_NEXT, below(&random, 3));
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

/* Adds, removes and moves interceptors while calls run, at most about three times for each call that has begun. */
static void *change(void *argument) {
  uint64_t random = seed * 17 + (uintptr_t)argument;
  penstock_interceptor_id ids[8];
  int live = 0;
  for (int changes = 0; !atomic_load(&stopping);) {
    if (changes > changes_per_call * (1 + atomic_load(&calls_begun))) {
      struct timespec nap = {0, 200000};
      nanosleep(&nap, NULL);
      continue;
    }
    changes++;
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
      if (penstock_registration_remove(ids[pick], NULL) != PENSTOCK_OK) broken(NULL, "law 6", "remove");
      if (penstock_registration_remove(ids[pick], NULL) != PENSTOCK_E_NOT_FOUND)
        broken(NULL, "law 6", "a second remove");
      live--;
      ids[pick] = ids[live];
    } else {
      uint32_t pick = below(&random, (uint32_t)live);
      penstock_registration_set_priority(ids[pick], (int32_t)below(&random, 5), NULL);
    }
  }
  for (int i = 0; i < live; i++) penstock_registration_remove(ids[i], NULL);
  return NULL;
}

/* Checks an answer that the caller gets. `answers` counts only those of the server, because hops answer too. */
static void read_answer(trial *trial, int *next, const void *data, size_t length) {
  int before = *next;
  read_content(trial, "the answer", next, data, length);
  if (*next > before) atomic_fetch_add(&answers, 1);
}

/* Receives and checks the next message; false: there is none. */
static bool receive_one(trial *trial, penstock_call *call, int *next) {
  penstock_message *message = NULL;
  if (penstock_call_receive(call, &message) != PENSTOCK_OK) return false;
  size_t length = 0;
  const void *data = penstock_message_bytes(message, &length);
  read_answer(trial, next, data, length);
  penstock_message_release(message);
  return true;
}

/* Receives and checks one message or a few; false: there is none. */
static bool receive_some(trial *trial, penstock_call *call, int *next, uint64_t *random) {
  char room[512];
  size_t lengths[3], count = 0, used = 0;
  if (chance(random, 50)) return receive_one(trial, call, next);
  penstock_result result = penstock_call_receive_many(call, 1 + below(random, 3), room, sizeof(room), lengths, &count);
  if (result == PENSTOCK_E_TOO_LARGE) return receive_one(trial, call, next);
  if (result != PENSTOCK_OK) return false;
  for (size_t i = 0; i < count; used += lengths[i++]) read_answer(trial, next, room + used, lengths[i]);
  return true;
}

/* Sends the messages from `first` to `end`, in one call of the API. */
static void send_rest(penstock_call *call, uint32_t first, uint32_t end) {
  char content[256];
  size_t lengths[8], count = 0, used = 0, sent = 0;
  for (uint32_t i = first; i < end; i++, count++)
    used += lengths[count] = (size_t)snprintf(content + used, sizeof(content) - used, "message %u", i);
  penstock_call_send_many(call, content, lengths, count, &sent);
}

static void run_call(trial *trial, int slot, uint64_t *random) {
  static const char *const methods[] = {"/penstock.Echo/Unary", "/penstock.Echo/ClientStream",
                                        "/penstock.Echo/ServerStream", "/penstock.Echo/Bidi"};
  int32_t kind = (int32_t)below(random, 4);
  char json[128];
  /* A deadline ends calls that are paused for ever, and calls that wait for a held start. */
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
  int next = 0;
  bool received = false;
  if (kind == PENSTOCK_KIND_UNARY && chance(random, 60)) {
    reply = call_unary(trial, methods[kind], options, random);
  } else {
    penstock_call *call = NULL;
    if (penstock_channel_call(channels[own], methods[kind], kind, options, NULL, &call, &error) != PENSTOCK_OK) {
      broken(trial, "call", "%s", penstock_error_message(error));
      penstock_error_release(error);
      penstock_call_options_release(options);
      return;
    }
    bool cancels = chance(random, 15);
    canceller canceller = {trial, NULL, call, below(random, 200), 0};
    cancels = cancels && cancel_soon(&canceller);
    bool sends_one = kind == PENSTOCK_KIND_UNARY || kind == PENSTOCK_KIND_SERVER_STREAM;
    uint32_t messages = sends_one ? 1 : below(random, 5);
    char content[64];
    for (uint32_t i = 0; i < messages; i++) {
      if (chance(random, 20)) {
        send_rest(call, i, messages);
        break;
      }
      int length = snprintf(content, sizeof(content), "message %u", i);
      if (penstock_call_send(call, content, (size_t)length) != PENSTOCK_OK) break;
      if (kind == PENSTOCK_KIND_BIDI && !half_duplex && chance(random, 50) && !receive_one(trial, call, &next)) break;
    }
    penstock_call_half_close(call);
    if (chance(random, 50)) {
      while (receive_some(trial, call, &next, random)) received = true;
    }
    if (penstock_call_wait(call, &reply) != PENSTOCK_OK) broken(trial, "law 2", "finish gives no reply");
    penstock_reply *again = NULL;
    if (penstock_call_reply(call, &again) != PENSTOCK_OK || penstock_reply_code(again) != penstock_reply_code(reply))
      broken(trial, "law 2", "another reply the second time");
    penstock_reply_release(again);
    if (cancels) pthread_join(canceller.thread, NULL);
    penstock_call_release(call);
  }
  penstock_call_options_release(options);
  if (!reply) return;
  int32_t code = penstock_reply_code(reply);
  if (code >= 0 && code <= 16) atomic_fetch_add(&codes[code], 1);
  size_t length = 0;
  const void *data = penstock_reply_bytes(reply, &length);
  if (data && !received) read_answer(trial, &next, data, length);
  if (code == PENSTOCK_STATUS_OK && !data && kind <= PENSTOCK_KIND_CLIENT_STREAM && !received)
    broken(trial, "contents", "OK without a message");
  check_trial(trial);
  penstock_reply_release(reply);
}

static void *call_many(void *argument) {
  uintptr_t number = (uintptr_t)argument;
  uint64_t random = seed * 101 + number;
  int turn = 0;
  while (atomic_fetch_sub(&calls_left, 1) > 0) {
    /* Slots are used in turn, so that a late event of an old call does not find the next call. */
    int slot = (int)number * (slot_count / call_threads) + turn++ % (slot_count / call_threads);
    atomic_fetch_add(&calls_begun, 1);
    trial *fresh = trial_new();
    pthread_mutex_lock(&slots[slot].mutex);
    slots[slot].trial = fresh;
    pthread_mutex_unlock(&slots[slot].mutex);
    int before = atomic_load(&failures);
    run_call(fresh, slot, &random);
    if (atomic_load(&failures) == before) atomic_fetch_add(&calls_done, 1);
    pthread_mutex_lock(&slots[slot].mutex);
    slots[slot].trial = NULL;
    pthread_mutex_unlock(&slots[slot].mutex);
    trial_free(fresh);
    if (atomic_load(&failures) >= 5) break;
  }
  return NULL;
}

static void floor_of(const char *what, int found, int least) {
  if (found < least) broken(NULL, "the floors", "%s: %d, at least %d expected", what, found, least);
}

/* A run in which few calls succeed proves little. It fails if a count is less than about a quarter of its usual value; or a
 * twelfth, where the usual value is so small that chance alone would give less than a quarter now and then. */
static void check_floors(int calls) {
  floor_of("calls that ended OK", atomic_load(&codes[PENSTOCK_STATUS_OK]), calls / 8);
  floor_of("answers of the server", atomic_load(&answers), calls / 10);
  floor_of("messages read", atomic_load(&echoes), calls / 2);
  floor_of("words of hops read", atomic_load(&words), calls / 40);
  floor_of("tickets used", (int)used[0], calls / 4);
  floor_of("functions run", atomic_load(&functions_run), calls / 8);
  floor_of("calls redirected", atomic_load(&redirected), calls / 60);
  floor_of("calls cancelled by their scope", atomic_load(&cancelled_by_scope), calls / 500);
  floor_of("calls made by hops", atomic_load(&sides_made), calls / 40);
  /* The server is running, so calls do not end with UNAVAILABLE. */
  int lost = atomic_load(&codes[PENSTOCK_STATUS_UNAVAILABLE]);
  if (lost) broken(NULL, "the floors", "%d calls were UNAVAILABLE", lost);
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
  half_duplex = getenv("LAWS_HALF_DUPLEX") != NULL;
  const char *options[2] = {getenv("LAWS_CHANNEL"), getenv("LAWS_OTHER")};
  if (!options[own]) options[own] = "{\"tls\": false}";
  if (!options[other]) options[other] = options[own];
  printf("LAWS_SEED=%llu\n", (unsigned long long)seed);
  fflush(stdout);
  for (int i = 0; i < slot_count + side_slot_count; i++) pthread_mutex_init(&slots[i].mutex, NULL);
  penstock_error *error = NULL;
  snprintf(targets[own], sizeof(targets[own]), "%s", argv[1]);
  snprintf(targets[other], sizeof(targets[other]), "dns:///%s", argv[1]);
  for (int i = own; i <= other; i++) {
    if (penstock_channel_new(targets[i], options[i], &channels[i], &error) == PENSTOCK_OK) continue;
    printf("%s\n0 passed, 1 failed\n", penstock_error_message(error));
    return 1;
  }
  executors_start();
  pthread_t callers[call_threads], helpers[helper_threads], changer;
  pthread_create(&changer, NULL, change, (void *)1);
  for (uintptr_t i = 0; i < helper_threads; i++) pthread_create(&helpers[i], NULL, help, (void *)i);
  for (uintptr_t i = 0; i < call_threads; i++) pthread_create(&callers[i], NULL, call_many, (void *)i);
  for (int i = 0; i < call_threads; i++) pthread_join(callers[i], NULL);
  atomic_store(&stopping, true);
  for (int i = 0; i < helper_threads; i++) pthread_join(helpers[i], NULL);
  pthread_join(changer, NULL);

  /* Law 6: every interceptor was removed, and every call has ended. Every destroy has run, but the last finalizers may
   * still have to run. */
  int total = atomic_load(&next_registration);
  if (total > max_registrations) total = max_registrations;
  for (int i = own; i <= other; i++) penstock_channel_release(channels[i]);
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
  executors_stop();
  printf("%d registrations; %d functions run, %d redirects; %d calls of hops, %d cancelled;", total,
         atomic_load(&functions_run), atomic_load(&redirected), atomic_load(&sides_made),
         atomic_load(&sides_cancelled));
  printf(" tickets: %llu ok, %llu already, %llu gone, %llu other; codes:", (unsigned long long)used[0],
         (unsigned long long)used[1], (unsigned long long)used[2], (unsigned long long)used[3]);
  for (int i = 0; i < 17; i++)
    if (atomic_load(&codes[i])) printf(" %s %d", penstock_status_code_name(i), atomic_load(&codes[i]));
  printf("\n");
  printf("%d messages and %d words of hops read; %d answers of the server; %d calls cancelled by their options\n",
         atomic_load(&echoes), atomic_load(&words), atomic_load(&answers), atomic_load(&cancelled_by_scope));
  if (!atomic_load(&failures)) check_floors(calls);
  int failed = atomic_load(&failures);
  printf("%d passed, %d failed\n", atomic_load(&calls_done), failed);
  return failed ? 1 : 0;
}
