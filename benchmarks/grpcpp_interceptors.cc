// Shows what an interceptor of grpc++ can hold back, for the table in README.md: a call's batch waits until another thread
// lets it go on. Prints a line of JSON.
//
//     grpcpp_interceptors TARGET

#include <atomic>
#include <cstdio>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/client_interceptor.h>

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;

namespace {

struct Seen {
  std::promise<InterceptorBatchMethods *> held;
  std::atomic<bool> has_metadata{false}, has_message{false}, has_close{false}, is_released{false};
};

class Holding : public grpc::experimental::Interceptor {
public:
  explicit Holding(Seen *seen) : seen(seen) {}

  void Intercept(InterceptorBatchMethods *batch) override {
    if (!batch->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_MESSAGE)) return batch->Proceed();
    seen->has_message = true;
    seen->has_metadata = batch->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_INITIAL_METADATA);
    seen->has_close = batch->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_CLOSE);
    seen->held.set_value(batch);
  }

private:
  Seen *seen;
};

class Factory : public grpc::experimental::ClientInterceptorFactoryInterface {
public:
  explicit Factory(Seen *seen) : seen(seen) {}
  grpc::experimental::Interceptor *CreateClientInterceptor(grpc::experimental::ClientRpcInfo *) override {
    return new Holding(seen);
  }

private:
  Seen *seen;
};

} // namespace

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  Seen seen;
  std::vector<std::unique_ptr<grpc::experimental::ClientInterceptorFactoryInterface>> factories;
  factories.push_back(std::make_unique<Factory>(&seen));
  grpc::GenericStub stub(grpc::experimental::CreateCustomChannelWithInterceptors(
      argv[1], grpc::InsecureChannelCredentials(), grpc::ChannelArguments(), std::move(factories)));

  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
  grpc::CompletionQueue queue;
  const grpc::Slice slice("held");
  const grpc::ByteBuffer request(&slice, 1);
  grpc::ByteBuffer reply;
  grpc::Status status;
  auto call = stub.PrepareUnaryCall(&context, "/penstock.Echo/Unary", request, &queue);
  call->StartCall();
  call->Finish(&reply, &status, nullptr);

  InterceptorBatchMethods *batch = seen.held.get_future().get();
  void *tag = nullptr;
  bool ok = false;
  const bool waits = queue.AsyncNext(&tag, &ok, std::chrono::system_clock::now()) == grpc::CompletionQueue::TIMEOUT;
  std::thread other([&] {
    seen.is_released = true;
    batch->Proceed();
  });
  const bool ends = queue.Next(&tag, &ok) && seen.is_released;
  other.join();
  std::printf("{\"waits\": %s, \"ends\": %s, \"code\": %d, \"whole_batch\": %s}\n", waits ? "true" : "false",
              ends ? "true" : "false", static_cast<int>(status.error_code()),
              seen.has_message && seen.has_metadata && seen.has_close ? "true" : "false");
  return 0;
}
