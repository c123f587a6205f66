/* status.h. */
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
  CHECK_STR(penstock_status_message(status), "no such thing");
  OK(penstock_status_set_code(status, 16));
  CHECK_RESULT(penstock_status_set_code(status, 17), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_RESULT(penstock_status_set_code(status, -1), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_INT(penstock_status_code(status), 16);
  OK(penstock_status_set_message(status, "caf\xc3\xa9 \"q\"\n"));
  CHECK_STR(penstock_status_message(status), "caf\xc3\xa9 \"q\"\n");
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
    CHECK_STR(penstock_status_message(status), cases[i].repaired);
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
  /* One whose bytes are not what its type says keeps them readable. */
  OK(penstock_status_clear_details(status));
  OK(penstock_status_add_detail(status, "type.googleapis.com/google.rpc.ErrorInfo", "\xff\xff", 2));
  REQUIRE_OK(penstock_status_json(status, &json));
  CHECK_HAS(json, "//8=");
  penstock_free(json);
  penstock_status_release(status);
}
