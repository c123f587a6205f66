/* NULL for every pointer of the functions of hops, tickets, styles, codecs and ready-made interceptors. */
#include "null.h"

TEST(null_hop) {
  penstock_status *status = NULL;
  OK(penstock_status_new(0, NULL, &status));
  CHECK(penstock_hop_retain(NULL) == NULL);
  penstock_hop_release(NULL);
  CHECK_INT(penstock_hop_event(NULL), PENSTOCK_EVENT_NONE);
  CHECK_INT(penstock_hop_call_id(NULL), 0);
  CHECK_INT(penstock_hop_kind(NULL), -1);
  CHECK_INT(penstock_hop_attempt(NULL), 0);
  REFUSED(penstock_hop_set_executors(NULL, NULL, NULL));
  CHECK(penstock_request_metadata(penstock_hop_request(NULL)) == NULL);
  REFUSED(penstock_hop_can_restart(NULL));
  CHECK_INT(penstock_hop_level(NULL), -1);
  CHECK(penstock_hop_target(NULL) == NULL);
  CHECK_STR(penstock_hop_why(NULL), "");
  CHECK(penstock_hop_metadata(NULL) == NULL);
  REFUSED(penstock_hop_set_bytes(NULL, "x", 1));
  CHECK(penstock_hop_status(NULL) == NULL);
  CHECK_INT(penstock_hop_count(NULL), 0);
  REFUSED(penstock_hop_set_count(NULL, 1));
  CHECK(penstock_request_method(NULL) == NULL);
  REFUSED(penstock_request_set_method(NULL, "/a/b"));
  CHECK(penstock_request_authority(NULL) == NULL);
  REFUSED(penstock_request_set_authority(NULL, "a"));
  int64_t left = 0;
  size_t limit = 0;
  int32_t number = 0;
  REFUSED(penstock_request_deadline_ms(NULL, &left));
  REFUSED(penstock_request_set_deadline_ms(NULL, 1));
  CHECK(penstock_request_compression(NULL) == NULL);
  REFUSED(penstock_request_set_compression(NULL, "gzip"));
  REFUSED(penstock_request_max_receive_message_bytes(NULL, &limit));
  REFUSED(penstock_request_set_max_receive_message_bytes(NULL, 1));
  REFUSED(penstock_request_max_send_message_bytes(NULL, &limit));
  REFUSED(penstock_request_set_max_send_message_bytes(NULL, 1));
  REFUSED(penstock_request_idempotency(NULL, &number));
  REFUSED(penstock_request_set_idempotency(NULL, 1));
  CHECK(penstock_request_content_subtype(NULL) == NULL);
  REFUSED(penstock_request_set_content_subtype(NULL, "json"));
  CHECK(penstock_request_user_agent(NULL) == NULL);
  REFUSED(penstock_request_set_user_agent(NULL, "x"));
  REFUSED(penstock_request_wait_for_ready(NULL, &number));
  REFUSED(penstock_request_set_wait_for_ready(NULL, 1));
  REFUSED(penstock_request_prefer(NULL, "zone", "a", 0));
  penstock_message *message = NULL;
  REFUSED(penstock_request_message(NULL, 0, &message));
  OK(penstock_message_new("x", 1, 0, &message));
  REFUSED(penstock_request_set_message(NULL, 0, message));
  penstock_message_release(message);
  CHECK(penstock_hop_address(NULL) == NULL && penstock_hop_address_attribute(NULL, "zone") == NULL);
  REFUSED(penstock_request_has_credentials(NULL, &number));
  REFUSED(penstock_request_set_credentials(NULL, "x"));
  CHECK_INT(penstock_hop_is_secure(NULL), 0);
  CHECK(penstock_hop_protocol(NULL) == NULL && penstock_request_http_method(NULL) == NULL);
  REFUSED(penstock_request_allows_get(NULL, &number));
  uint32_t count = 0;
  REFUSED(penstock_request_previous_attempts(NULL, &count));
  REFUSED(penstock_request_is_transparent_retry(NULL, &number));
  REFUSED(penstock_request_set_allows_get(NULL, 1));
  char *text = NULL;
  REFUSED(penstock_hop_stats_json(NULL, &text));
  REFUSED(penstock_hop_peer_certificates_pem(NULL, &text));
  REFUSED(penstock_hop_end(NULL, 0, NULL));
  REFUSED(penstock_hop_end_with(NULL, status));
  REFUSED(penstock_request_set_channel(NULL, NULL));
  char *trace = NULL;
  REFUSED(penstock_hop_trace_json(NULL, &trace));
  penstock_call *call = NULL;
  REFUSED_WITH_ERROR(penstock_hop_start_side_call(NULL, UNARY, 0, 0, NULL, NULL, &call, &error));
  REFUSED(penstock_hop_send(NULL, "x", 1));
  REFUSED(penstock_hop_deliver(NULL, "x", 1));
  REFUSED(penstock_hop_deliver_headers(NULL, NULL));
  REFUSED(penstock_hop_deliver_status(NULL, status));
  REFUSED(penstock_hop_demand(NULL, 1));
  REFUSED(penstock_hop_half_close(NULL));
  atomic_int finalized = 0;
  REFUSED(penstock_hop_set_value(NULL, "k", &finalized, count_up));
  CHECK_INT(atomic_load(&finalized), 1);
  CHECK(penstock_hop_value(NULL, "k") == NULL);
  CHECK_INT(penstock_hop_ticket(NULL), 0);
  penstock_status_release(status);
}

TEST(null_ticket) {
  penstock_hop *bound = NULL;
  CHECK(penstock_ticket_resolve(0, PENSTOCK_NEXT) != PENSTOCK_OK);
  CHECK(penstock_ticket_resolve(0, PENSTOCK_DROP) != PENSTOCK_OK);
  CHECK(penstock_ticket_end(0, 0, NULL) != PENSTOCK_OK);
  REFUSED(penstock_ticket_end_with(0, NULL));
  CHECK(penstock_ticket_resolve_after(0, PENSTOCK_NEXT, 0) != PENSTOCK_OK);
  REFUSED(penstock_ticket_hop(0, NULL));
  CHECK(penstock_ticket_hop(0, &bound) != PENSTOCK_OK);
}

/* Passes NULL to functions that also get a live hop or a live ticket. */
static int32_t pass_nulls(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  const void *data = NULL;
  if (event == PENSTOCK_EVENT_START) {
    REFUSED(penstock_request_set_method(penstock_hop_request(hop), NULL));
    REFUSED(penstock_request_set_authority(penstock_hop_request(hop), NULL));
    REFUSED(penstock_request_set_compression(penstock_hop_request(hop), NULL));
    OK(penstock_request_set_credentials(penstock_hop_request(hop), NULL));
    REFUSED(penstock_hop_stats_json(hop, NULL));
    REFUSED(penstock_hop_peer_certificates_pem(hop, NULL));
    REFUSED(penstock_hop_end_with(hop, NULL));
    REFUSED(penstock_request_set_channel(penstock_hop_request(hop), NULL));
    REFUSED(penstock_request_prefer(penstock_hop_request(hop), "zone", NULL, 1));
    REFUSED(penstock_request_message(penstock_hop_request(hop), 0, NULL));
    REFUSED(penstock_request_set_message(penstock_hop_request(hop), 0, NULL));
    OK(penstock_request_prefer(penstock_hop_request(hop), NULL, NULL, 1));
    CHECK(penstock_hop_address(hop) == NULL && penstock_hop_address_attribute(hop, NULL) == NULL);
    REFUSED(penstock_hop_trace_json(hop, NULL));
    penstock_call *call = NULL;
    REFUSED_WITH_ERROR(penstock_hop_start_side_call(hop, NULL, 0, 0, NULL, NULL, &call, &error));
    REFUSED_WITH_ERROR(penstock_hop_start_side_call(hop, UNARY, 0, 0, NULL, NULL, NULL, &error));
    atomic_int finalized = 0;
    REFUSED(penstock_hop_set_value(hop, NULL, &finalized, count_up));
    CHECK_INT(atomic_load(&finalized), 1);
    CHECK(penstock_hop_value(hop, NULL) == NULL);
    REFUSED(penstock_hop_deliver_status(hop, NULL));
    CHECK_RESULT(penstock_hop_resolve(hop, PENSTOCK_NEXT), PENSTOCK_E_STATE);
    penstock_ticket ticket = penstock_hop_ticket(hop);
    REFUSED(penstock_ticket_hop(ticket, NULL));
    REFUSED(penstock_ticket_end_with(ticket, NULL));
    penstock_hop *kept = NULL;
    if (OK(penstock_ticket_hop(ticket, &kept))) {
      CHECK_INT(penstock_hop_event(kept), PENSTOCK_EVENT_START);
      CHECK(penstock_hop_metadata(kept) != NULL);
      CHECK(penstock_hop_status(kept) == NULL);
      penstock_hop_release(kept);
    }
  }
  if (event == PENSTOCK_EVENT_SEND || event == PENSTOCK_EVENT_RECEIVE) {
    OK(hop_bytes(hop, &data, NULL));
    REFUSED(penstock_hop_set_message(hop, NULL));
    REFUSED(penstock_hop_send_message(hop, NULL));
    REFUSED(penstock_hop_deliver_message(hop, NULL));
    REFUSED(penstock_hop_set_bytes(hop, NULL, 1));
    REFUSED(penstock_hop_send(hop, NULL, 1));
    REFUSED(penstock_hop_deliver(hop, NULL, 1));
    penstock_hop *kept = NULL;
    if (OK(penstock_ticket_hop(penstock_hop_ticket(hop), &kept))) {
      REFUSED(penstock_hop_set_bytes(kept, NULL, 1));
      REFUSED(penstock_hop_set_message(kept, NULL));
      penstock_hop_release(kept);
    }
  }
  return PENSTOCK_NEXT;
}
TEST(null_in_callbacks) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "nulls", pass_nulls, NULL);
  probe_add(&probe, channel, 0);
  check_echo(channel);
  CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_RECEIVE]), 1);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

static void ask_nobody(penstock_token_request request, const char *refused, void *user_data) {
  (void)request, (void)refused, (void)user_data;
}
static void write_nothing(const char *line, size_t length, void *user_data) {
  (void)line, (void)length, (void)user_data;
}
TEST(null_ready) {
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT, other = PENSTOCK_INTERCEPTOR_INIT;
  atomic_int finalized = 0;
  REFUSED(penstock_ready_bearer_token(NULL, NULL, &finalized, count_up, &table, NULL));
  REFUSED(penstock_ready_bearer_token(NULL, ask_nobody, &finalized, count_up, NULL, NULL));
  REFUSED(penstock_ready_logging(NULL, NULL, &finalized, count_up, &table, NULL));
  REFUSED(penstock_ready_logging(NULL, write_nothing, &finalized, count_up, NULL, NULL));
  CHECK_INT(atomic_load(&finalized), 4);
  REFUSED(penstock_ready_token_file("{\"file\": \"/token\"}", NULL, NULL));
  CHECK_RESULT(penstock_ready_token_file(NULL, &table, NULL), PENSTOCK_E_INVALID_JSON); /* "file" is missing */
  REFUSED(penstock_ready_jwt("{\"key_file\": \"/key\", \"issuer\": \"i\", \"scope\": \"s\"}", NULL, NULL));
  CHECK_RESULT(penstock_ready_jwt(NULL, &table, NULL), PENSTOCK_E_INVALID_JSON); /* "key_file" is missing */
  static const char oauth[] = "{\"grant\": \"client_credentials\", \"token_path\": \"/token\", \"client_id\": \"me\"}";
  REFUSED(penstock_ready_oauth2(oauth, NULL, &table, NULL));
  penstock_channel *server = open_tls_channel(false);
  REFUSED(penstock_ready_oauth2(oauth, server, NULL, NULL));
  CHECK_RESULT(penstock_ready_oauth2(NULL, server, &table, NULL), PENSTOCK_E_INVALID_JSON); /* "grant" is missing */
  penstock_channel_release(server);
  REFUSED(penstock_ready_trace_context(NULL, NULL, NULL));
  REFUSED(penstock_ready_response_cache(NULL, NULL, NULL));
  REFUSED(penstock_ready_rate_limit("{\"rate\": 1}", NULL, NULL));
  CHECK_RESULT(penstock_ready_rate_limit(NULL, &table, NULL), PENSTOCK_E_INVALID_JSON); /* "rate" is missing */
  REFUSED(penstock_ready_fault_injection(NULL, NULL, NULL));
  REFUSED(penstock_ready_hedging(NULL, NULL, NULL, NULL));
  char *figures = NULL;
  REFUSED(penstock_hedging_stats_json(NULL, &figures));
  REFUSED(penstock_hedging_stats_json(&table, &figures)); /* not a table of a ready-made interceptor */
  REFUSED(penstock_ready_header_rules(NULL, NULL, NULL));
  REFUSED(penstock_ready_metrics(NULL, &table));
  REFUSED(penstock_ready_share(NULL, &other));
  REFUSED(penstock_ready_share(&table, &other)); /* not a table of a ready-made interceptor */
  OK(penstock_ready_bearer_token(NULL, ask_nobody, NULL, NULL, &table, NULL));
  REFUSED(penstock_ready_share(&table, NULL));
  REFUSED(penstock_hedging_stats_json(&table, &figures)); /* another interceptor */
  REFUSED(penstock_hedging_stats_json(&table, NULL));
  table.finalizer(table.user_data);
  penstock_metrics *metrics = NULL;
  char *text = NULL;
  REFUSED(penstock_metrics_new(NULL, NULL, NULL));
  OK(penstock_metrics_new(NULL, &metrics, NULL));
  REFUSED(penstock_ready_metrics(metrics, NULL));
  REFUSED(penstock_metrics_snapshot_json(NULL, &text));
  REFUSED(penstock_metrics_snapshot_json(metrics, NULL));
  REFUSED(penstock_metrics_prometheus_text(NULL, &text));
  REFUSED(penstock_metrics_prometheus_text(metrics, NULL));
  penstock_metrics_release(metrics);
  penstock_metrics_release(NULL);
  CHECK(penstock_metrics_retain(NULL) == NULL);
  penstock_telemetry *telemetry = NULL;
  penstock_channel *channel = open_channel();
  REFUSED(penstock_telemetry_new(NULL, NULL, NULL));
  OK(penstock_telemetry_new(NULL, &telemetry, NULL));
  REFUSED(penstock_ready_telemetry(NULL, &table, NULL));
  REFUSED(penstock_ready_telemetry(telemetry, NULL, NULL));
  REFUSED(penstock_telemetry_prometheus_text(NULL, &text));
  REFUSED(penstock_telemetry_prometheus_text(telemetry, NULL));
  REFUSED(penstock_telemetry_metrics_json(NULL, &text));
  REFUSED(penstock_telemetry_metrics_json(telemetry, NULL));
  REFUSED(penstock_telemetry_spans_json(NULL, &text));
  REFUSED(penstock_telemetry_spans_json(telemetry, NULL));
  REFUSED(penstock_telemetry_stats_json(NULL, &text));
  REFUSED(penstock_telemetry_stats_json(telemetry, NULL));
  REFUSED(penstock_telemetry_flush(NULL, channel, 1000, NULL, NULL));
  REFUSED(penstock_telemetry_flush(telemetry, NULL, 1000, NULL, NULL));
  penstock_channel_release(channel);
  penstock_telemetry_release(telemetry);
  penstock_telemetry_release(NULL);
  CHECK(penstock_telemetry_retain(NULL) == NULL);
  REFUSED(penstock_token_complete(0, "token", -1));
  REFUSED(penstock_token_complete(1ull << 32 | 1, NULL, -1));
  REFUSED(penstock_token_fail(0, PENSTOCK_STATUS_UNAVAILABLE, NULL));
}

/* Passes NULL, in the function of a synchronous interceptor, to functions that need a call. */
static int32_t null_in_function(penstock_hop *call, void *user_data) {
  REFUSED(penstock_request_set_method(penstock_hop_request(call), NULL));
  REFUSED(penstock_request_set_authority(penstock_hop_request(call), NULL));
  REFUSED(penstock_hop_set_bytes(call, NULL, 1));
  REFUSED(penstock_hop_deliver_status(call, NULL));
  REFUSED(penstock_hop_deliver(call, NULL, 1));
  REFUSED(penstock_hop_end_with(call, NULL));
  REFUSED(penstock_hop_set_value(call, NULL, user_data, count_up));
  CHECK(penstock_hop_value(call, NULL) == NULL);
  OK(penstock_hop_set_bytes(call, NULL, 0));
  OK(penstock_hop_next(call));
  OK(penstock_hop_set_bytes(call, NULL, 0));
  return PENSTOCK_NEXT;
}

TEST(null_sync) {
  atomic_int finalized = 0;
  penstock_sync_interceptor sync = PENSTOCK_SYNC_INTERCEPTOR_INIT;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  sync.intercept = null_in_function;
  sync.user_data = &finalized;
  sync.finalizer = count_up;
  REFUSED_WITH_ERROR(penstock_sync_interceptor_table(NULL, &table, &error));
  REFUSED_WITH_ERROR(penstock_sync_interceptor_table(&sync, NULL, &error));
  CHECK_INT(finalized, 1);
  REFUSED(penstock_hop_next(NULL));
  CHECK(penstock_hop_request(NULL) == NULL);

  /* null_in_function runs: it sets a value without a key, whose finalizer runs at once; the finalizer of the table runs
   * at the end. */
  penstock_channel *channel = open_channel();
  penstock_interceptor_id id = 0;
  REQUIRE_OK(penstock_sync_interceptor_table(&sync, &table, NULL));
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  CHECK_INT(unary_code(channel, "x"), 0);
  penstock_channel_release(channel);
  EVENTUALLY(atomic_load(&finalized) == 3);
}

TEST(null_codec) {
  penstock_codec *codec = NULL;
  penstock_channel *channel = open_channel();
  REFUSED(penstock_codec_new(NULL, &codec, NULL));
  REFUSED(penstock_buffer_append(NULL, "x", 1));
  CHECK(penstock_codec_retain(NULL) == NULL);
  penstock_codec_release(NULL);
  REFUSED(penstock_channel_set_codec(NULL, NULL));
  REFUSED(penstock_call_options_set_codec(NULL, NULL));
  penstock_message *message = NULL;
  REFUSED(penstock_message_new_object(NULL, channel, 0, &message));
  CHECK(penstock_message_object(NULL) == NULL);
  CHECK(penstock_hop_message(NULL) == NULL);
  CHECK(penstock_hop_codec(NULL) == NULL && penstock_hop_context(NULL) == NULL);
  OK(penstock_message_new("x", 1, 0, &message));
  REFUSED(penstock_hop_set_message(NULL, message));
  REFUSED(penstock_hop_send_message(NULL, message));
  REFUSED(penstock_hop_deliver_message(NULL, message));
  penstock_message_release(message);
  penstock_channel_release(channel);
}
