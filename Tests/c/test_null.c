/* NULL for every pointer of every function: E_INVALID_ARGUMENT where it is not allowed, and never a crash. The runner
 * checks that each function of the headers is named here. */
#include "test.h"

#define REFUSED(call) CHECK_RESULT((call), PENSTOCK_E_INVALID_ARGUMENT)
#define REFUSED_WITH_ERROR(call)                                                                                       \
  do {                                                                                                                 \
    penstock_error *error = NULL;                                                                                      \
    REFUSED(call);                                                                                                     \
    if (error) CHECK_RESULT(penstock_error_code(error), PENSTOCK_E_INVALID_ARGUMENT);                                  \
    CHECK(error != NULL);                                                                                              \
    penstock_error_release(error);                                                                                     \
  } while (0)

TEST(null_base) {
  CHECK_RESULT(penstock_error_code(NULL), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_STR(penstock_error_message(NULL), "");
  CHECK_STR(penstock_error_json(NULL), "{}");
  CHECK(penstock_error_retain(NULL) == NULL);
  penstock_error_release(NULL);
  penstock_free(NULL);
  CHECK(penstock_result_name(0) != NULL && penstock_version() != NULL && penstock_version_number() > 0);
}

TEST(null_metadata) {
  penstock_metadata *metadata = NULL;
  const void *value = NULL;
  const char *name = NULL;
  size_t length = 0;
  char *json = NULL;
  REFUSED(penstock_metadata_new(NULL));
  OK(penstock_metadata_new(&metadata));
  CHECK(penstock_metadata_retain(NULL) == NULL);
  penstock_metadata_release(NULL);
  REFUSED(penstock_metadata_set(NULL, "a", "b"));
  REFUSED(penstock_metadata_set(metadata, NULL, "b"));
  REFUSED(penstock_metadata_set(metadata, "a", NULL));
  REFUSED(penstock_metadata_add(NULL, "a", "b"));
  REFUSED(penstock_metadata_add(metadata, NULL, "b"));
  REFUSED(penstock_metadata_add(metadata, "a", NULL));
  REFUSED(penstock_metadata_set_bytes(NULL, "a", "b", 1));
  REFUSED(penstock_metadata_set_bytes(metadata, NULL, "b", 1));
  REFUSED(penstock_metadata_set_bytes(metadata, "a", NULL, 1));
  REFUSED(penstock_metadata_add_bytes(NULL, "a", "b", 1));
  REFUSED(penstock_metadata_add_bytes(metadata, NULL, "b", 1));
  REFUSED(penstock_metadata_add_bytes(metadata, "a", NULL, 1));
  REFUSED(penstock_metadata_remove(NULL, "a"));
  REFUSED(penstock_metadata_remove(metadata, NULL));
  CHECK_INT(penstock_metadata_count(NULL), 0);
  OK(penstock_metadata_set(metadata, "a", "b"));
  REFUSED(penstock_metadata_get(NULL, "a", 0, &value, &length));
  REFUSED(penstock_metadata_get(metadata, NULL, 0, &value, &length));
  REFUSED(penstock_metadata_get(metadata, "a", 0, NULL, &length));
  OK(penstock_metadata_get(metadata, "a", 0, &value, NULL));
  REFUSED(penstock_metadata_at(NULL, 0, &name, &value, &length));
  REFUSED(penstock_metadata_at(metadata, 0, NULL, &value, &length));
  REFUSED(penstock_metadata_at(metadata, 0, &name, NULL, &length));
  OK(penstock_metadata_at(metadata, 0, &name, &value, NULL));
  REFUSED(penstock_metadata_json(NULL, &json));
  REFUSED(penstock_metadata_json(metadata, NULL));
  REFUSED_WITH_ERROR(penstock_metadata_set_json(NULL, "{}", &error));
  REFUSED_WITH_ERROR(penstock_metadata_set_json(metadata, NULL, &error));
  REFUSED(penstock_metadata_set_json(NULL, NULL, NULL));
  CHECK_INT(penstock_metadata_count(metadata), 1);
  penstock_metadata_release(metadata);
}

TEST(null_status) {
  penstock_status *status = NULL;
  const char *url = NULL;
  const void *value = NULL;
  size_t length = 0;
  char *json = NULL;
  CHECK(penstock_status_code_name(0) != NULL);
  REFUSED(penstock_status_new(0, "", NULL));
  OK(penstock_status_new(3, NULL, &status));
  CHECK_STR(penstock_status_message(status), "");
  CHECK(penstock_status_retain(NULL) == NULL);
  penstock_status_release(NULL);
  CHECK_INT(penstock_status_code(NULL), PENSTOCK_STATUS_UNKNOWN);
  const char *message = penstock_status_message(NULL);
  CHECK(message == NULL || *message == 0);
  REFUSED(penstock_status_set_code(NULL, 0));
  REFUSED(penstock_status_set_message(NULL, ""));
  penstock_result result = penstock_status_set_message(status, NULL);
  CHECK(result == PENSTOCK_OK || result == PENSTOCK_E_INVALID_ARGUMENT);
  CHECK(penstock_status_trailers(NULL) == NULL);
  CHECK_INT(penstock_status_detail_count(NULL), 0);
  OK(penstock_status_add_detail(status, "a/b", "x", 1));
  REFUSED(penstock_status_add_detail(NULL, "a/b", "x", 1));
  REFUSED(penstock_status_add_detail(status, NULL, "x", 1));
  REFUSED(penstock_status_add_detail(status, "a/b", NULL, 1));
  REFUSED(penstock_status_detail_at(NULL, 0, &url, &value, &length));
  for (int i = 0; i < 3; i++) {
    result =
        penstock_status_detail_at(status, 0, i == 0 ? NULL : &url, i == 1 ? NULL : &value, i == 2 ? NULL : &length);
    CHECK(result == PENSTOCK_OK || result == PENSTOCK_E_INVALID_ARGUMENT);
  }
  REFUSED(penstock_status_detail_find(NULL, "a/b", &value, &length));
  REFUSED(penstock_status_detail_find(status, NULL, &value, &length));
  result = penstock_status_detail_find(status, "a/b", NULL, &length);
  CHECK(result == PENSTOCK_OK || result == PENSTOCK_E_INVALID_ARGUMENT);
  result = penstock_status_detail_find(status, "a/b", &value, NULL);
  CHECK(result == PENSTOCK_OK || result == PENSTOCK_E_INVALID_ARGUMENT);
  REFUSED(penstock_status_set_detail(NULL, "a/b", "x", 1));
  REFUSED(penstock_status_set_detail(status, NULL, "x", 1));
  REFUSED(penstock_status_set_detail(status, "a/b", NULL, 1));
  REFUSED(penstock_status_remove_detail(NULL, "a/b"));
  REFUSED(penstock_status_remove_detail(status, NULL));
  void *encoded = NULL;
  REFUSED(penstock_status_details_bin(NULL, &encoded, &length));
  REFUSED(penstock_status_details_bin(status, NULL, &length));
  REFUSED(penstock_status_details_bin(status, &encoded, NULL));
  CHECK(encoded == NULL);
  penstock_status *read = NULL;
  REFUSED_WITH_ERROR(penstock_status_from_json(NULL, &read, &error));
  REFUSED_WITH_ERROR(penstock_status_from_json("{\"code\": 0}", NULL, &error));
  REFUSED(penstock_status_from_json(NULL, NULL, NULL));
  CHECK(read == NULL);
  REFUSED(penstock_status_clear_details(NULL));
  REFUSED(penstock_status_json(NULL, &json));
  REFUSED(penstock_status_json(status, NULL));
  CHECK_INT(penstock_status_detail_count(status), 1);
  penstock_status_release(status);
}

static int32_t take_no_job(penstock_job job, void *argument, void *user_data) {
  (void)job, (void)argument, (void)user_data;
  return 1;
}

TEST(null_executor) {
  penstock_executor *executor = NULL;
  atomic_int finalized = 0;
  REFUSED(penstock_executor_new(NULL, &finalized, count_up, &executor));
  CHECK_INT(atomic_load(&finalized), 1);
  REFUSED(penstock_executor_new(take_no_job, &finalized, count_up, NULL));
  CHECK_INT(atomic_load(&finalized), 2);
  CHECK(executor == NULL);
  OK(penstock_executor_new(take_no_job, NULL, NULL, &executor));
  penstock_executor_release(executor);
  REFUSED(penstock_executor_serial_new(NULL));
  CHECK(penstock_executor_retain(NULL) == NULL);
  penstock_executor_release(NULL);
}

static void complete_with_nulls(void *state, penstock_metadata *metadata, penstock_completion *completion) {
  (void)state, (void)metadata;
  REFUSED(penstock_completion_next_message(completion, NULL, 1));
  REFUSED(penstock_completion_cancel_with(completion, NULL));
  OK(penstock_completion_cancel(completion, PENSTOCK_STATUS_ABORTED, NULL));
  penstock_completion_release(completion);
}

TEST(null_async) {
  atomic_int finalized = 0;
  penstock_status *status = NULL;
  penstock_interceptor made = PENSTOCK_INTERCEPTOR_INIT;
  penstock_async_interceptor table = PENSTOCK_ASYNC_INTERCEPTOR_INIT;
  table.user_data = &finalized;
  table.finalizer = count_up;
  table.on_start = complete_with_nulls;
  REFUSED_WITH_ERROR(penstock_async_interceptor_table(NULL, &made, &error));
  REFUSED_WITH_ERROR(penstock_async_interceptor_table(&table, NULL, &error));
  CHECK_INT(atomic_load(&finalized), 1);
  OK(penstock_status_new(0, NULL, &status));
  REFUSED(penstock_completion_next(NULL));
  REFUSED(penstock_completion_next_message(NULL, "x", 1));
  REFUSED(penstock_completion_cancel(NULL, 0, NULL));
  REFUSED(penstock_completion_cancel_with(NULL, status));
  REFUSED(penstock_completion_resolve(NULL, PENSTOCK_NEXT));
  CHECK(penstock_completion_hop(NULL) == NULL);
  CHECK(penstock_completion_retain(NULL) == NULL);
  penstock_completion_release(NULL);
  penstock_status_release(status);

  penstock_channel *channel = open_channel();
  penstock_interceptor_id id = 0;
  OK(penstock_async_interceptor_table(&table, &made, NULL));
  OK(penstock_channel_add_interceptor(channel, &made, 0, &id, NULL));
  CHECK_INT(unary_code(channel, "ping"), PENSTOCK_STATUS_ABORTED);
  penstock_channel_release(channel);
}

TEST(null_runtime) {
  penstock_runtime *runtime = NULL;
  int fd = 0;
  char *json = NULL;
  penstock_interceptor_id id = 0;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  REFUSED_WITH_ERROR(penstock_runtime_new(NULL, NULL, &error));
  REFUSED_WITH_ERROR(penstock_runtime_default(NULL, &error));
  REFUSED(penstock_runtime_default(NULL, NULL));
  CHECK(penstock_runtime_retain(NULL) == NULL);
  penstock_runtime_release(NULL);
  OK(penstock_runtime_new("{\"mode\": \"host\"}", &runtime, NULL));
  REFUSED(penstock_runtime_fd(NULL, &fd));
  REFUSED(penstock_runtime_fd(runtime, NULL));
  REFUSED(penstock_runtime_poll(NULL, 0));
  REFUSED(penstock_runtime_shutdown(NULL, 0));
  REFUSED_WITH_ERROR(penstock_runtime_add_interceptor(NULL, &table, 0, &id, &error));
  REFUSED_WITH_ERROR(penstock_runtime_add_interceptor(runtime, NULL, 0, &id, &error));
  REFUSED_WITH_ERROR(penstock_runtime_add_interceptor(runtime, &table, 0, NULL, &error));
  REFUSED_WITH_ERROR(penstock_runtime_remove_interceptor(NULL, 1, &error));
  REFUSED_WITH_ERROR(penstock_runtime_set_interceptor_priority(NULL, 1, 0, &error));
  REFUSED_WITH_ERROR(penstock_runtime_set_interceptor_filter(NULL, 1, NULL, 0, &error));
  CHECK_RESULT(penstock_runtime_set_interceptor_filter(runtime, UINT64_MAX, NULL, 0, NULL), PENSTOCK_E_NOT_FOUND);
  REFUSED_WITH_ERROR(penstock_runtime_replace_interceptor(NULL, 1, &table, &id, &error));
  REFUSED_WITH_ERROR(penstock_runtime_replace_interceptor(runtime, 1, NULL, &id, &error));
  REFUSED_WITH_ERROR(penstock_runtime_replace_interceptor(runtime, 1, &table, NULL, &error));
  REFUSED(penstock_runtime_interceptors_json(NULL, &json));
  REFUSED(penstock_runtime_interceptors_json(runtime, NULL));
  REFUSED(penstock_runtime_snapshot_json(NULL, 0, &json));
  REFUSED(penstock_runtime_snapshot_json(runtime, 0, NULL));
  penstock_runtime_release(runtime);
}

TEST(null_channel) {
  penstock_channel *channel = NULL;
  penstock_runtime *runtime = NULL;
  penstock_reply *reply = NULL;
  penstock_call *call = NULL;
  char *json = NULL;
  penstock_interceptor_id id = 0;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  REFUSED_WITH_ERROR(penstock_channel_new(NULL, NULL, &channel, &error));
  REFUSED_WITH_ERROR(penstock_channel_new("a:1", "{\"tls\": false}", NULL, &error));
  REFUSED(penstock_channel_new(NULL, NULL, NULL, NULL));
  OK(penstock_runtime_new(NULL, &runtime, NULL));
  REFUSED_WITH_ERROR(penstock_channel_new_on(NULL, "a:1", "{\"tls\": false}", &channel, &error));
  REFUSED_WITH_ERROR(penstock_channel_new_on(runtime, NULL, "{\"tls\": false}", &channel, &error));
  REFUSED_WITH_ERROR(penstock_channel_new_on(runtime, "a:1", "{\"tls\": false}", NULL, &error));
  CHECK(penstock_channel_retain(NULL) == NULL);
  penstock_channel_release(NULL);
  REFUSED(penstock_channel_close(NULL));
  channel = open_channel_on(runtime);
  REFUSED_WITH_ERROR(penstock_channel_unary(NULL, UNARY, "x", 1, NULL, &reply, &error));
  REFUSED_WITH_ERROR(penstock_channel_unary(channel, NULL, "x", 1, NULL, &reply, &error));
  REFUSED_WITH_ERROR(penstock_channel_unary(channel, UNARY, NULL, 1, NULL, &reply, &error));
  REFUSED_WITH_ERROR(penstock_channel_unary(channel, UNARY, "x", 1, NULL, NULL, &error));
  REFUSED_WITH_ERROR(penstock_channel_call(NULL, UNARY, 0, NULL, NULL, &call, &error));
  REFUSED_WITH_ERROR(penstock_channel_call(channel, NULL, 0, NULL, NULL, &call, &error));
  REFUSED_WITH_ERROR(penstock_channel_call(channel, UNARY, 0, NULL, NULL, NULL, &error));
  REFUSED_WITH_ERROR(penstock_channel_add_interceptor(NULL, &table, 0, &id, &error));
  REFUSED_WITH_ERROR(penstock_channel_add_interceptor(channel, NULL, 0, &id, &error));
  REFUSED_WITH_ERROR(penstock_channel_add_interceptor(channel, &table, 0, NULL, &error));
  REFUSED_WITH_ERROR(penstock_channel_remove_interceptor(NULL, 1, &error));
  REFUSED_WITH_ERROR(penstock_channel_set_interceptor_priority(NULL, 1, 0, &error));
  REFUSED_WITH_ERROR(penstock_channel_set_interceptor_filter(NULL, 1, NULL, 0, &error));
  CHECK_RESULT(penstock_channel_set_interceptor_filter(channel, UINT64_MAX, NULL, 0, NULL), PENSTOCK_E_NOT_FOUND);
  REFUSED_WITH_ERROR(penstock_channel_replace_interceptor(NULL, 1, &table, &id, &error));
  REFUSED_WITH_ERROR(penstock_channel_replace_interceptor(channel, 1, NULL, &id, &error));
  REFUSED_WITH_ERROR(penstock_channel_replace_interceptor(channel, 1, &table, NULL, &error));
  REFUSED(penstock_channel_interceptors_json(NULL, &json));
  REFUSED(penstock_channel_interceptors_json(channel, NULL));
  penstock_channel_release(channel);
  penstock_runtime_release(runtime);
}

static int32_t interrupted(void *user_data) { return user_data == NULL; }

TEST(null_call) {
  penstock_call_options *options = NULL;
  penstock_message *message = NULL;
  penstock_reply *reply = NULL;
  const penstock_metadata *headers = NULL;
  size_t length = 5;
  REFUSED_WITH_ERROR(penstock_call_options_new(NULL, NULL, &error));
  REFUSED_WITH_ERROR(penstock_call_options_new("{}", NULL, &error));
  OK(penstock_call_options_new(NULL, &options, NULL));
  CHECK(penstock_call_options_retain(NULL) == NULL);
  penstock_call_options_release(NULL);
  CHECK(penstock_call_options_metadata(NULL) == NULL);
  REFUSED(penstock_call_options_on_interrupted(NULL, interrupted, NULL, NULL));
  penstock_result result = penstock_call_options_on_interrupted(options, NULL, NULL, NULL);
  CHECK(result == PENSTOCK_OK || result == PENSTOCK_E_INVALID_ARGUMENT);
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_interceptor_id id = 0;
  REFUSED_WITH_ERROR(penstock_call_options_add_interceptor(NULL, &table, 0, &id, &error));
  REFUSED_WITH_ERROR(penstock_call_options_add_interceptor(options, NULL, 0, &id, &error));
  REFUSED_WITH_ERROR(penstock_call_options_add_interceptor(options, &table, 0, NULL, &error));
  CHECK_RESULT(penstock_interceptor_removal_wait(0, 0), PENSTOCK_E_NOT_FOUND);
  penstock_call_options_release(options);

  CHECK(penstock_message_data(NULL) == NULL);
  CHECK_INT(penstock_message_length(NULL), 0);
  CHECK(penstock_message_retain(NULL) == NULL);
  penstock_message_release(NULL);

  CHECK(penstock_reply_retain(NULL) == NULL);
  penstock_reply_release(NULL);
  CHECK_INT(penstock_reply_code(NULL), PENSTOCK_STATUS_UNKNOWN);
  CHECK(penstock_reply_status(NULL) == NULL);
  CHECK_STR(penstock_reply_status_json(NULL), "{}");
  CHECK(penstock_reply_message(NULL, &length) == NULL);
  CHECK_INT(length, 0);
  CHECK(penstock_reply_message(NULL, NULL) == NULL);
  CHECK(penstock_reply_headers(NULL) == NULL);
  CHECK(penstock_reply_trailers(NULL) == NULL);
  const char *stats = penstock_reply_stats_json(NULL);
  CHECK(stats && strcmp(stats, "{}") == 0);
  CHECK(penstock_reply_value(NULL, "k") == NULL);
  char *pem = NULL;
  REFUSED(penstock_reply_peer_certificates(NULL, &pem));
  CHECK_STR(penstock_reply_trace_json(NULL), "{}");
  char *trace = NULL;
  REFUSED(penstock_call_trace_json(NULL, &trace));

  CHECK(penstock_call_retain(NULL) == NULL);
  penstock_call_release(NULL);
  CHECK_INT(penstock_call_id(NULL), 0);
  REFUSED(penstock_call_send(NULL, "x", 1));
  REFUSED(penstock_call_try_send(NULL, "x", 1));
  REFUSED(penstock_call_half_close(NULL));
  REFUSED(penstock_call_receive(NULL, &message));
  REFUSED(penstock_call_wait_headers(NULL, &headers));
  REFUSED(penstock_call_finish(NULL, &reply));
  REFUSED(penstock_call_demand(NULL, 1));
  REFUSED(penstock_call_cancel(NULL, "x"));
  REFUSED(penstock_call_reply(NULL, &reply));
  CHECK(penstock_call_value(NULL, "k") == NULL);
  atomic_int finalized = 0;
  REFUSED(penstock_call_set_value(NULL, "k", &finalized, count_up));
  CHECK_INT(atomic_load(&finalized), 1);

  penstock_channel *channel = open_channel();
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  REQUIRE(call != NULL);
  REFUSED(penstock_call_send(call, NULL, 1));
  REFUSED(penstock_call_try_send(call, NULL, 1));
  REFUSED(penstock_call_receive(call, NULL));
  REFUSED(penstock_call_wait_headers(call, NULL));
  REFUSED(penstock_call_finish(call, NULL));
  REFUSED(penstock_call_reply(call, NULL));
  REFUSED(penstock_call_trace_json(call, NULL));
  CHECK(penstock_call_value(call, NULL) == NULL);
  REFUSED(penstock_call_set_value(call, NULL, &finalized, count_up));
  CHECK_INT(atomic_load(&finalized), 2);
  OK(penstock_call_set_value(call, "k", NULL, NULL));
  OK(penstock_call_cancel(call, NULL));
  REQUIRE_OK(penstock_call_finish(call, &reply));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_CANCELLED);
  CHECK(penstock_reply_message(reply, NULL) == NULL);
  CHECK(penstock_reply_value(reply, NULL) == NULL);
  REFUSED(penstock_reply_peer_certificates(reply, NULL));
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_channel_release(channel);
}

TEST(null_hop) {
  const void *data = NULL;
  size_t length = 0;
  penstock_status *status = NULL;
  OK(penstock_status_new(0, NULL, &status));
  CHECK(penstock_hop_retain(NULL) == NULL);
  penstock_hop_release(NULL);
  CHECK_INT(penstock_hop_event(NULL), PENSTOCK_EVENT_NONE);
  CHECK_INT(penstock_hop_call_id(NULL), 0);
  CHECK_INT(penstock_hop_kind(NULL), -1);
  CHECK_INT(penstock_hop_attempt(NULL), 0);
  REFUSED(penstock_hop_set_executors(NULL, NULL, NULL));
  CHECK(penstock_hop_request_metadata(NULL) == NULL);
  REFUSED(penstock_hop_can_restart(NULL));
  CHECK_INT(penstock_hop_level(NULL), -1);
  CHECK(penstock_hop_target(NULL) == NULL);
  CHECK(penstock_hop_metadata(NULL) == NULL);
  REFUSED(penstock_hop_message(NULL, &data, &length));
  REFUSED(penstock_hop_set_message(NULL, "x", 1));
  CHECK(penstock_hop_status(NULL) == NULL);
  CHECK_INT(penstock_hop_count(NULL), 0);
  REFUSED(penstock_hop_set_count(NULL, 1));
  CHECK(penstock_hop_method(NULL) == NULL);
  REFUSED(penstock_hop_set_method(NULL, "/a/b"));
  CHECK(penstock_hop_authority(NULL) == NULL);
  REFUSED(penstock_hop_set_authority(NULL, "a"));
  CHECK_INT(penstock_hop_deadline_ms(NULL), -1);
  REFUSED(penstock_hop_set_deadline_ms(NULL, 1));
  CHECK_STR(penstock_hop_compression(NULL), "identity");
  REFUSED(penstock_hop_set_compression(NULL, "gzip"));
  CHECK_INT(penstock_hop_max_receive_message_bytes(NULL), 0);
  REFUSED(penstock_hop_set_max_receive_message_bytes(NULL, 1));
  CHECK_INT(penstock_hop_max_send_message_bytes(NULL), 0);
  REFUSED(penstock_hop_set_max_send_message_bytes(NULL, 1));
  CHECK_INT(penstock_hop_idempotency(NULL), PENSTOCK_IDEMPOTENCY_UNKNOWN);
  REFUSED(penstock_hop_set_idempotency(NULL, 1));
  CHECK_INT(penstock_hop_wait_for_ready(NULL), 0);
  REFUSED(penstock_hop_set_wait_for_ready(NULL, 1));
  CHECK_INT(penstock_hop_has_credentials(NULL), 0);
  REFUSED(penstock_hop_set_credentials(NULL, "x"));
  char *text = NULL;
  REFUSED(penstock_hop_stats_json(NULL, &text));
  REFUSED(penstock_hop_peer_certificates(NULL, &text));
  REFUSED(penstock_hop_finish(NULL, 0, NULL));
  REFUSED(penstock_hop_finish_with(NULL, status));
  REFUSED(penstock_hop_set_channel(NULL, NULL));
  char *trace = NULL;
  REFUSED(penstock_hop_trace_json(NULL, &trace));
  penstock_call *call = NULL;
  REFUSED_WITH_ERROR(penstock_hop_call(NULL, UNARY, 0, 0, NULL, NULL, &call, &error));
  REFUSED(penstock_hop_send_message(NULL, "x", 1));
  REFUSED(penstock_hop_deliver_message(NULL, "x", 1));
  REFUSED(penstock_hop_deliver_headers(NULL, NULL));
  REFUSED(penstock_hop_deliver_status(NULL, status));
  REFUSED(penstock_hop_demand(NULL, 1));
  atomic_int finalized = 0;
  REFUSED(penstock_hop_set_value(NULL, "k", &finalized, count_up));
  CHECK_INT(atomic_load(&finalized), 1);
  CHECK(penstock_hop_get_value(NULL, "k") == NULL);
  CHECK_INT(penstock_hop_ticket(NULL), 0);
  penstock_status_release(status);
}

TEST(null_ticket_and_event) {
  const void *data = NULL;
  size_t length = 0;
  penstock_event *event = NULL;
  CHECK(penstock_ticket_resolve(0, PENSTOCK_NEXT) != PENSTOCK_OK);
  CHECK(penstock_ticket_resume(0) != PENSTOCK_OK);
  CHECK(penstock_ticket_drop(0) != PENSTOCK_OK);
  CHECK(penstock_ticket_finish(0, 0, NULL) != PENSTOCK_OK);
  REFUSED(penstock_ticket_finish_with(0, NULL));
  CHECK(penstock_ticket_resume_after(0, 0) != PENSTOCK_OK);
  REFUSED(penstock_ticket_event(0, NULL));
  CHECK(penstock_ticket_event(0, &event) != PENSTOCK_OK);
  CHECK(penstock_event_retain(NULL) == NULL);
  penstock_event_release(NULL);
  CHECK_INT(penstock_event_kind(NULL), PENSTOCK_EVENT_NONE);
  CHECK(penstock_event_metadata(NULL) == NULL);
  REFUSED(penstock_event_message(NULL, &data, &length));
  REFUSED(penstock_event_set_message(NULL, "x", 1));
  CHECK(penstock_event_status(NULL) == NULL);
}

/* The same for what a live hop and a live ticket are given. */
static int32_t pass_nulls(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  const void *data = NULL;
  size_t length = 0;
  if (event == PENSTOCK_EVENT_START) {
    REFUSED(penstock_hop_set_method(hop, NULL));
    REFUSED(penstock_hop_set_authority(hop, NULL));
    REFUSED(penstock_hop_set_compression(hop, NULL));
    OK(penstock_hop_set_credentials(hop, NULL));
    REFUSED(penstock_hop_stats_json(hop, NULL));
    REFUSED(penstock_hop_peer_certificates(hop, NULL));
    REFUSED(penstock_hop_finish_with(hop, NULL));
    REFUSED(penstock_hop_set_channel(hop, NULL));
    REFUSED(penstock_hop_trace_json(hop, NULL));
    penstock_call *call = NULL;
    REFUSED_WITH_ERROR(penstock_hop_call(hop, NULL, 0, 0, NULL, NULL, &call, &error));
    REFUSED_WITH_ERROR(penstock_hop_call(hop, UNARY, 0, 0, NULL, NULL, NULL, &error));
    atomic_int finalized = 0;
    REFUSED(penstock_hop_set_value(hop, NULL, &finalized, count_up));
    CHECK_INT(atomic_load(&finalized), 1);
    CHECK(penstock_hop_get_value(hop, NULL) == NULL);
    REFUSED(penstock_hop_deliver_status(hop, NULL));
    penstock_ticket ticket = penstock_hop_ticket(hop);
    REFUSED(penstock_ticket_event(ticket, NULL));
    REFUSED(penstock_ticket_finish_with(ticket, NULL));
    penstock_event *kept = NULL;
    if (OK(penstock_ticket_event(ticket, &kept))) {
      CHECK_INT(penstock_event_kind(kept), PENSTOCK_EVENT_START);
      CHECK(penstock_event_metadata(kept) != NULL);
      CHECK(penstock_event_status(kept) == NULL);
      penstock_event_release(kept);
    }
  }
  if (event == PENSTOCK_EVENT_SEND || event == PENSTOCK_EVENT_RECEIVE) {
    REFUSED(penstock_hop_message(hop, NULL, &length));
    penstock_result result = penstock_hop_message(hop, &data, NULL);
    CHECK(result == PENSTOCK_OK || result == PENSTOCK_E_INVALID_ARGUMENT);
    REFUSED(penstock_hop_set_message(hop, NULL, 1));
    REFUSED(penstock_hop_send_message(hop, NULL, 1));
    REFUSED(penstock_hop_deliver_message(hop, NULL, 1));
    penstock_event *kept = NULL;
    if (OK(penstock_ticket_event(penstock_hop_ticket(hop), &kept))) {
      REFUSED(penstock_event_message(kept, NULL, &length));
      REFUSED(penstock_event_set_message(kept, NULL, 1));
      penstock_event_release(kept);
    }
  }
  return PENSTOCK_NEXT;
}
TEST(null_in_callbacks) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init(&probe, "nulls");
  probe.hook = pass_nulls;
  probe_add(&probe, channel, 0);
  check_echo(channel);
  CHECK_INT(atomic_load(&probe.seen[PENSTOCK_EVENT_RECEIVE]), 1);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

static void ask_nobody(penstock_token_request *request, void *user_data) { (void)request, (void)user_data; }
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
  REFUSED(penstock_ready_trace_context(NULL, NULL, NULL));
  REFUSED(penstock_ready_response_cache(NULL, NULL, NULL));
  REFUSED(penstock_ready_rate_limit("{\"rate\": 1}", NULL, NULL));
  CHECK_RESULT(penstock_ready_rate_limit(NULL, &table, NULL), PENSTOCK_E_INVALID_JSON); /* "rate" is missing */
  REFUSED(penstock_ready_fault_injection(NULL, NULL, NULL));
  REFUSED(penstock_ready_header_rules(NULL, NULL, NULL));
  REFUSED(penstock_ready_metrics(NULL, &table));
  REFUSED(penstock_ready_share(NULL, &other));
  REFUSED(penstock_ready_share(&table, &other)); /* not a ready-made one */
  OK(penstock_ready_bearer_token(NULL, ask_nobody, NULL, NULL, &table, NULL));
  REFUSED(penstock_ready_share(&table, NULL));
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
  CHECK(penstock_token_request_refused(NULL) == NULL);
  REFUSED(penstock_token_request_complete(NULL, "token", -1));
  REFUSED(penstock_token_request_fail(NULL, PENSTOCK_STATUS_UNAVAILABLE, NULL));
  CHECK(penstock_token_request_retain(NULL) == NULL);
  penstock_token_request_release(NULL);
}

/* What needs a call, in a synchronous interceptor's function. */
static int32_t null_in_function(penstock_intercepted_call *call, void *user_data) {
  const void *data = NULL;
  size_t length = 0;
  REFUSED(penstock_intercepted_set_method(call, NULL));
  REFUSED(penstock_intercepted_set_authority(call, NULL));
  REFUSED(penstock_intercepted_request(call, NULL, &length));
  REFUSED(penstock_intercepted_request(call, &data, NULL));
  REFUSED(penstock_intercepted_set_request(call, NULL, 1));
  REFUSED(penstock_intercepted_response(call, NULL, &length));
  REFUSED(penstock_intercepted_response(call, &data, NULL));
  REFUSED(penstock_intercepted_set_response(call, NULL, 1));
  REFUSED(penstock_intercepted_answer_message(call, NULL, 1));
  REFUSED(penstock_intercepted_cancel_with(call, NULL));
  REFUSED(penstock_intercepted_set_value(call, NULL, user_data, count_up));
  CHECK(penstock_intercepted_get_value(call, NULL) == NULL);
  OK(penstock_intercepted_set_request(call, NULL, 0));
  OK(penstock_intercepted_next(call));
  OK(penstock_intercepted_set_response(call, NULL, 0));
  return PENSTOCK_NEXT;
}

TEST(null_sync) {
  const void *data = NULL;
  size_t length = 0;
  atomic_int finalized = 0;
  penstock_sync_interceptor sync = PENSTOCK_SYNC_INTERCEPTOR_INIT;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_status *status = NULL;
  OK(penstock_status_new(0, NULL, &status));
  sync.intercept = null_in_function;
  sync.user_data = &finalized;
  sync.finalizer = count_up;
  REFUSED_WITH_ERROR(penstock_sync_interceptor_table(NULL, &table, &error));
  REFUSED_WITH_ERROR(penstock_sync_interceptor_table(&sync, NULL, &error));
  CHECK_INT(finalized, 1);
  REFUSED(penstock_intercepted_next(NULL));
  REFUSED(penstock_intercepted_cancel(NULL, 1, NULL));
  REFUSED(penstock_intercepted_cancel_with(NULL, status));
  REFUSED(penstock_intercepted_answer_message(NULL, "x", 1));
  REFUSED(penstock_intercepted_answer(NULL, NULL, status));
  CHECK(penstock_intercepted_hop(NULL) == NULL);
  CHECK_INT(penstock_intercepted_id(NULL), 0);
  CHECK_INT(penstock_intercepted_kind(NULL), -1);
  CHECK_INT(penstock_intercepted_attempt(NULL), 0);
  CHECK_INT(penstock_intercepted_level(NULL), -1);
  CHECK(penstock_intercepted_request_object(NULL) == NULL);
  CHECK(penstock_intercepted_response_object(NULL) == NULL);
  REFUSED(penstock_intercepted_set_request_object(NULL, &data));
  REFUSED(penstock_intercepted_set_response_object(NULL, &data));
  REFUSED(penstock_intercepted_answer_object(NULL, &data));
  CHECK(penstock_intercepted_target(NULL) == NULL);
  CHECK(penstock_intercepted_method(NULL) == NULL);
  REFUSED(penstock_intercepted_set_method(NULL, UNARY));
  CHECK(penstock_intercepted_authority(NULL) == NULL);
  REFUSED(penstock_intercepted_set_authority(NULL, "a"));
  CHECK_INT(penstock_intercepted_deadline_ms(NULL), -1);
  REFUSED(penstock_intercepted_set_deadline_ms(NULL, 1));
  CHECK(penstock_intercepted_metadata(NULL) == NULL);
  REFUSED(penstock_intercepted_request(NULL, &data, &length));
  REFUSED(penstock_intercepted_set_request(NULL, "x", 1));
  CHECK(penstock_intercepted_headers(NULL) == NULL);
  REFUSED(penstock_intercepted_response(NULL, &data, &length));
  REFUSED(penstock_intercepted_set_response(NULL, "x", 1));
  CHECK(penstock_intercepted_status(NULL) == NULL);
  REFUSED(penstock_intercepted_set_value(NULL, "k", &finalized, count_up));
  CHECK_INT(finalized, 2);
  CHECK(penstock_intercepted_get_value(NULL, "k") == NULL);
  penstock_status_release(status);

  /* In the function: one more value is refused; the table's data is let go in the end. */
  penstock_channel *channel = open_channel();
  penstock_interceptor_id id = 0;
  REQUIRE_OK(penstock_sync_interceptor_table(&sync, &table, NULL));
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  CHECK_INT(unary_code(channel, "x"), 0);
  penstock_channel_release(channel);
  EVENTUALLY(atomic_load(&finalized) == 4);
}

TEST(null_codec) {
  penstock_codec *codec = NULL;
  penstock_reply *reply = NULL;
  penstock_channel *channel = open_channel();
  REFUSED(penstock_codec_new(NULL, &codec, NULL));
  REFUSED(penstock_buffer_append(NULL, "x", 1));
  CHECK(penstock_codec_retain(NULL) == NULL);
  penstock_codec_release(NULL);
  REFUSED(penstock_channel_set_codec(NULL, NULL));
  REFUSED(penstock_call_options_set_codec(NULL, NULL));
  REFUSED(penstock_call_send_object(NULL, channel));
  REFUSED(penstock_call_try_send_object(NULL, channel));
  CHECK(penstock_message_object(NULL) == NULL);
  CHECK(penstock_reply_object(NULL) == NULL);
  CHECK(penstock_hop_object(NULL) == NULL);
  REFUSED(penstock_hop_set_object(NULL, channel));
  REFUSED(penstock_hop_send_object(NULL, channel));
  REFUSED(penstock_hop_deliver_object(NULL, channel));
  CHECK(penstock_event_object(NULL) == NULL);
  REFUSED(penstock_event_set_object(NULL, channel));
  REFUSED(penstock_channel_unary_object(NULL, UNARY, channel, NULL, &reply, NULL));
  REFUSED(penstock_channel_unary_object(channel, NULL, channel, NULL, &reply, NULL));
  REFUSED(penstock_channel_unary_object(channel, UNARY, channel, NULL, NULL, NULL));
  penstock_channel_release(channel);
}
