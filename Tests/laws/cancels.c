/* Calls that another thread cancels: by their handle, or a unary call by its scope. */
#include "laws.h"

#include <sched.h>
#include <string.h>

atomic_int cancelled_by_scope;

#define REASON "by its scope"

static bool has_reason(const penstock_reply *reply) {
  return strstr(penstock_reply_status_json(reply), REASON) != NULL;
}

static void *cancel_call(void *argument) {
  canceller *self = argument;
  for (uint32_t i = 0; i < self->yields; i++) sched_yield();
  penstock_call_cancel(self->call, "by another thread");
  return NULL;
}

static void *cancel_scope(void *argument) {
  canceller *self = argument;
  for (uint32_t i = 0; i < self->yields; i++) sched_yield();
  penstock_result result = penstock_cancel_scope_cancel(self->scope, REASON);
  if (result != PENSTOCK_OK) broken(self->trial, "cancels", "by its scope: %s", penstock_result_name(result));
  if (penstock_cancel_scope_cancel(self->scope, "again") != PENSTOCK_E_ALREADY)
    broken(self->trial, "cancels", "by its scope, twice");
  return NULL;
}

bool cancel_soon(canceller *self) {
  return pthread_create(&self->thread, NULL, self->call ? cancel_call : cancel_scope, self) == 0;
}

static penstock_reply *call_once(trial *trial, const char *method, const penstock_call_options *options) {
  penstock_reply *reply = NULL;
  penstock_error *error = NULL;
  if (penstock_channel_unary(channels[own], method, "hello", 5, options, &reply, &error) == PENSTOCK_OK) return reply;
  broken(trial, "unary", "%s", penstock_error_message(error));
  penstock_error_release(error);
  return NULL;
}

/* Counts the hops of the trial's calls so far. Before the trial's first call it counts synchronous functions, too;
 * later it does not, because the function of a cancelled call may begin after that call's end. */
static int met(trial *trial, bool is_first) {
  pthread_mutex_lock(&trial->mutex);
  int count = trial->hop_count + (is_first ? trial->function_count : 0);
  pthread_mutex_unlock(&trial->mutex);
  return count;
}

/* Makes a call whose scope was cancelled before: it ends at once, and no hop sees it. */
static penstock_reply *call_late(trial *trial, bool is_first, const char *method,
                                 const penstock_call_options *options) {
  int before = met(trial, is_first);
  penstock_reply *reply = call_once(trial, method, options);
  if (reply && (penstock_reply_code(reply) != PENSTOCK_STATUS_CANCELLED || !has_reason(reply)))
    broken(trial, "cancels", "a call after the cancel of its scope: %s", penstock_reply_status_json(reply));
  if (met(trial, is_first) != before) broken(trial, "cancels", "a hop sees a call whose scope was cancelled before");
  return reply;
}

static penstock_reply *call_in_scope(trial *trial, const char *method, penstock_call_options *options, uint32_t dice,
                                     uint64_t *random, canceller *canceller) {
  if (dice < 10) {
    cancel_scope(canceller);
    return call_late(trial, true, method, options);
  }
  /* A call that hangs gets no answer, and its deadline is far away: only the cancel ends it, unless a hop does. */
  bool hangs = dice < 40;
  penstock_request *request = penstock_call_options_request(options);
  if (hangs && (penstock_metadata_set(penstock_request_metadata(request), "x-delay-ms", "600000") != PENSTOCK_OK ||
                penstock_request_set_deadline_ms(request, 60000) != PENSTOCK_OK))
    broken(trial, "options", "a request can't be changed");
  if (!cancel_soon(canceller)) return call_once(trial, method, options);
  penstock_reply *reply = call_once(trial, method, options);
  pthread_join(canceller->thread, NULL);
  if (!reply) return NULL;
  if (has_reason(reply)) {
    atomic_fetch_add(&cancelled_by_scope, 1);
    if (penstock_reply_code(reply) != PENSTOCK_STATUS_CANCELLED)
      broken(trial, "cancels", "by its scope: %s", penstock_reply_status_json(reply));
  } else if (hangs && penstock_reply_code(reply) == PENSTOCK_STATUS_DEADLINE_EXCEEDED) {
    broken(trial, "cancels", "the cancel of the scope is lost");
  }
  if (chance(random, 50)) penstock_reply_release(call_late(trial, false, method, options));
  return reply;
}

penstock_reply *call_unary(trial *trial, const char *method, penstock_call_options *options, uint64_t *random) {
  uint32_t dice = below(random, 100);
  if (dice >= 50) return call_once(trial, method, options);
  canceller canceller = {trial, NULL, NULL, below(random, 200), 0};
  if (penstock_cancel_scope_new(&canceller.scope) != PENSTOCK_OK ||
      penstock_call_options_set_cancel_scope(options, canceller.scope) != PENSTOCK_OK)
    broken(trial, "cancels", "options can't have a scope");
  penstock_reply *reply = call_in_scope(trial, method, options, dice, random, &canceller);
  penstock_cancel_scope_release(canceller.scope);
  return reply;
}
