/* executor.h: executors by themselves, and as where an interceptor's callbacks run. */
#include "test.h"

static int32_t take_no_job(penstock_job job, void *argument, void *user_data) {
  (void)job, (void)argument, (void)user_data;
  return 1;
}

TEST(executor_user_data_is_finalized_with_the_last_reference) {
  atomic_int finalized = 0;
  penstock_executor *executor = NULL;
  REQUIRE_OK(penstock_executor_new(take_no_job, &finalized, count_up, &executor));
  CHECK(penstock_executor_retain(executor) == executor);
  penstock_executor_release(executor);
  CHECK_INT(atomic_load(&finalized), 0);
  penstock_executor_release(executor);
  CHECK_INT(atomic_load(&finalized), 1);
}

static void *no_work(void *argument) { return argument; }

TEST(executor_serial_thread_ends_with_the_last_reference) {
  /* A sanitizer starts a thread of its own with the first one. */
  pthread_t first;
  REQUIRE(pthread_create(&first, NULL, no_work, NULL) == 0 && pthread_join(first, NULL) == 0);
  int before = running_threads();
  penstock_executor *executor = NULL;
  REQUIRE_OK(penstock_executor_serial_new(&executor));
  CHECK(penstock_executor_retain(executor) == executor);
  penstock_executor_release(executor);
  CHECK_INT(running_threads(), before + 1);
  penstock_executor_release(executor);
  EVENTUALLY(running_threads() == before);
}
