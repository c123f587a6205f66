/* The details of a status in JSON: the messages of google/rpc/error_details.proto with each of their fields. */
#include "test.h"

#define TYPE "type.googleapis.com/google.rpc."

static penstock_status *status_of(const char *json) {
  penstock_status *status = NULL;
  penstock_error *error = NULL;
  if (!OK(penstock_status_from_json(json, &status, &error))) printf("  %s\n", penstock_error_message(error));
  penstock_error_release(error);
  return status;
}

/* Checks that the status has one detail of these bytes, in hexadecimal digits. */
static void check_detail(const penstock_status *status, const char *type, const char *hex) {
  const char *url = NULL;
  const void *value = NULL;
  size_t length = 0;
  char found[1024] = "";
  CHECK_INT(penstock_status_detail_count(status), 1);
  if (!OK(penstock_status_detail_at(status, 0, &url, &value, &length))) return;
  CHECK(strncmp(url, TYPE, strlen(TYPE)) == 0);
  CHECK_STR(url + strlen(TYPE), type);
  for (size_t i = 0; i < length; i++) snprintf(found + 2 * i, 3, "%02x", ((const uint8_t *)value)[i]);
  CHECK_STR(found, hex);
}

/* `fields`: of the message, in JSON. `shown`: as the library writes them; NULL: as they are. `bytes`: those that Google's
 * protobuf encodes. */
static const struct {
  const char *type, *fields, *shown, *bytes;
} rows[] = {
    {"ErrorInfo", "\"reason\":\"R\",\"domain\":\"D\",\"metadata\":{\"a\":\"1\",\"b\":\"\"}", NULL,
     "0a01521201441a060a01611201311a050a01621200"},
    {"ErrorInfo", "\"domain\":\"D\"", NULL, "120144"},
    {"ErrorInfo", "", NULL, ""},
    {"RetryInfo", "\"retryDelay\":\"1.5s\"", NULL, "0a0808011080cab5ee01"},
    {"RetryInfo", "\"retryDelay\":\"0s\"", NULL, "0a00"},
    {"RetryInfo", "\"retryDelay\":\"-1.5s\"", NULL, "0a1608ffffffffffffffffff011080b6ca91feffffffff01"},
    {"RetryInfo", "\"retryDelay\":\"-0.5s\"", NULL, "0a0b1080b6ca91feffffffff01"},
    {"RetryInfo", "\"retryDelay\":\"0.000000001s\"", NULL, "0a021001"},
    {"RetryInfo", "\"retryDelay\":\"3.000000010s\"", "\"retryDelay\":\"3.00000001s\"", "0a040803100a"},
    {"RetryInfo", "\"retryDelay\":\"315576000000s\"", NULL, "0a070880bcaece9709"},
    {"RetryInfo", "\"retryDelay\":\"-315576000000s\"", NULL, "0a0b0880c4d1b1e8f6ffffff01"},
    {"RetryInfo", "\"retryDelay\":\"1.123s\"", NULL, "0a07080110c0a9d33a"},
    {"RetryInfo", "\"retryDelay\":\"1.123456s\"", NULL, "0a070801108094ef3a"},
    {"RetryInfo", "\"retryDelay\":\"7.100s\"", "\"retryDelay\":\"7.1s\"", "0a0708071080c2d72f"},
    {"RetryInfo", "\"retryDelay\":\"7.0s\"", "\"retryDelay\":\"7s\"", "0a020807"},
    {"DebugInfo", "\"stackEntries\":[\"a\",\"\",\"b\"],\"detail\":\"D\"", NULL, "0a01610a000a0162120144"},
    {"QuotaFailure",
     ("\"violations\":[{\"subject\":\"S\",\"description\":\"D\",\"apiService\":\"A\",\"quotaMetric\":\"M\","
      "\"quotaId\":\"I\",\"quotaDimensions\":{\"x\":\"y\"},\"quotaValue\":\"9223372036854775807\","
      "\"futureQuotaValue\":\"-9223372036854775808\"},{\"quotaValue\":\"0\",\"futureQuotaValue\":\"0\"},"
      "{\"quotaValue\":\"12\"},{}]"),
     ("\"violations\":[{\"subject\":\"S\",\"description\":\"D\",\"apiService\":\"A\",\"quotaMetric\":\"M\","
      "\"quotaId\":\"I\",\"quotaDimensions\":{\"x\":\"y\"},\"quotaValue\":\"9223372036854775807\","
      "\"futureQuotaValue\":\"-9223372036854775808\"},{\"futureQuotaValue\":\"0\"},{\"quotaValue\":\"12\"},"
      "{}]"),
     ("0a2c0a01531201441a014122014d2a014932060a017812017938ffffffffffffffff7f40808080808080808080010a024000"
      "0a02380c0a00")},
    {"QuotaFailure", "\"violations\":[{\"quotaValue\":-5,\"futureQuotaValue\":\"007\"}]",
     "\"violations\":[{\"quotaValue\":\"-5\",\"futureQuotaValue\":\"7\"}]", "0a0d38fbffffffffffffffff014007"},
    {"PreconditionFailure",
     "\"violations\":[{\"type\":\"T\",\"subject\":\"S\",\"description\":\"D\"},{\"subject\":\"only\"}]", NULL,
     "0a090a01541201531a01440a0612046f6e6c79"},
    {"BadRequest",
     ("\"fieldViolations\":[{\"field\":\"F\",\"description\":\"D\",\"reason\":\"R\","
      "\"localizedMessage\":{\"locale\":\"en\",\"message\":\"M\"}},{\"localizedMessage\":{}}]"),
     NULL, "0a120a01461201441a015222070a02656e12014d0a022200"},
    {"RequestInfo", "\"requestId\":\"I\",\"servingData\":\"S\"", NULL, "0a0149120153"},
    {"ResourceInfo", "\"resourceType\":\"T\",\"resourceName\":\"N\",\"owner\":\"O\",\"description\":\"D\"", NULL,
     "0a015412014e1a014f220144"},
    {"Help", "\"links\":[{\"description\":\"D\",\"url\":\"U\"},{\"url\":\"V\"}]", NULL, "0a060a01441201550a03120156"},
    {"LocalizedMessage", "\"locale\":\"de\",\"message\":\"Gr\\u00fc\\u00dfe\"",
     "\"locale\":\"de\",\"message\":\"Grüße\"", "0a02646512074772c3bcc39f65"},
};

TEST(status_details_in_json) {
  for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
    char json[1024], expected[1024], *written = NULL;
    const char *shown = rows[i].shown ? rows[i].shown : rows[i].fields;
    snprintf(json, sizeof(json), "{\"code\":3,\"details\":[{\"@type\":\"" TYPE "%s\"%s%s}]}", rows[i].type,
             *rows[i].fields ? "," : "", rows[i].fields);
    snprintf(
        expected, sizeof(expected),
        "{\"code\":3,\"name\":\"INVALID_ARGUMENT\",\"message\":\"\",\"metadata\":{\"grpc-status-details-bin\":[\"");
    penstock_status *status = status_of(json);
    if (!status) continue;
    check_detail(status, rows[i].type, rows[i].bytes);
    OK(penstock_status_json(status, &written));
    CHECK(strncmp(written, expected, strlen(expected)) == 0);
    snprintf(expected, sizeof(expected), "\"]},\"details\":[{\"@type\":\"" TYPE "%s\"%s%s}]}", rows[i].type,
             *shown ? "," : "", shown);
    const char *end = strstr(written, "\"]},\"details\"");
    CHECK_STR(end, expected);
    penstock_status *again = status_of(written);
    check_detail(again, rows[i].type, rows[i].bytes);
    penstock_free(written);
    penstock_status_release(status);
    penstock_status_release(again);
  }
}

/* Details whose type the library does not know, or whose bytes it can't read, are written as they are. */
TEST(status_details_as_bytes) {
  static const struct {
    const char *type, *value;
    size_t length;
    const char *shown;
  } bytes[] = {
      {"x/y.Z", "", 0, "{\"@type\":\"x/y.Z\",\"base64\":\"\"}"},
      {"x/y.Z", "\0\377", 2, "{\"@type\":\"x/y.Z\",\"base64\":\"AP8=\"}"},
      {TYPE "ErrorInfo", "\377", 1, "{\"@type\":\"" TYPE "ErrorInfo\",\"base64\":\"/w==\"}"},
      {TYPE "ErrorInfo", "\012\005a", 3, "{\"@type\":\"" TYPE "ErrorInfo\",\"base64\":\"CgVh\"}"},
      {TYPE "Nothing", "\012\001a", 3, "{\"@type\":\"" TYPE "Nothing\",\"base64\":\"CgFh\"}"},
      {TYPE "ErrorInfo", "\012\001a", 3, "{\"@type\":\"" TYPE "ErrorInfo\",\"reason\":\"a\"}"},
  };
  for (size_t i = 0; i < sizeof(bytes) / sizeof(*bytes); i++) {
    penstock_status *status = NULL;
    char *json = NULL;
    OK(penstock_status_new(PENSTOCK_STATUS_ABORTED, NULL, &status));
    OK(penstock_status_add_detail(status, bytes[i].type, bytes[i].value, bytes[i].length));
    OK(penstock_status_json(status, &json));
    CHECK_HAS(json, bytes[i].shown);
    penstock_status *again = status_of(json);
    if (!again) continue;
    const char *url = NULL;
    const void *value = NULL;
    size_t length = 0;
    OK(penstock_status_detail_at(again, 0, &url, &value, &length));
    CHECK_STR(url, bytes[i].type);
    CHECK(length == bytes[i].length && memcmp(value, bytes[i].value, length) == 0);
    penstock_free(json);
    penstock_status_release(status);
    penstock_status_release(again);
  }
}

/* "CAoaCAoDYS9iEgEB" is a google.rpc.Status with the code 10 and a detail of the type "a/b"; "CAo=" has no detail, and "/w=="
 * is none. */
#define BIN(value) "\"metadata\": {\"grpc-status-details-bin\": " value "}"
#define OWN        "\"details\": [{\"@type\": \"a/c\", \"base64\": \"Ag==\"}]"
TEST(status_details_in_two_ways) {
  static const struct {
    const char *json, *types;
  } cases[] = {
      {"{\"code\": 10, " BIN("\"CAoaCAoDYS9iEgEB\"") "}", "a/b "},
      {"{\"code\": 10, " BIN("[\"CAoaCAoDYS9iEgEB\"]") "}", "a/b "},
      {"{\"code\": 10, " BIN("[\"CAoaCAoDYS9iEgEB\", \"CAo=\"]") "}", "a/b "},
      {"{\"code\": 10, " BIN("\"CAo=\"") "}", ""},
      {"{\"code\": 10, " OWN "}", "a/c "},
      {"{\"code\": 10, " OWN ", " BIN("\"CAoaCAoDYS9iEgEB\"") "}", "a/c "},
      {"{\"code\": 10, " BIN("\"CAoaCAoDYS9iEgEB\"") ", " OWN "}", "a/c "},
      {"{\"code\": 10, "
       "\"details\": [], " BIN("\"CAoaCAoDYS9iEgEB\"") ", \"details_error\": \"x\"}",
       "a/b "},
      {"{\"code\": 10, \"details\": [{\"@type\": \"a/b\", \"base64\": \"AQ==\"}], " BIN("\"CAoaCAoDYS9iEgEB\"") "}",
       "a/b "},
      {"{\"code\": 10, \"details\": [], " BIN("\"CAoaCAoDYS9iEgEB\"") "}", ""},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
    penstock_status *status = status_of(cases[i].json);
    if (!status) continue;
    char types[64] = "";
    const char *url = NULL;
    const void *value = NULL;
    size_t length = 0;
    for (size_t k = 0; penstock_status_detail_at(status, k, &url, &value, &length) == PENSTOCK_OK; k++) {
      CHECK_INT(length, 1);
      strcat(strcat(types, url), " ");
    }
    if (!CHECK_STR(types, cases[i].types)) printf("  %s\n", cases[i].json);
    penstock_status_release(status);
  }
}

/* Each member of the JSON of a status is read, and written again. */
TEST(status_members_in_json) {
  static const char *const members[] = {
      "\"details\":[]",
      "\"details\":[],\"retry_pushback_ms\":-1",
      "\"details\":[],\"retry_pushback_ms\":0",
      "\"details\":[],\"retry_pushback_ms\":2147483647",
      "\"details\":[],\"body\":\"text\"",
      "\"details\":[],\"body\":\"text\",\"retry_pushback_ms\":7",
  };
  for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++) {
    char json[256], *written = NULL;
    snprintf(json, sizeof(json),
             "{\"code\":14,\"name\":\"UNAVAILABLE\",\"message\":\"m\",\"metadata\":{\"a\":[\"b\",\"c\"]},%s}",
             members[i]);
    penstock_status *status = status_of(json);
    if (!status) continue;
    OK(penstock_status_json(status, &written));
    CHECK_STR(written, json);
    penstock_free(written);
    penstock_status_release(status);
  }
  char *written = NULL;
  penstock_status *status = status_of("{\"code\": 1, \"body\": \"\", " BIN("\"/w==\"") "}");
  OK(penstock_status_json(status, &written));
  CHECK_HAS(written,
            "\"details\":[],\"details_error\":\"grpc-status-details-bin does not decode as google.rpc.Status\"}");
  penstock_free(written);
  penstock_status_release(status);
}
