/* status.h: code, message, trailers and details of a status, and their JSON. */
#include "test.h"

static penstock_status *new_status(int32_t code, const char *message) {
  penstock_status *status = NULL;
  OK(penstock_status_new(code, message, &status));
  return status;
}

static void check_whole(const char *file, int line, const penstock_status *status, const char *expected) {
  char *json = NULL;
  if (check_result(file, line, "penstock_status_json", penstock_status_json(status, &json), PENSTOCK_OK)) {
    check_json(file, line, "json", json, expected);
    penstock_free(json);
  }
}
#define CHECK_WHOLE(status, expected) check_whole(__FILE__, __LINE__, (status), (expected))

TEST(status_code_names) {
  static const char *const names[] = {
      "OK",        "CANCELLED",      "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
      "NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
      "ABORTED",   "OUT_OF_RANGE",   "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
      "DATA_LOSS", "UNAUTHENTICATED"};
  for (int32_t code = 0; code < 17; code++) {
    CHECK_STR(penstock_status_code_name(code), names[code]);
    char expected[160];
    snprintf(expected, sizeof(expected),
             "{\"code\":%d,\"name\":\"%s\",\"message\":\"\",\"metadata\":{},\"details\":[]}", code, names[code]);
    penstock_status *status = new_status(code, NULL);
    CHECK_WHOLE(status, expected);
    penstock_status_release(status);
  }
  CHECK_STR(penstock_status_code_name(-1), "unknown");
  CHECK_STR(penstock_status_code_name(17), "unknown");
  CHECK_STR(penstock_status_code_name(INT32_MIN), "unknown");
}

TEST(status_values) {
  penstock_status *status = new_status(5, "no such thing");
  REQUIRE(status != NULL);
  CHECK_INT(penstock_status_code(status), 5);
  CHECK_STR(penstock_status_message(status, NULL), "no such thing");
  OK(penstock_status_set_code(status, 16));
  CHECK_RESULT(penstock_status_set_code(status, 17), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_status_set_code(status, -1), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_INT(penstock_status_code(status), 16);
  OK(penstock_status_set_message(status, "caf\xc3\xa9 \"q\"\n", 10));
  CHECK_STR(penstock_status_message(status, NULL), "caf\xc3\xa9 \"q\"\n");
  CHECK_WHOLE(status,
              "{\"code\":16,\"name\":\"UNAUTHENTICATED\",\"message\":\"caf\xc3\xa9 \\\"q\\\"\\n\",\"metadata\":{},"
              "\"details\":[]}");
  CHECK(penstock_status_retain(status) == status);
  penstock_status_release(status);
  CHECK_INT(penstock_status_code(status), 16);
  penstock_status_release(status);
  penstock_status *unmade = NULL;
  CHECK_RESULT(penstock_status_new(-1, "", &unmade), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_status_new(17, "", &unmade), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK(unmade == NULL);
}

/* A message may have NULs, which its length includes. */
TEST(status_messages_with_a_nul) {
  static const char text[] = "a\0b\0";
  penstock_status *status = new_status(5, NULL);
  size_t length = 0;
  OK(penstock_status_set_message(status, text, 4));
  CHECK(memcmp(penstock_status_message(status, &length), text, 5) == 0);
  CHECK_INT(length, 4);
  OK(penstock_status_set_message(status, text, 3));
  CHECK(memcmp(penstock_status_message(status, &length), "a\0b", 4) == 0);
  CHECK_INT(length, 3);
  CHECK_WHOLE(status, "{\"code\":5,\"name\":\"NOT_FOUND\",\"message\":\"a\\u0000b\",\"metadata\":{},\"details\":[]}");
  OK(penstock_status_set_message(status, NULL, 0));
  CHECK_STR(penstock_status_message(status, &length), "");
  CHECK_INT(length, 0);
  penstock_status_release(status);
}

TEST(status_repairs_its_message) {
  static const struct {
    const char *given, *repaired;
  } cases[] = {
      {"\xff", "\xef\xbf\xbd"},
      {"a\xc3", "a\xef\xbf\xbd"},
      {"\xc3(", "\xef\xbf\xbd("},
      {"\xe2\x82\xac", "\xe2\x82\xac"},
      {"\xf0\x9f\x98\x80!", "\xf0\x9f\x98\x80!"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    penstock_status *status = new_status(2, cases[i].given);
    CHECK_STR(penstock_status_message(status, NULL), cases[i].repaired);
    char *json = NULL;
    OK(penstock_status_json(status, &json));
    CHECK_HAS(json, cases[i].repaired);
    penstock_free(json);
    penstock_status_release(status);
  }
}

TEST(status_trailers) {
  penstock_status *status = new_status(0, "");
  REQUIRE(status != NULL);
  penstock_metadata *trailers = penstock_status_trailers(status);
  REQUIRE(trailers != NULL);
  OK(penstock_metadata_add(trailers, "a", "1"));
  OK(penstock_metadata_add(trailers, "a", "2"));
  CHECK_INT(penstock_metadata_count(penstock_status_trailers(status)), 2);
  CHECK_WHOLE(status,
              "{\"code\":0,\"name\":\"OK\",\"message\":\"\",\"metadata\":{\"a\":[\"1\",\"2\"]},\"details\":[]}");
  penstock_status_release(status);
}

/* google.rpc.ErrorInfo {reason: "STOCKOUT", domain: "x", metadata: {"k": "v"}} */
static const char error_info[] = "\x0a\x08STOCKOUT\x12\x01x\x1a\x06\x0a\x01k\x12\x01v";
/* google.rpc.RetryInfo {retry_delay: 1.5s} */
static const char retry_info[] = "\x0a\x08\x08\x01\x10\x80\xca\xb5\xee\x01";

TEST(status_details) {
  penstock_status *status = new_status(9, "no");
  REQUIRE(status != NULL);
  CHECK_INT(penstock_status_detail_count(status), 0);
  OK(penstock_status_add_detail(status, "type.googleapis.com/acme.Shortage", "\0\1\2", 3));
  OK(penstock_status_add_detail(status, "type.googleapis.com/google.rpc.ErrorInfo", error_info,
                                sizeof(error_info) - 1));
  OK(penstock_status_add_detail(status, "type.googleapis.com/acme.Shortage", NULL, 0));
  CHECK_INT(penstock_status_detail_count(status), 3);
  const char *url = NULL;
  const void *value = NULL;
  size_t length = 9;
  OK(penstock_status_detail_at(status, 0, &url, &value, &length));
  CHECK_STR(url, "type.googleapis.com/acme.Shortage");
  CHECK(length == 3 && value && memcmp(value, "\0\1\2", 3) == 0);
  OK(penstock_status_detail_at(status, 2, &url, &value, &length));
  CHECK_INT(length, 0);
  CHECK_RESULT(penstock_status_detail_at(status, 3, &url, &value, &length), PENSTOCK_E_NOT_FOUND);
  CHECK_RESULT(penstock_status_detail_at(status, SIZE_MAX, &url, &value, &length), PENSTOCK_E_NOT_FOUND);
  OK(penstock_status_detail_find(status, "acme.Shortage", &value, &length));
  CHECK_INT(length, 3);
  OK(penstock_status_detail_find(status, "type.googleapis.com/google.rpc.ErrorInfo", &value, &length));
  CHECK_INT(length, sizeof(error_info) - 1);
  CHECK_RESULT(penstock_status_detail_find(status, "Shortage", &value, &length), PENSTOCK_E_NOT_FOUND);
  CHECK_RESULT(penstock_status_detail_find(status, "other.host/acme.Shortage", &value, &length), PENSTOCK_E_NOT_FOUND);
  CHECK_RESULT(penstock_status_detail_find(status, "", &value, &length), PENSTOCK_E_NOT_FOUND);
  OK(penstock_status_clear_details(status));
  CHECK_INT(penstock_status_detail_count(status), 0);
  penstock_status_release(status);
}

TEST(status_details_as_json) {
  penstock_status *status = new_status(9, "no");
  REQUIRE(status != NULL);
  OK(penstock_status_add_detail(status, "type.googleapis.com/acme.Shortage", "\0\1\2", 3));
  OK(penstock_status_add_detail(status, "type.googleapis.com/google.rpc.ErrorInfo", error_info,
                                sizeof(error_info) - 1));
  OK(penstock_status_add_detail(status, "type.googleapis.com/google.rpc.RetryInfo", retry_info,
                                sizeof(retry_info) - 1));
  char *json = NULL;
  REQUIRE_OK(penstock_status_json(status, &json));
  CHECK_HAS(json, "type.googleapis.com/acme.Shortage");
  CHECK_HAS(json, "AAEC");
  CHECK_HAS(json, "STOCKOUT");
  CHECK_HAS(json, "type.googleapis.com/google.rpc.RetryInfo");
  CHECK_HAS(json, "1.5");
  penstock_free(json);
  /* A detail whose bytes do not fit its type appears in JSON as bytes, in base64. */
  OK(penstock_status_clear_details(status));
  OK(penstock_status_add_detail(status, "type.googleapis.com/google.rpc.ErrorInfo", "\xff\xff", 2));
  REQUIRE_OK(penstock_status_json(status, &json));
  CHECK_HAS(json, "//8=");
  penstock_free(json);
  penstock_status_release(status);
}

/* google.rpc.Status {code: 9, message: "no", details: [Any {type_url: "t/acme.X", value: "abc"}]} */
static const char whole[] = "\x08\x09\x12\x02no\x1a\x0f\x0a\x08t/acme.X\x12\x03"
                            "abc";

static void check_encoded(const char *file, int line, penstock_status *status, const char *expected, size_t size) {
  void *data = NULL;
  size_t length = 0;
  if (!check_result(file, line, "penstock_status_details_bin", penstock_status_details_bin(status, &data, &length),
                    PENSTOCK_OK)) {
    return;
  }
  check_true(file, line, "the encoded status", length == size && memcmp(data, expected, size) == 0);
  penstock_free(data);
  const void *shown = NULL;
  penstock_result result =
      penstock_metadata_get(penstock_status_trailers(status), "grpc-status-details-bin", 0, &shown, &length);
  if (penstock_status_detail_count(status) == 0) {
    check_result(file, line, "the trailers of a status without details", result, PENSTOCK_E_NOT_FOUND);
  } else if (check_result(file, line, "the trailers of a status with details", result, PENSTOCK_OK)) {
    check_true(file, line, "the trailers' bytes", length == size && memcmp(shown, expected, size) == 0);
  }
}
#define CHECK_ENCODED(status, expected) check_encoded(__FILE__, __LINE__, (status), (expected), sizeof(expected) - 1)

TEST(status_details_stay_consistent) {
  penstock_status *status = new_status(0, "");
  REQUIRE(status != NULL);
  CHECK_ENCODED(status, "");
  OK(penstock_status_set_message(status, "no", 2));
  OK(penstock_status_set_code(status, 9));
  CHECK_ENCODED(status, "\x08\x09\x12\x02no");
  OK(penstock_status_set_detail(status, "t/acme.X", "abc", 3));
  CHECK_ENCODED(status, whole);
  /* A change of code, message or a detail also changes grpc-status-details-bin. */
  OK(penstock_status_set_code(status, 5));
  CHECK_ENCODED(status, "\x08\x05\x12\x02no\x1a\x0f\x0a\x08t/acme.X\x12\x03"
                        "abc");
  OK(penstock_status_set_message(status, "", 0));
  OK(penstock_status_set_detail(status, "acme.X", "d", 1));
  CHECK_ENCODED(status, "\x08\x05\x1a\x0d\x0a\x08t/acme.X\x12\x01"
                        "d");
  CHECK_INT(penstock_status_detail_count(status), 1);
  OK(penstock_status_add_detail(status, "t/acme.Y", "", 0));
  OK(penstock_status_add_detail(status, "u/acme.X", "2", 1));
  OK(penstock_status_set_detail(status, "u/acme.X", "3", 1));
  const void *value = NULL;
  size_t length = 0;
  const char *url = NULL;
  OK(penstock_status_detail_at(status, 2, &url, &value, &length));
  CHECK(length == 1 && *(const char *)value == '3');
  /* penstock_status_remove_detail removes all details of a type, or the one with a given URL. */
  OK(penstock_status_remove_detail(status, "t/acme.X"));
  CHECK_INT(penstock_status_detail_count(status), 2);
  OK(penstock_status_add_detail(status, "v/acme.X", "4", 1));
  OK(penstock_status_remove_detail(status, "acme.X"));
  CHECK_INT(penstock_status_detail_count(status), 1);
  OK(penstock_status_detail_at(status, 0, &url, &value, &length));
  CHECK_STR(url, "t/acme.Y");
  CHECK_ENCODED(status, "\x08\x05\x1a\x0a\x0a\x08t/acme.Y");
  CHECK_RESULT(penstock_status_remove_detail(status, "acme.X"), PENSTOCK_E_NOT_FOUND);
  /* Replacing all trailers does not remove the details. */
  OK(penstock_metadata_set_json(penstock_status_trailers(status), "{\"x\": \"1\"}", NULL));
  CHECK_ENCODED(status, "\x08\x05\x1a\x0a\x0a\x08t/acme.Y");
  OK(penstock_status_clear_details(status));
  CHECK_ENCODED(status, "\x08\x05");
  penstock_status_release(status);
}

/* Checks that a status made from the JSON of penstock_status_json gives the same JSON. */
static void check_round_trip(const char *file, int line, const char *json) {
  penstock_status *status = NULL;
  penstock_error *error = NULL;
  if (!check_result(file, line, json, penstock_status_from_json(json, &status, &error), PENSTOCK_OK)) {
    printf("  %s\n", penstock_error_message(error));
    penstock_error_release(error);
    return;
  }
  char *once = NULL, *twice = NULL;
  penstock_status *again = NULL;
  OK(penstock_status_json(status, &once));
  if (OK(penstock_status_from_json(once, &again, NULL)) && OK(penstock_status_json(again, &twice))) {
    check_str(file, line, "the JSON of the JSON", twice, once);
  }
  penstock_free(once);
  penstock_free(twice);
  penstock_status_release(status);
  penstock_status_release(again);
}

TEST(status_from_json) {
  static const char *const right[] = {
      "{\"code\": 0}",
      "{\"name\": \"NOT_FOUND\"}",
      "{\"code\": 5, \"name\": \"NOT_FOUND\", \"message\": \"a \\u263a\", \"metadata\": {\"x\": [\"1\", \"2\"], "
      "\"y-bin\": \"AAE=\"}, \"details\": [{\"@type\": \"t/acme.X\", \"base64\": \"AAEC\"}]}",
      "{\"code\": 3, \"details\": [{\"@type\": \"t/google.rpc.BadRequest\", \"fieldViolations\": [{\"field\": \"a\", "
      "\"description\": \"b\", \"localizedMessage\": {\"locale\": \"de\", \"message\": \"c\"}}, {}]}]}",
      "{\"code\": 8, \"details\": [{\"@type\": \"t/google.rpc.QuotaFailure\", \"violations\": [{\"subject\": \"s\", "
      "\"quotaDimensions\": {\"k\": \"v\"}, \"quotaValue\": \"-9223372036854775808\", \"futureQuotaValue\": 0}]}, "
      "{\"@type\": \"t/google.rpc.RetryInfo\", \"retryDelay\": \"1.05s\"}]}",
      "{\"code\": 13, \"details\": [{\"@type\": \"t/google.rpc.DebugInfo\", \"stackEntries\": [\"a\", \"\"], \"detail\": "
      "\"d\"}, {\"@type\": \"t/google.rpc.ErrorInfo\", \"base64\": \"//8=\"}]}",
      "{\"code\": 2, \"metadata\": {\"grpc-status-details-bin\": \"//8=\"}}",
      /* Fields that have their default value, and fields in another order than that of their numbers. */
      "{\"code\": 3, \"details\": [{\"@type\": \"t/google.rpc.BadRequest\", \"fieldViolations\": [{\"field\": \"\"}]}, "
      "{\"@type\": \"t/google.rpc.ErrorInfo\", \"metadata\": {\"\": \"\"}, \"domain\": \"d\", \"reason\": \"r\"}]}",
      "{\"code\": 8, \"details\": [{\"@type\": \"t/google.rpc.QuotaFailure\", \"violations\": [{\"quotaValue\": 0}]}]}",
      /* An ErrorInfo whose fields are not in the order of protobuf's encoders, and one with an unknown field. */
      "{\"code\": 2, \"details\": [{\"@type\": \"t/google.rpc.ErrorInfo\", \"base64\": \"EgFkCgFy\"}]}",
      "{\"code\": 2, \"details\": [{\"@type\": \"t/google.rpc.ErrorInfo\", \"base64\": \"CgFymgYBeA==\"}]}",
  };
  for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++) check_round_trip(__FILE__, __LINE__, right[i]);

  penstock_status *status = NULL;
  REQUIRE_OK(penstock_status_from_json(right[4], &status, NULL));
  const void *value = NULL;
  size_t length = 0;
  char *json = NULL;
  OK(penstock_status_detail_find(status, "google.rpc.RetryInfo", &value, &length));
  CHECK(length == 9 && memcmp(value, "\x0a\x07\x08\x01\x10\x80\xe1\xeb\x17", 9) == 0);
  OK(penstock_status_json(status, &json));
  CHECK_HAS(json, "-9223372036854775808");
  CHECK_HAS(json, "\"futureQuotaValue\":\"0\"");
  CHECK_HAS(json, "1.05");
  penstock_free(json);
  penstock_status_release(status);
  status = NULL;
  /* The details can be given as grpc-status-details-bin alone: CAkSAm5vGg8KCHQvYWNtZS5YEgNhYmM= is `whole`. */
  REQUIRE_OK(penstock_status_from_json("{\"code\": 9, \"message\": \"no\", \"metadata\": {\"grpc-status-details-bin\": "
                                       "[\"CAkSAm5vGg8KCHQvYWNtZS5YEgNhYmM=\"]}}",
                                       &status, NULL));
  CHECK_ENCODED(status, whole);
  penstock_status_release(status);
}

/* Makes a status whose RetryInfo has a google.protobuf.Duration that is given as text: up to 10,000 years in seconds,
 * positive or negative, and nanoseconds of the same sign. */
static penstock_result delay(const char *text, penstock_status **status, penstock_error **error) {
  char json[256];
  snprintf(json, sizeof(json),
           "{\"code\": 4, \"details\": [{\"@type\": \"t/google.rpc.RetryInfo\", \"retryDelay\": \"%s\"}]}", text);
  return penstock_status_from_json(json, status, error);
}

TEST(status_durations_in_range) {
  static const struct {
    const char *text, *shown, *encoded;
  } right[] = {
      {"0s", "0s", ""},
      {"-0s", "0s", ""},
      {"0.5s", "0.5s", "\x10\x80\xca\xb5\xee\x01"},
      {"-0.5s", "-0.5s", "\x10\x80\xb6\xca\x91\xfe\xff\xff\xff\xff\x01"},
      {"-0.000000001s", "-0.000000001s", "\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"},
      {"-3.5s", "-3.5s", "\x08\xfd\xff\xff\xff\xff\xff\xff\xff\xff\x01\x10\x80\xb6\xca\x91\xfe\xff\xff\xff\xff\x01"},
      {"3.000000001s", "3.000000001s", "\x08\x03\x10\x01"},
      {"315576000000.999999999s", "315576000000.999999999s", NULL},
      {"-315576000000.999999999s", "-315576000000.999999999s", NULL},
  };
  for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++) {
    penstock_status *status = NULL;
    if (!CHECK_RESULT(delay(right[i].text, &status, NULL), PENSTOCK_OK)) printf("  %s\n", right[i].text);
    const void *value = NULL;
    size_t length = 0;
    if (OK(penstock_status_detail_find(status, "google.rpc.RetryInfo", &value, &length)) && right[i].encoded) {
      size_t size = strlen(right[i].encoded);
      CHECK(length == size + 2 && memcmp((const char *)value + 2, right[i].encoded, size) == 0);
    }
    char *json = NULL, shown[64];
    OK(penstock_status_json(status, &json));
    snprintf(shown, sizeof(shown), "\"retryDelay\":\"%s\"", right[i].shown);
    CHECK_HAS(json, shown);
    penstock_free(json);
    penstock_status_release(status);
  }
}

TEST(status_durations_out_of_range) {
  static const char *const wrong[] = {
      "",
      "s",
      "-s",
      ".5s",
      "-.5s",
      "1.s",
      "1.0000000000s",
      "1.-5s",
      "--1s",
      "+1s",
      "1.5S",
      "1.5",
      "1e3s",
      "315576000001s",
      "-315576000001s",
      "9223372036854775807s",
      "1.2.3s",
      "1 s",
      " 1s",
      "0x1s",
      "1.+5s",
      "-315576000001.5s",
      "-9223372036854775808s",
      "9223372036854775808s",
  };
  for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
    penstock_status *status = NULL;
    penstock_error *error = NULL;
    if (!CHECK_RESULT(delay(wrong[i], &status, &error), PENSTOCK_E_INVALID_JSON)) printf("  \"%s\"\n", wrong[i]);
    CHECK(status == NULL);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, "$.details[0].retryDelay", "duration");
  }
  /* A detail whose duration is out of range is written as bytes: too many seconds, too many nanoseconds, or both with
   * different signs. */
  static const struct {
    const char *bytes;
    size_t size;
  } bytes[] = {
      {"\x0a\x07\x08\x81\xbc\xae\xce\x97\x09", 9},
      {"\x0a\x06\x10\x80\x94\xeb\xdc\x03", 8},
      {"\x0a\x0d\x08\x01\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 15},
      {"\x0a\x0d\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x10\x01", 15},
  };
  for (size_t i = 0; i < sizeof(bytes) / sizeof(*bytes); i++) {
    penstock_status *status = new_status(4, "");
    char *json = NULL;
    OK(penstock_status_add_detail(status, "t/google.rpc.RetryInfo", bytes[i].bytes, bytes[i].size));
    OK(penstock_status_json(status, &json));
    CHECK_HAS(json, "base64");
    CHECK(json && !strstr(json, "retryDelay"));
    penstock_free(json);
    penstock_status_release(status);
  }
}

TEST(status_from_json_is_strict) {
  static const struct {
    const char *json, *path, *part;
  } wrong[] = {
      {"", NULL, NULL},
      {"[]", "$", "an object"},
      {"{}", "$", "missing"},
      {"{\"code\": 17}", "$.code", "0 to 16"},
      {"{\"code\": \"5\"}", "$.code", "0 to 16"},
      {"{\"name\": \"NOTHING\"}", "$.name", "name"},
      {"{\"code\": 4, \"name\": \"NOT_FOUND\"}", "$", "different codes"},
      {"{\"code\": 4, \"message\": 1}", "$.message", "a string"},
      {"{\"code\": 4, \"msg\": \"\"}", "$.msg", "unknown key"},
      {"{\"code\": 4, \"metadata\": {\"grpc-status\": \"1\"}}", "$.metadata.grpc-status", "reserved"},
      {"{\"code\": 4, \"metadata\": {\"grpc-status-details-bin\": \"!\"}}", "$.metadata.grpc-status-details-bin",
       "base64"},
      {"{\"code\": 4, \"details\": {}}", "$.details", "an array"},
      {"{\"code\": 4, \"details\": [1]}", "$.details[0]", "an object"},
      {"{\"code\": 4, \"details\": [{\"base64\": \"\"}]}", "$.details[0]", "@type"},
      {"{\"code\": 4, \"details\": [{\"@type\": \"t/a.B\"}]}", "$.details[0]", "base64"},
      {"{\"code\": 4, \"details\": [{\"@type\": \"t/a.B\", \"base64\": \"%\"}]}", "$.details[0].base64", "base64"},
      {"{\"code\": 4, \"details\": [{\"@type\": \"t/a.B\", \"base64\": \"\", \"x\": 1}]}", "$.details[0].x",
       "unknown key"},
      {"{\"code\": 4, \"details\": [{\"@type\": \"t/google.rpc.RetryInfo\", \"retryDelay\": \"1\"}]}",
       "$.details[0].retryDelay", "duration"},
      {"{\"code\": 4, \"details\": [{\"@type\": \"t/google.rpc.RetryInfo\", \"retryDelay\": \"1.-5s\"}]}",
       "$.details[0].retryDelay", "duration"},
      {"{\"code\": 4, \"details\": [{\"@type\": \"t/google.rpc.Help\", \"links\": [{\"urls\": \"\"}]}]}",
       "$.details[0].links[0].urls", "unknown key"},
      {"{\"code\": 4, \"details\": [{\"@type\": \"t/google.rpc.QuotaFailure\", \"violations\": [{\"quotaValue\": "
       "\"9223372036854775808\"}]}]}",
       "$.details[0].violations[0].quotaValue", "64-bit"},
  };
  for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
    penstock_status *status = NULL;
    penstock_error *error = NULL;
    if (!CHECK_RESULT(penstock_status_from_json(wrong[i].json, &status, &error), PENSTOCK_E_INVALID_JSON)) {
      printf("  %s\n", wrong[i].json);
    }
    CHECK(status == NULL);
    CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, wrong[i].path, wrong[i].part);
  }
}

/* A hop changes the details that the server has sent: no old bytes remain. */
static int32_t change_details(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event != PENSTOCK_EVENT_STATUS) return PENSTOCK_NEXT;
  penstock_status *status = penstock_hop_status(hop);
  const void *value = NULL;
  size_t length = 0;
  OK(penstock_metadata_get(penstock_hop_metadata(hop), "grpc-status-details-bin", 0, &value, &length));
  CHECK(length == sizeof(whole) - 1 && memcmp(value, whole, length) == 0);
  OK(penstock_status_set_code(status, PENSTOCK_STATUS_NOT_FOUND));
  OK(penstock_status_set_detail(status, "acme.X", "xyz", 3));
  OK(penstock_status_add_detail(status, "t/acme.Mine", "1", 1));
  return PENSTOCK_NEXT;
}
TEST(status_details_changed_by_a_hop) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "details", change_details, NULL);
  probe_add(&probe, channel, 0);
  penstock_call_options *options = NULL;
  REQUIRE_OK(penstock_call_options_new("{\"metadata\": {\"x-status\": \"9\", \"x-message\": \"no\", \"x-details-bin\": "
                                       "\"CAkSAm5vGg8KCHQvYWNtZS5YEgNhYmM=\"}}",
                                       &options, NULL));
  penstock_reply *reply = NULL;
  REQUIRE_OK(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL));
  static const char changed[] = "\x08\x05\x12\x02no\x1a\x0f\x0a\x08t/acme.X\x12\x03"
                                "xyz\x1a\x10\x0a\x0bt/acme.Mine\x12\x01"
                                "1";
  const void *value = NULL;
  size_t length = 0;
  OK(penstock_metadata_get(penstock_reply_trailers(reply), "grpc-status-details-bin", 0, &value, &length));
  CHECK(length == sizeof(changed) - 1 && memcmp(value, changed, length) == 0);
  CHECK_RESULT(penstock_metadata_get(penstock_reply_trailers(reply), "grpc-status-details-bin", 1, &value, &length),
               PENSTOCK_E_NOT_FOUND);
  CHECK_HAS(penstock_reply_status_json(reply), "eHl6");
  penstock_status *final = (penstock_status *)penstock_reply_status(reply);
  CHECK_RESULT(penstock_status_set_detail(final, "acme.X", "", 0), PENSTOCK_E_STATE);
  CHECK_RESULT(penstock_status_remove_detail(final, "acme.X"), PENSTOCK_E_STATE);
  penstock_reply_release(reply);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}
