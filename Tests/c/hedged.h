/* Shared by the tests of hedging. A hop below the interceptor tells the server, by its knobs, how each attempt ends. */
#ifndef PENSTOCK_HEDGED_H
#define PENSTOCK_HEDGED_H

#include "ready.h"

/* How the attempts of the calls go on, in the order in which they start: metadata for the server, "" for none. */
typedef struct hedged {
  penstock_channel *channel;
  penstock_interceptor shared; /* the table that the figures are read from */
  probe below;
  const char *const (*plan)[2];
  atomic_int started;
} hedged;

/* Changes the start of each attempt as the plan says; the last entry holds for all later attempts. */
static inline int32_t play(probe *self, penstock_hop *hop, int32_t event) {
  hedged *all = self->context;
  if (event != PENSTOCK_EVENT_START || !all->plan) return PENSTOCK_NEXT;
  int number = atomic_fetch_add(&all->started, 1), i = 0;
  while (i < number && all->plan[i + 1][0]) i++;
  if (all->plan[i][0][0]) OK(penstock_metadata_set(penstock_hop_metadata(hop), all->plan[i][0], all->plan[i][1]));
  return PENSTOCK_NEXT;
}

/* `channel`: the options of the channel. */
static inline void hedge_with(hedged *all, const char *address, const char *channel, const char *options,
                              penstock_channel *other, const char *const (*plan)[2], penstock_interceptor table) {
  penstock_error *error = NULL;
  memset(all, 0, sizeof(*all));
  penstock_interceptor empty = PENSTOCK_INTERCEPTOR_INIT;
  all->shared = empty;
  all->plan = plan;
  OK(penstock_channel_new(address, channel, &all->channel, NULL));
  if (!OK(penstock_ready_hedging(options, other, &table, &error))) printf("  %s\n", penstock_error_message(error));
  penstock_error_release(error);
  OK(penstock_ready_share(&table, &all->shared));
  ready_add(all->channel, &table, 100);
  probe_init_with(&all->below, "below", play, all);
  probe_add(&all->below, all->channel, 0);
}

static inline void hedge(hedged *all, const char *address, const char *options, penstock_channel *other,
                         const char *const (*plan)[2]) {
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  hedge_with(all, address, "{\"tls\": false}", options, other, plan, table);
}

static inline void end_hedge(hedged *all) {
  penstock_channel_release(all->channel);
  probe_wait_finalized(&all->below);
  ready_drop(&all->shared);
}

/* Waits until a JSON text of `object`, which `read` makes, has this part. */
static inline void check_part(penstock_result (*read)(void *object, char **json), void *object, const char *part) {
  int64_t until = test_now_ms() + test_patience_ms();
  bool has = false;
  char *json = NULL;
  do {
    penstock_free(json);
    json = NULL;
    if (!OK(read(object, &json))) return;
    has = strstr(json, part) != NULL;
    if (!has) test_pause();
  } while (!has && test_now_ms() < until);
  if (!CHECK(has)) printf("  %s\n  lacks %s\n", json, part);
  penstock_free(json);
}

static inline penstock_result read_figures(void *table, char **json) {
  return penstock_hedging_stats_json(table, json);
}
static inline penstock_result read_channel(void *channel, char **json) {
  return penstock_channel_stats_json(channel, 60000, json);
}

static inline void check_figures(hedged *all, const char *part) { check_part(read_figures, &all->shared, part); }
static inline void check_channel(penstock_channel *channel, const char *part) {
  check_part(read_channel, channel, part);
}

static inline void check_value(penstock_reply *reply, const char *text) {
  const char *value = penstock_reply_value(reply, "penstock.hedging");
  CHECK_STR(value ? value : "", text);
}

#define SLOW  "x-delay-ms", "86400000"
#define FAILS "x-status", "14"
#define HURRY "{\"delay_ms\": 86400000"

#endif
