/* Hops without a retained handle are used again for a later call: in each call they behave as new hops, whatever the
 * earlier call did with them. */
#include "hops.h"
#include "unary.h"

enum { QUIET, LOOK, LOOK_ELSEWHERE, KEEP, KEEP_ELSEWHERE, MODES, HOPS = 3 };

typedef struct place {
  int index;
  struct visit *visit;
} place;

/* The task of the running call's hops, and their findings. */
typedef struct visit {
  int mode, chosen; /* the index of the hop that looks at its handle or keeps it, as `mode` says */
  char log[32];
  uint64_t call, last_call;
  penstock_hop *kept, *last_kept;
  uint64_t last_kept_call;
} visit;

static void *look_elsewhere(void *hop) {
  CHECK_INT(penstock_hop_event(hop), PENSTOCK_EVENT_NONE);
  CHECK_RESULT(penstock_hop_set_count(hop, 1), PENSTOCK_E_STATE);
  return penstock_hop_call_id(hop) ? hop : NULL;
}

static void *keep_elsewhere(void *hop) { return penstock_hop_retain(hop); }

static penstock_hop *elsewhere(void *(*body)(void *), penstock_hop *hop) {
  pthread_t thread;
  void *result = NULL;
  pthread_create(&thread, NULL, body, hop);
  pthread_join(thread, &result);
  return result;
}

static int32_t run(place *place, penstock_hop *hop, int32_t event) {
  visit *visit = place->visit;
  size_t length = strlen(visit->log);
  snprintf(visit->log + length, sizeof(visit->log) - length, "%c%d", event == PENSTOCK_EVENT_START ? 's' : 'T',
           place->index);
  CHECK(hop != visit->last_kept);
  /* A handle whose call has ended may be retained again, on the driving thread too. */
  if (visit->last_kept) penstock_hop_release(penstock_hop_retain(visit->last_kept));
  if (visit->mode == QUIET || place->index != visit->chosen) return PENSTOCK_NEXT;
  if (visit->mode == LOOK_ELSEWHERE) CHECK(elsewhere(look_elsewhere, hop) == hop);
  if (visit->mode == KEEP && event == PENSTOCK_EVENT_START) visit->kept = penstock_hop_retain(hop);
  if (visit->mode == KEEP_ELSEWHERE && event == PENSTOCK_EVENT_START) visit->kept = elsewhere(keep_elsewhere, hop);
  CHECK_INT(penstock_hop_event(hop), event);
  CHECK((penstock_hop_status(hop) != NULL) == (event == PENSTOCK_EVENT_STATUS));
  if (event == PENSTOCK_EVENT_START) visit->call = penstock_hop_call_id(hop);
  CHECK(penstock_hop_call_id(hop) == visit->call && visit->call > visit->last_call);
  return PENSTOCK_NEXT;
}

static int32_t on_start(penstock_hop *hop, void *state) { return run(state, hop, PENSTOCK_EVENT_START); }
static int32_t on_status(penstock_hop *hop, void *state) { return run(state, hop, PENSTOCK_EVENT_STATUS); }

static void call_once(penstock_channel *channel, visit *visit, int mode, int chosen) {
  visit->mode = mode;
  visit->chosen = chosen;
  visit->log[0] = 0;
  visit->last_call = visit->call;
  penstock_reply *reply = unary(channel, "hello");
  CHECK(message_is(reply, "hello"));
  penstock_reply_release(reply);
  CHECK_STR(visit->log, "s0s1s2T2T1T0");
  if (visit->last_kept) {
    CHECK(penstock_hop_call_id(visit->last_kept) == visit->last_kept_call);
    CHECK_RESULT(penstock_hop_demand(visit->last_kept, 1), PENSTOCK_E_GONE);
    penstock_hop_release(visit->last_kept);
  }
  visit->last_kept = visit->kept;
  visit->last_kept_call = visit->call;
  visit->kept = NULL;
}

TEST(hop_is_used_again_where_nobody_keeps_it) {
  penstock_channel *channel = open_channel();
  visit visit;
  memset(&visit, 0, sizeof(visit));
  place places[HOPS];
  for (int i = 0; i < HOPS; i++) {
    places[i] = (place){i, &visit};
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    penstock_interceptor_id id = 0;
    table.user_data = &places[i];
    table.on_start = on_start;
    table.on_status = on_status;
    OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  }
  for (int before = 0; before < MODES; before++) {
    for (int after = 0; after < MODES; after++) {
      call_once(channel, &visit, before, after % HOPS);
      call_once(channel, &visit, after, before % HOPS);
    }
  }
  call_once(channel, &visit, QUIET, 0);
  penstock_channel_release(channel);
}
