/* The callbacks of the random interceptors. */
#include "laws.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

registration registrations[max_registrations];
atomic_int next_registration, redirected;
slot slots[slot_count + side_slot_count];

static void finalize(void *user_data) {
  registration *self = user_data;
  if (atomic_fetch_add(&self->finalized, 1) != 0)
    broken(NULL, "law 6", "registration %d: a second finalizer", self->number);
  if (atomic_load(&self->live) != 0) broken(NULL, "law 6", "registration %d: finalizer while hops live", self->number);
}

/* Finds the trial (this program's record) of the call, in create; NULL: the call has none. */
static trial *trial_of(penstock_hop *hop) {
  const void *value = NULL;
  size_t length = 0;
  if (penstock_metadata_get(penstock_hop_metadata(hop), "slot", 0, &value, &length) != PENSTOCK_OK) return NULL;
  slot *slot = &slots[atoi(value)];
  pthread_mutex_lock(&slot->mutex);
  trial *trial = slot->trial;
  pthread_mutex_unlock(&slot->mutex);
  if (!trial) broken(NULL, "law 2", "create after the end of its call");
  return trial;
}

static int32_t on_create(penstock_hop *hop, void *user_data, void **state) {
  registration *self = user_data;
  if (atomic_load(&self->finalized)) broken(NULL, "law 6", "registration %d: create after the finalizer", self->number);
  trial *trial = trial_of(hop);
  if (!trial) return PENSTOCK_SKIP;
  trial->call_id = penstock_hop_call_id(hop);
  check_side_hop(trial, hop, self->number);
  uint64_t random = seed ^ ((uint64_t)self->number << 32) ^ trial->call_id * 977;
  if (chance(&random, 10) || trial->hop_count >= max_hops) return PENSTOCK_SKIP;
  hop_record *mine = &trial->hops[trial->hop_count];
  pthread_mutex_init(&mine->mutex, NULL);
  mine->trial = trial;
  mine->number = self->number;
  mine->run = atomic_load(&trial->runs);
  mine->handle = penstock_hop_retain(hop);
  for (int lane = outbound; lane <= inbound; lane++) {
    mine->random[lane] = mix(&random);
    mine->places[lane] = self->places[lane];
  }
  /* Sometimes create exchanges the two executors. */
  if (runs_elsewhere(mine) && chance(&random, 30)) {
    mine->places[outbound] = self->places[inbound];
    mine->places[inbound] = self->places[outbound];
    if (penstock_hop_set_executors(hop, executor_of(mine->places[outbound]), executor_of(mine->places[inbound])) !=
        PENSTOCK_OK)
      broken(trial, "executors", "create can't choose");
  }
  trial->hop_count++;
  atomic_fetch_add(&self->live, 1);
  record(mine, PENSTOCK_EVENT_CREATE);
  *state = mine;
  return PENSTOCK_NEXT;
}

static void on_destroy(penstock_hop *hop, void *state) {
  hop_record *self = state;
  (void)hop;
  /* destroy belongs to the inbound lane if that lane has an executor, otherwise to the outbound lane; it comes after
   * the last callback of the other lane.
   */
  int lane = self->places[inbound] == place_driving ? outbound : inbound;
  enter(self, lane, PENSTOCK_EVENT_DESTROY);
  if (atomic_load(&self->running[1 - (self->places[0] == self->places[1] ? 0 : lane)]))
    broken(self->trial, "law 2", "destroy while the other lane runs");
  record(self, PENSTOCK_EVENT_DESTROY);
  atomic_fetch_sub(&registrations[self->number].live, 1);
  leave(self, lane);
  /* The trial may be freed as soon as the hop counts as destroyed. */
  trial *trial = self->trial;
  pthread_mutex_lock(&trial->mutex);
  bool twice = atomic_exchange(&self->destroyed, true);
  pthread_cond_broadcast(&trial->changed);
  if (twice) broken(trial, "law 2", "destroy twice");
  pthread_mutex_unlock(&trial->mutex);
}

/* Takes a ticket that this thread or another one will use. */
static penstock_ticket take_ticket(penstock_hop *hop, hop_record *self, uint64_t *random) {
  penstock_ticket ticket = penstock_hop_ticket(hop);
  if (!ticket) return 0;
  trial *trial = self->trial;
  pthread_mutex_lock(&trial->mutex);
  bool room = trial->ticket_count < max_tickets;
  if (room) trial->tickets[trial->ticket_count++] = ticket;
  pthread_mutex_unlock(&trial->mutex);
  /* A ticket for which the trial has no room is unknown to the helper threads: a timer resumes it. The timer also
   * resumes one in five of the other tickets. */
  if (!room || chance(random, 20)) penstock_ticket_resolve_after(ticket, PENSTOCK_NEXT, below(random, 4));
  return ticket;
}

/* Takes a ticket for the event and resolves it before the callback returns; false: the event can't have one. */
static bool use_early(penstock_hop *hop, hop_record *self) {
  penstock_ticket ticket = penstock_hop_ticket(hop);
  if (!ticket) return false;
  /* If the callback runs on an executor, the call may have ended by now. */
  penstock_result result = penstock_ticket_resolve(ticket, PENSTOCK_NEXT);
  if (result != PENSTOCK_OK && !(result == PENSTOCK_E_GONE && runs_elsewhere(self)))
    broken(self->trial, "tickets", "early use: %s", penstock_result_name(result));
  result = penstock_ticket_resolve(ticket, PENSTOCK_NEXT);
  if (result != PENSTOCK_E_ALREADY && !(result == PENSTOCK_E_GONE && runs_elsewhere(self)))
    broken(self->trial, "tickets", "double use: %s", penstock_result_name(result));
  return true;
}

/* Notes that the hop has ended the call, or that it may have: on an executor the hop may have been too late. */
static void note_finish(hop_record *self) {
  atomic_store(runs_elsewhere(self) ? &self->may_finish : &self->finished, true);
}

static void redirect(penstock_hop *hop, hop_record *self, int to) {
  if (self->trial->side) return;
  penstock_result result = penstock_request_set_channel(penstock_hop_request(hop), channels[to]);
  if (result == PENSTOCK_OK) {
    atomic_store(&self->trial->target, targets[to]);
    atomic_fetch_add(&redirected, 1);
  } else if (result != PENSTOCK_E_GONE || !runs_elsewhere(self)) {
    broken(self->trial, "redirect", "%s", penstock_result_name(result));
  }
}

/* Checks that start goes to the channel that the last redirect above has chosen. */
static void check_target(penstock_hop *hop, hop_record *self) {
  if (self->trial->side) return;
  const char *expected = atomic_load(&self->trial->target);
  if (!expected) expected = targets[own];
  if (strcmp(penstock_hop_target(hop), expected) != 0)
    broken(self->trial, "redirect", "it goes to %s, not %s", penstock_hop_target(hop), expected);
}

static int32_t react(penstock_hop *hop, hop_record *self, int32_t event, uint64_t *random) {
  if (event == PENSTOCK_EVENT_START && chance(random, 30))
    penstock_metadata_add(penstock_hop_metadata(hop), "via", "hop");
  uint32_t dice = below(random, 1000);
  if (dice < 60) return take_ticket(hop, self, random) ? PENSTOCK_PAUSE : PENSTOCK_NEXT;
  if (dice < 110) return take_ticket(hop, self, random) ? PENSTOCK_HOLD : PENSTOCK_NEXT;
  if (dice < 130)
    return event != PENSTOCK_EVENT_HALF_CLOSE && event != PENSTOCK_EVENT_STATUS ? PENSTOCK_HOLD : PENSTOCK_NEXT;
  if (dice < 145)
    return event == PENSTOCK_EVENT_SEND || event == PENSTOCK_EVENT_RECEIVE ? PENSTOCK_DROP : PENSTOCK_NEXT;
  if (dice < 155) {
    if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
    atomic_store(&self->takes, true);
    return PENSTOCK_TAKE;
  }
  if (dice < 165) return use_early(hop, self) ? PENSTOCK_PAUSE : PENSTOCK_NEXT;
  if (dice < 173) {
    /* penstock_hop_end is refused if the call has ended on this side. */
    if (penstock_hop_end(hop, 10, "finished") == PENSTOCK_OK) note_finish(self);
  } else if (dice < 178) {
    /* Law 7: a wrong verdict ends the call; but at a status that was made on this side, any verdict counts as NEXT. */
    if (event != PENSTOCK_EVENT_STATUS || penstock_hop_ticket(hop)) note_finish(self);
    return 77;
  } else if (dice < 200) {
    if (event == PENSTOCK_EVENT_RECEIVE) penstock_hop_deliver(hop, "injected", 8);
  } else if (dice < 220) {
    if (event == PENSTOCK_EVENT_SEND) penstock_hop_send(hop, "injected", 8);
  } else if (dice < 225) {
    penstock_hop_demand(hop, 1);
  } else if (dice < 265) {
    if (event == PENSTOCK_EVENT_START) make_side_call(hop, self, random);
  } else if (dice < 290) {
    if (event == PENSTOCK_EVENT_START) redirect(hop, self, (int)below(random, 2));
  }
  return PENSTOCK_NEXT;
}

/* Answers for a hop that has taken the call. */
static void answer(penstock_hop *hop, hop_record *self) {
  penstock_hop_deliver_headers(hop, NULL);
  penstock_hop_deliver(hop, "taken", 5);
  penstock_status *status = NULL;
  penstock_status_new(0, NULL, &status);
  if (penstock_hop_deliver_status(hop, status) == PENSTOCK_OK) atomic_store(&self->may_finish, true);
  if (penstock_hop_deliver_status(hop, status) == PENSTOCK_OK) broken(self->trial, "law 2", "two statuses delivered");
  penstock_status_release(status);
}

static int32_t on_event(penstock_hop *hop, void *state) {
  hop_record *self = state;
  int32_t event = penstock_hop_event(hop);
  int lane = lane_of(event);
  /* If the call ends during a job of this hop, on_status or on_cancel follows that job: on the outbound executor, if
   * the hop has no other. */
  bool ends = event == PENSTOCK_EVENT_STATUS || event == PENSTOCK_EVENT_CANCEL;
  if (!ends) note_place(self->places[lane]);
  if (ends && self->places[inbound] == place_driving && is_job_of(self->places[outbound])) lane = outbound;
  enter(self, lane, event);
  int index = record(self, event);
  int32_t verdict = PENSTOCK_NEXT;
  if (event == PENSTOCK_EVENT_START) check_target(hop, self);
  if (event == PENSTOCK_EVENT_SEND || event == PENSTOCK_EVENT_RECEIVE) read_event(hop, self, lane);
  if ((event == PENSTOCK_EVENT_STATUS || event == PENSTOCK_EVENT_CANCEL) && !penstock_hop_status(hop))
    broken(self->trial, "law 2", "no status in event %d", (int)event);
  if (event == PENSTOCK_EVENT_CANCEL) {
    penstock_result result = penstock_hop_end(hop, 0, NULL);
    if (result != PENSTOCK_E_STATE && !(result == PENSTOCK_E_GONE && runs_elsewhere(self)))
      broken(self->trial, "law 2", "finish from on_cancel: %s", penstock_result_name(result));
  }
  if (atomic_load(&self->finished)) broken(self->trial, "law 3", "event %d after its own finish", (int)event);
  if (event >= PENSTOCK_EVENT_START && event <= PENSTOCK_EVENT_STATUS)
    verdict = react(hop, self, event, &self->random[lane]);
  if (event == PENSTOCK_EVENT_HALF_CLOSE && atomic_load(&self->takes)) answer(hop, self);
  record_verdict(self, index, verdict);
  leave(self, lane);
  return verdict;
}

/* Picks the driving thread in 40 of 100 cases, otherwise one of the executors. */
static place random_place(uint64_t *random) {
  return chance(random, 40) ? place_driving : (place)(place_serial + below(random, place_refusing));
}

bool add_one(uint64_t *random, penstock_interceptor_id *id) {
  int mine = atomic_fetch_add(&next_registration, 1);
  if (mine >= max_registrations) return false;
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
  if (chance(random, 30)) {
    self->places[outbound] = random_place(random);
    self->places[inbound] = chance(random, 40) ? self->places[outbound] : random_place(random);
    table.outbound_executor = executor_of(self->places[outbound]);
    table.inbound_executor = executor_of(self->places[inbound]);
  }
  if (chance(random, 15)) fill_synchronous(self, &table);
  penstock_error *error = NULL;
  if (penstock_channel_add_interceptor(channels[own], &table, self->priority, id, &error) != PENSTOCK_OK) {
    broken(NULL, "law 6", "add: %s", penstock_error_message(error));
    penstock_error_release(error);
    return false;
  }
  return true;
}
