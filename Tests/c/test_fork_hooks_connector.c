/* A connector in a process that forks (docs/fork.md). */
#include "forks.h"

#include "dialer.h"

/* In the child the parent's question is cancelled, which gives its place back, and the child's call asks anew. */
typedef struct forked {
  dialer dialer;
  penstock_channel *channel;
} forked;

static void connect_in_child(void *argument) {
  forked *self = argument;
  self->dialer.answer = give;
  int32_t code = -1;
  CHILD(unary_result(self->channel, &code) == PENSTOCK_OK && code == 0);
  CHILD(latch_count(&self->dialer.asked) == 2 && latch_count(&self->dialer.cancelled) == 1);
  CHILD(penstock_connecting_fail(self->dialer.kept, NULL) == PENSTOCK_E_GONE);
}

TEST(connector_after_a_fork) {
  with_hooks();
  forked self = {.dialer = DIALER(keep)};
  self.channel = open_with(&self.dialer, peer_address(), "{\"tls\": false, \"max_connections\": 1}");
  OK(penstock_channel_connect(self.channel));
  latch_wait(&self.dialer.asked, 1);
  reap(fork_and(connect_in_child, &self));
  CHECK_INT(latch_count(&self.dialer.cancelled), 0);
  OK(penstock_connecting_socket(self.dialer.kept, connected(&self.dialer), NULL));
  penstock_connecting_release(self.dialer.kept);
  check_echo(self.channel);
  close_with(&self.dialer, self.channel);
}
