/* The JSON of resolvers, metadata, statuses and service configs: the bounds of each type, and the words for a wrong
 * value. Also the paths of malformed texts. */
#include "rows.h"

static penstock_result pushed(const char *json, penstock_error **error) {
  penstock_channel *channel = NULL;
  penstock_resolver *resolver = NULL;
  OK(penstock_channel_new("localhost:1", "{\"tls\": false}", &channel, NULL));
  OK(penstock_channel_set_resolver(channel, NULL, &resolver, NULL));
  penstock_result result = penstock_resolver_push(resolver, json, error);
  penstock_resolver_release(resolver);
  penstock_channel_release(channel);
  return result;
}

static const row resolver_rows[] = {
    {"{\"addresses\": [{\"address\": \"ipv4:127.0.0.1:1\"}]}", NULL},
    {("{\"addresses\": [{\"address\": \"ipv4:127.0.0.1:1\", \"weight\": 65535, \"attributes\": {\"a\": "
      "\"b\"}}], \"service_config\": {}}"),
     NULL},
    {"{\"error\": \"x\"}", NULL},
    {"{}", "$: expected an object with either \"addresses\" or only \"error\", got another object"},
    {"{\"addresses\": []}", "$.addresses: expected at least one address (or else \"error\"), got another array"},
    {"{\"addresses\": 1}", "$.addresses: expected an array, got an integer"},
    {"{\"addresses\": [1]}", "$.addresses[0]: expected an object, got an integer"},
    {"{\"addresses\": [{}]}", "$.addresses[0]: it has no \"address\""},
    {"{\"addresses\": [{\"weight\": 1}]}", "$.addresses[0]: it has no \"address\""},
    {"{\"addresses\": [{\"address\": 1}]}",
     ("$.addresses[0].address: expected an address, such as \"ipv4:192.0.2.1:443\" or \"unix:/path\", got "
      "an integer")},
    {"{\"addresses\": [{\"address\": \"x\"}]}",
     ("$.addresses[0].address: expected an address, such as \"ipv4:192.0.2.1:443\" or \"unix:/path\", got "
      "another string")},
    {"{\"addresses\": [{\"address\": \"ipv4:127.0.0.1:1\", \"weight\": 0}]}",
     "$.addresses[0].weight: expected an integer from 1 to 65535, got 0"},
    {"{\"addresses\": [{\"address\": \"ipv4:127.0.0.1:1\", \"weight\": 65536}]}",
     "$.addresses[0].weight: expected an integer from 1 to 65535, got 65536"},
    {"{\"addresses\": [{\"address\": \"ipv4:127.0.0.1:1\", \"attributes\": 1}]}",
     "$.addresses[0].attributes: expected an object, got an integer"},
    {"{\"addresses\": [{\"address\": \"ipv4:127.0.0.1:1\", \"attributes\": {\"a\": 1}}]}",
     "$.addresses[0].attributes.a: expected a string, got an integer"},
    {"{\"addresses\": [{\"address\": \"ipv4:127.0.0.1:1\", \"x\": 1}]}", "$.addresses[0].x: unknown key"},
    {"{\"addresses\": [{\"address\": \"ipv4:127.0.0.1:1\"}], \"error\": \"x\"}",
     "$: expected an object with either \"addresses\" or only \"error\", got another object"},
    {"{\"error\": \"x\", \"service_config\": {}}",
     "$: expected an object with either \"addresses\" or only \"error\", got another object"},
    {"{\"service_config\": {}}",
     "$: expected an object with either \"addresses\" or only \"error\", got another object"},
    {"{\"error\": 1}", "$.error: expected a string, got an integer"},
    {"{\"addresses\": [{\"address\": \"ipv4:127.0.0.1:1\"}], \"service_config\": 1}",
     "$.service_config: expected an object, got an integer"},
    {"{\"x\": 1}", "$.x: unknown key"},
};

TEST(json_texts_of_resolvers) { CHECK_ROWS(resolver_rows, pushed); }

static penstock_result metadata_of(const char *json, penstock_error **error) {
  penstock_metadata *made = NULL;
  OK(penstock_metadata_new(&made));
  penstock_result result = penstock_metadata_set_json(made, json, error);
  penstock_metadata_release(made);
  return result;
}

static const row metadata_rows[] = {
    {"{}", NULL},
    {"{\"a\": \"b\", \"c\": [\"d\", \"e\"], \"f-bin\": \"AA==\", \"g\": {\"base64\": \"Yg==\"}}", NULL},
    {"{\"a-bin\": {\"base64\": \"AAAA,AQ==\"}}", NULL},
    {"[]", "$: expected an object, got an array"},
    {"{\"a\": 1}", "$.a: expected a string, or an array of strings, got an integer"},
    {"{\"a\": [1]}", "$.a[0]: expected a string, or an array of strings, got an integer"},
    {"{\"a\": [\"b\", null]}", "$.a[1]: expected a string, or an array of strings, got null"},
    {"{\"a\": {}}", "$.a: expected a string, or an array of strings, got an object"},
    {"{\"a\": {\"x\": 1}}", "$.a.x: unknown key"},
    {"{\"a\": {\"base64\": 1}}", "$.a.base64: expected a base64 string, got an integer"},
    {"{\"a\": {\"base64\": \"!\"}}", "$.a: malformed base64"},
    {"{\"a\": {\"base64\": \"AA==\"}}",
     "$.a: a value has visible ASCII and spaces only, unless its name ends with \"-bin\""},
    {"{\"a\": {\"base64\": \"IGI=\"}}", "$.a: a value may not begin or end with a space"},
    {"{\"a-bin\": \"!\"}", "$.a-bin: malformed base64"},
    {"{\"a-bin\": \"AA==,!\"}", "$.a-bin: malformed base64"},
    {"{\"a-bin\": 1}", "$.a-bin: expected a string, or an array of strings, got an integer"},
    {"{\":a\": \"b\"}", "$.:a: a reserved name"},
    {"{\"grpc-a\": \"b\"}", "$.grpc-a: a reserved name"},
    {"{\"te\": \"b\"}", "$.te: a reserved name"},
    {"{\"a b\": \"c\"}", "$.a b: a name has letters, digits, \"_\", \"-\" and \".\" only"},
    {"{\"\": \"c\"}", "$.: a name has letters, digits, \"_\", \"-\" and \".\" only"},
    {"{\"A\": \"b\"}", NULL},
    {"{\"a\": \" b\"}", "$.a: a value may not begin or end with a space"},
    {"{\"a\": \"b \"}", "$.a: a value may not begin or end with a space"},
    {"{\"a\": \" \"}", "$.a: a value may not begin or end with a space"},
    {"{\"a\": \"\\u0007\"}", "$.a: a value has visible ASCII and spaces only, unless its name ends with \"-bin\""},
    {"{\"a\": \"\\u007f\"}", "$.a: a value has visible ASCII and spaces only, unless its name ends with \"-bin\""},
    {"{\"a\": \"\\u00e9\"}", "$.a: a value has visible ASCII and spaces only, unless its name ends with \"-bin\""},
    {"{\"a\": \"\"}", NULL},
};

TEST(json_texts_of_metadata) { CHECK_ROWS(metadata_rows, metadata_of); }

OBJECT_READER(status_of, penstock_status, penstock_status_from_json, penstock_status_release)

static const row status_rows[] = {
    {"{\"code\": 0}", NULL},
    {"{\"code\": 16}", NULL},
    {"{\"code\": 17}", "$.code: expected a status code from 0 to 16, got 17"},
    {"{\"code\": -1}", "$.code: expected a status code from 0 to 16, got -1"},
    {"{\"code\": \"1\"}", "$.code: expected a status code from 0 to 16, got a string"},
    {"{\"name\": \"ABORTED\"}", NULL},
    {"{\"name\": \"OK\"}", NULL},
    {"{\"name\": \"UNAUTHENTICATED\"}", NULL},
    {"{\"name\": \"aborted\"}", "$.name: not the name of a status code"},
    {"{\"name\": 1}", "$.name: expected the name of a status code, got an integer"},
    {"{}", "$: \"code\" or \"name\" is missing"},
    {"{\"code\": 10, \"name\": \"ABORTED\"}", NULL},
    {"{\"code\": 1, \"name\": \"ABORTED\"}", "$: \"code\" and \"name\" are different codes"},
    {"{\"code\": 1, \"message\": 1}", "$.message: expected a string, got an integer"},
    {"{\"code\": 1, \"metadata\": 1}", "$.metadata: expected an object, got an integer"},
    {"{\"code\": 1, \"metadata\": {\"a\": 1}}",
     "$.metadata.a: expected a string, or an array of strings, got an integer"},
    {"{\"code\": 1, \"metadata\": {\"grpc-status-details-bin\": 1}}",
     "$.metadata.grpc-status-details-bin: expected a base64 string, got an integer"},
    {"{\"code\": 1, \"metadata\": {\"grpc-status-details-bin\": \"!\"}}",
     "$.metadata.grpc-status-details-bin: malformed base64"},
    {"{\"code\": 1, \"metadata\": {\"grpc-status-details-bin\": []}}",
     "$.metadata.grpc-status-details-bin: expected a base64 string, got an array"},
    {"{\"code\": 1, \"details_error\": 1}", "$.details_error: expected a string, got an integer"},
    {"{\"code\": 1, \"body\": 1}", "$.body: expected a string, got an integer"},
    {"{\"code\": 1, \"retry_pushback_ms\": -2}",
     "$.retry_pushback_ms: expected a number of milliseconds, or -1, got -2"},
    {"{\"code\": 1, \"retry_pushback_ms\": -1}", NULL},
    {"{\"code\": 1, \"retry_pushback_ms\": 2147483648}",
     "$.retry_pushback_ms: expected a number of milliseconds, or -1, got 2147483648"},
    {"{\"code\": 1, \"retry_pushback_ms\": \"1\"}",
     "$.retry_pushback_ms: expected a number of milliseconds, or -1, got a string"},
    {"{\"code\": 1, \"x\": 1}", "$.x: unknown key"},
    {"{\"code\": 1, \"details\": 1}", "$.details: expected an array, got an integer"},
    {"{\"code\": 1, \"details\": [1]}", "$.details[0]: expected an object, got an integer"},
    {"{\"code\": 1, \"details\": [{}]}", "$.details[0]: \"@type\" has to be a type URL"},
    {"{\"code\": 1, \"details\": [{\"@type\": 1}]}", "$.details[0]: \"@type\" has to be a type URL"},
    {"{\"code\": 1, \"details\": [{\"@type\": \"\"}]}", "$.details[0]: \"@type\" has to be a type URL"},
    {"{\"code\": 1, \"details\": [{\"@type\": \"a\"}]}",
     "$.details[0]: \"base64\" is missing, and the type is not one of google.rpc"},
    {"{\"code\": 1, \"details\": [{\"@type\": \"a\", \"base64\": 1}]}",
     "$.details[0].base64: expected a base64 string, got an integer"},
    {"{\"code\": 1, \"details\": [{\"@type\": \"a\", \"base64\": \"!\"}]}", "$.details[0].base64: malformed base64"},
    {"{\"code\": 1, \"details\": [{\"@type\": \"a\", \"base64\": \"\", \"x\": 1}]}", "$.details[0].x: unknown key"},
    {"{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.ErrorInfo\", \"x\": 1}]}",
     "$.details[0].x: unknown key"},
    {"{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.ErrorInfo\", \"reason\": 1}]}",
     "$.details[0].reason: expected a string, got an integer"},
    {("{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.ErrorInfo\", \"metadata\": "
      "{\"a\": 1}}]}"),
     "$.details[0].metadata.a: expected a string, got an integer"},
    {"{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.ErrorInfo\", \"metadata\": 1}]}",
     "$.details[0].metadata: expected an object, got an integer"},
    {("{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.RetryInfo\", "
      "\"retryDelay\": 1}]}"),
     "$.details[0].retryDelay: expected a duration like \"1.5s\", got an integer"},
    {("{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.RetryInfo\", "
      "\"retryDelay\": \"\"}]}"),
     "$.details[0].retryDelay: expected a duration like \"1.5s\", got another string"},
    {("{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.RetryInfo\", "
      "\"retryDelay\": \"s\"}]}"),
     "$.details[0].retryDelay: expected a duration like \"1.5s\", got another string"},
    {("{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.RetryInfo\", "
      "\"retryDelay\": \"1\"}]}"),
     "$.details[0].retryDelay: expected a duration like \"1.5s\", got another string"},
    {("{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.RetryInfo\", "
      "\"retryDelay\": \"-s\"}]}"),
     "$.details[0].retryDelay: expected a duration like \"1.5s\", got another string"},
    {("{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.RetryInfo\", "
      "\"retryDelay\": \"1.s\"}]}"),
     "$.details[0].retryDelay: expected a duration like \"1.5s\", got another string"},
    {("{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.RetryInfo\", "
      "\"retryDelay\": \".5s\"}]}"),
     "$.details[0].retryDelay: expected a duration like \"1.5s\", got another string"},
    {("{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.RetryInfo\", "
      "\"retryDelay\": \"1.-5s\"}]}"),
     "$.details[0].retryDelay: expected a duration like \"1.5s\", got another string"},
    {("{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.RetryInfo\", "
      "\"retryDelay\": \"1.1234567890s\"}]}"),
     "$.details[0].retryDelay: expected a duration like \"1.5s\", got another string"},
    {("{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.RetryInfo\", "
      "\"retryDelay\": \"315576000001s\"}]}"),
     "$.details[0].retryDelay: expected a duration like \"1.5s\", got another string"},
    {("{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.RetryInfo\", "
      "\"retryDelay\": \"-315576000001s\"}]}"),
     "$.details[0].retryDelay: expected a duration like \"1.5s\", got another string"},
    {("{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.RetryInfo\", "
      "\"retryDelay\": \"99999999999999999999s\"}]}"),
     "$.details[0].retryDelay: expected a duration like \"1.5s\", got another string"},
    {("{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.RetryInfo\", "
      "\"retryDelay\": \"1a.5s\"}]}"),
     "$.details[0].retryDelay: expected a duration like \"1.5s\", got another string"},
    {("{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.RetryInfo\", "
      "\"retryDelay\": \"1.5.5s\"}]}"),
     "$.details[0].retryDelay: expected a duration like \"1.5s\", got another string"},
    {("{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.DebugInfo\", "
      "\"stackEntries\": [1]}]}"),
     "$.details[0].stackEntries[0]: expected a string, got an integer"},
    {("{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.DebugInfo\", "
      "\"stackEntries\": \"a\"}]}"),
     "$.details[0].stackEntries: expected an array, got a string"},
    {("{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.BadRequest\", "
      "\"fieldViolations\": [{\"x\": 1}]}]}"),
     "$.details[0].fieldViolations[0].x: unknown key"},
    {("{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.BadRequest\", "
      "\"fieldViolations\": {}}]}"),
     "$.details[0].fieldViolations: expected an array, got an object"},
    {("{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.BadRequest\", "
      "\"fieldViolations\": [{\"localizedMessage\": 1}]}]}"),
     "$.details[0].fieldViolations[0].localizedMessage: expected an object, got an integer"},
    {("{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.QuotaFailure\", "
      "\"violations\": [{\"quotaValue\": \"x\"}]}]}"),
     ("$.details[0].violations[0].quotaValue: expected a 64-bit integer, as a string or a number, got "
      "another string")},
    {("{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.QuotaFailure\", "
      "\"violations\": [{\"quotaValue\": \"9223372036854775808\"}]}]}"),
     ("$.details[0].violations[0].quotaValue: expected a 64-bit integer, as a string or a number, got "
      "another string")},
    {("{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.QuotaFailure\", "
      "\"violations\": [{\"quotaValue\": \"-9223372036854775809\"}]}]}"),
     ("$.details[0].violations[0].quotaValue: expected a 64-bit integer, as a string or a number, got "
      "another string")},
    {("{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.QuotaFailure\", "
      "\"violations\": [{\"quotaValue\": 1.5}]}]}"),
     ("$.details[0].violations[0].quotaValue: expected a 64-bit integer, as a string or a number, got a "
      "real number")},
    {("{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.QuotaFailure\", "
      "\"violations\": [{\"quotaValue\": \"\"}]}]}"),
     ("$.details[0].violations[0].quotaValue: expected a 64-bit integer, as a string or a number, got "
      "another string")},
    {("{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.QuotaFailure\", "
      "\"violations\": [{\"quotaValue\": \"-\"}]}]}"),
     ("$.details[0].violations[0].quotaValue: expected a 64-bit integer, as a string or a number, got "
      "another string")},
    {("{\"code\": 1, \"details\": [{\"@type\": \"type.googleapis.com/google.rpc.QuotaFailure\", "
      "\"violations\": [{\"quotaValue\": true}]}]}"),
     "$.details[0].violations[0].quotaValue: expected a 64-bit integer, as a string or a number, got a boolean"},
};

TEST(json_texts_of_statuses) { CHECK_ROWS(status_rows, status_of); }

static penstock_result config_of(const char *json, penstock_error **error) {
  char options[512];
  penstock_channel *made = NULL;
  snprintf(options, sizeof(options), "{\"tls\": false, \"service_config\": %s}", json);
  penstock_result result = penstock_channel_new("localhost:1", options, &made, error);
  penstock_channel_release(made);
  return result;
}

static const row config_rows[] = {
    {"{\"methodConfig\": [{\"timeout\": \"1s\"}]}", NULL},
    {"{\"methodConfig\": [{\"timeout\": \"0.1s\"}]}", NULL},
    {"{\"methodConfig\": [{\"timeout\": \"0.123456789s\"}]}", NULL},
    {"{\"methodConfig\": [{\"timeout\": \"1.1234567890s\"}]}",
     ("$.service_config.methodConfig[0].timeout: expected a duration from 0 s, such as \"1.5s\", got "
      "another string")},
    {"{\"methodConfig\": [{\"timeout\": \"1.s\"}]}",
     ("$.service_config.methodConfig[0].timeout: expected a duration from 0 s, such as \"1.5s\", got "
      "another string")},
    {"{\"methodConfig\": [{\"timeout\": \".1s\"}]}",
     ("$.service_config.methodConfig[0].timeout: expected a duration from 0 s, such as \"1.5s\", got "
      "another string")},
    {"{\"methodConfig\": [{\"timeout\": \"s\"}]}",
     ("$.service_config.methodConfig[0].timeout: expected a duration from 0 s, such as \"1.5s\", got "
      "another string")},
    {"{\"methodConfig\": [{\"timeout\": \"1\"}]}",
     ("$.service_config.methodConfig[0].timeout: expected a duration from 0 s, such as \"1.5s\", got "
      "another string")},
    {"{\"methodConfig\": [{\"timeout\": \"-1s\"}]}",
     ("$.service_config.methodConfig[0].timeout: expected a duration from 0 s, such as \"1.5s\", got "
      "another string")},
    {"{\"methodConfig\": [{\"timeout\": \"1 s\"}]}",
     ("$.service_config.methodConfig[0].timeout: expected a duration from 0 s, such as \"1.5s\", got "
      "another string")},
    {"{\"methodConfig\": [{\"timeout\": \"123456789012345678901234s\"}]}", NULL},
    {"{\"methodConfig\": [{\"timeout\": \"1234567890123456789012345s\"}]}",
     ("$.service_config.methodConfig[0].timeout: expected a duration from 0 s, such as \"1.5s\", got "
      "another string")},
    {"{\"methodConfig\": [{\"timeout\": \":s\"}]}",
     ("$.service_config.methodConfig[0].timeout: expected a duration from 0 s, such as \"1.5s\", got "
      "another string")},
    {"{\"methodConfig\": [{\"timeout\": \"/s\"}]}",
     ("$.service_config.methodConfig[0].timeout: expected a duration from 0 s, such as \"1.5s\", got "
      "another string")},
    {"{\"methodConfig\": [{\"maxRequestMessageBytes\": \"0\"}]}", NULL},
    {"{\"methodConfig\": [{\"maxRequestMessageBytes\": \"4294967295\"}]}", NULL},
    {"{\"methodConfig\": [{\"maxRequestMessageBytes\": \"4294967296\"}]}",
     ("$.service_config.methodConfig[0].maxRequestMessageBytes: expected an integer from 0 to 4294967295, "
      "got a string")},
    {"{\"methodConfig\": [{\"maxRequestMessageBytes\": \"42949672950\"}]}",
     ("$.service_config.methodConfig[0].maxRequestMessageBytes: expected an integer from 0 to 4294967295, "
      "got a string")},
    {"{\"methodConfig\": [{\"maxRequestMessageBytes\": \"-1\"}]}",
     ("$.service_config.methodConfig[0].maxRequestMessageBytes: expected an integer from 0 to 4294967295, "
      "got a string")},
    {"{\"methodConfig\": [{\"maxRequestMessageBytes\": \"1a\"}]}",
     ("$.service_config.methodConfig[0].maxRequestMessageBytes: expected an integer from 0 to 4294967295, "
      "got a string")},
    {"{\"methodConfig\": [{\"maxRequestMessageBytes\": \":\"}]}",
     ("$.service_config.methodConfig[0].maxRequestMessageBytes: expected an integer from 0 to 4294967295, "
      "got a string")},
    {"{\"methodConfig\": [{\"maxRequestMessageBytes\": \"/\"}]}",
     ("$.service_config.methodConfig[0].maxRequestMessageBytes: expected an integer from 0 to 4294967295, "
      "got a string")},
    {"{\"methodConfig\": [{\"maxRequestMessageBytes\": 1.5}]}",
     ("$.service_config.methodConfig[0].maxRequestMessageBytes: expected an integer from 0 to 4294967295, "
      "got a real number")},
    {("{\"methodConfig\": [{\"name\": [{\"service\": \"a\", \"method\": \"b\"}, {\"service\": \"a\", "
      "\"method\": \"b\"}]}]}"),
     "$.service_config.methodConfig[0].name[1]: this name has a config already"},
    {"{\"retryThrottling\": {\"maxTokens\": \"0\", \"tokenRatio\": 1}}",
     "$.service_config.retryThrottling.maxTokens: expected 1 or more"},
    {"{\"retryThrottling\": {\"maxTokens\": null, \"tokenRatio\": 1}}",
     "$.service_config.retryThrottling: it has no maxTokens"},
    {"{\"retryThrottling\": {\"maxTokens\": 1, \"tokenRatio\": null}}",
     "$.service_config.retryThrottling: it has no tokenRatio"},
    {"{\"loadBalancingPolicy\": \"Round_Robin\"}", NULL},
    {"{\"loadBalancingPolicy\": \"ROUND[ROBIN\"}", "$.service_config.loadBalancingPolicy: the policy is not known"},
    {"{\"loadBalancingPolicy\": \"unspecified\"}", NULL},
    {"{\"loadBalancingPolicy\": 1, \"loadBalancingConfig\": []}", NULL},
    {"{\"loadBalancingPolicy\": 1, \"loadBalancingConfig\": null}",
     "$.service_config.loadBalancingPolicy: expected a string, got an integer"},
};

TEST(json_texts_of_service_configs) { CHECK_ROWS(config_rows, config_of); }

OBJECT_READER(call_options_of, penstock_call_options, penstock_call_options_new, penstock_call_options_release)

static const row JSON_rows[] = {
    {"", "JSON at $:"},
    {"{", "JSON at $:"},
    {"}", "JSON at $:"},
    {"{\"a\"", "JSON at $:"},
    {"{\"a\":", "JSON at $.a:"},
    {"{\"a\":}", "JSON at $:"},
    {"{\"a\": 1,}", "JSON at $:"},
    {"{\"a\": {\"b\": [1, 2, x]}}", "JSON at $.a.b[2]:"},
    {"{\"a\": {\"b\": [1, {\"c\": 1, \"c\": 2}]}}", "JSON at $.a.b[1].c:"},
    {"{\"a\": 1, \"b\": tru}", "JSON at $.b:"},
    {"{\"a\": \"\\x\"}", "JSON at $.a:"},
    {"{\"a\": \"\\ud800\"}", "JSON at $.a:"},
    {"{\"a\": \"\001\"}", "JSON at $.a:"},
    {"[1, 2", "JSON at $[1]:"},
    {"{\"a\": 1} x", "JSON at $:"},
    {"{\"a\": [{\"b\": 1}, \"c\", {\"d\": }]}", "JSON at $.a[2]:"},
    {"{\"a\": {}, \"b\": [], \"c\": x}", "JSON at $.c:"},
    {"{\"a\\\"b\": x}", "JSON at $.a\\\"b:"},
    {"{\"a\": \"b\\\\\", \"c\": x}", "JSON at $.c:"},
    {"[\"a\": 1]", "JSON at $[0]:"},
    {"{\"a\": 1e999}", "JSON at $.a:"},
    {"{\"a\": 99999999999999999999}", "JSON at $.a:"},
    {"nul", "JSON at $:"},
    {"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[x",
     ("JSON at $[0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0]["
      "0][0]:")},
    {"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[x",
     ("JSON at $[0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0]["
      "0][0]:")},
    {"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
     ("JSON at $[0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0]["
      "0][0]:")},
    {"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",
     ("JSON at $[0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0][0]["
      "0][0]: nested more than 64 deep")},
    {("{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{"
      "\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\""
      "a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a"
      "\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\""
      ":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":{\"a\":"),
     "JSON at $.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a: nested more than 64 deep"},
    {"[\"]\",[\"]\",[\"]\",x", "JSON at $[1][1][1]:"},
};

TEST(json_texts_that_are_malformed) { CHECK_ROWS(JSON_rows, call_options_of); }
