/* The members of each JSON text of the library, in their order: numbers count as 0, words have to be right. */
#include "calls.h"

#include <ctype.h>

/* Copies the JSON, and replaces each number by 0, also in texts such as addresses. */
static const char *shape(const char *json) {
  static char text[16384];
  size_t length = 0;
  for (const char *at = json; *at != 0 && length + 1 < sizeof(text);) {
    if (!isdigit((unsigned char)*at)) {
      text[length++] = *at++;
      continue;
    }
    while (isdigit((unsigned char)*at) || ((*at == '.' || *at == ',') && isdigit((unsigned char)at[1]))) at++;
    text[length++] = '0';
  }
  text[length] = 0;
  return text;
}

#define CHECK_SHAPE(json, expected) CHECK_STR(shape(json), (expected))

/* The shape of a text that the library has made for the caller, which frees it. */
#define CHECK_OWN_SHAPE(call, expected)                                                                                \
  do {                                                                                                                 \
    char *json = NULL;                                                                                                 \
    if (OK(call)) CHECK_SHAPE(json, (expected));                                                                       \
    penstock_free(json);                                                                                               \
  } while (0)

/* The first members of a call and of a channel, up to the protocol. */
#define CALL_HEAD                                                                                                      \
  "{\"created_unix_ms\":0,\"first_byte_sent_us\":0,\"headers_us\":0,\"first_message_us\":0,"                           \
  "\"duration_us\":0,\"elapsed_us\":0,\"attempts\":0,\"waited\":{\"name_us\":0,\"connection_us\":0,"                   \
  "\"slot_us\":0},\"sent\":{\"messages\":0,\"bytes\":0,\"compressed_bytes\":0,\"wire_bytes\":0},"                      \
  "\"received\":{\"messages\":0,\"bytes\":0,\"compressed_bytes\":0,\"wire_bytes\":0},\"peer\":\"0:0\","                \
  "\"local\":\"0:0\","
#define CHANNEL_HEAD                                                                                                   \
  "{\"target\":\"0:0\",\"state\":\"ready\",\"policy\":\"pick_first\",\"name\":{\"addresses\":0,"                       \
  "\"resolving\":false,\"last_error\":null,\"next_ms\":null},\"attempts\":{\"started\":0,"                             \
  "\"succeeded\":0,\"failed\":0,\"in_flight\":0,\"waiting\":0,\"retries\":0,\"repeats\":0,"                            \
  "\"throttled\":0},\"throttle\":null,\"tls\":null,\"endpoints\":[{\"address\":\"0:0\","                               \
  "\"state\":\"ready\",\"current\":true,\"ejected\":false,\"weight\":0,\"last_error\":null,"                           \
  "\"failures\":0,\"next_ms\":null,\"connections\":[{\"state\":\"ready\",\"peer\":\"0:0\","                            \
  "\"local\":\"0:0\","

/* A call by gRPC, by gRPC over TLS, and by Connect over HTTP/1.1. */
TEST(shape_of_the_statistics_of_calls) {
  static const struct {
    const char *call, *channel;
  } shapes[] = {
      {(CALL_HEAD "\"protocol\":\"grpc\",\"http\":\"0\",\"connection_silent_ms\":0,\"tls\":null}"),
       (CHANNEL_HEAD "\"protocol\":\"grpc\",\"http\":\"0\",\"tls\":null,\"tls_resumed\":null,"
                     "\"age_ms\":0,\"silent_ms\":0,\"streams\":0,\"streams_waiting\":0,\"streams_allowed\":null,"
                     "\"streams_opened\":0,\"sent_messages\":0,\"received_messages\":0,\"sent_bytes\":0,"
                     "\"received_bytes\":0,\"keepalives\":0,\"keepalives_answered\":0,\"send_window\":0,"
                     "\"receive_window\":0}]}]}")},
      {(CALL_HEAD "\"protocol\":\"grpc\",\"http\":\"0\",\"connection_silent_ms\":0,"
                  "\"tls\":{\"version\":\"TLSv0\",\"cipher\":\"TLS_AES_0_GCM_SHA0\",\"alpn\":\"h0\","
                  "\"certificates\":0}}"),
       ("{\"target\":\"0:0\",\"state\":\"ready\",\"policy\":\"pick_first\",\"name\":{\"addresses\":0,"
        "\"resolving\":false,\"last_error\":null,\"next_ms\":null},\"attempts\":{\"started\":0,"
        "\"succeeded\":0,\"failed\":0,\"in_flight\":0,\"waiting\":0,\"retries\":0,\"repeats\":0,"
        "\"throttled\":0},\"throttle\":null,\"tls\":{\"full_handshakes\":0,\"resumed_handshakes\":0},"
        "\"endpoints\":[{\"address\":\"0:0\",\"state\":\"ready\",\"current\":true,\"ejected\":false,"
        "\"weight\":0,\"last_error\":null,\"failures\":0,\"next_ms\":null,"
        "\"connections\":[{\"state\":\"ready\",\"peer\":\"0:0\",\"local\":\"0:0\",\"protocol\":\"grpc\","
        "\"http\":\"0\",\"tls\":\"TLSv0\",\"tls_resumed\":false,\"age_ms\":0,\"silent_ms\":0,\"streams\":0,"
        "\"streams_waiting\":0,\"streams_allowed\":null,\"streams_opened\":0,\"sent_messages\":0,"
        "\"received_messages\":0,\"sent_bytes\":0,\"received_bytes\":0,\"keepalives\":0,"
        "\"keepalives_answered\":0,\"send_window\":0,\"receive_window\":0}]}]}")},
      {(CALL_HEAD "\"protocol\":\"connect\",\"http\":\"0\",\"connection_silent_ms\":0,\"tls\":null}"),
       (CHANNEL_HEAD "\"protocol\":\"connect\",\"http\":\"0\",\"tls\":null,\"tls_resumed\":null,"
                     "\"age_ms\":0,\"silent_ms\":0,\"streams\":0,\"streams_waiting\":0,\"streams_allowed\":0,"
                     "\"streams_opened\":0,\"sent_messages\":0,\"received_messages\":0,\"sent_bytes\":0,"
                     "\"received_bytes\":0,\"keepalives\":null,\"keepalives_answered\":null,\"send_window\":null,"
                     "\"receive_window\":null}]}]}")}};
  penstock_channel *channels[3] = {open_channel(), open_tls_channel(false)};
  OK(penstock_channel_new(peer_address(), "{\"tls\": false, \"protocol\": \"connect\"}", &channels[2], NULL));
  for (int i = 0; i < 3; i++) {
    penstock_reply *reply = NULL;
    if (OK(penstock_channel_unary(channels[i], UNARY, "ping", 4, NULL, &reply, NULL))) {
      CHECK_SHAPE(penstock_reply_stats_json(reply), shapes[i].call);
      CHECK_STR(penstock_reply_status_json(reply),
                "{\"code\":0,\"name\":\"OK\",\"message\":\"\",\"metadata\":{},\"details\":[]}");
      CHECK_STR(penstock_reply_trace_json(reply), "{}");
      CHECK_OWN_SHAPE(penstock_channel_stats_json(channels[i], 60000, &json), shapes[i].channel);
    }
    penstock_reply_release(reply);
    penstock_channel_release(channels[i]);
  }
}

TEST(shape_of_the_statistics_without_a_server) {
  penstock_channel *channel = NULL;
  penstock_reply *reply = NULL;
  OK(penstock_channel_new(dead_address(),
                          "{\"tls\": false, \"service_config\": {\"retryThrottling\": "
                          "{\"maxTokens\": 10, \"tokenRatio\": 0.5}}}",
                          &channel, NULL));
  CHECK_OWN_SHAPE(penstock_channel_stats_json(channel, 60000, &json),
                  "{\"target\":\"0:0\",\"state\":\"idle\",\"policy\":\"pick_first\",\"name\":{\"addresses\":0,"
                  "\"resolving\":false,\"last_error\":null,\"next_ms\":null},\"attempts\":{\"started\":0,"
                  "\"succeeded\":0,\"failed\":0,\"in_flight\":0,\"waiting\":0,\"retries\":0,\"repeats\":0,"
                  "\"throttled\":0},\"throttle\":{\"tokens\":0,\"max_tokens\":0,\"retries_allowed\":true},\"tls\":null,"
                  "\"endpoints\":[]}");
  if (OK(penstock_channel_unary(channel, UNARY, "ping", 4, NULL, &reply, NULL))) {
    CHECK_SHAPE(penstock_reply_stats_json(reply),
                "{\"created_unix_ms\":0,\"first_byte_sent_us\":null,\"headers_us\":null,\"first_message_us\":null,"
                "\"duration_us\":0,\"elapsed_us\":0,\"attempts\":0,\"waited\":{\"name_us\":0,\"connection_us\":0,"
                "\"slot_us\":0},\"sent\":{\"messages\":0,\"bytes\":0,\"compressed_bytes\":0,\"wire_bytes\":0},"
                "\"received\":{\"messages\":0,\"bytes\":0,\"compressed_bytes\":0,\"wire_bytes\":0},\"peer\":null,"
                "\"local\":null,\"protocol\":null,\"http\":null,\"connection_silent_ms\":null,\"tls\":null}");
  }
  penstock_reply_release(reply);
  penstock_channel_release(channel);
}

/* Some of the events of a call, in their order. */
static const char *const events[] = {
    ("{\"us\":0,\"what\":\"caller\",\"hop\":null,\"event\":\"start\",\"lane\":\"outbound\","
     "\"thread\":\"driving\",\"thread_id\":0}"),
    ("{\"us\":0,\"what\":\"callback\",\"hop\":\"auth\",\"index\":0,\"level\":\"bytes\",\"attempt\":0,"
     "\"event\":\"create\",\"lane\":null,\"verdict\":\"NEXT\",\"took_us\":0,\"thread\":\"driving\","
     "\"thread_id\":0}"),
    ("{\"us\":0,\"what\":\"callback\",\"hop\":\"auth\",\"index\":0,\"level\":\"bytes\",\"attempt\":0,"
     "\"event\":\"start\",\"lane\":\"outbound\",\"verdict\":\"NEXT\",\"took_us\":0,\"thread\":\"driving\","
     "\"thread_id\":0}"),
    ("{\"us\":0,\"what\":\"callback\",\"hop\":\"auth\",\"index\":0,\"level\":\"bytes\",\"attempt\":0,"
     "\"event\":\"demand\",\"lane\":\"outbound\",\"took_us\":0,\"thread\":\"driving\",\"thread_id\":0}"),
    ("{\"us\":0,\"what\":\"transport\",\"hop\":null,\"event\":\"start\",\"lane\":\"outbound\","
     "\"thread\":\"driving\",\"thread_id\":0}"),
    ("{\"us\":0,\"what\":\"waiting\",\"hop\":null,\"event\":\"start\",\"lane\":\"outbound\","
     "\"for\":\"name\",\"thread\":\"driving\",\"thread_id\":0}"),
    ("{\"us\":0,\"what\":\"callback\",\"hop\":\"auth\",\"index\":0,\"level\":\"bytes\",\"attempt\":0,"
     "\"event\":\"send\",\"lane\":\"outbound\",\"verdict\":\"NEXT\",\"took_us\":0,\"thread\":\"driving\","
     "\"thread_id\":0}"),
    ("{\"us\":0,\"what\":\"callback\",\"hop\":\"auth\",\"index\":0,\"level\":\"bytes\",\"attempt\":0,"
     "\"event\":\"half_close\",\"lane\":\"outbound\",\"verdict\":\"NEXT\",\"took_us\":0,"
     "\"thread\":\"driving\",\"thread_id\":0}"),
    ("{\"us\":0,\"what\":\"waiting\",\"hop\":null,\"event\":\"start\",\"lane\":\"outbound\","
     "\"for\":\"connection\",\"thread\":\"driving\",\"thread_id\":0}"),
    ("{\"us\":0,\"what\":\"waiting\",\"hop\":null,\"event\":\"start\",\"lane\":\"outbound\",\"for\":null,"
     "\"thread\":\"driving\",\"thread_id\":0}"),
    ("{\"us\":0,\"what\":\"callback\",\"hop\":\"auth\",\"index\":0,\"level\":\"bytes\",\"attempt\":0,"
     "\"event\":\"headers\",\"lane\":\"inbound\",\"verdict\":\"NEXT\",\"took_us\":0,"
     "\"thread\":\"driving\",\"thread_id\":0}"),
    ("{\"us\":0,\"what\":\"callback\",\"hop\":\"auth\",\"index\":0,\"level\":\"bytes\",\"attempt\":0,"
     "\"event\":\"receive\",\"lane\":\"inbound\",\"verdict\":\"NEXT\",\"took_us\":0,"
     "\"thread\":\"driving\",\"thread_id\":0}"),
    ("{\"us\":0,\"what\":\"callback\",\"hop\":\"auth\",\"index\":0,\"level\":\"bytes\",\"attempt\":0,"
     "\"event\":\"status\",\"lane\":\"inbound\",\"verdict\":\"NEXT\",\"took_us\":0,\"thread\":\"driving\","
     "\"thread_id\":0}"),
    ("{\"us\":0,\"what\":\"transport\",\"hop\":null,\"event\":\"status\",\"lane\":\"inbound\",\"code\":0,"
     "\"thread\":\"driving\",\"thread_id\":0}")};

static int32_t look(probe *self, penstock_hop *hop, int32_t event) {
  if (event == PENSTOCK_EVENT_STATUS) {
    CHECK_OWN_SHAPE(
        penstock_hop_stats_json(hop, &json),
        "{\"created_unix_ms\":0,\"first_byte_sent_us\":0,\"headers_us\":0,\"first_message_us\":0,"
        "\"duration_us\":null,\"elapsed_us\":0,\"attempts\":0,\"waited\":{\"name_us\":0,\"connection_us\":0,"
        "\"slot_us\":0},\"sent\":{\"messages\":0,\"bytes\":0,\"compressed_bytes\":0,\"wire_bytes\":0},"
        "\"received\":{\"messages\":0,\"bytes\":0,\"compressed_bytes\":0,\"wire_bytes\":0},\"peer\":\"0:0\","
        "\"local\":\"0:0\",\"protocol\":\"grpc\",\"http\":\"0\",\"connection_silent_ms\":0,\"tls\":null}");
    char *json = NULL;
    if (OK(penstock_hop_trace_json(hop, &json))) {
      CHECK_HAS(shape(json),
                "\"ended\":false,\"age_ms\":0,\"deadline_ms\":null,\"attempts\":0,\"protocol\":\"grpc\","
                "\"http\":\"0\",\"connection_silent_ms\":0,\"peer\":\"0:0\",\"local\":\"0:0\","
                "\"holder\":{\"state\":\"running\",\"hop\":\"auth\","
                "\"text\":\"in the callback of `auth` about status\"},\"outbound\":[],\"inbound\":[],\"events\":[");
      for (int i = 0; i < 12; i++) CHECK_HAS(shape(json), events[i]);
    }
    penstock_free(json);
    atomic_fetch_add((atomic_int *)self->context, 1);
  }
  return PENSTOCK_NEXT;
}

TEST(shape_of_a_trace) {
  penstock_channel *channel = open_channel();
  penstock_call_options *options = options_of("{\"trace\": true}");
  penstock_reply *reply = NULL;
  atomic_int looked = 0;
  probe probe;
  probe_init_with(&probe, "auth", look, &looked);
  probe_add(&probe, channel, 3);
  if (OK(penstock_channel_unary(channel, UNARY, "ping", 4, options, &reply, NULL))) {
    const char *text = shape(penstock_reply_trace_json(reply));
    CHECK_HAS(text,
              "{\"id\":0,\"method\":\"/penstock.Echo/Unary\",\"kind\":\"unary\",\"target\":\"0:0\",\"ended\":true,"
              "\"holder\":null,\"events\":[");
    CHECK_HAS(text, "],\"dropped\":0}");
    for (size_t i = 0; i < sizeof(events) / sizeof(*events); i++) CHECK_HAS(text, events[i]);
  }
  CHECK_INT(looked, 1);
  penstock_reply_release(reply);
  CHECK_OWN_SHAPE(penstock_channel_interceptors_json(channel, &json),
                  "[{\"id\":0,\"name\":\"auth\",\"priority\":0,\"place\":\"channel\",\"level\":\"bytes\","
                  "\"per\":\"call\",\"methods\":\"*\",\"kinds\":[\"unary\",\"client_stream\",\"server_stream\","
                  "\"bidi\"],\"calls_in_flight\":0,\"calls_seen\":0}]");
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  probe_wait_finalized(&probe);
}

static int32_t pause_start(probe *self, penstock_hop *hop, int32_t event) {
  if (event != PENSTOCK_EVENT_START) return PENSTOCK_NEXT;
  atomic_store((_Atomic uint64_t *)self->context, penstock_hop_ticket(hop));
  return PENSTOCK_PAUSE;
}

TEST(shape_of_a_snapshot) {
  penstock_runtime *runtime = new_runtime("{}");
  penstock_channel *channel = open_channel_on(runtime);
  _Atomic uint64_t ticket = 0;
  probe probe;
  probe_init_with(&probe, "auth", pause_start, &ticket);
  probe_add_to_runtime(&probe, runtime, -2);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  EVENTUALLY(ticket != 0);
  CHECK_OWN_SHAPE(penstock_runtime_snapshot_json(runtime, 60000, &json),
                  "{\"complete\":true,\"running\":null,\"calls\":[{\"id\":0,\"method\":\"/penstock.Echo/Bidi\","
                  "\"kind\":\"bidi\",\"target\":\"0:0\",\"age_ms\":0,\"deadline_ms\":null,\"attempts\":0,"
                  "\"protocol\":null,\"http\":null,\"connection_silent_ms\":null,\"peer\":null,\"local\":null,"
                  "\"holder\":{\"state\":\"paused\",\"hop\":\"auth\",\"for_ms\":0,"
                  "\"text\":\"paused in `auth` for 0 ms\"},\"outbound\":[{\"hop\":\"auth\",\"index\":0,"
                  "\"level\":\"bytes\",\"attempt\":0,\"state\":\"paused\",\"event\":\"start\",\"for_ms\":0,"
                  "\"waiting\":0}],\"inbound\":[]}],\"channels\":[{\"target\":\"0:0\",\"state\":\"idle\","
                  "\"policy\":\"pick_first\",\"name\":{\"addresses\":0,\"resolving\":false,\"last_error\":null,"
                  "\"next_ms\":null},\"attempts\":{\"started\":0,\"succeeded\":0,\"failed\":0,\"in_flight\":0,"
                  "\"waiting\":0,\"retries\":0,\"repeats\":0,\"throttled\":0},\"throttle\":null,\"tls\":null,"
                  "\"endpoints\":[]}]}");
  /* A loop that is busy for 100 ms does not answer: then there is no holder. */
  char *trace = NULL;
  EVENTUALLY((penstock_free(trace), trace = NULL, OK(penstock_call_trace_json(call, &trace))) &&
             strstr(trace, "\"holder\":{"));
  if (trace) {
    CHECK_SHAPE(trace,
                "{\"id\":0,\"method\":\"/penstock.Echo/Bidi\",\"kind\":\"bidi\",\"target\":\"0:0\",\"ended\":false,"
                "\"age_ms\":0,\"deadline_ms\":null,\"attempts\":0,\"protocol\":null,\"http\":null,"
                "\"connection_silent_ms\":null,\"peer\":null,\"local\":null,\"holder\":{\"state\":\"paused\","
                "\"hop\":\"auth\",\"for_ms\":0,\"text\":\"paused in `auth` for 0 ms\"},"
                "\"outbound\":[{\"hop\":\"auth\",\"index\":0,\"level\":\"bytes\",\"attempt\":0,\"state\":\"paused\","
                "\"event\":\"start\",\"for_ms\":0,\"waiting\":0}],\"inbound\":[],\"events\":null,\"dropped\":0}");
  }
  penstock_free(trace);
  CHECK_OWN_SHAPE(penstock_runtime_interceptors_json(runtime, &json),
                  "[{\"id\":0,\"name\":\"auth\",\"priority\":-0,\"place\":\"runtime\",\"level\":\"bytes\","
                  "\"per\":\"call\",\"methods\":\"*\",\"kinds\":[\"unary\",\"client_stream\",\"server_stream\","
                  "\"bidi\"],\"calls_in_flight\":0,\"calls_seen\":0}]");
  OK(penstock_ticket_resolve(ticket, PENSTOCK_NEXT));
  OK(penstock_call_half_close(call));
  penstock_reply *reply = NULL;
  OK(penstock_call_wait(call, &reply));
  CHECK_OWN_SHAPE(penstock_call_trace_json(call, &json),
                  "{\"id\":0,\"method\":\"/penstock.Echo/Bidi\",\"kind\":\"bidi\",\"target\":\"0:0\",\"ended\":true,"
                  "\"holder\":null,\"events\":null,\"dropped\":0}");
  penstock_reply_release(reply);
  penstock_call_release(call);
  penstock_channel_release(channel);
  OK(penstock_runtime_shutdown(runtime, -1));
  penstock_runtime_release(runtime);
  probe_wait_finalized(&probe);
}

TEST(shape_of_the_texts_of_ready_interceptors) {
  penstock_telemetry *telemetry = NULL;
  penstock_metrics *metrics = NULL;
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT, throttled = PENSTOCK_INTERCEPTOR_INIT;
  OK(penstock_telemetry_new(NULL, &telemetry, NULL));
  OK(penstock_metrics_new(NULL, &metrics, NULL));
  OK(penstock_ready_hedging(NULL, NULL, &table, NULL));
  OK(penstock_ready_hedging("{\"throttle\": {\"max_tokens\": 10}}", NULL, &throttled, NULL));
  CHECK_OWN_SHAPE(penstock_telemetry_stats_json(telemetry, &json),
                  "{\"spans\":{\"kept\":0,\"bytes\":0,\"taken\":0,\"dropped\":0,\"refused\":0},\"exports\":{\"sent\":0,"
                  "\"failed\":0,\"code\":null,\"message\":null}}");
  CHECK_OWN_SHAPE(penstock_metrics_snapshot_json(metrics, &json), "{\"methods\":[],\"peers\":[]}");
  CHECK_OWN_SHAPE(penstock_hedging_stats_json(&table, &json),
                  "{\"calls\":0,\"sent\":0,\"open\":0,\"won\":0,\"failed\":0,\"cancelled\":0,\"hedges\":0,"
                  "\"hedges_won\":0,\"throttled\":0,\"refused\":0,\"throttle\":null}");
  CHECK_OWN_SHAPE(penstock_hedging_stats_json(&throttled, &json),
                  "{\"calls\":0,\"sent\":0,\"open\":0,\"won\":0,\"failed\":0,\"cancelled\":0,\"hedges\":0,"
                  "\"hedges_won\":0,\"throttled\":0,\"refused\":0,\"throttle\":{\"tokens\":0,\"max_tokens\":0,"
                  "\"retries_allowed\":true}}");
  table.finalizer(table.user_data);
  throttled.finalizer(throttled.user_data);
  penstock_telemetry_release(telemetry);
  penstock_metrics_release(metrics);
}
