/* NULL for every pointer of every function: E_INVALID_ARGUMENT if it is not allowed, and never a crash. The runner
 * checks that each function of the headers is named in one of test_null*.c. */
#include "null.h"

TEST(null_base) {
  CHECK_STR(penstock_error_message(NULL), "");
  CHECK_STR(penstock_error_json(NULL), "{}");
  penstock_error_release(NULL);
  penstock_free(NULL);
  penstock_set_out_of_memory_hook(NULL, NULL);
  CHECK(penstock_result_name(0) != NULL && penstock_version() != NULL && penstock_version_number() > 0);
  REFUSED(penstock_version_json(NULL));
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
  CHECK_STR(penstock_status_message(status, NULL), "");
  CHECK(penstock_status_retain(NULL) == NULL);
  penstock_status_release(NULL);
  CHECK_INT(penstock_status_code(NULL), PENSTOCK_STATUS_UNKNOWN);
  length = 1;
  CHECK_STR(penstock_status_message(NULL, &length), "");
  CHECK_INT(length, 0);
  CHECK_STR(penstock_status_message(NULL, NULL), "");
  REFUSED(penstock_status_set_code(NULL, 0));
  REFUSED(penstock_status_set_message(NULL, "", 0));
  REFUSED(penstock_status_set_message(status, NULL, 1));
  OK(penstock_status_set_message(status, NULL, 0));
  CHECK(penstock_status_trailers(NULL) == NULL);
  CHECK_INT(penstock_status_detail_count(NULL), 0);
  OK(penstock_status_add_detail(status, "a/b", "x", 1));
  REFUSED(penstock_status_add_detail(NULL, "a/b", "x", 1));
  REFUSED(penstock_status_add_detail(status, NULL, "x", 1));
  REFUSED(penstock_status_add_detail(status, "a/b", NULL, 1));
  REFUSED(penstock_status_detail_at(NULL, 0, &url, &value, &length));
  for (int i = 0; i < 3; i++) {
    penstock_result result =
        penstock_status_detail_at(status, 0, i == 0 ? NULL : &url, i == 1 ? NULL : &value, i == 2 ? NULL : &length);
    CHECK(result == PENSTOCK_OK || result == PENSTOCK_E_INVALID_ARGUMENT);
  }
  REFUSED(penstock_status_detail_find(NULL, "a/b", &value, &length));
  REFUSED(penstock_status_detail_find(status, NULL, &value, &length));
  penstock_result result = penstock_status_detail_find(status, "a/b", NULL, &length);
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
  REFUSED(penstock_executor_new_serial(NULL));
  REFUSED(penstock_executor_survives_fork(NULL));
  CHECK(penstock_executor_retain(NULL) == NULL);
  penstock_executor_release(NULL);
}

/* These functions have no parameters. Called in a wrong order, they do nothing. */
TEST(null_fork) {
  penstock_fork_child();
  penstock_fork_parent();
  penstock_fork_prepare();
  penstock_fork_parent();
}

static void end_with_nulls(penstock_hop *hop, void *state) {
  (void)state;
  REFUSED(penstock_hop_set_bytes(hop, NULL, 1));
  REFUSED(penstock_hop_end_with(hop, NULL));
  OK(penstock_hop_end(hop, PENSTOCK_STATUS_ABORTED, NULL));
  penstock_hop_release(hop);
}

TEST(null_async) {
  atomic_int finalized = 0;
  penstock_interceptor made = PENSTOCK_INTERCEPTOR_INIT;
  penstock_async_interceptor table = PENSTOCK_ASYNC_INTERCEPTOR_INIT;
  table.user_data = &finalized;
  table.finalizer = count_up;
  table.on_start = end_with_nulls;
  REFUSED_WITH_ERROR(penstock_async_interceptor_table(NULL, &made, &error));
  REFUSED_WITH_ERROR(penstock_async_interceptor_table(&table, NULL, &error));
  CHECK_INT(atomic_load(&finalized), 1);
  REFUSED(penstock_hop_resolve(NULL, PENSTOCK_NEXT));

  penstock_channel *channel = open_channel();
  penstock_interceptor_id id = 0;
  OK(penstock_async_interceptor_table(&table, &made, NULL));
  OK(penstock_channel_add_interceptor(channel, &made, 0, &id, NULL));
  CHECK_INT(unary_code(channel, "ping"), PENSTOCK_STATUS_ABORTED);
  penstock_channel_release(channel);
  EVENTUALLY(atomic_load(&finalized) == 2);
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
  REFUSED(penstock_runtime_interceptors_json(NULL, &json));
  REFUSED(penstock_runtime_interceptors_json(runtime, NULL));
  REFUSED(penstock_runtime_snapshot_json(NULL, 0, &json));
  REFUSED(penstock_runtime_snapshot_json(runtime, 0, NULL));
  penstock_runtime_release(runtime);
}

static int32_t on_connectivity(void *user_data, int32_t state) {
  (void)user_data;
  return state;
}

static void null_connect(penstock_connecting *connecting, void *user_data) {
  (void)connecting;
  (void)user_data;
}

static int32_t null_compress(void *user_data, const void *data, size_t length, penstock_compression *message) {
  (void)user_data, (void)data, (void)length, (void)message;
  return 0;
}

static void null_compressors(penstock_channel *channel) {
  penstock_compressor *compressor = NULL;
  atomic_int finalized = 0;
  penstock_compressor_functions functions = PENSTOCK_COMPRESSOR_FUNCTIONS_INIT;
  functions.user_data = &finalized;
  functions.finalizer = count_up;
  functions.name = "x-null";
  functions.compress = functions.decompress = null_compress;
  REFUSED_WITH_ERROR(penstock_compressor_new(NULL, &compressor, &error));
  REFUSED_WITH_ERROR(penstock_compressor_new(&functions, NULL, &error));
  CHECK_INT(atomic_load(&finalized), 1);
  OK(penstock_compressor_new(&functions, &compressor, NULL));
  REFUSED(penstock_channel_add_compressor(NULL, compressor));
  REFUSED(penstock_channel_add_compressor(channel, NULL));
  CHECK(penstock_compressor_retain(NULL) == NULL && penstock_compression_room(NULL) == 0);
  penstock_compressor_release(NULL);
  penstock_compressor_release(compressor);
  CHECK_INT(atomic_load(&finalized), 2);
  REFUSED(penstock_compression_append(NULL, "x", 1));
  REFUSED(penstock_compression_fail(NULL, "x"));
}

static void null_verifier(penstock_verification *server, void *user_data) {
  (void)user_data;
  penstock_verification_accept(server);
}

static int32_t null_picker(penstock_pick *pick, void *user_data) {
  (void)user_data;
  return (int32_t)penstock_pick_count(pick) - 1;
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
  REFUSED(penstock_channel_close_gracefully(NULL, 0));
  CHECK_INT(penstock_channel_connectivity(NULL), PENSTOCK_CONNECTIVITY_SHUTDOWN);
  REFUSED(penstock_channel_wait_connectivity(NULL, PENSTOCK_CONNECTIVITY_IDLE, 0, NULL));
  atomic_int over = 0;
  REFUSED(penstock_channel_watch_connectivity(NULL, on_connectivity, &over, count_up));
  CHECK_INT(atomic_load(&over), 1);
  REFUSED(penstock_channel_connect(NULL));
  REFUSED(penstock_channel_reset_backoff(NULL));
  channel = open_channel_on(runtime);
  REFUSED(penstock_channel_watch_connectivity(channel, NULL, &over, count_up));
  CHECK_INT(atomic_load(&over), 2);
  penstock_resolver_functions functions = PENSTOCK_RESOLVER_FUNCTIONS_INIT;
  penstock_resolver *resolver = NULL;
  atomic_int finalized = 0;
  functions.user_data = &finalized;
  functions.finalizer = count_up;
  REFUSED_WITH_ERROR(penstock_channel_set_resolver(NULL, &functions, &resolver, &error));
  REFUSED_WITH_ERROR(penstock_channel_set_resolver(channel, &functions, NULL, &error));
  CHECK_INT(atomic_load(&finalized), 2);
  functions.struct_size--;
  REFUSED_WITH_ERROR(penstock_channel_set_resolver(channel, &functions, &resolver, &error));
  CHECK_INT(atomic_load(&finalized), 2);
  penstock_connector_functions connecting = PENSTOCK_CONNECTOR_FUNCTIONS_INIT;
  connecting.user_data = &finalized;
  connecting.finalizer = count_up;
  connecting.connect = null_connect;
  REFUSED_WITH_ERROR(penstock_channel_set_connector(NULL, &connecting, &error));
  CHECK_INT(atomic_load(&finalized), 3);
  connecting.connect = NULL;
  REFUSED_WITH_ERROR(penstock_channel_set_connector(channel, &connecting, &error));
  CHECK_INT(atomic_load(&finalized), 4);
  connecting.struct_size--;
  REFUSED_WITH_ERROR(penstock_channel_set_connector(channel, &connecting, &error));
  CHECK_INT(atomic_load(&finalized), 4);
  OK(penstock_channel_set_connector(channel, NULL, NULL));
  size_t length = 7;
  CHECK(penstock_connecting_address(NULL) == NULL && penstock_connecting_target(NULL) == NULL);
  CHECK(penstock_connecting_sockaddr(NULL, &length) == NULL && length == 7);
  REFUSED_WITH_ERROR(penstock_connecting_socket(NULL, 0, &error));
  REFUSED(penstock_connecting_decline(NULL));
  REFUSED(penstock_connecting_fail(NULL, "x"));
  CHECK(penstock_connecting_retain(NULL) == NULL);
  penstock_connecting_release(NULL);
  REFUSED(penstock_channel_set_verifier(NULL, null_verifier, &finalized, count_up));
  CHECK_INT(atomic_load(&finalized), 5);
  OK(penstock_channel_set_verifier(channel, NULL, NULL, NULL));
  CHECK(penstock_verification_name(NULL) == NULL && penstock_verification_count(NULL) == 0);
  CHECK(penstock_verification_certificate(NULL, 0, &length) == NULL && length == 0);
  REFUSED(penstock_verification_accept(NULL));
  REFUSED(penstock_verification_refuse(NULL, "x"));
  null_compressors(channel);
  REFUSED(penstock_channel_set_picker(NULL, null_picker, &finalized, count_up));
  CHECK_INT(atomic_load(&finalized), 6);
  OK(penstock_channel_set_picker(channel, NULL, NULL, NULL));
  CHECK(penstock_pick_request(NULL) == NULL && penstock_pick_address(NULL, 0) == NULL);
  CHECK(penstock_pick_attribute(NULL, 0, "zone") == NULL && penstock_pick_context(NULL) == NULL);
  CHECK(penstock_pick_count(NULL) == 0 && penstock_pick_weight(NULL, 0) == 0);
  REFUSED(penstock_pick_fail(NULL, PENSTOCK_STATUS_ABORTED, "x"));
  OK(penstock_channel_set_resolver(channel, NULL, &resolver, NULL));
  REFUSED_WITH_ERROR(penstock_resolver_push(NULL, "{}", &error));
  REFUSED_WITH_ERROR(penstock_resolver_push(resolver, NULL, &error));
  CHECK(penstock_resolver_retain(NULL) == NULL);
  penstock_resolver_release(NULL);
  penstock_resolver_release(resolver);
  REFUSED_WITH_ERROR(penstock_channel_set_tls_pem(NULL, NULL, 0, NULL, 0, NULL, 0, &error));
  REFUSED_WITH_ERROR(penstock_channel_unary(NULL, UNARY, "x", 1, NULL, &reply, &error));
  REFUSED_WITH_ERROR(penstock_channel_unary(channel, NULL, "x", 1, NULL, &reply, &error));
  REFUSED_WITH_ERROR(penstock_channel_unary(channel, UNARY, NULL, 1, NULL, &reply, &error));
  REFUSED_WITH_ERROR(penstock_channel_unary(channel, UNARY, "x", 1, NULL, NULL, &error));
  penstock_message *message = NULL;
  REQUIRE_OK(penstock_message_new("x", 1, 0, &message));
  REFUSED_WITH_ERROR(penstock_channel_unary_message(NULL, UNARY, message, NULL, &reply, &error));
  REFUSED_WITH_ERROR(penstock_channel_unary_message(channel, NULL, message, NULL, &reply, &error));
  REFUSED_WITH_ERROR(penstock_channel_unary_message(channel, UNARY, NULL, NULL, &reply, &error));
  REFUSED_WITH_ERROR(penstock_channel_unary_message(channel, UNARY, message, NULL, NULL, &error));
  penstock_message_release(message);
  REFUSED_WITH_ERROR(penstock_channel_call(NULL, UNARY, 0, NULL, NULL, &call, &error));
  REFUSED_WITH_ERROR(penstock_channel_call(channel, NULL, 0, NULL, NULL, &call, &error));
  REFUSED_WITH_ERROR(penstock_channel_call(channel, UNARY, 0, NULL, NULL, NULL, &error));
  REFUSED_WITH_ERROR(penstock_channel_add_interceptor(NULL, &table, 0, &id, &error));
  REFUSED_WITH_ERROR(penstock_channel_add_interceptor(channel, NULL, 0, &id, &error));
  REFUSED_WITH_ERROR(penstock_channel_add_interceptor(channel, &table, 0, NULL, &error));
  CHECK_RESULT(penstock_registration_remove(0, NULL), PENSTOCK_E_NOT_FOUND);
  CHECK_RESULT(penstock_registration_set_priority(0, 0, NULL), PENSTOCK_E_NOT_FOUND);
  CHECK_RESULT(penstock_registration_set_filter(UINT64_MAX, NULL, 0, NULL), PENSTOCK_E_NOT_FOUND);
  OK(penstock_channel_add_interceptor(channel, &table, 0, &id, NULL));
  REFUSED_WITH_ERROR(penstock_registration_replace(id, NULL, &id, &error));
  REFUSED_WITH_ERROR(penstock_registration_replace(id, &table, NULL, &error));
  REFUSED(penstock_channel_interceptors_json(NULL, &json));
  REFUSED(penstock_channel_interceptors_json(channel, NULL));
  REFUSED(penstock_channel_stats_json(NULL, 0, &json));
  REFUSED(penstock_channel_stats_json(channel, 0, NULL));
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
  CHECK(penstock_call_options_request(NULL) == NULL);
  REFUSED(penstock_call_options_set_on_interrupted(NULL, interrupted, NULL, NULL));
  penstock_result result = penstock_call_options_set_on_interrupted(options, NULL, NULL, NULL);
  CHECK(result == PENSTOCK_OK || result == PENSTOCK_E_INVALID_ARGUMENT);
  REFUSED(penstock_call_options_set_context(NULL, NULL, NULL));
  OK(penstock_call_options_set_context(options, NULL, NULL));
  penstock_cancel_scope *scope = NULL;
  REFUSED(penstock_cancel_scope_new(NULL));
  OK(penstock_cancel_scope_new(&scope));
  REFUSED(penstock_call_options_set_cancel_scope(NULL, scope));
  OK(penstock_call_options_set_cancel_scope(options, NULL));
  REFUSED(penstock_cancel_scope_cancel(NULL, "reason"));
  OK(penstock_cancel_scope_cancel(scope, NULL));
  CHECK(penstock_cancel_scope_retain(NULL) == NULL);
  penstock_cancel_scope_release(NULL);
  penstock_cancel_scope_release(scope);
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_interceptor_id id = 0;
  REFUSED_WITH_ERROR(penstock_call_options_add_interceptor(NULL, &table, 0, &id, &error));
  REFUSED_WITH_ERROR(penstock_call_options_add_interceptor(options, NULL, 0, &id, &error));
  REFUSED_WITH_ERROR(penstock_call_options_add_interceptor(options, &table, 0, NULL, &error));
  CHECK_RESULT(penstock_registration_wait_removed(0, 0), PENSTOCK_E_NOT_FOUND);
  penstock_call_options_release(options);

  REFUSED(penstock_message_new_lent(NULL, 1, 0, NULL, NULL, &message));
  REFUSED(penstock_message_new_lent("x", 1, 0, NULL, NULL, NULL));
  REFUSED(penstock_message_new(NULL, 1, 0, &message));
  REFUSED(penstock_message_new("x", 1, 0, NULL));
  CHECK(penstock_message_bytes(NULL, NULL) == NULL);
  CHECK(penstock_message_bytes(NULL, &length) == NULL);
  CHECK_INT(length, 0);
  length = 5;
  CHECK(penstock_message_retain(NULL) == NULL);
  penstock_message_release(NULL);

  CHECK(penstock_reply_retain(NULL) == NULL);
  penstock_reply_release(NULL);
  CHECK_INT(penstock_reply_code(NULL), PENSTOCK_STATUS_UNKNOWN);
  CHECK(penstock_reply_status(NULL) == NULL);
  CHECK_STR(penstock_reply_status_json(NULL), "{}");
  CHECK(penstock_reply_bytes(NULL, &length) == NULL);
  CHECK_INT(length, 0);
  CHECK(penstock_reply_bytes(NULL, NULL) == NULL);
  CHECK(penstock_reply_response_message(NULL) == NULL);
  CHECK(penstock_reply_headers(NULL) == NULL);
  CHECK(penstock_reply_trailers(NULL) == NULL);
  const char *stats = penstock_reply_stats_json(NULL);
  CHECK(stats && strcmp(stats, "{}") == 0);
  CHECK(penstock_reply_value(NULL, "k") == NULL);
  char *pem = NULL;
  REFUSED(penstock_reply_peer_certificates_pem(NULL, &pem));
  CHECK_STR(penstock_reply_trace_json(NULL), "{}");
  char *trace = NULL;
  REFUSED(penstock_call_trace_json(NULL, &trace));

  CHECK(penstock_call_retain(NULL) == NULL);
  penstock_call_release(NULL);
  CHECK_INT(penstock_call_id(NULL), 0);
  REFUSED(penstock_call_send(NULL, "x", 1));
  REFUSED(penstock_call_try_send(NULL, "x", 1));
  REFUSED(penstock_call_send_message(NULL, NULL));
  REFUSED(penstock_call_try_send_message(NULL, NULL));
  size_t lengths[1] = {1}, number = 0;
  char data[1];
  REFUSED(penstock_call_send_many(NULL, "x", lengths, 1, &number));
  REFUSED(penstock_call_try_send_many(NULL, "x", lengths, 1, &number));
  REFUSED(penstock_call_receive_many(NULL, 1, data, 1, lengths, &number));
  REFUSED(penstock_call_half_close(NULL));
  REFUSED(penstock_call_promise_half_close(NULL));
  REFUSED(penstock_call_receive(NULL, &message));
  REFUSED(penstock_call_wait_headers(NULL, &headers));
  REFUSED(penstock_call_wait_status(NULL, &reply));
  REFUSED(penstock_call_wait_status_for(NULL, 0, &reply));
  REFUSED(penstock_call_wait(NULL, &reply));
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
  REFUSED(penstock_call_send_message(call, NULL));
  REFUSED(penstock_call_try_send_message(call, NULL));
  REFUSED(penstock_call_send_many(call, NULL, lengths, 1, &number));
  REFUSED(penstock_call_send_many(call, "x", NULL, 1, &number));
  REFUSED(penstock_call_send_many(call, "x", lengths, 1, NULL));
  REFUSED(penstock_call_try_send_many(call, NULL, lengths, 1, &number));
  REFUSED(penstock_call_try_send_many(call, "x", NULL, 1, &number));
  REFUSED(penstock_call_try_send_many(call, "x", lengths, 1, NULL));
  REFUSED(penstock_call_receive_many(call, 1, NULL, 1, lengths, &number));
  REFUSED(penstock_call_receive_many(call, 1, data, 1, NULL, &number));
  REFUSED(penstock_call_receive_many(call, 1, data, 1, lengths, NULL));
  REFUSED(penstock_call_receive(call, NULL));
  REFUSED(penstock_call_wait_headers(call, NULL));
  REFUSED(penstock_call_wait_status(call, NULL));
  REFUSED(penstock_call_wait_status_for(call, 0, NULL));
  REFUSED(penstock_call_wait_status_for(call, -2, &reply));
  REFUSED(penstock_call_wait(call, NULL));
  REFUSED(penstock_call_reply(call, NULL));
  REFUSED(penstock_call_trace_json(call, NULL));
  CHECK(penstock_call_value(call, NULL) == NULL);
  REFUSED(penstock_call_set_value(call, NULL, &finalized, count_up));
  CHECK_INT(atomic_load(&finalized), 2);
  OK(penstock_call_set_value(call, "k", NULL, NULL));
  OK(penstock_call_cancel(call, NULL));
  REQUIRE_OK(penstock_call_wait(call, &reply));
  CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_CANCELLED);
  CHECK(penstock_reply_bytes(reply, NULL) == NULL);
  CHECK(penstock_reply_value(reply, NULL) == NULL);
  REFUSED(penstock_reply_peer_certificates_pem(reply, NULL));
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_channel_release(channel);
}
