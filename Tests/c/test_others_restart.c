/* Faults reported in other libraries, third part: requests that are sent again. The server refuses a request with
 * `x-status: 16`, as with an expired token; a hop removes that header and sends the request again. See
 * docs/others.md. */
#include "others.h"

#define EXPIRED "{\"metadata\": {\"x-status\": \"16\", \"x-message\": \"expired\", \"x-trailers-token\": \"old\"}}"

static bool is_refused(penstock_hop *hop, int32_t event) {
  return event == PENSTOCK_EVENT_STATUS &&
         penstock_status_code(penstock_hop_status(hop)) == PENSTOCK_STATUS_UNAUTHENTICATED;
}

static void use_new_token(penstock_metadata *metadata) {
  OK(penstock_metadata_remove(metadata, "x-status"));
  OK(penstock_metadata_set(metadata, "x-trailers-token", "new"));
}

static int32_t refresh_at_once(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (!is_refused(hop, event) || penstock_hop_can_restart(hop) != PENSTOCK_OK) return PENSTOCK_NEXT;
  use_new_token(penstock_request_metadata(penstock_hop_request(hop)));
  return PENSTOCK_RESTART;
}

static void auth_init(probe *probe, int32_t (*hook)(struct probe *, penstock_hop *, int32_t)) {
  probe_init(probe, "auth");
  probe->hook = hook;
  probe->replay_bytes = 1000;
}

static void check_token(const penstock_reply *reply, const char *token) {
  const void *value = NULL;
  size_t length = 0;
  if (OK(penstock_metadata_get(penstock_reply_trailers(reply), "x-trailers-token", 0, &value, &length))) {
    CHECK(is_text(value, length, token));
  }
  CHECK_RESULT(penstock_metadata_get(penstock_reply_trailers(reply), "x-trailers-token", 1, &value, &length),
               PENSTOCK_E_NOT_FOUND);
}

static void check_new_token(penstock_channel *channel) {
  penstock_call_options *options = new_options(EXPIRED);
  penstock_reply *reply = NULL;
  if (OK(penstock_channel_unary(channel, UNARY, "ping", 4, options, &reply, NULL))) {
    CHECK_INT(penstock_reply_code(reply), 0);
    size_t length = 0;
    const void *data = penstock_reply_bytes(reply, &length);
    CHECK(is_text(data, length, "ping"));
    check_token(reply, "new");
    penstock_reply_release(reply);
  }
  penstock_call_options_release(options);
}

/* connect-swift 360: the caller, and the hops above, see one call that has succeeded. */
TEST(others_connect_swift_360_the_request_is_sent_again) {
  penstock_channel *channel = open_channel();
  probe above, auth, below;
  probe_init(&above, "above");
  auth_init(&auth, refresh_at_once);
  probe_init(&below, "below");
  probe_add(&above, channel, 3);
  probe_add(&auth, channel, 2);
  probe_add(&below, channel, 1);
  check_new_token(channel);
  penstock_channel_release(channel);
  check_ended(&above);
  check_ended(&auth);
  check_ended(&below);
  CHECK_INT(seen(&above, PENSTOCK_EVENT_STATUS), 1);
  CHECK_INT(seen(&above, PENSTOCK_EVENT_SEND), 1);
}

/* grpc-swift 1997: the second attempt has all of its events. */
TEST(others_grpc_swift_1997_a_request_sent_again_is_answered) {
  penstock_channel *channel = open_channel();
  probe auth, below;
  auth_init(&auth, refresh_at_once);
  probe_init(&below, "below");
  probe_add(&auth, channel, 2);
  probe_add(&below, channel, 1);
  check_new_token(channel);
  penstock_channel_release(channel);
  check_ended(&auth);
  check_ended(&below);
  CHECK_INT(seen(&below, PENSTOCK_EVENT_CREATE), 2);
  CHECK_INT(seen(&below, PENSTOCK_EVENT_SEND), 2);
  CHECK_INT(seen(&below, PENSTOCK_EVENT_HALF_CLOSE), 2);
  CHECK_INT(seen(&below, PENSTOCK_EVENT_RECEIVE), 1);
  CHECK_INT(seen(&below, PENSTOCK_EVENT_STATUS), 2);
}

/* ---- One token refresh for many calls ---- */

enum { MANY = 100 };
typedef struct refresher {
  pthread_mutex_t mutex;
  penstock_ticket tickets[MANY];
  int count;
  latch waiting;
} refresher;

static int32_t wait_for_refresh(probe *self, penstock_hop *hop, int32_t event) {
  if (!is_refused(hop, event)) return PENSTOCK_NEXT;
  refresher *refresher = self->context;
  pthread_mutex_lock(&refresher->mutex);
  refresher->tickets[refresher->count++] = penstock_hop_ticket(hop);
  pthread_mutex_unlock(&refresher->mutex);
  latch_signal(&refresher->waiting);
  return PENSTOCK_PAUSE;
}

static void *call_with_expired_token(void *channel) {
  check_new_token(channel);
  return NULL;
}

/* grpc-swift 1154: a hundred calls fail at once, and wait for one refresh. */
TEST(others_grpc_swift_1154_a_hundred_calls_wait_for_one_refresh) {
  penstock_channel *channel = open_channel();
  probe auth;
  refresher refresher = {.mutex = PTHREAD_MUTEX_INITIALIZER, .waiting = LATCH_INIT};
  auth_init(&auth, wait_for_refresh);
  auth.context = &refresher;
  probe_add(&auth, channel, 0);
  pthread_t threads[MANY];
  for (int i = 0; i < MANY; i++) pthread_create(&threads[i], NULL, call_with_expired_token, channel);
  latch_wait(&refresher.waiting, MANY);
  /* The token comes now. */
  for (int i = 0; i < MANY; i++) {
    penstock_hop *hop = NULL;
    OK(penstock_ticket_hop(refresher.tickets[i], &hop));
    use_new_token(penstock_request_metadata(penstock_hop_request(hop)));
    OK(penstock_ticket_resolve(refresher.tickets[i], PENSTOCK_RESTART));
    penstock_hop_release(hop);
  }
  for (int i = 0; i < MANY; i++) pthread_join(threads[i], NULL);
  CHECK_INT(refresher.count, MANY);
  penstock_channel_release(channel);
  check_ended(&auth);
}

static int32_t refresh_in_vain(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  return is_refused(hop, event) ? PENSTOCK_RESTART : PENSTOCK_NEXT;
}

/* google-ads-java 169: a token that stays invalid after a refresh does not make the call restart for ever. */
TEST(others_google_ads_169_restarts_have_an_end) {
  penstock_channel *channel = open_channel();
  probe auth, below;
  auth_init(&auth, refresh_in_vain);
  probe_init(&below, "below");
  auth.max_restarts = 3;
  probe_add(&auth, channel, 2);
  probe_add(&below, channel, 1);
  check_unary(channel, EXPIRED, PENSTOCK_STATUS_UNAUTHENTICATED, "expired");
  penstock_channel_release(channel);
  check_ended(&auth);
  check_ended(&below);
  CHECK_INT(seen(&below, PENSTOCK_EVENT_CREATE), 4);
}

/* ---- Cancel ---- */

static int32_t hang_second(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_HALF_CLOSE && penstock_hop_attempt(hop) == 2) {
    CHECK(penstock_hop_ticket(hop) != 0);
    latch_signal(self->context);
    return PENSTOCK_PAUSE;
  }
  return PENSTOCK_NEXT;
}

/* grpc-swift 1265: the caller cancels while the second attempt is under way; the cancel reaches that attempt. */
TEST(others_grpc_swift_1265_a_restarted_call_is_cancelled) {
  penstock_channel *channel = open_channel();
  probe auth, below;
  latch under_way = LATCH_INIT;
  collector collector = COLLECTOR_INIT;
  auth_init(&auth, refresh_at_once);
  probe_init_with(&below, "below", hang_second, &under_way);
  probe_add(&auth, channel, 2);
  probe_add(&below, channel, 1);
  penstock_call *call = start_collecting(channel, UNARY, PENSTOCK_KIND_UNARY, EXPIRED, &collector);
  OK(penstock_call_try_send(call, "x", 1));
  OK(penstock_call_half_close(call));
  latch_wait(&under_way, 1);
  OK(penstock_call_cancel(call, "enough"));
  latch_wait(&collector.finalized, 1);
  CHECK_INT(collector.code, PENSTOCK_STATUS_CANCELLED);
  penstock_call_release(call);
  penstock_channel_release(channel);
  check_ended(&auth);
  check_ended(&below);
  CHECK_INT(seen(&below, PENSTOCK_EVENT_CREATE), 2);
  CHECK_INT(seen(&below, PENSTOCK_EVENT_STATUS), 2);
  CHECK_INT(seen(&auth, PENSTOCK_EVENT_STATUS), 2);
}

static void *cancel_once(void *call) {
  for (volatile uint32_t i = test_random(2000); i > 0; i--) {
  }
  OK(penstock_call_cancel(call, "enough"));
  penstock_call_release(call);
  return NULL;
}

static int32_t refresh_for_long(probe *self, penstock_hop *hop, int32_t event) {
  int32_t verdict = refresh_at_once(self, hop, event);
  penstock_metadata *request = penstock_request_metadata(penstock_hop_request(hop));
  if (verdict == PENSTOCK_RESTART) OK(penstock_metadata_set(request, "x-delay-ms", "60000"));
  return verdict;
}

/* grpc-swift 1412: another thread cancels the call, at any moment of the refresh and of both attempts. The second
 * attempt has no answer, so the cancel always comes in time. */
TEST(others_grpc_swift_1412_cancel_at_any_moment_of_a_restart) {
  penstock_channel *channel = open_channel();
  probe auth, below;
  auth_init(&auth, refresh_for_long);
  probe_init(&below, "below");
  probe_add(&auth, channel, 2);
  probe_add(&below, channel, 1);
  for (int i = 0; i < test_rounds(300); i++) {
    collector collector = COLLECTOR_INIT;
    int begun = seen(&below, PENSTOCK_EVENT_CREATE);
    penstock_call *call = start_collecting(channel, UNARY, PENSTOCK_KIND_UNARY, EXPIRED, &collector);
    OK(penstock_call_try_send(call, "x", 1));
    penstock_call_half_close(call);
    EVENTUALLY(seen(&below, PENSTOCK_EVENT_CREATE) >= begun + i % 3);
    pthread_t thread;
    pthread_create(&thread, NULL, cancel_once, call);
    latch_wait(&collector.finalized, 1);
    pthread_join(thread, NULL);
    CHECK_INT(collector.code, PENSTOCK_STATUS_CANCELLED);
  }
  printf("  %d attempts of %d calls\n", seen(&below, PENSTOCK_EVENT_CREATE), test_rounds(300));
  penstock_channel_release(channel);
  check_ended(&auth);
  check_ended(&below);
}

/* ---- With another call in between ---- */

typedef struct confirming {
  penstock_channel *channel;
  penstock_ticket ticket;
  latch needed;
} confirming;

static int32_t ask_to_confirm(probe *self, penstock_hop *hop, int32_t event) {
  if (!is_refused(hop, event)) return PENSTOCK_NEXT;
  confirming *confirming = self->context;
  use_new_token(penstock_request_metadata(penstock_hop_request(hop)));
  confirming->ticket = penstock_hop_ticket(hop);
  latch_signal(&confirming->needed);
  return PENSTOCK_PAUSE;
}

static void *confirm(void *pointer) {
  confirming *confirming = pointer;
  latch_wait(&confirming->needed, 1);
  check_echo(confirming->channel);
  OK(penstock_ticket_resolve(confirming->ticket, PENSTOCK_RESTART));
  return NULL;
}

/* grpc-swift 1581: a failed call is held until another call on the same channel has ended, and is then sent again. */
TEST(others_grpc_swift_1581_another_call_and_then_the_same_again) {
  confirming confirming = {open_channel(), 0, LATCH_INIT};
  probe auth;
  auth_init(&auth, ask_to_confirm);
  auth.context = &confirming;
  probe_add(&auth, confirming.channel, 0);
  pthread_t thread;
  pthread_create(&thread, NULL, confirm, &confirming);
  check_new_token(confirming.channel);
  pthread_join(thread, NULL);
  penstock_channel_release(confirming.channel);
  check_ended(&auth);
  CHECK_INT(seen(&auth, PENSTOCK_EVENT_CREATE), 2);
}

static int32_t hold_headers_and_refresh(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_HEADERS || event == PENSTOCK_EVENT_RECEIVE) return PENSTOCK_HOLD;
  return refresh_at_once(self, hop, event);
}

/* envoy 37625: events of the first answer that a filter has stopped do not go on beside the second answer. */
TEST(others_envoy_37625_what_was_held_does_not_go_on_after_a_restart) {
  penstock_channel *channel = open_channel();
  probe above, auth;
  probe_init(&above, "above");
  auth_init(&auth, hold_headers_and_refresh);
  probe_add(&above, channel, 2);
  probe_add(&auth, channel, 1);
  penstock_call *call =
      start_with(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM,
                 "{\"metadata\": {\"x-count\": \"3\", \"x-status\": \"16\", \"x-trailers-token\": \"old\"}}");
  OK(penstock_call_send(call, "m", 1));
  for (int i = 0; i < 3; i++) check_receive(call, "m");
  penstock_message *message = NULL;
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
  check_finish(call, 0);
  penstock_channel_release(channel);
  check_ended(&above);
  check_ended(&auth);
  CHECK_INT(seen(&auth, PENSTOCK_EVENT_RECEIVE), 6);
  CHECK_INT(seen(&above, PENSTOCK_EVENT_HEADERS), 1);
  CHECK_INT(seen(&above, PENSTOCK_EVENT_RECEIVE), 3);
}

/* ---- The request with which each attempt starts ---- */

static int32_t add_below(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_START) OK(penstock_metadata_add(penstock_hop_metadata(hop), "x-trailers-hop", "one"));
  return PENSTOCK_NEXT;
}

static int32_t look_for_hop(probe *self, penstock_hop *hop, int32_t event) {
  if (is_refused(hop, event)) {
    const void *value = NULL;
    CHECK_RESULT(
        penstock_metadata_get(penstock_request_metadata(penstock_hop_request(hop)), "x-trailers-hop", 0, &value, NULL),
        PENSTOCK_E_NOT_FOUND);
  }
  return refresh_at_once(self, hop, event);
}

/* opentelemetry-dotnet-contrib 143 and flyte-sdk 890: each attempt starts with the request as it left the hop that
 * restarts; headers that hops below added to the first attempt are not in the second attempt twice. */
TEST(others_flyte_890_headers_do_not_pile_up_over_attempts) {
  penstock_channel *channel = open_channel();
  probe auth, below;
  auth_init(&auth, look_for_hop);
  probe_init_with(&below, "below", add_below, NULL);
  probe_add(&auth, channel, 2);
  probe_add(&below, channel, 1);
  penstock_call_options *options = new_options(EXPIRED);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), 0);
  const void *value = NULL;
  OK(penstock_metadata_get(penstock_reply_trailers(reply), "x-trailers-hop", 0, &value, NULL));
  CHECK_RESULT(penstock_metadata_get(penstock_reply_trailers(reply), "x-trailers-hop", 1, &value, NULL),
               PENSTOCK_E_NOT_FOUND);
  check_token(reply, "new");
  penstock_reply_release(reply);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  check_ended(&auth);
  check_ended(&below);
}
