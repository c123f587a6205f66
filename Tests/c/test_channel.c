/* channel.h: targets, options, unary calls, registration. */
#include "test.h"

#include <unistd.h>

TEST(channel_targets) {
  static const char *const right[] = {
      "localhost:50051",      "dns:///localhost:50051", "ipv4:127.0.0.1:1", "ipv4:127.0.0.1:1,127.0.0.2:2",
      "ipv6:[::1]:5",         "unix:/tmp/no-such",      "127.0.0.1:80",     "[::1]:80",
      "ipv6:[::1]:5,[::1]:6", "a-b.example.com:443"};
  static const char *const wrong[] = {"",
                                      "localhost:",
                                      "localhost:x",
                                      "localhost:65536",
                                      "localhost:-1",
                                      "ipv4:",
                                      "ipv4:1.2.3:4",
                                      "unix:",
                                      "xds:///a",
                                      "ipv6:1.2.3.4:5",
                                      "ipv4:1.2.3.4:5,",
                                      "dns:///",
                                      ":1",
                                      "a b:1",
                                      "localhost:1\n"};
  for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++) {
    penstock_channel *channel = NULL;
    penstock_error *error = NULL;
    if (!OK(penstock_channel_new(right[i], "{\"tls\": false}", &channel, &error))) printf("  \"%s\"\n", right[i]);
    penstock_error_release(error);
    penstock_channel_release(channel);
  }
  for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
    penstock_channel *channel = NULL;
    penstock_error *error = NULL;
    penstock_result result = penstock_channel_new(wrong[i], "{\"tls\": false}", &channel, &error);
    if (!CHECK_RESULT(result, PENSTOCK_E_INVALID_ARGUMENT)) printf("  \"%s\"\n", wrong[i]);
    if (result != PENSTOCK_OK) CHECK_ERROR(error, PENSTOCK_E_INVALID_ARGUMENT, NULL, NULL);
    CHECK(channel == NULL);
    penstock_error_release(error);
    penstock_channel_release(channel);
  }
}

TEST(channel_options) {
  static const char *const right[] = {
      "{}",
      "{\"tls\": false}",
      "{\"tls\": false, \"authority\": \"example.com\", \"user_agent\": \"tests/1\", \"default_deadline_ms\": 1000}",
      "{\"tls\": false, \"max_receive_message_bytes\": 1, \"max_header_list_bytes\": 1024}",
      "{\"tls\": false, \"max_send_message_bytes\": 1, \"max_header_list_bytes\": 1048576}",
      "{\"tls\": false, \"connect_timeout_ms\": 5, \"compression\": \"gzip\", \"tie_order\": \"lifo\"}",
      "{\"tls\": false, \"compression\": \"identity\", \"tie_order\": \"fifo\"}",
      "{\"tls\": false, \"initial_stream_window_bytes\": 65535, \"initial_connection_window_bytes\": 2147483647}",
      "{\"tls\": false, \"max_window_bytes\": 0}",
      "{\"tls\": false, \"health_checks\": false, \"max_connections_per_subchannel\": 1}",
      "{\"tls\": false, \"health_checks\": true, \"max_connections_per_subchannel\": 1024}",
      "{\"tls\": false, \"max_window_bytes\": 2147483647}",
      "{\"tls\": false, \"max_connections\": 65536, \"max_pending_calls\": 1000000000}",
      "{\"tls\": false, \"max_connections\": 0, \"max_pending_calls\": 0, \"max_buffered_bytes\": 0}",
      "{\"tls\": false, \"dns_srv\": \"\"}",
      "{\"tls\": false, \"dns_srv\": \"_grpc._tcp\"}",
      "{\"tls\": {\"verify\": false, \"server_name\": \"x\"}}",
      "{\"tls\": {\"verify\": false, \"server_name\": [\"x\"]}}",
      "{\"tls\": {\"verify\": false, \"server_name\": [\"x.example.\", \"::1\", \"127.0.0.1\"]}}",
      ("{\"tls\": {\"verify\": false, \"server_name\": "
       "[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\",\"i\",\"j\",\"k\",\"l\",\"m\",\"n\",\"o\",\"p\"]}}"),
      "{\"tls\": false, \"keepalive_time_ms\": 1000, \"keepalive_timeout_ms\": 1}",
      "{\"tls\": false, \"keepalive_time_ms\": 86400000, \"keepalive_without_calls\": true}",
      "{\"tls\": false, \"keepalive_timeout_ms\": 86400000, \"keepalive_without_calls\": false}",
      "{\"tls\": false, \"protocol\": \"grpc\", \"http\": \"auto\"}",
      "{\"tls\": false, \"http\": \"2\", \"protocol\": \"grpc\"}",
      "{\"tls\": false, \"http\": \"1.1\", \"protocol\": \"connect\", \"max_get_url_bytes\": 0}",
      "{\"tls\": false, \"protocol\": \"connect\", \"http\": \"2\", \"max_get_url_bytes\": 1048576}",
      "{\"tls\": false, \"protocol\": \"grpc-web\", \"http\": \"1.1\", \"http1_max_connections\": 1}",
      "{\"tls\": false, \"protocol\": \"grpc-web-text\", \"http1_max_connections\": 65536}",
      "{\"tls\": false, \"protocol\": \"connect\", \"http1_idle_timeout_ms\": 0}",
      "{\"tls\": false, \"protocol\": \"connect\", \"http1_idle_timeout_ms\": 86400000}",
      "{\"tls\": false, \"local_address\": \"127.0.0.2\", \"bind_interface\": \"lo\"}",
      "{\"tls\": false, \"local_address\": {\"ipv4\": \"127.0.0.2\", \"ipv6\": \"::1\"}}",
      "{\"tls\": false, \"socket_options\": {}}",
      "{\"tls\": false, \"socket_options\": {\"traffic_class\": 255, \"others\": [[1, 2, -2147483648], [0, 0, 0]]}}",
  };
  for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++) {
    penstock_channel *channel = NULL;
    penstock_error *error = NULL;
    if (!OK(penstock_channel_new("localhost:1", right[i], &channel, &error))) {
      printf("  %s: %s\n", right[i], error ? penstock_error_json(error) : "");
    }
    penstock_error_release(error);
    penstock_channel_release(channel);
  }
  static const struct {
    const char *json, *part;
  } wrong[] = {
      {"", NULL},
      {"{", NULL},
      {"[]", NULL},
      {"1", NULL},
      {"{\"tsl\": false}", "tsl"},
      {"{\"tls\": 1}", "tls"},
      {"{\"tls\": null}", "tls"},
      {"{\"tls\": false, \"tls\": false}", "tls"},
      {"{\"tls\": {\"no\": 1}}", "no"},
      {"{\"tls\": {\"verify\": 1}}", "verify"},
      {"{\"tls\": {\"server_name\": null}}",
       "$.tls.server_name: expected a host name or an IP address, or an array of 1"},
      {"{\"tls\": {\"server_name\": 1}}", "or an array of 1 to 16 of these, got an integer"},
      {"{\"tls\": {\"server_name\": []}}", "$.tls.server_name: expected an array of 1 to 16 names, got another array"},
      {"{\"tls\": {\"server_name\": "
       "[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\",\"i\",\"j\",\"k\",\"l\",\"m\",\"n\",\"o\",\"p\",\"q\"]}}",
       "$.tls.server_name: expected an array of 1 to 16 names"},
      {"{\"tls\": {\"server_name\": [\"x\", 1]}}",
       "$.tls.server_name[1]: expected a host name or an IP address, got an integer"},
      {"{\"tls\": {\"server_name\": [[\"x\"]]}}",
       "$.tls.server_name[0]: expected a host name or an IP address, got an array"},
      {"{\"tls\": {\"server_name\": [\"x\", \"*.x\"]}}",
       "$.tls.server_name[1]: it has a character that no host name has"},
      {"{\"tls\": {\"server_name\": [\"x\", \"y\", \"\"]}}", "$.tls.server_name[2]: it is empty"},
      {"{\"tls\": {\"server_name\": [\".x\"]}}", "$.tls.server_name[0]: it begins with a dot"},
      {"{\"tls\": {\"roots_pem\": \"not pem\"}}", "roots_pem"},
      {"{\"tls\": {\"roots_file\": \"/no/such/file\"}}", "roots_file"},
      {"{\"tls\": {\"certificate_chain_pem\": \"x\"}}", NULL},
      {"{\"authority\": 3}", "authority"},
      {"{\"default_deadline_ms\": -1}", "default_deadline_ms"},
      {"{\"default_deadline_ms\": 1.5}", "default_deadline_ms"},
      {"{\"default_deadline_ms\": \"1\"}", "default_deadline_ms"},
      {"{\"max_receive_message_bytes\": -1}", "max_receive_message_bytes"},
      {"{\"max_receive_message_bytes\": 99999999999999999999}", NULL},
      {"{\"max_header_list_bytes\": 1023}", "an integer from 1024 to 1048576"},
      {"{\"max_header_list_bytes\": 1048577}", "max_header_list_bytes"},
      {"{\"compression\": \"br\"}", "compression"},
      {"{\"tie_order\": \"random\"}", "tie_order"},
      {"{\"initial_stream_window_bytes\": 65534}", "initial_stream_window_bytes"},
      {"{\"initial_stream_window_bytes\": 2147483648}", "initial_stream_window_bytes"},
      {"{\"user_agent\": \"a\\nb\"}", "user_agent"},
      {"{\"keepalive_time_ms\": 999}", "an integer from 1000 to 86400000"},
      {"{\"keepalive_time_ms\": 86400001}", "keepalive_time_ms"},
      {"{\"keepalive_time_ms\": null}", "keepalive_time_ms"},
      {"{\"keepalive_timeout_ms\": 0}", "keepalive_timeout_ms"},
      {"{\"keepalive_without_calls\": 1}", "keepalive_without_calls"},
      {"{\"dns_srv\": true}", "$.dns_srv"},
      {"{\"dns_srv\": null}", "dns_srv"},
      {"{\"dns_srv\": \".\"}", "dns_srv"},
      {"{\"dns_srv\": \"_grpc._tcp.\"}", "dns_srv"},
      {"{\"dns_srv\": \"_grpc .tcp\"}", "labels of a host name"},
      {"{\"health_checks\": 1}", "health_checks"},
      {"{\"max_connections\": 65537}", "an integer from 0 to 65536"},
      {"{\"max_pending_calls\": -1}", "an integer from 0 to 1000000000"},
      {"{\"max_buffered_bytes\": \"1\"}", "max_buffered_bytes"},
      {"{\"max_connections_per_subchannel\": 0}", "an integer from 1 to 1024"},
      {"{\"max_connections_per_subchannel\": 1025}", "max_connections_per_subchannel"},
      {"{\"protocol\": \"Connect\"}", "\\\"grpc-web-text\\\" or \\\"connect\\\""},
      {"{\"protocol\": null}", "$.protocol"},
      {"{\"protocol\": 1}", "$.protocol"},
      {"{\"http\": 2}", "$.http"},
      {"{\"http\": \"3\"}", "\\\"2\\\" or \\\"1.1\\\""},
      {"{\"http\": \"1.1\"}", "$.http: gRPC needs HTTP/2"},
      {"{\"protocol\": \"grpc\", \"http\": \"1.1\"}", "$.http: gRPC needs HTTP/2"},
      {"{\"max_get_url_bytes\": -1}", "an integer from 0 to 1048576"},
      {"{\"max_get_url_bytes\": 1048577}", "max_get_url_bytes"},
      {"{\"http1_max_connections\": 0}", "an integer from 1 to 65536"},
      {"{\"http1_max_connections\": 65537}", "http1_max_connections"},
      {"{\"http1_idle_timeout_ms\": -1}", "an integer from 0 to 86400000"},
      {"{\"http1_idle_timeout_ms\": 86400001}", "http1_idle_timeout_ms"},
      {"{\"local_address\": \"localhost\"}", "$.local_address: expected an IP address, or an object"},
      {"{\"local_address\": \"fe80::1%1\"}", "$.local_address"},
      {"{\"local_address\": null}", "$.local_address"},
      {"{\"local_address\": {}}", "$.local_address: expected an object with"},
      {"{\"local_address\": {\"ipv4\": \"::1\"}}", "$.local_address.ipv4: expected an IPv4 address"},
      {"{\"local_address\": {\"ipv6\": \"127.0.0.1\"}}", "$.local_address.ipv6: expected an IPv6 address"},
      {"{\"local_address\": {\"ipv5\": \"x\"}}", "$.local_address.ipv5: unknown key"},
      {"{\"bind_interface\": \"\"}", "$.bind_interface: expected the name of a network interface"},
      {"{\"bind_interface\": \"a-name-that-is-too-long\"}", "$.bind_interface"},
      {"{\"bind_interface\": 1}", "$.bind_interface"},
      {"{\"socket_options\": {\"nodelay\": true}}", "$.socket_options.nodelay: unknown key"},
      {"{\"socket_options\": {\"traffic_class\": 256}}",
       "$.socket_options.traffic_class: expected an integer from 0 to 255"},
      {"{\"socket_options\": {\"others\": [[1, 2]]}}",
       "$.socket_options.others[0]: expected an array of three numbers"},
      {"{\"socket_options\": {\"others\": [[1, 2, 2147483648]]}}", "$.socket_options.others[0][2]"},
  };
  for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
    penstock_channel *channel = NULL;
    penstock_error *error = NULL;
    penstock_result result = penstock_channel_new("localhost:1", wrong[i].json, &channel, &error);
    if (!CHECK_RESULT(result, PENSTOCK_E_INVALID_JSON)) printf("  %s\n", wrong[i].json);
    CHECK(channel == NULL && error != NULL);
    if (error && wrong[i].part) CHECK_HAS(penstock_error_json(error), wrong[i].part);
    penstock_error_release(error);
    penstock_channel_release(channel);
  }
}

/* The scheme of a URL decides about TLS, and the option "tls" must not contradict it. */
TEST(channel_urls) {
  static const struct {
    const char *target, *options, *words; /* words NULL: the channel is made */
  } cases[] = {
      {"http://localhost:1", NULL, NULL},
      {"http://localhost:1/a/b", "{}", NULL},
      {"HTTP://127.0.0.1", "{\"tls\": false}", NULL},
      {"https://localhost", NULL, NULL},
      {"https://[::1]:1/a/", "{\"tls\": true}", NULL},
      {"HttpS://localhost:443/%20", "{\"tls\": {\"verify\": false}}", NULL},
      {"http://localhost:1", "{\"tls\": true}", "\"tls\" contradicts the URL"},
      {"http://localhost:1", "{\"tls\": {}}", "\"tls\" contradicts the URL"},
      {"https://localhost:1", "{\"tls\": false}", "\"tls\" contradicts the URL"},
      {"https://localhost:1?x", NULL, "it has a query"},
      {"https://localhost:1/a#b", NULL, "it has a fragment"},
      {"https://localhost:1//", NULL, "its path has an empty segment"},
      {"https://me:secret@localhost", NULL, "it can't name a user"},
      {"ftp://localhost", NULL, "the scheme \"ftp\" is not known"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    penstock_channel *channel = NULL;
    penstock_error *error = NULL;
    penstock_result result = penstock_channel_new(cases[i].target, cases[i].options, &channel, &error);
    if (!CHECK_RESULT(result, cases[i].words ? PENSTOCK_E_INVALID_ARGUMENT : PENSTOCK_OK))
      printf("  %s\n", cases[i].target);
    if (cases[i].words && error) {
      CHECK_HAS(penstock_error_message(error), cases[i].words);
      CHECK(strstr(penstock_error_message(error), "secret") == NULL);
    }
    penstock_error_release(error);
    penstock_channel_release(channel);
  }
}

TEST(channel_unary) {
  penstock_channel *channel = open_channel();
  REQUIRE(channel != NULL);
  check_echo(channel);
  check_echo(channel);
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, NULL, 0, NULL, &reply, NULL));
  size_t length = 9;
  CHECK_INT(penstock_reply_code(reply), 0);
  CHECK(penstock_reply_bytes(reply, &length) != NULL);
  CHECK_INT(length, 0);
  penstock_reply_release(reply);
  penstock_channel_release(channel);
}

TEST(channel_unary_large) {
  penstock_channel *channel = open_channel();
  REQUIRE(channel != NULL);
  size_t size = 3 << 20;
  char *data = malloc(size);
  for (size_t i = 0; i < size; i++) data[i] = (char)(i * 31 >> 3);
  penstock_reply *reply = NULL;
  if (OK(penstock_channel_unary(channel, UNARY, data, size, NULL, &reply, NULL))) {
    size_t length = 0;
    const void *back = penstock_reply_bytes(reply, &length);
    CHECK_INT(penstock_reply_code(reply), 0);
    CHECK_INT(length, size);
    CHECK(back && length == size && memcmp(back, data, size) == 0);
    penstock_reply_release(reply);
  }
  /* The default limit of a received message is 4 MiB. */
  size = (4 << 20) + 1;
  free(data);
  data = calloc(1, size);
  if (OK(penstock_channel_unary(channel, UNARY, data, size, NULL, &reply, NULL))) {
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_RESOURCE_EXHAUSTED);
    penstock_reply_release(reply);
  }
  check_echo(channel);
  free(data);
  penstock_channel_release(channel);
}

TEST(channel_limits_what_is_sent) {
  penstock_channel *channel = NULL;
  REQUIRE_OK(penstock_channel_new(peer_address(), "{\"tls\": false, \"max_send_message_bytes\": 10}", &channel, NULL));
  penstock_reply *reply = NULL;
  penstock_error *error = NULL;
  CHECK_RESULT(penstock_channel_unary(channel, UNARY, "0123456789a", 11, NULL, &reply, &error), PENSTOCK_E_TOO_LARGE);
  CHECK(reply == NULL);
  CHECK_ERROR(error, PENSTOCK_E_TOO_LARGE, NULL, NULL);
  CHECK_INT(unary_code(channel, "0123456789"), 0);
  penstock_channel_release(channel);
}

TEST(channel_malformed_methods) {
  penstock_channel *channel = open_channel();
  static const char *const wrong[] = {"",    "/",   "Echo/Unary", "/a",     "//",
                                      "/a/", "//b", "/a/b c",     "/a/b\n", "/a/\xc3\xa9"};
  for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
    penstock_reply *reply = NULL;
    penstock_error *error = NULL;
    penstock_result result = penstock_channel_unary(channel, wrong[i], "", 0, NULL, &reply, &error);
    if (!CHECK_RESULT(result, PENSTOCK_E_INVALID_ARGUMENT)) printf("  \"%s\"\n", wrong[i]);
    penstock_error_release(error);
    penstock_reply_release(reply);
    penstock_call *call = NULL;
    result = penstock_channel_call(channel, wrong[i], PENSTOCK_KIND_BIDI, NULL, NULL, &call, NULL);
    if (!CHECK_RESULT(result, PENSTOCK_E_INVALID_ARGUMENT)) printf("  \"%s\"\n", wrong[i]);
    penstock_call_release(call);
  }
  penstock_call *call = NULL;
  CHECK_RESULT(penstock_channel_call(channel, BIDI, 4, NULL, NULL, &call, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_channel_call(channel, BIDI, -1, NULL, NULL, &call, NULL), PENSTOCK_E_INVALID_ARGUMENT);
  penstock_channel_release(channel);
}

TEST(channel_unknown_method_is_unimplemented) {
  penstock_channel *channel = open_channel();
  penstock_reply *reply = NULL;
  if (OK(penstock_channel_unary(channel, "/no.Such/Method", "", 0, NULL, &reply, NULL))) {
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_UNIMPLEMENTED);
    CHECK_HAS(penstock_reply_status_json(reply), "UNIMPLEMENTED");
    penstock_reply_release(reply);
  }
  penstock_channel_release(channel);
}

TEST(channel_refused_connection_is_unavailable) {
  penstock_channel *channel = NULL;
  REQUIRE_OK(penstock_channel_new(dead_address(), "{\"tls\": false}", &channel, NULL));
  for (int i = 0; i < 3; i++) {
    penstock_reply *reply = NULL;
    if (!OK(penstock_channel_unary(channel, UNARY, "x", 1, NULL, &reply, NULL))) break;
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_UNAVAILABLE);
    CHECK(penstock_reply_headers(reply) == NULL);
    size_t length = 7;
    CHECK(penstock_reply_bytes(reply, &length) == NULL);
    CHECK_INT(length, 0);
    CHECK(*penstock_status_message(penstock_reply_status(reply), NULL) != 0);
    penstock_reply_release(reply);
  }
  penstock_channel_release(channel);
}

TEST(channel_close) {
  penstock_channel *channel = open_channel();
  check_echo(channel);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  REQUIRE(call != NULL);
  OK(penstock_call_send(call, "a", 1));
  OK(penstock_channel_close(channel));
  CHECK_RESULT(penstock_channel_close(channel), PENSTOCK_E_ALREADY);
  penstock_reply *reply = NULL;
  if (OK(penstock_call_wait(call, &reply))) {
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_CANCELLED);
    CHECK_STR(penstock_status_message(penstock_reply_status(reply), NULL), "channel closed");
    penstock_reply_release(reply);
  }
  penstock_call_release(call);
  penstock_error *error = NULL;
  reply = NULL;
  CHECK_RESULT(penstock_channel_unary(channel, UNARY, "x", 1, NULL, &reply, &error), PENSTOCK_E_CLOSED);
  CHECK_ERROR(error, PENSTOCK_E_CLOSED, NULL, NULL);
  call = NULL;
  CHECK_RESULT(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, NULL, &call, NULL), PENSTOCK_E_CLOSED);
  penstock_channel_release(channel);
}

TEST(channel_released_with_a_call_in_flight) {
  penstock_channel *channel = open_channel();
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  REQUIRE(call != NULL);
  CHECK(penstock_channel_retain(channel) == channel);
  penstock_channel_release(channel);
  penstock_channel_release(channel);
  OK(penstock_call_send(call, "still", 5));
  penstock_message *message = NULL;
  if (OK(penstock_call_receive(call, &message))) {
    CHECK_INT(message_length(message), 5);
    penstock_message_release(message);
  }
  penstock_reply *reply = NULL;
  OK(penstock_call_wait(call, &reply));
  CHECK_INT(penstock_reply_code(reply), 0);
  penstock_reply_release(reply);
  penstock_call_release(call);
}

TEST(channel_leaves_nothing_open) {
  penstock_runtime *runtime = new_runtime(NULL);
  /* A first call may leave descriptors and threads that the process keeps; they are counted before the calls that must
   * leave nothing. */
  penstock_channel *first = open_channel_on(runtime);
  check_echo(first);
  penstock_channel_release(first);
  OK(penstock_runtime_shutdown(runtime, 10000));
  penstock_runtime_release(runtime);
  int threads = running_threads(), descriptors = open_descriptors();
  for (int i = 0; i < test_rounds(10); i++) {
    runtime = new_runtime(NULL);
    penstock_channel *channel = open_channel_on(runtime);
    check_echo(channel);
    penstock_channel_release(channel);
    OK(penstock_runtime_shutdown(runtime, 10000));
    penstock_runtime_release(runtime);
  }
  EVENTUALLY(running_threads() <= threads);
  EVENTUALLY(open_descriptors() <= descriptors);
}

/* The window that the server has for all its answers together, as the channel's statistics show it. */
TEST(channel_connection_window) {
  static const int sizes[] = {65535, 100000, 3 << 20, 64 << 20};
  for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
    static const char name[] = "\"receive_window\":";
    char options[80], *json = NULL;
    penstock_channel *channel = NULL;
    snprintf(options, sizeof(options), "{\"tls\": false, \"initial_connection_window_bytes\": %d}", sizes[i]);
    OK(penstock_channel_new(peer_address(), options, &channel, NULL));
    check_echo(channel);
    OK(penstock_channel_stats_json(channel, 60000, &json));
    const char *found = json ? strstr(json, name) : NULL;
    if (CHECK(found != NULL)) {
      /* The few bytes of the answer may not be given back yet. */
      long window = strtol(found + strlen(name), NULL, 10);
      CHECK(window <= sizes[i] && window > sizes[i] - 100);
    }
    penstock_free(json);
    penstock_channel_release(channel);
  }
}
