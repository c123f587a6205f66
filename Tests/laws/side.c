/* Calls that hops make: each has its own trial, which is checked when the call that it was made for has ended. */
#include "laws.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct side {
  int slot;
  int maker; /* the registration of the hop that made the side call */
  uint32_t flags;
  int64_t most_ms; /* the most time that may be left until its deadline; -1: it does not inherit the deadline */
  int32_t code;    /* -1: it has not ended */
  trial *own;
  struct side *next;
  pthread_mutex_t mutex;
  pthread_cond_t ended;
};

atomic_int sides_made, sides_cancelled;

/* Puts the trial of a side call into a free slot, and gives the slot's index; -1: none is free. */
static int claim_slot(trial *trial) {
  for (int i = slot_count; i < slot_count + side_slot_count; i++) {
    pthread_mutex_lock(&slots[i].mutex);
    bool is_free = !slots[i].trial;
    if (is_free) slots[i].trial = trial;
    pthread_mutex_unlock(&slots[i].mutex);
    if (is_free) return i;
  }
  return -1;
}

static struct side *side_new(int maker, uint32_t flags, int64_t most_ms) {
  struct side *self = calloc(1, sizeof(*self));
  if (!self) abort();
  pthread_mutex_init(&self->mutex, NULL);
  pthread_cond_init(&self->ended, NULL);
  self->maker = maker;
  self->flags = flags;
  self->most_ms = most_ms;
  self->code = -1;
  self->own = trial_new();
  self->own->side = self;
  self->slot = claim_slot(self->own);
  return self;
}

static void side_free(struct side *self) {
  if (self->slot >= 0) {
    pthread_mutex_lock(&slots[self->slot].mutex);
    slots[self->slot].trial = NULL;
    pthread_mutex_unlock(&slots[self->slot].mutex);
  }
  trial_free(self->own);
  pthread_cond_destroy(&self->ended);
  pthread_mutex_destroy(&self->mutex);
  free(self);
}

static void on_reply(penstock_call *call, penstock_reply *reply, void *user_data) {
  struct side *self = user_data;
  (void)call;
  pthread_mutex_lock(&self->mutex);
  self->code = penstock_reply_code(reply);
  pthread_cond_signal(&self->ended);
  pthread_mutex_unlock(&self->mutex);
}

static penstock_result begin(penstock_hop *hop, struct side *self, uint32_t deadline_ms) {
  char json[128];
  snprintf(json, sizeof(json), "{\"deadline_ms\": %u, \"metadata\": {\"slot\": \"%d\"}}", deadline_ms, self->slot);
  penstock_call_options *options = NULL;
  penstock_result result = penstock_call_options_new(json, &options, NULL);
  if (result != PENSTOCK_OK) return result;
  penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
  table.user_data = self;
  table.on_reply = on_reply;
  penstock_call *call = NULL;
  result = penstock_hop_start_side_call(hop, "/penstock.Echo/Unary", PENSTOCK_KIND_UNARY, self->flags, options, &table,
                                        &call, NULL);
  penstock_call_options_release(options);
  if (result != PENSTOCK_OK) return result;
  penstock_call_try_send(call, "side", 4);
  penstock_call_half_close(call);
  penstock_call_release(call);
  return PENSTOCK_OK;
}

/* The milliseconds until the deadline; -1: there is none, or the hop has ended meanwhile. */
static int64_t deadline_of(penstock_hop *hop) {
  int64_t left = -1;
  penstock_request_deadline_ms(penstock_hop_request(hop), &left);
  return left;
}

void make_side_call(penstock_hop *hop, hop_record *maker, uint64_t *random) {
  trial *trial = maker->trial;
  if (trial->side) return;
  uint32_t flags = below(random, 4);
  bool is_detached = flags & PENSTOCK_SIDE_CALL_DETACHED;
  struct side *self = side_new(maker->number, flags, is_detached ? -1 : deadline_of(hop));
  if (self->slot < 0) {
    side_free(self);
    return;
  }
  /* A side call that must inherit the deadline has a later one of its own: if it does not inherit, it hangs for longer
   * than the test waits. */
  penstock_result result = begin(hop, self, is_detached ? 50 + below(random, 300) : 300000);
  if (result != PENSTOCK_OK) {
    side_free(self);
    /* If the callback runs on an executor, the hop may have ended by now. */
    if (result != PENSTOCK_E_GONE || !runs_elsewhere(maker))
      broken(trial, "side calls", "a hop can't call: %s", penstock_result_name(result));
    return;
  }
  atomic_fetch_add(&sides_made, 1);
  pthread_mutex_lock(&trial->mutex);
  self->next = trial->sides;
  trial->sides = self;
  pthread_mutex_unlock(&trial->mutex);
}

void check_side_hop(trial *trial, penstock_hop *hop, int number) {
  struct side *self = trial->side;
  if (!self) return;
  if (number == self->maker && !(self->flags & PENSTOCK_SIDE_CALL_FROM_TOP))
    broken(trial, "side calls", "registration %d meets the call that its hop has made", number);
  int64_t left = deadline_of(hop);
  /* A second of tolerance is far less than the 300 s that a side call has if it does not inherit the deadline. */
  if (self->most_ms >= 0 && left > self->most_ms + 1000)
    broken(trial, "side calls", "%lld ms are left, %lld were", (long long)left, (long long)self->most_ms);
}

static void check_side(trial *trial, struct side *self) {
  struct timespec limit;
  clock_gettime(CLOCK_REALTIME, &limit);
  limit.tv_sec += 60;
  bool ended = true;
  pthread_mutex_lock(&self->mutex);
  while (self->code < 0 && ended) ended = pthread_cond_timedwait(&self->ended, &self->mutex, &limit) == 0;
  int32_t code = self->code;
  pthread_mutex_unlock(&self->mutex);
  if (!ended) {
    broken(trial, "side calls", "one goes on 60 s after the call that it was made for");
    return;
  }
  /* A side call is cancelled only by the end of the call that it was made for. */
  if (code == PENSTOCK_STATUS_CANCELLED) {
    atomic_fetch_add(&sides_cancelled, 1);
    if (self->flags & PENSTOCK_SIDE_CALL_DETACHED) broken(trial, "side calls", "a detached one was cancelled");
  }
  check_trial(self->own);
  side_free(self);
}

void check_sides(trial *trial) {
  while (trial->sides) {
    struct side *first = trial->sides;
    trial->sides = first->next;
    check_side(trial, first);
  }
}
