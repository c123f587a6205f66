/* base.h and version.h: names of results, error objects, outputs after a failure, and the version. */
#include "test.h"

TEST(base_result_names) {
  static const char *const names[] = {
      "PENSTOCK_OK",          "PENSTOCK_E_INVALID_ARGUMENT", "PENSTOCK_E_INVALID_JSON",
      "PENSTOCK_E_NO_MEMORY", "PENSTOCK_E_UNSUPPORTED",      "PENSTOCK_E_ALREADY",
      "PENSTOCK_E_GONE",      "PENSTOCK_E_WOULD_BLOCK",      "PENSTOCK_E_WOULD_DEADLOCK",
      "PENSTOCK_E_BUSY",      "PENSTOCK_E_TIMEOUT",          "PENSTOCK_E_INTERRUPTED",
      "PENSTOCK_E_FORKED",    "PENSTOCK_E_CLOSED",           "PENSTOCK_E_NOT_FOUND",
      "PENSTOCK_E_STATE",     "PENSTOCK_E_TOO_LARGE",        "PENSTOCK_E_SYSTEM",
      "PENSTOCK_E_END",
  };
  for (int32_t code = 0; code < 19; code++) CHECK_STR(penstock_result_name(code), names[code]);
  const int32_t unknown[] = {-1, 19, 1000, INT32_MIN, INT32_MAX};
  for (size_t i = 0; i < 5; i++) CHECK_STR(penstock_result_name(unknown[i]), "unknown");
  CHECK(penstock_result_name(3) == penstock_result_name(3));
}

TEST(base_version) {
  CHECK_STR(penstock_version(), PENSTOCK_VERSION);
  CHECK_INT(penstock_version_number(), PENSTOCK_VERSION_NUMBER);
  char text[32];
  int length =
      snprintf(text, sizeof(text), "%d.%d.%d", PENSTOCK_VERSION_MAJOR, PENSTOCK_VERSION_MINOR, PENSTOCK_VERSION_PATCH);
  CHECK(strncmp(PENSTOCK_VERSION, text, (size_t)length) == 0);
  CHECK(PENSTOCK_VERSION[length] == 0 || strcmp(&PENSTOCK_VERSION[length], "-dev") == 0);
}

TEST(base_version_json) {
  char *json = NULL;
  OK(penstock_version_json(&json));
  REQUIRE(json != NULL);
  CHECK_HAS(json, "{\"version\":\"" PENSTOCK_VERSION "\",\"libraries\":{\"openssl\":{\"version\":\"");
  for (const char *const *name = (const char *const[]){"openssl", "nghttp2", "jansson", "zlib", NULL}; *name; name++) {
    char start[64];
    snprintf(start, sizeof(start), "\"%s\":{\"version\":\"", *name);
    const char *found = strstr(json, start);
    REQUIRE(found != NULL);
    int digits = 0, places = 0;
    CHECK(sscanf(found + strlen(start), "%d.%d", &digits, &places) == 2);
  }
  /* This program links the system's libraries; with musl, for which there are none, they are inside. */
#ifdef __GLIBC__
  CHECK(strstr(json, "\"inside\":false") != NULL && strstr(json, "\"inside\":true") == NULL);
#else
  CHECK(strstr(json, "\"inside\":true") != NULL && strstr(json, "\"inside\":false") == NULL);
#endif
  penstock_free(json);
  CHECK_RESULT(penstock_version_json(NULL), PENSTOCK_E_INVALID_ARGUMENT);
}

TEST(base_error_object) {
  penstock_channel *channel = NULL;
  penstock_error *error = NULL;
  CHECK_RESULT(penstock_channel_new("localhost:1", "{\"no_such\": 1}", &channel, &error), PENSTOCK_E_INVALID_JSON);
  CHECK(channel == NULL);
  REQUIRE(error != NULL);
  CHECK_HAS(penstock_error_message(error), "no_such");
  CHECK_HAS(penstock_error_json(error), "\"code\"");
  CHECK_HAS(penstock_error_json(error), "\"message\"");
  CHECK_HAS(penstock_error_json(error), "\"path\"");
  CHECK_HAS(penstock_error_json(error), "PENSTOCK_E_INVALID_JSON");
  penstock_error_release(error);
}

TEST(base_an_error_without_a_path_says_null) {
  penstock_channel *channel = NULL;
  penstock_error *error = NULL;
  CHECK_RESULT(penstock_channel_new(NULL, NULL, &channel, &error), PENSTOCK_E_INVALID_ARGUMENT);
  REQUIRE(error != NULL);
  CHECK_HAS(penstock_error_json(error), "null");
  penstock_error_release(error);
}

TEST(base_outputs_are_untouched_on_failure) {
  penstock_channel *channel = (penstock_channel *)16;
  CHECK_RESULT(penstock_channel_new("localhost:1", "[", &channel, NULL), PENSTOCK_E_INVALID_JSON);
  CHECK(channel == (penstock_channel *)16);
  penstock_runtime *runtime = (penstock_runtime *)16;
  CHECK_RESULT(penstock_runtime_new("[", &runtime, NULL), PENSTOCK_E_INVALID_JSON);
  CHECK(runtime == (penstock_runtime *)16);
  penstock_call_options *options = (penstock_call_options *)16;
  CHECK_RESULT(penstock_call_options_new("[", &options, NULL), PENSTOCK_E_INVALID_JSON);
  CHECK(options == (penstock_call_options *)16);
  penstock_status *status = (penstock_status *)16;
  CHECK_RESULT(penstock_status_new(17, "", &status), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK(status == (penstock_status *)16);
}
