/* Faults reported in other libraries, second part: cancels, streams that are left unread, work after the end, leaks.
 * See docs/others.md. */
#include "others.h"

#include <signal.h>

static void probes_init(penstock_channel *channel, probe *probes, int count) {
  static const char *const names[] = {"a", "b", "c", "d"};
  for (int i = 0; i < count; i++) {
    probe_init(&probes[i], names[i]);
    probe_add(&probes[i], channel, -i);
  }
}

/* opentelemetry-python-contrib 3271: the caller's cancel reaches all hops while an interceptor waits, at each event in
 * turn. */
TEST(others_otel_python_3271_cancel_comes_through_interceptors) {
  static const int32_t events[] = {PENSTOCK_EVENT_START,   PENSTOCK_EVENT_SEND,    PENSTOCK_EVENT_HALF_CLOSE,
                                   PENSTOCK_EVENT_HEADERS, PENSTOCK_EVENT_RECEIVE, PENSTOCK_EVENT_STATUS};
  for (int i = 0; i < 6; i++) {
    penstock_channel *channel = open_channel();
    probe probes[3];
    pauser pauser = {events[i], NULL, 0, LATCH_INIT};
    collector collector = COLLECTOR_INIT;
    probes_init(channel, probes, 3);
    probes[1].hook = pause_once;
    probes[1].context = &pauser;
    penstock_call *call = start_collecting(channel, UNARY, PENSTOCK_KIND_UNARY, NULL, &collector);
    OK(penstock_call_try_send(call, "x", 1));
    OK(penstock_call_half_close(call));
    latch_wait(&pauser.paused, 1);
    OK(penstock_call_cancel(call, "enough"));
    latch_wait(&collector.finalized, 1);
    CHECK_INT(collector.code, PENSTOCK_STATUS_CANCELLED);
    CHECK_RESULT(penstock_ticket_resolve(pauser.ticket, PENSTOCK_NEXT), PENSTOCK_E_GONE);
    penstock_call_release(call);
    penstock_channel_release(channel);
    for (int k = 0; k < 3; k++) check_ended(&probes[k]);
    CHECK_INT(seen(&probes[0], PENSTOCK_EVENT_STATUS), 1);
    /* The local status replaces one that was held: the hop gets the end by on_cancel. */
    CHECK_INT(seen(&probes[1], PENSTOCK_EVENT_CANCEL), events[i] == PENSTOCK_EVENT_STATUS);
  }
}

/* opentelemetry-python-contrib 2014: a stream that is read through interceptors can still be cancelled. */
TEST(others_otel_python_2014_a_stream_is_cancelled_in_the_middle) {
  penstock_channel *channel = open_channel();
  probe probes[2];
  probes_init(channel, probes, 2);
  penstock_call *call =
      start_with(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM, "{\"metadata\": {\"x-count\": \"1000000\"}}");
  OK(penstock_call_send(call, "x", 1));
  for (int i = 0; i < 5; i++) check_receive(call, "x");
  OK(penstock_call_cancel(call, "five are enough"));
  check_finish(call, PENSTOCK_STATUS_CANCELLED);
  penstock_channel_release(channel);
  for (int i = 0; i < 2; i++) {
    check_ended(&probes[i]);
    CHECK_INT(seen(&probes[i], PENSTOCK_EVENT_STATUS), 1);
  }
}

/* opentelemetry-go-contrib 839: a stream that is cancelled before anybody has read it leaves nothing behind. */
TEST(others_otel_go_839_a_stream_cancelled_unread_leaves_nothing) {
  penstock_channel *channel = open_channel();
  probe probes[2];
  probes_init(channel, probes, 2);
  int threads = 0;
  for (int i = 0; i < test_rounds(50); i++) {
    penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
    if (i % 2) OK(penstock_call_cancel(call, NULL));
    penstock_call_release(call);
    if (i == 0) threads = running_threads();
  }
  /* This call comes after all the others, so their hops have been created by then. */
  check_echo(channel);
  EVENTUALLY(latch_count(&probes[0].done) == seen(&probes[0], PENSTOCK_EVENT_CREATE));
  EVENTUALLY(running_threads() <= threads);
  penstock_channel_release(channel);
  for (int i = 0; i < 2; i++) check_ended(&probes[i]);
}

/* connect-es 1800: the call is cancelled between two reads, while nobody waits. One of the hops would pause at the
 * second message. */
TEST(others_connect_es_1800_cancel_between_reads_ends_paused_interceptors) {
  penstock_channel *channel = open_channel();
  probe probes[2];
  pauser pauser = {PENSTOCK_EVENT_RECEIVE, "2", 0, LATCH_INIT};
  probes_init(channel, probes, 2);
  probes[0].hook = pause_once;
  probes[0].context = &pauser;
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  OK(penstock_call_send(call, "1", 1));
  OK(penstock_call_send(call, "2", 1));
  check_receive(call, "1");
  OK(penstock_call_cancel(call, NULL));
  /* Both hops get their last callback although the caller asks for no message. */
  latch_wait(&probes[0].done, 1);
  latch_wait(&probes[1].done, 1);
  CHECK_INT(seen(&probes[0], PENSTOCK_EVENT_STATUS), 1);
  penstock_call_release(call);
  penstock_channel_release(channel);
  for (int i = 0; i < 2; i++) check_ended(&probes[i]);
}

/* grpc-java 8187 and 8990: the caller takes one message, and never receives another. The hops still get their last
 * callback. */
TEST(others_grpc_java_8187_the_last_callback_comes_without_reading_on) {
  penstock_channel *channel = open_channel();
  probe probes[2];
  probes_init(channel, probes, 2);
  for (int i = 0; i < 3; i++) {
    penstock_call *call =
        start_with(channel, SERVER_STREAM, PENSTOCK_KIND_SERVER_STREAM,
                   i == 0 ? "{\"metadata\": {\"x-count\": \"1\"}}" : "{\"metadata\": {\"x-count\": \"5\"}}");
    OK(penstock_call_send(call, "x", 1));
    check_receive(call, "x");
    /* If the stream has only one message, its status comes although the caller does not ask for it. Otherwise the
     * caller ends the call, by waiting for the status or by a cancel. */
    if (i > 0) CHECK_INT(latch_count(&probes[0].done), i);
    if (i == 1) check_finish(call, 0);
    if (i == 2) OK(penstock_call_cancel(call, NULL));
    latch_wait(&probes[0].done, i + 1);
    latch_wait(&probes[1].done, i + 1);
    if (i != 1) penstock_call_release(call);
  }
  penstock_channel_release(channel);
  for (int i = 0; i < 2; i++) {
    check_ended(&probes[i]);
    CHECK_INT(seen(&probes[i], PENSTOCK_EVENT_STATUS), 3);
  }
}

static int32_t set_deadline(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_START)
    OK(penstock_request_set_deadline_ms(penstock_hop_request(hop), test_patience_ms()));
  return PENSTOCK_NEXT;
}

/* boulder 6366: the deadline that an interceptor has set at the start lasts as long as the stream. */
TEST(others_boulder_6366_a_stream_outlives_the_start_callback) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "timeout", set_deadline, NULL);
  probe_add(&probe, channel, 0);
  penstock_call *call = start_call(channel, BIDI, PENSTOCK_KIND_BIDI);
  for (int i = 0; i < 20; i++) {
    OK(penstock_call_send(call, "x", 1));
    check_receive(call, "x");
    CHECK_INT(latch_count(&probe.done), 0);
  }
  check_finish(call, 0);
  penstock_channel_release(channel);
  check_ended(&probe);
}

static int32_t set_short_deadline(probe *self, penstock_hop *hop, int32_t event) {
  (void)self;
  if (event == PENSTOCK_EVENT_START)
    OK(penstock_request_set_deadline_ms(penstock_hop_request(hop), 1 + (int64_t)test_random(3)));
  return PENSTOCK_NEXT;
}

/* grpc-java 12456: the deadline of an interceptor and the answer come at the same moment. */
TEST(others_grpc_java_12456_a_deadline_that_races_with_the_answer) {
  penstock_channel *channel = open_channel();
  probe probe;
  probe_init_with(&probe, "timeout", set_short_deadline, NULL);
  probe_add(&probe, channel, 0);
  penstock_call_options *options = new_options("{\"metadata\": {\"x-delay-ms\": \"2\"}}");
  for (int i = 0; i < test_rounds(200); i++) {
    penstock_reply *reply = NULL;
    if (!OK(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL))) break;
    int32_t code = penstock_reply_code(reply);
    /* Either the deadline or the answer may come first. */
    CHECK(code == PENSTOCK_STATUS_OK || code == PENSTOCK_STATUS_DEADLINE_EXCEEDED);
    CHECK_INT(latch_count(&probe.done), i + 1);
    penstock_reply_release(reply);
  }
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  check_ended(&probe);
}

/* ---- Cancels at once ---- */

static void *cancel_often(void *call) {
  for (int i = 0; i < 20; i++) OK(penstock_call_cancel(call, "again"));
  penstock_call_release(call);
  return NULL;
}

/* grpc-java 7921: four threads cancel a call many times while it ends. */
TEST(others_grpc_java_7921_a_call_cancelled_many_times_ends_once) {
  penstock_channel *channel = open_channel();
  probe probes[2];
  probes_init(channel, probes, 2);
  for (int i = 0; i < test_rounds(50); i++) {
    collector collector = COLLECTOR_INIT;
    penstock_call *call = start_collecting(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, &collector);
    OK(penstock_call_try_send(call, "x", 1));
    OK(penstock_call_half_close(call));
    OK(penstock_call_demand(call, 5));
    pthread_t threads[4];
    for (int k = 0; k < 4; k++) pthread_create(&threads[k], NULL, cancel_often, penstock_call_retain(call));
    latch_wait(&collector.finalized, 1);
    for (int k = 0; k < 4; k++) pthread_join(threads[k], NULL);
    CHECK_INT(latch_count(&collector.replies), 1);
    OK(penstock_call_cancel(call, NULL));
    penstock_call_release(call);
  }
  penstock_channel_release(channel);
  for (int i = 0; i < 2; i++) check_ended(&probes[i]);
}

typedef struct contest {
  pauser pauser;
  penstock_call *call;
  latch go;
} contest;

static void *finish_ticket(void *pointer) {
  contest *contest = pointer;
  latch_wait(&contest->go, 1);
  penstock_result result = penstock_ticket_end(contest->pauser.ticket, PENSTOCK_STATUS_ABORTED, "by the interceptor");
  CHECK(result == PENSTOCK_OK || result == PENSTOCK_E_GONE);
  return NULL;
}

static void *cancel_contest(void *pointer) {
  contest *contest = pointer;
  latch_wait(&contest->go, 1);
  return cancel_often(contest->call);
}

/* grpc-java 12996 and 13022: one thread ends the call by the ticket of a paused interceptor, while another thread
 * cancels the call. */
TEST(others_grpc_java_12996_interceptor_and_caller_end_the_call_at_once) {
  penstock_channel *channel = open_channel();
  int aborted = 0;
  for (int i = 0; i < test_rounds(100); i++) {
    probe probes[3];
    contest contest = {{i % 2 ? PENSTOCK_EVENT_SEND : PENSTOCK_EVENT_START, NULL, 0, LATCH_INIT}, NULL, LATCH_INIT};
    penstock_interceptor_id ids[3];
    for (int k = 0; k < 3; k++) {
      probe_init(&probes[k], "p");
      if (k == 1) pauser_init(&probes[k], &contest.pauser, "p");
      ids[k] = probe_add(&probes[k], channel, -k);
    }
    collector collector = COLLECTOR_INIT;
    contest.call = start_collecting(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, &collector);
    OK(penstock_call_try_send(contest.call, "x", 1));
    latch_wait(&contest.pauser.paused, 1);
    pthread_t ender, canceller;
    pthread_create(&ender, NULL, finish_ticket, &contest);
    pthread_create(&canceller, NULL, cancel_contest, &contest);
    latch_signal(&contest.go);
    latch_wait(&collector.finalized, 1);
    pthread_join(ender, NULL);
    pthread_join(canceller, NULL);
    CHECK_INT(latch_count(&collector.replies), 1);
    /* Either the ticket or the cancel may end the call. */
    CHECK(collector.code == PENSTOCK_STATUS_ABORTED || collector.code == PENSTOCK_STATUS_CANCELLED);
    aborted += collector.code == PENSTOCK_STATUS_ABORTED;
    for (int k = 0; k < 3; k++) OK(penstock_registration_remove(ids[k], NULL));
    for (int k = 0; k < 3; k++) check_ended(&probes[k]);
    CHECK_INT(seen(&probes[0], PENSTOCK_EVENT_STATUS), 1);
  }
  printf("  the interceptor was first %d times of %d\n", aborted, test_rounds(100));
  penstock_channel_release(channel);
}

static int32_t cancel_in_status(probe *self, penstock_hop *hop, int32_t event) {
  (void)hop;
  if (event == PENSTOCK_EVENT_STATUS) penstock_channel_close(self->context);
  return PENSTOCK_NEXT;
}
static void *close_channel(void *channel) {
  penstock_result result = penstock_channel_close(channel);
  CHECK(result == PENSTOCK_OK || result == PENSTOCK_E_ALREADY);
  return NULL;
}

/* grpc-dotnet 2206: one thread cancels the call many times while another closes the channel, and on_status closes it,
 * too. Nobody waits for ever. */
TEST(others_grpc_dotnet_2206_cancel_and_close_do_not_wait_for_each_other) {
  for (int i = 0; i < test_rounds(50); i++) {
    penstock_channel *channel = open_channel();
    probe probe;
    probe_init_with(&probe, "closer", cancel_in_status, channel);
    probe_add(&probe, channel, 0);
    collector collector = COLLECTOR_INIT;
    penstock_call *call = start_collecting(channel, BIDI, PENSTOCK_KIND_BIDI, NULL, &collector);
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, cancel_often, call);
    pthread_create(&threads[1], NULL, close_channel, channel);
    latch_wait(&collector.finalized, 1);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    CHECK_INT(collector.code, PENSTOCK_STATUS_CANCELLED);
    penstock_channel_release(channel);
    check_ended(&probe);
  }
}

static void handle(int number) { (void)number; }
static void *interrupt(void *arguments) {
  void **both = arguments;
  latch_wait(both[1], 1);
  pthread_kill(*(pthread_t *)both[0], SIGUSR1);
  return NULL;
}

/* grpc-java 5576: a blocking call that is interrupted returns once its interceptors have been told. */
TEST(others_grpc_java_5576_an_interrupted_call_ends_before_it_returns) {
  struct sigaction action = {.sa_handler = handle}, old;
  sigaction(SIGUSR1, &action, &old);
  penstock_channel *channel = open_channel();
  probe probe;
  pauser pauser = {PENSTOCK_EVENT_STATUS, NULL, 0, LATCH_INIT};
  pauser_init(&probe, &pauser, "slow");
  probe_add(&probe, channel, 0);
  pthread_t self = pthread_self(), thread;
  void *both[] = {&self, &pauser.paused};
  pthread_create(&thread, NULL, interrupt, both);
  penstock_call_options *options = new_options("{\"interruptible\": true}");
  penstock_reply *reply = NULL;
  /* The call may also be interrupted without this signal, before it comes to the pause. */
  do {
    CHECK_RESULT(penstock_channel_unary(channel, UNARY, "x", 1, options, &reply, NULL), PENSTOCK_E_INTERRUPTED);
    CHECK_INT(latch_count(&probe.done), seen(&probe, PENSTOCK_EVENT_CREATE));
  } while (latch_count(&pauser.paused) == 0);
  CHECK_INT(seen(&probe, PENSTOCK_EVENT_CANCEL), 1);
  pthread_join(thread, NULL);
  penstock_call_options_release(options);
  penstock_channel_release(channel);
  check_ended(&probe);
  sigaction(SIGUSR1, &old, NULL);
}
