/* grpcpp_client: makes bench_client's measurements with grpc++, on byte buffers without protobuf. It prints the same line of
 * JSON.
 *
 *   grpcpp_client --target HOST:PORT --what unary|pingpong|up|down|duplex|idle [--calls N] [--in-flight N] [--bytes N]
 *                 [--threads N] [--tls CA.pem] [--window N] [--style queue|callback]
 *
 *   --calls      unary calls, messages of a stream, or idle streams
 *   --in-flight  unary calls at once: 1 blocks, more run on one completion queue
 *   --threads    each makes blocking unary calls, on one channel
 *   --tls        the roots for TLS; the server's name is taken to be localhost
 *   --window     the window of a stream in bytes. The default is 4 MiB; with it downloads are 1.3 times as fast as with a
 *                window that grpc++ chooses by its own measuring
 *   --style      how unary calls at once are made: by a completion queue (the default), or by callbacks, which need more CPU
 *
 * Every reply is checked. Before the measurement a tenth of the calls is made, on the same connection.
 */
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/client_unary_call.h>
#include <grpcpp/support/sync_stream.h>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <latch>
#include <memory>
#include <mutex>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

using grpc::ByteBuffer;
using grpc::ClientContext;
using grpc::CompletionQueue;
using grpc::Slice;
using grpc::Status;
using grpc::WriteOptions;
using grpc::internal::RpcMethod;
using Clock = std::chrono::steady_clock;

/* Ends the program without destructors, because threads of grpc++ may be running. */
[[noreturn]] void die(const std::string &why) {
  std::fprintf(stderr, "grpcpp_client: %s\n", why.c_str());
  std::_Exit(1);
}

void need(const Status &status) {
  if (!status.ok()) die("status " + std::to_string(status.error_code()) + ": " + status.error_message());
}

/* A histogram of latencies, exact within 1.6 %: each power of two has 64 steps. Its size does not depend on the number of
 * calls. */
class Latencies {
public:
  void add(uint64_t nanoseconds) {
    uint64_t value = std::max<uint64_t>(nanoseconds, 64);
    int shift = std::bit_width(value) - 7;
    counts_[static_cast<size_t>(shift) << 6 | ((value >> shift) & 63)]++;
    total_++;
  }

  double microseconds(double part) const {
    uint64_t rank = static_cast<uint64_t>(part * static_cast<double>(total_)), seen = 0;
    for (size_t i = 0; i < counts_.size(); i++) {
      seen += counts_[i];
      if (seen > rank) return static_cast<double>(((i & 63) | 64) << (i >> 6)) / 1000;
    }
    return 0;
  }

private:
  std::array<uint32_t, 64 * 58> counts_{};
  uint64_t total_ = 0;
};

struct Bench {
  std::string target, what = "unary", style;
  long calls = 1000;
  int in_flight = 1, threads = 1;
  std::string pattern;
  ByteBuffer request;
  std::shared_ptr<grpc::Channel> channel;
  std::optional<Latencies> latencies;
  double slowest = 1;
  long idle_bytes = -1;

  void check_equal(const ByteBuffer &message, const std::string &wanted) const {
    bool equal = message.Length() == wanted.size();
    Slice whole;
    if (equal && message.TrySingleSlice(&whole).ok()) {
      equal = std::memcmp(whole.begin(), wanted.data(), wanted.size()) == 0;
    } else if (equal) {
      std::vector<Slice> slices;
      size_t at = 0;
      equal = message.Dump(&slices).ok();
      for (const Slice &slice : slices) {
        equal = equal && std::memcmp(slice.begin(), wanted.data() + at, slice.size()) == 0;
        at += slice.size();
      }
    }
    if (!equal) die("wrong reply of " + std::to_string(message.Length()) + " bytes");
  }
  void check_echo(const ByteBuffer &message) const { check_equal(message, pattern); }

  RpcMethod method(const char *name, RpcMethod::RpcType type) const { return RpcMethod(name, nullptr, type, channel); }
  RpcMethod unary_method() const { return method("/penstock.Echo/Unary", RpcMethod::NORMAL_RPC); }
};

void timed(Bench &bench, auto &&operation) {
  if (!bench.latencies) return operation();
  auto started = Clock::now();
  operation();
  bench.latencies->add(static_cast<uint64_t>((Clock::now() - started) / std::chrono::nanoseconds(1)));
}

/* ---- Unary ---- */

void unary_once(const Bench &bench, const RpcMethod &method) {
  ClientContext context;
  ByteBuffer reply;
  need(grpc::internal::BlockingUnaryCall(bench.channel.get(), method, &context, bench.request, &reply));
  bench.check_echo(reply);
}

void unary_blocking(Bench &bench, long calls) {
  RpcMethod method = bench.unary_method();
  for (long i = 0; i < calls; i++) timed(bench, [&] { unary_once(bench, method); });
}

void unary_threads(Bench &bench, long calls) {
  RpcMethod method = bench.unary_method();
  std::atomic<long> left = calls;
  std::vector<long> made(static_cast<size_t>(bench.threads));
  std::latch ready(bench.threads);
  std::vector<std::thread> threads;
  for (long &mine : made) {
    threads.emplace_back([&] {
      ready.arrive_and_wait();
      for (; left.fetch_sub(1, std::memory_order_relaxed) > 0; mine++) unary_once(bench, method);
    });
  }
  for (std::thread &thread : threads) thread.join();
  bench.slowest =
      static_cast<double>(*std::min_element(made.begin(), made.end())) * bench.threads / static_cast<double>(calls);
}

struct UnaryCall {
  std::optional<ClientContext> context;
  std::unique_ptr<grpc::ClientAsyncResponseReader<ByteBuffer>> reader;
  ByteBuffer reply;
  Status status;

  void start(const Bench &bench, const RpcMethod &method, CompletionQueue *queue) {
    context.emplace();
    reader.reset(grpc::internal::ClientAsyncResponseReaderHelper::Create<ByteBuffer>(bench.channel.get(), queue, method,
                                                                                     &*context, bench.request));
    reader->StartCall();
    reader->Finish(&reply, &status, this);
  }
};

void unary_queue(Bench &bench, long calls) {
  RpcMethod method = bench.unary_method();
  CompletionQueue queue;
  std::vector<UnaryCall> slots(static_cast<size_t>(std::min<long>(bench.in_flight, calls)));
  long left = calls - static_cast<long>(slots.size());
  for (UnaryCall &call : slots) call.start(bench, method, &queue);
  for (long ended = 0; ended < calls; ended++) {
    void *tag;
    bool ok;
    queue.Next(&tag, &ok);
    UnaryCall &call = *static_cast<UnaryCall *>(tag);
    need(call.status);
    bench.check_echo(call.reply);
    if (left-- > 0) call.start(bench, method, &queue);
  }
}

void unary_callback(Bench &bench, long calls) {
  struct Slot {
    std::optional<ClientContext> context;
    ByteBuffer reply;
  };
  RpcMethod method = bench.unary_method();
  std::vector<Slot> slots(static_cast<size_t>(std::min<long>(bench.in_flight, calls)));
  std::atomic<long> left = calls - static_cast<long>(slots.size()), ended = 0;
  std::latch done(1);
  std::function<void(Slot &)> start = [&](Slot &slot) {
    slot.context.emplace();
    grpc::internal::CallbackUnaryCall<ByteBuffer, ByteBuffer>(bench.channel.get(), method, &*slot.context,
                                                              &bench.request, &slot.reply, [&](Status status) {
                                                                need(status);
                                                                bench.check_echo(slot.reply);
                                                                bool more = left.fetch_sub(1) > 0;
                                                                if (more) start(slot);
                                                                if (ended.fetch_add(1) + 1 == calls) done.count_down();
                                                              });
  };
  for (Slot &slot : slots) start(slot);
  done.wait();
}

/* ---- Streams ---- */

void pingpong(Bench &bench, long calls) {
  ClientContext context;
  std::unique_ptr<grpc::ClientReaderWriter<ByteBuffer, ByteBuffer>> stream(
      grpc::internal::ClientReaderWriterFactory<ByteBuffer, ByteBuffer>::Create(
          bench.channel.get(), bench.method("/penstock.Echo/Bidi", RpcMethod::BIDI_STREAMING), &context));
  for (long i = 0; i < calls; i++) {
    timed(bench, [&] {
      ByteBuffer echo;
      if (!stream->Write(bench.request) || !stream->Read(&echo)) need(stream->Finish()), die("the stream has ended");
      bench.check_echo(echo);
    });
  }
  stream->WritesDone();
  need(stream->Finish());
}

/* The messages that a stream sends, and those that it has to receive. */
struct Traffic {
  const char *method;
  long sends, receives;
  const char *key;
  std::string value, wanted;
};

Traffic traffic(const Bench &bench, long calls) {
  std::string count = std::to_string(calls);
  if (bench.what == "up") return {"/penstock.Echo/ClientStream", calls, 1, "x-mode", "count", count};
  if (bench.what == "down") return {"/penstock.Echo/ServerStream", 1, calls, "x-repeat", count, bench.pattern};
  return {"/penstock.Echo/Bidi", calls, calls, nullptr, "", bench.pattern};
}

void stream(Bench &bench, long calls) {
  const Traffic plan = traffic(bench, calls);
  ClientContext context;
  if (plan.key) context.AddMetadata(plan.key, plan.value);
  context.set_initial_metadata_corked(true);
  CompletionQueue queue;
  auto stream = grpc::GenericStub(bench.channel).PrepareCall(&context, plan.method, &queue);
  enum Done : intptr_t { kSent, kReceived, kFinished };
  auto tag = [](Done done) { return reinterpret_cast<void *>(done); };
  long sent = 0, received = 0;
  ByteBuffer message;
  Status status;
  auto send = [&] {
    if (++sent == plan.sends) {
      stream->WriteLast(bench.request, WriteOptions(), tag(kSent));
    } else {
      stream->Write(bench.request, WriteOptions().set_buffer_hint(), tag(kSent));
    }
  };
  stream->StartCall(nullptr); /* the initial metadata is corked, so the queue gives no tag for this */
  send();
  stream->Read(&message, tag(kReceived));
  void *got;
  for (bool ok, open = true; open && queue.Next(&got, &ok);) {
    switch (static_cast<Done>(reinterpret_cast<intptr_t>(got))) {
    case kSent:
      if (ok && sent < plan.sends) send();
      break;
    case kReceived:
      if (!ok) {
        stream->Finish(&status, tag(kFinished));
        break;
      }
      bench.check_equal(message, plan.wanted);
      received++;
      stream->Read(&message, tag(kReceived));
      break;
    case kFinished:
      open = false;
      break;
    }
  }
  need(status);
  if (sent != plan.sends || received != plan.receives) die("wrong count: " + std::to_string(received));
}

/* ---- Idle streams ---- */

long resident_bytes() {
  std::ifstream file("/proc/self/statm");
  long size = 0, resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

/* Measures the memory of a stream that is left idle. A stream counts as open when the server's headers have come. */
void idle(Bench &bench, long streams) {
  struct Stream {
    ClientContext context;
    std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
    Status status;
  };
  CompletionQueue queue;
  grpc::GenericStub stub(bench.channel);
  long before = resident_bytes();
  std::vector<std::unique_ptr<Stream>> open;
  auto wait_for_each = [&](const char *what) {
    for (long i = 0; i < streams; i++) {
      void *tag;
      bool ok;
      if (!queue.Next(&tag, &ok) || !ok) die(what);
    }
  };
  for (long i = 0; i < streams; i++) {
    Stream &one = *open.emplace_back(std::make_unique<Stream>());
    one.stream = stub.PrepareCall(&one.context, "/penstock.Echo/Bidi", &queue);
    one.stream->StartCall(&one);
  }
  wait_for_each("a stream does not start");
  for (auto &one : open) one->stream->ReadInitialMetadata(one.get());
  wait_for_each("no headers");
  bench.idle_bytes = (resident_bytes() - before) / streams;
  for (auto &one : open) {
    one->context.TryCancel();
    one->stream->Finish(&one->status, one.get());
  }
  wait_for_each("a stream does not end");
}

/* ---- The command line ---- */

using Run = void (*)(Bench &, long);

Run choose(const Bench &bench) {
  if (bench.what == "idle") return idle;
  if (bench.what == "pingpong") return pingpong;
  if (bench.what == "up" || bench.what == "down" || bench.what == "duplex") {
    return stream;
  }
  if (bench.what != "unary") die("--what: " + bench.what);
  if (!bench.style.empty() && bench.style != "queue" && bench.style != "callback") die("--style: " + bench.style);
  if (bench.threads > 1) return unary_threads;
  if (bench.style == "callback") return unary_callback;
  return bench.in_flight > 1 ? unary_queue : unary_blocking;
}

std::shared_ptr<grpc::Channel> connect(const std::string &target, const std::string &roots, int window) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, window);
  if (roots.empty()) return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
  std::ifstream file(roots, std::ios::binary);
  if (!file) die("cannot read " + roots);
  std::ostringstream text;
  text << file.rdbuf();
  arguments.SetSslTargetNameOverride("localhost");
  return grpc::CreateCustomChannel(target, grpc::SslCredentials({text.str(), "", ""}), arguments);
}

double seconds(timeval from, timeval to) {
  return static_cast<double>(to.tv_sec - from.tv_sec) + static_cast<double>(to.tv_usec - from.tv_usec) / 1e6;
}

} // namespace

int main(int argc, char **argv) {
  Bench bench;
  std::string roots;
  long bytes = 64;
  int window = 4 << 20;
  for (int i = 1; i + 1 < argc; i += 2) {
    std::string name = argv[i];
    const char *value = argv[i + 1];
    if (name == "--target")
      bench.target = value;
    else if (name == "--what")
      bench.what = value;
    else if (name == "--style")
      bench.style = value;
    else if (name == "--calls")
      bench.calls = std::atol(value);
    else if (name == "--in-flight")
      bench.in_flight = std::atoi(value);
    else if (name == "--threads")
      bench.threads = std::atoi(value);
    else if (name == "--bytes")
      bytes = std::atol(value);
    else if (name == "--tls")
      roots = value;
    else if (name == "--window")
      window = std::atoi(value);
    else
      die("not an option: " + name);
  }
  if (argc % 2 == 0) die(std::string("no value for ") + argv[argc - 1]);
  if (bench.calls < 1 || bench.in_flight < 1 || bench.threads < 1 || bytes < 0 || window < 1)
    die("a number is too small");
  for (long i = 0; i < bytes; i++) bench.pattern.push_back(static_cast<char>(i * 131));
  Slice slice(bench.pattern);
  bench.request = ByteBuffer(&slice, 1);
  bench.channel = connect(bench.target, roots, window);

  Run run = choose(bench);
  if (run == idle) {
    unary_blocking(bench, 1);
  } else {
    run(bench, bench.calls / 10 + 1);
  }
  if (run == pingpong || run == unary_blocking) bench.latencies.emplace();
  rusage before, after;
  getrusage(RUSAGE_SELF, &before);
  auto started = Clock::now();
  run(bench, bench.calls);
  double took = std::chrono::duration<double>(Clock::now() - started).count();
  getrusage(RUSAGE_SELF, &after);
  std::printf("{\"calls\": %ld, \"seconds\": %.6f, \"user\": %.6f, \"system\": %.6f, \"switches\": %ld, "
              "\"max_rss_kb\": %ld, \"p50_us\": %.2f, \"p99_us\": %.2f, \"slowest\": %.3f",
              bench.calls, took, seconds(before.ru_utime, after.ru_utime), seconds(before.ru_stime, after.ru_stime),
              after.ru_nvcsw - before.ru_nvcsw, after.ru_maxrss,
              bench.latencies ? bench.latencies->microseconds(0.5) : 0,
              bench.latencies ? bench.latencies->microseconds(0.99) : 0, bench.slowest);
  if (bench.idle_bytes >= 0) std::printf(", \"bytes_per_stream\": %ld", bench.idle_bytes);
  std::printf("}\n");
  return 0;
}
