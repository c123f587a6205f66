/* interop_client: gRPC's interop cases through the public header of Penstock.
 *
 *   interop_client --list                                    the cases, each with what it needs
 *   interop_client --target T [OPTIONS] CASE...              runs them: a line `ok NAME` or `FAILED NAME` for each
 *   interop_client --target T [OPTIONS] --call METHOD ...    one call, reported as one line of JSON
 *
 *   --channel JSON      options of the channel (by default {"tls": false})
 *   --style STYLE       blocking, callback, thread, host or host-callback
 *   --kind KIND         unary, client_stream, server_stream or bidi
 *   --options JSON      options of the call
 *   --send HEX          a message, any number of times
 *   --add NAME=HEX      metadata that an interceptor adds, any number of times
 *   --set-json JSON     metadata that this interceptor sets before it adds any
 *   --cancel-after N    cancels the call after N messages have come
 *   --calls N           makes the call N times, one after the other; the last is reported
 *   --gate messages     sends each message only after the answer to the one before; prints {"received": N} after each
 *                       answer and waits for a line on standard input
 *   --gate calls        prints {"ended": N, "code": CODE} after each call but the last and waits for a line
 */
#include "cases.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CASE_SECONDS = 60, LIMIT = 64 };

static const char *volatile running = "";

static void too_late(int number) {
  (void)number;
  static const char text[] = " took too long\n";
  ssize_t ignored = write(1, "FAILED ", 7);
  ignored = write(1, running, strlen(running));
  ignored = write(1, text, sizeof(text) - 1);
  (void)ignored;
  _exit(3);
}

/* ---- Cases ---- */

static const test_case *const lists[] = {described_cases, more_cases};

static const test_case *case_named(const char *name) {
  for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
    for (const test_case *each = lists[i]; each->name; each++) {
      if (strcmp(each->name, name) == 0) return each;
    }
  }
  return NULL;
}

static void list_cases(void) {
  for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
    for (const test_case *each = lists[i]; each->name; each++)
      printf("%s %s\n", each->name, each->needs ? each->needs : "-");
  }
}

static int run_cases(client *client, char **names, int count) {
  if (!client_open(client)) return 1;
  for (int i = 0; i < count; i++) {
    const test_case *found = case_named(names[i]);
    if (!found) {
      printf("FAILED %s: no such case\n", names[i]);
      continue;
    }
    int before = atomic_load(&failures);
    int64_t started = now_us();
    running = found->name;
    alarm(CASE_SECONDS);
    found->run(client);
    alarm(0);
    bool ok = atomic_load(&failures) == before;
    printf("%s %s %.3f s\n", ok ? "ok" : "FAILED", found->name, (double)(now_us() - started) / 1e6);
    fflush(stdout);
  }
  int before = atomic_load(&failures);
  running = "closing";
  alarm(CASE_SECONDS);
  client_close(client);
  alarm(0);
  printf("%s closing\n", atomic_load(&failures) == before ? "ok" : "FAILED");
  return 0;
}

/* ---- One call, reported as JSON ---- */

typedef struct added {
  const char *names[LIMIT];
  bytes values[LIMIT];
  int count;
  const char *json;
} added;

static int32_t add_metadata(penstock_hop *hop, void *state) {
  added *self = state;
  penstock_metadata *metadata = penstock_hop_metadata(hop);
  if (self->json) CHECK_OK(penstock_metadata_set_json(metadata, self->json, NULL));
  for (int i = 0; i < self->count; i++) {
    CHECK_OK(penstock_metadata_add_bytes(metadata, self->names[i], self->values[i].data, self->values[i].length));
  }
  return PENSTOCK_NEXT;
}

static bytes from_hex(const char *text) {
  bytes out = {0};
  for (; text[0] && text[1]; text += 2) {
    char pair[3] = {text[0], text[1], 0};
    uint8_t byte = (uint8_t)strtoul(pair, NULL, 16);
    bytes_add(&out, &byte, 1);
  }
  return out;
}

static void print_hex(const void *data, size_t length) {
  putchar('"');
  for (size_t i = 0; i < length; i++) printf("%02x", ((const uint8_t *)data)[i]);
  putchar('"');
}

static void print_metadata(const char *key, const penstock_metadata *metadata) {
  char *json = NULL;
  if (!metadata) {
    printf(", \"%s\": null, \"%s_json\": null", key, key);
    return;
  }
  printf(", \"%s\": [", key);
  for (size_t i = 0; i < penstock_metadata_count(metadata); i++) {
    const char *name = NULL;
    const void *value = NULL;
    size_t length = 0;
    CHECK_OK(penstock_metadata_at(metadata, i, &name, &value, &length));
    printf("%s[\"%s\", ", i ? ", " : "", name);
    print_hex(value, length);
    putchar(']');
  }
  CHECK_OK(penstock_metadata_json(metadata, &json));
  printf("], \"%s_json\": %s", key, json);
  penstock_free(json);
}

static void print_reply(const penstock_reply *reply, const penstock_metadata *early) {
  const penstock_status *status = penstock_reply_status(reply);
  printf("{\"code\": %d, \"name\": \"%s\", \"message\": ", penstock_reply_code(reply),
         penstock_status_code_name(penstock_reply_code(reply)));
  size_t length = 0;
  const char *message = penstock_status_message(status, &length);
  print_hex(message, length);
  print_metadata("early_headers", early);
  print_metadata("headers", penstock_reply_headers(reply));
  print_metadata("trailers", penstock_reply_trailers(reply));
  printf(", \"details\": [");
  for (size_t i = 0; i < penstock_status_detail_count(status); i++) {
    const char *url = NULL;
    const void *value = NULL;
    size_t length = 0;
    CHECK_OK(penstock_status_detail_at(status, i, &url, &value, &length));
    printf("%s[\"%s\", ", i ? ", " : "", url);
    print_hex(value, length);
    putchar(']');
  }
  printf("], \"status\": %s, \"stats\": %s", penstock_reply_status_json(reply), penstock_reply_stats_json(reply));
}

typedef struct request {
  const char *method, *options;
  int32_t kind;
  bytes messages[LIMIT];
  int message_count, cancel_after, calls;
  bool gates_messages, gates_calls;
} request;

static void gate(const char *what, size_t number, const penstock_reply *reply) {
  printf("{\"%s\": %zu, \"code\": %d}\n", what, number, reply ? penstock_reply_code(reply) : -1);
  fflush(stdout);
  for (int c = getchar(); c != '\n' && c != EOF;) c = getchar();
}

static int32_t read_kind(const char *name) {
  static const char *const names[] = {"unary", "client_stream", "server_stream", "bidi"};
  for (int32_t i = 0; i < 4; i++) {
    if (strcmp(names[i], name) == 0) return i;
  }
  return -1;
}

/* Sends each message after the answer to the one before, until all are sent or the call ends. */
static void ping(rpc *call, const request *request) {
  for (int i = 0; i < request->message_count; i++) {
    penstock_result result = rpc_send(call, request->messages[i].data, request->messages[i].length);
    if (result != PENSTOCK_OK) CHECK_RESULT(result, PENSTOCK_E_GONE);
    penstock_message *message = rpc_receive(call);
    penstock_message_release(message);
    if (!message) return;
    gate("received", (size_t)i + 1, NULL);
  }
}

static void one_call(client *client, const request *request, int number) {
  bool told = number == request->calls;
  rpc *call = rpc_start(client, request->method, request->kind, request->options);
  if (!call) return;
  for (int i = 0; i < request->message_count && !request->gates_messages; i++) {
    penstock_result result = rpc_send(call, request->messages[i].data, request->messages[i].length);
    if (result != PENSTOCK_OK) CHECK_RESULT(result, PENSTOCK_E_GONE);
  }
  if (request->gates_messages) ping(call, request);
  if (request->cancel_after < 0) {
    penstock_result result = rpc_half_close(call);
    if (result != PENSTOCK_OK) CHECK_RESULT(result, PENSTOCK_E_GONE);
  }
  const penstock_metadata *early = rpc_headers(call);
  bytes received = {0};
  size_t lengths[LIMIT], count = 0;
  bool one = request->kind == PENSTOCK_KIND_UNARY || request->kind == PENSTOCK_KIND_CLIENT_STREAM;
  for (penstock_message *message; !one; count++) {
    if ((int)count == request->cancel_after) rpc_cancel(call, "cancelled by the test");
    message = rpc_receive(call);
    if (!message) break;
    size_t length = 0;
    const void *data = penstock_message_bytes(message, &length);
    if (count < LIMIT) lengths[count] = length;
    bytes_add(&received, data, length);
    penstock_message_release(message);
  }
  if (one && request->cancel_after >= 0) rpc_cancel(call, "cancelled by the test");
  penstock_reply *reply = rpc_finish(call);
  if (one) {
    size_t length = 0;
    const void *data = penstock_reply_bytes(reply, &length);
    if (data) {
      lengths[count++] = length;
      bytes_add(&received, data, length);
    }
  }
  if (told) {
    print_reply(reply, early);
    printf(", \"messages\": [");
    const uint8_t *at = received.data;
    for (size_t i = 0; i < count && i < LIMIT; at += lengths[i++]) {
      if (i) printf(", ");
      print_hex(at, lengths[i]);
    }
    printf("]}\n");
  }
  bytes_free(&received);
  if (!told && request->gates_calls) gate("ended", (size_t)number, reply);
  rpc_free(call);
}

static int run_call(client *client, const request *request, added *added) {
  if (!client_open(client)) return 1;
  if (added->count || added->json) {
    penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
    penstock_interceptor_id id;
    table.name = "added";
    table.user_data = added;
    table.on_start = add_metadata;
    CHECK_OK(penstock_channel_add_interceptor(client->channel, &table, 1, &id, NULL));
  }
  running = request->method;
  alarm(CASE_SECONDS);
  for (int i = 1; i <= request->calls; i++) one_call(client, request, i);
  client_close(client);
  return atomic_load(&failures) ? 1 : 0;
}

/* ---- The command line ---- */

int main(int argc, char **argv) {
  client client = {.options = "{\"tls\": false}", .probed = true};
  request request = {.cancel_after = -1, .calls = 1};
  added added = {0};
  signal(SIGALRM, too_late);
  int at = 1;
  if (argc == 2 && strcmp(argv[1], "--list") == 0) {
    list_cases();
    return 0;
  }
  for (; at + 1 < argc && strncmp(argv[at], "--", 2) == 0; at += 2) {
    const char *name = argv[at] + 2, *value = argv[at + 1];
    char *equals = strchr(argv[at + 1], '=');
    bool ok = true;
    if (strcmp(name, "target") == 0) {
      client.target = value;
    } else if (strcmp(name, "channel") == 0) {
      client.options = value;
    } else if (strcmp(name, "style") == 0) {
      ok = style_read(value, &client.style);
    } else if (strcmp(name, "call") == 0) {
      request.method = value;
    } else if (strcmp(name, "kind") == 0) {
      ok = (request.kind = read_kind(value)) >= 0;
    } else if (strcmp(name, "options") == 0) {
      request.options = value;
    } else if (strcmp(name, "send") == 0) {
      ok = request.message_count < LIMIT;
      if (ok) request.messages[request.message_count++] = from_hex(value);
    } else if (strcmp(name, "add") == 0) {
      ok = equals && added.count < LIMIT;
      if (ok) {
        *equals = 0;
        added.names[added.count] = value;
        added.values[added.count++] = from_hex(equals + 1);
      }
    } else if (strcmp(name, "set-json") == 0) {
      added.json = value;
    } else if (strcmp(name, "cancel-after") == 0) {
      request.cancel_after = atoi(value);
    } else if (strcmp(name, "gate") == 0) {
      request.gates_messages = strcmp(value, "messages") == 0;
      request.gates_calls = strcmp(value, "calls") == 0;
      ok = request.gates_messages || request.gates_calls;
    } else if (strcmp(name, "calls") == 0) {
      request.calls = atoi(value);
    } else {
      ok = false;
    }
    if (!ok) {
      fprintf(stderr, "interop_client: --%s %s?\n", name, value);
      return 2;
    }
  }
  if (!client.target || (request.method ? at < argc : at == argc)) {
    fprintf(stderr, "interop_client: see the head of main.c\n");
    return 2;
  }
  if (request.message_count == 0 &&
      (request.kind == PENSTOCK_KIND_UNARY || request.kind == PENSTOCK_KIND_SERVER_STREAM)) {
    request.message_count = 1; /* an empty message */
  }
  int status = request.method ? run_call(&client, &request, &added) : run_cases(&client, argv + at, argc - at);
  for (int i = 0; i < request.message_count; i++) bytes_free(&request.messages[i]);
  for (int i = 0; i < added.count; i++) bytes_free(&added.values[i]);
  return status;
}
