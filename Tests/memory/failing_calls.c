/* Scenarios with calls to the peer. */
#include "failing.h"

#include <stdio.h>
#include <string.h>

static void field(const penstock_metadata *metadata, const char *name, const char *value) {
  const void *found = NULL;
  if (!metadata) return wrong("no metadata for %s", name);
  penstock_result result = penstock_metadata_get(metadata, name, 0, &found, NULL);
  if (result == PENSTOCK_E_NO_MEMORY && refusing) return;
  if (result != PENSTOCK_OK || strcmp(found, value) != 0)
    wrong("%s is %s", name, found ? (const char *)found : "not there");
}

/* Checks a trailer, which may be missing if there was no memory for it. */
static void trailer(const penstock_metadata *trailers, const char *name, const char *value) {
  const void *found = NULL;
  if (!refusing || penstock_metadata_get(trailers, name, 0, &found, NULL) == PENSTOCK_OK) field(trailers, name, value);
}

static bool unary(penstock_channel *channel, const char *options, int32_t code, size_t length) {
  penstock_call_options *made = new_options(options);
  penstock_reply *reply = NULL;
  penstock_error *error = NULL;
  bool isDone = made && TRY(penstock_channel_unary(channel, UNARY, some_bytes(length), length, made, &reply, &error));
  penstock_call_options_release(made);
  return isDone && ended(reply, code, code == 0 ? some_bytes(length) : NULL, length);
}

static void plain(void) {
  penstock_runtime *runtime = new_runtime();
  penstock_channel *channel = new_channel(runtime, peer, "{\"tls\": false}");
  if (channel) {
    for (int i = 0; i < 2; i++) unary(channel, "{}", 0, 100);
  }
  close_all(runtime, channel);
}

static void by_name(void) {
  char target[64];
  snprintf(target, sizeof(target), "dns:///localhost:%s", strrchr(peer, ':') + 1);
  penstock_runtime *runtime = new_runtime();
  penstock_channel *channel = new_channel(runtime, target, "{\"tls\": false}");
  if (channel) unary(channel, "{}", 0, 1);
  close_all(runtime, channel);
}

/* Makes a call with metadata both ways and a trace, and uses all functions of its reply. */
static void with_metadata(void) {
  penstock_runtime *runtime = new_runtime();
  penstock_channel *channel = new_channel(runtime, peer, "{\"tls\": false, \"trace\": true, \"user_agent\": \"me/1\"}");
  penstock_call_options *options =
      channel ? new_options("{\"metadata\": {\"x-headers-one\": \"one\", \"x-trailers-bin\": \"AAECAw==\", "
                            "\"x-trailers-two\": \"two\", \"x-echo-metadata\": \"1\"}, \"deadline_ms\": 50000}")
              : NULL;
  penstock_error *error = NULL;
  penstock_reply *reply = NULL;
  if (options && TRY(penstock_channel_unary(channel, UNARY, "ping", 4, options, &reply, &error))) {
    if (penstock_reply_code(reply) == 0) {
      field(penstock_reply_headers(reply), "x-headers-one", "one");
      trailer(penstock_reply_trailers(reply), "x-trailers-two", "two");
      trailer(penstock_reply_trailers(reply), "seen-user-agent", "me/1 penstock/" PENSTOCK_VERSION);
      has(penstock_reply_status_json(reply), refusing ? "\"metadata\":" : "\"x-trailers-bin\":[\"AAECAw==\"]");
      has(penstock_reply_trace_json(reply), refusing ? "\"events\":" : "\"what\":\"ended\"");
      has(penstock_reply_stats_json(reply), "\"peer\":\"127.0.0.1:");
    }
    ended(reply, 0, "ping", 4);
  }
  penstock_call_options_release(options);
  close_all(runtime, channel);
}

static void with_details(void) {
  penstock_runtime *runtime = new_runtime();
  penstock_channel *channel = new_channel(runtime, peer, "{\"tls\": false}");
  /* A google.rpc.Status: code 5, "gone", and a detail of type "t/a" with "xyz". */
  penstock_call_options *options =
      channel ? new_options("{\"metadata\": {\"x-status\": \"5\", \"x-message\": \"gone away\", \"x-details-bin\": "
                            "\"CAUSBGdvbmUaCgoDdC9hEgN4eXo=\", \"x-trailers-one\": \"1\"}}")
              : NULL;
  penstock_reply *reply = NULL;
  penstock_error *error = NULL;
  if (options && TRY(penstock_channel_unary(channel, UNARY, "ping", 4, options, &reply, &error))) {
    const penstock_status *status = penstock_reply_status(reply);
    if (penstock_reply_code(reply) == 5) {
      if (!refusing || *penstock_status_message(status, NULL)) has(penstock_status_message(status, NULL), "gone");
      size_t count = penstock_status_detail_count(status);
      if (count != 1 && !(count == 0 && refusing)) wrong("%zu details of 1", count);
      has(penstock_reply_status_json(reply), count ? "\"base64\":\"eHl6\"" : "\"code\":5");
    }
    ended(reply, 5, NULL, 0);
  }
  penstock_call_options_release(options);
  close_all(runtime, channel);
}

static void compressed(void) {
  penstock_runtime *runtime = new_runtime();
  penstock_channel *channel = new_channel(runtime, peer, "{\"tls\": false, \"compression\": \"gzip\"}");
  if (channel) {
    unary(channel, "{\"metadata\": {\"x-compress\": \"gzip\"}}", 0, 200000);
    unary(channel, "{\"metadata\": {\"x-compress\": \"gzip\"}}", 0, 10);
  }
  close_all(runtime, channel);
}

static void large(void) {
  penstock_runtime *runtime = new_runtime();
  penstock_channel *channel = new_channel(runtime, peer, "{\"tls\": false}");
  if (channel) unary(channel, "{}", 0, 3 << 20);
  close_all(runtime, channel);
}

/* ---- Streams ---- */

static bool send(penstock_call *call, size_t length) {
  penstock_result result = penstock_call_send(call, some_bytes(length), length);
  return result != PENSTOCK_E_GONE && WENT(result);
}

static bool receive(penstock_call *call, size_t length) {
  penstock_message *message = NULL;
  penstock_result result = penstock_call_receive(call, &message);
  if (result == PENSTOCK_E_END && refusing) return false;
  if (!WENT(result)) return false;
  size_t got = 0;
  const void *data = penstock_message_bytes(message, &got);
  if (got != length || memcmp(data, some_bytes(length), length) != 0) {
    wrong("a message of %zu bytes, not %zu", got, length);
  }
  penstock_message_release(message);
  return true;
}

static void finish(penstock_call *call, int32_t code) {
  penstock_reply *reply = NULL;
  if (WENT(penstock_call_wait(call, &reply))) ended(reply, code, NULL, 0);
  penstock_call_release(call);
}

static void streamed(penstock_channel *channel, const char *json) {
  static const size_t sizes[] = {0, 10, 30000, 300000, 1};
  penstock_call_options *options = new_options(json);
  penstock_error *error = NULL;
  penstock_call *call = NULL;
  if (options && TRY(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, options, NULL, &call, &error))) {
    const penstock_metadata *headers = NULL;
    penstock_result result = penstock_call_wait_headers(call, &headers);
    if (result == PENSTOCK_OK) field(headers, "x-headers-one", "one");
    if (result != PENSTOCK_OK && !refusing) WENT(result);
    bool goes = result == PENSTOCK_OK;
    for (size_t i = 0; goes && i < COUNT(sizes); i++) goes = send(call, sizes[i]) && receive(call, sizes[i]);
    char *json_text = NULL;
    if (goes && WENT(penstock_call_trace_json(call, &json_text))) owned_has(json_text, "\"ended\":");
    if (goes) penstock_call_half_close(call);
    if (!goes) penstock_call_cancel(call, "enough");
    if (goes) {
      finish(call, 0);
    } else {
      penstock_reply *reply = NULL;
      if (WENT(penstock_call_wait(call, &reply))) penstock_reply_release(reply);
      penstock_call_release(call);
    }
  }
  penstock_call_options_release(options);
}

static void streams(void) {
  penstock_runtime *runtime = new_runtime();
  penstock_channel *channel = new_channel(runtime, peer, "{\"tls\": false, \"trace\": {\"events\": 1000}}");
  if (channel) streamed(channel, "{\"metadata\": {\"x-headers-one\": \"one\", \"x-trailers-one\": \"1\"}}");
  close_all(runtime, channel);
}

static void compressed_streams(void) {
  penstock_runtime *runtime = new_runtime();
  penstock_channel *channel = new_channel(runtime, peer, "{\"tls\": false, \"compression\": \"gzip\"}");
  if (channel) streamed(channel, "{\"metadata\": {\"x-headers-one\": \"one\", \"x-compress\": \"gzip\"}}");
  close_all(runtime, channel);
}

/* Sends many messages in one call, and receives what has come in one call. */
static void many(void) {
  enum { MANY = 40, LENGTH = 10 };
  static char data[MANY * LENGTH], room[MANY * LENGTH];
  size_t lengths[MANY], sent = 0, came = 0, count = 0;
  for (size_t i = 0; i < MANY; i++) {
    lengths[i] = LENGTH;
    memset(data + i * LENGTH, (int)i, LENGTH);
  }
  penstock_runtime *runtime = new_runtime();
  penstock_channel *channel = new_channel(runtime, peer, "{\"tls\": false}");
  penstock_call *call = NULL;
  penstock_error *error = NULL;
  if (channel && TRY(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, NULL, &call, &error))) {
    penstock_result result = penstock_call_send_many(call, data, lengths, MANY, &sent);
    bool goes = result != PENSTOCK_E_GONE && WENT(result);
    if (goes != (sent == MANY)) wrong("%zu messages sent of %d", sent, MANY);
    for (; goes && came < sent; came += count) {
      result = penstock_call_receive_many(call, MANY, room, sizeof(room), lengths, &count);
      goes = !(result == PENSTOCK_E_END && refusing) && WENT(result);
      if (!goes) break;
      if (memcmp(room, data + came * LENGTH, count * LENGTH) != 0) wrong("other messages than were sent");
    }
    if (goes) {
      finish(call, 0);
    } else {
      penstock_call_cancel(call, "enough");
      penstock_reply *reply = NULL;
      if (WENT(penstock_call_wait(call, &reply))) penstock_reply_release(reply);
      penstock_call_release(call);
    }
  }
  close_all(runtime, channel);
}

/* ---- Other protocols ---- */

/* Makes a bidi call that sends all its messages before it receives, as HTTP/1.1 needs it. */
static void in_turns(penstock_channel *channel, const char *json) {
  static const size_t sizes[] = {10, 30000, 0};
  penstock_call_options *options = new_options(json);
  penstock_error *error = NULL;
  penstock_call *call = NULL;
  bool goes = options && TRY(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, options, NULL, &call, &error));
  penstock_call_options_release(options);
  if (!goes) return;
  for (size_t i = 0; goes && i < COUNT(sizes); i++) goes = send(call, sizes[i]);
  penstock_result result = goes ? penstock_call_half_close(call) : PENSTOCK_E_GONE;
  goes = result != PENSTOCK_E_GONE && WENT(result);
  for (size_t i = 0; goes && i < COUNT(sizes); i++) goes = receive(call, sizes[i]);
  if (goes) return finish(call, 0);
  penstock_call_cancel(call, "enough");
  penstock_reply *reply = NULL;
  if (WENT(penstock_call_wait(call, &reply))) penstock_reply_release(reply);
  penstock_call_release(call);
}

/* Makes calls over a protocol and a version of HTTP: with metadata, compressed, safe to repeat (Connect: by GET), with
 * an error, and as a stream. */
static void over(const char *protocol, const char *http) {
  char options[200];
  snprintf(options, sizeof(options),
           "{\"tls\": false, \"protocol\": \"%s\", \"http\": \"%s\", \"compression\": \"gzip\"}", protocol, http);
  penstock_runtime *runtime = new_runtime();
  penstock_channel *channel = new_channel(runtime, peer, options);
  if (channel) {
    unary(channel,
          "{\"metadata\": {\"x-headers-one\": \"one\", \"x-trailers-bin\": \"AAECAw==\"}, \"deadline_ms\": 50000}", 0,
          10);
    unary(channel, "{\"metadata\": {\"x-compress\": \"gzip\"}}", 0, 100000);
    unary(channel, "{\"idempotency\": \"no_side_effects\"}", 0, 20);
    unary(channel,
          "{\"metadata\": {\"x-status\": \"5\", \"x-message\": \"gone\", \"x-details-bin\": "
          "\"CAUSBGdvbmUaCgoDdC9hEgN4eXo=\", \"x-trailers-one\": \"1\"}}",
          5, 0);
    in_turns(channel, "{\"metadata\": {\"x-compress\": \"gzip\", \"x-trailers-one\": \"1\"}}");
  }
  close_all(runtime, channel);
}

static void connect_over_1(void) { over("connect", "1.1"); }
static void connect_over_2(void) { over("connect", "2"); }
static void web_over_1(void) { over("grpc-web", "1.1"); }
static void web_text_over_2(void) { over("grpc-web-text", "2"); }

/* Makes several calls at once, which all send the same message of lent bytes. */
static void side_by_side(void) {
  penstock_runtime *runtime = new_runtime();
  penstock_channel *channel = new_channel(runtime, peer, "{\"tls\": false}");
  penstock_call *open[4] = {NULL};
  penstock_message *message = NULL;
  if (channel && WENT(penstock_message_new_lent(some_bytes(100000), 100000, 0, NULL, NULL, &message))) {
    for (size_t i = 0; i < COUNT(open); i++) {
      penstock_error *error = NULL;
      if (!TRY(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, NULL, &open[i], &error))) continue;
      penstock_result result = penstock_call_send_message(open[i], message);
      if (result != PENSTOCK_E_GONE || !refusing) WENT(result);
    }
    char *json = NULL;
    if (WENT(penstock_runtime_snapshot_json(runtime, 1000, &json))) owned_has(json, "\"complete\":");
    for (size_t i = 0; i < COUNT(open); i++) {
      if (!open[i]) continue;
      bool came = receive(open[i], 100000);
      penstock_result result = penstock_call_half_close(open[i]);
      if (result != PENSTOCK_E_GONE && !(came && WENT(result))) penstock_call_cancel(open[i], "enough");
      penstock_reply *reply = NULL;
      if (WENT(penstock_call_wait(open[i], &reply))) {
        if (came)
          ended(reply, 0, NULL, 0);
        else
          penstock_reply_release(reply);
      }
      penstock_call_release(open[i]);
    }
  }
  penstock_message_release(message);
  close_all(runtime, channel);
}

/* ---- Traces ---- */

/* Makes a call with `events` events in its trace, and waits for its end. A scenario does so in its first run, in which
 * no allocation fails, and keeps the call for all runs. */
static penstock_call *traced_call(int events) {
  char options[100];
  snprintf(options, sizeof(options), "{\"tls\": false, \"trace\": {\"events\": %d}}", events);
  penstock_runtime *runtime = new_runtime();
  penstock_channel *channel = new_channel(runtime, peer, options);
  penstock_call *call = NULL;
  if (!channel || !WENT(penstock_channel_call(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, NULL, &call, NULL))) return NULL;
  /* Each message sent and received adds more than four events. */
  for (int i = 0; i < events / 4 && send(call, 1) && receive(call, 1); i++) continue;
  penstock_reply *reply = NULL;
  if (WENT(penstock_call_wait(call, &reply))) penstock_reply_release(reply);
  return call;
}

static void look_at_trace(penstock_call *call, int events) {
  char *json = NULL;
  if (!call || !WENT(penstock_call_trace_json(call, &json))) return;
  int count = 0;
  for (const char *at = strstr(json, "{\"us\":"); at; at = strstr(at + 1, "{\"us\":")) count++;
  if (count != events) wrong("%d events of %d", count, events);
  owned_has(json, "\"what\":\"ended\"");
}

static void trace(void) {
  static penstock_call *call;
  if (!call) call = traced_call(40);
  look_at_trace(call, 40);
}

static void long_trace(void) {
  static penstock_call *call;
  if (!call) call = traced_call(65536);
  look_at_trace(call, 65536);
}

/* ---- TLS ---- */

static void secure(void (*made)(void)) {
  char options[2000];
  snprintf(
      options, sizeof(options),
      "{\"tls\": {\"roots_file\": \"%s/ca.pem\", \"certificate_chain_file\": \"%s/client.pem\", \"private_key_file\": "
      "\"%s/client.key\"}}",
      certificates, certificates, certificates);
  penstock_runtime *runtime = new_runtime();
  penstock_channel *channel = new_channel(runtime, tls_peer, options);
  made();
  penstock_reply *reply = NULL;
  penstock_error *error = NULL;
  if (channel && TRY(penstock_channel_unary(channel, UNARY, "ping", 4, NULL, &reply, &error))) {
    char *pem = NULL;
    if (penstock_reply_code(reply) == 0) {
      if (WENT(penstock_reply_peer_certificates_pem(reply, &pem))) owned_has(pem, "-----BEGIN CERTIFICATE-----");
      has(penstock_reply_stats_json(reply), "\"alpn\":\"h2\"");
    }
    ended(reply, 0, "ping", 4);
  }
  close_all(runtime, channel);
}

static void nothing(void) {}
static void secured(void) { secure(nothing); }

/* Allocations fail only after the channel is made. OpenSSL makes some thousand allocations before; `secured` tests
 * them. */
static void handshake(void) {
  all_goes_well();
  secure(from_here);
}

/* ---- Hops ---- */

static int32_t on_start(penstock_hop *hop, void *state) {
  (void)state;
  if (WENT(penstock_metadata_set(penstock_request_metadata(penstock_hop_request(hop)), "x-headers-one", "one"))) {
    WENT(penstock_request_set_authority(penstock_hop_request(hop), "another.example"));
    if (!WENT(penstock_request_set_method(penstock_hop_request(hop), UNARY)))
      penstock_hop_end(hop, PENSTOCK_STATUS_RESOURCE_EXHAUSTED, "no memory");
    WENT(penstock_hop_set_value(hop, "a key", (void *)"a value", NULL));
  }
  return PENSTOCK_NEXT;
}

static int32_t on_message(penstock_hop *hop, void *state) {
  (void)state;
  WENT(penstock_hop_set_bytes(hop, some_bytes(5000), 5000));
  return PENSTOCK_NEXT;
}

static int32_t on_status(penstock_hop *hop, void *state) {
  (void)state;
  char *json = NULL;
  if (WENT(penstock_hop_stats_json(hop, &json))) owned_has(json, "\"attempts\":");
  if (WENT(penstock_hop_trace_json(hop, &json))) owned_has(json, "\"events\":");
  if (penstock_hop_can_restart(hop) == PENSTOCK_OK) return PENSTOCK_RESTART;
  penstock_status *status = penstock_hop_status(hop);
  if (status) WENT(penstock_status_add_detail(status, "type.example/acme.One", "x", 1));
  return PENSTOCK_NEXT;
}

static void hops(void) {
  penstock_runtime *runtime = new_runtime();
  penstock_channel *channel = new_channel(runtime, peer, "{\"tls\": false, \"trace\": true}");
  penstock_error *error = NULL;
  penstock_interceptor_id id = 0;
  penstock_interceptor above = PENSTOCK_INTERCEPTOR_INIT, below = PENSTOCK_INTERCEPTOR_INIT;
  above.name = "above", above.on_start = on_start, above.on_send = on_message, above.on_status = on_status;
  above.replay_bytes = 65536;
  below.name = "below", below.on_receive = on_message, below.per_attempt = 1;
  if (channel && TRY(penstock_channel_add_interceptor(channel, &above, 1, &id, &error)) &&
      TRY(penstock_channel_add_interceptor(channel, &below, 0, &id, &error))) {
    penstock_call_options *options = new_options("{\"metadata\": {\"x-status\": \"8\", \"x-message\": \"again\"}}");
    penstock_reply *reply = NULL;
    if (options && TRY(penstock_channel_unary(channel, "/none/none", "ping", 4, options, &reply, &error)))
      ended(reply, 8, NULL, 0);
    penstock_call_options_release(options);
    if (TRY(penstock_channel_unary(channel, UNARY, "ping", 4, NULL, &reply, &error))) {
      if (penstock_reply_code(reply) == 0 && !refusing) field(penstock_reply_headers(reply), "x-headers-one", "one");
      ended(reply, 0, refusing ? NULL : some_bytes(5000), 5000);
    }
  }
  close_all(runtime, channel);
}

const scenario calls[] = {
    {"plain", plain},
    {"by-name", by_name},
    {"with-metadata", with_metadata},
    {"with-details", with_details},
    {"compressed", compressed},
    {"large", large},
    {"streams", streams},
    {"compressed-streams", compressed_streams},
    {"many", many},
    {"connect-http1", connect_over_1},
    {"connect-http2", connect_over_2},
    {"web-http1", web_over_1},
    {"web-text-http2", web_text_over_2},
    {"side-by-side", side_by_side},
    {"trace", trace},
    {"long-trace", long_trace},
    {"hops", hops},
    {"secured", secured},
    {"handshake", handshake},
    {NULL, NULL},
};
