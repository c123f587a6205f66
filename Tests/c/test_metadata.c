/* metadata.h: golden tests of the multimap and of its JSON. */
#include "test.h"

static penstock_metadata *from_json(const char *json) {
  penstock_metadata *metadata = NULL;
  penstock_error *error = NULL;
  if (!OK(penstock_metadata_new(&metadata))) return NULL;
  if (!OK(penstock_metadata_set_json(metadata, json, &error))) {
    printf("  %s: %s\n", json, error ? penstock_error_json(error) : "no error");
    penstock_error_release(error);
  }
  return metadata;
}

static void check_whole(const char *file, int line, const penstock_metadata *metadata, const char *expected) {
  char *json = NULL;
  if (check_result(file, line, "penstock_metadata_json", penstock_metadata_json(metadata, &json), PENSTOCK_OK)) {
    check_json(file, line, "json", json, expected);
    penstock_free(json);
  }
}
#define CHECK_WHOLE(metadata, expected) check_whole(__FILE__, __LINE__, (metadata), (expected))

/* Checks that value number `index` of `name` has these `bytes`. */
static void check_value(int line, const penstock_metadata *metadata, const char *name, size_t index, const void *bytes,
                        size_t expected) {
  const void *value = NULL;
  size_t length = 77;
  if (!check_result(__FILE__, line, name, penstock_metadata_get(metadata, name, index, &value, &length), PENSTOCK_OK)) {
    return;
  }
  check_int(__FILE__, line, "length", (int64_t)length, (int64_t)expected);
  if (length != expected || memcmp(value, bytes, expected) != 0) test_failed(__FILE__, line, "wrong bytes");
  if (((const char *)value)[length] != 0) test_failed(__FILE__, line, "no NUL after the value");
}
#define CHECK_VALUE(metadata, name, index, text)                                                                       \
  check_value(__LINE__, (metadata), (name), (index), (text), sizeof(text) - 1)

TEST(metadata_starts_empty) {
  penstock_metadata *metadata = NULL;
  REQUIRE_OK(penstock_metadata_new(&metadata));
  CHECK_INT(penstock_metadata_count(metadata), 0);
  CHECK_WHOLE(metadata, "{}");
  const void *value = NULL;
  size_t length = 0;
  const char *name = NULL;
  CHECK_RESULT(penstock_metadata_get(metadata, "a", 0, &value, &length), PENSTOCK_E_NOT_FOUND);
  CHECK_RESULT(penstock_metadata_at(metadata, 0, &name, &value, &length), PENSTOCK_E_NOT_FOUND);
  CHECK_RESULT(penstock_metadata_remove(metadata, "a"), PENSTOCK_E_NOT_FOUND);
  penstock_metadata_release(metadata);
}

TEST(metadata_keeps_order_and_repeats) {
  penstock_metadata *metadata = NULL;
  REQUIRE_OK(penstock_metadata_new(&metadata));
  OK(penstock_metadata_add(metadata, "b", "1"));
  OK(penstock_metadata_add(metadata, "a", "2"));
  OK(penstock_metadata_add(metadata, "b", "3"));
  OK(penstock_metadata_add(metadata, "b", "1"));
  CHECK_INT(penstock_metadata_count(metadata), 4);
  static const char *const names[] = {"b", "a", "b", "b"}, *const values[] = {"1", "2", "3", "1"};
  for (size_t i = 0; i < 4; i++) {
    const char *name = NULL;
    const void *value = NULL;
    size_t length = 0;
    if (!OK(penstock_metadata_at(metadata, i, &name, &value, &length))) continue;
    CHECK_STR(name, names[i]);
    CHECK_STR((const char *)value, values[i]);
    CHECK_INT(length, 1);
  }
  CHECK_VALUE(metadata, "b", 0, "1");
  CHECK_VALUE(metadata, "b", 1, "3");
  CHECK_VALUE(metadata, "b", 2, "1");
  const void *value;
  CHECK_RESULT(penstock_metadata_get(metadata, "b", 3, &value, NULL), PENSTOCK_E_NOT_FOUND);
  OK(penstock_metadata_get(metadata, "a", 0, &value, NULL));
  CHECK_WHOLE(metadata, "{\"b\":[\"1\",\"3\",\"1\"],\"a\":[\"2\"]}");
  OK(penstock_metadata_set(metadata, "b", "only"));
  CHECK_INT(penstock_metadata_count(metadata), 2);
  CHECK_VALUE(metadata, "b", 0, "only");
  OK(penstock_metadata_remove(metadata, "b"));
  CHECK_RESULT(penstock_metadata_remove(metadata, "b"), PENSTOCK_E_NOT_FOUND);
  CHECK_WHOLE(metadata, "{\"a\":[\"2\"]}");
  penstock_metadata_release(metadata);
}

TEST(metadata_lowers_names) {
  penstock_metadata *metadata = NULL;
  REQUIRE_OK(penstock_metadata_new(&metadata));
  OK(penstock_metadata_set(metadata, "X-Request-ID", "1"));
  OK(penstock_metadata_add(metadata, "x-REQUEST-id", "2"));
  CHECK_VALUE(metadata, "x-request-id", 0, "1");
  CHECK_VALUE(metadata, "X-request-Id", 1, "2");
  CHECK_WHOLE(metadata, "{\"x-request-id\":[\"1\",\"2\"]}");
  OK(penstock_metadata_remove(metadata, "X-REQUEST-ID"));
  CHECK_INT(penstock_metadata_count(metadata), 0);
  penstock_metadata_release(metadata);
}

/* gRPC over HTTP/2: Header-Name is 1*( %x30-39 / %x61-7A / "_" / "-" / "."). */
TEST(metadata_refuses_malformed_names) {
  static const char *const wrong[] = {"",    "a b",    "a:",  ":a", "\xc3\xa9", "a\x7f",
                                      "a\n", "a\r\nb", "a/b", "a@", "\x01",     "-bin "};
  static const char *const right[] = {"a", "0", "a-b", "a_b", "a.b", "-", "_", ".", "x-bin", "1-2-3"};
  penstock_metadata *metadata = NULL;
  REQUIRE_OK(penstock_metadata_new(&metadata));
  for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
    if (!CHECK_RESULT(penstock_metadata_set(metadata, wrong[i], "v"), PENSTOCK_E_INVALID_ARGUMENT))
      printf("  \"%s\"\n", wrong[i]);
    CHECK_RESULT(penstock_metadata_add(metadata, wrong[i], "v"), PENSTOCK_E_INVALID_ARGUMENT);
    CHECK_RESULT(penstock_metadata_set_bytes(metadata, wrong[i], "v", 1), PENSTOCK_E_INVALID_ARGUMENT);
    CHECK_RESULT(penstock_metadata_add_bytes(metadata, wrong[i], "v", 1), PENSTOCK_E_INVALID_ARGUMENT);
  }
  CHECK_INT(penstock_metadata_count(metadata), 0);
  for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++) {
    if (!OK(penstock_metadata_set(metadata, right[i], "v"))) printf("  \"%s\"\n", right[i]);
  }
  penstock_metadata_release(metadata);
}

/* Law 5: the names that the protocol uses are refused. */
TEST(metadata_refuses_reserved_names) {
  static const char *const reserved[] = {":path",
                                         ":authority",
                                         "grpc-timeout",
                                         "grpc-encoding",
                                         "grpc-status",
                                         "grpc-message",
                                         "grpc-status-details-bin",
                                         "grpc-accept-encoding",
                                         "GRPC-Foo",
                                         "te",
                                         "TE",
                                         "content-type",
                                         "Content-Type",
                                         "connection",
                                         "keep-alive",
                                         "proxy-connection",
                                         "transfer-encoding",
                                         "upgrade"};
  penstock_metadata *metadata = NULL;
  REQUIRE_OK(penstock_metadata_new(&metadata));
  for (size_t i = 0; i < sizeof(reserved) / sizeof(*reserved); i++) {
    if (!CHECK_RESULT(penstock_metadata_set(metadata, reserved[i], "v"), PENSTOCK_E_INVALID_ARGUMENT)) {
      printf("  \"%s\"\n", reserved[i]);
    }
    CHECK_RESULT(penstock_metadata_add(metadata, reserved[i], "v"), PENSTOCK_E_INVALID_ARGUMENT);
    char json[128];
    penstock_error *error = NULL;
    snprintf(json, sizeof(json), "{\"%s\": \"v\"}", reserved[i]);
    CHECK(penstock_metadata_set_json(metadata, json, &error) != PENSTOCK_OK);
    CHECK(error != NULL);
    penstock_error_release(error);
  }
  CHECK_INT(penstock_metadata_count(metadata), 0);
  penstock_metadata_release(metadata);
}

/* ASCII-Value is 1*( %x20-%x7E ), without spaces at its ends. */
TEST(metadata_checks_text_values) {
  static const char *const wrong[] = {"\x01", "a\nb", "a\r\nx: y", "\x7f", "\xc3\xa9", "tab\t"};
  penstock_metadata *metadata = NULL;
  REQUIRE_OK(penstock_metadata_new(&metadata));
  for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
    CHECK_RESULT(penstock_metadata_set(metadata, "a", wrong[i]), PENSTOCK_E_INVALID_ARGUMENT);
    CHECK_RESULT(penstock_metadata_add(metadata, "a", wrong[i]), PENSTOCK_E_INVALID_ARGUMENT);
    CHECK_RESULT(penstock_metadata_add_bytes(metadata, "a", wrong[i], strlen(wrong[i])), PENSTOCK_E_INVALID_ARGUMENT);
  }
  CHECK_RESULT(penstock_metadata_set_bytes(metadata, "a", "x\0y", 3), PENSTOCK_E_INVALID_ARGUMENT);
  CHECK_INT(penstock_metadata_count(metadata), 0);
  char all[96];
  for (int c = 0x21; c <= 0x7e; c++) all[c - 0x21] = (char)c;
  all[0x7e - 0x21 + 1] = 0;
  OK(penstock_metadata_set(metadata, "a", all));
  const void *value = NULL;
  OK(penstock_metadata_get(metadata, "a", 0, &value, NULL));
  CHECK_STR((const char *)value, all);
  OK(penstock_metadata_set(metadata, "a", "in the middle"));
  penstock_metadata_release(metadata);
}

TEST(metadata_binary_values) {
  penstock_metadata *metadata = NULL;
  REQUIRE_OK(penstock_metadata_new(&metadata));
  unsigned char all[256];
  for (int i = 0; i < 256; i++) all[i] = (unsigned char)i;
  OK(penstock_metadata_set_bytes(metadata, "all-bin", all, sizeof(all)));
  check_value(__LINE__, metadata, "all-bin", 0, all, sizeof(all));
  OK(penstock_metadata_remove(metadata, "all-bin"));
  OK(penstock_metadata_add_bytes(metadata, "k-bin", "\0\1", 2));
  OK(penstock_metadata_add_bytes(metadata, "k-bin", "\xff", 1));
  OK(penstock_metadata_add_bytes(metadata, "k-bin", NULL, 0));
  OK(penstock_metadata_add(metadata, "k-bin", "abc"));
  CHECK_VALUE(metadata, "k-bin", 0, "\0\1");
  CHECK_VALUE(metadata, "k-bin", 1, "\xff");
  CHECK_VALUE(metadata, "k-bin", 2, "");
  CHECK_VALUE(metadata, "k-bin", 3, "abc");
  char *json = NULL;
  if (OK(penstock_metadata_json(metadata, &json))) {
    CHECK_JSON(json, "{\"k-bin\":[\"AAE=\",\"/w==\",\"\",\"YWJj\"]}");
    penstock_metadata *copy = from_json(json);
    CHECK_VALUE(copy, "k-bin", 0, "\0\1");
    CHECK_VALUE(copy, "k-bin", 1, "\xff");
    CHECK_VALUE(copy, "k-bin", 3, "abc");
    penstock_metadata_release(copy);
    penstock_free(json);
  }
  CHECK_RESULT(penstock_metadata_set_bytes(metadata, "k-bin", NULL, 1), PENSTOCK_E_INVALID_ARGUMENT);
  penstock_metadata_release(metadata);
}

TEST(metadata_json_input) {
  penstock_metadata *metadata = from_json("{\"a\": \"bare\", \"b\": [\"1\", \"2\"], \"c\": []}");
  REQUIRE(metadata != NULL);
  CHECK_WHOLE(metadata, "{\"a\":[\"bare\"],\"b\":[\"1\",\"2\"]}");
  OK(penstock_metadata_set_json(metadata, "{}", NULL));
  CHECK_INT(penstock_metadata_count(metadata), 0);
  OK(penstock_metadata_set_json(metadata, " {\"Up-Per\" : \"v\"} ", NULL));
  CHECK_VALUE(metadata, "up-per", 0, "v");
  penstock_metadata_release(metadata);
}

TEST(metadata_json_base64_input) {
  /* Padding is optional; values that were joined by commas are split. */
  penstock_metadata *metadata = from_json("{\"k-bin\": [\"AAE=\", \"AAE\", \"AAE=,/w==\", \"\"]}");
  REQUIRE(metadata != NULL);
  CHECK_WHOLE(metadata, "{\"k-bin\":[\"AAE=\",\"AAE=\",\"AAE=\",\"/w==\",\"\"]}");
  CHECK_VALUE(metadata, "k-bin", 3, "\xff");
  /* A comma in a text value does not divide the value. */
  OK(penstock_metadata_set_json(metadata, "{\"k\": \"a,b\"}", NULL));
  CHECK_VALUE(metadata, "k", 0, "a,b");
  penstock_metadata_release(metadata);
}

TEST(metadata_json_escapes) {
  penstock_metadata *metadata = from_json("{\"k\": \"q\\\"b\\\\s\\/\\u0041\"}");
  REQUIRE(metadata != NULL);
  CHECK_VALUE(metadata, "k", 0, "q\"b\\s/A");
  CHECK_WHOLE(metadata, "{\"k\":[\"q\\\"b\\\\s/A\"]}");
  penstock_metadata_release(metadata);
}

/* Each of these texts is refused; the error names the place of the fault, and nothing is changed. */
TEST(metadata_json_errors) {
  static const struct {
    const char *json;
    const char *part; /* a part of the error's message or path */
  } wrong[] = {
      {"", NULL},
      {"{", NULL},
      {"[]", NULL},
      {"null", NULL},
      {"\"a\"", NULL},
      {"{\"a\": 1}", "a"},
      {"{\"a\": null}", "a"},
      {"{\"a\": {}}", "a"},
      {"{\"a\": [1]}", "a"},
      {"{\"a\": [\"1\", [\"2\"]]}", "1"},
      {"{\"a\": \"x\", \"a\": \"y\"}", "a"},
      {"{\"a\": \"\\n\"}", "a"},
      {"{\"a\": \"\\u00e9\"}", "a"},
      {"{\"a\": \"\\u0000\"}", NULL},
      {"{\"a b\": \"x\"}", "a b"},
      {"{\"\": \"x\"}", NULL},
      {"{\"k-bin\": \"*\"}", "k-bin"},
      {"{\"k-bin\": \"A\"}", "k-bin"},
      {"{\"k-bin\": \"AA=A\"}", "k-bin"},
      {"{\"a\": \"x\"} x", NULL},
      {"{\"a\": \"\xff\"}", NULL},
      {"{'a': 'b'}", NULL},
      {"{\"a\": \"x\",}", NULL},
  };
  penstock_metadata *metadata = from_json("{\"kept\": \"v\"}");
  REQUIRE(metadata != NULL);
  for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
    penstock_error *error = NULL;
    penstock_result result = penstock_metadata_set_json(metadata, wrong[i].json, &error);
    if (!CHECK_RESULT(result, PENSTOCK_E_INVALID_JSON)) printf("  %s\n", wrong[i].json);
    if (error && wrong[i].part) CHECK_HAS(penstock_error_json(error), wrong[i].part);
    if (error) {
      CHECK_HAS(penstock_error_json(error), penstock_result_name(result));
      CHECK(*penstock_error_message(error) != 0);
    } else {
      CHECK(error != NULL);
    }
    penstock_error_release(error);
    CHECK_WHOLE(metadata, "{\"kept\":[\"v\"]}");
  }
  penstock_metadata_release(metadata);
}

TEST(metadata_json_deep_and_large) {
  size_t depth = 100000;
  char *json = malloc(depth * 2 + 16);
  memset(json, '[', depth);
  json[depth] = 0;
  penstock_metadata *metadata = NULL;
  REQUIRE_OK(penstock_metadata_new(&metadata));
  CHECK_RESULT(penstock_metadata_set_json(metadata, json, NULL), PENSTOCK_E_INVALID_JSON);
  char *end = json + sprintf(json, "{\"a\": \"");
  memset(end, 'x', depth);
  strcpy(end + depth, "\"}");
  OK(penstock_metadata_set_json(metadata, json, NULL));
  const void *value = NULL;
  size_t length = 0;
  OK(penstock_metadata_get(metadata, "a", 0, &value, &length));
  CHECK_INT(length, depth);
  penstock_metadata_release(metadata);
  free(json);
}

TEST(metadata_reference_counts) {
  penstock_metadata *metadata = from_json("{\"a\": \"1\"}");
  REQUIRE(metadata != NULL);
  CHECK(penstock_metadata_retain(metadata) == metadata);
  penstock_metadata_release(metadata);
  CHECK_VALUE(metadata, "a", 0, "1");
  penstock_metadata_release(metadata);
}

TEST(metadata_values_live_until_a_change) {
  penstock_metadata *metadata = from_json("{\"a\": \"first\", \"b\": \"second\"}");
  REQUIRE(metadata != NULL);
  const void *a = NULL, *b = NULL;
  OK(penstock_metadata_get(metadata, "a", 0, &a, NULL));
  OK(penstock_metadata_get(metadata, "b", 0, &b, NULL));
  char *json = NULL;
  OK(penstock_metadata_json(metadata, &json));
  penstock_free(json);
  CHECK_STR((const char *)a, "first");
  CHECK_STR((const char *)b, "second");
  /* A value may be set from memory that belongs to the same metadata object. */
  OK(penstock_metadata_set(metadata, "a", (const char *)b));
  CHECK_VALUE(metadata, "a", 0, "second");
  const char *name = NULL;
  OK(penstock_metadata_at(metadata, 1, &name, &a, NULL));
  OK(penstock_metadata_add(metadata, name, (const char *)a));
  CHECK_INT(penstock_metadata_count(metadata), 3);
  penstock_metadata_release(metadata);
}

TEST(metadata_many_entries) {
  penstock_metadata *metadata = NULL;
  REQUIRE_OK(penstock_metadata_new(&metadata));
  for (int i = 0; i < 2000; i++) {
    char name[16], value[16];
    snprintf(name, sizeof(name), "n%d", i % 100);
    snprintf(value, sizeof(value), "%d", i);
    if (!OK(penstock_metadata_add(metadata, name, value))) break;
  }
  CHECK_INT(penstock_metadata_count(metadata), 2000);
  const void *value = NULL;
  OK(penstock_metadata_get(metadata, "n99", 19, &value, NULL));
  CHECK_STR((const char *)value, "1999");
  penstock_metadata_release(metadata);
}

/* An error says which rule was broken, and never the value. */
TEST(metadata_errors_name_the_rule) {
  static const struct {
    const char *json, *rule;
  } cases[] = {
      {"{\"a\": \" s3cret\"}", "$.a: a value may not begin or end with a space"},
      {"{\"a\": [\"1\", \"s3cret \"]}", "$.a[1]: a value may not begin or end with a space"},
      {"{\"a\": \"s3\\tcret\"}", "$.a: a value has visible ASCII and spaces only"},
      {"{\"a\": \"s3cret\\u00e9\"}", "$.a: a value has visible ASCII and spaces only"},
      {"{\"a b\": \"s3cret\"}", "$.a b: a name has letters, digits, \"_\", \"-\" and \".\" only"},
      {"{\"\": \"s3cret\"}", "$.: a name has letters"},
      {"{\"grpc-x\": \"s3cret\"}", "$.grpc-x: a reserved name"},
      {"{\"User-Agent\": \"s3cret\"}", "$.User-Agent: a"},
      {"{\"a-bin\": \"s3cret!\"}", "$.a-bin: malformed base64"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    penstock_metadata *metadata = NULL;
    penstock_error *error = NULL;
    OK(penstock_metadata_new(&metadata));
    CHECK_RESULT(penstock_metadata_set_json(metadata, cases[i].json, &error), PENSTOCK_E_INVALID_JSON);
    CHECK_HAS(penstock_error_message(error), cases[i].rule);
    CHECK(strstr(penstock_error_message(error), "cret") == NULL);
    penstock_error_release(error);
    penstock_metadata_release(metadata);
  }
}
