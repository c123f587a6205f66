/* channel.h: the option "service_config" (docs/channel.md). */
#include "test.h"

#define RETRY(fields) "{\"methodConfig\": [{\"retryPolicy\": {" fields "}}]}"
#define BACKOFF       "\"initialBackoff\": \"0.1s\", \"maxBackoff\": \"1s\", \"backoffMultiplier\": 1.5"
#define CODES         "\"retryableStatusCodes\": [14]"
#define RETRY_PATH    "$.service_config.methodConfig[0].retryPolicy"
#define THROTTLE_PATH "$.service_config.retryThrottling"

static const char *const right[] = {
    "{}",
    "{\"unknown\": [1, {\"x\": null}], \"methodConfig\": null, \"loadBalancingConfig\": null}",
    "{\"loadBalancingConfig\": []}",
    "{\"loadBalancingConfig\": [{\"mine\": 3}, {\"round_robin\": {}}, {\"pick_first\": 7}]}",
    "{\"loadBalancingConfig\": [{\"pick_first\": {\"shuffleAddressList\": true, \"more\": 1}}]}",
    "{\"loadBalancingConfig\": [{\"pick_first\": {\"shuffleAddressList\": null}}]}",
    "{\"loadBalancingConfig\": [{\"weighted_round_robin\": {\"blackoutPeriod\": \"1s\"}}]}",
    "{\"loadBalancingConfig\": [{\"static_weighted_round_robin\": {}}], \"loadBalancingPolicy\": 7}",
    "{\"loadBalancingPolicy\": \"ROUND_ROBIN\"}",
    "{\"loadBalancingPolicy\": \"pick_first\"}",
    "{\"loadBalancingPolicy\": \"UNSPECIFIED\", \"loadBalancingConfig\": null}",
    "{\"loadBalancingConfig\": [{\"outlier_detection_experimental\": {\"interval\": \"0.000000001s\", "
    "\"baseEjectionTime\": \"30s\", \"maxEjectionTime\": \"315576000000s\", \"maxEjectionPercent\": \"100\", "
    "\"successRateEjection\": {\"stdevFactor\": 4294967295, \"enforcementPercentage\": 0, \"minimumHosts\": 1, "
    "\"requestVolume\": 1}, \"failurePercentageEjection\": {\"threshold\": 100, \"enforcementPercentage\": 100, "
    "\"minimumHosts\": 1, \"requestVolume\": 1}, \"childPolicy\": [{\"other\": {}}, {\"round_robin\": {}}]}}]}",
    "{\"methodConfig\": [{\"name\": [{\"service\": \"a.B\", \"method\": \"C\"}, {\"service\": \"a.B\"}, {}]}]}",
    "{\"methodConfig\": [{\"name\": [{\"service\": \"a.B\", \"method\": null}]}, {\"name\": []}, {}, {\"name\": null}]}",
    ("{\"methodConfig\": [{\"waitForReady\": true, \"timeout\": \"0s\", \"maxRequestMessageBytes\": 0, "
     "\"maxResponseMessageBytes\": \"4294967295\", \"retryPolicy\": null, \"hedgingPolicy\": 3}]}"),
    RETRY("\"maxAttempts\": \"4294967295\", " BACKOFF
          ", \"retryableStatusCodes\": [\"UNAVAILABLE\", 16, \"OK\"], \"more\": 1"),
    "{\"retryThrottling\": {\"maxTokens\": 1000, \"tokenRatio\": 0.001}}",
    "{\"retryThrottling\": null}",
    "{\"healthCheckConfig\": {\"serviceName\": \"\"}, \"connectionScaling\": {\"maxConnectionsPerSubchannel\": 0}}",
    "{\"healthCheckConfig\": {\"serviceName\": null}, \"connectionScaling\": {}}",
};

#define LB(policy) "{\"loadBalancingConfig\": [" policy "]}"
#define OUTLIERS(fields)                                                                                               \
  LB("{\"outlier_detection_experimental\": {" fields ", \"childPolicy\": [{\"round_robin\": {}}]}}")
#define METHOD(fields) "{\"methodConfig\": [{}, {" fields "}]}"
#define LB_PATH        "$.service_config.loadBalancingConfig"
#define OUTLIERS_PATH  LB_PATH "[0].outlier_detection_experimental"
#define METHOD_PATH    "$.service_config.methodConfig[1]"

static const struct {
  const char *json, *path, *words;
} wrong[] = {
    {"3", "$.service_config", "expected an object, got an integer"},
    {"null", "$.service_config", "expected an object, got null"},
    {"{\"loadBalancingConfig\": {}}", LB_PATH, "expected an array, got an object"},
    {LB("{\"mine\": {}}, {\"yours\": {}}"), LB_PATH, "none of the policies is known"},
    {LB("{\"mine\": {}}, {\"a\": {}, \"b\": {}}"), LB_PATH "[1]", "expected an object with one member, the policy"},
    {LB("{}"), LB_PATH "[0]", "expected an object with one member"},
    {LB("\"round_robin\""), LB_PATH "[0]", "expected an object with one member"},
    {LB("{\"round_robin\": null}"), LB_PATH "[0].round_robin", "expected an object, got null"},
    {LB("{\"pick_first\": {\"shuffleAddressList\": 1}}"), LB_PATH "[0].pick_first.shuffleAddressList",
     "expected true or false, got an integer"},
    {"{\"loadBalancingPolicy\": \"grpclb\"}", "$.service_config.loadBalancingPolicy", "the policy is not known"},
    {"{\"loadBalancingPolicy\": 1}", "$.service_config.loadBalancingPolicy", "expected a string"},
    {LB("{\"outlier_detection_experimental\": {}}"), OUTLIERS_PATH, "it has no childPolicy"},
    {LB("{\"outlier_detection_experimental\": {\"childPolicy\": []}}"), OUTLIERS_PATH ".childPolicy",
     "none of the policies is known"},
    {LB("{\"outlier_detection_experimental\": {\"childPolicy\": [{\"x\": {}}]}}"), OUTLIERS_PATH ".childPolicy",
     "none of the policies is known"},
    {LB("{\"outlier_detection_experimental\": {\"childPolicy\": [{\"outlier_detection_experimental\": {}}]}}"),
     OUTLIERS_PATH ".childPolicy[0].outlier_detection_experimental", "an outlier detection within another"},
    {OUTLIERS("\"interval\": \"0s\""), OUTLIERS_PATH ".interval", "expected more than 0 s"},
    {OUTLIERS("\"interval\": 10"), OUTLIERS_PATH ".interval", "expected a duration"},
    {OUTLIERS("\"baseEjectionTime\": \"-1s\""), OUTLIERS_PATH ".baseEjectionTime", "expected a duration"},
    {OUTLIERS("\"maxEjectionTime\": \"1\""), OUTLIERS_PATH ".maxEjectionTime", "such as \\\"1.5s\\\""},
    {OUTLIERS("\"maxEjectionPercent\": 101"), OUTLIERS_PATH ".maxEjectionPercent",
     "expected an integer from 0 to 100, got 101"},
    {OUTLIERS("\"successRateEjection\": {\"stdevFactor\": -1}"), OUTLIERS_PATH ".successRateEjection.stdevFactor",
     "got -1"},
    {OUTLIERS("\"successRateEjection\": {\"enforcementPercentage\": \"101\"}"),
     OUTLIERS_PATH ".successRateEjection.enforcementPercentage", "from 0 to 100"},
    {OUTLIERS("\"failurePercentageEjection\": {\"threshold\": 101}"),
     OUTLIERS_PATH ".failurePercentageEjection.threshold", "got 101"},
    {OUTLIERS("\"failurePercentageEjection\": 3"), OUTLIERS_PATH ".failurePercentageEjection", "expected an object"},
    {METHOD("\"waitForReady\": \"true\""), METHOD_PATH ".waitForReady", "expected true or false"},
    {METHOD("\"timeout\": \".5s\""), METHOD_PATH ".timeout", "expected a duration"},
    {METHOD("\"timeout\": \"1.s\""), METHOD_PATH ".timeout", "expected a duration"},
    {METHOD("\"timeout\": \"1.0000000001s\""), METHOD_PATH ".timeout", "expected a duration"},
    {METHOD("\"timeout\": \"1.2.3s\""), METHOD_PATH ".timeout", "expected a duration"},
    {METHOD("\"timeout\": \"1e3s\""), METHOD_PATH ".timeout", "expected a duration"},
    {METHOD("\"timeout\": \"s\""), METHOD_PATH ".timeout", "expected a duration"},
    {METHOD("\"timeout\": \"\""), METHOD_PATH ".timeout", "expected a duration"},
    {METHOD("\"maxRequestMessageBytes\": 4294967296"), METHOD_PATH ".maxRequestMessageBytes",
     "expected an integer from 0 to 4294967295, got 4294967296"},
    {METHOD("\"maxRequestMessageBytes\": \"99999999999999999999\""), METHOD_PATH ".maxRequestMessageBytes",
     "from 0 to 4294967295"},
    {METHOD("\"maxResponseMessageBytes\": \"\""), METHOD_PATH ".maxResponseMessageBytes", "an integer"},
    {METHOD("\"maxResponseMessageBytes\": 1.5"), METHOD_PATH ".maxResponseMessageBytes", "an integer"},
    {METHOD("\"name\": {}"), METHOD_PATH ".name", "expected an array"},
    {METHOD("\"name\": [{\"method\": \"M\"}]"), METHOD_PATH ".name[0]", "a method without its service"},
    {METHOD("\"name\": [{\"service\": 3}]"), METHOD_PATH ".name[0].service", "expected a string"},
    {METHOD("\"name\": [{\"service\": \"s\", \"method\": []}]"), METHOD_PATH ".name[0].method", "expected a string"},
    {METHOD("\"name\": [{\"service\": \"s\"}, {\"service\": \"s\", \"method\": \"\"}]"), METHOD_PATH ".name[1]",
     "this name has a config already"},
    {METHOD("\"name\": [{}, {\"service\": \"\"}]"), METHOD_PATH ".name[1]", "this name has a config already"},
    {"{\"methodConfig\": 3}", "$.service_config.methodConfig", "expected an array"},
    {RETRY("\"maxAttempts\": 1, " BACKOFF ", " CODES), RETRY_PATH ".maxAttempts", "expected 2 or more"},
    {RETRY("\"maxAttempts\": true, " BACKOFF ", " CODES), RETRY_PATH ".maxAttempts", "expected an integer"},
    {RETRY("\"maxAttempts\": 2, \"initialBackoff\": \"0s\""), RETRY_PATH ".initialBackoff", "more than 0 s"},
    {RETRY("\"maxAttempts\": 2, \"maxBackoff\": 3"), RETRY_PATH ".maxBackoff", "expected a duration"},
    {RETRY("\"backoffMultiplier\": 0"), RETRY_PATH ".backoffMultiplier", "expected a number above 0"},
    {RETRY("\"backoffMultiplier\": \"2\""), RETRY_PATH ".backoffMultiplier", "got a string"},
    {RETRY("\"maxAttempts\": 2, " BACKOFF), RETRY_PATH, "it has no retryableStatusCodes"},
    {RETRY("\"maxAttempts\": 2, " CODES), RETRY_PATH, "it has no initialBackoff"},
    {RETRY(BACKOFF ", " CODES), RETRY_PATH, "it has no maxAttempts"},
    {RETRY("\"retryableStatusCodes\": []"), RETRY_PATH ".retryableStatusCodes", "it has no status code"},
    {RETRY("\"retryableStatusCodes\": [14, \"unavailable\"]"), RETRY_PATH ".retryableStatusCodes[1]",
     "expected a status code"},
    {RETRY("\"retryableStatusCodes\": [17]"), RETRY_PATH ".retryableStatusCodes[0]", "expected a status code"},
    {METHOD("\"hedgingPolicy\": {}, \"retryPolicy\": {\"maxAttempts\": 2, " BACKOFF ", " CODES "}"), METHOD_PATH,
     "it has a retryPolicy and a hedgingPolicy"},
    {"{\"retryThrottling\": 7}", THROTTLE_PATH, "expected an object"},
    {"{\"retryThrottling\": {}}", THROTTLE_PATH, "it has no maxTokens"},
    {"{\"retryThrottling\": {\"maxTokens\": 10}}", THROTTLE_PATH, "it has no tokenRatio"},
    {"{\"retryThrottling\": {\"maxTokens\": 0}}", THROTTLE_PATH ".maxTokens", "expected 1 or more"},
    {"{\"retryThrottling\": {\"maxTokens\": 1001}}", THROTTLE_PATH ".maxTokens", "from 0 to 1000, got 1001"},
    {"{\"retryThrottling\": {\"tokenRatio\": 0.0009}}", THROTTLE_PATH ".tokenRatio", "expected 0.001 or more"},
    {"{\"retryThrottling\": {\"tokenRatio\": -1}}", THROTTLE_PATH ".tokenRatio", "expected a number above 0"},
    {"{\"healthCheckConfig\": {\"serviceName\": 3}}", "$.service_config.healthCheckConfig.serviceName", "a string"},
    {"{\"connectionScaling\": {\"maxConnectionsPerSubchannel\": -1}}",
     "$.service_config.connectionScaling.maxConnectionsPerSubchannel", "got -1"},
};

static penstock_result open_with(const char *target, const char *config, penstock_channel **channel,
                                 penstock_error **error) {
  char options[2048];
  snprintf(options, sizeof(options), "{\"tls\": false, \"service_config\": %s}", config);
  return penstock_channel_new(target, options, channel, error);
}

TEST(service_config_is_checked) {
  for (size_t i = 0; i < sizeof(right) / sizeof(*right); i++) {
    penstock_channel *channel = NULL;
    penstock_error *error = NULL;
    if (!OK(open_with("localhost:1", right[i], &channel, &error))) {
      printf("  %s: %s\n", right[i], error ? penstock_error_json(error) : "");
    }
    penstock_error_release(error);
    penstock_channel_release(channel);
  }
  for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
    penstock_channel *channel = NULL;
    penstock_error *error = NULL;
    if (!CHECK_RESULT(open_with("localhost:1", wrong[i].json, &channel, &error), PENSTOCK_E_INVALID_JSON)) {
      printf("  %s\n", wrong[i].json);
    }
    CHECK(channel == NULL);
    if (error) CHECK_HAS(penstock_error_json(error), wrong[i].words);
    if (error) CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, wrong[i].path, NULL);
    penstock_channel_release(channel);
  }
}

/* The code of a unary call with these options; 100 and more: the call was not made. */
static int32_t code_of(penstock_channel *channel, const char *method, const char *options) {
  penstock_call_options *parsed = NULL;
  penstock_reply *reply = NULL;
  OK(penstock_call_options_new(options, &parsed, NULL));
  penstock_result result = penstock_channel_unary(channel, method, "12345678", 8, parsed, &reply, NULL);
  int32_t code = result == PENSTOCK_OK ? penstock_reply_code(reply) : 100 - result;
  penstock_reply_release(reply);
  penstock_call_options_release(parsed);
  return code;
}

/* The option wait_for_ready of a call overrides the method's, and the method's overrides the channel's. */
TEST(service_config_wait_for_ready) {
  penstock_channel *channel = NULL;
  REQUIRE_OK(open_with(dead_address(),
                       "{\"methodConfig\": ["
                       "{\"name\": [{\"service\": \"a.B\"}], \"waitForReady\": true, \"timeout\": \"0.1s\"},"
                       "{\"name\": [{\"service\": \"a.B\", \"method\": \"Fast\"}], \"waitForReady\": false}]}",
                       &channel, NULL));
  CHECK_INT(code_of(channel, "/a.B/Other", "{}"), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  CHECK_INT(code_of(channel, "/a.B/Other", "{\"wait_for_ready\": false}"), PENSTOCK_STATUS_UNAVAILABLE);
  CHECK_INT(code_of(channel, "/a.B/Fast", "{}"), PENSTOCK_STATUS_UNAVAILABLE);
  CHECK_INT(code_of(channel, "/a.B/Fast", "{\"wait_for_ready\": true, \"deadline_ms\": 50}"),
            PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  CHECK_INT(code_of(channel, "/a.C/Other", "{}"), PENSTOCK_STATUS_UNAVAILABLE);
  penstock_channel_release(channel);
  REQUIRE_OK(penstock_channel_new(dead_address(),
                                  "{\"tls\": false, \"wait_for_ready\": true, \"service_config\": {\"methodConfig\": "
                                  "[{\"name\": [{\"service\": \"a.B\"}], \"waitForReady\": false}]}}",
                                  &channel, NULL));
  CHECK_INT(code_of(channel, "/a.B/C", "{}"), PENSTOCK_STATUS_UNAVAILABLE);
  CHECK_INT(code_of(channel, "/a.C/C", "{\"deadline_ms\": 50}"), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
  penstock_channel_release(channel);
}

/* Of a method's limit and the call's own, the smaller one holds. */
TEST(service_config_limits) {
  penstock_channel *channel = NULL;
  REQUIRE_OK(open_with(peer_address(),
                       "{\"methodConfig\": ["
                       "{\"name\": [{\"service\": \"penstock.Echo\", \"method\": \"Unary\"}], "
                       "\"maxRequestMessageBytes\": 8, \"maxResponseMessageBytes\": 8},"
                       "{\"name\": [{}], \"maxRequestMessageBytes\": 7}]}",
                       &channel, NULL));
  CHECK_INT(code_of(channel, UNARY, "{}"), 0);
  CHECK_INT(code_of(channel, UNARY, "{\"max_receive_message_bytes\": 9}"), 0);
  CHECK_INT(code_of(channel, UNARY, "{\"max_receive_message_bytes\": 7}"), PENSTOCK_STATUS_RESOURCE_EXHAUSTED);
  CHECK_INT(code_of(channel, UNARY, "{\"max_send_message_bytes\": 7}"), 100 - PENSTOCK_E_TOO_LARGE);
  CHECK_INT(code_of(channel, "/penstock.Echo/Other", "{}"), 100 - PENSTOCK_E_TOO_LARGE);
  penstock_channel_release(channel);
  REQUIRE_OK(open_with(peer_address(), "{\"methodConfig\": [{\"name\": [{}], \"maxResponseMessageBytes\": 7}]}",
                       &channel, NULL));
  CHECK_INT(code_of(channel, UNARY, "{}"), PENSTOCK_STATUS_RESOURCE_EXHAUSTED);
  penstock_channel_release(channel);
}

/* A timeout that no clock can reach is no timeout, and never a short one: 2^64 ns are 18446744073.709551616 s. */
TEST(service_config_timeouts_without_end) {
  static const char *const timeouts[] = {"18446744073.709551615s",  "18446744073.709551616s", "18446744073.709551619s",
                                         "18446744073.70955162s",   "184467440737.09551616s", "36893488147.419103232s",
                                         "99999999999999999999999s"};
  for (size_t i = 0; i < sizeof(timeouts) / sizeof(*timeouts); i++) {
    char config[256];
    snprintf(config, sizeof(config), "{\"methodConfig\": [{\"name\": [{}], \"timeout\": \"%s\"}]}", timeouts[i]);
    penstock_channel *channel = NULL;
    REQUIRE_OK(open_with(peer_address(), config, &channel, NULL));
    if (!CHECK_INT(code_of(channel, UNARY, "{}"), 0)) printf("  %s\n", timeouts[i]);
    penstock_channel_release(channel);
  }
}

/* The number of objects and arrays is limited, because each takes hundreds of bytes of memory, even if it is empty. */
TEST(service_config_too_many_policies) {
  enum { MOST = 262144 };
  static const char begin[] = "{\"service_config\": {\"loadBalancingConfig\": [", end[] = "]}}";
  char *text = malloc(MOST * 8 + 256), *at = text;
  at += sprintf(at, "%s", begin);
  /* Three are open already, and each policy has two. */
  for (int i = 0; i < MOST / 2; i++) at += sprintf(at, "%s{\"x\":{}}", i ? "," : "");
  strcpy(at, end);
  penstock_channel *channel = NULL;
  penstock_error *error = NULL;
  CHECK_RESULT(penstock_channel_new("localhost:1", text, &channel, &error), PENSTOCK_E_INVALID_JSON);
  CHECK_ERROR(error, PENSTOCK_E_INVALID_JSON, "$.service_config.loadBalancingConfig[131070].x",
              "more than 262144 objects and arrays");
  CHECK(channel == NULL);
  free(text);
}

/* A call without a deadline, or with a later one, ends at the method's timeout. */
TEST(service_config_timeout) {
  penstock_channel *channel = NULL;
  REQUIRE_OK(open_with(peer_address(),
                       "{\"methodConfig\": [{\"name\": [{\"service\": \"penstock.Echo\"}], \"timeout\": \"0.05s\"}]}",
                       &channel, NULL));
  static const char *const options[] = {"{}", "{\"deadline_ms\": null}", "{\"deadline_ms\": 3600000}"};
  for (int i = 0; i < 3; i++) {
    penstock_call_options *parsed = NULL;
    penstock_call *call = NULL;
    penstock_reply *reply = NULL;
    OK(penstock_call_options_new(options[i], &parsed, NULL));
    REQUIRE_OK(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, parsed, NULL, &call, NULL));
    penstock_result result;
    do {
      result = penstock_call_wait_status(call, &reply);
    } while (result == PENSTOCK_E_INTERRUPTED);
    OK(result);
    CHECK_INT(penstock_reply_code(reply), PENSTOCK_STATUS_DEADLINE_EXCEEDED);
    penstock_reply_release(reply);
    penstock_call_release(call);
    penstock_call_options_release(parsed);
  }
  penstock_channel_release(channel);
}
