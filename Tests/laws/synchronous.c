/* Synchronous interceptors among the random ones: the actions of their functions, their threads, and how often they
 * run. */
#include "laws.h"

#include <stdio.h>
#include <stdlib.h>

atomic_int functions_run;

/* Gives the trial (this program's record) of the hop's call. The trial exists at least until the synchronous
 * interceptor's function has returned. NULL: the call has no trial, because a synchronous function has made it. */
static trial *trial_inside(penstock_hop *call) {
  const void *value = NULL;
  size_t length = 0;
  if (penstock_metadata_get(penstock_request_metadata(penstock_hop_request(call)), "slot", 0, &value, &length) !=
      PENSTOCK_OK)
    return NULL;
  slot *slot = &slots[atoi(value)];
  pthread_mutex_lock(&slot->mutex);
  trial *trial = slot->trial;
  if (trial) atomic_fetch_add(&trial->inside, 1);
  pthread_mutex_unlock(&slot->mutex);
  return trial;
}

/* Notes that a function begins. Checks that each function runs once, and within the function above it, on the same
 * thread. */
static void begin(trial *trial, int number) {
  pthread_mutex_lock(&trial->mutex);
  for (int i = 0; i < trial->function_count; i++)
    if (trial->functions[i] == number) broken(trial, "synchronous", "the function of registration %d twice", number);
  if (trial->function_count < max_hops) trial->functions[trial->function_count++] = number;
  if (trial->functions_open++ > 0 && !pthread_equal(trial->worker, pthread_self()))
    broken(trial, "synchronous", "registration %d on another worker than the one above it", number);
  trial->worker = pthread_self();
  pthread_mutex_unlock(&trial->mutex);
}

static void end(trial *trial) {
  pthread_mutex_lock(&trial->mutex);
  trial->functions_open--;
  pthread_mutex_unlock(&trial->mutex);
  atomic_fetch_sub(&trial->inside, 1);
}

/* Makes a blocking call, which runs other functions and perhaps this one. */
static void call_again(uint64_t *random) {
  char json[64];
  snprintf(json, sizeof(json), "{\"deadline_ms\": %u, \"metadata\": {\"inner\": \"1\"}}", 1 + below(random, 50));
  penstock_call_options *options = NULL;
  penstock_reply *reply = NULL;
  if (penstock_call_options_new(json, &options, NULL) != PENSTOCK_OK ||
      penstock_channel_unary(channels[own], "/penstock.Echo/Unary", "inner", 5, options, &reply, NULL) != PENSTOCK_OK)
    broken(NULL, "synchronous", "a function can't call");
  penstock_reply_release(reply);
  penstock_call_options_release(options);
}

/* Checks the result of a step: it has succeeded, or something else has ended the call before. */
static void expect_end(trial *trial, penstock_result result, const char *what) {
  if (result != PENSTOCK_OK && result != PENSTOCK_E_GONE)
    broken(trial, "synchronous", "%s: %s", what, penstock_result_name(result));
}

/* Forgets which functions below the registration's own have run, because they run again. They get the request as it was
 * before. */
static void forget_below(trial *trial, int number, const char *target) {
  atomic_store(&trial->target, target);
  atomic_fetch_add(&trial->runs, 1);
  pthread_mutex_lock(&trial->mutex);
  for (int i = 0; i < trial->function_count; i++)
    if (trial->functions[i] == number) trial->function_count = i + 1;
  pthread_mutex_unlock(&trial->mutex);
}

/* Replaces each message of the request, which the next attempt sends, by its equal: this changes nothing. */
static void replace_request(trial *trial, penstock_hop *call) {
  penstock_request *request = penstock_hop_request(call);
  penstock_message *message = NULL;
  penstock_result result = PENSTOCK_OK;
  for (size_t i = 0; result == PENSTOCK_OK; i++) {
    result = penstock_request_message(request, i, &message);
    if (result != PENSTOCK_OK) break;
    result = penstock_request_set_message(request, i, message);
    penstock_message_release(message);
    if (result == PENSTOCK_E_NOT_FOUND) broken(trial, "synchronous", "message %zu is there and is not", i);
  }
  if (result == PENSTOCK_E_STATE) {
    if (!*penstock_hop_why(call)) broken(trial, "synchronous", "request message: not said why");
  } else if (result != PENSTOCK_E_NOT_FOUND) {
    expect_end(trial, result, "request message");
  }
}

static int32_t act(penstock_hop *call, trial *trial, int number, uint64_t *random) {
  uint32_t dice = below(random, 100);
  if (dice < 4) return 77;
  if (dice < 6) return PENSTOCK_NEXT;
  if (dice < 12) {
    expect_end(trial, penstock_hop_end(call, PENSTOCK_STATUS_ABORTED, "cancelled"), "cancel");
    if (penstock_hop_next(call) == PENSTOCK_OK) broken(trial, "synchronous", "next after cancel");
    return PENSTOCK_NEXT;
  }
  if (dice < 18) {
    penstock_hop_deliver(call, "answer", 6);
    penstock_status *done = NULL;
    if (penstock_status_new(PENSTOCK_STATUS_OK, NULL, &done)) abort();
    expect_end(trial, penstock_hop_deliver_status(call, done), "answer");
    penstock_status_release(done);
    return PENSTOCK_NEXT;
  }
  if (dice < 26) call_again(random);
  const char *target = atomic_load(&trial->target);
  penstock_result result = penstock_hop_next(call);
  expect_end(trial, result, "next");
  /* The function calls next again, up to twice: the call begins again below, or next is refused. */
  for (int i = 0; result == PENSTOCK_OK && dice >= 40 && dice < 52 && i < 2; i++) {
    forget_below(trial, number, target);
    replace_request(trial, call);
    penstock_result again = penstock_hop_next(call);
    if (again == PENSTOCK_E_STATE) {
      if (!*penstock_hop_why(call)) broken(trial, "synchronous", "next again: not said why");
      break;
    }
    expect_end(trial, again, "next again");
    result = again;
  }
  if (result != PENSTOCK_OK) return PENSTOCK_NEXT;
  if (dice < 32) expect_end(trial, penstock_hop_end(call, PENSTOCK_STATUS_DATA_LOSS, NULL), "a late cancel");
  if (dice > 95) return -1;
  if (dice > 88) penstock_hop_set_bytes(call, "changed", 7);
  return PENSTOCK_NEXT;
}

static int32_t intercept(penstock_hop *call, void *user_data) {
  registration *self = user_data;
  uint64_t random = seed ^ ((uint64_t)self->number << 32) ^ penstock_hop_call_id(call) * 983;
  if (atomic_load(&self->finalized)) broken(NULL, "law 6", "registration %d: called after the finalizer", self->number);
  trial *trial = trial_inside(call);
  if (!trial) {
    expect_end(NULL, penstock_hop_next(call), "next of an inner call");
    return PENSTOCK_NEXT;
  }
  atomic_fetch_add(&self->live, 1);
  atomic_fetch_add(&functions_run, 1);
  begin(trial, self->number);
  int32_t verdict = act(call, trial, self->number, &random);
  end(trial);
  atomic_fetch_sub(&self->live, 1);
  return verdict;
}

void fill_synchronous(registration *self, penstock_interceptor *table) {
  penstock_sync_interceptor plan = PENSTOCK_SYNC_INTERCEPTOR_INIT;
  plan.name = table->name;
  plan.methods = table->methods;
  plan.user_data = self;
  plan.finalizer = table->finalizer;
  plan.intercept = intercept;
  *table = (penstock_interceptor)PENSTOCK_INTERCEPTOR_INIT;
  penstock_result result = penstock_sync_interceptor_table(&plan, table, NULL);
  if (result != PENSTOCK_OK) broken(NULL, "synchronous", "no table: %s", penstock_result_name(result));
}
