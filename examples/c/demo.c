/* The demo: four kinds of call through three interceptors, and what interceptors can do while calls run.
 *
 *     demo [TARGET]
 *
 * TARGET is the address of a penstock-peer (scripts/demo starts one); the default is localhost:50051. The program
 * prints "ok" for each of its expectations that holds, and ends with 0 only if all hold. To build it: `make demo`, or
 * where penstock is installed
 *
 *     cc demo*.c $(pkg-config --cflags --libs penstock) -o demo
 */
#include "demo_complaint.h"
#include "demo_report.h"
#include <penstock/penstock.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* The details of the last failed function. */
static penstock_error *error;

static void must(penstock_result result) {
  if (result == PENSTOCK_OK) return;
  fflush(stdout);
  fprintf(stderr, "%s: %s\n", penstock_result_name(result), penstock_error_message(error));
  exit(1);
}

/* ---- Interceptors ---- */

/* The user data of each interceptor, and so the state that its callbacks get, begins with the interceptor's name. */
typedef struct {
  const char *name;
} watcher;

static int32_t see(penstock_hop *hop, void *state) {
  note(hop, ((watcher *)state)->name);
  return PENSTOCK_NEXT;
}

static penstock_interceptor watching(watcher *self) {
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.name = self->name;
  table.user_data = self;
  table.on_start = table.on_send = table.on_half_close = see;
  table.on_headers = table.on_receive = table.on_status = see;
  return table;
}

/* auth: adds a header to every call. */
static int32_t add_token(penstock_hop *hop, void *state) {
  penstock_metadata_set(penstock_hop_metadata(hop), "authorization", "Bearer s3cret");
  return see(hop, state);
}

/* edit: replaces words of the messages that are sent. */
static int32_t shout(penstock_hop *hop, void *state) {
  size_t length;
  const void *data = penstock_message_bytes(penstock_hop_message(hop), &length);
  char text[40];
  see(hop, state);
  if (data == NULL || length > sizeof text) return PENSTOCK_NEXT;
  for (size_t i = 0; i < length; i++) {
    char c = ((const char *)data)[i];
    text[i] = c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
  }
  penstock_hop_set_bytes(hop, text, length);
  return PENSTOCK_NEXT;
}

static sem_t edit_is_gone;
static void edit_gone(void *user_data) {
  (void)user_data;
  sem_post(&edit_is_gone);
}

/* meter: counts the messages of each call in the call's state, and adds the counts to the trailers. */
typedef struct {
  watcher base;
  unsigned sent, received;
} meter;

static int32_t meter_create(penstock_hop *hop, void *user_data, void **state) {
  meter *self = calloc(1, sizeof *self);
  (void)hop;
  if (self == NULL) return PENSTOCK_SKIP;
  self->base = *(watcher *)user_data;
  *state = self;
  return PENSTOCK_NEXT;
}

static void meter_destroy(penstock_hop *hop, void *state) {
  (void)hop;
  free(state);
}

static int32_t meter_send(penstock_hop *hop, void *state) {
  ((meter *)state)->sent++;
  return see(hop, state);
}

static int32_t meter_receive(penstock_hop *hop, void *state) {
  ((meter *)state)->received++;
  return see(hop, state);
}

static int32_t meter_status(penstock_hop *hop, void *state) {
  meter *self = state;
  char sum[48];
  snprintf(sum, sizeof sum, "%u out, %u in", self->sent, self->received);
  penstock_metadata_set(penstock_hop_metadata(hop), "x-meter", sum);
  return see(hop, state);
}

static penstock_interceptor_id add(penstock_channel *channel, penstock_interceptor table, int32_t priority) {
  penstock_interceptor_id id;
  must(penstock_channel_add_interceptor(channel, &table, priority, &id, &error));
  return id;
}

/* ---- Calls ---- */

static penstock_call_options *options(const char *json) {
  penstock_call_options *parsed;
  must(penstock_call_options_new(json, &parsed, &error));
  return parsed;
}

static penstock_reply *unary(penstock_channel *channel, const char *text, const char *json) {
  penstock_call_options *parsed = options(json);
  penstock_reply *reply;
  must(penstock_channel_unary(channel, "/penstock.Echo/Unary", text, strlen(text), parsed, &reply, &error));
  penstock_call_options_release(parsed);
  return reply;
}

static penstock_call *start(penstock_channel *channel, const char *method, int32_t kind, const char *json) {
  penstock_call_options *parsed = options(json);
  penstock_call *call;
  must(penstock_channel_call(channel, method, kind, parsed, /* blocking style */ NULL, &call, &error));
  penstock_call_options_release(parsed);
  return call;
}

/* Accepts E_GONE beside OK: a call that has ended takes no more messages, and `finish` shows its status later. */
static void unless_ended(penstock_result result) {
  if (result != PENSTOCK_E_GONE) must(result);
}

static void send(penstock_call *call, const char *text) { unless_ended(penstock_call_send(call, text, strlen(text))); }

/* Waits for the call's next message; returns whether it is `text`. */
static int receives(penstock_call *call, const char *text) {
  penstock_message *message;
  if (penstock_call_receive(call, &message) != PENSTOCK_OK) return 0;
  size_t length;
  const void *data = penstock_message_bytes(message, &length);
  int same = length == strlen(text) && memcmp(data, text, length) == 0;
  penstock_message_release(message);
  return same;
}

static penstock_reply *finish(penstock_call *call) {
  penstock_reply *reply;
  must(penstock_call_wait(call, &reply));
  penstock_call_release(call);
  return reply;
}

static int says(const penstock_reply *reply, const char *text) {
  size_t length;
  const void *data = penstock_reply_bytes(reply, &length);
  return data != NULL && length == strlen(text) && memcmp(data, text, length) == 0;
}

/* Whether the trailer `name` is `value`. If a request has "x-echo-metadata", the peer returns each request header as a
 * trailer "seen-NAME". */
static int trailer_is(const penstock_reply *reply, const char *name, const char *value) {
  const void *found;
  return penstock_metadata_get(penstock_reply_trailers(reply), name, 0, &found, NULL) == PENSTOCK_OK &&
         strcmp(found, value) == 0;
}

/* ---- The parts ---- */

static watcher auth_watcher = {"auth"}, edit_watcher = {"edit"}, meter_watcher = {"meter"}, late_watcher = {"late"};
static penstock_interceptor_id auth_id, edit_id, meter_id, late_id;

static void register_three(penstock_channel *channel) {
  penstock_interceptor auth = watching(&auth_watcher), edit = watching(&edit_watcher);
  penstock_interceptor count = watching(&meter_watcher);
  auth.on_start = add_token;
  edit.on_send = shout;
  edit.finalizer = edit_gone;
  count.create = meter_create;
  count.destroy = meter_destroy;
  count.on_send = meter_send;
  count.on_receive = meter_receive;
  count.on_status = meter_status;
  /* The order of these calls does not matter: the priority decides. */
  meter_id = add(channel, count, 100);
  auth_id = add(channel, auth, 300);
  edit_id = add(channel, edit, 200);
}

static void four_kinds(penstock_channel *channel) {
  title("1. A unary call, through auth (300), edit (200) and meter (100)");
  penstock_reply *reply =
      unary(channel, "hello", "{\"deadline_ms\": 10000, \"metadata\": {\"x-echo-metadata\": \"1\"}}");
  show(trace_in(reply));
  expect(penstock_reply_code(reply) == PENSTOCK_STATUS_OK && says(reply, "HELLO"), "the answer is \"HELLO\"");
  expect(trailer_is(reply, "seen-authorization", "Bearer s3cret"), "the server saw the token that auth added");
  expect(trailer_is(reply, "x-meter", "1 out, 1 in"), "meter counted: 1 out, 1 in");
  expect(went(trace_in(reply), PENSTOCK_EVENT_START, "auth > edit > meter") &&
             went(trace_in(reply), PENSTOCK_EVENT_STATUS, "meter > edit > auth"),
         "higher priority is earlier on the way out, later on the way in");
  penstock_reply_release(reply);

  title("2. A server stream");
  penstock_call *call = start(channel, "/penstock.Echo/ServerStream", PENSTOCK_KIND_SERVER_STREAM,
                              "{\"deadline_ms\": 10000, \"metadata\": {\"x-count\": \"3\"}}");
  penstock_message *none;
  send(call, "tick");
  unless_ended(penstock_call_half_close(call));
  int same = receives(call, "TICK") && receives(call, "TICK") && receives(call, "TICK");
  int ended = penstock_call_receive(call, &none) == PENSTOCK_E_END;
  reply = finish(call);
  show(trace_in(reply));
  expect(same && ended, "three messages came, then the end");
  expect(trailer_is(reply, "x-meter", "1 out, 3 in"), "meter counted: 1 out, 3 in");
  penstock_reply_release(reply);

  title("3. A client stream");
  call = start(channel, "/penstock.Echo/ClientStream", PENSTOCK_KIND_CLIENT_STREAM, "{\"deadline_ms\": 10000}");
  send(call, "one ");
  send(call, "two ");
  send(call, "three");
  reply = finish(call);
  show(trace_in(reply));
  expect(says(reply, "ONE TWO THREE"), "the answer is \"ONE TWO THREE\"");
  penstock_reply_release(reply);

  title("4. A bidirectional stream");
  call = start(channel, "/penstock.Echo/Bidi", PENSTOCK_KIND_BIDI, "{\"deadline_ms\": 10000}");
  send(call, "ping");
  same = receives(call, "PING");
  send(call, "pong");
  same = receives(call, "PONG") && same;
  reply = finish(call);
  show(trace_in(reply));
  expect(same, "each message was answered before the next was sent");
  penstock_reply_release(reply);
}

/* Waits up to 5 s for the finalizer of edit, and returns whether it has run. Another thread may have the last reference
 * to edit, so the finalizer may run a little later. */
static int edit_goes(void) {
  struct timespec limit;
  clock_gettime(CLOCK_REALTIME, &limit);
  limit.tv_sec += 5;
  return sem_timedwait(&edit_is_gone, &limit) == 0;
}

static void change_the_chain(penstock_channel *channel) {
  title("5. The chain is changed while a call is in flight");
  penstock_call *old = start(channel, "/penstock.Echo/Bidi", PENSTOCK_KIND_BIDI, "{\"deadline_ms\": 10000}");
  send(old, "before");
  int same = receives(old, "BEFORE");

  late_id = add(channel, watching(&late_watcher), 250);
  must(penstock_registration_remove(edit_id, &error));
  must(penstock_registration_set_priority(meter_id, 400, &error));
  printf("    late (250) was added, edit removed, meter moved from 100 to 400\n");

  penstock_reply *fresh = unary(channel, "new", "{\"deadline_ms\": 10000}");
  send(old, "after");
  same = receives(old, "AFTER") && same;
  int kept = sem_trywait(&edit_is_gone) != 0;
  penstock_reply *reply = finish(old);

  printf("  the call that was in flight:\n");
  show(trace_in(reply));
  printf("  a call that was made after the change:\n");
  show(trace_in(fresh));
  expect(same && went(trace_in(reply), PENSTOCK_EVENT_SEND, "auth > edit > meter"),
         "the call in flight kept its chain");
  expect(says(fresh, "new") && went(trace_in(fresh), PENSTOCK_EVENT_SEND, "meter > auth > late"),
         "the new call has the new one");
  penstock_reply_release(fresh);
  penstock_reply_release(reply);
  expect(kept && edit_goes(), "edit was freed after its last call, not before");
}

typedef struct {
  penstock_ticket ticket;
  pthread_t thread;
  penstock_result resumed;
} gate;

/* Runs on another thread: fetches a token, puts it into the start that waits for the ticket, and lets the call go
 * on. */
static void *fetch_token(void *argument) {
  gate *self = argument;
  penstock_hop *bound;
  nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
  self->resumed = penstock_ticket_hop(self->ticket, &bound);
  if (self->resumed != PENSTOCK_OK) return NULL;
  penstock_metadata_set(penstock_hop_metadata(bound), "x-token", "fresh");
  penstock_hop_release(bound);
  self->resumed = penstock_ticket_resolve(self->ticket, PENSTOCK_NEXT);
  return NULL;
}

static int32_t gate_start(penstock_hop *hop, void *state) {
  gate *self = state;
  note(hop, "gate");
  self->ticket = penstock_hop_ticket(hop);
  if (pthread_create(&self->thread, NULL, fetch_token, self) != 0) return PENSTOCK_NEXT;
  return PENSTOCK_PAUSE;
}

static void defer(penstock_channel *channel) {
  title("6. A call is deferred, and goes on from another thread");
  gate self = {.resumed = PENSTOCK_E_GONE};
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.name = "gate";
  table.user_data = &self;
  table.on_start = gate_start;
  penstock_interceptor_id id = add(channel, table, 500);
  struct timespec before, after;
  clock_gettime(CLOCK_MONOTONIC, &before);
  penstock_reply *reply =
      unary(channel, "patience", "{\"deadline_ms\": 10000, \"metadata\": {\"x-echo-metadata\": \"1\"}}");
  clock_gettime(CLOCK_MONOTONIC, &after);
  must(penstock_registration_remove(id, &error));
  pthread_join(self.thread, NULL);
  long waited = (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1000000;
  show(trace_in(reply));
  expect(self.resumed == PENSTOCK_OK && says(reply, "patience") && waited >= 49,
         "the call waited for the thread (%ld ms)", waited);
  expect(trailer_is(reply, "seen-x-token", "fresh"), "the server saw what the thread put in");
  penstock_reply_release(reply);
}

/* retry: sends a call again that the server has refused for want of a token. */
static int32_t retry_status(penstock_hop *hop, void *state) {
  see(hop, state);
  if (penstock_status_code(penstock_hop_status(hop)) != PENSTOCK_STATUS_UNAUTHENTICATED ||
      penstock_hop_can_restart(hop) != PENSTOCK_OK)
    return PENSTOCK_NEXT;
  penstock_metadata_remove(penstock_request_metadata(penstock_hop_request(hop)), "x-status");
  return PENSTOCK_RESTART;
}

static void send_again(penstock_channel *channel) {
  title("7. A call is sent again, and its caller does not notice: retry (275) is above late (250)");
  static watcher retry_watcher = {"retry"};
  penstock_interceptor table = watching(&retry_watcher);
  table.on_status = retry_status;
  table.replay_bytes = 1024;
  penstock_interceptor_id id = add(channel, table, 275);
  /* The peer ends a call with the status that the request's metadata asks for. */
  penstock_reply *reply = unary(channel, "again", "{\"deadline_ms\": 10000, \"metadata\": {\"x-status\": \"16\"}}");
  must(penstock_registration_remove(id, &error));
  show(trace_in(reply));
  expect(penstock_reply_code(reply) == PENSTOCK_STATUS_OK && says(reply, "again"), "the caller gets its answer");
  penstock_reply_release(reply);
}

static int32_t guard_start(penstock_hop *hop, void *state) {
  (void)state;
  note(hop, "guard");
  penstock_hop_end(hop, PENSTOCK_STATUS_PERMISSION_DENIED, "guard says no");
  return PENSTOCK_NEXT; /* ignored: the call has ended here */
}

static void reject(penstock_channel *channel) {
  title("8. A call is rejected: guard (275) is above late (250)");
  penstock_interceptor table = PENSTOCK_INTERCEPTOR_INIT;
  table.name = "guard";
  table.methods = "/penstock.Echo/Un*";
  table.on_start = guard_start;
  penstock_interceptor_id id = add(channel, table, 275);
  penstock_reply *reply = unary(channel, "let me in", "{\"deadline_ms\": 10000}");
  show(trace_in(reply));
  expect(penstock_reply_code(reply) == PENSTOCK_STATUS_PERMISSION_DENIED &&
             strcmp(penstock_status_message(penstock_reply_status(reply), NULL), "guard says no") == 0,
         "the caller gets PERMISSION_DENIED, \"guard says no\"");
  expect(went(trace_in(reply), PENSTOCK_EVENT_START, "meter > auth > guard") &&
             went(trace_in(reply), PENSTOCK_EVENT_STATUS, "auth > meter"),
         "those above guard saw the status, late saw nothing");
  must(penstock_registration_remove(id, &error));
  penstock_reply_release(reply);
}

static void error_detail(penstock_channel *channel) {
  title("9. An error with a detail of the application's own");
  const complaint sent = {"the pipes", 3};
  encoded status = complaint_status(PENSTOCK_STATUS_FAILED_PRECONDITION, &sent);

  penstock_metadata *metadata;
  char *json, text[512];
  must(penstock_metadata_new(&metadata));
  must(penstock_metadata_set(metadata, "x-status", "9"));
  must(penstock_metadata_set(metadata, "x-message", "no pressure"));
  must(penstock_metadata_set_bytes(metadata, "x-details-bin", status.data, status.length));
  must(penstock_metadata_json(metadata, &json));
  snprintf(text, sizeof text, "{\"deadline_ms\": 10000, \"metadata\": %s}", json);
  penstock_free(json);
  penstock_metadata_release(metadata);

  penstock_reply *reply = unary(channel, "anything", text);
  show(trace_in(reply));
  remark(penstock_reply_status_json(reply));
  const void *value;
  size_t length;
  complaint own = {.count = 0};
  int found =
      penstock_status_detail_find(penstock_reply_status(reply), "penstock.Complaint", &value, &length) == PENSTOCK_OK &&
      complaint_decode(value, length, &own);
  expect(penstock_reply_code(reply) == PENSTOCK_STATUS_FAILED_PRECONDITION, "the status is FAILED_PRECONDITION");
  expect(found && strcmp(own.subject, "the pipes") == 0 && own.count == 3,
         "its Complaint was found by type and decoded: about %s, %u times", own.subject, own.count);
  penstock_reply_release(reply);
}

int main(int argc, char **argv) {
  const char *target = argc > 1 ? argv[1] : "localhost:50051";
  penstock_channel *channel;
  char *list;
  sem_init(&edit_is_gone, 0, 0);
  begin(target);
  must(penstock_channel_new(target, "{\"tls\": false}", &channel, &error));
  register_three(channel);
  four_kinds(channel);
  change_the_chain(channel);
  defer(channel);
  send_again(channel);
  reject(channel);
  error_detail(channel);

  title("What is registered now");
  must(penstock_channel_interceptors_json(channel, &list));
  printf("    %s\n", list);
  penstock_free(list);
  must(penstock_registration_remove(auth_id, &error));
  must(penstock_registration_remove(late_id, &error));
  must(penstock_registration_remove(meter_id, &error));
  penstock_channel_release(channel);
  return sum_up();
}
