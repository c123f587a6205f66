#include "cases.h"
#include "testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void empty_unary(client *client) {
  penstock_reply *reply = unary_ok(client, SERVICE "EmptyCall", (bytes){0}, NULL);
  size_t length = 1;
  if (reply) {
    CHECK(penstock_reply_bytes(reply, &length) != NULL);
    CHECK_INT(length, 0);
  }
  penstock_reply_release(reply);
}

static void large_unary(client *client) {
  penstock_reply *reply = unary_ok(client, SERVICE "UnaryCall", simple_request(314159, 271828, ABSENT, ABSENT), NULL);
  if (reply) CHECK_INT(reply_payload(reply), 314159);
  penstock_reply_release(reply);
}

static void client_compressed_unary(client *client) {
  bytes probe = simple_request(314159, 271828, ABSENT, true);
  penstock_reply *reply = rpc_unary(client, SERVICE "UnaryCall", probe.data, probe.length, NULL);
  CHECK_STATUS(reply, PENSTOCK_STATUS_INVALID_ARGUMENT, NULL);
  penstock_reply_release(reply);
  bytes_free(&probe);
  reply = unary_ok(client, SERVICE "UnaryCall", simple_request(314159, 271828, ABSENT, true),
                   "{\"compression\": \"gzip\"}");
  if (reply) CHECK_INT(reply_payload(reply), 314159);
  penstock_reply_release(reply);
  reply = unary_ok(client, SERVICE "UnaryCall", simple_request(314159, 271828, ABSENT, false), NULL);
  if (reply) CHECK_INT(reply_payload(reply), 314159);
  penstock_reply_release(reply);
}

static void server_compressed_unary(client *client) {
  for (int compressed = 1; compressed >= 0; compressed--) {
    penstock_reply *reply =
        unary_ok(client, SERVICE "UnaryCall", simple_request(314159, 271828, compressed, ABSENT), NULL);
    if (reply) {
      CHECK_INT(reply_payload(reply), 314159);
      CHECK((received_on_wire(reply) < 20000) == compressed);
    }
    penstock_reply_release(reply);
  }
}

static void client_streaming(client *client) {
  static const size_t sizes[] = {27182, 8, 1828, 45904};
  rpc *call = rpc_start(client, SERVICE "StreamingInputCall", CLIENT_STREAM, NULL);
  if (!call) return;
  for (int i = 0; i < 4; i++) send_all(call, input_request(sizes[i], ABSENT));
  CHECK_OK(rpc_half_close(call));
  penstock_reply *reply = rpc_finish(call);
  if (CHECK_STATUS(reply, PENSTOCK_STATUS_OK, NULL)) CHECK_INT(reply_total(reply), 74922);
  rpc_free(call);
}

/* In gRPC's description one call sends a compressed and a plain message. Here compression is an option of the call, so
 * they are two calls. */
static void client_compressed_streaming(client *client) {
  static const size_t sizes[] = {27182, 27182, 45904};
  static const char *const options[] = {NULL, "{\"compression\": \"gzip\"}", NULL};
  static const int expected[] = {true, true, false};
  for (int i = 0; i < 3; i++) {
    rpc *call = rpc_start(client, SERVICE "StreamingInputCall", CLIENT_STREAM, options[i]);
    if (!call) return;
    send_all(call, input_request(sizes[i], expected[i]));
    penstock_result closed = rpc_half_close(call);
    if (i > 0) CHECK_OK(closed);
    penstock_reply *reply = rpc_finish(call);
    if (CHECK_STATUS(reply, i == 0 ? PENSTOCK_STATUS_INVALID_ARGUMENT : PENSTOCK_STATUS_OK, NULL) && i > 0) {
      CHECK_INT(reply_total(reply), sizes[i]);
    }
    rpc_free(call);
  }
}

static void server_streaming(client *client) {
  rpc *call = rpc_start(client, SERVICE "StreamingOutputCall", SERVER_STREAM, NULL);
  if (!call) return;
  send_all(call, output_request(four_sizes, NULL, 0));
  CHECK_OK(rpc_half_close(call));
  for (int i = 0; i < 4; i++) receive_payload(call, four_sizes[i]);
  receive_end(call);
  CHECK_STATUS(rpc_finish(call), PENSTOCK_STATUS_OK, NULL);
  rpc_free(call);
}

static void server_compressed_streaming(client *client) {
  static const size_t sizes[] = {31415, 92653, SIZE_MAX};
  static const int compressed[] = {true, false};
  rpc *call = rpc_start(client, SERVICE "StreamingOutputCall", SERVER_STREAM, NULL);
  if (!call) return;
  send_all(call, output_request(sizes, compressed, 0));
  CHECK_OK(rpc_half_close(call));
  for (int i = 0; i < 2; i++) receive_payload(call, sizes[i]);
  receive_end(call);
  penstock_reply *reply = rpc_finish(call);
  if (CHECK_STATUS(reply, PENSTOCK_STATUS_OK, NULL)) {
    CHECK(received_on_wire(reply) > 92653);
    CHECK(received_on_wire(reply) < 92653 + 5000);
  }
  rpc_free(call);
}

static void ping_pong(client *client) {
  static const size_t requests[] = {27182, 8, 1828, 45904};
  rpc *call = rpc_start(client, SERVICE "FullDuplexCall", BIDI, NULL);
  if (!call) return;
  for (int i = 0; i < 4; i++) {
    size_t sizes[] = {four_sizes[i], SIZE_MAX};
    send_all(call, output_request(sizes, NULL, requests[i]));
    if (!receive_payload(call, four_sizes[i])) break;
  }
  CHECK_OK(rpc_half_close(call));
  receive_end(call);
  CHECK_STATUS(rpc_finish(call), PENSTOCK_STATUS_OK, NULL);
  rpc_free(call);
}

static void empty_stream(client *client) {
  rpc *call = rpc_start(client, SERVICE "FullDuplexCall", BIDI, NULL);
  if (!call) return;
  CHECK_OK(rpc_half_close(call));
  receive_end(call);
  CHECK_STATUS(rpc_finish(call), PENSTOCK_STATUS_OK, NULL);
  rpc_free(call);
}

static void check_echoed(const penstock_metadata *headers, const penstock_metadata *trailers) {
  check_value(headers, "x-grpc-test-echo-initial", "test_initial_metadata_value", 27);
  check_value(trailers, "x-grpc-test-echo-trailing-bin", "\xab\xab\xab", 3);
}

static void custom_metadata(client *client) {
  static const size_t sizes[] = {314159, SIZE_MAX};
  const char *options = "{\"metadata\": {\"x-grpc-test-echo-initial\": \"test_initial_metadata_value\","
                        "\"x-grpc-test-echo-trailing-bin\": \"q6ur\"}}";
  penstock_reply *reply =
      unary_ok(client, SERVICE "UnaryCall", simple_request(314159, 271828, ABSENT, ABSENT), options);
  if (reply) {
    CHECK_INT(reply_payload(reply), 314159);
    check_echoed(penstock_reply_headers(reply), penstock_reply_trailers(reply));
  }
  penstock_reply_release(reply);

  rpc *call = rpc_start(client, SERVICE "FullDuplexCall", BIDI, options);
  if (!call) return;
  send_all(call, output_request(sizes, NULL, 271828));
  CHECK_OK(rpc_half_close(call));
  const penstock_metadata *headers = rpc_headers(call);
  receive_payload(call, 314159);
  receive_end(call);
  reply = rpc_finish(call);
  if (CHECK_STATUS(reply, PENSTOCK_STATUS_OK, NULL)) {
    check_echoed(headers, penstock_reply_trailers(reply));
    check_echoed(penstock_reply_headers(reply), penstock_reply_trailers(reply));
  }
  rpc_free(call);
}

static void check_echo_status(client *client, const char *message, bool streams) {
  bytes request = {0};
  put_status(&request, PENSTOCK_STATUS_UNKNOWN, message);
  penstock_reply *reply = rpc_unary(client, SERVICE "UnaryCall", request.data, request.length, NULL);
  CHECK_STATUS(reply, PENSTOCK_STATUS_UNKNOWN, message);
  if (reply) CHECK(penstock_reply_bytes(reply, NULL) == NULL);
  penstock_reply_release(reply);
  rpc *call = streams ? rpc_start(client, SERVICE "FullDuplexCall", BIDI, NULL) : NULL;
  if (call) {
    CHECK_OK(rpc_send(call, request.data, request.length));
    receive_end(call);
    CHECK_STATUS(rpc_finish(call), PENSTOCK_STATUS_UNKNOWN, message);
    rpc_free(call);
  }
  bytes_free(&request);
}

static void status_code_and_message(client *client) { check_echo_status(client, "test status message", true); }

static void special_status_message(client *client) {
  check_echo_status(client, "\t\ntest with whitespace\r\nand Unicode BMP \xe2\x98\xba and non-BMP \xf0\x9f\x98\x88\t\n",
                    true);
}

static void unimplemented_method(client *client) {
  penstock_reply *reply = rpc_unary(client, SERVICE "UnimplementedCall", NULL, 0, NULL);
  CHECK_STATUS(reply, PENSTOCK_STATUS_UNIMPLEMENTED, NULL);
  penstock_reply_release(reply);
}

static void unimplemented_service(client *client) {
  penstock_reply *reply = rpc_unary(client, "/grpc.testing.UnimplementedService/UnimplementedCall", NULL, 0, NULL);
  CHECK_STATUS(reply, PENSTOCK_STATUS_UNIMPLEMENTED, NULL);
  penstock_reply_release(reply);
}

static void cancel_after_begin(client *client) {
  rpc *call = rpc_start(client, SERVICE "StreamingInputCall", CLIENT_STREAM, NULL);
  if (!call) return;
  rpc_cancel(call, "changed my mind");
  CHECK_STATUS(rpc_finish(call), PENSTOCK_STATUS_CANCELLED, "changed my mind");
  rpc_free(call);
}

static void cancel_after_first_response(client *client) {
  static const size_t sizes[] = {31415, SIZE_MAX};
  rpc *call = rpc_start(client, SERVICE "FullDuplexCall", BIDI, NULL);
  if (!call) return;
  send_all(call, output_request(sizes, NULL, 27182));
  receive_payload(call, 31415);
  rpc_cancel(call, NULL);
  receive_end(call);
  CHECK_STATUS(rpc_finish(call), PENSTOCK_STATUS_CANCELLED, NULL);
  rpc_free(call);
}

static void timeout_on_sleeping_server(client *client) {
  rpc *call = rpc_start(client, SERVICE "FullDuplexCall", BIDI, "{\"deadline_ms\": 1}");
  if (!call) return;
  bytes request = output_request(NULL, NULL, 27182);
  penstock_result result = rpc_send(call, request.data, request.length);
  bytes_free(&request);
  if (result != PENSTOCK_OK) CHECK_RESULT(result, PENSTOCK_E_GONE);
  receive_end(call);
  CHECK_STATUS(rpc_finish(call), PENSTOCK_STATUS_DEADLINE_EXCEEDED, NULL);
  rpc_free(call);
}

static void cacheable_unary(client *client) {
  const char *options = "{\"metadata\": {\"x-user-ip\": \"1.2.3.4\"}}";
  for (int i = 0; i < 2; i++) {
    penstock_reply *reply =
        unary_ok(client, SERVICE "CacheableUnaryCall", simple_request(0, 19, ABSENT, ABSENT), options);
    const void *value;
    if (reply) {
      CHECK_OK(penstock_metadata_get(penstock_reply_headers(reply), "cache-control", 0, &value, NULL));
    }
    penstock_reply_release(reply);
  }
}

static void rpc_soak(client *client) {
  for (int i = 0; i < 100; i++) large_unary(client);
}

static void channel_soak(client *given) {
  for (int i = 0; i < 20; i++) {
    client fresh = {.style = given->style, .target = given->target, .options = given->options, .probed = true};
    if (!client_open(&fresh)) return;
    large_unary(&fresh);
    client_close(&fresh);
  }
}

const test_case described_cases[] = {
    {"empty_unary", empty_unary, NULL},
    {"large_unary", large_unary, NULL},
    {"client_compressed_unary", client_compressed_unary, "expect"},
    {"server_compressed_unary", server_compressed_unary, NULL},
    {"client_streaming", client_streaming, NULL},
    {"client_compressed_streaming", client_compressed_streaming, "expect"},
    {"server_streaming", server_streaming, NULL},
    {"server_compressed_streaming", server_compressed_streaming, NULL},
    {"ping_pong", ping_pong, NULL},
    {"empty_stream", empty_stream, NULL},
    {"custom_metadata", custom_metadata, NULL},
    {"status_code_and_message", status_code_and_message, NULL},
    {"special_status_message", special_status_message, NULL},
    {"unimplemented_method", unimplemented_method, NULL},
    {"unimplemented_service", unimplemented_service, NULL},
    {"cancel_after_begin", cancel_after_begin, NULL},
    {"cancel_after_first_response", cancel_after_first_response, NULL},
    {"timeout_on_sleeping_server", timeout_on_sleeping_server, NULL},
    {"cacheable_unary", cacheable_unary, NULL},
    {"rpc_soak", rpc_soak, NULL},
    {"channel_soak", channel_soak, NULL},
    {NULL, NULL, NULL},
};
