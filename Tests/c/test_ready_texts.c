/* The options of the ready-made interceptors: the bounds of each type, and the whole words for a wrong value. */
#include "rows.h"

static penstock_result finish(penstock_result result, penstock_interceptor *table) {
  if (result == PENSTOCK_OK && table->finalizer) table->finalizer(table->user_data);
  return result;
}

/* Defines the reader `name`, for which `fill` fills a table. */
#define TABLE_READER(name, fill)                                                                                       \
  static penstock_result name(const char *json, penstock_error **error) {                                              \
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;                                                            \
    return finish(fill, &table);                                                                                       \
  }

static void give_no_token(penstock_token_request request, const char *refused, void *user_data) {
  (void)request, (void)refused, (void)user_data;
}

static void write_nothing(const char *line, size_t length, void *user_data) {
  (void)line, (void)length, (void)user_data;
}

TABLE_READER(bearer, penstock_ready_bearer_token(json, give_no_token, NULL, NULL, &table, error))

static const row bearer_rows[] = {
    {"{\"header\": \"X-Token\"}", NULL},
    {"{\"header\": \"a b\"}", "$.header: expected a header's name, got another string"},
    {"{\"header\": \"grpc-x\"}",
     "$.header: expected a header's name that is neither reserved nor binary, got another string"},
    {"{\"header\": \"x-bin\"}",
     "$.header: expected a header's name that is neither reserved nor binary, got another string"},
    {"{\"header\": \"\"}", "$.header: expected a header's name, got another string"},
    {"{\"header\": 1}", "$.header: expected a header's name, got an integer"},
    {"{\"scheme\": \"\"}", NULL},
    {"{\"scheme\": \"a \"}", "$.scheme: expected visible ASCII, without a space at its ends, got another string"},
    {"{\"scheme\": 1}", "$.scheme: expected visible ASCII, without a space at its ends, got an integer"},
    {"{\"refresh_early_ms\": -1}", "$.refresh_early_ms: expected an integer from 0 to 86400000, got -1"},
    {"{\"refresh_timeout_ms\": 86400001}",
     "$.refresh_timeout_ms: expected an integer from 0 to 86400000, got 86400001"},
    {"{\"replay_bytes\": -1}", "$.replay_bytes: expected an integer from 0 to 2147483647, got -1"},
    {"{\"allow_cleartext\": 1}", "$.allow_cleartext: expected true or false, got an integer"},
    {"{\"x\": 1}", "$.x: unknown key"},
};

TEST(ready_texts_of_bearer_tokens) { CHECK_ROWS(bearer_rows, bearer); }

TABLE_READER(token_file, penstock_ready_token_file(json, &table, error))

static const row token_file_rows[] = {
    {"{\"file\": \"/dev/null\"}", NULL},
    {"{}", "$: \"file\" is missing"},
    {"{\"file\": \"\"}", "$: \"file\" is missing"},
    {"{\"file\": 1}", "$.file: expected a string, got an integer"},
    {"{\"file\": \"x\", \"reread_ms\": 0}", "$.reread_ms: expected an integer from 1 to 86400000, got 0"},
    {"{\"file\": \"x\", \"header\": \"te\"}",
     "$.header: expected a header's name that is neither reserved nor binary, got another string"},
    {"{\"file\": \"x\", \"scheme\": \" a\"}",
     "$.scheme: expected visible ASCII, without a space at its ends, got another string"},
    {"{\"file\": \"x\", \"y\": 1}", "$.y: unknown key"},
};

TEST(ready_texts_of_token_files) { CHECK_ROWS(token_file_rows, token_file); }

TABLE_READER(logging, penstock_ready_logging(json, write_nothing, NULL, NULL, &table, error))

static const row logging_rows[] = {
    {"{\"events\": []}", NULL},
    {"{\"events\": [\"start\", \"send\", \"half_close\", \"headers\", \"receive\", \"status\", \"cancel\"]}", NULL},
    {"{\"events\": [\"begin\"]}",
     ("$.events[0]: expected \"start\", \"send\", \"half_close\", \"headers\", \"receive\", \"status\" or "
      "\"cancel\", got a string")},
    {"{\"events\": [1]}",
     ("$.events[0]: expected \"start\", \"send\", \"half_close\", \"headers\", \"receive\", \"status\" or "
      "\"cancel\", got an integer")},
    {"{\"events\": \"start\"}", "$.events: expected an array, got a string"},
    {"{\"redact\": [\"A\"]}", NULL},
    {"{\"redact\": [\"a b\"]}", "$.redact[0]: expected a header's name, got another string"},
    {"{\"redact\": [1]}", "$.redact[0]: expected a header's name, got an integer"},
    {"{\"redact\": 1}", "$.redact: expected an array, got an integer"},
    {"{\"redact_binary\": 1}", "$.redact_binary: expected true or false, got an integer"},
    {"{\"metadata\": 1}", "$.metadata: expected true or false, got an integer"},
    {"{\"messages\": \"size\"}", "$.messages: expected \"sizes\" or \"none\", got another string"},
    {"{\"channel\": \"warn\"}",
     "$.channel: expected \"debug\", \"info\", \"warning\", \"error\" or \"none\", got another string"},
    {"{\"x\": 1}", "$.x: unknown key"},
};

TEST(ready_texts_of_logging) { CHECK_ROWS(logging_rows, logging); }

OBJECT_READER(metrics, penstock_metrics, penstock_metrics_new, penstock_metrics_release)

static const row metrics_rows[] = {
    {"{\"max_methods\": 0}", "$.max_methods: expected an integer from 1 to 65536, got 0"},
    {"{\"max_peers\": 65537}", "$.max_peers: expected an integer from 1 to 65536, got 65537"},
    {"{\"buckets_ms\": []}", NULL},
    {"{\"buckets_ms\": [1, 2]}", NULL},
    {"{\"buckets_ms\": [1, 1]}", "$.buckets_ms[1]: expected a number above the one before, got another number"},
    {"{\"buckets_ms\": [2, 1]}", "$.buckets_ms[1]: expected a number above the one before, got another number"},
    {"{\"buckets_ms\": [0]}", "$.buckets_ms[0]: expected an integer from 1 to 86400000, got 0"},
    {"{\"buckets_ms\": [\"1\"]}", "$.buckets_ms[0]: expected an integer from 1 to 86400000, got a string"},
    {"{\"buckets_ms\": 1}", "$.buckets_ms: expected an array, got an integer"},
    {("{\"buckets_ms\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, "
      "23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, "
      "48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64]}"),
     NULL},
    {("{\"buckets_ms\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, "
      "23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, "
      "48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65]}"),
     "$.buckets_ms: expected at most 64 numbers, got another array"},
    {"{\"x\": 1}", "$.x: unknown key"},
};

TEST(ready_texts_of_metrics) { CHECK_ROWS(metrics_rows, metrics); }

OBJECT_READER(telemetry, penstock_telemetry, penstock_telemetry_new, penstock_telemetry_release)

static const row telemetry_rows[] = {
    {"{\"resource\": {}}", NULL},
    {"{\"resource\": {\"a\": 1}}", "$.resource.a: expected a string, got an integer"},
    {"{\"resource\": 1}", "$.resource: expected an object, got an integer"},
    {"{\"metrics\": 1}", "$.metrics: expected true or false, got an integer"},
    {"{\"spans\": 1}", "$.spans: expected true or false, got an integer"},
    {"{\"messages\": 1}", "$.messages: expected true or false, got an integer"},
    {"{\"sampled\": 100}", NULL},
    {"{\"sampled\": 0.5}", NULL},
    {"{\"sampled\": 100.1}", "$.sampled: expected a number from 0 to 100, got another number"},
    {"{\"sampled\": \"1\"}", "$.sampled: expected a number from 0 to 100, got a string"},
    {"{\"max_spans\": 0}", "$.max_spans: expected an integer from 1 to 1048576, got 0"},
    {"{\"max_span_bytes\": 4095}", "$.max_span_bytes: expected an integer from 4096 to 2147483647, got 4095"},
    {"{\"x\": 1}", "$.x: unknown key"},
};

TEST(ready_texts_of_telemetry) { CHECK_ROWS(telemetry_rows, telemetry); }

TABLE_READER(trace_context, penstock_ready_trace_context(json, &table, error))

static const row trace_context_rows[] = {
    {"{\"sampled\": -1}", "$.sampled: expected a number from 0 to 100, got another number"},
    {"{\"seed\": 0}", NULL},
    {"{\"seed\": -1}", "$.seed: expected an integer from 0, got -1"},
    {"{\"seed\": \"1\"}", "$.seed: expected an integer from 0, got a string"},
    {"{\"parent_id\": \"old\"}", "$.parent_id: expected \"new\" or \"keep\", got another string"},
    {"{\"x\": 1}", "$.x: unknown key"},
};

TEST(ready_texts_of_trace_contexts) { CHECK_ROWS(trace_context_rows, trace_context); }

TABLE_READER(response_cache, penstock_ready_response_cache(json, &table, error))

static const row response_cache_rows[] = {
    {"{\"ttl_ms\": 0}", "$.ttl_ms: expected an integer from 1 to 86400000, got 0"},
    {"{\"max_entries\": 1048577}", "$.max_entries: expected an integer from 1 to 1048576, got 1048577"},
    {"{\"max_bytes\": -1}", "$.max_bytes: expected an integer from 0 to 2147483647, got -1"},
    {"{\"metadata\": [\"a b\"]}", "$.metadata[0]: expected a header's name, got another string"},
    {"{\"metadata\": \"a\"}", "$.metadata: expected an array, got a string"},
    {"{\"x\": 1}", "$.x: unknown key"},
};

TEST(ready_texts_of_response_caches) { CHECK_ROWS(response_cache_rows, response_cache); }

TABLE_READER(rate_limit, penstock_ready_rate_limit(json, &table, error))

static const row rate_limit_rows[] = {
    {"{}", "$: \"rate\" is missing"},
    {"{\"rate\": 0}", "$.rate: expected a number from 0.001 to 1000000, got another number"},
    {"{\"rate\": 0.001}", NULL},
    {"{\"rate\": 1000000}", NULL},
    {"{\"rate\": 1000000.1}", "$.rate: expected a number from 0.001 to 1000000, got another number"},
    {"{\"rate\": \"1\"}", "$.rate: expected a number from 0.001 to 1000000, got a string"},
    {"{\"rate\": 1, \"burst\": 0}", "$.burst: expected an integer from 1 to 1000000, got 0"},
    {"{\"rate\": 1, \"max_wait_ms\": -1}", "$.max_wait_ms: expected an integer from 0 to 86400000, got -1"},
    {"{\"rate\": 1, \"max_waiting\": 2147483648}",
     "$.max_waiting: expected an integer from 0 to 2147483647, got 2147483648"},
    {"{\"rate\": 1, \"code\": \"ABORTED\"}", NULL},
    {"{\"rate\": 1, \"code\": 16}", NULL},
    {"{\"rate\": 1, \"code\": \"UNAUTHENTICATED\"}", NULL},
    {"{\"rate\": 1, \"code\": \"CANCELLED\"}", NULL},
    {"{\"rate\": 1, \"code\": 1}", NULL},
    {"{\"rate\": 1, \"code\": 0}", "$.code: expected the name or number of a status other than OK, got 0"},
    {"{\"rate\": 1, \"code\": 17}", "$.code: expected the name or number of a status other than OK, got 17"},
    {"{\"rate\": 1, \"code\": \"OK\"}",
     "$.code: expected the name or number of a status other than OK, got another string"},
    {"{\"rate\": 1, \"code\": \"aborted\"}",
     "$.code: expected the name or number of a status other than OK, got another string"},
    {"{\"rate\": 1, \"code\": true}", "$.code: expected the name or number of a status other than OK, got a boolean"},
    {"{\"rate\": 1, \"x\": 1}", "$.x: unknown key"},
};

TEST(ready_texts_of_rate_limits) { CHECK_ROWS(rate_limit_rows, rate_limit); }

TABLE_READER(hedging, penstock_ready_hedging(json, NULL, &table, error))

static const row hedging_rows[] = {
    {"{\"max_attempts\": 1}", "$.max_attempts: expected an integer from 2 to 5, got 1"},
    {"{\"max_attempts\": 6}", "$.max_attempts: expected an integer from 2 to 5, got 6"},
    {"{\"delay_ms\": -1}", "$.delay_ms: expected an integer from 0 to 86400000, got -1"},
    {"{\"non_fatal_codes\": [\"UNAVAILABLE\", 10]}", NULL},
    {"{\"non_fatal_codes\": [14, \"OK\"]}",
     "$.non_fatal_codes[1]: expected the name or number of a status other than OK, got another string"},
    {"{\"non_fatal_codes\": 14}", "$.non_fatal_codes: expected an array, got an integer"},
    {"{\"throttle\": 1}", "$.throttle: expected an object, got an integer"},
    {"{\"throttle\": {\"max_tokens\": 0}}", "$.throttle.max_tokens: expected an integer from 1 to 1000, got 0"},
    {"{\"throttle\": {\"token_ratio\": 0.0001}}",
     "$.throttle.token_ratio: expected a number from 0.001 to 1000, got another number"},
    {"{\"throttle\": {\"token_ratio\": 1000.5}}",
     "$.throttle.token_ratio: expected a number from 0.001 to 1000, got another number"},
    {"{\"throttle\": {\"x\": 1}}", "$.throttle.x: unknown key"},
    {"{\"x\": 1}", "$.x: unknown key"},
};

TEST(ready_texts_of_hedging) { CHECK_ROWS(hedging_rows, hedging); }

TABLE_READER(fault_injection, penstock_ready_fault_injection(json, &table, error))

static const row fault_injection_rows[] = {
    {"{\"delay\": 1}", "$.delay: expected an object, got an integer"},
    {"{\"delay\": {\"ms\": -1}}", "$.delay.ms: expected an integer from 0 to 86400000, got -1"},
    {"{\"delay\": {\"percent\": 101}}", "$.delay.percent: expected a number from 0 to 100, got another number"},
    {"{\"delay\": {\"x\": 1}}", "$.delay.x: unknown key"},
    {"{\"abort\": 1}", "$.abort: expected an object, got an integer"},
    {"{\"abort\": {\"code\": 0}}", "$.abort.code: expected the name or number of a status other than OK, got 0"},
    {"{\"abort\": {\"message\": 1}}", "$.abort.message: expected a string, got an integer"},
    {"{\"abort\": {\"percent\": \"1\"}}", "$.abort.percent: expected a number from 0 to 100, got a string"},
    {"{\"abort\": {\"x\": 1}}", "$.abort.x: unknown key"},
    {"{\"seed\": 1.5}", "$.seed: expected an integer from 0, got a real number"},
    {"{\"x\": 1}", "$.x: unknown key"},
};

TEST(ready_texts_of_fault_injection) { CHECK_ROWS(fault_injection_rows, fault_injection); }

TABLE_READER(header_rules, penstock_ready_header_rules(json, &table, error))

static const row header_rules_rows[] = {
    {("{\"request\": [{\"set\": \"a\", \"value\": \"b\"}, {\"add\": \"a\", \"value\": \"b\"}, {\"remove\": "
      "\"a\"}, {\"rename\": \"a\", \"to\": \"b\"}]}"),
     NULL},
    {"{\"headers\": [{\"set\": \"a-bin\", \"value\": \"AA==\"}], \"trailers\": []}", NULL},
    {"{\"request\": 1}", "$.request: expected an array, got an integer"},
    {"{\"headers\": [1]}", "$.headers[0]: expected an object, got an integer"},
    {"{\"trailers\": [{}]}",
     "$.trailers[0]: expected one of \"set\", \"add\", \"remove\", \"rename\", got another object"},
    {"{\"request\": [{\"set\": \"a\"}]}",
     "$.request[0]: \"set\" and \"add\" have a \"value\", only \"rename\" has a \"to\""},
    {"{\"request\": [{\"add\": \"a\"}]}",
     "$.request[0]: \"set\" and \"add\" have a \"value\", only \"rename\" has a \"to\""},
    {"{\"request\": [{\"remove\": \"a\", \"value\": \"b\"}]}",
     "$.request[0]: \"set\" and \"add\" have a \"value\", only \"rename\" has a \"to\""},
    {"{\"request\": [{\"rename\": \"a\"}]}",
     "$.request[0]: \"set\" and \"add\" have a \"value\", only \"rename\" has a \"to\""},
    {"{\"request\": [{\"rename\": \"a\", \"value\": \"b\"}]}",
     "$.request[0]: \"set\" and \"add\" have a \"value\", only \"rename\" has a \"to\""},
    {"{\"request\": [{\"rename\": \"a\", \"to\": \"b\", \"value\": \"c\"}]}",
     "$.request[0]: \"set\" and \"add\" have a \"value\", only \"rename\" has a \"to\""},
    {"{\"request\": [{\"set\": \"a\", \"value\": \"b\", \"to\": \"c\"}]}",
     "$.request[0]: \"set\" and \"add\" have a \"value\", only \"rename\" has a \"to\""},
    {"{\"request\": [{\"remove\": \"a\", \"to\": \"c\"}]}",
     "$.request[0]: \"set\" and \"add\" have a \"value\", only \"rename\" has a \"to\""},
    {"{\"request\": [{\"rename\": \"a\", \"to\": \"A\"}]}",
     "$.request[0]: \"rename\" needs two different names: both or neither end with \"-bin\""},
    {"{\"request\": [{\"rename\": \"a-bin\", \"to\": \"b\"}]}",
     "$.request[0]: \"rename\" needs two different names: both or neither end with \"-bin\""},
    {"{\"request\": [{\"rename\": \"a\", \"to\": \"b-bin\"}]}",
     "$.request[0]: \"rename\" needs two different names: both or neither end with \"-bin\""},
    {"{\"request\": [{\"rename\": \"a-bin\", \"to\": \"b-bin\"}]}", NULL},
    {"{\"request\": [{\"set\": \"a\", \"value\": 1}]}", "$.request[0].value: expected a string, got an integer"},
    {"{\"request\": [{\"set\": 1, \"value\": \"b\"}]}", "$.request[0].set: expected a header's name, got an integer"},
    {"{\"request\": [{\"set\": \"a b\", \"value\": \"b\"}]}",
     "$.request[0].set: expected a header's name, got another string"},
    {"{\"request\": [{\"set\": \"te\", \"value\": \"b\"}]}", "$.request[0].set: a reserved name"},
    {"{\"request\": [{\"set\": \"User-Agent\", \"value\": \"b\"}]}", "$.request[0].set: a reserved name"},
    {"{\"request\": [{\"rename\": \"a\", \"to\": \"grpc-b\"}]}", "$.request[0].to: a reserved name"},
    {"{\"request\": [{\"set\": \"a\", \"value\": \" b\"}]}",
     "$.request[0].value: a value may not begin or end with a space"},
    {"{\"request\": [{\"set\": \"a\", \"value\": \"b \"}]}",
     "$.request[0].value: a value may not begin or end with a space"},
    {"{\"request\": [{\"set\": \"a\", \"value\": \"\\u0001\"}]}",
     "$.request[0].value: a value has visible ASCII and spaces only, unless its name ends with \"-bin\""},
    {"{\"request\": [{\"set\": \"a-bin\", \"value\": \"!\"}]}", "$.request[0].value: malformed base64"},
    {"{\"request\": [{\"set\": \"a\", \"add\": \"b\", \"value\": \"c\"}]}",
     "$.request[0].add: a rule does one thing only"},
    {"{\"request\": [{\"set\": \"a\", \"value\": \"b\", \"x\": 1}]}", "$.request[0].x: unknown key"},
    {"{\"requests\": []}", "$.requests: unknown key"},
};

TEST(ready_texts_of_header_rules) { CHECK_ROWS(header_rules_rows, header_rules); }

TABLE_READER(signed_token, penstock_ready_jwt(json, &table, error))

static const row jwt_rows[] = {
    {"{}", "$: \"key_file\" is missing"},
    {"{\"key_file\": \"k\"}", "$: \"issuer\" is missing"},
    {"{\"key_file\": \"k\", \"issuer\": \"i\"}", "$: \"audience\" is missing"},
    {"{\"key_file\": \"\", \"issuer\": \"i\"}", "$.key_file: expected the path of a file, got another string"},
    {"{\"key_file\": 1}", "$.key_file: expected the path of a file, got an integer"},
    {"{\"service_account_file\": \"\"}", "$.service_account_file: expected the path of a file, got another string"},
    {"{\"key_file\": \"k\", \"service_account_file\": \"s\"}",
     "$: \"key_file\" and \"service_account_file\" exclude each other"},
    {"{\"service_account_file\": \"s\"}", "$: \"audience\" is missing"},
    {"{\"key_file\": \"k\", \"issuer\": 1}", "$.issuer: expected a string, got an integer"},
    {"{\"key_file\": \"k\", \"lifetime_ms\": 999}",
     "$.lifetime_ms: expected an integer from 1000 to 86400000, got 999"},
    {"{\"key_file\": \"k\", \"header\": \"a b\"}", "$.header: expected a header's name, got another string"},
    {"{\"key_file\": \"k\", \"scheme\": \" \"}",
     "$.scheme: expected visible ASCII, without a space at its ends, got another string"},
    {"{\"x\": 1}", "$.x: unknown key"},
};

TEST(ready_texts_of_signed_tokens) { CHECK_ROWS(jwt_rows, signed_token); }

static penstock_result token_exchange(const char *json, penstock_error **error) {
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  penstock_channel *server = NULL;
  OK(penstock_channel_new("localhost:1", "{\"tls\": {\"verify\": false}}", &server, NULL));
  penstock_result result = penstock_ready_oauth2(json, server, &table, error);
  penstock_channel_release(server);
  return finish(result, &table);
}

static const row oauth2_rows[] = {
    {"{\"grant\": \"client_credentials\", \"token_path\": \"/t\", \"client_id\": \"c\"}", NULL},
    {("{\"grant\": \"client_credentials\", \"token_path\": \"/t?a=b!~\", \"client_id\": \"c\", "
      "\"client_secret\": \"s\"}"),
     NULL},
    {"{\"token_path\": \"/t\"}", "$: \"grant\" is missing"},
    {"{\"grant\": \"client_credentials\"}", "$: \"token_path\" is missing"},
    {"{\"grant\": \"client_credentials\", \"token_path\": \"/t\"}", "$: \"client_id\" is missing"},
    {"{\"grant\": \"refresh_token\", \"token_path\": \"/t\", \"client_secret\": \"s\"}", "$: \"client_id\" is missing"},
    {"{\"grant\": \"refresh_token\", \"token_path\": \"/t\"}", "$: \"refresh_token\" is missing"},
    {"{\"grant\": \"refresh_token\", \"token_path\": \"/t\", \"refresh_token\": \"r\"}", NULL},
    {"{\"grant\": \"jwt_bearer\", \"token_path\": \"/t\"}", "$: \"jwt\" is missing"},
    {"{\"grant\": \"x\"}",
     "$.grant: expected \"client_credentials\", \"refresh_token\" or \"jwt_bearer\", got another string"},
    {"{\"grant\": 1}", "$.grant: expected \"client_credentials\", \"refresh_token\" or \"jwt_bearer\", got an integer"},
    {"{\"token_path\": \"t\"}", "$.token_path: expected the path of a URL, such as \"/token\", got another string"},
    {"{\"token_path\": \"\"}", "$.token_path: expected the path of a URL, such as \"/token\", got another string"},
    {"{\"token_path\": 1}", "$.token_path: expected the path of a URL, such as \"/token\", got an integer"},
    {"{\"token_path\": \"/a b\"}", "$.token_path: expected the path of a URL, such as \"/token\", got another string"},
    {"{\"token_path\": \"/a#b\"}", "$.token_path: expected the path of a URL, such as \"/token\", got another string"},
    {"{\"token_path\": \"/\\u007f\"}",
     "$.token_path: expected the path of a URL, such as \"/token\", got another string"},
    {"{\"token_path\": \"/\\u00e9\"}",
     "$.token_path: expected the path of a URL, such as \"/token\", got another string"},
    {"{\"client_authentication\": \"body\"}",
     "$.client_authentication: expected \"basic\" or \"form\", got another string"},
    {"{\"jwt\": 1}", "$.jwt: expected an object, got an integer"},
    {"{\"jwt\": {}}", "$.jwt: \"key_file\" is missing"},
    {"{\"jwt\": {\"key_file\": \"k\"}}", "$.jwt: \"audience\" is missing"},
    {"{\"jwt\": {\"key_file\": \"k\", \"service_account_file\": \"s\"}}",
     "$.jwt: \"key_file\" and \"service_account_file\" exclude each other"},
    {"{\"jwt\": {\"x\": 1}}", "$.jwt.x: unknown key"},
    {"{\"jwt\": {\"key_file\": \"\"}}", "$.jwt.key_file: expected the path of a file, got another string"},
    {"{\"jwt\": {\"key_file\": \"k\", \"audience\": \"a\", \"lifetime_ms\": 86400001}}",
     "$.jwt.lifetime_ms: expected an integer from 1000 to 86400000, got 86400001"},
    {("{\"grant\": \"client_credentials\", \"token_path\": \"/t\", \"client_id\": \"c\", "
      "\"client_secret\": \"s\", \"jwt\": {\"key_file\": \"/no/file\", \"audience\": \"a\"}}"),
     "$.jwt: \"client_secret\" says already who the client is"},
    {("{\"grant\": \"jwt_bearer\", \"token_path\": \"/t\", \"jwt\": {\"key_file\": \"/no/file\", "
      "\"audience\": \"a\"}}"),
     "$.jwt: \"issuer\" is missing"},
    {"{\"lifetime_ms\": 1}", "$.lifetime_ms: expected an integer from 1000 to 86400000, got 1"},
    {"{\"x\": 1}", "$.x: unknown key"},
};

TEST(ready_texts_of_token_exchanges) { CHECK_ROWS(oauth2_rows, token_exchange); }

/* Lists that are as long as they may be, and longer by one. */
TEST(ready_texts_of_long_lists) {
  for (int count = 64; count <= 65; count++) {
    char buckets[1024] = "{\"buckets_ms\": [1", resource[1024] = "{\"resource\": {\"0\": \"\"";
    for (int i = 1; i < count; i++) {
      snprintf(buckets + strlen(buckets), 32, ", %d", i + 1);
      snprintf(resource + strlen(resource), 32, ", \"%d\": \"\"", i);
    }
    strcat(buckets, "]}");
    strcat(resource, "}}");
    bool fits = count == 64;
    const row bucket_row[] = {{buckets, fits ? NULL : "$.buckets_ms: expected at most 64 numbers, got another array"}};
    const row resource_row[] = {
        {resource, fits ? NULL : "$.resource: expected at most 64 attributes, got another object"}};
    CHECK_ROWS(bucket_row, metrics);
    CHECK_ROWS(resource_row, telemetry);
  }
}
