/* hop.h: the result of each function in each callback, on other threads and after the end. */
#include "calls.h"
#include "hops.h"

/* ---- The functions that each callback may call ---- */

static penstock_result expect(int32_t event, uint32_t allowed) {
  return HAS(allowed, event) ? PENSTOCK_OK : PENSTOCK_E_STATE;
}

#define CHECK_IN(event, call, allowed)                                                                                 \
  do {                                                                                                                 \
    penstock_result result_ = (call);                                                                                  \
    /* In destroy all functions but those of the handle itself say that the hop has ended. */                          \
    if ((event) == PENSTOCK_EVENT_DESTROY && result_ == PENSTOCK_E_GONE) result_ = PENSTOCK_E_STATE;                   \
    if (!check_result(__FILE__, __LINE__, #call, result_, expect((event), (allowed)))) {                               \
      printf("  in %s\n", event_name(event));                                                                          \
    }                                                                                                                  \
  } while (0)
#define CHECK_EVENT(condition, event)                                                                                  \
  do {                                                                                                                 \
    if (!CHECK(condition)) printf("  in %s\n", event_name(event));                                                     \
  } while (0)

static int32_t look(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  const void *data = NULL;
  size_t length = 0;
  CHECK_EVENT((penstock_hop_metadata(hop) != NULL) ==
                  HAS(IN(CREATE) | IN(START) | IN(HEADERS) | IN(STATUS) | IN(CANCEL), event),
              event);
  CHECK_EVENT((penstock_hop_status(hop) != NULL) == HAS(IN(STATUS) | IN(CANCEL), event), event);
  CHECK_IN(event, hop_bytes(hop, &data, &length), IN(SEND) | IN(RECEIVE));
  CHECK_IN(event, penstock_hop_set_bytes(hop, "x", 1), IN(SEND) | IN(RECEIVE));
  CHECK_EVENT((penstock_hop_count(hop) > 0) == HAS(IN(DEMAND) | IN(SENT), event), event);
  CHECK_IN(event, penstock_hop_set_count(hop, penstock_hop_count(hop)), IN(DEMAND));
  CHECK_EVENT(penstock_request_method(penstock_hop_request(hop)) != NULL, event);
  if (event != PENSTOCK_EVENT_DESTROY) CHECK_STR(penstock_request_method(penstock_hop_request(hop)), BIDI);
  CHECK_IN(event, penstock_request_set_method(penstock_hop_request(hop), BIDI), IN(START));
  CHECK_IN(event, penstock_request_set_authority(penstock_hop_request(hop), "example.com"), IN(START));
  CHECK_EVENT(request_deadline_ms(penstock_hop_request(hop)) >= -1, event);
  CHECK_IN(event, penstock_request_set_deadline_ms(penstock_hop_request(hop), 60000), IN(START));
  CHECK_EVENT((penstock_hop_ticket(hop) != 0) == HAS(PAUSABLE, event) ||
                  (event == PENSTOCK_EVENT_STATUS && penstock_hop_ticket(hop) == 0),
              event);
  if (HAS(PAUSABLE, event)) CHECK_EVENT(penstock_hop_ticket(hop) == penstock_hop_ticket(hop), event);
  /* deliver_headers is allowed in on_start, because the verdict may still be TAKE. */
  CHECK_IN(event, penstock_hop_deliver_headers(hop, NULL), IN(START));
  penstock_status *status = NULL;
  OK(penstock_status_new(0, NULL, &status));
  CHECK_IN(event, penstock_hop_deliver_status(hop, status), IN(START));
  penstock_status_release(status);
  if (!HAS(CALLBACKS & ~IN(CANCEL), event)) CHECK_IN(event, penstock_hop_end(hop, 0, NULL), 0);
  if (event == PENSTOCK_EVENT_CREATE || event == PENSTOCK_EVENT_DESTROY) {
    CHECK_IN(event, penstock_hop_send(hop, "x", 1), 0);
  }
  if (event != PENSTOCK_EVENT_DESTROY) {
    CHECK_IN(event, penstock_hop_set_value(hop, "k", (void *)1, NULL), EVERY);
    CHECK_EVENT(penstock_hop_value(hop, "k") == (void *)1, event);
  }
  penstock_metadata *metadata = penstock_hop_metadata(hop);
  if (metadata) {
    bool local = event == PENSTOCK_EVENT_STATUS && penstock_metadata_set(metadata, "x-a", "1") == PENSTOCK_E_STATE;
    if (!local) CHECK_IN(event, penstock_metadata_set(metadata, "x-a", "1"), IN(START) | IN(HEADERS) | IN(STATUS));
  }
  CHECK_EVENT(penstock_hop_call_id(hop) != 0, event);
  CHECK_INT(penstock_hop_kind(hop), PENSTOCK_KIND_BIDI);
  CHECK_STR(penstock_hop_target(hop), peer_address());
  return PENSTOCK_NEXT;
}

TEST(hop_functions_in_every_callback) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "look", look, NULL);
  probe_add(&probe, channel, 0);
  run_bidi(channel, false);
  run_bidi(channel, true);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
  for (int32_t event = 1; event < 12; event++) {
    if (event != PENSTOCK_EVENT_CANCEL) CHECK_EVENT(atomic_load(&probe.seen[event]) > 0, event);
  }
}

/* Checks the functions in on_cancel, which comes when a hop above has ended the call. */
static int32_t look_at_cancel(probe *self, penstock_hop *hop, int32_t event) {
  if (event != PENSTOCK_EVENT_CANCEL) return PENSTOCK_NEXT;
  look(self, hop, event);
  CHECK_INT(penstock_status_code(penstock_hop_status(hop)), PENSTOCK_STATUS_ABORTED);
  CHECK_RESULT(penstock_status_set_code(penstock_hop_status(hop), 0), PENSTOCK_E_STATE);
  return PENSTOCK_NEXT;
}
TEST(hop_functions_in_on_cancel) {
  penstock_channel *channel = open_channel();
  probe above, below;
  probe_init(&above, "above");
  probe_init(&below, "below");
  above.hook = end_on_receive;
  below.hook = look_at_cancel;
  probe_add(&above, channel, 1);
  probe_add(&below, channel, 0);
  run_bidi(channel, false);
  penstock_channel_release(channel);
  probe_wait_finalized(&above);
  probe_wait_finalized(&below);
  CHECK_INT(atomic_load(&below.seen[PENSTOCK_EVENT_CANCEL]), 1);
}

/* ---- Functions on another thread, and after the hop's end ---- */

static void everything_gives(penstock_hop *hop, penstock_result expected) {
  penstock_status *status = NULL;
  OK(penstock_status_new(0, NULL, &status));
  CHECK(penstock_hop_metadata(hop) == NULL);
  CHECK(penstock_hop_status(hop) == NULL);
  CHECK_INT(penstock_hop_count(hop), 0);
  CHECK_INT(penstock_hop_event(hop), PENSTOCK_EVENT_NONE);
  CHECK_INT(penstock_hop_ticket(hop), 0);
  CHECK(penstock_hop_message(hop) == NULL);
  CHECK_RESULT(penstock_hop_set_bytes(hop, "x", 1), expected);
  CHECK_RESULT(penstock_hop_set_count(hop, 1), expected);
  CHECK_RESULT(penstock_request_set_method(penstock_hop_request(hop), "/a/b"), expected);
  CHECK_RESULT(penstock_request_set_authority(penstock_hop_request(hop), "x"), expected);
  CHECK_RESULT(penstock_request_set_deadline_ms(penstock_hop_request(hop), 1), expected);
  /* Any thread that has the hop may end the call and inject messages, so these functions do not give E_STATE. */
  if (expected != PENSTOCK_E_STATE) {
    CHECK_RESULT(penstock_hop_end(hop, 0, NULL), expected);
    CHECK_RESULT(penstock_hop_end_with(hop, status), expected);
    CHECK_RESULT(penstock_hop_send(hop, "x", 1), expected);
    CHECK_RESULT(penstock_hop_deliver(hop, "x", 1), expected);
  }
  CHECK_RESULT(penstock_hop_deliver_headers(hop, NULL), expected);
  CHECK_RESULT(penstock_hop_deliver_status(hop, status), expected);
  atomic_int finalized = 0;
  CHECK_RESULT(penstock_hop_set_value(hop, "k", &finalized, count_up), expected);
  CHECK_INT(atomic_load(&finalized), 1);
  CHECK(penstock_hop_value(hop, "k") == NULL);
  /* These functions work on any thread. */
  CHECK(penstock_hop_call_id(hop) != 0);
  CHECK_INT(penstock_hop_kind(hop), PENSTOCK_KIND_BIDI);
  CHECK_STR(penstock_hop_target(hop), peer_address());
  penstock_status_release(status);
}

static void *use_elsewhere(void *hop) {
  everything_gives(hop, PENSTOCK_E_STATE);
  return NULL;
}

typedef struct keeper {
  penstock_hop *hop;
  int used;
} keeper;

static int32_t keep_and_use_elsewhere(probe *self, penstock_hop *hop, int32_t event) {
  keeper *keeper = self->context;
  if (event == PENSTOCK_EVENT_START) keeper->hop = penstock_hop_retain(hop);
  if (HAS(PAUSABLE & ~IN(START), event)) {
    pthread_t thread;
    pthread_create(&thread, NULL, use_elsewhere, hop);
    pthread_join(thread, NULL);
    keeper->used++;
  }
  return PENSTOCK_NEXT;
}

TEST(hop_on_other_threads_and_after_the_end) {
  penstock_channel *channel = open_channel();
  probe probe;
  keeper keeper = {NULL, 0};
  probe_init_with(&probe, "keep", keep_and_use_elsewhere, &keeper);
  probe_add(&probe, channel, 0);
  run_bidi(channel, false);
  CHECK_INT(keeper.used, 5);
  latch_wait(&probe.done, 1);
  everything_gives(keeper.hop, PENSTOCK_E_GONE);
  CHECK_RESULT(penstock_hop_demand(keeper.hop, 1), PENSTOCK_E_GONE);
  penstock_channel_release(channel);
  everything_gives(keeper.hop, PENSTOCK_E_GONE);
  /* A retained hop does not keep the interceptor alive. */
  probe_wait_finalized(&probe);
  everything_gives(keeper.hop, PENSTOCK_E_GONE);
  penstock_hop_release(keeper.hop);
}

/* ---- The start ---- */

static int32_t rewrite_start(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  static const char *const wrong[] = {"", "/", "a", "/a", "/a/", "//b", "/a b/c"};
  for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
    if (!CHECK_RESULT(penstock_request_set_method(penstock_hop_request(hop), wrong[i]), PENSTOCK_E_INVALID_ARGUMENT))
      printf("  \"%s\"\n", wrong[i]);
  }
  CHECK_STR(penstock_request_method(penstock_hop_request(hop)), "/no.Such/Thing");
  OK(penstock_request_set_method(penstock_hop_request(hop), UNARY));
  CHECK_STR(penstock_request_method(penstock_hop_request(hop)), UNARY);
  OK(penstock_request_set_authority(penstock_hop_request(hop), "other.example:99"));
  CHECK_STR(penstock_request_authority(penstock_hop_request(hop)), "other.example:99");
  CHECK_RESULT(penstock_request_set_authority(penstock_hop_request(hop), "a\nb"), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_INT(request_deadline_ms(penstock_hop_request(hop)), -1);
  OK(penstock_request_set_deadline_ms(penstock_hop_request(hop), 50000));
  int64_t left = request_deadline_ms(penstock_hop_request(hop));
  CHECK(left > 20000 && left <= 50000);
  CHECK_RESULT(penstock_request_set_deadline_ms(penstock_hop_request(hop), -2), PENSTOCK_E_INVALID_ARGUMENT);
  /* Law 5: a hop can't set the names that the protocol uses. */
  CHECK_RESULT(penstock_metadata_set(penstock_hop_metadata(hop), "grpc-timeout", "1S"), PENSTOCK_E_INVALID_ARGUMENT);
  OK(penstock_metadata_set_json(penstock_hop_metadata(hop), "{\"x-b-bin\": \"AAE\"}", NULL));
  return PENSTOCK_NEXT;
}
TEST(hop_rewrites_the_start) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "rewrite", rewrite_start, NULL);
  probe_add(&probe, channel, 0);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, "/no.Such/Thing", "x", 1, NULL, &reply, NULL));
  CHECK_INT(penstock_reply_code(reply), 0);
  penstock_reply_release(reply);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

static int32_t shorten_deadline(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_START) OK(penstock_request_set_deadline_ms(penstock_hop_request(hop), 30));
  return PENSTOCK_NEXT;
}
TEST(hop_shortens_the_deadline) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "deadline", shorten_deadline, NULL);
  probe_add(&probe, channel, 0);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  penstock_message *message = NULL;
  CHECK_RESULT(penstock_call_receive(call, &message), PENSTOCK_E_END);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_call_wait(call, &reply));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

static int32_t retain_at_start(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_START) self->context = penstock_hop_retain(hop);
  return PENSTOCK_NEXT;
}

/* Outside of callbacks the getters of the request do not show the start, because another thread might change it at that
 * moment. */
/* The getters of a request that can't be read: NULL, or this result and an output that stays as it was. */
static void check_unreadable(penstock_request *request, penstock_result expected) {
  int64_t left = 77;
  size_t limit = 77;
  int32_t number = 77;
  CHECK_RESULT(penstock_request_deadline_ms(request, &left), expected);
  CHECK_RESULT(penstock_request_max_receive_message_bytes(request, &limit), expected);
  CHECK_RESULT(penstock_request_max_send_message_bytes(request, &limit), expected);
  CHECK_RESULT(penstock_request_idempotency(request, &number), expected);
  CHECK_RESULT(penstock_request_allows_get(request, &number), expected);
  CHECK_RESULT(penstock_request_is_transparent_retry(request, &number), expected);
  CHECK_RESULT(penstock_request_wait_for_ready(request, &number), expected);
  CHECK_RESULT(penstock_request_has_credentials(request, &number), expected);
  CHECK(left == 77 && limit == 77 && number == 77);
  CHECK(penstock_request_compression(request) == NULL);
  CHECK(penstock_request_content_subtype(request) == NULL);
  CHECK(penstock_request_user_agent(request) == NULL);
  CHECK(penstock_request_http_method(request) == NULL);
}

TEST(hop_tells_of_the_start_in_callbacks_only) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "retained", retain_at_start, NULL);
  probe_add(&probe, channel, 0);
  penstock_call_options *options = NULL;
  penstock_call *call = NULL;
  const penstock_metadata *headers = NULL;
  REQUIRE_OK(penstock_call_options_new("{\"deadline_ms\": 60000, \"compression\": \"gzip\"}", &options, NULL));
  REQUIRE_OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, options, NULL, &call, NULL));
  OK(penstock_call_wait_headers(call, &headers));
  CHECK(penstock_request_method(penstock_hop_request(probe.context)) == NULL);
  CHECK(penstock_request_authority(penstock_hop_request(probe.context)) == NULL);
  check_unreadable(penstock_hop_request(probe.context), PENSTOCK_E_STATE);
  CHECK_HAS(penstock_hop_why(probe.context), "allowed only in a callback");
  CHECK_INT(penstock_hop_kind(probe.context), PENSTOCK_KIND_BIDI);
  CHECK_FINISH(call, PENSTOCK_STATUS_OK);
  EVENTUALLY(atomic_load(&probe.seen[PENSTOCK_EVENT_DESTROY]) == 1);
  check_unreadable(penstock_hop_request(probe.context), PENSTOCK_E_GONE);
  penstock_hop_release(probe.context);
  penstock_call_release(call);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}
