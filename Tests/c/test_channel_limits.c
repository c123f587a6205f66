/* The limits of a channel: on calls that wait, and on bytes that are not sent yet. */
#include "limits.h"
#include "servers.h"

#include <pthread.h>

/* ---- Calls that wait ---- */

TEST(limits_pending_calls_without_a_connection) {
  char name[64];
  int listener = silent_server(name, sizeof(name));
  penstock_channel *channel = open_at(name, "{\"tls\": false, \"max_pending_calls\": 2}");
  penstock_call *first = start_numbered(channel, 1), *second = start_numbered(channel, 2);
  FINISH(
      start_call(channel, BIDI, PENSTOCK_KIND_BIDI), PENSTOCK_STATUS_RESOURCE_EXHAUSTED,
      "the channel has 2 calls that wait already, as many as it may have (max_pending_calls): there is no connection");
  /* A call that ends makes room for another. */
  OK(penstock_call_cancel(first, NULL));
  FINISH(first, PENSTOCK_STATUS_CANCELLED, NULL);
  penstock_call *third = start_numbered(channel, 5);
  EVENTUALLY(waiting_calls_are(channel, 2));
  FINISH(start_call(channel, BIDI, PENSTOCK_KIND_BIDI), PENSTOCK_STATUS_RESOURCE_EXHAUSTED, "max_pending_calls");
  OK(penstock_call_cancel(second, NULL));
  OK(penstock_call_cancel(third, NULL));
  FINISH(second, PENSTOCK_STATUS_CANCELLED, NULL);
  FINISH(third, PENSTOCK_STATUS_CANCELLED, NULL);
  penstock_channel_release(channel);
  close(listener);
}

static int32_t first_of_all(penstock_pick *pick, void *user_data) {
  (void)pick;
  (void)user_data;
  return 0;
}

/* The only connection has a call. `picks`: a picker chooses the endpoint. */
static void check_full_connection(bool picks) {
  char target[128];
  snprintf(target, sizeof(target), "http://%s", peer_address());
  penstock_channel *channel = open_at(
      target, "{\"protocol\": \"connect\", \"http\": \"1.1\", \"http1_max_connections\": 1, \"max_pending_calls\": 3}");
  if (picks) OK(penstock_channel_set_picker(channel, first_of_all, NULL, NULL));
  penstock_call *holds = start_call(channel, BIDI, PENSTOCK_KIND_BIDI), *waits[3];
  OK(penstock_call_send(holds, "ping", 4));
  EVENTUALLY(count_in_stats(channel, "\"streams\":1,") == 1);
  for (int i = 0; i < 3; i++) waits[i] = start_numbered(channel, i);
  EVENTUALLY(waiting_calls_are(channel, 3));
  for (int i = 0; i < 5; i++) {
    FINISH(start_call(channel, BIDI, PENSTOCK_KIND_BIDI), PENSTOCK_STATUS_RESOURCE_EXHAUSTED,
           "the channel has 3 calls that wait already, as many as it may have (max_pending_calls): "
           "no connection takes one more call");
  }
  OK(penstock_call_half_close(holds));
  CHECK_MESSAGE(holds, "ping");
  FINISH(holds, PENSTOCK_STATUS_OK, NULL);
  for (int i = 0; i < 3; i++) FINISH(waits[i], PENSTOCK_STATUS_OK, NULL);
  check_echo(channel);
  penstock_channel_release(channel);
}

TEST(limits_pending_calls_on_a_full_connection) { check_full_connection(false); }

TEST(limits_pending_calls_with_a_picker) { check_full_connection(true); }

/* ---- Bytes that are not sent yet ---- */

static char block[40 << 10];

TEST(limits_buffered_bytes_of_all_calls) {
  char name[64];
  int listener = silent_server(name, sizeof(name));
  penstock_channel *channel = open_at(name, "{\"tls\": false, \"max_buffered_bytes\": 102400}");
  penstock_call *one = start_call(channel, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM);
  penstock_call *other = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_call_try_send(one, block, sizeof(block)));
  OK(penstock_call_try_send(one, block, sizeof(block)));
  CHECK_RESULT(penstock_call_try_send(one, block, sizeof(block)), PENSTOCK_E_WOULD_BLOCK);
  /* Each call has room for one message. */
  OK(penstock_call_try_send(other, block, sizeof(block)));
  CHECK_RESULT(penstock_call_try_send(other, "x", 1), PENSTOCK_E_WOULD_BLOCK);
  /* A call that ends gives its bytes back, and a unary call takes none. */
  penstock_call *unary = start_call(channel, UNARY, PENSTOCK_KIND_UNARY);
  OK(penstock_call_try_send(unary, block, sizeof(block)));
  CHECK_RESULT(penstock_call_try_send(other, "x", 1), PENSTOCK_E_WOULD_BLOCK);
  OK(penstock_call_cancel(one, NULL));
  FINISH(one, PENSTOCK_STATUS_CANCELLED, NULL);
  OK(penstock_call_try_send(other, block, sizeof(block)));
  CHECK_RESULT(penstock_call_try_send(other, block, sizeof(block)), PENSTOCK_E_WOULD_BLOCK);
  OK(penstock_call_cancel(unary, NULL));
  FINISH(unary, PENSTOCK_STATUS_CANCELLED, NULL);
  OK(penstock_call_cancel(other, NULL));
  FINISH(other, PENSTOCK_STATUS_CANCELLED, NULL);
  penstock_channel_release(channel);
  close(listener);
}

static void *send_many(void *context) {
  penstock_channel *channel = context;
  penstock_call *call = start_call(channel, CLIENT_STREAM, PENSTOCK_KIND_CLIENT_STREAM);
  for (int i = 0; i < 50; i++) OK(penstock_call_send(call, block, sizeof(block)));
  FINISH(call, PENSTOCK_STATUS_OK, NULL);
  return NULL;
}

/* With room for nothing, each call still goes on, one message after the other. */
TEST(limits_buffered_bytes_let_every_call_go_on) {
  penstock_channel *channel = open_at(peer_address(), "{\"tls\": false, \"max_buffered_bytes\": 1}");
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) CHECK_INT(pthread_create(&threads[i], NULL, send_many, channel), 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  check_echo(channel);
  penstock_channel_release(channel);
}

/* ---- The order of calls that wait ---- */

typedef struct turns {
  penstock_channel *channel;
  latch all;
  char order[8];
  atomic_int count;
} turns;

typedef struct turn {
  turns *turns;
  char name;
} turn;

static void note_turn(penstock_call *call, penstock_reply *reply, void *user_data) {
  const turn *self = user_data;
  (void)call;
  CHECK_INT(penstock_reply_code(reply), 0);
  self->turns->order[atomic_fetch_add(&self->turns->count, 1)] = self->name;
  latch_signal(&self->turns->all);
}

static penstock_call *take_turn(penstock_channel *channel, turn *turn,
                                void (*told)(penstock_call *, penstock_reply *, void *)) {
  penstock_call_callbacks table = PENSTOCK_CALL_CALLBACKS_INIT;
  table.user_data = turn;
  table.on_reply = told;
  penstock_call *call = NULL;
  OK(penstock_channel_call(channel, UNARY, PENSTOCK_KIND_UNARY, NULL, &table, &call, NULL));
  OK(penstock_call_try_send(call, "x", 1));
  return call;
}

/* Starts a call just when its end has made room for one. */
static void start_late(penstock_call *call, penstock_reply *reply, void *user_data) {
  turn *self = user_data;
  (void)call;
  CHECK_INT(penstock_reply_code(reply), 0);
  penstock_call *late = take_turn(self->turns->channel, self, note_turn);
  OK(penstock_call_half_close(late));
  penstock_call_release(late);
}

/* A call that begins when there is room again does not overtake one that has waited: with one server and with several,
 * each of which takes one call at once. */
TEST(limits_no_call_overtakes_one_that_waits) {
  static char *const one_call[] = {"--max-concurrent-streams", "1", NULL};
  static const char *const policies[] = {PICK_FIRST, ROUND_ROBIN};
  for (size_t i = 0; i < sizeof(policies) / sizeof(*policies); i++) {
    servers all;
    start_servers(&all, one_call);
    open_servers(&all, policies[i], "{\"tls\": false, \"max_connections_per_subchannel\": 1}");
    int most = i == 0 ? 1 : SERVERS;
    turns turns = {.channel = all.channel, .all = LATCH_INIT};
    turn late = {&turns, 'l'}, waits = {&turns, 'w'};
    /* Calls that end when they are half-closed. */
    penstock_call *first = take_turn(all.channel, &late, start_late), *others[SERVERS];
    for (int index = 1; index < most; index++) others[index] = start_call(all.channel, BIDI, PENSTOCK_KIND_BIDI);
    EVENTUALLY(count_in_stats(all.channel, "\"streams\":1,") == most);
    penstock_call *second = take_turn(all.channel, &waits, note_turn);
    OK(penstock_call_half_close(second));
    EVENTUALLY(waiting_calls_are(all.channel, 1));
    OK(penstock_call_half_close(first));
    latch_wait(&turns.all, 2);
    CHECK_STR(turns.order, "wl");
    for (int index = 1; index < most; index++) FINISH(others[index], PENSTOCK_STATUS_OK, NULL);
    penstock_call_release(first);
    penstock_call_release(second);
    end_servers(&all);
  }
}
